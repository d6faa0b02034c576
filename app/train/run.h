// SPDX-License-Identifier: Apache-2.0
// Common parts of the tasks of `tessera train`: options, the training loop with progress, checkpoints and results.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>

#include "tessera/array/safetensors.h"
#include "train/curve.h"
#include "train/learner.h"

namespace tessera::app {

/// Options of the command line. Those that are also in a checkpoint are optional, and must agree with it.
struct TrainOptions {
  std::string device, out, resume, csv, svg;
  std::optional<std::int64_t> steps, epochs, batch;
  std::optional<double> lr;
  std::optional<std::uint64_t> seed;
  std::optional<std::string> precision;
  std::optional<std::string> variant;  ///< depends on the task: the network's type, or the amount of data
  bool json = false, quiet = false;
};
/// Defaults and option texts that differ between tasks.
struct TrainDefaults {
  std::int64_t steps, batch;
  double lr;
  std::string variant_name, variant;  ///< "model" for --model
  bool epochs = true;                 ///< whether there is an option --epochs
  std::string batch_is = "Samples per step, each of them new";
  std::string out_is = "Write the model and the checkpoint for --resume to this file (safetensors)";
};
/// Formats 12345678 as 12,345,678.
std::string grouped(std::uint64_t number);
void add_train_options(CLI::App& sub, TrainOptions& options, const TrainDefaults& defaults);

/// Settings of a run: from options, else the file, else the defaults.
struct TrainSettings {
  std::string task, variant_name, variant, precision;
  std::uint64_t steps = 0, batch = 0, seed = 0;
  double lr = 0;
  std::optional<SafetensorsFile> file;  ///< to resume from
};
/// Samples per epoch. All samples are new, so this is only a unit.
inline constexpr std::uint64_t epoch_samples = 10'000;
/// The learner's options for these settings.
LearnerOptions learner_options(const TrainSettings& settings);
/// Opens the file to resume from. Throws FormatError if it is not a checkpoint of this task, ArgumentError if an option
/// differs from the file's settings.
TrainSettings settings_of(const char* task, const TrainOptions& options, const TrainDefaults& defaults);
/// Loads a checkpoint into a learner of the same type.
std::vector<CurveRow> resume(Learner& learner, const TrainSettings& settings);

struct HeldOut {
  double loss = 0, accuracy = 0;
  std::vector<std::int32_t> predicted;
};
/// The training data: batch number `step`, from 0; and its evaluation, on held-out samples.
struct TrainData {
  std::function<Batch(std::uint64_t step)> batch;
  std::function<HeldOut()> measure_some;  ///< regularly, for the curve
  std::function<HeldOut()> measure_all;   ///< at the end
  std::uint64_t parts = 1;                ///< parts per sample, for reporting speed: tokens
  std::string part = "sample";
  bool tells_loss = false;  ///< progress shows the held-out loss instead of the accuracy
  /// Called with each row of the curve, before files are written.
  std::function<void(const CurveRow& row)> on_row = [](const CurveRow&) {};
  /// Additional contents of the checkpoint.
  std::function<Learner::ExtraState()> extra_state = [] { return Learner::ExtraState(); };
};
/// For classifiers: evaluated on the first 2,000 held-out samples, and on all.
TrainData classes_of(const Learner& learner, std::function<Batch(std::uint64_t step)> batch, const Batch& held_out);
struct Trained {
  std::vector<CurveRow> curve;
  HeldOut held_out;           ///< on all held-out samples
  std::uint64_t steps = 0;    ///< in this run
  double seconds = 0;         ///< duration of these steps
  std::uint64_t skipped = 0;  ///< in total, with a loss scale
  double loss_scale = 1;
  bool interrupted = false;
};
/// Trains to the last step or until Ctrl-C; files are written regularly and at the end. Throws NotFinite after writing
/// the files as of before the reported step.
Trained train(Learner& learner, const TrainSettings& settings, const TrainOptions& options, const TrainData& data);

/// Sets the current device, for its scope, to that of --device or the default, and stores the reason.
class TrainDevice {
 public:
  explicit TrainDevice(const TrainOptions& options);
  const std::string& why() const { return why_; }

 private:
  std::string why_;
  DeviceScope scope_;
};

/// The data of the final report.
struct TrainReport {
  const TrainSettings& settings;
  const TrainOptions& options;
  const Trained& trained;
  std::int64_t parameters;
  std::string network;                  ///< description
  std::string why_device, held_out_of;  ///< description of the held-out samples
  std::uint64_t parts = 1;              ///< as in TrainData
  std::string part = "sample";
  std::string held_out = {};                                   ///< the line about them; default: the accuracy
  std::string before = {};                                     ///< text before the lines
  std::vector<std::pair<std::string, std::string>> more = {};  ///< additional lines
  /// in addition to those of TrainOptions; with descriptions
  std::vector<std::pair<std::string, std::string>> files = {};
  nlohmann::ordered_json json = {};  ///< members in addition to those of all tasks
};
/// Prints `before` and the lines "model", "trained", "held out", `more`, "device" and "written"; or everything as JSON.
/// Returns the exit code.
int report(const TrainReport& report);

}  // namespace tessera::app
