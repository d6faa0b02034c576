// SPDX-License-Identifier: Apache-2.0
#include "tessera/device/memory/pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <mutex>
#include <new>

#include "tessera/base/config.h"
#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/base/os/fork.h"
#include "tessera/base/os/system.h"
#include "tessera/device/driver.h"
#include "tessera/device/memory/reclaim.h"
#include "tessera/device/queue/queue_core.h"
#include "tessera/device/selection/open_device.h"
#include "tessera/device/settings.h"

namespace tessera {
namespace {

constexpr std::uint64_t mebi = 1024 * 1024;

/// Free memory of the machine, shared by all devices that use host memory. Querying the system takes about 0.1 ms, so
/// small allocations use the result of the last query.
struct HostMemory {
  std::mutex lock;
  std::uint64_t held = 0;       // number of bytes that our pools have allocated from the host
  std::uint64_t most_free = 0;  // highest value seen so far; memory that was allocated but not touched counts as free
  std::uint64_t free = 0;       // result of the last query
  std::uint64_t since = 0;      // bytes allocated since that query
  bool group_is_tighter = false;
  bool asked = false;

  void ask() {
    const os::Memory machine = os::memory();
    free = machine.available;
    group_is_tighter = false;
    if (const auto group = os::group_memory(); group && (group->free < free || free == 0)) {
      free = group->free;
      group_is_tighter = true;
    }
    most_free = std::max(most_free, free);
    since = 0;
    asked = true;
  }
  /// Returns how many bytes may still be allocated. Returns the maximum value if the system does not report free
  /// memory.
  std::uint64_t left(std::uint64_t wanted) {
    if (!asked || wanted >= mebi || since >= 8 * mebi) ask();
    if (most_free == 0) return ~std::uint64_t{0};
    // Leave some memory for the program and the system; otherwise, the kernel kills processes.
    const std::uint64_t margin = std::min<std::uint64_t>(256 * mebi, most_free / 32);
    const auto minus = [](std::uint64_t a, std::uint64_t b) { return a - std::min(a, b); };
    return minus(std::min(minus(free, since), minus(most_free, held)), margin);
  }
};
HostMemory& host() {
  static constinit os::PerProcess<HostMemory> the_host;
  return the_host.get();
}

constinit std::atomic<ReclaimMemory> reclaim = nullptr;

}  // namespace

std::size_t size_class(std::size_t bytes) {
  if (bytes <= 256) return 256;
  if (bytes > 64 * mebi) return (bytes + 16 * mebi - 1) / (16 * mebi) * (16 * mebi);
  const std::size_t step = std::bit_floor(bytes - 1) / 4;
  return (bytes + step - 1) / step * step;
}

std::shared_ptr<Storage> MemoryPool::make(std::size_t bytes, std::string&& label) {
  struct Made : Storage {  // allocated together with its reference counts
    Made() {}              // user-provided, so that members are not zeroed first
  };
  std::shared_ptr<Storage> storage = std::make_shared<Made>();
  storage->device_ = owner_.device;
  storage->bytes_ = bytes;
  storage->label_ = std::move(label);
  return storage;
}

void MemoryPool::enlist(Storage& storage) noexcept {
  storage.pool_ = this;
  storage.after_ = live_;
  if (live_ != nullptr) live_->before_ = &storage;
  live_ = &storage;
}

void MemoryPool::delist(Storage& storage) noexcept {
  (storage.before_ != nullptr ? storage.before_->after_ : live_) = storage.after_;
  if (storage.after_ != nullptr) storage.after_->before_ = storage.before_;
}

bool MemoryPool::take_cached(std::size_t size, Storage& storage) noexcept {
  auto it = cached_.lower_bound(size);
  while (it != cached_.end() && it->second.empty()) ++it;  // empty entries are kept for later blocks of that size
  if (it == cached_.end() || it->first > size + size / 4) return false;
  Block& block = it->second.back();  // the newest one is most likely still in the CPU's caches
  storage.allocation_ = block.allocation;
  storage.used_.store(!block.uses.empty(), std::memory_order_relaxed);
  storage.reads_ = std::move(block.uses);  // the first write must wait for earlier uses of this memory
  it->second.pop_back();
  cached_bytes_ -= storage.allocation_.bytes;
  live_bytes_ += storage.allocation_.bytes;
  ++reuses_;
  enlist(storage);
  return true;
}

std::uint64_t MemoryPool::explicit_limit() const {
  if (!owner_.holds_data) return 0;
  if (limit_ != 0) return limit_;
  return settings().memory_limit.value_or(0);
}

std::uint64_t MemoryPool::cache_cap() const { return std::max<std::uint64_t>(owner_.info.total_memory / 4, 64 * mebi); }

MemoryPool::Room MemoryPool::host_room(std::uint64_t bytes, bool take) {
  HostMemory& h = host();
  std::lock_guard hold(h.lock);
  const std::uint64_t left = h.left(bytes);
  if (take && left >= bytes) h.held += bytes, h.since += bytes;
  if (left == ~std::uint64_t{0}) return {};
  return {left >= bytes, left, left + h.held - (take && left >= bytes ? bytes : 0),
          h.group_is_tighter ? "the memory limit of this process's control group" : "the machine's available memory",
          h.group_is_tighter};
}

MemoryPool::Room MemoryPool::room_for(std::uint64_t bytes, bool take) {
  const std::uint64_t used = live_bytes_ + cached_bytes_;
  Room room;
  const auto bound = [&](std::uint64_t limit, std::string rule, bool chosen) {
    const std::uint64_t free = limit - std::min(limit, used);
    if (room.limit == 0 || free < room.free) room = {free >= bytes, free, limit, std::move(rule), chosen};
  };
  if (const std::uint64_t limit = explicit_limit()) {
    bound(limit, limit_ != 0 ? "the budget given to set_memory_limit" : "TESSERA_MEMORY_LIMIT", true);
  }
  if (owner_.info.total_memory != 0 && owner_.holds_data) bound(owner_.info.total_memory, "the device's memory", false);
  if (owner_.host_memory) {
    const Room of_host = host_room(bytes, take && room.enough);
    if ((room.enough && !of_host.enough) || (of_host.limit != 0 && (room.limit == 0 || of_host.free < room.free)))
      room = of_host;
  }
  return room;
}

void MemoryPool::pick_victims(std::uint64_t bytes, bool idle, std::vector<Block>& victims) {
  std::uint64_t found = 0;
  int looked_at = 0;
  std::vector<std::size_t> busy;
  while (found < bytes && !cached_.empty() && looked_at < 64) {
    auto oldest = cached_.end();
    for (auto it = cached_.begin(); it != cached_.end(); ++it) {
      if (it->second.empty()) continue;
      if (std::find(busy.begin(), busy.end(), it->first) != busy.end()) continue;
      if (oldest == cached_.end() || it->second.front().stamp < oldest->second.front().stamp) oldest = it;
    }
    if (oldest == cached_.end()) return;
    ++looked_at;
    Block& block = oldest->second.front();
    const auto done = [](const QueueUse& use) { return use.queue->done(use); };
    if (idle && !std::all_of(block.uses.begin(), block.uses.end(), done)) {
      busy.push_back(oldest->first);
      continue;
    }
    if (!idle) looked_at = 0;
    found += block.allocation.bytes;
    cached_bytes_ -= block.allocation.bytes;
    victims.push_back(std::move(block));
    oldest->second.erase(oldest->second.begin());
    if (oldest->second.empty()) cached_.erase(oldest);
  }
}

namespace {
const std::string& allocating = interned("an allocation of memory");
const std::string& releasing = interned("a release of memory");
}  // namespace

std::uint64_t MemoryPool::give_back(std::vector<Block>& victims) noexcept {
  std::uint64_t bytes = 0;
  for (Block& block : victims) {
    for (const QueueUse& use : block.uses) use.queue->wait_ended(use);
    if (owner_.gone()) continue;
    bytes += block.allocation.bytes;
    const DriverCall call(owner_, DriverCall::Kind::call, releasing);
    owner_.driver->release(block.allocation);
  }
  if (owner_.host_memory && bytes != 0) {
    std::lock_guard hold(host().lock);
    host().held -= std::min(host().held, bytes);
    host().asked = false;
  }
  victims.clear();
  return bytes;
}

std::shared_ptr<Storage> MemoryPool::allocate(std::size_t bytes, std::string label) {
  owner_.check();
  if (bytes > std::size_t{1} << 62) exhausted(bytes, label, {}, "larger than any machine's memory");
  const std::size_t size = size_class(bytes);
  // Create the storage before locking, so that the lock is acquired only once to find a block and to register the
  // storage.
  std::shared_ptr<Storage> storage = make(bytes, std::move(label));
  std::vector<Block> victims;
  Room room;
  for (int attempt = 0; attempt < 2; ++attempt) {
    std::unique_lock hold(lock_);
    if (take_cached(size, *storage)) {
      hold.unlock();
      owner_.driver->reused(storage->allocation_);
      return storage;
    }
    room = room_for(size, true);
    if (room.enough) {  // account for it under the same lock, so that concurrent threads stay within the budget
      live_bytes_ += size;
      peak_bytes_ = std::max(peak_bytes_, live_bytes_ + cached_bytes_);
      break;
    }
    if (attempt == 0) {
      // The budget is used up by cached blocks of other sizes. Free as many as needed.
      pick_victims(size - room.free, false, victims);
      hold.unlock();
      const std::uint64_t given = give_back(victims);
      logging::info(fmt::format("{}: {} requested, {} free ({}): freed {} of cached memory, retrying",
                                to_string(owner_.device), config::format_bytes(size), config::format_bytes(room.free),
                                room.rule, config::format_bytes(given)));
    }
  }
  // Before reporting an error, try to free reclaimable memory.
  const auto reclaimed = [&] {
    const ReclaimMemory ask = reclaim.load(std::memory_order_acquire);
    return ask != nullptr && ask(owner_.device, size);
  };
  if (!room.enough) {
    if (reclaimed()) return allocate(bytes, std::move(storage->label_));
    exhausted(size, storage->label_, room, {});
  }

  std::string driver_text;
  const auto forget = [&] {
    {
      std::lock_guard hold(lock_);
      live_bytes_ -= size;
    }
    if (!owner_.host_memory) return;
    std::lock_guard hold(host().lock);
    host().held -= std::min<std::uint64_t>(host().held, size);
  };
  for (int attempt = 0; attempt < 2; ++attempt) {
    try {
      const DriverCall call(owner_, DriverCall::Kind::call, allocating);
      Allocation allocation = owner_.driver->allocate(size, MemoryKind::device);
      allocation.bytes = size;
      storage->allocation_ = allocation;
      std::lock_guard hold(lock_);
      ++allocations_;
      enlist(*storage);
      return storage;
    } catch (const OutOfMemory& e) {
      driver_text = e.what();
    } catch (const std::bad_alloc&) {
      driver_text = "the host has no memory left";
    } catch (const DeviceLost& e) {
      forget();
      owner_.mark_lost(e.what());
      owner_.check();  // throws a DeviceLost with the remedy
      throw;
    } catch (...) {
      forget();
      throw;
    }
    if (attempt == 0) {
      logging::info(fmt::format("{}: the driver has no memory for {}: trimming the pool and retrying",
                                to_string(owner_.device), config::format_bytes(size)));
      trim();
    }
  }
  forget();
  if (reclaimed()) return allocate(bytes, std::move(storage->label_));
  exhausted(size, storage->label_, room, driver_text);
}

void MemoryPool::release(Storage& storage) noexcept {
  if (owner_.forked()) return;  // the lock may be held by a thread that does not exist in this process
  Block block{storage.allocation_, std::move(storage.reads_), 0};
  bool known = true;
  if (storage.last_write_.queue) {
    try {
      // Keep one entry per queue, because a later use covers the earlier ones.
      const auto same = std::find_if(block.uses.begin(), block.uses.end(),
                                     [&](const QueueUse& use) { return use.queue == storage.last_write_.queue; });
      if (same == block.uses.end())
        block.uses.push_back(std::move(storage.last_write_));
      else if (same->sequence < storage.last_write_.sequence)
        *same = std::move(storage.last_write_);
    } catch (...) {  // out of memory: leaking the block is safer than reusing it too early
      known = false;
    }
  }
  std::vector<Block> victims;
  try {
    std::lock_guard hold(lock_);
    delist(storage);
    if (known) keep(block, victims);
  } catch (...) {  // leaked for the same reason
  }
  if (!victims.empty()) give_back(victims);
}

void MemoryPool::keep(Block& block, std::vector<Block>& victims) {
  live_bytes_ -= block.allocation.bytes;
  if (owner_.lost()) return;  // its memory is lost with the device
  cached_bytes_ += block.allocation.bytes;
  block.stamp = ++stamps_;
  cached_[block.allocation.bytes].push_back(std::move(block));
  // Blocks with running work stay cached, because freeing them would have to wait.
  if (owner_.gone()) return;
  if (const std::uint64_t cap = cache_cap(); cached_bytes_ > cap) pick_victims(cached_bytes_ - cap, true, victims);
}

void MemoryPool::relabel(Storage& storage, std::string label) {
  std::lock_guard hold(lock_);  // `exhausted` reads all labels under the lock
  storage.label_.swap(label);
}

MemoryStats MemoryPool::stats() {
  std::lock_guard hold(lock_);
  MemoryStats s{.live_bytes = live_bytes_,
                .cached_bytes = cached_bytes_,
                .peak_bytes = peak_bytes_,
                .allocations = allocations_,
                .reuses = reuses_};
  const Room room = room_for(0);
  s.limit_bytes = owner_.host_memory ? room.limit : explicit_limit();
  s.bound = room.rule;
  return s;
}

void MemoryPool::reset_peak() {
  std::lock_guard hold(lock_);
  peak_bytes_ = live_bytes_ + cached_bytes_;
}

std::uint64_t MemoryPool::trim() {
  std::vector<Block> victims;
  {
    std::lock_guard hold(lock_);
    pick_victims(~std::uint64_t{0}, false, victims);
  }
  owner_.drop_retired(true);
  const std::uint64_t bytes = give_back(victims);
  owner_.staging.trim();
  owner_.driver->trim();
  logging::info(fmt::format("{}: trimmed, {} freed", to_string(owner_.device), config::format_bytes(bytes)));
  return bytes;
}

void MemoryPool::set_limit(std::uint64_t bytes) {
  std::vector<Block> victims;
  {
    std::lock_guard hold(lock_);
    limit_ = bytes;
    const std::uint64_t used = live_bytes_ + cached_bytes_;
    if (bytes != 0 && used > bytes) pick_victims(used - bytes, false, victims);
  }
  give_back(victims);
}

std::uint64_t MemoryPool::free_memory(std::uint64_t reserve) {
  std::lock_guard hold(lock_);
  const Room room = room_for(0);
  std::uint64_t reported = owner_.host_memory ? ~std::uint64_t{0} : owner_.driver->free_memory() + cached_bytes_;
  reported -= std::min(reported, reserve);
  // Cached blocks can be reused.
  return room.limit == 0 ? reported : std::min(reported, room.free + cached_bytes_);
}

void MemoryPool::exhausted(std::size_t bytes, const std::string& label, const Room& room,
                           const std::string& driver_text) {
  struct Live {
    std::string label;
    std::uint64_t bytes;
  };
  std::vector<Live> live;
  {
    std::lock_guard hold(lock_);
    for (const Storage* s = live_; s != nullptr; s = s->after_) live.push_back({s->label_, s->allocation_.bytes});
  }
  const std::size_t shown = std::min<std::size_t>(5, live.size());
  std::partial_sort(live.begin(), live.begin() + static_cast<std::ptrdiff_t>(shown), live.end(),
                    [](const Live& a, const Live& b) { return a.bytes > b.bytes; });
  std::string largest;
  for (std::size_t i = 0; i < shown; ++i) {
    largest +=
        fmt::format("{}{} {}", i == 0 ? "" : ", ", live[i].label.empty() ? "an unnamed storage of" : live[i].label,
                    config::format_bytes(live[i].bytes));
  }
  std::string wrong = fmt::format("{} does not have enough memory: {} requested", to_string(owner_.device),
                                  config::format_bytes(bytes));
  if (!room.rule.empty()) {
    wrong += fmt::format(", {} free of {} ({})", config::format_bytes(room.free), config::format_bytes(room.limit),
                         room.rule);
  }
  if (!driver_text.empty()) wrong += ": " + driver_text;
  fail<OutOfMemory>(
      {.operation = label.empty() ? std::string("allocate") : "allocate " + label,
       .with = {{"largest of " + std::to_string(live.size()) + " live", largest.empty() ? "none" : largest}},
       .wrong = wrong,
       .remedy = fmt::format("{} smaller shapes or types{}", live.empty() ? "Use" : "Free some of these, or use",
                             room.chosen ? ", or raise the limit" : "")});
}

void set_reclaim_memory(ReclaimMemory ask) noexcept { reclaim.store(ask, std::memory_order_release); }

MemoryStats memory_stats(Device device) { return open_device(device).pool.stats(); }
void reset_peak_memory(Device device) { open_device(device).pool.reset_peak(); }
std::uint64_t trim(Device device) { return open_device(device).pool.trim(); }
void set_memory_limit(Device device, std::uint64_t bytes) { open_device(device).pool.set_limit(bytes); }
std::uint64_t free_memory(Device device, std::uint64_t reserve) {
  return open_device(device).pool.free_memory(reserve);
}

}  // namespace tessera
