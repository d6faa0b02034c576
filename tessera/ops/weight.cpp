// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/weight.h"

#include <algorithm>

#include "tessera/device/launch/kernel.h"
#include "tessera/device/launch/kernel_family.h"
#include "tessera/ops/kernels.h"

namespace tessera {

using ops::GatherSpec;
using ops::LinearSpec;
using ops::QuantiseSpec;
using ops::WeightSpec;

namespace {

WeightSpec spec_of(const Weight& w) {
  const auto& parts = w.parts();
  return {w.format(), static_cast<std::uint32_t>(parts[0].shape(-1)), parts.size() > 1 ? parts[1].dtype() : DType::f32};
}

void check_weight(const char* operation, const Weight& w) {
  if (!w.valid())
    fail<ArgumentError>(
        {.operation = operation, .wrong = "the weight is empty", .remedy = "Create it with Weight::pack"});
}

void check_device_match(const char* operation, const Array& a, const Weight& w) {
  if (a.device() != w.device())
    fail<DeviceError>({.operation = operation,
                       .with = {{"array on", to_string(a.device())}, {"weight on", to_string(w.device())}},
                       .wrong = "the operands are on different devices",
                       .remedy = "Move the array with to(...), or pack the weight for the other device"});
}

}  // namespace

std::uint64_t Weight::bytes() const {
  std::uint64_t n = 0;
  for (const Array& p : parts_) n += p.bytes();
  return n;
}

namespace {

void check_product(const Array& x, const Weight& weight) {
  check_weight("linear", weight);
  check_device_match("linear", x, weight);
  if (x.rank() < 1 || x.shape(-1) != weight.columns())
    fail<ShapeError>(
        {.operation = "linear",
         .with = {{"x", to_string(x.shape())}, {"weight", to_string(Shape{weight.rows(), weight.columns()})}},
         .wrong = "the length of x's last axis is not the number of columns of the weight"});
  if (!is_float(x.dtype()))
    fail<DtypeError>({.operation = "linear",
                      .with = {{"x", std::string(dtype_name(x.dtype()))}},
                      .wrong = "x must be of a float dtype",
                      .remedy = "Use astype"});
}

/// Quantises rows of f32 numbers to 8-bit integers in blocks of 32, in the layout that `spec` describes.
Array quantised(const Array& flat, std::int64_t tokens, const QuantiseSpec& spec) {
  const std::int64_t columns = flat.size() / tokens, tiles = ops::ceil_div(tokens, spec.tokens);
  const std::int64_t blocks = tiles * spec.tokens * (columns / 32);
  const Array words = Array::empty({blocks, ops::activation_words}, DType::u32, flat.device());
  static auto& family = *new KernelFamily<QuantiseSpec>(ops::trace_quantise);
  const bool together = spec.lanes != 0;
  BufferView to = words.view();
  if (together) to.dtype = DType::u8, to.elements *= 4;
  std::vector<LaunchArgument> args = {flat.view(), to};
  if (spec.tokens > 1 || together)
    args.push_back(LaunchArgument::index(columns / 32)), args.push_back(LaunchArgument::index(tokens));
  family(spec).launch({static_cast<std::uint64_t>(together ? blocks / spec.tokens : blocks), 1, 1}, std::span(args));
  return words;
}

/// Returns the numbers in tiles, without quantising them.
Array tiled(const Array& flat, std::int64_t tokens, std::uint32_t together) {
  if (together == 1) return flat;
  const std::int64_t columns = flat.size() / tokens, tiles = ops::ceil_div(tokens, together);
  const Array out = Array::empty({tiles, columns, together}, DType::f32, flat.device());
  static auto& family = *new KernelFamily<std::uint32_t>(ops::trace_tile_activations);
  std::vector<LaunchArgument> args = {flat.view(), out.view(), LaunchArgument::index(columns),
                                      LaunchArgument::index(tokens)};
  family(together).launch({static_cast<std::uint64_t>(columns), static_cast<std::uint64_t>(tiles), 1}, std::span(args));
  return out;
}

/// Returns the activation layout that a weight needs, without the tile size. A weight without an offset can read any
/// layout.
QuantiseSpec wanted_by(const Weight& weight) {
  const ops::WeightLayout& f = ops::layout_of(weight.format());
  return {1, f.offset, f.offset != 0 && f.factor == 16};
}

}  // namespace

std::vector<Array> linear(const Array& x, std::initializer_list<const Weight*> weights) {
  detail::RuledOperation operation("linear", x);
  for (const Weight* weight : weights) check_product(x, *weight);
  std::vector<Array> results;
  std::optional<Array> flat, numbers;
  std::vector<std::pair<QuantiseSpec, Array>> words;
  const auto words_for = [&](const Weight& weight, std::int64_t tokens, std::uint32_t together) {
    QuantiseSpec spec = wanted_by(weight);
    if (spec.offset == 0)  // any layout works, so use the layout that another weight needs
      for (const Weight* other : weights)
        if (spec.offset == 0) spec = wanted_by(*other);
    spec.tokens = together;
    spec.lanes = ops::quantise_lanes(ops::tiles_of(x.device()));
    const auto made = std::ranges::find(words, spec, &decltype(words)::value_type::first);
    return made != words.end() ? made->second : words.emplace_back(spec, quantised(*flat, tokens, spec)).second;
  };
  for (const Weight* weight : weights) {
    Shape shape = x.shape();
    shape.back() = weight->rows();
    const Array out = results.emplace_back(Array::empty(shape, DType::f32, x.device()));
    const std::int64_t tokens = x.size() / weight->columns();
    if (tokens == 0) continue;
    if (!flat) flat = (x.dtype() == DType::f32 ? x : x.astype(DType::f32)).as_contiguous();
    const bool blocked = ops::layout_of(weight->format()).quantised();
    const ops::Tiles tiles = ops::tiles_of(x.device());
    LinearSpec spec{spec_of(*weight)};
    spec.tokens = ops::linear_tokens(tiles, weight->format(), tokens);
    spec.slices = tiles.slices;
    const std::optional<ops::LinearPanelSpec> panel = ops::choose_linear_panel(tiles, spec.weight, tokens);
    if (panel) spec.tokens = panel->tokens;
    const std::int64_t groups = weight->parts()[0].shape(0), parts = (tokens + spec.tokens - 1) / spec.tokens;
    std::vector<LaunchArgument> args;
    for (const Array& p : weight->parts()) args.emplace_back(p.view());
    // all formats that are not quantised use the same tile size
    if (!blocked && !numbers) numbers = tiled(*flat, tokens, spec.tokens);
    args.emplace_back((blocked ? words_for(*weight, tokens, spec.tokens) : *numbers).view());
    args.emplace_back(out.view());
    for (std::int64_t v : {weight->rows(), blocked ? weight->columns() / 32 : weight->columns(), tokens, parts})
      args.push_back(LaunchArgument::index(v));
    if (panel) {
      // Uses enough blocks to keep all compute units busy. Each block computes as many groups as possible.
      const std::int64_t across = ops::ceil_div(parts, panel->tiles),
                         units = 2 * std::max<std::int64_t>(1, tiles.compute_units),
                         together = std::clamp<std::int64_t>(groups * across / units, 1, panel->groups);
      for (std::int64_t v : {groups, together, std::int64_t{panel->tiles}}) args.push_back(LaunchArgument::index(v));
      static auto& panels = *new KernelFamily<ops::LinearPanelSpec>(ops::trace_linear_panel);
      panels(*panel).launch({static_cast<std::uint64_t>(ops::ceil_div(groups, together) * across), 1, 1},
                            std::span(args));
      continue;
    }
    static auto& family = *new KernelFamily<LinearSpec>(ops::trace_linear);
    family(spec).launch({static_cast<std::uint64_t>(groups * parts), 1, 1}, std::span(args));
  }
  return operation.finish(
      std::move(results),
      [&] {
        return Attributes{{"weights", static_cast<std::int64_t>(weights.size())}};
      },
      [&](std::size_t i) {
        return Rule{[weight = *weights.begin()[i]](Backward& b) {
          b.add(0, [&] { return matmul(b.adjoint(), dequantize(weight)); });  // the weight is constant
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
  check_weight("embedding_rows", weight);
  check_device_match("embedding_rows", ids, weight);
  if (!is_int(ids.dtype()))
    fail<DtypeError>({.operation = "embedding_rows",
                      .with = {{"ids", std::string(dtype_name(ids.dtype()))}},
                      .wrong = "ids must be integers"});
  return operation.finish(gather(weight, &ids));
}

Array dequantize(const Weight& weight) {
  const detail::Operation operation("dequantize");
  check_weight("dequantize", weight);
  return operation.finish(gather(weight, nullptr));
}

}  // namespace tessera
