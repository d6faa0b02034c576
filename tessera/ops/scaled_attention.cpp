// SPDX-License-Identifier: Apache-2.0
// Attention over whole sequences. With matrix units, one kernel computes it, and two kernels its gradient. Otherwise,
// one block of queries is computed at a time: matmul computes the products, and one kernel does everything between
// them.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/array/functions.h"
#include "tessera/device/launch/kernel.h"
#include "tessera/device/launch/kernel_family.h"
#include "tessera/ops/attention.h"
#include "tessera/ops/row_kernels.h"

namespace tessera {

using ops::ScoresSpec;

namespace {

DType wide(DType t) { return t == DType::f64 ? DType::f64 : DType::f32; }

/// The parameters of the forward and backward pass. Heads that share a key head are rows of one matrix: (batch, key
/// heads, group times rows, size).
struct Attention {
  std::int64_t batch, key_heads, group, queries, keys;
  DType dtype;  ///< dtype of the scores
  bool causal;
  double scale;
  std::optional<Array> mask;  ///< broadcast to (batch, key heads, group, queries, keys)

  /// The range of batches and queries of one block.
  struct Block {
    std::int64_t batch_begin, batch_end, begin, end, keys;
    std::int64_t batches() const { return batch_end - batch_begin; }
    std::int64_t rows() const { return end - begin; }
  };
  /// Calls `use` for each block. Blocks are small enough that the scores fit in a CPU's cache, and large enough to fill
  /// a GPU. They are not so small that the products become slow.
  template <class F>
  void for_each_block(Device device, F&& use) const {
    const bool processor = device_info(device).kind == DeviceKind::cpu;
    const std::int64_t most =
        (processor ? std::int64_t{8} << 20 : std::int64_t{256} << 20) / static_cast<std::int64_t>(dtype_size(dtype));
    const std::int64_t least_rows = std::min<std::int64_t>(queries, 128), row = key_heads * group * keys;
    const std::int64_t batches = std::clamp<std::int64_t>(most / (row * least_rows), 1, batch);
    const std::int64_t rows = std::clamp(most / (row * batches), least_rows, queries);
    for (std::int64_t b = 0; b < batch; b += batches) {
      for (std::int64_t r = 0, end = 0; r < queries; r = end) {
        end = std::min(r + rows, queries);
        if (causal) {  // rows that attend to fewer keys: add rows, so that all blocks have about the same size
          const auto size = [&](std::int64_t to) {
            return batches * key_heads * group * (to - r) * std::min(to, keys);
          };
          while (end < queries && end - r < 512 && size(end + 1) <= most) ++end;
        }
        use(Block{b, std::min(b + batches, batch), r, end, causal ? std::min(end, keys) : keys});
      }
    }
  }
  /// Returns a view of a block of an array (batch, heads, queries, n): (batches, key heads, group, rows, n).
  Array part(const Array& a, const Block& at) const {
    return a.slice(0, at.batch_begin, at.batch_end)
        .slice(2, at.begin, at.end)
        .reshape({at.batches(), key_heads, group, at.rows(), a.shape(3)});
  }
  /// Returns the same block as a batch of matrices.
  Array rows_of(const Array& a, const Block& at) const {
    return part(a, at).reshape({at.batches(), key_heads, group * at.rows(), a.shape(3)});
  }
  Array grouped(const Array& a, const Block& at) const {
    return a.reshape({at.batches(), key_heads, group, at.rows(), a.shape(-1)});
  }
  /// Returns the keys or values to which a block attends.
  Array seen(const Array& a, const Block& at) const {
    return a.slice(0, at.batch_begin, at.batch_end).slice(2, 0, at.keys);
  }
  /// Computes the scores with scale and mask, but without the causal mask.
  Array scores(const Array& scaled_q, const Array& k, const Block& at) const {
    Array s = matmul(scaled_q, seen(k, at).permute({0, 1, 3, 2}));
    if (!mask) return s;
    const Array m = mask->slice(0, at.batch_begin, at.batch_end).slice(3, at.begin, at.end).slice(4, 0, at.keys);
    const Shape shape = s.shape();
    s = grouped(std::move(s), at);
    s = m.dtype() == DType::boolean ? where(m, std::move(s), -std::numeric_limits<double>::infinity())
                                    : std::move(s) + m.astype(dtype);
    return s.eval().reshape(shape);
  }
  Array scaled(const Array& q, const Block& at) const { return rows_of(q, at).astype(dtype) * scale; }
};

/// Softmax of each row in place. Elements after a causal query become 0. Stores the logarithm of each row's sum of
/// exponentials in `sums`.
void normalise(const Array& scores, const Array& sums, const Attention& a, const Attention::Block& at) {
  static auto& family = *new KernelFamily<ScoresSpec>(ops::trace_scores);
  const std::uint32_t threads = ops::row_threads(ops::tiles_of(scores.device()), at.keys);
  family({scores.dtype(), threads, a.causal})
      .launch({static_cast<std::uint64_t>(scores.size() / at.keys), 1, 1},
              {scores.view_for_writing(), sums.view_for_writing(), LaunchArgument::index(at.keys),
               LaunchArgument::index(at.rows()), LaunchArgument::index(at.begin)});
}

/// Computes the attention with matrix units. Returns false if the device or the operands do not fit them.
bool by_tiles(const Attention& a, const Array& q, const Array& k, const Array& v, const Array& out, const Array& sums) {
  if (a.mask || q.shape(3) != v.shape(3)) return false;
  auto spec = ops::choose_attention_tile(ops::tiles_of(q.device()), q.dtype(), q.dtype(), q.shape(3), a.queries);
  if (!spec) return false;
  spec->out = q.dtype(), spec->causal = a.causal, spec->logs = true;
  ops::launch_attention_tile(*spec, ops::attention_rows(q), ops::attention_rows(k), ops::attention_rows(v), out,
                             {.scale = static_cast<float>(a.scale)}, &sums);
  return true;
}

/// Computes the gradients with matrix units. `along` is as in `backward`. Returns false if the device or the operands
/// do not fit them.
bool gradients_by_tiles(Backward& b, const Attention& a, const Array& sums, const Array& along) {
  const Array &g = b.adjoint(), q = b.operand(0), k = b.operand(1), v = b.operand(2);
  const auto choose = [&](bool keys) {
    return ops::choose_attention_gradient(ops::tiles_of(q.device()), q.dtype(), q.shape(3), a.queries, keys);
  };
  auto of_queries = choose(false), of_keys = choose(true);
  if (!of_queries || !of_keys || a.mask || q.shape(3) != v.shape(3) || g.dtype() != q.dtype()) return false;
  of_queries->causal = of_keys->causal = a.causal;
  Array exponents;
  if (q.dtype() == DType::f16) {
    // Dot products of a row of g with values are at most its sum of magnitudes times the largest value of the key head.
    const Array largest = max(abs(v.astype(DType::f32)), {2, 3}, true).unsqueeze(2);
    const Array bounds =
        sum(abs(g.astype(DType::f32)), {-1}, true).reshape({a.batch, a.key_heads, a.group, a.queries, 1}) * largest;
    exponents = where(isfinite(bounds), maximum(floor(log2(bounds)), -60) + 2, 0).eval();
  }
  const ops::AttentionGradientOperands operands{ops::attention_rows(q),
                                                ops::attention_rows(k),
                                                ops::attention_rows(v),
                                                ops::attention_rows(g),
                                                sums,
                                                along,
                                                exponents};
  const auto scale = static_cast<float>(a.scale);
  const auto like = [](const Array& x) { return Array::empty(x.shape(), x.dtype(), x.device()); };
  b.add(0, [&] {
    Array dq = like(q);
    ops::launch_attention_gradient(*of_queries, operands, scale, {dq});
    return dq;
  });
  if (b.needs_adjoint(1) || b.needs_adjoint(2)) {
    const Array dk = like(k), dv = like(v);
    ops::launch_attention_gradient(*of_keys, operands, scale, {dk, dv});
    b.add(1, [&] { return dk; });
    b.add(2, [&] { return dv; });
  }
  return true;
}

void backward(Backward& b, const Attention& a, const Array& sums) {
  const Array &g = b.adjoint(), q = b.operand(0), k = b.operand(1), v = b.operand(2);
  if (a.mask) static_cast<void>(b.operand(3));  // checks that the mask was not modified
  for (const Array* x : {&g, &q, &k, &v})
    detail::check_no_history("scaled_dot_product_attention", *x, "but second derivatives are not supported",
                             "Write it with matmul and softmax if you need second derivatives");
  // The term that all attention weights of a row share: the dot product of the adjoint and the result (Dao et al.,
  // appendix B.2).
  const Array along = sum(g.astype(a.dtype) * b.result().astype(a.dtype), {-1}, true).eval();
  if (gradients_by_tiles(b, a, sums, along)) return;
  const Device device = q.device();
  const auto zeros = [&](const Array& like) { return Array::zeros(like.shape(), a.dtype, device); };
  Array dq = b.needs_adjoint(0) ? Array::empty(q.shape(), q.dtype(), device) : Array();
  Array dk = b.needs_adjoint(1) ? zeros(k) : Array(), dv = b.needs_adjoint(2) ? zeros(v) : Array();
  const Array places = Array::arange(std::max(a.queries, a.keys), 0, 1, DType::i32, device);
  a.for_each_block(device, [&](const Attention::Block& at) {
    const Array rows = a.scaled(q, at).eval(), adjoint = a.rows_of(g, at).astype(a.dtype).as_contiguous();
    Array to_weights = a.grouped(matmul(adjoint, a.seen(v, at).permute({0, 1, 3, 2})), at);
    Array weights = exp(a.grouped(a.scores(rows, k, at), at) - a.part(sums, at));
    if (a.causal) {
      const Array visible = places.slice(0, at.begin, at.end).unsqueeze(1) >= places.slice(0, 0, at.keys);
      weights = where(visible, std::move(weights), 0);
    }
    Array to_scores = weights * (std::move(to_weights) - a.part(along, at));
    eval({weights, to_scores});
    const Shape matrices = {at.batches(), a.key_heads, a.group * at.rows(), at.keys};
    weights = weights.reshape(matrices), to_scores = to_scores.reshape(matrices);
    if (b.needs_adjoint(0)) a.part(dq, at).assign(a.grouped(matmul(to_scores, a.seen(k, at)) * a.scale, at));
    if (b.needs_adjoint(1)) a.seen(dk, at) += matmul(to_scores.permute({0, 1, 3, 2}), rows);
    if (b.needs_adjoint(2)) a.seen(dv, at) += matmul(weights.permute({0, 1, 3, 2}), adjoint);
  });
  b.add(0, [&] { return dq; });
  b.add(1, [&] { return dk; });
  b.add(2, [&] { return dv; });
}

}  // namespace

Array scaled_dot_product_attention(const Array& q, const Array& k, const Array& v, const AttentionOptions& options) {
  const char* const name = "scaled_dot_product_attention";
  if (options.mask) detail::check_no_rule(name, *options.mask);
  detail::RuledOperation operation(name, q, k, v, options.mask);
  const auto wrong = [&](const std::string& what) {
    fail<ShapeError>({.operation = name,
                      .with = {{"q", to_string(q.shape())},
                               {"k", to_string(k.shape())},
                               {"v", to_string(v.shape())},
                               {"mask", options.mask ? to_string(options.mask->shape()) : "none"}},
                      .wrong = what});
  };
  if (q.rank() != 4 || k.rank() != 4 || v.rank() != 4) wrong("q, k and v are not (batch, heads, tokens, size)");
  if (k.shape(0) != q.shape(0) || v.shape(0) != q.shape(0)) wrong("the batches differ");
  if (k.shape(1) != v.shape(1) || k.shape(2) != v.shape(2)) wrong("k and v have different heads or tokens");
  if (k.shape(3) != q.shape(3)) wrong("the sizes of q and k differ");
  if (k.shape(1) == 0 || q.shape(1) % k.shape(1) != 0) wrong("the heads of q are not a multiple of those of k");
  if (q.dtype() != k.dtype() || q.dtype() != v.dtype() || !is_float(q.dtype()))
    fail<DtypeError>({.operation = name,
                      .with = {{"q", std::string(dtype_name(q.dtype()))},
                               {"k", std::string(dtype_name(k.dtype()))},
                               {"v", std::string(dtype_name(v.dtype()))}},
                      .wrong = "q, k and v must have the same float dtype",
                      .remedy = "Use astype"});
  for (const Array* x : {&k, &v, options.mask ? &*options.mask : &q})
    if (x->device() != q.device())
      fail<DeviceError>({.operation = name,
                         .with = {{"q on", to_string(q.device())}, {"another on", to_string(x->device())}},
                         .wrong = "the operands are on different devices",
                         .remedy = "Move them with to(...)"});
  const std::int64_t group = q.shape(1) / k.shape(1);
  Attention a{q.shape(0), k.shape(1), group, q.shape(2), k.shape(2), wide(q.dtype()), options.causal, 0, {}};
  a.scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(std::max<std::int64_t>(q.shape(3), 1))));
  if (options.mask) {
    Array m = *options.mask;
    if (m.dtype() != DType::boolean && !is_float(m.dtype()))
      fail<DtypeError>({.operation = name,
                        .with = {{"mask", std::string(dtype_name(m.dtype()))}},
                        .wrong = "the mask must have dtype bool or a float dtype"});
    bool fits = m.rank() <= 4;
    while (fits && m.rank() < 4) m = m.unsqueeze(0);
    const Shape full = {a.batch, q.shape(1), a.queries, a.keys};
    for (std::size_t d = 0; fits && d < 4; ++d) fits = m.shape()[d] == 1 || m.shape()[d] == full[d];
    if (!fits) wrong("the mask does not broadcast to (batch, heads, queries, keys)");
    m = m.shape(1) == 1 ? m.unsqueeze(2) : m.reshape({m.shape(0), a.key_heads, group, m.shape(2), m.shape(3)});
    a.mask = m.broadcast_to({a.batch, a.key_heads, group, a.queries, a.keys});
  }
  const auto attributes = [&] { return Attributes{{"causal", a.causal}, {"scale", a.scale}}; };
  const Shape shape = {q.shape(0), q.shape(1), q.shape(2), v.shape(3)};
  const bool empty = element_count(shape) == 0 || a.keys == 0 || q.shape(3) == 0;
  const Array sums = Array::empty({a.batch, q.shape(1), a.queries, 1}, a.dtype, q.device());
  Array out = empty ? Array::zeros(shape, q.dtype(), q.device()) : Array::empty(shape, q.dtype(), q.device());
  if (empty) {
    return operation.finish(std::move(out), attributes, [] {
      return Rule{[](Backward& b) {
        for (std::size_t i = 0; i < 3; ++i) b.add(i, [&] { return Array::zeros(b.shape(i), b.dtype(i), b.device(i)); });
      }};
    });
  }
  const bool done = by_tiles(a, q, k, v, out, sums);
  if (!done)
    a.for_each_block(q.device(), [&](const Attention::Block& at) {
      const Array weights = a.scores(a.scaled(q, at), k, at);
      const Array block_sums = Array::empty({at.batches(), a.key_heads, group, at.rows(), 1}, a.dtype, q.device());
      normalise(weights, block_sums, a, at);
      a.part(sums, at).assign(block_sums);
      a.part(out, at).assign(a.grouped(matmul(weights, a.seen(v, at)), at));
    });
  const auto rule = [&] {
    return Rule{.backward = [a, sums](Backward& b) { backward(b, a, sums); },
                .keeps = operand_bits(0, 1, 2, 3),
                .keeps_result = true};
  };
  return operation.finish(std::move(out), attributes, rule);
}

}  // namespace tessera
