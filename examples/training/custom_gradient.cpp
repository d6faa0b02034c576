// SPDX-License-Identifier: Apache-2.0
// How do I define my own gradient, for example of my own kernel?
// with_gradient() combines a forward and a backward kernel into an operation. custom() uses functions of arrays
// instead.
#include <tessera/grad/custom.h>
#include <tessera/grad/grad.h>
#include <tessera/kernel/kernel.h>

#include <cstdio>

using namespace tessera;

const auto square_forward = kernel("square", [](Buffer<const float> x, Buffer<float> y) {
  auto i = global_id();
  y[i] = x[i] * x[i];
});
/// Reads the input, the result and the gradient of the result. Writes the gradient of the input.
const auto square_backward =
    kernel("square_backward", [](Buffer<const float> x, Buffer<const float>, Buffer<const float> gy, Buffer<float> gx) {
      auto i = global_id();
      gx[i] = 2 * x[i] * gy[i];
    });

int main() {
  const auto square = with_gradient(square_forward, square_backward);
  const Array x = Array::from({1.f, 2.f, 3.f});
  const Array slope = grad([&](const Array& v) { return sum(square({3}, {3}, v) * 10.0); })(x);
  std::printf("%s\n", to_string(slope).c_str());

  // A step function that uses the gradient of the identity (a straight-through estimator).
  const auto step = custom(
      "step", [](const Array& v) { return (v > 0).astype(DType::f32); },
      [](const Array& adjoint, const Array&, const Array&) { return adjoint; });
  const Array through = grad([&](const Array& v) { return sum(step(v) * v); })(x);
  std::printf("%s\n", to_string(through).c_str());
  return slope.to_vector<float>() == std::vector<float>{20, 40, 60} &&
                 through.to_vector<float>() == std::vector<float>{2, 3, 4}
             ? 0
             : 1;
}

// Output:
// array([20, 40, 60], f32, ...)
// array([2, 3, 4], f32, ...)
