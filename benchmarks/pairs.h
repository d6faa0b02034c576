// SPDX-License-Identifier: Apache-2.0
// Runs two workloads alternately, so that other load affects both. The result is the median of their ratios. With one
// thread, the processor time of that thread is measured, which does not depend on other programs.
//
// With several threads, each round begins with a pause. The threads of the other library spin while they wait for work
// (100 ms in OpenBLAS) and occupy a core, which would make the next workload appear half as fast. Each workload then
// runs for a while without being timed, because threads that are woken together may share a core until the system moves
// them.
#pragma once

#include <time.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

namespace tessera::bench {

/// Returns the processor time of the calling thread if it is the only one, otherwise wall time.
inline double now_us(bool one_thread) {
  if (!one_thread)
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) * 1e-3;
}

/// The result of a pair: the microseconds of the fastest round of each workload, and the quartiles of the ratio (ours /
/// theirs).
struct Pair {
  double ours_us = 1e30, theirs_us = 1e30;
  double low = 0, median = 0, high = 0;
};

/// Set `pause` to false if neither workload leaves spinning threads behind. Rounds then follow without a pause.
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
  // A round takes a millisecond. The first calls are the warm-up.
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
