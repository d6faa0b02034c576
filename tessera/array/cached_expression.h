// SPDX-License-Identifier: Apache-2.0
// One elementwise operation on small memory, computed again: a thread keeps the launches of the last ones it did, as it
// does of products and reductions (cached_operation.h). Inside array/ only.
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
  /// `op` on terms seen as `shape`, into new memory of `dtype` or into `target`. The terms outlive it.
  CachedExpression(ir::Op op, std::uint8_t sub, DType dtype, Device device, const Shape& shape,
                   std::span<const Term> terms, const StridedView* target = nullptr);

  /// Whether it can be done as before: this thread knows the launch, and is not observed. Terms then are scalars, and
  /// memory from the pool that no other task writes.
  explicit operator bool() const { return queue_ != nullptr; }
  std::shared_ptr<Storage> operator()() const;  ///< if it can: the new memory, or null if there is a target
  /// Keeps the launch that has just computed this and nothing else.
  void keep(const Kernel& kernel, const std::array<std::uint64_t, 3>& threads,
            std::span<const LaunchArgument> arguments) const;

 private:
  struct Entry;
  static constexpr std::size_t max_dimensions = 4, max_terms = 3;
  const DType dtype_;
  const std::span<const Term> terms_;
  const StridedView* const target_;
  std::size_t elements_ = 1;
  /// What is compiled and the numbers that it is launched with, but for scalars and where memory begins.
  std::array<std::int64_t, 3 + max_dimensions*(max_terms + 2)> key_;  ///< not cleared: the first `words_`
  std::size_t words_ = 0;
  std::array<const StridedView*, max_terms> inputs_{};  ///< different ones
  std::size_t input_count_ = 0;
  Entry* place_ = nullptr;  ///< null: it is not kept
  QueueCore* queue_ = nullptr;
};

}  // namespace detail
}  // namespace tessera
