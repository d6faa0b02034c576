// SPDX-License-Identifier: Apache-2.0
// Training a model on data with one call, with validation, early stopping and checkpoints.
#pragma once

#include "tessera/array/prefetch.h"
#include "tessera/nn/evaluate.h"
#include "tessera/nn/fit_loop.h"
#include "tessera/nn/trainer.h"

namespace tessera {

namespace detail {
template <class Data>
using BatchOf = std::remove_cvref_t<std::ranges::range_reference_t<Data>>;
template <class Data>
concept Positioned = requires(Data& data, DataPosition to) {
  data.set_position(to);
  { data.position() } -> std::convertible_to<DataPosition>;
  { data.size() } -> std::convertible_to<std::uint64_t>;
};
}  // namespace detail

/// `loss` is needed, and `epochs` or `steps`.
template <class Model, class Batch>
struct FitOptions {
  std::function<Array(const Model& model, const Batch& batch)> loss = {};  ///< The loss of a batch, a single number.
  std::optional<AnyOptimiser> optimiser = {};                              ///< Adam(model) if empty
  std::uint64_t epochs = 0;  ///< passes over the data; 0: as many as `steps` take
  std::uint64_t steps = 0;   ///< the last step, counted from the trainer's first; 0: as many as `epochs` take
  /// Called after each epoch, and after each `validate_every` steps if that is not 0, in inference: `evaluate` of data
  /// that are held out, say. Its figures stand in the CSV file.
  std::function<Figures(const Model& model)> validation = {};
  std::uint64_t validate_every = 0;                  ///< Steps between validations; 0: only after each epoch.
  std::optional<EarlyStopping> early_stopping = {};  ///< by a figure of the validation
  FitCallbacks callbacks = {};                       ///< Functions that fit() calls.
  std::string csv = {};                              ///< a file with a row for each epoch, and each `csv_every` steps
  std::uint64_t csv_every = 0;                       ///< Steps between rows of the CSV file; 0: only after each epoch.
  std::string checkpoint = {};  ///< a file, written after each epoch, and each `checkpoint_every` steps, and at the end
  std::uint64_t checkpoint_every = 0;  ///< Steps between checkpoints; 0: only after each epoch.
  bool resume = false;                 ///< go on from the checkpoint, if there is one
  TrainerOptions trainer = {};         ///< Options of the trainer.
  std::vector<Device> devices = {};    ///< several: each batch is split over them, see TrainerOptions::devices
};

/// What came of a training.
template <class Model>
struct TrainedModel {
  Model model;       ///< The trained model.
  FitResult result;  ///< How the training went.
};

/// Trains with a trainer, whose options and optimiser count (those in `options` do not). `data` is a range of batches;
/// they are copied ahead to the trainer's device. Data with positions (batches, map_batches) are first set to the
/// trainer's; others start over in each epoch, and what a resumed trainer saw before is passed by. Errors: what a step
/// throws; TrainerBase::check; ArgumentError for options that do not go together.
template <class Model, class Batch, std::ranges::viewable_range Data>
FitResult fit(Trainer<Model, Batch>& trainer, Data&& data, std::type_identity_t<FitOptions<Model, Batch>> options) {
  const auto validate = [&, f = options.validation]() -> Figures {
    const Inference mode;
    return f(trainer.model());
  };
  detail::FitLoop loop(trainer, {.epochs = options.epochs,
                                 .steps = options.steps,
                                 .validate = options.validation ? std::function<Figures()>(validate) : nullptr,
                                 .validate_every = options.validate_every,
                                 .early_stopping = std::move(options.early_stopping),
                                 .callbacks = std::move(options.callbacks),
                                 .csv = std::move(options.csv),
                                 .csv_every = options.csv_every,
                                 .checkpoint = std::move(options.checkpoint),
                                 .checkpoint_every = options.checkpoint_every,
                                 .resume = options.resume});
  auto source = std::views::all(std::forward<Data>(data));
  while (loop.more()) {
    std::uint64_t seen = trainer.position().batch;  // to be passed by
    bool any = seen > 0, on = true;
    if constexpr (detail::Positioned<decltype(source)>) {
      if (seen >= source.size()) {  // saved behind an epoch's last step
        if (!loop.end_epoch()) break;
        continue;
      }
      source.set_position(trainer.position());
      seen = 0;
    }
    for (const auto& batch : prefetch(source, trainer.device())) {
      any = true;
      if (seen > 0 && seen-- > 0) continue;
      trainer.step(batch);
      if (!(on = loop.after_step())) break;
    }
    if (!any) fail<ArgumentError>({.operation = "fit", .wrong = "the data have no batch"});
    if (!on || !loop.end_epoch()) break;
  }
  return loop.finish();
}

/// Trains a clone of the model, and gives it back; the model, and copies of it, keep their values.
///
///   const auto loss = [](const Net& m, const auto& batch) {
///     const auto& [x, y] = batch;
///     return cross_entropy(m(x), y);
///   };
///   auto data = batches(x, y, {.size = 128, .shuffle = true});
///   auto [model, result] = fit(setup(net), data, {.loss = loss, .epochs = 5});
template <class Model, std::ranges::viewable_range Data>
TrainedModel<Model> fit(const Model& model, Data&& data, FitOptions<Model, detail::BatchOf<Data>> options) {
  if (!options.loss)
    fail<ArgumentError>({.operation = "fit", .wrong = "there is no loss to lower", .remedy = "Give .loss"});
  if (!options.devices.empty()) options.trainer.devices = options.devices;
  Trainer<Model, detail::BatchOf<Data>> trainer(model, options.optimiser ? *options.optimiser : Adam(model),
                                                options.loss, options.trainer);
  FitResult result = fit(trainer, std::forward<Data>(data), std::move(options));
  return {trainer.trained(), std::move(result)};
}

}  // namespace tessera
