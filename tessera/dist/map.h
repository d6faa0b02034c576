// SPDX-License-Identifier: Apache-2.0
// Calls a function for each item of a list, on all ranks together. Ranks ask for items when they are ready, so a faster
// rank gets more of them.
//
//   std::vector<double> losses = dist::map(world, settings, [](const Settings& s) { return train(s); });
#pragma once

#include <optional>
#include <source_location>
#include <type_traits>
#include <vector>

#include "tessera/base/callback.h"
#include "tessera/dist/world.h"
#include "tessera/task/rank_value.h"
#include "tessera/task/task.h"

namespace tessera::dist {

/// Options of map().
struct MapOptions {
  /// The devices on which the calls run: those of this scope on each rank. By default, the scope of tasks.
  std::optional<Scope> scope = {};
  std::source_location where = std::source_location::current();  ///< Where map() was called, for messages.
};

namespace detail {
/// Deals the indices from 0 to `count` to the ranks. Calls `start(index)` for each index of this rank, which submits a
/// task, and `finish(index)`, which waits for it and returns its result. Returns the results of all ranks by index.
std::vector<std::vector<std::byte>> deal(World& world, std::size_t count, bool takes,
                                         const Callback<void(std::size_t)>& start,
                                         const Callback<std::vector<std::byte>(std::size_t)>& finish,
                                         const std::source_location& where);
/// The part of a scope that exists on this rank.
std::optional<Scope> local_scope(const std::optional<Scope>& scope);
/// False if all devices of the scope belong to other ranks.
bool takes_items(const std::optional<Scope>& scope);
}  // namespace detail

/// Returns f(item) for each item, in the order of the items, on all ranks. All ranks pass the same items. Each call is
/// a task on one of the ranks that have a device of the scope; each has as many unfinished calls as threads. Results
/// are numbers, strings, arrays, or vectors, tuples and optionals of these, or there are none. Throws the error of the
/// first item that failed, on all ranks.
template <class T, class F>
auto map(World& world, const std::vector<T>& items, F&& f, const MapOptions& options = {}) {
  using R = std::decay_t<std::invoke_result_t<F&, const T&>>;
  using tessera::detail::RankValue, tessera::detail::ByteReader, tessera::detail::ByteWriter;
  const TaskOptions task{.scope = detail::local_scope(options.scope), .where = options.where};
  std::vector<std::optional<Task<R>>> tasks(items.size());
  const std::vector<std::vector<std::byte>> bytes = detail::deal(
      world, items.size(), detail::takes_items(options.scope),
      [&](std::size_t i) { tasks[i] = spawn(task, [&f, &x = items[i]] { return f(x); }); },
      [&](std::size_t i) {
        ByteWriter to;
        if constexpr (std::is_void_v<R>)
          std::exchange(tasks[i], {})->wait();
        else
          RankValue<R>::write(to, std::exchange(tasks[i], {})->fetch());
        return std::move(to.bytes);
      },
      options.where);
  if constexpr (!std::is_void_v<R>) {
    static_assert(RankValue<R>::sendable, "the result's type cannot be sent to other ranks");
    std::vector<R> results;
    results.reserve(items.size());
    for (const std::vector<std::byte>& one : bytes) {
      ByteReader from(one);
      results.push_back(RankValue<R>::read(from));
    }
    return results;
  }
}

}  // namespace tessera::dist
