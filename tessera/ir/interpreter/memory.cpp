// SPDX-License-Identifier: Apache-2.0
// Loads, stores and atomics. If the lanes access consecutive elements or all the same element, one copy handles all of
// them. Other accesses, and accesses that might be invalid, are handled one lane at a time.
#include <algorithm>
#include <cstring>

#include "tessera/ir/interpreter/checker.h"

namespace tessera::ir::engine {

namespace {

template <class E>
E read(const std::byte* data, std::uint64_t element) {
  if constexpr (std::is_same_v<E, bool>) {
    return data[element] != std::byte{0};
  } else {
    E value;
    std::memcpy(&value, data + element * sizeof(E), sizeof(E));
    return value;
  }
}
template <class E>
void write(std::byte* data, std::uint64_t element, E value) {
  std::memcpy(data + element * sizeof(E), &value, sizeof(E));
}

enum class Pattern : std::uint8_t { consecutive, same, any };

template <class I>
Pattern pattern_of(const I* index, std::uint32_t begin, std::uint32_t end) {
  using U = std::make_unsigned_t<I>;
  const U first = static_cast<U>(index[begin]);
  U from_consecutive = 0, from_same = 0;
  for (std::uint32_t l = begin; l < end; ++l) {
    const U at = static_cast<U>(index[l]);
    from_consecutive |= at ^ static_cast<U>(first + (l - begin));
    from_same |= at ^ first;
  }
  return from_consecutive == 0 ? Pattern::consecutive : from_same == 0 ? Pattern::same : Pattern::any;
}

/// Returns the offset of component c of element e in local memory. For each component, the lanes are contiguous.
std::size_t local_place(const Machine& m, const MemorySlot& slot, std::uint64_t element, std::uint32_t c) {
  return (element * slot.lanes + c) * m.program.stride;
}

// Buffers and shared memory.

template <class E, class I, bool checked>
void load_lanes(Machine& m, const Instruction& i) {
  const Memory& memory = m.memories[i.memory];
  const I* index = m.lanes<I>(i.in[0]);
  E* out = m.lanes<E>(i.out);
  for_each_lane(m.mask, [&](std::uint32_t l) {
    const std::int64_t at = static_cast<std::int64_t>(index[l]);
    const bool good = inside(at, i.width, memory.elements);
    if (!good)
      m.out_of_bounds(i, l, at, i.width, "reads");
    else if (checked)
      m.checker->touch(i, l, static_cast<std::uint64_t>(at), i.width, AccessKind::read);
    if (good) m.check_alignment(i, l, at);
    for (std::uint32_t c = 0; c < i.width; ++c)
      out[c * m.program.stride + l] = good ? read<E>(memory.data, static_cast<std::uint64_t>(at) + c) : E{};
  });
}
template <class E, class I, bool checked>
void run_load(Machine& m, const Instruction& i) {
  if (checked || !m.mask.full() || i.width != 1) return load_lanes<E, I, checked>(m, i);
  const Memory& memory = m.memories[i.memory];
  const I* index = m.lanes<I>(i.in[0]);
  E* __restrict out = m.lanes<E>(i.out);
  const std::uint32_t begin = m.mask.begin, end = m.mask.end;
  const std::int64_t first = static_cast<std::int64_t>(index[begin]);
  switch (pattern_of(index, begin, end)) {
    case Pattern::consecutive:
      if (!inside(first, end - begin, memory.elements)) return load_lanes<E, I, false>(m, i);
      for (std::uint32_t l = begin; l < end; ++l)
        out[l] = read<E>(memory.data, static_cast<std::uint64_t>(first) + (l - begin));
      return;
    case Pattern::same:
      if (!inside(first, 1, memory.elements)) return load_lanes<E, I, false>(m, i);
      std::fill(out + begin, out + end, read<E>(memory.data, static_cast<std::uint64_t>(first)));
      return;
    case Pattern::any:
      for (std::uint32_t l = begin; l < end; ++l) {
        const std::uint64_t at = static_cast<std::uint64_t>(static_cast<std::int64_t>(index[l]));
        if (at >= memory.elements) return load_lanes<E, I, false>(m, i);
        out[l] = read<E>(memory.data, at);
      }
  }
}
/// Operands: index, mask, other.
template <class E, class I, bool checked>
void run_load_if(Machine& m, const Instruction& i) {
  const E* other = m.lanes<E>(i.in[2]);
  std::copy(other + m.mask.begin, other + m.mask.end, m.lanes<E>(i.out) + m.mask.begin);
  const Mask before = m.mask;
  m.mask = narrowed(before, m.lanes<bool>(i.in[1]), true, m.lanes<std::uint8_t>(m.program.scratch_mask));
  if (m.mask.active != 0) run_load<E, I, checked>(m, i);
  m.mask = before;
}

template <class E, class I, bool checked>
void run_store(Machine& m, const Instruction& i) {
  const Memory& memory = m.memories[i.memory];
  const I* index = m.lanes<I>(i.in[0]);
  const E* value = m.lanes<E>(i.in[1]);
  const std::uint32_t begin = m.mask.begin, end = m.mask.end;
  if (!checked && m.mask.full() && i.width == 1) {
    const std::int64_t first = static_cast<std::int64_t>(index[begin]);
    if (pattern_of(index, begin, end) == Pattern::consecutive && inside(first, end - begin, memory.elements)) {
      std::memcpy(memory.data + static_cast<std::uint64_t>(first) * sizeof(E), value + begin,
                  (end - begin) * sizeof(E));
      return;
    }
  }
  for_each_lane(m.mask, [&](std::uint32_t l) {
    const std::int64_t at = static_cast<std::int64_t>(index[l]);
    if (!inside(at, i.width, memory.elements)) return m.out_of_bounds(i, l, at, i.width, "writes");
    if (checked) m.checker->touch(i, l, static_cast<std::uint64_t>(at), i.width, AccessKind::write);
    m.check_alignment(i, l, at);
    for (std::uint32_t c = 0; c < i.width; ++c)
      write<E>(memory.data, static_cast<std::uint64_t>(at) + c, value[c * m.program.stride + l]);
  });
}

template <AtomicOp op, class T, class I, bool checked>
void run_atomic(Machine& m, const Instruction& i) {
  const Memory& memory = m.memories[i.memory];
  const I* index = m.lanes<I>(i.in[0]);
  const T *value = m.lanes<T>(i.in[1]), *expected = m.lanes<T>(i.in[2]);
  T* out = m.lanes<T>(i.out);
  for_each_lane(m.mask, [&](std::uint32_t l) {
    const std::int64_t at = static_cast<std::int64_t>(index[l]);
    if (!inside(at, 1, memory.elements)) {
      m.out_of_bounds(i, l, at, 1, "updates");
      out[l] = T{};
      return;
    }
    if (checked) m.checker->touch(i, l, static_cast<std::uint64_t>(at), 1, AccessKind::atomic);
    const T old = read<T>(memory.data, static_cast<std::uint64_t>(at));
    T fresh = value[l];
    if constexpr (op == AtomicOp::add) fresh = apply(BinaryOp::add, old, fresh);
    if constexpr (op == AtomicOp::min) fresh = apply(BinaryOp::min, old, fresh);
    if constexpr (op == AtomicOp::max) fresh = apply(BinaryOp::max, old, fresh);
    if constexpr (op == AtomicOp::and_) fresh = apply(BinaryOp::and_, old, fresh);
    if constexpr (op == AtomicOp::or_) fresh = apply(BinaryOp::or_, old, fresh);
    if constexpr (op == AtomicOp::xor_) fresh = apply(BinaryOp::xor_, old, fresh);
    if constexpr (op == AtomicOp::cas)
      if (std::memcmp(&old, &expected[l], sizeof(T)) != 0) fresh = old;
    write<T>(memory.data, static_cast<std::uint64_t>(at), fresh);
    out[l] = old;
  });
}

// Local memory of a thread.

template <class E, class I>
void run_load_local(Machine& m, const Instruction& i) {
  const Memory& memory = m.memories[i.memory];
  const I* index = m.lanes<I>(i.in[0]);
  const E* data = reinterpret_cast<const E*>(memory.data);
  E* out = m.lanes<E>(i.out);
  for_each_lane(m.mask, [&](std::uint32_t l) {
    const std::int64_t at = static_cast<std::int64_t>(index[l]);
    const bool good = inside(at, 1, memory.elements);
    if (!good) m.out_of_bounds(i, l, at, 1, "reads");
    for (std::uint32_t c = 0; c < i.width; ++c)
      out[c * m.program.stride + l] =
          good ? data[local_place(m, *memory.slot, static_cast<std::uint64_t>(at), c) + l] : E{};
  });
}
template <class E, class I>
void run_load_local_if(Machine& m, const Instruction& i) {
  const E* other = m.lanes<E>(i.in[2]);
  std::copy(other + m.mask.begin, other + m.mask.end, m.lanes<E>(i.out) + m.mask.begin);
  const Mask before = m.mask;
  m.mask = narrowed(before, m.lanes<bool>(i.in[1]), true, m.lanes<std::uint8_t>(m.program.scratch_mask));
  if (m.mask.active != 0) run_load_local<E, I>(m, i);
  m.mask = before;
}
template <class E, class I>
void run_store_local(Machine& m, const Instruction& i) {
  const Memory& memory = m.memories[i.memory];
  const I* index = m.lanes<I>(i.in[0]);
  const E* value = m.lanes<E>(i.in[1]);
  E* data = reinterpret_cast<E*>(memory.data);
  for_each_lane(m.mask, [&](std::uint32_t l) {
    const std::int64_t at = static_cast<std::int64_t>(index[l]);
    if (!inside(at, 1, memory.elements)) return m.out_of_bounds(i, l, at, 1, "writes");
    for (std::uint32_t c = 0; c < i.width; ++c)
      data[local_place(m, *memory.slot, static_cast<std::uint64_t>(at), c) + l] = value[c * m.program.stride + l];
  });
}
/// Loads an element with a constant index. Most of these loads read variables.
template <class E>
void run_load_local_constant(Machine& m, const Instruction& i) {
  const Memory& memory = m.memories[i.memory];
  for (std::uint32_t c = 0; c < i.width; ++c) {
    const E* data = reinterpret_cast<const E*>(memory.data) + local_place(m, *memory.slot, i.imm, c);
    std::copy(data + m.mask.begin, data + m.mask.end, m.lanes<E>(i.out) + c * m.program.stride + m.mask.begin);
  }
}
template <class E>
void run_store_local_constant(Machine& m, const Instruction& i) {
  const Memory& memory = m.memories[i.memory];
  const std::uint32_t begin = m.mask.begin, end = m.mask.end;
  for (std::uint32_t c = 0; c < i.width; ++c) {
    E* __restrict data = reinterpret_cast<E*>(memory.data) + local_place(m, *memory.slot, i.imm, c);
    const E* value = m.lanes<E>(i.in[1]) + c * m.program.stride;
    if (m.mask.full()) {
      std::copy(value + begin, value + end, data + begin);
    } else {
      const std::uint8_t* active = m.mask.lanes;
      for (std::uint32_t l = begin; l < end; ++l) {
        const E fresh = value[l], old = data[l];
        data[l] = active[l] ? fresh : old;
      }
    }
  }
}

}  // namespace

Run load_loop(DType type, DType index, MemorySlot::Kind kind, bool masked, bool checked) {
  return with_storage_type(type, [&](auto tag) -> Run {
    using E = decltype(tag);
    const bool wide = index == DType::i64;
    if (kind == MemorySlot::local) {
      if (masked) return wide ? &run_load_local_if<E, std::int64_t> : &run_load_local_if<E, std::int32_t>;
      return wide ? &run_load_local<E, std::int64_t> : &run_load_local<E, std::int32_t>;
    }
    if (masked) {
      if (checked) return wide ? &run_load_if<E, std::int64_t, true> : &run_load_if<E, std::int32_t, true>;
      return wide ? &run_load_if<E, std::int64_t, false> : &run_load_if<E, std::int32_t, false>;
    }
    if (checked) return wide ? &run_load<E, std::int64_t, true> : &run_load<E, std::int32_t, true>;
    return wide ? &run_load<E, std::int64_t, false> : &run_load<E, std::int32_t, false>;
  });
}
Run store_loop(DType type, DType index, MemorySlot::Kind kind, bool checked) {
  return with_storage_type(type, [&](auto tag) -> Run {
    using E = decltype(tag);
    const bool wide = index == DType::i64;
    if (kind == MemorySlot::local) return wide ? &run_store_local<E, std::int64_t> : &run_store_local<E, std::int32_t>;
    if (checked) return wide ? &run_store<E, std::int64_t, true> : &run_store<E, std::int32_t, true>;
    return wide ? &run_store<E, std::int64_t, false> : &run_store<E, std::int32_t, false>;
  });
}
Run local_load_constant(DType type) {
  return with_storage_type(type, [](auto tag) -> Run { return &run_load_local_constant<decltype(tag)>; });
}
Run local_store_constant(DType type) {
  return with_storage_type(type, [](auto tag) -> Run { return &run_store_local_constant<decltype(tag)>; });
}
Run atomic_loop(AtomicOp op, DType type, DType index, bool checked) {
  const auto pick = [&]<AtomicOp kind, class T>() -> Run {
    const bool wide = index == DType::i64;
    if (checked) return wide ? &run_atomic<kind, T, std::int64_t, true> : &run_atomic<kind, T, std::int32_t, true>;
    return wide ? &run_atomic<kind, T, std::int64_t, false> : &run_atomic<kind, T, std::int32_t, false>;
  };
  const auto typed = [&]<class T>() -> Run {
    switch (op) {
      case AtomicOp::add: return pick.template operator()<AtomicOp::add, T>();
      case AtomicOp::min: return pick.template operator()<AtomicOp::min, T>();
      case AtomicOp::max: return pick.template operator()<AtomicOp::max, T>();
      case AtomicOp::exchange: return pick.template operator()<AtomicOp::exchange, T>();
      case AtomicOp::cas: return pick.template operator()<AtomicOp::cas, T>();
      default: break;
    }
    if constexpr (std::is_integral_v<T>) switch (op) {
        case AtomicOp::and_: return pick.template operator()<AtomicOp::and_, T>();
        case AtomicOp::or_: return pick.template operator()<AtomicOp::or_, T>();
        case AtomicOp::xor_: return pick.template operator()<AtomicOp::xor_, T>();
        default: break;
      }
    return nullptr;
  };
  switch (type) {
    case DType::i32: return typed.template operator()<std::int32_t>();
    case DType::u32: return typed.template operator()<std::uint32_t>();
    case DType::i64: return typed.template operator()<std::int64_t>();
    case DType::u64: return typed.template operator()<std::uint64_t>();
    case DType::f32: return typed.template operator()<float>();
    case DType::f64: return typed.template operator()<double>();
    default: return nullptr;
  }
}

}  // namespace tessera::ir::engine
