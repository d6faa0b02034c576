// SPDX-License-Identifier: Apache-2.0
// Threads process the tokens of a sequence in order, and sums have a fixed order, so that results do not depend on how
// tokens are divided into steps.
#include "tessera/ops/recurrent_kernels.h"

#include <vector>

namespace tessera::ops {

namespace {

/// The tokens and slots of a sequence; see recurrent.h.
struct Range {
  ir::Value first, count, before, after, has_state;

  Range(const ir::BufferRef& ranges, ir::Value sequence) {
    const auto number = [&](int column) { return ranges.load(sequence * 4 + column); };
    const auto index = [](ir::Value v) { return ir::cast(DType::index, v); };
    first = index(number(0)), count = index(number(1)), after = index(number(3));
    has_state = number(2) >= 0;
    before = index(ir::max(number(2), 0));
  }
};

ir::BufferRef read_param(const char* name, DType dtype = DType::f32) {
  return ir::buffer_param(name, dtype, ir::Access::read);
}

}  // namespace

ir::Function trace_causal_convolution(const CausalConvolutionSpec& spec) {
  ir::Builder builder("causal_convolution", ir::KernelKind::map);
  ir::Builder::Scope scope(builder);
  const ir::BufferRef x = read_param("x"), taps = read_param("taps");
  const auto states = ir::buffer_param("states", DType::f32, ir::Access::read_write);
  const ir::BufferRef ranges = read_param("ranges", DType::i32);
  const auto out = ir::buffer_param("out", DType::f32, ir::Access::read_write);
  const ir::Value channel = ir::global_id(0), channels = ir::extent(0);
  const Range r(ranges, ir::global_id(1));
  const int kept = static_cast<int>(spec.taps) - 1;
  const auto state = [&](ir::Value slot, int i) { return (slot * kept + i) * channels + channel; };
  std::vector<ir::Variable> last;  // the last tokens, oldest first
  std::vector<ir::Value> weights;
  for (int i = 0; i < kept; ++i) last.emplace_back(DType::f32, states.load_if(r.has_state, state(r.before, i), 0.0f));
  for (int i = 0; i <= kept; ++i) weights.push_back(taps.load(channel * (kept + 1) + i));
  ir::for_(r.first, r.first + r.count, [&](ir::Value token) {
    const ir::Value at = token * channels + channel, now = x.load(at);
    ir::Value sum = ir::literal(DType::f32, 0);
    for (int i = 0; i < kept; ++i)
      sum = ir::fma(last[static_cast<std::size_t>(i)].get(), weights[static_cast<std::size_t>(i)], sum);
    out.store(at, ir::fma(now, weights.back(), sum));
    for (int i = 0; i < kept; ++i)
      last[static_cast<std::size_t>(i)].set(i + 1 < kept ? last[static_cast<std::size_t>(i) + 1].get() : now);
  });
  for (int i = 0; i < kept; ++i) states.store(state(r.after, i), last[static_cast<std::size_t>(i)].get());
  return builder.finish();
}

ir::Function trace_gated_delta_rule(const GatedDeltaSpec& spec) {
  ir::Builder builder("gated_delta_rule", ir::KernelKind::map);
  ir::Builder::Scope scope(builder);
  const ir::BufferRef q = read_param("q"), k = read_param("k"), v = read_param("v"), decays = read_param("decay"),
                      betas = read_param("beta");
  const auto states = ir::buffer_param("states", DType::f32, ir::Access::read_write);
  const ir::BufferRef ranges = read_param("ranges", DType::i32);
  const auto out = ir::buffer_param("out", DType::f32, ir::Access::read_write);
  const ir::Value key_heads = ir::scalar_param("key_heads", DType::index);
  const ir::Value column = ir::global_id(0), head = ir::global_id(1), columns = ir::extent(0), heads = ir::extent(1);
  const Range r(ranges, ir::global_id(2));
  const int rows = static_cast<int>(spec.key_size);
  const auto matrix = [&](ir::Value slot) { return (slot * heads + head) * (columns * rows) + column; };
  const ir::Value before = matrix(r.before), after = matrix(r.after);
  ir::for_(0, rows, [&](ir::Value i) {
    states.store(after + i * columns, states.load_if(r.has_state, before + i * columns, 0.0f));
  });
  ir::for_(r.first, r.first + r.count, [&](ir::Value token) {
    const ir::Value of_head = token * heads + head, key = (token * key_heads + head % key_heads) * rows;
    const ir::Value decay = decays.load(of_head), beta = betas.load(of_head);
    const ir::Variable seen(DType::f32, 0.0f), result(DType::f32, 0.0f);
    ir::for_(0, rows,
             [&](ir::Value i) { seen.set(ir::fma(states.load(after + i * columns), k.load(key + i), seen.get())); });
    const ir::Value change = beta * (v.load(of_head * columns + column) - decay * seen.get());
    ir::for_(0, rows, [&](ir::Value i) {
      const ir::Value now = ir::fma(k.load(key + i), change, decay * states.load(after + i * columns));
      states.store(after + i * columns, now);
      result.set(ir::fma(q.load(key + i), now, result.get()));
    });
    out.store(of_head * columns + column, result.get());
  });
  return builder.finish();
}

}  // namespace tessera::ops
