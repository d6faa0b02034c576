// SPDX-License-Identifier: Apache-2.0
#include "tessera/array/traversal.h"

#include <typeindex>

#include "tessera/base/error.h"

namespace tessera::detail {

bool Traversal::first_visit(const void* object, std::type_index type) { return visited_.insert({object, type}).second; }

std::shared_ptr<void> Traversal::begin(const void* object, std::type_index type, const Path& at) {
  Shared& known = shared_[{object, type}];
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

void Traversal::end(const void* object, std::type_index type, std::shared_ptr<void> became) {
  Shared& known = shared_[{object, type}];
  known.changed = became.get() != object;
  known.became = std::move(became);
}

}  // namespace tessera::detail
