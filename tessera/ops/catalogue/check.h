// SPDX-License-Identifier: Apache-2.0
// Internal to ops/catalogue/. Shared by the checks of operations: data from a seed, poisoned memory, host values, and
// comparison with a bound.
#pragma once

#include <functional>

#include "tessera/ops/catalogue.h"
#include "tessera/ops/product.h"
#include "tessera/ops/transformer.h"
#include "tessera/ops/weight.h"

namespace tessera::ops {

/// Random numbers from a seed (splitmix64), the same on all platforms.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15ull + 1) {}
  std::uint64_t bits();
  double uniform(double low, double high);
  std::int64_t integer(std::int64_t low, std::int64_t high);  ///< both included
  std::vector<double> numbers(std::int64_t count, double low = -1, double high = 1);
  std::vector<double> integers(std::int64_t count, std::int64_t low, std::int64_t high);

 private:
  std::uint64_t state_;
};

/// Rounds values to the dtype.
std::vector<double> rounded(std::vector<double> values, DType dtype);
/// The relative rounding error of the dtype for numbers that are not subnormal.
double unit(DType dtype);
/// The absolute rounding error of the dtype for subnormal numbers. Checks use subnormal numbers only of f16
/// (below 6.1e-5); for the other dtypes this is smaller than any error.
double half_step(DType dtype);
/// An array of values that were rounded by `rounded`.
Array array_of(const std::vector<double>& values, Shape shape, DType dtype, Device device);
/// The elements of an array, row-major.
std::vector<double> values_of(const Array& a);

/// Fills the memory that the device's pool will return for the next arrays of `bytes` bytes with NaN bits, calls
/// `make`, and returns the elements of its result.
std::vector<double> poisoned(Device device, std::uint64_t bytes, const std::function<Array()>& make);

/// The largest error relative to each element's allowed error; infinity if the sizes differ, or only one of two
/// elements is NaN.
double worst(const std::vector<double>& got, const std::vector<double>& wanted, const std::vector<double>& allowed);
/// Same, with one relative and absolute bound for all elements.
double worst(const std::vector<double>& got, const std::vector<double>& wanted, double relative, double absolute);

using Checks = std::vector<CatalogueCheck>;
void add_array_checks(Checks& checks);
void add_reduction_checks(Checks& checks);
void add_product_checks(Checks& checks);
void add_weight_checks(Checks& checks);
void add_transformer_checks(Checks& checks);
void add_convolution_checks(Checks& checks);
void add_linear_algebra_checks(Checks& checks);
void add_attention_checks(Checks& checks);

}  // namespace tessera::ops
