// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/correlation.h"

#include <algorithm>

namespace tessera::ops {

namespace {

constexpr std::int64_t reach(std::int64_t kernel, std::int64_t step) { return (kernel - 1) * step; }

/// How many parts of at most `most` there are of `all`, and then the size of each, so that all are alike.
std::int64_t even_parts(std::int64_t all, std::int64_t most) {
  return ceil_div(all, ceil_div(all, std::clamp<std::int64_t>(most, 1, all)));
}

/// What a band has beside its rows and columns.
struct Halo {
  std::int64_t rows, columns, phases;
  explicit Halo(const Correlation& c) {
    const std::int64_t down = reach(c.kernel.rows, c.dilation.rows),
                       across = reach(c.kernel.columns, c.dilation.columns);
    rows = down / c.stride.rows, columns = across / c.stride.columns;
    phases = std::min(c.stride.rows, down + 1) * std::min(c.stride.columns, across + 1);
  }
};

/// A band of at most so many positions: whole images if one fits, else rows of one, else columns of a row.
void choose_band(CorrelationPlan& plan, const Halo& halo, const Shape& y, std::int64_t most) {
  const auto pitch = [&] { return plan.columns + halo.columns; };
  const std::int64_t row = halo.rows + 1;
  if (row * pitch() > most) plan.columns = even_parts(plan.columns, most / row - halo.columns);
  const std::int64_t plane = (y[2] + halo.rows) * pitch();
  if (plane <= most)
    plan.rows = y[2], plan.images = std::clamp<std::int64_t>(std::min<std::int64_t>(most, 1024) / plane, 1, y[0]);
  else
    plan.rows = even_parts(y[2], most / pitch() - halo.rows), plan.images = 1;
}

std::int64_t bands_of(const CorrelationPlan& plan, const Shape& y) {
  return ceil_div(y[2], plan.rows) * ceil_div(y[0], plan.images);
}

void choose_images(const Tiles& tiles, CorrelationPlan& plan, const Halo& halo, std::int64_t groups, std::int64_t in,
                   std::int64_t taps, const Shape& y) {
  CorrelationSpec& s = plan.spec;
  const bool wide = tiles.tokens >= 8;
  const std::int64_t out = y[1];
  s.tm = static_cast<std::uint32_t>(even_parts(out, wide ? 8 : 4));
  const std::int64_t panels = ceil_div(out, s.tm);
  plan.block_panels = even_parts(panels, 64 / s.tm);
  // Tiles end past the last position.
  const std::int64_t most_tn = std::min(6u, (wide ? 24 : 12) / s.tm), slack = most_tn * s.lanes;
  const std::int64_t staged = s.staged - slack - 2 * halo.columns;
  choose_band(
      plan, halo, y,
      std::min(s.sums / (plan.block_panels * s.tm) - slack, staged / (halo.phases * std::min<std::int64_t>(in, 8))));
  const auto positions = [&] { return plan.images * (plan.rows + halo.rows) * (plan.columns + halo.columns); };
  // Four blocks a thread, so that all end together, but none of less than some microseconds.
  const std::int64_t wanted = 4 * static_cast<std::int64_t>(tiles.compute_units);
  const auto work = [&] { return positions() * in * taps * plan.block_panels * s.tm; };
  while (bands_of(plan, y) * groups * ceil_div(panels, plan.block_panels) < wanted && work() > 1 << 19) {
    if (plan.images > 1)
      plan.images = ceil_div(plan.images, 2);
    else if (plan.rows > 4)
      plan.rows = ceil_div(plan.rows, 2);
    else if (plan.block_panels > 1)
      plan.block_panels = ceil_div(plan.block_panels, 2);
    else
      break;
  }
  plan.chunk = even_parts(in, staged / (halo.phases * positions()));
  double least = 1e300;
  for (std::int64_t tn = most_tn; tn >= 1; --tn) {
    const double step = std::max({static_cast<double>(s.tm * tn), 4.0, static_cast<double>(s.tm) / 2 + tn}) + 0.5;
    const double cost =
        step * static_cast<double>(ceil_div(positions() - halo.rows * (plan.columns + halo.columns), tn * s.lanes));
    if (cost < least * 0.999) least = cost, s.tn = static_cast<std::uint32_t>(tn);
  }
}

void choose_weights(const Tiles& tiles, CorrelationPlan& plan, const Halo& halo, std::int64_t groups, std::int64_t in,
                    Extents2d kernel, const Shape& y) {
  CorrelationSpec& s = plan.spec;
  const bool wide = tiles.tokens >= 8;
  const std::int64_t vectors = s.sums / s.lanes, out = y[1];
  plan.kernel_rows = std::clamp<std::int64_t>(vectors / kernel.columns, 1, kernel.rows);
  const std::int64_t taps = plan.kernel_rows * kernel.columns;
  s.tm = static_cast<std::uint32_t>(even_parts(out, std::min<std::int64_t>(wide ? 8 : 4, vectors / taps)));
  s.tn = s.sizes[0] == 0 ? 1 : static_cast<std::uint32_t>(even_parts(taps, (wide ? 24u : 12u) / s.tm));
  const std::int64_t panels = ceil_div(out, s.tm);
  plan.y_block = even_parts(panels, std::min<std::int64_t>(32 / s.tm, vectors / (taps * s.tm))) * s.tm;
  plan.x_block = even_parts(in, vectors / (taps * plan.y_block));
  const std::int64_t each = plan.x_block * halo.phases + plan.y_block + 1;
  choose_band(plan, halo, y, s.staged / each - s.lanes);
  // Parts of images whose sums are added up afterwards: as many whatever the device, so that the bits are the same.
  const std::int64_t blocks = groups * ceil_div(panels * s.tm, plan.y_block) * ceil_div(in, plan.x_block);
  const std::int64_t parts = std::clamp<std::int64_t>(y[0] * y[2] * y[3] / 8192, 1, ceil_div(64, blocks));
  plan.block_bands = ceil_div(bands_of(plan, y), parts);
}

Correlation shifted_columns(Correlation c, std::int64_t columns) {
  c.padding.columns -= columns * c.stride.columns;
  return c;
}

std::vector<LaunchArgument> arguments(const CorrelationPlan& plan, const Correlation& c, const Array& x,
                                      const Strides& y_strides, const Shape& y) {
  std::vector<LaunchArgument> all;
  const Shape& s = x.shape();
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
                         plan.rows})
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

Shape per_group(Shape y, std::int64_t groups) {
  y[1] /= groups;
  return y;
}

}  // namespace

CorrelationPlan choose_correlation(const Tiles& tiles, CorrelationSpec spec, const Correlation& c, const Shape& x,
                                   const Shape& y) {
  CorrelationPlan plan;
  spec.sum = spec.x == DType::f64 ? DType::f64 : DType::f32;
  spec.lanes = vector_lanes(tiles, spec.sum);
  const std::int64_t all[] = {c.kernel.rows, c.kernel.columns, c.stride.rows, c.stride.columns};
  if (*std::ranges::max_element(all) <= 7)
    std::ranges::transform(all, spec.sizes.begin(), [](std::int64_t v) { return static_cast<std::uint8_t>(v); });
  // A processor's second cache holds both.
  const std::uint64_t size = dtype_size(spec.sum), room = std::min<std::uint64_t>(tiles.shared_bytes, 224 << 10) / size;
  spec.staged = static_cast<std::uint32_t>(room / 2), spec.sums = static_cast<std::uint32_t>(room - room / 2);
  plan.spec = spec;
  plan.columns = y[3];
  const Halo halo(c);
  const std::int64_t in = x[1] / c.groups;
  if (spec.kind == CorrelationSpec::images)
    choose_images(tiles, plan, halo, c.groups, in, c.kernel.rows * c.kernel.columns, per_group(y, c.groups));
  else
    choose_weights(tiles, plan, halo, c.groups, in, c.kernel, per_group(y, c.groups));
  return plan;
}

void correlate(Array& y, const Array& x, const Array& weight, const std::optional<Array>& bias, bool flipped,
               const Correlation& c) {
  const Shape s = y.shape();
  CorrelationSpec spec{CorrelationSpec::images, x.dtype(), y.dtype()};
  spec.x_unit = x.strides()[3] == 1, spec.y_unit = y.strides()[3] == 1;
  spec.bias = bias.has_value(), spec.flipped = flipped;
  const CorrelationPlan plan = choose_correlation(tiles_of(x.device()), spec, c, x.shape(), s);
  if (plan.columns < s[3]) {
    for (std::int64_t at = 0; at < s[3]; at += plan.columns) {
      Array part = y.slice(3, at, std::min(at + plan.columns, s[3]));
      correlate(part, x, weight, bias, flipped, shifted_columns(c, at));
    }
    return;
  }
  const std::int64_t in = x.shape(1) / c.groups, out = s[1] / c.groups, terms = in * c.kernel.rows * c.kernel.columns;
  const std::int64_t panels = ceil_div(out, plan.spec.tm), panel_blocks = ceil_div(panels, plan.block_panels);
  const Array packed =
      pack_factor(weight.view(), {weight.dtype(), plan.spec.sum, plan.spec.tm, plan.spec.tm, terms == 1, true}, out,
                  terms, terms, {terms, 1}, {1, c.groups}, {0, out * terms});
  std::vector<LaunchArgument> buffers = {x.view(), packed.view()};
  if (bias) buffers.emplace_back(bias->astype(plan.spec.sum).as_contiguous().view());
  buffers.emplace_back(y.view_for_writing());
  launch(plan.spec, bands_of(plan, s) * c.groups * panel_blocks, std::move(buffers),
         arguments(plan, c, x, y.strides(), s),
         {plan.chunk, plan.block_panels, panel_blocks, c.groups, ceil_div(s[2], plan.rows)});
}

Array correlate_weights(const Array& x, const Array& y, DType dtype, const Correlation& c) {
  const Shape& s = y.shape();
  CorrelationSpec spec{CorrelationSpec::weights, x.dtype(), y.dtype()};
  spec.x_unit = x.strides()[3] == 1, spec.y_unit = y.strides()[3] == 1;
  const CorrelationPlan plan = choose_correlation(tiles_of(x.device()), spec, c, x.shape(), s);
  const std::int64_t in = x.shape(1) / c.groups, out = s[1] / c.groups, most = plan.kernel_rows;
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
  const std::int64_t parts = ceil_div(bands_of(plan, s), plan.block_bands);
  const std::int64_t x_blocks = ceil_div(in, plan.x_block), y_blocks = ceil_div(out, plan.y_block);
  const Shape shape = {s[1], in, c.kernel.rows, c.kernel.columns};
  Array sums = Array::empty({parts, s[1], in, c.kernel.rows, c.kernel.columns}, plan.spec.sum, x.device());
  launch(plan.spec, parts * c.groups * y_blocks * x_blocks, {x.view(), y.view(), sums.view()},
         arguments(plan, c, x, y.strides(), s),
         {plan.x_block, plan.y_block, x_blocks, y_blocks, c.groups, ceil_div(s[2], plan.rows), plan.block_bands});
  return (parts == 1 ? sums.reshape(shape) : sum(sums, {0})).astype(dtype);
}

}  // namespace tessera::ops
