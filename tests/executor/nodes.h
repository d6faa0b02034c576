// SPDX-License-Identifier: Apache-2.0
// Helpers that create executor nodes in tests.
#pragma once

#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "tessera/executor/executor.h"

namespace tessera::test {

inline void spin_until(const std::atomic<bool>& flag) {
  while (!flag) std::this_thread::yield();
}

/// Submits a node that runs `f` after the nodes in `before`.
template <class F>
executor::NodeRef submit(executor::Group& group, F&& f, const std::vector<executor::NodeRef>& before = {},
                         const char* name = "task") {
  executor::Submission node(executor::make_node(group, std::forward<F>(f), name));
  for (const executor::NodeRef& b : before) node->after(*b);
  return node.submit();
}

}  // namespace tessera::test
