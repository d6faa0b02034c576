// SPDX-License-Identifier: Apache-2.0
#include "tessera/nn/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "tessera/base/error.h"

namespace tessera {

namespace {

/// `shape` maps the fraction of the steps that remain (from 1 to 0) to a factor. The difference between `rate` and
/// `final` is multiplied by this factor.
Rate decaying(const char* name, double rate, const ScheduleOptions& o, double (*shape)(double left)) {
  if (o.steps <= o.warmup)
    fail<ArgumentError>({.operation = name,
                         .with = {{"steps", std::to_string(o.steps)}, {"warmup", std::to_string(o.warmup)}},
                         .wrong = "there are no steps after the warm-up",
                         .remedy = "Set .steps to the total number of steps"});
  return Rate([=](std::uint64_t step) {
    if (step < o.warmup) return rate * static_cast<double>(step + 1) / static_cast<double>(o.warmup);
    const double gone = static_cast<double>(step - o.warmup) / static_cast<double>(o.steps - o.warmup);
    return o.final + (rate - o.final) * shape(1 - std::min(1.0, gone));
  });
}

}  // namespace

Rate::Rate(double rate) : rate_([rate](std::uint64_t) { return rate; }) {}
Rate::Rate(Callback<double(std::uint64_t step)> rate) : rate_(std::move(rate)) {}

Rate constant_rate(double rate, const ScheduleOptions& o) {
  return Rate([=](std::uint64_t step) {
    return step < o.warmup ? rate * static_cast<double>(step + 1) / static_cast<double>(o.warmup) : rate;
  });
}
Rate linear_rate(double rate, const ScheduleOptions& o) {
  return decaying("linear_rate", rate, o, [](double left) { return left; });
}
Rate cosine_rate(double rate, const ScheduleOptions& o) {
  return decaying("cosine_rate", rate, o, [](double left) { return (1 - std::cos(std::numbers::pi * left)) / 2; });
}

}  // namespace tessera
