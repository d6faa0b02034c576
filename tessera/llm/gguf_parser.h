// SPDX-License-Identifier: Apache-2.0
// The parser behind GgufFile: one pass over the bytes with a cursor that cannot leave them.
// Internal to gguf.cpp and gguf_parser.cpp.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "tessera/llm/gguf.h"

namespace tessera {

static_assert(std::endian::native == std::endian::little, "GGUF data is used in place, as little-endian numbers");

class GgufParser {
 public:
  GgufParser(GgufFile& file, std::span<const std::byte> bytes) : file_(file), bytes_(bytes) {}
  void parse();

 private:
  [[noreturn]] void fail_at(std::uint64_t offset, std::string_view field, std::string wrong,
                            std::string todo = {}) const;
  std::uint64_t remaining() const { return bytes_.size() - at_; }
  // Counts memory that what was read takes; throws where it is too much in all.
  void take(std::uint64_t size, std::string_view field);
  // Throws unless `size` more bytes are there.
  void need(std::uint64_t size, std::string_view field) const;
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
  std::span<const std::byte> bytes_;
  std::uint64_t at_ = 0;
  std::uint64_t taken_ = 0;  // bytes of memory
  std::uint64_t entry_count_ = 0;
  std::uint64_t tensor_count_ = 0;
};

}  // namespace tessera
