// SPDX-License-Identifier: Apache-2.0
// One training on one device, on parts of each batch, on parts of the model, and with less memory than it asks for.
// Arguments are devices; without any the GPUs, or else the CPU and the interpreter.
#include <tessera/tessera.h>

#include <cmath>
#include <cstdio>

using namespace tessera;

using Net = Sequential<Dense, Elementwise, Dense, Elementwise, Dense>;
using Batch = std::tuple<Array, Array>;

Net network() { return setup(sequential(dense<16, 64>, relu, dense<64, 64>, relu, dense<64, 4>), {.seed = 1}); }
Array loss_of(const Net& m, const Batch& b) {
  const Array y = m(std::get<0>(b));
  return cross_entropy(y, std::get<1>(b).to(y.device()));
}
double train(const Net& model, const Batch& data, std::vector<Device> devices) {
  FitOptions<Net, Batch> options;
  options.loss = loss_of, options.epochs = 20, options.devices = std::move(devices);
  const auto [x, y] = data;
  const Net trained = fit(model, batches(x, y, {.size = 64, .shuffle = true, .seed = 2}), options).model;
  return loss_of(trained, data).item<float>();
}

/// A layer whose intermediate results are computed again in the walk back: less memory for more work.
struct Checkpointed {
  std::vector<Dense> layers;
  bool again = true;
  static Array inside(const Dense& layer, const Array& x) {
    const Array h = tanh(layer(x)).eval();
    return (h * sigmoid(h).eval() + exp(h * -1.0).eval()).eval();
  }
  Array operator()(const Array& x) const {
    Array y = x;
    for (const Dense& layer : layers)
      y = again ? recompute([](const Dense& l, const Array& h) { return inside(l, h); })(layer, y) : inside(layer, y);
    return y;
  }
};

int main(int argc, char** argv) {
  std::vector<Device> devices;
  for (int i = 1; i < argc; ++i) devices.push_back(parse_device(argv[i]));
  if (devices.empty()) devices = gpus();
  if (devices.size() < 2)
    devices = {devices.empty() ? Device{Backend::cpu, 0} : devices[0], Device{Backend::interp, 0}};
  const DeviceScope scope(devices[0]);
  const Array x = random_uniform({256, 16}, 3, -1, 1).eval();
  const Batch data{x, argmax(x.slice(1, 0, 4), 1).astype(DType::i32).eval()};

  // On one device, on all with a part of each batch, and a part of the model on each: the same training.
  const double one = train(network(), data, {});
  const double parts = train(network(), data, devices);
  Net placed = network();
  placed.place({devices[0], devices[0], devices[1], devices[1], devices.back()});
  const double split = train(placed, data, {});
  std::printf("loss on one device %.5f, batches on %zu %.5f, layers on %zu %.5f\n", one, devices.size(), parts,
              devices.size(), split);

  // Out of memory: the step changes nothing, so a smaller batch goes on. Or keep less.
  const auto deep = [](bool again) {
    Checkpointed model{{}, again};
    for (int i = 0; i < 6; ++i) model.layers.push_back(Dense{.inputs = 64, .outputs = 64});
    return setup(model, {.seed = 4});
  };
  const Array many = random_uniform({2048, 64}, 5, -1, 1).eval(), few = many.slice(0, 0, 64).copy().eval();
  const auto step_with = [&](const Checkpointed& model, const Array& batch) {
    const auto [loss, gradient] = value_and_grad([&](const Checkpointed& m) { return mean(m(batch)); })(model);
    return loss.item<float>();
  };
  const auto peak_of = [&](const Checkpointed& model) {
    trim(devices[0]), reset_peak_memory(devices[0]);
    const std::uint64_t before = memory_stats(devices[0]).live_bytes;
    step_with(model, many);
    return memory_stats(devices[0]).peak_bytes - before;
  };
  const Checkpointed keeps = deep(false), again = deep(true);
  const std::uint64_t all = peak_of(keeps), less = peak_of(again);
  std::printf("a step takes %.1f MB, with recompute %.1f MB\n", static_cast<double>(all) / 1e6,
              static_cast<double>(less) / 1e6);
  trim(devices[0]);  // what is cached goes back to the device
  set_memory_limit(devices[0], memory_stats(devices[0]).live_bytes + (all + less) / 2);
  bool out = false;
  try {
    step_with(keeps, many);
  } catch (const OutOfMemory& e) {
    std::printf("%s\n", e.what());
    out = true;
  }
  const bool smaller = std::isfinite(step_with(keeps, few)), checkpointed = std::isfinite(step_with(again, many));
  set_memory_limit(devices[0], 0);
  return one < 1 && std::abs(one - parts) < 1e-3 && std::abs(one - split) < 1e-3 && less < all && out && smaller &&
                 checkpointed
             ? 0
             : 1;
}
