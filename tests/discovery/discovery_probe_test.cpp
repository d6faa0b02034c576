// SPDX-License-Identifier: Apache-2.0
// Discovery in helper processes with fake drivers. A driver that crashes or hangs affects only its own report, and
// results are cached for the next process. Each case runs in a child with a separate cache.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
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
using test::Folder;
using test::message;
using test::text_of;
using test::Variables;

/// Returns "state|reason|number of devices|remembered or asked".
std::string row(Backend backend) {
  const BackendReport& r = discover(backend);
  return std::string(state_name(r.state)) + "|" + r.reason + "|" + std::to_string(r.devices.size()) + "|" +
         (r.remembered ? "remembered" : "asked");
}
bool mapped(const std::string& library) { return text_of("/proc/self/maps").find(library) != std::string::npos; }
std::string computes(Device device) {
  return std::to_string(sum(Array::full({10}, 2.0, DType::f32, device)).item<float>());
}

class Probe : public ::testing::TestWithParam<Backend> {
 protected:
  static std::string name() { return test::fake_backend(GetParam()).driver; }
  static Backend other() { return GetParam() == Backend::cuda ? Backend::rocm : Backend::cuda; }

  static Variables fakes(const fs::path& cache) {
    return test::with_fakes({{"TESSERA_OPENCL_LIBRARY", "/nonexistent"},
                             {"TESSERA_CACHE_DIR", cache.string()},
                             {"TESSERA_PROBE", TESSERA_SHOWN_PROBE},
                             {"TESSERA_PROBE_TIMEOUT", "1"},
                             {"TESSERA_FAKE_ONLY", "libfake_" + name() + "."}});
  }
  std::string run(const Variables& changed, const std::function<std::string()>& work) {
    Variables all = fakes(cache.path());
    all.insert(all.end(), changed.begin(), changed.end());
    return test::run_in_child(all, work, 30);
  }
  std::string with(const std::string& fault, const std::function<std::string()>& work) {
    return run({{"TESSERA_FAKE_FAULT", fault}}, work);
  }
  Folder cache;
};
INSTANTIATE_TEST_SUITE_P(Backends, Probe, ::testing::Values(Backend::cuda, Backend::rocm, Backend::oneapi),
                         [](const auto& info) { return std::string(backend_name(info.param)); });

TEST_P(Probe, CrashingDriverAffectsOnlyItsReport) {
  const struct {
    const char *fault, *says, *words;
  } cases[] = {{"crash-init", "crashed while listing its devices: SIGABRT (signal 6)", "no output"},
               {"segv-init", "crashed while listing its devices: SIGSEGV (signal 11)", "about to fault"},
               {"exit-init:3", "ended the process while listing its devices (exit code 3)", "giving up"},
               {"exit-init:0", "ended the process while listing its devices (exit code 0)", "giving up"}};
  for (const auto& c : cases) {
    const std::string text = with(c.fault, [] {
      const BackendReport& r = discover(GetParam());
      std::string out = row(GetParam()) + "\n" + r.file + "\n" + r.remedy + "\n";
      out += message([] { computes({GetParam(), 0}); }) + "\n";
      out += message([] { DeviceScope scope({GetParam(), 0}); }) + "\n";
      out += "new arrays: " + to_string(current_device()) + "\n";
      out += "the other: " + computes({other(), 0}) + ", the cpu: " + computes({}) + "\n";
      out += std::string("loaded here: ") + (mapped("libfake_" + name() + ".") ? "yes" : "no");
      return out;
    });
    expect_contains(
        text, {"crashed|", fake_library(name()), c.says, c.words, "|0|asked", "tessera devices --rescan",
               "does not exist: the backend " + std::string(backend_name(GetParam())) + " has no devices (crashed:",
               "new arrays: " + std::string(backend_name(other())) + ":0", "the other: 20.000000, the cpu: 20.000000",
               "loaded here: no"});
  }
}

TEST_P(Probe, HangingDriverIsStoppedAndAffectsOnlyItsReport) {
  const auto start = std::chrono::steady_clock::now();
  const auto work = [] {
    return row(GetParam()) + "\n" + message([] {
             computes({GetParam(), 0});
           }) +
           "\nthe other: " + computes({other(), 0}) + (mapped("libfake_" + name() + ".") ? ", loaded" : ", not loaded");
  };
  expect_contains(with("hang-init", work), {"hung|", "did not answer within 1 s", "TESSERA_PROBE_TIMEOUT", "|0|asked",
                                            "has no devices (hung:", "the other: 20.000000, not loaded"});
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  // The next program does not have to wait for the driver.
  expect_contains(with("hang-init", [] { return row(GetParam()) + discover(GetParam()).remedy; }),
                  {"hung|", "|0|remembered", GetParam() == Backend::cuda ? "nvidia-persistenced" : "retried"});
  // After the result has expired, the driver is probed again.
  for (const fs::path& file : cache.files()) {
    const std::string text = text_of(file);
    const std::size_t at = text.find("\"until\": ") + 9;
    if (at < 9) continue;  // a different entry
    std::ofstream(file, std::ios::binary | std::ios::trunc)
        << text.substr(0, at) << 1000000 << text.substr(text.find_first_not_of("0123456789", at));
  }
  expect_contains(with("hang-init", [] { return row(GetParam()); }), {"hung|", "nor within 2 s", "|0|asked"});
}

TEST_P(Probe, CrashesCausedByResourceLimitsAreNotCachedPermanently) {
  const auto limited = [] {
    const rlimit limit{std::uint64_t{1} << 40, RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &limit);
    return row(GetParam());
  };
  expect_contains(with("segv-init", limited), {"crashed|", "|0|asked"});
  EXPECT_TRUE(cache.files().empty());
  for (const char* how : {"|0|asked", "|0|remembered"})
    expect_contains(with("kill-init", [] { return row(GetParam()) + discover(GetParam()).remedy; }),
                    {"crashed|", "SIGKILL", how, "free some memory", "after 10 minutes"});
  ASSERT_EQ(cache.files().size(), 1u);
  EXPECT_NE(text_of(cache.files()[0]).find("\"until\""), std::string::npos);
}

TEST_P(Probe, DriverWithoutDevicesIsProbedAgain) {
  const auto work = [] { return row(GetParam()); };
  for (int i = 0; i < 2; ++i) expect_contains(with("no-devices", work), {"loaded|", "|0|asked"});
  EXPECT_TRUE(cache.files().empty());
  for (const char* how : {"|1|asked", "|1|remembered"}) expect_contains(run({}, work), {"enumerated|", how});
}

TEST_P(Probe, DriverOutputDoesNotCorruptAnswer) {
  const std::string text = with("print-init", [] {
    const std::string found = row(GetParam());
    return found + " " + computes({GetParam(), 0});
  });
  expect_contains(text, {"enumerated|", "|1|asked", " 20.000000"});
}

TEST_P(Probe, WorksIfTheProgramIgnoresSigchld) {
  const std::string text = run({}, [] {
    signal(SIGCHLD, SIG_IGN);  // the system then discards the exit status of children
    return row(GetParam());
  });
  expect_contains(text, {"enumerated|", "|1|asked"});
  expect_contains(with("segv-init",
                       [] {
                         signal(SIGCHLD, SIG_IGN);
                         return row(GetParam());
                       }),
                  {"crashed|", "crashed while listing its devices: SIGSEGV (signal 11)", "about to fault"});
}

TEST_P(Probe, SlowDriverIsRetriedWithLongerLimit) {
  expect_contains(with("slow-init:1300", [] { return row(GetParam()); }), {"enumerated|", "|1|asked"});
}

TEST_P(Probe, ResultsAreCachedForTheNextProcess) {
  const auto work = [] {
    std::string out = row(GetParam());
    out += mapped("libfake_" + name() + ".") ? " loaded" : " not loaded";
    return out + " " + computes({GetParam(), 0});
  };
  expect_contains(run({}, work), {"enumerated|", "|1|asked not loaded 20.000000"});
  expect_contains(run({}, work), {"enumerated|", "|1|remembered not loaded 20.000000"});
  // Everything that may change the result causes a new probe.
  for (const char* name : {"CUDA_VISIBLE_DEVICES", "GPU_MAX_ALLOC_PERCENT", "CL_CONFIG_CPU_FORCE_LOCAL_MEM_SIZE",
                           "LP_NATIVE_VECTOR_WIDTH", "GALLIUM_DRIVER", "GALLIVM_PERF", "OCLGRIND_LOCAL_MEM_SIZE",
                           "RUSTICL_ENABLE", "DPCPP_CPU_NUM_CUS", "IGC_X", "LD_AUDIT"})
    expect_contains(run({{name, "0"}}, work), {"|1|asked"});
  expect_contains(run({{"TESSERA_FAKE_DEVICES", "2"}}, work), {"|2|asked"});
  expect_contains(run({}, work), {"|1|remembered"});
}

TEST_P(Probe, CachedCapabilitiesEqualProbedOnes) {
  const auto work = [] {
    const DeviceInfo& i = device_info({GetParam(), 1});
    std::string out = i.name + "," + i.vendor + "," + i.driver_version + "," + i.identity + "," +
                      std::string(kind_name(i.kind)) + "," + std::to_string(i.total_memory) + "," +
                      std::to_string(i.unified_memory) + "," + std::to_string(i.compute_units);
    const Capabilities& c = i.can;
    for (const std::uint64_t v : {std::uint64_t{c.f16},
                                  std::uint64_t{c.bf16},
                                  std::uint64_t{c.f64},
                                  std::uint64_t{c.int64},
                                  std::uint64_t{c.atomic_i64},
                                  std::uint64_t{c.atomic_f32},
                                  std::uint64_t{c.int8_dot},
                                  std::uint64_t{c.matrix_f16},
                                  std::uint64_t{c.matrix_bf16},
                                  std::uint64_t{c.matrix_tf32},
                                  std::uint64_t{c.matrix_f32},
                                  std::uint64_t{c.matrix_i8},
                                  std::uint64_t{c.async_copies},
                                  std::uint64_t{c.max_block_threads},
                                  std::uint64_t{c.max_block[0]},
                                  std::uint64_t{c.max_block[2]},
                                  c.shared_bytes,
                                  c.local_bytes,
                                  c.max_parameter_bytes,
                                  std::uint64_t{c.vector_bytes}})
      out += "," + std::to_string(v);
    for (const std::uint32_t w : c.subgroup_widths) out += ",w" + std::to_string(w);
    return out;
  };
  const Variables two = {{"TESSERA_FAKE_DEVICES", "2"}};
  Variables inside = two;
  inside.emplace_back("TESSERA_PROBE", "off");
  const std::string in_process = run(inside, work);
  EXPECT_EQ(in_process.find("exception"), std::string::npos) << in_process;
  EXPECT_EQ(run(two, work), in_process);
  EXPECT_EQ(run(two, work), in_process);  // loaded from the cache
}

TEST_P(Probe, ReplacedDriverIsProbedAgain) {
  const Folder place;
  const fs::path library = place / "libfake.so";
  fs::copy_file(fake_library(name()), library);
  const Variables here = {{test::fake_backend(GetParam()).driver_variable, library.string()}};
  const auto work = [] { return row(GetParam()); };
  expect_contains(run(here, work), {"|1|asked"});
  expect_contains(run(here, work), {"|1|remembered"});
  fs::remove(library);
  fs::copy_file(fake_library(name() + "_incomplete"), library);
  expect_contains(run(here, work), {"supported|", "the library has no ", "|0|asked"});
}

TEST_P(Probe, RescanDiscardsTheCache) {
  const std::string text = run({}, [] {
    std::string out = row(GetParam()) + "\n";
    rescan();
    out += row(GetParam()) + "\n";
    setenv("TESSERA_FAKE_DEVICES", "2", 1);
    out += row(GetParam()) + "\n";
    rescan();
    return out + row(GetParam());
  });
  expect_contains(text, {"|1|asked\n", "|2|asked"});
  EXPECT_EQ(text.find("remembered"), std::string::npos) << text;
}

TEST_P(Probe, DamagedFilesAreIgnoredAndReplaced) {
  const auto work = [] { return row(GetParam()); };
  expect_contains(run({}, work), {"|1|asked"});
  ASSERT_EQ(cache.files().size(), 1u);
  const fs::path file = cache.files().front();
  const std::string whole = text_of(file);
  const std::size_t report = whole.find("\"report\": ") + 10;
  const std::string deep(3'000'000, '[');
  for (const std::string& damage :
       {std::string(), std::string("not json"), whole.substr(0, whole.size() / 2),
        std::string(R"({"format": 99, "key": "", "report": {}})"), std::string("[]"), std::string("{\"format\": 1}"),
        deep, whole.substr(0, report) + deep + std::string(deep.size(), ']') + "}", std::string(20'000'000, ' ')}) {
    std::ofstream(file, std::ios::binary | std::ios::trunc) << damage;
    expect_contains(run({}, work), {"enumerated|", "|1|asked"});
    EXPECT_EQ(text_of(file), whole);
  }
}

TEST_P(Probe, FilesOfOthersWithCacheNamesAreNotChanged) {
  const auto work = [] {
    const std::string found = row(GetParam());
    rescan();
    return found + row(GetParam());
  };
  expect_contains(run({}, work), {"|1|asked"});
  const fs::path file = cache.files().front();
  const Folder place;
  std::ofstream(place / "mine") << "mine";
  fs::remove(file);
  fs::create_symlink(place / "mine", file);
  expect_contains(run({}, work), {"|1|asked"});
  EXPECT_TRUE(fs::is_symlink(file));
  EXPECT_EQ(text_of(place / "mine"), "mine");
  fs::remove(file);
  ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
  expect_contains(run({}, work), {"|1|asked"});
  EXPECT_TRUE(fs::is_fifo(file));
}

TEST_P(Probe, RescanAndSizeLimitDeleteOnlyCacheFiles) {
  std::vector<std::string> theirs = {"probe-results.csv", "probe-data.json", "probe-cuda-", "probe-cuda-notes.json"};
  for (int i = 0; i < 100; ++i) theirs.push_back("probe-" + std::to_string(i) + ".txt");
  for (const std::string& name : theirs) std::ofstream(cache / name) << name;
  for (int i = 0; i < 70; ++i) {
    char name[64];
    std::snprintf(name, sizeof name, "probe-metal-%016x.json", i);
    std::ofstream(cache / name) << "{}";
    fs::last_write_time(cache / name, fs::file_time_type::clock::now() - std::chrono::hours(100 - i));
  }
  const auto all_theirs = [&] {
    for (const std::string& name : theirs)
      if (text_of(cache / name) != name) return name;
    return std::string("there");
  };
  expect_contains(run({}, [] { return row(GetParam()); }), {"|1|asked"});
  EXPECT_EQ(all_theirs(), "there");
  EXPECT_EQ(cache.files().size() - theirs.size(), 64u);
  EXPECT_FALSE(fs::exists(cache / "probe-metal-0000000000000000.json"));
  run({}, [] {
    rescan();
    return std::string();
  });
  EXPECT_EQ(all_theirs(), "there");
  EXPECT_EQ(cache.files().size(), theirs.size());
}

TEST_P(Probe, CacheContainsNoValuesOfVariables) {
  std::ofstream(cache / "probe-cuda-0123456789abcdef.json")
      << "{\n \"format\": 1,\n \"key\": \"CUDA_TOKEN=old-secret\"}";
  Variables secrets;
  for (const char* name : {"NVIDIA_API_KEY", "CUDA_TOKEN", "AMD_KEY", "INTEL_KEY", "ROCM_X", "ONEAPI_KEY", "MESA_KEY"})
    secrets.emplace_back(name, std::string("secret-") + name);
  expect_contains(run(secrets, [] { return row(GetParam()); }), {"|1|asked"});
  expect_contains(run(secrets, [] { return row(GetParam()); }), {"|1|remembered"});
  for (const fs::path& file : cache.files()) {
    EXPECT_EQ(text_of(file).find("secret"), std::string::npos)
        << file << " (entries of earlier versions are deleted, too)";
    EXPECT_EQ(fs::status(file).permissions(), fs::perms{0600}) << file;
  }
  secrets.back().second += "!";
  expect_contains(run(secrets, [] { return row(GetParam()); }), {"|1|asked"});
  // This also holds if a driver prints a value and crashes.
  const Variables printed = {{"TESSERA_FAKE_FAULT", "segv-init"}, {"CUDA_TOKEN", "about to fault"}, {"CUDA_X", "to"}};
  expect_contains(run(printed, [] { return row(GetParam()); }), {"crashed|", "about to fault", "|0|asked"});
  expect_contains(run(printed, [] { return row(GetParam()); }), {"crashed|", "$CUDA_TOKEN", "|0|remembered"});
  for (const fs::path& file : cache.files()) EXPECT_EQ(text_of(file).find("about to fault"), std::string::npos) << file;
}

TEST_P(Probe, ConcurrentProcessesWriteOneFile) {
  std::vector<pid_t> children;
  for (int i = 0; i < 6; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      const std::string text = run({}, [] { return row(GetParam()); });
      _exit(text.find("enumerated|") == 0 && text.find("|1|") != std::string::npos ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(cache.files().size(), 1u);
}

TEST_P(Probe, UnwritableCacheFolderIsLoggedOnce) {
  const fs::path file = cache / "file";
  std::ofstream(file) << "x";
  ::testing::internal::CaptureStderr();
  const std::string text = run({{"TESSERA_CACHE_DIR", (file / "below").string()}, {"TESSERA_LOG", "info"}},
                               [] { return row(GetParam()) + row(other()); });
  const std::string log = ::testing::internal::GetCapturedStderr();
  expect_contains(text, {"|1|asked", "|1|asked"});
  expect_contains(log, {"cannot be cached on disk", "cannot be created: Not a directory"});
  EXPECT_EQ(log.find("cannot be cached"), log.rfind("cannot be cached")) << log;
}

TEST_P(Probe, LoadsDriversInProcessWithoutProbeProgram) {
  for (const char* probe : {"/nonexistent/tessera-probe", "off", "/dev/null"}) {
    ::testing::internal::CaptureStderr();
    const std::string text = run({{"TESSERA_PROBE", probe}, {"TESSERA_LOG", "info"}}, [] {
      std::string found = row(GetParam());
      found += mapped("libfake_" + name() + ".") ? " loaded " : " not loaded ";
      return found + computes({GetParam(), 0});
    });
    expect_contains(text, {"enumerated|", "|1|asked loaded 20.000000"});
    expect_contains(::testing::internal::GetCapturedStderr(), {"into this process directly"});
  }
}

TEST_P(Probe, NamingADeviceProbesOnlyItsBackend) {
  const std::string text = run({{"TESSERA_DEVICE", std::string(backend_name(GetParam()))}},
                               [] { return to_string(current_device()) + " " + why_current_device(); });
  expect_contains(text, {std::string(backend_name(GetParam())) + ":0"});
  ASSERT_EQ(cache.files().size(), 1u);
  expect_contains(cache.files().front().filename().string(), {"probe-" + std::string(backend_name(GetParam()))});
}

TEST_P(Probe, NamingTheCpuProbesNothing) {
  for (const char* device : {"cpu", "cpu:0", "interp"}) {
    const std::string text = run({{"TESSERA_DEVICE", device}}, [] {
      return computes(current_device()) + why_current_device() + why_current_device(Detail::brief);
    });
    expect_contains(text, {"20.000000"});
  }
  expect_contains(run({{"TESSERA_DEVICE", "cpu:7"}}, [] { return message([] { current_device(); }); }),
                  {"cpu:7 does not exist"});
  expect_contains(run({}, [] { return message([] {
                                 DeviceScope scope({Backend::cpu, 7});
                               }); }),
                  {"cpu:7 does not exist"});
  EXPECT_TRUE(cache.files().empty());
}

TEST_P(Probe, AutomaticSelectionStopsAtDiscreteGpu) {
  const std::string text = run({}, [] { return to_string(current_device()); });
  EXPECT_EQ(text, "cuda:0");
  ASSERT_EQ(cache.files().size(), 2u);  // the report and the result of the trial
}

TEST_P(Probe, InvalidTimeoutThrowsWithoutProbing) {
  const std::string text =
      run({{"TESSERA_PROBE_TIMEOUT", "soon"}}, [] { return row(GetParam()) + message([] { current_device(); }); });
  expect_contains(text, {"supported|", "TESSERA_PROBE_TIMEOUT", "soon"});
}

// OpenCL platforms are probed separately.

class Platforms : public ::testing::Test {
 protected:
  void add(const std::string& name, const std::string& library) { std::ofstream(vendors / name) << library << "\n"; }
  std::string run(const std::function<std::string()>& work, const Variables& changed = {}) {
    Variables all = {{"TESSERA_CACHE_DIR", cache.path().string()},
                     {"OCL_ICD_VENDORS", vendors.path().string()},
                     {"POCL_CACHE_DIR", kernels.path().string()},
                     {"TESSERA_PROBE_TIMEOUT", "2"}};
    all.insert(all.end(), changed.begin(), changed.end());
    return test::run_in_child(all, work, 60);
  }
  static std::string parts() {
    std::string out;
    for (const DriverPart& p : discover(Backend::opencl).parts)
      out += fs::path(p.name).filename().string() + "=" + std::string(state_name(p.state)) + "(" + p.reason +
             ") do: " + p.remedy + "\n";
    return out;
  }
  static std::string pocl() {
    for (const char* line : {"/etc/OpenCL/vendors/pocl.icd"}) {
      std::ifstream in(line);
      std::string library;
      if (in >> library) return library;
    }
    return "";
  }
  Folder vendors, cache, kernels;
};

TEST_F(Platforms, CrashingOrHangingPlatformsAreReportedSeparately) {
  add("a-crashes.icd", fake_library("icd_crashes"));
  add("b-hangs.icd", fake_library("icd_hangs"));
  add("c-none.icd", fake_library("icd_no_platform"));
  add("d-gone.icd", "/nonexistent/libgone.so");
  add("e-refuses.icd", fake_library("cuda_refuses"));
  add("f-needs.icd", fake_library("icd_needs"));
  const std::string text = run([] { return row(Backend::opencl) + "\n" + parts(); });
  expect_contains(text, {"crashed|", "a-crashes.icd=crashed(", "SIGABRT", "this kernel module is too old",
                         "b-hangs.icd=hung(", "did not answer within 2 s", "c-none.icd=loaded(",
                         "d-gone.icd=supported(", "/nonexistent/libgone.so", "e-refuses.icd=", "f-needs.icd=supported(",
                         "libfake_icd_needs.so requires libfake_needed.so, which was not found",
                         "Install the package that contains libfake_needed.so, or add its folder to LD_LIBRARY_PATH"});
}

TEST_F(Platforms, CrashingPlatformLeavesOthersUsable) {
  if (pocl().empty()) GTEST_SKIP() << "PoCL is not installed (pocl-opencl-icd)";
  add("a-crashes.icd", fake_library("icd_crashes"));
  add("b-pocl.icd", pocl());
  add("c-hangs.icd", fake_library("icd_hangs"));
  const auto work = [] {
    const std::string found = row(Backend::opencl);
    const std::string result = computes({Backend::opencl, 0});
    return found + "\n" + parts() + result + " " + row(Backend::opencl) +
           (mapped("libfake_icd") ? " loaded" : " not loaded") + (mapped("libpocl") ? " with PoCL" : "");
  };
  for (const char* how : {"asked", "remembered"})
    expect_contains(run(work, {{"TESSERA_PROBE_TIMEOUT", "4"}}),
                    {"enumerated|", std::string("|1|") + how, "a-crashes.icd=crashed(", "b-pocl.icd=enumerated(",
                     "c-hangs.icd=hung(", "20.000000 verified|", " not loaded with PoCL"});
}

TEST_F(Platforms, ReportsCrashingPlatformIfNoGpuIsSelected) {
  if (pocl().empty()) GTEST_SKIP() << "PoCL is not installed (pocl-opencl-icd)";
  add("a-crashes.icd", fake_library("icd_crashes"));
  add("b-pocl.icd", pocl());
  const std::string text = run([] { return why_current_device() + "\n" + why_current_device(Detail::brief); },
                               {{"TESSERA_CUDA_LIBRARY", "/nonexistent"}, {"TESSERA_ROCM_LIBRARY", "/nonexistent"}});
  expect_contains(text, {"cpu:0", "a-crashes.icd: ", "SIGABRT", "opencl: a driver crashes"});
}

TEST_F(Platforms, LoaderReportsMissingPlatforms) {
  const std::string text = run([] { return row(Backend::opencl); });
  EXPECT_TRUE(text.find("lists no platform") != text.npos || text.find("libOpenCL.so.1") != text.npos) << text;
}

}  // namespace
}  // namespace tessera
