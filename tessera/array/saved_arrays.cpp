// SPDX-License-Identifier: Apache-2.0
#include "tessera/array/saved_arrays.h"

#include <fmt/format.h>

#include <functional>
#include <map>
#include <set>
#include <utility>

#include "tessera/array/host_bytes.h"
#include "tessera/array/safetensors_header.h"

namespace tessera {

namespace {
/// Lists the arrays that were not loaded: "missing: a, b; unexpected: c; ...".
std::string not_loaded(const LoadReport& report) {
  std::string text;
  const auto list = [&](const char* what, const std::vector<std::string>& names) {
    if (!names.empty()) text += fmt::format("{}{}{}", text.empty() ? "" : "; ", what, fmt::join(names, ", "));
  };
  list("missing: ", report.missing);
  list("unexpected: ", report.unexpected);
  list("", report.mismatched);
  return text;
}
}  // namespace

std::string to_string(const LoadReport& report) {
  const std::string wrong = not_loaded(report);
  return fmt::format("{} loaded{}{}", report.loaded.size(), wrong.empty() ? "" : "; ", wrong);
}

namespace detail {

namespace {
bool overlaps_itself(const Array& a) {
  for (std::size_t d = 0; d < a.shape().size(); ++d)
    if (a.strides()[d] == 0 && a.shape()[d] > 1) return true;
  return false;
}
}  // namespace

struct ArrayLoader::State {
  struct Target {
    const SafetensorsTensor* tensor;
    Array array;
    std::string name;
    std::string other_dtype = {};  // the mismatch to report unless the array is converted; empty if the dtypes match
  };
  const SafetensorsFile& file;
  const std::string prefix;
  const std::map<std::string, std::string> file_names;
  std::vector<Target> targets = {};
  std::set<std::string, std::less<>> names = {};
  LoadReport report = {};
};

ArrayLoader::ArrayLoader(const SafetensorsFile& file, std::string_view prefix, std::map<std::string, std::string> names)
    : state_(new State{.file = file, .prefix = std::string(prefix), .file_names = std::move(names)}) {}
ArrayLoader::~ArrayLoader() = default;
void ArrayLoader::refuse(std::string mismatch) { state_->report.mismatched.push_back(std::move(mismatch)); }

ArraySaver::ArraySaver() = default;
ArraySaver::~ArraySaver() = default;
void ArraySaver::add(const Array& a, const Path& at) { all_.emplace_back(at.text(), a); }
void ArraySaver::save(const std::string& path, const std::map<std::string, std::string>& metadata) const {
  save_safetensors(path, all_, metadata);
}

void ArrayLoader::look(const Array& a, const Path& at, bool optional) {
  std::string name = at.text();
  const auto other = state_->file_names.find(name);
  const std::string& there = other == state_->file_names.end() ? name : other->second;
  state_->names.insert(there);
  const SafetensorsTensor* t = state_->file.find(state_->prefix + there);
  if (t == nullptr) {
    if (!optional) state_->report.missing.push_back(std::move(name));
    return;
  }
  std::string differs = fmt::format("{} is {} {} in the file and {} {} here", name, to_string(t->shape), t->dtype_name,
                                    to_string(a.shape()), safetensors_name(a.dtype()));
  const bool convertible = t->dtype && is_float(*t->dtype) && is_float(a.dtype());
  if (t->shape != a.shape() || (t->dtype != a.dtype() && !convertible))
    state_->report.mismatched.push_back(std::move(differs));
  else if (overlaps_itself(a))
    state_->report.mismatched.push_back(name + " is a broadcast array here, which cannot be written");
  else
    state_->targets.push_back({t, a, std::move(name), t->dtype == a.dtype() ? "" : std::move(differs)});
}

void ArrayLoader::ignore_prefix(std::string_view names) {
  for (const SafetensorsTensor& t : state_->file.tensors())
    if (t.name.starts_with(state_->prefix) && std::string_view(t.name).substr(state_->prefix.size()).starts_with(names))
      state_->names.insert(t.name.substr(state_->prefix.size()));
}

LoadReport ArrayLoader::load(LoadArraysOptions options) {
  for (const SafetensorsTensor& t : state_->file.tensors())
    if (t.name.starts_with(state_->prefix) && !state_->names.contains(t.name.substr(state_->prefix.size())))
      state_->report.unexpected.push_back(t.name);
  bool of_other_dtype = false;
  std::erase_if(state_->targets, [&](State::Target& t) {
    const bool refused = !t.other_dtype.empty() && !options.convert;
    if (refused)
      state_->report.mismatched.push_back(std::move(t.other_dtype)), of_other_dtype = true;
    else if (state_->report.loaded.push_back(t.name); !t.other_dtype.empty())
      state_->report.converted.push_back(t.name);
    return refused;
  });
  const std::string wrong = not_loaded(state_->report);
  if (!wrong.empty() && !options.partial)
    fail<ArgumentError>({.operation = "load_arrays",
                         .with = {{"file", state_->file.name()}},
                         .wrong = "the arrays of the file do not match the structure: " + wrong,
                         .remedy = of_other_dtype
                                       ? "Load arrays of another dtype with .convert = true, or use the file that was "
                                         "saved from such a structure"
                                       : "Use the file that was saved from such a structure, or load what matches with "
                                         ".partial"});

  // All steps that can fail come before the first write: reading the file, and allocating memory for non-contiguous
  // arrays.
  struct Write {
    Array to;
    BufferView memory;
    std::vector<std::byte> bytes;
    std::optional<Array> value;  ///< used instead of `memory` and `bytes` for non-contiguous arrays
  };
  std::vector<Write> writes;
  for (const auto& [tensor, array, name, other_dtype] : state_->targets) {
    if (array.size() == 0) continue;
    Write& w = writes.emplace_back(Write{.to = array, .bytes = state_->file.data(*tensor)});
    if (array.contiguous() && other_dtype.empty()) {
      normalize_bools(w.bytes, array.dtype());
      w.memory = array.view_for_writing();
    } else {
      w.value = array_of_bytes(w.bytes, *tensor->dtype, array.shape(), array.device()).astype(array.dtype()).eval();
      w.bytes = {};
    }
  }
  for (Write& w : writes) {
    if (w.value)
      w.to.assign(*w.value);
    else
      current_queue(w.to.device()).upload(w.memory, w.bytes.data());
  }
  return std::move(state_->report);
}

}  // namespace detail

}  // namespace tessera
