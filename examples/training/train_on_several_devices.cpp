// SPDX-License-Identifier: Apache-2.0
// How do I train on several devices?
// Data parallelism trains on a part of each batch on each device; model parallelism puts layers on different devices.
// Both have the same result.
// usage: example_train_on_several_devices [DEVICE...]. The default is the GPUs, or the CPU and the interpreter.
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

int main(int argc, char** argv) {
  std::vector<Device> devices;
  for (int i = 1; i < argc; ++i) devices.push_back(parse_device(argv[i]));
  if (devices.empty()) devices = gpus();
  if (devices.size() < 2)
    devices = {devices.empty() ? Device{Backend::cpu, 0} : devices[0], Device{Backend::interp, 0}};
  const DeviceScope scope(devices[0]);
  const Array x = random_uniform({256, 16}, 3, -1, 1).eval();
  const Batch data{x, argmax(x.slice(1, 0, 4), 1).astype(DType::i32).eval()};

  const double one = train(network(), data, {});
  const double data_parallel = train(network(), data, devices);
  Net placed = network();
  placed.place({devices[0], devices[0], devices[1], devices[1], devices.back()});
  const double model_parallel = train(placed, data, {});
  std::printf("loss: one device %.3f, data parallel on %zu %.3f, model parallel %.3f\n", one, devices.size(),
              data_parallel, model_parallel);
  return one < 1 && std::abs(one - data_parallel) < 1e-3 && std::abs(one - model_parallel) < 1e-3 ? 0 : 1;
}

// Output:
// loss: one device 0.6..., data parallel on ... 0.6..., model parallel 0.6...
