// SPDX-License-Identifier: Apache-2.0
// Runs a kernel with the same arguments on the reference interpreter and on all targets of the code generator, and
// compares the contents of all buffers.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tessera/ir/interpreter.h"
#include "tests/cpu/cpu_kernels.h"

namespace tessera::testing {

/// An argument: the bytes of a buffer, or the bits of a scalar.
struct Argument2 {
  DType dtype = DType::f32;
  std::vector<std::byte> bytes;
  bool buffer = true;
  std::uint64_t bits = 0;
  std::size_t elements() const { return bytes.size() / dtype_size(dtype); }
};

template <class T>
Argument2 memory(const std::vector<T>& v) {
  Argument2 a;
  a.dtype = dtype_v<T>;
  a.bytes.resize(v.size() * sizeof(T));
  if (!v.empty()) std::memcpy(a.bytes.data(), v.data(), a.bytes.size());
  return a;
}
/// Creates a buffer argument of any dtype from bytes.
inline Argument2 memory(DType t, std::vector<std::byte> bytes) {
  Argument2 a;
  a.dtype = t, a.bytes = std::move(bytes);
  return a;
}
template <class T>
Argument2 number(T v) {
  Argument2 a;
  a.dtype = dtype_v<T>, a.buffer = false, a.bits = ir::to_bits(dtype_v<T>, v);
  return a;
}
inline Argument2 index_number(std::int64_t v) {
  Argument2 a;
  a.dtype = DType::index, a.buffer = false, a.bits = static_cast<std::uint64_t>(v);
  return a;
}

/// The largest accepted difference between two floats: `absolute` + `relative` times the larger one.
struct Tolerance {
  double relative = 0, absolute = 0;
};

template <class T>
bool close(const std::byte* a, const std::byte* b, DType t, Tolerance tolerance, double& x, double& y) {
  T p, q;
  std::memcpy(&p, a, sizeof(T)), std::memcpy(&q, b, sizeof(T));
  x = static_cast<double>(p), y = static_cast<double>(q);
  if (t == DType::f16) x = half_value(static_cast<std::uint16_t>(p)), y = half_value(static_cast<std::uint16_t>(q));
  if (t == DType::bf16)
    x = bfloat16_value(static_cast<std::uint16_t>(p)), y = bfloat16_value(static_cast<std::uint16_t>(q));
  if (std::memcmp(a, b, sizeof(T)) == 0 || (std::isnan(x) && std::isnan(y)) || x == y) return true;
  return std::abs(x - y) <= tolerance.absolute + tolerance.relative * std::max(std::abs(x), std::abs(y));
}
inline bool close(DType t, const std::byte* a, const std::byte* b, Tolerance tolerance, double& x, double& y) {
  const bool real = is_float(t);
  const Tolerance exact{};
  switch (dtype_size(t)) {
    case 1: return close<std::uint8_t>(a, b, t, exact, x, y);
    case 2: return close<std::uint16_t>(a, b, t, real ? tolerance : exact, x, y);
    case 4: return real ? close<float>(a, b, t, tolerance, x, y) : close<std::uint32_t>(a, b, t, exact, x, y);
    default: return real ? close<double>(a, b, t, tolerance, x, y) : close<std::uint64_t>(a, b, t, exact, x, y);
  }
}

/// Runs the kernel on the interpreter and returns the arguments with their new contents.
inline std::vector<Argument2> interpreted(const ir::Function& fn, std::array<std::uint64_t, 3> shape,
                                          std::vector<Argument2> memory, std::uint32_t subgroup_width = 32) {
  std::vector<ir::InterpreterArgument> arguments;
  for (Argument2& a : memory) {
    if (a.buffer)
      arguments.push_back({.data = a.bytes.data(), .elements = a.elements()});
    else
      arguments.push_back({.bits = a.bits});
  }
  ir::InterpreterOptions options;
  options.subgroup_width = subgroup_width;
  ir::interpret(fn, shape, arguments, options);
  return memory;
}
inline std::vector<Argument2> computed(Cpu& cpu, const ir::Function& fn, std::array<std::uint64_t, 3> shape,
                                       std::vector<Argument2> memory, Variant variant = {}) {
  auto call = cpu.call();
  for (Argument2& a : memory) {
    if (!a.buffer)
      call.index(static_cast<std::int64_t>(a.bits));
    else
      call.buffer(a.bytes, a.elements());
  }
  call.run(fn, shape, variant);
  return memory;
}

/// Fails the test if the result of a target differs from the result of the interpreter.
inline void expect_same(const ir::Function& fn, std::array<std::uint64_t, 3> shape,
                        const std::vector<Argument2>& memory, Tolerance tolerance = {}, Variant variant = {}) {
  for (Cpu* cpu : cpu_targets()) {
    const auto expected = interpreted(fn, shape, memory, cpu->info().can.subgroup_widths[0]);
    std::vector<Argument2> got;
    try {
      got = computed(*cpu, fn, shape, memory, variant);
    } catch (const Error& e) {
      ADD_FAILURE() << cpu->target() << ": " << e.what() << "\n" << ir::to_text(fn);
      return;
    }
    for (std::size_t i = 0; i < memory.size(); ++i) {
      if (!memory[i].buffer) continue;
      const std::size_t size = dtype_size(memory[i].dtype);
      int shown = 0;
      for (std::size_t k = 0; k < memory[i].elements(); ++k) {
        double x = 0, y = 0;
        if (close(memory[i].dtype, expected[i].bytes.data() + k * size, got[i].bytes.data() + k * size, tolerance, x,
                  y))
          continue;
        if (++shown <= 4)
          ADD_FAILURE() << fn.name << " on " << cpu->target() << ": " << fn.params[i].name << "[" << k << "] is " << y
                        << ", expected " << x;
      }
      if (shown) {
        ADD_FAILURE() << shown << " elements differ\n" << ir::to_text(fn);
        return;
      }
    }
  }
}

}  // namespace tessera::testing
