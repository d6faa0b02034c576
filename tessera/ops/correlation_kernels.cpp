// SPDX-License-Identifier: Apache-2.0
// Convolutions in which a vector consists of consecutive windows. Tiles of sums are in registers, and the elements are
// read directly from the band.
#include <algorithm>
#include <functional>

#include "tessera/ops/correlation_kernel.h"

namespace tessera::ops {

namespace {

using ir::Value;

class Kernel : CorrelationKernel {
 public:
  explicit Kernel(const CorrelationSpec& s) : CorrelationKernel(s, "") {}
  ir::Function images();
  ir::Function weights();
};

ir::Function Kernel::images() {
  const auto x = ir::buffer_param("x", s_.x, ir::Access::read), w = ir::buffer_param("w", s_.sum, ir::Access::read);
  const auto bias = s_.bias ? ir::buffer_param("bias", s_.sum, ir::Access::read) : ir::BufferRef();
  const auto y = ir::buffer_param("y", s_.y, ir::Access::read_write);
  const Geometry g(s_);
  const auto number = [](const char* name) { return ir::scalar_param(name, DType::index); };
  // The number of channels of x staged at a time, panels per block, blocks for all panels, and bands per image.
  const Value chunk = number("chunk"), block_panels = number("block_panels"), panel_blocks = number("panel_blocks"),
              groups = number("groups"), bands = number("bands");
  const auto staged = ir::shared(s_.sum, s_.staged), sums = ir::shared(s_.sum, s_.sums);
  const Value lane = ir::thread_id(0), block = ir::block_id(0), panels = (g.y_channels + (tm_ - 1)) / tm_;
  const Value group = block / panel_blocks % groups, band = block / panel_blocks / groups;
  const Value panel0 = block % panel_blocks * block_panels, active_panels = ir::min(block_panels, panels - panel0);
  const Value row0 = band % bands * g.rows, active_rows = ir::min(g.rows, g.y_rows - row0);
  const Value image0 = band / bands * g.images, active_images = ir::min(g.images, g.n - image0);
  const int columns = tn_ * lanes_;
  const Band b = g.band(active_rows);
  const Value tiles = (g.used(b, active_images, active_rows) + (columns - 1)) / columns;
  const Value taps = g.kernel_rows * g.kernel_columns;

  ir::for_(0, g.x_channels, chunk, [&](Value c0) {
    const Value here = ir::min(chunk, g.x_channels - c0);
    ir::if_(c0 == 0, [&] { clear(staged, ir::index_literal(0), here * b.channel()); });
    ir::barrier();
    stage(g, b, x, staged, group * g.x_channels + c0, here, image0, active_images, row0);
    ir::barrier();
    ir::for_(0, active_panels, [&](Value p) {
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
          for_each_tap(g, [&](Value i, Value j) {
            const Value tap = i * g.kernel_columns + j, start = from + g.offset(b, i, j), values = weights + tap * tm_;
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
  ir::for_(0, ir::min(active_panels * tm_, g.y_channels - panel0 * tm_), [&](Value m) {
    const Value channel = group * g.y_channels + panel0 * tm_ + m;
    const Value add = s_.bias ? bias.load(channel) : Value();
    ir::for_(0, active_images, [&](Value i) {
      ir::for_(0, active_rows, [&](Value r) {
        const Value to = (image0 + i) * g.y[0] + channel * g.y[1] + (row0 + r) * g.y[2];
        const Value from = m * (tiles * columns) + i * b.plane + r * b.pitch;
        for_each_element(ir::index_literal(0), g.y_columns, [&](Value at) {
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
  const WeightBlock own(g);
  const auto staged = ir::shared(s_.sum, s_.staged), sums = ir::shared(s_.sum, s_.sums);
  const Value lane = ir::thread_id(0), taps = g.kernel_rows * g.kernel_columns;
  const Value panels = (own.active_y + (tm_ - 1)) / tm_;
  const auto at_sum = [&](Value panel, Value c, Value tap, int m) {
    return (((panel * own.x_block + c) * taps + tap) * tm_ + m) * lanes_ + lane;
  };
  ir::for_(own.first_band, own.end_band, [&](Value band) {
    const Value row0 = band % own.bands * g.rows, active_rows = ir::min(g.rows, g.y_rows - row0);
    const Value image0 = band / own.bands * g.images, active_images = ir::min(g.images, g.n - image0);
    const Band b = g.band(active_rows);
    // The staged channels of x are followed by the channels of y, at the positions of their windows. The channels of y
    // are followed by a mask, which is nonzero at the positions of windows.
    const Value steps = (g.used(b, active_images, active_rows) + (lanes_ - 1)) / lanes_, length = steps * lanes_;
    const Value y_start = own.x_block * b.channel(), valid = y_start + (own.y_block + (tm_ - 1)) / tm_ * tm_ * length;
    ir::barrier();
    clear(staged, ir::index_literal(0), valid + length);
    ir::barrier();
    stage(g, b, x, staged, own.group * g.x_channels + own.x0, own.active_x, image0, active_images, row0);
    const auto place = [&](Value start, const std::function<Value(Value, Value, Value)>& value) {
      ir::for_(0, active_images, [&](Value i) {
        ir::for_(0, active_rows, [&](Value r) {
          for_each_element(ir::index_literal(0), g.y_columns,
                           [&](Value at) { staged.store(start + i * b.plane + r * b.pitch + at, value(i, r, at)); });
        });
      });
    };
    ir::for_(0, own.active_y, [&](Value m) {
      place(y_start + m * length, [&](Value i, Value r, Value at) {
        const Value from =
            (image0 + i) * g.y[0] + (own.group * g.y_channels + own.y0 + m) * g.y[1] + (row0 + r) * g.y[2];
        return ir::cast(s_.sum, load_at(y, from + at * g.y[3], {}));
      });
    });
    place(valid, [&](Value, Value, Value) { return ir::literal(s_.sum, 1); });
    ir::barrier();
    ir::for_(0, panels, [&](Value p) {
      ir::for_(0, own.active_x, [&](Value c) {
        // A tile covers several taps if the kernel's extents are known, otherwise one tap.
        const auto tile = [&](std::span<const std::pair<Value, Value>> here, Value tap0) {
          const int count = static_cast<int>(here.size());
          const std::vector<ir::Variable> sum = zeros(tm_ * count);
          const auto each = [&](auto&& f) {
            for (int k = 0; k < count; ++k)
              for (int m = 0; m < tm_; ++m) f(at_sum(p, c, tap0 + k, m), sum[static_cast<std::size_t>(m * count + k)]);
          };
          ir::if_(band > own.first_band, [&] { each([&](Value at, const ir::Variable& v) { v.set(sums.load(at)); }); });
          std::vector<Value> start;
          for (const auto& [i, j] : here) start.push_back(c * b.channel() + g.offset(b, i, j));
          ir::for_(0, length, lanes_, [&](Value q) {
            // At other positions y is 0, but x is arbitrary. If x were infinite, the product would be NaN.
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
  // Adds up the lanes of each sum, with one thread per result. The layout is (part, group, channel of y, channel of x,
  // tap).
  const Value each_y = own.active_x * taps;
  ir::for_(0, own.active_y, [&](Value m) {
    const Value to = own.result(g, m, taps);
    for_each_element(ir::index_literal(0), each_y, [&](Value e) {
      const Value from = ((m / tm_ * own.x_block * taps + e) * tm_ + m % tm_) * lanes_;
      const ir::Variable sum(s_.sum, 0);
      for (int l = 0; l < lanes_; ++l) sum.set(sum.get() + sums.load(from + l));
      out.store(to + e, sum.get());
    });
  });
  return builder_.finish();
}

}  // namespace

ir::Function trace_weight_pack(const WeightPackSpec& s) {
  const int width = static_cast<int>(s.width), lanes = static_cast<int>(s.lanes);
  ir::Builder builder("pack_weight_" + std::string(dtype_name(s.from)) + "_" + std::to_string(width),
                      ir::KernelKind::block, {s.lanes, 1, 1});
  const ir::Builder::Scope scope(builder);
  builder.set_index64();
  const auto from = ir::buffer_param("from", s.from, ir::Access::read);
  const auto to = ir::buffer_param("to", s.to, ir::Access::read_write);
  const auto number = [](const char* name) { return ir::scalar_param(name, DType::index); };
  const Value y_channels = number("y_channels"), x_channels = number("x_channels"), rows = number("rows"),
              columns = number("columns"), panels = number("panels"), group_stride = number("group_stride"),
              y_stride = number("y_stride"), x_stride = number("x_stride"), row_stride = number("row_stride"),
              column_stride = number("column_stride");
  const Value block = ir::block_id(0), first = block % panels * width, taps = rows * columns;
  for (int at = 0; at < width; at += lanes) {
    const Value channel = first + (at + ir::thread_id(0));
    const auto copy = [&](Value exists) {
      ir::for_(0, x_channels, [&](Value c) {
        ir::for_(0, rows, [&](Value i) {
          const Value start = block / panels * group_stride + channel * y_stride + c * x_stride + i * row_stride;
          ir::for_(0, columns, [&](Value j) {
            const Value tap = i * columns + j, term = c * taps + (s.flipped ? taps - 1 - tap : tap);
            to.store((block * (x_channels * taps) + term) * width + (at + ir::thread_id(0)),
                     ir::cast(s.to, load_at(from, start + (s.unit ? j : j * column_stride), exists)));
          });
        });
      });
    };
    ir::if_(
        first + (at + lanes) <= y_channels, [&] { copy({}); }, [&] { copy(channel < y_channels); });
  }
  return builder.finish();
}

ir::Function trace_correlation(const CorrelationSpec& spec) {
  if (spec.by_channels) return trace_correlation_by_channels(spec);
  Kernel kernel(spec);
  return spec.kind == CorrelationSpec::images ? kernel.images() : kernel.weights();
}

}  // namespace tessera::ops
