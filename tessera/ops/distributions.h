// SPDX-License-Identifier: Apache-2.0
// Random integers, permutations, choices and distributions; uniform and normal numbers are in array.h. As there,
// Philox 4x32-10 computes each element from the seed and the index of the element, so that the numbers do not depend on
// the device or on how an array is split. Integers are bit-identical on every device; floats can differ in the last
// digits, because devices compute log, cos and exp with different accuracy.
#pragma once

#include "tessera/array/array.h"

namespace tessera {

/// Where random numbers are created, and which part of a larger array they are.
struct RandomOptions {
  std::optional<Device> device = {};  ///< The device; by default current_device().
  /// The shape of the whole array. If it is set, the result is the part from position `starts` of the array that the
  /// function returns for this shape.
  std::optional<Shape> whole = {};
  Shape starts = {};  ///< The first index of the part along each axis of `whole`.
};

// All functions throw ArgumentError if a parameter is outside of its range, and ShapeError if a part is not inside the
// whole array.

/// Integers from `low` to high - 1 in `dtype`. Each number has the same probability within 2^-64 (high - low). Throws
/// ArgumentError unless low < high and the dtype is an integer dtype that can represent both low and high - 1.
Array random_integers(Shape shape, std::uint64_t seed, std::int64_t low, std::int64_t high, DType dtype = DType::i64,
                      const RandomOptions& options = {});
/// The numbers (i64) from 0 to count - 1 in random order. take(a, random_permutation(n, seed)) shuffles rows. Sorts
/// random 64-bit numbers.
Array random_permutation(std::int64_t count, std::uint64_t seed, std::optional<Device> device = {});
/// Positions (i64) that are drawn from 0 to count - 1 with these weights, one for each position, or with equal weights
/// if `weights` is empty. Without `replace`, no position is drawn twice (Efraimidis and Spirakis, "Weighted random
/// sampling with a reservoir", 2006). Throws ArgumentError unless the weights are finite, not negative and not all
/// zero, and if more positions are wanted than have a positive weight. A part (`whole`) requires `replace`.
Array random_choice(std::int64_t count, Shape shape, std::uint64_t seed, bool replace = true,
                    const std::vector<double>& weights = {}, const RandomOptions& options = {});

/// f32 numbers with the density exp(-x / scale) / scale for x >= 0.
Array random_exponential(Shape shape, std::uint64_t seed, double scale = 1, const RandomOptions& options = {});
/// f32 numbers with the density proportional to x^(alpha - 1) exp(-x / scale), by rejection (Marsaglia and Tsang, "A
/// simple method for generating gamma variables", 2000).
Array random_gamma(Shape shape, std::uint64_t seed, double alpha, double scale = 1, const RandomOptions& options = {});
/// f32 numbers in [0, 1] with the density proportional to x^(a - 1) (1 - x)^(b - 1), from two gamma variables.
Array random_beta(Shape shape, std::uint64_t seed, double a, double b, const RandomOptions& options = {});
/// The number (i64) of events in an interval in which `mean` events occur on average, 0 <= mean <= 1e10. Searches a
/// table of the cumulative probabilities, which the host computes: about 30 sqrt(mean) numbers.
Array random_poisson(Shape shape, std::uint64_t seed, double mean, const RandomOptions& options = {});
/// The number (i64) of successes in `trials` independent trials that succeed with this probability. Uses a table like
/// random_poisson. Throws ArgumentError if the variance is above 1e10.
Array random_binomial(Shape shape, std::uint64_t seed, std::int64_t trials, double probability,
                      const RandomOptions& options = {});
/// Vectors (..., d) of f32 numbers with the mean (d,) and the covariance matrix (d, d), where (...) is `shape`. Both
/// must be f32, and the vectors are on their device. Throws ArgumentError unless the matrix is positive definite, like
/// cholesky.
Array random_multivariate_normal(const Array& mean, const Array& covariance, Shape shape, std::uint64_t seed,
                                 const RandomOptions& options = {});

}  // namespace tessera
