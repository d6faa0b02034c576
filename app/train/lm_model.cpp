// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "train/lm_model.h"

#include <fmt/format.h>

namespace tessera::app {
namespace {

/// Calls `use(name, member)` for each size. The names are the names of the options.
template <class Shape_, class Use>
void each_size(Shape_& s, const Use& use) {
  use("vocabulary", s.vocabulary), use("layers", s.layers), use("width", s.width), use("heads", s.heads);
  use("key-heads", s.key_heads), use("hidden", s.hidden), use("ctx", s.context);
}

}  // namespace

nlohmann::ordered_json to_json(const LmShape& shape) {
  nlohmann::ordered_json out;
  each_size(shape, [&](const char* name, std::int64_t size) { out[name] = size; });
  out["dropout"] = shape.dropout;
  return out;
}

LmShape lm_shape_of(const std::string& text, const std::string& from) {
  try {
    const auto json = nlohmann::json::parse(text);
    LmShape out;
    each_size(out, [&](const char* name, std::int64_t& size) { json.at(name).get_to(size); });
    json.at("dropout").get_to(out.dropout);
    return out;
  } catch (const nlohmann::json::exception&) {
    fail<FormatError>({.operation = "resume",
                       .with = {{"file", from}, {"shape", text}},
                       .wrong = "the file does not contain the network's sizes"});
  }
}

LlamaShape network_shape(const LmShape& s, std::int64_t tokens) {
  const auto refuse = [](std::string wrong, std::string remedy) {
    fail<ArgumentError>({.operation = "tessera train lm", .wrong = std::move(wrong), .remedy = std::move(remedy)});
  };
  if (s.width % s.heads != 0 || s.width / s.heads % 2 != 0)
    refuse(fmt::format("--width {} cannot be divided into {} heads with an even number of elements", s.width, s.heads),
           fmt::format("For example, use a width of {}", 32 * s.heads));
  if (s.heads % s.key_heads != 0)
    refuse(fmt::format("--key-heads {} does not divide --heads {}", s.key_heads, s.heads),
           "Each key head must be shared by the same number of heads");
  LlamaShape out{.vocabulary = tokens,
                 .layers = s.layers,
                 .width = s.width,
                 .heads = s.heads,
                 .key_heads = s.key_heads,
                 .hidden = s.hidden,
                 .dropout = s.dropout};
  out.check();
  return out;
}

LearnerOptions lm_learner_options(LearnerOptions o) {
  o.final_rate = 0.02, o.beta2 = 0.95, o.weight_decay = 0.1, o.clip_norm = 1.0;
  o.groups = {{.pattern = "*norm.weight", .weight_decay = 0.0}};
  return o;
}

Batch lm_batch(const std::vector<std::int32_t>& windows, std::int64_t length) {
  const std::int64_t count = static_cast<std::int64_t>(windows.size()) / (length + 1);
  std::vector<std::int32_t> x, y;
  x.reserve(windows.size()), y.reserve(windows.size());
  for (std::int64_t i = 0; i < count; ++i) {
    const auto first = windows.begin() + i * (length + 1);
    x.insert(x.end(), first, first + length);
    y.insert(y.end(), first + 1, first + length + 1);
  }
  return {Array::from(std::span<const std::int32_t>(x), Shape{count, length}),
          Array::from(std::span<const std::int32_t>(y), Shape{count, length})};
}

HeldOut measure_lm(const Learner& learner, const MeasuredWindows& windows, std::int64_t length, std::int64_t at_once) {
  HeldOut out;
  double right = 0;
  for (std::int64_t at = 0; at < windows.count; at += at_once) {
    // The last batch is padded with ignored targets, so that all batches have the same shape and use the same kernels.
    const std::int64_t size = at_once * length, first = at * length;
    std::vector<std::int32_t> x(static_cast<std::size_t>(size), 0), y(static_cast<std::size_t>(size), ignore_index);
    const std::int64_t there = std::min(size, windows.count * length - first);
    std::copy_n(windows.inputs.begin() + first, there, x.begin());
    std::copy_n(windows.targets.begin() + first, there, y.begin());
    const Array targets = Array::from(std::span<const std::int32_t>(y), Shape{size});
    const Array logits = learner.predict(Array::from(std::span<const std::int32_t>(x), Shape{at_once, length}))
                             .reshape({size, -1})
                             .eval();
    out.loss +=
        cross_entropy(logits, targets, {.ignore_index = ignore_index, .reduction = Reduction::sum}).item<float>();
    right += sum((argmax(logits, 1).astype(DType::i32) == targets).astype(DType::f32)).item<float>();
  }
  out.loss /= static_cast<double>(windows.counted);
  out.accuracy = right / static_cast<double>(windows.counted);
  return out;
}

void write_lm(const LlamaNetwork& network, std::int64_t context, const TrainedTokenizer& tokenizer,
              const std::filesystem::path& path, const LlamaFileOptions& options) {
  const LlamaShape& s = network.shape;
  const std::int64_t size = s.head_size(), queries = s.heads * size, keys = s.key_heads * size;
  LlamaConfig config;
  config.context_length = context;
  config.width = s.width, config.layers = s.layers, config.hidden = s.hidden;
  config.heads = s.heads, config.key_heads = s.key_heads, config.head_size = size, config.vocabulary = s.vocabulary;
  config.norm_epsilon = static_cast<float>(s.norm_epsilon);
  config.rotary.base = static_cast<float>(s.rotary_base);
  LlamaArrays arrays{.embedding = network.embedding.weight, .layers = {}, .output_norm = network.norm.weight};
  for (const LlamaBlock& b : network.blocks)
    arrays.layers.push_back({.attention_norm = b.attention_norm.weight,
                             .query = b.qkv.weight.slice(0, 0, queries),
                             .key = b.qkv.weight.slice(0, queries, queries + keys),
                             .value = b.qkv.weight.slice(0, queries + keys, queries + 2 * keys),
                             .attention_output = b.out.weight,
                             .feed_forward_norm = b.inner_norm.weight,
                             .gate = b.gate_up.weight.slice(0, 0, s.hidden),
                             .up = b.gate_up.weight.slice(0, s.hidden, 2 * s.hidden),
                             .down = b.down.weight});
  write_llama(path, config, arrays, tokenizer, options);
}

std::string suggest_option_to_lower(const LlamaShape& s, std::int64_t batch, std::int64_t context) {
  const auto d = [](std::int64_t n) { return static_cast<double>(n); };
  // Numbers per token that are stored for the backward pass: three times the logits, and the inputs, norms, products
  // and activations of each layer.
  const double token = 3 * d(s.vocabulary) + d(s.layers) * (10 * d(s.width) + 5 * d(s.hidden));
  const double weights = d(s.vocabulary) * d(s.width) + d(s.layers) * d(s.width) * (3 * d(s.width) + 3 * d(s.hidden));
  if (token * d(batch) * d(context) > 4 * weights) {
    if (batch > 1) return fmt::format("--batch (now {})", batch);
    return fmt::format("--ctx (now {})", context);
  }
  return d(s.vocabulary) * d(s.width) > weights / 2
             ? fmt::format("--vocabulary (now {})", s.vocabulary)
             : fmt::format("--width (now {}), --hidden (now {}) or --layers (now {})", s.width, s.hidden, s.layers);
}

}  // namespace tessera::app
