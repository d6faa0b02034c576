// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/hub/tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tessera/base/error.h"
#include "tessera/llm/architectures.h"
#include "tessera/llm/ggml_blocks.h"
#include "tessera/llm/quantize_model.h"

namespace tessera::hub {
namespace {

std::optional<GgmlType> type_of_dtype(std::string_view dtype) {
  if (dtype == "F32") return GgmlType::f32;
  if (dtype == "F16") return GgmlType::f16;
  if (dtype == "BF16") return GgmlType::bf16;
  return std::nullopt;
}

/// Returns `name` with its ending `from` replaced by `to`.
std::string with_ending(std::string_view name, std::string_view from, std::string_view to) {
  return std::string(name.substr(0, name.size() - from.size())) + std::string(to);
}

}  // namespace

FolderTensors::FolderTensors(Shards shards, const Family& family, const ModelShape& shape,
                             const ComputedTensors& computed, std::optional<GgmlType> weights)
    : shards_(std::move(shards)) {
  for (const auto& [name, sources] : find_sources(family, shape))
    tensors_.push_back(convert(name, sources, family, shape, weights));
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

FolderTensors::Sources FolderTensors::find_sources(const Family& family, const ModelShape& shape) const {
  Sources found;
  for (const StoredTensor& t : shards_.tensors()) {
    if (is_redundant(t.name, family)) continue;
    if (t.name.ends_with(factors_ending) && shards_.find(with_ending(t.name, factors_ending, blocks_ending))) continue;
    const std::vector<TensorName> names = gguf_names(t.name, family, shape.experts > 0);
    if (names.empty())
      bad(t, fmt::format("this tensor of {} is not supported", family.name),
          "Without it, the model would compute wrong results");
    for (const TensorName& name : names) {
      auto& same = found[name.name];
      if (std::ranges::find(same, name.expert, [](const Source& s) { return s.name.expert; }) != same.end())
        bad(t, fmt::format("{} is also the data of another tensor", name.name));
      if (name.expert.value_or(0) >= static_cast<std::uint64_t>(std::max<std::int64_t>(shape.experts, 1)))
        bad(t, fmt::format("the model has {} experts", shape.experts));
      same.push_back({name, &t});
    }
  }
  // As in transformers, the embedding is used instead of the output matrix, unless the matrices differ.
  const auto embedding = found.find("token_embd.weight"), output = found.find("output.weight");
  if (shape.tied && embedding != found.end() && output != found.end() &&
      is_equal(*embedding->second.front().tensor, *output->second.front().tensor))
    found.erase(output);
  if (!shape.tied && output == found.end())
    fail<FormatError>({.operation = "load model",
                       .with = {{"tensor", "lm_head.weight"}},
                       .wrong = "no file contains this tensor, and config.json does not set tie_word_embeddings"});
  for (auto& [name, same] : found) {
    std::ranges::sort(same, {}, [](const Source& s) { return s.name.expert; });
    if (same.size() > 1 && !same.front().name.expert)  // all experts in one tensor, and some alone
      bad(*same.back().tensor, fmt::format("{} is also the data of another tensor", name));
    if (same.front().name.expert && same.size() != static_cast<std::size_t>(shape.experts))
      bad(*same.front().tensor,
          fmt::format("the matrices of {} experts are needed, but the files contain {}", shape.experts, same.size()));
  }
  return found;
}

bool FolderTensors::is_equal(const StoredTensor& a, const StoredTensor& b) const {
  if (a.shape != b.shape || a.dtype != b.dtype) return false;
  std::vector<std::byte> of_a(std::min<std::uint64_t>(a.bytes, 1 << 20)), of_b(of_a.size());
  for (std::uint64_t at = 0; at < a.bytes; at += of_a.size()) {
    const std::size_t count = std::min<std::uint64_t>(of_a.size(), a.bytes - at);
    shards_.read(a.shard, a.offset + at, std::span(of_a).first(count));
    shards_.read(b.shard, b.offset + at, std::span(of_b).first(count));
    if (!std::equal(of_a.begin(), of_a.begin() + static_cast<std::ptrdiff_t>(count), of_b.begin())) return false;
  }
  return true;
}

/// Sets the type in which a tensor is stored, and returns its shape.
Shape FolderTensors::shape_of(Converted& t, const StoredTensor& first) const {
  Shape shape = first.shape;
  if (!first.name.ends_with(blocks_ending)) {
    const auto type = type_of_dtype(first.dtype);
    if (!type)
      bad(first, fmt::format("the dtype {} is not supported", quote_text(first.dtype)),
          "Supported dtypes: F32, F16 and BF16");
    t.stored = *type;
    return shape;
  }
  t.stored = GgmlType::mxfp4;
  t.factors = shards_.find(with_ending(first.name, blocks_ending, factors_ending));
  if (t.factors == nullptr) bad(first, "the factors of the blocks (a tensor that ends with \"_scales\") are missing");
  if (shape.size() != 4 || shape[3] != 16 || first.dtype != "U8")
    bad(first, fmt::format("expected blocks of 16 bytes, but the shape is {} and the dtype {}", to_string(shape),
                           first.dtype));
  shape.pop_back();
  if (t.factors->shape != shape || t.factors->dtype != "U8")
    bad(*t.factors, fmt::format("expected a byte for each block, {}, but the shape is {} and the dtype {}",
                                to_string(shape), to_string(t.factors->shape), t.factors->dtype));
  shape.back() *= 32;
  return shape;
}

/// Sets where the queries, keys and values of the gated delta rule are, or the gates.
void FolderTensors::set_head_parts(Converted& t, const Source& first, std::uint64_t rows,
                                   const ModelShape& shape) const {
  const auto keys = static_cast<std::uint64_t>(shape.delta_key_size),
             values = static_cast<std::uint64_t>(shape.delta_heads / shape.delta_key_heads * shape.delta_value_size);
  t.key_heads = static_cast<std::uint64_t>(shape.delta_key_heads);
  t.head_stride = 2 * (keys + values);
  if (rows != t.key_heads * t.head_stride)
    bad(*first.tensor, fmt::format("expected {} rows for each of {} key heads, but the shape is {}", t.head_stride,
                                   t.key_heads, to_string(first.tensor->shape)));
  if (first.name.rows == RowPart::gates)
    t.head_parts = {{values, 2 * keys + values}};
  else
    t.head_parts = {{keys, 0}, {keys, keys}, {values, 2 * keys}};
  t.rows = 0;
  for (const Converted::HeadPart& p : t.head_parts) t.rows += t.key_heads * p.size;
}

/// Sets where the rows of the tensor are among the `rows` rows of its first source.
void FolderTensors::set_rows(Converted& t, const Source& first, std::uint64_t rows, const ModelShape& shape) const {
  const RowPart part = first.name.rows;
  const bool of_heads = part == RowPart::queries_keys_values || part == RowPart::gates;
  if (part != RowPart::all && rows % 2 != 0)
    bad(*first.tensor, fmt::format("{} rows cannot be divided into two halves", rows));
  t.rows = part == RowPart::all ? rows : rows / 2;
  if (of_heads) set_head_parts(t, first, rows, shape);
  const GgmlTypeInfo& type = *ggml_type_info(t.stored);
  const std::uint64_t row_bytes = t.factors ? t.columns / 2 : t.columns * type.bytes;
  t.row_stride = first.name.transposed ? type.bytes : row_bytes;
  t.column_stride = first.name.transposed ? rows * type.bytes : 0;
  const std::uint64_t skipped = part == RowPart::second_half ? t.rows : part == RowPart::odd ? 1 : 0;
  for (Piece& p : t.pieces) p.offset += skipped * t.row_stride;
  if (part == RowPart::even || part == RowPart::odd) t.row_stride *= 2;
}

FolderTensors::Converted FolderTensors::convert(const std::string& name, const std::vector<Source>& sources,
                                                const Family& family, const ModelShape& shape,
                                                std::optional<GgmlType> weights) const {
  const StoredTensor& first = *sources.front().tensor;
  const bool of_experts = name.find("_exps.") != std::string::npos && !name.ends_with(".scale");
  Converted out;
  Shape dims = shape_of(out, first);
  for (const Source& s : sources) {
    if (s.tensor->shape != first.shape || s.tensor->dtype != first.dtype)
      bad(*s.tensor, fmt::format("shape and dtype differ from those of {}", quote_text(first.name)));
    out.pieces.push_back({s.tensor, 0});
  }
  if (of_experts && !sources.front().name.expert) {  // one tensor contains all experts
    if (dims.size() < 2 || dims[0] != shape.experts)
      bad(first, fmt::format("expected {} experts, but the shape is {}", shape.experts, to_string(first.shape)));
    dims.erase(dims.begin());
    out.pieces.clear();
    const auto count = static_cast<std::uint64_t>(shape.experts);
    for (std::uint64_t e = 0; e < count; ++e) out.pieces.push_back({&first, e * (first.bytes / count)});
  }
  if (dims.size() == 3 && dims[1] == 1) dims.erase(dims.begin() + 1);  // a convolution of each channel
  if ((dims.size() != 1 && dims.size() != 2) || first.bytes == 0)
    bad(first, "expected a vector or a matrix, but the shape is " + to_string(first.shape));
  if (sources.front().name.transposed && dims.size() == 2) std::swap(dims[0], dims[1]);
  out.origin = fmt::format("{}: {}", shards_.path(first), first.name);
  out.plus_one = family.norms_plus_one && name.ends_with("norm.weight") && !name.ends_with("ssm_norm.weight");
  out.negative_exp = name.ends_with("ssm_a");
  const auto size = static_cast<std::uint64_t>(dims[0]);
  const bool matrix = dims.size() == 2;
  const bool rotated = name.find(".attn_q.") != std::string::npos || name.find(".attn_k.") != std::string::npos;
  if (rotated && !family.adjacent && find_architecture(family.architecture)->pairs == RotaryPairs::adjacent) {
    out.head_size = static_cast<std::uint64_t>(shape.head_size);
    if (out.head_size % 2 != 0 || size % out.head_size != 0)
      bad(first, fmt::format("{} rows cannot be divided into heads of {} elements", size, out.head_size));
  }
  if (shape.delta_heads > 0 && !find_architecture(family.architecture)->grouped_delta_heads)
    set_heads(out, std::string_view(name).substr(name.find('.', 4) + 1), shape);
  // The elements of a vector are rows if they are reordered or divided.
  const bool single = !matrix && out.head_size == 0 && !of_experts && out.rows_of_heads.key_heads == 0;
  out.columns = matrix ? static_cast<std::uint64_t>(dims[1]) : single ? size : 1;
  const auto skipped = name == "position_embd.weight" ? static_cast<std::uint64_t>(shape.skipped_positions) : 0;
  if (skipped >= size)
    bad(first, fmt::format("expected more than {} rows, but the shape is {}", skipped, to_string(dims)));
  set_rows(out, sources.front(), single ? 1 : size - skipped, shape);
  const auto check_heads = [&](const Converted::Regroup& r, std::uint64_t have, const char* what) {
    if (r.key_heads != 0 && r.begin + r.heads * r.size != have)
      bad(first, fmt::format("expected {} {} for {} heads of the gated delta rule, but the shape is {}",
                             r.begin + r.heads * r.size, what, r.heads, to_string(first.shape)));
  };
  check_heads(out.rows_of_heads, out.rows, "rows"), check_heads(out.columns_of_heads, out.columns, "columns");
  for (Piece& p : out.pieces) p.offset += skipped * out.row_stride;
  const bool keeps_type = out.factors != nullptr || (matrix && out.rows > 1);
  GgmlType type = keeps_type ? out.stored : GgmlType::f32;
  const bool fixed = name.ends_with("ffn_gate_inp.weight") || name.ends_with("per_layer_model_proj.weight") ||
                     out.stored == GgmlType::mxfp4;
  if (matrix && out.rows > 1 && weights && !fixed)
    if (const GgmlType fitting = type_for_rows(*weights, out.columns); fitting != GgmlType::f16 || fitting == *weights)
      type = fitting;
  std::vector<std::uint64_t> described{single ? size : out.rows};
  if (matrix) described = {out.columns, out.rows};
  if (of_experts) described.push_back(out.pieces.size());
  describe(out, name, std::move(described), type);
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
  if (t.is_plain()) return read_plain(t, offset, to);
  const std::uint64_t row_bytes = t.description.bytes / (t.rows * t.pieces.size());
  while (!to.empty()) {
    const std::uint64_t first = offset / row_bytes % t.rows, begin = offset % row_bytes;
    const std::uint64_t needed = (begin + to.size() + row_bytes - 1) / row_bytes;
    const std::uint64_t most = std::max<std::uint64_t>(1, (std::uint64_t{4} << 20) / row_bytes);
    const std::vector<std::byte> bytes =
        rows(t, t.pieces[offset / row_bytes / t.rows], first, std::min({needed, t.rows - first, most}));
    const std::size_t count = std::min<std::uint64_t>(bytes.size() - begin, to.size());
    std::memcpy(to.data(), bytes.data() + begin, count);
    offset += count, to = to.subspan(count);
  }
}

void FolderTensors::read_plain(const Converted& t, std::uint64_t offset, std::span<std::byte> to) const {
  const std::uint64_t piece_bytes = t.rows * t.row_stride;
  while (!to.empty()) {
    const Piece& piece = t.pieces[offset / piece_bytes];
    const std::uint64_t begin = offset % piece_bytes;
    const std::size_t count = std::min<std::uint64_t>(piece_bytes - begin, to.size());
    shards_.read(piece.tensor->shard, piece.tensor->offset + piece.offset + begin, to.first(count));
    offset += count, to = to.subspan(count);
  }
}

/// True if the bytes of the pieces are those of the GGUF tensor.
bool FolderTensors::Converted::is_plain() const {
  return stored == description.type && factors == nullptr && head_size == 0 && !plus_one && !negative_exp &&
         rows_of_heads.key_heads == 0 && columns_of_heads.key_heads == 0 && head_parts.empty() && column_stride == 0 &&
         row_stride == columns * ggml_type_info(stored)->bytes;
}

/// Returns the row of the piece for a row of the GGUF tensor: row 2 i + e of a head is row i of its half e.
std::uint64_t FolderTensors::Converted::source_row(std::uint64_t row) const {
  for (const HeadPart& p : head_parts) {
    if (row < key_heads * p.size) return row / p.size * head_stride + p.offset + row % p.size;
    row -= key_heads * p.size;
  }
  if (rows_of_heads.key_heads != 0) return rows_of_heads.source(row);
  if (head_size == 0) return row;
  const std::uint64_t in_head = row % head_size;
  return row - in_head + in_head % 2 * (head_size / 2) + in_head / 2;
}

std::uint64_t FolderTensors::Converted::Regroup::source(std::uint64_t i) const {
  if (i < begin) return i;
  const std::uint64_t head = (i - begin) / size, in_head = (i - begin) % size;
  return begin + (head % key_heads * (heads / key_heads) + head / key_heads) * size + in_head;
}

/// Sets which rows or columns of a tensor of a layer with the gated delta rule are those of heads.
void FolderTensors::set_heads(Converted& t, std::string_view part, const ModelShape& shape) {
  const auto key_heads = static_cast<std::uint64_t>(shape.delta_key_heads),
             heads = static_cast<std::uint64_t>(shape.delta_heads),
             size = static_cast<std::uint64_t>(shape.delta_value_size),
             keys = 2 * key_heads * static_cast<std::uint64_t>(shape.delta_key_size);
  if (part == "attn_qkv.weight" || part == "ssm_conv1d.weight") t.rows_of_heads = {keys, key_heads, heads, size};
  if (part == "attn_gate.weight") t.rows_of_heads = {0, key_heads, heads, size};
  for (const std::string_view small : {"ssm_beta.weight", "ssm_alpha.weight", "ssm_a", "ssm_dt.bias"})
    if (part == small) t.rows_of_heads = {0, key_heads, heads, 1};
  if (part == "ssm_out.weight") t.columns_of_heads = {0, key_heads, heads, size};
}

/// Returns rows in the type in which they are stored.
std::vector<std::byte> FolderTensors::stored_rows(const Converted& t, const Piece& piece, std::uint64_t begin,
                                                  std::uint64_t count) const {
  std::uint64_t low = t.source_row(begin), high = low;
  for (std::uint64_t i = begin; i < begin + count; ++i)
    low = std::min(low, t.source_row(i)), high = std::max(high, t.source_row(i));
  const std::uint64_t element = ggml_type_info(t.stored)->bytes;
  const std::uint64_t width = t.column_stride > 0 ? element : t.columns * element;
  std::vector<std::byte> out(count * t.columns * element), span((high - low) * t.row_stride + width);
  const std::uint64_t at = piece.tensor->offset + piece.offset + low * t.row_stride;
  for (std::uint64_t c = 0; c < (t.column_stride > 0 ? t.columns : 1); ++c) {
    shards_.read(piece.tensor->shard, at + c * t.column_stride, span);
    for (std::uint64_t i = 0; i < count; ++i)
      std::memcpy(out.data() + i * t.columns * element + c * element,
                  span.data() + (t.source_row(begin + i) - low) * t.row_stride, width);
  }
  return out;
}

/// Returns rows in GGUF's MXFP4. There, a block begins with its factor, and byte i has elements i and i + 16. In the
/// folder, byte i has elements 2 i and 2 i + 1.
std::vector<std::byte> FolderTensors::mxfp4_rows(const Converted& t, const Piece& piece, std::uint64_t begin,
                                                 std::uint64_t count) const {
  const std::uint64_t blocks = t.columns / 32, at = piece.offset + begin * t.row_stride;
  std::vector<std::byte> stored((count - 1) * t.row_stride + 16 * blocks), factors((stored.size()) / 16), out;
  shards_.read(piece.tensor->shard, piece.tensor->offset + at, stored);
  shards_.read(t.factors->shard, t.factors->offset + at / 16, factors);
  out.reserve(17 * blocks * count);
  const auto element = [](const std::byte* block, std::size_t i) {
    return (i % 2 == 0 ? block[i / 2] : block[i / 2] >> 4) & std::byte{15};
  };
  for (std::uint64_t row = 0; row < count; ++row)
    for (std::uint64_t b = 0; b < blocks; ++b) {
      const std::uint64_t block = row * t.row_stride / 16 + b;
      const std::byte* const bytes = stored.data() + 16 * block;
      out.push_back(factors[block]);
      for (std::size_t i = 0; i < 16; ++i) out.push_back(element(bytes, i) | element(bytes, i + 16) << 4);
    }
  return out;
}

/// Returns rows in the type of the description.
std::vector<std::byte> FolderTensors::rows(const Converted& t, const Piece& piece, std::uint64_t begin,
                                           std::uint64_t count) const {
  if (t.factors != nullptr) return mxfp4_rows(t, piece, begin, count);
  std::vector<std::byte> bytes = stored_rows(t, piece, begin, count);
  if (t.stored == t.description.type && !t.plus_one && !t.negative_exp && t.columns_of_heads.key_heads == 0)
    return bytes;
  std::vector<float> values = ggml_to_float(t.stored, bytes);
  if (t.plus_one)
    for (float& v : values) v += 1;
  if (t.negative_exp)
    for (float& v : values) v = -std::exp(v);
  if (t.columns_of_heads.key_heads != 0) {
    const std::vector<float> stored = values;
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = stored[i - i % t.columns + t.columns_of_heads.source(i % t.columns)];
  }
  return ggml_from_float(t.description.type, values);
}

}  // namespace tessera::hub
