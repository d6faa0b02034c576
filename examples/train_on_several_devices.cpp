// SPDX-License-Identifier: Apache-2.0
// One training on one device, with a part of each batch on each of several, and with a part of the model on each.
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
  return one < 1 && std::abs(one - parts) < 1e-3 && std::abs(one - split) < 1e-3 ? 0 : 1;
}
