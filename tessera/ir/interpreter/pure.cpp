// SPDX-License-Identifier: Apache-2.0
// Pure operations: one loop for each operation and type, over all lanes in the range of the mask. Inactive lanes are
// computed too if that is cheaper than testing the mask. Their results are never read.
#include <algorithm>
#include <cmath>

#include "tessera/ir/interpreter/machine.h"

namespace tessera::ir::engine {

namespace {

template <class K>
constexpr std::size_t count_of = static_cast<std::size_t>(K::count_);

/// Returns a table of f<kind>() for every enumerator of K.
template <class K, class Make>
constexpr std::array<Run, count_of<K>> table_of(Make make) {
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    return std::array<Run, count_of<K>>{make.template operator()<static_cast<K>(I)>()...};
  }(std::make_index_sequence<count_of<K>>{});
}

template <BinaryOp op, class T>
void run_binary(Machine& m, const Instruction& i) {
  const T *a = m.lanes<T>(i.in[0]), *b = m.lanes<T>(i.in[1]);
  T* __restrict out = m.lanes<T>(i.out);
  for (std::uint32_t l = m.mask.begin, end = m.mask.end; l < end; ++l) out[l] = apply(op, a[l], b[l]);
}
template <UnaryOp op, class T>
void run_unary(Machine& m, const Instruction& i) {
  const T* a = m.lanes<T>(i.in[0]);
  T* __restrict out = m.lanes<T>(i.out);
  for (std::uint32_t l = m.mask.begin, end = m.mask.end; l < end; ++l) out[l] = apply(op, a[l]);
}
template <CompareOp op, class T>
void run_compare(Machine& m, const Instruction& i) {
  const T *a = m.lanes<T>(i.in[0]), *b = m.lanes<T>(i.in[1]);
  bool* __restrict out = m.lanes<bool>(i.out);
  for (std::uint32_t l = m.mask.begin, end = m.mask.end; l < end; ++l) out[l] = apply(op, a[l], b[l]);
}
// fma is the inner operation of matrix products. Without the target attribute below, compilers emit a call to the C
// library.
template <class T>
void fma_lanes(T* __restrict out, const T* a, const T* b, const T* c, std::uint32_t begin, std::uint32_t end) {
  for (std::uint32_t l = begin; l < end; ++l) out[l] = std::fma(a[l], b[l], c[l]);
}
#if defined(__x86_64__)
template <class T>
__attribute__((target("avx2,fma"))) void fma_lanes_wide(T* __restrict out, const T* a, const T* b, const T* c,
                                                        std::uint32_t begin, std::uint32_t end) {
  for (std::uint32_t l = begin; l < end; ++l) out[l] = std::fma(a[l], b[l], c[l]);
}
const bool has_fma = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
template <class T>
void run_fma(Machine& m, const Instruction& i) {
  const T *a = m.lanes<T>(i.in[0]), *b = m.lanes<T>(i.in[1]), *c = m.lanes<T>(i.in[2]);
#if defined(__x86_64__)
  if (has_fma) return fma_lanes_wide(m.lanes<T>(i.out), a, b, c, m.mask.begin, m.mask.end);
#endif
  fma_lanes(m.lanes<T>(i.out), a, b, c, m.mask.begin, m.mask.end);
}

template <MathOp op, class T>
void run_math(Machine& m, const Instruction& i) {
  const T* a = m.lanes<T>(i.in[0]);
  T* __restrict out = m.lanes<T>(i.out);
  if constexpr (op == MathOp::fma) {
    run_fma<T>(m, i);
  } else if constexpr (operand_count(op) == 2) {
    const T* b = m.lanes<T>(i.in[1]);
    for_each_lane(m.mask, [=](std::uint32_t l) { out[l] = apply(op, a[l], b[l]); });
  } else {
    for_each_lane(m.mask, [=](std::uint32_t l) { out[l] = apply(op, a[l]); });
  }
}
template <Dot4Signs signs>
void run_dot4(Machine& m, const Instruction& i) {
  const std::uint32_t *a = m.lanes<std::uint32_t>(i.in[0]), *b = m.lanes<std::uint32_t>(i.in[1]);
  const std::int32_t* c = m.lanes<std::int32_t>(i.in[2]);
  std::int32_t* __restrict out = m.lanes<std::int32_t>(i.out);
  for (std::uint32_t l = m.mask.begin, end = m.mask.end; l < end; ++l) out[l] = apply(signs, a[l], b[l], c[l]);
}
template <class E>
void run_select(Machine& m, const Instruction& i) {
  const bool* condition = m.lanes<bool>(i.in[0]);
  for (std::uint32_t c = 0; c < i.width; ++c) {
    const std::size_t component = std::size_t{c} * m.program.stride;
    const E *a = m.lanes<E>(i.in[1]) + component, *b = m.lanes<E>(i.in[2]) + component;
    E* __restrict out = m.lanes<E>(i.out) + component;
    for (std::uint32_t l = m.mask.begin, end = m.mask.end; l < end; ++l) {
      const E x = a[l], y = b[l];
      out[l] = condition[l] ? x : y;
    }
  }
}
template <class E>
void run_copy(Machine& m, const Instruction& i) {
  for (std::uint32_t c = 0; c < i.width; ++c) {
    const E* a = m.lanes<E>(i.in[c]);
    std::copy(a + m.mask.begin, a + m.mask.end, m.lanes<E>(i.out) + std::size_t{c} * m.program.stride + m.mask.begin);
  }
}

}  // namespace

Run pure_loop(const Node& n, DType type, DType operand) {
  // 16-bit floats have no arithmetic: the builder converts them to f32.
  if (operand == DType::f16 || operand == DType::bf16) return nullptr;
  switch (n.op) {
    case Op::unary:
      return with_compute_type(type, [&](auto tag) -> Run {
        static constexpr auto table =
            table_of<UnaryOp>([]<UnaryOp op>() -> Run { return &run_unary<op, decltype(tag)>; });
        return table[n.sub];
      });
    case Op::binary:
      return with_compute_type(type, [&](auto tag) -> Run {
        static constexpr auto table =
            table_of<BinaryOp>([]<BinaryOp op>() -> Run { return &run_binary<op, decltype(tag)>; });
        return table[n.sub];
      });
    case Op::compare:
      return with_compute_type(operand, [&](auto tag) -> Run {
        static constexpr auto table =
            table_of<CompareOp>([]<CompareOp op>() -> Run { return &run_compare<op, decltype(tag)>; });
        return table[n.sub];
      });
    case Op::math: {
      static constexpr auto single = table_of<MathOp>([]<MathOp op>() -> Run { return &run_math<op, float>; });
      static constexpr auto wide = table_of<MathOp>([]<MathOp op>() -> Run { return &run_math<op, double>; });
      return type == DType::f32 ? single[n.sub] : type == DType::f64 ? wide[n.sub] : nullptr;
    }
    case Op::dot4: {
      static constexpr auto table = table_of<Dot4Signs>([]<Dot4Signs signs>() -> Run { return &run_dot4<signs>; });
      return table[n.sub];
    }
    default: return nullptr;
  }
}

Run select_loop(DType type) {
  return with_storage_type(type, [](auto tag) -> Run { return &run_select<decltype(tag)>; });
}
Run copy_loop(DType type) {
  return with_storage_type(type, [](auto tag) -> Run { return &run_copy<decltype(tag)>; });
}

}  // namespace tessera::ir::engine
