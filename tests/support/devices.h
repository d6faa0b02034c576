// SPDX-License-Identifier: Apache-2.0
// The devices that tests run on, and the seed that their data is drawn from.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "tessera/device/device.h"

namespace tessera::tests {

/// Every device that computes, `interp` included.
inline std::vector<Device> functional_devices() {
  std::vector<Device> out;
  for (const BackendReport& report : discover())
    for (const DeviceInfo& info : report.devices)
      if (info.state == DeviceState::enumerated || info.state == DeviceState::verified) out.push_back(info.device);
  return out;
}

/// TESSERA_TEST_SEED, or a fresh one; printed once, so that a failure can be run again.
inline std::uint64_t seed() {
  static const std::uint64_t value = [] {
    const char* given = std::getenv("TESSERA_TEST_SEED");
    const std::uint64_t s = given ? std::strtoull(given, nullptr, 0) : std::random_device{}();
    std::printf("seed: TESSERA_TEST_SEED=%llu\n", static_cast<unsigned long long>(s));
    return s;
  }();
  return value;
}

}  // namespace tessera::tests
