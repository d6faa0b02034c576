// SPDX-License-Identifier: Apache-2.0
// An open OpenCL device, its queues, kernels and events. Used within this folder only; other code uses DriverDevice,
// DriverQueue, LoadedKernel and DriverEvent.
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
/// Queries all properties of the device. Never throws; properties that the device does not report keep their defaults.
DeviceFacts device_facts(PlatformId platform, DeviceId device, int index);

/// Context of one device: created once per process, never released.
struct DeviceContext {
  DeviceFacts facts;
  Context context = nullptr;
  std::atomic<std::uint64_t> allocated = 0;
  Pinned pinned;
};

class ClEvent;

/// Commands of one queue that are not known to have succeeded. Drivers need not report a failed command through the
/// event of a later one, not even a marker's, so every wait also checks these. Shared by the queue and its events,
/// which may outlive it. Thread-safe.
class UncheckedCommands {
 public:
  /// `number`: the queue's submission counter, which never decreases.
  void add(std::uint64_t number, std::shared_ptr<ClEvent> command);
  /// Waits for the commands up to `number` and throws the error of the first that failed. Every caller gets this error
  /// until one has called with `tell`, which marks it as reported. Returns whether a command failed whose error was
  /// already reported.
  bool settle(std::uint64_t number, bool tell);

 private:
  struct Command {
    std::uint64_t number;
    std::shared_ptr<ClEvent> event;
  };
  std::mutex lock_;  ///< guards the members below
  std::vector<Command> commands_;
  std::uint64_t reported_ = 0;  ///< errors up to this submission have been reported
  static constexpr std::size_t least_looked_at = 256;
  std::size_t look_at_ = least_looked_at;  ///< size of the list from which completed commands are removed
};

/// A command's event, or a marker's, which also reports errors of earlier commands.
class ClEvent final : public DriverEvent {
 public:
  /// `before`: the commands submitted up to `number`; null for the event of a single command.
  ClEvent(Event event, const DeviceContext* device, std::shared_ptr<UncheckedCommands> before = nullptr,
          std::uint64_t number = 0)
      : event_(event), device_(device), before_(std::move(before)), number_(number) {}
  ~ClEvent() override;
  ClEvent(const ClEvent&) = delete;
  ClEvent& operator=(const ClEvent&) = delete;
  bool done() override;
  void wait() override { wait_for_all(false); }
  void wait_and_throw() { wait_for_all(true); }  ///< same, and marks the error as reported
  Code status() const noexcept;                  ///< 0: succeeded; negative: its error code; positive: in progress
  void wait_end() const;                         ///< does not throw the command's error
  void tell() const;                             ///< throws the command's error
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

  /// Sets the arguments and enqueues the kernel. OpenCL kernel objects store their arguments, so launches are
  /// serialised.
  void enqueue(Queue queue, std::array<std::uint64_t, 3> shape, std::span<const Argument> arguments, Event* event);

 private:
  std::shared_ptr<void> program_;
  Kernel kernel_;
  backend::KernelShape shape_;
  const Capabilities& can_;  ///< the device's
  std::size_t group_limit_;
  std::mutex lock_;
  std::vector<backend::BoundArgument> bound_;  ///< of the current launch; guarded by lock_
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
  void watch(Event event);  ///< checks the last submission, made by other code, for errors; may be null

 private:
  /// Memory for staging small uploads, so that the caller may reuse its memory at once.
  struct Piece {
    std::byte* host = nullptr;
    std::unique_ptr<std::byte[]> ordinary;  ///< used if the driver has no pinned memory
    std::size_t used = 0;
    std::shared_ptr<ClEvent> copied;  ///< of the last upload from it
  };
  std::byte* room(std::size_t bytes);  ///< space in piece `piece_`; waits if all pieces are in use
  std::shared_ptr<ClEvent> command(Event event) { return event ? std::make_shared<ClEvent>(event, &device_) : nullptr; }
  void submitted(std::shared_ptr<ClEvent> command = nullptr);  ///< after work was accepted: flushes, keeps the event
  /// Waits for all commands so far and throws if one failed; afterwards they are not checked again. `tell`: see
  /// UncheckedCommands::settle.
  void check_commands(bool tell);
  void empty(bool tell);  ///< waits for all work, and checks for errors

  DeviceContext& device_;
  Queue queue_;
  const bool owned_ = true;
  std::vector<Piece> pieces_;  ///< used in turn; the ones after `piece_` were filled longest ago
  std::size_t piece_ = 0;
  bool more_comes_ = false;  ///< more work follows, so the queue is flushed later
  std::mutex lock_;          ///< guards the members below
  std::shared_ptr<UncheckedCommands> unproven_ = std::make_shared<UncheckedCommands>();
  std::uint64_t submitted_ = 0, finished_ = 0;  ///< number of submissions, and of those known to be complete
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
