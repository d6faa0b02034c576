// SPDX-License-Identifier: Apache-2.0
// World: the processes (ranks) that a launcher such as mpirun started together, and collectives over their arrays.
#pragma once

#include <memory>
#include <source_location>
#include <string>
#include <vector>

#include "tessera/array/traversal.h"
#include "tessera/base/callback.h"
#include "tessera/base/owner.h"
#include "tessera/dist/error.h"
#include "tessera/dist/tree_reduce.h"
#include "tessera/nn/exchange.h"
#include "tessera/task/scope.h"

namespace tessera::dist {

class Transport;

/// The MPI_Comm of a program that has initialised MPI itself: `World world(MpiCommunicator(MPI_COMM_WORLD))`.
struct MpiCommunicator {
  /// Stores the handle, which is an int or a pointer, depending on the implementation of MPI.
  template <class Comm>
    requires(std::is_pointer_v<Comm> || std::is_same_v<Comm, int>)
  explicit MpiCommunicator(Comm communicator) {
    if constexpr (std::is_pointer_v<Comm>)
      handle = reinterpret_cast<std::uintptr_t>(communicator);
    else
      handle = static_cast<std::uintptr_t>(communicator);
  }
  std::uintptr_t handle = 0;  ///< The handle as a number.
};

/// A rank and the machine that it runs on.
struct RankInfo {
  int rank = 0;      ///< number in the World
  std::string host;  ///< name of its machine
  int process = 0;   ///< process id
};

/// The ranks of a job. Each rank is a process that runs the same program, and calls the same collectives in the same
/// order. Without a launcher there is one rank, and collectives return at once.
///
///   dist::World world;
///   auto [model, result] = fit(net, data, {.loss = loss, .epochs = 5, .ranks = &world});
///   if (world.first()) save_arrays(model, "model.safetensors");
///
/// Create one World, at the start of the program: it also divides the processor cores of a machine among its ranks, and
/// assigns its GPUs to them in turn. Messages are sent by MPI, which is opened at run time if a launcher is found.
/// Arrays on GPUs are sent by NCCL or RCCL (except in broadcasts) if all ranks have a GPU of their own and the library,
/// else through host memory. One thread of the World makes all calls of MPI. Only one thread at a time may call
/// collectives.
///
/// All collectives block. They throw MismatchError if ranks made different calls, and ConnectionError if a rank failed,
/// ended, or has not answered for TESSERA_RANKS_TIMEOUT seconds (60); the job then ends.
class World final : public Exchange {
 public:
  /// Joins the ranks that the launcher started. Throws ConnectionError if MPI cannot be opened or does not belong to
  /// the launcher.
  World();
  /// Uses the ranks of a communicator, which all of them must pass. The program must have called MPI_Init_thread with
  /// at least MPI_THREAD_SERIALIZED, and with MPI_THREAD_MULTIPLE if it calls MPI while the World exists. It finalises
  /// MPI itself, after the World was destroyed. Throws ConnectionError otherwise.
  explicit World(MpiCommunicator communicator);
  /// Uses a transport, for tests and for other means of communication.
  explicit World(Callback<std::unique_ptr<Transport>()> open);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int rank() const override;                   ///< Number of this rank, from 0.
  int size() const override;                   ///< Number of ranks.
  int local_rank() const;                      ///< Number of this rank among those of its machine.
  int local_size() const;                      ///< Number of ranks of its machine.
  const std::vector<RankInfo>& ranks() const;  ///< All ranks.
  /// Describes the means of communication: "Open MPI 4.1.4 (libmpi.so.40)". Empty if no launcher was found.
  const std::string& name() const;
  /// Name of the library that has exchanged arrays between GPUs: "NCCL 2.21.5". Empty if there was none so far.
  std::string gpu_library() const;
  std::uint64_t sent_bytes() const;     ///< Bytes that this rank has sent so far, without the headers of MPI.
  std::uint64_t sent_messages() const;  ///< Number of messages that this rank has sent so far.

  /// The devices of a backend on all ranks, for block arrays and tasks of regions: `world.all(cuda)`. With one rank,
  /// its devices. Called on all ranks. Throws DeviceError on all ranks if no rank has a usable device.
  Scope all(const BackendScope& backend = cpu);
  /// The devices of one rank: all, or those of a backend, as in `world.on(2, cuda)`. Called on all ranks. Throws
  /// ArgumentError if there is no such rank, and DeviceError, with the devices of the rank, if it has none of the
  /// backend.
  Scope on(int rank);
  Scope on(int rank, const BackendScope& backend);
  /// One device of a rank: `world.on(2, cuda, 1)`. Throws DeviceError if it does not exist there.
  Scope on(int rank, const BackendScope& backend, int index);
  std::uint64_t sent_tile_bytes() const;  ///< Bytes of tiles of block arrays that this rank has sent so far.

  /// Waits until all ranks have called it.
  void barrier(std::source_location where = std::source_location::current());

  // The functions below are used by training (nn/exchange.h).
  void start_sum(std::uint64_t step, const Array& array) override;
  void sum_step(std::uint64_t step, std::span<const Array> rows, StepFlags& flags) override;
  void sum(std::span<const Array> arrays) override;
  void broadcast(std::span<const Array> arrays, const std::string& what) override;
  std::string broadcast(const std::string& text, int root = 0) override;
  std::vector<std::uint64_t> gather(std::uint64_t number) override;

 private:
  friend struct WorldAccess;
  struct State;
  detail::Owner<State> state_;
};

/// The result of a collective that runs while this rank computes (all_reduce_async and others). Collectives run one
/// after another, in the order of their calls. Copies refer to the same result. If all copies are destroyed earlier,
/// the collective is completed nevertheless.
class Pending {
 public:
  /// Returns whether the collective has ended, successfully or with an error. Does not block.
  bool done() const;
  /// Waits for the end of the collective, and returns its result on the device of the input. Throws the exception of
  /// the collective. May be called by several threads, and by tasks.
  Array get() const;

 private:
  friend struct WorldAccess;
  struct State;
  Pending() = default;
  std::shared_ptr<State> state_;
};

/// Combines the elements of an array over all ranks in a fixed tree (tree_reduce.h), and returns the result on all
/// ranks. The array may be on any device; dtypes and numbers of elements must be equal on all ranks. Throws DtypeError
/// for sums of bool and means of integers.
Array all_reduce(World& world, const Array& x, Reduce how = Reduce::sum,
                 std::source_location where = std::source_location::current());
/// Like all_reduce, but writes the result to `x`.
void all_reduce_into(World& world, Array& x, Reduce how = Reduce::sum,
                     std::source_location where = std::source_location::current());
/// Like all_reduce, but returns the result on rank `root` only, and `x` on the others.
Array reduce(World& world, const Array& x, int root = 0, Reduce how = Reduce::sum,
             std::source_location where = std::source_location::current());
/// Returns the arrays of all ranks, which have equal shapes, with a new first axis of extent `world.size()`.
Array all_gather(World& world, const Array& x, std::source_location where = std::source_location::current());
/// Combines arrays of shape (n k, ...) over all n ranks, and returns elements [rank * k, (rank + 1) * k) of axis 0.
/// Throws ShapeError if the extent is not a multiple of the number of ranks.
Array reduce_scatter(World& world, const Array& x, Reduce how = Reduce::sum,
                     std::source_location where = std::source_location::current());

/// Like all_reduce, but returns without waiting for other ranks. `x` can be changed afterwards.
Pending all_reduce_async(World& world, const Array& x, Reduce how = Reduce::sum,
                         std::source_location where = std::source_location::current());
/// Like reduce, but returns without waiting for other ranks. `x` can be changed afterwards.
Pending reduce_async(World& world, const Array& x, int root = 0, Reduce how = Reduce::sum,
                     std::source_location where = std::source_location::current());
/// Like all_gather, but returns without waiting for other ranks. `x` can be changed afterwards.
Pending all_gather_async(World& world, const Array& x, std::source_location where = std::source_location::current());
/// Like reduce_scatter, but returns without waiting for other ranks. `x` can be changed afterwards.
Pending reduce_scatter_async(World& world, const Array& x, Reduce how = Reduce::sum,
                             std::source_location where = std::source_location::current());

namespace detail {
/// Replaces the contents of the arrays by those of rank `root`.
void broadcast_arrays(World& world, std::span<const Array> arrays, const std::string& layout, int root,
                      std::source_location where);
}  // namespace detail

/// Copies the arrays of any structure (array/traversal.h) from rank `root` to all: parameters, state, an optimiser. The
/// arrays keep their memory and devices. Throws MismatchError if shapes, dtypes or paths differ.
template <class T>
void broadcast(World& world, const T& structure, int root = 0,
               std::source_location where = std::source_location::current()) {
  std::vector<Array> arrays;
  std::string layout;
  for_each_array(structure, [&](const Array& a, const Path& path) {
    if (a.size() == 0) return;
    arrays.push_back(a);
    layout += path.text() + " " + to_string(a.shape()) + " " + std::string(dtype_name(a.dtype())) + "\n";
  });
  detail::broadcast_arrays(world, arrays, layout, root, where);
}

/// Runs `f(world)` on n threads of this process, each of which is a rank, and returns when all have ended. Rethrows the
/// first exception, by rank. Useful for tests and to try a program without a launcher. The ranks share this process's
/// devices and threads.
void threads(int n, const Callback<void(World&)>& f);

}  // namespace tessera::dist
