// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/kernels.h"

#include <algorithm>
#include <functional>

#include "tessera/device/launch/block_threads.h"

namespace tessera::ops {

Tiles tiles_of(Device device) {
  const DeviceInfo& info = device_info(device);
  Tiles t;
  t.f16 = info.can.f16;
  t.matrix_f16 = info.can.matrix_f16, t.matrix_bf16 = info.can.matrix_bf16, t.matrix_i8 = info.can.matrix_i8;
  t.matrix_f32 = info.can.matrix_f32, t.matrix_tf32 = info.can.matrix_tf32;
  t.async_copies = info.can.async_copies;
  t.dot4 = info.can.int8_dot;
  t.subgroup = info.can.subgroup_widths.empty() ? 1 : info.can.subgroup_widths[0];
  t.block_limit = block_threads(info.can, 1024);
  t.compute_units = info.compute_units;
  t.shared_bytes = info.can.shared_bytes;
  if (info.kind == DeviceKind::discrete_gpu || info.kind == DeviceKind::integrated_gpu) {
    // 512 threads of a multiprocessor request enough bytes at once to use its share of the bandwidth.
    t.rows = 32, t.slices = 16, t.tokens = 4, t.block = 256;
  } else if (const std::uint32_t width = info.can.subgroup_widths.empty() ? 1 : info.can.subgroup_widths[0];
             info.kind == DeviceKind::cpu && width > 1) {
    t.vectors = true;
    // The sums for this many tokens and the words of a weight fit in registers. With 512-bit vectors there are 32
    // registers.
    t.tokens = width >= 16 ? 16 : 4;
  }
  t.rows = std::min(t.rows, t.block_limit), t.slices = std::min(t.slices, t.block_limit / t.rows);
  t.block = std::min(t.block, t.block_limit);
  return t;
}

std::uint32_t linear_tokens(const Tiles& tiles, WeightFormat format, std::int64_t tokens) {
  const WeightLayout& f = layout_of(format);
  // More than 8 tokens bring no benefit in formats that are easy to unpack.
  const std::uint32_t most = f.easily_unpacked() ? std::min(tiles.tokens, 8u) : tiles.tokens;
  std::uint32_t together = 1;
  while (together < most && together < tokens) together *= 2;
  return together;
}

std::uint32_t quantise_lanes(const Tiles& tiles) {
  return tiles.vectors && 16 % tiles.subgroup == 0 ? tiles.subgroup : 0;
}

std::uint32_t dequantise_slices(const Tiles& tiles) {
  return tiles.vectors ? 1 : std::min(4u, tiles.block_limit / tiles.rows);
}

DType scale_dtype(const Tiles& tiles, WeightFormat format) {
  const WeightLayout& f = layout_of(format);
  if (!f.quantised()) return DType::f32;
  // If the device converts f16 in software, converting in each product would cost more than reading f32 scales.
  return f.scale == DType::f16 && !tiles.f16 ? DType::f32 : f.scale;
}

bool multiplies_symmetric(const Tiles& tiles, WeightFormat format) {
  const WeightLayout& f = layout_of(format);
  // Numbers with an offset of 128 are signed bytes without it. Numbers of less than 8 bits are signed bytes too, but
  // iq4_nl's table has bytes above 127.
  return tiles.vectors && !tiles.dot4 && f.quantised() && (f.offset == 128 || f.codes != Codes::iq4_nl);
}

std::optional<LinearPanelSpec> choose_linear_panel(const Tiles& tiles, const WeightSpec& weight, std::int64_t tokens) {
  const WeightLayout& f = layout_of(weight.format);
  const bool quantised = f.quantised();
  // With fewer tokens, the panel is not reused often enough. The same is true for formats that are easy to unpack.
  if (!tiles.vectors || tiles.slices != 1 || tokens < 64 || f.easily_unpacked()) return {};
  const bool many_registers = tiles.tokens >= 16;
  LinearPanelSpec s{weight};
  s.tokens = std::min(tiles.tokens, 8u), s.groups = 4;
  // A quantised panel is unpacked once for 512 tokens. Each tile stays in the L1 cache for all groups of the panel, and
  // the sums fit in the L2 cache.
  s.tiles = (quantised ? 512 : 128) / s.tokens, s.depth = quantised ? 8 : 128;
  s.together = !quantised && many_registers ? 2 : 1;
  while (linear_panel_shared_bytes(s) > tiles.shared_bytes && s.tiles > 1) s.tiles /= 2;
  if (linear_panel_shared_bytes(s) > tiles.shared_bytes) return {};
  return s;
}

std::uint32_t vector_lanes(const Tiles& tiles, DType dtype) {
  const std::uint32_t lanes = std::min(tiles.subgroup, 16u);
  return dtype_size(dtype) == 8 ? std::max(4u, lanes / 2) : lanes;
}

void for_lanes(ir::Value count, std::uint32_t lanes, ir::Value lane,
               const std::function<void(ir::Value, ir::Value)>& body) {
  const int step = static_cast<int>(lanes);
  ir::for_(0, count - (step - 1), step, [&](ir::Value base) { body(base + lane, {}); });
  const ir::Value rest = count % step;
  ir::if_(rest > 0, [&] {
    const ir::Value index = count - rest + lane;
    body(index, index < count);
  });
}

ir::Value load_at(const ir::BufferRef& memory, ir::Value index, ir::Value exists, double otherwise) {
  const DType t = memory.dtype();
  const ir::Value v = exists.valid() ? memory.load_if(exists, index, ir::literal(t, otherwise)) : memory.load(index);
  return t == DType::f16 || t == DType::bf16 ? ir::cast(DType::f32, v) : v;
}

ir::Value updated(ir::Value old, ir::Value sum, ir::Value alpha, ir::Value beta) {
  return ir::fma(alpha, sum, ir::select(beta == 0, ir::literal(sum.dtype(), 0), beta * old));
}

ir::Value activate(Activation activation, ir::Value x) {
  switch (activation) {
    case Activation::relu:  // like relu() of arrays: NaN propagates
      return is_float(x.dtype()) ? ir::select(x > 0 || x != x, x, ir::literal(x.dtype(), 0)) : ir::max(x, 0);
    case Activation::silu: return x / (1 + ir::exp(-x));
    case Activation::gelu: return x * 0.5 * (1 + ir::erf(x * 0.70710678118654752));
    default: return x;
  }
}

}  // namespace tessera::ops
