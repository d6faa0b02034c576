// SPDX-License-Identifier: Apache-2.0
// An elementwise expression ready to become a kernel: operations over strided inputs and scalars, with the outputs.
// Only its structure is compiled (operations, dtypes, which strides are 0 or 1); shapes, strides and scalars are
// arguments.
#pragma once

#include <functional>
#include <memory_resource>

#include "tessera/base/inline_vector.h"
#include "tessera/base/shape.h"
#include "tessera/device/launch/launch_arguments.h"
#include "tessera/ir/value.h"

namespace tessera::detail {

/// Strided memory seen as an expression's shape.
struct StridedView {
  std::shared_ptr<Storage> storage;
  DType dtype = DType::f32;
  Strides strides;
  std::int64_t offset = 0;  ///< elements
  friend bool operator==(const StridedView&, const StridedView&) = default;
};

/// What is compiled. Views are the inputs and then the outputs; dimensions are merged ones, innermost last.
struct Structure {
  struct Node {
    ir::Op op = ir::Op::none;  ///< load: args[0] is an input; param: args[0] is a scalar; else an operation
    std::uint8_t sub = 0;
    DType dtype = DType::f32;
    std::array<std::int16_t, 3> args = {-1, -1, -1};
    friend bool operator==(const Node&, const Node&) = default;
  };
  /// two to four only in maps on `cpu`, along the innermost dimension: loads and stores of a known stride are shuffles.
  enum StrideClass : std::uint8_t { zero, one, two, three, four, any };

  // Most expressions are small: room for them without an allocation.
  InlineVector<Node, 8> nodes;
  InlineVector<DType, 8> inputs, scalars, outputs;
  InlineVector<std::int16_t, 4> output_nodes;
  InlineVector<std::uint8_t, 16> strides;  ///< StrideClass of (view, dimension)
  std::uint8_t rank = 1;
  std::uint8_t form = 0;  ///< fused.cpp's own, and reduce.cpp's own
  // Reductions:
  std::uint8_t reduced = 0;  ///< how many of the last dimensions are reduced
  std::uint8_t reduction = 0;
  std::uint16_t threads = 0;  ///< of a block
  DType accumulator = DType::f32;

  friend bool operator==(const Structure&, const Structure&) = default;
  std::size_t hash() const;
};

class CachedExpression;

class Fused {
 public:
  explicit Fused(Device device) : device_(device) { inputs_.reserve(4); }
  Fused(const Fused&) = delete;
  Fused& operator=(const Fused&) = delete;

  int input(StridedView view);  ///< equal views are one input
  int scalar(DType dtype, std::uint64_t bits);
  int operation(ir::Op op, std::uint8_t sub, DType dtype, std::span<const int> args);
  void output(int node, StridedView view);

  /// How much there is, without outputs; what was added since can be taken out again.
  struct Mark {
    std::size_t nodes, inputs, scalars, operations;
  };
  Mark mark() const { return {structure_.nodes.size(), inputs_.size(), scalars_.size(), operations_}; }
  void rollback(const Mark& mark);

  Device device() const { return device_; }
  std::size_t operations() const { return operations_; }
  const std::pmr::vector<StridedView>& inputs() const { return inputs_; }
  const Structure& structure() const { return structure_; }

  /// Computes all outputs over `shape`; keeps the launch in `repeated` if there is one.
  void run(const Shape& shape, const CachedExpression* repeated = nullptr);

  // For reduce.cpp: dimensions merged where every view allows it, kept ones first. `reduced[i]` marks dimensions of
  // `shape`.
  struct Dimensions {
    Shape extents;
    std::size_t reduced = 0;
  };
  Dimensions merge(const Shape& shape, const std::vector<bool>& reduced);
  /// What the kernel is launched with; lives no longer than this. A reduction adds its own.
  std::pmr::vector<LaunchArgument> arguments(const Dimensions& dimensions);
  Structure& structure() { return structure_; }
  std::pmr::vector<StridedView>& outputs() { return outputs_; }

 private:
  BufferView range(const StridedView& view, const Shape& extents) const;
  // Memory for what a small expression needs.
  std::array<std::byte, 1536> inline_buffer_;
  std::pmr::monotonic_buffer_resource arena_{inline_buffer_.data(), inline_buffer_.size()};
  Device device_;
  Structure structure_;
  std::pmr::vector<StridedView> inputs_{&arena_}, outputs_{&arena_};
  InlineVector<std::uint64_t, 8> scalars_;
  std::size_t operations_ = 0;
};

/// The kernel's parameters while it is traced, in the order in which `Fused::arguments` gives them.
class FusedTrace {
 public:
  explicit FusedTrace(const Structure& structure);
  /// Element position of a view at coordinates, one of each merged dimension.
  ir::Value position(std::size_t view, std::span<const ir::Value> coordinates) const;
  /// Values of all nodes at coordinates, each of its node's dtype; inputs are read there.
  std::vector<ir::Value> evaluate(std::span<const ir::Value> coordinates) const;
  const ir::BufferRef& output(std::size_t i) const { return outputs_[i]; }
  ir::Value extent(std::size_t dimension) const { return extents_[dimension]; }

 private:
  const Structure& s_;
  std::vector<ir::BufferRef> inputs_, outputs_;
  std::vector<ir::Value> scalars_, extents_;
  std::vector<ir::Value>
      strides_;  ///< (view, dimension); literals from two to four; not valid where the class is zero or one
};

/// At most what a fused kernel with one output more than `views` passes: as KernelFacts counts it.
std::uint64_t parameter_bytes(std::uint64_t views, std::uint64_t scalars, std::size_t rank);

/// "mul_add": the operations, for the kernel's name.
std::string operation_names(const Structure& structure);
void count_fused_launch();

}  // namespace tessera::detail
