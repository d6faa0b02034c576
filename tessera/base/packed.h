// SPDX-License-Identifier: Apache-2.0
// Serialises numbers and strings for files on disk. The reader must know the sequence of types. It checks every length
// against the number of remaining bytes.
#pragma once

#include <concepts>
#include <cstring>
#include <string>
#include <string_view>

#include "tessera/base/error.h"

namespace tessera {

/// Appends values to a byte string.
class Packer {
 public:
  template <class T>
    requires(std::integral<T> || std::floating_point<T>)
  Packer& operator<<(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Packer& operator<<(std::string_view text) {
    *this << std::uint64_t{text.size()};
    bytes_.append(text);
    return *this;
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

/// Reads values in the order and with the types in which they were written. Throws FormatError if there are too few
/// bytes.
class Unpacker {
 public:
  explicit Unpacker(std::string_view bytes) : rest_(bytes) {}
  template <class T>
    requires(std::integral<T> || std::floating_point<T>)
  T take() {
    T value;
    std::memcpy(&value, piece(sizeof value).data(), sizeof value);
    return value;
  }
  std::string_view text() { return piece(take<std::uint64_t>()); }
  std::string_view rest() const { return rest_; }
  /// Throws FormatError if unread bytes remain.
  void end() const {
    if (!rest_.empty()) refuse();
  }

 private:
  std::string_view piece(std::uint64_t bytes) {
    if (bytes > rest_.size()) refuse();
    const std::string_view taken = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return taken;
  }
  [[noreturn]] static void refuse() {
    fail<FormatError>({.operation = "packed bytes", .wrong = "the data is longer or shorter than expected"});
  }
  std::string_view rest_;
};

}  // namespace tessera
