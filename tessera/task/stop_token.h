// SPDX-License-Identifier: Apache-2.0
// std::stop_token and durations in the interface of tasks, without <stop_token> and <chrono>.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <utility>

#include "tessera/array/parts.h"

namespace tessera {

/// A std::stop_token. Converts from and to it, so that only programs that use one include <stop_token>.
class StopToken {
 public:
  StopToken() = default;  ///< Never requests a stop.
  /// Stores a std::stop_token.
  template <class T>
    requires(detail::is_std<T>("stop_token"))
  StopToken(T token) : token_(std::make_shared<const T>(std::move(token))) {}
  /// Returns the std::stop_token.
  template <class T>
    requires(detail::is_std<T>("stop_token"))
  operator T() const {
    return token_ == nullptr ? T() : *static_cast<const T*>(token_.get());
  }

  ///@{
  /// Same as the std::stop_token member of this name.
  bool stop_requested() const noexcept;
  bool stop_possible() const noexcept;
  ///@}

 private:
  std::shared_ptr<const void> token_;  // a std::stop_token
};

/// A duration. Converts from std::chrono durations, and to those that can represent it.
class Nanoseconds {
 public:
  constexpr Nanoseconds() = default;  ///< A duration of 0.
  /// A duration of `count` nanoseconds.
  constexpr explicit Nanoseconds(std::int64_t count) : count_(count) {}
  /// Converts a std::chrono duration.
  template <class D>
    requires(detail::is_std<D>("chrono::duration"))
  constexpr Nanoseconds(D duration)
      : count_(static_cast<std::int64_t>(duration.count() * (D::period::num * 1'000'000'000 / D::period::den))) {}
  /// Converts to a std::chrono duration of nanoseconds or of floating-point numbers.
  template <class D>
    requires(detail::is_std<D>("chrono::duration")) &&
            (std::is_floating_point_v<typename D::rep> || (D::period::num == 1 && D::period::den == 1'000'000'000))
  constexpr operator D() const {
    using Count = typename D::rep;
    if constexpr (std::is_floating_point_v<Count>)
      return D(static_cast<Count>(count_) * D::period::den / D::period::num / 1'000'000'000);
    else
      return D(static_cast<Count>(count_));
  }
  constexpr std::int64_t count() const { return count_; }  ///< The number of nanoseconds.

  ///@{
  /// Same as the operators of std::chrono::nanoseconds.
  friend constexpr auto operator<=>(const Nanoseconds&, const Nanoseconds&) = default;
  friend constexpr Nanoseconds operator+(Nanoseconds a, Nanoseconds b) { return Nanoseconds(a.count_ + b.count_); }
  friend constexpr Nanoseconds operator-(Nanoseconds a, Nanoseconds b) { return Nanoseconds(a.count_ - b.count_); }
  friend constexpr Nanoseconds operator*(std::int64_t n, Nanoseconds a) { return Nanoseconds(n * a.count_); }
  friend constexpr Nanoseconds operator*(Nanoseconds a, std::int64_t n) { return n * a; }
  ///@}

 private:
  std::int64_t count_ = 0;
};

}  // namespace tessera
