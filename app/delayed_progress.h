// SPDX-License-Identifier: Apache-2.0
// A progress line that appears only if the work takes longer than a second.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "terminal.h"

namespace tessera::app {

class DelayedProgress {
 public:
  explicit DelayedProgress(bool quiet) : progress_(quiet) {}
  ~DelayedProgress() { clear(); }
  /// Sets the text. The first call starts the delay. Does nothing if standard error is not a terminal.
  void update(std::string text);
  /// Removes the line.
  void clear();

 private:
  Progress progress_;
  std::mutex mutex_;
  std::condition_variable_any stopped_;
  std::string text_;
  bool visible_ = false;  ///< the delay is over
  std::jthread timer_;    ///< shows the line after the delay, even if the first step of the work is not finished
};

}  // namespace tessera::app
