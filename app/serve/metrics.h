// SPDX-License-Identifier: Apache-2.0
// The metrics of the server in Prometheus' text format.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tessera/llm/scheduler.h"

namespace tessera::app {

/// How a request ended.
enum class RequestOutcome : std::uint8_t { completed, rejected, cancelled, failed };
inline constexpr std::size_t request_outcomes = 4;
const char* outcome_name(RequestOutcome outcome);

/// Counts durations in buckets.
class Histogram {
 public:
  /// `bounds` are the upper bounds of the buckets, ascending.
  explicit Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}
  void add(double seconds);
  /// Formats the samples of a metric.
  std::string text(const std::string& name) const;

 private:
  std::vector<double> bounds_;
  std::vector<std::uint64_t> counts_;
  double sum_ = 0;
};

/// The server's counters. Not thread-safe.
class Metrics {
 public:
  void count(RequestOutcome outcome) { ++requests_[static_cast<std::size_t>(outcome)]; }
  void add_time_to_first_token(double seconds) { first_token_.add(seconds); }
  void add_time_per_token(double seconds) { per_token_.add(seconds); }
  /// The page /metrics.
  std::string text(const SchedulerStatistics& scheduler, std::size_t connections) const;

 private:
  std::array<std::uint64_t, request_outcomes> requests_{};
  Histogram first_token_{{0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}};
  Histogram per_token_{{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1}};
};

}  // namespace tessera::app
