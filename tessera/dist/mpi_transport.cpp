// SPDX-License-Identifier: Apache-2.0
#include "tessera/dist/mpi_transport.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

#include "tessera/base/config.h"
#include "tessera/dist/error.h"
#include "tessera/dist/mpi_library.h"
#include "tessera/dist/mpi_start.h"

namespace tessera::dist {
namespace {

/// `Handle` is int for MPICH and void* for the other ABIs.
template <class Handle>
Handle handle_from(std::uintptr_t value) {
  if constexpr (std::is_pointer_v<Handle>)
    return reinterpret_cast<Handle>(value);
  else
    return static_cast<Handle>(value);
}
std::uintptr_t value_of(void* handle) { return reinterpret_cast<std::uintptr_t>(handle); }
std::uintptr_t value_of(int handle) { return static_cast<std::uint32_t>(handle); }

/// The functions and constants of a library.
template <class Handle>
struct Mpi {
  explicit Mpi(MpiLibrary opened) : library(std::move(opened)), constants(library.constants()) {
    std::string missing;
#define TESSERA_TAKE(member, symbol, ...)                       \
  call.member = library.library.function<__VA_ARGS__>(#symbol); \
  if (call.member == nullptr) missing += " " #symbol;
    TESSERA_MPI(TESSERA_TAKE)
#undef TESSERA_TAKE
    const MpiHandles predefined = library.handles();
    world = handle_from<Handle>(predefined.comm_world);
    byte = handle_from<Handle>(predefined.byte);
    errors_return = handle_from<Handle>(predefined.errors_return);
    if (predefined.byte == 0 || predefined.errors_return == 0) missing += " MPI_BYTE MPI_ERRORS_RETURN";
    if (!missing.empty())
      fail<ConnectionError>({.operation = "World",
                             .wrong = fmt::format("{} does not define{}", library.name(), missing),
                             .remedy = "Set TESSERA_MPI_LIBRARY to another library"});
  }

  void check(int code, const char* function, int rank, int peer = -1) const {
    if (code == mpi_success) return;
    std::string text(mpi_error_text, '\0');
    int length = 0;
    if (call.error_string(code, text.data(), &length) != mpi_success) text = "error " + std::to_string(code);
    text.resize(std::min(text.size(), text.find('\0')));
    const std::string peers = peer < 0 ? "" : fmt::format(", peer {}", peer);
    fail<ConnectionError>({.operation = "World",
                           .wrong = fmt::format("{} failed in {}{}: {}", function, library.name(),
                                                rank < 0 ? "" : fmt::format(" (rank {}{})", rank, peers), text)});
  }
  bool flag(int (*function)(int*)) const {
    int value = 0;
    return function(&value) == mpi_success && value != 0;
  }
  int number(int (*function)(Handle, int*), Handle communicator, const char* name) const {
    int value = 0;
    check(function(communicator, &value), name, -1);
    return value;
  }

  MpiLibrary library;
  const MpiConstants& constants;
  MpiFunctions<Handle> call;
  Handle world{}, byte{}, errors_return{};
};

/// Who ends MPI in this process.
enum class Finalise : unsigned char { program, transport, process_manager };

/// The connection to Hydra, by PMI version 1: one line per command. Other launchers have none.
class ProcessManager {
 public:
  ProcessManager() = default;
  explicit ProcessManager(LauncherKind launcher) {
    const auto number = config::integer("PMI_FD", 0, std::numeric_limits<int>::max());
    if (launcher == LauncherKind::hydra && number) descriptor_ = static_cast<int>(*number), socket_ = socket();
  }
  /// Tells Hydra that this process ends regularly, unless MPI_Finalize has already done it and closed the connection.
  /// Hydra kills the other processes if one ends without this command.
  void leave() const {
    if (socket_.empty() || socket() != socket_) return;
    std::FILE* const out = ::fdopen(descriptor_, "w");
    std::FILE* const in = ::fdopen(descriptor_, "r");
    char line[256];
    if (out != nullptr && in != nullptr && std::fputs("cmd=finalize\n", out) >= 0 && std::fflush(out) == 0)
      static_cast<void>(std::fgets(line, sizeof line, in));
  }

 private:
  /// Returns the number of the socket ("socket:[123]"), because the number of a closed descriptor is used again.
  std::string socket() const {
    std::error_code missing;
    const auto file = std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", descriptor_), missing).string();
    return file.starts_with("socket:") ? file : "";
  }
  int descriptor_ = -1;
  std::string socket_;
};

ProcessManager finalised_manager;  // of the job that this process has finalised

template <class Handle>
class MpiTransport final : public Transport {
 public:
  /// Duplicates the communicator.
  MpiTransport(Mpi<Handle> mpi, Handle communicator, Finalise finalise, bool any_thread, ProcessManager manager = {})
      : mpi_(std::move(mpi)), finalise_(finalise), any_thread_(any_thread), manager_(manager) {
    mpi_.check(mpi_.call.duplicate(communicator, &communicator_), "MPI_Comm_dup", -1);
    mpi_.check(mpi_.call.set_error_handler(communicator_, mpi_.errors_return), "MPI_Comm_set_errhandler", -1);
    rank_ = mpi_.number(mpi_.call.rank, communicator_, "MPI_Comm_rank");
    size_ = mpi_.number(mpi_.call.size, communicator_, "MPI_Comm_size");
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string name() const override { return fmt::format("{} ({})", mpi_.library.implementation, mpi_.library.file); }
  bool any_thread() const override { return any_thread_; }

  void send(Transfer& transfer, int to, int tag, std::span<const std::byte> message) override {
    start(transfer, to, message.size(), "MPI_Isend", [&](int count, Handle* request) {
      return mpi_.call.send(message.data(), count, mpi_.byte, to, tag, communicator_, request);
    });
  }
  void receive(Transfer& transfer, int from, int tag, std::span<std::byte> room) override {
    start(transfer, from, room.size(), "MPI_Irecv", [&](int count, Handle* request) {
      const int source = from == any_rank ? mpi_.constants.any_source : from;
      return mpi_.call.receive(room.data(), count, mpi_.byte, source, tag, communicator_, request);
    });
    transfer.bytes = not_arrived;
  }
  bool test(Transfer& transfer) override {
    if (!transfer.active) return true;
    Handle request = handle_from<Handle>(transfer.handle);
    MpiStatus status{};
    int completed = 0;
    const int code = mpi_.call.test(&request, &completed, &status);
    transfer.handle = value_of(request);
    if (code == mpi_success && completed == 0) return false;
    transfer.active = false;
    mpi_.check(code, "MPI_Test", rank_, transfer.peer);
    if (transfer.bytes == not_arrived) {
      int bytes = 0;
      mpi_.check(mpi_.call.get_count(&status, mpi_.byte, &bytes), "MPI_Get_count", rank_, transfer.peer);
      transfer.bytes = static_cast<std::size_t>(bytes);
      std::memcpy(&transfer.peer, status.bytes + mpi_.constants.status_source, sizeof transfer.peer);
    }
    return true;
  }
  void cancel(Transfer& transfer) override {
    if (!transfer.active) return;
    Handle request = handle_from<Handle>(transfer.handle);
    mpi_.check(mpi_.call.cancel(&request), "MPI_Cancel", rank_, transfer.peer);
    // Completes at once, unless a message is already arriving in the memory.
    MpiStatus status{};
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    int completed = 0, code = mpi_success;
    while ((code = mpi_.call.test(&request, &completed, &status)) == mpi_success && completed == 0) {
      if (std::chrono::steady_clock::now() > end)
        fail<ConnectionError>(
            {.operation = "World",
             .wrong = fmt::format("rank {} cannot cancel a receive from rank {}: the message began to "
                                  "arrive, but its rest has not come for 2 s",
                                  rank_, transfer.peer)});
      std::this_thread::yield();
    }
    transfer.active = false;
    mpi_.check(code, "MPI_Test", rank_, transfer.peer);
  }

  void abort(int code) override {
    std::thread([code] {  // in case that MPI_Abort waits for a process that does not answer
      std::this_thread::sleep_for(std::chrono::seconds(3));
      std::_Exit(code);
    })
        .detach();
    mpi_.call.abort(communicator_, code);
    std::_Exit(code);  // MPI_Abort does not return, but does not promise it
  }
  void close(bool regular) override {
    if (!regular || mpi_.flag(mpi_.call.finalized)) return;
    const MpiStartGuard guard(fmt::format("MPI_Finalize of {} (rank {})", mpi_.library.name(), rank_),
                              "Another rank may have failed");
    if (finalise_ == Finalise::process_manager) {
      mpi_.check(mpi_.call.barrier(communicator_), "MPI_Barrier", rank_);
      return manager_.leave();
    }
    mpi_.check(mpi_.call.free(&communicator_), "MPI_Comm_free", rank_);
    if (finalise_ != Finalise::transport) return;
    mpi_.check(mpi_.call.finalize(), "MPI_Finalize", rank_);
    finalised_manager = manager_;
  }

 private:
  /// Size of a message that has not arrived yet. Distinguishes receives from sends.
  static constexpr std::size_t not_arrived = ~std::size_t{0};

  template <class F>
  void start(Transfer& transfer, int peer, std::size_t bytes, const char* function, F&& call) {
    if (bytes > max_bytes)
      fail<ArgumentError>({.operation = "World",
                           .with = {{"bytes", std::to_string(bytes)}, {"limit", std::to_string(max_bytes)}},
                           .wrong = "the message is too large"});
    Handle request{};
    mpi_.check(call(static_cast<int>(bytes), &request), function, rank_, peer);
    transfer = {.handle = value_of(request), .active = true, .peer = peer, .bytes = bytes};
  }

  Mpi<Handle> mpi_;
  Handle communicator_{};
  const Finalise finalise_;
  const bool any_thread_;
  const ProcessManager manager_;
  int rank_ = 0, size_ = 0;
};

std::string remedy_for(const Launch& launch) {
  const char* const other = "or set TESSERA_MPI_LIBRARY to the library of the launcher";
  if (launch.kind == LauncherKind::slurm)
    return fmt::format("Use srun --mpi=pmix (Open MPI) or srun --mpi=pmi2 (MPICH, Intel MPI), {}", other);
  return fmt::format("Start the program with the mpirun of this library, {}", other);
}

/// Throws if the library does not see the processes that the launcher has started. Otherwise each process would be
/// rank 0 of a job of its own.
template <class Handle>
void check_size(const Mpi<Handle>& mpi, const Launch& launch) {
  const int size = mpi.number(mpi.call.size, mpi.world, "MPI_Comm_size");
  if (launch.size > 0 && size != launch.size)
    fail<ConnectionError>({.operation = "World",
                           .wrong = fmt::format("{} started {} process{}, but {} sees {}", launch.name, launch.size,
                                                launch.size == 1 ? "" : "es", mpi.library.name(), size),
                           .remedy = remedy_for(launch)});
}

/// Initialises MPI and compares what it reports with what the launcher announced.
template <class Handle>
std::unique_ptr<Transport> start(MpiLibrary library, const Launch& launch) {
  Mpi<Handle> mpi(std::move(library));
  const std::string name = mpi.library.name();
  if (mpi.flag(mpi.call.initialized))
    fail<ConnectionError>({.operation = "World",
                           .wrong = fmt::format("this process has already initialised {}", name),
                           .remedy = "A process can create one World. If the program uses MPI itself, create the World "
                                     "with its communicator"});
  int provided = 0;
  {
    const MpiStartGuard guard(fmt::format("MPI_Init_thread of {}, for a process of {},", name, launch.name),
                              "All processes of the job must create a World. If they do, set TESSERA_MPI_LIBRARY to "
                              "another library");
    mpi.check(mpi.call.init_thread(nullptr, nullptr, mpi.constants.thread_serialized, &provided), "MPI_Init_thread",
              launch.rank);
  }
  // If one of these checks fails, MPI is not finalised, because that could wait for other ranks.
  if (provided < mpi.constants.thread_funneled)
    fail<ConnectionError>({.operation = "World",
                           .wrong = fmt::format("{} does not support programs with several threads", name),
                           .remedy = "Use a build of it that provides MPI_THREAD_FUNNELED"});
  check_size(mpi, launch);
  const int rank = mpi.number(mpi.call.rank, mpi.world, "MPI_Comm_rank");
  if (rank != launch.rank)
    fail<ConnectionError>({.operation = "World",
                           .wrong = fmt::format("{} started this process as rank {}, but in {} it has rank {}",
                                                launch.name, launch.rank, name, rank),
                           .remedy = remedy_for(launch)});
  // MPICH reports some errors of requests to MPI_COMM_WORLD.
  mpi.check(mpi.call.set_error_handler(mpi.world, mpi.errors_return), "MPI_Comm_set_errhandler", rank);
  const bool any_thread = provided >= mpi.constants.thread_serialized;
  const Handle world = mpi.world;
  const bool skips_finalize = mpi.library.can_hang_in_finalize && launch.kind == LauncherKind::hydra;
  return std::make_unique<MpiTransport<Handle>>(std::move(mpi), world,
                                                skips_finalize ? Finalise::process_manager : Finalise::transport,
                                                any_thread, ProcessManager(launch.kind));
}

template <class Handle>
std::unique_ptr<Transport> adopt(MpiLibrary library, std::uintptr_t communicator) {
  Mpi<Handle> mpi(std::move(library));
  if (mpi.flag(mpi.call.finalized))
    fail<ConnectionError>({.operation = "World", .wrong = "the program has already called MPI_Finalize"});
  const Handle handle = handle_from<Handle>(communicator);
  if (communicator == 0 || communicator == mpi.library.handles().comm_null)
    fail<ArgumentError>({.operation = "World", .wrong = "the communicator is MPI_COMM_NULL"});
  if (const std::optional<Launch> launch = find_launch()) check_size(mpi, *launch);
  int level = 0;
  mpi.check(mpi.call.query_thread(&level), "MPI_Query_thread", -1);
  if (level < mpi.constants.thread_serialized)
    fail<ConnectionError>(
        {.operation = "World",
         .wrong =
             "the program has initialised MPI for calls from one thread only, but the World has a thread of its own",
         .remedy = "Call MPI_Init_thread with MPI_THREAD_SERIALIZED, or with MPI_THREAD_MULTIPLE if the program calls "
                   "MPI while the World exists"});
  return std::make_unique<MpiTransport<Handle>>(std::move(mpi), handle, Finalise::program, true);
}

}  // namespace

std::unique_ptr<Transport> open_mpi(const Launch& launch) {
  MpiLibrary library = open_mpi_library(launch);
  return library.abi == MpiAbi::mpich ? start<int>(std::move(library), launch)
                                      : start<void*>(std::move(library), launch);
}

std::unique_ptr<Transport> adopt_mpi(std::uintptr_t communicator) {
  MpiLibrary library = initialised_mpi_library();
  return library.abi == MpiAbi::mpich ? adopt<int>(std::move(library), communicator)
                                      : adopt<void*>(std::move(library), communicator);
}

void leave_launcher() { finalised_manager.leave(); }

}  // namespace tessera::dist
