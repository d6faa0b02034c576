// SPDX-License-Identifier: Apache-2.0
// What checks of operations share: data from a seed, poisoned memory, host values, and the comparison with its bound.
// Inside ops/catalogue/ only.
#pragma once

#include "tessera/ops/catalogue.h"
#include "tessera/ops/product.h"
#include "tessera/ops/transformer.h"
#include "tessera/ops/weight.h"

namespace tessera::ops {

/// Numbers from a seed (splitmix64), the same everywhere.
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

/// Values as this dtype holds them.
std::vector<double> rounded(std::vector<double> values, DType dtype);
/// The largest relative error of rounding to this dtype, of numbers that are not subnormal in it.
double unit(DType dtype);
/// The largest absolute error of rounding subnormal numbers to this dtype. f16 has them below 6.1e-5, where checks come
/// by; for the others a number that is smaller than any error.
double half_step(DType dtype);
/// An array of values that `rounded` gave.
Array array_of(const std::vector<double>& values, Shape shape, DType dtype, Device device);
/// The elements of an array, row-major.
std::vector<double> values_of(const Array& a);

/// Leaves memory full of NaN bits where the device's pool will take the next arrays of this many bytes from, calls
/// `make`, and gives the elements of what it made.
std::vector<double> poisoned(Device device, std::uint64_t bytes, const std::function<Array()>& make);

/// The largest error relative to what is allowed of each element; infinity if the counts differ, or one of two is NaN.
double worst(const std::vector<double>& got, const std::vector<double>& wanted, const std::vector<double>& allowed);
/// With the same relative and absolute bound for all.
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
