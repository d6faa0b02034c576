// SPDX-License-Identifier: Apache-2.0
// Random array programs: a seed determines the operations and data, regardless of when and by which thread arrays are
// computed. The choice of operations depends only on shapes and dtypes.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tessera/array/array.h"

namespace tessera::test {

/// An executed operation of a program, for a reference that repeats it.
struct Step {
  std::string operation;              ///< "add", "slice", ...
  std::vector<std::size_t> from;      ///< numbers of the operand arrays
  std::vector<std::int64_t> numbers;  ///< axes, extents, indices
  std::string scalar;                 ///< A host operand as C++ text: "2.5", "3"; empty without one.
  std::size_t to = 0;                 ///< the array that it created or wrote in place
};

struct ProgramOptions {
  std::uint64_t seed = 0;
  int operations = 30;
  /// Called after each step with the array that it created or wrote.
  std::function<void(const Step& step, const Array& result)> after = {};
  /// Called before memory is written in place; no other thread may read it then.
  std::function<void()> before_write = {};
};

/// Runs a program and returns the arrays that exist at its end.
std::vector<Array> run_program(const ProgramOptions& options);

/// An array's elements as bytes, with all NaN normalised.
std::vector<unsigned char> bytes_of(const Array& a);

}  // namespace tessera::test
