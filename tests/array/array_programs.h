// SPDX-License-Identifier: Apache-2.0
// Random array programs. A seed determines the operations and the data, regardless of when and by which thread arrays
// are computed. The choice of operations depends only on shapes and dtypes.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tessera/array/array.h"

namespace tessera::test {

/// An operation that a program has executed, for a reference implementation that repeats it.
struct Step {
  std::string operation;              ///< "add", "slice", ...
  std::vector<std::size_t> from;      ///< numbers of the operand arrays
  std::vector<std::int64_t> numbers;  ///< axes, extents, indices
  std::string scalar;                 ///< A host operand as C++ text, such as "2.5" or "3"; empty if there is none.
  std::size_t to = 0;                 ///< number of the array that was created or written in place
};

struct ProgramOptions {
  std::uint64_t seed = 0;
  int operations = 30;
  /// Called after each step with the array that it created or wrote.
  std::function<void(const Step& step, const Array& result)> after = {};
  /// Called before memory is written in place. No other thread may read the memory at that time.
  std::function<void()> before_write = {};
};

/// Runs a program and returns the arrays that exist at its end.
std::vector<Array> run_program(const ProgramOptions& options);

/// Returns the elements of an array as bytes, with all NaN replaced by the same NaN.
std::vector<unsigned char> bytes_of(const Array& a);

}  // namespace tessera::test
