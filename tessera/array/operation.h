// SPDX-License-Identifier: Apache-2.0
// The entry and exit of every public array operation, for array/ and ops/. The outermost one is told to the observer of
// its thread; where there is none, that costs a count and a comparison.
#pragma once

#include <initializer_list>
#include <type_traits>
#include <utility>

#include "tessera/array/observer.h"
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
  Array made(Array result) const {
    if (observed_) [[unlikely]]
      tell({&result, 1}, {}, false);
    return result;
  }
  template <class A>
  Array made(Array result, A&& attributes) const {
    if (observed_) [[unlikely]]
      tell({&result, 1}, attributes(), false);
    return result;
  }
  template <class A>
  std::vector<Array> made(std::vector<Array> results, A&& attributes) const {
    if (observed_) [[unlikely]]
      tell(results, attributes(), false);
    return results;
  }
  /// Of an operation that wrote `target` in place, which is its first operand.
  void wrote(Array& target) const { wrote({&target, 1}); }
  /// Of one that wrote several, which are its first operands.
  void wrote(std::span<Array> targets) const {
    if (observed_) [[unlikely]]
      tell(targets, {}, true);
  }
  template <class A>
  void wrote(Array& target, A&& attributes) const {
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
  void tell(std::span<Array> results, const Attributes& attributes, bool in_place) const;

  const char* const name_;
  bool observed_ = false;
  std::vector<KeptOperand> operands_;
};

}  // namespace tessera::detail
