// SPDX-License-Identifier: Apache-2.0
// Internal to gguf.cpp and gguf_parser.cpp. Parses a GGUF file in one pass, with a cursor that is checked against the
// end of the file. Files are read in pieces.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/llm/gguf.h"
#include "tessera/llm/gguf_contents.h"
#include "tessera/llm/gguf_values.h"

namespace tessera {

static_assert(std::endian::native == std::endian::little, "GGUF files contain little-endian numbers");

class GgufParser {
 public:
  explicit GgufParser(GgufFile& file) : file_(file) {}
  void parse();

 private:
  [[noreturn]] void fail_at(std::uint64_t offset, std::string_view field, std::string wrong,
                            std::string remedy = {}) const;
  std::uint64_t remaining() const { return file_.contents_->size - at_; }
  // Adds `size` to the memory that is used by parsed data. Throws if the total exceeds the limit.
  void take(std::uint64_t size, std::string_view field);
  // Throws unless `size` more bytes are available.
  void need(std::uint64_t size, std::string_view field) const;
  // Copies `size` bytes and advances the cursor. The caller must have checked that the bytes are available.
  void copy(void* to, std::size_t size) {
    if (at_ < piece_at_ || size > piece_.size() || at_ - piece_at_ > piece_.size() - size) return copy_anew(to, size);
    std::memcpy(to, piece_.data() + (at_ - piece_at_), size);
    at_ += size;
  }
  void copy_anew(void* to, std::size_t size);
  template <class T>
  T number(std::string_view field);
  std::string text(std::string_view field, std::uint64_t limit);
  GgufType value_type(std::string_view field);
  GgufValue value(std::string_view field);
  GgufArray array(std::string_view field, int depth);
  template <class T>
  void elements(std::vector<T>& out, std::uint64_t count, std::string_view field, int depth);

  void header();
  void metadata();
  void alignment();
  void tensors();
  GgufTensor tensor(std::uint64_t index, std::uint64_t& next_offset);
  void data_section();

  GgufFile& file_;
  std::span<const std::byte> piece_;  // the current piece of the file, which starts at byte piece_at_
  std::uint64_t piece_at_ = 0;
  std::vector<std::byte> memory_;  // the buffer behind piece_, if the input is a file
  std::uint64_t at_ = 0;           // the cursor
  std::uint64_t taken_ = 0;        // memory that is used by parsed data, in bytes
  std::uint64_t entry_count_ = 0;
  std::uint64_t tensor_count_ = 0;
};

}  // namespace tessera
