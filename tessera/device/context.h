// SPDX-License-Identifier: Apache-2.0
// The state of a thread: current device, queues, placement, mode and observers. One structure, so that work that runs
// on another thread can inherit it. Internal.
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

/// The queue of a QueueScope, linked to those of the enclosing scopes.
struct QueueLink : std::enable_shared_from_this<QueueLink> {
  QueueLink(Device d, Queue& q, std::shared_ptr<QueueCore> c, std::shared_ptr<QueueLink> o)
      : device(d), queue(q), core(std::move(c)), outer(std::move(o)) {}
  const Device device;
  Queue& queue;
  const std::shared_ptr<QueueCore> core;
  const std::shared_ptr<QueueLink> outer;
};

/// Base of a mode that an upper layer stores here (training, nn/mode.h).
struct ModeState : std::enable_shared_from_this<ModeState> {
 protected:
  ~ModeState() = default;
};

struct ThreadContext {
  // Inherited fields. Each has an owning counterpart in InheritedContext.
  std::optional<Device> device;         ///< of the innermost DeviceScope
  QueueLink* queue = nullptr;           ///< of the innermost QueueScope
  PlacementState* placement = nullptr;  ///< of the innermost Placement
  ModeState* mode = nullptr;            ///< of the innermost Training; null: inference
  bool queues_of_thread = false;        ///< true in a task: its work on cpu or interp uses queues of this thread
  // Not inherited: state of what this thread is currently running.
  LaunchInterceptor* launch_interceptor = nullptr;
  Recorder* recorder = nullptr;
  ArrayObserver* array_observer = nullptr;
  unsigned array_operations = 0;  ///< nesting depth of the array operations that are running
  unsigned without_history = 0;   ///< of these, those with their own backward rule: inside, no history is recorded
};
/// Trivially destructible, like all thread-local data here: destructors of static objects use it too.
extern constinit thread_local ThreadContext thread_context;

/// The context that a task inherits from the thread that creates it. Recorders and observers are not inherited: they
/// see only their own thread's work.
class InheritedContext {
 public:
  static InheritedContext of_this_thread();
  /// For tasks, which run on many threads at once: each thread uses its own queues.
  static InheritedContext of_this_thread_without_queue();

  /// Replaces the thread's whole context with this one for the scope's lifetime.
  /// Throws ArgumentError if an inherited queue has been destroyed: queues must outlive the work that inherits them.
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
