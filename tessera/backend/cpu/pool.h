// SPDX-License-Identifier: Apache-2.0
// Threads that share the work of a launch: they wait between launches, so that starting one costs microseconds.
// The calling thread takes part; several threads may launch at once, and work may launch further work.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tessera::cpu {

class ThreadPool {
 public:
  /// The process's pool, of TESSERA_THREADS threads or as many as cores may be used; made on first use, never
  /// destroyed. A forked child gets a pool of its own: it inherited no threads.
  static ThreadPool& instance();
  explicit ThreadPool(unsigned threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  /// Threads that work at once, the calling one included.
  unsigned threads() const { return threads_; }

  /// Calls f(begin, end) until [0, items) is covered, each call with at most `grain` items, from several threads;
  /// returns when all have returned. What a call throws is thrown here, once the others are done.
  void run(std::uint64_t items, std::uint64_t grain, const std::function<void(std::uint64_t, std::uint64_t)>& f);

 private:
  struct Job;
  void start();
  void worker();
  Job* next_job();  // with the lock held: one that has work left

  const unsigned threads_;
  std::mutex lock_;
  std::condition_variable wake_;
  std::vector<Job*> jobs_;                   // guarded by lock_
  std::vector<std::thread> workers_;         // guarded by lock_
  std::atomic<std::uint64_t> posted_ = 0;    // jobs so far: what idle threads watch
  bool started_ = false, stopping_ = false;  // guarded by lock_
};

}  // namespace tessera::cpu
