// SPDX-License-Identifier: Apache-2.0
// Random numbers that go on: a generator that remembers how far it got, whose whole state is two numbers and no device
// (it moves with whatever structure holds it, and gives the same bits wherever it draws); and streams told apart by a
// counter, which may lie in device memory.
#pragma once

#include <memory>

#include "tessera/array/parts.h"
#include "tessera/device/queue/random_stream.h"

namespace tessera {

/// Draws from the Philox stream of a seed, each draw where the one before ended: the first is what random_uniform and
/// the others give for this seed. Bits and uniforms are the same on every device; normals to the accuracy of its log,
/// sin and cos. A copy is a second generator of the same state. A draw that throws leaves the state as it was. Where a
/// draw is recorded (device/queue/sequence.h), each replay draws the next numbers. Not to be used by several threads at
/// once.
class Generator {
 public:
  /// A generator that starts at block `offset` of the stream that belongs to `seed`.
  explicit Generator(std::uint64_t seed = 0, std::uint64_t offset = 0)
      : state_(std::make_shared<RandomStream>(RandomStream{seed, offset})) {}
  Generator(const Generator& other) : state_(std::make_shared<RandomStream>(*other.state_)) {}
  Generator& operator=(const Generator& other) {
    *state_ = *other.state_;
    return *this;
  }

  /// The seed it was made with.
  std::uint64_t seed() const { return state_->seed; }
  std::uint64_t offset() const { return state_->offset; }  ///< blocks of four numbers drawn; a draw takes whole blocks

  // `device` defaults to current_device().
  Array bits(Shape shape, std::optional<Device> device = {});  ///< u32
  /// Evenly distributed f32 numbers in [low, high).
  Array uniform(Shape shape, double low = 0, double high = 1, std::optional<Device> device = {});
  /// Normally distributed f32 numbers.
  Array normal(Shape shape, double mean = 0, double deviation = 1, std::optional<Device> device = {});

  /// True if both would draw the same numbers next.
  friend bool operator==(const Generator& a, const Generator& b) { return *a.state_ == *b.state_; }

 private:
  std::shared_ptr<RandomStream> state_;  ///< its own; recordings follow it
};
template <>
inline constexpr bool holds_no_arrays<Generator> = true;

/// Which of the 2^64 streams of a seed, each as long as any array: a number, or a u64 of one element in device memory,
/// read when the kernel runs, so that a recorded Sequence draws again at each replay.
class Counter {
 public:
  explicit Counter(std::uint64_t number) : number_(number) {}
  explicit Counter(Array in_memory);  ///< ShapeError, DtypeError: not one u64
  /// True if the number is read from device memory when it is used.
  bool in_memory() const { return memory_.has_value(); }
  /// The number; only if not in_memory().
  std::uint64_t number() const { return number_; }
  /// The array that has the number; only if in_memory().
  const Array& memory() const { return *memory_; }

 private:
  std::uint64_t number_ = 0;
  std::optional<Array> memory_;
};

/// As those of array.h, which are the stream of Counter(0). `device` defaults to that of a counter in memory, else to
/// current_device(); DeviceError if it is another than the counter's.
Array random_uniform(Shape shape, std::uint64_t seed, const Counter& counter, double low = 0, double high = 1,
                     std::optional<Device> device = {});
/// Normally distributed numbers of the stream that `seed` and `counter` select.
Array random_normal(Shape shape, std::uint64_t seed, const Counter& counter, double mean = 0, double deviation = 1,
                    std::optional<Device> device = {});
Array random_bits(Shape shape, std::uint64_t seed, const Counter& counter, std::optional<Device> device = {});  ///< u32

/// The part of `shape` that begins at `starts` in what random_uniform (random_normal, random_bits) of array.h gives for
/// the shape `whole`: the same numbers however an array is cut, and wherever each part is made. ShapeError if the part
/// does not lie inside of the whole.
Array random_uniform_part(const Shape& whole, const Shape& starts, Shape shape, std::uint64_t seed, double low = 0,
                          double high = 1, std::optional<Device> device = {});
/// The part of random_normal(whole, seed, mean, deviation) that begins at `starts`.
Array random_normal_part(const Shape& whole, const Shape& starts, Shape shape, std::uint64_t seed, double mean = 0,
                         double deviation = 1, std::optional<Device> device = {});
Array random_bits_part(const Shape& whole, const Shape& starts, Shape shape, std::uint64_t seed,
                       std::optional<Device> device = {});  ///< u32

}  // namespace tessera
