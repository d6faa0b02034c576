// SPDX-License-Identifier: Apache-2.0
// Errors of a device while the scheduler runs requests of several callers. Each case runs in a process of its own with
// a fake driver. Every request ends once, all pages are returned, and the next requests succeed unless the device is
// lost.
#include "tessera/llm/scheduler.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>

#include "tessera/base/os/library.h"
#include "tests/support/fake_backends.h"
#include "tests/support/scripted_model.h"

namespace tessera {
namespace {

constexpr std::size_t rounds = 5, callers = 4;
constexpr std::int64_t length = 12;

std::uint64_t count(const char* what) {
  return os::Library::open(test::fake_library("cuda")).function<std::uint64_t(const char*)>("tessera_fake_count")(what);
}

/// The results of the requests of a round.
struct Round {
  std::size_t failed = 0;
  std::string problems;
};

Round run_round(Scheduler& scheduler, const LanguageModel& model) {
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t ends = 0;
  Round round;
  std::vector<std::string> texts(callers);
  for (std::size_t c = 0; c < callers; ++c) {
    std::vector<TokenId> prompt;
    for (std::size_t i = 0; i <= c; ++i)
      for (const char* word : {"one ", "two ", "three "})
        prompt.push_back(*model.tokenizer().find(byte_level_text(word)));
    TextRequest r;
    r.prompts = {prompt};
    r.sampling.temperature = 0;
    r.max_tokens = length;
    r.on_event = [&, c](std::int64_t, const TextEvent& event) {
      const std::lock_guard lock(mutex);
      if (const auto* piece = std::get_if<TextPiece>(&event)) texts[c] += piece->text;
      if (const auto* failed = std::get_if<TextFailed>(&event)) {
        ++round.failed, texts[c].clear();
        if (failed->message.empty()) round.problems += "an error without a message\n";
      } else if (std::holds_alternative<TextEnded>(event) &&
                 texts[c] != "one two three one two three one two three one two three ") {
        round.problems += fmt::format("caller {} got \"{}\"\n", c, texts[c]);
      }
      ends += std::holds_alternative<TextFailed>(event) || std::holds_alternative<TextEnded>(event);
      changed.notify_all();
    };
    scheduler.submit(std::move(r));
  }
  std::unique_lock lock(mutex);
  if (!changed.wait_for(lock, std::chrono::seconds(60), [&] { return ends == callers; })) round.problems += "no end\n";
  const SchedulerStatistics after = scheduler.statistics();
  if (after.used_pages != 0 || after.running != 0 || after.queued != 0)
    round.problems += fmt::format("{} pages, {} running, {} queued\n", after.used_pages, after.running, after.queued);
  return round;
}

/// Runs all rounds in a child. The result has the driver's counter before and after them, the number of requests that
/// failed in all rounds, in the last one, the steps that failed in succession, and problems.
std::string run(const char* counter, const std::string& fault) {
  test::Variables variables;
  if (!fault.empty()) variables.emplace_back("TESSERA_FAKE_FAULT", fault);
  return test::run_in_child(test::with_fakes(variables), [&] {
    const auto bytes = test::scripted_model({"<|end|>"}, {{"one ", "two ", "three ", "one "}}, "").bytes();
    const LanguageModel model =
        LanguageModel::load(GgufFile::parse(bytes, "scripted"), {.devices = {Device{Backend::cuda, 0}}});
    const std::uint64_t before = count(counter);
    Scheduler scheduler(model, {.context = 256, .parallel = 3, .pages = 12});
    std::size_t failed = 0;
    Round last;
    std::string problems;
    for (std::size_t i = 0; i < rounds; ++i) {
      last = run_round(scheduler, model);
      failed += last.failed, problems += last.problems;
    }
    return fmt::format("{} {} {} {} {} {}", before, count(counter), failed, last.failed,
                       scheduler.statistics().failed_steps, problems);
  });
}

struct Result {
  unsigned long before = 0, after = 0, failed = 0, failed_last = 0, steps = 0;
  std::string problems;
};
Result parse(const std::string& text) {
  Result r;
  int at = 0;
  if (std::sscanf(text.c_str(), "%lu %lu %lu %lu %lu %n", &r.before, &r.after, &r.failed, &r.failed_last, &r.steps,
                  &at) < 5)
    ADD_FAILURE() << text;
  r.problems = text.substr(static_cast<std::size_t>(at));
  return r;
}

TEST(SchedulerFaults, OneErrorFailsOnlyTheRequestsOfItsStep) {
  for (const auto& [fault, counter] : {std::pair("launch", "launches"), std::pair("oom", "allocations")}) {
    const Result normal = parse(run(counter, ""));
    ASSERT_EQ(normal.failed, 0u);
    ASSERT_EQ(normal.problems, "");
    ASSERT_GT(normal.after, normal.before);
    std::size_t failed = 0;
    for (const double part : {0.05, 0.3, 0.6}) {
      const auto n =
          normal.before + 1 + static_cast<std::uint64_t>(part * static_cast<double>(normal.after - normal.before));
      const Result r = parse(run(counter, fmt::format("{}={}", fault, n)));
      EXPECT_EQ(r.problems, "") << fault << "=" << n;
      EXPECT_LE(r.failed, callers) << fault << "=" << n;
      EXPECT_EQ(r.failed_last, 0u) << fault << "=" << n;
      EXPECT_EQ(r.steps, 0u) << fault << "=" << n;
      failed += r.failed;
    }
    if (fault != std::string_view("oom")) {  // a step that has too little memory is repeated
      EXPECT_GT(failed, 0u) << fault;
    }
  }
}

TEST(SchedulerFaults, ALostDeviceFailsAllLaterRequests) {
  const Result normal = parse(run("operations", ""));
  for (const char* fault : {"lost", "late"}) {
    const Result r = parse(run("operations", fmt::format("{}={}", fault, (normal.before + normal.after) / 2)));
    EXPECT_EQ(r.problems, "") << fault;
    EXPECT_EQ(r.failed_last, callers) << fault;
    EXPECT_GE(r.steps, 2u) << fault;
  }
}

}  // namespace
}  // namespace tessera
