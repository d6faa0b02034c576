// SPDX-License-Identifier: Apache-2.0
// An open device, its queues, kernels and events. Used only in this folder. Other code uses the interfaces
// DriverDevice, DriverQueue, LoadedKernel and DriverEvent.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tessera/backend/stream/errors.h"
#include "tessera/device/driver.h"
#include "tessera/device/launch/kernel_pack.h"

namespace tessera::stream {

/// A device. Created once per process and never destroyed. Its primary context is retained when it is first opened.
class DeviceContext {
 public:
  DeviceContext(Vendor& vendor, DeviceFacts facts) : vendor(vendor), facts(std::move(facts)) {}
  DeviceContext(const DeviceContext&) = delete;

  Vendor& vendor;
  DeviceFacts facts;
  Context context = 0;
  bool open = false;

  const Api& api() const { return vendor.api(); }
  std::string name() const { return to_string(facts.info.device); }
  void check(Code code, const char* doing) const {
    if (code != success) stream::check(api(), code, doing, name());
  }

  Handle acquire_event();  ///< returns an event from the pool or a new one; the context must be current
  void release_event(Handle event) noexcept;
  /// Waits until the event's work has ended, and returns its error. TESSERA_WAIT selects how; by default, polls for a
  /// short time, and then blocks in the driver. The context must be current.
  Code wait_for(Handle event) const;
  /// Waits in the same way until all work of the stream has ended, and returns its error.
  Code wait_for_stream(Handle stream);

 private:
  std::mutex lock_;
  std::vector<Handle> events_;  ///< the pool: events that are not in use
};

/// Sets the capture mode of this thread to relaxed while the object exists. PyTorch and other libraries capture streams
/// in the strictest mode. Allocations and waits on any other thread then fail and invalidate the capture, unless that
/// thread is in relaxed mode (cuThreadExchangeStreamCaptureMode).
class Relaxed {
 public:
  explicit Relaxed(const Api& api) : api_(api) { api.exchange_capture_mode(&mode_); }
  ~Relaxed() { api_.exchange_capture_mode(&mode_); }
  Relaxed(const Relaxed&) = delete;
  Relaxed& operator=(const Relaxed&) = delete;

 private:
  const Api& api_;
  int mode_ = Api::capture_relaxed;  ///< the mode to set next: relaxed, then the previous mode
};

/// Makes the device's context current on this thread. The destructor restores the previous context, because the caller
/// may use another device or capture a stream.
class ContextScope {
 public:
  /// The calls made in this scope. `enqueuing` only submits work to Tessera's streams, which is allowed even if other
  /// code captures a stream.
  enum Doing { anything, enqueuing };
  explicit ContextScope(const DeviceContext& device, Doing doing = anything);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  const DeviceContext& device_;
  std::optional<Relaxed> relaxed_;
  Context before_ = 0;
};

class StreamEvent final : public DriverEvent {
 public:
  StreamEvent(Handle event, DeviceContext& device) : event_(event), device_(device) {}
  ~StreamEvent() override { device_.release_event(event_); }
  StreamEvent(const StreamEvent&) = delete;
  StreamEvent& operator=(const StreamEvent&) = delete;
  bool done() override;
  void wait() override;
  Handle get() const { return event_; }

 private:
  Handle event_;
  DeviceContext& device_;
};

class StreamKernel final : public LoadedKernel {
 public:
  /// `text` is the text in the image. If it is empty, source() emits the C text when it is called.
  StreamKernel(DeviceContext& device, std::shared_ptr<void> module, const CompileRequest& request,
               backend::KernelShape shape, std::string text);
  StreamKernel(const StreamKernel&) = delete;
  StreamKernel& operator=(const StreamKernel&) = delete;
  std::string source() const override;

  /// Call in the context.
  void enqueue(Handle stream, const std::array<std::uint64_t, 3>& shape, std::span<const Argument> arguments) const;
  /// Makes a graph node launch the kernel with these arguments. The device's context must be current.
  void set_node(Handle executable, Handle node, const std::array<std::uint64_t, 3>& shape,
                std::span<const Argument> arguments) const;
  /// Returns which calls the next launch makes. During the first launch, the driver may still load the kernel.
  ContextScope::Doing launching() { return known_.exchange(true) ? ContextScope::enqueuing : ContextScope::anything; }

 private:
  std::atomic<bool> known_ = false;
  DeviceContext& device_;
  std::shared_ptr<void> module_;
  const ir::Function as_written_;
  const Variant variant_;
  const emit::Dialect dialect_;
  const std::string text_;
  Handle function_ = nullptr;
  /// Returns the grid. Sets `bound` to the arguments as the driver expects them. They are stored in a thread-local
  /// vector.
  backend::Grid bind(const std::array<std::uint64_t, 3>& shape, std::span<const Argument> arguments,
                     std::vector<backend::BoundArgument>*& bound) const;
  backend::KernelShape shape_;
  std::uint64_t block_threads_;
};

/// Recorded work, stored as a driver graph.
class StreamSequence final : public DriverSequence {
 public:
  explicit StreamSequence(DeviceContext& device) : device_(device) {}
  ~StreamSequence() override;
  StreamSequence(const StreamSequence&) = delete;
  StreamSequence& operator=(const StreamSequence&) = delete;

 private:
  friend class StreamQueue;
  DeviceContext& device_;
  bool known_ = false;      ///< true after the first launch
  Handle graph_ = nullptr;  ///< kept if nodes can change
  Handle executable_ = nullptr;
  std::vector<std::pair<std::uint32_t, Handle>> nodes_;  ///< index and node of each launch with variable scalars
};

/// Staging buffers in pinned memory. With them, the caller of an upload may reuse its memory immediately, the copy
/// overlaps with host work, and downloads do not wait in the driver. There are at most `chunks` buffers of
/// `chunk_bytes` each, which are used as a ring. Not thread-safe. The device's context must be current.
class Staging {
 public:
  explicit Staging(DeviceContext& device) : device_(device) {}
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  void upload(Address to, const std::byte* from, std::size_t bytes, Handle stream);
  /// Starts a copy to a staging buffer. Returns its address, whose contents are valid from the end of the copy until
  /// the next call. Returns null and copies nothing if there are too many bytes or pinned memory ran out.
  const std::byte* download(Address from, std::size_t bytes, Handle stream);
  void drained() noexcept;  ///< call when the stream is empty, so that all buffers can be reused
  void release() noexcept;  ///< like drained(), but also frees the buffers
  bool empty() const { return chunks_.empty(); }

 private:
  static constexpr std::size_t chunk_bytes = std::size_t{2} << 20, chunks = 4, alignment = 16;
  struct Chunk {
    std::byte* host = nullptr;
    std::size_t used = 0;
    std::unique_ptr<StreamEvent> copied;  ///< recorded when the chunk is full, after the last copy from it
  };
  /// Returns a chunk with space for `bytes`, at most chunk_bytes, or null if pinned memory ran out.
  Chunk* room(std::size_t bytes, Handle stream);
  static void take(Chunk& chunk, std::size_t bytes);  ///< marks the next `bytes` as used
  DeviceContext& device_;
  std::vector<Chunk> chunks_;
  std::size_t at_ = 0;
};

class StreamQueue final : public DriverQueue {
 public:
  explicit StreamQueue(DeviceContext& device);
  StreamQueue(DeviceContext& device, void* native);  ///< wraps the user's stream
  ~StreamQueue() override;
  StreamQueue(const StreamQueue&) = delete;
  StreamQueue& operator=(const StreamQueue&) = delete;
  void upload(const Allocation& to, std::size_t offset, const void* from, std::size_t bytes) override;
  void download(void* to, const Allocation& from, std::size_t offset, std::size_t bytes) override;
  void copy(const Allocation& to, std::size_t to_offset, const Allocation& from, std::size_t from_offset,
            std::size_t bytes) override;
  void copy_from(DriverDevice& owner, const Allocation& to, std::size_t to_offset, const Allocation& from,
                 std::size_t from_offset, std::size_t bytes) override;
  void fill(const Allocation& to, std::size_t offset, std::size_t bytes, std::span<const std::byte> pattern) override;
  void launch(LoadedKernel& kernel, std::array<std::uint64_t, 3> shape, std::span<const Argument> arguments) override;
  std::shared_ptr<DriverEvent> record() override;
  void wait(DriverEvent& event) override;
  void finish() override;
  void with_native(const std::function<void(void*)>& use) override;
  std::unique_ptr<DriverSequence> capture(std::span<const RecordedWork> work) override;
  void replay(DriverSequence& sequence, std::span<const RecordedWork> work,
              std::span<const std::uint32_t> changed) override;

 private:
  void copy_overlapping(Address to, Address from, std::size_t bytes);
  void fill_pairs(Address to, std::size_t bytes, std::uint64_t pattern);
  void synchronize(const char* doing);  ///< the device's context must be current

  DeviceContext& device_;
  Handle stream_ = nullptr;
  Staging staging_;
  bool owned_ = true;
  bool busy_ = false;  ///< true if work may have been submitted since the stream was last empty
};

class StreamDevice final : public DriverDevice, public LoadsPacks {
 public:
  explicit StreamDevice(DeviceContext& device) : device_(device) {}
  const DeviceContext& context() const { return device_; }
  bool enable_peer_access(DriverDevice& other) override;
  DriverBlas* blas(std::string& why) override;
  const DeviceInfo& info() const override { return device_.facts.info; }
  std::uint64_t free_memory() const override;
  Allocation allocate(std::size_t bytes, MemoryKind kind) override;
  void release(const Allocation& allocation) noexcept override;
  std::unique_ptr<DriverQueue> make_queue() override { return std::make_unique<StreamQueue>(device_); }
  std::unique_ptr<DriverQueue> wrap_queue(void* native) override {
    return std::make_unique<StreamQueue>(device_, native);
  }
  void* native_context() override { return device_.api().native_context(device_.context); }
  Allocation wrap(void* native, std::size_t bytes) override { return {native, nullptr, bytes}; }
  std::string image_key() override;
  std::string build(const CompileRequest& request) override;
  std::unique_ptr<LoadedKernel> load(const CompileRequest& request, const std::string& image) override {
    return load(request, image, false);
  }
  std::string pack_target() const override { return device_.facts.pack_target; }
  std::unique_ptr<LoadedKernel> load_packed(const CompileRequest& request, const std::string& image) override {
    return load(request, image, true);
  }
  std::string why_not_compiled() override { return device_.facts.no_compiler; }

 private:
  /// Returns null if the driver refused the image and the device has switched to another compiler, which it does only
  /// if the image is not from a pack.
  std::unique_ptr<LoadedKernel> load(const CompileRequest& request, const std::string& image, bool from_pack);
  DeviceContext& device_;
  const ir::Function* built_ = nullptr;  ///< built but not yet loaded; guarded by the vendor's lock
  std::unique_ptr<DriverBlas> blas_;
};

}  // namespace tessera::stream
