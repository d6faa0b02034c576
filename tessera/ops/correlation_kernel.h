// SPDX-License-Identifier: Apache-2.0
// Internal to ops/. Shared by the CPU kernels of convolution. A block stages a band (rows of some images) in shared
// memory, padded and converted to the dtype of the sums. The elements that a tap reads for consecutive windows are then
// contiguous, at an offset that depends on the tap.
#pragma once

#include <functional>

#include "tessera/ops/correlation.h"

namespace tessera::ops {

/// A band in shared memory: [channel][row phase][column phase][image][row][column]. Rows and columns are counted in
/// windows. The phase of an element is its position modulo the stride. Position q = (image * rows + row) * pitch +
/// column of a phase. The padding at the start of the next row or image is used as the padding after a row or image.
/// Therefore additional rows and columns follow the last image.
struct Band {
  ir::Value rows, pitch, plane, length, phase_columns, phases;
  ir::Value channel() const { return phases * length; }
};

struct Geometry {
  using Value = ir::Value;
  Value n, x_channels, y_channels, x_rows, x_columns, y_rows, y_columns, kernel_rows, kernel_columns;
  Value stride_rows, stride_columns, pad_rows, pad_columns, step_rows, step_columns;
  std::array<Value, 4> x, y;  // strides
  // A band: number of images, rows of windows, additional staged rows, elements per row, and padding rows shared by
  // adjacent images.
  Value images, rows, more_rows, pitch, shared_rows;
  Value merged;  // nonzero if the rows of y are contiguous, both in memory and in the sums of a block

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
    shared_rows = number("shared_rows"), merged = number("merged");
    Value* const known[] = {&kernel_rows, &kernel_columns, &stride_rows, &stride_columns};
    for (std::size_t i = 0; i < 4; ++i)
      if (s.sizes[i] != 0) *known[i] = ir::index_literal(s.sizes[i]);
    if (!s.dilated) step_rows = step_columns = ir::index_literal(1);
    if (s.x_unit) x[3] = ir::index_literal(1);
    if (s.y_unit) y[3] = ir::index_literal(1);
  }

  Band band(Value active_rows) const {
    const auto phases_of = [](Value kernel, Value step, Value stride) {
      return ir::min(stride, (kernel - 1) * step + 1);
    };
    Band b;
    b.rows = active_rows + more_rows, b.pitch = pitch, b.plane = b.rows * pitch;
    b.length = images * b.plane + (shared_rows + 1) * pitch;
    b.phase_columns = phases_of(kernel_columns, step_columns, stride_columns);
    b.phases = phases_of(kernel_rows, step_rows, stride_rows) * b.phase_columns;
    return b;
  }
  /// The number of positions up to the last window.
  Value used(const Band& b, Value active_images, Value active_rows) const {
    return (active_images - 1) * b.plane + (active_rows - 1) * b.pitch + y_columns;
  }
  /// The half-open range of `i` in [0, count) for which x has a row `base + i * step`.
  std::pair<Value, Value> existing(Value base, Value step, Value count) const {
    const auto first_at = [&](Value row) { return ir::min(ir::max(row - base + (step - 1), 0) / step, count); };
    return {first_at(ir::index_literal(0)), first_at(x_rows)};
  }
  /// The offset in the band of the elements that this tap reads.
  Value offset(const Band& b, Value i, Value j) const {
    const Value down = i * step_rows, across = j * step_columns;
    const Value phase = down % stride_rows * b.phase_columns + across % stride_columns;
    return phase * b.length + down / stride_rows * b.pitch + across / stride_columns;
  }
};

/// The work of one block of the kernel for the gradient of a weight. The block sums over some bands of images, for the
/// channels of x from x0 and the channels of y from y0, in one group. Blocks with the same channels divide the bands
/// among themselves. `part` is the index of this block among these blocks.
struct WeightBlock {
  using Value = ir::Value;
  Value x_block, y_block, x_blocks, y_blocks, groups, bands,
      block_bands;  // channels of a block, number of blocks, bands of an image, bands of a block
  Value x0, y0, group, part, active_x, active_y, first_band, end_band;

  explicit WeightBlock(const Geometry& g) {
    const auto number = [](const char* name) { return ir::scalar_param(name, DType::index); };
    x_block = number("x_block"), y_block = number("y_block");
    x_blocks = number("x_blocks"), y_blocks = number("y_blocks"), groups = number("groups");
    bands = number("bands"), block_bands = number("block_bands");
    const Value block = ir::block_id(0), all_bands = (g.n + (g.images - 1)) / g.images * bands;
    x0 = block % x_blocks * x_block, y0 = block / x_blocks % y_blocks * y_block;
    group = block / x_blocks / y_blocks % groups, part = block / x_blocks / y_blocks / groups;
    active_x = ir::min(x_block, g.x_channels - x0), active_y = ir::min(y_block, g.y_channels - y0);
    first_band = part * block_bands, end_band = ir::min(first_band + block_bands, all_bands);
  }
  /// The offset of the sums for channel `m` of y. The layout is (part, group, channel of y, channel of x, tap).
  Value result(const Geometry& g, Value m, Value taps) const {
    return (((part * groups + group) * g.y_channels + y0 + m) * g.x_channels + x0) * taps;
  }
};

class CorrelationKernel {
 public:
  CorrelationKernel(const CorrelationSpec& s, const char* form)
      : s_(s),
        tm_(static_cast<int>(s.tm)),
        tn_(static_cast<int>(s.tn)),
        lanes_(static_cast<int>(s.lanes)),
        builder_(std::string(s.kind == CorrelationSpec::images ? "convolution_" : "convolution_weight_") + form +
                     std::string(dtype_name(s.x)) + "_" + std::to_string(s.tm) + "x" + std::to_string(s.tn),
                 ir::KernelKind::block, {s.lanes, 1, 1}),
        scope_(builder_) {
    builder_.set_index64();
  }

 protected:
  using Value = ir::Value;

  /// Calls `f(row, column)` for each tap of the kernel, in order.
  void for_each_tap(const Geometry& g, const std::function<void(Value, Value)>& f) const {
    const auto columns = [&](Value i) {
      if (s_.sizes[1] == 0) return ir::for_(0, g.kernel_columns, [&](Value j) { f(i, j); });
      for (int j = 0; j < s_.sizes[1]; ++j) f(i, ir::index_literal(j));
    };
    if (s_.sizes[0] == 0 || s_.sizes[0] * s_.sizes[1] > 9) return ir::for_(0, g.kernel_rows, columns);
    for (int i = 0; i < s_.sizes[0]; ++i) columns(ir::index_literal(i));
  }
  void clear(const ir::BufferRef& memory, Value first, Value end) const {
    for_each_element(first, end, [&](Value at) { memory.store(at, ir::literal(s_.sum, 0)); });
  }
  /// Calls `f(element)` for a contiguous range, one vector at a time. The last vector may be partial.
  void for_each_element(Value first, Value end, const std::function<void(Value)>& f) const {
    const Value lane = ir::thread_id(0), count = ir::max(end - first, 0), whole = count / lanes_ * lanes_;
    ir::for_(0, whole, lanes_, [&](Value at) { f(first + at + lane); });
    ir::if_(whole < count, [&] { ir::if_(whole + lane < count, [&] { f(first + whole + lane); }); });
  }
  /// Copies the existing elements of `count` channels of x, starting at `channel`, to shared memory. All other elements
  /// of the band must already be 0.
  void stage(const Geometry& g, const Band& b, const ir::BufferRef& x, const ir::BufferRef& to, Value channel,
             Value count, Value image0, Value active_images, Value row0) const {
    // The first window that reads element `of` of x, or a later element, in this phase. If `of` is the extent of x, the
    // result is the end of the windows that read x.
    const auto window = [](Value of, Value pad, Value phase, Value stride) {
      return ir::max(of + pad - phase + (stride - 1), 0) / stride;
    };
    const auto phase = [&](Value pr, Value pc) {
      const Value first_row = ir::max(window(ir::index_literal(0), g.pad_rows, pr, g.stride_rows) - row0, 0),
                  end_row = ir::min(b.rows, window(g.x_rows, g.pad_rows, pr, g.stride_rows) - row0),
                  first = window(ir::index_literal(0), g.pad_columns, pc, g.stride_columns),
                  end = ir::min(b.pitch, window(g.x_columns, g.pad_columns, pc, g.stride_columns));
      ir::for_(0, count, [&](Value c) {
        ir::for_(0, active_images, [&](Value i) {
          const Value plane = (image0 + i) * g.x[0] + (channel + c) * g.x[1];
          const Value start = c * b.channel() + (pr * b.phase_columns + pc) * b.length + i * b.plane;
          ir::for_(first_row, end_row, [&](Value r) {
            const Value from = plane + ((row0 + r) * g.stride_rows + pr - g.pad_rows) * g.x[2];
            for_each_element(first, end, [&](Value at) {
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

/// Returns the kernel for a specification with `by_channels` set. Defined in correlation_channel_kernels.cpp.
ir::Function trace_correlation_by_channels(const CorrelationSpec& spec);

}  // namespace tessera::ops
