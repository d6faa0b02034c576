// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>

#include "tessera/array/min_max.h"
#include "tessera/ops/windows.h"

namespace tessera::ops {

using ir::Value;

namespace {

// The parameters of all kernels in this file, in the order of `launch` in convolution.cpp.
struct Geometry {
  Value n, rows, columns, out_rows, out_columns, kernel_rows, kernel_columns;
  Value stride_rows, stride_columns, pad_rows, pad_columns, step_rows, step_columns;
  Value image_stride, channel_stride, channels;
  explicit Geometry(const WindowSpec& spec) {
    const auto index = [](const char* name) { return ir::scalar_param(name, DType::index); };
    n = index("n"), channels = index("channels"), rows = index("rows"), columns = index("columns");
    out_rows = index("out_rows"), out_columns = index("out_columns");
    kernel_rows = index("kernel_rows"), kernel_columns = index("kernel_columns");
    stride_rows = index("stride_rows"), stride_columns = index("stride_columns");
    pad_rows = index("pad_rows"), pad_columns = index("pad_columns");
    step_rows = index("step_rows"), step_columns = index("step_columns");
    image_stride = index("image_stride"), channel_stride = index("channel_stride");
    if (!spec.known) return;
    Value* const sizes[] = {&kernel_rows, &kernel_columns, &stride_rows, &stride_columns, &pad_rows, &pad_columns};
    for (std::size_t i = 0; i < std::size(sizes); ++i) *sizes[i] = ir::index_literal(spec.sizes[i]);
    step_rows = step_columns = ir::index_literal(1);
  }
};

Value within(Value v, Value extent) { return v >= 0 && v < extent; }

DType sums_of(DType t) { return t == DType::f16 || t == DType::bf16 ? DType::f32 : t; }

}  // namespace

WindowSpec window_spec(WindowSpec::Kind kind, DType dtype, const Windows2d& o) {
  WindowSpec spec{kind, dtype, o.stride.columns == 1};
  spec.known = std::max(o.kernel.rows, o.kernel.columns) <= 5 && std::max(o.stride.rows, o.stride.columns) <= 3 &&
               std::max(o.padding.rows, o.padding.columns) <= 2 && o.dilation.rows == 1 && o.dilation.columns == 1;
  if (!spec.known) return spec;
  const std::int64_t sizes[] = {o.kernel.rows,    o.kernel.columns, o.stride.rows,
                                o.stride.columns, o.padding.rows,   o.padding.columns};
  for (std::size_t i = 0; i < spec.sizes.size(); ++i) spec.sizes[i] = static_cast<std::uint8_t>(sizes[i]);
  return spec;
}

ir::Function trace_windows(const WindowSpec& spec) {
  constexpr const char* names[] = {"windows2d",       "fold2d",         "unpool2d",        "max_pool2d",
                                   "max_positions2d", "average_pool2d", "average_unpool2d"};
  ir::Builder builder(names[spec.kind], ir::KernelKind::map);
  ir::Builder::Scope scope(builder);
  builder.set_exact();
  const auto in = ir::buffer_param("in", spec.dtype, ir::Access::read);
  ir::BufferRef positions;
  if (spec.kind == WindowSpec::unpool) positions = ir::buffer_param("positions", DType::i32, ir::Access::read);
  const auto out =
      ir::buffer_param("out", spec.kind == WindowSpec::positions ? DType::i32 : spec.dtype, ir::Access::read_write);
  const Geometry g(spec);
  const Value x = ir::global_id(0), y = ir::global_id(1), plane = ir::global_id(2);
  const auto scaled = [&](Value v) { return spec.unit ? v : v * g.stride_columns; };
  const Value zero = ir::literal(spec.dtype, 0);
  const DType sums = sums_of(spec.dtype);
  // Each image plane is contiguous. The first two dimensions may have any stride.
  const auto start_of = [&](Value image, Value channel) { return image * g.image_stride + channel * g.channel_stride; };

  if (spec.kind == WindowSpec::gather) {  // one thread per element of (channels, kernel rows, kernel columns, n, y, x)
    const Value image = plane % g.n, rest = plane / g.n, j = rest % g.kernel_columns, above = rest / g.kernel_columns;
    const Value i = above % g.kernel_rows, channel = above / g.kernel_rows;
    const Value row = y * g.stride_rows + i * g.step_rows - g.pad_rows;
    const Value column = scaled(x) + j * g.step_columns - g.pad_columns;
    const Value inside = within(row, g.rows) && within(column, g.columns);
    out.store((plane * g.out_rows + y) * g.out_columns + x,
              in.load_if(inside, start_of(image, channel) + row * g.columns + column, zero));
    return builder.finish();
  }

  const bool unpool = spec.kind == WindowSpec::unpool;
  // Returns the contribution of a window to an element: the value of the window. For unpool it is 0 unless the position
  // of the window is this element.
  const auto taken = [&](Value window, Value exists, Value own) {
    if (unpool) exists = positions.load_if(exists, window, ir::literal(DType::i32, -1)) == own;
    return in.load_if(exists, window, zero);
  };

  if (spec.spreads() && spec.apart()) {  // one thread per window
    const Value at = (plane * g.out_rows + y) * g.out_columns + x, v = in.load(at);
    const Value where = unpool ? positions.load(at) : Value();
    for (int i = 0; i < spec.sizes[0]; ++i)
      for (int j = 0; j < spec.sizes[1]; ++j) {
        const Value own = (y * spec.sizes[0] + i) * g.columns + (x * spec.sizes[1] + j);
        out.store(plane * (g.rows * g.columns) + own,
                  unpool ? ir::select(where == ir::cast(DType::i32, own), v, zero) : v);
      }
    return builder.finish();
  }

  // one thread per element of an image; adds the windows that contain it, starting with the last one
  if (spec.spreads()) {
    const Value own = ir::cast(DType::i32, y * g.columns + x), down = y + g.pad_rows, across = x + g.pad_columns;
    const ir::Variable sum(sums, ir::literal(sums, 0));
    ir::for_(0, (g.kernel_rows + (g.stride_rows - 1)) / g.stride_rows, 1, [&](Value i) {
      const Value row = down / g.stride_rows - i;
      ir::if_(within(row, g.out_rows) && down - row * g.stride_rows < g.kernel_rows, [&] {
        ir::for_(0, (g.kernel_columns + (g.stride_columns - 1)) / g.stride_columns, 1, [&](Value j) {
          const Value column = (spec.unit ? across : across / g.stride_columns) - j;
          const Value exists = within(column, g.out_columns) && across - scaled(column) < g.kernel_columns;
          sum.set(sum.get() + ir::cast(sums, taken((plane * g.out_rows + row) * g.out_columns + column, exists, own)));
        });
      });
    });
    out.store((plane * g.rows + y) * g.columns + x, ir::cast(spec.dtype, sum.get()));
    return builder.finish();
  }

  if (spec.kind == WindowSpec::fold) {  // one thread per element of an image
    const Value image = plane / g.channels, channel = plane % g.channels;
    const ir::Variable sum(sums, ir::literal(sums, 0));
    ir::for_(0, g.kernel_rows, 1, [&](Value i) {
      const Value from = y + g.pad_rows - i * g.step_rows, row = from / g.stride_rows;
      const Value row_exists = from >= 0 && from % g.stride_rows == 0 && row < g.out_rows;
      ir::if_(row_exists, [&] {
        ir::for_(0, g.kernel_columns, 1, [&](Value j) {
          const Value across = x + g.pad_columns - j * g.step_columns;
          const Value column = spec.unit ? across : across / g.stride_columns;
          Value exists = across >= 0 && column < g.out_columns;
          if (!spec.unit) exists = exists && across % g.stride_columns == 0;
          const Value window = ((channel * g.kernel_rows + i) * g.kernel_columns + j) * g.n + image;
          const Value v = in.load_if(exists, (window * g.out_rows + row) * g.out_columns + column, zero);
          sum.set(sum.get() + ir::cast(sums, v));
        });
      });
    });
    out.store((plane * g.rows + y) * g.columns + x, ir::cast(spec.dtype, sum.get()));
    return builder.finish();
  }

  // Pooling: one thread per window.
  const Value start = start_of(plane / g.channels, plane % g.channels);
  const Value result = (plane * g.out_rows + y) * g.out_columns + x;
  const bool floats = is_float(spec.dtype), mean = spec.kind == WindowSpec::mean;
  const DType keys = !floats ? spec.dtype : spec.dtype == DType::f64 ? DType::i64 : DType::i32;
  const ir::Variable sum(mean ? sums : keys, ir::literal(mean ? sums : keys, 0));
  std::optional<ir::Variable> best;  // position of the largest element so far
  if (!mean) best.emplace(DType::i32, -1);
  ir::for_(0, g.kernel_rows, 1, [&](Value i) {
    const Value row = y * g.stride_rows + i - g.pad_rows;
    ir::if_(within(row, g.rows), [&] {
      ir::for_(0, g.kernel_columns, 1, [&](Value j) {
        const Value column = scaled(x) + j - g.pad_columns, exists = within(column, g.columns);
        const Value v = ir::cast(sums, in.load_if(exists, start + row * g.columns + column, zero));
        if (mean) return sum.set(sum.get() + v);
        // Compares integers that sort in the same order (min_max.h): NaN is the largest, and no device flushes
        // denormals.
        const Value key = floats ? detail::sortable_key(v, true) : v;
        const Value better = exists && (best->get() < 0 || key > sum.get());
        sum.set(ir::select(better, key, sum.get()));
        best->set(ir::select(better, ir::cast(DType::i32, row * g.columns + column), best->get()));
      });
    });
  });
  if (mean) {
    const Value count = ir::cast(sums, g.kernel_rows * g.kernel_columns);
    out.store(result, ir::cast(spec.dtype, sum.get() / count));
  } else if (spec.kind == WindowSpec::positions) {
    out.store(result, best->get());
  } else {
    const Value v = floats ? detail::from_sortable_key(sum.get()) : sum.get();
    out.store(result, ir::cast(spec.dtype, v));
  }
  return builder.finish();
}

}  // namespace tessera::ops
