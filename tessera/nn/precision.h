// SPDX-License-Identifier: Apache-2.0
// Mixed precision: weights are f32, and the model computes with copies of 16 bits.
#pragma once

#include "tessera/grad/grad.h"
#include "tessera/nn/mode.h"
#include "tessera/nn/optimiser.h"

namespace tessera {

/// Floats of f16 below 6e-8 are 0, and gradients often are so small: the loss is multiplied by a number before the
/// gradient is taken, and the gradient divided by it after (Micikevicius et al., "Mixed precision training", 2018). It
/// lives on the device, and is changed there as PyTorch's GradScaler does, whose names and defaults these are. A step
/// whose loss or gradient is not finite is skipped: it changes nothing but the scale, and is counted.
struct LossScaleOptions {
  std::optional<bool> enabled = {};      ///< else: for f16
  double init_scale = 65536;             ///< from 2^-64 to 2^64, beyond which it does not grow
  double growth_factor = 2;              ///< after `growth_interval` steps in a row that were finite
  double backoff_factor = 0.5;           ///< after a step that was not
  std::uint64_t growth_interval = 2000;  ///< Steps without overflow after which the scale grows.
  /// A step that is not finite with this scale is not one for want of another: it counts as without a scale, so that a
  /// trainer's check() names it.
  double smallest = 0x1p-20;
};

/// Options of MixedPrecision.
struct PrecisionOptions {
  DType dtype = DType::f32;  ///< of the copies: bf16 or f16; f32: there are none
  /// Parameters that match stay f32, as those of norms do in any case. One that stands in several places does if one of
  /// its paths matches.
  std::vector<std::string> keep = {};
  LossScaleOptions loss_scale = {};  ///< Options of the loss scale, which f16 needs.
};

namespace detail {

/// Freezes those that are frozen in the other, and no others.
void freeze_as(const Parts& parts, const ConstParts& other);

/// The copies of a model's parameters, and the loss scale.
class Precision {
 public:
  Precision() = default;  ///< f32
  /// ArgumentError or DtypeError for options out of range, a pattern that nothing matches, and parameters that are not
  /// f32. `asked` is what errors call it. Parameters stay where they are from here on.
  Precision(const char* asked, const PrecisionOptions& options, const Parts& model);

  bool narrows() const { return options_.dtype != DType::f32; }
  bool scales() const { return scales_; }
  const PrecisionOptions& options() const { return options_; }
  /// Gives a model's parameters their copies.
  void narrow(const Parts& model) const;
  /// As ApplyOptions takes them: one for each array of the model, of which some are empty.
  const std::vector<Array>& copies() const { return copies_; }
  /// Writes the copies again.
  void refresh();
  /// Whether weights were written since refresh() or fresh(), as far as this library knows.
  bool outdated() const;
  void mark_current();  ///< says that copies are as the weights are
  /// ArgumentError: an array of this model does not lie where it lay.
  void check_place(const char* asked, const ConstParts& model) const;

  // Of the loss scale; only if scales().
  Array scaled(const Array& loss) const;  ///< as f32 (f64 of f64)
  Array inverse() const;                  ///< what gradients are multiplied by
  Array is_at_min_scale() const;          ///< bool
  /// After a step: `finite`, bool, whether it was; `stopped`, u64, if given: unless it is 0 all stays as it is.
  void update(const Array& finite, const std::optional<Array>& stopped);
  std::vector<std::pair<std::string, Array>> kept() const;  ///< for files
  std::uint64_t skipped_steps() const;
  double scale() const;
  // A loop of one's own.
  void track_finite(const Array& loss, const ConstParts& gradient);  ///< notes whether all are finite
  /// A whole step, unless one of those seen since the last was not.
  void step(Optimiser& optimiser, const Parts& model, const ConstParts& gradient, const Training* mode);

  Array scale_, good_, skipped_;  ///< f32, u64, u64, of no dimensions: the scale, finite steps in a row, steps skipped

 private:
  PrecisionOptions options_;
  bool scales_ = false;
  std::optional<Array> finite_;          ///< of what was seen
  std::vector<Array> weights_, copies_;  ///< of each array of the model
  std::vector<bool> narrow_;             ///< likewise: whether the model computes with the copy
  std::vector<std::uint64_t> writes_;    ///< of the weights' memory
};

}  // namespace detail

/// Mixed precision in a loop of one's own. (A Trainer has TrainerOptions::precision.)
///
///   MixedPrecision precision(model, {.dtype = DType::f16});
///   for (std::uint64_t step = 0; step < steps; ++step) {
///     Training mode({.seed = 1, .counter = Counter(step)});
///     auto [loss, gradient] = precision.value_and_grad([&](const Net& m) { return cross_entropy(m(x), y); })(model);
///     precision.step(optimiser, model, gradient, mode);
///   }
///
/// The function is given the model with copies in the place of its f32 parameters, frozen ones too; those of norms
/// stay. Layers compute in the copies' dtype; products, reductions, norms, softmax and losses sum in f32. The gradient
/// is of the model's own dtypes and not scaled, and sums that make it are f32 throughout. Weights that are written
/// otherwise (load_arrays) are copied again at the next call. It shares the model's memory, so it is made after setup
/// and pack. Walked by for_each_array: `scale`, `good`, `skipped`, with a loss scale. Not movable.
template <class Model>
class MixedPrecision {
 public:
  /// ArgumentError, DtypeError: options out of range, or parameters that are trained and not f32.
  explicit MixedPrecision(const Model& model, const PrecisionOptions& options = {})
      : model_(model), state_("MixedPrecision", options, detail::parts_of(model_)) {
    state_.narrow(detail::parts_of(model_));
  }
  MixedPrecision(const MixedPrecision&) = delete;
  MixedPrecision& operator=(const MixedPrecision&) = delete;
  /// What is saved in checkpoints.
  auto fields() {
    return std::tuple(field("scale", state_.scale_), field("good", state_.good_), field("skipped", state_.skipped_));
  }

  /// As the function of this name, by the model alone. ArgumentError if the model's parameters lie elsewhere than when
  /// this was made.
  template <class F>
  auto value_and_grad(F f) {
    return [this, f = std::move(f)](const Model& model) {
      check("MixedPrecision.value_and_grad", model);
      detail::freeze_as(detail::parts_of(model_), detail::parts_of(model));
      if (state_.outdated()) state_.refresh();
      if (!state_.scales()) return tessera::value_and_grad(f)(model_);
      using Value = decltype(f(model_));
      auto [both, gradient] = tessera::value_and_grad([&](const Model& m) {
        Value value = f(m);
        return std::tuple(state_.scaled(detail::first_of(value)), value);
      })(model_);
      state_.track_finite(std::get<0>(both), detail::parts_of(std::as_const(gradient)));
      const Array inverse = state_.inverse();
      return std::pair{std::get<1>(std::move(both)), map_arrays(gradient, [&](const Array& g) {
                         return g.size() == 0 ? g : g * inverse.astype(g.dtype());
                       })};
    };
  }

  /// The optimiser's step, and the copies with it. With a loss scale nothing but the scale changes if a loss or
  /// gradient of value_and_grad since the last step was not finite, whatever clipping or sums made of it.
  void step(Optimiser& optimiser, Model& model, const Model& gradient) { step(optimiser, model, gradient, nullptr); }
  /// And what was noted for the model's state, as mode.apply(model) writes it; not if the step is skipped.
  void step(Optimiser& optimiser, Model& model, const Model& gradient, const Training& mode) {
    step(optimiser, model, gradient, &mode);
  }

  std::uint64_t skipped() const { return state_.skipped_steps(); }  ///< so far; waits for the device
  double scale() const { return state_.scale(); }                   ///< of the loss, 1 without; waits for the device

 private:
  void step(Optimiser& optimiser, Model& model, const Model& gradient, const Training* mode) {
    check("MixedPrecision.step", model);
    state_.step(optimiser, detail::parts_of(model), detail::parts_of(gradient), mode);
  }
  void check(const char* asked, const Model& model) const { state_.check_place(asked, detail::parts_of(model)); }

  Model model_;  ///< with copies
  detail::Precision state_;
};

}  // namespace tessera
