// SPDX-License-Identifier: Apache-2.0
// Helpers for the tests of the IR and the interpreter. They run kernels on vectors and collect findings.
#pragma once

#include <gtest/gtest.h>

#include <random>

#include "tessera/base/error.h"
#include "tessera/base/test_seed.h"
#include "tessera/ir/interpreter.h"
#include "tessera/ir/semantics.h"
#include "tessera/ir/value.h"
#include "tests/ir/traced.h"

namespace tessera::test {

template <class T>
ir::InterpreterArgument arg(std::vector<T>& v) {
  return {reinterpret_cast<std::byte*>(v.data()), v.size(), 0};
}
template <class T>
ir::InterpreterArgument scalar_arg(T v) {
  return {nullptr, 0, ir::to_bits(dtype_v<T>, v)};
}
inline ir::InterpreterArgument index_arg(std::int64_t v) { return {nullptr, 0, static_cast<std::uint64_t>(v)}; }

inline void run(const ir::Function& fn, std::array<std::uint64_t, 3> shape,
                std::initializer_list<ir::InterpreterArgument> arguments, const ir::InterpreterOptions& options = {}) {
  ir::interpret(fn, shape, std::span(arguments.begin(), arguments.size()), options);
}

/// Returns the findings of a launch with checks on.
inline std::vector<ir::Finding> findings(const ir::Function& fn, std::array<std::uint64_t, 3> shape,
                                         std::initializer_list<ir::InterpreterArgument> arguments,
                                         std::uint32_t subgroup_width = 32) {
  std::vector<ir::Finding> all;
  ir::InterpreterOptions options;
  options.checks = true;
  options.subgroup_width = subgroup_width;
  options.max_while_rounds = 100000;
  options.report = [&](const ir::Finding& f) { all.push_back(f); };
  run(fn, shape, arguments, options);
  return all;
}

inline std::vector<float> random_floats(std::size_t n, std::mt19937_64& rng, float low = -1, float high = 1) {
  std::uniform_real_distribution<float> d(low, high);
  std::vector<float> v(n);
  for (float& x : v) x = d(rng);
  return v;
}

/// Returns the message of the error that `f` throws, or "" if it throws none.
template <class E, class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  }
  return "";
}

}  // namespace tessera::test
