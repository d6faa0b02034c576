// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/paged_attention.h"

#include <algorithm>

#include "tessera/array/operation.h"
#include "tessera/device/launch/kernel_family.h"
#include "tessera/ops/cache_buffer.h"
#include "tessera/ops/kernels.h"

namespace tessera::ops {

namespace {

std::string shape_and_dtype(const Array& a) { return to_string(a.shape()) + " " + std::string(dtype_name(a.dtype())); }

/// Checks the arrays that operations on pages share. `rows` has the shape (tokens, heads, head size).
void check_pages(const char* operation, const Array& rows, const PagedLayer& layer, const PagedTokens& tokens) {
  const Array &keys = layer.keys, &values = layer.values;
  const auto wrong = [&](const std::string& what) {
    fail<ShapeError>({.operation = operation,
                      .with = {{"rows", to_string(rows.shape())},
                               {"keys", to_string(keys.shape())},
                               {"values", to_string(values.shape())},
                               {"sequences", shape_and_dtype(tokens.sequences)},
                               {"positions", shape_and_dtype(tokens.positions)},
                               {"tables", shape_and_dtype(tokens.tables)}},
                      .wrong = what});
  };
  if (rows.rank() != 3) wrong("the rows are not (tokens, heads, head size)");
  if (!is_float(rows.dtype()) || keys.dtype() != values.dtype())
    fail<DtypeError>({.operation = operation,
                      .with = {{"rows", std::string(dtype_name(rows.dtype()))},
                               {"keys", std::string(dtype_name(keys.dtype()))},
                               {"values", std::string(dtype_name(values.dtype()))}},
                      .wrong = "the rows must be of a float dtype, and keys and values of the same dtype"});
  if (keys.rank() != 4 || keys.shape(3) != page_positions || keys.shape(2) != cache_row(rows.shape(2), keys.dtype()))
    wrong("the keys are not (pages, key heads, row of the head size, 64)");
  if (values.shape() != Shape{keys.shape(0), keys.shape(1), keys.shape(3), keys.shape(2)})
    wrong("the values are not (pages, key heads, 64, row of the head size)");
  if (!keys.contiguous() || !values.contiguous()) wrong("the pages are not contiguous");
  const auto are_numbers = [](const Array& a, int rank) {
    return a.rank() == rank && a.dtype() == DType::i32 && a.contiguous();
  };
  if (!are_numbers(tokens.tables, 2) || !are_numbers(tokens.sequences, 1) || !are_numbers(tokens.positions, 1) ||
      (tokens.groups && (!are_numbers(*tokens.groups, 2) || tokens.groups->shape(1) != 2)))
    wrong("tables, sequences, positions and groups must be contiguous i32 of two, one, one and two dimensions");
  if (tokens.sequences.shape(0) != rows.shape(0) || tokens.positions.shape(0) != rows.shape(0))
    wrong("there must be one sequence and one position for each token");
  if (tokens.single < 0 || tokens.single > rows.shape(0) ||
      (tokens.single < rows.shape(0) && (!tokens.groups || tokens.groups->shape(0) == 0)))
    wrong("every token must be single, or in a group");
  for (const Array* a :
       {&keys, &values, &tokens.tables, &tokens.sequences, &tokens.positions, tokens.groups ? &*tokens.groups : &keys})
    if (a->device() != rows.device())
      fail<DeviceError>({.operation = operation,
                         .with = {{"rows on", to_string(rows.device())}, {"an operand on", to_string(a->device())}},
                         .wrong = "the operands are on different devices",
                         .remedy = "Move them with to(...)"});
}

/// Returns x if the elements of a head are contiguous, otherwise a contiguous copy.
Array rows_of(const Array& x) { return x.strides()[2] == 1 || x.shape(2) == 1 ? x : x.copy(); }

}  // namespace

PagedLayer PagedLayer::zeros(std::int64_t pages, std::int64_t key_heads, std::int64_t head_size, DType dtype,
                             Device device) {
  const std::int64_t row = cache_row(head_size, dtype);
  return {Array::zeros({pages, key_heads, row, page_positions}, dtype, device),
          Array::zeros({pages, key_heads, page_positions, row}, dtype, device)};
}

void paged_store(PagedLayer& layer, const Array& keys, const Array& values, const PagedTokens& tokens) {
  const detail::Operation operation("paged_store", layer.keys, layer.values, keys, values);
  for (const Array* x : {&keys, &values}) {
    check_pages("paged_store", *x, layer, tokens);
    detail::check_stored_value("paged_store", *x);
    if (x->shape(1) != layer.keys.shape(1))
      fail<ShapeError>({.operation = "paged_store",
                        .with = {{"rows", to_string(x->shape())}, {"keys", to_string(layer.keys.shape())}},
                        .wrong = "the numbers of heads differ"});
  }
  if (keys.size() == 0) return;
  static auto& family = *new KernelFamily<PagedStoreSpec>(trace_paged_store);
  const auto store = [&](Array& pages, const Array& x, bool transposed) {
    detail::check_write_target("paged_store", pages);
    const Array from = rows_of(x);
    std::vector<LaunchArgument> args = {from.view(), pages.view_for_writing()};
    for (const Array* a : {&tokens.tables, &tokens.sequences, &tokens.positions}) args.emplace_back(a->view());
    for (const std::int64_t n : {tokens.tables.shape(1), from.strides()[0], from.strides()[1]})
      args.push_back(LaunchArgument::index(n));
    const std::int64_t columns = pages.dtype() == DType::i8 ? x.shape(2) / cache_block : x.shape(2);
    family({from.dtype(), pages.dtype(), transposed})
        .launch({static_cast<std::uint64_t>(columns), static_cast<std::uint64_t>(x.shape(1)),
                 static_cast<std::uint64_t>(x.shape(0))},
                std::span(args));
    operation.finish_in_place(pages);
  };
  store(layer.keys, keys, true);
  store(layer.values, values, false);
}

Array paged_attention(const Array& q, const PagedLayer& layer, const PagedTokens& tokens, float scale,
                      std::int64_t window, float cap, const std::optional<Array>& sinks) {
  const detail::Operation operation("paged_attention", q, layer.keys, layer.values, sinks);
  detail::check_no_rule("paged_attention", q, layer.keys, layer.values);
  if (sinks) detail::check_no_rule("paged_attention", *sinks);
  check_pages("paged_attention", q, layer, tokens);
  const std::int64_t heads = q.shape(1), head_size = q.shape(2), key_heads = layer.keys.shape(1);
  if (key_heads == 0 || heads % key_heads || head_size < 1 || head_size > 512)
    fail<ShapeError>({.operation = "paged_attention",
                      .with = {{"q", to_string(q.shape())}, {"keys", to_string(layer.keys.shape())}},
                      .wrong = "the heads must be a multiple of the key heads, and the head size at most 512"});
  if (window < 0 || !(cap >= 0 && cap <= 1e30f))
    fail<ArgumentError>({.operation = "paged_attention",
                         .with = {{"window", std::to_string(window)}, {"cap", std::to_string(cap)}},
                         .wrong = "window must be at least 0, and cap between 0 and 1e30"});
  check_sinks("paged_attention", sinks, q);
  Array out = Array::empty(q.shape(), DType::f32, q.device());
  const auto finish = [&] {
    return operation.finish(std::move(out), [&] {
      return Attributes{{"scale", static_cast<double>(scale)}, {"window", window}, {"cap", static_cast<double>(cap)}};
    });
  };
  if (out.size() == 0) return finish();
  const Array queries = (q.dtype() == DType::f32 ? q : q.astype(DType::f32)).as_contiguous();
  const std::int64_t group = heads / key_heads;
  static auto& family = *new KernelFamily<PagedAttentionSpec>(trace_paged_attention);
  const auto launch = [&](bool groups, std::int64_t blocks_of) {
    PagedAttentionSpec spec =
        choose_paged_attention(tiles_of(q.device()), layer.keys.dtype(), head_size, group, groups);
    spec.window = window != 0, spec.cap = cap != 0, spec.sinks = sinks.has_value();
    spec.equal = groups && tokens.equal_positions;
    std::vector<LaunchArgument> args = {queries.view()};
    add_cache_arguments(args, layer.keys.view()), add_cache_arguments(args, layer.values.view());
    args.emplace_back(out.view());
    for (const Array* a : {&tokens.tables, &tokens.sequences, &tokens.positions}) args.emplace_back(a->view());
    for (const std::int64_t n : {heads, group, tokens.tables.shape(1)}) args.push_back(LaunchArgument::index(n));
    args.push_back(LaunchArgument::scalar(scale));
    if (spec.window) args.push_back(LaunchArgument::index(window));
    if (spec.cap) args.push_back(LaunchArgument::scalar(cap));
    const Array sink_logits = sinks ? sinks->as_contiguous() : Array();
    if (sinks) args.emplace_back(sink_logits.view());
    if (groups) args.emplace_back(tokens.groups->view());
    const std::int64_t chunks = ceil_div(group, spec.queries),
                       blocks = blocks_of * (groups ? heads : key_heads * chunks);
    family(spec).launch({static_cast<std::uint64_t>(blocks), 1, 1}, std::span(args));
  };
  const bool grouped = tokens.groups && can_group_tokens(tiles_of(q.device()), head_size);
  const std::int64_t alone = grouped ? tokens.single : q.shape(0);
  if (alone > 0) launch(false, alone);
  if (grouped && tokens.groups->shape(0) > 0) launch(true, tokens.groups->shape(0));
  return finish();
}

}  // namespace tessera::ops
