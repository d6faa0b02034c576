// SPDX-License-Identifier: Apache-2.0
// Every pure operation on every dtype it takes, on special and random values, against ir/semantics.h: equal bit for bit
// wherever IEEE 754 or integer arithmetic says what is right, within a stated bound for functions.
#include "opencl_fixture.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "tessera/ir/semantics.h"

namespace tessera::testing_opencl {
namespace {

using namespace ir;

template <class T>
std::vector<T> special_values() {
  using L = std::numeric_limits<T>;
  if constexpr (std::is_same_v<T, bool>)
    return {false, true};
  else if constexpr (std::is_floating_point_v<T>)
    return {T(0),
            T(-0.0),
            T(1),
            T(-1),
            T(0.5),
            T(-1.5),
            T(2.5),
            T(3.5),
            T(127.5),
            T(-128.5),
            T(300),
            T(-300),
            T(32768),
            T(65536.5),
            T(2147483648.0),
            T(-2147483648.0),
            T(4294967296.0),
            T(9223372036854775808.0),
            T(-9223372036854775808.0),
            T(18446744073709551616.0),
            T(1e30),
            L::max(),
            L::lowest(),
            L::min(),
            L::denorm_min(),
            -L::denorm_min(),
            L::infinity(),
            -L::infinity(),
            L::quiet_NaN(),
            L::epsilon()};
  else
    return {T(0),
            T(1),
            T(2),
            T(3),
            T(7),
            T(8),
            T(31),
            T(32),
            T(63),
            T(64),
            L::max(),
            T(L::max() - 1),
            L::min(),
            T(L::min() + 1),
            T(-1),
            T(-2),
            T(L::max() / 2 + 1)};
}
template <class T>
void operands_for(std::vector<T>& a, std::vector<T>& b, std::vector<T>& c) {
  std::mt19937_64 random(seed());
  const auto s = special_values<T>();
  for (T x : s)
    for (T y : s) a.push_back(x), b.push_back(y);
  for (int i = 0; i < 500; ++i) {
    auto draw = [&]() -> T {
      if constexpr (std::is_same_v<T, bool>)
        return random() & 1;
      else if constexpr (std::is_floating_point_v<T>)
        return static_cast<T>(std::ldexp(static_cast<double>(static_cast<std::int64_t>(random())),
                                         static_cast<int>(random() % 80) - 100));
      else
        return static_cast<T>(random() >> (random() % (8 * sizeof(T))));
    };
    a.push_back(draw()), b.push_back(draw());
  }
  for (std::size_t i = 0; i < a.size(); ++i) c.push_back(a[(i * 7 + 3) % a.size()]);
}
// In memory bool is one byte.
template <class T>
using Stored = std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, T>;
template <class T>
std::vector<Stored<T>> stored(const std::vector<T>& v) {
  return {v.begin(), v.end()};
}

template <class T>
bool same(T x, T y) {
  if constexpr (std::is_floating_point_v<T>) {
    if (x != x || y != y) return x != x && y != y;
    return std::memcmp(&x, &y, sizeof x) == 0 || (x == y && x == 0);  // min and max may give either zero
  } else {
    return x == y;
  }
}

class Semantics : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!device()) GTEST_SKIP() << "this machine has no OpenCL device (Debian: pocl-opencl-icd)";
  }
};
template <class T>
class OfType : public Semantics {};
using Types = ::testing::Types<bool, std::int8_t, std::uint8_t, std::int16_t, std::uint16_t, std::int32_t,
                               std::uint32_t, std::int64_t, std::uint64_t, float, double>;
struct TypeNames {
  template <class T>
  static std::string GetName(int) {
    return std::string(dtype_name(dtype_v<T>));
  }
};
TYPED_TEST_SUITE(OfType, Types, TypeNames);

TYPED_TEST(OfType, arithmetic_comparisons_and_selection) {
  using T = TypeParam;
  const DType t = dtype_v<T>;
  std::vector<T> a, b, c;
  operands_for(a, b, c);
  const std::size_t n = a.size();

  struct Result {
    std::string name;
    std::vector<T> right;
  };
  std::vector<Result> results;
  std::vector<std::pair<std::string, std::vector<bool>>> flags;
  const Function fn = trace("arithmetic_" + std::string(dtype_name(t)), [&] {
    const BufferRef pa = buffer_param("a", t, Access::read), pb = buffer_param("b", t, Access::read),
                    pc = buffer_param("c", t, Access::read);
    const BufferRef out = buffer_param("out", t, Access::read_write),
                    bits = buffer_param("bits", DType::boolean, Access::read_write);
    const Value count = scalar_param("count", DType::index);
    const Value i = global_id();
    const Value x = pa.load(i), y = pb.load(i), z = pc.load(i);
    auto result = [&](std::string name, Value v, auto compute) {
      Result r{std::move(name), {}};
      for (std::size_t k = 0; k < n; ++k) r.right.push_back(compute(a[k], b[k], c[k]));
      out.store(count * static_cast<std::int64_t>(results.size()) + i, v);
      results.push_back(std::move(r));
    };
    for (int k = 0; k < static_cast<int>(BinaryOp::count_); ++k) {
      const auto op = static_cast<BinaryOp>(k);
      const bool bitwise = op == BinaryOp::and_ || op == BinaryOp::or_ || op == BinaryOp::xor_;
      const bool shift = op == BinaryOp::shl || op == BinaryOp::shr;
      if (is_float(t) && (bitwise || shift || op == BinaryOp::mul_hi)) continue;
      if (t == DType::boolean && !bitwise) continue;
      if (op == BinaryOp::mul_hi && sizeof(T) < 4) continue;
      result(std::string(name_of(op)), binary(op, x, y), [&](T p, T q, T) { return apply(op, p, q); });
      // The same with constants on the right, which have their own paths: divisors and shifts.
      if constexpr (!std::is_same_v<T, bool>) {
        for (int constant : {0, 1, 3, 7, -1}) {
          const T q = static_cast<T>(constant);
          const Value right(Builder::current().constant(t, to_bits(t, q)));
          result(std::string(name_of(op)) + " by " + std::to_string(constant), binary(op, x, right),
                 [&](T p, T, T) { return apply(op, p, q); });
        }
      }
    }
    for (int k = 0; k < static_cast<int>(UnaryOp::count_); ++k) {
      const auto op = static_cast<UnaryOp>(k);
      if (t == DType::boolean ? op != UnaryOp::not_ : is_float(t) && op > UnaryOp::abs) continue;
      result(std::string(name_of(op)), unary(op, x), [&](T p, T, T) { return apply(op, p); });
    }
    result("select", select(pc.load(i) == z, select(x < y, x, y), y),
           [&](T p, T q, T r) { return r == r ? (p < q ? p : q) : q; });
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {  // chains wrap once, at the end or at each step
      result("chain", (x + y) * z - (x * x + 5) * (y - z), [](T p, T q, T r) {
        using W = ir::detail::wrap_of<T>;
        const W u = static_cast<W>(p), v = static_cast<W>(q), w = static_cast<W>(r);
        return static_cast<T>((u + v) * w - (u * u + 5) * (v - w));
      });
      result("chain of narrow parts", ((x + y) >> 1) / ((x - y) | 1), [](T p, T q, T) {
        return apply(BinaryOp::div, apply(BinaryOp::shr, apply(BinaryOp::add, p, q), T(1)),
                     static_cast<T>(apply(BinaryOp::sub, p, q) | 1));
      });
    }
    for (int k = 0; k < static_cast<int>(CompareOp::count_); ++k) {
      const auto op = static_cast<CompareOp>(k);
      bits.store(count * static_cast<std::int64_t>(flags.size()) + i, compare(op, x, y));
      std::vector<bool> right;
      for (std::size_t e = 0; e < n; ++e) right.push_back(apply(op, a[e], b[e]));
      flags.emplace_back(std::string(name_of(op)), right);
    }
    bits.store(count * static_cast<std::int64_t>(flags.size()) + i, ((x < y) || ((y < z) && (x != z))) != (x == y));
    std::vector<bool> right;
    for (std::size_t e = 0; e < n; ++e)
      right.push_back(((a[e] < b[e]) || (b[e] < c[e] && a[e] != c[e])) != (a[e] == b[e]));
    flags.emplace_back("logic", right);
  });
  const Memory<Stored<T>> da(stored(a)), db(stored(b)), dc(stored(c)), out(n * results.size());
  const Memory<std::uint8_t> bits(n * flags.size());
  run(fn, {n, 1, 1},
      {da.argument(), db.argument(), dc.argument(), out.argument(), bits.argument(),
       scalar(static_cast<std::int64_t>(n))});
  const auto got = out.read();
  for (std::size_t k = 0; k < results.size(); ++k)
    for (std::size_t i = 0; i < n; ++i) {
      const auto right = static_cast<Stored<T>>(results[k].right[i]);
      ASSERT_TRUE(same(got[k * n + i], right)) << results[k].name << " of " << +a[i] << " and " << +b[i] << " gives "
                                               << +got[k * n + i] << ", not " << +right;
    }
  const auto got_bits = bits.read();
  for (std::size_t k = 0; k < flags.size(); ++k)
    for (std::size_t i = 0; i < n; ++i)
      ASSERT_EQ(got_bits[k * n + i], flags[k].second[i] ? 1 : 0)
          << flags[k].first << " of " << +a[i] << " and " << +b[i];
}

TYPED_TEST(OfType, conversions_to_every_dtype) {
  using T = TypeParam;
  const DType from = dtype_v<T>;
  std::vector<T> a, b, c;
  operands_for(a, b, c);
  const std::size_t n = a.size();
  const Function fn = trace("convert_" + std::string(dtype_name(from)), [&] {
    const BufferRef x = buffer_param("x", from, Access::read);
    std::vector<BufferRef> outs;
    for (DType to : storable_dtypes)
      outs.push_back(buffer_param("to_" + std::string(dtype_name(to)), to, Access::read_write));
    const Value v = x.load(global_id());
    for (std::size_t k = 0; k < outs.size(); ++k) outs[k].store(global_id(), cast(storable_dtypes[k], v));
  });
  const Memory<Stored<T>> x(stored(a));
  std::vector<std::unique_ptr<Memory<std::uint64_t>>> outs;
  std::vector<Argument> arguments = {x.argument()};
  for (DType to : storable_dtypes) {
    outs.push_back(std::make_unique<Memory<std::uint64_t>>(n));
    arguments.push_back({&outs.back()->allocation(), 0, n});
    (void)to;
  }
  const auto kernel = compile(fn);
  queue().launch(*kernel, {n, 1, 1}, arguments);
  queue().finish();
  for (std::size_t k = 0; k < outs.size(); ++k) {
    const DType to = storable_dtypes[k];
    const auto raw = outs[k]->read();
    const auto* bytes = reinterpret_cast<const std::byte*>(raw.data());
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t size = dtype_size(to);
      std::uint64_t got = 0;
      std::memcpy(&got, bytes + i * size, size);
      if (is_float(to)) {
        float right16 = 0;
        double right = 0, value = 0;
        if (to == DType::f16)
          right16 = half_value(half_bits(convert<float>(a[i]))), value = half_value(static_cast<std::uint16_t>(got)),
          right = right16;
        else if (to == DType::bf16)
          right16 = bfloat16_value(bfloat16_bits(convert<float>(a[i]))),
          value = bfloat16_value(static_cast<std::uint16_t>(got)), right = right16;
        else if (to == DType::f32)
          right = convert<float>(a[i]), value = std::bit_cast<float>(static_cast<std::uint32_t>(got));
        else
          right = convert<double>(a[i]), value = std::bit_cast<double>(got);
        ASSERT_TRUE(same(value, right)) << dtype_name(from) << " " << +a[i] << " as " << dtype_name(to) << " is "
                                        << value << ", not " << right;
        continue;
      }
      const std::uint64_t mask = size == 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << (8 * size)) - 1;
      const std::uint64_t right =
          with_compute_type(to, [&](auto tag) { return to_bits(to, convert<decltype(tag)>(a[i])); }) & mask;
      ASSERT_EQ(got, right) << dtype_name(from) << " " << +a[i] << " as " << dtype_name(to);
    }
  }
}

TEST_F(Semantics, bit_casts_between_types_of_one_size) {
  const std::vector<std::vector<DType>> groups = {{DType::i8, DType::u8},
                                                  {DType::i16, DType::u16, DType::f16, DType::bf16},
                                                  {DType::i32, DType::u32, DType::f32},
                                                  {DType::i64, DType::u64, DType::f64}};
  std::mt19937_64 random(seed());
  for (const auto& group : groups)
    for (DType from : group) {
      const std::size_t n = 100, size = dtype_size(from);
      const Function fn = trace("bits_of_" + std::string(dtype_name(from)), [&] {
        const BufferRef x = buffer_param("x", from, Access::read);
        std::vector<BufferRef> outs;
        for (DType to : group) outs.push_back(buffer_param("o" + std::string(dtype_name(to)), to, Access::read_write));
        const Value v = x.load(global_id());
        for (std::size_t k = 0; k < group.size(); ++k) outs[k].store(global_id(), bitcast(group[k], v));
      });
      std::vector<std::uint8_t> bytes(n * size);
      for (auto& v : bytes) v = static_cast<std::uint8_t>(random());
      if (is_float(from))  // a signalling NaN may become a quiet one on its way
        for (std::size_t i = 0; i < n; ++i) bytes[i * size + size - 1] &= 0xbf;
      const Memory<std::uint8_t> x(bytes);
      std::vector<std::unique_ptr<Memory<std::uint8_t>>> outs;
      std::vector<Argument> arguments = {x.argument()};
      for (std::size_t k = 0; k < group.size(); ++k) {
        outs.push_back(std::make_unique<Memory<std::uint8_t>>(n * size));
        arguments.push_back(outs.back()->argument());
      }
      const auto kernel = compile(fn);
      queue().launch(*kernel, {n, 1, 1}, arguments);
      for (std::size_t k = 0; k < group.size(); ++k)
        ASSERT_EQ(outs[k]->read(), bytes) << dtype_name(from) << " to " << dtype_name(group[k]);
    }
}

TEST_F(Semantics, sixteen_bit_floats_from_memory_to_memory) {
  for (const DType type : {DType::f16, DType::bf16}) {
    const Function fn = trace("halves", [&] {
      const BufferRef h = buffer_param("h", type, Access::read), f = buffer_param("f", DType::f32, Access::read_write);
      const BufferRef g = buffer_param("g", DType::f32, Access::read),
                      back = buffer_param("back", type, Access::read_write);
      f.store(global_id(), cast(DType::f32, h.load(global_id())));
      back.store(global_id(), g.load(global_id()));
    });
    std::mt19937_64 random(seed());
    std::vector<std::uint16_t> h(65536);
    std::vector<float> g(65536);
    for (std::size_t i = 0; i < h.size(); ++i) {
      h[i] = static_cast<std::uint16_t>(i);
      g[i] = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
      if (i % 2)
        g[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(half_value(static_cast<std::uint16_t>(random()))) +
                                    0x1000u + static_cast<std::uint32_t>(random() % 3) - 1u);
    }
    const Memory<std::uint16_t> dh(h), back(h.size());
    const Memory<float> dg(g), f(h.size());
    run(fn, {h.size(), 1, 1}, {dh.argument(), f.argument(), dg.argument(), back.argument()});
    const auto got = f.read();
    const auto bits = back.read();
    for (std::size_t i = 0; i < h.size(); ++i) {
      ASSERT_TRUE(same(got[i], type == DType::f16 ? half_value(h[i]) : bfloat16_value(h[i])))
          << dtype_name(type) << " " << h[i];
      const std::uint16_t right = type == DType::f16 ? half_bits(g[i]) : bfloat16_bits(g[i]);
      const float x = type == DType::f16 ? half_value(bits[i]) : bfloat16_value(bits[i]),
                  y = type == DType::f16 ? half_value(right) : bfloat16_value(right);
      ASSERT_TRUE(same(x, y)) << dtype_name(type) << " of " << g[i];
    }
  }
}

TEST_F(Semantics, functions_of_floats) {
  auto test = [&]<class T>(T) {
    const DType t = dtype_v<T>;
    std::mt19937_64 random(seed());
    std::vector<T> a = special_values<T>(), b = a, c;
    std::uniform_real_distribution<double> d(-12, 12);
    for (int i = 0; i < 4000; ++i) a.push_back(static_cast<T>(d(random))), b.push_back(static_cast<T>(d(random)));
    for (std::size_t i = 0; i < a.size(); ++i) c.push_back(b[(i * 13 + 5) % b.size()]);
    std::erase_if(
        a, [](T v) { return std::abs(v) > 1e5 && std::abs(v) < std::numeric_limits<T>::infinity(); });  // sine's range
    const std::size_t n = a.size();
    const auto count = static_cast<std::int64_t>(n);
    const Function fn = trace("functions", [&] {
      const BufferRef x = buffer_param("x", t, Access::read), y = buffer_param("y", t, Access::read),
                      z = buffer_param("z", t, Access::read);
      const BufferRef out = buffer_param("out", t, Access::read_write);
      const Value i = global_id();
      for (int k = 0; k < static_cast<int>(MathOp::count_); ++k) {
        const auto op = static_cast<MathOp>(k);
        const Value v = op == MathOp::fma   ? fma(x.load(i), y.load(i), z.load(i))
                        : op == MathOp::pow ? pow(x.load(i), y.load(i))
                                            : math(op, x.load(i));
        out.store(k * count + i, v);
      }
    });
    const Memory<T> da(a), db(b), dc(c), out(n * static_cast<std::size_t>(MathOp::count_));
    run(fn, {n, 1, 1}, {da.argument(), db.argument(), dc.argument(), out.argument()});
    const auto got = out.read();
    for (int k = 0; k < static_cast<int>(MathOp::count_); ++k) {
      const auto op = static_cast<MathOp>(k);
      const bool exact = op == MathOp::fma || op == MathOp::sqrt || (op >= MathOp::floor && op <= MathOp::rint);
      for (std::size_t i = 0; i < n; ++i) {
        const T g = got[static_cast<std::size_t>(k) * n + i];
        const T right = apply(op, a[i], b[i], c[i]);
        const double error = std::abs(static_cast<double>(g) - static_cast<double>(right));
        const double unit = std::max(std::abs(static_cast<double>(right)) * std::numeric_limits<T>::epsilon(),
                                     double{std::numeric_limits<T>::denorm_min()});
        ASSERT_TRUE(same(g, right) || (!exact && error <= 4 * unit))
            << name_of(op) << " of " << a[i] << ", " << b[i] << ", " << c[i] << " gives " << g << ", not " << right;
      }
    }
  };
  test(float{});
  if (device()->info().can.f64) test(double{});
}

TEST_F(Semantics, dot4_vectors_and_masked_loads) {
  const std::size_t n = 200;
  std::mt19937_64 random(seed());
  std::vector<std::uint32_t> a(n), b(n);
  std::vector<std::int32_t> c(n);
  for (std::size_t i = 0; i < n; ++i)
    a[i] = static_cast<std::uint32_t>(random()), b[i] = static_cast<std::uint32_t>(random()),
    c[i] = static_cast<std::int32_t>(random());
  a[0] = b[0] = 0x80808080u;
  const Function dot = trace("dot", [] {
    const BufferRef x = buffer_param("x", DType::u32, Access::read), y = buffer_param("y", DType::u32, Access::read),
                    z = buffer_param("z", DType::i32, Access::read);
    const BufferRef out = buffer_param("out", DType::i32, Access::read_write);
    const Value i = global_id();
    for (int k = 0; k < 3; ++k) out.store(i * 3 + k, dot4(static_cast<Dot4Signs>(k), x.load(i), y.load(i), z.load(i)));
  });
  const Memory<std::uint32_t> da(a), db(b);
  const Memory<std::int32_t> dc(c), out(3 * n);
  run(dot, {n, 1, 1}, {da.argument(), db.argument(), dc.argument(), out.argument()});
  const auto got = out.read();
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t k = 0; k < 3; ++k) ASSERT_EQ(got[3 * i + k], apply(static_cast<Dot4Signs>(k), a[i], b[i], c[i]));

  // Vectors of every dtype and length, from unaligned places; loads whose mask is false touch nothing.
  for (DType t : storable_dtypes) {
    const std::size_t size = dtype_size(t);
    std::vector<std::uint8_t> bytes((n * 4 + 1) * size);
    for (auto& v : bytes) v = static_cast<std::uint8_t>(t == DType::boolean ? random() & 1 : random());
    const Memory<std::uint8_t> x(bytes), y2(n * 2 * size), y3(n * 3 * size), y4(n * 4 * size);
    const Function fn = trace("reverse_" + std::string(dtype_name(t)), [&] {
      const BufferRef in = buffer_param("x", t, Access::read);
      const Value i = global_id();
      for (std::uint8_t lanes : {2, 3, 4}) {
        const BufferRef y = buffer_param("y" + std::to_string(lanes), t, Access::read_write);
        const Value v = in.load_vector(i * lanes + 1, lanes), w = in.load_vector(i * lanes, lanes);
        const Value last = in.load_if(i + 1 < extent(), (i + 1) * lanes, extract(w, 0));
        std::vector<NodeId> e;
        for (std::uint8_t l = 0; l < lanes; ++l) e.push_back(extract(v, lanes - 1u - l).id());
        e[0] = last.id();
        y.store(i * lanes, select(i % 2 == 0, Value(Builder::current().make_vector(e)), w));
      }
    });
    run(fn, {n, 1, 1}, {x.argument(), y2.argument(), y3.argument(), y4.argument()});
    for (std::size_t lanes : {2u, 3u, 4u}) {
      const auto result = (lanes == 2 ? y2 : lanes == 3 ? y3 : y4).read();
      for (std::size_t i = 0; i < n; ++i)
        for (std::size_t l = 0; l < lanes; ++l) {
          std::size_t from = i * lanes + l;
          if (i % 2 == 0) from = l == 0 ? (i + 1 < n ? (i + 1) * lanes : i * lanes) : i * lanes + 1 + (lanes - 1 - l);
          ASSERT_TRUE(std::equal(bytes.begin() + static_cast<std::ptrdiff_t>(from * size),
                                 bytes.begin() + static_cast<std::ptrdiff_t>((from + 1) * size),
                                 result.begin() + static_cast<std::ptrdiff_t>((i * lanes + l) * size)))
              << dtype_name(t) << "x" << lanes << " at " << i << ", " << l;
        }
    }
  }
}

TEST_F(Semantics, scalars_locals_and_shared_memory_of_every_dtype) {
  for (DType t : storable_dtypes) {
    const std::size_t size = dtype_size(t);
    const bool half = t == DType::f16 || t == DType::bf16;
    const Function fn = trace_block("places_" + std::string(dtype_name(t)), {16, 1, 1}, [&] {
      const BufferRef y = buffer_param("y", t, Access::read_write);
      const Value a = scalar_param("a", t);
      const BufferRef s = shared(t, 16);
      const Value i = thread_id();
      if (!half) {
        const BufferRef many = local_array(t, 4);
        many.store(i % 4, a);
        const Variable one(t, many.load(i % 4));
        s.store((i + 1) % 16, one.get());
        barrier();
        y.store(global_id(), select(i == 3, many.load((i + 1) % 4), s.load(i)));  // the untouched ones are zero
      } else {
        s.store((i + 1) % 16, a);
        barrier();
        y.store(global_id(), s.load(i));
      }
    });
    std::uint64_t bits = with_compute_type(
        t, [&](auto tag) { return to_bits(t, static_cast<decltype(tag)>(t == DType::boolean ? 1 : 77)); });
    const Memory<std::uint8_t> y(32 * size);
    Argument a;
    a.bits = bits;
    run(fn, {2, 1, 1}, {y.argument(), a});
    const auto got = y.read();
    for (std::size_t i = 0; i < 32; ++i) {
      std::uint64_t v = 0, right = !half && i % 16 == 3 ? 0 : bits;
      std::memcpy(&v, got.data() + i * size, size);
      if (size < 8) right &= (std::uint64_t{1} << (8 * size)) - 1;
      ASSERT_EQ(v, right) << dtype_name(t) << " at " << i;
    }
  }
}

TEST_F(Semantics, loops_over_counters_of_every_integer_type_end_where_they_should) {
  for (DType t : {DType::i8, DType::u8, DType::i16, DType::u16, DType::i32, DType::u32, DType::i64, DType::u64})
    with_compute_type(t, [&](auto tag) {
      using T = decltype(tag);
      if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
        const T most = std::numeric_limits<T>::max();
        const Function fn = trace("count_" + std::string(dtype_name(t)), [&] {
          const BufferRef n = buffer_param("n", DType::i32, Access::read_write),
                          bounds = buffer_param("bounds", t, Access::read);
          const Value i = global_id();
          for_(bounds.load(3 * i), bounds.load(3 * i + 1), bounds.load(3 * i + 2),
               [&](Value) { n.store(i, n.load(i) + 1); });
        });
        const std::vector<T> bounds = {T(most - 5),
                                       most,
                                       T(4),
                                       T(most - 5),
                                       most,
                                       T(1),
                                       0,
                                       most,
                                       T(most / 2 + 1),
                                       5,
                                       5,
                                       1,
                                       9,
                                       5,
                                       1,
                                       0,
                                       10,
                                       3,
                                       std::numeric_limits<T>::min(),
                                       most,
                                       T(most / 2 + 1)};
        const std::size_t rows = bounds.size() / 3;
        const Memory<T> b(bounds);
        const Memory<std::int32_t> n(std::vector<std::int32_t>(rows, 0));
        run(fn, {rows, 1, 1}, {n.argument(), b.argument()});
        std::vector<std::int32_t> right;
        for (std::size_t i = 0; i < rows; ++i) {
          std::int32_t rounds = 0;
          __extension__ using Wide = __int128;
          for (Wide k = bounds[3 * i]; k < bounds[3 * i + 1]; k += bounds[3 * i + 2]) ++rounds;
          right.push_back(rounds);
        }
        EXPECT_EQ(n.read(), right) << dtype_name(t);
      }
    });
}

TEST_F(Semantics, print_works) {
  const Function fn = trace("say", [] {
    const BufferRef x = buffer_param("x", DType::f32, Access::read_write);
    print("value {} of 100% at \"{}\"", {x.load(global_id()), global_id()});
    x.store(global_id(), 1.0);
  });
  const Memory<float> x(std::vector<float>{0.5f});
  ::testing::internal::CaptureStdout();
  run(fn, {1, 1, 1}, {x.argument()});
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "value 0.5 of 100% at \"0\"\n");
}

}  // namespace
}  // namespace tessera::testing_opencl
