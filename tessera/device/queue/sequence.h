// SPDX-License-Identifier: Apache-2.0
// Records work once and submits it again with one call. Useful for decoding or training steps that are the same every
// time. Data that changes between replays is passed in device memory or in scalars with slots
// (`LaunchArgument::in_slot`). For a Generator that outlives the recording, each replay draws from the current state
// and advances it.
#pragma once

#include <memory>

#include "tessera/base/callback.h"
#include "tessera/base/owner.h"
#include "tessera/device/launch/launch_arguments.h"

namespace tessera {

class SequenceMemory;

/// Memory that several sequences of one queue share for temporary data. Record the largest sequence first, because
/// blocks are not replaced by larger ones. The sequences (for example, training steps for several shapes) then need
/// hardly more memory than the largest one. Only one thread at a time may record or replay them. Unneeded blocks are
/// returned to the device. Copies of a SequencePool refer to the same pool, which exists until its last copy and its
/// last sequence are destroyed.
class SequencePool {
 public:
  SequencePool();                               ///< Creates an empty pool.
  SequencePool(const SequencePool&) = default;  // no move: a pool is never null
  SequencePool& operator=(const SequencePool&) = default;

 private:
  friend class Sequence;
  std::shared_ptr<SequenceMemory> memory_;
};

/// Recorded work that is replayed with one call. CUDA and ROCm submit it as a graph, oneAPI as a closed command list.
/// Other backends submit the operations one by one, but without checks and lookups. Move-only. Replays must be
/// serialised by the caller.
///
///   Sequence step = Sequence::record(queue, [&] { y += x, scale.launch(n, y, 2.f); });
///   step.replay();
class Sequence {
 public:
  Sequence();  ///< Creates an empty sequence.
  ~Sequence();
  Sequence(Sequence&&) noexcept;
  Sequence& operator=(Sequence&&) noexcept;

  /// Calls `work` and records its launches, fills and copies within the device. The work also runs on `queue`, which is
  /// the current queue during the call, so arrays computed by `work` are valid afterwards. A replay performs the same
  /// operations on the same memory, which the sequence keeps alive. Deferred arrays that `work` does not evaluate are
  /// not included: call `eval()`.
  ///
  /// Memory that `work` allocates and releases is reused by its later allocations and by other recordings with the same
  /// `pool`. Memory that exists before or after the recording is not shared with other sequences; only `work` itself
  /// may use it for other data before it writes the final contents. Memory that `work` allocates has undefined contents
  /// at the start of each replay. Allocate memory with contents that must persist between replays before recording.
  ///
  /// Throws ArgumentError for work that cannot be replayed: reads, writes or waits by the host, uses of other queues or
  /// devices, `Queue::submit_native`, and nested recordings. In this case, nothing is recorded. Work that was submitted
  /// before the error is not undone, and the queue stays usable. Also throws ArgumentError if the pool belongs to
  /// another queue or if another thread is recording with it. Throws OutOfMemory or KernelError if the driver cannot
  /// create a graph.
  static Sequence record(Queue& queue, const Callback<void()>& work, const SequencePool& pool = SequencePool());
  /// Like record, but does not throw if the work cannot be replayed. The work then runs to its end without being
  /// recorded, the sequence is empty, and `why` contains the reason.
  static Sequence record_or_run(Queue& queue, const Callback<void()>& work, std::string& why,
                                const SequencePool& pool = SequencePool());
  /// Runs and records `work` instead of a replay, to check that it still does the same as the recorded work. Returns an
  /// empty string if both are equal. Otherwise, the sequence becomes empty, and the result describes the first
  /// difference (a kernel, its shape, a scalar without a slot, memory that the work did not allocate) or why recording
  /// failed. Replays no longer advance generators that the work creates or seeds itself. If `work` throws, the sequence
  /// is not changed.
  std::string record_again(const Callback<void()>& work);

  /// Calls `f`. In a recording, ends a piece of the recorded work here: each replay submits the work before, calls `f`,
  /// and submits the rest. `f` may wait for the device and copy memory that exists outside of the recording from and to
  /// the host, for example to exchange it with other processes. Pending expressions that read memory which `f` writes
  /// must have been evaluated before.
  static void between(const Callback<void()>& f);

  /// Submits the recorded work again. With respect to other uses of its memory, the replay is ordered as one operation.
  /// Pending expressions that read the written memory are computed first.
  /// Throws the errors of a launch. Throws DeviceError if the device is lost. Throws OutOfMemory if memory of the pool
  /// was given to an array and cannot be replaced. Throws ArgumentError if the sequence is empty or if another thread
  /// records with its pool.
  void replay();
  /// Sets the scalars in a slot for later replays. Throws ArgumentError if the slot does not exist or has a different
  /// dtype, or if an index is too large for the compiled kernels.
  void set(std::uint32_t slot, const LaunchArgument& value);

  /// False for a default-constructed sequence.
  bool valid() const { return state_ != nullptr; }
  Device device() const;     ///< Device on which the work was recorded.
  std::size_t size() const;  ///< Number of operations.
  /// True if the work is submitted to the driver with one call.
  bool one_call() const;

 private:
  struct State;
  struct Attempt;
  explicit Sequence(detail::Owner<State> state);
  detail::Owner<State> state_;
};

}  // namespace tessera
