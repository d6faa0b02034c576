// SPDX-License-Identifier: Apache-2.0
#include "tessera/dist/mpi_start.h"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <utility>

#include "tessera/base/config.h"
#include "tessera/base/log.h"

namespace tessera::dist {
namespace {

std::atomic<const std::string*> running = nullptr;  ///< message if the process exits

void report_exit() {
  if (const std::string* message = running.load()) logging::print(*message);
}

}  // namespace

std::chrono::seconds ranks_timeout() {
  return std::chrono::seconds(config::integer("TESSERA_RANKS_TIMEOUT", 1, 1'000'000).value_or(60));
}

MpiStartGuard::MpiStartGuard(std::string what, std::string remedy)
    : limit_(ranks_timeout()),
      what_(std::move(what)),
      remedy_(std::move(remedy)),
      at_exit_(fmt::format("error: {} has ended this process. {}", what_, remedy_)) {
  static const int registered = std::atexit(report_exit);
  static_cast<void>(registered);
  watcher_ = std::thread(&MpiStartGuard::watch, this);
  running = &at_exit_;
}

MpiStartGuard::~MpiStartGuard() {
  running = nullptr;
  {
    const std::lock_guard lock(mutex_);
    has_ended_ = true;
  }
  ended_.notify_one();
  watcher_.join();
}

void MpiStartGuard::watch() {
  using std::chrono::seconds;
  const seconds first = std::min(limit_, seconds(4));
  std::unique_lock lock(mutex_);
  const auto wait = [&](seconds time) { return ended_.wait_for(lock, time, [&] { return has_ended_; }); };
  if (wait(first)) return;
  if (first < limit_) {
    logging::warn(fmt::format("{} has not returned for {} s. This process ends after {} s (TESSERA_RANKS_TIMEOUT)",
                              what_, first.count(), limit_.count()));
    if (wait(limit_ - first)) return;
  }
  logging::print(fmt::format("error: {} has not returned for {} s. {}. TESSERA_RANKS_TIMEOUT sets this time", what_,
                             limit_.count(), remedy_));
  std::_Exit(1);
}

}  // namespace tessera::dist
