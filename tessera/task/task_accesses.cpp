// SPDX-License-Identifier: Apache-2.0
#include "tessera/task/task_accesses.h"

#include <algorithm>
#include <atomic>

#include "tessera/array/elementwise.h"
#include "tessera/array/history.h"
#include "tessera/array/source.h"
#include "tessera/executor/executor.h"
#include "tessera/task/access_order.h"
#include "tessera/task/device_load.h"
#include "tessera/task/reduction.h"
#include "tessera/task/running_task.h"

namespace tessera::detail {

/// The tasks outside of regions that a task has created. The task waits for them. Their errors are reported like those
/// of other tasks outside of regions.
class TaskAccesses::Tasks final : public executor::Group {
 public:
  Tasks(TaskNode& node) : Group(executor::Executor::instance(), &node.group()), device_(node.device()) {}

 protected:
  void failed(const executor::Node& node) noexcept override { remember_failure(node, device_); }

 private:
  const Device device_;
};

// --- Stored arrays

bool StoredAccess::fits_inline(const Array& array) noexcept {
  return array.rank() <= 2 && array.offset() == 0 && array.history() == nullptr && !array.has_history() &&
         array.contiguous();
}

void StoredAccess::keep_sizes(const Array& array) noexcept {
  dtype_ = array.dtype();
  rank_ = static_cast<std::uint8_t>(array.rank());
  for (std::size_t k = 0; k < rank_; ++k) sizes_[k] = array.shape()[k];
}

StoredAccess::StoredAccess(const Array& array, Access mode, MatrixPart triangle)
    : source_(array.source()), mode_(mode), triangle_(triangle) {
  if (fits_inline(array))
    keep_sizes(array);
  else
    details().array.emplace(array);
}
StoredAccess::StoredAccess(Array&& array, Access mode, MatrixPart triangle) : mode_(mode), triangle_(triangle) {
  if (fits_inline(array)) {
    keep_sizes(array);
    // Move the only reference, because incrementing a reference count would touch another cache line.
    source_ = std::move(const_cast<std::shared_ptr<Source>&>(array.source()));
  } else {
    source_ = array.source();
    details().array.emplace(std::move(array));
  }
}
StoredAccess::StoredAccess(ExternalArray external, Access mode, MatrixPart triangle)
    : source_(external.array.source()), mode_(mode), triangle_(triangle) {
  details().external = &external.array;
}

AccessDetails& StoredAccess::details() {
  AccessDetails* known = known_details();
  if (known == nullptr) details_.store(known = new AccessDetails, std::memory_order_release);
  return *known;
}

void StoredAccess::drop_details() noexcept { delete details_.exchange(nullptr, std::memory_order_relaxed); }

Array StoredAccess::array() const {
  const AccessDetails* const more = known_details();
  if (more != nullptr && more->external != nullptr) return *more->external;
  if (more != nullptr && more->array) return *more->array;
  std::shared_ptr<Source> source =
      more != nullptr && more->device_storage ? Source::of(more->device_storage, dtype_) : source_;
  if (rank_ == 2 && source->dtype() == dtype_) return ArrayAccess::matrix(std::move(source), sizes_[0], sizes_[1]);
  const Shape shape = rank_ == 0 ? Shape{} : Shape{sizes_[0]};
  return ArrayAccess::make(std::move(source), dtype_, shape, contiguous_strides(shape), 0);
}

std::shared_ptr<Storage> TaskAccesses::shared_home_of(const StoredAccess& a) noexcept {
  return {a.source_, &home_of(a)};
}
Storage& TaskAccesses::memory_of(const StoredAccess& a) noexcept {
  const AccessDetails* const more = a.known_details();
  return more != nullptr && more->device_storage ? *more->device_storage : home_of(a);
}
const StoragePart* TaskAccesses::partial_part(const StoredAccess& a) noexcept {
  const AccessDetails* const more = a.known_details();
  return more != nullptr && more->some ? &*more->some : nullptr;
}
StoragePart TaskAccesses::part_of(const StoredAccess& a) {
  const StoragePart* const some = partial_part(a);
  return some != nullptr ? *some : full_part(memory_of(a).bytes());
}
/// Returns the access as an Array, which can be changed to refer to memory on the task's device.
Array& TaskAccesses::full_array_of(StoredAccess& a) {
  AccessDetails& more = a.details();
  if (more.external != nullptr) return *more.external;
  if (!more.array) more.array.emplace(a.array());
  return *more.array;
}

// --- Declarations

void place_data(TaskPlacer& placer, const Array& array, unsigned weight) {
  const std::uint64_t bytes = array.bytes() * weight;
  placer.add_bytes(bytes);
  if (array.pending()) return placer.add_data_on(array.device(), bytes);
  const Storage& storage = *array.source()->memory();
  const CoherenceHook* const known = storage.coherence_hook();
  if (known == nullptr || static_cast<const TaskStorage*>(known)->has_no_replicas())
    return placer.add_data_on(storage.device(), bytes);
  for (const Device d : TaskStorage::of(*array.source()->memory()).valid_devices()) placer.add_data_on(d, bytes);
}
void declare_access(TaskNode& node, StoredAccess& access) { TaskAccesses::of(node).declare(access); }
void declare_access(TaskNode& node, Array& array, Access mode, MatrixPart triangle) {
  TaskAccesses::of(node).declare(array, mode, triangle);
}

void declare_reduction(TaskNode& node, Array& array, Combine op) {
  TaskAccesses::of(node).declare_reduction(array, op);
}
void declare_reduction(TaskNode& node, StoredAccess& access) { TaskAccesses::declare_reduction_of(node, access); }

void TaskAccesses::declare_reduction_of(TaskNode& node, StoredAccess& access) {
  of(node).declare_reduction(full_array_of(access), access.op());
}

TaskAccesses& TaskAccesses::of(TaskNode& node) {
  if (TaskData* const known = node.data()) return static_cast<TaskAccesses&>(*known);
  std::byte* const inline_storage = node.inline_storage();
  void* const memory = inline_storage != nullptr ? inline_storage : executor::slab::allocate(sizeof(TaskAccesses));
  auto* const made = ::new (memory) TaskAccesses(&node, inline_storage != nullptr);
  node.attach(*made);
  if (RunningTask* const maker = RunningTask::current()) [[unlikely]]
    made->rare().maker = maker->number();
  return *made;
}

TaskAccesses* TaskAccesses::current() noexcept {
  TaskNode* const node = TaskNode::current();
  if (node == nullptr) return nullptr;
  TaskData* const data = node->data();
  return data != nullptr ? static_cast<TaskAccesses*>(data) : &none();
}
/// Returns the object that is used for tasks without array arguments.
TaskAccesses& TaskAccesses::none() {
  static auto& all = *new TaskAccesses(nullptr, true);
  return all;
}

TaskAccesses::~TaskAccesses() {
  release_accesses();
  delete tasks_.load(std::memory_order_relaxed);
}

void TaskAccesses::destroy() noexcept {
  const bool in_room = is_inline_;
  this->~TaskAccesses();
  if (!in_room) executor::slab::deallocate(this, sizeof(TaskAccesses));
}

void TaskAccesses::release_accesses() noexcept {
  for (StoredAccess* a = first_; a != nullptr;) {
    StoredAccess* const next = a->next_;
    if (a->listed_)
      delete a;
    else
      a->forget();
    a = next;
  }
  first_ = last_ = nullptr;
}

executor::Group* TaskAccesses::tasks() {
  if (node_ == nullptr || ended_.load(std::memory_order_acquire)) return nullptr;
  const std::lock_guard hold(lock_);
  Tasks* made = tasks_.load(std::memory_order_relaxed);
  if (made == nullptr) tasks_.store(made = new Tasks(*node_), std::memory_order_release);
  return made;
}

void TaskAccesses::throw_access_error(const Storage& storage, const std::string& wrong,
                                      const std::string& remedy) const {
  const TaskNode* const task = node_ != nullptr ? node_ : TaskNode::current();
  fail<ArgumentError>({.operation = "access",
                       .with = {{"task", task != nullptr ? task->name() : std::string("?")}, {"array", storage.name()}},
                       .wrong = wrong,
                       .remedy = remedy});
}

bool TaskAccesses::reduces_into(const Storage& storage) const noexcept {
  return rare_ && std::ranges::any_of(rare_->reduced, [&](const Reduced& r) { return r.storage == &storage; });
}

/// Returns true if the task that the calling thread runs has created this node.
bool TaskAccesses::made_by_caller(const executor::Node& node) noexcept {
  const std::uint64_t caller = RunningTask::number_of_current();
  const TaskNode* const task = caller != 0 ? TaskNode::from(&node) : nullptr;
  const auto* const accesses = task != nullptr ? static_cast<const TaskAccesses*>(task->data()) : nullptr;
  return accesses != nullptr && accesses->rare_ && accesses->rare_->maker == caller;
}
/// Returns true if there are conflicting accesses by tasks that the calling thread's task did not create. The caller
/// must hold the storage's lock.
bool TaskAccesses::used_by_others(AccessOrder& order, Access mode, const StoragePart& part) {
  bool others = false;
  const auto look = [&](executor::Node& n, executor::Node::Dependency) { others = others || !made_by_caller(n); };
  order.for_each_pending(mode, part, look);
  return others;
}

void TaskAccesses::declare_reduction(Array& array, Combine op) {
  check_no_history("reduce", array, "but gradients do not pass through tasks",
                   "Pass stop_gradient(x), or compute it outside of tasks");
  if (array.bytes() == 0) return declare(array, Access::inout, MatrixPart::none);  // nothing to combine
  if (array.pending()) array.eval();
  const std::shared_ptr<Storage>& storage = array.source()->memory();
  storage->flush_readers();
  TaskStorage& data = TaskStorage::of(*storage);
  const StoragePart part = tessera::part_of(array.shape(), array.strides(), array.offset(), dtype_size(array.dtype()));
  if (declared(*storage) != nullptr || reduces_into(*storage))
    throw_access_error(*storage, "it is passed twice to one task that reduces into it", "Pass it once");
  rare().reduced.push_back({reductions_of(data, Access::reduce, &part, true), storage.get(), &array, op});
}

/// Returns the reductions that tasks created by this task use for a storage. If the storage was passed to the parent
/// task, these belong to the parent's access.
Reductions* TaskAccesses::reductions_of(TaskStorage& data, Access mode, const StoragePart* some, bool make) const {
  if (StoredAccess* const given = outer_of(data, mode, some)) {
    const std::lock_guard hold(data.lock());
    if (!make && given->known_details() == nullptr) return nullptr;
    AccessDetails& more = given->details();
    if (!more.reductions && make) more.reductions = std::make_unique<Reductions>();
    return more.reductions.get();
  }
  const TaskAccesses* const maker = outer();
  if (maker != nullptr && !maker->ended_.load(std::memory_order_acquire)) {
    bool others = data.reduced() && data.reductions().maker() != RunningTask::number_of_current();
    if (make && !others) {
      const std::lock_guard hold(data.lock());
      others = used_by_others(data.order(), mode, some != nullptr ? *some : full_part(data.home().bytes()));
    }
    if (others)
      throw_access_error(data.home(), "other tasks reduce into it, and it is not an argument of the parent task",
                         "Pass it to the parent task: inout(x)");
  }
  return make || data.reduced() ? &data.reductions() : nullptr;
}

/// Assigns the slots. Keeps the reductions locked until the dependencies of the task are known, so that the slots are
/// not combined before that.
void TaskAccesses::take_slots(std::vector<std::unique_lock<std::recursive_mutex>>& locks) {
  auto& reduced = rare_->reduced;
  std::ranges::sort(reduced, {}, &Reduced::into);
  for (const Reduced& r : reduced) locks.emplace_back(r.into->lock());
  for (const Reduced& r : reduced) {
    *r.array = r.into->slot(*r.array, r.op, node_->device());
    auto slot = std::make_unique<StoredAccess>(StoredAccess::ExternalArray{*r.array}, Access::inout, MatrixPart::none);
    slot->data_ = &TaskStorage::of(*r.array->source()->memory());
    slot->listed_ = true;
    add(*slot.release());
  }
  reduced.clear();
}

/// Replaces the array of an access without elements by a new array. The access is then not ordered, and neither copies
/// nor invalidates the contents of the original storage.
void TaskAccesses::separate(StoredAccess& access) {
  const Array view = access.array();
  Array own = Array::empty(view.shape(), view.dtype(), view.device());
  access.source_ = own.source(), access.empty_ = true;
  AccessDetails* const more = access.known_details();
  if (more != nullptr && more->external != nullptr)
    *more->external = std::move(own);
  else if (more != nullptr)
    more->array = std::move(own);
}

void TaskAccesses::declare(Array& array, Access mode, MatrixPart triangle) {
  auto kept = std::make_unique<StoredAccess>(StoredAccess::ExternalArray{array}, mode, triangle);
  declare(*kept);
  kept->listed_ = true;  // the list owns it
  static_cast<void>(kept.release());
}

void TaskAccesses::declare(StoredAccess& access) {
  const AccessDetails* const more = access.known_details();
  const Array* const array = more == nullptr ? nullptr : more->external != nullptr ? more->external : &*more->array;
  if (array != nullptr)
    check_no_history(to_string(access.mode_), *array, "but gradients do not pass through tasks",
                     "Pass stop_gradient(x), or compute it outside of tasks");
  std::uint64_t bytes = dtype_size(access.dtype_);  // size of a contiguous array that starts at the first byte
  if (array == nullptr)
    for (std::uint8_t k = 0; k < access.rank_; ++k) bytes *= static_cast<std::uint64_t>(access.sizes_[k]);
  else
    bytes = array->bytes();
  if (bytes == 0 || access.triangle_ != MatrixPart::none) [[unlikely]] {
    const Array view = access.array();
    if (tessera::part_of(view.shape(), view.strides(), view.offset(), dtype_size(view.dtype()), access.triangle_)
            .empty())
      separate(access);
  }
  if (access.source_->pending()) access.array().eval();
  const std::shared_ptr<Storage>& storage = access.source_->memory();
  if (writes(access.mode_)) storage->flush_readers();
  if (reduces_into(*storage)) [[unlikely]]
    throw_access_error(*storage, "it is passed twice to one task that reduces into it", "Pass it once");
  TaskStorage& data = TaskStorage::of(*storage);
  if (array != nullptr && (array->offset() != 0 || !array->contiguous())) bytes = 0;
  if (access.triangle_ != MatrixPart::none || bytes != storage->bytes() || bytes == 0) [[unlikely]] {
    const Array view = access.array();
    access.details().some.emplace(
        tessera::part_of(view.shape(), view.strides(), view.offset(), dtype_size(view.dtype()), access.triangle_));
  }
  if ((outer() != nullptr || data.reduced()) && !data.slot()) [[unlikely]]
    if (Reductions* const before = reductions_of(data, access.mode_, partial_part(access), false)) before->combine();
  access.data_ = &data;
  add(access);
}

StoredAccess* TaskAccesses::declared(const Storage& storage) noexcept {
  StoredAccess* found = nullptr;
  for (StoredAccess* a = first_; a != nullptr; a = a->next_)
    if ((&home_of(*a) == &storage || &memory_of(*a) == &storage) && (found == nullptr || writes(a->mode_))) found = a;
  return found;
}

/// Returns the access of the nearest ancestor task to which this storage was passed, or null if there is none. `some`
/// is the part that is accessed, or null for the whole storage.
StoredAccess* TaskAccesses::outer_of(const TaskStorage& data, Access mode, const StoragePart* some) const {
  for (TaskAccesses* a = outer(); a != nullptr && !a->ended_.load(std::memory_order_acquire); a = a->outer()) {
    StoredAccess* const given = a->declared(data.home());
    if (given == nullptr) continue;
    if (writes(mode) && !writes(given->mode_))
      throw_access_error(data.home(),
                         "the task writes an array that the parent task " + a->node_->name() + " received as in(x)",
                         "Pass it to the parent task as inout");
    const StoragePart* const outer_some = partial_part(*given);
    if (outer_some != nullptr && !contains(*outer_some, some != nullptr ? *some : full_part(data.home().bytes())))
      throw_access_error(data.home(),
                         "the part is not within the part that the parent task " + a->node_->name() + " received",
                         "Pass all data that its tasks use to the parent task");
    return given;
  }
  return nullptr;
}

void TaskAccesses::order() {
  std::vector<std::unique_lock<std::recursive_mutex>> reducing;
  if (rare_ && !rare_->reduced.empty()) [[unlikely]]
    take_slots(reducing);
  if (first_ == nullptr) return;
  const TaskAccesses* const maker = outer();
  InlineVector<TaskStorage*, 4> storages;
  InlineVector<StoredAccess*, 4> given;  // the parent's access for each access; null if there is none
  std::uint32_t count = 0;
  for (StoredAccess* a = first_; a != nullptr; a = a->next_, ++count) {
    if (maker != nullptr) [[unlikely]]
      given.push_back(a->data_->slot() ? nullptr : outer_of(*a));
    if (std::ranges::find(storages, a->data_) == storages.end()) storages.push_back(a->data_);
  }
  // Lock in a fixed order, so that tasks that are submitted concurrently have the same order in all storages.
  if (storages.size() > 1) std::ranges::sort(storages);
  for (TaskStorage* s : storages) s->lock().lock();
  struct Unlock {
    InlineVector<TaskStorage*, 4>& all;
    ~Unlock() {
      for (TaskStorage* s : all) s->lock().unlock();
    }
  } const unlock{storages};
  using Dependency = executor::Node::Dependency;
  const auto after = [&](executor::Node& other, Dependency kind) {
    if (&other == node_) return;
    // An observed failure does not affect later tasks. They use the data that the failed task has written.
    if (other.ended() && (kind == Dependency::order || !other.failure() ||
                          other.failure()->origin->observed.load(std::memory_order_relaxed)))
      return node_->trace_dependency(other, kind);
    // All locks are held, so there can be no dependency cycle of two tasks.
    node_->after(other, kind, executor::Node::Maker::any);
  };
  // One reference for each storage that records the node. Unused references are dropped.
  struct References {
    TaskNode& node;
    std::uint32_t left;
    ~References() {
      for (; left > 0; --left) node.drop();
    }
  } references{*node_, count};
  node_->keep(count);
  const Device device = node_->device();
  std::uint32_t i = 0;
  for (StoredAccess* a = first_; a != nullptr; a = a->next_, ++i) {
    AccessOrder* order = &a->data_->order();
    const StoragePart* const some = partial_part(*a);
    StoredAccess* const outer = maker != nullptr ? given[i] : nullptr;
    if (outer != nullptr) {
      AccessDetails& more = outer->details();
      if (!more.nested) more.nested = std::make_unique<AccessOrder>();
      order = more.nested.get();
      // Other tasks use other parts of the storage on its home device, so it cannot be moved as a whole.
      a->packs_ = more.some && device != home_of(*a).device();
    } else if (maker != nullptr && !a->data_->slot() && !maker->ended_.load(std::memory_order_acquire) &&
               used_by_others(*order, a->mode_, part_of(*a))) {
      throw_access_error(home_of(*a), "other tasks use it, and it is not an argument of the parent task",
                         "Pass it to the parent task: in(x), out(x) or inout(x)");
    }
    const bool remembered = some != nullptr ? order->add(*node_, a->mode_, *some, device, after)
                                            : order->add_full(*node_, a->mode_, home_of(*a).bytes(), device, after);
    if (remembered) --references.left;
    if (a->mode_ == Access::commute &&
        std::ranges::find(rare().commute_locks, &order->commute_lock()) == rare().commute_locks.end())
      rare().commute_locks.push_back(&order->commute_lock());
  }
  if (!rare_ || rare_->commute_locks.empty()) return;
  std::ranges::sort(rare_->commute_locks);
  node_->gate();
}

bool TaskAccesses::acquire_commute_locks(executor::Node& node) noexcept {
  if (!rare_) return true;
  // Locks are acquired in a fixed order and are not released before the task runs, so there is no deadlock.
  Rare& mine = *rare_;
  for (; mine.commute_locks_held < mine.commute_locks.size(); ++mine.commute_locks_held)
    if (!mine.commute_locks[mine.commute_locks_held]->take(node)) return false;
  return true;
}

/// Only tasks that use whole storages can migrate, because the order of tasks with disjoint parts depends on their
/// devices.
bool TaskAccesses::can_migrate() const {
  if (outer() != nullptr) return false;
  for (const StoredAccess* a = first_; a != nullptr; a = a->next_) {
    if (a->empty_) continue;
    const bool plain = a->mode_ == Access::in || a->mode_ == Access::out || a->mode_ == Access::inout;
    if (!plain || !contains(part_of(*a), full_part(home_of(*a).bytes()))) return false;
  }
  return true;
}
MissingData TaskAccesses::missing_on(Device device) const {
  MissingData missing;
  for_each([&](const StoredAccess& a) {
    if (a.mode_ != Access::out && !a.empty_ && !a.data_->valid_on(device))
      ++missing.copies, missing.bytes += home_of(a).bytes();
  });
  return missing;
}

/// Gives the task a packed copy of the view on its device.
void TaskAccesses::pack(StoredAccess& a) const {
  Array& array = full_array_of(a);
  AccessDetails& more = a.details();
  more.packed.emplace(array);
  array = a.mode_ == Access::out ? Array::empty(more.packed->shape(), more.packed->dtype(), node_->device())
                                 : copy_of_view(*more.packed, node_->device());
  more.device_storage = array.source()->memory();
  more.some.reset();
}
/// Copies the task's results back to the original view.
void TaskAccesses::unpack(StoredAccess& a) const {
  AccessDetails& more = a.details();
  more.device_storage.reset();
  if (!writes(a.mode_)) return;
  Array& packed = *more.packed;
  const Array back = copy_of_view(full_array_of(a), packed.device(), true);
  if (a.triangle_ == MatrixPart::none) return static_cast<void>(packed.assign(back));
  const int rank = packed.rank();
  const std::int64_t rows = packed.shape()[static_cast<std::size_t>(rank - 2)],
                     columns = packed.shape()[static_cast<std::size_t>(rank - 1)];
  for (std::int64_t i = 0; i < rows; ++i) {
    const auto [low, high] = band_of(a.triangle_);
    const std::int64_t begin = std::clamp<std::int64_t>(i + low, 0, columns),
                       end = std::clamp<std::int64_t>(i + high + 1, begin, columns);
    if (begin == end) continue;
    const auto row = [&](const Array& x) { return x.slice(rank - 2, i, i + 1).slice(rank - 1, begin, end); };
    row(packed).assign(row(back));
  }
}

void TaskAccesses::begin() {
  const Device device = node_->device();
  for (StoredAccess* a = first_; a != nullptr; a = a->next_) {
    if (a->packs_) {
      pack(*a);
      ++acquired_;
      continue;
    }
    if (a->data_->has_no_replicas() && home_of(*a).device() == device) {
      ++acquired_;
      continue;
    }
    // Earlier tasks may have left deferred expressions that read this memory. They are evaluated before the memory
    // becomes outdated.
    if (writes(a->mode_) && home_of(*a).device() != device) home_of(*a).flush_readers();
    // The old contents are needed unless the task overwrites all of them.
    const StoragePart* const some = partial_part(*a);
    const bool needed = !a->empty_ && (a->mode_ != Access::out ||
                                       (some != nullptr && !contains(*some, full_part(home_of(*a).bytes()))));
    std::shared_ptr<Storage> device_storage = a->data_->acquire(device, needed, shared_home_of(*a));
    ++acquired_;
    if (device_storage.get() == &home_of(*a)) continue;
    AccessDetails& more = a->details();
    more.device_storage = std::move(device_storage);
    if (more.external != nullptr || more.array) {
      Array& array = full_array_of(*a);
      array = in_storage(array, more.device_storage);
    }
  }
}

void TaskAccesses::finish() {
  for (StoredAccess* a = first_; a != nullptr; a = a->next_)
    if (AccessDetails* const more = a->known_details(); more != nullptr && more->reductions)
      more->reductions->combine();
  if (Tasks* const tasks = tasks_.load(std::memory_order_acquire)) tasks->wait();
  for (StoredAccess* a = first_; a != nullptr; a = a->next_) {
    AccessDetails* const more = a->known_details();
    Storage& memory = memory_of(*a);
    // Evaluate deferred expressions of the function that read this memory, because other tasks will write it.
    if (writes(a->mode_)) memory.flush_readers();
    // Tasks created by this task may have left the newest contents on other devices, or replicas that are now outdated.
    if (CoherenceHook* const e = memory.coherence_hook()) {
      static_cast<TaskStorage*>(e)->write_back();
      if (writes(a->mode_) && more != nullptr && more->device_storage)
        static_cast<TaskStorage*>(e)->invalidate_replicas();
    }
    if (more != nullptr && more->packed) unpack(*a);
  }
}

void TaskAccesses::handed_to_device() noexcept {
  const StoredAccess* a = first_;
  for (std::uint32_t i = 0; i < acquired_; ++i, a = a->next_)
    if (!a->packs_ && writes(a->mode_)) a->data_->written(node_->device());
  handed_to_device_ = true;
}

void TaskAccesses::end(const executor::Failure* failure) noexcept {
  if (failure != nullptr) [[unlikely]]
    for_each([&](const StoredAccess& a) {
      if (a.data_->slot()) a.data_->set_failed(failure->origin);
    });
  StoredAccess* a = first_;
  for (; acquired_ > 0; --acquired_, a = a->next_)
    if (!a->packs_) {
      if (writes(a->mode_) && !handed_to_device_) a->data_->written(node_->device());
      a->data_->release(node_->device());
    }
  if (rare_) [[unlikely]]
    while (rare_->commute_locks_held > 0) rare_->commute_locks[--rare_->commute_locks_held]->give();
  ended_.store(true, std::memory_order_release);
  release_accesses();
}

void TaskAccesses::check_use(const StoredAccess& a, const Storage& used, Access mode) const {
  if (writes(mode) && !writes(a.mode_))
    throw_access_error(home_of(a), "the task writes an array that was passed as in(x)",
                       "Pass it as inout(x), or as out(x) if it is overwritten completely");
  if (&memory_of(a) != &home_of(a) && &memory_of(a) != &used && writes(mode))
    throw_access_error(home_of(a),
                       "the original on " + to_string(home_of(a).device()) +
                           " is written, but the task has a copy on " + to_string(node_->device()),
                       "Use the array that the function receives instead of a captured one");
}

void TaskAccesses::use_undeclared(TaskStorage& data, Access mode) const {
  std::vector<executor::NodeRef> own;
  bool others = false;
  if (data.reduced()) {
    const std::uint64_t maker = data.reductions().maker();
    others = maker == 0 || maker != RunningTask::number_of_current();
    if (!others) data.combine();
  }
  if (!others) {
    const auto look = [&](executor::Node& n, executor::Node::Dependency) {
      if (made_by_caller(n))
        own.emplace_back(n);
      else
        others = true;
    };
    const std::lock_guard hold(data.lock());
    data.order().for_each_pending(mode, full_part(data.home().bytes()), look);
    RunningTask* const running = RunningTask::current();  // null while the arguments of a task are destroyed
    others = others ||
             (running != nullptr && !running->in_runtime_copy() && !data.record_undeclared_use(mode, running->use()));
  }
  if (others)
    throw_access_error(data.home(),
                       std::string(writes(mode) ? "the task writes" : "the task reads") +
                           " an array that it did not declare, while other tasks use that array",
                       writes(mode) ? "Pass it to the task: inout(x), or out(x) if it is overwritten completely"
                                    : "Pass it to the task: in(x), or inout(x) if it is also written");
  for (const executor::NodeRef& n : own) executor::wait(*n);
}

}  // namespace tessera::detail
