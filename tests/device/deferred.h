// SPDX-License-Identifier: Apache-2.0
// A pending result for tests. It reads storages and calls a function when one of them is about to be written.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "tessera/device/memory/pending.h"
#include "tessera/device/memory/storage.h"

namespace tessera::testing {

class Deferred : public PendingReader, public PendingResult, public std::enable_shared_from_this<Deferred> {
 public:
  ~Deferred() override {
    for (auto& [storage, link] : reads_) {
      std::lock_guard hold(PendingRegistry::of(storage->device()).lock);
      link->unlink();
      storage->reader_gone();
    }
  }
  /// Defers the work again, and also reads this storage.
  void read(const std::shared_ptr<Storage>& storage) {
    auto link = std::make_unique<ReaderLink>();
    link->reader = this;
    std::lock_guard hold(PendingRegistry::of(storage->device()).lock);
    storage->add_reader(*link);
    reads_.emplace_back(storage, std::move(link));
    pending_ = true;
  }
  bool flush() override {
    if (!pending_) return false;
    ++flushes;
    if (on_flush) on_flush();
    pending_ = false;
    return true;
  }
  void results(std::uint64_t, std::vector<std::shared_ptr<PendingResult>>& out) const override {
    if (auto self = std::const_pointer_cast<Deferred>(weak_from_this().lock())) out.push_back(std::move(self));
  }

  std::function<void()> on_flush;
  int flushes = 0;

 private:
  std::vector<std::pair<std::shared_ptr<Storage>, std::unique_ptr<ReaderLink>>> reads_;
  bool pending_ = false;
};

}  // namespace tessera::testing
