// SPDX-License-Identifier: Apache-2.0
// Messages outside of collectives (background.h).
#include "tessera/dist/communicator.h"
#include "tessera/dist/error.h"

namespace tessera::dist {

using std::chrono::milliseconds;

void Communicator::set_background(Background& background) {
  const std::lock_guard transport(transport_lock_);
  background_ = &background;
  background_begun_ = background_reported_ = Clock::now();
}

namespace {
/// True on a thread that notifies those who wait for messages. They may add messages.
constinit thread_local bool delivering = false;
}  // namespace

void Communicator::progress_background() {
  background_busy_ = true;
  if (transport_->any_thread() && !delivering) {
    std::unique_lock transport(transport_lock_, std::try_to_lock);
    if (transport) {
      poll_background();
      transport.unlock();
      return deliver_background();
    }
  }
  {
    const std::lock_guard held(lock_);
    background_woken_ = true;
  }
  wake_->notify_one();
}

void Communicator::deliver_background() {
  Background* const background = background_;
  if (background == nullptr) return;
  delivering = true;
  background->deliver();
  delivering = false;
}

/// Makes progress with messages outside of collectives. Called with the transport's lock.
void Communicator::poll_background() {
  Background* const background = background_;
  if (background == nullptr) return;
  try {
    if (!failed_) {
      background_busy_ = background->progress(*transport_);
      return;
    }
  } catch (const std::exception& e) {
    report_failure(Notice::failed, e.what());
  }
  background->fail(failure_);
  background_busy_ = false;
}

/// Checks the ranks for whose messages this one waits outside of collectives.
void Communicator::supervise_background() {
  static const Call tiles{.kind = Collective::tiles};
  Background* const background = background_;
  const std::vector<int> peers = background == nullptr || failed_ ? std::vector<int>() : background->missing();
  const auto now = Clock::now();
  if (peers.empty()) {
    background_begun_ = background_reported_ = now;
    return;
  }
  if (now - background_begun_ < milliseconds(1)) return;
  running_ = &tiles;
  struct End {
    const Call*& running;
    ~End() { running = nullptr; }
  } const end{running_};
  supervise(background_begun_, background_reported_, peers);
}

}  // namespace tessera::dist
