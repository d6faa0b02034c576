// SPDX-License-Identifier: Apache-2.0
#include "tessera/task/running_task.h"

#include <array>
#include <atomic>
#include <utility>

#include "tessera/base/os/fork.h"
#include "tessera/device/context.h"
#include "tessera/device/memory/untracked_write.h"
#include "tessera/task/task_accesses.h"

namespace tessera::detail {

namespace {

/// The use numbers of running tasks. A number can be stored in one of several slots, which depend on its value. If all
/// of them are occupied, it replaces another number.
struct Live {
  static constexpr unsigned places = 8;
  Live() {}
  std::array<std::atomic<std::uint64_t>, 1024> all{};
  std::atomic<std::uint64_t>& at(std::uint64_t use, unsigned place) noexcept {
    return all[((use * 0x9e3779b97f4a7c15ull >> 54) + place) % all.size()];
  }
  /// Replaces `from` by `to` in one of the slots of `use`. Returns false if no slot contains `from`.
  bool exchange(std::uint64_t use, std::uint64_t from, std::uint64_t to) noexcept {
    for (unsigned i = 0; i < places; ++i)
      if (std::uint64_t there = from;
          at(use, i).compare_exchange_strong(there, to, std::memory_order_release, std::memory_order_relaxed))
        return true;
    return false;
  }
};
constinit os::PerProcess<Live> live;

/// Creates the TaskStorage, so that undeclared uses of the storage are recorded. This is not necessary for copies made
/// by the runtime.
void watch(Storage& storage) {
  const RunningTask* const running = RunningTask::current();
  if (running == nullptr || running->in_runtime_copy() || thread_context.recorder != nullptr ||
      storage.is_owned_by_recording())
    return;
  const TaskAccesses* const mine = TaskAccesses::current();
  if (mine != nullptr && mine->declared(storage) == nullptr) TaskStorage::of(storage);
}

}  // namespace

constinit thread_local RunningTask* RunningTask::current_ = nullptr;

RunningTask::RunningTask() noexcept
    : before_(std::exchange(current_, this)), before_write_(std::exchange(untracked_write_hook, &watch)) {}

RunningTask::~RunningTask() {
  release();
  untracked_write_hook = before_write_;
  current_ = before_;
}

std::uint64_t RunningTask::next_number() noexcept {
  constexpr std::uint64_t block = 1024;
  static constinit std::atomic<std::uint64_t> blocks = 0;
  static constinit thread_local std::uint64_t next = 0;
  if (next % block == 0) next = blocks.fetch_add(1, std::memory_order_relaxed) * block + 1;
  return next++;
}

void RunningTask::begin_use() noexcept {
  use_ = next_number();
  if (!live->exchange(use_, 0, use_)) live->at(use_, 0).store(use_, std::memory_order_release);
}

void RunningTask::end_use() noexcept {
  const std::uint64_t mine = std::exchange(use_, 0);
  live->exchange(mine, mine, 0);
}

bool RunningTask::is_live(std::uint64_t use) noexcept {
  for (unsigned i = 0; i < Live::places; ++i)
    if (live->at(use, i).load(std::memory_order_acquire) == use) return true;
  return false;
}

}  // namespace tessera::detail
