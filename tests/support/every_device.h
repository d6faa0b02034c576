// SPDX-License-Identifier: Apache-2.0
// Tests that run on every device of the machine and on the interpreter: TEST_P(OnEveryDevice, ...) after
// TESSERA_ON_EVERY_DEVICE(). TESSERA_TEST_DEVICES selects the devices.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tessera/device/device.h"
#include "tessera/testing/testing.h"

namespace tessera::test {

/// Makes the device current for each test, and provides random numbers from the seed of the test run.
class OnEveryDevice : public ::testing::TestWithParam<Device> {
 protected:
  void SetUp() override { scope_.emplace(GetParam()); }
  /// True if a compiler of a vendor takes a third of a second for each kernel. Tests with many kernels then run fewer
  /// cases.
  static bool compiles_slowly() {
    return !is_built_in(GetParam().backend) && std::getenv("TESSERA_FAKE_DEVICES") == nullptr;
  }
  std::mt19937_64 random{testing::seed()};
  std::vector<float> numbers(std::int64_t n, float low = -2, float high = 2) {
    std::uniform_real_distribution<float> d(low, high);
    std::vector<float> out(static_cast<std::size_t>(n));
    for (float& v : out) v = d(random);
    return out;
  }
  std::vector<std::int32_t> integers(std::int64_t n, int low = -100, int high = 100) {
    std::uniform_int_distribution<int> d(low, high);
    std::vector<std::int32_t> out(static_cast<std::size_t>(n));
    for (auto& v : out) v = d(random);
    return out;
  }

 private:
  std::optional<DeviceScope> scope_;
};

#define TESSERA_ON_EVERY_DEVICE()                                                                            \
  INSTANTIATE_TEST_SUITE_P(                                                                                  \
      Devices, OnEveryDevice, ::testing::ValuesIn(::tessera::testing::all_devices()), [](const auto& info) { \
        return std::string(::tessera::backend_name(info.param.backend)) + std::to_string(info.param.index);  \
      })

}  // namespace tessera::test
