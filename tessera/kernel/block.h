// SPDX-License-Identifier: Apache-2.0
// Operations of a whole block or subgroup. All threads of the block (or subgroup) must execute them together. They may
// be inside control flow only if its condition is the same in all of these threads.
#pragma once

#include "tessera/kernel/operators.h"

namespace tessera {

namespace detail {

template <class T, bool logical>
constexpr void check_convergent() {
  static_assert(std::same_as<T, bool> == logical || logical, "this operation takes numbers: use cast<T>(...)");
  static_assert(std::same_as<T, bool> == logical || !logical,
                "this operation takes bools: compare first, as in x != 0");
}

template <class A, bool logical>
auto reduce_block(ir::ReduceOp op, const std::remove_reference_t<A>& a, const char* file, int line) {
  using T = Computed<type_of<std::remove_cvref_t<A>>>;
  named<A>();
  check_convergent<T, logical>();
  note(file, line);
  return Val<T>(NodeRef{block_reduce(op, a.node())});
}
template <class A>
auto scan_block(const std::remove_reference_t<A>& a, bool exclusive, const char* file, int line) {
  using T = Computed<type_of<std::remove_cvref_t<A>>>;
  named<A>();
  check_convergent<T, false>();
  note(file, line);
  return Val<T>(NodeRef{block_scan(ir::ReduceOp::sum, a.node(), exclusive)});
}
template <class A, bool logical>
auto subgroup_operation(ir::SubgroupOp op, const std::remove_reference_t<A>& a, const char* file, int line) {
  using T = Computed<type_of<std::remove_cvref_t<A>>>;
  named<A>();
  check_convergent<T, logical>();
  note(file, line);
  return Val<T>(NodeRef{subgroup(op, a.node())});
}
template <class A>
auto subgroup_move(ir::SubgroupOp op, const std::remove_reference_t<A>& a, const Arg<Index>& lane) {
  using T = Computed<type_of<std::remove_cvref_t<A>>>;
  named<A>();
  if constexpr (std::same_as<T, bool>) {  // bools are moved as i32
    const ir::NodeId moved = subgroup(op, cast(DType::i32, a.node()), lane.node());
    return Val<T>(NodeRef{compare(ir::CompareOp::ne, moved, constant(DType::i32, std::int64_t{0}))});
  } else {
    return Val<T>(NodeRef{subgroup(op, a.node(), lane.node())});
  }
}

template <class A>
concept TracedArgument = Traced<std::remove_cvref_t<A>>;

}  // namespace detail

#define TESSERA_BLOCK(name, op, logical)                                               \
  template <detail::TracedArgument A>                                                  \
  auto name(A&& a, const char* file = __builtin_FILE(), int line = __builtin_LINE()) { \
    return detail::reduce_block<A, logical>(ir::ReduceOp::op, a, file, line);          \
  }
/// Returns the sum of `a` over the threads of the block. Every thread gets the result.
TESSERA_BLOCK(block_sum, sum, false)
/// Returns the smallest `a` of the block. Every thread gets the result.
TESSERA_BLOCK(block_min, min, false)
/// Returns the largest `a` of the block. Every thread gets the result.
TESSERA_BLOCK(block_max, max, false)
/// Returns true if `a` is true in any thread of the block.
TESSERA_BLOCK(block_any, or_, true)
/// Returns true if `a` is true in all threads of the block.
TESSERA_BLOCK(block_all, and_, true)
#undef TESSERA_BLOCK

/// Returns the sum of `a` over this thread and all threads with a lower linear thread id in the block.
template <detail::TracedArgument A>
auto block_scan(A&& a, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return detail::scan_block<A>(a, false, file, line);
}
/// Returns the sum of `a` over all threads with a lower linear thread id in the block.
template <detail::TracedArgument A>
auto block_scan_exclusive(A&& a, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return detail::scan_block<A>(a, true, file, line);
}
/// Asserts that `a` is the same in every thread of the block, so that control flow around a barrier may depend on it.
/// The interpreter checks the assertion.
template <detail::TracedArgument A>
auto block_uniform(A&& a, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  using T = detail::Computed<detail::type_of<std::remove_cvref_t<A>>>;
  detail::named<A>();
  detail::note(file, line);
  return Val<T>(detail::NodeRef{detail::block_uniform(a.node())});
}

#define TESSERA_SUBGROUP(name, op, logical)                                            \
  template <detail::TracedArgument A>                                                  \
  auto name(A&& a, const char* file = __builtin_FILE(), int line = __builtin_LINE()) { \
    return detail::subgroup_operation<A, logical>(ir::SubgroupOp::op, a, file, line);  \
  }
/// Returns the sum of `a` over the subgroup. Every lane gets the result.
TESSERA_SUBGROUP(subgroup_sum, sum, false)
/// Returns the smallest `a` of the subgroup. Every lane gets the result.
TESSERA_SUBGROUP(subgroup_min, min, false)
/// Returns the largest `a` of the subgroup. Every lane gets the result.
TESSERA_SUBGROUP(subgroup_max, max, false)
/// Returns true if `a` is true in any lane of the subgroup.
TESSERA_SUBGROUP(subgroup_any, any, true)
/// Returns true if `a` is true in all lanes of the subgroup.
TESSERA_SUBGROUP(subgroup_all, all, true)
/// Returns the sum of `a` over this lane and all lower lanes.
TESSERA_SUBGROUP(subgroup_scan, inclusive_sum, false)
/// Returns the sum of `a` over all lower lanes.
TESSERA_SUBGROUP(subgroup_scan_exclusive, exclusive_sum, false)
#undef TESSERA_SUBGROUP

#define TESSERA_SUBGROUP(name, op)                                \
  template <detail::TracedArgument A>                             \
  auto name(A&& a, detail::Arg<Index> lane) {                     \
    return detail::subgroup_move<A>(ir::SubgroupOp::op, a, lane); \
  }
/// Returns `a` of lane `lane`, which must be the same number in all lanes.
TESSERA_SUBGROUP(subgroup_broadcast, broadcast)
/// Returns `a` of lane `lane`.
TESSERA_SUBGROUP(subgroup_shuffle, shuffle)
/// Returns `a` of lane `lane_id() ^ lane`.
TESSERA_SUBGROUP(subgroup_shuffle_xor, shuffle_xor)
/// Returns `a` of lane `lane_id() - lane`.
TESSERA_SUBGROUP(subgroup_shuffle_up, shuffle_up)
/// Returns `a` of lane `lane_id() + lane`.
TESSERA_SUBGROUP(subgroup_shuffle_down, shuffle_down)
#undef TESSERA_SUBGROUP

}  // namespace tessera
