// SPDX-License-Identifier: Apache-2.0
// Learning rates as functions of the step.
#pragma once

#include <cstdint>
#include <functional>

namespace tessera {

/// A learning rate: a number, or a function of how many steps were made before (0 for the first).
class Rate {
 public:
  /// A constant rate.
  Rate(double rate) : rate_([rate](std::uint64_t) { return rate; }) {}
  /// A rate that depends on the step, from 0.
  Rate(std::function<double(std::uint64_t step)> rate) : rate_(std::move(rate)) {}
  /// The rate of a step.
  double at(std::uint64_t step) const { return rate_(step); }

 private:
  std::function<double(std::uint64_t)> rate_;
};

/// Options of the schedules.
struct ScheduleOptions {
  std::uint64_t steps = 0;   ///< from the first to where `final` is reached; afterwards it stays
  std::uint64_t warmup = 0;  ///< the first of them go up in a line: (step + 1) / warmup of the rate
  double final = 0;          ///< the rate at the end
};
/// The same rate throughout, after the warm-up.
Rate constant_rate(double rate, const ScheduleOptions& options = {});
/// In a line to `final`.
Rate linear_rate(double rate, const ScheduleOptions& options);
/// Half a cosine down to `final` (Loshchilov and Hutter, "SGDR", 2017, without restarts). ArgumentError, here and for
/// linear_rate, if there are not more steps than those of the warm-up.
Rate cosine_rate(double rate, const ScheduleOptions& options);

}  // namespace tessera
