// SPDX-License-Identifier: Apache-2.0
// The scheduler: events, order, shared prefixes, limits, and cancellation at every stage.
#include "tessera/llm/scheduler.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <condition_variable>
#include <future>
#include <mutex>
#include <optional>
#include <random>
#include <thread>

#include "tessera/llm/text_session.h"
#include "tessera/testing/testing.h"
#include "tests/support/errors.h"
#include "tests/support/scripted_model.h"

namespace tessera {
namespace {

using test::expect_throw;
using namespace std::chrono_literals;

const LanguageModel& model() {
  static const LanguageModel m = LanguageModel::load("models/pgdocs-2m-q8_0.gguf", Device{Backend::cpu, 0});
  return m;
}
std::vector<TokenId> tokens(std::string_view text) { return model().tokenizer().encode(text); }

/// Collects the events of a request.
class Events {
 public:
  struct Sequence {
    std::optional<TextStarted> started;
    std::string text;
    std::vector<TokenId> tokens;
    std::vector<std::vector<TokenProbability>> log_probabilities;
    std::vector<float> embedding;
    std::optional<TextEnded> ended;
    std::optional<TextFailed> failed;
  };
  explicit Events(std::int64_t sequences = 1) : sequences_(static_cast<std::size_t>(sequences)) {}

  Callback<void(std::int64_t, const TextEvent&)> callback() {
    return [this](std::int64_t sequence, const TextEvent& event) { take(sequence, event); };
  }
  /// Waits until all sequences have ended.
  const std::vector<Sequence>& wait() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, 60s, [&] { return done_ == sequences_.size(); })) << "no end";
    return sequences_;
  }
  /// Lets the scheduler deliver this number of pieces. Its thread waits before it delivers more. (Real callbacks must
  /// not block.)
  void allow_pieces(std::size_t pieces) {
    const std::lock_guard lock(mutex_);
    allowed_ = pieces;
    changed_.notify_all();
  }
  void wait_for_pieces(std::size_t pieces) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, 60s, [&] { return pieces_ >= pieces; })) << "no text";
  }

 private:
  void take(std::int64_t sequence, const TextEvent& event) {
    std::unique_lock lock(mutex_);
    if (std::holds_alternative<TextPiece>(event)) changed_.wait(lock, [&] { return pieces_ < allowed_; });
    Sequence& s = sequences_.at(static_cast<std::size_t>(sequence));
    EXPECT_FALSE(s.ended || s.failed) << "an event after the last one";
    if (const auto* started = std::get_if<TextStarted>(&event)) {
      EXPECT_FALSE(s.started);
      s.started = *started;
    } else if (const auto* piece = std::get_if<TextPiece>(&event)) {
      EXPECT_TRUE(s.started);
      s.text += piece->text;
      s.tokens.insert(s.tokens.end(), piece->tokens.begin(), piece->tokens.end());
      s.log_probabilities.insert(s.log_probabilities.end(), piece->log_probabilities.begin(),
                                 piece->log_probabilities.end());
      ++pieces_;
    } else if (const auto* embedding = std::get_if<TextEmbedding>(&event)) {
      EXPECT_TRUE(s.started && s.embedding.empty());
      s.embedding = embedding->values;
    } else if (const auto* ended = std::get_if<TextEnded>(&event)) {
      s.ended = *ended;
      ++done_;
    } else {
      s.failed = std::get<TextFailed>(event);
      ++done_;
    }
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Sequence> sequences_;
  std::size_t done_ = 0, pieces_ = 0, allowed_ = SIZE_MAX;
};

TextRequest request(std::string_view prompt, std::int64_t most, Events& events) {
  TextRequest r;
  r.prompts = {tokens(prompt)};
  r.sampling = {.temperature = 0.8, .seed = 7};
  r.sampling.logit_bias = {{2047, -1e6}};  // suppress the end of the text
  r.max_tokens = most;
  r.on_event = events.callback();
  return r;
}

TEST(Scheduler, TextEqualsThatOfGenerate) {
  Scheduler scheduler(model());
  Events events;
  TextRequest r = request("The index", 20, events);
  r.log_probabilities = 2;
  r.stop = {"zzz"};
  GenerateOptions o{.sampling = r.sampling, .max_tokens = 20};
  o.log_probabilities = 2;
  const GenerateResult expected = model().generate("The index", o);
  scheduler.submit(std::move(r));
  const auto& s = events.wait().front();
  EXPECT_EQ(s.text, expected.text);
  EXPECT_EQ(s.tokens, expected.tokens);
  ASSERT_EQ(s.log_probabilities.size(), 20u);
  EXPECT_EQ(s.log_probabilities[3].size(), 3u);
  EXPECT_EQ(s.log_probabilities[3][0].id, s.tokens[3]);
  ASSERT_TRUE(s.ended);
  EXPECT_EQ(s.ended->reason, StopReason::max_tokens);
  EXPECT_EQ(s.ended->tokens, 20);
}

TEST(Scheduler, SecondRequestReadsOnlyTheRestOfItsPrompt) {
  Scheduler scheduler(model());
  Events first, second;
  std::string shared;
  for (int i = 0; i < 12; ++i) shared += "A transaction is a group of statements that are executed together. ";
  scheduler.submit(request(shared + "Locks", 4, first));
  first.wait();
  scheduler.submit(request(shared + "Rows", 4, second));
  const TextStarted a = *first.wait().front().started, b = *second.wait().front().started;
  EXPECT_EQ(a.cached_tokens, 0);
  EXPECT_GT(b.cached_tokens, b.prompt_tokens / 2);
  EXPECT_EQ(scheduler.statistics().cached_tokens, b.cached_tokens);
  EXPECT_EQ(scheduler.statistics().read_tokens, a.prompt_tokens + b.prompt_tokens - b.cached_tokens);
  EXPECT_EQ(scheduler.statistics().generated_tokens, 8);
}

TEST(Scheduler, SequencesOfARequestHaveConsecutiveSeeds) {
  Scheduler scheduler(model());
  Events all(4);
  TextRequest r = request("The index", 12, all);
  r.prompts.push_back(tokens("A table"));
  r.sequences = 2;
  scheduler.submit(r);
  const auto texts = all.wait();
  for (const int prompt : {0, 1})
    for (const std::uint64_t i : {0, 1}) {
      Events one;
      TextRequest alone = request(prompt == 0 ? "The index" : "A table", 12, one);
      alone.sampling.seed += i;
      scheduler.submit(alone);
      EXPECT_EQ(one.wait().front().text, texts[static_cast<std::size_t>(prompt) * 2 + i].text);
    }
}

TEST(Scheduler, CancelsRunningAndWaitingRequests) {
  Scheduler scheduler(model(), {.parallel = 1});
  Events running, waiting, last;
  running.allow_pieces(2);
  const auto a = scheduler.submit(request("The index", 100, running));
  running.wait_for_pieces(2);
  const auto b = scheduler.submit(request("A table", 100, waiting));
  scheduler.submit(request("A view", 3, last));
  EXPECT_EQ(scheduler.statistics().queued, 2);
  EXPECT_EQ(scheduler.statistics().running, 1);
  scheduler.cancel(b);
  EXPECT_EQ(scheduler.statistics().queued, 1);
  running.allow_pieces(4);
  EXPECT_EQ(waiting.wait().front().ended->reason, StopReason::cancelled) << "ends although another request runs";
  EXPECT_FALSE(waiting.wait().front().started);
  scheduler.cancel(a);
  running.allow_pieces(SIZE_MAX);
  EXPECT_EQ(running.wait().front().ended->reason, StopReason::cancelled);
  EXPECT_LE(running.wait().front().ended->tokens, 20) << "at most a few tokens after the fourth piece";
  EXPECT_EQ(last.wait().front().ended->reason, StopReason::max_tokens);
  scheduler.cancel(a);  // has ended: no effect
  EXPECT_EQ(scheduler.statistics().running, 0);
}

TEST(Scheduler, CancelsWhileAPromptIsRead) {
  Scheduler scheduler(model(), {.batch = 1});
  Events events;
  std::string prompt;
  for (int i = 0; i < 200; ++i) prompt += " index";
  TextRequest r = request(prompt, 5, events);
  std::promise<void> started, go;
  r.on_event = [&, callback = events.callback()](std::int64_t sequence, const TextEvent& event) {
    callback(sequence, event);
    if (!std::holds_alternative<TextStarted>(event)) return;
    started.set_value();
    go.get_future().wait();
  };
  const auto id = scheduler.submit(r);
  started.get_future().wait();
  scheduler.cancel(id);
  go.set_value();
  const auto& s = events.wait().front();
  EXPECT_EQ(s.ended->reason, StopReason::cancelled);
  EXPECT_EQ(s.ended->tokens, 0);
  EXPECT_LT(scheduler.statistics().read_tokens, 200);
}

TEST(Scheduler, DestructorCancelsAllRequests) {
  Events running, waiting;
  auto scheduler = std::make_unique<Scheduler>(model(), SchedulerOptions{.parallel = 1});
  running.allow_pieces(1);
  scheduler->submit(request("The index", 900, running));
  running.wait_for_pieces(1);
  scheduler->submit(request("A table", 900, waiting));
  const auto destroyed = std::async(std::launch::async, [&] { scheduler.reset(); });
  std::this_thread::sleep_for(100ms);  // the destructor waits for the callback
  running.allow_pieces(SIZE_MAX);
  destroyed.wait();
  EXPECT_EQ(running.wait().front().ended->reason, StopReason::cancelled);
  EXPECT_EQ(waiting.wait().front().ended->reason, StopReason::cancelled);
}

/// Random requests, some of which begin with the same text.
std::vector<TextRequest> random_requests(std::size_t count, std::mt19937& random) {
  std::string shared;
  for (int i = 0; i < 9; ++i) shared += "A transaction is a group of statements that are executed together. ";
  std::vector<TextRequest> all;
  for (std::size_t i = 0; i < count; ++i) {
    std::string prompt = random() % 2 == 0 ? shared : "";
    for (std::size_t n = random() % 60; n-- > 0;) prompt += random() % 2 == 0 ? " index" : " of the table";
    TextRequest& r = all.emplace_back();
    r.prompts = {tokens(prompt + "The")};
    r.sampling = {.temperature = random() % 3 == 0 ? 0 : 0.9, .top_k = 0, .seed = random()};
    r.sampling.repeat_penalty = random() % 2 == 0 ? 1 : 1.2;
    r.max_tokens = 1 + random() % 90;
    r.log_probabilities = random() % 2 == 0 ? 2 : -1;
  }
  return all;
}

void expect_same(const Events::Sequence& got, const Events::Sequence& expected) {
  ASSERT_TRUE(got.ended) << (got.failed ? got.failed->message : "");
  EXPECT_EQ(got.tokens, expected.tokens);
  EXPECT_EQ(got.text, expected.text);
  EXPECT_EQ(got.ended->reason, expected.ended->reason);
  ASSERT_EQ(got.log_probabilities.size(), expected.log_probabilities.size());
  for (std::size_t i = 0; i < got.log_probabilities.size(); ++i)
    for (std::size_t n = 0; n < got.log_probabilities[i].size(); ++n) {
      EXPECT_EQ(got.log_probabilities[i][n].id, expected.log_probabilities[i][n].id);
      EXPECT_EQ(got.log_probabilities[i][n].log_probability, expected.log_probabilities[i][n].log_probability);
    }
}

TEST(Scheduler, TextsDoNotDependOnOtherRequests) {
  std::mt19937 random(static_cast<unsigned>(testing::seed()));
  const std::vector<TextRequest> requests = random_requests(16, random);
  std::vector<Events::Sequence> expected;
  for (TextRequest r : requests) {
    Events events;
    Scheduler alone(model(), {.context = 400, .shares_prefixes = false});
    r.on_event = events.callback();
    alone.submit(r);
    expected.push_back(events.wait().front());
  }
  const auto run = [&](const SchedulerOptions& options) {
    Scheduler scheduler(model(), options);
    std::vector<std::unique_ptr<Events>> events;
    for (TextRequest r : requests) {
      events.push_back(std::make_unique<Events>());
      r.on_event = events.back()->callback();
      scheduler.submit(std::move(r));
    }
    for (std::size_t i = 0; i < requests.size(); ++i) {
      SCOPED_TRACE("request " + std::to_string(i));
      expect_same(events[i]->wait().front(), expected[i]);
    }
    for (int i = 0; i < 600 && scheduler.statistics().running != 0; ++i) std::this_thread::sleep_for(10ms);
    EXPECT_EQ(scheduler.statistics().used_pages, 0);
    return scheduler.statistics();
  };
  EXPECT_EQ(run({.context = 400}).preempted, 0);
  EXPECT_EQ(run({.context = 400, .batch = 40, .shares_prefixes = false}).cached_tokens, 0);
  // Few pages: sequences wait for each other, and some are read again.
  const SchedulerStatistics few = run({.context = 400, .pages = 9, .batch = 64});
  EXPECT_GT(few.preempted, 0);
  EXPECT_EQ(few.pages, 9);
}

TEST(Scheduler, TextsEndWhenTheContextIsFull) {
  const std::vector<TokenId> prompt = tokens("The index of the table");
  const std::int64_t given = std::ssize(prompt);
  for (const std::int64_t room : {0, 1, 5, 70}) {
    for (const std::int64_t pages : {0, 1}) {
      const std::int64_t context = pages == 1 ? 64 + room : given + room;
      Scheduler scheduler(model(), {.context = context, .pages = pages});
      Events events;
      scheduler.submit(request("The index of the table", 1000, events));
      const Events::Sequence& s = events.wait().front();
      EXPECT_EQ(s.tokens.size(), static_cast<std::size_t>((pages == 1 ? 64 : context) - given));
      EXPECT_EQ(s.ended->reason, StopReason::context_full);
      if (pages == 1 || room > 5) continue;
      GenerateOptions o{.sampling = {.temperature = 0.8, .seed = 7}, .max_tokens = 1000};
      o.sampling.logit_bias = {{2047, -1e6}};
      EXPECT_EQ(TextSession(model(), context).generate(prompt, o).tokens, s.tokens);
    }
  }
  Scheduler scheduler(model(), {.context = given + 3});
  Events events;
  scheduler.submit(request("The index of the table", 3, events));
  EXPECT_EQ(events.wait().front().ended->reason, StopReason::max_tokens);
  EXPECT_EQ(events.wait().front().tokens.size(), 3u);
}

std::vector<std::vector<float>> embed(Scheduler& scheduler, std::vector<std::vector<TokenId>> prompts) {
  Events events(std::ssize(prompts));
  TextRequest r;
  r.prompts = std::move(prompts);
  r.embeds = true;
  r.on_event = events.callback();
  scheduler.submit(std::move(r));
  std::vector<std::vector<float>> out;
  for (const Events::Sequence& s : events.wait()) {
    EXPECT_TRUE(s.ended && s.ended->tokens == 0 && s.tokens.empty()) << (s.failed ? s.failed->message : "");
    out.push_back(s.embedding);
  }
  return out;
}

TEST(Scheduler, EmbeddingIsTheMeanStateAtUnitLength) {
  // The states of this model are the embeddings of its tokens, which consist of 1 and -1.
  const auto bytes = test::scripted_model({"<|end|>"}, {}, "").bytes();
  const Device cpu{Backend::cpu, 0};
  const LanguageModel scripted = LanguageModel::load(GgufFile::parse(bytes, "scripted"), {.devices = {cpu}});
  Scheduler scheduler(scripted);
  const std::vector<std::vector<TokenId>> prompts = {{3}, {5, 9}, {7, 7, 8}};
  const auto got = embed(scheduler, prompts);
  std::mt19937 random(1);
  std::vector<float> embeddings(64 * 10);
  for (float& v : embeddings) v = random() % 2 ? 1.0f : -1.0f;
  for (std::size_t p = 0; p < prompts.size(); ++p) {
    std::vector<double> sum(64);
    double squares = 0;
    for (std::size_t i = 0; i < 64; ++i) {
      for (const TokenId t : prompts[p]) sum[i] += embeddings[static_cast<std::size_t>(t) * 64 + i];
      squares += sum[i] * sum[i];
    }
    ASSERT_EQ(got[p].size(), 64u);
    for (std::size_t i = 0; i < 64; ++i) EXPECT_NEAR(got[p][i], sum[i] / std::sqrt(squares), 1e-5);
  }
}

TEST(Scheduler, EmbeddingsDoNotDependOnOtherRequests) {
  std::mt19937 random(static_cast<unsigned>(testing::seed()));
  std::vector<std::vector<TokenId>> prompts;
  for (TextRequest& r : random_requests(12, random)) prompts.push_back(r.prompts[0]);
  std::vector<std::vector<float>> expected;
  for (const auto& prompt : prompts) {
    Scheduler alone(model(), {.context = 400});
    expected.push_back(embed(alone, {prompt})[0]);
  }
  EXPECT_NE(expected[0], expected[1]);
  for (const SchedulerOptions& options :
       {SchedulerOptions{.context = 400}, SchedulerOptions{.context = 400, .pages = 9, .batch = 40}}) {
    Scheduler scheduler(model(), options);
    Events text;
    scheduler.submit(request("The index", 200, text));
    for (int again = 0; again < 2; ++again) EXPECT_EQ(embed(scheduler, prompts), expected);
    EXPECT_EQ(text.wait().front().ended->reason, StopReason::max_tokens);
    for (int i = 0; i < 600 && scheduler.statistics().running != 0; ++i) std::this_thread::sleep_for(10ms);
    EXPECT_EQ(scheduler.statistics().used_pages, 0);
  }
}

TEST(Scheduler, SequencesOfAPromptShareItsPages) {
  Scheduler scheduler(model());
  Events all(4);
  std::string prompt;
  for (int i = 0; i < 100; ++i) prompt += " index";
  TextRequest r = request(prompt, 3, all);
  const std::int64_t length = std::ssize(r.prompts[0]);
  r.sequences = 4;
  scheduler.submit(r);
  const std::int64_t shared = (length - 1) / 64 * 64;
  ASSERT_GT(shared, 0);
  for (const Events::Sequence& s : all.wait()) EXPECT_EQ(s.started->cached_tokens, &s == &all.wait()[0] ? 0 : shared);
  Events other;
  TextRequest salted = request(prompt, 3, other);
  salted.salt = 1;
  scheduler.submit(salted);
  EXPECT_EQ(other.wait().front().started->cached_tokens, 0);
}

TEST(Scheduler, CallbacksCannotSubmitWhileItIsDestroyed) {
  std::promise<void> begun;
  std::atomic<int> submitted = 0;
  auto scheduler = std::make_unique<Scheduler>(model());
  TextRequest r;
  r.prompts = {tokens("The index")};
  r.max_tokens = 900;
  r.on_event = [&, s = scheduler.get()](std::int64_t, const TextEvent& event) {
    if (std::holds_alternative<TextStarted>(event) && ++submitted == 1) begun.set_value();
    if (!std::holds_alternative<TextEnded>(event)) return;
    TextRequest again = r;
    s->submit(again);  // throws, which ends the request
    ++submitted;
  };
  scheduler->submit(r);
  begun.get_future().wait();
  scheduler.reset();
  EXPECT_EQ(submitted, 1);
}

TEST(Scheduler, RejectsWhatCannotRun) {
  Scheduler scheduler(model(), {.context = 8, .queue = 1});
  Events events;
  const auto with = [&](auto change) {
    TextRequest r = request("The index", 3, events);
    change(r);
    return [&scheduler, r] { scheduler.submit(r); };
  };
  expect_throw<ArgumentError>(with([](auto& r) { r.prompts = {}; }), {"there is no prompt"});
  expect_throw<ArgumentError>(with([](auto& r) { r.prompts = {{}}; }), {"the prompt has no tokens"});
  expect_throw<ArgumentError>(with([](auto& r) { r.prompts = {std::vector<TokenId>(9, 5)}; }),
                              {"longer than the context", "9", "8"});
  expect_throw<ArgumentError>(with([](auto& r) { r.prompts = {{1, 99999}}; }), {"99999"});
  expect_throw<ArgumentError>(with([](auto& r) { r.sampling.top_p = 2; }), {"top_p"});
  expect_throw<ArgumentError>(with([](auto& r) { r.sampling.logit_bias = {{-1, 1.0}}; }), {"bias"});
  expect_throw<ArgumentError>(with([](auto& r) { r.sequences = 0; }), {"sequences"});
  expect_throw<ArgumentError>(with([](auto& r) { r.sequences = std::int64_t{1} << 62; }), {"sequences", "4096"});
  expect_throw<ArgumentError>([] { Scheduler(model(), {.context = 1 << 20}); }, {"context"});
  expect_throw<ArgumentError>([] { Scheduler(model(), {.context = -5}); }, {"context"});
  expect_throw<ArgumentError>([] { Scheduler(model(), {.parallel = 0}); }, {"parallel", "between 1"});
}

TEST(Scheduler, FullQueueThrows) {
  Scheduler scheduler(model(), {.parallel = 1, .queue = 1});
  Events running, waiting, rejected;
  running.allow_pieces(1);
  scheduler.submit(request("The index", 900, running));
  running.wait_for_pieces(1);
  scheduler.submit(request("A table", 3, waiting));
  expect_throw<QueueFull>([&] { scheduler.submit(request("A view", 3, rejected)); }, {"the queue is full"});
  scheduler.cancel_all();
  running.allow_pieces(SIZE_MAX);
  running.wait();
  waiting.wait();
}

TEST(Scheduler, ExceptionOfACallbackCancelsTheRequest) {
  Scheduler scheduler(model());
  TextRequest r;
  r.prompts = {tokens("The index")};
  std::promise<StopReason> reason;
  r.on_event = [&](std::int64_t, const TextEvent& event) {
    if (std::holds_alternative<TextPiece>(event)) throw std::runtime_error("callback");
    if (const auto* ended = std::get_if<TextEnded>(&event)) reason.set_value(ended->reason);
  };
  scheduler.submit(r);
  EXPECT_EQ(reason.get_future().get(), StopReason::cancelled);
}

}  // namespace
}  // namespace tessera
