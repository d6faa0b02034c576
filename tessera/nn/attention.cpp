// SPDX-License-Identifier: Apache-2.0
#include "tessera/nn/attention.h"

#include "tessera/nn/initialise.h"
#include "tessera/ops/attention.h"
#include "tessera/ops/product.h"

namespace tessera {

void MultiHeadAttention::set_up(const LayerSetup& at) {
  size = at.inputs("MultiHeadAttention", size, -1);
  if (heads <= 0 || size % heads != 0)
    fail<ShapeError>({.operation = "setup",
                      .with = {{"path", at.path()}, {"size", std::to_string(size)}, {"heads", std::to_string(heads)}},
                      .wrong = "heads must divide the size of MultiHeadAttention"});
  in_weight.declare({3 * size, size}, init::xavier_uniform());
  if (with_bias) in_bias.declare({3 * size}, init::zeros());
  out.outputs = size, out.with_bias = with_bias;
  at.part(out, "out", {size});
  if (with_bias) out.bias.declare({size}, init::zeros());  // differs from the default of Dense
}

Array MultiHeadAttention::operator()(const Array& x) const {
  detail::check_initialized("MultiHeadAttention", in_weight);
  if (x.rank() < 2 || x.rank() > 3 || x.shape(-1) != in_weight.shape(1))
    fail<ShapeError>({.operation = detail::layer_name("MultiHeadAttention", in_weight.path()),
                      .with = {{"x", to_string(x.shape())}, {"weight", to_string(in_weight.shape())}},
                      .wrong = "x must be (batch, tokens, size) or (tokens, size) with the layer's size"});
  if (x.rank() == 2) return (*this)(x.unsqueeze(0)).squeeze(0);
  const std::int64_t batch = x.shape(0), tokens = x.shape(1), each = size / heads;
  const Array projected = matmul(in_precision_of(in_weight, x), in_weight.transpose(),
                                 {.bias = in_bias.empty() ? std::nullopt : std::optional<Array>(in_bias)})
                              .reshape({batch, tokens, 3, heads, each})
                              .permute({2, 0, 3, 1, 4});  // queries, keys, values: (batch, heads, tokens, head size)
  const Array q = projected.select(0, 0), k = projected.select(0, 1), v = projected.select(0, 2);
  const Array y = scaled_dot_product_attention(q, k, v, {.causal = causal});
  return out(y.permute({0, 2, 1, 3}).reshape({batch, tokens, size}));
}

}  // namespace tessera
