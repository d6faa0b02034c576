// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/transformer_layer.h"

#include "tessera/device/context.h"
#include "tessera/device/launch/kernel_family.h"
#include "tessera/ops/layer_kernels.h"

namespace tessera::ops {

namespace {

/// Returns the columns [begin, begin + count) of the concatenated columns of `parts`. They must be inside one part.
Array columns_of(std::span<const Array> parts, std::int64_t begin, std::int64_t count) {
  for (const Array& part : parts) {
    if (begin < part.shape(1)) return count == part.shape(1) ? part : part.slice(1, begin, begin + count);
    begin -= part.shape(1);
  }
  fail<ShapeError>({.operation = "columns_of", .wrong = "the parts have too few columns"});
}

Array plus(Array y, const std::optional<Array>& bias, std::int64_t begin, std::int64_t count) {
  return bias ? y + bias->slice(0, begin, begin + count) : std::move(y);
}

/// Normalises queries and keys over all heads together, which the kernel of a head cannot. Returns queries, keys and
/// values with their biases added, and removes the norms and the bias from `how`.
std::array<Array, 3> normalised_projections(std::span<const Array> parts, HeadOptions& how) {
  const std::int64_t queries = how.heads * how.head_size, shared = how.key_heads * how.head_size;
  const auto columns = [&](std::int64_t begin, std::int64_t count) {
    return plus(columns_of(parts, begin, count), how.bias, begin, count);
  };
  const std::array<Array, 3> out = {tessera::rms_norm(columns(0, queries), *how.query_norm, how.epsilon),
                                    tessera::rms_norm(columns(queries, shared), *how.key_norm, how.epsilon),
                                    columns(queries + shared, shared)};
  how.query_norm.reset(), how.key_norm.reset(), how.bias.reset();
  return out;
}

/// Returns `heads` heads, which begin at a column of `parts`, after the bias, the norm and the rotation.
Array rotated_rows(std::span<const Array> parts, const HeadOptions& how, std::int64_t begin, std::int64_t heads,
                   const std::optional<Array>& norm, const Position* position) {
  const std::int64_t columns = heads * how.head_size;
  const Array x = columns_of(parts, begin, columns);
  Array y = plus(x, how.bias, begin, columns).reshape({x.shape(0), heads, how.head_size});
  if (norm) y = tessera::rms_norm(y, *norm, how.epsilon);
  return position != nullptr && how.rotary ? rotary(y, *position, *how.rotary) : y;
}

bool has_projection_norms(const HeadOptions& how) { return how.query_norm && how.query_norm->size() != how.head_size; }

}  // namespace

bool combines_operations(const Tiles& tiles) { return !tiles.vectors && thread_context.array_observer == nullptr; }

Array centred(const Array& x) { return x - mean(x, {-1}, true); }

AddNorm add_rms_norm(const Array& x, const std::optional<Array>& y, const Array& weight, float epsilon,
                     std::span<const Weight> next, bool centres) {
  const std::int64_t tokens = x.shape(0), columns = x.shape(1);
  const Tiles tiles = tiles_of(x.device());
  const std::optional<InputLayout> layout = next.empty() ? InputLayout{} : common_layout(next, tokens);
  const auto spec = layout && combines_operations(tiles) && tokens > 0
                        ? choose_add_norm(tiles, columns, y.has_value(), *layout, centres)
                        : std::nullopt;
  if (!spec) {
    Array sum = y ? x + *y : x;
    LinearInput normalised(tessera::rms_norm(centres ? centred(sum.eval()) : sum, weight, epsilon));
    return {std::move(sum), std::move(normalised)};
  }
  const Array rows = x.as_contiguous(), scale = weight.as_contiguous();
  const Array data = empty_input(*layout, tokens, columns, x.device());
  Array sum = y ? Array::empty(x.shape(), DType::f32, x.device()) : x;
  std::vector<LaunchArgument> args = {rows.view()};
  if (y) args.emplace_back(y->as_contiguous().view()), args.emplace_back(sum.view());
  args.emplace_back(scale.view()), args.emplace_back(data.view());
  args.push_back(LaunchArgument::index(columns)), args.push_back(LaunchArgument::index(tokens));
  args.push_back(LaunchArgument::scalar(epsilon));
  static auto& family = *new KernelFamily<AddNormSpec>(trace_add_norm);
  family(*spec).launch({static_cast<std::uint64_t>(layout->padded(tokens)), 1, 1}, std::span(args));
  return {std::move(sum), LinearInput(data, *layout, tokens, columns)};
}

std::array<Array, 3> rotate_heads(std::span<const Array> parts, const HeadOptions& how, const Position& position) {
  if (has_projection_norms(how)) {
    HeadOptions rest = how;
    const std::array<Array, 3> normalised = normalised_projections(parts, rest);
    return rotate_heads(normalised, rest, position);
  }
  const std::int64_t queries = how.heads * how.head_size, shared = how.key_heads * how.head_size;
  return {rotate_queries(parts, how, position),
          rotated_rows(parts, how, queries, how.key_heads, how.key_norm, &position),
          rotated_rows(parts, how, queries + shared, how.key_heads, how.value_norm, nullptr)};
}

Array rotate_queries(std::span<const Array> parts, const HeadOptions& how, const Position& position) {
  return rotated_rows(parts, how, 0, how.heads, how.query_norm, &position);
}

Array rotate_and_store(std::span<const Array> parts, const HeadOptions& how, const Position& position, Array& keys,
                       Array& values) {
  require_consecutive("rotate_and_store", position);
  if (has_projection_norms(how)) {
    HeadOptions rest = how;
    const std::array<Array, 3> normalised = normalised_projections(parts, rest);
    return rotate_and_store(normalised, rest, position, keys, values);
  }
  const std::int64_t size = how.head_size, queries = how.heads * size, shared = how.key_heads * size;
  const std::array<Array, 3> qkv = {columns_of(parts, 0, queries), columns_of(parts, queries, shared),
                                    columns_of(parts, queries + shared, shared)};
  const Device device = qkv[0].device();
  const std::int64_t tokens = qkv[0].shape(0);
  const Tiles tiles = tiles_of(device);
  const std::int64_t dimensions = !how.rotary ? 0 : how.rotary->dimensions == 0 ? size : how.rotary->dimensions;
  const auto threads = std::bit_ceil(static_cast<std::uint32_t>(std::max<std::int64_t>(size - dimensions / 2, 32)));
  if (!combines_operations(tiles) || tokens == 0 || threads > tiles.block_limit || keys.dtype() == DType::i8 ||
      how.value_norm) {
    const std::array<Array, 3> rotated = rotate_heads(parts, how, position);
    cache_store(keys, rotated[1], position);
    cache_store(values, rotated[2], position);
    return rotated[0];
  }
  for (Array* cache : {&keys, &values}) detail::check_write_target("cache_store", *cache);
  Array out = Array::empty({tokens, how.heads, size}, DType::f32, device);
  std::vector<LaunchArgument> args;
  const bool joined = parts.size() == 1;
  for (const Array& x : joined ? parts : std::span<const Array>(qkv)) args.emplace_back(x.view());
  args.emplace_back(out.view()), args.emplace_back(keys.view_for_writing());
  args.emplace_back(values.view_for_writing());
  RotateStoreSpec spec;
  spec.rotary.in_memory = position.in_memory();
  spec.cache = keys.dtype(), spec.rotates = how.rotary.has_value(), spec.norms = how.query_norm.has_value();
  spec.joined = joined, spec.biases = how.bias.has_value(), spec.head_size = static_cast<std::uint32_t>(size),
  spec.threads = threads;
  if (how.rotary) {
    check_rotary(*how.rotary, size, position, tokens, device);
    spec.rotary = rotary_arguments(*how.rotary, DType::f32, size, position.in_memory(), device, args);
  }
  if (spec.norms) {
    args.emplace_back(how.query_norm->as_contiguous().view()), args.emplace_back(how.key_norm->as_contiguous().view());
    args.push_back(LaunchArgument::scalar(how.epsilon));
  }
  if (spec.biases) args.emplace_back(how.bias->as_contiguous().view());
  args.push_back(LaunchArgument::index(how.heads)), args.push_back(LaunchArgument::index(how.key_heads));
  args.push_back(argument(position));
  for (const Array& x : joined ? parts : std::span<const Array>(qkv))
    args.push_back(LaunchArgument::index(x.strides()[0]));
  for (const Array* cache : {&keys, &values})
    for (const std::size_t axis : {0, 1}) args.push_back(LaunchArgument::index(cache->strides()[axis]));
  static auto& family = *new KernelFamily<RotateStoreSpec>(trace_rotate_store);
  family(spec).launch({static_cast<std::uint64_t>((how.heads + 2 * how.key_heads) * tokens), 1, 1}, std::span(args));
  const detail::Operation operation("rotate_and_store", keys, values);
  operation.finish_in_place(keys), operation.finish_in_place(values);
  return out;
}

Array apply_gate(Gate kind, const Array& gate, const Array& partner) {
  if (kind != Gate::clamped_silu) return kind == Gate::gelu ? gelu_gate(gate, partner) : silu_gate(gate, partner);
  const Array x = minimum(gate, clamped_silu_limit);
  return x * sigmoid(x * clamped_silu_slope) * (clip(partner, -clamped_silu_limit, clamped_silu_limit) + 1);
}

LinearInput gate(LinearInput& x, std::span<const Weight> weights, const std::optional<Array>& bias, Gate kind,
                 const Weight& next) {
  const auto layout = common_layout({&next, 1}, x.tokens());
  if (layout && x.tokens() > 0 && weights.size() == 1 && !bias && combines_operations(tiles_of(next.device())) &&
      can_gate(weights[0], x.tokens(), *layout))
    return gated_linear(x, weights[0], kind, *layout);
  const std::vector<Array> parts = linear(x, weights);
  const std::int64_t columns = next.columns();
  const auto half = [&](std::int64_t begin) { return plus(columns_of(parts, begin, columns), bias, begin, columns); };
  return LinearInput(apply_gate(kind, half(0), half(columns)));
}

}  // namespace tessera::ops
