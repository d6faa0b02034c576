// SPDX-License-Identifier: Apache-2.0
// Registry of active recordings.
#include "tessera/device/queue/recorder.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

#include "tessera/base/os/fork.h"

namespace tessera {
namespace {
struct Recordings {
  std::mutex lock;
  std::uint64_t last = 0;
  std::vector<std::uint64_t> going_on;
  std::atomic<std::size_t> count = 0;  ///< size of `going_on`, for reading without the lock
};
Recordings& recordings() {
  static constinit os::PerProcess<Recordings> all;  // never destroyed, because threads may record during exit
  return all.get();
}
std::uint64_t begin_recording() {
  Recordings& r = recordings();
  std::lock_guard hold(r.lock);
  r.going_on.push_back(r.last + 1);
  r.count = r.going_on.size();
  return ++r.last;
}
}  // namespace

Recorder::Recorder() : number_(begin_recording()) {}
Recorder::~Recorder() { leave(); }
void Recorder::leave() {
  Recordings& r = recordings();
  std::lock_guard hold(r.lock);
  std::erase(r.going_on, number_);
  r.count = r.going_on.size();
}
bool Recorder::is_active(std::uint64_t number) {
  Recordings& r = recordings();
  if (number == 0 || r.count == 0) return false;
  std::lock_guard hold(r.lock);
  return std::ranges::find(r.going_on, number) != r.going_on.end();
}

}  // namespace tessera
