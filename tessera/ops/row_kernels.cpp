// SPDX-License-Identifier: Apache-2.0
// Kernels that reduce rows: norms and softmax.
#include <limits>

#include "tessera/ops/row_loop.h"

namespace tessera::ops {

ir::Function trace_rms_norm(const RowSpec& spec) {
  ir::Builder builder("rms_norm", ir::KernelKind::block, {spec.threads, 1, 1});
  ir::Builder::Scope scope(builder);
  const auto x = ir::buffer_param("x", spec.x, ir::Access::read),
             weight = ir::buffer_param("weight", spec.weight, ir::Access::read);
  const auto out = ir::buffer_param("out", spec.x, ir::Access::read_write);
  const RowLoop loop(spec, ir::scalar_param("columns", DType::index));
  const DType t = loop.dtype();
  const ir::Value epsilon = ir::scalar_param("epsilon", t);
  const RowValues values(loop, x);
  const ir::Variable part(t, 0);
  std::vector<ir::Value> held;  // weights, requested before the sum is known
  loop.for_each([&](const RowChunk& chunk) {
    if (loop.held()) held = load_columns(weight, chunk);
    ir::Value squares = part.get();
    for (const ir::Value v : values(chunk)) squares = ir::fma(v, v, squares);
    part.set(squares);
  });
  const ir::Value scale = 1 / ir::sqrt(loop.sum(part.get()) / ir::cast(t, loop.columns()) + epsilon);
  loop.for_each([&](const RowChunk& chunk) {
    std::vector<ir::Value> results = values(chunk);
    const std::vector<ir::Value> weights = loop.held() ? held : load_columns(weight, chunk);
    for (std::size_t i = 0; i < chunk.size(); ++i) results[i] = results[i] * scale * ir::cast(t, weights[i]);
    loop.store(out, chunk, results);
  });
  return builder.finish();
}

// Softmax along the axis of a contiguous array (outer, axis, inner). If the specification has threads, a block computes
// one contiguous row, and inner is 1. Otherwise each thread computes one row, and adjacent threads compute adjacent
// rows.
ir::Function trace_softmax(const RowSpec& spec) {
  const bool block = spec.threads != 0;
  ir::Builder builder(block ? "softmax" : "softmax_strided", block ? ir::KernelKind::block : ir::KernelKind::map,
                      {block ? spec.threads : 1, 1, 1});
  ir::Builder::Scope scope(builder);
  const auto x = ir::buffer_param("x", spec.x, ir::Access::read);
  const auto out = ir::buffer_param("out", spec.x, ir::Access::read_write);
  const RowLoop loop(spec, ir::scalar_param("count", DType::index));
  const RowValues values(loop, x, -std::numeric_limits<double>::infinity());
  const RowExponentials exponentials = sum_exponentials(loop, values);
  const ir::Value zero = ir::literal(loop.dtype(), 0);
  const ir::Value scale = ir::select(exponentials.sum == 0, zero, 1 / exponentials.sum);  // NaN propagates
  loop.for_each([&](const RowChunk& chunk) {
    std::vector<ir::Value> results = exponentials.of(values, chunk);
    for (ir::Value& r : results) r = r * scale;
    loop.store(out, chunk, results);
  });
  return builder.finish();
}

}  // namespace tessera::ops
