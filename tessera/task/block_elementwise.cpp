// SPDX-License-Identifier: Apache-2.0
// Elementwise operations of block arrays. They apply operations of array.h to each tile.
#include <algorithm>
#include <map>

#include "tessera/array/source.h"
#include "tessera/base/callback.h"
#include "tessera/task/block_access.h"
#include "tessera/task/block_array.h"

namespace tessera {
namespace {

using Operands = std::vector<const BlockOperand*>;

/// An operand that is split like the tiles of the result. If it is broadcast, several tiles use the same part.
class Parts {
 public:
  /// `shape` and `tile` are the shape and the tile shape of the result.
  Parts(const BlockOperand& operand, const Shape& shape, const Shape& tile)
      : scalar_(operand.scalar()), shape_(shape), tile_(tile) {
    if (scalar_) return;
    blocks_ = *operand.blocks();
    lead_ = shape.size() - blocks_.shape().size();
    if (element_count(blocks_.grid()) == 1) return;  // all parts are views of the only tile
    Shape wanted = blocks_.tile_shape();
    bool meets = true;
    for (std::size_t d = 0; d < wanted.size(); ++d) {
      if (stretched(d) || (blocks_.grid()[d] == 1 && tile_[lead_ + d] >= shape_[lead_ + d])) continue;
      meets = meets && wanted[d] == tile_[lead_ + d];
      wanted[d] = tile_[lead_ + d];
    }
    if (!meets) blocks_ = blocks_.retile(wanted);
  }

  const std::optional<ArrayOperand>& scalar() const { return scalar_; }
  bool on_ranks() const { return !scalar_ && BlockArrayAccess::ranks(blocks_); }
  std::shared_ptr<detail::RankMessages> messages() const { return BlockArrayAccess::ranks(blocks_)->shared_messages(); }
  DType dtype() const { return blocks_.dtype(); }
  /// Returns where the part is that belongs to tile `index` of the result.
  detail::RankTiles::Place place(const Shape& index) const {
    return BlockArrayAccess::place_of(blocks_, index_in(index));
  }
  /// Returns the tile that contains the part.
  Tile source(const Shape& index) const { return blocks_.tile(index_in(index)); }
  /// Returns the part, which is a view of its tile.
  Array cut(Array part, const Shape& index) const {
    if (element_count(blocks_.grid()) == 1)
      for (std::size_t d = 0; d < blocks_.shape().size(); ++d) {
        const std::int64_t begin = index[lead_ + d] * tile_[lead_ + d];
        const std::int64_t end = std::min(begin + tile_[lead_ + d], shape_[lead_ + d]);
        if (!stretched(d) && end - begin != part.shape()[d]) part = part.slice(static_cast<int>(d), begin, end);
      }
    return part;
  }
  ArrayOperand at(const Shape& index, Device device) {
    if (scalar_) return *scalar_;
    Array part = cut(BlockArrayAccess::tile(blocks_, index_in(index)), index);
    if (part.device() == device) return part;
    std::vector<std::int64_t> key;
    for (std::size_t d = 0; d < blocks_.shape().size(); ++d) key.push_back(stretched(d) ? 0 : index[lead_ + d]);
    auto& there = moved_[{std::move(key), device}];
    if (!there) there = part.to(device);
    return *there;
  }

 private:
  bool stretched(std::size_t d) const { return blocks_.shape()[d] != shape_[lead_ + d]; }
  Shape index_in(const Shape& index) const {
    Shape mine(blocks_.shape().size(), 0);
    for (std::size_t d = 0; d < mine.size(); ++d)
      if (!stretched(d) && blocks_.grid()[d] != 1) mine[d] = index[lead_ + d];
    return mine;
  }

  std::optional<ArrayOperand> scalar_;
  Shape shape_, tile_;
  BlockArray blocks_;
  std::size_t lead_ = 0;  // number of leading dimensions that only the result has
  std::map<std::pair<std::vector<std::int64_t>, Device>, std::optional<Array>> moved_;
};

bool on_ranks(const std::vector<Parts>& parts) { return std::ranges::any_of(parts, &Parts::on_ranks); }

/// Returns true if each part is on the rank that owns the tile for which it is needed; `owner(index)` is that rank.
template <class F>
bool parts_are_here(const std::vector<Parts>& parts, const Shape& grid, F&& owner) {
  bool here = true;
  for_each_index(grid, [&](const Shape& index) {
    for (const Parts& p : parts) here = here && (!p.on_ranks() || p.place(index).owner == owner(index));
  });
  return here;
}

/// Creates a task for a tile that calls f with the parts of the operands. Parts of other ranks are sent.
template <class F, class G>
void spawn_with_parts(Region& r, const TaskOptions& options, const std::vector<Parts>& parts, const Shape& index,
                      const Accessed& target, F&& f, G&& write) {
  std::vector<Accessed> sources;
  for (const Parts& p : parts)
    if (!p.scalar()) sources.push_back(in(p.source(index)));
  r.spawn(
      options,
      [&parts, index, f, write](const std::vector<Array>& arrays, Array& to) {
        std::vector<ArrayOperand> given;
        std::size_t n = 0;
        for (const Parts& p : parts)
          given.push_back(p.scalar() ? *p.scalar() : ArrayOperand(p.cut(arrays[n++], index)));
        write(to, f(std::move(given)));
      },
      std::move(sources), target);
}

/// True if f has returned one of its operands or a view of it. Writes of tiles are counted for each block array, so
/// block arrays over ranks do not share memory.
bool shares_memory(const Array& tile, const std::vector<ArrayOperand>& operands) {
  if (tile.pending()) return false;
  return std::ranges::any_of(operands, [&](const ArrayOperand& o) {
    return o.is_array() && !o.array().pending() && o.array().source()->memory() == tile.source()->memory();
  });
}

/// Like tile_by_tile, for operands of which at least one is distributed over ranks. The result has the places of
/// operand `leader`.
template <class F>
BlockArray tile_by_tile_on_ranks(const char* name, const BlockArray& layout, std::vector<Parts>& parts,
                                 std::size_t leader, F&& f) {
  TilePlaces places;
  if (parts[leader].on_ranks()) places.messages = parts[leader].messages();
  for_each_index(layout.grid(), [&](const Shape& index) { places.places.push_back(parts[leader].place(index)); });
  // All ranks compute the dtype of the result, also those without tiles.
  const Shape first(layout.grid().size(), 0);
  Shape extent = first;
  for (std::size_t d = 0; d < extent.size(); ++d) extent[d] = std::min(layout.tile_shape()[d], layout.shape()[d]);
  std::vector<ArrayOperand> zeros;
  for (const Parts& p : parts)
    zeros.push_back(p.scalar() ? *p.scalar()
                               : ArrayOperand(p.cut(Array::zeros(p.source(first).shape(), p.dtype()), first)));
  const Array example = f(std::move(zeros));
  if (example.shape() != extent)
    fail<ShapeError>({.operation = name,
                      .with = {{"tile", to_string(extent)}, {"result", to_string(example.shape())}},
                      .wrong = "the result's shape differs from the tile's"});
  const auto owner = [&](const Shape& index) { return parts[leader].place(index).owner; };
  if (places.messages && parts_are_here(parts, layout.grid(), owner))
    return BlockArrayAccess::made(layout.shape(), layout.tile_shape(), example.dtype(), std::move(places),
                                  [&](const Shape& index, const Shape&, const Shape&) {
                                    std::vector<ArrayOperand> given;
                                    for (Parts& p : parts) given.push_back(p.at(index, current_device()));
                                    const std::vector<ArrayOperand> operands = given;
                                    Array tile = f(std::move(given));
                                    return shares_memory(tile, operands) ? tile.copy() : tile;
                                  });
  const BlockArray out =
      BlockArrayAccess::empty(layout.shape(), layout.tile_shape(), example.dtype(), std::move(places));
  const TaskOptionsByTile options(out);
  Region r;
  for (const Tile& t : out.tiles())
    spawn_with_parts(r, options(t, name), parts, t.index(), tessera::out(t), f,
                     [](Array& to, Array value) { to.assign(std::move(value)); });
  r.wait();
  return out;
}

/// Computes each tile of the result by calling f with the parts of the operands.
template <class F>
BlockArray tile_by_tile(const char* name, const Operands& operands, F&& f) {
  Operands order;  // operands in the order in which they determine the tiling of the result
  for (const BlockOperand* o : operands)
    if (o->blocks()) order.push_back(o);
  if (order.empty()) fail<ArgumentError>({.operation = name, .wrong = "one operand must be a block array"});
  Shape shape = order[0]->blocks()->shape();
  for (const BlockOperand* o : order) shape = broadcast_shapes(name, shape, o->blocks()->shape());
  std::ranges::stable_sort(
      order, {}, [&](const BlockOperand* o) { return std::pair(o->is_array(), o->blocks()->shape() != shape); });
  Shape tile(shape.size(), 0);
  for (const BlockOperand* o : order) {
    const BlockArray& a = *o->blocks();
    const std::size_t lead = shape.size() - a.shape().size();
    for (std::size_t d = 0; d < a.shape().size(); ++d)
      if (tile[lead + d] == 0 && a.shape()[d] == shape[lead + d]) tile[lead + d] = a.tile_shape()[d];
  }
  std::vector<Array> tiles;
  const BlockArray result = BlockArrayAccess::of(shape, tile, order[0]->blocks()->dtype(), {});
  if (result.size() == 0) return result;
  tiles.reserve(static_cast<std::size_t>(element_count(result.grid())));
  std::vector<Parts> parts;
  for (const BlockOperand* o : operands) parts.emplace_back(*o, shape, tile);
  const auto leader = static_cast<std::size_t>(std::ranges::find(operands, order[0]) - operands.begin());
  if (on_ranks(parts)) return tile_by_tile_on_ranks(name, result, parts, leader, f);
  for_each_index(result.grid(), [&](const Shape& index) {
    const Device device = parts[leader].place(index).device;
    const DeviceScope there(device);
    std::vector<ArrayOperand> given;
    given.reserve(parts.size());
    for (Parts& p : parts) given.push_back(p.at(index, device));
    tiles.push_back(f(std::move(given)));
    Shape extent = index;
    for (std::size_t d = 0; d < extent.size(); ++d) extent[d] = std::min(tile[d], shape[d] - index[d] * tile[d]);
    if (tiles.back().shape() != extent)
      fail<ShapeError>({.operation = name,
                        .with = {{"tile", to_string(extent)}, {"result", to_string(tiles.back().shape())}},
                        .wrong = "the result's shape differs from the tile's"});
  });
  const DType dtype = tiles.front().dtype();
  return BlockArrayAccess::of(std::move(shape), std::move(tile), dtype, std::move(tiles));
}

/// Applies an operation of arrays. If the result is empty, its dtype is determined by calling f with empty arrays.
template <class F>
BlockArray operation(const char* name, const Operands& operands, F&& f) {
  BlockArray out = tile_by_tile(name, operands, f);
  if (out.size() != 0) return out;
  std::vector<ArrayOperand> none;
  for (const BlockOperand* o : operands)
    none.push_back(o->scalar() ? *o->scalar() : ArrayOperand(Array::empty({0}, o->blocks()->dtype())));
  return BlockArrayAccess::of(out.shape(), out.tile_shape(), f(std::move(none)).dtype(), {});
}
BlockArray unary(const char* name, Array (*f)(Array), const BlockArray& a) {
  const BlockOperand x(a);
  return operation(name, {&x}, [&](std::vector<ArrayOperand> o) { return f(o[0].take()); });
}
BlockArray binary(const char* name, Array (*f)(ArrayOperand, ArrayOperand), const BlockOperand& a,
                  const BlockOperand& b) {
  return operation(name, {&a, &b}, [&](std::vector<ArrayOperand> o) { return f(std::move(o[0]), std::move(o[1])); });
}

BlockArray& update(const char* name, Array& (Array::*f)(ArrayOperand), BlockArray& a, const BlockOperand& b) {
  BlockOperand value = b;
  if (b.blocks() && broadcast_shapes(name, a.shape(), b.blocks()->shape()) != a.shape())
    fail<ShapeError>(
        {.operation = name,
         .with = {{"left", to_string(a.shape())}, {"right", to_string(b.blocks()->shape())}},
         .wrong = "the left operand is updated in place and cannot be broadcast to the right one's shape"});
  if (a.size() == 0) return a;
  // If the operand is a part of a tile of `a`, later tiles would read values that have already been updated. It is
  // therefore copied.
  if (b.is_array())
    value = BlockOperand(BlockArrayAccess::tile(*b.blocks(), Shape(b.blocks()->shape().size(), 0)).copy());
  std::vector<Parts> parts;
  parts.emplace_back(value, a.shape(), a.tile_shape());
  const auto& ranks = BlockArrayAccess::ranks(a);
  if (ranks || on_ranks(parts)) {  // errors are thrown on all ranks, also on those without tiles
    Array example = Array::zeros(Shape(a.shape().size(), 1), a.dtype());
    const std::optional<ArrayOperand>& scalar = parts[0].scalar();
    (example.*f)(scalar ? *scalar : ArrayOperand(Array::zeros({}, parts[0].dtype())));
  }
  if (on_ranks(parts) && (!ranks || !parts_are_here(parts, a.grid(), [&](const Shape& i) {
        return BlockArrayAccess::place_of(a, i).owner;
      }))) {
    const TaskOptionsByTile options(a);
    Region r;
    for (const Tile& t : a.tiles())
      spawn_with_parts(
          r, options(t, name), parts, t.index(), inout(t), [](std::vector<ArrayOperand> given) { return given[0]; },
          [f](Array& to, ArrayOperand given) { (to.*f)(std::move(given)); });
    r.wait();
    return a;
  }
  for_each_index(a.grid(), [&](const Shape& index) {
    if (ranks && BlockArrayAccess::place_of(a, index).owner != ranks->messages().rank()) return;
    Array tile = BlockArrayAccess::tile(a, index);
    const DeviceScope there(tile.device());
    (tile.*f)(parts[0].at(index, tile.device()));
  });
  if (ranks) ranks->all_written();
  return a;
}

}  // namespace

BlockOperand::BlockOperand(const Array& a) : array_(true) {
  Shape tile = a.shape();
  for (std::int64_t& extent : tile) extent = std::max<std::int64_t>(extent, 1);
  blocks_ = BlockArrayAccess::of(a.shape(), std::move(tile), a.dtype(),
                                 a.size() == 0 ? std::vector<Array>{} : std::vector<Array>{a});
}

BlockArray map(const Callback<Array(const Array&)>& f, const BlockArray& a) {
  const BlockOperand x(a);
  return tile_by_tile("map", {&x}, [&](const std::vector<ArrayOperand>& o) { return f(o[0].array()); });
}
BlockArray map(const Callback<Array(const Array&, const Array&)>& f, const BlockArray& a, const BlockArray& b) {
  const BlockOperand x(a), y(b);
  return tile_by_tile("map", {&x, &y},
                      [&](const std::vector<ArrayOperand>& o) { return f(o[0].array(), o[1].array()); });
}

BlockArray BlockArray::astype(DType dtype) const {
  if (dtype == dtype_) return *this;
  const BlockOperand x(*this);
  return operation("astype", {&x}, [&](const std::vector<ArrayOperand>& o) { return o[0].array().astype(dtype); });
}

BlockArray& BlockArray::operator+=(const BlockOperand& b) { return update("+=", &Array::operator+=, *this, b); }
BlockArray& BlockArray::operator-=(const BlockOperand& b) { return update("-=", &Array::operator-=, *this, b); }
BlockArray& BlockArray::operator*=(const BlockOperand& b) { return update("*=", &Array::operator*=, *this, b); }
BlockArray& BlockArray::operator/=(const BlockOperand& b) { return update("/=", &Array::operator/=, *this, b); }

BlockArray operator+(const BlockOperand& a, const BlockOperand& b) { return binary("+", operator+, a, b); }
BlockArray operator-(const BlockOperand& a, const BlockOperand& b) { return binary("-", operator-, a, b); }
BlockArray operator*(const BlockOperand& a, const BlockOperand& b) { return binary("*", operator*, a, b); }
BlockArray operator/(const BlockOperand& a, const BlockOperand& b) { return binary("/", operator/, a, b); }
BlockArray operator%(const BlockOperand& a, const BlockOperand& b) { return binary("%", operator%, a, b); }
BlockArray operator&(const BlockOperand& a, const BlockOperand& b) { return binary("&", operator&, a, b); }
BlockArray operator|(const BlockOperand& a, const BlockOperand& b) { return binary("|", operator|, a, b); }
BlockArray operator^(const BlockOperand& a, const BlockOperand& b) { return binary("^", operator^, a, b); }
BlockArray operator==(const BlockOperand& a, const BlockOperand& b) { return binary("==", operator==, a, b); }
BlockArray operator!=(const BlockOperand& a, const BlockOperand& b) { return binary("!=", operator!=, a, b); }
BlockArray operator<(const BlockOperand& a, const BlockOperand& b) { return binary("<", operator<, a, b); }
BlockArray operator<=(const BlockOperand& a, const BlockOperand& b) { return binary("<=", operator<=, a, b); }
BlockArray operator>(const BlockOperand& a, const BlockOperand& b) { return binary(">", operator>, a, b); }
BlockArray operator>=(const BlockOperand& a, const BlockOperand& b) { return binary(">=", operator>=, a, b); }
BlockArray minimum(const BlockOperand& a, const BlockOperand& b) { return binary("minimum", minimum, a, b); }
BlockArray maximum(const BlockOperand& a, const BlockOperand& b) { return binary("maximum", maximum, a, b); }
BlockArray pow(const BlockOperand& a, const BlockOperand& b) { return binary("pow", pow, a, b); }
BlockArray atan2(const BlockOperand& y, const BlockOperand& x) { return binary("atan2", atan2, y, x); }
BlockArray hypot(const BlockOperand& a, const BlockOperand& b) { return binary("hypot", hypot, a, b); }
BlockArray copysign(const BlockOperand& a, const BlockOperand& b) { return binary("copysign", copysign, a, b); }
BlockArray where(const BlockOperand& condition, const BlockOperand& if_true, const BlockOperand& if_false) {
  if (condition.scalar())
    fail<ArgumentError>({.operation = "where", .wrong = "the condition must be an array or a block array"});
  return operation("where", {&condition, &if_true, &if_false},
                   [](std::vector<ArrayOperand> o) { return where(o[0].take(), std::move(o[1]), std::move(o[2])); });
}
BlockArray clip(const BlockOperand& a, const BlockOperand& low, const BlockOperand& high) {
  return minimum(maximum(a, low), high);
}

BlockArray operator-(const BlockArray& a) { return unary("-", operator-, a); }
BlockArray operator!(const BlockArray& a) { return unary("!", operator!, a); }
BlockArray abs(const BlockArray& a) { return unary("abs", abs, a); }
BlockArray sqrt(const BlockArray& a) { return unary("sqrt", sqrt, a); }
BlockArray rsqrt(const BlockArray& a) { return unary("rsqrt", rsqrt, a); }
BlockArray exp(const BlockArray& a) { return unary("exp", exp, a); }
BlockArray exp2(const BlockArray& a) { return unary("exp2", exp2, a); }
BlockArray expm1(const BlockArray& a) { return unary("expm1", expm1, a); }
BlockArray log(const BlockArray& a) { return unary("log", log, a); }
BlockArray log2(const BlockArray& a) { return unary("log2", log2, a); }
BlockArray log1p(const BlockArray& a) { return unary("log1p", log1p, a); }
BlockArray log10(const BlockArray& a) { return unary("log10", log10, a); }
BlockArray sin(const BlockArray& a) { return unary("sin", sin, a); }
BlockArray cos(const BlockArray& a) { return unary("cos", cos, a); }
BlockArray tan(const BlockArray& a) { return unary("tan", tan, a); }
BlockArray asin(const BlockArray& a) { return unary("asin", asin, a); }
BlockArray acos(const BlockArray& a) { return unary("acos", acos, a); }
BlockArray atan(const BlockArray& a) { return unary("atan", atan, a); }
BlockArray sinh(const BlockArray& a) { return unary("sinh", sinh, a); }
BlockArray cosh(const BlockArray& a) { return unary("cosh", cosh, a); }
BlockArray tanh(const BlockArray& a) { return unary("tanh", tanh, a); }
BlockArray erf(const BlockArray& a) { return unary("erf", erf, a); }
BlockArray floor(const BlockArray& a) { return unary("floor", floor, a); }
BlockArray ceil(const BlockArray& a) { return unary("ceil", ceil, a); }
BlockArray trunc(const BlockArray& a) { return unary("trunc", trunc, a); }
BlockArray rint(const BlockArray& a) { return unary("rint", rint, a); }
BlockArray round(const BlockArray& a) { return unary("round", round, a); }
BlockArray sigmoid(const BlockArray& a) { return unary("sigmoid", sigmoid, a); }
BlockArray silu(const BlockArray& a) { return unary("silu", silu, a); }
BlockArray relu(const BlockArray& a) { return unary("relu", relu, a); }
BlockArray gelu(const BlockArray& a) { return unary("gelu", gelu, a); }
BlockArray sign(const BlockArray& a) { return unary("sign", sign, a); }
BlockArray isnan(const BlockArray& a) { return unary("isnan", isnan, a); }
BlockArray isinf(const BlockArray& a) { return unary("isinf", isinf, a); }
BlockArray isfinite(const BlockArray& a) { return unary("isfinite", isfinite, a); }

}  // namespace tessera
