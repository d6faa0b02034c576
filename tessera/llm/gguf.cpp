// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <type_traits>
#include <utility>
#include <variant>

#include "tessera/base/error.h"
#include "tessera/llm/ggml_blocks.h"
#include "tessera/llm/gguf_contents.h"
#include "tessera/llm/gguf_parser.h"
#include "tessera/llm/gguf_values.h"
#include "tessera/llm/hub/folder.h"
#include "tessera/llm/quantize_model.h"

namespace tessera {
namespace {

template <class T>
constexpr std::string_view target_name() {
  if constexpr (std::is_same_v<T, bool>)
    return "bool";
  else if constexpr (std::is_same_v<T, std::string>)
    return "string";
  else if constexpr (std::is_floating_point_v<T>)
    return "a floating-point number";
  else
    return "an integer";
}

// True if a value of type `From` in the file may be read as a `To`. The range of integers is checked separately.
template <class From, class To>
constexpr bool convertible() {
  if constexpr (std::is_same_v<From, To>)
    return true;
  else if constexpr (std::is_same_v<From, bool> || std::is_same_v<To, bool>)
    return false;
  else
    return (std::is_integral_v<From> && std::is_integral_v<To>) ||
           (std::is_floating_point_v<From> && std::is_floating_point_v<To>);
}

template <class T>
struct ElementOf {
  using Type = T;
  static constexpr bool is_vector = false;
};
template <class T>
struct ElementOf<std::vector<T>> {
  using Type = T;
  static constexpr bool is_vector = true;
};

}  // namespace

GgufFile::GgufFile() : contents_(std::make_unique<Contents>()) {}
GgufFile::GgufFile(GgufFile&& other) noexcept = default;
GgufFile& GgufFile::operator=(GgufFile&& other) noexcept = default;
GgufFile::~GgufFile() = default;

const std::string& GgufFile::name() const { return contents_->name; }
const std::string& GgufFile::name(const GgufTensor& tensor) const {
  if (contents_->source)
    if (const auto it = contents_->tensor_index.find(tensor.name); it != contents_->tensor_index.end())
      return contents_->source->origin(it->second);
  const auto& parts = contents_->parts;
  return tensor.part == 0 || tensor.part > parts.size() ? name() : parts[tensor.part - 1].name;
}
std::uint32_t GgufFile::version() const { return contents_->version; }
std::uint64_t GgufFile::alignment() const { return contents_->alignment; }
std::uint64_t GgufFile::data_offset() const { return contents_->data_offset; }
std::span<const GgufEntry> GgufFile::metadata() const { return contents_->entries; }
std::span<const GgufTensor> GgufFile::tensors() const { return contents_->tensors; }

GgufFile GgufFile::open(const std::string& path, std::optional<GgmlType> weights) {
  const auto refuse = [&](std::string wrong, std::string remedy) {
    fail<ArgumentError>({.operation = "load model",
                         .with = {{"path", path}, {"weights", ggml_type_text(*weights)}},
                         .wrong = std::move(wrong),
                         .remedy = std::move(remedy)});
  };
  const std::vector<GgmlType> can_convert_to = quantizable_types();
  if (weights && std::ranges::find(can_convert_to, *weights) == can_convert_to.end())
    refuse("weights cannot be converted to this type", "Use one of " + writable_formats_text());
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return hub::Folder::open(path, weights);
  if (weights)
    refuse("only the weights of a folder with safetensors files are converted", "Omit the type for a GGUF file");
  GgufFile out = open_one(path);
  out.check_split(false);
  out.join_parts();
  return out;
}

GgufFile GgufFile::open_one(const std::string& path) {
  GgufFile out;
  out.contents_->name = path;
  out.contents_->file.emplace(path);
  out.contents_->size = out.contents_->file->size();
  GgufParser(out).parse();
  return out;
}

GgufFile GgufFile::parse(std::span<const std::byte> bytes, std::string name) {
  GgufFile out;
  out.contents_->name = std::move(name);
  out.contents_->bytes = bytes;
  out.contents_->size = bytes.size();
  GgufParser(out).parse();
  out.check_split(true);
  return out;
}

void GgufFile::set_metadata(std::string key, GgufValue value) {
  if (const auto at = contents_->entry_index.find(key); at != contents_->entry_index.end()) {
    contents_->entries[at->second].value = std::move(value);
    return;
  }
  contents_->entry_index.emplace(key, contents_->entries.size());
  contents_->entries.push_back({std::move(key), std::move(value)});
}

void GgufFile::remove_metadata(std::string_view key) {
  const auto at = contents_->entry_index.find(key);
  if (at == contents_->entry_index.end()) return;
  const std::size_t removed = at->second;
  contents_->entries.erase(contents_->entries.begin() + static_cast<std::ptrdiff_t>(removed));
  contents_->entry_index.erase(at);
  for (auto& [name, i] : contents_->entry_index)
    if (i > removed) --i;
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto it = contents_->entry_index.find(key);
  return it == contents_->entry_index.end() ? nullptr : &contents_->entries[it->second].value;
}

const GgufEntry& GgufFile::entry(std::string_view key) const {
  const auto it = contents_->entry_index.find(key);
  if (it == contents_->entry_index.end())
    fail<FormatError>({.operation = "read GGUF",
                       .with = {{"file", contents_->name}, {"key", std::string(key)}},
                       .wrong = "the metadata does not contain this key",
                       .remedy = "The model cannot be loaded without it"});
  return contents_->entries[it->second];
}

template <class T>
void GgufFile::convert(const GgufEntry& entry, T& out) const {
  using Element = typename ElementOf<T>::Type;
  constexpr bool wants_array = ElementOf<T>::is_vector;
  const auto refuse = [&](std::string wrong) {
    fail<FormatError>(
        {.operation = "read GGUF",
         .with = {{"file", contents_->name}, {"offset", std::to_string(entry.offset)}, {"key", entry.key}},
         .wrong = std::move(wrong)});
  };
  const auto refuse_type = [&] {
    refuse(fmt::format("the value has type {}; expected {}{}", gguf_type_text(entry.value),
                       wants_array ? "an array of " : "", target_name<Element>()));
  };
  const auto assign = [&](const auto& from) {
    using From = std::decay_t<decltype(from)>;
    Element to{};
    if constexpr (std::is_integral_v<From> && std::is_integral_v<Element> && !std::is_same_v<From, bool> &&
                  !std::is_same_v<Element, bool>) {
      if (!std::in_range<Element>(from)) refuse(fmt::format("the value {} is out of range", from));
    }
    to = static_cast<Element>(from);
    return to;
  };
  if constexpr (wants_array) {
    const auto* array = std::get_if<GgufArray>(&entry.value);
    if (array == nullptr) return refuse_type();
    std::visit(
        [&](const auto& values) {
          using From = typename std::decay_t<decltype(values)>::value_type;
          if constexpr (convertible<From, Element>()) {
            out.reserve(values.size());
            for (std::size_t i = 0; i < values.size(); ++i) {
              const From from = values[i];
              out.push_back(assign(from));
            }
          } else {
            refuse_type();
          }
        },
        array->values);
  } else {
    std::visit(
        [&](const auto& value) {
          using From = std::decay_t<decltype(value)>;
          if constexpr (std::is_same_v<From, GgufArray>)
            refuse_type();
          else if constexpr (convertible<From, Element>())
            out = assign(value);
          else
            refuse_type();
        },
        entry.value);
  }
}

#define TESSERA_GGUF_TARGET(...)                                         \
  template void GgufFile::convert(const GgufEntry&, __VA_ARGS__&) const; \
  template void GgufFile::convert(const GgufEntry&, std::vector<__VA_ARGS__>&) const;
TESSERA_GGUF_TARGET(bool)
TESSERA_GGUF_TARGET(std::uint8_t)
TESSERA_GGUF_TARGET(std::int8_t)
TESSERA_GGUF_TARGET(std::uint16_t)
TESSERA_GGUF_TARGET(std::int16_t)
TESSERA_GGUF_TARGET(std::uint32_t)
TESSERA_GGUF_TARGET(std::int32_t)
TESSERA_GGUF_TARGET(std::uint64_t)
TESSERA_GGUF_TARGET(std::int64_t)
TESSERA_GGUF_TARGET(float)
TESSERA_GGUF_TARGET(double)
TESSERA_GGUF_TARGET(std::string)
#undef TESSERA_GGUF_TARGET

const std::vector<std::string>& GgufFile::get_strings(std::string_view key) const {
  const GgufEntry& found = entry(key);
  if (const auto* array = std::get_if<GgufArray>(&found.value))
    if (const auto* strings = std::get_if<std::vector<std::string>>(&array->values)) return *strings;
  fail<FormatError>(
      {.operation = "read GGUF",
       .with = {{"file", contents_->name}, {"offset", std::to_string(found.offset)}, {"key", found.key}},
       .wrong = fmt::format("the value has type {}; expected an array of string", gguf_type_text(found.value))});
}

const GgufTensor* GgufFile::find_tensor(std::string_view name) const {
  const auto it = contents_->tensor_index.find(name);
  return it == contents_->tensor_index.end() ? nullptr : &contents_->tensors[it->second];
}

const GgufTensor& GgufFile::tensor(std::string_view name) const {
  const GgufTensor* found = find_tensor(name);
  if (found == nullptr)
    fail<FormatError>({.operation = "read GGUF",
                       .with = {{"file", contents_->name}, {"tensor", std::string(name)}},
                       .wrong = "the file does not contain this tensor",
                       .remedy = "The model cannot be loaded without it"});
  return *found;
}

void GgufFile::read(const GgufTensor& tensor, std::uint64_t offset, std::span<std::byte> to) const {
  const Contents::Part* const part =
      tensor.part == 0 || tensor.part > contents_->parts.size() ? nullptr : &contents_->parts[tensor.part - 1];
  const std::uint64_t begin = (part ? part->data_offset : contents_->data_offset) + tensor.offset,
                      size = part ? part->size : contents_->size;
  const GgufTensor* const known = contents_->source ? find_tensor(tensor.name) : nullptr;
  // This can only fail for a tensor of a different file.
  if (contents_->source ? !known || known->bytes != tensor.bytes
                        : tensor.part > contents_->parts.size() || begin > size || tensor.bytes > size - begin)
    fail<ArgumentError>({.operation = "read GGUF",
                         .with = {{"file", contents_->name}, {"tensor", tensor.name}},
                         .wrong = "the tensor does not belong to this file"});
  if (offset > tensor.bytes || to.size() > tensor.bytes - offset)
    fail<ArgumentError>({.operation = "read GGUF",
                         .with = {{"file", contents_->name},
                                  {"tensor", tensor.name},
                                  {"bytes", std::to_string(tensor.bytes)},
                                  {"requested", fmt::format("{} bytes from offset {}", to.size(), offset)}},
                         .wrong = "the range exceeds the size of the tensor"});
  if (to.empty()) return;
  if (known)
    contents_->source->read(static_cast<std::size_t>(known - contents_->tensors.data()), offset, to);
  else if (part)
    part->file.read(begin + offset, to);
  else if (contents_->file)
    contents_->file->read(begin + offset, to);
  else
    std::memcpy(to.data(), contents_->bytes.data() + begin + offset, to.size());
}

std::vector<std::byte> GgufFile::data(const GgufTensor& tensor) const {
  read(tensor, 0, {});  // check the size of the tensor before allocating memory
  std::vector<std::byte> out(tensor.bytes);
  read(tensor, 0, out);
  return out;
}

void GgufFile::require_supported(const GgufTensor& tensor) const {
  if (!ggml_type_supported(tensor.type))
    fail<FormatError>({.operation = "use tensor",
                       .with = {{"file", name(tensor)}, {"tensor", tensor.name}, {"type", ggml_type_text(tensor.type)}},
                       .wrong = "this tensor type is not supported",
                       .remedy = "Quantise the model to a supported type (" + supported_ggml_types() + ")"});
}

}  // namespace tessera
