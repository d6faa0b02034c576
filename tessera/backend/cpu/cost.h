// SPDX-License-Identifier: Apache-2.0
// About how long a thread of a kernel takes: what a launch is cut by. Internal.
#pragma once

#include <cstdint>
#include <optional>
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
  // base + factor times a scalar or a size.
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
    std::uint32_t outer = 0;  // the one around it; the first is the kernel itself
    Affine rounds;
    double operations = 0;  // of one round, without loops in it
  };
  static constexpr std::uint32_t most_loops = 64;  // further ones count as part of those around them

  void add_block(const ir::Function& fn, ir::BlockId block, std::uint32_t loop);
  static std::optional<Affine> affine_of(const ir::Function& fn, ir::NodeId id, int depth = 0);
  static Affine trip_count(const ir::Function& fn, const ir::Node& loop);

  std::vector<Loop> loops_;
};

}  // namespace tessera::cpu
