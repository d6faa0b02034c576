// SPDX-License-Identifier: Apache-2.0
// Builds a Function while a kernel is traced: checks types, folds constants, shares equal pure nodes, and at the end
// brings the function into its canonical form. Nothing here is a template over dtypes; user-facing wrappers are in
// kernel/.
#pragma once

#include <functional>
#include <optional>
#include <unordered_map>

#include "tessera/ir/node.h"

namespace tessera::ir {

/// One kernel under construction. `Builder::current()` is the one whose Scope is open on this thread.
class Builder {
 public:
  /// `index_type`: lowering rebuilds functions with i32 or i64 in place of `index`. `source`: where the kernel is
  /// written, for the KernelError of a block that is too large.
  Builder(std::string name, KernelKind kind, std::array<std::uint32_t, 3> block_size = {1, 1, 1},
          DType index_type = DType::index, SourceLine source = {});
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;

  /// The builder that traces on this thread; KernelError if none does.
  static Builder& current();
  static bool tracing();

  /// Makes a builder current for as long as it lives; KernelError if another one is (kernels are not traced inside
  /// kernels).
  class Scope {
   public:
    explicit Scope(Builder& builder);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
  };

  // Parameters, in the order of the kernel's signature.
  NodeId buffer(std::string name, DType dtype, Access access);
  NodeId scalar(std::string name, DType dtype);

  // Leaves.
  NodeId constant(DType dtype, std::uint64_t bits);
  NodeId constant_of(DType dtype, double value);
  NodeId constant_of(DType dtype, std::int64_t value);
  NodeId index(IndexKind kind, std::uint64_t dimension = 0);
  NodeId buffer_size(NodeId buffer);
  NodeId local(Type type, std::uint64_t count);
  NodeId shared(DType dtype, std::uint64_t count);
  NodeId fragment(FragmentRole role, DType dtype);

  // Pure. Operands of f16 and bf16 are converted to f32 first: 16-bit floats are for storing.
  NodeId unary(UnaryOp op, NodeId a);
  NodeId binary(BinaryOp op, NodeId a, NodeId b);
  NodeId compare(CompareOp op, NodeId a, NodeId b);
  NodeId select(NodeId condition, NodeId if_true, NodeId if_false);
  NodeId cast(DType to, NodeId a);
  NodeId bitcast(DType to, NodeId a);
  NodeId math(MathOp op, NodeId a, NodeId b = no_node, NodeId c = no_node);
  NodeId make_vector(std::span<const NodeId> elements);
  NodeId extract(NodeId vector, std::uint32_t lane);
  NodeId dot4(Dot4Signs signs, NodeId a, NodeId b, NodeId c);

  // Convergent.
  NodeId subgroup(SubgroupOp op, NodeId a, NodeId lane = no_node);
  NodeId block_reduce(ReduceOp op, NodeId a);
  NodeId block_scan(ReduceOp op, NodeId a, bool exclusive);
  NodeId block_uniform(NodeId a);

  // Memory. A stored value must have the memory's dtype, but f32 rounds into f16 and bf16.
  NodeId load(NodeId memory, NodeId index, std::uint8_t lanes = 1);
  NodeId load_if(NodeId mask, NodeId memory, NodeId index, NodeId other);
  void store(NodeId memory, NodeId index, NodeId value);
  NodeId atomic(AtomicOp op, NodeId memory, NodeId index, NodeId value, NodeId expected = no_node);

  // Matrix fragments: statements for all threads of a subgroup. See MmaOp.
  void mma_load(NodeId fragment, NodeId memory, NodeId index, NodeId stride, bool transposed);
  void mma_fill(NodeId accumulator, NodeId value);
  void mma_multiply(NodeId accumulator, NodeId left, NodeId right);
  void mma_store(NodeId accumulator, NodeId memory, NodeId index, NodeId stride);

  // Effects and control. Bodies are traced by the functions given.
  void barrier();
  void print(std::string format, std::span<const NodeId> values);
  void if_(NodeId condition, const std::function<void()>& then, const std::function<void()>& otherwise = {});
  void for_(NodeId begin, NodeId end, NodeId step, const std::function<void(NodeId counter)>& body);
  void while_(const std::function<NodeId()>& condition, const std::function<void()>& body);
  void return_();

  /// The line that nodes made from now on belong to.
  void at(const char* file, int line) { source_ = {file, line}; }
  SourceLine source() const { return source_; }

  /// While set, sums, differences, products, negations and loop counters made are marked as never wrapping (`extra` is
  /// 1): lowering does so for those that were of dtype index.
  void set_no_wrap(bool on) { no_wrap_ = on; }
  /// See Function::index64.
  void set_index64() { fn_.index64 = true; }
  /// See Function::exact.
  void set_exact(bool on = true) { fn_.exact = on; }

  /// No other builder of this process has the same.
  std::uint64_t number() const { return number_; }

  const Node& node(NodeId id) const { return fn_.nodes[id]; }
  Type type(NodeId id) const { return fn_.nodes[id].type; }
  const Function& function() const { return fn_; }

  /// Canonicalises and verifies; KernelError with kernel and line for what is wrong. The builder is empty afterwards.
  Function finish();

 private:
  NodeId add(const Node& node);
  NodeId add_shared(const Node& node);  // leaves and pure nodes: equal ones are one node
  void append(NodeId id);
  BlockId traced_block(const std::function<void()>& body);
  NodeId computable(NodeId id);  // f16 and bf16 become f32
  void require(bool ok, const std::string& wrong, const std::string& remedy = {}) const;
  std::string describe(NodeId id) const;
  NodeId check_access(NodeId memory, NodeId index, bool write);
  void check_fragment(NodeId id, FragmentRole role, MmaOp op) const;
  Node matrix_access(MmaOp op, NodeId fragment, NodeId memory, NodeId index, NodeId stride);

  Function fn_;
  const std::uint64_t number_;
  DType index_type_;
  bool no_wrap_ = false;
  std::unordered_map<Node, NodeId, NodeHash> known_;
  BlockId block_ = 0;
  SourceLine source_;
  std::uint64_t counters_ = 0;
  std::uint64_t memories_ = 0;
};

/// "file.cpp:12", or "" if unknown.
std::string to_string(SourceLine source);

/// Brings a freshly traced function into the form that emitters read: return_ removed, dead nodes dropped, every value
/// in one block before its uses, numbered in an order that does not depend on the C++ compiler's order of operands.
Function canonicalise(const Function& fn);

/// KernelError if the function breaks a rule of the language: types, access, scopes, convergence.
void verify(const Function& fn);

/// What is wrong with an operand of `op` that must be a fragment, of this role or (none) any; empty if it is one.
std::string wrong_fragment(MmaOp op, const Node& operand, FragmentRole role);

/// Per node: is its value the same in every thread of a block, or of a subgroup? Only what provably is counts.
enum class UniformScope : std::uint8_t { block, subgroup };
std::vector<bool> uniform_values(const Function& fn, UniformScope threads = UniformScope::block);

}  // namespace tessera::ir
