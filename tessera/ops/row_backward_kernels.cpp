// SPDX-License-Identifier: Apache-2.0
// Backward kernels of row operations. They use one block per row, read each row twice and write it once.
#include "tessera/ops/row_kernels.h"

namespace tessera::ops {

namespace {

/// Returns the sum of `element` over the row of the block.
template <class F>
ir::Value row_sum(ir::Value columns, const RowSpec& spec, DType t, F&& element) {
  const ir::Variable sum(t, 0);
  for_lanes(columns, spec.threads, ir::thread_id(), [&](ir::Value i, ir::Value exists) {
    sum.set(sum.get() + element(i, exists));  // element() is 0 past the end
  });
  return ir::block_sum(sum.get());
}
template <class F>
void write_row(const ir::BufferRef& out, ir::Value row, ir::Value columns, const RowSpec& spec, F&& element) {
  for_lanes(columns, spec.threads, ir::thread_id(), [&](ir::Value i, ir::Value exists) {
    const auto write = [&] { out.store(row + i, ir::cast(out.dtype(), element(i))); };
    if (exists.valid())
      ir::if_(exists, write);
    else
      write();
  });
}

}  // namespace

ir::Function trace_softmax_backward(const RowSpec& spec) {
  ir::Builder builder("softmax_backward", ir::KernelKind::block, {spec.threads, 1, 1});
  ir::Builder::Scope scope(builder);
  const auto y = ir::buffer_param("y", spec.x, ir::Access::read), g = ir::buffer_param("g", spec.x, ir::Access::read);
  const auto out = ir::buffer_param("out", spec.x, ir::Access::read_write);
  const ir::Value columns = ir::scalar_param("columns", DType::index), row = ir::block_id(0) * columns;
  const DType t = spec.x == DType::f64 ? DType::f64 : DType::f32;
  const ir::Value along = row_sum(columns, spec, t, [&](ir::Value i, ir::Value exists) {
    return load_at(y, row + i, exists) * load_at(g, row + i, exists);
  });
  write_row(out, row, columns, spec,
            [&](ir::Value i) { return load_at(y, row + i, {}) * (load_at(g, row + i, {}) - along); });
  return builder.finish();
}

ir::Function trace_rms_norm_backward(const RowSpec& spec) {
  ir::Builder builder("rms_norm_backward", ir::KernelKind::block, {spec.threads, 1, 1});
  ir::Builder::Scope scope(builder);
  const auto x = ir::buffer_param("x", spec.x, ir::Access::read), g = ir::buffer_param("g", spec.x, ir::Access::read);
  const auto weight = ir::buffer_param("weight", spec.weight, ir::Access::read);
  const auto out = ir::buffer_param("out", spec.x, ir::Access::read_write);
  const ir::Value columns = ir::scalar_param("columns", DType::index), row = ir::block_id(0) * columns;
  const DType t = spec.x == DType::f64 ? DType::f64 : DType::f32;
  const ir::Value epsilon = ir::scalar_param("epsilon", t);
  const auto weighed = [&](ir::Value i, ir::Value exists) {
    return load_at(g, row + i, exists) * ir::cast(t, load_at(weight, i, exists));
  };
  const ir::Value squares = row_sum(columns, spec, t, [&](ir::Value i, ir::Value exists) {
    const ir::Value v = load_at(x, row + i, exists);
    return v * v;
  });
  const ir::Value products = row_sum(columns, spec, t, [&](ir::Value i, ir::Value exists) {
    return weighed(i, exists) * load_at(x, row + i, exists);
  });
  const ir::Value count = ir::cast(t, columns), scale = 1 / ir::sqrt(squares / count + epsilon);
  const ir::Value along = scale * scale * products / count;
  write_row(out, row, columns, spec,
            [&](ir::Value i) { return scale * (weighed(i, {}) - load_at(x, row + i, {}) * along); });
  return builder.finish();
}

}  // namespace tessera::ops
