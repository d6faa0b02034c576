// SPDX-License-Identifier: Apache-2.0
// Collectives over arrays: what world.cpp and array_collectives.cpp share. Internal.
#pragma once

#include <memory>
#include <optional>
#include <source_location>
#include <vector>

#include "tessera/array/array.h"
#include "tessera/dist/collectives.h"
#include "tessera/dist/communicator.h"
#include "tessera/dist/device_collectives.h"
#include "tessera/dist/world.h"

namespace tessera::dist {

class TileExchange;

/// Access to members of World and Pending.
struct WorldAccess {
  static Communicator* communicator(World& world);                      ///< null: one rank
  static DeviceGroups& groups(World& world);                            ///< only with several ranks
  static TileExchange& tiles(World& world);                             ///< only with several ranks
  static const std::vector<int>& local_ranks(const World& world);       ///< the ranks of this machine
  static const std::vector<int>& ranks_of_process(const World& world);  ///< the ranks of this process, by number
  /// `result` contains the result of a collective after its end. Without `command`, it has ended.
  static Pending pending(std::shared_ptr<const Communicator::Command> command, Array result);
};

inline std::uint64_t bytes_of(const Array& x) { return static_cast<std::uint64_t>(x.size()) * dtype_size(x.dtype()); }
/// The call of a collective at a place in the program.
Call call_of(Collective kind, const std::source_location& where);
/// Throws ArgumentError if there is no such rank.
void check_root(const char* operation, const World& world, int root);
/// Copies host memory to an array.
void upload(const Array& to, const std::byte* from);
/// Copies an array to host memory. Waits only for the array, and answers other ranks meanwhile.
void download(Round& round, DeviceGroups& groups, const Array& x, std::byte* to);
/// Reduces an array in place, on its GPU if all ranks can, else in host memory.
void all_reduce(Round& round, DeviceGroups& groups, Reduce how, const Array& x);

}  // namespace tessera::dist
