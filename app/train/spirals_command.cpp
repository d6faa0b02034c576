// SPDX-License-Identifier: Apache-2.0
// `tessera train spirals`: trains a network that assigns points to the arms of a spiral, and draws its decision
// regions.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "image.h"
#include "interrupts.h"
#include "terminal.h"
#include "tessera/base/os/atomic_file.h"
#include "tessera/nn/layers.h"
#include "tessera/nn/sequential.h"
#include "train/run.h"
#include "train/spirals.h"
#include "train/train_commands.h"

namespace tessera::app {
namespace {

constexpr std::int64_t held_out_points = 10'000, points_drawn = 600, picture_side = 160;
constexpr std::uint64_t held_out_seed = 0x7370697261730000;  // held-out points are the same in every run
const TrainDefaults spirals_defaults{.steps = 2000, .batch = 256, .lr = 1e-2, .variant_name = "arms", .variant = "2"};

struct SpiralsArguments : TrainOptions {
  std::string picture;
};

std::vector<std::int32_t> arms_of(const Learner& learner, std::int64_t width, std::int64_t height) {
  return argmax(learner.predict(plane(width, height)), 1).astype(DType::i32).to_vector<std::int32_t>();
}

void write_picture(const SpiralsArguments& o, const Learner& learner, const Batch& held_out, std::int64_t arms) {
  const auto classes = arms_of(learner, picture_side, picture_side);
  if (o.picture.ends_with(".svg")) {
    const Batch some{held_out.x.slice(0, 0, points_drawn), held_out.y.slice(0, 0, points_drawn)};
    os::write_text(o.picture, plane_svg(classes, some, "Decision regions of the network"));
    return;
  }
  Image image{picture_side, picture_side, {}};
  for (const std::int32_t c : classes)
    image.grey.push_back(0.15f + 0.7f * static_cast<float>(c) / static_cast<float>(arms - 1));
  write_png(o.picture, image);
}

int run_spirals(const SpiralsArguments& o) {
  catch_interrupts("tessera: interrupted before the first step", !o.quiet && os::is_terminal(stderr));
  const TrainDevice device(o);
  const TrainSettings settings = settings_of("spirals", o, spirals_defaults);
  const std::int64_t arms = settings.variant == "3" ? 3 : 2;
  const auto network =
      setup(Sequential{Dense{.inputs = 2, .outputs = 64}, Relu{}, Dense{.outputs = 64}, Relu{}, Dense{.outputs = arms}},
            {.seed = settings.seed, .input = {2}});
  ModelLearner<std::remove_const_t<decltype(network)>> learner(network, learner_options(settings));
  const auto batch = [&](std::uint64_t step) {
    return spiral_points(static_cast<std::int64_t>(settings.batch), arms, settings.seed, step);
  };
  const Batch held_out = spiral_points(held_out_points, arms, held_out_seed, 0);
  const Trained trained = train(learner, settings, o, classes_of(learner, batch, held_out));
  if (!is_first_rank()) return exit_code(trained);
  if (!o.picture.empty()) write_picture(o, learner, held_out, arms);
  TrainReport out{.settings = settings,
                  .options = o,
                  .trained = trained,
                  .parameters = learner.parameter_count(),
                  .network = "three dense layers",
                  .why_device = device.why(),
                  .held_out_of = "points that were not used in training"};
  if (!o.picture.empty()) out.files.emplace_back(o.picture, "the decision regions");
  if (!o.json) out.before = plane_text(arms_of(learner, 64, 32), 64) + "\n";
  return report(out);
}

}  // namespace

Command train_spirals_command(CLI::App& train) {
  auto o = std::make_shared<SpiralsArguments>();
  CLI::App* sub = train.add_subcommand("spirals", "Train a network that assigns points to the arms of a spiral");
  sub->add_option("--arms", o->variant, "2 or 3 (default: 2)")->check(CLI::IsMember({"2", "3"}));
  add_train_options(*sub, *o, spirals_defaults);
  sub->add_option("--picture", o->picture, "Write the decision regions to this file: .svg with points, or .png")
      ->check([](const std::string& name) {
        return name.ends_with(".svg") || name.ends_with(".png") ? "" : "\"" + name + "\" does not end in .svg or .png";
      });
  sub->footer(
      R"(Trains a network of three dense layers that predicts to which arm of a spiral a point belongs. For each step, new points
are generated on the device. At the end, the network is evaluated on 10,000 other points, and its decision regions are
drawn.

Results go to standard output, progress to standard error. Ctrl-C completes the step and writes the files; the exit code
is then 130, and --resume continues to the same weights.

Examples:
  tessera train spirals
  tessera train spirals --arms 3 --picture plane.svg --svg curve.svg)");
  return {sub, [o] { return run_spirals(*o); }};
}

}  // namespace tessera::app
