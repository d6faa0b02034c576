// SPDX-License-Identifier: Apache-2.0
#include "tessera/task/task_storage.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <list>
#include <map>
#include <utility>

#include "tessera/array/elementwise.h"
#include "tessera/array/flushing.h"
#include "tessera/array/source.h"
#include "tessera/base/log.h"
#include "tessera/base/os/fork.h"
#include "tessera/device/memory/reclaim.h"
#include "tessera/task/access_order.h"
#include "tessera/task/region.h"
#include "tessera/task/running_task.h"
#include "tessera/task/task_accesses.h"
#include "tessera/task/trace_hooks.h"

namespace tessera {
namespace {

struct Counted {
  std::atomic<std::uint64_t> count = 0, bytes = 0;
  void add(std::uint64_t n) {
    count.fetch_add(1, std::memory_order_relaxed);
    bytes.fetch_add(n, std::memory_order_relaxed);
  }
};
constinit Counted fetched, written_back, evicted;

/// Each asynchronous device has two queues for the copies of tasks, one for each direction. Copies therefore do not
/// wait for kernels, unless they use the same memory.
struct CopyQueues {
  std::mutex lock;
  std::map<Device, std::array<Queue*, 2>> all;  // never destroyed
};
constinit os::PerProcess<CopyQueues> copy_queues;
enum Direction : std::size_t { into, out_of };

Queue& copy_queue(Device device, Direction direction) {
  if (is_built_in(device.backend)) return current_queue(device);
  CopyQueues& queues = copy_queues.get();
  const std::lock_guard hold(queues.lock);
  Queue*& there = queues.all[device][direction];
  if (there == nullptr) there = new Queue(device);
  return *there;
}

void copy_between(const BufferView& to, const BufferView& from) {
  const QueueScope source(copy_queue(from.storage->device(), out_of));
  const QueueScope target(copy_queue(to.storage->device(), into));
  const Device worker = is_built_in(to.storage->device().backend) ? from.storage->device() : to.storage->device();
  current_queue(worker).copy(to, from);
}

/// Unused replicas. The least recently used one is first. They are freed if memory runs out.
struct EvictionList {
  struct Entry {
    detail::TaskStorage* owner;
    Device device;
    bool going = false;  ///< a thread is evicting the replica and uses its owner
    bool used = false;   ///< a task has started to use the replica in the meantime
  };
  std::mutex lock;
  std::condition_variable done;  // signalled when an eviction has ended
  std::list<Entry> all;
};
constinit os::PerProcess<EvictionList> unused;

void forget(detail::TaskStorage* owner, Device device) noexcept {
  EvictionList& u = unused.get();
  const std::lock_guard hold(u.lock);
  std::erase_if(u.all, [&](EvictionList::Entry& e) {
    if (e.owner != owner || e.device != device) return false;
    e.used = true;
    return !e.going;  // otherwise the evicting thread notices that the replica is used
  });
}

/// Removes all entries of an owner. Called before the owner is destroyed.
void forget_all(detail::TaskStorage* owner) noexcept {
  EvictionList& u = unused.get();
  std::unique_lock hold(u.lock);
  u.done.wait(hold,
              [&] { return std::ranges::none_of(u.all, [&](const auto& e) { return e.owner == owner && e.going; }); });
  std::erase_if(u.all, [&](const auto& e) { return e.owner == owner; });
}

/// Evicts one replica on the device: the oldest one with contents that are also valid on another device. If there is
/// none, evicts the oldest one after writing it back.
bool evict_one(Device device, std::uint64_t) {
  EvictionList& u = unused.get();
  for (const bool clean : {true, false}) {
    std::vector<const EvictionList::Entry*> tried;
    for (;;) {
      std::list<EvictionList::Entry>::iterator at;
      {
        const std::lock_guard hold(u.lock);
        at = std::ranges::find_if(u.all, [&](const EvictionList::Entry& e) {
          return e.device == device && !e.going && std::ranges::find(tried, &e) == tried.end();
        });
        if (at == u.all.end()) break;
        at->going = true;
      }
      bool went = false;
      std::string wrong;
      try {
        went = at->owner->evict(device, clean);
      } catch (const std::exception& e) {  // writing back failed; the replica is not freed
        wrong = e.what();
      }
      {
        const std::lock_guard hold(u.lock);
        if (went || at->used)
          u.all.erase(at);
        else
          at->going = false, tried.push_back(&*at);
        u.done.notify_all();
      }
      if (went) return true;
      if (!wrong.empty())
        logging::warn(
            fmt::format("{}: a replica cannot be written back to its home device: {}", to_string(device), wrong));
    }
  }
  return false;
}

}  // namespace

TaskCopies task_copies() {
  return {fetched.count, written_back.count, evicted.count, fetched.bytes, written_back.bytes, evicted.bytes};
}

namespace detail {

Array in_storage(const Array& array, std::shared_ptr<Storage> storage) {
  return ArrayAccess::make(Source::of(std::move(storage), array.dtype()), array.dtype(), array.shape(), array.strides(),
                           array.offset());
}

Array copy_of_view(const Array& view, Device device, bool back) {
  const tracing::CopySpan seen(view.device(), device, view.bytes());
  Array copy = view.copy().to(device);
  copy.eval();
  (back ? written_back : fetched).add(view.bytes());
  return copy;
}

TaskStorage& TaskStorage::of(Storage& storage) {
  if (CoherenceHook* const known = storage.coherence_hook()) {
    auto& there = static_cast<TaskStorage&>(*known);
    there.fill();
    return there;
  }
  return static_cast<TaskStorage&>(storage.set_coherence_hook(std::make_unique<TaskStorage>(storage)));
}

TaskStorage::TaskStorage(Storage& home) : home_(home) {}
TaskStorage::~TaskStorage() {
  delete reductions_.load();
  if (!replicas_.empty()) forget_all(this);
}

void TaskStorage::set_lazy_fill(Callback<void()> f) {
  const std::lock_guard hold(moving_);
  lazy_fill_ = std::move(f);
  fill_pending_.store(true, std::memory_order_release);
}

void TaskStorage::fill_now() {
  const std::lock_guard hold(moving_);
  if (!lazy_fill_) return;  // another thread has called it in the meantime
  const Callback<void()> f = std::exchange(lazy_fill_, {});
  try {
    const Storage::CoherenceBypass quiet(home_);  // pending reads of the storage must see the contents that f writes
    f();
  } catch (...) {
    lazy_fill_ = f;
    throw;
  }
  fill_pending_.store(false, std::memory_order_release);
}

Reductions& TaskStorage::reductions() {
  Reductions* there = reductions_.load(std::memory_order_acquire);
  if (there != nullptr) return *there;
  auto fresh = std::make_unique<Reductions>();
  if (reductions_.compare_exchange_strong(there, fresh.get(), std::memory_order_acq_rel)) return *fresh.release();
  return *there;
}

bool TaskStorage::has_other_writers() const noexcept {
  if (home_outdated()) return true;
  TaskAccesses* const mine = TaskAccesses::current();
  const StoredAccess* const d = mine != nullptr ? mine->declared(home_) : nullptr;
  const AccessDetails* const more = d != nullptr ? d->known_details() : nullptr;
  if (d != nullptr && (more == nullptr || (!more->reductions && !more->nested))) return false;
  if (d == nullptr && reduced())
    return true;  // a task that has this storage as an argument runs before the tasks that now reduce into it
  const std::lock_guard hold(lock());
  if (d == nullptr) return order_.has_pending(Access::in, full_part(home_.bytes()));
  return (more->reductions && more->reductions->any()) ||  // reductions by tasks that this task created
         (more->nested && more->nested->has_pending(Access::in, full_part(home_.bytes())));
}

// --- Ordering

/// Called when memory is used without having been declared as a task argument, either outside of tasks or in a task's
/// function.
void TaskStorage::before(Access mode) {
  fill();
  if (mode == Access::in && is_flushing()) return;
  TaskAccesses* const mine = TaskAccesses::current();
  if (mine == nullptr) {
    combine();
    wait_for(order_, mode);
  } else if (const StoredAccess* const d = mine->declared(home_)) {
    mine->check_use(*d, home_, mode);
    if (const AccessDetails* const more = d->known_details()) {
      if (more->reductions) more->reductions->combine();
      if (more->nested) wait_for(*more->nested, mode);
    }
  } else {
    mine->use_undeclared(*this, mode);
  }
  if (home_outdated()) write_back();
  if (mode != Access::in && !has_no_replicas()) {
    const std::lock_guard hold(moving_);
    for (Replica& c : replicas_) c.valid = false;
  }
}

void TaskStorage::wait_for(AccessOrder& order, Access mode) {
  std::vector<executor::NodeRef> nodes;
  {
    const std::lock_guard hold(lock());
    order.conflicts(mode, full_part(home_.bytes()), home_.device(), [&](executor::Node& n, executor::Node::Dependency) {
      if (!n.ended()) nodes.emplace_back(n);
    });
  }
  for (const executor::NodeRef& n : nodes) executor::wait(*n);
}

bool TaskStorage::record_undeclared_use(Access mode, std::uint64_t use) {
  Undeclared* mine = nullptr;
  std::erase_if(undeclared_, [&](const Undeclared& u) { return u.use != use && !RunningTask::is_live(u.use); });
  for (Undeclared& u : undeclared_) {
    if (u.use == use)
      mine = &u;
    else if (writes(mode) || u.writes)
      return false;
  }
  if (mine == nullptr) mine = &undeclared_.emplace_back(Undeclared{use, false});
  mine->writes = mine->writes || writes(mode);
  return true;
}

// --- Replicas

TaskStorage::Replica* TaskStorage::replica_on(Device device) noexcept {
  const auto at = std::ranges::find(replicas_, device, &Replica::device);
  return at == replicas_.end() ? nullptr : &*at;
}

bool TaskStorage::valid_on(Device device) {
  const std::lock_guard hold(moving_);
  if (device == home_.device()) return home_valid_;
  const Replica* const c = replica_on(device);
  return c != nullptr && c->valid;
}

std::vector<Device> TaskStorage::valid_devices() {
  const std::lock_guard hold(moving_);
  std::vector<Device> all;
  if (home_valid_) all.push_back(home_.device());
  for (const Replica& c : replicas_)
    if (c.valid) all.push_back(c.device);
  return all;
}

void TaskStorage::move(Storage& to, Storage& from) {
  const std::uint64_t bytes = std::min(to.bytes(), from.bytes());
  if (bytes == 0) return;
  struct Mark {
    bool& flag;
    bool before = std::exchange(flag, true);
    ~Mark() { flag = before; }
  } mark{in_move_};
  const Storage::CoherenceBypass quiet(home_);
  const RunningTask::RuntimeCopyScope no_use;
  const auto view = [&](Storage& s) {  // the caller keeps the storages alive
    return BufferView{std::shared_ptr<Storage>(std::shared_ptr<void>(), &s), 0, bytes, DType::u8};
  };
  const tracing::CopySpan seen(from.device(), to.device(), bytes);
  try {
    copy_between(view(to), view(from));
  } catch (const DeviceError& e) {
    if (valid_devices() != std::vector<Device>{from.device()}) throw;
    const std::string text = error_text({.operation = "read a task's result",
                                         .with = {{"data", home_.label().empty() ? "unlabelled" : home_.label()},
                                                  {"bytes", std::to_string(bytes)},
                                                  {"only on", to_string(from.device())}},
                                         .wrong = e.what()});
    if (dynamic_cast<const DeviceLost*>(&e) != nullptr) throw DeviceLost(text);
    throw DeviceError(text);
  }
}

std::shared_ptr<Storage> TaskStorage::acquire(Device device, bool needed, std::shared_ptr<Storage> home) {
  if (device == home_.device() && has_no_replicas()) return home;
  const std::lock_guard hold(moving_);
  if (device == home_.device()) {
    if (needed) write_back();
    return home;
  }
  Replica* copy = replica_on(device);
  if (copy == nullptr) {
    has_no_replicas_.store(false, std::memory_order_release);
    set_reclaim_memory(evict_one);
    std::shared_ptr<Storage> fresh = Storage::allocate(device, home_.bytes(), home_.label());
    copy = &replicas_.emplace_back(Replica{device, std::move(fresh)});
  } else if (copy->users == 0) {
    forget(this, device);
  }
  if (needed && !copy->valid) {
    Storage* from = home_valid_ ? &home_ : nullptr;
    for (const Replica& c : replicas_)
      if (c.valid && (from == nullptr || c.device.backend == device.backend)) from = c.storage.get();
    if (from != nullptr) {
      try {
        move(*copy->storage, *from);
      } catch (...) {
        if (copy->users == 0) add_to_eviction_list(device);
        throw;
      }
      fetched.add(home_.bytes());
    }
    copy->valid = true;
  }
  ++copy->users;
  return copy->storage;
}

void TaskStorage::written(Device device) noexcept {
  if (device == home_.device() && has_no_replicas()) return;
  const std::lock_guard hold(moving_);
  home_valid_ = device == home_.device();
  home_outdated_.store(!home_valid_, std::memory_order_release);
  for (Replica& c : replicas_) c.valid = c.device == device;
}

void TaskStorage::release(Device device) noexcept {
  if (device == home_.device() && has_no_replicas()) return;
  const std::lock_guard hold(moving_);
  Replica* const copy = device == home_.device() ? nullptr : replica_on(device);
  if (copy != nullptr && --copy->users == 0) add_to_eviction_list(device);
}

void TaskStorage::add_to_eviction_list(Device device) noexcept {
  try {
    EvictionList& u = unused.get();
    const std::lock_guard list(u.lock);
    u.all.push_back({this, device});
  } catch (const std::bad_alloc&) {}  // out of memory: the replica cannot be evicted
}

void TaskStorage::write_back(bool evicting) {
  if (has_no_replicas()) return;
  const std::lock_guard hold(moving_);
  if (home_valid_) return;
  for (const Replica& c : replicas_) {
    if (!c.valid) continue;
    move(home_, *c.storage);
    (evicting ? evicted : written_back).add(home_.bytes());
    break;
  }
  home_valid_ = true;
  home_outdated_.store(false, std::memory_order_release);
}

void TaskStorage::invalidate_replicas() {
  if (has_no_replicas()) return;
  const std::lock_guard hold(moving_);
  for (Replica& c : replicas_) c.valid = false;
}

bool TaskStorage::evict(Device device, bool only_clean) {
  const std::unique_lock hold(moving_, std::try_to_lock);  // the thread that holds the lock may be waiting for memory
  if (!hold || in_move_) return false;
  Replica* const copy = replica_on(device);
  if (copy == nullptr || copy->users > 0) return false;
  const bool elsewhere =
      home_valid_ || std::ranges::any_of(replicas_, [&](const Replica& c) { return c.valid && c.device != device; });
  if (copy->valid && !elsewhere) {
    if (only_clean) return false;
    write_back(true);
  }
  std::erase_if(replicas_, [&](const Replica& c) { return c.device == device; });
  return true;
}

}  // namespace detail
}  // namespace tessera
