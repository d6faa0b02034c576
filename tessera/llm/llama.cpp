// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/llama.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "tessera/device/placement/dry_run.h"
#include "tessera/llm/load_weights.h"
#include "tessera/llm/past.h"
#include "tessera/ops/experts.h"
#include "tessera/ops/recurrent.h"
#include "tessera/ops/top_k.h"
#include "tessera/ops/transformer_layer.h"

namespace tessera {

struct Llama::Layer {
  std::optional<Array> attention_norm, feed_forward_norm, query_norm, key_norm, attention_post_norm,
      feed_forward_post_norm;
  std::optional<Array> value_norm;    ///< (head size,)
  std::optional<Array> output_scale;  ///< (1,)
  /// The layer's own embedding of the tokens is multiplied by a gate (layer input, width) and projected (width, layer
  /// input).
  Weight input_gate, input_projection;
  std::optional<Array> input_norm;
  bool keys_are_values = false;  ///< there is no matrix for values
  /// Attention: one to three weights whose rows together are those of queries, keys and values. Convolution: one with
  /// the rows of the gate before it, the gate after it, and its input. Delta rule: queries, keys and values; the gate
  /// of the output; beta; and the decay.
  std::vector<Weight> qkv;
  /// One or two weights whose rows together are those of the gate and its partner. In a layer of experts, they belong
  /// to the expert that all tokens use, or there are none.
  std::vector<Weight> gate_up;
  Weight attention_output, down;
  std::optional<ops::Experts> experts;
  /// The norms of experts next to an ordinary feed-forward layer; see Architecture::dense_and_experts.
  std::optional<Array> router_norm, expert_norm, expert_post_norm, dense_post_norm;
  std::optional<Array> shared_gate;  ///< (width,): a product with it gates the output of the expert of all tokens
  std::optional<Array> qkv_bias, gate_up_bias, output_bias, down_bias, sinks;
  std::optional<Array> taps;  ///< convolution of recurrent layers: (channels, taps)
  /// The gated delta rule: the rate and the bias of the decay (heads,), and the weight of the norm (value size,).
  std::optional<Array> decay_rate, decay_bias, delta_norm;
  Rotary rotary;
  std::optional<Array> long_factors;  ///< used instead of rotary's factors for long texts
};

Llama::Llama() = default;
Llama::Llama(const Llama&) = default;
Llama::Llama(Llama&&) noexcept = default;
Llama& Llama::operator=(const Llama&) = default;
Llama& Llama::operator=(Llama&&) noexcept = default;
Llama::~Llama() = default;

KeyValueCache::KeyValueCache(const LlamaConfig& config, std::int64_t capacity, Device device, DType dtype)
    : KeyValueCache(config, capacity, std::vector(static_cast<std::size_t>(config.layers), device), dtype) {}
KeyValueCache::KeyValueCache(KeyValueCache&&) noexcept = default;
KeyValueCache& KeyValueCache::operator=(KeyValueCache&&) noexcept = default;
KeyValueCache::~KeyValueCache() = default;

KeyValueCache Llama::make_cache(std::int64_t capacity, DType dtype) const {
  return KeyValueCache(config_, capacity, devices_, dtype);
}
KeyValueCache::KeyValueCache(const LlamaConfig& config, std::int64_t capacity, std::span<const Device> layers,
                             DType dtype)
    : capacity_(capacity), expected_(capacity) {
  if (capacity < 1)
    fail<ArgumentError>({.operation = "KeyValueCache",
                         .with = {{"capacity", std::to_string(capacity)}},
                         .wrong = "the capacity must be at least one token"});
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const LlamaConfig::Layer& l = config.layer_kinds[i];
    for (std::vector<Array>* const arrays : {&keys_, &values_})
      arrays->push_back(config.has_cache(i)
                            ? Array::zeros({l.key_heads, capacity, cache_row(l.head_size, dtype)}, dtype, layers[i])
                            : Array());
  }
  if (config.is_recurrent()) states_ = RecurrentStates(config, 2, layers);
}

std::uint64_t KeyValueCache::bytes() const {
  std::uint64_t n = states_.bytes();
  for (const Array& a : keys_) n += 2 * a.bytes();
  return n;
}

std::uint64_t KeyValueCache::bytes(Device device) const {
  std::uint64_t n = states_.bytes(device);
  for (const Array& a : keys_) n += a.device() == device ? 2 * a.bytes() : 0;
  return n;
}

std::vector<Array> KeyValueCache::arrays() const {
  std::vector<Array> all;
  for (const auto* arrays : {&keys_, &values_})
    std::ranges::copy_if(*arrays, std::back_inserter(all), [](const Array& a) { return a.size() > 0; });
  return all;
}

void KeyValueCache::set_length(std::int64_t length) {
  if (states_.slots() > 0)
    fail<ArgumentError>({.operation = "KeyValueCache::set_length",
                         .wrong = "the states of recurrent layers belong to the current length"});
  if (length < 0 || length > capacity_)
    fail<ArgumentError>({.operation = "KeyValueCache::set_length",
                         .with = {{"length", std::to_string(length)}, {"capacity", std::to_string(capacity_)}},
                         .wrong = "the length must be between 0 and the capacity"});
  length_ = length;
}

void KeyValueCache::skip(std::int64_t tokens) {
  const bool has_data =
      std::ranges::any_of(keys_, [](const Array& a) { return a.size() > 0 && holds_data(a.device()); });
  if (has_data || tokens < 0 || length_ + tokens > capacity_)
    fail<ArgumentError>(
        {.operation = "KeyValueCache::skip",
         .with = {{"tokens", std::to_string(tokens)}, {"free", std::to_string(capacity_ - length_)}},
         .wrong = has_data ? "tokens can only be skipped to estimate memory" : "the tokens do not fit"});
  append(tokens);
}

void KeyValueCache::append(std::int64_t tokens) {
  before_ = {length_, slot_};
  length_ += tokens;
  if (states_.slots() > 0) slot_ = next_slot();
}

Array KeyValueCache::ranges(std::int64_t tokens, Device device) const {
  const std::int32_t row[] = {0, static_cast<std::int32_t>(tokens), slot_, next_slot()};
  return Array::from(std::span<const std::int32_t>(row), Shape{1, 4}, device);
}

std::int64_t KeyValueCache::truncate(std::int64_t length) {
  if (length < 0 || length > length_)
    fail<ArgumentError>({.operation = "KeyValueCache::truncate",
                         .with = {{"requested", std::to_string(length)}, {"length", std::to_string(length_)}},
                         .wrong = "the cache has fewer tokens"});
  if (states_.slots() > 0 && length != length_) {
    if (length != before_.length) length = 0;
    slot_ = length == 0 ? -1 : before_.slot;
    before_.length = -1;
  }
  return length_ = length;
}

std::int64_t LlamaConfig::count_of(LayerKind kind) const {
  std::int64_t n = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(layers); ++i) n += kind_of(i) == kind;
  return n;
}

bool LlamaConfig::is_indivisible() const {
  for (std::size_t i = 0; i < layer_kinds.size(); ++i)
    if (layer_kinds[i].source != static_cast<std::int64_t>(i)) return true;
  return layer_input > 0;
}

void KeyValueCache::grow(std::int64_t capacity) {
  if (capacity <= capacity_) return;
  for (auto* const arrays : {&keys_, &values_})
    for (Array& a : *arrays) {
      // The array may already have been grown by an earlier call that ran out of memory.
      if (a.size() == 0 || a.shape()[1] >= capacity) continue;
      Array larger = Array::zeros({a.shape()[0], capacity, a.shape()[2]}, a.dtype(), a.device());
      if (length_ > 0) larger.slice(1, 0, length_).assign(a.slice(1, 0, length_));
      larger.eval();
      a = std::move(larger);
    }
  capacity_ = capacity;
  if (length_ == 0) expected_ = std::max(expected_, capacity);
}

void KeyValueCache::expect(std::int64_t tokens) {
  if (length_ != 0)
    fail<ArgumentError>({.operation = "KeyValueCache::expect",
                         .with = {{"tokens", std::to_string(tokens)}, {"in the cache", std::to_string(length_)}},
                         .wrong = "the expected length cannot be changed unless the cache is empty"});
  expected_ = tokens;
}

Llama Llama::load(const GgufFile& file, Device device, const LoadProgress& progress) {
  const auto layers = static_cast<std::size_t>(read_llama_config(file).layers);
  return load(file, std::vector(layers, device), progress);
}

Llama Llama::load(const GgufFile& file, std::span<const Device> layers, const LoadProgress& progress) {
  Llama m;
  m.config_ = read_llama_config(file);
  const LlamaConfig& c = m.config_;
  if (static_cast<std::int64_t>(layers.size()) != c.layers)
    fail<ArgumentError>({.operation = "Llama::load",
                         .with = {{"devices", std::to_string(layers.size())}, {"layers", std::to_string(c.layers)}},
                         .wrong = "the number of devices must equal the number of layers"});
  for (std::size_t i = 0; i < layers.size(); ++i) {
    m.devices_.push_back(device_info(layers[i]).device);
    if (i == 0 || m.devices_[i] != m.devices_[i - 1]) m.parts_.push_back({i, i, m.devices_[i]});
    m.parts_.back().end = i + 1;
  }
  if (m.parts_.size() > 1 && c.is_indivisible())
    fail<ArgumentError>({.operation = "load model",
                         .with = {{"file", file.name()}, {"devices", std::to_string(m.parts_.size())}},
                         .wrong =
                             "the layers of this model share keys and values or inputs, so that they must be on one "
                             "device",
                         .remedy = "Name one device"});
  TensorLoader tensors(file, layers, progress);
  tensors.to(layers.front());
  m.embedding_ = tensors.matrix("token_embd.weight", c.vocabulary, c.width);
  const std::string feed_forward_norm(find_architecture(c.architecture)->feed_forward_norm);
  std::optional<Array> factors, long_factors;
  std::optional<Device> factors_on;
  for (std::int64_t i = 0; i < c.layers; ++i) {
    const std::string p = "blk." + std::to_string(i) + ".";
    Layer l;
    const LlamaConfig::Layer& own = c.layer_kinds[static_cast<std::size_t>(i)];
    const std::int64_t queries = c.heads * own.head_size, keys = own.key_heads * own.head_size;
    const Device device = layers[static_cast<std::size_t>(i)];
    tensors.to(device);
    if (c.input_norms) {
      l.attention_norm = tensors.vector(p + "attn_norm.weight", c.width);
      if (!c.parallel) l.feed_forward_norm = tensors.vector(p + feed_forward_norm, c.width);
    }
    using Parts = std::vector<std::pair<std::string, std::int64_t>>;
    const auto load_all = [&](const Parts& parts, std::vector<Weight>& weights, std::optional<Array>& bias) {
      Parts names = parts;
      for (auto& [name, rows] : names) name = p + name + ".weight";
      weights = tensors.matrices(names, c.width);
      for (std::size_t n = 0; n < parts.size(); ++n) names[n].first = p + parts[n].first + ".bias";
      bias = tensors.optional_vectors(names);
    };
    const LlamaConfig::DeltaRule& d = c.delta;
    const auto load_convolution = [&](const std::string& name, std::int64_t channels) {
      l.taps = tensors.vectors(p + name, channels, c.taps);
    };
    const LayerKind kind = c.kind_of(static_cast<std::size_t>(i));
    if (kind == LayerKind::convolution) {
      load_all({{"shortconv.in_proj", 3 * c.width}}, l.qkv, l.qkv_bias);
      load_convolution("shortconv.conv.weight", c.width);
      l.attention_output = tensors.matrix(p + "shortconv.out_proj.weight", c.width, c.width);
    } else if (kind == LayerKind::delta_rule) {
      Parts parts = {{"attn_qkv", d.channels()}, {"attn_gate", d.values()}};
      if (d.grouped)
        parts.emplace_back("ssm_ba", 2 * d.heads);
      else
        parts.emplace_back("ssm_beta", d.heads), parts.emplace_back("ssm_alpha", d.heads);
      load_all(parts, l.qkv, l.qkv_bias);
      load_convolution("ssm_conv1d.weight", d.channels());
      l.decay_rate = tensors.vector(p + "ssm_a", d.heads);
      l.decay_bias = tensors.vector(p + "ssm_dt.bias", d.heads);
      l.delta_norm = tensors.vector(p + "ssm_norm.weight", d.value_size);
      // rms_norm with these weights divides rows by their length, and the queries by the root of their size.
      const auto size = static_cast<float>(d.key_size);
      l.query_norm = Array::full({d.key_size}, 1 / size, DType::f32, device).eval();
      l.key_norm = Array::full({d.key_size}, 1 / std::sqrt(size), DType::f32, device).eval();
      l.attention_output = tensors.matrix(p + "ssm_out.weight", c.width, d.values());
    } else {
      const std::int64_t gated = c.gated_attention ? 2 * queries : queries;
      Parts parts = {{"attn_q", gated}};
      if (own.source == i) parts.emplace_back("attn_k", keys);
      l.keys_are_values = c.value_norms && own.source == i && !tensors.has(p + "attn_v.weight");
      if (own.source == i && !l.keys_are_values) parts.emplace_back("attn_v", keys);
      if (tensors.has(p + "attn_qkv.weight")) parts = {{"attn_qkv", queries + 2 * keys}};
      load_all(parts, l.qkv, l.qkv_bias);
      l.attention_output = tensors.matrix(p + "attn_output.weight", c.width, queries);
    }
    if (kind == LayerKind::attention && (c.head_norms || c.projection_norms)) {
      l.query_norm = tensors.vector(p + "attn_q_norm.weight", c.projection_norms ? queries : own.head_size);
      if (own.source == i)
        l.key_norm = tensors.vector(p + "attn_k_norm.weight", c.projection_norms ? keys : own.head_size);
    }
    if (c.value_norms && own.source == i) l.value_norm = Array::full({own.head_size}, 1, DType::f32, device).eval();
    l.output_scale = tensors.optional_vector(p + "layer_output_scale.weight", 1);
    if (c.layer_input > 0) {
      l.input_gate = tensors.matrix(p + "inp_gate.weight", c.layer_input, c.width);
      l.input_projection = tensors.matrix(p + "proj.weight", c.width, c.layer_input);
      l.input_norm = tensors.vector(p + "post_norm.weight", c.width);
    }
    if (c.post_norms) {
      l.attention_post_norm = tensors.vector(p + "post_attention_norm.weight", c.width);
      l.feed_forward_post_norm = tensors.vector(p + "post_ffw_norm.weight", c.width);
    }
    if (c.sinks) l.sinks = tensors.vector(p + "attn_sinks.weight", c.heads);
    l.output_bias = tensors.optional_vector(p + "attn_output.bias", c.width);
    if (c.experts > 0 && tensors.has(p + "ffn_gate_inp.weight")) {
      const auto experts = [&](const char* name, std::int64_t rows, std::int64_t columns) {
        return tensors.experts(p + name, c.experts, rows, columns);
      };
      const bool fused = tensors.has(p + "ffn_gate_up_exps.weight");
      l.experts = ops::Experts{c.experts,
                               c.used_experts,
                               tensors.matrix(p + "ffn_gate_inp.weight", c.experts, c.width),
                               fused ? experts("ffn_gate_up_exps.weight", 2 * c.expert_hidden, c.width)
                                     : experts("ffn_gate_exps.weight", c.expert_hidden, c.width),
                               fused ? Weight() : experts("ffn_up_exps.weight", c.expert_hidden, c.width),
                               experts("ffn_down_exps.weight", c.width, c.expert_hidden),
                               c.sigmoid_router ? ops::ExpertWeights::sigmoid
                               : c.unnormalised ? ops::ExpertWeights::softmax_of_all
                                                : ops::ExpertWeights::softmax_of_chosen};
      if (c.sigmoid_router) l.experts->choice_bias = tensors.optional_vector(p + "exp_probs_b.bias", c.experts);
      if (c.expert_scale != 1) l.experts->scales = Array::full({c.experts}, c.expert_scale, DType::f32, device).eval();
      if (c.expert_biases) {
        l.experts->router_bias = tensors.vector(p + "ffn_gate_inp.bias", c.experts);
        const Array both[] = {tensors.vectors(p + "ffn_gate_exps.bias", c.experts, c.expert_hidden),
                              tensors.vectors(p + "ffn_up_exps.bias", c.experts, c.expert_hidden)};
        l.experts->gate_up_bias = concatenate(both, 1).eval();
        l.experts->down_bias = tensors.vectors(p + "ffn_down_exps.bias", c.experts, c.width);
      }
      if (c.shared_hidden > 0) {
        load_all({{"ffn_gate_shexp", c.shared_hidden}, {"ffn_up_shexp", c.shared_hidden}}, l.gate_up, l.gate_up_bias);
        l.down = tensors.matrix(p + "ffn_down_shexp.weight", c.width, c.shared_hidden);
        if (c.shared_gate) l.shared_gate = tensors.vector(p + "ffn_gate_inp_shexp.weight", c.width);
      }
      if (c.dense_and_experts) {
        const float scale = 1 / std::sqrt(static_cast<float>(c.width));
        l.router_norm = (tensors.vector(p + "ffn_gate_inp.scale", c.width) * scale).eval();
        l.expert_norm = tensors.vector(p + "pre_ffw_norm_2.weight", c.width);
        l.expert_post_norm = tensors.vector(p + "post_ffw_norm_2.weight", c.width);
        l.dense_post_norm = tensors.vector(p + "post_ffw_norm_1.weight", c.width);
        l.experts->scales = tensors.optional_vector(p + "ffn_down_exps.scale", c.experts);
      }
    }
    if (!l.experts || c.dense_and_experts) {
      load_all(tensors.has(p + "ffn_gate.weight") ? Parts{{"ffn_gate", own.hidden}, {"ffn_up", own.hidden}}
                                                  : Parts{{"ffn_up", 2 * own.hidden}},
               l.gate_up, l.gate_up_bias);
      l.down = tensors.matrix(p + "ffn_down.weight", c.width, own.hidden);
      l.down_bias = tensors.optional_vector(p + "ffn_down.bias", c.width);
    }
    // The layers of a device share one copy of the factors.
    if (!factors_on || *factors_on != device) {
      const std::int64_t pairs = c.rotary.dimensions / 2;
      long_factors = tensors.optional_vector("rope_factors_long.weight", pairs);
      factors = tensors.optional_vector(long_factors ? "rope_factors_short.weight" : "rope_freqs.weight", pairs);
      if (!c.frequency_factors.empty()) factors = Array::from(c.frequency_factors, {}, device);
      factors_on = device;
    }
    const bool is_local = own.window > 0 && c.local_rotary;
    l.rotary = is_local ? *c.local_rotary : c.rotary;
    if (!is_local) l.rotary.factors = factors, l.long_factors = long_factors;
    m.layers_.push_back(std::move(l));
  }
  if (c.layer_input > 0)
    m.layer_inputs_ = {tensors.matrix("per_layer_token_embd.weight", c.vocabulary, c.layers * c.layer_input),
                       tensors.matrix("per_layer_model_proj.weight", c.layers * c.layer_input, c.width),
                       tensors.vector("per_layer_proj_norm.weight", c.layer_input)};
  m.output_norm_ = tensors.vector(std::string(find_architecture(c.architecture)->output_norm), c.width);
  if (c.logit_scale != 1) m.output_norm_ = (m.output_norm_ * c.logit_scale).eval();
  if (c.tied && layers.back() == layers.front())
    m.output_ = m.embedding_;
  else
    m.output_ = tensors.matrix(c.tied ? "token_embd.weight" : "output.weight", c.vocabulary, c.width);
  for (const Device device : std::set(layers.begin(), layers.end())) current_queue(device).finish();
  return m;
}

void Llama::prepare() const {
  // Matrix products use different kernels for one token, for tiles of 2, 4 and 8 tokens, and for those of 16 to 128
  // with matrix units, and a library for many. In a cache of this length, attention of one token has several parts.
  KeyValueCache cache = make_cache(256);
  const std::vector<std::int32_t> tokens(128, 0);
  Array logits;
  for (std::size_t n : {1, 2, 4, 8}) logits = forward(std::span(tokens).first(n), cache).eval();
  for (std::size_t n : {32, 64, 128})
    if (std::ranges::any_of(layers_, [&](const Layer& l) {
          const Weight& first = l.experts ? l.experts->gate : l.gate_up[0];
          return ops::multiplied_by_tiles(first, static_cast<std::int64_t>(n)) ||
                 (n == 64 && ops::multiplied_by_library(first, 64));
        }))
      forward(std::span(tokens).first(n), cache).eval();
  // Long prompts on CPUs.
  for (const Layer& l : layers_)
    for (const auto* weights : {&l.qkv, &l.gate_up})
      for (const Weight& w : *weights) ops::prepare_panels(w, 128);
  // Select tokens as FetchedLogits does.
  ops::finite_argmax(logits), ops::top_k(logits, std::min(logits.size(), ops::most_top_k(logits.device())));
  // Recorded steps use kernels that read the token's position from memory.
  for (const Part& part : parts_) {
    const Array input = part.begin == 0 ? Array::zeros({1}, DType::i32, part.device)
                                        : Array::zeros({1, config_.width}, DType::f32, part.device);
    run_part(part, input,
             Past(Position(Array::zeros({1}, DType::i32, part.device)), cache, cache.ranges(1, part.device)), {})
        .eval();
  }
  for (const Device device : std::set(devices_.begin(), devices_.end())) current_queue(device).finish();
}

template <class Use>
void Llama::for_each_part(const Use& use) const {
  use(embedding_);
  if (!config_.tied || devices_.back() != devices_.front()) use(output_);
  use(output_norm_);
  if (layer_inputs_) use(layer_inputs_->embedding), use(layer_inputs_->projection), use(layer_inputs_->norm);
  for (const Layer& l : layers_) {
    for (const auto* weights : {&l.qkv, &l.gate_up})
      for (const Weight& w : *weights) use(w);
    use(l.attention_output);
    if (l.experts) {
      const ops::Experts& e = *l.experts;
      use(e.router), use(e.gate), use(e.down);
      if (e.up.valid()) use(e.up);
      for (const auto* some : {&e.router_bias, &e.gate_up_bias, &e.down_bias, &e.scales, &e.choice_bias})
        if (*some) use(**some);
    }
    for (const Weight* const w : {&l.down, &l.input_gate, &l.input_projection})
      if (w->valid()) use(*w);
    for (const auto* some : {&l.qkv_bias,
                             &l.gate_up_bias,
                             &l.output_bias,
                             &l.down_bias,
                             &l.query_norm,
                             &l.key_norm,
                             &l.attention_norm,
                             &l.feed_forward_norm,
                             &l.attention_post_norm,
                             &l.feed_forward_post_norm,
                             &l.shared_gate,
                             &l.sinks,
                             &l.taps,
                             &l.decay_rate,
                             &l.decay_bias,
                             &l.delta_norm,
                             &l.value_norm,
                             &l.output_scale,
                             &l.input_norm,
                             &l.router_norm,
                             &l.expert_norm,
                             &l.expert_post_norm,
                             &l.dense_post_norm})
      if (*some) use(**some);
  }
}

std::uint64_t Llama::weight_bytes() const {
  std::uint64_t n = 0;
  for_each_part([&](const auto& part) { n += part.bytes(); });
  return n;
}

std::uint64_t Llama::weight_bytes(Device device) const {
  std::uint64_t n = 0;
  for_each_part([&](const auto& part) { n += part.device() == device ? part.bytes() : 0; });
  return n;
}

void Llama::check_tokens(std::span<const std::int32_t> tokens, const KeyValueCache& cache) const {
  const auto count = static_cast<std::int64_t>(tokens.size());
  if (count == 0) fail<ArgumentError>({.operation = "Llama::forward", .wrong = "no tokens were given"});
  if (count > cache.capacity_ - cache.length_)
    fail<ArgumentError>({.operation = "Llama::forward",
                         .with = {{"tokens", std::to_string(count)},
                                  {"in the cache", std::to_string(cache.length_)},
                                  {"room", std::to_string(cache.capacity_)}},
                         .wrong = "the tokens do not fit into the cache",
                         .remedy = "Use a larger cache, or truncate it"});
  check_vocabulary(tokens);
}

void Llama::check_vocabulary(std::span<const std::int32_t> tokens) const {
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] < 0 || tokens[i] >= config_.vocabulary)
      fail<ArgumentError>({.operation = "Llama::forward",
                           .with = {{"token", std::to_string(tokens[i])},
                                    {"at", std::to_string(i)},
                                    {"vocabulary", std::to_string(config_.vocabulary)}},
                           .wrong = "the token is not in the vocabulary"});
}

Array Llama::forward(std::span<const std::int32_t> tokens, KeyValueCache& cache, bool all_logits) const {
  check_tokens(tokens, cache);
  cache.begin_step();
  Array x = Array::from(tokens, {}, device());
  const auto count = static_cast<std::int64_t>(tokens.size());
  for (const Part& part : parts_) {
    std::optional<Array> ranges;
    if (config_.is_recurrent()) ranges = cache.ranges(count, part.device);
    x = run_part(part, x.to(part.device), Past(cache.length_, cache, std::move(ranges)), {.all = all_logits});
  }
  cache.append(count);
  return x;
}

namespace {

Array with(Array y, const std::optional<Array>& bias) { return bias ? y + *bias : std::move(y); }

/// Returns the temperature factors (count, 1, 1) for `count` queries, starting at position `past`. Uses integer
/// division for positions, because float division could round wrongly at multiples of the original context.
Array temperatures_of(const LlamaConfig& c, const Position& past, std::int64_t count, Device device) {
  const Array first = past.in_memory() ? past.memory() : Array::full({1}, past.number(), DType::i32, device);
  const Array each = past.is_each() ? first : first + Array::arange(count, 0, 1, DType::i32, device);
  const Array steps = each / static_cast<int>(c.original_context);
  return (log1p(steps.astype(DType::f32)) * c.temperature_scale + 1.0f).reshape({count, 1, 1});
}

/// The first part begins with the queries and gates of each head in turn. Leaves queries, keys and values in `parts`,
/// and returns the gates (tokens, heads, head size).
Array take_gates(std::vector<Array>& parts, const ops::HeadOptions& how) {
  const Array all = parts.size() == 1 ? parts[0] : concatenate(parts, 1);
  const std::int64_t tokens = all.shape(0), queries = how.heads * how.head_size;
  const Array both = all.slice(1, 0, 2 * queries).reshape({tokens, how.heads, 2, how.head_size});
  parts = {both.select(2, 0).copy().reshape({tokens, queries}), all.slice(1, 2 * queries, all.shape(1)).copy()};
  return both.select(2, 1);
}

}  // namespace

Array Llama::convolve(const Layer& l, ops::LinearInput& x, std::size_t i, const Past& past) const {
  const Array all = ops::linear(x, l.qkv)[0];
  const auto part = [&](std::int64_t n) { return all.slice(1, n * config_.width, (n + 1) * config_.width); };
  const Array seen = ops::causal_convolution(part(0) * part(2), *l.taps, past.recurrent(i).convolution, *past.ranges);
  ops::LinearInput out(part(1) * seen);
  return ops::linear(out, {&l.attention_output, 1})[0];
}

Array Llama::delta_rule(const Layer& l, ops::LinearInput& x, std::size_t i, const Past& past) const {
  const LlamaConfig::DeltaRule& d = config_.delta;
  const std::vector<Array> parts = ops::linear(x, l.qkv);
  const std::int64_t tokens = parts[0].shape(0), keys = d.keys();
  RecurrentStates::Layer& states = past.recurrent(i);
  const Array mixed = silu(ops::causal_convolution(parts[0], *l.taps, states.convolution, *past.ranges)).eval();
  const std::int64_t of_key_head = d.heads / d.key_heads;
  const auto unit = [&](std::int64_t begin, const Array& norm) {  // with the epsilon of transformers
    const Array rows = mixed.slice(1, begin, begin + keys).reshape({tokens, d.key_heads, d.key_size});
    const Array normalised = rms_norm(rows, norm, 1e-6f / static_cast<float>(d.key_size));
    if (!d.grouped || of_key_head == 1) return normalised;
    const std::vector<Array> repeated(static_cast<std::size_t>(of_key_head), normalised.unsqueeze(2));
    return concatenate(repeated, 2).reshape({tokens, d.heads, d.key_size});
  };
  Array beta = parts[2], time = d.grouped ? parts[2] : parts[3];
  if (d.grouped) {
    const Array both = parts[2].reshape({tokens, d.key_heads, 2, of_key_head});
    beta = both.select(2, 0).copy().reshape({tokens, d.heads});
    time = both.select(2, 1).copy().reshape({tokens, d.heads});
  }
  time = time + *l.decay_bias;
  const Array values = mixed.slice(1, 2 * keys, 2 * keys + d.values()).reshape({tokens, d.heads, d.value_size});
  const Array softplus = maximum(time, 0.0f) + log1p(exp(-abs(time)));
  const Array seen = ops::gated_delta_rule(unit(0, *l.query_norm), unit(keys, *l.key_norm), values,
                                           exp(*l.decay_rate * softplus), sigmoid(beta), states.matrices, *past.ranges);
  const Array gates = silu(parts[1].reshape({tokens, d.heads, d.value_size}));
  ops::LinearInput out((rms_norm(seen, *l.delta_norm, config_.norm_epsilon) * gates).reshape({tokens, d.values()}));
  return ops::linear(out, {&l.attention_output, 1})[0];
}

Array Llama::attend(const Layer& l, ops::LinearInput& x, std::size_t i, const Past& past,
                    const std::optional<Array>& temperatures) const {
  const LlamaConfig::Layer& kind = config_.layer_kinds[i];
  if (kind.kind == LayerKind::convolution) return convolve(l, x, i, past);
  if (kind.kind == LayerKind::delta_rule) return delta_rule(l, x, i, past);
  ops::HeadOptions heads{config_.heads, kind.key_heads, kind.head_size};
  if (kind.rotates) {
    heads.rotary = l.rotary;
    if (l.long_factors && past.expected() > config_.original_context) heads.rotary->factors = l.long_factors;
  }
  heads.bias = l.qkv_bias, heads.query_norm = l.query_norm, heads.key_norm = l.key_norm;
  heads.value_norm = l.value_norm, heads.epsilon = config_.norm_epsilon;
  std::vector<Array> parts = ops::linear(x, l.qkv);
  std::optional<Array> gates;
  if (config_.gated_attention) gates = sigmoid(take_gates(parts, heads));
  if (l.keys_are_values) {
    const Array& last = parts.back();
    parts.push_back(last.slice(1, last.shape(1) - kind.key_heads * kind.head_size, last.shape(1)));
  }
  const auto source = static_cast<std::size_t>(kind.source);
  Array queries = source == i ? past.store(i, parts, heads) : ops::rotate_queries(parts, heads, past.position);
  if (temperatures) queries = queries * *temperatures;
  ops::LinearInput seen = past.attend(source, queries, config_.attention_scale, kind.window, config_.attention_cap,
                                      l.sinks, gates, l.attention_output);
  const Array y = with(ops::linear(seen, {&l.attention_output, 1})[0], l.output_bias);
  return l.attention_post_norm ? rms_norm(y, *l.attention_post_norm, config_.norm_epsilon) : y;
}

/// `x` is the normalised `sum` of the outputs of earlier layers.
Array Llama::feed_forward(const Layer& l, ops::LinearInput& x, const Array& sum) const {
  const auto norm = [&](const Array& rows, const std::optional<Array>& weight) {
    return rms_norm(rows, *weight, config_.norm_epsilon);
  };
  Array y;
  if (!l.gate_up.empty()) {
    ops::LinearInput gated = ops::gate(x, l.gate_up, l.gate_up_bias, config_.gate, l.down);
    y = with(ops::linear(gated, {&l.down, 1})[0], l.down_bias);
  }
  if (l.shared_gate) y = y * sigmoid(tessera::sum(x.rows().value() * *l.shared_gate, {1}, true));
  if (l.expert_norm) {
    ops::LinearInput rows(norm(sum, l.expert_norm)), routed_by(norm(sum, l.router_norm));
    const Array routed = ops::experts_layer(rows, *l.experts, config_.gate, &routed_by);
    y = norm(y, l.dense_post_norm) + norm(routed, l.expert_post_norm);
  } else if (l.experts) {
    const Array routed = ops::experts_layer(x, *l.experts, config_.gate);
    y = l.gate_up.empty() ? routed : routed + y;
  }
  return l.feed_forward_post_norm ? norm(y, l.feed_forward_post_norm) : y;
}

/// Returns the inputs of all layers, f32 (tokens, layers, layer input). `x` is the scaled embedding of the tokens.
Array Llama::layer_inputs(const Array& ids, const Array& x) const {
  const std::int64_t size = config_.layer_input;
  const Shape shape = {ids.shape(0), config_.layers, size};
  ops::LinearInput input(x);
  const Array projected = ops::linear(input, {&layer_inputs_->projection, 1})[0].reshape(shape);
  const Array normalised = rms_norm(projected * (1 / std::sqrt(static_cast<float>(config_.width))), layer_inputs_->norm,
                                    config_.norm_epsilon);
  const Array embedded = embedding_rows(layer_inputs_->embedding, ids).reshape(shape);
  return ((normalised + embedded * std::sqrt(static_cast<float>(size))) * std::sqrt(0.5f)).eval();
}

/// Adds the layer's own embedding of the tokens, `input` (tokens, layer input), to the output of a layer.
Array Llama::add_layer_input(const Layer& l, const Array& x, const Array& input) const {
  ops::LinearInput rows(x);
  ops::LinearInput gated(ops::apply_gate(Gate::gelu, ops::linear(rows, {&l.input_gate, 1})[0], input));
  return x + rms_norm(ops::linear(gated, {&l.input_projection, 1})[0], *l.input_norm, config_.norm_epsilon);
}

Array Llama::run_part(const Part& part, const Array& input, const Past& past, const WantedLogits& wanted) const {
  const std::int64_t count = input.shape(0);
  Array x = part.begin == 0 ? embedding_rows(embedding_, input) : input;
  // The sum of a layer's input and its scaled output is stored divided by the scale, and so is the embedding. The norms
  // of this sum are the same with an epsilon that is divided by the square of the scale.
  const float scale = config_.residual_scale, epsilon = config_.norm_epsilon / (scale * scale);
  if (part.begin == 0 && config_.embedding_scale != scale) x = x * (config_.embedding_scale / scale);
  const std::optional<Array> inputs = layer_inputs_ ? std::optional(layer_inputs(input, x)) : std::nullopt;
  std::optional<Array> temperatures;  // not needed within the original context, where all factors are 1
  if (config_.temperature_scale != 0 && past.capacity() > config_.original_context)
    temperatures = temperatures_of(config_, past.position, count, part.device);
  std::optional<Array> y;  // the output of the last part of a layer, which is added to x together with the next norm
  const auto prepared = [&](const std::optional<Array>& norm, std::span<const Weight> next) {
    if (!norm) {
      if (y) x = (x + *y).eval(), y.reset();
      return ops::LinearInput(x);
    }
    ops::AddNorm both = ops::add_rms_norm(x, y, *norm, epsilon, next, config_.layer_norms);
    x = std::move(both.sum), y.reset();
    return std::move(both.normalised);
  };
  for (std::size_t i = part.begin; i < part.end; ++i) {
    const Layer& l = layers_[i];
    if (config_.parallel) {
      std::vector<Weight> both = l.qkv;
      both.insert(both.end(), l.gate_up.begin(), l.gate_up.end());
      ops::LinearInput h = prepared(l.attention_norm, both);
      const Array attended = attend(l, h, i, past, temperatures);
      y = attended + feed_forward(l, h, x);
      continue;
    }
    ops::LinearInput h = prepared(l.attention_norm, l.qkv);
    y = attend(l, h, i, past, temperatures);
    const bool needs_rows = l.experts && !config_.dense_and_experts;
    ops::LinearInput f = prepared(l.feed_forward_norm, needs_rows ? std::span<const Weight>() : l.gate_up);
    y = feed_forward(l, f, x);
    if (!inputs && !l.output_scale) continue;
    x = x + *y, y.reset();
    if (inputs) x = add_layer_input(l, x, inputs->select(1, static_cast<std::int64_t>(i)));
    if (l.output_scale) x = x * *l.output_scale;
    x.eval();
  }
  if (part.end < layers_.size()) return y ? x + *y : x;
  if (past.states != nullptr) {
    const Array rows = y ? take(x, past.states->rows) + take(*y, past.states->rows) : take(x, past.states->rows);
    past.states->values = rms_norm(config_.layer_norms ? ops::centred(rows) : rows, output_norm_, epsilon);
    if (config_.logit_scale != 1) past.states->values = past.states->values / config_.logit_scale;
  }
  if (wanted.rows && wanted.rows->size() == 0) return Array::zeros({0, config_.vocabulary}, DType::f32, part.device);
  if (!wanted.all && (wanted.rows || count > 1))
    for (Array* rows : {&x, y ? &*y : nullptr})
      if (rows) *rows = wanted.rows ? take(*rows, *wanted.rows) : rows->slice(0, count - 1, count);
  ops::LinearInput last = prepared(output_norm_, {&output_, 1});
  Array logits = ops::linear(last, {&output_, 1})[0];
  if (config_.output_cap > 0) logits = tanh(logits / config_.output_cap) * config_.output_cap;
  return logits;
}

}  // namespace tessera
