// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/correlation.h"

#include <algorithm>
#include <limits>

namespace tessera::ops {

namespace {

DType sum_of(const Array& a, const Array& b) {
  return a.dtype() == DType::f64 || b.dtype() == DType::f64 ? DType::f64 : DType::f32;
}

/// The size of parts of `all`, at most `most` each, as alike as can be.
std::int64_t even_parts(std::int64_t all, std::int64_t most) {
  return ceil_div(all, ceil_div(all, std::clamp<std::int64_t>(most, 1, all)));
}

/// Of one dimension, what a band has beside its windows: `halo` elements of a phase after the last one's first, and at
/// the beginning `padding` of which, in every phase, do not exist: these serve as the end of what lies before.
struct Edge {
  std::int64_t halo, phases, padding, end;
  Edge(std::int64_t extent, std::int64_t kernel, std::int64_t stride, std::int64_t pad, std::int64_t step) {
    const std::int64_t across = (kernel - 1) * step;
    halo = across / stride, phases = std::min(stride, across + 1);
    padding = pad < phases ? 0 : (pad - phases) / stride + 1;
    end = pad < 0 ? std::numeric_limits<std::int64_t>::max() : ceil_div(extent + pad, stride);
  }
  /// Elements of a phase for so many windows, all of those that y has.
  std::int64_t length(std::int64_t windows) const {
    return std::min(windows + halo, std::max(end, windows + halo - padding));
  }
};
struct Edges {
  Edge rows, columns;
  Edges(const Correlation& c, const Shape& x)
      : rows(x[2], c.kernel.rows, c.stride.rows, c.padding.rows, c.dilation.rows),
        columns(x[3], c.kernel.columns, c.stride.columns, c.padding.columns, c.dilation.columns) {}
  std::int64_t phases() const { return rows.phases * columns.phases; }
  /// Whether a band of one row and a few columns of some channels fits into so many elements.
  bool fit(std::int64_t elements) const {
    return (rows.halo + 2) * (columns.halo + 16) * (phases() + 9) <= elements - 128;
  }
};

/// Elements of shared memory for bands, and as many for sums. A processor's second cache holds both.
std::int64_t room_of(const Tiles& tiles, DType sum) {
  return static_cast<std::int64_t>(std::min<std::uint64_t>(tiles.shared_bytes, 224 << 10) / dtype_size(sum) / 2);
}

/// Whether blocks may gather bands of images in shared memory: on a processor's vectors, if windows do not reach too
/// far.
bool by_bands(const Tiles& tiles, DType sum, const Correlation& c, const Shape& x) {
  return tiles.vectors && Edges(c, x).fit(room_of(tiles, sum));
}

/// Sets the band: whole images if `rows` are all of y's, else so many rows of one. False if it takes more positions
/// than `most`.
bool set_band(CorrelationPlan& plan, const Edges& edges, const Shape& y, std::int64_t images, std::int64_t rows,
              std::int64_t most) {
  const bool whole = rows == y[2];
  plan.images = images, plan.rows = rows;
  plan.more_rows = whole ? edges.rows.length(rows) - rows : edges.rows.halo;
  plan.shared_rows = whole ? edges.rows.padding : 0;
  plan.pitch = plan.columns < y[3] ? plan.columns + edges.columns.halo : edges.columns.length(y[3]);
  return plan.positions() <= most;
}

/// `f` for each band that may be worth it, of at most so many positions: some whole images, or rows of one. A row that
/// is too long is cut first.
template <class F>
void each_band(CorrelationPlan& plan, const Edges& edges, const Shape& y, std::int64_t most, F&& f) {
  const std::int64_t least = edges.rows.halo + 2;  // a row, and another after it
  plan.columns = y[3];
  if (least * edges.columns.length(y[3]) > most)
    plan.columns = even_parts(y[3], std::max<std::int64_t>(1, most / least - edges.columns.halo));
  for (std::int64_t images = 1; images <= y[0] && set_band(plan, edges, y, images, y[2], most); ++images) {
    f();
    if (plan.positions() > 2048) break;
  }
  for (std::int64_t bands = 2; bands <= y[2]; bands += 1 + bands / 8)
    if (set_band(plan, edges, y, 1, ceil_div(y[2], bands), most)) f();
  if (y[2] > 1 && set_band(plan, edges, y, 1, 1, most)) f();
}

std::int64_t bands_of(const CorrelationPlan& plan, const Shape& y) {
  return ceil_div(y[2], plan.rows) * ceil_div(y[0], plan.images);
}

/// Cycles of a core, by count: the plan of the least is taken.
constexpr double copy_cycles = 8, sum_cycles = 3;  // of a vector that is staged, of a sum that waits in memory

/// False if no band fits.
bool choose_images(const Tiles& tiles, CorrelationPlan& plan, const Edges& edges, std::int64_t groups, std::int64_t in,
                   std::int64_t taps, const Shape& y) {
  CorrelationSpec& s = plan.spec;
  const bool wide = tiles.tokens >= 8;
  const auto n = [](auto v) { return static_cast<double>(v); };
  s.tm = static_cast<std::uint32_t>(even_parts(y[1], wide ? 8 : 4));
  const std::int64_t panels = ceil_div(y[1], s.tm), most_tn = std::min(6u, (wide ? 24 : 12) / s.tm);
  const std::int64_t staged = s.staged - most_tn * s.lanes,
                     phases = edges.phases();  // tiles end past the last position
  double least = 1e300;
  CorrelationPlan best = plan;
  for (const std::int64_t most_channels : {64, 32, 16}) {
    plan.block_panels = even_parts(panels, most_channels / s.tm);
    const std::int64_t rows = plan.block_panels * s.tm;
    each_band(plan, edges, y, std::min(s.sums / rows - most_tn * s.lanes, staged / phases), [&] {
      plan.chunk = even_parts(in, staged / (phases * plan.positions()));
      const double blocks = n(bands_of(plan, y) * groups * ceil_div(panels, plan.block_panels));
      const double chunks = n(ceil_div(in, plan.chunk)), copied = n(in * phases * plan.positions()) / s.lanes;
      for (std::int64_t tn = most_tn; tn >= 1; --tn) {
        const double of_tiles = n(plan.block_panels * ceil_div(plan.used(), tn * s.lanes)), each = n(s.tm * tn);
        const double block = of_tiles * (n(in * taps) * (std::max(each, 6.0) + 2) + chunks * 2 * sum_cycles * each) +
                             copied * copy_cycles + n(rows * in * taps) / 4 + 2000;
        // The threads end together if there are some blocks for each.
        const double cost = block * (blocks / tiles.compute_units + (tiles.compute_units > 1 ? 0.5 : 0));
        if (cost >= least * 0.999) continue;
        least = cost, s.tn = static_cast<std::uint32_t>(tn), best = plan;
      }
    });
  }
  plan = best;
  return least < 1e300;
}

/// False if no band fits.
bool choose_weights(const Tiles& tiles, CorrelationPlan& plan, const Edges& edges, std::int64_t groups, std::int64_t in,
                    Extents2d kernel, const Shape& y) {
  CorrelationSpec& s = plan.spec;
  const bool wide = tiles.tokens >= 8;
  const auto n = [](auto v) { return static_cast<double>(v); };
  const std::int64_t vectors = s.sums / s.lanes, phases = edges.phases();
  plan.kernel_rows = std::clamp<std::int64_t>(vectors / kernel.columns, 1, kernel.rows);
  const std::int64_t taps = plan.kernel_rows * kernel.columns;
  s.tm = static_cast<std::uint32_t>(even_parts(y[1], std::min<std::int64_t>(wide ? 8 : 4, vectors / taps)));
  s.tn = s.sizes[0] == 0 ? 1 : static_cast<std::uint32_t>(even_parts(taps, (wide ? 24u : 12u) / s.tm));
  const std::int64_t panels = ceil_div(y[1], s.tm), tiles_of_taps = ceil_div(taps, s.tn);
  double least = 1e300;
  CorrelationPlan best = plan;
  for (const std::int64_t most_channels : {64, 32, 16, 8}) {
    const std::int64_t most_panels = std::min<std::int64_t>(most_channels / s.tm, vectors / (taps * s.tm));
    plan.y_block = even_parts(panels, most_panels) * s.tm;
    for (std::int64_t block = in; block >= 1; block = std::min(block - 1, block * 4 / 5)) {
      plan.x_block = block;
      if (plan.x_block * plan.y_block * taps > vectors) continue;
      const std::int64_t each = plan.x_block * phases + plan.y_block + 1;
      each_band(plan, edges, y, s.staged / each - s.lanes, [&] {
        const double blocks = n(groups * ceil_div(panels * s.tm, plan.y_block) * ceil_div(in, plan.x_block));
        const double copied = n(each * plan.positions()) / s.lanes,
                     loops = n(plan.y_block / s.tm * plan.x_block * tiles_of_taps);
        const double band =
            loops * (n(ceil_div(plan.used(), s.lanes)) * (s.tm * s.tn + 3) + 2 * sum_cycles * s.tm * s.tn + 20) +
            copied * copy_cycles + 2000;
        const double cost = blocks * n(bands_of(plan, y)) * band;
        if (cost < least * 0.999) least = cost, best = plan;
      });
    }
  }
  plan = best;
  if (least == 1e300) return false;
  // Parts of images whose sums are added up afterwards: as many whatever the device, so that the bits are the same.
  const std::int64_t blocks = groups * ceil_div(panels * s.tm, plan.y_block) * ceil_div(in, plan.x_block);
  const std::int64_t parts = std::clamp<std::int64_t>(y[0] * y[2] * y[3] / 8192, 1, ceil_div(64, blocks));
  plan.block_bands = ceil_div(bands_of(plan, y), parts);
  return true;
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
                         plan.rows,
                         plan.more_rows,
                         plan.pitch,
                         plan.shared_rows})
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

/// One of the products by trace_product: `left` is the weight or y. Both sum over `part` pixels of y, or all terms.
void launch_product(ProductSpec asked, const Correlation& c, const Array& left, const Array& x,
                    const std::optional<Array>& bias, const BufferView& out, const Array& y,
                    std::array<std::int64_t, 4> sizes, std::int64_t part) {
  const auto [m, n, k, matrices] = sizes;
  const bool images = asked.windows == ProductSpec::images_of_windows;
  asked.a_unit_k = true, asked.b_unit_n = images, asked.b_unit_k = !images;
  asked.bias = bias.has_value();
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
  // Strides of the left factor, none of the right one; both inner and outer matrices of one group.
  add({m, n, k, m_tiles, n_tiles, k, 1, 0, 0, c.groups, 0, images ? m * k : 0, 0, 0});
  add({c.groups, part, y.shape()[0] * y.shape()[2] * y.shape()[3], x.shape()[1] / c.groups, c.kernel.rows,
       c.kernel.columns, c.stride.rows, c.stride.columns, c.padding.rows, c.padding.columns, c.dilation.rows,
       c.dilation.columns, x.shape()[2], x.shape()[3], y.shape()[2], y.shape()[3]});
  for (const Array* a : {&x, &y}) add({a->strides()[0], a->strides()[1], a->strides()[2], a->strides()[3]});
  choice.kernel->launch({static_cast<std::uint64_t>(m_tiles * n_tiles * matrices), 1, 1},
                        std::span<const LaunchArgument>(all));
}

/// The sum of parts.
Array added(const Array& parts, DType dtype) {
  return (parts.shape(0) == 1 ? parts.select(0, 0) : sum(parts, {0})).astype(dtype);
}

Shape per_group(Shape y, std::int64_t groups) {
  y[1] /= groups;
  return y;
}

}  // namespace

std::optional<CorrelationPlan> choose_correlation(const Tiles& tiles, CorrelationSpec spec, const Correlation& c,
                                                  const Shape& x, const Shape& y) {
  CorrelationPlan plan;
  spec.sum = spec.x == DType::f64 || spec.y == DType::f64 ? DType::f64 : DType::f32;
  spec.lanes = vector_lanes(tiles, spec.sum);
  const std::int64_t all[] = {c.kernel.rows, c.kernel.columns, c.stride.rows, c.stride.columns};
  if (*std::ranges::max_element(all) <= 7)
    std::ranges::transform(all, spec.sizes.begin(), [](std::int64_t v) { return static_cast<std::uint8_t>(v); });
  spec.staged = spec.sums = static_cast<std::uint32_t>(room_of(tiles, spec.sum));
  plan.spec = spec;
  if (!by_bands(tiles, spec.sum, c, x)) return std::nullopt;
  const Edges edges(c, x);
  const std::int64_t in = x[1] / c.groups;
  const bool found =
      spec.kind == CorrelationSpec::images
          ? choose_images(tiles, plan, edges, c.groups, in, c.kernel.rows * c.kernel.columns, per_group(y, c.groups))
          : choose_weights(tiles, plan, edges, c.groups, in, c.kernel, per_group(y, c.groups));
  return found ? std::optional(plan) : std::nullopt;
}

void correlate(Array& y, const Array& x, const Array& weight, const std::optional<Array>& bias, bool flipped,
               const Correlation& c) {
  const Shape s = y.shape();
  CorrelationSpec spec{CorrelationSpec::images, x.dtype(), y.dtype()};
  spec.x_unit = x.strides()[3] == 1, spec.y_unit = y.strides()[3] == 1;
  spec.bias = bias.has_value(), spec.flipped = flipped;
  const std::int64_t in = x.shape(1) / c.groups, out = s[1] / c.groups, terms = in * c.kernel.rows * c.kernel.columns;
  const std::optional<CorrelationPlan> chosen = choose_correlation(tiles_of(x.device()), spec, c, x.shape(), s);
  if (!chosen) {
    ProductSpec asked{weight.dtype(), x.dtype(), sum_of(weight, x), y.dtype()};
    asked.windows = ProductSpec::images_of_windows, asked.flipped = flipped;
    launch_product(asked, c, weight, x, bias, y.view_for_writing(), y, {out, s[0] * s[2] * s[3], terms, c.groups}, 0);
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
  const std::int64_t in = x.shape(1) / c.groups, out = s[1] / c.groups;
  const Tiles tiles = tiles_of(x.device());
  const std::optional<CorrelationPlan> chosen = choose_correlation(tiles, spec, c, x.shape(), s);
  if (!chosen) {
    ProductSpec asked{y.dtype(), x.dtype(), sum_of(x, y), sum_of(x, y)};
    asked.windows = ProductSpec::weights_of_windows;
    // Parts of the pixels, added up afterwards, so that each compute unit has some tiles of 64 x 64.
    const std::int64_t pixels = s[0] * s[2] * s[3], terms = in * c.kernel.rows * c.kernel.columns;
    const std::int64_t blocks = ceil_div(out, 64) * ceil_div(terms, 64) * c.groups;
    const std::int64_t part =
        ceil_div(pixels, std::clamp<std::int64_t>(2 * tiles.compute_units / blocks, 1, ceil_div(pixels, 1024)));
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
  const std::int64_t parts = ceil_div(bands_of(plan, s), plan.block_bands);
  const std::int64_t x_blocks = ceil_div(in, plan.x_block), y_blocks = ceil_div(out, plan.y_block);
  const Array sums = Array::empty({parts, s[1], in, c.kernel.rows, c.kernel.columns}, plan.spec.sum, x.device());
  launch(plan.spec, parts * c.groups * y_blocks * x_blocks, {x.view(), y.view(), sums.view()},
         arguments(plan, c, x, y.strides(), s),
         {plan.x_block, plan.y_block, x_blocks, y_blocks, c.groups, ceil_div(s[2], plan.rows), plan.block_bands});
  return added(sums, dtype);
}

}  // namespace tessera::ops
