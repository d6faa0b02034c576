// SPDX-License-Identifier: Apache-2.0
#include "tessera/fft/transform.h"

#include <algorithm>
#include <bit>
#include <map>
#include <mutex>

#include "tessera/array/functions.h"
#include "tessera/array/rearrange.h"
#include "tessera/base/os/fork.h"
#include "tessera/device/launch/block_threads.h"
#include "tessera/device/launch/kernel.h"
#include "tessera/device/launch/kernel_family.h"
#include "tessera/device/placement/kernel_backend.h"
#include "tessera/device/queue/recorder.h"
#include "tessera/fft/kernels.h"

namespace tessera::fft {

namespace {

/// Complex numbers whose shape is that of the algorithm: (outer, n, inner), or (rows, n).
struct Parts {
  Array re, im;
};
Parts exchanged(const Parts& x) { return {x.im, x.re}; }
template <class F>
Parts of_both(const Parts& x, F f) {
  return {f(x.re), f(x.im)};
}
Parts empty_like(const Parts& x) {
  return of_both(x, [](const Array& a) { return Array::empty(a.shape(), a.dtype(), a.device()); });
}

LaunchArgument real_argument(DType t, double value) {
  return LaunchArgument::scalar(t, t == DType::f32 ? std::bit_cast<std::uint32_t>(static_cast<float>(value))
                                                   : std::bit_cast<std::uint64_t>(value));
}

/// Constant arrays of a device.
enum class Table : std::uint8_t { twiddles, turns, roots, chirp };

/// Returns arrays that depend only on two lengths. They are computed once and kept.
template <class F>
std::vector<Array> table(Table what, Device device, DType t, std::int64_t n, std::int64_t count, F compute) {
  using Key = std::tuple<Table, Device, DType, std::int64_t, std::int64_t>;
  struct Known {
    std::mutex lock;
    std::map<Key, std::vector<Array>> all;
    std::uint64_t bytes = 0;
  };
  static constinit os::PerProcess<Known> the_known;
  const Key key{what, device, t, n, count};
  auto& [lock, known, bytes] = the_known.get();
  {
    const std::lock_guard guard(lock);
    if (const auto it = known.find(key); it != known.end()) return it->second;
  }
  const Recorder::Pause pause(true);  // not recorded, because the tables are the same for every replay
  const std::vector<Array> made = compute();
  std::uint64_t size = 0;
  for (const Array& a : made) size += a.eval().bytes();
  constexpr std::uint64_t most_bytes = 128 << 20, most_tables = 256;
  const std::lock_guard guard(lock);
  if (size > most_bytes) return made;
  if (known.size() >= most_tables || bytes + size > most_bytes) known.clear(), bytes = 0;
  if (known.emplace(key, made).second) bytes += size;
  return made;
}

Array on_device(const std::vector<double>& values, DType t, Device device) {
  if (t == DType::f64) return Array::from(values, {}, device);
  return Array::from(std::vector<float>(values.begin(), values.end()), {}, device);
}

/// The sizes of blocks on a device.
struct Limits {
  bool vectors;              ///< the threads of a block are the lanes of a vector
  std::uint32_t lanes;       ///< number of threads of a block; on GPUs at most
  std::int64_t columns;      ///< sequences that are transformed together if their elements are adjacent
  std::int64_t row, column;  ///< the longest sequence of a kernel for rows and for columns
  std::int64_t cached;       ///< on CPUs: complex numbers that fit three times into the caches of all cores
};

Limits limits_of(Device device, DType t) {
  const DeviceInfo& info = device_info(device);
  Limits out{.vectors = blocks_are_vectors(kernel_backend(device))};
  const auto bytes = static_cast<std::int64_t>(dtype_size(t));
  out.lanes = out.vectors ? std::max(1u, info.can.subgroup_widths[0] / (t == DType::f64 ? 2 : 1))
                          : block_threads(info.can, 256);
  out.columns = 64 / bytes;  // a cache line
  // Two buffers with two parts, and their padding.
  const std::int64_t room = static_cast<std::int64_t>(info.can.shared_bytes) / (4 * bytes) - 16;
  out.row = room - 1, out.column = room / out.columns - 1;
  out.cached = static_cast<std::int64_t>(info.compute_units) * (std::int64_t{1} << 20) / (6 * bytes);
  return out;
}

std::uint32_t threads_of(const Limits& limits, std::int64_t n, std::int64_t columns) {
  if (limits.vectors) return limits.lanes;
  const auto butterflies = static_cast<std::uint64_t>(n * columns / 8);
  return std::min(limits.lanes,
                  std::bit_floor(static_cast<std::uint32_t>(std::clamp<std::uint64_t>(butterflies, 32, 1024))));
}

/// The roots that convert between the spectra of n real numbers and of n / 2 complex numbers.
Array roots_of(std::int64_t n, DType t, Device device) {
  return table(Table::roots, device, t, n, 0, [&] {
    std::vector<double> values;
    for (std::int64_t k = 0; k <= n / 2; ++k) values.push_back(root_of_unity(k, n).re);
    for (std::int64_t k = 0; k <= n / 2; ++k) values.push_back(root_of_unity(k, n).im);
    return std::vector<Array>{on_device(values, t, device)};
  })[0];
}

/// Launches a kernel for `outers` times `count` sequences. Real numbers are passed as the real part.
void launch(TransformSpec spec, const Parts& in, const Parts& out, std::int64_t outers, std::int64_t count,
            double scale) {
  static auto& family = *new KernelFamily<TransformSpec>(trace_transform);
  const std::int64_t tiles = (count + spec.columns - 1) / spec.columns, n = spec.n;
  const Device device = out.re.device();
  spec.ragged = count % spec.columns != 0;
  const DType t = spec.dtype;
  LaunchArguments arguments;
  arguments.add(in.re.view());
  if (spec.reals != Reals::forward) arguments.add(in.im.view());
  const Array twiddles = table(Table::twiddles, device, t, n, 0,
                               [&] { return std::vector<Array>{on_device(transform_twiddles(n), t, device)}; })[0];
  arguments.add(twiddles.view());
  if (spec.twiddled)
    arguments.add(table(Table::turns, device, t, n, count,
                        [&] { return std::vector<Array>{on_device(column_turns(n, count), t, device)}; })[0]
                      .view());
  if (spec.reals != Reals::none) arguments.add(roots_of(2 * n, t, device).view());
  arguments.add(out.re.view_for_writing());
  if (spec.reals != Reals::inverse) arguments.add(out.im.view_for_writing());
  arguments.index(count), arguments.index(tiles);
  if (!spec.twiddled) {
    const LaunchArgument factor = real_argument(t, scale);
    arguments.scalar(factor.dtype, factor.bits);
  }
  family(spec).launch({static_cast<std::uint64_t>(outers * tiles), 1, 1}, arguments);
}

/// True if one kernel can transform the middle axis of an array (outer, n, inner) where it is.
bool fits(const Limits& limits, std::int64_t n, std::int64_t inner) {
  if (n < 2 || !is_smooth(n)) return false;
  return inner == 1 ? n <= limits.row : n <= limits.column && 2 * inner >= limits.columns;
}

/// Launches the kernel for the middle axis, which fits.
void launch_axis(const Limits& limits, DType t, std::int64_t n, std::int64_t outer, std::int64_t inner, Reals reals,
                 bool twiddled, const Parts& in, const Parts& out, double scale) {
  TransformSpec spec{.dtype = t, .n = static_cast<std::uint32_t>(n), .threads = 1, .columns = 1};
  spec.in = spec.out = inner == 1 && !twiddled ? Order::rows : Order::columns;
  spec.twiddled = twiddled, spec.reals = reals;
  if (spec.in == Order::columns) {
    spec.columns = static_cast<std::uint32_t>(limits.columns);
  } else if (n < 8 * static_cast<std::int64_t>(limits.vectors ? limits.lanes : 32) &&
             (limits.vectors || n <= limits.column)) {
    // Short rows leave lanes without work, so a block transforms several rows, one per lane, if they fit into its
    // memory.
    spec.columns = limits.vectors ? limits.lanes : static_cast<std::uint32_t>(limits.columns);
    std::swap(outer, inner);
  }
  spec.threads = threads_of(limits, n, spec.columns);
  launch(spec, in, out, outer, inner, scale);
}

Parts transformed_rows(const Parts& x, double scale);
Parts bluestein(const Parts& x, double scale);

/// Transforms the last axis of (rows, n).
Parts transformed_rows(const Parts& x, double scale) {
  const std::int64_t rows = x.re.shape(0), n = x.re.shape(1);
  const DType t = x.re.dtype();
  if (n == 1) return of_both(x, [&](const Array& a) { return scale == 1 ? a.copy() : a * scale; });
  if (!is_smooth(n)) return bluestein(x, scale);
  const Limits limits = limits_of(x.re.device(), t);
  if (fits(limits, n, 1)) {
    Parts out = empty_like(x);
    launch_axis(limits, t, n, rows, 1, Reals::none, false, x, out, scale);
    return out;
  }
  // n = n1 n2: transforms of the columns of an n1 x n2 matrix, factors, and transforms of the rows give the transposed
  // result (Bailey, "FFTs in external or hierarchical memory", 1990). n1 and n2 are similar, so that the blocks of both
  // kernels fit into a cache.
  std::int64_t n1 = 1;
  const auto rest_fits = [&] {
    return n / n1 <= std::min(limits.column, n1) || (n > limits.column * limits.column && n / n1 <= limits.row);
  };
  for (std::int64_t d = 2; d <= limits.column && (n1 == 1 || !rest_fits()); ++d)
    if (n % d == 0) n1 = d;
  const std::int64_t n2 = n / n1;
  const auto shaped = [](Shape shape) { return [shape](const Array& a) { return a.reshape(shape); }; };
  if (n2 <= limits.column) {
    const Parts out = empty_like(x);
    const auto columns = static_cast<std::uint32_t>(limits.columns);
    const TransformSpec second{.dtype = t,
                               .n = static_cast<std::uint32_t>(n2),
                               .threads = threads_of(limits, n2, columns),
                               .columns = columns,
                               .in = Order::rows,
                               .out = Order::columns};
    // The second kernel finds the results of the first one in the caches if both transform few rows at a time.
    const std::int64_t group = limits.vectors ? std::clamp<std::int64_t>(limits.cached / n, 1, rows) : rows;
    Parts y{Array::empty({group, n}, t, x.re.device()), Array::empty({group, n}, t, x.re.device())};
    for (std::int64_t begin = 0; begin < rows; begin += group) {
      const std::int64_t end = std::min(begin + group, rows);
      const auto part = [&](const Array& a) { return a.slice(0, begin, end); };
      launch_axis(limits, t, n1, end - begin, n2, Reals::none, true, of_both(x, part), y, 1);
      launch(second, y, of_both(out, part), end - begin, n1, scale);
    }
    return out;
  }
  Parts y = empty_like(x);
  launch_axis(limits, t, n1, rows, n2, Reals::none, true, x, y, 1);
  y = transformed_rows(of_both(y, shaped({rows * n1, n2})), scale);
  return of_both(y, [&](const Array& a) {
    return a.reshape({rows, n1, n2}).permute({0, 2, 1}).copy().reshape({rows, n});
  });
}

/// Transforms rows of any length n as a convolution with a chirp, whose length m is smooth (Bluestein, "A linear
/// filtering approach to the computation of discrete Fourier transform", 1970).
Parts bluestein(const Parts& x, double scale) {
  const std::int64_t rows = x.re.shape(0), n = x.re.shape(1);
  const DType t = x.re.dtype();
  const Device device = x.re.device();
  std::int64_t m = std::int64_t{1} << 62;
  for (const std::int64_t odd : {1, 3, 5}) {
    std::int64_t length = odd * 8;
    while (length < 2 * n - 1) length *= 2;
    m = std::min(m, length);
  }
  const std::vector<Array> chirps = table(Table::chirp, device, t, n, 0, [&] {
    std::vector<double> re, im, wide_re(static_cast<std::size_t>(m)), wide_im(wide_re);
    for (std::int64_t k = 0; k < n; ++k) {
      // k^2 modulo 2 n
      const auto square =
          static_cast<std::int64_t>(static_cast<unsigned __int128>(k) * static_cast<unsigned __int128>(k) %
                                    static_cast<unsigned __int128>(2 * n));
      const Root root = root_of_unity(square, 2 * n);
      re.push_back(root.re), im.push_back(root.im);
      for (const std::int64_t at : {k, (m - k) % m})
        wide_re[static_cast<std::size_t>(at)] = root.re, wide_im[static_cast<std::size_t>(at)] = -root.im;
    }
    const auto row = [](const Array& a) { return a.reshape({1, a.size()}); };
    const Parts wide = transformed_rows({row(on_device(wide_re, t, device)), row(on_device(wide_im, t, device))}, 1);
    return std::vector<Array>{row(on_device(re, t, device)), row(on_device(im, t, device)), wide.re, wide.im};
  });
  const auto product = [](const Parts& a, const Array& re, const Array& im) {
    return Parts{a.re * re - a.im * im, a.re * im + a.im * re};
  };
  const auto computed = [](const Parts& a) {
    eval({a.re, a.im});
    return a;
  };
  const Array zeros = Array::zeros({1, 1}, t, device).broadcast_to({rows, m - n});
  Parts y = of_both(computed(product(x, chirps[0], chirps[1])), [&](const Array& a) {
    return concatenate({a, zeros}, 1);
  });
  y = computed(product(transformed_rows(y, 1), chirps[2], chirps[3]));
  y = exchanged(transformed_rows(exchanged(y), scale / static_cast<double>(m)));
  return computed(product(of_both(y, [&](const Array& a) { return a.slice(1, 0, n); }), chirps[0], chirps[1]));
}

/// Transforms the middle axis of (outer, n, inner).
Parts transformed(const Parts& x, double scale) {
  const std::int64_t outer = x.re.shape(0), n = x.re.shape(1), inner = x.re.shape(2);
  const Limits limits = limits_of(x.re.device(), x.re.dtype());
  if (fits(limits, n, inner)) {
    const Parts out = empty_like(x);
    launch_axis(limits, x.re.dtype(), n, outer, inner, Reals::none, false, x, out, scale);
    return out;
  }
  Parts y = of_both(x, [&](const Array& a) {
    return a.permute({0, 2, 1}).as_contiguous().reshape({outer * inner, n});
  });
  y = transformed_rows(y, scale);
  return of_both(y, [&](const Array& a) { return a.reshape({outer, inner, n}).permute({0, 2, 1}); });
}

Shape with_extent(Shape shape, int axis, std::int64_t extent) {
  shape[static_cast<std::size_t>(axis)] = extent;
  return shape;
}

void convert(bool inverse, const Parts& in, const Parts& out, std::int64_t n) {
  static auto& family = *new KernelFamily<RealSpec>(trace_real);
  const DType t = in.re.dtype();
  const Array roots = roots_of(n, t, in.re.device());
  family({t, inverse})
      .launch({static_cast<std::uint64_t>(out.re.shape(1)), static_cast<std::uint64_t>(out.re.shape(0)), 1},
              {in.re.view(), in.im.view(), roots.view(), out.re.view_for_writing(), out.im.view_for_writing(),
               LaunchArgument::index(n / 2)});
}

}  // namespace

Complex transform(const Complex& x, int axis, Direction direction, double scale) {
  const detail::AxisLayout layout(x.shape(), static_cast<std::size_t>(axis));
  const Shape shape = x.shape();
  if (x.size() == 0) return {Array::zeros(shape, x.dtype(), x.device()), Array::zeros(shape, x.dtype(), x.device())};
  const bool inverse = direction == Direction::inverse;
  Parts parts{x.real, x.imag};
  eval({parts.re, parts.im});
  parts = of_both(parts, [&](const Array& a) {
    return a.as_contiguous().reshape({layout.outer, layout.extent, layout.inner});
  });
  if (inverse) parts = exchanged(parts);
  parts = transformed(parts, scale);
  if (inverse) parts = exchanged(parts);
  return {parts.re.reshape(shape), parts.im.reshape(shape)};
}

Complex transform_real(const Array& x, int axis, double scale) {
  const detail::AxisLayout layout(x.shape(), static_cast<std::size_t>(axis));
  const std::int64_t n = layout.extent, half = n / 2;
  const DType t = x.dtype();
  const Device device = x.device();
  const Shape shape = with_extent(x.shape(), axis, half + 1);
  if (x.size() == 0) return {Array::zeros(shape, t, device), Array::zeros(shape, t, device)};
  if (n % 2 != 0) {
    const Complex y = transform(Complex(x), axis, Direction::forward, scale);
    return {y.real.slice(axis, 0, half + 1), y.imag.slice(axis, 0, half + 1)};
  }
  const Limits limits = limits_of(device, t);
  if (fits(limits, half, layout.inner)) {
    const Parts out{Array::empty(shape, t, device), Array::empty(shape, t, device)};
    launch_axis(limits, t, half, layout.outer, layout.inner, Reals::forward, false, {x.as_contiguous(), {}}, out,
                scale);
    return {out.re, out.im};
  }
  if (layout.inner > 1) {
    const Complex y = transform_real(swapaxes(x, axis, -1), x.rank() - 1, scale);
    return {swapaxes(y.real, axis, -1), swapaxes(y.imag, axis, -1)};
  }
  // The transform of n / 2 complex numbers, whose parts are neighbours.
  const Array pairs = x.as_contiguous().reshape({layout.outer, half, 2});
  const Parts y = transformed_rows({pairs.select(2, 0).as_contiguous(), pairs.select(2, 1).as_contiguous()}, scale);
  const Shape rows{layout.outer, half + 1};
  const Parts out{Array::empty(rows, t, device), Array::empty(rows, t, device)};
  convert(false, {y.re.eval(), y.im.eval()}, out, n);
  return {out.re.reshape(shape), out.im.reshape(shape)};
}

Array inverse_to_real(const Complex& x, int axis, std::int64_t n, double scale) {
  const detail::AxisLayout layout(x.shape(), static_cast<std::size_t>(axis));
  const std::int64_t half = n / 2;
  const DType t = x.dtype();
  const Device device = x.device();
  const Shape shape = with_extent(x.shape(), axis, n);
  if (x.size() == 0) return Array::zeros(shape, t, device);
  eval({x.real, x.imag});
  if (n % 2 != 0) {
    const auto whole = [&](const Array& a, bool negative) {
      const Array rest = flip(a.slice(axis, 1, half + 1), {axis});
      return concatenate({a, negative ? -rest : rest}, axis);
    };
    const Array edge = Array::zeros({}, t, device).broadcast_to(with_extent(x.shape(), axis, 1));
    const Complex both{whole(x.real, false), whole(concatenate({edge, x.imag.slice(axis, 1, half + 1)}, axis), true)};
    return transform(both, axis, Direction::inverse, scale).real;
  }
  const Limits limits = limits_of(device, t);
  if (fits(limits, half, layout.inner)) {
    Array out = Array::empty(shape, t, device);
    launch_axis(limits, t, half, layout.outer, layout.inner, Reals::inverse, false,
                {x.real.as_contiguous(), x.imag.as_contiguous()}, {out, {}}, scale);
    return out;
  }
  if (layout.inner > 1)
    return swapaxes(inverse_to_real({swapaxes(x.real, axis, -1), swapaxes(x.imag, axis, -1)}, x.rank() - 1, n, scale),
                    axis, -1);
  const Shape rows{layout.outer, half + 1};
  const Parts y{Array::empty({layout.outer, half}, t, device), Array::empty({layout.outer, half}, t, device)};
  convert(true, {x.real.as_contiguous().reshape(rows), x.imag.as_contiguous().reshape(rows)}, y, n);
  const Parts z = exchanged(transformed_rows(exchanged(y), scale));
  return stack({z.re, z.im}, -1).reshape(shape);
}

}  // namespace tessera::fft
