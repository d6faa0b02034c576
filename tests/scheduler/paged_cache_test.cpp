// SPDX-License-Identifier: Apache-2.0
// A KV cache of many sequences: their logits do not depend on the batch, and pages are shared, copied and released.
#include "tessera/llm/paged_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <random>
#include <tuple>

#include "tessera/llm/batch_decoder.h"
#include "tests/llm/reference_llama.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"

namespace tessera {
namespace {

using ops::page_positions;
using test::expect_throw;
using test::OnEveryDevice;
using test::TinyModel;
using Tokens = std::vector<std::int32_t>;
TESSERA_ON_EVERY_DEVICE();

constexpr std::int64_t context = 400;

Llama tiny_model(GgmlType type, Device device, const std::map<std::string, GgmlType>& others = {},
                 std::uint64_t experts = 0) {
  TinyModel tiny{.type = type, .tied = false, .seed = testing::seed(), .types = others};
  tiny.experts = experts, tiny.used_experts = 2;
  tiny.width = 256, tiny.head = 64;
  const auto bytes = tiny.writer().bytes();
  return Llama::load(GgufFile::parse(bytes, "tiny"), device);
}

Tokens some_tokens(std::int64_t count, std::mt19937_64& random) {
  Tokens tokens(static_cast<std::size_t>(count));
  for (std::int32_t& t : tokens) t = static_cast<std::int32_t>(random() % 203);
  return tokens;
}

std::vector<float> read(const Llama& model, PagedCache& cache, PagedCache::Sequence& sequence,
                        std::span<const std::int32_t> tokens) {
  EXPECT_TRUE(cache.reserve(sequence, static_cast<std::int64_t>(tokens.size())));
  const SequencePiece piece{&sequence, tokens};
  return model.forward(std::span(&piece, 1), cache).to_vector<float>();
}

/// The logits after each of the last tokens of a text.
using Logits = std::vector<std::vector<float>>;
constexpr std::size_t last = 12;

Logits alone(const Llama& model, const Tokens& text, DType dtype) {
  PagedCache cache(model.config(), 16, model.layer_devices(), context, dtype);
  PagedCache::Sequence sequence = cache.open();
  Logits logits = {read(model, cache, sequence, std::span(text).first(text.size() - last + 1))};
  for (std::size_t i = text.size() - last + 1; i < text.size(); ++i)
    logits.push_back(read(model, cache, sequence, std::span(text).subspan(i, 1)));
  return logits;
}

/// Other devices use kernels for products that depend on the number of tokens.
TEST(PagesOnTheCpu, LogitsOfASequenceDoNotDependOnTheBatch) {
  const Device cpu{Backend::cpu};
  std::mt19937_64 random{testing::seed()};
  using Others = std::map<std::string, GgmlType>;
  const std::tuple<GgmlType, Others, std::uint64_t, DType> models[] = {
      {GgmlType::q8_0, {}, 0, DType::i8},
      {GgmlType::q4_0, {{"gate_inp.weight", GgmlType::f32}, {"up_exps.weight", GgmlType::q8_0}}, 6, DType::f16},
      {GgmlType::q4_K,
       {{"output.weight", GgmlType::q6_K}, {"attn_v.weight", GgmlType::q5_K}, {"down.weight", GgmlType::q8_0}},
       0,
       DType::f16}};
  for (const auto& [type, others, experts, dtype] : models) {
    const Llama model = tiny_model(type, cpu, others, experts);
    std::vector<Tokens> texts;
    const Tokens prefix = some_tokens(130, random);
    for (int s = 0; s < 6; ++s) {
      texts.push_back(s < 3 ? prefix : Tokens());
      const Tokens more = some_tokens(14 + static_cast<std::int64_t>(random() % 90), random);
      texts.back().insert(texts.back().end(), more.begin(), more.end());
    }
    std::vector<Logits> expected;
    for (const Tokens& text : texts) expected.push_back(alone(model, text, dtype));
    PagedCache cache(model.config(), 30, model.layer_devices(), context, dtype);
    for (const bool again : {false, true}) {  // the second time, sequences share pages of the first
      std::vector<PagedCache::Sequence> sequences;
      std::vector<Logits> got(texts.size());
      for (const Tokens& text : texts) {
        sequences.push_back(cache.open());
        const std::int64_t shared = cache.share(sequences.back(), std::span(text).first(text.size() - last + 1));
        EXPECT_EQ(shared, again ? (std::ssize(text) - std::ssize(expected[0])) / page_positions * page_positions : 0);
      }
      for (bool reading = true; std::exchange(reading, false);) {
        std::vector<SequencePiece> pieces;
        std::vector<std::size_t> of;
        for (std::size_t s = 0; s < texts.size(); ++s) {
          const auto done = static_cast<std::size_t>(sequences[s].length()), most = texts[s].size() - last + 1;
          if (done == texts[s].size()) continue;
          reading = true;
          if (random() % 4 == 0) continue;
          const std::size_t count = done < most ? std::min<std::size_t>(most - done, 1 + random() % 50) : 1;
          pieces.push_back({&sequences[s], std::span(texts[s]).subspan(done, count), done + count >= most});
          ASSERT_TRUE(cache.reserve(sequences[s], static_cast<std::int64_t>(count)));
          if (pieces.back().logits) of.push_back(s);
        }
        const Array logits = model.forward(pieces, cache);
        for (std::size_t i = 0; i < of.size(); ++i)
          got[of[i]].push_back(
              logits.slice(0, static_cast<std::int64_t>(i), static_cast<std::int64_t>(i) + 1).to_vector<float>());
      }
      for (std::size_t s = 0; s < texts.size(); ++s) {
        ASSERT_EQ(got[s].size(), last);
        for (std::size_t i = 0; i < last; ++i)
          EXPECT_EQ(got[s][i], expected[s][i]) << ggml_type_info(type)->name << ", text " << s << ", token " << i;
      }
    }
    EXPECT_EQ(cache.free_pages(), cache.pages());
  }
}

TEST_P(OnEveryDevice, StatesMatchTheReference) {
  TinyModel tiny{.type = GgmlType::f32, .tied = false, .seed = testing::seed()};
  tiny.width = 256, tiny.head = 64;
  const auto bytes = tiny.writer().bytes();
  const GgufFile file = GgufFile::parse(bytes, "tiny");
  const Llama model = Llama::load(file, GetParam());
  PagedCache cache(model.config(), 8, model.layer_devices(), context, DType::f32);
  const Tokens text = some_tokens(70, random), other = some_tokens(30, random);
  const auto expected = test::ReferenceLlama(file).states(text);
  PagedCache::Sequence sequence = cache.open(), generates = cache.open();
  ASSERT_TRUE(cache.reserve(sequence, 70) && cache.reserve(generates, 30));
  // The text is read in pieces, next to another one that wants logits.
  std::size_t at = 0, other_at = 0;
  for (const std::size_t count : {1u, 40u, 28u, 1u}) {
    std::vector<float> states;
    const SequencePiece pieces[] = {
        {&generates, std::span(other).subspan(other_at, 5)},
        {&sequence, std::span(text).subspan(at, count), false, &states},
    };
    EXPECT_EQ(model.forward(pieces, cache).shape(), (Shape{1, model.config().vocabulary}));
    ASSERT_EQ(states.size(), count * 256);
    for (std::size_t i = 0; i < states.size(); ++i)
      ASSERT_NEAR(states[i], expected[at + i / 256][i % 256], 2e-3) << "token " << at + i / 256;
    at += count, other_at += 5;
  }
  EXPECT_EQ(sequence.length(), 70);
}

// Steps have 1 to 4 tokens. New sequences begin, so that the cache is reallocated. On GPUs, a step of 3 tokens has
// other kernels than forward(), because a row is added.
TEST_P(OnEveryDevice, RecordedStepsOfSeveralSequencesEqualForward) {
  std::mt19937_64 random{testing::seed()};
  for (const std::uint64_t experts : {0, 24}) {
    const Llama model = tiny_model(GgmlType::q8_0, GetParam(), {}, experts);
    PagedCache cache(model.config(), 60, model.layer_devices(), context),
        other(model.config(), 60, model.layer_devices(), context);
    BatchDecoder decoder(model, cache);
    std::vector<PagedCache::Sequence> sequences, others;
    std::vector<Tokens> chosen(24);
    std::size_t most = 0;
    for (Tokens& tokens : chosen) tokens = some_tokens(4, random);
    for (std::size_t step = 0; step < chosen.size(); ++step) {
      if (step % 6 == 0) {
        const Tokens prompt = some_tokens(62 + static_cast<std::int64_t>(random() % 70), random);
        sequences.push_back(cache.open()), others.push_back(other.open());
        read(model, cache, sequences.back(), prompt), read(model, other, others.back(), prompt);
      }
      std::vector<SequencePiece> pieces, same;
      const std::size_t count = 1 + step % sequences.size();
      for (std::size_t s = sequences.size() - count; s < sequences.size(); ++s) {
        const auto token = std::span(chosen[step]).subspan(s, 1);
        ASSERT_TRUE(cache.reserve(sequences[s], 1) && other.reserve(others[s], 1));
        pieces.push_back({&sequences[s], token}), same.push_back({&others[s], token});
      }
      const Array want = model.forward(same, other);
      if (!decoder.takes(pieces)) {
        EXPECT_FALSE(std::has_single_bit(count)) << "device " << to_string(GetParam());
        model.forward(pieces, cache);
        continue;
      }
      const std::vector<float> got = decoder.step(pieces).to_vector<float>();
      most = std::max(most, decoder.recordings());  // growing drops them
      const auto expected = want.to_vector<float>();
      ASSERT_EQ(got.size(), expected.size());
      const DeviceKind kind = device_info(GetParam()).kind;
      const bool same_bits = kind == DeviceKind::cpu || GetParam().backend == Backend::interp;
      for (std::size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], expected[i], same_bits ? 0 : 2e-2) << count << " sequences, step " << step;
    }
    EXPECT_GE(most, 1u) << "no step was recorded";
    for (std::size_t s = 0; s < sequences.size(); ++s)
      EXPECT_TRUE(std::ranges::equal(sequences[s].tokens(), others[s].tokens()));
  }
}

TEST_P(OnEveryDevice, ForksContinueIndependently) {
  const Llama model = tiny_model(GgmlType::f32, GetParam());
  PagedCache cache(model.config(), 6, model.layer_devices(), context, DType::f32);
  const Tokens text = some_tokens(100, random), a = some_tokens(3, random), b = some_tokens(3, random);
  PagedCache::Sequence first = cache.open();
  read(model, cache, first, text);
  PagedCache::Sequence second = cache.fork(first);
  EXPECT_EQ(cache.free_pages(), 4);
  EXPECT_EQ(cache.shared_pages(), 2);
  const auto got_a = read(model, cache, first, a), got_b = read(model, cache, second, b);
  EXPECT_EQ(cache.free_pages(), 3) << "only the last page is copied";
  EXPECT_EQ(cache.shared_pages(), 1);
  const auto expect_as_if_alone = [&](const Tokens& more, const std::vector<float>& got) {
    PagedCache::Sequence one = cache.open(1);
    read(model, cache, one, text);
    const auto want = read(model, cache, one, more);
    for (std::size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-3);
  };
  {  // a page that could be found is copied, too
    PagedCache::Sequence c = cache.open(2);
    ASSERT_TRUE(cache.reserve(c, 64));
    PagedCache::Sequence d = cache.open(2);
    read(model, cache, c, std::span(text).first(10));
    d = cache.fork(c);
    const SequencePiece shared{&c, std::span(text).first(1)};
    expect_throw<ArgumentError>([&] { model.forward(std::span(&shared, 1), cache); }, {"no pages of its own"});
  }
  expect_as_if_alone(a, got_a);
  expect_as_if_alone(b, got_b);
}

class Pages : public ::testing::Test {
 protected:
  const Device cpu{Backend::cpu};
  const Llama model = tiny_model(GgmlType::q8_0, cpu);
  std::mt19937_64 random{testing::seed()};
};

TEST_F(Pages, AreSharedKeptAndTakenLeastRecentlyUsedFirst) {
  PagedCache cache(model.config(), 4, model.layer_devices(), context);
  EXPECT_EQ(cache.bytes(), 5 * PagedCache::page_bytes(model.config(), DType::f16));
  const Tokens a = some_tokens(130, random), b = some_tokens(70, random);
  const auto shared = [&](const Tokens& text, std::uint64_t salt = 0) {
    PagedCache::Sequence s = cache.open(salt);
    return cache.share(s, text);
  };
  {
    PagedCache::Sequence s = cache.open();
    read(model, cache, s, a);
    EXPECT_EQ(cache.free_pages(), 1);
    EXPECT_EQ(shared(a), 128);
    EXPECT_EQ(shared(Tokens(a.begin(), a.begin() + 128)), 64) << "the last token is always read";
    EXPECT_EQ(shared(a, 7), 0);
    EXPECT_EQ(shared(Tokens(a.begin() + 1, a.end())), 0);
  }
  EXPECT_EQ(cache.free_pages(), 4);
  EXPECT_EQ(cache.kept_pages(), 2);
  EXPECT_EQ(shared(a), 128);
  {
    PagedCache::Sequence s = cache.open();
    read(model, cache, s, b);  // takes the pages without contents
    EXPECT_EQ(cache.kept_pages(), 2);
    PagedCache::Sequence t = cache.open();
    EXPECT_FALSE(cache.reserve(t, 129));
    EXPECT_EQ(t.pages(), 0);
    ASSERT_TRUE(cache.reserve(t, 1));
    EXPECT_EQ(cache.kept_pages(), 1);
    EXPECT_EQ(shared(a), 64) << "the end of a text is dropped before its begin";
  }
  {
    PagedCache::Sequence s = cache.open();
    EXPECT_EQ(cache.share(s, b), 64);
    cache.discard(s);
    EXPECT_EQ(shared(b), 0);
  }
  cache.forget();
  EXPECT_EQ(shared(a), 0);
  EXPECT_EQ(shared(b), 0);
  EXPECT_EQ(cache.kept_pages(), 0);
  EXPECT_EQ(cache.free_pages(), 4);
}

TEST_F(Pages, OfEqualTextsAreMerged) {
  PagedCache cache(model.config(), 4, model.layer_devices(), context);
  const Tokens text = some_tokens(70, random);
  PagedCache::Sequence a = cache.open(), b = cache.open();
  ASSERT_TRUE(cache.reserve(a, 70) && cache.reserve(b, 70));
  EXPECT_EQ(cache.free_pages(), 0);
  const SequencePiece pieces[] = {{&a, text}, {&b, text}};
  const Array logits = model.forward(pieces, cache);
  EXPECT_EQ(logits.slice(0, 0, 1).to_vector<float>(), logits.slice(0, 1, 2).to_vector<float>());
  EXPECT_EQ(cache.free_pages(), 1);
  EXPECT_EQ(cache.shared_pages(), 1);
}

TEST_F(Pages, RunningOutOfMemoryKeepsTheCacheUsable) {
  const Tokens text = some_tokens(90, random);
  PagedCache other(model.config(), 2, model.layer_devices(), context);
  PagedCache::Sequence expected = other.open();
  read(model, other, expected, std::span(text).first(70));
  const auto want = read(model, other, expected, std::span(text).subspan(70));
  int failed = 0;
  for (std::uint64_t room = 100'000; room < 4'000'000; room += 400'000) {
    PagedCache cache(model.config(), 1000, model.layer_devices(), context);
    PagedCache::Sequence s = cache.open(), more = cache.open();
    read(model, cache, s, std::span(text).first(70));
    set_memory_limit(cpu, memory_stats(cpu).live_bytes + room);
    const bool reserved = cache.reserve(more, 50 * page_positions);
    set_memory_limit(cpu, 0);
    if (!reserved) {
      ++failed;
      EXPECT_EQ(cache.pages(), 8) << "the pages that are allocated";
      EXPECT_EQ(more.pages(), 0);
    }
    EXPECT_EQ(read(model, cache, s, std::span(text).subspan(70)), want);
  }
  EXPECT_GT(failed, 3);
}

TEST_F(Pages, GrowOneLayerAfterTheOther) {
  PagedCache cache(model.config(), 400, model.layer_devices(), 400 * page_positions);
  PagedCache::Sequence s = cache.open();
  ASSERT_TRUE(cache.reserve(s, 200 * page_positions));
  trim(cpu);
  const std::uint64_t old = cache.bytes(), others = memory_stats(cpu).live_bytes - old;
  reset_peak_memory(cpu);
  ASSERT_TRUE(cache.reserve(s, 201 * page_positions));
  const auto layers = static_cast<std::uint64_t>(model.config().layers);
  EXPECT_GT(cache.bytes(), old + old / 5);
  EXPECT_LT(memory_stats(cpu).peak_bytes, others + cache.bytes() + old / layers + (1 << 20));
}

TEST_F(Pages, InvalidPiecesThrowAndChangeNothing) {
  PagedCache cache(model.config(), 4, model.layer_devices(), context);
  PagedCache::Sequence s = cache.open();
  ASSERT_TRUE(cache.reserve(s, 64));
  const auto refuse = [&](std::vector<SequencePiece> pieces, const std::vector<std::string>& words) {
    expect_throw<ArgumentError>([&] { model.forward(pieces, cache); }, words);
    EXPECT_EQ(s.length(), 0);
  };
  const Tokens ok = {1}, outside = {203}, long_one(65);
  refuse({{&s, {}}}, {"no tokens"});
  refuse({{&s, outside}}, {"203", "vocabulary"});
  refuse({{&s, ok}, {&s, ok}}, {"same sequence"});
  refuse({{&s, long_one}}, {"65", "PagedCache::reserve"});
  EXPECT_EQ(model.forward(std::span<const SequencePiece>(), cache).shape(), (Shape{0, 203}));
  expect_throw<ArgumentError>([&] { PagedCache(model.config(), 0, model.layer_devices(), context); }, {"pages"});
  expect_throw<DtypeError>([&] { PagedCache(model.config(), 1, model.layer_devices(), context, DType::f64); },
                           {"f32, f16, or i8"});
}

}  // namespace
}  // namespace tessera
