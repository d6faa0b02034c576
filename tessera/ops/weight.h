// SPDX-License-Identifier: Apache-2.0
// Weight matrices in the formats of model files, repacked once for the device that multiplies by them.
// The layout serves the kernels: consecutive threads read consecutive bytes.
#pragma once

#include <functional>
#include <map>
#include <span>

#include "tessera/array/array.h"

namespace tessera {

/// How a file holds weights. Blocks are ggml's: 32 numbers with a scale in f16 and in some formats a minimum; those
/// named K have 256, with 6-bit or 8-bit factors of the scale for every 32 or 16. q8_0 has signed bytes, iq4_nl 4-bit
/// numbers of a table of 16 values. https://github.com/ggml-org/ggml, ggml-common.h; the table is weight_formats.cpp.
enum class WeightFormat : std::uint8_t { f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1, iq4_nl, q4_K, q5_K, q6_K };
inline constexpr std::size_t weight_format_count = 12;  ///< The number of formats.
/// As ggml writes it.
std::string_view weight_format_name(WeightFormat format);

/// Memory on one device that the weights of a model share: a few large storages in place of many, since what is
/// allocated is rounded up each time. It may be dropped before the weights.
class WeightMemory {
 public:
  /// Memory of `device`; `label` appears in messages.
  WeightMemory(Device device, std::string label) : device_(device), label_(std::move(label)) {}
  /// The device.
  Device device() const { return device_; }
  /// A weight that will be packed here, in any order. Storages are made to fit what is expected; what is not expected
  /// gets one of its own.
  void expect(WeightFormat format, std::int64_t rows, std::int64_t columns);
  /// `bytes` of memory at a multiple of `alignment`: a storage, and where in it. OutOfMemory.
  std::pair<std::shared_ptr<Storage>, std::uint64_t> take(std::uint64_t bytes);
  static constexpr std::uint64_t alignment = 256;  ///< Of what take() returns, in bytes.

 private:
  using Place = std::pair<std::shared_ptr<Storage>, std::uint64_t>;
  Device device_;
  std::string label_;
  std::map<std::uint64_t, std::uint64_t> expected_;     ///< how many of a size have no place yet
  std::map<std::uint64_t, std::vector<Place>> places_;  ///< allocated and not taken, by size
};

/// An immutable matrix (rows, columns) on one device; copies share memory.
class Weight {
 public:
  Weight() = default;
  /// Packs `data`, row after row in the file's format. ShapeError if a row is not whole blocks or the bytes do not fit.
  static Weight pack(WeightFormat format, std::span<const std::byte> data, std::int64_t rows, std::int64_t columns,
                     Device device, std::string label = {});
  /// The same of `bytes` bytes that are never in memory together: `read(offset, to)` fills `to` with those from
  /// `offset` on, each once, in any order and from several threads at once. What it throws passes.
  using Read = std::function<void(std::uint64_t offset, std::span<std::byte> to)>;
  static Weight pack(WeightFormat format, std::uint64_t bytes, const Read& read, std::int64_t rows,
                     std::int64_t columns, Device device, std::string label = {});
  /// The same in `memory`.
  static Weight pack(WeightFormat format, std::uint64_t bytes, const Read& read, std::int64_t rows,
                     std::int64_t columns, WeightMemory& memory, std::string label = {});

  /// A matrix (rows, columns) rounded to the format as ggml does, on the host, packed for `device`. Formats f32, f16,
  /// bf16, q8_0 and q4_0, else ArgumentError. ShapeError as above, and of what is no matrix.
  static Weight of(const Array& matrix, WeightFormat format, Device device, std::string label = {});

  /// False for a default-constructed weight.
  bool valid() const { return rows_ != 0; }
  /// Rows, which are the outputs of a product.
  std::int64_t rows() const { return rows_; }
  /// Columns, which are the inputs of a product.
  std::int64_t columns() const { return columns_; }
  /// The format of the numbers.
  WeightFormat format() const { return format_; }
  /// The device it was packed for.
  Device device() const { return parts_.at(0).device(); }
  std::uint64_t bytes() const;  ///< on the device
  /// The packed arrays; what each holds is said in kernels.h.
  const std::vector<Array>& parts() const { return parts_; }

 private:
  /// `from(offset, bytes, room)` gives the address of so many bytes, which may be in `room`; from several threads.
  using From = std::function<const std::byte*(std::uint64_t offset, std::size_t bytes, std::vector<std::byte>& room)>;
  static Weight pack_from(const From& from, WeightFormat format, std::uint64_t bytes, std::int64_t rows,
                          std::int64_t columns, Device device, WeightMemory* memory, const std::string& label);
  WeightFormat format_ = WeightFormat::f32;
  std::int64_t rows_ = 0, columns_ = 0;
  std::vector<Array> parts_;
};

/// x (..., columns) times the transposed weight gives (..., rows), f32. For quantised formats the rows of x are rounded
/// to 8 bits a number with a scale per 32 (relative error of a product about 0.4 %); f32, f16 and bf16 weights multiply
/// x as it is.
Array linear(const Array& x, const Weight& weight);
/// The products with several weights, in their order; x is rounded once for all.
std::vector<Array> linear(const Array& x, std::initializer_list<const Weight*> weights);

/// Rows `ids` (any integer dtype, any shape) of the weight as f32: (..., columns). An id out of range gives a row of
/// zeros.
Array embedding_rows(const Weight& weight, const Array& ids);

/// The whole matrix as f32 (rows, columns), for tests and tools: to the bit what ggml's reference gives.
Array dequantize(const Weight& weight);

}  // namespace tessera
