// SPDX-License-Identifier: Apache-2.0
// Caches the launch of small operations per thread. When an operation is repeated with the same shapes, strides and
// dtypes, kernel selection and checks are skipped. Internal to array/ and ops/.
#pragma once

#include <array>
#include <span>

#include "tessera/array/array.h"
#include "tessera/device/launch/kernel.h"

namespace tessera {
class QueueCore;
namespace detail {
class Fused;

/// A launch that computes a new array from one or two operands, together with this thread's cache entry for it. The
/// operands must outlive this object.
class CachedOperation {
 public:
  /// The kind of operation, stored in the lowest byte of the key. The other bytes contain its attributes.
  enum Kind : std::uint64_t { product = 1, reduction, copy, reversal, selection };

  /// `what` and the shapes, strides and dtypes of the operands must fully describe the operation.
  CachedOperation(std::uint64_t what, const Array& first, const Array* second = nullptr);

  /// True if the cached launch can be used. This requires that this thread has a cache entry, that nothing observes the
  /// operation (no history, observer, recording or trace), and that the operands are computed and in memory from the
  /// pool.
  explicit operator bool() const { return queue_ != nullptr; }
  Array operator()() const;    ///< The result. Requires operator bool.
  std::uint32_t note() const;  ///< The note passed to `keep`. Requires operator bool.

  struct Launch {
    const Kernel& kernel;
    std::array<std::uint64_t, 3> shape;
    std::span<const LaunchArgument> arguments;
    bool swapped = false;    ///< The second operand's memory is passed before the first's.
    bool counted = false;    ///< A counter stored after the result's elements is passed after the result.
    std::uint32_t note = 0;  ///< A value that the operation can store with the entry and read back with note().
  };
  bool kept() const { return place_ != nullptr; }  ///< True if `keep` would have an effect.
  /// Caches the launch that has just computed `out`. That launch must be all the work of the operation.
  void keep(const Array& out, const Launch& launch) const;

  /// The i64 counter of `out`, at the first multiple of 8 bytes after its elements. `out` must have been allocated with
  /// bytes_with_counter.
  static BufferView counter(const Array& out);
  static std::size_t bytes_with_counter(std::size_t bytes) { return (bytes + 7) / 8 * 8 + 8; }

  /// The number of cached launches on this thread so far, including those of elementwise operations; for tests.
  static std::uint64_t done();
  static void count();  ///< Increments done().

 private:
  struct Entry;
  const Array& first_;
  const Array* const second_;
  const std::uint64_t what_;
  std::uint64_t types_ = 0;
  Entry* place_ = nullptr;  ///< This thread's entry; null if the operation is not cached.
  QueueCore* queue_ = nullptr;
};

/// Runs `fused` and caches the launch. `fused` must compute all of `out` and nothing else.
void run(Fused& fused, const Array& out, const CachedOperation& repeated);

}  // namespace detail
}  // namespace tessera
