// SPDX-License-Identifier: Apache-2.0
// Trials: a helper process opens a device and runs the first kernel on it before the program opens the device. Tests
// the cost and caching of trials; hostile_drivers_test.cpp tests misbehaving drivers. Each case uses fake drivers and
// runs in a child with a separate cache.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>

#include "tessera/array/array.h"
#include "tessera/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/fake_backends.h"
#include "tests/support/folder.h"
#include "tests/support/run_in_child.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using test::expect_contains;
using test::fake_library;
using test::text_of;
using test::Variables;

constexpr Device cuda0 = {Backend::cuda, 0};
std::string computes(Device device) {
  try {
    return "computed " + std::to_string(sum(Array::full({10}, 2.0, DType::f32, device)).item<float>());
  } catch (const Error& e) {
    return e.what();
  }
}
const auto compute = [] { return computes(cuda0); };
/// Uses the device and returns the result and the device's state.
std::string computes_and_state(Device device) {
  const std::string text = computes(device);

  const DeviceInfo& info = device_info(device);
  return text + "\n" + std::string(state_name(info.state)) + "|" + info.reason + "|" + info.remedy;
}

class Trial : public ::testing::Test {
 protected:
  Trial() {
    // A replacement for tessera-probe that writes a line each time it is started.
    std::ofstream(probe()) << "#!/bin/sh\necho \"$@\" >> " << (folder / "started") << "\nexec " << TESSERA_SHOWN_PROBE
                           << " \"$@\"\n";
    fs::permissions(probe(), fs::perms::owner_all);
  }
  std::string probe() const { return folder / "probe"; }
  /// Preloads a library that misbehaves according to `mode` (tests/drivers/hostile/hostile_cuda.cpp) before fake_cuda.
  /// The mode is not part of the cache key.
  std::string run(const std::string& mode, const std::function<std::string()>& work, const Variables& more = {}) {
    Variables all = test::with_fakes({{"TESSERA_CUDA_LIBRARY", fake_library("hostile_cuda")},
                                      {"TESSERA_HOSTILE_CUDA", mode},
                                      {"TESSERA_ROCM_LIBRARY", "/nonexistent"},
                                      {"TESSERA_ONEAPI_LIBRARY", "/nonexistent"},
                                      {"TESSERA_OPENCL_LIBRARY", "/nonexistent"},
                                      {"TESSERA_CACHE_DIR", (folder / "cache").string()},
                                      {"TESSERA_PROBE_TIMEOUT", "5"},
                                      {"TESSERA_PROBE", probe()}});
    all.insert(all.end(), more.begin(), more.end());
    return test::run_in_child(all, work, 60);
  }
  /// Returns the numbers of probes started since the last call: "rows 1, devices 1".
  std::string started() {
    const std::string text = text_of(folder / "started");
    fs::remove(folder / "started");
    const auto lines = std::count(text.begin(), text.end(), '\n');
    std::ptrdiff_t opens = 0;
    for (std::size_t at = 0; (at = text.find("--open=", at)) != text.npos; ++at) ++opens;
    return "rows " + std::to_string(lines - opens) + ", devices " + std::to_string(opens);
  }
  std::vector<fs::path> kept(const std::string& beginning) const {
    std::vector<fs::path> files;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(folder / "cache", ignored))
      if (entry.path().filename().string().starts_with(beginning)) files.push_back(entry.path());
    return files;
  }
  const test::Folder made;
  const fs::path folder = made.path();
};

TEST_F(Trial, RunsOncePerDeviceAndIsCached) {
  const Variables eight = {{"TESSERA_FAKE_DEVICES", "8"}};
  const auto third = [] { return computes({Backend::cuda, 3}); };
  EXPECT_EQ(run("", third, eight), "computed 20.000000");
  EXPECT_EQ(started(), "rows 1, devices 1");
  EXPECT_EQ(run("", third, eight), "computed 20.000000");
  EXPECT_EQ(started(), "rows 0, devices 0");
  EXPECT_EQ(run(
                "",
                [] {
                  return computes({Backend::cuda, 4});
                },
                eight),
            "computed 20.000000");
  EXPECT_EQ(started(), "rows 0, devices 1");
  EXPECT_TRUE(kept("opening-").empty());
  EXPECT_EQ(run("", [] { return to_string(current_device()); }), "cuda:0") << "selected, and therefore tried";
  EXPECT_EQ(started(), "rows 1, devices 1");
  run("", [] {
    rescan();
    return computes(cuda0);
  });
  EXPECT_EQ(started(), "rows 1, devices 1") << "rescan discards the result";
}

TEST_F(Trial, CrashIsCachedAndDoesNotAffectTheProgram) {
  for (const char* how : {"first kernel", "(cached)"}) {
    const std::string said = run("crash_ctx", [] {
      computes(cuda0);
      const std::string text = computes_and_state(cuda0);
      return text + "\nnew arrays: " + to_string(current_device());
    });
    expect_contains(said, {"the device cannot be used (state: crashed)", how, "SIGSEGV (signal 11)", "crashed|",
                           "--rescan", "new arrays: cpu:0"});
  }
  EXPECT_EQ(started(), "rows 1, devices 1");
}

TEST_F(Trial, WrongResultIsCached) {
  const Variables wrong = {{"TESSERA_FAKE_FAULT", "wrong"}};
  for (int i = 0; i < 2; ++i)
    expect_contains(
        run(
            "", [] { return computes_and_state(cuda0); }, wrong),
        {"the device cannot be used (state: quarantined): the first kernel computed a wrong result", "quarantined|"});
  EXPECT_EQ(started(), "rows 1, devices 1");
}

TEST_F(Trial, TemporaryErrorsAreNotCached) {
  for (const auto& [mode, says] : {std::pair("ctx_46", "(46)"), std::pair("ctx_2", "CUDA_ERROR_OUT_OF_MEMORY (2)")}) {
    const std::string said = run(mode, [] {
      const std::string text = computes_and_state(cuda0);
      return text + "\nnew arrays: " + to_string(current_device());
    });
    expect_contains(said, {"the driver could not create a context", says, "enumerated|", "new arrays: cpu:0"});
    started();
  }
  EXPECT_TRUE(kept("open-").empty());
  EXPECT_EQ(run("", compute), "computed 20.000000") << "the other program has ended";
}

TEST_F(Trial, HangIsRetriedWithLongerLimitAndCachedTemporarily) {
  const Variables short_limit = {{"TESSERA_PROBE_TIMEOUT", "1"}};
  for (const char* says : {"nor within 2 s", "(cached)"})
    expect_contains(run(
                        "hang_ctx", [] { return computes_and_state(cuda0); }, short_limit),
                    {"the device cannot be used (state: hung)", says, "hung|", "nvidia-persistenced"});
  EXPECT_EQ(started(), "rows 1, devices 2");
  ASSERT_EQ(kept("open-").size(), 1u);
  const std::string text = text_of(kept("open-")[0]);
  const std::size_t at = text.find("\"until\": ") + 9;
  ASSERT_GE(at, 9u);
  std::ofstream(kept("open-")[0], std::ios::binary | std::ios::trunc)
      << text.substr(0, at) << 1000000 << text.substr(text.find_first_not_of("0123456789", at));
  EXPECT_EQ(run("", compute, short_limit), "computed 20.000000");
}

TEST_F(Trial, CrashesCausedByResourceLimitsAreNotCachedPermanently) {
  // A resource limit of this process may be the cause of the crash.
  const auto limited = [] {
    const rlimit limit{std::uint64_t{1} << 40, RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &limit);
    return computes_and_state(cuda0);
  };
  expect_contains(run("crash_ctx", limited), {"the device cannot be used (state: crashed)", "SIGSEGV", "ulimit -a"});
  EXPECT_TRUE(kept("open-").empty());
  EXPECT_EQ(run("", compute), "computed 20.000000");
  // Killed by the system, as if memory were exhausted. The result is cached temporarily.
  std::error_code ignored;
  fs::remove_all(folder / "cache", ignored);
  expect_contains(run("kill_ctx", compute),
                  {"the device cannot be used (state: crashed)", "SIGKILL", "free some memory", "after 10 minutes"});
  ASSERT_EQ(kept("open-").size(), 1u);
  EXPECT_NE(text_of(kept("open-")[0]).find("\"until\""), std::string::npos);
  expect_contains(run("", compute), {"the device cannot be used (state: crashed)", "(cached)"});
}

TEST_F(Trial, MissingCompilerIsCached) {
  const Variables without = {{"TESSERA_NVRTC_LIBRARY", "none"}, {"TESSERA_CODEGEN_LIBRARY", "none"}};
  const std::string said = run(
      "", [] { return computes_and_state(cuda0) + "\nnew arrays: " + to_string(current_device()); }, without);
  expect_contains(
      said, {"no compiler for its kernels", "\nloaded|", "|Install the code-generation module", "new arrays: cpu:0"});
  EXPECT_EQ(started(), "rows 1, devices 0");
}

TEST_F(Trial, CrashWhileOpeningCausesANewTrial) {
  EXPECT_EQ(run("", compute), "computed 20.000000");
  expect_contains(run("crash_ctx", compute), {"the child died of signal 11"});  // a trial has succeeded before
  EXPECT_EQ(started(), "rows 1, devices 1");
  ASSERT_EQ(kept("opening-").size(), 1u);
  expect_contains(run("crash_ctx", compute), {"the device cannot be used (state: crashed)", "SIGSEGV"});
  EXPECT_EQ(started(), "rows 0, devices 1");
  EXPECT_TRUE(kept("opening-").empty());
}

TEST_F(Trial, IgnoresTheMarkOfARunningProgram) {
  run("", compute);
  started();
  int go[2];
  ASSERT_EQ(pipe(go), 0);
  const pid_t slow = fork();
  if (slow == 0) {
    close(go[1]);
    run("hang_ctx", compute);  // until its alarm or until it is killed
    _exit(0);
  }
  for (int i = 0; i < 500 && kept("opening-").empty(); ++i) usleep(10'000);
  EXPECT_EQ(kept("opening-").size(), 1u);
  EXPECT_EQ(run("", compute), "computed 20.000000");
  EXPECT_EQ(started(), "rows 0, devices 0");
  const std::string mark = text_of(kept("opening-").at(0));
  kill(static_cast<pid_t>(std::stol(mark.substr(mark.find("\"process\":") + 10))), SIGKILL);
  waitpid(slow, nullptr, 0);
  EXPECT_EQ(run("", compute), "computed 20.000000");
  EXPECT_EQ(started(), "rows 0, devices 1");
}

TEST_F(Trial, ConcurrentProcessesRunOnlyOneTrial) {
  std::vector<pid_t> children;
  for (int i = 0; i < 6; ++i) {
    const pid_t child = fork();
    if (child == 0) _exit(run("", compute) == "computed 20.000000" ? 0 : 1);
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(started(), "rows 1, devices 1");
}

TEST_F(Trial, ConcurrentProcessesRunUncachedTrialsInParallel) {
  // A replacement for tessera-probe that records how many instances run concurrently.
  const std::string here = (folder / "here").string(), most = (folder / "at_once").string();
  std::ofstream(probe()) << "#!/bin/sh\ntouch " << here << ".$$\nsleep 0.5\nls " << here << ".* | wc -l >> " << most
                         << "\nsleep 0.5\nrm " << here << ".$$\nexec " << TESSERA_SHOWN_PROBE << " \"$@\"\n";
  // First a driver without a device, then a device that cannot be opened although its driver's report is cached.
  for (const auto& [mode, fault] : {std::pair("", "no-devices"), std::pair("ctx_46", "")}) {
    const Variables faults = {{"TESSERA_FAKE_FAULT", fault}};
    run(
        mode, [] { return std::to_string(discover(Backend::cuda).devices.size()); }, faults);
    fs::remove(most);
    std::vector<pid_t> children;
    for (int i = 0; i < 4; ++i) {
      const pid_t child = fork();
      if (child == 0) {
        run(mode, compute, faults);
        _exit(0);
      }
      children.push_back(child);
    }
    for (const pid_t child : children) waitpid(child, nullptr, 0);
    const std::string counts = text_of(most);
    EXPECT_EQ(std::count(counts.begin(), counts.end(), '\n'), 4) << counts;
    EXPECT_NE(counts.find_first_of("234"), std::string::npos) << counts << "the trials ran one after another";
  }
}

TEST_F(Trial, WarnsIfResultsCannotBeCached) {
  const fs::path file = folder / "file";
  std::ofstream(file) << "x";
  for (int i = 0; i < 2; ++i) {
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(run("", compute, {{"TESSERA_CACHE_DIR", (file / "below").string()}}), "computed 20.000000");
    expect_contains(::testing::internal::GetCapturedStderr(),
                    {"cannot be cached on disk", "opens each device in a helper process first", "TESSERA_PROBE=list"});
    EXPECT_EQ(started(), "rows 1, devices 1");
  }
}

TEST_F(Trial, ProbeListSkipsTrials) {
  EXPECT_EQ(run("", compute, {{"TESSERA_PROBE", "list"}}), "computed 20.000000");
  EXPECT_EQ(kept("probe-").size(), 1u);
  EXPECT_TRUE(kept("open-").empty());
}

TEST_F(Trial, DifferentDeviceIsProbedAgain) {
  EXPECT_EQ(run("", compute), "computed 20.000000");
  started();
  // The cached report contains a different name, "Fake H100".
  const std::string text = run("latin1", [] {
    const std::string got = computes(cuda0);
    return got + "\n" + device_info(cuda0).name;
  });
  EXPECT_EQ(text, "computed 20.000000\nGeForce\xef\xbf\xbd 770");
  EXPECT_EQ(started(), "rows 1, devices 1");
}

}  // namespace
}  // namespace tessera
