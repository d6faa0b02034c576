// SPDX-License-Identifier: Apache-2.0
// Products of many tokens with a packed weight, using CPU vectors. A panel of the weight (some columns of some groups
// of rows) is unpacked once for all tokens and stays in the L1 cache. Each tile of tokens also stays in the L1 cache
// while it is multiplied by the panel (Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication",
// 2008).
#include "tessera/ops/packed_weight.h"

namespace tessera::ops {

std::uint64_t linear_panel_shared_bytes(const LinearPanelSpec& spec) {
  const WeightLayout& f = layout_of(spec.weight.format);
  const std::uint64_t step = f.quantised() ? 8 + static_cast<std::uint64_t>(f.part_scales()) : 1;  // words of a row
  return sizeof(float) * spec.groups * spec.weight.group *
         (spec.depth * step + std::uint64_t{spec.tiles} * spec.tokens);
}

ir::Function trace_linear_panel(const LinearPanelSpec& spec) {
  const int lanes = static_cast<int>(spec.weight.group), tokens = static_cast<int>(spec.tokens),
            depth = static_cast<int>(spec.depth), together = static_cast<int>(spec.together);
  ir::Builder builder(
      "linear_" + std::string(weight_format_name(spec.weight.format)) + "_panel" + std::to_string(tokens),
      ir::KernelKind::block, {spec.weight.group, 1, 1});
  ir::Builder::Scope scope(builder);
  const PackedWeight weight(spec.weight);
  const WeightLayout& f = weight.layout;
  const bool quantised = f.quantised();
  const auto x = ir::buffer_param("x", quantised ? DType::u32 : DType::f32, ir::Access::read);
  const auto y = ir::buffer_param("y", DType::f32, ir::Access::read_write);
  const auto number = [](const char* name) { return ir::scalar_param(name, DType::index); };
  // A step along a row is a part of 32 columns if the weight is quantised, otherwise one column. The specification
  // limits the number of groups and tiles of a block.
  const ir::Value rows = number("rows"), steps = number("steps"), count = number("tokens"), tiles = number("tiles"),
                  groups = number("groups"), block_groups = number("block_groups"), block_tiles = number("block_tiles");

  // For each step of a group: its words, then its scales and minimums.
  const int numbers = static_cast<int>(f.part_scales());
  const std::uint64_t room = std::uint64_t{spec.groups} * spec.depth * spec.weight.group;
  const ir::BufferRef words = ir::shared(quantised ? DType::u32 : DType::f32, quantised ? room * 8 : room);
  const ir::BufferRef scales =
      quantised ? ir::shared(DType::f32, room * static_cast<std::uint64_t>(numbers)) : ir::BufferRef();
  const ir::BufferRef partial =
      ir::shared(DType::f32, std::uint64_t{spec.groups} * spec.tiles * spec.tokens * spec.weight.group);

  // Each thread computes one row of every group. It reads from shared memory only what it has written itself, so no
  // barrier is needed.
  const ir::Value lane = ir::thread_id(0), block = ir::block_id(0), none = ir::index_literal(0);
  const ir::Value across = (tiles + (block_tiles - 1)) / block_tiles, first_group = block / across * block_groups,
                  first_tile = (block - block / across * across) * block_tiles;
  const ir::Value active_groups = ir::min(block_groups, groups - first_group),
                  active_tiles = ir::min(block_tiles, tiles - first_tile);
  const auto sums_at = [&](ir::Value tile, ir::Value group) {
    return (tile * static_cast<int>(spec.groups) + group) * (tokens * lanes) + lane;
  };

  const auto unpack = [&](ir::Value step0, ir::Value step1) {
    ir::for_(0, active_groups, [&](ir::Value g) {
      const ir::Value from = (first_group + g) * steps;
      ir::for_(step0, step1, [&](ir::Value step) {
        const ir::Value at = g * depth + (step - step0);
        if (!quantised) {
          words.store(at * lanes + lane, ir::cast(DType::f32, weight.element(from + step, lane)));
          return;
        }
        WeightPart part = part_of(weight, from + step, lane);
        for (int i = 0; i < 8; ++i) words.store((at * 8 + i) * lanes + lane, part.words[static_cast<std::size_t>(i)]);
        int n = 0;
        for (const ir::Value* v : part.numbers(f)) scales.store((at * numbers + n++) * lanes + lane, *v);
      });
    });
  };
  // Prefetches one part of the next panel while a tile is multiplied by the current panel. After the last panel of a
  // group, this is a part of the group that the next block probably computes.
  const ir::Variable ahead(DType::u32, 0);
  const auto read_ahead = [&](ir::Value step1, ir::Value tile, ir::Value g) {
    const ir::Value part = (first_group + g) * steps + step1 + tile;
    const ir::Value is_there = part < groups * steps;
    ir::if_(spec.tiles > spec.depth ? is_there && tile < depth : is_there, [&] {
      ir::Value all = ahead.get();
      for (std::uint32_t i = 0; i < f.bits; ++i) all = all ^ weight.word(part, ir::index_literal(i), lane);
      if (f.factors != 0) all = all ^ weight.factor(part, lane);
      ahead.set(all);
    });
  };
  const auto unpacked = [&](ir::Value at) {
    WeightPart part;
    for (int i = 0; i < 8; ++i) part.words.push_back(words.load((at * 8 + i) * lanes + lane));
    int n = 0;
    for (ir::Value* v : part.numbers(f)) *v = scales.load((at * numbers + n++) * lanes + lane);
    return part;
  };
  // Multiplies `side` adjacent groups by the tokens of a tile.
  const auto multiply = [&](ir::Value step0, ir::Value step1, ir::Value tile, ir::Value g, int side) {
    Sums sums(static_cast<std::size_t>(side * tokens));
    const auto each = [&](const auto& what) {
      for (int s = 0; s < side; ++s)
        for (int t = 0; t < tokens; ++t)
          what(sums.of[static_cast<std::size_t>(s * tokens + t)], sums_at(tile, g + s) + t * lanes);
    };
    if (quantised) read_ahead(step1, tile, g);
    ir::if_(step0 > 0, [&] { each([&](ir::Variable& v, ir::Value at) { v.set(partial.load(at)); }); });
    const int width = quantised ? static_cast<int>(activation_words) : 1;
    const ir::Value x_tile = (first_tile + tile) * steps;
    ir::for_(step0, step1, [&](ir::Value step) {
      const ir::Value at = g * depth + (step - step0), x_at = (x_tile + step) * (tokens * width);
      if (quantised) {
        std::vector<ir::Value> from;
        for (int t = 0; t < tokens; ++t) from.push_back(x_at + t * width);
        add_part(spec.weight, unpacked(at), x, from, sums);
        return;
      }
      std::vector<ir::Value> w;
      for (int s = 0; s < side; ++s) w.push_back(words.load((at + s * depth) * lanes + lane));
      for (int t = 0; t < tokens; ++t) {
        const ir::Value v = x.load(x_at + t);
        for (int s = 0; s < side; ++s)
          sums.add(static_cast<std::size_t>(s * tokens + t), w[static_cast<std::size_t>(s)], v);
      }
    });
    each([&](ir::Variable& v, ir::Value at) { partial.store(at, v.get()); });
  };

  ir::for_(0, steps, depth, [&](ir::Value step0) {
    const ir::Value step1 = ir::min(step0 + depth, steps);
    unpack(step0, step1);
    ir::for_(0, active_tiles, [&](ir::Value tile) {
      const auto some = [&](ir::Value from, ir::Value to, int side) {
        ir::for_(from, to, side, [&](ir::Value g) { multiply(step0, step1, tile, g, side); });
      };
      const ir::Value even = together > 1 ? active_groups - active_groups % together : active_groups;
      some(none, even, together);
      if (together > 1) some(even, active_groups, 1);
    });
  });
  ir::for_(0, active_tiles, [&](ir::Value tile) {
    const ir::Value first = (first_tile + tile) * tokens;
    ir::for_(0, active_groups, [&](ir::Value g) {
      const ir::Value row = (first_group + g) * lanes + lane;
      ir::for_(0, ir::min(ir::index_literal(tokens), count - first), [&](ir::Value t) {
        ir::if_(row < rows, [&] { y.store((first + t) * rows + row, partial.load(sums_at(tile, g) + t * lanes)); });
      });
    });
  });
  if (quantised) words.store(lane, ahead.get());  // prevents the prefetching loads from being optimised away
  return builder.finish();
}

}  // namespace tessera::ops
