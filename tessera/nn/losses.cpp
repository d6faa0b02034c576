// SPDX-License-Identifier: Apache-2.0
#include "tessera/nn/losses.h"

#include <limits>

#include "tessera/grad/grad.h"

namespace tessera {

namespace {

Array wide(const Array& x) { return x.dtype() == DType::f64 ? x : x.astype(DType::f32); }

void need_equal(const char* operation, const Array& a, const Array& b) {
  if (a.shape() != b.shape())
    fail<ShapeError>({.asked = operation,
                      .with = {{"prediction", to_string(a.shape())}, {"target", to_string(b.shape())}},
                      .wrong = "prediction and target have different shapes",
                      .todo = "Give them one by reshape or broadcast_to; here nothing is broadcast silently"});
}

Array reduced(Array losses, Reduction reduction) {
  switch (reduction) {
    case Reduction::mean: return mean(std::move(losses));
    case Reduction::sum: return sum(std::move(losses));
    case Reduction::none: break;
  }
  return losses;
}

/// Targets (batch, ...) of logits (batch, classes, ...), as (batch, 1, ...).
Array classes_beside(const char* operation, const Array& logits, const Array& targets) {
  if (!is_int(targets.dtype()))
    fail<DtypeError>({.asked = operation,
                      .with = {{"targets", std::string(dtype_name(targets.dtype()))}},
                      .wrong = "targets are numbers of classes, which are integers"});
  Shape wanted = logits.shape();
  const int axis = logits.rank() == 1 ? 0 : 1;
  if (logits.rank() >= 1) wanted.erase(wanted.begin() + axis);
  if (logits.rank() < 1 || targets.shape() != wanted)
    fail<ShapeError>({.asked = operation,
                      .with = {{"logits", to_string(logits.shape())}, {"targets", to_string(targets.shape())}},
                      .wrong = "logits are (batch, classes, ...) and targets the same without the classes"});
  return targets.unsqueeze(axis);
}

}  // namespace

Array cross_entropy(const Array& logits, const Array& targets, const CrossEntropyOptions& o) {
  if (!(o.label_smoothing >= 0 && o.label_smoothing <= 1))
    fail<ArgumentError>({.asked = "cross_entropy",
                         .with = {{"label_smoothing", std::to_string(o.label_smoothing)}},
                         .wrong = "label smoothing is from 0 to 1"});
  // What is compared with bounds is not narrowed before: of 2^32 there would be 0 left.
  const bool narrow = dtype_size(targets.dtype()) < 4 || targets.dtype() == DType::i32;
  const bool fits = o.ignore_index == static_cast<std::int32_t>(o.ignore_index);
  const Array given = classes_beside("cross_entropy", logits, targets).astype(narrow && fits ? DType::i32 : DType::i64);
  const Array target = given.astype(DType::i32), x = wide(logits);
  const int axis = logits.rank() == 1 ? 0 : 1;
  const std::int64_t classes = logits.shape(axis);
  Shape column(logits.shape().size(), 1);
  column[static_cast<std::size_t>(axis)] = classes;
  if (o.weight && o.weight->shape() != Shape{classes})
    fail<ShapeError>({.asked = "cross_entropy",
                      .with = {{"weight", to_string(o.weight->shape())}, {"classes", std::to_string(classes)}},
                      .wrong = "there is not one weight for each class"});
  const Array hit = Array::arange(classes, 0, 1, DType::i32, x.device()).reshape(column) == target;
  const Array top = max(stop_gradient(x), {axis}, true);  // what is taken off is added again
  // Without the row's greatest, of which the sum of exponentials is at least 1. (Where all are -infinity, as they are.)
  const Array shift = where(top == -std::numeric_limits<double>::infinity(), 0.0, top);
  const Array log_sum = log(sum(exp(x - shift), {axis}, true)) + shift;

  // Of what counts: the target's own part, and what is spread.
  const Array counts = given != o.ignore_index;
  const Array of_target = o.weight ? sum(where(hit, o.weight->reshape(column), 0.0), {axis}, true)
                                   : where(counts, Array::ones({1}, x.dtype(), x.device()), 0.0);
  Array losses = (log_sum - sum(where(hit, x, 0.0), {axis}, true)) * (1 - o.label_smoothing);
  if (o.weight) losses = losses * of_target;
  if (o.label_smoothing > 0) {
    Array away = log_sum - x;
    if (o.weight) away = away * o.weight->reshape(column);
    losses = losses + sum(away, {axis}, true) * (o.label_smoothing / static_cast<double>(classes));
  }
  losses = where((given >= 0) & (given < classes), losses, std::numeric_limits<double>::quiet_NaN());
  losses = where(counts, losses, 0.0).squeeze(axis);
  if (o.reduction == Reduction::mean) return sum(losses) / sum(where(counts, of_target, 0.0));
  return reduced(losses, o.reduction);
}

Array mse_loss(const Array& prediction, const Array& target, const LossOptions& o) {
  need_equal("mse_loss", prediction, target);
  const Array away = wide(prediction) - wide(target);
  return reduced(away * away, o.reduction);
}

Array bce_with_logits(const Array& logits, const Array& targets, const BceOptions& o) {
  need_equal("bce_with_logits", logits, targets);
  const Array x = wide(logits), t = wide(targets);
  // log(1 + exp(-x)), by the half in which the exponential does not overflow, and neither does its derivative.
  const Array above = x > 0;
  const Array softplus = where(above, log1p(exp(-where(above, x, 0))), log1p(exp(where(above, 0, x))) - x);
  Array losses = o.pos_weight ? (1 - t) * x + ((*o.pos_weight - 1) * t + 1) * softplus : (1 - t) * x + softplus;
  if (o.weight) losses = losses * *o.weight;
  return reduced(losses, o.reduction);
}

Array accuracy(const Array& logits, const Array& targets) {
  if (logits.rank() != 2)
    fail<ShapeError>(
        {.asked = "accuracy", .with = {{"logits", to_string(logits.shape())}}, .wrong = "logits are (batch, classes)"});
  static_cast<void>(classes_beside("accuracy", logits, targets));
  return mean((argmax(logits, 1) == targets).astype(DType::f32));
}

}  // namespace tessera
