// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/gguf_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <type_traits>
#include <variant>

#include "tessera/base/error.h"
#include "tessera/base/os/atomic_file.h"
#include "tessera/llm/gguf_values.h"

namespace tessera {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF files contain little-endian numbers");

class Output {
 public:
  template <class T>
    requires std::is_arithmetic_v<T>
  void put(T value) {
    put_bytes(std::as_bytes(std::span(&value, 1)));
  }
  void put(bool value) { put(static_cast<std::uint8_t>(value)); }
  void put(const std::string& text) {
    put(static_cast<std::uint64_t>(text.size()));
    put_bytes(std::as_bytes(std::span(text)));
  }
  void put(const GgufArray& array) {
    put(static_cast<std::uint32_t>(array.element_type()));
    put(static_cast<std::uint64_t>(array.size()));
    std::visit(
        [this](const auto& values) {
          using Element = typename std::decay_t<decltype(values)>::value_type;
          for (std::size_t i = 0; i < values.size(); ++i) {
            if constexpr (std::is_same_v<Element, bool>)
              put(static_cast<bool>(values[i]));
            else
              put(values[i]);
          }
        },
        array.values);
  }
  void put(const GgufValue& value) {
    put(static_cast<std::uint32_t>(value.index()));
    std::visit([this](const auto& v) { put(v); }, value);
  }
  void put_bytes(std::span<const std::byte> data) {
    if (data.empty()) return;
    const std::size_t at = bytes_.size();
    bytes_.resize(at + data.size());  // not `insert`, because g++ 12 wrongly warns about an overflow in it
    std::memcpy(bytes_.data() + at, data.data(), data.size());
  }
  void pad(std::uint64_t alignment) { bytes_.resize((bytes_.size() + alignment - 1) / alignment * alignment); }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

[[noreturn]] void refuse(std::string_view what, const std::string& name, std::string wrong) {
  fail<ArgumentError>({.operation = "write GGUF", .with = {{what, name}}, .wrong = std::move(wrong)});
}

}  // namespace

GgufWriter::GgufWriter(std::uint32_t version, std::uint32_t alignment) : version_(version), alignment_(alignment) {
  if (version != 2 && version != 3) refuse("version", std::to_string(version), "the version must be 2 or 3");
  if (!std::has_single_bit(alignment))
    refuse("alignment", std::to_string(alignment), "the alignment must be a power of two");
  if (alignment != 32) entries_.emplace_back("general.alignment", alignment);
}

GgufWriter& GgufWriter::set(std::string key, GgufValue value) {
  if (key.empty() || key.size() > 65535) refuse("key", key, "a key must have 1 to 65535 bytes");
  if (key == "general.alignment") refuse("key", key, "pass the alignment to the constructor");
  if (std::any_of(entries_.begin(), entries_.end(), [&](const auto& e) { return e.first == key; }))
    refuse("key", key, "the key already exists");
  entries_.emplace_back(std::move(key), std::move(value));
  return *this;
}

const GgufTensor& GgufWriter::add_info(std::string name, std::vector<std::uint64_t> dims, GgmlType type) {
  if (name.empty() || name.size() > 64) refuse("tensor", name, "a name must have 1 to 64 bytes");
  if (std::any_of(tensors_.begin(), tensors_.end(), [&](const auto& t) { return t.info.name == name; }))
    refuse("tensor", name, "the tensor already exists");
  const GgmlTypeInfo* info = ggml_type_info(type);
  if (info == nullptr) refuse("tensor", name, "the type is " + ggml_type_text(type));
  if (dims.empty() || dims.size() > 4) refuse("tensor", name, "a tensor must have one to four dimensions");
  const auto bytes = ggml_tensor_bytes(*info, dims);
  if (!bytes)
    refuse("tensor", name, fmt::format("the shape ({}) does not fit type {}", fmt::join(dims, ", "), info->name));
  const GgufTensor* last = tensors_.empty() ? nullptr : &tensors_.back().info;
  const std::uint64_t offset =
      last ? (last->offset + last->bytes + alignment_ - 1) / alignment_ * alignment_ : std::uint64_t{0};
  const std::uint64_t elements = *bytes / info->bytes * info->block;
  tensors_.push_back({{std::move(name), std::move(dims), type, offset, *bytes, elements}, {}, {}});
  return tensors_.back().info;
}

GgufWriter& GgufWriter::add_tensor(std::string name, std::vector<std::uint64_t> dims, GgmlType type,
                                   std::span<const std::byte> data) {
  const GgufTensor& info = add_info(std::move(name), std::move(dims), type);
  if (info.bytes != data.size()) {
    const std::string wrong = fmt::format("the data has {} bytes; type and shape require {}", data.size(), info.bytes);
    const std::string which = info.name;
    tensors_.pop_back();
    refuse("tensor", which, wrong);
  }
  tensors_.back().data.assign(data.begin(), data.end());
  return *this;
}

GgufWriter& GgufWriter::add_tensor(std::string name, std::vector<std::uint64_t> dims, GgmlType type,
                                   Callback<void(std::span<std::byte>)> make) {
  add_info(std::move(name), std::move(dims), type);
  tensors_.back().make = std::move(make);
  return *this;
}

std::vector<std::byte> GgufWriter::head() const {
  Output out;
  out.put_bytes(std::as_bytes(std::span("GGUF", 4)));
  out.put(version_);
  out.put(static_cast<std::uint64_t>(tensors_.size()));
  out.put(static_cast<std::uint64_t>(entries_.size()));
  for (const auto& [key, value] : entries_) {
    out.put(key);
    out.put(value);
  }
  for (const Tensor& t : tensors_) {
    out.put(t.info.name);
    out.put(static_cast<std::uint32_t>(t.info.dims.size()));
    for (const std::uint64_t dim : t.info.dims) out.put(dim);
    out.put(static_cast<std::uint32_t>(t.info.type));
    out.put(t.info.offset);
  }
  out.pad(alignment_);
  return out.take();
}

template <class Put>
void GgufWriter::put_tensors(const Put& put) const {
  std::vector<std::byte> made;
  for (const Tensor& t : tensors_) {
    if (t.make) {
      made.assign(t.info.bytes, std::byte{});
      t.make(made);
    }
    put(std::span(t.make ? made : t.data));
    const std::vector<std::byte> padding((alignment_ - t.info.bytes % alignment_) % alignment_);
    put(std::span(padding));
  }
}

std::vector<std::byte> GgufWriter::bytes() const {
  std::vector<std::byte> all = head();
  put_tensors([&](std::span<const std::byte> part) { all.insert(all.end(), part.begin(), part.end()); });
  return all;
}

void GgufWriter::write(const std::string& path) const {
  os::AtomicFile file(path, {.makes_folders = false});
  const auto put = [&](std::span<const std::byte> part) {
    file.write({reinterpret_cast<const char*>(part.data()), part.size()});
  };
  put(head());
  put_tensors(put);
  file.commit();
}

}  // namespace tessera
