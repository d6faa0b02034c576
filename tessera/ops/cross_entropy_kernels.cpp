// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <optional>
#include <string>

#include "tessera/ops/cross_entropy.h"
#include "tessera/ops/row_loop.h"

namespace tessera::ops {

namespace {

std::string name_of(const char* name, const RowSpec& row) {
  return std::string(name) + (row.strided ? "_strided" : "");
}
ir::KernelKind kind_of(const RowSpec& row) { return row.threads ? ir::KernelKind::block : ir::KernelKind::map; }

/// The parameters that both kernels have, and the target of the row.
struct Row {
  explicit Row(const CrossEntropySpec& spec)
      : t(row_dtype(spec.row.x)),
        x(ir::buffer_param("x", spec.row.x, ir::Access::read)),
        targets(ir::buffer_param("targets", DType::i32, ir::Access::read)) {
    if (spec.weighted) weight = ir::buffer_param("weight", t, ir::Access::read);
    if (spec.weighted && spec.smoothed) total_weight = ir::buffer_param("total_weight", t, ir::Access::read);
    columns = ir::scalar_param("columns", DType::index);
    if (spec.smoothed) of_target = ir::scalar_param("of_target", t), of_each = ir::scalar_param("of_each", t);
  }

  const DType t;
  const ir::BufferRef x, targets;
  ir::BufferRef weight, total_weight;
  ir::Value columns, of_target, of_each;
};

/// The factor of the loss of the target's class.
ir::Value target_factor(const CrossEntropySpec& spec, const Row& row, ir::Value target, ir::Value is_class) {
  ir::Value factor = spec.smoothed ? row.of_target : ir::literal(row.t, 1);
  return spec.weighted ? factor * load_at(row.weight, target, is_class) : factor;
}
/// The sum of the weights of all classes.
ir::Value total_weight(const CrossEntropySpec& spec, const Row& row) {
  return spec.weighted ? row.total_weight.load(0) : ir::cast(row.t, row.columns);
}

}  // namespace

ir::Function trace_cross_entropy(const CrossEntropySpec& spec) {
  ir::Builder builder(name_of("cross_entropy", spec.row), kind_of(spec.row), {std::max(1u, spec.row.threads), 1, 1});
  ir::Builder::Scope scope(builder);
  const Row row(spec);
  const auto losses = ir::buffer_param("losses", row.t, ir::Access::read_write);
  const auto log_sums = ir::buffer_param("log_sums", row.t, ir::Access::read_write);
  const RowLoop loop(spec.row, row.columns);
  const ir::Value zero = ir::literal(row.t, 0), target = ir::cast(DType::index, row.targets.load(loop.row()));
  const ir::Value is_class = target >= 0 && target < row.columns;
  const ir::Value at_target = load_at(row.x, loop.offset(target), is_class);
  // Differences from the target's logit are added up, so that logits that are all large do not cancel.
  const ir::Value origin = ir::select(ir::is_finite(at_target), at_target, zero);
  std::optional<ir::Variable> spread;
  if (spec.smoothed) spread.emplace(row.t, 0);
  const RowValues values(loop, row.x, -std::numeric_limits<double>::infinity());
  const auto add_spread = [&](const RowChunk& chunk, const std::vector<ir::Value>& xs) {
    const std::vector<ir::Value> weights = spec.weighted ? load_columns(row.weight, chunk) : std::vector<ir::Value>();
    ir::Value added = spread->get();
    for (std::size_t i = 0; i < chunk.size(); ++i) {
      ir::Value distance = xs[i] - origin;
      if (chunk[i].exists.valid()) distance = ir::select(chunk[i].exists, distance, zero);
      added = spec.weighted ? ir::fma(distance, weights[i], added) : added + distance;
    }
    spread->set(added);
  };
  const RowExponentials exponentials =
      spec.smoothed ? sum_exponentials(loop, values, add_spread) : sum_exponentials(loop, values);
  const ir::Value shift = exponentials.shift, log_sum = ir::log(exponentials.sum);
  ir::Value loss = target_factor(spec, row, target, is_class) * (log_sum + (shift - at_target));
  if (spec.smoothed)
    loss = loss + row.of_each * ((log_sum + (shift - origin)) * total_weight(spec, row) - loop.sum(spread->get()));
  loop.store_once(losses, loss);
  loop.store_once(log_sums, shift + log_sum);
  return builder.finish();
}

ir::Function trace_cross_entropy_backward(const CrossEntropySpec& spec) {
  ir::Builder builder(name_of("cross_entropy_backward", spec.row), kind_of(spec.row),
                      {std::max(1u, spec.row.threads), 1, 1});
  ir::Builder::Scope scope(builder);
  const Row row(spec);
  const auto log_sums = ir::buffer_param("log_sums", row.t, ir::Access::read);
  const auto adjoints = ir::buffer_param("adjoints", row.t, ir::Access::read);
  const auto out = ir::buffer_param("out", spec.row.weight, ir::Access::read_write);
  const RowLoop loop(spec.row, row.columns);
  const ir::Value target = ir::cast(DType::index, row.targets.load(loop.row()));
  const ir::Value log_sum = log_sums.load(loop.row()), adjoint = adjoints.load(loop.row());
  const ir::Value at_target = adjoint * target_factor(spec, row, target, target >= 0 && target < row.columns);
  const ir::Value at_each = spec.smoothed ? adjoint * row.of_each : ir::Value();
  const ir::Value factor = spec.smoothed ? at_target + at_each * total_weight(spec, row) : at_target;
  const RowValues values(loop, row.x);
  loop.for_each([&](const RowChunk& chunk) {
    std::vector<ir::Value> results = values(chunk), weights;
    if (spec.smoothed && spec.weighted) weights = load_columns(row.weight, chunk);
    for (std::size_t i = 0; i < chunk.size(); ++i) {
      ir::Value gradient = ir::exp(results[i] - log_sum) * factor;
      if (spec.smoothed) gradient = gradient - (spec.weighted ? at_each * weights[i] : at_each);
      results[i] = ir::select(chunk[i].column == target, gradient - at_target, gradient);
    }
    loop.store(out, chunk, results);
  });
  return builder.finish();
}

}  // namespace tessera::ops
