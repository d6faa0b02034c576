// SPDX-License-Identifier: Apache-2.0
#include "tessera/sparse/kernels.h"

#include <algorithm>

#include "tessera/device/launch/block_threads.h"
#include "tessera/device/launch/kernel.h"
#include "tessera/device/launch/kernel_family.h"
#include "tessera/device/placement/kernel_backend.h"
#include "tessera/ir/value.h"

namespace tessera::sparse {

using ir::Value;

namespace {

DType sum_dtype(DType t) { return t == DType::f64 ? DType::f64 : DType::f32; }

DType unsigned_dtype(DType index) { return index == DType::i32 ? DType::u32 : DType::u64; }

/// An index from memory, and whether it is less than `extent`, a parameter of its unsigned dtype. One comparison also
/// finds negative indices.
struct Place {
  Value index, inside;
};
Place place_of(Value index, Value extent) {
  return {ir::cast(DType::index, index), ir::bitcast(extent.dtype(), index) < extent};
}
Value extent_param(const char* name, DType index) { return ir::scalar_param(name, unsigned_dtype(index)); }
LaunchArgument extent_argument(std::int64_t extent, DType index) {
  // An i32 index cannot reach 2^31.
  if (index == DType::i32) extent = std::min(extent, std::int64_t{1} << 31);
  return LaunchArgument::scalar(unsigned_dtype(index), static_cast<std::uint64_t>(extent));
}

/// The first entry of a row and the one after its last. They are within the entries even if the offsets are not.
struct Range {
  Value begin, end;
};
Range range_of(ir::BufferRef offsets, Value row, Value entries) {
  const auto at = [&](Value i) {
    const Value offset = ir::cast(DType::i64, offsets.load(i));
    return ir::cast(DType::index, ir::min(ir::max(offset, 0), ir::cast(DType::i64, entries)));
  };
  return {at(row), at(row + 1)};
}

struct ProductSpec {
  DType values, indices;
  std::uint32_t threads;  // Threads of a block, in which each subgroup computes a row; 0: a thread for each element.
  std::uint32_t parts;    // Sums of a thread, which are added at the end. Additions to different sums overlap.
  bool vector;            // The dense operand has one column.
  friend bool operator==(const ProductSpec&, const ProductSpec&) = default;
  std::size_t hash() const {
    return static_cast<std::size_t>(values) << 24 | static_cast<std::size_t>(indices) << 16 | threads << 4 |
           parts << 1 | vector;
  }
};

ir::Function trace_product(const ProductSpec& spec) {
  const bool block = spec.threads != 0;
  ir::Builder builder(block ? "sparse_product_long_rows" : "sparse_product",
                      block ? ir::KernelKind::block : ir::KernelKind::map, {std::max(1u, spec.threads), 1, 1});
  ir::Builder::Scope scope(builder);
  builder.set_exact();  // so that the result of a column does not depend on the number of columns
  const DType t = spec.values, sums = sum_dtype(t);
  const auto values = ir::buffer_param("values", t, ir::Access::read);
  const auto columns = ir::buffer_param("columns", spec.indices, ir::Access::read);
  const auto offsets = ir::buffer_param("offsets", spec.indices, ir::Access::read);
  const auto dense = ir::buffer_param("dense", t, ir::Access::read);
  const auto out = ir::buffer_param("out", t, ir::Access::read_write);
  const Value extent = extent_param("extent", spec.indices), entries = ir::scalar_param("entries", DType::index);
  const Value width = ir::scalar_param("width", DType::index);
  const auto position = [&](Value row, Value column) { return spec.vector ? row : row * width + column; };
  const auto term = [&](Value e, Value column) {
    const Place at = place_of(columns.load(e), extent);
    const Value factor = dense.load_if(at.inside, position(at.index, column), ir::literal(t, 0));
    return ir::cast(sums, values.load(e)) * ir::cast(sums, factor);
  };
  if (!block) {
    const Value column = spec.vector ? ir::index_literal(0) : ir::global_id(0);
    const Value row = ir::global_id(spec.vector ? 0 : 1);
    const Range range = range_of(offsets, row, entries);
    const int parts = static_cast<int>(spec.parts);
    std::vector<ir::Variable> sum;
    for (int i = 0; i < parts; ++i) sum.emplace_back(sums, 0);
    const auto add = [&](Value e, std::size_t count) {
      std::vector<Value> terms;
      for (std::size_t i = 0; i < count; ++i) terms.push_back(term(e + i, column));
      for (std::size_t i = 0; i < count; ++i) sum[i].set(sum[i].get() + terms[i]);
    };
    const Value rest = parts == 1 ? range.begin : range.end - (range.end - range.begin) % parts;
    if (parts > 1) ir::for_(range.begin, rest, parts, [&](Value e) { add(e, sum.size()); });
    ir::for_(rest, range.end, [&](Value e) { add(e, 1); });
    Value total = sum[0].get();
    for (std::size_t i = 1; i < sum.size(); ++i) total = total + sum[i].get();
    out.store(position(row, column), ir::cast(t, total));
    return builder.finish();
  }
  const Value rows = ir::scalar_param("rows", DType::index), column = ir::block_id(1);
  const Value first = ir::block_id(0) * ir::subgroup_count() + ir::subgroup_id();
  ir::for_(first, rows, ir::block_count(0) * ir::subgroup_count(), [&](Value row) {
    const ir::Variable sum(sums, 0);
    const Range range = range_of(offsets, row, entries);
    ir::for_(range.begin + ir::lane_id(), range.end, ir::subgroup_size(),
             [&](Value e) { sum.set(sum.get() + term(e, column)); });
    const Value total = ir::subgroup_sum(sum.get());
    ir::if_(ir::lane_id() == 0, [&] { out.store(position(row, column), ir::cast(t, total)); });
  });
  return builder.finish();
}

struct SampledSpec {
  DType values, indices;
  bool vector;  // The rows have one element.
  friend bool operator==(const SampledSpec&, const SampledSpec&) = default;
  std::size_t hash() const {
    return static_cast<std::size_t>(values) << 24 | static_cast<std::size_t>(indices) << 16 | vector;
  }
};

ir::Function trace_sampled_product(const SampledSpec& spec) {
  ir::Builder builder("sparse_sampled_product", ir::KernelKind::map);
  ir::Builder::Scope scope(builder);
  const DType t = spec.values, sums = sum_dtype(t);
  const auto rows = ir::buffer_param("rows", spec.indices, ir::Access::read);
  const auto columns = ir::buffer_param("columns", spec.indices, ir::Access::read);
  const auto left = ir::buffer_param("left", t, ir::Access::read);
  const auto right = ir::buffer_param("right", t, ir::Access::read);
  const auto out = ir::buffer_param("out", t, ir::Access::read_write);
  const Value row_extent = extent_param("row_extent", spec.indices), extent = extent_param("extent", spec.indices);
  const Value width = ir::scalar_param("width", DType::index), e = ir::global_id();
  const Place row = place_of(rows.load(e), row_extent), column = place_of(columns.load(e), extent);
  const Value inside = row.inside && column.inside;
  const auto product = [&](Value i) {
    const Value a = left.load_if(inside, row.index * width + i, ir::literal(t, 0));
    const Value b = right.load_if(inside, column.index * width + i, ir::literal(t, 0));
    return ir::cast(sums, a) * ir::cast(sums, b);
  };
  if (spec.vector) {
    out.store(e, ir::cast(t, product(ir::index_literal(0))));
    return builder.finish();
  }
  const ir::Variable sum(sums, 0);
  ir::for_(0, width, [&](Value i) { sum.set(sum.get() + product(i)); });
  out.store(e, ir::cast(t, sum.get()));
  return builder.finish();
}

ir::Function trace_rows(const DType& indices) {
  ir::Builder builder("sparse_rows", ir::KernelKind::map);
  ir::Builder::Scope scope(builder);
  const auto offsets = ir::buffer_param("offsets", indices, ir::Access::read);
  const auto out = ir::buffer_param("rows", indices, ir::Access::read_write);
  const Value entries = ir::scalar_param("entries", DType::index), row = ir::global_id();
  const Range range = range_of(offsets, row, entries);
  ir::for_(range.begin, range.end, [&](Value e) { out.store(e, ir::cast(indices, row)); });
  return builder.finish();
}

/// Thread e writes the offsets of the rows that begin at entry e: those after the row of the entry before.
ir::Function trace_offsets(const DType& indices) {
  ir::Builder builder("sparse_offsets", ir::KernelKind::map);
  ir::Builder::Scope scope(builder);
  const auto entry_rows = ir::buffer_param("entry_rows", DType::u32, ir::Access::read);
  const auto offsets = ir::buffer_param("offsets", indices, ir::Access::read_write);
  const Value entries = ir::scalar_param("entries", DType::index), rows = ir::scalar_param("rows", DType::index);
  const Value e = ir::global_id();
  const auto row_after = [&](Value mask, Value i) {
    const Value row = ir::cast(DType::index, entry_rows.load_if(mask, i, ir::literal(DType::u32, 0)));
    return ir::min(row, rows) + 1;
  };
  const Value begin = ir::select(e > 0, row_after(e > 0, e - 1), ir::index_literal(0));
  const Value end = ir::select(e < entries, row_after(e < entries, e), rows + 1);
  ir::for_(begin, end, [&](Value row) { offsets.store(row, ir::cast(indices, e)); });
  return builder.finish();
}

std::uint64_t threads(std::int64_t n) { return static_cast<std::uint64_t>(n); }

/// The average number of entries of a row from which rows are computed by a subgroup each, or in several sums on a CPU.
constexpr std::int64_t long_row = 16;

}  // namespace

Array launch_product(const Csr& a, const Array& dense) {
  const std::int64_t rows = a.shape[0], width = dense.shape(1);
  const Device device = a.device();
  const DType t = a.dtype(), indices = a.columns.dtype();
  Array out = Array::empty({rows, width}, t, device);
  if (out.size() == 0) return out;
  if (a.entries() == 0 || dense.size() == 0) return Array::zeros({rows, width}, t, device);
  ProductSpec spec{t, indices, 0, 1, width == 1};
  const Array values = a.values.as_contiguous(), columns = a.columns.as_contiguous();
  const Array offsets = a.offsets.as_contiguous(), factors = dense.as_contiguous();
  LaunchArguments arguments;
  for (const Array* input : {&values, &columns, &offsets, &factors}) arguments.add(input->view());
  arguments.add(out.view_for_writing());
  const LaunchArgument extent = extent_argument(a.shape[1], indices);
  arguments.scalar(extent.dtype, extent.bits);
  arguments.index(a.entries()), arguments.index(width);
  std::array<std::uint64_t, 3> grid = {threads(width), threads(rows), 1};
  if (spec.vector) grid = {threads(rows), 1, 1};
  const bool is_long = a.entries() / rows >= long_row;
  if (is_long && blocks_are_vectors(kernel_backend(device))) {
    spec.parts = 4;
  } else if (is_long && width <= 4) {  // With more columns, neighbouring threads read neighbouring elements of a row.
    const Capabilities& can = device_info(device).can;
    spec.threads = block_threads(can, 128);
    const std::int64_t rows_of_block = std::max(1u, spec.threads / std::max(1u, can.subgroup_widths[0]));
    grid = {threads((rows + rows_of_block - 1) / rows_of_block), threads(width), 1};
    arguments.index(rows);
  }
  static auto& family = *new KernelFamily<ProductSpec>(trace_product);
  family(spec).launch(grid, arguments);
  return out;
}

Array launch_sampled_product(const Array& rows, const Array& columns, const Array& left, const Array& right) {
  const std::int64_t entries = rows.size(), width = left.shape(1);
  const DType indices = rows.dtype();
  if (entries == 0 || width == 0 || left.size() == 0 || right.size() == 0)
    return Array::zeros({entries}, left.dtype(), rows.device());
  const Array out = Array::empty({entries}, left.dtype(), rows.device());
  const Array i = rows.as_contiguous(), j = columns.as_contiguous(), a = left.as_contiguous(),
              b = right.as_contiguous();
  static auto& family = *new KernelFamily<SampledSpec>(trace_sampled_product);
  family({left.dtype(), indices, width == 1})
      .launch({threads(entries), 1, 1},
              {i.view(), j.view(), a.view(), b.view(), out.view(), extent_argument(left.shape(0), indices),
               extent_argument(right.shape(0), indices), LaunchArgument::index(width)});
  return out;
}

Array launch_rows(const Csr& a) {
  const DType indices = a.offsets.dtype();
  const Array out = Array::full({a.entries()}, -1, indices, a.device()), offsets = a.offsets.as_contiguous();
  if (out.size() == 0 || a.shape[0] == 0) return out;
  static auto& family = *new KernelFamily<DType>(trace_rows);
  family(indices).launch({threads(a.shape[0]), 1, 1},
                         {offsets.view(), out.view_for_writing(), LaunchArgument::index(a.entries())});
  return out;
}

Array launch_offsets(const Array& entry_rows, std::int64_t rows, DType dtype) {
  if (entry_rows.size() == 0) return Array::zeros({rows + 1}, dtype, entry_rows.device());
  const Array out = Array::empty({rows + 1}, dtype, entry_rows.device()), in = entry_rows.as_contiguous();
  static auto& family = *new KernelFamily<DType>(trace_offsets);
  family(dtype).launch({threads(entry_rows.size() + 1), 1, 1},
                       {in.view(), out.view(), LaunchArgument::index(in.size()), LaunchArgument::index(rows)});
  return out;
}

}  // namespace tessera::sparse
