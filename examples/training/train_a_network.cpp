// SPDX-License-Identifier: Apache-2.0
// How do I train a network?
// You need a model, a loss, an optimiser and a loop. See docs/training.md for more.
#include <tessera/tessera.h>

#include <cstdio>

using namespace tessera;

float train(const Array& x, const Array& y) {
  auto model = setup(sequential(dense<784, 256>, relu, dense<256, 10>), {.seed = 1});
  Adam optimiser(model, {.lr = 1e-3});
  float last = 0;
  for (int step = 0; step < 50; ++step) {
    auto [loss, gradient] = value_and_grad([&](const auto& m) { return cross_entropy(m(x), y); })(model);
    optimiser.step(model, gradient);
    last = loss.template item<float>();
  }
  return last;
}

int main() {
  const Array x = random_uniform({128, 784}, 1), y = (sum(x, {1}).astype(DType::i32) % 10).eval();
  const float loss = train(x, y);
  std::printf("loss after 50 steps: %.3f\n", loss);
  return loss < 1 ? 0 : 1;
}

// Output:
// loss after 50 steps: 0...
