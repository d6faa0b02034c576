// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/catalogue/check.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string_view>

#include "tessera/base/error.h"
#include "tessera/device/settings.h"
#include "tessera/ir/semantics.h"

namespace tessera {

namespace {

/// Many GPUs have no f64 (Intel Arc and Iris Xe). On these devices an f64 kernel must be rejected with this message,
/// and the check passes if it is rejected.
void expect_refusal_without_f64(CatalogueCheck& check) {
  if (check.shape.find("f64") == std::string::npos) return;
  check.run = [run = std::move(check.run)](Device device, std::uint64_t seed) {
    if (device_info(device).can.f64) return run(device, seed);
    try {
      return run(device, seed);
    } catch (const KernelError& e) {
      if (std::string_view(e.what()).find("this device has no f64") == std::string_view::npos) throw;
      return 0.0;
    }
  };
}

}  // namespace

std::vector<CatalogueCheck> check_catalogue() {
  std::vector<CatalogueCheck> checks;
  ops::add_array_checks(checks);
  ops::add_reduction_checks(checks);
  ops::add_product_checks(checks);
  ops::add_weight_checks(checks);
  ops::add_layer_checks(checks);
  ops::add_transformer_checks(checks);
  ops::add_convolution_checks(checks);
  ops::add_linear_algebra_checks(checks);
  ops::add_attention_checks(checks);
  ops::add_top_k_checks(checks);
  for (CatalogueCheck& check : checks) expect_refusal_without_f64(check);
  return checks;
}

namespace ops {

std::uint64_t Random::bits() {
  std::uint64_t z = state_ += 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}
double Random::uniform(double low, double high) {
  return low + (high - low) * static_cast<double>(bits() >> 11) * 0x1p-53;
}
std::int64_t Random::integer(std::int64_t low, std::int64_t high) {
  return low + static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(high - low + 1));
}
std::vector<double> Random::numbers(std::int64_t count, double low, double high) {
  std::vector<double> v(static_cast<std::size_t>(count));
  for (double& x : v) x = uniform(low, high);
  return v;
}
std::vector<double> Random::integers(std::int64_t count, std::int64_t low, std::int64_t high) {
  std::vector<double> v(static_cast<std::size_t>(count));
  for (double& x : v) x = static_cast<double>(integer(low, high));
  return v;
}

std::vector<double> rounded(std::vector<double> values, DType t) {
  for (double& v : values)
    v = ir::with_compute_type(t, [&](auto tag) {
      return static_cast<double>(ir::from_bits<decltype(tag)>(
          t, ir::to_bits(t, t == DType::f64 ? v : static_cast<double>(static_cast<float>(v)))));
    });
  return values;
}

double unit(DType t) {
  return t == DType::f16    ? 0x1p-11
         : t == DType::bf16 ? 0x1p-8
         : t == DType::f32  ? 0x1p-24
         : t == DType::f64  ? 0x1p-53
                            : 0;
}

double product_rounding(Device device, DType dtype) {
  return dtype == DType::f32 && settings().tf32 && !is_built_in(device.backend) ? 0x1p-10 : 0;
}

double half_step(DType t) { return t == DType::f16 ? 0x1p-25 : 1e-30; }

Array array_of(const std::vector<double>& values, Shape shape, DType t, Device device) {
  std::vector<std::byte> bytes(values.size() * dtype_size(t));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint64_t bits = ir::to_bits(t, values[i]);
    for (std::size_t b = 0; b < dtype_size(t); ++b)
      bytes[i * dtype_size(t) + b] = static_cast<std::byte>(bits >> (8 * b));
  }
  Array out = Array::empty(std::move(shape), t, device);
  if (!bytes.empty()) current_queue(device).upload(out.view_for_writing(), bytes.data());
  return out;
}

std::vector<double> values_of(const Array& a) {
  const DType t = a.dtype();
  const std::size_t size = dtype_size(t);
  std::vector<std::byte> bytes(static_cast<std::size_t>(a.size()) * size);
  if (!bytes.empty()) a.download(bytes.data());
  std::vector<double> out(static_cast<std::size_t>(a.size()));
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint64_t bits = 0;
    for (std::size_t b = 0; b < size; ++b) bits |= static_cast<std::uint64_t>(bytes[i * size + b]) << (8 * b);
    if (is_signed_int(t) && size < 8 && (bits >> (8 * size - 1))) bits |= ~std::uint64_t{0} << (8 * size);
    out[i] =
        ir::with_compute_type(t, [&](auto tag) { return static_cast<double>(ir::from_bits<decltype(tag)>(t, bits)); });
  }
  return out;
}

std::vector<double> poisoned(Device device, std::uint64_t bytes, const std::function<Array()>& make) {
  if (bytes) {
    // there are several, because the operation may also allocate buffers of this size
    std::vector<std::shared_ptr<Storage>> spoiled;
    for (int i = 0; i < 3; ++i) {
      spoiled.push_back(Storage::allocate(device, bytes, "poison"));
      current_queue(device).fill({spoiled.back(), 0, bytes, DType::u8}, 0xff);
    }
  }
  return values_of(make());
}

double worst(const std::vector<double>& got, const std::vector<double>& wanted, const std::vector<double>& allowed) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (got.size() != wanted.size() || got.size() != allowed.size()) return infinity;
  double most = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i] == wanted[i] || (std::isnan(got[i]) && std::isnan(wanted[i]))) continue;
    const double error = std::abs(got[i] - wanted[i]) / allowed[i];
    if (!(error < infinity)) return infinity;
    most = std::max(most, error);
  }
  return most;
}
double worst(const std::vector<double>& got, const std::vector<double>& wanted, double relative, double absolute) {
  std::vector<double> allowed(wanted.size());
  for (std::size_t i = 0; i < allowed.size(); ++i) allowed[i] = relative * std::abs(wanted[i]) + absolute;
  return worst(got, wanted, allowed);
}

}  // namespace ops
}  // namespace tessera
