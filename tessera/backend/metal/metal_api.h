// SPDX-License-Identifier: Apache-2.0
// Implements stream::Api with Metal's objects. A stream is a command queue with a command buffer that is being encoded.
// An address is a number that this backend assigns to a position in a buffer. Used only in this folder.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tessera/backend/metal/objc.h"
#include "tessera/backend/stream/api.h"

namespace tessera::metal {

using stream::Code;

/// Result codes. All errors except out_of_memory and refused mark the device as lost, because its results cannot be
/// trusted.
inline constexpr Code out_of_memory = 2, refused = 3, no_function = 500, not_ready = 600,
                      command_failed = 1000;  ///< the value of MTLCommandBufferError is added

/// A GPU. Created once per process and never destroyed.
struct MetalDevice {
  Id device = nullptr;
  bool unified = true;
  UInt largest_buffer = 0;

  Id library = nullptr, copy = nullptr, fill = nullptr;  ///< internal kernels that copy and fill
  UInt own_threads = 256;                                ///< block size of the internal kernels

  struct Buffer {
    Id buffer = nullptr;
    UInt bytes = 0;
  };
  std::mutex lock;  ///< guards the members below
  std::map<stream::Address, Buffer> buffers;
  std::map<std::uintptr_t, Buffer> pinned;  ///< key: host address
  stream::Address next = 1 << 20;
};

struct MetalStream {
  MetalDevice* device = nullptr;
  Owned queue;
  bool shared = false;    ///< true if the program may submit its own work to the queue
  Owned buffer, encoder;  ///< currently being encoded
  bool computes = false;  ///< true if the encoder encodes kernels, false if it encodes copies
  unsigned commands = 0;  ///< number of commands in the buffer
  std::vector<Owned> committed;
};

struct MetalEvent {
  std::mutex lock;
  Owned event, buffer;  ///< the shared event, and the command buffer that signals it
  UInt value = 0;
  MetalDevice* device = nullptr;
};

struct MetalFunction {
  Owned pipeline;
};
struct MetalModule {
  Owned library;
  std::vector<std::unique_ptr<MetalFunction>> functions;  ///< created on request
};

class MetalApi final : public stream::Api {
 public:
  explicit MetalApi(const Runtime& runtime) : runtime_(runtime) {}
  void add(Id device);
  std::size_t count() const { return devices_.size(); }
  MetalDevice& device(int ordinal) const { return *devices_[static_cast<std::size_t>(ordinal)]; }

  /// Compiles the internal kernels on the first call.
  Code prepare(MetalDevice& device) const;
  /// Compiles `text`. Returns null and sets `log` on failure.
  Owned compile(const MetalDevice& device, const std::string& text, std::string* log) const;

  std::string code_text(Code code) const override;
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
  bool waits_block() const override { return true; }
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
  /// Always sets `*can` to false. A Metal buffer belongs to one device, so copies between devices go through host
  /// memory.
  Code enable_peer(int, int, stream::Context, bool* can) const override {
    *can = false;
    return 0;
  }
  Code copy_from_peer(stream::Address, int, stream::Context, stream::Address, int, stream::Context, std::size_t,
                      stream::Handle) const override {
    return refused;
  }
  Code fill(stream::Address to, std::uint32_t word, unsigned word_bytes, std::size_t count,
            stream::Handle stream) const override;
  Code load_module(const std::string& image, stream::Handle* module, std::string* log) const override;
  Code unload_module(stream::Handle module) const override;
  Code get_function(stream::Handle module, const char* entry, stream::Handle* function) const override;
  Code max_block_size(stream::Handle function, int* threads) const override;
  Code allow_shared(stream::Handle, std::size_t) const override { return 0; }  // lowering has checked the limit
  Code launch(stream::Handle function, const backend::Grid& grid, unsigned shared_bytes, stream::Handle stream,
              std::span<backend::BoundArgument> arguments) const override;

 private:
  /// A position in a buffer.
  struct Place {
    Id buffer = nullptr;
    UInt offset = 0;
  };
  MetalDevice& current_metal_device() const;
  static Place place_of(MetalDevice& device, stream::Address address);
  static Place pinned_place(MetalDevice& device, const void* host);
  Owned new_buffer(MetalDevice& device, std::size_t bytes, UInt options) const;
  Owned pipeline_of(const MetalDevice& device, Id library, const char* name, std::string* log) const;

  Id writing(MetalStream& stream) const;
  Id encoder(MetalStream& stream, bool computes) const;
  void end_encoder(MetalStream& stream) const;
  void commit(MetalStream& stream) const;
  void count_command(MetalStream& stream) const;
  Code code_of(Id command_buffer) const;
  Code retire_completed(MetalStream& stream, bool all) const;
  Code copy(MetalStream& stream, Place to, Place from, std::size_t bytes) const;

  const Runtime& runtime_;
  std::vector<std::unique_ptr<MetalDevice>> devices_;
};

}  // namespace tessera::metal
