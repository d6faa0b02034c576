// SPDX-License-Identifier: Apache-2.0
#include "tessera/task/running_task.h"

#include <array>
#include <atomic>
#include <utility>

#include "tessera/base/os/fork.h"
#include "tessera/device/context.h"
#include "tessera/device/memory/unwatched.h"
#include "tessera/task/task_accesses.h"

namespace tessera::detail {

namespace {

/// The numbers that are live, each at the place that follows from it: one that finds another there takes its place.
struct Live {
  Live() {}
  std::array<std::atomic<std::uint64_t>, 1024> all{};
  std::atomic<std::uint64_t>& at(std::uint64_t use) noexcept { return all[(use * 0x9e3779b97f4a7c15ull) >> 54]; }
};
constinit os::PerProcess<Live> live;

/// Once it has a TaskStorage, its uses are noted. A copy of what the task declared needs none.
void watch(Storage& storage) {
  const RunningTask* const running = RunningTask::current();
  if (running == nullptr || running->copies() || thread_context.recorder != nullptr || storage.of_recording()) return;
  const TaskAccesses* const mine = TaskAccesses::current();
  if (mine != nullptr && mine->declared(storage) == nullptr) TaskStorage::of(storage);
}

}  // namespace

constinit thread_local RunningTask* RunningTask::current_ = nullptr;

RunningTask::RunningTask() noexcept
    : before_(std::exchange(current_, this)), before_write_(std::exchange(before_unwatched_write, &watch)) {}

RunningTask::~RunningTask() {
  release();
  before_unwatched_write = before_write_;
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
  live->at(use_).store(use_, std::memory_order_release);
}

void RunningTask::end_use() noexcept {
  std::uint64_t mine = std::exchange(use_, 0);
  live->at(mine).compare_exchange_strong(mine, 0, std::memory_order_release, std::memory_order_relaxed);
}

bool RunningTask::is_live(std::uint64_t use) noexcept { return live->at(use).load(std::memory_order_acquire) == use; }

}  // namespace tessera::detail
