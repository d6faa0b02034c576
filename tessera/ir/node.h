// SPDX-License-Identifier: Apache-2.0
// The nodes of the kernel IR, the representation of traced kernels that all emitters and the interpreter read. A
// Function is an arena of small nodes with 32-bit ids and a tree of blocks; control flow is structured.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/dtype.h"
#include "tessera/ir/fwd.h"

namespace tessera::ir {

using BlockId = std::uint32_t;  ///< index into Function::blocks
inline constexpr NodeId no_node = 0;
inline constexpr BlockId no_block = ~BlockId{0};

/// The type of a value: one element, or a short vector of 2, 3 or 4.
struct Type {
  DType dtype = DType::f32;
  std::uint8_t lanes = 1;
  friend constexpr bool operator==(Type, Type) = default;
};
std::string type_name(Type type);  ///< "f32", "f32x4"

/// Kinds of nodes. The comments describe `sub`, `args`, `imm` and `extra`.
enum class Op : std::uint8_t {
  none,
  // Leaves: no operands, valid everywhere in the function, not listed in a block.
  constant,  ///< imm: the value's bits in its own type (integers sign- or zero-extended to 64 bits)
  param,     ///< imm: index into Function::params. For a buffer it denotes the memory, for a scalar the value
  index,     ///< sub: IndexKind; imm: dimension, parameter for buffer_size, or a serial number for counter;
             ///< extra of a counter: 1 if it never wraps, as for a lowered `index`
  local,     ///< per-thread memory; imm: number of elements; zero-initialised. With sub: FragmentRole it
             ///< is a fragment, which only mma accesses
  shared,    ///< per-block memory; imm: number of elements; uninitialised
  // Pure.
  unary,    ///< sub: UnaryOp (a); extra: 1 if the result is known not to wrap (lowered `index` arithmetic)
  binary,   ///< sub: BinaryOp (a, b), same types; extra: as for unary
  compare,  ///< sub: CompareOp (a, b), same types; result is boolean
  select,   ///< (condition, if true, if false)
  cast,     ///< (a): converts the value
  bitcast,  ///< (a): keeps the bits; equal sizes
  math,     ///< sub: MathOp (a[, b[, c]]), f32 or f64
  vector,   ///< sub: VectorOp; make (x, y[, z[, w]]), extract (v) with imm: the lane
  dot4,     ///< sub: Dot4Signs (a, b, c): c + sum of four products of packed bytes; a, b: u32, c: i32
  // Convergent: all threads of the subgroup or block must reach them together.
  mma,            ///< also an effect. sub: MmaOp (fragment, ...), see there; extra of a load: 1 if transposed
  subgroup,       ///< sub: SubgroupOp (a[, lane])
  block_reduce,   ///< sub: ReduceOp (a): same result in every thread of the block
  block_scan,     ///< sub: ReduceOp (a); imm: 1 if exclusive. In the order of linear thread ids
  block_uniform,  ///< (a): asserts that a is the same in every thread of the block
  // Memory.
  load,     ///< (memory, index); memory is a buffer parameter, a local or a shared. lanes > 1: consecutive elements
  load_if,  ///< (memory, index, mask, other): `other` where the mask is false; the index may then be invalid
  store,    ///< (memory, index, value)
  atomic,   ///< sub: AtomicOp (memory, index, value[, expected]): returns the old value. and_, or_, xor_: integers only
  // Effects.
  barrier,  ///< for all threads of the block; orders their accesses to shared and buffer memory
  print,    ///< (up to four values); extra: format in Function::strings, {} for each value
  // Control.
  if_,      ///< (condition); args[1]: block if true, args[2]: block if false or no_block
  for_,     ///< (begin, end, step), args[3]: its counter node; extra: body. step > 0; operands are read once
  while_,   ///< (condition), args[1]: block that computes the condition; extra: body
  return_,  ///< ends this thread; removed by canonicalisation
  count_
};

/// The name of the operation in the text form.
std::string_view op_name(Op op);

/// The role of a local in matrix products. A fragment is a 16 x 16 matrix distributed over the lanes of one subgroup in
/// a device-specific layout: `left` and `right` (a and b) have dtype f16 or bf16, `accumulator` (c) has f32.
enum class FragmentRole : std::uint8_t { none, left, right, accumulator, count_ };
inline constexpr std::uint32_t fragment_side = 16;  ///< rows and columns
/// The operations of mma. Index, stride and value must be the same in every lane of the subgroup.
enum class MmaOp : std::uint8_t {
  load,      ///< (fragment, memory, index, stride): element (i, j) from memory[index + i * stride + j], transposed from
             ///< memory[index + j * stride + i]; the memory is a buffer or shared, of the fragment's dtype
  fill,      ///< (accumulator, value): sets every element
  multiply,  ///< (accumulator, left, right): c += a * b, summed in f32 in any order
  store,     ///< (accumulator, memory, index, stride): element (i, j) to memory[index + i * stride + j]
  count_
};

enum class IndexKind : std::uint8_t {
  global_id,  ///< block_id * block_size + thread_id; in map kernels less than extent
  thread_id,  ///< within the block
  block_id,
  block_size,
  block_count,  ///< blocks in the grid
  grid_size,    ///< threads in the grid; for a map kernel the extent
  extent,       ///< map kernels: as passed to the launch; block kernels: grid_size
  lane_id,      ///< within the subgroup
  subgroup_id,  ///< within the block; subgroups are consecutive linear thread ids
  subgroup_size,
  subgroup_count,  ///< per block, rounded up
  buffer_size,     ///< elements of a buffer parameter
  counter,         ///< of a for_
  count_
};
enum class UnaryOp : std::uint8_t { neg, abs, not_, popcount, clz, count_ };
enum class BinaryOp : std::uint8_t { add, sub, mul, div, rem, min, max, and_, or_, xor_, shl, shr, mul_hi, count_ };
enum class CompareOp : std::uint8_t { eq, ne, lt, le, gt, ge, count_ };
enum class MathOp : std::uint8_t {
  fma,
  sqrt,
  rsqrt,
  floor,
  ceil,
  trunc,
  rint,
  exp,
  exp2,
  log,
  log2,
  sin,
  cos,
  tanh,
  erf,
  pow,
  tan,
  asin,
  acos,
  atan,
  sinh,
  cosh,
  log10,
  atan2,  ///< (y, x)
  hypot,
  count_
};
constexpr int operand_count(MathOp op) {
  return op == MathOp::fma ? 3 : op == MathOp::pow || op >= MathOp::atan2 ? 2 : 1;
}
enum class VectorOp : std::uint8_t { make, extract, count_ };
/// Which operands contain signed bytes.
enum class Dot4Signs : std::uint8_t { signed_signed, unsigned_signed, unsigned_unsigned, count_ };
enum class SubgroupOp : std::uint8_t {
  sum,
  min,
  max,
  any,
  all,
  broadcast,
  shuffle,
  shuffle_xor,
  shuffle_up,
  shuffle_down,
  inclusive_sum,
  exclusive_sum,
  count_
};
enum class ReduceOp : std::uint8_t { sum, min, max, and_, or_, count_ };
enum class AtomicOp : std::uint8_t { add, min, max, exchange, cas, and_, or_, xor_, count_ };

std::string_view name_of(IndexKind k);
std::string_view name_of(UnaryOp k);
std::string_view name_of(BinaryOp k);
std::string_view name_of(CompareOp k);
std::string_view name_of(MathOp k);
std::string_view name_of(VectorOp k);
std::string_view name_of(Dot4Signs k);
std::string_view name_of(SubgroupOp k);
std::string_view name_of(ReduceOp k);
std::string_view name_of(AtomicOp k);
std::string_view name_of(FragmentRole k);
std::string_view name_of(MmaOp k);

struct Node {
  Op op = Op::none;
  std::uint8_t sub = 0;
  Type type = {};
  std::uint32_t extra = 0;
  std::array<std::uint32_t, 4> args = {};
  std::uint64_t imm = 0;

  template <class K>
  K kind() const {
    return static_cast<K>(sub);
  }
  friend bool operator==(const Node&, const Node&) = default;
};
static_assert(sizeof(Node) == 32);
struct NodeHash {
  std::size_t operator()(const Node& n) const;
};

/// Operands of a node that are nodes (not blocks), in order, without trailing absent operands.
std::span<const std::uint32_t> operands(const Node& node);

constexpr bool is_leaf(Op op) { return op >= Op::constant && op <= Op::shared; }
constexpr bool is_pure(Op op) { return op >= Op::unary && op <= Op::dot4; }
constexpr bool is_convergent(Op op) { return op >= Op::mma && op <= Op::block_uniform; }
constexpr bool is_load(Op op) { return op == Op::load || op == Op::load_if; }
constexpr bool is_control(Op op) { return op >= Op::if_ && op <= Op::while_; }
/// Has side effects that other statements can observe, so its position is significant.
constexpr bool is_effect(Op op) { return (op >= Op::store && op <= Op::return_) || op == Op::mma; }
/// Produces a value that other nodes can use as an operand.
constexpr bool has_result(Op op) {
  return is_pure(op) || is_load(op) || op == Op::atomic || (is_convergent(op) && op != Op::mma);
}
/// The memory to which this statement stores; no_node if none.
constexpr NodeId written_memory(const Node& n) {
  if (n.op == Op::store || n.op == Op::atomic) return n.args[0];
  return n.op == Op::mma && n.kind<MmaOp>() == MmaOp::store ? n.args[1] : no_node;
}
/// The memory from which this statement loads; no_node if none.
constexpr NodeId read_memory(const Node& n) {
  if (is_load(n.op) || n.op == Op::atomic) return n.args[0];
  return n.op == Op::mma && n.kind<MmaOp>() == MmaOp::load ? n.args[1] : no_node;
}
/// A matrix over a subgroup: a local that threads cannot load from.
constexpr bool is_fragment(const Node& n) { return n.op == Op::local && n.sub != 0; }

struct Param {
  std::string name;
  DType dtype = DType::f32;
  bool is_buffer = false;
  Access access = Access::read;  ///< buffers: access allowed by the kernel's signature
};

/// The user's source location of a node; not part of the hash.
struct SourceLine {
  const char* file = nullptr;
  int line = 0;
};

/// A sequence of statements. In canonical form every non-leaf node is in exactly one block, before its uses.
using Block = std::vector<NodeId>;

enum class KernelKind : std::uint8_t {
  map,   ///< one thread per element of an extent of up to three dimensions; no blocks, no shared memory
  block  ///< blocks of fixed size, with shared memory, barriers, block and subgroup operations
};

/// A traced kernel.
struct Function {
  std::string name;
  KernelKind kind = KernelKind::map;
  std::array<std::uint32_t, 3> block_size = {1, 1, 1};  ///< block kernels
  bool index64 = false;                                 ///< `index` has 64 bits for every launch
  /// Each operation is rounded separately, so that results do not depend on surrounding code: compilers must not
  /// contract a * b + c. Explicit `fma` is unaffected.
  bool exact = false;
  std::vector<Param> params;
  std::vector<Node> nodes = {Node{}};
  std::vector<SourceLine> sources = {SourceLine{}};  ///< parallel to nodes
  std::vector<Block> blocks = {Block{}};             ///< [0] is the body
  std::vector<std::string> strings;

  const Node& operator[](NodeId id) const { return nodes[id]; }
  std::uint32_t threads_per_block() const { return block_size[0] * block_size[1] * block_size[2]; }
};

/// Buffer parameters, locals including fragments, and shared: nodes that denote memory rather than a value.
inline bool is_memory(const Function& fn, const Node& n) {
  return n.op == Op::local || n.op == Op::shared || (n.op == Op::param && fn.params[n.imm].is_buffer);
}

/// Bytes of shared memory used by the function's `shared` nodes, each aligned to 16.
std::size_t shared_bytes(const Function& fn);

/// Calls `f(block)` for each block directly nested in a control node.
template <class F>
void for_each_nested(const Node& node, F&& f) {
  if (node.op == Op::if_) {
    f(node.args[1]);
    if (node.args[2] != no_block) f(node.args[2]);
  } else if (node.op == Op::for_) {
    f(node.extra);
  } else if (node.op == Op::while_) {
    f(node.args[1]);
    f(node.extra);
  }
}

/// The text form of a function, one statement per line: for display and tests.
std::string to_text(const Function& fn);

/// A 128-bit hash of everything that defines the kernel's behaviour: not names or source lines.
struct Hash {
  std::uint64_t high = 0, low = 0;
  friend bool operator==(Hash, Hash) = default;
};
Hash hash_of(const Function& fn);
std::string to_string(Hash hash);  ///< 32 hexadecimal digits

}  // namespace tessera::ir
