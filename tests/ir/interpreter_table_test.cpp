// SPDX-License-Identifier: Apache-2.0
// Runs every operation on every dtype that the builder accepts, with special and random values. The results are
// compared with an independent implementation: integers exactly in 128 bits, floats in long double. The table also
// lists the combinations that the builder must reject. This tests ir/semantics.h; node_table_test covers other nodes
// and devices.
#include "tests/ir/interpreter_helpers.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>

#include "tests/support/exact_math.h"

namespace tessera::ir {
namespace {

using namespace test;

__extension__ using Wide = __int128;
__extension__ using UnsignedWide = unsigned __int128;

template <class T>
constexpr bool real = std::is_floating_point_v<T>;
template <class T>
constexpr bool small = std::is_same_v<T, half> || std::is_same_v<T, bfloat16>;
template <class T>
constexpr bool boolean = std::is_same_v<T, bool>;

/// Returns the low bits of an exact integer.
template <class T>
T low(Wide v) {
  if constexpr (boolean<T>) {
    return v != 0;
  } else {
    T out;
    const UnsignedWide bits = static_cast<UnsignedWide>(v);
    std::memcpy(&out, &bits, sizeof(T));
    return out;
  }
}

/// The storage type: a byte for bool, otherwise T.
template <class T>
using Stored = std::conditional_t<boolean<T>, std::uint8_t, T>;
template <class T>
Stored<T> random_bits(std::mt19937_64& rng) {
  if constexpr (boolean<T>) {
    return rng() & 1;
  } else {
    const std::uint64_t bits = rng();
    std::array<std::byte, sizeof(T)> bytes;
    std::memcpy(bytes.data(), &bits, sizeof(T));
    return std::bit_cast<T>(bytes);
  }
}
template <class T>
std::vector<Stored<T>> values(std::mt19937_64& rng) {
  std::vector<Stored<T>> v;
  if constexpr (boolean<T>) {
    v = {0, 1};
  } else if constexpr (real<T>) {
    using L = std::numeric_limits<T>;
    v = {0,
         -T(0),
         1,
         -1,
         T(0.5),
         T(-1.5),
         T(2.5),
         T(3.5),
         L::max(),
         L::lowest(),
         L::min(),
         L::denorm_min(),
         L::infinity(),
         -L::infinity(),
         L::quiet_NaN(),
         T(127.5),
         T(255.9),
         T(-128.9),
         T(65504),
         T(2147483647),
         T(-2147483648.0),
         T(4294967295.0),
         T(9.3e18),
         T(-9.3e18),
         T(1.9e19)};
    for (int k = 0; k < 40; ++k) v.push_back(static_cast<T>(std::uniform_real_distribution<double>(-100, 100)(rng)));
    for (int k = 0; k < 40; ++k) v.push_back(random_bits<T>(rng));
  } else if constexpr (small<T>) {
    for (const float f : {0.f, -0.f, 1.f, -1.f, 65504.f, 1e-7f, -300.5f, 1e30f, std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()})
      v.push_back(T(f));
    for (int k = 0; k < 60; ++k) v.push_back(random_bits<T>(rng));
  } else {
    using L = std::numeric_limits<T>;
    v = {0,
         1,
         static_cast<T>(-1),
         2,
         3,
         7,
         8,
         static_cast<T>(-2),
         L::max(),
         L::min(),
         static_cast<T>(L::max() - 1),
         static_cast<T>(L::min() + 1),
         static_cast<T>(8 * sizeof(T) - 1),
         static_cast<T>(8 * sizeof(T)),
         static_cast<T>(8 * sizeof(T) + 1),
         static_cast<T>(L::max() / 2)};
    for (int k = 0; k < 30; ++k) v.push_back(random_bits<T>(rng));
    for (int k = 0; k < 10; ++k) v.push_back(static_cast<T>(rng() % 20));
  }
  return v;
}
template <class T>
InterpreterArgument memory(std::vector<Stored<T>>& v) {
  return {reinterpret_cast<std::byte*>(v.data()), v.size(), 0};
}
/// Returns all pairs of the values, as two columns.
template <class T>
std::pair<std::vector<Stored<T>>, std::vector<Stored<T>>> pairs(std::mt19937_64& rng) {
  const auto v = values<T>(rng);
  std::pair<std::vector<Stored<T>>, std::vector<Stored<T>>> out;
  for (const auto& a : v)
    for (const auto& b : v) out.first.push_back(a), out.second.push_back(b);
  return out;
}

/// Compares values. NaN equals NaN. If `zeros` is set, 0 equals -0.
template <class T>
bool alike(T a, T b, bool zeros) {
  if constexpr (real<T>) {
    if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
    return a == b && (zeros || std::signbit(a) == std::signbit(b));
  } else if constexpr (small<T>) {
    return alike(static_cast<float>(a), static_cast<float>(b), zeros);
  } else {
    return a == b;
  }
}
template <class T>
std::string shown(T v) {
  if constexpr (small<T>)
    return std::to_string(static_cast<float>(v));
  else
    return std::to_string(v);
}

// Returns a kernel that computes f(x[i], y[i]), or nullopt if the builder rejects it.
std::optional<Function> traced(const std::string& name, const std::function<void()>& body) {
  try {
    return map_kernel(name, body);
  } catch (const KernelError&) {
    return std::nullopt;
  }
}

/// The dtypes of a test case. `index` is loaded and stored through a cast, and tested with 32 and 64 bits.
struct Kind {
  DType compute, buffer;
  bool index64 = false;
  std::string name() const {
    return compute == DType::index ? (index64 ? "index64" : "index32") : std::string(dtype_name(compute));
  }
};
template <class T>
std::vector<Kind> kinds() {
  std::vector<Kind> k = {{dtype_v<T>, dtype_v<T>}};
  if (std::is_same_v<T, std::int32_t>) k.push_back({DType::index, DType::i32, false});
  if (std::is_same_v<T, std::int64_t>) k.push_back({DType::index, DType::i64, true});
  return k;
}
Value into(Value v, DType t) { return v.dtype() == t ? v : cast(t, v); }

template <class T>
class Table : public testing::Test {
 protected:
  std::mt19937_64 rng{test_seed()};
};
using Computed = testing::Types<bool, std::int8_t, std::uint8_t, std::int16_t, std::uint16_t, std::int32_t,
                                std::uint32_t, std::int64_t, std::uint64_t, float, double>;
using Storable = testing::Types<bool, std::int8_t, std::uint8_t, std::int16_t, std::uint16_t, std::int32_t,
                                std::uint32_t, std::int64_t, std::uint64_t, half, bfloat16, float, double>;
TYPED_TEST_SUITE(Table, Computed);

template <class T>
std::optional<T> expected_binary(BinaryOp op, T a, T b, bool index) {
  if constexpr (boolean<T>) {
    switch (op) {
      case BinaryOp::and_: return a & b;
      case BinaryOp::or_: return a | b;
      case BinaryOp::xor_: return a ^ b;
      default: return std::nullopt;
    }
  } else if constexpr (real<T>) {
    switch (op) {
      case BinaryOp::add: return a + b;
      case BinaryOp::sub: return a - b;
      case BinaryOp::mul: return a * b;
      case BinaryOp::div: return a / b;
      case BinaryOp::rem: return std::fmod(a, b);
      case BinaryOp::min: return std::isnan(a) ? b : std::isnan(b) ? a : a < b ? a : b;
      case BinaryOp::max: return std::isnan(a) ? b : std::isnan(b) ? a : a < b ? b : a;
      default: return std::nullopt;
    }
  } else {
    const Wide x = a, y = b;
    const int width = 8 * sizeof(T), shift = static_cast<int>(((y % width) + width) % width);
    switch (op) {
      case BinaryOp::add: return low<T>(x + y);
      case BinaryOp::sub: return low<T>(x - y);
      case BinaryOp::mul: return low<T>(static_cast<Wide>(static_cast<UnsignedWide>(x) * static_cast<UnsignedWide>(y)));
      case BinaryOp::div: return low<T>(y == 0 ? 0 : x / y);
      case BinaryOp::rem: return low<T>(y == 0 ? 0 : x % y);
      case BinaryOp::min: return x < y ? a : b;
      case BinaryOp::max: return x < y ? b : a;
      case BinaryOp::and_: return low<T>(x & y);
      case BinaryOp::or_: return low<T>(x | y);
      case BinaryOp::xor_: return low<T>(x ^ y);
      case BinaryOp::shl: return low<T>(static_cast<Wide>(static_cast<UnsignedWide>(x) << shift));
      case BinaryOp::shr: {  // rounds towards negative infinity
        const Wide by = Wide{1} << shift;
        return low<T>(x >= 0 ? x / by : -((-x + by - 1) / by));
      }
      case BinaryOp::mul_hi:
        if (width < 32 || index) return std::nullopt;
        if (std::is_signed_v<T>) return low<T>((x * y) >> width);
        return low<T>(static_cast<Wide>((static_cast<UnsignedWide>(x) * static_cast<UnsignedWide>(y)) >> width));
      default: return std::nullopt;
    }
  }
}
TYPED_TEST(Table, BinaryOperationsMatchTheReference) {
  using T = TypeParam;
  auto [x, y] = pairs<T>(this->rng);
  for (const Kind& kind : kinds<T>())
    for (int o = 0; o < static_cast<int>(BinaryOp::count_); ++o) {
      const BinaryOp op = static_cast<BinaryOp>(o);
      const std::string name = std::string(name_of(op)) + " of " + kind.name();
      auto fn = traced(name, [&] {
        BufferRef a = in("a", kind.buffer), b = in("b", kind.buffer), c = out("c", kind.buffer);
        Value i = global_id();
        c.store(i, into(binary(op, into(a.load(i), kind.compute), into(b.load(i), kind.compute)), kind.buffer));
      });
      const bool index = kind.compute == DType::index;
      ASSERT_EQ(fn.has_value(), expected_binary<T>(op, T(1), T(1), index).has_value()) << name;
      if (!fn) continue;
      fn->index64 = kind.index64;
      std::vector<Stored<T>> z(x.size(), Stored<T>(9));
      run(*fn, {x.size(), 1, 1}, {memory<T>(x), memory<T>(y), memory<T>(z)});
      for (std::size_t i = 0; i < z.size(); ++i) {
        const T e = *expected_binary<T>(op, static_cast<T>(x[i]), static_cast<T>(y[i]), index);
        ASSERT_TRUE(alike<T>(static_cast<T>(z[i]), e, op == BinaryOp::min || op == BinaryOp::max))
            << name << "(" << shown(x[i]) << ", " << shown(y[i]) << ") = " << shown(z[i]) << ", not " << shown(e);
      }
    }
}

template <class T>
std::optional<T> expected_unary(UnaryOp op, T a, bool index) {
  if constexpr (boolean<T>) {
    return op == UnaryOp::not_ ? std::optional<T>(!a) : std::nullopt;
  } else if constexpr (real<T>) {
    if (op == UnaryOp::neg) return T(-1) * a;
    if (op == UnaryOp::abs) return std::signbit(a) ? -a : a;
    return std::nullopt;
  } else {
    const Wide x = a;
    int ones = 0, zeros = 0;
    for (int bit = 0; bit < 8 * int(sizeof(T)); ++bit) {
      const bool set = (x >> bit) & 1;
      ones += set;
      zeros = set ? 0 : zeros + 1;
    }
    switch (op) {
      case UnaryOp::neg: return low<T>(-x);
      case UnaryOp::abs: return low<T>(x < 0 ? -x : x);
      case UnaryOp::not_: return low<T>(-x - 1);
      case UnaryOp::popcount: return index ? std::nullopt : std::optional<T>(ones);
      case UnaryOp::clz: return index ? std::nullopt : std::optional<T>(zeros);
      default: return std::nullopt;
    }
  }
}
TYPED_TEST(Table, UnaryOperationsMatchTheReference) {
  using T = TypeParam;
  auto x = values<T>(this->rng);
  for (const Kind& kind : kinds<T>())
    for (int o = 0; o < static_cast<int>(UnaryOp::count_); ++o) {
      const UnaryOp op = static_cast<UnaryOp>(o);
      const std::string name = std::string(name_of(op)) + " of " + kind.name();
      auto fn = traced(name, [&] {
        BufferRef a = in("a", kind.buffer), c = out("c", kind.buffer);
        c.store(global_id(), into(unary(op, into(a.load(global_id()), kind.compute)), kind.buffer));
      });
      const bool index = kind.compute == DType::index;
      ASSERT_EQ(fn.has_value(), expected_unary<T>(op, T(1), index).has_value()) << name;
      if (!fn) continue;
      fn->index64 = kind.index64;
      std::vector<Stored<T>> z(x.size(), Stored<T>(9));
      run(*fn, {x.size(), 1, 1}, {memory<T>(x), memory<T>(z)});
      for (std::size_t i = 0; i < z.size(); ++i) {
        const T e = *expected_unary<T>(op, static_cast<T>(x[i]), index);
        ASSERT_TRUE(alike<T>(static_cast<T>(z[i]), e, false))
            << name << "(" << shown(x[i]) << ") = " << shown(z[i]) << ", not " << shown(e);
      }
    }
}
TYPED_TEST(Table, ComparisonsMatchTheReference) {
  using T = TypeParam;
  auto [x, y] = pairs<T>(this->rng);
  for (const Kind& kind : kinds<T>())
    for (int o = 0; o < static_cast<int>(CompareOp::count_); ++o) {
      const CompareOp op = static_cast<CompareOp>(o);
      Function fn = map_kernel(std::string(name_of(op)), [&] {
        BufferRef a = in("a", kind.buffer), b = in("b", kind.buffer), c = out("c", DType::boolean);
        Value i = global_id();
        c.store(i, compare(op, into(a.load(i), kind.compute), into(b.load(i), kind.compute)));
      });
      fn.index64 = kind.index64;
      std::vector<std::uint8_t> z(x.size(), 9);
      run(fn, {x.size(), 1, 1}, {memory<T>(x), memory<T>(y), memory<bool>(z)});
      for (std::size_t i = 0; i < z.size(); ++i) {
        const T a = static_cast<T>(x[i]), b = static_cast<T>(y[i]);
        const bool less = a<b, more = a> b, same = !less && !more && a == a && b == b;
        const bool e = op == CompareOp::eq   ? same
                       : op == CompareOp::ne ? !same
                       : op == CompareOp::lt ? less
                       : op == CompareOp::le ? less || same
                       : op == CompareOp::gt ? more
                                             : more || same;
        ASSERT_EQ(z[i], e) << name_of(op) << " of " << kind.name() << ": " << shown(x[i]) << ", " << shown(y[i]);
      }
    }
}

// The builder rejects dtypes other than f32 and f64.
TYPED_TEST(Table, MathFunctionsMatchTheReference) {
  using T = TypeParam;
  auto [x, y] = pairs<T>(this->rng);
  if constexpr (real<T>)  // C does not specify signalling NaNs (Annex F.2.1); adding 0 makes them quiet
    for (auto* column : {&x, &y})
      for (T& v : *column)
        if (std::isnan(v)) v += v;
  for (int o = 0; o < static_cast<int>(MathOp::count_); ++o) {
    const MathOp op = static_cast<MathOp>(o);
    auto fn = traced(std::string(name_of(op)), [&] {
      BufferRef a = in("a", dtype_v<T>), b = in("b", dtype_v<T>), c = out("c", dtype_v<T>);
      Value i = global_id(), v = a.load(i), w = b.load(i);
      c.store(i, op == MathOp::fma ? fma(v, w, v) : operand_count(op) == 2 ? math(op, v, w) : math(op, v));
    });
    ASSERT_EQ(fn.has_value(), real<T>) << name_of(op) << " " << dtype_name(dtype_v<T>);
    if constexpr (real<T>) {
      std::vector<T> z(x.size(), T(9));
      run(*fn, {x.size(), 1, 1}, {memory<T>(x), memory<T>(y), memory<T>(z)});
      const long double eps = std::numeric_limits<T>::epsilon();
      for (std::size_t i = 0; i < z.size(); ++i) {
        const long double v = x[i], w = y[i];
        long double e = 0, allowed = 1;  // the error bound in units in the last place
        switch (op) {
          case MathOp::fma: e = std::fma(v, w, v), allowed = sizeof(T) == 4 ? 0.5L : 1; break;
          case MathOp::sqrt: e = std::sqrt(v), allowed = 0.5L; break;
          case MathOp::floor: e = std::floor(v), allowed = 0; break;
          case MathOp::ceil: e = std::ceil(v), allowed = 0; break;
          case MathOp::trunc: e = std::trunc(v), allowed = 0; break;
          case MathOp::rint: {
            const long double down = std::floor(v), rest = v - down;  // rounds ties to even in every rounding mode
            e = rest < 0.5L ? down : rest > 0.5L ? down + 1 : std::fmod(down, 2.0L) == 0 ? down : down + 1;
            if (std::isinf(v) || v == 0) e = v;
            allowed = 0;
            break;
          }
          // For these functions the C library is less accurate in double than for the others ("Errors in Math
          // Functions" in the glibc manual). The interpreter rounds the results to f32.
          case MathOp::tanh:
          case MathOp::sinh:
          case MathOp::cosh:
          case MathOp::log10: e = exactly(op, v, w), allowed = sizeof(T) == 4 ? 1 : 2; break;
          default: e = exactly(op, v, w);
        }
        const T nearest = static_cast<T>(e);
        if (std::isnan(nearest) || std::isinf(nearest) || nearest == 0) {
          ASSERT_TRUE(alike<T>(z[i], nearest, true) ||
                      (std::isinf(nearest) && std::fabs(z[i]) == std::numeric_limits<T>::max()) ||
                      (nearest == 0 && std::fabs(z[i]) <= std::numeric_limits<T>::denorm_min()))
              << name_of(op) << "(" << v << ", " << w << ") = " << z[i] << ", not " << e;
        } else {
          const long double unit = std::max<long double>(std::fabs(e) * eps, std::numeric_limits<T>::denorm_min());
          ASSERT_LE(std::fabs(static_cast<long double>(z[i]) - e), (allowed == 0 ? 0 : allowed * 1.01L) * unit)
              << name_of(op) << "(" << v << ", " << w << ") = " << z[i] << ", not " << e;
        }
      }
    }
  }
}

// Conversions between all pairs of dtypes that memory can store.

template <class T>
class Memory : public testing::Test {
 protected:
  std::mt19937_64 rng{test_seed()};
};
TYPED_TEST_SUITE(Memory, Storable);

template <class To, class From>
To expected_cast(From a) {
  if constexpr (small<From>) {
    return expected_cast<To>(static_cast<float>(a));
  } else if constexpr (small<To>) {
    return To(expected_cast<float>(a));
  } else if constexpr (boolean<To>) {
    return !(a == From(0));
  } else if constexpr (real<From> && !real<To>) {
    if (std::isnan(a)) return 0;
    const long double v = std::trunc(static_cast<long double>(a));
    if (v <= static_cast<long double>(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
    if (v >= static_cast<long double>(std::numeric_limits<To>::max())) return std::numeric_limits<To>::max();
    return low<To>(static_cast<Wide>(v));
  } else if constexpr (real<To>) {
    return static_cast<To>(
        static_cast<long double>(a));  // the conversion to long double is exact, so this rounds only once
  } else {
    return low<To>(static_cast<Wide>(a));
  }
}
template <class To, class From>
void check_cast(std::mt19937_64& rng) {
  auto x = values<From>(rng);
  const Function fn = map_kernel("cast", [] {
    BufferRef a = in("a", dtype_v<From>), c = out("c", dtype_v<To>);
    c.store(global_id(), cast(dtype_v<To>, a.load(global_id())));
  });
  std::vector<Stored<To>> z(x.size());
  run(fn, {x.size(), 1, 1}, {memory<From>(x), memory<To>(z)});
  for (std::size_t i = 0; i < x.size(); ++i) {
    const To e = expected_cast<To>(static_cast<From>(x[i]));
    ASSERT_TRUE(alike<To>(static_cast<To>(z[i]), e, false))
        << dtype_name(dtype_v<From>) << " " << shown(x[i]) << " to " << dtype_name(dtype_v<To>) << " = " << shown(z[i])
        << ", not " << shown(e);
  }
}
TYPED_TEST(Memory, CastsMatchTheReference) {
  using T = TypeParam;
  check_cast<bool, T>(this->rng);
  check_cast<std::int8_t, T>(this->rng), check_cast<std::uint8_t, T>(this->rng);
  check_cast<std::int16_t, T>(this->rng), check_cast<std::uint16_t, T>(this->rng);
  check_cast<std::int32_t, T>(this->rng), check_cast<std::uint32_t, T>(this->rng);
  check_cast<std::int64_t, T>(this->rng), check_cast<std::uint64_t, T>(this->rng);
  check_cast<half, T>(this->rng), check_cast<bfloat16, T>(this->rng);
  check_cast<float, T>(this->rng), check_cast<double, T>(this->rng);
}
TEST(TableOfDot4, MatchesTheReference) {
  std::mt19937_64 rng(test_seed());
  const std::size_t n = 500;
  std::vector<std::uint32_t> a(n), b(n);
  std::vector<std::int32_t> c(n), z(n);
  for (std::size_t i = 0; i < n; ++i)
    a[i] = static_cast<std::uint32_t>(rng()), b[i] = static_cast<std::uint32_t>(rng()),
    c[i] = static_cast<std::int32_t>(rng());
  a[0] = b[0] = 0x80808080u, c[0] = std::numeric_limits<std::int32_t>::max();
  a[1] = b[1] = 0xffffffffu;
  for (int o = 0; o < static_cast<int>(Dot4Signs::count_); ++o) {
    const Dot4Signs signs = static_cast<Dot4Signs>(o);
    run(map_kernel("dot4",
                   [&] {
                     BufferRef x = in("x", DType::u32), y = in("y", DType::u32), s = in("s", DType::i32),
                               r = out("r", DType::i32);
                     Value i = global_id();
                     r.store(i, dot4(signs, x.load(i), y.load(i), s.load(i)));
                   }),
        {n, 1, 1}, {arg(a), arg(b), arg(c), arg(z)});
    for (std::size_t i = 0; i < n; ++i) {
      Wide e = c[i];
      for (int k = 0; k < 4; ++k) {
        const int p = static_cast<int>(a[i] >> (8 * k) & 255), q = static_cast<int>(b[i] >> (8 * k) & 255);
        const auto sign = [](int v) { return v > 127 ? v - 256 : v; };
        e += (a_is_signed(signs) ? sign(p) : p) * (b_is_signed(signs) ? sign(q) : q);
      }
      ASSERT_EQ(z[i], low<std::int32_t>(e)) << name_of(signs) << " " << i;
    }
  }
}

}  // namespace
}  // namespace tessera::ir
