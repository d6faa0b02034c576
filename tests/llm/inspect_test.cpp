// SPDX-License-Identifier: Apache-2.0
// `tessera inspect`: reports for supported and unsupported models, and models in the caches of other programs.
// Inspecting a file must not read its weights.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tessera/llm/estimate.h"
#include "tessera/llm/gguf_values.h"
#include "tessera/llm/gguf_writer.h"
#include "tessera/llm/inspect.h"
#include "tests/app/app_program.h"
#include "tests/hub/model_folder.h"
#include "tests/llm/reference_llama.h"

using namespace tessera::test;
using nlohmann::json;
using tessera::GgmlType;
using tessera::GgufFile;
using tessera::GgufWriter;

namespace {

const std::string shipped = "models/pgdocs-2m-q8_0.gguf";

testing::AssertionResult refused(const Outcome& o, const std::vector<std::string>& parts) {
  if (o.code != 1 || !o.out.empty()) return testing::AssertionFailure() << "exit code " << o.code << ": " << o.out;
  if (std::count(o.err.begin(), o.err.end(), '\n') != 1) return testing::AssertionFailure() << "not a line: " << o.err;
  return holds(o.err, parts);
}

json inspected(const std::string& file, int code) {
  const Outcome o = run({"inspect", file, "--json", "--device", "cpu:0"});
  EXPECT_EQ(o.code, code) << o.err;
  return json::parse(o.out);
}
/// Returns "kind name" for each missing feature.
std::vector<std::string> missing(const json& report) {
  std::vector<std::string> out;
  for (const json& m : report["missing"])
    out.push_back(m["kind"].get<std::string>() + " " + m["name"].get<std::string>());
  return out;
}

/// Returns a writer for a copy of the shipped model, optionally without one metadata key.
GgufWriter copy(const std::string& leave_out = {}) {
  const GgufFile file = GgufFile::open(shipped);
  GgufWriter w;
  for (const auto& e : file.metadata())
    if (e.key != "general.alignment" && e.key != leave_out) w.set(e.key, e.value);
  for (const auto& t : file.tensors()) w.add_tensor(t.name, {t.dims.begin(), t.dims.end()}, t.type, file.data(t));
  return w;
}

/// Checks that text contains no control characters and no characters that change the direction of text.
testing::AssertionResult is_plain(const std::string& text) {
  for (const char* bad : {"\x1b", "\x07", "\r", "\xc2\x9b", "\xe2\x80\xae", "\xe2\x81\xa6"})
    if (text.find(bad) != text.npos) return testing::AssertionFailure() << "a control character: " << json(bad).dump();
  return testing::AssertionSuccess();
}

TEST(Inspect, PrintsNoControlCharactersFromFiles) {
  const std::string evil = "x\x1b]0;title\x07\x1b[31m\r\xc2\x9b\xe2\x80\xae\xe2\x81\xa6y";
  const TemporaryFolder folder;
  const std::string named = folder / (evil + ".gguf"), other = folder / "other.gguf";
  GgufWriter w = copy("general.name");
  w.set("general.name", evil).add_tensor(evil.substr(0, 60), {1}, std::vector<float>{1});
  w.set("llama." + evil, std::uint32_t{1}).write(named);
  GgufWriter unknown = copy("general.architecture");
  unknown.set("general.architecture", evil).write(other);
  const std::map<std::string, std::string> caches = {{"XDG_CACHE_HOME", folder / "cache"}};
  std::filesystem::create_directories(folder / "cache/llama.cpp");
  std::filesystem::copy(named, folder / ("cache/llama.cpp/" + evil + ".gguf"));
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"inspect", named},
                                             {"inspect", other},
                                             {"inspect"},
                                             {"estimate", named},
                                             {"tokenize", named, evil},
                                             {"generate", named, "-p", "a", "-n", "1"},
                                             {"generate", other, "-p", "a", "-n", "1"},
                                             {evil},
                                             {"inspect", shipped, evil}}) {
    const Outcome o = run(arguments, {.environment = caches});
    EXPECT_FALSE(o.late);
    EXPECT_TRUE(is_plain(o.out)) << arguments[0] << ": " << json(o.out).dump();
    EXPECT_TRUE(is_plain(o.err)) << arguments[0] << ": " << json(o.err).dump();
  }
}

TEST(Inspect, ReportsSupportedModel) {
  EXPECT_TRUE(refused(run({"inspect", shipped, "--device", "cuda:0"}), {"cuda:0"}));
  const json j = inspected(shipped, 0);
  EXPECT_EQ(j["architecture"], "llama");
  EXPECT_TRUE(j["runs"]);
  EXPECT_TRUE(j["missing"].empty());
  const GgufFile file = GgufFile::open(shipped);
  std::uint64_t parameters = 0, bytes = 0, tensors = 0;
  for (const auto& t : file.tensors()) parameters += t.elements, bytes += t.bytes;
  for (const json& t : j["types"]) tensors += t["tensors"].get<std::uint64_t>();
  EXPECT_EQ(j["parameters"], parameters);
  EXPECT_EQ(j["bytes"], bytes);
  EXPECT_EQ(tensors, file.tensors().size());
  EXPECT_EQ(j["types"][0]["type"], "q8_0") << "sorted by bytes";
  EXPECT_EQ(j["context"], 1024);
  EXPECT_EQ(j["tokens"], j["vocabulary"]);
  EXPECT_FALSE(j["chat_template"]);
  const json& memory = j["memory"]["devices"][0];
  EXPECT_EQ(memory["device"], "cpu:0");
  EXPECT_GT(memory["needed_bytes"], bytes);
  EXPECT_TRUE(memory["fits"]);
  const Outcome text = run({"inspect", shipped, "--device", "cpu:0"});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_TRUE(holds(text.out, {"llama (", "million parameters", "q8_0", "f32", "1024 tokens", "gpt2",
                               "chat template   no", "runs here       yes", "cpu:0", "missing         nothing"}));
  const Outcome little =
      run({"inspect", shipped, "--device", "cpu:0"}, {.environment = {{"TESSERA_MEMORY_LIMIT", "1M"}}});
  EXPECT_EQ(little.code, 0) << "another machine may have more";
  EXPECT_TRUE(holds(little.out, {"not enough free memory"}));
}

TEST(Inspect, ListsAllMissingFeatures) {
  const TemporaryFolder folder;
  const std::string path = folder / "model.gguf";
  const std::vector<float> four(4);
  copy()
      .set("llama.new_key", std::uint32_t{1})
      .set("llama.expert_group_count", std::uint32_t{8})
      .add_tensor("blk.0.attn_sinks.weight", {4}, four)
      .add_tensor("output.scale", {4}, four)
      .add_tensor("blk.1.extra.weight", {256, 2}, GgmlType::tq1_0, std::vector<std::byte>(2 * 54))
      .set("tokenizer.chat_template", std::string("{% for %}"))
      .write(path);
  const json j = inspected(path, 1);
  EXPECT_FALSE(j["runs"]);
  EXPECT_EQ(missing(j), (std::vector<std::string>{"key llama.new_key", "key llama.expert_group_count",
                                                  "tensor blk.0.attn_sinks.weight", "tensor output.scale",
                                                  "tensor blk.1.extra.weight", "type tq1_0 (34)",
                                                  "chat template tokenizer.chat_template"}));
  EXPECT_FALSE(j["missing"].back()["stops"]);
  EXPECT_FALSE(j.contains("memory"));
  const Outcome text = run({"inspect", path});
  EXPECT_EQ(text.code, 1) << text.err;
  EXPECT_TRUE(holds(text.out, {"runs here       no", "key llama.new_key", "output.scale", "tq1_0", "extra.weight"}));
  // Running the same file fails immediately.
  EXPECT_TRUE(refused(run({"generate", path, "-p", "A"}), {"llama.new_key"}));

  copy("tokenizer.ggml.pre").set("tokenizer.ggml.pre", std::string("klingon")).write(path);
  const json other = inspected(path, 1);
  ASSERT_EQ(other["missing"].size(), 1u);
  EXPECT_TRUE(holds(other["missing"][0].dump(), {"tokenizer", "klingon"}));

  copy("general.architecture").set("general.architecture", std::string("mamba")).write(path);
  EXPECT_EQ(missing(inspected(path, 1)), std::vector<std::string>{"architecture mamba"});
  EXPECT_TRUE(refused(run({"generate", path, "-p", "A"}), {"mamba", "llama", "gemma2"}));

  copy().set("general.type", std::string("adapter")).write(path);
  EXPECT_TRUE(holds(inspected(path, 1)["missing"].dump(), {"LoRA"}));
}

TEST(Inspect, IgnoredSlidingWindowIsNotMissing) {
  const TemporaryFolder folder;
  const std::string path = folder / "model.gguf";
  copy().set("llama.attention.sliding_window", std::uint32_t{4096}).write(path);
  EXPECT_TRUE(inspected(path, 0)["missing"].empty());
  const Outcome text = run({"inspect", path, "--device", "cpu:0"});
  EXPECT_EQ(text.err, "");
  EXPECT_TRUE(holds(text.out, {"ignored         the sliding window of 4096 tokens", "missing         nothing"}));
  const std::string warning = "llama.attention.sliding_window = 4096 is ignored";
  for (const std::string& command : {"generate", "chat"}) {
    std::vector<std::string> arguments = {command, path, "-p", "A", "-n", "1", "-q", "--device", "cpu:0"};
    if (command == "chat") arguments.insert(arguments.end(), {"--template", "chatml"});
    const std::string err = run(arguments).err;
    ASSERT_NE(err.find(warning), std::string::npos) << err;
    EXPECT_EQ(err.find(warning, err.find(warning) + 1), std::string::npos) << "printed once: " << err;
  }
  copy().set("llama.attention.sliding_window", std::uint32_t{0}).write(path);
  EXPECT_EQ(run({"generate", path, "-p", "A", "-n", "1", "-q", "--device", "cpu:0"}).err, "");
}

TEST(Inspect, DoesNotReadWeights) {
  // Place the data section on pages that cannot be read.
  GgufWriter w(3, 4096);
  {
    const auto bytes = TinyModel{.type = GgmlType::q8_0, .factors = true, .biases = true}.writer().bytes();
    const GgufFile file = GgufFile::parse(bytes, "tiny");
    for (const auto& e : file.metadata()) w.set(e.key, e.value);
    for (const auto& t : file.tensors()) w.add_tensor(t.name, {t.dims.begin(), t.dims.end()}, t.type, file.data(t));
  }
  const auto bytes = w.bytes();
  void* const at = ::mmap(nullptr, bytes.size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(at, MAP_FAILED);
  std::memcpy(at, bytes.data(), bytes.size());
  const GgufFile file = GgufFile::parse(std::span(static_cast<const std::byte*>(at), bytes.size()), "tiny");
  ASSERT_EQ(file.data_offset() % 4096, 0u);
  ASSERT_EQ(::mprotect(static_cast<std::byte*>(at) + file.data_offset(), bytes.size() - file.data_offset(), PROT_NONE),
            0);
  const auto report = tessera::inspect_model(file);
  ASSERT_TRUE(report.config) << report.missing[0].why;
  EXPECT_EQ(report.config->layers, 2);
  const std::vector<tessera::Device> cpu = {tessera::parse_device("cpu:0")};
  EXPECT_GT(estimate_memory(file, cpu, {.context = 64}).devices[0].peak, report.bytes);
  ::munmap(at, bytes.size());
}

TEST(Inspect, ListsModelsInOtherProgramsCaches) {
  const TemporaryFolder folder;
  const std::string hub = folder / "hf/hub", snapshot = hub + "/models--someone--tiny-gguf/snapshots/0123",
                    llama = folder / "llama";
  std::filesystem::create_directories(snapshot + "/sub");
  std::filesystem::create_directories(llama);
  std::filesystem::create_directories(hub + "/models--someone--tiny-gguf/blobs");
  const std::string blob = hub + "/models--someone--tiny-gguf/blobs/abc";
  std::filesystem::copy_file(shipped, blob);
  std::filesystem::create_symlink(blob, snapshot + "/tiny-q8_0.gguf");
  write_file(snapshot + "/sub/config.json", "{}");
  write_folder(hub + "/models--someone--tiny/snapshots/1", folder_of(folder_cases[0]));
  write_file(llama + "/broken.gguf", "GGUF and no more");
  write_file(llama + "/two-00001-of-00002.gguf", "12345");
  write_file(llama + "/two-00002-of-00002.gguf", "123");
  const RunOptions with{.environment = {{"HF_HOME", folder / "hf"}, {"LLAMA_CACHE", llama}, {"HF_HUB_CACHE", ""}}};
  const Outcome o = run({"inspect", "--json"}, with);
  ASSERT_EQ(o.code, 0) << o.err;
  const json j = json::parse(o.out);
  EXPECT_EQ(j["folders"], json({hub, llama}));
  ASSERT_EQ(j["models"].size(), 4u) << j.dump();
  const json &tiny = j["models"][0], &broken = j["models"][2], &two = j["models"][3];
  EXPECT_EQ(j["models"][1]["model"], "someone/tiny");
  EXPECT_TRUE(j["models"][1]["runs"]);
  EXPECT_EQ(tiny["file"], snapshot + "/tiny-q8_0.gguf");
  EXPECT_EQ(tiny["model"], "someone/tiny-gguf");
  EXPECT_EQ(tiny["bytes"], std::filesystem::file_size(shipped));
  EXPECT_TRUE(tiny["runs"]);
  EXPECT_FALSE(broken["runs"]);
  EXPECT_EQ(two["parts"], 2);
  EXPECT_EQ(two["bytes"], 8);
  const Outcome text = run({"inspect"}, with);
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_TRUE(holds(text.out,
                    {snapshot + "/tiny-q8_0.gguf", "someone/tiny-gguf, llama", "runs", "broken.gguf", "does not run"}));
  const Outcome none = run(
      {"inspect"}, {.environment = {{"HF_HOME", folder / "x"}, {"LLAMA_CACHE", folder / "y"}, {"HF_HUB_CACHE", ""}}});
  EXPECT_EQ(none.code, 0) << none.err;
  EXPECT_TRUE(holds(none.out, {"There are no models", folder / "x/hub"}));
}

TEST(ModelNames, UrlsAndRepositoriesSuggestDownloadCommand) {
  const std::pair<std::string, std::string> cases[] = {
      {"https://huggingface.co/someone/tiny-GGUF/resolve/main/tiny-Q4_K_M.gguf?download=true",
       "hf download someone/tiny-GGUF tiny-Q4_K_M.gguf --local-dir ."},
      {"https://huggingface.co/someone/tiny-GGUF", "hf download someone/tiny-GGUF --include '*.gguf'"},
      {"https://example.org/a b.gguf", "curl -L -O 'https://example.org/a b.gguf'"},
      {"someone/tiny-GGUF", "hf download someone/tiny-GGUF --include '*.gguf'"},
      {"someone/tiny", "hf download someone/tiny (`tessera inspect`"},
      {"hf:someone/tiny-GGUF:Q4_K_M", "hf download someone/tiny-GGUF --include '*Q4_K_M*.gguf'"},
  };
  for (const auto& [name, command] : cases) {
    EXPECT_TRUE(refused(run({"inspect", name}), {name, command}));
    EXPECT_TRUE(refused(run({"generate", name, "-p", "A"}), {command}));
  }
  EXPECT_TRUE(refused(run({"inspect", "models/none.gguf"}), {"models/none.gguf", "the file does not exist"}));
}

TEST(ModelNames, ModelsInTheCacheOfTheHubAreFoundByName) {
  const TemporaryFolder folder;
  const std::string hub = folder / "hub", tiny = hub + "/models--someone--tiny",
                    files = hub + "/models--someone--files";
  const RunOptions with{.environment = {{"HF_HUB_CACHE", hub}, {"HF_HOME", folder / "none"}}};
  const std::vector<std::string> generate = {"--ids",         "-p", "1 5 9",    "-n",    "3",
                                             "--temperature", "0",  "--device", "cpu:0", "-q"};
  const auto generated = [&](const std::string& name) {
    std::vector<std::string> arguments{"generate", name};
    arguments.insert(arguments.end(), generate.begin(), generate.end());
    return run(arguments, with);
  };
  write_folder(tiny + "/snapshots/old", folder_of(folder_cases[1]));
  write_folder(tiny + "/snapshots/new", folder_of(folder_cases[0]));
  EXPECT_TRUE(refused(generated("someone/tiny"), {tiny, "revision `main`"}));
  std::filesystem::create_directories(tiny + "/refs");
  write_file(tiny + "/refs/main", "new");
  const Outcome o = generated("someone/tiny");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.out, generated(tiny + "/snapshots/new").out);
  EXPECT_NE(o.out, generated(tiny + "/snapshots/old").out);
  EXPECT_EQ(json::parse(run({"inspect", "hf:someone/tiny", "--json"}, with).out)["name"], "tiny");
  std::filesystem::create_directories(files + "/snapshots/1");
  EXPECT_TRUE(refused(generated("someone/files"), {files + "/snapshots/1", "neither config.json", "hf download"}));
  for (const char* file : {"/tiny-Q8_0.gguf", "/tiny-F16.gguf", "/mmproj-F16.gguf"})
    std::filesystem::copy_file(shipped, files + "/snapshots/1" + file);
  EXPECT_TRUE(refused(generated("someone/files"), {"several files", "tiny-F16.gguf, ", "tiny-Q8_0.gguf"}));
  EXPECT_EQ(generated("someone/files:Q8_0").code, 0);
  EXPECT_TRUE(refused(generated("someone/files:Q4_0"), {"no GGUF file with \"Q4_0\"", "hf download someone/files"}));
  EXPECT_TRUE(refused(generated("someone/absent"), {hub + "/models--someone--absent", "does not download"}));
}

TEST(ModelNames, OtherFileFormatsAreRecognised) {
  const TemporaryFolder folder;
  const std::string path = folder / "model.gguf";
  write_file(path, "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 7\n");
  EXPECT_TRUE(refused(run({"inspect", path}), {path, "Git LFS", "git lfs pull"}));
  const std::string tensors = folder / "model.safetensors";
  write_file(tensors, std::string("\x02\0\0\0\0\0\0\0{}", 10));
  EXPECT_TRUE(refused(run({"generate", tensors, "-p", "A"}), {"safetensors", "folder", "config.json"}));
  const std::string zip = folder / "model.pt";
  write_file(zip, "PK\3\4 a zip archive");
  EXPECT_TRUE(refused(run({"generate", zip, "-p", "A"}), {"PyTorch", "convert_hf_to_gguf.py"}));
  const std::string part = folder / "m-00002-of-00002.gguf";
  GgufWriter()
      .set("split.no", std::uint16_t{1})
      .set("split.count", std::uint16_t{2})
      .set("split.tensors.count", std::int32_t{0})
      .write(part);
  EXPECT_TRUE(refused(run({"inspect", part}), {"part 2 of 2", "m-00001-of-00002.gguf"}));
}

TEST(ModelNames, FoldersAreModels) {
  const TemporaryFolder scratch;
  const std::string folder = scratch / "tiny-model";
  ModelFolder m = folder_of(folder_cases[0]);
  write_folder(folder, m);
  const json report = inspected(folder, 0);
  EXPECT_EQ(report["name"], "tiny-model");
  EXPECT_EQ(report["architecture"], "llama");
  EXPECT_TRUE(holds(run({"inspect", folder, "--device", "cpu:0"}).out, {"tiny-model, folder", "f32", "gpt2, gpt-2"}));
  for (const std::string weights : {"", "q8_0"}) {
    std::vector<std::string> arguments = {"generate", folder,          "--ids", "-p",       "1 5 9", "-n",
                                          "3",        "--temperature", "0",     "--device", "cpu:0", "-q"};
    if (!weights.empty()) arguments.insert(arguments.end(), {"--weights", weights});
    const Outcome o = run(arguments);
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_EQ(std::ranges::count_if(o.out, [](char c) { return c == ' ' || c == '\n'; }), 3) << o.out;
  }
  EXPECT_EQ(run({"tokenize", folder, "t5", "--ids"}).code, 0);
  EXPECT_EQ(run({"estimate", folder, "--weights", "q4_0", "--device", "cpu:0"}).code, 0);
  EXPECT_EQ(run({"estimate", folder, "--weights", "q9", "--device", "cpu:0"}).code, 2);
  EXPECT_TRUE(refused(run({"estimate", shipped, "--weights", "q8_0"}), {shipped, "q8_0", "folder"}));
  m.config["architectures"] = {"FalconForCausalLM"};
  write_folder(folder, m);
  EXPECT_TRUE(refused(run({"inspect", folder}), {folder + "/config.json", "FalconForCausalLM", "LlamaForCausalLM"}));
}

}  // namespace
