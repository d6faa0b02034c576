// SPDX-License-Identifier: Apache-2.0
#include "tessera/grad/reverse.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "tessera/array/history.h"

namespace tessera::detail {

namespace {

using StepPointer = std::shared_ptr<Step>;

/// The steps between a result and the leaves, with the adjoints accumulated so far.
class Reverse {
 public:
  Reverse(const StepPointer& result, std::uint64_t leaf, const std::vector<StepPointer>& leaves) : leaf_(leaf) {
    // Steps older than the leaves do not depend on them.
    std::vector<StepPointer> open;
    const auto see = [&](const StepPointer& step) {
      if (step && step->number() >= leaf_ && places_.try_emplace(step.get()).second) open.push_back(step);
    };
    see(result);
    while (!open.empty()) {
      const StepPointer step = std::move(open.back());
      open.pop_back();
      if (step->freed() && step->lowest() <= leaf_)
        fail<ArgumentError>(
            {.operation = "gradient",
             .with = {{"operation", step->name()}},
             .wrong = "the history has been freed, because a gradient through it was already computed",
             .remedy = "Compute both gradients in one function, or use pullback, which can be called again"});
      by_number_.emplace(step->number(), step);
      for (const Step::Operand& o : step->operands()) see(o.step);
    }
    for (const StepPointer& leaf_step : leaves)
      if (const auto found = places_.find(leaf_step.get()); found != places_.end())
        found->second.reaches_leaf = found->second.is_leaf = true;
    for (const auto& [number, step] : by_number_) {
      NodeState& place = places_.at(step.get());
      if (place.is_leaf) continue;
      for (const Step::Operand& o : step->operands()) {
        if (!reaches_leaf(o.step)) continue;
        place.reaches_leaf = true;
        ++places_.at(o.step.get()).uses;
      }
    }
  }

  /// Calls `complete(leaf)` for each leaf after the last step that adds to its adjoint.
  template <class F>
  void walk(const StepPointer& result, Array adjoint, bool free, const F& complete) {
    if (!reaches_leaf(result)) return;
    places_.at(result.get()).adjoint = std::move(adjoint);
    while (!by_number_.empty()) {
      const auto latest = std::prev(by_number_.end());
      const StepPointer step = std::move(latest->second);
      by_number_.erase(latest);
      NodeState& place = places_.at(step.get());
      if (place.is_leaf) continue;
      if (std::optional<Array> whole = place.take()) pass(step, *std::move(whole));
      std::vector<const Step*> completed;
      for (const Step::Operand& o : step->operands()) {
        const auto operand = places_.find(o.step.get());
        if (operand != places_.end() && operand->second.reaches_leaf && --operand->second.uses == 0 &&
            operand->second.is_leaf)
          completed.push_back(operand->first);
      }
      if (free && step->lowest() >= leaf_) step->free();
      for (const Step* leaf : completed) complete(leaf);
    }
  }

  std::optional<Array> adjoint(const Step* leaf) {
    const auto found = places_.find(leaf);
    return found == places_.end() ? std::nullopt : found->second.take();
  }

 private:
  struct NodeState {
    bool reaches_leaf = false, is_leaf = false;
    std::size_t uses = 0;          ///< uses as an operand by steps that have not been processed
    std::optional<Array> adjoint;  ///< without the adjoints in `slices`
    std::vector<Backward::Slice> slices;
    Shape shape;  ///< shape of the operand to which the slices belong

    void add(Array part) {
      adjoint = adjoint ? *std::exchange(adjoint, std::nullopt) + std::move(part) : std::move(part);
    }
    std::optional<Array> take() {
      if (!slices.empty()) add(sum_of_slices(std::exchange(slices, {}), shape));
      return std::exchange(adjoint, std::nullopt);
    }
  };
  bool reaches_leaf(const StepPointer& step) const {
    const auto found = places_.find(step.get());
    return found != places_.end() && found->second.reaches_leaf;
  }
  void pass(const StepPointer& step, Array adjoint) {
    const auto& operands = step->operands();
    std::vector<bool> needs_adjoint;
    for (const Step::Operand& o : operands) needs_adjoint.push_back(reaches_leaf(o.step));
    Backward backward(step, std::move(adjoint), leaf_, std::move(needs_adjoint));
    step->rule().backward(backward);
    for (std::size_t i = 0; i < operands.size(); ++i) {
      std::optional<Array>& part = backward.adjoints()[i];
      if (!part) continue;
      places_.at(operands[i].step.get()).add(*std::move(part));
      part.reset();
    }
    for (Backward::Slice& slice : backward.slices()) {
      NodeState& place = places_.at(operands[slice.operand].step.get());
      place.shape = backward.shape(slice.operand);
      place.slices.push_back(std::move(slice));
    }
  }

  const std::uint64_t leaf_;
  std::unordered_map<const Step*, NodeState> places_;
  std::map<std::uint64_t, StepPointer> by_number_;
};

}  // namespace

Leaves::Leaves() : number_(Step::next_number()) {}

Array Leaves::add(const Array& argument, DType adjoint) {
  Array a = argument;
  a.set_step(Step::leaf(argument, number_, adjoint));
  steps_.push_back({a.step(), a.shape(), adjoint, a.device()});
  return a;
}

std::vector<Array> Leaves::adjoints(const Array& result, Array adjoint, bool last, const AdjointReady& ready) const {
  std::vector<StepPointer> steps;
  std::unordered_map<const Step*, std::size_t> numbers;
  for (const Leaf& leaf : steps_) numbers.emplace(leaf.step.get(), steps.size()), steps.push_back(leaf.step);
  Reverse reverse(result.step(), number_, steps);
  std::vector<std::optional<Array>> complete(steps_.size());
  reverse.walk(result.step(), std::move(adjoint), last, [&](const Step* leaf) {
    if (!ready) return;
    const std::size_t number = numbers.at(leaf);
    if (std::optional<Array> whole = reverse.adjoint(leaf)) complete[number] = ready(number, *std::move(whole));
  });
  std::vector<Array> out;
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const Leaf& leaf = steps_[i];
    if (!complete[i]) {
      std::optional<Array> got = reverse.adjoint(leaf.step.get());
      Array whole = got ? *std::move(got) : Array::zeros(leaf.shape, leaf.dtype, leaf.device);
      complete[i] = ready ? ready(i, std::move(whole)) : std::move(whole);
    }
    out.push_back(*std::move(complete[i]));
  }
  eval(out);
  return out;
}

Array Leaves::detach(Array a) const {
  if (a.has_history() && a.step()->lowest() >= number_) a.set_step(nullptr);
  return a;
}

Array unit_adjoint(const char* operation, const Array& value) {
  if (value.size() != 1)
    fail<ShapeError>({.operation = operation,
                      .with = {{"shape", to_string(value.shape())}},
                      .wrong = "the function's value is not a single number, which a gradient requires",
                      .remedy = "Return sum(...) or mean(...) of it, or use pullback"});
  if (!is_float(value.dtype()))
    fail<DtypeError>({.operation = operation,
                      .with = {{"dtype", std::string(dtype_name(value.dtype()))}},
                      .wrong = "the function's value is not a float",
                      .remedy = "Compute with floats: x.astype(DType::f32), and 1.f instead of 1"});
  return Array::ones(value.shape(), value.dtype(), value.device());
}

void check_adjoint(const Array& value, const Array& adjoint) {
  if (adjoint.shape() != value.shape())
    fail<ShapeError>({.operation = "pullback",
                      .with = {{"adjoint", to_string(adjoint.shape())}, {"value", to_string(value.shape())}},
                      .wrong = "the adjoint's shape differs from the function value's"});
  if (adjoint.dtype() != value.dtype())
    fail<DtypeError>({.operation = "pullback",
                      .with = {{"adjoint", std::string(dtype_name(adjoint.dtype()))},
                               {"value", std::string(dtype_name(value.dtype()))}},
                      .wrong = "the adjoint's dtype differs from the function value's"});
  if (adjoint.device() != value.device())
    fail<DeviceError>({.operation = "pullback",
                       .with = {{"adjoint on", to_string(adjoint.device())}, {"value on", to_string(value.device())}},
                       .wrong = "the adjoint and the function's value are on different devices"});
}

}  // namespace tessera::detail
