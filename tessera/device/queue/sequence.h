// SPDX-License-Identifier: Apache-2.0
// Records work once and submits it again with one call, for a decoding or training step that is the same every time.
// Data that changes between replays is passed in device memory or in scalars with slots (`LaunchArgument::in_slot`).
// Random numbers are drawn from Generators that outlive the recording: each replay draws from the generator's current
// state and advances it.
#pragma once

#include <memory>

#include "tessera/base/callback.h"
#include "tessera/base/owner.h"
#include "tessera/device/launch/launch_arguments.h"

namespace tessera {

class SequenceMemory;

/// Memory shared by several sequences of one queue for data that each needs only while it runs. If one thread at a time
/// records or replays one of them, such as a training step for several shapes, they need hardly more memory than the
/// largest, provided that it is recorded first: blocks are not replaced by larger ones. Unneeded blocks are returned to
/// the device. Copies refer to the same pool; it lives as long as its sequences.
class SequencePool {
 public:
  SequencePool();                               ///< Creates an empty pool.
  SequencePool(const SequencePool&) = default;  // no move: a pool is never null
  SequencePool& operator=(const SequencePool&) = default;

 private:
  friend class Sequence;
  std::shared_ptr<SequenceMemory> memory_;
};

/// Recorded work, replayed with one call. CUDA and ROCm get it as a graph, oneAPI as a closed command list; for other
/// backends the operations are submitted one by one without the overhead of checks and lookups. Move-only; replays must
/// be serialised by the caller.
///
///   Sequence step = Sequence::record(queue, [&] { y += x, scale.launch(n, y, 2.f); });
///   step.replay();
class Sequence {
 public:
  Sequence();  ///< Creates an empty sequence.
  ~Sequence();
  Sequence(Sequence&&) noexcept;
  Sequence& operator=(Sequence&&) noexcept;

  /// Calls `work` and records its launches, fills and copies within the device. They run on `queue`, which is the
  /// current one meanwhile, and computed arrays are valid afterwards. A replay does the same on the same memory, which
  /// is kept alive. Arrays that `work` leaves pending are not included: call `eval()`.
  ///
  /// Memory that `work` allocates and releases is reused by its later allocations and by other recordings with the same
  /// `pool`. Memory that existed before or outlives the recording is not shared with others, except for data that
  /// `work` itself had there before its final contents. As during recording, memory that `work` allocates has undefined
  /// contents at the start of each replay: allocate before recording what must persist between replays.
  ///
  /// Throws ArgumentError for work that cannot be replayed: host reads, writes or waits; other queues and devices;
  /// `Queue::submit_native`; a nested recording. Nothing is recorded then, the work done so far stays done, and the
  /// queue stays usable. Also throws ArgumentError if the pool belongs to another queue, or another thread records with
  /// it; OutOfMemory or KernelError if the driver cannot create a graph.
  static Sequence record(Queue& queue, const Callback<void()>& work, const SequencePool& pool = SequencePool());
  /// Like record, but work that cannot be replayed is run to its end without being recorded. The sequence is then
  /// empty, and `why` describes the reason.
  static Sequence record_or_run(Queue& queue, const Callback<void()>& work, std::string& why,
                                const SequencePool& pool = SequencePool());
  /// Calls `work`, which should repeat the recorded work, instead of a replay, and records it again. Returns an empty
  /// string if both are equal. Otherwise the sequence becomes empty, and the result describes the first difference (a
  /// kernel, its shape, a scalar without a slot, memory that the work did not allocate) or why recording failed.
  /// Generators that the work creates or seeds itself are no longer advanced by replays. If `work` throws, the sequence
  /// is unchanged.
  std::string record_again(const Callback<void()>& work);

  /// Submits the work again, ordered as one operation with respect to other uses of its memory. Pending expressions
  /// that read what it writes are computed first.
  /// Throws errors of a launch; DeviceError if the device is lost; OutOfMemory if its memory in the pool was given to
  /// an array and cannot be replaced; ArgumentError if the sequence is empty, or another thread records with its pool.
  void replay();
  /// Sets the scalars in a slot for later replays. Throws ArgumentError if the slot does not exist or has another
  /// dtype, or if an index is too large for the compiled kernels.
  void set(std::uint32_t slot, const LaunchArgument& value);

  /// False for a default-constructed sequence.
  bool valid() const { return state_ != nullptr; }
  Device device() const;     ///< Device on which it was recorded.
  std::size_t size() const;  ///< Number of operations.
  /// True if the driver gets the work with one call.
  bool one_call() const;

 private:
  struct State;
  struct Attempt;
  explicit Sequence(Owner<State> state);
  Owner<State> state_;
};

}  // namespace tessera
