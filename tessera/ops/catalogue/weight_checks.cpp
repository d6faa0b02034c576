// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstring>

#include "tessera/ops/catalogue/check.h"
#include "tessera/ops/linear_input.h"
#include "tessera/ops/sparse_row.h"
#include "tessera/ops/weight_blocks.h"
#include "tessera/ops/weight_formats.h"

namespace tessera::ops {

namespace {

// A weight in the format of a file, and its values.
struct FileWeight {
  std::vector<std::byte> data;
  std::vector<double> values;
  // sums of the magnitudes of the terms; in formats with a minimum, the terms may nearly cancel
  std::vector<double> sizes;
};

FileWeight make_weight(Random& random, const WeightLayout& f, std::int64_t rows, std::int64_t columns) {
  FileWeight w;
  const std::int64_t count = rows * columns;
  const auto as_doubles = [&](const std::vector<std::byte>& data) {
    const std::vector<float> values = dequantize(f.format, data);
    return std::vector<double>(values.begin(), values.end());
  };
  const auto put = [&](std::size_t at, const auto& v) { std::memcpy(w.data.data() + at, &v, sizeof v); };
  w.data.resize(static_cast<std::size_t>(count) / f.columns * f.bytes);
  if (!f.quantised()) {
    const std::vector<double> numbers = random.numbers(count);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const auto v = static_cast<float>(numbers[i]);
      if (f.element == DType::f16)
        put(i * f.bytes, half(v));
      else if (f.element == DType::bf16)
        put(i * f.bytes, bfloat16(v));
      else
        put(i * f.bytes, v);
    }
    w.values = w.sizes = as_doubles(w.data);
    for (double& v : w.sizes) v = std::abs(v);
    return w;
  }
  // Random bits are valid quantised numbers, but scales and minimums need a suitable magnitude.
  for (std::size_t i = 0; i < w.data.size(); i += 8) {
    const std::uint64_t bits = random.bits();
    std::memcpy(w.data.data() + i, &bits, std::min<std::size_t>(8, w.data.size() - i));
  }
  const double most = (f.codes != Codes::none || f.bits == 8 ? 0.02 : 0.2) / (f.factor == 0 ? 1 : 64);
  const auto size = [&](std::int64_t sign) {
    return half(static_cast<float>(random.uniform(most / 20, most) * (sign != 0 ? -1 : 1)));
  };
  for (std::size_t b = 0; b < w.data.size(); b += f.bytes) {
    if (f.scale == DType::bf16)
      put(b, static_cast<std::uint8_t>(random.integer(118, 122)));  // 2^-10 to 2^-6
    else
      put(b + f.scale_at, size(random.integer(0, 1)));
    if (f.minimum) put(b + f.scale_at + 2, size(random.integer(0, 1)));
  }
  w.values = as_doubles(w.data);
  std::vector<std::byte> without = w.data;
  if (f.minimum)
    for (std::size_t b = f.scale_at + 2; b < without.size(); b += f.bytes) without[b] = without[b + 1] = std::byte(0);
  w.sizes = as_doubles(without);
  for (std::size_t i = 0; i < w.sizes.size(); ++i)
    w.sizes[i] = std::abs(w.sizes[i]) + std::abs(w.values[i] - w.sizes[i]);
  return w;
}

// If `exact`, every block of 32 activations contains +-127 and only integers (times 1/64), so that rounding to 8 bits
// is exact.
double check_linear(const WeightLayout& f, std::int64_t rows, std::int64_t columns, Shape lead, bool exact,
                    Device device, std::uint64_t seed) {
  Random random(seed);
  const FileWeight w = make_weight(random, f, rows, columns);
  const Weight weight = Weight::pack(f.format, w.data, rows, columns, device, "check");
  const std::int64_t tokens = element_count(lead);
  Shape shape = lead;
  shape.push_back(columns);
  std::vector<double> x =
      exact ? random.integers(tokens * columns, -127, 127) : rounded(random.numbers(tokens * columns), DType::f32);
  if (exact)
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = (i % 32 == 5 ? (x[i] < 0 ? -127 : 127) : x[i]) / 64;
  const bool library = multiplied_by_library(weight, tokens), quantised = f.quantised() && !library;
  // The library rounds both factors to 11 bits, or activations to 8 bits for bf16.
  const double rounding = !library ? 0 : f.format == WeightFormat::bf16 ? 0x1p-9 : 0x1p-10;
  std::vector<double> wanted, allowed;
  for (std::int64_t t = 0; t < tokens; ++t)
    for (std::int64_t r = 0; r < rows; ++r) {
      double sum = 0, size = 0, variance = 0, step = 0;
      for (std::int64_t c = 0; c < columns; ++c) {
        const auto at = static_cast<std::size_t>(t * columns + c);
        if (quantised && c % 32 == 0) {
          step = 0;
          for (std::size_t i = 0; i < 32; ++i) step = std::max(step, std::abs(x[at + i]) / 127);
        }
        const double weight_value = w.values[static_cast<std::size_t>(r * columns + c)], p = x[at] * weight_value;
        sum += p, size += std::abs(x[at]) * w.sizes[static_cast<std::size_t>(r * columns + c)];
        // of an error that is uniformly distributed within the step
        variance += weight_value * weight_value * step * step / 12;
      }
      wanted.push_back(sum);
      // 8-bit weights are offset by 128, so their magnitudes contribute to the error in addition to the products.
      const double walk =
          (size + (quantised ? std::abs(sum) : 0)) * 0x1p-24 * (6 + 2 * std::sqrt(static_cast<double>(columns)));
      allowed.push_back(walk + rounding * size + (exact ? 0 : 6 * std::sqrt(variance)) + 1e-30);
    }
  const Array input = array_of(x, shape, DType::f32, device);
  return worst(poisoned(device, wanted.size() * 4, [&] { return linear(input, weight); }), wanted, allowed);
}

double check_rows(const WeightLayout& f, std::int64_t rows, std::int64_t columns, std::int64_t count, DType ids_dtype,
                  Device device, std::uint64_t seed) {
  Random random(seed);
  const FileWeight w = make_weight(random, f, rows, columns);
  const Weight weight = Weight::pack(f.format, w.data, rows, columns, device);
  const auto c = static_cast<std::size_t>(columns);
  // Checks the whole weight first, then rows by id, with two ids out of range.
  double most = worst(poisoned(device, w.values.size() * 4, [&] { return dequantize(weight); }), w.values, 0, 0);
  std::vector<double> ids = random.integers(count, 0, std::min<std::int64_t>(rows - 1, 127)), wanted;
  if (count > 2) ids[1] = is_unsigned_int(ids_dtype) ? 255 : -1, ids[2] = 126;
  for (double id : ids)
    for (std::size_t i = 0; i < c; ++i)
      wanted.push_back(id < 0 || id >= static_cast<double>(rows) ? 0 : w.values[static_cast<std::size_t>(id) * c + i]);
  const Array which = array_of(ids, {count}, ids_dtype, device);
  return std::max(
      most, worst(poisoned(device, wanted.size() * 4, [&] { return embedding_rows(weight, which); }), wanted, 0, 0));
}

// `kept` is the fraction of nonzero inputs. If is_sparse_row_bit_exact is true, the result must be bit-identical to a
// product. On devices other than the CPU the operation must be rejected; the error is then 0.
double check_sparse_row(std::int64_t outputs, std::int64_t inputs, double kept, bool epilogue, Device device,
                        std::uint64_t seed) {
  Random random(seed);
  std::vector<double> x = rounded(random.numbers(inputs), DType::f32);
  for (double& v : x)
    if (random.uniform(0, 1) >= kept) v = random.integer(0, 1) != 0 ? -0.0 : 0.0;
  const std::vector<double> w = rounded(random.numbers(outputs * inputs), DType::f32),
                            bias = rounded(random.numbers(outputs), DType::f32);
  const Array weight = array_of(w, {outputs, inputs}, DType::f32, device);
  if (!is_built_in(device.backend)) {
    try {
      SparseRowWeight{weight};
    } catch (const DeviceError&) {
      return 0;
    }
    return 1e30;
  }
  const SparseRowWeight by_input(weight);
  std::vector<double> wanted, allowed;
  for (std::int64_t r = 0; r < outputs; ++r) {
    double sum = epilogue ? bias[static_cast<std::size_t>(r)] : 0, size = std::abs(sum);
    for (std::int64_t c = 0; c < inputs; ++c) {
      const double p = x[static_cast<std::size_t>(c)] * w[static_cast<std::size_t>(r * inputs + c)];
      sum += p, size += std::abs(p);
    }
    wanted.push_back(epilogue ? std::max(sum, 0.0) : sum);
    allowed.push_back(size * 0x1p-24 * (6 + 2 * std::sqrt(static_cast<double>(inputs))) + 1e-30);
  }
  Epilogue ends;
  if (epilogue) ends = {.bias = array_of(bias, {outputs}, DType::f32, device), .activation = Activation::relu};
  const Array input = array_of(x, {inputs}, DType::f32, device);
  const auto product = [&] { return sparse_row_product(input, by_input, ends); };
  if (is_sparse_row_bit_exact(device, outputs, inputs) &&
      product().to_vector<float>() != matmul(input.reshape({1, inputs}), weight.transpose(), ends).to_vector<float>())
    return 1e30;
  return worst(poisoned(device, wanted.size() * 4, product), wanted, allowed);
}

}  // namespace

void add_weight_checks(Checks& checks) {
  const auto add_sparse = [&](std::int64_t outputs, std::int64_t inputs, double kept, bool epilogue) {
    checks.push_back({"sparse_row",
                      "(" + std::to_string(outputs) + ", " + std::to_string(inputs) + ") x " +
                          std::to_string(static_cast<int>(kept * 100)) + " % of a vector" + (epilogue ? ", relu" : ""),
                      [=](Device device, std::uint64_t seed) {
                        return check_sparse_row(outputs, inputs, kept, epilogue, device, seed);
                      }});
  };
  for (const double kept : {0.0, 0.02, 0.5, 1.0}) add_sparse(300, 77, kept, kept == 0.5), add_sparse(1, 64, kept, true);
  add_sparse(16, 1, 1, false), add_sparse(33, 1025, 0.5, false), add_sparse(512, 512, 0.5, true);
  for (const WeightLayout& f : weight_layouts()) {
    const std::string name = "linear " + std::string(f.name), rows_name = "embedding_rows " + std::string(f.name);
    auto add = [&](std::int64_t rows, std::int64_t columns, Shape lead, bool exact) {
      std::string shape = to_string(lead) + " x (" + std::to_string(rows) + ", " + std::to_string(columns) + ")" +
                          (exact ? "" : " rounded");
      checks.push_back({name, shape, [=, &f](Device device, std::uint64_t seed) {
                          return check_linear(f, rows, columns, lead, exact, device, seed);
                        }});
    };
    auto add_rows = [&](std::int64_t rows, std::int64_t columns, std::int64_t count, DType ids) {
      const std::string shape = std::to_string(count) + " of (" + std::to_string(rows) + ", " +
                                std::to_string(columns) + ") by " + std::string(dtype_name(ids));
      checks.push_back({rows_name, shape, [=, &f](Device device, std::uint64_t seed) {
                          return check_rows(f, rows, columns, count, ids, device, seed);
                        }});
    };
    const std::int64_t unit = std::max<std::int64_t>(32, f.columns);
    for (std::int64_t tokens : {0, 1, 2, 3, 8, 17, 70}) add(37, 3 * unit, {tokens}, true);
    add(1, unit, {1}, true), add(16, 256, {}, true), add(33, 1024, {2, 3}, true);
    if (unit == 32) add(65537, 32, {1}, true), add(5, 32, {65537}, true);
    if (f.quantised())
      add(40, 512, {3}, false), add(40, 512, {1}, false);
    else
      for (std::int64_t columns : {1, 3, 7, 45})
        add(19, columns, {1}, true), add(19, columns, {4}, true), add(19, columns, {9}, true);
    for (DType t : {DType::i32, DType::i64, DType::u8, DType::i8, DType::u32, DType::u64})
      add_rows(20, f.quantised() ? 2 * unit : 11, 5, t);
    add_rows(130, unit, unit == 32 ? 65537 : 777, DType::i32), add_rows(3, unit, 0, DType::i32);
  }
}

}  // namespace tessera::ops
