// SPDX-License-Identifier: Apache-2.0
// An open OpenCL device, its queue, its kernels and its events.
// Used within this folder only; others see them as DriverDevice, DriverQueue, LoadedKernel and DriverEvent.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tessera/backend/common/launch_shape.h"
#include "tessera/backend/opencl/api.h"
#include "tessera/backend/opencl/pinned.h"
#include "tessera/device/blas.h"
#include "tessera/device/driver.h"
#include "tessera/emit/c_emitter.h"

namespace tessera::cl {

/// What is known of one device beyond DeviceInfo.
struct DeviceFacts {
  DeviceId id = nullptr;
  DeviceInfo info;
  emit::Dialect dialect;
  std::string build_options;
  std::uint64_t largest_allocation = 0;
  bool reports_free_memory = false;
};
/// Asks the device everything; never throws, what a device does not answer stays at its default.
DeviceFacts device_facts(PlatformId platform, DeviceId device, int index);

/// One device's context: made once a process, never released.
struct DeviceContext {
  DeviceFacts facts;
  Context context = nullptr;
  std::atomic<std::uint64_t> allocated = 0;
  Pinned pinned;
};

class ClEvent final : public DriverEvent {
 public:
  ClEvent(Event event, const DeviceContext* device) : event_(event), device_(device) {}
  ~ClEvent() override;
  ClEvent(const ClEvent&) = delete;
  ClEvent& operator=(const ClEvent&) = delete;
  bool done() override;
  void wait() override;
  bool succeeded() const noexcept;  ///< done, and without a fault
  Event get() const { return event_; }
  const DeviceContext* device() const { return device_; }

 private:
  Event event_;
  const DeviceContext* device_;
};

class ClKernel final : public LoadedKernel {
 public:
  ClKernel(std::shared_ptr<void> program, Kernel kernel, backend::KernelShape shape, std::size_t group_limit)
      : program_(std::move(program)), kernel_(kernel), shape_(std::move(shape)), group_limit_(group_limit) {}
  ~ClKernel() override;
  ClKernel(const ClKernel&) = delete;
  ClKernel& operator=(const ClKernel&) = delete;
  std::string source() const override { return shape_.emitted.text; }

  /// Sets the arguments and enqueues; OpenCL's kernel objects hold their arguments, so one launch at a time does.
  void enqueue(Queue queue, std::array<std::uint64_t, 3> shape, std::span<const Argument> arguments, Event* event);

 private:
  std::shared_ptr<void> program_;
  Kernel kernel_;
  backend::KernelShape shape_;
  std::size_t group_limit_;
  std::mutex lock_;
  std::vector<backend::BoundArgument> bound_;  ///< of the launch under way; under the lock
};

class ClQueue final : public DriverQueue {
 public:
  explicit ClQueue(DeviceContext& device);
  ClQueue(DeviceContext& device, Queue native) : device_(device), queue_(native), owned_(false) {}  ///< of the user's
  ~ClQueue() override;
  ClQueue(const ClQueue&) = delete;
  ClQueue& operator=(const ClQueue&) = delete;
  void upload(const Allocation& to, std::size_t offset, const void* from, std::size_t bytes) override;
  void download(void* to, const Allocation& from, std::size_t offset, std::size_t bytes) override;
  void copy(const Allocation& to, std::size_t to_offset, const Allocation& from, std::size_t from_offset,
            std::size_t bytes) override;
  void fill(const Allocation& to, std::size_t offset, std::size_t bytes, std::span<const std::byte> pattern) override;
  void launch(LoadedKernel& kernel, std::array<std::uint64_t, 3> shape, std::span<const Argument> arguments) override;
  std::shared_ptr<DriverEvent> record() override;
  void wait(DriverEvent& event) override;
  void finish() override;
  void with_native(const std::function<void(void*)>& use) override;
  void together(const std::function<void()>& put) override;

 private:
  /// Memory through which small uploads go, so that the caller may use its own again at once.
  struct Piece {
    std::byte* host = nullptr;
    std::unique_ptr<std::byte[]> ordinary;  ///< instead of pinned memory, where the driver has none
    std::size_t used = 0;
    std::unique_ptr<ClEvent> copied;  ///< of the last upload out of it
  };
  std::byte* room(std::size_t bytes);     ///< in the piece `piece_`; waits if all are being copied
  void submitted(Event event = nullptr);  ///< work was accepted: starts it, and remembers its event
  void check_launches();                  ///< waits for the launches so far and throws if one failed

  DeviceContext& device_;
  Queue queue_;
  const bool owned_ = true;
  std::vector<Piece> pieces_;  ///< those after `piece_` were filled longest ago
  std::size_t piece_ = 0;
  bool more_comes_ = false;  ///< the queue is flushed when all is in it
  std::mutex lock_;          ///< guards what follows
  /// Of launches that are not known to have succeeded: a later one, or a marker, need not tell of a failed one.
  std::vector<std::unique_ptr<ClEvent>> launched_;
  static constexpr std::size_t least_looked_at = 256;
  std::size_t look_at_ = least_looked_at;       ///< so many are looked through for what is done
  std::uint64_t submitted_ = 0, finished_ = 0;  ///< pieces of work: accepted, and known to be done
};

class ClDevice final : public DriverDevice {
 public:
  explicit ClDevice(DeviceContext& device) : device_(device) {}
  const DeviceInfo& info() const override { return device_.facts.info; }
  std::uint64_t free_memory() const override;
  Allocation allocate(std::size_t bytes, MemoryKind kind) override;
  void release(const Allocation& allocation) noexcept override;
  std::unique_ptr<DriverQueue> make_queue() override { return std::make_unique<ClQueue>(device_); }
  std::unique_ptr<DriverQueue> wrap_queue(void* native) override {
    return std::make_unique<ClQueue>(device_, static_cast<Queue>(native));
  }
  void* native_context() override { return device_.context; }
  Allocation wrap(void* native, std::size_t bytes) override { return {native, nullptr, bytes}; }
  DriverBlas* blas(std::string& why) override;
  std::vector<std::unique_ptr<LoadedKernel>> compile(std::span<const CompileRequest> requests) override;

 private:
  DeviceContext& device_;
  std::unique_ptr<DriverBlas> blas_;
};

}  // namespace tessera::cl
