// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "tessera/ops/catalogue.h"
#include "tessera/ops/correlation.h"
#include "tessera/ops/cross_entropy.h"
#include "tessera/ops/experts.h"
#include "tessera/ops/kernels.h"
#include "tessera/ops/layer_kernels.h"
#include "tessera/ops/recurrent_kernels.h"
#include "tessera/ops/row_kernels.h"
#include "tessera/ops/sparse_row_kernel.h"
#include "tessera/ops/top_k_kernels.h"
#include "tessera/ops/windows.h"

namespace tessera {

std::vector<CatalogueKernel> kernel_catalogue(Device device) {
  using namespace ops;
  const Tiles tiles = tiles_of(device);
  const bool f64 = device_info(device).can.f64;
  std::vector<CatalogueKernel> out;
  auto add = [&](std::string name, ir::Function function) {
    for (const CatalogueKernel& k : out)
      if (k.name == name) return;  // the device uses the same kernel for two shapes
    function.name = name;
    out.push_back({std::move(name), std::move(function)});
  };
  auto text = [](DType t) { return std::string(dtype_name(t)); };

  const DType scale = tiles.f16 ? DType::f16 : DType::f32;
  add("quantise_activations", trace_quantise({{true, 1, 8, false}}));
  add("quantise_activations_tile8", trace_quantise({{true, 8, 32, true}}));
  if (const std::uint32_t lanes = quantise_lanes(tiles); lanes != 0)
    add("quantise_activations_tile8_lanes", trace_quantise({{true, 8, 32, true}, lanes}));
  add("tile_activations_8", trace_tile_activations(8));
  for (const WeightLayout& f : weight_layouts()) {
    const WeightSpec weight{f.format, tiles.rows, scale_dtype(tiles, f.format), multiplies_symmetric(tiles, f.format)};
    const std::string format(f.name);
    for (std::uint32_t tokens = 1; tokens <= linear_tokens(tiles, f.format, 64); tokens *= 2)
      add("linear_" + format + (tokens == 1 ? "_vector" : "_tile" + std::to_string(tokens)),
          trace_linear({weight, tokens, tiles.slices}));
    if (const auto panel = choose_linear_panel(tiles, weight, 128))
      add("linear_" + format + "_panel" + std::to_string(panel->tokens), trace_linear_panel(*panel));
    for (const std::int64_t tokens : {16, 64, 512})
      for (const std::int64_t rows : {4096, 14336})
        if (const auto tile = choose_linear_tile(tiles, weight, rows, 4096, tokens)) {
          ir::Function function = trace_linear_tile(*tile);
          const std::string name = function.name;
          add(name, std::move(function));
        }
    if (f.format == WeightFormat::f16 || f.format == WeightFormat::q4_K) {
      LinearSpec experts{weight, 1, tiles.slices};
      experts.experts = true;
      add("linear_" + format + "_experts", trace_linear(experts));
    }
    for (const DType to : {DType::f32, DType::f16})
      add("dequantize_" + format + "_to_" + text(to), trace_dequantise({weight, to, dequantise_slices(tiles)}));
    for (DType ids : {DType::i32, DType::i64})
      add("embedding_rows_" + format + "_" + text(ids), trace_gather({weight, ids}));
  }

  add("choose_experts", trace_choose_experts({}));
  add("choose_experts_unnormalised", trace_choose_experts({ExpertWeights::softmax_of_all}));
  add("choose_experts_sigmoid_bias", trace_choose_experts({ExpertWeights::sigmoid, true}));
  for (const bool placed : {false, true})
    add(placed ? "combine_experts_placed" : "combine_experts", trace_combine_experts({placed}));

  if (!tiles.vectors) {
    for (const auto& [layout, name] : {std::pair(InputLayout{true, 1, 128}, "quantise"),
                                       {InputLayout{true, 4, 32, true}, "quantise_tile4"},
                                       {InputLayout{}, "rows"},
                                       {InputLayout{false, 4}, "rows_tile4"}}) {
      if (const auto rows = choose_convert_rows(tiles, 4096, layout); rows && layout != InputLayout{})
        add("convert_" + std::string(name), trace_convert_rows(*rows));
      for (const bool adds : {false, true})
        for (const bool centres : {false, true})
          if (const auto norm = choose_add_norm(tiles, 4096, adds, layout, centres))
            add(std::string(adds ? "add_rms_norm_" : "rms_norm_") + (centres ? "centred_" : "") + name,
                trace_add_norm(*norm));
      for (const Gate gate : {Gate::silu, Gate::gelu, Gate::clamped_silu})
        for (const WeightFormat format : {WeightFormat::f16, WeightFormat::q8_0}) {
          LinearSpec s{{format, tiles.rows, format == WeightFormat::q8_0 ? scale : DType::f32},
                       layout.tokens,
                       tiles.slices,
                       true,
                       gate,
                       layout};
          if (auto tile = choose_linear_tile(tiles, s.weight, 8192, 4096, 48, true); tile && layout.tokens == 1) {
            tile->gate = gate, tile->out = {layout.quantised, layout.quantised ? tile->tokens : 1};
            ir::Function function = trace_linear_tile(*tile);
            const std::string gated = function.name + (layout.quantised ? "_quantise" : "");
            add(gated, std::move(function));
          }
          if (tiles.rows == 32 && tiles.slices >= 2 * s.tokens && 256 * tiles.slices * s.tokens <= tiles.shared_bytes &&
              (!layout.quantised || tiles.subgroup >= input_lanes))
            add("linear_" + std::string(weight_format_name(format)) + "_" + gate_name(gate) + "_" + name,
                trace_linear(s));
        }
    }
    for (const bool more : {false, true})
      for (const bool rotates : {true, false})
        if (tiles.block_limit >= 64) {
          RotateStoreSpec s;
          s.rotates = rotates, s.norms = s.biases = more, s.joined = !more, s.cache = more ? DType::f32 : DType::f16;
          s.threads = std::min(tiles.block_limit, rotates ? 64u : 128u);
          s.rotary.in_memory = more, s.rotary.factors = more;
          add(std::string(rotates ? "rotate_store" : "store_only") + (more ? "_norms_biases" : ""),
              trace_rotate_store(s));
        }
  }

  auto add_product = [&](std::int64_t m, std::int64_t n, std::int64_t k, bool transposed_a, bool transposed_b, DType t,
                         bool bias, Activation activation, std::optional<DType> result = {}, bool tf32 = false) {
    ProductSpec s{t, t, t == DType::f16 || t == DType::bf16 ? DType::f32 : t, result.value_or(t)};
    s.a_unit_k = !transposed_a, s.a_unit_m = transposed_a, s.b_unit_n = !transposed_b, s.b_unit_k = transposed_b;
    s.bias = bias, s.activation = activation, s.tf32 = tf32;
    s.whole_vectors = (dtype_size(t) == 2 || t == DType::f32) && m % 8 == 0 && n % 8 == 0 && k % 8 == 0;
    s.out_vectors = s.whole_vectors && n % 4 == 0;
    s = choose_product(tiles, s, m, n, k);
    constexpr const char* names[] = {"", "_relu", "_silu", "_gelu"};
    const auto add_form = [&](ir::Function fn, bool epilogue) {
      std::string name = fn.name + (transposed_a ? "_ta" : "") + (transposed_b ? "_tb" : "");
      if (epilogue) name += (bias ? "_bias" : "") + std::string(names[static_cast<std::size_t>(activation)]);
      if (epilogue && result) name += "_to_" + text(*result);
      add(std::move(name), std::move(fn));
    };
    if (!s.packed) return add_form(trace_product(s), true);
    for (std::int64_t batch : {1, 2}) {
      const PackedPlan plan = choose_packed(tiles, s, m, n, k, batch);
      if (plan.spec.a_packed) add_form(trace_pack(plan.pack_a), false);
      if (plan.spec.b_packed) add_form(trace_pack(plan.pack_b), false);
      add_form(trace_packed_product(plan.spec), true);
    }
  };
  for (int both = 0; both < 4; ++both)
    for (const auto& [m, n] :
         {std::array<std::int64_t, 2>{512, 512}, std::array<std::int64_t, 2>{1, 512},
          std::array<std::int64_t, 2>{4, 512}, std::array<std::int64_t, 2>{512, 16}, std::array<std::int64_t, 2>{8, 8}})
      add_product(m, n, 512, both & 1, both & 2, DType::f32, false, Activation::none);
  for (Activation a : {Activation::relu, Activation::silu, Activation::gelu})
    add_product(512, 512, 512, false, true, DType::f32, true, a);
  for (DType t : {DType::f16, DType::bf16, DType::i32, DType::f64})
    if (t != DType::f64 || f64) add_product(512, 512, 512, false, false, t, false, Activation::none);

  for (const Activation a : {Activation::none, Activation::relu, Activation::silu, Activation::gelu}) {
    if (!is_built_in(device.backend)) break;
    SparseRowSpec s = choose_sparse_row(tiles, 512, 512);
    s.bias = a != Activation::none, s.activation = a;
    ir::Function fn = trace_sparse_row(s);
    constexpr const char* names[] = {"", "_relu", "_silu", "_gelu"};
    std::string name = fn.name + (s.bias ? "_bias" : "") + names[static_cast<std::size_t>(a)];
    add(std::move(name), std::move(fn));
  }

  for (DType t : {DType::f16, DType::bf16})  // for the gradient of weights
    add_product(512, 512, 512, true, false, t, false, Activation::none, DType::f32);
  // Products that are added to a matrix: a tile, a vector, and matrices that are packed.
  const auto add_update = [&](std::int64_t m, std::int64_t n, std::int64_t k, bool transposed_b, DType t, bool lower) {
    ProductSpec s{t, t, t == DType::f16 ? DType::f32 : t, t};
    s.a_unit_k = true, s.b_unit_n = !transposed_b, s.b_unit_k = transposed_b;
    s.update = s.c_unit = true, s.lower = lower;
    s = choose_product(tiles, s, m, n, k);
    const auto plan = choose_packed(tiles, s, m, n, k, 1);
    ir::Function fn = s.packed ? trace_packed_product(plan.spec) : trace_product(s);
    std::string name = fn.name + (transposed_b ? "_tb" : "") + (s.packed && plan.spec.whole ? "_whole" : "");
    add(std::move(name), std::move(fn));
  };
  for (const DType t : {DType::f32, DType::f64})
    if (t != DType::f64 || f64) {
      for (const bool lower : {false, true})
        for (const std::int64_t n : {64, 200, 2000}) add_update(n, n, n, true, t, lower);
      add_update(64, 64, 64, false, t, false), add_update(1, 512, 512, false, t, false);
      add_update(1, 512, 512, true, t, false);
      for (const bool b_unit : {false, true}) {
        ir::Function fn = trace_solve(choose_solve(tiles, t, b_unit));
        std::string name = fn.name;
        add(std::move(name), std::move(fn));
      }
      ir::Function fn = trace_cholesky(choose_cholesky(tiles, t));
      std::string name = fn.name;
      add(std::move(name), std::move(fn));
    }
  if (tiles.matrix_f16) add_update(4096, 4096, 512, true, DType::f16, true);

  // On devices with matrix units, these products use fragments. They cover each tile size, with factors that are
  // contiguous along k or across k.
  for (DType t : {DType::f16, DType::bf16, DType::f32})
    if (t == DType::f16 ? tiles.matrix_f16 : t == DType::bf16 ? tiles.matrix_bf16 : tiles.matrix_tf32) {
      for (const std::int64_t less : {0, 1})
        for (int both = 0; both < 4; ++both)
          add_product(4096 - less, 4096 - less, 512 - less, both & 1, both & 2, t, false, Activation::none, {}, true);
      if (t == DType::f32) continue;
      add_product(40, 32, 512, false, true, t, true, Activation::silu);
      add_product(40, 32, 504, false, true, t, false, Activation::silu);  // with a part of a stage
      add_product(4096, 4096, 512, true, false, t, false, Activation::none, DType::f32);
    }

  const auto form = [](const RowSpec& s) {
    const bool several_loops = s.threads > 16 && s.each > 1 && !s.held;
    return (s.threads == 0 ? "_threads" : "_" + std::to_string(s.threads)) + (several_loops ? "_long" : "");
  };
  for (DType t : {DType::f32, DType::f16, DType::bf16}) {
    for (std::int64_t columns : {64, 1000, 4096, 20000}) {
      const RowSpec norm = choose_row(tiles, t, DType::f32, columns, 2), row = choose_row(tiles, t, t, columns);
      add("rms_norm_" + text(t) + form(norm), trace_rms_norm(norm));
      add("softmax_" + text(t) + form(row), trace_softmax(row));
    }
    for (std::int64_t columns : {10, 20000})
      for (const bool smoothed : {false, true}) {
        if (smoothed && t != DType::f32) continue;
        const CrossEntropySpec s{choose_row_read_once(tiles, t, t, columns), smoothed, smoothed};
        const std::string name = text(t) + form(s.row) + (smoothed ? "_smoothed" : "");
        add("cross_entropy_" + name, trace_cross_entropy(s));
        add("cross_entropy_backward_" + name, trace_cross_entropy_backward(s));
      }
    const RowSpec strided = choose_strided_row(tiles, t, t);
    add("softmax_" + text(t) + "_strided", trace_softmax(strided));
    add("cross_entropy_" + text(t) + "_strided", trace_cross_entropy({strided}));
    add("cross_entropy_backward_" + text(t) + "_strided", trace_cross_entropy_backward({strided}));
    for (RotaryPairs pairs : {RotaryPairs::adjacent, RotaryPairs::halves})
      for (bool more : {false, true})
        add("rotary_" + text(t) + (pairs == RotaryPairs::adjacent ? "_adjacent" : "_halves") +
                (more ? "_partial_factors" : ""),
            trace_rotary({t, pairs, more, more}));
    for (DType cache : {DType::f32, DType::f16, DType::i8})
      add("cache_store_" + text(t) + "_" + text(cache), trace_cache_store({t, cache}));
  }
  const std::uint32_t row_threads = std::min(tiles.block_limit, 64u);
  for (const bool causal : {false, true})
    add(causal ? "causal_scores" : "scores", trace_scores({DType::f32, row_threads, causal}));
  for (std::int64_t columns : {1000, 8192, 20000}) {
    const RowSpec s = choose_row(tiles, DType::f32, DType::f32, columns, 2);
    add("softmax_backward" + form(s), trace_softmax_backward(s));
    add("rms_norm_backward" + form(s), trace_rms_norm_backward(s));
  }
  for (DType cache : {DType::f32, DType::f16, DType::i8})
    for (std::int64_t head_size : {64, 80})
      for (std::int64_t tokens : {1, 64})
        for (bool in_memory : {false, true}) {
          if (cache == DType::i8 && head_size % 32 != 0) continue;
          AttentionSpec s = choose_attention(tiles, cache, head_size, tokens, 4);
          s.in_memory = in_memory;
          ir::Function fn = trace_attention(s);
          std::string name =
              fn.name + "_" + text(cache) + "_" + std::to_string(head_size) + (in_memory ? "_recorded" : "");
          add(std::move(name), std::move(fn));
        }
  for (const DType cache : {DType::f32, DType::f16, DType::i8}) {
    for (const bool groups : {false, true}) {
      const std::int64_t head_size = cache == DType::f32 ? 80 : 128;
      if (groups && !can_group_tokens(tiles, head_size)) continue;
      PagedAttentionSpec s = choose_paged_attention(tiles, cache, head_size, 4, groups);
      s.window = s.cap = s.sinks = cache == DType::f16;
      ir::Function fn = trace_paged_attention(s);
      std::string name = fn.name + "_" + text(cache);
      add(std::move(name), std::move(fn));
    }
    for (const bool transposed : {false, true})
      add("paged_store_" + text(cache) + (transposed ? "_keys" : "_values"),
          trace_paged_store({DType::f32, cache, transposed}));
  }
  add("causal_convolution", trace_causal_convolution({4}));
  add("gated_delta_rule", trace_gated_delta_rule({128}));
  for (const std::uint32_t head_size : {64u, 256u})
    for (const DType query : {DType::f32, DType::f16})
      if (auto s = choose_attention_tile(tiles, query, DType::f16, head_size, 64)) {
        s->window = s->cap = s->sinks = query == DType::f32 && head_size == 64, s->logs = query == DType::f16;
        add("attention_tile_" + text(query) + "_" + std::to_string(head_size), trace_attention_tile(*s));
      }
  for (const std::int64_t head_size : {64, 128})
    for (const DType t : {DType::f16, DType::bf16})
      for (const bool of_keys : {false, true})
        if (auto s = choose_attention_gradient(tiles, t, head_size, 64, of_keys)) {
          ir::Function fn = trace_attention_gradient(*s);
          std::string name = fn.name + "_" + std::to_string(head_size);
          add(std::move(name), std::move(fn));
        }
  for (std::int64_t tokens : {1, 64})
    for (bool window : {false, true}) {
      AttentionSpec s = choose_attention(tiles, DType::f16, 64, tokens, 1);
      s.window = s.sinks = window, s.cap = !window;
      ir::Function fn = trace_attention(s);
      std::string name = fn.name + (window ? "_window" : "_capped");
      add(std::move(name), std::move(fn));
    }
  if (AttentionSpec s = choose_attention(tiles, DType::f16, 128, 1, 4); s.form == AttentionSpec::parts) {
    s.whole = s.sinks = true;
    add("attention_whole", trace_attention(s));
    for (const bool quantised : {false, true}) {
      AttentionCombineSpec combine = choose_attention_combine(128);
      combine.out = {quantised, 1, 128}, combine.sinks = quantised;
      add(quantised ? "attention_combine_quantise" : "attention_combine", trace_attention_combine(combine));
    }
  }
  for (const bool pairs : {false, true})
    for (const int kind : {0, 1, 2}) {
      TopKSpec s = choose_top_k(tiles);
      s.pairs = pairs, s.single = kind != 0, s.finite = kind == 2;
      ir::Function fn = trace_top_k(s);
      std::string name = fn.name;
      add(std::move(name), std::move(fn));
    }
  // Recorded steps read the position of the tokens from device memory.
  for (RotaryPairs pairs : {RotaryPairs::adjacent, RotaryPairs::halves})
    add(pairs == RotaryPairs::adjacent ? "rotary_adjacent_recorded" : "rotary_halves_recorded",
        trace_rotary({DType::f32, pairs, false, false, true}));
  for (DType cache : {DType::f32, DType::f16, DType::i8})
    add("cache_store_" + text(cache) + "_recorded", trace_cache_store({DType::f32, cache, true}));
  for (WindowSpec::Kind kind : {WindowSpec::gather, WindowSpec::fold, WindowSpec::unpool, WindowSpec::largest,
                                WindowSpec::positions, WindowSpec::mean, WindowSpec::spread})
    for (const bool unit : {true, false})
      for (DType t : {DType::f32, DType::f16}) {
        ir::Function fn = trace_windows({kind, t, unit});
        std::string name = fn.name + (unit ? "" : "_strided") + "_" + text(t);
        add(std::move(name), std::move(fn));
        const Windows2d small = unit ? Windows2d{.kernel = 3, .padding = 1} : Windows2d{.kernel = 2, .stride = 2};
        fn = trace_windows(window_spec(kind, t, small));
        name = fn.name + (unit ? "_3_by_3_" : "_2_by_2_") + text(t);
        add(std::move(name), std::move(fn));
      }
  // Products of convolutions that read windows in place, with 3 x 3 kernels and with kernels of any size.
  for (const auto windows : {ProductSpec::images_of_windows, ProductSpec::weights_of_windows})
    for (const DType t : {DType::f32, DType::f16})
      for (const bool small : {true, false}) {
        const bool images = windows == ProductSpec::images_of_windows;
        ProductSpec s{t, t, DType::f32, images ? t : DType::f32};
        s.windows = windows, s.a_unit_k = true, s.b_unit_n = images, s.b_unit_k = !images;
        s.bias = images && small, s.flipped = images && !small;
        if (small) s.kernel_rows = s.kernel_columns = 3;
        ir::Function fn = trace_product(choose_product(tiles, s, 64, 2048, 576));
        std::string name = fn.name + (small ? "_3_by_3" : "");
        add(std::move(name), std::move(fn));
      }
  for (const CorrelationSpec::Kind kind : {CorrelationSpec::images, CorrelationSpec::weights})
    for (const DType t : {DType::f32, DType::f16})
      for (const bool large : {false, true})
        for (const std::int64_t channels : {4, 64}) {  // the first is computed by windows, the second by channels
          if (!tiles.vectors) break;
          const Correlation c = large ? Correlation{channels == 4 ? 9 : 7, 2, 1, 2} : Correlation{3, 1, 1};
          CorrelationSpec s{kind, t, t};
          s.bias = s.x_unit = s.y_unit = !large && kind == CorrelationSpec::images;
          const std::int64_t side = large ? 9 : 32;
          ir::Function fn =
              trace_correlation(choose_correlation(tiles, s, c, {8, 16, 32, 32}, {8, channels, side, side})->spec);
          std::string name = fn.name + (large ? "_strided" : "");
          add(std::move(name), std::move(fn));
        }
  for (const bool flipped : {false, true}) {
    if (!tiles.vectors) break;
    ir::Function fn = trace_weight_pack({flipped ? DType::f16 : DType::f32, DType::f32, 32, 16, !flipped, flipped});
    std::string name = fn.name + (flipped ? "_flipped" : "");
    add(std::move(name), std::move(fn));
  }
  return out;
}

}  // namespace tessera
