// SPDX-License-Identifier: Apache-2.0
// Runs two workloads alternately, so that other load affects both; the result is the median of their ratios. With one
// thread, measures its own processor time, which other programs do not lengthen. With several threads, each round first
// pauses, because the other library's threads spin while waiting for work (OpenBLAS's for 100 ms) and occupy a core,
// which would make the next workload appear half as fast. Each workload then runs untimed for a while, because threads
// that are woken together may share a core until the system moves them.
#pragma once

#include <time.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

namespace tessera::bench {

/// Processor time of the calling thread if only it works, else wall time.
inline double now_us(bool one_thread) {
  if (!one_thread)
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) * 1e-3;
}

/// The result of a pair: microseconds of the fastest round of each, and the quartiles of the ratio (ours over theirs).
struct Pair {
  double ours_us = 1e30, theirs_us = 1e30;
  double low = 0, median = 0, high = 0;
};

/// Set `pause` to false for workloads that leave no spinning threads behind, so that rounds can follow immediately.
template <class Ours, class Theirs>
Pair time_pair(bool one_thread, Ours&& ours, Theirs&& theirs, double seconds = 1.5, bool pause = true) {
  const auto timed = [&](auto&& f, int times) {
    if (!one_thread && pause) {
      std::this_thread::sleep_for(std::chrono::milliseconds(120));
      const auto settled = std::chrono::steady_clock::now() + std::chrono::milliseconds(30);
      while (std::chrono::steady_clock::now() < settled) f();
    }
    const double start = now_us(one_thread);
    for (int i = 0; i < times; ++i) f();
    return (now_us(one_thread) - start) / times;
  };
  // A millisecond per round; the first calls warm up.
  const auto enough = [&](auto&& f) {
    f();
    return std::max(1, static_cast<int>(1000 / std::max(0.05, timed(f, 3))));
  };
  const int our_times = enough(ours), their_times = enough(theirs);
  Pair out;
  std::vector<double> ratios;
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (ratios.size() < 9 || (std::chrono::steady_clock::now() < end && ratios.size() < 400)) {
    const double t = timed(theirs, their_times), o = timed(ours, our_times);
    out.theirs_us = std::min(out.theirs_us, t), out.ours_us = std::min(out.ours_us, o);
    ratios.push_back(o / t);
  }
  std::sort(ratios.begin(), ratios.end());
  const auto at = [&](double q) {
    return ratios[static_cast<std::size_t>(q * static_cast<double>(ratios.size() - 1))];
  };
  out.low = at(0.25), out.median = at(0.5), out.high = at(0.75);
  return out;
}

}  // namespace tessera::bench
