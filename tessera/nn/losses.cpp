// SPDX-License-Identifier: Apache-2.0
#include "tessera/nn/losses.h"

#include <fmt/format.h>

#include <limits>

#include "tessera/grad/grad.h"
#include "tessera/nn/not_finite.h"
#include "tessera/ops/cross_entropy.h"

namespace tessera {

namespace {

Array wide(const Array& x) { return x.dtype() == DType::f64 ? x : x.astype(DType::f32); }

void check_equal_shapes(const char* operation, const Array& a, const Array& b) {
  if (a.shape() != b.shape())
    fail<ShapeError>({.operation = operation,
                      .with = {{"prediction", to_string(a.shape())}, {"target", to_string(b.shape())}},
                      .wrong = "prediction and target have different shapes",
                      .remedy = "Use reshape or broadcast_to; losses do not broadcast implicitly"});
}

Array reduced(Array losses, Reduction reduction) {
  switch (reduction) {
    case Reduction::mean: return mean(std::move(losses));
    case Reduction::sum: return sum(std::move(losses));
    case Reduction::none: break;
  }
  return losses;
}

/// Checks targets (batch, ...), for logits (batch, classes, ...).
void check_targets(const char* operation, const Array& logits, const Array& targets) {
  if (!is_int(targets.dtype()))
    fail<DtypeError>({.operation = operation,
                      .with = {{"targets", std::string(dtype_name(targets.dtype()))}},
                      .wrong = "targets are class indices and must be integers"});
  Shape wanted = logits.shape();
  if (logits.rank() >= 1) wanted.erase(wanted.begin() + (logits.rank() == 1 ? 0 : 1));
  if (logits.rank() < 1 || targets.shape() != wanted)
    fail<ShapeError>({.operation = operation,
                      .with = {{"logits", to_string(logits.shape())}, {"targets", to_string(targets.shape())}},
                      .wrong = "logits must have shape (batch, classes, ...), and targets the same shape without the "
                               "classes axis"});
}

/// Describes the first invalid target. Returns an empty string if all targets are valid.
std::string invalid_target(const Array& targets, std::int64_t classes, const CrossEntropyOptions& o) {
  const auto values = stop_gradient(targets).astype(DType::i64).as_contiguous().to_vector<std::int64_t>();
  bool counts = false;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] == o.ignore_index) continue;
    counts = true;
    if (values[i] >= 0 && values[i] < classes) continue;
    Shape at(targets.shape());
    std::int64_t rest = static_cast<std::int64_t>(i);
    for (std::size_t d = at.size(); d-- > 0;) at[d] = rest % targets.shape()[d], rest /= targets.shape()[d];
    return fmt::format("cross_entropy: target {} of {} {} is not a class; the {} classes are 0 to {}", values[i],
                       at.size() > 1 ? "element" : "row", at.size() > 1 ? to_string(at) : std::to_string(i), classes,
                       classes - 1);
  }
  if (counts || o.reduction != Reduction::mean) return {};
  return fmt::format("cross_entropy: all targets {} are ignored: each equals ignore_index, {}",
                     to_string(targets.shape()), o.ignore_index);
}

}  // namespace

Array cross_entropy(const Array& logits, const Array& targets, const CrossEntropyOptions& o) {
  if (!(o.label_smoothing >= 0 && o.label_smoothing <= 1))
    fail<ArgumentError>({.operation = "cross_entropy",
                         .with = {{"label_smoothing", std::to_string(o.label_smoothing)}},
                         .wrong = "label smoothing must be between 0 and 1"});
  check_targets("cross_entropy", logits, targets);
  // The dtype is narrowed only after the range check. Narrowing before it would turn 2^32 into 0.
  const bool narrow = dtype_size(targets.dtype()) < 4 || targets.dtype() == DType::i32;
  const bool fits = o.ignore_index == static_cast<std::int32_t>(o.ignore_index);
  const Array given = targets.astype(narrow && fits ? DType::i32 : DType::i64);
  const Array target = given.astype(DType::i32), x = is_float(logits.dtype()) ? logits : wide(logits);
  const DType dtype = x.dtype() == DType::f64 ? DType::f64 : DType::f32;
  const int axis = logits.rank() == 1 ? 0 : 1;
  const std::int64_t classes = logits.shape(axis);
  detail::note_invalid_input([&] { return invalid_target(targets, classes, o); });
  if (o.weight && o.weight->shape() != Shape{classes})
    fail<ShapeError>({.operation = "cross_entropy",
                      .with = {{"weight", to_string(o.weight->shape())}, {"classes", std::to_string(classes)}},
                      .wrong = "weight must have one element for each class"});
  Shape column(logits.shape().size(), 1);
  column[static_cast<std::size_t>(axis)] = classes;
  const std::optional<Array> weight = o.weight ? std::optional(o.weight->astype(dtype)) : std::nullopt;
  Array losses = ops::cross_entropy_losses(x, target, weight ? std::optional(weight->reshape(column)) : std::nullopt,
                                           o.label_smoothing);
  const Array counts = given != o.ignore_index;
  losses = where((given >= 0) & (given < classes), losses, std::numeric_limits<double>::quiet_NaN());
  losses = where(counts, losses, 0.0);
  if (o.reduction != Reduction::mean) return reduced(losses, o.reduction);
  const Array of_target = weight ? take(*weight, target) : Array::ones({1}, dtype, x.device());
  return sum(losses) / sum(where(counts, of_target, 0.0));
}

Array mse_loss(const Array& prediction, const Array& target, const LossOptions& o) {
  check_equal_shapes("mse_loss", prediction, target);
  const Array away = wide(prediction) - wide(target);
  return reduced(away * away, o.reduction);
}

Array bce_with_logits(const Array& logits, const Array& targets, const BceOptions& o) {
  check_equal_shapes("bce_with_logits", logits, targets);
  const Array x = wide(logits), t = wide(targets);
  // Computes log(1 + exp(-x)) separately for positive and negative x, so that neither the exponential nor its
  // derivative overflows.
  const Array above = x > 0;
  const Array softplus = where(above, log1p(exp(-where(above, x, 0))), log1p(exp(where(above, 0, x))) - x);
  Array losses = o.pos_weight ? (1 - t) * x + ((*o.pos_weight - 1) * t + 1) * softplus : (1 - t) * x + softplus;
  if (o.weight) losses = losses * *o.weight;
  return reduced(losses, o.reduction);
}

Array accuracy(const Array& logits, const Array& targets) {
  if (logits.rank() != 2)
    fail<ShapeError>({.operation = "accuracy",
                      .with = {{"logits", to_string(logits.shape())}},
                      .wrong = "logits must be (batch, classes)"});
  check_targets("accuracy", logits, targets);
  return mean((argmax(logits, 1) == targets).astype(DType::f32));
}

}  // namespace tessera
