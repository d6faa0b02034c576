// SPDX-License-Identifier: Apache-2.0
// How a task accesses an array.
#pragma once

#include <cstdint>
#include <utility>

namespace tessera {

/// How a task uses an array.
enum class Access : std::uint8_t {
  in,       ///< The task reads the array.
  out,      ///< The task overwrites the array. The old contents are not copied to the task's device.
  inout,    ///< The task reads and writes the array.
  commute,  ///< Like inout, but commuting tasks may run in any order, one at a time.
  reduce,   ///< The task contributes to a reduction. Contributions of several tasks are combined in any order.
};
const char* to_string(Access mode);  ///< Returns the enumerator's name, such as "inout".
/// Returns true for all modes except `in`.
constexpr bool writes(Access mode) { return mode != Access::in; }

/// The elements of a matrix (the last two axes) that an access covers. Triangles include the diagonal. Unit triangles
/// do not: their diagonal is assumed to be 1 and is not read.
enum class MatrixPart : std::uint8_t { none, upper, lower, unit_upper, unit_lower, diagonal };
const char* to_string(MatrixPart triangle);  ///< Returns text for messages: "upper triangle".
/// Returns the smallest and the largest value of (column - row) in this part of a matrix.
std::pair<std::int64_t, std::int64_t> band_of(MatrixPart triangle);

}  // namespace tessera
