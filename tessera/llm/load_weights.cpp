// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/load_weights.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "tessera/device/placement/dry_run.h"
#include "tessera/device/queue/queue_core.h"
#include "tessera/llm/ggml_blocks.h"

namespace tessera {
namespace {

/// Returns the layer number in a tensor's name, such as 12 for "blk.12.attn_q.weight".
std::optional<std::size_t> layer_of(std::string_view name) {
  if (!name.starts_with("blk.")) return std::nullopt;
  std::size_t layer = 0;
  const char* const end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + 4, end, layer);
  if (error != std::errc{} || rest == end || *rest != '.') return std::nullopt;
  return layer;
}

/// Matrices with the same columns whose products are needed together.
constexpr std::pair<std::string_view, std::string_view> joined_pairs[] = {
    {".attn_q.weight", ".attn_k.weight"},
    {".attn_k.weight", ".attn_v.weight"},
    {".ffn_gate.weight", ".ffn_up.weight"},
    {".ffn_gate_shexp.weight", ".ffn_up_shexp.weight"}};

/// Returns the tensor whose name is `name` with its ending `from` replaced by `to`.
const GgufTensor* other_part(const GgufFile& file, std::string_view name, std::string_view from, std::string_view to) {
  if (!name.ends_with(from)) return nullptr;
  return file.find_tensor(std::string(name.substr(0, name.size() - from.size())) + std::string(to));
}
/// Returns the tensor that follows `name` in joined_pairs, if the file has it.
const GgufTensor* follower(const GgufFile& file, std::string_view name) {
  for (const auto& [first, second] : joined_pairs)
    if (const GgufTensor* t = other_part(file, name, first, second)) return t;
  return nullptr;
}
/// True if the tensor follows one of the same type and columns in joined_pairs. Both are then parts of one weight.
bool joins(const GgufFile& file, std::string_view name) {
  const GgufTensor& t = file.tensor(name);
  for (const auto& [first, second] : joined_pairs)
    if (const GgufTensor* before = other_part(file, name, second, first))
      return before->type == t.type && before->dims.size() == 2 && t.dims.size() == 2 && before->dims[0] == t.dims[0];
  return false;
}

}  // namespace

TensorLoader::TensorLoader(const GgufFile& file, std::span<const Device> layers, const LoadProgress& progress)
    : file_(file), progress_(progress), device_(layers.front()) {
  const std::string label = "weights of " + std::filesystem::path(file.name()).filename().string();
  for (const GgufTensor& t : file.tensors()) {
    total_ += t.bytes;
    const auto format = weight_format(t.type);
    const bool matrix = t.elements != t.dims[0] && t.dims.size() <= 3;
    if (!matrix || !format || joins(file, t.name)) continue;
    if (t.name.ends_with(".bias")) continue;  // the biases of experts are no weights
    auto rows = static_cast<std::int64_t>(t.elements / t.dims[0]);
    for (const GgufTensor* next = follower(file, t.name); next && joins(file, next->name);
         next = follower(file, next->name))
      rows += static_cast<std::int64_t>(next->dims[1]);
    const std::optional<std::size_t> layer = layer_of(t.name);
    if (layer && *layer >= layers.size()) continue;  // layers that predict further tokens are not loaded
    const Device device = layer ? layers[*layer] : t.name == "token_embd.weight" ? layers.front() : layers.back();
    memory_of(device, label).expect(*format, rows, static_cast<std::int64_t>(t.dims[0]));
  }
}

WeightMemory& TensorLoader::memory_of(Device device, const std::string& label) {
  const auto known = std::ranges::find(memory_, device, &WeightMemory::device);
  return known != memory_.end() ? *known : memory_.emplace_back(device, label);
}

Weight TensorLoader::matrix(const std::string& name, std::int64_t rows, std::int64_t columns) {
  const std::pair<std::string, std::int64_t> part{name, rows};
  return matrices({&part, 1}, columns)[0];
}

std::vector<Weight> TensorLoader::matrices(std::span<const std::pair<std::string, std::int64_t>> parts,
                                           std::int64_t columns) {
  std::vector<Weight> weights;
  while (!parts.empty()) {
    std::vector<const GgufTensor*> tensors;
    std::int64_t rows = 0;
    do {
      const GgufTensor& t = checked(parts.front().first, {columns, parts.front().second});
      tensors.push_back(&t), rows += parts.front().second;
      parts = parts.subspan(1);
    } while (!parts.empty() && has(parts.front().first) && joins(file_, parts.front().first));
    weights.push_back(pack(tensors, rows, columns));
  }
  return weights;
}

Weight TensorLoader::experts(const std::string& name, std::int64_t count, std::int64_t rows, std::int64_t columns) {
  const GgufTensor& t = checked(name, {columns, rows, count});
  if (const std::int64_t group = Weight::row_group(device_); rows % group != 0)
    wrong(t, "the rows of an expert are not a multiple of " + std::to_string(group), "");
  const GgufTensor* const one = &t;
  return pack({&one, 1}, count * rows, columns);
}

/// Packs tensors whose rows follow each other.
Weight TensorLoader::pack(std::span<const GgufTensor* const> tensors, std::int64_t rows, std::int64_t columns) {
  const std::string& name = tensors.front()->name;
  const auto format = weight_format(tensors.front()->type);
  if (!format)
    wrong(*tensors.front(), "matrices of this type are not supported", supported_ggml_types() + " are supported");
  std::uint64_t bytes = 0;
  for (const GgufTensor* t : tensors) bytes += t->bytes;
  const auto read = [&](std::uint64_t offset, std::span<std::byte> to) {
    for (const GgufTensor* t : tensors) {
      const std::size_t count = offset < t->bytes ? std::min<std::uint64_t>(t->bytes - offset, to.size()) : 0;
      if (count > 0) file_.read(*t, offset, to.first(count));
      to = to.subspan(count), offset = offset < t->bytes ? 0 : offset - t->bytes;
    }
  };
  return Weight::pack(*format, bytes, read, rows, columns, memory_of(device_, name), name);
}

Array TensorLoader::vectors(const std::string& name, std::int64_t count, std::int64_t size) {
  return array(name, {size, count}).reshape({count, size});
}

/// `dims` are in ggml's order.
Array TensorLoader::array(const std::string& name, const Shape& dims) {
  const GgufTensor& t = checked(name, dims);
  std::vector<std::byte> data(t.bytes);
  if (holds_data(device_)) file_.read(t, 0, data);
  DType dtype = DType::f32;
  if (t.type == GgmlType::f16)
    dtype = DType::f16;
  else if (t.type == GgmlType::bf16)
    dtype = DType::bf16;
  else if (t.type != GgmlType::f32)
    wrong(t, "a vector of type " + ggml_type_text(t.type) + " is not supported", "Supported types: f32, f16 and bf16");
  Array a = Array::empty(dims, dtype, device_);
  current_queue(device_).upload(a.view(), data.data());
  return a.astype(DType::f32).eval();
}

std::optional<Array> TensorLoader::optional_vector(const std::string& name, std::int64_t size) {
  if (!has(name)) return std::nullopt;
  return vector(name, size);
}

std::optional<Array> TensorLoader::optional_vectors(std::span<const std::pair<std::string, std::int64_t>> parts) {
  if (std::ranges::none_of(parts, [&](const auto& part) { return has(part.first); })) return std::nullopt;
  std::vector<Array> found;
  for (const auto& [name, size] : parts)
    found.push_back(has(name) ? vector(name, size) : Array::zeros({size}, DType::f32, device_));
  return concatenate(found, 0).eval();
}

void TensorLoader::wrong(const GgufTensor& t, const std::string& what, const std::string& remedy) const {
  fail<FormatError>({.operation = "load model",
                     .with = {{"file", file_.name(t)}, {"tensor", t.name}, {"type", ggml_type_text(t.type)}},
                     .wrong = what,
                     .remedy = remedy});
}

const GgufTensor& TensorLoader::checked(const std::string& name, const Shape& dims) {
  const GgufTensor& t = file_.tensor(name);
  Shape have(t.dims.begin(), t.dims.end());
  while (have.size() > dims.size() && have.back() == 1) have.pop_back();  // ggml does not distinguish them
  if (have != dims)
    wrong(t, "the tensor's dimensions are " + to_string(have) + ", but the metadata requires " + to_string(dims), "");
  // `done_` may exceed the total, because a tied embedding is loaded twice if it is on two devices.
  if (progress_) progress_(name, std::min(done_, total_), total_);
  done_ += t.bytes;
  return t;
}

}  // namespace tessera
