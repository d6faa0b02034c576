// SPDX-License-Identifier: Apache-2.0
// Internal to ops/. Functions that trace kernels from small specifications, and functions that choose tile sizes for a
// device. The operations launch these kernels; the catalogue lists them.
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

/// The properties of a device that determine the shape of kernels. They are computed by tiles_of, so that kernels do
/// not query the device.
struct Tiles {
  std::uint32_t rows = 16;   ///< rows of a weight that are interleaved, with one thread per row
  std::uint32_t tokens = 4;  ///< maximum number of tokens per thread in a product with a weight
  std::uint32_t slices = 1;  ///< parts into which the columns of a weight are divided, added up by a block
  std::uint32_t block = 64;  ///< threads that process one row together
  bool vectors = false;  ///< threads are vector lanes of a CPU core, so blocks have few threads with many results each
  bool f16 = false;      ///< the device converts 16-bit floats in hardware
  bool dot4 = false;     ///< it computes dot4 with one instruction
  bool matrix_f16 = false, matrix_bf16 = false, matrix_i8 = false;  ///< the device has matrix units for these dtypes
  bool matrix_tf32 = false;            ///< it has matrix units for f32, which may round factors to 10 bits of mantissa
  bool matrix_f32 = false;             ///< they do not round
  bool async_copies = false;           ///< the device copies from memory to shared memory asynchronously
  std::uint32_t subgroup = 1;          ///< threads of a subgroup
  std::uint32_t block_limit = 1024;    ///< maximum number of threads of a block, rounded down to a power of two
  std::uint32_t compute_units = 0;     ///< minimum number of blocks that run concurrently; 0 if unknown
  std::uint64_t shared_bytes = 32768;  ///< shared memory of a block
};
Tiles tiles_of(Device device);
/// The number of threads of a block that form one vector of this dtype, or of the dtype of its sums. For devices with
/// Tiles::vectors.
std::uint32_t vector_lanes(const Tiles& tiles, DType dtype);

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

inline std::size_t hash_of(std::initializer_list<std::uint64_t> values) {
  std::uint64_t h = 0;
  for (std::uint64_t v : values) h = (h ^ v) * 0x9E3779B97F4A7C15ull, h ^= h >> 29;
  return static_cast<std::size_t>(h);
}

/// Distributes a row over the threads of a block: calls `body(index, exists)` for index = lane, lane + lanes, ...
/// `exists` is an invalid Value for full steps, which need no mask. The loop counter is uniform.
void for_lanes(ir::Value count, std::uint32_t lanes, ir::Value lane,
               const std::function<void(ir::Value, ir::Value)>& body);
/// Loads `memory[index]` in the compute dtype. If `exists` is valid, returns `otherwise` where it is false.
ir::Value load_at(const ir::BufferRef& memory, ir::Value index, ir::Value exists, double otherwise = 0);
/// A kernel parameter for the position of tokens, which is either a number or the first element of a buffer.
class PositionParameter {
 public:
  PositionParameter() = default;
  PositionParameter(const char* name, bool in_memory);
  ir::Value get() const;
  ir::Value at(ir::Value token) const;  ///< the position of a token, if there is one for each

 private:
  ir::BufferRef memory_;
  ir::Value number_;
};
LaunchArgument argument(const Position& position);
/// Throws ShapeError, DtypeError or DeviceError unless the sinks of q (tokens, heads, head size) are f32 (heads,).
void check_sinks(const char* operation, const std::optional<Array>& sinks, const Array& q);
/// Throws ArgumentError if there is a position for each token.
void require_consecutive(const char* operation, const Position& position);
ir::Value activate(Activation activation, ir::Value x);

// weight_kernels.cpp

/// The number of words for a block of 32 activations, and the number of words before the integers. The words are:
/// - the bits of the scale;
/// - the initial value of a product's sum, which corrects the offset of the weight (see QuantiseSpec);
/// - the initial value for the last 16 columns;
/// - the bits of the scale times the sum;
/// - 8 words of 4 integers each.
inline constexpr std::uint32_t activation_words = 12, activation_heading = 4;
/// The number of threads that quantise a block of 32 together and exchange values as part of a subgroup.
inline constexpr std::uint32_t input_lanes = 8;

/// A packed weight. `group` rows are interleaved: their values for the same column are adjacent. The layouts are:
/// - f32, f16, bf16: [group][column][row]
/// - quantised: words, u32 [group][column / 32][word][row], as in UnpackedBlock; then scales and minimums,
///   [group][column / columns of a block][scale, minimum][row]; then the factors, if there are any, u16 [group][column
///   / 32][row] (iq1_m: 12 for each 256 columns); then the codebook, if there is one, u32, which weights share
struct WeightSpec {
  WeightFormat format = WeightFormat::f32;
  std::uint32_t group = 16;
  DType scale = DType::f16;
  bool symmetric = false;  ///< multiplies signed bytes, as Dot4Signs::signed_symmetric
  friend bool operator==(const WeightSpec&, const WeightSpec&) = default;
};
/// The layout of activations that are multiplied by a weight. Activations are in tiles of `tokens` tokens; the last
/// tile is padded with copies of the last token.
/// - not quantised: f32 [tile][column][token]
/// - quantised: u32 [tile][column / 32][token][word], so that the load offsets of a product are constants
struct InputLayout {
  bool quantised = false;
  std::uint32_t tokens = 1;
  std::int32_t offset = 0;  ///< the sums of the integers are multiplied by -offset
  bool halves = false;      ///< true: one sum per 16 columns; false: one sum for all 32 columns, followed by 0
  /// The number of tokens including those that pad the last tile.
  std::int64_t padded(std::int64_t count) const { return ceil_div(count, tokens) * tokens; }
  friend bool operator==(const InputLayout&, const InputLayout&) = default;
  std::uint64_t bits() const {
    return std::uint64_t{quantised} | std::uint64_t{halves} << 1 | std::uint64_t{tokens} << 8 |
           static_cast<std::uint64_t>(offset) << 32;
  }
};
/// A product of activations with a weight. If `gated`, the first half of the weight's rows are gates, and the result is
/// the activation of each gate times its row of the second half, in the layout `out`. This requires slices, groups of
/// 32 rows, and halves of whole groups.
struct LinearSpec {
  WeightSpec weight;
  std::uint32_t tokens = 1, slices = 1;
  bool gated = false;
  Gate gate = Gate::silu;
  InputLayout out = {};
  bool experts = false;  ///< each row of x is multiplied by the rows of one expert; see linear_experts()
  friend bool operator==(const LinearSpec&, const LinearSpec&) = default;
  std::size_t hash() const {
    return hash_of({static_cast<std::uint64_t>(weight.format), weight.group, static_cast<std::uint64_t>(weight.scale),
                    tokens, slices, gated, static_cast<std::uint64_t>(gate), out.bits(), experts});
  }
};
/// A product with many tokens, using CPU vectors. A block unpacks `depth` steps (parts of 32 columns if quantised, else
/// columns) of up to `groups` groups of rows at a time. It multiplies them by up to `tiles` tiles of `tokens` tokens.
struct LinearPanelSpec {
  WeightSpec weight;
  std::uint32_t tokens = 8, tiles = 16, groups = 4, depth = 8;
  std::uint32_t together = 1;  ///< number of groups that have their sums in registers at the same time
  friend bool operator==(const LinearPanelSpec&, const LinearPanelSpec&) = default;
  std::size_t hash() const {
    return hash_of({static_cast<std::uint64_t>(weight.format), weight.group, static_cast<std::uint64_t>(weight.scale),
                    tokens, tiles, groups, depth, together});
  }
};
/// A product of several tokens with a weight, using matrix fragments of i8 if it is quantised, otherwise of 16-bit
/// floats. The weight has groups of 32 rows. A block computes `groups` of them for a tile of `tokens` tokens. Its
/// columns are divided into `slices`. A slice has workers_m x workers_n subgroups, each of which computes a part of the
/// rows and of the tokens.
struct LinearTileSpec {
  WeightSpec weight;
  std::uint32_t tokens = 16, groups = 1, slices = 1, workers_m = 1, workers_n = 1, subgroup = 32;
  std::uint32_t stages = 3;  ///< of asynchronous copies
  /// If the weight is not quantised: an activation is the sum of this many 16-bit floats (see trace_round_rows).
  std::uint32_t terms = 1;
  bool gated = false;  ///< see LinearSpec. This requires an even number of groups and of workers_m
  Gate gate = Gate::silu;
  InputLayout out = {};
  friend bool operator==(const LinearTileSpec&, const LinearTileSpec&) = default;
  std::size_t hash() const {
    return hash_of(
        {static_cast<std::uint64_t>(weight.format), weight.group, static_cast<std::uint64_t>(weight.scale),
         tokens | std::uint64_t{groups} << 16 | std::uint64_t{slices} << 32 | std::uint64_t{stages} << 48,
         workers_m | std::uint64_t{workers_n} << 16 | std::uint64_t{subgroup} << 32 | std::uint64_t{terms} << 48,
         std::uint64_t{gated} | static_cast<std::uint64_t>(gate) << 1, out.bits()});
  }
};
/// Converts rows of f32 to another layout, on GPUs.
struct ConvertSpec {
  InputLayout out;
  std::uint32_t threads = 256;
  friend bool operator==(const ConvertSpec&, const ConvertSpec&) = default;
  std::size_t hash() const { return hash_of({out.bits(), threads}); }
};
/// Quantises activations of f32 to 8-bit integers in blocks of 32.
struct QuantiseSpec {
  InputLayout out;  ///< quantised
  /// threads that process a block of 32 together, as one vector; 0 means one thread per block
  std::uint32_t lanes = 0;
  friend bool operator==(const QuantiseSpec&, const QuantiseSpec&) = default;
  std::size_t hash() const { return hash_of({out.bits(), lanes}); }
};
/// Reads rows of a weight, given by ids.
struct GatherSpec {
  WeightSpec weight;
  DType ids = DType::i32;
  friend bool operator==(const GatherSpec&, const GatherSpec&) = default;
  std::size_t hash() const {
    return hash_of({static_cast<std::uint64_t>(weight.format), weight.group, static_cast<std::uint64_t>(weight.scale),
                    static_cast<std::uint64_t>(ids)});
  }
};
/// Converts a weight to a row-major matrix. A block converts a group of rows, and `slices` times 32 columns.
struct DequantiseSpec {
  WeightSpec weight;
  DType out = DType::f32;
  std::uint32_t slices = 1;
  friend bool operator==(const DequantiseSpec&, const DequantiseSpec&) = default;
  std::size_t hash() const {
    return hash_of({static_cast<std::uint64_t>(weight.format), weight.group, static_cast<std::uint64_t>(weight.scale),
                    static_cast<std::uint64_t>(out), slices});
  }
};
ir::Function trace_linear(const LinearSpec& spec);
ir::Function trace_linear_panel(const LinearPanelSpec& spec);
std::uint64_t linear_panel_shared_bytes(const LinearPanelSpec& spec);
/// The dtype of the scales of a packed weight.
DType scale_dtype(const Tiles& tiles, WeightFormat format);
/// True if products multiply signed bytes, which CPUs without VNNI do faster.
bool multiplies_symmetric(const Tiles& tiles, WeightFormat format);
/// Returns std::nullopt if it is cheaper to unpack the weight again for each tile of tokens.
std::optional<LinearPanelSpec> choose_linear_panel(const Tiles& tiles, const WeightSpec& weight, std::int64_t tokens);
// weight_tile.cpp, half_tile_kernel.cpp
ir::Function trace_linear_tile(const LinearTileSpec& spec);
/// Returns std::nullopt if the device has no matrix units for this weight, or there are too few tokens.
std::optional<LinearTileSpec> choose_linear_tile(const Tiles& tiles, const WeightSpec& weight, std::int64_t rows,
                                                 std::int64_t columns, std::int64_t tokens, bool gated = false);
/// The limit of clamped_silu, and the factor in its sigmoid.
inline constexpr double clamped_silu_limit = 7, clamped_silu_slope = 1.702;
/// Returns the name of a gate, for the names of kernels.
const char* gate_name(Gate gate);
/// Returns the activation of a gate times its partner. gelu is the tanh approximation of Hendrycks and Gimpel 2016.
ir::Value gated_value(Gate gate, ir::Value g, ir::Value up);
/// Rounds rows of f32 to 16-bit floats. An element is the sum of `terms` numbers, each rounded from what the previous
/// ones leave: 22 bits in two numbers of f16, 24 bits in three of bf16. The result is (terms, tokens, columns). For
/// f16, each row is divided by a factor, so that its magnitude is 16,384. Rows with infinities or NaN are not, nor rows
/// of magnitudes below 2e-34.
struct RoundSpec {
  DType out = DType::f16;
  std::uint32_t terms = 1, threads = 256;
  friend bool operator==(const RoundSpec&, const RoundSpec&) = default;
  std::size_t hash() const { return hash_of({static_cast<std::uint64_t>(out), terms, threads}); }
};
ir::Function trace_round_rows(const RoundSpec& spec);
/// The number of tokens per thread in a product with `tokens` tokens. It is a power of two.
std::uint32_t linear_tokens(const Tiles& tiles, WeightFormat format, std::int64_t tokens);
ir::Function trace_convert_rows(const ConvertSpec& spec);
/// Returns std::nullopt if the device or the rows need trace_quantise or trace_tile_activations.
std::optional<ConvertSpec> choose_convert_rows(const Tiles& tiles, std::int64_t columns, const InputLayout& out);
ir::Function trace_quantise(const QuantiseSpec& spec);
/// The value for QuantiseSpec::lanes on this device.
std::uint32_t quantise_lanes(const Tiles& tiles);
/// Tiles activations for weights that are not quantised: f32 [tile][column][token]. A tile has at least 2 tokens.
ir::Function trace_tile_activations(const std::uint32_t& tokens);
ir::Function trace_gather(const GatherSpec& spec);
ir::Function trace_dequantise(const DequantiseSpec& spec);
/// The value for DequantiseSpec::slices on this device.
std::uint32_t dequantise_slices(const Tiles& tiles);

// product_kernels.cpp

struct ProductSpec {
  DType a = DType::f32, b = DType::f32, sum = DType::f32, out = DType::f32;
  bool packed = false;  ///< uses the kernel that choose_packed selects instead of trace_product
  /// threads of a block; if tx is 0, `ty` threads are along k, and a block computes tm x tn results
  std::uint32_t tx = 16, ty = 1;
  std::uint32_t tm = 1, tn = 1;  ///< results per thread
  std::uint32_t bk = 0;          ///< number of columns of a that a block stages in shared memory at a time
  std::uint32_t pad = 0;         ///< elements added to each staged row, so that columns have no bank conflicts
  bool stage_a = false, stage_b = false;
  bool a_unit_k = false, a_unit_m = false, b_unit_n = false, b_unit_k = false;  ///< these strides are known to be 1
  bool bias = false;
  Activation activation = Activation::none;
  /// The kernel updates a strided matrix: beta times its elements plus alpha times the sums. For packed kernels:
  /// `c_unit` means that columns are contiguous; with `lower`, elements above the diagonal are not written.
  bool update = false, c_unit = false, lower = false;
  bool b_packed = false;  ///< for updates: pack_rhs has packed the right factor
  /// A product of a convolution (correlation.h). The right factor consists of windows of images, which are read in
  /// place.
  /// - images_of_windows: the left factor is the weight, and the result is images.
  /// - weights_of_windows: the left factor is images, and the result is a weight.
  enum Windows : std::uint8_t { no_windows, images_of_windows, weights_of_windows } windows = no_windows;
  bool flipped = false;                              ///< the taps of the weight are in reverse order
  std::uint8_t kernel_rows = 0, kernel_columns = 0;  ///< extents of a window; 0 if known only at launch
  /// Nonzero if the product is computed with matrix fragments. The tile of a block then consists of workers_m x
  /// workers_n parts. Each part has tm x tn fragments and belongs to one subgroup. `tx` is the number of threads. If
  /// `workers_m` is 0, each thread computes its own sums.
  std::uint32_t workers_m = 0, workers_n = 0;
  /// Nonzero if the stages of products with fragments are copied asynchronously, 16 bytes at a time.
  std::uint32_t stages = 0;
  /// Each factor is contiguous in one dimension, and its extent there, its other stride and its batch strides are
  /// multiples of 16 bytes. The rows of the result are multiples of four elements.
  bool whole_vectors = false, out_vectors = false;
  bool whole_steps = false;  ///< the number of terms is a multiple of bk
  bool tf32 = false;         ///< factors of f32 may be rounded to 10 bits of mantissa; for choose_product

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
                    stages | std::uint64_t{whole_vectors} << 8 | std::uint64_t{out_vectors} << 9 |
                        std::uint64_t{whole_steps} << 10 | std::uint64_t{tf32} << 11,
                    windows | std::uint64_t{flipped} << 8 | std::uint64_t{kernel_rows} << 16 |
                        std::uint64_t{kernel_columns} << 24});
  }
};
ir::Function trace_product(const ProductSpec& spec);
/// Chooses tiles for a product with these extents. The dtypes, strides and epilogue are taken from `spec`.
ProductSpec choose_product(const Tiles& tiles, ProductSpec spec, std::int64_t m, std::int64_t n, std::int64_t k,
                           std::int64_t batch = 1);
/// The distance between staged rows in kernels with fragments, in elements. Rows begin at multiples of 16 bytes, so
/// that NVIDIA's matrix units can load them with one instruction. Eight consecutive rows are in different banks.
/// `element_bytes` is the size of an element.
constexpr std::uint32_t fragment_pitch(std::uint32_t elements, std::uint32_t element_bytes = 2) {
  const std::uint32_t whole = 16 / element_bytes;
  return (elements + whole - 1) / whole * whole + whole;
}
std::uint64_t fragment_shared_bytes(const ProductSpec& spec);

// packed_kernels.cpp

/// A factor of a packed product, converted to the dtype of the sums and reordered. The left factor is split into panels
/// of `width` rows, the right factor into panels of `width` columns. The layout is [batch][k /
/// depth][panel][depth][width]; elements past the end of the factor are 0. Steps along k are contiguous within a panel,
/// and `depth` steps of all panels are stored together. (If each panel were contiguous over all of k, long panels would
/// begin in the same few cache sets.)
struct PackSpec {
  DType from = DType::f32, to = DType::f32;
  /// columns of a panel; threads, which pack `lanes` columns at a time
  std::uint32_t width = 4, lanes = 4;
  bool unit_outer = false, unit_k = false;
  /// The number of panels that one block packs. If memory is contiguous across panels, these panels together have about
  /// 64 columns.
  std::uint32_t together() const { return unit_outer ? std::max(1u, 64 / width) : 1; }
  friend bool operator==(const PackSpec&, const PackSpec&) = default;
  std::size_t hash() const {
    return hash_of({static_cast<std::uint64_t>(from), static_cast<std::uint64_t>(to), width, lanes,
                    std::uint64_t{unit_outer} | std::uint64_t{unit_k} << 1});
  }
};
ir::Function trace_pack(const PackSpec& spec);

/// A product in tiles of `tm` rows by `tn` vectors of `lanes` columns. Either factor may be packed. A panel of the left
/// factor has the rows of a tile, a panel of the right factor its columns. A right factor that is not packed must have
/// contiguous columns and consist of whole panels.
struct PackedSpec {
  /// packed factors have the dtype of the sums
  DType a = DType::f32, b = DType::f32, sum = DType::f32, out = DType::f32;
  std::uint32_t tm = 4, tn = 3, lanes = 8;
  bool a_packed = false, b_packed = false, a_unit_m = false, a_unit_k = false;
  bool batched = false;        ///< more than one matrix
  bool whole = false;          ///< one block computes each matrix in a single step along k
  bool exact = false;          ///< only with `whole`: the extents of the matrix are multiples of those of a tile
  bool columns_first = false;  ///< true: consecutive blocks have the same rows; false: the same columns
  std::uint32_t sums_bytes = 48 << 10;  ///< shared memory for the sums of tiles while a block advances along k
  bool bias = false;
  Activation activation = Activation::none;
  /// The kernel updates a strided matrix: beta times its elements plus alpha times the sums. `c_unit`: the columns of
  /// the matrix are contiguous. `lower`: elements above the diagonal are not written.
  bool update = false, lower = false, c_unit = false;
  /// For updates: the number of elements of shared memory into which each block packs panels of the right factor
  /// itself. If 0, the factor is read in place. If `b_unit_k` is true, the columns of the factor are contiguous along
  /// k.
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
/// The number of tiles whose sums fit in `sums_bytes`; at least one.
constexpr std::uint64_t packed_tiles(const PackedSpec& s) {
  return std::max<std::uint64_t>(1, s.sums_bytes / (std::uint64_t{s.tm} * s.tn * s.lanes * dtype_size(s.sum)));
}
/// How a product is computed: the number of panels of a block, and the number of steps along k that the block applies
/// to all its panels at a time.
struct PackedPlan {
  PackedSpec spec;
  PackSpec pack_a, pack_b;  ///< used if `spec` says that the factor is packed
  std::int64_t block_rows = 1, block_columns = 1, depth = 1;
};
/// Returns beta * old + alpha * sum, in the dtype of the sums. If beta is 0, `old` is ignored, even if it is NaN.
ir::Value updated(ir::Value old, ir::Value sum, ir::Value alpha, ir::Value beta);
/// Chooses a plan for devices with Tiles::vectors. The dtypes, strides and epilogue are taken from `spec`.
PackedPlan choose_packed(const Tiles& tiles, const ProductSpec& spec, std::int64_t m, std::int64_t n, std::int64_t k,
                         std::int64_t batch);

// product.cpp

/// Packs a factor in the layout of PackSpec: panels of `spec.width` rows or columns, `count` rows or columns in each
/// distinct matrix. `strides` are the stride of rows or columns and the stride of k. `extents` and `batch_strides`
/// describe two batch dimensions.
Array pack_factor(const BufferView& factor, const PackSpec& spec, std::int64_t count, std::int64_t k,
                  std::int64_t depth, std::array<std::int64_t, 2> strides, std::array<std::int64_t, 2> extents = {1, 1},
                  std::array<std::int64_t, 2> batch_strides = {0, 0});

// triangular_kernels.cpp

/// Solves a triangular system t x = b of n <= `size` equations by forward substitution, in place in b. A block has
/// `lanes` threads, and each thread computes `tn` right-hand sides. `tm` equations are processed at a time.
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

/// Cholesky factorisation of a matrix of at most `size` rows by a single block of `lanes` threads. The upper triangle
/// is kept in shared memory. A step computes `tm` rows, and each thread computes `tn` columns.
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
/// Caches the last choices of this thread, because choosing takes about as long as a small product.
const ProductChoice& choose_product_kernel(Device device, const ProductSpec& asked, std::array<std::int64_t, 4> sizes);

// row_kernels.cpp

struct RowSpec {
  DType x = DType::f32, weight = DType::f32;
  std::uint32_t threads = 64;  ///< threads of the block that computes a row; 0: a thread computes a row alone
  std::uint32_t each = 1;      ///< elements that a thread loads before it uses the first of them
  bool strided = false;        ///< only for `threads` = 0: adjacent threads compute adjacent rows along a strided axis
  /// Each thread loads its elements once and keeps them in registers. The row has at most `threads` * `each` elements,
  /// and more than half as many if `each` is greater than 1.
  bool held = false;
  friend bool operator==(const RowSpec&, const RowSpec&) = default;
  std::size_t hash() const {
    return hash_of({static_cast<std::uint64_t>(x), static_cast<std::uint64_t>(weight), threads, each, strided, held});
  }
};
/// Chooses how a contiguous row is computed. `arrays` is the number of arrays of which a thread keeps elements.
RowSpec choose_row(const Tiles& tiles, DType x, DType weight, std::int64_t columns, std::uint32_t arrays = 1);
/// The same for a kernel that reads its rows once and keeps nothing.
RowSpec choose_row_read_once(const Tiles& tiles, DType x, DType weight, std::int64_t columns);
/// Chooses how a thread computes a row along a strided axis.
RowSpec choose_strided_row(const Tiles& tiles, DType x, DType weight);
ir::Function trace_rms_norm(const RowSpec& spec);
ir::Function trace_softmax(const RowSpec& spec);

// rotary.cpp

struct RotarySpec {
  DType x = DType::f32;
  RotaryPairs pairs = RotaryPairs::adjacent;
  bool rest = false, factors = false;
  bool in_memory = false;  ///< the position is an i32 in device memory (also in StoreSpec and AttentionSpec)
  bool each = false;       ///< there is a position for each token
  bool magnitude = false;
  friend bool operator==(const RotarySpec&, const RotarySpec&) = default;
  std::size_t hash() const {
    return hash_of(
        {static_cast<std::uint64_t>(x), static_cast<std::uint64_t>(pairs), rest, factors, in_memory, each, magnitude});
  }
};
ir::Function trace_rotary(const RotarySpec& spec);
/// Throws the errors of rotary().
void check_rotary(const Rotary& how, std::int64_t head_size, const Position& first_position, std::int64_t tokens,
                  Device device);
/// Appends the arguments of a rotation to `args`: its tables, the number of pairs, and the magnitude. `in_memory` is
/// only copied to the returned specification.
RotarySpec rotary_arguments(const Rotary& how, DType x, std::int64_t head_size, bool in_memory, Device device,
                            std::vector<LaunchArgument>& args);
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
    vectors,    ///< one block per query, with threads along the head; for CPU vector lanes
    positions,  ///< one block per query, with one thread per position; for GPUs without subgroups of 16 lanes
    tokens,     ///< one thread per query; each key is read once for the whole block
    parts       ///< one block per part of the positions, for a few queries of a key head; for GPUs
  } form = vectors;
  DType cache = DType::f32;
  std::uint32_t head_size = 64, threads = 16;
  bool in_memory = false;
  bool window = false, cap = false, sinks = false;
  bool converted = false;  ///< only for `tokens`: keys and values are first converted to f32 in shared memory
  // Only for `parts`:
  std::uint32_t queries = 1;  ///< heads with the same key head that a block computes
  bool whole = false;         ///< there is only one part, so no other launch combines the parts
  friend bool operator==(const AttentionSpec&, const AttentionSpec&) = default;
  std::size_t hash() const {
    return hash_of({form, static_cast<std::uint64_t>(cache), head_size, threads, in_memory, window, cap, sinks,
                    converted, queries, whole});
  }
};
ir::Function trace_attention(const AttentionSpec& spec);
/// `tokens` is the number of queries per head, and `group` the number of heads with the same key head.
AttentionSpec choose_attention(const Tiles& tiles, DType cache, std::int64_t head_size, std::int64_t tokens,
                               std::int64_t group);
/// Returns the number of parts of the positions of a cache, for `parts`. It depends on the shapes only, so that a
/// recorded launch can be replayed at other positions, with the same result as a new launch.
std::int64_t attention_parts(const AttentionSpec& spec, std::int64_t tokens, std::int64_t heads, std::int64_t group,
                             std::int64_t capacity);

// paged_attention_kernels.cpp

struct PagedAttentionSpec {
  bool groups = false;  ///< one block for a group of tokens, instead of one token
  DType cache = DType::f32;
  std::uint32_t head_size = 64, threads = 16;
  bool window = false, cap = false, sinks = false;
  bool equal = false;         ///< the tokens of a group have equal positions; see PagedTokens
  std::uint32_t queries = 1;  ///< for one token: heads with the same key head that a block computes
  friend bool operator==(const PagedAttentionSpec&, const PagedAttentionSpec&) = default;
  std::size_t hash() const {
    return hash_of({groups, static_cast<std::uint64_t>(cache), head_size, threads, window, cap, sinks, equal, queries});
  }
};
ir::Function trace_paged_attention(const PagedAttentionSpec& spec);
/// `group` is the number of heads with the same key head.
PagedAttentionSpec choose_paged_attention(const Tiles& tiles, DType cache, std::int64_t head_size, std::int64_t group,
                                          bool groups);
/// True if the device has the threads and the shared memory for groups of tokens.
bool can_group_tokens(const Tiles& tiles, std::int64_t head_size);
struct PagedStoreSpec {
  DType rows = DType::f32, cache = DType::f32;
  bool transposed = false;  ///< keys
  friend bool operator==(const PagedStoreSpec&, const PagedStoreSpec&) = default;
  std::size_t hash() const {
    return hash_of({static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(cache), transposed});
  }
};
ir::Function trace_paged_store(const PagedStoreSpec& spec);

// attention_tile_kernels.cpp

/// The number of queries of a block in attention with matrix fragments. In the gradient of keys and values, a block has
/// as many keys.
inline constexpr int attention_tile_rows = 64;

/// Attention of many queries with matrix fragments. Rows of keys and values are contiguous, and their strides are
/// multiples of 8 elements.
struct AttentionTileSpec {
  DType query = DType::f32, cache = DType::f16, out = DType::f32;
  std::uint32_t head_size = 64, subgroup = 32;
  std::uint32_t keys = 64;  ///< keys of a tile
  bool causal = true, in_memory = false, window = false, cap = false, sinks = false;
  bool logs = false;  ///< also stores the logarithm of each row's sum of exponentials, in f32
  friend bool operator==(const AttentionTileSpec&, const AttentionTileSpec&) = default;
  std::size_t hash() const {
    auto d = [](DType t) { return static_cast<std::uint64_t>(t); };
    return hash_of({d(query) | d(cache) << 8 | d(out) << 16,
                    head_size | std::uint64_t{keys} << 16 | std::uint64_t{subgroup} << 32,
                    std::uint64_t{causal} | std::uint64_t{in_memory} << 1 | std::uint64_t{window} << 2 |
                        std::uint64_t{cap} << 3 | std::uint64_t{logs} << 4 | std::uint64_t{sinks} << 5});
  }
};
ir::Function trace_attention_tile(const AttentionTileSpec& spec);
std::uint64_t attention_tile_shared_bytes(const AttentionTileSpec& spec);
/// Returns std::nullopt if the device has no matrix units for the cache, or the sizes do not fit them.
std::optional<AttentionTileSpec> choose_attention_tile(const Tiles& tiles, DType query, DType cache,
                                                       std::int64_t head_size, std::int64_t queries);

// attention_gradient_kernels.cpp

/// A gradient of attention with matrix fragments, without a window or a cap. Rows of all operands and of the adjoint
/// are contiguous, and their strides are multiples of 8 elements.
struct AttentionGradientSpec {
  DType dtype = DType::f16;
  std::uint32_t head_size = 64, subgroup = 32;
  std::uint32_t tile = 64;  ///< keys of a tile; in the gradient of keys, its queries
  bool keys = false;        ///< the gradient of keys and values; otherwise that of queries
  bool causal = true;
  friend bool operator==(const AttentionGradientSpec&, const AttentionGradientSpec&) = default;
  std::size_t hash() const {
    return hash_of({static_cast<std::uint64_t>(dtype), head_size | std::uint64_t{tile} << 16, subgroup,
                    std::uint64_t{keys} | std::uint64_t{causal} << 1});
  }
};
ir::Function trace_attention_gradient(const AttentionGradientSpec& spec);
/// Returns std::nullopt if the device has no matrix units for the dtype, or the sizes do not fit them.
std::optional<AttentionGradientSpec> choose_attention_gradient(const Tiles& tiles, DType dtype, std::int64_t head_size,
                                                               std::int64_t queries, bool keys);

// attention_tile.cpp

/// Returns the array (batch, heads, tokens, size), or a copy if kernels with matrix fragments cannot read its rows.
Array attention_rows(const Array& x);
/// The parameters of attention_tile_kernels.cpp that are not in its specification.
struct AttentionTileOptions {
  float scale = 1;
  Position past = 0;
  std::int64_t window = 0;
  float cap = 0;
  std::optional<Array> sinks = {};
};
/// Computes `out` with the kernel of `spec`. The operands are (batch, heads, tokens, size), with rows as returned by
/// attention_rows. `logs` is the contiguous array (batch, heads, queries) of the spec's `logs`.
void launch_attention_tile(const AttentionTileSpec& spec, const Array& q, const Array& k, const Array& v,
                           const Array& out, const AttentionTileOptions& options, const Array* logs = nullptr);
/// The operands of a gradient of attention. q, k, v and the adjoint g are (batch, heads, tokens, size), with rows as
/// returned by attention_rows. The other arrays are contiguous f32 arrays (batch, heads, queries): the logarithms of
/// the sums of exponentials; `along`, the dot products of the rows of g and of the result; and for f16 only, numbers n
/// so that the dot products of the row of g with values are less than 2^(n - 1).
struct AttentionGradientOperands {
  Array q, k, v, g, logs, along, exponents;
};
/// Computes the gradient of queries, or those of keys and values, into contiguous arrays of their shape and dtype.
void launch_attention_gradient(const AttentionGradientSpec& spec, const AttentionGradientOperands& operands,
                               float scale, std::initializer_list<Array> gradients);

// attention_kernels.cpp

/// Combines the parts of `parts`. In the workspace, each part of each query has its sums of weighted values, the
/// maximum of its scores, and the sum of its weights.
struct AttentionCombineSpec {
  std::uint32_t head_size = 64, slices = 1;  ///< `slices` groups of threads divide the parts among them
  InputLayout out = {};                      ///< the layout of the results: a row has all heads of a token
  bool sinks = false;                        ///< adds the weights of sinks; the parts do not contain them
  friend bool operator==(const AttentionCombineSpec&, const AttentionCombineSpec&) = default;
  std::size_t hash() const { return hash_of({head_size, slices, out.bits(), sinks}); }
};
ir::Function trace_attention_combine(const AttentionCombineSpec& spec);
AttentionCombineSpec choose_attention_combine(std::int64_t head_size);

}  // namespace tessera::ops
