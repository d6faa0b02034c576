// SPDX-License-Identifier: Apache-2.0
// Philox 4x32-10 in kernels; base/philox.h is the same function on the host. Internal to the library.
#pragma once

#include <utility>

#include "tessera/device/device.h"
#include "tessera/ir/value.h"

namespace tessera::detail {

/// Four random 32-bit words.
struct PhiloxWords {
  ir::Value w[4];
};

/// True if a kernel for this device computes the products of Philox with 64 bits: one instruction instead of two on
/// GPUs, but more on CPUs.
inline bool has_wide_products(Device device) { return device_info(device).kind != DeviceKind::cpu; }

/// Returns the words at `place` (u64) of a stream (u64) of a seed. `wide` is has_wide_products of the device.
inline PhiloxWords philox_words(ir::Value place, ir::Value stream, ir::Value key_low, ir::Value key_high, bool wide) {
  using ir::Value;
  const auto u32 = [](std::uint32_t v) { return ir::Operand(static_cast<std::int64_t>(v)).as(DType::u32); };
  const auto low = [](Value v) { return ir::cast(DType::u32, v); };
  PhiloxWords c{{low(place), low(place >> 32), low(stream), low(stream >> 32)}};
  const Value m0 = u32(0xD2511F53u), m1 = u32(0xCD9E8D57u);
  const auto multiply = [&](Value a, Value b) -> std::pair<Value, Value> {
    if (!wide) return {ir::mul_hi(a, b), a * b};
    const Value product = ir::cast(DType::u64, a) * ir::cast(DType::u64, b);
    return {low(product >> 32), low(product)};
  };
  for (int round = 0; round < 10; ++round) {
    const auto [high0, low0] = multiply(m0, c.w[0]);
    const auto [high1, low1] = multiply(m1, c.w[2]);
    c = {{high1 ^ c.w[1] ^ key_low, low1, high0 ^ c.w[3] ^ key_high, low0}};
    key_low = key_low + u32(0x9E3779B9u);
    key_high = key_high + u32(0xBB67AE85u);
  }
  return c;
}

/// Maps a word to [0, 1). With 24 bits, every multiple of 2^-24 is exactly representable and equally likely.
inline ir::Value unit_float(ir::Value word) { return ir::cast(DType::f32, word >> 8) * 0x1p-24f; }

}  // namespace tessera::detail
