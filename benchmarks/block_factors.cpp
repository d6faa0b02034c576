// SPDX-License-Identifier: Apache-2.0
// Compares LU and QR factorisations of block arrays on the CPU with those of OpenBLAS's LAPACK, which is loaded at run
// time, for the same matrices in one piece. Both run alternately. If a ratio is below 1, Tessera is faster. The times
// of Tessera include copies, because the factors are new block arrays; QR includes Q on both sides. All times are
// elapsed times, because tasks do not run on the calling thread.
//
// Usage: block_factors [PART OF A ROW]. TESSERA_THREADS=1 uses one thread for each. The exit status is 2 if the library
// is missing (Debian: libopenblas0-pthread) or if no row matches.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "benchmarks/pairs.h"
#include "tessera/base/os/library.h"
#include "tessera/task/block_factors.h"

namespace {

using namespace tessera;

// Functions of LAPACK, which takes column-major matrices.
template <class T>
struct Lapack {
  using Getrf = void(const int*, const int*, T*, const int*, int*, int*);
  using Geqrf = void(const int*, const int*, T*, const int*, T*, T*, const int*, int*);
  using Orgqr = void(const int*, const int*, const int*, T*, const int*, const T*, T*, const int*, int*);
  Getrf* getrf;
  Geqrf* geqrf;
  Orgqr* orgqr;

  explicit Lapack(const os::Library& library) {
    const std::string t = sizeof(T) == 4 ? "s" : "d";
    getrf = library.function<Getrf>((t + "getrf_").c_str()), geqrf = library.function<Geqrf>((t + "geqrf_").c_str());
    orgqr = library.function<Orgqr>((t + "orgqr_").c_str());
  }
  bool complete() const { return getrf && geqrf && orgqr; }
};

template <class T>
int rows(const os::Library& library, const std::string& only) {
  const Lapack<T> lapack(library);
  if (!lapack.complete()) return 0;
  int count = 0;
  for (const int n : {1024, 2048, 4096})
    for (const std::int64_t side : {128, 256, 512})
      for (const bool lu : {true, false}) {
        char text[96];
        std::snprintf(text, sizeof text, "%s %s %d in tiles of %d", dtype_v<T> == DType::f32 ? "f32" : "f64",
                      lu ? "lu" : "qr", n, static_cast<int>(side));
        if (std::string(text).find(only) == std::string::npos) continue;
        BlockArray a = BlockArray::random_normal({n, n}, {side, side}, 1, cpu()).astype(dtype_v<T>);
        a.eval();
        const std::vector<T> whole = a.gather(Device{}).template to_vector<T>();
        std::vector<T> memory, tau(static_cast<std::size_t>(n)), work(static_cast<std::size_t>(n) * 64);
        std::vector<int> pivots(static_cast<std::size_t>(n));
        const int size = static_cast<int>(work.size());
        int info = 0;
        const auto us = [&] {
          if (lu)
            linalg::lu(a);
          else
            linalg::qr(a);
        };
        const auto them = [&] {
          memory = whole;
          if (lu) return lapack.getrf(&n, &n, memory.data(), &n, pivots.data(), &info);
          lapack.geqrf(&n, &n, memory.data(), &n, tau.data(), work.data(), &size, &info);
          lapack.orgqr(&n, &n, &n, memory.data(), &n, tau.data(), work.data(), &size, &info);
        };
        const bench::Pair p = bench::time_pair(false, us, them, 3);
        const double flops = (lu ? 2.0 / 3 : 8.0 / 3) * n * static_cast<double>(n) * n * 1e-3;
        std::printf("%-34s %10.1f %10.1f %8.1f %8.1f %8.2f %8.2f..%.2f%s\n", text, p.theirs_us, p.ours_us,
                    flops / p.theirs_us, flops / p.ours_us, p.median, p.low, p.high, info == 0 ? "" : "  FAILED");
        std::fflush(stdout);
        ++count;
      }
  return count;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string only = argc > 1 ? argv[1] : "";
  const char* threads = std::getenv("TESSERA_THREADS");
  if (threads) ::setenv("OPENBLAS_NUM_THREADS", threads, 1);
  static const os::Library& library = *new os::Library(os::Library::open("libopenblas.so.0"));
  if (!library.loaded()) return std::printf("%s\n", library.reason().c_str()), 2;
  std::printf("%s, threads: %s\n", device_info({Backend::cpu, 0}).name.c_str(), threads ? threads : "all");
  std::printf("%-34s %10s %10s %8s %8s %8s %8s..%s\n", "matrix", "theirs us", "ours us", "GFLOP/s", "GFLOP/s", "ratio",
              "quartile", "quartile");
  return rows<float>(library, only) + rows<double>(library, only) == 0 ? 2 : 0;
}
