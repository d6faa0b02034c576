// SPDX-License-Identifier: Apache-2.0
// Losses and what is counted beside them, with PyTorch's names, arguments and defaults. They compute as f32 at least.
#pragma once

#include "tessera/array/array.h"

namespace tessera {

/// How the losses of samples become the result: their mean, their sum, or as they are.
enum class Reduction : std::uint8_t { mean, sum, none };

/// Options of cross_entropy.
struct CrossEntropyOptions {
  std::optional<Array> weight = {};       ///< (classes,): of each class
  std::int64_t ignore_index = -100;       ///< targets of this class count for nothing
  double label_smoothing = 0;             ///< this part of each target is spread over all classes (Szegedy et al. 2016)
  Reduction reduction = Reduction::mean;  ///< How the losses of samples become the result.
};
/// -log(softmax(logits))[target], from logits, however large they are. logits (batch, classes, ...) or (classes,);
/// targets: integers (batch, ...) or one. The mean is over the weights of the targets that count; of none it is NaN. A
/// target that is neither a class nor ignore_index gives NaN. ShapeError, DtypeError, ArgumentError (smoothing outside
/// of 0 to 1).
Array cross_entropy(const Array& logits, const Array& targets, const CrossEntropyOptions& options = {});

/// Options of mse_loss.
struct LossOptions {
  Reduction reduction = Reduction::mean;  ///< How the losses of elements become the result.
};
/// (prediction - target)^2, of equal shapes.
Array mse_loss(const Array& prediction, const Array& target, const LossOptions& options = {});

/// Options of bce_with_logits.
struct BceOptions {
  std::optional<Array> weight = {};       ///< broadcasts to the logits
  std::optional<Array> pos_weight = {};   ///< of the positive part; broadcasts too
  Reduction reduction = Reduction::mean;  ///< How the losses of elements become the result.
};
/// -(t log(sigmoid(x)) + (1 - t) log(1 - sigmoid(x))), from logits x, of equal shapes, however large they are.
Array bce_with_logits(const Array& logits, const Array& targets, const BceOptions& options = {});

/// The part of (batch, classes) logits whose greatest is at the target's class: an f32 of no dimensions.
Array accuracy(const Array& logits, const Array& targets);

}  // namespace tessera
