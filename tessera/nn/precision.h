// SPDX-License-Identifier: Apache-2.0
// Mixed precision: weights are f32, and the model computes with 16-bit copies.
#pragma once

#include "tessera/grad/grad.h"
#include "tessera/nn/mode.h"
#include "tessera/nn/optimiser.h"

namespace tessera {

/// Options of loss scaling. f16 numbers below 6e-8 are 0, and gradients often are that small: the loss is multiplied by
/// a scale before the gradient is computed, and the gradient divided by it afterwards (Micikevicius et al., "Mixed
/// precision training", 2018). The scale is on the device, and is adjusted as by PyTorch's GradScaler; names and
/// defaults are the same. A step whose loss or gradient is not finite is skipped and counted; it changes only the
/// scale.
struct LossScaleOptions {
  std::optional<bool> enabled = {};      ///< default: for f16
  double init_scale = 65536;             ///< from 2^-64 to 2^64; the scale does not grow beyond 2^64
  double growth_factor = 2;              ///< after `growth_interval` finite steps in a row
  double backoff_factor = 0.5;           ///< after a step that was not finite
  std::uint64_t growth_interval = 2000;  ///< Steps without overflow after which the scale grows.
  /// A smaller scale would not help: a non-finite step at this scale is handled as without a scale, so that a trainer's
  /// check() reports it.
  double smallest = 0x1p-20;
};

/// Options of MixedPrecision.
struct PrecisionOptions {
  DType dtype = DType::f32;  ///< dtype of the copies: bf16 or f16; f32: no copies
  /// Matching parameters stay f32, as those of norms always do. A shared parameter stays f32 if any of its paths
  /// matches.
  std::vector<std::string> keep = {};
  LossScaleOptions loss_scale = {};  ///< Options of the loss scale, which f16 needs.
};

namespace detail {

/// Freezes exactly the parameters that are frozen in the other model.
void freeze_as(const Parts& parts, const ConstParts& other);

/// The copies of a model's parameters, and the loss scale.
class Precision {
 public:
  Precision() = default;  ///< f32
  /// Throws ArgumentError or DtypeError for options out of range, a pattern that matches nothing, and parameters that
  /// are not f32. `asked` is the name used in errors. The parameters' memory must not change from now on.
  Precision(const char* asked, const PrecisionOptions& options, const Parts& model);

  bool narrows() const { return options_.dtype != DType::f32; }
  bool scales() const { return scales_; }
  const PrecisionOptions& options() const { return options_; }
  /// Replaces a model's parameters by their copies.
  void narrow(const Parts& model) const;
  /// In the form that ApplyOptions takes: one entry for each array of the model; some are empty.
  const std::vector<Array>& copies() const { return copies_; }
  /// Updates the copies.
  void refresh();
  /// Whether weights were written since refresh() or mark_current(), as far as this library can tell.
  bool outdated() const;
  void mark_current();  ///< marks the copies as up to date
  /// Throws ArgumentError if an array of this model has other memory than before.
  void check_place(const char* asked, const ConstParts& model) const;

  // Loss scaling; only if scales().
  Array scaled(const Array& loss) const;  ///< as f32 (f64 for f64)
  Array inverse() const;                  ///< factor of the gradients
  Array is_at_min_scale() const;          ///< bool
  /// Called after a step. `finite`: bool, whether the step was finite. `stopped`: u64, optional; unless it is 0 nothing
  /// changes.
  void update(const Array& finite, const std::optional<Array>& stopped);
  std::vector<std::pair<std::string, Array>> kept() const;  ///< state that is saved
  std::uint64_t skipped_steps() const;
  double scale() const;
  // For user-written training loops.
  void track_finite(const Array& loss, const ConstParts& gradient);  ///< records whether all are finite
  /// Makes a step, unless any loss or gradient recorded since the last step was not finite.
  void step(Optimiser& optimiser, const Parts& model, const ConstParts& gradient, const Training* mode);

  Array scale_, good_, skipped_;  ///< f32, u64, u64, without dimensions: scale, finite steps in a row, skipped steps

 private:
  PrecisionOptions options_;
  bool scales_ = false;
  std::optional<Array> finite_;          ///< whether everything recorded since the last step was finite
  std::vector<Array> weights_, copies_;  ///< for each array of the model
  std::vector<bool> narrow_;             ///< likewise: whether the model computes with the copy
  std::vector<std::uint64_t> writes_;    ///< write counters of the weights' memory
};

}  // namespace detail

/// Mixed precision for your own training loop. (A Trainer has TrainerOptions::precision.)
///
///   MixedPrecision precision(model, {.dtype = DType::f16});
///   for (std::uint64_t step = 0; step < steps; ++step) {
///     Training mode({.seed = 1, .counter = Counter(step)});
///     auto [loss, gradient] = precision.value_and_grad([&](const Net& m) { return cross_entropy(m(x), y); })(model);
///     precision.step(optimiser, model, gradient, mode);
///   }
///
/// The function is called with the model in which 16-bit copies replace the f32 parameters, including frozen ones,
/// except those of norms. Layers compute in the copies' dtype; products, reductions, norms, softmax and losses are
/// accumulated in f32. The gradient has the model's own dtypes, is not scaled, and is accumulated in f32. Weights that
/// are written by other means (load_arrays) are copied again at the next call. It shares the model's memory, so create
/// it after setup and pack. for_each_array visits `scale`, `good` and `skipped`, if there is a loss scale. Not movable.
template <class Model>
class MixedPrecision {
 public:
  /// Throws ArgumentError or DtypeError for options out of range, or trained parameters that are not f32.
  explicit MixedPrecision(const Model& model, const PrecisionOptions& options = {})
      : model_(model), state_("MixedPrecision", options, detail::parts_of(model_)) {
    state_.narrow(detail::parts_of(model_));
  }
  MixedPrecision(const MixedPrecision&) = delete;
  MixedPrecision& operator=(const MixedPrecision&) = delete;
  /// The state that checkpoints contain.
  auto fields() {
    return std::tuple(field("scale", state_.scale_), field("good", state_.good_), field("skipped", state_.skipped_));
  }

  /// As the function value_and_grad, with respect to the model only. Throws ArgumentError if the model's parameters
  /// have other memory than when this object was created.
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

  /// The optimiser's step, which also updates the copies. With a loss scale, only the scale changes if a loss or
  /// gradient of value_and_grad since the last step was not finite, even if clipping or sums have hidden that.
  void step(Optimiser& optimiser, Model& model, const Model& gradient) { step(optimiser, model, gradient, nullptr); }
  /// Also writes the pending updates of the model's state, as mode.apply(model) does; not if the step is skipped.
  void step(Optimiser& optimiser, Model& model, const Model& gradient, const Training& mode) {
    step(optimiser, model, gradient, &mode);
  }

  std::uint64_t skipped() const { return state_.skipped_steps(); }  ///< skipped steps so far; waits for the device
  /// scale of the loss, 1 without loss scaling; waits for the device
  double scale() const { return state_.scale(); }

 private:
  void step(Optimiser& optimiser, Model& model, const Model& gradient, const Training* mode) {
    check("MixedPrecision.step", model);
    state_.step(optimiser, detail::parts_of(model), detail::parts_of(gradient), mode);
  }
  void check(const char* asked, const Model& model) const { state_.check_place(asked, detail::parts_of(model)); }

  Model model_;  ///< the model with copies
  detail::Precision state_;
};

}  // namespace tessera
