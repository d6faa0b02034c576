// SPDX-License-Identifier: Apache-2.0
// A random generator that remembers how far it got. Its whole state is two numbers and no device: it moves with
// whatever structure holds it, and gives the same bits wherever it draws.
#pragma once

#include "tessera/array/parts.h"

namespace tessera {

/// Draws from the Philox stream of a seed, each draw where the one before ended: the first is what random_uniform and
/// the others give for this seed. Bits and uniforms are the same on every device; normals to the accuracy of its log,
/// sin and cos. A copy is a second generator of the same state. A draw that throws leaves the state as it was. Not to
/// be used by several threads at once.
class Generator {
 public:
  explicit Generator(std::uint64_t seed = 0, std::uint64_t offset = 0) : seed_(seed), offset_(offset) {}

  std::uint64_t seed() const { return seed_; }
  std::uint64_t offset() const { return offset_; }  ///< blocks of four numbers drawn; a draw takes whole blocks

  // `device` defaults to current_device().
  Array bits(Shape shape, std::optional<Device> device = {});  ///< u32
  Array uniform(Shape shape, double low = 0, double high = 1, std::optional<Device> device = {});
  Array normal(Shape shape, double mean = 0, double deviation = 1, std::optional<Device> device = {});

  friend bool operator==(const Generator&, const Generator&) = default;

 private:
  std::uint64_t take(const Shape& shape);
  std::uint64_t seed_, offset_;
};
template <>
inline constexpr bool holds_no_arrays<Generator> = true;

}  // namespace tessera
