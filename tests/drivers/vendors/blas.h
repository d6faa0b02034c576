// SPDX-License-Identifier: Apache-2.0
// Shared code of the fake matrix product libraries: a product that is computed in double on the host when the stream
// reaches it.
#pragma once

#include <cstdint>
#include <string>

#include "tests/drivers/faults.h"
#include "tests/drivers/vendors/paired_driver.h"

namespace tessera::fake {

enum class Real : std::uint8_t { f32, f16, bf16 };
constexpr std::uint64_t bytes_of(Real r) { return r == Real::f32 ? 4 : 2; }

/// The product d = a b. Matrices are column-major: element (i, j) is at j * ld + i, or at i * ld + j if the operand is
/// transposed.
struct Product {
  struct Matrix {
    const void* address = nullptr;
    Real real = Real::f32;
    bool transposed = false;
    std::int64_t ld = 0, batch_stride = 0;
  };
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  Matrix a, b, d;
  const void* bias = nullptr;  ///< m elements with the type of d, added to each column
  void* workspace = nullptr;   ///< overwritten
  std::uint64_t workspace_bytes = 0;
};
/// Checks the rules that all these libraries have in common. Returns an error message, or an empty string.
std::string wrong_with(const Product& product);
int submit(const PairedDriver& driver, void* stream, const Product& product);

}  // namespace tessera::fake
