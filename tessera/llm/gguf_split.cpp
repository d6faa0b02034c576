// SPDX-License-Identifier: Apache-2.0
// Models that llama.cpp's gguf-split has split into several files. NAME-00001-of-00003.gguf contains the metadata, and
// each file contains some of the tensors. The keys split.no (from 0), split.count and split.tensors.count describe the
// parts.
#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/llm/gguf.h"
#include "tessera/llm/gguf_contents.h"
#include "tessera/llm/gguf_values.h"

namespace tessera {
namespace {

constexpr std::string_view asked = "read GGUF";
constexpr std::uint64_t max_parts = 99999;  // names have five digits

std::string suffix(std::uint64_t number, std::uint64_t count) {
  return fmt::format("-{:05}-of-{:05}.gguf", number, count);
}

}  // namespace

void GgufFile::check_split(bool in_memory) const {
  const auto count = get_or<std::uint64_t>("split.count", 0), number = get_or<std::uint64_t>("split.no", 0);
  if (count < 2) return;
  const auto refuse = [&](std::string wrong, std::string remedy = {}) {
    fail<FormatError>({.operation = asked,
                       .with = {{"file", contents_->name},
                                {"split.no", std::to_string(number)},
                                {"split.count", std::to_string(count)}},
                       .wrong = std::move(wrong),
                       .remedy = std::move(remedy)});
  };
  if (number >= count || count > max_parts) refuse("the part numbers are invalid", "The file is damaged");
  const std::string end = suffix(number + 1, count);
  const bool named = contents_->name.ends_with(end);
  if (number != 0)
    refuse(fmt::format("this is part {} of {} of a model", number + 1, count),
           "Open part 1, with the other parts in the same folder" +
               (named ? ": " + contents_->name.substr(0, contents_->name.size() - end.size()) + suffix(1, count) : ""));
  if (in_memory) refuse("this is part 1 of a split model; it must be opened as a file");
  if (!named)
    refuse("this is part 1 of a split model, but its name does not end in " + end +
               ", which is needed to find the other parts",
           "Restore the files' original names");
}

void GgufFile::join_parts() {
  const auto count = get_or<std::uint64_t>("split.count", 0);
  if (count < 2) return;
  const std::string stem = contents_->name.substr(0, contents_->name.size() - suffix(1, count).size());
  std::string missing;
  std::uint64_t how_many = 0;
  for (std::uint64_t number = 2; number <= count; ++number) {
    const std::string other = stem + suffix(number, count);
    std::error_code ignored;
    if (std::filesystem::exists(other, ignored)) continue;
    if (++how_many <= 4) missing += (missing.empty() ? "" : ", ") + std::filesystem::path(other).filename().string();
  }
  if (how_many > 4) missing += fmt::format(" and {} more", how_many - 4);
  if (how_many != 0)
    fail<FormatError>({.operation = asked,
                       .with = {{"file", contents_->name}},
                       .wrong = fmt::format("the model has {} parts, and {} missing: {}", count,
                                            how_many == 1 ? "one is" : fmt::format("{} are", how_many), missing),
                       .remedy = "Put all parts in the same folder"});
  for (std::uint64_t number = 2; number <= count; ++number) {
    GgufFile part = open_one(stem + suffix(number, count));
    const auto refuse = [&](std::string wrong) {
      fail<FormatError>({.operation = asked,
                         .with = {{"file", part.contents_->name}, {"part 1", contents_->name}},
                         .wrong = std::move(wrong),
                         .remedy = "Use all parts of the same model"});
    };
    const auto no = part.get_or<std::uint64_t>("split.no", 0), of = part.get_or<std::uint64_t>("split.count", 0);
    if (no != number - 1 || of != count)
      refuse(fmt::format("expected part {} of {}, but the file is part {} of {}", number, count, no + 1, of));
    // Only part 1 has general metadata. Other keys must be the same in all parts.
    for (const GgufEntry& e : part.contents_->entries) {
      if (e.key.starts_with("split.") || e.key.starts_with("general.")) continue;
      const GgufValue* first = find(e.key);
      if (first == nullptr || !(*first == e.value))
        refuse(fmt::format("the key {} differs from part 1", quote_text(e.key)));
    }
    for (GgufTensor& t : part.contents_->tensors) {
      if (!contents_->tensor_index.emplace(t.name, contents_->tensors.size()).second)
        refuse(fmt::format("the tensor {} is also in another part", quote_text(t.name)));
      t.part = static_cast<std::uint32_t>(number - 1);
      contents_->tensors.push_back(std::move(t));
    }
    contents_->parts.push_back({std::move(part.contents_->name), std::move(*part.contents_->file), part.contents_->size,
                                part.contents_->data_offset});
  }
  const auto total = find_as<std::uint64_t>("split.tensors.count");
  if (total && *total != contents_->tensors.size())
    fail<FormatError>({.operation = asked,
                       .with = {{"file", contents_->name}, {"split.tensors.count", std::to_string(*total)}},
                       .wrong = fmt::format("the parts have {} tensors in total", contents_->tensors.size()),
                       .remedy = "Use all parts of the same model"});
}

}  // namespace tessera
