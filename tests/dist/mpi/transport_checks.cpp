// SPDX-License-Identifier: Apache-2.0
#include "tests/dist/mpi/transport_checks.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tessera/dist/error.h"

namespace tessera::test {
namespace {

using dist::Transfer;
using dist::Transport;
using Bytes = std::vector<std::byte>;

void expect(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error("check failed: " + what);
}

/// The contents of message `number` from one rank to another.
Bytes contents(std::size_t bytes, int from, int to, int number) {
  Bytes out(bytes);
  std::uint32_t state = static_cast<std::uint32_t>(from * 1000003 + to * 10007 + number) * 2654435761u + 1;
  for (std::byte& b : out) {
    state = state * 1664525u + 1013904223u;
    b = static_cast<std::byte>(state >> 24);
  }
  return out;
}

void finish(Transport& transport, Transfer& transfer) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!transport.test(transfer)) {
    expect(std::chrono::steady_clock::now() < limit, "a transfer completes within 30 s");
    std::this_thread::yield();
  }
  expect(!transfer.active, "a completed transfer is not active");
}

/// Messages that this rank sends or receives, with their memory.
struct Messages {
  explicit Messages(Transport& t) : transport(t) {}
  void send(int to, int tag, Bytes bytes) {
    Message& m = all.emplace_back(Message{{}, std::move(bytes)});
    transport.send(m.transfer, to, tag, m.bytes);
  }
  void receive(int from, int tag, std::size_t room) {
    Message& m = all.emplace_back(Message{{}, Bytes(room)});
    transport.receive(m.transfer, from, tag, m.bytes);
  }
  void finish() {
    for (Message& m : all) test::finish(transport, m.transfer);
  }
  struct Message {
    Transfer transfer;
    Bytes bytes;
  };
  Transport& transport;
  std::deque<Message> all;
};

void ping_pong(Transport& t) {
  for (int peer = 0; peer < t.size(); ++peer)
    for (const std::size_t bytes : std::initializer_list<std::size_t>{0, 1, 7, 4096, 65537, 1 << 20, 3 << 20})
      for (const int tag : {0, 5, 31}) {
        if (bytes > 4096 && tag != 5) continue;
        const bool first = t.rank() < peer;
        Messages sent(t), received(t);
        if (first || t.rank() == peer) sent.send(peer, tag, contents(bytes, t.rank(), peer, tag));
        received.receive(peer, tag, bytes + 3);
        received.finish();
        const auto& [transfer, memory] = received.all.front();
        expect(transfer.peer == peer && transfer.bytes == bytes,
               "peer and size of a message of " + std::to_string(bytes) + " bytes: " + std::to_string(transfer.bytes));
        expect(Bytes(memory.begin(), memory.end() - 3) == contents(bytes, peer, t.rank(), tag),
               "contents of a message of " + std::to_string(bytes) + " bytes");
        if (t.rank() > peer) sent.send(peer, tag, contents(bytes, t.rank(), peer, tag));
        sent.finish();
      }
}

/// Many messages under way at the same time on several tags. Messages with the same tag arrive in order.
void many_messages(Transport& t) {
  constexpr int count = 60;
  const auto size_of = [](int number) {
    return static_cast<std::size_t>(number % 7 == 3 ? 100000 : number * 13 % 400);
  };
  Messages sent(t), received(t);
  for (int peer = 0; peer < t.size(); ++peer)
    for (int number = 0; number < count; ++number)
      sent.send(peer, number % 3, contents(size_of(number), t.rank(), peer, number));
  for (int peer = 0; peer < t.size(); ++peer)
    for (const int tag : {2, 0, 1})
      for (int number = tag; number < count; number += 3) received.receive(peer, tag, 100000);
  received.finish();
  sent.finish();
  auto at = received.all.begin();
  for (int peer = 0; peer < t.size(); ++peer)
    for (const int tag : {2, 0, 1})
      for (int number = tag; number < count; number += 3, ++at) {
        at->bytes.resize(at->transfer.bytes);
        expect(at->bytes == contents(size_of(number), peer, t.rank(), number),
               "message " + std::to_string(number) + " from rank " + std::to_string(peer) + " on tag " +
                   std::to_string(tag));
      }
}

/// Receives from any rank report the sender, and each sender's messages arrive in order.
void any_rank(Transport& t) {
  constexpr int each = 10;
  Messages sent(t);
  for (int number = 0; number < each; ++number) sent.send(0, 4, contents(100, t.rank(), 0, number));
  std::vector<int> next(static_cast<std::size_t>(t.size()));
  for (int i = 0; t.rank() == 0 && i < each * t.size(); ++i) {
    Messages received(t);
    received.receive(Transport::any_rank, 4, 100);
    received.finish();
    const auto& [transfer, memory] = received.all.front();
    expect(transfer.peer >= 0 && transfer.peer < t.size(), "the sender is a rank: " + std::to_string(transfer.peer));
    const int number = next[static_cast<std::size_t>(transfer.peer)]++;
    expect(memory == contents(100, transfer.peer, 0, number), "order of messages to any rank");
  }
  sent.finish();
}

/// A cancelled receive takes no message and does not change its memory.
void cancelled(Transport& t) {
  Bytes memory(64, std::byte{0x5a});
  for (const int from : {Transport::any_rank, t.rank()}) {
    Transfer receive;
    t.receive(receive, from, 6, memory);
    expect(!t.test(receive), "a receive without a message does not complete");
    t.cancel(receive);
    expect(!receive.active, "a cancelled receive is not active");
  }
  Messages own(t);
  own.receive(t.rank(), 6, 64);
  own.send(t.rank(), 6, contents(64, t.rank(), t.rank(), 1));
  own.finish();
  expect(own.all.front().bytes == contents(64, t.rank(), t.rank(), 1), "a message after a cancelled receive");
  expect(memory == Bytes(64, std::byte{0x5a}), "the memory of a cancelled receive is unchanged");
}

/// A message that is longer than the memory for it is an error of the receiver. (Only for short messages between two
/// ranks: with others, Open MPI writes past the end of the memory.)
void too_long(Transport& t) {
  if (t.size() == 1) return;
  const int to = (t.rank() + 1) % t.size(), from = (t.rank() + t.size() - 1) % t.size();
  Messages messages(t);
  messages.receive(from, 8, 4);
  messages.send(to, 8, contents(8, 0, 0, 0));
  std::string text;
  try {
    messages.finish();
  } catch (const ConnectionError& e) {
    text = e.what();
  }
  const std::string ranks = "(rank " + std::to_string(t.rank()) + ", peer " + std::to_string(from) + ")";
  expect(text.find("MPI_Test failed in ") != text.npos && text.find(ranks) != text.npos &&
             text.find("truncated") != text.npos,
         "the error of a message that is too long: '" + text + "'");
  finish(t, messages.all.back().transfer);
}

}  // namespace

void check_transport(Transport& transport, bool errors_return) {
  ping_pong(transport);
  many_messages(transport);
  any_rank(transport);
  cancelled(transport);
  if (errors_return) too_long(transport);
}

}  // namespace tessera::test
