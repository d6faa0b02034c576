// SPDX-License-Identifier: Apache-2.0
// Sends and receives tiles of block arrays (task/ranks.h) by a communicator's transport. Internal.
#pragma once

#include <chrono>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "tessera/base/callback.h"
#include "tessera/base/os/fork.h"
#include "tessera/dist/background.h"
#include "tessera/dist/communicator.h"
#include "tessera/task/ranks.h"

namespace tessera::dist {

class TileExchange final : public tessera::detail::RankMessages, public Background {
 public:
  using TileKey = tessera::detail::TileKey;
  using Submission = tessera::detail::Submission;
  /// Data of up to this size are sent in one message with the key.
  static constexpr std::size_t inline_bytes = 4096;
  /// Limit of the data that have arrived before a task needs them. Beyond it, they stay with their senders.
  static constexpr std::size_t most_early_bytes = std::size_t{256} << 20;

  explicit TileExchange(Communicator& communicator);
  ~TileExchange() override;
  /// Called before the communicator is destroyed. Arrays may live longer.
  void detach();
  /// Called after the communicator was destroyed. Ends what waits for messages.
  void end();
  /// Bytes of tiles that this rank has sent so far, without keys.
  std::uint64_t sent_bytes() const { return sent_bytes_; }
  /// The most bytes that had arrived before a task needed them.
  std::size_t largest_early_bytes() const { return largest_early_bytes_; }

  // RankMessages
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::uint64_t epoch() const override { return epoch_; }
  std::uint64_t new_array() override { return arrays_++; }
  std::uint32_t new_region() override { return ++regions_; }
  void submitted(const Submission& last) override;
  void send(int to, const TileKey& key, const Submission& by, std::span<const std::byte> data,
            std::shared_ptr<void> memory, executor::NodeRef node) override;
  void send_failure(int to, const TileKey& key, const Submission& by, const std::string& text) noexcept override;
  void receive(int from, const TileKey& key, const Submission& by, std::span<std::byte> room,
               std::shared_ptr<void> memory, executor::NodeRef node) override;
  void leave_region(const Submission& last) noexcept override;
  tessera::detail::RegionResult end_region(const tessera::detail::RegionEnd& mine) override;
  void broadcast(std::vector<std::byte>& bytes, int root) override;

  // Background
  bool progress(Transport& transport) override;
  std::vector<int> missing() const override;
  void fail(const std::string& why) override;
  void deliver() override;
  void close(Transport& transport) override;

 private:
  using Clock = std::chrono::steady_clock;
  enum class Kind : std::uint32_t { data, failure, left, question, different };
  static constexpr std::size_t room_for_file = 96;
  static constexpr std::size_t kept_submissions = 4096, asked_submissions = 64;
  /// Precedes each message. Short data and texts follow.
  struct Header {
    Kind kind = Kind::data;
    std::uint32_t number = 0;  ///< of the message between two ranks, for its tag
    TileKey key;
    std::uint64_t bytes = 0;  ///< of the data
    std::uint64_t epoch = 0, hash = 0;
    std::uint32_t region = 0, submission = 0;
    std::uint32_t line = 0, text = 0;  ///< `text`: size of the text
    char file[room_for_file] = {};
  };
  struct Envelope {
    Header header;
    std::byte data[inline_bytes];
  };
  struct Outgoing {
    Transfer envelope;
    std::vector<Transfer> pieces;
    std::unique_ptr<std::byte[]> message;
    std::shared_ptr<void> memory;  ///< of the data
    executor::NodeRef node;
  };
  using Source = std::tuple<int, std::uint64_t, std::uint32_t, std::uint32_t>;  ///< rank and key
  /// A receive for which no message has arrived.
  struct Posted {
    std::span<std::byte> room;
    std::shared_ptr<void> memory;
    executor::NodeRef node;  ///< null: the contents are dropped
    Submission by;
    Clock::time_point since, asked;
  };
  /// A message for which no receive was posted.
  struct Early {
    Header header;
    std::vector<std::byte> data;
    bool held = false;  ///< the sender still has the data
  };
  /// A message whose data arrive.
  struct Incoming {
    int from;
    Header header;
    std::vector<Transfer> pieces;
    std::span<std::byte> room;
    std::shared_ptr<void> memory;
    std::vector<std::byte> own;  ///< the memory, if no receive was posted
    executor::NodeRef node;
    bool dropped = false;
  };
  struct Request {
    enum class What : std::uint8_t { send, failure, receive, left } what;
    int peer;
    TileKey key;
    Submission by;
    std::span<const std::byte> data;
    std::span<std::byte> room;
    std::shared_ptr<void> memory;
    executor::NodeRef node;
    std::string text;
    std::uint64_t epoch = 0;
  };
  /// A node and its error.
  struct Ended {
    executor::NodeRef node;
    std::exception_ptr error;
  };

  void request(Request request);
  Header header_of(Kind kind, const Submission& by) const;
  Outgoing& start_send(Transport& transport, int to, Header header, std::span<const std::byte> data,
                       const std::string& text);
  void start(Transport& transport, Request& request);
  void post(Transport& transport, Request& request);
  void arrived(Transport& transport, int from);
  void deliver_to(int from, Posted& posted, const Header& header, std::span<std::byte> data);
  void receive_data(Transport& transport, Incoming incoming);
  void complete(Incoming& incoming);
  void finish(executor::NodeRef node, std::exception_ptr error = nullptr);
  void fail_posted(int from, const std::exception_ptr& error);
  void hold_back(Transport& transport);
  void drop_early(Transport& transport, const Callback<bool(std::uint64_t)>& drops);
  void ask(Transport& transport);
  void answer(Transport& transport, int from, const Header& header, std::span<const std::byte> hashes);
  void differ(Transport& transport, int from, const Header& header, const std::string& theirs);
  std::string find_difference(Round& round, int other);
  void set_ending(bool ending);
  Communicator& communicator(const char* operation);
  struct EndOnRank;
  std::vector<EndOnRank> meet(Round& round, const EndOnRank& mine) const;
  tessera::detail::RegionResult exchange_ends(Round& round, const tessera::detail::RegionEnd& mine,
                                              const std::vector<EndOnRank>& all, std::string& mismatch);
  void drop_old(Transport& transport);

  const int rank_, size_;
  std::uint64_t arrays_ = 0;
  std::uint32_t regions_ = 0;
  std::atomic<std::uint64_t> epoch_ = 0, sent_bytes_ = 0;

  const std::uint32_t generation_ = os::fork_generation();
  std::atomic<int> users_ = 0;  ///< threads that use `communicator_`
  std::atomic<Communicator*> communicator_;
  std::mutex lock_;  ///< guards the members up to the next comment
  std::vector<Request> requests_;
  std::vector<Submission> recent_;  ///< the last submissions of the region, by number
  Submission last_;
  bool ending_ = false;  ///< this rank waits for the end of the region

  // Used by one thread at a time, which has the transport.
  Envelope inbox_;
  Transfer inbox_transfer_;
  std::list<Outgoing> outgoing_;
  std::map<Source, Posted> posted_;
  std::map<Source, Early> early_;
  std::list<Incoming> incoming_;
  std::size_t early_bytes_ = 0;
  std::atomic<std::size_t> largest_early_bytes_ = 0;
  std::vector<std::uint32_t> sent_;  ///< number of messages to each rank
  std::vector<std::uint64_t> left_;  ///< epoch in which a rank has left a region, plus 1
  std::uint64_t seen_epoch_ = 0;
  std::string failure_, mismatch_;
  bool failed_ = false;

  std::mutex ended_lock_;
  std::vector<Ended> ended_;
};

}  // namespace tessera::dist
