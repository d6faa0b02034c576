// SPDX-License-Identifier: Apache-2.0
// Fixture for tests of the device layer. Registers test drivers once per process and provides a new device for each
// test.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "tessera/device/driver.h"
#include "tessera/device/launch/kernel.h"
#include "tests/support/errors.h"
#include "tests/support/test_driver.h"

namespace tessera::test {

/// Provides a new device for each test. Devices of `cuda` have separate memory, and devices of `cpu` use host memory.
class DeviceTest : public ::testing::Test {
 protected:
  static constexpr int devices = 64;
  static TestDriver& driver(Backend backend) {
    static TestDriver* drivers[2] = {make(Backend::cuda), make(Backend::cpu)};
    return *drivers[backend == Backend::cpu];
  }
  static Device fresh(Backend backend = Backend::cuda) {
    static int next[2] = {0, 0};
    driver(backend);
    return {backend, next[backend == Backend::cpu]++};
  }
  static std::shared_ptr<Behaviour> behaviour(Device device) { return driver(device.backend).behaviour(device.index); }

  /// Fails the test if a driver has detected misuse.
  void TearDown() override {
    for (Backend backend : {Backend::cuda, Backend::cpu})
      for (int i = 0; i < devices; ++i)
        for (const auto& text : behaviour({backend, i})->misuse())
          ADD_FAILURE() << to_string(Device{backend, i}) << ": " << text;
  }

 private:
  static TestDriver* make(Backend backend) {
    auto d = std::make_unique<TestDriver>(backend);
    for (int i = 0; i < devices; ++i) {
      auto& info =
          d->add_device(backend == Backend::cpu ? DeviceKind::cpu : DeviceKind::discrete_gpu, std::uint64_t{1} << 30);
      info.can.max_block_threads = 512;
      info.can.max_block = {512, 512, 64};
    }
    TestDriver* kept = d.get();
    register_driver(std::move(d));
    return kept;
  }
};

}  // namespace tessera::test
