// SPDX-License-Identifier: Apache-2.0
// Estimates how many operations a launch executes. The CPU splits launches by it, and reports show it. Internal.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "tessera/base/packed.h"
#include "tessera/device/driver.h"
#include "tessera/ir/node.h"

namespace tessera {

/// Adds up weights of the nodes that a work item executes: one thread of a map kernel, or one block of a block kernel.
/// Nodes in loops count once per iteration. If the iteration count depends only on the scalars and sizes of the launch,
/// it is computed.
class OperationCount {
 public:
  OperationCount() = default;
  /// Estimates the time of a work item in units of a simple operation. If an iteration count is unknown, it is assumed
  /// to be 64 for a for loop and 16 for a while loop.
  explicit OperationCount(const ir::Function& lowered);
  using Weight = std::function<double(const ir::Node& node)>;
  /// Uses other weights, and `unknown` for unknown iteration counts.
  OperationCount(const ir::Function& fn, const Weight& weight, double unknown);
  explicit OperationCount(Unpacker& in);  ///< throws FormatError
  void pack(Packer& out) const;

  /// Returns the sum for a work item of a launch with these arguments.
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

  void add_block(const ir::Function& fn, ir::BlockId block, std::uint32_t loop, const Weight& weight,
                 std::optional<double> unknown_trips);
  static std::optional<Affine> affine_of(const ir::Function& fn, ir::NodeId id, int depth = 0);
  static std::optional<Affine> difference_of(const ir::Function& fn, ir::NodeId a, ir::NodeId b, int depth);
  static std::optional<Affine> trip_count(const ir::Function& fn, const ir::Node& loop, bool guesses);

  std::vector<Loop> loops_;
};

}  // namespace tessera
