// SPDX-License-Identifier: Apache-2.0
// Internal to ops/catalogue/. Helpers for checks of operations: data from a seed, poisoned memory, host values, and
// comparison with an error bound.
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
/// The absolute rounding error of the dtype for subnormal numbers. Only the checks of f16 use subnormal numbers (below
/// 6.1e-5). For the other dtypes the result is smaller than any other error.
double half_step(DType dtype);
/// The relative error of the product of two elements of this dtype in products of matrices: nonzero if factors of f32 may
/// be rounded to tf32 on this device (TESSERA_TF32).
double product_rounding(Device device, DType dtype);
/// Creates an array from values that are already rounded to the dtype.
Array array_of(const std::vector<double>& values, Shape shape, DType dtype, Device device);
/// Returns the elements of an array in row-major order.
std::vector<double> values_of(const Array& a);

/// Fills memory of the device's pool with NaN bits, so that the next arrays of `bytes` bytes are allocated in poisoned
/// memory. Then calls `make` and returns the elements of its result.
std::vector<double> poisoned(Device device, std::uint64_t bytes, const std::function<Array()>& make);

/// Returns the largest error relative to the allowed error of each element. Returns infinity if the sizes differ, or if
/// only one of two elements is NaN.
double worst(const std::vector<double>& got, const std::vector<double>& wanted, const std::vector<double>& allowed);
/// The same, with one relative and one absolute bound for all elements.
double worst(const std::vector<double>& got, const std::vector<double>& wanted, double relative, double absolute);

using Checks = std::vector<CatalogueCheck>;
void add_array_checks(Checks& checks);
void add_reduction_checks(Checks& checks);
void add_product_checks(Checks& checks);
void add_weight_checks(Checks& checks);
void add_layer_checks(Checks& checks);
void add_transformer_checks(Checks& checks);
void add_convolution_checks(Checks& checks);
void add_linear_algebra_checks(Checks& checks);
void add_attention_checks(Checks& checks);
void add_top_k_checks(Checks& checks);

}  // namespace tessera::ops
