// SPDX-License-Identifier: Apache-2.0
// Compares products of arrays with sums in double. Used by tests of the libraries that compute products.
#pragma once

#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "tessera/array/array.h"
#include "tessera/ops/product.h"

namespace tessera::test {

inline Array random_array(std::mt19937_64& source, Shape shape, DType dtype, Device on) {
  std::uniform_real_distribution<float> values(-1, 1);
  std::vector<float> data(static_cast<std::size_t>(element_count(shape)));
  for (float& v : data) v = values(source);
  return Array::from(data, shape, on).astype(dtype);
}
/// Swaps the last two dimensions.
inline Array turned(const Array& x) {
  std::vector<int> axes(static_cast<std::size_t>(x.rank()));
  for (std::size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<int>(i);
  std::swap(axes[axes.size() - 1], axes[axes.size() - 2]);
  return x.permute(axes);
}
inline double activated(Activation a, double x) {
  switch (a) {
    case Activation::relu: return x > 0 || std::isnan(x) ? x : 0;
    case Activation::silu: return x / (1 + std::exp(-x));
    case Activation::gelu: return x * 0.5 * (1 + std::erf(x * std::sqrt(0.5)));
    default: return x;
  }
}
/// Describes the first element that differs from the product of a (b, m, k) and b (b, k, n), and the shapes of the
/// views. Returns an empty string if there is none.
inline std::string compare_product(const Array& got, const Array& a, const Array& b, const Epilogue& e = {}) {
  const std::int64_t m = a.shape(-2), k = a.shape(-1), n = b.shape(-1), batch = got.size() / (m * n);
  const auto flat = [](const Array& x) { return x.astype(DType::f32).to_vector<float>(); };
  Shape whole_a(got.shape().begin(), got.shape().end() - 2), whole_b = whole_a;
  whole_a.insert(whole_a.end(), {m, k}), whole_b.insert(whole_b.end(), {k, n});
  const auto x = flat(a.broadcast_to(whole_a)), y = flat(b.broadcast_to(whole_b)), z = flat(got);
  const std::vector<float> bias = e.bias ? flat(*e.bias) : std::vector<float>(static_cast<std::size_t>(n), 0.0f);
  const double unit = got.dtype() == DType::f32 ? 1e-6 : got.dtype() == DType::f16 ? 1e-3 : 8e-3;
  for (std::int64_t i = 0; i < batch * m; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0, size = 1;
      for (std::int64_t l = 0; l < k; ++l) {
        const double term = static_cast<double>(x[static_cast<std::size_t>(i * k + l)]) *
                            static_cast<double>(y[static_cast<std::size_t>(i / m * k * n + l * n + j)]);
        sum += term, size += std::abs(term);
      }
      const double want = activated(e.activation, sum + static_cast<double>(bias[static_cast<std::size_t>(j)]));
      const double is = static_cast<double>(z[static_cast<std::size_t>(i * n + j)]);
      const double allowed = unit * (std::abs(want) + 1) + 1e-6 * size;
      if (std::isnan(want) ? !std::isnan(is) : !(std::abs(is - want) <= allowed))
        return " wrong at " + std::to_string(i) + ", " + std::to_string(j) + ": " + std::to_string(is) + ", not " +
               std::to_string(want);
    }
  return "";
}

/// Views in all forms that the operands of a product can have.
struct ProductCase {
  const char* name;
  Array a, b;
};
inline std::vector<ProductCase> product_cases(const std::function<Array(Shape)>& make) {
  const Array wide = make({40, 200}), tall = make({200, 50});
  return {
      {"plain", make({17, 65}), make({65, 31})},
      {"a transposed", turned(make({65, 17})), make({65, 31})},
      {"b transposed", make({17, 65}), turned(make({31, 65}))},
      {"both transposed", turned(make({65, 17})), turned(make({31, 65}))},
      {"rows with gaps, from the middle", wide.slice(1, 3, 68), tall.slice(0, 5, 70).slice(1, 7, 30)},
      {"gaps and transposed", wide.slice(1, 3, 68), turned(make({31, 90}).slice(1, 9, 74))},
      {"a batch", make({3, 9, 20}), make({3, 20, 8})},
      {"a batch of one b", make({3, 9, 20}), make({20, 8})},
      {"a batch of one a", make({9, 20}), make({3, 20, 8})},
      {"a batch transposed", turned(make({3, 20, 9})), turned(make({3, 8, 20}))},
      {"heads between rows", make({9, 3, 20}).permute({1, 0, 2}), make({3, 20, 8})},
      {"one row", make({1, 300}), make({300, 40})},
      {"one row of a batch", make({3, 1, 20}), make({20, 8})},
      {"one term", make({9, 1}), make({1, 8})},
      {"small", make({2, 3}), make({3, 2})},
  };
}

}  // namespace tessera::test
