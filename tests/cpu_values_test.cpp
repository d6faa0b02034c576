// SPDX-License-Identifier: Apache-2.0
// Every pure operation on every dtype, with the values where they are special, against ir/semantics.h as the
// interpreter applies it: vectors, scalars of a chunk, and both mixed.
#include <functional>

#include "tests/support/cpu_compare.h"

namespace tessera::testing {
namespace {

using namespace ir;

// Values of a dtype: limits, zeros, NaN, infinities, then random bits and random small numbers.
std::vector<std::byte> values(DType t, std::size_t n, std::mt19937& random) {
  return with_compute_type(t, [&](auto tag) {
    using T = decltype(tag);
    std::vector<T> special;
    if constexpr (std::is_same_v<T, bool>) {
      special = {false, true};
    } else {
      using L = std::numeric_limits<T>;
      special = {T(0), T(1), T(2), T(3), T(7), L::max(), L::lowest(), T(L::max() / 2), T(100)};
      if constexpr (std::is_signed_v<T>) special.insert(special.end(), {T(-1), T(-2), T(-7)});
      if constexpr (std::is_floating_point_v<T>)
        special.insert(special.end(), {T(-0.0), L::infinity(), -L::infinity(), L::quiet_NaN(), L::denorm_min(),
                                       L::min(), T(0.5), T(-1.5), T(2.5), T(2147483648.0), T(-2147483649.0),
                                       T(4294967296.0), T(1e19), T(-1e19), T(255.7), T(65520)});
    }
    std::vector<std::byte> out(n * dtype_size(t));
    for (std::size_t i = 0; i < n; ++i) {
      const auto choice = random() % 4;
      std::uint64_t bits = std::uint64_t{random()} << 32 | random();
      if (choice < 2)
        bits = to_bits(t, static_cast<T>(special[random() % special.size()]));
      else if (choice == 2 || is_float(t))
        bits = to_bits(t, static_cast<T>(static_cast<int>(random() % 401) - 200) / static_cast<T>(is_float(t) ? 8 : 1));
      if (t == DType::boolean) bits &= 1;
      std::memcpy(out.data() + i * dtype_size(t), &bits, dtype_size(t));
    }
    return out;
  });
}

class CpuValues : public ::testing::TestWithParam<DType> {
 protected:
  std::mt19937 random{seed()};

  struct Operation {
    std::string name;
    std::function<Value(Value, Value)> f;
  };
  // out[i] = f(a[i], b[i]) with both varying, with b the same for all, and with all the same: three buffers an
  // operation.
  void check(DType from, DType to, const std::vector<Operation>& operations, Tolerance tolerance = {}) {
    const std::size_t n = 300;
    const Function kernel = map_kernel("values", [&] {
      auto a = buffer_param("a", from, Access::read), b = buffer_param("b", from, Access::read);
      auto i = global_id();
      for (const Operation& o : operations) {
        auto x = buffer_param(o.name, to, Access::read_write),
             y = buffer_param(o.name + "_uniform", to, Access::read_write);
        auto z = buffer_param(o.name + "_scalar", to, Access::read_write);
        x.store(i, o.f(a.load(i), b.load(i)));
        y.store(i, o.f(a.load(i), b.load(extent() / 2)));
        z.store(i, o.f(a.load(global_id(1)), b.load(global_id(1) + 1)));
      }
    });
    std::vector<Argument2> arguments = {memory(from, values(from, n, random)), memory(from, values(from, n, random))};
    for (std::size_t i = 0; i < 3 * operations.size(); ++i) arguments.push_back(memory(to, values(to, n, random)));
    expect_same(kernel, {n, 1, 1}, arguments, tolerance);
  }
};

TEST_P(CpuValues, Arithmetic) {
  const DType t = GetParam();
  const bool real = is_float(t), logical = t == DType::boolean, wide = dtype_size(t) >= 4;
  std::vector<Operation> same, comparisons;
  for (int k = 0; k < static_cast<int>(BinaryOp::count_); ++k) {
    const auto op = static_cast<BinaryOp>(k);
    const bool bits = op == BinaryOp::and_ || op == BinaryOp::or_ || op == BinaryOp::xor_,
               shift = op == BinaryOp::shl || op == BinaryOp::shr;
    if (real ? bits || shift || op == BinaryOp::mul_hi : logical ? !bits : op == BinaryOp::mul_hi && !wide) continue;
    same.push_back({std::string(name_of(op)), [=](Value a, Value b) { return binary(op, a, b); }});
    if (real || logical) continue;
    same.push_back({std::string(name_of(op)) + "_by_7", [=](Value a, Value) { return binary(op, a, 7); }});
    same.push_back({std::string(name_of(op)) + "_by_0", [=](Value a, Value) { return binary(op, a, 0); }});
    same.push_back({std::string(name_of(op)) + "_of_100", [=](Value, Value b) { return binary(op, 100, b); }});
  }
  for (int k = 0; k < static_cast<int>(UnaryOp::count_); ++k) {
    const auto op = static_cast<UnaryOp>(k);
    if (op == UnaryOp::not_ ? real : logical) continue;
    if ((op == UnaryOp::popcount || op == UnaryOp::clz) && real) continue;
    same.push_back({std::string(name_of(op)), [=](Value a, Value) { return unary(op, a); }});
  }
  same.push_back({"select", [](Value a, Value b) { return select(a == b, b, a); }});
  for (int k = 0; k < static_cast<int>(CompareOp::count_); ++k) {
    const auto op = static_cast<CompareOp>(k);
    comparisons.push_back({std::string(name_of(op)), [=](Value a, Value b) { return compare(op, a, b); }});
  }
  check(t, t, same, {t == DType::f64 ? 1e-15 : 1e-7, 0});
  check(t, DType::boolean, comparisons);
}

TEST_P(CpuValues, Casts) {
  const DType t = GetParam();
  for (DType to : storable_dtypes) {
    std::vector<Operation> all = {{"cast", [=](Value a, Value) { return cast(to, a); }}};
    if (dtype_size(to) == dtype_size(t) && t != DType::boolean && to != DType::boolean && dtype_size(t) > 2)
      all.push_back({"bitcast", [=](Value a, Value) { return bitcast(to, a); }});
    check(t, to, all);
  }
}

TEST_P(CpuValues, Memory) {
  const DType t = GetParam();
  const std::size_t n = 133;
  // Contiguous, reversed, strided, scattered, masked, from one place; through shared memory and locals.
  const Function f = block_kernel("memory_" + std::string(dtype_name(t)), {48}, [&] {
    auto a = buffer_param("a", t, Access::read);
    auto x = buffer_param("x", t, Access::read_write), y = buffer_param("y", t, Access::read_write),
         z = buffer_param("z", t, Access::read_write);
    auto w = buffer_param("w", t, Access::read_write);
    auto i = global_id(), n = a.size();
    auto s = shared(t, 48);
    auto zero = cast(t, literal(DType::i32, 0));
    auto v = a.load_if(i < n, i, zero);
    s.store(thread_id(), v);
    barrier();
    auto swapped = s.load(47 - thread_id());
    auto spread = a.load_if(i * 3 % n != 5, i * 3 % n, zero);
    if_(i < n, [&] {
      x.store(i, swapped);
      y.store(n - 1 - i, a.load(n - 1 - i));
      if_(i % 3 == 1, [&] { z.store(i, spread); });
      w.store(i * 2 % n, a.load_if(i % 2 == 0, 7, a.load(i * 2 % n)));
    });
  });
  const auto poison = values(t, n, random);
  // w: n is odd, so that i * 2 % n meets every element once
  expect_same(
      f, {3, 1, 1},
      {memory(t, values(t, n, random)), memory(t, poison), memory(t, poison), memory(t, poison), memory(t, poison)});
  const Function g = block_kernel("kept_" + std::string(dtype_name(t)), {40}, [&] {
    auto a = buffer_param("a", t, Access::read);
    auto x = buffer_param("x", t, Access::read_write);
    const DType c = t == DType::f16 || t == DType::bf16 ? DType::f32 : t;  // 16-bit floats compute as f32
    auto v = cast(c, a.load(global_id()));
    auto array = local_array(c, 3);
    array.store(global_id() % 3, v);
    barrier();
    Variable last(c, v);
    barrier();
    if_(global_id() % 2 == 0, [&] { last.set(array.load(global_id() % 3)); });
    barrier();
    x.store(global_id(), cast(t, select(global_id() % 5 == 0, array.load(1), last.get())));
  });
  expect_same(g, {3, 1, 1}, {memory(t, values(t, 120, random)), memory(t, values(t, 120, random))});
}

INSTANTIATE_TEST_SUITE_P(DTypes, CpuValues, ::testing::ValuesIn(storable_dtypes),
                         [](const auto& info) { return std::string(dtype_name(info.param)); });

class CpuMath : public CpuValues {};

TEST_P(CpuMath, EveryFunction) {
  const DType t = GetParam();
  std::vector<Operation> exact, close;
  for (int k = 0; k < static_cast<int>(MathOp::count_); ++k) {
    const auto op = static_cast<MathOp>(k);
    const bool rounded = op == MathOp::fma || op == MathOp::sqrt || (op >= MathOp::floor && op <= MathOp::rint);
    (rounded ? exact : close).push_back({std::string(name_of(op)), [=](Value a, Value b) {
                                           if (op == MathOp::fma) return fma(a, b, a + b);
                                           if (op == MathOp::pow) return pow(abs(a), b);
                                           if (op == MathOp::sin || op == MathOp::cos)
                                             a = select(abs(a) < 1e5f, a, b * 0.0f);
                                           return math(op, a);
                                         }});
  }
  check(t, t, exact);
  // Expansions of f32 are within a few units in the last place; below the smallest normal number any of them may give
  // 0.
  check(t, t, close, t == DType::f32 ? Tolerance{1e-6, 1e-37} : Tolerance{1e-14, 1e-300});
}
INSTANTIATE_TEST_SUITE_P(Floats, CpuMath, ::testing::Values(DType::f32, DType::f64),
                         [](const auto& info) { return std::string(dtype_name(info.param)); });

TEST_F(CpuValues, Dot4) {
  for (auto signs : {Dot4Signs::signed_signed, Dot4Signs::unsigned_signed, Dot4Signs::unsigned_unsigned}) {
    const std::size_t n = 1000;
    const Function f = map_kernel("dot4", [&] {
      auto a = buffer_param("a", DType::u32, Access::read), b = buffer_param("b", DType::u32, Access::read);
      auto c = buffer_param("c", DType::i32, Access::read_write), d = buffer_param("d", DType::i32, Access::read_write);
      auto i = global_id();
      c.store(i, dot4(signs, a.load(i), b.load(i), c.load(i)));
      d.store(i, dot4(signs, a.load(global_id(1)), b.load(global_id(1)), d.load(i)) +
                     dot4(signs, a.load(3), b.load(i), literal(DType::i32, 9)));
    });
    std::vector<std::uint32_t> a(n), b(n);
    for (auto* v : {&a, &b})
      for (auto& e : *v)
        e = random() % 3 ? random() : std::array<std::uint32_t, 4>{0x80808080u, 0x7f7f7f7fu, ~0u, 0}[random() % 4];
    const std::vector<std::int32_t> c(n, 12345);
    std::vector<std::int32_t> d(n, -7);
    expect_same(f, {n, 1, 1}, {memory(a), memory(b), memory(c), memory(d)});
  }
}

}  // namespace
}  // namespace tessera::testing
