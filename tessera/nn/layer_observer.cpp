// SPDX-License-Identifier: Apache-2.0
#include "tessera/nn/layer_observer.h"

namespace tessera::detail {

constinit thread_local LayerObserver* layer_observer = nullptr;

void place_layers(const std::vector<Device>& devices, std::size_t layers,
                  const Callback<void(std::size_t layer, const PartFunction& use)>& parts) {
  if (devices.size() != layers)
    fail<ArgumentError>({.operation = "place",
                         .with = {{"layers", std::to_string(layers)}, {"devices", std::to_string(devices.size())}},
                         .wrong = "the number of devices differs from the number of layers",
                         .remedy = "List one device for each layer, including layers without arrays"});
  for (const Device d : devices) static_cast<void>(device_info(d));  // throws DeviceError before any array is moved
  struct Place {
    Device device;
    std::string path;
    Array moved;
  };
  ArrayMap<Place> known;
  for (const bool moving : {false, true})
    for (std::size_t i = 0; i < layers; ++i)
      parts(i, [&](ModelArray& part, const Path& at) {
        if (part.empty()) return;
        const std::string path = std::to_string(i) + "." + at.text();
        Place* place = known.find(part);
        if (place == nullptr) place = &known.add(part, Place{devices[i], path, part});
        if (place->device != devices[i])
          fail<ArgumentError>({.operation = "place",
                               .with = {{place->path, to_string(place->device)}, {path, to_string(devices[i])}},
                               .wrong = "layers on two devices share an array",
                               .remedy = "Put these layers on one device, or give each its own array"});
        if (!moving) return;
        if (place->moved.device() != place->device) place->moved = place->moved.to(place->device).eval();
        static_cast<Array&>(part) = place->moved;
      });
}

}  // namespace tessera::detail
