// SPDX-License-Identifier: Apache-2.0
#include "tessera/device/context.h"

#include <type_traits>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/os/fork.h"
#include "tessera/base/os/per_thread.h"
#include "tessera/device/memory/storage.h"
#include "tessera/device/placement/placement.h"
#include "tessera/device/queue/queue_core.h"

namespace tessera {

constinit thread_local ThreadContext thread_context;
static_assert(std::is_trivially_destructible_v<ThreadContext>);

namespace {
std::shared_ptr<QueueLink> innermost_queue() {
  return thread_context.queue != nullptr ? thread_context.queue->shared_from_this() : nullptr;
}

// A launch on cpu or interp blocks its queue until it has finished. Each thread that runs tasks therefore has its own
// queues.
struct QueuesOfThread {
  std::uint32_t generation = os::fork_generation();
  std::vector<std::unique_ptr<Queue>> queues;
};
Queue& queue_of_this_thread(Device device) {
  QueuesOfThread& mine = os::PerThread<QueuesOfThread, QueuesOfThread>::get();
  if (mine.generation != os::fork_generation()) {  // after a fork: do not touch the parent's queues
    for (auto& queue : mine.queues) static_cast<void>(queue.release());
    mine.queues.clear();
    mine.generation = os::fork_generation();
  }
  for (const auto& queue : mine.queues)
    if (queue->device() == device) return *queue;
  return *mine.queues.emplace_back(std::make_unique<Queue>(device));
}
}  // namespace

InheritedContext InheritedContext::of_this_thread() {
  InheritedContext context = of_this_thread_without_queue();
  context.queue_ = innermost_queue();
  return context;
}

InheritedContext InheritedContext::of_this_thread_without_queue() {
  InheritedContext context;
  context.device_ = thread_context.device;
  if (thread_context.placement != nullptr) context.placement_ = thread_context.placement->shared_from_this();
  if (thread_context.mode != nullptr) context.mode_ = thread_context.mode->shared_from_this();
  return context;
}

InheritedContext::Scope::Scope(const InheritedContext& context)
    : queue_(context.queue_), placement_(context.placement_), mode_(context.mode_), before_(thread_context) {
  for (const QueueLink* link = queue_.get(); link != nullptr; link = link->outer.get())
    if (link->core->closed())
      fail<ArgumentError>({.operation = "inherited context",
                           .with = {{"queue of", to_string(link->device)}},
                           .wrong = "a queue that was current when this work was created has been destroyed",
                           .remedy = "Keep the queue alive until the work has finished"});
  thread_context = {
      .device = context.device_, .queue = queue_.get(), .placement = placement_.get(), .mode = mode_.get()};
}

InheritedContext::Scope::~Scope() { thread_context = before_; }

QueueScope::QueueScope(Queue& queue)
    : link_(std::make_shared<QueueLink>(queue.device(), queue, queue.core().shared_from_this(), innermost_queue())) {
  thread_context.queue = link_.get();
}

QueueScope::~QueueScope() { thread_context.queue = link_->outer.get(); }

Queue& current_queue(Device device) {
  for (const QueueLink* link = thread_context.queue; link != nullptr; link = link->outer.get())
    if (link->device == device) return link->queue;
  if (thread_context.queues_of_thread && is_built_in(device.backend)) return queue_of_this_thread(device);
  return Queue::of(device);
}

}  // namespace tessera
