// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <string>

#include "tessera/ops/experts.h"
#include "tessera/ops/kernels.h"

namespace tessera::ops {

// One thread for each token. It finds the experts one after the other, each in one pass over the logits.
ir::Function trace_choose_experts(const ChooseExpertsSpec& spec) {
  const bool of_all = spec.weights == ExpertWeights::softmax_of_all, sigmoid = spec.weights == ExpertWeights::sigmoid;
  ir::Builder builder(std::string("choose_experts") +
                          (of_all    ? "_unnormalised"
                           : sigmoid ? "_sigmoid"
                                     : "") +
                          (spec.biased ? "_bias" : ""),
                      ir::KernelKind::map);
  ir::Builder::Scope scope(builder);
  const auto logits = ir::buffer_param("logits", DType::f32, ir::Access::read);
  const auto ids = ir::buffer_param("ids", DType::i32, ir::Access::read_write);
  const auto weights = ir::buffer_param("weights", DType::f32, ir::Access::read_write);
  const auto bias = spec.biased ? ir::buffer_param("bias", DType::f32, ir::Access::read) : ir::BufferRef();
  const ir::Value experts = ir::scalar_param("experts", DType::index), used = ir::scalar_param("used", DType::index);
  const ir::Value token = ir::global_id(0), none = ir::literal(DType::i32, -1);
  constexpr float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const auto value = [&](ir::Value e) {
    const ir::Value v = logits.load(token * experts + e);
    return sigmoid ? 1 / (1 + ir::exp(-v)) : v;
  };
  const auto score = [&](ir::Value e) { return spec.biased ? value(e) + bias.load(e) : value(e); };
  // The score and the id of the expert that was found last.
  const ir::Variable last(DType::f32, ir::literal(DType::f32, infinity)), last_id(DType::i32, none);
  const ir::Variable total(DType::f32, sigmoid ? 1e-6f : 0.0f), largest(DType::f32, 0.0f);
  ir::for_(0, used, [&](ir::Value i) {
    const ir::Variable best(DType::f32, ir::literal(DType::f32, nan)), id(DType::i32, none);
    ir::for_(0, experts, [&](ir::Value e) {
      const ir::Value v = score(e), number = ir::cast(DType::i32, e);
      const ir::Value follows = (v < last.get()) | ((v == last.get()) & (number > last_id.get()));
      const ir::Value better = follows & ((id.get() < 0) | (v > best.get()));
      best.set(ir::select(better, v, best.get())), id.set(ir::select(better, number, id.get()));
    });
    last.set(best.get()), last_id.set(id.get());
    const ir::Value chosen = ir::select(id.get() < 0, ir::cast(DType::i32, i), id.get());
    largest.set(ir::select(i == 0, best.get(), largest.get()));
    const ir::Value weight = sigmoid ? value(ir::cast(DType::index, chosen)) : ir::exp(best.get() - largest.get());
    if (!of_all) total.set(total.get() + weight);
    ids.store(token * used + i, chosen);
    weights.store(token * used + i, weight);
  });
  if (of_all)
    ir::for_(0, experts,
             [&](ir::Value e) { total.set(total.get() + ir::exp(logits.load(token * experts + e) - largest.get())); });
  ir::for_(0, used, [&](ir::Value i) {
    const ir::Value at = token * used + i;
    weights.store(at, weights.load(at) / total.get());
  });
  return builder.finish();
}

// The launch dimensions are columns and tokens.
ir::Function trace_combine_experts(const CombineExpertsSpec& spec) {
  ir::Builder builder("combine_experts", ir::KernelKind::map);
  ir::Builder::Scope scope(builder);
  const auto rows = ir::buffer_param("rows", DType::f32, ir::Access::read);
  const auto weights = ir::buffer_param("weights", DType::f32, ir::Access::read);
  const auto out = ir::buffer_param("out", DType::f32, ir::Access::read_write);
  const auto places = spec.placed ? ir::buffer_param("places", DType::i32, ir::Access::read) : ir::BufferRef();
  const ir::Value used = ir::scalar_param("used", DType::index);
  const ir::Value column = ir::global_id(0), token = ir::global_id(1), columns = ir::extent(0);
  const ir::Variable sum(DType::f32, 0.0f);
  ir::for_(0, used, [&](ir::Value i) {
    const ir::Value pair = token * used + i, row = spec.placed ? ir::cast(DType::index, places.load(pair)) : pair;
    sum.set(ir::fma(weights.load(pair), rows.load(row * columns + column), sum.get()));
  });
  out.store(token * columns + column, sum.get());
  return builder.finish();
}

}  // namespace tessera::ops
