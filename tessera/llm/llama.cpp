// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/llama.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "tessera/llm/load_weights.h"
#include "tessera/llm/past.h"
#include "tessera/ops/experts.h"
#include "tessera/ops/top_k.h"
#include "tessera/ops/transformer_layer.h"

namespace tessera {

struct Llama::Layer {
  std::optional<Array> attention_norm, feed_forward_norm, query_norm, key_norm, attention_post_norm,
      feed_forward_post_norm;
  std::vector<Weight> qkv;  ///< one to three weights whose rows together are those of queries, keys and values
  /// One or two weights whose rows together are those of the gate and its partner. In a layer of experts, they belong
  /// to the expert that all tokens use, or there are none.
  std::vector<Weight> gate_up;
  Weight attention_output, down;
  std::optional<ops::Experts> experts;
  std::optional<Array> shared_gate;  ///< (width,): a product with it gates the output of the expert of all tokens
  std::optional<Array> qkv_bias, gate_up_bias, output_bias, down_bias, sinks;
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
  if (dtype != DType::f32 && dtype != DType::f16)
    fail<DtypeError>({.operation = "KeyValueCache",
                      .with = {{"dtype", std::string(dtype_name(dtype))}},
                      .wrong = "the dtype must be f32 or f16"});
  for (const Device device : layers) {
    keys_.push_back(Array::zeros({config.key_heads, capacity, config.head_size}, dtype, device));
    values_.push_back(Array::zeros({config.key_heads, capacity, config.head_size}, dtype, device));
  }
}

std::uint64_t KeyValueCache::bytes() const {
  std::uint64_t n = 0;
  for (const Array& a : keys_) n += 2 * a.bytes();
  return n;
}

std::uint64_t KeyValueCache::bytes(Device device) const {
  std::uint64_t n = 0;
  for (const Array& a : keys_) n += a.device() == device ? 2 * a.bytes() : 0;
  return n;
}

void KeyValueCache::truncate(std::int64_t length) {
  if (length < 0 || length > length_)
    fail<ArgumentError>({.operation = "KeyValueCache::truncate",
                         .with = {{"requested", std::to_string(length)}, {"length", std::to_string(length_)}},
                         .wrong = "the cache has fewer tokens"});
  length_ = length;
}

void KeyValueCache::grow(std::int64_t capacity) {
  if (capacity <= capacity_) return;
  for (auto* const arrays : {&keys_, &values_})
    for (Array& a : *arrays) {
      if (a.shape()[1] >= capacity) continue;  // already grown by an earlier call that ran out of memory
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
  TensorLoader tensors(file, layers, progress);
  tensors.to(layers.front());
  const std::int64_t queries = c.heads * c.head_size, keys = c.key_heads * c.head_size;
  m.embedding_ = tensors.matrix("token_embd.weight", c.vocabulary, c.width);
  const std::string feed_forward_norm(find_architecture(c.architecture)->feed_forward_norm);
  std::optional<Array> factors, long_factors;
  std::optional<Device> factors_on;
  for (std::int64_t i = 0; i < c.layers; ++i) {
    const std::string p = "blk." + std::to_string(i) + ".";
    Layer l;
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
    load_all(tensors.has(p + "attn_qkv.weight") ? Parts{{"attn_qkv", queries + 2 * keys}}
                                                : Parts{{"attn_q", queries}, {"attn_k", keys}, {"attn_v", keys}},
             l.qkv, l.qkv_bias);
    if (c.head_norms || c.projection_norms) {
      l.query_norm = tensors.vector(p + "attn_q_norm.weight", c.projection_norms ? queries : c.head_size);
      l.key_norm = tensors.vector(p + "attn_k_norm.weight", c.projection_norms ? keys : c.head_size);
    }
    if (c.post_norms) {
      l.attention_post_norm = tensors.vector(p + "post_attention_norm.weight", c.width);
      l.feed_forward_post_norm = tensors.vector(p + "post_ffw_norm.weight", c.width);
    }
    l.attention_output = tensors.matrix(p + "attn_output.weight", c.width, queries);
    if (c.sinks) l.sinks = tensors.vector(p + "attn_sinks.weight", c.heads);
    l.output_bias = tensors.optional_vector(p + "attn_output.bias", c.width);
    if (c.experts > 0 && tensors.has(p + "ffn_gate_inp.weight")) {
      const auto experts = [&](const char* name, std::int64_t rows, std::int64_t columns) {
        return tensors.experts(p + name, c.experts, rows, columns);
      };
      l.experts = ops::Experts{c.experts,
                               c.used_experts,
                               tensors.matrix(p + "ffn_gate_inp.weight", c.experts, c.width),
                               experts("ffn_gate_exps.weight", c.expert_hidden, c.width),
                               experts("ffn_up_exps.weight", c.expert_hidden, c.width),
                               experts("ffn_down_exps.weight", c.width, c.expert_hidden),
                               c.unnormalised};
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
    } else {
      load_all(tensors.has(p + "ffn_gate.weight") ? Parts{{"ffn_gate", c.hidden}, {"ffn_up", c.hidden}}
                                                  : Parts{{"ffn_up", 2 * c.hidden}},
               l.gate_up, l.gate_up_bias);
      l.down = tensors.matrix(p + "ffn_down.weight", c.width, c.hidden);
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
    const bool own = c.layer_kinds[static_cast<std::size_t>(i)].window > 0 && c.local_rotary;
    l.rotary = own ? *c.local_rotary : c.rotary;
    if (!own) l.rotary.factors = factors, l.long_factors = long_factors;
    m.layers_.push_back(std::move(l));
  }
  m.output_norm_ = tensors.vector("output_norm.weight", c.width);
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
  // Select tokens as FetchedLogits does.
  ops::finite_argmax(logits), ops::top_k(logits, std::min(logits.size(), ops::most_top_k(logits.device())));
  // Recorded steps use kernels that read the token's position from memory.
  for (const Part& part : parts_) {
    const Array input = part.begin == 0 ? Array::zeros({1}, DType::i32, part.device)
                                        : Array::zeros({1, config_.width}, DType::f32, part.device);
    run_part(part, input, Past(Position(Array::zeros({1}, DType::i32, part.device)), cache), {}).eval();
  }
  for (const Device device : std::set(devices_.begin(), devices_.end())) current_queue(device).finish();
}

template <class Use>
void Llama::for_each_part(const Use& use) const {
  use(embedding_);
  if (!config_.tied || devices_.back() != devices_.front()) use(output_);
  use(output_norm_);
  for (const Layer& l : layers_) {
    for (const auto* weights : {&l.qkv, &l.gate_up})
      for (const Weight& w : *weights) use(w);
    use(l.attention_output);
    if (l.experts) {
      const ops::Experts& e = *l.experts;
      use(e.router), use(e.gate), use(e.up), use(e.down);
      for (const auto* some : {&e.router_bias, &e.gate_up_bias, &e.down_bias})
        if (*some) use(**some);
    }
    if (l.down.valid()) use(l.down);
    for (const auto* some :
         {&l.qkv_bias, &l.gate_up_bias, &l.output_bias, &l.down_bias, &l.query_norm, &l.key_norm, &l.attention_norm,
          &l.feed_forward_norm, &l.attention_post_norm, &l.feed_forward_post_norm, &l.shared_gate, &l.sinks})
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
  Array x = Array::from(tokens, {}, device());
  for (const Part& part : parts_)
    x = run_part(part, x.to(part.device), Past(cache.length_, cache), {.all = all_logits});
  cache.length_ += static_cast<std::int64_t>(tokens.size());
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

}  // namespace

Array Llama::attend(const Layer& l, ops::LinearInput& x, std::size_t i, const Past& past,
                    const std::optional<Array>& temperatures) const {
  const LlamaConfig::Layer kind = config_.layer_kinds[i];
  ops::HeadOptions heads{config_.heads, config_.key_heads, config_.head_size};
  if (kind.rotates) {
    heads.rotary = l.rotary;
    if (l.long_factors && past.expected() > config_.original_context) heads.rotary->factors = l.long_factors;
  }
  heads.bias = l.qkv_bias, heads.query_norm = l.query_norm, heads.key_norm = l.key_norm;
  heads.epsilon = config_.norm_epsilon;
  Array queries = past.store(i, ops::linear(x, l.qkv), heads);
  if (temperatures) queries = queries * *temperatures;
  ops::LinearInput seen =
      past.attend(i, queries, config_.attention_scale, kind.window, config_.attention_cap, l.sinks, l.attention_output);
  const Array y = with(ops::linear(seen, {&l.attention_output, 1})[0], l.output_bias);
  return l.attention_post_norm ? rms_norm(y, *l.attention_post_norm, config_.norm_epsilon) : y;
}

Array Llama::feed_forward(const Layer& l, ops::LinearInput& x) const {
  Array y;
  if (!l.gate_up.empty()) {
    ops::LinearInput gated = ops::gate(x, l.gate_up, l.gate_up_bias, config_.gate, l.down);
    y = with(ops::linear(gated, {&l.down, 1})[0], l.down_bias);
  }
  if (l.shared_gate) y = y * sigmoid(sum(x.rows().value() * *l.shared_gate, {1}, true));
  if (l.experts) {
    const Array routed = ops::experts_layer(x, *l.experts, config_.gate);
    y = l.gate_up.empty() ? routed : routed + y;
  }
  return l.feed_forward_post_norm ? rms_norm(y, *l.feed_forward_post_norm, config_.norm_epsilon) : y;
}

Array Llama::run_part(const Part& part, const Array& input, const Past& past, const WantedLogits& wanted) const {
  const std::int64_t count = input.shape(0);
  Array x = part.begin == 0 ? embedding_rows(embedding_, input) : input;
  // The sum of a layer's input and its scaled output is stored divided by the scale, and so is the embedding. The norms
  // of this sum are the same with an epsilon that is divided by the square of the scale.
  const float scale = config_.residual_scale, epsilon = config_.norm_epsilon / (scale * scale);
  if (part.begin == 0 && config_.embedding_scale != scale) x = x * (config_.embedding_scale / scale);
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
      y = attended + feed_forward(l, h);
      continue;
    }
    ops::LinearInput h = prepared(l.attention_norm, l.qkv);
    y = attend(l, h, i, past, temperatures);
    ops::LinearInput f = prepared(l.feed_forward_norm, l.experts ? std::span<const Weight>() : l.gate_up);
    y = feed_forward(l, f);
  }
  if (part.end < layers_.size()) return x + *y;
  if (past.states != nullptr) {
    const Array rows = take(x, past.states->rows) + take(*y, past.states->rows);
    past.states->values = rms_norm(config_.layer_norms ? ops::centred(rows) : rows, output_norm_, epsilon);
    if (config_.logit_scale != 1) past.states->values = past.states->values / config_.logit_scale;
  }
  if (wanted.rows && wanted.rows->size() == 0) return Array::zeros({0, config_.vocabulary}, DType::f32, part.device);
  if (!wanted.all && (wanted.rows || count > 1))
    for (Array* rows : {&x, &*y}) *rows = wanted.rows ? take(*rows, *wanted.rows) : rows->slice(0, count - 1, count);
  ops::LinearInput last = prepared(output_norm_, {&output_, 1});
  Array logits = ops::linear(last, {&output_, 1})[0];
  if (config_.output_cap > 0) logits = tanh(logits / config_.output_cap) * config_.output_cap;
  return logits;
}

}  // namespace tessera
