// SPDX-License-Identifier: Apache-2.0
#include "tessera/array/observer.h"

#include <mutex>

#include "tessera/array/elementwise.h"
#include "tessera/array/operation.h"
#include "tessera/device/memory/pending.h"

namespace tessera {

using detail::Source;

ArraySnapshot::ArraySnapshot(const Array& array)
    : dtype_(array.dtype()),
      device_(array.device()),
      shape_(array.shape()),
      strides_(array.strides()),
      offset_(array.offset()),
      history_(array.history()) {
  const auto& source = array.source();
  std::lock_guard hold(PendingRegistry::of(device_).lock);
  if (source->computed()) {
    storage_ = source->memory();
    writes_ = storage_->writes();
  } else {
    expr_ = source->expression();
    pending_ = source;
  }
}

std::shared_ptr<Source> ArraySnapshot::living() const {
  std::shared_ptr<Source> source = pending_.lock();
  // If the memory has been overwritten, the inputs of the expression may still be unchanged. The expression is then
  // used instead.
  if (source && source->computed() && source->overwritten()) source.reset();
  return source;
}

std::optional<std::string> ArraySnapshot::written() const {
  if (living()) return std::nullopt;
  const Storage* by = expr_ ? expr_->outdated() : storage_->writes() != writes_ ? storage_.get() : nullptr;
  if (by == nullptr) return std::nullopt;
  return by->writer() != nullptr ? by->writer() : "code other than array operations";
}

Array ArraySnapshot::array() const {
  if (written())
    fail<ArgumentError>({.operation = "ArraySnapshot::array",
                         .with = {{"dtype", std::string(dtype_name(dtype_))}, {"shape", to_string(shape_)}},
                         .wrong = "memory that it reads has been written in place since the snapshot",
                         .remedy = "Write x = x + y instead of x += y, or keep a copy()"});
  std::shared_ptr<Source> source = living();
  if (!source) source = expr_ ? Source::of(expr_) : Source::of(storage_, dtype_);
  Array out = ArrayAccess::make(std::move(source), dtype_, shape_, strides_, offset_);
  out.set_history(history_);
  return out;
}

ObserverScope::ObserverScope(ArrayObserver* observer)
    : before_(std::exchange(thread_context.array_observer, observer)) {}
ObserverScope::~ObserverScope() { thread_context.array_observer = before_; }

namespace detail {

void Operation::keep(const ArrayOperand& o) {
  if (o.is_array())
    keep(o.array());
  else
    operands_.emplace_back(ScalarSnapshot{o.value(), o.dtype()});
}

void Operation::note_writer(const Array& target) const {
  if (target.size() != 0) target.source()->memory()->set_writer(name_);
}

void Operation::notify_observer(std::span<Array> results, const Attributes& attributes, bool in_place) const {
  thread_context.array_observer->made({name_, operands_, attributes, results, in_place});
}

}  // namespace detail
}  // namespace tessera
