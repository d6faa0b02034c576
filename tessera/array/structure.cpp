// SPDX-License-Identifier: Apache-2.0
// Joining arrays, picking rows, and counting up.
#include "tessera/array/elementwise.h"
#include "tessera/array/operation.h"
#include "tessera/ir/semantics.h"

namespace tessera {

namespace {

struct TakeSpec {
  DType table, indices;
  friend bool operator==(const TakeSpec&, const TakeSpec&) = default;
  std::size_t hash() const { return static_cast<std::size_t>(table) * 31 + static_cast<std::size_t>(indices); }
};

ir::Function trace_take(const TakeSpec& spec) {
  ir::Builder builder("take_rows", ir::KernelKind::map);
  ir::Builder::Scope scope(builder);
  const auto table = ir::buffer_param("table", spec.table, ir::Access::read);
  const auto indices = ir::buffer_param("indices", spec.indices, ir::Access::read);
  const auto out = ir::buffer_param("out", spec.table, ir::Access::read_write);
  const auto rows = ir::scalar_param("rows", DType::index), width = ir::scalar_param("width", DType::index);
  const ir::Value column = ir::global_id(0), i = ir::global_id(1);
  // Compared in 64 bits: a large index must not wrap into range.
  const DType wide = spec.indices == DType::u64 ? DType::u64 : DType::i64;
  const ir::Value full = ir::cast(wide, indices.load(i));
  ir::Value inside = full < ir::cast(wide, rows);
  if (wide == DType::i64) inside = inside && full >= 0;
  const ir::Value row = ir::cast(DType::index, full);
  out.store(i * width + column, table.load_if(inside, row * width + column, ir::literal(spec.table, 0)));
  return builder.finish();
}

// For each of `count` indices the next one that is equal, or -1; and whether none before it is. So those of one row are
// added one after the other, in the same order each time.
ir::Function trace_take_chains(const DType& indices_dtype) {
  ir::Builder builder("take_chains", ir::KernelKind::map);
  ir::Builder::Scope scope(builder);
  const auto indices = ir::buffer_param("indices", indices_dtype, ir::Access::read);
  const auto next = ir::buffer_param("next", DType::i32, ir::Access::read_write);
  const auto first = ir::buffer_param("first", DType::i32, ir::Access::read_write);
  const auto count = ir::scalar_param("count", DType::index);
  const ir::Value i = ir::global_id(0), own = indices.load(i);
  const ir::Variable at(DType::index, i + 1), before(DType::index, i);
  ir::while_([&] { return at.get() < count && indices.load(ir::min(at.get(), count - 1)) != own; },
             [&] { at.set(at.get() + 1); });
  next.store(i, ir::select(at.get() < count, ir::cast(DType::i32, at.get()), -1));
  const auto earlier = [&] { return ir::max(before.get() - 1, ir::index_literal(0)); };
  ir::while_([&] { return before.get() > 0 && indices.load(earlier()) != own; }, [&] { before.set(before.get() - 1); });
  first.store(i, ir::select(before.get() > 0, ir::literal(DType::i32, 0), ir::literal(DType::i32, 1)));
  return builder.finish();
}

// Adds the rows of `g` into those of `out` that they were taken from.
ir::Function trace_take_back(const TakeSpec& spec) {
  ir::Builder builder("take_rows_back", ir::KernelKind::map);
  ir::Builder::Scope scope(builder);
  const auto g = ir::buffer_param("g", spec.table, ir::Access::read);
  const auto indices = ir::buffer_param("indices", spec.indices, ir::Access::read);
  const auto next = ir::buffer_param("next", DType::i32, ir::Access::read);
  const auto first = ir::buffer_param("first", DType::i32, ir::Access::read);
  const auto out = ir::buffer_param("out", spec.table, ir::Access::read_write);
  const auto rows = ir::scalar_param("rows", DType::index), width = ir::scalar_param("width", DType::index);
  const ir::Value column = ir::global_id(0), i = ir::global_id(1);
  const DType wide = spec.indices == DType::u64 ? DType::u64 : DType::i64;
  const ir::Value full = ir::cast(wide, indices.load(i));
  ir::Value inside = full < ir::cast(wide, rows);
  if (wide == DType::i64) inside = inside && full >= 0;
  ir::if_(inside && first.load(i) == 1, [&] {
    const DType t = spec.table == DType::f64 ? DType::f64 : DType::f32;
    const ir::Variable sum(t, 0), at(DType::index, i);
    ir::while_([&] { return at.get() >= 0; },
               [&] {
                 sum.set(sum.get() + ir::cast(t, g.load(at.get() * width + column)));
                 at.set(ir::cast(DType::index, next.load(at.get())));
               });
    out.store(ir::cast(DType::index, full) * width + column, ir::cast(spec.table, sum.get()));
  });
  return builder.finish();
}

ir::Function trace_arange(const DType& dtype) {
  ir::Builder builder("arange", ir::KernelKind::map);
  ir::Builder::Scope scope(builder);
  builder.set_exact();
  const auto out = ir::buffer_param("out", dtype, ir::Access::read_write);
  const DType t = dtype == DType::f64 ? DType::f64 : is_float(dtype) ? DType::f32 : dtype;
  const auto start = ir::scalar_param("start", t), step = ir::scalar_param("step", t);
  out.store(ir::global_id(), ir::cast(dtype, start + ir::cast(t, ir::global_id()) * step));
  return builder.finish();
}

/// The adjoint of a table of this shape, of which `take` gave rows whose adjoint is `g`.
Array take_back(const Array& g, const Array& indices, const Shape& shape) {
  detail::RuledOperation operation("take", g, indices);
  const auto rule = [] {
    return Rule{.backward = [](Backward& b) { b.add(0, [&] { return take(b.adjoint(), b.operand(1)); }); },
                .keeps = operand_bits(1)};
  };
  Array out = Array::zeros(shape, g.dtype(), g.device());
  if (g.size() == 0 || out.size() == 0) return operation.made(std::move(out), rule);
  const std::int64_t count = indices.size(), width = g.size() / count;
  const Array from = g.as_contiguous(), which = indices.as_contiguous();
  const Array next = Array::empty({count}, DType::i32, g.device()),
              first = Array::empty({count}, DType::i32, g.device());
  static auto& chains = *new KernelFamily<DType>(trace_take_chains);
  static auto& rows = *new KernelFamily<TakeSpec>(trace_take_back);
  chains(indices.dtype())
      .launch({static_cast<std::uint64_t>(count), 1, 1},
              {which.view(), next.view(), first.view(), LaunchArgument::index(count)});
  rows({g.dtype(), indices.dtype()})
      .launch({static_cast<std::uint64_t>(width), static_cast<std::uint64_t>(count), 1},
              {from.view(), which.view(), next.view(), first.view(), out.view(), LaunchArgument::index(shape[0]),
               LaunchArgument::index(width)});
  return operation.made(std::move(out), rule);
}

}  // namespace

Array Array::arange(std::int64_t count, double start, double step, DType dtype, std::optional<Device> device) {
  if (count < 0)
    fail<ShapeError>({.asked = "arange", .with = {{"count", std::to_string(count)}}, .wrong = "the count is negative"});
  if (dtype == DType::boolean)
    fail<DtypeError>({.asked = "arange", .with = {{"dtype", "bool"}}, .wrong = "bools do not count up"});
  const detail::Operation operation("arange");
  Array out = empty({count}, dtype, device);
  if (count == 0) return operation.made(std::move(out));
  static auto& family = *new KernelFamily<DType>(trace_arange);
  const DType t = dtype == DType::f64 ? DType::f64 : is_float(dtype) ? DType::f32 : dtype;
  family(dtype).launch(
      {static_cast<std::uint64_t>(count), 1, 1},
      {out.view(), LaunchArgument::scalar(t, ir::to_bits(t, start)), LaunchArgument::scalar(t, ir::to_bits(t, step))});
  return operation.made(std::move(out));
}

Array concatenate(std::span<const Array> parts, int axis) {
  detail::RuledOperation operation("concatenate", parts);
  if (parts.empty()) fail<ArgumentError>({.asked = "concatenate", .wrong = "there are no arrays to join"});
  const Array& first = parts[0];
  const auto d = static_cast<std::size_t>(normalise_axis("concatenate", axis, first.shape().size()));
  Shape shape = first.shape();
  DType dtype = first.dtype();
  shape[d] = 0;
  std::vector<const Array*> all;
  for (const Array& part : parts) {
    Shape other = part.shape();
    const std::int64_t extent = other.size() == shape.size() ? other[d] : 0;
    if (other.size() == shape.size()) other[d] = shape[d];
    if (other != shape)
      fail<ShapeError>({.asked = "concatenate",
                        .with = {{"first", to_string(first.shape())},
                                 {"other", to_string(part.shape())},
                                 {"axis", std::to_string(axis)}},
                        .wrong = "the shapes differ outside of the axis"});
    shape[d] += extent;
    dtype = promote(dtype, part.dtype());
    all.push_back(&part);
  }
  const Device device = detail::common_device("concatenate", all);
  Array out = Array::empty(shape, dtype, device);
  std::int64_t at = 0;
  for (const Array& part : parts) {
    const std::int64_t extent = part.shape()[d];
    out.slice(static_cast<int>(d), at, at + extent).assign(part);
    at += extent;
  }
  return operation.made(
      std::move(out),
      [&] {
        return Attributes{{"axis", static_cast<std::int64_t>(d)}};
      },
      [&] {
        return Rule{[d, count = parts.size()](Backward& b) {
          std::int64_t at = 0;
          for (std::size_t i = 0; i < count; ++i) {
            const std::int64_t begin = std::exchange(at, at + b.shape(i)[d]);
            b.add(i, [&] { return b.adjoint().slice(static_cast<int>(d), begin, at); });
          }
        }};
      });
}
Array concatenate(std::initializer_list<Array> parts, int axis) {
  return concatenate(std::span(parts.begin(), parts.size()), axis);
}

Array take(const Array& table, const Array& indices) {
  detail::RuledOperation operation("take", table, indices);
  const auto rule = [] {
    return Rule{
        .backward = [](Backward& b) { b.add(0, [&] { return take_back(b.adjoint(), b.operand(1), b.shape(0)); }); },
        .keeps = operand_bits(1)};
  };
  if (table.rank() < 1)
    fail<ShapeError>(
        {.asked = "take", .with = {{"table", to_string(table.shape())}}, .wrong = "the table has no rows"});
  if (!is_int(indices.dtype()))
    fail<DtypeError>({.asked = "take",
                      .with = {{"indices", std::string(dtype_name(indices.dtype()))}},
                      .wrong = "indices are integers"});
  const Array* both[] = {&table, &indices};
  const Device device = detail::common_device("take", both);
  Shape shape = indices.shape();
  std::int64_t width = 1;
  for (std::size_t i = 1; i < table.shape().size(); ++i) shape.push_back(table.shape()[i]), width *= table.shape()[i];
  Array out = Array::empty(shape, table.dtype(), device);
  if (out.size() == 0) return operation.made(std::move(out), rule);
  const Array rows = table.as_contiguous(), which = indices.as_contiguous();
  static auto& family = *new KernelFamily<TakeSpec>(trace_take);
  family({table.dtype(), indices.dtype()})
      .launch({static_cast<std::uint64_t>(width), static_cast<std::uint64_t>(indices.size()), 1},
              {rows.view(), which.view(), out.view(), LaunchArgument::index(table.shape()[0]),
               LaunchArgument::index(width)});
  return operation.made(std::move(out), rule);
}

}  // namespace tessera
