// SPDX-License-Identifier: Apache-2.0
// The nodes of the kernel IR. All emitters and the interpreter read this representation of a traced kernel. A Function
// contains an array of small nodes with 32-bit ids, and a tree of blocks for structured control flow.
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

/// The type of a value: a scalar, or a short vector of 2, 3 or 4 elements.
struct Type {
  DType dtype = DType::f32;
  std::uint8_t lanes = 1;
  friend constexpr bool operator==(Type, Type) = default;
};
std::string type_name(Type type);  ///< e.g. "f32" or "f32x4"

/// The kinds of nodes. The comments list the operands in parentheses and describe the fields `sub`, `args`, `imm` and
/// `extra`.
enum class Op : std::uint8_t {
  none,
  // Leaves have no operands. They are valid everywhere in the function and are not listed in a block.
  constant,  ///< imm is the value's bits in its own type; integers are sign- or zero-extended to 64 bits
  param,     ///< imm is the index into Function::params. Denotes the memory of a buffer, or the value of a scalar
  index,     ///< sub is an IndexKind. imm is the dimension, the parameter (buffer_size) or a serial number (counter).
             ///< extra of a counter is 1 if the counter had dtype `index` before lowering, so that it never wraps
  local,   ///< zero-initialised memory of one thread; imm is the number of elements. If sub is a FragmentRole, the node
           ///< is a fragment, which only mma can access, except that each lane can load and store its elements of an
           ///< accumulator (see PlaceOf)
  shared,  ///< uninitialised memory of one block; imm is the number of elements
  // Pure nodes.
  unary,   ///< sub is a UnaryOp (a). extra is 1 if the result had dtype `index` before lowering, so that it never wraps
  binary,  ///< sub is a BinaryOp (a, b); both operands have the same type. extra has the same meaning as for unary
  compare,  ///< sub is a CompareOp (a, b); both operands have the same type. The result is boolean
  select,   ///< (condition, if true, if false)
  cast,     ///< (a): converts the value to the node's type
  bitcast,  ///< (a): reinterprets the bits as a type of the same size
  math,     ///< sub is a MathOp (a[, b[, c]]); the operands are f32 or f64
  vector,   ///< sub is a VectorOp: make (x, y[, z[, w]]) or extract (v), with the lane in imm
  dot4,     ///< sub is a Dot4Signs (a, b, c): c + the sum of four products of packed bytes. a and b are u32, c is i32
  place,    ///< sub is a PlaceOf (k): the place of this lane's element number k of an accumulator
  // Convergent nodes: all threads of the subgroup or block must execute them together.
  mma,            ///< sub is an MmaOp (fragment, ...); also an effect. extra of a load is 1 if it transposes
  subgroup,       ///< sub is a SubgroupOp (a[, lane])
  block_reduce,   ///< sub is a ReduceOp (a); every thread of the block gets the same result
  block_scan,     ///< sub is a ReduceOp (a); scans in the order of linear thread ids. imm is 1 if the scan is exclusive
  block_uniform,  ///< (a): asserts that a is the same in every thread of the block
  // Memory.
  load,     ///< (memory, index): memory is a buffer parameter, a `local` or a `shared`. lanes > 1 loads consecutive
            ///< elements
  load_if,  ///< (memory, index, mask, other): returns `other` if the mask is false; the index may be invalid in that
            ///< case
  store,    ///< (memory, index, value)
  atomic,  ///< sub is an AtomicOp (memory, index, value[, expected]): returns the old value. and_, or_ and xor_ require
           ///< integers
  // Effects.
  barrier,  ///< synchronises all threads of the block; orders their accesses to shared memory and buffers
  async,    ///< sub is an AsyncOp: copies from a buffer to shared memory while the thread continues
  print,    ///< (up to four values): extra is the index of the format in Function::strings; {} stands for a value
  // Control.
  if_,   ///< (condition): args[1] is the block for true, args[2] the block for false or no_block
  for_,  ///< (begin, end, step): args[3] is the counter node, extra is the body. step > 0; operands are evaluated once.
         ///< imm is Unroll::rounds, or 0 if compilers choose
  while_,   ///< (condition): args[1] is the block that computes the condition, extra is the body
  return_,  ///< ends the thread; canonicalisation removes it
  count_
};

/// Returns the name of the operation in the text form.
std::string_view op_name(Op op);

/// The role of a local in matrix products. A fragment is a matrix that is distributed over the lanes of one subgroup in
/// a device-specific layout. `accumulator` (c) is a 16 x 16 matrix of f32. `left` and `right` (a and b) are 16 x 16
/// matrices of f16, bf16 or f32, or 16 x 32 and 32 x 16 matrices of i8. Devices may round factors of f32 to 10 bits of
/// mantissa (tf32).
enum class FragmentRole : std::uint8_t { none, left, right, accumulator, count_ };
inline constexpr std::uint32_t fragment_side = 16;  ///< number of rows and of columns
inline constexpr std::uint32_t fragment_elements = fragment_side * fragment_side;
/// The number of columns of a left factor and of rows of a right factor.
constexpr std::uint32_t fragment_depth(DType factor) { return factor == DType::i8 ? 2 * fragment_side : fragment_side; }
/// The operations of mma. Index, stride and value must be the same in all lanes of the subgroup.
enum class MmaOp : std::uint8_t {
  load,  ///< (fragment, memory, index, stride): element (i, j) is memory[index + i * stride + j], or memory[index + j *
         ///< stride + i] if transposed. The memory is a buffer or shared memory with the fragment's dtype. Factors of
         ///< i8 are loaded from u32 words of four elements with adjacent k, the first of them in the lowest byte: index
         ///< and stride count words, a left factor is not transposed, and a right factor is
  fill,  ///< (accumulator, value): sets all elements
  multiply,  ///< (accumulator, left, right): c += a * b, or c = a * b if extra is 1. The sum is computed in f32 in any
             ///< order. A sum of products of i8 is exact while its magnitude is at most 2^24
  store,     ///< (accumulator, memory, index, stride): writes element (i, j) to memory[index + i * stride + j]
  convert,   ///< (left, accumulator): rounds the elements of the accumulator to the dtype of the left factor
  reduce_rows,  ///< (local, accumulator): imm is a ReduceOp, sum or max. Reduces each row to a number, and stores the
                ///< number of a row at its slot (see PlaceOf) of a local array of f32, in all lanes that have this row
  count_
};
/// The elements of an accumulator that belong to a lane are numbered from 0 to IndexKind::lane_elements - 1, and its
/// rows from 0 to IndexKind::lane_rows - 1 ("slots"). Numbers of elements are operands k of `place`, and the indices of
/// loads from and stores to accumulators.
enum class PlaceOf : std::uint8_t {
  row,       ///< row of element k
  column,    ///< column of element k
  slot,      ///< slot of the row of element k
  slot_row,  ///< row of slot k
  valid,     ///< bool: false if element k does not exist, because some lanes have fewer elements than others
  count_
};
/// Which elements of a fragment belong to each lane. Emitters document the layouts of matrix units and their sources
/// (emit/prelude_matrix.cpp).
enum class FragmentLayout : std::uint8_t {
  linear,  ///< element k of a lane of an accumulator has number k * lanes + lane, where element (i, j) has number 16 i
           ///< + j
  mma,     ///< NVIDIA
  mfma,    ///< AMD CDNA
  wmma     ///< AMD RDNA
};
/// Asynchronous copies (cp.async). A thread's copies since its previous commit form a group, and `wait` returns when
/// all but the newest groups are complete. Then the thread can read what it has copied, and other threads can after a
/// barrier. Until then, no thread may access the destination. Devices without asynchronous copies copy at once.
enum class AsyncOp : std::uint8_t {
  copy,    ///< (shared, index, buffer, index): copies imm consecutive elements, of 4, 8 or 16 bytes together
  commit,  ///< (): ends the group
  wait,    ///< (): imm is the number of groups that may still be incomplete
  count_
};

enum class IndexKind : std::uint8_t {
  global_id,  ///< block_id * block_size + thread_id; less than extent in map kernels
  thread_id,  ///< within the block
  block_id,
  block_size,
  block_count,  ///< number of blocks in the grid
  grid_size,    ///< number of threads in the grid; for map kernels the extent
  extent,       ///< for map kernels the shape passed to the launch; for block kernels grid_size
  lane_id,      ///< within the subgroup
  subgroup_id,  ///< within the block; each subgroup has consecutive linear thread ids
  subgroup_size,
  subgroup_count,  ///< number of subgroups per block, rounded up
  buffer_size,     ///< number of elements of a buffer parameter
  counter,         ///< the counter of a for_
  lane_elements,   ///< number of elements of an accumulator that belong to this lane (see PlaceOf)
  lane_rows,       ///< number of slots of this lane for rows, at least one for each row of which it has elements
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
/// Which operands contain signed bytes, in the order a, b. `signed_symmetric` is signed_signed for a b without bytes of
/// -128, which CPUs without VNNI multiply in half the instructions.
enum class Dot4Signs : std::uint8_t { signed_signed, unsigned_signed, unsigned_unsigned, signed_symmetric, count_ };
constexpr bool a_is_signed(Dot4Signs s) { return s == Dot4Signs::signed_signed || s == Dot4Signs::signed_symmetric; }
constexpr bool b_is_signed(Dot4Signs s) { return s != Dot4Signs::unsigned_unsigned; }
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
std::string_view name_of(PlaceOf k);
std::string_view name_of(AsyncOp k);

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

/// Returns the operands of a node that are nodes (not blocks), in order. Trailing operands that are absent are left
/// out.
std::span<const std::uint32_t> operands(const Node& node);

constexpr bool is_leaf(Op op) { return op >= Op::constant && op <= Op::shared; }
constexpr bool is_pure(Op op) { return op >= Op::unary && op <= Op::place; }
constexpr bool is_convergent(Op op) { return op >= Op::mma && op <= Op::block_uniform; }
constexpr bool is_load(Op op) { return op == Op::load || op == Op::load_if; }
constexpr bool is_control(Op op) { return op >= Op::if_ && op <= Op::while_; }
/// True if other statements can observe side effects of this operation, so that its position matters.
constexpr bool is_effect(Op op) { return (op >= Op::store && op <= Op::return_) || op == Op::mma; }
/// True if the operation has a result that other nodes can use as an operand.
constexpr bool has_result(Op op) {
  return is_pure(op) || is_load(op) || op == Op::atomic || (is_convergent(op) && op != Op::mma);
}
/// Returns the memory that this statement stores to, or no_node.
constexpr NodeId written_memory(const Node& n) {
  if (n.op == Op::store || n.op == Op::atomic || n.op == Op::async) return n.args[0];
  return n.op == Op::mma && n.kind<MmaOp>() == MmaOp::store ? n.args[1] : no_node;
}
/// Returns the memory that this statement loads from, or no_node.
constexpr NodeId read_memory(const Node& n) {
  if (is_load(n.op) || n.op == Op::atomic) return n.args[0];
  if (n.op == Op::async) return n.args[2];
  return n.op == Op::mma && n.kind<MmaOp>() == MmaOp::load ? n.args[1] : no_node;
}
/// True if the node is a matrix that is distributed over a subgroup.
constexpr bool is_fragment(const Node& n) { return n.op == Op::local && n.sub != 0; }
constexpr bool is_accumulator(const Node& n) {
  return is_fragment(n) && n.kind<FragmentRole>() == FragmentRole::accumulator;
}

/// The number of rounds of a for_ that compilers should combine to one (1 to 64; 1 prevents unrolling). Loads of all
/// these rounds can then start before the first of them is used. It does not change results.
struct Unroll {
  static constexpr std::uint32_t most = 64;
  std::uint32_t rounds;
};

struct Param {
  std::string name;
  DType dtype = DType::f32;
  bool is_buffer = false;
  Access access = Access::read;  ///< for buffers: the access that the kernel's signature allows
};

/// A line of the user's source code. It is not part of a function's hash.
struct SourceLine {
  const char* file = nullptr;
  int line = 0;
};

/// A sequence of statements. In canonical form each node except leaves is in exactly one block, before its uses.
using Block = std::vector<NodeId>;

enum class KernelKind : std::uint8_t {
  map,   ///< one thread per element of a domain of up to three dimensions; no blocks and no shared memory
  block  ///< blocks of fixed size, with shared memory, barriers, and block and subgroup operations
};

/// A traced kernel.
struct Function {
  std::string name;
  KernelKind kind = KernelKind::map;
  std::array<std::uint32_t, 3> block_size = {1, 1, 1};  ///< for block kernels
  /// For block kernels: the number of blocks that a multiprocessor must be able to run at once, which limits the
  /// registers of a thread; 0: the default of the device. Ignored by devices whose compilers have no such limit.
  std::uint32_t min_blocks = 0;
  bool index64 = false;  ///< `index` has 64 bits in every launch
  /// If set, each operation is rounded separately, and compilers must not contract a * b + c. Results then do not
  /// depend on the surrounding code. An explicit `fma` is still fused.
  bool exact = false;
  /// Declares that the index of each load and store of 2 or 4 elements of a buffer is a multiple of this number, and
  /// both indices of each asynchronous copy multiples of its number of elements. If the buffers are also aligned, such
  /// an access can be one access of the device.
  bool aligned_vectors = false;
  /// For lowered functions: the layout that their accesses to elements of fragments assume. In all layouts but
  /// `linear`, they also store pairs of elements of left factors as u32.
  FragmentLayout layout = FragmentLayout::linear;
  std::vector<Param> params;
  std::vector<Node> nodes = {Node{}};
  std::vector<SourceLine> sources = {SourceLine{}};  ///< the source line of each node
  std::vector<Block> blocks = {Block{}};             ///< blocks[0] is the body
  std::vector<std::string> strings;

  const Node& operator[](NodeId id) const { return nodes[id]; }
  std::uint32_t threads_per_block() const { return block_size[0] * block_size[1] * block_size[2]; }
};

/// True if the node denotes memory rather than a value: a buffer parameter, a `local` (including fragments) or a
/// `shared`.
inline bool is_memory(const Function& fn, const Node& n) {
  return n.op == Op::local || n.op == Op::shared || (n.op == Op::param && fn.params[n.imm].is_buffer);
}

/// Returns the bytes of shared memory, with each `shared` aligned to 16 bytes, or the largest number if they overflow.
std::size_t shared_bytes(const Function& fn);

/// Calls `f(block)` for each block that is directly nested in a control node.
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

/// Returns the function as text with one statement per line, for display and tests.
std::string to_text(const Function& fn);

/// A 128-bit hash of everything that defines the behaviour of a kernel. Names and source lines are not included.
struct Hash {
  std::uint64_t high = 0, low = 0;
  friend bool operator==(Hash, Hash) = default;
};
Hash hash_of(const Function& fn);
std::string to_string(Hash hash);  ///< returns 32 hexadecimal digits

}  // namespace tessera::ir
