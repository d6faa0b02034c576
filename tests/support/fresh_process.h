// SPDX-License-Identifier: Apache-2.0
// Runs a test of process-wide state in a process that has not discovered or selected any device yet. Uses test drivers.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <memory>
#include <utility>

#include "tests/support/test_driver.h"

#include "tessera/device/driver.h"

namespace tessera::test {

/// Runs `body` in a forked child and checks that no assertion fails there. The parent must not have discovered devices.
template <class F>
void in_fresh_process(F&& body) {
  ::fflush(nullptr);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    try {
      body();
    } catch (const std::exception& e) {
      ADD_FAILURE() << "unexpected: " << e.what();
    }
    ::fflush(nullptr);
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

inline TestDriver& add(Backend backend, std::initializer_list<std::pair<DeviceKind, std::uint64_t>> devices) {
  auto driver = std::make_unique<TestDriver>(backend);
  for (const auto& [kind, memory] : devices) driver->add_device(kind, memory);
  TestDriver& kept = *driver;
  register_driver(std::move(driver));
  return kept;
}

}  // namespace tessera::test
