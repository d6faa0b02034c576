// SPDX-License-Identifier: Apache-2.0
// Internal to ops/. Maps small specifications to traced kernels, and a device to suitable tile sizes. The operations
// launch these kernels; the catalogue lists them.
#pragma once

#include <algorithm>
#include <bit>
#include <functional>
#include <initializer_list>

#include "tessera/array/operation.h"
#include "tessera/device/launch/kernel.h"
#include "tessera/ir/value.h"
#include "tessera/ops/product.h"
#include "tessera/ops/transformer.h"
#include "tessera/ops/weight_formats.h"

namespace tessera::ops {

/// The properties of a device that determine the shape of kernels, computed by tiles_of. Kernels do not query the
/// device themselves.
struct Tiles {
  std::uint32_t rows = 16;   ///< rows of a weight that are interleaved, one thread each
  std::uint32_t tokens = 4;  ///< tokens of one thread in a product with a weight, at most
  std::uint32_t slices = 1;  ///< parts of a weight's columns, summed over a block
  std::uint32_t block = 64;  ///< threads that share the work on one row
  bool vectors = false;      ///< threads are vector lanes of a CPU core: few threads, many results each
  bool f16 = false;          ///< the device converts 16-bit floats
  bool matrix_f16 = false, matrix_bf16 = false;  ///< has matrix units for these dtypes
  std::uint32_t subgroup = 1;                    ///< threads of a subgroup
  std::uint32_t block_limit = 1024;              ///< maximum number of threads of a block, a power of two
  std::uint32_t compute_units = 0;               ///< minimum number of blocks that run concurrently; 0: unknown
  std::uint64_t shared_bytes = 32768;            ///< of a block
};
Tiles tiles_of(Device device);
/// Threads of a block that form one vector of this dtype (or of its sums); for devices with Tiles::vectors.
std::uint32_t vector_lanes(const Tiles& tiles, DType dtype);

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

inline std::size_t hash_of(std::initializer_list<std::uint64_t> values) {
  std::uint64_t h = 0;
  for (std::uint64_t v : values) h = (h ^ v) * 0x9E3779B97F4A7C15ull, h ^= h >> 29;
  return static_cast<std::size_t>(h);
}

/// Distributes a row over the threads of a block: calls `body(index, exists)` for index = lane, lane + lanes, ...
/// `exists` is invalid for full steps, which need no mask. The loop counter is uniform.
void for_lanes(ir::Value count, std::uint32_t lanes, ir::Value lane,
               const std::function<void(ir::Value, ir::Value)>& body);
/// Loads `memory[index]` in the compute dtype, or 0 where the mask is valid and false.
ir::Value load_at(const ir::BufferRef& memory, ir::Value index, ir::Value exists);
/// A kernel parameter for the position of tokens: a number, or the first element of a buffer.
class PositionParameter {
 public:
  PositionParameter() = default;
  PositionParameter(const char* name, bool in_memory);
  ir::Value get() const;

 private:
  ir::BufferRef memory_;
  ir::Value number_;
};
LaunchArgument argument(const Position& position);
ir::Value activate(Activation activation, ir::Value x);

// weight_kernels.cpp

/// Words of one block of 32 activations: the bits of the scale, the initial value of a product's sum for the weight's
/// offset (see QuantiseSpec), that of the last 16, the bits of scale times sum, then 8 words of 4 integers each.
inline constexpr std::uint32_t activation_words = 12, activation_heading = 4;

/// A packed weight: `group` rows are interleaved, so that the values of a group's rows are adjacent.
///   f32, f16, bf16: [group][column][row]
///   quantised: words, u32 [group][column / 32][word][row], as in UnpackedBlock; then scales and minimums,
///   [group][column / columns of a block][scale, minimum][row]; then, if parts have factors, these, u16 [group][column
///   / 32][row]
struct WeightSpec {
  WeightFormat format = WeightFormat::f32;
  std::uint32_t group = 16;
  DType scale = DType::f16;
  friend bool operator==(const WeightSpec&, const WeightSpec&) = default;
};
struct LinearSpec {
  WeightSpec weight;
  std::uint32_t tokens = 1, slices = 1;
  friend bool operator==(const LinearSpec&, const LinearSpec&) = default;
  std::size_t hash() const {
    return hash_of({static_cast<std::uint64_t>(weight.format), weight.group, static_cast<std::uint64_t>(weight.scale),
                    tokens, slices});
  }
};
/// A product with many tokens on CPU vectors. A block unpacks `depth` steps (parts of 32 columns, or columns) of up to
/// `groups` groups of rows at a time and multiplies them by up to `tiles` tiles of `tokens`.
struct LinearPanelSpec {
  WeightSpec weight;
  std::uint32_t tokens = 8, tiles = 16, groups = 4, depth = 8;
  std::uint32_t together = 1;  ///< groups whose sums are in registers at a time
  friend bool operator==(const LinearPanelSpec&, const LinearPanelSpec&) = default;
  std::size_t hash() const {
    return hash_of({static_cast<std::uint64_t>(weight.format), weight.group, static_cast<std::uint64_t>(weight.scale),
                    tokens, tiles, groups, depth, together});
  }
};
/// Quantises activations, in tiles of `tokens`. The words of the same columns are adjacent, [tile][column /
/// 32][token][word], so that the offsets of a product's loads are constants. The last tile is padded with copies of the
/// last token.
struct QuantiseSpec {
  std::uint32_t tokens = 1;
  std::int32_t offset = 0;  ///< sums of integers are multiplied by -offset
  bool halves = false;      ///< one sum for each 16 columns; else one sum for all 32, and 0
  std::uint32_t lanes = 0;  ///< threads that share a block of 32 as one vector; 0: one thread per block
  friend bool operator==(const QuantiseSpec&, const QuantiseSpec&) = default;
  std::size_t hash() const { return hash_of({tokens, static_cast<std::uint64_t>(offset), halves, lanes}); }
};
struct GatherSpec {
  WeightSpec weight;
  DType ids = DType::index;  ///< index: gather every row, without ids
  friend bool operator==(const GatherSpec&, const GatherSpec&) = default;
  std::size_t hash() const {
    return hash_of({static_cast<std::uint64_t>(weight.format), weight.group, static_cast<std::uint64_t>(weight.scale),
                    static_cast<std::uint64_t>(ids)});
  }
};
ir::Function trace_linear(const LinearSpec& spec);
ir::Function trace_linear_panel(const LinearPanelSpec& spec);
/// Returns nothing if unpacking the weight again for each tile of tokens is cheaper.
std::optional<LinearPanelSpec> choose_linear_panel(const Tiles& tiles, const WeightSpec& weight, std::int64_t tokens);
/// Tokens per thread in a product with `tokens` tokens: a power of two.
std::uint32_t linear_tokens(const Tiles& tiles, WeightFormat format, std::int64_t tokens);
ir::Function trace_quantise(const QuantiseSpec& spec);
/// The value of QuantiseSpec::lanes for this device.
std::uint32_t quantise_lanes(const Tiles& tiles);
/// f32 numbers [tile][column][token] for weights that are not quantised, in tiles of `tokens`, at least 2.
ir::Function trace_tile_activations(const std::uint32_t& tokens);
ir::Function trace_gather(const GatherSpec& spec);

// product_kernels.cpp

struct ProductSpec {
  DType a = DType::f32, b = DType::f32, sum = DType::f32, out = DType::f32;
  bool packed = false;            ///< computed by the kernel that choose_packed selects, not by trace_product
  std::uint32_t tx = 16, ty = 1;  ///< threads of a block; tx 0: `ty` threads along k, a block for tm x tn results
  std::uint32_t tm = 1, tn = 1;   ///< results of a thread
  std::uint32_t bk = 0;           ///< columns of a that a block stages in shared memory at a time
  std::uint32_t pad = 0;          ///< elements added to each staged row to avoid bank conflicts along columns
  bool stage_a = false, stage_b = false;
  bool a_unit_k = false, a_unit_m = false, b_unit_n = false, b_unit_k = false;  ///< strides known to be 1
  bool bias = false;
  Activation activation = Activation::none;
  /// The kernel updates a strided matrix: beta times its elements plus alpha times the sums. Packed kernels only:
  /// c_unit, contiguous columns; lower, elements above the diagonal are not written.
  bool update = false, c_unit = false, lower = false;
  bool b_packed = false;  ///< for updates: the right factor was packed by pack_rhs
  /// A product of convolution (correlation.h); the right factor are the windows of images, read in place.
  /// images_of_windows: the left factor is the weight, the result images. weights_of_windows: the left factor is
  /// images, the result a weight.
  enum Windows : std::uint8_t { no_windows, images_of_windows, weights_of_windows } windows = no_windows;
  bool flipped = false;                              ///< the weight's taps are in reverse order
  std::uint8_t kernel_rows = 0, kernel_columns = 0;  ///< extents of a window; 0: known only at launch
  /// Not 0: computed by matrix fragments. The block's tile consists of workers_m x workers_n parts of tm x tn
  /// fragments, one part per subgroup; `tx` is the number of threads. 0: each thread computes its own sums.
  std::uint32_t workers_m = 0, workers_n = 0;

  bool by_fragments() const { return workers_m != 0; }
  std::uint32_t block_m() const { return by_fragments() ? workers_m * tm * 16 : tx == 0 ? tm : ty * tm; }
  std::uint32_t block_n() const { return by_fragments() ? workers_n * tn * 16 : tx == 0 ? tn : tx * tn; }
  friend bool operator==(const ProductSpec&, const ProductSpec&) = default;
  std::size_t hash() const {
    auto d = [](DType t) { return static_cast<std::uint64_t>(t); };
    return hash_of({d(a) | d(b) << 8 | d(sum) << 16 | d(out) << 24,
                    tx | std::uint64_t{ty} << 16 | std::uint64_t{tm} << 32 | std::uint64_t{tn} << 48,
                    bk | std::uint64_t{pad} << 12 | std::uint64_t{stage_a} << 16 | std::uint64_t{stage_b} << 17 |
                        std::uint64_t{a_unit_k} << 18 | std::uint64_t{a_unit_m} << 19 | std::uint64_t{b_unit_n} << 20 |
                        std::uint64_t{b_unit_k} << 21 | std::uint64_t{bias} << 22 |
                        static_cast<std::uint64_t>(activation) << 24 | std::uint64_t{workers_m} << 32 |
                        std::uint64_t{workers_n} << 40 | std::uint64_t{update} << 48 | std::uint64_t{lower} << 49 |
                        std::uint64_t{c_unit} << 50 | std::uint64_t{b_packed} << 51,
                    windows | std::uint64_t{flipped} << 8 | std::uint64_t{kernel_rows} << 16 |
                        std::uint64_t{kernel_columns} << 24});
  }
};
ir::Function trace_product(const ProductSpec& spec);
/// Chooses tiles for a product of these extents; dtypes, strides and epilogue are taken from `spec`.
ProductSpec choose_product(const Tiles& tiles, ProductSpec spec, std::int64_t m, std::int64_t n, std::int64_t k,
                           std::int64_t batch = 1);
/// Elements between staged rows in kernels by fragments: rows begin at multiples of 16 bytes, which NVIDIA's units load
/// at once, and eight rows are in different banks.
constexpr std::uint32_t fragment_pitch(std::uint32_t elements) { return (elements + 7) / 8 * 8 + 8; }
std::uint64_t fragment_shared_bytes(const ProductSpec& spec);

// packed_kernels.cpp

/// A factor of a packed product, converted to the sums' dtype and reordered: panels of `width` rows of the left factor,
/// or columns of the right one. Within a panel the steps along k are contiguous, and `depth` steps of all panels are
/// stored together: [batch][k / depth][panel][depth][width], 0 past the factor's end. (If each panel were contiguous
/// over all of k, panels of long k would begin in the same few cache sets.)
struct PackSpec {
  DType from = DType::f32, to = DType::f32;
  std::uint32_t width = 4, lanes = 4;  ///< columns of a panel; threads, which take `lanes` of them
  bool unit_outer = false, unit_k = false;
  /// Panels that one block packs: when rows of memory are read in order, at least 64 elements at a time.
  std::uint32_t together() const { return unit_outer ? std::max(1u, 64 / width) : 1; }
  friend bool operator==(const PackSpec&, const PackSpec&) = default;
  std::size_t hash() const {
    return hash_of({static_cast<std::uint64_t>(from), static_cast<std::uint64_t>(to), width, lanes,
                    std::uint64_t{unit_outer} | std::uint64_t{unit_k} << 1});
  }
};
ir::Function trace_pack(const PackSpec& spec);

/// A product in tiles of `tm` rows by `tn` vectors of `lanes` columns. Either factor may be packed: the left one in
/// panels of a tile's rows, the right one of its columns. A right factor that is not packed must have whole panels of
/// contiguous columns.
struct PackedSpec {
  DType a = DType::f32, b = DType::f32, sum = DType::f32, out = DType::f32;  ///< packed factors have the sum's dtype
  std::uint32_t tm = 4, tn = 3, lanes = 8;
  bool a_packed = false, b_packed = false, a_unit_m = false, a_unit_k = false;
  bool batched = false;        ///< more than one matrix
  bool whole = false;          ///< one block computes each matrix, over all of k at once
  bool exact = false;          ///< only if `whole`: tiles end where the matrix does
  bool columns_first = false;  ///< blocks of the same rows are consecutive, instead of those of the same columns
  std::uint32_t sums_bytes = 48 << 10;  ///< shared memory for sums of tiles while a block advances along k
  bool bias = false;
  Activation activation = Activation::none;
  /// The kernel updates a strided matrix: beta times its elements plus alpha times the sums. `c_unit`: its columns are
  /// contiguous; `lower`: elements above the diagonal are not written.
  bool update = false, lower = false, c_unit = false;
  /// For updates: elements of shared memory in which a block packs each panel of the right factor itself, from columns
  /// that are contiguous along k if `b_unit_k`. 0: the factor is read in place.
  std::uint32_t staged = 0;
  bool b_unit_k = false, b_unit_n = false;
  friend bool operator==(const PackedSpec&, const PackedSpec&) = default;
  std::size_t hash() const {
    auto d = [](DType t) { return static_cast<std::uint64_t>(t); };
    return hash_of(
        {d(a) | d(b) << 8 | d(sum) << 16 | d(out) << 24, tm | std::uint64_t{tn} << 16 | std::uint64_t{lanes} << 32,
         std::uint64_t{a_packed} | std::uint64_t{b_packed} << 1 | std::uint64_t{a_unit_m} << 2 |
             std::uint64_t{a_unit_k} << 3 | std::uint64_t{bias} << 4 | std::uint64_t{batched} << 5 |
             std::uint64_t{whole} << 6 | std::uint64_t{exact} << 7 | static_cast<std::uint64_t>(activation) << 8 |
             std::uint64_t{update} << 16 | std::uint64_t{lower} << 17 | std::uint64_t{c_unit} << 18 |
             std::uint64_t{b_unit_k} << 19 | std::uint64_t{b_unit_n} << 20 | std::uint64_t{columns_first} << 21 |
             std::uint64_t{sums_bytes} << 32,
         staged});
  }
};
ir::Function trace_packed_product(const PackedSpec& spec);
/// Number of tiles whose sums fit in `sums_bytes`, at least one.
constexpr std::uint64_t packed_tiles(const PackedSpec& s) {
  return std::max<std::uint64_t>(1, s.sums_bytes / (std::uint64_t{s.tm} * s.tn * s.lanes * dtype_size(s.sum)));
}
/// How a product is computed: the panels of a block, and the steps along k that are applied to all of them at a time.
struct PackedPlan {
  PackedSpec spec;
  PackSpec pack_a, pack_b;  ///< used if `spec` has the factor packed
  std::int64_t block_rows = 1, block_columns = 1, depth = 1;
};
/// Returns beta * old + alpha * sum, in the sums' dtype. If beta is 0, `old` is ignored, even if it is NaN.
ir::Value updated(ir::Value old, ir::Value sum, ir::Value alpha, ir::Value beta);
/// For devices with `Tiles::vectors`; dtypes, strides and epilogue are taken from `spec`.
PackedPlan choose_packed(const Tiles& tiles, const ProductSpec& spec, std::int64_t m, std::int64_t n, std::int64_t k,
                         std::int64_t batch);

// product.cpp

/// Packs the factor in panels of `spec.width` rows or columns, `count` of them in each distinct matrix, in the layout
/// of PackSpec. `strides` are those of rows or columns and of k; `extents` and `batch_strides` describe two batch
/// dimensions.
Array pack_factor(const BufferView& factor, const PackSpec& spec, std::int64_t count, std::int64_t k,
                  std::int64_t depth, std::array<std::int64_t, 2> strides, std::array<std::int64_t, 2> extents = {1, 1},
                  std::array<std::int64_t, 2> batch_strides = {0, 0});

// triangular_kernels.cpp

/// Solves a triangular system t x = b of n <= `size` equations by forward substitution, in place in b. Each thread
/// computes `tn` right-hand sides, a block `lanes` threads; `tm` equations are processed at a time.
struct SolveSpec {
  DType dtype = DType::f32;
  std::uint32_t lanes = 16, tm = 8, tn = 2, size = 256;
  bool b_unit = false;  ///< right-hand sides are contiguous
  friend bool operator==(const SolveSpec&, const SolveSpec&) = default;
  std::size_t hash() const {
    return hash_of({static_cast<std::uint64_t>(dtype), lanes | std::uint64_t{tm} << 16 | std::uint64_t{tn} << 32,
                    size | std::uint64_t{b_unit} << 32});
  }
};
ir::Function trace_solve(const SolveSpec& spec);
SolveSpec choose_solve(const Tiles& tiles, DType dtype, bool b_unit);

/// Cholesky factorisation of a matrix of at most `size` rows by one block of `lanes` threads, which keeps the upper
/// triangle in shared memory: `tm` rows at a time, `tn` columns a thread.
struct CholeskySpec {
  DType dtype = DType::f32;
  std::uint32_t lanes = 16, tm = 8, tn = 2, size = 128;
  friend bool operator==(const CholeskySpec&, const CholeskySpec&) = default;
  std::size_t hash() const {
    return hash_of(
        {static_cast<std::uint64_t>(dtype), lanes | std::uint64_t{tm} << 16 | std::uint64_t{tn} << 32, size});
  }
};
ir::Function trace_cholesky(const CholeskySpec& spec);
CholeskySpec choose_cholesky(const Tiles& tiles, DType dtype);

// product.cpp

/// The kernel that was chosen for a product.
struct ProductChoice {
  Device device;
  ProductSpec asked, spec;
  std::array<std::int64_t, 4> sizes{-1};  ///< rows, columns, k, number of matrices
  PackedPlan plan;                        ///< only if `spec.packed`
  const Kernel* kernel = nullptr;         ///< owned by its kernel family
};
/// Caches the last choices of this thread: choosing takes about as long as a small product.
const ProductChoice& choose_product_kernel(Device device, const ProductSpec& asked, std::array<std::int64_t, 4> sizes);

// row_kernels.cpp

struct RowSpec {
  DType x = DType::f32, weight = DType::f32;
  std::uint32_t threads = 64;  ///< threads per row; 0: one thread per row, adjacent threads have adjacent rows
  friend bool operator==(const RowSpec&, const RowSpec&) = default;
  std::size_t hash() const {
    return hash_of({static_cast<std::uint64_t>(x), static_cast<std::uint64_t>(weight), threads});
  }
};
ir::Function trace_rms_norm(const RowSpec& spec);
ir::Function trace_softmax(const RowSpec& spec);

// rotary.cpp

struct RotarySpec {
  DType x = DType::f32;
  RotaryPairs pairs = RotaryPairs::adjacent;
  bool rest = false, factors = false;
  bool in_memory = false;  ///< the position is an i32 in memory, also in StoreSpec and AttentionSpec
  bool magnitude = false;
  friend bool operator==(const RotarySpec&, const RotarySpec&) = default;
  std::size_t hash() const {
    return hash_of(
        {static_cast<std::uint64_t>(x), static_cast<std::uint64_t>(pairs), rest, factors, in_memory, magnitude});
  }
};
ir::Function trace_rotary(const RotarySpec& spec);
struct StoreSpec {
  DType rows = DType::f32, cache = DType::f32;
  bool in_memory = false;
  friend bool operator==(const StoreSpec&, const StoreSpec&) = default;
  std::size_t hash() const {
    return hash_of({static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(cache), in_memory});
  }
};
ir::Function trace_cache_store(const StoreSpec& spec);

// attention_kernels.cpp

struct AttentionSpec {
  enum Form : std::uint8_t {
    vectors,    ///< a block per query, threads along the head: for CPU vector lanes
    positions,  ///< a block per query, a thread per position: for GPUs
    tokens      ///< a thread per query; keys are read once for the whole block
  } form = vectors;
  DType cache = DType::f32;
  std::uint32_t head_size = 64, threads = 16;
  bool in_memory = false;
  bool window = false, cap = false;
  bool converted = false;  ///< only for tokens: keys and values are converted to f32 in shared memory first
  friend bool operator==(const AttentionSpec&, const AttentionSpec&) = default;
  std::size_t hash() const {
    return hash_of({form, static_cast<std::uint64_t>(cache), head_size, threads, in_memory, window, cap, converted});
  }
};
ir::Function trace_attention(const AttentionSpec& spec);
AttentionSpec choose_attention(const Tiles& tiles, DType cache, std::int64_t head_size, std::int64_t queries);

}  // namespace tessera::ops
