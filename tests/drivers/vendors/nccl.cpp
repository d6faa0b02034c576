// SPDX-License-Identifier: Apache-2.0
// A fake of the functions of NCCL and RCCL that send messages between GPUs. Signatures, values and rules follow nccl.h.
// Does not include Tessera's declarations. Ranks may be threads or processes: messages are files in shared memory.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/drivers/faults.h"
#include "tests/drivers/vendors/paired_driver.h"

namespace {

using namespace tessera::fake;
namespace fs = std::filesystem;

constexpr int ok = 0, system_error = 2, internal_error = 3, invalid_argument = 4, invalid_usage = 5, remote_error = 6,
              in_progress = 7;
constexpr int types[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};  ///< bytes of each ncclDataType_t

const PairedDriver& driver() {
#ifdef TESSERA_FAKE_RCCL
  static const PairedDriver paired_driver("TESSERA_ROCM_LIBRARY", "hipGetDevice");
#else
  static const PairedDriver paired_driver("TESSERA_CUDA_LIBRARY", "cuCtxGetDevice");
#endif
  return paired_driver;
}
const Faults& faults() {
  static const Faults all = Faults::from_environment();
  return all;
}
int breach(const std::string& text, int code = invalid_usage) { return driver().breach("NCCL: " + text, code); }

struct Id {
  char bytes[128];
};
struct Config {
  std::size_t size;
  unsigned magic, version;
  int blocking;
};

/// A communicator: one rank of a group.
struct Rank {
  int rank, size, device;
  fs::path folder;
  bool joined = false, live = true;
  std::atomic<bool> ended = false;  ///< queued work must end
  int unfinished_polls = 0;         ///< how often the next calls of ncclCommGetAsyncError return ncclInProgress
  int error = ok;
  std::uint64_t groups = 0;                   ///< submitted so far
  std::vector<std::uint64_t> sent, received;  ///< numbers of messages by peer
};
std::mutex lock;
std::set<Rank*>& ranks() {
  static auto* all = new std::set<Rank*>;
  return *all;
}
std::uint64_t groups = 0, messages = 0, bytes_sent = 0;

Rank* of(void* handle) {
  std::lock_guard hold(lock);
  auto* const r = static_cast<Rank*>(handle);
  if (!ranks().contains(r) || !r->live) return breach("invalid communicator"), nullptr;
  return r;
}

struct Message {
  Rank* rank;
  int peer;
  bool receives;
  const void* address;
  std::size_t bytes;
  void* stream;
};
thread_local std::vector<Message> grouped;
thread_local int depth = 0;

/// Messages of one rank on one stream, which are sent and received when the stream reaches them.
struct Queued {
  Rank* rank;
  struct One {
    fs::path file;
    bool receives;
    std::size_t bytes;
  };
  std::vector<One> all;
};

void write(const fs::path& file, const void* data, std::size_t bytes) {
  const fs::path unfinished = file.string() + ".part";
  std::ofstream(unfinished, std::ios::binary)
      .write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
  std::error_code ignored;  // after an abort, the folder may be gone
  fs::rename(unfinished, file, ignored);
}

void transfer(void* state, void* const* data) {
  const std::unique_ptr<Queued> queued(static_cast<Queued*>(state));
  if (queued->rank->ended) return;
  for (std::size_t i = 0; i < queued->all.size(); ++i)
    if (!queued->all[i].receives) write(queued->all[i].file, data[i], queued->all[i].bytes);
  for (std::size_t i = 0; i < queued->all.size(); ++i) {
    const auto& [file, receives, bytes] = queued->all[i];
    if (!receives) continue;
    while (!fs::exists(file)) {
      if (queued->rank->ended) return;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    if (const std::size_t got = fs::file_size(file); got != bytes)
      breach("a message of " + std::to_string(got) + " bytes is received as " + std::to_string(bytes));
    std::ifstream(file, std::ios::binary).read(static_cast<char*>(data[i]), static_cast<std::streamsize>(bytes));
    fs::remove(file);
  }
}

int add(bool receives, void* handle, int peer, const void* address, std::size_t count, int type, void* stream) {
  Rank* const r = of(handle);
  if (r == nullptr) return invalid_argument;
  if (!r->joined || r->unfinished_polls > 0) return breach("a call while the last one is in progress");
  if (peer < 0 || peer >= r->size || peer == r->rank) return breach("there is no such peer", invalid_argument);
  if (type < 0 || type >= static_cast<int>(std::size(types))) return breach("an unknown type", invalid_argument);
  if (count == 0 || address == nullptr) return breach("an empty message", invalid_argument);
  if (driver().device_of(stream) != r->device) return breach("the stream does not belong to the communicator's device");
  if (depth == 0) return breach("messages outside of a group would wait for each other");
  grouped.push_back({r, peer, receives, address, count * static_cast<std::size_t>(types[type]), stream});
  return ok;
}

int submit_group() {
  const std::vector<Message> all = std::exchange(grouped, {});
  if (all.empty()) return ok;
  Rank* const r = all[0].rank;
  auto queued = std::make_unique<Queued>(r);
  std::vector<OutsideTouch> touches;
  {
    std::lock_guard hold(lock);
    ++r->groups, ++groups;
    if (const int code = faults().strikes("nccl", r->groups, internal_error, r->device)) return code;
    r->unfinished_polls = 2;
    if (const int code = faults().strikes("nccl-late", r->groups, remote_error, r->device))
      return r->error = code, in_progress;
    for (const Message& m : all) {
      if (m.rank != r || m.stream != all[0].stream) return breach("a group with several communicators or streams");
      const int from = m.receives ? m.peer : r->rank, to = m.receives ? r->rank : m.peer;
      auto& number = (m.receives ? r->received : r->sent)[static_cast<std::size_t>(m.peer)];
      const std::string name = std::to_string(from) + "-" + std::to_string(to) + "-" + std::to_string(number++);
      queued->all.push_back({r->folder / name, m.receives, m.bytes});
      touches.push_back({reinterpret_cast<std::uint64_t>(m.address), m.bytes, m.receives});
      if (!m.receives) ++messages, bytes_sent += m.bytes;
    }
  }
  const int code = driver().submit(all[0].stream, "ncclGroupEnd", touches.data(), static_cast<int>(touches.size()),
                                   transfer, queued.get());
  if (code != 0) return 1;
  static_cast<void>(queued.release());
  return in_progress;
}

/// Removes the files if all other ranks have left.
void leave(const fs::path& folder, int rank, int size) {
  std::error_code ignored;
  write(folder / ("left" + std::to_string(rank)), "", 0);
  for (int k = 0; k < size; ++k)
    if (!fs::exists(folder / ("left" + std::to_string(k)), ignored)) return;
  fs::remove_all(folder, ignored);
}

/// Whether all ranks have joined. Sets an error if two of them have the same GPU.
bool complete(Rank& r) {
  std::set<std::string> devices;
  for (int k = 0; k < r.size; ++k) {
    std::ifstream file(r.folder / ("rank" + std::to_string(k)));
    std::string device;
    if (!std::getline(file, device)) return false;
    if (!devices.insert(device).second) r.error = invalid_usage;
  }
  return true;
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int ncclGetVersion(int* version) { return *version = 22105, ok; }
EXPORT const char* ncclGetErrorString(int code) {
  static const char* const texts[] = {
      "no error",         "unhandled cuda error", "unhandled system error", "internal error",
      "invalid argument", "invalid usage",        "remote process exited",  "in progress"};
  return code >= 0 && code < 8 ? texts[code] : "unknown";
}
EXPORT const char* ncclGetLastError(void*) { return "a fault of the fake library"; }
EXPORT int ncclGetUniqueId(Id* id) {
  std::memset(id->bytes, 0, sizeof id->bytes);
  std::random_device random;
  const std::string folder = "/dev/shm/tessera_fake_nccl_" + std::to_string(getpid()) + "_" + std::to_string(random());
  fs::create_directory(folder);
  folder.copy(id->bytes, sizeof id->bytes - 1);
  return ok;
}
EXPORT int ncclCommInitRankConfig(void** communicator, int size, Id id, int rank, Config* config) {
  if (config == nullptr || config->magic != 0xcafebeef || config->version < 21400 || config->size < sizeof(Config))
    return breach("an invalid configuration", invalid_argument);
  if (config->blocking != 0) return breach("the fake supports only communicators that do not block");
  if (size < 1 || rank < 0 || rank >= size) return breach("there is no such rank", invalid_argument);
  const int device = driver().current_device();
  if (device < 0) return breach("no device is current");
  if (const Fault* f = faults().find("nccl-init", device)) {
    leave(id.bytes, rank, size);
    return f->code.value_or(system_error);
  }
  auto* const r = new Rank{.rank = rank, .size = size, .device = device, .folder = id.bytes};
  r->sent.resize(static_cast<std::size_t>(size)), r->received.resize(static_cast<std::size_t>(size));
  const fs::path file = r->folder / ("rank" + std::to_string(rank));
  if (fs::exists(file)) breach("two communicators have the same rank");
  const std::string text = std::to_string(device) + "\n";
  write(file, text.data(), text.size());
  std::lock_guard hold(lock);
  ranks().insert(r);
  return *communicator = r, in_progress;
}
EXPORT int ncclCommGetAsyncError(void* communicator, int* state) {
  Rank* const r = of(communicator);
  if (r == nullptr) return invalid_argument;
  std::lock_guard hold(lock);
  *state = in_progress;
  if (!r->joined && !(r->joined = complete(*r))) return ok;
  if (r->unfinished_polls > 0) return --r->unfinished_polls, ok;
  return *state = r->error, ok;
}
EXPORT int ncclCommAbort(void* communicator) {
  Rank* const r = of(communicator);
  if (r == nullptr) return invalid_argument;
  if (depth != 0) breach("an abort inside a group");
  std::lock_guard hold(lock);
  r->ended = true, r->live = false;
  leave(r->folder, r->rank, r->size);
  return ok;
}
EXPORT int ncclGroupStart() { return ++depth, ok; }
EXPORT int ncclGroupEnd() {
  if (depth == 0) return breach("ncclGroupEnd without ncclGroupStart");
  return --depth == 0 ? submit_group() : ok;
}
EXPORT int ncclSend(const void* data, std::size_t count, int type, int peer, void* communicator, void* stream) {
  return add(false, communicator, peer, data, count, type, stream);
}
EXPORT int ncclRecv(void* data, std::size_t count, int type, int peer, void* communicator, void* stream) {
  return add(true, communicator, peer, data, count, type, stream);
}

/// Returns the number of live "communicators", or the total number of "groups", "messages" or "bytes" sent.
EXPORT std::uint64_t tessera_fake_nccl(const char* what) {
  std::lock_guard hold(lock);
  const std::string asked = what;
  if (asked == "groups") return groups;
  if (asked == "messages") return messages;
  if (asked == "bytes") return bytes_sent;
  std::uint64_t n = 0;
  for (const Rank* r : ranks()) n += r->live;
  return n;
}
