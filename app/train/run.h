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
/// What counts if nothing is said, and how options are told of that differ between tasks.
struct TrainDefaults {
  std::int64_t steps, batch;
  double lr;
  std::string variant_name, variant;  ///< "model", of --model
  bool epochs = true;                 ///< there is an option --epochs
  std::string batch_is = "Samples in a step, each of them new";
  std::string out_is = "Write the model, and what is needed to go on, to this file (safetensors)";
};
/// 12345678 as 12,345,678.
std::string grouped(std::uint64_t number);
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

struct HeldOut {
  double loss = 0, accuracy = 0;
  std::vector<std::int32_t> predicted;
};
/// What is learned: batch number `step`, from 0; and how it is measured, on samples that are never trained on.
struct TrainData {
  std::function<Batch(std::uint64_t step)> batch;
  std::function<HeldOut()> measure_some;  ///< now and then, for the curve
  std::function<HeldOut()> measure_all;   ///< at the end
  std::uint64_t parts = 1;                ///< of a sample, by which speed is told: tokens
  std::string part = "sample";
  bool tells_loss = false;  ///< progress tells the loss of what is held out, not what share is right
  /// Called with each row of the curve, before files are written.
  std::function<void(const CurveRow& row)> on_row = [](const CurveRow&) {};
  /// What is kept in the file of --out beside the learner.
  std::function<Learner::ExtraState()> extra_state = [] { return Learner::ExtraState(); };
};
/// Of classes: measured on the first 2,000 of the samples held out, and on all.
TrainData classes_of(const Learner& learner, std::function<Batch(std::uint64_t step)> batch, const Batch& held_out);
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
  std::string network;                  ///< in words
  std::string why_device, held_out_of;  ///< what the samples are that were held out
  std::uint64_t parts = 1;              ///< as those of TrainData
  std::string part = "sample";
  std::string held_out = {};                                    ///< the line about it; empty: what share is right
  std::string before = {};                                      ///< text in front of the lines
  std::vector<std::pair<std::string, std::string>> more = {};   ///< lines
  std::vector<std::pair<std::string, std::string>> files = {};  ///< beside those of TrainOptions, and what each is
  nlohmann::ordered_json json = {};                             ///< members beside those that all tasks have
};
/// Prints it: `before` and the lines "model", "trained", "held out", `more`, "device" and "written"; or all of it as
/// JSON. Gives the exit code.
int report(const TrainReport& report);

}  // namespace tessera::app
