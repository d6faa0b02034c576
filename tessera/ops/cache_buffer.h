// SPDX-License-Identifier: Apache-2.0
// Internal to ops/. Keys and values of a KV cache as kernel parameters, in f32, f16, or as Q8_0 (DType::i8): blocks of
// 32 numbers of a head with an f16 scale, 34 bytes for each.
//
// A row of i8 has the numbers of a head, then its scales. Transposed, as keys of pages are, (head size, 64) numbers are
// followed by (head size / 32, 64) scales.
#pragma once

#include <vector>

#include "tessera/array/array.h"
#include "tessera/ops/kernels.h"
#include "tessera/ops/paged_attention.h"

namespace tessera::ops {

inline constexpr int cache_block = 32;  ///< numbers with one scale, in a cache of DType::i8

/// Keys or values that a kernel reads.
class CacheBuffer {
 public:
  CacheBuffer() = default;
  CacheBuffer(const char* name, const char* scales, DType dtype, std::uint32_t head_size)
      : numbers_(ir::buffer_param(name, dtype, ir::Access::read)), head_size_(static_cast<int>(head_size)) {
    if (dtype == DType::i8) scales_ = ir::buffer_param(scales, DType::f16, ir::Access::read);
  }
  bool quantised() const { return numbers_.dtype() == DType::i8; }
  /// Elements of the array for a position of a head.
  int row() const { return static_cast<int>(cache_row(head_size_, numbers_.dtype())); }
  /// Loads element `element` of the row at `row`. If `exists` is valid, returns 0 where it is false. `block` is the
  /// element's block of 32, if the caller knows that it is the same for all threads.
  ir::Value load(ir::Value row, ir::Value element, ir::Value exists = {}, ir::Value block = {}) const {
    const ir::Value number = load_at(numbers_, row + element, exists);
    if (!quantised()) return number;
    return scaled(number, (row + head_size_) / 2 + (block.valid() ? block : element / cache_block),
                  block.valid() ? ir::Value() : exists);
  }
  /// Stores a row in f32 in shared memory: the threads of a block store one element each at a time.
  void convert(ir::Value row, const ir::BufferRef& to, ir::Value begin, std::uint32_t threads, ir::Value lane) const {
    const auto copy = [&](ir::Value first, int count, ir::Value block) {
      for_lanes(ir::index_literal(count), threads, lane, [&](ir::Value d, ir::Value exists) {
        const auto one = [&] { to.store(begin + first + d, load(row, first + d, {}, block)); };
        exists.valid() ? ir::if_(exists, one) : one();
      });
    };
    if (!quantised()) return copy(ir::index_literal(0), head_size_, {});
    ir::for_(0, head_size_ / cache_block, [&](ir::Value block) { copy(block * cache_block, cache_block, block); });
  }
  /// Returns the block of the elements `first` to `first + threads - 1` of a row, if it is the same.
  static ir::Value block_of(int first, int threads) {
    return cache_block % threads == 0 ? ir::index_literal(first / cache_block) : ir::Value();
  }
  /// Loads element `element` of the head in a page whose transposed keys begin at `head`.
  ir::Value load_transposed(ir::Value head, ir::Value element, ir::Value position) const {
    constexpr int page = page_positions;
    const ir::Value number = load_at(numbers_, head + element * page + position, {});
    if (!quantised()) return number;
    return scaled(number, (head + head_size_ * page) / 2 + element / cache_block * page + position, {});
  }

 private:
  // The product is exact: 7 bits times 11 bits.
  ir::Value scaled(ir::Value number, ir::Value scale, ir::Value exists) const {
    return ir::cast(DType::f32, number) * load_at(scales_, scale, exists);
  }
  ir::BufferRef numbers_, scales_;
  int head_size_ = 0;
};

/// Appends the arguments of a CacheBuffer. The scales are the same memory as the numbers.
inline void add_cache_arguments(std::vector<LaunchArgument>& args, const BufferView& cache) {
  args.emplace_back(cache);
  if (cache.dtype != DType::i8) return;
  BufferView scales = cache;
  scales.dtype = DType::f16, scales.elements /= 2;
  args.emplace_back(scales);
}

/// A block of 32 numbers that are rounded to 8 bits with a common scale. A kernel that writes a cache writes bytes
/// only, because it must not write the same memory as two dtypes.
struct RoundedBlock {
  ir::Value scale[2];  ///< the bytes of the f16
  std::vector<ir::Value> numbers;
  /// Rounds to the nearest multiple of the largest magnitude / 127. A block with NaN has the scale NaN.
  explicit RoundedBlock(const std::vector<ir::Value>& values) {
    const auto u32 = [](std::uint32_t bits) { return ir::literal(DType::u32, bits); };
    // Compares the numbers as integers, so that NaN is the largest.
    ir::Value bits = u32(0);
    for (const ir::Value& v : values) bits = ir::max(bits, ir::bitcast(DType::u32, v) & u32(0x7fffffff));
    const ir::Value largest = ir::bitcast(DType::f32, bits);
    const ir::Value inverse = ir::select(largest > 1e-35, 127.0 / largest, ir::literal(DType::f32, 0));
    const ir::Value half = ir::cast(DType::u32, ir::bitcast(DType::u16, ir::cast(DType::f16, largest / 127.0)));
    scale[0] = ir::cast(DType::i8, half & u32(255)), scale[1] = ir::cast(DType::i8, half >> u32(8));
    for (const ir::Value& v : values)
      numbers.push_back(ir::cast(DType::i8, ir::cast(DType::i32, ir::rint(v * inverse))));
  }
};

}  // namespace tessera::ops
