// SPDX-License-Identifier: Apache-2.0
// Makes system calls fail, one per run, while a file is written. Afterwards, either the old or the new file must exist
// and be complete, and the exit code must match. The program must not hang. Tests a few calls of each kind, or a
// hundred calls of each writer with TESSERA_TEST_LONG=1.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "tessera/base/os/atomic_file.h"
#include "tessera/llm/gguf.h"
#include "tessera/llm/gguf_values.h"
#include "tessera/llm/gguf_writer.h"
#include "tessera/tessera.h"
#include "tests/app/app_program.h"
#include "tests/support/scripted_model.h"

using namespace tessera;
using namespace tessera::test;

namespace {

constexpr const char* old_text = R"([{"role":"user","content":"old"}])";
const char* const csv_lines = "step,loss\n1,0.5\n2,0.25\n3,0.125\n";

bool is_json(const std::string& text) { return nlohmann::json::accept(text); }

/// A function of the library that writes a file. It runs in a separate process, which is another run of this test.
struct Written {
  std::string name;
  std::function<void(const std::string& path)> write;
  std::function<bool(const std::string& text, const std::string& path)> is_new;
};
const std::vector<Written>& library_writers() {
  static const std::vector<Written> all = {
      {"save_model",
       [](const std::string& path) {
         const DeviceScope scope(Device{Backend::cpu, 0});
         save_model(setup(sequential(dense<64, 512>, relu, dense<512, 8>), {.seed = 1}), path);
       },
       [](const std::string&, const std::string& path) { return SafetensorsFile::open(path).tensors().size() == 4; }},
      {"GgufWriter",
       [](const std::string& path) {
         const std::vector<float> values(50'000, 1.5f);
         GgufWriter().add_tensor("a", {50'000}, values).add_tensor("b", {50'000}, values).write(path);
       },
       [](const std::string&, const std::string& path) { return GgufFile::open(path).tensors().size() == 2; }},
      {"trace",
       [](const std::string& path) {
         Trace seen = trace(path);
         for (int i = 0; i < 1000; ++i) spawn([] {});
         synchronize();
         seen.stop();
       },
       [](const std::string& text, const std::string&) { return is_json(text); }},
      {"lines",
       [](const std::string& path) {
         const std::string all = csv_lines;
         os::AppendFile file(path, all.substr(0, all.find('\n') + 1));
         for (std::size_t at = all.find('\n') + 1; at < all.size(); at = all.find('\n', at) + 1)
           file.append(std::string_view(all).substr(at, all.find('\n', at) + 1 - at));
       },
       [](const std::string& text, const std::string&) {
         return std::string_view(csv_lines).starts_with(text) && text.ends_with("\n");
       }}};
  return all;
}

struct Fault {
  const char* call;
  int error;
};
/// Makes a different call fail in each run. Stops after a run without a failure, or after `most` runs.
void for_each_call(const Fault& fault, int most, const std::function<void(std::map<std::string, std::string>)>& run,
                   const std::string& folder) {
  const TemporaryFolder apart;
  const std::string struck = apart / "struck";
  for (int number = 1; number <= most; ++number) {
    SCOPED_TRACE(std::string(fault.call) + " " + std::to_string(number) + ": " + std::strerror(fault.error));
    std::filesystem::remove(struck);
    run({{"LD_PRELOAD", TESSERA_FAIL_CALLS},
         {"TESSERA_FAIL", std::string(fault.call) + " " + std::to_string(number) + " " + std::to_string(fault.error)},
         {"TESSERA_FAIL_IN", folder},
         {"TESSERA_FAIL_STRUCK", struck}});
    if (!std::filesystem::exists(struck) || ::testing::Test::HasFailure()) return;
  }
}
std::vector<Fault> faults() {
  std::vector<Fault> all = {{"write", ENOSPC}, {"write", 0}, {"write", EINTR}, {"fsync", EIO}, {"rename", EIO}};
  if (std::getenv("TESSERA_TEST_LONG") != nullptr)
    all.insert(all.end(), {{"write", EIO}, {"write", EDQUOT}, {"fsync", EINTR}, {"fsync", ENOSPC}, {"rename", ENOSPC}});
  return all;
}
int most_calls() { return std::getenv("TESSERA_TEST_LONG") != nullptr ? 100 : 2; }

/// Checks the files after a run with a fault. The old file contains `old_text`.
void expect_whole(const Outcome& o, const Fault& fault, const std::string& path,
                  const std::function<bool(const std::string& text, const std::string& path)>& is_new) {
  const std::string text = text_of(path);
  ASSERT_FALSE(o.late);
  ASSERT_TRUE(o.code == 0 || o.code == 1) << o.code << o.out << o.err;
  if (o.code == 0 || text != old_text) {
    ASSERT_TRUE(is_new(text, path)) << path << ", exit code " << o.code << ": " << text.size() << " bytes\n" << o.err;
  }
  if (fault.error == EINTR) {
    ASSERT_EQ(o.code, 0) << o.err;
  }
  if (o.code == 1) {
    ASSERT_NE(o.err.find(std::strerror(fault.error != 0 ? fault.error : ENOSPC)), o.err.npos) << o.err;
  }
}

class WriteFaults : public ::testing::TestWithParam<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(Library, WriteFaults, ::testing::Range<std::size_t>(0, library_writers().size()),
                         [](const auto& each) { return library_writers()[each.param].name; });

TEST_P(WriteFaults, KeepTheOldOrTheNewFile) {
  const Written& writer = library_writers()[GetParam()];
  if (const char* path = std::getenv("TESSERA_TEST_WRITES")) {
    try {
      writer.write(path);
    } catch (const ArgumentError& e) {
      std::fprintf(stderr, "%s\n", e.what());
      std::exit(1);
    }
    std::exit(0);
  }
  const TemporaryFolder folder;
  const std::string path = folder / "file";
  for (const Fault& fault : faults()) {
    for_each_call(
        fault, most_calls(),
        [&](std::map<std::string, std::string> environment) {
          write_file(path, old_text);
          environment["TESSERA_TEST_WRITES"] = path;
          const Outcome o = run({"--gtest_filter=*/" + writer.name},
                                {.environment = environment, .limit = 60, .program = "/proc/self/exe"});
          expect_whole(o, fault, path, writer.is_new);
          EXPECT_EQ(names(folder.path()), std::vector<std::string>{"file"}) << "a temporary file remains";
        },
        folder.path());
    if (HasFailure()) return;
  }
}

TEST(ProgramWriteFaults, TrainKeepsTheOldOrTheNewFiles) {
  const TemporaryFolder folder;
  const std::vector<std::string> files = {folder / "m.safetensors", folder / "c.csv", folder / "c.svg",
                                          folder / "p.svg"};
  const auto is_new = [](const std::string& text, const std::string& path) {
    if (path.ends_with(".svg")) return text.ends_with("</svg>\n");
    if (path.ends_with(".csv")) return text.starts_with("step,") && text.ends_with("\n");
    return SafetensorsFile::open(path).metadata().contains("curve");
  };
  for (const Fault& fault : faults()) {
    for_each_call(
        fault, most_calls(),
        [&](std::map<std::string, std::string> environment) {
          for (const std::string& file : files) write_file(file, old_text);
          environment["TESSERA_DEVICE"] = "cpu";
          const Outcome o = run({"train", "spirals", "--steps", "2", "--batch", "16", "-q", "--out", files[0], "--csv",
                                 files[1], "--svg", files[2], "--picture", files[3]},
                                {.environment = environment, .limit = 60});
          for (const std::string& file : files) expect_whole(o, fault, file, is_new);
          EXPECT_EQ(folder.files().size(), files.size()) << "a temporary file remains";
        },
        folder.path());
    if (HasFailure()) return;
  }
}

TEST(ProgramWriteFaults, ChatKeepsTheOldOrTheNewConversation) {
  const TemporaryFolder folder, models;
  const std::string path = folder / "chat.json", model = models / "model.gguf";
  weather_model().write(model);
  for (const Fault& fault : faults()) {
    for_each_call(
        fault, most_calls(),
        [&](std::map<std::string, std::string> environment) {
          write_file(path, old_text);
          const Outcome o =
              run({"chat", model, "--device", "cpu", "-q"},
                  {.environment = environment, .in = "/system Be kind.\n/save " + path + "\n", .limit = 60});
          expect_whole(o, fault, path, [](const std::string& text, const std::string&) { return is_json(text); });
          EXPECT_EQ(folder.files().size(), 1u) << "a temporary file remains";
        },
        folder.path());
    if (HasFailure()) return;
  }
}

TEST(ProgramWriteFaults, KernelCacheDoesNotChangeResults) {
  const TemporaryFolder folder;
  const std::vector<std::string> arguments = {
      "generate", "models/pgdocs-2m-q8_0.gguf", "-p", "The index", "-n", "2", "--temperature", "0", "-q", "--device",
      "cpu"};
  const auto generate = [&](std::map<std::string, std::string> environment) {
    environment["TESSERA_KERNEL_CACHE"] = "1";
    environment["TESSERA_CACHE_DIR"] = folder / "cache";
    return run(arguments, {.environment = environment, .limit = 60});
  };
  const std::string text = generate({}).out;
  ASSERT_NE(text, "");
  const bool all = std::getenv("TESSERA_TEST_LONG") != nullptr;
  std::vector<Fault> some = {{"write", ENOSPC}, {"write", 0}, {"rename", EIO}};
  if (all) some.insert(some.end(), {{"write", EINTR}, {"rename", EACCES}, {"flock", ENOLCK}, {"flock", EINTR}});
  for (const Fault& fault : some) {
    for_each_call(
        fault, all ? 15 : 1,
        [&](const std::map<std::string, std::string>& environment) {
          std::filesystem::remove_all(folder / "cache");
          for (const auto& each : {environment, {}}) {
            const Outcome o = generate(each);
            ASSERT_FALSE(o.late);
            ASSERT_EQ(o.code, 0) << o.err;
            ASSERT_EQ(o.out, text) << o.err;
          }
        },
        folder.path());
    if (HasFailure()) return;
  }
}

/// Any mmap call may fail. The program must either compute the same result or report that memory ran out.
TEST(ProgramWriteFaults, FailedMemoryMappingEndsTrainWithAMessage) {
  const TemporaryFolder folder;
  const std::string path = folder / "m.safetensors";
  const bool all = std::getenv("TESSERA_TEST_LONG") != nullptr;
  const Fault fault{"mmap", ENOMEM};
  for_each_call(
      fault, all ? 100 : 5,
      [&](std::map<std::string, std::string> environment) {
        write_file(path, old_text);
        environment["TESSERA_DEVICE"] = "cpu";
        const Outcome o = run({"train", "spirals", "--steps", "2", "--batch", "16", "-q", "--out", path},
                              {.environment = environment, .limit = 60});
        ASSERT_FALSE(o.late);
        ASSERT_TRUE(o.code == 0 || o.code == 1) << o.code << o.err;
        if (o.code == 1) {
          ASSERT_NE(o.err.find("tessera: error: "), o.err.npos) << o.err;
        }
        if (o.code == 0 || text_of(path) != old_text) {
          ASSERT_NO_THROW(SafetensorsFile::open(path));
        }
      },
      folder.path());
}

}  // namespace
