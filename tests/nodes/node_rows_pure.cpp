// SPDX-License-Identifier: Apache-2.0
// Rows for computations: unary, binary, compare, select, cast, bitcast, math, vector and dot4.
#include <cmath>

#include "tessera/emit/math.h"
#include "tests/nodes/node_rows.h"
#include "tests/support/exact_math.h"

namespace tessera::test {

using namespace ir;

namespace {

/// Applies f to a, b and c of thread i in the dtype in which the column is computed. Returns the bits of the result.
template <class F>
Expected of_inputs(F f) {
  return [f](const World& w, std::size_t i) -> std::optional<std::uint64_t> {
    return with_compute_type(w.column.dtype, [&](auto tag) {
      using T = decltype(tag);
      return bits_of(w.column, f(w.value<T>(w.a, i), w.value<T>(w.b, i), w.value<T>(w.c, i)));
    });
  };
}

void add_unary(std::vector<Row>& rows) {
  for_each_kind<UnaryOp>([&](UnaryOp op) {
    rows.push_back(row(Op::unary, op, name_of(op), [op](Tracer& t) {
      const auto f = [op](auto x) { return apply(op, x); };
      t.results({{unary(op, t.a()), of_inputs([f](auto a, auto, auto) { return f(a); })},
                 {unary(op, t.a(global_id(1) + 7)), at_input(&World::a, 7, f)}});
    }));
  });
}

// Tests varying operands, one or two uniform operands, and constants on either side. Each of these has its own code
// path.
void add_binary(std::vector<Row>& rows) {
  for_each_kind<BinaryOp>([&](BinaryOp op) {
    rows.push_back(row(Op::binary, op, name_of(op), [op](Tracer& t) {
      const Column column = t.column();
      const bool index = t.dtype() == DType::index, integer = is_int(t.dtype()),
                 shift = op == BinaryOp::shl || op == BinaryOp::shr;
      // Shift amounts of an index are taken modulo its width, which depends on the launch. Only amounts below 32 are
      // portable.
      const auto right = [&](Value v) { return index && shift ? v & 7 : v; };
      const auto f = [op, index, shift](auto x, auto y) {
        using T = decltype(x);
        if constexpr (std::is_same_v<T, std::int64_t>)
          if (index && shift) y &= 7;
        return apply(op, x, y);
      };
      std::vector<std::pair<Value, Expected>> all = {
          {binary(op, t.a(), right(t.b())), of_inputs([f](auto a, auto b, auto) { return f(a, b); })},
          {binary(op, t.a(), right(t.b(extent() / 2))),
           [f](const World& w, std::size_t i) -> std::optional<std::uint64_t> {
             return with_compute_type(w.column.dtype, [&](auto tag) {
               using T = decltype(tag);
               return bits_of(w.column, f(w.value<T>(w.a, i), w.value<T>(w.b, w.n / 2)));
             });
           }},
          {binary(op, t.a(global_id(1) + 9), right(t.b(global_id(1) + 11))),
           [f](const World& w, std::size_t) -> std::optional<std::uint64_t> {
             return with_compute_type(w.column.dtype, [&](auto tag) {
               using T = decltype(tag);
               return bits_of(w.column, f(w.value<T>(w.a, 9), w.value<T>(w.b, 11)));
             });
           }}};
      if (t.dtype() != DType::boolean)
        for (const int constant : {0, 1, 3, 7, -1}) {
          if (index && shift && constant < 0) continue;
          const Value k(Builder::current().constant(column.compute(), to_bits(column.compute(), constant)));
          all.emplace_back(binary(op, t.a(), k), of_inputs([op, constant](auto a, auto, auto) {
                             return apply(op, a, static_cast<decltype(a)>(constant));
                           }));
        }
      if (integer) {
        const Value k(Builder::current().constant(t.dtype(), to_bits(t.dtype(), 100)));
        all.emplace_back(binary(op, k, right(t.b())),
                         of_inputs([f](auto, auto b, auto) { return f(static_cast<decltype(b)>(100), b); }));
      }
      if (integer && !index && op == BinaryOp::add) {  // wrapping at each step and once at the end must be equivalent
        all.emplace_back((t.a() + t.b()) * t.c() - (t.a() * t.a() + 5) * (t.b() - t.c()),
                         of_inputs([](auto a, auto b, auto c) {
                           using T = decltype(a);
                           const auto go = [](BinaryOp o, T x, T y) { return apply(o, x, y); };
                           const T left = go(BinaryOp::mul, go(BinaryOp::add, a, b), c);
                           const T square = go(BinaryOp::add, go(BinaryOp::mul, a, a), static_cast<T>(5));
                           return go(BinaryOp::sub, left, go(BinaryOp::mul, square, go(BinaryOp::sub, b, c)));
                         }));
        all.emplace_back(((t.a() + t.b()) >> 1) / ((t.a() - t.b()) | 1), of_inputs([](auto a, auto b, auto) {
                           using T = decltype(a);
                           const T half = apply(BinaryOp::shr, apply(BinaryOp::add, a, b), static_cast<T>(1));
                           return apply(BinaryOp::div, half,
                                        apply(BinaryOp::or_, apply(BinaryOp::sub, a, b), static_cast<T>(1)));
                         }));
      }
      t.results(all, op == BinaryOp::min || op == BinaryOp::max);
    }));
  });
}

void add_compare(std::vector<Row>& rows) {
  for_each_kind<CompareOp>([&](CompareOp op) {
    rows.push_back(row(Op::compare, op, name_of(op), [op](Tracer& t) {
      const auto flag = [op](auto x, auto y) -> std::uint64_t { return apply(op, x, y); };
      const auto with_b = [flag](std::optional<std::size_t> b) {
        return [=](const World& w, std::size_t i) -> std::optional<std::uint64_t> {
          return with_compute_type(w.column.dtype, [&](auto tag) {
            using T = decltype(tag);
            return flag(w.value<T>(w.a, i), w.value<T>(w.b, b.value_or(i)));
          });
        };
      };
      t.results({{compare(op, t.a(), t.b()), with_b({})},
                 {compare(op, t.a(), t.b(global_id(1) + 11)), with_b(11)},
                 {compare(op, t.a(), t.a()), of_inputs_as_bool([op](auto x) { return apply(op, x, x); })}});
    }));
  });
}

void add_select(std::vector<Row>& rows) {
  rows.push_back(row(Op::select, 0, "", [](Tracer& t) {
    const Value third = t.i() % 3 == 0;
    t.result(select(third, t.a(), t.b()),
             raw([](const World& w, std::size_t i) { return i % 3 == 0 ? w.a[i] : w.b[i]; }));
    t.result(select(t.a() < t.b(), t.c(), t.s()), raw([](const World& w, std::size_t i) {
               const bool less = with_compute_type(w.column.dtype, [&](auto tag) {
                 using T = decltype(tag);
                 return w.value<T>(w.a, i) < w.value<T>(w.b, i);
               });
               return less ? w.c[i] : w.s[i];
             }));
    t.result(((t.a() < t.b()) || ((t.b() < t.c()) && (t.a() != t.c()))) != (t.a() == t.b()),
             [](const World& w, std::size_t i) -> std::optional<std::uint64_t> {
               return with_compute_type(w.column.dtype, [&](auto tag) -> std::uint64_t {
                 using T = decltype(tag);
                 const T a = w.value<T>(w.a, i), b = w.value<T>(w.b, i), c = w.value<T>(w.c, i);
                 return (a < b || (b < c && a != c)) != (a == b);
               });
             });
    const Value v = select(third, make_vector({t.a(), t.b(), t.c()}), make_vector({t.b(), t.c(), t.a()}));
    t.result(extract(v, 1), raw([](const World& w, std::size_t i) { return i % 3 == 0 ? w.b[i] : w.c[i]; }));
  }));
}

void add_casts(std::vector<Row>& rows) {
  for (const Column& c : all_columns()) {
    if (c.index64) continue;
    const DType to = c.dtype;
    rows.push_back(row(Op::cast, 0, "to_" + c.name(), [to](Tracer& t) {
      // A value that does not fit into an index is an error, so only small numbers are converted.
      const bool index = to == DType::index;
      t.result(cast(to, index ? t.s() : t.a()),
               [to, index](const World& w, std::size_t i) -> std::optional<std::uint64_t> {
                 return with_compute_type(w.column.dtype, [&](auto tag) {
                   using From = decltype(tag);
                   return converted(to, w.value<From>(index ? w.s : w.a, i));
                 });
               });
    }));
  }
  for (const Column& c : all_columns()) {
    if (c.index64) continue;
    const DType to = c.dtype;
    rows.push_back(row(Op::bitcast, 0, "to_" + c.name(), [to](Tracer& t) {
      t.result(bitcast(to, t.a()), raw([](const World& w, std::size_t i) { return w.a[i]; }));
      t.keep_payload();
    }));
  }
}

/// Returns the documented maximum error of a vendor's function.
double documented(MathOp op, Functions by, DType t) {
  // For f32 and f64.
  struct Both {
    double narrow, wide;
  };
  const auto of = [&](Both b) { return t == DType::f32 ? b.narrow : b.wide; };
  if (by == Functions::cuda) {
    // CUDA C++ Programming Guide, "Mathematical Functions". The documented errors are relative to the correctly rounded
    // result, which differs from the exact result by up to half a unit.
    const double half = 0.5;
    switch (op) {
      case MathOp::exp:
      case MathOp::exp2: return half + of({2, 1});
      case MathOp::log:
      case MathOp::log2: return half + 1;
      case MathOp::pow: return half + of({4, 2});
      default: return half + 2;  // sin, cos, tanh, erf and 1 / sqrt
    }
  }
  // The OpenCL C Specification, "Relative Error as ULPs", full profile. AMD's device library conforms to it; its page
  // "HIP math API" lists errors that were measured within small ranges.
  switch (op) {
    case MathOp::exp:
    case MathOp::exp2:
    case MathOp::log:
    case MathOp::log2: return 3;
    case MathOp::sin:
    case MathOp::cos: return 4;
    case MathOp::tanh: return 5;
    case MathOp::erf:
    case MathOp::pow: return 16;
    default: return 2;  // 1 / sqrt
  }
}
/// Returns the error bound of a function and the range in which it applies.
emit::MathBound bound_of(MathOp op, Functions by, DType t) {
  if (by == Functions::ptx)
    by = t == DType::f32 && (op == MathOp::exp || op == MathOp::exp2) ? Functions::cuda : Functions::ours;
  const emit::MathBound everywhere{0, -INFINITY, INFINITY};
  emit::MathBound bound = everywhere;
  const bool narrow = t == DType::f32;
  if (emit::always_expands(op)) {
    bound = narrow ? emit::math_bound(op) : emit::math64_bound(op);
    if (!narrow && by == Functions::host) bound.ulp = 4;  // the interpreter calls the C library
  } else if (by == Functions::cuda || by == Functions::hip || by == Functions::opencl)
    bound.ulp = documented(op, by, t);
  else if (!emit::expands(op))
    bound.ulp = narrow ? 2 : 4;
  else if (narrow)  // the same bounds apply to the functions of the host
    bound = emit::math_bound(op);
  else if (by == Functions::ours)
    bound = emit::math64_bound(op);
  else
    bound.ulp = 4;
  return bound;
}

void add_math(std::vector<Row>& rows) {
  for_each_kind<MathOp>([&](MathOp op) {
    rows.push_back(row(Op::math, op, name_of(op), [op](Tracer& t) {
      const Value v = op == MathOp::fma        ? fma(t.a(), t.b(), t.c())
                      : operand_count(op) == 2 ? math(op, t.a(), t.b())
                                               : math(op, t.a());
      if (op == MathOp::fma || op == MathOp::sqrt || (op >= MathOp::floor && op <= MathOp::rint)) {
        t.result(v, of_inputs([op](auto a, auto b, auto c) {
                   if constexpr (std::is_floating_point_v<decltype(a)>) return apply(op, a, b, c);
                   return decltype(a){};
                 }));
        return;
      }
      const DType computes = t.column().compute();
      t.real_result(
          v,
          [op, computes](const World& w, std::size_t i) -> std::optional<long double> {
            const double x = w.value<double>(w.a, i), y = w.value<double>(w.b, i);
            const emit::MathBound bound = bound_of(op, w.functions, computes);
            if (std::isfinite(x) && (x < bound.lowest || x > bound.highest)) return std::nullopt;
            return exactly(op, x, y);
          },
          [op, computes](const World& w) { return bound_of(op, w.functions, computes).ulp; });
    }));
  });
}

// Vector lanes contain a, b, c and s in this order. The elements are adjacent in memory.
void add_vectors(std::vector<Row>& rows) {
  rows.push_back(row(Op::vector, VectorOp::make, name_of(VectorOp::make), [](Tracer& t) {
    for (std::size_t lanes = 2; lanes <= 4; ++lanes) {
      const Value v = vector_of_inputs(t, lanes);
      const Expected right = [lanes](const World& w, std::size_t e) -> std::optional<std::uint64_t> {
        return input_of_lane(w, e % lanes, e / lanes);
      };
      if (t.dtype() != DType::index) {
        t.output(t.dtype(), t.world().n * lanes, right).store(t.i() * static_cast<std::int64_t>(lanes), v);
      } else {  // dtypes that memory cannot store
        const Value turned = select(t.i() % 2 == 0, v, select(t.i() % 3 == 0, v, vector_of_inputs(t, lanes, 1)));
        t.result(extract(turned, 1), raw([lanes](const World& w, std::size_t i) {
                   return input_of_lane(w, i % 2 == 0 || i % 3 == 0 ? 1 : 2 % lanes, i);
                 }));
      }
    }
  }));
  rows.push_back(row(Op::vector, VectorOp::extract, name_of(VectorOp::extract), [](Tracer& t) {
    for (std::size_t lanes = 2; lanes <= 4; ++lanes) {
      const Value v = select(t.i() % 2 == 0, vector_of_inputs(t, lanes), vector_of_inputs(t, lanes, 1));
      std::vector<std::pair<Value, Expected>> all;
      for (std::size_t l = 0; l < lanes; ++l)
        all.emplace_back(extract(v, static_cast<std::uint32_t>(l)), raw([l, lanes](const World& w, std::size_t i) {
                           return input_of_lane(w, (l + i % 2) % lanes, i);
                         }));
      t.results(all);
    }
  }));
}

void add_dot4(std::vector<Row>& rows) {
  for_each_kind<Dot4Signs>([&](Dot4Signs signs) {
    Row r = row(Op::dot4, signs, name_of(signs), [signs](Tracer& t) {
      const auto sum = [&](Value v) { return t.dtype() == DType::u32 ? bitcast(DType::i32, v) : v; };
      const std::uint32_t odd = signs == Dot4Signs::signed_symmetric ? 0x01010101 : 0;  // no byte is -128
      const auto right = [signs, odd](bool uniform) {
        return [signs, odd, uniform](const World& w, std::size_t i) -> std::optional<std::uint64_t> {
          return to_bits(DType::i32,
                         apply(signs, static_cast<std::uint32_t>(w.a[uniform ? 5 : i]),
                               static_cast<std::uint32_t>(w.b[i]) | odd, static_cast<std::int32_t>(w.c[i])));
        };
      };
      const Value b = odd != 0 && t.dtype() == DType::u32 ? t.b() | literal(DType::u32, odd) : t.b();
      t.results({{dot4(signs, t.a(), b, sum(t.c())), right(false)},
                 {dot4(signs, t.a(global_id(1) + 5), b, sum(t.c())), right(true)}});
    });
    r.word = "dot4";
    rows.push_back(std::move(r));
  });
}

}  // namespace

void add_pure_rows(std::vector<Row>& rows) {
  add_unary(rows), add_binary(rows), add_compare(rows), add_select(rows), add_casts(rows);
  add_math(rows), add_vectors(rows), add_dot4(rows);
}

}  // namespace tessera::test
