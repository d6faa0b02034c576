// SPDX-License-Identifier: Apache-2.0
// Metadata keys as https://github.com/ggml-org/ggml/blob/master/docs/gguf.md names them.
#include <fmt/format.h>

#include "tessera/llm/llama.h"

namespace tessera {

namespace {

class ConfigReader {
 public:
  explicit ConfigReader(const GgufFile& file) : file_(file) {}

  LlamaConfig read() {
    LlamaConfig c;
    c.architecture = file_.get<std::string>("general.architecture");
    if (c.architecture == "qwen2")
      c.rotary.pairs = RotaryPairs::halves;
    else if (c.architecture != "llama")
      bad("general.architecture", quote_text(c.architecture) + " is not an architecture that Tessera runs",
          "It runs llama and qwen2");
    prefix_ = c.architecture + ".";
    c.name = file_.get_or<std::string>("general.name", file_.name());
    c.context_length = count("context_length", 1 << 30);
    c.width = count("embedding_length", 1 << 20);
    c.layers = count("block_count", 4096);
    c.hidden = count("feed_forward_length", 1 << 22);
    c.heads = count("attention.head_count", 4096);
    c.key_heads = file_.has(prefix_ + "attention.head_count_kv") ? count("attention.head_count_kv", 4096) : c.heads;
    if (c.heads % c.key_heads != 0)
      bad(prefix_ + "attention.head_count_kv", "the heads are not a multiple of the key heads", "");
    if (!file_.has(prefix_ + "attention.key_length") && c.width % c.heads != 0)
      bad(prefix_ + "attention.head_count", "the width is not a multiple of the heads, and no key_length is given", "");
    c.head_size = file_.has(prefix_ + "attention.key_length") ? count("attention.key_length", 4096) : c.width / c.heads;
    if (file_.has(prefix_ + "attention.value_length") && count("attention.value_length", 4096) != c.head_size)
      bad(prefix_ + "attention.value_length", "values of another size than keys are not supported", "");
    c.norm_epsilon = file_.get_or<float>(prefix_ + "attention.layer_norm_rms_epsilon", 1e-5f);
    if (!(c.norm_epsilon >= 1e-30f && c.norm_epsilon <= 1.0f))  // below, the root of a row of zeros is divided by 0
      bad(prefix_ + "attention.layer_norm_rms_epsilon",
          fmt::format("{}", c.norm_epsilon) + " is not a number above 0 and up to 1", "");
    c.rotary.dimensions =
        file_.has(prefix_ + "rope.dimension_count") ? count("rope.dimension_count", 4096) : c.head_size;
    if (c.rotary.dimensions > c.head_size || c.rotary.dimensions % 2 != 0)
      bad(prefix_ + "rope.dimension_count",
          "an even number up to the head size " + std::to_string(c.head_size) + " is expected", "");
    c.rotary.base = file_.get_or<float>(prefix_ + "rope.freq_base", 10000.0f);
    if (!(c.rotary.base >= 1.0f && c.rotary.base <= 1e30f))  // frequencies of a turn or less a position
      bad(prefix_ + "rope.freq_base", fmt::format("{}", c.rotary.base) + " is not a number from 1 to 1e30", "");
    read_scaling(c);
    const GgufTensor& embedding = file_.tensor("token_embd.weight");
    c.vocabulary = embedding.dims.size() == 2 ? static_cast<std::int64_t>(embedding.dims[1]) : 0;
    c.tied = file_.find_tensor("output.weight") == nullptr;
    return c;
  }

 private:
  [[noreturn]] void bad(const std::string& key, const std::string& what, const std::string& todo) const {
    fail<FormatError>(
        {.asked = "load model", .with = {{"file", file_.name()}, {"key", key}}, .wrong = what, .todo = todo});
  }
  std::int64_t count(const std::string& key, std::int64_t most) const {
    const auto v = file_.get<std::int64_t>(prefix_ + key);
    if (v < 1 || v > most) bad(prefix_ + key, std::to_string(v) + " is not between 1 and " + std::to_string(most), "");
    return v;
  }
  void read_scaling(LlamaConfig& c) const {
    const std::string type = file_.get_or<std::string>(prefix_ + "rope.scaling.type", "none");
    if (type == "linear") {
      const float factor = file_.get<float>(prefix_ + "rope.scaling.factor");
      if (!(factor >= 1e-6f && factor <= 1e6f))
        bad(prefix_ + "rope.scaling.factor", fmt::format("{}", factor) + " is not a number from 1e-6 to 1e6", "");
      c.rotary.scale = 1.0f / factor;
    } else if (type != "none") {
      bad(prefix_ + "rope.scaling.type", quote_text(type) + " is not supported",
          "none, linear and the factors of Llama 3.1 (tensor rope_freqs.weight) are");
    }
  }

  const GgufFile& file_;
  std::string prefix_;
};

}  // namespace

LlamaConfig read_llama_config(const GgufFile& file) { return ConfigReader(file).read(); }

}  // namespace tessera
