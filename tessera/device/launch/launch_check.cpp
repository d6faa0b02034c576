// SPDX-License-Identifier: Apache-2.0
#include "tessera/device/launch/launch_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "tessera/base/error.h"
#include "tessera/ir/node.h"

namespace tessera {
namespace {

constexpr std::uint64_t max_launch_threads = std::uint64_t{1} << 62;
// Indices of at least this value use 64 bits. The margin below 2^31 allows for the last increment of a loop, for ranges
// that are split, and for grids that are rounded up.
constexpr std::uint64_t wide_from = (std::uint64_t{1} << 31) - 65536;

std::string describe(const LaunchArgument& a) {
  if (!a.view.storage) return fmt::format("a scalar {}", dtype_name(a.dtype));
  return fmt::format("a buffer of {} {}", a.view.elements, dtype_name(a.view.dtype));
}

[[noreturn]] void refuse(const ir::Function& fn, std::string wrong) {
  fail<KernelError>({.operation = "launch " + fn.name,
                     .wrong = std::move(wrong),
                     .remedy = fmt::format("This kernel takes: {}", signature(fn))});
}

/// Address range of a view. Views of the same memory have the same range, even if they use different storages.
struct Range {
  const void* memory;  // the storage; null if begin and end are host addresses
  std::uint64_t begin, end;
};
Range range_of(const BufferView& view) {
  const Allocation& allocation = view.storage->allocation();
  if (allocation.host != nullptr) {
    const auto base = reinterpret_cast<std::uintptr_t>(allocation.host) + view.byte_offset;
    return {nullptr, base, base + view.bytes()};
  }
  return {view.storage.get(), view.byte_offset, view.byte_offset + view.bytes()};
}

std::string bytes_of(const ir::Function& fn, std::uint32_t param, const BufferView& view, bool written) {
  return fmt::format("{} ({}bytes {} to {} of {})", fn.params[param].name, written ? "written, " : "", view.byte_offset,
                     view.byte_offset + view.bytes(), view.storage->name());
}

}  // namespace

KernelFacts::KernelFacts(const ir::Function& fn) : writes(fn.params.size(), 0), reads(fn.params.size(), 0) {
  for (std::uint32_t i = 0; i < fn.params.size(); ++i) {
    if (fn.params[i].is_buffer) buffers.push_back(i);
    parameter_bytes += fn.params[i].is_buffer ? 16 : 8;
  }
  for (const ir::Node& node : fn.nodes) {
    const auto note = [&](ir::NodeId used, std::vector<std::uint8_t>& in) {
      if (used && fn[used].op == ir::Op::param) in[fn[used].imm] = 1;
    };
    note(ir::written_memory(node), writes);
    note(ir::read_memory(node), reads);
    if (!fn.aligned_vectors || (node.type.lanes == 1 && node.op != ir::Op::async)) continue;
    for (const ir::NodeId used : {ir::written_memory(node), ir::read_memory(node)})
      if (used && fn[used].op == ir::Op::param && std::ranges::find(vectors, fn[used].imm) == vectors.end())
        vectors.push_back(static_cast<std::uint32_t>(fn[used].imm));
  }
  shared_bytes = ir::shared_bytes(fn);
}

std::string signature(const ir::Function& fn) {
  std::string text = fn.name + "(";
  for (std::size_t i = 0; i < fn.params.size(); ++i) {
    const ir::Param& p = fn.params[i];
    if (i != 0) text += ", ";
    text += p.name + ": ";
    if (p.is_buffer) text += p.access == ir::Access::read ? "read-only buffer of " : "buffer of ";
    text += dtype_name(p.dtype);
  }
  return text + ")";
}

ArgumentFacts check_arguments(const ir::Function& fn, std::span<const LaunchArgument> arguments) {
  if (arguments.size() != fn.params.size()) {
    refuse(fn, fmt::format("{} argument{} given", arguments.size(), arguments.size() == 1 ? " was" : "s were"));
  }
  ArgumentFacts facts;
  std::size_t first = 0;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const ir::Param& p = fn.params[i];
    const LaunchArgument& a = arguments[i];
    const bool is_buffer = a.view.storage != nullptr;
    if (is_buffer != p.is_buffer || (is_buffer ? a.view.dtype : a.dtype) != p.dtype)
      refuse(fn, fmt::format("argument {} ({}) is {}", i + 1, p.name, describe(a)));
    if (!is_buffer) {
      // Checks both ends of the range with one comparison.
      if (p.dtype == DType::index && a.bits + wide_from >= 2 * wide_from) facts.wide = true;
      continue;
    }
    const Storage& storage = *a.view.storage;
    const std::uint64_t size = dtype_size(p.dtype), bytes = storage.bytes();  // `size` is a power of two
    if ((a.view.byte_offset & (size - 1)) != 0) {
      refuse(fn, fmt::format("argument {} ({}) starts at byte {}, which is not a multiple of {}", i + 1, p.name,
                             a.view.byte_offset, size));
    }
    if (a.view.byte_offset > bytes || a.view.elements > (bytes - a.view.byte_offset) >> std::countr_zero(size)) {
      refuse(fn, fmt::format("argument {} ({}) is {} from byte {}, but its storage has {} bytes", i + 1, p.name,
                             describe(a), a.view.byte_offset, bytes));
    }
    if (a.view.elements >= wide_from) facts.wide = true;
    if (!facts.device) {
      facts.device = storage.device();
      first = i;
    } else if (storage.device() != *facts.device) {
      fail<DeviceError>(
          {.operation = "launch " + fn.name,
           .with = {{fn.params[first].name, to_string(*facts.device)}, {p.name, to_string(storage.device())}},
           .wrong = "the buffers are on different devices",
           .remedy = "Copy all buffers to one device first"});
    }
  }
  return facts;
}

bool check_overlap(const ir::Function& fn, const KernelFacts& facts, std::span<const LaunchArgument> arguments) {
  bool same_twice = false;
  for (std::size_t p = 0; p < facts.buffers.size(); ++p) {
    const std::uint32_t i = facts.buffers[p];
    const BufferView& a = arguments[i].view;
    for (std::size_t q = p + 1; q < facts.buffers.size(); ++q) {
      const std::uint32_t j = facts.buffers[q];
      if (!facts.writes[i] && !facts.writes[j]) continue;
      const BufferView& b = arguments[j].view;
      if (a.storage != b.storage &&
          ((a.storage->from_pool() && b.storage->from_pool()) || a.storage->allocation().host == nullptr))
        continue;
      const Range x = range_of(a), y = range_of(b);
      if (x.memory != y.memory || std::max(x.begin, y.begin) >= std::min(x.end, y.end))
        continue;  // an empty range overlaps no other range
      if (x.begin == y.begin && x.end == y.end && a.dtype == b.dtype) {
        same_twice = true;
        continue;
      }
      fail<KernelError>(
          {.operation = "launch " + fn.name,
           .wrong =
               fmt::format("{} overlaps {}{}", bytes_of(fn, i, a, facts.writes[i]), bytes_of(fn, j, b, facts.writes[j]),
                           a.dtype == b.dtype ? "" : ", which has another dtype"),
           .remedy =
               "A buffer that a kernel writes may be passed twice only as the same view: copy one of them first"});
    }
  }
  return same_twice;
}

bool are_aligned(const KernelFacts& facts, std::span<const LaunchArgument> arguments) {
  return std::ranges::all_of(facts.vectors, [&](std::uint32_t i) {
    const BufferView& view = arguments[i].view;
    // A handle that is not an address denotes aligned memory.
    const Allocation& allocation = view.storage->allocation();
    const void* const begin = allocation.host != nullptr ? allocation.host : allocation.handle;
    return (reinterpret_cast<std::uintptr_t>(begin) + view.byte_offset) % 16 == 0;
  });
}

bool check_shape(const ir::Function& fn, const std::array<std::uint64_t, 3>& shape) {
  std::uint64_t threads = 1;
  bool none = false;
  for (std::size_t d = 0; d < 3; ++d) {
    if (shape[d] >> 63 != 0) {
      fail<KernelError>(
          {.operation = "launch " + fn.name,
           .wrong = fmt::format("dimension {} of the shape is negative: {}", d, static_cast<std::int64_t>(shape[d]))});
    }
    none = none || shape[d] == 0;
  }
  if (none) return false;
  for (std::size_t d = 0; d < 3; ++d) {
    const std::uint64_t width = fn.kind == ir::KernelKind::block ? fn.block_size[d] : 1;
    const bool overflows =
        __builtin_mul_overflow(threads, shape[d], &threads) || __builtin_mul_overflow(threads, width, &threads);
    if (overflows || threads > max_launch_threads) {
      fail<KernelError>(
          {.operation = "launch " + fn.name,
           .wrong = fmt::format("the shape {} x {} x {} is more than 2^62 threads", shape[0], shape[1], shape[2])});
    }
  }
  return true;
}

bool needs_index64(const ir::Function& fn, const std::array<std::uint64_t, 3>& shape, const ArgumentFacts& arguments) {
  std::uint64_t threads = shape[0] * shape[1] * shape[2];  // cannot overflow (see check_shape)
  if (fn.kind == ir::KernelKind::block) threads *= fn.threads_per_block();
  return arguments.wide || threads >= wide_from;
}

void check_capabilities(const ir::Function& fn, const KernelFacts& facts, const DeviceInfo& info) {
  const auto refuse_here = [&](std::string wrong, std::string remedy) {
    fail<KernelError>({.operation = "kernel " + fn.name,
                       .with = {{"device", fmt::format("{} ({})", to_string(info.device), info.name)}},
                       .wrong = std::move(wrong),
                       .remedy = std::move(remedy)});
  };
  const Capabilities& can = info.can;
  if (facts.parameter_bytes > can.max_parameter_bytes) {
    refuse_here(fmt::format("its parameters take {} bytes, but the device allows only {}", facts.parameter_bytes,
                            can.max_parameter_bytes),
                "Use fewer parameters");
  }
  if (fn.kind != ir::KernelKind::block) return;
  if (fn.threads_per_block() > can.max_block_threads) {
    refuse_here(fmt::format("a block has {} threads, but the device allows only {}", fn.threads_per_block(),
                            can.max_block_threads),
                "Use smaller blocks");
  }
  for (std::size_t d = 0; d < 3; ++d) {
    if (fn.block_size[d] > can.max_block[d]) {
      refuse_here(fmt::format("a block has {} threads in dimension {}, but the device allows only {}", fn.block_size[d],
                              d, can.max_block[d]),
                  "Use smaller blocks");
    }
  }
  if (facts.shared_bytes > can.shared_bytes) {
    refuse_here(fmt::format("a block needs {} bytes of shared memory, but the device has only {}", facts.shared_bytes,
                            can.shared_bytes),
                "Use smaller tiles");
  }
}

}  // namespace tessera
