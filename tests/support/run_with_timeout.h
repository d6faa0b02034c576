// SPDX-License-Identifier: Apache-2.0
// A time limit for test code that may hang.
#pragma once

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <future>
#include <thread>
#include <utility>

namespace tessera::test {

/// Runs `work` on a separate thread and rethrows its exceptions. If it does not return in time, ends the program with a
/// message.
inline void run_with_timeout(const std::function<void()>& work) {
  std::packaged_task<void()> task(work);
  std::future<void> done = task.get_future();
  std::thread thread(std::move(task));
  if (done.wait_for(std::chrono::seconds(100)) != std::future_status::ready) {
    std::fprintf(stderr, "the test hangs: its work did not finish within 100 s\n");
    std::_Exit(1);  // exits because a thread cannot be killed
  }
  thread.join();
  done.get();
}

}  // namespace tessera::test
