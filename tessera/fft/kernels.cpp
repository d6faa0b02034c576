// SPDX-License-Identifier: Apache-2.0
// The self-sorting algorithm of Stockham (Van Loan, "Computational Frameworks for the Fast Fourier Transform", 1992,
// section 1.7). A pass of radix r combines elements that are n / r apart and appends a digit to the output index.
#include "tessera/fft/kernels.h"

#include <cmath>
#include <functional>
#include <numbers>

#include "tessera/ir/value.h"

namespace tessera::fft {

using ir::Value;

bool is_smooth(std::int64_t n) {
  for (const std::int64_t p : {2, 3, 5, 7, 11, 13})
    while (n % p == 0) n /= p;
  return n == 1;
}

std::vector<std::uint32_t> radices_of(std::int64_t n) {
  std::vector<std::uint32_t> out;
  int twos = 0;
  for (; n % 2 == 0; n /= 2) ++twos;
  const int fours = twos % 3 == 2 ? 1 : twos % 3 == 1 && twos > 1 ? 2 : 0;
  out.assign(static_cast<std::size_t>((twos - 2 * fours) / 3), 8);
  out.insert(out.end(), static_cast<std::size_t>(fours), 4);
  if (twos == 1) out.push_back(2);
  for (const std::uint32_t p : {7, 5, 3, 13, 11})
    for (; n % p == 0; n /= p) out.push_back(p);
  return out;
}

Root root_of_unity(std::int64_t k, std::int64_t n) {
  // Reduces the angle to one octant, where sine and cosine are accurate and symmetries are exact.
  const std::int64_t octant = 8 * k / n;
  const std::int64_t rest = 8 * k - octant * n;  // the angle is (octant + rest / n) pi / 4
  const bool odd = octant % 2 != 0;
  const double angle = static_cast<double>(odd ? n - rest : rest) * (std::numbers::pi / 4) / static_cast<double>(n);
  const double c = std::cos(angle), s = std::sin(angle);
  switch (octant % 8) {
    case 0: return {c, -s};
    case 1: return {s, -c};
    case 2: return {-s, -c};
    case 3: return {-c, -s};
    case 4: return {-c, s};
    case 5: return {-s, c};
    case 6: return {s, c};
    default: return {c, s};
  }
}

namespace {

/// A traced complex number.
struct Number {
  Value re, im;
};
Number plus(const Number& a, const Number& b) { return {a.re + b.re, a.im + b.im}; }
Number minus(const Number& a, const Number& b) { return {a.re - b.re, a.im - b.im}; }
Number times(const Number& a, const Number& b) { return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re}; }
Number scaled(const Number& a, Value by) { return {a.re * by, a.im * by}; }

/// a times exp(-2 pi i k / r).
Number turned(const Number& a, int k, int r) {
  k %= r;
  if (8 * k % r != 0) {
    const auto [re, im] = root_of_unity(k, r);
    return times(a, {ir::literal(a.re.dtype(), re), ir::literal(a.re.dtype(), im)});
  }
  const Value half = ir::literal(a.re.dtype(), std::numbers::sqrt2 / 2);
  switch (8 * k / r) {
    case 0: return a;
    case 1: return scaled({a.re + a.im, a.im - a.re}, half);
    case 2: return {a.im, -a.re};
    case 3: return scaled({a.im - a.re, -(a.re + a.im)}, half);
    case 4: return {-a.re, -a.im};
    case 5: return scaled({-(a.re + a.im), a.re - a.im}, half);
    case 6: return {-a.im, a.re};
    default: return scaled({a.re - a.im, a.re + a.im}, half);
  }
}

using Numbers = std::vector<Number>;

/// The transform of a few numbers in registers.
Numbers butterfly(const Numbers& x) {
  const int r = static_cast<int>(x.size()), h = r / 2;
  const auto at = [](int i) { return static_cast<std::size_t>(i); };
  if (r == 1) return x;
  Numbers out(x.size());
  if (r % 2 == 0) {
    Numbers sums, differences;
    for (int j = 0; j < h; ++j) {
      sums.push_back(plus(x[at(j)], x[at(j + h)]));
      differences.push_back(turned(minus(x[at(j)], x[at(j + h)]), j, r));
    }
    sums = butterfly(sums), differences = butterfly(differences);
    for (int j = 0; j < h; ++j) out[at(2 * j)] = sums[at(j)], out[at(2 * j + 1)] = differences[at(j)];
    return out;
  }
  const DType t = x[0].re.dtype();
  Numbers sums, differences;
  out[0] = x[0];
  for (int j = 1; j <= h; ++j) {
    sums.push_back(plus(x[at(j)], x[at(r - j)]));
    differences.push_back(minus(x[at(j)], x[at(r - j)]));
    out[0] = plus(out[0], sums.back());
  }
  for (int k = 1; k <= h; ++k) {
    Number a = x[0], b;
    for (int j = 1; j <= h; ++j) {
      const auto [c, s] = root_of_unity(j * k % r, r);
      a = plus(a, scaled(sums[at(j - 1)], ir::literal(t, c)));
      const Number part = scaled(differences[at(j - 1)], ir::literal(t, -s));
      b = j == 1 ? part : plus(b, part);
    }
    out[at(k)] = {a.re + b.im, a.im - b.re};
    out[at(r - k)] = {a.re - b.im, a.im + b.re};
  }
  return out;
}

/// Complex numbers in memory.
struct Memory {
  ir::BufferRef re, im;
  Number load(Value index) const { return {re.load(index), im.load(index)}; }
  void store(Value index, const Number& v) const { re.store(index, v.re), im.store(index, v.im); }
};

/// A parameter for complex numbers, or with `real` one buffer for real numbers.
Memory parameter(const char* re, const char* im, DType t, ir::Access access, bool real = false) {
  Memory m;
  m.re = ir::buffer_param(re, t, access);
  m.im = real ? m.re : ir::buffer_param(im, t, access);
  return m;
}

/// Element k of the spectrum of 2 n real numbers x. a and b are the elements k and n - k of the transform of the n
/// complex numbers x[2 j] + i x[2 j + 1], and w is exp(-pi i k / n).
Number real_spectrum(const Number& a, const Number& b, const Number& w) {
  const Number even{a.re + b.re, a.im - b.im}, odd = times({a.im + b.im, b.re - a.re}, w);
  return scaled(plus(even, odd), ir::literal(a.re.dtype(), 0.5));
}
/// The inverse: twice element k < n of the transform of the complex numbers, from elements k and n - k of the spectrum.
Number complex_spectrum(Value k, Number a, Number b, const Number& w) {
  const Value edge = k == 0,
              zero = ir::literal(a.re.dtype(), 0);  // the imaginary parts of elements 0 and n are not used
  a.im = ir::select(edge, zero, a.im), b.im = ir::select(edge, zero, b.im);
  const Number even{a.re + b.re, a.im - b.im}, odd = times({a.re - b.re, a.im + b.im}, {w.re, -w.im});
  return {even.re - odd.im, even.im + odd.re};
}

/// The position of a butterfly in a pass. Elements of the sequences that were already transformed together have
/// digits `low`; `high` is the rest of the index.
struct Place {
  Value high, low, column;
};

/// Runs the body once for each butterfly of a pass. Each thread gets a part of them.
template <class F>
void for_each_place(const TransformSpec& spec, std::int64_t highs, std::int64_t lows, F body) {
  const std::int64_t threads = spec.threads, columns = spec.columns;
  const Value thread = ir::thread_id();
  const auto each = [](std::int64_t count, std::int64_t step, auto&& run) {
    if (count == step)
      run(ir::index_literal(0));
    else
      ir::for_(0, count, step, run);
  };
  // On CPUs, threads are lanes of a vector. If they have the same `high`, they use the same twiddle factors.
  if (columns % threads == 0) {
    each(highs, 1, [&](Value high) {
      each(lows, 1, [&](Value low) { each(columns, threads, [&](Value c) { body(Place{high, low, c + thread}); }); });
    });
  } else if (columns == 1 && lows % threads == 0) {
    each(highs, 1, [&](Value high) {
      each(lows, threads, [&](Value low) { body(Place{high, low + thread, ir::index_literal(0)}); });
    });
  } else {
    const std::int64_t count = highs * lows * columns;
    each((count + threads - 1) / threads * threads, threads, [&](Value from) {
      const Value flat = from + thread, group = flat / columns;
      const auto run = [&] { body(Place{group / lows, group % lows, flat % columns}); };
      if (count % threads == 0)
        run();
      else
        ir::if_(flat < count, run);
    });
  }
}

}  // namespace

std::vector<double> transform_twiddles(std::int64_t n) {
  std::vector<double> out;
  std::int64_t length = n;
  for (const std::int64_t r : radices_of(n)) {
    const std::int64_t m = length / r;
    for (std::int64_t i = 1; i < r && m > 1; ++i) {
      for (std::int64_t p = 0; p < m; ++p) out.push_back(root_of_unity(p * i, length).re);
      for (std::int64_t p = 0; p < m; ++p) out.push_back(root_of_unity(p * i, length).im);
    }
    length = m;
  }
  if (out.empty()) out.push_back(0);
  return out;
}

std::vector<double> column_turns(std::int64_t n, std::int64_t count) {
  std::vector<double> out;
  const std::int64_t r = radices_of(n).back(), s = n / r;
  const auto add = [&](std::int64_t k) {
    for (std::int64_t j = 0; j < count; ++j) out.push_back(root_of_unity(j * k, n * count).re);
    for (std::int64_t j = 0; j < count; ++j) out.push_back(root_of_unity(j * k, n * count).im);
  };
  for (std::int64_t q = 0; q < s; ++q) add(q);
  for (std::int64_t i = 1; i < r; ++i) add(i * s);
  return out;
}

ir::Function trace_transform(const TransformSpec& spec) {
  ir::Builder builder(spec.columns == 1 ? "fft_row" : "fft_columns", ir::KernelKind::block, {spec.threads, 1, 1});
  ir::Builder::Scope scope(builder);
  const DType t = spec.dtype;
  const bool to_spectrum = spec.reals == Reals::forward, from_spectrum = spec.reals == Reals::inverse;
  const Memory in = parameter("in_re", "in_im", t, ir::Access::read, to_spectrum);
  const auto twiddles = ir::buffer_param("twiddles", t, ir::Access::read);
  ir::BufferRef turns, roots;
  if (spec.twiddled) turns = ir::buffer_param("turns", t, ir::Access::read);
  if (spec.reals != Reals::none) roots = ir::buffer_param("roots", t, ir::Access::read);
  const Memory out = parameter("out_re", "out_im", t, ir::Access::read_write, from_spectrum);
  const Value count = ir::scalar_param("count", DType::index), tiles = ir::scalar_param("tiles", DType::index);
  Value scale;
  if (!spec.twiddled) scale = ir::scalar_param("scale", t);

  const std::int64_t n = spec.n, columns = spec.columns;
  const Value block = ir::block_id(0);
  const Value outer = columns == 1 ? block : block / tiles;
  const Value first = columns == 1 ? ir::index_literal(0) : block % tiles * columns;  // the first column of the block
  const auto address = [&](Order order, std::int64_t extent, Value k, Value c) {
    return order == Order::rows ? (outer * count + first) * extent + c * extent + k
                                : outer * count * extent + first + k * count + c;
  };
  const auto root = [&](Value k) { return Number{roots.load(k), roots.load(k + (n + 1))}; };
  const auto load = [&](Value k, Value c) -> Number {
    if (to_spectrum)
      return {in.re.load(address(spec.in, 2 * n, 2 * k, c)), in.re.load(address(spec.in, 2 * n, 2 * k + 1, c))};
    if (!from_spectrum) return in.load(address(spec.in, n, k, c));
    const Number z = complex_spectrum(k, in.load(address(spec.in, n + 1, k, c)),
                                      in.load(address(spec.in, n + 1, n - k, c)), root(k));
    return {z.im, z.re};
  };
  const auto store = [&](Value k, Value c, const Number& v) {
    if (!from_spectrum) return out.store(address(spec.out, n, k, c), v);
    out.re.store(address(spec.out, 2 * n, 2 * k, c), v.im);
    out.re.store(address(spec.out, 2 * n, 2 * k + 1, c), v.re);
  };
  const auto for_places = [&](std::int64_t highs, std::int64_t lows, const std::function<void(const Place&)>& body) {
    for_each_place(spec, highs, lows, [&](const Place& at) {
      if (spec.ragged)
        ir::if_(first + at.column < count, [&] { body(at); });
      else
        body(at);
    });
  };

  const std::vector<std::uint32_t> radices = radices_of(n);
  Memory shared[2];
  for (std::size_t i = 0; i < 2 && i < radices.size() - (to_spectrum ? 0 : 1); ++i) {
    // The padding avoids that both parts use the same sets of a cache.
    const auto room = static_cast<std::uint64_t>((n + 1) * columns + 16);
    shared[i].re = ir::shared(t, room), shared[i].im = ir::shared(t, room);
  }
  std::int64_t lows = 1, twiddle = 0;
  for (std::size_t pass = 0; pass < radices.size(); ++pass) {
    const std::int64_t r = radices[pass], highs = n / (lows * r);
    const bool begins = pass == 0, ends = pass + 1 == radices.size();
    if (!begins) ir::barrier();
    const Memory &from = shared[(pass + 1) % 2], &to = shared[pass % 2];
    for_places(highs, lows, [&](const Place& at) {
      Numbers x;
      for (std::int64_t i = 0; i < r; ++i) {
        const Value k = at.high * lows + at.low + i * (n / r);
        x.push_back(begins ? load(k, at.column) : from.load(k * columns + at.column));
      }
      x = butterfly(x);
      for (std::int64_t i = 0; i < r; ++i) {
        Number v = x[static_cast<std::size_t>(i)];
        if (!ends && i > 0) {
          const Value w = at.high + (twiddle + 2 * (i - 1) * highs);
          v = times(v, {twiddles.load(w), twiddles.load(w + highs)});
        }
        const Value k = at.high * (lows * r) + at.low + i * lows;
        if (ends && spec.twiddled) {
          const auto turn = [&](Value row) {
            const Value w = row * 2 * count + first + at.column;
            return Number{turns.load(w), turns.load(w + count)};
          };
          Number w = turn(at.low);
          if (i > 0) w = times(w, turn(ir::index_literal(lows + i - 1)));
          v = times(v, w);
        } else if (ends) {
          v = scaled(v, scale);
        }
        if (ends && !to_spectrum)
          store(k, at.column, v);
        else
          to.store(k * columns + at.column, v);
      }
    });
    if (!ends) twiddle += 2 * (r - 1) * highs;
    lows *= r;
  }
  if (to_spectrum) {
    const Memory& z = shared[(radices.size() + 1) % 2];
    const auto write = [&](Value k, Value c, const Number& v) { out.store(address(spec.out, n + 1, k, c), v); };
    ir::barrier();
    for_places(1, 1, [&](const Place& at) {  // element n of the transform is element 0
      const Number edge = z.load(at.column);
      z.store(at.column + n * columns, edge);
      write(ir::index_literal(n), at.column, {edge.re - edge.im, ir::literal(t, 0)});
    });
    ir::barrier();
    for_places(1, n, [&](const Place& at) {
      const Value k = at.low, c = at.column;
      write(k, c, real_spectrum(z.load(k * columns + c), z.load((n - k) * columns + c), root(k)));
    });
  }
  return builder.finish();
}

ir::Function trace_real(const RealSpec& spec) {
  ir::Builder builder(spec.inverse ? "fft_from_half_spectrum" : "fft_to_half_spectrum", ir::KernelKind::map);
  ir::Builder::Scope scope(builder);
  const DType t = spec.dtype;
  const Memory in = parameter("re", "im", t, ir::Access::read);
  const auto roots = ir::buffer_param("roots", t, ir::Access::read);
  const Memory out = parameter("out_re", "out_im", t, ir::Access::read_write);
  const Value half = ir::scalar_param("half", DType::index);
  const Value k = ir::global_id(0), row = ir::global_id(1);
  const Number w{roots.load(k), roots.load(k + half + 1)};
  if (spec.inverse) {
    const Value base = row * (half + 1);
    out.store(row * half + k, complex_spectrum(k, in.load(base + k), in.load(base + half - k), w));
  } else {
    const Value base = row * half;
    const Number a = in.load(base + ir::select(k == half, ir::index_literal(0), k));
    const Number b = in.load(base + ir::select(k == 0, ir::index_literal(0), half - k));
    out.store(row * (half + 1) + k, real_spectrum(a, b, w));
  }
  return builder.finish();
}

}  // namespace tessera::fft
