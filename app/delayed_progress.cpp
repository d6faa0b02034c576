// SPDX-License-Identifier: Apache-2.0
#include "delayed_progress.h"

#include <chrono>
#include <utility>

namespace tessera::app {
namespace {

constexpr std::chrono::seconds delay_of_progress{1};

}  // namespace

void DelayedProgress::update(std::string text) {
  if (!progress_.overwrites()) return;
  const std::lock_guard lock(mutex_);
  text_ = std::move(text);
  if (visible_) progress_.update(text_);
  if (timer_.joinable()) return;
  timer_ = std::jthread([this](const std::stop_token& stop) {
    std::unique_lock waiting(mutex_);
    stopped_.wait_for(waiting, stop, delay_of_progress, [] { return false; });
    if (stop.stop_requested()) return;
    visible_ = true;
    progress_.update(text_);
  });
}

void DelayedProgress::clear() {
  if (!timer_.joinable()) return;
  timer_.request_stop();
  timer_.join();
  visible_ = false;
  progress_.clear();
}

}  // namespace tessera::app
