// SPDX-License-Identifier: Apache-2.0
#include "tessera/task/task_accesses.h"

#include <algorithm>

#include "tessera/array/history.h"
#include "tessera/array/source.h"

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

void place_data(Placing& placing, const Array& array) {
  const std::uint64_t bytes = array.bytes();
  if (array.pending() || array.source()->memory()->elsewhere() == nullptr)
    return placing.data_on(array.device(), bytes);
  TaskStorage& data = TaskStorage::of(*array.source()->memory());
  if (data.only_home()) return placing.data_on(array.device(), bytes);
  for (const Device d : data.valid_devices()) placing.data_on(d, bytes);
}
void declare_access(TaskNode& node, Array& array, Access mode, MatrixPart triangle) {
  TaskAccesses::of(node).declare(array, mode, triangle);
}

void declare_reduction(TaskNode& node, Array& array, Combine op) {
  TaskAccesses::of(node).declare_reduction(array, op);
}

TaskAccesses& TaskAccesses::of(TaskNode& node) {
  if (TaskData* const known = node.data()) return static_cast<TaskAccesses&>(*known);
  auto fresh = std::allocate_shared<TaskAccesses>(executor::slab::Allocator<TaskAccesses>(), node);
  TaskAccesses& made = *fresh;
  node.attach(std::move(fresh));
  return made;
}

TaskAccesses* TaskAccesses::current() noexcept {
  TaskNode* const node = TaskNode::current();
  if (node == nullptr) return nullptr;
  TaskData* const data = node->data();
  return data != nullptr ? static_cast<TaskAccesses*>(data) : &none();
}
/// Of tasks that were given no array.
TaskAccesses& TaskAccesses::none() {
  static auto& all = *new TaskAccesses();
  return all;
}

TaskAccesses::TaskAccesses() : node_(nullptr) {}
TaskAccesses::TaskAccesses(TaskNode& node) : node_(&node) {
  outer_ = std::static_pointer_cast<TaskAccesses>(node.outer_data());
}

TaskAccesses::~TaskAccesses() = default;

executor::Group* TaskAccesses::tasks() {
  if (node_ == nullptr || ended_.load(std::memory_order_acquire)) return nullptr;
  const std::lock_guard hold(lock_);
  if (!tasks_) tasks_ = std::make_unique<Tasks>(*node_);
  return tasks_.get();
}

void TaskAccesses::refuse(const Storage& storage, const std::string& wrong, const std::string& todo) const {
  const TaskNode* const task = node_ != nullptr ? node_ : TaskNode::current();
  fail<ArgumentError>({.asked = "access",
                       .with = {{"task", task != nullptr ? task->name() : std::string("?")}, {"array", storage.name()}},
                       .wrong = wrong,
                       .todo = todo});
}

void TaskAccesses::declare_reduction(Array& array, Combine op) {
  check_no_history("reduce", array, "gradients are not taken through tasks",
                   "Give the task stop_gradient(x), or compute it outside of tasks");
  if (array.pending()) array.eval();
  const std::shared_ptr<Storage>& storage = array.source()->memory();
  storage->flush_readers();
  Declared d;
  d.data = &TaskStorage::of(*storage), d.mode = Access::reduce, d.array = &array;
  d.home = std::shared_ptr<Storage>(array.source(), storage.get());
  d.some =
      std::make_unique<StoragePart>(part_of(array.shape(), array.strides(), array.offset(), dtype_size(array.dtype())));
  const bool again =
      declared(*storage) != nullptr ||
      (reduced_ && std::ranges::any_of(*reduced_, [&](const Reduced& r) { return r.storage == storage.get(); }));
  if (again) refuse(*storage, "it is given twice to one task, and reduced into", "Give it once");
  if (!reduced_) reduced_ = std::make_unique<std::vector<Reduced>>();
  reduced_->push_back({reductions_of(d, true), storage.get(), &array, op});
}

/// Where tasks made at this place reduce into a storage: of the task that makes this one, if that was given it.
Reductions* TaskAccesses::reductions_of(const Declared& d, bool make) const {
  if (Declared* const outer = outer_of(d)) {
    const std::lock_guard hold(d.data->lock());
    if (!outer->reductions && make) outer->reductions = std::make_unique<Reductions>();
    return outer->reductions.get();
  }
  if (outer_ && !outer_->ended_.load(std::memory_order_acquire) && (make || d.data->reduced()))
    refuse(*d.home, "tasks reduce into it, and the task that makes this one was not given it",
           "Give it to that task: inout(x)");
  return make || d.data->reduced() ? &d.data->reductions() : nullptr;
}

/// Locks what it reduces into, until it is put in order, so that nobody combines the slots before.
void TaskAccesses::take_slots(std::vector<std::unique_lock<std::recursive_mutex>>& locks) {
  std::ranges::sort(*reduced_, {}, &Reduced::into);
  for (const Reduced& r : *reduced_) locks.emplace_back(r.into->lock());
  for (const Reduced& r : *reduced_) {
    *r.array = r.into->slot(*r.array, r.op, node_->device());
    const std::shared_ptr<Storage>& storage = r.array->source()->memory();
    Declared& d = all_.emplace_back();
    d.data = &TaskStorage::of(*storage), d.mode = Access::inout, d.array = r.array;
    d.home = std::shared_ptr<Storage>(r.array->source(), storage.get());
  }
  reduced_.reset();
}

void TaskAccesses::declare(Array& array, Access mode, MatrixPart triangle) {
  const char* const operation = to_string(mode);
  check_no_history(operation, array, "gradients are not taken through tasks",
                   "Give the task stop_gradient(x), or compute it outside of tasks");
  if (array.pending()) array.eval();
  const std::shared_ptr<Storage>& storage = array.source()->memory();
  if (writes(mode)) storage->flush_readers();
  if (reduced_ && std::ranges::any_of(*reduced_, [&](const Reduced& r) { return r.storage == storage.get(); }))
      [[unlikely]]
    refuse(*storage, "it is given twice to one task, and reduced into", "Give it once");
  if (all_.capacity() == 0) all_.reserve(3);
  Declared& d = all_.emplace_back();
  d.data = &TaskStorage::of(*storage), d.mode = mode, d.array = &array, d.triangle = triangle;
  d.home = std::shared_ptr<Storage>(array.source(), storage.get());  // whose count is changed anyway

  const bool all = triangle == MatrixPart::none && array.offset() == 0 && array.bytes() == storage->bytes() &&
                   array.bytes() != 0 && array.contiguous();
  if (!all)
    d.some = std::make_unique<StoragePart>(
        part_of(array.shape(), array.strides(), array.offset(), dtype_size(array.dtype()), triangle));
  if ((outer_ || d.data->reduced()) && !d.data->slot()) [[unlikely]]
    if (Reductions* const before = reductions_of(d, false)) before->combine();
}

TaskAccesses::Declared* TaskAccesses::declared(const Storage& storage) noexcept {
  Declared* found = nullptr;
  for (Declared& d : all_)
    if ((d.home.get() == &storage || d.here.get() == &storage) && (found == nullptr || writes(d.mode))) found = &d;
  return found;
}

/// What the nearest ancestor that was given this storage said of it; null if none was.
TaskAccesses::Declared* TaskAccesses::outer_of(const Declared& d) const {
  for (TaskAccesses* a = outer_.get(); a != nullptr && !a->ended_.load(std::memory_order_acquire);
       a = a->outer_.get()) {
    Declared* const outer = a->declared(*d.home);
    if (outer == nullptr) continue;
    if (writes(d.mode) && !writes(outer->mode))
      refuse(*d.home, "it is to be written, and the task " + a->node_->name() + " that makes this one has it as in",
             "Give it to that task as inout");
    if (!contains(outer->part(), d.part()))
      refuse(*d.home,
             "the part is not within that which the task " + a->node_->name() + ", which makes this one, was given",
             "Give that task all that tasks made by it use");
    return outer;
  }
  return nullptr;
}

void TaskAccesses::order() {
  std::vector<std::unique_lock<std::recursive_mutex>> reducing;
  if (reduced_) [[unlikely]]
    take_slots(reducing);
  if (all_.empty()) return;
  InlineVector<TaskStorage*, 8> storages;
  InlineVector<Declared*, 8> outer;
  for (Declared& d : all_) {
    outer.push_back(d.data->slot() ? nullptr : outer_of(d));
    if (std::ranges::find(storages, d.data) == storages.end()) storages.push_back(d.data);
  }
  // In one order, so that tasks that are submitted at once come after each other in all storages, or in none.
  if (storages.size() > 1) std::ranges::sort(storages);
  for (TaskStorage* s : storages) s->lock().lock();
  struct Unlock {
    InlineVector<TaskStorage*, 8>& all;
    ~Unlock() {
      for (TaskStorage* s : all) s->lock().unlock();
    }
  } const unlock{storages};
  using Dependency = executor::Node::Dependency;
  const auto after = [&](executor::Node& other, Dependency kind) {
    if (&other == node_) return;
    // Of one that failed long ago somebody was told, and uses what it wrote all the same.
    if (other.ended() && (kind == Dependency::order || !other.failure() ||
                          other.failure()->origin->told.load(std::memory_order_relaxed)))
      return node_->note_after(other, kind);
    // With all locks held by one of them, no two tasks come after each other.
    node_->after(other, kind, executor::Node::Maker::any);
  };
  for (std::size_t i = 0; i < all_.size(); ++i) {
    Declared& d = all_[i];
    AccessOrder* order = &d.data->order();
    const StoragePart part = d.part();
    if (outer[i] != nullptr) {
      if (!outer[i]->nested) outer[i]->nested = std::make_unique<AccessOrder>();
      order = outer[i]->nested.get();
      // Others use the rest of it where it is: it cannot be moved as a whole.
      d.packs = outer[i]->some && node_->device() != d.home->device();
    } else if (outer_ && !d.data->slot() && !outer_->ended_.load(std::memory_order_acquire) &&
               order->busy(d.mode, part)) {
      refuse(*d.home, "others use it, and the task that makes this one was not given it",
             "Give it to that task, too: in(x), out(x) or inout(x)");
    }
    order->add(*node_, d.mode, part, node_->device(), after);
    if (d.mode == Access::commute && std::ranges::find(turns_, &order->turn()) == turns_.end())
      turns_.push_back(&order->turn());
  }
  if (turns_.empty()) return;
  std::ranges::sort(turns_);
  node_->gate();
}

bool TaskAccesses::take_turns(executor::Node& node) noexcept {
  // One after the other in one order for all, those that it has it keeps: nobody waits in a circle.
  for (; turns_held_ < turns_.size(); ++turns_held_)
    if (!turns_[turns_held_]->take(node)) return false;
  return true;
}

/// Of whole storages, which nobody else uses while this does: parts that do not meet are ordered by where they are
/// used.
bool TaskAccesses::may_move() const {
  return !outer_ && std::ranges::all_of(all_, [](const Declared& d) {
    return (d.mode == Access::in || d.mode == Access::out || d.mode == Access::inout) &&
           contains(d.part(), whole_part(d.home->bytes()));
  });
}
Missing TaskAccesses::missing_on(Device device) const {
  Missing missing;
  for (const Declared& d : all_)
    if (d.mode != Access::out && !d.data->valid_on(device)) ++missing.copies, missing.bytes += d.home->bytes();
  return missing;
}

/// A copy of the view alone is where the task runs.
void TaskAccesses::pack(Declared& d) const {
  auto view = std::make_unique<Array>(*d.array);
  *d.array = d.mode == Access::out ? Array::empty(view->shape(), view->dtype(), node_->device())
                                   : copy_of_view(*view, node_->device());
  d.here = d.array->source()->memory();
  d.packed = std::move(view), d.some.reset();
}
/// What the task wrote of it is where the view is.
void TaskAccesses::unpack(Declared& d) const {
  d.here.reset();
  if (!writes(d.mode)) return;
  const Array back = copy_of_view(*d.array, d.packed->device(), true);
  if (d.triangle == MatrixPart::none) return static_cast<void>(d.packed->assign(back));
  const int rank = d.packed->rank();
  const std::int64_t rows = d.packed->shape()[static_cast<std::size_t>(rank - 2)],
                     columns = d.packed->shape()[static_cast<std::size_t>(rank - 1)];
  for (std::int64_t i = 0; i < rows; ++i) {
    const auto [low, high] = band_of(d.triangle);
    const std::int64_t begin = std::clamp<std::int64_t>(i + low, 0, columns),
                       end = std::clamp<std::int64_t>(i + high + 1, begin, columns);
    if (begin == end) continue;
    const auto row = [&](const Array& a) { return a.slice(rank - 2, i, i + 1).slice(rank - 1, begin, end); };
    row(*d.packed).assign(row(back));
  }
}

void TaskAccesses::begin() {
  for (Declared& d : all_) {
    if (d.packs) {
      pack(d);
      ++acquired_;
      continue;
    }
    if (d.data->only_home() && d.home->device() == node_->device()) {
      ++acquired_;
      continue;
    }
    // What is not overwritten whole is needed.
    const bool needed = d.mode != Access::out || (d.some && !contains(*d.some, whole_part(d.home->bytes())));
    d.here = d.data->acquire(node_->device(), needed, d.home);
    ++acquired_;
    if (d.here.get() != d.home.get()) *d.array = in_storage(*d.array, d.here);
  }
}

void TaskAccesses::finish() {
  for (Declared& d : all_)
    if (d.reductions) d.reductions->combine();
  if (tasks_) tasks_->wait();
  for (Declared& d : all_) {
    // What the function deferred on memory that others will write.
    if (writes(d.mode)) d.memory().flush_readers();
    // Tasks made by this one may have left its newest contents elsewhere, and copies that are about to be outdated.
    if (Elsewhere* const e = d.memory().elsewhere()) {
      static_cast<TaskStorage*>(e)->bring_home();
      if (writes(d.mode) && d.here) static_cast<TaskStorage*>(e)->forget_copies();
    }
    if (d.packed) unpack(d);
  }
}

void TaskAccesses::end(const executor::Failure*) noexcept {
  for (std::size_t i = 0; i < acquired_; ++i)
    if (!all_[i].packs) all_[i].data->release(node_->device(), writes(all_[i].mode));
  while (turns_held_ > 0) turns_[--turns_held_]->give();
  ended_.store(true, std::memory_order_release);
  all_.clear();
  acquired_ = 0;
  outer_.reset();
}

void TaskAccesses::check_use(const Declared& d, const Storage& used, Access mode) const {
  if (writes(mode) && !writes(d.mode))
    refuse(*d.home, "it is written, and was given as in", "Give it as inout(x), or as out(x) if it is written whole");
  if (d.here && d.here.get() != &used && writes(mode))
    refuse(*d.home,
           "it is written where it was before, on " + to_string(d.home->device()) + ", and the task has it on " +
               to_string(node_->device()),
           "Use the array that the function is given in place of one that it captured");
}

void TaskAccesses::check_undeclared(TaskStorage& data, Access mode) const {
  bool busy;
  if (data.reduced()) {
    busy = true;
  } else {
    const std::lock_guard hold(data.lock());
    busy = data.order().busy(mode, whole_part(data.home().bytes()));
  }
  if (busy)
    refuse(data.home(),
           std::string(writes(mode) ? "it is written" : "it is read") +
               " while other tasks use it, and the task did not say so",
           writes(mode) ? "Give it to the task: inout(x), or out(x) if it is written whole"
                        : "Give it to the task: in(x)");
}

}  // namespace tessera::detail
