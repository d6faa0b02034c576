// SPDX-License-Identifier: Apache-2.0
// usage: lm_arrays TEXT SEED STEPS BATCH FILE
//
// Writes the initial state and data of `tessera train lm --text TEXT` with its default network as safetensors, for
// tools/compare_lm_with_pytorch.py. The parameters are named by path. The training data is `windows` (STEPS, BATCH, ctx
// + 1), and the evaluation data is `inputs` (count, ctx) and `targets`, all in i32.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "tessera/array/safetensors.h"
#include "tessera/device/context.h"
#include "train/lm_model.h"

int main(int argc, char** argv) try {
  using namespace tessera;
  if (argc != 6) return std::fprintf(stderr, "usage: lm_arrays TEXT SEED STEPS BATCH FILE\n"), 2;
  const DeviceScope scope(Device{Backend::cpu, 0});
  const app::LmShape shape;
  const std::uint64_t seed = std::strtoull(argv[2], nullptr, 10), steps = std::strtoull(argv[3], nullptr, 10);
  const std::int64_t batch = std::atoll(argv[4]), length = shape.context;
  std::ifstream in(argv[1], std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const app::SplitText split = app::split_text(text);
  const TrainedTokenizer trained = train_tokenizer(split.training, {.vocabulary = shape.vocabulary});
  const Tokenizer tokenizer = trained.tokenizer();
  const app::TokenStream stream = app::token_stream(split.training, tokenizer);
  const app::TokenStream held_out = app::token_stream(split.held_out, tokenizer);
  const auto model =
      setup(LlamaNetwork{.shape = app::network_shape(shape, static_cast<std::int64_t>(trained.tokens.size()))},
            {.seed = seed});
  std::vector<std::pair<std::string, Array>> arrays;
  for (const NamedArray& p : parameters(model)) arrays.emplace_back(p.path, p.array);
  std::vector<std::int32_t> windows;
  for (std::uint64_t step = 0; step < steps; ++step) {
    const auto more = app::windows(stream, trained.end_of_text, seed, step, batch, length);
    windows.insert(windows.end(), more.begin(), more.end());
  }
  const app::MeasuredWindows measured = app::measured_windows(held_out.tokens, length, 0);
  const auto array = [](const std::vector<std::int32_t>& values, const Shape& of) {
    return Array::from(std::span<const std::int32_t>(values), of);
  };
  arrays.emplace_back("windows", array(windows, {static_cast<std::int64_t>(steps), batch, length + 1}));
  arrays.emplace_back("inputs", array(measured.inputs, {measured.count, length}));
  arrays.emplace_back("targets", array(measured.targets, {measured.count, length}));
  save_safetensors(argv[5], arrays);
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "lm_arrays: %s\n", e.what());
  return 1;
}
