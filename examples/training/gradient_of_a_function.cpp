// SPDX-License-Identifier: Apache-2.0
// How do I compute the gradient of a function?
// grad(f) returns a function that computes the derivative of f. f is ordinary C++ over arrays and returns one element.
#include <tessera/array/array.h>
#include <tessera/grad/grad.h>

#include <cstdio>

using namespace tessera;

int main() {
  const auto f = [](const Array& x) {
    Array y = sum(x * x * x);
    for (int i = 0; i < 2; ++i) y = y * 2.0;  // loops and branches work as usual
    return y;
  };
  const Array x = Array::from({1.f, 2.f, 3.f});
  const auto [value, gradient] = value_and_grad(f)(x);
  std::printf("f = %.0f, gradient %s\n", static_cast<double>(value.item<float>()), to_string(gradient).c_str());

  // Gradients with respect to several arguments, and a second derivative.
  const auto product = [](const Array& a, const Array& b) { return sum(a * b); };
  const auto [by_a, by_b] = grad(product, wrt<0, 1>)(Array::full({}, 2), Array::full({}, 5));
  const Array second = grad(grad([](const Array& t) { return t * t * t; }))(Array::full({}, 2));
  std::printf("d/da = %.0f, d/db = %.0f, second derivative %.0f\n", static_cast<double>(by_a.item<float>()),
              static_cast<double>(by_b.item<float>()), static_cast<double>(second.item<float>()));
  return gradient.to_vector<float>() == std::vector<float>{12, 48, 108} && second.item<float>() == 12 ? 0 : 1;
}

// Output:
// f = 144, gradient array([ 12,  48, 108], f32, ...)
// d/da = 5, d/db = 2, second derivative 12
