// SPDX-License-Identifier: Apache-2.0
#include "tessera/array/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "tessera/array/host_bytes.h"
#include "tessera/array/operation.h"
#include "tessera/array/safetensors_contents.h"
#include "tessera/array/safetensors_header.h"
#include "tessera/base/os/atomic_file.h"

namespace tessera {

namespace {

struct OtherFile {
  std::string what, remedy;
};
/// Recognises, by its first 8 bytes, a file of another format that is often passed by mistake.
std::optional<OtherFile> other_file(std::string_view begin) {
  const std::string from_pytorch =
      "Convert a PyTorch file in Python: "
      "safetensors.torch.save_file(torch.load(\"model.pt\", weights_only=True), \"model.safetensors\")";
  if (begin.starts_with("GGUF")) return OtherFile{"a GGUF file, which contains a language model", ""};
  if (begin.starts_with("PK\3\4"))
    return OtherFile{"a zip archive, like .npz files and PyTorch's .pt files", from_pytorch};
  // A pickle of protocol 2 to 5. PyTorch's pickles begin with the number 0x1950a86a20f9469cfc6c.
  if (begin[0] == '\x80' && begin[1] >= 2 && begin[1] <= 5)
    return OtherFile{begin.substr(4) == "\x6c\xfc\x9c\x46" ? "a .pt file of PyTorch before 1.6" : "a Python pickle",
                     from_pytorch};
  // An ONNX ModelProto: ir_version, followed by producer_name, producer_version, domain, graph or opset_import.
  if (begin[0] == '\x08' && begin[1] > 0 && begin[1] < 32 &&
      std::string_view("\x12\x1a\x22\x3a\x42").find(begin[2]) != std::string_view::npos)
    return OtherFile{"an ONNX model",
                     "Convert its weights in Python: safetensors.numpy.save_file({t.name: "
                     "onnx.numpy_helper.to_array(t) for t in onnx.load(\"model.onnx\").graph.initializer}, "
                     "\"model.safetensors\")"};
  if (begin.starts_with("version ")) return OtherFile{"a Git LFS pointer: the actual file was not downloaded", ""};
  return {};
}

}  // namespace

SafetensorsFile::SafetensorsFile() : contents_(std::make_unique<Contents>()) {}
SafetensorsFile::SafetensorsFile(SafetensorsFile&& other) noexcept = default;
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&& other) noexcept = default;
SafetensorsFile::~SafetensorsFile() = default;

const std::string& SafetensorsFile::name() const { return contents_->name; }
std::span<const SafetensorsTensor> SafetensorsFile::tensors() const { return contents_->tensors; }
const std::map<std::string, std::string>& SafetensorsFile::metadata() const { return contents_->metadata; }

SafetensorsFile SafetensorsFile::open(const std::string& path) {
  SafetensorsFile out;
  out.contents_->name = path;
  out.contents_->file.emplace(path);
  out.contents_->size = out.contents_->file->size();
  out.read_header();
  return out;
}

SafetensorsFile SafetensorsFile::parse(std::span<const std::byte> bytes, std::string name) {
  SafetensorsFile out;
  out.contents_->name = std::move(name);
  out.contents_->bytes = bytes;
  out.contents_->size = bytes.size();
  out.read_header();
  return out;
}

void SafetensorsFile::bad(std::uint64_t offset, const std::string& field, const std::string& wrong) const {
  fail<FormatError>({.operation = "read safetensors",
                     .with = {{"file", contents_->name}, {"offset", std::to_string(offset)}, {"field", field}},
                     .wrong = wrong});
}

void SafetensorsFile::read(std::uint64_t offset, std::span<std::byte> to) const {
  if (contents_->file)
    contents_->file->read(offset, to);
  else if (!to.empty())
    std::memcpy(to.data(), contents_->bytes.data() + offset, to.size());
}

void SafetensorsFile::read_header() {
  if (contents_->size < 8)
    bad(0, "header length", fmt::format("8 bytes are needed, but the file has {}", contents_->size));
  std::byte length_bytes[8];
  read(0, length_bytes);
  std::uint64_t length = 0;
  for (int i = 0; i < 8; ++i) length |= std::to_integer<std::uint64_t>(length_bytes[i]) << (8 * i);
  const bool above = length > most_safetensors_header;
  if (above || length > contents_->size - 8) {
    if (const auto other = other_file({reinterpret_cast<const char*>(length_bytes), sizeof length_bytes}))
      fail<FormatError>({.operation = "read safetensors",
                         .with = {{"file", contents_->name}, {"offset", "0"}},
                         .wrong = "it is " + other->what,
                         .remedy = other->remedy});
    bad(0, "header length",
        above ? fmt::format("the length {} exceeds the format's limit of {}", length, most_safetensors_header)
              : fmt::format("the header has {} bytes, but only {} bytes follow", length, contents_->size - 8));
  }
  std::string text(length, '\0');
  read(8, std::as_writable_bytes(std::span(text)));
  SafetensorsHeader(*this, text).parse();
}

const SafetensorsTensor* SafetensorsFile::find(std::string_view name) const {
  const auto found = contents_->index.find(name);
  return found == contents_->index.end() ? nullptr : &contents_->tensors[found->second];
}

const SafetensorsTensor& SafetensorsFile::tensor(std::string_view name) const {
  if (const SafetensorsTensor* found = find(name)) return *found;
  fail<FormatError>({.operation = "read safetensors",
                     .with = {{"file", contents_->name}, {"tensor", std::string(name)}},
                     .wrong = "the file has no such tensor"});
}

std::vector<std::byte> SafetensorsFile::data(const SafetensorsTensor& tensor) const {
  if (tensor.offset > contents_->size || tensor.bytes > contents_->size - tensor.offset)
    fail<ArgumentError>({.operation = "read safetensors",
                         .with = {{"file", contents_->name}, {"tensor", tensor.name}},
                         .wrong = "the tensor does not belong to this file"});
  std::vector<std::byte> out(tensor.bytes);
  read(tensor.offset, out);
  return out;
}

Array SafetensorsFile::load(std::string_view name, std::optional<Device> device) const {
  const detail::Operation operation("load_safetensors");
  const SafetensorsTensor& t = tensor(name);
  if (!t.dtype)
    bad(t.described_at, "tensor \"" + t.name + "\" dtype",
        fmt::format("Tessera does not support dtype {}", t.dtype_name));
  std::vector<std::byte> bytes = data(t);
  return operation.finish(detail::array_of_bytes(bytes, *t.dtype, t.shape, device));
}

void save_safetensors(const std::string& path, const std::vector<std::pair<std::string, Array>>& arrays,
                      const std::map<std::string, std::string>& metadata) {
  const auto refuse = [&](const std::string& name, const std::string& wrong, const char* remedy) {
    fail<ArgumentError>(
        {.operation = "save_safetensors", .with = {{"file", path}, {"name", name}}, .wrong = wrong, .remedy = remedy});
  };
  const auto quoted = [&](const std::string& text) {
    try {
      return nlohmann::json(text).dump();
    } catch (const nlohmann::json::type_error&) {
      refuse(text, "the text is not UTF-8", "The format allows only UTF-8");
      throw;
    }
  };

  std::vector<std::size_t> order(arrays.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::ranges::greater(),
                           [&](std::size_t i) { return dtype_size(arrays[i].second.dtype()); });
  std::vector<std::uint64_t> begin(arrays.size());
  std::uint64_t data_bytes = 0;
  for (const std::size_t i : order) {
    begin[i] = data_bytes;
    data_bytes += arrays[i].second.bytes();
  }

  std::string header = "{";
  const auto comma = [&] {
    if (header.back() != '{') header += ',';
  };
  if (!metadata.empty()) {
    header += fmt::format("\"{}\":{{", safetensors_metadata_key);
    for (const auto& [key, text] : metadata) {
      comma();
      header += quoted(key) + ":" + quoted(text);
    }
    header += '}';
  }
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const auto& [name, a] = arrays[i];
    if (name == safetensors_metadata_key)
      refuse(name, "this name is reserved for the file's metadata", "Use another name");
    if (!names.insert(name).second) refuse(name, "two arrays have this name", "Use unique names");
    comma();
    header += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", quoted(name),
                          safetensors_name(a.dtype()), fmt::join(a.shape(), ","), begin[i], begin[i] + a.bytes());
  }
  header += '}';
  header.resize((header.size() + 7) / 8 * 8, ' ');  // pads the header so that the elements are aligned
  if (header.size() > most_safetensors_header)
    fail<ArgumentError>(
        {.operation = "save_safetensors",
         .with = {{"file", path}, {"header", fmt::format("{} bytes", header.size())}},
         .wrong = fmt::format("the header exceeds the format's limit of {} bytes", most_safetensors_header),
         .remedy = "Save the arrays in several files, or use shorter names"});

  std::string bytes;
  bytes.reserve(8 + header.size() + data_bytes);
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(header.size() >> (8 * i) & 0xff);
  bytes += header;
  for (const std::size_t i : order) detail::append_bytes(bytes, arrays[i].second);
  os::write_text(path, bytes);
}

}  // namespace tessera
