// SPDX-License-Identifier: Apache-2.0
// About how long a thread of a kernel takes: what a launch is cut by. Internal.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/base/packed.h"
#include "tessera/device/driver.h"
#include "tessera/ir/node.h"

namespace tessera::cpu {

/// Rough operations: nodes, and loops by their rounds, which are computed of a launch's scalars and sizes where they
/// follow from these; else 64, and 16 of a while.
class Cost {
 public:
  Cost() = default;
  explicit Cost(const ir::Function& lowered);
  explicit Cost(Unpacker& in);  ///< FormatError
  void pack(Packer& out) const;

  /// Of one thread.
  double operator()(std::span<const Argument> arguments) const;

 private:
  // A number of a program in the order in which a stack computes it.
  struct Step {
    enum Kind : std::uint8_t { number, scalar, size, binary, count_ } kind = number;
    std::uint8_t what = 0;  // the scalar's dtype; the ir::BinaryOp
    std::uint32_t param = 0;
    double value = 0;
  };
  struct Loop {
    std::uint32_t outer = 0;  // the one around it; the first is the kernel itself
    std::uint32_t steps = 0;  // where those of its rounds end
    double operations = 0;    // of one round, without loops in it
  };
  static constexpr std::size_t deepest = 16;  // numbers on the stack

  void walk(const ir::Function& fn, ir::BlockId block, std::uint32_t loop);
  bool write(const ir::Function& fn, ir::NodeId id, std::size_t depth);
  void rounds_of(const ir::Function& fn, const ir::Node& loop);

  std::vector<Loop> loops_;
  std::vector<Step> steps_;
};

}  // namespace tessera::cpu
