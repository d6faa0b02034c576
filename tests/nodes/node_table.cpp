// SPDX-License-Identifier: Apache-2.0
#include "tests/nodes/node_table.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "tessera/testing/testing.h"

namespace tessera::test {

using namespace ir;

std::vector<Column> all_columns() {
  std::vector<Column> all;
  for (int t = 0; t <= static_cast<int>(DType::index); ++t) all.push_back({static_cast<DType>(t)});
  all.push_back({DType::index, true});
  return all;
}

// Values.

std::uint64_t load_bits(DType t, const std::byte* at) {
  std::uint64_t bits = 0;
  const std::size_t size = dtype_size(t);
  std::memcpy(&bits, at, size);
  if (is_signed_int(t) && size < 8 && (bits >> (8 * size - 1))) bits |= ~std::uint64_t{0} << (8 * size);
  return bits;
}

namespace {

/// Returns values of a dtype for which operations have special cases.
std::vector<std::uint64_t> special_bits(Column column) {
  const DType t = column.dtype;
  std::vector<std::uint64_t> out;
  if (t == DType::index) {  // overflow of an index is an error, so products of these must fit
    for (std::int64_t v : {0, 1, 2, 3, 7, 8, 31, 255, -1, -2, -7, 1000, -1000}) out.push_back(to_bits(t, v));
    if (column.index64)
      for (std::int64_t v : {std::int64_t{2147483647}, std::int64_t{-2147483648}, std::int64_t{3000000000}})
        out.push_back(to_bits(t, v));
  } else if (t == DType::boolean) {
    out = {0, 1};
  } else if (is_float(t)) {
    std::vector<double> values = {0.0,     -0.0,       1,           -1,         0.5,    -1.5,    2.5,
                                  3.5,     127.5,      -128.5,      300,        -300,   65504,   65520,
                                  65536.5, 2147483648, -2147483648, 4294967296, 0x1p63, -0x1p63, 0x1p64,
                                  1e30,    INFINITY,   -INFINITY,   -0.25f,     1e-7};
    values.push_back(std::numeric_limits<double>::quiet_NaN());
    for (double v : values) out.push_back(to_bits(t, v));
    // The largest value, the lowest value, the smallest normal, the smallest subnormal, its negative, and the successor
    // of 1.
    if (t == DType::f16) out.insert(out.end(), {0x7bff, 0xfbff, 0x0400, 0x0001, 0x8001, 0x3c01});
    if (t == DType::bf16) out.insert(out.end(), {0x7f7f, 0xff7f, 0x0080, 0x0001, 0x8001, 0x3f81});
    if (t == DType::f32)
      out.insert(out.end(), {0x7f7fffff, 0xff7fffff, 0x00800000, 0x00000001, 0x80000001, 0x3f800001});
    if (t == DType::f64)
      out.insert(out.end(), {0x7fefffffffffffff, 0xffefffffffffffff, 0x0010000000000000, 0x0000000000000001,
                             0x8000000000000001, 0x3ff0000000000001});
  } else {
    with_compute_type(t, [&](auto tag) {
      using T = decltype(tag);
      using L = std::numeric_limits<T>;
      if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
        for (T v : {T(0),     T(1),
                    T(2),     T(3),
                    T(7),     T(8),
                    T(15),    T(16),
                    T(31),    T(32),
                    T(63),    T(64),
                    L::max(), T(L::max() - 1),
                    L::min(), T(L::min() + 1),
                    T(-1),    T(-2),
                    T(-7),    T(L::max() / 2 + 1)})
          out.push_back(to_bits(t, v));
    });
  }
  return out;
}

std::uint64_t random_bits(Column column, testing::Random& random) {
  const DType t = column.dtype;
  if (t == DType::index) return to_bits(t, random.integer(-1000, 1000) * (column.index64 ? 3000000 : 1));
  if (t == DType::boolean) return random.bits() >> 63;
  std::uint64_t bits = random.bits();
  if (is_float(t)) {
    if (random.bits() % 2)
      return to_bits(t, std::ldexp(random.uniform(-1, 1), static_cast<int>(random.integer(-20, 8))));
    const std::size_t width = 8 * dtype_size(t);
    if (width < 64) bits &= (std::uint64_t{1} << width) - 1;
    // A signalling NaN may become quiet when it is copied, so only quiet NaNs are used.
    const double v = from_bits<double>(t, bits);
    const int quiet = t == DType::f16 ? 9 : t == DType::bf16 ? 6 : t == DType::f32 ? 22 : 51;
    return std::isnan(v) ? bits | std::uint64_t{1} << quiet : bits;
  }
  std::array<std::byte, 8> bytes;
  bits >>= random.bits() % (8 * dtype_size(t));
  std::memcpy(bytes.data(), &bits, 8);
  return load_bits(t, bytes.data());
}

}  // namespace

World make_world(Column column, bool block) {
  testing::Random random(testing::seed() * 64 + static_cast<std::uint64_t>(column.dtype) * 4 +
                         (column.index64 ? 2 : 0) + (block ? 1 : 0));
  World w;
  w.column = column, w.block = block;
  const auto special = special_bits(column);
  if (block) {
    w.n = World::block_threads * World::blocks;
    for (auto* values : {&w.a, &w.b, &w.c})
      for (std::size_t i = 0; i < w.n; ++i)
        values->push_back(random.bits() % 2 ? special[random.bits() % special.size()] : random_bits(column, random));
  } else {
    for (std::uint64_t x : special)
      for (std::uint64_t y : special) w.a.push_back(x), w.b.push_back(y);
    for (auto* values : {&w.a, &w.b}) {
      for (int k = 0; k < 307; ++k) values->push_back(random_bits(column, random));
      if (is_float(column.dtype))  // the range in which these functions are used most
        for (int k = 0; k < 2000; ++k) values->push_back(to_bits(column.dtype, random.uniform(-12, 12)));
    }
    w.n = w.a.size();
    for (std::size_t i = 0; i < w.n; ++i) w.c.push_back(w.a[(i * 7 + 3) % w.n]);
  }
  const bool negative = is_float(column.dtype) || is_signed_int(column.dtype);
  for (std::size_t i = 0; i < w.n; ++i)
    w.s.push_back(column.dtype == DType::boolean ? random.bits() >> 63
                                                 : to_bits(column.dtype, random.integer(negative ? -20 : 0, 20)));
  return w;
}

// Tracing.

std::string Tracer::next_name() { return "p" + std::to_string(Builder::current().function().params.size()); }
Value Tracer::i() {
  if (!world_.block) return global_id();
  return block_id() * static_cast<int>(World::block_threads) + thread_id(1) * static_cast<int>(World::block_x) +
         thread_id(0);
}
BufferRef Tracer::input_memory(int which) {
  BufferRef& memory = inputs_[static_cast<std::size_t>(which)];
  if (memory.id() == no_node) {
    memory = buffer_param(next_name(), column().memory(), Access::read);
    const std::vector<std::uint64_t>* values[] = {&world_.a, &world_.b, &world_.c, &world_.s};
    Slot slot;
    slot.cell = ~std::size_t{0}, slot.dtype = column().memory();
    slot.initial = *values[which], slot.elements = world_.n;
    slots_.push_back(std::move(slot));
  }
  return memory;
}
BufferRef Tracer::a_memory() {
  if (dtype() == DType::index) buffer_param("x", DType::index, Access::read);
  return input_memory(0);
}
Value Tracer::input(int which, Value at) {
  const Value v = input_memory(which).load(at.valid() ? at : i());
  return dtype() == DType::index ? cast(DType::index, v) : v;
}
void Tracer::result(Value v, Expected expected, bool either_zero) {
  if (v.dtype() == DType::index) v = cast(DType::i64, v);
  const DType t = v.dtype();
  output(t, world_.n, std::move(expected)).store(i(), v);
  slots_.back().either_zero = either_zero;
}
void Tracer::results(const std::vector<std::pair<Value, Expected>>& values, bool either_zero) {
  const std::size_t n = world_.n;
  std::vector<Expected> expected;
  for (const auto& [v, e] : values) expected.push_back(e);
  const DType t = values.at(0).first.dtype(), kept = t == DType::index ? DType::i64 : t;
  const BufferRef out =
      output(kept, n * values.size(), [=](const World& w, std::size_t i) { return expected[i / n](w, i % n); });
  slots_.back().either_zero = either_zero;
  for (std::size_t k = 0; k < values.size(); ++k)
    out.store(i() + static_cast<std::int64_t>(k * n), t == kept ? values[k].first : cast(kept, values[k].first));
}
void Tracer::real_result(Value v, Exact exact, Allowed ulp) {
  output(v.dtype(), world_.n, {}).store(i(), v);
  slots_.back().exact = std::move(exact), slots_.back().ulp = std::move(ulp);
}
BufferRef Tracer::output(DType dtype, std::size_t elements, Expected expected) {
  const BufferRef memory = buffer_param(next_name(), dtype, Access::read_write);
  Slot slot;
  slot.cell = cell_, slot.dtype = dtype, slot.elements = elements, slot.expected = std::move(expected);
  slots_.push_back(std::move(slot));
  return memory;
}
BufferRef Tracer::memory(DType dtype, std::vector<std::uint64_t> initial, Expected expected) {
  const BufferRef memory = output(dtype, initial.size(), std::move(expected));
  slots_.back().initial = std::move(initial);
  return memory;
}
Value Tracer::scalar(DType dtype, std::uint64_t bits) {
  const Value v = scalar_param(next_name(), dtype);
  Slot slot;
  slot.cell = cell_, slot.dtype = dtype, slot.is_buffer = false, slot.initial = {bits};
  slots_.push_back(std::move(slot));
  return v;
}

}  // namespace tessera::test
