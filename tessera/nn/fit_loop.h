// SPDX-License-Identifier: Apache-2.0
// What fit tells and is told, and what it does whatever the model.
#pragma once

#include <chrono>
#include <cstdio>

#include "tessera/nn/evaluate.h"
#include "tessera/nn/trainer_base.h"

namespace tessera {

/// Where a training stands.
struct FitProgress {
  std::uint64_t step = 0, last_step = 0;  ///< made; to make in all, 0 if that is not known
  std::uint64_t epoch = 0, last_epoch = 0;
  double loss = 0;       ///< mean of the steps since the last time that somebody was told
  double rate = 0;       ///< the learning rate
  Figures figures = {};  ///< of the last validation; empty before the first
  double seconds = 0;    ///< since fit began
};

struct FitCallbacks {
  /// Told twice a second, and at the end.
  std::function<void(const FitProgress&)> progress = {};
  /// Told after each step (without loss and figures) and each epoch. False: training ends here.
  std::function<bool(std::uint64_t step)> step = {};
  std::function<bool(const FitProgress&)> epoch = {};
};

/// For FitCallbacks::progress: a line on standard error that is written over, if that is a terminal; else nothing.
std::function<void(const FitProgress&)> progress_on_terminal();

/// Ends a training that grows no better, and gives the best model back.
struct EarlyStopping {
  std::string figure = "loss";  ///< of the validation
  std::uint64_t patience = 5;   ///< validations without a better one
  double min_delta = 0;         ///< what is better is better by more than this
  bool greatest = false;        ///< the greatest is the best: an accuracy
};

struct FitResult {
  enum class End { done, stopped, early };
  End end = End::done;                  ///< all epochs or steps; a callback said so; early stopping
  std::uint64_t steps = 0, epochs = 0;  ///< made in all, those before a resume too
  double loss = 0;                      ///< the last mean that was told
  Figures figures = {};                 ///< of the last validation; with early stopping of the best
  double seconds = 0;
};

}  // namespace tessera
