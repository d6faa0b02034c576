// SPDX-License-Identifier: Apache-2.0
// Compares in-place operations on tiles of dense linear algebra on the CPU with OpenBLAS and its LAPACK, which are
// loaded at run time: products added to a tile, triangular solves, and Cholesky factorisation. Both run alternately. If
// a ratio is below 1, Tessera is faster.
//
// Usage: tiles [--large] [PART OF A ROW]. TESSERA_THREADS=1 uses one thread for each. The exit status is 2 if the
// library is missing (Debian: libopenblas0-pthread) or if no row matches.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "benchmarks/pairs.h"
#include "tessera/base/os/library.h"
#include "tessera/ops/linear_algebra.h"

namespace {

using namespace tessera;

// Functions of CBLAS and LAPACK for one dtype. The constants are row-major 101, not transposed 111, transposed 112,
// lower 122, non-unit diagonal 131, left 141 and right 142.
template <class T>
struct Blas {
  using Gemm = void(int, int, int, int, int, int, T, const T*, int, const T*, int, T, T*, int);
  using Syrk = void(int, int, int, int, int, T, const T*, int, T, T*, int);
  using Trsm = void(int, int, int, int, int, int, int, T, const T*, int, T*, int);
  using Gemv = void(int, int, int, int, T, const T*, int, const T*, int, T, T*, int);
  using Potrf = void(const char*, const int*, T*, const int*, int*);
  Gemm* gemm;
  Syrk* syrk;
  Trsm* trsm;
  Gemv* gemv;
  Potrf* potrf;

  explicit Blas(const os::Library& library) {
    const std::string t = sizeof(T) == 4 ? "s" : "d";
    const auto name = [&](const char* rest) { return "cblas_" + t + rest; };
    gemm = library.function<Gemm>(name("gemm").c_str()), syrk = library.function<Syrk>(name("syrk").c_str());
    trsm = library.function<Trsm>(name("trsm").c_str()), gemv = library.function<Gemv>(name("gemv").c_str());
    potrf = library.function<Potrf>((t + "potrf_").c_str());
  }
  bool complete() const { return gemm && syrk && trsm && gemv && potrf; }
};

enum class Work { update, symmetric, solve_right, solve_left, factorise, vector };
constexpr const char* names[] = {"c -= a b^T", "c -= a a^T lower", "x l^T = b", "l x = b", "cholesky", "y -= a x"};

struct Totals {
  std::string only;
  bool one_thread = false, right = true;
  double logarithms = 0;
  int count = 0;
};

template <class T>
void row(const Blas<T>& blas, Work work, int n, Totals& totals) {
  char text[96];
  std::snprintf(text, sizeof text, "%s %d %s", sizeof(T) == 4 ? "f32" : "f64", n, names[static_cast<int>(work)]);
  if (std::string(text).find(totals.only) == std::string::npos) return;
  const auto count = static_cast<std::size_t>(n), all = count * count;
  std::mt19937 engine(1);
  std::uniform_real_distribution<T> uniform(-1, 1);
  std::vector<T> a(all), b(all), spd(all), first(all);
  for (T& x : a) x = uniform(engine);
  for (T& x : b) x = uniform(engine);
  blas.gemm(101, 111, 112, n, n, n, 1, a.data(), n, a.data(), n, 0, spd.data(), n);
  for (std::size_t i = 0; i < count; ++i) spd[i * count + i] += static_cast<T>(n);
  std::vector<T> lower = spd;
  int info = 0;
  blas.potrf("U", &n, lower.data(), &n,
             &info);  // the upper triangle in column-major order is the lower triangle in row-major order
  first = work == Work::factorise ? spd : b;
  std::vector<T> theirs = first;

  const Device cpu{Backend::cpu, 0};
  const Array left = Array::from(a, Shape{n, n}, cpu), right = Array::from(b, Shape{n, n}, cpu),
              triangle = Array::from(lower, Shape{n, n}, cpu), vector = Array::from(b, Shape{n, n}, cpu).select(0, 0);
  Array out = Array::from(first, Shape{n, n}, cpu), failure = Array::zeros({1}, DType::i32, cpu);
  const Array left_t = left.transpose(), right_t = right.transpose();
  Array out_row = out.select(0, 0);
  // In-place operations start from the same input each time.
  const bool reload = work != Work::update && work != Work::symmetric && work != Work::vector;
  void* const memory = out.host_access().data();
  const auto us = [&] {
    if (reload) std::memcpy(memory, first.data(), all * sizeof(T));
    switch (work) {
      case Work::update: multiply_into(out, left, right_t, {.alpha = -1}); break;
      case Work::symmetric: multiply_into(out, left, left_t, {.alpha = -1, .lower = true}); break;
      case Work::solve_right: solve_triangular_into(triangle, out, {.side = Side::right, .transposed = true}); break;
      case Work::solve_left: solve_triangular_into(triangle, out); break;
      case Work::factorise: cholesky_into(out, failure); break;
      case Work::vector: multiply_into(out_row, left, vector, {.alpha = -1}); break;
    }
  };
  const auto them = [&] {
    if (reload) std::memcpy(theirs.data(), first.data(), all * sizeof(T));
    T* const c = theirs.data();
    switch (work) {
      case Work::update: blas.gemm(101, 111, 112, n, n, n, -1, a.data(), n, b.data(), n, 1, c, n); break;
      case Work::symmetric: blas.syrk(101, 122, 111, n, n, -1, a.data(), n, 1, c, n); break;
      case Work::solve_right: blas.trsm(101, 142, 122, 112, 131, n, n, 1, lower.data(), n, c, n); break;
      case Work::solve_left: blas.trsm(101, 141, 122, 111, 131, n, n, 1, lower.data(), n, c, n); break;
      case Work::factorise: blas.potrf("U", &n, c, &n, &info); break;
      case Work::vector: blas.gemv(101, 111, n, n, -1, a.data(), n, b.data(), 1, 1, c, 1); break;
    }
  };
  us(), them();
  double wrong = 0, size = 0;
  const std::vector<T> ours = out.to_vector<T>();
  for (std::size_t i = 0; i < all; ++i) {
    wrong = std::max(wrong, std::abs(static_cast<double>(ours[i]) - static_cast<double>(theirs[i])));
    size = std::max(size, std::abs(static_cast<double>(theirs[i])));
  }
  const bool right_result = wrong <= size * n * (sizeof(T) == 4 ? 6e-8 : 1.1e-16) && info == 0;
  const bench::Pair p = bench::time_pair(totals.one_thread, us, them, n > 256 ? 1.5 : 0.7);
  const double cube = 1e-3 * n * n * n;
  const double flops = work == Work::update      ? 2 * cube
                       : work == Work::factorise ? cube / 3
                       : work == Work::vector    ? 2e-3 * n * n
                                                 : cube;
  std::printf("%-28s %10.1f %10.1f %8.1f %8.1f %8.2f %8.2f..%-8.2f%s\n", text, p.theirs_us, p.ours_us,
              flops / p.theirs_us, flops / p.ours_us, p.median, p.low, p.high, right_result ? "" : "  WRONG RESULT");
  std::fflush(stdout);
  totals.logarithms += std::log(p.median), ++totals.count;
  totals.right = totals.right && right_result;
}

template <class T>
void rows(const os::Library& library, bool large, Totals& totals) {
  const Blas<T> blas(library);
  if (!blas.complete()) return;
  for (const int n : large ? std::vector<int>{64, 96, 128, 192, 256, 512, 1024, 2048} : std::vector<int>{64, 128, 256})
    for (const Work work :
         {Work::update, Work::symmetric, Work::solve_right, Work::solve_left, Work::factorise, Work::vector})
      row(blas, work, n, totals);
}

}  // namespace

int main(int argc, char** argv) {
  bool large = false;
  Totals totals;
  for (int i = 1; i < argc; ++i)
    std::strcmp(argv[i], "--large") == 0 ? void(large = true) : void(totals.only = argv[i]);
  const char* threads = std::getenv("TESSERA_THREADS");
  totals.one_thread = threads && std::strcmp(threads, "1") == 0;
  if (threads) ::setenv("OPENBLAS_NUM_THREADS", threads, 1);
  static const os::Library& library = *new os::Library(os::Library::open("libopenblas.so.0"));
  if (!library.loaded()) return std::printf("%s\n", library.reason().c_str()), 2;
  std::printf("%s, %s\n", device_info({Backend::cpu, 0}).name.c_str(),
              totals.one_thread ? "one thread" : "all threads");
  std::printf("%-28s %10s %10s %8s %8s %8s %8s..%-8s\n", "tile", "theirs us", "ours us", "GFLOP/s", "GFLOP/s", "ratio",
              "quartile", "quartile");
  rows<float>(library, large, totals);
  rows<double>(library, large, totals);
  if (totals.count == 0) return 2;
  std::printf("geometric mean of %d ratios: %.2f\n", totals.count, std::exp(totals.logarithms / totals.count));
  return totals.right ? 0 : 1;
}
