// SPDX-License-Identifier: Apache-2.0
// Operations over the threads of a subgroup or a block. Lanes are processed in order, so results are reproducible. If
// checks are on, the operations also verify that all threads take part.
#include <algorithm>
#include <cstring>

#include "tessera/base/printable.h"
#include "tessera/ir/interpreter/checker.h"

namespace tessera::ir::engine {

void require_all(Machine& m, const Instruction& i, std::uint32_t begin, std::uint32_t end, const char* group) {
  std::uint32_t active = 0, here = begin, missing = end;
  for (std::uint32_t l = begin; l < end; ++l) {
    const bool on = l >= m.mask.begin && l < m.mask.end && m.mask.lanes[l];
    active += on;
    if (on)
      here = l;
    else if (missing == end)
      missing = l;
  }
  if (active == 0 || active == end - begin) return;
  const Node& n = m.program.fn[i.node];
  const std::string op =
      n.op == Op::mma ? "matrix " + std::string(name_of(n.kind<MmaOp>())) : std::string(op_name(n.op));
  m.found({.kind = Finding::Kind::divergence,
           .node = i.node,
           .lane = here,
           .wrong = op + " is reached by " + count_noun(active, "thread") + " out of " + std::to_string(end - begin) +
                    " in its " + group + ": " + m.thread_text(m.block, here) + " reached it, " +
                    m.thread_text(m.block, missing) + " did not",
           .remedy = "Every thread must reach it: move it out of the if_ or loop, and make only the work conditional"});
}

namespace {

template <class T>
bool same_bits(T a, T b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

template <SubgroupOp op, class T, class L, bool checked>
void run_subgroup(Machine& m, const Instruction& i) {
  const T* a = m.lanes<T>(i.in[0]);
  const L* lane = m.lanes<L>(i.in[1]);
  T* out = m.lanes<T>(i.out);
  const std::uint32_t width = m.program.options.subgroup_width;
  const auto active = [&](std::uint32_t l) { return l >= m.mask.begin && l < m.mask.end && m.mask.lanes[l] != 0; };
  for (std::uint32_t begin = m.mask.begin / width * width; begin < m.mask.end; begin += width) {
    const std::uint32_t end = std::min(begin + width, m.threads);
    if (checked) require_all(m, i, begin, end, "subgroup");
    if constexpr (op == SubgroupOp::broadcast || (op >= SubgroupOp::shuffle && op <= SubgroupOp::shuffle_down)) {
      std::uint32_t first = end;
      for (std::uint32_t l = begin; l < end; ++l) {
        if (!active(l)) continue;
        if (first == end) first = l;
        const std::int64_t mine = l - begin, wanted = static_cast<std::int64_t>(lane[l]);
        if (checked && op == SubgroupOp::broadcast && lane[l] != lane[first])
          m.found({.kind = Finding::Kind::divergence,
                   .node = i.node,
                   .lane = l,
                   .wrong = "the lane of a subgroup broadcast differs between threads: " + std::to_string(lane[first]) +
                            " in " + m.thread_text(m.block, first) + ", " + std::to_string(lane[l]) + " in " +
                            m.thread_text(m.block, l),
                   .remedy = "Pass the same lane in every thread, or use shuffle"});
        std::int64_t from = wanted;
        if constexpr (op == SubgroupOp::shuffle_xor) from = mine ^ wanted;
        if constexpr (op == SubgroupOp::shuffle_up)
          from = static_cast<std::int64_t>(static_cast<std::uint64_t>(mine) - static_cast<std::uint64_t>(wanted));
        if constexpr (op == SubgroupOp::shuffle_down)
          from = static_cast<std::int64_t>(static_cast<std::uint64_t>(mine) + static_cast<std::uint64_t>(wanted));
        const bool there = from >= 0 && from < static_cast<std::int64_t>(end - begin) &&
                           active(begin + static_cast<std::uint32_t>(from));
        out[l] = there ? a[begin + static_cast<std::uint32_t>(from)] : a[l];
      }
    } else if constexpr (op == SubgroupOp::inclusive_sum || op == SubgroupOp::exclusive_sum) {
      T sum{};
      for (std::uint32_t l = begin; l < end; ++l) {
        if (!active(l)) continue;
        const T next = apply(BinaryOp::add, sum, a[l]);
        out[l] = op == SubgroupOp::inclusive_sum ? next : sum;
        sum = next;
      }
    } else {
      constexpr BinaryOp step = op == SubgroupOp::sum   ? BinaryOp::add
                                : op == SubgroupOp::min ? BinaryOp::min
                                : op == SubgroupOp::max ? BinaryOp::max
                                : op == SubgroupOp::any ? BinaryOp::or_
                                                        : BinaryOp::and_;
      T total{};
      bool started = false;
      for (std::uint32_t l = begin; l < end; ++l)
        if (active(l)) total = started ? apply(step, total, a[l]) : a[l], started = true;
      for (std::uint32_t l = begin; l < end; ++l)
        if (active(l)) out[l] = total;
    }
  }
}

template <ReduceOp op, class T, bool checked>
void run_block_reduce(Machine& m, const Instruction& i) {
  if (checked) require_all(m, i, 0, m.threads, "block");
  constexpr BinaryOp step = op == ReduceOp::sum    ? BinaryOp::add
                            : op == ReduceOp::min  ? BinaryOp::min
                            : op == ReduceOp::max  ? BinaryOp::max
                            : op == ReduceOp::and_ ? BinaryOp::and_
                                                   : BinaryOp::or_;
  const T* a = m.lanes<T>(i.in[0]);
  T total = a[m.mask.begin];
  const std::uint32_t first = m.mask.begin;
  for_each_lane(m.mask, [&](std::uint32_t l) {
    if (l != first) total = apply(step, total, a[l]);
  });
  T* out = m.lanes<T>(i.out);
  std::fill(out + m.mask.begin, out + m.mask.end, total);
}
template <class T, bool exclusive, bool checked>
void run_block_scan(Machine& m, const Instruction& i) {
  if (checked) require_all(m, i, 0, m.threads, "block");
  const T* a = m.lanes<T>(i.in[0]);
  T* out = m.lanes<T>(i.out);
  T sum{};
  for_each_lane(m.mask, [&](std::uint32_t l) {
    const T next = apply(BinaryOp::add, sum, a[l]);
    out[l] = exclusive ? sum : next;
    sum = next;
  });
}
template <class T, bool checked>
void run_block_uniform(Machine& m, const Instruction& i) {
  const T* a = m.lanes<T>(i.in[0]);
  const T value = a[m.mask.begin];
  if (checked) {
    require_all(m, i, 0, m.threads, "block");
    for_each_lane(m.mask, [&](std::uint32_t l) {
      if (!same_bits(a[l], value))
        m.found({.kind = Finding::Kind::divergence,
                 .node = i.node,
                 .lane = l,
                 .wrong = "the operand of block_uniform differs between threads: it is " + std::to_string(value) +
                          " in " + m.thread_text(m.block, m.mask.begin) + " but " + std::to_string(a[l]) + " in " +
                          m.thread_text(m.block, l),
                 .remedy = "Compute it from values that are the same in the whole block, or reduce it with block_max"});
    });
  }
  T* out = m.lanes<T>(i.out);
  std::fill(out + m.mask.begin, out + m.mask.end, value);
}

template <bool checked>
void run_barrier(Machine& m, const Instruction& i) {
  if constexpr (checked) {
    require_all(m, i, 0, m.threads, "block");
    m.checker->barrier();
  } else {
    (void)m, (void)i;
  }
}

}  // namespace

Run barrier_loop(bool checked) { return checked ? &run_barrier<true> : &run_barrier<false>; }

Run subgroup_loop(SubgroupOp op, DType type, DType lane, bool checked) {
  const auto picked = [&]<class T, SubgroupOp kind>() -> Run {
    const bool wide = lane == DType::i64;
    if (checked) return wide ? &run_subgroup<kind, T, std::int64_t, true> : &run_subgroup<kind, T, std::int32_t, true>;
    return wide ? &run_subgroup<kind, T, std::int64_t, false> : &run_subgroup<kind, T, std::int32_t, false>;
  };
  if (type == DType::f16 || type == DType::bf16) return nullptr;
  return with_compute_type(type, [&](auto tag) -> Run {
    using T = decltype(tag);
    switch (op) {
      case SubgroupOp::sum: return picked.template operator()<T, SubgroupOp::sum>();
      case SubgroupOp::min: return picked.template operator()<T, SubgroupOp::min>();
      case SubgroupOp::max: return picked.template operator()<T, SubgroupOp::max>();
      case SubgroupOp::any: return picked.template operator()<T, SubgroupOp::any>();
      case SubgroupOp::all: return picked.template operator()<T, SubgroupOp::all>();
      case SubgroupOp::broadcast: return picked.template operator()<T, SubgroupOp::broadcast>();
      case SubgroupOp::shuffle: return picked.template operator()<T, SubgroupOp::shuffle>();
      case SubgroupOp::shuffle_xor: return picked.template operator()<T, SubgroupOp::shuffle_xor>();
      case SubgroupOp::shuffle_up: return picked.template operator()<T, SubgroupOp::shuffle_up>();
      case SubgroupOp::shuffle_down: return picked.template operator()<T, SubgroupOp::shuffle_down>();
      case SubgroupOp::inclusive_sum: return picked.template operator()<T, SubgroupOp::inclusive_sum>();
      case SubgroupOp::exclusive_sum: return picked.template operator()<T, SubgroupOp::exclusive_sum>();
      default: return nullptr;
    }
  });
}

Run block_loop(Op op, ReduceOp reduce, DType type, bool exclusive, bool checked) {
  if (type == DType::f16 || type == DType::bf16) return nullptr;
  return with_compute_type(type, [&](auto tag) -> Run {
    using T = decltype(tag);
    const auto picked = [&]<ReduceOp kind>() -> Run {
      return checked ? &run_block_reduce<kind, T, true> : &run_block_reduce<kind, T, false>;
    };
    if (op == Op::block_uniform) return checked ? &run_block_uniform<T, true> : &run_block_uniform<T, false>;
    if (op == Op::block_scan) {
      if (reduce != ReduceOp::sum) return nullptr;
      if (exclusive) return checked ? &run_block_scan<T, true, true> : &run_block_scan<T, true, false>;
      return checked ? &run_block_scan<T, false, true> : &run_block_scan<T, false, false>;
    }
    switch (reduce) {
      case ReduceOp::sum: return picked.template operator()<ReduceOp::sum>();
      case ReduceOp::min: return picked.template operator()<ReduceOp::min>();
      case ReduceOp::max: return picked.template operator()<ReduceOp::max>();
      case ReduceOp::and_: return picked.template operator()<ReduceOp::and_>();
      case ReduceOp::or_: return picked.template operator()<ReduceOp::or_>();
      default: return nullptr;
    }
  });
}

}  // namespace tessera::ir::engine
