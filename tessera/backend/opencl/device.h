// SPDX-License-Identifier: Apache-2.0
// An open OpenCL device, its queues, kernels and events. Used only in this folder. Other code uses the interfaces
// DriverDevice, DriverQueue, LoadedKernel and DriverEvent.
#pragma once

#include <atomic>
#include <functional>
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

/// Properties of a device that DeviceInfo does not contain.
struct DeviceFacts {
  DeviceId id = nullptr;
  DeviceInfo info;
  emit::Dialect dialect;
  std::string build_options;
  std::uint64_t largest_allocation = 0;
  bool reports_free_memory = false;
};
/// Queries all properties of the device. Never throws. Properties that the device does not report keep their defaults.
DeviceFacts device_facts(PlatformId platform, DeviceId device, int index);

/// The OpenCL context of a device. Created once per process and never released.
struct DeviceContext {
  DeviceFacts facts;
  Context context = nullptr;
  std::atomic<std::uint64_t> allocated = 0;
  Pinned pinned;
};

class ClEvent;

/// The commands of a queue that are not known to have succeeded. If a command fails, OpenCL does not guarantee that the
/// events of later commands or markers report the error. So every wait also checks these commands. Shared by the queue
/// and its events, which may outlive the queue. Thread-safe.
class UncheckedCommands {
 public:
  /// Adds a command. `number` is the queue's submission counter, which never decreases.
  void add(std::uint64_t number, std::shared_ptr<ClEvent> command);
  /// Waits for the commands up to `number` and throws the error of the first one that failed. If `tell` is true, the
  /// error is marked as reported, and later calls do not throw it again. Returns true if a command failed but its error
  /// was already reported.
  bool settle(std::uint64_t number, bool tell);

 private:
  struct Command {
    std::uint64_t number;
    std::shared_ptr<ClEvent> event;
  };
  std::mutex lock_;  ///< guards the members below
  std::vector<Command> commands_;
  std::uint64_t reported_ = 0;  ///< the errors of submissions up to this number have been reported
  static constexpr std::size_t least_looked_at = 256;
  std::size_t look_at_ = least_looked_at;  ///< list size at which completed commands are removed
};

/// The event of a command or of a marker. The event of a marker also reports errors of earlier commands.
class ClEvent final : public DriverEvent {
 public:
  /// `before`: for a marker, the list with the commands submitted up to `number`; null for the event of a single
  /// command.
  ClEvent(Event event, const DeviceContext* device, std::shared_ptr<UncheckedCommands> before = nullptr,
          std::uint64_t number = 0)
      : event_(event), device_(device), before_(std::move(before)), number_(number) {}
  ~ClEvent() override;
  ClEvent(const ClEvent&) = delete;
  ClEvent& operator=(const ClEvent&) = delete;
  bool done() override;
  void wait() override { wait_for_all(false); }
  void wait_and_throw() { wait_for_all(true); }  ///< also marks the error as reported
  Code status() const noexcept;                  ///< 0: succeeded; negative: error code; positive: still running
  void wait_end() const;                         ///< waits for the command, but does not throw its error
  void tell() const;                             ///< throws the command's error, if any
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

  /// Sets the arguments and enqueues the kernel. A lock serialises launches, because an OpenCL kernel object stores its
  /// arguments.
  void enqueue(Queue queue, std::array<std::uint64_t, 3> shape, std::span<const Argument> arguments, Event* event);

 private:
  std::shared_ptr<void> program_;
  Kernel kernel_;
  backend::KernelShape shape_;
  const Capabilities& can_;  ///< owned by the device
  std::size_t group_limit_;
  std::mutex lock_;
  std::vector<backend::BoundArgument> bound_;  ///< arguments of the current launch; guarded by lock_
};

class ClQueue final : public DriverQueue {
 public:
  explicit ClQueue(DeviceContext& device);
  ClQueue(DeviceContext& device, Queue native)
      : device_(device), queue_(native), owned_(false) {}  ///< wraps the user's queue
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
  void watch(Event event);  ///< adds work that other code submitted, so that its errors are reported; may be null

 private:
  /// A staging buffer for small uploads, so that the caller may reuse its memory immediately.
  struct Piece {
    std::byte* host = nullptr;
    std::unique_ptr<std::byte[]> ordinary;  ///< used if the driver cannot allocate pinned memory
    std::size_t used = 0;
    std::shared_ptr<ClEvent> copied;  ///< event of the last upload from this piece
  };
  std::byte* room(std::size_t bytes);  ///< returns free staging memory; waits if all pieces are in use
  std::shared_ptr<ClEvent> command(Event event) { return event ? std::make_shared<ClEvent>(event, &device_) : nullptr; }
  void submitted(std::shared_ptr<ClEvent> command = nullptr);  ///< call after each submission: flushes the queue and
                                                               ///< stores the event
  /// Waits for all commands so far and throws if one of them failed. These commands are not checked again afterwards.
  /// `tell`: see UncheckedCommands::settle.
  void check_commands(bool tell);
  void empty(bool tell);  ///< waits for all work and throws its errors

  DeviceContext& device_;
  Queue queue_;
  const bool owned_ = true;
  std::vector<Piece> pieces_;  ///< a ring: the piece after `piece_` was filled longest ago
  std::size_t piece_ = 0;
  bool more_comes_ = false;  ///< true while more work follows, so that the queue is flushed only at its end
  std::mutex lock_;          ///< guards the members below
  std::shared_ptr<UncheckedCommands> unproven_ = std::make_shared<UncheckedCommands>();
  std::uint64_t submitted_ = 0, finished_ = 0;  ///< number of submissions, and how many of them are known to be
                                                ///< complete
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
