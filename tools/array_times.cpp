// SPDX-License-Identifier: Apache-2.0
// usage: array_times [DEVICE]
//
// Reads lines "OPERATION MILLISECONDS", repeats the array operation for that time, and answers with the microseconds
// per operation. tools/compare_array_times_with_numpy.py runs the same operations in NumPy. With TESSERA_THREADS=1,
// measures the processor time of the calling thread, which does not depend on other programs; otherwise elapsed time.
#include <time.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>

#include "tessera/array/array.h"
#include "tessera/array/functions.h"
#include "tessera/array/rearrange.h"
#include "tessera/array/statistics.h"
#include "tessera/device/context.h"
#include "tessera/fft/fft.h"
#include "tessera/linalg/linalg.h"
#include "tessera/ops/convolution.h"
#include "tessera/sparse/sparse.h"

namespace {

using namespace tessera;

Array numbers(Shape shape) {
  std::mt19937 engine(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> v(static_cast<std::size_t>(element_count(shape)));
  for (float& x : v) x = uniform(engine);
  return Array::from(v, shape);
}

// Returns x[::step] along an axis.
Array every(const Array& x, int axis, std::int64_t step) {
  return x.slice(axis, 0, x.shape()[static_cast<std::size_t>(axis)], step);
}

// A sparse matrix with the columns that `columns_of` returns for each row, and random values.
sparse::Csr sparse_matrix(std::int32_t rows, DType dtype,
                          const std::function<std::vector<std::int32_t>(std::int32_t)>& columns_of) {
  std::vector<std::int32_t> columns, offsets{0};
  for (std::int32_t i = 0; i < rows; ++i) {
    const auto of_row = columns_of(i);
    columns.insert(columns.end(), of_row.begin(), of_row.end());
    offsets.push_back(static_cast<std::int32_t>(columns.size()));
  }
  return {numbers({std::ssize(columns)}).astype(dtype), Array::from(columns), Array::from(offsets), {rows, rows}};
}
// The 5-point Laplacian of 1000 x 1000 points.
sparse::Csr laplacian(DType dtype) {
  constexpr std::int32_t n = 1000;
  return sparse_matrix(n * n, dtype, [](std::int32_t i) {
    std::vector<std::int32_t> out;
    if (i >= n) out.push_back(i - n);
    if (i % n > 0) out.push_back(i - 1);
    out.push_back(i);
    if (i % n < n - 1) out.push_back(i + 1);
    if (i < n * n - n) out.push_back(i + n);
    return out;
  });
}
sparse::Csr random_matrix(std::int32_t n, int each, DType dtype) {
  std::mt19937 engine(1);
  return sparse_matrix(n, dtype, [&](std::int32_t) {
    std::vector<std::int32_t> out;
    for (int k = 0; k < each; ++k) out.push_back(std::uniform_int_distribution<std::int32_t>(0, n - 1)(engine));
    std::ranges::sort(out);
    return out;
  });
}

std::map<std::string, std::function<Array()>> operations() {
  std::map<std::string, std::function<Array()>> out;
  for (const auto& [size, n] : {std::pair<std::string, std::int64_t>{"small", 8192}, {"large", 1 << 20}}) {
    const Array x = numbers({2 * n}), y = numbers({2 * n});
    out["add_every_second_" + size] = [=] { return every(x, 0, 2) + every(y, 0, 2); };
    out["copy_every_second_" + size] = [=] { return every(x, 0, 2).as_contiguous(); };
    out["copy_every_third_" + size] = [=] { return every(x, 0, 3).as_contiguous(); };
    out["scale_every_fifth_" + size] = [=] { return every(x, 0, 5) * 2.0f; };
    out["sum_" + size] = [=] { return sum(x); };
    out["argmax_" + size] = [=] { return argmax(x, 0); };
    const Array ints = x.astype(DType::i32) + 1;
    ints.eval();
    out["argmax_i32_" + size] = [=] { return argmax(ints, 0); };
  }
  const std::vector<std::pair<std::string, Shape>> matrices = {{"64x128", {64, 128}},
                                                               {"1000x1000", {1000, 1000}},
                                                               {"100x10000", {100, 10000}},
                                                               {"10000x100", {10000, 100}},
                                                               {"100000x10", {100000, 10}}};
  for (const auto& [name, shape] : matrices) {
    const Array x = numbers(shape);
    for (int axis : {0, 1}) {
      out["sum_" + name + "_axis" + std::to_string(axis)] = [=] { return sum(x, {axis}); };
      out["max_" + name + "_axis" + std::to_string(axis)] = [=] { return max(x, {axis}); };
      out["argmax_" + name + "_axis" + std::to_string(axis)] = [=] { return argmax(x, axis); };
    }
    out["transposed_" + name] = [=] { return x.transpose().as_contiguous(); };
    out["columns_" + name] = [=] { return x.slice(1, 1, shape[1] - 1).as_contiguous(); };
    out["every_second_row_and_column_" + name] = [=] { return every(every(x, 0, 2), 1, 2).as_contiguous(); };
    out["add_transposed_" + name] = [=] { return x.transpose() + 1.0f; };
  }
  const Array cube = numbers({100, 100, 100});
  for (int axis : {0, 1, 2}) out["sum_100x100x100_axis" + std::to_string(axis)] = [=] { return sum(cube, {axis}); };
  const Array m = numbers({1000, 1000}), row = numbers({1000}), column = numbers({1000, 1}),
              wide = numbers({1000, 1200});
  const Array narrow = numbers({100000, 10}), ten = numbers({10}), deep = numbers({50, 100, 200}),
              side = numbers({100, 1});
  out["sum_of_product_with_row"] = [=] { return sum(m * row); };
  out["sum_of_product_with_column"] = [=] { return sum(m * column); };
  out["sum_of_outer_product"] = [=] { return sum(row * column); };
  out["sum_of_outer_comparison"] = [=] { return sum(row == column); };
  out["max_of_difference_from_row"] = [=] { return max(abs(m - row)); };
  out["sum_of_doubled_columns"] = [=] { return sum(wide.slice(1, 0, 1000) * 2.0f); };
  out["sum_of_doubled_every_second_row"] = [=] { return sum(every(m, 0, 2) * 2.0f); };
  out["sum_of_product_with_row_of_10"] = [=] { return sum(narrow * ten); };
  out["sum_of_product_in_three_dimensions"] = [=] { return sum(deep * side); };

  std::mt19937 engine(2);
  const auto indices = [&](std::int64_t count, std::int64_t below) {
    std::vector<std::int64_t> v(static_cast<std::size_t>(count));
    for (std::int64_t& i : v) i = static_cast<std::int64_t>(engine() % static_cast<std::uint64_t>(below));
    return Array::from(v);
  };
  for (const auto& [count, bins, width] : {std::array<std::int64_t, 3>{1000, 16, 1},
                                           {100000, 16, 1},
                                           {1000000, 16, 1},
                                           {1000000, 1000000, 1},
                                           {1000, 1000, 1000},
                                           {10000, 1000, 64}}) {
    const auto of = [&](std::int64_t n) { return width == 1 ? Shape{n} : Shape{n, width}; };
    const Array at = indices(count, bins), table = numbers(of(bins)), values = numbers(of(count));
    out["scatter_add_" + std::to_string(count) + "_into_" + std::to_string(bins) + "_by_" + std::to_string(width)] =
        [=] { return scatter_add(table, at, values); };
  }
  for (const auto& [size, n] :
       {std::pair<std::string, std::int64_t>{"4Ki", 1 << 12}, {"256Ki", 1 << 18}, {"1Mi", 1 << 20}}) {
    std::vector<std::int32_t> v(static_cast<std::size_t>(n));
    for (std::int32_t& x : v) x = static_cast<std::int32_t>(engine());
    const Array whole = Array::from(v);
    out["divide_i32_by_7_" + size] = [=] { return whole / 7; };
  }
  for (std::int64_t n : {33, 65, 100, 128, 129, 200, 500, 1000}) {
    const Array rows = numbers({200000 / n, n}), doubles = rows.astype(DType::f64).eval();
    out["sort_rows_of_" + std::to_string(n)] = [=] { return sort(rows); };
    out["sort_f64_rows_of_" + std::to_string(n)] = [=] { return sort(doubles); };
    out["argsort_rows_of_" + std::to_string(n)] = [=] { return argsort(rows); };
  }
  for (std::int64_t n : {10, 1000, 1000000}) {
    const std::string of = "_of_" + std::to_string(n);
    const Array x = numbers({n}), y = numbers({n}), positive = (abs(x) + 0.5f).eval(), mask = (x > 0).eval();
    out["add" + of] = [=] { return x + y; };
    out["add_scalar" + of] = [=] { return x + 2.0f; };
    out["add_in_place" + of] = [=] {
      Array into = x;
      into += y;
      return into;
    };
    out["astype" + of] = [=] { return x.astype(DType::f64); };
    out["flip" + of] = [=] { return flip(x); };
    out["masked_select" + of] = [=] { return masked_select(x, mask); };
    out["nonzero" + of] = [=] { return nonzero(mask)[0]; };
    out["pow" + of] = [=] { return pow(positive, 1.5f); };
  }
  const Array mask2 = (m > 0).eval();
  out["nonzero_of_1000x1000"] = [=] {
    const auto both = nonzero(mask2);
    both[0].eval(), both[1].eval();
    return both[0];
  };
  for (const DType dtype : {DType::f32, DType::f64})
    for (const std::int64_t n : {64, 128, 256, 512, 1024, 2048}) {
      const Array a = numbers({n, n}).astype(dtype), s = (a + a.transpose()).as_contiguous(),
                  b = numbers({n}).astype(dtype);
      a.eval(), s.eval(), b.eval();
      const std::string of = "_" + std::to_string(n) + "_" + std::string(dtype_name(dtype));
      out["linalg_solve" + of] = [=] { return linalg::solve(a, b); };
      out["linalg_inv" + of] = [=] { return linalg::inv(a); };
      out["linalg_qr" + of] = [=] { return linalg::qr(a).r; };
      out["linalg_eigh" + of] = [=] { return linalg::eigh(s).eigenvectors; };
      out["linalg_svd" + of] = [=] { return linalg::svd(a).u; };
    }
  for (const auto& [size, n] : {std::pair<std::string, std::int64_t>{"1000", 1000}, {"1000000", 1000000}}) {
    const Array x = numbers({n}), near_one = x * 1e-7f + 1.0f, kernel = numbers({31}), rows = numbers({n / 100, 100});
    near_one.eval();
    out["roll_of_" + size] = [=] { return roll(x, 7); };
    out["roll_rows_of_" + size] = [=] { return roll(rows, 7, 1); };
    out["repeat_of_" + size] = [=] { return repeat(x, 3); };
    out["tile_of_" + size] = [=] { return tile(x, {3}); };
    out["diff_of_" + size] = [=] { return diff(x); };
    out["cumsum_of_" + size] = [=] { return cumsum(x); };
    out["cumprod_of_" + size] = [=] { return cumprod(near_one); };
    out["cummax_of_" + size] = [=] { return cummax(x); };
    out["cummax_columns_of_" + size] = [=] { return cummax(rows, 0); };
    out["prod_of_" + size] = [=] { return prod(near_one); };
    out["convolve_of_" + size] = [=] { return convolve(x, kernel); };
  }
  for (const DType dtype : {DType::f32, DType::f64}) {
    const auto add = [&](const std::string& name, const Shape& shape, int axis = -1) {
      const Array re = numbers(shape).astype(dtype), im = numbers(shape).astype(dtype);
      re.eval(), im.eval();
      const std::string of = "_" + name + "_" + std::string(dtype_name(dtype));
      out["fft" + of] = [=] { return fft::fft(Complex(re, im), {}, axis).real; };
      out["rfft" + of] = [=] { return fft::rfft(re, {}, axis).real; };
      const auto half = [&](const Array& a) { return a.slice(axis, 0, a.shape(axis) / 2 + 1).copy().eval(); };
      out["irfft" + of] = [=, z = Complex(half(re), half(im))] { return fft::irfft(z, re.shape(axis), axis); };
    };
    for (int bits = 4; bits <= 22; ++bits) add("2^" + std::to_string(bits), {std::int64_t{1} << bits});
    for (int bits = 4; bits <= 16; bits += 2)
      add("rows_of_2^" + std::to_string(bits), {std::int64_t{1} << (18 - bits), std::int64_t{1} << bits});
    for (const std::int64_t n : {60, 1000, 1009, 19683, 100000}) add(std::to_string(n), {n});
    add("columns_of_256", {256, 1024}, 0);
    const Array re = numbers({512, 512}).astype(dtype), im = re.copy();
    re.eval(), im.eval();
    out["fft2_512x512_" + std::string(dtype_name(dtype))] = [=] { return fft::fft2(Complex(re, im)).real; };
  }
  for (const DType dtype : {DType::f32, DType::f64}) {
    const auto add = [&](const std::string& name, const std::function<sparse::Csr()>& make) {
      // The matrix is made when it is first used.
      const auto known = std::make_shared<std::optional<sparse::Csr>>();
      const auto matrix = [=]() -> const sparse::Csr& { return *known ? **known : known->emplace(make()); };
      const std::string of = "_" + name + "_" + std::string(dtype_name(dtype));
      for (const std::int64_t width : {1, 16}) {
        const auto dense = std::make_shared<std::optional<Array>>();
        out["sparse_product_" + std::to_string(width) + of] = [=] {
          if (!*dense) *dense = numbers({matrix().shape[1], width}).astype(dtype).eval();
          return matmul(matrix(), **dense);
        };
      }
      out["sparse_transpose" + of] = [=] { return transpose(matrix()).values; };
      out["sparse_to_csr" + of] = [=] { return to_csr(transpose(to_coo(matrix()))).values; };
    };
    add("laplacian", [=] { return laplacian(dtype); });
    add("random", [=] { return random_matrix(100000, 20, dtype); });
    add("long_rows", [=] { return random_matrix(10000, 300, dtype); });
  }
  out["flip_of_1000x1000"] = [=] { return flip(m); };
  out["flip_rows_of_1000x1000"] = [=] { return flip(m, {0}); };
  return out;
}

}  // namespace

int main(int argc, char** argv) try {
  const DeviceScope scope(argc > 1 ? parse_device(argv[1]) : Device{Backend::cpu, 0});
  const auto all = operations();
  for (const auto& [name, operation] : all) std::printf("%s ", name.c_str());
  std::printf("\n");
  std::fflush(stdout);
  const char* const threads = std::getenv("TESSERA_THREADS");
  const clockid_t clock =
      threads != nullptr && std::strcmp(threads, "1") == 0 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
  const auto now = [clock] {
    timespec t{};
    ::clock_gettime(clock, &t);
    return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) * 1e-3;
  };
  std::string name;
  double milliseconds = 0;
  while (std::cin >> name >> milliseconds) {
    const auto& operation = all.at(name);
    const double start = now();
    double spent = 0;
    long times = 0;
    do {
      const int together = name.starts_with("linalg") || name.starts_with("sparse") ? 1 : 4;
      for (int i = 0; i < together; ++i, ++times) operation().eval();
      spent = now() - start;
    } while (spent < milliseconds * 1000);
    std::printf("%.3f\n", spent / static_cast<double>(times));
    std::fflush(stdout);
  }
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "array_times: %s\n", e.what());
  return 1;
}
