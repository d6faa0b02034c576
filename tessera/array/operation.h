// SPDX-License-Identifier: Apache-2.0
// The entry and exit of every public array operation, for array/ and ops/. The outermost one is told to the observer of
// its thread; where there is none, that costs a count and a comparison.
#pragma once

#include <initializer_list>
#include <type_traits>
#include <utility>

#include "tessera/array/history.h"
#include "tessera/device/context.h"

namespace tessera::detail {

class Operation {
 public:
  /// The entry: operands are Array, ArrayOperand, std::optional<Array>, or a span of Array, kept only while somebody
  /// looks. Before they are moved from.
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

  // The exit. `attributes` is called only if somebody looks: it gives Attributes.
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
  /// Of an operation that wrote `target` in place, which is its first operand.
  void finish_in_place(Array& target) const { finish_in_place(std::span(&target, 1)); }
  /// Of one that wrote several, which are its first operands.
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

/// That of an operation with a rule of its own: operations that it is made of leave no steps. Those that are made of
/// others with rules, and only pass history on, are an Operation.
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

  /// Whether the result gets a step.
  explicit operator bool() const { return static_cast<bool>(recording_); }
  // The exit. `rule` is called only if an operand has history: it gives the Rule.
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
  /// Of several results: `rule(i)` gives that of each.
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
