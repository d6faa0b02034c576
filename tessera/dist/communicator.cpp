// SPDX-License-Identifier: Apache-2.0
#include "tessera/dist/communicator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>

#include "tessera/base/config.h"
#include "tessera/base/log.h"
#include "tessera/base/os/time_slice.h"
#include "tessera/dist/error.h"
#include "tessera/dist/mpi_start.h"

namespace tessera::dist {

namespace {

constexpr int envelope_tag = 1, data_tag = 2, control_tag = 3, piece_tag = 5;  // 4: tile_exchange.cpp
using std::chrono::duration_cast;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

double in_seconds(std::chrono::steady_clock::duration d) { return std::chrono::duration<double>(d).count(); }

/// The communicators of this process, for exit().
struct Communicators {
  std::mutex lock;
  std::vector<Communicator*> all;
};
constinit os::PerProcess<Communicators> communicators;

}  // namespace

int Round::rank() const { return communicator_.rank_; }
int Round::size() const { return communicator_.size_; }
std::span<std::byte> Round::scratch(std::size_t bytes) {
  if (communicator_.scratch_bytes_ < bytes) {
    communicator_.scratch_.reset();
    communicator_.scratch_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
    communicator_.scratch_bytes_ = bytes;
  }
  return {communicator_.scratch_.get(), bytes};
}
void Round::exchange(std::span<const Outgoing> out, std::span<const Incoming> in) { communicator_.exchange(out, in); }

void Round::wait(const Callback<bool()>& done) {
  std::vector<int> others;
  for (int k = 0; k < size(); ++k)
    if (k != rank()) others.push_back(k);
  communicator_.wait(done, [&]() -> const std::vector<int>& { return others; });
}
void Round::count_sent(std::uint64_t bytes, std::uint64_t messages) {
  communicator_.sent_bytes_ += bytes, communicator_.sent_messages_ += messages;
}

Communicator::Communicator(Callback<std::unique_ptr<Transport>()> open)
    : exceptions_(std::uncaught_exceptions()), timeout_(ranks_timeout()) {
  std::promise<void> opened;
  thread_ = std::thread([&, open = std::move(open)] {
    try {
      transport_ = open();
      rank_ = transport_->rank(), size_ = transport_->size(), name_ = transport_->name();
      peers_.resize(static_cast<std::size_t>(size_));
      receive_control();
    } catch (...) {
      opened.set_exception(std::current_exception());
      return;
    }
    opened.set_value();
    main();
  });
  try {
    opened.get_future().get();
  } catch (...) {
    thread_.join();
    throw;
  }
  const std::lock_guard held(communicators->lock);
  communicators->all.push_back(this);
  const os::ForkGuard guard;
  static const int registered = std::atexit(&Communicator::end_all);
  static_cast<void>(registered);
}

Communicator::~Communicator() {
  if (generation_ != os::fork_generation()) {  // the thread and the connections belong to the parent
    thread_.detach();
    static_cast<void>(transport_.release());
    static_cast<void>(wake_.release());  // its destructor would wait for the thread
    return;
  }
  {
    const std::lock_guard held(communicators->lock);
    std::erase(communicators->all, this);
  }
  left_by_exception_ = std::uncaught_exceptions() > exceptions_;
  stop();
  if (thread_.joinable()) thread_.join();
}

void Communicator::stop() {
  {
    const std::lock_guard held(lock_);
    stop_ = true;
  }
  wake_->notify_all();
}

/// Called by exit(). The other ranks see an end of this rank as if its World were destroyed.
void Communicator::end_all() {
  const std::lock_guard held(communicators->lock);
  const auto is_here = [](const Communicator* c) {  // MPI calls exit() in MPI_Abort
    return c->user_ == std::this_thread::get_id() || c->thread_.get_id() == std::this_thread::get_id();
  };
  if (std::ranges::any_of(communicators->all, is_here)) return;
  for (Communicator* c : communicators->all) c->exits_ = true, c->stop();
  for (Communicator* c : communicators->all) c->thread_.join();
}

void Communicator::check_not_forked(const Call& call, std::uint32_t generation) {
  if (generation != os::fork_generation())
    fail<ConnectionError>({.operation = to_string(call),
                           .wrong = "this process was forked after its World was created",
                           .remedy = "only the parent can take part in collectives"});
}

void Communicator::enqueue(std::shared_ptr<Command> command) {
  {
    const std::lock_guard held(lock_);
    if (stop_) fail<ConnectionError>({.operation = to_string(command->call), .wrong = "the program is ending"});
    ++queued_;
    commands_.push_back(std::move(command));
  }
  wake_->notify_one();
}

void Communicator::run(const Call& call, const Callback<void(Round&)>& work) {
  if (queued_ != 0 || !transport_->any_thread()) return wait_for(*start(call, work));
  check_not_forked(call, generation_);
  Command command{.call = call, .work = work};
  {
    const std::lock_guard held(transport_lock_);
    user_ = std::this_thread::get_id();
    serve(command);
    user_ = std::thread::id();
  }
  if (command.error) std::rethrow_exception(command.error);
}

std::shared_ptr<const Communicator::Command> Communicator::start(const Call& call, const Callback<void(Round&)>& work) {
  check_not_forked(call, generation_);
  auto command = std::make_shared<Command>(call, work);
  enqueue(command);
  return command;
}

void Communicator::wait_for(const Command& command) {
  if (!command.done) check_not_forked(command.call, command.generation);
  command.done.wait(false);
  if (command.error) std::rethrow_exception(command.error);
}

void Communicator::watch(int rank, pid_t process, std::uint64_t start) {
  const std::lock_guard held(transport_lock_);
  peers_[static_cast<std::size_t>(rank)].process = {process, start};
}

void Communicator::main() {
  os::request_short_slices();  // messages wait for this thread while others compute
  std::unique_lock held(lock_);
  std::chrono::microseconds nap(20);  // while messages are under way
  for (;;) {
    if (background_busy_ && nap < microseconds(200))
      nap += nap / 4;
    else if (!background_busy_)
      nap = microseconds(20);
    wake_->wait_for(held, background_busy_ ? nap : milliseconds(20),
                    [&] { return stop_ || !commands_.empty() || background_woken_; });
    if (std::exchange(background_woken_, false)) nap = microseconds(20);
    if (!commands_.empty()) {
      const std::shared_ptr<Command> next = std::move(commands_.front());
      commands_.pop_front();
      held.unlock();
      {
        const std::lock_guard transport(transport_lock_);
        serve(*next);
      }
      next->work = nullptr;
      next->done = true;
      next->done.notify_all();
      --queued_;
      held.lock();
      continue;
    }
    if (stop_) break;
    held.unlock();
    poll_idle();
    held.lock();
  }
  held.unlock();
  const std::lock_guard transport(transport_lock_);
  close();
}

/// Answers other ranks, unless a collective is running, which does so itself.
void Communicator::poll_idle() {
  std::unique_lock transport(transport_lock_, std::try_to_lock);
  if (!transport) return;
  try {
    poll_control();
    supervise_background();
  } catch (const ConnectionError& e) {
    report_failure(Notice::failed, e.what());
  } catch (const std::exception& e) {
    set_failure(Notice::failed, e.what());
  }
  poll_background();
  transport.unlock();
  deliver_background();
}

void Communicator::serve(Command& command) {
  try {
    poll_control();
    poll_background();
    throw_failure();
    running_ = &command.call;
    Round round(*this);
    if (!is_counted(command.call.kind)) {
      command.work(round);
      running_ = nullptr;
      return;
    }
    const std::uint64_t number = count_ + 1;
    hash_ = extend_hash(hash_, command.call);
    calls_[number % kept_calls] = command.call, hashes_[number % kept_calls] = hash_;
    if (command.call.step != 0) step_ = command.call.step;
    command.work(round);
    count_ = number;
  } catch (const MismatchError& e) {
    command.error = std::current_exception();
    report_failure(Notice::mismatched, e.what());
  } catch (const std::exception& e) {
    command.error = std::current_exception();
    report_failure(Notice::failed, e.what());
  }
  running_ = nullptr;
  if (scratch_bytes_ > kept_scratch) scratch_.reset(), scratch_bytes_ = 0;
}

/// Sends a failure of this rank to all others, so that they do not wait for it.
void Communicator::report_failure(Notice kind, const std::string& text) noexcept {
  const bool known = failed_;
  set_failure(kind, text);
  if (known) return;  // it came from another rank, which reports it to all
  try {
    for (int peer = 0; peer < size_; ++peer)
      if (peer != rank_) send_control(peer, kind, text);
    const auto until = Clock::now() + seconds(2);
    while (!outbox_.empty() && Clock::now() < until) poll_control();
  } catch (...) {}
}

void Communicator::close() {
  try {
    if (left_by_exception_ && !failed_) {
      report_failure(Notice::failed, exception_left());
    }
    const bool ends_regularly = !failed_;
    const auto notice = failed_ ? Notice::left : Notice::ended;
    for (int peer = 0; peer < size_; ++peer)
      if (peer != rank_) send_control(peer, notice, "");
    if (ends_regularly) try {
        wait_for_ends();
      } catch (const std::exception& e) {
        set_failure(Notice::failed, e.what());
      }
    // After an error, other ranks have some time to report it before the end of this process ends them, and the first
    // one to fail has more.
    for (const auto until = Clock::now() + seconds(1); Clock::now() < until;
         std::this_thread::sleep_for(microseconds(100))) {
      poll_control();
      if (outbox_.empty() && std::ranges::count_if(peers_, &Peer::has_left) >= size_ - 1) break;
    }
    if (inbox_transfer_.active) transport_->cancel(inbox_transfer_);
    if (Background* const background = background_) background->close(*transport_);
    if (other_failed_) std::this_thread::sleep_for(milliseconds(ends_regularly ? 200 : 100));
    // This program got no exception and could end with exit code 0.
    if (ends_regularly && failed_) abort_job(fmt::format("rank {} has ended, but {}", rank_, failure_));
  } catch (...) {}
  try {
    transport_->close(!failed_ && !left_by_exception_);
  } catch (const std::exception& e) {  // all collectives have completed
    logging::warn(fmt::format("rank {}: {}", rank_, e.what()));
  }
  if (!failed_) return set_failure(Notice::failed, "the World has ended");
  // MPI still refers to envelopes that were not received.
  static auto* const kept = new std::pair<std::mutex, std::vector<std::shared_ptr<void>>>;
  const std::lock_guard held(kept->first);
  kept->second.push_back(
      std::make_shared<std::pair<std::vector<Peer>, std::list<Outbox>>>(std::move(peers_), std::move(outbox_)));
}

/// Describes, and logs, why a rank that threw an exception leaves the others.
std::string Communicator::exception_left() const {
  const std::string text = fmt::format("an exception left the scope of its World, after {}", last_call());
  logging::warn(fmt::format("rank {}: {}", rank_, text));
  return text;
}

/// Waits until all ranks have ended, and answers those that still compute.
void Communicator::wait_for_ends() {
  static const Call end{.kind = Collective::end};
  running_ = &end;
  const auto missing = [&] {
    std::vector<int> of;
    for (int peer = 0; peer < size_; ++peer)
      if (peer != rank_ && !peers_[static_cast<std::size_t>(peer)].ended) of.push_back(peer);
    return of;
  };
  wait([&] { return missing().empty(); }, missing);
}

void Communicator::exchange(std::span<const Round::Outgoing> out, std::span<const Round::Incoming> in) {
  /// The transfers of one message: its envelope, and its data. Short data are copied behind the envelope, and both are
  /// sent as one stream of pieces; the first one has the envelope.
  struct Message {
    int peer;
    std::span<std::byte> data;
    Transfer envelope;
    std::vector<Transfer> pieces;
    bool data_started = false, done = false;
  };
  const std::uint64_t number = count_ + 1;
  std::vector<Message> sends, receives;
  sends.reserve(out.size()), receives.reserve(in.size());
  const auto start_pieces = [&](Message& m, bool sending) {
    m.data_started = true;
    const std::size_t count = (m.data.size() + Transport::max_bytes - 1) / Transport::max_bytes;
    m.pieces.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      const auto piece = m.data.subspan(i * Transport::max_bytes,
                                        std::min(Transport::max_bytes, m.data.size() - i * Transport::max_bytes));
      if (sending)
        transport_->send(m.pieces[i], m.peer, data_tag, piece);
      else
        transport_->receive(m.pieces[i], m.peer, data_tag, piece);
    }
  };
  const auto verified = [&](int peer) {  // whether the data can be sent: the peer is known to make the same call
    const auto at = std::ranges::find(receives, peer, &Message::peer);
    return at == receives.end() || at->data_started || at->done;
  };
  // Receives have room for whole pieces, so that a longer message of another call is not truncated.
  const auto whole_pieces = [](std::size_t size) { return (size + eager_bytes - 1) / eager_bytes * eager_bytes; };
  const auto start_short = [&](Message& m, std::span<std::byte> stream, bool sending) {
    const auto start = [&](Transfer& t, int tag, std::span<std::byte> piece) {
      sending ? transport_->send(t, m.peer, tag, piece) : transport_->receive(t, m.peer, tag, piece);
    };
    m.pieces.resize((stream.size() - 1) / eager_bytes);
    start(m.envelope, envelope_tag, stream.first(std::min(eager_bytes, stream.size())));
    for (std::size_t i = 0; i < m.pieces.size(); ++i) {
      const std::size_t at = (i + 1) * eager_bytes;
      start(m.pieces[i], piece_tag, stream.subspan(at, std::min(eager_bytes, stream.size() - at)));
    }
  };
  const auto short_data = [](const Message& m) { return m.data.size() <= inline_bytes; };
  const auto test_pieces = [&](Message& m) {
    return std::ranges::all_of(m.pieces, [&](Transfer& t) { return transport_->test(t); });
  };

  for (const auto& [from, data] : in) {
    Peer& peer = peers_[static_cast<std::size_t>(from)];
    peer.in.resize(whole_pieces(sizeof(Envelope) + inline_bytes));
    receives.push_back({.peer = from, .data = data});
    const std::size_t size = sizeof(Envelope) + (short_data(receives.back()) ? data.size() : 0);
    start_short(receives.back(), std::span(peer.in).first(whole_pieces(size)), false);
  }
  for (const auto& [to, data] : out) {
    Peer& peer = peers_[static_cast<std::size_t>(to)];
    const Envelope envelope = envelope_of(*running_, number, hash_, data.size());
    const std::size_t inlined = data.size() <= inline_bytes ? data.size() : 0;
    peer.out.resize(sizeof(Envelope) + inlined);
    std::memcpy(peer.out.data(), &envelope, sizeof envelope);
    if (inlined != 0) std::memcpy(peer.out.data() + sizeof envelope, data.data(), inlined);
    sends.push_back({.peer = to, .data = {const_cast<std::byte*>(data.data()), data.size()}});
    start_short(sends.back(), peer.out, true);
    sent_bytes_ += sizeof envelope + data.size();
    ++sent_messages_;
  }

  const auto progress_receive = [&](Message& m) {
    if (!m.data_started) {
      if (!transport_->test(m.envelope)) return;
      Peer& peer = peers_[static_cast<std::size_t>(m.peer)];
      peer.last_sign = Clock::now();
      Envelope theirs;
      std::memcpy(&theirs, peer.in.data(), sizeof theirs);
      verify(theirs, m.peer, m.data.size());
      if (short_data(m))
        m.data_started = true;
      else
        start_pieces(m, false);
    }
    m.done = test_pieces(m);
    if (m.done && short_data(m) && !m.data.empty())
      std::memcpy(m.data.data(), peers_[static_cast<std::size_t>(m.peer)].in.data() + sizeof(Envelope), m.data.size());
  };
  const auto progress = [&] {
    bool all = true;
    for (Message& m : receives) {
      if (!m.done) progress_receive(m);
      all = all && m.done;
    }
    for (Message& m : sends) {
      if (m.done) continue;
      if (!short_data(m) && !m.data_started && verified(m.peer)) start_pieces(m, true);
      m.done = transport_->test(m.envelope) && (short_data(m) || m.data_started) && test_pieces(m);
      all = all && m.done;
    }
    return all;
  };
  const auto missing = [&] {
    std::vector<int> of;
    for (const auto* messages : {&receives, &sends})
      for (const Message& m : *messages)
        if (!m.done && std::ranges::find(of, m.peer) == of.end()) of.push_back(m.peer);
    return of;
  };
  try {
    wait(progress, missing);
  } catch (const std::exception& e) {
    // What is under way is completed, because other ranks wait for it, too. The memory of long data belongs to the
    // caller. Envelopes and short data stay in this object's memory, so that a rank that does not receive them cannot
    // delay the error.
    const auto begun = Clock::now();
    const auto settled = [&] {
      for (Message& m : receives) try {
          if (!m.done) progress_receive(m);
        } catch (const MismatchError&) {
          m.done = true;
        }
      const bool sent = std::ranges::all_of(
          sends, [&](Message& m) { return transport_->test(m.envelope) && (!short_data(m) || test_pieces(m)); });
      return std::ranges::all_of(sends, [&](Message& m) { return short_data(m) || test_pieces(m); }) &&
             (sent || Clock::now() - begun > milliseconds(100));
    };
    std::size_t bytes = 0;
    for (const auto* messages : {&sends, &receives})
      for (const Message& m : *messages) bytes += m.data.size();
    const auto limit = seconds(1) + microseconds(bytes / 50);  // 50 MB/s
    const auto incomplete = [&](const char* why) {
      abort_job(fmt::format("rank {} cannot complete its messages after an error: {}", rank_, why));
    };
    try {
      while (!settled()) {
        if (Clock::now() - begun > limit) incomplete(e.what());
        std::this_thread::sleep_for(microseconds(200));
      }
      for (Message& m : receives) {
        if (m.envelope.active) transport_->cancel(m.envelope);
        for (Transfer& t : m.pieces)
          if (t.active) transport_->cancel(t);
      }
    } catch (const std::exception& other) {  // messages would be received in memory that the caller frees
      incomplete(other.what());
    }
    throw;
  }
}

void Communicator::verify(const Envelope& theirs, int from, std::uint64_t bytes) {
  const std::uint64_t number = count_ + 1;
  if (theirs.magic != Envelope::known_magic)
    fail<MismatchError>({.operation = "ranks",
                         .with = {{"rank", std::to_string(from)}},
                         .wrong = "a message is not one of this program's collectives: another program uses the "
                                  "communicator, or the ranks run different versions"});
  if (theirs.number == number && theirs.hash == hash_ && theirs.bytes == bytes) return;
  fail_mismatch(theirs, from);
}

/// Compares the collective in which another rank waits with this rank's calls. Ranks that wait for each other in
/// different collectives would otherwise wait for ever.
void Communicator::check_ping(const Control& message, int from) {
  if (failed_ || running_ == nullptr || !is_counted(running_->kind)) return;
  Envelope theirs;
  std::memcpy(&theirs, message.text, sizeof theirs);
  const std::uint64_t number = count_ + 1;
  if (!is_counted(theirs.kind) || theirs.number > number || number - theirs.number >= kept_calls) return;
  if (theirs.hash != hashes_[theirs.number % kept_calls]) fail_mismatch(theirs, from);
}

std::uint64_t Communicator::take() {
  if (rank_ == 0) return counter_++;
  std::uint64_t number = 0;
  run({.kind = Collective::take}, [&](Round&) {
    static const std::vector<int> first{0};
    taken_.reset();
    send_control(0, Notice::take, "");
    wait(
        [&] {
          poll_control();
          return taken_.has_value();
        },
        [&]() -> const std::vector<int>& { return first; });
    number = *taken_;
  });
  return number;
}

void Communicator::fail_mismatch(const Envelope& theirs, int from) {
  const std::uint64_t number = count_ + 1;
  // The calls before this one were equal on this pair of ranks, unless the number differs: then one rank has made a
  // call that the other has not.
  const Call& ours =
      theirs.number < number && number - theirs.number < kept_calls ? calls_[theirs.number % kept_calls] : *running_;
  fail<MismatchError>(
      {.operation = to_string(*running_),
       .wrong = fmt::format("ranks made different calls: collective {} of rank {} is {}, and that of rank {} is {}",
                            std::min(number, theirs.number), rank_, to_string(ours), from,
                            theirs.number > number ? ask_for_call(from, number) : to_string(call_of(theirs))),
       .remedy = "All ranks must call the same collectives in the same order, with equal counts, dtypes and roots"});
}

/// Returns the call that a rank made earlier.
std::string Communicator::ask_for_call(int rank, std::uint64_t number) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  peer.call.clear();
  send_control(rank, Notice::which_call, "", number);
  for (const auto until = Clock::now() + seconds(1); peer.call.empty() && Clock::now() < until;) poll_control();
  return peer.call.empty() ? "unknown" : peer.call;
}

template <class Done, class Peers>
void Communicator::wait(const Done& done, const Peers& peers) {
  const auto begun = Clock::now();
  auto reported = begun, polled = begun;
  microseconds nap(20);
  while (!done()) {
    const auto now = Clock::now();
    if (background_busy_) poll_background();
    if (now - polled > milliseconds(1)) {
      polled = now;
      poll_control();
      throw_failure();
      if (exits_ && running_->kind != Collective::end)
        fail<ConnectionError>({.operation = to_string(*running_), .wrong = "the program called exit()"});
      if (left_by_exception_ && running_->kind != Collective::end)
        fail<ConnectionError>({.operation = to_string(*running_), .wrong = exception_left()});
      supervise(begun, reported, peers());
      if (!background_busy_) poll_background();
      deliver_background();
    }
    if (now - begun < spinning_) {
      if (yields_ && user_ == std::this_thread::get_id()) std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(nap);
      nap = std::min(nap + nap / 4, microseconds(200));
    }
  }
}

/// Checks the ranks that this one waits for: throws if one has ended, reports long waits, and ends the job if one has
/// not answered for `timeout_`.
void Communicator::supervise(Clock::time_point begun, Clock::time_point& reported, const std::vector<int>& peers) {
  const auto now = Clock::now();
  for (const int rank : peers) {
    const Peer& peer = peers_[static_cast<std::size_t>(rank)];
    if (peer.ended && peer.ended_after <= count_)
      fail<ConnectionError>(
          {.operation = to_string(*running_),
           .with = {{"rank", std::to_string(rank_)}},
           .wrong = fmt::format("rank {} has ended after {} collectives, and this one is number {}", rank,
                                peer.ended_after, count_ + 1),
           .remedy = "All ranks must call the same collectives, for example the same number of steps"});
    if (!peer.ended && peer.process.has_ended()) report_death(rank);
  }
  const auto first = std::min<Clock::duration>(seconds(10), timeout_ / 4);
  if (now - begun < std::min<Clock::duration>(seconds(1), first)) return;
  for (const int rank : peers) {
    Peer& peer = peers_[static_cast<std::size_t>(rank)];
    if (now - std::max(begun, peer.last_sign) > timeout_)
      abort_job(
          fmt::format("rank {}: rank {} has not answered for {:.0f} s, in {}. The job is ended. "
                      "TESSERA_RANKS_TIMEOUT sets this time",
                      rank_, rank, in_seconds(now - std::max(begun, peer.last_sign)), to_string(*running_)));
    if (peer.pinged < begun || now - peer.pinged > first) {
      peer.pinged = now;
      const Envelope waits_in = envelope_of(*running_, count_ + 1, hash_, 0);
      send_control(rank, Notice::ping, std::string(reinterpret_cast<const char*>(&waits_in), sizeof waits_in));
    }
  }
  if (now - reported < (reported == begun ? first + first / 2 : Clock::duration(seconds(30)))) return;
  reported = now;
  int lowest = 0;  // one of the ranks that wait reports it
  while (lowest < size_ && std::ranges::find(peers, lowest) != peers.end()) ++lowest;
  if (lowest != rank_) return;
  std::string who;
  for (const int rank : peers) {
    const Peer& peer = peers_[static_cast<std::size_t>(rank)];
    who += fmt::format("; rank {}: {}", rank, peer.doing.empty() ? "no answer" : peer.doing);
  }
  logging::print(fmt::format("warning: rank {} has waited for {:.0f} s in {}{}", rank_, in_seconds(now - begun),
                             to_string(*running_), who));
}

/// Ends the job because the process of a rank has ended, unless that rank has sent a reason.
void Communicator::report_death(int rank) {
  const Peer& peer = peers_[static_cast<std::size_t>(rank)];
  for (const auto until = Clock::now() + milliseconds(20); Clock::now() < until && !peer.ended;) {
    poll_control();
    throw_failure();
  }
  if (!peer.ended)
    abort_job(fmt::format("the process of rank {} has ended; rank {} waited for it in {}", rank, rank_,
                          to_string(*running_)));
}

void Communicator::abort_job(const std::string& why) {
  const std::string text = error_text({.operation = "ranks", .wrong = why});
  std::fprintf(stderr, "error: %s\n", text.c_str());
  std::fflush(stderr);
  transport_->abort(1);
  throw ConnectionError(text);
}

void Communicator::receive_control() {
  transport_->receive(inbox_transfer_, Transport::any_rank, control_tag, std::as_writable_bytes(std::span(&inbox_, 1)));
}

void Communicator::poll_control() {
  while (transport_->test(inbox_transfer_)) {
    const int from = inbox_transfer_.peer;
    const Control message = inbox_;
    receive_control();
    handle(message, from);
  }
  std::erase_if(outbox_, [&](Outbox& o) { return transport_->test(o.transfer); });
}

void Communicator::handle(const Control& message, int from) {
  Peer& peer = peers_[static_cast<std::size_t>(from)];
  peer.last_sign = Clock::now();
  const std::string text(message.text, strnlen(message.text, sizeof message.text));
  switch (message.kind) {
    case Notice::ping: send_control(from, Notice::pong, doing()); return check_ping(message, from);
    case Notice::pong: peer.doing = text; return;
    case Notice::failed:
    case Notice::mismatched:
      other_failed_ = other_failed_ || !failed_;
      return set_failure(message.kind, fmt::format("rank {} failed: {}", from, text));
    case Notice::ended: peer.ended = true, peer.ended_after = message.number; return;
    case Notice::left: peer.left = true; return;
    case Notice::which_call:
      return send_control(
          from, Notice::call,
          message.number + kept_calls > count_ + 1 ? to_string(calls_[message.number % kept_calls]) : "unknown");
    case Notice::call: peer.call = text; return;
    case Notice::take: return send_control(from, Notice::taken, "", counter_++);
    case Notice::taken: taken_ = message.number; return;
  }
}

void Communicator::send_control(int to, Notice kind, const std::string& text, std::optional<std::uint64_t> number) {
  Outbox& o = outbox_.emplace_back();
  o.message = {.kind = kind, .number = number.value_or(count_), .text = {}};
  std::memcpy(o.message.text, text.data(), std::min(text.size(), sizeof o.message.text - 1));
  const std::size_t size = offsetof(Control, text) + std::min(text.size() + 1, sizeof o.message.text);
  transport_->send(o.transfer, to, control_tag, std::as_bytes(std::span(&o.message, 1)).first(size));
}

std::string Communicator::doing() const {
  if (failed_) return "failed";
  if (running_ != nullptr) return fmt::format("in {} (collective {})", to_string(*running_), count_ + 1);
  if (count_ <= 1) return "computes, before its first collective";  // the first one introduces the ranks
  if (background_ != nullptr)
    if (const std::vector<int> peers = background_.load()->missing(); !peers.empty())
      return fmt::format("waits for tiles of ranks {}, after {}", fmt::join(peers, ", "), last_call());
  return fmt::format("computes, after {}", last_call());
}

std::string Communicator::last_call() const {
  if (count_ <= 1) return "the start";
  const Call& call = calls_[count_ % kept_calls];
  const std::string step = step_ == call.step ? "" : fmt::format(", training step {}", step_);
  return fmt::format("{} (collective {}{})", to_string(call), count_.load(), step);
}

void Communicator::set_failure(Notice kind, const std::string& text) {
  if (failed_) return;
  failed_ = true, mismatched_ = kind == Notice::mismatched;
  failure_ = text;
}

void Communicator::throw_failure() const {
  if (!failed_) return;
  if (mismatched_) throw MismatchError(failure_);
  throw ConnectionError(failure_);
}

}  // namespace tessera::dist
