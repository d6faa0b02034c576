// SPDX-License-Identifier: Apache-2.0
#include "tessera/array/history.h"

#include <algorithm>
#include <atomic>

namespace tessera {

namespace detail {

namespace {

std::atomic<std::uint64_t> next{1}, steps{0};

Step::Operand described(const Array& a) { return {a.step(), a.shape(), a.dtype(), a.device(), {}}; }

}  // namespace

Step::Step(const char* name, std::vector<Operand> operands, Rule rule, std::optional<ArraySnapshot> result)
    : name_(name),
      number_(next.fetch_add(1)),
      operands_(std::move(operands)),
      rule_(std::move(rule)),
      result_(std::move(result)) {
  for (const Operand& o : operands_)
    if (o.step) lowest_ = std::min(lowest_, o.step->lowest_);
  if (rule_.moves && operands_[0].step) adjoint_dtype_ = operands_[0].step->adjoint_dtype_;
  ++steps;
}

std::shared_ptr<Step> Step::leaf(const Array& argument, std::uint64_t leaf, DType adjoint) {
  std::vector<Operand> operands;
  operands.push_back(described(argument));
  Rule identity{[](Backward& b) { b.add(0, [&] { return b.adjoint(); }); }};
  auto step = std::make_shared<Step>("argument", std::move(operands), std::move(identity), std::nullopt);
  step->lowest_ = std::min(step->lowest_, leaf);
  if (adjoint != argument.dtype()) step->adjoint_dtype_ = adjoint;
  return step;
}

void Step::free() {
  freed_ = true;
  rule_ = {};
  result_.reset();
  std::vector<std::shared_ptr<Step>> last;  // steps without other references
  const auto let_go = [&](Step& of) {
    for (Operand& o : of.operands_) {
      if (o.step && o.step.use_count() == 1) last.push_back(std::move(o.step));
      o.step.reset();
    }
    of.operands_.clear();
  };
  let_go(*this);
  while (!last.empty()) {
    const std::shared_ptr<Step> step = std::move(last.back());
    last.pop_back();
    let_go(*step);
  }
}

std::uint64_t Step::next_number() { return next.load(); }
std::uint64_t Step::made() { return steps.load(); }

void HistoryRecorder::note(const Array& a) {
  operands_.push_back(described(a));
  operands_.back().kept.emplace(a);
}
void HistoryRecorder::note(const std::optional<Array>& a) {
  if (a)
    note(*a);
  else
    operands_.emplace_back();
}
void HistoryRecorder::note(const ArrayOperand& o) {
  if (o.is_array())
    note(o.array());
  else
    operands_.emplace_back();
}

void HistoryRecorder::attach(Array& result, Rule rule) const {
  if (!is_float(result.dtype())) return;
  std::vector<Step::Operand> operands;
  operands.reserve(operands_.size());
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    const Step::Operand& o = operands_[i];
    operands.push_back({o.step, o.shape, o.dtype, o.device, {}});
    if (rule.keeps == ~std::uint32_t{0} || (i < 32 && (rule.keeps >> i & 1) != 0)) operands.back().kept = o.kept;
  }
  std::optional<ArraySnapshot> kept;
  if (rule.keeps_result) kept.emplace(result);
  result.set_step(std::make_shared<Step>(name_, std::move(operands), std::move(rule), std::move(kept)));
}

void check_no_history(const char* operation, const Array& a, const char* wrong, const char* remedy) {
  if (!a.has_history() || thread_context.without_history != 0) return;
  fail<ArgumentError>({.operation = operation,
                       .with = {{"shape", to_string(a.shape())}, {"made by", a.step()->name()}},
                       .wrong = std::string("gradients flow through this array, ") + wrong,
                       .remedy = remedy});
}
void check_write_target(const char* operation, const Array& target) {
  check_no_history(operation, target, "so it cannot be modified in place",
                   "Write x = x + y instead of x += y, or modify a copy of stop_gradient(x)");
}
void check_stored_value(const char* operation, const Array& value) {
  check_no_history(operation, value, "and writing it into another array would lose the gradient",
                   "Make a new array from it (a = a + b, where, concatenate), or write stop_gradient(x)");
}

}  // namespace detail

using detail::Step;

Backward::Backward(std::shared_ptr<Step> step, Array adjoint, std::uint64_t leaf, std::vector<bool> needs_adjoint)
    : step_(std::move(step)),
      adjoint_(std::move(adjoint)),
      leaf_(leaf),
      needs_adjoint_(std::move(needs_adjoint)),
      adjoints_(needs_adjoint_.size()) {}

Array Backward::kept(const ArraySnapshot& kept, const std::shared_ptr<Step>& step, const char* what) const {
  if (const auto written = kept.written())
    fail<ArgumentError>({.operation = std::string("gradient of ") + step_->name(),
                         .with = {{what, to_string(kept.shape())}, {"written by", *written}},
                         .wrong = "memory that this gradient needs has since been written in place",
                         .remedy = "Write x = x + y instead of x += y, or keep a copy()"});
  Array a = kept.array();
  a.set_history(nullptr);
  if (step && step->lowest() < leaf_) a.set_step(step);
  return a;
}

Array Backward::operand(std::size_t operand) const {
  const Step::Operand& o = step_->operands()[operand];
  return kept(o.kept.value(), o.step, "operand");
}
DType Backward::adjoint_dtype(std::size_t operand) const {
  const Step::Operand& o = step_->operands()[operand];
  return o.step ? o.step->adjoint_dtype().value_or(o.dtype) : o.dtype;
}
Array Backward::result() const { return kept(step_->result().value(), step_, "result"); }

void Backward::add_adjoint(std::size_t operand, Array adjoint) {
  const Shape& to = shape(operand);
  const DType kept_as = adjoint_dtype(operand);
  // The adjoint is widened before it is summed.
  if (dtype_size(kept_as) > dtype_size(adjoint.dtype())) adjoint = adjoint.astype(kept_as);
  if (adjoint.shape() != to) {
    std::vector<int> stretched;
    const int lead = adjoint.rank() - static_cast<int>(to.size());
    for (int d = 0; d < adjoint.rank(); ++d)
      if (d < lead || to[static_cast<std::size_t>(d - lead)] != adjoint.shape(d)) stretched.push_back(d);
    if (!stretched.empty()) adjoint = sum(std::move(adjoint), stretched, true);
    if (lead != 0) adjoint = adjoint.reshape(to);
  }
  adjoint = adjoint.astype(kept_as);
  std::optional<Array>& sum = adjoints_[operand];
  sum = sum ? *std::exchange(sum, std::nullopt) + std::move(adjoint) : std::move(adjoint);
}

}  // namespace tessera
