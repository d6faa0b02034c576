// SPDX-License-Identifier: Apache-2.0
// How a task accesses an array.
#pragma once

#include <cstdint>
#include <utility>

namespace tessera {

/// What a task does with an array.
enum class Access : std::uint8_t {
  in,       ///< read
  out,      ///< overwritten; the old contents are not copied to the task's device
  inout,    ///< read and written
  commute,  ///< read and written; commuting tasks run in any order, one at a time
  reduce,   ///< combined with the contributions of other tasks of the same operation, in any order
};
const char* to_string(Access mode);  ///< the enumerator's name: "inout"
/// True for all but `in`.
constexpr bool writes(Access mode) { return mode != Access::in; }

/// The elements of a matrix (the last two axes) that an access covers. Triangles include the diagonal, except unit
/// triangles: their diagonal is known to be 1 and is not read.
enum class MatrixPart : std::uint8_t { none, upper, lower, unit_upper, unit_lower, diagonal };
const char* to_string(MatrixPart triangle);  ///< as text for messages: "upper triangle"
/// The smallest and largest value of (column - row) of its elements.
std::pair<std::int64_t, std::int64_t> band_of(MatrixPart triangle);

}  // namespace tessera
