// SPDX-License-Identifier: Apache-2.0
// Tests `tessera doctor` and cached reports in `tessera devices`. Also tests that GPU drivers are not loaded if the CPU
// is selected by name.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>

#include "tests/app/app_program.h"
#include "tests/support/errors.h"

using namespace tessera::test;
using nlohmann::json;
using tessera::test::expect_contains;

namespace {

std::string fake(const std::string& name) { return TESSERA_FAKES "/libfake_" + name + ".so"; }

/// Removes line breaks, because their positions depend on the machine.
std::string in_one_line(const std::string& text) { return std::regex_replace(text, std::regex("\\s+"), " "); }

/// An environment without drivers and with a separate cache.
std::map<std::string, std::string> bare(const TemporaryFolder& cache) {
  return {{"TESSERA_CUDA_LIBRARY", "/nonexistent/libcuda.so.1"},
          {"TESSERA_ROCM_LIBRARY", "/nonexistent/libamdhip64.so.5"},
          {"TESSERA_ONEAPI_LIBRARY", "/nonexistent/libze_loader.so.1"},
          {"TESSERA_OPENCL_LIBRARY", "/nonexistent/libOpenCL.so.1"},
          {"TESSERA_CACHE_DIR", cache / "cache"}};
}

TEST(Doctor, MeasuresTheCpuOnAMachineWithoutDrivers) {
  const TemporaryFolder folder;
  const Outcome o = run({"doctor"}, {.environment = bare(folder)});
  EXPECT_EQ(o.code, 0) << o.out << o.err;
  expect_contains(in_one_line(o.out), {"Hardware", "Backends", "(cuda): supported, /nonexistent/libcuda.so.1",
                                       "TESSERA_CUDA_LIBRARY names this file", "Measurements", "cpu:0: memory ",
                                       " GB/s", " GFLOP/s", "product of ", "cpu:0 works, and its results are correct"});
  EXPECT_EQ(o.err, "");
}

TEST(Doctor, NamesTheLibrariesOfLinearAlgebraAndFourierTransforms) {
  const TemporaryFolder folder;
  auto environment = bare(folder);
  environment["TESSERA_LAPACK_LIBRARY"] = "none";
  expect_contains(in_one_line(run({"doctor", "--no-figures"}, {.environment = environment}).out),
                  {"Linear algebra and Fourier transforms factorisations on every device: Tessera's own algorithms "
                   "(TESSERA_LAPACK_LIBRARY is 'none')",
                   "Fourier transforms on every device: Tessera's kernels"});
}

TEST(Devices, ShowsUnknownMemoryIfTheDriverReportsNone) {
  for (const char* bytes : {"18446744073709551615", "0", "3221225472"}) {
    const TemporaryFolder folder;
    auto environment = bare(folder);
    environment["TESSERA_CUDA_LIBRARY"] = fake("cuda");
    environment["TESSERA_NVRTC_LIBRARY"] = fake("nvrtc");
    environment["TESSERA_FAKE_MEMORY"] = bytes;
    const bool known = bytes[0] == '3';
    const Outcome o = run({"devices", "--list-only"}, {.environment = environment});
    expect_contains(o.out, {"[cuda:0] Fake H100: ", known ? ": 3.00 GiB, enumerated" : ": memory unknown, enumerated"});
    const json j = json::parse(run({"devices", "--list-only", "--json"}, {.environment = environment}).out);
    for (const json& row : j["backends"]) {
      if (row["backend"] != "cuda") continue;
      EXPECT_EQ(row["devices"][0]["total_memory"], known ? json(3221225472u) : json()) << bytes;
    }
  }
}

TEST(Doctor, JsonContainsReportsMachineAndMeasurements) {
  const TemporaryFolder folder;
  const Outcome o = run({"doctor", "--json"}, {.environment = bare(folder)});
  ASSERT_EQ(o.code, 0) << o.out << o.err;
  const json j = json::parse(o.out);
  EXPECT_EQ(j["healthy"], true);
  EXPECT_NE(j["linear_algebra"], "");
  EXPECT_EQ(j["backends"].size(), 7u);
  EXPECT_TRUE(j["machine"]["cards"].is_array());
  const json& f = j["figures"]["cpu:0"];
  EXPECT_EQ(f["right"], true);
  for (const char* figure : {"copy_bytes_per_second", "fma_flops", "product_flops", "first_kernel_seconds"})
    EXPECT_GT(f[figure].get<double>(), 0) << figure;
  EXPECT_FALSE(j["figures"].contains("interp:0"));
}

TEST(Doctor, FailsIfTheNamedDeviceFails) {
  const TemporaryFolder folder;
  auto environment = bare(folder);
  environment["TESSERA_DEVICE"] = "cuda";
  const Outcome o = run({"doctor", "--no-figures"}, {.environment = environment});
  EXPECT_EQ(o.code, 1) << o.out;
  expect_contains(in_one_line(o.out), {"New arrays have no device", "TESSERA_DEVICE=cuda", "cuda:0 does not exist"});
}

TEST(Doctor, ReportsSelectedGpuThatDoesNotCompute) {
  const TemporaryFolder folder;
  auto environment = bare(folder);
  environment["TESSERA_CUDA_LIBRARY"] = fake("cuda");
  environment["TESSERA_NVRTC_LIBRARY"] = fake("nvrtc");
  environment["TESSERA_PROBE"] = TESSERA_SHOWN_PROBE;
  environment["TESSERA_FAKE_FAULT"] = "launch=4";  // the first kernel succeeds
  for (const char* named : {"", "cuda:0"}) {
    environment["TESSERA_DEVICE"] = named;
    const Outcome o = run({"doctor"}, {.environment = environment, .program = TESSERA_SHOWN_PROGRAM});
    EXPECT_EQ(o.code, 1) << o.out;
    const std::string out = in_one_line(o.out);
    expect_contains(out, {*named ? "The device was set explicitly, so no other is used: cuda:0"
                                 : "The selected GPU does not work: cuda:0 failed: [cuda:0, kernel doctor_copy]",
                          "cuda:0 failed: "});
    EXPECT_EQ(out.find("No GPU is used"), out.npos) << out;
    EXPECT_EQ(out.find("there is no graphics card"), out.npos) << out;
  }
}

TEST(Doctor, ReportsCopyPathBetweenGpus) {
  const TemporaryFolder folder;
  auto environment = bare(folder);
  environment["TESSERA_CUDA_LIBRARY"] = fake("cuda");
  environment["TESSERA_NVRTC_LIBRARY"] = fake("nvrtc");
  environment["TESSERA_PROBE"] = TESSERA_SHOWN_PROBE;
  environment["TESSERA_FAKE_DEVICES"] = "2";
  const auto doctor = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"doctor", "--no-figures"});
    return run(more, {.environment = environment, .program = TESSERA_SHOWN_PROGRAM});
  };
  expect_contains(in_one_line(doctor({}).out), {"copies between cuda:0 and cuda:1: direct"});
  environment["TESSERA_FAKE_FAULT"] = "peer-empty";
  const Outcome o = doctor({});
  expect_contains(in_one_line(o.out),
                  {"copies between cuda:0 and cuda:1: through the host: a test of direct copies failed"});
  expect_contains(in_one_line(o.err), {"iommu=pt"});
  const json copies = json::parse(doctor({"--json"}).out)["copies"];
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(copies[0]["devices"], json::array({"cuda:0", "cuda:1"}));
  EXPECT_EQ(copies[0]["back"], "through the host: a test of direct copies failed");
}

TEST(Doctor, ReportsCrashingOrHangingDriverAndContinues) {
  for (const auto& [fault, says] :
       {std::pair("segv-init", "crashed while listing its devices: SIGSEGV"), std::pair("exit-init:3", "(exit code 3)"),
        std::pair("hang-init", "did not answer within 1 s")}) {
    const TemporaryFolder folder;
    auto environment = bare(folder);
    environment["TESSERA_CUDA_LIBRARY"] = fake("cuda");
    environment["TESSERA_FAKE_FAULT"] = fault;
    environment["TESSERA_PROBE_TIMEOUT"] = "1";
    const Outcome o = run({"doctor", "--json", "--no-figures"}, {.environment = environment});
    ASSERT_EQ(o.code, 0) << o.out << o.err;
    const json j = json::parse(o.out);
    const json& cuda = j["backends"][1];
    EXPECT_EQ(cuda["state"], fault == std::string("hang-init") ? "hung" : "crashed");
    expect_contains(cuda["reason"].get<std::string>(), {says});
    expect_contains(cuda["remedy"].get<std::string>(), {"--rescan"});
    EXPECT_EQ(j["current"]["device"], "cpu:0");
  }
}

TEST(Doctor, ProbesAgainInsteadOfUsingCachedResults) {
  const TemporaryFolder folder;
  auto environment = bare(folder);
  environment["TESSERA_CUDA_LIBRARY"] = fake("cuda");
  environment["TESSERA_NVRTC_LIBRARY"] = fake("nvrtc");
  const auto devices = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"devices", "--list-only"});
    return run(more, {.environment = environment}).out;
  };
  EXPECT_EQ(devices({}).find("(cached)"), std::string::npos);
  expect_contains(devices({}), {"[cuda:0]", "(cached)", "tessera devices --rescan"});
  EXPECT_EQ(devices({"--rescan"}).find("(cached)"), std::string::npos);
}

TEST(Doctor, ReportsTheLibraryForLargeProducts) {
  const TemporaryFolder folder;
  auto environment = bare(folder);
  environment["TESSERA_CUDA_LIBRARY"] = fake("cuda");
  environment["TESSERA_NVRTC_LIBRARY"] = fake("nvrtc");
  for (const auto& [library, clause] :
       {std::pair(fake("cublaslt"), "cuBLASLt (" + fake("cublaslt") + ")"),
        std::pair(std::string("none"), std::string("no cuBLASLt: large products run on Tessera's own kernels")),
        std::pair(std::string("/nonexistent.so"),
                  std::string("no cuBLASLt: large products run on Tessera's own kernels"))}) {
    environment["TESSERA_CUBLAS_LIBRARY"] = library;
    const Outcome o = run({"devices", "--json", "--list-only"}, {.environment = environment});
    ASSERT_EQ(o.code, 0) << o.out << o.err;
    EXPECT_EQ(json::parse(o.out)["backends"][1]["devices"][0]["blas"], clause);
    const std::string table = in_one_line(run({"doctor", "--no-figures"}, {.environment = environment}).out);
    expect_contains(table, {clause.starts_with("no") ? "no cuBLASLt: large" : "large products by cuBLASLt"});
  }
}

TEST(Probe, WorksAsProcess1InAContainer) {
  const TemporaryFolder folder;
  const std::string unshare = "unshare --pid --fork --mount-proc ";
  if (std::system((unshare + "true 2>/dev/null").c_str()) != 0)
    GTEST_SKIP() << "this user may not create a process namespace (unshare --pid)";
  const std::string command = "TESSERA_CACHE_DIR=" + (folder / "cache") + " TESSERA_CUDA_LIBRARY=" + fake("cuda") +
                              " TESSERA_NVRTC_LIBRARY=" + fake("nvrtc") + " " + unshare + TESSERA_PROGRAM +
                              " devices --list-only >" + (folder / "out");
  EXPECT_EQ(std::system(command.c_str()), 0);
  expect_contains(text_of(folder / "out"), {"(cuda): enumerated", "[cuda:0]"});
}

/// Returns the libraries that the loader opened in the program and in all processes that it started.
std::string opened_files(std::vector<std::string> arguments, std::map<std::string, std::string> environment) {
  const TemporaryFolder folder;
  environment["LD_DEBUG"] = "files";
  environment["LD_DEBUG_OUTPUT"] = folder / "loader";
  environment["TESSERA_CACHE_DIR"] = folder / "cache";
  const Outcome o = run(std::move(arguments), {.environment = environment});
  EXPECT_EQ(o.code, 0) << o.err;
  std::string all;
  for (const auto& entry : std::filesystem::directory_iterator(folder / ""))
    if (entry.path().filename().string().rfind("loader.", 0) == 0) all += text_of(entry.path());
  return all;
}

const std::vector<std::string> drivers = {"libcuda",  "libnvrtc",  "libamdhip64",  "libhiprtc",
                                          "libze_",   "libOpenCL", "libpocl",      "libigdrcl",
                                          "libocloc", "libMetal",  "tessera-probe"};

TEST(NamingTheCpu, OpensNoDriverLibrary) {
  const std::vector<std::string> generate = {"generate", "models/pgdocs-2m-q8_0.gguf", "-p", "The index", "-n", "2"};
  auto by_option = generate;
  by_option.insert(by_option.end(), {"--device", "cpu"});
  const std::string trace =
      opened_files(generate, {{"TESSERA_DEVICE", "cpu"}}) + opened_files(by_option, {}) +
      opened_files({"verify", "--device", "cpu", "--operation", "softmax"}, {{"TESSERA_DEVICE", "cpu"}});
  ASSERT_NE(trace.find("libtessera"), std::string::npos);  // checks that the trace works
  for (const std::string& driver : drivers) EXPECT_EQ(trace.find(driver), std::string::npos) << driver;
}

TEST(NamingTheCpu, DriversAreOpenedIfNoDeviceIsNamed) {
  if (!std::filesystem::exists("/etc/OpenCL/vendors/pocl.icd"))
    GTEST_SKIP() << "PoCL is not installed (pocl-opencl-icd)";
  expect_contains(opened_files({"devices", "--list-only"}, {}), {"libpocl"});
}

}  // namespace
