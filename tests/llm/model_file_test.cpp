// SPDX-License-Identifier: Apache-2.0
// Truncates a model file while it is being loaded.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <thread>

#include "tessera/base/error.h"
#include "tessera/base/test_seed.h"
#include "tessera/llm/llama.h"
#include "tessera/llm/tokenizer.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

TEST(ModelFile, TruncationDuringLoadingIsDetected) {
  const fs::path whole = "models/pgdocs-2m-q8_0.gguf";
  const fs::path file = fs::temp_directory_path() / ("tessera-shrinks-" + std::to_string(::getpid()) + ".gguf");
  const Device cpu{Backend::cpu, 0};
  const auto load = [&] {
    const GgufFile model = GgufFile::open(file);
    const Tokenizer tokenizer(model);
    Llama::load(model, cpu);
  };
  fs::copy_file(whole, file, fs::copy_options::overwrite_existing);
  load();
  auto time = std::chrono::microseconds::max();
  for (int i = 0; i < 3; ++i) {
    const auto start = std::chrono::steady_clock::now();
    load();
    time =
        std::min(time, std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - start));
  }
  std::mt19937_64 random(test_seed());
  const int times = std::getenv("TESSERA_TEST_LONG") ? 1000 : 60;
  int refused = 0;
  for (int i = 0; i < times; ++i) {
    fs::copy_file(whole, file, fs::copy_options::overwrite_existing);
    const std::chrono::microseconds moment(random() % static_cast<std::uint64_t>(time.count()));
    const std::uint64_t size = random() % fs::file_size(whole);
    std::thread other([&] {
      std::this_thread::sleep_for(moment);
      fs::resize_file(file, size);
    });
    try {
      load();
    } catch (const FormatError& e) {
      ++refused;
      EXPECT_NE(std::string(e.what()).find(file.string()), std::string::npos) << e.what();
    }
    other.join();
  }
  fs::remove(file);
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace tessera
