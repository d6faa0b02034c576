// SPDX-License-Identifier: Apache-2.0
// Models with recurrent layers (LFM2, Qwen 3.5): states of one text and of many, going back, and preemption. The models
// are those of tests/data/architectures.json with some dimensions replaced, so that all matrices can be Q8_0. On the
// CPU, their logits have the same bits however tokens are divided into steps. Their logits are compared with those of
// transformers in architectures_test.
#include <gtest/gtest.h>

#include <future>
#include <map>

#include "tessera/llm/decoder.h"
#include "tessera/llm/ggml_blocks.h"
#include "tessera/llm/gguf_writer.h"
#include "tessera/llm/language_model.h"
#include "tessera/llm/paged_cache.h"
#include "tessera/llm/scheduler.h"
#include "tests/llm/architecture_values.h"
#include "tests/support/errors.h"

namespace tessera {
namespace {

using nlohmann::json;
using Tokens = std::vector<std::int32_t>;
using Floats = std::vector<float>;
constexpr Device cpu{Backend::cpu, 0};
constexpr std::int64_t context = 300;

std::uint64_t larger(std::uint64_t n) {
  static const std::map<std::uint64_t, std::uint64_t> dims = {{48, 64}, {80, 96}, {6, 8}};
  const auto found = dims.find(n);
  return found == dims.end() ? n : found->second;
}

std::vector<std::byte> file_of(const json& c) {
  GgufWriter w;
  for (const json& k : c["keys"]) {
    const json value = k[2].is_number_unsigned() ? json(larger(k[2].get<std::uint64_t>())) : k[2];
    w.set(k[0].get<std::string>(), test::value_of(k[1].get<std::string>(), value));
  }
  std::vector<std::string> tokens;
  for (int i = 0; i < 64; ++i) tokens.push_back("t" + std::to_string(i));
  w.set("tokenizer.ggml.model", std::string("gpt2")).set("tokenizer.ggml.pre", std::string("gpt-2"));
  w.set("tokenizer.ggml.tokens", GgufArray{tokens}).set("tokenizer.ggml.merges", GgufArray{std::vector<std::string>()});
  w.set("tokenizer.ggml.token_type", GgufArray{std::vector<std::int32_t>(64, 1)});
  for (const json& t : c["tensors"]) {
    const auto name = t[0].get<std::string>();
    auto dims = t[1].get<std::vector<std::uint64_t>>();
    for (std::uint64_t& d : dims) d = larger(d);
    Floats values = test::weights_of(name, dims);
    if (test::ends_with(name, "ssm_a"))
      for (float& v : values) v = -0.5f - v * v;
    const bool matrix = dims.size() == 2 && dims[0] % 32 == 0;
    if (matrix)
      w.add_tensor(name, dims, GgmlType::q8_0, ggml_from_float(GgmlType::q8_0, values));
    else
      w.add_tensor(name, dims, values);
  }
  return w.bytes();
}

class RecurrentModels : public ::testing::TestWithParam<const char*> {
 protected:
  RecurrentModels() {
    for (const json& c : test::figures()["cases"])
      if (c["name"] == GetParam()) bytes_ = file_of(c);
  }
  LanguageModel model() {
    return LanguageModel::load(GgufFile::parse(bytes_, GetParam()), LoadOptions{.devices = {cpu}});
  }
  static Tokens text(std::size_t count, const char* name) {
    Tokens out;
    for (const std::uint32_t b : test::bits_of(name, count)) out.push_back(static_cast<std::int32_t>(b % 64));
    return out;
  }
  static Floats read(const Llama& m, PagedCache& cache, PagedCache::Sequence& sequence,
                     std::span<const std::int32_t> tokens) {
    EXPECT_TRUE(cache.reserve(sequence, std::ssize(tokens)));
    const SequencePiece piece{&sequence, tokens};
    return m.forward(std::span(&piece, 1), cache).to_vector<float>();
  }

 private:
  std::vector<std::byte> bytes_;
};
INSTANTIATE_TEST_SUITE_P(Models, RecurrentModels, ::testing::Values("LFM2", "Qwen 3.5"),
                         [](const auto& info) { return info.param[0] == 'L' ? "Lfm2" : "Qwen35"; });

TEST_P(RecurrentModels, LogitsOfASequenceDoNotDependOnOtherSequencesOrSteps) {
  const LanguageModel whole = model();
  const Llama& m = whole.model();
  const Tokens one = text(150, "one"), two = text(90, "two");
  PagedCache cache(m.config(), 12, m.layer_devices(), context);
  Floats expected;
  {
    PagedCache::Sequence alone = cache.open();
    for (const std::int32_t t : one) expected = read(m, cache, alone, std::span(&t, 1));
  }
  PagedCache::Sequence a = cache.open(), b = cache.open();  // one of them gets the slots of `alone`
  EXPECT_EQ(cache.share(a, one), 0);
  Floats of_a;
  for (const auto& [end_a, end_b] : {std::pair(3, 1), {70, 2}, {71, 50}, {149, 60}, {150, 90}}) {
    const auto part = [](const Tokens& t, const PagedCache::Sequence& s, int end) {
      return std::span(t).subspan(static_cast<std::size_t>(s.length()), static_cast<std::size_t>(end - s.length()));
    };
    const SequencePiece pieces[] = {{&b, part(two, b, end_b), false}, {&a, part(one, a, end_a)}};
    for (const SequencePiece& p : pieces) ASSERT_TRUE(cache.reserve(*p.sequence, std::ssize(p.tokens)));
    of_a = m.forward(pieces, cache).to_vector<float>();
  }
  EXPECT_EQ(of_a, expected);
  KeyValueCache own = m.make_cache(context);  // computes attention with another kernel
  const Floats of_one = m.forward(one, own).to_vector<float>();
  for (std::size_t i = 0; i < of_one.size(); ++i) EXPECT_NEAR(of_one[i], expected[i], 0.05) << i;
}

TEST_P(RecurrentModels, ForksContinueIndependently) {
  const LanguageModel whole = model();
  const Llama& m = whole.model();
  const Tokens begin = text(70, "begin"), first = text(20, "first"), second = text(20, "second");
  PagedCache cache(m.config(), 12, m.layer_devices(), context);
  PagedCache::Sequence a = cache.open(), expected = cache.open();
  read(m, cache, a, begin), read(m, cache, expected, begin);
  PagedCache::Sequence b = cache.fork(a);
  const Floats of_a = read(m, cache, a, first);
  const Floats of_b = read(m, cache, b, second);
  EXPECT_NE(of_a, of_b);
  EXPECT_EQ(read(m, cache, expected, second), of_b);
}

TEST_P(RecurrentModels, CacheGoesBackToTheStateBeforeTheLastStep) {
  const LanguageModel whole = model();
  const Llama& m = whole.model();
  const Tokens tokens = text(40, "one");
  KeyValueCache cache = m.make_cache(64);
  m.forward(std::span(tokens).first(20), cache);
  const Floats before = m.forward(std::span(tokens).subspan(20), cache).to_vector<float>();
  EXPECT_EQ(cache.truncate(40), 40);
  EXPECT_EQ(cache.truncate(20), 20);
  EXPECT_EQ(m.forward(std::span(tokens).subspan(20), cache).to_vector<float>(), before);
  cache.grow(128);
  Decoder decoder(m, cache), unrecorded(m, cache, false);
  Floats steps[2];
  for (int i = 0; i < 6; ++i) {  // each step is dropped and repeated
    steps[0] = decoder.step(tokens[static_cast<std::size_t>(i)]).to_vector<float>();
    EXPECT_EQ(cache.truncate(40 + i), 40 + i);
    steps[1] = unrecorded.step(tokens[static_cast<std::size_t>(i)]).to_vector<float>();
    EXPECT_EQ(steps[0], steps[1]) << i;
  }
  EXPECT_TRUE(decoder.sequence().valid());
  cache.grow(256);  // reallocates keys and values
  steps[0] = decoder.step(tokens[6]).to_vector<float>();
  EXPECT_EQ(cache.truncate(46), 46);
  EXPECT_EQ(unrecorded.step(tokens[6]).to_vector<float>(), steps[0]);
  EXPECT_EQ(cache.truncate(30), 0);  // this state does not exist
  m.forward(std::span(tokens).first(20), cache);
  EXPECT_EQ(m.forward(std::span(tokens).subspan(20), cache).to_vector<float>(), before);
}

TEST_P(RecurrentModels, StatesAreUnchangedIfTheyCannotGrow) {
  const LanguageModel whole = model();
  const Llama& m = whole.model();
  RecurrentStates states(m.config(), 64, m.layer_devices());
  const std::uint64_t before = states.bytes();
  // The last layer's states do not fit. A fresh slot count makes sizes that no cached buffer has.
  set_memory_limit(cpu, memory_stats(cpu).live_bytes + 64 * RecurrentStates::slot_bytes(m.config()) * 9 / 8);
  EXPECT_THROW(states.grow(96), OutOfMemory);
  set_memory_limit(cpu, 0);
  EXPECT_EQ(states.slots(), 64);
  EXPECT_EQ(states.bytes(), before);
  states.grow(96);
  EXPECT_EQ(states.slots(), 96);
  EXPECT_EQ(states.bytes(), before / 64 * 96);
}

/// Three texts run at the same time in memory for two of them, so that one is preempted and read again.
TEST_P(RecurrentModels, TextsOfTheSchedulerEqualThoseOfGenerate) {
  const LanguageModel m = model();
  SchedulerOptions options{.context = 200, .parallel = 3, .pages = 5, .batch = 48};
  Scheduler scheduler(m, options);
  std::vector<std::future<std::vector<TokenId>>> texts;
  std::vector<TextRequest> requests;
  const auto sampling = SamplerOptions{.temperature = 0};
  for (const char* name : {"one", "two", "three"}) {
    auto done = std::make_shared<std::promise<std::vector<TokenId>>>();
    auto all = std::make_shared<std::vector<TokenId>>();
    texts.push_back(done->get_future());
    TextRequest r;
    r.prompts = {text(50, name)}, r.sampling = sampling, r.max_tokens = 60;
    r.on_event = [=](std::int64_t, const TextEvent& event) {
      if (const auto* piece = std::get_if<TextPiece>(&event))
        all->insert(all->end(), piece->tokens.begin(), piece->tokens.end());
      if (std::holds_alternative<TextEnded>(event)) done->set_value(*all);
      if (const auto* failed = std::get_if<TextFailed>(&event))
        done->set_exception(std::make_exception_ptr(std::runtime_error(failed->message)));
    };
    scheduler.submit(std::move(r));
  }
  // The same tokens, alone in pages.
  std::size_t i = 0;
  for (const char* name : {"one", "two", "three"}) {
    PagedCache cache(m.model().config(), 4, m.model().layer_devices(), 200);
    PagedCache::Sequence s = cache.open();
    std::vector<TokenId> expected;
    Floats logits = read(m.model(), cache, s, text(50, name));
    for (int n = 0; n < 60; ++n) {
      expected.push_back(static_cast<TokenId>(std::ranges::max_element(logits) - logits.begin()));
      logits = read(m.model(), cache, s, std::span(&expected.back(), 1));
    }
    EXPECT_EQ(texts[i++].get(), expected) << name;
  }
  EXPECT_GT(scheduler.statistics().preempted, 0);
}

}  // namespace
}  // namespace tessera
