// SPDX-License-Identifier: Apache-2.0
// Sessions that reuse a KV cache. The tokens must be the same as with a new cache, and only new tokens may be read.
// Also tests full contexts, stop strings, cancellation, and sampling options from files.
#include "tessera/llm/chat_session.h"
#include "tessera/llm/gguf_writer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "tessera/device/memory/storage.h"
#include "tests/llm/chat_vocabulary.h"
#include "tests/support/errors.h"
#include "tests/support/scripted_model.h"

namespace tessera {
namespace {

using test::expect_throw;

const LanguageModel& model() {
  static const LanguageModel m = LanguageModel::load("models/pgdocs-2m-f16.gguf", Device{Backend::cpu, 0});
  return m;
}
ChatTemplate plain() {
  return ChatTemplate("{% for m in messages %}{{ '<|endoftext|>' if m.role == 'user' }}{{ m.content }}{% endfor %}",
                      "t");
}
GenerateOptions greedy(std::int64_t tokens) {
  GenerateOptions o;
  o.sampling.temperature = 0;
  o.max_tokens = tokens;
  o.cache_dtype = DType::f32;
  return o;
}

/// Expects the same tokens, up to a position where the two likeliest tokens have nearly equal scores. Rounding may
/// differ there, because reading a text in one call adds numbers in a different order than reading it token by token.
void expect_same(const GenerateResult& a, const std::vector<TokenId>& b) {
  for (std::size_t i = 0; i < a.tokens.size(); ++i) {
    if (i < b.size() && a.tokens[i] == b[i]) continue;
    const auto& best = a.log_probabilities.at(i);
    EXPECT_LT(best[1].log_probability - best[2].log_probability, 0.02) << "token " << i;
    return;
  }
  EXPECT_EQ(a.tokens.size(), b.size());
}

TEST(TextSession, GrowingCacheProducesSameTokensAsNewCache) {
  const Tokenizer& t = model().tokenizer();
  TextSession session(model(), 1024, DType::f32);
  std::vector<TokenId> text = t.encode("The index");
  const std::uint64_t first = session.cache_bytes();
  // The text grows over several pages of the cache. A question of 40 tokens follows each answer.
  for (int turn = 0; turn < 3; ++turn) {
    GenerateOptions o = greedy(150);
    o.sampling.logit_bias = {{2047, -1e6}};  // suppress the end of the turn
    o.log_probabilities = 2;
    const GenerateResult r = session.generate(text, o);
    const GenerateResult fresh = model().generate(text, o);
    expect_same(r, fresh.tokens);
    EXPECT_EQ(fresh.read, static_cast<std::int64_t>(text.size()));
    const auto new_ones = turn == 0 ? static_cast<std::int64_t>(text.size()) : 41;
    EXPECT_EQ(r.read, new_ones) << "the new tokens, and the last token of the answer, which was not read before";
    EXPECT_EQ(session.tokens().size(), text.size() + 149);
    text.insert(text.end(), r.tokens.begin(), r.tokens.end());
    const auto more = t.encode(
        "\nQ: a table of the database in a cluster, and a view of a row that is locked by a server process? A: ",
        {.add_special = false});
    for (std::size_t i = 0; i < 40; ++i) text.push_back(more[i % more.size()]);
  }
  EXPECT_GT(session.cache_bytes(), first);
  EXPECT_LT(session.cache_bytes(), 1024 * first / 256);
  // The memory of the smaller caches was freed.
  const MemoryStats memory = memory_stats(model().device());
  EXPECT_LT(memory.cached_bytes, memory.live_bytes);
  // Only the tokens after the common prefix are read.
  GenerateOptions o = greedy(20);
  o.log_probabilities = 2;
  std::vector<TokenId> other(text.begin(), text.begin() + 100);
  other.push_back(17);
  const GenerateResult r = session.generate(other, o);
  EXPECT_EQ(r.read, 1);
  expect_same(r, model().generate(other, o).tokens);
  session.clear();
  EXPECT_EQ(session.generate(other, o).read, 101);
}

TEST(TextSession, StopsAtStopStringsAcrossTokenBoundaries) {
  const auto prompt = model().tokenizer().encode("The index");
  TextSession session(model(), 512, DType::f32);
  GenerateOptions o = greedy(80);
  const GenerateResult whole = session.generate(prompt, o);
  ASSERT_GT(whole.text.size(), 60u);
  // Use substrings of the text as stop strings. Some are inside a token, and some cross token boundaries.
  for (std::size_t begin = 5; begin < 60; begin += 7)
    for (const std::size_t size : {1, 3, 9}) {
      o.stop = {"\x01never", whole.text.substr(begin, size)};
      std::string shown;
      const GenerateResult r = session.generate(prompt, o, [&](std::string_view piece) {
        shown += piece;
        return true;
      });
      const std::size_t at = whole.text.find(o.stop[1]);
      EXPECT_EQ(r.text, whole.text.substr(0, at));
      EXPECT_EQ(shown, r.text);
      EXPECT_EQ(r.reason, StopReason::stop_text);
      EXPECT_EQ(r.stop, o.stop[1]);
    }
  // An incomplete stop string is emitted at the end of the text.
  o.stop = {whole.text.substr(whole.text.size() - 3) + "\x01"};
  EXPECT_EQ(session.generate(prompt, o).text, whole.text);
  o.stop = {""};
  expect_throw<ArgumentError>([&] { session.generate(prompt, o); }, {"stop string is empty"});
}

TEST(TextSession, ContinuesAfterCancellationAtAnyToken) {
  const auto prompt = model().tokenizer().encode("The index of a table that is read by the planner");
  TextSession session(model(), 512, DType::f32);
  GenerateOptions o = greedy(12);
  o.batch = 3;
  const GenerateResult whole = session.generate(prompt, o);
  for (int limit = 0; limit < 12; ++limit) {
    session.clear();
    int asked = 0;
    o.cancelled = [&] { return asked++ >= limit; };
    const GenerateResult cut = session.generate(prompt, o);
    EXPECT_EQ(cut.reason, StopReason::cancelled);
    EXPECT_TRUE(std::equal(cut.tokens.begin(), cut.tokens.end(), whole.tokens.begin()));
    o.cancelled = {};
    const GenerateResult again = session.generate(prompt, o);
    EXPECT_EQ(again.tokens, whole.tokens) << limit;
    EXPECT_EQ(again.read, std::max<std::int64_t>(1, static_cast<std::int64_t>(prompt.size()) - 3 * limit)) << limit;
  }
}

TEST(TextSession, ReportsProgressBeforeBatchesOfNewTokens) {
  const auto prompt = model().tokenizer().encode("The index of a table that is read by the planner");
  const auto size = static_cast<std::int64_t>(prompt.size());
  TextSession session(model(), 512, DType::f32);
  session.generate(std::span(prompt).first(2), greedy(0));
  GenerateOptions o = greedy(2);
  o.batch = 4;
  std::vector<std::pair<std::int64_t, std::int64_t>> calls, expected;
  o.on_read = [&](std::int64_t done, std::int64_t total) { calls.emplace_back(done, total); };
  session.generate(prompt, o);
  ASSERT_EQ(size, 12);  // so that the last two of three batches have one token less
  for (const std::int64_t done : {0, 4, 7}) expected.emplace_back(done, size - 2);
  EXPECT_EQ(calls, expected);
}

TEST(TextSession, ReturnsLogProbabilitiesAndAppliesBiases) {
  const auto prompt = model().tokenizer().encode("The index");
  TextSession session(model(), 512, DType::f32);
  GenerateOptions o = greedy(5);
  o.log_probabilities = 2;
  const GenerateResult r = session.generate(prompt, o);
  ASSERT_EQ(r.log_probabilities.size(), r.tokens.size());
  for (std::size_t i = 0; i < r.tokens.size(); ++i) {
    ASSERT_EQ(r.log_probabilities[i].size(), 3u);
    EXPECT_EQ(r.log_probabilities[i][0].id, r.tokens[i]);
    EXPECT_EQ(r.log_probabilities[i][1].id, r.tokens[i]) << "greedy";
    EXPECT_LT(r.log_probabilities[i][0].log_probability, 0);
    EXPECT_GE(r.log_probabilities[i][1].log_probability, r.log_probabilities[i][2].log_probability);
  }
  o.sampling.logit_bias = {{r.tokens[0], -INFINITY}};
  EXPECT_EQ(session.generate(prompt, o).tokens[0], r.log_probabilities[0][2].id);
  EXPECT_TRUE(session.generate(prompt, greedy(5)).log_probabilities.empty());
}

TEST(TextSession, RejectsPromptsThatDoNotFitAndRemainsUsable) {
  TextSession session(model(), 20, DType::f32);
  const std::vector<TokenId> many(21, 5), some(18, 5);
  expect_throw<ArgumentError>([&] { session.generate(many, greedy(5)); }, {"longer than the context", "21", "20"});
  expect_throw<ArgumentError>([&] { session.generate({}, greedy(5)); }, {"no tokens"});
  const GenerateResult r = session.generate(some, greedy(5));
  EXPECT_EQ(r.reason, StopReason::context_full);
  EXPECT_EQ(r.tokens.size(), 2u);
  expect_throw<ArgumentError>([] { TextSession(model(), 5000); }, {"5000", "1024"});
}

TEST(ChatSession, ReusesTheCacheBetweenTurns) {
  ChatSession chat(model(), plain(), {.generate = greedy(24), .context = 512});
  chat.options().generate.log_probabilities = 2;
  chat.conversation = {{"system", "PostgreSQL."}, {"user", "What is an index?"}};
  std::string shown;
  const ChatAnswer first = chat.answer([&](const ThinkingSplitter::Parts& p) {
    shown += p.text;
    return true;
  });
  EXPECT_EQ(first.message.role, "assistant");
  EXPECT_EQ(first.message.text, shown);
  EXPECT_EQ(chat.conversation.back(), first.message);
  EXPECT_EQ(first.result.read, static_cast<std::int64_t>(first.result.prompt_tokens.size()));
  chat.conversation.push_back({"user", "And a table?"});
  const ChatAnswer second = chat.answer();
  // The model reads the question, and the end of the answer if it is tokenised differently from how it was generated.
  EXPECT_LT(second.result.read, 24);
  const Conversation asked(chat.conversation.begin(), chat.conversation.end() - 1);
  const auto fresh = chat.chat_template().prompt(asked, model().tokenizer()).tokens;
  EXPECT_EQ(fresh, second.result.prompt_tokens);
  expect_same(second.result, model().generate(fresh, greedy(24)).tokens);
}

TEST(ChatSession, FullContextIsRejectedOrShifted) {
  Conversation long_one = {{"system", "PostgreSQL."}};
  for (int i = 0; i < 8; ++i) {
    long_one.push_back({"user", "What is an index number " + std::to_string(i) + "?"});
    if (i < 7) long_one.push_back({"assistant", "It is a table."});
  }
  ChatSession refusing(model(), plain(), {.generate = greedy(24), .context = 64});
  refusing.conversation = long_one;
  expect_throw<ArgumentError>([&] { refusing.answer(); }, {"longer than the context", "64"});
  EXPECT_EQ(refusing.conversation, long_one);

  ChatSession shifting(model(), plain(), {.generate = greedy(24), .context = 64, .when_full = WhenFull::shift});
  shifting.conversation = long_one;
  const ChatAnswer answer = shifting.answer();
  EXPECT_GT(answer.left_out, 0);
  EXPECT_EQ(answer.left_out % 2, 0) << "questions are dropped with their answers";
  EXPECT_LE(answer.result.prompt_tokens.size(), 32u) << "half of the context is free";
  EXPECT_EQ(answer.result.tokens.size(), 24u) << "the answer continued";
  EXPECT_EQ(shifting.conversation.size(), long_one.size() + 1) << "the conversation keeps all messages";
  const std::string read = model().tokenizer().decode(answer.result.prompt_tokens, true);
  EXPECT_NE(read.find("PostgreSQL."), std::string::npos);
  EXPECT_NE(read.find("number 7?"), std::string::npos);
  EXPECT_EQ(read.find("number 0?"), std::string::npos);

  // The next turn drops the same messages, so that the cache remains valid.
  shifting.options().generate.max_tokens = 2;
  shifting.conversation = long_one;
  const std::int64_t left_out = shifting.answer().left_out;
  shifting.conversation.push_back({"user", "So?"});
  const ChatAnswer next = shifting.answer();
  EXPECT_EQ(next.left_out, left_out);
  EXPECT_LT(next.result.read, 12);

  // If the context is shifted during an answer, the answer continues as with a new cache and the shortened
  // conversation.
  ChatSession growing(model(), plain(), {.generate = greedy(200), .context = 64, .when_full = WhenFull::shift});
  growing.options().generate.sampling.logit_bias = {{2047, -INFINITY}};
  growing.conversation = {{"user", "A?"}, {"assistant", "An index is a table of the database."}, {"user", "B?"}};
  const ChatAnswer cut = growing.answer();
  EXPECT_EQ(cut.left_out, 2);
  EXPECT_EQ(cut.result.reason, StopReason::context_full);
  const std::size_t rest = 64 - plain().prompt({{"user", "B?"}}, model().tokenizer()).tokens.size();
  EXPECT_NEAR(static_cast<double>(cut.result.tokens.size()), static_cast<double>(rest), 1.0);

  // A single question that does not fit is rejected in both modes.
  shifting.conversation = {{"user", std::string(2000, 'x')}};
  expect_throw<ArgumentError>([&] { shifting.answer(); }, {"longer than the context"});
}

TEST(ChatSession, UsesStopStringIfEndOfTurnIsNotAToken) {
  const ChatSession chat(model(), ChatTemplate::built_in("gemma"), {.generate = greedy(4), .context = 64});
  EXPECT_EQ(const_cast<ChatSession&>(chat).options().generate.stop, std::vector<std::string>{"<end_of_turn>"});
}

TEST(ChatSession, ParsesToolCallsAndReturnsTheirResults) {
  const auto bytes = test::weather_model().bytes();
  const GgufFile file = GgufFile::parse(bytes, "weather");
  const LanguageModel weather = LanguageModel::load(file, {.devices = {Device{Backend::cpu, 0}}});
  ChatOptions options{.generate = greedy(100)};
  options.prompt.tools = tools_of_json(test::weather_tools, "tools");
  ChatSession chat(weather, ChatTemplate::of(file), options);
  chat.conversation = {{"user", "How is the weather in Zürich?"}};
  std::string shown;
  const ChatAnswer asked = chat.answer([&](const ThinkingSplitter::Parts& p) { return shown += p.text, true; });
  EXPECT_EQ(shown, "Let me see.\n");
  EXPECT_EQ(asked.message.text, "Let me see.");
  EXPECT_EQ(asked.message.calls, (std::vector<ToolCall>{{"call00001", "get_weather", R"({"town":"Zürich"})"}}));
  EXPECT_EQ(asked.result.reason, StopReason::end_token);
  EXPECT_EQ(chat.conversation.back(), asked.message);
  chat.conversation.push_back({.role = "tool", .text = "21.5", .call_id = "call00001", .name = "get_weather"});
  EXPECT_EQ(chat.answer().message.text, "It is warm.");
  // The next call gets a new id.
  chat.conversation.push_back({"user", "And now?"});
  EXPECT_EQ(chat.answer().message.calls.at(0).id, "call00002");
  // Without tools, calls are not parsed.
  ChatSession plain_chat(weather, ChatTemplate::of(file), {.generate = greedy(100)});
  plain_chat.conversation = {{"user", "Hi"}};
  EXPECT_EQ(plain_chat.answer().message.text, "It is warm.");
  expect_throw<ArgumentError>([&] { ChatSession(weather, ChatTemplate::built_in("chatml"), options); },
                              {"does not support tools"});
}

TEST(Sampling, OptionsInTheFileOverrideDefaults) {
  const auto of = [](const std::function<void(GgufWriter&)>& fill) {
    GgufWriter w;
    w.set("general.architecture", std::string("llama"));
    fill(w);
    const test::ParsedFile parsed(w);
    return sampling_of(parsed.file, {.temperature = 0.8, .top_k = 40, .top_p = 0.95, .seed = 3});
  };
  const SamplerOptions none = of([](GgufWriter&) {});
  EXPECT_EQ(none.temperature, 0.8);
  EXPECT_EQ(none.top_k, 40);
  const SamplerOptions all = of([](GgufWriter& w) {
    w.set("general.sampling.temp", 0.5f);
    w.set("general.sampling.top_k", std::int32_t{-1});
    w.set("general.sampling.top_p", 0.5f);
    w.set("general.sampling.min_p", 0.25f);
    w.set("general.sampling.penalty_repeat", 1.25f);
    w.set("general.sampling.penalty_last_n", std::int32_t{-5});
  });
  EXPECT_EQ(all.temperature, 0.5);
  EXPECT_EQ(all.top_k, 0);
  EXPECT_EQ(all.top_p, 0.5);
  EXPECT_EQ(all.min_p, 0.25);
  EXPECT_EQ(all.repeat_penalty, 1.25);
  EXPECT_EQ(all.penalty_last, -1);
  EXPECT_EQ(all.seed, 3u);
  expect_throw<FormatError>([&] { of([](GgufWriter& w) { w.set("general.sampling.min_p", 7.0f); }); },
                            {"test.gguf", "general.sampling.*", "min_p"});
  expect_throw<FormatError>([&] { of([](GgufWriter& w) { w.set("general.sampling.temp", std::string("hot")); }); },
                            {"general.sampling.temp"});
}

}  // namespace
}  // namespace tessera
