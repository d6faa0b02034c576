// SPDX-License-Identifier: Apache-2.0
#include "tessera/array/safetensors_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "tessera/array/safetensors_contents.h"

namespace tessera {

namespace {

constexpr std::pair<std::string_view, DType> names[] = {
    {"BOOL", DType::boolean}, {"U8", DType::u8},     {"I8", DType::i8},   {"U16", DType::u16}, {"I16", DType::i16},
    {"F16", DType::f16},      {"BF16", DType::bf16}, {"U32", DType::u32}, {"I32", DType::i32}, {"F32", DType::f32},
    {"U64", DType::u64},      {"I64", DType::i64},   {"F64", DType::f64}};

/// Quotes a name. Long names are truncated, because a name may be as long as the header.
std::string shown(std::string_view name) {
  constexpr std::size_t most = 100;
  return fmt::format("\"{}{}\"", name.substr(0, most), name.size() > most ? "..." : "");
}

/// An input iterator over the header for nlohmann's parser. It records how far the parser has read.
struct Letters {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;
  const char* at;
  const char** seen;
  reference operator*() const { return *at; }
  Letters& operator++() {
    *seen = ++at;
    return *this;
  }
  Letters operator++(int) {
    const Letters before = *this;
    ++*this;
    return before;
  }
  bool operator==(const Letters& other) const { return at == other.at; }
};

}  // namespace

std::optional<DType> dtype_of_safetensors(std::string_view name) {
  for (const auto& [text, dtype] : names)
    if (text == name) return dtype;
  return std::nullopt;
}
std::string_view safetensors_name(DType dtype) {
  return std::ranges::find(names, dtype, &std::pair<std::string_view, DType>::second)->first;
}

void SafetensorsHeader::bad(std::uint64_t at, const std::string& wrong) const { file_.bad(8 + at, field(), wrong); }

std::string SafetensorsHeader::field() const {
  switch (place_) {
    case Place::outside:
    case Place::file: return "header";
    case Place::metadata: return fmt::format("metadata {}", shown(key_));
    case Place::shape: return fmt::format("tensor {} shape", shown(tensor_.name));
    case Place::offsets: return fmt::format("tensor {} data_offsets", shown(tensor_.name));
    case Place::tensor: break;
  }
  return fmt::format("tensor {}{}{}", shown(tensor_.name), key_.empty() ? "" : " ",
                     key_.empty() ? "" : shown(key_).substr(1, shown(key_).size() - 2));
}

std::uint64_t SafetensorsHeader::token() {
  const std::size_t begin = text_.find_first_not_of(" \t\r\n,:", token_end_);
  token_end_ = static_cast<std::uint64_t>(seen_ - text_.data());
  return begin == std::string_view::npos ? text_.size() : begin;
}

void SafetensorsHeader::not_json(std::size_t position, std::string_view why) const {
  // "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
  if (const std::size_t column = why.find("column "); column != std::string_view::npos)
    if (const std::size_t colon = why.find(": ", column); colon != std::string_view::npos) why.remove_prefix(colon + 2);
  file_.bad(8 + (position == 0 ? 0 : position - 1), "header", fmt::format("this is not JSON: {}", why.substr(0, 160)));
}

void SafetensorsHeader::unexpected(const char* found) {
  const std::uint64_t at = token();
  const char* wanted = "an object";
  if (place_ == Place::metadata) wanted = "a string";
  if (place_ == Place::shape || place_ == Place::offsets) wanted = "a non-negative integer";
  if (place_ == Place::tensor) wanted = key_ == "dtype" ? "a string" : "a list of numbers";
  if (place_ == Place::file)
    file_.bad(8 + at,
              key_ == safetensors_metadata_key ? std::string("metadata") : fmt::format("tensor {}", shown(key_)),
              fmt::format("found {}, expected an object", found));
  bad(at, fmt::format("found {}, expected {}", found, wanted));
}

bool SafetensorsHeader::start_object(std::size_t) {
  if (place_ == Place::outside) {
    token();
    place_ = Place::file;
    return true;
  }
  if (place_ != Place::file) unexpected("an object");
  token();
  if (key_ == safetensors_metadata_key) {
    place_ = Place::metadata;
    has_metadata_ = true;
    key_.clear();
    return true;
  }
  place_ = Place::tensor;
  tensor_ = {};
  tensor_.name = std::exchange(key_, {});
  tensor_.described_at = 8 + tensor_at_;
  has_dtype_ = has_shape_ = has_offsets_ = false;
  return true;
}

bool SafetensorsHeader::key(std::string& value) {
  const std::uint64_t at = token();
  if (place_ == Place::file) {
    if (value == safetensors_metadata_key ? has_metadata_ : file_.contents_->index.contains(value))
      bad(at, fmt::format("the name {} occurs twice", shown(value)));
    tensor_at_ = at;
  } else if (place_ == Place::metadata) {
    if (file_.contents_->metadata.contains(value)) bad(at, fmt::format("the key {} occurs twice", shown(value)));
  } else {
    const bool shape = value == "shape", offsets = value == "data_offsets";
    key_ = value;
    if (!shape && !offsets && value != "dtype") bad(at, "unknown key: a tensor has only dtype, shape and data_offsets");
    if (shape ? has_shape_ : offsets ? has_offsets_ : has_dtype_) bad(at, "this key occurs twice");
  }
  key_ = std::move(value);
  return true;
}

bool SafetensorsHeader::string(std::string& value) {
  if (place_ != Place::metadata && !(place_ == Place::tensor && key_ == "dtype")) unexpected("a string");
  token();
  if (place_ == Place::metadata) {
    file_.contents_->metadata.emplace(key_, std::move(value));
  } else {
    has_dtype_ = true;
    tensor_.dtype = dtype_of_safetensors(value);
    tensor_.dtype_name = std::move(value);
  }
  return true;
}

bool SafetensorsHeader::start_array(std::size_t) {
  if (place_ != Place::tensor || key_ == "dtype") unexpected("a list");
  const bool shape = key_ == "shape";
  (shape ? shape_at_ : offsets_at_) = token();
  (shape ? has_shape_ : has_offsets_) = true;
  place_ = shape ? Place::shape : Place::offsets;
  numbers_ = 0;
  return true;
}

bool SafetensorsHeader::number_unsigned(std::uint64_t value) {
  if (place_ != Place::shape && place_ != Place::offsets) unexpected("a number");
  const std::uint64_t at = token();
  if (place_ == Place::shape) {
    if (value > static_cast<std::uint64_t>(most_elements)) bad(at, fmt::format("the extent {} exceeds 2^48", value));
    tensor_.shape.push_back(static_cast<std::int64_t>(value));
  } else {
    if (numbers_ == 2) bad(at, "there are more than two offsets");
    offsets_[numbers_] = value;
  }
  ++numbers_;
  return true;
}

bool SafetensorsHeader::end_array() {
  token();
  if (place_ == Place::offsets) {
    if (numbers_ != 2) bad(offsets_at_, fmt::format("two offsets are needed, but there are {}", numbers_));
    if (offsets_[0] > offsets_[1])
      bad(offsets_at_, fmt::format("the data end at {}, before they begin at {}", offsets_[1], offsets_[0]));
  }
  place_ = Place::tensor;
  return true;
}

bool SafetensorsHeader::end_object() {
  token();
  if (place_ == Place::tensor) finish_tensor();
  place_ = place_ == Place::file ? Place::outside : Place::file;
  return true;
}

void SafetensorsHeader::finish_tensor() {
  key_.clear();
  for (const auto& [there, what] :
       {std::pair(has_dtype_, "dtype"), std::pair(has_shape_, "shape"), std::pair(has_offsets_, "data_offsets")})
    if (!there) bad(tensor_at_, fmt::format("the tensor has no {}", what));
  std::int64_t most = 1;
  bool none = false;
  for (const std::int64_t extent : tensor_.shape) {
    none |= extent == 0;
    if (extent != 0 && (__builtin_mul_overflow(most, extent, &most) || most > most_elements)) {
      key_ = "shape";
      bad(shape_at_, fmt::format("the tensor has more than 2^48 elements"));
    }
  }
  const std::uint64_t bytes = offsets_[1] - offsets_[0];
  key_ = "data_offsets";
  if (tensor_.dtype) {
    const std::uint64_t count = none ? 0 : static_cast<std::uint64_t>(most),
                        needed = count * dtype_size(*tensor_.dtype);
    if (needed != bytes)
      bad(offsets_at_, fmt::format("{} elements of {} take {} bytes, but the offsets span {}", count,
                                   tensor_.dtype_name, needed, bytes));
  }
  const std::uint64_t data_at = 8 + text_.size(), left = file_.contents_->size - data_at;
  if (offsets_[1] > left)
    bad(offsets_at_,
        fmt::format("the data end at byte {} after the header, but the file ends at {}", offsets_[1], left));
  tensor_.offset = data_at + offsets_[0];
  tensor_.bytes = bytes;
  key_.clear();
  file_.contents_->index.emplace(tensor_.name, file_.contents_->tensors.size());
  file_.contents_->tensors.push_back(std::move(tensor_));
}

void SafetensorsHeader::check_layout() {
  const auto& all = file_.contents_->tensors;
  std::vector<std::size_t> order(all.size());
  std::iota(order.begin(), order.end(), 0);
  const auto place = [&](std::size_t i) { return std::pair(all[i].offset, all[i].bytes); };
  std::ranges::stable_sort(order, {}, place);
  std::uint64_t end = 8 + text_.size();
  const SafetensorsTensor* before = nullptr;
  for (const std::size_t i : order) {
    const SafetensorsTensor& t = all[i];
    const std::string field = fmt::format("tensor {} data_offsets", shown(t.name));
    if (t.offset < end)
      file_.bad(t.described_at, field, fmt::format("the data overlap those of {}", shown(before->name)));
    if (t.offset > end)
      file_.bad(t.described_at, field, fmt::format("{} bytes before the data belong to no tensor", t.offset - end));
    end = t.offset + t.bytes;
    before = &t;
  }
  if (end != file_.contents_->size)
    file_.bad(end, "data",
              fmt::format("{} bytes after the last tensor belong to no tensor", file_.contents_->size - end));
}

void SafetensorsHeader::parse() {
  if (text_.empty() || text_[0] != '{') file_.bad(8, "header", "the header does not begin with {");
  // nlohmann's parser treats a zero byte as the end of the input.
  if (const std::size_t zero = text_.find('\0'); zero != std::string_view::npos)
    file_.bad(8 + zero, "header", "this is not JSON: it contains a zero byte");
  seen_ = text_.data();
  nlohmann::json::sax_parse(Letters{text_.data(), &seen_}, Letters{text_.data() + text_.size(), &seen_}, this);
  check_layout();
}

}  // namespace tessera
