// SPDX-License-Identifier: Apache-2.0
// What the tasks of `tessera train` have in common: options, the run with its progress, checkpoints and figures.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>

#include "tessera/array/safetensors.h"
#include "train/curve.h"
#include "train/learner.h"

namespace tessera::app {

/// What was said on the command line. What a file to resume from says too is optional: it must not say otherwise.
struct TrainOptions {
  std::string device, out, resume, csv, svg;
  std::optional<std::int64_t> steps, epochs, batch;
  std::optional<double> lr;
  std::optional<std::uint64_t> seed;
  std::optional<std::string> precision;
  std::optional<std::string> variant;  ///< of the task: what its network is, or how much there is to learn
  bool json = false, quiet = false;
};
/// What counts if nothing is said.
struct TrainDefaults {
  std::int64_t steps, batch;
  double lr;
  std::string variant_name, variant;  ///< "model", of --model
};
void add_train_options(CLI::App& sub, TrainOptions& options, const TrainDefaults& defaults);

/// What the run goes by: options, else the file's, else the defaults.
struct TrainSettings {
  std::string task, variant_name, variant, precision;
  std::uint64_t steps = 0, batch = 0, seed = 0;
  double lr = 0;
  std::optional<SafetensorsFile> file;  ///< to resume from
};
/// Samples of an epoch: each of them is new, so that this is only a number to count by.
inline constexpr std::uint64_t epoch_samples = 10'000;
/// The learner's options of these.
LearnerOptions learner_options(const TrainSettings& settings);
/// Opens the file to resume from. FormatError: it is no checkpoint of this task. ArgumentError: an option is not what
/// the file was trained with.
TrainSettings settings_of(const char* task, const TrainOptions& options, const TrainDefaults& defaults);
/// The arrays and settings of a checkpoint, into a learner that is like the one that was saved.
std::vector<CurveRow> resume(Learner& learner, const TrainSettings& settings);

/// What is learned: batch number `step`, from 0; and samples to measure by, which are never trained on.
struct TrainData {
  std::function<Batch(std::uint64_t step)> batch;
  Batch held_out;
};
struct HeldOut {
  double loss = 0, accuracy = 0;
  std::vector<std::int32_t> predicted;
};
struct Trained {
  std::vector<CurveRow> curve;
  HeldOut held_out;           ///< on all samples that were held out
  std::uint64_t steps = 0;    ///< of this run
  double seconds = 0;         ///< that they took
  std::uint64_t skipped = 0;  ///< of all, with a loss scale
  double loss_scale = 1;
  bool interrupted = false;
};
/// Trains to the last step, or until Ctrl-C; files are written now and then, and at the end. NotFinite, with the files
/// written as before the step that it names.
Trained train(Learner& learner, const TrainSettings& settings, const TrainOptions& options, const TrainData& data);

/// In scope: the device that --device names, else the one that would be chosen; and why.
class TrainDevice {
 public:
  explicit TrainDevice(const TrainOptions& options);
  const std::string& why() const { return why_; }

 private:
  std::string why_;
  DeviceScope scope_;
};

/// What is said at the end.
struct TrainReport {
  const TrainSettings& settings;
  const TrainOptions& options;
  const Trained& trained;
  std::int64_t parameters;
  std::string network;                                          ///< in words
  std::string why_device, held_out_of;                          ///< what the samples are that were held out
  std::string before = {};                                      ///< text in front of the lines
  std::vector<std::pair<std::string, std::string>> more = {};   ///< lines
  std::vector<std::pair<std::string, std::string>> files = {};  ///< beside those of TrainOptions, and what each is
  nlohmann::ordered_json json = {};                             ///< members beside those that all tasks have
};
/// Prints it: `before` and the lines "model", "trained", "held out", `more`, "device" and "written"; or all of it as
/// JSON. Gives the exit code.
int report(const TrainReport& report);

}  // namespace tessera::app
