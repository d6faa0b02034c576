// SPDX-License-Identifier: Apache-2.0
#include "train/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "arguments.h"
#include "clock.h"
#include "command.h"
#include "interrupts.h"
#include "terminal.h"
#include "tessera/base/os/atomic_file.h"
#include "tessera/base/printable.h"

namespace tessera::app {
namespace {

constexpr std::int64_t measured_at_once = 1000;
constexpr std::int64_t measured_now_and_then = 2000;  // number of held-out samples for regular evaluations
constexpr std::uint64_t rows_of_curve = 25;

/// Reads a setting from the metadata of a checkpoint.
template <class T>
T setting(const SafetensorsFile& file, const std::string& name) {
  const auto at = file.metadata().find(name);
  const std::string text = at == file.metadata().end() ? "" : at->second;
  T value{};
  if constexpr (std::is_same_v<T, std::string>) {
    value = text;
  } else {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size() || !(value >= 0))
      fail<FormatError>({.operation = "resume",
                         .with = {{"file", file.name()}, {name, "\"" + text + "\""}},
                         .wrong = "the file does not contain its training settings"});
  }
  return value;
}

/// Returns the setting `name` of the checkpoint. Throws if the option was given with a different value.
template <class T, class Given>
T agreed(const SafetensorsFile& file, const std::string& option, const std::string& name,
         const std::optional<Given>& given) {
  const T saved = setting<T>(file, name);
  if (given && static_cast<T>(*given) != saved)
    fail<ArgumentError>({.operation = "resume",
                         .with = {{"file", file.name()}, {"--" + option, fmt::format("{}", *given)}},
                         .wrong = fmt::format("the model was trained with --{} {}", option, saved),
                         .remedy = "Leave the option out, or start over without --resume"});
  return saved;
}

std::optional<DType> precision_named(const std::string& name) {
  for (const DType t : {DType::f32, DType::bf16, DType::f16})
    if (dtype_name(t) == name) return t;
  return std::nullopt;
}

HeldOut measure(const Learner& learner, const Batch& samples, std::int64_t count) {
  HeldOut out;
  double loss = 0;
  for (std::int64_t at = 0; at < count; at += measured_at_once) {
    const std::int64_t end = std::min(at + measured_at_once, count);
    const Array y = samples.y.slice(0, at, end);
    const Array logits = learner.predict(samples.x.slice(0, at, end)).eval();
    loss += cross_entropy(logits, y, {.reduction = Reduction::sum}).item<float>();
    const auto found = argmax(logits, 1).to_vector<std::int64_t>();
    const auto wanted = y.to_vector<std::int32_t>();
    for (std::size_t i = 0; i < found.size(); ++i) {
      out.predicted.push_back(static_cast<std::int32_t>(found[i]));
      out.accuracy += found[i] == wanted[i];
    }
  }
  out.accuracy /= static_cast<double>(count);
  out.loss = loss / static_cast<double>(count);
  return out;
}

std::string duration(double seconds) {
  if (seconds < 60) return fmt::format("{:.{}f} s", seconds, seconds < 10 ? 1 : 0);
  const long whole = std::lround(seconds);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
}

/// Writes the output files of a run. `write` is also called before the first step, so that an unwritable file is
/// reported early.
class Files {
 public:
  Files(Learner& learner, const TrainSettings& settings, const TrainOptions& options)
      : learner_(learner), settings_(settings), options_(options) {}
  void write(const std::vector<CurveRow>& curve, Learner::ExtraState more) const {
    if (!options_.out.empty()) {
      more.texts.insert({{"task", settings_.task},
                         {settings_.variant_name, settings_.variant},
                         {"last_step", std::to_string(settings_.steps)},
                         {"batch_size", std::to_string(settings_.batch)},
                         {"lr", fmt::format("{}", settings_.lr)},
                         {"curve", to_csv(curve)}});
      learner_.save(options_.out, std::move(more));
    }
    if (!is_first_rank()) return;
    if (!options_.csv.empty()) os::write_text(options_.csv, to_csv(curve));
    if (!options_.svg.empty())
      os::write_text(options_.svg, to_svg(curve, settings_.steps, "tessera train " + settings_.task));
  }

 private:
  Learner& learner_;
  const TrainSettings& settings_;
  const TrainOptions& options_;
};

std::vector<std::pair<std::string, std::string>> written(const TrainReport& r) {
  const TrainOptions& o = r.options;
  std::vector<std::pair<std::string, std::string>> out;
  if (!o.out.empty()) out.emplace_back(o.out, "the model, and the checkpoint for --resume");
  if (!o.csv.empty()) out.emplace_back(o.csv, "the learning curve as a table");
  if (!o.svg.empty()) out.emplace_back(o.svg, "the learning curve as an image");
  out.insert(out.end(), r.files.begin(), r.files.end());
  return out;
}

}  // namespace

std::string grouped(std::uint64_t number) {
  std::string text = std::to_string(number);
  for (std::size_t at = text.size(); at > 3;) text.insert(at -= 3, ",");
  return text;
}

void add_train_options(CLI::App& sub, TrainOptions& o, const TrainDefaults& defaults) {
  const auto or_else = [](const std::string& text, const auto& value) {
    return fmt::format("{} (default: {})", text, value);
  };
  sub.add_option("--device", o.device, "The device, as named by `tessera devices` (default: the one that it selects)")
      ->check(require_nonempty);
  CLI::Option* steps = sub.add_option("--steps", o.steps, or_else("Total number of steps", defaults.steps))
                           ->transform(integer_in_range(1, std::int64_t{1} << 40));
  if (defaults.epochs)
    sub.add_option("--epochs", o.epochs,
                   fmt::format("Total number of epochs of {} samples; no sample is used twice", grouped(epoch_samples)))
        ->transform(integer_in_range(1, std::int64_t{1} << 26))
        ->excludes(steps);
  sub.add_option("--batch", o.batch, or_else(defaults.batch_is, defaults.batch))
      ->transform(integer_in_range(1, std::int64_t{1} << 20));
  sub.add_option("--lr,--rate", o.lr, or_else("The highest learning rate", defaults.lr))
      ->transform(number(0, 1e3, true));
  sub.add_option("--precision", o.precision,
                 "Precision of the network: f32, or bf16 or f16 with f32 weights (default: f32)")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}));
  sub.add_option("--seed", o.seed, "Seed of the initial weights and of the samples (default: 1)")
      ->transform(seed_number());
  sub.add_option("--out", o.out, defaults.out_is)->check(require_nonempty);
  sub.add_option("--resume", o.resume, "Continue from a file written by --out, with its settings")
      ->check(require_nonempty);
  sub.add_option("--csv", o.csv, "Write the learning curve to this file as a table")->check(require_nonempty);
  sub.add_option("--svg", o.svg, "Write the learning curve to this file as an image")->check(require_nonempty);
  sub.add_flag("--json", o.json, "Print the results as one JSON object");
  sub.add_flag("-q,--quiet", o.quiet, "Show no progress");
}

TrainSettings settings_of(const char* task, const TrainOptions& o, const TrainDefaults& defaults) {
  const auto unsigned_of = [](std::int64_t n) { return static_cast<std::uint64_t>(n); };
  const auto steps_of = [&](std::uint64_t otherwise, std::uint64_t batch) {
    if (o.epochs) return (unsigned_of(*o.epochs) * epoch_samples + batch - 1) / batch;
    return o.steps ? unsigned_of(*o.steps) : otherwise;
  };
  if (o.resume.empty()) {
    const std::uint64_t batch = unsigned_of(o.batch.value_or(defaults.batch));
    return {.task = task,
            .variant_name = defaults.variant_name,
            .variant = o.variant.value_or(defaults.variant),
            .precision = o.precision.value_or("f32"),
            .steps = steps_of(unsigned_of(defaults.steps), batch),
            .batch = batch,
            .seed = o.seed.value_or(1),
            .lr = o.lr.value_or(defaults.lr),
            .file = {}};
  }
  SafetensorsFile file = SafetensorsFile::open(o.resume);
  if (const std::string is = setting<std::string>(file, "task"); is != task)
    fail<FormatError>({.operation = fmt::format("tessera train {}", task),
                       .with = {{"--resume", o.resume}},
                       .wrong = is.empty() ? "the file was not written by tessera train"
                                           : fmt::format("the file was written by tessera train {}", is)});
  TrainSettings s{.task = task,
                  .variant_name = defaults.variant_name,
                  .variant = agreed<std::string>(file, defaults.variant_name, defaults.variant_name, o.variant),
                  .precision = agreed<std::string>(file, "precision", "precision", o.precision),
                  .steps = setting<std::uint64_t>(file, "last_step"),
                  .batch = agreed<std::uint64_t>(file, "batch", "batch_size", o.batch),
                  .seed = agreed<std::uint64_t>(file, "seed", "seed", o.seed),
                  .lr = agreed<double>(file, "lr", "lr", o.lr),
                  .file = {}};
  if (s.steps == 0 || s.batch == 0 || s.batch > (1u << 20) || !std::isfinite(s.lr) || !precision_named(s.precision))
    fail<FormatError>({.operation = "resume",
                       .with = {{"file", o.resume}},
                       .wrong = "the file does not contain its training settings"});
  s.steps = steps_of(s.steps, s.batch);
  s.file = std::move(file);
  return s;
}

LearnerOptions learner_options(const TrainSettings& s) {
  return {.lr = s.lr, .steps = s.steps, .seed = s.seed, .precision = precision_named(s.precision).value()};
}

std::vector<CurveRow> resume(Learner& learner, const TrainSettings& s) {
  learner.load(s.file->name());
  if (learner.steps() > s.steps)
    fail<ArgumentError>({.operation = "resume",
                         .with = {{"file", s.file->name()}, {"--steps", std::to_string(s.steps)}},
                         .wrong = fmt::format("the checkpoint already has {} steps", learner.steps())});
  return curve_of(setting<std::string>(*s.file, "curve"), s.file->name());
}

Trained train(Learner& learner, const TrainSettings& s, const TrainOptions& o, const TrainData& data) {
  Trained out;
  Progress progress(o.quiet || !is_first_rank());
  const Files files(learner, s, o);
  const std::uint64_t interval = std::max<std::uint64_t>(1, s.steps / rows_of_curve);
  if (s.file) out.curve = resume(learner, s);
  const std::uint64_t first = learner.steps();
  std::uint64_t step = first;

  double last_rate = 0;
  const auto add_row = [&] {
    CurveRow row{.step = step, .samples = step * s.batch, .rate = last_rate};
    const std::uint64_t since = step - (out.curve.empty() ? 0 : out.curve.back().step);
    row.loss = since == 0 ? std::numeric_limits<double>::quiet_NaN()
                          : learner.losses().item<float>() / static_cast<double>(since);
    const HeldOut h = data.measure_some();
    row.held_out_loss = h.loss, row.held_out_accuracy = h.accuracy;
    learner.losses().fill(0);
    out.curve.push_back(row);
    data.on_row(row);
  };
  const auto write = [&] { files.write(out.curve, data.extra_state()); };
  double said = now(), loss = 0;
  const auto tell = [&](bool whole_line) {
    const double rate_now = static_cast<double>(step - first) / std::max(out.seconds, 1e-9);
    std::string text = fmt::format("step {} of {}  loss {:.4f}", step, s.steps, loss);
    if (const std::uint64_t skipped = learner.trainer().skipped()) text += fmt::format("  {} skipped", skipped);
    if (!out.curve.empty() && data.tells_loss)
      text += fmt::format("  held out {:.4f}", out.curve.back().held_out_loss);
    else if (!out.curve.empty())
      text += fmt::format("  held out {:.2f} %", 100 * out.curve.back().held_out_accuracy);
    text +=
        fmt::format("  {} {}s/s  {} left", grouped(static_cast<std::uint64_t>(rate_now * double(s.batch * data.parts))),
                    data.part, duration(static_cast<double>(s.steps - step) / rate_now));
    whole_line ? progress.step(text) : progress.update(text);
    said = now();
  };

  // All ranks stop after the same step: each sends its wish with its gradients.
  const auto stopping = [&] { return ranks() == nullptr ? stop_requested() : learner.trainer().flags().stop; };
  if (ranks() != nullptr) {  // a rank that ended at once would end the job with an error
    enable_graceful_stop();
    ranks()->barrier();
  }
  if (out.curve.empty()) add_row();  // a resumed run has a first row, even if it ended before its first step
  write();
  while (step < s.steps && !stopping()) {
    const double start = now();
    const float before = learner.losses().item<float>();
    // Synchronise every few steps, so that the host does not run far ahead of the device.
    const std::uint64_t until = std::min({step + 8, (step / interval + 1) * interval, s.steps});
    const std::uint64_t from = step;
    while (step < until && !stopping()) {
      last_rate = learner.trainer().rate();
      learner.trainer().set_flags({.stop = stop_requested()});
      learner.step(data.batch(step++), data.share), enable_graceful_stop();
    }
    if (step == from) break;  // Ctrl-C was pressed
    try {
      learner.trainer().check();
    } catch (const NotFinite&) {
      learner.losses().fill(before);  // the trainer has already restored all other state
      write();
      throw;
    }
    loss = (learner.losses().item<float>() - before) / static_cast<double>(step - from);
    out.seconds += now() - start;
    if (step % interval == 0 || step == s.steps) add_row(), write();
    if (now() - said > (progress.overwrites() ? 0.5 : 4)) tell(!progress.overwrites());
  }
  out.steps = step - first;
  out.interrupted = stopping();
  out.skipped = learner.trainer().skipped(), out.loss_scale = learner.trainer().loss_scale();
  if (out.interrupted) write();
  progress.update("measuring");
  if (is_first_rank()) out.held_out = data.measure_all(out.interrupted);
  return out;
}

TrainData classes_of(const Learner& learner, std::function<Batch(std::uint64_t step)> batch, const Batch& held_out) {
  const std::int64_t all = held_out.y.size();
  return {.batch = std::move(batch),
          .measure_some = [=, &learner] { return measure(learner, held_out, std::min(measured_now_and_then, all)); },
          .measure_all = [=, &learner](bool) { return measure(learner, held_out, all); }};
}

void Learner::save(const std::string& path, ExtraState more) {
  // fmt writes the shortest text that is parsed as the same value.
  more.texts["losses"] = fmt::format("{}", losses_.item<float>());
  if (const std::string text = layers(); !text.empty()) more.texts["tessera.layers"] = text;
  trainer().save(path, more.texts, more.arrays);
}
void Learner::load(const std::string& path) {
  trainer().load(path);
  losses_.fill(setting<float>(SafetensorsFile::open(path), "losses"));
}

TrainDevice::TrainDevice(const TrainOptions& o)
    : scope_([&] {
        if (o.device.empty()) {
          why_ = why_current_device(o.json ? Detail::full : Detail::brief);
          return current_device();
        }
        const DeviceInfo& info = device_info(parse_device(o.device));
        why_ = fmt::format("{} ({}): --device {}", to_string(info.device), info.name, o.device);
        return info.device;
      }()) {}

namespace {

void print_lines(const TrainReport& r) {
  const TrainSettings& s = r.settings;
  const Trained& t = r.trained;
  const Style style(output());
  const auto line = [&](std::string_view label, const std::string& text) {
    app::print("{:<9} {}\n", label, wrapped(text, 10, columns(output()), 10));
  };
  line("model", fmt::format("{}, {} parameters", r.network, grouped(static_cast<std::uint64_t>(r.parameters))));
  const std::uint64_t in_step = s.batch * r.parts;
  line("trained", t.steps == 0 ? "no steps: all steps were already done"
                               : fmt::format("{} of {} {}{} in {}, {} {}s/s{}", count_noun(t.steps, "step"),
                                             r.parts == 1 ? std::to_string(in_step) : grouped(in_step), r.part,
                                             in_step == 1 ? "" : "s", duration(t.seconds),
                                             grouped(static_cast<std::uint64_t>(double(t.steps * in_step) / t.seconds)),
                                             r.part, t.interrupted ? "; ended by a signal" : ""));
  if (s.precision != "f32")
    line("precision",
         fmt::format("{}, with f32 weights{}", s.precision,
                     t.loss_scale == 1 && t.skipped == 0
                         ? ""
                         : fmt::format("; loss scale {:g}, {} skipped", t.loss_scale, count_noun(t.skipped, "step"))));
  line("held out", !r.held_out.empty()
                       ? r.held_out
                       : fmt::format("{} of {} {} are correct, loss {:.4f}",
                                     style.strong(fmt::format("{:.2f} %", 100 * t.held_out.accuracy)),
                                     grouped(t.held_out.predicted.size()), r.held_out_of, t.held_out.loss));
  for (const auto& [label, text] : r.more) line(label, text);
  line("device", r.why_device);
  if (const dist::World* world = ranks()) {
    std::set<std::string> hosts;
    for (const dist::RankInfo& rank : world->ranks()) hosts.insert(rank.host);
    line("ranks", fmt::format("{} on {}, {}", world->size(), count_noun(hosts.size(), "machine"), world->name()));
  }
  for (const auto& [file, what] : written(r)) line("written", fmt::format("{}: {}", printable_line(file), what));
}

nlohmann::ordered_json as_json(const TrainReport& r) {
  using Json = nlohmann::ordered_json;
  const TrainSettings& s = r.settings;
  const Trained& t = r.trained;
  Json files = Json::array();
  for (const auto& [file, what] : written(r)) files.push_back(file);
  Json all = {
      {"task", s.task},
      {s.variant_name, s.variant},
      {"precision", s.precision},
      {"parameters", r.parameters},
      {"device", to_string(current_device())},
      {"why", r.why_device},
      {"steps", t.steps},
      {"batch", s.batch},
      {"lr", s.lr},
      {"seed", s.seed},
      {"seconds", t.seconds},
      {"samples_per_second", t.steps == 0 ? Json(nullptr) : Json(static_cast<double>(t.steps * s.batch) / t.seconds)},
      {"held_out",
       {{"samples", t.held_out.predicted.size()}, {"accuracy", t.held_out.accuracy}, {"loss", t.held_out.loss}}},
      {"loss_scale", t.loss_scale},
      {"skipped", t.skipped},
      {"files", files},
      {"ranks", ranks() == nullptr ? 1 : ranks()->size()},
      {"interrupted", t.interrupted}};
  if (!r.json.is_null()) all.update(r.json);
  return all;
}

}  // namespace

int report(const TrainReport& r) {
  if (r.options.json) {
    app::print("{}\n", as_json(r).dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    app::print("{}", r.before);
    print_lines(r);
  }
  return exit_code(r.trained);
}

int exit_code(const Trained& trained) { return trained.interrupted ? interrupt_code() : success; }

}  // namespace tessera::app
