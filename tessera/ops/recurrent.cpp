// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/recurrent.h"

#include <utility>

#include "tessera/array/operation.h"
#include "tessera/device/launch/kernel_family.h"
#include "tessera/ops/recurrent_kernels.h"

namespace tessera::ops {

namespace {

using Named = std::initializer_list<std::pair<const char*, const Array*>>;

/// Checks dtypes, devices and layouts. The last of `operands` are the ranges.
void check_recurrent(const char* operation, bool shapes_match, Named operands) {
  const Array& first = *operands.begin()->second;
  for (const auto& [name, a] : operands) {
    const DType wanted = std::string_view(name) == "ranges" ? DType::i32 : DType::f32;
    if (a->dtype() != wanted)
      fail<DtypeError>({.operation = operation,
                        .with = {{name, std::string(dtype_name(a->dtype()))}},
                        .wrong = "the dtype must be " + std::string(dtype_name(wanted))});
    if (a->device() != first.device())
      fail<DeviceError>({.operation = operation,
                         .with = {{operands.begin()->first, to_string(first.device())}, {name, to_string(a->device())}},
                         .wrong = "the operands are on different devices",
                         .remedy = "Move them with to(...)"});
    shapes_match = shapes_match && (a->contiguous() || std::string_view(name) != "states");
  }
  if (shapes_match) return;
  std::string shapes;
  for (const auto& [name, a] : operands)
    shapes += std::string(shapes.empty() ? "" : ", ") + name + " " + to_string(a->shape());
  fail<ShapeError>({.operation = operation,
                    .with = {{"shapes", shapes}},
                    .wrong = "the shapes do not match, or the states are not contiguous"});
}

bool are_ranges(const Array& a) { return a.rank() == 2 && a.shape(1) == 4; }
std::uint64_t extent(std::int64_t n) { return static_cast<std::uint64_t>(n); }

}  // namespace

Array causal_convolution(const Array& x, const Array& taps, Array& states, const Array& ranges) {
  const detail::Operation operation("causal_convolution", states, x, taps, ranges);
  detail::check_no_rule("causal_convolution", x, taps, states);
  check_recurrent("causal_convolution",
                  x.rank() == 2 && taps.rank() == 2 && states.rank() == 3 && are_ranges(ranges) &&
                      taps.shape(0) == x.shape(1) && taps.shape(1) >= 2 && taps.shape(1) <= 16 &&
                      states.shape(1) == taps.shape(1) - 1 && states.shape(2) == x.shape(1),
                  {{"x", &x}, {"taps", &taps}, {"states", &states}, {"ranges", &ranges}});
  detail::check_write_target("causal_convolution", states);
  Array out = Array::empty(x.shape(), DType::f32, x.device());
  const Array rows = x.as_contiguous(), weights = taps.as_contiguous(), of = ranges.as_contiguous();
  static auto& family = *new KernelFamily<CausalConvolutionSpec>(trace_causal_convolution);
  if (out.size() > 0)
    family({static_cast<std::uint32_t>(taps.shape(1))})
        .launch({extent(x.shape(1)), extent(ranges.shape(0)), 1},
                {rows.view(), weights.view(), states.view_for_writing(), of.view(), out.view()});
  operation.finish_in_place(states);
  return out;
}

Array gated_delta_rule(const Array& q, const Array& k, const Array& v, const Array& decay, const Array& beta,
                       Array& states, const Array& ranges) {
  const detail::Operation operation("gated_delta_rule", states, q, k, v, decay, beta, ranges);
  detail::check_no_rule("gated_delta_rule", q, k, v, decay, beta, states);
  check_recurrent(
      "gated_delta_rule",
      q.rank() == 3 && k.shape() == q.shape() && v.rank() == 3 && states.rank() == 4 && are_ranges(ranges) &&
          v.shape(0) == q.shape(0) && decay.shape() == Shape{v.shape(0), v.shape(1)} && beta.shape() == decay.shape() &&
          q.shape(1) > 0 && v.shape(1) % q.shape(1) == 0 &&
          states.shape() == Shape{states.shape(0), v.shape(1), q.shape(2), v.shape(2)},
      {{"q", &q}, {"k", &k}, {"v", &v}, {"decay", &decay}, {"beta", &beta}, {"states", &states}, {"ranges", &ranges}});
  detail::check_write_target("gated_delta_rule", states);
  Array out = Array::empty(v.shape(), DType::f32, v.device());
  const Array queries = q.as_contiguous(), keys = k.as_contiguous(), values = v.as_contiguous(),
              factors = decay.as_contiguous(), rates = beta.as_contiguous(), of = ranges.as_contiguous();
  static auto& family = *new KernelFamily<GatedDeltaSpec>(trace_gated_delta_rule);
  if (out.size() > 0)
    family({static_cast<std::uint32_t>(q.shape(2))})
        .launch({extent(v.shape(2)), extent(v.shape(1)), extent(ranges.shape(0))},
                {queries.view(), keys.view(), values.view(), factors.view(), rates.view(), states.view_for_writing(),
                 of.view(), out.view(), LaunchArgument::index(q.shape(1))});
  operation.finish_in_place(states);
  return out;
}

}  // namespace tessera::ops
