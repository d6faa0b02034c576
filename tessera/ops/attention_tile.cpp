// SPDX-License-Identifier: Apache-2.0
// Launches of the kernels of attention with matrix fragments.
#include "tessera/ops/attention_tile.h"

#include "tessera/device/launch/kernel_family.h"

namespace tessera::ops {

namespace {

std::uint64_t blocks_of(std::int64_t rows, std::int64_t heads, std::int64_t batch) {
  return static_cast<std::uint64_t>(ceil_div(rows, attention_tile_rows) * heads * batch);
}
void add_strides(std::vector<LaunchArgument>& args, std::initializer_list<const Array*> arrays) {
  for (const Array* x : arrays)
    for (std::size_t d = 0; d < 3; ++d) args.push_back(LaunchArgument::index(x->strides()[d]));
}

}  // namespace

Array attention_rows(const Array& x) {
  bool fits = x.strides()[3] == 1;
  for (std::size_t d = 0; d < 3; ++d) fits = fits && x.strides()[d] % 8 == 0;
  return fits ? x : x.copy();
}

void launch_attention_tile(const AttentionTileSpec& spec, const Array& q, const Array& k, const Array& v,
                           const Array& out, const AttentionTileOptions& options, const Array* logs) {
  const std::int64_t heads = q.shape(1), tokens = q.shape(2);
  std::vector<LaunchArgument> args = {q.view(), k.view(), v.view(), out.view_for_writing()};
  if (spec.logs) args.push_back(logs->view_for_writing());
  for (const std::int64_t n : {heads, heads / k.shape(1), tokens, k.shape(2)}) args.push_back(LaunchArgument::index(n));
  args.push_back(argument(options.past));
  add_strides(args, {&q, &k, &v, &out});
  args.push_back(LaunchArgument::scalar(options.scale));
  if (spec.window) args.push_back(LaunchArgument::index(options.window));
  if (spec.cap) args.push_back(LaunchArgument::scalar(options.cap));
  const Array sinks = spec.sinks ? options.sinks->as_contiguous() : Array();
  if (spec.sinks) args.emplace_back(sinks.view());
  static auto& family = *new KernelFamily<AttentionTileSpec>(trace_attention_tile);
  family(spec).launch({blocks_of(tokens, heads, q.shape(0)), 1, 1}, std::span(args));
}

void launch_attention_gradient(const AttentionGradientSpec& spec, const AttentionGradientOperands& o, float scale,
                               std::initializer_list<Array> gradients) {
  const std::int64_t heads = o.q.shape(1), key_heads = o.k.shape(1);
  std::vector<LaunchArgument> args;
  for (const Array* x : {&o.q, &o.k, &o.v, &o.g, &o.logs, &o.along}) args.push_back(x->view());
  if (spec.dtype == DType::f16) args.push_back(o.exponents.view());
  for (const Array& x : gradients) args.push_back(x.view_for_writing());
  for (const std::int64_t n : {heads, heads / key_heads, o.q.shape(2), o.k.shape(2)})
    args.push_back(LaunchArgument::index(n));
  add_strides(args, {&o.q, &o.k, &o.v, &o.g});
  args.push_back(LaunchArgument::scalar(static_cast<float>(scale * attention_tile::log2_e)));
  static auto& family = *new KernelFamily<AttentionGradientSpec>(trace_attention_gradient);
  const Array& rows = spec.keys ? o.k : o.q;
  family(spec).launch({blocks_of(rows.shape(2), rows.shape(1), rows.shape(0)), 1, 1}, std::span(args));
}

}  // namespace tessera::ops
