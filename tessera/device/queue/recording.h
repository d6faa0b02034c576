// SPDX-License-Identifier: Apache-2.0
// Data of a Sequence and its recorder. Internal to device/.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/device/driver.h"
#include "tessera/device/launch/kernel.h"
#include "tessera/device/queue/recorder.h"
#include "tessera/device/queue/sequence_memory.h"

namespace tessera {

/// A random number generator from which the work draws.
struct RecordedStream {
  std::shared_ptr<RandomStream> state;
  RandomStream first;       ///< the state before the first draw of the work
  std::uint64_t drawn = 0;  ///< number of blocks that the work draws
  bool followed = true;     ///< true: replays draw from the current state; false: they repeat the recorded draws
};

/// A recorded operation that can also be submitted individually. Its views refer to the sequence's memory by index
/// instead of by storage. The index is -1 for a scalar or if there is no memory.
struct RecordedPiece {
  Kernel kernel;
  LaunchCounter* counter = nullptr;  ///< null for a copy or a fill
  bool index64 = false;
  std::vector<LaunchArgument> arguments;
  std::vector<std::int32_t> memory;  ///< index for each argument
  BufferView to, from;
  std::int32_t to_memory = -1, from_memory = -1;
  std::int32_t stream = -1;  ///< index of the random stream of a launch
  RandomArguments draws{};
  std::uint64_t drawn_before = 0;  ///< number of blocks that earlier operations draw from this stream
  const std::string& name() const;
};

/// Memory used by the work. It is either an existing storage, which is kept alive, or a block that sequences of the
/// same pool share.
struct RecordedMemory {
  std::shared_ptr<Storage> storage;  ///< null: use the storage of the block
  std::int32_t block = -1;           ///< >= 0: index of the block
  /// The block's storage when it was last looked up. The block may have a different one now.
  std::weak_ptr<Storage> placed{};
  bool read = false, written = false;
  bool read_first = false;   ///< it is read before it is written, so its contents must exist before the replay
  std::uint64_t extent = 0;  ///< number of bytes used, from the start
  bool leased = false;       ///< true if the recording allocated it
  std::shared_ptr<SequenceMemory::Lease> lease{};  ///< set only during the recording
};

/// A function that the host runs between two pieces.
struct HostCall {
  std::size_t before;  ///< index of the piece that follows
  Callback<void()> function;
};

/// Result of a recording.
struct RecordedGraph {
  std::vector<RecordedWork> work;
  std::vector<RecordedPiece> pieces;  ///< one for each entry of `work`
  std::vector<HostCall> calls;
  std::vector<RecordedMemory> memory;
  std::vector<RecordedStream> streams;
};
/// Describes how a later recording of the same function differs from an earlier one. Returns an empty string if they
/// are equal.
std::string difference_of(const RecordedGraph& earlier, const RecordedGraph& later);

/// What to do if an operation cannot be replayed.
enum class AtRefusal : std::uint8_t { throws, stops_recording };

/// Records operations of this thread on `queue`, which is the current queue during the recording. If the recording ends
/// with an exception, random generators are reset, because the caller may repeat the work.
class Recording final : public Recorder {
 public:
  /// Throws ArgumentError if the pool belongs to another queue or is in use.
  Recording(Queue& queue, SequenceMemory& pool, RecordedGraph& lists, AtRefusal at_refusal);
  ~Recording() override;
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  /// Returns why recording stopped; empty while it continues.
  const std::string& refusal() const { return refusal_; }
  /// Ends the allocations of the recording. Returns the blocks that leave the pool (see SequenceMemory::end).
  std::vector<SequenceMemory::DetachedBlock> end();

  std::shared_ptr<Storage> allocate(Device device, std::size_t bytes, const std::string& label) override;
  void launched(const Kernel& kernel, LoadedKernel& loaded, LaunchCounter& counter, bool index64,
                std::array<std::uint64_t, 3> shape, std::span<const LaunchArgument> arguments,
                std::span<const Argument> given, const KernelFacts& facts) override;
  void multiplied(std::shared_ptr<const RecordedProduct> product, LaunchCounter& counter,
                  std::span<const BufferView> operands) override;
  void copied(const BufferView& to, const BufferView& from) override;
  void filled(const BufferView& to, std::span<const std::byte> pattern) override;
  void called(const Callback<void()>& f) override;
  void drew(const std::shared_ptr<RandomStream>& stream, RandomArguments arguments, std::uint64_t blocks) override;

 private:
  std::int32_t note(BufferView& view, bool read, bool written);
  void refused(const char* asked) override;
  void checked(const char* asked, QueueCore& core) override;
  void refuse_with(const ErrorText& text);

  const Device device_;
  QueueCore& core_;
  SequenceMemory& pool_;
  const QueueScope current_;
  RecordedGraph& lists_;
  const AtRefusal at_refusal_;
  std::string refusal_;
  /// Memory that existed before the recording. References to it prevent its address from being reused.
  std::unordered_map<const Storage*, std::int32_t> others_;
  bool ended_ = false;
};

}  // namespace tessera
