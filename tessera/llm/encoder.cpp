// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/encoder.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "tessera/array/functions.h"
#include "tessera/llm/load_weights.h"
#include "tessera/ops/paged_attention.h"
#include "tessera/ops/transformer_layer.h"

namespace tessera {

struct Encoder::Layer {
  std::vector<Weight> qkv;      ///< one to three weights whose rows together are those of queries, keys and values
  std::vector<Weight> gate_up;  ///< the rows of the gate, if there is one, and of its partner
  Weight attention_output, down;
  std::optional<Array> qkv_bias, output_bias, up_bias, down_bias;
  Norm attention_norm, output_norm;
};

/// The tokens of several texts, and pages for their keys and values, which all layers use one after another.
struct Encoder::Step {
  Array ids;
  ops::PagedTokens stored;  ///< with the position of each token
  ops::PagedTokens seen;    ///< with the last position of each text, so that tokens attend to all of it
  ops::PagedLayer pages;
};

Encoder::Encoder() = default;
Encoder::Encoder(const Encoder&) = default;
Encoder::Encoder(Encoder&&) noexcept = default;
Encoder& Encoder::operator=(const Encoder&) = default;
Encoder& Encoder::operator=(Encoder&&) noexcept = default;
Encoder::~Encoder() = default;

Encoder Encoder::load(const GgufFile& file, Device device, const LoadProgress& progress) {
  Encoder m;
  m.config_ = read_encoder_config(file);
  m.device_ = device_info(device).device;
  const EncoderConfig& c = m.config_;
  TensorLoader tensors(file, {&device, 1}, progress);
  const auto norm = [&](const std::string& name) {
    return Norm{tensors.vector(name + ".weight", c.width), tensors.vector(name + ".bias", c.width)};
  };
  m.embedding_ = tensors.matrix("token_embd.weight", c.vocabulary, c.width);
  if (!c.rotary) m.positions_ = tensors.matrix("position_embd.weight", c.context_length, c.width);
  if (c.token_types > 0) {
    // Texts are not pairs of sentences, so that all tokens have the first type.
    const Weight types = tensors.matrix("token_types.weight", c.token_types, c.width);
    m.type_ = embedding_rows(types, Array::zeros({1}, DType::i32, device)).reshape({c.width}).eval();
  }
  m.embedding_norm_ = norm("token_embd_norm");
  using Parts = std::vector<std::pair<std::string, std::int64_t>>;
  for (std::int64_t i = 0; i < c.layers; ++i) {
    const std::string p = "blk." + std::to_string(i) + ".";
    Layer l;
    const auto load_all = [&](const Parts& parts, std::vector<Weight>& weights, std::optional<Array>& bias) {
      Parts names = parts;
      for (auto& [name, rows] : names) name = p + name + ".weight";
      weights = tensors.matrices(names, c.width);
      for (std::size_t n = 0; n < parts.size(); ++n) names[n].first = p + parts[n].first + ".bias";
      bias = tensors.optional_vectors(names);
    };
    load_all(tensors.has(p + "attn_qkv.weight") ? Parts{{"attn_qkv", 3 * c.width}}
                                                : Parts{{"attn_q", c.width}, {"attn_k", c.width}, {"attn_v", c.width}},
             l.qkv, l.qkv_bias);
    l.attention_output = tensors.matrix(p + "attn_output.weight", c.width, c.width);
    l.output_bias = tensors.optional_vector(p + "attn_output.bias", c.width);
    l.attention_norm = norm(p + "attn_output_norm");
    load_all(c.is_gated ? Parts{{"ffn_gate", c.hidden}, {"ffn_up", c.hidden}} : Parts{{"ffn_up", c.hidden}}, l.gate_up,
             l.up_bias);
    l.down = tensors.matrix(p + "ffn_down.weight", c.width, c.hidden);
    l.down_bias = tensors.optional_vector(p + "ffn_down.bias", c.width);
    l.output_norm = norm(p + "layer_output_norm");
    m.layers_.push_back(std::move(l));
  }
  current_queue(device).finish();
  return m;
}

template <class Use>
void Encoder::for_each_part(const Use& use) const {
  const auto use_norm = [&](const Norm& n) { use(n.weight), use(n.bias); };
  use(embedding_);
  if (positions_.valid()) use(positions_);
  if (type_) use(*type_);
  use_norm(embedding_norm_);
  for (const Layer& l : layers_) {
    for (const auto* weights : {&l.qkv, &l.gate_up})
      for (const Weight& w : *weights) use(w);
    use(l.attention_output), use(l.down);
    for (const auto* some : {&l.qkv_bias, &l.output_bias, &l.up_bias, &l.down_bias})
      if (*some) use(**some);
    use_norm(l.attention_norm), use_norm(l.output_norm);
  }
}

std::uint64_t Encoder::weight_bytes() const {
  std::uint64_t n = 0;
  for_each_part([&](const auto& part) { n += part.bytes(); });
  return n;
}

void Encoder::check(std::span<const std::vector<std::int32_t>> texts) const {
  if (texts.empty()) fail<ArgumentError>({.operation = "Encoder::forward", .wrong = "no text was given"});
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const auto wrong = [&](std::int64_t value, const char* name, const char* what) {
      fail<ArgumentError>({.operation = "Encoder::forward",
                           .with = {{"text", std::to_string(i)},
                                    {name, std::to_string(value)},
                                    {"context length", std::to_string(config_.context_length)},
                                    {"vocabulary", std::to_string(config_.vocabulary)}},
                           .wrong = what});
    };
    const auto count = std::ssize(texts[i]);
    if (count == 0) wrong(count, "tokens", "the text has no tokens");
    if (count > config_.context_length) wrong(count, "tokens", "the text is longer than the model's context length");
    for (const std::int32_t id : texts[i])
      if (id < 0 || id >= config_.vocabulary) wrong(id, "token", "the token is not in the vocabulary");
  }
}

namespace {

/// The tokens of several texts on the host.
struct HostTokens {
  std::vector<std::int32_t> ids, sequences, positions, last, tables, groups;
  std::int64_t width = 0, pages = 0;
};

HostTokens host_tokens(std::span<const std::vector<std::int32_t>> texts) {
  HostTokens t;
  const auto pages_of = [](const std::vector<std::int32_t>& text) {
    return (std::ssize(text) + ops::page_positions - 1) / ops::page_positions;
  };
  for (const auto& text : texts) t.width = std::max(t.width, pages_of(text));
  for (std::size_t s = 0; s < texts.size(); ++s) {
    const auto count = static_cast<std::int32_t>(texts[s].size()), first = static_cast<std::int32_t>(t.ids.size());
    for (std::int32_t at = 0; at < count; at += static_cast<std::int32_t>(ops::most_grouped_tokens)) {
      t.groups.push_back(first + at);
      t.groups.push_back(std::min(static_cast<std::int32_t>(ops::most_grouped_tokens), count - at));
    }
    for (std::int32_t at = 0; at < count; ++at) {
      t.ids.push_back(texts[s][static_cast<std::size_t>(at)]);
      t.sequences.push_back(static_cast<std::int32_t>(s));
      t.positions.push_back(at), t.last.push_back(count - 1);
    }
    for (std::int64_t p = 0; p < t.width; ++p)
      t.tables.push_back(p < pages_of(texts[s]) ? static_cast<std::int32_t>(t.pages + p) : 0);
    t.pages += pages_of(texts[s]);
  }
  return t;
}

Array biased(Array y, const std::optional<Array>& bias) { return bias ? y + *bias : std::move(y); }

}  // namespace

Array Encoder::embed(const Step& step) const {
  Array x = embedding_rows(embedding_, step.ids);
  if (type_) x = x + *type_;
  if (positions_.valid()) x = x + embedding_rows(positions_, step.stored.positions);
  return normalise(x, {}, embedding_norm_);
}

/// Layer norm (Ba et al. 2016) of x + y.
Array Encoder::normalise(const Array& x, const std::optional<Array>& y, const Norm& norm) const {
  const ops::AddNorm both = ops::add_rms_norm(x, y, norm.weight, config_.norm_epsilon, {}, true);
  return (both.normalised.rows().value() + norm.bias).eval();
}

Array Encoder::attend(const Layer& l, const Array& x, Step& step) const {
  ops::LinearInput input(x);
  ops::HeadOptions heads{config_.heads, config_.heads, config_.head_size};
  heads.rotary = config_.rotary, heads.bias = l.qkv_bias;
  const std::array<Array, 3> qkv =
      ops::rotate_heads(ops::linear(input, l.qkv), heads, Position::each(step.stored.positions));
  ops::paged_store(step.pages, qkv[1], qkv[2], step.stored);
  const float scale = 1 / std::sqrt(static_cast<float>(config_.head_size));
  ops::LinearInput seen(
      ops::paged_attention(qkv[0], step.pages, step.seen, scale).reshape({x.shape(0), config_.width}));
  return biased(ops::linear(seen, {&l.attention_output, 1})[0], l.output_bias);
}

Array Encoder::feed_forward(const Layer& l, const Array& x) const {
  ops::LinearInput input(x);
  ops::LinearInput hidden = config_.is_gated
                                ? ops::gate(input, l.gate_up, l.up_bias, Gate::silu, l.down)
                                : ops::LinearInput(gelu(biased(ops::linear(input, l.gate_up)[0], l.up_bias)));
  return biased(ops::linear(hidden, {&l.down, 1})[0], l.down_bias);
}

Array Encoder::forward(std::span<const std::vector<std::int32_t>> texts, const Callback<bool()>& cancelled) const {
  check(texts);
  const HostTokens host = host_tokens(texts);
  const auto array = [&](const std::vector<std::int32_t>& v, std::optional<Shape> shape = {}) {
    return Array::from(std::span<const std::int32_t>(v), std::move(shape), device_);
  };
  const auto tokens = [&](const std::vector<std::int32_t>& positions) {
    ops::PagedTokens t{array(host.tables, Shape{std::ssize(texts), host.width}), array(host.sequences),
                       array(positions)};
    t.groups = array(host.groups, Shape{std::ssize(host.groups) / 2, 2});
    t.equal_positions = true;
    return t;
  };
  Step step{array(host.ids), tokens(host.positions), tokens(host.last),
            ops::PagedLayer::zeros(host.pages, config_.heads, config_.head_size, DType::f32, device_)};
  Array x = embed(step);
  for (const Layer& l : layers_) {
    if (cancelled && cancelled()) return {};
    x = normalise(x, attend(l, x, step), l.attention_norm);
    x = normalise(x, feed_forward(l, x), l.output_norm);
  }
  return x.eval();
}

}  // namespace tessera
