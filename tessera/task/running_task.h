// SPDX-License-Identifier: Apache-2.0
// Identifies the task that a thread is running. Its numbers record which task created other tasks, and which task uses
// arrays that it did not declare. Internal.
#pragma once

#include <cstdint>

namespace tessera {
class Storage;
}

namespace tessera::detail {

/// Exists on the executing thread while a task's function runs.
class RunningTask {
 public:
  RunningTask() noexcept;
  ~RunningTask();
  RunningTask(const RunningTask&) = delete;
  RunningTask& operator=(const RunningTask&) = delete;
  /// Returns the running task of the calling thread, or null outside of tasks.
  static RunningTask* current() noexcept { return current_; }
  /// Returns the number of the current task if it has created tasks with arrays. Otherwise, and outside of tasks,
  /// returns 0.
  static std::uint64_t number_of_current() noexcept { return current_ != nullptr ? current_->number_ : 0; }

  /// Identifies the task as the creator of tasks with arrays. The number is unique in the process.
  std::uint64_t number() noexcept { return number_ != 0 ? number_ : number_ = next_number(); }
  /// Identifies the task as a user of undeclared arrays. The number is live until `release`.
  std::uint64_t use() noexcept {
    if (use_ == 0) begin_use();
    return use_;
  }
  /// Allows other tasks to use the arrays that this task used without declaring them. Called when the task has ended,
  /// and when it creates a task that may receive such arrays.
  void release() noexcept {
    if (use_ != 0) [[unlikely]]
      end_use();
  }
  /// While this object exists, array operations of the calling thread are copies by the runtime, and are not recorded
  /// as uses by the task.
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
  /// Returns true if the task with this use number is still running. In rare cases, returns false although the task is
  /// running.
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
