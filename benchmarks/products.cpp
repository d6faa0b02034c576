// SPDX-License-Identifier: Apache-2.0
// Compares products of f32 and f64 on the CPU with common libraries, which are loaded at run time: sgemm of oneDNN, and
// dgemm of OpenBLAS (oneDNN has no dgemm). Tessera and the library run alternately. If a ratio is below 1, Tessera is
// faster.
//
// Usage: products [--large] [PART OF A ROW]. TESSERA_THREADS=1 uses one thread for each. The exit status is 2 if a
// library is missing (Debian: libdnnl2, libopenblas0-pthread) or if no row matches.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "benchmarks/pairs.h"
#include "tessera/array/array.h"
#include "tessera/base/os/library.h"
#include "tessera/ops/product.h"

namespace {

using namespace tessera;

using Sgemm = int(char, char, std::int64_t, std::int64_t, std::int64_t, float, const float*, std::int64_t, const float*,
                  std::int64_t, float, float*, std::int64_t);
using Dgemm = void(int, int, int, int, int, int, double, const double*, int, const double*, int, double, double*, int);

template <class F>
F* entry(const char* file, const char* name) {
  static auto& open = *new std::vector<os::Library>;
  open.push_back(os::Library::open(file));
  if (!open.back().loaded()) std::printf("%s\n", open.back().reason().c_str());
  return open.back().loaded() ? open.back().function<F>(name) : nullptr;
}

struct Row {
  DType dtype;
  std::int64_t m, n, k;
  bool left_transposed, right_transposed;
  std::string text() const {
    char out[96];
    std::snprintf(out, sizeof out, "%s %s%s %lldx%lldx%lld", dtype == DType::f32 ? "f32" : "f64",
                  left_transposed ? "t" : "n", right_transposed ? "t" : "n", static_cast<long long>(m),
                  static_cast<long long>(n), static_cast<long long>(k));
    return out;
  }
};

std::vector<Row> rows(bool large) {
  std::vector<Row> out;
  for (DType t : {DType::f32, DType::f64}) {
    for (std::int64_t n : {16, 24, 32, 48, 64}) out.push_back({t, n, n, n, false, false});
    for (std::int64_t n : {128, 256}) out.push_back({t, n, n, n, false, false});
    for (std::int64_t n : {512, 1024, 2048})
      for (int how = 0; how < 4; ++how)
        if (how == 0 || n < 2048) out.push_back({t, n, n, n, how / 2 == 1, how % 2 == 1});
    if (large) out.push_back({t, 4096, 4096, 4096, false, false});
    for (int how = 0; how < 4; ++how) {
      out.push_back({t, 128, 512, 784, how / 2 == 1, how % 2 == 1});
      out.push_back({t, 4096, 512, 192, how / 2 == 1, how % 2 == 1});
    }
    for (std::int64_t m : {1, 4, 16}) out.push_back({t, m, 2048, 2048, false, true});
    out.push_back({t, 16, 2048, 2048, false, false});
  }
  return out;
}

template <class T>
std::vector<T> numbers(std::size_t n, unsigned seed) {
  std::vector<T> v(n);
  std::mt19937 engine(seed);
  std::uniform_real_distribution<T> uniform(-1, 1);
  for (T& x : v) x = uniform(engine);
  return v;
}

template <class T, class Theirs>
bool row(const Row& r, bool one_thread, double& logarithms, int& count, Theirs&& gemm) {
  const auto size = [](std::int64_t a, std::int64_t b) { return static_cast<std::size_t>(a * b); };
  const auto a = numbers<T>(size(r.m, r.k), 1), b = numbers<T>(size(r.k, r.n), 2);
  std::vector<T> theirs(size(r.m, r.n));
  const Device cpu{Backend::cpu, 0};
  Array left = Array::from(a, r.left_transposed ? Shape{r.k, r.m} : Shape{r.m, r.k}, cpu),
        right = Array::from(b, r.right_transposed ? Shape{r.n, r.k} : Shape{r.k, r.n}, cpu);
  if (r.left_transposed) left = left.transpose();
  if (r.right_transposed) right = right.transpose();
  Array out;
  const auto us = [&] { out = matmul(left, right); };
  const auto them = [&] { gemm(a.data(), b.data(), theirs.data()); };
  const bench::Pair p =
      bench::time_pair(one_thread, us, them, r.m * r.n * r.k > (1 << 24) ? 1.5 : 0.5, r.m * r.n * r.k > 32 * 32 * 32);
  const auto ours = out.to_vector<T>();
  double wrong = 0;
  for (std::size_t i = 0; i < ours.size(); ++i)
    wrong = std::max(wrong, static_cast<double>(std::abs(ours[i] - theirs[i])));
  wrong /= std::sqrt(static_cast<double>(r.k)) * (sizeof(T) == 4 ? 6e-8 : 1.1e-16);
  const double flops = 2e-3 * static_cast<double>(r.m) * static_cast<double>(r.n) * static_cast<double>(r.k);
  std::printf("%-24s %10.1f %10.1f %8.1f %8.1f %8.2f %8.2f..%-8.2f%s\n", r.text().c_str(), p.theirs_us, p.ours_us,
              flops / p.theirs_us, flops / p.ours_us, p.median, p.low, p.high, wrong < 100 ? "" : "  WRONG RESULT");
  std::fflush(stdout);
  logarithms += std::log(p.median), ++count;
  return wrong < 100;
}

}  // namespace

int main(int argc, char** argv) {
  bool large = false;
  std::string only;
  for (int i = 1; i < argc; ++i) std::strcmp(argv[i], "--large") == 0 ? void(large = true) : void(only = argv[i]);
  const char* threads = std::getenv("TESSERA_THREADS");
  const bool one_thread = threads && std::strcmp(threads, "1") == 0;
  if (threads) ::setenv("OMP_NUM_THREADS", threads, 1), ::setenv("OPENBLAS_NUM_THREADS", threads, 1);
  auto* const sgemm = entry<Sgemm>("libdnnl.so.2", "dnnl_sgemm");
  auto* const dgemm = entry<Dgemm>("libopenblas.so.0", "cblas_dgemm");
  if (!sgemm || !dgemm) return 2;
  std::printf("%s, %s\n", device_info({Backend::cpu, 0}).name.c_str(), one_thread ? "one thread" : "all threads");
  std::printf("%-24s %10s %10s %8s %8s %8s %8s..%-8s\n", "product m x n x k", "theirs us", "ours us", "GFLOP/s",
              "GFLOP/s", "ratio", "quartile", "quartile");
  double logarithms = 0;
  int count = 0;
  bool right = true;
  for (const Row& r : rows(large)) {
    if (r.text().find(only) == std::string::npos) continue;
    const std::int64_t lda = r.left_transposed ? r.m : r.k, ldb = r.right_transposed ? r.k : r.n;
    if (r.dtype == DType::f32)
      right &= row<float>(r, one_thread, logarithms, count, [&](const float* a, const float* b, float* c) {
        sgemm(r.left_transposed ? 'T' : 'N', r.right_transposed ? 'T' : 'N', r.m, r.n, r.k, 1, a, lda, b, ldb, 0, c,
              r.n);
      });
    else
      right &= row<double>(r, one_thread, logarithms, count, [&](const double* a, const double* b, double* c) {
        const auto i = [](std::int64_t v) { return static_cast<int>(v); };
        dgemm(101, r.left_transposed ? 112 : 111, r.right_transposed ? 112 : 111, i(r.m), i(r.n), i(r.k), 1, a, i(lda),
              b, i(ldb), 0, c, i(r.n));
      });
  }
  if (count == 0) return 2;
  std::printf("geometric mean of %d ratios: %.2f\n", count, std::exp(logarithms / count));
  return right ? 0 : 1;
}
