// SPDX-License-Identifier: Apache-2.0
// Products with the real CLBlast on the first OpenCL device, such as PoCL. Compares all kinds of products with sums in
// double, and tests the fallback if the library is missing or incomplete.
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "tessera/backend/opencl/clblast.h"
#include "tessera/base/error.h"
#include "tessera/base/test_seed.h"
#include "tessera/device/placement/placement_scope.h"
#include "tests/opencl/fresh_pocl_cache.h"
#include "tests/ops/product_check.h"
#include "tests/support/errors.h"
#include "tests/support/run_in_child.h"

namespace tessera {
namespace {

using test::compare_product;
using test::product_cases;
using test::ProductCase;
using test::random_array;

constexpr Device device{Backend::opencl, 0};

class ClBlast : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string there = test::run_in_child({}, [] {
      if (!os::Library::open(cl::clblast_candidates()).loaded())
        return std::string("CLBlast is not installed (Debian: libclblast1)");
      return discover(Backend::opencl).devices.empty()
                 ? std::string("this machine has no OpenCL device (Debian: pocl-opencl-icd)")
                 : std::string();
    });
    if (!there.empty()) GTEST_SKIP() << there;
  }
  static std::string run(const test::Variables& changed, const std::function<std::string()>& work) {
    test::Variables all = {{"TESSERA_BLAS", "vendor"}};
    all.insert(all.end(), changed.begin(), changed.end());
    return test::run_in_child(all, work, 280);
  }
  static std::uint64_t by_library(const PlacementLog& log) {
    for (const auto& k : log.kernels)
      if (k.kernel == "CLBlast: product") return k.launches;
    return 0;
  }
  static std::string plain(DType t = DType::f32) {
    std::mt19937_64 source(test_seed());
    const Array a = random_array(source, {33, 70}, t, device), b = random_array(source, {70, 20}, t, device);
    Placement scope;
    const Array c = matmul(a, b);
    const bool library_did = by_library(scope.log()) != 0;
    const std::string wrong = compare_product(c, a, b);
    return !wrong.empty() ? wrong : library_did ? "right by the library" : "right by Tessera's kernel";
  }
};

TEST_F(ClBlast, ComputesAllKindsOfProducts) {
  const std::string text = run({}, []() -> std::string {
    std::mt19937_64 source(test_seed());
    std::string wrong;
    const auto make = [&](Shape shape) { return random_array(source, std::move(shape), DType::f32, device); };
    for (const ProductCase& c : product_cases(make)) {
      Placement scope;
      const Array got = matmul(c.a, c.b);
      if (by_library(scope.log()) != 1) wrong += std::string("\n") + c.name + ": not by the library";
      if (const auto said = compare_product(got, c.a, c.b); !said.empty()) wrong += "\n" + std::string(c.name) + said;
    }
    return wrong.empty() ? "right" : wrong;
  });
  EXPECT_EQ(text, "right");
}

TEST_F(ClBlast, LargeProductsUsePooledWorkspaceAndSeparateEpilogueKernel) {
  const std::string text = run({}, []() -> std::string {
    std::mt19937_64 source(test_seed());
    const Array a = random_array(source, {300, 257}, DType::f32, device),
                b = random_array(source, {257, 290}, DType::f32, device);
    Epilogue e;
    e.bias = random_array(source, {290}, DType::f32, device);
    e.activation = Activation::silu;
    const auto before = memory_stats(device);
    std::string wrong;
    for (int i = 0; i < 3; ++i) {
      Placement scope;
      const Array got = matmul(a, b, e);
      wrong += compare_product(got, a, b, e);
      if (by_library(scope.log()) != 1) wrong += " not by the library";
    }
    if (memory_stats(device).live_bytes != before.live_bytes) wrong += " memory leaked";
    return wrong.empty() ? "right" : wrong;
  });
  EXPECT_EQ(text, "right");
}

TEST_F(ClBlast, F16ProductsAndDisabledBlasUseTesseraKernels) {
  EXPECT_EQ(run({}, [] { return plain(DType::f16); }), "right by Tessera's kernel");
  EXPECT_EQ(run({}, [] { return plain(DType::bf16); }), "right by Tessera's kernel");
  EXPECT_EQ(run({{"TESSERA_BLAS", "off"}}, [] { return plain(); }), "right by Tessera's kernel");
  EXPECT_EQ(run({{"TESSERA_BLAS", "auto"}}, [] { return plain(); }), "right by Tessera's kernel");
}

TEST_F(ClBlast, FallsBackIfLibraryIsMissingOrIncomplete) {
  EXPECT_EQ(run({{"TESSERA_CLBLAST_LIBRARY", "none"}}, [] { return plain(); }), "right by Tessera's kernel");
  EXPECT_EQ(run({{"TESSERA_CLBLAST_LIBRARY", "/nonexistent/libclblast.so.1"}}, [] { return plain(); }),
            "right by Tessera's kernel");
  EXPECT_EQ(run({{"TESSERA_CLBLAST_LIBRARY", "libm.so.6"}}, [] { return plain(); }), "right by Tessera's kernel");
}

TEST_F(ClBlast, DeviceInfoReportsWhetherClblastIsInstalled) {
  const auto clause = [] { return device_info(device).blas; };
  test::expect_contains(run({{"TESSERA_PROBE", "off"}}, clause), {"CLBlast (", "libclblast"});
  EXPECT_EQ(run({{"TESSERA_PROBE", "off"}, {"TESSERA_CLBLAST_LIBRARY", "none"}}, clause),
            "no CLBlast: large products run on Tessera's own kernels");
}

}  // namespace
}  // namespace tessera
