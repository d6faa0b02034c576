// SPDX-License-Identifier: Apache-2.0
// The reference for all devices: a forward pass of Llama in double precision with dequantised weights. It follows the
// papers and does not use ops/. Also generates small models with random weights.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "tessera/llm/ggml_blocks.h"
#include "tessera/llm/gguf.h"
#include "tessera/llm/gguf_writer.h"

namespace tessera::test {

class ReferenceLlama {
 public:
  explicit ReferenceLlama(const GgufFile& file) : file_(file) {
    arch_ = file.get<std::string>("general.architecture") + ".";
    layers_ = integer("block_count"), width_ = integer("embedding_length"), heads_ = integer("attention.head_count");
    key_heads_ = file.has(arch_ + "attention.head_count_kv") ? integer("attention.head_count_kv") : heads_;
    head_ = file.has(arch_ + "attention.key_length") ? integer("attention.key_length") : width_ / heads_;
    rotated_ = file.has(arch_ + "rope.dimension_count") ? integer("rope.dimension_count") : head_;
    base_ = file.get_or<double>(arch_ + "rope.freq_base", 10000.0);
    epsilon_ = file.get_or<double>(arch_ + "attention.layer_norm_rms_epsilon", 1e-5);
    if (file.has(arch_ + "rope.scale_linear"))
      position_scale_ = 1 / file.get<double>(arch_ + "rope.scale_linear");
    else if (file.has(arch_ + "rope.scaling.factor"))
      position_scale_ = 1 / file.get<double>(arch_ + "rope.scaling.factor");
    if (file.find_tensor("rope_freqs.weight")) factors_ = values("rope_freqs.weight");
    halves_ = arch_ == "qwen2.";
  }

  /// Returns the states (tokens, width) of each token after the last norm.
  std::vector<std::vector<double>> states(const std::vector<std::int32_t>& tokens) const {
    const std::size_t n = tokens.size();
    const std::vector<double> embedding = values("token_embd.weight");
    std::vector<std::vector<double>> x(n);
    for (std::size_t t = 0; t < n; ++t) {
      const auto at = static_cast<std::size_t>(tokens[t]) * width_;
      x[t].assign(embedding.begin() + static_cast<std::ptrdiff_t>(at),
                  embedding.begin() + static_cast<std::ptrdiff_t>(at + width_));
    }
    for (std::size_t l = 0; l < layers_; ++l) {
      const std::string p = "blk." + std::to_string(l) + ".";
      const auto an = values(p + "attn_norm.weight"), fn = values(p + "ffn_norm.weight");
      const auto wq = values(p + "attn_q.weight"), wk = values(p + "attn_k.weight"), wv = values(p + "attn_v.weight"),
                 wo = values(p + "attn_output.weight");
      const FeedForward forward(*this, p);
      std::vector<std::vector<double>> q(n), k(n), v(n);
      for (std::size_t t = 0; t < n; ++t) {
        const auto h = norm(x[t], an);
        q[t] = biased(times(wq, h), p + "attn_q.bias"), k[t] = biased(times(wk, h), p + "attn_k.bias"),
        v[t] = biased(times(wv, h), p + "attn_v.bias");
        rotate(q[t], heads_, t);
        rotate(k[t], key_heads_, t);
      }
      for (std::size_t t = 0; t < n; ++t) {
        std::vector<double> seen(heads_ * head_);
        for (std::size_t head = 0; head < heads_; ++head) {
          const std::size_t key = head / (heads_ / key_heads_);
          std::vector<double> score(t + 1);
          double top = -1e300, total = 0;
          for (std::size_t s = 0; s <= t; ++s) {
            for (std::size_t d = 0; d < head_; ++d) score[s] += q[t][head * head_ + d] * k[s][key * head_ + d];
            score[s] /= std::sqrt(static_cast<double>(head_));
            top = std::max(top, score[s]);
          }
          for (double& s : score) s = std::exp(s - top), total += s;
          for (std::size_t s = 0; s <= t; ++s)
            for (std::size_t d = 0; d < head_; ++d) seen[head * head_ + d] += score[s] / total * v[s][key * head_ + d];
        }
        add(x[t], biased(times(wo, seen), p + "attn_output.bias"));
        const auto h = norm(x[t], fn);
        add(x[t], forward(h));
      }
    }
    const auto on = values("output_norm.weight");
    for (auto& row : x) row = norm(row, on);
    return x;
  }
  /// Returns the logits (tokens, vocabulary) of each token.
  std::vector<std::vector<double>> forward(const std::vector<std::int32_t>& tokens) const {
    const auto wo = values(file_.find_tensor("output.weight") ? "output.weight" : "token_embd.weight");
    std::vector<std::vector<double>> logits;
    for (const auto& row : states(tokens)) logits.push_back(times(wo, row));
    return logits;
  }

 private:
  /// A feed-forward layer, which may consist of experts.
  class FeedForward {
   public:
    FeedForward(const ReferenceLlama& model, std::string prefix) : model_(model), p_(std::move(prefix)) {
      const bool experts = model.file_.find_tensor(p_ + "ffn_gate_inp.weight");
      if (experts) router_ = model.values(p_ + "ffn_gate_inp.weight"), used_ = model.integer("expert_used_count");
      const std::string end = experts ? "_exps.weight" : ".weight";
      gate_ = model.values(p_ + "ffn_gate" + end), up_ = model.values(p_ + "ffn_up" + end);
      down_ = model.values(p_ + "ffn_down" + end);
    }
    std::vector<double> operator()(const std::vector<double>& h) const {
      if (router_.empty()) return output(h, 0, 1);
      const std::vector<double> logits = times(router_, h);
      std::vector<std::size_t> ids(logits.size());
      std::iota(ids.begin(), ids.end(), std::size_t{0});
      std::ranges::stable_sort(ids, [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
      double total = 0;
      for (std::size_t i = 0; i < used_; ++i) total += std::exp(logits[ids[i]] - logits[ids[0]]);
      std::vector<double> out(h.size());
      for (std::size_t i = 0; i < used_; ++i) {
        std::vector<double> y = output(h, ids[i], logits.size());
        for (double& v : y) v *= std::exp(logits[ids[i]] - logits[ids[0]]) / total;
        add(out, y);
      }
      return out;
    }

   private:
    /// The output of expert `i` of `count`.
    std::vector<double> output(const std::vector<double>& h, std::size_t i, std::size_t count) const {
      const auto part = [&](const std::vector<double>& all) {
        const auto size = static_cast<std::ptrdiff_t>(all.size() / count),
                   begin = static_cast<std::ptrdiff_t>(i) * size;
        return std::vector<double>(all.begin() + begin, all.begin() + begin + size);
      };
      auto gate = model_.biased(times(part(gate_), h), p_ + "ffn_gate.bias");
      const auto up = model_.biased(times(part(up_), h), p_ + "ffn_up.bias");
      for (std::size_t k = 0; k < gate.size(); ++k) gate[k] = gate[k] / (1 + std::exp(-gate[k])) * up[k];
      return model_.biased(times(part(down_), gate), p_ + "ffn_down.bias");
    }
    const ReferenceLlama& model_;
    std::string p_;
    std::vector<double> router_, gate_, up_, down_;
    std::size_t used_ = 0;
  };

  std::size_t integer(const std::string& key) const {
    return static_cast<std::size_t>(file_.get<std::int64_t>(arch_ + key));
  }
  std::vector<double> values(const std::string& name) const {
    const GgufTensor& t = file_.tensor(name);
    const auto f = ggml_to_float(t.type, file_.data(t));
    return {f.begin(), f.end()};
  }
  std::vector<double> norm(const std::vector<double>& x, const std::vector<double>& weight) const {
    double square = 0;
    for (double v : x) square += v * v;
    const double scale = 1 / std::sqrt(square / static_cast<double>(x.size()) + epsilon_);
    std::vector<double> out(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) out[i] = x[i] * scale * weight[i];
    return out;
  }
  static std::vector<double> times(const std::vector<double>& w, const std::vector<double>& x) {
    std::vector<double> out(w.size() / x.size());
    for (std::size_t r = 0; r < out.size(); ++r)
      for (std::size_t c = 0; c < x.size(); ++c) out[r] += w[r * x.size() + c] * x[c];
    return out;
  }
  std::vector<double> biased(std::vector<double> y, const std::string& name) const {
    if (file_.find_tensor(name)) add(y, values(name));
    return y;
  }
  static void add(std::vector<double>& x, const std::vector<double>& y) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }
  void rotate(std::vector<double>& x, std::size_t heads, std::size_t position) const {
    for (std::size_t h = 0; h < heads; ++h)
      for (std::size_t i = 0; i < rotated_ / 2; ++i) {
        double frequency = std::pow(base_, -2.0 * static_cast<double>(i) / static_cast<double>(rotated_));
        if (!factors_.empty()) frequency /= factors_[i];
        const double angle = static_cast<double>(position) * position_scale_ * frequency;
        double& a = x[h * head_ + (halves_ ? i : 2 * i)];
        double& b = x[h * head_ + (halves_ ? i + rotated_ / 2 : 2 * i + 1)];
        const double p = a * std::cos(angle) - b * std::sin(angle), r = a * std::sin(angle) + b * std::cos(angle);
        a = p, b = r;
      }
  }

  const GgufFile& file_;
  std::string arch_;
  std::size_t layers_, width_, heads_, key_heads_, head_, rotated_;
  double base_, epsilon_, position_scale_ = 1;
  std::vector<double> factors_;
  bool halves_;
};

/// A small model with random weights. It has 4 heads of 40 elements, 2 key heads and a width of 96, so that the head
/// size is not width / heads.
struct TinyModel {
  std::string architecture = "llama";
  GgmlType type = GgmlType::f32;
  bool tied = true, linear_scaling = false, factors = false;
  bool biases = false;  ///< adds biases to the attention output and the feed-forward layers
  std::uint64_t seed = 1;
  std::uint64_t width = 96, head = 40, hidden = 160;
  std::uint64_t experts = 0, used_experts = 0;
  std::map<std::string, GgmlType> types;  ///< types of matrices by suffix of their names; the default is `type`

  /// Returns random blocks of a type that cannot be quantised here. The scales are chosen so that the elements have
  /// mean 0 and this standard deviation.
  static std::vector<std::byte> random_blocks(GgmlType type, std::size_t elements, double deviation,
                                              std::mt19937_64& random) {
    struct Form {
      std::size_t scale, minimum;  // offsets in a block
      double unit, middle;         // standard deviation if the scale is 1, and the minimum that results in mean 0
    };
    const Form f = type == GgmlType::q4_1                                 ? Form{0, 2, 4.6, -7.5}
                   : type == GgmlType::q5_1                               ? Form{0, 2, 9.2, -15.5}
                   : type == GgmlType::q5_0                               ? Form{0, 0, 9.2, 0}
                   : type == GgmlType::q4_K                               ? Form{0, 2, 257, 7.5}
                   : type == GgmlType::q5_K                               ? Form{0, 2, 524, 15.5}
                   : type == GgmlType::q6_K                               ? Form{208, 0, 1366, 0}
                   : type == GgmlType::q2_K                               ? Form{80, 82, 13.9, 1.5}
                   : type == GgmlType::q3_K                               ? Form{108, 0, 43, 0}
                   : type == GgmlType::iq4_xs                             ? Form{0, 0, 1294, 0}
                   : type == GgmlType::iq3_xxs || type == GgmlType::iq3_s ? Form{0, 0, 145, 0}
                   : type == GgmlType::iq2_xxs || type == GgmlType::iq2_xs || type == GgmlType::iq2_s
                       ? Form{0, 0, 51, 0}
                   : type == GgmlType::iq1_s ? Form{0, 0, 7.4, 0}
                                             : Form{0, 0, 70, 0};  // iq4_nl
    const GgmlTypeInfo& info = *ggml_type_info(type);
    std::vector<std::byte> out(elements / info.block * info.bytes);
    for (std::byte& b : out) b = static_cast<std::byte>(random());
    if (type == GgmlType::mxfp4) {
      const auto exponent = static_cast<std::uint8_t>(std::lround(std::log2(deviation / 5.9)) + 128);
      for (std::size_t at = 0; at < out.size(); at += info.bytes) out[at] = static_cast<std::byte>(exponent);
      return out;
    }
    const auto put = [&](std::size_t at, double v) {
      const half h(static_cast<float>(v));
      std::memcpy(out.data() + at, &h, sizeof h);
    };
    for (std::size_t at = 0; at < out.size(); at += info.bytes) {
      put(at + f.scale, deviation / f.unit);
      if (f.minimum != 0) put(at + f.minimum, deviation / f.unit * f.middle);
    }
    return out;
  }

  GgufWriter writer() const {
    constexpr std::uint64_t heads = 4, key_heads = 2, vocabulary = 203, layers = 2;
    std::mt19937_64 random(seed);
    GgufWriter w;
    const std::string p = architecture + ".";
    auto u32 = [](std::uint64_t v) { return static_cast<std::uint32_t>(v); };
    w.set("general.architecture", architecture).set("general.name", std::string("tiny"));
    w.set(p + "context_length", u32(128)).set(p + "embedding_length", u32(width)).set(p + "block_count", u32(layers));
    w.set(p + "feed_forward_length", u32(hidden))
        .set(p + "attention.head_count", u32(heads))
        .set(p + "attention.head_count_kv", u32(key_heads));
    w.set(p + "attention.key_length", u32(head)).set(p + "attention.value_length", u32(head));
    w.set(p + "attention.layer_norm_rms_epsilon", 1e-5f).set(p + "rope.freq_base", 5000.0f);
    w.set(p + "rope.dimension_count", u32(factors ? 32 : head));
    if (experts > 0) w.set(p + "expert_count", u32(experts)).set(p + "expert_used_count", u32(used_experts));
    if (linear_scaling) w.set(p + "rope.scaling.type", std::string("linear")).set(p + "rope.scaling.factor", 2.0f);
    // As in trained models, branches are smaller than the residual stream, and attention scores are moderate.
    auto matrix = [&](const std::string& name, std::uint64_t rows, std::uint64_t columns, float gain = 0.5f,
                      std::uint64_t count = 0) {
      const std::vector<std::uint64_t> dims =
          count > 0 ? std::vector{columns, rows, count} : std::vector{columns, rows};
      rows *= std::max<std::uint64_t>(count, 1);
      GgmlType as = type;
      for (const auto& [end, t] : types)
        if (name.ends_with(end)) as = t;
      const float deviation = gain / std::sqrt(static_cast<float>(columns));
      if (as != GgmlType::f32 && as != GgmlType::f16 && as != GgmlType::bf16 && as != GgmlType::q8_0 &&
          as != GgmlType::q4_0) {
        w.add_tensor(name, dims, as, random_blocks(as, rows * columns, deviation, random));
        return;
      }
      std::normal_distribution<float> d(0, deviation);
      std::vector<float> v(rows * columns);
      for (float& f : v) f = d(random);
      w.add_tensor(name, dims, as, ggml_from_float(as, v));
    };
    auto vector = [&](const std::string& name, std::uint64_t n, float middle, float spread) {
      std::uniform_real_distribution<float> d(middle - spread, middle + spread);
      std::vector<float> v(n);
      for (float& f : v) f = d(random);
      w.add_tensor(name, {n}, v);
    };
    matrix("token_embd.weight", vocabulary, width, 1);
    for (std::uint64_t i = 0; i < layers; ++i) {
      const std::string b = "blk." + std::to_string(i) + ".";
      vector(b + "attn_norm.weight", width, 1, 0.2f);
      matrix(b + "attn_q.weight", heads * head, width);
      matrix(b + "attn_k.weight", key_heads * head, width);
      matrix(b + "attn_v.weight", key_heads * head, width);
      if (architecture == "qwen2") {
        vector(b + "attn_q.bias", heads * head, 0, 0.3f);
        vector(b + "attn_k.bias", key_heads * head, 0, 0.3f);
        vector(b + "attn_v.bias", key_heads * head, 0, 0.3f);
      }
      matrix(b + "attn_output.weight", width, heads * head);
      vector(b + "ffn_norm.weight", width, 1, 0.2f);
      if (experts > 0) {
        matrix(b + "ffn_gate_inp.weight", experts, width, 2);
        matrix(b + "ffn_gate_exps.weight", hidden, width, 0.5f, experts);
        matrix(b + "ffn_up_exps.weight", hidden, width, 0.5f, experts);
        matrix(b + "ffn_down_exps.weight", width, hidden, 0.5f, experts);
        continue;
      }
      matrix(b + "ffn_gate.weight", hidden, width);
      matrix(b + "ffn_up.weight", hidden, width);
      matrix(b + "ffn_down.weight", width, hidden);
      if (!biases) continue;
      vector(b + "attn_output.bias", width, 0, 0.3f);
      vector(b + "ffn_gate.bias", hidden, 0, 0.3f);
      vector(b + "ffn_up.bias", hidden, 0, 0.3f);
      vector(b + "ffn_down.bias", width, 0, 0.3f);
    }
    vector("output_norm.weight", width, 1, 0.2f);
    if (!tied) matrix("output.weight", vocabulary, width, 1);
    if (factors) vector("rope_freqs.weight", 16, 2, 1);
    return w;
  }
};

}  // namespace tessera::test
