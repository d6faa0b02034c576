// SPDX-License-Identifier: Apache-2.0
// Packs weights: interleaves the rows of a file in groups of rows.
#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <mutex>

#include "tessera/base/callback.h"
#include "tessera/device/memory/staging.h"
#include "tessera/device/placement/dry_run.h"
#include "tessera/executor/executor.h"
#include "tessera/ops/codebooks.h"
#include "tessera/ops/kernels.h"
#include "tessera/ops/weight_blocks.h"

namespace tessera {

namespace {

/// A packed array with shape (groups, ...).
struct Part {
  DType dtype;
  Shape shape;
  const char* what;  ///< appended to the weight's label
  std::size_t bytes() const { return static_cast<std::size_t>(element_count(shape)) * dtype_size(dtype); }
  std::size_t group_bytes() const { return bytes() / static_cast<std::size_t>(shape[0]); }
};

std::vector<Part> parts_of(const ops::WeightLayout& f, std::int64_t rows, std::int64_t columns,
                           const ops::Tiles& tiles) {
  const std::int64_t group = tiles.rows, groups = ops::ceil_div(rows, group);
  if (!f.quantised()) return {{f.element, {groups, columns, group}, ""}};
  std::vector<Part> parts = {
      {DType::u32, {groups, columns / 32 * f.bits, group}, ""},
      {ops::scale_dtype(tiles, f.format), {groups, columns / f.columns * f.scales(), group}, " (scales)"}};
  if (f.factors != 0) parts.push_back({DType::u16, {groups, columns / f.columns * f.factors, group}, " (factors)"});
  return parts;
}

/// Buffers for pieces of the file, one for each reading thread.
class Rooms {
 public:
  std::vector<std::byte> take() {
    const std::lock_guard hold(lock_);
    if (free_.empty()) return {};
    std::vector<std::byte> out = std::move(free_.back());
    free_.pop_back();
    return out;
  }
  void give(std::vector<std::byte> room) {
    const std::lock_guard hold(lock_);
    free_.push_back(std::move(room));
  }

 private:
  std::mutex lock_;
  std::vector<std::vector<std::byte>> free_;
};

constexpr std::uint64_t aligned(std::uint64_t bytes) {
  return (bytes + WeightMemory::alignment - 1) / WeightMemory::alignment * WeightMemory::alignment;
}

/// Rows [begin, end) of a file. The first row is lane 0 of a group.
struct Piece {
  const std::byte* data;
  std::size_t row_bytes, rows, group;
};

// Interleaves elements of T for the rows of a group: [group][column][row]. It processes a few columns of all rows at a
// time, so that the output stays in the L1 cache.
template <class T>
void interleave(const Piece& p, std::byte* out) {
  constexpr std::size_t together = 64;
  const std::size_t columns = p.row_bytes / sizeof(T);
  for (std::size_t begin = 0; begin < p.rows; begin += p.group) {
    const std::size_t lanes = std::min(p.group, p.rows - begin);
    std::byte* const group = out + begin * columns * sizeof(T);
    for (std::size_t first = 0; first < columns; first += together) {
      const std::size_t end = std::min(columns, first + together);
      for (std::size_t lane = 0; lane < lanes; ++lane) {
        const std::byte* const from = p.data + (begin + lane) * p.row_bytes;
        for (std::size_t c = first; c < end; ++c)
          std::memcpy(group + (c * p.group + lane) * sizeof(T), from + c * sizeof(T), sizeof(T));
      }
    }
  }
}

/// Vectors of eight 16-bit and four 32-bit elements.
using Eight __attribute__((vector_size(16))) = std::uint16_t;
using Four __attribute__((vector_size(16))) = std::uint32_t;

// Interleaves 16-bit elements, in blocks of eight rows by eight columns. It uses a full cache line of each row before
// it continues with the next line, because rows with a pitch of a multiple of 4096 bytes compete for the same cache
// sets.
void interleave_words(const Piece& p, std::byte* out) {
  constexpr std::size_t line = 32;
  const std::size_t columns = p.row_bytes / 2;
  if (p.rows % p.group != 0 || p.group % 8 != 0 || columns % 8 != 0) return interleave<std::uint16_t>(p, out);
  const auto low = [](Eight a, Eight b) { return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11); };
  const auto high = [](Eight a, Eight b) { return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15); };
  const auto block = [&](const std::byte* from, std::byte* to) {
    Eight row[8], next[8];
    for (std::size_t i = 0; i < 8; ++i) std::memcpy(row + i, from + i * p.row_bytes, 16);
    // Three perfect shuffles transpose the 8 x 8 block.
    const auto shuffle = [&](const Eight* a, Eight* b) {
      for (std::size_t i = 0; i < 4; ++i) b[2 * i] = low(a[i], a[i + 4]), b[2 * i + 1] = high(a[i], a[i + 4]);
    };
    shuffle(row, next), shuffle(next, row), shuffle(row, next);
    for (std::size_t i = 0; i < 8; ++i) std::memcpy(to + i * p.group * 2, next + i, 16);
  };
  for (std::size_t begin = 0; begin < p.rows; begin += p.group)
    for (std::size_t first = 0; first < columns; first += line)
      for (std::size_t lane = 0; lane < p.group; lane += 8)
        for (std::size_t c = first; c < std::min(columns, first + line); c += 8)
          block(p.data + (begin + lane) * p.row_bytes + 2 * c, out + (begin * columns + c * p.group + lane) * 2);
}

/// `Scale` is the type in which the device stores scales: std::uint16_t for the bits of 16-bit floats, or float for
/// those that were f16.
template <class Scale>
Scale scale_of(std::uint16_t bits) {
  if constexpr (std::is_same_v<Scale, float>)
    return half_value(bits);
  else
    return bits;
}

/// The destination of packed blocks, and their layout.
template <class Scale>
struct PackedBlocks {
  const ops::WeightLayout& layout;
  std::size_t group;
  std::uint32_t* words;
  Scale* scales;
  std::uint16_t* factors;

  /// Stores block `block` of `lanes` rows, starting at `lane`. If there are four rows, it transposes 4 x 4 words at a
  /// time.
  template <std::size_t bits, std::size_t lanes>
  void put(const ops::UnpackedBlock* u, std::size_t block, std::size_t lane) const {
    const std::size_t parts = layout.parts();
    std::uint32_t* to = words + block * parts * bits * group + lane;
    for (std::size_t part = 0; part < parts; ++part) {
      std::size_t w = 0;
      if constexpr (lanes == 4)
        for (; w + 4 <= bits; w += 4, to += 4 * group) turn(u, part, w, to);
      for (; w < bits; ++w, to += group)
        for (std::size_t i = 0; i < lanes; ++i) to[i] = u[i].words[part][w];
    }
    for (std::size_t i = 0; i < lanes; ++i)
      scales[block * layout.scales() * group + lane + i] = scale_of<Scale>(u[i].scale);
    if (layout.minimum)
      for (std::size_t i = 0; i < lanes; ++i)
        scales[(block * 2 + 1) * group + lane + i] = scale_of<Scale>(u[i].minimum);
    for (std::size_t n = 0; n < layout.factors; ++n)
      for (std::size_t i = 0; i < lanes; ++i)
        factors[(block * layout.factors + n) * group + lane + i] = u[i].factors[n];
  }
  void turn(const ops::UnpackedBlock* u, std::size_t part, std::size_t w, std::uint32_t* to) const {
    Four a[4], b[4];
    for (std::size_t i = 0; i < 4; ++i) std::memcpy(a + i, u[i].words[part] + w, 16);
    const auto shuffle = [](const Four* from, Four* out) {
      for (std::size_t i = 0; i < 2; ++i) {
        out[2 * i] = __builtin_shufflevector(from[i], from[i + 2], 0, 4, 1, 5);
        out[2 * i + 1] = __builtin_shufflevector(from[i], from[i + 2], 2, 6, 3, 7);
      }
    };
    shuffle(a, b), shuffle(b, a);
    for (std::size_t i = 0; i < 4; ++i) std::memcpy(to + i * group, a + i, 16);
  }
};

template <class Scale, std::size_t bits>
void pack_blocks(const Piece& p, const PackedBlocks<Scale>& out) {
  const ops::WeightLayout& f = out.layout;
  const std::size_t blocks = p.row_bytes / f.bytes, group = p.group;
  ops::UnpackedBlock u[4] = {};
  for (std::size_t begin = 0; begin < p.rows; begin += group) {
    const std::size_t lanes = std::min(group, p.rows - begin);
    for (std::size_t b = 0; b < blocks; ++b) {
      const std::size_t block = begin / group * blocks + b;
      const std::byte* const from = p.data + begin * p.row_bytes + b * f.bytes;
      std::size_t lane = 0;
      for (; lane + 4 <= lanes; lane += 4) {
        for (std::size_t i = 0; i < 4; ++i) f.unpack(from + (lane + i) * p.row_bytes, u[i]);
        out.template put<bits, 4>(u, block, lane);
      }
      for (; lane < lanes; ++lane) {
        f.unpack(from + lane * p.row_bytes, u[0]);
        out.template put<bits, 1>(u, block, lane);
      }
    }
  }
}

template <class Scale>
void pack_blocks(const Piece& p, const ops::WeightLayout& f, std::byte* words, std::byte* scales, std::byte* factors) {
  const PackedBlocks<Scale> out{f, p.group, reinterpret_cast<std::uint32_t*>(words), reinterpret_cast<Scale*>(scales),
                                reinterpret_cast<std::uint16_t*>(factors)};
  switch (f.bits) {
    case 1: return pack_blocks<Scale, 1>(p, out);
    case 2: return pack_blocks<Scale, 2>(p, out);
    case 3: return pack_blocks<Scale, 3>(p, out);
    case 4: return pack_blocks<Scale, 4>(p, out);
    case 5: return pack_blocks<Scale, 5>(p, out);
    case 6: return pack_blocks<Scale, 6>(p, out);
    default: return pack_blocks<Scale, 8>(p, out);
  }
}

}  // namespace

std::int64_t Weight::row_group(Device device) { return ops::tiles_of(device).rows; }

Weight Weight::slice_rows(std::int64_t first, std::int64_t count) const {
  const std::int64_t group = row_group(device());
  if (first < 0 || count < 1 || count > rows_ - first || first % group != 0 || count % group != 0)
    fail<ShapeError>({.operation = "Weight::slice_rows",
                      .with = {{"first", std::to_string(first)},
                               {"count", std::to_string(count)},
                               {"rows", std::to_string(rows_)},
                               {"row group", std::to_string(group)}},
                      .wrong = "the rows must be whole groups inside of the weight"});
  Weight w;
  w.format_ = format_, w.rows_ = count, w.columns_ = columns_;
  for (const Array& p : own_parts()) w.parts_.push_back(p.slice(0, first / group, (first + count) / group));
  if (own_parts().size() < parts_.size()) w.parts_.push_back(parts_.back());
  return w;
}

std::span<const Array> Weight::own_parts() const {
  return std::span(parts_).first(parts_.size() - (ops::layout_of(format_).codebook ? 1 : 0));
}

std::string_view weight_format_name(WeightFormat f) { return ops::layout_of(f).name; }

Weight Weight::pack(WeightFormat format, std::span<const std::byte> data, std::int64_t rows, std::int64_t columns,
                    Device device, std::string label) {
  const auto from = [&](std::uint64_t offset, std::size_t, std::vector<std::byte>&) { return data.data() + offset; };
  return pack_from(from, format, data.size(), rows, columns, device, nullptr, label);
}

namespace {

auto reading(const Weight::Read& read) {
  return [&read](std::uint64_t offset, std::size_t size, std::vector<std::byte>& room) {
    if (room.size() < size) room.resize(size);
    read(offset, std::span(room).first(size));
    return std::as_const(room).data();
  };
}

}  // namespace

Weight Weight::pack(WeightFormat format, std::uint64_t bytes, const Read& read, std::int64_t rows, std::int64_t columns,
                    Device device, std::string label) {
  return pack_from(reading(read), format, bytes, rows, columns, device, nullptr, label);
}

Weight Weight::pack(WeightFormat format, std::uint64_t bytes, const Read& read, std::int64_t rows, std::int64_t columns,
                    WeightMemory& memory, std::string label) {
  return pack_from(reading(read), format, bytes, rows, columns, memory.device(), &memory, label);
}

struct WeightMemory::Places {
  using Place = std::pair<std::shared_ptr<Storage>, std::uint64_t>;
  std::map<std::uint64_t, std::uint64_t> expected;   // number of announced weights not yet placed, by size
  std::map<std::uint64_t, std::vector<Place>> free;  // allocated but unused, by size
};

WeightMemory::WeightMemory(Device device, std::string label)
    : device_(device), label_(std::move(label)), places_(std::make_unique<Places>()) {}
WeightMemory::WeightMemory(WeightMemory&&) noexcept = default;
WeightMemory& WeightMemory::operator=(WeightMemory&&) noexcept = default;
WeightMemory::~WeightMemory() = default;

void WeightMemory::expect(WeightFormat format, std::int64_t rows, std::int64_t columns) {
  for (const Part& p : parts_of(ops::layout_of(format), rows, columns, ops::tiles_of(device_)))
    ++places_->expected[aligned(p.bytes())];
}

std::pair<std::shared_ptr<Storage>, std::uint64_t> WeightMemory::take(std::uint64_t bytes) {
  constexpr std::uint64_t most = std::uint64_t{256} << 20;  // all drivers can allocate this much in one allocation
  bytes = aligned(bytes);
  std::vector<Places::Place>& free = places_->free[bytes];
  if (free.empty()) {
    // Allocates this size together with other announced sizes, largest first, until no other size fits.
    std::vector<std::uint64_t> sizes = {bytes};
    std::uint64_t sum = bytes;
    const auto planned = places_->expected.find(bytes);
    if (planned != places_->expected.end() && planned->second > 0) {
      --planned->second;
      for (auto more = places_->expected.rbegin(); more != places_->expected.rend(); ++more)
        for (; more->second > 0 && sum + more->first <= most; --more->second, sum += more->first)
          sizes.push_back(more->first);
    }
    const std::shared_ptr<Storage> storage = Storage::allocate(device_, sum, label_);
    std::uint64_t offset = 0;
    for (const std::uint64_t size : sizes) {
      places_->free[size].emplace_back(storage, offset);
      offset += size;
    }
  }
  const Places::Place place = std::move(free.back());
  free.pop_back();
  return place;
}

Weight Weight::pack_from(const From& from, WeightFormat format, std::uint64_t bytes, std::int64_t rows,
                         std::int64_t columns, Device device, WeightMemory* memory, const std::string& label) {
  const ops::WeightLayout& f = ops::layout_of(format);
  auto wrong = [&](const std::string& what) {
    fail<ShapeError>({.operation = "Weight::pack",
                      .with = {{"name", label},
                               {"format", std::string(f.name)},
                               {"rows", std::to_string(rows)},
                               {"columns", std::to_string(columns)},
                               {"bytes", std::to_string(bytes)}},
                      .wrong = what});
  };
  if (rows <= 0 || columns <= 0) wrong("a weight must have at least one row and one column");
  const auto r = static_cast<std::uint64_t>(rows), c = static_cast<std::uint64_t>(columns);
  if (c % f.columns) wrong("the number of columns is not a multiple of the block size " + std::to_string(f.columns));
  const std::uint64_t row_bytes = c / f.columns * f.bytes;
  if (c / f.columns > bytes || bytes / row_bytes != r || bytes % row_bytes)
    wrong("the size does not match the number of rows; bytes in a row: " + std::to_string(row_bytes));

  const ops::Tiles tiles = ops::tiles_of(device);
  const std::size_t group = tiles.rows, groups = (r + group - 1) / group;
  const std::vector<Part> parts = parts_of(f, rows, columns, tiles);
  Weight w;
  w.format_ = format, w.rows_ = rows, w.columns_ = columns;
  for (const Part& p : parts) {
    auto [storage, offset] =
        memory
            ? memory->take(p.bytes())
            : std::pair(Storage::allocate(device, p.bytes(), label.empty() ? label : label + p.what), std::uint64_t{0});
    w.parts_.push_back(Array::wrap(std::move(storage), p.dtype, p.shape, offset));
  }
  if (f.codebook) w.parts_.push_back(ops::codebook_on(format, device));
  if (!holds_data(device)) return w;

  // Packs groups [first, first + count) to the addresses of each part.
  using Addresses = std::array<std::byte*, 3>;
  const auto pack_groups = [&](std::size_t first, std::size_t count, const Addresses& to,
                               std::vector<std::byte>& room) {
    const std::size_t begin = first * group, end = std::min<std::size_t>(r, begin + count * group);
    // Zeros the padding of the last group, including its scales.
    if (end - begin < count * group)
      for (std::size_t i = 0; i < parts.size(); ++i)
        std::memset(to[i] + (count - 1) * parts[i].group_bytes(), 0, parts[i].group_bytes());
    const Piece piece{from(begin * row_bytes, (end - begin) * row_bytes, room), row_bytes, end - begin, group};
    if (!f.quantised())
      f.bytes == 4 ? interleave<std::uint32_t>(piece, to[0]) : interleave_words(piece, to[0]);
    else
      (parts[1].dtype == DType::f32 ? pack_blocks<float> : pack_blocks<std::uint16_t>)(piece, f, to[0], to[1], to[2]);
  };
  Rooms rooms;
  constexpr std::size_t piece_bytes = std::size_t{256} << 10, batch_bytes = std::size_t{4} << 20;
  const std::size_t group_bytes = group * row_bytes;
  const std::size_t grain = std::clamp<std::size_t>(piece_bytes / group_bytes, 1, groups);
  const auto pack_all = [&](std::size_t first, std::size_t count, const Addresses& to) {
    executor::Executor::instance().parallel_for(count, grain, [&](std::uint64_t begin, std::uint64_t end) {
      std::vector<std::byte> room = rooms.take();
      Addresses at = to;
      for (std::size_t i = 0; i < parts.size(); ++i) at[i] += begin * parts[i].group_bytes();
      pack_groups(first + begin, end - begin, at, room);
      rooms.give(std::move(room));
    });
  };

  // The host never stores a whole matrix. If the device's memory is host memory, rows are packed directly into it.
  // Otherwise a few groups of rows at a time are packed and uploaded.
  Queue& queue = current_queue(device);
  Addresses to{};
  bool packed = false;
  const Callback<bool(std::size_t)> in_place = [&](std::size_t i) {
    if (i == parts.size()) {
      pack_all(0, groups, to);
      return packed = true;
    }
    return upload_in_place(queue, w.parts_[i].view_for_writing(), [&](std::byte* memory_of_part) {
      to[i] = memory_of_part;
      in_place(i + 1);
    });
  };
  if (in_place(0) && packed) return w;
  const std::size_t batch = std::clamp<std::size_t>(batch_bytes / group_bytes, 1, groups);
  std::vector<std::vector<std::byte>> staging(parts.size());
  for (std::size_t start = 0; start < groups; start += batch) {
    const std::size_t count = std::min(batch, groups - start);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      staging[i].resize(count * parts[i].group_bytes());
      to[i] = staging[i].data();
    }
    pack_all(start, count, to);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const BufferView all = w.parts_[i].view_for_writing();
      queue.upload({all.storage, all.byte_offset + start * parts[i].group_bytes(),
                    staging[i].size() / dtype_size(all.dtype), all.dtype},
                   staging[i].data());
    }
  }
  return w;
}

Weight Weight::of(const Array& matrix, WeightFormat format, Device device, std::string label) {
  const std::string name(weight_format_name(format));
  if (matrix.rank() != 2)
    fail<ShapeError>({.operation = "Weight::of",
                      .with = {{"shape", to_string(matrix.shape())}},
                      .wrong = "the array is not a matrix"});
  const std::vector<float> values = matrix.astype(DType::f32).to_vector<float>();
  const std::size_t columns = ops::layout_of(format).columns;
  if (static_cast<std::size_t>(matrix.shape(1)) % columns != 0)
    fail<ShapeError>({.operation = "Weight::of",
                      .with = {{"shape", to_string(matrix.shape())}, {"format", name}},
                      .wrong = "the number of columns is not a multiple of the block size " + std::to_string(columns)});
  if (!can_quantize(format))
    fail<ArgumentError>({.operation = "Weight::of",
                         .with = {{"format", name}},
                         .wrong = "arrays cannot be quantised to this format; it can only be read from files",
                         .remedy = "Use one of " + writable_formats_text()});
  const std::vector<std::byte> bytes = quantize(format, values);
  return pack(format, bytes, matrix.shape(0), matrix.shape(1), device, std::move(label));
}

}  // namespace tessera
