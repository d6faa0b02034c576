// SPDX-License-Identifier: Apache-2.0
// Progress, callbacks and results of fit(), and the part of its loop that does not depend on the model's type.
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
  std::uint64_t step = 0, last_step = 0;    ///< steps completed; total steps, or 0 if unknown
  std::uint64_t epoch = 0, last_epoch = 0;  ///< The current epoch, and the last one.
  double loss = 0;                          ///< mean over the steps since the last report
  double rate = 0;                          ///< the learning rate
  std::uint64_t skipped = 0;                ///< updates skipped because of loss scaling (TrainerOptions::precision)
  Figures figures = {};                     ///< results of the last validation; empty before the first validation
  double seconds = 0;                       ///< seconds since fit() was called
  bool over = false;                        ///< true in the last report
};
/// Formats as one line: "epoch 1/5  step 120/600  loss 0.31  2 s".
std::string to_string(const FitProgress& progress);

/// Functions that fit() calls while it trains.
struct FitCallbacks {
  /// Called about twice a second, and at the end.
  Callback<void(const FitProgress&)> progress = {};
  /// Called after each step. Return false to stop training.
  Callback<bool(std::uint64_t step)> step = {};
  /// Called after each epoch. Return false to stop training.
  Callback<bool(const FitProgress&)> epoch = {};
};

/// Returns a function for FitCallbacks::progress. It updates one line on standard error if standard error is a
/// terminal, and prints nothing otherwise.
Callback<void(const FitProgress&)> progress_on_terminal();

/// Stops training when a figure no longer improves, and returns the best model. Checkpoints also store the best model
/// so far.
struct EarlyStopping {
  std::string figure = "loss";  ///< name of the validation figure
  std::uint64_t patience = 5;   ///< number of validations without improvement before training stops
  double min_delta = 0;         ///< smallest change that is an improvement
  bool greatest = false;        ///< larger values are better, for example for an accuracy
};

/// The result of a training run.
struct FitResult {
  /// Reason why training ended.
  enum class End { done, stopped, early };
  End end = End::done;  ///< `done`: all epochs or steps ran; `stopped`: by a callback; `early`: by early stopping.
  std::uint64_t steps = 0, epochs = 0;  ///< totals, including steps and epochs before a resume
  std::uint64_t skipped = 0;            ///< updates skipped because of loss scaling
  double loss = 0;                      ///< mean loss in the last report
  Figures figures = {};                 ///< figures of the last validation; with early stopping, of the best one
  double seconds = 0;                   ///< Duration in seconds.
};
/// Formats as one line: "done after 5 epochs, 600 steps, 12 s; loss 0.31".
std::string to_string(const FitResult& result);

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

/// The part of fit() that runs between steps and between epochs.
class FitLoop {
 public:
  FitLoop(TrainerBase& trainer, FitSettings settings);  ///< resumes from the checkpoint if that is enabled
  bool more() const;
  bool after_step();  ///< returns false after the last step
  bool end_epoch();   ///< returns false after the last epoch
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
  bool first_rank() const;
  bool on_any_rank(bool here) const;
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
  double row_sum_ = 0, row_steps_ = 0;  ///< sum and number of losses since the last row
  /// loss of the last row; used again for a row without new steps
  double row_loss_;
  std::vector<Row> rows_;
};

}  // namespace detail

}  // namespace tessera
