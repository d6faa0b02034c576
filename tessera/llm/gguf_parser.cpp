// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/gguf_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <variant>

#include "tessera/base/error.h"
#include "tessera/llm/gguf_contents.h"
#include "tessera/llm/gguf_values.h"

namespace tessera {
namespace {

constexpr const char* incomplete = "The file is damaged or incomplete";
constexpr std::uint64_t max_key_bytes = 65535;       // docs/gguf.md
constexpr std::uint64_t max_tensor_name_bytes = 64;  // docs/gguf.md
constexpr int max_array_depth = 8;                   // no known file nests arrays; the format sets no limit
// Limit on the memory for metadata and tensor descriptions. Known files need less than 2^26 bytes. Without a limit, a
// sparse file that takes a few kilobytes on disk could use gigabytes of memory: its zeros are parsed as empty strings,
// which take 32 bytes each.
constexpr std::uint64_t max_memory = 1u << 28;
constexpr std::uint64_t in_index = 96;  // bytes of an entry in a std::map, without its name
constexpr std::uint64_t max_signed = std::numeric_limits<std::int64_t>::max();

// Minimum sizes in the file, used to reject counts that cannot be right. In a large file, a wrong count may pass this
// check, so `reservation` limits the memory that is allocated before the elements are read.
constexpr std::uint64_t min_entry_bytes = 8 + 1 + 4 + 1;
constexpr std::uint64_t min_tensor_bytes = 8 + 1 + 4 + 8 + 4 + 8;
std::uint64_t min_element_bytes(GgufType type) {
  if (type == GgufType::string) return 8;
  if (type == GgufType::array) return 4 + 8;
  return gguf_type_size(type);
}
std::size_t reservation(std::uint64_t count) { return static_cast<std::size_t>(std::min<std::uint64_t>(count, 4096)); }

}  // namespace

void GgufParser::fail_at(std::uint64_t offset, std::string_view field, std::string wrong, std::string remedy) const {
  fail<FormatError>(
      {.operation = "read GGUF",
       .with = {{"file", file_.contents_->name}, {"offset", std::to_string(offset)}, {"field", std::string(field)}},
       .wrong = std::move(wrong),
       .remedy = std::move(remedy)});
}

void GgufParser::need(std::uint64_t size, std::string_view field) const {
  if (size > remaining())
    fail_at(at_, field, fmt::format("unexpected end of file: {} bytes are needed and {} are left", size, remaining()),
            incomplete);
}

void GgufParser::copy_anew(void* to, std::size_t size) {
  if (!file_.contents_->file) {
    piece_ = file_.contents_->bytes, piece_at_ = 0;
    return size != 0 ? copy(to, size) : void();
  }
  constexpr std::size_t piece_bytes = std::size_t{256} << 10;
  if (size >= piece_bytes) {
    file_.contents_->file->read(at_, {static_cast<std::byte*>(to), size});
    at_ += size;
    return;
  }
  memory_.resize(static_cast<std::size_t>(std::min<std::uint64_t>(piece_bytes, remaining())));
  piece_ = {};  // remains empty if the read throws
  file_.contents_->file->read(at_, memory_);
  piece_ = memory_, piece_at_ = at_;
  if (size != 0) copy(to, size);
}

template <class T>
T GgufParser::number(std::string_view field) {
  need(sizeof(T), field);
  T out;
  copy(&out, sizeof(T));
  return out;
}

void GgufParser::take(std::uint64_t size, std::string_view field) {
  taken_ += size;
  if (taken_ > max_memory)
    fail_at(at_, field, fmt::format("the metadata needs more than the {} bytes of memory allowed", max_memory),
            "The file is damaged or malicious");
}

std::string GgufParser::text(std::string_view field, std::uint64_t limit) {
  const std::uint64_t start = at_;
  const auto size = number<std::uint64_t>(field);
  if (size > remaining())
    fail_at(start, field, fmt::format("the length {} exceeds the file ({} bytes are left)", size, remaining()),
            incomplete);
  if (size > limit) fail_at(start, field, fmt::format("the length {} is more than the {} allowed", size, limit));
  take(size, field);
  std::string out(size, '\0');
  copy(out.data(), size);
  return out;
}

GgufType GgufParser::value_type(std::string_view field) {
  const std::uint64_t start = at_;
  const auto id = number<std::uint32_t>(field);
  if (id >= gguf_type_count)
    fail_at(start, field, fmt::format("the value type is {}; valid types are 0 to {}", id, gguf_type_count - 1));
  return static_cast<GgufType>(id);
}

template <class T>
void GgufParser::elements(std::vector<T>& out, std::uint64_t count, std::string_view field, int depth) {
  out.reserve(reservation(count));
  for (std::uint64_t i = 0; i < count; ++i) {
    take(sizeof(T), field);
    if constexpr (std::is_same_v<T, std::string>) {
      out.push_back(text(field, max_memory));
    } else if constexpr (std::is_same_v<T, GgufArray>) {
      out.push_back(array(field, depth + 1));
    } else if constexpr (std::is_same_v<T, bool>) {
      const std::uint64_t start = at_;
      const auto byte = number<std::uint8_t>(field);
      if (byte > 1) fail_at(start, field, fmt::format("a bool is {}; it must be 0 or 1", byte));
      out.push_back(byte != 0);
    } else {
      out.push_back(number<T>(field));
    }
  }
}

GgufArray GgufParser::array(std::string_view field, int depth) {
  if (depth > max_array_depth) fail_at(at_, field, fmt::format("arrays are nested more than {} deep", max_array_depth));
  const GgufType type = value_type(field);
  const std::uint64_t start = at_;
  const auto count = number<std::uint64_t>(field);
  if (count > remaining() / min_element_bytes(type))
    fail_at(
        start, field,
        fmt::format("{} elements of type {} do not fit in the {} bytes left", count, gguf_type_name(type), remaining()),
        incomplete);
  if (count > max_memory / min_element_bytes(type))
    fail_at(start, field, fmt::format("{} elements need more memory than the {} bytes allowed", count, max_memory));
  GgufArray out;
  switch (type) {
#define TESSERA_GGUF_ELEMENTS(name, ...) \
  case GgufType::name: elements(out.values.emplace<std::vector<__VA_ARGS__>>(), count, field, depth); break;
    TESSERA_GGUF_ELEMENTS(u8, std::uint8_t)
    TESSERA_GGUF_ELEMENTS(i8, std::int8_t)
    TESSERA_GGUF_ELEMENTS(u16, std::uint16_t)
    TESSERA_GGUF_ELEMENTS(i16, std::int16_t)
    TESSERA_GGUF_ELEMENTS(u32, std::uint32_t)
    TESSERA_GGUF_ELEMENTS(i32, std::int32_t)
    TESSERA_GGUF_ELEMENTS(f32, float)
    TESSERA_GGUF_ELEMENTS(boolean, bool)
    TESSERA_GGUF_ELEMENTS(string, std::string)
    TESSERA_GGUF_ELEMENTS(array, GgufArray)
    TESSERA_GGUF_ELEMENTS(u64, std::uint64_t)
    TESSERA_GGUF_ELEMENTS(i64, std::int64_t)
    TESSERA_GGUF_ELEMENTS(f64, double)
#undef TESSERA_GGUF_ELEMENTS
  }
  return out;
}

GgufValue GgufParser::value(std::string_view field) {
  const GgufType type = value_type(field);
  switch (type) {
    case GgufType::u8: return number<std::uint8_t>(field);
    case GgufType::i8: return number<std::int8_t>(field);
    case GgufType::u16: return number<std::uint16_t>(field);
    case GgufType::i16: return number<std::int16_t>(field);
    case GgufType::u32: return number<std::uint32_t>(field);
    case GgufType::i32: return number<std::int32_t>(field);
    case GgufType::f32: return number<float>(field);
    case GgufType::boolean: {
      std::vector<bool> one;  // `elements` checks that the byte is 0 or 1
      elements(one, 1, field, 0);
      return static_cast<bool>(one[0]);
    }
    case GgufType::string: return text(field, max_memory);
    case GgufType::array: return array(field, 1);
    case GgufType::u64: return number<std::uint64_t>(field);
    case GgufType::i64: return number<std::int64_t>(field);
    case GgufType::f64: return number<double>(field);
  }
  fail_at(at_, field, "the value type is unknown");
}

void GgufParser::header() {
  need(4, "magic");
  std::string magic(4, '\0');
  copy(magic.data(), 4);
  if (magic != "GGUF")
    fail_at(0, "magic", fmt::format("the file begins with {}; a GGUF file begins with \"GGUF\"", quote_text(magic)),
            "Use a model file in GGUF format");
  const auto version = number<std::uint32_t>("version");
  if (version == 1)
    fail_at(4, "version", "version 1 is not supported; versions 2 and 3 are",
            "Convert the model again with a current converter");
  if (version != 0 && (version & 0xffffu) == 0)
    fail_at(4, "version", fmt::format("the version is {:#x}: big-endian files are not supported", version),
            "Convert the model again for little-endian machines");
  if (version != 2 && version != 3)
    fail_at(4, "version", fmt::format("the version is {}; versions 2 and 3 are supported", version),
            version > 3 ? "A newer version of Tessera may support it" : "The file is damaged");
  file_.contents_->version = version;
  tensor_count_ = number<std::uint64_t>("tensor count");
  entry_count_ = number<std::uint64_t>("metadata count");
  if (tensor_count_ > remaining() / min_tensor_bytes)
    fail_at(8, "tensor count",
            fmt::format("{} tensors do not fit in a file of {} bytes", tensor_count_, file_.contents_->size),
            incomplete);
  if (entry_count_ > remaining() / min_entry_bytes)
    fail_at(16, "metadata count",
            fmt::format("{} entries do not fit in a file of {} bytes", entry_count_, file_.contents_->size),
            incomplete);
}

void GgufParser::metadata() {
  file_.contents_->entries.reserve(reservation(entry_count_));
  for (std::uint64_t i = 0; i < entry_count_; ++i) {
    const std::uint64_t start = at_;
    const std::string key_field = fmt::format("metadata[{}] key", i);
    std::string key = text(key_field, max_key_bytes);
    take(sizeof(GgufEntry) + in_index + key.size(), key_field);
    if (key.empty()) fail_at(start, key_field, "the key is empty");
    if (!file_.contents_->entry_index.emplace(key, i).second)
      fail_at(start, key_field, fmt::format("the key {} occurs twice", quote_text(key)));
    const std::string value_field = fmt::format("metadata[{}] {} value", i, quote_text(key));
    GgufValue read = value(value_field);
    file_.contents_->entries.push_back({std::move(key), std::move(read), start});
  }
}

void GgufParser::alignment() {
  const auto it = file_.contents_->entry_index.find("general.alignment");
  if (it == file_.contents_->entry_index.end()) return;
  const GgufEntry& entry = file_.contents_->entries[it->second];
  const auto* alignment = std::get_if<std::uint32_t>(&entry.value);
  if (alignment == nullptr)
    fail_at(entry.offset, "general.alignment",
            fmt::format("the alignment has type {}; it must be u32", gguf_type_text(entry.value)));
  if (!std::has_single_bit(*alignment))
    fail_at(entry.offset, "general.alignment",
            fmt::format("the alignment is {}; it must be a power of two", *alignment));
  file_.contents_->alignment = *alignment;
}

GgufTensor GgufParser::tensor(std::uint64_t index, std::uint64_t& next_offset) {
  GgufTensor out;
  const std::uint64_t start = at_;
  const std::string name_field = fmt::format("tensor[{}] name", index);
  out.name = text(name_field, max_tensor_name_bytes);
  take(sizeof(GgufTensor) + in_index + out.name.size() + 4 * sizeof(std::uint64_t), name_field);
  if (out.name.empty()) fail_at(start, name_field, "the name is empty");
  if (!file_.contents_->tensor_index.emplace(out.name, index).second)
    fail_at(start, name_field, fmt::format("the tensor {} occurs twice", quote_text(out.name)));
  const auto field = [&](std::string_view part) {
    return fmt::format("tensor[{}] {} {}", index, quote_text(out.name), part);
  };

  const std::uint64_t count_at = at_;
  const auto count = number<std::uint32_t>(field("dimension count"));
  if (count < 1 || count > 4)
    fail_at(count_at, field("dimension count"),
            fmt::format("the tensor has {} dimensions; it must have 1 to 4", count));
  const std::uint64_t dims_at = at_;
  out.elements = 1;
  for (std::uint32_t d = 0; d < count; ++d) {
    const std::uint64_t dim_at = at_;
    const auto dim_field = field(fmt::format("dimension {}", d));
    const auto dim = number<std::uint64_t>(dim_field);
    if (dim == 0) fail_at(dim_at, dim_field, "the dimension is 0");
    if (dim > max_signed)
      fail_at(dim_at, dim_field, fmt::format("the dimension is negative ({})", static_cast<std::int64_t>(dim)));
    if (dim > max_signed / out.elements)
      fail_at(dim_at, dim_field, fmt::format("the number of elements exceeds 2^63 at this dimension of {}", dim));
    out.elements *= dim;
    out.dims.push_back(dim);
  }

  const std::uint64_t type_at = at_;
  const auto type_id = number<std::uint32_t>(field("type"));
  const GgmlTypeInfo* info = ggml_type_info(type_id);
  if (info == nullptr)
    fail_at(type_at, field("type"), fmt::format("the type is {}", ggml_type_text(type_id)), "Quantise the model again");
  out.type = info->type;
  if (out.dims[0] % info->block != 0)
    fail_at(dims_at, field("dimension 0"),
            fmt::format("a row has {} elements, which is not a multiple of the block size {} of {}", out.dims[0],
                        info->block, ggml_type_text(type_id)));
  const auto bytes = ggml_tensor_bytes(*info, out.dims);
  if (!bytes)
    fail_at(dims_at, field("dimension 0"),
            fmt::format("{} elements of {} are more than 2^63 bytes", out.elements, ggml_type_text(type_id)));
  out.bytes = *bytes;

  const std::uint64_t offset_at = at_;
  out.offset = number<std::uint64_t>(field("offset"));
  if (out.offset % file_.contents_->alignment != 0)
    fail_at(offset_at, field("offset"),
            fmt::format("the offset {} is not a multiple of the alignment {}", out.offset, file_.contents_->alignment));
  if (out.offset != next_offset)
    fail_at(offset_at, field("offset"),
            fmt::format("the offset is {}; after the previous tensors it must be {}", out.offset, next_offset));
  const std::uint64_t end = next_offset + out.bytes;  // cannot overflow: both are below 2^63
  if (end > max_signed - file_.contents_->alignment)
    fail_at(dims_at, field("dimension 0"), "the tensors up to this one exceed 2^63 bytes in total");
  next_offset = (end + file_.contents_->alignment - 1) / file_.contents_->alignment * file_.contents_->alignment;
  return out;
}

void GgufParser::tensors() {
  file_.contents_->tensors.reserve(reservation(tensor_count_));
  std::uint64_t next_offset = 0;
  for (std::uint64_t i = 0; i < tensor_count_; ++i) file_.contents_->tensors.push_back(tensor(i, next_offset));
}

void GgufParser::data_section() {
  file_.contents_->data_offset =
      (at_ + file_.contents_->alignment - 1) / file_.contents_->alignment * file_.contents_->alignment;
  for (std::size_t i = 0; i < file_.contents_->tensors.size(); ++i) {
    const GgufTensor& t = file_.contents_->tensors[i];
    // No overflow: offset + size of a tensor is below 2^63, and so is the offset of the data section.
    const std::uint64_t begin = file_.contents_->data_offset + t.offset, end = begin + t.bytes;
    if (end > file_.contents_->size)
      fail_at(begin, fmt::format("tensor[{}] {} data", i, quote_text(t.name)),
              fmt::format("the data ends at byte {}, but the file ends at byte {}", end, file_.contents_->size),
              "The file is incomplete; copy or download it again");
  }
}

void GgufParser::parse() {
  header();
  metadata();
  alignment();
  tensors();
  data_section();
}

}  // namespace tessera
