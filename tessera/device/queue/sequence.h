// SPDX-License-Identifier: Apache-2.0
// Work recorded once and put into a queue again with one call: a decoding or training step that is the same every time.
// What changes between replays lies in device memory, in scalars with a number (`LaunchArgument::in_slot`), or is drawn
// from a Generator that outlives the recording: each replay draws from where the generator is then, and advances it.
#pragma once

#include <functional>
#include <memory>

#include "tessera/device/launch/launch_arguments.h"

namespace tessera {

class SequenceMemory;

/// Memory that several sequences of one queue use in turn: what each needs only while it runs. Sequences of which one
/// thread at a time records or replays one, such as a training step for several shapes, then need hardly more than the
/// largest, if that is recorded first: no block is exchanged for a larger one. What none of them needs any more goes
/// back to the device. Copies are the same pool; it lives as long as its sequences.
class SequencePool {
 public:
  SequencePool();                               ///< An empty pool, which sequences may share.
  SequencePool(const SequencePool&) = default;  // and no move: there always is a pool
  SequencePool& operator=(const SequencePool&) = default;

 private:
  friend class Sequence;
  std::shared_ptr<SequenceMemory> memory_;
};

/// Recorded work. CUDA and ROCm get it as a graph, oneAPI as a closed command list; the other backends get one piece
/// after the other without what checks and looks-up cost. Move-only; one thread at a time replays it.
///
///   Sequence step = Sequence::record(queue, [&] { y += x, scale.launch(n, y, 2.f); });
///   step.replay();
class Sequence {
 public:
  Sequence();  ///< empty
  ~Sequence();
  Sequence(Sequence&&) noexcept;
  Sequence& operator=(Sequence&&) noexcept;

  /// Calls `work`, whose launches, fills and copies within the device go into `queue`, which is the current one
  /// meanwhile, and keeps them; arrays computed by it are valid afterwards. A replay does the same to the same memory,
  /// which is kept alive. Arrays that `work` leaves pending are not part of it: `eval()` what it is to compute.
  ///
  /// What `work` allocates and gives up serves its later allocations, and those of other recordings with the same
  /// `pool`. What there was before serves nobody else, nor does what outlives it, but for what `work` itself had in
  /// that memory earlier, which a replay puts there again before it writes what is to stay. As when it was recorded,
  /// memory that `work` allocates holds nothing at first in each replay: what is to last from one to the next is made
  /// before.
  ///
  /// ArgumentError, and nothing is kept, for what a replay could not repeat: the host reads or writes memory, or waits;
  /// other queues and devices; `Queue::submit_native`; a recording within a recording. What was done by then stays
  /// done, and the queue can be used on. OutOfMemory or KernelError if the driver cannot make a graph of it.
  /// ArgumentError too if the pool is another queue's, or another thread records with it.
  static Sequence record(Queue& queue, const std::function<void()>& work, const SequencePool& pool = SequencePool());
  /// As record, but work that a replay could not repeat is done to its end without being recorded. The sequence is
  /// empty then, and `why` gives the reason.
  static Sequence record_or_run(Queue& queue, const std::function<void()>& work, std::string& why,
                                const SequencePool& pool = SequencePool());
  /// Calls `work`, which is to do what was recorded, in place of a replay, and records it again. Returns the first
  /// difference: a kernel, its shape, a scalar that has no slot, memory that the work did not allocate; or why it could
  /// not be recorded. The sequence is empty then. No difference: an empty text. Generators that the work makes or sets
  /// itself are not followed any more. If `work` throws, the sequence stays as it was.
  std::string record_again(const std::function<void()>& work);

  /// Puts the work into the queue again, ordered as one piece of work after and before whatever else uses its memory;
  /// pending expressions that read what it writes are computed before. Errors of a launch; DeviceError if the device is
  /// lost; OutOfMemory if its place in the pool has gone to an array, and there is no other; ArgumentError if it is
  /// empty, or another thread records with its pool.
  void replay();
  /// From the next replay on, the scalars of this number have this value. ArgumentError if there are none, or of
  /// another dtype; or if an index is too large for the kernels as they were compiled.
  void set(std::uint32_t slot, const LaunchArgument& value);

  /// False for a default-constructed sequence.
  bool valid() const { return state_ != nullptr; }
  Device device() const;     ///< The device it was recorded on.
  std::size_t size() const;  ///< pieces of work
  /// The driver gets it with one call.
  bool one_call() const;

 private:
  struct State;
  struct Attempt;
  explicit Sequence(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace tessera
