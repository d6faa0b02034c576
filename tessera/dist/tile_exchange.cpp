// SPDX-License-Identifier: Apache-2.0
#include "tessera/dist/tile_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <thread>

#include "tessera/dist/error.h"

namespace tessera::dist {

namespace {

constexpr int key_tag = 4, first_data_tag = 32;
constexpr std::uint32_t data_tags = 16000;

std::uint64_t epoch_of(const tessera::detail::TileKey& key) { return key.array >> 40; }

}  // namespace

TileExchange::TileExchange(Communicator& communicator)
    : rank_(communicator.rank()),
      size_(communicator.size()),
      communicator_(&communicator),
      recent_(kept_submissions),
      sent_(static_cast<std::size_t>(size_)),
      left_(static_cast<std::size_t>(size_)) {}

TileExchange::~TileExchange() {
  if (outgoing_.empty() && incoming_.empty()) return;
  // After an error, MPI may still refer to this memory.
  static auto* const kept = new std::pair<std::mutex, std::vector<std::shared_ptr<void>>>;
  const std::lock_guard held(kept->first);
  kept->second.push_back(std::make_shared<std::pair<std::list<Outgoing>, std::list<Incoming>>>(std::move(outgoing_),
                                                                                               std::move(incoming_)));
}

void TileExchange::detach() {
  communicator_ = nullptr;
  while (users_ != 0) std::this_thread::yield();
}

void TileExchange::end() {
  if (generation_ != os::fork_generation()) return;
  fail("the World has ended");
  deliver();
}

/// Throws ConnectionError if the World has ended.
Communicator& TileExchange::communicator(const char* operation) {
  Communicator* const found = communicator_;
  if (found == nullptr) tessera::fail<ConnectionError>({.operation = operation, .wrong = "the World has ended"});
  if (generation_ != os::fork_generation())
    tessera::fail<ConnectionError>({.operation = operation,
                                    .wrong = "this process was forked after its World was created",
                                    .remedy = "only the parent can exchange tiles"});
  return *found;
}

void TileExchange::submitted(const Submission& last) {
  const std::lock_guard held(lock_);
  last_ = last;
  recent_[last.number % kept_submissions] = last;
}

// --- Requests of tasks

void TileExchange::request(Request request) {
  struct User {
    explicit User(std::atomic<int>& all) : count(all) { ++count; }
    ~User() { --count; }
    std::atomic<int>& count;
  } const user(users_);
  Communicator& communicator = this->communicator("region");
  {
    const std::lock_guard held(lock_);
    requests_.push_back(std::move(request));
  }
  communicator.progress_background();
}

void TileExchange::send(int to, const TileKey& key, const Submission& by, std::span<const std::byte> data,
                        std::shared_ptr<void> memory, executor::NodeRef node) {
  Request r{.what = Request::What::send, .peer = to, .key = key, .by = by};
  r.data = data, r.memory = std::move(memory), r.node = std::move(node);
  request(std::move(r));
}

void TileExchange::send_failure(int to, const TileKey& key, const Submission& by, const std::string& text) noexcept {
  try {
    Request r{.what = Request::What::failure, .peer = to, .key = key, .by = by};
    r.text = text;
    request(std::move(r));
  } catch (const std::exception&) {}  // the World has ended
}

void TileExchange::receive(int from, const TileKey& key, const Submission& by, std::span<std::byte> room,
                           std::shared_ptr<void> memory, executor::NodeRef node) {
  Request r{.what = Request::What::receive, .peer = from, .key = key, .by = by};
  r.room = room, r.memory = std::move(memory), r.node = std::move(node);
  request(std::move(r));
}

void TileExchange::leave_region(const Submission& last) noexcept {
  try {
    Request r{.what = Request::What::left, .peer = -1, .key = {}, .by = last};
    r.epoch = epoch_;
    request(std::move(r));
  } catch (const std::exception&) {}
}

// --- Messages

TileExchange::Header TileExchange::header_of(Kind kind, const Submission& by) const {
  Header h;
  h.kind = kind, h.epoch = epoch_, h.hash = by.hash, h.region = by.region, h.submission = by.number;
  h.line = by.where.line();
  const std::size_t length = std::strlen(by.where.file_name());
  const std::size_t skipped = length < room_for_file ? 0 : length - room_for_file + 1;
  std::memcpy(h.file, by.where.file_name() + skipped, length - skipped);
  return h;
}

/// Sends `data`, or `text` if there are no data.
TileExchange::Outgoing& TileExchange::start_send(Transport& transport, int to, Header header,
                                                 std::span<const std::byte> data, const std::string& text) {
  header.number = sent_[static_cast<std::size_t>(to)]++;
  header.bytes = data.size();
  header.text = static_cast<std::uint32_t>(std::min(text.size(), inline_bytes));
  const bool inlined = data.size() <= inline_bytes;
  const std::size_t extra = header.text != 0 ? header.text : inlined ? data.size() : 0;
  Outgoing& o = outgoing_.emplace_back();
  o.message = std::make_unique_for_overwrite<std::byte[]>(sizeof header + extra);
  std::memcpy(o.message.get(), &header, sizeof header);
  if (header.text != 0)
    std::memcpy(o.message.get() + sizeof header, text.data(), extra);
  else if (extra != 0)
    std::memcpy(o.message.get() + sizeof header, data.data(), extra);
  transport.send(o.envelope, to, key_tag, {o.message.get(), sizeof header + extra});
  if (inlined) return o;
  const int tag = first_data_tag + static_cast<int>(header.number % data_tags);
  o.pieces.resize((data.size() + Transport::max_bytes - 1) / Transport::max_bytes);
  for (std::size_t i = 0; i < o.pieces.size(); ++i) {
    const std::size_t begin = i * Transport::max_bytes;
    transport.send(o.pieces[i], to, tag, data.subspan(begin, std::min(Transport::max_bytes, data.size() - begin)));
  }
  return o;
}

void TileExchange::start(Transport& transport, Request& r) {
  switch (r.what) {
    case Request::What::send: {
      Header header = header_of(Kind::data, r.by);
      header.key = r.key;
      sent_bytes_ += r.data.size();
      Outgoing& o = start_send(transport, r.peer, header, r.data, {});
      o.memory = std::move(r.memory), o.node = std::move(r.node);
      return;
    }
    case Request::What::failure: {
      Header header = header_of(Kind::failure, r.by);
      header.key = r.key;
      start_send(transport, r.peer, header, {}, r.text.empty() ? "unknown error" : r.text);
      return;
    }
    case Request::What::receive: return post(transport, r);
    case Request::What::left:
      if (r.epoch != epoch_) return;  // the region has ended in the meantime
      left_[static_cast<std::size_t>(rank_)] = epoch_ + 1;
      for (int to = 0; to < size_; ++to)
        if (to != rank_) start_send(transport, to, header_of(Kind::left, r.by), {}, {});
      fail_posted(-1, std::make_exception_ptr(tessera::detail::RemoteError("an exception left the region")));
      return hold_back(transport);
  }
}

void TileExchange::finish(executor::NodeRef node, std::exception_ptr error) {
  if (!node) return;
  const std::lock_guard held(ended_lock_);
  ended_.push_back({std::move(node), std::move(error)});
}

void TileExchange::deliver() {
  std::vector<Ended> ended;
  {
    const std::lock_guard held(ended_lock_);
    ended.swap(ended_);
  }
  for (Ended& e : ended) e.node->end(std::move(e.error));
}

void TileExchange::close(Transport& transport) {
  if (inbox_transfer_.active) transport.cancel(inbox_transfer_);
}

/// Ends the receives from a rank (-1: from all) for which no message has arrived.
void TileExchange::fail_posted(int from, const std::exception_ptr& error) {
  std::erase_if(posted_, [&](auto& entry) {
    if ((from >= 0 && std::get<0>(entry.first) != from) || !entry.second.node) return false;
    finish(std::move(entry.second.node), error);
    return true;
  });
}

void TileExchange::post(Transport& transport, Request& r) {
  const Source source{r.peer, r.key.array, r.key.tile, r.key.version};
  Posted posted{r.room, std::move(r.memory), std::move(r.node), r.by, Clock::now(), Clock::now()};
  if (const auto at = early_.find(source); at != early_.end()) {
    Early early = std::move(at->second);
    early_.erase(at);
    if (!early.held) early_bytes_ -= early.data.size();
    if (early.held) {
      const bool dropped = !posted.node;
      return receive_data(
          transport,
          {r.peer, early.header, {}, posted.room, std::move(posted.memory), {}, std::move(posted.node), dropped});
    }
    return deliver_to(r.peer, posted, early.header, early.data);
  }
  const bool other_left = left_[static_cast<std::size_t>(r.peer)] == epoch_ + 1;
  if (posted.node && !mismatch_.empty())
    return finish(std::move(posted.node), std::make_exception_ptr(tessera::detail::RemoteError(mismatch_)));
  if (posted.node && (other_left || left_[static_cast<std::size_t>(rank_)] == epoch_ + 1))
    return finish(std::move(posted.node), std::make_exception_ptr(tessera::detail::RemoteError(fmt::format(
                                              "rank {} has left the region", other_left ? r.peer : rank_))));
  if (posted.node && epoch_of(r.key) < epoch_)
    return finish(std::move(posted.node),
                  std::make_exception_ptr(tessera::detail::RemoteError("another region has failed")));
  const auto [at, is_new] = posted_.try_emplace(source, std::move(posted));
  if (!is_new) finish(std::move(posted.node), std::make_exception_ptr(Error("a tile is received twice")));
}

/// Ends a receive whose message has arrived, with data or with the text of an error.
void TileExchange::deliver_to(int from, Posted& posted, const Header& header, std::span<std::byte> data) {
  if (!posted.node) return;
  if (header.kind == Kind::failure)
    return finish(std::move(posted.node),
                  std::make_exception_ptr(tessera::detail::RemoteError(fmt::format(
                      "rank {}: {}", from, std::string(reinterpret_cast<char*>(data.data()), data.size())))));
  if (data.size() != posted.room.size())
    return finish(std::move(posted.node),
                  std::make_exception_ptr(MismatchError(fmt::format(
                      "ranks submitted different tasks: rank {} sent {} bytes of a tile instead of {}, at {}:{}", from,
                      data.size(), posted.room.size(), header.file, header.line))));
  if (!data.empty()) std::memcpy(posted.room.data(), data.data(), data.size());
  finish(std::move(posted.node));
}

/// Receives data that are sent separately.
void TileExchange::receive_data(Transport& transport, Incoming incoming) {
  if (incoming.node && incoming.room.size() != incoming.header.bytes) {
    finish(
        std::move(incoming.node),
        std::make_exception_ptr(MismatchError(fmt::format(
            "ranks submitted different tasks: rank {} sent {} bytes of a tile instead of {}, at {}:{}", incoming.from,
            incoming.header.bytes, incoming.room.size(), incoming.header.file, incoming.header.line))));
    incoming.dropped = true;
  }
  Incoming& in = incoming_.emplace_back(std::move(incoming));
  if (in.dropped || !in.node) {
    in.own.resize(in.header.bytes);
    in.room = in.own;
  }
  const int tag = first_data_tag + static_cast<int>(in.header.number % data_tags);
  in.pieces.resize((in.room.size() + Transport::max_bytes - 1) / Transport::max_bytes);
  for (std::size_t i = 0; i < in.pieces.size(); ++i) {
    const std::size_t begin = i * Transport::max_bytes;
    transport.receive(in.pieces[i], in.from, tag,
                      in.room.subspan(begin, std::min(Transport::max_bytes, in.room.size() - begin)));
  }
}

/// Handles the data of a message that have arrived.
void TileExchange::complete(Incoming& in) {
  if (in.node) return finish(std::move(in.node));
  if (in.dropped) return;
  const TileKey& key = in.header.key;
  const Source source{in.from, key.array, key.tile, key.version};
  const auto posted = posted_.find(source);
  if (posted != posted_.end()) {  // posted while the data arrived
    Posted p = std::move(posted->second);
    posted_.erase(posted);
    early_bytes_ -= in.own.size();
    return deliver_to(in.from, p, in.header, in.own);
  }
  early_.emplace(source, Early{in.header, std::move(in.own), false});
}

/// Handles the message in the inbox.
void TileExchange::arrived(Transport& transport, int from) {
  const Header header = inbox_.header;
  const std::size_t extra = header.text != 0 ? header.text : header.bytes <= inline_bytes ? header.bytes : 0;
  const std::span<std::byte> data(inbox_.data, extra);
  if (header.kind == Kind::question) return answer(transport, from, header, data);
  if (header.kind == Kind::different)
    return differ(transport, from, header, std::string(reinterpret_cast<char*>(data.data()), data.size()));
  if (header.kind == Kind::left) {
    left_[static_cast<std::size_t>(from)] = header.epoch + 1;
    if (header.epoch == epoch_)
      fail_posted(from, std::make_exception_ptr(
                            tessera::detail::RemoteError(fmt::format("rank {} has left the region", from))));
    return;
  }
  const bool separate = header.kind == Kind::data && header.bytes > inline_bytes;
  const Source source{from, header.key.array, header.key.tile, header.key.version};
  const bool drops =
      epoch_of(header.key) < epoch_ ||
      (epoch_of(header.key) == epoch_ && (left_[static_cast<std::size_t>(rank_)] == epoch_ + 1 || !mismatch_.empty()));
  const auto at = drops ? posted_.end() : posted_.find(source);
  if (drops) {
    if (separate) receive_data(transport, {from, header, {}, {}, {}, {}, {}, true});
    return;
  }
  if (at != posted_.end()) {
    Posted& posted = at->second;
    if (posted.node && (posted.by.number != header.submission || posted.by.hash != header.hash)) {
      posted.since = posted.asked = Clock::time_point();  // asks what the sender has submitted
      if (separate) receive_data(transport, {from, header, {}, {}, {}, {}, {}, true});
      return;
    }
    Posted p = std::move(posted);
    posted_.erase(at);
    if (!separate) return deliver_to(from, p, header, data);
    const bool dropped = !p.node;
    return receive_data(transport, {from, header, {}, p.room, std::move(p.memory), {}, std::move(p.node), dropped});
  }
  if (separate && early_bytes_ + header.bytes > most_early_bytes) {
    early_.emplace(source, Early{header, {}, true});
    return;
  }
  early_bytes_ += header.bytes <= inline_bytes ? extra : header.bytes;
  largest_early_bytes_ = std::max(largest_early_bytes_.load(), early_bytes_);
  if (separate)
    receive_data(transport, {from, header, {}, {}, {}, {}, {}});
  else
    early_.try_emplace(source, Early{header, {data.begin(), data.end()}, false});
}

/// Receives and drops what other ranks have sent for a region that this rank has left.
void TileExchange::hold_back(Transport& transport) {
  drop_early(transport, [this](std::uint64_t epoch) { return epoch == epoch_; });
}

/// Drops early messages of the epochs for which `drops` returns true.
void TileExchange::drop_early(Transport& transport, const Callback<bool(std::uint64_t)>& drops) {
  std::erase_if(early_, [&](auto& entry) {
    auto& [source, early] = entry;
    if (!drops(epoch_of(early.header.key))) return false;
    if (early.held)
      receive_data(transport, {std::get<0>(source), early.header, {}, {}, {}, {}, {}, true});
    else
      early_bytes_ -= early.data.size();
    return true;
  });
}

/// Drops messages of a region that has failed.
void TileExchange::drop_old(Transport& transport) {
  seen_epoch_ = epoch_;
  mismatch_.clear();
  drop_early(transport, [this](std::uint64_t epoch) { return epoch < seen_epoch_; });
  const auto error = std::make_exception_ptr(tessera::detail::RemoteError("another region has failed"));
  std::erase_if(posted_, [&](auto& entry) {
    if (std::get<1>(entry.first) >> 40 >= seen_epoch_) return false;
    finish(std::move(entry.second.node), error);
    return true;
  });
}

bool TileExchange::progress(Transport& transport) {
  std::vector<Request> requests;
  {
    const std::lock_guard held(lock_);
    requests.swap(requests_);
  }
  if (failed_) {
    for (Request& r : requests) finish(std::move(r.node), std::make_exception_ptr(ConnectionError(failure_)));
    return false;
  }
  if (seen_epoch_ != epoch_) drop_old(transport);
  if (!inbox_transfer_.active)
    transport.receive(inbox_transfer_, Transport::any_rank, key_tag, std::as_writable_bytes(std::span(&inbox_, 1)));
  for (auto r = requests.begin(); r != requests.end(); ++r) try {
      start(transport, *r);
    } catch (...) {  // fail() ends the others
      const std::lock_guard held(lock_);
      requests_.insert(requests_.end(), std::make_move_iterator(r), std::make_move_iterator(requests.end()));
      throw;
    }
  while (transport.test(inbox_transfer_)) {
    arrived(transport, inbox_transfer_.peer);
    transport.receive(inbox_transfer_, Transport::any_rank, key_tag, std::as_writable_bytes(std::span(&inbox_, 1)));
  }
  const auto tested = [&](std::vector<Transfer>& pieces) {
    return std::ranges::all_of(pieces, [&](Transfer& t) { return transport.test(t); });
  };
  std::erase_if(outgoing_, [&](Outgoing& o) {
    if (!transport.test(o.envelope) || !tested(o.pieces)) return false;
    finish(std::move(o.node));
    return true;
  });
  for (auto in = incoming_.begin(); in != incoming_.end();) {
    if (!tested(in->pieces)) {
      ++in;
      continue;
    }
    Incoming done = std::move(*in);
    in = incoming_.erase(in);
    complete(done);
  }
  if (!posted_.empty()) ask(transport);
  return !outgoing_.empty() || !incoming_.empty() || !posted_.empty();
}

std::vector<int> TileExchange::missing() const {
  std::vector<int> of;
  for (const auto& [source, posted] : posted_)
    if (posted.node && (of.empty() || of.back() != std::get<0>(source))) of.push_back(std::get<0>(source));
  return of;
}

void TileExchange::fail(const std::string& why) {
  if (!failed_) failure_ = why;
  failed_ = true;
  const auto error = std::make_exception_ptr(ConnectionError(failure_));
  fail_posted(-1, error);
  for (Outgoing& o : outgoing_) finish(std::move(o.node), error);
  for (Incoming& in : incoming_) finish(std::move(in.node), error);
  std::vector<Request> requests;
  {
    const std::lock_guard held(lock_);
    requests.swap(requests_);
  }
  for (Request& r : requests) finish(std::move(r.node), error);
}

}  // namespace tessera::dist
