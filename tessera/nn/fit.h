// SPDX-License-Identifier: Apache-2.0
// fit() trains a model on a data set, with validation, early stopping and checkpoints.
#pragma once

#include "tessera/array/prefetch.h"
#include "tessera/base/callback.h"
#include "tessera/base/range.h"
#include "tessera/nn/evaluate.h"
#include "tessera/nn/fit_loop.h"
#include "tessera/nn/trainer.h"

namespace tessera {

namespace detail {
template <class Data>
concept Positioned = requires(Data& data, DataPosition to) {
  data.set_position(to);
  { data.position() } -> std::convertible_to<DataPosition>;
  { data.size() } -> std::convertible_to<std::uint64_t>;
};
/// A data set that can restrict its batches to the samples of one rank.
template <class Data>
concept Shareable = requires(Data& data) {
  data.share_batches(1, 0);
  { data.share_of(0) } -> std::convertible_to<double>;
};
/// Restricts batches to this rank's samples while it exists.
template <class Data>
class BatchShare {
 public:
  BatchShare(Data& data, const Exchange* ranks) : data_(data), ranks_(ranks) {
    if constexpr (Shareable<Data>)
      if (ranks_ != nullptr) data_.share_batches(ranks_->size(), ranks_->rank());
  }
  ~BatchShare() {
    if constexpr (Shareable<Data>)
      if (ranks_ != nullptr) data_.share_batches(1, 0);
  }
  BatchShare(const BatchShare&) = delete;
  BatchShare& operator=(const BatchShare&) = delete;
  /// The fraction of the batch's samples that is read here; std::nullopt if whole batches are read.
  std::optional<double> of(std::uint64_t batch) const {
    if constexpr (Shareable<Data>)
      if (ranks_ != nullptr) return data_.share_of(batch);
    return std::nullopt;
  }

 private:
  Data& data_;
  const Exchange* ranks_;
};
}  // namespace detail

/// Options of fit(). `loss` is required. At least one of `epochs` and `steps` must be set.
template <class Model, class Batch>
struct FitOptions {
  /// Returns the loss of a batch as a single number.
  Callback<Array(const Model& model, const Batch& batch)> loss = {};
  std::optional<AnyOptimiser> optimiser = {};  ///< Adam(model) if empty
  std::uint64_t epochs = 0;                    ///< passes over the data; 0: limited only by `steps`
  std::uint64_t steps = 0;  ///< last step, counted from the trainer's first step; 0: limited only by `epochs`
  /// Called in inference mode after each epoch, and also every `validate_every` steps if that is not 0. A typical
  /// function calls `evaluate` on held-out data. The figures are written to the CSV file.
  Callback<Figures(const Model& model)> validation = {};
  std::uint64_t validate_every = 0;                  ///< Steps between validations; 0: only after each epoch.
  std::optional<EarlyStopping> early_stopping = {};  ///< stops when a figure of the validation no longer improves
  FitCallbacks callbacks = {};                       ///< Functions called during training.
  /// CSV file to write. A row is added after each epoch, and every `csv_every` steps.
  std::string csv = {};
  std::uint64_t csv_every = 0;  ///< Steps between rows of the CSV file; 0: only after each epoch.
  /// Checkpoint file, written after each epoch, every `checkpoint_every` steps, and at the end.
  std::string checkpoint = {};
  std::uint64_t checkpoint_every = 0;  ///< Steps between checkpoints; 0: only after each epoch.
  bool resume = false;                 ///< resume from the checkpoint if the file exists
  TrainerOptions trainer = {};         ///< Options of the trainer.
  /// If several devices are given, each batch is split over them; see TrainerOptions::devices.
  std::vector<Device> devices = {};
  /// Trains together with other processes; see TrainerOptions::ranks. All ranks call fit() with the same data and
  /// options. `validation` and `callbacks` are called on all ranks, except `progress`, and only the first rank writes
  /// files. If `callbacks.step` returns false on any rank, all ranks stop after the next step.
  Exchange* ranks = nullptr;
};

/// The result of fit() when it is called with a model.
template <class Model>
struct TrainedModel {
  Model model;       ///< The trained model.
  FitResult result;  ///< Statistics of the training.
};

/// Trains with an existing trainer. Uses the options and the optimiser of the trainer, and ignores those in `options`.
/// `data` is a range of batches, which are prefetched to the trainer's device. Data sets with positions (batches,
/// map_batches) continue at the trainer's position. Other ranges start from the beginning in each epoch; after a
/// resume, the batches that were already used are skipped. Throws the errors of Trainer::step and TrainerBase::check,
/// and ArgumentError if options contradict each other.
template <class Model, class Batch, detail::Range Data>
FitResult fit(Trainer<Model, Batch>& trainer, Data&& data, std::type_identity_t<FitOptions<Model, Batch>> options) {
  const auto validate = [&, f = options.validation]() -> Figures {
    const Inference mode;
    return f(trainer.model());
  };
  detail::FitLoop loop(trainer, {.epochs = options.epochs,
                                 .steps = options.steps,
                                 .validate = options.validation ? Callback<Figures()>(validate) : nullptr,
                                 .validate_every = options.validate_every,
                                 .early_stopping = std::move(options.early_stopping),
                                 .callbacks = std::move(options.callbacks),
                                 .csv = std::move(options.csv),
                                 .csv_every = options.csv_every,
                                 .checkpoint = std::move(options.checkpoint),
                                 .checkpoint_every = options.checkpoint_every,
                                 .resume = options.resume});
  auto source = detail::view_of(std::forward<Data>(data));
  const detail::BatchShare share(source, trainer.ranks());
  while (loop.more()) {
    std::uint64_t seen = trainer.position().batch;  // batches to skip
    bool any = seen > 0, on = true;
    if constexpr (detail::Positioned<decltype(source)>) {
      if (seen >= source.size()) {  // the checkpoint was written after the last step of an epoch
        if (!loop.end_epoch()) break;
        continue;
      }
      source.set_position(trainer.position());
      seen = 0;
    }
    for (const auto& batch : prefetch(source, trainer.device())) {
      any = true;
      if (seen > 0 && seen-- > 0) continue;
      trainer.step(batch, share.of(trainer.position().batch));
      if (!(on = loop.after_step())) break;
    }
    if (!any) fail<ArgumentError>({.operation = "fit", .wrong = "the data have no batches"});
    if (!on || !loop.end_epoch()) break;
  }
  return loop.finish();
}

/// Trains a clone of the model and returns it. The given model and its copies are not changed.
///
///   const auto loss = [](const Net& m, const auto& batch) {
///     const auto& [x, y] = batch;
///     return cross_entropy(m(x), y);
///   };
///   auto data = batches(x, y, {.size = 128, .shuffle = true});
///   auto [model, result] = fit(setup(net), data, {.loss = loss, .epochs = 5});
template <class Model, detail::Range Data>
TrainedModel<Model> fit(const Model& model, Data&& data, FitOptions<Model, detail::ElementOf<Data>> options) {
  if (!options.loss)
    fail<ArgumentError>({.operation = "fit", .wrong = "no loss function was given", .remedy = "Set .loss"});
  if (!options.devices.empty()) options.trainer.devices = options.devices;
  if (options.ranks != nullptr) options.trainer.ranks = options.ranks;
  Trainer<Model, detail::ElementOf<Data>> trainer(model, options.optimiser ? *options.optimiser : Adam(model),
                                                  options.loss, options.trainer);
  FitResult result = fit(trainer, std::forward<Data>(data), std::move(options));
  return {trainer.trained(), std::move(result)};
}

}  // namespace tessera
