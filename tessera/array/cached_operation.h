// SPDX-License-Identifier: Apache-2.0
// Small operations done again: on arrays of the same shapes, strides and dtypes as before on this thread, which then
// need no choice of a kernel and no check of what is the same. Inside array/ and ops/.
#pragma once

#include <array>
#include <span>

#include "tessera/array/array.h"
#include "tessera/device/launch/kernel.h"

namespace tessera {
class QueueCore;
namespace detail {
class Fused;

/// One launch that computes a new array from one or two, with all that this thread knows of it. The operands outlive
/// it.
class CachedOperation {
 public:
  /// Which operation it is, in the lowest byte of the number that names it; the rest is for its attributes.
  enum Kind : std::uint64_t { product = 1, reduction, copy, reversal, selection };

  /// `what` and the shapes, strides and dtypes of the operands say all of the operation.
  CachedOperation(std::uint64_t what, const Array& first, const Array* second = nullptr);

  /// Whether it can be done as before: this thread knows how that went, and nobody looks on (no history, no observer,
  /// no recording, no trace), and the operands are computed and in memory from the pool.
  explicit operator bool() const { return queue_ != nullptr; }
  Array operator()() const;    ///< if it can: the result
  std::uint32_t note() const;  ///< if it can: what `keep` was given

  struct Launch {
    const Kernel& kernel;
    std::array<std::uint64_t, 3> shape;
    std::span<const LaunchArgument> arguments;
    bool swapped = false;    ///< the second operand's memory comes before the first's
    bool counted = false;    ///< a counter that lies behind the result's elements comes after the result
    std::uint32_t note = 0;  ///< the operation's own
  };
  bool kept() const { return place_ != nullptr; }  ///< whether `keep` could do anything
  /// That this has just computed `out`, and nothing else was needed for it. Kept where it can be done again.
  void keep(const Array& out, const Launch& launch) const;

  /// The counter of `out`, which was made with one: of i64, at the first multiple of its size behind the elements.
  static BufferView counter(const Array& out);
  static std::size_t bytes_with_counter(std::size_t bytes) { return (bytes + 7) / 8 * 8 + 8; }

  static std::uint64_t done();  ///< again, by this thread so far, elementwise ones included; for tests
  static void count();          ///< one more of them

 private:
  struct Entry;
  const Array& first_;
  const Array* const second_;
  const std::uint64_t what_;
  std::uint64_t types_ = 0;
  Entry* place_ = nullptr;  ///< where this thread knows it, or would; null: it is not kept
  QueueCore* queue_ = nullptr;
};

/// Fused::run of what computes all of `out` and nothing else, kept.
void run(Fused& fused, const Array& out, const CachedOperation& repeated);

}  // namespace detail
}  // namespace tessera
