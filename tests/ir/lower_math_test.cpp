// SPDX-License-Identifier: Apache-2.0
// Tests the accuracy of expanded functions. Each function is lowered, computed with ir/semantics.h for floats sampled
// from all bit patterns, and compared with the C library in double. The worst error is printed and compared with
// math_bound.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <random>

#include "tessera/base/test_seed.h"
#include "tessera/emit/lower.h"
#include "tessera/emit/math.h"
#include "tessera/ir/semantics.h"
#include "tessera/ir/value.h"

namespace tessera::ir {
namespace {

// Evaluates the value that a kernel of pure nodes stores, for many elements at a time.
class Evaluator {
 public:
  explicit Evaluator(Function fn) : fn_(std::move(fn)), values_(fn_.nodes.size()) {}

  std::vector<float> run(const std::vector<float>& x, const std::vector<float>& y) {
    inputs_ = {&x, &y};
    size_ = x.size();
    for (NodeId id = 1; id < fn_.nodes.size(); ++id)
      if (fn_[id].op == Op::constant) values_[id].assign(size_, fn_[id].imm);
    for (const Block& b : fn_.blocks)
      for (NodeId id : b) node(id);
    std::vector<float> out(size_);
    for (std::size_t i = 0; i < size_; ++i) out[i] = get<float>(result_[i]);
    return out;
  }

 private:
  template <class T>
  static T get(std::uint64_t v) {
    if constexpr (std::is_same_v<T, bool>)
      return v != 0;
    else if constexpr (sizeof(T) == 8)
      return std::bit_cast<T>(v);
    else
      return std::bit_cast<T>(static_cast<std::uint32_t>(v));
  }
  template <class T>
  static std::uint64_t put(T v) {
    if constexpr (std::is_same_v<T, bool>)
      return v;
    else if constexpr (sizeof(T) == 8)
      return std::bit_cast<std::uint64_t>(v);
    else
      return std::bit_cast<std::uint32_t>(v);
  }
  template <class F>
  void with_type(DType t, F f) {
    switch (t) {
      case DType::boolean: return f(bool{});
      case DType::i32: return f(std::int32_t{});
      case DType::u32: return f(std::uint32_t{});
      case DType::f32: return f(float{});
      case DType::i64: return f(std::int64_t{});
      case DType::f64: return f(double{});
      default: FAIL() << "unexpected " << dtype_name(t);
    }
  }
  void node(NodeId id) {
    const Node& n = fn_[id];
    std::vector<std::uint64_t>& out = values_[id];
    out.resize(size_);
    const auto arg = [&](int k) -> const std::vector<std::uint64_t>& {
      return values_[n.args[static_cast<std::size_t>(k)]];
    };
    switch (n.op) {
      case Op::load:
        for (std::size_t i = 0; i < size_; ++i) out[i] = put((*inputs_[fn_[n.args[0]].imm])[i]);
        break;
      case Op::store: result_ = arg(2); break;
      case Op::unary:
        with_type(n.type.dtype, [&](auto t) {
          for (std::size_t i = 0; i < size_; ++i) out[i] = put(apply(n.kind<UnaryOp>(), get<decltype(t)>(arg(0)[i])));
        });
        break;
      case Op::binary:
        with_type(n.type.dtype, [&](auto t) {
          using T = decltype(t);
          for (std::size_t i = 0; i < size_; ++i)
            out[i] = put(apply(n.kind<BinaryOp>(), get<T>(arg(0)[i]), get<T>(arg(1)[i])));
        });
        break;
      case Op::compare:
        with_type(fn_[n.args[0]].type.dtype, [&](auto t) {
          using T = decltype(t);
          for (std::size_t i = 0; i < size_; ++i)
            out[i] = put(apply(n.kind<CompareOp>(), get<T>(arg(0)[i]), get<T>(arg(1)[i])));
        });
        break;
      case Op::select:
        for (std::size_t i = 0; i < size_; ++i) out[i] = arg(0)[i] ? arg(1)[i] : arg(2)[i];
        break;
      case Op::bitcast: out = arg(0); break;
      case Op::cast:
        with_type(fn_[n.args[0]].type.dtype, [&](auto from) {
          with_type(n.type.dtype, [&](auto to) {
            for (std::size_t i = 0; i < size_; ++i) out[i] = put(convert<decltype(to)>(get<decltype(from)>(arg(0)[i])));
          });
        });
        break;
      case Op::math:
        with_type(n.type.dtype, [&](auto t) {
          using T = decltype(t);
          if constexpr (std::is_floating_point_v<T>)
            for (std::size_t i = 0; i < size_; ++i)
              out[i] = put(apply(n.kind<MathOp>(), get<T>(arg(0)[i]), n.args[1] ? get<T>(arg(1)[i]) : T{},
                                 n.args[2] ? get<T>(arg(2)[i]) : T{}));
        });
        break;
      default: FAIL() << "unexpected " << op_name(n.op);
    }
  }

  Function fn_;
  std::vector<std::vector<std::uint64_t>> values_;
  std::vector<std::uint64_t> result_;
  std::array<const std::vector<float>*, 2> inputs_{};
  std::size_t size_ = 0;
};

bool two(MathOp op) { return operand_count(op) == 2; }

Evaluator expanded(MathOp op, bool fast_f64 = false) {
  Builder b("math", KernelKind::map);
  {
    Builder::Scope scope(b);
    const BufferRef x = buffer_param("x", DType::f32, Access::read), y = buffer_param("y", DType::f32, Access::read);
    const BufferRef z = buffer_param("z", DType::f32, Access::read_write);
    const Value i = global_id();
    z.store(i, two(op) ? math(op, x.load(i), y.load(i)) : math(op, x.load(i)));
  }
  const Function lowered = emit::lower(b.finish(), {.guard_map = false, .expand_math = true, .fast_f64 = fast_f64});
  for (const Node& n : lowered.nodes) EXPECT_FALSE(n.op == Op::math && emit::expands(n.kind<MathOp>()));
  return Evaluator(lowered);
}

double reference(MathOp op, double x, double y) { return apply(op, x, y); }

// Returns the error in ulps relative to the float nearest to `right`. It is 0 for equal special values and infinite if
// they differ.
double ulps(float got, double right) {
  const float nearest = static_cast<float>(right);
  if (std::isnan(right) || std::isnan(got)) return std::isnan(right) && std::isnan(got) ? 0 : INFINITY;
  if (got == nearest) return std::signbit(got) == std::signbit(nearest) || nearest != 0 || right != 0 ? 0 : INFINITY;
  if (std::isinf(nearest) || std::isinf(got)) {  // near overflow, both the largest float and infinity are accepted
    const double big = std::numeric_limits<float>::max();
    return std::abs(static_cast<double>(got)) >= big && std::abs(right) >= big &&
                   std::signbit(got) == std::signbit(right)
               ? 1
               : INFINITY;
  }
  int exponent;
  std::frexp(right, &exponent);
  return std::abs(static_cast<double>(got) - right) / std::ldexp(1.0, std::max(exponent - 24, -149));
}

struct Worst {
  double error = 0;
  float x = 0, y = 0, got = 0;
};
void compare(MathOp op, Evaluator& e, const std::vector<float>& x, const std::vector<float>& y, Worst& worst) {
  const std::vector<float> got = e.run(x, y);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double error = ulps(got[i], reference(op, x[i], y[i]));
    if (error > worst.error) worst = {error, x[i], y[i], got[i]};
  }
}

class Math : public testing::TestWithParam<std::pair<MathOp, bool>> {};

TEST_P(Math, ErrorIsWithinItsBound) {
  const auto [op, fast_f64] = GetParam();
  const emit::MathBound bound = emit::math_bound(op);
  Evaluator e = expanded(op, fast_f64);
  std::mt19937 random(test_seed());
  Worst worst;
  auto in_range = [&](float x) { return !(x < bound.lowest) && !(x > bound.highest); };
  // Tests one of every 2^11 consecutive floats, over all bit patterns, and then more floats near singularities.
  std::vector<float> x, y;
  auto flush = [&] {
    if (!two(op)) y.assign(x.size(), 0.0f);
    compare(op, e, x, y, worst);
    x.clear(), y.clear();
  };
  std::uniform_int_distribution<std::uint32_t> low(0, 2047), any;
  std::uniform_real_distribution<float> exponent(-160, 135), near(-12, 12), sign(-1, 1);
  for (std::uint64_t high = 0; high < std::uint64_t{1} << 32; high += 2048) {
    const float f = std::bit_cast<float>(static_cast<std::uint32_t>(high) + low(random));
    if (std::isnan(f) || in_range(f)) {
      x.push_back(f);
      if (op == MathOp::pow) {
        // Most exponents keep the result finite. Some are integers, so that negative bases are tested too.
        const float l = std::log2(std::abs(f));
        float p = exponent(random) / (l == 0 ? 1 : l);
        if (any(random) % 4 == 0) p = std::rint(p);
        y.push_back(any(random) % 64 == 0 ? std::bit_cast<float>(any(random)) : p);
      } else if (two(op)) {  // a value within some powers of two of the first operand, or any value
        y.push_back(any(random) % 4 == 0 ? std::bit_cast<float>(any(random)) : f * std::exp2(2 * near(random)));
      }
    }
    if (x.size() == 1 << 15) flush();
  }
  for (int i = 0; i < 1 << 18; ++i) {
    float f = near(random);
    if (op == MathOp::exp || op == MathOp::exp2) f *= 12;
    if (op == MathOp::log || op == MathOp::log2 || op == MathOp::log10) f = 1 + f / 24;
    if (op == MathOp::asin || op == MathOp::acos) f /= 12;
    if (op == MathOp::pow) {
      f = std::exp2(f / 40);  // near 1, where the logarithm is least accurate
      y.push_back(exponent(random) / std::log2(f));
    } else if (two(op)) {
      y.push_back(near(random));
    }
    x.push_back(f);
    if (x.size() == 1 << 15) flush();
  }
  flush();
  std::printf("%s: at most %.3f ulp (at %a, %a: %a); bound %g\n", std::string(name_of(op)).c_str(), worst.error,
              worst.x, worst.y, worst.got, bound.ulp);
  EXPECT_LE(worst.error, bound.ulp);
}

TEST_P(Math, SpecialValuesMatchTheCLibrary) {
  const auto [op, fast_f64] = GetParam();
  const float inf = INFINITY, tiny = 0x1p-149f, most = std::numeric_limits<float>::max(), least = 0x1p-126f;
  const std::vector<float> specials = {
      0.0f,           -0.0f,      1.0f,        -1.0f,       2.0f,   -2.0f,       3.0f,        -3.0f,
      0.5f,           -0.5f,      1.5f,        -1.5f,       inf,    -inf,        NAN,         tiny,
      -tiny,          least,      -least,      most,        -most,  16777216.0f, 16777215.0f, -16777215.0f,
      88.72284f,      -87.33655f, -103.97208f, -103.97284f, 128.0f, -149.0f,     -150.0f,     1.0f + 0x1p-23f,
      1.0f - 0x1p-24f};
  std::vector<float> x, y;
  const emit::MathBound bound = emit::math_bound(op);
  for (float a : specials)
    for (float b : specials) {
      if (!std::isinf(a) && (a < bound.lowest || a > bound.highest)) continue;
      x.push_back(a), y.push_back(two(op) ? b : 0.0f);
    }
  Evaluator e = expanded(op, fast_f64);
  const std::vector<float> got = e.run(x, y);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double right = reference(op, x[i], y[i]);
    EXPECT_LE(ulps(got[i], right), bound.ulp) << x[i] << ", " << y[i] << " gives " << got[i] << ", not " << right;
    if (right == 0) {
      EXPECT_EQ(std::signbit(got[i]), std::signbit(right)) << x[i] << ", " << y[i];
    }
  }
}

TEST(math, SineAndCosineOfLargeArgumentsAreAtMostOne) {
  std::mt19937 random(test_seed());
  std::uniform_real_distribution<float> exponent(17, 127.9f);
  std::vector<float> x(10000);
  for (float& f : x) f = std::exp2(exponent(random)) * (random() & 1 ? 1.0f : -1.0f);
  for (MathOp op : {MathOp::sin, MathOp::cos}) {
    Evaluator e = expanded(op);
    for (float f : e.run(x, x)) EXPECT_LE(std::abs(f), 1.0f);
  }
  Evaluator e = expanded(MathOp::tan);
  for (float f : e.run(x, x)) EXPECT_TRUE(std::isfinite(f));
}

std::string name(const testing::TestParamInfo<std::pair<MathOp, bool>>& i) {
  return std::string(name_of(i.param.first));
}
std::vector<std::pair<MathOp, bool>> in_f32() {
  std::vector<std::pair<MathOp, bool>> all;
  for (const MathOp op : {MathOp::exp, MathOp::exp2, MathOp::log, MathOp::log2, MathOp::sin, MathOp::cos, MathOp::tanh,
                          MathOp::erf, MathOp::pow, MathOp::tan, MathOp::asin, MathOp::acos, MathOp::atan, MathOp::sinh,
                          MathOp::cosh, MathOp::log10, MathOp::atan2, MathOp::hypot})
    all.emplace_back(op, false);
  return all;
}
INSTANTIATE_TEST_SUITE_P(all, Math, testing::ValuesIn(in_f32()), name);
INSTANTIATE_TEST_SUITE_P(in_f64, Math, testing::Values(std::pair(MathOp::pow, true)), name);

}  // namespace
}  // namespace tessera::ir
