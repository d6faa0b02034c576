// SPDX-License-Identifier: Apache-2.0
// Tests of one's own kernels: one body run on every device and on the interpreter, outputs poisoned beforehand, random
// data from a printed seed, results compared with a reference in higher precision. Works inside any test framework:
// what is wrong is thrown as a Failure whose text names device, seed, element, what was got and what was expected.
#pragma once

#include <concepts>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/kernel/buffer.h"

namespace tessera::testing {

/// A test that did not hold.
class Failure : public Error {
 public:
  using Error::Error;
};

/// Every device that answers, and the interpreter with subgroups of 32, 1, 8 and 64 threads (interp:0 to interp:3).
/// TESSERA_TEST_DEVICES names fewer: "cpu,interp" or "opencl:0". DeviceError if it names one that does not exist.
/// The first call sets TESSERA_SUBGROUP, unless it is set already, and asks the drivers again.
const std::vector<Device>& all_devices();

/// Runs the body once for each device, current while it runs. Goes on after a failure; at the end a Failure lists the
/// devices on which the body threw, with what it threw.
void for_each_device(const std::function<void(Device)>& body);
void for_each_device(std::span<const Device> devices, const std::function<void(Device)>& body);

/// The seed of this process: TESSERA_TEST_SEED, else drawn again; printed on standard error when first asked for.
std::uint64_t seed();

/// Random numbers that are a function of the seed alone.
class Random {
 public:
  /// A generator with its own seed.
  explicit Random(std::uint64_t seed = testing::seed()) : seed_(seed) {}
  /// The seed.
  std::uint64_t seed() const { return seed_; }
  std::uint64_t bits();                                       ///< 64 random bits
  double uniform(double low = 0, double high = 1);            ///< in [low, high)
  std::int64_t integer(std::int64_t low, std::int64_t high);  ///< low to high, both included
  double normal();                                            ///< mean 0, deviation 1

  /// `n` values between low and high: floats in [low, high), integers with both ends, bools evenly.
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

/// Sizes at which kernels break: none, one, about powers of two and usual blocks, beyond 2^16.
inline constexpr std::size_t awkward_sizes[] = {0, 1, 2, 7, 31, 32, 33, 63, 64, 65, 255, 256, 257, 1000, 4099, 65537};

/// |got - expected| may be absolute + relative * |expected|. Both 0: equal. A NaN or an infinity must be one.
struct Tolerance {
  double absolute = 0, relative = 0;  ///< The absolute and the relative error that are allowed.
};

namespace detail {

/// An element in a form that holds each dtype exactly.
struct Number {
  double real = 0;
  std::uint64_t magnitude = 0;  ///< of integers
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
             const std::function<Number(std::size_t)>& got, const std::function<Number(std::size_t)>& expected);

inline constexpr std::uint64_t guard = 64;  // elements on either side
/// The pattern of poison in every byte; as a float of any width it is a huge negative number, as a bool nothing valid.
inline constexpr unsigned char poison_byte = 0xfb;
void poison(const BufferView& view);
void check_guards(const char* what, DType dtype, std::span<const std::byte> all, std::size_t elements);

}  // namespace detail

/// Failure, with `what` in its text, unless both have one size and each element is within the tolerance. `expected` in
/// higher precision: std::vector<double> beside floats, integers beside integers.
template <class Got, class Expected>
void expect_close(const Got& got, const Expected& expected, Tolerance tolerance = {}, const char* what = "result") {
  detail::compare(
      what, std::size(got), std::size(expected), tolerance,
      [&](std::size_t i) { return detail::number(static_cast<typename Got::value_type>(got[i])); },
      [&](std::size_t i) { return detail::number(static_cast<typename Expected::value_type>(expected[i])); });
}
/// As expect_close, without tolerance.
template <class Got, class Expected>
void expect_equal(const Got& got, const Expected& expected, const char* what = "result") {
  expect_close(got, expected, {}, what);
}

/// A kernel's output: a buffer whose elements hold poison until the kernel writes them, between guards that hold poison
/// for ever. Given to launch like a DeviceBuffer<T>.
template <Element T>
class Poisoned {
 public:
  /// The element type.
  using value_type = T;

  /// `n` elements that hold a pattern which no kernel is expected to write.
  explicit Poisoned(std::size_t n, Device device = current_device())
      : all_(n + 2 * detail::guard, device, "poisoned output"), size_(n) {
    detail::poison(all_.view());
  }
  /// The number of elements.
  std::size_t size() const { return size_; }
  /// The elements as an argument of a launch.
  BufferView view() const {
    BufferView v = all_.view();
    v.byte_offset += detail::guard * sizeof(T);
    v.elements = size_;
    return v;
  }
  /// The elements. Failure if something was written before or past them.
  std::vector<T> values(const char* what = "result") const {
    const std::vector<unsigned char> bytes = read();
    detail::check_guards(what, dtype_v<T>, std::as_bytes(std::span(bytes)), size_);
    std::vector<T> out(size_);
    for (std::size_t i = 0; i < size_; ++i) out[i] = at(bytes, i);
    return out;
  }
  /// As `expect_close` on `values()`; an element that still holds poison is reported as not written.
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
  /// How many elements nobody has written.
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
      return *p != 0;  // poison is no bool
    } else {
      T value;
      __builtin_memcpy(&value, p, sizeof value);
      return value;
    }
  }
  DeviceBuffer<T> all_;
  std::size_t size_;
};

/// The elements as an argument of a launch.
template <class T>
BufferView kernel_argument(const Poisoned<T>& buffer, ir::Access) {
  return buffer.view();
}

}  // namespace tessera::testing
