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

class ClEvent;

/// The commands of one queue that are not known to have succeeded. A later command's event, a marker's too, need not
/// tell of one that failed: so whoever waits looks here. Events share it with their queue, and outlive that. Any thread
/// may call it.
class UncheckedCommands {
 public:
  /// `number` counts the queue's pieces of work; it never falls.
  void add(std::uint64_t number, std::shared_ptr<ClEvent> command);
  /// Waits for the commands up to `number` and throws what the first of them failed with: to each who asks, until
  /// somebody has asked with `tell`. Returns whether one failed that was told before.
  bool settle(std::uint64_t number, bool tell);

 private:
  struct Command {
    std::uint64_t number;
    std::shared_ptr<ClEvent> event;
  };
  std::mutex lock_;  ///< guards what follows
  std::vector<Command> commands_;
  std::uint64_t reported_ = 0;  ///< what failed up to this piece of work was told
  static constexpr std::size_t least_looked_at = 256;
  std::size_t look_at_ = least_looked_at;  ///< so many are looked through for what is done
};

/// A command's event, or a marker's: that one also tells what failed before it.
class ClEvent final : public DriverEvent {
 public:
  /// `before`: what was put into the queue up to piece of work `number`; null for an event of one command.
  ClEvent(Event event, const DeviceContext* device, std::shared_ptr<UncheckedCommands> before = nullptr,
          std::uint64_t number = 0)
      : event_(event), device_(device), before_(std::move(before)), number_(number) {}
  ~ClEvent() override;
  ClEvent(const ClEvent&) = delete;
  ClEvent& operator=(const ClEvent&) = delete;
  bool done() override;
  void wait() override { wait_for_all(false); }
  void wait_and_throw() { wait_for_all(true); }  ///< the same, and no other event tells it again
  Code status() const noexcept;                  ///< 0: it succeeded; negative: what it failed with; else under way
  void wait_end() const;                         ///< does not throw what the command failed with
  void tell() const;                             ///< throws what the command failed with
  Event get() const { return event_; }
  const DeviceContext* device() const { return device_; }

 private:
  void wait_for_all(bool tell_now);
  Event event_;
  const DeviceContext* device_;
  const std::shared_ptr<UncheckedCommands> before_;
  const std::uint64_t number_;
};

class ClKernel final : public LoadedKernel {
 public:
  ClKernel(std::shared_ptr<void> program, Kernel kernel, backend::KernelShape shape, const Capabilities& can,
           std::size_t group_limit)
      : program_(std::move(program)), kernel_(kernel), shape_(std::move(shape)), can_(can), group_limit_(group_limit) {}
  ~ClKernel() override;
  ClKernel(const ClKernel&) = delete;
  ClKernel& operator=(const ClKernel&) = delete;
  std::string source() const override { return shape_.emitted.program(); }

  /// Sets the arguments and enqueues; OpenCL's kernel objects hold their arguments, so one launch at a time does.
  void enqueue(Queue queue, std::array<std::uint64_t, 3> shape, std::span<const Argument> arguments, Event* event);

 private:
  std::shared_ptr<void> program_;
  Kernel kernel_;
  backend::KernelShape shape_;
  const Capabilities& can_;  ///< the device's
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
  void finish() override { empty(false); }
  void with_native(const std::function<void(void*)>& use) override;
  void together(const std::function<void()>& put) override;
  void watch(Event event);  ///< of the work put in last, by somebody else: what it fails with is told; may be null

 private:
  /// Memory through which small uploads go, so that the caller may use its own again at once.
  struct Piece {
    std::byte* host = nullptr;
    std::unique_ptr<std::byte[]> ordinary;  ///< instead of pinned memory, where the driver has none
    std::size_t used = 0;
    std::shared_ptr<ClEvent> copied;  ///< of the last upload out of it
  };
  std::byte* room(std::size_t bytes);  ///< in the piece `piece_`; waits if all are being copied
  std::shared_ptr<ClEvent> command(Event event) { return event ? std::make_shared<ClEvent>(event, &device_) : nullptr; }
  void submitted(std::shared_ptr<ClEvent> command = nullptr);  ///< work was accepted: starts it, remembers its event
  /// Waits for the commands so far and throws if one failed; then none of them is asked again. `tell`: see Unproven.
  void check_commands(bool tell);
  void empty(bool tell);  ///< waits for all of it, and checks

  DeviceContext& device_;
  Queue queue_;
  const bool owned_ = true;
  std::vector<Piece> pieces_;  ///< those after `piece_` were filled longest ago
  std::size_t piece_ = 0;
  bool more_comes_ = false;  ///< the queue is flushed when all is in it
  std::mutex lock_;          ///< guards what follows
  std::shared_ptr<UncheckedCommands> unproven_ = std::make_shared<UncheckedCommands>();
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
