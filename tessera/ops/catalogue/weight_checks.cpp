// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstring>

#include "tessera/ops/catalogue/check.h"

namespace tessera::ops {

namespace {

// A weight in a file's format, and the numbers it stands for.
struct FileWeight {
  std::vector<std::byte> data;
  std::vector<double> values;
};

FileWeight make_weight(Random& random, WeightFormat format, std::int64_t rows, std::int64_t columns) {
  FileWeight w;
  auto put = [&](const auto& v) {
    std::byte bytes[sizeof v];
    std::memcpy(bytes, &v, sizeof v);
    w.data.insert(w.data.end(), bytes, bytes + sizeof v);
  };
  const std::int64_t count = rows * columns;
  if (!(format == WeightFormat::q8_0 || format == WeightFormat::q4_0)) {
    w.values = rounded(random.numbers(count), format == WeightFormat::f16 ? DType::f16 : DType::f32);
    for (double v : w.values)
      if (format == WeightFormat::f16)
        put(half(static_cast<float>(v)));
      else
        put(static_cast<float>(v));
    return w;
  }
  for (std::int64_t b = 0; b < count / 32; ++b) {
    const half d(static_cast<float>(random.uniform(0.001, 0.02)));
    put(d);
    const double scale = static_cast<float>(d);
    if (format == WeightFormat::q8_0) {
      for (int i = 0; i < 32; ++i) {
        const auto q = static_cast<std::int8_t>(random.integer(-128, 127));
        put(q);
        w.values.push_back(q * scale);
      }
    } else {
      std::uint8_t q[16];
      for (std::uint8_t& v : q) v = static_cast<std::uint8_t>(random.integer(0, 255)), put(v);
      for (std::uint8_t v : q) w.values.push_back(((v & 15) - 8) * scale);
      for (std::uint8_t v : q) w.values.push_back(((v >> 4) - 8) * scale);
    }
  }
  return w;
}

// `exact`: every block of 32 activations holds +-127 units and whole numbers of them, so that 8 bits lose nothing.
double check_linear(WeightFormat format, std::int64_t rows, std::int64_t columns, Shape lead, bool exact, Device device,
                    std::uint64_t seed) {
  Random random(seed);
  const FileWeight w = make_weight(random, format, rows, columns);
  const Weight weight = Weight::pack(format, w.data, rows, columns, device, "check");
  const std::int64_t tokens = element_count(lead);
  Shape shape = lead;
  shape.push_back(columns);
  std::vector<double> x =
      exact ? random.integers(tokens * columns, -127, 127) : rounded(random.numbers(tokens * columns), DType::f32);
  if (exact)
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = (i % 32 == 5 ? (x[i] < 0 ? -127 : 127) : x[i]) / 64;
  const bool quantised = format == WeightFormat::q8_0 || format == WeightFormat::q4_0;
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
        sum += p, size += std::abs(p);
        variance += weight_value * weight_value * step * step / 12;  // of a rounding error anywhere within the step
      }
      wanted.push_back(sum);
      // The 8-bit weights are summed around 128, so their sizes count, not only their products.
      const double walk =
          (size + (quantised ? std::abs(sum) : 0)) * 0x1p-24 * (6 + 2 * std::sqrt(static_cast<double>(columns)));
      allowed.push_back(walk + (exact ? 0 : 6 * std::sqrt(variance)) + 1e-30);
    }
  const Array input = array_of(x, shape, DType::f32, device);
  return worst(poisoned(device, wanted.size() * 4, [&] { return linear(input, weight); }), wanted, allowed);
}

double check_rows(WeightFormat format, std::int64_t rows, std::int64_t columns, std::int64_t count, DType ids_dtype,
                  Device device, std::uint64_t seed) {
  Random random(seed);
  const FileWeight w = make_weight(random, format, rows, columns);
  const Weight weight = Weight::pack(format, w.data, rows, columns, device);
  const auto c = static_cast<std::size_t>(columns);
  // All of it, then rows by number, two of them out of range.
  double most =
      worst(poisoned(device, w.values.size() * 4, [&] { return dequantize(weight); }), w.values, 2 * 0x1p-24, 0);
  std::vector<double> ids = random.integers(count, 0, std::min<std::int64_t>(rows - 1, 127)), wanted;
  if (count > 2) ids[1] = is_unsigned_int(ids_dtype) ? 255 : -1, ids[2] = 126;
  for (double id : ids)
    for (std::size_t i = 0; i < c; ++i)
      wanted.push_back(id < 0 || id >= static_cast<double>(rows) ? 0 : w.values[static_cast<std::size_t>(id) * c + i]);
  const Array which = array_of(ids, {count}, ids_dtype, device);
  return std::max(most, worst(poisoned(device, wanted.size() * 4, [&] { return embedding_rows(weight, which); }),
                              wanted, 2 * 0x1p-24, 0));
}

}  // namespace

void add_weight_checks(Checks& checks) {
  for (WeightFormat f : {WeightFormat::f32, WeightFormat::f16, WeightFormat::q8_0, WeightFormat::q4_0}) {
    const bool quantised = f == WeightFormat::q8_0 || f == WeightFormat::q4_0;
    const std::string name = "linear " + std::string(weight_format_name(f));
    auto add = [&](std::int64_t rows, std::int64_t columns, Shape lead, bool exact) {
      std::string shape = to_string(lead) + " x (" + std::to_string(rows) + ", " + std::to_string(columns) + ")" +
                          (exact ? "" : " rounded");
      checks.push_back({name, shape, [=](Device device, std::uint64_t seed) {
                          return check_linear(f, rows, columns, lead, exact, device, seed);
                        }});
    };
    for (std::int64_t tokens : {0, 1, 2, 3, 5, 8, 17}) add(37, 96, {tokens}, true);
    add(1, 32, {1}, true), add(16, 256, {}, true), add(33, 1024, {2, 3}, true), add(65537, 32, {1}, true),
        add(5, 32, {65537}, true);
    if (quantised)
      add(40, 512, {3}, false), add(40, 512, {1}, false);
    else
      for (std::int64_t columns : {1, 3, 7, 45})
        add(19, columns, {1}, true), add(19, columns, {4}, true), add(19, columns, {9}, true);
    for (DType t : {DType::i32, DType::i64, DType::u8, DType::i8, DType::u32, DType::u64}) {
      const std::int64_t columns = quantised ? 64 : 11;
      checks.push_back(
          {"embedding_rows " + std::string(weight_format_name(f)),
           "5 of (20, " + std::to_string(columns) + ") by " + std::string(dtype_name(t)),
           [=](Device device, std::uint64_t seed) { return check_rows(f, 20, columns, 5, t, device, seed); }});
    }
    checks.push_back(
        {"embedding_rows " + std::string(weight_format_name(f)), "65537 of (130, 32)",
         [=](Device device, std::uint64_t seed) { return check_rows(f, 130, 32, 65537, DType::i32, device, seed); }});
    checks.push_back(
        {"embedding_rows " + std::string(weight_format_name(f)), "0 of (3, 32)",
         [=](Device device, std::uint64_t seed) { return check_rows(f, 3, 32, 0, DType::i32, device, seed); }});
  }
}

}  // namespace tessera::ops
