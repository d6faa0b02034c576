// SPDX-License-Identifier: Apache-2.0
// Kernels that reduce rows: norms and softmax.
#include <functional>
#include <limits>

#include "tessera/ops/kernels.h"

namespace tessera::ops {

namespace {

DType compute_dtype(DType t) { return t == DType::f64 ? DType::f64 : DType::f32; }

}  // namespace

ir::Function trace_rms_norm(const RowSpec& spec) {
  ir::Builder builder("rms_norm", ir::KernelKind::block, {spec.threads, 1, 1});
  ir::Builder::Scope scope(builder);
  const auto x = ir::buffer_param("x", spec.x, ir::Access::read),
             weight = ir::buffer_param("weight", spec.weight, ir::Access::read);
  const auto out = ir::buffer_param("out", spec.x, ir::Access::read_write);
  const ir::Value columns = ir::scalar_param("columns", DType::index);
  const DType t = compute_dtype(spec.x);
  const ir::Value epsilon = ir::scalar_param("epsilon", t);
  const ir::Value lane = ir::thread_id(), row = ir::block_id(0) * columns;
  const ir::Variable part(t, 0);
  for_lanes(columns, spec.threads, lane, [&](ir::Value i, ir::Value exists) {
    const ir::Value v = load_at(x, row + i, exists);
    part.set(ir::fma(v, v, part.get()));
  });
  const ir::Value scale = 1 / ir::sqrt(ir::block_sum(part.get()) / ir::cast(t, columns) + epsilon);
  for_lanes(columns, spec.threads, lane, [&](ir::Value i, ir::Value exists) {
    auto write = [&] {
      out.store(row + i, ir::cast(spec.x, load_at(x, row + i, {}) * scale * ir::cast(t, load_at(weight, i, {}))));
    };
    if (exists.valid())
      ir::if_(exists, write);
    else
      write();
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
  const ir::Value count = ir::scalar_param("count", DType::index);
  const DType t = compute_dtype(spec.x);
  const double infinity = std::numeric_limits<double>::infinity();
  const ir::Variable largest(t, ir::literal(t, -infinity)), sum(t, 0);
  ir::Value base, stride;
  if (block) {
    base = ir::block_id(0) * count;
  } else {
    stride = ir::extent(0);
    base = ir::global_id(1) * (count * stride) + ir::global_id(0);
  }
  auto each = [&](const std::function<void(ir::Value, ir::Value)>& body) {
    if (block)
      for_lanes(count, spec.threads, ir::thread_id(), [&](ir::Value i, ir::Value exists) { body(base + i, exists); });
    else
      ir::for_(0, count, [&](ir::Value i) { body(base + i * stride, {}); });
  };
  each([&](ir::Value i, ir::Value exists) {
    const ir::Value v = load_at(x, i, exists);
    largest.set(ir::max(largest.get(), exists.valid() ? ir::select(exists, v, ir::literal(t, -infinity)) : v));
  });
  const ir::Value top = block ? ir::block_max(largest.get()) : largest.get();
  const ir::Value shift = ir::select(top == ir::literal(t, -infinity), ir::literal(t, 0), top);
  each([&](ir::Value i, ir::Value exists) {
    const ir::Value e = ir::exp(load_at(x, i, exists) - shift);
    sum.set(sum.get() + (exists.valid() ? ir::select(exists, e, ir::literal(t, 0)) : e));
  });
  const ir::Value total = block ? ir::block_sum(sum.get()) : sum.get();
  const ir::Value scale = ir::select(total == 0, ir::literal(t, 0), 1 / total);  // NaN propagates
  each([&](ir::Value i, ir::Value exists) {
    auto write = [&] { out.store(i, ir::cast(spec.x, ir::exp(load_at(x, i, {}) - shift) * scale)); };
    if (exists.valid())
      ir::if_(exists, write);
    else
      write();
  });
  return builder.finish();
}

}  // namespace tessera::ops
