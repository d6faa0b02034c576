// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/weight.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/array/functions.h"
#include "tessera/base/log.h"
#include "tessera/device/launch/kernel.h"
#include "tessera/device/launch/kernel_family.h"
#include "tessera/device/launch/vendor_product.h"
#include "tessera/ops/kernels.h"
#include "tessera/ops/linear_input.h"

namespace tessera {

using ops::GatherSpec;
using ops::InputLayout;
using ops::LinearSpec;
using ops::QuantiseSpec;
using ops::WeightSpec;

namespace {

WeightSpec spec_of(const Weight& w) {
  const auto& parts = w.parts();
  return {w.format(), static_cast<std::uint32_t>(parts[0].shape(-1)), parts.size() > 1 ? parts[1].dtype() : DType::f32,
          ops::multiplies_symmetric(ops::tiles_of(w.device()), w.format())};
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
  for (const Array& p : own_parts()) n += p.bytes();
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

Array converted(const Array& flat, std::int64_t tokens, std::int64_t columns, const InputLayout& layout) {
  if (!layout.quantised && layout.tokens == 1) return flat;
  const Array out = ops::empty_input(layout, tokens, columns, flat.device());
  const std::int64_t tiles = ops::ceil_div(tokens, layout.tokens);
  if (const auto spec = ops::choose_convert_rows(ops::tiles_of(flat.device()), columns, layout)) {
    static auto& family = *new KernelFamily<ops::ConvertSpec>(ops::trace_convert_rows);
    const std::int64_t threads = tiles * layout.tokens * (columns / 4);
    family(*spec).launch({static_cast<std::uint64_t>(ops::ceil_div(threads, spec->threads)), 1, 1},
                         {flat.view(), out.view(), LaunchArgument::index(columns), LaunchArgument::index(tokens)});
    return out;
  }
  if (!layout.quantised) {
    static auto& family = *new KernelFamily<std::uint32_t>(ops::trace_tile_activations);
    family(layout.tokens)
        .launch({static_cast<std::uint64_t>(columns), static_cast<std::uint64_t>(tiles), 1},
                {flat.view(), out.view(), LaunchArgument::index(columns), LaunchArgument::index(tokens)});
    return out;
  }
  const QuantiseSpec spec{layout, ops::quantise_lanes(ops::tiles_of(flat.device()))};
  static auto& family = *new KernelFamily<QuantiseSpec>(ops::trace_quantise);
  const bool together = spec.lanes != 0;
  BufferView to = out.view();
  if (together) to.dtype = DType::u8, to.elements *= 4;
  std::vector<LaunchArgument> args = {flat.view(), to};
  if (layout.tokens > 1 || together)
    args.push_back(LaunchArgument::index(columns / 32)), args.push_back(LaunchArgument::index(tokens));
  const std::int64_t blocks = tiles * (columns / 32);
  family(spec).launch({static_cast<std::uint64_t>(together ? blocks : blocks * layout.tokens), 1, 1}, std::span(args));
  return out;
}

Array dequantised(const Weight& weight, DType dtype) {
  const Array out = Array::empty({weight.rows(), weight.columns()}, dtype, weight.device());
  std::vector<LaunchArgument> args;
  for (const Array& p : weight.parts()) args.emplace_back(p.view());
  args.emplace_back(out.view());
  args.push_back(LaunchArgument::index(weight.rows())), args.push_back(LaunchArgument::index(weight.columns()));
  const std::uint32_t slices = ops::dequantise_slices(ops::tiles_of(weight.device()));
  static auto& family = *new KernelFamily<ops::DequantiseSpec>(ops::trace_dequantise);
  family({spec_of(weight), dtype, slices})
      .launch(
          {static_cast<std::uint64_t>(ops::ceil_div(weight.columns(), 32 * slices) * weight.parts()[0].shape(0)), 1, 1},
          std::span(args));
  return out;
}

/// The dtype in which the vendor's library multiplies a weight; bf16 weights do not fit in f16.
DType library_dtype(const Weight& weight) { return weight.format() == WeightFormat::bf16 ? DType::bf16 : DType::f16; }

}  // namespace

// The library's rate is several times that of linear's kernels, but the conversion reads and writes the weight once
// more. With few tokens, kernels with matrix fragments are faster.
bool ops::multiplied_by_library(const Weight& weight, std::int64_t tokens) {
  constexpr std::int64_t least_tokens = 16, least_tokens_beside_units = 64;
  constexpr std::int64_t most_bytes = std::int64_t{1} << 30;  // of the converted weight
  const std::int64_t m = tokens, n = weight.rows(), k = weight.columns();
  if (weight.format() == WeightFormat::f32 || 2 * n * k > most_bytes) return false;
  const bool units = layout_of(weight.format()).quantised() ||
                     choose_linear_tile(tiles_of(weight.device()), spec_of(weight), n, k, tokens).has_value();
  if (tokens < (units ? least_tokens_beside_units : least_tokens)) return false;
  const DType t = library_dtype(weight);
  return vendor_product_available(
      weight.device(), {m, n, k, 1, {t, false, k, 0}, {t, true, k, 0}, {DType::f32, false, n, 0}, false, false});
}

namespace {

/// Multiplies x by a converted weight. Returns std::nullopt if there is no memory for the converted weight.
std::optional<Array> library_product(ops::LinearInput& x, const Weight& weight) {
  const DType dtype = library_dtype(weight);
  std::optional<Array> matrix;
  try {
    matrix = dequantised(weight, dtype);
  } catch (const OutOfMemory& e) {
    logging::info(fmt::format("{}: no memory to convert a weight for the library, using Tessera's kernel: {}",
                              to_string(weight.device()), e.what()));
    return std::nullopt;
  }
  const ops::LinearInput::Rounded& rows = x.rounded(dtype);
  Array product =
      matmul(rows.rows.reshape({x.tokens(), weight.columns()}), matrix->transpose(), Epilogue{.dtype = DType::f32});
  return rows.factors ? product * *rows.factors : product;
}

/// The kernel of a product with `tokens` tokens, and the layout that it reads.
struct LinearPlan {
  LinearSpec spec;
  std::optional<ops::LinearPanelSpec> panel;
  std::optional<ops::LinearTileSpec> tile;
  InputLayout in;
  bool library = false;  ///< multiplies by the vendor's library; `tile` or `spec` is used if that fails
};
/// The layout of activations for products without matrix fragments.
InputLayout input_of(WeightFormat format, std::uint32_t tokens) {
  const ops::WeightLayout& f = ops::layout_of(format);
  // Two minimums are multiplied by the sums of 16 columns.
  const std::int32_t offset = f.has_two_minimums() ? -1 : f.offset;
  return {f.quantised(), tokens, offset, offset != 0 && f.factor == 16};
}
LinearPlan plan_of(const Weight& weight, std::int64_t tokens) {
  const ops::WeightLayout& f = ops::layout_of(weight.format());
  const ops::Tiles tiles = ops::tiles_of(weight.device());
  LinearPlan p{{spec_of(weight)}, {}, {}, {}};
  p.spec.tokens = ops::linear_tokens(tiles, weight.format(), tokens);
  p.spec.slices = tiles.slices;
  p.panel = ops::choose_linear_panel(tiles, p.spec.weight, tokens);
  if (p.panel) p.spec.tokens = p.panel->tokens;
  p.in = input_of(weight.format(), p.spec.tokens);
  p.tile = ops::choose_linear_tile(tiles, p.spec.weight, weight.rows(), weight.columns(), tokens);
  if (p.tile) {
    p.spec.tokens = p.tile->tokens;
    p.in = f.has_two_minimums() ? input_of(weight.format(), p.tile->tokens)
           : f.quantised()      ? InputLayout{true, p.tile->tokens}  // its numbers have no offset
                                : InputLayout{};
  }
  p.library = ops::multiplied_by_library(weight, tokens);
  return p;
}

}  // namespace

bool ops::multiplied_by_tiles(const Weight& weight, std::int64_t tokens) {
  const LinearPlan plan = plan_of(weight, tokens);
  return !plan.library && plan.tile;
}

namespace {

/// True if a weight that reads `wanted` can also read `stored`. A weight without an offset does not read the sums.
bool satisfies(const InputLayout& stored, const InputLayout& wanted) {
  return stored == wanted ||
         (stored.quantised && wanted.quantised && stored.tokens == wanted.tokens && wanted.offset == 0);
}

/// The layout for `weight`. If it can read the layout of another weight, that layout is used for both.
InputLayout layout_for(const LinearPlan& plan, std::span<const Weight> weights, std::int64_t tokens) {
  for (const Weight& other : weights)
    if (const InputLayout theirs = plan_of(other, tokens).in; satisfies(theirs, plan.in)) return theirs;
  return plan.in;
}

std::vector<LaunchArgument> linear_arguments(const Weight& weight, std::initializer_list<Array> arrays,
                                             std::int64_t tokens, std::int64_t parts) {
  std::vector<LaunchArgument> args;
  for (const Array& p : weight.parts()) args.emplace_back(p.view());
  for (const Array& a : arrays) args.emplace_back(a.view());
  const bool quantised = ops::layout_of(weight.format()).quantised();
  for (std::int64_t v : {weight.rows(), quantised ? weight.columns() / 32 : weight.columns(), tokens, parts})
    args.push_back(LaunchArgument::index(v));
  return args;
}

KernelFamily<LinearSpec>& linear_kernels() {
  static auto& family = *new KernelFamily<LinearSpec>(ops::trace_linear);
  return family;
}

KernelFamily<ops::LinearPanelSpec>& panel_kernels() {
  static auto& family = *new KernelFamily<ops::LinearPanelSpec>(ops::trace_linear_panel);
  return family;
}

/// Multiplies with matrix fragments.
void multiply_tiles(const LinearPlan& plan, const Weight& weight, ops::LinearInput& x, const Array& out) {
  const ops::LinearTileSpec& spec = *plan.tile;
  const std::int64_t groups = weight.parts()[0].shape(0);
  const DType element = ops::layout_of(weight.format()).element;
  const std::int64_t parts = ops::ceil_div(x.tokens(), spec.tokens),
                     blocks = ops::ceil_div(groups, spec.groups) * parts;
  const auto arguments = [&]() -> std::vector<LaunchArgument> {
    if (ops::layout_of(weight.format()).quantised())
      return linear_arguments(weight, {x.in(plan.in), out}, x.tokens(), parts);
    const ops::LinearInput::Rounded& rows = x.rounded(element, spec.terms);
    return rows.factors ? linear_arguments(weight, {rows.rows, *rows.factors, out}, x.tokens(), parts)
                        : linear_arguments(weight, {rows.rows, out}, x.tokens(), parts);
  };
  static auto& family = *new KernelFamily<ops::LinearTileSpec>(ops::trace_linear_tile);
  family(spec).launch({static_cast<std::uint64_t>(blocks), 1, 1}, arguments());
}

void multiply(const LinearPlan& plan, const Weight& weight, const Array& x, const Array& out, std::int64_t tokens) {
  const std::int64_t groups = weight.parts()[0].shape(0), parts = ops::ceil_div(tokens, plan.spec.tokens);
  std::vector<LaunchArgument> args = linear_arguments(weight, {x, out}, tokens, parts);
  if (!plan.panel) {
    linear_kernels()(plan.spec).launch({static_cast<std::uint64_t>(groups * parts), 1, 1}, std::span(args));
    return;
  }
  // Uses enough blocks to keep all compute units busy. Each block computes as many tiles and groups as possible.
  const ops::LinearPanelSpec& panel = *plan.panel;
  const std::int64_t units = 2 * std::max<std::int64_t>(1, ops::tiles_of(x.device()).compute_units);
  std::int64_t tiles = panel.tiles;
  while (tiles > 1 && groups * ops::ceil_div(parts, tiles) < units) tiles /= 2;
  const std::int64_t across = ops::ceil_div(parts, tiles),
                     together = std::clamp<std::int64_t>(groups * across / units, 1, panel.groups);
  for (std::int64_t v : {groups, together, tiles}) args.push_back(LaunchArgument::index(v));
  panel_kernels()(panel).launch({static_cast<std::uint64_t>(ops::ceil_div(groups, together) * across), 1, 1},
                                std::span(args));
}

}  // namespace

namespace ops {

void prepare_panels(const Weight& weight, std::int64_t tokens) {
  const LinearPlan plan = plan_of(weight, tokens);
  if (plan.panel && !plan.tile && !plan.library) panel_kernels()(*plan.panel).prepare(weight.device());
}

LinearInput::LinearInput(const Array& rows)
    : rows_((rows.dtype() == DType::f32 ? rows : rows.astype(DType::f32)).as_contiguous()),
      tokens_(rows.shape(-1) == 0 ? 0 : rows.size() / rows.shape(-1)),
      columns_(rows.shape(-1)) {}
LinearInput::LinearInput(Array data, const InputLayout& layout, std::int64_t tokens, std::int64_t columns)
    : tokens_(tokens), columns_(columns) {
  if (layout == InputLayout{})
    rows_ = std::move(data);
  else
    stored_.emplace_back(layout, std::move(data));
}

const LinearInput::Rounded& LinearInput::rounded(DType dtype, std::uint32_t terms) {
  const Array& x = rows_.value();
  const RoundSpec how{dtype, terms, std::min(tiles_of(x.device()).block_limit, 1024u)};
  const auto known = std::ranges::find(rounded_, how, &Rounded::how);
  if (known != rounded_.end()) return *known;
  Rounded& to = rounded_.emplace_back(how, Array::empty({terms, tokens_, columns_}, dtype, x.device()));
  std::vector<LaunchArgument> args = {x.view(), to.rows.view()};
  if (dtype == DType::f16) {
    to.factors = Array::empty({tokens_, 1}, DType::f32, x.device());
    args.emplace_back(to.factors->view());
  }
  args.push_back(LaunchArgument::index(columns_)), args.push_back(LaunchArgument::index(tokens_));
  static auto& family = *new KernelFamily<RoundSpec>(trace_round_rows);
  family(how).launch({static_cast<std::uint64_t>(tokens_), 1, 1}, std::span(args));
  return to;
}

const Array& LinearInput::in(const InputLayout& layout) {
  for (const auto& [have, data] : stored_)
    if (satisfies(have, layout)) return data;
  return stored_.emplace_back(layout, converted(rows_.value(), tokens_, columns_, layout)).second;
}

Array empty_input(const InputLayout& layout, std::int64_t tokens, std::int64_t columns, Device device) {
  const std::int64_t padded = layout.padded(tokens);
  return layout.quantised ? Array::empty({padded * (columns / 32), activation_words}, DType::u32, device)
                          : Array::empty({padded, columns}, DType::f32, device);
}

std::optional<InputLayout> common_layout(std::span<const Weight> weights, std::int64_t tokens) {
  if (std::ranges::any_of(weights, [&](const Weight& w) { return multiplied_by_library(w, tokens); }))
    return InputLayout{};
  const InputLayout first = layout_for(plan_of(weights.front(), tokens), weights, tokens);
  for (const Weight& w : weights)
    if (!satisfies(first, plan_of(w, tokens).in)) return {};
  return first;
}

std::vector<Array> linear(LinearInput& x, std::span<const Weight> weights) {
  const detail::Operation operation("linear", x.rows());
  std::vector<Array> results;
  for (const Weight& weight : weights) {
    const LinearPlan plan = plan_of(weight, x.tokens());
    if (plan.library)
      if (std::optional<Array> product = library_product(x, weight)) {
        results.push_back(*std::move(product));
        continue;
      }
    const Array& out = results.emplace_back(Array::empty({x.tokens(), weight.rows()}, DType::f32, weight.device()));
    if (x.tokens() == 0) continue;
    if (plan.tile)
      multiply_tiles(plan, weight, x, out);
    else
      multiply(plan, weight, x.in(layout_for(plan, weights, x.tokens())), out, x.tokens());
  }
  return operation.finish(std::move(results), [&] {
    return Attributes{{"weights", static_cast<std::int64_t>(weights.size())}};
  });
}

Array linear_experts(LinearInput& x, const Weight& weight, std::int64_t experts, const std::optional<Array>& ids) {
  const std::int64_t rows = weight.rows() / experts, pairs = ids ? ids->size() : x.tokens(), columns = weight.columns();
  const Array out = Array::empty({pairs, rows}, DType::f32, weight.device());
  if (pairs == 0) return out;
  LinearSpec spec{spec_of(weight)};
  spec.experts = ids.has_value(), spec.slices = tiles_of(weight.device()).slices;
  const bool quantised = layout_of(weight.format()).quantised();
  std::vector<LaunchArgument> args;
  for (const Array& p : weight.parts()) args.emplace_back(p.view());
  args.emplace_back(x.in(input_of(weight.format(), 1)).view()), args.emplace_back(out.view());
  for (const std::int64_t v : {rows, quantised ? columns / 32 : columns, pairs, pairs})
    args.push_back(LaunchArgument::index(v));
  if (ids) args.emplace_back(ids->view()), args.push_back(LaunchArgument::index(pairs / x.tokens()));
  linear_kernels()(spec).launch({static_cast<std::uint64_t>(ceil_div(rows, spec.weight.group) * pairs), 1, 1},
                                std::span(args));
  return out;
}

namespace {

std::optional<LinearTileSpec> gated_tile(const Weight& weight, std::int64_t tokens) {
  return choose_linear_tile(tiles_of(weight.device()), spec_of(weight), weight.rows(), weight.columns(), tokens, true);
}

}  // namespace

bool can_gate(const Weight& weight, std::int64_t tokens, const InputLayout& out) {
  const LinearPlan plan = plan_of(weight, tokens);
  const LinearSpec& spec = plan.spec;
  const Tiles tiles = tiles_of(weight.device());
  if (plan.tile) {
    // A kernel that gates must read the activations in the same layout as one that does not.
    const auto tile = gated_tile(weight, tokens);
    return !plan.library && tile && tile->tokens == plan.tile->tokens && weight.rows() % 64 == 0 &&
           (out.quantised ? out.tokens == tile->tokens : out.tokens == 1);
  }
  const std::uint64_t shared = std::uint64_t{8} * spec.slices * spec.tokens * spec.weight.group;  // of two f32 sums
  return !plan.library && weight.rows() % 64 == 0 && spec.weight.group == 32 && spec.slices >= 2 * spec.tokens &&
         out.tokens == spec.tokens && tiles.subgroup >= input_lanes && shared <= tiles.shared_bytes;
}

LinearInput gated_linear(LinearInput& x, const Weight& weight, Gate gate, const InputLayout& out) {
  const std::int64_t tokens = x.tokens(), rows = weight.rows() / 2;
  LinearPlan plan = plan_of(weight, tokens);
  if (plan.tile) {
    plan.tile = gated_tile(weight, tokens);
    plan.tile->gate = gate, plan.tile->out = out;
    const Array data = empty_input(out, tokens, rows, weight.device());
    multiply_tiles(plan, weight, x, data);
    return LinearInput(data, out, tokens, rows);
  }
  plan.spec.gated = true, plan.spec.gate = gate, plan.spec.out = out;
  const Array data = empty_input(out, tokens, rows, weight.device());
  const std::int64_t parts = ceil_div(tokens, plan.spec.tokens);
  std::vector<LaunchArgument> args = linear_arguments(weight, {x.in(plan.in), data}, tokens, parts);
  linear_kernels()(plan.spec).launch({static_cast<std::uint64_t>(rows / 32 * parts), 1, 1}, std::span(args));
  return LinearInput(data, out, tokens, rows);
}

}  // namespace ops

std::vector<Array> linear(const Array& x, std::span<const Weight> weights) {
  detail::RuledOperation operation("linear", x);
  for (const Weight& weight : weights) check_product(x, weight);
  ops::LinearInput rows(x);
  std::vector<Array> results = ops::linear(rows, weights);
  for (std::size_t i = 0; i < results.size(); ++i) {
    Shape shape = x.shape();
    shape.back() = weights[i].rows();
    results[i] = results[i].reshape(shape);
  }
  return operation.finish(
      std::move(results),
      [&] {
        return Attributes{{"weights", static_cast<std::int64_t>(weights.size())}};
      },
      [&](std::size_t i) {
        return Rule{[weight = weights[i]](Backward& b) {
          b.add(0, [&] { return matmul(b.adjoint(), dequantize(weight)); });  // the weight is constant
        }};
      });
}

Array linear(const Array& x, const Weight& weight) { return linear(x, std::span(&weight, 1))[0]; }

namespace {

Array gather(const Weight& weight, const Array& ids) {
  Shape shape = ids.shape();
  shape.push_back(weight.columns());
  const Array out = Array::empty(shape, DType::f32, weight.device());
  if (out.size() == 0) return out;
  std::vector<LaunchArgument> args;
  for (const Array& p : weight.parts()) args.emplace_back(p.view());
  args.emplace_back(ids.as_contiguous().view());
  args.emplace_back(out.view());
  args.push_back(LaunchArgument::index(weight.rows()));
  args.push_back(LaunchArgument::index(weight.columns()));
  static auto& family = *new KernelFamily<GatherSpec>(ops::trace_gather);
  family({spec_of(weight), ids.dtype()})
      .launch({static_cast<std::uint64_t>(weight.columns()), static_cast<std::uint64_t>(ids.size()), 1},
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
  return operation.finish(gather(weight, ids));
}

Array dequantize(const Weight& weight) {
  const detail::Operation operation("dequantize");
  check_weight("dequantize", weight);
  return operation.finish(dequantised(weight, DType::f32));
}

}  // namespace tessera
