// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/weight.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "tessera/ops/kernels.h"

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

Array uploaded(Device device, DType dtype, Shape shape, const void* data, const std::string& label) {
  const std::uint64_t bytes = static_cast<std::uint64_t>(element_count(shape)) * dtype_size(dtype);
  Array out = Array::wrap(Storage::allocate(device, bytes, label), dtype, std::move(shape));
  if (bytes) Queue::of(device).upload(out.view_for_writing(), data);
  return out;
}

// Elements of T side by side for the rows of a group: [group][column][row].
template <class T>
std::vector<T> interleave(const std::byte* data, std::size_t rows, std::size_t columns, std::size_t group) {
  const std::size_t groups = (rows + group - 1) / group;
  std::vector<T> out(groups * columns * group);
  for (std::size_t r = 0; r < rows; ++r) {
    const std::byte* from = data + r * columns * sizeof(T);
    T* to = out.data() + (r / group * columns) * group + r % group;
    for (std::size_t c = 0; c < columns; ++c) std::memcpy(to + c * group, from + c * sizeof(T), sizeof(T));
  }
  return out;
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
  const BlockShape block = block_shape(format);
  auto wrong = [&](const std::string& what) {
    fail<ShapeError>({.asked = "Weight::pack",
                      .with = {{"name", label},
                               {"format", std::string(weight_format_name(format))},
                               {"rows", std::to_string(rows)},
                               {"columns", std::to_string(columns)},
                               {"bytes", std::to_string(data.size())}},
                      .wrong = what});
  };
  if (rows <= 0 || columns <= 0) wrong("a weight has at least one row and one column");
  const auto r = static_cast<std::uint64_t>(rows), c = static_cast<std::uint64_t>(columns);
  if (c % block.columns) wrong("a row is not whole blocks of " + std::to_string(block.columns));
  const std::uint64_t row_bytes = c / block.columns * block.bytes;
  if (c / block.columns > data.size() || data.size() / row_bytes != r || data.size() % row_bytes)
    wrong("the bytes do not make that many rows of " + std::to_string(row_bytes));

  const ops::Tiles tiles = ops::tiles_of(device);
  const std::size_t group = tiles.rows, groups = (r + group - 1) / group;
  auto extent = [](std::size_t n) { return static_cast<std::int64_t>(n); };
  Weight w;
  w.format_ = format, w.rows_ = rows, w.columns_ = columns;
  if (format == WeightFormat::f32) {
    const auto packed = interleave<float>(data.data(), r, c, group);
    w.parts_.push_back(uploaded(device, DType::f32, {extent(groups), columns, extent(group)}, packed.data(), label));
  } else if (format == WeightFormat::f16) {
    const auto packed = interleave<std::uint16_t>(data.data(), r, c, group);
    w.parts_.push_back(uploaded(device, DType::f16, {extent(groups), columns, extent(group)}, packed.data(), label));
  } else {
    const bool q8 = format == WeightFormat::q8_0;
    const std::size_t blocks = c / 32, words = q8 ? 8 : 4;
    // Rows that only fill up a group get scale 0.
    std::vector<std::uint32_t> packed(groups * blocks * words * group);
    std::vector<std::uint16_t> scales(groups * blocks * group);
    for (std::size_t row = 0; row < r; ++row)
      for (std::size_t b = 0; b < blocks; ++b) {
        const std::byte* from = data.data() + row * row_bytes + b * block.bytes;
        const std::size_t at = row / group * blocks + b, lane = row % group;
        scales[at * group + lane] = half_at(from);
        // Signed bytes plus 128: one flipped bit each.
        for (std::size_t i = 0; i < words; ++i)
          packed[(at * words + i) * group + lane] = word_at(from + 2 + 4 * i) ^ (q8 ? 0x80808080u : 0u);
      }
    w.parts_.push_back(
        uploaded(device, DType::u32, {extent(groups), extent(blocks * words), extent(group)}, packed.data(), label));
    const Shape shape = {extent(groups), extent(blocks), extent(group)};
    const std::string scale_label = label.empty() ? label : label + " (scales)";
    if (tiles.f16) {
      w.parts_.push_back(uploaded(device, DType::f16, shape, scales.data(), scale_label));
    } else {  // converting in every product would cost more than the bytes
      std::vector<float> wide(scales.size());
      std::ranges::transform(scales, wide.begin(), half_value);
      w.parts_.push_back(uploaded(device, DType::f32, shape, wide.data(), scale_label));
    }
  }
  return w;
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
  return results;
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
  need_weight("embedding_rows", weight);
  need_device("embedding_rows", ids, weight);
  if (!is_int(ids.dtype()))
    fail<DtypeError>({.asked = "embedding_rows",
                      .with = {{"ids", std::string(dtype_name(ids.dtype()))}},
                      .wrong = "ids are integers"});
  return gather(weight, &ids);
}

Array dequantize(const Weight& weight) {
  need_weight("dequantize", weight);
  return gather(weight, nullptr);
}

}  // namespace tessera
