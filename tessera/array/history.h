// SPDX-License-Identifier: Apache-2.0
// What an array remembers of how it was made, so that gradients can be taken: a step for each operation, with a rule
// that leads back from its result to its operands. A rule stands beside its operation; what walks is in grad/.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "tessera/array/observer.h"
#include "tessera/device/context.h"

namespace tessera {

class Backward;

/// How an operation is differentiated: from the adjoint of its result (the derivative of some scalar by each of its
/// elements) to those of its operands. Written in array operations, a rule can be differentiated again. It captures no
/// array that may have history: those are operands, which it names in `keeps`.
struct Rule {
  std::function<void(Backward&)> backward;  ///< Computes the adjoints of the operands from that of the result.
  std::uint32_t keeps = 0;                  ///< the operands that it reads: operand_bits(0, 1); ~0u: all, however many
  bool keeps_result = false;                ///< it reads the result
  /// The result is elements of operand 0 in other places: where the adjoint of that is kept in a wider dtype, so is the
  /// result's.
  bool moves = false;
};
/// The bits for Rule::keeps, one per operand number.
template <class... I>
constexpr std::uint32_t operand_bits(I... operands) {
  return ((std::uint32_t{1} << operands) | ... | 0u);
}

namespace detail {

/// One operation of a history. Never changed but by free().
class Step {
 public:
  struct Operand {
    std::shared_ptr<Step> step;  ///< null: a constant
    Shape shape;
    DType dtype = DType::f32;
    Device device;
    std::optional<ArraySnapshot> kept;
  };
  Step(const char* name, std::vector<Operand> operands, Rule rule, std::optional<ArraySnapshot> result);
  /// The identity of an argument, which a walk for `leaf` leads to. Its adjoint is of `adjoint`.
  static std::shared_ptr<Step> leaf(const Array& argument, std::uint64_t leaf, DType adjoint);
  ~Step() { free(); }
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  const char* name() const { return name_; }
  std::uint64_t number() const { return number_; }  ///< greater than those of its operands
  std::uint64_t lowest() const { return lowest_; }  ///< the smallest leaf below it; ~0: none
  const std::vector<Operand>& operands() const { return operands_; }
  const std::optional<ArraySnapshot>& result() const { return result_; }
  const Rule& rule() const { return rule_; }
  /// Of the result's adjoint, if that is not the result's own: gradients of 16-bit copies of weights are f32.
  const std::optional<DType>& adjoint_dtype() const { return adjoint_dtype_; }
  bool freed() const { return freed_; }
  /// Lets go of all that it holds. However long the chain of what only this holds, the stack stays as it is.
  void free();

  /// The number that a step made now would have.
  static std::uint64_t next_number();
  static std::uint64_t made();  ///< steps made so far in this process; for tests

 private:
  const char* name_;
  std::uint64_t number_, lowest_ = ~std::uint64_t{0};
  std::vector<Operand> operands_;
  Rule rule_;
  std::optional<ArraySnapshot> result_;
  std::optional<DType> adjoint_dtype_;
  bool freed_ = false;
};

/// Operands at the entry of an operation, before they are moved from. True if one has history, so that the result gets
/// a step.
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
  /// Makes the step. Of integers and bools there is no derivative, so these stay without.
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

/// The array without its history.
inline Array without_history(Array a) {
  a.set_step(nullptr);
  return a;
}

/// ArgumentError if the array has history, which `operation` would lose; not inside operations with rules of their own.
void check_no_history(const char* operation, const Array& a, const char* wrong, const char* remedy);
/// That of writing `target`, and that of writing `value` into memory.
void check_write_target(const char* operation, const Array& target);
void check_stored_value(const char* operation, const Array& value);
/// That of an operation that has no rule.
template <class... A>
void check_no_rule(const char* operation, const A&... operands) {
  (check_no_history(operation, operands, "this operation has no gradient",
                    "Use others, or stop_gradient(x) where none is wanted"),
   ...);
}

}  // namespace detail

/// What a rule is given in a walk: the adjoint of its result, and what it keeps. It adds adjoints to operands, which
/// are numbered as the operation was given them.
class Backward {
 public:
  /// For `leaf`: operands whose history reaches no lower one are constants. `needs_adjoint`: of each operand.
  Backward(std::shared_ptr<detail::Step> step, Array adjoint, std::uint64_t leaf, std::vector<bool> needs_adjoint);

  /// Of the result, and of its shape and dtype (or of the dtype in which that adjoint is kept).
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
  /// In which adjoints of an operand are kept and summed: its own, but f32 for 16-bit copies of f32 weights.
  DType adjoint_dtype(std::size_t operand) const;
  /// An operand, or the result, that the rule keeps. ArgumentError if it has been written in place since, with the name
  /// of what wrote it.
  Array operand(std::size_t operand) const;
  Array result() const;  ///< The result of the operation; only if the rule keeps it.

  /// Adds what `adjoint()` gives to the adjoint of an operand, if anybody wants that: summed over the dimensions along
  /// which the operand was stretched, and as its adjoint_dtype.
  template <class F>
  void add(std::size_t operand, F&& adjoint) {
    if (needs_adjoint(operand)) add_adjoint(operand, adjoint());
  }

  /// Likewise to slice(axis, begin, ..., step) of the operand, which is to be zero elsewhere.
  template <class F>
  void add_slice(std::size_t operand, int axis, std::int64_t begin, std::int64_t step, F&& adjoint) {
    if (needs_adjoint(operand)) slices_.push_back({operand, axis, begin, step, adjoint().astype(adjoint_dtype(operand))});
  }

  std::vector<std::optional<Array>>& adjoints() { return adjoints_; }  ///< what was added, by operand
  /// An adjoint of part of an operand: a slice along one axis.
  struct Slice {
    std::size_t operand;       ///< The number of the operand.
    int axis;                  ///< The axis that was sliced.
    std::int64_t begin, step;  ///< Where the slice begins, and its step.
    Array adjoint;             ///< The adjoint of the slice.
  };
  /// The adjoints of slices that rules added.
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
/// An array of `shape` that is the sum of these slices, and zero where there is none: those that lie side by side
/// and fill it are joined.
Array sum_of_slices(std::vector<Backward::Slice> slices, const Shape& shape);
}  // namespace detail

}  // namespace tessera
