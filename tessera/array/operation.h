// SPDX-License-Identifier: Apache-2.0
// Marks the entry and exit of every public array operation, for array/ and ops/. Only the outermost operation is
// reported to the thread's observer. Without an observer, this costs one increment and one comparison.
#pragma once

#include <initializer_list>
#include <type_traits>
#include <utility>

#include "tessera/array/history.h"
#include "tessera/device/context.h"

namespace tessera::detail {

class Operation {
 public:
  /// Marks the entry of an operation. Call it before operands are moved from. Operands are Array, ArrayOperand,
  /// std::optional<Array> or a span of Array. They are captured only if there is an observer.
  template <class... O>
  explicit Operation(const char* name, const O&... operands) : name_(name) {
    if (++thread_context.array_operations == 1 && thread_context.array_observer != nullptr) [[unlikely]] {
      struct Leave {
        bool stays = false;
        ~Leave() { thread_context.array_operations -= !stays; }
      } leave;
      observed_ = true;
      (keep(operands), ...);
      leave.stays = true;
    }
  }
  ~Operation() { --thread_context.array_operations; }
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  // Mark the exit of an operation. `attributes` returns Attributes and is called only if there is an observer.
  Array finish(Array&& result) const {
    if (observed_) [[unlikely]]
      notify_observer({&result, 1}, {}, false);
    return std::move(result);
  }
  template <class A>
  Array finish(Array&& result, A&& attributes) const {
    if (observed_) [[unlikely]]
      notify_observer({&result, 1}, attributes(), false);
    return std::move(result);
  }
  Array finish(const Array& result) const { return finish(Array(result)); }
  template <class A>
  Array finish(const Array& result, A&& attributes) const {
    return finish(Array(result), std::forward<A>(attributes));
  }
  template <class A>
  std::vector<Array> finish(std::vector<Array> results, A&& attributes) const {
    if (observed_) [[unlikely]]
      notify_observer(results, attributes(), false);
    return results;
  }
  /// Marks the exit of an operation that wrote its first operand, `target`, in place.
  void finish_in_place(Array& target) const { finish_in_place(std::span(&target, 1)); }
  /// Marks the exit of an operation that wrote its first operands, `targets`, in place.
  void finish_in_place(std::span<Array> targets) const {
    for (const Array& target : targets) note_writer(target);
    if (observed_) [[unlikely]]
      notify_observer(targets, {}, true);
  }
  void finish_in_place(const Array& target) const {
    note_writer(target);
    if (observed_) [[unlikely]] {
      Array written = target;
      notify_observer({&written, 1}, {}, true);
    }
  }
  template <class A>
  void finish_in_place(Array& target, A&& attributes) const {
    note_writer(target);
    if (observed_) [[unlikely]]
      notify_observer({&target, 1}, attributes(), true);
  }

 private:
  void keep(const Array& a) { operands_.emplace_back(ArraySnapshot(a)); }
  void keep(const std::optional<Array>& a) {
    if (a) keep(*a);
  }
  void keep(std::span<const Array> all) {
    for (const Array& a : all) keep(a);
  }
  void keep(const ArrayOperand& o);
  void note_writer(const Array& target) const;
  void notify_observer(std::span<Array> results, const Attributes& attributes, bool in_place) const;

  const char* const name_;
  bool observed_ = false;
  std::vector<OperandSnapshot> operands_;
};

/// The attributes of a reduction, for an observer.
inline Attributes reduction_attributes(const std::vector<int>& axes, bool keep) {
  return {{"axes", std::vector<std::int64_t>(axes.begin(), axes.end())}, {"keep", keep}};
}

/// An Operation with its own backward rule. Operations inside it record no history. Composite operations that are
/// differentiated through their parts use Operation instead.
class RuledOperation {
 public:
  template <class... O>
  explicit RuledOperation(const char* name, const O&... operands)
      : operation_(name, operands...), recording_(name, operands...) {
    if (recording_) [[unlikely]]
      ++thread_context.without_history;
  }
  ~RuledOperation() {
    if (recording_) [[unlikely]]
      --thread_context.without_history;
  }
  RuledOperation(const RuledOperation&) = delete;
  RuledOperation& operator=(const RuledOperation&) = delete;

  /// True if the result will have a history.
  explicit operator bool() const { return static_cast<bool>(recording_); }
  // Mark the exit of an operation. `rule` returns the Rule and is called only if an operand has history.
  template <class R>
  Array finish(Array&& result, R&& rule) {
    attach(result, rule);
    return operation_.finish(std::move(result));
  }
  template <class A, class R>
  Array finish(Array&& result, A&& attributes, R&& rule) {
    attach(result, rule);
    return operation_.finish(std::move(result), attributes);
  }
  template <class R>
  Array finish(const Array& result, R&& rule) {
    return finish(Array(result), rule);
  }
  template <class A, class R>
  Array finish(const Array& result, A&& attributes, R&& rule) {
    return finish(Array(result), attributes, rule);
  }
  /// Marks the exit of an operation with several results. `rule(i)` returns the rule of result `i`.
  template <class A, class R>
  std::vector<Array> finish(std::vector<Array> results, A&& attributes, R&& rule) {
    for (std::size_t i = 0; i < results.size(); ++i) attach(results[i], [&] { return rule(i); });
    return operation_.finish(std::move(results), attributes);
  }

 private:
  template <class R>
  void attach(Array& result, R&& rule) {
    result.set_step(nullptr);
    if (recording_) [[unlikely]]
      recording_.attach(result, rule());
  }
  const Operation operation_;
  const HistoryRecorder recording_;
};

}  // namespace tessera::detail
