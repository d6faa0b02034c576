// SPDX-License-Identifier: Apache-2.0
// Runs a small model of each architecture on every device and compares it with the logits of transformers in float64
// and of llama.cpp (tools/make_architecture_cases.py). The model files are generated here: metadata and shapes are
// those that llama.cpp's converter wrote, and the weights follow a formula that the tool verified there.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tessera/llm/decoder.h"
#include "tessera/llm/gguf_values.h"
#include "tessera/llm/gguf_writer.h"
#include "tests/llm/architecture_values.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"

namespace tessera {
namespace {

using test::expect_contains;
using test::OnEveryDevice;
using test::text_of;
TESSERA_ON_EVERY_DEVICE();

using nlohmann::json;

const json& figures() {
  static const json all = json::parse(std::ifstream("tests/data/architectures.json"));
  return all;
}

/// Returns 16 bits for each of `count` elements: splitmix64 (Steele, Lea and Flood 2014), seeded with the FNV-1a hash
/// of the name.
std::vector<std::uint32_t> bits_of(const std::string& name, std::size_t count) {
  std::uint64_t state = 0xcbf29ce484222325;
  for (const char c : name) state = (state ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  std::vector<std::uint32_t> out(count);
  for (std::uint32_t& v : out) {
    std::uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    v = static_cast<std::uint32_t>((z ^ z >> 31) >> 48);
  }
  return out;
}

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

std::vector<float> weights_of(const std::string& name, const std::vector<std::uint64_t>& dims) {
  std::size_t count = 1;
  for (const std::uint64_t d : dims) count *= d;
  std::vector<float> out;
  for (const std::uint32_t b : bits_of(name, count)) {
    const float u = (static_cast<float>(b) - 32768) / 32768;
    if (ends_with(name, "norm.weight"))
      out.push_back(1 + u / 4);
    else if (ends_with(name, ".bias"))
      out.push_back(u / 4);
    else if (name == "token_embd.weight")
      out.push_back(u);
    else  // divided by about the square root of the number of columns
      out.push_back(
          std::ldexp(u, (name.find("attn_q.weight") != std::string::npos ? 1 : 0) - (std::bit_width(dims[0]) - 1) / 2));
  }
  return out;
}

/// The file of a case; the key `replaced` gets the value `instead`.
GgufWriter writer_of(const json& c, const std::string& replaced = {}, const GgufValue& instead = {}) {
  GgufWriter w;
  for (const json& k : c["keys"]) {
    const auto key = k[0].get<std::string>();
    w.set(key, key == replaced ? instead : test::value_of(k[1].get<std::string>(), k[2]));
  }
  for (const json& t : c["tensors"]) {
    const auto name = t[0].get<std::string>();
    const auto dims = t[1].get<std::vector<std::uint64_t>>();
    w.add_tensor(name, dims, t.size() > 2 ? t[2].get<std::vector<float>>() : weights_of(name, dims));
  }
  return w;
}

std::vector<std::int32_t> tokens_of(const json& c) {
  std::vector<std::int32_t> out;
  for (const std::uint32_t b : bits_of("tokens", c["tokens"].get<std::size_t>()))
    out.push_back(static_cast<std::int32_t>(b % figures()["vocabulary"].get<std::uint32_t>()));
  return out;
}

/// The largest difference, relative to the range of `want`.
double apart(std::span<const float> got, const std::vector<double>& want) {
  const auto [low, high] = std::minmax_element(want.begin(), want.end());
  double worst = got.size() == want.size() ? 0 : 1e9;
  for (std::size_t i = 0; i < got.size() && i < want.size(); ++i) {
    const double d = std::fabs(static_cast<double>(got[i]) - want[i]) / (*high - *low);
    worst = d <= worst ? worst : std::isnan(d) ? 1e9 : d;
  }
  return worst;
}

TEST_P(OnEveryDevice, EveryArchitectureMatchesTransformersAndLlamaCpp) {
  constexpr double bound = 1e-5;
  for (const json& c : figures()["cases"]) {
    const auto name = c["name"].get<std::string>();
    SCOPED_TRACE(name);
    const auto bytes = writer_of(c).bytes();
    const Llama model = Llama::load(GgufFile::parse(bytes, name), GetParam());
    const auto tokens = tokens_of(c);
    const auto context = c["context"].get<std::int64_t>();
    const auto at = c["at"].get<std::vector<std::size_t>>();
    const auto want = c["transformers"].get<std::vector<std::vector<double>>>();
    const std::size_t vocabulary = want[0].size();
    double worst = 0, llama_cpp = 0;
    const auto expect = [&](const std::vector<float>& got, std::size_t which, const char* how) {
      const double far = apart(got, want[which]);
      EXPECT_LE(far, bound) << how << ", after token " << at[which];
      worst = std::max(worst, far);
    };
    {
      KeyValueCache cache = model.make_cache(context, DType::f32);
      const auto all = model.forward(tokens, cache, true).to_vector<float>();
      for (std::size_t i = 0; i < at.size(); ++i) {
        const auto row = all.begin() + static_cast<std::ptrdiff_t>(at[i] * vocabulary);
        const std::vector<float> got(row, row + static_cast<std::ptrdiff_t>(vocabulary));
        expect(got, i, "at once");
        if (i + 1 < at.size() || c["llama.cpp"].is_null()) continue;
        llama_cpp = apart(got, c["llama.cpp"].get<std::vector<double>>());
        EXPECT_LE(llama_cpp, c["llama.cpp bound"].get<double>()) << "compared with llama.cpp";
      }
    }
    {  // some tokens together, then one by one, then recorded steps
      KeyValueCache cache = model.make_cache(context, DType::f32);
      const auto first = std::span(tokens).first(at[0]);
      model.forward(first.first(3), cache);
      expect(model.forward(std::span(tokens).subspan(3, at[0] - 2), cache).to_vector<float>(), 0, "in two parts");
      Decoder decoder(model, cache);
      const std::size_t end = tokens.size(), begin = std::max(at[0] + 1, end - std::min<std::size_t>(end, 20));
      if (begin > at[0] + 1) model.forward(std::span(tokens).subspan(at[0] + 1, begin - at[0] - 1), cache);
      std::vector<float> last;
      for (std::size_t t = begin; t < end; ++t) last = decoder.step(tokens[t]).to_vector<float>();
      expect(last, at.size() - 1, "token by token");
      EXPECT_TRUE(decoder.sequence().valid());
    }
    std::printf("%-16s %.1e of the range, %.1e compared with llama.cpp\n", name.c_str(), worst, llama_cpp);
  }
}

TEST(Architectures, RejectUnknownKeysTensorsAndArchitectures) {
  for (const json& c : figures()["cases"]) {
    const auto name = c["name"].get<std::string>();
    SCOPED_TRACE(name);
    const auto prefix = c["keys"][0][2].get<std::string>() + ".";
    const auto refused = [&](const GgufWriter& w) {
      const auto bytes = w.bytes();
      const GgufFile file = GgufFile::parse(bytes, name);
      return text_of<FormatError>([&] { read_llama_config(file); });
    };
    for (const std::string key : {"attention.new", "rope.dimension_parts", "expert_count"})
      expect_contains(refused(writer_of(c).set(prefix + key, std::uint32_t{3})), {name, prefix + key});
    for (const std::string tensor : {"blk.0.attn_sinks.weight", "blk.1.ffn_gate_exps.weight", "output.scale"})
      expect_contains(refused(writer_of(c).add_tensor(tensor, {4}, std::vector<float>(4))), {name, tensor});
    const std::string key = "general.architecture";
    expect_contains(refused(writer_of(c, key, std::string("mamba"))),
                    {name, key, "mamba", "gemma2", "recurrent layers"});
    expect_contains(refused(writer_of(c, key, std::string("qwen3moe"))), {name, key, "qwen3moe", "experts"});
    expect_contains(refused(writer_of(c, key, std::string("nonesuch"))), {name, key, "nonesuch", "mistral3"});
  }
}

TEST(Architectures, RejectInvalidRotarySections) {
  for (const json& c : figures()["cases"]) {
    const auto name = c["name"].get<std::string>();
    if (name != "Qwen 3 VL" && name != "Qwen 2.5 VL") continue;
    const std::string key = c["keys"][0][2].get<std::string>() + ".rope.dimension_sections";
    const auto with = [&](std::vector<std::int32_t> sections) {
      const auto bytes = writer_of(c, key, GgufArray{std::move(sections)}).bytes();
      return text_of<FormatError>([&] { read_llama_config(GgufFile::parse(bytes, name)); });
    };
    for (const auto& wrong : {std::vector{1, 1, 1, 5}, {1, 1, 1, 0}, {9, 9, 9, 0}, {-1, 3, 2}, {2, 1, 1, 0, 0}, {}})
      expect_contains(with(wrong), {name, key});
  }
}

// As in gemma_pytorch's config.py and llama.cpp's gemma2.cpp and gemma3.cpp; files have no key for it.
TEST(Architectures, OnlyLargestGemmaModelsScaleScoresByWidthOverHeads) {
  int seen = 0;
  for (const json& c : figures()["cases"]) {
    const auto architecture = c["keys"][0][2].get<std::string>();
    const std::uint32_t largest = architecture == "gemma2" ? 46 : architecture == "gemma3" ? 62 : 0;
    if (largest == 0) continue;
    for (const std::uint32_t layers : {26u, 34u, 42u, 46u, 48u, 62u}) {
      GgufWriter w;
      for (const json& k : c["keys"]) {
        const auto key = k[0].get<std::string>();
        if (key == architecture + ".block_count")
          w.set(key, layers);
        else if (key != architecture + ".attention.sliding_window_pattern")
          w.set(key, test::value_of(k[1].get<std::string>(), k[2]));
      }
      w.add_tensor("token_embd.weight", {32, 64}, std::vector<float>(32 * 64));
      const auto bytes = w.bytes();
      const LlamaConfig config = read_llama_config(GgufFile::parse(bytes, "gemma"));
      ASSERT_NE(config.width / config.heads, config.head_size);
      const auto by = static_cast<float>(layers == largest ? config.width / config.heads : config.head_size);
      EXPECT_EQ(config.attention_scale, 1 / std::sqrt(by)) << architecture << ", " << layers;
      ++seen;
    }
  }
  EXPECT_EQ(seen, 12);
}

TEST(Architectures, AcceptKeyHeadsAsArrayOfEqualNumbers) {
  for (const json& c : figures()["cases"]) {
    const auto name = c["name"].get<std::string>();
    const std::string key = c["keys"][0][2].get<std::string>() + ".attention.head_count_kv";
    std::uint32_t heads = 0, layers = 0;
    for (const json& k : c["keys"]) {
      if (k[0] == key) heads = k[2].get<std::uint32_t>();
      if (ends_with(k[0].get<std::string>(), ".block_count")) layers = k[2].get<std::uint32_t>();
    }
    ASSERT_GT(heads, 0u) << name;
    std::vector<std::uint32_t> each(layers, heads);
    const auto equal = writer_of(c, key, GgufArray{each}).bytes();
    EXPECT_EQ(read_llama_config(GgufFile::parse(equal, name)).key_heads, heads) << name;
    each.back() = heads + 1;
    const auto other = writer_of(c, key, GgufArray{each}).bytes();
    expect_contains(text_of<FormatError>([&] { read_llama_config(GgufFile::parse(other, name)); }),
                    {name, key, "differ"});
  }
}

}  // namespace
}  // namespace tessera
