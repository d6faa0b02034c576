// SPDX-License-Identifier: Apache-2.0
// NumPy's .npy format (numpy.lib.format, versions 1.0 to 3.0).
#include <algorithm>
#include <cstring>

#include "tessera/array/host_bytes.h"
#include "tessera/array/npy.h"
#include "tessera/array/npy_source.h"
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

/// The parsed header of a file.
struct Header {
  DType dtype = DType::f32;
  Shape shape;
  bool fortran = false;
  std::uint64_t data = 0;  ///< the position of the first element
};

class HeaderParser {
 public:
  explicit HeaderParser(const detail::NpySource& source) : source_(source) {}

  Header parse() {
    const std::string begin = text(0, std::min<std::uint64_t>(source_.size(), 12));
    if (begin.size() < 10 || std::memcmp(begin.data(), magic, 6) != 0) bad(0, "magic", "this is not an .npy file");
    const int major = static_cast<unsigned char>(begin[6]);
    if (major < 1 || major > 3) bad(6, "version", "version " + std::to_string(major) + " is not supported; 1 to 3 are");
    const std::size_t length_bytes = major == 1 ? 2 : 4;
    if (begin.size() < 8 + length_bytes) bad(8, "header length", "the file ends here");
    std::size_t length = 0;
    for (std::size_t i = 0; i < length_bytes; ++i)
      length |= static_cast<std::size_t>(static_cast<unsigned char>(begin[8 + i])) << (8 * i);
    start_ = 8 + length_bytes;
    if (length > source_.size() - start_)
      bad(8, "header length", std::to_string(length) + " bytes exceed the file size");
    header_ = text(start_, length);

    const std::string descr = text_after("descr");
    const Kind* kind = nullptr;
    for (const Kind& k : kinds)
      if (descr == k.code || (k.code[0] == '|' && descr.size() == 3 && (descr[0] == '<' || descr[0] == '|') &&
                              descr.substr(1) == k.code + 1))
        kind = &k;
    if (!kind)
      bad(start_, "descr", "the element type '" + descr + "' is not supported; little-endian numbers and bool are");
    Header out{kind->dtype, shape_after(), word_after("fortran_order") == "True", start_ + length};
    std::int64_t count = 1;
    for (auto d : out.shape)  // also if another extent is 0
      if (__builtin_mul_overflow(count, std::max<std::int64_t>(d, 1), &count))
        bad(start_, "shape", "the number of elements is too large");
    count = element_count(out.shape);
    const std::uint64_t size = dtype_size(out.dtype), left = source_.size() - out.data;
    if (static_cast<std::uint64_t>(count) > left / size)
      bad(out.data, "data",
          "the shape " + to_string(out.shape) + " needs " + std::to_string(count) + " elements of " +
              std::to_string(size) + " bytes; the file has " + std::to_string(left) + " bytes");
    return out;
  }

 private:
  [[noreturn]] void bad(std::size_t offset, const char* field, const std::string& what) const {
    fail<FormatError>({.operation = "load_npy",
                       .with = {{"file", source_.name()}, {"offset", std::to_string(offset)}, {"field", field}},
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

  std::string text(std::uint64_t offset, std::uint64_t size) const {
    std::string out(size, '\0');
    source_.read(offset, std::as_writable_bytes(std::span(out)));
    return out;
  }

  const detail::NpySource& source_;
  std::string header_;
  std::size_t start_ = 0;
};

}  // namespace

std::string detail::npy_header(DType dtype, const Shape& shape) {
  const char* code = nullptr;
  for (const Kind& k : kinds)
    if (k.dtype == dtype) code = k.code;
  std::string header =
      "{'descr': '" + std::string(code) + "', 'fortran_order': False, 'shape': " + to_string(shape) + ", }";
  header.resize((10 + header.size() + 1 + 63) / 64 * 64 - 10 - 1, ' ');
  header += '\n';
  std::string bytes(magic, 6);
  const char version[] = {1, 0, static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
  bytes.append(version, 4);
  return bytes + header;
}

std::string detail::npy_bytes(const Array& a) {
  std::string bytes = npy_header(a.dtype(), a.shape());
  bytes.reserve(bytes.size() + a.bytes());
  append_bytes(bytes, a);
  return bytes;
}

void save_npy(const Array& a, const std::string& path) { os::write_text(path, detail::npy_bytes(a)); }

Array load_npy(const std::string& path, std::optional<Device> device) { return NpyFile::open(path).load(device); }

struct NpyFile::Contents {
  explicit Contents(detail::NpySource from) : source(std::move(from)), header(HeaderParser(source).parse()) {}
  detail::NpySource source;
  Header header;
};

NpyFile::NpyFile(detail::NpySource source) : contents_(std::make_unique<Contents>(std::move(source))) {}
NpyFile::NpyFile(NpyFile&& other) noexcept = default;
NpyFile& NpyFile::operator=(NpyFile&& other) noexcept = default;
NpyFile::~NpyFile() = default;

NpyFile NpyFile::open(const std::string& path) {
  auto file = std::make_shared<const InputFile>(path);
  const std::uint64_t size = file->size();
  return NpyFile(detail::NpySource(path, std::move(file), 0, size));
}

const std::string& NpyFile::name() const { return contents_->source.name(); }
DType NpyFile::dtype() const { return contents_->header.dtype; }
const Shape& NpyFile::shape() const { return contents_->header.shape; }

Array NpyFile::load(std::optional<Device> device) const { return load(Shape(shape().size(), 0), shape(), device); }

namespace {

Shape reversed(const Shape& shape) { return Shape(shape.rbegin(), shape.rend()); }

/// Reads a part of an array in C order. Axes that the part contains whole are read together with the axis before them.
void read_part(const detail::NpySource& source, std::uint64_t data, std::size_t element, const Shape& shape,
               const Shape& begin, const Shape& extents, std::span<std::byte> to) {
  std::size_t axes = shape.size();
  std::uint64_t stride = element;  // bytes of a step along the innermost axis that is left
  while (axes > 0 && extents[axes - 1] == shape[axes - 1]) stride *= static_cast<std::uint64_t>(shape[--axes]);
  if (to.empty()) return;
  if (axes == 0) return source.read(data, to);
  const std::uint64_t run = stride * static_cast<std::uint64_t>(extents[axes - 1]);
  std::vector<std::int64_t> index(axes - 1, 0);
  for (std::uint64_t written = 0; written < to.size(); written += run) {
    std::uint64_t position = 0;
    for (std::size_t i = 0; i < axes; ++i)
      position = position * static_cast<std::uint64_t>(shape[i]) +
                 static_cast<std::uint64_t>(begin[i] + (i + 1 < axes ? index[i] : 0));
    source.read(data + position * stride, to.subspan(written, run));
    for (std::size_t i = axes - 1; i-- > 0;) {
      if (++index[i] < extents[i]) break;
      index[i] = 0;
    }
  }
}

}  // namespace

Array NpyFile::load(const Shape& begin, const Shape& extents, std::optional<Device> device) const {
  const detail::Operation operation("load_npy");
  const Header& header = contents_->header;
  const auto is_inside = [&](std::size_t i) {
    return begin[i] >= 0 && extents[i] >= 0 && begin[i] <= header.shape[i] && extents[i] <= header.shape[i] - begin[i];
  };
  bool inside = begin.size() == header.shape.size() && extents.size() == header.shape.size();
  for (std::size_t i = 0; inside && i < extents.size(); ++i) inside = is_inside(i);
  if (!inside)
    fail<ShapeError>({.operation = "load_npy",
                      .with = {{"file", name()},
                               {"shape", to_string(header.shape)},
                               {"begin", to_string(begin)},
                               {"extents", to_string(extents)}},
                      .wrong = "the part is not inside the array"});
  const std::size_t element = dtype_size(header.dtype);
  std::vector<std::byte> bytes(static_cast<std::size_t>(element_count(extents)) * element);
  const bool f = header.fortran;
  read_part(contents_->source, header.data, element, f ? reversed(header.shape) : header.shape,
            f ? reversed(begin) : begin, f ? reversed(extents) : extents, bytes);
  const Array out = detail::array_of_bytes(bytes, header.dtype, f ? reversed(extents) : extents, device);
  return operation.finish(f ? out.transpose().as_contiguous() : out);
}

Array NpyFile::map() const {
  const Header& header = contents_->header;
  const Device cpu{Backend::cpu, 0};
  const std::size_t element = dtype_size(header.dtype);
  if (header.dtype == DType::boolean || element_count(header.shape) == 0) return load(cpu);
  const detail::Operation operation("map_npy");
  const auto refuse = [&](std::string wrong) {
    fail<ArgumentError>({.operation = "map_npy",
                         .with = {{"file", name()}},
                         .wrong = std::move(wrong),
                         .remedy = "Load the array instead"});
  };
  const InputFile* const file = contents_->source.whole_file();
  if (file == nullptr) refuse("an array in an archive cannot be mapped");
  if (header.data % element != 0) refuse("the elements are not aligned in the file");
  auto pages = file->map();
  auto* const data = static_cast<std::byte*>(pages.get()) + header.data;
  const std::size_t bytes = static_cast<std::size_t>(element_count(header.shape)) * element;
  const Shape stored = header.fortran ? reversed(header.shape) : header.shape;
  const Array out = Array::wrap(Storage::wrap_host(data, bytes, std::move(pages)), header.dtype, stored);
  return operation.finish(header.fortran ? out.transpose() : out);
}

}  // namespace tessera
