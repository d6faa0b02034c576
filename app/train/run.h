// SPDX-License-Identifier: Apache-2.0
// Code that the tasks of `tessera train` have in common: options, the training loop, checkpoints and reports.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>

#include "tessera/array/safetensors.h"
#include "train/curve.h"
#include "train/learner.h"

namespace tessera::app {

/// Command-line options. Options that are std::optional are also stored in checkpoints; when a run is resumed, most of
/// them must have the stored value.
struct TrainOptions {
  std::string device, out, resume, csv, svg;
  std::optional<std::int64_t> steps, epochs, batch;
  std::optional<double> lr;
  std::optional<std::uint64_t> seed;
  std::optional<std::string> precision;
  std::optional<std::string> variant;  ///< its meaning depends on the task: type of the network, number of arms, ...
  bool json = false, quiet = false;
};
/// Defaults and help texts that differ between tasks.
struct TrainDefaults {
  std::int64_t steps, batch;
  double lr;
  std::string variant_name, variant;  ///< name of the option without dashes, such as "model", and its default
  bool epochs = true;                 ///< true if there is an option --epochs
  std::string batch_is = "Samples per step; no sample is used twice";
  std::string out_is = "Write the model and the checkpoint for --resume to this file (safetensors)";
};
/// Formats 12345678 as 12,345,678.
std::string grouped(std::uint64_t number);
void add_train_options(CLI::App& sub, TrainOptions& options, const TrainDefaults& defaults);

/// The settings of a run, from the options, the checkpoint or the defaults.
struct TrainSettings {
  std::string task, variant_name, variant, precision;
  std::uint64_t steps = 0, batch = 0, seed = 0;
  double lr = 0;
  std::optional<SafetensorsFile> file;  ///< the checkpoint to resume from
};
/// Samples per epoch. Every sample is used only once, so an epoch is only a unit of length.
inline constexpr std::uint64_t epoch_samples = 10'000;
/// Returns the learner's options for these settings.
LearnerOptions learner_options(const TrainSettings& settings);
/// Returns the settings and, with --resume, opens the checkpoint. Throws FormatError if the file is not a checkpoint of
/// this task, and ArgumentError if an option differs from the checkpoint's settings.
TrainSettings settings_of(const char* task, const TrainOptions& options, const TrainDefaults& defaults);
/// Loads the checkpoint into a learner of the same type. Returns the learning curve so far.
std::vector<CurveRow> resume(Learner& learner, const TrainSettings& settings);

struct HeldOut {
  double loss = 0, accuracy = 0;
  std::vector<std::int32_t> predicted;
};
/// The training data, and functions that evaluate the model on held-out samples.
struct TrainData {
  std::function<Batch(std::uint64_t step)> batch;  ///< returns the batch of a step; steps are numbered from 0
  std::optional<double> share = {};                ///< set if `batch` returns only this rank's samples: their fraction
  std::function<HeldOut()> measure_some;           ///< called regularly, for the learning curve
  std::function<HeldOut(bool interrupted)> measure_all;  ///< called at the end, also after Ctrl-C
  std::uint64_t parts = 1;  ///< number of parts per sample, such as tokens; the speed is reported in parts per second
  std::string part = "sample";
  bool tells_loss = false;  ///< if true, progress shows the held-out loss instead of the accuracy
  /// Called with each row of the curve, before files are written.
  std::function<void(const CurveRow& row)> on_row = [](const CurveRow&) {};
  /// Additional contents of the checkpoint.
  std::function<Learner::ExtraState()> extra_state = [] { return Learner::ExtraState(); };
};
/// Returns the training data for a classifier. It is regularly evaluated on the first 2,000 held-out samples, and at
/// the end on all of them.
TrainData classes_of(const Learner& learner, std::function<Batch(std::uint64_t step)> batch, const Batch& held_out);
struct Trained {
  std::vector<CurveRow> curve;
  HeldOut held_out;           ///< result of the final evaluation
  std::uint64_t steps = 0;    ///< number of steps in this run
  double seconds = 0;         ///< duration of these steps
  std::uint64_t skipped = 0;  ///< total number of steps that loss scaling has skipped
  double loss_scale = 1;
  bool interrupted = false;
};
/// Trains until the last step or Ctrl-C. Output files are written regularly and at the end. Throws NotFinite if a loss
/// is not finite; the files then contain the state before that step.
Trained train(Learner& learner, const TrainSettings& settings, const TrainOptions& options, const TrainData& data);

/// Makes the device of --device, or the default device, the current device as long as the object exists. Also stores
/// the reason for the choice.
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
  std::string network;                  ///< description of the network
  std::string why_device, held_out_of;  ///< reason for the device, and description of the held-out samples
  std::uint64_t parts = 1;              ///< same as in TrainData
  std::string part = "sample";
  std::string held_out = {};                                   ///< text of the line "held out"; default: the accuracy
  std::string before = {};                                     ///< text to print before the lines
  std::vector<std::pair<std::string, std::string>> more = {};  ///< additional lines: label and text
  /// Additional output files with descriptions. The files of TrainOptions are always listed.
  std::vector<std::pair<std::string, std::string>> files = {};
  nlohmann::ordered_json json = {};  ///< additional members of the JSON output
};
/// Returns the exit code: success, or 128 + the signal that ended the training.
int exit_code(const Trained& trained);
/// Prints the final report, either as text or as JSON. Returns the exit code.
int report(const TrainReport& report);

}  // namespace tessera::app
