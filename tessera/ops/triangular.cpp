// SPDX-License-Identifier: Apache-2.0
// Triangular systems and Cholesky factorisation. One kernel computes the diagonal blocks, and matrix products compute
// everything else.
#include <algorithm>

#include "tessera/array/functions.h"
#include "tessera/array/operation.h"
#include "tessera/device/launch/kernel.h"
#include "tessera/device/launch/kernel_family.h"
#include "tessera/device/launch/launch_arguments.h"
#include "tessera/ops/kernels.h"
#include "tessera/ops/linear_algebra.h"
#include "tessera/ops/matrix_block.h"
#include "tessera/ops/product.h"

namespace tessera {

namespace ops {

namespace {

/// Returns about half of n rows, as a multiple of `step`. Halving makes the products between the parts as large as
/// possible.
std::int64_t half_of(std::int64_t n, std::int64_t step) { return ceil_div(ceil_div(n, 2), step) * step; }

}  // namespace

void solve_lower(const MatrixBlock& t, const MatrixBlock& b, bool unit_diagonal) {
  const Tiles tiles = tiles_of(b.memory->storage->device());
  const SolveSpec spec = choose_solve(tiles, b.memory->dtype, b.column_stride == 1 || b.columns == 1);
  const std::int64_t n = b.rows, m = b.columns;
  if (n > spec.size) {
    const std::int64_t half = half_of(n, spec.size);
    const MatrixBlock first = b.part(0, 0, half, m), second = b.part(half, 0, n - half, m);
    solve_lower(t.part(0, 0, half, half), first, unit_diagonal);
    update(second, t.part(half, 0, n - half, half), first, -1, 1, false);
    return solve_lower(t.part(half, half, n - half, n - half), second, unit_diagonal);
  }
  // On GPUs, a block computes one panel of right-hand sides. On CPUs, it computes enough panels for some microseconds
  // of work.
  const std::int64_t columns = spec.tn * spec.lanes, panels = ceil_div(m, columns);
  std::int64_t share = 1;
  if (tiles.vectors)
    share = std::max(std::min(panels, ceil_div(std::int64_t{1} << 19, n * n * columns)),
                     ceil_div(panels, 4 * std::max<std::int64_t>(1, tiles.compute_units)));
  LaunchArguments args;
  args.add(BufferView(*t.memory)), args.add(BufferView(*b.memory));
  for (const std::int64_t v : {n, m, share * columns, t.first, t.row_stride, t.column_stride, b.first, b.row_stride,
                               std::int64_t{unit_diagonal}})
    args.index(v);
  if (!spec.b_unit) args.index(b.column_stride);
  static auto& family = *new KernelFamily<SolveSpec>(trace_solve);
  family(spec).launch({static_cast<std::uint64_t>(ceil_div(panels, share)), 1, 1}, args);
}

void factorise(const MatrixBlock& a, const BufferView& failure, std::int64_t order) {
  const CholeskySpec spec = choose_cholesky(tiles_of(a.memory->storage->device()), a.memory->dtype);
  const std::int64_t n = a.rows;
  if (n > spec.size) {
    const std::int64_t half = half_of(n, spec.size), rest = n - half;
    const MatrixBlock corner = a.part(0, 0, half, half), panel = a.part(half, 0, rest, half),
                      last = a.part(half, half, rest, rest);
    factorise(corner, failure, order);
    solve_lower(corner, panel.transposed(), false);
    update(last, panel, panel.transposed(), -1, 1, true);
    return factorise(last, failure, order + half);
  }
  LaunchArguments args;
  args.add(BufferView(*a.memory)), args.add(BufferView(failure));
  for (const std::int64_t v : {n, a.first, a.row_stride, a.column_stride}) args.index(v);
  args.scalar(DType::i32, static_cast<std::uint32_t>(static_cast<std::int32_t>(order)));
  static auto& family = *new KernelFamily<CholeskySpec>(trace_cholesky);
  family(spec).launch({1, 1, 1}, args);
}

}  // namespace ops

namespace {

void check_real(const char* operation, const Array& a, const Array& b) {
  if (a.dtype() != b.dtype() || (a.dtype() != DType::f32 && a.dtype() != DType::f64))
    fail<DtypeError>(
        {.operation = operation,
         .with = {{"first", std::string(dtype_name(a.dtype()))}, {"second", std::string(dtype_name(b.dtype()))}},
         .wrong = "the dtype must be f32 or f64, and the same for all arrays",
         .remedy = "Convert them with astype(...)"});
}

void check_in_place(const char* operation, const Array& target) {
  for (std::size_t d = 0; d < target.shape().size(); ++d)
    if (target.strides()[d] == 0 && target.shape()[d] > 1)
      fail<ArgumentError>({.operation = operation,
                           .with = {{"shape", to_string(target.shape())}},
                           .wrong = "the array is broadcast, so its elements share memory",
                           .remedy = "Pass the original array, or a copy()"});
}

void check_system(const char* operation, const Array& t, const Array& b, const TriangularSystem& system) {
  if (t.rank() != 2 || t.shape(0) != t.shape(1) || (b.rank() != 1 && b.rank() != 2) ||
      b.shape(b.rank() == 2 && system.side == Side::right ? 1 : 0) != t.shape(0))
    fail<ShapeError>({.operation = operation,
                      .with = {{"t", to_string(t.shape())},
                               {"b", to_string(b.shape())},
                               {"side", system.side == Side::left ? "left" : "right"}},
                      .wrong = "t must be (n, n), and b must be (n,) or (n, m), or (m, n) for Side::right"});
  check_real(operation, t, b);
  if (t.device() != b.device())
    fail<DeviceError>({.operation = operation,
                       .with = {{"t on", to_string(t.device())}, {"b on", to_string(b.device())}},
                       .wrong = "the operands are on different devices",
                       .remedy = "Move one with to(...)"});
}

Attributes attributes_of(const TriangularSystem& system) {
  return {{"right", system.side == Side::right},
          {"upper", system.triangle == Triangle::upper},
          {"transposed", system.transposed},
          {"unit_diagonal", system.unit_diagonal}};
}

/// Overwrites b with x. The arguments must already be checked.
void solve_in_place(const char* operation, const Array& t, Array& b, const TriangularSystem& system) {
  if (b.size() == 0) return;
  BufferView views[] = {{}, t.view()};  // t is evaluated before b, because evaluating it may read b
  views[0] = b.view_for_writing();
  const std::int64_t n = b.shape()[0];
  ops::MatrixBlock blocks[] = {
      b.rank() == 2 ? ops::matrix_block_of(b, views[0]) : ops::MatrixBlock{&views[0], n, 1, 0, b.strides()[0], 1},
      ops::matrix_block_of(t, views[1])};
  ops::join_views(operation, views, blocks);
  auto& [x, triangle] = blocks;
  // x t = b is equivalent to t^T x^T = b^T. Reversing the order of the equations turns an upper triangle into a lower
  // one.
  const bool right = system.side == Side::right && b.rank() == 2,
             exchanged = system.transposed != (system.side == Side::right),
             lower = (system.triangle == Triangle::lower) != exchanged;
  if (right) x = x.transposed();
  if (exchanged) triangle = triangle.transposed();
  if (!lower) x = x.rows_reversed(), triangle = triangle.rows_reversed().columns_reversed();
  ops::solve_lower(triangle, x, system.unit_diagonal);
}

/// Returns the lower triangle with the diagonal halved.
Array half_lower(const Array& a) { return (tril(a) + tril(a, -1)) * 0.5; }

[[noreturn]] void not_positive_definite(std::int64_t order) {
  fail<ArgumentError>({.operation = "cholesky",
                       .with = {{"leading minor", std::to_string(order)}},
                       .wrong = "the matrix is not positive definite: its leading minor of this order is not positive",
                       .remedy = "Check that the matrix is symmetric, or add a constant to its diagonal"});
}

void check_square(const char* operation, const Array& a) {
  if (a.rank() != 2 || a.shape(0) != a.shape(1))
    fail<ShapeError>(
        {.operation = operation, .with = {{"a", to_string(a.shape())}}, .wrong = "a is not a square matrix"});
  check_real(operation, a, a);
}

void factorise_in_place(Array& a, const Array& failure, std::int64_t order) {
  if (a.size() == 0) return;
  const BufferView memory = a.view_for_writing(), told = failure.view_for_writing();
  ops::factorise(ops::matrix_block_of(a, memory), told, order);
}

}  // namespace

Array solve_triangular(const Array& t, const Array& b, const TriangularSystem& system) {
  detail::RuledOperation operation("solve_triangular", t, b);
  check_system("solve_triangular", t, b, system);
  Array x = b.copy();
  solve_in_place("solve_triangular", t, x, system);
  const auto rule = [&] {
    const auto backward = [system](Backward& back) {
      // Let s be t as used in the equations (possibly transposed). If s x = b, then dx = s^-1 (db - ds x).
      TriangularSystem against = system;
      against.transposed = !system.transposed;
      const Array to_b = solve_triangular(back.operand(0), back.adjoint(), against);
      back.add(1, [&] { return to_b; });
      back.add(0, [&] {
        const bool vector = back.shape(1).size() == 1;
        const Array x = vector ? back.result().unsqueeze(-1) : back.result(), g = vector ? to_b.unsqueeze(-1) : to_b;
        const bool right = system.side == Side::right && !vector,
                   exchanged = vector ? system.transposed != (system.side == Side::right) : system.transposed;
        const Array rows = right ? x.transpose() : g, columns = right ? g : x.transpose();
        const Array all = exchanged ? matmul(columns.transpose(), rows.transpose()) : matmul(rows, columns);
        const int past = system.unit_diagonal ? 1 : 0;
        return -(system.triangle == Triangle::lower ? tril(all, -past) : triu(all, past));
      });
    };
    return Rule{.backward = backward, .keeps = operand_bits(0), .keeps_result = true};
  };
  return operation.finish(
      std::move(x), [&] { return attributes_of(system); }, rule);
}

void solve_triangular_into(const Array& t, Array& b, const TriangularSystem& system) {
  const detail::Operation operation("solve_triangular_into", b, t);
  detail::check_write_target("solve_triangular_into", b), detail::check_stored_value("solve_triangular_into", t);
  check_system("solve_triangular_into", t, b, system);
  check_in_place("solve_triangular_into", b);
  solve_in_place("solve_triangular_into", t, b, system);
  operation.finish_in_place(b, [&] { return attributes_of(system); });
}

Array cholesky(const Array& a) {
  detail::RuledOperation operation("cholesky", a);
  check_square("cholesky", a);
  Array l = tril(a).copy(), failure = Array::zeros({1}, DType::i32, a.device());
  factorise_in_place(l, failure, 0);
  if (const std::int32_t order = failure.item<std::int32_t>(); order != 0) not_positive_definite(order);
  const auto rule = [] {
    const auto backward = [](Backward& b) {
      b.add(0, [&] {
        const Array l = b.result(), inner = half_lower(matmul(l.transpose(), tril(b.adjoint())));
        const Array left = solve_triangular(l, inner, {.transposed = true}),
                    both = solve_triangular(l, left, {.side = Side::right});
        return half_lower(both + both.transpose());
      });
    };
    return Rule{.backward = backward, .keeps_result = true};
  };
  return operation.finish(std::move(l), rule);
}

void cholesky_into(Array& a, Array& failure, std::int64_t order) {
  const detail::Operation operation("cholesky_into", a, failure);
  detail::check_write_target("cholesky_into", a), detail::check_write_target("cholesky_into", failure);
  check_square("cholesky_into", a);
  check_in_place("cholesky_into", a);
  if (failure.dtype() != DType::i32 || failure.size() != 1)
    fail<ArgumentError>(
        {.operation = "cholesky_into",
         .with = {{"failure", to_string(failure.shape())}, {"dtype", std::string(dtype_name(failure.dtype()))}},
         .wrong = "failure must be a single i32",
         .remedy = "Create it with Array::zeros({1}, DType::i32)"});
  if (failure.device() != a.device())
    fail<DeviceError>({.operation = "cholesky_into",
                       .with = {{"a on", to_string(a.device())}, {"failure on", to_string(failure.device())}},
                       .wrong = "the arrays are on different devices",
                       .remedy = "Use a separate `failure` array for each device"});
  if (order < 0 || order > (std::int64_t{1} << 31) - 1 - a.shape(0))
    fail<ArgumentError>({.operation = "cholesky_into",
                         .with = {{"order", std::to_string(order)}},
                         .wrong = "order must be at least 0, and order plus the rows of a below 2^31"});
  factorise_in_place(a, failure, order);
  Array written[] = {a, failure};
  operation.finish_in_place(std::span<Array>(written));
}

void check_cholesky(const Array& failure) {
  if (failure.dtype() != DType::i32)
    fail<DtypeError>({.operation = "check_cholesky",
                      .with = {{"failure", std::string(dtype_name(failure.dtype()))}},
                      .wrong = "failure must be i32"});
  std::int32_t least = 0;
  for (const std::int32_t order : failure.to_vector<std::int32_t>())
    if (order != 0 && (least == 0 || order < least)) least = order;
  if (least != 0) not_positive_definite(least);
}

}  // namespace tessera
