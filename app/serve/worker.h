// SPDX-License-Identifier: Apache-2.0
// A thread that runs functions in order, for work that would take too long on the server's thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "tessera/base/log.h"

namespace tessera::app {

/// Runs functions on one thread. The functions must not throw.
class Worker {
 public:
  Worker() : thread_([this] { run(); }) {}
  Worker(const Worker&) = delete;
  /// Waits for the function in progress. Functions that have not started are dropped.
  ~Worker() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  /// Identifies a function; never 0.
  using Number = std::uint64_t;
  Number add(std::function<void()> work) {
    Number number = 0;
    {
      const std::lock_guard lock(mutex_);
      number = next_++;
      work_.emplace(number, std::move(work));
    }
    changed_.notify_one();
    return number;
  }
  /// Drops a function unless it has started.
  void remove(Number number) {
    std::unique_lock lock(mutex_);
    const auto dropped = work_.extract(number);
    lock.unlock();  // before the function is destroyed
  }
  /// Number of functions that have not started.
  std::size_t waiting() const {
    const std::lock_guard lock(mutex_);
    return work_.size();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stopping_ || !work_.empty(); });
      if (stopping_) return;
      const std::function<void()> next = std::move(work_.begin()->second);
      work_.erase(work_.begin());
      lock.unlock();
      try {
        next();
      } catch (const std::exception& e) {  // memory ran out while an answer was posted
        logging::warn(std::string("a request was dropped: ") + e.what());
      }
      lock.lock();
    }
  }
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Number, std::function<void()>> work_;  ///< in the order in which they were added
  Number next_ = 1;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace tessera::app
