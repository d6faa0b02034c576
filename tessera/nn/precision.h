// SPDX-License-Identifier: Apache-2.0
// Mixed precision: parameters are stored in f32, and the model computes with 16-bit copies of them.
#pragma once

#include "tessera/grad/grad.h"
#include "tessera/nn/mode.h"
#include "tessera/nn/optimiser.h"

namespace tessera {

/// Options of loss scaling (Micikevicius et al., "Mixed precision training", 2018). Gradients are often below 6e-8,
/// which f16 rounds to 0. The loss is therefore multiplied by a scale before the gradient is computed, and the gradient
/// is divided by it afterwards. The scale is stored on the device and adjusted as in PyTorch's GradScaler, with the
/// same names and defaults. A step with a non-finite loss or gradient is skipped and counted; it only changes the
/// scale.
struct LossScaleOptions {
  std::optional<bool> enabled = {};      ///< default: enabled for f16 only
  double init_scale = 65536;             ///< between 2^-64 and 2^64; the scale never grows beyond 2^64
  double growth_factor = 2;              ///< factor of the scale after `growth_interval` finite steps in a row
  double backoff_factor = 0.5;           ///< factor of the scale after a non-finite step
  std::uint64_t growth_interval = 2000;  ///< Number of finite steps in a row after which the scale grows.
  /// The scale does not decrease below this value. A non-finite step at this scale is handled as if there were no loss
  /// scaling: the trainer's check() reports it.
  double smallest = 0x1p-20;
};

/// Options of MixedPrecision.
struct PrecisionOptions {
  DType dtype = DType::f32;  ///< dtype of the copies: bf16 or f16; f32 disables mixed precision
  /// Patterns of parameters that remain f32. Parameters of norms always remain f32. A shared parameter remains f32 if
  /// any of its paths matches.
  std::vector<std::string> keep = {};
  LossScaleOptions loss_scale = {};  ///< Options of the loss scale, which is required for f16.
};

namespace detail {

/// Freezes the parameters that are frozen in the other model, and unfreezes all others.
void freeze_as(const Parts& parts, const ConstParts& other);

/// Manages the 16-bit copies of a model's parameters, and the loss scale.
class Precision {
 public:
  Precision() = default;  ///< computes in f32, without copies
  /// `asked` is the name of the calling function in error messages. Throws ArgumentError if an option is out of range
  /// or a pattern matches no parameter, and DtypeError if parameters are not f32. The memory of the parameters must not
  /// be replaced after this call.
  Precision(const char* asked, const PrecisionOptions& options, const Parts& model);

  bool narrows() const { return options_.dtype != DType::f32; }
  bool scales() const { return scales_; }
  const PrecisionOptions& options() const { return options_; }
  /// Replaces the parameters of a model by their 16-bit copies.
  void narrow(const Parts& model) const;
  /// The copies in the form that ApplyOptions expects: one entry for each array of the model, some of them empty.
  const std::vector<Array>& copies() const { return copies_; }
  /// Updates the copies from the parameters.
  void refresh();
  /// Returns true if weights were written since refresh() or mark_current(), according to the write counters of their
  /// memory.
  bool outdated() const;
  void mark_current();  ///< marks the copies as up to date
  /// Throws ArgumentError if an array of this model does not have the same memory as in the constructor.
  void check_place(const char* asked, const ConstParts& model) const;

  // Functions for loss scaling. Call them only if scales() is true.
  Array scaled(const Array& loss) const;  ///< the scaled loss, in f32, or in f64 for an f64 loss
  Array inverse() const;                  ///< factor that removes the scale from the gradients
  Array is_at_min_scale() const;          ///< bool array: true if the scale cannot decrease
  /// Adjusts the scale after a step. `finite` is a bool array that is true if the step was finite. `stopped` is an
  /// optional u64 array; if it is not 0, the scale does not change.
  void update(const Array& finite, const std::optional<Array>& stopped);
  std::vector<std::pair<std::string, Array>> kept() const;  ///< state that checkpoints contain
  std::uint64_t skipped_steps() const;
  double scale() const;
  // Functions for user-written training loops.
  void track_finite(const Array& loss, const ConstParts& gradient);  ///< records whether loss and gradient are finite
  /// Calls the optimiser, unless a recorded loss or gradient was not finite since the last step.
  void step(Optimiser& optimiser, const Parts& model, const ConstParts& gradient, const Training* mode);

  Array scale_, good_, skipped_;  ///< arrays without dimensions. scale (f32), number of finite steps in a row (u64),
                                  ///< number of skipped steps (u64)

 private:
  PrecisionOptions options_;
  bool scales_ = false;
  std::optional<Array> finite_;          ///< true if every loss and gradient since the last step was finite
  std::vector<Array> weights_, copies_;  ///< for each array of the model
  std::vector<bool> narrow_;             ///< for each array of the model: whether the model computes with the copy
  std::vector<std::uint64_t> writes_;    ///< write counters of the weights' memory
};

}  // namespace detail

/// Mixed precision for user-written training loops. Trainer has its own option, TrainerOptions::precision.
///
///   MixedPrecision precision(model, {.dtype = DType::f16});
///   for (std::uint64_t step = 0; step < steps; ++step) {
///     Training mode({.seed = 1, .counter = Counter(step)});
///     auto [loss, gradient] = precision.value_and_grad([&](const Net& m) { return cross_entropy(m(x), y); })(model);
///     precision.step(optimiser, model, gradient, mode);
///   }
///
/// value_and_grad calls the function with a model in which 16-bit copies replace the f32 parameters, including frozen
/// ones. Parameters of norms are not replaced. Layers compute in the dtype of the copies; products, reductions, norms,
/// softmax and losses are accumulated in f32. The gradient is returned in the dtypes of the original model, without the
/// scale, and is accumulated in f32. If something else writes the weights, for example load_arrays, the next call
/// copies them again.
///
/// A MixedPrecision object shares the model's memory. Create it after setup and pack. for_each_array visits `scale`,
/// `good` and `skipped` if there is a loss scale. Not movable.
template <class Model>
class MixedPrecision {
 public:
  /// Throws ArgumentError or DtypeError if an option is out of range or a trained parameter is not f32.
  explicit MixedPrecision(const Model& model, const PrecisionOptions& options = {})
      : model_(model), state_("MixedPrecision", options, detail::parts_of(model_)) {
    state_.narrow(detail::parts_of(model_));
  }
  MixedPrecision(const MixedPrecision&) = delete;
  MixedPrecision& operator=(const MixedPrecision&) = delete;
  /// The state that is saved in checkpoints.
  auto fields() {
    return std::tuple(field("scale", state_.scale_), field("good", state_.good_), field("skipped", state_.skipped_));
  }

  /// Like the function value_and_grad, but computes gradients with respect to the model only. Throws ArgumentError if
  /// the memory of the model's parameters was replaced after this object was created.
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

  /// Runs the optimiser's step and updates the copies. With loss scaling, the step is skipped and only the scale
  /// changes if value_and_grad computed a non-finite loss or gradient since the last step. This also applies if
  /// clipping or sums have hidden the non-finite value.
  void step(Optimiser& optimiser, Model& model, const Model& gradient) { step(optimiser, model, gradient, nullptr); }
  /// Also writes the pending updates of the model's state, like mode.apply(model), unless the step is skipped.
  void step(Optimiser& optimiser, Model& model, const Model& gradient, const Training& mode) {
    step(optimiser, model, gradient, &mode);
  }

  /// Number of skipped steps so far; waits for the device.
  std::uint64_t skipped() const { return state_.skipped_steps(); }
  /// Returns the loss scale, or 1 without loss scaling. Waits for the device.
  double scale() const { return state_.scale(); }

 private:
  void step(Optimiser& optimiser, Model& model, const Model& gradient, const Training* mode) {
    check("MixedPrecision.step", model);
    state_.step(optimiser, detail::parts_of(model), detail::parts_of(gradient), mode);
  }
  void check(const char* asked, const Model& model) const { state_.check_place(asked, detail::parts_of(model)); }

  Model model_;  ///< computes with the 16-bit copies
  detail::Precision state_;
};

}  // namespace tessera
