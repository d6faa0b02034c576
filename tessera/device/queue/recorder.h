// SPDX-License-Identifier: Apache-2.0
// Interface between a thread's queue operations and the Sequence that it is recording. Used by device/ and by deferred
// operations.
#pragma once

#include <cstdint>
#include <span>

#include "tessera/base/callback.h"
#include "tessera/device/context.h"
#include "tessera/device/driver.h"
#include "tessera/device/launch/launch_arguments.h"
#include "tessera/device/queue/random_stream.h"

namespace tessera {

class Kernel;
struct KernelFacts;
struct LaunchCounter;

class Recorder {
 public:
  Recorder();
  virtual ~Recorder();
  static Recorder* of_this_thread() { return thread_context.recorder; }  ///< null: not recording

  /// Number of this thread's recording, from 1; 0 if there is none. Deferred operations store the number when they are
  /// created.
  static std::uint64_t number() {
    const Recorder* const recorder = of_this_thread();
    return recorder == nullptr ? 0 : recorder->number_;
  }
  /// Returns whether the recording with this number is still active on any thread.
  static bool is_active(std::uint64_t number);
  /// Suspends recording on this thread for the scope's lifetime. Used for operations that were deferred before the
  /// recording started.
  class Pause {
   public:
    explicit Pause(bool wanted) : before_(thread_context.recorder) {
      if (wanted) thread_context.recorder = nullptr;
    }
    ~Pause() { thread_context.recorder = before_; }
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    Recorder* before_;
  };

  /// Called before operations that cannot be replayed. If this thread is recording, throws or stops the recording.
  /// `asked` is the name of the operation: "download".
  static void refuse(const char* asked) {
    if (Recorder* const recorder = of_this_thread()) [[unlikely]]
      recorder->refused(asked);
  }
  /// Like `refuse`, but only if `core` is not the recorded queue.
  static void check(const char* asked, QueueCore& core) {
    if (Recorder* const recorder = of_this_thread()) [[unlikely]]
      recorder->checked(asked, core);
  }

  /// Allocates memory for work of this recording, like Storage::allocate. Returns null if the memory should not be part
  /// of the recording.
  virtual std::shared_ptr<Storage> allocate(Device device, std::size_t bytes, const std::string& label) = 0;

  // The functions below are called after an operation was submitted.
  virtual void launched(const Kernel& kernel, LoadedKernel& loaded, LaunchCounter& counter, bool index64,
                        std::array<std::uint64_t, 3> shape, std::span<const LaunchArgument> arguments,
                        std::span<const Argument> given, const KernelFacts& facts) = 0;
  /// `operands` are a, b, out, bias and workspace; the last two may have no storage.
  virtual void multiplied(std::shared_ptr<const RecordedProduct> product, LaunchCounter& counter,
                          std::span<const BufferView> operands) = 0;
  virtual void copied(const BufferView& to, const BufferView& from) = 0;
  virtual void filled(const BufferView& to, std::span<const std::byte> pattern) = 0;
  /// Records that the host runs `f` at this point of each replay (Sequence::between).
  virtual void called(const Callback<void()>& f) = 0;
  /// Records that the last launch drew `blocks` from the stream. The stream's offset is advanced afterwards.
  virtual void drew(const std::shared_ptr<RandomStream>& stream, RandomArguments arguments, std::uint64_t blocks) = 0;

 protected:
  void leave();  ///< is_active(number_) returns false from then on

 private:
  const std::uint64_t number_;
  virtual void refused(const char* asked) = 0;
  virtual void checked(const char* asked, QueueCore& core) = 0;
};

}  // namespace tessera
