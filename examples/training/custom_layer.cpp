// SPDX-License-Identifier: Apache-2.0
// How do I write my own layer?
// Write a struct with a call operator. Its parameters and layers are found automatically for training, files and
// freezing.
#include <tessera/grad/grad.h>
#include <tessera/nn/initialise.h>
#include <tessera/nn/layers.h>
#include <tessera/nn/losses.h>
#include <tessera/nn/optimiser.h>
#include <tessera/nn/sequential.h>

#include <cstdio>

using namespace tessera;

/// Returns value(x) * sigmoid(gate(x)), scaled.
struct Gated {
  Dense value{.inputs = 2, .outputs = 16}, gate{.inputs = 2, .outputs = 16};
  Parameter scale{{16}, init::ones()};
  Array operator()(const Array& x) const { return scale * value(x) * sigmoid(gate(x)); }
};

int main() {
  auto model = setup(Sequential{Gated{}, Dense{.inputs = 16, .outputs = 2}}, {.seed = 1});
  std::printf("%s\n", summary(model).c_str());

  const Array x = random_uniform({256, 2}, 2, -1, 1).eval();
  const Array y = (x.select(1, 0) * x.select(1, 1) > 0).astype(DType::i32).eval();  // not linearly separable
  Adam optimiser(model, {.lr = 5e-2});
  for (int step = 0; step < 60; ++step) {
    const auto [loss, gradient] = value_and_grad([&](const auto& m) { return cross_entropy(m(x), y); })(model);
    optimiser.step(model, gradient);
  }
  const float right = accuracy(model(x), y).item<float>();
  std::printf("accuracy: %s\n", right > 0.95f ? "above 0.95" : "too low");
  return right > 0.95f && parameters(model)[0].path == "0.value.weight" ? 0 : 1;
}

// Output:
// path            kind       dtype  shape        elements
// 0.value.weight  parameter  f32    (16, 2)            32
// 0.value.bias    parameter  f32    (16,)              16
// 0.gate.weight   parameter  f32    (16, 2)            32
// 0.gate.bias     parameter  f32    (16,)              16
// 0.scale         parameter  f32    (16,)              16
// 1.weight        parameter  f32    (2, 16)            32
// 1.bias          parameter  f32    (2,)                2
// 146 elements...
//
// accuracy: above 0.95
