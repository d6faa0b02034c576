// SPDX-License-Identifier: Apache-2.0
// Saving and loading of trainers.
#include <charconv>
#include <cstdlib>

#include "tessera/array/saved_arrays.h"
#include "tessera/nn/trainer_base.h"
#include "tessera/nn/trainer_file.h"

namespace tessera {

namespace {

using detail::is_trainer_file;
constexpr std::string_view extra_prefix = "beside.", optimiser_state = "optimiser.", gradient_sums = "summed.";

std::uint64_t number_in(const SafetensorsFile& file, const std::string& name) {
  const auto found = file.metadata().find(name);
  const std::string text = found == file.metadata().end() ? "" : found->second;
  std::uint64_t n = 0;
  const auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (text.empty() || wrong != std::errc() || end != text.data() + text.size())
    fail<FormatError>({.operation = "Trainer.load",
                       .with = {{"file", file.name()}, {"key", name}, {"value", text}},
                       .wrong = "the metadata entry is missing or is not a number"});
  return n;
}

/// Texts as one text: "KEY-LENGTH VALUE-LENGTH KEYVALUE" for each.
std::string encoded(const std::map<std::string, std::string>& texts) {
  std::string out;
  for (const auto& [key, value] : texts)
    out += std::to_string(key.size()) + " " + std::to_string(value.size()) + " " + key + value;
  return out;
}
std::map<std::string, std::string> decoded(const std::string& text) {
  std::map<std::string, std::string> out;
  for (std::size_t at = 0; at < text.size();) {
    const auto length = [&] {
      const std::size_t n = std::strtoull(text.c_str() + at, nullptr, 10);
      at = text.find(' ', at) + 1;
      return n;
    };
    const std::size_t key = length(), value = length();
    out[text.substr(at, key)] = text.substr(at + key, value);
    at += key + value;
  }
  return out;
}

}  // namespace

std::vector<std::pair<std::string, Array>> TrainerBase::kept() {
  std::vector<std::pair<std::string, Array>> all;
  for (const auto& [path, part] : parts_)
    if (!part->empty()) all.emplace_back(std::string(detail::trainer_model_prefix) + path, *part);
  optimiser_.for_each([&](Array& a, const Path& at) {
    if (a.size() != 0) all.emplace_back(std::string(optimiser_state) + at.text(), a);
  });
  for (auto& named : precision_.kept()) all.push_back(std::move(named));
  for (std::size_t i = 0; i < summed_.size(); ++i)
    all.emplace_back(std::string(gradient_sums) + std::to_string(i), summed_[i]);
  return all;
}

void TrainerBase::save(const std::string& path, const std::map<std::string, std::string>& more,
                       const std::vector<std::pair<std::string, Array>>& extra) {
  check();
  std::map<std::string, std::string> texts = more;
  const DataPosition at = position();
  texts["kind"] = detail::trainer_kind;
  texts["steps"] = std::to_string(steps_);
  texts["epoch"] = std::to_string(at.epoch), texts["batch"] = std::to_string(at.batch);
  texts["seed"] = std::to_string(options_.seed), texts["accumulate"] = std::to_string(accumulate_);
  texts["precision"] = dtype_name(options_.precision.dtype);
  std::vector<std::pair<std::string, Array>> all = kept();
  for (const auto& [name, array] : extra) all.emplace_back(std::string(extra_prefix) + name, array);
  if (ranks_ == nullptr) return save_safetensors(path, all, texts);
  // Gradients that wait for an update are those of one rank's samples. The file contains those of all.
  std::vector<Array> sums;
  for (auto& [name, array] : all)
    if (name.starts_with(gradient_sums)) sums.push_back(array = array.copy());
  if (!sums.empty() && steps_ % accumulate_ != 0) ranks_->sum(sums);
  detail::run_on_all(ranks_, [&] {
    if (ranks_->first()) save_safetensors(path, all, texts);
  });
}

std::map<std::string, std::string> TrainerBase::load(const std::string& path) {
  if (ranks_ == nullptr) return load_file(path);
  std::map<std::string, std::string> texts;
  detail::run_on_all(ranks_, [&] { texts = load_file(path); });
  // The files of several machines may differ: the first rank's counts.
  texts = decoded(ranks_->broadcast(encoded(texts)));
  share(kept(), "the checkpoint");
  take_numbers(texts);
  if (!ranks_->first())
    for (const Array& sum : summed_) Array(sum).fill(0);
  return texts;
}

std::map<std::string, std::string> TrainerBase::load_file(const std::string& path) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  if (!is_trainer_file(file))
    fail<FormatError>({.operation = "Trainer.load",
                       .with = {{"file", path}},
                       .wrong = "the file was not written by Trainer::save",
                       .remedy = "Use load_model to read only the parameters of a model"});
  for (const char* name : {"steps", "epoch", "batch"}) static_cast<void>(number_in(file, name));
  detail::ArrayLoader loader(file);
  const auto compare = [&](const char* name, std::uint64_t here) {
    const std::uint64_t there = number_in(file, name);
    if (there != here)
      loader.refuse(std::string(name) + " is " + std::to_string(there) + " in the file and " + std::to_string(here) +
                    " here");
  };
  compare("seed", options_.seed);
  compare("accumulate", accumulate_);
  const auto precision = file.metadata().find("precision");
  const std::string there = precision == file.metadata().end() ? "f32" : precision->second;
  if (const std::string here(dtype_name(options_.precision.dtype)); there != here)
    loader.refuse("precision is " + there + " in the file and " + here + " here");
  for (const auto& [name, array] : kept())
    loader.look(array, Path(name),
                name.starts_with(optimiser_state) && Optimiser::optional_array(name.substr(optimiser_state.size())));
  loader.ignore_prefix(extra_prefix);
  loader.load({});
  take_numbers(file.metadata());
  const DeviceScope scope(device_);
  first_nonfinite_.fill(0);
  if (sum_.rank() == 0) sum_.fill(0);
  if (precision_.scales()) left_out_.fill(0);
  precision_.refresh();
  summed_from_ = steps_;
  drop_recordings();  // the loaded step may differ from the recorded one
  return file.metadata();
}

/// Sets the counters to those of a file whose arrays were loaded.
void TrainerBase::take_numbers(const std::map<std::string, std::string>& texts) {
  const auto number = [&](const char* name) { return std::strtoull(texts.at(name).c_str(), nullptr, 10); };
  steps_ = number("steps"), position_ = {number("epoch"), number("batch")};
  position_at_ = summed_from_ = steps_;
  updates_before_ = optimiser_->steps() - steps_ / accumulate_;
}

}  // namespace tessera
