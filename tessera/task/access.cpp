// SPDX-License-Identifier: Apache-2.0
#include "tessera/task/access.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>

#include "tessera/task/access_order.h"

namespace tessera {

const char* to_string(Access mode) {
  constexpr std::array names = {"in", "out", "inout", "commute", "reduce"};
  return names[static_cast<std::size_t>(mode)];
}

namespace detail {

namespace {
/// Returns true if later tasks need not wait for the node: it has ended, and if it failed, the failure was observed.
bool is_obsolete(const executor::Node& node) noexcept {
  return node.ended() && (!node.failure() || node.failure()->origin->observed.load(std::memory_order_relaxed));
}
}  // namespace

template <std::size_t inside>
void AccessOrder::Nodes<inside>::forget_ended() noexcept {
  auto kept = all_.begin();
  for (executor::Node* n : all_) {
    if (is_obsolete(*n))
      n->drop();
    else
      *kept++ = n;
  }
  all_.erase(kept, all_.end());
}

template <std::size_t inside>
bool AccessOrder::Nodes<inside>::ended() const noexcept {
  return std::ranges::all_of(all_, [](const executor::Node* n) { return n->ended(); });
}
template <std::size_t inside>
bool AccessOrder::Nodes<inside>::is_finished() const noexcept {
  return std::ranges::all_of(all_, [](const executor::Node* n) { return is_obsolete(*n); });
}

/// Returns the cell of the tiling that contains the part, or no_cell. Cells are as large as the first part of the
/// tiling, and start at the beginning of the storage.
std::uint64_t AccessOrder::cell_of(const StoragePart& part) const {
  if (tiling_.axes == 0 || part.axes > tiling_.axes || (part.axes == 0 && part.end - part.begin != part.element))
    return no_cell;
  std::uint64_t rest = part.begin, cell = 0;
  int known = 0;
  for (int k = 0; k < tiling_.axes; ++k) {
    const std::uint64_t stride = tiling_.stride[k], extent = tiling_.extent[k], first = rest / stride;
    rest %= stride;
    std::uint64_t count = 1;
    if (known < part.axes && part.stride[known] == stride) count = part.extent[known++];
    if (k > 0 && (first + count) * stride > tiling_.stride[k - 1]) return no_cell;  // continues in the next row
    if (first / extent != (first + count - 1) / extent) return no_cell;
    cell = cell * 0x100000001b3ull + first / extent;
  }
  return known == part.axes && rest == 0 ? cell & (no_cell >> 1) : no_cell;
}

AccessOrder::Spans::At AccessOrder::Spans::add(const StoragePart& part, std::uint32_t entry) {
  const int exponent = (std::bit_width(part.end - part.begin - 1) + 1) / 2;
  lengths_ |= std::uint32_t{1} << exponent;
  return all_.emplace((static_cast<std::uint64_t>(exponent) << begin_bits) + part.begin, To{part.end, entry});
}

template <class F>
void AccessOrder::Spans::each(const StoragePart& part, F&& f) const {
  for (std::uint32_t left = lengths_; left != 0; left &= left - 1) {
    const int exponent = std::countr_zero(left);
    const std::uint64_t base = static_cast<std::uint64_t>(exponent) << begin_bits,
                        longest = std::uint64_t{1} << (2 * exponent);
    const std::uint64_t first = part.begin < longest ? 0 : part.begin - longest + 1;
    for (auto at = all_.lower_bound(base + first); at != all_.end() && at->first < base + part.end; ++at)
      if (at->second.end > part.begin) f(at->second.entry);
  }
}

/// Finds the entries that may overlap the part. They are in descending order, so that they can be removed during the
/// iteration.
void AccessOrder::find_near(const StoragePart& part, Device device) {
  near_.clear();
  const auto count = static_cast<std::uint32_t>(entries_.size());
  const auto found = [&](std::uint32_t i) { near_.push_back(i); };
  if (count <= 1 || several_devices_ || device != device_) {
    for (std::uint32_t i = count; i-- > 0;) found(i);
  } else {
    const std::uint64_t cell = cell_of(part);
    const auto in_cell = cell == no_cell ? cells_.end() : cells_.find(cell);
    if (cell != no_cell && (in_cell == cells_.end() || in_cell->second.size() <= most_in_cell)) {
      if (in_cell != cells_.end()) near_ = in_cell->second;
    } else {
      if (!tiled_in_use_ && count >= few) {
        clean();
        if (entries_.size() < count) return find_near(part, device);
      }
      if (!tiled_in_use_) {
        tiled_in_use_ = true;
        for (std::uint32_t i = 0; i < count; ++i)
          if (Entry& e = entries_[i]; e.listed == Listed::in_cell)
            e.span = tiled_.add(e.part, i), e.listed = Listed::in_cell_and_span;
      }
      tiled_.each(part, found);
    }
    wide_.each(part, found);
    if (near_.size() > 1) std::ranges::sort(near_, std::greater());
  }
  compared_ += near_.size();
}

void AccessOrder::conflicts_with(const Entry& e, Access mode, const StoragePart& part, Device device,
                                 const NodeVisitor& after) {
  using Dependency = executor::Node::Dependency;
  const bool elsewhere = e.device != device && (writes(mode) || !e.writers.empty()), meets = overlap(e.part, part);
  if (!elsewhere && !meets) return;
  const bool together = mode == Access::commute && e.open && e.mode == mode && e.part == part;
  if (!together) return conflicts_with_overlapping(e, mode, meets, after);
  const bool uses = meets && !e.overwritten;
  for (executor::Node* const n : e.before) after(*n, uses ? Dependency::result : Dependency::order);
  for (executor::Node* const n : e.readers) after(*n, Dependency::order);
}

void AccessOrder::conflicts(Access mode, const StoragePart& part, Device device, const NodeVisitor& after) {
  find_near(part, device);
  for (const std::uint32_t i : near_) conflicts_with(entries_[i], mode, part, device, after);
}

std::uint32_t AccessOrder::new_entry(const StoragePart& part, Device device) {
  if (entries_.size() >= clean_at_) clean();
  if (entries_.empty()) device_ = device, several_devices_ = false;
  several_devices_ = several_devices_ || device != device_;
  if (part.axes > 0 && cells_.empty() && (entries_.size() != 1 || entries_[0].cell == no_cell)) {
    tiling_.axes = part.axes;
    for (int k = 0; k < part.axes; ++k) tiling_.stride[k] = part.stride[k], tiling_.extent[k] = part.extent[k];
  }
  const auto index = static_cast<std::uint32_t>(entries_.size());
  Entry& e = entries_.add();
  e.part = part, e.device = device, e.cell = cell_of(part);
  if (index == 1) list(0);
  if (index > 0) list(index);
  return index;
}

void AccessOrder::list(std::uint32_t index) {
  Entry& e = entries_[index];
  if (e.cell == no_cell) {
    e.span = wide_.add(e.part, index), e.listed = Listed::in_wide;
    return;
  }
  cells_[e.cell].push_back(index);
  e.listed = Listed::in_cell;
  if (tiled_in_use_) e.span = tiled_.add(e.part, index), e.listed = Listed::in_cell_and_span;
}

/// A single entry is not listed, because it is always checked.
void AccessOrder::unlist_all() noexcept {
  cells_.clear(), wide_.clear(), tiled_.clear();
  tiled_in_use_ = false;
  if (!entries_.empty()) entries_[0].listed = Listed::no;
}

/// The last entry is moved to the index of the removed entry.
void AccessOrder::remove(std::uint32_t index) {
  const auto last = static_cast<std::uint32_t>(entries_.size() - 1);
  Entry& e = entries_[index];
  if (e.listed == Listed::in_cell || e.listed == Listed::in_cell_and_span) {
    const auto cell = cells_.find(e.cell);
    std::erase(cell->second, index);
    if (cell->second.empty()) cells_.erase(cell);
  }
  if (e.listed == Listed::in_cell_and_span) tiled_.erase(e.span);
  if (e.listed == Listed::in_wide) wide_.erase(e.span);
  if (index != last) {
    Entry& moved = entries_[last];
    if (moved.listed == Listed::in_cell || moved.listed == Listed::in_cell_and_span)
      std::ranges::replace(cells_.at(moved.cell), last, index);
    if (moved.listed == Listed::in_cell_and_span || moved.listed == Listed::in_wide) moved.span->second.entry = index;
    e = std::move(moved);
  }
  entries_.pop();
  if (last == 1) unlist_all();
}

/// Removes entries that have ended. It runs again when the number of entries has doubled.
void AccessOrder::clean() {
  const auto count = static_cast<std::uint32_t>(entries_.size());
  std::uint32_t kept = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (entries_[i].idle()) continue;
    if (kept != i) entries_[kept] = std::move(entries_[i]);
    ++kept;
  }
  clean_at_ = std::max<std::size_t>(few, 2 * std::size_t{kept});
  if (kept == count) return;
  while (entries_.size() > kept) entries_.pop();
  unlist_all();
  for (std::uint32_t i = 0; i < kept && kept > 1; ++i) list(i);
}

void AccessOrder::record_commuting(Entry& e, executor::Node& node) {
  if (!e.open || e.mode != Access::commute) {  // the readers are not removed, because all commuting tasks wait for them
    if (e.overwritten) e.writers.clear();      // the overwriting tasks have waited for them
    e.before = std::move(e.writers);
    e.before.forget_ended(), e.readers.forget_ended();
  }
  e.writers.add(node);
  e.mode = Access::commute, e.open = true, e.overwritten = false;
}

bool AccessOrder::add(executor::Node& node, Access mode, const StoragePart& part, Device device,
                      const NodeVisitor& after) {
  if (part.empty()) return false;
  if (entries_.size() == 1 && entries_[0].device == device && entries_[0].part == part) {  // the common case
    conflicts_with(entries_[0], mode, part, device, after);
    note(entries_[0], node, mode);
    return true;
  }
  find_near(part, device);
  // Entries inside a part that is written can be dropped. Later tasks that overlap them also overlap this part and wait
  // for it. Entries on another device are only used for ordering. If there are many entries, ended ones are dropped as
  // well.
  const bool replaces = mode == Access::out || mode == Access::inout, forgets = entries_.size() >= few;
  constexpr std::uint32_t none = ~std::uint32_t{0};
  std::uint32_t same = none;
  for (const std::uint32_t i : near_) {
    Entry& e = entries_[i];
    conflicts_with(e, mode, part, device, after);
    if (e.device == device && e.part == part) {
      same = i;
      continue;
    }
    const bool replaced = replaces && contains(part, e.part);
    if ((replaced && e.device == device) || (forgets && e.idle())) {
      remove(i);
      if (same == entries_.size()) same = i;
    } else if (replaced) {
      e.overwritten = true, e.open = false;
    }
  }
  note(entries_[same != none ? same : new_entry(part, device)], node, mode);
  return true;
}

bool AccessOrder::add_first_full(executor::Node& node, Access mode, std::uint64_t bytes, Device device,
                                 const NodeVisitor& after) {
  const StoragePart all = full_part(bytes);
  const bool added = add(node, mode, all, device, after);
  if (entries_.size() == 1) entries_[0].is_full = entries_[0].part == all;
  return added;
}

void AccessOrder::for_each_pending(Access mode, const StoragePart& part, const NodeVisitor& f) {
  using Dependency = executor::Node::Dependency;
  find_near(part, device_);
  const bool forgets = entries_.size() >= few;
  const auto each = [&](const auto& nodes, Dependency kind) {
    for (executor::Node* const n : nodes)
      if (!n->ended()) f(*n, kind);
  };
  for (const std::uint32_t i : near_) {
    const Entry& e = entries_[i];
    if (overlap(e.part, part)) {
      each(e.writers, Dependency::result);
      if (writes(mode)) each(e.readers, Dependency::order);
    }
    if (forgets && e.idle()) remove(i);
  }
}

bool AccessOrder::has_pending(Access mode, const StoragePart& part) {
  bool found = false;
  const auto note = [&](executor::Node&, executor::Node::Dependency) { found = true; };
  for_each_pending(mode, part, note);
  return found;
}

}  // namespace detail
}  // namespace tessera
