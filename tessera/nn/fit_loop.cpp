// SPDX-License-Identifier: Apache-2.0
#include "tessera/nn/fit_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tessera/array/saved_arrays.h"
#include "tessera/base/os/atomic_file.h"
#include "tessera/base/os/terminal.h"
#include "tessera/base/printable.h"

namespace tessera {

Callback<void(const FitProgress&)> progress_on_terminal() {
  if (!os::is_terminal(stderr)) return {};
  return [](const FitProgress& p) {
    std::fputs(("\r\x1b[K" + to_string(p) + (p.over ? "\n" : "")).c_str(), stderr);
    std::fflush(stderr);
  };
}

std::string to_string(const FitProgress& p) {
  std::string line =
      fmt::format("epoch {}{}  step {}{}  loss {:.4g}", p.epoch, p.last_epoch ? fmt::format("/{}", p.last_epoch) : "",
                  p.step, p.last_step ? fmt::format("/{}", p.last_step) : "", p.loss);
  for (const auto& [name, value] : p.figures) line += fmt::format("  {} {:.4g}", name, value);
  if (p.skipped != 0) line += fmt::format("  {} skipped", p.skipped);
  return line + fmt::format("  {:.0f} s", p.seconds);
}

std::string to_string(const FitResult& r) {
  std::string line = fmt::format("{} after {}, {}, {:.3g} s; loss {:.4g}", to_string(r.end),
                                 count_noun(r.epochs, "epoch"), count_noun(r.steps, "step"), r.seconds, r.loss);
  for (const auto& [name, value] : r.figures) line += fmt::format(", {} {:.4g}", name, value);
  if (r.skipped != 0) line += fmt::format("; {} skipped", count_noun(r.skipped, "update"));
  return line;
}

namespace detail {

namespace {
constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
double clock_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
}  // namespace

FitLoop::FitLoop(TrainerBase& trainer, FitSettings settings)
    : trainer_(trainer),
      settings_(std::move(settings)),
      begun_(clock_seconds()),
      looked_(begun_),
      loss_(unknown),
      row_loss_(unknown) {
  const FitSettings& s = settings_;
  trainer_.set_flags({});
  if (s.epochs == 0 && s.steps == 0)
    fail<ArgumentError>(
        {.operation = "fit", .wrong = "the number of epochs or steps is missing", .remedy = "Set .epochs or .steps"});
  if (s.early_stopping && !s.validate)
    fail<ArgumentError>(
        {.operation = "fit", .wrong = "early stopping needs a validation function", .remedy = "Set .validation"});
  if (s.resume && s.checkpoint.empty())
    fail<ArgumentError>({.operation = "fit", .wrong = "resume needs a checkpoint file", .remedy = "Set .checkpoint"});
  if (s.resume && on_any_rank(first_rank() && std::filesystem::exists(s.checkpoint))) resume();
  summed_at_ = saved_at_ = trainer_.steps();
  detail::run_on_all(trainer_.ranks(), [&] {
    if (!s.csv.empty() && first_rank()) open_csv();
  });
}

bool FitLoop::first_rank() const { return trainer_.ranks() == nullptr || trainer_.ranks()->first(); }

/// Returns whether the value is true on any rank. All ranks must call it.
bool FitLoop::on_any_rank(bool here) const {
  if (trainer_.ranks() == nullptr) return here;
  const std::vector<std::uint64_t> all = trainer_.ranks()->gather(here ? 1 : 0);
  return std::ranges::find(all, 1u) != all.end();
}

bool FitLoop::more() const {
  const FitSettings& s = settings_;
  if (end_ == FitResult::End::early) return false;
  return (s.steps == 0 || trainer_.steps() < s.steps) && (s.epochs == 0 || trainer_.position().epoch < s.epochs);
}

FitProgress FitLoop::progress() {
  trainer_.check();
  const std::uint64_t steps = trainer_.steps();
  if (steps != summed_at_) {
    const auto n = static_cast<double>(steps - summed_at_);
    loss_ = trainer_.mean_loss();
    row_sum_ += loss_ * n, row_steps_ += n;
    summed_at_ = steps;
  }
  return {.step = steps,
          .last_step = settings_.steps,
          .epoch = trainer_.position().epoch,
          .last_epoch = settings_.epochs,
          .loss = loss_,
          .rate = trainer_.rate(),
          .skipped = trainer_.skipped(),
          .figures = figures_,
          .seconds = seconds()};
}

double FitLoop::seconds() const { return clock_seconds() - begun_; }

bool FitLoop::after_step() {
  const FitSettings& s = settings_;
  const auto due = [&](std::uint64_t every) { return every != 0 && trainer_.steps() % every == 0; };
  // With several ranks, all of them report and stop after the same step. Requests are exchanged in the next step, and
  // only the first rank's clock counts.
  const bool ranks = trainer_.ranks() != nullptr;
  StepFlags wanted{.report = clock_seconds() - looked_ > 0.5};
  if (ranks ? trainer_.flags().report : wanted.report) {
    looked_ = clock_seconds();
    wanted.report = false;
    const FitProgress p = progress();
    if (s.callbacks.progress && first_rank()) s.callbacks.progress(p);
  }
  if (due(s.validate_every) && !validate()) return false;
  if (due(s.csv_every) || due(s.validate_every)) add_row();
  if (due(s.checkpoint_every) && !s.checkpoint.empty()) save();
  wanted.stop = s.callbacks.step && !s.callbacks.step(trainer_.steps());
  trainer_.set_flags(wanted);
  if (ranks ? trainer_.flags().stop : wanted.stop) {
    end_ = FitResult::End::stopped;
    return false;
  }
  return s.steps == 0 || trainer_.steps() < s.steps;
}

bool FitLoop::end_epoch() {
  const FitSettings& s = settings_;
  trainer_.set_position({trainer_.position().epoch + 1, 0});
  const bool on = validate();
  add_row();
  if (!s.checkpoint.empty()) save();
  if (on_any_rank(s.callbacks.epoch && !s.callbacks.epoch(progress()))) {
    end_ = FitResult::End::stopped;
    return false;
  }
  return on;
}

/// Formats one figure per line.
std::string text_of(const Figures& figures) {
  std::string out;
  for (const auto& [name, value] : figures) out += fmt::format("{} {}\n", value, name);
  return out;
}
Figures figures_of(const std::string& text) {
  Figures out;
  std::istringstream lines(text);
  for (std::string value, name; lines >> value && std::getline(lines.ignore(), name);)
    out.emplace_back(name, std::strtod(value.c_str(), nullptr));
  return out;
}

bool FitLoop::validate() {
  if (!settings_.validate || validated_at_ == trainer_.steps()) return true;
  trainer_.check();
  validated_at_ = trainer_.steps();
  trainer_.share_state();
  figures_ = settings_.validate();
  if (Exchange* const ranks = trainer_.ranks()) figures_ = figures_of(ranks->broadcast(text_of(figures_)));
  fresh_figures_ = true;
  if (!settings_.early_stopping) return true;
  const EarlyStopping& e = *settings_.early_stopping;
  const double value = figure(figures_, e.figure);
  const double gain = e.greatest ? value - best_ : best_ - value;
  if (best_figures_.empty() || gain > e.min_delta || (std::isnan(best_) && !std::isnan(value))) {
    best_ = value, best_figures_ = figures_, waited_ = 0;
    best_model_ = trainer_.snapshot();
    return true;
  }
  ++waited_;
  if (!waited_long_enough()) return true;
  end_ = FitResult::End::early;
  return false;
}

bool FitLoop::waited_long_enough() const { return waited_ > 0 && waited_ >= settings_.early_stopping->patience; }

// Saves the results of the last validation, so that a resumed run does not repeat it. For early stopping, also saves
// the best figures, the number of validations since then, and the best model.

void FitLoop::save() {
  progress();  // adds the losses so far to the current row
  std::map<std::string, std::string> texts = {{"row_loss", fmt::format("{}", row_sum_)},
                                              {"row_steps", fmt::format("{}", row_steps_)}};
  std::vector<std::pair<std::string, Array>> best;
  if (validated_at_) texts["validated"] = std::to_string(*validated_at_), texts["figures"] = text_of(figures_);
  if (!best_figures_.empty()) {
    texts["waited"] = std::to_string(waited_);
    texts["best"] = text_of(best_figures_);
    for (std::size_t i = 0; i < best_model_.size(); ++i)
      if (best_model_[i].size() > 0) best.emplace_back(std::to_string(i), best_model_[i]);
  }
  trainer_.save(settings_.checkpoint, texts, best);
  saved_at_ = trainer_.steps();
}

void FitLoop::resume() {
  const auto texts = trainer_.load(settings_.checkpoint);
  const auto row_loss = texts.find("row_loss"), row_steps = texts.find("row_steps");
  if (row_loss != texts.end() && row_steps != texts.end()) {
    row_sum_ = std::strtod(row_loss->second.c_str(), nullptr);
    row_steps_ = std::strtod(row_steps->second.c_str(), nullptr);
  }
  const auto validated = texts.find("validated"), figures = texts.find("figures");
  if (settings_.validate && validated != texts.end() && figures != texts.end()) {
    validated_at_ = std::strtoull(validated->second.c_str(), nullptr, 10);
    figures_ = figures_of(figures->second);
  }
  const auto best = texts.find("best"), waited = texts.find("waited");
  if (!settings_.early_stopping || best == texts.end() || waited == texts.end()) return;
  best_figures_ = figures_of(best->second);
  best_ = figure(best_figures_, settings_.early_stopping->figure);
  waited_ = std::strtoull(waited->second.c_str(), nullptr, 10);
  best_model_ = trainer_.snapshot();
  detail::run_on_all(trainer_.ranks(), [&] {
    const SafetensorsFile file = SafetensorsFile::open(settings_.checkpoint);
    ArrayLoader loader(file, "beside.");
    for (std::size_t i = 0; i < best_model_.size(); ++i)
      if (best_model_[i].size() > 0) loader.look(best_model_[i], Path(std::to_string(i)));
    loader.load({});
  });
  if (trainer_.ranks() != nullptr) trainer_.ranks()->broadcast(best_model_, "the best model");
  if (waited_long_enough()) end_ = FitResult::End::early;
}

FitResult FitLoop::finish() {
  const FitProgress last = progress();
  trainer_.compare_ranks();
  trainer_.share_state();
  if (row_steps_ > 0) add_row();
  write_rows(true);
  if (!settings_.checkpoint.empty() &&
      on_any_rank(saved_at_ != trainer_.steps() || (first_rank() && !std::filesystem::exists(settings_.checkpoint))))
    save();
  if (!best_model_.empty()) {  // after saving the checkpoint, because a resumed run continues with the last model
    trainer_.restore(best_model_);
    figures_ = best_figures_;
  }
  if (settings_.callbacks.progress && first_rank()) {
    FitProgress p = last;
    p.figures = figures_, p.over = true;
    settings_.callbacks.progress(p);
  }
  return {.end = end_,
          .steps = trainer_.steps(),
          .epochs = trainer_.position().epoch,
          .skipped = trainer_.skipped(),
          .loss = loss_,
          .figures = figures_,
          .seconds = seconds()};
}

// The header contains the names of the figures. They are only known after the first validation, so earlier rows are
// written together with that row.

void FitLoop::add_row() {
  if (settings_.csv.empty()) return;
  const FitProgress p = progress();  // on all ranks, because it calls check()
  if (row_steps_ == 0 && !fresh_figures_) return;
  if (row_steps_ > 0) row_loss_ = row_sum_ / row_steps_;
  rows_.push_back({p.step, p.epoch, row_loss_, p.rate, fresh_figures_ ? figures_ : Figures(), p.seconds});
  row_sum_ = row_steps_ = 0, fresh_figures_ = false;
  write_rows(!settings_.validate || !figures_.empty());
}

void FitLoop::write_rows(bool names_known) {
  if (!names_known || rows_.empty()) return;
  std::string text;
  if (!has_header_) {
    text = "step,epoch,loss,rate";
    for (const auto& [name, value] : figures_) text += ",validation_" + name;
    text += ",seconds\n";
    has_header_ = true;
  }
  for (const Row& r : rows_) {
    text += fmt::format("{},{},{:.6g},{:.6g}", r.step, r.epoch, r.loss, r.rate);
    for (std::size_t i = 0; i < figures_.size(); ++i)
      text += r.figures.empty() ? "," : fmt::format(",{:.6g}", r.figures[i].second);
    text += fmt::format(",{:.3f}\n", r.seconds);
  }
  rows_.clear();
  if (csv_) csv_->append(text);
}

void FitLoop::open_csv() {
  // Removes rows of steps after the checkpoint, because these steps run again.
  std::string kept, line;
  if (trainer_.steps() > 0)
    for (std::ifstream before(settings_.csv); std::getline(before, line);)
      if (!before.eof() && (kept.empty() || std::strtoull(line.c_str(), nullptr, 10) <= trainer_.steps()))
        kept += line + "\n";  // a line without newline was cut off when the program was killed
  csv_ = std::make_shared<os::AppendFile>(settings_.csv, kept);
  has_header_ = !kept.empty();
}

}  // namespace detail

}  // namespace tessera
