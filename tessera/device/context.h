// SPDX-License-Identifier: Apache-2.0
// What is in force on a thread: its device, queues, placement and mode, and who looks at what it does. One structure,
// so that work which goes on elsewhere can take along what it is to inherit. Internal.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "tessera/device/device.h"

namespace tessera {

class ArrayObserver;
class LaunchInterceptor;
class Queue;
class QueueCore;
class Recorder;
struct PlacementState;

/// A QueueScope's queue, and those of the scopes around it.
struct QueueLink : std::enable_shared_from_this<QueueLink> {
  QueueLink(Device d, Queue& q, std::shared_ptr<QueueCore> c, std::shared_ptr<QueueLink> o)
      : device(d), queue(q), core(std::move(c)), outer(std::move(o)) {}
  const Device device;
  Queue& queue;
  const std::shared_ptr<QueueCore> core;
  const std::shared_ptr<QueueLink> outer;
};

/// The mode that a layer above keeps here, and makes its own type of (nn/mode.h: training).
struct ModeState : std::enable_shared_from_this<ModeState> {
 protected:
  ~ModeState() = default;
};

struct ThreadContext {
  // Inherited: a field of these has its owner in InheritedContext.
  std::optional<Device> device;         ///< of the innermost DeviceScope
  QueueLink* queue = nullptr;           ///< of the innermost QueueScope
  PlacementState* placement = nullptr;  ///< of the innermost Placement
  ModeState* mode = nullptr;            ///< of the innermost Training; none: inference
  bool queues_of_thread = false;  ///< a task runs here: what it puts on cpu or interp goes into queues of this thread
  // Not inherited: they belong to what this thread is doing now.
  LaunchInterceptor* launch_interceptor = nullptr;
  Recorder* recorder = nullptr;
  ArrayObserver* array_observer = nullptr;
  unsigned array_operations = 0;  ///< that stand in each other now
  unsigned without_history = 0;   ///< of them, those that have a rule of their own: what is inside makes no steps
};
/// Trivially destructible, as all that threads keep: work of static objects' destructors uses it too.
extern constinit thread_local ThreadContext thread_context;

/// What a task takes along from the thread that makes it. Neither its recording nor its observers: what other threads
/// do is not part of these.
class InheritedContext {
 public:
  static InheritedContext of_this_thread();
  /// For tasks, which many threads run at once: each uses queues of its own.
  static InheritedContext of_this_thread_without_queue();

  /// This context is that of the thread, in place of all that is in force there, for as long as it lives.
  /// ArgumentError if a queue in it is gone: queues outlive the work that inherits them.
  class Scope {
   public:
    explicit Scope(const InheritedContext& context);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const std::shared_ptr<QueueLink> queue_;
    const std::shared_ptr<PlacementState> placement_;
    const std::shared_ptr<ModeState> mode_;
    const ThreadContext before_;
  };

 private:
  std::optional<Device> device_;
  std::shared_ptr<QueueLink> queue_;
  std::shared_ptr<PlacementState> placement_;
  std::shared_ptr<ModeState> mode_;
};

}  // namespace tessera
