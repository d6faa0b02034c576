// SPDX-License-Identifier: Apache-2.0
// Conversions between all pairs of dtypes. 16-bit floats are converted through float.
#include "tessera/ir/interpreter/machine.h"

namespace tessera::ir::engine {

namespace {

template <class T>
constexpr bool is_small_float = std::is_same_v<T, half> || std::is_same_v<T, bfloat16>;

template <class To, class From>
To converted(From a) {
  if constexpr (is_small_float<From>)
    return converted<To>(static_cast<float>(a));
  else if constexpr (is_small_float<To>)
    return To(convert<float>(a));
  else
    return convert<To>(a);
}

template <class To, class From>
void run_cast(Machine& m, const Instruction& i) {
  const From* a = m.lanes<From>(i.in[0]);
  To* __restrict out = m.lanes<To>(i.out);
  for (std::uint32_t l = m.mask.begin, end = m.mask.end; l < end; ++l) out[l] = converted<To>(a[l]);
}

}  // namespace

Run cast_loop(DType to, DType from) {
  return with_lane_type(to, [&](auto t) -> Run {
    return with_lane_type(from, [&](auto f) -> Run { return &run_cast<decltype(t), decltype(f)>; });
  });
}

}  // namespace tessera::ir::engine
