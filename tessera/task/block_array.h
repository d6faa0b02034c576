// SPDX-License-Identifier: Apache-2.0
// Block arrays: arrays that are split into a regular grid of tiles on one or several devices. The last tiles along an
// axis may be smaller. Each tile is an array with its own home device. Operations run as loops over tiles in a region,
// or as deferred expressions for each tile.
//
//   Scope gpus = can_compute(Backend::cuda) ? cuda(all) : cpu();
//   BlockArray a = BlockArray::random_normal({512, 512}, {128, 128}, 1, gpus);
//   BlockArray c = matmul(a, transpose(a)) + 512 * BlockArray::identity(512, {128, 128}, DType::f32, gpus);
//   cholesky_into(c);
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/base/callback.h"
#include "tessera/task/region.h"

namespace tessera {

/// A function that returns the device of tile `index`, one of `devices`. Over ranks, `devices` are numbered over all
/// ranks: with two ranks of two GPUs, cuda:2 is the first GPU of rank 1.
using Distribution = Callback<Device(const Shape& index, const Shape& grid, const std::vector<Device>& devices)>;
/// Places tile (i, j) on device (i mod p) q + j mod q. There are p q devices, and p is the largest divisor of this
/// number that is at most its square root. Grids with fewer than p rows or q columns are distributed in row-major
/// order. This is the default.
Distribution block_cyclic();
/// Assigns equal numbers of adjacent rows of tiles to the devices.
Distribution by_rows();
Distribution by_columns();  ///< Assigns equal numbers of adjacent columns of tiles to the devices.

class BlockArray;
class BlockOperand;

/// A tile of a block array. Tasks accept a tile as an argument like an array: the tile itself (read only), or in(t),
/// out(t), inout(t), commute(t), reduce(op, t), upper(t) and so on. Over ranks, a tile belongs to one rank.
class Tile {
 public:
  const Shape& index() const { return index_; }  ///< Position in the grid.
  /// The tile's extents.
  Shape shape() const { return here() ? local().shape() : ranked_.tiles->extent(ranked_.number); }
  /// The element type.
  DType dtype() const { return here() ? local().dtype() : ranked_.tiles->dtype(); }
  /// The tile's home device, on the rank that owns it.
  Device device() const { return here() ? local().device() : ranked_.tiles->device(ranked_.number); }
  /// The rank that owns the tile. 0 if the block array is not distributed over ranks.
  int owner() const { return ranked_ ? ranked_.tiles->owner(ranked_.number) : 0; }
  bool here() const { return ranked_.here(); }  ///< True if the tile belongs to this process.
  /// The tile's array, which shares memory with the block array. Throws ArgumentError if it belongs to another rank.
  const Array& array() const {
    ranked_.check_here("array of a tile");
    return local();
  }
  /// The tile's array, which shares memory with the block array. Throws ArgumentError if it belongs to another rank.
  operator const Array&() const { return array(); }

  // Used by the library.
  const detail::RankTile& ranked() const { return ranked_; }  ///< Its record over ranks.
  /// The tile's array; empty if the tile belongs to another rank.
  const Array& local() const { return (*tiles_)[ranked_.number]; }
  /// Declares an access.
  Accessed accessed(Access mode, MatrixPart part = MatrixPart::none, Combine op = Combine::sum) const {
    return {local(), mode, part, op, ranked_};
  }

 private:
  friend class BlockArray;
  Tile(Shape index, std::shared_ptr<const std::vector<Array>> tiles, detail::RankTile ranked)
      : index_(std::move(index)), tiles_(std::move(tiles)), ranked_(std::move(ranked)) {}
  Shape index_;
  std::shared_ptr<const std::vector<Array>> tiles_;
  detail::RankTile ranked_;
};

///@{
/// Declare how a task uses a tile; see the functions for arrays.
inline Accessed in(const Tile& t) { return t.accessed(Access::in); }
inline Accessed out(const Tile& t) { return t.accessed(Access::out); }
inline Accessed inout(const Tile& t) { return t.accessed(Access::inout); }
inline Accessed commute(const Tile& t) { return t.accessed(Access::commute); }
inline Accessed reduce(Combine op, const Tile& t) { return t.accessed(Access::reduce, MatrixPart::none, op); }
///@}

namespace detail {
/// A part of a tile.
inline PartOfMatrix part_of_tile(const Tile& t, MatrixPart part) {
  const Accessed a = t.accessed(Access::in);
  return {a.array, part, a.tile};
}
}  // namespace detail
///@{
/// Select a part of a tile; see the functions for arrays.
inline PartOfMatrix upper(const Tile& t) { return detail::part_of_tile(t, MatrixPart::upper); }
inline PartOfMatrix lower(const Tile& t) { return detail::part_of_tile(t, MatrixPart::lower); }
inline PartOfMatrix unit_upper(const Tile& t) { return detail::part_of_tile(t, MatrixPart::unit_upper); }
inline PartOfMatrix unit_lower(const Tile& t) { return detail::part_of_tile(t, MatrixPart::unit_lower); }
inline PartOfMatrix diagonal(const Tile& t) { return detail::part_of_tile(t, MatrixPart::diagonal); }
///@}

namespace detail {
void declare_access(TaskNode& node, BlockArray& a, Access mode);
class StencilTile;
}  // namespace detail

/// An array that is split into tiles. Copies share the tiles, just as copies of an Array share memory.
///
/// Elementwise operations follow the dtype and broadcasting rules of arrays (array.h). They are deferred and fused per
/// tile. The result has the tiling and devices of the first block array operand with the result's shape. If there is
/// none, the tiling is taken from the first operand; dimensions that it lacks or broadcasts are taken from the
/// following operands. Operands with a different tiling or on different devices are copied. Operands may also be
/// arrays. Throws ShapeError, DtypeError or DeviceError immediately.
///
/// With a scope that a dist::World has created, the tiles are distributed over ranks. All ranks then call the same
/// functions in the same order. Each computes its own tiles, and tiles of other ranks are sent when they are needed.
/// Results have the same bits as in one process. Write tiles of other ranks with tasks only.
class BlockArray {
 public:
  BlockArray() = default;  ///< Creates a block array without elements, of shape (0,).
  // Factories. They create tiles with the given extents on the devices of `scope`. They throw ShapeError if `tile` does
  // not have one extent for each dimension of the array, or if an extent is less than 1.
  /// Creates a block array without initialising its elements.
  static BlockArray empty(Shape shape, Shape tile, DType dtype = DType::f32, const Scope& scope = current_scope(),
                          const Distribution& distribution = {});
  /// Creates a block array with equal elements. `value` is converted to the dtype as in Array::full; integers are
  /// exact. Throws ArgumentError if `value` is an array.
  static BlockArray full(Shape shape, Shape tile, const ArrayOperand& value, DType dtype = DType::f32,
                         const Scope& scope = current_scope(), const Distribution& distribution = {});
  /// Creates a block array of zeros.
  static BlockArray zeros(Shape shape, Shape tile, DType dtype = DType::f32, const Scope& scope = current_scope(),
                          const Distribution& distribution = {});
  /// Creates a block array of ones.
  static BlockArray ones(Shape shape, Shape tile, DType dtype = DType::f32, const Scope& scope = current_scope(),
                         const Distribution& distribution = {});
  /// Creates the n x n identity matrix.
  static BlockArray identity(std::int64_t n, Shape tile, DType dtype = DType::f32, const Scope& scope = current_scope(),
                             const Distribution& distribution = {});
  /// Creates a block array of uniformly distributed f32 numbers in [0, 1). An element depends only on the seed and its
  /// index, not on the tiling or the scope.
  static BlockArray random_uniform(Shape shape, Shape tile, std::uint64_t seed, const Scope& scope = current_scope(),
                                   const Distribution& distribution = {});
  /// Like random_uniform, but with normally distributed numbers.
  static BlockArray random_normal(Shape shape, Shape tile, std::uint64_t seed, const Scope& scope = current_scope(),
                                  const Distribution& distribution = {});
  /// Creates a block array and copies the elements of `array`.
  static BlockArray from(const Array& array, Shape tile, const Scope& scope = current_scope(),
                         const Distribution& distribution = {});
  /// Creates a block array from a .npy file. Each tile is read alone, so the file may be larger than the memory of the
  /// host or of a rank. Throws the errors of NpyFile.
  static BlockArray load_npy(const std::string& path, Shape tile, const Scope& scope = current_scope(),
                             const Distribution& distribution = {});

  // Properties.
  /// The extents.
  const Shape& shape() const { return shape_; }
  /// The extents of all tiles, except for smaller last tiles along an axis.
  const Shape& tile_shape() const { return tile_; }
  const Shape& grid() const { return grid_; }  ///< Number of tiles along each dimension.
  /// The element type.
  DType dtype() const { return dtype_; }
  /// The number of dimensions.
  int rank() const { return static_cast<int>(shape_.size()); }
  /// The number of elements.
  std::int64_t size() const { return element_count(shape_); }
  /// Returns the tile at an index of the grid. Throws ShapeError if the index is outside the grid.
  Tile tile(const Shape& index) const;
  Tile tile(std::int64_t i, std::int64_t j) const { return tile(Shape{i, j}); }
  std::vector<Tile> tiles() const;  ///< Returns all tiles in row-major order.
  /// Returns the home device of tile (i, j) of a matrix.
  Device device_of(std::int64_t i, std::int64_t j) const { return tile(i, j).device(); }
  Scope scope() const;  ///< Returns the devices that have tiles.
  /// Over ranks: drops the copies of other ranks' tiles, on all ranks. They are sent again when they are needed.
  void release() const;
  std::string where() const;  ///< Returns a readable list of the tiles on each device.

  // Conversions and copies.
  Array gather(std::optional<Device> device = {}) const;  ///< Copies the elements to one array, by default on
                                                          ///< current_device(). Over ranks, to an array on each rank.
  /// Writes a .npy file, as save_npy of an array, but with one row of tiles in memory at a time. Over ranks, all ranks
  /// call it, rank 0 writes, and the file is complete when the function returns. If rank 0 cannot write it, all ranks
  /// throw ArgumentError.
  void save_npy(const std::string& path) const;
  /// Returns a copy with the same tile shape on the devices of `scope`.
  BlockArray to(const Scope& scope, const Distribution& distribution = {}) const;
  BlockArray retile(Shape tile) const;  ///< Returns a copy with a different tile shape on the same devices.
  BlockArray copy() const;              ///< Returns a copy that does not share memory.
  /// Returns a block array that is converted to another dtype when it is evaluated. Returns the block array itself if
  /// it already has the dtype.
  BlockArray astype(DType dtype) const;
  BlockArray transpose() const;  ///< Reverses the dimensions. Copies each tile on its device.
  /// Evaluates all deferred tiles.
  void eval() const;
  /// Returns the elements from `begin` to `end` along each dimension, excluding `end`. The result has the same tile
  /// shape, and its first tile starts at `begin`.
  BlockArray slice(const Shape& begin, const Shape& end) const;
  /// Writes `value` to the slice that starts at `begin` and has the shape of `value`.
  void assign(const Shape& begin, const BlockArray& value);

  // In-place operations on each tile. The operand is broadcast to this array's shape and converted to its dtype. They
  // throw ShapeError and DtypeError like the operators of Array.
  BlockArray& operator+=(const BlockOperand& b);  ///< Adds in place, tile by tile.
  BlockArray& operator-=(const BlockOperand& b);  ///< Subtracts in place, tile by tile.
  BlockArray& operator*=(const BlockOperand& b);  ///< Multiplies in place, tile by tile.
  BlockArray& operator/=(const BlockOperand& b);  ///< Divides in place, tile by tile.
  void fill(const ArrayOperand& value);           ///< Sets all elements to a value, which is converted as in full().
  /// Calls f(array) for each tile, in tasks on the devices of the tiles.
  void for_each_tile(const Callback<void(Array&)>& f);

  // The elementwise functions of array.h, deferred and broadcasting. At least one operand must be a block array. They
  // are friends so that an unqualified name, as in sequential(dense<4, 8>, relu), refers to the function of arrays.
  ///@{
  /// Applies the elementwise function of arrays with the same name to each tile; deferred.
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
  friend struct BlockArrayAccess;
  friend void detail::declare_access(detail::TaskNode& node, BlockArray& a, Access mode);

  Shape shape_{0}, tile_{1}, grid_{0};
  DType dtype_ = DType::f32;
  std::shared_ptr<std::vector<Array>> tiles_ = std::make_shared<std::vector<Array>>();
  std::shared_ptr<detail::RankTiles> ranks_;  ///< over ranks; tiles_ then has empty arrays for tiles of other ranks
};

/// An operand of elementwise operations: a block array, an array, or a host scalar. Scalars follow the dtype rules of
/// ArrayOperand.
class BlockOperand {
 public:
  /// Refers to a block array.
  BlockOperand(const BlockArray& a) : blocks_(a) {}
  /// Refers to an array. The array is used as a block array with one tile.
  BlockOperand(const Array& a);
  /// Stores a scalar.
  template <class T>
    requires std::is_arithmetic_v<T>
  BlockOperand(T value) : scalar_(value) {}
  /// The block array, or std::nullopt for a scalar. For an array, a block array with one tile.
  const std::optional<BlockArray>& blocks() const { return blocks_; }
  /// True if the operand was created from an Array.
  bool is_array() const { return array_; }
  /// The scalar, or std::nullopt for arrays.
  const std::optional<ArrayOperand>& scalar() const { return scalar_; }

 private:
  std::optional<BlockArray> blocks_;
  std::optional<ArrayOperand> scalar_;
  bool array_ = false;
};

/// Applies f to the array of each tile. If f returns a deferred array, it is not evaluated. With two operands, tiles
/// are paired as in elementwise operations; a broadcast operand is passed to f unexpanded. Throws ShapeError if a
/// result's shape differs from the tile's.
BlockArray map(const Callback<Array(const Array&)>& f, const BlockArray& a);
BlockArray map(const Callback<Array(const Array&, const Array&)>& f, const BlockArray& a, const BlockArray& b);

/// A block array as an argument of a task, with its access mode. The access covers all tiles. The function receives a
/// BlockArray with its tiles on the task's device. A BlockArray without an access mode is read only.
struct AccessedBlocks {
  BlockArray array;          ///< The block array.
  Access mode = Access::in;  ///< How the task uses the block array.
};
/// The task reads the block array.
inline AccessedBlocks in(const BlockArray& a) { return {a, Access::in}; }
/// The task overwrites the block array.
inline AccessedBlocks out(const BlockArray& a) { return {a, Access::out}; }
/// The task reads and writes the block array.
inline AccessedBlocks inout(const BlockArray& a) { return {a, Access::inout}; }
/// Like inout, but commuting tasks may run in any order, one at a time.
inline AccessedBlocks commute(const BlockArray& a) { return {a, Access::commute}; }
namespace detail {
template <class T>
concept TemporaryBlocks = std::same_as<std::remove_cvref_t<T>, BlockArray> && !is_named<T>;
}  // namespace detail
template <detail::TemporaryBlocks T>
AccessedBlocks out(T&& a) {
  static_assert(detail::is_named<T>,
                "out of a temporary block array: the task's result would be lost. Store it in a variable first");
  return {a, Access::out};
}
template <detail::TemporaryBlocks T>
AccessedBlocks inout(T&& a) {
  static_assert(detail::is_named<T>,
                "inout of a temporary block array: the task's result would be lost. Store it in a variable first");
  return {a, Access::inout};
}
template <detail::TemporaryBlocks T>
AccessedBlocks commute(T&& a) {
  static_assert(detail::is_named<T>,
                "commute of a temporary block array: the task's result would be lost. Store it in a variable first");
  return {a, Access::commute};
}

/// Axes of a reduction: one axis or a list of axes. An empty list means all axes.
class Axes {
 public:
  /// One axis.
  Axes(int axis) : axes_{axis} {}
  /// Several axes.
  Axes(std::initializer_list<int> axes) : axes_(axes) {}
  /// Several axes.
  Axes(std::vector<int> axes) : axes_(std::move(axes)) {}
  /// The axes as passed.
  const std::vector<int>& list() const { return axes_; }

 private:
  std::vector<int> axes_;
};

// Reductions. Their results have the same dtypes as reductions of arrays. The mean of integers is f64 if all devices of
// the tiles support it. For means over all elements, current_device() must support it as well. max, min and mean throw
// ShapeError if there are no elements.

/// Reductions over all elements return a scalar array on current_device(). Tiles are added in row-major order.
Array sum(const BlockArray& a);   ///< The sum of all elements.
Array mean(const BlockArray& a);  ///< The mean of all elements.
Array max(const BlockArray& a);   ///< The largest element.
Array min(const BlockArray& a);   ///< The smallest element.
Array any(const BlockArray& a);   ///< True if any element is nonzero.
Array all(const BlockArray& a);   ///< True if all elements are nonzero.
/// Returns the sums over one or several axes. Reduced axes have extent 1, so that a - mean(a, 1) subtracts the mean of
/// each row. If `keep` is false, they are removed.
BlockArray sum(const BlockArray& a, const Axes& axes, bool keep = true);
BlockArray mean(const BlockArray& a, const Axes& axes, bool keep = true);  ///< Returns the means; see sum().
BlockArray max(const BlockArray& a, const Axes& axes, bool keep = true);
BlockArray min(const BlockArray& a, const Axes& axes, bool keep = true);
BlockArray any(const BlockArray& a, const Axes& axes,
               bool keep = true);  ///< Returns true where any element is nonzero; see sum().
BlockArray all(const BlockArray& a, const Axes& axes,
               bool keep = true);  ///< Returns true where all elements are nonzero; see sum().

/// Reverses the dimensions; see BlockArray::transpose.
inline BlockArray transpose(const BlockArray& a) { return a.transpose(); }
/// Returns the matrix product a b: (m, n) for a (m, k) and b (k, n), or (m) for a vector b (k). The result has the row
/// tiling of a and the column tiling of b. If the column tiling of a differs from the row tiling of b, b is copied to a
/// matching tiling.
///
/// Each product of two tiles is a task. It runs on the device of the result's tile, or on another GPU of the same
/// backend that has tiles of the array and would finish earlier.
///
/// On the CPU, if c has at least four rows of tiles, each tile of b is packed once by a task named "pack", and all
/// products that read the tile share the packed copy. This applies to tiles from 384 x 384 to less than 1,024 x 1,024
/// elements. The packed copy needs as much memory as the tile, or twice as much for f16 and bf16. It is freed after its
/// last use.
BlockArray matmul(const BlockArray& a, const BlockArray& b);
/// Computes c = alpha a b + beta c in place.
void matmul_into(BlockArray& c, const BlockArray& a, const BlockArray& b, double alpha = 1, double beta = 1);
/// Adds the tasks of a product to a region, so that other tasks of the region can use tiles as soon as they are
/// finished. Computes c = a b if c is passed as out, and c = c + a b if it is passed as inout. Throws ShapeError
/// immediately if the shapes or the tilings do not match. Throws ArgumentError if c is not passed as out or inout, or
/// if a or b is not passed as in.
void matmul(Region& region, const AccessedBlocks& c, const AccessedBlocks& a, const AccessedBlocks& b);
/// Computes c = alpha a aᵀ + beta c in place, for a square matrix c. Only elements on and below the diagonal are
/// computed, which is half the work of the product. Elements above the diagonal are not changed.
void syrk_into(BlockArray& c, const BlockArray& a, double alpha = 1, double beta = 1);
/// Cholesky factorisation: returns the lower triangular matrix l with a = l lᵀ. `a` must be square with square tiles,
/// and only its lower triangle is read. Throws ArgumentError with the order of the first leading minor that is not
/// positive definite. Uses the right-looking tiled algorithm (Buttari et al., "A class of parallel tiled linear algebra
/// algorithms for multicore architectures", 2009).
BlockArray cholesky(const BlockArray& a);
/// Like cholesky(), but in place. Writes zeros above the diagonal.
void cholesky_into(BlockArray& a);
/// Solves t x = b for lower triangular t. Solves tᵀ x = b if `transposed` is true.
BlockArray solve_triangular(const BlockArray& t, const BlockArray& b, bool transposed = false);

/// Formats the elements and the tiling. For more than 1,000 elements, only the first and last ones along each dimension
/// are shown.
std::string to_string(const BlockArray& a);

/// The values of neighbours beyond the edge of the array, for stencil().
enum class Edge : std::uint8_t { wrap, clamp, pad };
/// Options of stencil().
struct Halo {
  std::int64_t distance = 1;  ///< Maximum distance of neighbours.
  Edge edge = Edge::clamp;    ///< How neighbours beyond the edge are defined.
  double value = 0;           ///< value used by Edge::pad
};
/// The neighbours of all elements of a tile: n(0, -1) are the left neighbours. Throws ShapeError if the distance
/// exceeds Halo::distance.
class Neighbours {
 public:
  /// Returns the tile shifted by this many rows and columns.
  Array operator()(std::int64_t rows, std::int64_t columns) const;

 private:
  friend class detail::StencilTile;
  Neighbours(Array padded, std::int64_t distance) : padded_(std::move(padded)), distance_(distance) {}
  Array padded_;
  std::int64_t distance_;
};
/// Applies f to the neighbours of each tile of a matrix: `stencil(a, {.edge = Edge::wrap}, [](const Neighbours& n) {
/// return n(-1, 0) + n(1, 0) + n(0, -1) + n(0, 1) - 4 * n(0, 0); })`. If f is elementwise, one kernel per tile is
/// launched. Throws ShapeError if a tile is smaller than the distance.
BlockArray stencil(const BlockArray& a, const Halo& halo, const Callback<Array(const Neighbours&)>& f);

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
/// Copies the tile list of `a`, because the task's tiles may be on another device.
void declare_access(TaskNode& node, BlockArray& a, Access mode);

template <>
struct StoredArgument<Tile> : StoredArgument<Array> {};
template <>
struct TaskArgument<Tile> : TaskArgument<Array> {};
template <>
struct RankArgument<Tile> : RankArgument<Accessed> {
  static const std::shared_ptr<RankMessages>* messages(const Tile& t) {
    return t.ranked().tiles ? &t.ranked().tiles->shared_messages() : nullptr;
  }
  static void plan(RankPlan& plan, const Tile& t, Access mode) { plan.use(t.ranked(), mode, true, t.local()); }
  static Accessed local(RankPlan& plan, const Tile& t, Access mode) {
    return RankArgument<Accessed>::local(plan, t.accessed(mode), mode);
  }
};
template <>
struct TaskArgument<AccessedBlocks> {
  static void place(TaskPlacer& placer, std::size_t, const AccessedBlocks& a) { place_data(placer, a); }
  static void attach(TaskNode& node, AccessedBlocks& a) { declare_access(node, a.array, a.mode); }
  static std::tuple<BlockArray&> unwrap(AccessedBlocks& a) { return std::tuple<BlockArray&>(a.array); }
};
template <>
struct RankArgument<AccessedBlocks> {
  static const std::shared_ptr<RankMessages>* messages(const AccessedBlocks& a);
  static void plan(RankPlan& plan, const AccessedBlocks& a, Access mode);
  static AccessedBlocks local(RankPlan& plan, const AccessedBlocks& a, Access mode);
};
template <>
struct RankArgument<BlockArray> : RankArgument<AccessedBlocks> {
  static const std::shared_ptr<RankMessages>* messages(const BlockArray& a) {
    return RankArgument<AccessedBlocks>::messages(in(a));
  }
  static void plan(RankPlan& plan, const BlockArray& a, Access mode) {
    RankArgument<AccessedBlocks>::plan(plan, in(a), mode);
  }
  static AccessedBlocks local(RankPlan& plan, const BlockArray& a, Access mode) {
    return RankArgument<AccessedBlocks>::local(plan, in(a), mode);
  }
};
template <>
struct TaskArgument<BlockArray> {
  static void place(TaskPlacer& placer, std::size_t, const BlockArray& a) { place_data(placer, in(a)); }
  static void attach(TaskNode& node, BlockArray& a) { declare_access(node, a, Access::in); }
  static std::tuple<BlockArray&> unwrap(BlockArray& a) { return std::tuple<BlockArray&>(a); }
};

}  // namespace detail
}  // namespace tessera
