// SPDX-License-Identifier: Apache-2.0
// A time limit of a test's own for what might wait for ever.
#pragma once

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <future>
#include <thread>
#include <utility>

namespace tessera::test {

/// Runs `work` on a thread of its own; what it throws comes out here. Work that hangs ends this program with a message,
/// and not by the time limit of all.
inline void run_with_timeout(const std::function<void()>& work) {
  std::packaged_task<void()> task(work);
  std::future<void> done = task.get_future();
  std::thread thread(std::move(task));
  if (done.wait_for(std::chrono::seconds(100)) != std::future_status::ready) {
    std::fprintf(stderr, "it hangs: a thread waits for what nobody will do\n");
    std::_Exit(1);  // the thread cannot be ended
  }
  thread.join();
  done.get();
}

}  // namespace tessera::test
