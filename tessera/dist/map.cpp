// SPDX-License-Identifier: Apache-2.0
#include "tessera/dist/map.h"

#include <fmt/format.h>

#include <cstring>
#include <deque>

#include "tessera/dist/array_collectives.h"
#include "tessera/executor/executor.h"
#include "tessera/task/ranks.h"

namespace tessera::dist::detail {

namespace {

/// The result of one item as it is sent: its index, whether it failed, and its size. The bytes follow.
struct Item {
  std::uint64_t index = 0, failed = 0, bytes = 0;
};

}  // namespace

std::optional<Scope> local_scope(const std::optional<Scope>& scope) {
  const Scope all = scope ? *scope : current_scope();
  if (!all.ranks()) return scope;
  if (all.devices().empty()) return {};
  return Scope(all.devices());
}

bool takes_items(const std::optional<Scope>& scope) { return !(scope ? *scope : current_scope()).devices().empty(); }

std::vector<std::vector<std::byte>> deal(World& world, std::size_t count, bool takes,
                                         const Callback<void(std::size_t)>& start,
                                         const Callback<std::vector<std::byte>(std::size_t)>& finish,
                                         const std::source_location& where) {
  // All ranks begin together, so that rank 0 has reset the counter before it is asked.
  Communicator* const communicator = WorldAccess::communicator(world);
  std::uint64_t next = 0;
  if (world.first() && communicator != nullptr) communicator->reset_counter();
  Call call = call_of(Collective::map, where);
  call.count = count;
  if (communicator != nullptr) communicator->run(call, [](Round& round) { dist::barrier(round); });
  const auto take = [&]() -> std::size_t { return communicator != nullptr ? communicator->take() : next++; };

  std::vector<std::byte> mine;
  std::deque<std::size_t> started;
  const auto finish_first = [&] {
    const std::size_t index = started.front();
    started.pop_front();
    Item item{.index = index};
    std::vector<std::byte> bytes;
    try {
      bytes = finish(index);
    } catch (const std::exception& e) {
      const std::string text = e.what();
      item.failed = 1;
      bytes.resize(text.size());
      if (!text.empty()) std::memcpy(bytes.data(), text.data(), text.size());
    }
    item.bytes = bytes.size();
    const auto* const header = reinterpret_cast<const std::byte*>(&item);
    mine.insert(mine.end(), header, header + sizeof item);
    mine.insert(mine.end(), bytes.begin(), bytes.end());
  };
  const std::size_t most = executor::Executor::instance().threads();
  for (std::size_t index = takes ? take() : count; index < count; index = take()) {
    start(index);
    started.push_back(index);
    if (started.size() >= most) finish_first();
  }
  while (!started.empty()) finish_first();

  // All ranks get all results.
  const auto ranks = static_cast<std::size_t>(world.size());
  std::vector<std::vector<std::byte>> of_rank(ranks);
  of_rank[static_cast<std::size_t>(world.rank())] = std::move(mine);
  if (communicator != nullptr)
    communicator->run(call, [&](Round& round) {
      for (std::size_t r = 0; r < ranks; ++r) {
        std::uint64_t size = of_rank[r].size();
        broadcast(round, std::as_writable_bytes(std::span(&size, 1)), static_cast<int>(r));
        of_rank[r].resize(size);
        broadcast(round, of_rank[r], static_cast<int>(r));
      }
    });
  std::vector<std::vector<std::byte>> results(count);
  std::optional<Item> failed;
  std::string text;
  for (std::size_t r = 0; r < ranks; ++r)
    for (std::size_t at = 0; at < of_rank[r].size();) {
      Item item;
      std::memcpy(&item, of_rank[r].data() + at, sizeof item);
      at += sizeof item;
      const auto begin = of_rank[r].begin() + static_cast<std::ptrdiff_t>(at);
      results[item.index].assign(begin, begin + static_cast<std::ptrdiff_t>(item.bytes));
      at += item.bytes;
      if (item.failed == 0 || (failed && failed->index < item.index)) continue;
      failed = item;
      const auto& bytes = results[item.index];
      text = fmt::format("item {} failed on rank {}: {}", item.index, r,
                         std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
    }
  if (failed) throw TaskError(text, {}, std::make_exception_ptr(Error(text)));
  return results;
}

}  // namespace tessera::dist::detail
