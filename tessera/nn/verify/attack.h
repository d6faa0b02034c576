// SPDX-License-Identifier: Apache-2.0
// Searches for counterexamples on the device, with random points of boxes and balls and with projected gradient
// descent. Internal.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "tessera/nn/verify/goals.h"
#include "tessera/nn/verify/prove.h"

namespace tessera::verification {

/// Runs a model on samples that are stored contiguously in host memory.
class Runner {
 public:
  Runner(const Subject& subject, Shape sample)
      : subject_(subject), sample_(std::move(sample)), size_(element_count(sample_)) {}
  std::int64_t size() const { return size_; }
  const Shape& sample() const { return sample_; }
  Array run(const Array& x) const { return subject_.run(x); }
  Array batch(const std::vector<float>& x) const;
  /// Returns the outputs of all samples. Each sample has the same number of outputs. Throws ShapeError if the model's
  /// result is not (batch, ...).
  std::vector<float> outputs(const std::vector<float>& x) const;
  /// Returns the gradient of the sum of all outputs times `weights`, with respect to the samples. Returns an empty
  /// vector if the model has no gradient.
  std::vector<float> gradients(const std::vector<float>& x, const std::vector<float>& weights) const;

 private:
  const Subject& subject_;
  Shape sample_;
  std::int64_t size_;
};

/// Tries inputs from the region. If there is a ball, inputs must also be in the ball.
class Attack {
 public:
  Attack(const Runner& runner, const std::vector<Goal>& goals, Region region, const Ball* ball, std::uint64_t seed)
      : runner_(runner), goals_(goals), region_(std::move(region)), ball_(ball), random_(seed) {}
  /// Runs projected gradient descent (Madry et al., "Towards Deep Learning Models Resistant to Adversarial Attacks",
  /// 2018) for each goal. Starts at the centre, at corners and at random points. Returns points that seem to violate a
  /// goal, the worst one first.
  std::vector<std::vector<float>> by_gradients(int steps);
  /// Like by_gradients, but only evaluates the given points.
  std::vector<std::vector<float>> of_points(const std::vector<float>& x);
  std::vector<float> random_points(std::int64_t count);
  /// Projects a point into the region and the ball.
  void project(float* x) const;
  /// Returns the tried point with the smallest margin over all goals.
  const std::vector<float>& closest() const { return closest_; }
  double closest_margin() const { return closest_margin_; }

 private:
  const Runner& runner_;
  const std::vector<Goal>& goals_;
  Region region_;
  const Ball* ball_;
  std::mt19937_64 random_;
  std::vector<float> closest_;
  double closest_margin_ = 1e300;
};

}  // namespace tessera::verification
