// SPDX-License-Identifier: Apache-2.0
// `tessera train lm`: training on a text, the model file for `tessera generate`, resuming interrupted runs, and errors.
#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tessera/tessera.h"
#include "tests/app/app_program.h"

using namespace tessera::test;
using nlohmann::json;

namespace {

using Arguments = std::vector<std::string>;

Outcome tessera_lm(Arguments arguments, RunOptions options = {}) {
  options.environment.emplace("TESSERA_DEVICE", "cpu");
  options.environment.emplace("TESSERA_KERNEL_CACHE", "1");
  if (const char* cache = std::getenv("TESSERA_CACHE_DIR")) options.environment.emplace("TESSERA_CACHE_DIR", cache);
  options.limit = 200;
  return run(std::move(arguments), options);
}
Outcome train(const std::string& text, const Arguments& more, RunOptions options = {}) {
  Arguments all = {"train",        "lm",  "--text",      text, "--layers", "1",  "--width", "32",
                   "--heads",      "2",   "--key-heads", "1",  "--hidden", "32", "--ctx",   "32",
                   "--vocabulary", "300", "--batch",     "4",  "--seed",   "7"};
  all.insert(all.end(), more.begin(), more.end());
  return tessera_lm(all, std::move(options));
}

/// Returns a text that is easy to learn: the first word of a sentence determines its other words.
std::string rhymes() {
  std::string out;
  const std::string animals[] = {"cat", "dog", "owl", "hen"}, verbs[] = {"sees", "hears", "meets"};
  for (std::size_t i = 0; out.size() < 12'000; ++i) {
    const std::size_t a = i * 7 % 4, b = (i * 5 + i / 3) % 4, v = (a + 2 * b) % 3;
    out += "The " + animals[a] + " " + verbs[v] + " the " + animals[b] + ", and the " + animals[b] + " " + verbs[v] +
           " the " + animals[a] + (i % 6 == 5 ? ".\n\n" : ".\n");
  }
  return out;
}

TEST(TrainLm, WritesAModelThatGenerates) {
  const TemporaryFolder folder;
  const std::string text = folder / "rhymes.txt", model = folder / "rhymes.gguf", csv = folder / "c.csv";
  write_file(text, rhymes());
  const Outcome o =
      train(text, {"--steps", "150", "--out", model, "--csv", csv, "--type", "f32", "--prompt", "The cat"});
  ASSERT_EQ(o.code, 0) << o.err;
  for (const char* part : {"150 steps of 128 tokens", "tokens/s", "nats per token (bigram model", "3-gram model",
                           "bits per byte", "writes", "The cat", "rhymes.gguf", "rhymes.safetensors"})
    EXPECT_NE(o.out.find(part), std::string::npos) << part << " is not in: " << o.out;
  for (const char* part : {"text: 12,0", "baselines: ", "passes over the text"})
    EXPECT_NE(o.err.find(part), std::string::npos) << part << " is not in: " << o.err;
  EXPECT_EQ(text_of(csv).rfind("step,samples,rate,loss,held_out_loss,held_out_accuracy\n", 0), 0u);

  const Outcome more = train(text, {"--resume", folder / "rhymes.safetensors", "--steps", "160", "--json"});
  ASSERT_EQ(more.code, 0) << more.err;
  const json j = json::parse(more.out);
  EXPECT_EQ(j["steps"], 10);
  EXPECT_EQ(j["task"], "lm");
  EXPECT_EQ(j["shape"]["key-heads"], 1);
  EXPECT_EQ(j["files"], json::parse("[\"" + (folder / "rhymes.safetensors") + "\", \"" + model + "\"]"));
  const json& h = j["held_out"];
  // A uniform distribution would have a loss of ln 300 = 5.7. The n-gram models also predict the text well.
  EXPECT_LT(h["loss"], 1.5);
  EXPECT_GT(h["loss"], 0.0);
  EXPECT_LT(h["trigram_loss"], h["bigram_loss"]);
  EXPECT_GT(h["accuracy"], 0.4);
  EXPECT_GT(j["tokens_per_second"], 0.0);

  // The model that the library loads from the file is as good on similar text.
  const auto loaded = tessera::LanguageModel::load(model, tessera::Device{tessera::Backend::cpu, 0});
  EXPECT_EQ(loaded.model().config().context_length, 32);
  const Outcome made = tessera_lm({"generate", model, "-p", "The cat", "-n", "12", "--temperature", "0", "--quiet"});
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_NE(made.out.find("the"), std::string::npos) << made.out;
}

TEST(TrainLm, InterruptedRunResumesBitForBit) {
  const TemporaryFolder folder;
  const std::string text = folder / "t.txt";
  write_file(text, rhymes());
  for (const std::string precision : {"f32", "bf16"}) {
    const std::string whole = "whole-" + precision, parts = "parts-" + precision;
    const auto options = [&](const std::string& name) {
      return Arguments{
          "--out", folder / (name + ".gguf"), "--csv", folder / (name + ".csv"), "--precision", precision, "--dropout",
          "0.1"};
    };
    const auto with = [](Arguments a, const Arguments& more) {
      a.insert(a.end(), more.begin(), more.end());
      return a;
    };
    ASSERT_EQ(train(text, with({"--steps", "50"}, options(whole))).code, 0);
    RunOptions interrupt;
    interrupt.interrupt = [&](const auto&, const auto&) {
      const std::string rows = text_of(folder / (parts + ".csv"));
      return std::count(rows.begin(), rows.end(), '\n') > 5;
    };
    const Outcome first = train(text, with({"--steps", "50"}, options(parts)), interrupt);
    EXPECT_TRUE(first.code == 130 || first.code == 0) << first.code << first.err;
    EXPECT_NO_THROW(
        tessera::LanguageModel::load(folder / (parts + ".gguf"), tessera::Device{tessera::Backend::cpu, 0}));
    const Outcome second = train(text, with({"--resume", folder / (parts + ".safetensors")}, options(parts)));
    ASSERT_EQ(second.code, 0) << second.err;
    EXPECT_TRUE(same_file(folder / (parts + ".safetensors"), folder / (whole + ".safetensors")));
    EXPECT_TRUE(same_file(folder / (parts + ".csv"), folder / (whole + ".csv")));
  }
}

TEST(TrainLm, RejectsInvalidRequests) {
  const TemporaryFolder folder;
  const std::string text = folder / "t.txt", model = folder / "m.gguf", saved = folder / "m.safetensors";
  write_file(text, rhymes());
  ASSERT_EQ(train(text, {"--steps", "2", "--out", model}).code, 0);
  EXPECT_TRUE(fails(tessera_lm({"train", "lm"}), 2, {"--text"}));
  EXPECT_TRUE(fails(train(folder / "none.txt", {}), 1, {"none.txt"}));
  EXPECT_TRUE(fails(train(text, {"--width", "33", "--out", model}), 2, {"--width"}));  // the option is given twice
  EXPECT_TRUE(fails(tessera_lm({"train", "lm", "--text", text, "--width", "100", "--out", model}), 1,
                    {"--width 100", "6 heads"}));
  EXPECT_TRUE(fails(tessera_lm({"train", "lm", "--text", text, "--vocabulary", "256"}), 2, {"--vocabulary"}));
  EXPECT_TRUE(fails(train(text, {"--out", saved}), 1, {"GGUF", ".gguf"}));
  EXPECT_TRUE(fails(train(text, {"--out", text}), 1, {"this is the text"}));
  EXPECT_TRUE(fails(train(text, {"--out", "/proc/no/m.gguf"}), 1, {"/proc/no/m"}));
  write_file(folder / "short.txt", "A text of a few words.\n");
  EXPECT_TRUE(fails(train(folder / "short.txt", {"--out", model}), 1, {"too short", "at least 8,000 bytes"}));
  EXPECT_TRUE(fails(tessera_lm({"train", "lm", "--text", text, "--ctx", "20000", "--out", model}), 1,
                    {"too short", "20001", "a text of at least"}));
  EXPECT_TRUE(fails(train(text, {"--out", model, "--prompt", rhymes().substr(0, 900)}), 1, {"--prompt", "32 tokens"}));
  // Resuming requires the same text and the same sizes.
  EXPECT_TRUE(fails(tessera_lm({"train", "lm", "--text", text, "--resume", saved, "--layers", "3"}), 1,
                    {"--layers", "trained with --layers 1"}));
  write_file(folder / "other.txt", rhymes() + "The end.\n");
  EXPECT_TRUE(fails(tessera_lm({"train", "lm", "--text", folder / "other.txt", "--resume", saved}), 1,
                    {"a different text", "other.txt"}));
  EXPECT_TRUE(fails(tessera_lm({"train", "digits", "--resume", saved}), 1, {"tessera train lm"}));
  // Without --out, the file is named after the text, and an existing file is not replaced.
  const std::string name = "train-lm-test-" + std::to_string(::getpid());
  write_file(folder / (name + ".txt"), rhymes());
  write_file(name + ".gguf", "something else");
  EXPECT_TRUE(fails(tessera_lm({"train", "lm", "--text", folder / (name + ".txt")}), 1,
                    {name + ".gguf already exists", "--resume " + name + ".safetensors", "--out"}));
  EXPECT_EQ(text_of(name + ".gguf"), "something else");
  std::filesystem::remove(name + ".gguf");
  RunOptions limited;
  limited.environment["TESSERA_MEMORY_LIMIT"] = "24M";
  EXPECT_TRUE(
      fails(tessera_lm({"train", "lm", "--text", text, "--layers", "1", "--steps", "2", "--out", model}, limited), 1,
            {"--batch (now 16)"}));
}

}  // namespace
