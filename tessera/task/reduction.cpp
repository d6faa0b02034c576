// SPDX-License-Identifier: Apache-2.0
#include "tessera/task/reduction.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <mutex>
#include <utility>

#include "tessera/array/elementwise.h"
#include "tessera/array/source.h"
#include "tessera/task/region.h"
#include "tessera/task/running_task.h"
#include "tessera/task/task_storage.h"

namespace tessera {

const char* to_string(Combine op) {
  constexpr std::array names = {"sum", "product", "minimum", "maximum"};
  return names[static_cast<std::size_t>(op)];
}

namespace detail {
namespace {

Array combined(Combine op, const Array& a, const Array& b) {
  switch (op) {
    case Combine::sum: return a + b;
    case Combine::product: return a * b;
    case Combine::minimum: return minimum(a, b);
    case Combine::maximum: return maximum(a, b);
  }
  return a;
}

double neutral(Combine op, DType dtype) {
  if (op == Combine::sum) return 0;
  if (op == Combine::product) return 1;
  const double sign = op == Combine::minimum ? 1 : -1;
  if (is_float(dtype)) return sign * std::numeric_limits<double>::infinity();
  const auto limits = [&]<class T>(T) {
    return static_cast<double>(op == Combine::minimum ? std::numeric_limits<T>::max() : std::numeric_limits<T>::min());
  };
  switch (dtype) {
    case DType::i8: return limits(std::int8_t{});
    case DType::u8: return limits(std::uint8_t{});
    case DType::i16: return limits(std::int16_t{});
    case DType::u16: return limits(std::uint16_t{});
    case DType::i32: return limits(std::int32_t{});
    case DType::u32: return limits(std::uint32_t{});
    default:
      fail<DtypeError>({.operation = "reduce",
                        .with = {{"operation", to_string(op)}, {"dtype", std::string(dtype_name(dtype))}},
                        .wrong = "this operation does not support the dtype",
                        .remedy = "Use floats, or integers of at most 32 bits"});
  }
}

/// Returns the failure of a reducing task, or null if none failed.
std::shared_ptr<const executor::FailureOrigin> failure_of(const std::vector<Array>& slots) {
  for (const Array& s : slots)
    if (auto why = TaskStorage::of(*s.source()->memory()).failed()) return why;
  return nullptr;
}

constinit thread_local const Reductions* combining =
    nullptr;  // the reductions that this thread is combining; tasks that it submits meanwhile use their result

}  // namespace

Array Reductions::slot(const Array& result, Combine op, Device device) {
  const StoragePart part = part_of(result.shape(), result.strides(), result.offset(), dtype_size(result.dtype()));
  const auto same = [&](const Set& s) {
    return s.op == op && s.dtype == result.dtype() && s.shape == result.shape() && s.strides == result.strides() &&
           s.offset == result.offset();
  };
  auto at = std::ranges::find_if(sets_, same);
  if (at != sets_.end())
    if (const auto why = failure_of(at->slots);
        why && why->observed) {  // a task failed, and the failure was observed: nothing is combined, and the reduction
                                 // starts again
      sets_.erase(at);
      at = sets_.end();
    }
  if (at == sets_.end()) {
    neutral(op, result.dtype());  // throws before anything is changed
    combine(&part);
    sets_.push_back({op,
                     result.source()->memory(),
                     result.shape(),
                     result.strides(),
                     result.offset(),
                     result.dtype(),
                     part,
                     0,
                     {}});
    at = sets_.end() - 1;
    if (!any()) maker_.store(RunningTask::number_of_current(), std::memory_order_relaxed);
    any_.store(true, std::memory_order_release);
  }
  const std::size_t number = at->tasks % slots;
  if (number == at->slots.size()) {
    Array fresh = Array::full(at->shape, neutral(op, at->dtype), at->dtype, device).copy().eval();
    TaskStorage::of(*fresh.source()->memory()).set_slot();
    at->slots.push_back(std::move(fresh));
  }
  ++at->tasks;
  return at->slots[number];
}

void Reductions::combine(const StoragePart* part) {
  if (!any()) return;
  const std::lock_guard hold(lock_);
  if (combining == this) return;  // reductions into parts that are not used yet remain pending
  struct Combining {
    const Reductions* const before;
    ~Combining() { combining = before; }
  } const mine{std::exchange(combining, this)};
  for (std::size_t i = 0; i < sets_.size();) {
    if (part != nullptr && !overlap(sets_[i].part, *part)) {
      ++i;
      continue;
    }
    Set set = std::move(sets_[i]);
    sets_.erase(sets_.begin() + static_cast<std::ptrdiff_t>(i));
    submit(std::move(set));
  }
  if (sets_.empty()) any_.store(false, std::memory_order_release);
}

void Reductions::submit(Set set) {
  const std::shared_ptr<Storage> storage = set.storage.lock();
  if (!storage || set.slots.empty()) return;
  // Options of the thread that triggers the combination must not apply to its tasks.
  struct Options {
    const InheritedOptions* const before = std::exchange(inherited_options, nullptr);
    ~Options() { inherited_options = before; }
  } const none;
  const Array result = ArrayAccess::make(Source::of(storage, set.dtype), set.dtype, set.shape, set.strides, set.offset);
  std::vector<Accessed> all;
  for (const Array& s : set.slots) all.push_back(in(s));
  auto made = make_task(
      nullptr, {.scope = Scope(result.device()), .name = std::string("combine by ") + to_string(set.op)},
      [op = set.op, slots = set.slots](Array& to, const std::vector<Array>& given) {
        if (failure_of(slots))
          return;  // the failure was observed; later tasks use the result without these contributions
        std::vector<Array> parts = given;
        for (std::size_t step = 1; step < parts.size(); step *= 2)
          for (std::size_t i = 0; i + step < parts.size(); i += 2 * step)
            parts[i] = combined(op, parts[i], parts[i + step]);
        to.assign(combined(op, to, parts[0]));
      },
      inout(result), std::move(all));
  made.draft->ignore_cancellation();  // otherwise, cancelling the group would lose the results of tasks that have run
  made.draft.submit();
}

}  // namespace detail
}  // namespace tessera
