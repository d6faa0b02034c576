// SPDX-License-Identifier: Apache-2.0
// .npz: zip archives of .npy files, as written by NumPy: stored or deflated, with 64-bit sizes (zip64) where needed.
#include <algorithm>
#include <array>
#include <cstring>
#include <set>

#include "tessera/array/npy.h"
#include "tessera/array/npy_source.h"
#include "tessera/array/zlib.h"
#include "tessera/base/os/atomic_file.h"
#include "tessera/base/printable.h"
#include "tessera/base/unicode.h"

namespace tessera {
namespace {

using detail::NpySource;

// Signatures, sizes of records without names, and other constants of the format.
constexpr std::uint32_t local_header = 0x04034b50, central_header = 0x02014b50, end_record = 0x06054b50,
                        end_record_64 = 0x06064b50, end_locator_64 = 0x07064b50;
constexpr std::uint64_t local_size = 30, central_size = 46, end_size = 22, end_size_64 = 56, locator_size_64 = 20;
constexpr std::uint32_t in_64_bits = 0xffffffff;  ///< the value is in the zip64 record
constexpr std::uint16_t stored_method = 0, deflate_method = 8, zip64_extra = 1;
constexpr std::uint16_t encrypted = 1, utf8_name = 1 << 11;  ///< flags

/// Little-endian numbers at increasing positions.
class Fields {
 public:
  explicit Fields(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <class T>
  T take() {
    T value = 0;
    if (bytes_.size() < sizeof value) return 0;
    for (std::size_t i = 0; i < sizeof value; ++i) value |= static_cast<T>(static_cast<T>(bytes_[i]) << (8 * i));
    bytes_ = bytes_.subspan(sizeof value);
    return value;
  }
  void skip(std::size_t bytes) { bytes_ = bytes_.subspan(std::min(bytes, bytes_.size())); }
  std::span<const std::byte> left() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

struct Entry {
  std::string name;
  std::uint16_t flags = 0, method = 0;
  std::uint32_t checksum = 0;
  std::uint64_t compressed = 0, size = 0, header = 0;
};

class ZipReader {
 public:
  explicit ZipReader(const std::string& path) : path_(path), file_(std::make_shared<const InputFile>(path)) {
    std::uint64_t entries, bytes, at;
    std::tie(entries, bytes, at) = directory();
    const std::vector<std::byte> central = read(at, bytes, "directory");
    Fields f(central);
    for (std::uint64_t i = 0; i < entries; ++i) entries_.push_back(entry(f, at + (central.size() - f.left().size())));
  }

  std::map<std::string, Array> arrays(std::optional<Device> device) const {
    std::map<std::string, Array> out;
    for (const Entry& e : entries_) {
      if (!e.name.ends_with(".npy"))
        bad(e.header, "entry", printable_line(e.name) + " is not an array: its name does not end with .npy");
      const std::string name = e.name.substr(0, e.name.size() - 4);
      if (out.contains(name)) bad(e.header, "entry", printable_line(e.name) + " occurs twice");
      out.emplace(name, NpyFile(source(e)).load(device));
    }
    return out;
  }

 private:
  [[noreturn]] void bad(std::uint64_t offset, const char* field, const std::string& wrong) const {
    fail<FormatError>({.operation = "load_npz",
                       .with = {{"file", path_}, {"offset", std::to_string(offset)}, {"field", field}},
                       .wrong = wrong});
  }
  std::vector<std::byte> read(std::uint64_t offset, std::uint64_t bytes, const char* field) const {
    if (offset > file_->size() || bytes > file_->size() - offset) bad(offset, field, "it exceeds the file");
    std::vector<std::byte> out(bytes);
    file_->read(offset, out);
    return out;
  }

  /// Returns the number of entries, and the size and the position of the central directory.
  std::tuple<std::uint64_t, std::uint64_t, std::uint64_t> directory() const {
    // The end record is followed by a comment of at most 65,535 bytes.
    const std::uint64_t size = file_->size(), tail = std::min<std::uint64_t>(size, end_size + 65535);
    const std::vector<std::byte> last = read(size - tail, tail, "end record");
    for (std::uint64_t back = end_size; back <= tail; ++back) {
      Fields f(std::span<const std::byte>(last).last(back));
      if (f.take<std::uint32_t>() != end_record) continue;
      f.skip(6);  // numbers of disks and of the entries on this disk
      const auto entries = f.take<std::uint16_t>();
      const auto bytes = f.take<std::uint32_t>(), at = f.take<std::uint32_t>();
      if (f.take<std::uint16_t>() != back - end_size) continue;
      const std::uint64_t position = size - back;
      if (position >= locator_size_64)
        if (const auto large = directory_64(position - locator_size_64)) return *large;
      return {entries, bytes, at};
    }
    bad(size - std::min(size, end_size), "end record", "this is not a .npz file, or its end is missing");
  }
  std::optional<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>> directory_64(std::uint64_t locator) const {
    const std::vector<std::byte> bytes = read(locator, locator_size_64, "zip64 locator");
    Fields f(bytes);
    if (f.take<std::uint32_t>() != end_locator_64) return std::nullopt;
    f.skip(4);
    const auto at = f.take<std::uint64_t>();
    const std::vector<std::byte> record = read(at, end_size_64, "zip64 end record");
    Fields r(record);
    if (r.take<std::uint32_t>() != end_record_64) bad(at, "zip64 end record", "it does not begin with PK\\6\\6");
    r.skip(28);  // size, versions, numbers of disks, entries on this disk
    const auto entries = r.take<std::uint64_t>(), size = r.take<std::uint64_t>(), begin = r.take<std::uint64_t>();
    return std::tuple(entries, size, begin);
  }

  Entry entry(Fields& f, std::uint64_t at) const {
    if (f.left().size() < central_size || f.take<std::uint32_t>() != central_header)
      bad(at, "directory", "an entry does not begin with PK\\1\\2");
    Entry e;
    f.skip(4);  // versions
    e.flags = f.take<std::uint16_t>(), e.method = f.take<std::uint16_t>();
    f.skip(4);  // time
    e.checksum = f.take<std::uint32_t>();
    e.compressed = f.take<std::uint32_t>(), e.size = f.take<std::uint32_t>();
    const std::size_t name = f.take<std::uint16_t>(), extra = f.take<std::uint16_t>(),
                      comment = f.take<std::uint16_t>();
    f.skip(8);  // disk and attributes
    e.header = f.take<std::uint32_t>();
    if (f.left().size() < name + extra + comment) bad(at, "directory", "an entry exceeds the directory");
    e.name.assign(reinterpret_cast<const char*>(f.left().data()), name);
    for (std::string_view left = e.name; !left.empty();) {
      const Utf8Unit unit = utf8_unit(left);
      if (unit.kind != Utf8Unit::Kind::character) bad(at, "name", printable_line(e.name) + " is not UTF-8");
      left.remove_prefix(unit.size);
    }
    Fields fields(f.left().subspan(name, extra));
    f.skip(name + extra + comment);
    while (fields.left().size() >= 4) {
      const auto id = fields.take<std::uint16_t>();
      const std::size_t bytes = std::min<std::size_t>(fields.take<std::uint16_t>(), fields.left().size());
      Fields large(fields.left().first(bytes));
      fields.skip(bytes);
      if (id != zip64_extra) continue;
      for (std::uint64_t* value : {&e.size, &e.compressed, &e.header})
        if (*value == in_64_bits) *value = large.take<std::uint64_t>();
    }
    if ((e.flags & encrypted) != 0) bad(at, "flags", printable_line(e.name) + " is encrypted");
    if (e.method != stored_method && e.method != deflate_method)
      bad(at, "method", "the compression method " + std::to_string(e.method) + " is not supported; deflate is");
    if (e.method == stored_method && e.compressed != e.size) bad(at, "size", "the sizes of a stored entry differ");
    // Deflate compresses at most 1,032 bytes to one (a match of 258 bytes in two bits).
    if (e.method == deflate_method && e.size / 1032 > e.compressed) bad(at, "size", "the entry cannot be so large");
    return e;
  }

  NpySource source(const Entry& e) const {
    const std::vector<std::byte> header = read(e.header, local_size, "local header");
    Fields f(header);
    if (f.take<std::uint32_t>() != local_header) bad(e.header, "local header", "it does not begin with PK\\3\\4");
    f.skip(22);
    const std::uint64_t name = f.take<std::uint16_t>(), extra = f.take<std::uint16_t>();
    const std::uint64_t at = e.header + local_size + name + extra;
    std::vector<std::byte> bytes = read(at, e.compressed, "data");
    if (e.method == deflate_method) {
      bytes = detail::inflated(bytes, e.size);
      if (bytes.size() != e.size) bad(at, "data", printable_line(e.name) + " cannot be decompressed");
    }
    if (detail::crc32(bytes) != e.checksum) bad(at, "data", printable_line(e.name) + " has another checksum");
    return {path_ + "/" + e.name, std::move(bytes)};
  }

  std::string path_;
  std::shared_ptr<const InputFile> file_;
  std::vector<Entry> entries_;
};

template <class T>
void put(std::string& to, T value) {
  for (std::size_t i = 0; i < sizeof value; ++i) to += static_cast<char>(value >> (8 * i) & 255);
}

class ZipWriter {
 public:
  explicit ZipWriter(const std::string& path) : file_(path) {}

  void add(Entry e, std::string_view data) {
    e.header = at_;
    std::string header;
    put(header, local_header);
    put(header, version(e));
    put_description(header, e);
    put(header, static_cast<std::uint16_t>(is_large(e) ? 20 : 0));  // size of the extra field
    header += e.name;
    if (is_large(e))
      put(header, zip64_extra), put(header, std::uint16_t{16}), put(header, e.size), put(header, e.compressed);
    write(header), write(data);
    std::string& c = central_;
    put(c, central_header);
    put(c, std::uint16_t{45}), put(c, version(e));
    put_description(c, e);
    const bool far = e.header >= in_64_bits;
    const auto large = static_cast<std::uint16_t>((is_large(e) ? 16 : 0) + (far ? 8 : 0));
    put(c, static_cast<std::uint16_t>(large > 0 ? large + 4 : 0));
    c.append(2 + 2 + 2 + 4, '\0');  // comment, disk, attributes
    put(c, static_cast<std::uint32_t>(far ? in_64_bits : e.header));
    c += e.name;
    if (large > 0) put(c, zip64_extra), put(c, large);
    if (is_large(e)) put(c, e.size), put(c, e.compressed);
    if (far) put(c, e.header);
    ++entries_;
  }

  void finish() {
    const std::uint64_t begin = at_, size = central_.size();
    write(central_);
    std::string end;
    const bool large = begin >= in_64_bits || size >= in_64_bits || entries_ >= 0xffff;
    if (large) {
      const std::uint64_t record = at_;
      put(end, end_record_64), put(end, end_size_64 - 12);
      put(end, std::uint16_t{45}), put(end, std::uint16_t{45}), put(end, std::uint64_t{0});
      put(end, entries_), put(end, entries_), put(end, size), put(end, begin);
      put(end, end_locator_64), put(end, std::uint32_t{0}), put(end, record), put(end, std::uint32_t{1});
    }
    put(end, end_record), put(end, std::uint32_t{0});
    for (int i = 0; i < 2; ++i) put(end, static_cast<std::uint16_t>(large ? 0xffff : entries_));
    put(end, static_cast<std::uint32_t>(large ? in_64_bits : size));
    put(end, static_cast<std::uint32_t>(large ? in_64_bits : begin));
    put(end, std::uint16_t{0});
    write(end);
    file_.commit();
  }

 private:
  static bool is_large(const Entry& e) { return e.size >= in_64_bits || e.compressed >= in_64_bits; }
  static std::uint16_t version(const Entry& e) { return is_large(e) ? 45 : 20; }
  /// The fields from flags to the length of the name, which both headers contain.
  static void put_description(std::string& to, const Entry& e) {
    put(to, e.flags), put(to, e.method);
    put(to, std::uint16_t{0}), put(to, std::uint16_t{0x21});  // 1980-01-01, so that equal arrays give equal files
    put(to, e.checksum);
    put(to, static_cast<std::uint32_t>(is_large(e) ? in_64_bits : e.compressed));
    put(to, static_cast<std::uint32_t>(is_large(e) ? in_64_bits : e.size));
    put(to, static_cast<std::uint16_t>(e.name.size()));
  }
  void write(std::string_view bytes) {
    file_.write(bytes);
    at_ += bytes.size();
  }

  os::AtomicFile file_;
  std::string central_;
  std::uint64_t at_ = 0, entries_ = 0;
};

}  // namespace

std::map<std::string, Array> load_npz(const std::string& path, std::optional<Device> device) {
  return ZipReader(path).arrays(device);
}

void save_npz(const std::string& path, const std::vector<std::pair<std::string, Array>>& arrays, bool compress) {
  std::set<std::string> names;
  for (const auto& [name, array] : arrays) {
    const bool valid = !name.empty() && name.size() < 65531;
    if (valid && names.insert(name).second) continue;
    fail<ArgumentError>({.operation = "save_npz",
                         .with = {{"file", path}, {"name", printable_line(name.substr(0, 100))}},
                         .wrong = valid ? "two arrays have this name" : "an array has an empty or too long name"});
  }
  ZipWriter zip(path);
  for (const auto& [name, array] : arrays) {
    const std::string bytes = detail::npy_bytes(array);
    Entry e{.name = name + ".npy"};
    if (std::ranges::any_of(name, [](char c) { return static_cast<unsigned char>(c) > 127; })) e.flags = utf8_name;
    e.checksum = detail::crc32(std::as_bytes(std::span(bytes)));
    e.size = e.compressed = bytes.size();
    if (!compress) {
      zip.add(std::move(e), bytes);
      continue;
    }
    const std::vector<std::byte> data = detail::deflated(std::as_bytes(std::span(bytes)));
    e.method = deflate_method, e.compressed = data.size();
    zip.add(std::move(e), {reinterpret_cast<const char*>(data.data()), data.size()});
  }
  zip.finish();
}

}  // namespace tessera
