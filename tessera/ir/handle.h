// SPDX-License-Identifier: Apache-2.0
// A node as those hold it who write kernels: with the number of its trace, so that a value that was kept from one
// kernel (a static, a captured Buffer) is refused in another, where its id would name something else.
#pragma once

#include "tessera/ir/node.h"

namespace tessera::ir {

/// The number of the trace that is open on this thread; 0 if none is.
std::uint64_t current_trace();
/// KernelError: a value of another trace, or of none, is used here.
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
