// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/hub/tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "tessera/base/error.h"
#include "tessera/llm/architectures.h"
#include "tessera/llm/ggml_blocks.h"
#include "tessera/llm/hub/tensor_names.h"

namespace tessera::hub {
namespace {

std::optional<GgmlType> type_of_dtype(std::string_view dtype) {
  if (dtype == "F32") return GgmlType::f32;
  if (dtype == "F16") return GgmlType::f16;
  if (dtype == "BF16") return GgmlType::bf16;
  return std::nullopt;
}

}  // namespace

FolderTensors::FolderTensors(Shards shards, const Family& family, const ModelShape& shape,
                             const ComputedTensors& computed, std::optional<GgmlType> weights)
    : shards_(std::move(shards)) {
  const bool post_norms = find_architecture(family.architecture)->post_norms;
  std::map<std::string, std::vector<std::pair<std::uint64_t, const StoredTensor*>>> parts;
  for (const StoredTensor& t : shards_.tensors()) {
    if (is_redundant(t.name)) continue;
    const auto name = gguf_name(t.name, post_norms);
    if (!name)
      bad(t, fmt::format("this tensor of {} is not supported", family.name),
          "Without it, the model would compute wrong results");
    if (shape.tied && name->name == "output.weight") continue;  // the embedding is used instead, as in transformers
    auto& same = parts[name->name];
    const std::uint64_t expert = name->expert.value_or(0);
    if (std::ranges::find(same, expert, [](const auto& p) { return p.first; }) != same.end())
      bad(t, fmt::format("{} is also the data of another tensor", name->name));
    if (expert >= static_cast<std::uint64_t>(std::max<std::int64_t>(shape.experts, 1)))
      bad(t, fmt::format("the model has {} experts", shape.experts));
    same.emplace_back(expert, &t);
  }
  if (!shape.tied && !parts.contains("output.weight"))
    fail<FormatError>({.operation = "load model",
                       .with = {{"tensor", "lm_head.weight"}},
                       .wrong = "no file contains this tensor, and config.json does not set tie_word_embeddings"});
  for (auto& [name, same] : parts) {
    std::ranges::sort(same);
    if (name.find("_exps.") != std::string::npos && same.size() != static_cast<std::size_t>(shape.experts))
      bad(*same.front().second,
          fmt::format("the matrices of {} experts are needed, but the files contain {}", shape.experts, same.size()));
    std::vector<const StoredTensor*> pieces;
    for (const auto& [expert, t] : same) pieces.push_back(t);
    tensors_.push_back(convert(name, std::move(pieces), family, shape, weights));
  }
  for (const auto& [name, values] : computed) {
    if (values.empty()) continue;
    Converted t;
    t.values = values, t.origin = "config.json";
    describe(t, name, {values.size()}, GgmlType::f32);
    tensors_.push_back(std::move(t));
  }
}

void FolderTensors::bad(const StoredTensor& t, const std::string& wrong, const std::string& remedy) const {
  fail<FormatError>({.operation = "load model",
                     .with = {{"file", shards_.path(t)}, {"tensor", t.name}},
                     .wrong = wrong,
                     .remedy = remedy});
}

void FolderTensors::describe(Converted& t, const std::string& name, std::vector<std::uint64_t> dims, GgmlType type) {
  t.description.name = name;
  t.description.type = type;
  t.description.elements = 1;
  for (const std::uint64_t d : dims) t.description.elements *= d;
  t.description.bytes = *ggml_tensor_bytes(*ggml_type_info(type), dims);
  t.description.dims = std::move(dims);
}

FolderTensors::Converted FolderTensors::convert(const std::string& name, std::vector<const StoredTensor*> pieces,
                                                const Family& family, const ModelShape& shape,
                                                std::optional<GgmlType> weights) const {
  const StoredTensor& first = *pieces.front();
  const auto stored = type_of_dtype(first.dtype);
  if (!stored)
    bad(first, fmt::format("the dtype {} is not supported", quote_text(first.dtype)),
        "Supported dtypes: F32, F16 and BF16");
  if ((first.shape.size() != 1 && first.shape.size() != 2) || first.bytes == 0)
    bad(first, "expected a vector or a matrix, but the shape is " + to_string(first.shape));
  for (const StoredTensor* t : pieces)
    if (t->shape != first.shape || t->dtype != first.dtype)
      bad(*t, fmt::format("shape and dtype differ from those of {}", quote_text(first.name)));
  Converted out;
  out.origin = fmt::format("{}: {}", shards_.path(first), first.name);
  out.stored = *stored;
  out.plus_one = family.norms_plus_one && name.ends_with("norm.weight");
  const auto size = static_cast<std::uint64_t>(first.shape[0]);
  const bool matrix = first.shape.size() == 2;
  const bool rotated = name.find(".attn_q.") != std::string::npos || name.find(".attn_k.") != std::string::npos;
  if (rotated && find_architecture(family.architecture)->pairs == RotaryPairs::adjacent) {
    out.head_size = static_cast<std::uint64_t>(shape.head_size);
    if (out.head_size % 2 != 0 || size % out.head_size != 0)
      bad(first, fmt::format("{} rows cannot be divided into heads of {} elements", size, out.head_size));
  }
  // The elements of a vector are rows if they are reordered.
  const bool single = !matrix && out.head_size == 0;
  out.rows = single ? 1 : size;
  out.columns = matrix ? static_cast<std::uint64_t>(first.shape[1]) : single ? size : 1;
  GgmlType type = matrix ? *stored : GgmlType::f32;
  const bool router = name.ends_with("ffn_gate_inp.weight");
  if (matrix && weights && !router && out.columns % ggml_type_info(*weights)->block == 0) type = *weights;
  std::vector<std::uint64_t> dims{size};
  if (matrix) dims = {out.columns, size};
  if (name.find("_exps.") != std::string::npos) dims.push_back(pieces.size());
  out.pieces = std::move(pieces);
  describe(out, name, std::move(dims), type);
  return out;
}

std::vector<GgufTensor> FolderTensors::descriptions() const {
  std::vector<GgufTensor> out;
  for (const Converted& t : tensors_) out.push_back(t.description);
  return out;
}

void FolderTensors::read(std::size_t index, std::uint64_t offset, std::span<std::byte> to) const {
  const Converted& t = tensors_[index];
  if (t.pieces.empty()) {
    std::memcpy(to.data(), std::as_bytes(std::span(t.values)).data() + offset, to.size());
    return;
  }
  if (t.stored == t.description.type && t.head_size == 0 && !t.plus_one) return read_plain(t, offset, to);
  while (!to.empty()) {
    const std::uint64_t row_bytes = t.description.bytes / (t.rows * t.pieces.size());
    const std::vector<std::byte> bytes = row(t, offset / row_bytes);
    const std::uint64_t begin = offset % row_bytes;
    const std::size_t count = std::min<std::uint64_t>(bytes.size() - begin, to.size());
    std::memcpy(to.data(), bytes.data() + begin, count);
    offset += count, to = to.subspan(count);
  }
}

void FolderTensors::read_plain(const Converted& t, std::uint64_t offset, std::span<std::byte> to) const {
  const std::uint64_t piece_bytes = t.pieces.front()->bytes;
  while (!to.empty()) {
    const StoredTensor& piece = *t.pieces[offset / piece_bytes];
    const std::uint64_t begin = offset % piece_bytes;
    const std::size_t count = std::min<std::uint64_t>(piece_bytes - begin, to.size());
    shards_.read(piece.shard, piece.offset + begin, to.first(count));
    offset += count, to = to.subspan(count);
  }
}

/// Returns a row in the type of the description.
std::vector<std::byte> FolderTensors::row(const Converted& t, std::uint64_t index) const {
  const StoredTensor& piece = *t.pieces[index / t.rows];
  std::uint64_t at = index % t.rows;
  if (t.head_size != 0) {  // row 2 i + e of a head is row i of its half e
    const std::uint64_t in_head = at % t.head_size;
    at = at - in_head + in_head % 2 * (t.head_size / 2) + in_head / 2;
  }
  const std::uint64_t row_bytes = t.columns * ggml_type_info(t.stored)->bytes;
  std::vector<std::byte> bytes(row_bytes);
  shards_.read(piece.shard, piece.offset + at * row_bytes, bytes);
  if (t.stored == t.description.type && !t.plus_one) return bytes;
  std::vector<float> values = ggml_to_float(t.stored, bytes);
  if (t.plus_one)
    for (float& v : values) v += 1;
  return ggml_from_float(t.description.type, values);
}

}  // namespace tessera::hub
