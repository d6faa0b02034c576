// SPDX-License-Identifier: Apache-2.0
// A node id together with the number of its trace. A value stored during one kernel's trace (in a static or a captured
// Buffer) is rejected in another, where its id would denote a different node.
#pragma once

#include "tessera/ir/node.h"

namespace tessera::ir {

/// The number of the active trace on this thread; 0 if there is none.
std::uint64_t current_trace();
/// Throws KernelError: a value of another trace, or of none, was used.
[[noreturn]] void refuse_foreign_node();

class Handle {
 public:
  Handle() = default;
  Handle(NodeId id) : id_(id), trace_(id == no_node ? 0 : current_trace()) {}
  operator NodeId() const {
    if (id_ != no_node && trace_ != current_trace()) refuse_foreign_node();
    return id_;
  }
  bool valid() const { return id_ != no_node; }

 private:
  NodeId id_ = no_node;
  std::uint64_t trace_ = 0;
};

}  // namespace tessera::ir
