// SPDX-License-Identifier: Apache-2.0
// Reads and writes elements selected by arrays of indices.
#include <algorithm>
#include <bit>

#include "tessera/array/axis_layout.h"
#include "tessera/array/cached_operation.h"
#include "tessera/array/elementwise.h"
#include "tessera/array/functions.h"
#include "tessera/array/radix_sort.h"
#include "tessera/array/scatter.h"
#include "tessera/device/launch/kernel.h"
#include "tessera/device/launch/kernel_family.h"
#include "tessera/device/placement/kernel_backend.h"

namespace tessera {

using detail::AxisLayout;
using detail::CachedOperation;
using detail::RuledOperation;
using ir::Value;

namespace {

// The position of a thread's element in (outer, count, inner). Dimensions with extent 1 are not dimensions of the
// launch.
struct Place {
  Value column, i, outer;
};
Place place(bool single) {
  if (single) return {ir::index_literal(0), ir::global_id(0), ir::global_id(1)};
  return {ir::global_id(0), ir::global_id(1), ir::global_id(2)};
}
std::array<std::uint64_t, 3> threads(bool single, std::int64_t outer, std::int64_t count, std::int64_t inner) {
  const auto o = static_cast<std::uint64_t>(outer), n = static_cast<std::uint64_t>(count);
  if (single) return {n, o, 1};
  return {static_cast<std::uint64_t>(inner), n, o};
}

// An index read from memory, and whether it is in [0, extent). The comparison uses 64 bits, so that a large index does
// not wrap into the valid range.
struct Row {
  Value row, inside;
};
Row row_of(Value index, Value extent) {
  const DType wide = index.dtype() == DType::u64 ? DType::u64 : DType::i64;
  const Value full = ir::cast(wide, index);
  Value inside = full < ir::cast(wide, extent);
  if (wide == DType::i64) inside = inside && full >= 0;
  return {ir::cast(DType::index, full), inside};
}

struct TakeSpec {
  DType table, indices;
  bool along;   // one index per element, not per row
  bool single;  // each row has a single element
  friend bool operator==(const TakeSpec&, const TakeSpec&) = default;
  std::size_t hash() const {
    return static_cast<std::size_t>(table) * 31 + static_cast<std::size_t>(indices) * 4 + along * 2u + single;
  }
};

ir::Function trace_take(const TakeSpec& spec) {
  ir::Builder builder(spec.along ? "take_along_axis" : "take_rows", ir::KernelKind::map);
  ir::Builder::Scope scope(builder);
  const auto table = ir::buffer_param("table", spec.table, ir::Access::read);
  const auto indices = ir::buffer_param("indices", spec.indices, ir::Access::read);
  const auto out = ir::buffer_param("out", spec.table, ir::Access::read_write);
  const Value extent = ir::scalar_param("extent", DType::index), count = ir::scalar_param("count", DType::index);
  const Value width = ir::scalar_param("width", DType::index);
  const Place at = place(spec.single);
  const Value position = (at.outer * count + at.i) * width + at.column;
  const Row from = row_of(indices.load(spec.along ? position : at.i), extent);
  out.store(position,
            table.load_if(from.inside, (at.outer * extent + from.row) * width + at.column, ir::literal(spec.table, 0)));
  return builder.finish();
}

Array take_rows(const Array& table, const Array& indices, const AxisLayout& axis, std::int64_t count, bool along,
                Shape shape) {
  Array out = Array::empty(std::move(shape), table.dtype(), table.device());
  if (out.size() == 0) return out;
  const Array rows = table.as_contiguous(), which = indices.as_contiguous();
  const bool single = axis.inner == 1;
  static auto& family = *new KernelFamily<TakeSpec>(trace_take);
  family({table.dtype(), indices.dtype(), along, single})
      .launch(threads(single, axis.outer, count, axis.inner),
              {rows.view(), which.view(), out.view(), LaunchArgument::index(axis.extent), LaunchArgument::index(count),
               LaunchArgument::index(axis.inner)});
  return out;
}

struct ReversedSpec {
  DType dtype;
  bool single;
  friend bool operator==(const ReversedSpec&, const ReversedSpec&) = default;
  std::size_t hash() const { return static_cast<std::size_t>(dtype) * 2 + single; }
};

ir::Function trace_reversed(const ReversedSpec& spec) {
  ir::Builder builder("reversed_rows", ir::KernelKind::map);
  ir::Builder::Scope scope(builder);
  const auto in = ir::buffer_param("in", spec.dtype, ir::Access::read);
  const auto out = ir::buffer_param("out", spec.dtype, ir::Access::read_write);
  const Value extent = ir::scalar_param("extent", DType::index), width = ir::scalar_param("width", DType::index);
  const Place at = place(spec.single);
  const auto position = [&](Value i) {
    const Value row = at.outer * extent + i;
    return spec.single ? row : row * width + at.column;
  };
  out.store(position(at.i), in.load(position(extent - 1 - at.i)));
  return builder.finish();
}

std::size_t checked_axis(const char* name, const Array& a, const Array& indices, int axis) {
  if (a.rank() < 1)
    fail<ShapeError>({.operation = name,
                      .with = {{"shape", to_string(a.shape())}},
                      .wrong = "the array has no axis to select from"});
  detail::check_index_dtype(name, indices);
  const Array* both[] = {&a, &indices};
  detail::common_device(name, both);
  return static_cast<std::size_t>(normalise_axis(name, axis, a.shape().size()));
}

Shape taken_shape(const Array& a, const Array& indices, std::size_t axis) {
  Shape shape;
  for (std::size_t d = 0; d < axis; ++d) shape.push_back(a.shape()[d]);
  for (std::int64_t n : indices.shape()) shape.push_back(n);
  for (std::size_t d = axis + 1; d < a.shape().size(); ++d) shape.push_back(a.shape()[d]);
  return shape;
}

/// Converts indices along `axis` to row-major positions in an array of this shape. The position is -1 if an index is
/// out of range.
Array positions(const Array& indices, const Shape& shape, const Shape& taken, std::size_t axis) {
  const Device device = indices.device();
  const Strides strides = contiguous_strides(shape);
  const Array along = indices.astype(DType::i64);
  Array at = along * strides[axis];
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (d == axis) continue;
    Shape extents(shape.size(), 1);
    extents[d] = shape[d];
    at = at + Array::arange(shape[d], 0, static_cast<double>(strides[d]), DType::i64, device).reshape(extents);
  }
  return where(along < 0, -1, where(along < shape[axis], at, -1)).broadcast_to(taken);
}

}  // namespace

Array detail::reversed(const Array& a, const AxisLayout& axis) {
  // The operand is contiguous, so these two extents identify the axis. They are part of the cache key.
  std::optional<CachedOperation> repeated;
  if (axis.outer < 1 << 20 && axis.extent < 1 << 20)
    repeated.emplace(CachedOperation::reversal | static_cast<std::uint64_t>(axis.outer) << 8 |
                         static_cast<std::uint64_t>(axis.extent) << 28,
                     a);
  if (repeated && *repeated) return (*repeated)();
  Array out = Array::empty(a.shape(), a.dtype(), a.device());
  if (out.size() == 0) return out;
  const bool single = axis.inner == 1;
  static auto& family = *new KernelFamily<ReversedSpec>(trace_reversed);
  const Kernel& kernel = family({a.dtype(), single});
  const auto grid = threads(single, axis.outer, axis.extent, axis.inner);
  const std::array<LaunchArgument, 4> arguments = {a.view(), out.view(), LaunchArgument::index(axis.extent),
                                                   LaunchArgument::index(axis.inner)};
  kernel.launch(grid, arguments);
  if (repeated && out.size() <= 1 << 16) repeated->keep(out, {.kernel = kernel, .shape = grid, .arguments = arguments});
  return out;
}

Array take(const Array& table, const Array& indices, int axis) {
  if (table.rank() == 0) return take(table.reshape({1}), indices, axis);
  RuledOperation operation("take", table, indices);
  const std::size_t d = checked_axis("take", table, indices, axis);
  const auto rule = [&] {
    return Rule{.backward =
                    [axis = static_cast<int>(d)](Backward& b) {
                      b.add(0, [&] {
                        return scatter_add(Array::zeros(b.shape(0), b.adjoint_dtype(0), b.device(0)), b.operand(1),
                                           b.adjoint(), axis);
                      });
                    },
                .keeps = operand_bits(1)};
  };
  return operation.finish(
      take_rows(table, indices, AxisLayout(table.shape(), d), indices.size(), false, taken_shape(table, indices, d)),
      [&] {
        return Attributes{{"axis", static_cast<std::int64_t>(d)}};
      },
      rule);
}

Array take_along_axis(const Array& a, const Array& indices, int axis) {
  RuledOperation operation("take_along_axis", a, indices);
  const std::size_t d = checked_axis("take_along_axis", a, indices, axis);
  bool fits = indices.shape().size() == a.shape().size();
  for (std::size_t i = 0; fits && i < a.shape().size(); ++i)
    fits = i == d || indices.shape()[i] == a.shape()[i] || indices.shape()[i] == 1;
  if (!fits)
    fail<ShapeError>(
        {.operation = "take_along_axis",
         .with = {{"a", to_string(a.shape())}, {"indices", to_string(indices.shape())}, {"axis", std::to_string(axis)}},
         .wrong = "the indices must have as many dimensions as the array, and each extent except that of the selected "
                  "axis must be 1 or the array's extent"});
  Shape shape = a.shape();
  const std::int64_t count = shape[d] = indices.shape()[d];
  const auto rule = [&] {
    return Rule{.backward =
                    [d](Backward& b) {
                      b.add(0, [&] {
                        const Array to = positions(b.operand(1), b.shape(0), b.adjoint().shape(), d);
                        const Array flat = Array::zeros({element_count(b.shape(0))}, b.adjoint_dtype(0), b.device(0));
                        return scatter_add(flat, to, b.adjoint()).reshape(b.shape(0));
                      });
                    },
                .keeps = operand_bits(1)};
  };
  return operation.finish(
      take_rows(a, indices.broadcast_to(shape), AxisLayout(a.shape(), d), count, true, shape),
      [&] {
        return Attributes{{"axis", static_cast<std::int64_t>(d)}};
      },
      rule);
}

namespace {

// The checked operands of a scatter. All arrays are contiguous.
struct Scattered {
  std::size_t d;
  AxisLayout axis;
  std::int64_t count;
  Array a, indices, updates;
};

Scattered checked_scatter(const char* name, const Array& a, const Array& indices, const Array& updates, int axis) {
  const std::size_t d = checked_axis(name, a, indices, axis);
  const Array* both[] = {&a, &updates};
  detail::common_device(name, both);
  const Shape shape = taken_shape(a, indices, d);
  bool fits = updates.shape().size() <= shape.size();
  for (std::size_t i = 1; fits && i <= updates.shape().size(); ++i) {
    const std::int64_t n = updates.shape()[updates.shape().size() - i];
    fits = n == 1 || n == shape[shape.size() - i];
  }
  if (!fits)
    fail<ShapeError>(
        {.operation = name,
         .with = {{"a", to_string(a.shape())},
                  {"indices", to_string(indices.shape())},
                  {"updates", to_string(updates.shape())},
                  {"axis", std::to_string(axis)}},
         .wrong = "the updates cannot be broadcast to the shape of take(a, indices, axis), " + to_string(shape)});
  constexpr std::int64_t most = std::int64_t{1} << 30;
  if (a.shape()[d] > most || indices.size() > most)
    fail<ShapeError>({.operation = name,
                      .with = {{"a", to_string(a.shape())}, {"indices", to_string(indices.shape())}},
                      .wrong = "the axis or the indices have more than 2^30 elements"});
  return {d,
          AxisLayout(a.shape(), d),
          indices.size(),
          a.as_contiguous(),
          indices.as_contiguous(),
          updates.astype(a.dtype()).broadcast_to(shape).as_contiguous()};
}

// Computes for each row one more than the position of the last index that refers to it, or 0 if there is none. An
// atomic integer maximum makes the result deterministic.
ir::Function trace_last_index(const DType& dtype) {
  ir::Builder builder("last_index", ir::KernelKind::map);
  ir::Builder::Scope scope(builder);
  const auto indices = ir::buffer_param("indices", dtype, ir::Access::read);
  const auto last = ir::buffer_param("last", DType::i32, ir::Access::read_write);
  const Value extent = ir::scalar_param("extent", DType::index), i = ir::global_id();
  const Row to = row_of(indices.load(i), extent);
  ir::if_(to.inside, [&] { last.atomic(ir::AtomicOp::max, to.row, ir::cast(DType::i32, i) + 1); });
  return builder.finish();
}

struct RowsSpec {
  DType dtype;
  bool single;
  friend bool operator==(const RowsSpec&, const RowsSpec&) = default;
  std::size_t hash() const { return static_cast<std::size_t>(dtype) * 2 + single; }
};

ir::Function trace_scatter(const RowsSpec& spec) {
  ir::Builder builder("scatter_rows", ir::KernelKind::map);
  ir::Builder::Scope scope(builder);
  const auto a = ir::buffer_param("a", spec.dtype, ir::Access::read);
  const auto updates = ir::buffer_param("updates", spec.dtype, ir::Access::read);
  const auto last = ir::buffer_param("last", DType::i32, ir::Access::read);
  const auto out = ir::buffer_param("out", spec.dtype, ir::Access::read_write);
  const Value extent = ir::scalar_param("extent", DType::index), count = ir::scalar_param("count", DType::index);
  const Value width = ir::scalar_param("width", DType::index);
  const Place at = place(spec.single);
  const Value position = (at.outer * extent + at.i) * width + at.column;
  const Value from = ir::cast(DType::index, last.load(at.i));
  ir::if_(
      from > 0, [&] { out.store(position, updates.load((at.outer * count + from - 1) * width + at.column)); },
      [&] { out.store(position, a.load(position)); });
  return builder.finish();
}

/// The same in the memory of `out`, with one thread per update instead of one per element.
ir::Function trace_scatter_into(const TakeSpec& spec) {
  ir::Builder builder("scatter_into_rows", ir::KernelKind::map);
  ir::Builder::Scope scope(builder);
  const auto indices = ir::buffer_param("indices", spec.indices, ir::Access::read);
  const auto updates = ir::buffer_param("updates", spec.table, ir::Access::read);
  const auto last = ir::buffer_param("last", DType::i32, ir::Access::read);
  const auto out = ir::buffer_param("out", spec.table, ir::Access::read_write);
  const Value extent = ir::scalar_param("extent", DType::index), count = ir::scalar_param("count", DType::index);
  const Value width = ir::scalar_param("width", DType::index);
  const Place at = place(spec.single);
  const Row to = row_of(indices.load(at.i), extent);
  const Value final = last.load_if(to.inside, to.row, ir::literal(DType::i32, 0));
  ir::if_(final == ir::cast(DType::i32, at.i) + 1, [&] {
    out.store((at.outer * extent + to.row) * width + at.column,
              updates.load((at.outer * count + at.i) * width + at.column));
  });
  return builder.finish();
}

Array last_indices(const Scattered& s) {
  Array last = Array::zeros({s.axis.extent}, DType::i32, s.a.device());
  static auto& find = *new KernelFamily<DType>(trace_last_index);
  find(s.indices.dtype())
      .launch({static_cast<std::uint64_t>(s.count), 1, 1},
              {s.indices.view(), last.view_for_writing(), LaunchArgument::index(s.axis.extent)});
  return last;
}

void scatter_back(Backward& b, int axis) {
  const Array &g = b.adjoint(), indices = b.operand(1);
  b.add(0, [&] { return scatter(g, indices, Array::zeros({}, g.dtype(), g.device()), axis); });
  b.add(2, [&] {  // If an index occurs several times, only the last update has an effect.
    const Array each = Array::arange(indices.size(), 0, 1, DType::i32, g.device()).reshape(indices.shape());
    const std::int64_t extent = b.shape(0)[static_cast<std::size_t>(axis)];
    const Array last = take(scatter(Array::full({extent}, -1, DType::i32, g.device()), indices, each), indices);
    Shape shape = indices.shape();  // broadcast along the trailing axes
    shape.resize(shape.size() + b.shape(0).size() - static_cast<std::size_t>(axis) - 1, 1);
    return where((last == each).reshape(shape), take(g, indices, axis), 0);
  });
}

}  // namespace

Array scatter(const Array& a, const Array& indices, const Array& updates, int axis) {
  RuledOperation operation("scatter", a, indices, updates);
  const Scattered s = checked_scatter("scatter", a, indices, updates, axis);
  const auto attributes = [&] { return Attributes{{"axis", static_cast<std::int64_t>(s.d)}}; };
  const auto rule = [&] {
    return Rule{.backward = [axis = static_cast<int>(s.d)](Backward& b) { scatter_back(b, axis); },
                .keeps = operand_bits(1)};
  };
  if (s.updates.size() == 0) return operation.finish(a.copy(), attributes, rule);
  const Array last = last_indices(s);
  Array out = Array::empty(a.shape(), a.dtype(), a.device());
  const bool single = s.axis.inner == 1;
  static auto& family = *new KernelFamily<RowsSpec>(trace_scatter);
  family({a.dtype(), single})
      .launch(threads(single, s.axis.outer, s.axis.extent, s.axis.inner),
              {s.a.view(), s.updates.view(), last.view(), out.view(), LaunchArgument::index(s.axis.extent),
               LaunchArgument::index(s.count), LaunchArgument::index(s.axis.inner)});
  return operation.finish(std::move(out), attributes, rule);
}

// Adds updates by index without floating-point atomics. First, a stable sort orders the positions of the updates by
// row. Then one thread per column adds up the updates of a row.
namespace {

/// The rows that indices refer to, as keys for the sort. Out-of-range indices sort last.
ir::Function trace_rows(DType indices) {
  ir::Builder builder("scatter_rows", ir::KernelKind::map);
  ir::Builder::Scope scope(builder);
  const auto in = ir::buffer_param("indices", indices, ir::Access::read);
  const auto out = ir::buffer_param("rows", DType::u32, ir::Access::read_write);
  const Value extent = ir::scalar_param("extent", DType::index), i = ir::global_id();
  const Row to = row_of(in.load(i), extent);
  out.store(i, ir::cast(DType::u32, ir::select(to.inside, to.row, extent)));
  return builder.finish();
}

ir::Function trace_scatter_add(const RowsSpec& spec) {
  ir::Builder builder("scatter_add_rows", ir::KernelKind::map);
  ir::Builder::Scope scope(builder);
  builder.set_exact();
  const auto keys = ir::buffer_param("keys", DType::u32, ir::Access::read);
  const auto order = ir::buffer_param("order", DType::i32, ir::Access::read);
  const auto updates = ir::buffer_param("updates", spec.dtype, ir::Access::read);
  const auto out = ir::buffer_param("out", spec.dtype, ir::Access::read_write);
  const Value extent = ir::scalar_param("extent", DType::index), count = ir::scalar_param("count", DType::index);
  const Value width = ir::scalar_param("width", DType::index);
  const Place at = place(spec.single);
  const Value none = ir::literal(DType::u32, 0xffffffff);
  const Value key = keys.load(at.i), row = ir::cast(DType::index, key);
  const Value before = keys.load_if(at.i > 0, at.i - 1, none);
  const bool small = spec.dtype == DType::f16 || spec.dtype == DType::bf16;
  const DType sums = small ? DType::f32 : spec.dtype;
  ir::if_(before != key && row < extent, [&] {
    const Value position = (at.outer * extent + row) * width + at.column;
    const ir::Variable sum(sums, ir::cast(sums, out.load(position))), k(DType::index, at.i);
    ir::while_([&] { return keys.load_if(k.get() < count, k.get(), none) == key; },
               [&] {
                 const Value from = ir::cast(DType::index, order.load(k.get()));
                 const Value update = updates.load((at.outer * count + from) * width + at.column);
                 sum.set(sum.get() + ir::cast(sums, update));
                 k.set(k.get() + 1);
               });
    out.store(position, ir::cast(spec.dtype, sum.get()));
  });
  return builder.finish();
}

// The version for CPUs, which is faster without sorting. Each block traverses all indices in order and adds the updates
// of the rows and columns assigned to it.
struct InOrderSpec {
  DType dtype, indices;
  std::uint32_t threads;  // threads of a block, which process adjacent columns; 1 if rows have a single element
  bool whole;             // each block covers all rows
  friend bool operator==(const InOrderSpec&, const InOrderSpec&) = default;
  std::size_t hash() const {
    return static_cast<std::size_t>(dtype) << 24 | static_cast<std::size_t>(indices) << 16 | threads << 1 | whole;
  }
};

ir::Function trace_add_in_order(const InOrderSpec& spec) {
  ir::Builder builder("scatter_add_in_order", ir::KernelKind::block, {spec.threads, 1, 1});
  ir::Builder::Scope scope(builder);
  builder.set_exact();
  const auto indices = ir::buffer_param("indices", spec.indices, ir::Access::read);
  const auto updates = ir::buffer_param("updates", spec.dtype, ir::Access::read);
  const auto out = ir::buffer_param("out", spec.dtype, ir::Access::read_write);
  const Value extent = ir::scalar_param("extent", DType::index), count = ir::scalar_param("count", DType::index);
  const Value width = ir::scalar_param("width", DType::index), rows = ir::scalar_param("rows", DType::index);
  const Value columns = ir::scalar_param("columns", DType::index);
  const Value first = ir::block_id(0) * rows, outer = ir::block_id(2), column = ir::block_id(1) * columns;
  const Value last = ir::min(first + rows, extent), end = ir::min(column + columns, width);
  const auto one = [&](const Row& to, auto&& add) {
    ir::if_(spec.whole ? to.inside : to.inside && to.row >= first && to.row < last,
            [&] { add((outer * extent + to.row) * width); });
  };
  const auto row = [&](Value k) { return row_of(indices.load(k), extent); };
  const auto from = [&](Value k) { return (outer * count + k) * width; };
  if (spec.threads > 1) {
    ir::for_(0, count, [&](Value k) {
      one(row(k), [&](Value target) {
        ir::for_(column + ir::thread_id(), end, static_cast<int>(spec.threads),
                 [&](Value c) { out.store(target + c, out.load(target + c) + updates.load(from(k) + c)); });
      });
    });
    return builder.finish();
  }
  // Loads several updates first, then adds them one after the other.
  const auto some = [&](Value k, int several) {
    std::vector<Row> to;
    std::vector<Value> values;
    for (int i = 0; i < several; ++i) to.push_back(row(k + i)), values.push_back(updates.load(from(k + i)));
    for (std::size_t i = 0; i < to.size(); ++i)
      one(to[i], [&](Value target) { out.store(target, out.load(target) + values[i]); });
  };
  constexpr int together = 4;
  const Value rest = count / together * together;
  ir::for_(0, rest, together, [&](Value k) { some(k, together); });
  ir::for_(rest, count, [&](Value k) { some(k, 1); });
  return builder.finish();
}

void add_in_order(const Array& out, const Array& indices, const Array& updates, const AxisLayout& axis) {
  const DeviceInfo& info = device_info(out.device());
  const auto divided = [](std::int64_t n, std::int64_t by) { return (n + by - 1) / by; };
  const bool single = axis.inner == 1;
  const std::uint32_t threads = single ? 1 : info.can.subgroup_widths[0];
  // Each block reads all indices, so columns are distributed first. Rows are distributed only if there are many
  // processors.
  const std::int64_t units = std::max<std::int64_t>(1, info.compute_units), wanted = units > 1 ? 4 * units : 1;
  const std::int64_t chunk = std::max<std::int64_t>(64, divided(divided(axis.inner, wanted), 64) * 64);
  const std::int64_t across = divided(axis.inner, chunk), lanes = across * axis.outer;
  const std::int64_t ranges = units < 4 || lanes >= units ? 1 : std::min(divided(units, lanes), axis.extent);
  static auto& family = *new KernelFamily<InOrderSpec>(trace_add_in_order);
  family({out.dtype(), indices.dtype(), threads, ranges == 1})
      .launch({static_cast<std::uint64_t>(ranges), static_cast<std::uint64_t>(across),
               static_cast<std::uint64_t>(axis.outer)},
              {indices.view(), updates.view(), out.view_for_writing(), LaunchArgument::index(axis.extent),
               LaunchArgument::index(indices.size()), LaunchArgument::index(axis.inner),
               LaunchArgument::index(divided(axis.extent, ranges)), LaunchArgument::index(chunk)});
}

/// Returns the positions of `indices`, sorted by the row that they refer to. The sort is stable.
detail::SortedKeys sort_by_row(const Array& indices, std::int64_t extent) {
  const Array rows = Array::empty({indices.size()}, DType::u32, indices.device());
  static auto& family = *new KernelFamily<DType>(trace_rows);
  family(indices.dtype())
      .launch({static_cast<std::uint64_t>(indices.size()), 1, 1},
              {indices.view(), rows.view(), LaunchArgument::index(extent)});
  return detail::radix_sort_keys(rows, std::bit_width(static_cast<std::uint64_t>(extent)));
}

/// Adds the updates to `out`, whose dtype is that of the sums on a CPU.
void add_rows(const Array& out, const Scattered& s) {
  if (blocks_are_vectors(kernel_backend(out.device())))
    return add_in_order(out, s.indices, s.updates.astype(out.dtype()), s.axis);
  const detail::SortedKeys sorted = sort_by_row(s.indices, s.axis.extent);
  const bool single = s.axis.inner == 1;
  static auto& family = *new KernelFamily<RowsSpec>(trace_scatter_add);
  family({out.dtype(), single})
      .launch(
          threads(single, s.axis.outer, s.count, s.axis.inner),
          {sorted.keys.view(), sorted.positions.view(), s.updates.view(), out.view_for_writing(),
           LaunchArgument::index(s.axis.extent), LaunchArgument::index(s.count), LaunchArgument::index(s.axis.inner)});
}

/// Writes the last update of each row, for updates that are sorted by row.
ir::Function trace_scatter_sorted(const RowsSpec& spec) {
  ir::Builder builder("scatter_sorted_rows", ir::KernelKind::map);
  ir::Builder::Scope scope(builder);
  const auto keys = ir::buffer_param("keys", DType::u32, ir::Access::read);
  const auto order = ir::buffer_param("order", DType::i32, ir::Access::read);
  const auto updates = ir::buffer_param("updates", spec.dtype, ir::Access::read);
  const auto out = ir::buffer_param("out", spec.dtype, ir::Access::read_write);
  const Value extent = ir::scalar_param("extent", DType::index), count = ir::scalar_param("count", DType::index);
  const Value width = ir::scalar_param("width", DType::index);
  const Place at = place(spec.single);
  const Value key = keys.load(at.i), row = ir::cast(DType::index, key);
  const Value next = keys.load_if(at.i + 1 < count, at.i + 1, ir::literal(DType::u32, 0xffffffff));
  const Value from = ir::cast(DType::index, order.load(at.i));
  ir::if_(next != key && row < extent, [&] {
    out.store((at.outer * extent + row) * width + at.column,
              updates.load((at.outer * count + from) * width + at.column));
  });
  return builder.finish();
}

/// Whether the sums of this dtype have another dtype: on a CPU, 16-bit sums are computed in f32 and rounded once.
bool sums_are_wider(const Array& a) {
  return (a.dtype() == DType::f16 || a.dtype() == DType::bf16) && blocks_are_vectors(kernel_backend(a.device()));
}

/// An operand that does not change while `target` is written.
Array apart(const Array& operand, const Array& target) {
  const bool computed = !operand.pending() && !target.pending();  // a pending operand is computed in memory of its own
  return computed && operand.source()->memory() == target.source()->memory() ? operand.copy() : operand;
}

}  // namespace

void detail::scatter_into(Array& target, const Array& indices, const Array& updates, int axis) {
  const Operation operation("scatter_into", target, indices, updates);
  check_write_target("scatter_into", target);
  const Scattered s = checked_scatter("scatter_into", target, apart(indices, target), apart(updates, target), axis);
  if (s.updates.size() == 0 || target.size() == 0) return;
  const bool single = s.axis.inner == 1;
  if (s.count < s.axis.extent / 16) {  // sorting is faster than an array of the last index of each row
    const SortedKeys sorted = sort_by_row(s.indices, s.axis.extent);
    static auto& family = *new KernelFamily<RowsSpec>(trace_scatter_sorted);
    family({target.dtype(), single})
        .launch(threads(single, s.axis.outer, s.count, s.axis.inner),
                {sorted.keys.view(), sorted.positions.view(), s.updates.view(), target.view_for_writing(),
                 LaunchArgument::index(s.axis.extent), LaunchArgument::index(s.count),
                 LaunchArgument::index(s.axis.inner)});
    operation.finish_in_place(target);
    return;
  }
  const Array last = last_indices(s);
  static auto& family = *new KernelFamily<TakeSpec>(trace_scatter_into);
  family({target.dtype(), s.indices.dtype(), false, single})
      .launch(
          threads(single, s.axis.outer, s.count, s.axis.inner),
          {s.indices.view(), s.updates.view(), last.view(), target.view_for_writing(),
           LaunchArgument::index(s.axis.extent), LaunchArgument::index(s.count), LaunchArgument::index(s.axis.inner)});
  operation.finish_in_place(target);
}

void detail::scatter_add_into(Array& target, const Array& indices, const Array& updates, int axis) {
  if (sums_are_wider(target)) return target.assign(scatter_add(target, indices, updates, axis));
  const Operation operation("scatter_add_into", target, indices, updates);
  check_write_target("scatter_add_into", target), check_numeric("scatter_add_into", target.dtype());
  const Scattered s = checked_scatter("scatter_add_into", target, apart(indices, target), apart(updates, target), axis);
  if (s.updates.size() == 0 || target.size() == 0) return;
  add_rows(target, s);
  operation.finish_in_place(target);
}

Array scatter_add(const Array& a, const Array& indices, const Array& updates, int axis) {
  RuledOperation operation("scatter_add", a, indices, updates);
  detail::check_numeric("scatter_add", a.dtype());
  const Scattered s = checked_scatter("scatter_add", a, indices, updates, axis);
  const auto attributes = [&] { return Attributes{{"axis", static_cast<std::int64_t>(s.d)}}; };
  const auto rule = [&] {
    return Rule{.backward =
                    [axis = static_cast<int>(s.d)](Backward& b) {
                      b.add(0, [&] { return b.adjoint(); });
                      b.add(2, [&] { return take(b.adjoint(), b.operand(1), axis); });
                    },
                .keeps = operand_bits(1)};
  };
  if (s.updates.size() == 0 || a.size() == 0) return operation.finish(a.copy(), attributes, rule);
  const Array out = sums_are_wider(a) ? s.a.astype(DType::f32) : s.a.copy();
  add_rows(out, s);
  return operation.finish(out.astype(a.dtype()), attributes, rule);
}

}  // namespace tessera
