// SPDX-License-Identifier: Apache-2.0
// From rows of a file to groups of rows interleaved.
#include <algorithm>
#include <cstring>

#include "tessera/device/dry_run.h"
#include "tessera/executor/executor.h"
#include "tessera/ops/kernels.h"
#include "tessera/ops/weight_blocks.h"

namespace tessera {

namespace {

/// A packed array, (groups, ...), and where the host writes the groups of one piece.
struct Part {
  Array array;
  std::size_t group_bytes = 0;
  std::vector<std::byte> staging;

  Part(Device device, DType dtype, Shape shape, const std::string& label) {
    group_bytes = static_cast<std::size_t>(element_count(shape) / shape[0]) * dtype_size(dtype);
    const std::size_t bytes = static_cast<std::size_t>(shape[0]) * group_bytes;
    array = Array::wrap(Storage::allocate(device, bytes, label), dtype, std::move(shape));
  }
};

/// Rows [begin, end) of a piece, whose first is lane 0 of a group.
struct Piece {
  const std::byte* data;
  std::size_t row_bytes, rows, group;
};

// Elements of T side by side for the rows of a group: [group][column][row].
template <class T>
void interleave(const Piece& p, std::byte* out) {
  const std::size_t columns = p.row_bytes / sizeof(T);
  for (std::size_t r = 0; r < p.rows; ++r) {
    const std::byte* const from = p.data + r * p.row_bytes;
    std::byte* const to = out + (r / p.group * columns * p.group + r % p.group) * sizeof(T);
    for (std::size_t c = 0; c < columns; ++c)
      std::memcpy(to + c * p.group * sizeof(T), from + c * sizeof(T), sizeof(T));
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
  return pack_from(from, format, data.size(), rows, columns, device, label);
}

Weight Weight::pack(WeightFormat format, std::uint64_t bytes, const Read& read, std::int64_t rows, std::int64_t columns,
                    Device device, std::string label) {
  const auto from = [&](std::uint64_t offset, std::size_t size, std::vector<std::byte>& room) {
    if (room.size() < size) room.resize(size);
    read(offset, std::span(room).first(size));
    return std::as_const(room).data();
  };
  return pack_from(from, format, bytes, rows, columns, device, label);
}

Weight Weight::pack_from(const From& from, WeightFormat format, std::uint64_t bytes, std::int64_t rows,
                         std::int64_t columns, Device device, const std::string& label) {
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
  const auto extent = [](std::size_t n) { return static_cast<std::int64_t>(n); };
  const auto named = [&](const char* what) { return label.empty() ? label : label + what; };
  std::vector<Part> parts;
  if (f.quantised()) {
    parts.emplace_back(device, DType::u32, Shape{extent(groups), extent(c / 32 * f.bits), extent(group)}, label);
    // Where f16 has to be converted by code, doing it in every product would cost more than the bytes.
    parts.emplace_back(device, tiles.f16 ? DType::f16 : DType::f32,
                       Shape{extent(groups), extent(c / f.columns * f.scales()), extent(group)}, named(" (scales)"));
    if (f.factor != 0)
      parts.emplace_back(device, DType::u16, Shape{extent(groups), extent(c / 32), extent(group)}, named(" (factors)"));
  } else {
    parts.emplace_back(device, f.element, Shape{extent(groups), columns, extent(group)}, label);
  }

  Weight w;
  w.format_ = format, w.rows_ = rows, w.columns_ = columns;
  // The host never holds a large matrix: a few groups of rows at a time go to the device.
  const auto pack_groups = [&](std::size_t first, std::size_t count, std::vector<std::byte>& room,
                               const std::function<std::byte*(Part&)>& to) {
    const std::size_t begin = first * group, end = std::min<std::size_t>(r, begin + count * group);
    // What only fills up the last group is 0, its scales as well.
    if (end - begin < count * group)
      for (Part& p : parts) std::memset(to(p) + (count - 1) * p.group_bytes, 0, p.group_bytes);
    const Piece piece{from(begin * row_bytes, (end - begin) * row_bytes, room), row_bytes, end - begin, group};
    if (!f.quantised())
      f.bytes == 4 ? interleave<std::uint32_t>(piece, to(parts[0])) : interleave<std::uint16_t>(piece, to(parts[0]));
    else
      (tiles.f16 ? pack_blocks<std::uint16_t> : pack_blocks<float>)(piece, f, to(parts[0]), to(parts[1]),
                                                                    f.factor != 0 ? to(parts[2]) : nullptr);
  };
  constexpr std::size_t piece_bytes = std::size_t{256} << 10, together = std::size_t{4} << 20;
  const std::size_t group_bytes = group * row_bytes;
  const std::size_t grain = std::clamp<std::size_t>(piece_bytes / group_bytes, 1, groups);
  const std::size_t batch = std::clamp<std::size_t>(together / group_bytes, 1, groups);
  for (std::size_t start = 0; start < groups && holds_data(device); start += batch) {
    const std::size_t in_batch = std::min(batch, groups - start);
    for (Part& p : parts) p.staging.resize(in_batch * p.group_bytes);
    executor::Executor::instance().pieces(in_batch, grain, [&](std::uint64_t begin, std::uint64_t end) {
      std::vector<std::byte> room;
      pack_groups(start + begin, end - begin, room, [&](Part& p) { return p.staging.data() + begin * p.group_bytes; });
    });
    for (Part& p : parts) {
      const BufferView all = p.array.view_for_writing();
      current_queue(device).upload(
          {all.storage, all.byte_offset + start * p.group_bytes, p.staging.size() / dtype_size(all.dtype), all.dtype},
          p.staging.data());
    }
  }
  for (Part& p : parts) w.parts_.push_back(std::move(p.array));
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
