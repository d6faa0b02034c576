// SPDX-License-Identifier: Apache-2.0
// Dense products. Tiles of results are in registers, and operands are read directly or staged in shared memory. If a
// factor is nearly a vector, one block computes each result.
#include <algorithm>
#include <functional>
#include <optional>

#include "tessera/ops/fragment_kernels.h"
#include "tessera/ops/kernels.h"

namespace tessera::ops {

namespace {

/// Offsets of image elements in the products of a convolution, for x, which the windows read, and for y, which has one
/// element per window. A pixel is an element of an image of y; pixels are counted across all images. A term is a pair
/// of a channel of x and a tap.
class WindowPlaces {
 public:
  WindowPlaces(const ProductSpec& s, ir::Value channels, ir::Value batch) : flipped_(s.flipped), channels_(channels) {
    const auto number = [](const char* name) { return ir::scalar_param(name, DType::index); };
    const ir::Value groups = number("groups");
    group_ = batch % groups;
    const ir::Value part = number("part");  // number of pixels per block
    first_ = batch / groups * part, end_ = ir::min(first_ + part, number("pixels"));
    in_ = number("in"), kernel_rows_ = number("kernel_rows"), kernel_columns_ = number("kernel_columns");
    if (s.kernel_rows != 0) kernel_rows_ = ir::index_literal(s.kernel_rows);
    if (s.kernel_columns != 0) kernel_columns_ = ir::index_literal(s.kernel_columns);
    for (const auto& [numbers, name] :
         {std::pair{&stride_, "stride_"}, {&pad_, "pad_"}, {&step_, "step_"}, {&x_extent_, "x_"}, {&y_extent_, "y_"}})
      for (std::size_t d = 0; d < 2; ++d)
        (*numbers)[d] = number((std::string(name) + (d == 0 ? "rows" : "columns")).c_str());
    for (const auto& [strides, name] : {std::pair{&x_, "x_stride"}, {&y_, "y_stride"}})
      for (std::size_t d = 0; d < 4; ++d) (*strides)[d] = number((name + std::to_string(d)).c_str());
  }
  /// The number of pixels in the part of this block.
  ir::Value active_terms() const { return end_ - first_; }
  ir::Value channel(ir::Value row) const { return group_ * channels_ + row; }
  ir::Value image(ir::Value row, ir::Value pixel) const {
    const auto [n, r, c] = position(pixel);
    return n * y_[0] + channel(row) * y_[1] + r * y_[2] + c * y_[3];
  }
  std::pair<ir::Value, ir::Value> window(ir::Value pixel, ir::Value term) const {
    const auto [n, r, c] = position(pixel);
    const ir::Value taps = kernel_rows_ * kernel_columns_, in_order = term % taps;
    const ir::Value tap = flipped_ ? taps - 1 - in_order : in_order, channel = group_ * in_ + term / taps;
    const ir::Value row = r * stride_[0] + tap / kernel_columns_ * step_[0] - pad_[0];
    const ir::Value column = c * stride_[1] + tap % kernel_columns_ * step_[1] - pad_[1];
    return {n * x_[0] + channel * x_[1] + row * x_[2] + column * x_[3],
            row >= 0 && row < x_extent_[0] && column >= 0 && column < x_extent_[1]};
  }

 private:
  std::array<ir::Value, 3> position(ir::Value pixel) const {
    const ir::Value p = first_ + pixel, in_image = p % (y_extent_[0] * y_extent_[1]);
    return {p / (y_extent_[0] * y_extent_[1]), in_image / y_extent_[1], in_image % y_extent_[1]};
  }
  bool flipped_;
  ir::Value channels_, group_, first_, end_, in_, kernel_rows_, kernel_columns_;
  std::array<ir::Value, 2> stride_, pad_, step_, x_extent_, y_extent_;
  std::array<ir::Value, 4> x_, y_;
};

ir::Value multiply_add(DType sum, ir::Value a, ir::Value b, ir::Value c) {
  return is_float(sum) ? ir::fma(a, b, c) : a * b + c;
}

}  // namespace

ir::Function trace_product(const ProductSpec& s) {
  const bool dots = s.tx == 0;
  const std::uint32_t tx = dots ? s.ty : s.tx, ty = dots ? 1 : s.ty;
  std::string name = "matmul_" + std::string(dtype_name(s.a)) + (s.a == s.b ? "" : "_" + std::string(dtype_name(s.b)));
  name += dots ? "_dots"
               : "_" + std::to_string(s.block_m()) + "x" + std::to_string(s.block_n()) +
                     (s.stages != 0      ? "_pipelined"
                      : s.by_fragments() ? "_fragments"
                      : s.stage_a        ? "_staged"
                      : s.stage_b        ? "_staged_b"
                                         : "");
  if (s.update) name += "_update";
  if (s.windows != ProductSpec::no_windows)
    name += s.windows == ProductSpec::images_of_windows ? "_windows" : "_pixels";
  ir::Builder builder(name, ir::KernelKind::block, {tx, ty, 1});
  builder.set_aligned_vectors(s.stages != 0);
  if (s.by_fragments()) builder.set_min_blocks(std::max(1u, 512 / (tx * ty)));  // 128 registers hold the sums
  ir::Builder::Scope scope(builder);
  ProductOperand a{ir::buffer_param("a", s.a, ir::Access::read)}, b{ir::buffer_param("b", s.b, ir::Access::read)};
  const auto bias = s.bias ? ir::buffer_param("bias", s.sum, ir::Access::read) : ir::BufferRef();
  const auto out = ir::buffer_param("out", s.out, ir::Access::read_write);
  auto number = [](const char* n) { return ir::scalar_param(n, DType::index); };
  const ir::Value m = number("m"), n = number("n");
  ir::Value all_k = number("k");
  const ir::Value m_tiles = number("m_tiles"), n_tiles = number("n_tiles");
  // The strides of a along m and k, and of b along n and k. If this is not an update, the strides of the two batch
  // dimensions follow.
  const ir::Value am = number("am"), ak = number("ak"), bn = number("bn"), bk = number("bk");
  auto number_if = [&](bool used, const char* name) { return used ? number(name) : ir::index_literal(0); };
  const ir::Value inner_batch = s.update ? ir::index_literal(1) : number("inner_batch"),
                  a1 = number_if(!s.update, "a1"), a0 = number_if(!s.update, "a0"), b1 = number_if(!s.update, "b1"),
                  b0 = number_if(!s.update, "b0");
  if (!s.a_unit_m) a.outer_stride = am;
  if (!s.a_unit_k) a.k_stride = ak;
  if (!s.b_unit_n) b.outer_stride = bn;
  if (!s.b_unit_k) b.k_stride = bk;

  // Rows vary fastest, so that the columns of b stay in the cache.
  const ir::Value tile = ir::block_id(0), m_tile = tile % m_tiles, n_tile = tile / m_tiles % n_tiles,
                  batch = tile / m_tiles / n_tiles;
  const ir::Value outer = batch / inner_batch, inner = batch % inner_batch;
  a.base = outer * a1 + inner * a0, b.base = outer * b1 + inner * b0;
  // For updates: the offsets of the matrices and the strides of c. `past` is the number of elements of a row that are
  // computed beyond the diagonal: 0 or the whole row.
  ir::Value c_first, cm, cn, past, alpha, beta;
  if (s.update) {
    a.base = number("a_first"), b.base = number("b_first"), c_first = number("c_first"), cm = number("cm");
    cn = number("cn"), past = number("past");
    alpha = ir::scalar_param("alpha", s.sum), beta = ir::scalar_param("beta", s.sum);
  }
  auto load = [&](const ProductOperand& from, ir::Value o, ir::Value kk, ir::Value exists) {
    return ir::cast(s.sum, from.load_if(exists, o, kk));
  };
  std::optional<WindowPlaces> places;
  if (s.windows != ProductSpec::no_windows) {
    places.emplace(s, m, batch);
    const auto window = [&](ir::Value pixel, ir::Value term) { return places->window(pixel, term); };
    if (s.windows == ProductSpec::images_of_windows) {
      b.place = window;
    } else {
      all_k = places->active_terms();
      a.place = [&](ir::Value row, ir::Value k) { return std::pair(places->image(row, k), ir::Value()); };
      b.place = [=](ir::Value column, ir::Value k) { return window(k, column); };
    }
  }
  auto finish = [&](ir::Value row, ir::Value column, ir::Value sum) {
    if (s.windows == ProductSpec::images_of_windows) {
      if (s.bias) sum = sum + bias.load(places->channel(row));
      return out.store(places->image(row, column), ir::cast(s.out, sum));
    }
    if (s.update) {
      return ir::if_(column <= row + past, [&] {
        const ir::Value at = c_first + row * cm + column * cn;
        out.store(at, ir::cast(s.out, updated(ir::cast(s.sum, out.load(at)), sum, alpha, beta)));
      });
    }
    if (s.bias) sum = sum + bias.load(column);
    sum = activate(s.activation, sum);
    out.store((batch * m + row) * n + column, ir::cast(s.out, sum));
  };

  // Tiles above the diagonal are skipped by setting k to 0.
  const auto block_m = static_cast<int>(s.block_m()), block_n = static_cast<int>(s.block_n());
  const ir::Value k =
      s.update ? ir::select(m_tile * block_m + (block_m - 1) + past < n_tile * block_n, ir::index_literal(0), all_k)
               : all_k;

  if (s.by_fragments()) {
    const auto finish_vector = [&](ir::Value row, ir::Value column, std::span<const ir::Value> sums) {
      std::vector<ir::NodeId> elements;
      for (std::size_t i = 0; i < sums.size(); ++i) {
        ir::Value sum = sums[i];
        if (s.bias) sum = sum + bias.load(column + static_cast<int>(i));
        elements.push_back(ir::cast(s.out, activate(s.activation, sum)).id());
      }
      out.store((batch * m + row) * n + column, ir::Value(ir::Builder::current().make_vector(elements)));
    };
    const FragmentTile tile{m, n, k, m_tile, n_tile, finish, finish_vector};
    s.stages != 0 ? pipelined_tile(s, a, b, tile) : fragment_tile(s, a, b, tile);
    return builder.finish();
  }

  if (dots) {
    const ir::Value lane = ir::thread_id(0);
    const int rows = static_cast<int>(s.tm), columns = static_cast<int>(s.tn);
    // Rows and columns past the end repeat the last row or column and are not stored.
    std::vector<ir::Value> row, column;
    for (int i = 0; i < rows; ++i) row.push_back(rows == 1 ? m_tile : ir::min(m_tile * rows + i, m - 1));
    for (int j = 0; j < columns; ++j) column.push_back(columns == 1 ? n_tile : ir::min(n_tile * columns + j, n - 1));
    std::vector<ir::Variable> part;
    for (int i = 0; i < rows * columns; ++i) part.emplace_back(s.sum, 0);
    for_lanes(k, tx, lane, [&](ir::Value kk, ir::Value exists) {
      std::vector<ir::Value> right;
      for (const ir::Value& c : column) right.push_back(load(b, c, kk, exists));
      for (std::size_t i = 0; i < row.size(); ++i) {
        const ir::Value left = load(a, row[i], kk, exists);
        for (std::size_t j = 0; j < column.size(); ++j) {
          const ir::Variable& v = part[i * column.size() + j];
          v.set(multiply_add(s.sum, left, right[j], v.get()));
        }
      }
    });
    std::vector<ir::Value> sum;
    for (const ir::Variable& v : part) sum.push_back(ir::block_sum(v.get()));
    ir::if_(lane == 0, [&] {
      for (int i = 0; i < rows; ++i)
        for (int j = 0; j < columns; ++j) {
          const ir::Value r = rows == 1 ? m_tile : m_tile * rows + i, c = columns == 1 ? n_tile : n_tile * columns + j;
          const auto write = [&] { finish(r, c, sum[static_cast<std::size_t>(i * columns + j)]); };
          if (rows * columns == 1)
            write();
          else
            ir::if_(r < m && c < n, write);
        }
    });
    return builder.finish();
  }

  const int bm = static_cast<int>(ty * s.tm), columns = static_cast<int>(tx * s.tn), depth = static_cast<int>(s.bk);
  const int tm = static_cast<int>(s.tm), tn = static_cast<int>(s.tn), x_step = static_cast<int>(tx),
            y_step = static_cast<int>(ty);
  const ir::Value x = ir::thread_id(0), y = ty > 1 ? ir::thread_id(1) : ir::index_literal(0);
  const ir::Value row0 = m_tile * bm, column0 = n_tile * columns;
  // Rows past the end repeat the last row and are not stored. Columns past the end are read as 0.
  std::vector<ir::Value> row, column, exists;
  for (int i = 0; i < tm; ++i) row.push_back(ir::min(row0 + y * tm + i, m - 1));
  for (int j = 0; j < tn; ++j) column.push_back(column0 + j * x_step + x), exists.push_back(column.back() < n);
  std::vector<ir::Variable> sum;
  for (int i = 0; i < tm * tn; ++i) sum.emplace_back(s.sum, 0);
  // Accumulates one step along k. The values of a are loaded one by one when they are needed, because the sums use most
  // registers.
  auto accumulate = [&](const std::function<ir::Value(int)>& a_value, const std::function<ir::Value(int)>& b_value) {
    std::vector<ir::Value> bv;
    for (int j = 0; j < tn; ++j) bv.push_back(b_value(j));
    for (int i = 0; i < tm; ++i) {
      const ir::Value av = a_value(i);
      for (int j = 0; j < tn; ++j) {
        const ir::Variable& v = sum[static_cast<std::size_t>(i * tn + j)];
        v.set(multiply_add(s.sum, av, bv[static_cast<std::size_t>(j)], v.get()));
      }
    }
  };

  const bool staged = s.stage_a || s.stage_b;
  if (!staged) {
    ir::for_(0, k, [&](ir::Value kk) {
      accumulate(
          [&](int i) { return load(a, row[static_cast<std::size_t>(i)], kk, {}); },
          [&](int j) { return load(b, column[static_cast<std::size_t>(j)], kk, exists[static_cast<std::size_t>(j)]); });
    });
  } else {
    // The layout is [k][row or column].
    const int a_pitch = bm + static_cast<int>(s.pad), b_pitch = columns + static_cast<int>(s.pad);
    const auto as = s.stage_a ? ir::shared(s.sum, static_cast<std::uint64_t>(depth * a_pitch)) : ir::BufferRef();
    const auto bs = s.stage_b ? ir::shared(s.sum, static_cast<std::uint64_t>(depth * b_pitch)) : ir::BufferRef();
    // Adjacent threads read adjacent memory, either along k or along rows or columns.
    auto stage = [&](const ir::BufferRef& to, const ProductOperand& from, bool along_k, ir::Value k0, ir::Value first,
                     ir::Value end, int width, int pitch) {
      auto copy = [&](ir::Value kk, ir::Value o) {
        to.store(kk * pitch + o, load(from, first + o, k0 + kk, k0 + kk < k && first + o < end));
      };
      if (along_k)
        ir::for_(y, width, y_step, [&](ir::Value o) {
          for (int at = 0; at < depth; at += x_step) copy(x + at, o);
        });
      else
        ir::for_(y, depth, y_step, [&](ir::Value kk) {
          for (int at = 0; at < width; at += x_step) {
            if (at + x_step <= width)
              copy(kk, x + at);
            else
              ir::if_(x < width - at, [&] { copy(kk, x + at); });
          }
        });
    };
    ir::for_(0, k, depth, [&](ir::Value k0) {
      if (s.stage_a) stage(as, a, s.a_unit_k, k0, row0, m, bm, a_pitch);
      if (s.stage_b) stage(bs, b, s.b_unit_k && !s.b_unit_n, k0, column0, n, columns, b_pitch);
      ir::barrier();
      // An operand that is not staged must not be read past k.
      ir::for_(0, s.stage_a ? ir::index_literal(depth) : ir::min(k - k0, depth), [&](ir::Value kk) {
        accumulate(
            [&](int i) {
              return s.stage_a ? as.load(kk * a_pitch + y * tm + i)
                               : load(a, row[static_cast<std::size_t>(i)], k0 + kk, {});
            },
            [&](int j) { return bs.load(kk * b_pitch + j * x_step + x); });
      });
      ir::barrier();
    });
  }

  for (int i = 0; i < tm; ++i) {
    const ir::Value r = row0 + y * tm + i;
    ir::if_(r < m, [&] {
      for (int j = 0; j < tn; ++j) {
        const auto c = static_cast<std::size_t>(j);
        ir::if_(exists[c], [&] { finish(r, column[c], sum[static_cast<std::size_t>(i * tn + j)].get()); });
      }
    });
  }
  return builder.finish();
}

namespace {

/// Chooses tiles for matrix units. Larger tiles read the factors fewer times. The largest tile is chosen that fits in
/// the shared memory and the threads of a block and still leaves at least one block for each compute unit. A subgroup
/// of 32 has at most 4 x 2 fragments (64 sums and 24 words of 16-bit factors per lane). A subgroup of 64 spreads
/// fragments over twice as many lanes and has at most 4 x 4. Factors of f32 are staged in steps of half the depth.
bool choose_fragments(const Tiles& tiles, ProductSpec& s, std::int64_t m, std::int64_t n, std::int64_t k,
                      std::int64_t batch) {
  if (s.a != s.b || tiles.subgroup < 2 || std::min(m, n) <= 4) return false;
  const bool f32 = s.a == DType::f32;
  if (!(f32                 ? tiles.matrix_f32 || (tiles.matrix_tf32 && s.tf32)
        : s.a == DType::f16 ? tiles.matrix_f16
                            : s.a == DType::bf16 && tiles.matrix_bf16))
    return false;
  struct Shape {
    std::uint32_t workers_m, workers_n, tm, tn;
  };
  const bool wide = tiles.subgroup >= 64;
  const Shape large = wide ? Shape{2, 2, 4, 4} : Shape{2, 4, 4, 2};  // 128 x 128
  const Shape shapes[] = {large, {2, 2, 2, 2}, {2, 2, 1, 1}};        // 64 x 64, 32 x 32
  // AMD's units take four to eight times as long for f32 as for f16. Smaller tiles suffice for them, of which two fit
  // in the shared memory of a compute unit.
  const bool slow = f32 && wide && s.whole_vectors;
  bool found = false;
  for (const Shape& shape : shapes) {
    if (slow && shape.tm == large.tm) continue;
    ProductSpec t = s;
    t.workers_m = shape.workers_m, t.workers_n = shape.workers_n, t.tm = shape.tm, t.tn = shape.tn;
    t.tx = tiles.subgroup * shape.workers_m * shape.workers_n, t.ty = 1, t.bk = f32 ? 16 : 32;
    // Small tiles have few threads, each of which must have more copies in flight.
    const bool is_large = t.block_m() == 128;
    if (s.whole_vectors && !is_large && !slow) t.bk *= 2;
    for (t.stages = !s.whole_vectors    ? 0
                    : slow              ? 2
                    : is_large          ? 3
                    : t.block_m() == 64 ? 4
                                        : 6;
         t.stages > 1 && fragment_shared_bytes(t) > tiles.shared_bytes;)
      --t.stages;
    if (t.stages == 1) t.stages = 0;
    t.whole_steps = t.stages != 0 && k % t.bk == 0;
    if (t.tx > tiles.block_limit || fragment_shared_bytes(t) > tiles.shared_bytes) continue;
    found = true, s = t;
    const std::int64_t bm = t.block_m(), bn = t.block_n();
    if ((m + bm - 1) / bm * ((n + bn - 1) / bn) * batch >= tiles.compute_units) break;
  }
  return found;
}

/// True if the horizontal sums at the end cost less than packing a right factor with columns that are contiguous along
/// k. Horizontal sums take about 55 cycles for 12 results, and packing takes 2 cycles per element. With 16 lanes they
/// take about 20 cycles per result and 1 cycle per element.
bool prefers_dot_product(const Tiles& tiles, std::int64_t m, std::int64_t k) {
  return k > (tiles.tokens >= 8 ? 16 : 2) * m;
}

}  // namespace

ProductSpec choose_product(const Tiles& tiles, ProductSpec s, std::int64_t m, std::int64_t n, std::int64_t k,
                           std::int64_t batch) {
  const bool along_k = s.a_unit_k && s.b_unit_k && !(s.b_unit_n && n > 4);
  if (along_k && k >= 16 && tiles.vectors && (m <= 4 || n <= 4 || prefers_dot_product(tiles, m, k))) {
    // Computes as many results at a time as fit in registers, so that they share loads.
    s.tx = 0, s.ty = dtype_size(s.sum) == 8 ? std::max(4u, tiles.subgroup / 2) : tiles.subgroup;
    const std::uint32_t rows = tiles.tokens >= 8 ? 8 : 4;
    s.tm = static_cast<std::uint32_t>(std::min<std::int64_t>(m, rows));
    s.tn = static_cast<std::uint32_t>(std::min<std::int64_t>(n, s.tm > rows / 2 ? 3 : s.tm > 1 ? 4 : 8));
    return s;
  }
  if (along_k && k >= 16 && (m <= 4 || n <= 4)) {  // each result is a dot product of two contiguous ranges
    s.tx = 0, s.ty = k >= 1024 ? tiles.block : std::min(tiles.block, 64u);
    return s;
  }
  if (choose_fragments(tiles, s, m, n, k, batch)) return s;
  s.tx = std::min(tiles.block_limit, 16u);
  const std::uint32_t rows_limit = tiles.block_limit / s.tx;  // threads along m
  const std::uint32_t fit = n <= 16 ? 1 : n <= 32 ? 2 : 3;
  if (m <= 4) {  // b is read once, with any strides
    s.tm = m <= 1 ? 1 : m <= 2 ? 2 : 4, s.tn = fit;
    return s;
  }
  if (tiles.vectors && s.windows == ProductSpec::no_windows) {
    s.packed = true;
    return s;
  }
  if (m <= 16 && n <= 16) {
    s.ty = std::min(rows_limit, 4u), s.tm = 1, s.tn = 1, s.bk = 16, s.pad = 1, s.stage_a = s.stage_b = true;
    return s;
  }
  s.ty = std::min(rows_limit, 16u), s.tm = 4, s.tn = 4, s.bk = 16, s.pad = 1, s.stage_a = s.stage_b = true;
  if (s.sum == DType::f64 || s.sum == DType::i64 || s.sum == DType::u64) s.tm = s.tn = 2;
  return s;
}

}  // namespace tessera::ops
