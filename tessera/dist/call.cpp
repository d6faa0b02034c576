// SPDX-License-Identifier: Apache-2.0
#include "tessera/dist/call.h"

#include <fmt/format.h>

#include <cstring>

namespace tessera::dist {

std::string to_string(const Call& c) {
  std::string text = tessera::to_string(c.kind);
  switch (c.kind) {
    case Collective::all_reduce:
    case Collective::reduce_scatter: text += fmt::format(" ({})", tessera::to_string(c.how)); break;
    case Collective::reduce: text += fmt::format(" ({}) to rank {}", tessera::to_string(c.how), c.root); break;
    case Collective::broadcast: text += fmt::format(" from rank {}", c.root); break;
    case Collective::training_step: text = "training step"; break;
    case Collective::map:
      return fmt::format("map of {} items{}", c.count, c.line != 0 ? fmt::format(" at {}:{}", c.file, c.line) : "");
    case Collective::take: return "map, for an item";
    case Collective::tiles: return "a region, for tiles";
    case Collective::region:
      return c.line == 0 ? "fetch" : fmt::format("the end of a region after the task at {}:{}", c.file, c.line);
    case Collective::end: return "the end of the job";
    case Collective::trace:
    case Collective::barrier:
    case Collective::all_gather:
    case Collective::agree: break;
  }
  if (c.step != 0) text += fmt::format(" {}", c.step);
  if (c.kind != Collective::barrier && c.kind != Collective::agree && c.kind != Collective::trace)
    text += fmt::format(" of {} {}", c.count, dtype_name(c.dtype));
  if (c.line != 0) text += fmt::format(" at {}:{}", c.file, c.line);
  return text;
}

Call call_of(const Envelope& e) {
  return {.kind = e.kind,
          .how = e.how,
          .dtype = e.dtype,
          .root = e.root,
          .count = e.count,
          .file = e.file,
          .line = e.line,
          .step = e.step};
}

Envelope envelope_of(const Call& c, std::uint64_t number, std::uint64_t hash, std::uint64_t bytes) {
  Envelope e;
  std::memset(static_cast<void*>(&e), 0, sizeof e);  // padding is sent, too
  e.magic = Envelope::known_magic;
  e.kind = c.kind, e.how = c.how, e.dtype = c.dtype, e.root = c.root, e.line = c.line, e.count = c.count;
  e.step = c.step, e.number = number, e.hash = hash, e.bytes = bytes;
  // The end of a long path is more useful than its begin.
  const std::size_t length = std::strlen(c.file);
  const std::size_t skipped = length < Envelope::room_for_file ? 0 : length - Envelope::room_for_file + 1;
  std::memcpy(e.file, c.file + skipped, length - skipped);
  return e;
}

std::uint64_t extend_hash(std::uint64_t hash, const Call& c) {
  for (const std::uint64_t word :
       {static_cast<std::uint64_t>(c.kind), static_cast<std::uint64_t>(c.how), static_cast<std::uint64_t>(c.dtype),
        static_cast<std::uint64_t>(c.root), c.count, c.step}) {
    hash = (hash ^ word) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 29;
  }
  return hash;
}

}  // namespace tessera::dist
