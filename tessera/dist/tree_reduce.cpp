// SPDX-License-Identifier: Apache-2.0
#include "tessera/dist/tree_reduce.h"

#include <algorithm>
#include <memory>
#include <string>
#include <type_traits>

#include "tessera/base/error.h"

namespace tessera::dist {

namespace {

constexpr std::size_t block = 1024;  ///< elements of each input that are combined at a time, so that they stay in cache

template <class T>
using Wide = std::conditional_t<std::is_same_v<T, half> || std::is_same_v<T, bfloat16>, float, T>;

template <Reduce how, class W>
W combine(W a, W b) {
  if constexpr (how == Reduce::min || how == Reduce::max) {
    const bool first = how == Reduce::min ? a < b : a > b;
    if constexpr (std::is_floating_point_v<W>) return first || a != a ? a : b;  // a NaN is kept
    return first ? a : b;
  } else if constexpr (std::is_integral_v<W>) {
    using U = std::make_unsigned_t<W>;
    return static_cast<W>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
  } else {
    return a + b;
  }
}

/// Calls f(i) for i < n, in groups of a constant size, which compilers vectorise.
template <class F>
void for_each_index(std::size_t n, const F& f) {
  constexpr std::size_t group = 16;
  std::size_t i = 0;
  for (; i + group <= n; i += group)
    for (std::size_t j = 0; j < group; ++j) f(i + j);
  for (; i < n; ++i) f(i);
}

template <Reduce how, class T>
void reduce(std::span<const std::byte* const> inputs, std::byte* out, std::size_t count) {
  using W = Wide<T>;
  const std::size_t n = inputs.size();
  const auto memory = std::make_unique_for_overwrite<W[]>((n + 1) / 2 * block);
  const auto part = [&](std::size_t k) { return memory.get() + k / 2 * block; };
  for (std::size_t at = 0; at < count; at += block) {
    const std::size_t size = std::min(block, count - at);
    for (std::size_t k = 0; k < n; k += 2) {
      W* __restrict to = part(k);
      const T* const a = reinterpret_cast<const T*>(inputs[k]) + at;
      const T* const b = k + 1 < n ? reinterpret_cast<const T*>(inputs[k + 1]) + at : nullptr;
      if (b != nullptr)
        for_each_index(size, [=](std::size_t i) { to[i] = combine<how>(static_cast<W>(a[i]), static_cast<W>(b[i])); });
      else
        for_each_index(size, [=](std::size_t i) { to[i] = static_cast<W>(a[i]); });
    }
    for (std::size_t step = 2; step < n; step *= 2)
      for (std::size_t k = 0; k + step < n; k += 2 * step) {
        W* __restrict a = part(k);
        const W* __restrict b = part(k + step);
        for_each_index(size, [=](std::size_t i) { a[i] = combine<how>(a[i], b[i]); });
      }
    T* const to = reinterpret_cast<T*>(out) + at;
    const W* const from = part(0);
    if constexpr (how == Reduce::mean)
      for_each_index(size, [=](std::size_t i) { to[i] = static_cast<T>(from[i] / static_cast<W>(n)); });
    else
      for_each_index(size, [=](std::size_t i) { to[i] = static_cast<T>(from[i]); });
  }
}

template <Reduce how>
void dispatch(DType dtype, std::span<const std::byte* const> inputs, std::byte* out, std::size_t count) {
  const auto as = [&]<class T>(T) { reduce<how, T>(inputs, out, count); };
  switch (dtype) {
    case DType::boolean:
    case DType::u8: return as(std::uint8_t{});
    case DType::i8: return as(std::int8_t{});
    case DType::i16: return as(std::int16_t{});
    case DType::u16: return as(std::uint16_t{});
    case DType::i32: return as(std::int32_t{});
    case DType::u32: return as(std::uint32_t{});
    case DType::i64: return as(std::int64_t{});
    case DType::u64: return as(std::uint64_t{});
    case DType::f16: return as(half{});
    case DType::bf16: return as(bfloat16{});
    case DType::f32: return as(float{});
    case DType::f64: return as(double{});
    case DType::index: return;  // is never stored
  }
}

}  // namespace

void tree_reduce(Reduce how, DType dtype, std::span<const std::byte* const> inputs, std::byte* out, std::size_t count) {
  switch (how) {
    case Reduce::sum: return dispatch<Reduce::sum>(dtype, inputs, out, count);
    case Reduce::mean: return dispatch<Reduce::mean>(dtype, inputs, out, count);
    case Reduce::min: return dispatch<Reduce::min>(dtype, inputs, out, count);
    case Reduce::max: return dispatch<Reduce::max>(dtype, inputs, out, count);
  }
}

void check_reduce(const char* operation, Reduce how, DType dtype) {
  const bool valid =
      how == Reduce::min || how == Reduce::max || is_float(dtype) || (how == Reduce::sum && dtype != DType::boolean);
  if (!valid)
    fail<DtypeError>({.operation = operation,
                      .with = {{"reduce", std::string(to_string(how))}, {"dtype", std::string(dtype_name(dtype))}},
                      .wrong = how == Reduce::sum ? "bools cannot be added" : "a mean needs floating-point numbers",
                      .remedy = how == Reduce::sum ? "Use Reduce::max for \"or\", or convert to an integer dtype"
                                                   : "Use Reduce::sum, or convert to a floating-point dtype"});
}

}  // namespace tessera::dist
