// SPDX-License-Identifier: Apache-2.0
// Helpers for testing your kernels. They run a test on every device and on the interpreter, fill outputs with poison
// before each launch, generate random data from a printed seed, and compare results with a reference in higher
// precision. They work with any test framework: a failed test throws a Failure with a message that contains the device,
// the seed, the element, and the actual and expected values.
#pragma once

#include <concepts>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/callback.h"
#include "tessera/base/error.h"
#include "tessera/kernel/buffer.h"

namespace tessera::testing {

/// Thrown by a failed test.
class Failure : public Error {
 public:
  using Error::Error;
};

/// Returns all available devices, and the interpreter with subgroups of 32, 1, 8 and 64 threads (interp:0 to interp:3).
/// TESSERA_TEST_DEVICES selects some of them: "cpu,interp" or "opencl:0". Throws DeviceError if a selected device does
/// not exist. The first call sets TESSERA_SUBGROUP unless it is already set, and then rescans the devices.
const std::vector<Device>& all_devices();

/// Runs the body once for each device as the current device. Continues after a failure. At the end, throws a Failure
/// that lists the devices on which the body threw, with the error messages.
void for_each_device(const Callback<void(Device)>& body);
void for_each_device(std::span<const Device> devices, const Callback<void(Device)>& body);

/// Returns the seed of this process: the value of TESSERA_TEST_SEED, else a random number. The first call prints it on
/// standard error.
std::uint64_t seed();

/// A random number generator that depends only on its seed.
class Random {
 public:
  /// Creates a generator with the given seed.
  explicit Random(std::uint64_t seed = testing::seed()) : seed_(seed) {}
  /// Returns the seed.
  std::uint64_t seed() const { return seed_; }
  std::uint64_t bits();                             ///< Returns 64 random bits.
  double uniform(double low = 0, double high = 1);  ///< Returns a uniformly distributed number in [low, high).
  /// Returns a uniformly distributed integer from low to high, including both.
  std::int64_t integer(std::int64_t low, std::int64_t high);
  double normal();  ///< Returns a normally distributed number with mean 0 and standard deviation 1.

  /// Returns `n` random values between low and high. Floats are in [low, high), integers are in [low, high], and bools
  /// are true with probability 1/2.
  template <Element T>
  std::vector<T> values(std::size_t n, double low = -1, double high = 1) {
    std::vector<T> out(n);
    for (std::size_t i = 0; i < n; ++i) {
      if constexpr (std::same_as<T, bool>)
        out[i] = bits() >> 63;
      else if constexpr (std::integral<T>)
        out[i] = static_cast<T>(integer(static_cast<std::int64_t>(low), static_cast<std::int64_t>(high)));
      else if constexpr (std::same_as<T, double>)
        out[i] = uniform(low, high);
      else
        out[i] = T(static_cast<float>(uniform(low, high)));
    }
    return out;
  }

 private:
  std::uint64_t seed_, next_ = 0;
};

/// Sizes that often expose errors in kernels: zero, one, values around powers of two and common block sizes, and more
/// than 2^16.
inline constexpr std::size_t awkward_sizes[] = {0, 1, 2, 7, 31, 32, 33, 63, 64, 65, 255, 256, 257, 1000, 4099, 65537};

/// Allows |got - expected| up to absolute + relative * |expected|. If both tolerances are 0, values must be exactly
/// equal. NaN and infinity must always match exactly.
struct Tolerance {
  double absolute = 0, relative = 0;  ///< The allowed absolute and relative errors.
};

namespace detail {

/// The value of an element in a form that represents each dtype exactly.
struct Number {
  double real = 0;
  std::uint64_t magnitude = 0;  ///< absolute value of an integer
  bool negative = false, integer = false, poison = false;
};
template <class T>
Number number(const T& value) {
  Number n;
  if constexpr (std::floating_point<T>) {
    n.real = static_cast<double>(value);
  } else if constexpr (std::integral<T>) {
    n.integer = true;
    n.negative = value < T{};
    n.magnitude = n.negative ? std::uint64_t{0} - static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value);
    n.real = static_cast<double>(value);
  } else {
    n.real = static_cast<double>(static_cast<float>(value));
  }
  return n;
}
void compare(const char* what, std::size_t got_size, std::size_t expected_size, const Tolerance& tolerance,
             const Callback<Number(std::size_t)>& got, const Callback<Number(std::size_t)>& expected);

inline constexpr std::uint64_t guard = 64;  // number of guard elements on each side
/// The poison byte. As a float of any width it is a huge negative number, and as a bool it is invalid.
inline constexpr unsigned char poison_byte = 0xfb;
void poison(const BufferView& view);
void check_guards(const char* what, DType dtype, std::span<const std::byte> all, std::size_t elements);

}  // namespace detail

/// Throws Failure, with `what` in its message, unless the sizes are equal and each element is within the tolerance.
/// `expected` should have higher precision than `got`: use std::vector<double> for floats and integers for integers.
template <class Got, class Expected>
void expect_close(const Got& got, const Expected& expected, Tolerance tolerance = {}, const char* what = "result") {
  detail::compare(
      what, std::size(got), std::size(expected), tolerance,
      [&](std::size_t i) { return detail::number(static_cast<typename Got::value_type>(got[i])); },
      [&](std::size_t i) { return detail::number(static_cast<typename Expected::value_type>(expected[i])); });
}
/// Like expect_close with zero tolerance.
template <class Got, class Expected>
void expect_equal(const Got& got, const Expected& expected, const char* what = "result") {
  expect_close(got, expected, {}, what);
}

/// A kernel's output buffer. It is filled with poison until the kernel writes it. On both sides it has guard zones of
/// poison, which the kernel must not change. Pass it to a launch like a DeviceBuffer<T>.
template <Element T>
class Poisoned {
 public:
  /// The element type.
  using value_type = T;

  /// Creates a buffer of `n` elements filled with poison.
  explicit Poisoned(std::size_t n, Device device = current_device())
      : all_(n + 2 * detail::guard, device, "poisoned output"), size_(n) {
    detail::poison(all_.view());
  }
  /// Number of elements.
  std::size_t size() const { return size_; }
  /// Returns the view to pass to a launch.
  BufferView view() const {
    BufferView v = all_.view();
    v.byte_offset += detail::guard * sizeof(T);
    v.elements = size_;
    return v;
  }
  /// Returns the elements. Throws Failure if the kernel wrote before the first or after the last element.
  std::vector<T> values(const char* what = "result") const {
    const std::vector<unsigned char> bytes = read();
    detail::check_guards(what, dtype_v<T>, std::as_bytes(std::span(bytes)), size_);
    std::vector<T> out(size_);
    for (std::size_t i = 0; i < size_; ++i) out[i] = at(bytes, i);
    return out;
  }
  /// Like `expect_close` for `values()`, but elements that still contain poison are reported as unwritten.
  template <class Expected>
  void expect(const Expected& expected, Tolerance tolerance = {}, const char* what = "result") const {
    const std::vector<unsigned char> bytes = read();
    detail::check_guards(what, dtype_v<T>, std::as_bytes(std::span(bytes)), size_);
    detail::compare(
        what, size_, std::size(expected), tolerance,
        [&](std::size_t i) {
          detail::Number n = detail::number(at(bytes, i));
          n.poison = poisoned(bytes, i);
          return n;
        },
        [&](std::size_t i) { return detail::number(static_cast<typename Expected::value_type>(expected[i])); });
  }
  /// Returns the number of elements that were never written.
  std::size_t unwritten() const {
    const std::vector<unsigned char> bytes = read();
    std::size_t count = 0;
    for (std::size_t i = 0; i < size_; ++i) count += poisoned(bytes, i);
    return count;
  }

 private:
  std::vector<unsigned char> read() const {
    std::vector<unsigned char> bytes(all_.size() * sizeof(T));
    Queue::of(all_.device()).download(bytes.data(), all_.view());
    return bytes;
  }
  static bool poisoned(const std::vector<unsigned char>& bytes, std::size_t i) {
    const unsigned char* p = bytes.data() + (detail::guard + i) * sizeof(T);
    for (std::size_t b = 0; b < sizeof(T); ++b)
      if (p[b] != detail::poison_byte) return false;
    return true;
  }
  static T at(const std::vector<unsigned char>& bytes, std::size_t i) {
    const unsigned char* p = bytes.data() + (detail::guard + i) * sizeof(T);
    if constexpr (std::same_as<T, bool>) {
      return *p != 0;  // poison is not a valid bool
    } else {
      T value;
      __builtin_memcpy(&value, p, sizeof value);
      return value;
    }
  }
  DeviceBuffer<T> all_;
  std::size_t size_;
};

/// Passes the elements as an argument of a launch.
template <class T>
BufferView kernel_argument(const Poisoned<T>& buffer, ir::Access) {
  return buffer.view();
}

}  // namespace tessera::testing
