// SPDX-License-Identifier: Apache-2.0
// Asynchronous copies. Without checks, the data is copied at once, which is one of the orders that devices may choose.
// With checks, it is copied by `wait`, and until then the checker reports every access to the destination.
#include <cstring>

#include "tessera/ir/interpreter/checker.h"

namespace tessera::ir::engine {

namespace {

/// Operands: index in shared memory, index in the buffer, and the number of the buffer's memory. imm is the number of
/// elements.
template <class I, bool checked>
void run_copy(Machine& m, const Instruction& i) {
  Instruction source = i;
  source.memory = static_cast<std::uint32_t>(i.in[2]);
  source.width = static_cast<std::uint32_t>(i.imm);
  const Memory &to = m.memories[i.memory], &from = m.memories[source.memory];
  const std::size_t size = dtype_size(to.slot->dtype);
  for_each_lane(m.mask, [&](std::uint32_t l) {
    const auto t = static_cast<std::int64_t>(m.lanes<I>(i.in[0])[l]);
    const auto f = static_cast<std::int64_t>(m.lanes<I>(i.in[1])[l]);
    if (!inside(t, i.imm, to.elements)) return m.out_of_bounds(i, l, t, source.width, "writes");
    if (!inside(f, i.imm, from.elements)) return m.out_of_bounds(source, l, f, source.width, "reads");
    const auto target = static_cast<std::uint64_t>(t), origin = static_cast<std::uint64_t>(f);
    m.check_alignment(source, l, f), m.check_alignment(i, l, t);
    if constexpr (checked) {
      m.checker->touch(source, l, origin, source.width, AccessKind::read);
      m.checker->copy_async(i, l, target, source.memory, origin);
    } else {
      std::memcpy(to.data + target * size, from.data + origin * size, i.imm * size);
    }
  });
}
void run_commit(Machine& m, const Instruction&) {
  for_each_lane(m.mask, [&](std::uint32_t l) { m.checker->commit(l); });
}
void run_wait(Machine& m, const Instruction& i) {
  for_each_lane(m.mask, [&](std::uint32_t l) { m.checker->wait(l, static_cast<std::uint32_t>(i.imm)); });
}
void run_nothing(Machine&, const Instruction&) {}

}  // namespace

Run async_loop(AsyncOp op, DType index, bool checked) {
  if (op != AsyncOp::copy) return !checked ? &run_nothing : op == AsyncOp::commit ? &run_commit : &run_wait;
  if (index == DType::i64) return checked ? &run_copy<std::int64_t, true> : &run_copy<std::int64_t, false>;
  return checked ? &run_copy<std::int32_t, true> : &run_copy<std::int32_t, false>;
}

}  // namespace tessera::ir::engine
