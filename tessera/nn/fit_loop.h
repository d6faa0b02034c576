// SPDX-License-Identifier: Apache-2.0
// What fit tells and is told, and what it does whatever the model.
#pragma once

#include <chrono>
#include <limits>
#include <memory>

#include "tessera/base/enum_name.h"
#include "tessera/nn/evaluate.h"
#include "tessera/nn/trainer_base.h"

namespace tessera {

namespace os {
class AppendFile;
}

/// Where a training stands.
struct FitProgress {
  std::uint64_t step = 0, last_step = 0;    ///< made; to make in all, 0 if that is not known
  std::uint64_t epoch = 0, last_epoch = 0;  ///< The current epoch, and the last one.
  double loss = 0;                          ///< mean of the steps since the last time that somebody was told
  double rate = 0;                          ///< the learning rate
  std::uint64_t skipped = 0;                ///< updates that were, with a loss scale (TrainerOptions::precision)
  Figures figures = {};                     ///< of the last validation; empty before the first
  double seconds = 0;                       ///< since fit began
  bool over = false;                        ///< nothing comes after this
};
std::string to_string(const FitProgress& progress);  ///< a line: "epoch 1/5  step 120/600  loss 0.31  2 s"

/// Functions that fit() calls while it trains.
struct FitCallbacks {
  /// Told twice a second, and at the end.
  std::function<void(const FitProgress&)> progress = {};
  /// Told after each step (without loss and figures) and each epoch. False: training ends here.
  std::function<bool(std::uint64_t step)> step = {};
  /// Called after each epoch. Returning false ends the training.
  std::function<bool(const FitProgress&)> epoch = {};
};

/// For FitCallbacks::progress: a line on standard error that is written over, if that is a terminal; else nothing.
std::function<void(const FitProgress&)> progress_on_terminal();

/// Ends a training that grows no better, and gives the best model back. A checkpoint has the best so far too.
struct EarlyStopping {
  std::string figure = "loss";  ///< of the validation
  std::uint64_t patience = 5;   ///< validations without a better one
  double min_delta = 0;         ///< what is better is better by more than this
  bool greatest = false;        ///< the greatest is the best: an accuracy
};

/// How a training ended.
struct FitResult {
  /// Why a training ended.
  enum class End { done, stopped, early };
  End end = End::done;                  ///< all epochs or steps; a callback said so; early stopping
  std::uint64_t steps = 0, epochs = 0;  ///< made in all, those before a resume too
  std::uint64_t skipped = 0;            ///< updates that were, with a loss scale
  double loss = 0;                      ///< the last mean that was told
  Figures figures = {};                 ///< of the last validation; with early stopping of the best
  double seconds = 0;                   ///< How long it took.
};
std::string to_string(const FitResult& result);  ///< a line: "done after 5 epochs, 600 steps, 12 s; loss 0.31"

namespace detail {

/// What of FitOptions is of no model.
struct FitSettings {
  std::uint64_t epochs = 0, steps = 0;
  std::function<Figures()> validate;
  std::uint64_t validate_every = 0;
  std::optional<EarlyStopping> early_stopping;
  FitCallbacks callbacks;
  std::string csv;
  std::uint64_t csv_every = 0;
  std::string checkpoint;
  std::uint64_t checkpoint_every = 0;
  bool resume = false;
};

/// What is done between steps and epochs.
class FitLoop {
 public:
  FitLoop(TrainerBase& trainer, FitSettings settings);  ///< resumes
  bool more() const;
  bool after_step();  ///< false: that was the last
  bool end_epoch();   ///< the same
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

  using Time = std::chrono::steady_clock::time_point;
  TrainerBase& trainer_;
  const FitSettings settings_;
  const Time begun_ = std::chrono::steady_clock::now();
  Time looked_;
  FitResult::End end_ = FitResult::End::done;
  double loss_ = std::numeric_limits<double>::quiet_NaN();
  std::uint64_t summed_at_ = 0, saved_at_ = 0;
  std::optional<std::uint64_t> validated_at_;
  Figures figures_, best_figures_;
  std::vector<Array> best_model_;
  double best_ = 0;
  std::uint64_t waited_ = 0;
  std::shared_ptr<os::AppendFile> csv_;
  bool has_header_ = false, fresh_figures_ = false;
  double row_sum_ = 0, row_steps_ = 0;                          ///< of losses since the last row
  double row_loss_ = std::numeric_limits<double>::quiet_NaN();  ///< the last row's, which one without steps repeats
  std::vector<Row> rows_;
};

}  // namespace detail

}  // namespace tessera
