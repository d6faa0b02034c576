// SPDX-License-Identifier: Apache-2.0
#include "tessera/dist/collectives.h"

#include <algorithm>
#include <cstring>

#include "tessera/base/inline_vector.h"

namespace tessera::dist {

namespace {

/// Arrays up to this size are sent whole to all ranks: one round instead of two. With two ranks, this moves the same
/// number of bytes.
std::size_t small(const Round& round) { return round.size() == 2 ? std::size_t{1} << 17 : 2048; }

struct Slices {
  std::size_t elements, size;  ///< of the array; bytes per element
  int ranks;
  std::size_t begin(int k) const {
    return elements * static_cast<std::size_t>(k) / static_cast<std::size_t>(ranks) * size;
  }
  template <class Byte>
  std::span<Byte> of(std::span<Byte> data, int k) const {
    return data.subspan(begin(k), begin(k + 1) - begin(k));
  }
};

template <class Message>
using Messages = InlineVector<Message, 8>;

/// Calls f(rank) for all other ranks, starting with the next one, so that not all ranks send to rank 0 first.
template <class F>
void for_others(const Round& round, F&& f) {
  for (int k = 1; k < round.size(); ++k) f((round.rank() + k) % round.size());
}

/// Sends part `k` of `data` to rank k, receives this rank's part from all, and combines it into `result`.
template <class PartOf>
void exchange_and_combine(Round& round, Reduce how, DType dtype, std::span<const std::byte> mine,
                          const PartOf& part_for, std::span<std::byte> result) {
  const auto n = static_cast<std::size_t>(round.size());
  const std::span<std::byte> memory = round.scratch((n - 1) * mine.size());
  InlineVector<const std::byte*, 8> inputs(n);
  Messages<Round::Outgoing> out;
  Messages<Round::Incoming> in;
  std::size_t at = 0;
  for_others(round, [&](int k) {
    const auto room = memory.subspan(at, mine.size());
    at += mine.size();
    inputs[static_cast<std::size_t>(k)] = room.data();
    out.push_back({k, part_for(k)});
    in.push_back({k, room});
  });
  inputs[static_cast<std::size_t>(round.rank())] = mine.data();
  round.exchange(out, in);
  tree_reduce(how, dtype, inputs, result.data(), mine.size() / dtype_size(dtype));
}

}  // namespace

void all_reduce(Round& round, Reduce how, DType dtype, std::span<std::byte> data) {
  if (data.size() <= small(round))
    return exchange_and_combine(
        round, how, dtype, data, [&](int) { return std::span<const std::byte>(data); }, data);
  const Slices slices{data.size() / dtype_size(dtype), dtype_size(dtype), round.size()};
  const std::span<std::byte> mine = slices.of(data, round.rank());
  exchange_and_combine(
      round, how, dtype, mine, [&](int k) { return std::span<const std::byte>(slices.of(data, k)); }, mine);
  Messages<Round::Outgoing> out;
  Messages<Round::Incoming> in;
  for_others(round, [&](int k) {
    out.push_back({k, mine});
    in.push_back({k, slices.of(data, k)});
  });
  round.exchange(out, in);
}

void reduce(Round& round, Reduce how, DType dtype, std::span<const std::byte> data, std::span<std::byte> result,
            int root) {
  const Slices slices{data.size() / dtype_size(dtype), dtype_size(dtype), round.size()};
  const std::span<const std::byte> mine = slices.of(data, round.rank());
  const bool is_root = round.rank() == root;
  std::vector<std::byte> memory(is_root ? 0 : mine.size());
  const std::span<std::byte> combined = is_root ? slices.of(result, root) : std::span<std::byte>(memory);
  exchange_and_combine(
      round, how, dtype, mine, [&](int k) { return slices.of(data, k); }, combined);
  Messages<Round::Outgoing> out;
  Messages<Round::Incoming> in;
  if (is_root)
    for_others(round, [&](int k) { in.push_back({k, slices.of(result, k)}); });
  else
    out.push_back({root, combined});
  round.exchange(out, in);
}

void reduce_scatter(Round& round, Reduce how, DType dtype, std::span<const std::byte> data,
                    std::span<std::byte> result) {
  const auto slice = [&](int k) { return data.subspan(static_cast<std::size_t>(k) * result.size(), result.size()); };
  exchange_and_combine(round, how, dtype, slice(round.rank()), slice, result);
}

void broadcast(Round& round, std::span<std::byte> data, int root) {
  Messages<Round::Outgoing> out;
  Messages<Round::Incoming> in;
  const bool is_root = round.rank() == root;
  if (data.size() <= small(round) || round.size() == 2) {
    if (is_root)
      for_others(round, [&](int k) { out.push_back({k, data}); });
    else
      in.push_back({root, data});
    return round.exchange(out, in);
  }
  // The root sends a slice to each rank, and each rank sends its slice to all others.
  const Slices slices{data.size(), 1, round.size()};
  const std::span<std::byte> mine = slices.of(data, round.rank());
  if (is_root)
    for_others(round, [&](int k) { out.push_back({k, slices.of(data, k)}); });
  else
    in.push_back({root, mine});
  round.exchange(out, in);
  out.clear(), in.clear();
  for_others(round, [&](int k) {
    if (k != root) out.push_back({k, mine});
    if (!is_root) in.push_back({k, slices.of(data, k)});
  });
  round.exchange(out, in);
}

void all_gather(Round& round, std::span<const std::byte> data, std::span<std::byte> result) {
  const auto slice = [&](int k) { return result.subspan(static_cast<std::size_t>(k) * data.size(), data.size()); };
  if (!data.empty()) std::memcpy(slice(round.rank()).data(), data.data(), data.size());
  Messages<Round::Outgoing> out;
  Messages<Round::Incoming> in;
  for_others(round, [&](int k) {
    out.push_back({k, data});
    in.push_back({k, slice(k)});
  });
  round.exchange(out, in);
}

void barrier(Round& round) { all_gather(round, {}, {}); }

}  // namespace tessera::dist
