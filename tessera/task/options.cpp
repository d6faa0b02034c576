// SPDX-License-Identifier: Apache-2.0
#include "tessera/task/options.h"

namespace tessera {

namespace detail {

constinit thread_local const InheritedOptions* inherited_options = nullptr;

std::shared_ptr<const InheritedOptions> options_with(const TaskOptions& more) {
  if (!more.scope && !more.priority && !more.stop && !more.policy) return shared_options();
  auto all = std::make_shared<InheritedOptions>();
  if (inherited_options != nullptr) {
    all->scope = inherited_options->scope;
    all->priority = inherited_options->priority;
    all->stop = inherited_options->stop;
    all->policy = inherited_options->policy;
  }
  if (more.scope) all->scope = more.scope;
  if (more.priority) all->priority = *more.priority;
  if (more.stop) all->stop = more.stop;
  if (more.policy) all->policy = more.policy;
  return all;
}

}  // namespace detail

With::With(const TaskOptions& options) : mine_(detail::options_with(options)), before_(detail::inherited_options) {
  if (mine_) detail::inherited_options = mine_.get();
}
With::~With() { detail::inherited_options = before_; }

Scope current_scope() {
  const detail::InheritedOptions* const now = detail::inherited_options;
  return now != nullptr && now->scope ? *now->scope : Scope();
}

}  // namespace tessera
