// SPDX-License-Identifier: Apache-2.0
// Learning-rate schedules.
#pragma once

#include <cstdint>

#include "tessera/base/callback.h"

namespace tessera {

/// A learning rate: a number, or a function of the number of steps made before (0 for the first).
class Rate {
 public:
  /// A constant rate.
  Rate(double rate);
  /// A rate that depends on the step, counted from 0.
  Rate(Callback<double(std::uint64_t step)> rate);
  /// The rate of a step.
  double at(std::uint64_t step) const { return rate_(step); }

 private:
  Callback<double(std::uint64_t)> rate_;
};

/// Options of the schedules.
struct ScheduleOptions {
  std::uint64_t steps = 0;   ///< step at which `final` is reached, counted from the first; constant afterwards
  std::uint64_t warmup = 0;  ///< linear warm-up over the first steps: (step + 1) / warmup of the rate
  double final = 0;          ///< the final rate
};
/// A constant rate, after the warm-up.
Rate constant_rate(double rate, const ScheduleOptions& options = {});
/// Decays linearly to `final`.
Rate linear_rate(double rate, const ScheduleOptions& options);
/// Half a cosine from `rate` to `final` (Loshchilov and Hutter, "SGDR", 2017, without restarts). Throws ArgumentError,
/// as linear_rate does, if `steps` does not exceed `warmup`.
Rate cosine_rate(double rate, const ScheduleOptions& options);

}  // namespace tessera
