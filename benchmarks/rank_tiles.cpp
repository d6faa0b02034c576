// SPDX-License-Identifier: Apache-2.0
// Block arrays over ranks.
//
//   build/release/benchmarks/rank_tiles
//       plans the tasks of a Cholesky factorisation of 181 x 181 tiles as one of 16, 128 and 1,024 ranks, without
//       sending or computing anything: seconds, and the memory that it needs
//   OPENBLAS_NUM_THREADS=1 TESSERA_THREADS=1 script/cluster 2 --mpi openmpi build/release/benchmarks/rank_tiles
//       compares the factorisation with ScaLAPACK's (libscalapack-openmpi2.2), in alternation
//   script/cluster 4 --hosts 4 --mpi openmpi build/release/benchmarks/rank_tiles bytes
//       compares the bytes that both send from each host; requires root
#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "benchmarks/median.h"
#include "tessera/base/error.h"
#include "tessera/dist/launcher.h"
#include "tessera/dist/world.h"
#include "tessera/task/block_access.h"

namespace tessera {
namespace {

// --- Planning

/// One of many ranks, whose messages arrive at once.
class NoMessages final : public detail::RankMessages {
 public:
  NoMessages(int rank, int size) : rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::uint64_t epoch() const override { return 0; }
  std::uint64_t new_array() override { return ++arrays_; }
  std::uint32_t new_region() override { return ++regions_; }
  void submitted(const detail::Submission&) override {}
  void send(int, const detail::TileKey&, const detail::Submission&, std::span<const std::byte>,
            std::shared_ptr<void>, executor::NodeRef node) override {
    node->end();
  }
  void send_failure(int, const detail::TileKey&, const detail::Submission&, const std::string&) noexcept override {}
  void receive(int, const detail::TileKey&, const detail::Submission&, std::span<std::byte>,
               std::shared_ptr<void>, executor::NodeRef node) override {
    if (node) node->end();
  }
  void leave_region(const detail::Submission&) noexcept override {}
  detail::RegionResult end_region(const detail::RegionEnd&) override { return {}; }
  void broadcast(std::vector<std::byte>&, int) override {}

 private:
  const int rank_, size_;
  std::uint64_t arrays_ = 0;
  std::uint32_t regions_ = 0;
};

/// Memory of this process in MiB, and the most that it had.
double resident(const char* field) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (word == field) {
      double kilobytes = 0;
      status >> kilobytes;
      return kilobytes / 1024;
    }
  return 0;
}

void plan(int rank, int size) {
  const auto messages = std::make_shared<NoMessages>(rank, size);
  const Scope scope(std::make_shared<const detail::RankPlaces>(detail::RankPlaces{
      messages, std::vector<std::vector<Device>>(static_cast<std::size_t>(size), std::vector<Device>(1))}));
  constexpr std::int64_t n = 181;
  const double before = resident("VmRSS:"), begin = now();
  BlockArray a = BlockArray::zeros({n, n}, {1, 1}, DType::f32, scope);
  const double made = now();
  std::int64_t tasks = 0;
  {
    const auto nothing = [](const Array&, Array&) {};
    const auto update = [](const Array&, const Array&, Array&) {};
    Region r;
    for (std::int64_t k = 0; k < n; ++k) {
      r.spawn([](Array&) {}, inout(a.tile(k, k)));
      for (std::int64_t i = k + 1; i < n; ++i) r.spawn(nothing, in(a.tile(k, k)), inout(a.tile(i, k)));
      for (std::int64_t j = k + 1; j < n; ++j) {
        r.spawn(nothing, in(a.tile(j, k)), inout(a.tile(j, j)));
        for (std::int64_t i = j + 1; i < n; ++i)
          r.spawn(update, in(a.tile(i, k)), in(a.tile(j, k)), inout(a.tile(i, j)));
      }
      for (std::int64_t i = k; i < n; ++i) BlockArrayAccess::release(a, i, k);
      tasks += 1 + (n - k - 1) + (n - k - 1) * (n - k) / 2;
    }
  }
  const double seconds = now() - made;
  fmt::print("rank {:4} of {:4}: {} tasks in {:.2f} s, {:.0f} ns each; array {:.3f} s; {:.0f} MiB (most {:.0f})\n",
             rank, size, tasks, seconds, 1e9 * seconds / static_cast<double>(tasks), made - begin,
             resident("VmRSS:") - before, resident("VmHWM:") - before);
}

// --- ScaLAPACK

template <class F>
F* function(void* library, const char* name) {
  void* const found = ::dlsym(library, name);
  if (found == nullptr) fail<Error>({.operation = "rank_tiles", .wrong = std::string(name) + " was not found"});
  return reinterpret_cast<F*>(found);
}
void* open(const char* file) {
  void* const library = ::dlopen(file, RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) fail<Error>({.operation = "rank_tiles", .wrong = ::dlerror()});
  return library;
}

/// The factorisation of ScaLAPACK, with the same tiles and places as Tessera's.
class Scalapack {
 public:
  Scalapack(int ranks, int n, int tile) : n_(n) {
    void* const library = open("libscalapack-openmpi.so.2.2");
    factor_ =
        function<void(const char*, const int*, float*, const int*, const int*, const int*, int*)>(library, "pspotrf_");
    const auto get = function<void(int, int, int*)>(library, "Cblacs_get");
    const auto grid = function<void(int*, const char*, int, int)>(library, "Cblacs_gridinit");
    const auto info = function<void(int, int*, int*, int*, int*)>(library, "Cblacs_gridinfo");
    int context = 0, p = 1, rows = 0, columns = 0, row = 0, column = 0;
    for (int d = 1; d * d <= ranks; ++d)
      if (ranks % d == 0) p = d;
    get(-1, 0, &context);
    grid(&context, "Row", p, ranks / p);
    info(context, &rows, &columns, &row, &column);
    for (int i = row * tile; i < n; i += rows * tile) count(rows_, i, tile);
    for (int j = column * tile; j < n; j += columns * tile) count(columns_, j, tile);
    descriptor_ = {1, context, n, n, tile, tile, 0, 0, std::max(1, static_cast<int>(rows_.size()))};
    matrix_.resize(rows_.size() * columns_.size());
  }
  /// Fills the lower triangle of the local part, which is in column-major order.
  void fill(const Callback<float(int, int)>& element) {
    for (std::size_t j = 0; j < columns_.size(); ++j)
      for (std::size_t i = 0; i < rows_.size(); ++i) matrix_[j * rows_.size() + i] = element(rows_[i], columns_[j]);
  }
  void run() {
    const int one = 1;
    int failed = 0;
    factor_("L", &n_, matrix_.data(), &one, &one, descriptor_.data(), &failed);
    if (failed != 0) fail<Error>({.operation = "pspotrf", .wrong = "it failed"});
  }

 private:
  void count(std::vector<int>& list, int begin, int tile) const {
    for (int i = begin; i < std::min(begin + tile, n_); ++i) list.push_back(i);
  }
  const int n_;
  void (*factor_)(const char*, const int*, float*, const int*, const int*, const int*, int*);
  std::array<int, 9> descriptor_{};
  std::vector<int> rows_, columns_;
  std::vector<float> matrix_;
};

std::uint64_t wire_bytes() {
  std::ifstream file("/sys/class/net/eth0/statistics/tx_bytes");
  std::uint64_t bytes = 0;
  file >> bytes;
  return bytes;
}

int compare(bool bytes) {
  void* const mpi = open("libmpi.so.40");
  int provided = 0;
  function<int(int*, char***, int, int*)>(mpi, "MPI_Init_thread")(nullptr, nullptr, 3, &provided);
  {
    dist::World world{dist::MpiCommunicator(::dlsym(mpi, "ompi_mpi_comm_world"))};
    const int n = bytes ? 2048 : 4096, tile = bytes ? 128 : 256;
    // A symmetric matrix with a large diagonal; cheap to compute on each rank.
    const auto element = [n](int i, int j) {
      return i == j ? static_cast<float>(n) : 1.f / static_cast<float>(1 + std::abs(i - j) % 97);
    };
    std::vector<float> whole(static_cast<std::size_t>(n) * static_cast<std::size_t>(n));
    for (int i = 0; i < n; ++i)
      for (int j = 0; j < n; ++j)
        whole[static_cast<std::size_t>(i) * static_cast<std::size_t>(n) + static_cast<std::size_t>(j)] = element(i, j);
    const BlockArray from = BlockArray::from(Array::from(whole, Shape{n, n}), {tile, tile}, world.all());
    Scalapack scalapack(world.size(), n, tile);
    std::vector<double> ours, theirs, ratios;
    for (int i = 0; i < (bytes ? 3 : 11); ++i) {
      BlockArray a = from.copy();
      a.eval();
      world.barrier();
      std::uint64_t sent = wire_bytes();
      double begin = now();
      cholesky_into(a);
      world.barrier();
      ours.push_back(now() - begin);
      const std::uint64_t our_bytes = wire_bytes() - sent;
      scalapack.fill(element);
      world.barrier();
      sent = wire_bytes();
      begin = now();
      scalapack.run();
      world.barrier();
      theirs.push_back(now() - begin);
      ratios.push_back(theirs.back() / ours.back());
      if (!bytes || i != 2) continue;
      const std::uint64_t their_bytes = wire_bytes() - sent;
      const std::vector<std::uint64_t> all_ours = world.gather(our_bytes), all_theirs = world.gather(their_bytes);
      std::uint64_t total_ours = 0, total_theirs = 0;
      for (std::size_t r = 0; r < all_ours.size(); ++r) {
        if (world.first())
          fmt::print("rank {}: {:.2f} MB, ScaLAPACK {:.2f} MB\n", r, 1e-6 * static_cast<double>(all_ours[r]),
                     1e-6 * static_cast<double>(all_theirs[r]));
        total_ours += all_ours[r], total_theirs += all_theirs[r];
      }
      if (world.first())
        fmt::print("all: {:.2f} MB, ScaLAPACK {:.2f} MB, ratio {:.3f}\n", 1e-6 * static_cast<double>(total_ours),
                   1e-6 * static_cast<double>(total_theirs),
                   static_cast<double>(total_ours) / static_cast<double>(total_theirs));
    }
    std::ranges::sort(ratios);
    if (world.first() && !bytes)
      fmt::print(
          "Cholesky of {} in tiles of {} on {} ranks, f32: {:.3f} s, ScaLAPACK {:.3f} s; their time / ours: median "
          "{:.2f}, {:.2f} to {:.2f}\n",
          n, tile, world.size(), median(ours), median(theirs), median(ratios), ratios.front(), ratios.back());
  }
  return function<int()>(mpi, "MPI_Finalize")();
}

int run(bool bytes) {
  if (dist::find_launch()) return compare(bytes);
  for (const int size : {16, 128, 1024})
    for (const int rank : {0, size / 2 + 1}) plan(rank, size);
  return 0;
}

}  // namespace
}  // namespace tessera

int main(int count, char** arguments) {
  try {
    return tessera::run(count > 1 && std::strcmp(arguments[1], "bytes") == 0);
  } catch (const std::exception& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return 1;
  }
}
