// SPDX-License-Identifier: Apache-2.0
#include "tessera/device/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "tessera/base/error.h"

namespace tessera {

std::string_view backend_name(Backend backend) {
  static constexpr std::string_view names[] = {"cpu", "cuda", "rocm", "oneapi", "metal", "opencl", "interp", "dry-run"};
  return names[static_cast<std::size_t>(backend)];
}

std::string_view state_name(DeviceState state) {
  static constexpr std::string_view names[] = {"unsupported", "supported", "loaded", "enumerated", "verified",
                                               "quarantined", "crashed",   "hung",   "lost"};
  return names[static_cast<std::size_t>(state)];
}

std::string_view kind_name(DeviceKind kind) {
  static constexpr std::string_view names[] = {"discrete GPU", "integrated GPU", "CPU", "other"};
  return names[static_cast<std::size_t>(kind)];
}

std::string to_string(Device device) { return fmt::format("{}:{}", backend_name(device.backend), device.index); }

Device parse_device(std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  for (Backend backend : all_backends) {
    if (name != backend_name(backend)) continue;
    if (colon == std::string_view::npos) return {backend, 0};
    const std::string_view digits = text.substr(colon + 1);
    int index = -1;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    if (error == std::errc{} && end == digits.data() + digits.size() && index >= 0 && digits.front() != '-')
      return {backend, index};
  }
  std::string names;
  for (Backend backend : all_backends) names += (names.empty() ? "" : ", ") + std::string(backend_name(backend));
  fail<DeviceError>(
      {.wrong = fmt::format("\"{}\" is not a device", text),
       .remedy = fmt::format("Write a backend and an index from 0, such as cpu or cuda:1; `tessera devices` lists the "
                             "available devices. Backends: {}",
                             names)});
}

std::vector<Device> parse_devices(std::string_view text) {
  std::vector<Device> devices;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    const Device device = parse_device(text.substr(at, comma - at));
    if (std::find(devices.begin(), devices.end(), device) != devices.end())
      fail<DeviceError>({.wrong = fmt::format("\"{}\" contains {} twice", text, to_string(device)),
                         .remedy = "List each device once"});
    devices.push_back(device);
    at = comma + 1;
  }
  return devices;
}

}  // namespace tessera
