// SPDX-License-Identifier: Apache-2.0
// Learning-rate schedules.
#pragma once

#include <cstdint>

#include "tessera/base/callback.h"

namespace tessera {

/// A learning rate: a constant, or a function of the number of previous steps (0 for the first step).
class Rate {
 public:
  /// Creates a constant rate.
  Rate(double rate);
  /// Creates a rate that depends on the step, counted from 0.
  Rate(Callback<double(std::uint64_t step)> rate);
  /// Returns the learning rate of a step.
  double at(std::uint64_t step) const { return rate_(step); }

 private:
  Callback<double(std::uint64_t)> rate_;
};

/// Options of the schedules.
struct ScheduleOptions {
  std::uint64_t steps = 0;  ///< number of steps after which the rate is `final` and remains constant
  /// Number of warm-up steps at the start. Their rate is multiplied by (step + 1) / warmup.
  std::uint64_t warmup = 0;
  double final = 0;  ///< final learning rate
};
/// A constant learning rate, after an optional warm-up.
Rate constant_rate(double rate, const ScheduleOptions& options = {});
/// A learning rate that decays linearly to `final`. Throws ArgumentError if `steps` is not greater than `warmup`.
Rate linear_rate(double rate, const ScheduleOptions& options);
/// A learning rate that decays from `rate` to `final` along half a cosine (Loshchilov and Hutter, "SGDR", 2017, without
/// restarts). Throws ArgumentError if `steps` is not greater than `warmup`.
Rate cosine_rate(double rate, const ScheduleOptions& options);

}  // namespace tessera
