// SPDX-License-Identifier: Apache-2.0
// Weight matrices in the formats of model files, packed for a device: consecutive threads read consecutive bytes.
#pragma once

#include <memory>
#include <span>

#include "tessera/array/array.h"
#include "tessera/base/callback.h"
#include "tessera/base/owner.h"

namespace tessera {

/// Formats of weights in files. Blocks are ggml's: 32 numbers with an f16 scale and in some formats a minimum. K
/// formats have blocks of 256, with 6-bit or 8-bit factors of the scale for each 32 or 16 numbers. q8_0 are signed
/// bytes; iq4_nl are 4-bit indices of a table of 16 values. See ggml-common.h of https://github.com/ggml-org/ggml, and
/// weight_formats.cpp.
enum class WeightFormat : std::uint8_t { f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1, iq4_nl, q4_K, q5_K, q6_K };
inline constexpr std::size_t weight_format_count = 12;  ///< The number of formats.
/// The name of a format, as in ggml.
std::string_view weight_format_name(WeightFormat format);

/// Device memory shared by the weights of a model: a few large storages instead of many small ones, because drivers
/// round up each allocation. May be destroyed before the weights.
class WeightMemory {
 public:
  /// Memory of `device`; `label` appears in messages.
  WeightMemory(Device device, std::string label);
  WeightMemory(WeightMemory&&) noexcept;
  WeightMemory& operator=(WeightMemory&&) noexcept;
  ~WeightMemory();
  /// The device.
  Device device() const { return device_; }
  /// Announces a weight that will be packed here; the order is irrelevant. Storages are sized for announced weights;
  /// others get a separate storage each.
  void expect(WeightFormat format, std::int64_t rows, std::int64_t columns);
  /// Returns `bytes` of memory at a multiple of `alignment`: a storage and an offset. Throws OutOfMemory.
  std::pair<std::shared_ptr<Storage>, std::uint64_t> take(std::uint64_t bytes);
  static constexpr std::uint64_t alignment = 256;  ///< Alignment of the memory that take() returns, in bytes.

 private:
  struct Places;
  Device device_;
  std::string label_;
  Owner<Places> places_;
};

/// An immutable matrix (rows, columns) on one device; copies share memory.
class Weight {
 public:
  Weight() = default;
  /// Packs `data`, row-major in the file's format. Throws ShapeError if a row is not a whole number of blocks or the
  /// size of `data` does not match.
  static Weight pack(WeightFormat format, std::span<const std::byte> data, std::int64_t rows, std::int64_t columns,
                     Device device, std::string label = {});
  /// Packs `bytes` bytes without loading them all at once: `read(offset, to)` must fill `to` with the bytes from
  /// `offset`. It is called once for each part, in any order and from several threads concurrently. Its exceptions are
  /// rethrown.
  using Read = Callback<void(std::uint64_t offset, std::span<std::byte> to)>;
  static Weight pack(WeightFormat format, std::uint64_t bytes, const Read& read, std::int64_t rows,
                     std::int64_t columns, Device device, std::string label = {});
  /// Same, in memory from `memory`.
  static Weight pack(WeightFormat format, std::uint64_t bytes, const Read& read, std::int64_t rows,
                     std::int64_t columns, WeightMemory& memory, std::string label = {});

  /// Quantises a matrix (rows, columns) on the host, with ggml's rounding, and packs it for `device`. Throws
  /// ArgumentError for formats other than f32, f16, bf16, q8_0 and q4_0; ShapeError as above, or if it is not a matrix.
  static Weight of(const Array& matrix, WeightFormat format, Device device, std::string label = {});

  /// False for a default-constructed weight.
  bool valid() const { return rows_ != 0; }
  /// Number of rows (outputs of a product).
  std::int64_t rows() const { return rows_; }
  /// Number of columns (inputs of a product).
  std::int64_t columns() const { return columns_; }
  /// The format of the numbers.
  WeightFormat format() const { return format_; }
  /// The device it was packed for.
  Device device() const { return parts_.at(0).device(); }
  std::uint64_t bytes() const;  ///< size on the device
  /// The packed arrays; WeightSpec in kernels.h describes their layout.
  const std::vector<Array>& parts() const { return parts_; }

 private:
  /// `from(offset, bytes, room)` returns the address of these bytes, which may be in `room`; it is called from several
  /// threads.
  using From = Callback<const std::byte*(std::uint64_t offset, std::size_t bytes, std::vector<std::byte>& room)>;
  static Weight pack_from(const From& from, WeightFormat format, std::uint64_t bytes, std::int64_t rows,
                          std::int64_t columns, Device device, WeightMemory* memory, const std::string& label);
  WeightFormat format_ = WeightFormat::f32;
  std::int64_t rows_ = 0, columns_ = 0;
  std::vector<Array> parts_;
};

/// Returns x (..., columns) times the transposed weight: (..., rows), f32. For quantised formats the rows of x are
/// rounded to 8 bits with a scale per 32 numbers (relative error of a product about 0.4 %); for f32, f16 and bf16 x is
/// not rounded.
Array linear(const Array& x, const Weight& weight);
/// Returns the products with several weights, in the same order; x is rounded only once.
std::vector<Array> linear(const Array& x, std::initializer_list<const Weight*> weights);

/// Returns rows `ids` (any integer dtype, any shape) of the weight as f32: (..., columns). An id out of range gives a
/// row of zeros.
Array embedding_rows(const Weight& weight, const Array& ids);

/// Returns the whole matrix as f32 (rows, columns), for tests and tools; bitwise equal to ggml's reference.
Array dequantize(const Weight& weight);

}  // namespace tessera
