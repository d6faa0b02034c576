// SPDX-License-Identifier: Apache-2.0
// Adds products to a matrix in place.
#include <algorithm>
#include <bit>

#include "tessera/array/functions.h"
#include "tessera/array/operation.h"
#include "tessera/device/launch/launch_arguments.h"
#include "tessera/ops/kernels.h"
#include "tessera/ops/linear_algebra.h"
#include "tessera/ops/matrix_block.h"

namespace tessera {

namespace ops {

MatrixBlock matrix_block_of(const Array& a, const BufferView& memory) {
  return {&memory, a.shape()[0], a.shape()[1], 0, a.strides()[0], a.strides()[1]};
}

namespace {

/// True if two matrices of one view may overlap, according to their strides.
bool may_share(const MatrixBlock& a, const MatrixBlock& b) {
  const auto along_rows = [](MatrixBlock m) {
    if (m.rows == 1 ? m.column_stride != 1 : m.columns != 1 && m.column_stride > m.row_stride) m = m.transposed();
    if (m.columns == 1) m.column_stride = 1;
    return m;
  };
  const MatrixBlock x = along_rows(a), y = along_rows(b);
  const auto last = [](const MatrixBlock& m) {
    return m.first + (m.rows - 1) * m.row_stride + (m.columns - 1) * m.column_stride;
  };
  if (last(x) < y.first || last(y) < x.first) return false;
  const std::int64_t pitch = x.rows == 1 ? y.row_stride : x.row_stride;
  if (x.column_stride != 1 || y.column_stride != 1 || (y.rows != 1 && y.row_stride != pitch) || pitch < 1) return true;
  // Elements of x are at i * pitch + j, elements of y at d + i * pitch + j. They overlap if a multiple of the pitch
  // lies between the smallest and the largest distance of two columns.
  const std::int64_t d = y.first - x.first, most = d + y.columns - 1, least = d - (x.columns - 1);
  const std::int64_t above = (most >= 0 ? most : most - (pitch - 1)) / pitch;  // rounds down
  for (std::int64_t q = above; q * pitch >= least && q > -y.rows; --q)
    if (q < x.rows) return true;
  return false;
}

}  // namespace

void join_views(const char* operation, std::span<BufferView> views, std::span<MatrixBlock> blocks) {
  BufferView& target = views[0];
  std::uint64_t begin = target.byte_offset, end = begin + target.bytes();
  const auto same = [&](const BufferView& v) { return v.storage == target.storage && v.dtype == target.dtype; };
  bool several = false;
  for (const BufferView& v : views.subspan(1))
    if (same(v)) begin = std::min(begin, v.byte_offset), end = std::max(end, v.byte_offset + v.bytes()), several = true;
  if (!several) return;
  const std::uint64_t size = dtype_size(target.dtype);
  for (std::size_t i = views.size(); i-- > 0;) {
    if (!same(views[i])) continue;
    blocks[i].first += static_cast<std::int64_t>((views[i].byte_offset - begin) / size);
    views[i].byte_offset = begin, views[i].elements = (end - begin) / size;
  }
  for (std::size_t i = 1; i < views.size(); ++i)
    if (same(views[i]) && may_share(blocks[0], blocks[i]))
      fail<ArgumentError>({.operation = operation,
                           .wrong = "an operand overlaps the memory that is written",
                           .remedy = "Pass a copy() of the operand"});
}

void update(const MatrixBlock& to, const MatrixBlock& left, const MatrixBlock& right, double alpha, double beta,
            bool lower, bool b_packed) {
  MatrixBlock c = to, a = left, b = right;
  // Rows, columns and steps along k can be processed in any order, so negative strides are reversed.
  if (c.row_stride < 0) c = c.rows_reversed(), a = a.rows_reversed();
  if (c.column_stride < 0) c = c.columns_reversed(), b = b.columns_reversed();
  if (a.column_stride < 0) a = a.columns_reversed(), b = b.rows_reversed();
  // A result with one column is computed as one row of the transposed product. The same is done for column-major
  // results.
  if (!lower && ((c.columns == 1 && c.rows > 1) || (c.column_stride != 1 && c.row_stride == 1 && c.columns > 1))) {
    c = c.transposed(), std::swap(a, b);
    a = a.transposed(), b = b.transposed();
  }
  const std::int64_t m = c.rows, n = c.columns, k = a.columns;
  const Device device = c.memory->storage->device();
  const DType t = c.memory->dtype, sum = t == DType::f64 ? DType::f64 : DType::f32;
  ProductSpec asked{t, t, sum, t};
  asked.a_unit_m = a.row_stride == 1, asked.a_unit_k = a.column_stride == 1 || k == 1;
  asked.b_unit_n = b.column_stride == 1 || n == 1, asked.b_unit_k = b.row_stride == 1 || k == 1;
  // Not rounded to tf32, because later blocks of a factorisation depend on the result.
  asked.update = true, asked.lower = lower, asked.c_unit = c.column_stride == 1;
  asked.b_packed = b_packed;
  const ProductChoice choice = choose_product_kernel(device, asked, {m, n, k, 1});

  const auto from = [](const MatrixBlock& x) {  // the memory that begins at the first element of x
    BufferView v = *x.memory;
    v.byte_offset += static_cast<std::uint64_t>(x.first) * dtype_size(v.dtype);
    v.elements -= static_cast<std::uint64_t>(x.first);
    return v;
  };
  LaunchArguments args;
  if (choice.spec.packed && choice.plan.spec.a_packed) {
    args.add(pack_factor(from(a), choice.plan.pack_a, m, k, choice.plan.depth, {a.row_stride, a.column_stride}).view());
    a.first = 0;
  } else {
    args.add(BufferView(*a.memory));
  }
  if (choice.spec.packed && choice.plan.spec.b_packed && !b_packed) {
    args.add(pack_factor(from(b), choice.plan.pack_b, n, k, choice.plan.depth, {b.column_stride, b.row_stride}).view());
    b.first = 0;
  } else {
    args.add(BufferView(*b.memory));
  }
  args.add(BufferView(*c.memory));
  for (const std::int64_t v : {m, n, k}) args.index(v);
  std::uint64_t blocks = 0;
  if (choice.spec.packed) {
    const PackedPlan& plan = choice.plan;
    const PackedSpec& spec = plan.spec;
    const std::int64_t row_blocks = ceil_div(ceil_div(m, spec.tm), plan.block_rows),
                       column_blocks = ceil_div(ceil_div(n, spec.tn * spec.lanes), plan.block_columns);
    if (!spec.whole)
      for (const std::int64_t v : {plan.block_rows, plan.block_columns, plan.depth, row_blocks}) args.index(v);
    if (!spec.a_packed && !spec.a_unit_m) args.index(a.row_stride);
    if (!spec.a_packed && !spec.a_unit_k) args.index(a.column_stride);
    if (!spec.b_packed && !spec.b_unit_k) args.index(b.row_stride);
    if (spec.staged && !spec.b_unit_n) args.index(b.column_stride);
    blocks = static_cast<std::uint64_t>(row_blocks * column_blocks);
  } else {
    const std::int64_t m_tiles = ceil_div(m, choice.spec.block_m()), n_tiles = ceil_div(n, choice.spec.block_n());
    for (const std::int64_t v : {m_tiles, n_tiles, a.row_stride, a.column_stride, b.column_stride, b.row_stride})
      args.index(v);
    blocks = static_cast<std::uint64_t>(m_tiles * n_tiles);
  }
  for (const std::int64_t v : {a.first, b.first, c.first, c.row_stride}) args.index(v);
  if (!choice.spec.packed || !asked.c_unit) args.index(c.column_stride);
  if (!choice.spec.packed) args.index(lower ? 0 : n);
  for (const double v : {alpha, beta})
    args.scalar(
        sum, sum == DType::f64 ? std::bit_cast<std::uint64_t>(v) : std::bit_cast<std::uint32_t>(static_cast<float>(v)));
  choice.kernel->launch({blocks, 1, 1}, args);
}

}  // namespace ops

namespace {

[[noreturn]] void wrong_shapes(const Array& c, const Array& a, const Array& b, const std::string& what) {
  fail<ShapeError>({.operation = "multiply_into",
                    .with = {{"c", to_string(c.shape())}, {"a", to_string(a.shape())}, {"b", to_string(b.shape())}},
                    .wrong = what});
}

void check_update(const Array& c, const Array& a, const Array& b, const Update& how) {
  const int ranks[] = {c.rank(), a.rank(), b.rank()};
  const bool matrices = ranks[0] == 2 && ranks[1] == 2 && ranks[2] == 2,
             vectors = ranks[0] == 1 && ranks[1] + ranks[2] == 3 && ranks[1] > 0 && ranks[2] > 0;
  if (!matrices && !vectors)
    wrong_shapes(c, a, b, "the operands are neither three matrices, nor a matrix and two vectors");
  const std::int64_t m = a.rank() == 2 ? a.shape(0) : 1, n = b.rank() == 2 ? b.shape(1) : 1;
  if (a.shape(-1) != b.shape(0))
    wrong_shapes(c, a, b,
                 "a has " + std::to_string(a.shape(-1)) + " columns, b has " + std::to_string(b.shape(0)) + " rows");
  if (matrices ? c.shape(0) != m || c.shape(1) != n : c.shape(0) != (a.rank() == 2 ? m : n))
    wrong_shapes(c, a, b, "c does not have the shape of the product");
  if (how.lower && (!matrices || m != n)) wrong_shapes(c, a, b, "`lower` requires a square matrix c");
  if (c.dtype() != a.dtype() || c.dtype() != b.dtype() || !is_float(c.dtype()))
    fail<DtypeError>({.operation = "multiply_into",
                      .with = {{"c", std::string(dtype_name(c.dtype()))},
                               {"a", std::string(dtype_name(a.dtype()))},
                               {"b", std::string(dtype_name(b.dtype()))}},
                      .wrong = "the arrays must have the same float dtype",
                      .remedy = "Convert them with astype(...)"});
  if (c.device() != a.device() || c.device() != b.device())
    fail<DeviceError>(
        {.operation = "multiply_into",
         .with = {{"c on", to_string(c.device())}, {"a on", to_string(a.device())}, {"b on", to_string(b.device())}},
         .wrong = "the operands are on different devices",
         .remedy = "Move one with to(...)"});
  for (std::size_t d = 0; d < c.shape().size(); ++d)
    if (c.strides()[d] == 0 && c.shape()[d] > 1)
      fail<ArgumentError>({.operation = "multiply_into",
                           .with = {{"c", to_string(c.shape())}},
                           .wrong = "c is broadcast, so its elements share memory",
                           .remedy = "Pass the original array, or a copy()"});
}

/// Multiplies c by beta if there is no product to add.
void scale(Array& c, const Update& how) {
  const Array scaled = how.beta == 0 ? Array::zeros(c.shape(), c.dtype(), c.device()) : c * how.beta;
  c.assign(how.lower ? tril(scaled) + triu(c, 1) : scaled);
}

}  // namespace

void multiply_into(Array& c, const Array& a, const Array& b, const Update& how) {
  const detail::Operation operation("multiply_into", c, a, b);
  detail::check_write_target("multiply_into", c);
  detail::check_stored_value("multiply_into", a), detail::check_stored_value("multiply_into", b);
  check_update(c, a, b, how);
  const auto finish_in_place = [&] {
    operation.finish_in_place(c, [&] {
      return Attributes{{"alpha", how.alpha}, {"beta", how.beta}, {"lower", how.lower}};
    });
  };
  if (c.size() == 0) return finish_in_place();
  if (a.size() == 0) return scale(c, how), finish_in_place();
  // Operands are evaluated before c, because evaluating them may read c.
  BufferView views[] = {{}, a.view(), b.view()};
  views[0] = c.view_for_writing();
  const auto matrix = [](const Array& x, const BufferView& v, bool row) {
    if (x.rank() == 2) return ops::matrix_block_of(x, v);
    const std::int64_t n = x.shape()[0], stride = x.strides()[0];
    return row ? ops::MatrixBlock{&v, 1, n, 0, n * stride, stride} : ops::MatrixBlock{&v, n, 1, 0, stride, 1};
  };
  ops::MatrixBlock blocks[] = {matrix(c, views[0], a.rank() == 1), matrix(a, views[1], true),
                               matrix(b, views[2], false)};
  ops::join_views("multiply_into", views, blocks);
  ops::update(blocks[0], blocks[1], blocks[2], how.alpha, how.beta, how.lower);
  finish_in_place();
}

}  // namespace tessera
