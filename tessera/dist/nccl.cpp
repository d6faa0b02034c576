// SPDX-License-Identifier: Apache-2.0
#include "tessera/dist/nccl.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "tessera/base/os/library.h"
#include "tessera/base/os/library_search.h"
#include "tessera/base/os/system.h"
#include "tessera/dist/error.h"

namespace tessera::dist {

namespace {

struct Maker {
  Backend backend;
  std::uint32_t vendor;  ///< of PCI
  const char *name, *variable, *stem, *file;
  const char *parent, *prefix, *below;  ///< folders of the vendor: /usr/local/cuda*/lib64
  const char* package;                  ///< of Python; null: none
};
constexpr Maker makers[NcclLibrary::number] = {{Backend::cuda, 0x10de, "NCCL", "TESSERA_NCCL_LIBRARY", "libnccl.so",
                                                "libnccl.so.2", "/usr/local", "cuda", "lib64", "nvidia"},
                                               {Backend::rocm, 0x1002, "RCCL", "TESSERA_RCCL_LIBRARY", "librccl.so",
                                                "librccl.so.1", "/opt", "rocm", "lib", nullptr}};

std::vector<std::string> candidates(const Maker& maker) {
  if (const auto named = os::environment(maker.variable)) return {*named};
  std::vector<std::string> names = {maker.file};
  std::vector<std::filesystem::path> folders = os::folders_named(maker.parent, maker.prefix, maker.below);
  if (maker.package != nullptr)
    for (std::filesystem::path& folder : os::python_library_folders(maker.package))
      folders.push_back(std::move(folder));
  for (std::string& file : os::library_files(folders, maker.stem)) names.push_back(std::move(file));
  return names;
}

}  // namespace

int NcclLibrary::index_for(Backend backend) {
  const auto at = std::ranges::find(makers, backend, &Maker::backend);
  return at == std::end(makers) ? -1 : static_cast<int>(at - makers);
}

NcclLibrary::NcclLibrary(int index) {
  const Maker& maker = makers[index];
  name_ = maker.name;
  const std::vector<std::string> files = candidates(maker);
  if (files.front() == "none") {
    reason_ = fmt::format("{} is 'none'", maker.variable);
    return;
  }
  if (os::environment("NCCL_COMM_BLOCKING") == "1") {  // a rank that waits for the library could not answer others
    reason_ = "NCCL_COMM_BLOCKING is 1";
    return;
  }
  if (!os::environment(maker.variable) && !os::display_card_of(maker.vendor)) {
    reason_ = "there is no GPU of this vendor";
    return;
  }
  const os::Library library = os::Library::open(files);
  if (!library.loaded()) {
    reason_ = library.reason();
    return;
  }
  std::string missing;
#define TESSERA_TAKE(member, symbol, ...)               \
  call.member = library.function<__VA_ARGS__>(#symbol); \
  if (call.member == nullptr && missing.empty()) missing = #symbol;
  TESSERA_NCCL(TESSERA_TAKE)
#undef TESSERA_TAKE
  int version = 0;
  if (!missing.empty()) {
    reason_ = fmt::format("{} has no {}: it is older than 2.14", library.file(), missing);
  } else if (const NcclCode code = call.version(&version); code != nccl_success) {
    reason_ = fmt::format("{}: ncclGetVersion: {}", library.file(), call.error_text(code));
  } else {
    version_ = version;
    name_ = fmt::format("{} {}.{}.{}", maker.name, version / 10000, version / 100 % 100, version % 100);
  }
}

const NcclLibrary& NcclLibrary::get(int index) {
  static const NcclLibrary* const libraries[number] = {new NcclLibrary(0), new NcclLibrary(1)};
  return *libraries[index];
}

void NcclLibrary::check(NcclCode code, const char* function, void* communicator) const {
  if (code == nccl_success || code == nccl_in_progress) return;
  const char* const more = call.last_error(communicator);
  fail<ConnectionError>(
      {.operation = function,
       .wrong = fmt::format("{}: {}{}{}", name_, call.error_text(code), more == nullptr || *more == 0 ? "" : ": ",
                            more == nullptr ? "" : more),
       .remedy = fmt::format("NCCL_DEBUG=INFO prints more. With TESSERA_{}_LIBRARY=none, the ranks exchange arrays "
                             "through host memory",
                             name_.substr(0, 4))});
}

NcclGroup::NcclGroup(const NcclLibrary& library, Round& round, const NcclId& id, Queue& queue)
    : library_(library), queue_(queue) {
  try {
    NcclConfig config;
    // The library reads which device is current, and continues in a thread of its own.
    queue_.submit_native("ncclCommInitRankConfig", {}, {}, [&](void*) {
      library.check(library.call.init(&communicator_, round.size(), id, round.rank(), &config),
                    "ncclCommInitRankConfig", nullptr);
    });
    round.wait([&] { return !in_progress(); });
  } catch (...) {
    abort();
    throw;
  }
}

NcclGroup::~NcclGroup() { abort(); }

/// Returns whether the library still works on the last call. Throws its error.
bool NcclGroup::in_progress() {
  NcclCode state = nccl_success;
  library_.check(library_.call.async_error(communicator_, &state), "ncclCommGetAsyncError", communicator_);
  library_.check(state, "ranks", communicator_);
  return state == nccl_in_progress;
}

void NcclGroup::abort() noexcept {
  if (communicator_ == nullptr || generation_ != os::fork_generation()) return;
  void* const ended = std::exchange(communicator_, nullptr);
  bool called = false;
  const auto call = [&](void*) { called = true, library_.call.abort(ended); };
  try {  // with the device's context, because the library restores the context that it finds
    queue_.submit_native("ncclCommAbort", {}, {}, call);
  } catch (...) {  // the device is lost
    if (!called) call(nullptr);
  }
}

void NcclGroup::exchange(Round& round, std::span<const Message> out, std::span<const Message> in) {
  if (communicator_ == nullptr)
    fail<ConnectionError>({.operation = "ranks", .wrong = library_.name() + " has failed in an earlier collective"});
  const auto address = [](const BufferView& view) {
    return static_cast<std::byte*>(view.storage->allocation().handle) + view.byte_offset;
  };
  std::vector<BufferView> reads, writes;
  for (const Message& m : out) reads.push_back(m.data), round.count_sent(m.data.bytes(), 1);
  for (const Message& m : in) writes.push_back(m.data);
  queue_.submit_native("ncclSend and ncclRecv", reads, writes, [&](void* stream) {
    // A group that was started must end, also after an error.
    NcclCode code = library_.call.group_start();
    const char* function = "ncclGroupStart";
    const auto add = [&](const auto& call, const char* name, const Message& m) {
      if (code != nccl_success && code != nccl_in_progress) return;
      code = call(address(m.data), m.data.bytes(), nccl_char, m.peer, communicator_, stream), function = name;
    };
    for (const Message& m : out) add(library_.call.send, "ncclSend", m);
    for (const Message& m : in) add(library_.call.receive, "ncclRecv", m);
    const NcclCode end = library_.call.group_end();
    library_.check(code, function, communicator_);
    library_.check(end, "ncclGroupEnd", communicator_);
    round.wait([&] { return !in_progress(); });  // the stream must not be used before
  });
}

void NcclGroup::finish(Round& round) {
  const Event end = queue_.record();
  round.wait([&] { return !in_progress() && end.done(); });
  end.wait();
}

}  // namespace tessera::dist
