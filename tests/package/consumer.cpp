// SPDX-License-Identifier: Apache-2.0
// A user's program that uses the installed package: runs a kernel, arrays, a gradient, a layer and tasks, and catches
// an error thrown inside the library. Compiled with many warnings as errors, because headers of the package contain
// most of the code.
#include <tessera/tessera.h>

#include <cmath>
#include <iostream>

namespace {

using namespace tessera;

int failures = 0;
void check(bool right, const char* what) {
  if (right) return;
  std::cerr << "wrong: " << what << "\n";
  ++failures;
}

}  // namespace

int main() {
  check(dtype_from_name("bf16") == DType::bf16, "dtype_from_name");
  const auto twice = kernel("twice", [](Buffer<const float> x, Buffer<float> y) {
    auto i = global_id();
    y[i] = 2 * x[i];
  });
  const DeviceBuffer<float> x(std::vector<float>{1, 2, 3});
  DeviceBuffer<float> y(3);
  twice.launch({3}, x, y);
  check(y.to_vector() == std::vector<float>{2, 4, 6}, "a kernel");

  const Array a = Array::from(std::vector<float>{1, 2, 3, 4}, Shape{2, 2});
  check(std::abs(sum(exp(log(a)) * a).item<float>() - 30) < 1e-4f, "arrays");
  const auto [value, slope] = value_and_grad([](const Array& t) { return sum(t * t); })(a);
  check(std::abs(value.item<float>() - 30) < 1e-4f && slope.to_vector<float>() == std::vector<float>{2, 4, 6, 8},
        "a gradient");

  const auto layer = setup(Dense{.inputs = 2, .outputs = 3});
  check(layer(a).shape() == Shape{2, 3}, "a layer");

  Array target = Array::zeros({2, 2});
  {
    Region r;
    r.spawn([](const Array& from, Array& to) { to += from; }, in(a), inout(target));
    r.spawn([](Array& to) { to *= 2; }, inout(target));
    r.wait();
  }
  check(spawn([] { return 41; }).fetch() == 41 && target.to_vector<float>() == std::vector<float>{2, 4, 6, 8}, "tasks");

  try {
    fail<ShapeError>({.operation = "consumer", .wrong = "thrown on purpose"});
  } catch (const Error& error) {
    std::cout << error.what() << "\n";
  }
  return failures;
}
