// SPDX-License-Identifier: Apache-2.0
#include "tessera/array/traversal.h"

#include <map>
#include <set>
#include <typeindex>
#include <utility>

#include "tessera/base/error.h"

namespace tessera::detail {

struct Traversal::SharedObjects {
  using Key = std::pair<const void*, std::type_index>;
  struct Shared {
    bool begun = false, changed = false;
    std::shared_ptr<void> became;
  };
  std::set<Key> visited;
  std::map<Key, Shared> mapped;
};

Traversal::SharedObjects& Traversal::shared() {
  if (shared_ == nullptr) shared_ = new SharedObjects;
  return *shared_;
}
void Traversal::drop_shared() noexcept { delete shared_; }

bool Traversal::first_visit(const void* object, const std::type_info& type) {
  return shared().visited.insert({object, type}).second;
}

std::shared_ptr<void> Traversal::begin(const void* object, const std::type_info& type, const Path& at) {
  SharedObjects::Shared& known = shared().mapped[{object, type}];
  if (known.became) {
    if (known.changed) ++changes_;
    return known.became;
  }
  if (known.begun)
    fail<ArgumentError>({.operation = operation_,
                         .with = {{"part", at.text()}},
                         .wrong = "the structure contains a cycle: a shared pointer to an object that contains it",
                         .remedy = for_cycles_});
  known.begun = true;
  return nullptr;
}

void Traversal::end(const void* object, const std::type_info& type, std::shared_ptr<void> became) {
  SharedObjects::Shared& known = shared().mapped[{object, type}];
  known.changed = became.get() != object;
  known.became = std::move(became);
}

}  // namespace tessera::detail
