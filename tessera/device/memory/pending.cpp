// SPDX-License-Identifier: Apache-2.0
#include "tessera/device/memory/pending.h"

#include <array>
#include <functional>
#include <mutex>

#include "tessera/base/os/fork.h"
#include "tessera/device/selection/open_device.h"

namespace tessera {

PendingRegistry& PendingRegistry::of(Device device) {
  // Several devices may share an entry. They then only contend for its lock.
  static constinit os::PerProcess<std::array<PendingRegistry, 32>> all;
  return (*all)[(static_cast<std::size_t>(device.backend) * 4 + static_cast<std::size_t>(device.index)) % 32];
}

void PendingRegistry::await_readers(std::unique_lock<std::mutex>& hold, const Storage& storage) {
  for (const PendingWork* w = under_way; w != nullptr; w = w->older_)
    if (w->of_this_thread()) return;
  changed.wait(hold, [&, last = begun] {
    for (const PendingWork* w = under_way; w != nullptr; w = w->older_)
      if (w->number_ <= last && w->reads(storage)) return false;
    return true;
  });
}

void PendingRegistry::await(std::unique_lock<std::mutex>& hold, Device device, const std::function<bool()>& done) {
  open_device(device).check();
  changed.wait(hold, done);
}

void PendingWork::begin(PendingRegistry& books) {
  number_ = ++books.begun;
  older_ = books.under_way, newer_ = nullptr;
  if (older_ != nullptr) older_->newer_ = this;
  books.under_way = this;
}

void PendingWork::end(PendingRegistry& books) noexcept {
  if (number_ == 0) return;
  (newer_ != nullptr ? newer_->older_ : books.under_way) = older_;
  if (older_ != nullptr) older_->newer_ = newer_;
  number_ = 0;
  books.changed.notify_all();
}

}  // namespace tessera
