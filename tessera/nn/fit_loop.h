// SPDX-License-Identifier: Apache-2.0
// Progress, callbacks and results of fit, and the part of its loop that does not depend on the model's type.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/callback.h"
#include "tessera/base/enum_name.h"
#include "tessera/nn/evaluate.h"
#include "tessera/nn/trainer_base.h"

namespace tessera {

namespace os {
class AppendFile;
}

/// Progress of a training run.
struct FitProgress {
  std::uint64_t step = 0, last_step = 0;    ///< steps done; steps in total, or 0 if unknown
  std::uint64_t epoch = 0, last_epoch = 0;  ///< The current epoch, and the last one.
  double loss = 0;                          ///< mean over the steps since the last report
  double rate = 0;                          ///< the learning rate
  std::uint64_t skipped = 0;                ///< updates skipped because of the loss scale (TrainerOptions::precision)
  Figures figures = {};                     ///< of the last validation; empty before the first
  double seconds = 0;                       ///< since fit started
  bool over = false;                        ///< this is the last report
};
std::string to_string(const FitProgress& progress);  ///< one line: "epoch 1/5  step 120/600  loss 0.31  2 s"

/// Functions that fit() calls while it trains.
struct FitCallbacks {
  /// Called twice a second, and at the end.
  Callback<void(const FitProgress&)> progress = {};
  /// Called after each step (without loss and figures) and each epoch. Returning false ends the training.
  Callback<bool(std::uint64_t step)> step = {};
  /// Called after each epoch. Returning false ends the training.
  Callback<bool(const FitProgress&)> epoch = {};
};

/// For FitCallbacks::progress: returns a function that rewrites one line on standard error if that is a terminal, and
/// otherwise prints nothing.
Callback<void(const FitProgress&)> progress_on_terminal();

/// Ends training when a figure stops improving, and returns the best model. Checkpoints store the best model so far,
/// too.
struct EarlyStopping {
  std::string figure = "loss";  ///< a figure of the validation
  std::uint64_t patience = 5;   ///< validations without improvement before training ends
  double min_delta = 0;         ///< least change that counts as an improvement
  bool greatest = false;        ///< larger is better, as for an accuracy
};

/// How a training ended.
struct FitResult {
  /// Why a training ended.
  enum class End { done, stopped, early };
  End end = End::done;                  ///< all epochs or steps done; stopped by a callback; early stopping
  std::uint64_t steps = 0, epochs = 0;  ///< in total, including those before a resume
  std::uint64_t skipped = 0;            ///< updates skipped because of the loss scale
  double loss = 0;                      ///< the last reported mean
  Figures figures = {};                 ///< of the last validation; with early stopping, of the best
  double seconds = 0;                   ///< How long it took.
};
std::string to_string(const FitResult& result);  ///< one line: "done after 5 epochs, 600 steps, 12 s; loss 0.31"

namespace detail {

/// The members of FitOptions that do not depend on the model's type.
struct FitSettings {
  std::uint64_t epochs = 0, steps = 0;
  Callback<Figures()> validate;
  std::uint64_t validate_every = 0;
  std::optional<EarlyStopping> early_stopping;
  FitCallbacks callbacks;
  std::string csv;
  std::uint64_t csv_every = 0;
  std::string checkpoint;
  std::uint64_t checkpoint_every = 0;
  bool resume = false;
};

/// Work between steps and epochs.
class FitLoop {
 public:
  FitLoop(TrainerBase& trainer, FitSettings settings);  ///< resumes from the checkpoint, if requested
  bool more() const;
  bool after_step();  ///< false: that was the last step
  bool end_epoch();   ///< false: that was the last epoch
  FitResult finish();

 private:
  struct Row {
    std::uint64_t step, epoch;
    double loss, rate;
    Figures figures;
    double seconds;
  };
  FitProgress progress();
  double seconds() const;
  bool validate();
  void save();
  void resume();
  bool waited_long_enough() const;
  void open_csv();
  void add_row();
  void write_rows(bool names_known);

  TrainerBase& trainer_;
  const FitSettings settings_;
  const double begun_;  ///< in seconds since a fixed time, as is `looked_`
  double looked_;
  FitResult::End end_ = FitResult::End::done;
  double loss_;
  std::uint64_t summed_at_ = 0, saved_at_ = 0;
  std::optional<std::uint64_t> validated_at_;
  Figures figures_, best_figures_;
  std::vector<Array> best_model_;
  double best_ = 0;
  std::uint64_t waited_ = 0;
  std::shared_ptr<os::AppendFile> csv_;
  bool has_header_ = false, fresh_figures_ = false;
  double row_sum_ = 0, row_steps_ = 0;  ///< losses since the last row
  /// the last row's loss, repeated in a row without steps
  double row_loss_;
  std::vector<Row> rows_;
};

}  // namespace detail

}  // namespace tessera
