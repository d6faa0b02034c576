// SPDX-License-Identifier: Apache-2.0
// Matrix fragments. Each subgroup has a 16 x 16 matrix of floats in the slab, in row-major order. The operands a and b
// are widened to f32, so the product of two elements is exact unless it overflows (bfloat16 only). Products are summed
// over k in ascending order.
#include <algorithm>
#include <cstring>

#include "tessera/ir/interpreter/checker.h"

namespace tessera::ir::engine {

namespace {

constexpr std::uint32_t side = fragment_side;

float read_element(const std::byte* data, std::uint64_t element, DType dtype) {
  std::uint16_t bits;
  if (dtype == DType::f32) {
    float value;
    std::memcpy(&value, data + element * sizeof value, sizeof value);
    return value;
  }
  std::memcpy(&bits, data + element * sizeof bits, sizeof bits);
  if (dtype == DType::f16) {
    half value;
    value.bits = bits;
    return static_cast<float>(value);
  }
  bfloat16 value;
  value.bits = bits;
  return static_cast<float>(value);
}

/// The active lanes of a subgroup.
struct Group {
  std::uint32_t number, begin, end;  ///< range of all its lanes in the block
  std::uint32_t first, last;         ///< first and last active lane
};

template <class F>
void for_each_group(Machine& m, const Instruction& i, bool checked, F&& f) {
  const std::uint32_t width = m.program.options.subgroup_width;
  for (std::uint32_t begin = m.mask.begin / width * width; begin < m.mask.end; begin += width) {
    const std::uint32_t end = std::min(begin + width, m.threads);
    if (checked) require_all(m, i, begin, end, "subgroup");
    Group g{begin / width, begin, end, end, begin};
    for (std::uint32_t l = std::max(begin, m.mask.begin); l < std::min(end, m.mask.end); ++l)
      if (m.mask.lanes[l]) g.first = std::min(g.first, l), g.last = l;
    if (g.first != end) f(g);
  }
}

/// Reports an operand that is not the same in all active lanes.
template <class T>
void require_same(Machine& m, const Instruction& i, const Group& g, std::size_t operand, const char* what) {
  const T* values = m.lanes<T>(operand);
  for (std::uint32_t l = g.first; l <= g.last; ++l)
    if (m.mask.lanes[l] && std::memcmp(&values[l], &values[g.first], sizeof(T)) != 0)
      m.found({.kind = Finding::Kind::divergence,
               .node = i.node,
               .lane = l,
               .wrong = std::string("the ") + what + " of a matrix operation differs within a subgroup: it is " +
                        std::to_string(values[g.first]) + " in " + m.thread_text(m.block, g.first) + " but " +
                        std::to_string(values[l]) + " in " + m.thread_text(m.block, l),
               .remedy = "Compute it from values that are the same in the whole subgroup, such as subgroup_id()"});
}

float* fragment(Machine& m, std::size_t place, const Group& g) {
  return m.lanes<float>(place) + std::size_t{g.number} * side * side;
}

/// Operands: accumulator, value.
template <bool checked>
void run_fill(Machine& m, const Instruction& i) {
  for_each_group(m, i, checked, [&](const Group& g) {
    if (checked) require_same<float>(m, i, g, i.in[1], "value");
    std::fill_n(fragment(m, i.in[0], g), side * side, m.lanes<float>(i.in[1])[g.first]);
  });
}

/// Operands: accumulator, left, right.
template <bool checked>
void run_multiply(Machine& m, const Instruction& i) {
  for_each_group(m, i, checked, [&](const Group& g) {
    float* c = fragment(m, i.in[0], g);
    const float *a = fragment(m, i.in[1], g), *b = fragment(m, i.in[2], g);
    for (std::uint32_t row = 0; row < side; ++row)
      for (std::uint32_t k = 0; k < side; ++k)
        for (std::uint32_t column = 0; column < side; ++column)
          c[row * side + column] += a[row * side + k] * b[k * side + column];
  });
}

/// Operands: fragment, index, stride. Any lane may read any element of a and b, so the checker records the first and
/// the last lane as readers of every element. Loads and stores assign each element of c to the same lane, so c can be
/// updated in place.
template <class I, bool store, bool checked>
void run_memory(Machine& m, const Instruction& i) {
  const Memory& memory = m.memories[i.memory];
  const Node& n = m.program.fn[i.node];
  const Node& of = m.program.fn[n.args[0]];
  const bool shared_by_all = of.kind<FragmentRole>() != FragmentRole::accumulator;
  for_each_group(m, i, checked, [&](const Group& g) {
    if (checked) {
      require_same<I>(m, i, g, i.in[1], "index");
      require_same<I>(m, i, g, i.in[2], "stride");
    }
    float* elements = fragment(m, i.in[0], g);
    const std::int64_t index = m.lanes<I>(i.in[1])[g.first], stride = m.lanes<I>(i.in[2])[g.first];
    for (std::uint32_t e = 0; e < side * side; ++e) {
      const std::int64_t row = e / side, column = e % side, across = n.extra ? row : column;
      std::int64_t at = 0;
      const std::uint32_t lane = g.begin + e % (g.end - g.begin);
      if (__builtin_mul_overflow(n.extra ? column : row, stride, &at) || __builtin_add_overflow(at, index, &at) ||
          __builtin_add_overflow(at, across, &at) || at < 0 || static_cast<std::uint64_t>(at) >= memory.elements) {
        m.out_of_bounds(i, lane, at, 1, store ? "writes" : "reads");
        if (!store) elements[e] = 0;
        continue;
      }
      const std::uint64_t element = static_cast<std::uint64_t>(at);
      if (checked) {
        const AccessKind how = store ? AccessKind::write : AccessKind::read;
        m.checker->touch(i, shared_by_all ? g.begin : lane, element, 1, how);
        if (shared_by_all && g.end - g.begin > 1) m.checker->touch(i, g.end - 1, element, 1, how);
      }
      if constexpr (store)
        std::memcpy(memory.data + element * sizeof(float), &elements[e], sizeof(float));
      else
        elements[e] = read_element(memory.data, element, of.type.dtype);
    }
  });
}

}  // namespace

Run matrix_loop(MmaOp op, DType index, bool checked) {
  const auto memory = [&]<bool store>() -> Run {
    const bool wide = index == DType::i64;
    if (checked) return wide ? &run_memory<std::int64_t, store, true> : &run_memory<std::int32_t, store, true>;
    return wide ? &run_memory<std::int64_t, store, false> : &run_memory<std::int32_t, store, false>;
  };
  switch (op) {
    case MmaOp::load: return memory.template operator()<false>();
    case MmaOp::store: return memory.template operator()<true>();
    case MmaOp::fill: return checked ? &run_fill<true> : &run_fill<false>;
    case MmaOp::multiply: return checked ? &run_multiply<true> : &run_multiply<false>;
    default: return nullptr;
  }
}

}  // namespace tessera::ir::engine
