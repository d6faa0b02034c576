// SPDX-License-Identifier: Apache-2.0
// NumPy's .npy format (numpy.lib.format, versions 1.0 to 3.0).
#include <cerrno>
#include <cstring>
#include <fstream>

#include "tessera/array/host_bytes.h"
#include "tessera/array/operation.h"
#include "tessera/base/os/atomic_file.h"

namespace tessera {

namespace {

constexpr char magic[] = "\x93NUMPY";

struct Kind {
  DType dtype;
  const char* code;
};
// NumPy has no name for bfloat16. It is written as two-byte voids, which NumPy can read back.
constexpr Kind kinds[] = {{DType::boolean, "|b1"}, {DType::i8, "|i1"},  {DType::u8, "|u1"},   {DType::i16, "<i2"},
                          {DType::u16, "<u2"},     {DType::i32, "<i4"}, {DType::u32, "<u4"},  {DType::i64, "<i8"},
                          {DType::u64, "<u8"},     {DType::f16, "<f2"}, {DType::bf16, "|V2"}, {DType::f32, "<f4"},
                          {DType::f64, "<f8"}};

class Reader {
 public:
  explicit Reader(std::string path) : path_(std::move(path)) {
    std::ifstream file(path_, std::ios::binary);
    if (!file)
      fail<ArgumentError>({.operation = "load_npy",
                           .with = {{"file", path_}},
                           .wrong = "the file cannot be opened: " + std::string(std::strerror(errno))});
    try {
      bytes_.assign(std::istreambuf_iterator<char>(file), {});
    } catch (const std::ios_base::failure&) {  // a folder, or a device error
      fail<ArgumentError>({.operation = "load_npy",
                           .with = {{"file", path_}},
                           .wrong = "the file cannot be read: " + std::string(std::strerror(errno))});
    }
  }

  Array read(std::optional<Device> device) {
    if (bytes_.size() < 10 || std::memcmp(bytes_.data(), magic, 6) != 0) bad(0, "magic", "this is not an .npy file");
    const int major = static_cast<unsigned char>(bytes_[6]);
    if (major < 1 || major > 3) bad(6, "version", "version " + std::to_string(major) + " is not supported; 1 to 3 are");
    const std::size_t length_bytes = major == 1 ? 2 : 4;
    if (bytes_.size() < 8 + length_bytes) bad(8, "header length", "the file ends here");
    std::size_t length = 0;
    for (std::size_t i = 0; i < length_bytes; ++i)
      length |= static_cast<std::size_t>(static_cast<unsigned char>(bytes_[8 + i])) << (8 * i);
    start_ = 8 + length_bytes;
    if (length > bytes_.size() - start_)
      bad(8, "header length", std::to_string(length) + " bytes exceed the file size");
    header_ = bytes_.substr(start_, length);

    const std::string descr = text_after("descr");
    const Kind* kind = nullptr;
    for (const Kind& k : kinds)
      if (descr == k.code || (k.code[0] == '|' && descr.size() == 3 && (descr[0] == '<' || descr[0] == '|') &&
                              descr.substr(1) == k.code + 1))
        kind = &k;
    if (!kind)
      bad(start_, "descr", "the element type '" + descr + "' is not supported; little-endian numbers and bool are");
    const bool fortran = word_after("fortran_order") == "True";
    Shape shape = shape_after();
    std::int64_t count = 1;
    for (auto d : shape)
      if (__builtin_mul_overflow(count, d, &count)) bad(start_, "shape", "the number of elements is too large");
    const std::size_t data = start_ + length;
    const std::size_t size = dtype_size(kind->dtype);
    if (static_cast<std::uint64_t>(count) > (bytes_.size() - data) / size)
      bad(data, "data",
          "the shape " + to_string(shape) + " needs " + std::to_string(count) + " elements of " + std::to_string(size) +
              " bytes; the file has " + std::to_string(bytes_.size() - data) + " bytes");
    Shape stored = fortran ? Shape(shape.rbegin(), shape.rend()) : shape;
    const auto elements =
        std::as_writable_bytes(std::span(bytes_)).subspan(data, static_cast<std::size_t>(count) * size);
    const Array out = detail::array_of_bytes(elements, kind->dtype, stored, device);
    return fortran ? out.transpose().as_contiguous() : out;
  }

 private:
  [[noreturn]] void bad(std::size_t offset, const char* field, const std::string& what) const {
    fail<FormatError>({.operation = "load_npy",
                       .with = {{"file", path_}, {"offset", std::to_string(offset)}, {"field", field}},
                       .wrong = what});
  }
  std::size_t value_of(const char* key) const {
    for (const char quote : {'\'', '"'}) {
      const std::string quoted = std::string(1, quote) + key + quote;
      auto at = header_.find(quoted);
      if (at == std::string::npos) continue;
      at = header_.find(':', at + quoted.size());
      if (at == std::string::npos) break;
      at = header_.find_first_not_of(" \t", at + 1);
      if (at != std::string::npos) return at;
    }
    bad(start_, key, "the header lacks this key");
  }
  std::string text_after(const char* key) const {
    const std::size_t at = value_of(key);
    const char quote = header_[at];
    const auto end = header_.find(quote, at + 1);
    if ((quote != '\'' && quote != '"') || end == std::string::npos)
      bad(start_ + at, key, "a quoted string is expected (structured types are not supported)");
    return header_.substr(at + 1, end - at - 1);
  }
  std::string word_after(const char* key) const {
    const std::size_t at = value_of(key);
    const std::string word = header_.substr(at, header_.find_first_of(",} ", at) - at);
    if (word != "True" && word != "False") bad(start_ + at, key, "True or False is expected");
    return word;
  }
  Shape shape_after() const {
    std::size_t at = value_of("shape");
    Shape shape;
    if (header_[at] != '(') bad(start_ + at, "shape", "a tuple is expected");
    for (++at; at < header_.size() && header_[at] != ')';) {
      if (header_[at] == ' ' || header_[at] == ',' || header_[at] == 'L') {
        ++at;
        continue;
      }
      std::int64_t v = 0;
      const std::size_t digit = at;
      while (at < header_.size() && header_[at] >= '0' && header_[at] <= '9')
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, header_[at++] - '0', &v))
          bad(start_ + digit, "shape", "an extent is too large");
      if (at == digit) bad(start_ + at, "shape", "a number is expected");
      shape.push_back(v);
    }
    if (at >= header_.size()) bad(start_ + at, "shape", "the tuple is not closed");
    return shape;
  }

  std::string path_, bytes_, header_;
  std::size_t start_ = 0;
};

}  // namespace

void save_npy(const Array& a, const std::string& path) {
  const char* code = nullptr;
  for (const Kind& k : kinds)
    if (k.dtype == a.dtype()) code = k.code;
  std::string shape = to_string(a.shape());
  std::string header = "{'descr': '" + std::string(code) + "', 'fortran_order': False, 'shape': " + shape + ", }";
  header.resize((10 + header.size() + 1 + 63) / 64 * 64 - 10 - 1, ' ');
  header += '\n';
  std::string bytes;
  bytes.reserve(10 + header.size() + a.bytes());
  bytes.append(magic, 6);
  const char version[] = {1, 0, static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
  bytes.append(version, 4);
  bytes += header;
  detail::append_bytes(bytes, a);
  os::write_text(path, bytes);
}

Array load_npy(const std::string& path, std::optional<Device> device) {
  const detail::Operation operation("load_npy");
  return operation.finish(Reader(path).read(device));
}

}  // namespace tessera
