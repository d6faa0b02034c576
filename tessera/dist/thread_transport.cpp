// SPDX-License-Identifier: Apache-2.0
#include "tessera/dist/thread_transport.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <mutex>

#include "tessera/dist/error.h"

namespace tessera::dist {

namespace {

struct Message {
  int from, tag;
  std::vector<std::byte> bytes;
};

/// The messages that one rank has not received yet.
struct Mailbox {
  std::mutex lock;
  std::deque<Message> messages;
};

struct Job {
  explicit Job(int size) : mailboxes(static_cast<std::size_t>(size)) {}
  std::vector<Mailbox> mailboxes;
  std::atomic<bool> aborted = false;
};

/// A receive that was started.
struct Receive {
  Receive(int f, int t, std::span<std::byte> r) : from(f), tag(t), room(r) {}
  int from, tag;
  std::span<std::byte> room;
};

class ThreadTransport final : public Transport {
 public:
  ThreadTransport(std::shared_ptr<Job> job, int rank) : job_(std::move(job)), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(job_->mailboxes.size()); }
  std::string name() const override { return "threads of one process"; }
  bool any_thread() const override { return true; }

  void send(Transfer& transfer, int to, int tag, std::span<const std::byte> message) override {
    check();
    transfer = {.peer = to, .bytes = message.size()};
    Mailbox& box = job_->mailboxes[static_cast<std::size_t>(to)];
    Message copy{rank_, tag, {message.begin(), message.end()}};
    const std::lock_guard held(box.lock);
    box.messages.push_back(std::move(copy));
  }
  void receive(Transfer& transfer, int from, int tag, std::span<std::byte> room) override {
    check();
    receives_.push_back(std::make_unique<Receive>(from, tag, room));
    transfer = {.handle = reinterpret_cast<std::uintptr_t>(receives_.back().get()), .active = true, .peer = from};
  }
  bool test(Transfer& transfer) override {
    if (!transfer.active) return true;
    check();
    const Receive& wanted = *reinterpret_cast<Receive*>(transfer.handle);
    Mailbox& box = job_->mailboxes[static_cast<std::size_t>(rank_)];
    Message found;
    {
      const std::lock_guard held(box.lock);
      const auto at = std::ranges::find_if(box.messages, [&](const Message& m) {
        return m.tag == wanted.tag && (wanted.from == any_rank || m.from == wanted.from);
      });
      if (at == box.messages.end()) return false;
      found = std::move(*at);
      box.messages.erase(at);
    }
    if (found.bytes.size() > wanted.room.size())
      fail<ConnectionError>({.operation = "receive",
                             .with = {{"bytes", std::to_string(found.bytes.size())},
                                      {"room", std::to_string(wanted.room.size())},
                                      {"rank", std::to_string(found.from)}},
                             .wrong = "a message is longer than the memory for it"});
    if (!found.bytes.empty()) std::memcpy(wanted.room.data(), found.bytes.data(), found.bytes.size());
    cancel(transfer);
    transfer.peer = found.from, transfer.bytes = found.bytes.size();
    return true;
  }
  void cancel(Transfer& transfer) override {
    if (!transfer.active) return;
    std::erase_if(receives_, [&](const auto& r) { return r.get() == reinterpret_cast<Receive*>(transfer.handle); });
    transfer.active = false;
  }
  void abort(int) override { job_->aborted = true; }
  void close(bool) override {}

 private:
  void check() const {
    if (job_->aborted) fail<ConnectionError>({.operation = "ranks", .wrong = "another rank ended the job"});
  }
  const std::shared_ptr<Job> job_;
  const int rank_;
  std::vector<std::unique_ptr<Receive>> receives_;  ///< that are active
};

}  // namespace

std::vector<std::unique_ptr<Transport>> thread_transports(int size) {
  const auto job = std::make_shared<Job>(size);
  std::vector<std::unique_ptr<Transport>> out;
  for (int rank = 0; rank < size; ++rank) out.push_back(std::make_unique<ThreadTransport>(job, rank));
  return out;
}

}  // namespace tessera::dist
