// SPDX-License-Identifier: Apache-2.0
// Weight matrices in the formats of model files. They are packed for a device so that adjacent threads read adjacent
// bytes.
#pragma once

#include <memory>
#include <span>

#include "tessera/array/array.h"
#include "tessera/base/callback.h"
#include "tessera/base/owner.h"

namespace tessera {

/// Formats of weights in files, with the block layouts of ggml. A block has 32 numbers with an f16 scale, and in some
/// formats a minimum. Blocks of the K formats and of iq4_xs have 256 numbers, and 4-bit, 6-bit or 8-bit factors of the
/// scale for each 32 or 16 numbers. q8_0 stores signed bytes; iq4_nl and iq4_xs store 4-bit indices into a table of 16
/// values. mxfp4 stores 4-bit floats, and the scale is a power of two. The IQ1, IQ2 and IQ3 formats store indices into
/// tables of 8 or 4 numbers, and signs. See ggml-common.h of https://github.com/ggml-org/ggml, and weight_formats.cpp.
enum class WeightFormat : std::uint8_t {
  f32,      ///< 32-bit floats
  f16,      ///< 16-bit floats
  bf16,     ///< bfloat16
  q8_0,     ///< 8 bits
  q4_0,     ///< 4 bits
  q4_1,     ///< 4 bits and a minimum
  q5_0,     ///< 5 bits
  q5_1,     ///< 5 bits and a minimum
  iq4_nl,   ///< 4-bit indices
  q4_K,     ///< 4 bits and a minimum; factors of 32 numbers
  q5_K,     ///< 5 bits and a minimum; factors of 32 numbers
  q6_K,     ///< 6 bits; factors of 16 numbers
  q2_K,     ///< 2 bits and a minimum; factors of 16 numbers
  q3_K,     ///< 3 bits; factors of 16 numbers
  iq4_xs,   ///< 4-bit indices; factors of 32 numbers
  mxfp4,    ///< 4-bit floats; the scale is a power of two
  iq3_xxs,  ///< 8-bit indices of 4 numbers; factors of 32 numbers
  iq3_s,    ///< 9-bit indices of 4 numbers; factors of 32 numbers
  iq2_xxs,  ///< 8-bit indices of 8 numbers; factors of 32 numbers
  iq2_xs,   ///< 9-bit indices of 8 numbers; factors of 16 numbers
  iq2_s,    ///< 10-bit indices of 8 numbers; factors of 16 numbers
  iq1_s,    ///< 11-bit indices of 8 numbers; factors of 32 numbers
  iq1_m,    ///< 11-bit indices of 8 numbers; factors of 16 numbers
  tq2_0     ///< -1, 0 and 1
};
inline constexpr std::size_t weight_format_count = 24;  ///< The number of formats.
/// The name of a format, as in ggml.
std::string_view weight_format_name(WeightFormat format);

/// Device memory shared by the weights of a model. It uses a few large storages instead of many small ones, because
/// drivers round up each allocation. It may be destroyed before the weights.
class WeightMemory {
 public:
  /// Allocates on `device`. `label` appears in messages.
  WeightMemory(Device device, std::string label);
  WeightMemory(WeightMemory&&) noexcept;
  WeightMemory& operator=(WeightMemory&&) noexcept;
  ~WeightMemory();
  /// The device.
  Device device() const { return device_; }
  /// Announces a weight that will be packed into this memory. The order is irrelevant. Announced weights share
  /// storages; every other weight gets a separate storage.
  void expect(WeightFormat format, std::int64_t rows, std::int64_t columns);
  /// Returns `bytes` of memory as a storage and an offset, which is a multiple of `alignment`. Throws OutOfMemory.
  std::pair<std::shared_ptr<Storage>, std::uint64_t> take(std::uint64_t bytes);
  static constexpr std::uint64_t alignment = 256;  ///< Alignment of the memory that take() returns, in bytes.

 private:
  struct Places;
  Device device_;
  std::string label_;
  detail::Owner<Places> places_;
};

/// An immutable matrix (rows, columns) on one device. Copies share the memory.
class Weight {
 public:
  Weight() = default;
  /// Packs `data`, which is row-major in the format of the file. Throws ShapeError if a row is not a whole number of
  /// blocks, or if the size of `data` does not match.
  static Weight pack(WeightFormat format, std::span<const std::byte> data, std::int64_t rows, std::int64_t columns,
                     Device device, std::string label = {});
  /// Packs `bytes` bytes without loading all of them into memory at the same time. `read(offset, to)` must fill `to`
  /// with the bytes from `offset`. It is called once for each part, in any order and from several threads concurrently.
  /// Its exceptions are rethrown.
  using Read = Callback<void(std::uint64_t offset, std::span<std::byte> to)>;
  static Weight pack(WeightFormat format, std::uint64_t bytes, const Read& read, std::int64_t rows,
                     std::int64_t columns, Device device, std::string label = {});
  /// Like the previous overload, but allocates from `memory`.
  static Weight pack(WeightFormat format, std::uint64_t bytes, const Read& read, std::int64_t rows,
                     std::int64_t columns, WeightMemory& memory, std::string label = {});

  /// Quantises a matrix (rows, columns) on the host, as quantize() of weight_blocks.h, and packs it for `device`. Throws
  /// ArgumentError for formats that can only be read from files. Throws ShapeError if `matrix` is not
  /// two-dimensional, or if a row is not a whole number of blocks.
  static Weight of(const Array& matrix, WeightFormat format, Device device, std::string label = {});

  /// Returns rows [first, first + count), which share the memory. Both numbers must be multiples of row_group().
  Weight slice_rows(std::int64_t first, std::int64_t count) const;
  /// Number of rows that a device stores together.
  static std::int64_t row_group(Device device);

  /// False for a default-constructed weight.
  bool valid() const { return rows_ != 0; }
  /// Number of rows: the outputs of a product.
  std::int64_t rows() const { return rows_; }
  /// Number of columns: the inputs of a product.
  std::int64_t columns() const { return columns_; }
  /// The format of the numbers.
  WeightFormat format() const { return format_; }
  /// The device it was packed for.
  Device device() const { return parts_.at(0).device(); }
  std::uint64_t bytes() const;  ///< size on the device, without the codebook that weights of a format share
  /// The packed arrays; WeightSpec in kernels.h describes their layout.
  const std::vector<Array>& parts() const { return parts_; }

 private:
  std::span<const Array> own_parts() const;  ///< without the codebook, which weights share
  /// `from(offset, bytes, room)` returns the address of these bytes. It may use `room` as a buffer. It is called from
  /// several threads.
  using From = Callback<const std::byte*(std::uint64_t offset, std::size_t bytes, std::vector<std::byte>& room)>;
  static Weight pack_from(const From& from, WeightFormat format, std::uint64_t bytes, std::int64_t rows,
                          std::int64_t columns, Device device, WeightMemory* memory, const std::string& label);
  WeightFormat format_ = WeightFormat::f32;
  std::int64_t rows_ = 0, columns_ = 0;
  std::vector<Array> parts_;
};

/// Returns x (..., columns) times the transposed weight: (..., rows), f32. For quantised formats, the rows of x are
/// rounded to 8 bits with a scale per 32 numbers, which causes a relative error of about 0.4 % in a product. For f32,
/// f16 and bf16, x is not rounded to less than 22 bits.
///
/// If the vendor's library is used (see TESSERA_BLAS), products with at least 64 rows of x (with at least 16 rows and a
/// weight in f16 or bf16, if the device has no matrix units for it) are computed by the library: x is rounded to f16
/// (to bf16 for bf16), and the weight is converted to that dtype, which needs memory for one weight.
Array linear(const Array& x, const Weight& weight);
/// Returns the products of x with several weights, in the order of the weights. x is rounded only once.
std::vector<Array> linear(const Array& x, std::span<const Weight> weights);

/// Returns rows `ids` of the weight as f32: (..., columns). `ids` can have any integer dtype and any shape. An id out
/// of range returns a row of zeros.
Array embedding_rows(const Weight& weight, const Array& ids);

/// Returns the whole matrix as f32 (rows, columns), for tests and tools. The result is bit-identical to ggml's
/// reference.
Array dequantize(const Weight& weight);

}  // namespace tessera
