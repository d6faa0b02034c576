// SPDX-License-Identifier: Apache-2.0
// The program `tessera`: help, exit codes, tables and JSON, generated text, and errors for invalid input.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <thread>

#include "tessera/tessera.h"
#include "tests/app/app_program.h"

using namespace tessera::test;
using nlohmann::json;

namespace {

const std::string model = "models/pgdocs-2m-q8_0.gguf";
const std::string model_f16 = "models/pgdocs-2m-f16.gguf";
const std::vector<std::string> commands = {"devices", "doctor",   "prefer",  "generate", "chat",       "serve",
                                           "embed",   "tokenize", "inspect", "estimate", "perplexity", "quantize",
                                           "verify",  "kernel",   "train",   "bench",    "pack"};

json parsed(const Outcome& o) {
  EXPECT_EQ(o.code, 0) << o.err;
  return json::parse(o.out);
}

/// Returns the text of the first group for each match of a pattern.
std::vector<std::string> found(const std::string& text, const char* pattern) {
  std::vector<std::string> out;
  const std::regex regex(pattern);
  for (std::sregex_iterator at(text.begin(), text.end(), regex), end; at != end; ++at) out.push_back((*at)[1]);
  return out;
}

/// Returns the names of the devices that the program finds and that compute correctly.
std::vector<std::string> usable_devices() {
  std::vector<std::string> names;
  for (const auto& row : tessera::discover())
    for (const auto& info : row.devices)
      if (info.state == tessera::DeviceState::enumerated || info.state == tessera::DeviceState::verified)
        names.push_back(to_string(info.device));
  return names;
}

std::vector<std::string> greedy(const std::string& file, const std::string& device, int tokens) {
  return {"generate", file, "-p", "The index", "--temperature", "0", "-n", std::to_string(tokens), "--device", device};
}

/// Compares greedy tokens with tokens of another program, which may round activations differently. At the first
/// difference, Tessera's token must be the other program's second choice with a nearly equal score. Later tokens are
/// not compared.
void check_reference(const json& reference, const std::string& file, double bound) {
  for (const json& r : reference["models"][file.substr(file.find('/') + 1)]) {
    const json j = parsed(run({"generate", file, "-p", r["prompt"], "-n", std::to_string(r["tokens"].size()),
                               "--temperature", "0", "--cache", "f32", "--json"}));
    EXPECT_EQ(j["prompt_tokens"], r["prompt_tokens"]);
    for (std::size_t i = 0; i < r["tokens"].size(); ++i) {
      const json ours = i < j["tokens"].size() ? j["tokens"][i] : json("end");
      if (ours == r["tokens"][i] || (ours == "end" && j["stopped"] == "end of text" && i + 1 == r["tokens"].size()))
        continue;
      EXPECT_LT(r["gap"][i].get<double>(), bound * r["logit_range"][i].get<double>())
          << file << ": " << r["prompt"] << ", token " << i;
      EXPECT_EQ(ours, r["runner_up"][i]) << file << ": " << r["prompt"] << ", token " << i;
      break;
    }
  }
}

TEST(Program, HelpCommandAndHelpOptionPrintTheSameText) {
  for (const std::string& command : commands) {
    const Outcome option = run({command, "--help"}), word = run({"help", command});
    EXPECT_EQ(option.code, 0);
    EXPECT_EQ(word.code, 0);
    EXPECT_TRUE(holds(option.out, {"Examples:\n  tessera " + command, "--help"})) << command;
    EXPECT_EQ(option.out, word.out);
    EXPECT_EQ(option.err, "");
  }
  const Outcome all = run({"--help"});
  EXPECT_EQ(all.code, 0);
  for (const std::string& command : commands) EXPECT_TRUE(holds(all.out, {"\n  " + command + " "}));
  EXPECT_TRUE(holds(all.out, {"Examples:"}));
  EXPECT_EQ(run({"help"}).out, all.out);
  const Outcome version = run({"--version"});
  EXPECT_EQ(version.code, 0);
  EXPECT_TRUE(std::regex_match(version.out, std::regex("tessera [0-9]+\\.[0-9]+\\.[0-9]+\n"))) << version.out;
}

TEST(Program, WrongUsageExitsWith2) {
  const Outcome nothing = run({});
  EXPECT_EQ(nothing.code, 2);
  EXPECT_TRUE(holds(nothing.err, {"Usage:"}));
  EXPECT_EQ(nothing.out, "");
  EXPECT_TRUE(fails(run({"frobnicate"}), 2, {"frobnicate"}));
  EXPECT_TRUE(fails(run({"help", "frobnicate"}), 2, {"frobnicate"}));
  EXPECT_TRUE(fails(run({"devices", "--jsom"}), 2, {"--jsom"}));
  EXPECT_TRUE(fails(run({"generate"}), 2, {"tessera generate --help"}));
  EXPECT_TRUE(fails(run({"generate", model}), 2, {"prompt"}));
  EXPECT_TRUE(fails(run({"generate", model, "-p", "a", "--prompt-file", "b"}), 2, {"prompt"}));
  EXPECT_TRUE(fails(run({"generate", model, "-p", "a", "-n", "many"}), 2, {"many"}));
  EXPECT_TRUE(fails(run({"generate", model, "-p", "a", "--cache", "f64"}), 2, {"f64"}));
  EXPECT_TRUE(fails(run({"verify", "--operation", "soft(max"}), 2, {"soft(max"}));
  EXPECT_TRUE(fails(run({"kernel", "x", "--ir", "--source", "cpu"}), 2, {"--ir"}));
  EXPECT_TRUE(fails(run({"train"}), 2, {"tessera train --help"}));
  EXPECT_TRUE(fails(run({"train", "digit"}), 2, {"\"digit\"", "did you mean \"digits\"", "tessera train --help"}));
  EXPECT_TRUE(fails(run({"train", "digits", "--stesp", "3"}), 2, {"`tessera train digits` has no option", "--steps"}));
}

TEST(Program, SuggestsNamesForMistypedWords) {
  const std::string sentence = "tessera: error: unknown command \"frobnicate\"; `tessera help` lists the commands\n";
  EXPECT_EQ(run({"frobnicate"}).err, sentence);
  EXPECT_EQ(run({"help", "frobnicate"}).err, sentence);
  for (const std::vector<std::string>& words : {std::vector<std::string>{"genrate"},
                                                {"help", "genrate"},
                                                {"genrate", model, "-p", "X"},
                                                {"genrate", "--device", "cpu"}})
    EXPECT_TRUE(fails(run(words), 2, {"unknown command \"genrate\" (did you mean \"generate\"?)"}));
  const Outcome option = run({"generate", model, "-p", "X", "--devise", "cpu"});
  EXPECT_TRUE(
      fails(option, 2,
            {"`tessera generate` has no option --devise; did you mean --device?\n", "See `tessera generate --help`."}));
  EXPECT_FALSE(holds(option.err, {"cpu"}));
  // The unknown option is reported, not the missing arguments.
  EXPECT_TRUE(fails(run({"generate", model, "--promt=X"}), 2, {"no option --promt; did you mean --prompt?\n"}));
  EXPECT_TRUE(fails(run({"devices", "--frobnicate"}), 2, {"`tessera devices` has no option --frobnicate\n"}));
  EXPECT_TRUE(fails(run({"estimate", model, "extra"}), 2, {"`tessera estimate` takes no argument \"extra\""}));
  EXPECT_TRUE(fails(run({"--devise"}), 2, {"`tessera` has no option --devise\n", "See `tessera --help`."}));
  EXPECT_TRUE(fails(run({"--devise", "cpu", "devices"}), 2, {"`tessera` has no option --devise\n"}));
  EXPECT_TRUE(fails(run({"--json", "devices"}), 2, {"--json must follow the command: `tessera devices ... --json`"}));
  EXPECT_TRUE(fails(run({"devices", "-x"}), 2, {"`tessera devices` has no option -x\n"}));
  EXPECT_TRUE(fails(run({""}), 2, {"unknown command \"\"; "}));
}

TEST(Program, RejectsInvalidNumbersAsWrongUsage) {
  const auto with = [](const std::string& option, const std::string& value) {
    return run({"generate", "no model", "-p", "X", option, value});
  };
  for (const std::string value : {"abc", "1.5", "0x10", "1e3", "-", ""})
    for (const std::string option : {"--tokens", "--ctx", "--batch", "--top-k", "--seed"})
      EXPECT_TRUE(
          fails(with(option, value), 2, {option + ": \"" + value + "\" is not an integer; expected an integer from "}));
  EXPECT_TRUE(fails(with("-n", "99999999999999999999999"), 2, {"99999999999999999999999 is out of range: from 0 to"}));
  EXPECT_TRUE(fails(with("--seed", "-1"), 2, {"--seed: -1 is out of range: from 0 to 18446744073709551615"}));
  for (const std::string option : {"--temperature", "--top-p"})
    for (const std::string value : {"nan", "-nan", "abc", "1x"})
      EXPECT_TRUE(fails(with(option, value), 2, {option + ": \"" + value + "\" is not a number; expected a number "}));
  EXPECT_TRUE(fails(with("--temperature", "inf"), 2, {"inf is out of range: from 0 to"}));
  EXPECT_TRUE(fails(with("--top-p", "0"), 2, {"--top-p: 0 is out of range: above 0 to 1"}));
  EXPECT_TRUE(fails(run({"verify", "--seed", "abc"}), 2, {"--seed: \"abc\" is not an integer"}));
  EXPECT_TRUE(fails(run({"doctor", "--limit", "0"}), 2, {"--limit: 0 is out of range: from 1 to 3600"}));
  // Numbers with a redundant sign and numbers that underflow are accepted.
  for (const auto& [option, value] : {std::pair{"--seed", "-0"}, {"-n", "+5"}, {"--temperature", "1e-400"}})
    EXPECT_TRUE(fails(with(option, value), 1, {"no model"}));
  EXPECT_TRUE(fails(with("--temperature", "1e400"), 2, {"1e400 is out of range: from 0 to"}));
  // A leading zero does not make a number octal.
  EXPECT_EQ(parsed(run({"estimate", model, "--device", "cpu", "--ctx", "0100", "--json"}))["context"], 100);
}

TEST(Devices, JsonAgreesWithTheLibrary) {
  const json j = parsed(run({"devices", "--json"}));
  const auto& rows = tessera::discover();
  ASSERT_EQ(j["backends"].size(), rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const json& row = j["backends"][i];
    EXPECT_EQ(row["backend"], backend_name(rows[i].backend));
    EXPECT_EQ(row["file"], rows[i].file);
    ASSERT_EQ(row["devices"].size(), rows[i].devices.size());
    if (row["state"] == "verified") {
      const bool slow = rows[i].backend == tessera::Backend::cpu &&
                        row["devices"][0]["driver_version"] == "reference interpreter";  // it reports why it is slow
      EXPECT_EQ(row["reason"] == "", !slow) << row;
    } else {
      EXPECT_NE(row["reason"], "") << row;
      EXPECT_NE(row["remedy"], "") << row;
    }
    for (std::size_t d = 0; d < rows[i].devices.size(); ++d) {
      const tessera::DeviceInfo& info = rows[i].devices[d];
      const json& device = row["devices"][d];
      EXPECT_EQ(device["device"], to_string(info.device));
      EXPECT_EQ(device["name"], info.name);
      EXPECT_EQ(device["kind"], kind_name(info.kind));
      EXPECT_EQ(device["identity"], info.identity);
      // The memory of a virtual machine may change between the two calls.
      EXPECT_NEAR(device["total_memory"].get<double>(), static_cast<double>(info.total_memory),
                  0.1 * static_cast<double>(info.total_memory));
      EXPECT_GT(device["total_memory"].get<std::uint64_t>(), 64u << 20);
      EXPECT_GT(device["free_memory"].get<std::uint64_t>(), 0u);
      EXPECT_LE(device["free_memory"], device["total_memory"]);
      EXPECT_EQ(device["state"], "verified") << device;
      EXPECT_EQ(device["capabilities"]["f64"], info.can.f64);
      EXPECT_EQ(device["capabilities"]["subgroup_widths"], info.can.subgroup_widths);
      EXPECT_EQ(device["capabilities"]["shared_bytes"], info.can.shared_bytes);
    }
  }
  EXPECT_EQ(j["current"]["device"], to_string(tessera::current_device()));
  EXPECT_EQ(j["current"]["why"], tessera::why_current_device());
}

TEST(Devices, TableListsEveryBackendWithReasons) {
  const Outcome table = run({"devices"}, {.environment = {{"LC_ALL", "C.UTF-8"}}});
  EXPECT_EQ(table.code, 0) << table.err;
  for (const auto& row : tessera::discover())
    EXPECT_TRUE(holds(table.out, {" (" + std::string(backend_name(row.backend)) + ")"}));
  EXPECT_TRUE(holds(table.out, {"✓ CPU (cpu)", "✗ CUDA (cuda)",
                                "Why:", "Do:", "New arrays go to " + to_string(tessera::current_device())}));
  EXPECT_FALSE(holds(table.out, {"\x1b"}));  // no colours without a terminal
  EXPECT_EQ(table.err, "");
  const Outcome plain = run({"devices"}, {.environment = {{"LC_ALL", "C"}}});
  EXPECT_TRUE(holds(plain.out, {"+ CPU (cpu)", "- CUDA (cuda)"}));
  const Outcome listed = run({"devices", "--list-only"});
  EXPECT_EQ(listed.code, 0);
  EXPECT_TRUE(holds(listed.out, {"enumerated"}));
  EXPECT_FALSE(holds(listed.out, {"verified"}));
  EXPECT_FALSE(holds(listed.out, {" free)"}));
}

TEST(Devices, MissingNamedDeviceIsReportedAndTheTableIsPrinted) {
  const Outcome o = run({"devices"}, {.environment = {{"TESSERA_DEVICE", "cuda:7"}}});
  EXPECT_TRUE(fails(o, 1, {"TESSERA_DEVICE=cuda:7", "cpu:0"}));
  EXPECT_TRUE(holds(o.out, {"CPU (cpu)"}));
  const Outcome j = run({"devices", "--json"}, {.environment = {{"TESSERA_DEVICE", "cuda:7"}}});
  EXPECT_EQ(j.code, 1);
  EXPECT_TRUE(json::parse(j.out)["current"]["device"].is_null());
  EXPECT_TRUE(holds(json::parse(j.out)["current"]["error"].get<std::string>(), {"cuda:7"}));
  EXPECT_EQ(parsed(run({"devices", "--json"}, {.environment = {{"TESSERA_DEVICE", "interp"}}}))["current"]["device"],
            "interp:0");
}

TEST(Generate, GeneratesTheSameGreedyTextOnEveryDevice) {
  for (const std::string& file : {model, model_f16}) {
    std::string first;
    for (const std::string& device : usable_devices()) {
      const Outcome o = run(greedy(file, device, 12), {.limit = 300});
      ASSERT_EQ(o.code, 0) << o.err;
      EXPECT_GT(o.out.size(), 12u);
      EXPECT_TRUE(holds(o.err, {"device    " + device, "--device " + device, "tokens/s", "loaded"}));
      if (first.empty()) first = o.out;
      EXPECT_EQ(o.out, first) << file << " on " << device;
    }
  }
}

TEST(Generate, ReportsWhyTheDefaultDeviceWasSelected) {
  const Outcome o = run({"generate", model, "-p", "The index", "-n", "3"});
  EXPECT_EQ(o.code, 0) << o.err;
  const Outcome named =
      run({"generate", model, "-p", "The index", "-n", "3"}, {.environment = {{"TESSERA_DEVICE", "cpu"}}});
  EXPECT_TRUE(holds(named.err, {"TESSERA_DEVICE=cpu"}));
  if (tessera::current_device().backend != tessera::Backend::cpu) return;
  const auto device = found(o.err, "(device +cpu:0 [^\\n]*: no GPU \\(cuda: [^\\n]*)");
  EXPECT_EQ(device.size(), 1u) << o.err;
  EXPECT_FALSE(holds(o.err, {"shared object"}));  // only `tessera devices` prints the details of driver errors
}

TEST(Generate, JsonContainsTokensAndTheSameText) {
  auto arguments = greedy(model, "cpu", 10);
  const Outcome text = run(arguments);
  arguments.insert(arguments.end(), {"--json", "--stats"});
  const json j = parsed(run(arguments));
  EXPECT_EQ(j["tokens"].size(), 10u);
  EXPECT_EQ(j["text"].get<std::string>() + "\n", text.out);
  EXPECT_EQ(j["device"], "cpu:0");
  EXPECT_EQ(j["stopped"], "number of tokens reached");
  EXPECT_GT(j["tokens_per_second"], 0);
  EXPECT_GT(j["devices"][0]["memory"]["peak_bytes"], 1 << 20);
  arguments.resize(arguments.size() - 2);
  arguments.emplace_back("--print-tokens");
  std::istringstream numbers(run(arguments).out);
  for (const json& token : j["tokens"]) {
    int n = -1;
    numbers >> n;
    EXPECT_EQ(n, token);
  }
}

TEST(Generate, MatchesTheReferenceTokensOfTheModel) {
  std::ifstream in("models/reference-greedy.json");
  ASSERT_TRUE(in) << "models/reference-greedy.json is missing";
  const json reference = json::parse(in);
  check_reference(reference, model, 4e-2);  // twice the error bound of the logits with 8-bit activations
  check_reference(reference, model_f16, 4e-3);
}

TEST(Generate, SeedReproducesTextAndContextLimitsItsLength) {
  const std::vector<std::string> base = {"generate", model,           "-p",  "The index", "-n",
                                         "20",       "--temperature", "0.9", "--quiet",   "--seed"};
  auto with = [&](const std::string& seed) {
    auto a = base;
    a.push_back(seed);
    return run(a);
  };
  const Outcome a = with("7"), b = with("7"), c = with("8");
  EXPECT_EQ(a.out, b.out);
  EXPECT_NE(a.out, c.out);
  EXPECT_EQ(a.err, "");
  const json j =
      parsed(run({"generate", model, "-p", "The index", "-n", "1000", "--ctx", "24", "--temperature", "0", "--json"}));
  EXPECT_EQ(j["stopped"], "context full");
  EXPECT_EQ(j["prompt_tokens"].size() + j["tokens"].size(), 24u);
}

TEST(Generate, ReadsThePromptFromAFileOrStandardInput) {
  const TemporaryFolder folder;
  write_file(folder / "prompt", "The index");
  const std::vector<std::string> rest = {"-n", "8", "--temperature", "0", "-q"};
  auto with = [&](std::vector<std::string> prompt, const std::string& in) {
    std::vector<std::string> a = {"generate", model};
    a.insert(a.end(), prompt.begin(), prompt.end());
    a.insert(a.end(), rest.begin(), rest.end());
    return run(a, {.in = in});
  };
  const Outcome given = with({"-p", "The index"}, ""), file = with({"--prompt-file", folder / "prompt"}, ""),
                in = with({"--prompt-file", "-"}, "The index");
  EXPECT_EQ(given.code, 0) << given.err;
  EXPECT_GT(given.out.size(), 5u);
  EXPECT_EQ(file.out, given.out);
  EXPECT_EQ(in.out, given.out);
  EXPECT_TRUE(fails(with({"--prompt-file", folder / "none"}, ""), 1, {folder / "none"}));
  EXPECT_EQ(with({"-p", ""}, "").code, 0);  // the prompt is only the begin token
  // Pipes are accepted, because a shell's <(command) is a pipe. Devices are rejected, because they may never end.
  const std::string pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::thread writer([&] { write_file(pipe, "The index"); });
  EXPECT_EQ(with({"--prompt-file", pipe}, "").out, given.out);
  writer.join();
  std::thread endless([&] {
    std::ofstream to(pipe, std::ios::binary);
    while (to.write(std::string(1 << 20, 'x').c_str(), 1 << 20)) {}
  });
  const auto before = ::signal(SIGPIPE, SIG_IGN);
  EXPECT_TRUE(fails(with({"--prompt-file", pipe}, ""), 1, {pipe, "longer than 64 MiB"}));
  endless.join();
  ::signal(SIGPIPE, before);
  EXPECT_TRUE(fails(with({"--prompt-file", "/dev/zero"}, ""), 1, {"/dev/zero", "neither a regular file nor a pipe"}));
}

TEST(Program, InvalidVariableIsNotReportedAsADeviceError) {
  for (const char* device : {"cpu", "opencl"}) {
    if (std::string(device) == "opencl" && tessera::discover(tessera::Backend::opencl).devices.empty()) continue;
    const Outcome o = run({"generate", model, "-p", "a", "-n", "1", "--device", device},
                          {.environment = {{"TESSERA_TRACE", "maybe"}}});
    EXPECT_TRUE(fails(o, 1, {"TESSERA_TRACE=maybe", "1 or 0"}));
    EXPECT_EQ(o.err.find("first kernel"), o.err.npos) << o.err;
  }
}

TEST(Generate, KernelsRunOnTheSelectedDeviceOnly) {
  for (const std::string& device : usable_devices()) {
    auto arguments = greedy(model, device, 3);
    arguments.insert(arguments.end(), {"--json", "--stats"});
    const json j = parsed(run(arguments, {.limit = 300}));
    EXPECT_GT(j["placement"]["kernels"].size(), 5u);
    for (const json& k : j["placement"]["kernels"]) {
      EXPECT_EQ(k["device"], device) << k;
      EXPECT_GT(k["launches"], 0);
    }
    for (const json& c : j["placement"]["copies"]) EXPECT_EQ(c["device"], device) << c;
  }
  auto arguments = greedy(model, "cpu", 3);
  EXPECT_TRUE(holds(run(arguments, {.environment = {{"TESSERA_STATS", "1"}}}).err, {"launches", "copied to it"}));
  arguments.emplace_back("--stats");
  EXPECT_TRUE(holds(run(arguments).err, {"launches", "copied to it", "memory of cpu:0"}));
}

const std::vector<std::string> without_end = {"generate", model,           "-p", "The index", "-n",
                                              "100000",   "--temperature", "0"};

std::vector<std::string> without_end_on(const std::string& device) {
  auto arguments = without_end;
  arguments.insert(arguments.end(), {"--device", device});
  return arguments;
}

TEST(Interrupt, StopsAfterTheCurrentToken) {
  const Outcome o = run(without_end_on("interp"),
                        {.limit = 300, .interrupt = [](const std::string& out, const auto&) { return !out.empty(); }});
  EXPECT_EQ(o.code, 130) << o.err;
  EXPECT_GT(o.out.size(), 1u);
  EXPECT_EQ(o.out.back(), '\n');
  EXPECT_TRUE(holds(o.err, {"cancelled"}));
}

TEST(Interrupt, StopsImmediatelyBeforeTheFirstToken) {
  for (const std::string when : {"loading ", "of weights on ", "compiled rms_norm "}) {
    // Use the device that compiles the longest. If a later run compiles more kernels, the interrupted run did not wait.
    const std::string device = usable_devices().size() > 2 ? "opencl" : "cpu";
    const Outcome o = run(without_end_on(device),
                          {.environment = {{"TESSERA_LOG", "info"}},
                           .interrupt = [&](const auto&, const std::string& err) { return bool(holds(err, {when})); }});
    EXPECT_EQ(o.code, 130) << o.err;
    EXPECT_EQ(o.out, "");
    EXPECT_TRUE(holds(o.err, {"tessera: interrupted before any text was generated\n"}));
    EXPECT_FALSE(holds(o.err, {"kernels ready"})) << "at: " << when;
  }
}

TEST(Interrupt, StaysIgnoredIfIgnoredAtStart) {
  auto arguments = greedy(model, "interp", 20);
  const Outcome o = run(arguments, {.limit = 300,
                                    .interrupt = [](const std::string& out, const auto&) { return !out.empty(); },
                                    .ignores_interrupts = true});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(holds(o.err, {"number of tokens reached"}));
}

TEST(Log, LogsProbedDriversSelectionAndCompilation) {
  const std::vector<std::string> arguments = {"generate", model, "-p", "The index", "-n", "2", "--temperature", "0"};
  const Outcome info = run(arguments, {.environment = {{"TESSERA_LOG", "info"}}});
  EXPECT_EQ(info.code, 0) << info.err;
  const std::string device = to_string(tessera::current_device());
  EXPECT_TRUE(holds(info.err, {"tessera: cuda: ", "tessera: rocm: ", "tessera: opencl: ",
                               "tessera: default device: " + tessera::why_current_device() + "\n",
                               "tessera: opened " + device + " ", " of weights on " + device, "kernels ready after "}));
  EXPECT_TRUE(std::regex_search(info.err, std::regex("tessera: compiled rms_norm for " + device + " in [0-9.]+ ms\n")))
      << info.err;
  EXPECT_FALSE(holds(info.err, {"launch "}));
  const Outcome debug = run(arguments, {.environment = {{"TESSERA_LOG", "debug"}}});
  EXPECT_TRUE(holds(debug.err, {"tessera: launch rms_norm on " + device, "tessera: upload to " + device}));
  EXPECT_FALSE(holds(run(arguments).err, {"tessera: "}));
  EXPECT_EQ(debug.out, info.out);
}

TEST(Log, RejectsAnUnknownLevel) {
  for (const std::string command : {"devices", "kernel"})
    EXPECT_TRUE(fails(run({command}, {.environment = {{"TESSERA_LOG", "loud"}}}), 1,
                      {"TESSERA_LOG=loud: expected one of trace, debug, info, warn, error, off"}));
  EXPECT_TRUE(fails(run({"devices"}, {.environment = {{"TESSERA_BLAS", "yes"}}}), 1,
                    {"[environment] TESSERA_BLAS=yes: expected off, vendor or auto. Set TESSERA_BLAS to"}));
  EXPECT_TRUE(fails(run({"devices"}, {.environment = {{"TESSERA_WAIT", "sleep"}}}), 1,
                    {"TESSERA_WAIT=sleep: expected one of auto, spin, block"}));
}

TEST(Log, WarnsOnceIfTheDeviceIgnoresTesseraCheck) {
  const auto warnings = [](const std::string& device, const std::string& level) {
    const Outcome o = run(greedy(model, device, 2), {.environment = {{"TESSERA_CHECK", "1"}, {"TESSERA_LOG", level}}});
    EXPECT_EQ(o.code, 0) << o.err;
    return found(o.err, "(tessera: warning: TESSERA_CHECK has no effect on [a-z]+:0)").size();
  };
  EXPECT_EQ(warnings("cpu", ""), 1u);
  EXPECT_EQ(warnings("cpu", "error"), 0u);
  EXPECT_EQ(warnings("interp", ""), 0u);
}

TEST(Settings, InvalidValuesAreReportedFirst) {
  for (const std::string threads : {"0", "-1", "many", "4097"})
    for (auto arguments : {greedy(model, "cpu", 2), {"devices"}})
      EXPECT_TRUE(fails(
          run(arguments, {.environment = {{"TESSERA_THREADS", threads}}}), 1,
          {"tessera: error: [environment] TESSERA_THREADS=" + threads + ": expected a whole number from 1 to 4096. "}));
}

TEST(Generate, FollowsGrammarsAndSchemas) {
  const TemporaryFolder folder;
  const std::string grammar = folder / "g.gbnf", schema = folder / "s.json";
  std::vector<std::string> base = greedy(model, "cpu", 60);
  const auto with = [&](const std::string& option, const std::string& path) {
    std::vector<std::string> arguments = base;
    arguments.insert(arguments.end(), {option, path});
    return run(arguments);
  };
  write_file(grammar, "root ::= \" yes\" | \" no\"\n");
  const Outcome answer = with("--grammar", grammar);
  EXPECT_TRUE(answer.out == " yes\n" || answer.out == " no\n") << answer.out << answer.err;
  EXPECT_TRUE(holds(answer.err, {"stopped: end of text"}));
  write_file(
      schema,
      R"({"type": "object", "properties": {"n": {"type": "integer", "maximum": 9, "minimum": 1}}, "required": ["n"]})");
  const json v = json::parse(with("--json-schema", schema).out);
  EXPECT_TRUE(v["n"] >= 1 && v["n"] <= 9 && v.size() == 1) << v;
  // A text that is cut off is an error, unless it matches.
  ASSERT_EQ(base[7], "60");
  base[7] = "1";
  base.push_back("-q");
  for (const auto& [rule, is_cut] : {std::pair("\" \" [a-z]* \".\"", true), {"\" \" [a-z]*", false}}) {
    write_file(grammar, std::string("root ::= ") + rule + "\n");
    const Outcome o = with("--grammar", grammar);
    EXPECT_TRUE(o.out.starts_with(" ")) << o.out;
    EXPECT_EQ(o.code, is_cut ? 1 : 0) << o.err;
    EXPECT_EQ(o.err.find("the text was cut off") != std::string::npos, is_cut) << o.err;
  }
  // Errors are reported before the model is loaded.
  write_file(grammar, "root ::= a\n");
  write_file(schema, R"({"items": {"minContains": 1}})");
  base[1] = "no model";
  EXPECT_TRUE(fails(with("--grammar", grammar), 1, {grammar + ":1:10", "\"a\" is not defined"}));
  EXPECT_TRUE(fails(with("--json-schema", schema), 1, {schema, "#/items/minContains", "not supported"}));
  EXPECT_TRUE(fails(with("--grammar", folder / "none"), 1, {"none", "the grammar cannot be read"}));
  base.insert(base.end(), {"--grammar", grammar});
  EXPECT_TRUE(fails(with("--json-schema", schema), 2, {"--grammar", "--json-schema"}));
}

TEST(Generate, ReportsOneErrorForInvalidInput) {
  const TemporaryFolder folder;
  EXPECT_TRUE(fails(run({"generate", folder / "none.gguf", "-p", "a"}), 1, {"none.gguf"}));
  EXPECT_TRUE(fails(run({"generate", "models", "-p", "a"}), 1, {"models"}));
  EXPECT_TRUE(fails(run({"generate", "README.md", "-p", "a"}), 1, {"README.md"}));
  const std::string bytes = text_of(model);
  ASSERT_GT(bytes.size(), 1000000u);
  for (const std::size_t size : {0ul, 3ul, 24ul, 5000ul, bytes.size() / 2, bytes.size() - 1}) {
    write_file(folder / "cut.gguf", std::string_view(bytes).substr(0, size));
    EXPECT_TRUE(fails(run({"generate", folder / "cut.gguf", "-p", "a"}), 1, {"cut.gguf"}));
  }
  const std::string long_prompt(2000, 'x');
  EXPECT_TRUE(fails(run({"generate", model, "-p", long_prompt}), 1, {"longer than the context"}));
  EXPECT_TRUE(
      fails(run({"generate", model, "-p", "The index of the table", "--ctx", "2"}), 1, {"longer than the context"}));
  EXPECT_TRUE(fails(run({"generate", model, "-p", "a", "--ctx", "1000000"}), 1, {"context"}));
  EXPECT_TRUE(fails(run({"generate", model, "-p", "a", "--top-p", "3"}), 2, {"--top-p", "3"}));
  for (const char* option : {"-n", "--ctx", "--batch", "--top-k", "--temperature"})
    EXPECT_TRUE(fails(run({"generate", "no model", "-p", "a", option, "-1"}), 2, {"-1", "range"})) << option;
  // If standard error is closed, the exit codes are the same.
  const auto code = [](const std::string& words) {
    const int status = std::system((std::string(TESSERA_PROGRAM) + " " + words).c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  };
  EXPECT_EQ(code("nonsense 2>&-"), 2);
  EXPECT_EQ(code("generate nofile -p x 2>/dev/full"), 1);
  EXPECT_EQ(code("generate " + model + " -p x -n 2 >/dev/null 2>&-"), 0);
  EXPECT_TRUE(fails(run({"generate", model, "-p", "a", "--device", ""}), 2, {"--device"}));
  EXPECT_TRUE(fails(run({"generate", model, "--prompt-file", "/usr"}), 1, {"/usr", "directory"}));
  EXPECT_TRUE(fails(run({"generate", model, "-p", "a", "--device", "cuda:3"}), 1,
                    {"tessera: error: cuda:3 does not exist", "cpu:0", "interp:0"}));
  EXPECT_TRUE(fails(run({"generate", model, "-p", "a", "--device", "quantum"}), 1, {"quantum", "opencl"}));
}

/// Checks that only the error is printed, which means that nothing was loaded.
testing::AssertionResult refuses(const Outcome& o, const std::vector<std::string>& parts) {
  if (const auto failed = fails(o, 1, parts); !failed) return failed;
  if (o.err.rfind("tessera: error: ", 0) != 0 || o.out != "" || std::count(o.err.begin(), o.err.end(), '\n') != 1)
    return testing::AssertionFailure() << "not the error alone: " << o.out << o.err;
  return testing::AssertionSuccess();
}

TEST(Generate, RejectsInvalidRequestsBeforeLoading) {
  const std::string too_long =
      " the context is longer than the model's context length (context = 5000, the model's = 1024). Use a context of "
      "1024 or less (--ctx 1024)\n";
  EXPECT_TRUE(refuses(run({"generate", model, "-p", "X", "--ctx", "5000"}), {"[generate]" + too_long}));
  EXPECT_TRUE(refuses(run({"estimate", model, "--ctx", "5000"}), {"[estimate]" + too_long}));
  const std::string wrong = "[generate] the prompt is longer than the context (tokens of the prompt = ";
  const std::string sentence = "The index of the table", page(5000, 'x');
  EXPECT_TRUE(
      refuses(run({"generate", model, "-p", sentence, "--ctx", "2"}),
              {wrong, "context = 2). Shorten it, or increase the context (--ctx), at most to the model's 1024\n"}));
  for (const std::string context : {"0", "2", "1024"})
    EXPECT_TRUE(refuses(run({"generate", model, "-p", page, "--ctx", context}),
                        {wrong, "). Shorten it: the model's context length is 1024 tokens\n"}));
  EXPECT_TRUE(refuses(run({"generate", "/nonexistent.gguf", "-p", "X"}), {"the file does not exist"}));
  EXPECT_TRUE(refuses(run({"generate", "README.md", "-p", "X"}), {"README.md"}));
  // A valid request loads the model and prints the prompt before the answer.
  EXPECT_TRUE(holds(run(greedy(model, "cpu", 2)).err, {"loading pgdocs-2m-q8_0.gguf on cpu:0\nThe index"}));
}

TEST(Generate, UsesSingularAndPlural) {
  const Outcome one = run({"generate", model, "-p", "", "-n", "1", "--stats", "--device", "cpu"});
  EXPECT_TRUE(holds(one.err, {"prompt    1 token in ", "generated 1 token in "}));
  EXPECT_FALSE(holds(one.err, {" 1 tokens"}));
  EXPECT_TRUE(holds(run(greedy(model, "cpu", 2)).err, {"generated 2 tokens in "}));
}

TEST(Estimate, NamesTheInvalidNumber) {
  EXPECT_TRUE(refuses(run({"estimate", model, "--ctx", "10", "--prompt-tokens", "20"}),
                      {"[estimate] the prompt is longer than the context (prompt = 20, context = 10). Use 10 or less "
                       "(--prompt-tokens 10), or a context of 20 or more (--ctx 20)\n"}));
  EXPECT_TRUE(refuses(run({"estimate", model, "--prompt-tokens", "2000"}),
                      {"(prompt = 2000, context = 1024). Use 1024 or less (--prompt-tokens 1024)\n"}));
  EXPECT_TRUE(fails(run({"estimate", model, "--batch", "0"}), 2, {"--batch: 0 is out of range: from 1 to"}));
  // The help of both commands describes the memory use of a long context.
  for (const std::string command : {"generate", "estimate"}) {
    const std::string help = run({command, "--help"}).out;
    EXPECT_TRUE(std::regex_search(help, std::regex(R"(the\s+model's\s+maximum\)\.\s+Memory\s+is)"))) << help;
  }
}

TEST(Generate, ModelLargerThanTheMemoryLimitIsAnError) {
  for (const std::string& device : usable_devices()) {
    const Outcome o = run(greedy(model, device, 3), {.environment = {{"TESSERA_MEMORY_LIMIT", "1M"}}});
    EXPECT_TRUE(fails(o, 1, {"TESSERA_MEMORY_LIMIT", device}));
    EXPECT_EQ(o.out, "");
  }
  EXPECT_TRUE(fails(run(greedy(model, "cpu", 3), {.environment = {{"TESSERA_MEMORY_LIMIT", "lots"}}}), 1,
                    {"TESSERA_MEMORY_LIMIT"}));
}

TEST(Generate, StrictAndVerifyOnReportDevicesThatRanKernels) {
  const auto with = [](std::vector<std::string> more) {
    auto arguments = greedy(model, "cpu", 3);
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments, {.limit = 300});
  };
  const Outcome strict = with({"--strict"});
  EXPECT_EQ(strict.code, 0) << strict.err;
  EXPECT_TRUE(holds(strict.err, {"strict    no other device ran a kernel or received data"}));
  const Outcome verified = with({"--verify-on", "interp"});
  EXPECT_EQ(verified.code, 0) << verified.err;
  EXPECT_TRUE(holds(verified.err, {"kernels rerun on interp:0", "rms_norm", "wrong"}));
  EXPECT_EQ(verified.out, strict.out);
  EXPECT_TRUE(fails(with({"--verify-on", "cuda:9"}), 1, {"cuda:9"}));
  EXPECT_TRUE(fails(with({"--verify-on", "cpu"}), 1, {"(--verify-on = cpu:0). Choose another device"}));
  EXPECT_TRUE(fails(with({"--strict", "--verify-on", "interp"}), 2, {"--strict"}));
}

TEST(Generate, LayersCanBeOnSeveralDevices) {
  const std::string whole = run(greedy(model, "cpu", 6), {.limit = 300}).out;
  const std::string some = std::to_string(
      parsed(run({"estimate", model, "--device", "cpu", "--ctx", "32", "--json"}))["devices"][0]["needed_bytes"]
          .get<std::uint64_t>() *
      7 / 10);
  const Outcome o =
      run(greedy(model, "cpu,interp", 6), {.environment = {{"TESSERA_MEMORY_LIMIT", some}}, .limit = 300});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.out, whole);
  EXPECT_TRUE(holds(o.err, {"cpu:0: ", "interp:0: ", "of 5 layers"}));
  EXPECT_TRUE(fails(run(greedy(model, "cpu,cpu:0", 6)), 1, {"\"cpu,cpu:0\" contains cpu:0 twice"}));
  EXPECT_TRUE(holds(run(greedy(model, "cpu,interp", 2)).err,
                    {"interp:0: no layers, because all fit on the devices before it"}));
}

TEST(Prefer, SetsShowsAndClearsPreferences) {
  const TemporaryFolder folder;
  const RunOptions own = {.environment = {{"XDG_CONFIG_HOME", folder / "config"}}};
  const std::string file = folder / "config/tessera/config.toml";
  Outcome o = run({"prefer"}, own);
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(holds(o.out, {"project  none (", "user     none (" + file + ")", "New arrays go to "}));
  EXPECT_FALSE(std::filesystem::exists(file));
  o = run({"prefer", "interp", "--show"}, own);
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(
      holds(o.out, {"user     interp:0, ", file + ":2", "New arrays go to interp:0", "preferred by the user's file"}));
  EXPECT_EQ(parsed(run({"devices", "--json", "--list-only"}, own))["current"]["device"], "interp:0");
  RunOptions named = own;
  named.environment["TESSERA_DEVICE"] = "cpu";
  EXPECT_EQ(parsed(run({"devices", "--json", "--list-only"}, named))["current"]["device"], "cpu:0");
  EXPECT_TRUE(fails(run({"prefer", "cpu:77"}, own), 1, {"cpu:77 does not exist"}));
  EXPECT_TRUE(
      fails(run({"prefer", "gpu"}, own), 1, {"tessera: error: \"gpu\" is not a device", "`tessera devices` lists"}));
  EXPECT_TRUE(holds(text_of(file), {"interp:0"}));
  EXPECT_EQ(run({"prefer", "--clear"}, own).code, 0);
  EXPECT_TRUE(holds(run({"prefer", "--user"}, own).out, {"user     none ("}));
  write_file(file, "[device]\nprefer = 7\n");
  EXPECT_TRUE(fails(run({"devices", "--list-only"}, own), 1, {file + ":2:10"}));
  for (const std::string wrong : {"[device]\nprefer = 7\n", "[device\n", "[device]\nprefer = \"gpu\"\n"}) {
    write_file(file, wrong);
    for (const std::string word : {"--clear", "cpu"})
      EXPECT_TRUE(fails(run({"prefer", word}, own), 1, {file + ":", ". Correct or delete the file"}));
    EXPECT_EQ(text_of(file), wrong);
  }
  EXPECT_TRUE(fails(run({"prefer", "cpu", "--clear"}, own), 2, {"--clear"}));
  EXPECT_TRUE(fails(run({"prefer", "cpu", "--user", "--project"}, own), 2, {"--"}));
}

TEST(Estimate, ReportsMemoryAndLongestContext) {
  const Outcome o = run({"estimate", model, "--device", "cpu"});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(holds(o.out, {"context 1024", "cpu:0", "weights", "fits", "The longest context that fits: 1024"}));
  const Outcome small =
      run({"estimate", model, "--device", "cpu", "--json"}, {.environment = {{"TESSERA_MEMORY_LIMIT", "4M"}}});
  EXPECT_EQ(small.code, 1);
  const json j = json::parse(small.out);
  EXPECT_FALSE(j["fits"].get<bool>());
  EXPECT_GT(j["largest_context"].get<int>(), 0);
  EXPECT_LT(j["largest_context"].get<int>(), 1024);
  EXPECT_GT(j["devices"][0]["needed_bytes"], j["devices"][0]["free_bytes"]);
  EXPECT_TRUE(fails(run({"estimate", model, "--ctx", "4096"}), 1, {"4096", "1024"}));
  EXPECT_TRUE(fails(run({"estimate", "no/such.gguf"}), 1, {"no/such.gguf"}));
}

TEST(Verify, ComparesAnOperationOnEveryDevice) {
  const Outcome o = run({"verify", "--operation", "^softmax$", "--seed", "5"}, {.limit = 300});
  EXPECT_EQ(o.code, 0) << o.out << o.err;
  EXPECT_EQ(o.out.rfind("operation", 0), 0u);
  EXPECT_TRUE(holds(o.out, {"softmax"}));
  for (const std::string& device : usable_devices()) EXPECT_TRUE(holds(o.out, {device}));
  EXPECT_TRUE(holds(o.err, {"seed 5"}));
  const json j = parsed(run({"verify", "--operation", "^softmax$", "--device", "cpu", "--json", "-q"}));
  EXPECT_EQ(j["failures"], 0);
  EXPECT_GE(j["checks"].size(), 3u);
  for (const json& check : j["checks"]) {
    EXPECT_EQ(check["device"], "cpu:0");
    EXPECT_TRUE(check["passed"]) << check;
    EXPECT_LE(check["error"], 1.0);
  }
  const Outcome nosuch = run({"verify", "--operation", "nosuch"});
  EXPECT_TRUE(fails(nosuch, 1, {"softmax", ", any, all, "}));
  EXPECT_EQ(found(nosuch.err, "(, sum, )").size(), 1u) << nosuch.err;
  EXPECT_EQ(found(nosuch.err, "(, all, )").size(), 1u) << nosuch.err;
  EXPECT_TRUE(fails(run({"verify", "--device", "rocm"}), 1, {"rocm:0"}));
}

// Results must be printed immediately, with the operation that is running, because a driver may crash the program.
TEST(Verify, PrintsEachRowImmediatelyAndNamesTheRunningOperation) {
  bool seen = false, in_order = false;
  run({"verify", "--operation", "^(abs|softmax)$", "--device", "interp"},
      {.interrupt = [&](const std::string& out, const std::string& err) {
        if (seen || err.find("softmax on interp:0") == err.npos) return false;
        seen = true;
        in_order =
            holds(out, {"operation", "abs ", "softmax "}) && out.find(" s", out.find("abs ")) < out.find("softmax ");
        return true;
      }});
  EXPECT_TRUE(seen);
  EXPECT_TRUE(in_order);
  const Outcome quiet = run({"verify", "--operation", "^abs$", "--device", "cpu", "-q"});
  EXPECT_EQ(quiet.err, "");
  EXPECT_TRUE(holds(quiet.out, {"abs", "5 shapes"}));
  const Outcome each = run({"verify", "--operation", "^abs$", "--device", "cpu", "-q", "--shapes"});
  EXPECT_GE(std::count(each.out.begin(), each.out.end(), '\n'), 7) << each.out;
}

TEST(KernelCommand, ListsAndPrintsKernels) {
  const Outcome list = run({"kernel"});
  EXPECT_EQ(list.code, 0) << list.err;
  std::istringstream lines(list.out);
  std::string line, name;
  std::getline(lines, line);
  EXPECT_TRUE(holds(line, {"kernels, as"}));
  int kernels = 0;
  while (std::getline(lines, line)) {
    if (name.empty()) name = line.substr(0, line.find(' '));
    ++kernels;
  }
  EXPECT_GT(kernels, 10);
  const Outcome ir = run({"kernel", name});
  EXPECT_EQ(ir.code, 0) << ir.err;
  EXPECT_EQ(ir.out.rfind("kernel ", 0), 0u) << ir.out;
  EXPECT_EQ(run({"kernel", name, "--ir"}).out, ir.out);
  for (const std::string& device : usable_devices()) {
    const Outcome source = run({"kernel", name, "--source", device});
    EXPECT_EQ(source.code, 0) << source.err;
    EXPECT_GT(source.out.size(), 100u);
    EXPECT_EQ(device.rfind("opencl", 0) == 0, bool(holds(source.out, {"__kernel"})));
    if (device.rfind("opencl", 0) != 0) continue;
    // The printed source is complete, so that another compiler accepts it.
    if (std::system("command -v clang-16 >/dev/null") != 0) continue;
    const TemporaryFolder folder;
    for (const char* whole : {"softmax_f32_16", "linear_q8_0_vector"}) {
      const Outcome text = run({"kernel", whole, "--source", device});
      EXPECT_EQ(text.code, 0) << text.err;
      write_file(folder / "kernel.cl", text.out);
      const std::string command =
          "clang-16 -x cl -cl-std=CL3.0 -Xclang -finclude-default-header -fsyntax-only -Werror " +
          (folder / "kernel.cl") + " 2>" + (folder / "log");
      EXPECT_EQ(std::system(command.c_str()), 0) << whole << ": " << text_of(folder / "log");
    }
  }
  const Outcome nosuch = run({"kernel", "nosuch"});
  EXPECT_TRUE(fails(nosuch, 1, {"there is no kernel \"nosuch\" on ", "; `tessera kernel` lists its kernels"}));
  EXPECT_LT(nosuch.err.size(), 200u) << "no similar name: " << nosuch.err;
  for (const std::string& device : usable_devices()) {
    const Outcome near = run({"kernel", "rms_nrm_f32_16", "--source", device});
    EXPECT_TRUE(fails(near, 1,
                      {"on " + device + "; `tessera kernel --device " + device + "` lists its kernels",
                       "Similar names: rms_norm_f32_16"}));
    EXPECT_LT(near.err.size(), 300u) << near.err;
    EXPECT_TRUE(holds(run({"kernel", "--device", device}).out, {"kernels, as used by " + device, "rms_norm_f32_16"}));
  }
  EXPECT_TRUE(fails(run({"kernel", name, "--source", "metal"}), 1, {"metal:0"}));
}

TEST(KernelCommand, PredictsTheTimeOfALaunch) {
  const auto report = [](const std::vector<std::string>& more) {
    std::vector<std::string> all = {"kernel", "softmax_f32_64", "--report", "gfx90a"};
    all.insert(all.end(), more.begin(), more.end());
    return run(all);
  };
  EXPECT_TRUE(fails(run({"kernel", "softmax_f32_64", "--grid", "1"}), 2, {"--grid requires --report"}));
  EXPECT_TRUE(fails(run({"kernel", "--report", "gfx90a", "--grid", "1"}), 2, {"--grid requires NAME"}));
  EXPECT_TRUE(fails(report({"--size", "x=1"}), 2, {"--size requires --grid"}));
  const Outcome plain = report({});
  if (plain.code != 0) GTEST_SKIP() << plain.err;  // clang is not installed
  EXPECT_FALSE(holds(plain.out, {"prediction"}));
  const Outcome launch = report({"--grid", "4096", "--size", "x=4194304,out=4194304", "--size", "count=1024"});
  EXPECT_EQ(launch.code, 0) << launch.err;
  EXPECT_TRUE(holds(launch.out, {"softmax_f32_64 for gfx90a", "4096 x 1 x 1 blocks, 33.6 MB", "prediction  "}));
  for (const char* grid : {"0", "4,", "1,2,3,4", "-1", "x"})
    EXPECT_TRUE(fails(report({"--grid", grid}), 1, {"--grid " + std::string(grid) + ": expected one to three"}));
  EXPECT_TRUE(
      fails(report({"--grid", "1"}), 1,
            {"sizes are missing: --size x=...,out=...,count=...", "softmax_f32_64(x: read-only buffer of f32"}));
  EXPECT_TRUE(fails(report({"--grid", "1", "--size", "y=3"}), 1, {"--size y=3: the kernel has no buffer or integer"}));
  EXPECT_TRUE(fails(report({"--grid", "1", "--size", "x=3,x=4"}), 1, {"--size x=4: x has two sizes"}));
  for (const char* size : {"x", "x=", "x=3K", "x=-1"})
    EXPECT_TRUE(
        fails(report({"--grid", "1", "--size", size}), 1, {"--size " + std::string(size) + ": expected NAME="}));
}

/// Returns a page without code blocks and inline code, because `](...)` in code is not a link.
std::string prose(std::string text) {
  for (const std::string fence : {"```", "`"}) {
    for (std::size_t at = 0; (at = text.find(fence, at)) != std::string::npos;) {
      const std::size_t end = text.find(fence, at + fence.size());
      text.erase(at, end == std::string::npos ? end : end + fence.size() - at);
    }
  }
  return text;
}

TEST(Documents, LinksAndPathsExist) {
  std::vector<std::string> pages = {"README.md", "examples/README.md", "models/README.md", "benchmarks/gpu.md"};
  for (const auto& page : std::filesystem::directory_iterator("docs"))
    if (page.path().extension() == ".md") pages.push_back(page.path().string());
  EXPECT_GT(pages.size(), 15u);
  for (const std::string& file : pages) {
    const std::string text = text_of(file);
    EXPECT_GT(text.size(), 500u) << file;
    const auto folder = std::filesystem::path(file).parent_path();
    for (const std::string& link : found(prose(text), R"(\]\(([^)#:]+)\))"))
      EXPECT_TRUE(std::filesystem::exists(folder / link)) << file << " links to " << link;
  }
}

TEST(Documents, FilesListedInTheMapExist) {
  std::set<std::string> files;  // all suffixes of the paths of all files
  for (const std::string folder :
       {"tessera", "tests", "app", "tools", "benchmarks", "examples", "cmake", "models", "python"})
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
      const std::string path = entry.path().string();
      if (!entry.is_regular_file()) continue;
      for (std::size_t at = path.find('/'); at != path.npos; at = path.find('/', at + 1))
        files.insert(path.substr(at + 1));
      files.insert(path);
    }
  const auto paths = found(text_of("docs/map.md"), R"(`([A-Za-z0-9_/*.]+\.(?:h|cpp|txt|py))`)");
  EXPECT_GT(paths.size(), 200u);
  for (const std::string& path : paths) {
    if (path.starts_with("build/")) continue;
    const std::regex wanted(
        std::regex_replace(std::regex_replace(path, std::regex("\\."), "\\."), std::regex("\\*"), "[^/]*"));
    EXPECT_TRUE(files.contains(path) ||
                std::ranges::any_of(files, [&](const std::string& f) { return std::regex_match(f, wanted); }))
        << "docs/map.md names " << path;
  }
}

TEST(Documents, IndexListsEveryExample) {
  const std::string index = text_of("examples/README.md");
  for (const auto& entry : std::filesystem::recursive_directory_iterator("examples")) {
    if (entry.path().extension() != ".cpp") continue;
    const std::vector<std::string> question = found(text_of(entry.path().string()), "\n// (How [^?]*\\?)");
    ASSERT_FALSE(question.empty()) << entry.path() << " does not say which question it answers";
    const std::string row = "[" + question[0] + "](" + entry.path().lexically_relative("examples").string() + ")";
    EXPECT_NE(index.find(row), std::string::npos) << row;
  }
}

TEST(Documents, ReadmeCodeIsPartOfAnExample) {
  std::string examples;
  for (const auto& entry : std::filesystem::recursive_directory_iterator("examples"))
    if (entry.is_regular_file()) examples += text_of(entry.path());
  const std::string readme = text_of("README.md");
  int blocks = 0;
  for (std::size_t at = 0; (at = readme.find("```cpp\n", at)) != std::string::npos; ++blocks) {
    at += 7;
    const std::string block = readme.substr(at, readme.find("```", at) - at);
    EXPECT_NE(examples.find(block), std::string::npos) << block;
  }
  EXPECT_GE(blocks, 3);
}
TEST(Documents, GenerateExampleIsShort) {
  const std::string text = text_of("examples/language_models/generate.cpp");
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 40);
}

}  // namespace
