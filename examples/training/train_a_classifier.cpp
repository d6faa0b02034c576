// SPDX-License-Identifier: Apache-2.0
// How do I train a classifier with batches, validation and early stopping?
// fit() runs the whole training loop. It returns the best model and the reason why it stopped.
#include <tessera/nn/evaluate.h>
#include <tessera/nn/fit.h>
#include <tessera/nn/layers.h>
#include <tessera/nn/losses.h>
#include <tessera/nn/sequential.h>

#include <cstdio>

using namespace tessera;

using Net = Sequential<Dense, Elementwise, Dense>;
using Batch = std::tuple<Array, Array>;

/// Random points in a square. The class of a point is 1 if the point is inside a circle.
Batch points(std::uint64_t seed) {
  const Array x = random_uniform({512, 2}, seed, -1, 1).eval();
  return {x, (sum(x * x, {1}) < 0.5).astype(DType::i32).eval()};
}
Array loss_of(const Net& m, const Batch& b) { return cross_entropy(m(std::get<0>(b)), std::get<1>(b)); }
Array accuracy_of(const Net& m, const Batch& b) { return accuracy(m(std::get<0>(b)), std::get<1>(b)); }

int main() {
  const auto [x, y] = points(1);
  const auto [held_out_x, held_out_y] = points(2);
  const auto validation = [&](const Net& m) {
    return evaluate(m, batches(held_out_x, held_out_y, {.size = 256}), {{"loss", loss_of}, {"accuracy", accuracy_of}});
  };
  const Net net = setup(sequential(dense<2, 32>, relu, dense<32, 2>), {.seed = 1});
  const auto [model, result] = fit(net, batches(x, y, {.size = 128, .shuffle = true, .seed = 3}),
                                   {.loss = loss_of,
                                    .optimiser = Adam(net, {.lr = cosine_rate(3e-2, {.steps = 120, .warmup = 10})}),
                                    .epochs = 30,
                                    .validation = validation,
                                    .early_stopping = EarlyStopping{.figure = "loss", .patience = 5}});
  const double held_out = figure(result.figures, "accuracy");
  const Array classes = argmax(predict(model, Array::from({0.f, 0.f, 0.9f, 0.9f}, Shape{2, 2})), 1);
  std::printf("held-out accuracy %.2f; classes of (0, 0) and (0.9, 0.9): %s\n", held_out, to_string(classes).c_str());
  return held_out > 0.95 && classes.to_vector<std::int64_t>() == std::vector<std::int64_t>{1, 0} ? 0 : 1;
}

// Output:
// held-out accuracy 0.9...; classes of (0, 0) and (0.9, 0.9): array([1, 0], i64, ...)
