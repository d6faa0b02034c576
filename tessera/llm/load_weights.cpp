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

}  // namespace

TensorLoader::TensorLoader(const GgufFile& file, std::span<const Device> layers, const LoadProgress& progress)
    : file_(file), progress_(progress), device_(layers.front()) {
  const std::string label = "weights of " + std::filesystem::path(file.name()).filename().string();
  for (const GgufTensor& t : file.tensors()) {
    total_ += t.bytes;
    const auto format = weight_format(t.type);
    if (t.dims.size() != 2 || !format) continue;
    const std::optional<std::size_t> layer = layer_of(t.name);
    const Device device = layer                           ? layers[std::min(*layer, layers.size() - 1)]
                          : t.name == "token_embd.weight" ? layers.front()
                                                          : layers.back();
    memory_of(device, label)
        .expect(*format, static_cast<std::int64_t>(t.dims[1]), static_cast<std::int64_t>(t.dims[0]));
  }
}

WeightMemory& TensorLoader::memory_of(Device device, const std::string& label) {
  const auto known = std::ranges::find(memory_, device, &WeightMemory::device);
  return known != memory_.end() ? *known : memory_.emplace_back(device, label);
}

Weight TensorLoader::matrix(const std::string& name, std::int64_t rows, std::int64_t columns) {
  const GgufTensor& t = checked(name, {columns, rows});
  const auto format = weight_format(t.type);
  if (!format) wrong(t, "matrices of this type are not supported", supported_ggml_types() + " are supported");
  return Weight::pack(
      *format, t.bytes, [&](std::uint64_t offset, std::span<std::byte> to) { file_.read(t, offset, to); }, rows,
      columns, memory_of(device_, name), name);
}

Array TensorLoader::vector(const std::string& name, std::int64_t size) {
  const GgufTensor& t = checked(name, {size});
  std::vector<std::byte> data(t.bytes);
  if (holds_data(device_)) file_.read(t, 0, data);
  DType dtype = DType::f32;
  if (t.type == GgmlType::f16)
    dtype = DType::f16;
  else if (t.type == GgmlType::bf16)
    dtype = DType::bf16;
  else if (t.type != GgmlType::f32)
    wrong(t, "a vector of type " + ggml_type_text(t.type) + " is not supported", "Supported types: f32, f16 and bf16");
  Array a = Array::empty({size}, dtype, device_);
  current_queue(device_).upload(a.view(), data.data());
  return a.astype(DType::f32).eval();
}

std::optional<Array> TensorLoader::optional_vector(const std::string& name, std::int64_t size) {
  if (!has(name)) return std::nullopt;
  return vector(name, size);
}

void TensorLoader::wrong(const GgufTensor& t, const std::string& what, const std::string& remedy) const {
  fail<FormatError>({.operation = "load model",
                     .with = {{"file", file_.name(t)}, {"tensor", t.name}, {"type", ggml_type_text(t.type)}},
                     .wrong = what,
                     .remedy = remedy});
}

const GgufTensor& TensorLoader::checked(const std::string& name, const Shape& dims) {
  const GgufTensor& t = file_.tensor(name);
  const Shape have(t.dims.begin(), t.dims.end());
  if (have != dims)
    wrong(t, "the tensor's dimensions are " + to_string(have) + ", but the metadata requires " + to_string(dims), "");
  // `done_` may exceed the total, because a tied embedding is loaded twice if it is on two devices.
  if (progress_) progress_(name, std::min(done_, total_), total_);
  done_ += t.bytes;
  return t;
}

}  // namespace tessera
