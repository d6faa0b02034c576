// SPDX-License-Identifier: Apache-2.0
// Converts numbers to the formats of weights, for `quantize` of weight_blocks.h.
#include "tessera/ops/block_encoder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "tessera/base/error.h"
#include "tessera/executor/executor.h"
#include "tessera/ops/weight_blocks.h"
#include "tessera/ops/weight_formats.h"

namespace tessera {
namespace {

using ops::put_half;

template <class Number>
void put_number(const float* x, std::byte* b) {
  const auto v = static_cast<Number>(*x);
  std::memcpy(b, &v, sizeof v);
}
void put_q8_0(const float* x, std::byte* b) {
  const BlockQ8_0 block = quantize_q8_0(std::span<const float, 32>(x, 32));
  std::memcpy(b, &block, sizeof block);
}
void put_q4_0(const float* x, std::byte* b) {
  const BlockQ4_0 block = quantize_q4_0(std::span<const float, 32>(x, 32));
  std::memcpy(b, &block, sizeof block);
}

/// Writes 32 integers of 4 bits at `low`, and their fifth bits at `high` if it is not null.
void put_integers(const int (&q)[32], std::byte* low, std::byte* high) {
  for (std::size_t i = 0; i < 16; ++i) low[i] = static_cast<std::byte>((q[i] & 15) | (q[i + 16] & 15) << 4);
  if (high == nullptr) return;
  std::fill_n(high, 4, std::byte{0});
  for (std::size_t i = 0; i < 32; ++i) high[i / 8] |= static_cast<std::byte>(q[i] >> 4 << i % 8);
}

/// q4_1 and q5_1: from the least number to the largest one.
template <int most>
void put_range(const float* x, std::byte* b) {
  const auto [low, high] = std::minmax_element(x, x + 32);
  const float d = (*high - *low) / static_cast<float>(most), inverse = d != 0 ? 1.0f / d : 0.0f;
  put_half(b, d);
  put_half(b + 2, *low);
  int q[32];
  for (std::size_t i = 0; i < 32; ++i) q[i] = ops::truncated((x[i] - *low) * inverse + 0.5f, most);
  if constexpr (most == 15)
    put_integers(q, b + 4, nullptr);
  else
    put_integers(q, b + 8, b + 4);
}

/// The number of the largest magnitude becomes -16, like -8 in q4_0.
void put_q5_0(const float* x, std::byte* b) {
  const float extreme = *std::max_element(x, x + 32, [](float l, float r) { return std::fabs(l) < std::fabs(r); });
  const float d = extreme / -16.0f, inverse = d != 0 ? 1.0f / d : 0.0f;
  put_half(b, d);
  int q[32];
  for (std::size_t i = 0; i < 32; ++i) q[i] = ops::truncated(x[i] * inverse + 16.5f, 31);
  put_integers(q, b + 6, b + 2);
}

using Encode = void (*)(const float* numbers, std::byte* block);
Encode encoder_of(WeightFormat format) {
  switch (format) {
    case WeightFormat::f32: return put_number<float>;
    case WeightFormat::f16: return put_number<half>;
    case WeightFormat::bf16: return put_number<bfloat16>;
    case WeightFormat::q8_0: return put_q8_0;
    case WeightFormat::q4_0: return put_q4_0;
    case WeightFormat::q4_1: return put_range<15>;
    case WeightFormat::q5_0: return put_q5_0;
    case WeightFormat::q5_1: return put_range<31>;
    case WeightFormat::q2_K: return ops::put_q2_K;
    case WeightFormat::q3_K: return ops::put_q3_K;
    case WeightFormat::q4_K: return ops::put_q4_K;
    case WeightFormat::q5_K: return ops::put_q5_K;
    case WeightFormat::q6_K: return ops::put_q6_K;
    default: return nullptr;
  }
}

}  // namespace

bool can_quantize(WeightFormat format) { return encoder_of(format) != nullptr; }

std::string writable_formats_text() {
  std::vector<std::string_view> names;
  for (const ops::WeightLayout& layout : ops::weight_layouts())
    if (can_quantize(layout.format)) names.push_back(layout.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::vector<std::byte> quantize(WeightFormat format, std::span<const float> values) {
  const ops::WeightLayout& layout = ops::layout_of(format);
  const Encode encode = encoder_of(format);
  if (encode == nullptr)
    fail<ArgumentError>({.operation = "quantize",
                         .with = {{"format", std::string(layout.name)}},
                         .wrong = "numbers cannot be converted to this format; it can only be read from files",
                         .remedy = "Use one of " + writable_formats_text()});
  if (values.size() % layout.columns != 0)
    fail<ArgumentError>({.operation = "quantize",
                         .with = {{"format", std::string(layout.name)}, {"size", std::to_string(values.size())}},
                         .wrong = fmt::format("the size is not a multiple of the block size {}", layout.columns)});
  const std::size_t blocks = values.size() / layout.columns;
  std::vector<std::byte> out(blocks * layout.bytes);
  const auto encode_blocks = [&](std::uint64_t begin, std::uint64_t end) {
    for (std::uint64_t i = begin; i < end; ++i)
      encode(values.data() + i * layout.columns, out.data() + i * layout.bytes);
  };
  constexpr std::size_t grain = 16 * 1024;  // numbers; the slowest format takes about 2 ms
  if (values.size() <= grain)
    encode_blocks(0, blocks);
  else
    executor::Executor::instance().parallel_for(blocks, grain / layout.columns, encode_blocks);
  return out;
}

}  // namespace tessera
