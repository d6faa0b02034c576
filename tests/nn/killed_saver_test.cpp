// SPDX-License-Identifier: Apache-2.0
// Kills a program while it saves a file. The file must then be the complete old or the complete new one. Tests
// parameters, training checkpoints, and language models written by `tessera train lm`.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <random>
#include <thread>

#include "app/train/lm_model.h"
#include "tessera/base/test_seed.h"
#include "tessera/nn/saved_model.h"
#include "tessera/nn/sequential.h"
#include "tessera/nn/trainer.h"
#include "tests/support/folder.h"

namespace tessera {
namespace {

/// Writes one of two contents to a file. The same content always has the same bytes.
using Save = std::function<void(int which, const std::string& path)>;

const char* saving_to() { return std::getenv("TESSERA_TEST_SAVES_TO"); }

/// Runs in the process that is killed. Saves the two contents alternately, and reports when both were saved once.
void save_for_ever(const Save& save) {
  ::alarm(60);
  for (int i = 0;; ++i) {
    save(i % 2, saving_to());
    if (i == 1) {
      ASSERT_EQ(::write(STDOUT_FILENO, "!", 1), 1);
    }
  }
}

/// Runs this test in a child process, waits until it has saved both contents, and kills it at a random time.
void save_until_killed(const std::string& path, std::mt19937_64& random) {
  const std::string filter =
      std::string("--gtest_filter=KilledSaver.") + ::testing::UnitTest::GetInstance()->current_test_info()->name();
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::dup2(ends[1], STDOUT_FILENO);
    ::setenv("TESSERA_TEST_SAVES_TO", path.c_str(), 1);
    ::execl("/proc/self/exe", "killed_saver_test", filter.c_str(), nullptr);
    ::_exit(127);
  }
  ::close(ends[1]);
  char letter = 0;
  while (::read(ends[0], &letter, 1) == 1 && letter != '!') {}
  std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
  ::kill(child, SIGKILL);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ::close(ends[0]);
  ASSERT_EQ(letter, '!') << "the child saved nothing";
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "the child exited";
}

/// Kills child processes as above. After each kill, the file must equal one of the two contents, and `load` must be
/// able to read it.
void expect_whole(const Save& save, const std::function<void(const std::string& path)>& load) {
  if (saving_to() != nullptr) return save_for_ever(save);
  const test::Folder folder, killed;
  std::string contents[2];
  for (const int which : {0, 1}) {
    for (const char* name : {"a", "b"}) save(which, folder / name);
    contents[which] = test::text_of(folder / "a");
    ASSERT_TRUE(contents[which] == test::text_of(folder / "b")) << "saving twice gives different bytes";
  }
  ASSERT_FALSE(contents[0] == contents[1]);
  std::mt19937_64 random(test_seed());
  const std::string path = killed / "file";
  const int kills = std::getenv("TESSERA_TEST_LONG") != nullptr ? 100 : 25;
  int left[2] = {0, 0}, midway = 0;
  for (int k = 0; k < kills; ++k) {
    ASSERT_NO_FATAL_FAILURE(save_until_killed(path, random)) << "kill " << k;
    const std::string now = test::text_of(path);
    ASSERT_TRUE(now == contents[0] || now == contents[1])
        << "kill " << k << ", seed " << test_seed() << ": " << now.size() << " bytes, equal to neither";
    ++left[now == contents[1]];
    ASSERT_NO_THROW(load(path)) << "kill " << k;
    for (const auto& other : killed.files()) {
      if (other == path) continue;
      ++midway;  // the temporary file of the killed process
      std::filesystem::remove(other);
    }
  }
  std::printf("%d kills, %d of these while %zu bytes were written; left: %d times the one, %d times the other\n", kills,
              midway, contents[0].size(), left[0], left[1]);
}

const Device cpu{Backend::cpu, 0};

auto network(std::uint64_t seed) { return setup(sequential(dense<256, 512>, relu, dense<512, 64>), {.seed = seed}); }
using Network = decltype(network(1));

TEST(KilledSaver, LeavesAValidModel) {
  const DeviceScope scope(cpu);
  const Network models[] = {network(1), network(2)};
  Network loaded = network(3);
  expect_whole([&](int which, const std::string& path) { save_model(models[which], path); },
               [&](const std::string& path) { load_model(loaded, path); });
}

TEST(KilledSaver, LeavesAValidCheckpoint) {
  const DeviceScope scope(cpu);
  using Batch = std::tuple<Array, Array>;
  const auto trainer = [](std::uint64_t seed) {
    const Network model = network(seed);
    return std::make_unique<Trainer<Network>>(model, Adam(model, {.lr = 1e-3}), [](const Network& m, const Batch& b) {
      return cross_entropy(m(std::get<0>(b)), std::get<1>(b));
    });
  };
  const auto one = trainer(1), two = trainer(2), loaded = trainer(3);
  expect_whole([&](int which, const std::string& path) { (which == 0 ? one : two)->save(path); },
               [&](const std::string& path) { loaded->load(path); });
}

void expect_language_model_whole(GgmlType type) {
  const DeviceScope scope(cpu);
  const std::vector<std::string_view> texts = {"A text of a few words, a text to write."};
  const TrainedTokenizer tokenizer = train_tokenizer(texts, {.vocabulary = 262});
  const auto lm = [&](std::uint64_t seed) {
    return setup(LlamaNetwork{.shape = {.vocabulary = static_cast<std::int64_t>(tokenizer.tokens.size()),
                                        .layers = 2,
                                        .width = 128,
                                        .heads = 4,
                                        .key_heads = 2,
                                        .hidden = 256}},
                 {.seed = seed});
  };
  const LlamaNetwork models[] = {lm(1), lm(2)};
  expect_whole([&](int which, const std::string& path) { app::write_lm(models[which], 32, tokenizer, path, {type}); },
               [&](const std::string& path) { Llama::load(GgufFile::open(path), cpu); });
}
TEST(KilledSaver, LeavesAValidF16LanguageModel) { expect_language_model_whole(GgmlType::f16); }
TEST(KilledSaver, LeavesAValidQ8LanguageModel) { expect_language_model_whole(GgmlType::q8_0); }

}  // namespace
}  // namespace tessera
