// SPDX-License-Identifier: Apache-2.0
#include "tessera/task/task_accesses.h"

#include <algorithm>

#include "tessera/array/elementwise.h"
#include "tessera/array/history.h"
#include "tessera/array/source.h"
#include "tessera/task/running_task.h"

namespace tessera::detail {

/// Plain tasks made by a task: it waits for them, and what fails there is told as of any plain task.
class TaskAccesses::Tasks final : public executor::Group {
 public:
  Tasks(TaskNode& node) : Group(executor::Executor::instance(), &node.group()), device_(node.device()) {}

 protected:
  void failed(const executor::Node& node) noexcept override { remember_failure(node, device_); }

 private:
  const Device device_;
};

// --- What is kept of an array
// ---------------------------------------------------------------------------------------------

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
    // The only one to have it: a reference counted twice is a line of memory fetched once more.
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
/// The array as an Array that may be changed to where the task runs.
Array& TaskAccesses::full_array_of(StoredAccess& a) {
  AccessDetails& more = a.details();
  if (more.external != nullptr) return *more.external;
  if (!more.array) more.array.emplace(a.array());
  return *more.array;
}

// --- Declaring
// ------------------------------------------------------------------------------------------------------------

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
/// Of tasks that were given no array.
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

/// By the task that the calling thread runs.
bool TaskAccesses::made_by_caller(const executor::Node& node) noexcept {
  const std::uint64_t caller = RunningTask::number_of_current();
  const TaskNode* const task = caller != 0 ? TaskNode::from(&node) : nullptr;
  const auto* const accesses = task != nullptr ? static_cast<const TaskAccesses*>(task->data()) : nullptr;
  return accesses != nullptr && accesses->rare_ && accesses->rare_->maker == caller;
}
/// By tasks that the calling thread's has not made. With the storage's lock held.
bool TaskAccesses::used_by_others(AccessOrder& order, Access mode, const StoragePart& part) {
  bool others = false;
  const auto look = [&](executor::Node& n, executor::Node::Dependency) { others = others || !made_by_caller(n); };
  order.for_each_pending(mode, part, look);
  return others;
}

void TaskAccesses::declare_reduction(Array& array, Combine op) {
  check_no_history("reduce", array, "gradients are not taken through tasks",
                   "Give the task stop_gradient(x), or compute it outside of tasks");
  if (array.bytes() == 0) return declare(array, Access::inout, MatrixPart::none);  // nothing to combine
  if (array.pending()) array.eval();
  const std::shared_ptr<Storage>& storage = array.source()->memory();
  storage->flush_readers();
  TaskStorage& data = TaskStorage::of(*storage);
  const StoragePart part = tessera::part_of(array.shape(), array.strides(), array.offset(), dtype_size(array.dtype()));
  if (declared(*storage) != nullptr || reduces_into(*storage))
    throw_access_error(*storage, "it is given twice to one task, and reduced into", "Give it once");
  rare().reduced.push_back({reductions_of(data, Access::reduce, &part, true), storage.get(), &array, op});
}

/// Where tasks made at this place reduce into a storage: of the task that makes this one, if that was given it.
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
      throw_access_error(data.home(), "tasks reduce into it, and the task that makes this one was not given it",
                         "Give it to that task: inout(x)");
  }
  return make || data.reduced() ? &data.reductions() : nullptr;
}

/// Locks what it reduces into, until it is put in order, so that nobody combines the slots before.
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

/// An access without elements is one of memory of its own: it is ordered after nothing, and neither copies
/// nor outdates what is in the array's own.
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
  kept->listed_ = true;  // it is in the list, which deletes it
  static_cast<void>(kept.release());
}

void TaskAccesses::declare(StoredAccess& access) {
  const AccessDetails* const more = access.known_details();
  const Array* const array = more == nullptr ? nullptr : more->external != nullptr ? more->external : &*more->array;
  if (array != nullptr)
    check_no_history(to_string(access.mode_), *array, "gradients are not taken through tasks",
                     "Give the task stop_gradient(x), or compute it outside of tasks");
  std::uint64_t bytes = dtype_size(access.dtype_);  // of what begins at the first byte, one after the other
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
    throw_access_error(*storage, "it is given twice to one task, and reduced into", "Give it once");
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

/// What the nearest ancestor that was given this storage said of it; null if none was. `some` is the part; null: all.
StoredAccess* TaskAccesses::outer_of(const TaskStorage& data, Access mode, const StoragePart* some) const {
  for (TaskAccesses* a = outer(); a != nullptr && !a->ended_.load(std::memory_order_acquire); a = a->outer()) {
    StoredAccess* const given = a->declared(data.home());
    if (given == nullptr) continue;
    if (writes(mode) && !writes(given->mode_))
      throw_access_error(data.home(),
                         "it is to be written, and the task " + a->node_->name() + " that makes this one has it as in",
                         "Give it to that task as inout");
    const StoragePart* const outer_some = partial_part(*given);
    if (outer_some != nullptr && !contains(*outer_some, some != nullptr ? *some : full_part(data.home().bytes())))
      throw_access_error(
          data.home(),
          "the part is not within that which the task " + a->node_->name() + ", which makes this one, was given",
          "Give that task all that tasks made by it use");
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
  InlineVector<StoredAccess*, 4> given;  // by the maker, of each access; none: by nobody
  std::uint32_t count = 0;
  for (StoredAccess* a = first_; a != nullptr; a = a->next_, ++count) {
    if (maker != nullptr) [[unlikely]]
      given.push_back(a->data_->slot() ? nullptr : outer_of(*a));
    if (std::ranges::find(storages, a->data_) == storages.end()) storages.push_back(a->data_);
  }
  // In one order, so that tasks that are submitted at once come after each other in all storages, or in none.
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
    // Of one that failed long ago somebody was told, and uses what it wrote all the same.
    if (other.ended() && (kind == Dependency::order || !other.failure() ||
                          other.failure()->origin->observed.load(std::memory_order_relaxed)))
      return node_->trace_dependency(other, kind);
    // With all locks held by one of them, no two tasks come after each other.
    node_->after(other, kind, executor::Node::Maker::any);
  };
  // A reference for each storage that remembers it; what is not used up goes.
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
      // Others use the rest of it where it is: it cannot be moved as a whole.
      a->packs_ = more.some && device != home_of(*a).device();
    } else if (maker != nullptr && !a->data_->slot() && !maker->ended_.load(std::memory_order_acquire) &&
               used_by_others(*order, a->mode_, part_of(*a))) {
      throw_access_error(home_of(*a), "others use it, and the task that makes this one was not given it",
                         "Give it to that task, too: in(x), out(x) or inout(x)");
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
  // One after the other in one order for all, those that it has it keeps: nobody waits in a circle.
  Rare& mine = *rare_;
  for (; mine.commute_locks_held < mine.commute_locks.size(); ++mine.commute_locks_held)
    if (!mine.commute_locks[mine.commute_locks_held]->take(node)) return false;
  return true;
}

/// Of whole storages, which nobody else uses while this does: parts that do not meet are ordered by where they are
/// used.
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

/// A copy of the view alone is where the task runs.
void TaskAccesses::pack(StoredAccess& a) const {
  Array& array = full_array_of(a);
  AccessDetails& more = a.details();
  more.packed.emplace(array);
  array = a.mode_ == Access::out ? Array::empty(more.packed->shape(), more.packed->dtype(), node_->device())
                                 : copy_of_view(*more.packed, node_->device());
  more.device_storage = array.source()->memory();
  more.some.reset();
}
/// What the task wrote of it is where the view is.
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
    // What tasks before it have left deferred on memory that is to be outdated.
    if (writes(a->mode_) && home_of(*a).device() != device) home_of(*a).flush_readers();
    // What is not overwritten whole is needed.
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
    // What the function deferred on memory that others will write.
    if (writes(a->mode_)) memory.flush_readers();
    // Tasks made by this one may have left its newest contents elsewhere, and copies that are about to be outdated.
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
    throw_access_error(home_of(a), "it is written, and was given as in",
                       "Give it as inout(x), or as out(x) if it is written whole");
  if (&memory_of(a) != &home_of(a) && &memory_of(a) != &used && writes(mode))
    throw_access_error(home_of(a),
                       "it is written where it was before, on " + to_string(home_of(a).device()) +
                           ", and the task has it on " + to_string(node_->device()),
                       "Use the array that the function is given in place of one that it captured");
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
    RunningTask* const running = RunningTask::current();  // none where a task's arguments go
    others = others ||
             (running != nullptr && !running->in_runtime_copy() && !data.record_undeclared_use(mode, running->use()));
  }
  if (others)
    throw_access_error(data.home(),
                       std::string(writes(mode) ? "it is written" : "it is read") +
                           " while other tasks use it, and the task did not say so",
                       writes(mode) ? "Give it to the task: inout(x), or out(x) if it is written whole"
                                    : "Give it to the task: in(x), or inout(x) if it is written, too");
  for (const executor::NodeRef& n : own) executor::wait(*n);
}

}  // namespace tessera::detail
