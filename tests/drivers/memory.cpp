// SPDX-License-Identifier: Apache-2.0
// Device and host memory. Checks all accesses to it.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "tests/drivers/machine.h"

namespace tessera::fake {
namespace {

constexpr std::size_t arena_bytes = std::size_t{64} << 30;
constexpr std::size_t alignment = 256, gap = 256;  // drivers guarantee this alignment; gaps separate allocations
constexpr std::size_t fence = 64;  // bytes before and after pinned memory, to detect wrong writes by the host
constexpr unsigned char poison = 0xff, fence_byte = 0xfe, given_back = 0xdb;

std::string text_of(std::uint64_t address) {
  char text[32];
  std::snprintf(text, sizeof text, "%#llx", static_cast<unsigned long long>(address));
  return text;
}

}  // namespace

Memory::~Memory() {
  if (host) std::free(data - fence);
}

std::uint64_t Machine::place(int device, std::size_t bytes) {
  const auto d = static_cast<std::size_t>(device);
  const std::size_t size = (bytes + gap + alignment - 1) / alignment * alignment;
  if (next_[d] + size > arena_[d] + arena_bytes) {  // the arena is full: starts again, and drops the records of freed
                                                    // allocations
    std::erase_if(graves_, [&](const auto& g) { return g.first >= arena_[d] && g.first < arena_[d] + arena_bytes; });
    next_[d] = arena_[d] + 4096;
  }
  for (bool free = false; !free;) {  // skip live allocations
    free = true;
    for (auto it = memory_.lower_bound(arena_[d]); it != memory_.end() && it->first < next_[d] + size; ++it)
      if (it->first + it->second->bytes + gap > next_[d]) {
        next_[d] = (it->first + it->second->bytes + gap + alignment - 1) / alignment * alignment;
        free = false;
        break;
      }
    // Usually there are none, because addresses only grow until the arena is full.
  }
  const std::uint64_t address = next_[d];
  next_[d] += size;
  return address;
}

Code Machine::allocate(Context& context, std::size_t bytes, std::uint64_t* address) {
  std::lock_guard hold(lock_);
  if (const Code code = outside_of_capture_locked(); code != ok) return code;
  *address = 0;
  if (bytes == 0) return breach_locked("an allocation of 0 bytes", invalid_value);
  const std::uint64_t n = ++counts_["allocations"];
  if (const Code code = faults_.strikes("oom", n, out_of_memory, context.device)) return code;
  std::uint64_t& used = used_[static_cast<std::size_t>(context.device)];
  if (bytes > settings_.memory - used) return out_of_memory;
  auto memory = std::make_shared<Memory>();
  memory->address = *address = place(context.device, bytes);
  memory->bytes = bytes;
  memory->context = &context;
  memory->backing.reset(new std::byte[bytes]);
  memory->data = memory->backing.get();
  std::memset(memory->data, poison, bytes);
  used += bytes;
  memory_[memory->address] = std::move(memory);
  return ok;
}

Code Machine::allocate_host(Context& context, std::size_t bytes, void** address) {
  std::lock_guard hold(lock_);
  if (const Code code = outside_of_capture_locked(); code != ok) return code;
  *address = nullptr;
  if (bytes == 0) return breach_locked("an allocation of 0 bytes", invalid_value);
  if (const Code code = faults_.strikes("host-oom", ++counts_["host allocations"], out_of_memory, context.device))
    return code;
  auto memory = std::make_shared<Memory>();
  auto* whole = static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 2 * fence + 63) / 64 * 64));
  std::memset(whole, fence_byte, bytes + 2 * fence);
  memory->data = whole + fence;
  std::memset(memory->data, poison, bytes);
  memory->host = true;
  memory->bytes = bytes;
  memory->context = &context;
  memory->address = reinterpret_cast<std::uint64_t>(memory->data);
  *address = memory->data;
  graves_.erase(memory->address);
  memory_[memory->address] = std::move(memory);
  return ok;
}

Code Machine::free(std::uint64_t address) {
  std::lock_guard hold(lock_);
  if (const Code code = outside_of_capture_locked(); code != ok) return code;
  if (address == 0) return ok;
  const auto it = memory_.find(address);
  if (it == memory_.end()) {
    if (graves_.contains(address)) return breach_locked("memory is freed twice: " + text_of(address), invalid_value);
    return breach_locked(text_of(address) + " is not the address of an allocation", invalid_value);
  }
  const MemoryPointer memory = it->second;
  Context& owner = *memory->context;
  if (memory->host) return breach_locked("host memory is freed as device memory", invalid_value);
  Code code = ok;
  if (owner.sticky == ok && owner.deferred == ok) {
    if (memory->queued != 0) code = breach_locked("memory is freed while queued work uses it", ok);
    for (const Use& use : memory->uses)
      if (code == ok && memory->queued == 0 && host_clock_[use.stream] < use.sequence) {
        breach_locked("memory is freed before the host has waited for its last use (" + use.what + ")", ok);
        break;
      }
  }
  used_[static_cast<std::size_t>(owner.device)] -= memory->bytes;
  memory->live = false;
  memory_.erase(it);
  memory->uses.clear();
  graves_[address] = memory;
  if (memory->queued == 0) {  // otherwise, the last queued work item that uses the memory frees the bytes
    memory->backing.reset();
    memory->data = nullptr;
  }
  return owner.sticky;
}

Code Machine::free_host(void* address) {
  std::lock_guard hold(lock_);
  if (const Code code = outside_of_capture_locked(); code != ok) return code;
  if (address == nullptr) return ok;
  const auto key = reinterpret_cast<std::uint64_t>(address);
  const auto it = memory_.find(key);
  if (it == memory_.end())
    return breach_locked(
        graves_.contains(key) ? "pinned memory is freed twice" : text_of(key) + " is not the address of pinned memory",
        invalid_value);
  const MemoryPointer memory = it->second;
  if (!memory->host) return breach_locked("device memory is freed as host memory", invalid_value);
  Context& owner = *memory->context;
  if (owner.sticky == ok && owner.deferred == ok) {
    if (memory->queued != 0) {
      breach_locked("pinned memory is freed while queued work uses it", ok);
    } else {
      for (const Use& use : memory->uses)
        if (host_clock_[use.stream] < use.sequence) {
          breach_locked("pinned memory is freed before the host has waited for its last use (" + use.what + ")", ok);
          break;
        }
    }
  }
  for (std::size_t i = 0; i < fence; ++i)
    if (memory->data[memory->bytes + i] != std::byte{fence_byte} ||
        memory->data[-1 - static_cast<std::ptrdiff_t>(i)] != std::byte{fence_byte}) {
      breach_locked("a write outside of pinned memory", ok);
      break;
    }
  std::memset(memory->data, given_back, memory->bytes);
  memory->live = false;
  memory_.erase(it);
  auto grave = std::make_shared<Memory>();  // keeps only the address; the last work item that uses the bytes frees them
  grave->address = key;
  grave->bytes = memory->bytes;
  grave->live = false;
  graves_[key] = std::move(grave);
  return owner.sticky;
}

std::uint64_t Machine::free_bytes(int device) {
  std::lock_guard hold(lock_);
  return settings_.memory - used_[static_cast<std::size_t>(device)];
}

MemoryPointer Machine::find(std::uint64_t address) {
  auto it = memory_.upper_bound(address);
  if (it == memory_.begin()) return nullptr;
  --it;
  return address - it->first < it->second->bytes ? it->second : nullptr;
}

/// Checks that the bytes are in one allocation that this context may access.
Code Machine::range(Context& context, std::uint64_t address, std::size_t bytes, bool write, Touch* touch) {
  const MemoryPointer memory = find(address);
  if (memory == nullptr) {
    auto it = graves_.upper_bound(address);
    if (it != graves_.begin() && address - std::prev(it)->first < std::prev(it)->second->bytes)
      return breach_locked("memory is used after it was freed: " + text_of(address), illegal_address);
    return breach_locked(text_of(address) + " is not device memory (a host address?)", illegal_address);
  }
  if (bytes > memory->bytes - (address - memory->address))
    return breach_locked("an access past the end of its allocation of " + std::to_string(memory->bytes) +
                             " bytes: from " + std::to_string(address - memory->address) + " on, " +
                             std::to_string(bytes) + " bytes",
                         illegal_address);
  if (!memory->host && memory->context != &context && !context.peers.contains(memory->context->device))
    return breach_locked("memory of device " + std::to_string(memory->context->device) + " is used on device " +
                             std::to_string(context.device) + ", which cannot access it",
                         illegal_address);
  *touch = {memory, address - memory->address, address - memory->address + bytes, write};
  return ok;
}

Code Machine::copy(Context& context, std::uint64_t to, std::uint64_t from, std::size_t bytes, Copy direction,
                   Stream& stream, bool waits, const Order& order, bool empty) {
  if (bytes == 0 && order.waits.empty() && order.signal == nullptr) return ok;
  if (!execute_) return ok;
  Work work;
  work.what = direction == Copy::any         ? "a copy"
              : direction == Copy::to_device ? "a copy to the device"
              : direction == Copy::to_host   ? "a copy to the host"
                                             : "a copy on the device";
  std::byte *target = nullptr, *source = nullptr;
  std::shared_ptr<std::vector<std::byte>> staged;
  const char* counter = nullptr;
  {
    std::lock_guard hold(lock_);
    const auto is_on_device = [&](std::uint64_t address) {
      const MemoryPointer memory = find(address);
      return memory != nullptr && !memory->host;
    };
    if (is_on_device(to) != is_on_device(from)) counter = is_on_device(to) ? "bytes up" : "bytes down";
    // Returns one side of the copy. Pinned memory is accessed when the work runs. Pageable memory is accessed before
    // the call returns.
    auto side = [&](std::uint64_t address, bool write, bool device) -> std::byte* {
      if (!device) {
        const MemoryPointer memory = find(address);
        if (memory == nullptr) return reinterpret_cast<std::byte*>(address);
        if (!memory->host) {
          breach_locked("a device address where a host address is required", invalid_value);
          return nullptr;
        }
      }
      Touch touch;
      if (range(context, address, bytes, write, &touch) != ok) return nullptr;
      work.touches.push_back(touch);
      return touch.memory->data + touch.begin;
    };
    work.order = order;
    const bool on_device = direction == Copy::on_device;
    if (direction == Copy::any) {  // both sides may be host or device memory
      for (const std::uint64_t address : {to, from})
        if (find(address) == nullptr && address_in_arena(address))
          return breach_locked("a device address without an allocation", invalid_value);
    } else if (address_in_arena(direction == Copy::to_device ? from
                                : direction == Copy::to_host ? to
                                                             : 0) &&
               find(direction == Copy::to_device ? from : to) == nullptr)
      return breach_locked("a device address where a host address is required", invalid_value);
    target =
        side(to, true, on_device || direction == Copy::to_device || (direction == Copy::any && find(to) != nullptr));
    if (target == nullptr) return invalid_value;
    source =
        side(from, false, on_device || direction == Copy::to_host || (direction == Copy::any && find(from) != nullptr));
    if (source == nullptr) return invalid_value;
    if (direction == Copy::to_device && work.touches.size() == 1 && !pageable_later) {
      staged = std::make_shared<std::vector<std::byte>>(source, source + bytes);
      source = staged->data();
    }
    if (direction == Copy::to_host && work.touches.size() == 1 && !pageable_later) waits = true;
    if (on_device && to < from + bytes && from < to + bytes && to != from)
      return breach_locked("the ranges of a copy overlap, which is undefined", invalid_value);
  }
  work.run = [this, target, source, bytes, staged, empty, counter] {
    if (!empty) std::memmove(target, source, bytes);
    if (counter != nullptr) {
      std::lock_guard hold(lock_);
      counts_[counter] += bytes;
    }
    return ok;
  };
  return enqueue(stream, std::move(work), waits);
}

Code Machine::fill(Context& context, std::uint64_t to, std::uint64_t value, std::size_t unit, std::size_t count,
                   Stream& stream, bool waits, const Order& order) {
  if (count == 0 || !execute_) return ok;
  Work work;
  work.what = "a fill";
  std::byte* target = nullptr;
  {
    std::lock_guard hold(lock_);
    if (to % unit != 0) return breach_locked("a fill of an address that is not a multiple of its unit", invalid_value);
    Touch touch;
    if (const Code code = range(context, to, unit * count, true, &touch)) return code == ok ? ok : invalid_value;
    target = touch.memory->data + touch.begin;
    work.touches.push_back(touch);
  }
  work.order = order;
  work.run = [target, value, unit, count] {
    for (std::size_t i = 0; i < count; ++i) std::memcpy(target + i * unit, &value, unit);
    return ok;
  };
  return enqueue(stream, std::move(work), waits);
}

bool Machine::can_reach(int device, int peer) {
  return device != peer && primary(peer) != nullptr && faults_.find("no-peers", device) == nullptr;
}

Code Machine::enable_peer(Context& context, int peer) {
  if (!can_reach(context.device, peer)) return breach("peer access to an unreachable device is enabled", 217);
  if (const Fault* f = faults_.find("peer", context.device)) return f->code.value_or(711);
  std::lock_guard hold(lock_);
  return context.peers.insert(peer).second ? ok : peer_already_enabled;
}

Code Machine::copy_from_peer(Context& context, std::uint64_t to, const Context* target, std::uint64_t from,
                             const Context* source, std::size_t bytes, Stream& stream, const Order& order) {
  {
    std::lock_guard hold(lock_);
    const MemoryPointer there = find(from), here = find(to);
    if (there == nullptr || there->host || there->context != source)
      return breach_locked("the source of a peer copy is not in the given context", invalid_value);
    if (here == nullptr || here->host || here->context != target)
      return breach_locked("the target of a peer copy is not in the given context", invalid_value);
    if (source == target) return breach_locked("a peer copy within a device", invalid_value);
    const Context& other = target == &context ? *source : *target;
    if (!context.peers.contains(other.device))
      return breach_locked("a peer copy without access, which goes through the host", ok);
    ++counts_["peer copies"];
  }
  return copy(context, to, from, bytes, Copy::on_device, stream, false, order,
              faults_.find("peer-empty", context.device) != nullptr);
}

bool Machine::is_pinned(std::uint64_t address) {
  std::lock_guard hold(lock_);
  const MemoryPointer memory = find(address);
  return memory != nullptr && memory->host;
}

Context* Machine::owner(std::uint64_t address) {
  std::lock_guard hold(lock_);
  const MemoryPointer memory = find(address);
  return memory == nullptr || memory->host ? nullptr : memory->context;
}

bool Machine::address_in_arena(std::uint64_t address) const {
  return std::ranges::any_of(arena_, [&](std::uint64_t a) { return address >= a && address < a + arena_bytes; });
}

}  // namespace tessera::fake
