// SPDX-License-Identifier: Apache-2.0
// Losses and accuracy, with the names, arguments and defaults of PyTorch. They are computed in f32 or wider.
#pragma once

#include "tessera/array/array.h"

namespace tessera {

/// How the losses of the samples are combined: into their mean, into their sum, or not at all.
enum class Reduction : std::uint8_t { mean, sum, none };

/// Options of cross_entropy.
struct CrossEntropyOptions {
  std::optional<Array> weight = {};  ///< shape (classes,): weight of each class
  std::int64_t ignore_index = -100;  ///< targets with this value are ignored
  /// fraction of each target's probability that is spread over all classes (Szegedy et al. 2016)
  double label_smoothing = 0;
  Reduction reduction = Reduction::mean;  ///< How the losses of the samples are combined.
};
/// Cross-entropy: computes -log(softmax(logits))[target] in a numerically stable way. logits are (batch, classes, ...)
/// or (classes,). targets are integers of shape (batch, ...), or a scalar. The mean is weighted by the weights of the
/// targets, and leaves out ignored targets. The mean is NaN if all targets are ignored. A target that is neither a
/// class nor ignore_index produces NaN. Throws ShapeError or DtypeError if the shapes or dtypes are wrong, and
/// ArgumentError if label_smoothing is outside [0, 1].
Array cross_entropy(const Array& logits, const Array& targets, const CrossEntropyOptions& options = {});

/// Options of mse_loss.
struct LossOptions {
  Reduction reduction = Reduction::mean;  ///< How the losses of the elements are combined.
};
/// Squared error (prediction - target)^2 of two arrays of the same shape.
Array mse_loss(const Array& prediction, const Array& target, const LossOptions& options = {});

/// Options of bce_with_logits.
struct BceOptions {
  std::optional<Array> weight = {};       ///< weight of each element; broadcast to the logits
  std::optional<Array> pos_weight = {};   ///< weight of positive targets; broadcast to the logits
  Reduction reduction = Reduction::mean;  ///< How the losses of the elements are combined.
};
/// Binary cross-entropy -(t log(sigmoid(x)) + (1 - t) log(1 - sigmoid(x))) of logits x and targets t of the same shape,
/// computed in a numerically stable way.
Array bce_with_logits(const Array& logits, const Array& targets, const BceOptions& options = {});

/// Returns the fraction of the rows of logits (batch, classes) in which the target's class has the largest logit, as an
/// f32 scalar array.
Array accuracy(const Array& logits, const Array& targets);

}  // namespace tessera
