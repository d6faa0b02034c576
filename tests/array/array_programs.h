// SPDX-License-Identifier: Apache-2.0
// Random programs on arrays: the same seed gives the same operations on the same data, however often and by whom the
// arrays are computed on the way. Which operation comes next depends on shapes and dtypes alone.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tessera/array/array.h"

namespace tessera::test {

/// One operation of a program as it was done, for a reference that does it again.
struct Step {
  std::string operation;              ///< "add", "slice", ...
  std::vector<std::size_t> from;      ///< numbers of the arrays it took
  std::vector<std::int64_t> numbers;  ///< axes, extents, indices
  std::string scalar;                 ///< a host operand as C++ text: "2.5", "3"; empty without one
  std::size_t to = 0;                 ///< the array that it gave, or wrote in place
};

struct ProgramOptions {
  std::uint64_t seed = 0;
  int operations = 30;
  /// Called after each step with the array that it gave or wrote.
  std::function<void(const Step& step, const Array& result)> after = {};
  /// Called before memory is written in place: nobody else may be reading it then.
  std::function<void()> before_write = {};
};

/// What is left of a program's arrays when it ends.
std::vector<Array> run_program(const ProgramOptions& options);

/// An array's elements as bytes, every NaN the same.
std::vector<unsigned char> bytes_of(const Array& a);

}  // namespace tessera::test
