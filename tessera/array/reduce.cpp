// SPDX-License-Identifier: Apache-2.0
// Reductions over any axes, fused with a pending argument, and argmax.
#include <algorithm>
#include <limits>

#include "tessera/array/cached_operation.h"
#include "tessera/array/elementwise.h"
#include "tessera/array/min_max.h"
#include "tessera/array/operation.h"
#include "tessera/device/launch/block_threads.h"
#include "tessera/device/launch/kernel.h"
#include "tessera/device/launch/kernel_family.h"
#include "tessera/device/placement/kernel_backend.h"
#include "tessera/ir/semantics.h"

namespace tessera {

using detail::CachedOperation;
using detail::Fused;
using detail::FusedTrace;
using detail::Operation;
using detail::RuledOperation;
using detail::StridedView;
using detail::Structure;

namespace {

enum Form : std::uint8_t {
  per_thread,      ///< one thread per result (or part of a result); adjacent threads read adjacent elements
  rows_per_block,  ///< like per_thread with bit-identical results; the threads of a block read the same rows of memory
  per_block,       ///< one block per result: for reductions along contiguous memory
  per_block_unrolled,  ///< like per_block, with several sums per thread
  position,            ///< argmax with one block per result; compares integers that sort like the elements
  few_position,       ///< like position, but compares floats, several at a time; for CPUs, which do not flush denormals
  short_position,     ///< like few_position, for rows that are short enough to be read twice
  position_of_parts,  ///< like position, but compares only elements at positions that were found in parts of the row
  position_per_thread  ///< argmax with one thread per result; compares floats
};
bool in_blocks(std::uint8_t form) { return form != per_thread && form != position_per_thread; }
bool finds_position(std::uint8_t form) { return form >= position; }

struct ReductionSpec {
  std::shared_ptr<const Structure> structure;
  friend bool operator==(const ReductionSpec& a, const ReductionSpec& b) { return *a.structure == *b.structure; }
  std::size_t hash() const { return structure->hash(); }
};

constexpr std::uint32_t most_threads = 256;  // per block, for reductions along contiguous memory
// On `cpu`, the threads of a block are processed as consecutive vectors. For a reduction along contiguous memory, a
// block is one vector that traverses the memory in order.
constexpr std::uint32_t row_threads = 256;
constexpr int rows_together = 16;
constexpr std::int64_t short_row = 512;                                // in elements
constexpr std::int64_t longest_axis = (std::int64_t{1} << 31) - 8192;  // for argmax

double identity(ir::ReduceOp op, DType t) {
  switch (op) {
    case ir::ReduceOp::min: return std::numeric_limits<double>::infinity();
    case ir::ReduceOp::max: return -std::numeric_limits<double>::infinity();
    case ir::ReduceOp::and_: return 1;
    default: return 0;
  }
  (void)t;
}
// The neutral element as a constant of the dtype. to_bits saturates infinities to the limits of integers.
ir::Value identity_value(ir::ReduceOp op, DType t) { return ir::literal(t, identity(op, t)); }

ir::Value combine(ir::ReduceOp op, ir::Value a, ir::Value b) {
  switch (op) {
    case ir::ReduceOp::min: return ir::min(a, b);
    case ir::ReduceOp::max: return ir::max(a, b);
    case ir::ReduceOp::and_: return a & b;
    case ir::ReduceOp::or_: return a | b;
    default: return a + b;
  }
}

// The dtype and operation of the accumulation. Maxima and minima of floats are computed on integers that sort in the
// same order (min_max.h), so that the result does not depend on the order of comparisons.
struct Accumulation {
  ir::ReduceOp op;
  DType dtype;
  bool position = false;
  bool compares = false;  // compares the floats themselves, without converting them to integers
  bool keyed() const { return ordered() && !compares; }
  bool ordered() const { return is_float(dtype) && (op == ir::ReduceOp::max || op == ir::ReduceOp::min); }
  DType worked() const { return !keyed() ? dtype : dtype == DType::f64 ? DType::i64 : DType::i32; }
  ir::Value begin() const { return identity_value(op, worked()); }
  ir::Value take(ir::Value v) const {
    v = ir::cast(dtype, v);
    return keyed() ? key_of(v) : v;
  }
  ir::Value key_of(ir::Value v) const {
    return detail::sortable_key(position ? detail::canonicalize_zero(v) : v, op == ir::ReduceOp::max);
  }
  // `key` maps an accumulated value to an integer that sorts in the same order. `better` is true if `v` precedes
  // `than`. The first NaN wins.
  ir::Value key(ir::Value v) const { return ordered() && compares ? key_of(v) : v; }
  ir::Value better(ir::Value v, ir::Value than) const {
    return ordered() && compares ? !(v <= than) && than == than : v > than;
  }
  ir::Value give(ir::Value v) const { return keyed() ? detail::from_sortable_key(v) : v; }
};

// Converts a linear position to coordinates in dimensions [first, last). The last dimension is the innermost.
void unravel(const FusedTrace& trace, ir::Value linear, std::size_t first, std::size_t last,
             std::vector<ir::Value>& coordinates) {
  for (std::size_t d = last; d-- > first;) {
    coordinates[d] = d == first ? linear : linear % trace.extent(d);
    if (d != first) linear = linear / trace.extent(d);
  }
}

// Iterates over the elements of dimensions [first, rank) in linear order, one vector (the threads of a block) at a
// time. The coordinates of a vector's first element are incremented, and a division is needed only at the end of a row.
// All lanes share the outer coordinates unless a vector crosses the end of a row.
class VectorWalk {
 public:
  VectorWalk(const FusedTrace& trace, std::size_t first, std::size_t rank, int threads, ir::Value begin)
      : trace_(trace),
        first_(first),
        last_(rank - 1),
        threads_(threads),
        width_(trace.extent(last_)),
        row_(DType::index, begin / width_),
        column_(DType::index, begin % width_) {
    std::vector<ir::Value> at(rank);
    unravel(trace_, row_.get(), first_, last_, at);
    for (std::size_t d = first_; d < last_; ++d) outer_.emplace_back(DType::index, at[d]);
  }

  /// Stores the coordinates of each lane's element in `at`, calls `use` (from two code paths), and advances to the next
  /// vector.
  template <class F>
  void next(std::vector<ir::Value>& at, F&& use) const {
    const ir::Value column = column_.get(), own = column + ir::thread_id(), after = column + threads_;
    ir::if_(
        after <= width_,
        [&] {
          for (std::size_t d = first_; d < last_; ++d) at[d] = outer_[d - first_].get();
          at[last_] = own;
          use();
        },
        [&] {
          // Float division is exact here: `narrow` is at most `threads`, and `own` is less than the length of a row
          // plus a vector.
          const ir::Value narrow = ir::min(width_, threads_), rest = own - (width_ - narrow);
          const ir::Value rows =
              ir::cast(DType::index, (ir::cast(DType::f32, rest) + 0.5f) / ir::cast(DType::f32, narrow));
          at[last_] = own - rows * width_;
          unravel(trace_, row_.get() + rows, first_, last_, at);
          use();
        });
    ir::if_(
        after < width_, [&] { column_.set(after); },
        [&] {
          ir::if_(
              width_ >= threads_, [&] { row_.set(row_.get() + 1), column_.set(after - width_); },
              [&] { row_.set(row_.get() + after / width_), column_.set(after % width_); });
          unravel(trace_, row_.get(), first_, last_, at);
          for (std::size_t d = first_; d < last_; ++d) outer_[d - first_].set(at[d]);
        });
  }

 private:
  const FusedTrace& trace_;
  const std::size_t first_, last_;
  const int threads_;
  const ir::Value width_;
  const ir::Variable row_, column_;
  std::vector<ir::Variable> outer_;
};

ir::Function trace_reduction(const ReductionSpec& spec) {
  const Structure& s = *spec.structure;
  const auto op = static_cast<ir::ReduceOp>(s.reduction);
  const std::size_t kept = s.rank - s.reduced;
  const std::string name = s.form == position_of_parts ? "argmax_of_parts"
                           : finds_position(s.form)    ? "argmax"
                                                       : "reduce_" + std::string(ir::name_of(op));
  const std::string inner = detail::operation_names(s);
  const bool blocks = in_blocks(s.form);
  ir::Builder builder(inner == "copy" ? name : name + "_" + inner, blocks ? ir::KernelKind::block : ir::KernelKind::map,
                      {blocks ? s.threads : 1u, 1, 1});
  ir::Builder::Scope scope(builder);
  builder.set_exact();
  const FusedTrace trace(s);
  // The reduced elements are split into parts of `part` elements. The results have shape (kept..., parts).
  const ir::Value total = ir::scalar_param("total", DType::index), part = ir::scalar_param("part", DType::index);
  const ir::Value parts = ir::scalar_param("parts", DType::index);
  const auto candidates =
      s.form == position_of_parts ? ir::buffer_param("candidates", DType::i64, ir::Access::read) : ir::BufferRef();
  const int threads = s.threads;
  std::vector<ir::Value> at(s.rank);
  ir::Value result_index, begin;
  if (blocks && s.form != rows_per_block) {
    unravel(trace, ir::block_id(0), 0, kept, at);
    result_index = ir::block_id(0) * parts + ir::block_id(1);
    begin = ir::block_id(1) * part;
  } else {
    auto position_in = [&](int d) { return blocks ? ir::block_id(d) : ir::global_id(d); };
    at[kept - 1] = blocks ? ir::block_id(0) * threads + ir::thread_id() : ir::global_id(0);
    if (kept > 1) unravel(trace, position_in(1), 0, kept - 1, at);
    const ir::Value linear = kept > 1 ? position_in(1) * trace.extent(kept - 1) + at[kept - 1] : at[kept - 1];
    result_index = linear * parts + position_in(2);
    begin = position_in(2) * part;
  }
  const ir::Value end = ir::min(begin + part, total);
  const int root = s.output_nodes[0];
  const bool small = s.nodes.size() <= 6;  // larger expressions are compiled only once per loop, to limit compile time
  const bool compares = finds_position(s.form) && s.form != position && s.form != position_of_parts;
  const Accumulation in{op, s.accumulator, finds_position(s.form), compares};
  const auto value = [&] { return in.take(trace.evaluate(at)[static_cast<std::size_t>(root)]); };
  auto element = [&](ir::Value r) {
    unravel(trace, r, kept, s.rank, at);
    return value();
  };
  const auto store_position = [&](ir::Value where) {
    trace.output(0).store(result_index, ir::cast(DType::i64, where));
  };

  // Calls `body(r, k)` for `count` steps at a time: step k is at position r + k * step. The remaining steps are called
  // one by one.
  const auto each_of = [&](ir::Value from, int step, int count, auto&& body) {
    const ir::Value rest = begin + (end - begin) / (step * count) * (step * count);
    ir::for_(begin + from, rest, step * count, [&](ir::Value r) {
      for (int k = 0; k < count; ++k) body(r, k);
    });
    ir::for_(rest + from, end, step, [&](ir::Value r) { body(r, 0); });
  };

  if (s.form == few_position || s.form == short_position) {
    // Finds the maximum with one comparison per group of `count` vectors. The group that contains the maximum is
    // searched again at the end. In short rows all groups are searched again, which is cheaper than tracking the group.
    const int count = small ? 4 : 1, step = threads * count;
    // `far` is larger than every position. Adding the size of a group to it does not overflow.
    const ir::Value lane = ir::thread_id(), far = ir::index_literal(longest_axis);
    const bool floats = in.ordered(), whole = s.form == short_position;
    const ir::Variable best(in.worked(), in.begin()), where(DType::index, begin), no_number(DType::i32, 0);
    const auto group = [&](ir::Value from, int vectors) {
      ir::Value greatest, odd;
      for (int k = 0; k < vectors; ++k) {
        const ir::Value v = element(from + lane + k * threads);
        greatest = k ? ir::select(v > greatest, v, greatest) : v;
        if (floats) odd = k ? odd | (v != v) : v != v;
      }
      const ir::Value better = greatest > best.get();
      if (!whole) where.set(ir::select(better, from, where.get()));
      best.set(ir::select(better, greatest, best.get()));
      if (floats) no_number.set(ir::select(odd, ir::literal(DType::i32, 1), no_number.get()));
    };
    const ir::Value rest = begin + (end - begin) / step * step;
    const auto last_ones = [&](auto&& body) {
      ir::if_(rest < end, [&] { ir::for_(rest + lane, end, threads, body); });
    };
    ir::for_(begin, rest, step, [&](ir::Value r) { group(r, count); });
    last_ones([&](ir::Value r) { group(r - lane, 1); });

    const ir::Value key = in.key(best.get()), top = ir::block_max(key);
    const ir::Value greatest = floats ? detail::from_sortable_key(top) : top;
    const ir::Value first_group = whole ? begin : ir::block_min(ir::select(key == top, where.get(), far));
    // first[k] is the start of the first group in which vector k contains the maximum
    std::vector<ir::Variable> first;
    for (int k = 0; k < count; ++k) first.emplace_back(DType::index, far);
    const auto look = [&](int k, ir::Value from, auto&& is) {
      const ir::Variable& f = first[static_cast<std::size_t>(k)];
      f.set(ir::select(is(element(from + lane + k * threads)), ir::min(f.get(), from), f.get()));
    };
    const auto look_through = [&](auto&& is) {
      ir::for_(begin, rest, step, [&](ir::Value r) {
        for (int k = 0; k < count; ++k) look(k, r, is);
      });
      last_ones([&](ir::Value r) { look(0, r - lane, is); });
    };
    const auto found = [&](ir::Value v) { return v == greatest; };
    const auto numbers = [&] {
      if (whole) return look_through(found);
      const ir::Value from = first_group;
      ir::if_(
          from < rest,
          [&] {
            for (int k = 0; k < count; ++k) look(k, from, found);
          },
          [&] { last_ones([&](ir::Value r) { look(0, r - lane, found); }); });
    };
    if (floats)
      ir::if_(
          ir::subgroup(ir::SubgroupOp::any, no_number.get() != 0),
          [&] { look_through([](ir::Value v) { return v != v; }); }, numbers);
    else
      numbers();
    ir::Value position;
    for (int k = 0; k < count; ++k) {
      const ir::Value at_k = first[static_cast<std::size_t>(k)].get() + k * threads;
      position = k ? ir::min(position, at_k) : at_k;
    }
    position = ir::block_min(position + lane);
    ir::if_(lane == 0, [&] { store_position(position); });
    return builder.finish();
  }
  if (finds_position(s.form)) {
    const bool alone = s.form == position_per_thread;
    const int step = alone ? 1 : threads;
    const ir::Value own = alone ? ir::index_literal(0) : ir::thread_id();
    const auto position_of = [&](ir::Value i) {
      return s.form != position_of_parts ? i : ir::cast(DType::index, candidates.load(ir::block_id(0) * total + i));
    };
    // Threads without elements keep the first position, which is the result if all elements are the lowest number.
    const ir::Variable best(in.worked(), in.begin()),
        where(DType::index, s.form == position_of_parts ? position_of(begin) : begin + own);
    ir::for_(begin + own, end, step, [&](ir::Value i) {
      const ir::Value r = position_of(i);
      const ir::Value v = element(r), better = in.better(v, best.get());
      where.set(ir::select(better, r, where.get()));
      best.set(ir::select(better, v, best.get()));
    });
    if (alone) {
      store_position(where.get());
      return builder.finish();
    }
    const ir::Value key = in.key(best.get()), top = ir::block_max(key);
    const ir::Value first =
        ir::block_min(ir::select(key == top, where.get(), ir::index_literal(std::numeric_limits<std::int32_t>::max())));
    ir::if_(ir::thread_id() == 0, [&] { store_position(first); });
    return builder.finish();
  }

  const ir::Variable sum(in.worked(), in.begin());
  const auto add = [&](ir::Value r) { sum.set(combine(op, sum.get(), element(r))); };
  const auto store = [&](ir::Value whole) {
    trace.output(0).store(result_index, ir::cast(s.outputs[0], in.give(whole)));
  };
  if (s.form == per_thread) {
    ir::for_(begin, end, add);
    store(sum.get());
  } else if (s.form == rows_per_block) {
    const ir::Value extent = trace.extent(kept - 1), exists = at[kept - 1] < extent;
    ir::for_(begin, end, rows_together, [&](ir::Value row) {
      const auto rows = [&] {
        const auto whole = [&] {
          ir::for_(row, row + rows_together, 4, [&](ir::Value r) {
            for (int k = 0; k < 4; ++k) add(r + k);
          });
        };
        if (small)
          ir::if_(row + rows_together <= end, whole, [&] { ir::for_(row, end, add); });
        else
          ir::for_(row, ir::min(row + rows_together, end), add);
      };
      if (small)
        ir::if_(ir::subgroup(ir::SubgroupOp::all, exists), rows, [&] { ir::if_(exists, rows); });
      else
        ir::if_(exists, rows);
      ir::barrier();  // keeps the threads of a block at the same row
    });
    ir::if_(exists, [&] { store(sum.get()); });
  } else {
    // Several accumulators hide the latency of additions.
    const int count = s.form == per_block ? 1 : in.keyed() ? 4 : 8;
    // If several dimensions are reduced, the CPU traverses them one vector at a time. On a GPU, each thread computes
    // its own coordinates.
    std::optional<VectorWalk> walk;
    if (s.form == per_block_unrolled && s.reduced > 1) walk.emplace(trace, kept, s.rank, threads, begin);
    if (small || count == 1) {
      std::vector<ir::Variable> sums = {sum};
      while (sums.size() < static_cast<std::size_t>(count)) sums.emplace_back(in.worked(), in.begin());
      const auto add_to = [&](int k, ir::Value v) {
        const ir::Variable& one = sums[static_cast<std::size_t>(k)];
        one.set(combine(op, one.get(), v));
      };
      if (walk) {
        const ir::Value rest = begin + (end - begin) / (threads * count) * (threads * count);
        ir::for_(begin, rest, threads * count, [&](ir::Value) {
          for (int k = 0; k < count; ++k) walk->next(at, [&] { add_to(k, value()); });
        });
        ir::for_(rest, end, threads, [&](ir::Value r) {
          walk->next(at, [&] { ir::if_(r + ir::thread_id() < end, [&] { add_to(0, value()); }); });
        });
      } else {
        each_of(ir::thread_id(), threads, count, [&](ir::Value r, int k) { add_to(k, element(r + k * threads)); });
      }
      for (std::size_t half = sums.size() / 2; half > 0; half /= 2)
        for (std::size_t k = 0; k < half; ++k) sums[k].set(combine(op, sums[k].get(), sums[k + half].get()));
    } else {  // produces the same sums, but the code of the expression is emitted only once
      const ir::BufferRef sums = ir::local_array(in.worked(), static_cast<std::uint64_t>(count));
      for (int k = 0; k < count; ++k) sums.store(k, in.begin());
      const ir::Value rest = begin + (end - begin) / (threads * count) * (threads * count);
      ir::for_(begin, end, threads, [&](ir::Value from) {
        const ir::Value k = ir::select(from < rest, (from - begin) / threads % count, ir::index_literal(0));
        const ir::Value r = from + ir::thread_id();
        if (walk)
          walk->next(at, [&] { ir::if_(r < end, [&] { sums.store(k, combine(op, sums.load(k), value())); }); });
        else
          ir::if_(r < end, [&] { sums.store(k, combine(op, sums.load(k), element(r))); });
      });
      for (int half = count / 2; half > 0; half /= 2)
        for (int k = 0; k < half; ++k) sums.store(k, combine(op, sums.load(k), sums.load(k + half)));
      sum.set(sums.load(0));
    }
    const ir::Value whole = ir::block_reduce(op, sum.get());
    ir::if_(ir::thread_id() == 0, [&] { store(whole); });
  }
  return builder.finish();
}

struct Request {
  const char* name;
  ir::ReduceOp op;
  DType accumulator, result;
  bool position = false;
};

/// A cache key of a reduction's parameters, without its operand. Returns 0 if the axes are invalid, or if the array has
/// no dimensions or more than four.
std::uint64_t number_of(const Request& request, std::size_t rank, std::span<const int> axes, bool keep) {
  const auto n = [](auto v) { return static_cast<std::uint64_t>(v); };
  if (rank == 0 || rank > 4) return 0;
  std::uint64_t reduced = axes.empty() ? (1u << rank) - 1 : 0;
  for (const int axis : axes) {
    const std::size_t d = static_cast<std::size_t>(axis) + (axis < 0 ? rank : 0);
    if (d >= rank || (reduced >> d & 1) != 0) return 0;
    reduced |= n(1) << d;
  }
  return n(CachedOperation::reduction) | reduced << 8 | n(request.op) << 16 | n(request.accumulator) << 24 |
         n(request.result) << 32 | n(request.position) << 40 | n(keep) << 41;
}

Array reduce(const Request& request, Array a, std::span<const int> axes, bool keep);

/// The number of elements in the innermost reduced dimensions that are contiguous in all inputs.
std::int64_t innermost_run(const Fused& fused, const Shape& shape, const std::vector<bool>& reduced) {
  std::int64_t run = 1;
  std::optional<std::size_t> inner;
  for (std::size_t d = shape.size(); d-- > 0;) {
    if (shape[d] == 1) continue;
    const bool joins = !inner || std::ranges::all_of(fused.inputs(), [&](const StridedView& v) {
      return v.strides[d] == v.strides[*inner] * shape[*inner];
    });
    if (!reduced[d] || !joins) break;
    run *= shape[d], inner = d;
  }
  return run;
}

/// Reduces the results of the parts, which are stored along the last axis.
Array reduce_parts(const Request& request, Array parts, Shape shape) {
  return reduce(request, std::move(parts), std::array{1}, false).astype(request.result).reshape(std::move(shape));
}

Array reduce(const Request& request, Array a, std::span<const int> axes, bool keep) {
  enum : std::uint32_t { whole, in_parts };
  const std::uint64_t number = number_of(request, a.shape().size(), axes, keep);
  std::optional<CachedOperation> repeated;
  if (number != 0) repeated.emplace(number, a);
  if (repeated && *repeated) {
    detail::count_fused_launch();
    if (repeated->note() == whole) return (*repeated)();
    Shape shape;
    for (std::size_t d = 0; d < a.shape().size(); ++d)
      if (const bool gone = (number >> (8 + d) & 1) != 0; !gone || keep) shape.push_back(gone ? 1 : a.shape()[d]);
    return reduce_parts(request, (*repeated)(), std::move(shape));
  }
  std::vector<bool> reduced(a.shape().size(), axes.empty());
  for (int axis : axes) {
    const auto d = static_cast<std::size_t>(normalise_axis(request.name, axis, a.shape().size()));
    if (reduced[d])
      fail<ShapeError>({.operation = request.name,
                        .with = {{"shape", to_string(a.shape())}, {"axis", std::to_string(axis)}},
                        .wrong = "an axis occurs twice"});
    reduced[d] = true;
  }
  Shape result_shape, kept_shape;
  std::int64_t total = 1;
  for (std::size_t d = 0; d < reduced.size(); ++d) {
    if (reduced[d])
      total *= a.shape()[d];
    else
      kept_shape.push_back(a.shape()[d]);
    if (!reduced[d] || keep) result_shape.push_back(reduced[d] ? 1 : a.shape()[d]);
  }
  const bool needs_elements = request.op == ir::ReduceOp::max || request.op == ir::ReduceOp::min;
  if (total == 0 && needs_elements)
    fail<ShapeError>(
        {.operation = request.name,
         .with = {{"shape", to_string(a.shape())}},
         .wrong = "there are no elements to reduce",
         .remedy = "Check the extents of the reduced axes first, or append a default value with concatenate"});
  if (request.position && total > longest_axis)
    fail<ShapeError>({.operation = request.name,
                      .with = {{"elements", std::to_string(total)}},
                      .wrong = "the axis is longer than 2^31 - 8192"});
  // If the reduced axes are not adjacent, the innermost axes are reduced first. This avoids computing several
  // coordinates per element. The order must depend only on the shape, because it affects the rounding of sums.
  if (!request.position && total != 0) {
    std::size_t end = reduced.size();
    while (end > 0 && (!reduced[end - 1] || a.shape()[end - 1] == 1)) --end;
    std::vector<int> inner;
    std::int64_t extent = 1;
    for (; end > 0 && (reduced[end - 1] || a.shape()[end - 1] == 1); --end)
      if (reduced[end - 1]) inner.push_back(static_cast<int>(end - 1)), extent *= a.shape()[end - 1];
    if (extent >= 32 && extent < total) {
      const Request first{request.name, request.op, request.accumulator, request.accumulator};
      return reduce(request, reduce(first, std::move(a), inner, true), axes, keep);
    }
  }
  const Device device = a.device();
  const std::int64_t results = element_count(kept_shape);
  if (total == 0) return Array::full(result_shape, identity(request.op, request.result), request.result, device);
  const auto made = [&] { return Array::empty(kept_shape, request.result, device); };
  const auto shaped = [&](Array out) { return keep ? out.reshape(result_shape) : out; };
  if (results == 0) return shaped(made());

  // The expression is fused into the reduction unless another array needs its elements.
  const Shape shape = a.shape();
  const DType dtype = a.dtype();
  detail::Term term = detail::term_of(a, shape);
  // The elements of a deferred operand are in row-major order, even after it has been computed.
  const bool deferred = term.kind == detail::Term::expression;
  detail::Computation walk(device);
  int node = walk.collect(term, {&a, 1});
  // If rows are short, most vectors contain parts of several rows. Storing the elements and reducing them is then
  // faster than fusing.
  constexpr std::int64_t short_run = 128, launch_worth = 4096;  // elements
  constexpr std::uint64_t most_bytes = std::uint64_t{64} << 20;
  bool apart = false;
  if (deferred && blocks_are_vectors(kernel_backend(device)) && results * total >= launch_worth &&
      static_cast<std::uint64_t>(results * total) * dtype_size(dtype) <= most_bytes) {
    const std::int64_t run = innermost_run(walk.fused(), shape, reduced);
    apart = run > 1 && run < short_run && run < total;
  }
  if (walk.shared() || apart) {
    walk.release();
    auto storage =
        a.source()->storage(apart ? "it is reduced along short rows" : "it is reduced, and needed elsewhere");
    term = {.kind = detail::Term::memory, .dtype = dtype, .view = {storage, dtype, contiguous_strides(shape), 0}};
    node = walk.collect(term, {});
  }
  if (deferred) a = Array();  // The computation is now registered as a reader of its inputs.
  Fused& fused = walk.fused();
  detail::trace_flush(fused, request.name);

  // The output is indexed by result, so it is not considered when dimensions are merged.
  const Fused::Dimensions dims = fused.merge(shape, reduced);
  Structure& s = fused.structure();
  const std::size_t kept = dims.extents.size() - dims.reduced;
  // The form and the parts are chosen as if the argument were already computed and contiguous, so that the rounding of
  // a sum does not depend on when its argument is computed.
  bool along_memory;
  if (deferred) {
    std::size_t innermost = shape.size();
    while (innermost > 0 && shape[innermost - 1] == 1) --innermost;
    along_memory = innermost > 0 && reduced[innermost - 1];
  } else {
    along_memory = s.strides[s.rank - 1u] == Structure::one;
  }
  const std::int64_t inner = dims.extents[kept - 1];
  const bool vectors = blocks_are_vectors(kernel_backend(device));
  if (request.position)
    s.form = !vectors                                    ? position
             : !along_memory && results >= 4             ? position_per_thread
             : total <= short_row && s.nodes.size() <= 1 ? short_position
                                                         : few_position;
  else
    s.form = along_memory && total >= 32       ? (vectors ? per_block_unrolled : per_block)
             : vectors && inner >= row_threads ? rows_per_block
                                               : per_thread;
  const Capabilities& can = device_info(device).can;
  s.threads = static_cast<std::uint16_t>(!in_blocks(s.form)         ? 0
                                         : s.form == rows_per_block ? row_threads
                                         : vectors                  ? can.subgroup_widths[0]
                                                                    : block_threads(can, most_threads));
  s.reduction = static_cast<std::uint8_t>(request.op);
  s.accumulator = request.accumulator;

  // If there are only a few results, each of many elements, parts are reduced in parallel and then combined.
  const bool columns = s.form == per_thread || s.form == rows_per_block || s.form == position_per_thread;
  const std::int64_t lanes = columns ? results : results * most_threads;
  // Enough threads to fill a CPU or a large GPU (an H200 has 132 multiprocessors of 2048 threads). They depend on the
  // shape only, so that a sum is the same on every GPU.
  const DeviceKind kind = device_info(device).kind;
  const bool gpu = kind == DeviceKind::discrete_gpu || kind == DeviceKind::integrated_gpu;
  const std::int64_t wanted = gpu ? 1 << 18 : 16384, most_parts = gpu ? 1024 : 256;
  const std::int64_t least = gpu && columns ? 64 : 2048;  // elements of a part
  std::int64_t parts = 1;
  if ((!request.position || s.form == position) && lanes < wanted && total > 2 * least)
    parts = std::clamp<std::int64_t>(std::min(total / least, wanted / lanes), 1, most_parts);
  const std::int64_t part = (total + parts - 1) / parts;
  parts = (total + part - 1) / part;
  const DType stored = parts > 1 && !request.position ? request.accumulator : request.result;
  Array target = parts > 1 ? Array::empty({results, parts}, stored, device) : made();
  s.outputs = {stored};
  s.output_nodes = {static_cast<std::int16_t>(node)};

  static auto& family = *new KernelFamily<ReductionSpec>(trace_reduction);
  // The lookup uses the structure without copying it. It is copied only for a new kernel.
  const auto kernel_of_form = [&]() -> const Kernel& {
    const Kernel* known = family.find(ReductionSpec{std::shared_ptr<const Structure>(std::shared_ptr<void>(), &s)});
    return known != nullptr ? *known : family(ReductionSpec{std::make_shared<const Structure>(s)});
  };
  const auto arguments_of = [&](const Array& to, std::int64_t elements, std::int64_t each, std::int64_t count) {
    auto args = fused.arguments(dims);
    args.insert(args.begin() + static_cast<std::ptrdiff_t>(fused.inputs().size()), LaunchArgument(to.view()));
    for (std::int64_t v : {elements, each, count}) args.push_back(LaunchArgument::index(v));
    return args;
  };
  const Kernel& kernel = kernel_of_form();
  auto args = arguments_of(target, total, part, parts);
  std::array<std::uint64_t, 3> grid = {static_cast<std::uint64_t>(results), static_cast<std::uint64_t>(parts), 1};
  if (columns) {
    const std::int64_t across = s.form == rows_per_block ? (inner + row_threads - 1) / row_threads : inner;
    grid = {static_cast<std::uint64_t>(across), static_cast<std::uint64_t>(results / inner),
            static_cast<std::uint64_t>(parts)};
  }
  detail::count_fused_launch();
  kernel.launch(grid, std::span(args));
  if (request.position && parts > 1) {
    s.form = position_of_parts;
    const Array candidates = std::exchange(target, made());
    auto last = arguments_of(target, parts, parts, 1);
    last.push_back(LaunchArgument(candidates.view()));
    detail::count_fused_launch();
    kernel_of_form().launch({grid[0], 1, 1}, std::span(last));
    walk.release();
    return shaped(std::move(target));
  }
  walk.release();
  // In larger arrays, the launch overhead does not matter.
  if (parts == 1) target = shaped(std::move(target));
  if (repeated && !deferred && results * total <= (1 << 17))
    repeated->keep(target, {.kernel = kernel, .shape = grid, .arguments = args, .note = parts == 1 ? whole : in_parts});
  if (parts == 1) return target;
  return reduce_parts(request, std::move(target), std::move(result_shape));
}

DType sum_dtype(DType t) {
  if (is_float(t)) return t;
  return is_unsigned_int(t) ? DType::u64 : DType::i64;
}
DType accumulator_of(DType t) { return t == DType::f16 || t == DType::bf16 ? DType::f32 : t; }

void check_numeric(const char* name, const Array& a) {
  if (a.dtype() == DType::boolean)
    fail<DtypeError>({.operation = name,
                      .with = {{"dtype", "bool"}},
                      .wrong = "this reduction takes numbers",
                      .remedy = "Use any, all, or astype"});
}

/// Reshapes the result of reducing an operand of `shape`, or its adjoint, so that the reduced axes have extent 1.
Array with_reduced_axes(const Array& result, Shape shape, const std::vector<int>& axes) {
  if (axes.empty()) std::fill(shape.begin(), shape.end(), 1);
  for (const int axis : axes) shape[static_cast<std::size_t>(normalise_axis("reduction", axis, shape.size()))] = 1;
  return result.reshape(shape);
}

/// The backward rule of a sum in which each element is multiplied by `factor`.
auto sum_rule(const std::vector<int>& axes, double factor = 1) {
  return [=] {
    return Rule{[=](Backward& b) {
      b.add(0, [&] {
        const Array g = with_reduced_axes(b.adjoint(), b.shape(0), axes);
        return (factor == 1 ? g : g * factor).broadcast_to(b.shape(0));
      });
    }};
  };
}

/// The backward rule of a maximum or minimum. All elements that equal the result share its adjoint.
auto extreme_rule(const std::vector<int>& axes) {
  return [axes] {
    return Rule{.backward =
                    [axes](Backward& b) {
                      b.add(0, [&] {
                        const Array x = b.operand(0), taken = x == with_reduced_axes(b.result(), b.shape(0), axes);
                        const DType t = x.dtype() == DType::f64 ? DType::f64 : DType::f32;
                        const Array count = sum(taken.astype(t), axes, true);
                        return where(taken, with_reduced_axes(b.adjoint(), b.shape(0), axes).astype(t) / count, 0);
                      });
                    },
                .keeps = operand_bits(0),
                .keeps_result = true};
  };
}

}  // namespace

Array sum(Array a, std::vector<int> axes, bool keep) {
  RuledOperation operation("sum", a);
  const auto attributes = [&] { return detail::reduction_attributes(axes, keep); };
  const DType t = sum_dtype(a.dtype());
  return operation.finish(reduce({"sum", ir::ReduceOp::sum, accumulator_of(t), t}, std::move(a), axes, keep),
                          attributes, sum_rule(axes));
}
Array detail::mean_of_sum(Array total, std::int64_t count, DType dtype) {
  if (is_float(total.dtype())) return (std::move(total) / static_cast<double>(count)).astype(dtype);
  // The integer part of the mean is computed separately, because the float dtype may not be able to represent the sum.
  Array rest = total % count;
  return (std::move(total) / count).astype(dtype) + std::move(rest).astype(dtype) / static_cast<double>(count);
}
Array mean(Array a, std::vector<int> axes, bool keep) {
  RuledOperation operation("mean", a);
  const auto attributes = [&] { return detail::reduction_attributes(axes, keep); };
  const bool integers = !is_float(a.dtype());
  const DType t = !integers ? a.dtype() : device_info(a.device()).can.f64 ? DType::f64 : DType::f32;
  // Integers of up to 32 bits are summed exactly in 64 bits. 64-bit integers are converted first, because their sum
  // could overflow.
  if (integers && dtype_size(a.dtype()) == 8) a = a.astype(t);
  const DType sums = is_float(a.dtype()) ? accumulator_of(t) : sum_dtype(a.dtype());
  const std::int64_t before = a.size();
  Array total = reduce({"mean", ir::ReduceOp::sum, sums, sums}, std::move(a), axes, keep);
  if (total.size() == 0) return operation.finish(total.astype(t), attributes, sum_rule(axes));
  const std::int64_t count = before / total.size();
  // The sum rule is only used for floats: integers have no history.
  return operation.finish(detail::mean_of_sum(std::move(total), count, t), attributes,
                          sum_rule(axes, 1 / static_cast<double>(count)));
}
Array max(Array a, std::vector<int> axes, bool keep) {
  RuledOperation operation("max", a);
  const auto attributes = [&] { return detail::reduction_attributes(axes, keep); };
  check_numeric("max", a);
  const DType t = a.dtype();
  return operation.finish(reduce({"max", ir::ReduceOp::max, accumulator_of(t), t}, std::move(a), axes, keep),
                          attributes, extreme_rule(axes));
}
Array min(Array a, std::vector<int> axes, bool keep) {
  RuledOperation operation("min", a);
  const auto attributes = [&] { return detail::reduction_attributes(axes, keep); };
  check_numeric("min", a);
  const DType t = a.dtype();
  return operation.finish(reduce({"min", ir::ReduceOp::min, accumulator_of(t), t}, std::move(a), axes, keep),
                          attributes, extreme_rule(axes));
}
Array any(Array a, std::vector<int> axes, bool keep) {
  const Operation operation("any", a);
  const auto attributes = [&] { return detail::reduction_attributes(axes, keep); };
  if (a.dtype() != DType::boolean) a = a.astype(DType::boolean);
  return operation.finish(reduce({"any", ir::ReduceOp::or_, DType::boolean, DType::boolean}, std::move(a), axes, keep),
                          attributes);
}
Array all(Array a, std::vector<int> axes, bool keep) {
  const Operation operation("all", a);
  const auto attributes = [&] { return detail::reduction_attributes(axes, keep); };
  if (a.dtype() != DType::boolean) a = a.astype(DType::boolean);
  return operation.finish(reduce({"all", ir::ReduceOp::and_, DType::boolean, DType::boolean}, std::move(a), axes, keep),
                          attributes);
}
Array argmax(Array a, int axis, bool keep) {
  if (a.rank() == 0) return argmax(a.reshape({1}), axis);
  const Operation operation("argmax", a);
  check_numeric("argmax", a);
  const auto d = normalise_axis("argmax", axis, a.shape().size());
  const DType t = accumulator_of(a.dtype());
  return operation.finish(reduce({"argmax", ir::ReduceOp::max, t, DType::i64, true}, std::move(a), std::array{d}, keep),
                          [&] {
                            return Attributes{{"axis", static_cast<std::int64_t>(d)}, {"keep", keep}};
                          });
}

}  // namespace tessera
