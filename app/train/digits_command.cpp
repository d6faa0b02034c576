// SPDX-License-Identifier: Apache-2.0
// `tessera train digits`: trains a network that recognises printed digits. The samples are glyphs of fonts, which are
// augmented on the device.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "arguments.h"
#include "image.h"
#include "interrupts.h"
#include "terminal.h"
#include "tessera/base/printable.h"
#include "tessera/nn/images.h"
#include "tessera/nn/layers.h"
#include "tessera/nn/sequential.h"
#include "train/digits.h"
#include "train/normalize_digit.h"
#include "train/run.h"
#include "train/train_commands.h"

namespace tessera::app {
namespace {

constexpr std::size_t classes = 10;
constexpr std::int64_t held_out_samples = 10'000;
const TrainDefaults digits_defaults{
    .steps = 1500, .batch = 128, .lr = 3e-3, .variant_name = "model", .variant = "conv"};

struct DigitsArguments : TrainOptions {
  std::string image;
};

std::unique_ptr<Learner> learner_for(const TrainSettings& s) {
  const SetupOptions setup_options{.seed = s.seed, .input = {1, digit_side, digit_side}};
  const LearnerOptions options = learner_options(s);
  const auto made = [&](auto model) -> std::unique_ptr<Learner> {
    return std::make_unique<ModelLearner<decltype(model)>>(setup(std::move(model), setup_options), options);
  };
  if (s.variant == "mlp") return made(Sequential{Flatten{}, Dense{.outputs = 256}, Relu{}, Dense{.outputs = classes}});
  if (s.variant == "conv")
    return made(Sequential{Conv2d{.out = 8, .kernel = 5, .stride = 2, .padding = 2}, Relu{},
                           Conv2d{.out = 16, .kernel = 3, .stride = 2, .padding = 1}, Relu{}, Flatten{},
                           Dense{.outputs = 64}, Relu{}, Dense{.outputs = classes}});
  fail<FormatError>({.operation = "resume",
                     .with = {{"file", s.file->name()}, {"model", "\"" + s.variant + "\""}},
                     .wrong = "the model must be mlp or conv"});
}

Batch samples(const Array& glyphs, const Array& labels, std::uint64_t seed, std::uint64_t first, std::int64_t count) {
  auto [x, y] = digit_samples(glyphs, labels, seed, first, count);
  return {std::move(x), std::move(y)};
}

struct Confusion {
  std::size_t digit, read_as, count;
};
/// Returns the most frequent pairs of a digit and a wrong prediction.
std::vector<Confusion> confusions(const Batch& held_out, const HeldOut& h) {
  std::array<std::array<std::size_t, classes>, classes> counts{};
  const auto wanted = held_out.y.to_vector<std::int32_t>();
  for (std::size_t i = 0; i < h.predicted.size(); ++i)
    ++counts[static_cast<std::size_t>(wanted[i])][static_cast<std::size_t>(h.predicted[i])];
  std::vector<Confusion> out;
  for (std::size_t d = 0; d < classes; ++d)
    for (std::size_t r = 0; r < classes; ++r)
      if (d != r && counts[d][r] != 0) out.push_back({d, r, counts[d][r]});
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.count > b.count; });
  if (out.size() > 5) out.resize(5);
  return out;
}

int predict(const DigitsArguments& o, const Learner& learner) {
  const Image digit = normalize_digit(read_png(o.image), o.image);
  const Array x = Array::from(digit.grey, Shape{1, 1, digit_side, digit_side});
  const auto logits = learner.predict(x).to_vector<float>();
  std::array<double, classes> p{};
  double total = 0;
  const float highest = *std::max_element(logits.begin(), logits.end());
  for (std::size_t i = 0; i < classes; ++i) total += p[i] = std::exp(double(logits[i]) - highest);
  for (double& v : p) v /= total;
  const auto best = static_cast<std::size_t>(std::max_element(p.begin(), p.end()) - p.begin());
  if (o.json) {
    const nlohmann::ordered_json out = {{"file", o.image}, {"digit", best}, {"probabilities", p}};
    app::print("{}\n", out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
    return success;
  }
  const Style style(output());
  for (std::size_t i = 0; i < classes; ++i) {
    const std::string bar(static_cast<std::size_t>(std::lround(40 * p[i])), '#');
    const std::string row = fmt::format("{}  {:6.2f} %  {}", i, 100 * p[i], bar);
    app::print("{}\n", i == best ? style.strong(row) : row);
  }
  app::print("{} is a {}\n", printable_line(o.image), best);
  return success;
}

int run_digits(const DigitsArguments& o) {
  catch_interrupts("tessera: interrupted before the first step", !o.quiet && os::is_terminal(stderr));
  const TrainDevice device(o);
  const TrainSettings settings = settings_of("digits", o, digits_defaults);
  const std::unique_ptr<Learner> learner = learner_for(settings);
  const Digits digits = load_digits(digits_folder());
  // Each rank makes only its own samples, unless there are more ranks than samples.
  const auto size = static_cast<std::int64_t>(settings.batch);
  detail::SampleRange mine{0, size};
  if (ranks() != nullptr && ranks()->size() <= size)
    mine = detail::part_of_samples(size, ranks()->size(), ranks()->rank());
  const auto batch = [&](std::uint64_t step) {
    return samples(digits.train, digits.train_labels, settings.seed,
                   step * settings.batch + static_cast<std::uint64_t>(mine.begin), mine.size);
  };
  if (!o.image.empty()) {
    resume(*learner, settings);
    return predict(o, *learner);
  }
  const Batch held_out = samples(digits.held_out, digits.held_out_labels, held_out_seed, 0, held_out_samples);
  TrainData data = classes_of(*learner, batch, held_out);
  if (mine.size != size) data.share = static_cast<double>(mine.size) / static_cast<double>(size);
  const Trained trained = train(*learner, settings, o, data);
  if (!is_first_rank()) return exit_code(trained);
  const auto wrong = confusions(held_out, trained.held_out);
  TrainReport out{.settings = settings,
                  .options = o,
                  .trained = trained,
                  .parameters = learner->parameter_count(),
                  .network = settings.variant == "mlp" ? "two dense layers" : "two convolutions, two dense layers",
                  .why_device = device.why(),
                  .held_out_of = "samples of fonts that were not used in training"};
  std::string list;
  for (const Confusion& c : wrong) {
    list += fmt::format("{}{} as {} ({} times)", list.empty() ? "" : ", ", c.digit, c.read_as, c.count);
    out.json["misread"].push_back({{"digit", c.digit}, {"read_as", c.read_as}, {"count", c.count}});
  }
  if (!list.empty()) out.more.emplace_back("misread", "most often " + list);
  return report(out);
}

}  // namespace

Command train_digits_command(CLI::App& train) {
  auto o = std::make_shared<DigitsArguments>();
  CLI::App* sub = train.add_subcommand("digits", "Train a network that recognises printed digits");
  sub->add_option("--model", o->variant,
                  "conv (two convolutions and two dense layers) or mlp (two dense layers) (default: conv)")
      ->check(CLI::IsMember({"conv", "mlp"}));
  add_train_options(*sub, *o, digits_defaults);
  sub->add_option("--image", o->image, "Do not train: classify the digit in this PNG with the model of --resume")
      ->check(require_nonempty)
      ->needs("--resume");
  sub->footer(
      R"(Trains on the digits of 74 font families, augmented on the device for each step: shifted, rotated, scaled and slanted,
with noise. The network is evaluated on samples of 17 other families: regularly on 2,000, and at the end on 10,000. The
same seed produces bit-identical weights on the same device with the same number of threads.

Results go to standard output, progress to standard error. --out, --csv and --svg are written regularly and at the end.
Ctrl-C completes the step and writes them; the exit code is then 130, and --resume continues to the same weights.

Examples:
  tessera train digits
  tessera train digits --device cpu --model mlp --csv curve.csv --svg curve.svg
  tessera train digits --precision bf16 --epochs 20
  tessera train digits --out digits.safetensors
  tessera train digits --resume digits.safetensors --steps 3000 --out digits.safetensors
  tessera train digits --resume digits.safetensors --image photo.png)");
  return {sub, [o] { return run_digits(*o); }};
}

}  // namespace tessera::app
