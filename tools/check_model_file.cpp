// SPDX-License-Identifier: Apache-2.0
// Runs a model file through Llama and through a double-precision forward pass with its decoded weights, and prints the
// difference of the logits. Used for files that other tools have written:
//   llama-quantize random-f32.gguf q.gguf Q4_K_M && build/release/bin/check_model_file q.gguf --tokens 24 --logits
//   q.txt
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <cstring>
#include <ctime>
#include <fstream>
#include <map>
#include <memory>
#include <optional>

#include "tessera/device/memory/storage.h"
#include "tessera/executor/executor.h"
#include "tessera/llm/decoder.h"
#include "tessera/llm/llama.h"
#include "tests/llm/reference_llama.h"

namespace {

/// Returns the value of a line of /proc/self/status in MiB.
double resident(const std::string& what) {
  std::ifstream in("/proc/self/status");
  for (std::string word; in >> word;)
    if (word == what + ":") {
      double kilobytes = 0;
      in >> kilobytes;
      return kilobytes / 1024;
    }
  return 0;
}

/// Loads the model and prints its memory use. Then measures three operations, nine times each. The first reads the file
/// and fills a new buffer of the size of the packed weights. The second does the same with new device memory, which may
/// have larger pages. The third loads the model.
void load(const tessera::GgufFile& file) {
  using namespace tessera;
  using Clock = std::chrono::steady_clock;
  const Device cpu{Backend::cpu, 0};
  const auto seconds = [](const auto& what) {
    const auto start = Clock::now();
    what();
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  executor::Executor& threads = executor::Executor::instance();
  std::uint64_t bytes = 0, packed = 0;
  for (const GgufTensor& t : file.tensors()) bytes += t.bytes;
  const auto copy = [&](std::byte* to) {
    constexpr std::uint64_t piece = 1 << 20;
    for (const GgufTensor& t : file.tensors()) {
      threads.parallel_for(t.bytes, piece, [&](std::uint64_t begin, std::uint64_t end) {
        file.read(t, begin, std::span(to + begin, end - begin));
      });
      to += t.bytes;
    }
    if (packed > bytes)
      threads.parallel_for(packed - bytes, piece,
                           [&](std::uint64_t begin, std::uint64_t end) { std::memset(to + begin, 1, end - begin); });
  };
  const auto room = [&] { return std::max(bytes, packed); };
  const auto to_buffer = [&] { copy(std::make_unique_for_overwrite<std::byte[]>(room()).get()); };
  const auto to_device = [&] { copy(Storage::allocate(cpu, room())->allocation().host); };
  const auto read = [&] {  // fills the page cache
    std::vector<std::byte> piece;
    for (const GgufTensor& t : file.tensors())
      for (std::uint64_t at = 0; at < t.bytes; at += piece.size()) {
        piece.resize(std::min<std::uint64_t>(1 << 20, t.bytes - at));
        file.read(t, at, piece);
      }
  };
  read();
  const double mib = 1 << 20, before = (device_info(cpu), resident("VmRSS"));
  std::optional<Llama> model;
  const auto load_it = [&] { model = Llama::load(file, cpu); };
  const double first = seconds(load_it), weights = static_cast<double>(model->weight_bytes()) / mib;
  fmt::print(
      "{}: file {:.0f} MiB, weights {:.0f} MiB; resident before {:.0f}, after {:.0f} MiB ({:.0f} anonymous, {:.0f} "
      "file), peak {:.0f} MiB = weights + {:.1f} %\n",
      file.name(), static_cast<double>(bytes) / mib, weights, before, resident("VmRSS"), resident("RssAnon"),
      resident("RssFile"), resident("VmHWM"), 100 * (resident("VmHWM") / weights - 1));
  packed = model->weight_bytes();
  std::vector<double> buffer, device, loading;
  for (int i = 0; i < 9; ++i) {
    model.reset(), trim(cpu);  // returns the memory of the model to the system
    buffer.push_back(seconds(to_buffer)), device.push_back(seconds(to_device)), trim(cpu);
    loading.push_back(seconds(load_it));
  }
  for (auto* all : {&buffer, &device, &loading}) std::ranges::sort(*all);
  fmt::print(
      "  {} threads, seconds (median and best of 9): file to buffer {:.2f} {:.2f}, file to device memory {:.2f} "
      "{:.2f}, "
      "loading the model {:.2f} {:.2f} (first time {:.2f}). Ratios of loading to the first {:.2f} {:.2f} and to the "
      "second {:.2f} {:.2f}\n",
      threads.threads(), buffer[4], buffer[0], device[4], device[0], loading[4], loading[0], first,
      loading[4] / buffer[4], loading[0] / buffer[0], loading[4] / device[4], loading[0] / device[0]);
}

/// Prints the tokens per second for a prompt of `length` tokens and for 32 tokens generated after it, by wall time and
/// by processor time. Each is measured after a warm-up run.
void rate(const tessera::GgufFile& file, std::size_t length) {
  using namespace tessera;
  const Device cpu{Backend::cpu, 0};
  const Llama model = Llama::load(file, cpu);
  model.prepare();
  KeyValueCache cache = model.make_cache(static_cast<std::int64_t>(length) + 128);
  std::vector<std::int32_t> tokens(length);
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<std::int32_t>((7919 * i) % static_cast<std::size_t>(model.config().vocabulary));
  const auto now = [](clockid_t clock) {
    timespec t{};
    ::clock_gettime(clock, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  };
  const auto seconds = [&](const auto& what) {
    const double wall = now(CLOCK_MONOTONIC), processor = now(CLOCK_PROCESS_CPUTIME_ID);
    what();
    return std::pair(now(CLOCK_MONOTONIC) - wall, now(CLOCK_PROCESS_CPUTIME_ID) - processor);
  };
  const auto prompt = [&] {
    cache.truncate(0);
    model.forward(tokens, cache).to_vector<float>();
  };
  Decoder decoder(model, cache);
  constexpr int steps = 32;
  const auto decode = [&] {
    for (int i = 0; i < steps; ++i) decoder.step(7 * i + 1).to_vector<float>();
  };
  prompt(), decode();
  const auto prompt_time = seconds(prompt), decode_time = seconds(decode);
  const double count = static_cast<double>(length);
  fmt::print("{}: prompt {:.1f}, decode {:.2f} tokens/s; per second of processor time: prompt {:.1f}, decode {:.2f}\n",
             file.name(), count / prompt_time.first, steps / decode_time.first, count / prompt_time.second,
             steps / decode_time.second);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace tessera;
  CLI::App app("Compare a model file's logits with a double-precision forward pass");
  std::string path, out, compare;
  std::size_t count = 24;
  double bound = 0.02;
  app.add_option("FILE", path, "A GGUF file of architecture llama or qwen2")->required();
  bool only_load = false;
  app.add_flag("--load", only_load, "Only load the model, and print the time and memory used");
  bool only_rate = false;
  app.add_flag("--rate", only_rate, "Only print the tokens per second of prompt and generation");
  std::size_t length = 128;
  app.add_option("--prompt", length, "With --rate: the number of tokens of the prompt")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--tokens", count, "Number of tokens")->capture_default_str();
  app.add_option("--bound", bound, "Limit for the largest difference, relative to the logits' range")
      ->capture_default_str();
  app.add_option("--logits", out, "Write the last token's logits of both to this file, one pair per line");
  app.add_option("--compare", compare, "File with another program's logits of the last token, one per line");
  CLI11_PARSE(app, argc, argv);
  try {
    const GgufFile file = GgufFile::open(path);
    if (only_load) return load(file), 0;
    if (only_rate) return rate(file, length), 0;
    std::map<std::string, int> types;
    for (const GgufTensor& t : file.tensors()) ++types[std::string(ggml_type_info(t.type)->name)];
    std::string mix;
    for (const auto& [name, number] : types) mix += fmt::format("{}{} {}", mix.empty() ? "" : ", ", number, name);
    const Llama model = Llama::load(file, Device{Backend::cpu, 0});
    std::vector<std::int32_t> tokens;
    for (std::size_t i = 0; i < count; ++i)
      tokens.push_back(
          static_cast<std::int32_t>((7919 * (i + 1)) % static_cast<std::size_t>(model.config().vocabulary)));
    KeyValueCache cache = model.make_cache(static_cast<std::int64_t>(count), DType::f32);
    const std::vector<float> got = model.forward(tokens, cache, true).to_vector<float>();
    const auto want = test::ReferenceLlama(file).forward(tokens);
    const auto range = [](const auto& row) {
      const auto [low, high] = std::minmax_element(row.begin(), row.end());
      return static_cast<double>(*high) - static_cast<double>(*low);
    };
    double worst = 0;
    for (std::size_t t = 0; t < count; ++t)
      for (std::size_t i = 0; i < want[t].size(); ++i)
        worst = std::max(worst, std::abs(got[t * want[t].size() + i] - want[t][i]) / range(want[t]));
    fmt::print("{}: {}; {} tokens, largest difference {:.2e} of the range\n", path, mix, count, worst);
    const std::size_t last = (count - 1) * want[0].size();
    if (!out.empty()) {
      std::ofstream to(out);
      for (std::size_t i = 0; i < want[0].size(); ++i) to << fmt::format("{} {}\n", got[last + i], want.back()[i]);
    }
    if (!compare.empty()) {
      std::ifstream from(compare);
      double other = 0, number = 0;
      for (std::size_t i = 0; i < want[0].size(); ++i) {
        if (!(from >> number)) throw std::runtime_error(compare + " has too few numbers");
        other = std::max(other, std::abs(number - want.back()[i]) / range(want.back()));
      }
      fmt::print("  of {}: {:.2e}\n", compare, other);
    }
    return worst <= bound ? 0 : 1;
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
}
