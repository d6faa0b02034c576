// SPDX-License-Identifier: Apache-2.0
// The header of a safetensors file: dtype names and the parser.
#pragma once

#include "tessera/array/safetensors.h"

namespace tessera {

std::optional<DType> dtype_of_safetensors(std::string_view name);
std::string_view safetensors_name(DType dtype);

/// The reserved key for metadata, in the same object as the tensors' names.
inline constexpr std::string_view safetensors_metadata_key = "__metadata__";

/// Receives the events of a JSON parser (nlohmann's SAX interface) and fills a SafetensorsFile. Values that do not
/// belong to the format are not stored, so parsing takes at most a small multiple of the header's length in memory.
class SafetensorsHeader {
 public:
  SafetensorsHeader(SafetensorsFile& file, std::string_view text) : file_(file), text_(text) {}
  void parse();

  // For nlohmann::json::sax_parse.
  bool null() { unexpected("null"); }
  bool boolean(bool) { unexpected("a bool"); }
  bool number_integer(std::int64_t) { unexpected("a negative number"); }
  bool number_unsigned(std::uint64_t value);
  bool number_float(double, const std::string&) { unexpected("a number that is too large or not an integer"); }
  bool string(std::string& value);
  bool binary(const std::vector<std::uint8_t>&) { unexpected("binary data"); }
  bool start_object(std::size_t);
  bool key(std::string& value);
  bool end_object();
  bool start_array(std::size_t);
  bool end_array();
  template <class E>
  bool parse_error(std::size_t position, const std::string&, const E& error) {
    not_json(position, error.what());
    return false;
  }

 private:
  enum class Place { outside, file, metadata, tensor, shape, offsets };

  [[noreturn]] void bad(std::uint64_t at, const std::string& wrong) const;
  [[noreturn]] void unexpected(const char* found);
  [[noreturn]] void not_json(std::size_t position, std::string_view why) const;
  std::string field() const;
  /// The position of the last token, from the start of the header.
  std::uint64_t token();
  void finish_tensor();
  void check_layout();

  SafetensorsFile& file_;
  const std::string_view text_;
  const char* seen_ = nullptr;   ///< how far the parser has read
  std::uint64_t token_end_ = 0;  ///< the end of the last token
  Place place_ = Place::outside;
  std::string key_;  ///< the current key of the innermost object
  SafetensorsTensor tensor_;
  std::uint64_t tensor_at_ = 0, shape_at_ = 0, offsets_at_ = 0;
  bool has_dtype_ = false, has_shape_ = false, has_offsets_ = false, has_metadata_ = false;
  std::uint64_t offsets_[2] = {};
  std::size_t numbers_ = 0;
};

}  // namespace tessera
