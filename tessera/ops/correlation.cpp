// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/correlation.h"

#include <algorithm>

#include "tessera/device/launch/kernel_family.h"
#include "tessera/device/settings.h"

namespace tessera::ops {

namespace {

DType sum_of(const Array& a, const Array& b) {
  return a.dtype() == DType::f64 || b.dtype() == DType::f64 ? DType::f64 : DType::f32;
}

/// Calls choose_correlation and caches the last 64 results of this thread, because choosing takes as long as a small
/// convolution.
std::optional<CorrelationPlan> plan_of(const Array& x, const Shape& y, const CorrelationSpec& spec,
                                       const Correlation& c) {
  struct Known {
    Device device;
    CorrelationSpec spec;
    Correlation c{1};
    Shape x, y;
    std::optional<CorrelationPlan> plan;
  };
  static thread_local std::vector<Known> all;
  static thread_local std::size_t next = 0;
  for (const Known& k : all)
    if (k.device == x.device() && k.spec == spec && k.c == c && k.x == x.shape() && k.y == y) return k.plan;
  if (all.size() < 64) all.emplace_back();
  Known& k = all[next++ % 64];
  k = {x.device(), spec, c, x.shape(), y, choose_correlation(tiles_of(x.device()), spec, c, x.shape(), y)};
  return k.plan;
}

Correlation shifted_columns(Correlation c, std::int64_t columns) {
  c.padding.columns -= columns * c.stride.columns;
  return c;
}

std::vector<LaunchArgument> arguments(const CorrelationPlan& plan, const Correlation& c, const Array& x,
                                      const Strides& y_strides, const Shape& y) {
  std::vector<LaunchArgument> all;
  const Shape& s = x.shape();
  const bool merged =
      y_strides[2] == y[3] * y_strides[3] && (plan.spec.kind == CorrelationSpec::weights || y[3] % plan.spec.tm == 0);
  for (std::int64_t v : {s[0],
                         s[1] / c.groups,
                         y[1] / c.groups,
                         s[2],
                         s[3],
                         y[2],
                         y[3],
                         c.kernel.rows,
                         c.kernel.columns,
                         c.stride.rows,
                         c.stride.columns,
                         c.padding.rows,
                         c.padding.columns,
                         c.dilation.rows,
                         c.dilation.columns,
                         x.strides()[0],
                         x.strides()[1],
                         x.strides()[2],
                         x.strides()[3],
                         y_strides[0],
                         y_strides[1],
                         y_strides[2],
                         y_strides[3],
                         plan.images,
                         plan.rows,
                         plan.more_rows,
                         plan.pitch,
                         plan.shared_rows,
                         std::int64_t{merged}})
    all.push_back(LaunchArgument::index(v));
  return all;
}

void launch(const CorrelationSpec& spec, std::int64_t blocks, std::vector<LaunchArgument> buffers,
            const std::vector<LaunchArgument>& numbers, std::initializer_list<std::int64_t> more) {
  static auto& family = *new KernelFamily<CorrelationSpec>(trace_correlation);
  buffers.insert(buffers.end(), numbers.begin(), numbers.end());
  for (const std::int64_t v : more) buffers.push_back(LaunchArgument::index(v));
  family(spec).launch({static_cast<std::uint64_t>(blocks), 1, 1}, std::span<const LaunchArgument>(buffers));
}

/// Packs the weight with trace_weight_pack.
Array pack_weight(const Array& weight, const CorrelationSpec& of, bool flipped) {
  const Shape& s = weight.shape();
  const Strides& strides = weight.strides();
  const std::uint32_t width = of.channels(), lanes = std::min(width, of.lanes);
  const std::int64_t panels = ceil_div(s[1], width);
  // Merges contiguous dimensions, so that rows are long.
  std::int64_t in = s[2], rows = s[3], columns = s[4];
  if (rows == 1 || strides[3] == columns * strides[4]) columns *= rows, rows = 1;
  if (rows == 1 && !flipped && strides[2] == columns * strides[4]) columns *= in, in = 1;
  const Array out = Array::empty({s[0] * panels * width * s[2] * s[3] * s[4]}, of.sum, weight.device());
  std::vector<LaunchArgument> all = {weight.view(), out.view()};
  for (const std::int64_t v :
       {s[1], in, rows, columns, panels, strides[0], strides[1], strides[2], strides[3], strides[4]})
    all.push_back(LaunchArgument::index(v));
  static auto& family = *new KernelFamily<WeightPackSpec>(trace_weight_pack);
  family({weight.dtype(), of.sum, width, lanes, strides[4] == 1 || columns == 1, flipped})
      .launch({static_cast<std::uint64_t>(s[0] * panels), 1, 1}, std::span<const LaunchArgument>(all));
  return out;
}

/// Computes one of the products with trace_product. `left` is the weight or y. The product sums over `part` pixels of
/// y, or over all terms.
void launch_product(ProductSpec asked, const Correlation& c, const Array& left, const Array& x,
                    const std::optional<Array>& bias, const BufferView& out, const Array& y,
                    std::array<std::int64_t, 4> sizes, std::int64_t part) {
  const auto [m, n, k, matrices] = sizes;
  const bool images = asked.windows == ProductSpec::images_of_windows;
  asked.a_unit_k = true, asked.b_unit_n = images, asked.b_unit_k = !images;
  asked.bias = bias.has_value();
  asked.tf32 = settings().tf32;
  if (std::max(c.kernel.rows, c.kernel.columns) <= 7)
    asked.kernel_rows = static_cast<std::uint8_t>(c.kernel.rows),
    asked.kernel_columns = static_cast<std::uint8_t>(c.kernel.columns);
  const ProductChoice choice = choose_product_kernel(x.device(), asked, sizes);
  const std::int64_t m_tiles = ceil_div(m, choice.spec.block_m()), n_tiles = ceil_div(n, choice.spec.block_n());
  std::vector<LaunchArgument> all = {left.view(), x.view()};
  if (bias) all.emplace_back(bias->astype(asked.sum).as_contiguous().view());
  all.emplace_back(out);
  const auto add = [&](std::initializer_list<std::int64_t> numbers) {
    for (const std::int64_t v : numbers) all.push_back(LaunchArgument::index(v));
  };
  // The strides of the left factor, zeros for the right factor, then the inner and outer batch strides, which select
  // the group.
  add({m, n, k, m_tiles, n_tiles, k, 1, 0, 0, c.groups, 0, images ? m * k : 0, 0, 0});
  add({c.groups, part, y.shape()[0] * y.shape()[2] * y.shape()[3], x.shape()[1] / c.groups, c.kernel.rows,
       c.kernel.columns, c.stride.rows, c.stride.columns, c.padding.rows, c.padding.columns, c.dilation.rows,
       c.dilation.columns, x.shape()[2], x.shape()[3], y.shape()[2], y.shape()[3]});
  for (const Array* a : {&x, &y}) add({a->strides()[0], a->strides()[1], a->strides()[2], a->strides()[3]});
  choice.kernel->launch({static_cast<std::uint64_t>(m_tiles * n_tiles * matrices), 1, 1},
                        std::span<const LaunchArgument>(all));
}

/// Adds up the partial results.
Array added(const Array& parts, DType dtype) {
  return (parts.shape(0) == 1 ? parts.select(0, 0) : sum(parts, {0})).astype(dtype);
}

}  // namespace

void correlate(Array& y, const Array& x, const Array& weight, const std::optional<Array>& bias, bool flipped,
               const Correlation& c) {
  const Shape s = y.shape();
  CorrelationSpec spec{CorrelationSpec::images, x.dtype(), y.dtype()};
  spec.x_unit = x.strides()[3] == 1, spec.y_unit = y.strides()[3] == 1;
  spec.bias = bias.has_value();
  const std::int64_t in = x.shape(1) / c.groups, out = s[1] / c.groups, terms = in * c.kernel.rows * c.kernel.columns;
  const std::optional<CorrelationPlan> chosen = plan_of(x, s, spec, c);
  if (!chosen) {
    ProductSpec asked{weight.dtype(), x.dtype(), sum_of(weight, x), y.dtype()};
    asked.windows = ProductSpec::images_of_windows, asked.flipped = flipped;
    launch_product(asked, c, weight.as_contiguous(), x, bias, y.view_for_writing(), y,
                   {out, s[0] * s[2] * s[3], terms, c.groups}, 0);
    return;
  }
  const CorrelationPlan& plan = *chosen;
  if (plan.columns < s[3]) {
    for (std::int64_t at = 0; at < s[3]; at += plan.columns) {
      Array part = y.slice(3, at, std::min(at + plan.columns, s[3]));
      correlate(part, x, weight, bias, flipped, shifted_columns(c, at));
    }
    return;
  }
  const std::uint32_t width = plan.spec.channels();
  const std::int64_t panels = ceil_div(out, width), panel_blocks = ceil_div(panels, plan.block_panels);
  const Array packed = pack_weight(weight, plan.spec, flipped);
  std::vector<LaunchArgument> buffers = {x.view(), packed.view()};
  if (bias) buffers.emplace_back(bias->astype(plan.spec.sum).as_contiguous().view());
  buffers.emplace_back(y.view_for_writing());
  launch(plan.spec, plan.bands(s) * c.groups * panel_blocks, std::move(buffers), arguments(plan, c, x, y.strides(), s),
         {plan.chunk, plan.block_panels, panel_blocks, c.groups, ceil_div(s[2], plan.rows)});
}

Array correlate_weights(const Array& x, const Array& y, DType dtype, const Correlation& c) {
  const Shape& s = y.shape();
  CorrelationSpec spec{CorrelationSpec::weights, x.dtype(), y.dtype()};
  spec.x_unit = x.strides()[3] == 1, spec.y_unit = y.strides()[3] == 1;
  const std::int64_t in = x.shape(1) / c.groups, out = s[1] / c.groups;
  const std::optional<CorrelationPlan> chosen = plan_of(x, s, spec, c);
  if (!chosen) {
    ProductSpec asked{y.dtype(), x.dtype(), sum_of(x, y), sum_of(x, y)};
    asked.windows = ProductSpec::weights_of_windows;
    // The pixels are split so that each compute unit gets several tiles of 64 x 64. The partial sums are added up
    // afterwards.
    const std::int64_t pixels = s[0] * s[2] * s[3], terms = in * c.kernel.rows * c.kernel.columns;
    const std::int64_t blocks = ceil_div(out, 64) * ceil_div(terms, 64) * c.groups;
    const std::int64_t part = ceil_div(
        pixels, std::clamp<std::int64_t>(2 * tiles_of(x.device()).compute_units / blocks, 1, ceil_div(pixels, 1024)));
    const std::int64_t parts = ceil_div(pixels, part);
    const Array sums = Array::empty({parts, s[1], in, c.kernel.rows, c.kernel.columns}, asked.sum, x.device());
    launch_product(asked, c, y, x, {}, sums.view(), y, {out, terms, part, c.groups * parts}, part);
    return added(sums, dtype);
  }
  const CorrelationPlan& plan = *chosen;
  const std::int64_t most = plan.kernel_rows;
  if (most < c.kernel.rows) {
    std::vector<Array> parts;
    for (std::int64_t at = 0; at < c.kernel.rows; at += most) {
      Correlation here = c;
      here.kernel.rows = std::min(most, c.kernel.rows - at);
      here.padding.rows -= at * c.dilation.rows;
      parts.push_back(correlate_weights(x, y, dtype, here));
    }
    return concatenate(parts, 2);
  }
  if (plan.columns < s[3]) {
    Array sum;
    for (std::int64_t at = 0; at < s[3]; at += plan.columns) {
      const Array part = correlate_weights(x, y.slice(3, at, std::min(at + plan.columns, s[3])), plan.spec.sum,
                                           shifted_columns(c, at));
      sum = at == 0 ? part : sum + part;
    }
    return sum.astype(dtype);
  }
  const std::int64_t parts = ceil_div(plan.bands(s), plan.block_bands);
  const std::int64_t x_blocks = ceil_div(in, plan.x_block), y_blocks = ceil_div(out, plan.y_block);
  const Array sums = Array::empty({parts, s[1], in, c.kernel.rows, c.kernel.columns}, plan.spec.sum, x.device());
  launch(plan.spec, parts * c.groups * y_blocks * x_blocks, {x.view(), y.view(), sums.view()},
         arguments(plan, c, x, y.strides(), s),
         {plan.x_block, plan.y_block, x_blocks, y_blocks, c.groups, ceil_div(s[2], plan.rows), plan.block_bands});
  return added(sums, dtype);
}

}  // namespace tessera::ops
