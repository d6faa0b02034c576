// SPDX-License-Identifier: Apache-2.0
// Estimates how many operations a launch executes. The CPU splits launches by it, and reports show it. Internal.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tessera/base/packed.h"
#include "tessera/device/driver.h"
#include "tessera/ir/node.h"

namespace tessera {

/// Estimates how many operations a work item executes: one thread of a map kernel, or one block of a block kernel. Each
/// node counts as one operation, multiplied by the iterations of the loops around it. If the iteration count depends
/// only on the scalars and sizes of the launch, it is computed. Otherwise it is assumed to be 64 for a for loop and 16
/// for a while loop.
class OperationCount {
 public:
  OperationCount() = default;
  /// What is counted: all nodes, or only arithmetic with floats, dot4 and products of fragments.
  enum class Nodes : std::uint8_t { all, arithmetic };
  explicit OperationCount(const ir::Function& fn, Nodes nodes = Nodes::all);
  explicit OperationCount(Unpacker& in);  ///< throws FormatError
  void pack(Packer& out) const;

  /// Returns the number of operations of one thread of a map kernel, or of one block of a block kernel.
  double operator()(std::span<const Argument> arguments) const;

 private:
  // The value base + factor * x, where x is a scalar or a buffer size of the launch.
  struct Affine {
    enum From : std::uint8_t { nothing, scalar, size } from = nothing;
    std::uint32_t param = 0;
    double base = 0, factor = 0;
    double operator()(std::span<const Argument> arguments) const {
      if (from == nothing) return base;
      const Argument& a = arguments[param];
      return base + factor * (from == scalar ? static_cast<double>(static_cast<std::int64_t>(a.bits))
                                             : static_cast<double>(a.elements));
    }
  };
  struct Loop {
    std::uint32_t outer = 0;  // index of the enclosing loop; index 0 is the kernel itself
    Affine rounds;
    double operations = 0;  // of one iteration, without nested loops
  };
  static constexpr std::uint32_t most_loops = 64;  // further loops count as part of their enclosing loop

  void add_block(const ir::Function& fn, ir::BlockId block, std::uint32_t loop, Nodes nodes);
  static std::optional<Affine> affine_of(const ir::Function& fn, ir::NodeId id, int depth = 0);
  static Affine trip_count(const ir::Function& fn, const ir::Node& loop);

  std::vector<Loop> loops_;
};

}  // namespace tessera
