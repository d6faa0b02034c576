// SPDX-License-Identifier: Apache-2.0
// Random number streams. A Generator keeps its position in a stream. Its state consists of two numbers and belongs to
// no device, so it can be moved with the structure that contains it, and it draws bit-identical numbers on every
// device. A Counter selects one of many streams of a seed and can be in device memory.
#pragma once

#include <memory>

#include "tessera/array/parts.h"
#include "tessera/device/queue/random_stream.h"

namespace tessera {

/// Draws from the Philox stream of a seed. Each draw continues where the previous one ended; the first draw equals that
/// of random_uniform and the other functions for this seed. Bits and uniform numbers are identical on every device.
/// Normal numbers can differ slightly, because devices compute log, sin and cos with different accuracy.
///
/// A copy is a separate generator with the same state. A draw that throws leaves the state unchanged. If a draw is
/// recorded (device/queue/sequence.h), each replay draws the next numbers. Not thread-safe.
class Generator {
 public:
  /// A generator at block `offset` of the stream for `seed`.
  explicit Generator(std::uint64_t seed = 0, std::uint64_t offset = 0);
  Generator(const Generator& other);
  Generator& operator=(const Generator& other);

  /// The seed of the stream.
  std::uint64_t seed() const { return state_->seed; }
  /// The number of blocks of four numbers drawn so far; each draw uses whole blocks.
  std::uint64_t offset() const { return state_->offset; }

  // `device` defaults to current_device().
  Array bits(Shape shape, std::optional<Device> device = {});  ///< Random u32 numbers.
  /// Uniformly distributed f32 numbers in [low, high).
  Array uniform(Shape shape, double low = 0, double high = 1, std::optional<Device> device = {});
  /// Normally distributed f32 numbers.
  Array normal(Shape shape, double mean = 0, double deviation = 1, std::optional<Device> device = {});

  /// True if both would draw the same numbers next.
  friend bool operator==(const Generator& a, const Generator& b) { return *a.state_ == *b.state_; }

 private:
  std::shared_ptr<RandomStream> state_;  ///< Not shared by copies. Recordings refer to it.
};
template <>
inline constexpr bool holds_no_arrays<Generator> = true;

/// Selects one of the 2^64 streams of a seed. Each stream is long enough for any array. The counter is either a number,
/// or a one-element u64 array in device memory. The array is read when the kernel runs, so that a recorded Sequence
/// draws new numbers at each replay.
class Counter {
 public:
  explicit Counter(std::uint64_t number) : number_(number) {}
  explicit Counter(Array in_memory);  ///< Throws ShapeError or DtypeError unless the array is a single u64.
  /// True if the number is read from device memory when it is used.
  bool in_memory() const { return memory_.has_value(); }
  /// The number. Requires !in_memory().
  std::uint64_t number() const { return number_; }
  /// The array that contains the number. Requires in_memory().
  const Array& memory() const { return *memory_; }

 private:
  std::uint64_t number_ = 0;
  std::optional<Array> memory_;
};

/// Like random_uniform in array.h, which uses the stream of Counter(0). `device` defaults to the device of a counter in
/// memory, otherwise to current_device(). Throws DeviceError if `device` differs from the counter's device.
Array random_uniform(Shape shape, std::uint64_t seed, const Counter& counter, double low = 0, double high = 1,
                     std::optional<Device> device = {});
/// Normally distributed numbers from the stream that `seed` and `counter` select.
Array random_normal(Shape shape, std::uint64_t seed, const Counter& counter, double mean = 0, double deviation = 1,
                    std::optional<Device> device = {});
/// Random u32 numbers from the stream that `seed` and `counter` select.
Array random_bits(Shape shape, std::uint64_t seed, const Counter& counter, std::optional<Device> device = {});

/// Part of random_uniform(whole, seed, low, high): the elements of shape `shape` from position `starts`. The numbers do
/// not depend on how an array is split or where each part is computed. Throws ShapeError if the part is not inside
/// `whole`.
Array random_uniform_part(const Shape& whole, const Shape& starts, Shape shape, std::uint64_t seed, double low = 0,
                          double high = 1, std::optional<Device> device = {});
/// The same part of random_normal(whole, seed, mean, deviation).
Array random_normal_part(const Shape& whole, const Shape& starts, Shape shape, std::uint64_t seed, double mean = 0,
                         double deviation = 1, std::optional<Device> device = {});
Array random_bits_part(const Shape& whole, const Shape& starts, Shape shape, std::uint64_t seed,
                       std::optional<Device> device = {});  ///< The same part of random_bits(whole, seed).

}  // namespace tessera
