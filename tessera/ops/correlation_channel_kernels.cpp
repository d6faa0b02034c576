// SPDX-License-Identifier: Apache-2.0
// Convolutions in which a vector consists of channels of y. Each element of the band is broadcast to a vector, so
// windows need not be contiguous and no horizontal sums are needed. The channels of a window are adjacent in shared
// memory, so the result is transposed at the end.
#include <algorithm>
#include <functional>

#include "tessera/ops/correlation_kernel.h"

namespace tessera::ops {

namespace {

using ir::Value;

class ChannelKernel : CorrelationKernel {
 public:
  explicit ChannelKernel(const CorrelationSpec& s)
      : CorrelationKernel(s, "by_channels_"), channels_(static_cast<int>(s.channels())) {}
  ir::Function images();
  ir::Function weights();

 private:
  std::vector<Value> loads(const ir::BufferRef& memory, Value at) const {
    std::vector<Value> all;
    for (int k = 0; k < tn_; ++k) all.push_back(memory.load(at + (k * lanes_ + ir::thread_id(0))));
    return all;
  }
  void multiply(Value left, const std::vector<Value>& right, const std::vector<ir::Variable>& sum, int row) const {
    for (int k = 0; k < tn_; ++k) {
      const ir::Variable& v = sum[static_cast<std::size_t>(row * tn_ + k)];
      v.set(ir::fma(left, right[static_cast<std::size_t>(k)], v.get()));
    }
  }
  /// Calls `f(first, length, offset)` for each run of windows in a band. `first` is the first window of the run in the
  /// band, and `offset` is the position of its elements in y. Contiguous rows of y form a single run. `row` is the
  /// number of windows per row in shared memory.
  void for_each_run(const Geometry& g, Value image0, Value active_images, Value row0, Value active_rows, Value row,
                    const std::function<void(Value, Value, Value)>& f) const {
    const Value step = ir::select(g.merged != 0, active_rows, 1);
    ir::for_(0, active_images, [&](Value i) {
      ir::for_(0, active_rows, step, [&](Value r) {
        f((i * active_rows + r) * row, step * g.y_columns, (image0 + i) * g.y[0] + (row0 + r) * g.y[2]);
      });
    });
  }

  /// True if this column of a padded row is inside the image. CorrelationSpec::edge must be known.
  bool in_image(int column) const {
    const int columns = tm_ + s_.sizes[1] - 1 - 2 * s_.edge;  // columns of x
    return column >= s_.edge && column < s_.edge + columns;
  }

  const int channels_;
};

ir::Function ChannelKernel::images() {
  const auto x = ir::buffer_param("x", s_.x, ir::Access::read), w = ir::buffer_param("w", s_.sum, ir::Access::read);
  const auto bias = s_.bias ? ir::buffer_param("bias", s_.sum, ir::Access::read) : ir::BufferRef();
  const auto y = ir::buffer_param("y", s_.y, ir::Access::read_write);
  const Geometry g(s_);
  const auto number = [](const char* name) { return ir::scalar_param(name, DType::index); };
  const Value chunk = number("chunk"), block_panels = number("block_panels"), panel_blocks = number("panel_blocks"),
              groups = number("groups"), bands = number("bands");
  const auto staged = ir::shared(s_.sum, s_.staged), sums = ir::shared(s_.sum, s_.sums);
  const Value block = ir::block_id(0), panels = (g.y_channels + (channels_ - 1)) / channels_;
  const Value group = block / panel_blocks % groups, band = block / panel_blocks / groups;
  const Value panel0 = block % panel_blocks * block_panels, active_panels = ir::min(block_panels, panels - panel0);
  const Value row0 = band % bands * g.rows, active_rows = ir::min(g.rows, g.y_rows - row0);
  const Value image0 = band / bands * g.images, active_images = ir::min(g.images, g.n - image0);
  const Band b = g.band(active_rows);
  const Value tiles = (g.y_columns + (tm_ - 1)) / tm_, row = tiles * tm_, all_rows = active_images * active_rows;
  const Value taps = g.kernel_rows * g.kernel_columns;

  ir::for_(0, g.x_channels, chunk, [&](Value c0) {
    const Value here = ir::min(chunk, g.x_channels - c0);
    ir::if_(c0 == 0, [&] { clear(staged, ir::index_literal(0), here * b.channel()); });
    ir::barrier();
    stage(g, b, x, staged, group * g.x_channels + c0, here, image0, active_images, row0);
    ir::barrier();
    ir::for_(0, active_panels, [&](Value p) {
      const Value panel = ((group * panels + panel0 + p) * g.x_channels + c0) * taps * channels_;
      const auto tile = [&](Value i, Value r, Value t) {
        const std::vector<ir::Variable> sum = zeros(tm_ * tn_);
        const Value first = ((p * all_rows + i * active_rows + r) * row + t * tm_) * channels_ + ir::thread_id(0);
        const auto each = [&](auto&& f) {
          for (int k = 0; k < tm_ * tn_; ++k) f(first + k * lanes_, sum[static_cast<std::size_t>(k)]);
        };
        ir::if_(c0 > 0, [&] { each([&](Value at, const ir::Variable& v) { v.set(sums.load(at)); }); });
        const Value from = i * b.plane + r * b.pitch + t * tm_;
        const auto [first_row, end_row] =
            g.existing((row0 + r) * g.stride_rows - g.pad_rows, g.step_rows, g.kernel_rows);
        ir::for_(0, here, [&](Value c) {
          ir::for_(first_row, end_row, [&](Value down) {
            const auto tap = [&](Value across, int column) {
              const Value start = c * b.channel() + from + g.offset(b, down, across);
              const auto right = loads(w, panel + (c * taps + down * g.kernel_columns + across) * channels_);
              for (int m = 0; m < tm_; ++m)
                if (s_.edge == CorrelationSpec::no_edge || in_image(m + column))
                  multiply(staged.load(start + m), right, sum, m);
            };
            if (s_.sizes[1] == 0) ir::for_(0, g.kernel_columns, [&](Value across) { tap(across, 0); });
            for (int j = 0; j < s_.sizes[1]; ++j) tap(ir::index_literal(j), j);
          });
        });
        each([&](Value at, const ir::Variable& v) { sums.store(at, v.get()); });
      };
      ir::for_(0, active_images, [&](Value i) {
        ir::for_(0, active_rows, [&](Value r) { ir::for_(0, tiles, [&](Value t) { tile(i, r, t); }); });
      });
    });
  });
  ir::barrier();
  const Value channel0 = panel0 * channels_,
              active_channels = ir::min(active_panels * channels_, g.y_channels - channel0);
  ir::for_(0, active_channels, lanes_, [&](Value m0) {
    const Value panel = m0 / channels_, last = ir::min(m0 + lanes_, active_channels);
    for_each_run(g, image0, active_images, row0, active_rows, row, [&](Value first, Value length, Value offset) {
      const Value from = (panel * all_rows * row + first) * channels_ - panel * channels_;
      for_each_element(ir::index_literal(0), length, [&](Value at) {
        ir::for_(m0, last, [&](Value m) {
          const Value channel = group * g.y_channels + channel0 + m;
          Value v = sums.load(from + at * channels_ + m);
          if (s_.bias) v = v + bias.load(channel);
          y.store(offset + channel * g.y[1] + at * g.y[3], ir::cast(s_.y, v));
        });
      });
    });
  });
  return builder_.finish();
}

ir::Function ChannelKernel::weights() {
  const auto x = ir::buffer_param("x", s_.x, ir::Access::read), y = ir::buffer_param("y", s_.y, ir::Access::read);
  const auto out = ir::buffer_param("out", s_.sum, ir::Access::read_write);
  const Geometry g(s_);
  const WeightBlock own(g);
  const auto staged = ir::shared(s_.sum, s_.staged), sums = ir::shared(s_.sum, s_.sums);
  const Value lane = ir::thread_id(0);
  const Value taps = g.kernel_rows * g.kernel_columns;
  const int row_taps = s_.sizes[1], together = std::max(1, tm_ / row_taps);  // number of channels of x in a tile
  const Value panels = (own.active_y + (channels_ - 1)) / channels_,
              x_padded = (own.x_block + (together - 1)) / together * together;
  const auto panel_sums = [&](Value p) { return p * (x_padded * taps * channels_); };
  ir::for_(own.first_band, own.end_band, [&](Value band) {
    const Value row0 = band % own.bands * g.rows, active_rows = ir::min(g.rows, g.y_rows - row0);
    const Value image0 = band / own.bands * g.images, active_images = ir::min(g.images, g.n - image0);
    const Band b = g.band(active_rows);
    const Value y_start = x_padded * b.channel(), windows = active_images * active_rows * g.y_columns;
    ir::barrier();
    clear(staged, ir::index_literal(0), y_start);
    ir::barrier();
    stage(g, b, x, staged, own.group * g.x_channels + own.x0, own.active_x, image0, active_images, row0);
    ir::for_(0, panels, [&](Value p) {
      for_each_run(g, image0, active_images, row0, active_rows, g.y_columns,
                   [&](Value first, Value length, Value offset) {
                     for (int k = 0; k < tn_; ++k) {
                       const Value m = k * lanes_ + lane, channel = p * channels_ + m;
                       const Value from = offset + (own.group * g.y_channels + own.y0 + channel) * g.y[1],
                                   to = y_start + (p * windows + first) * channels_ + m;
                       const auto copy = [&](Value exists) {
                         ir::for_(0, length, [&](Value at) {
                           staged.store(to + at * channels_, ir::cast(s_.sum, load_at(y, from + at * g.y[3], exists)));
                         });
                       };
                       ir::if_(
                           p * channels_ + (k + 1) * lanes_ <= own.active_y, [&] { copy({}); },
                           [&] { copy(channel < own.active_y); });
                     }
                   });
    });
    ir::barrier();
    ir::for_(0, panels, [&](Value p) {
      ir::for_(0, own.active_x, together, [&](Value c) {
        ir::for_(0, g.kernel_rows, [&](Value i) {
          const auto [first_row, end_row] =
              g.existing(row0 * g.stride_rows - g.pad_rows + i * g.step_rows, g.stride_rows, active_rows);
          for (int first = 0; first < row_taps; first += tm_) {
            const int count = std::min(tm_, together * row_taps - first);
            const std::vector<ir::Variable> sum = zeros(count * tn_);
            std::vector<Value> start;
            for (int k = first; k < first + count; ++k)
              start.push_back((c + k / row_taps) * b.channel() + g.offset(b, i, ir::index_literal(k % row_taps)));
            ir::for_(0, active_images, [&](Value image) {
              ir::for_(first_row, end_row, [&](Value r) {
                const Value from = image * b.plane + r * b.pitch,
                            left = y_start + (p * windows + (image * active_rows + r) * g.y_columns) * channels_;
                ir::for_(0, g.y_columns, [&](Value q) {
                  const auto right = loads(staged, left + q * channels_);
                  for (int k = 0; k < count; ++k)
                    multiply(staged.load(start[static_cast<std::size_t>(k)] + (from + q)), right, sum, k);
                });
              });
            });
            // Each band is summed separately before it is added to the earlier bands, because shorter sums have smaller
            // rounding errors.
            for (int k = 0; k < count * tn_; ++k) {
              const int term = first + k / tn_;
              const Value at = panel_sums(p) +
                               ((c + term / row_taps) * taps + i * row_taps + term % row_taps) * channels_ +
                               (k % tn_ * lanes_ + lane);
              const ir::Variable& v = sum[static_cast<std::size_t>(k)];
              ir::if_(band > own.first_band, [&] { v.set(v.get() + sums.load(at)); });
              sums.store(at, v.get());
            }
          }
        });
      });
    });
  });
  ir::barrier();
  // The layout is (part, group, channel of y, channel of x, tap).
  ir::for_(0, panels, [&](Value p) {
    const Value m0 = p * channels_, last = ir::min(m0 + channels_, own.active_y);
    for_each_element(ir::index_literal(0), own.active_x * taps, [&](Value e) {
      ir::for_(m0, last, [&](Value m) {
        const Value to = own.result(g, m, taps);
        out.store(to + e, sums.load(panel_sums(p) + e * channels_ + (m - m0)));
      });
    });
  });
  return builder_.finish();
}

}  // namespace

ir::Function trace_correlation_by_channels(const CorrelationSpec& spec) {
  ChannelKernel kernel(spec);
  return spec.kind == CorrelationSpec::images ? kernel.images() : kernel.weights();
}

}  // namespace tessera::ops
