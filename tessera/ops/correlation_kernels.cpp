// SPDX-License-Identifier: Apache-2.0
// Convolutions on a processor's vectors. A block stages a band of rows of some images in shared memory, padded and in
// the sums' dtype, so that what a tap of the kernel sees of all windows in turn is one run of memory that begins at an
// offset of the tap's own. Tiles of sums in registers then read it as it lies.
#include "tessera/ops/correlation.h"

namespace tessera::ops {

namespace {

using ir::Value;

/// A band in shared memory: [channel][row phase][column phase][image][row][column], where row and column count windows
/// and phases are what strides leave between them. Position q = (image * rows + row) * pitch + column of a phase. What
/// lies past a row's end is the padding at the next one's beginning, and likewise of images: so some rows and columns
/// follow the last image.
struct Band {
  Value rows, pitch, plane, length, phase_columns, phases;
  Value channel() const { return phases * length; }
};

struct Geometry {
  Value n, x_channels, y_channels, x_rows, x_columns, y_rows, y_columns, kernel_rows, kernel_columns;
  Value stride_rows, stride_columns, pad_rows, pad_columns, step_rows, step_columns;
  std::array<Value, 4> x, y;  // strides
  // Of a band: images, rows of windows, rows that are staged beside these, and the padding that rows and images share.
  Value images, rows, more_rows, pitch, shared_rows;

  explicit Geometry(const CorrelationSpec& s) {
    const auto number = [](const char* name) { return ir::scalar_param(name, DType::index); };
    n = number("n"), x_channels = number("x_channels"), y_channels = number("y_channels"), x_rows = number("x_rows");
    x_columns = number("x_columns"), y_rows = number("y_rows"), y_columns = number("y_columns");
    kernel_rows = number("kernel_rows"), kernel_columns = number("kernel_columns");
    stride_rows = number("stride_rows"), stride_columns = number("stride_columns");
    pad_rows = number("pad_rows"), pad_columns = number("pad_columns");
    step_rows = number("step_rows"), step_columns = number("step_columns");
    constexpr const char* x_names[] = {"x_image", "x_channel", "x_row", "x_column"};
    constexpr const char* y_names[] = {"y_image", "y_channel", "y_row", "y_column"};
    for (std::size_t d = 0; d < 4; ++d) x[d] = number(x_names[d]);
    for (std::size_t d = 0; d < 4; ++d) y[d] = number(y_names[d]);
    images = number("images"), rows = number("rows"), more_rows = number("more_rows"), pitch = number("pitch");
    shared_rows = number("shared_rows");
    Value* const known[] = {&kernel_rows, &kernel_columns, &stride_rows, &stride_columns};
    for (std::size_t i = 0; i < 4; ++i)
      if (s.sizes[i] != 0) *known[i] = ir::index_literal(s.sizes[i]);
    if (s.x_unit) x[3] = ir::index_literal(1);
    if (s.y_unit) y[3] = ir::index_literal(1);
  }

  Band band(Value rows_here) const {
    const auto phases_of = [](Value kernel, Value step, Value stride) {
      return ir::min(stride, (kernel - 1) * step + 1);
    };
    Band b;
    b.rows = rows_here + more_rows, b.pitch = pitch, b.plane = b.rows * pitch;
    b.length = images * b.plane + (shared_rows + 1) * pitch;
    b.phase_columns = phases_of(kernel_columns, step_columns, stride_columns);
    b.phases = phases_of(kernel_rows, step_rows, stride_rows) * b.phase_columns;
    return b;
  }
  /// Positions up to the last window.
  Value used(const Band& b, Value images_here, Value rows_here) const {
    return (images_here - 1) * b.plane + (rows_here - 1) * b.pitch + y_columns;
  }
  /// Where the windows' elements of this tap begin.
  Value offset(const Band& b, Value i, Value j) const {
    const Value down = i * step_rows, across = j * step_columns;
    const Value phase = down % stride_rows * b.phase_columns + across % stride_columns;
    return phase * b.length + down / stride_rows * b.pitch + across / stride_columns;
  }
};

class Kernel {
 public:
  explicit Kernel(const CorrelationSpec& s)
      : s_(s),
        tm_(static_cast<int>(s.tm)),
        tn_(static_cast<int>(s.tn)),
        lanes_(static_cast<int>(s.lanes)),
        builder_(std::string(s.kind == CorrelationSpec::images ? "convolution_" : "convolution_weight_") +
                     std::string(dtype_name(s.x)) + "_" + std::to_string(s.tm) + "x" + std::to_string(s.tn),
                 ir::KernelKind::block, {s.lanes, 1, 1}),
        scope_(builder_) {
    builder_.set_index64();
  }
  ir::Function images();
  ir::Function weights();

 private:
  /// `f(row, column)` for all taps, in order.
  void each_tap(const Geometry& g, const std::function<void(Value, Value)>& f) const {
    const auto columns = [&](Value i) {
      if (s_.sizes[1] == 0) return ir::for_(0, g.kernel_columns, [&](Value j) { f(i, j); });
      for (int j = 0; j < s_.sizes[1]; ++j) f(i, ir::index_literal(j));
    };
    if (s_.sizes[0] == 0 || s_.sizes[0] * s_.sizes[1] > 9) return ir::for_(0, g.kernel_rows, columns);
    for (int i = 0; i < s_.sizes[0]; ++i) columns(ir::index_literal(i));
  }
  void clear(const ir::BufferRef& memory, Value first, Value end) const {
    ir::for_(first, end, lanes_, [&](Value at) {
      ir::if_(at + ir::thread_id(0) < end, [&] { memory.store(at + ir::thread_id(0), ir::literal(s_.sum, 0)); });
    });
  }
  /// A run of memory by vectors, the last in part: `f(element)`.
  void each_of(Value first, Value end, const std::function<void(Value)>& f) const {
    const Value lane = ir::thread_id(0), count = ir::max(end - first, 0), whole = count / lanes_ * lanes_;
    ir::for_(0, whole, lanes_, [&](Value at) { f(first + at + lane); });
    ir::if_(whole < count, [&] { ir::if_(whole + lane < count, [&] { f(first + whole + lane); }); });
  }
  /// Stages what there is of `count` channels of x from `channel` on; all else in the band is 0 already.
  void stage(const Geometry& g, const Band& b, const ir::BufferRef& x, const ir::BufferRef& to, Value channel,
             Value count, Value image0, Value images_here, Value row0) const {
    // The first window that sees element 0 in this phase, or the end if `of` is the extent.
    const auto window = [](Value of, Value pad, Value phase, Value stride) {
      return ir::max(of + pad - phase + (stride - 1), 0) / stride;
    };
    const auto phase = [&](Value pr, Value pc) {
      const Value first_row = ir::max(window(ir::index_literal(0), g.pad_rows, pr, g.stride_rows) - row0, 0),
                  end_row = ir::min(b.rows, window(g.x_rows, g.pad_rows, pr, g.stride_rows) - row0),
                  first = window(ir::index_literal(0), g.pad_columns, pc, g.stride_columns),
                  end = ir::min(b.pitch, window(g.x_columns, g.pad_columns, pc, g.stride_columns));
      ir::for_(0, count, [&](Value c) {
        ir::for_(0, images_here, [&](Value i) {
          const Value plane = (image0 + i) * g.x[0] + (channel + c) * g.x[1];
          const Value start = c * b.channel() + (pr * b.phase_columns + pc) * b.length + i * b.plane;
          ir::for_(first_row, end_row, [&](Value r) {
            const Value from = plane + ((row0 + r) * g.stride_rows + pr - g.pad_rows) * g.x[2];
            each_of(first, end, [&](Value at) {
              const Value column = at * g.stride_columns + pc - g.pad_columns;
              to.store(start + r * b.pitch + at, ir::cast(s_.sum, load_at(x, from + column * g.x[3], {})));
            });
          });
        });
      });
    };
    if (s_.sizes[2] == 1 && s_.sizes[3] == 1)
      phase(ir::index_literal(0), ir::index_literal(0));
    else
      ir::for_(0, b.phases / b.phase_columns,
               [&](Value pr) { ir::for_(0, b.phase_columns, [&](Value pc) { phase(pr, pc); }); });
  }
  std::vector<ir::Variable> zeros(int count) const {
    std::vector<ir::Variable> all;
    for (int i = 0; i < count; ++i) all.emplace_back(s_.sum, 0);
    return all;
  }

  const CorrelationSpec s_;
  const int tm_, tn_, lanes_;
  ir::Builder builder_;
  ir::Builder::Scope scope_;
};

ir::Function Kernel::images() {
  const auto x = ir::buffer_param("x", s_.x, ir::Access::read), w = ir::buffer_param("w", s_.sum, ir::Access::read);
  const auto bias = s_.bias ? ir::buffer_param("bias", s_.sum, ir::Access::read) : ir::BufferRef();
  const auto y = ir::buffer_param("y", s_.y, ir::Access::read_write);
  const Geometry g(s_);
  const auto number = [](const char* name) { return ir::scalar_param(name, DType::index); };
  // Channels of x that are staged at a time, panels of a block, blocks of all panels, bands of an image.
  const Value chunk = number("chunk"), block_panels = number("block_panels"), panel_blocks = number("panel_blocks"),
              groups = number("groups"), bands = number("bands");
  const auto staged = ir::shared(s_.sum, s_.staged), sums = ir::shared(s_.sum, s_.sums);
  const Value lane = ir::thread_id(0), block = ir::block_id(0), panels = (g.y_channels + (tm_ - 1)) / tm_;
  const Value group = block / panel_blocks % groups, band = block / panel_blocks / groups;
  const Value panel0 = block % panel_blocks * block_panels, panels_here = ir::min(block_panels, panels - panel0);
  const Value row0 = band % bands * g.rows, rows_here = ir::min(g.rows, g.y_rows - row0);
  const Value image0 = band / bands * g.images, images_here = ir::min(g.images, g.n - image0);
  const int columns = tn_ * lanes_;
  const Band b = g.band(rows_here);
  const Value tiles = (g.used(b, images_here, rows_here) + (columns - 1)) / columns;
  const Value taps = g.kernel_rows * g.kernel_columns;

  ir::for_(0, g.x_channels, chunk, [&](Value c0) {
    const Value here = ir::min(chunk, g.x_channels - c0);
    ir::if_(c0 == 0, [&] { clear(staged, ir::index_literal(0), here * b.channel()); });
    ir::barrier();
    stage(g, b, x, staged, group * g.x_channels + c0, here, image0, images_here, row0);
    ir::barrier();
    ir::for_(0, panels_here, [&](Value p) {
      const Value panel = ((group * panels + panel0 + p) * g.x_channels + c0) * taps * tm_;
      ir::for_(0, tiles, [&](Value t) {
        const std::vector<ir::Variable> sum = zeros(tm_ * tn_);
        const auto each = [&](auto&& f) {
          for (int i = 0; i < tm_; ++i)
            for (int j = 0; j < tn_; ++j)
              f((p * tm_ + i) * (tiles * columns) + t * columns + j * lanes_ + lane,
                sum[static_cast<std::size_t>(i * tn_ + j)]);
        };
        ir::if_(c0 > 0, [&] { each([&](Value at, const ir::Variable& v) { v.set(sums.load(at)); }); });
        ir::for_(0, here, [&](Value c) {
          const Value from = c * b.channel() + t * columns + lane, weights = panel + c * (taps * tm_);
          each_tap(g, [&](Value i, Value j) {
            const Value tap = i * g.kernel_columns + j, start = from + g.offset(b, i, j),
                        values = weights + (s_.flipped ? taps - 1 - tap : tap) * tm_;
            std::vector<Value> right;
            for (int k = 0; k < tn_; ++k) right.push_back(staged.load(start + k * lanes_));
            for (int m = 0; m < tm_; ++m) {
              const Value left = w.load(values + m);
              for (int k = 0; k < tn_; ++k) {
                const ir::Variable& v = sum[static_cast<std::size_t>(m * tn_ + k)];
                v.set(ir::fma(left, right[static_cast<std::size_t>(k)], v.get()));
              }
            }
          });
        });
        each([&](Value at, const ir::Variable& v) { sums.store(at, v.get()); });
      });
    });
  });
  ir::barrier();
  ir::for_(0, ir::min(panels_here * tm_, g.y_channels - panel0 * tm_), [&](Value m) {
    const Value channel = group * g.y_channels + panel0 * tm_ + m;
    const Value add = s_.bias ? bias.load(channel) : Value();
    ir::for_(0, images_here, [&](Value i) {
      ir::for_(0, rows_here, [&](Value r) {
        const Value to = (image0 + i) * g.y[0] + channel * g.y[1] + (row0 + r) * g.y[2];
        const Value from = m * (tiles * columns) + i * b.plane + r * b.pitch;
        each_of(ir::index_literal(0), g.y_columns, [&](Value at) {
          Value v = sums.load(from + at);
          if (s_.bias) v = v + add;
          y.store(to + at * g.y[3], ir::cast(s_.y, v));
        });
      });
    });
  });
  return builder_.finish();
}

ir::Function Kernel::weights() {
  const auto x = ir::buffer_param("x", s_.x, ir::Access::read), y = ir::buffer_param("y", s_.y, ir::Access::read);
  const auto out = ir::buffer_param("out", s_.sum, ir::Access::read_write);
  const Geometry g(s_);
  const auto number = [](const char* name) { return ir::scalar_param(name, DType::index); };
  // Channels of x and y in a block, how many such blocks there are, and bands: of an image, and of one block.
  const Value x_block = number("x_block"), y_block = number("y_block"), x_blocks = number("x_blocks"),
              y_blocks = number("y_blocks"), groups = number("groups"), bands = number("bands"),
              block_bands = number("block_bands");
  const auto staged = ir::shared(s_.sum, s_.staged), sums = ir::shared(s_.sum, s_.sums);
  const Value lane = ir::thread_id(0), block = ir::block_id(0), taps = g.kernel_rows * g.kernel_columns;
  const Value x0 = block % x_blocks * x_block, y0 = block / x_blocks % y_blocks * y_block,
              group = block / x_blocks / y_blocks % groups, part = block / x_blocks / y_blocks / groups;
  const Value x_here = ir::min(x_block, g.x_channels - x0), y_here = ir::min(y_block, g.y_channels - y0);
  const Value panels = (y_here + (tm_ - 1)) / tm_;
  const auto at_sum = [&](Value panel, Value c, Value tap, int m) {
    return (((panel * x_block + c) * taps + tap) * tm_ + m) * lanes_ + lane;
  };
  const Value all_bands = (g.n + (g.images - 1)) / g.images * bands;
  const Value first_band = part * block_bands, end_band = ir::min(first_band + block_bands, all_bands);
  ir::for_(first_band, end_band, [&](Value band) {
    const Value row0 = band % bands * g.rows, rows_here = ir::min(g.rows, g.y_rows - row0);
    const Value image0 = band / bands * g.images, images_here = ir::min(g.images, g.n - image0);
    const Band b = g.band(rows_here);
    // After x: y's channels, at the same positions as windows, and which of these are windows.
    const Value steps = (g.used(b, images_here, rows_here) + (lanes_ - 1)) / lanes_, length = steps * lanes_;
    const Value y_start = x_block * b.channel(), valid = y_start + (y_block + (tm_ - 1)) / tm_ * tm_ * length;
    ir::barrier();
    clear(staged, ir::index_literal(0), valid + length);
    ir::barrier();
    stage(g, b, x, staged, group * g.x_channels + x0, x_here, image0, images_here, row0);
    const auto place = [&](Value start, const std::function<Value(Value, Value, Value)>& value) {
      ir::for_(0, images_here, [&](Value i) {
        ir::for_(0, rows_here, [&](Value r) {
          each_of(ir::index_literal(0), g.y_columns,
                  [&](Value at) { staged.store(start + i * b.plane + r * b.pitch + at, value(i, r, at)); });
        });
      });
    };
    ir::for_(0, y_here, [&](Value m) {
      place(y_start + m * length, [&](Value i, Value r, Value at) {
        const Value from = (image0 + i) * g.y[0] + (group * g.y_channels + y0 + m) * g.y[1] + (row0 + r) * g.y[2];
        return ir::cast(s_.sum, load_at(y, from + at * g.y[3], {}));
      });
    });
    place(valid, [&](Value, Value, Value) { return ir::literal(s_.sum, 1); });
    ir::barrier();
    ir::for_(0, panels, [&](Value p) {
      ir::for_(0, x_here, [&](Value c) {
        // Some taps at a time: all that are known, else one.
        const auto tile = [&](std::span<const std::pair<Value, Value>> here, Value tap0) {
          const int count = static_cast<int>(here.size());
          const std::vector<ir::Variable> sum = zeros(tm_ * count);
          const auto each = [&](auto&& f) {
            for (int k = 0; k < count; ++k)
              for (int m = 0; m < tm_; ++m) f(at_sum(p, c, tap0 + k, m), sum[static_cast<std::size_t>(m * count + k)]);
          };
          ir::if_(band > first_band, [&] { each([&](Value at, const ir::Variable& v) { v.set(sums.load(at)); }); });
          std::vector<Value> start;
          for (const auto& [i, j] : here) start.push_back(c * b.channel() + g.offset(b, i, j));
          ir::for_(0, length, lanes_, [&](Value q) {
            // Elsewhere x may be anything, and y is 0, which an infinity would make NaN.
            const Value is_window = staged.load(valid + q + lane) != 0;
            std::vector<Value> right;
            for (const Value& from : start)
              right.push_back(staged.load_if(is_window, from + q + lane, ir::literal(s_.sum, 0)));
            for (int m = 0; m < tm_; ++m) {
              const Value left = staged.load(y_start + (p * tm_ + m) * length + q + lane);
              for (int k = 0; k < count; ++k) {
                const ir::Variable& v = sum[static_cast<std::size_t>(m * count + k)];
                v.set(ir::fma(left, right[static_cast<std::size_t>(k)], v.get()));
              }
            }
          });
          each([&](Value at, const ir::Variable& v) { sums.store(at, v.get()); });
        };
        if (s_.sizes[0] == 0 || s_.sizes[1] == 0)
          return ir::for_(0, taps, [&](Value tap) {
            tile(std::array{std::pair(tap / g.kernel_columns, tap % g.kernel_columns)}, tap);
          });
        std::vector<std::pair<Value, Value>> all;
        for (int i = 0; i < s_.sizes[0]; ++i)
          for (int j = 0; j < s_.sizes[1]; ++j) all.emplace_back(ir::index_literal(i), ir::index_literal(j));
        for (std::size_t k = 0; k < all.size(); k += s_.tn)
          tile(std::span(all).subspan(k, std::min<std::size_t>(s_.tn, all.size() - k)),
               ir::index_literal(static_cast<std::int64_t>(k)));
      });
    });
  });
  ir::barrier();
  // The lanes' sums, each result by one thread: (part, group, y's channel, x's channel, tap).
  const Value each_y = x_here * taps;
  ir::for_(0, y_here, [&](Value m) {
    const Value to = (((part * groups + group) * g.y_channels + y0 + m) * g.x_channels + x0) * taps;
    each_of(ir::index_literal(0), each_y, [&](Value e) {
      const Value from = ((m / tm_ * x_block * taps + e) * tm_ + m % tm_) * lanes_;
      const ir::Variable sum(s_.sum, 0);
      for (int l = 0; l < lanes_; ++l) sum.set(sum.get() + sums.load(from + l));
      out.store(to + e, sum.get());
    });
  });
  return builder_.finish();
}

}  // namespace

ir::Function trace_correlation(const CorrelationSpec& spec) {
  Kernel kernel(spec);
  return spec.kind == CorrelationSpec::images ? kernel.images() : kernel.weights();
}

}  // namespace tessera::ops
