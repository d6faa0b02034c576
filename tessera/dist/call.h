// SPDX-License-Identifier: Apache-2.0
// What the ranks must agree on in a collective: which one it is, and its arguments. Internal.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/dist/tree_reduce.h"

namespace tessera::dist {

/// The collective operations.
enum class Collective : std::uint8_t {
  barrier,
  broadcast,
  all_reduce,
  reduce,
  all_gather,
  reduce_scatter,
  agree,
  training_step,
  map,
  trace,   ///< the begin or the end of a trace of all ranks
  region,  ///< the end of a region of tasks
  take,    ///< no collective: a rank asks rank 0 for an item of map()
  tiles,   ///< no collective: a region of tasks waits for tiles of other ranks
  end      ///< no collective: the end of the job
};

/// False for waits that are no collectives.
constexpr bool is_counted(Collective kind) { return kind < Collective::take; }

/// One call of a collective on one rank.
struct Call {
  Collective kind = Collective::barrier;
  Reduce how = Reduce::sum;
  DType dtype = DType::u8;
  std::int32_t root = 0;
  std::uint64_t count = 0;  ///< elements; must be equal on all ranks
  const char* file = "";    ///< source file of the call
  std::uint32_t line = 0;   ///< its line
  std::uint64_t step = 0;   ///< training step; 0: none
};

/// Formats a call: "all_reduce (sum) of 12 f32 at train.cpp:40".
std::string to_string(const Call& call);

/// Precedes the data of each message. Sent as it is in memory: all ranks run the same program.
struct Envelope {
  static constexpr std::uint32_t known_magic = 0x41525354;  ///< "TSRA"
  static constexpr std::size_t room_for_file = 128;

  std::uint32_t magic = known_magic;
  Collective kind;
  Reduce how;
  DType dtype;
  std::int32_t root;
  std::uint32_t line;
  std::uint64_t count, step;
  std::uint64_t number;  ///< number of the collective in the World, from 1
  std::uint64_t hash;    ///< of all calls so far, including this one
  std::uint64_t bytes;   ///< size of the data
  char file[room_for_file];
};

/// Returns the call that the sender of a message made. `file` refers to the envelope.
Call call_of(const Envelope& envelope);
/// Returns the envelope of a call.
Envelope envelope_of(const Call& call, std::uint64_t number, std::uint64_t hash, std::uint64_t bytes);
/// Extends the hash of all calls by this one. Files and lines are not included.
std::uint64_t extend_hash(std::uint64_t hash, const Call& call);

}  // namespace tessera::dist
