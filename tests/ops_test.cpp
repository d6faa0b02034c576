// SPDX-License-Identifier: Apache-2.0
// Every check of the catalogue on every device; errors of the operations; and what the catalogue says of itself.
#include "tessera/ops/catalogue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tessera/testing/testing.h"

namespace tessera {
namespace {

class Operation : public ::testing::TestWithParam<std::string> {};

std::vector<std::string> operations() {
  std::vector<std::string> names;
  for (const CatalogueCheck& c : check_catalogue())
    if (std::ranges::find(names, c.operation) == names.end()) names.push_back(c.operation);
  return names;
}

// The interpreter's further subgroup widths say nothing new of kernels without subgroup operations: one of them will do.
std::vector<Device> devices() {
  std::vector<Device> out;
  for (Device d : testing::all_devices())
    if (d.backend != Backend::interp || d.index == 0) out.push_back(d);
  return out;
}

TEST_P(Operation, IsRightOnEveryDevice) {
  for (Device device : devices()) {
    const DeviceScope scope(device);
    for (const CatalogueCheck& c : check_catalogue()) {
      if (c.operation != GetParam()) continue;
      SCOPED_TRACE(to_string(device) + " " + c.operation + " " + c.shape + ", TESSERA_TEST_SEED=" + std::to_string(testing::seed()));
      try {
        EXPECT_LE(c.run(device, testing::seed()), 1.0);
      } catch (const Error& e) {
        ADD_FAILURE() << e.what();
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Operation, ::testing::ValuesIn(operations()), [](const auto& info) {
  std::string name = info.param;
  std::ranges::replace(name, ' ', '_');
  return name;
});

TEST(Catalogue, NamesAreUnique) {
  std::set<std::string> seen;
  for (const CatalogueCheck& c : check_catalogue()) EXPECT_TRUE(seen.insert(c.operation + c.shape).second) << c.operation << " " << c.shape;
  for (Device device : devices()) {
    std::set<std::string> kernels;
    for (const CatalogueKernel& k : kernel_catalogue(device)) EXPECT_TRUE(kernels.insert(k.name).second) << k.name;
    EXPECT_GT(kernels.size(), 60u);
  }
}

TEST(Catalogue, EveryKernelCompiles) {
  for (Device device : devices()) {
    std::vector<Kernel> kernels;
    for (const CatalogueKernel& k : kernel_catalogue(device)) kernels.emplace_back(k.function);
    EXPECT_NO_THROW(prepare(device, kernels)) << to_string(device);
  }
}

}  // namespace
}  // namespace tessera
