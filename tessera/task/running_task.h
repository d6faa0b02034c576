// SPDX-License-Identifier: Apache-2.0
// The task that a thread runs, by numbers: of the tasks that it makes, and of what it uses without having declared it.
// Internal.
#pragma once

#include <cstdint>

namespace tessera {
class Storage;
}

namespace tessera::detail {

/// Exists while a task's function runs, on the thread that runs it.
class RunningTask {
 public:
  RunningTask() noexcept;
  ~RunningTask();
  RunningTask(const RunningTask&) = delete;
  RunningTask& operator=(const RunningTask&) = delete;
  /// The calling thread's; null outside of tasks.
  static RunningTask* current() noexcept { return current_; }
  /// Its number if it has made tasks with arrays, else 0; that of the program outside of tasks is 0, too.
  static std::uint64_t number_of_current() noexcept { return current_ != nullptr ? current_->number_ : 0; }

  /// As the maker of tasks with arrays: a number that no other task of the process has.
  std::uint64_t number() noexcept { return number_ != 0 ? number_ : number_ = next_number(); }
  /// As the user of arrays that it did not declare: a number that is live until `release`.
  std::uint64_t use() noexcept {
    if (use_ == 0) begin_use();
    return use_;
  }
  /// What it has used so far may be used by others: it has ended, or makes a task that may be given it.
  void release() noexcept {
    if (use_ != 0) [[unlikely]]
      end_use();
  }
  /// While it lives, what the calling thread does to arrays is the runtime's doing, and no use by its task.
  class RuntimeCopyScope {
   public:
    RuntimeCopyScope() noexcept : before_(current_ != nullptr && current_->in_runtime_copy_) { set(true); }
    ~RuntimeCopyScope() { set(before_); }
    RuntimeCopyScope(const RuntimeCopyScope&) = delete;
    RuntimeCopyScope& operator=(const RuntimeCopyScope&) = delete;

   private:
    static void set(bool in_runtime_copy) noexcept {
      if (current_ != nullptr) current_->in_runtime_copy_ = in_runtime_copy;
    }
    const bool before_;
  };
  bool in_runtime_copy() const noexcept { return in_runtime_copy_; }
  /// Whether the task that uses arrays by this number is still running. False in rare cases where it is.
  static bool is_live(std::uint64_t use) noexcept;

 private:
  static std::uint64_t next_number() noexcept;
  void begin_use() noexcept;
  void end_use() noexcept;

  RunningTask* const before_;
  void (*const before_write_)(Storage&);
  std::uint64_t number_ = 0, use_ = 0;
  bool in_runtime_copy_ = false;
  static constinit thread_local RunningTask* current_;
};

}  // namespace tessera::detail
