// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/weight.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "tessera/device/dry_run.h"
#include "tessera/ops/kernels.h"
#include "tessera/ops/weight_blocks.h"

namespace tessera {

using ops::GatherSpec;
using ops::LinearSpec;
using ops::WeightSpec;

namespace {

struct BlockShape {
  std::size_t columns, bytes;
};
BlockShape block_shape(WeightFormat f) {
  switch (f) {
    case WeightFormat::f16: return {1, 2};
    case WeightFormat::q8_0: return {32, 34};
    case WeightFormat::q4_0: return {32, 18};
    default: return {1, 4};
  }
}

std::uint32_t word_at(const std::byte* p) {  // file order is little-endian, and no alignment is promised
  static_assert(std::endian::native == std::endian::little);
  std::uint32_t w;
  std::memcpy(&w, p, 4);
  return w;
}
std::uint16_t half_at(const std::byte* p) {
  std::uint16_t h;
  std::memcpy(&h, p, 2);
  return h;
}

/// An array (groups, ...) that `pack(to, first, count)` writes some groups of at a time, so that a large matrix is
/// never held on the host twice. What it leaves out is 0.
template <class T, class Pack>
Array packed(Device device, DType dtype, Shape shape, const std::string& label, const Pack& pack) {
  const auto groups = static_cast<std::size_t>(shape[0]);
  const std::size_t size = static_cast<std::size_t>(element_count(shape)) / groups;  // of a group
  Array out = Array::wrap(Storage::allocate(device, groups * size * sizeof(T), label), dtype, std::move(shape));
  if (!holds_data(device)) return out;
  constexpr std::size_t piece_bytes = std::size_t{4} << 20;
  const std::size_t piece = std::clamp<std::size_t>(piece_bytes / (size * sizeof(T)), 1, groups);
  const BufferView all = out.view_for_writing();
  std::vector<T> staging;
  for (std::size_t first = 0; first < groups; first += piece) {
    const std::size_t count = std::min(piece, groups - first);
    staging.assign(count * size, T{});
    pack(staging.data(), first, count);
    current_queue(device).upload({all.storage, all.byte_offset + first * size * sizeof(T), count * size, dtype},
                                 staging.data());
  }
  return out;
}

/// The rows of a matrix, as files have them, and in groups as they are packed.
struct Rows {
  std::function<const std::byte*(std::uint64_t offset, std::size_t bytes)> from;
  std::size_t rows, row_bytes, group;

  /// row(address, group, lane) for those of the groups [first, first + count), which it counts from 0.
  template <class Row>
  void each(std::size_t first, std::size_t count, const Row& row) const {
    const std::size_t begin = first * group, end = std::min(rows, (first + count) * group);
    const std::byte* const data = from(begin * row_bytes, (end - begin) * row_bytes);
    for (std::size_t r = begin; r < end; ++r) row(data + (r - begin) * row_bytes, r / group - first, r % group);
  }
};

// Elements of T side by side for the rows of a group: [group][column][row].
template <class T>
Array interleaved(Device device, DType dtype, const Rows& rows, const std::string& label) {
  const std::size_t group = rows.group, groups = (rows.rows + group - 1) / group, columns = rows.row_bytes / sizeof(T);
  const auto extent = [](std::size_t n) { return static_cast<std::int64_t>(n); };
  return packed<T>(device, dtype, {extent(groups), extent(columns), extent(group)}, label,
                   [&](T* out, std::size_t first, std::size_t count) {
                     rows.each(first, count, [&](const std::byte* from, std::size_t g, std::size_t lane) {
                       T* to = out + g * columns * group + lane;
                       for (std::size_t c = 0; c < columns; ++c)
                         std::memcpy(to + c * group, from + c * sizeof(T), sizeof(T));
                     });
                   });
}

WeightSpec spec_of(const Weight& w) {
  const auto& parts = w.parts();
  return {w.format(), static_cast<std::uint32_t>(parts[0].shape(-1)), parts.size() > 1 ? parts[1].dtype() : DType::f32};
}

void need_weight(const char* operation, const Weight& w) {
  if (!w.valid())
    fail<ArgumentError>({.asked = operation, .wrong = "the weight is empty", .todo = "Make it with Weight::pack"});
}

void need_device(const char* operation, const Array& a, const Weight& w) {
  if (a.device() != w.device())
    fail<DeviceError>({.asked = operation,
                       .with = {{"array on", to_string(a.device())}, {"weight on", to_string(w.device())}},
                       .wrong = "the operands are on different devices",
                       .todo = "Move the array with to(...), or pack the weight for the other device"});
}

}  // namespace

std::string_view weight_format_name(WeightFormat f) {
  constexpr std::string_view names[] = {"f32", "f16", "q8_0", "q4_0"};
  return names[static_cast<std::size_t>(f)];
}

Weight Weight::pack(WeightFormat format, std::span<const std::byte> data, std::int64_t rows, std::int64_t columns,
                    Device device, std::string label) {
  return pack_from([&](std::uint64_t offset, std::size_t) { return data.data() + offset; }, format, data.size(), rows,
                   columns, device, label);
}

Weight Weight::pack(WeightFormat format, std::uint64_t bytes, const Read& read, std::int64_t rows, std::int64_t columns,
                    Device device, std::string label) {
  std::vector<std::byte> piece;
  const auto from = [&](std::uint64_t offset, std::size_t size) {
    if (piece.size() < size) piece.resize(size);
    read(offset, std::span(piece).first(size));
    return piece.data();
  };
  return pack_from(from, format, bytes, rows, columns, device, label);
}

Weight Weight::pack_from(const From& from, WeightFormat format, std::uint64_t bytes, std::int64_t rows,
                         std::int64_t columns, Device device, const std::string& label) {
  const BlockShape block = block_shape(format);
  auto wrong = [&](const std::string& what) {
    fail<ShapeError>({.asked = "Weight::pack",
                      .with = {{"name", label},
                               {"format", std::string(weight_format_name(format))},
                               {"rows", std::to_string(rows)},
                               {"columns", std::to_string(columns)},
                               {"bytes", std::to_string(bytes)}},
                      .wrong = what});
  };
  if (rows <= 0 || columns <= 0) wrong("a weight has at least one row and one column");
  const auto r = static_cast<std::uint64_t>(rows), c = static_cast<std::uint64_t>(columns);
  if (c % block.columns) wrong("a row is not whole blocks of " + std::to_string(block.columns));
  const std::uint64_t row_bytes = c / block.columns * block.bytes;
  if (c / block.columns > bytes || bytes / row_bytes != r || bytes % row_bytes)
    wrong("the bytes do not make that many rows of " + std::to_string(row_bytes));

  const ops::Tiles tiles = ops::tiles_of(device);
  const std::size_t group = tiles.rows, groups = (r + group - 1) / group;
  auto extent = [](std::size_t n) { return static_cast<std::int64_t>(n); };
  const Rows all{from, r, row_bytes, group};
  Weight w;
  w.format_ = format, w.rows_ = rows, w.columns_ = columns;
  if (format == WeightFormat::f32) {
    w.parts_.push_back(interleaved<float>(device, DType::f32, all, label));
  } else if (format == WeightFormat::f16) {
    w.parts_.push_back(interleaved<std::uint16_t>(device, DType::f16, all, label));
  } else {
    const bool q8 = format == WeightFormat::q8_0;
    const std::size_t blocks = c / 32, words = q8 ? 8 : 4;
    const auto for_blocks = [&](std::size_t first, std::size_t count, const auto& use) {
      all.each(first, count, [&](const std::byte* row, std::size_t g, std::size_t lane) {
        for (std::size_t b = 0; b < blocks; ++b) use(row + b * block.bytes, g * blocks + b, lane);
      });
    };
    const auto pack_words = [&](std::uint32_t* to, std::size_t first, std::size_t count) {
      for_blocks(first, count, [&](const std::byte* from, std::size_t at, std::size_t lane) {
        // Signed bytes plus 128: one flipped bit each.
        for (std::size_t i = 0; i < words; ++i)
          to[(at * words + i) * group + lane] = word_at(from + 2 + 4 * i) ^ (q8 ? 0x80808080u : 0u);
      });
    };
    // Rows that only fill up a group get scale 0.
    const auto pack_scales = [&](auto* to, std::size_t first, std::size_t count) {
      for_blocks(first, count, [&](const std::byte* from, std::size_t at, std::size_t lane) {
        if constexpr (std::is_same_v<decltype(to), float*>)
          to[at * group + lane] = half_value(half_at(from));
        else
          to[at * group + lane] = half_at(from);
      });
    };
    w.parts_.push_back(packed<std::uint32_t>(
        device, DType::u32, {extent(groups), extent(blocks * words), extent(group)}, label, pack_words));
    const Shape shape = {extent(groups), extent(blocks), extent(group)};
    const std::string scale_label = label.empty() ? label : label + " (scales)";
    // Where f16 has to be converted by code, doing it in every product would cost more than the bytes.
    w.parts_.push_back(tiles.f16 ? packed<std::uint16_t>(device, DType::f16, shape, scale_label, pack_scales)
                                 : packed<float>(device, DType::f32, shape, scale_label, pack_scales));
  }
  return w;
}

Weight Weight::of(const Array& matrix, WeightFormat format, Device device, std::string label) {
  if (matrix.rank() != 2)
    fail<ShapeError>(
        {.asked = "Weight::of", .with = {{"shape", to_string(matrix.shape())}}, .wrong = "it is no matrix"});
  const std::vector<float> values = matrix.astype(DType::f32).to_vector<float>();
  const std::size_t columns = block_shape(format).columns;
  if (static_cast<std::size_t>(matrix.shape(1)) % columns != 0)
    fail<ShapeError>(
        {.asked = "Weight::of",
         .with = {{"shape", to_string(matrix.shape())}, {"format", std::string(weight_format_name(format))}},
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
      case WeightFormat::q8_0: put(quantize_q8_0(std::span<const float, 32>(values.data() + i, 32))); break;
      case WeightFormat::q4_0: put(quantize_q4_0(std::span<const float, 32>(values.data() + i, 32))); break;
    }
  }
  return pack(format, bytes, matrix.shape(0), matrix.shape(1), device, std::move(label));
}

std::uint64_t Weight::bytes() const {
  std::uint64_t n = 0;
  for (const Array& p : parts_) n += p.bytes();
  return n;
}

namespace {

void need_product(const Array& x, const Weight& weight) {
  need_weight("linear", weight);
  need_device("linear", x, weight);
  if (x.rank() < 1 || x.shape(-1) != weight.columns())
    fail<ShapeError>(
        {.asked = "linear",
         .with = {{"x", to_string(x.shape())}, {"weight", to_string(Shape{weight.rows(), weight.columns()})}},
         .wrong = "the last axis of x is not as long as a row of the weight"});
  if (!is_float(x.dtype()))
    fail<DtypeError>({.asked = "linear",
                      .with = {{"x", std::string(dtype_name(x.dtype()))}},
                      .wrong = "x holds no floats",
                      .todo = "Use astype"});
}

/// Rows of f32 numbers in blocks of 32 as 8-bit integers with a scale and a sum each.
Array quantised(const Array& flat) {
  const std::int64_t blocks = flat.size() / 32;
  const Array words = Array::empty({blocks, ops::activation_words}, DType::u32, flat.device());
  static const Kernel& quantise = *new Kernel(ops::trace_quantise(0));
  quantise.launch({static_cast<std::uint64_t>(blocks), 1, 1}, {flat.view(), words.view()});
  return words;
}

}  // namespace

std::vector<Array> linear(const Array& x, std::initializer_list<const Weight*> weights) {
  detail::RuledOperation operation("linear", x);
  for (const Weight* weight : weights) need_product(x, *weight);
  std::vector<Array> results;
  std::optional<Array> flat, words;
  for (const Weight* weight : weights) {
    Shape shape = x.shape();
    shape.back() = weight->rows();
    const Array out = results.emplace_back(Array::empty(shape, DType::f32, x.device()));
    const std::int64_t tokens = x.size() / weight->columns();
    if (tokens == 0) continue;
    if (!flat) flat = (x.dtype() == DType::f32 ? x : x.astype(DType::f32)).as_contiguous();
    const bool blocked = ops::is_quantised(weight->format());
    if (blocked && !words) words = quantised(*flat);

    const ops::Tiles tiles = ops::tiles_of(x.device());
    LinearSpec spec{spec_of(*weight)};
    while (spec.tokens < tiles.tokens && spec.tokens < tokens) spec.tokens *= 2;
    spec.slices = tiles.slices;
    const std::int64_t groups = weight->parts()[0].shape(0), parts = (tokens + spec.tokens - 1) / spec.tokens;
    std::vector<LaunchArgument> args;
    for (const Array& p : weight->parts()) args.emplace_back(p.view());
    args.emplace_back((blocked ? *words : *flat).view());
    args.emplace_back(out.view());
    for (std::int64_t v : {weight->rows(), blocked ? weight->columns() / 32 : weight->columns(), tokens, parts})
      args.push_back(LaunchArgument::index(v));
    static auto& family = *new KernelFamily<LinearSpec>(ops::trace_linear);
    family(spec).launch({static_cast<std::uint64_t>(groups * parts), 1, 1}, std::span(args));
  }
  return operation.made(
      std::move(results),
      [&] {
        return Attributes{{"weights", static_cast<std::int64_t>(weights.size())}};
      },
      [&](std::size_t i) {
        return Rule{[weight = *weights.begin()[i]](Backward& b) {
          b.add(0,
                [&] { return matmul(b.adjoint(), dequantize(weight)); });  // nothing to the weight, which never changes
        }};
      });
}

Array linear(const Array& x, const Weight& weight) { return linear(x, {&weight})[0]; }

namespace {

Array gather(const Weight& weight, const Array* ids) {
  Shape shape = ids ? ids->shape() : Shape{weight.rows()};
  shape.push_back(weight.columns());
  const Array out = Array::empty(shape, DType::f32, weight.device());
  if (out.size() == 0) return out;
  std::vector<LaunchArgument> args;
  for (const Array& p : weight.parts()) args.emplace_back(p.view());
  if (ids) args.emplace_back(ids->as_contiguous().view());
  args.emplace_back(out.view());
  args.push_back(LaunchArgument::index(weight.rows()));
  args.push_back(LaunchArgument::index(weight.columns()));
  static auto& family = *new KernelFamily<GatherSpec>(ops::trace_gather);
  family({spec_of(weight), ids ? ids->dtype() : DType::index})
      .launch(
          {static_cast<std::uint64_t>(weight.columns()), static_cast<std::uint64_t>(out.size() / weight.columns()), 1},
          std::span(args));
  return out;
}

}  // namespace

Array embedding_rows(const Weight& weight, const Array& ids) {
  const detail::Operation operation("embedding_rows", ids);
  need_weight("embedding_rows", weight);
  need_device("embedding_rows", ids, weight);
  if (!is_int(ids.dtype()))
    fail<DtypeError>({.asked = "embedding_rows",
                      .with = {{"ids", std::string(dtype_name(ids.dtype()))}},
                      .wrong = "ids are integers"});
  return operation.made(gather(weight, &ids));
}

Array dequantize(const Weight& weight) {
  const detail::Operation operation("dequantize");
  need_weight("dequantize", weight);
  return operation.made(gather(weight, nullptr));
}

}  // namespace tessera
