// SPDX-License-Identifier: Apache-2.0
// Arrays in tiles, over one device or several: the tiles of a regular grid (the last ones smaller), each an array of
// its own with its home on a device. Operations are loops over tiles in a region, or deferred expressions tile for
// tile.
//
//   Scope gpus = can_compute(Backend::cuda) ? cuda(all) : cpu();
//   BlockArray a = BlockArray::random_normal({512, 512}, {128, 128}, 1, gpus);
//   BlockArray c = matmul(a, transpose(a)) + 512 * BlockArray::identity(512, {128, 128}, DType::f32, gpus);
//   cholesky_into(c);
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tessera/task/region.h"

namespace tessera {

/// Which device a tile is on: tile (i, j, ...) of a grid.
using Distribution = std::function<Device(const Shape& index, const Shape& grid, const std::vector<Device>& devices)>;
/// Tile (i, j) on device (i mod p) q + j mod q, where p q is the number of devices and p the largest divisor of it at
/// most its root; in a grid of fewer than p rows or q columns, row by row in turn. The default.
Distribution block_cyclic();
/// As many neighbouring rows (columns) of tiles to each device.
Distribution by_rows();
Distribution by_columns();  ///< As many neighbouring columns of tiles to each device.

class BlockArray;
class BlockOperand;

/// A tile of a block array. An argument of tasks wherever an array is one: alone, which is read, and in in(t), out(t),
/// inout(t), commute(t), reduce(op, t), upper(t) and so on.
class Tile {
 public:
  const Shape& index() const { return index_; }  ///< in the grid
  /// The tile's extents.
  const Shape& shape() const { return array_.shape(); }
  /// The element type.
  DType dtype() const { return array_.dtype(); }
  Device device() const { return array_.device(); }  ///< its home
  /// The memory, shared with the block array.
  const Array& array() const { return array_; }
  /// The memory, shared with the block array.
  operator const Array&() const { return array_; }

 private:
  friend class BlockArray;
  Tile(Shape index, Array array) : index_(std::move(index)), array_(std::move(array)) {}
  Shape index_;
  Array array_;
};

namespace detail {
void declare_access(TaskNode& node, BlockArray& a, Access mode);
class StencilTile;
}  // namespace detail

/// Copies share their tiles, as copies of an Array share memory. Elementwise operations are those of arrays (array.h),
/// with their dtypes and broadcasting: deferred, and fused tile for tile. The result has the tiling and the devices of
/// the first block array among the operands that has its shape, else of the first one (and of the next in dimensions
/// that this does not have, or along which it is stretched); what is tiled otherwise or elsewhere is copied. Arrays may
/// be operands, too. Errors are thrown at the call: ShapeError, DtypeError, DeviceError.
class BlockArray {
 public:
  BlockArray() = default;  ///< of no elements: shape (0,)
  // Making: tiles of the given extents on the scope's devices. ShapeError if a tile has another rank than the array, or
  // an extent below 1.
  /// A block array whose elements are not initialised.
  static BlockArray empty(Shape shape, Shape tile, DType dtype = DType::f32, const Scope& scope = current_scope(),
                          const Distribution& distribution = {});
  /// A `value` that is none of the dtype becomes one as in Array::full; integers are exact. ArgumentError for an array.
  static BlockArray full(Shape shape, Shape tile, const ArrayOperand& value, DType dtype = DType::f32,
                         const Scope& scope = current_scope(), const Distribution& distribution = {});
  /// A block array of zeros.
  static BlockArray zeros(Shape shape, Shape tile, DType dtype = DType::f32, const Scope& scope = current_scope(),
                          const Distribution& distribution = {});
  /// A block array of ones.
  static BlockArray ones(Shape shape, Shape tile, DType dtype = DType::f32, const Scope& scope = current_scope(),
                         const Distribution& distribution = {});
  /// n x n.
  static BlockArray identity(std::int64_t n, Shape tile, DType dtype = DType::f32, const Scope& scope = current_scope(),
                             const Distribution& distribution = {});
  /// f32; numbers by seed and the element's place in the whole, so for every tiling and scope the same.
  static BlockArray random_uniform(Shape shape, Shape tile, std::uint64_t seed, const Scope& scope = current_scope(),
                                   const Distribution& distribution = {});
  /// Normally distributed numbers; otherwise as random_uniform.
  static BlockArray random_normal(Shape shape, Shape tile, std::uint64_t seed, const Scope& scope = current_scope(),
                                  const Distribution& distribution = {});
  /// The array's elements, copied.
  static BlockArray from(const Array& array, Shape tile, const Scope& scope = current_scope(),
                         const Distribution& distribution = {});

  // What it is.
  /// The extents.
  const Shape& shape() const { return shape_; }
  /// The extents of all tiles but the last ones.
  const Shape& tile_shape() const { return tile_; }
  const Shape& grid() const { return grid_; }  ///< tiles along each dimension
  /// The element type.
  DType dtype() const { return dtype_; }
  /// The number of dimensions.
  int rank() const { return static_cast<int>(shape_.size()); }
  /// The number of elements.
  std::int64_t size() const { return element_count(shape_); }
  /// ShapeError if there is no such tile.
  Tile tile(const Shape& index) const;
  Tile tile(std::int64_t i, std::int64_t j) const { return tile(Shape{i, j}); }
  std::vector<Tile> tiles() const;  ///< All tiles, in the order of the grid.
  /// The home of a tile of a matrix.
  Device device_of(std::int64_t i, std::int64_t j) const { return tile(i, j).device(); }
  Scope scope() const;        ///< the devices that have tiles
  std::string where() const;  ///< a table of which tile is where, for people

  // Elsewhere and otherwise: copies.
  Array gather(std::optional<Device> device = {}) const;  ///< as one array; by default on current_device()
  /// A copy in tiles of the same extents, over the devices of `scope`.
  BlockArray to(const Scope& scope, const Distribution& distribution = {}) const;
  BlockArray retile(Shape tile) const;   ///< A copy in tiles of other extents, on the same devices.
  BlockArray copy() const;               ///< A copy with memory of its own.
  BlockArray astype(DType dtype) const;  ///< deferred; the block array itself if it has the dtype
  BlockArray transpose() const;          ///< reverses the dimensions: copies tile for tile, where the tiles are
  /// Computes what is deferred, tile for tile.
  void eval() const;
  /// Elements from `begin` to before `end` along each dimension, in tiles of the same extents that begin with the
  /// slice.
  BlockArray slice(const Shape& begin, const Shape& end) const;
  /// Writes `value`, of the slice's shape, into it.
  void assign(const Shape& begin, const BlockArray& value);

  // In place, tile for tile. The other operand is stretched to this one's shape and converted to its dtype: ShapeError
  // and DtypeError as those of an Array.
  BlockArray& operator+=(const BlockOperand& b);  ///< Adds in place, tile by tile.
  BlockArray& operator-=(const BlockOperand& b);  ///< Subtracts in place, tile by tile.
  BlockArray& operator*=(const BlockOperand& b);  ///< Multiplies in place, tile by tile.
  BlockArray& operator/=(const BlockOperand& b);  ///< Divides in place, tile by tile.
  void fill(const ArrayOperand& value);           ///< as in full()
  /// f(tile's array) for each tile, as tasks where the tiles are.
  void for_each_tile(const std::function<void(Array&)>& f);

  // Elementwise, broadcasting, deferred: what array.h has by these names, of operands of which one is a block array.
  // Friends, so that the names alone, as in sequential(dense<4, 8>, relu), mean the functions of arrays.
  ///@{
  /// The elementwise function of arrays of the same name, tile by tile; deferred.
  friend BlockArray operator+(const BlockOperand& a, const BlockOperand& b);
  friend BlockArray operator-(const BlockOperand& a, const BlockOperand& b);
  friend BlockArray operator*(const BlockOperand& a, const BlockOperand& b);
  friend BlockArray operator/(const BlockOperand& a, const BlockOperand& b);
  friend BlockArray operator%(const BlockOperand& a, const BlockOperand& b);
  friend BlockArray operator&(const BlockOperand& a, const BlockOperand& b);
  friend BlockArray operator|(const BlockOperand& a, const BlockOperand& b);
  friend BlockArray operator^(const BlockOperand& a, const BlockOperand& b);
  friend BlockArray operator==(const BlockOperand& a, const BlockOperand& b);
  friend BlockArray operator!=(const BlockOperand& a, const BlockOperand& b);
  friend BlockArray operator<(const BlockOperand& a, const BlockOperand& b);
  friend BlockArray operator<=(const BlockOperand& a, const BlockOperand& b);
  friend BlockArray operator>(const BlockOperand& a, const BlockOperand& b);
  friend BlockArray operator>=(const BlockOperand& a, const BlockOperand& b);
  friend BlockArray minimum(const BlockOperand& a, const BlockOperand& b);
  friend BlockArray maximum(const BlockOperand& a, const BlockOperand& b);
  friend BlockArray pow(const BlockOperand& a, const BlockOperand& b);
  friend BlockArray atan2(const BlockOperand& y, const BlockOperand& x);
  friend BlockArray hypot(const BlockOperand& a, const BlockOperand& b);
  friend BlockArray copysign(const BlockOperand& a, const BlockOperand& b);
  friend BlockArray where(const BlockOperand& condition, const BlockOperand& if_true, const BlockOperand& if_false);
  friend BlockArray clip(const BlockOperand& a, const BlockOperand& low, const BlockOperand& high);
  friend BlockArray operator-(const BlockArray& a);
  friend BlockArray operator!(const BlockArray& a);
  friend BlockArray abs(const BlockArray& a);
  friend BlockArray sqrt(const BlockArray& a);
  friend BlockArray rsqrt(const BlockArray& a);
  friend BlockArray exp(const BlockArray& a);
  friend BlockArray exp2(const BlockArray& a);
  friend BlockArray expm1(const BlockArray& a);
  friend BlockArray log(const BlockArray& a);
  friend BlockArray log2(const BlockArray& a);
  friend BlockArray log1p(const BlockArray& a);
  friend BlockArray log10(const BlockArray& a);
  friend BlockArray sin(const BlockArray& a);
  friend BlockArray cos(const BlockArray& a);
  friend BlockArray tan(const BlockArray& a);
  friend BlockArray asin(const BlockArray& a);
  friend BlockArray acos(const BlockArray& a);
  friend BlockArray atan(const BlockArray& a);
  friend BlockArray sinh(const BlockArray& a);
  friend BlockArray cosh(const BlockArray& a);
  friend BlockArray tanh(const BlockArray& a);
  friend BlockArray erf(const BlockArray& a);
  friend BlockArray floor(const BlockArray& a);
  friend BlockArray ceil(const BlockArray& a);
  friend BlockArray trunc(const BlockArray& a);
  friend BlockArray rint(const BlockArray& a);
  friend BlockArray round(const BlockArray& a);
  friend BlockArray sigmoid(const BlockArray& a);
  friend BlockArray silu(const BlockArray& a);
  friend BlockArray relu(const BlockArray& a);
  friend BlockArray gelu(const BlockArray& a);
  friend BlockArray sign(const BlockArray& a);
  friend BlockArray isnan(const BlockArray& a);
  friend BlockArray isinf(const BlockArray& a);
  friend BlockArray isfinite(const BlockArray& a);
  ///@}

 private:
  static BlockArray layout(Shape shape, Shape tile, DType dtype);
  std::size_t number(const Shape& index) const;
  Shape index_of(std::size_t number) const;
  Shape extent_of(const Shape& index) const;
  Shape origin_of(const Shape& index) const;
  template <class F>
  static BlockArray made(Shape shape, Shape tile, DType dtype, const Scope& scope, const Distribution& distribution,
                         F&& tile_at);
  friend struct BlockArrayAccess;
  friend void detail::declare_access(detail::TaskNode& node, BlockArray& a, Access mode);

  Shape shape_{0}, tile_{1}, grid_{0};
  DType dtype_ = DType::f32;
  std::shared_ptr<std::vector<Array>> tiles_ = std::make_shared<std::vector<Array>>();
};

/// An operand of elementwise operations: a block array, an array, or a host scalar, with the dtype that it has among
/// arrays (ArrayOperand).
class BlockOperand {
 public:
  /// Refers to a block array.
  BlockOperand(const BlockArray& a) : blocks_(a) {}
  /// An array of one tile.
  BlockOperand(const Array& a);
  /// A scalar.
  template <class T>
    requires std::is_arithmetic_v<T>
  BlockOperand(T value) : scalar_(value) {}
  /// Of an array: one of a single tile. Nothing: it is a scalar.
  const std::optional<BlockArray>& blocks() const { return blocks_; }
  /// True if it was made of an Array.
  bool is_array() const { return array_; }
  /// The scalar; none if it is an array.
  const std::optional<ArrayOperand>& scalar() const { return scalar_; }

 private:
  std::optional<BlockArray> blocks_;
  std::optional<ArrayOperand> scalar_;
  bool array_ = false;
};

/// The array of f(tiles' arrays): what is deferred there stays deferred. ShapeError if a result has not its tile's
/// shape. Of two, tiles meet as in elementwise operations; one that is stretched is given to f as it is.
BlockArray map(const std::function<Array(const Array&)>& f, const BlockArray& a);
BlockArray map(const std::function<Array(const Array&, const Array&)>& f, const BlockArray& a, const BlockArray& b);

/// A block array as the argument of one task, with what the task does to it: to all of its tiles, which the function
/// gets where the task runs, as a BlockArray. A BlockArray that stands for itself as an argument is read.
struct AccessedBlocks {
  BlockArray array;          ///< The block array.
  Access mode = Access::in;  ///< What the task does with it.
};
/// The task reads the block array.
inline AccessedBlocks in(const BlockArray& a) { return {a, Access::in}; }
/// The task overwrites the block array.
inline AccessedBlocks out(const BlockArray& a) { return {a, Access::out}; }
/// The task reads and writes the block array.
inline AccessedBlocks inout(const BlockArray& a) { return {a, Access::inout}; }
/// As inout, but in any order with other tasks that commute, one at a time.
inline AccessedBlocks commute(const BlockArray& a) { return {a, Access::commute}; }
namespace detail {
template <class T>
concept TemporaryBlocks = std::same_as<std::remove_cvref_t<T>, BlockArray> && !is_named<T>;
}  // namespace detail
template <detail::TemporaryBlocks T>
AccessedBlocks out(T&& a) {
  static_assert(detail::is_named<T>,
                "out of a temporary block array: what the task writes would be lost. Name it first");
  return {a, Access::out};
}
template <detail::TemporaryBlocks T>
AccessedBlocks inout(T&& a) {
  static_assert(detail::is_named<T>,
                "inout of a temporary block array: what the task writes would be lost. Name it first");
  return {a, Access::inout};
}
template <detail::TemporaryBlocks T>
AccessedBlocks commute(T&& a) {
  static_assert(detail::is_named<T>,
                "commute of a temporary block array: what the task writes would be lost. Name it first");
  return {a, Access::commute};
}

/// Axes of a reduction: one, or a list of them, {} being all.
class Axes {
 public:
  /// One axis.
  Axes(int axis) : axes_{axis} {}
  /// Several axes.
  Axes(std::initializer_list<int> axes) : axes_(axes) {}
  /// Several axes.
  Axes(std::vector<int> axes) : axes_(std::move(axes)) {}
  /// The axes, as they were given.
  const std::vector<int>& list() const { return axes_; }

 private:
  std::vector<int> axes_;
};

// Reductions, with the dtypes of those of arrays; the mean of integers is f64 if all devices of the tiles (and
// current_device(), of all elements) have that. ShapeError for the greatest, least or mean of no elements.

/// Over all elements, on current_device(): an array of no dimensions. Tiles are added in the order of the grid.
Array sum(const BlockArray& a);   ///< The sum of all elements.
Array mean(const BlockArray& a);  ///< The mean of all elements.
Array max(const BlockArray& a);   ///< The largest element.
Array min(const BlockArray& a);   ///< The smallest element.
Array any(const BlockArray& a);   ///< True if any element is.
Array all(const BlockArray& a);   ///< True if all elements are.
/// Over one axis or several, which stay with extent 1, so that a - mean(a, 1) subtracts the mean of each row; without
/// `keep` they are dropped.
BlockArray sum(const BlockArray& a, const Axes& axes, bool keep = true);
BlockArray mean(const BlockArray& a, const Axes& axes, bool keep = true);  ///< The means; see sum().
BlockArray max(const BlockArray& a, const Axes& axes, bool keep = true);
BlockArray min(const BlockArray& a, const Axes& axes, bool keep = true);
BlockArray any(const BlockArray& a, const Axes& axes, bool keep = true);  ///< True where any element is; see sum().
BlockArray all(const BlockArray& a, const Axes& axes, bool keep = true);  ///< True where all elements are; see sum().

/// The array with its dimensions reversed; see BlockArray::transpose.
inline BlockArray transpose(const BlockArray& a) { return a.transpose(); }
/// (m, n) of (m, k) and (k, n), in a's tiles' rows and b's tiles' columns; b is copied to other tiles if a's columns
/// are tiled otherwise than its rows. By a task for each product of two tiles, on the device of the result's tile, or
/// on another GPU of its kind that has one of the array's tiles and is done earlier. On the CPU a right tile of
/// 384 x 384 elements to less than 1,024 x 1,024, if c has four rows of tiles or more, is packed once for all products
/// that read it, by a task of its own ("pack"), into memory of its size (f16 and bf16: twice that), which goes when the
/// last of them has run. Of a matrix (m, k) and a vector (k) the vector (m).
BlockArray matmul(const BlockArray& a, const BlockArray& b);
/// c = alpha a b + beta c in place.
void matmul_into(BlockArray& c, const BlockArray& a, const BlockArray& b, double alpha = 1, double beta = 1);
/// c = a b (c as out), or c = c + a b (c as inout), as tasks of the region: those of the product above, so that
/// other tasks of the region may use tiles that are done. ShapeError, at once: besides that of matmul_into, tilings
/// that do not meet. ArgumentError: c is said to be something else, or a or b is not read only.
void matmul(Region& region, const AccessedBlocks& c, const AccessedBlocks& a, const AccessedBlocks& b);
/// c = alpha a aᵀ + beta c on and below the diagonal of the square c, in place; above it c stays as it is. Half of the
/// work of the product.
void syrk_into(BlockArray& c, const BlockArray& a, double alpha = 1, double beta = 1);
/// The lower triangular l with a = l lᵀ; a is square in square tiles, and of it the lower triangle is read.
/// ArgumentError with the order of the first leading minor that is not positive definite. Right-looking, tile for tile
/// (Buttari et al., "A class of parallel tiled linear algebra algorithms for multicore architectures", 2009).
BlockArray cholesky(const BlockArray& a);
/// In place; above the diagonal zeros.
void cholesky_into(BlockArray& a);
/// x of t x = b, where t is lower triangular, or with `transposed` x of tᵀ x = b.
BlockArray solve_triangular(const BlockArray& t, const BlockArray& b, bool transposed = false);

/// Numbers and, above 1,000 of them, only the first and last of each dimension; with the tiling.
std::string to_string(const BlockArray& a);

/// What of a neighbour is beyond the edge.
enum class Edge : std::uint8_t { wrap, clamp, pad };
/// Options of stencil().
struct Halo {
  std::int64_t distance = 1;  ///< how far neighbours are at most
  Edge edge = Edge::clamp;    ///< What is beyond the edge.
  double value = 0;           ///< of `pad`
};
/// Neighbours of all elements of a tile: n(0, -1) are those to the left. ShapeError beyond the halo's distance.
class Neighbours {
 public:
  /// The tile, moved by this many rows and columns.
  Array operator()(std::int64_t rows, std::int64_t columns) const;

 private:
  friend class detail::StencilTile;
  Neighbours(Array padded, std::int64_t distance) : padded_(std::move(padded)), distance_(distance) {}
  Array padded_;
  std::int64_t distance_;
};
/// f(neighbours) of each tile of a matrix: `stencil(a, {.edge = Edge::wrap}, [](const Neighbours& n) { return n(-1, 0)
/// + n(1, 0) + n(0, -1) + n(0, 1) - 4 * n(0, 0); })`. One kernel a tile where f is elementwise. ShapeError if a tile is
/// smaller than the distance.
BlockArray stencil(const BlockArray& a, const Halo& halo, const std::function<Array(const Neighbours&)>& f);

namespace detail {

template <>
inline constexpr bool is_relocatable<AccessedBlocks> = true;
template <>
inline constexpr bool is_relocatable<BlockArray> = true;
template <>
inline constexpr bool is_relocatable<Tile> = true;
template <>
inline constexpr bool is_deferred<BlockArray> = true;
void place_data(TaskPlacer& placer, const AccessedBlocks& a);
/// Of tiles of its own from now on, which the task may have elsewhere.
void declare_access(TaskNode& node, BlockArray& a, Access mode);

template <>
struct StoredArgument<Tile> : StoredArgument<Array> {};
template <>
struct TaskArgument<Tile> : TaskArgument<Array> {};
template <>
struct TaskArgument<AccessedBlocks> {
  static void place(TaskPlacer& placer, std::size_t, const AccessedBlocks& a) { place_data(placer, a); }
  static void attach(TaskNode& node, AccessedBlocks& a) { declare_access(node, a.array, a.mode); }
  static std::tuple<BlockArray&> unwrap(AccessedBlocks& a) { return std::tuple<BlockArray&>(a.array); }
};
template <>
struct TaskArgument<BlockArray> {
  static void place(TaskPlacer& placer, std::size_t, const BlockArray& a) { place_data(placer, in(a)); }
  static void attach(TaskNode& node, BlockArray& a) { declare_access(node, a, Access::in); }
  static std::tuple<BlockArray&> unwrap(BlockArray& a) { return std::tuple<BlockArray&>(a); }
};

}  // namespace detail
}  // namespace tessera
