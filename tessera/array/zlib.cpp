// SPDX-License-Identifier: Apache-2.0
#include "tessera/array/zlib.h"

#include <algorithm>
#include <array>
#include <limits>

#include "tessera/base/error.h"
#include "tessera/base/os/library.h"

namespace tessera::detail {
namespace {

/// z_stream of zlib.h. It has been the same since zlib 1.0; the library checks its size.
struct Stream {
  const unsigned char* next_in = nullptr;
  unsigned available_in = 0;
  unsigned long total_in = 0;
  unsigned char* next_out = nullptr;
  unsigned available_out = 0;
  unsigned long total_out = 0;
  const char* message = nullptr;
  void* state = nullptr;
  void* (*allocate)(void*, unsigned, unsigned) = nullptr;
  void (*release)(void*, void*) = nullptr;
  void* opaque = nullptr;
  int data_type = 0;
  unsigned long adler = 0, reserved = 0;
};
// Constants of zlib.h.
constexpr int ok = 0, stream_end = 1, no_flush = 0, finish = 4, deflate_method = 8, default_level = -1;
constexpr int raw = -15;  ///< window bits of raw deflate data

struct Zlib {
  int (*inflate_init)(Stream*, int bits, const char* version, int size);
  int (*inflate)(Stream*, int flush);
  int (*inflate_end)(Stream*);
  int (*deflate_init)(Stream*, int level, int method, int bits, int memory, int strategy, const char* version,
                      int size);
  int (*deflate)(Stream*, int flush);
  int (*deflate_end)(Stream*);
  std::string reason;  ///< why it cannot be used; empty if it can

  static const Zlib& instance() {
    static const Zlib zlib = open();
    if (!zlib.reason.empty())
      fail<DeviceError>({.operation = "compressed file",
                         .wrong = "zlib is needed, and cannot be opened: " + zlib.reason,
                         .remedy = "Install it (Debian: zlib1g), or save the file without compression"});
    return zlib;
  }

 private:
  static Zlib open() {
#if defined(__APPLE__)
    const std::string names[] = {"libz.1.dylib"};
#else
    const std::string names[] = {"libz.so.1"};
#endif
    const os::Library library = os::Library::open(names);
    Zlib out{};
    if (!library.loaded()) {
      out.reason = library.reason();
      return out;
    }
    const auto take = [&]<class F>(F*& to, const char* name) {
      to = library.function<F>(name);
      if (to == nullptr) out.reason = library.file() + ": it has no " + name;
    };
    take(out.inflate_init, "inflateInit2_"), take(out.inflate, "inflate"), take(out.inflate_end, "inflateEnd");
    take(out.deflate_init, "deflateInit2_"), take(out.deflate, "deflate"), take(out.deflate_end, "deflateEnd");
    return out;
  }
};

/// Passes the next bytes of a stream to zlib: its sizes are 32-bit numbers.
unsigned piece(std::size_t left) {
  return static_cast<unsigned>(std::min<std::size_t>(left, std::numeric_limits<unsigned>::max() / 2));
}

/// Calls `step(flush)` until all of `in` is read and the stream has ended. `grow` is called if `out` is full, and
/// returns false if it must not grow. Returns true if the stream has ended, and `out` has its size.
template <class Step, class Grow>
bool run(Stream& s, std::span<const std::byte> in, std::vector<std::byte>& out, const Step& step, const Grow& grow) {
  std::size_t read = 0, written = 0;
  s.next_in = reinterpret_cast<const unsigned char*>(in.data());
  for (;;) {
    if (written == out.size() && !grow(out)) {
      // A byte of space shows whether the stream ends here.
      unsigned char more;
      s.next_out = &more, s.available_out = 1;
      s.available_in = piece(in.size() - read);
      return step(&s, finish) == stream_end && s.available_out == 1;
    }
    const unsigned give = piece(in.size() - read), space = piece(out.size() - written);
    s.available_in = give, s.available_out = space;
    s.next_out = reinterpret_cast<unsigned char*>(out.data()) + written;
    const int state = step(&s, read + give == in.size() ? finish : no_flush);
    read += give - s.available_in, written += space - s.available_out;
    if (state == stream_end) {
      out.resize(written);
      return true;
    }
    constexpr int buffer_error = -5;  // no progress with this space, or finish with too little of it
    if (state != ok && state != buffer_error) return false;
    if (give == s.available_in && space == s.available_out) return false;  // the data end too early
  }
}

constexpr std::array<std::uint32_t, 256> crc_table = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = (c & 1) != 0 ? 0xedb88320u ^ c >> 1 : c >> 1;
    table[i] = c;
  }
  return table;
}();

}  // namespace

std::uint32_t crc32(std::span<const std::byte> bytes) {
  std::uint32_t c = ~std::uint32_t{0};
  for (const std::byte b : bytes) c = crc_table[(c ^ static_cast<std::uint32_t>(b)) & 255] ^ c >> 8;
  return ~c;
}

std::vector<std::byte> inflated(std::span<const std::byte> data, std::size_t size) {
  const Zlib& zlib = Zlib::instance();
  Stream s;
  if (zlib.inflate_init(&s, raw, "1", static_cast<int>(sizeof s)) != ok)
    fail<DeviceError>({.operation = "compressed file", .wrong = "zlib cannot be initialised"});
  std::vector<std::byte> out(size);
  const bool ended = run(s, data, out, zlib.inflate, [](std::vector<std::byte>&) { return false; });
  zlib.inflate_end(&s);
  if (!ended || out.size() != size) return {};
  return out;
}

std::vector<std::byte> deflated(std::span<const std::byte> bytes) {
  const Zlib& zlib = Zlib::instance();
  Stream s;
  constexpr int memory_level = 8, default_strategy = 0;
  if (zlib.deflate_init(&s, default_level, deflate_method, raw, memory_level, default_strategy, "1",
                        static_cast<int>(sizeof s)) != ok)
    fail<DeviceError>({.operation = "compressed file", .wrong = "zlib cannot be initialised"});
  std::vector<std::byte> out(bytes.size() / 2 + 64);
  const bool ended = run(s, bytes, out, zlib.deflate, [](std::vector<std::byte>& to) {
    to.resize(to.size() * 2);
    return true;
  });
  zlib.deflate_end(&s);
  if (!ended) fail<DeviceError>({.operation = "compressed file", .wrong = "zlib cannot compress the data"});
  return out;
}

}  // namespace tessera::detail
