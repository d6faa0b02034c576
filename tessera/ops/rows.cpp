// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "tessera/device/launch/kernel.h"
#include "tessera/device/launch/kernel_family.h"
#include "tessera/ir/semantics.h"
#include "tessera/ops/row_kernels.h"

namespace tessera {

using ops::RowSpec;

namespace {

void check_float(const char* operation, const Array& a) {
  if (!is_float(a.dtype()))
    fail<DtypeError>({.operation = operation,
                      .with = {{"dtype", std::string(dtype_name(a.dtype()))}},
                      .wrong = "this operation requires a float dtype",
                      .remedy = "Use astype"});
}

// These backward passes take a single kernel. They are used for gradients that are not differentiated again.
Array softmax_backward(const Backward& b) {
  const Array y = b.result().as_contiguous(), g = b.adjoint().as_contiguous();
  Array out = Array::empty(y.shape(), y.dtype(), y.device());
  if (out.size() == 0) return out;
  const std::int64_t columns = y.shape(-1);
  static auto& family = *new KernelFamily<RowSpec>(ops::trace_softmax_backward);
  family(ops::choose_row(ops::tiles_of(y.device()), y.dtype(), y.dtype(), columns, 2))
      .launch({static_cast<std::uint64_t>(y.size() / columns), 1, 1},
              {y.view(), g.view(), out.view(), LaunchArgument::index(columns)});
  return out;
}
Array rms_norm_backward(const Backward& b, float epsilon) {
  const Array x = b.operand(0).as_contiguous(), weight = b.operand(1).as_contiguous(), g = b.adjoint().as_contiguous();
  Array out = Array::empty(x.shape(), x.dtype(), x.device());
  if (out.size() == 0) return out;
  const std::int64_t columns = x.shape(-1);
  const DType t = x.dtype() == DType::f64 ? DType::f64 : DType::f32;
  static auto& family = *new KernelFamily<RowSpec>(ops::trace_rms_norm_backward);
  family(ops::choose_row(ops::tiles_of(x.device()), x.dtype(), weight.dtype(), columns, 2))
      .launch({static_cast<std::uint64_t>(x.size() / columns), 1, 1},
              {x.view(), g.view(), weight.view(), out.view(), LaunchArgument::index(columns),
               LaunchArgument::scalar(t, ir::to_bits(t, static_cast<double>(epsilon)))});
  return out;
}

}  // namespace

Array rms_norm(const Array& x, const Array& weight, float epsilon) {
  detail::RuledOperation operation("rms_norm", x, weight);
  const auto rule = [&] {
    return Rule{.backward =
                    [epsilon](Backward& b) {
                      const DType t = b.dtype(0) == DType::f64 ? DType::f64 : DType::f32;
                      const bool again = b.operand(0).has_history() || b.operand(1).has_history();
                      const bool by_kernel = !again && !b.adjoint().has_history();
                      if (by_kernel) b.add(0, [&] { return rms_norm_backward(b, epsilon); });
                      if (by_kernel && !b.needs_adjoint(1)) return;
                      const Array x = b.operand(0).astype(t), w = b.operand(1).astype(t), g = b.adjoint().astype(t);
                      const Array r = rsqrt(mean(x * x, {-1}, true) + epsilon);
                      if (!by_kernel)
                        b.add(0, [&] {
                          const Array along = r * r * mean(g * w * x, {-1}, true);
                          return r * (g * w - x * along);
                        });
                      b.add(1, [&] { return g * x * r; });
                    },
                .keeps = operand_bits(0, 1)};
  };
  const auto attributes = [&] { return Attributes{{"epsilon", static_cast<double>(epsilon)}}; };
  check_float("rms_norm", x), check_float("rms_norm", weight);
  if (x.rank() < 1 || weight.rank() != 1 || weight.shape(0) != x.shape(-1))
    fail<ShapeError>({.operation = "rms_norm",
                      .with = {{"x", to_string(x.shape())}, {"weight", to_string(weight.shape())}},
                      .wrong = "the weight does not have one element for each element of x's last axis"});
  if (x.device() != weight.device())
    fail<DeviceError>({.operation = "rms_norm",
                       .with = {{"x on", to_string(x.device())}, {"weight on", to_string(weight.device())}},
                       .wrong = "the operands are on different devices",
                       .remedy = "Move one with to(...)"});
  Array out = Array::empty(x.shape(), x.dtype(), x.device());
  if (x.size() == 0) return operation.finish(std::move(out), attributes, rule);
  const Array rows = x.as_contiguous(), scale = weight.as_contiguous();
  const std::int64_t columns = x.shape(-1);
  const DType t = x.dtype() == DType::f64 ? DType::f64 : DType::f32;
  static auto& family = *new KernelFamily<RowSpec>(ops::trace_rms_norm);
  family(ops::choose_row(ops::tiles_of(x.device()), x.dtype(), weight.dtype(), columns, 2))
      .launch({static_cast<std::uint64_t>(x.size() / columns), 1, 1},
              {rows.view(), scale.view(), out.view(), LaunchArgument::index(columns),
               LaunchArgument::scalar(t, ir::to_bits(t, static_cast<double>(epsilon)))});
  return operation.finish(std::move(out), attributes, rule);
}

Array softmax(const Array& x, int axis) {
  detail::RuledOperation operation("softmax", x);
  check_float("softmax", x);
  const auto d = static_cast<std::size_t>(normalise_axis("softmax", axis, x.shape().size()));
  const auto attributes = [&] { return Attributes{{"axis", static_cast<std::int64_t>(d)}}; };
  const auto rule = [&] {
    return Rule{.backward =
                    [axis = static_cast<int>(d)](Backward& b) {
                      b.add(0, [&] {
                        const bool again = b.result().has_history() || b.adjoint().has_history();
                        if (!again && axis + 1 == static_cast<int>(b.shape(0).size())) return softmax_backward(b);
                        const DType t = b.dtype(0) == DType::f64 ? DType::f64 : DType::f32;
                        const Array s = b.result().astype(t), g = b.adjoint().astype(t);
                        return s * (g - sum(g * s, {axis}, true));
                      });
                    },
                .keeps_result = true};
  };
  Array out = Array::empty(x.shape(), x.dtype(), x.device());
  if (x.size() == 0) return operation.finish(std::move(out), attributes, rule);
  const Array rows = x.as_contiguous();
  const std::int64_t count = x.shape()[d];
  std::int64_t inner = 1;
  for (std::size_t i = d + 1; i < x.shape().size(); ++i) inner *= x.shape()[i];
  const auto outer = static_cast<std::uint64_t>(x.size() / (count * inner));
  static auto& family = *new KernelFamily<RowSpec>(ops::trace_softmax);
  const bool block = inner == 1;
  const ops::Tiles tiles = ops::tiles_of(x.device());
  const Kernel& kernel = family(block ? ops::choose_row(tiles, x.dtype(), x.dtype(), count)
                                      : ops::choose_strided_row(tiles, x.dtype(), x.dtype()));
  const std::array<std::uint64_t, 3> shape = {block ? outer : static_cast<std::uint64_t>(inner), block ? 1 : outer, 1};
  kernel.launch(shape, {rows.view(), out.view(), LaunchArgument::index(count)});
  return operation.finish(std::move(out), attributes, rule);
}

Array silu_gate(Array gate, Array up) {
  const detail::Operation operation("silu_gate", gate, up);
  return operation.finish(silu(std::move(gate)) * std::move(up));
}
Array gelu_gate(Array gate, Array up) {
  const detail::Operation operation("gelu_gate", gate, up);
  const Array inner = gate * (gate * gate * 0.044715 + 1) * 0.7978845608028654;  // sqrt(2 / pi)
  return operation.finish(std::move(gate) * (tanh(inner) + 1) * 0.5 * std::move(up));
}

}  // namespace tessera
