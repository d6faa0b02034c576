// SPDX-License-Identifier: Apache-2.0
// The context of a thread: current device, queues, placement, mode and observers. All of it is in one structure, so
// that work on another thread can inherit it. Internal.
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

/// The queue of a QueueScope, with a link to the enclosing scope.
struct QueueLink : std::enable_shared_from_this<QueueLink> {
  QueueLink(Device d, Queue& q, std::shared_ptr<QueueCore> c, std::shared_ptr<QueueLink> o)
      : device(d), queue(q), core(std::move(c)), outer(std::move(o)) {}
  const Device device;
  Queue& queue;
  const std::shared_ptr<QueueCore> core;
  const std::shared_ptr<QueueLink> outer;
};

/// Base class of modes that an upper layer stores here, such as training (nn/mode.h).
struct ModeState : std::enable_shared_from_this<ModeState> {
 protected:
  ~ModeState() = default;
};

struct ThreadContext {
  // The fields below are inherited. Each has an owning counterpart in InheritedContext.
  std::optional<Device> device;         ///< device of the innermost DeviceScope
  QueueLink* queue = nullptr;           ///< queue of the innermost QueueScope
  PlacementState* placement = nullptr;  ///< state of the innermost Placement
  ModeState* mode = nullptr;            ///< mode of the innermost Training; null: inference
  bool queues_of_thread = false;  ///< true in a task: work on cpu or interp then uses queues that belong to this thread
  // The fields below describe what this thread is currently running and are not inherited.
  LaunchInterceptor* launch_interceptor = nullptr;
  Recorder* recorder = nullptr;
  ArrayObserver* array_observer = nullptr;
  unsigned array_operations = 0;  ///< nesting depth of the array operations in progress
  /// Number of these operations that define a backward rule. Inside them, no history is recorded.
  unsigned without_history = 0;
};
/// Trivially destructible, because destructors of static objects still use it.
extern constinit thread_local ThreadContext thread_context;

/// The context that a task inherits from the thread that creates it. Recorders and observers are not inherited, because
/// they only see the work of their own thread.
class InheritedContext {
 public:
  static InheritedContext of_this_thread();
  /// For tasks, which may run on several threads: each thread uses its own queues.
  static InheritedContext of_this_thread_without_queue();

  /// Replaces the thread's whole context with this one for the scope's lifetime. Throws ArgumentError if an inherited
  /// queue has been destroyed; queues must outlive the work that inherits them.
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
