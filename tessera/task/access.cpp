// SPDX-License-Identifier: Apache-2.0
#include "tessera/task/access.h"

#include <algorithm>
#include <array>

namespace tessera {

const char* to_string(Access mode) {
  constexpr std::array names = {"in", "out", "inout", "commute", "reduce"};
  return names[static_cast<std::size_t>(mode)];
}

namespace detail {

namespace {
/// To who comes after it: it has ended, and if it failed somebody was told.
bool matters_no_more(const executor::Node& node) noexcept {
  return node.ended() && (!node.failure() || node.failure()->origin->told.load(std::memory_order_relaxed));
}
}  // namespace

template <std::size_t inside>
void AccessOrder::Nodes<inside>::forget_ended() noexcept {
  auto kept = all_.begin();
  for (executor::Node* n : all_) {
    if (matters_no_more(*n))
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
bool AccessOrder::Nodes<inside>::over() const noexcept {
  return std::ranges::all_of(all_, [](const executor::Node* n) { return matters_no_more(*n); });
}

/// The only cell of the tiling in which the part lies, if there is one: cells are as large as the tiling's first part,
/// and counted from the beginning of the storage.
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
    if (k > 0 && (first + count) * stride > tiling_.stride[k - 1]) return no_cell;  // wraps into the next row
    if (first / extent != (first + count - 1) / extent) return no_cell;
    cell = cell * 0x100000001b3ull + first / extent;
  }
  return known == part.axes && rest == 0 ? cell & (no_cell >> 1) : no_cell;
}

/// f(index) for each entry that the part may meet.
template <class F>
void AccessOrder::for_each_near(const StoragePart& part, Device device, F&& f) {
  if (entries_.empty()) return;
  const std::uint64_t cell = several_devices_ || device != device_ ? no_cell : cell_of(part);
  if (cell == no_cell) {
    for (std::size_t i = entries_.size(); i-- > 0;) f(i);  // backwards, so that f may remove it
    return;
  }
  for (std::size_t i = wide_.size(); i-- > 0;) f(wide_[i]);
  if (const auto found = cells_.find(cell); found != cells_.end())
    for (std::size_t i = found->second.size(); i-- > 0;) f(found->second[i]);
}

void AccessOrder::conflicts_with(const Entry& e, Access mode, const StoragePart& part, Device device,
                                 const Each& after) {
  using Dependency = executor::Node::Dependency;
  const bool elsewhere = e.device != device && (writes(mode) || !e.writers.empty()), meets = overlap(e.part, part);
  if (!elsewhere && !meets) return;
  const bool together = mode == Access::commute && e.open && e.mode == mode && e.part == part;
  if (!together) return conflicts_with_met(e, mode, meets, after);
  const bool uses = meets && !e.overwritten;
  for (executor::Node* const n : e.before) after(*n, uses ? Dependency::result : Dependency::order);
  for (executor::Node* const n : e.readers) after(*n, Dependency::order);
}

void AccessOrder::conflicts(Access mode, const StoragePart& part, Device device, const Each& after) {
  for_each_near(part, device, [&](std::size_t i) { conflicts_with(entries_[i], mode, part, device, after); });
}

AccessOrder::Entry& AccessOrder::entry_of(const StoragePart& part, Device device) {
  Entry* found = nullptr;
  for_each_near(part, device, [&](std::size_t i) {
    if (entries_[i].part == part && entries_[i].device == device) found = &entries_[i];
  });
  if (found != nullptr) return *found;
  if (entries_.size() >= clean_at_) clean();
  if (entries_.empty()) {
    device_ = device, several_devices_ = false;
    tiling_ = {};
    tiling_.axes = part.axes;
    for (int k = 0; k < part.axes; ++k) tiling_.stride[k] = part.stride[k], tiling_.extent[k] = part.extent[k];
  }
  several_devices_ = several_devices_ || device != device_;
  const auto index = static_cast<std::uint32_t>(entries_.size());
  Entry& e = entries_.add();
  e.part = part, e.device = device, e.cell = cell_of(part);
  (e.cell == no_cell ? wide_ : cells_[e.cell]).push_back(index);
  return e;
}

void AccessOrder::remove(std::size_t index) {
  const auto list = [&](const Entry& e) -> std::vector<std::uint32_t>& {
    return e.cell == no_cell ? wide_ : cells_.at(e.cell);
  };
  std::erase(list(entries_[index]), static_cast<std::uint32_t>(index));
  if (entries_[index].cell != no_cell && list(entries_[index]).empty()) cells_.erase(entries_[index].cell);
  const std::size_t last = entries_.size() - 1;
  if (index != last) {
    std::ranges::replace(list(entries_[last]), static_cast<std::uint32_t>(last), static_cast<std::uint32_t>(index));
    entries_[index] = std::move(entries_[last]);
  }
  entries_.pop();
}

/// Forgets what has ended; the next time when twice as much is there.
void AccessOrder::clean() {
  for (std::size_t i = entries_.size(); i-- > 0;)
    if (entries_[i].idle()) remove(i);
  clean_at_ = std::max<std::size_t>(64, 2 * entries_.size());
}

void AccessOrder::note_commuting(Entry& e, executor::Node& node) {
  if (!e.open || e.mode != Access::commute) {  // the readers stay: all of these come after them
    if (e.overwritten) e.writers.clear();      // what overwrote them came after them
    e.before = std::move(e.writers);
    e.before.forget_ended(), e.readers.forget_ended();
  }
  e.writers.add(node);
  e.mode = Access::commute, e.open = true, e.overwritten = false;
}

bool AccessOrder::add(executor::Node& node, Access mode, const StoragePart& part, Device device, const Each& after) {
  if (part.empty()) return false;
  if (entries_.size() == 1 && entries_[0].device == device && entries_[0].part == part) {  // as mostly it is
    conflicts_with(entries_[0], mode, part, device, after);
    note(entries_[0], node, mode);
    return true;
  }
  conflicts(mode, part, device, after);
  if (mode == Access::out || mode == Access::inout) {
    // What lies within this part need not be remembered: who meets it meets this, and comes after it. On another device
    // it meets more than that, for order alone.
    for_each_near(part, device, [&](std::size_t i) {
      Entry& e = entries_[i];
      if ((e.device == device && e.part == part) || !contains(part, e.part)) return;
      if (e.device == device)
        remove(i);
      else
        e.overwritten = true, e.open = false;
    });
  }
  note(entry_of(part, device), node, mode);
  return true;
}

bool AccessOrder::add_first_whole(executor::Node& node, Access mode, std::uint64_t bytes, Device device,
                                  const Each& after) {
  const StoragePart all = whole_part(bytes);
  const bool added = add(node, mode, all, device, after);
  if (entries_.size() == 1) entries_[0].whole = entries_[0].part == all;
  return added;
}

bool AccessOrder::busy(Access mode, const StoragePart& part) const {
  bool found = false;
  for (std::size_t i = 0; i < entries_.size() && !found; ++i) {
    const Entry& e = entries_[i];
    if (!overlap(e.part, part)) continue;
    found = !e.writers.ended() || (writes(mode) && !e.readers.ended());
  }
  return found;
}

}  // namespace detail
}  // namespace tessera
