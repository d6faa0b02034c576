// SPDX-License-Identifier: Apache-2.0
// Converts results of tasks to bytes and back, to send them to other ranks. Internal.
#pragma once

#include <cstring>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tessera/array/array.h"

namespace tessera::detail {

/// Appends values to a sequence of bytes.
class ByteWriter {
 public:
  std::vector<std::byte> bytes;
  void raw(const void* data, std::size_t size) {
    const auto* const from = static_cast<const std::byte*>(data);
    bytes.insert(bytes.end(), from, from + size);
  }
  void array(const Array& x);
};
/// Reads values in the order in which they were written.
class ByteReader {
 public:
  explicit ByteReader(const std::vector<std::byte>& bytes) : bytes_(bytes) {}
  void raw(void* data, std::size_t size) {
    std::memcpy(data, bytes_.data() + at_, size);
    at_ += size;
  }
  /// Creates the array on the current device.
  Array array();

 private:
  const std::vector<std::byte>& bytes_;
  std::size_t at_ = 0;
};

/// How values of type T are sent. The default is for types that cannot be sent.
template <class T>
struct RankValue {
  static constexpr bool sendable = std::is_arithmetic_v<T> || std::is_enum_v<T>;
  static void write(ByteWriter& to, const T& x) { to.raw(&x, sizeof x); }
  static T read(ByteReader& from) {
    T x{};
    from.raw(&x, sizeof x);
    return x;
  }
};
template <>
struct RankValue<Array> {
  static constexpr bool sendable = true;
  static void write(ByteWriter& to, const Array& x) { to.array(x); }
  static Array read(ByteReader& from) { return from.array(); }
};
template <>
struct RankValue<std::string> {
  static constexpr bool sendable = true;
  static void write(ByteWriter& to, const std::string& x) {
    RankValue<std::size_t>::write(to, x.size());
    to.raw(x.data(), x.size());
  }
  static std::string read(ByteReader& from) {
    std::string x(RankValue<std::size_t>::read(from), '\0');
    from.raw(x.data(), x.size());
    return x;
  }
};
template <class T>
struct RankValue<std::vector<T>> {
  static constexpr bool sendable = RankValue<T>::sendable;
  static void write(ByteWriter& to, const std::vector<T>& x) {
    RankValue<std::size_t>::write(to, x.size());
    for (const T& one : x) RankValue<T>::write(to, one);
  }
  static std::vector<T> read(ByteReader& from) {
    std::vector<T> x;
    for (std::size_t n = RankValue<std::size_t>::read(from); n > 0; --n) x.push_back(RankValue<T>::read(from));
    return x;
  }
};
template <class T>
struct RankValue<std::optional<T>> {
  static constexpr bool sendable = RankValue<T>::sendable;
  static void write(ByteWriter& to, const std::optional<T>& x) {
    RankValue<bool>::write(to, x.has_value());
    if (x) RankValue<T>::write(to, *x);
  }
  static std::optional<T> read(ByteReader& from) {
    if (!RankValue<bool>::read(from)) return {};
    return RankValue<T>::read(from);
  }
};
template <class... T>
struct RankValue<std::tuple<T...>> {
  static constexpr bool sendable = (RankValue<T>::sendable && ...);
  static void write(ByteWriter& to, const std::tuple<T...>& x) {
    std::apply([&](const T&... one) { (RankValue<T>::write(to, one), ...); }, x);
  }
  static std::tuple<T...> read(ByteReader& from) { return std::tuple<T...>{RankValue<T>::read(from)...}; }
};
template <class A, class B>
struct RankValue<std::pair<A, B>> {
  static constexpr bool sendable = RankValue<A>::sendable && RankValue<B>::sendable;
  static void write(ByteWriter& to, const std::pair<A, B>& x) {
    RankValue<A>::write(to, x.first), RankValue<B>::write(to, x.second);
  }
  static std::pair<A, B> read(ByteReader& from) { return {RankValue<A>::read(from), RankValue<B>::read(from)}; }
};

}  // namespace tessera::detail
