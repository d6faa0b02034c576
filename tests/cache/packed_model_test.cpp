// SPDX-License-Identifier: Apache-2.0
// `tessera pack`, and the commands that run language models with the pack: the compilers are absent, nothing is
// compiled, the output is the same, and the first token is not later than with a warm kernel cache.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <regex>

#include "tessera/base/os/processor.h"
#include "tests/app/app_program.h"
#include "tests/app/http_client.h"
#include "tests/support/fake_backends.h"
#include "tests/support/folder.h"
#include "tests/support/sanitized.h"

using namespace tessera::test;

namespace {

constexpr const char* model = "models/pgdocs-2m-q8_0.gguf";
using Environment = std::map<std::string, std::string>;

std::string cpu_target() {
  for (const char* level : {"x86-64-v3", "x86-64", "aarch64"})
    if (tessera::os::supports_processor_level(level)) return std::string("cpu:") + level;
  return "";
}

Environment fakes(const std::string& device) {
  Environment all = {{"TESSERA_DEVICE", device}};
  if (device == "cpu") return all;
  for (const auto& [name, value] : with_fakes()) all[name] = value;
  all["TESSERA_BLAS"] = "off";
  all["LD_PRELOAD"] = TESSERA_SHOWN;  // enables the fake driver to compute kernels
  return all;
}

Outcome start(std::vector<std::string> arguments, const Environment& environment) {
  return run(std::move(arguments), {.environment = environment});
}

std::vector<std::string> generate(const std::string& prompt, const std::string& tokens) {
  return {"generate", model, "-p", prompt, "-n", tokens, "--temperature", "0", "--stats", "-q"};
}

void make_pack(const std::string& device, const std::string& target, const std::string& file) {
  Environment environment = fakes(device);
  environment.erase("LD_PRELOAD");
  const Outcome o = start({"pack", model, "--target", target, "--out", file}, environment);
  ASSERT_EQ(o.code, 0) << o.err;
  std::printf("%s", o.err.c_str());
  const Outcome list = start({"pack", file}, {});
  EXPECT_NE(list.out.find(target), std::string::npos) << list.out;
}

/// Removes the compilers, and forbids to compile.
Environment packed(Environment environment, const std::string& file) {
  environment["TESSERA_PACK"] = file;
  environment["TESSERA_COMPILE"] = "0";
  environment["TESSERA_CODEGEN_LIBRARY"] = environment["TESSERA_NVRTC_LIBRARY"] = "none";
  environment["TESSERA_HIPRTC_LIBRARY"] = "/nonexistent/libhiprtc.so";
  return environment;
}

/// Runs the program once or several times. The output does not depend on where the kernels come from. If a kernel were
/// compiled, the program would fail; with --stats, the numbers are checked, too.
using Use = std::function<std::vector<Outcome>(const Environment&)>;

/// Continues a long prompt, which is saved, and one that begins like it, so that only a few tokens are read.
std::vector<Outcome> generate_texts(const Environment& environment) {
  const TemporaryFolder folder;
  const std::string create = "CREATE TABLE people (id integer, name text, born date); SELECT name FROM people ";
  const std::string rest = "WHERE born > '2000-01-01' ORDER BY name LIMIT 10; The query planner uses";
  std::vector<Outcome> all;
  for (const std::string& prompt : {create + rest, create + "ORDER"}) {
    std::vector<std::string> arguments = generate(prompt, "4");
    arguments.insert(arguments.end(), {"--prompt-cache", folder / "prompt"});
    all.push_back(start(arguments, environment));
  }
  return all;
}

std::vector<Outcome> measure_perplexity(const Environment& environment) {
  const TemporaryFolder folder;
  const std::string text = folder / "text";
  write_file(text, "A sequential scan reads all rows of the table. An index scan reads only the rows that it needs.");
  return {start({"perplexity", model, "-f", text, "--ctx", "16", "--json", "-q"}, environment)};
}

/// The answer is longer than the pages that a chat begins with.
std::vector<Outcome> grow_chat(const Environment& environment) {
  return {start({"chat", model, "--template", "chatml", "-p", "What is an index?", "-n", "280", "--temperature", "0",
                 "--logit-bias", "2047=-1000", "-q"},
                environment)};
}

/// Generates several texts together, with tokens chosen on the device and on the host, and computes an embedding.
std::vector<Outcome> serve_texts(const Environment& environment) {
  std::string answers;
  RunOptions options{.environment = environment, .signal = SIGTERM};
  options.interrupt = [&](const std::string& out, const std::string&) {
    const std::uint16_t port = port_in(out);
    if (port == 0 || HttpClient(port).request("GET", "/health").status != 200) return false;
    const auto post = [&](const std::string& path, const std::string& body) {
      const HttpAnswer answer = HttpClient(port).request("POST", path, body);
      EXPECT_EQ(answer.status, 200) << answer.body;
      if (answer.status == 200) answers += answer.json()[path == "/v1/embeddings" ? "data" : "choices"].dump() + "\n";
    };
    post("/v1/completions", R"({"prompt": ["The index", "A table", "SELECT"], "temperature": 0, "max_tokens": 2})");
    const std::string one = R"({"prompt": "The index", "temperature": 0.8, "seed": 7, "max_tokens": 2, )";
    post("/v1/completions", one + R"("top_k": 4, "n": 2})");
    post("/v1/completions", one + R"("logprobs": 2})");
    post("/v1/embeddings", R"({"input": ["The index", "table"]})");
    return true;
  };
  Outcome outcome = run({"serve", model, "--port", "0", "-q"}, options);
  outcome.out = answers;
  return {outcome};
}

void expect_nothing_compiled(const std::string& device, const std::string& target, const std::vector<Use>& uses) {
  const TemporaryFolder folder;
  const std::string file = folder / "model.pack";
  make_pack(device, target, file);
  Environment compiles = fakes(device);
  const Environment loads = packed(compiles, file);
  if (device == "cpu") compiles["TESSERA_CPU_TARGET"] = target.substr(4);
  for (const Use& use : uses) {
    const std::vector<Outcome> compiled = use(compiles), from_pack = use(loads);
    for (std::size_t i = 0; i < compiled.size(); ++i) {
      ASSERT_EQ(compiled[i].code, 0) << compiled[i].err;
      ASSERT_EQ(from_pack[i].code, 0) << from_pack[i].err;
      EXPECT_EQ(from_pack[i].out, compiled[i].out);
      if (from_pack[i].err.find("kernels of") == std::string::npos) continue;  // without --stats
      const std::regex line("kernels of " + device + ":0: 0 compiled, (\\d+) loaded from the pack, 0 not in it");
      EXPECT_TRUE(std::regex_search(from_pack[i].err, line)) << from_pack[i].err;
    }
  }
}

TEST(PackedModel, RunsOnCpuWithoutTheModule) {
  expect_nothing_compiled("cpu", cpu_target(), {generate_texts, measure_perplexity, grow_chat, serve_texts});
}
TEST(PackedModel, RunsOnCudaWithoutNvrtc) {
  if (!sanitized) expect_nothing_compiled("cuda", "sm_90", {generate_texts, measure_perplexity, serve_texts});
}
TEST(PackedModel, RunsOnRocmWithoutHiprtc) {
  if (!sanitized) expect_nothing_compiled("rocm", "gfx90a", {generate_texts});
}

TEST(PackedModel, FirstTokenIsNotLaterThanWithAWarmCache) {
  if (std::getenv("TESSERA_TEST_LONG") == nullptr) return;  // times are compared
  const TemporaryFolder folder;
  const std::string file = folder / "model.pack";
  make_pack("cpu", cpu_target(), file);
  const Environment warm = {
      {"TESSERA_DEVICE", "cpu"}, {"TESSERA_KERNEL_CACHE", "1"}, {"TESSERA_CACHE_DIR", folder / "cache"}};
  const Environment pack = packed(fakes("cpu"), file);
  const auto once = [](const Environment& environment) {
    const Outcome o = start(generate("The index", "1"), environment);
    EXPECT_EQ(o.code, 0) << o.err;
    return o.seconds;
  };
  once(warm);
  double best_warm = 1e9, best_pack = 1e9;
  for (int i = 0; i < 7; ++i) best_warm = std::min(best_warm, once(warm)), best_pack = std::min(best_pack, once(pack));
  std::printf("until the first token: %.0f ms with a warm cache, %.0f ms with a pack, ratio %.2f\n", 1e3 * best_warm,
              1e3 * best_pack, best_pack / best_warm);
  EXPECT_LE(best_pack, 1.2 * best_warm) << "the machine may be busy";
}

TEST(PackedModel, WrongFilesAndMissingKernelsAreErrors) {
  const TemporaryFolder folder;
  const std::string file = folder / "bad.pack";
  write_file(file, "tessera pack 1\nxx");
  const Outcome bad = start(generate("The index", "1"), packed(fakes("cpu"), file));
  EXPECT_EQ(bad.code, 1);
  EXPECT_NE(bad.err.find("the pack is truncated"), std::string::npos) << bad.err;
  const Outcome usage = start({"pack", model, "--out", file}, {});
  EXPECT_EQ(usage.code, 2) << usage.err;
  const Outcome unknown = start({"pack", model, "--target", "sm_1", "--out", file}, {});
  EXPECT_EQ(unknown.code, 1);
  EXPECT_NE(unknown.err.find("sm_90"), std::string::npos) << unknown.err;
  const std::string copy = folder / "model.gguf";
  std::filesystem::copy_file(model, copy);
  const Outcome replaced = start({"pack", copy, "--target", cpu_target(), "--out", copy}, {});
  EXPECT_EQ(replaced.code, 1);
  EXPECT_NE(replaced.err.find("the model would be replaced"), std::string::npos) << replaced.err;
  EXPECT_EQ(std::filesystem::file_size(copy), std::filesystem::file_size(model));
}

}  // namespace
