// SPDX-License-Identifier: Apache-2.0
// A node id together with the number of the trace that created it. If a value is stored during one trace (in a static
// variable or a captured Buffer) and used in another trace, its id would refer to a different node. The handle detects
// this.
#pragma once

#include "tessera/ir/node.h"

namespace tessera::ir {

/// Returns the number of the active trace on this thread, or 0 if there is none.
std::uint64_t current_trace();
/// Throws the KernelError for a value that is used outside of the trace that created it.
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
