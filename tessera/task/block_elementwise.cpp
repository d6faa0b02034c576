// SPDX-License-Identifier: Apache-2.0
// Elementwise operations of block arrays. They apply operations of array.h to each tile.
#include <algorithm>
#include <map>

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

  /// Returns the device of the part that belongs to tile `index` of the result.
  Device device(const Shape& index) const { return tile(index).device(); }
  ArrayOperand at(const Shape& index, Device device) {
    if (scalar_) return *scalar_;
    Array part = tile(index);
    if (element_count(blocks_.grid()) == 1)
      for (std::size_t d = 0; d < blocks_.shape().size(); ++d) {
        const std::int64_t begin = index[lead_ + d] * tile_[lead_ + d];
        const std::int64_t end = std::min(begin + tile_[lead_ + d], shape_[lead_ + d]);
        if (!stretched(d) && end - begin != part.shape()[d]) part = part.slice(static_cast<int>(d), begin, end);
      }
    if (part.device() == device) return part;
    std::vector<std::int64_t> key;
    for (std::size_t d = 0; d < blocks_.shape().size(); ++d) key.push_back(stretched(d) ? 0 : index[lead_ + d]);
    auto& there = moved_[{std::move(key), device}];
    if (!there) there = part.to(device);
    return *there;
  }

 private:
  bool stretched(std::size_t d) const { return blocks_.shape()[d] != shape_[lead_ + d]; }
  const Array& tile(const Shape& index) const {
    Shape mine(blocks_.shape().size(), 0);
    for (std::size_t d = 0; d < mine.size(); ++d)
      if (!stretched(d) && blocks_.grid()[d] != 1) mine[d] = index[lead_ + d];
    return BlockArrayAccess::tile(blocks_, mine);
  }

  std::optional<ArrayOperand> scalar_;
  Shape shape_, tile_;
  BlockArray blocks_;
  std::size_t lead_ = 0;  // number of leading dimensions that only the result has
  std::map<std::pair<std::vector<std::int64_t>, Device>, std::optional<Array>> moved_;
};

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
  for_each_index(result.grid(), [&](const Shape& index) {
    const Device device = parts[leader].device(index);
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
  Parts parts(value, a.shape(), a.tile_shape());
  for_each_index(a.grid(), [&](const Shape& index) {
    Array tile = BlockArrayAccess::tile(a, index);
    const DeviceScope there(tile.device());
    (tile.*f)(parts.at(index, tile.device()));
  });
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
