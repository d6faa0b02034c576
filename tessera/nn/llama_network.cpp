// SPDX-License-Identifier: Apache-2.0
#include "tessera/nn/llama_network.h"

#include <cmath>

#include "tessera/nn/initialise.h"
#include "tessera/ops/attention.h"
#include "tessera/ops/product.h"
#include "tessera/ops/transformer.h"

namespace tessera {

void LlamaShape::check() const {
  const auto refuse = [&](std::string wrong) {
    fail<ShapeError>({.operation = "LlamaNetwork",
                      .with = {{"vocabulary", std::to_string(vocabulary)},
                               {"layers", std::to_string(layers)},
                               {"width", std::to_string(width)},
                               {"heads", std::to_string(heads)},
                               {"key_heads", std::to_string(key_heads)},
                               {"hidden", std::to_string(hidden)}},
                      .wrong = std::move(wrong)});
  };
  if (vocabulary < 1 || layers < 1 || width < 1 || heads < 1 || key_heads < 1 || hidden < 1)
    refuse("each of these sizes must be at least 1");
  if (width % heads != 0) refuse("heads must divide the width");
  if (head_size() % 2 != 0) refuse("the head size must be even, since rotary positions rotate pairs of elements");
  if (heads % key_heads != 0) refuse("key_heads must divide heads");
}

void LlamaBlock::set_up(const LayerSetup& at) {
  shape.check();
  const std::int64_t size = shape.head_size();
  const double deep = 0.02 / std::sqrt(2 * static_cast<double>(shape.layers));
  const auto dense = [&](Dense& layer, const char* name, std::int64_t inputs, std::int64_t outputs, double deviation) {
    layer.inputs = inputs, layer.outputs = outputs, layer.with_bias = false;
    at.part(layer, name, {inputs});
    layer.weight.declare({outputs, inputs}, init::normal(0, deviation));  // differs from the default of Dense
  };
  const auto norm = [&](RmsNorm& layer, const char* name) {
    layer.size = shape.width, layer.epsilon = shape.norm_epsilon;
    at.part(layer, name, {shape.width});
  };
  const double plain = 1 / std::sqrt(static_cast<double>(shape.width));
  norm(attention_norm, "attention_norm"), norm(inner_norm, "inner_norm");
  dense(qkv, "qkv", shape.width, (shape.heads + 2 * shape.key_heads) * size, plain);
  dense(out, "out", shape.heads * size, shape.width, deep);
  dense(gate_up, "gate_up", shape.width, 2 * shape.hidden, plain);
  dense(down, "down", shape.hidden, shape.width, deep);
  after_attention.p = after_inner.p = shape.dropout;
}

Array LlamaBlock::operator()(const Array& input) const {
  const std::int64_t batch = input.shape(0), tokens = input.shape(1), size = shape.head_size();
  const std::int64_t heads = shape.heads, keys = shape.key_heads, hidden = shape.hidden;
  const Rotary turn{.base = static_cast<float>(shape.rotary_base)};
  const Array all = qkv(attention_norm(input)).reshape({batch, tokens, heads + 2 * keys, size}).permute({0, 2, 1, 3});
  const Array q = rotary(all.slice(1, 0, heads), 0, turn), k = rotary(all.slice(1, heads, heads + keys), 0, turn);
  const Array v = all.slice(1, heads + keys, heads + 2 * keys);
  const Array mixed = scaled_dot_product_attention(q, k, v, {.causal = true});
  const Array x = input + after_attention(out(mixed.permute({0, 2, 1, 3}).reshape({batch, tokens, heads * size})));
  const Array both = gate_up(inner_norm(x));
  return x + after_inner(down(silu_gate(both.slice(2, 0, hidden), both.slice(2, hidden, 2 * hidden))));
}

void LlamaNetwork::set_up(const LayerSetup& at) {
  shape.check();
  embedding.count = shape.vocabulary, embedding.size = shape.width;
  at.part(embedding, "embedding", {});
  embedding.weight.declare({shape.vocabulary, shape.width}, init::normal(0, 0.02));
  dropout.p = shape.dropout;
  blocks.resize(static_cast<std::size_t>(shape.layers));
  for (LlamaBlock& block : blocks) block.shape = shape;
  at.part(blocks, "blocks", {});
  norm.size = shape.width, norm.epsilon = shape.norm_epsilon;
  at.part(norm, "norm", {shape.width});
}

Array LlamaNetwork::operator()(const Array& ids) const {
  if (ids.rank() != 2)
    fail<ShapeError>({.operation = "LlamaNetwork",
                      .with = {{"ids", to_string(ids.shape())}},
                      .wrong = "token ids must be (batch, tokens)"});
  Array x = dropout(embedding(ids));
  for (const LlamaBlock& block : blocks) x = block(x);
  return matmul(in_precision_of(embedding.weight, norm(x)), embedding.weight.transpose());
}

}  // namespace tessera
