// SPDX-License-Identifier: Apache-2.0
#include "tessera/task/options.h"

namespace tessera {

namespace detail {

constinit thread_local const OptionsInForce* options_in_force = nullptr;

std::shared_ptr<const OptionsInForce> options_with(const TaskOptions& more) {
  if (!more.scope && !more.priority && !more.stop && !more.policy) return shared_options();
  auto all = std::make_shared<OptionsInForce>();
  if (options_in_force != nullptr) {
    all->scope = options_in_force->scope;
    all->priority = options_in_force->priority;
    all->stop = options_in_force->stop;
    all->policy = options_in_force->policy;
  }
  if (more.scope) all->scope = more.scope;
  if (more.priority) all->priority = *more.priority;
  if (more.stop) all->stop = more.stop;
  if (more.policy) all->policy = more.policy;
  return all;
}

}  // namespace detail

With::With(const TaskOptions& options) : mine_(detail::options_with(options)), before_(detail::options_in_force) {
  if (mine_) detail::options_in_force = mine_.get();
}
With::~With() { detail::options_in_force = before_; }

Scope current_scope() {
  const detail::OptionsInForce* const now = detail::options_in_force;
  return now != nullptr && now->scope ? *now->scope : Scope();
}

}  // namespace tessera
