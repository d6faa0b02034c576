// SPDX-License-Identifier: Apache-2.0
// Masks, branches, loops and print.
#include <algorithm>
#include <cstdio>

#include <fmt/format.h>

#include "tessera/ir/interpreter/machine.h"
#include "tessera/ir/print.h"

namespace tessera::ir::engine {

Mask trimmed(std::uint8_t* lanes, std::uint32_t begin, std::uint32_t end) {
  std::uint32_t active = 0;
  for (std::uint32_t l = begin; l < end; ++l) active += lanes[l];
  if (active == 0) return {lanes, begin, begin, 0};
  while (!lanes[begin]) ++begin;
  while (!lanes[end - 1]) --end;
  return {lanes, begin, end, active};
}

Mask narrowed(const Mask& from, const bool* condition, bool wanted, std::uint8_t* lanes) {
  const std::uint8_t flip = wanted ? 0 : 1;
  for (std::uint32_t l = from.begin; l < from.end; ++l)
    lanes[l] = from.lanes[l] & static_cast<std::uint8_t>(static_cast<std::uint8_t>(condition[l]) ^ flip);
  const Mask out = trimmed(lanes, from.begin, from.end);
  return out.active == from.active ? from : out;
}

namespace {

void run_if(Machine& m, const Instruction& i) {
  const Mask before = m.mask;
  const bool* condition = m.lanes<bool>(i.in[0]);
  const Mask yes = narrowed(before, condition, true, m.lanes<std::uint8_t>(i.masks));
  const Mask no = i.nested[1] == no_block
                      ? Mask{}
                      : narrowed(before, condition, false, m.lanes<std::uint8_t>(i.masks) + m.program.stride);
  if (yes.active != 0) {
    m.mask = yes;
    m.execute(i.nested[0]);
  }
  if (no.active != 0) {
    m.mask = no;
    m.execute(i.nested[1]);
  }
  m.mask = before;
}

/// Runs a while_: nested[0] is the condition, nested[1] the body.
void run_while(Machine& m, const Instruction& i) {
  const Mask before = m.mask;
  const bool* condition = m.lanes<bool>(i.in[0]);
  std::uint8_t* live = m.lanes<std::uint8_t>(i.masks);
  const std::uint64_t limit = m.program.options.max_while_rounds;
  for (std::uint64_t round = 0;; ++round) {
    m.execute(i.nested[0]);
    m.mask = narrowed(m.mask, condition, true, live);
    if (m.mask.active == 0) break;
    if (limit != 0 && round >= limit) {
      m.found({.kind = Finding::Kind::endless_loop,
               .node = i.node,
               .lane = m.mask.begin,
               .wrong = m.thread_text(m.block, m.mask.begin) + " is still in while_ after " + std::to_string(limit) +
                        " iterations",
               .remedy = "Change the condition's operands in the loop, or allow more iterations"});
      break;
    }
    m.execute(i.nested[1]);
  }
  m.mask = before;
}

void require_index(Machine& m, const Instruction& i, std::uint32_t lane, std::int64_t value) {
  if (value == static_cast<std::int32_t>(value)) return;
  m.found({.kind = Finding::Kind::index_overflow,
           .node = i.node,
           .lane = lane,
           .wrong = "an index of " + m.thread_text(m.block, lane) + " is " + std::to_string(value) +
                    ", which does not fit into 32 bits",
           .remedy = wide_index_remedy});
}
void run_index_check(Machine& m, const Instruction& i) {
  const std::int64_t* index = m.lanes<std::int64_t>(i.in[0]);
  for_each_lane(m.mask, [&](std::uint32_t l) { require_index(m, i, l, index[l]); });
}

template <class T>
void bad_step(Machine& m, const Instruction& i, std::uint32_t lane, T step) {
  m.found({.kind = Finding::Kind::endless_loop,
           .node = i.node,
           .lane = lane,
           .wrong = "the step of a for_ is " + std::to_string(step) + " in " + m.thread_text(m.block, lane),
           .remedy = "Use a positive step; to count down, subtract the counter from the end in the body"});
}

/// Runs a for_: `in` is begin, end and step, `out` is the counter. Each thread evaluates these operands once.
template <class T>
void run_for(Machine& m, const Instruction& i) {
  using U = std::make_unsigned_t<T>;
  const T *begin = m.lanes<T>(i.in[0]), *end = m.lanes<T>(i.in[1]), *step = m.lanes<T>(i.in[2]);
  T* counter = m.lanes<T>(i.out);
  const Mask before = m.mask;
  const std::uint32_t first = before.begin;
  bool same = true;
  for_each_lane(before, [&](std::uint32_t l) {
    same = same && begin[l] == begin[first] && end[l] == end[first] && step[l] == step[first];
  });
  if (same) {
    const T last = end[first], by = step[first];
    if (begin[first] >= last) return;
    if (by <= 0) return bad_step(m, i, first, by);
    for (T c = begin[first];; c = static_cast<T>(c + by)) {
      std::fill(counter + before.begin, counter + before.end, c);
      m.execute(i.nested[0]);
      if (static_cast<U>(static_cast<U>(last) - static_cast<U>(c)) <= static_cast<U>(by)) return;
    }
  }
  std::uint8_t* live = m.lanes<std::uint8_t>(i.masks);
  std::fill(live + before.begin, live + before.end, std::uint8_t{0});
  for_each_lane(before, [&](std::uint32_t l) {
    counter[l] = begin[l];
    live[l] = begin[l] < end[l];
    if (live[l] && step[l] <= 0) bad_step(m, i, l, step[l]), live[l] = 0;
  });
  for (m.mask = trimmed(live, before.begin, before.end); m.mask.active != 0;
       m.mask = trimmed(live, m.mask.begin, m.mask.end)) {
    m.execute(i.nested[0]);
    for (std::uint32_t l = m.mask.begin; l < m.mask.end; ++l) {
      if (!live[l]) continue;
      if (static_cast<U>(static_cast<U>(end[l]) - static_cast<U>(counter[l])) <= static_cast<U>(step[l]))
        live[l] = 0;
      else
        counter[l] = static_cast<T>(counter[l] + step[l]);
    }
  }
  m.mask = before;
}

double as_double(double v) { return v; }
template <class T>
double as_double(T v) {
  return static_cast<float>(v);
}

std::string printed(const Machine& m, Type type, DType resolved, int digits, std::size_t offset, std::uint32_t lane) {
  return with_lane_type(resolved, [&](auto tag) {
    using T = decltype(tag);
    std::string out;
    for (std::uint32_t c = 0; c < type.lanes; ++c) {
      const T v = m.lanes<T>(offset)[c * m.program.stride + lane];
      if (c != 0) out += ", ";
      if constexpr (std::is_integral_v<T>)  // bool too
        out += std::to_string(v);
      else
        out += print_float(as_double(v), digits ? digits : std::is_same_v<T, double> ? double_digits : float_digits);
    }
    return type.lanes > 1 ? "(" + out + ")" : out;
  });
}

void run_print(Machine& m, const Instruction& i) {
  const Function& fn = m.program.fn;
  const Node& n = fn[i.node];
  const auto pieces = print_pieces(fn.strings[n.extra]);
  const auto values = operands(n);
  for_each_lane(m.mask, [&](std::uint32_t l) {
    std::string line;
    std::size_t used = 0;
    for (const PrintPiece& piece : pieces) {
      line += piece.text;
      if (!piece.value) continue;
      const Type type = fn[values[used]].type;
      const bool wide = fn.index64 || m.program.options.checks;
      const DType resolved = type.dtype != DType::index ? type.dtype : wide ? DType::i64 : DType::i32;
      line += printed(m, type, resolved, piece.digits, i.in[used], l);
      ++used;
    }
    if (m.program.options.print)
      m.program.options.print(line);
    else
      std::fputs((line + "\n").c_str(), stdout);  // does not throw if stdout is closed, unlike fmt::print
  });
}

}  // namespace

Run if_loop() { return &run_if; }
Run while_loop() { return &run_while; }
Run print_loop() { return &run_print; }
Run index_check_loop() { return &run_index_check; }
Run for_loop(DType type) {
  if (!is_int(type)) return nullptr;
  return with_compute_type(type, [](auto tag) -> Run {
    using T = decltype(tag);
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
      return &run_for<T>;
    else
      return nullptr;
  });
}

}  // namespace tessera::ir::engine
