// SPDX-License-Identifier: Apache-2.0
// Losses and accuracy, with PyTorch's names, arguments and defaults. Computed in f32 or wider.
#pragma once

#include "tessera/array/array.h"

namespace tessera {

/// How the losses of samples are reduced: to their mean, to their sum, or not at all.
enum class Reduction : std::uint8_t { mean, sum, none };

/// Options of cross_entropy.
struct CrossEntropyOptions {
  std::optional<Array> weight = {};  ///< (classes,): weight of each class
  std::int64_t ignore_index = -100;  ///< targets equal to this are ignored
  /// fraction of each target that is spread over all classes (Szegedy et al. 2016)
  double label_smoothing = 0;
  Reduction reduction = Reduction::mean;  ///< Reduction over the samples.
};
/// -log(softmax(logits))[target], numerically stable. logits (batch, classes, ...) or (classes,); targets: integers
/// (batch, ...) or a scalar. The mean is weighted by the targets that are not ignored; it is NaN if all are. A target
/// that is neither a class nor ignore_index gives NaN. Throws ShapeError, DtypeError, or ArgumentError (label_smoothing
/// outside [0, 1]).
Array cross_entropy(const Array& logits, const Array& targets, const CrossEntropyOptions& options = {});

/// Options of mse_loss.
struct LossOptions {
  Reduction reduction = Reduction::mean;  ///< Reduction over the elements.
};
/// (prediction - target)^2 of arrays of equal shapes.
Array mse_loss(const Array& prediction, const Array& target, const LossOptions& options = {});

/// Options of bce_with_logits.
struct BceOptions {
  std::optional<Array> weight = {};       ///< broadcast to the logits
  std::optional<Array> pos_weight = {};   ///< weight of positive targets; broadcast, too
  Reduction reduction = Reduction::mean;  ///< Reduction over the elements.
};
/// -(t log(sigmoid(x)) + (1 - t) log(1 - sigmoid(x))) of logits x and targets t of equal shapes, numerically stable.
Array bce_with_logits(const Array& logits, const Array& targets, const BceOptions& options = {});

/// Fraction of the rows of (batch, classes) logits whose maximum is at the target's class: an f32 scalar array.
Array accuracy(const Array& logits, const Array& targets);

}  // namespace tessera
