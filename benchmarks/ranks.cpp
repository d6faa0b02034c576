// SPDX-License-Identifier: Apache-2.0
// Compares dist::all_reduce with MPI_Allreduce of the same library, in alternation.
//
//   script/cluster 2 --mpi mpich build/release/benchmarks/ranks
//
// This program initialises MPI itself and passes its communicator, so that both use one library. Only the declarations
// of the two functions that it calls are needed.
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "benchmarks/median.h"
#include "tessera/base/error.h"
#include "tessera/dist/launcher.h"
#include "tessera/dist/world.h"

namespace tessera {
namespace {

/// The functions and constants of one ABI. `Handle` is the type of communicators, dtypes and operations.
template <class Handle>
struct Mpi {
  int (*init)(int*, char***, int, int*);
  int (*finalize)();
  int (*all_reduce)(const void*, void*, int, Handle, Handle, Handle);
  Handle world, f32, sum;
};

template <class Handle>
int compare(const Mpi<Handle>& mpi) {
  int provided = 0;
  mpi.init(nullptr, nullptr, 3, &provided);  // MPI_THREAD_MULTIPLE in both ABIs
  {
    dist::World world{dist::MpiCommunicator(mpi.world)};
    if (world.first())
      fmt::print("{} ranks, {}\n    bytes     ours us   theirs us   ratio\n", world.size(), world.name());
    double logarithms = 0, worst = 0;
    int count = 0;
    for (std::int64_t bytes = 1024; bytes <= 64 << 20; bytes *= 4) {
      Array x = Array::zeros({bytes / 4});
      std::vector<float> in(static_cast<std::size_t>(bytes / 4)), out(in.size());
      std::vector<double> ours, theirs;
      const int runs = bytes < 1 << 20 ? 600 : bytes < 16 << 20 ? 40 : 10;
      for (int i = 0; i < runs; ++i) {
        world.barrier();
        double begin = now();
        all_reduce_into(world, x);
        ours.push_back(now() - begin);
        world.barrier();
        begin = now();
        mpi.all_reduce(in.data(), out.data(), static_cast<int>(in.size()), mpi.f32, mpi.sum, mpi.world);
        theirs.push_back(now() - begin);
      }
      const double ratio = median(ours) / median(theirs);
      logarithms += std::log(ratio), worst = std::max(worst, ratio), ++count;
      if (world.first())
        fmt::print("{:9} {:11.1f} {:11.1f} {:7.2f}\n", bytes, 1e6 * median(ours), 1e6 * median(theirs), ratio);
    }
    if (world.first()) fmt::print("geometric mean {:.2f}, worst {:.2f}\n", std::exp(logarithms / count), worst);
  }
  return mpi.finalize();
}

template <class F>
F* function(void* library, const char* name) {
  return reinterpret_cast<F*>(::dlsym(library, name));
}

template <class Handle>
Mpi<Handle> functions(void* library) {
  return {.init = function<int(int*, char***, int, int*)>(library, "MPI_Init_thread"),
          .finalize = function<int()>(library, "MPI_Finalize"),
          .all_reduce = function<int(const void*, void*, int, Handle, Handle, Handle)>(library, "MPI_Allreduce"),
          .world = {},
          .f32 = {},
          .sum = {}};
}

int run() {
  const auto launch = dist::find_launch();
  if (!launch) {
    fmt::print("Start this program with script/cluster: script/cluster 2 build/release/benchmarks/ranks\n");
    return 0;
  }
  if (launch->kind == dist::LauncherKind::open_mpi) {
    void* const library = ::dlopen("libmpi.so.40", RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr) fail<Error>({.operation = "ranks", .wrong = ::dlerror()});
    Mpi<void*> mpi = functions<void*>(library);
    mpi.world = ::dlsym(library, "ompi_mpi_comm_world"), mpi.f32 = ::dlsym(library, "ompi_mpi_float");
    mpi.sum = ::dlsym(library, "ompi_mpi_op_sum");
    return compare(mpi);
  }
  void* const library = ::dlopen("libmpich.so.12", RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) fail<Error>({.operation = "ranks", .wrong = ::dlerror()});
  Mpi<int> mpi = functions<int>(library);
  mpi.world = 0x44000000, mpi.f32 = 0x4c00040a, mpi.sum = 0x58000003;  // mpi.h of MPICH 4.0
  return compare(mpi);
}

}  // namespace
}  // namespace tessera

int main() {
  try {
    return tessera::run();
  } catch (const std::exception& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return 1;
  }
}
