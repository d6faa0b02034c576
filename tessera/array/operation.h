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
  Array made(Array&& result) const {
    if (observed_) [[unlikely]]
      tell({&result, 1}, {}, false);
    return std::move(result);
  }
  template <class A>
  Array made(Array&& result, A&& attributes) const {
    if (observed_) [[unlikely]]
      tell({&result, 1}, attributes(), false);
    return std::move(result);
  }
  Array made(const Array& result) const { return made(Array(result)); }
  template <class A>
  Array made(const Array& result, A&& attributes) const {
    return made(Array(result), std::forward<A>(attributes));
  }
  template <class A>
  std::vector<Array> made(std::vector<Array> results, A&& attributes) const {
    if (observed_) [[unlikely]]
      tell(results, attributes(), false);
    return results;
  }
  /// Of an operation that wrote `target` in place, which is its first operand.
  void wrote(Array& target) const { wrote(std::span(&target, 1)); }
  /// Of one that wrote several, which are its first operands.
  void wrote(std::span<Array> targets) const {
    for (const Array& target : targets) note_writer(target);
    if (observed_) [[unlikely]]
      tell(targets, {}, true);
  }
  void wrote(const Array& target) const {
    note_writer(target);
    if (observed_) [[unlikely]] {
      Array written = target;
      tell({&written, 1}, {}, true);
    }
  }
  template <class A>
  void wrote(Array& target, A&& attributes) const {
    note_writer(target);
    if (observed_) [[unlikely]]
      tell({&target, 1}, attributes(), true);
  }

 private:
  void keep(const Array& a) { operands_.emplace_back(KeptArray(a)); }
  void keep(const std::optional<Array>& a) {
    if (a) keep(*a);
  }
  void keep(std::span<const Array> all) {
    for (const Array& a : all) keep(a);
  }
  void keep(const ArrayOperand& o);
  void note_writer(const Array& target) const;
  void tell(std::span<Array> results, const Attributes& attributes, bool in_place) const;

  const char* const name_;
  bool observed_ = false;
  std::vector<KeptOperand> operands_;
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
  Array made(Array&& result, R&& rule) {
    attach(result, rule);
    return operation_.made(std::move(result));
  }
  template <class A, class R>
  Array made(Array&& result, A&& attributes, R&& rule) {
    attach(result, rule);
    return operation_.made(std::move(result), attributes);
  }
  template <class R>
  Array made(const Array& result, R&& rule) {
    return made(Array(result), rule);
  }
  template <class A, class R>
  Array made(const Array& result, A&& attributes, R&& rule) {
    return made(Array(result), attributes, rule);
  }
  /// Of several results: `rule(i)` gives that of each.
  template <class A, class R>
  std::vector<Array> made(std::vector<Array> results, A&& attributes, R&& rule) {
    for (std::size_t i = 0; i < results.size(); ++i) attach(results[i], [&] { return rule(i); });
    return operation_.made(std::move(results), attributes);
  }

 private:
  template <class R>
  void attach(Array& result, R&& rule) {
    result.set_step(nullptr);
    if (recording_) [[unlikely]]
      recording_.attach(result, rule());
  }
  const Operation operation_;
  const Recording recording_;
};

}  // namespace tessera::detail
