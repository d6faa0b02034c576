// SPDX-License-Identifier: Apache-2.0
// Reductions over any axes, with a pending expression computed on the way, and the position of the largest element.
#include <algorithm>
#include <limits>

#include "tessera/array/elementwise.h"
#include "tessera/array/extremes.h"
#include "tessera/array/operation.h"
#include "tessera/ir/semantics.h"

namespace tessera {

using detail::Fused;
using detail::FusedTrace;
using detail::Operation;
using detail::Structure;

namespace {

enum Form : std::uint8_t {
  thread_each,  ///< a thread computes one result (or one part of it): neighbours read neighbouring elements
  block_each,   ///< a block does: for reductions along contiguous memory
  position      ///< a block finds where the largest element is
};

struct Spec {
  std::shared_ptr<const Structure> structure;
  friend bool operator==(const Spec& a, const Spec& b) { return *a.structure == *b.structure; }
  std::size_t hash() const { return structure->hash(); }
};

constexpr std::uint32_t block_threads = 256;

double identity(ir::ReduceOp op, DType t) {
  switch (op) {
    case ir::ReduceOp::min: return std::numeric_limits<double>::infinity();
    case ir::ReduceOp::max: return -std::numeric_limits<double>::infinity();
    case ir::ReduceOp::and_: return 1;
    default: return 0;
  }
  (void)t;
}
// The value that changes nothing, as a constant of the dtype: to_bits saturates infinities to integer limits.
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

// In what values are accumulated. The extremes of floats are those of integers that order alike (extremes.h), so that
// the order in which they are compared does not matter.
struct Accumulation {
  ir::ReduceOp op;
  DType dtype;
  bool position = false;
  bool keyed() const { return is_float(dtype) && (op == ir::ReduceOp::max || op == ir::ReduceOp::min); }
  DType worked() const { return !keyed() ? dtype : dtype == DType::f64 ? DType::i64 : DType::i32; }
  ir::Value begin() const { return identity_value(op, worked()); }
  ir::Value take(ir::Value v) const {
    v = ir::cast(dtype, v);
    if (!keyed()) return v;
    return detail::order_key(position ? detail::without_sign_of_zero(v) : v, op == ir::ReduceOp::max);
  }
  ir::Value give(ir::Value v) const { return keyed() ? detail::from_order_key(v) : v; }
};

// Coordinates of a linear position within dimensions [first, last), innermost last.
void unravel(const FusedTrace& trace, ir::Value linear, std::size_t first, std::size_t last,
             std::vector<ir::Value>& coordinates) {
  for (std::size_t d = last; d-- > first;) {
    coordinates[d] = d == first ? linear : linear % trace.extent(d);
    if (d != first) linear = linear / trace.extent(d);
  }
}

ir::Function trace_reduction(const Spec& spec) {
  const Structure& s = *spec.structure;
  const auto op = static_cast<ir::ReduceOp>(s.reduction);
  const std::size_t kept = s.rank - s.reduced;
  const std::string name = s.form == position ? "argmax" : "reduce_" + std::string(ir::name_of(op));
  const std::string inner = detail::operation_names(s);
  ir::Builder builder(inner == "copy" ? name : name + "_" + inner,
                      s.form == thread_each ? ir::KernelKind::map : ir::KernelKind::block,
                      {s.form == thread_each ? 1 : block_threads, 1, 1});
  ir::Builder::Scope scope(builder);
  builder.set_exact();
  const FusedTrace trace(s);
  // The range of the reduction is cut in parts of `part` elements; results are (kept..., parts).
  const ir::Value total = ir::scalar_param("total", DType::index), part = ir::scalar_param("part", DType::index);
  const ir::Value parts = ir::scalar_param("parts", DType::index);
  std::vector<ir::Value> at(s.rank);
  ir::Value result_index, begin;
  if (s.form == thread_each) {
    at[kept - 1] = ir::global_id(0);
    if (kept > 1) unravel(trace, ir::global_id(1), 0, kept - 1, at);
    const ir::Value linear = kept > 1 ? ir::global_id(1) * trace.extent(kept - 1) + ir::global_id(0) : ir::global_id(0);
    result_index = linear * parts + ir::global_id(2);
    begin = ir::global_id(2) * part;
  } else {
    unravel(trace, ir::block_id(0), 0, kept, at);
    result_index = ir::block_id(0) * parts + ir::block_id(1);
    begin = ir::block_id(1) * part;
  }
  const ir::Value end = ir::min(begin + part, total);
  const int root = s.output_nodes[0];
  const Accumulation in{op, s.accumulator, s.form == position};
  auto element = [&](ir::Value r) {
    unravel(trace, r, kept, s.rank, at);
    return trace.evaluate(at)[static_cast<std::size_t>(root)];
  };

  if (s.form == position) {
    const ir::Value none = ir::index_literal(std::numeric_limits<std::int32_t>::max());
    const ir::Variable best(in.worked(), in.begin()), where(DType::index, none);
    ir::for_(begin + ir::thread_id(), end, block_threads, [&](ir::Value r) {
      const ir::Value v = in.take(element(r)), b = best.get(), w = where.get();
      const ir::Value better = (v > b) || (v == b && w == none);
      best.set(ir::select(better, v, b));
      where.set(ir::select(better, r, w));
    });
    const ir::Value top = ir::block_max(best.get());
    const ir::Value first = ir::block_min(ir::select(best.get() == top, where.get(), none));
    ir::if_(ir::thread_id() == 0, [&] { trace.output(0).store(result_index, ir::cast(DType::i64, first)); });
    return builder.finish();
  }

  const ir::Variable sum(in.worked(), in.begin());
  const ir::Value first = s.form == thread_each ? begin : begin + ir::thread_id();
  ir::for_(first, end, s.form == thread_each ? 1 : static_cast<int>(block_threads),
           [&](ir::Value r) { sum.set(combine(op, sum.get(), in.take(element(r)))); });
  const auto store = [&](ir::Value whole) {
    trace.output(0).store(result_index, ir::cast(s.outputs[0], in.give(whole)));
  };
  if (s.form == thread_each) {
    store(sum.get());
  } else {
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

Array reduce(const Request& request, Array a, std::vector<int> axes, bool keep) {
  std::vector<bool> reduced(a.shape().size(), axes.empty());
  for (int axis : axes) {
    const auto d = static_cast<std::size_t>(normalise_axis(request.name, axis, a.shape().size()));
    if (reduced[d])
      fail<ShapeError>({.asked = request.name,
                        .with = {{"shape", to_string(a.shape())}, {"axis", std::to_string(axis)}},
                        .wrong = "an axis is named twice"});
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
    fail<ShapeError>({.asked = request.name,
                      .with = {{"shape", to_string(a.shape())}},
                      .wrong = "there is nothing to take it of",
                      .todo = "The reduced axes must have elements"});
  if (request.position && total > std::numeric_limits<std::int32_t>::max())
    fail<ShapeError>({.asked = request.name,
                      .with = {{"elements", std::to_string(total)}},
                      .wrong = "the axis is longer than 2^31 - 1"});
  const Device device = a.device();
  const std::int64_t results = element_count(kept_shape);
  if (total == 0) return Array::full(result_shape, identity(request.op, request.result), request.result, device);
  const auto made = [&] { return Array::empty(kept_shape, request.result, device); };
  const auto shaped = [&](Array out) { return keep ? out.reshape(result_shape) : out; };
  if (results == 0) return shaped(made());

  // The expression is computed inside of the reduction, unless somebody else needs its elements too.
  const Shape shape = a.shape();
  const DType dtype = a.dtype();
  detail::Term term = detail::term_of(a, shape);
  const bool deferred = term.kind == detail::Term::expression;  // its elements lie in order then, also once computed
  detail::Computation walk(device);
  int node = walk.collect(term, {&a, 1});
  if (walk.shared()) {
    walk.release();
    auto storage = a.source()->storage("it is reduced, and needed elsewhere");
    term = {.kind = detail::Term::memory, .dtype = dtype, .view = {storage, dtype, contiguous_strides(shape), 0}};
    node = walk.collect(term, {});
  }
  a = Array();  // writers of what it reads are told by the computation from here on
  Fused& fused = walk.fused();
  detail::trace_flush(fused, request.name);

  // The output is addressed by result number, so it takes no part in the merging of dimensions.
  const Fused::Dimensions dims = fused.merge(shape, reduced);
  Structure& s = fused.structure();
  const std::size_t kept = dims.extents.size() - dims.reduced;
  // Form and parts are those that the computed array would have, whose elements lie in order: a sum's rounding must not
  // depend on when its argument is computed.
  bool along_memory;
  if (deferred) {
    std::size_t innermost = shape.size();
    while (innermost > 0 && shape[innermost - 1] == 1) --innermost;
    along_memory = innermost > 0 && reduced[innermost - 1];
  } else {
    along_memory = s.strides[s.rank - 1u] == Structure::one;
  }
  s.form = request.position ? position : along_memory && total >= 32 ? block_each : thread_each;
  s.reduction = static_cast<std::uint8_t>(request.op);
  s.accumulator = request.accumulator;

  // Few results of many elements each: parts in parallel first, then the parts.
  const std::int64_t lanes = s.form == thread_each ? results : results * block_threads;
  std::int64_t parts = 1;
  if (s.form != position && lanes < 16384 && total > 4096)
    parts = std::clamp<std::int64_t>(std::min(total / 2048, 16384 / lanes), 1, 256);
  const std::int64_t part = (total + parts - 1) / parts;
  parts = (total + part - 1) / part;
  const DType stored = parts > 1 ? request.accumulator : request.result;
  Array target = parts > 1 ? Array::empty({results, parts}, stored, device) : made();
  s.outputs = {stored};
  s.output_nodes = {static_cast<std::int16_t>(node)};

  static auto& family = *new KernelFamily<Spec>(trace_reduction);
  // Looked up without a copy: that is made for the one that is kept.
  const Kernel* known = family.find(Spec{std::shared_ptr<const Structure>(std::shared_ptr<void>(), &s)});
  const Kernel& kernel = known != nullptr ? *known : family(Spec{std::make_shared<const Structure>(s)});
  auto args = fused.arguments(dims);
  args.insert(args.begin() + static_cast<std::ptrdiff_t>(fused.inputs().size()), LaunchArgument(target.view()));
  for (std::int64_t v : {total, part, parts}) args.push_back(LaunchArgument::index(v));
  std::array<std::uint64_t, 3> grid = {static_cast<std::uint64_t>(results), static_cast<std::uint64_t>(parts), 1};
  if (s.form == thread_each) {
    const std::int64_t inner = dims.extents[kept - 1];
    grid = {static_cast<std::uint64_t>(inner), static_cast<std::uint64_t>(results / inner),
            static_cast<std::uint64_t>(parts)};
  }
  detail::count_fused_launch();
  kernel.launch(grid, std::span(args));
  walk.release();
  if (parts > 1) {
    Request rest = request;
    return reduce(rest, std::move(target), {1}, false).astype(request.result).reshape(result_shape);
  }
  return shaped(std::move(target));
}

DType sum_dtype(DType t) {
  if (is_float(t)) return t;
  return is_unsigned_int(t) ? DType::u64 : DType::i64;
}
DType accumulator_of(DType t) { return t == DType::f16 || t == DType::bf16 ? DType::f32 : t; }

void need_numbers(const char* name, const Array& a) {
  if (a.dtype() == DType::boolean)
    fail<DtypeError>({.asked = name,
                      .with = {{"dtype", "bool"}},
                      .wrong = "this reduction takes numbers",
                      .todo = "Use any, all, or astype"});
}

/// What an observer is told besides the array, which is made if there is one.
auto told(const std::vector<int>& axes, bool keep) {
  return [&axes, keep] {
    return Attributes{{"axes", std::vector<std::int64_t>(axes.begin(), axes.end())}, {"keep", keep}};
  };
}

}  // namespace

Array sum(Array a, std::vector<int> axes, bool keep) {
  const Operation operation("sum", a);
  const auto attributes = told(axes, keep);
  const DType t = sum_dtype(a.dtype());
  return operation.made(reduce({"sum", ir::ReduceOp::sum, accumulator_of(t), t}, std::move(a), axes, keep), attributes);
}
Array mean(Array a, std::vector<int> axes, bool keep) {
  const Operation operation("mean", a);
  const auto attributes = told(axes, keep);
  const bool integers = !is_float(a.dtype());
  const DType t = !integers ? a.dtype() : device_info(a.device()).can.f64 ? DType::f64 : DType::f32;
  // Up to 32 bits the sum is exact in 64; of more it could wrap.
  if (integers && dtype_size(a.dtype()) == 8) a = a.astype(t);
  const DType sums = is_float(a.dtype()) ? accumulator_of(t) : sum_dtype(a.dtype());
  const std::int64_t before = a.size();
  Array total = reduce({"mean", ir::ReduceOp::sum, sums, sums}, std::move(a), axes, keep);
  if (total.size() == 0) return operation.made(total.astype(t), attributes);
  const std::int64_t count = before / total.size();
  if (is_float(sums)) return operation.made((std::move(total) / static_cast<double>(count)).astype(t), attributes);
  Array rest = total % count;  // whole parts first: the sum itself may be no value of the float
  total = (std::move(total) / count).astype(t) + std::move(rest).astype(t) / static_cast<double>(count);
  return operation.made(std::move(total), attributes);
}
Array max(Array a, std::vector<int> axes, bool keep) {
  const Operation operation("max", a);
  const auto attributes = told(axes, keep);
  need_numbers("max", a);
  const DType t = a.dtype();
  return operation.made(reduce({"max", ir::ReduceOp::max, accumulator_of(t), t}, std::move(a), axes, keep), attributes);
}
Array min(Array a, std::vector<int> axes, bool keep) {
  const Operation operation("min", a);
  const auto attributes = told(axes, keep);
  need_numbers("min", a);
  const DType t = a.dtype();
  return operation.made(reduce({"min", ir::ReduceOp::min, accumulator_of(t), t}, std::move(a), axes, keep), attributes);
}
Array any(Array a, std::vector<int> axes, bool keep) {
  const Operation operation("any", a);
  const auto attributes = told(axes, keep);
  if (a.dtype() != DType::boolean) a = a.astype(DType::boolean);
  return operation.made(reduce({"any", ir::ReduceOp::or_, DType::boolean, DType::boolean}, std::move(a), axes, keep),
                        attributes);
}
Array all(Array a, std::vector<int> axes, bool keep) {
  const Operation operation("all", a);
  const auto attributes = told(axes, keep);
  if (a.dtype() != DType::boolean) a = a.astype(DType::boolean);
  return operation.made(reduce({"all", ir::ReduceOp::and_, DType::boolean, DType::boolean}, std::move(a), axes, keep),
                        attributes);
}
Array argmax(Array a, int axis, bool keep) {
  const Operation operation("argmax", a);
  need_numbers("argmax", a);
  const auto d = normalise_axis("argmax", axis, a.shape().size());
  const DType t = accumulator_of(a.dtype());
  return operation.made(reduce({"argmax", ir::ReduceOp::max, t, DType::i64, true}, std::move(a), {d}, keep), [&] {
    return Attributes{{"axis", static_cast<std::int64_t>(d)}, {"keep", keep}};
  });
}

}  // namespace tessera
