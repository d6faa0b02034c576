// SPDX-License-Identifier: Apache-2.0
// Matrix fragments. Each subgroup has a matrix of floats in the slab, in row-major order. The operands a and b are
// widened to f32, so the product of two elements is exact unless it overflows (bfloat16 only). Products are summed over
// k in ascending order.
#include <algorithm>
#include <cstring>
#include <optional>

#include "tessera/ir/interpreter/checker.h"
#include "tessera/ir/interpreter/fragment_layout.h"

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

float* fragment(Machine& m, std::size_t place, const Group& g, std::uint32_t depth = side) {
  return m.lanes<float>(place) + std::size_t{g.number} * side * depth;
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
  const Node& n = m.program.fn[i.node];
  const std::uint32_t depth = fragment_depth(m.program.fn[n.args[1]].type.dtype);
  for_each_group(m, i, checked, [&](const Group& g) {
    float* c = fragment(m, i.in[0], g);
    if (n.extra != 0) std::fill_n(c, side * side, 0.0f);
    const float *a = fragment(m, i.in[1], g, depth), *b = fragment(m, i.in[2], g, depth);
    for (std::uint32_t row = 0; row < side; ++row)
      for (std::uint32_t k = 0; k < depth; ++k)
        for (std::uint32_t column = 0; column < side; ++column)
          c[row * side + column] += a[row * depth + k] * b[k * side + column];
  });
}

/// Operands: fragment, index, stride. Any lane may read any element of a and b, so the checker records the first and
/// the last lane as readers of every element. Loads and stores assign each element of c to the same lane, so c can be
/// updated in place. Elements of i8 are loaded four at a time.
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
    const std::int64_t index = m.lanes<I>(i.in[1])[g.first], stride = m.lanes<I>(i.in[2])[g.first];
    /// Returns the index in memory, or std::nullopt if it is out of bounds.
    const auto place = [&](std::uint32_t number, std::int64_t outer,
                           std::int64_t inner) -> std::optional<std::uint64_t> {
      std::int64_t at = 0;
      const std::uint32_t lane = g.begin + number % (g.end - g.begin);
      if (__builtin_mul_overflow(outer, stride, &at) || __builtin_add_overflow(at, index, &at) ||
          __builtin_add_overflow(at, inner, &at) || at < 0 || static_cast<std::uint64_t>(at) >= memory.elements) {
        m.out_of_bounds(i, lane, at, 1, store ? "writes" : "reads");
        return std::nullopt;
      }
      const auto element = static_cast<std::uint64_t>(at);
      if (checked) {
        const AccessKind how = store ? AccessKind::write : AccessKind::read;
        m.checker->touch(i, shared_by_all ? g.begin : lane, element, 1, how);
        if (shared_by_all && g.end - g.begin > 1) m.checker->touch(i, g.end - 1, element, 1, how);
      }
      return element;
    };
    if (of.type.dtype == DType::i8) {
      constexpr std::uint32_t depth = fragment_depth(DType::i8), each = 4, words = depth / each;
      float* elements = fragment(m, i.in[0], g, depth);
      for (std::uint32_t e = 0; e < side * words; ++e) {
        const std::uint32_t outer = e / words, k = e % words * each;
        std::int8_t numbers[each] = {};
        if (const auto at = place(e, outer, e % words))
          std::memcpy(numbers, memory.data + *at * sizeof numbers, sizeof numbers);
        for (std::uint32_t byte = 0; byte < each; ++byte)
          elements[n.extra != 0 ? (k + byte) * side + outer : outer * depth + k + byte] = numbers[byte];
      }
      return;
    }
    float* elements = fragment(m, i.in[0], g);
    for (std::uint32_t e = 0; e < side * side; ++e) {
      const std::uint32_t row = e / side, column = e % side;
      const auto at = n.extra != 0 ? place(e, column, row) : place(e, row, column);
      if constexpr (store) {
        if (at) std::memcpy(memory.data + *at * sizeof(float), &elements[e], sizeof(float));
      } else {
        elements[e] = at ? read_element(memory.data, *at, of.type.dtype) : 0;
      }
    }
  });
}

/// Operands: left, accumulator.
template <bool checked>
void run_convert(Machine& m, const Instruction& i) {
  const bool narrow = m.program.fn[i.node].type.dtype == DType::f16;
  for_each_group(m, i, checked, [&](const Group& g) {
    const float* from = fragment(m, i.in[1], g);
    float* to = fragment(m, i.in[0], g);
    for (std::uint32_t e = 0; e < fragment_elements; ++e)
      to[e] = narrow ? static_cast<float>(half(from[e])) : static_cast<float>(bfloat16(from[e]));
  });
}

/// `memory` is the local array with a number for each row. in[1] is the accumulator.
template <bool checked>
void run_reduce_rows(Machine& m, const Instruction& i) {
  const bool sum = static_cast<ReduceOp>(i.imm) == ReduceOp::sum;
  for_each_group(m, i, checked, [&](const Group& g) {
    const float* from = fragment(m, i.in[1], g);
    for (std::uint32_t row = 0; row < side; ++row) {
      float value = from[row * side];
      for (std::uint32_t column = 1; column < side; ++column)
        value = apply(sum ? BinaryOp::add : BinaryOp::max, value, from[row * side + column]);
      float* to = reinterpret_cast<float*>(m.memories[i.memory].data) + std::size_t{row} * m.program.stride;
      for (std::uint32_t l = g.first; l <= g.last; ++l)
        if (m.mask.lanes[l]) to[l] = value;
    }
  });
}

template <class I>
std::int64_t element_of(const Machine& m, std::uint32_t l, I k) {
  return engine::element_of(m.program.fn.layout, static_cast<std::int64_t>(k), l % m.program.options.subgroup_width,
                            m.lanes_of(l));
}

/// Operands: index[, value].
template <class I, bool store>
void run_element(Machine& m, const Instruction& i) {
  const I* index = m.lanes<I>(i.in[0]);
  const std::uint32_t width = m.program.options.subgroup_width;
  for_each_lane(m.mask, [&](std::uint32_t l) {
    const std::int64_t e = element_of(m, l, index[l]);
    const bool inside = e >= 0 && e < fragment_elements;
    if (!inside) m.out_of_bounds(i, l, e, 1, store ? "writes" : "reads");
    float* elements = reinterpret_cast<float*>(m.memories[i.memory].data) + std::size_t{l / width} * fragment_elements;
    if constexpr (store) {
      if (inside) elements[e] = m.lanes<float>(i.in[1])[l];
    } else {
      m.lanes<float>(i.out)[l] = inside ? elements[e] : 0;
    }
  });
}

/// Stores two elements of a left factor. Operands: index of the word, value.
template <class I>
void run_store_pair(Machine& m, const Instruction& i) {
  const I* index = m.lanes<I>(i.in[0]);
  const std::uint32_t width = m.program.options.subgroup_width;
  const DType t = m.program.fn[m.program.fn[i.node].args[0]].type.dtype;
  for_each_lane(m.mask, [&](std::uint32_t l) {
    const std::int64_t e = pair_of(m.program.fn.layout, static_cast<std::int64_t>(index[l]), l % width);
    if (e < 0 || e + 1 >= fragment_elements) return m.out_of_bounds(i, l, e, 2, "writes");
    const std::uint32_t word = m.lanes<std::uint32_t>(i.in[1])[l];
    float* to = reinterpret_cast<float*>(m.memories[i.memory].data) + std::size_t{l / width} * fragment_elements + e;
    std::uint16_t halves[2];
    std::memcpy(halves, &word, sizeof word);
    for (int h = 0; h < 2; ++h) to[h] = read_element(reinterpret_cast<const std::byte*>(&halves[h]), 0, t);
  });
}

template <PlaceOf what, class I>
void run_place(Machine& m, const Instruction& i) {
  const I* k = m.lanes<I>(i.in[0]);
  for_each_lane(m.mask, [&](std::uint32_t l) {
    const std::int64_t e = element_of(m, l, k[l]);
    if constexpr (what == PlaceOf::valid)
      m.lanes<bool>(i.out)[l] = e >= 0 && e < fragment_elements;
    else
      m.lanes<I>(i.out)[l] = static_cast<I>(what == PlaceOf::column     ? e % side
                                            : what == PlaceOf::slot_row ? static_cast<std::int64_t>(k[l])
                                                                        : e / side);
  });
}

}  // namespace

Run element_loop(DType index, bool store) {
  if (index == DType::i64) return store ? &run_element<std::int64_t, true> : &run_element<std::int64_t, false>;
  return store ? &run_element<std::int32_t, true> : &run_element<std::int32_t, false>;
}
Run store_pair_loop(DType index) {
  return index == DType::i64 ? &run_store_pair<std::int64_t> : &run_store_pair<std::int32_t>;
}
Run place_loop(PlaceOf what, DType index) {
  const auto of = [&]<class I>() -> Run {
    switch (what) {
      case PlaceOf::row: return &run_place<PlaceOf::row, I>;
      case PlaceOf::column: return &run_place<PlaceOf::column, I>;
      case PlaceOf::slot: return &run_place<PlaceOf::slot, I>;
      case PlaceOf::slot_row: return &run_place<PlaceOf::slot_row, I>;
      case PlaceOf::valid: return &run_place<PlaceOf::valid, I>;
      default: return nullptr;
    }
  };
  if (index == DType::i64) return of.template operator()<std::int64_t>();
  return index == DType::i32 ? of.template operator()<std::int32_t>() : nullptr;
}
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
    case MmaOp::convert: return checked ? &run_convert<true> : &run_convert<false>;
    case MmaOp::reduce_rows: return checked ? &run_reduce_rows<true> : &run_reduce_rows<false>;
    case MmaOp::multiply: return checked ? &run_multiply<true> : &run_multiply<false>;
    default: return nullptr;
  }
}

}  // namespace tessera::ir::engine
