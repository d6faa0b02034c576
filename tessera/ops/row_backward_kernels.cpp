// SPDX-License-Identifier: Apache-2.0
// Backward kernels of row operations. They use one block per row. Rows that are not held are read twice.
#include "tessera/ops/row_kernels.h"
#include "tessera/ops/row_loop.h"

namespace tessera::ops {

ir::Function trace_softmax_backward(const RowSpec& spec) {
  ir::Builder builder("softmax_backward", ir::KernelKind::block, {spec.threads, 1, 1});
  ir::Builder::Scope scope(builder);
  const auto y = ir::buffer_param("y", spec.x, ir::Access::read), g = ir::buffer_param("g", spec.x, ir::Access::read);
  const auto out = ir::buffer_param("out", spec.x, ir::Access::read_write);
  const RowLoop loop(spec, ir::scalar_param("columns", DType::index));
  const RowValues results(loop, y), adjoints(loop, g);
  const ir::Variable sum(loop.dtype(), 0);
  loop.for_each([&](const RowChunk& chunk) {
    const std::vector<ir::Value> ys = results(chunk), gs = adjoints(chunk);
    ir::Value total = sum.get();
    for (std::size_t i = 0; i < chunk.size(); ++i) total = total + ys[i] * gs[i];
    sum.set(total);
  });
  const ir::Value along = loop.sum(sum.get());
  loop.for_each([&](const RowChunk& chunk) {
    std::vector<ir::Value> ys = results(chunk);
    const std::vector<ir::Value> gs = adjoints(chunk);
    for (std::size_t i = 0; i < chunk.size(); ++i) ys[i] = ys[i] * (gs[i] - along);
    loop.store(out, chunk, ys);
  });
  return builder.finish();
}

ir::Function trace_rms_norm_backward(const RowSpec& spec) {
  ir::Builder builder("rms_norm_backward", ir::KernelKind::block, {spec.threads, 1, 1});
  ir::Builder::Scope scope(builder);
  const auto x = ir::buffer_param("x", spec.x, ir::Access::read), g = ir::buffer_param("g", spec.x, ir::Access::read);
  const auto weight = ir::buffer_param("weight", spec.weight, ir::Access::read);
  const auto out = ir::buffer_param("out", spec.x, ir::Access::read_write);
  const RowLoop loop(spec, ir::scalar_param("columns", DType::index));
  const DType t = loop.dtype();
  const ir::Value epsilon = ir::scalar_param("epsilon", t);
  const RowValues values(loop, x), adjoints(loop, g);
  const auto weighed = [&](const RowChunk& chunk) {
    std::vector<ir::Value> gs = adjoints(chunk);
    const std::vector<ir::Value> weights = load_columns(weight, chunk);
    for (std::size_t i = 0; i < chunk.size(); ++i) gs[i] = gs[i] * ir::cast(t, weights[i]);
    return gs;
  };
  std::vector<ir::Value> held;
  const ir::Variable squares(t, 0), products(t, 0);
  loop.for_each([&](const RowChunk& chunk) {
    const std::vector<ir::Value> xs = values(chunk), gs = weighed(chunk);
    ir::Value square = squares.get(), product = products.get();
    for (std::size_t i = 0; i < chunk.size(); ++i) square = square + xs[i] * xs[i], product = product + gs[i] * xs[i];
    squares.set(square), products.set(product);
    if (loop.held()) held = gs;
  });
  const ir::Value count = ir::cast(t, loop.columns()), scale = 1 / ir::sqrt(loop.sum(squares.get()) / count + epsilon);
  const ir::Value along = scale * scale * loop.sum(products.get()) / count;
  loop.for_each([&](const RowChunk& chunk) {
    std::vector<ir::Value> gs = loop.held() ? held : weighed(chunk);
    const std::vector<ir::Value> xs = values(chunk);
    for (std::size_t i = 0; i < chunk.size(); ++i) gs[i] = scale * (gs[i] - xs[i] * along);
    loop.store(out, chunk, gs);
  });
  return builder.finish();
}

}  // namespace tessera::ops
