// SPDX-License-Identifier: Apache-2.0
// What training needs from the processes of a job (ranks). dist::World implements it; nn/ does not depend on it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tessera/array/array.h"
#include "tessera/base/callback.h"

namespace tessera {

/// Flags that the ranks exchange in each training step. Before the exchange, they are those of one rank.
struct StepFlags {
  bool stop = false;    ///< the rank wants to end training; afterwards: any rank does
  bool report = false;  ///< the rank wants to report progress; afterwards: the first rank does
};

/// Communication between ranks that train one model together. All ranks must call the same functions in the same order.
/// All functions block, and throw ConnectionError if a rank failed, ended or does not answer.
class Exchange {
 public:
  virtual int rank() const = 0;  ///< Number of this rank, from 0.
  virtual int size() const = 0;  ///< Number of ranks.
  /// True for rank 0, which writes files and prints.
  bool first() const { return rank() == 0; }

  /// Starts to add up the elements of a 1-D array of floats over the ranks, in a fixed order, and returns. The next
  /// sum_step stores the sums in the array. Until then, the array may be read and written.
  virtual void start_sum(std::uint64_t step, const Array& array) = 0;
  /// Adds up arrays like start_sum, stores all sums in their arrays, and combines the flags.
  virtual void sum_step(std::uint64_t step, std::span<const Array> rows, StepFlags& flags) = 0;
  /// Adds up arrays like sum_step, outside of steps.
  virtual void sum(std::span<const Array> arrays) = 0;
  /// Copies the contents of the first rank's arrays to those of all ranks. Throws MismatchError if shapes or dtypes
  /// differ. `what` is used in errors: "the model".
  virtual void broadcast(std::span<const Array> arrays, const std::string& what) = 0;
  /// Returns the text of rank `root`.
  virtual std::string broadcast(const std::string& text, int root = 0) = 0;
  /// Returns the numbers of all ranks.
  virtual std::vector<std::uint64_t> gather(std::uint64_t number) = 0;

 protected:
  ~Exchange() = default;
};

namespace detail {
/// Calls `f` on all ranks. If it throws on one of them, all throw: that rank its own exception, the others Error with
/// its text. `ranks` may be null.
void run_on_all(Exchange* ranks, const Callback<void()>& f);
}  // namespace detail

}  // namespace tessera
