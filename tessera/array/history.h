// SPDX-License-Identifier: Apache-2.0
// The history of an array, recorded so that gradients can be computed. It has one step per operation, with a rule for
// the backward pass. Rules are defined next to their operations; the backward pass is in grad/.
#pragma once

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "tessera/array/observer.h"
#include "tessera/base/callback.h"
#include "tessera/device/context.h"

namespace tessera {

class Backward;

/// The backward function of an operation. It computes the adjoints of the operands from the adjoint of the result. (The
/// adjoint of an array is the derivative of a scalar with respect to its elements.) A rule written with array
/// operations can itself be differentiated. The function must not capture arrays that may have history; such arrays
/// must be operands that are listed in `keeps`.
struct Rule {
  Callback<void(Backward&)> backward;  ///< Computes the adjoints of the operands from the adjoint of the result.
  /// A mask of the operands that `backward` reads, such as operand_bits(0, 1). ~0u means all operands, even if there
  /// are more than 32.
  std::uint32_t keeps = 0;
  bool keeps_result = false;  ///< True if `backward` reads the result.
  /// True if the result only rearranges elements of operand 0. If the adjoint of that operand is stored in a wider
  /// dtype, the adjoint of the result is stored in that dtype too.
  bool moves = false;
};
/// Returns a mask for Rule::keeps with one bit per operand number.
template <class... I>
constexpr std::uint32_t operand_bits(I... operands) {
  return ((std::uint32_t{1} << operands) | ... | 0u);
}

namespace detail {

/// One operation in a history. Immutable except for free().
class Step {
 public:
  struct Operand {
    std::shared_ptr<Step> step;  ///< null for a constant
    Shape shape;
    DType dtype = DType::f32;
    Device device;
    std::optional<ArraySnapshot> kept;
  };
  Step(const char* name, std::vector<Operand> operands, Rule rule, std::optional<ArraySnapshot> result);
  /// Creates a leaf for an argument. The backward pass for `leaf` ends there. The adjoint has the dtype `adjoint`.
  static std::shared_ptr<Step> leaf(const Array& argument, std::uint64_t leaf, DType adjoint);
  ~Step() { free(); }
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  const char* name() const { return name_; }
  std::uint64_t number() const { return number_; }  ///< Greater than the numbers of its operands.
  std::uint64_t lowest() const { return lowest_; }  ///< The lowest leaf that it depends on, or ~0.
  const std::vector<Operand>& operands() const { return operands_; }
  const std::optional<ArraySnapshot>& result() const { return result_; }
  const Rule& rule() const { return rule_; }
  /// The dtype of the result's adjoint if it differs from the result's dtype. Gradients of 16-bit copies of weights are
  /// f32.
  const std::optional<DType>& adjoint_dtype() const { return adjoint_dtype_; }
  bool freed() const { return freed_; }
  /// Releases everything that the step refers to. It is iterative, so that a long chain does not overflow the stack.
  void free();

  /// The number of the next step.
  static std::uint64_t next_number();
  static std::uint64_t made();  ///< The number of steps created in this process; for tests.

 private:
  const char* name_;
  std::uint64_t number_, lowest_ = ~std::uint64_t{0};
  std::vector<Operand> operands_;
  Rule rule_;
  std::optional<ArraySnapshot> result_;
  std::optional<DType> adjoint_dtype_;
  bool freed_ = false;
};

/// Captures the operands at the entry of an operation, before they are moved from. Converts to true if an operand has
/// history, so that the result gets a step.
class HistoryRecorder {
 public:
  template <class... O>
  explicit HistoryRecorder(const char* name, const O&... operands) {
    if ((any(operands) || ...) && thread_context.without_history == 0) [[unlikely]] {
      name_ = name;
      (note(operands), ...);
    }
  }
  explicit operator bool() const { return name_ != nullptr; }
  /// Creates the step of the result. Does nothing for integers and bools, which have no derivative.
  void attach(Array& result, Rule rule) const;

 private:
  static bool any(const Array& a) { return a.has_history(); }
  static bool any(const std::optional<Array>& a) { return a && a->has_history(); }
  static bool any(const ArrayOperand& o) { return o.is_array() && o.array().has_history(); }
  template <class T>
  static bool any(std::span<T> all) {
    for (const auto& a : all)
      if (any(a)) return true;
    return false;
  }
  void note(const Array& a);
  void note(const std::optional<Array>& a);
  void note(const ArrayOperand& o);
  template <class T>
  void note(std::span<T> all) {
    for (const auto& a : all) note(a);
  }

  const char* name_ = nullptr;
  std::vector<Step::Operand> operands_;
};

/// Returns the array without its history.
inline Array without_history(Array a) {
  a.set_step(nullptr);
  return a;
}

/// Throws ArgumentError if the array has history, which `operation` would drop. Disabled inside operations with their
/// own rules.
void check_no_history(const char* operation, const Array& a, const char* wrong, const char* remedy);
/// Throws ArgumentError if `target` has history and cannot be written, or if `value` has history and cannot be stored
/// in other memory.
void check_write_target(const char* operation, const Array& target);
void check_stored_value(const char* operation, const Array& value);
/// The check for an operation without a rule.
template <class... A>
void check_no_rule(const char* operation, const A&... operands) {
  (check_no_history(operation, operands, "but this operation has no gradient",
                    "Use other operations, or stop_gradient(x) where no gradient is needed"),
   ...);
}

}  // namespace detail

/// The argument of a backward rule: the adjoint of the result and the arrays that the rule keeps. The rule adds
/// adjoints to the operands. Operands are numbered in the order of the operation.
class Backward {
 public:
  /// Operands that depend on no leaf with number `leaf` or higher are constants. `needs_adjoint` has one entry per
  /// operand.
  Backward(std::shared_ptr<detail::Step> step, Array adjoint, std::uint64_t leaf, std::vector<bool> needs_adjoint);

  /// The adjoint of the result. It has the result's shape and dtype, or the wider dtype in which the adjoint is stored.
  const Array& adjoint() const { return adjoint_; }
  /// The number of operands.
  std::size_t operands() const { return needs_adjoint_.size(); }
  /// True if the adjoint of this operand is needed.
  bool needs_adjoint(std::size_t operand) const { return needs_adjoint_[operand]; }
  /// The shape of an operand.
  const Shape& shape(std::size_t operand) const { return step_->operands()[operand].shape; }
  /// The dtype of an operand.
  DType dtype(std::size_t operand) const { return step_->operands()[operand].dtype; }
  /// The device of an operand.
  Device device(std::size_t operand) const { return step_->operands()[operand].device; }
  /// The dtype in which an operand's adjoint is stored and summed. It is the operand's dtype, or f32 for 16-bit copies
  /// of f32 weights.
  DType adjoint_dtype(std::size_t operand) const;
  /// An operand that the rule keeps. Throws ArgumentError if it has been written in place since; the message names the
  /// operation that wrote it.
  Array operand(std::size_t operand) const;
  Array result() const;  ///< The result of the operation, if the rule keeps it.

  /// Adds the value of `adjoint()` to the operand's adjoint. `adjoint` is called only if the operand needs an adjoint.
  /// The value is summed over dimensions along which the operand was broadcast, and converted to its adjoint_dtype.
  template <class F>
  void add(std::size_t operand, F&& adjoint) {
    if (needs_adjoint(operand)) add_adjoint(operand, adjoint());
  }

  /// Like add, for the adjoint of slice(axis, begin, ..., step) of the operand. The adjoint is zero outside the slice.
  template <class F>
  void add_slice(std::size_t operand, int axis, std::int64_t begin, std::int64_t step, F&& adjoint) {
    if (needs_adjoint(operand))
      slices_.push_back({operand, axis, begin, step, adjoint().astype(adjoint_dtype(operand))});
  }

  std::vector<std::optional<Array>>& adjoints() { return adjoints_; }  ///< The adjoints added so far, by operand.
  /// The adjoint of part of an operand: a slice along one axis.
  struct Slice {
    std::size_t operand;       ///< The number of the operand.
    int axis;                  ///< The axis that was sliced.
    std::int64_t begin, step;  ///< The start and the step of the slice.
    Array adjoint;             ///< The adjoint of the slice.
  };
  /// The adjoints of slices that rules have added.
  std::vector<Slice>& slices() { return slices_; }

 private:
  void add_adjoint(std::size_t operand, Array adjoint);
  Array kept(const ArraySnapshot& kept, const std::shared_ptr<detail::Step>& step, const char* what) const;

  std::shared_ptr<detail::Step> step_;
  Array adjoint_;
  const std::uint64_t leaf_;
  std::vector<bool> needs_adjoint_;
  std::vector<std::optional<Array>> adjoints_;
  std::vector<Slice> slices_;
};

namespace detail {
/// Adds the slices into an array of `shape` that is zero outside them. If adjacent slices fill the array, they are
/// concatenated instead.
Array sum_of_slices(std::vector<Backward::Slice> slices, const Shape& shape);
}  // namespace detail

}  // namespace tessera
