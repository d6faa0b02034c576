// SPDX-License-Identifier: Apache-2.0
// Helpers for the files that create rows. They compute the expected values for a world, as bits.
#pragma once

#include <functional>

#include "tests/nodes/node_table.h"

namespace tessera::test {

template <class K, class F>
void for_each_kind(F f) {
  for (int k = 0; k < static_cast<int>(K::count_); ++k) f(static_cast<K>(k));
}

/// Creates a row for map kernels. Error messages must contain `name`, or the name of the op if `name` is empty.
template <class K>
Row row(ir::Op op, K sub, std::string_view name, std::function<void(Tracer&)> cell) {
  Row r;
  r.op = op, r.sub = static_cast<std::uint8_t>(sub), r.name = name;
  r.word = name.empty() || op == ir::Op::cast || op == ir::Op::bitcast || op == ir::Op::vector ? ir::op_name(op) : name;
  r.cell = std::move(cell);
  return r;
}
template <class K>
Row block_row(ir::Op op, K sub, std::string_view name, std::function<void(Tracer&)> cell) {
  Row r = row(op, sub, name, std::move(cell));
  r.block = true;
  return r;
}

/// Returns the bits of a value in the dtype in which the column is computed.
template <class T>
std::uint64_t bits_of(Column column, T value) {
  return ir::to_bits(column.compute(), value);
}
/// Returns the bits of a value converted to `to`. Conversions to 16 bits go through f32.
template <class From>
std::uint64_t converted(DType to, From value) {
  return ir::with_compute_type(to, [&](auto tag) { return ir::to_bits(to, ir::convert<decltype(tag)>(value)); });
}
/// Creates expected bits without a conversion.
template <class F>
Expected raw(F f) {
  return [f](const World& w, std::size_t i) -> std::optional<std::uint64_t> { return f(w, i); };
}
/// Applies f to one element of an input, in the dtype in which the column is computed.
template <class F>
Expected at_input(std::vector<std::uint64_t> World::*input, std::size_t at, F f) {
  return [=](const World& w, std::size_t) -> std::optional<std::uint64_t> {
    return ir::with_compute_type(w.column.dtype, [&](auto tag) {
      using T = decltype(tag);
      return bits_of(w.column, f(w.value<T>(w.*input, at)));
    });
  };
}
/// Applies f to `a` of thread i and converts the result to bool.
template <class F>
Expected of_inputs_as_bool(F f) {
  return [f](const World& w, std::size_t i) -> std::optional<std::uint64_t> {
    return ir::with_compute_type(w.column.dtype,
                                 [&](auto tag) -> std::uint64_t { return f(w.value<decltype(tag)>(w.a, i)); });
  };
}

/// Returns a * b of 16-bit floats, computed in f32 and rounded once.
inline Expected product_rounded() {
  return [](const World& w, std::size_t i) -> std::optional<std::uint64_t> {
    return ir::to_bits(w.column.dtype, w.value<float>(w.a, i) * w.value<float>(w.b, i));
  };
}

/// Returns the input in a vector lane. Lanes contain a, b, c and s in this order, rotated by `from`.
inline std::uint64_t input_of_lane(const World& w, std::size_t lane, std::size_t i) {
  return lane == 0 ? w.a[i] : lane == 1 ? w.b[i] : lane == 2 ? w.c[i] : w.s[i];
}
inline ir::Value vector_of_inputs(Tracer& t, std::size_t lanes, std::size_t from = 0) {
  const ir::Value inputs[] = {t.a(), t.b(), t.c(), t.s()};
  std::vector<ir::NodeId> ids;
  for (std::size_t l = 0; l < lanes; ++l) ids.push_back(inputs[(l + from) % lanes].id());
  return ir::Value(ir::Builder::current().make_vector(ids));
}

}  // namespace tessera::test
