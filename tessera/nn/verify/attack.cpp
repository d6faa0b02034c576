// SPDX-License-Identifier: Apache-2.0
#include "tessera/nn/verify/attack.h"

#include <algorithm>
#include <cmath>

#include "tessera/array/functions.h"
#include "tessera/grad/grad.h"

namespace tessera::verification {

Array Runner::batch(const std::vector<float>& x) const {
  Shape shape = sample_;
  shape.insert(shape.begin(), static_cast<std::int64_t>(x.size()) / std::max<std::int64_t>(1, size_));
  return Array::from(x, shape, subject_.device);
}
std::vector<float> Runner::outputs(const std::vector<float>& x) const {
  const Array in = batch(x), y = subject_.run(in);
  if (y.rank() < 1 || y.shape(0) != in.shape(0))
    fail<ShapeError>({.operation = "run a model for proofs",
                      .with = {{"x", to_string(in.shape())}, {"model(x)", to_string(y.shape())}},
                      .wrong = "the model does not return one result for each sample of the batch"});
  return y.astype(DType::f32).to_vector<float>();
}
std::vector<float> Runner::gradients(const std::vector<float>& x, const std::vector<float>& weights) const {
  try {
    const Array slopes = grad([&](const Array& in) {
      const Array y = subject_.run(in);
      return sum(y.astype(DType::f32) * Array::from(weights, y.shape(), subject_.device));
    })(batch(x));
    return slopes.to_vector<float>();
  } catch (const ArgumentError&) {  // an operation has no gradient rule
    return {};
  }
}

void Attack::project(float* x) const {
  const std::size_t n = region_.lo.size();
  for (std::size_t i = 0; i < n; ++i) x[i] = std::clamp(std::isfinite(x[i]) ? x[i] : 0, region_.lo[i], region_.hi[i]);
  if (ball_ == nullptr) return;
  std::vector<float> near(n);
  for (std::size_t i = 0; i < n; ++i) near[i] = std::clamp(x[i], ball_->lo[i], ball_->hi[i]);
  const double away = distance(ball_->norm, x, near.data(), static_cast<std::int64_t>(n));
  if (away <= ball_->radius) return;
  const double factor = ball_->radius / away * (1 - 1e-6);
  for (std::size_t i = 0; i < n; ++i)
    x[i] = static_cast<float>(near[i] + (static_cast<double>(x[i]) - near[i]) * factor);
}

std::vector<float> Attack::random_points(std::int64_t count) {
  std::uniform_real_distribution<float> part(0, 1);
  const std::size_t n = region_.lo.size();
  std::vector<float> x(static_cast<std::size_t>(count) * n);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double lo = region_.lo[i % n], hi = region_.hi[i % n];
    x[i] = static_cast<float>(lo + part(random_) * (hi - lo));
  }
  for (std::size_t at = 0; at < x.size(); at += n) project(x.data() + at);
  return x;
}

std::vector<std::vector<float>> Attack::of_points(const std::vector<float>& x) {
  const std::vector<float> y = runner_.outputs(x);
  const auto n = region_.lo.size(), count = x.size() / n, outputs = y.size() / count;
  std::vector<std::pair<double, std::size_t>> broken;
  for (std::size_t s = 0; s < count; ++s) {
    const float* out = y.data() + s * outputs;
    double least = 1e300;
    bool breaks = !std::all_of(out, out + outputs, [](float v) { return std::isfinite(v); });
    for (const Goal& goal : goals_) {
      double sum = 0;
      for (const auto& [at, factor] : goal.terms) sum += factor * static_cast<double>(out[at]);
      breaks |= !goal.met(sum), least = std::min(least, goal.margin(sum));
    }
    if (breaks) broken.emplace_back(least, s);
    if (least < closest_margin_) closest_margin_ = least, closest_.assign(x.begin() + s * n, x.begin() + (s + 1) * n);
  }
  std::sort(broken.begin(), broken.end());
  std::vector<std::vector<float>> found;
  for (const auto& [margin, s] : broken) {
    if (found.size() == 8) break;
    found.emplace_back(x.begin() + s * n, x.begin() + (s + 1) * n);
  }
  return found;
}

std::vector<std::vector<float>> Attack::by_gradients(int steps) {
  const std::size_t n = region_.lo.size();
  const std::size_t each = std::clamp<std::size_t>(128 / std::max<std::size_t>(1, goals_.size()), 4, 64);
  const std::size_t starts = goals_.empty() ? 64 : std::min<std::size_t>(goals_.size(), 64) * each;
  std::vector<float> x = random_points(static_cast<std::int64_t>(starts));
  for (std::size_t i = 0; i < n; ++i)
    x[i] = static_cast<float>(region_.lo[i] + (static_cast<double>(region_.hi[i]) - region_.lo[i]) / 2);
  if (starts > 2)
    for (std::size_t i = 0; i < n; ++i) x[n + i] = region_.lo[i], x[2 * n + i] = region_.hi[i];
  for (std::size_t at = 0; at < 3 && at < starts; ++at) project(x.data() + at * n);
  auto found = of_points(x);
  if (!found.empty() || goals_.empty()) return found;
  const auto outputs = runner_.outputs({x.begin(), x.begin() + static_cast<std::ptrdiff_t>(n)}).size();
  std::vector<float> weights(starts * outputs, 0.0f);
  for (std::size_t s = 0; s < starts; ++s)
    for (const auto& [at, factor] : goals_[s % std::min<std::size_t>(goals_.size(), 64)].terms)
      weights[s * outputs + static_cast<std::size_t>(at)] = static_cast<float>(factor);
  for (int step = 0; step < steps; ++step) {
    const std::vector<float> slopes = runner_.gradients(x, weights);
    if (slopes.size() != x.size()) return {};
    const double far = 0.25 * (1 - static_cast<double>(step) / steps);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double width = static_cast<double>(region_.hi[i % n]) - region_.lo[i % n];
      const double sign = slopes[i] > 0 ? 1 : slopes[i] < 0 ? -1 : 0;
      x[i] = static_cast<float>(x[i] - sign * far * width);
    }
    for (std::size_t at = 0; at < x.size(); at += n) project(x.data() + at);
    found = of_points(x);
    if (!found.empty()) return found;
  }
  return {};
}

}  // namespace tessera::verification
