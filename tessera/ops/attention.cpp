// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "tessera/device/launch/kernel.h"
#include "tessera/device/launch/kernel_family.h"
#include "tessera/ops/cache_buffer.h"
#include "tessera/ops/kernels.h"
#include "tessera/ops/transformer_layer.h"

namespace tessera {

using ops::AttentionSpec;

namespace {

/// Returns the result (tokens, heads, head size). If a second kernel combines parts of it, and there is a `layout`,
/// sets `in_layout` and returns the result in that layout.
Array attend(const Array& q, const Array& keys, const Array& values, const Position& past, float scale,
             std::int64_t window, float cap, const std::optional<Array>& sinks,
             const std::optional<ops::InputLayout>& layout, bool& in_layout) {
  const detail::Operation operation("attention", q, keys, values, sinks);
  detail::check_no_rule("attention", q, keys, values);
  if (sinks) detail::check_no_rule("attention", *sinks);
  const auto attributes = [&] {
    return Attributes{{"past", past.number()},
                      {"scale", static_cast<double>(scale)},
                      {"window", window},
                      {"cap", static_cast<double>(cap)}};
  };
  auto wrong = [&](const std::string& what) {
    fail<ShapeError>({.operation = "attention",
                      .with = {{"q", to_string(q.shape())},
                               {"keys", to_string(keys.shape())},
                               {"values", to_string(values.shape())},
                               {"past", past.in_memory() ? "in memory" : std::to_string(past.number())}},
                      .wrong = what});
  };
  ops::require_consecutive("attention", past);
  if (window < 0 || !(cap >= 0 && cap <= 1e30f))
    fail<ArgumentError>({.operation = "attention",
                         .with = {{"window", std::to_string(window)}, {"cap", std::to_string(cap)}},
                         .wrong = "window must be at least 0, and cap between 0 and 1e30"});
  if (q.rank() != 3) wrong("q is not (tokens, heads, head size)");
  if (keys.rank() != 3 || keys.shape() != values.shape())
    wrong("keys and values are not both (key heads, capacity, row of the head size)");
  const std::int64_t tokens = q.shape(0), heads = q.shape(1), head_size = q.shape(2), key_heads = keys.shape(0);
  if (!is_float(q.dtype()) || keys.dtype() != values.dtype())
    fail<DtypeError>({.operation = "attention",
                      .with = {{"q", std::string(dtype_name(q.dtype()))},
                               {"keys", std::string(dtype_name(keys.dtype()))},
                               {"values", std::string(dtype_name(values.dtype()))}},
                      .wrong = "q must be of a float dtype, and keys and values of the same dtype"});
  if (keys.shape(2) != cache_row(head_size, keys.dtype())) wrong("the head sizes differ");
  if (key_heads == 0 || heads % key_heads) wrong("heads is not a multiple of key heads");
  if (head_size < 1 || head_size > 512) wrong("the head size is not between 1 and 512");
  if (past.number() < 0 || past.number() > keys.shape(1) - tokens)
    wrong("past plus the number of tokens exceeds the capacity of the cache");
  if (q.device() != keys.device() || q.device() != values.device())
    fail<DeviceError>({.operation = "attention",
                       .with = {{"q on", to_string(q.device())},
                                {"keys on", to_string(keys.device())},
                                {"values on", to_string(values.device())}},
                       .wrong = "the operands are on different devices",
                       .remedy = "Move them with to(...)"});
  ops::check_sinks("attention", sinks, q);
  Array out = Array::empty(q.shape(), DType::f32, q.device());
  if (out.size() == 0) return operation.finish(std::move(out), attributes);
  const Array queries = (q.dtype() == DType::f32 ? q : q.astype(DType::f32)).as_contiguous();
  auto rows = [](const Array& cache) { return cache.strides()[2] == 1 || cache.shape(2) == 1 ? cache : cache.copy(); };
  const Array k = rows(keys), v = rows(values);
  // Other caches would have to be copied as a whole.
  const bool whole_pieces = std::ranges::all_of(
      std::array{&k, &v}, [](const Array* x) { return x->strides()[0] % 8 == 0 && x->strides()[1] % 8 == 0; });
  auto tile = whole_pieces
                  ? ops::choose_attention_tile(ops::tiles_of(q.device()), DType::f32, k.dtype(), head_size, tokens)
                  : std::nullopt;
  if (tile) {
    tile->in_memory = past.in_memory(), tile->window = window != 0 && window < keys.shape(1), tile->cap = cap != 0;
    tile->sinks = sinks.has_value();
    const auto heads_first = [](const Array& x) { return x.permute({1, 0, 2}).unsqueeze(0); };
    ops::launch_attention_tile(*tile, heads_first(queries), ops::attention_rows(k.unsqueeze(0)),
                               ops::attention_rows(v.unsqueeze(0)), heads_first(out),
                               {scale, past, window, cap, sinks});
    return operation.finish(std::move(out), attributes);
  }
  AttentionSpec spec =
      ops::choose_attention(ops::tiles_of(q.device()), keys.dtype(), head_size, tokens, heads / key_heads);
  spec.in_memory = past.in_memory();
  spec.window = window != 0 && window < keys.shape(1);
  spec.cap = cap != 0;
  const std::int64_t group = heads / key_heads;
  const std::int64_t parts =
      spec.form == AttentionSpec::parts ? ops::attention_parts(spec, tokens, heads, group, keys.shape(1)) : 1;
  spec.whole = spec.form == AttentionSpec::parts && parts == 1;
  spec.sinks = sinks && parts == 1;
  const std::int64_t blocks = spec.form == AttentionSpec::tokens ? (tokens + spec.threads - 1) / spec.threads : tokens;
  std::vector<LaunchArgument> args = {queries.view()};
  ops::add_cache_arguments(args, k.view()), ops::add_cache_arguments(args, v.view());
  args.emplace_back(out.view());
  for (std::int64_t n : {heads, group, tokens}) args.push_back(LaunchArgument::index(n));
  args.push_back(ops::argument(past));
  for (std::int64_t n : {k.strides()[0], k.strides()[1], v.strides()[0], v.strides()[1]})
    args.push_back(LaunchArgument::index(n));
  args.push_back(LaunchArgument::scalar(scale));
  if (spec.window) args.push_back(LaunchArgument::index(window));
  if (spec.cap) args.push_back(LaunchArgument::scalar(cap));
  const std::optional<Array> sink_logits = sinks ? std::optional(sinks->as_contiguous()) : std::nullopt;
  if (spec.sinks) args.emplace_back(sink_logits->view());
  static auto& family = *new KernelFamily<AttentionSpec>(ops::trace_attention);
  if (spec.form != AttentionSpec::parts) {
    family(spec).launch({static_cast<std::uint64_t>(blocks * heads), 1, 1}, std::span(args));
    return operation.finish(std::move(out), attributes);
  }
  const std::int64_t rows_of_blocks = tokens * key_heads * ((group + spec.queries - 1) / spec.queries);
  const std::array<std::uint64_t, 3> grid = {static_cast<std::uint64_t>(rows_of_blocks),
                                             static_cast<std::uint64_t>(parts), 1};
  if (spec.whole) {
    family(spec).launch(grid, std::span(args));
    return operation.finish(std::move(out), attributes);
  }
  const Array work = Array::empty({tokens * heads, parts, head_size + 2}, DType::f32, q.device());
  args.push_back(LaunchArgument(work.view())), args.push_back(LaunchArgument::index(parts));
  family(spec).launch(grid, std::span(args));
  ops::AttentionCombineSpec combined = ops::choose_attention_combine(head_size);
  combined.sinks = sinks.has_value();
  std::int64_t rows_of_result = tokens;
  if (layout && (!layout->quantised || head_size % 32 == 0)) {
    combined.out = *layout, in_layout = true;
    out = ops::empty_input(*layout, tokens, heads * head_size, q.device());
    rows_of_result = layout->padded(tokens);
  }
  static auto& combine = *new KernelFamily<ops::AttentionCombineSpec>(ops::trace_attention_combine);
  std::vector<LaunchArgument> last = {work.view(), out.view(), LaunchArgument::index(parts),
                                      LaunchArgument::index(heads), LaunchArgument::index(tokens)};
  if (sinks) last.emplace_back(sink_logits->view());
  combine(combined).launch({static_cast<std::uint64_t>(rows_of_result * heads), 1, 1}, std::span(last));
  return operation.finish(std::move(out), attributes);
}

}  // namespace

void ops::check_sinks(const char* operation, const std::optional<Array>& sinks, const Array& q) {
  if (!sinks) return;
  const std::string heads = std::to_string(q.shape(1));
  if (sinks->shape() != Shape{q.shape(1)})
    fail<ShapeError>({.operation = operation,
                      .with = {{"sinks", to_string(sinks->shape())}, {"heads", heads}},
                      .wrong = "there must be one sink for each head"});
  if (sinks->dtype() != DType::f32)
    fail<DtypeError>({.operation = operation,
                      .with = {{"sinks", std::string(dtype_name(sinks->dtype()))}},
                      .wrong = "the sinks must be f32",
                      .remedy = "Use astype"});
  if (sinks->device() != q.device())
    fail<DeviceError>({.operation = operation,
                       .with = {{"q on", to_string(q.device())}, {"sinks on", to_string(sinks->device())}},
                       .wrong = "the operands are on different devices",
                       .remedy = "Move them with to(...)"});
}

Array attention(const Array& q, const Array& keys, const Array& values, const Position& past, float scale,
                std::int64_t window, float cap, const std::optional<Array>& sinks) {
  bool in_layout = false;
  return attend(q, keys, values, past, scale, window, cap, sinks, {}, in_layout);
}

ops::LinearInput ops::attention(const Array& q, const Array& keys, const Array& values, const Position& past,
                                float scale, std::int64_t window, float cap, const std::optional<Array>& sinks,
                                const Weight& next) {
  std::optional<InputLayout> layout;
  if (combines_operations(tiles_of(q.device()))) layout = common_layout({&next, 1}, q.shape(0));
  bool in_layout = false;
  const Array out = attend(q, keys, values, past, scale, window, cap, sinks, layout, in_layout);
  const std::int64_t tokens = q.shape(0), columns = q.shape(1) * q.shape(2);
  return in_layout ? LinearInput(out, *layout, tokens, columns) : LinearInput(out.reshape({tokens, columns}));
}

}  // namespace tessera
