// SPDX-License-Identifier: Apache-2.0
// The scheduler with many requests: texts continue while a long prompt is read, and a thousand requests that are
// preempted, cancelled or rejected leave no page in use.
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <latch>
#include <mutex>
#include <random>
#include <thread>

#include "tessera/llm/paged_cache.h"
#include "tessera/llm/scheduler.h"
#include "tessera/testing/testing.h"
#include "tests/support/scripted_model.h"

namespace tessera {
namespace {

using namespace std::chrono_literals;

constexpr Device cpu{Backend::cpu, 0};

TEST(SchedulerLoad, EachStepOfALongPromptAlsoReadsATokenOfEachText) {
  // The model repeats three words without an end.
  const auto bytes = test::scripted_model({"<|end|>"}, {{"one ", "two ", "three ", "one "}}, "").bytes();
  const LanguageModel model = LanguageModel::load(GgufFile::parse(bytes, "scripted"), {.devices = {cpu}});
  const TokenId one = *model.tokenizer().find(byte_level_text("one "));
  constexpr std::size_t texts = 15;
  constexpr std::int64_t batch = 512, prompt = 4000;
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t started = 0, ended = 0;
  std::vector<std::int64_t> last(texts, -1), furthest(texts, 0);
  std::vector<std::size_t> pieces_while_read(texts, 0);
  std::int64_t before = -1;  // tokens that were read before the long prompt
  Scheduler scheduler(model, {.context = 4096, .parallel = 16, .batch = batch});
  const auto request = [&](std::vector<TokenId> tokens, std::int64_t most) {
    TextRequest r;
    r.prompts = {std::move(tokens)};
    r.sampling.temperature = 0;
    r.max_tokens = most;
    return r;
  };
  std::vector<Scheduler::RequestId> ids;
  for (std::size_t i = 0; i < texts; ++i) {
    TextRequest r = request({one}, 4000);
    r.on_event = [&, i](std::int64_t, const TextEvent& event) {
      const std::int64_t read = scheduler.statistics().read_tokens;  // by the steps before this one
      const std::lock_guard lock(mutex);
      if (std::holds_alternative<TextPiece>(event)) {
        if (last[i] < 0) ++started;
        if (before >= 0 && last[i] >= 0) {
          furthest[i] = std::max(furthest[i], read - last[i]);
          pieces_while_read[i] += read > before && read < before + prompt;
        }
        last[i] = read;
      }
      ended += std::holds_alternative<TextEnded>(event) || std::holds_alternative<TextFailed>(event);
      changed.notify_all();
    };
    ids.push_back(scheduler.submit(std::move(r)));
  }
  std::unique_lock lock(mutex);
  ASSERT_TRUE(changed.wait_for(lock, 60s, [&] { return started == texts; }));
  before = static_cast<std::int64_t>(texts);
  lock.unlock();
  bool is_read = false;
  std::vector<TokenId> tokens(prompt, one);
  TextRequest r = request(tokens, 1);
  r.on_event = [&](std::int64_t, const TextEvent& event) {
    const std::lock_guard held(mutex);
    is_read = is_read || std::holds_alternative<TextPiece>(event);
    changed.notify_all();
  };
  scheduler.submit(std::move(r));
  lock.lock();
  ASSERT_TRUE(changed.wait_for(lock, 60s, [&] { return is_read; }));
  EXPECT_EQ(ended, 0u) << "the texts ended before the prompt was read";
  lock.unlock();
  for (const auto id : ids) scheduler.cancel(id);
  lock.lock();
  ASSERT_TRUE(changed.wait_for(lock, 60s, [&] { return ended == texts; }));
  for (std::size_t i = 0; i < texts; ++i) {
    EXPECT_LE(furthest[i], batch) << "text " << i << " had no token in a step";
    EXPECT_GE(pieces_while_read[i], static_cast<std::size_t>(prompt / batch) - 1);
  }
}

/// How a request of a load ends.
enum class Fate { completes, is_cancelled, throws, is_too_long };

/// A request, and its result if it runs alone.
struct Candidate {
  TextRequest request;
  std::vector<std::vector<TokenId>> tokens;
  std::vector<float> embedding;
};

/// The events of a request.
struct Received {
  explicit Received(std::int64_t sequences) : tokens(static_cast<std::size_t>(sequences)) {}
  std::vector<std::vector<TokenId>> tokens;
  std::vector<float> embedding;
  std::int64_t ended = 0, failed = 0, cancelled = 0;
};

/// Counts requests that have not ended.
class Tickets {
 public:
  void add(std::int64_t n) {
    const std::lock_guard lock(mutex_);
    open_ += n;
    changed_.notify_all();
  }
  /// Waits until at most `most` are open. Returns false after ten minutes.
  bool wait(std::int64_t most) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, 600s, [&] { return open_ <= most; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t open_ = 0;
};

std::int64_t count_of(const TextRequest& r) { return std::ssize(r.prompts) * r.sequences; }

void take(Received& to, std::int64_t sequence, const TextEvent& event) {
  auto& tokens = to.tokens[static_cast<std::size_t>(sequence)];
  if (const auto* piece = std::get_if<TextPiece>(&event))
    tokens.insert(tokens.end(), piece->tokens.begin(), piece->tokens.end());
  if (const auto* embedding = std::get_if<TextEmbedding>(&event)) to.embedding = embedding->values;
  if (const auto* ended = std::get_if<TextEnded>(&event))
    ++to.ended, to.cancelled += ended->reason == StopReason::cancelled;
  to.failed += std::holds_alternative<TextFailed>(event);
}

constexpr std::int64_t pages_alone = 12;  ///< of the scheduler that computes the result of one request
constexpr std::int64_t batch = 128;

/// Random requests, half of which begin with the same tokens, with the results that they have alone.
std::vector<Candidate> candidates(const LanguageModel& model, std::size_t count, std::mt19937_64& random) {
  const auto vocabulary = static_cast<TokenId>(model.model().config().vocabulary);
  const auto tokens = [&](std::size_t n) {
    std::vector<TokenId> out;
    for (; n > 0; --n) out.push_back(static_cast<TokenId>(random() % static_cast<std::uint64_t>(vocabulary - 1)));
    return out;
  };
  const std::vector<TokenId> shared = tokens(70);
  std::vector<Candidate> all;
  for (std::size_t i = 0; i < count; ++i) {
    TextRequest r;
    std::vector<TokenId> prompt = tokens(1 + random() % 60);
    if (i % 2 == 0) prompt.insert(prompt.begin(), shared.begin(), shared.end());
    r.prompts = {std::move(prompt)};
    r.embeds = i % 8 == 7;
    r.sequences = i % 5 == 3 && !r.embeds ? 3 : 1;
    r.sampling = {.temperature = i % 3 == 0 ? 0 : 0.9, .seed = random()};
    r.max_tokens = 1 + static_cast<std::int64_t>(random() % 30);
    Received got(count_of(r));
    Tickets tickets;
    tickets.add(count_of(r));
    {
      Scheduler alone(model, {.context = 256, .pages = pages_alone, .batch = batch, .shares_prefixes = false});
      TextRequest copy = r;
      copy.on_event = [&](std::int64_t sequence, const TextEvent& event) {
        take(got, sequence, event);
        if (std::holds_alternative<TextEnded>(event) || std::holds_alternative<TextFailed>(event)) tickets.add(-1);
      };
      alone.submit(std::move(copy));
      EXPECT_TRUE(tickets.wait(0));
    }
    EXPECT_EQ(got.failed, 0);
    all.push_back({std::move(r), std::move(got.tokens), std::move(got.embedding)});
  }
  return all;
}

/// Runs `count` random requests on a few pages, and compares the results with those of the same requests alone.
SchedulerStatistics run_requests(const LanguageModel& model, std::size_t count, const std::vector<Candidate>& all,
                                 std::mt19937_64& random) {
  constexpr std::int64_t pages = 6, context = 1024;
  Scheduler scheduler(model, {.context = context, .parallel = 8, .pages = pages, .batch = batch, .queue = count});
  struct Sent {
    const Candidate* candidate;
    Fate fate;
    Received received;
  };
  std::vector<std::unique_ptr<Sent>> sent;
  Tickets tickets;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t draw = random() % 100;
    const Fate fate = draw < 15   ? Fate::is_cancelled
                      : draw < 20 ? Fate::throws
                      : draw < 23 ? Fate::is_too_long
                                  : Fate::completes;
    const Candidate& chosen = all[random() % all.size()];
    TextRequest r = chosen.request;
    if (fate == Fate::is_too_long) r.prompts = {std::vector<TokenId>(static_cast<std::size_t>(pages * 64 + 1), 5)};
    Sent& one = *sent.emplace_back(new Sent{&chosen, fate, Received(count_of(r))});
    r.on_event = [&](std::int64_t sequence, const TextEvent& event) {
      take(one.received, sequence, event);
      const bool is_last = std::holds_alternative<TextEnded>(event) || std::holds_alternative<TextFailed>(event);
      if (is_last) tickets.add(-1);
      if (one.fate == Fate::throws && !is_last) throw std::runtime_error("callback");
    };
    EXPECT_TRUE(tickets.wait(40));
    tickets.add(count_of(r));
    const auto id = scheduler.submit(std::move(r));
    if (fate != Fate::is_cancelled) continue;
    if (random() % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
    scheduler.cancel(id);
  }
  EXPECT_TRUE(tickets.wait(0));
  for (const auto& one : sent) {
    const Received& got = one->received;
    EXPECT_EQ(got.ended + got.failed, std::ssize(got.tokens)) << "each sequence has one end";
    EXPECT_EQ(got.failed, one->fate == Fate::is_too_long ? std::ssize(got.tokens) : 0);
    if (one->fate != Fate::completes) continue;
    EXPECT_EQ(got.cancelled, 0);
    EXPECT_EQ(got.tokens, one->candidate->tokens);
    EXPECT_EQ(got.embedding, one->candidate->embedding);
  }
  // The last event is delivered during a step, which then counts the request as ended.
  SchedulerStatistics after = scheduler.statistics();
  for (int i = 0; i < 10'000 && after.running + after.queued + after.used_pages > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    after = scheduler.statistics();
  }
  EXPECT_EQ(after.used_pages, 0);
  EXPECT_EQ(after.shared_pages, 0);
  EXPECT_EQ(after.running + after.queued, 0);
  // How many depends on the speed of the steps: 27 or more of 1,000 were seen.
  EXPECT_GE(after.preempted, static_cast<std::int64_t>(count / 100));
  return after;
}

TEST(SchedulerLoad, PagesReturnAfterAThousandRequests) {
  const LanguageModel model = LanguageModel::load("models/pgdocs-2m-q8_0.gguf", cpu);
  std::mt19937_64 random(testing::seed());
  run_requests(model, 1000, candidates(model, 24, random), random);
}

TEST(SchedulerLoad, ShortTextsTakeFewPages) {
  const auto bytes = test::scripted_model({"<|end|>"}, {{"one ", "two ", "three ", "one "}}, "").bytes();
  const LanguageModel model = LanguageModel::load(GgufFile::parse(bytes, "scripted"), {.devices = {cpu}});
  const TokenId one = *model.tokenizer().find(byte_level_text("one "));
  constexpr std::int64_t texts = 16;
  Tickets tickets;
  std::atomic<std::int64_t> most_running = 0, most_pages = 0;
  const std::uint64_t before = memory_stats(cpu).live_bytes;
  Scheduler scheduler(model, {.context = 4096, .parallel = texts});
  EXPECT_EQ(scheduler.statistics().used_pages, 0);
  std::latch submitted(1);  // without it, the first texts could end before the last ones are submitted
  for (std::int64_t i = 0; i < texts; ++i) {
    TextRequest r;
    r.prompts = {std::vector<TokenId>(20, one)};
    r.sampling.temperature = 0;
    r.max_tokens = 40;
    r.on_event = [&](std::int64_t, const TextEvent& event) {
      submitted.wait();
      const SchedulerStatistics now = scheduler.statistics();
      most_running = std::max(most_running.load(), now.running);
      most_pages = std::max(most_pages.load(), now.used_pages);
      if (std::holds_alternative<TextEnded>(event)) tickets.add(-1);
    };
    tickets.add(1);
    scheduler.submit(std::move(r));
  }
  submitted.count_down();
  ASSERT_TRUE(tickets.wait(0));
  EXPECT_EQ(most_running, texts);
  EXPECT_EQ(most_pages, texts) << "a page of each text";
  const std::uint64_t page = PagedCache::page_bytes(model.model().config(), DType::f16);
  EXPECT_LT(memory_stats(cpu).live_bytes - before, 2 * texts * page) << "of " << scheduler.statistics().pages;
}

TEST(SchedulerLoad, PromptsOfManyLengthsTakeTheMemoryOfOneStep) {
  const LanguageModel model = LanguageModel::load("models/pgdocs-2m-q8_0.gguf", cpu);
  Scheduler scheduler(model, {.context = 1024, .parallel = 4, .pages = 64, .shares_prefixes = false});
  const auto cached_after = [&](const std::vector<std::size_t>& lengths) {
    for (const std::size_t length : lengths) {
      Tickets tickets;
      tickets.add(1);
      TextRequest r;
      r.prompts = {std::vector<TokenId>(length, 500)};
      r.max_tokens = 1;
      r.on_event = [&](std::int64_t, const TextEvent& event) {
        if (std::holds_alternative<TextEnded>(event) || std::holds_alternative<TextFailed>(event)) tickets.add(-1);
      };
      scheduler.submit(std::move(r));
      EXPECT_TRUE(tickets.wait(0));
    }
    return memory_stats(cpu).cached_bytes;
  };
  trim(cpu);
  const std::uint64_t one = cached_after({512});
  EXPECT_LT(cached_after({350, 280, 210, 150, 110, 80, 60, 512}), one + one / 2) << "after one step: " << one;
}

/// Returns the number of bytes that a line of /proc/self/status contains, such as VmHWM, the peak resident memory.
std::int64_t status_bytes(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;)
    if (word == name + ":") {
      std::int64_t kib = 0;
      file >> kib;
      return kib << 10;
    }
  return 0;
}

TEST(SchedulerLoad, LargeModelNeedsLittleMoreThanWeightsAndPages) {
  const char* const named = std::getenv("TESSERA_RANDOM_MODEL");
  const std::string path = named != nullptr ? named : TESSERA_RANDOM_MODEL;
  const LanguageModel model = LanguageModel::load(path, cpu);
  std::mt19937_64 random(testing::seed());
  const char* const many = std::getenv("TESSERA_FUZZ_CASES");
  const std::uint64_t requests = many                                          ? std::strtoull(many, nullptr, 10)
                                 : std::getenv("TESSERA_TEST_LONG") != nullptr ? 1000
                                                                               : 300;
  const SchedulerStatistics after = run_requests(model, requests, candidates(model, 24, random), random);
  const auto page = static_cast<std::int64_t>(PagedCache::page_bytes(model.model().config(), DType::f16));
  const auto weights = static_cast<std::int64_t>(std::filesystem::file_size(path)),
             cache = std::max(after.pages, pages_alone) * page;
  const std::int64_t peak = status_bytes("VmHWM");
  std::printf("%lld preempted; peak %lld MiB, weights %lld MiB, pages %lld MiB\n",
              static_cast<long long>(after.preempted), static_cast<long long>(peak >> 20),
              static_cast<long long>(weights >> 20), static_cast<long long>(cache >> 20));
  EXPECT_LE(peak, (weights + cache) * 115 / 100);
}

}  // namespace
}  // namespace tessera
