// SPDX-License-Identifier: Apache-2.0
// The ends of regions, and the detection of ranks that submit different tasks.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tessera/dist/collectives.h"
#include "tessera/dist/error.h"
#include "tessera/dist/tile_exchange.h"

namespace tessera::dist {

using std::chrono::milliseconds;

/// Asks ranks whose messages have not arrived for a while whether they have submitted the same tasks.
void TileExchange::ask(Transport& transport) {
  const auto now = Clock::now();
  for (auto& [source, posted] : posted_) {
    if (!posted.node || now - posted.asked < milliseconds(200)) continue;
    posted.asked = now;
    std::vector<std::uint64_t> hashes;
    {
      const std::lock_guard held(lock_);
      const std::uint32_t count = std::min<std::uint32_t>(posted.by.number, asked_submissions);
      for (std::uint32_t n = posted.by.number - count + 1; n < posted.by.number; ++n) {
        const Submission& s = recent_[n % kept_submissions];
        hashes.push_back(s.number == n && s.region == posted.by.region ? s.hash : 0);  // 0: forgotten
      }
      hashes.push_back(posted.by.hash);
    }
    start_send(transport, std::get<0>(source), header_of(Kind::question, posted.by), std::as_bytes(std::span(hashes)),
               {});
    return;  // one question at a time
  }
}

void TileExchange::answer(Transport& transport, int from, const Header& header, std::span<const std::byte> data) {
  if (header.epoch != epoch_ || left_[static_cast<std::size_t>(rank_)] == epoch_ + 1) return;
  Submission mine;
  mine.region = header.region, mine.number = header.submission;
  std::string waits_in;
  {
    const std::lock_guard held(lock_);
    const bool in_region = header.region == last_.region;
    if (Communicator* const communicator = communicator_; communicator != nullptr && !ending_)
      waits_in = communicator->running_collective();
    const auto count = static_cast<std::uint32_t>(data.size() / sizeof(std::uint64_t));
    bool differs = false;
    for (std::uint32_t i = 0; in_region && i < count && !differs; ++i) {
      const std::uint32_t n = header.submission - count + 1 + i;
      std::uint64_t theirs;
      std::memcpy(&theirs, data.data() + i * sizeof theirs, sizeof theirs);
      const Submission& ours = recent_[n % kept_submissions];
      if (n > last_.number) {
        if (!ending_ && waits_in.empty()) return;  // this rank has not submitted it yet
        mine.number = n, differs = true;
      } else if (ours.number == n && ours.region == header.region && theirs != 0 && theirs != ours.hash) {
        mine = ours, differs = true;
      }
    }
    if (!differs && (in_region || waits_in.empty())) return;  // equal, or this rank is in another region
  }
  Header reply = header_of(Kind::different, mine);
  if (mine.hash == 0) reply.line = 0;
  if (mine.hash == 0 && !waits_in.empty()) std::snprintf(reply.file, sizeof reply.file, "%s", waits_in.c_str());
  start_send(transport, from, reply, {}, {});
}

/// Another rank has answered that it submitted a different task, or has told all ranks about a difference (`text`).
void TileExchange::differ(Transport& transport, int from, const Header& header, const std::string& text) {
  if (header.epoch != epoch_ || !mismatch_.empty()) return;
  mismatch_ = text;
  if (text.empty()) {
    Submission mine;
    {
      const std::lock_guard held(lock_);
      mine = recent_[header.submission % kept_submissions];
    }
    mismatch_ = error_text(
        {.operation = "region",
         .wrong =
             fmt::format("ranks submitted different tasks: task {} of rank {} is at {}:{}, and {}", header.submission,
                         rank_, mine.where.file_name(), mine.where.line(),
                         header.line == 0 ? fmt::format("rank {} has ended the region before it", from)
                                          : fmt::format("that of rank {} is at {}:{}", from, header.file, header.line)),
         .remedy = "All ranks must create the same block arrays, and submit the same tasks in the same order"});
    for (int to = 0; to < size_; ++to)
      if (to != rank_) start_send(transport, to, header_of(Kind::different, mine), {}, mismatch_);
  }
  fail_posted(-1, std::make_exception_ptr(tessera::detail::RemoteError(mismatch_)));
  hold_back(transport);
}

// --- Collectives

/// What each rank tells the others at the end of a region, and when it fetches a result.
struct TileExchange::EndOnRank {
  std::uint64_t hash = 0, arrays = 0;
  std::uint32_t region = 0, number = 0, failed = 0;
  bool remote = false, left = false, cancelled = false, mismatched = false, fetches = false;
};

namespace {

void broadcast_text(Round& round, std::string& text, int root) {
  std::uint64_t length = text.size();
  dist::broadcast(round, std::as_writable_bytes(std::span(&length, 1)), root);
  text.resize(length);
  dist::broadcast(round, std::as_writable_bytes(std::span(text)), root);
}

}  // namespace

std::vector<TileExchange::EndOnRank> TileExchange::meet(Round& round, const EndOnRank& mine) const {
  std::vector<EndOnRank> all(static_cast<std::size_t>(size_));
  all_gather(round, std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  return all;
}

/// Compares the ends of all ranks, and exchanges the first error. `mismatch` is set if the ranks differ.
tessera::detail::RegionResult TileExchange::exchange_ends(Round& round, const tessera::detail::RegionEnd& mine,
                                                          const std::vector<EndOnRank>& all, std::string& mismatch) {
  tessera::detail::RegionResult result;
  const auto end_of = [&](int r) -> const EndOnRank& { return all[static_cast<std::size_t>(r)]; };
  const auto first = [&](auto&& is) {
    for (int r = 0; r < size_; ++r)
      if (is(end_of(r))) return r;
    return -1;
  };
  if (const int told = first([](const EndOnRank& e) { return e.mismatched; }); told >= 0) {
    mismatch = mismatch_;
    return broadcast_text(round, mismatch, told), result;
  }
  const int left = first([](const EndOnRank& e) { return e.left; });
  const bool cancelled = first([](const EndOnRank& e) { return e.cancelled; }) >= 0;
  // A task's own error, then an exception that left the region, then tasks that lacked a tile.
  for (const bool remote : {false, true}) {
    if (remote && (left >= 0 || cancelled)) break;
    for (int r = 0; r < size_ && (!remote || result.rank < 0 || end_of(result.rank).remote); ++r)
      if (end_of(r).failed != 0 && end_of(r).remote == remote &&
          (result.rank < 0 || end_of(r).failed < end_of(result.rank).failed))
        result.rank = r;
  }
  if (result.rank >= 0) {
    if (result.rank == rank_) result.end = mine;
  } else if (left >= 0) {
    result.rank = left;
    if (left == rank_)
      result.end.text = fmt::format("the region was left by an exception after task {}", mine.last.number);
  } else {
    const auto differs = [&](const EndOnRank& e) {
      return e.region != all[0].region || e.number != all[0].number || e.hash != all[0].hash;
    };
    if (const int other = first(differs); other >= 0 && !cancelled) mismatch = find_difference(round, other);
    return result;
  }
  for (std::string* text : {&result.end.name, &result.end.what, &result.end.text})
    broadcast_text(round, *text, result.rank);
  return result;
}

void TileExchange::set_ending(bool ending) {
  const std::lock_guard held(lock_);
  ending_ = ending;
}

tessera::detail::RegionResult TileExchange::end_region(const tessera::detail::RegionEnd& mine) {
  Communicator& communicator = this->communicator("region");
  set_ending(true);
  tessera::detail::RegionResult result;
  std::vector<EndOnRank> all;
  std::string mismatch;
  do {  // again after other ranks have heard in fetch() that this one has left
    mismatch.clear();
    const Call call{.kind = Collective::region, .file = mine.last.where.file_name(), .line = mine.last.where.line()};
    communicator.run(call, [&](Round& round) {
      all = meet(round, {.hash = mine.last.hash,
                         .arrays = arrays_,
                         .region = mine.last.region,
                         .number = mine.last.number,
                         .failed = mine.failed,
                         .remote = mine.remote,
                         .left = mine.left,
                         .cancelled = mine.cancelled,
                         .mismatched = !mismatch_.empty()});
      if (std::ranges::none_of(all, &EndOnRank::fetches))
        result = exchange_ends(round, mine, all, mismatch);
      else if (!mine.left)
        mismatch =
            "ranks submitted different tasks: a rank waits for the result of a task, and another one for a region";
    });
  } while (mine.left && std::ranges::any_of(all, &EndOnRank::fetches));
  set_ending(false);
  const bool cancelled = std::ranges::any_of(all, &EndOnRank::cancelled);
  if (result.rank < 0 && mismatch.empty() && !cancelled) return result;
  for (const EndOnRank& end : all) arrays_ = std::max(arrays_, end.arrays);
  regions_ = 0;
  {
    const std::lock_guard held(lock_);
    last_ = {};  // regions are counted from 1 again
  }
  ++epoch_;
  if (!mismatch.empty()) throw MismatchError(mismatch);
  return result;
}

/// Returns the text of the error that rank `other` has submitted other tasks than rank 0. Called on all ranks.
std::string TileExchange::find_difference(Round& round, int other) {
  std::vector<Submission> recent;
  Submission last;
  {
    const std::lock_guard held(lock_);
    recent = recent_, last = last_;
  }
  // Rank 0 sends the hashes of its last submissions, the other rank finds the first difference.
  std::uint64_t count = last.number;
  dist::broadcast(round, std::as_writable_bytes(std::span(&count, 1)), 0);
  std::vector<std::uint64_t> hashes(kept_submissions);
  for (std::size_t i = 0; i < kept_submissions; ++i)
    if (recent[i].region == last.region) hashes[i] = recent[i].hash;
  dist::broadcast(round, std::as_writable_bytes(std::span(hashes)), 0);
  std::uint64_t first = 0;
  if (rank_ == other) {
    const std::uint64_t most = std::max<std::uint64_t>(count, last.number);
    first = most > kept_submissions ? most - kept_submissions + 1 : 1;
    while (first < most && first <= count && first <= last.number &&
           hashes[first % kept_submissions] == recent[first % kept_submissions].hash)
      ++first;
  }
  dist::broadcast(round, std::as_writable_bytes(std::span(&first, 1)), other);
  const auto place = [&](int rank) {
    const Submission& s = recent[first % kept_submissions];
    std::string text = first > last.number
                           ? fmt::format("rank {} has ended the region before it", rank)
                           : fmt::format("that of rank {} is at {}:{}", rank, s.where.file_name(), s.where.line());
    broadcast_text(round, text, rank);
    return text;
  };
  const std::string of_first = place(0), of_other = place(other);
  return error_text(
      {.operation = "region",
       .wrong = fmt::format("ranks submitted different tasks: of task {}, {}, and {}", first, of_first, of_other),
       .remedy = "All ranks must create the same block arrays, and submit the same tasks in the same order"});
}

void TileExchange::broadcast(std::vector<std::byte>& bytes, int root) {
  int other = -1;  // a rank that does not fetch
  communicator("fetch").run({.kind = Collective::region}, [&](Round& round) {
    const std::vector<EndOnRank> all = meet(round, {.fetches = true});
    for (int r = 0; r < size_; ++r)
      if (!all[static_cast<std::size_t>(r)].fetches) other = r;
    if (other >= 0) return;
    std::uint64_t length = bytes.size();
    dist::broadcast(round, std::as_writable_bytes(std::span(&length, 1)), root);
    bytes.resize(length);
    dist::broadcast(round, bytes, root);
  });
  if (other >= 0)
    tessera::fail<tessera::detail::RemoteError>(
        {.operation = "fetch",
         .wrong = fmt::format("rank {} has left the region, or waits for its end", other),
         .remedy = "All ranks must call fetch() for the same tasks"});
}

}  // namespace tessera::dist
