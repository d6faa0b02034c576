// SPDX-License-Identifier: Apache-2.0
// The kernels of ops/ as functions from small specifications to traces, and the tiles that suit a device.
// Inside ops/ only: the operations launch them, the catalogue lists them.
#pragma once

#include <bit>
#include <initializer_list>

#include "tessera/array/operation.h"
#include "tessera/device/launch/kernel.h"
#include "tessera/ir/value.h"
#include "tessera/ops/product.h"
#include "tessera/ops/transformer.h"
#include "tessera/ops/weight_formats.h"

namespace tessera::ops {

/// What a device's figures mean for the shape of kernels: `tiles_of` has the rules, and no kernel asks the device
/// itself.
struct Tiles {
  std::uint32_t rows = 16;   ///< of a weight that are interleaved: threads side by side
  std::uint32_t tokens = 4;  ///< of one thread in a product with a weight, at most
  std::uint32_t slices = 1;  ///< of a weight's columns, summed over a block
  std::uint32_t block = 64;  ///< threads that share the work on one row
  bool vectors = false;      ///< threads are lanes of one core's vectors: few threads, many results each
  bool f16 = false;          ///< the device converts 16-bit floats
  bool matrix_f16 = false, matrix_bf16 = false;  ///< it has matrix units for these
  std::uint32_t subgroup = 1;                    ///< threads of one
  std::uint32_t block_limit = 1024;              ///< threads of a block, at most: a power of two
  std::uint32_t compute_units = 0;               ///< blocks that run at once at the least; 0: not known
  std::uint64_t shared_bytes = 32768;            ///< of a block
};
Tiles tiles_of(Device device);
/// Threads of a block that are one vector of this dtype, or of its sums, on a device of `vectors`.
std::uint32_t vector_lanes(const Tiles& tiles, DType dtype);

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

inline std::size_t hash_of(std::initializer_list<std::uint64_t> values) {
  std::uint64_t h = 0;
  for (std::uint64_t v : values) h = (h ^ v) * 0x9E3779B97F4A7C15ull, h ^= h >> 29;
  return static_cast<std::size_t>(h);
}

/// Elements of a row shared by the threads of a block: `body(index, exists)` for index = lane, lane + lanes, ... The
/// mask is invalid while all of them exist, so that full steps need none. The counter is uniform.
void for_lanes(ir::Value count, std::uint32_t lanes, ir::Value lane,
               const std::function<void(ir::Value, ir::Value)>& body);
/// `memory[index]` in the compute dtype, 0 where the mask is valid and false.
ir::Value load_at(const ir::BufferRef& memory, ir::Value index, ir::Value exists);
/// A parameter of a kernel for where tokens stand: a number, or the first element of a buffer.
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

/// Words of one block of 32 activations: the scale's bits, what a product's sum begins with for the weight's offset
/// (see QuantiseSpec), that of the last 16, the bits of scale times sum, 8 words of 4 integers.
inline constexpr std::uint32_t activation_words = 12, activation_heading = 4;

/// A packed weight: `group` rows interleaved. The values of rows r of a group stand side by side:
///  f32, f16, bf16: [group][column][row]
///  others: words of numbers, u32 [group][column / 32][word][row], as UnpackedBlock says; then scales, and their
///  minimums, [group][column / columns of a block][scale, minimum][row]; then, where parts have factors, these, u16
///  [group][column / 32][row]
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
/// A product of many tokens on a processor's vectors. A block unpacks `depth` steps (parts of 32 columns, or columns)
/// of up to `groups` groups of rows at a time, and multiplies them by up to `tiles` tiles of `tokens`.
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
/// Activations for products, in tiles of `tokens`, whose words (or numbers) of the same columns lie side by side:
/// [tile][column / 32][token][word], so that a product's loads differ by constants. The last tile repeats the last
/// token.
struct QuantiseSpec {
  std::uint32_t tokens = 1;
  std::int32_t offset = 0;  ///< sums of integers are multiplied by minus this
  bool halves = false;      ///< a sum of each 16 columns; else of all 32, and 0
  std::uint32_t lanes = 0;  ///< threads side by side, a vector of them, share a block of 32; 0: each has its own
  friend bool operator==(const QuantiseSpec&, const QuantiseSpec&) = default;
  std::size_t hash() const { return hash_of({tokens, static_cast<std::uint64_t>(offset), halves, lanes}); }
};
struct GatherSpec {
  WeightSpec weight;
  DType ids = DType::index;  ///< index: every row, no ids
  friend bool operator==(const GatherSpec&, const GatherSpec&) = default;
  std::size_t hash() const {
    return hash_of({static_cast<std::uint64_t>(weight.format), weight.group, static_cast<std::uint64_t>(weight.scale),
                    static_cast<std::uint64_t>(ids)});
  }
};
ir::Function trace_linear(const LinearSpec& spec);
ir::Function trace_linear_panel(const LinearPanelSpec& spec);
/// Nothing where unpacking a weight again for each tile of tokens costs less.
std::optional<LinearPanelSpec> choose_linear_panel(const Tiles& tiles, const WeightSpec& weight, std::int64_t tokens);
/// Tokens of one thread in a product of so many: a power of two.
std::uint32_t linear_tokens(const Tiles& tiles, WeightFormat format, std::int64_t tokens);
ir::Function trace_quantise(const QuantiseSpec& spec);
/// QuantiseSpec::lanes on this device.
std::uint32_t quantise_lanes(const Tiles& tiles);
/// f32 numbers [tile][column][token] for weights that are not quantised, in tiles of `tokens` from 2 on.
ir::Function trace_tile_activations(const std::uint32_t& tokens);
ir::Function trace_gather(const GatherSpec& spec);

// product_kernels.cpp

struct ProductSpec {
  DType a = DType::f32, b = DType::f32, sum = DType::f32, out = DType::f32;
  bool packed = false;            ///< not by trace_product, but as choose_packed says
  std::uint32_t tx = 16, ty = 1;  ///< threads of a block; tx 0: `ty` threads along k, a block for tm x tn results
  std::uint32_t tm = 1, tn = 1;   ///< results of a thread
  std::uint32_t bk = 0;           ///< columns of a that a block stages in shared memory at a time
  std::uint32_t pad = 0;          ///< elements after each staged row, so that a column is not one bank of shared memory
  bool stage_a = false, stage_b = false;
  bool a_unit_k = false, a_unit_m = false, b_unit_n = false, b_unit_k = false;  ///< strides known to be 1
  bool bias = false;
  Activation activation = Activation::none;
  /// Into a matrix with strides: its elements times beta plus alpha times the sums. Of packed ones only: its columns
  /// lie side by side; no element above the diagonal is touched.
  bool update = false, c_unit = false, lower = false;
  bool b_packed = false;  ///< of an update: its right factor is what pack_rhs made
  /// A product of convolution (correlation.h), whose right factor is what windows see of images, read where it lies:
  /// left is the weight, and the result images; or left is images, and the result a weight.
  enum Windows : std::uint8_t { no_windows, images_of_windows, weights_of_windows } windows = no_windows;
  bool flipped = false;                              ///< windows meet the weight's taps in reverse order
  std::uint8_t kernel_rows = 0, kernel_columns = 0;  ///< of windows; 0: only launches know them
  /// By fragments: the block's tile is of workers_m x workers_n parts of tm x tn fragments, each a subgroup's; `tx` is
  /// the block's threads. 0: by sums of single threads.
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
/// Tiles for a product of these extents; dtypes, strides and epilogue are taken from `spec`.
ProductSpec choose_product(const Tiles& tiles, ProductSpec spec, std::int64_t m, std::int64_t n, std::int64_t k,
                           std::int64_t batch = 1);
/// What a block by fragments stages in shared memory: elements between rows, chosen so that rows begin at multiples of
/// 16 bytes, which NVIDIA's units read at once, and that eight of them lie in different banks.
constexpr std::uint32_t fragment_pitch(std::uint32_t elements) { return (elements + 7) / 8 * 8 + 8; }
std::uint64_t fragment_shared_bytes(const ProductSpec& spec);

// packed_kernels.cpp

/// A factor of a packed product, laid out again in the sums' dtype: panels of `width` rows of the left factor, or
/// columns of the right one, with the steps along k one behind the other, and what a block goes through before it goes
/// on along k together: [batch][k / depth][panel][depth][width], 0 past the factor's end. (With whole panels one behind
/// the other those of long k would begin in the same few sets of a cache.)
struct PackSpec {
  DType from = DType::f32, to = DType::f32;
  std::uint32_t width = 4, lanes = 4;  ///< threads side by side take `lanes` of them
  bool unit_outer = false, unit_k = false;
  /// Panels that one block packs: of rows of memory that are read as they lie, at least 64 elements at a time.
  std::uint32_t together() const { return unit_outer ? std::max(1u, 64 / width) : 1; }
  friend bool operator==(const PackSpec&, const PackSpec&) = default;
  std::size_t hash() const {
    return hash_of({static_cast<std::uint64_t>(from), static_cast<std::uint64_t>(to), width, lanes,
                    std::uint64_t{unit_outer} | std::uint64_t{unit_k} << 1});
  }
};
ir::Function trace_pack(const PackSpec& spec);

/// Tiles of `tm` rows by `tn` vectors of `lanes` columns. Either factor may be packed: the left one in panels of a
/// tile's rows, the right one of its columns. A right factor that is not has whole panels of contiguous columns.
struct PackedSpec {
  DType a = DType::f32, b = DType::f32, sum = DType::f32, out = DType::f32;  ///< a factor that is packed has the sum's
  std::uint32_t tm = 4, tn = 3, lanes = 8;
  bool a_packed = false, b_packed = false, a_unit_m = false, a_unit_k = false;
  bool batched = false;                 ///< more than one matrix
  bool whole = false;                   ///< each matrix is one block, which goes along all of k at once
  bool exact = false;                   ///< of those that are whole: tiles end where the matrix does
  bool columns_first = false;           ///< blocks of the same rows follow each other, not those of the same columns
  std::uint32_t sums_bytes = 48 << 10;  ///< shared memory for tiles whose sums wait while a block goes along k
  bool bias = false;
  Activation activation = Activation::none;
  /// Into a matrix with strides: its elements times beta plus alpha times the sums. `c_unit`: its columns lie side by
  /// side; `lower`: no element above the diagonal is touched.
  bool update = false, lower = false, c_unit = false;
  /// Of an update: elements of shared memory in which a block lays out each of the right factor's panels for itself,
  /// from columns that are contiguous along k if `b_unit_k`; 0: it reads them where they are.
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
/// How many tiles that is, at least one.
constexpr std::uint64_t packed_tiles(const PackedSpec& s) {
  return std::max<std::uint64_t>(1, s.sums_bytes / (std::uint64_t{s.tm} * s.tn * s.lanes * dtype_size(s.sum)));
}
/// How a product goes: panels of a block, and how far it goes along k with all of them before it goes on.
struct PackedPlan {
  PackedSpec spec;
  PackSpec pack_a, pack_b;  ///< where `spec` says that the factor is packed
  std::int64_t block_rows = 1, block_columns = 1, depth = 1;
};
/// An element of what an update writes: its old value, in the sums' dtype, times beta plus alpha times `sum`. With beta
/// 0 the old value does not count, whatever it is.
ir::Value updated(ir::Value old, ir::Value sum, ir::Value alpha, ir::Value beta);
/// For devices of `Tiles::vectors`; dtypes, strides and epilogue are taken from `spec`.
PackedPlan choose_packed(const Tiles& tiles, const ProductSpec& spec, std::int64_t m, std::int64_t n, std::int64_t k,
                         std::int64_t batch);

// product.cpp

/// The factor in panels of `spec.width` rows or columns, `count` of them in each matrix: one copy of each matrix that
/// differs, `depth` steps along k of all panels after the next. `strides` along them and along k; before a matrix's own
/// there are two dimensions.
Array pack_factor(const BufferView& factor, const PackSpec& spec, std::int64_t count, std::int64_t k,
                  std::int64_t depth, std::array<std::int64_t, 2> strides, std::array<std::int64_t, 2> extents = {1, 1},
                  std::array<std::int64_t, 2> batch_strides = {0, 0});

// triangular_kernels.cpp

/// A triangular system t x = b by forward substitution, in b's memory: of n equations, at most `size`. Threads are
/// right sides, `lanes` a block, `tn` a thread; `tm` equations at a time.
struct SolveSpec {
  DType dtype = DType::f32;
  std::uint32_t lanes = 16, tm = 8, tn = 2, size = 256;
  bool b_unit = false;  ///< right sides lie side by side
  friend bool operator==(const SolveSpec&, const SolveSpec&) = default;
  std::size_t hash() const {
    return hash_of({static_cast<std::uint64_t>(dtype), lanes | std::uint64_t{tm} << 16 | std::uint64_t{tn} << 32,
                    size | std::uint64_t{b_unit} << 32});
  }
};
ir::Function trace_solve(const SolveSpec& spec);
SolveSpec choose_solve(const Tiles& tiles, DType dtype, bool b_unit);

/// Cholesky's factorisation of a matrix of at most `size` rows by one block of `lanes` threads, which has its upper
/// triangle in shared memory: `tm` rows of that at a time, `tn` columns a thread.
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

/// How our kernels compute a product.
struct ProductChoice {
  Device device;
  ProductSpec asked, spec;
  std::array<std::int64_t, 4> sizes{-1};  ///< rows, columns, k, matrices
  PackedPlan plan;                        ///< if `spec.packed`
  const Kernel* kernel = nullptr;         ///< its family keeps it
};
/// Remembered for the last few of a thread: choosing takes about as long as a small product does.
const ProductChoice& choose_product_kernel(Device device, const ProductSpec& asked, std::array<std::int64_t, 4> sizes);

// row_kernels.cpp

struct RowSpec {
  DType x = DType::f32, weight = DType::f32;
  std::uint32_t threads = 64;  ///< 0: one thread a row, rows side by side
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
  bool in_memory = false;  ///< the position is an i32 in memory, here and below
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
    vectors,    ///< a block a query, threads along the head: for lanes of one core
    positions,  ///< a block a query, a thread a position: for many threads
    tokens      ///< a thread a query, keys read once for all of a block
  } form = vectors;
  DType cache = DType::f32;
  std::uint32_t head_size = 64, threads = 16;
  bool in_memory = false;
  bool window = false, cap = false;
  bool converted = false;  ///< of tokens: keys and values are converted to f32 in shared memory first
  friend bool operator==(const AttentionSpec&, const AttentionSpec&) = default;
  std::size_t hash() const {
    return hash_of({form, static_cast<std::uint64_t>(cache), head_size, threads, in_memory, window, cap, converted});
  }
};
ir::Function trace_attention(const AttentionSpec& spec);
AttentionSpec choose_attention(const Tiles& tiles, DType cache, std::int64_t head_size, std::int64_t queries);

}  // namespace tessera::ops
