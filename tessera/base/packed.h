// SPDX-License-Identifier: Apache-2.0
// Numbers and texts as bytes, one after the other, for what is kept on disk: the reader knows what comes, and believes
// no length before it has seen that so much is there.
#pragma once

#include <concepts>
#include <cstring>
#include <string>
#include <string_view>

#include "tessera/base/error.h"

namespace tessera {

/// Puts values behind each other.
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

/// Takes them back in the same order, as the same types. FormatError where there is less than that.
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
  /// FormatError if anything is left.
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
    fail<FormatError>(
        {.operation = "packed bytes", .wrong = "what is there is longer or shorter than what it should be"});
  }
  std::string_view rest_;
};

}  // namespace tessera
