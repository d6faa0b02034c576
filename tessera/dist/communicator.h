// SPDX-License-Identifier: Apache-2.0
// Runs collectives one after another, and answers other ranks that wait for this one, also while this rank computes.
// A thread of the communicator does this. If the transport allows calls from other threads, collectives run on the
// calling thread instead, because waking a thread takes longer than a short message. Internal.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tessera/base/callback.h"
#include "tessera/base/os/fork.h"
#include "tessera/base/os/process_tree.h"
#include "tessera/dist/background.h"
#include "tessera/dist/call.h"
#include "tessera/dist/transport.h"

namespace tessera::dist {

class Communicator;

/// The running collective, for the function that implements it (collectives.h). Used on the communicator's thread.
class Round {
 public:
  struct Outgoing {
    int to;
    std::span<const std::byte> data;
  };
  struct Incoming {
    int from;
    std::span<std::byte> data;
  };
  int rank() const;
  int size() const;
  /// Sends and receives one message each, and waits for all of them. Checks that the senders made the same call. Throws
  /// MismatchError or ConnectionError.
  void exchange(std::span<const Outgoing> out, std::span<const Incoming> in);
  /// Waits until `done` returns true, which depends on all other ranks. Throws ConnectionError if one of them fails.
  void wait(const Callback<bool()>& done);
  /// Counts data that another library has sent.
  void count_sent(std::uint64_t bytes, std::uint64_t messages);
  /// Uninitialised memory, valid until the next call. It is kept for later collectives.
  std::span<std::byte> scratch(std::size_t bytes);

 private:
  friend class Communicator;
  explicit Round(Communicator& communicator) : communicator_(communicator) {}
  Communicator& communicator_;
};

class Communicator {
 public:
  /// Starts the thread, which calls `open`. Rethrows its exception.
  explicit Communicator(Callback<std::unique_ptr<Transport>()> open);
  /// Tells the other ranks that this one has ended. Does not wait for them, except in MPI_Finalize. Does nothing in a
  /// forked child.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& name() const { return name_; }  ///< the transport's
  /// Called before other collectives if each rank of this machine has a core of its own: a wait then keeps the core
  /// for longer before it sleeps between tests.
  void keep_cores() { spinning_ = std::chrono::microseconds(200), yields_ = false; }

  /// A collective that this rank has called.
  struct Command {
    Call call;
    Callback<void(Round&)> work;
    std::exception_ptr error = nullptr;
    std::atomic<bool> done = false;
    const std::uint32_t generation = os::fork_generation();
  };
  /// Runs a collective and waits for its end. Rethrows its exception. After an exception, all later calls throw. Throws
  /// ConnectionError in a forked child.
  void run(const Call& call, const Callback<void(Round&)>& work);
  /// Lets the communicator's thread run a collective, after those that were started before. `work` must keep its memory
  /// alive.
  std::shared_ptr<const Command> start(const Call& call, const Callback<void(Round&)>& work);
  /// Waits for the end of a collective. Rethrows its exception. Throws ConnectionError in a forked child if the
  /// collective had not ended before.
  static void wait_for(const Command& command);
  /// Ends the job with an error while this rank waits for `rank`, if this process of the same machine has ended.
  void watch(int rank, pid_t process, std::uint64_t start);
  /// Adds messages that are sent and received outside of collectives. Called once, by the thread that made this object.
  void set_background(Background& background);
  /// Makes progress with these messages soon. Called by any thread after it has added a message.
  void progress_background();
  /// Returns the next number of a counter of rank 0: 0, 1 and so on, each to one rank.
  std::uint64_t take();
  /// Starts again at 0. Called on rank 0, before a collective after which the ranks take numbers.
  void reset_counter() { counter_ = 0; }
  /// Describes the collective that runs, except for the end of a region; empty: none. Called by Background.
  std::string running_collective() const {
    return running_ != nullptr && is_counted(running_->kind) && running_->kind != Collective::region
               ? to_string(*running_)
               : std::string();
  }
  /// Number of collectives that have run.
  std::uint64_t count() const { return count_; }
  /// Payload bytes that this rank has sent so far, and the number of messages.
  std::uint64_t sent_bytes() const { return sent_bytes_; }
  std::uint64_t sent_messages() const { return sent_messages_; }

 private:
  friend class Round;
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t inline_bytes = 32768;  ///< longer data are sent after the envelope has been verified
  static constexpr std::size_t eager_bytes = 3584;    ///< MPI libraries send up to about 4 KiB without an answer
  static constexpr std::size_t kept_calls = 16;
  static constexpr std::size_t kept_scratch = std::size_t{64} << 20;

  /// Kinds of messages outside of collectives: questions and answers of ranks that wait, and the end of a rank.
  enum class Notice : std::uint32_t { ping, pong, failed, mismatched, ended, left, which_call, call, take, taken };
  /// A message outside of collectives.
  struct Control {
    Notice kind;
    std::uint32_t unused = 0;
    std::uint64_t number = 0;  ///< collectives that the sender has completed; in which_call: number of the collective
    char text[1008];           ///< in ping: the envelope of the collective in which the sender waits
  };
  struct Peer {
    Clock::time_point last_sign;  ///< when the last message of this rank arrived
    Clock::time_point pinged;     ///< when the last ping was sent
    std::string doing, call;      ///< its last answers to ping and which_call
    bool ended = false;
    std::uint64_t ended_after = 0;
    bool left = false;               ///< ended after an error
    os::ProcessWatch process;        ///< if it runs on the same machine
    std::vector<std::byte> out, in;  ///< envelopes with short data

    bool has_left() const { return ended || left || process.has_ended(); }
  };

  static void end_all();
  void stop();
  void main();
  static void check_not_forked(const Call& call, std::uint32_t generation);
  std::string exception_left() const;
  void enqueue(std::shared_ptr<Command> command);
  void serve(Command& command);
  void poll_idle();
  void poll_background();
  void deliver_background();
  void supervise_background();
  void wait_for_ends();
  void close();

  void exchange(std::span<const Round::Outgoing> out, std::span<const Round::Incoming> in);
  void verify(const Envelope& theirs, int from, std::uint64_t bytes);
  [[noreturn]] void fail_mismatch(const Envelope& theirs, int from);
  void check_ping(const Control& message, int from);
  std::string ask_for_call(int rank, std::uint64_t number);
  /// Waits until `done()` returns true. `peers` returns the ranks that have not answered yet.
  template <class Done, class Peers>
  void wait(const Done& done, const Peers& peers);
  void supervise(Clock::time_point begun, Clock::time_point& reported, const std::vector<int>& peers);
  void report_death(int rank);
  [[noreturn]] void abort_job(const std::string& why);

  void poll_control();
  void handle(const Control& message, int from);
  void send_control(int to, Notice kind, const std::string& text, std::optional<std::uint64_t> number = {});
  void receive_control();
  std::string doing() const;
  std::string last_call() const;
  void report_failure(Notice kind, const std::string& text) noexcept;
  void set_failure(Notice kind, const std::string& text);
  void throw_failure() const;

  std::unique_ptr<Transport> transport_;
  int rank_ = 0, size_ = 1;
  std::string name_;
  std::thread thread_;
  const std::uint32_t generation_ = os::fork_generation();
  int exceptions_;  ///< uncaught exceptions when this object was created

  std::mutex transport_lock_;  ///< held while functions of the transport are called
  std::mutex lock_;
  std::unique_ptr<std::condition_variable> wake_ = std::make_unique<std::condition_variable>();
  std::deque<std::shared_ptr<Command>> commands_;
  bool background_woken_ = false;
  std::atomic<std::size_t> queued_ = 0;  ///< commands that were enqueued and have not ended
  std::atomic<bool> stop_ = false, left_by_exception_ = false, exits_ = false;
  std::atomic<std::thread::id> user_;  ///< the thread that runs a collective itself
  std::atomic<Background*> background_ = nullptr;
  std::atomic<bool> background_busy_ = false;  ///< messages of `background_` are under way, or were added

  // The members below are used by the thread that holds `transport_lock_`.
  const Clock::duration timeout_;
  Clock::duration spinning_ = std::chrono::microseconds(20);  ///< how long a wait keeps its core
  bool yields_ = true;                                        ///< whether other threads may use the core meanwhile
  std::vector<Peer> peers_;
  std::unique_ptr<std::byte[]> scratch_;
  std::size_t scratch_bytes_ = 0;
  std::array<Call, kept_calls> calls_;              ///< the last calls, by number
  std::array<std::uint64_t, kept_calls> hashes_{};  ///< values of `hash_` after these calls
  std::uint64_t hash_ = 0;
  const Call* running_ = nullptr;
  std::uint64_t step_ = 0;                                    ///< last training step
  Clock::time_point background_begun_, background_reported_;  ///< when the wait for other ranks' messages began
  struct Outbox {
    Transfer transfer;
    Control message;
  };
  std::list<Outbox> outbox_;
  Control inbox_;
  Transfer inbox_transfer_;
  bool failed_ = false, mismatched_ = false, other_failed_ = false;
  std::string failure_;

  std::atomic<std::uint64_t> counter_ = 0;
  std::optional<std::uint64_t> taken_;  ///< the answer of rank 0
  std::atomic<std::uint64_t> count_ = 0, sent_bytes_ = 0, sent_messages_ = 0;
};

}  // namespace tessera::dist
