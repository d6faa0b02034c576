// SPDX-License-Identifier: Apache-2.0
// An elementwise expression that can be compiled to a kernel: operations on strided inputs and scalars, and outputs.
// Only its structure is compiled: the operations, the dtypes, and which strides are 0 or 1. Shapes, strides and scalars
// are launch arguments.
#pragma once

#include <functional>
#include <memory_resource>

#include "tessera/base/inline_vector.h"
#include "tessera/base/shape.h"
#include "tessera/device/launch/launch_arguments.h"
#include "tessera/ir/value.h"

namespace tessera::detail {

/// Strided memory, broadcast to an expression's shape.
struct StridedView {
  std::shared_ptr<Storage> storage;
  DType dtype = DType::f32;
  Strides strides;
  std::int64_t offset = 0;  ///< in elements
  friend bool operator==(const StridedView&, const StridedView&) = default;
};

/// The part of an expression that is compiled. Views are the inputs followed by the outputs. Dimensions are merged, and
/// the innermost dimension is the last.
struct Structure {
  struct Node {
    /// load: args[0] is the index of an input; param: args[0] is the index of a scalar; otherwise an operation
    ir::Op op = ir::Op::none;
    std::uint8_t sub = 0;
    DType dtype = DType::f32;
    std::array<std::int16_t, 3> args = {-1, -1, -1};
    friend bool operator==(const Node&, const Node&) = default;
  };
  /// The classes two to four are used only for the innermost dimension of maps on `cpu`. Loads and stores with a known
  /// small stride are compiled to shuffles.
  enum StrideClass : std::uint8_t { zero, one, two, three, four, any };

  // Most expressions are small and fit without an allocation.
  InlineVector<Node, 8> nodes;
  InlineVector<DType, 8> inputs, scalars, outputs;
  InlineVector<std::int16_t, 4> output_nodes;
  InlineVector<std::uint8_t, 16> strides;  ///< StrideClass of (view, dimension)
  std::uint8_t rank = 1;
  std::uint8_t form = 0;  ///< A value private to fused.cpp or reduce.cpp.
  // Reductions:
  std::uint8_t reduced = 0;  ///< The number of trailing dimensions that are reduced.
  std::uint8_t reduction = 0;
  std::uint16_t threads = 0;  ///< Threads per block.
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

  int input(StridedView view);  ///< Equal views share an input.
  int scalar(DType dtype, std::uint64_t bits);
  int operation(ir::Op op, std::uint8_t sub, DType dtype, std::span<const int> args);
  void output(int node, StridedView view);

  /// A state to roll back to. It contains the current sizes; outputs are not included.
  struct Mark {
    std::size_t nodes, inputs, scalars, operations;
  };
  Mark mark() const { return {structure_.nodes.size(), inputs_.size(), scalars_.size(), operations_}; }
  void rollback(const Mark& mark);

  Device device() const { return device_; }
  std::size_t operations() const { return operations_; }
  const std::pmr::vector<StridedView>& inputs() const { return inputs_; }
  const Structure& structure() const { return structure_; }

  /// Computes all outputs over `shape`. Caches the launch in `repeated` if it is not null.
  void run(const Shape& shape, const CachedExpression* repeated = nullptr);

  // For reduce.cpp: the dimensions after merging those that can be merged in every view. Dimensions that are not
  // reduced come first. `reduced[i]` marks the reduced dimensions of `shape`.
  struct Dimensions {
    Shape extents;
    std::size_t reduced = 0;
  };
  Dimensions merge(const Shape& shape, const std::vector<bool>& reduced);
  /// The launch arguments, which are valid as long as this object. A reduction appends its own arguments.
  std::pmr::vector<LaunchArgument> arguments(const Dimensions& dimensions);
  Structure& structure() { return structure_; }
  std::pmr::vector<StridedView>& outputs() { return outputs_; }

 private:
  BufferView range(const StridedView& view, const Shape& extents) const;
  // Inline storage for a small expression.
  std::array<std::byte, 1536> inline_buffer_;
  std::pmr::monotonic_buffer_resource arena_{inline_buffer_.data(), inline_buffer_.size()};
  Device device_;
  Structure structure_;
  std::pmr::vector<StridedView> inputs_{&arena_}, outputs_{&arena_};
  InlineVector<std::uint64_t, 8> scalars_;
  std::size_t operations_ = 0;
};

/// The kernel's parameters while the kernel is traced, in the order of `Fused::arguments`.
class FusedTrace {
 public:
  explicit FusedTrace(const Structure& structure);
  /// The position of an element in a view. `coordinates` has one entry per merged dimension.
  ir::Value position(std::size_t view, std::span<const ir::Value> coordinates) const;
  /// Reads the inputs at these coordinates and returns the values of all nodes, in the dtypes of the nodes.
  std::vector<ir::Value> evaluate(std::span<const ir::Value> coordinates) const;
  const ir::BufferRef& output(std::size_t i) const { return outputs_[i]; }
  ir::Value extent(std::size_t dimension) const { return extents_[dimension]; }

 private:
  const Structure& s_;
  std::vector<ir::BufferRef> inputs_, outputs_;
  std::vector<ir::Value> scalars_, extents_;
  /// per view and dimension: a literal for the classes two to four, no value for zero and one
  std::vector<ir::Value> strides_;
};

/// An upper bound for the parameter bytes of a fused kernel with `views` views plus one output, counted as in
/// KernelFacts.
std::uint64_t parameter_bytes(std::uint64_t views, std::uint64_t scalars, std::size_t rank);

/// The names of the operations, which are used in the kernel's name: "mul_add".
std::string operation_names(const Structure& structure);
void count_fused_launch();

}  // namespace tessera::detail
