// SPDX-License-Identifier: Apache-2.0
// Random number streams: Generator keeps its position, and its whole state is two numbers without a device (it moves
// with the structure that contains it, and gives the same bits on every device). Counter selects one of many streams of
// a seed, and can be in device memory.
#pragma once

#include <memory>

#include "tessera/array/parts.h"
#include "tessera/device/queue/random_stream.h"

namespace tessera {

/// Draws from the Philox stream of a seed; each draw continues where the previous one ended. The first draw equals that
/// of random_uniform and the other functions for this seed. Bits and uniform numbers are the same on every device;
/// normal numbers are subject to the accuracy of its log, sin and cos. A copy is a separate generator with the same
/// state. A draw that throws leaves the state unchanged. If a draw is recorded (device/queue/sequence.h), each replay
/// draws the next numbers. Not thread-safe.
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
  std::shared_ptr<RandomStream> state_;  ///< Not shared with copies; recordings refer to it.
};
template <>
inline constexpr bool holds_no_arrays<Generator> = true;

/// Selects one of the 2^64 streams of a seed, each long enough for any array. Either a number, or a one-element u64
/// array in device memory that is read when the kernel runs, so that a recorded Sequence draws new numbers at each
/// replay.
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

/// As the functions of array.h, which use the stream of Counter(0). `device` defaults to the device of a counter in
/// memory, else to current_device(). Throws DeviceError if it differs from the counter's.
Array random_uniform(Shape shape, std::uint64_t seed, const Counter& counter, double low = 0, double high = 1,
                     std::optional<Device> device = {});
/// Normally distributed numbers of the stream that `seed` and `counter` select.
Array random_normal(Shape shape, std::uint64_t seed, const Counter& counter, double mean = 0, double deviation = 1,
                    std::optional<Device> device = {});
/// Random u32 numbers.
Array random_bits(Shape shape, std::uint64_t seed, const Counter& counter, std::optional<Device> device = {});

/// The part of shape `shape` at `starts` of random_uniform(whole, seed, low, high). The numbers do not depend on how an
/// array is split and where each part is computed. Throws ShapeError if the part is not inside `whole`.
Array random_uniform_part(const Shape& whole, const Shape& starts, Shape shape, std::uint64_t seed, double low = 0,
                          double high = 1, std::optional<Device> device = {});
/// The part at `starts` of random_normal(whole, seed, mean, deviation).
Array random_normal_part(const Shape& whole, const Shape& starts, Shape shape, std::uint64_t seed, double mean = 0,
                         double deviation = 1, std::optional<Device> device = {});
Array random_bits_part(const Shape& whole, const Shape& starts, Shape shape, std::uint64_t seed,
                       std::optional<Device> device = {});  ///< The part at `starts` of random_bits(whole, seed).

}  // namespace tessera
