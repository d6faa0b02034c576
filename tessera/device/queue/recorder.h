// SPDX-License-Identifier: Apache-2.0
// How what a thread puts into a queue reaches the Sequence that it is recording; nothing happens where there is none.
// For device/, and for what defers work until it is needed.
#pragma once

#include <cstdint>
#include <span>

#include "tessera/device/context.h"
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
  static Recorder* of_this_thread() { return thread_context.recorder; }  ///< null: it records nothing

  /// Of the recording of this thread, from 1; 0: none. What is deferred keeps the number of when it was made.
  static std::uint64_t number() {
    const Recorder* const recorder = of_this_thread();
    return recorder == nullptr ? 0 : recorder->number_;
  }
  /// Whether the recording with this number, of any thread, goes on.
  static bool is_active(std::uint64_t number);
  /// While it lives this thread records nothing: for what was deferred before the recording, and is no part of it.
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

  /// Called before work that cannot be repeated: throws or stops recording if this thread records. `asked`: "download".
  static void refuse(const char* asked) {
    if (Recorder* const recorder = of_this_thread()) [[unlikely]]
      recorder->refused(asked);
  }
  /// Likewise if this thread records another queue's work.
  static void check(const char* asked, QueueCore& core) {
    if (Recorder* const recorder = of_this_thread()) [[unlikely]]
      recorder->checked(asked, core);
  }

  /// Memory for what this thread records; null where it is none of the recording's. As Storage::allocate.
  virtual std::shared_ptr<Storage> allocate(Device device, std::size_t bytes, const std::string& label) = 0;

  // What has been put in.
  virtual void launched(const Kernel& kernel, LoadedKernel& loaded, LaunchCounter& counter, bool index64,
                        std::array<std::uint64_t, 3> shape, std::span<const LaunchArgument> arguments,
                        std::span<const Argument> given, const KernelFacts& facts) = 0;
  virtual void copied(const BufferView& to, const BufferView& from) = 0;
  virtual void filled(const BufferView& to, std::span<const std::byte> pattern) = 0;
  /// The last launch drew `blocks` from the stream, whose offset has not been advanced yet.
  virtual void drew(const std::shared_ptr<RandomStream>& stream, RandomArguments arguments, std::uint64_t blocks) = 0;

 protected:
  void leave();  ///< goes_on(number_) is false from now on

 private:
  const std::uint64_t number_;
  virtual void refused(const char* asked) = 0;
  virtual void checked(const char* asked, QueueCore& core) = 0;
};

}  // namespace tessera
