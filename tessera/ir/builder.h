// SPDX-License-Identifier: Apache-2.0
// Builds a Function while a kernel is traced. The builder checks types, folds constants and merges equal pure nodes;
// finish() canonicalises the function. Dtypes are runtime values here; the typed wrappers for users are in kernel/.
#pragma once

#include <functional>
#include <optional>
#include <unordered_map>

#include "tessera/ir/node.h"

namespace tessera::ir {

/// A kernel under construction. `Builder::current()` returns the builder that is active on this thread.
class Builder {
 public:
  /// Lowering sets `index_type` to i32 or i64 when it rebuilds a function without the dtype `index`. Throws KernelError
  /// with `source`, the line that declares the kernel, if a block would have no threads or too many.
  Builder(std::string name, KernelKind kind, std::array<std::uint32_t, 3> block_size = {1, 1, 1},
          DType index_type = DType::index, SourceLine source = {});
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;

  /// Returns the active builder of this thread. Throws KernelError if there is none.
  static Builder& current();
  static bool tracing();

  /// Makes a builder current for its lifetime. Throws KernelError if another builder is active, because a kernel cannot
  /// be traced inside another kernel.
  class Scope {
   public:
    explicit Scope(Builder& builder);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
  };

  // Parameters. The order of the calls is the order in the kernel's signature.
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

  // Pure nodes. f16 and bf16 are storage types, so their operands are converted to f32 first.
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
  NodeId place(PlaceOf what, NodeId k);

  // Convergent nodes.
  NodeId subgroup(SubgroupOp op, NodeId a, NodeId lane = no_node);
  NodeId block_reduce(ReduceOp op, NodeId a);
  NodeId block_scan(ReduceOp op, NodeId a, bool exclusive);
  NodeId block_uniform(NodeId a);

  // Memory. The value to store must have the dtype of the memory, except that f32 may be stored as f16 or bf16
  // (rounded).
  NodeId load(NodeId memory, NodeId index, std::uint8_t lanes = 1);
  NodeId load_if(NodeId mask, NodeId memory, NodeId index, NodeId other);
  void store(NodeId memory, NodeId index, NodeId value);
  NodeId atomic(AtomicOp op, NodeId memory, NodeId index, NodeId value, NodeId expected = no_node);

  // Matrix fragments. All threads of a subgroup execute these statements together. See MmaOp.
  void mma_load(NodeId fragment, NodeId memory, NodeId index, NodeId stride, bool transposed);
  void mma_fill(NodeId accumulator, NodeId value);
  void mma_multiply(NodeId accumulator, NodeId left, NodeId right, bool replaces = false);
  void mma_store(NodeId accumulator, NodeId memory, NodeId index, NodeId stride);
  void mma_convert(NodeId left, NodeId accumulator);
  void mma_reduce_rows(ReduceOp op, NodeId local, NodeId accumulator);

  // Asynchronous copies. See AsyncOp.
  void copy_async(NodeId shared, NodeId index, NodeId buffer, NodeId from, std::uint32_t elements);
  void async_commit();
  void async_wait(std::uint32_t groups);

  // Effects and control flow. Bodies are traced by calling the given functions.
  void barrier();
  void print(std::string format, std::span<const NodeId> values);
  void if_(NodeId condition, const std::function<void()>& then, const std::function<void()>& otherwise = {});
  void for_(NodeId begin, NodeId end, NodeId step, const std::function<void(NodeId counter)>& body,
            std::optional<Unroll> unroll = {});
  void while_(const std::function<NodeId()>& condition, const std::function<void()>& body);
  void return_();

  /// Sets the source line of all nodes that are created after this call.
  void at(const char* file, int line) { source_ = {file, line}; }
  SourceLine source() const { return source_; }

  /// While set, new sums, differences, products, negations and loop counters are marked as never wrapping (`extra` is
  /// 1). Lowering sets this for arithmetic that had dtype `index`.
  void set_no_wrap(bool on) { no_wrap_ = on; }
  /// See Function::index64.
  void set_index64() { fn_.index64 = true; }
  /// See Function::exact.
  void set_exact(bool on = true) { fn_.exact = on; }
  /// See Function::aligned_vectors.
  void set_aligned_vectors(bool on = true) { fn_.aligned_vectors = on; }
  /// See Function::min_blocks.
  void set_min_blocks(std::uint32_t blocks) { fn_.min_blocks = blocks; }

  /// Returns a number that is unique among the builders of this process.
  std::uint64_t number() const { return number_; }

  const Node& node(NodeId id) const { return fn_.nodes[id]; }
  Type type(NodeId id) const { return fn_.nodes[id].type; }
  const Function& function() const { return fn_; }

  /// Canonicalises and verifies the function, and leaves the builder empty. Throws KernelError with the kernel's name
  /// and line if the function is invalid.
  Function finish();

 private:
  NodeId add(const Node& node);
  NodeId add_shared(const Node& node);  // for leaves and pure nodes: reuses an equal node if there is one
  void append(NodeId id);
  BlockId traced_block(const std::function<void()>& body);
  NodeId computable(NodeId id);  // converts f16 and bf16 to f32
  void require(bool ok, const std::string& wrong, const std::string& remedy = {}) const;
  std::string describe(NodeId id) const;
  NodeId check_access(NodeId memory, NodeId index, bool write);
  void require_async() const;
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

/// Returns "file.cpp:12", or "" if the line is unknown.
std::string to_string(SourceLine source);

/// Converts a traced function to the form that emitters expect. return_ and dead nodes are removed. Each value is in
/// one block, before its uses. The numbering does not depend on the order in which the C++ compiler evaluates operands.
Function canonicalise(const Function& fn);

/// Throws KernelError if the function violates a rule of the language about types, access, scopes or convergence.
void verify(const Function& fn);

/// Returns why `operand` cannot be used by `op` as a fragment with this role, or "" if it can. `none` accepts any role.
std::string wrong_fragment(MmaOp op, const Node& operand, FragmentRole role);

/// Returns for each node whether its value is provably the same in all threads of a block or of a subgroup.
enum class UniformScope : std::uint8_t { block, subgroup };
std::vector<bool> uniform_values(const Function& fn, UniformScope threads = UniformScope::block);

}  // namespace tessera::ir
