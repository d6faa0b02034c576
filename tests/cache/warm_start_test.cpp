// SPDX-License-Identifier: Apache-2.0
// Runs whole programs twice. The second run compiles nothing and reaches its first kernel quickly. Also tests that
// `tessera cache` lists the entries, explains misses, and clears the cache.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <tuple>

#include "tests/app/app_program.h"
#include "tests/support/fake_backends.h"
#include "tests/support/folder.h"
#include "tests/support/sanitized.h"

using namespace tessera::test;

namespace {

namespace fs = std::filesystem;

constexpr const char* model = "models/pgdocs-2m-q8_0.gguf";

/// The environment of a program, with a separate cache.
struct Place {
  std::string device;
  std::map<std::string, std::string> variables;
  Folder cache;
  explicit Place(const std::string& name) : device(name) {
    variables = {{"TESSERA_CACHE_DIR", cache.path().string()},
                 {"TESSERA_KERNEL_CACHE", "1"},
                 {"TESSERA_STATS", "1"},
                 {"TESSERA_DEVICE", name}};
    if (name == "cpu") return;
    for (const auto& [variable, value] : with_fakes()) variables[variable] = value;
    variables["LD_PRELOAD"] = TESSERA_SHOWN;  // enables the fake driver to compute kernels
  }
  Outcome start(const std::string& program, std::vector<std::string> arguments) {
    const Outcome o = run(std::move(arguments), {.environment = variables, .program = program});
    EXPECT_EQ(o.code, 0) << program << " on " << device << ": " << o.out << o.err;
    return o;
  }
  /// Returns the numbers of compiled and loaded kernels, or -1 if the output does not contain the device.
  std::pair<int, int> counts(const std::string& said) const {
    std::smatch found;
    const std::regex line("kernels of " + device + ":0: (\\d+) compiled.*, (\\d+) loaded from disk");
    if (!std::regex_search(said, found, line)) return {-1, -1};
    return {std::stoi(found[1]), std::stoi(found[2])};
  }
  /// Returns the number of devices with kernels.
  static std::ptrdiff_t devices_of(const std::string& said) {
    const std::regex line("kernels of [a-z]+:\\d+: ");
    return std::distance(std::sregex_iterator(said.begin(), said.end(), line), {});
  }
  void expect_nothing_compiled_again(const std::string& program, const std::vector<std::string>& arguments) {
    const std::string what = program + " " + (arguments.empty() ? "" : arguments[0]) + " on " + device;
    const Outcome first = start(program, arguments);
    Outcome second = start(program, arguments);
    auto [compiled, loaded] = counts(first.err);
    auto [compiled_again, loaded_again] = counts(second.err);
    // A program that runs tasks on several devices may run a kernel on a different device than in the first run. Repeat
    // until each kernel has run on each device.
    for (int i = 0; i < 5 && compiled_again > 0 && devices_of(second.err) > 1; ++i) {
      compiled = compiled_again, loaded = loaded_again;
      second = start(program, arguments);
      std::tie(compiled_again, loaded_again) = counts(second.err);
    }
    if (compiled < 0 && compiled_again < 0) return;  // the program uses another device
    EXPECT_EQ(compiled_again, 0) << what << ": " << second.err;
    if (devices_of(second.err) == 1) {
      EXPECT_EQ(loaded_again, compiled + loaded) << what;
    }
    EXPECT_GT(loaded_again, 0) << what;
    std::printf("%s: %d compiled and %d loaded, then %d and %d\n", what.c_str(), compiled, loaded, compiled_again,
                loaded_again);
  }
};

// The runtime of a sanitizer must be the first library that is loaded.
const std::vector<std::string> all_places =
    sanitized ? std::vector<std::string>{"cpu"} : std::vector<std::string>{"cpu", "cuda", "rocm"};

TEST(WarmStart, GenerateCompilesNothing) {
  for (const std::string& name : all_places) {
    Place place(name);
    place.expect_nothing_compiled_again(
        TESSERA_PROGRAM, {"generate", model, "-p", "The index", "-n", "3", "--temperature", "0", "--stats"});
  }
}

TEST(WarmStart, VerifyCompilesNothing) {
  const bool all = std::getenv("TESSERA_TEST_LONG") != nullptr;  // takes minutes
  for (const std::string& name : all_places) {
    Place place(name);
    place.expect_nothing_compiled_again(TESSERA_PROGRAM, {"verify", "--device", name, "--stats", "--quiet",
                                                          "--operation", all ? "" : "^(add|softmax)$"});
  }
}

#ifdef TESSERA_EXAMPLES_FOLDER  // not defined in builds without the examples
TEST(WarmStart, ExamplesCompileNothing) {
  std::size_t examples = 0;
  std::vector<fs::path> files;
  for (const auto& file : fs::directory_iterator(TESSERA_EXAMPLES_FOLDER))
    if (file.is_regular_file() && file.path().filename().string().starts_with("example_")) files.push_back(file.path());
  std::sort(files.begin(), files.end());
  const std::size_t step = std::getenv("TESSERA_TEST_LONG") != nullptr ? 1 : 4;  // running all of them takes minutes
  for (const std::string& name : all_places) {
    Place place(name);
    for (std::size_t i = 0; i < files.size(); i += step) {
      const std::string program = files[i].filename().string();
      if (program == "example_your_own_cuda" && name != "cpu") continue;  // uses the installed libcuda directly
      if (program == "example_many_requests") continue;  // which kernels it uses depends on when requests arrive
      if (program == "example_find_a_race") place.variables["TESSERA_CHECK"] = "1";
      ++examples;
      place.expect_nothing_compiled_again(files[i].string(), {});
      place.variables.erase("TESSERA_CHECK");
    }
  }
  EXPECT_GE(examples, 10 * all_places.size());
}
#endif

/// Returns the shortest time from the start of the process to its exit, right after the first result, in milliseconds.
double start_time(Place& place) {
  double best = 1e9;
  for (int i = 0; i < 25; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    place.start(TESSERA_FIRST_KERNEL, {});
    best = std::min(best, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

TEST(WarmStart, FirstKernelRunsWithin40Milliseconds) {
  Place place("cpu");
  place.variables["TESSERA_STATS"] = "0", place.variables["TESSERA_KERNEL_CACHE"] = "0";
  const double compiling = start_time(place);
  place.variables["TESSERA_KERNEL_CACHE"] = "1";
  const double loading = start_time(place);
  std::printf("from a process's start to its first kernel's result: %.1f ms compiling, %.1f ms from disk\n", compiling,
              loading);
  EXPECT_LT(loading, sanitized ? 10'000 : std::max(40.0, compiling * 40 / 64)) << "the machine may be busy";
}

TEST(WarmStart, ModuleIsOpenedOnlyToCompile) {
  Place place("cpu");
  place.variables["LD_DEBUG"] = "files";  // the loader prints the libraries that it opens
  const auto opens_module = [&] {
    return place.start(TESSERA_FIRST_KERNEL, {}).err.find("libtessera-codegen.so") != std::string::npos;
  };
  EXPECT_TRUE(opens_module());
  EXPECT_FALSE(opens_module());
  place.variables["TESSERA_CPU_TARGET"] = "x86-64";
  EXPECT_TRUE(opens_module());
  place.variables.erase("TESSERA_CPU_TARGET");
  EXPECT_FALSE(opens_module());
  // Damaged records are replaced.
  std::size_t records = 0;
  for (const auto& file : fs::directory_iterator(place.cache.path()))
    if (file.path().filename().string().starts_with("processor-")) {
      ++records;
      fs::resize_file(file.path(), fs::file_size(file.path()) - 1);
    }
  EXPECT_EQ(records, 2u);
  EXPECT_TRUE(opens_module());
  EXPECT_FALSE(opens_module());
}

TEST(Cache, ListsEntriesExplainsMissesAndClears) {
  Place place("cpu");
  const auto cache = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "cache");
    return place.start(TESSERA_PROGRAM, std::move(arguments)).out;
  };
  EXPECT_EQ(cache({}).rfind("0 kernels, 0 bytes of at most 256 MiB, in ", 0), 0u) << cache({});
  place.start(TESSERA_PROGRAM, {"verify", "--device", "cpu", "--operation", "^(add|softmax)$", "--quiet"});
  const std::string list = cache({});
  EXPECT_NE(list.find("tessera_verify"), list.npos) << list;
  EXPECT_NE(list.find("cpu x86-64, vectors of "), list.npos) << list;
  EXPECT_TRUE(std::regex_search(list, std::regex("\\d+ kernels, .* of at most 256 MiB, in .*/kernels\n"))) << list;
  const std::string why = cache({"softmax", "--why"});
  EXPECT_EQ(why.find("tessera_verify"), why.npos) << why;
  EXPECT_NE(why.find(": loaded by cpu:0"), why.npos) << why;
  place.variables["TESSERA_CPU_TARGET"] = "x86-64";
  const std::string other = cache({"--why"});
  EXPECT_NE(other.find("not loaded here"), other.npos) << other;
  EXPECT_NE(other.find("processor's features were"), other.npos) << other;
  place.variables.erase("TESSERA_CPU_TARGET");

  const auto json = nlohmann::json::parse(cache({"--json", "--why"}));
  ASSERT_GT(json["kernels"].size(), 2u);
  std::size_t loaded = 0;
  for (const auto& kernel : json["kernels"]) loaded += kernel["loaded_by"].size();
  EXPECT_EQ(loaded, json["kernels"].size() - 1) << "all but the other target's first kernel";
  EXPECT_EQ(json["limit_bytes"], 256 << 20);
  EXPECT_EQ(cache({"--clear"}), std::to_string(json["kernels"].size()) + " kernels deleted\n");
  EXPECT_EQ(nlohmann::json::parse(cache({"--json"}))["kernels"].size(), 0u);
  place.variables["TESSERA_KERNEL_CACHE"] = "0";
  EXPECT_NE(cache({}).find("The cache is disabled: "), std::string::npos);
}

TEST(Cache, LogExplainsCacheMiss) {
  Place place("cpu");
  place.variables["TESSERA_LOG"] = "debug";
  const auto verify = [&] {
    return place.start(TESSERA_PROGRAM, {"verify", "--device", "cpu", "--operation", "^add$", "--quiet"}).err;
  };
  EXPECT_NE(verify().find("tessera_verify is not in the kernel cache: it is not cached yet"), std::string::npos);
  EXPECT_EQ(verify().find("is not in the kernel cache: "), std::string::npos);
  place.variables["TESSERA_CPU_TARGET"] = "x86-64";
  const std::string other = verify();
  EXPECT_NE(other.find("tessera_verify is not in the kernel cache: the cached one differs: "), std::string::npos)
      << other;
}

}  // namespace
