// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/experts.h"

#include <algorithm>

#include "tessera/array/operation.h"
#include "tessera/device/launch/kernel_family.h"
#include "tessera/device/placement/dry_run.h"
#include "tessera/ops/dry_routing.h"
#include "tessera/ops/kernels.h"
#include "tessera/ops/transformer_layer.h"

namespace tessera::ops {

namespace {

/// Adds the bias of each pair of a token and an expert, or of one expert, if there are biases.
Array plus(Array y, const std::optional<Array>& bias) { return bias ? y + *bias : std::move(y); }
/// Returns columns [begin, end) of biases (pairs, columns).
std::optional<Array> bias_columns(const std::optional<Array>& bias, std::int64_t begin, std::int64_t end) {
  return bias ? std::optional(bias->slice(1, begin, end)) : std::nullopt;
}

constinit thread_local std::span<const std::int64_t> dry_rows;

/// The experts of `pairs` pairs of a token and an expert in a dry run, which has no ids.
std::vector<std::int32_t> dry_ids(std::int64_t pairs) {
  std::vector<std::int32_t> ids;
  for (const std::int64_t rows : DryRouting::rows()) {
    const auto id = static_cast<std::int32_t>(ids.empty() ? 1 : ids.back() + 1);
    ids.insert(ids.end(), static_cast<std::size_t>(std::min(rows, pairs - std::ssize(ids))), id);
  }
  ids.resize(static_cast<std::size_t>(pairs));
  return ids;
}

/// Which tokens use each expert, on the host.
struct Groups {
  std::vector<std::int64_t> ends;     ///< the rows of an expert end here, where those of the next one begin
  std::vector<std::int32_t> sources;  ///< the token of each row, in the order of experts
  std::vector<std::int32_t> places;   ///< (tokens, used): the row of each pair of a token and an expert

  Groups(const Array& ids, std::int64_t experts) : ends(static_cast<std::size_t>(experts)) {
    const std::vector<std::int32_t> of_pair =
        holds_data(ids.device()) ? ids.to_vector<std::int32_t>() : dry_ids(ids.size());
    const auto used = static_cast<std::size_t>(ids.shape(1));
    for (const std::int32_t id : of_pair) ++ends[static_cast<std::size_t>(id)];
    std::int64_t end = 0;
    for (std::int64_t& e : ends) end = e = end + e;
    sources.resize(of_pair.size()), places.resize(of_pair.size());
    std::vector<std::int64_t> next(ends);
    for (std::size_t pair = of_pair.size(); pair-- > 0;) {
      const auto row = static_cast<std::size_t>(--next[static_cast<std::size_t>(of_pair[pair])]);
      sources[row] = static_cast<std::int32_t>(pair / used), places[pair] = static_cast<std::int32_t>(row);
    }
  }
};

/// The outputs of the experts (rows, width), in the order of experts.
Array grouped_outputs(const Array& rows, const Experts& e, Gate kind, const Groups& groups) {
  const Array inputs = take(rows, Array::from(groups.sources, {}, rows.device()));
  std::vector<Array> outputs;
  std::int64_t begin = 0;
  for (std::int64_t i = 0; i < e.count; ++i) {
    const std::int64_t end = groups.ends[static_cast<std::size_t>(i)];
    if (begin == end) continue;
    const auto rows_of = [&](const Weight& all) {
      return all.slice_rows(i * (all.rows() / e.count), all.rows() / e.count);
    };
    LinearInput in(inputs.slice(0, begin, end));
    std::vector<Weight> first = {rows_of(e.gate)};
    if (e.up.valid()) first.push_back(rows_of(e.up));
    const Weight down = rows_of(e.down);
    const auto bias_of = [&](const std::optional<Array>& all) {
      return all ? std::optional(all->select(0, i)) : std::nullopt;
    };
    LinearInput hidden = gate(in, first, bias_of(e.gate_up_bias), kind, down);
    outputs.push_back(plus(linear(hidden, {&down, 1})[0], bias_of(e.down_bias)));
    begin = end;
  }
  return concatenate(outputs, 0);
}

}  // namespace

DryRouting::DryRouting(std::span<const std::int64_t> rows) { dry_rows = rows; }
DryRouting::~DryRouting() { dry_rows = {}; }
std::span<const std::int64_t> DryRouting::rows() { return dry_rows; }

Routing choose_experts(const Array& logits, std::int64_t used, ExpertWeights weights,
                       const std::optional<Array>& bias) {
  const detail::Operation operation("choose_experts", logits, bias);
  const std::int64_t tokens = logits.shape(0);
  Routing out{Array::empty({tokens, used}, DType::i32, logits.device()),
              Array::empty({tokens, used}, DType::f32, logits.device())};
  if (out.ids.size() == 0) return out;
  static auto& family = *new KernelFamily<ChooseExpertsSpec>(trace_choose_experts);
  std::vector<LaunchArgument> args = {logits.as_contiguous().view(), out.ids.view(), out.weights.view()};
  if (bias) args.emplace_back(bias->as_contiguous().view());
  args.push_back(LaunchArgument::index(logits.shape(1))), args.push_back(LaunchArgument::index(used));
  family({weights, bias.has_value()}).launch({static_cast<std::uint64_t>(tokens), 1, 1}, std::span(args));
  operation.finish(std::vector{out.ids, out.weights}, [&] {
    return Attributes{{"used", used}, {"weights", static_cast<std::int64_t>(weights)}};
  });
  return out;
}

Array experts_layer(LinearInput& x, const Experts& e, Gate kind, LinearInput* routed_by) {
  const Array& rows = x.rows().value();
  const Array logits = plus(linear_experts(routed_by != nullptr ? *routed_by : x, e.router, 1, {}), e.router_bias);
  Routing routing = choose_experts(logits, e.used, e.weights, e.choice_bias);
  const std::int64_t tokens = x.tokens(), width = e.down.rows() / e.count;
  Array out = Array::empty({tokens, width}, DType::f32, rows.device());
  if (out.size() == 0) return out;
  if (e.scales) {
    const Array scales = take(*e.scales, routing.ids.reshape({routing.ids.size()}));
    routing.weights = (routing.weights * scales.reshape(routing.weights.shape())).eval();
  }
  const bool grouped = tokens * e.used >= 2 * e.count;
  std::optional<Array> places;
  Array outputs;
  if (grouped) {
    const Groups groups(routing.ids, e.count);
    outputs = grouped_outputs(rows, e, kind, groups);
    places = Array::from(groups.places, {}, rows.device());
  } else {
    const Array ids = routing.ids.reshape({routing.ids.size()});
    const auto bias_of = [&](const std::optional<Array>& all) {
      return all ? std::optional(take(*all, ids)) : std::nullopt;
    };
    const std::optional<Array> bias = bias_of(e.gate_up_bias);
    const std::int64_t size = e.down.columns();
    Array first = linear_experts(x, e.gate, e.count, routing.ids), second;
    if (e.up.valid())
      second = linear_experts(x, e.up, e.count, routing.ids);
    else
      second = first.slice(1, size, 2 * size), first = first.slice(1, 0, size);
    LinearInput hidden(apply_gate(kind, plus(std::move(first), bias_columns(bias, 0, size)),
                                  plus(std::move(second), bias_columns(bias, size, 2 * size))));
    outputs = plus(linear_experts(hidden, e.down, e.count, routing.ids), bias_of(e.down_bias));
  }
  std::vector<LaunchArgument> args = {outputs.view(), routing.weights.view(), out.view()};
  if (places) args.emplace_back(places->view());
  args.push_back(LaunchArgument::index(e.used));
  static auto& family = *new KernelFamily<CombineExpertsSpec>(trace_combine_experts);
  family({grouped}).launch({static_cast<std::uint64_t>(width), static_cast<std::uint64_t>(tokens), 1}, std::span(args));
  return out;
}

}  // namespace tessera::ops
