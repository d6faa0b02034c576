// SPDX-License-Identifier: Apache-2.0
// Rebuilds a function with a Builder whose index type is i32 or i64, and replaces the operations that the target lacks.
#include "tessera/emit/lower.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>

#include "tessera/base/error.h"
#include "tessera/emit/block_ops.h"
#include "tessera/emit/convert.h"
#include "tessera/emit/fragment_places.h"
#include "tessera/emit/math.h"
#include "tessera/emit/mma.h"
#include "tessera/ir/builder.h"

namespace tessera::emit {

namespace {

using namespace ir;

class Lowerer {
 public:
  Lowerer(const Function& in, const Target& target)
      : in_(in),
        target_(target),
        index_(target.index64 ? DType::i64 : DType::i32),
        b_(in.name, in.kind, in.block_size, index_),
        values_(in.nodes.size()) {
    if (!target.block_operations)
      block_operations_.emplace(b_, index_, target.subgroup_width != 1, in.threads_per_block());
    if (!keeps_fragments(in, target))
      matrices_.emplace(b_, index_, target.subgroup_width != 1);
    else if (target.layout != FragmentLayout::linear)
      places_.emplace(b_, index_, target.layout);
  }

  Function run() {
    check_limits();
    b_.set_exact(in_.exact);
    b_.set_min_blocks(in_.min_blocks);
    b_.set_aligned_vectors(in_.aligned_vectors && target_.aligned_vectors);
    for (const Param& p : in_.params) {
      if (p.dtype == DType::f64) check_f64(no_node);
      params_.push_back(p.is_buffer ? b_.buffer(p.name, memory_dtype(p.dtype), p.access)
                                    : b_.scalar(p.name, memory_dtype(p.dtype)));
    }
    if (in_.kind == KernelKind::map && target_.guard_map)
      b_.if_(in_extent(), [&] { block(0); });
    else
      block(0);
    Function out = b_.finish();
    out.index64 = target_.index64;
    if (places_) out.layout = target_.layout;
    if (in_.kind == KernelKind::block) check_shared_memory(out);  // now also counts the memory of block operations
    check_local_memory(out);
    return out;
  }

 private:
  using Lanes = std::array<NodeId, 4>;  // the elements of a split vector, or a single value in [0]

  [[noreturn]] void refuse(NodeId id, const std::string& wrong, const std::string& remedy = {}) const {
    const std::string where = to_string(in_.sources[id]);
    fail<KernelError>({.operation = where.empty() ? "kernel " + in_.name : "kernel " + in_.name + ", " + where,
                       .wrong = wrong,
                       .remedy = remedy});
  }
  void check_limits() const {
    if (in_.kind != KernelKind::block) return;
    if (in_.threads_per_block() > target_.max_block_threads)
      refuse(no_node,
             "its blocks have " + std::to_string(in_.threads_per_block()) +
                 " threads, but this device allows at most " + std::to_string(target_.max_block_threads),
             "Declare it with smaller blocks");
    check_shared_memory(in_);
  }
  void check_shared_memory(const Function& fn) const {
    const std::size_t bytes = shared_bytes(fn);
    if (bytes > target_.max_shared_bytes)
      refuse(no_node,
             "it needs " + std::to_string(bytes) + " bytes of shared memory, but this device allows at most " +
                 std::to_string(target_.max_shared_bytes),
             "Use smaller tiles");
  }
  // Checks the lowered function, because fragments and split vectors are arrays there.
  void check_local_memory(const Function& out) const {
    if (in_.kind != KernelKind::block || target_.max_local_bytes == 0) return;
    std::uint64_t bytes = 0;
    for (const Node& n : out.nodes)
      if (n.op == Op::local) bytes += n.imm * n.type.lanes * dtype_size(n.type.dtype);
    const std::uint64_t all = bytes * in_.threads_per_block();
    if (all > target_.max_local_bytes)
      refuse(no_node,
             "its " + std::to_string(in_.threads_per_block()) + " threads need " + std::to_string(bytes) +
                 " bytes each for variables, local arrays and matrices, " + std::to_string(all) +
                 " together, but this device allows at most " + std::to_string(target_.max_local_bytes),
             "Declare it with smaller blocks, or with fewer or smaller local arrays and matrices");
  }
  void check_f64(NodeId id) const {
    if (!target_.f64) refuse(id, "this device has no f64", "Use f32, or another device");
  }

  // Dtypes of values, and of memory and parameters.
  bool is_emulated(DType t) const {
    return (t == DType::f16 && !target_.f16_convert) || (t == DType::bf16 && !target_.bf16_convert);
  }
  DType memory_dtype(DType t) const { return t == DType::index ? index_ : is_emulated(t) ? DType::u16 : t; }
  bool split(Type t) const { return t.lanes > 1 && !target_.vectors; }

  NodeId index_constant(std::int64_t v) { return b_.constant_of(index_, v); }
  NodeId plus(NodeId index, std::int64_t v) {
    b_.set_no_wrap(true);
    return b_.binary(BinaryOp::add, index, index_constant(v));
  }

  // Returns the condition of the `if` around a map kernel. It checks the first dimension and all other dimensions that
  // the kernel reads.
  NodeId in_extent() {
    std::array<bool, 3> used = {true, false, false};
    // The grid is also rounded up in dimensions in which the kernel only reads the extent, so they need a check too.
    for (const Node& n : in_.nodes) {
      if (n.op != Op::index) continue;
      const auto kind = n.kind<IndexKind>();
      if (kind == IndexKind::global_id || kind == IndexKind::grid_size || kind == IndexKind::extent) used[n.imm] = true;
    }
    NodeId inside = no_node;
    for (std::uint64_t d = 0; d < 3; ++d) {
      if (!used[d]) continue;
      const NodeId below = b_.compare(CompareOp::lt, b_.index(IndexKind::global_id, d), b_.index(IndexKind::extent, d));
      inside = inside ? b_.binary(BinaryOp::and_, inside, below) : below;
    }
    return inside;
  }

  // Values.
  NodeId value(NodeId id) { return lanes(id)[0]; }
  const Lanes& lanes(NodeId id) {
    if (!values_[id][0]) values_[id][0] = leaf(id);
    return values_[id];
  }
  NodeId leaf(NodeId id) {
    const Node& n = in_[id];
    if (n.type.dtype == DType::f64) check_f64(id);
    switch (n.op) {
      case Op::constant:
        if (n.type.dtype == DType::index) {
          const auto v = static_cast<std::int64_t>(n.imm);
          if (!target_.index64 &&
              (v < std::numeric_limits<std::int32_t>::min() || v > std::numeric_limits<std::int32_t>::max()))
            refuse(id, "the index " + std::to_string(v) + " does not fit in 32 bits", "Compile it with 64-bit indices");
        }
        return b_.constant(memory_dtype(n.type.dtype), n.imm);
      case Op::param: return params_[n.imm];
      case Op::local: {
        if (is_fragment(n))
          return matrices_ ? matrices_->fragment(n.type.dtype) : b_.fragment(n.kind<FragmentRole>(), n.type.dtype);
        const bool each = split(n.type);
        return b_.local({memory_dtype(n.type.dtype), each ? std::uint8_t{1} : n.type.lanes},
                        n.imm * (each ? n.type.lanes : 1));
      }
      case Op::shared: return b_.shared(memory_dtype(n.type.dtype), n.imm);
      case Op::index: return index(id, n);
      default: refuse(id, "a value is used before it is computed");
    }
  }
  NodeId index(NodeId id, const Node& n) {
    switch (n.kind<IndexKind>()) {
      case IndexKind::lane_elements:
        if (places_) return index_constant(places_->elements());
        return matrices_ ? matrices_->lane_elements() : b_.index(IndexKind::lane_elements);
      case IndexKind::lane_rows:
        if (places_) return index_constant(places_->rows());
        return matrices_ ? matrices_->lane_rows() : b_.index(IndexKind::lane_rows);
      case IndexKind::buffer_size: return b_.buffer_size(params_[n.imm]);
      case IndexKind::counter: refuse(id, "a loop counter is used outside of its for_");
      case IndexKind::grid_size:  // a map kernel must not see the rounded-up grid
        return b_.index(in_.kind == KernelKind::map ? IndexKind::extent : IndexKind::grid_size, n.imm);
      case IndexKind::extent:
        return b_.index(in_.kind == KernelKind::map ? IndexKind::extent : IndexKind::grid_size, n.imm);
      default: break;
    }
    if (target_.subgroup_width == 1) {
      switch (n.kind<IndexKind>()) {
        case IndexKind::lane_id: return index_constant(0);
        case IndexKind::subgroup_size: return index_constant(1);
        case IndexKind::subgroup_count: return index_constant(in_.threads_per_block());
        case IndexKind::subgroup_id: return linear_thread_id(b_, in_.block_size, index_);
        default: break;
      }
    }
    return b_.index(n.kind<IndexKind>(), n.imm);
  }

  // Statements.
  void block(BlockId id) {
    for (NodeId s : in_.blocks[id]) statement(s);
  }
  void statement(NodeId id) {
    const Node& n = in_[id];
    if (n.type.dtype == DType::f64) check_f64(id);
    b_.at(in_.sources[id].file, in_.sources[id].line);
    b_.set_no_wrap(n.type.dtype == DType::index || (n.op == Op::for_ && in_[n.args[3]].type.dtype == DType::index));
    switch (n.op) {
      case Op::load: values_[id] = load(n); break;
      case Op::store: store(n); break;
      case Op::select: values_[id] = select(n); break;
      case Op::vector: values_[id] = vector(n); break;
      case Op::mma: matrix(n); break;
      case Op::async: async(n); break;
      case Op::place: values_[id][0] = place(id, n); break;
      case Op::if_:
        if (const Node& c = b_.node(value(n.args[0])); in_[n.args[0]].op == Op::place && c.op == Op::constant) {
          if (c.imm != 0) block(n.args[1]);
          break;
        }
        b_.if_(
            value(n.args[0]), [&] { block(n.args[1]); },
            n.args[2] == no_block ? std::function<void()>{} : [&] { block(n.args[2]); });
        break;
      case Op::for_:
        if (places_ && counts_places(in_[n.args[1]])) {  // the lane's elements are in registers, so this is unrolled
          const Node &begin = in_[n.args[0]], &step = in_[n.args[2]];
          if (begin.op != Op::constant || begin.imm != 0 || step.op != Op::constant || step.imm != 1)
            refuse(id, "a loop over the elements or rows of a lane must begin at 0 and have step 1");
          const std::int64_t rounds =
              in_[n.args[1]].kind<IndexKind>() == IndexKind::lane_rows ? places_->rows() : places_->elements();
          for (std::int64_t k = 0; k < rounds; ++k) {
            values_[n.args[3]][0] = index_constant(k);
            block(n.extra);
          }
          break;
        }
        b_.for_(
            value(n.args[0]), value(n.args[1]), value(n.args[2]),
            [&](NodeId counter) {
              values_[n.args[3]][0] = counter;
              block(n.extra);
            },
            n.imm == 0 ? std::nullopt : std::optional(Unroll{static_cast<std::uint32_t>(n.imm)}));
        break;
      case Op::while_: loop(n); break;
      default: values_[id][0] = single(id, n);
    }
  }

  NodeId single(NodeId id, const Node& n) {
    const NodeId a =
        n.args[0] && !is_load(n.op) && n.op != Op::atomic && n.op != Op::load_if ? value(n.args[0]) : no_node;
    auto other = [&](int i) {
      return n.args[static_cast<std::size_t>(i)] ? value(n.args[static_cast<std::size_t>(i)]) : no_node;
    };
    switch (n.op) {
      case Op::unary: return b_.unary(n.kind<UnaryOp>(), a);
      case Op::binary: return b_.binary(n.kind<BinaryOp>(), a, other(1));
      case Op::compare: return b_.compare(n.kind<CompareOp>(), a, other(1));
      case Op::cast: return cast(in_[n.args[0]].type.dtype, n.type.dtype, a);
      case Op::bitcast: return b_.bitcast(memory_dtype(n.type.dtype), a);
      case Op::math:
        if (const auto op = n.kind<MathOp>(); expands(op)) {
          const bool wide = n.type.dtype == DType::f64;
          const bool native = target_.native_exp && !wide && (op == MathOp::exp || op == MathOp::exp2);
          if (always_expands(op) || (wide ? target_.expand_math64 : target_.expand_math && !native))
            return wide ? expand_math64(b_, op, a, other(1)) : expand_math(b_, op, a, other(1), target_.fast_f64);
        }
        return b_.math(n.kind<MathOp>(), a, other(1), other(2));
      case Op::dot4: return dot4(n.kind<Dot4Signs>(), a, other(1), other(2));
      case Op::subgroup: return subgroup(n, a, other(1));
      case Op::block_reduce:
        return block_operations_ ? block_operations_->reduce(n.kind<ReduceOp>(), a)
                                 : b_.block_reduce(n.kind<ReduceOp>(), a);
      case Op::block_scan:
        return block_operations_ ? block_operations_->scan(a, n.imm != 0)
                                 : b_.block_scan(n.kind<ReduceOp>(), a, n.imm != 0);
      case Op::block_uniform: return b_.block_uniform(a);
      case Op::load_if: return b_.load_if(other(2), value(n.args[0]), other(1), other(3));
      case Op::atomic: return atomic(id, n);
      case Op::barrier: b_.barrier(); return no_node;
      case Op::print: {
        std::vector<NodeId> shown;
        for (NodeId v : operands(n)) {
          if (in_[v].type.lanes > 1)
            refuse(id, "print accepts single elements only", "Get the vector's elements with extract");
          shown.push_back(value(v));
        }
        b_.print(in_.strings[n.extra], shown);
        return no_node;
      }
      default: refuse(id, std::string(op_name(n.op)) + " cannot be lowered yet");
    }
  }

  NodeId cast(DType from, DType to, NodeId a) {
    if (is_emulated(from) && from == to) return a;
    if (is_emulated(from))
      return b_.cast(memory_dtype(to), from == DType::f16 ? f32_from_f16(b_, a) : f32_from_bf16(b_, a));
    if (is_emulated(to)) {
      a = b_.cast(DType::f32, a);
      return to == DType::f16 ? f16_from_f32(b_, a) : bf16_from_f32(b_, a);
    }
    return b_.cast(memory_dtype(to), a);
  }

  NodeId subgroup(const Node& n, NodeId a, NodeId lane) {
    if (target_.subgroup_width != 1) return b_.subgroup(n.kind<SubgroupOp>(), a, lane);
    return n.kind<SubgroupOp>() == SubgroupOp::exclusive_sum ? b_.constant(b_.type(a).dtype, 0) : a;
  }

  // Vectors.
  std::uint8_t lanes_at_once(const Node& access) const {
    return target_.aligned_vectors ? access_lanes(in_, access) : std::uint8_t{1};
  }
  Lanes load(const Node& n) {
    const Node& memory = in_[n.args[0]];
    const NodeId at = value(n.args[1]), m = value(n.args[0]);
    check_element(memory, at);
    Lanes out{};
    if (!split(n.type)) {
      out[0] = b_.load(m, at, memory.type.lanes > 1 ? std::uint8_t{1} : n.type.lanes);
      return out;
    }
    const NodeId first = memory.type.lanes > 1 ? b_.binary(BinaryOp::mul, at, index_constant(n.type.lanes)) : at;
    const std::uint8_t each = lanes_at_once(n);
    for (std::uint32_t l = 0; l < n.type.lanes; l += each) {
      const NodeId v = b_.load(m, plus(first, l), each);
      for (std::uint32_t k = 0; k < each; ++k) out[l + k] = each == 1 ? v : b_.extract(v, k);
    }
    return out;
  }
  void store(const Node& n) {
    const Node& memory = in_[n.args[0]];
    const NodeId at = value(n.args[1]), m = value(n.args[0]);
    check_element(memory, at);
    const Lanes v = lanes(n.args[2]);
    if (!split(n.type)) return b_.store(m, at, v[0]);
    const NodeId first = memory.type.lanes > 1 ? b_.binary(BinaryOp::mul, at, index_constant(n.type.lanes)) : at;
    const std::uint8_t each = lanes_at_once(n);
    for (std::uint32_t l = 0; l < n.type.lanes; l += each)
      b_.store(m, plus(first, l), each == 1 ? v[l] : b_.make_vector(std::span(&v[l], each)));
  }
  Lanes select(const Node& n) {
    const NodeId c = value(n.args[0]);
    const Lanes x = lanes(n.args[1]), y = lanes(n.args[2]);
    Lanes out{};
    for (std::uint8_t l = 0; l < (split(n.type) ? n.type.lanes : 1); ++l) out[l] = b_.select(c, x[l], y[l]);
    return out;
  }
  Lanes vector(const Node& n) {
    Lanes out{};
    if (n.kind<VectorOp>() == VectorOp::extract) {
      out[0] =
          target_.vectors ? b_.extract(value(n.args[0]), static_cast<std::uint32_t>(n.imm)) : lanes(n.args[0])[n.imm];
      return out;
    }
    for (std::uint8_t l = 0; l < n.type.lanes; ++l) out[l] = value(n.args[l]);
    if (target_.vectors) out = {b_.make_vector(std::span(out.data(), n.type.lanes))};
    return out;
  }

  /// Refuses an access to an element of an accumulator that is not one of this lane's registers.
  void check_element(const Node& memory, NodeId at) const {
    if (!places_ || !is_fragment(memory)) return;
    const Node& index = b_.node(at);
    if (index.op != Op::constant || index.imm >= static_cast<std::uint64_t>(places_->elements()))
      refuse(no_node, "the number of a matrix element is not the counter of a loop over the lane's elements",
             "Use for_each_element");
  }

  // Asynchronous copies. They stay if one access of the device can copy all elements.
  bool keeps_async() const { return target_.copy_async && b_.function().aligned_vectors; }
  void async(const Node& n) {
    const AsyncOp op = n.kind<AsyncOp>();
    if (op == AsyncOp::commit) return keeps_async() ? b_.async_commit() : void();
    const auto count = static_cast<std::uint32_t>(n.imm);
    if (op == AsyncOp::wait) return keeps_async() ? b_.async_wait(count) : void();
    const NodeId to = value(n.args[0]), at = value(n.args[1]), from = value(n.args[2]), first = value(n.args[3]);
    if (keeps_async()) return b_.copy_async(to, at, from, first, count);
    std::vector<NodeId> elements;
    for (std::uint32_t k = 0; k < count; ++k) elements.push_back(b_.load(from, plus(first, k)));
    for (std::uint32_t k = 0; k < count; ++k) b_.store(to, plus(at, k), elements[k]);
    b_.set_no_wrap(false);
  }

  // Matrices.
  static bool counts_places(const Node& n) {
    return n.op == Op::index &&
           (n.kind<IndexKind>() == IndexKind::lane_elements || n.kind<IndexKind>() == IndexKind::lane_rows);
  }
  NodeId place(NodeId id, const Node& n) {
    const NodeId k = value(n.args[0]);
    const PlaceOf what = n.kind<PlaceOf>();
    if (matrices_) return matrices_->place(what, k);
    if (!places_) return b_.place(what, k);
    if (b_.node(k).op != Op::constant)
      refuse(id, "the number of a matrix element is not the counter of a loop over the lane's elements",
             "Use for_each_element and for_each_row");
    return places_->place(what, static_cast<std::int64_t>(b_.node(k).imm));
  }
  NodeId dot4(Dot4Signs signs, NodeId x, NodeId y, NodeId sum) {
    return target_.dot4 ? b_.dot4(signs, x, y, sum) : expand_dot4(b_, signs, x, y, sum);
  }
  void matrix(const Node& n) {
    const MmaOp op = n.kind<MmaOp>();
    if (op == MmaOp::convert || op == MmaOp::reduce_rows) {
      const NodeId to = value(n.args[0]), from = value(n.args[1]);
      const auto reduce = static_cast<ReduceOp>(n.imm);
      const DType t = in_[n.args[0]].type.dtype;
      const auto narrow = [&](NodeId v) { return cast(DType::f32, t, v); };
      if (op == MmaOp::reduce_rows)
        return matrices_ ? matrices_->reduce_rows(reduce, to, from)
               : places_ ? places_->reduce_rows(reduce, to, from)
                         : b_.mma_reduce_rows(reduce, to, from);
      if (places_) return places_->convert(to, from, [&](NodeId v) { return b_.bitcast(DType::u16, narrow(v)); });
      return matrices_ ? matrices_->convert(to, from, [&](NodeId v) { return cast(t, DType::f32, narrow(v)); })
                       : b_.mma_convert(to, from);
    }
    if (op == MmaOp::multiply) {
      const NodeId c = value(n.args[0]), x = value(n.args[1]), y = value(n.args[2]);
      const bool replaces = n.extra != 0;
      if (!matrices_) return b_.mma_multiply(c, x, y, replaces);
      if (replaces) matrices_->fill(c, b_.constant(DType::f32, 0));
      if (in_[n.args[1]].type.dtype != DType::i8) return matrices_->multiply(c, x, y);
      return matrices_->multiply_words(
          c, x, y, [&](NodeId a, NodeId b, NodeId sum) { return dot4(Dot4Signs::signed_signed, a, b, sum); });
    }
    if (op == MmaOp::fill) {
      const NodeId c = value(n.args[0]), v = value(n.args[1]);
      return matrices_ ? matrices_->fill(c, v) : b_.mma_fill(c, v);
    }
    const NodeId f = value(n.args[0]), memory = value(n.args[1]), at = value(n.args[2]), stride = value(n.args[3]);
    if (op == MmaOp::store)
      return matrices_ ? matrices_->store(f, memory, at, stride) : b_.mma_store(f, memory, at, stride);
    if (!matrices_) return b_.mma_load(f, memory, at, stride, n.extra != 0);
    const Node& from = in_[n.args[0]];
    if (from.type.dtype == DType::i8) return matrices_->load_words(f, memory, at, stride);
    matrices_->load(f, from.kind<FragmentRole>(), memory, at, stride, n.extra != 0,
                    [&](NodeId element) { return cast(from.type.dtype, DType::f32, element); });
  }

  // Atomics.
  NodeId atomic(NodeId id, const Node& n) {
    const DType t = n.type.dtype;
    if (dtype_size(t) == 8 && !target_.atomic_i64)
      refuse(id, "this device has no 64-bit atomics", "Use 32-bit numbers, or another device");
    const NodeId memory = value(n.args[0]), at = value(n.args[1]), v = value(n.args[2]);
    const NodeId expected = n.args[3] ? value(n.args[3]) : no_node;
    const AtomicOp op = n.kind<AtomicOp>();
    if (!needs_cas_loop(n)) return b_.atomic(op, memory, at, v, expected);
    // A compare-and-swap loop that guesses the old value. The swap succeeds if the guess has the same bits. The first
    // guess is zero, and a wrong guess returns the current value. A plain load of the first guess would race with other
    // swaps.
    const NodeId zero = index_constant(0);
    const NodeId guess = b_.local({t}, 1), again = b_.local({DType::boolean}, 1);
    b_.store(guess, zero, b_.constant(t, 0));
    b_.store(again, zero, b_.constant(DType::boolean, 1));
    b_.while_([&] { return b_.load(again, zero); },
              [&] {
                const NodeId old = b_.load(guess, zero);
                const BinaryOp arithmetic_op = op == AtomicOp::add   ? BinaryOp::add
                                               : op == AtomicOp::min ? BinaryOp::min
                                                                     : BinaryOp::max;
                const NodeId seen = b_.atomic(AtomicOp::cas, memory, at, b_.binary(arithmetic_op, old, v), old);
                const DType bits = t == DType::f64 ? DType::u64 : DType::u32;
                b_.store(again, zero, b_.compare(CompareOp::ne, b_.bitcast(bits, seen), b_.bitcast(bits, old)));
                b_.store(guess, zero, seen);
              });
    return b_.load(guess, zero);
  }

  // Returns true for float atomics that the device lacks.
  bool needs_cas_loop(const Node& n) const {
    const AtomicOp op = n.kind<AtomicOp>();
    const bool arithmetic = op == AtomicOp::add || op == AtomicOp::min || op == AtomicOp::max;
    if (!arithmetic || !is_float(n.type.dtype)) return false;
    if (n.type.dtype == DType::f32) return !target_.atomic_f32;
    return op == AtomicOp::add ? !target_.atomic_f64_add : !target_.atomic_f64;
  }
  // Returns true if lowering expands the node to control statements, which are not allowed in the condition of a
  // while_.
  bool makes_control(const Node& n) const {
    if (n.op == Op::atomic) return needs_cas_loop(n);
    if (n.op == Op::mma) return matrices_.has_value();
    return (n.op == Op::block_reduce || n.op == Op::block_scan) && block_operations_.has_value();
  }
  void loop(const Node& n) {
    bool control = false;
    for (NodeId c : in_.blocks[n.args[1]]) control = control || makes_control(in_[c]);
    if (!control) {
      b_.while_([&] { return block(n.args[1]), value(n.args[0]); }, [&] { block(n.extra); });
      return;
    }
    const NodeId zero = index_constant(0);
    const NodeId go = b_.local({DType::boolean}, 1);
    b_.store(go, zero, b_.constant(DType::boolean, 1));
    b_.while_([&] { return b_.load(go, zero); },
              [&] {
                block(n.args[1]);
                const NodeId condition = value(n.args[0]);
                b_.store(go, zero, condition);
                b_.if_(condition, [&] { block(n.extra); });
              });
  }

  const Function& in_;
  const Target& target_;
  DType index_;
  Builder b_;
  std::vector<Lanes> values_;
  std::vector<NodeId> params_;
  std::optional<BlockOperations> block_operations_;
  std::optional<MatrixLoops> matrices_;   // if fragments become arrays of all elements
  std::optional<FragmentPlaces> places_;  // if a device has its own layout of fragments
};

}  // namespace

std::uint8_t access_lanes(const Function& fn, const Node& access) {
  const Type t = access.type;
  if (!fn.aligned_vectors || fn[access.args[0]].op != Op::param || t.lanes == 3 || t.dtype == DType::boolean) return 1;
  return static_cast<std::uint8_t>(std::min<std::size_t>(t.lanes, 16 / dtype_size(t.dtype)));
}

bool keeps_fragments(const Function& fn, const Target& target) {
  if (!target.mma || fn.threads_per_block() % target.mma_width != 0) return false;
  return std::ranges::none_of(fn.nodes, [&](const Node& n) {
    if (!is_fragment(n) || is_accumulator(n) || n.type.dtype == DType::f16) return false;
    return !(n.type.dtype == DType::f32 ? target.mma_f32 : target.mma_bf16);
  });
}

Function lower(const Function& fn, const Target& target) { return Lowerer(fn, target).run(); }

}  // namespace tessera::emit
