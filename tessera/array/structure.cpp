// SPDX-License-Identifier: Apache-2.0
// Joins arrays, and creates sequences of numbers.
#include "tessera/array/elementwise.h"
#include "tessera/array/operation.h"
#include "tessera/device/launch/kernel.h"
#include "tessera/device/launch/kernel_family.h"
#include "tessera/ir/semantics.h"

namespace tessera {

namespace {

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

}  // namespace

Array Array::arange(std::int64_t count, double start, double step, DType dtype, std::optional<Device> device) {
  if (count < 0)
    fail<ShapeError>(
        {.operation = "arange", .with = {{"count", std::to_string(count)}}, .wrong = "the count is negative"});
  if (dtype == DType::boolean)
    fail<DtypeError>(
        {.operation = "arange", .with = {{"dtype", "bool"}}, .wrong = "a sequence of bools is not supported"});
  const detail::Operation operation("arange");
  Array out = empty({count}, dtype, device);
  if (count == 0) return operation.finish(std::move(out));
  static auto& family = *new KernelFamily<DType>(trace_arange);
  const DType t = dtype == DType::f64 ? DType::f64 : is_float(dtype) ? DType::f32 : dtype;
  family(dtype).launch(
      {static_cast<std::uint64_t>(count), 1, 1},
      {out.view(), LaunchArgument::scalar(t, ir::to_bits(t, start)), LaunchArgument::scalar(t, ir::to_bits(t, step))});
  return operation.finish(std::move(out));
}

Array Array::linspace(double start, double stop, std::int64_t count, DType dtype, std::optional<Device> device) {
  const detail::Operation operation("linspace");
  if (count < 0)
    fail<ShapeError>(
        {.operation = "linspace", .with = {{"count", std::to_string(count)}}, .wrong = "the count is negative"});
  if (dtype == DType::boolean)
    fail<DtypeError>(
        {.operation = "linspace", .with = {{"dtype", "bool"}}, .wrong = "a sequence of bools is not supported"});
  const Device where_to = device ? *device : current_device();
  const DType t = device_info(where_to).can.f64 ? DType::f64 : DType::f32;
  const Array i = arange(count, 0, 1, DType::i64, where_to);
  Array line = i.astype(t) * (count > 1 ? (stop - start) / static_cast<double>(count - 1) : 0.0) + start;
  if (count > 1) line = where(i == count - 1, stop, std::move(line));
  if (is_int(dtype)) line = floor(std::move(line));  // as in NumPy
  return operation.finish(line.astype(dtype));
}

Array Array::eye(std::int64_t rows, std::optional<std::int64_t> columns, std::int64_t k, DType dtype,
                 std::optional<Device> device) {
  const detail::Operation operation("eye");
  const std::int64_t wide = columns.value_or(rows);
  if (rows < 0 || wide < 0)
    fail<ShapeError>({.operation = "eye",
                      .with = {{"rows", std::to_string(rows)}, {"columns", std::to_string(wide)}},
                      .wrong = "an extent is negative"});
  const Array row = arange(rows, 0, 1, DType::i64, device).unsqueeze(1);
  const Array column = arange(wide, 0, 1, DType::i64, device).unsqueeze(0);
  return operation.finish((column - row == k).astype(dtype));
}

Array concatenate(std::span<const Array> parts, int axis) {
  detail::RuledOperation operation("concatenate", parts);
  if (parts.empty()) fail<ArgumentError>({.operation = "concatenate", .wrong = "there are no arrays to join"});
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
      fail<ShapeError>({.operation = "concatenate",
                        .with = {{"first", to_string(first.shape())},
                                 {"other", to_string(part.shape())},
                                 {"axis", std::to_string(axis)}},
                        .wrong = "the shapes differ on an axis that is not joined"});
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
  return operation.finish(
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

}  // namespace tessera
