// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/row_kernels.h"

#include <limits>

namespace tessera::ops {

// One block per row. The exponentials are stored in the memory of the scores. No barrier is needed, because each thread
// reads only what it has written.
ir::Function trace_scores(const ScoresSpec& spec) {
  ir::Builder builder(spec.causal ? "causal_scores" : "scores", ir::KernelKind::block, {spec.threads, 1, 1});
  ir::Builder::Scope scope(builder);
  const DType t = spec.scores;
  const auto scores = ir::buffer_param("scores", t, ir::Access::read_write);
  const auto sums = ir::buffer_param("sums", t, ir::Access::read_write);
  const ir::Value keys = ir::scalar_param("keys", DType::index), rows = ir::scalar_param("rows", DType::index);
  const ir::Value first = ir::scalar_param("first", DType::index);
  const ir::Value row = ir::block_id(0), base = row * keys;
  const ir::Value seen = spec.causal ? ir::min(keys, first + row % rows + 1) : keys;
  const ir::Value infinity = ir::literal(t, std::numeric_limits<double>::infinity()), zero = ir::literal(t, 0);
  const ir::Variable largest(t, -infinity), sum(t, 0);
  for_lanes(seen, spec.threads, ir::thread_id(), [&](ir::Value i, ir::Value exists) {
    const ir::Value v = load_at(scores, base + i, exists);
    largest.set(ir::max(largest.get(), exists.valid() ? ir::select(exists, v, -infinity) : v));
  });
  const ir::Value top = ir::block_max(largest.get()), shift = ir::select(top == -infinity, zero, top);
  const auto written = [&](ir::Value i, ir::Value exists, ir::Value v) {
    if (exists.valid())
      ir::if_(exists, [&] { scores.store(base + i, v); });
    else
      scores.store(base + i, v);
  };
  for_lanes(seen, spec.threads, ir::thread_id(), [&](ir::Value i, ir::Value exists) {
    const ir::Value e = ir::exp(load_at(scores, base + i, exists) - shift);
    sum.set(sum.get() + (exists.valid() ? ir::select(exists, e, zero) : e));
    written(i, exists, e);
  });
  const ir::Value total = ir::block_sum(sum.get());
  const ir::Value scale = ir::select(total == 0, zero, 1 / total);  // NaN propagates
  for_lanes(seen, spec.threads, ir::thread_id(),
            [&](ir::Value i, ir::Value exists) { written(i, exists, load_at(scores, base + i, exists) * scale); });
  if (spec.causal)
    for_lanes(keys - seen, spec.threads, ir::thread_id(),
              [&](ir::Value i, ir::Value exists) { written(seen + i, exists, zero); });
  ir::if_(ir::thread_id() == 0, [&] { sums.store(row, ir::select(total == 0, infinity, shift + ir::log(total))); });
  return builder.finish();
}

}  // namespace tessera::ops
