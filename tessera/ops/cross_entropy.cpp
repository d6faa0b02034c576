// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/cross_entropy.h"

#include <numeric>

#include "tessera/array/functions.h"
#include "tessera/device/launch/kernel.h"
#include "tessera/device/launch/kernel_family.h"
#include "tessera/ir/semantics.h"
#include "tessera/ops/row_loop.h"
#include "tessera/ops/transformer.h"

namespace tessera::ops {

namespace {

int classes_axis(const Shape& logits) { return logits.size() == 1 ? 0 : 1; }

/// The rows of one of the two kernels. They can be contiguous even if the axis of the classes is not the last one.
struct Rows {
  Rows(const Array& logits, const Array& targets, const std::optional<Array>& weight, double smoothing)
      : targets(targets.as_contiguous()), smoothing(smoothing) {
    const int axis = classes_axis(logits.shape());
    order.resize(logits.shape().size());
    std::iota(order.begin(), order.end(), 0);
    order.erase(order.begin() + axis), order.push_back(axis);
    x = logits.permute(order);
    contiguous = x.contiguous();
    if (!contiguous) {
      x = logits.as_contiguous();
      if (const Array classes_last = x.permute(order); classes_last.contiguous()) x = classes_last, contiguous = true;
    }
    columns = logits.shape(axis);
    if (weight) this->weight = weight->as_contiguous();
    if (weight && smoothing > 0) total_weight = sum(*this->weight).eval();
  }

  DType dtype() const { return row_dtype(x.dtype()); }
  void launch(KernelFamily<CrossEntropySpec>& family, DType out, std::initializer_list<Array> others) const {
    const Tiles tiles = tiles_of(x.device());
    const CrossEntropySpec spec{
        contiguous ? choose_row_read_once(tiles, x.dtype(), out, columns) : choose_strided_row(tiles, x.dtype(), out),
        weight.has_value(), smoothing > 0};
    std::vector<LaunchArgument> arguments = {x.view(), targets.view()};
    if (weight) arguments.emplace_back(weight->view());
    if (total_weight) arguments.emplace_back(total_weight->view());
    arguments.push_back(LaunchArgument::index(columns));
    const auto scalar = [&](double v) { return LaunchArgument::scalar(dtype(), ir::to_bits(dtype(), v)); };
    if (smoothing > 0) {
      arguments.push_back(scalar(1 - smoothing));
      arguments.push_back(scalar(smoothing / static_cast<double>(columns)));
    }
    for (const Array& a : others) arguments.emplace_back(a.view());
    const auto outer = static_cast<std::uint64_t>(contiguous ? targets.size() : x.shape(0));
    const auto inner = static_cast<std::uint64_t>(targets.size()) / outer;
    const std::array<std::uint64_t, 3> shape = {contiguous ? outer : inner, contiguous ? 1 : outer, 1};
    family(spec).launch(shape, arguments);
  }

  Array x, targets;
  std::optional<Array> weight, total_weight;
  double smoothing;
  std::int64_t columns = 0;
  bool contiguous = false;
  std::vector<int> order;  ///< of the axes of the logits if the classes are last
};

Array gradient_by_kernel(const Backward& b, const Array& log_sums, bool weighted, double smoothing) {
  const Rows rows(b.operand(0), b.operand(1), weighted ? std::optional(b.operand(2)) : std::nullopt, smoothing);
  const DType t = b.adjoint_dtype(0);
  const Array out = Array::empty(rows.x.shape(), t, rows.x.device());
  static auto& family = *new KernelFamily<CrossEntropySpec>(trace_cross_entropy_backward);
  rows.launch(family, t, {log_sums, b.adjoint().astype(rows.dtype()).as_contiguous(), out});
  if (!rows.contiguous) return out;
  std::vector<int> inverse(rows.order.size());
  for (std::size_t i = 0; i < inverse.size(); ++i)
    inverse[static_cast<std::size_t>(rows.order[i])] = static_cast<int>(i);
  return out.permute(inverse);
}

void backward(Backward& b, const Array& log_sums, bool weighted, double smoothing) {
  const bool again =
      b.operand(0).has_history() || b.adjoint().has_history() || (weighted && b.operand(2).has_history());
  if (!again) b.add(0, [&] { return gradient_by_kernel(b, log_sums, weighted, smoothing); });
  if (!again && !(weighted && b.needs_adjoint(2))) return;
  // The loss is the sum of share[j] weight[j] (log_sum - x[j]).
  const Array x = b.operand(0).astype(row_dtype(b.dtype(0)));
  const int axis = classes_axis(x.shape());
  const std::int64_t columns = x.shape(axis);
  Shape column(x.shape().size(), 1);
  column[static_cast<std::size_t>(axis)] = columns;
  const Array classes = Array::arange(columns, 0, 1, DType::i32, x.device()).reshape(column);
  const double each = smoothing / static_cast<double>(columns);
  const Array share = where(classes == b.operand(1).unsqueeze(axis),
                            Array::full({1}, 1 - smoothing + each, x.dtype(), x.device()), each);
  const Array g = b.adjoint().astype(x.dtype()).unsqueeze(axis);
  if (again)
    b.add(0, [&] {
      const Array factor = weighted ? share * b.operand(2) : share;
      return g * (softmax(x, axis) * sum(factor, {axis}, true) - factor);
    });
  if (weighted) b.add(2, [&] { return g * share * (logsumexp(x, {axis}, true) - x); });
}

}  // namespace

Array cross_entropy_losses(const Array& logits, const Array& targets, const std::optional<Array>& weight,
                           double smoothing) {
  logits.eval();  // so that the gradient reads the same memory
  detail::RuledOperation operation("cross_entropy", logits, targets, weight);
  for (const Array* a : {&targets, weight ? &*weight : &targets})
    if (a->device() != logits.device())
      fail<DeviceError>({.operation = "cross_entropy",
                         .with = {{"logits on", to_string(logits.device())}, {"another on", to_string(a->device())}},
                         .wrong = "the operands are on different devices",
                         .remedy = "Move them with to(...)"});
  const DType t = row_dtype(logits.dtype());
  const bool empty = logits.size() == 0;
  const Array losses = empty ? Array::zeros(targets.shape(), t, logits.device())
                             : Array::empty(targets.shape(), t, logits.device()),
              log_sums = Array::empty(targets.shape(), t, logits.device());
  if (!empty) {
    static auto& family = *new KernelFamily<CrossEntropySpec>(trace_cross_entropy);
    Rows(logits, targets, weight, smoothing).launch(family, t, {losses, log_sums});
  }
  const auto attributes = [&] { return Attributes{{"label_smoothing", smoothing}}; };
  return operation.finish(losses, attributes, [&] {
    return Rule{.backward =
                    [log_sums, weighted = weight.has_value(), smoothing, empty](Backward& b) {
                      if (!empty) return backward(b, log_sums, weighted, smoothing);
                      for (const std::size_t i : {0, 2})
                        b.add(i, [&] { return Array::zeros(b.shape(i), b.dtype(i), b.device(i)); });
                    },
                .keeps = weight ? operand_bits(0, 1, 2) : operand_bits(0, 1)};
  });
}

}  // namespace tessera::ops
