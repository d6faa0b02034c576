// SPDX-License-Identifier: Apache-2.0
#include "tests/drivers/vendors/blas.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>

#include "tessera/base/half.h"

namespace tessera::fake {

namespace {

double read(const void* data, std::int64_t at, Real real) {
  if (real == Real::f32) return static_cast<const float*>(data)[at];
  const std::uint16_t bits = static_cast<const std::uint16_t*>(data)[at];
  return real == Real::f16 ? half_value(bits) : bfloat16_value(bits);
}
void write(void* data, std::int64_t at, Real real, double value) {
  const auto single = static_cast<float>(value);
  if (real == Real::f32)
    static_cast<float*>(data)[at] = single;
  else
    static_cast<std::uint16_t*>(data)[at] = real == Real::f16 ? half_bits(single) : bfloat16_bits(single);
}

std::int64_t extent(const Product::Matrix& x, std::int64_t rows, std::int64_t columns, std::int64_t batch) {
  if (x.transposed) std::swap(rows, columns);
  return (columns - 1) * x.ld + rows + (batch - 1) * x.batch_stride;
}

void run(void* state, void* const* data) {
  const auto* const p = static_cast<const Product*>(state);
  const auto index = [](const Product::Matrix& x, std::int64_t i, std::int64_t j, std::int64_t batch) {
    return batch * x.batch_stride + (x.transposed ? i * x.ld + j : j * x.ld + i);
  };
  if (data[4] != nullptr) std::memset(data[4], 0xff, p->workspace_bytes);
  for (std::int64_t batch = 0; batch < p->batch; ++batch)
    for (std::int64_t j = 0; j < p->n; ++j)
      for (std::int64_t i = 0; i < p->m; ++i) {
        double sum = 0;
        for (std::int64_t l = 0; l < p->k; ++l)
          sum +=
              read(data[0], index(p->a, i, l, batch), p->a.real) * read(data[1], index(p->b, l, j, batch), p->b.real);
        if (data[3] != nullptr) sum += read(data[3], i, p->d.real);
        write(data[2], index(p->d, i, j, batch), p->d.real, sum);
      }
}

}  // namespace

std::string wrong_with(const Product& p) {
  const auto short_of = [](const Product::Matrix& x, std::int64_t rows, std::int64_t columns) {
    return x.ld < (x.transposed ? columns : rows);
  };
  if (p.m <= 0 || p.n <= 0 || p.k <= 0 || p.batch <= 0) return "an empty product";
  if (short_of(p.a, p.m, p.k) || short_of(p.b, p.k, p.n) || short_of(p.d, p.m, p.n))
    return "a leading dimension is less than the number of rows";
  if (p.d.transposed) return "the result is transposed";
  if (p.batch > 1 && p.d.batch_stride < p.d.ld * p.n) return "the results of a batch overlap";
  for (const Product::Matrix* x : {&p.a, &p.b, &p.d})
    if (reinterpret_cast<std::uintptr_t>(x->address) % bytes_of(x->real) != 0) return "an operand is not aligned";
  return "";
}

int submit(const PairedDriver& driver, void* stream, const Product& p) {
  const auto touch = [&](const Product::Matrix& x, std::int64_t rows, std::int64_t columns, int writes) {
    return OutsideTouch{reinterpret_cast<std::uint64_t>(x.address),
                        static_cast<std::uint64_t>(extent(x, rows, columns, p.batch)) * bytes_of(x.real), writes};
  };
  const OutsideTouch touches[] = {
      touch(p.a, p.m, p.k, 0),
      touch(p.b, p.k, p.n, 0),
      touch(p.d, p.m, p.n, 1),
      {reinterpret_cast<std::uint64_t>(p.bias),
       p.bias != nullptr ? static_cast<std::uint64_t>(p.m) * bytes_of(p.d.real) : 0, 0},
      {reinterpret_cast<std::uint64_t>(p.workspace), p.workspace != nullptr ? p.workspace_bytes : 0, 1}};
  // A graph can repeat the product until the program ends, so it is never freed.
  static std::mutex lock;
  static auto& all = *new std::deque<Product>;
  Product* state = nullptr;
  {
    const std::lock_guard hold(lock);
    state = &all.emplace_back(p);
  }
  return driver.submit(stream, "a product", touches, 5, run, state);
}

}  // namespace tessera::fake
