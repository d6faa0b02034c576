// SPDX-License-Identifier: Apache-2.0
// Chooses the kernel of a convolution on a CPU, and the extents of its bands and blocks. A cost model estimates the
// cycles.
#include <algorithm>
#include <limits>

#include "tessera/ops/correlation.h"

namespace tessera::ops {

namespace {

/// Splits `all` into the fewest parts of at most `most`, with nearly equal sizes. Returns the size of a part.
std::int64_t even_parts(std::int64_t all, std::int64_t most) {
  return ceil_div(all, ceil_div(all, std::clamp<std::int64_t>(most, 1, all)));
}

/// The edge of a band in one dimension. In each phase, `halo` elements follow the first element of the last window. The
/// first `padding` elements are zero in every phase, so they can also serve as the end of the previous row or image.
struct Edge {
  std::int64_t halo, phases, padding, end;
  Edge(std::int64_t extent, std::int64_t kernel, std::int64_t stride, std::int64_t pad, std::int64_t step) {
    const std::int64_t across = (kernel - 1) * step;
    halo = across / stride, phases = std::min(stride, across + 1);
    padding = pad < phases ? 0 : (pad - phases) / stride + 1;
    end = pad < 0 ? std::numeric_limits<std::int64_t>::max() : ceil_div(extent + pad, stride);
  }
  /// The number of elements of a phase that cover all `windows` of y.
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
  /// True if a band of one row and a few columns of some channels fits into `elements`.
  bool fit(std::int64_t elements) const {
    return (rows.halo + 2) * (columns.halo + 16) * (phases() + 9) <= elements - 128;
  }
};

/// The number of elements of shared memory for bands. Sums get the same amount. Both fit in the L2 cache.
std::int64_t room_of(const Tiles& tiles, DType sum) {
  return static_cast<std::int64_t>(std::min<std::uint64_t>(tiles.shared_bytes, 224 << 10) / dtype_size(sum) / 2);
}

/// True if blocks can stage bands of images. This requires CPU vectors and a convolution kernel that is small enough
/// for a band to fit in shared memory.
bool by_bands(const Tiles& tiles, DType sum, const Correlation& c, const Shape& x) {
  return tiles.vectors && Edges(c, x).fit(room_of(tiles, sum));
}

/// Sets the extents of the band. If `rows` equals the number of rows of y, the band has whole images; otherwise it has
/// `rows` rows of one image. Returns false if the band needs more than `most` positions.
bool set_band(CorrelationPlan& plan, const Edges& edges, const Shape& y, std::int64_t images, std::int64_t rows,
              std::int64_t most) {
  const bool whole = rows == y[2];
  plan.images = images, plan.rows = rows;
  plan.more_rows = whole ? edges.rows.length(rows) - rows : edges.rows.halo;
  plan.shared_rows = whole ? edges.rows.padding : 0;
  plan.pitch = plan.columns < y[3] ? plan.columns + edges.columns.halo : edges.columns.length(y[3]);
  return plan.positions() <= most;
}

/// Calls `f` for each candidate band of at most `most` positions: several whole images, or some rows of one image. Rows
/// that are too long are split first.
template <class F>
void for_each_band(CorrelationPlan& plan, const Edges& edges, const Shape& y, std::int64_t most, F&& f) {
  const std::int64_t least = edges.rows.halo + 2;  // one row, and one row after it
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

/// Estimated cycles of one core. The plan with the lowest cost is chosen.
constexpr double copy_cycles = 8, sum_cycles = 3;  // per staged vector; per vector of sums in memory
constexpr double turn_cycles = 6;                  // per vector of y that is stored or transposed

double real(auto v) { return static_cast<double>(v); }

class Choice {
 public:
  Choice(const Tiles& tiles, const CorrelationSpec& spec, const Correlation& c, const Shape& x, const Shape& y)
      : tiles_(tiles), edges_(c, x), y_(y), kernel_(c.kernel), groups_(c.groups), in_(x[1] / c.groups) {
    plan_.spec = spec;
    y_[1] /= groups_;
    const std::int64_t pad = c.padding.columns;
    if (c.stride.columns == 1 && c.dilation.columns == 1 && pad >= 0 && pad < kernel_.columns &&
        y[3] == x[3] + 2 * pad - kernel_.columns + 1)
      edge_ = static_cast<std::uint8_t>(pad);
  }
  std::optional<CorrelationPlan> images() {
    images_by_windows();
    images_by_channels();
    return least_ < none ? std::optional(best_) : std::nullopt;
  }
  std::optional<CorrelationPlan> weights() {
    weights_by_windows();
    weights_by_channels();
    if (least_ == none) return std::nullopt;
    // The images are split into parts, and the partial sums are added up afterwards. The number of parts does not
    // depend on the device, so that results are identical on all devices.
    const std::int64_t blocks =
        groups_ * ceil_div(padded(y_[1], best_.spec), best_.y_block) * ceil_div(in_, best_.x_block);
    const std::int64_t parts = std::clamp<std::int64_t>(y_[0] * y_[2] * y_[3] / 8192, 1, ceil_div(64, blocks));
    best_.block_bands = ceil_div(best_.bands(y_), parts);
    return best_;
  }

 private:
  static constexpr double none = 1e300;
  static std::int64_t padded(std::int64_t channels, const CorrelationSpec& s) {
    return ceil_div(channels, s.channels()) * s.channels();
  }
  /// The number of vector registers for sums. One more is needed for a factor, and one for a vector of the other
  /// factor.
  std::int64_t registers() const { return tiles_.tokens >= 8 ? 31 : 15; }
  bool better(double cost) {
    if (cost >= least_ * 0.999) return false;
    least_ = cost;
    return true;
  }
  /// Estimates the cycles for staging `channels` of x, row by row.
  double staging(std::int64_t channels) const {
    const std::int64_t rows = channels * edges_.phases() * plan_.images * (plan_.rows + edges_.rows.halo);
    return real(rows) * (8 + copy_cycles / 2 * real(ceil_div(plan_.pitch, plan_.spec.lanes)));
  }
  void images_by_windows();
  void images_by_channels();
  void weights_by_windows();
  void weights_by_channels();

  const Tiles& tiles_;
  const Edges edges_;
  Shape y_;  // extents of one group
  const Extents2d kernel_;
  const std::int64_t groups_, in_;
  std::uint8_t edge_ = CorrelationSpec::no_edge;  // the padding if a tile is a whole row, otherwise no_edge
  CorrelationPlan plan_, best_;
  double least_ = none;
};

void Choice::images_by_windows() {
  CorrelationSpec& s = plan_.spec;
  const bool wide = tiles_.tokens >= 8;
  s.tm = static_cast<std::uint32_t>(even_parts(y_[1], wide ? 8 : 4));
  const std::int64_t panels = ceil_div(y_[1], s.tm), most_tn = std::min(6u, (wide ? 24 : 12) / s.tm);
  const std::int64_t staged = s.staged - most_tn * s.lanes, taps = kernel_.rows * kernel_.columns,
                     phases = edges_.phases();  // tiles may end past the last position
  for (const std::int64_t most_channels : {64, 32, 16}) {
    plan_.block_panels = even_parts(panels, most_channels / s.tm);
    const std::int64_t rows = plan_.block_panels * s.tm;
    for_each_band(plan_, edges_, y_, std::min(s.sums / rows - most_tn * s.lanes, staged / phases), [&] {
      plan_.chunk = even_parts(in_, staged / (phases * plan_.positions()));
      const double blocks = real(plan_.bands(y_) * groups_ * ceil_div(panels, plan_.block_panels));
      const double chunks = real(ceil_div(in_, plan_.chunk));
      for (std::int64_t tn = most_tn; tn >= 1; --tn) {
        const double of_tiles = real(plan_.block_panels * ceil_div(plan_.used(), tn * s.lanes)), each = real(s.tm * tn);
        const double block =
            of_tiles * (real(in_ * taps) * (std::max(each, 6.0) + 2) + chunks * 2 * sum_cycles * each) + staging(in_) +
            real(rows * in_ * taps) / 4 +
            real(rows * plan_.images * plan_.rows * ceil_div(y_[3], s.lanes)) * turn_cycles + 2000;
        // On average, the other threads wait for the last thread for half the time of a block.
        s.tn = static_cast<std::uint32_t>(tn);
        if (better(block * (blocks / tiles_.compute_units + (tiles_.compute_units > 1 ? 0.5 : 0)))) best_ = plan_;
      }
    });
  }
}

void Choice::images_by_channels() {
  CorrelationSpec& s = plan_.spec;
  s.by_channels = true;
  const auto known_columns = s.sizes[1];
  s.sizes[0] = 0;
  const std::int64_t taps = kernel_.rows * kernel_.columns, phases = edges_.phases();
  for (std::int64_t tn = 1; tn <= 4; ++tn) {
    s.tn = static_cast<std::uint32_t>(tn);
    const std::int64_t panels = ceil_div(y_[1], s.channels()),
                       most_tm = std::min<std::int64_t>(14, (registers() - tn) / tn);
    for (std::int64_t block_panels = panels; block_panels >= 1; block_panels /= 2) {
      plan_.block_panels = even_parts(panels, block_panels);
      const std::int64_t channels = plan_.block_panels * s.channels();
      for_each_band(plan_, edges_, y_, s.staged / phases, [&] {
        const std::int64_t columns = std::min(plan_.columns, y_[3]), tm = even_parts(columns, most_tm),
                           all_tiles = plan_.images * plan_.rows * ceil_div(columns, tm);
        if (all_tiles * tm * channels > s.sums) return;
        s.tm = static_cast<std::uint32_t>(tm);
        // If taps are unrolled, elements that several taps read stay in registers.
        const bool traced = tm * tn + tn + tm + kernel_.columns - 2 <= registers();
        s.sizes[1] = traced ? known_columns : std::uint8_t{0};
        s.edge = s.sizes[1] != 0 && tm == y_[3] ? edge_ : CorrelationSpec::no_edge;
        plan_.chunk = even_parts(in_, s.staged / (phases * plan_.positions()));
        const double blocks = real(plan_.bands(y_) * groups_ * ceil_div(panels, plan_.block_panels));
        const double chunks = real(ceil_div(in_, plan_.chunk)), each = real(tm * tn);
        const double left_out =
            s.edge == CorrelationSpec::no_edge ? 0 : real(s.edge * (s.edge + 1) * tn) / real(kernel_.columns);
        const double loads = real(traced ? tn + (tm + kernel_.columns - 1) / kernel_.columns : tn + tm);
        const double block =
            real(all_tiles * plan_.block_panels) * (real(in_ * taps) * (std::max(each - left_out, 8.0) + loads / 8) +
                                                    chunks * 2 * sum_cycles * each + 10) +
            staging(in_) + real(channels * in_ * taps) / 4 + real(channels * all_tiles * tm / s.lanes) * turn_cycles +
            2000;
        if (better(block * (blocks / tiles_.compute_units + (tiles_.compute_units > 1 ? 0.5 : 0)))) best_ = plan_;
      });
    }
  }
}

void Choice::weights_by_windows() {
  CorrelationSpec& s = plan_.spec;
  const bool wide = tiles_.tokens >= 8;
  const std::int64_t vectors = s.sums / s.lanes, phases = edges_.phases();
  plan_.kernel_rows = std::clamp<std::int64_t>(vectors / kernel_.columns, 1, kernel_.rows);
  const std::int64_t taps = plan_.kernel_rows * kernel_.columns;
  s.by_channels = false;
  s.tm = static_cast<std::uint32_t>(even_parts(y_[1], std::min<std::int64_t>(wide ? 8 : 4, vectors / taps)));
  s.tn = s.sizes[0] == 0 ? 1 : static_cast<std::uint32_t>(even_parts(taps, (wide ? 24u : 12u) / s.tm));
  const std::int64_t panels = ceil_div(y_[1], s.tm), tiles_of_taps = ceil_div(taps, s.tn);
  for (const std::int64_t most_channels : {64, 32, 16, 8}) {
    const std::int64_t most_panels = std::min<std::int64_t>(most_channels / s.tm, vectors / (taps * s.tm));
    plan_.y_block = even_parts(panels, most_panels) * s.tm;
    for (std::int64_t block = in_; block >= 1; block = std::min(block - 1, block * 4 / 5)) {
      plan_.x_block = block;
      if (plan_.x_block * plan_.y_block * taps > vectors) continue;
      const std::int64_t each = plan_.x_block * phases + plan_.y_block + 1;
      for_each_band(plan_, edges_, y_, s.staged / each - s.lanes, [&] {
        const double blocks = real(groups_ * ceil_div(panels * s.tm, plan_.y_block) * ceil_div(in_, plan_.x_block));
        const double copied = real(each * plan_.positions()) / s.lanes,
                     loops = real(plan_.y_block / s.tm * plan_.x_block * tiles_of_taps);
        const double band =
            loops * (real(ceil_div(plan_.used(), s.lanes)) * (s.tm * s.tn + 3) + 2 * sum_cycles * s.tm * s.tn + 20) +
            copied * copy_cycles + 2000;
        if (better(blocks * real(plan_.bands(y_)) * band)) best_ = plan_;
      });
    }
  }
}

void Choice::weights_by_channels() {
  CorrelationSpec& s = plan_.spec;
  if (s.sizes[0] == 0) return;  // the taps of a tile must be known while tracing
  const std::int64_t taps = kernel_.rows * kernel_.columns, phases = edges_.phases();
  s.by_channels = true, plan_.kernel_rows = kernel_.rows;
  for (std::int64_t tn = 1; tn <= 3; ++tn) {
    s.tn = static_cast<std::uint32_t>(tn);
    const std::int64_t most = (registers() - tn) / tn, row = kernel_.columns;
    const std::int64_t together = even_parts(in_, most / row);
    const std::int64_t tm = most >= row ? together * row : even_parts(row, most);
    s.tm = static_cast<std::uint32_t>(tm);
    const std::int64_t panels = ceil_div(y_[1], s.channels()),
                       tiles_of_taps = kernel_.rows * ceil_div(together * row, tm);
    for (std::int64_t y_panels = std::min<std::int64_t>(panels, 8); y_panels >= 1; y_panels /= 2) {
      plan_.y_block = even_parts(panels, y_panels) * s.channels();
      for (std::int64_t block = in_; block >= 1; block = std::min(block - 1, block * 4 / 5)) {
        const std::int64_t x_tiles = ceil_div(even_parts(in_, block), together), x_padded = x_tiles * together;
        plan_.x_block = x_padded;
        if (x_padded * plan_.y_block * taps > s.sums) continue;
        for_each_band(plan_, edges_, y_, s.staged / (x_padded * phases), [&] {
          const std::int64_t rows = plan_.images * plan_.rows, windows = rows * std::min(plan_.columns, y_[3]);
          if (x_padded * phases * plan_.positions() + plan_.y_block * windows > s.staged) return;
          const double blocks =
              real(groups_ * ceil_div(panels * s.channels(), plan_.y_block) * ceil_div(in_, plan_.x_block));
          const double loops = real(plan_.y_block / s.channels() * x_tiles * tiles_of_taps), each = real(tm * tn);
          const double band = loops * (real(windows) * (std::max(each, 8.0) + real(tm + tn) / 8) + real(rows) * 10 +
                                       2 * sum_cycles * each + 20) +
                              staging(plan_.x_block) + real(plan_.y_block * windows / s.lanes) * turn_cycles + 2000;
          if (better(blocks * real(plan_.bands(y_)) * band)) best_ = plan_;
        });
      }
    }
  }
}

}  // namespace

std::optional<CorrelationPlan> choose_correlation(const Tiles& tiles, CorrelationSpec spec, const Correlation& c,
                                                  const Shape& x, const Shape& y) {
  spec.sum = spec.x == DType::f64 || spec.y == DType::f64 ? DType::f64 : DType::f32;
  spec.lanes = vector_lanes(tiles, spec.sum);
  const std::int64_t all[] = {c.kernel.rows, c.kernel.columns, c.stride.rows, c.stride.columns};
  if (*std::ranges::max_element(all) <= 7)
    std::ranges::transform(all, spec.sizes.begin(), [](std::int64_t v) { return static_cast<std::uint8_t>(v); });
  spec.dilated = c.dilation.rows != 1 || c.dilation.columns != 1;
  spec.staged = spec.sums = static_cast<std::uint32_t>(room_of(tiles, spec.sum));
  if (!by_bands(tiles, spec.sum, c, x)) return std::nullopt;
  Choice choice(tiles, spec, c, x, y);
  return spec.kind == CorrelationSpec::images ? choice.images() : choice.weights();
}

}  // namespace tessera::ops
