// SPDX-License-Identifier: Apache-2.0
// Opens the Level Zero loader and implements stream::Api with its functions. Streams are immediate command lists. Level
// Zero has no current context, and its events cannot be recorded repeatedly, so both are implemented here. Used only in
// this folder.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tessera/backend/oneapi/api.h"
#include "tessera/backend/stream/api.h"
#include "tessera/base/os/library.h"

namespace tessera::oneapi {

struct LoaderLibrary {
  os::Library file;
  std::string missing;  ///< name of a required function that the loader lacks
  LoaderFunctions call;
  bool usable() const { return file.loaded() && missing.empty(); }
};
/// Opens the file in TESSERA_ONEAPI_LIBRARY if it is set, otherwise the first of the usual files that loads.
LoaderLibrary open_loader();
std::vector<std::string> loader_candidates();

/// Returns the name, value and meaning of a code: "ZE_RESULT_ERROR_DEVICE_LOST (0x70000001), the device hung, ...".
std::string text_of(Code code);

class ZeDriver;

struct ZeStream;

/// A device, with the data that Level Zero calls need. Created once per process and never destroyed.
struct ZeDevice {
  ZeDriver* driver = nullptr;
  DeviceHandle handle = nullptr;
  std::uint32_t compute_group = 0;       ///< the queue group that runs kernels
  std::uint64_t largest_allocation = 0;  ///< in bytes, without relaxed limits; 0 if unknown
  std::uint64_t total_memory = 0;

  std::mutex lock;                              ///< guards the members below
  std::map<std::uint64_t, std::uint64_t> live;  ///< key: address of an allocation; value: its size in bytes
  std::uint64_t allocated = 0;
  std::vector<ZeStream*> forgotten;  ///< released wrappers of the program's lists whose work has not completed
};

/// A driver with one context for all of its devices and a pool of events. A Level Zero event is signalled once. It may
/// be reset only after all waits for it have completed, which shared pointers track.
class ZeDriver {
 public:
  ZeDriver(const LoaderFunctions& call, DriverHandle handle, std::uint32_t version)
      : handle(handle), version(version), call_(call) {}
  DriverHandle handle;
  std::uint32_t version;  ///< API version: major << 16 | minor
  ContextHandle context = nullptr;
  bool lists = false;  ///< true if the driver can append a closed list with one call; set by make_context()

  Code make_context();  ///< creates the context on the first call
  /// Gets an event that is not signalled. The event goes back to the pool when its last owner releases it.
  Code acquire_event(std::shared_ptr<Event_>* event);

 private:
  void release_event(Event event) noexcept;
  const LoaderFunctions& call_;
  std::mutex lock_;
  std::vector<Event> free_;
};

class ZeApi final : public stream::Api {
 public:
  explicit ZeApi(const LoaderFunctions& call) : call_(call) {}
  /// Adds a device. The first device has ordinal 0, the next one 1, and so on.
  void add(ZeDevice& device) { devices_.push_back(&device); }
  std::size_t count() const { return devices_.size(); }
  ZeDevice& device(int ordinal) const { return *devices_[static_cast<std::size_t>(ordinal)]; }
  const LoaderFunctions& call() const { return call_; }

  std::string code_text(Code code) const override { return text_of(code); }
  stream::Fault fault_of(Code code) const override;
  Code context_of(int ordinal, stream::Context* context) const override;
  Code current(stream::Context* context) const override;
  Code set_current(stream::Context context) const override;
  Code memory_info(std::size_t* free, std::size_t* total) const override;
  Code allocate(stream::Address* address, std::size_t bytes) const override;
  Code release(stream::Address address) const override;
  Code allocate_pinned(void** host, std::size_t bytes) const override;
  Code release_pinned(void* host) const override;
  Code create_stream(stream::Handle* stream) const override;
  Code destroy_stream(stream::Handle stream) const override;
  Code adopt_stream(void* native, stream::Handle* stream) const override;
  void forget_stream(stream::Handle stream) const override;
  void* native_stream(stream::Handle stream) const override;
  void* native_context(stream::Context context) const override;
  Code synchronize_stream(stream::Handle stream) const override;
  Code stream_wait_event(stream::Handle stream, stream::Handle event) const override;
  Code create_event(stream::Handle* event, bool blocking) const override;
  Code record_event(stream::Handle event, stream::Handle stream) const override;
  Code query_event(stream::Handle event) const override;
  Code synchronize_event(stream::Handle event) const override;
  Code destroy_event(stream::Handle event) const override;
  Code copy_to_device(stream::Address to, const void* from, std::size_t bytes, stream::Handle stream) const override;
  Code copy_to_host(void* to, stream::Address from, std::size_t bytes, stream::Handle stream) const override;
  Code copy_on_device(stream::Address to, stream::Address from, std::size_t bytes,
                      stream::Handle stream) const override;
  Code enable_peer(int ordinal, int peer_ordinal, stream::Context peer, bool* can) const override;
  Code copy_from_peer(stream::Address to, int ordinal, stream::Context context, stream::Address from, int peer_ordinal,
                      stream::Context peer, std::size_t bytes, stream::Handle stream) const override;
  Code fill(stream::Address to, std::uint32_t word, unsigned word_bytes, std::size_t count,
            stream::Handle stream) const override;
  Code load_module(const std::string& image, stream::Handle* module, std::string* log) const override;
  Code unload_module(stream::Handle module) const override;
  Code get_function(stream::Handle module, const char* entry, stream::Handle* function) const override;
  Code max_block_size(stream::Handle function, int* threads) const override;
  Code allow_shared(stream::Handle, std::size_t) const override { return 0; }  // kernels declare their size
  Code launch(stream::Handle function, const backend::Grid& grid, unsigned shared_bytes, stream::Handle stream,
              std::span<backend::BoundArgument> arguments) const override;
  // A graph and its executable are the same closed list. destroy_executable() destroys the list.
  bool graphs() const override;
  bool changing_nodes() const override { return false; }
  Code begin_capture(stream::Handle stream) const override;
  Code end_capture(stream::Handle stream, stream::Handle* graph) const override;
  void drop_capture(stream::Handle stream) const override;
  Code instantiate(stream::Handle graph, stream::Handle* executable) const override;
  Code destroy_graph(stream::Handle) const override { return 0; }
  Code destroy_executable(stream::Handle executable) const override;
  Code launch_graph(stream::Handle executable, stream::Handle stream) const override;

 private:
  const LoaderFunctions& call_;
  std::vector<ZeDevice*> devices_;
};

}  // namespace tessera::oneapi
