// SPDX-License-Identifier: Apache-2.0
// Caches the launch of small elementwise operations per thread, like cached_operation.h for products and reductions.
// Internal to array/.
#pragma once

#include <array>
#include <span>

#include "tessera/array/expression.h"

namespace tessera {
class Kernel;
class QueueCore;
namespace detail {

class CachedExpression {
 public:
  /// Applies `op` to terms broadcast to `shape`. The result is written to new memory of `dtype`, or to `target` if it
  /// is not null. The terms must outlive this object.
  CachedExpression(ir::Op op, std::uint8_t sub, DType dtype, Device device, const Shape& shape,
                   std::span<const Term> terms, const StridedView* target = nullptr);

  /// True if the cached launch can be used: this thread has a cache entry and no observer. Each term is then a scalar,
  /// or memory from the pool that no other task writes.
  explicit operator bool() const { return queue_ != nullptr; }
  /// The new memory, or null if there is a target. Requires operator bool.
  std::shared_ptr<Storage> operator()() const;
  /// Caches the launch that has just computed this operation. That launch must be all the work of the operation.
  void keep(const Kernel& kernel, const std::array<std::uint64_t, 3>& threads,
            std::span<const LaunchArgument> arguments) const;

 private:
  struct Entry;
  static constexpr std::size_t max_dimensions = 4, max_terms = 3;
  const DType dtype_;
  const std::span<const Term> terms_;
  const StridedView* const target_;
  std::size_t elements_ = 1;
  /// The cache key: the compiled structure and all numbers of the launch except scalars and start addresses.
  std::array<std::int64_t, 3 + max_dimensions*(max_terms + 2)> key_;  ///< Only the first `words_` are initialised.
  std::size_t words_ = 0;
  std::array<const StridedView*, max_terms> inputs_{};  ///< without duplicates
  std::size_t input_count_ = 0;
  Entry* place_ = nullptr;  ///< null if the operation is not cached
  QueueCore* queue_ = nullptr;
};

}  // namespace detail
}  // namespace tessera
