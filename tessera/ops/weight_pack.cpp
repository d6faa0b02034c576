// SPDX-License-Identifier: Apache-2.0
// From rows of a file to groups of rows interleaved.
#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>

#include "tessera/device/dry_run.h"
#include "tessera/device/staging.h"
#include "tessera/executor/executor.h"
#include "tessera/ops/kernels.h"
#include "tessera/ops/weight_blocks.h"

namespace tessera {

namespace {

/// A packed array, (groups, ...).
struct Part {
  DType dtype;
  Shape shape;
  const char* what;  ///< behind the weight's label
  std::size_t bytes() const { return static_cast<std::size_t>(element_count(shape)) * dtype_size(dtype); }
  std::size_t group_bytes() const { return bytes() / static_cast<std::size_t>(shape[0]); }
};

std::vector<Part> parts_of(const ops::WeightLayout& f, std::int64_t rows, std::int64_t columns,
                           const ops::Tiles& tiles) {
  const std::int64_t group = tiles.rows, groups = ops::ceil_div(rows, group);
  if (!f.quantised()) return {{f.element, {groups, columns, group}, ""}};
  std::vector<Part> parts = {
      {DType::u32, {groups, columns / 32 * f.bits, group}, ""},
      // Where f16 has to be converted by code, doing it in every product would cost more than the bytes.
      {tiles.f16 ? DType::f16 : DType::f32, {groups, columns / f.columns * f.scales(), group}, " (scales)"}};
  if (f.factor != 0) parts.push_back({DType::u16, {groups, columns / 32, group}, " (factors)"});
  return parts;
}

/// What pieces are read into: as many as threads read at once.
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

/// Rows [begin, end) of a piece, whose first is lane 0 of a group.
struct Piece {
  const std::byte* data;
  std::size_t row_bytes, rows, group;
};

// Elements of T side by side for the rows of a group: [group][column][row]. A few columns of all rows at a time, so
// that what is written lies in the nearest cache.
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

// Elements of 16 bits, four rows by four columns at a time: a word of each row in, a word of each column out.
void interleave_words(const Piece& p, std::byte* out) {
  constexpr std::uint64_t even = 0x0000ffff0000ffff, low = 0xffffffff;
  const std::size_t columns = p.row_bytes / 2;
  if (p.rows % p.group != 0 || p.group % 4 != 0 || columns % 4 != 0) return interleave<std::uint16_t>(p, out);
  for (std::size_t begin = 0; begin < p.rows; begin += p.group)
    for (std::size_t c = 0; c < columns; c += 4)
      for (std::size_t lane = 0; lane < p.group; lane += 4) {
        std::uint64_t row[4];
        for (std::size_t i = 0; i < 4; ++i) std::memcpy(row + i, p.data + (begin + lane + i) * p.row_bytes + 2 * c, 8);
        const std::uint64_t first = (row[0] & even) | (row[1] & even) << 16, third = (row[2] & even) | (row[3] & even)
                                                                                                           << 16;
        const std::uint64_t second = (row[0] >> 16 & even) | (row[1] & ~even),
                            fourth = (row[2] >> 16 & even) | (row[3] & ~even);
        const std::uint64_t column[4] = {(first & low) | third << 32, (second & low) | fourth << 32,
                                         first >> 32 | (third & ~low), second >> 32 | (fourth & ~low)};
        std::byte* const to = out + (begin * columns + c * p.group + lane) * 2;
        for (std::size_t i = 0; i < 4; ++i) std::memcpy(to + i * p.group * 2, column + i, 8);
      }
}

/// `Scale`: how the device has f16 scales: their bits, or as floats.
template <class Scale>
Scale scale_of(std::uint16_t bits) {
  if constexpr (std::is_same_v<Scale, float>)
    return half_value(bits);
  else
    return bits;
}

template <class Scale>
void pack_blocks(const Piece& p, const ops::WeightLayout& f, std::byte* words_to, std::byte* scales_to,
                 std::byte* factors_to) {
  auto* const words = reinterpret_cast<std::uint32_t*>(words_to);
  auto* const scales = reinterpret_cast<Scale*>(scales_to);
  auto* const factors = reinterpret_cast<std::uint16_t*>(factors_to);
  const std::size_t blocks = p.row_bytes / f.bytes, group = p.group;
  ops::UnpackedBlock u{};
  for (std::size_t begin = 0; begin < p.rows; begin += group) {
    const std::size_t lanes = std::min(group, p.rows - begin);
    for (std::size_t b = 0; b < blocks; ++b) {
      const std::size_t block = begin / group * blocks + b;
      for (std::size_t lane = 0; lane < lanes; ++lane) {
        f.unpack(p.data + (begin + lane) * p.row_bytes + b * f.bytes, u);
        std::uint32_t* to = words + block * f.parts() * f.bits * group + lane;
        for (std::size_t part = 0; part < f.parts(); ++part)
          for (std::size_t w = 0; w < f.bits; ++w, to += group) *to = u.words[part][w];
        scales[block * f.scales() * group + lane] = scale_of<Scale>(u.scale);
        if (f.minimum) scales[(block * 2 + 1) * group + lane] = scale_of<Scale>(u.minimum);
        if (f.factor != 0)
          for (std::size_t part = 0; part < f.parts(); ++part)
            factors[(block * f.parts() + part) * group + lane] = u.factors[part];
      }
    }
  }
}

}  // namespace

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

void WeightMemory::expect(WeightFormat format, std::int64_t rows, std::int64_t columns) {
  for (const Part& p : parts_of(ops::layout_of(format), rows, columns, ops::tiles_of(device_)))
    ++expected_[aligned(p.bytes())];
}

std::pair<std::shared_ptr<Storage>, std::uint64_t> WeightMemory::take(std::uint64_t bytes) {
  constexpr std::uint64_t most = std::uint64_t{256} << 20;  // no driver refuses that much at once
  bytes = aligned(bytes);
  std::vector<Place>& free = places_[bytes];
  if (free.empty()) {
    // With this one as many others as there is room for, the largest first.
    std::vector<std::uint64_t> sizes = {bytes};
    std::uint64_t sum = bytes;
    const auto planned = expected_.find(bytes);
    if (planned != expected_.end() && planned->second > 0) {
      --planned->second;
      for (auto more = expected_.rbegin(); more != expected_.rend(); ++more)
        for (; more->second > 0 && sum + more->first <= most; --more->second, sum += more->first)
          sizes.push_back(more->first);
    }
    const std::shared_ptr<Storage> storage = Storage::allocate(device_, sum, label_);
    std::uint64_t offset = 0;
    for (const std::uint64_t size : sizes) {
      places_[size].emplace_back(storage, offset);
      offset += size;
    }
  }
  const Place place = std::move(free.back());
  free.pop_back();
  return place;
}

Weight Weight::pack_from(const From& from, WeightFormat format, std::uint64_t bytes, std::int64_t rows,
                         std::int64_t columns, Device device, WeightMemory* memory, const std::string& label) {
  const ops::WeightLayout& f = ops::layout_of(format);
  auto wrong = [&](const std::string& what) {
    fail<ShapeError>({.asked = "Weight::pack",
                      .with = {{"name", label},
                               {"format", std::string(f.name)},
                               {"rows", std::to_string(rows)},
                               {"columns", std::to_string(columns)},
                               {"bytes", std::to_string(bytes)}},
                      .wrong = what});
  };
  if (rows <= 0 || columns <= 0) wrong("a weight has at least one row and one column");
  const auto r = static_cast<std::uint64_t>(rows), c = static_cast<std::uint64_t>(columns);
  if (c % f.columns) wrong("a row is not whole blocks of " + std::to_string(f.columns));
  const std::uint64_t row_bytes = c / f.columns * f.bytes;
  if (c / f.columns > bytes || bytes / row_bytes != r || bytes % row_bytes)
    wrong("the bytes do not make that many rows of " + std::to_string(row_bytes));

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
  if (!holds_data(device)) return w;

  // Groups [first, first + count) to where each part has them.
  using Addresses = std::array<std::byte*, 3>;
  const auto pack_groups = [&](std::size_t first, std::size_t count, const Addresses& to,
                               std::vector<std::byte>& room) {
    const std::size_t begin = first * group, end = std::min<std::size_t>(r, begin + count * group);
    // What only fills up the last group is 0, its scales as well.
    if (end - begin < count * group)
      for (std::size_t i = 0; i < parts.size(); ++i)
        std::memset(to[i] + (count - 1) * parts[i].group_bytes(), 0, parts[i].group_bytes());
    const Piece piece{from(begin * row_bytes, (end - begin) * row_bytes, room), row_bytes, end - begin, group};
    if (!f.quantised())
      f.bytes == 4 ? interleave<std::uint32_t>(piece, to[0]) : interleave_words(piece, to[0]);
    else
      (tiles.f16 ? pack_blocks<std::uint16_t> : pack_blocks<float>)(piece, f, to[0], to[1], to[2]);
  };
  Rooms rooms;
  constexpr std::size_t piece_bytes = std::size_t{256} << 10, batch_bytes = std::size_t{4} << 20;
  const std::size_t group_bytes = group * row_bytes;
  const std::size_t grain = std::clamp<std::size_t>(piece_bytes / group_bytes, 1, groups);
  const auto pack_all = [&](std::size_t first, std::size_t count, const Addresses& to) {
    executor::Executor::instance().pieces(count, grain, [&](std::uint64_t begin, std::uint64_t end) {
      std::vector<std::byte> room = rooms.take();
      Addresses at = to;
      for (std::size_t i = 0; i < parts.size(); ++i) at[i] += begin * parts[i].group_bytes();
      pack_groups(first + begin, end - begin, at, room);
      rooms.give(std::move(room));
    });
  };

  // The host never holds a large matrix: a few groups of rows at a time go to the device, or are packed where they
  // belong if that is memory of the host's.
  Queue& queue = current_queue(device);
  Addresses to{};
  bool packed = false;
  const std::function<bool(std::size_t)> in_place = [&](std::size_t i) {
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
    fail<ShapeError>(
        {.asked = "Weight::of", .with = {{"shape", to_string(matrix.shape())}}, .wrong = "it is no matrix"});
  const std::vector<float> values = matrix.astype(DType::f32).to_vector<float>();
  const std::size_t columns = ops::layout_of(format).columns;
  if (static_cast<std::size_t>(matrix.shape(1)) % columns != 0)
    fail<ShapeError>({.asked = "Weight::of",
                      .with = {{"shape", to_string(matrix.shape())}, {"format", name}},
                      .wrong = "a row is not whole blocks of " + std::to_string(columns)});
  std::vector<std::byte> bytes;
  const auto put = [&](const auto& v) {
    const auto* at = reinterpret_cast<const std::byte*>(&v);
    bytes.insert(bytes.end(), at, at + sizeof v);
  };
  for (std::size_t i = 0; i < values.size(); i += columns) {
    switch (format) {
      case WeightFormat::f32: put(values[i]); break;
      case WeightFormat::f16: put(half(values[i])); break;
      case WeightFormat::bf16: put(bfloat16(values[i])); break;
      case WeightFormat::q8_0: put(quantize_q8_0(std::span<const float, 32>(values.data() + i, 32))); break;
      case WeightFormat::q4_0: put(quantize_q4_0(std::span<const float, 32>(values.data() + i, 32))); break;
      default:
        fail<ArgumentError>({.asked = "Weight::of",
                             .with = {{"format", name}},
                             .wrong = "arrays are not rounded to this format, it is only read from files",
                             .todo = "Use f32, f16, bf16, q8_0 or q4_0"});
    }
  }
  return pack(format, bytes, matrix.shape(0), matrix.shape(1), device, std::move(label));
}

}  // namespace tessera
