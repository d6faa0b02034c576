// SPDX-License-Identifier: Apache-2.0
// Numbers that identify the task that a thread runs: as the creator of tasks, and as the user of undeclared arrays.
// Internal.
#pragma once

#include <cstdint>

namespace tessera {
class Storage;
}

namespace tessera::detail {

/// Exists while a task's function runs, on the executing thread.
class RunningTask {
 public:
  RunningTask() noexcept;
  ~RunningTask();
  RunningTask(const RunningTask&) = delete;
  RunningTask& operator=(const RunningTask&) = delete;
  /// The calling thread's running task; null outside of tasks.
  static RunningTask* current() noexcept { return current_; }
  /// The number of the current task if it has created tasks with arrays; otherwise 0, as for the program outside of
  /// tasks.
  static std::uint64_t number_of_current() noexcept { return current_ != nullptr ? current_->number_ : 0; }

  /// Identifies the task as the creator of tasks with arrays; unique in the process.
  std::uint64_t number() noexcept { return number_ != 0 ? number_ : number_ = next_number(); }
  /// Identifies the task as the user of undeclared arrays; live until `release`.
  std::uint64_t use() noexcept {
    if (use_ == 0) begin_use();
    return use_;
  }
  /// Other tasks may now use the arrays that it used undeclared: it has ended, or creates a task that may receive them.
  void release() noexcept {
    if (use_ != 0) [[unlikely]]
      end_use();
  }
  /// During its lifetime, array operations of the calling thread belong to the runtime and are not recorded as uses by
  /// its task.
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
  /// True if the task with this use number is still running. In rare cases false although it is.
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
