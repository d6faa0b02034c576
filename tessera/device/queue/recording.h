// SPDX-License-Identifier: Apache-2.0
// What a Sequence is made of while it is recorded, and what records it. Internal to device/.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/device/launch/kernel.h"
#include "tessera/device/queue/recorder.h"
#include "tessera/device/queue/sequence_memory.h"

namespace tessera {

/// A generator that the work draws from.
struct RecordedStream {
  std::shared_ptr<RandomStream> state;
  RandomStream first;       ///< before the work's first draw
  std::uint64_t drawn = 0;  ///< how far the work advances the offset
  bool followed = true;     ///< replays draw from where the state is; else they repeat the draws
};

/// What a piece was before it became the driver's: can be launched again by itself. Its views have no storages, but
/// numbers of the sequence's memory; -1: a scalar, or none.
struct RecordedPiece {
  Kernel kernel;
  LaunchCounter* counter = nullptr;  ///< null: a copy or a fill
  bool index64 = false;
  std::vector<LaunchArgument> arguments;
  std::vector<std::int32_t> memory;  ///< of each argument
  BufferView to, from;
  std::int32_t to_memory = -1, from_memory = -1;
  std::int32_t stream = -1;  ///< the number of the stream that a launch draws from
  RandomArguments draws{};
  std::uint64_t drawn_before = 0;  ///< from this stream by earlier pieces
  const std::string& name() const;
};

/// Memory that the work uses: kept alive, or a block of what the recordings have in common.
struct RecordedMemory {
  std::shared_ptr<Storage> storage;  ///< null: a block's
  std::int32_t block = -1;           ///< >= 0: whatever storage the block has
  std::weak_ptr<Storage> placed{};   ///< the block's, when it was looked up; it may have left the pool since
  bool read = false, written = false;
  bool read_first = false;                         ///< what it holds comes from elsewhere, or from the replay before
  std::uint64_t extent = 0;                        ///< bytes from its begin that are used
  bool leased = false;                             ///< the recording allocated it
  std::shared_ptr<SequenceMemory::Lease> lease{};  ///< while recording
};

/// What a recording writes down.
struct RecordedGraph {
  std::vector<RecordedWork> work;
  std::vector<RecordedPiece> pieces;  ///< of each, what it is made of
  std::vector<RecordedMemory> memory;
  std::vector<RecordedStream> streams;
};
/// How the later of two recordings of the same function differs from the earlier; empty: not at all.
std::string difference_of(const RecordedGraph& earlier, const RecordedGraph& later);

/// What happens at work that cannot be repeated.
enum class AtRefusal : std::uint8_t { throws, stops_recording };

/// This thread records what it puts into the queue, which is the current one meanwhile. If it ends by an exception,
/// generators are set back to where they were, since the caller may repeat the work.
class Recording final : public Recorder {
 public:
  /// ArgumentError if the pool is another queue's, or in use.
  Recording(Queue& queue, SequenceMemory& pool, RecordedGraph& lists, AtRefusal at_refusal);
  ~Recording() override;
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  /// Why it stopped; empty: it goes on.
  const std::string& refusal() const { return refusal_; }
  /// Nothing more is allocated by it. What leaves the pool: SequenceMemory::end.
  std::vector<SequenceMemory::DetachedBlock> end();

  std::shared_ptr<Storage> allocate(Device device, std::size_t bytes, const std::string& label) override;
  void launched(const Kernel& kernel, LoadedKernel& loaded, LaunchCounter& counter, bool index64,
                std::array<std::uint64_t, 3> shape, std::span<const LaunchArgument> arguments,
                std::span<const Argument> given, const KernelFacts& facts) override;
  void copied(const BufferView& to, const BufferView& from) override;
  void filled(const BufferView& to, std::span<const std::byte> pattern) override;
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
  std::unordered_map<const Storage*, std::int32_t> others_;  ///< not the pool's: held, so that no other is there later
  bool ended_ = false;
};

}  // namespace tessera
