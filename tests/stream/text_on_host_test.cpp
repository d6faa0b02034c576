// SPDX-License-Identifier: Apache-2.0
// The simulator that runs emitted source code on the host (tests/drivers/text/) must detect errors in it: a missing
// barrier, threads that wait forever, divergent lanes. Other tests, such as node_table_test, check results of correct
// source code.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/drivers/text/compile.h"

namespace tessera::text {
namespace {

/// Compiles the source and runs its kernel `k` with these pointers. Returns an empty string, or the error.
template <class... T>
std::string run(const std::string& source, Language language, KernelLaunch launch, T*... pointers) {
  const CompiledText made = compile(source, language, {"k"});
  if (!made.made) return made.log;
  void* values[] = {const_cast<std::remove_const_t<T>*>(pointers)...};
  std::vector<void*> arguments;
  for (void*& v : values) arguments.push_back(&v);
  return object_of(made.object).run("k", launch, arguments);
}

TEST(TextOnHost, InlinePtxIsReplacedByCalls) {
  EXPECT_EQ(calls_for_ptx("asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(bits) : \"f\"(x[f(1)]));"),
            "ptx_cvt_rn_f16_f32(bits, x[f(1)]);");
  EXPECT_EQ(
      calls_for_ptx(
          "a; asm volatile(\"mma.sync.x {%0, %1}, \" \"{%2}, {%0, %1};\"\n : \"+f\"(c), \"+f\"(d) : \"r\"(e)); b;"),
      "a; ptx_mma_sync_x(c, d, e, c, d); b;");
  const std::string two = "asm(\"add.s32 %0, %1, 1; sub.s32 %0, %0, 2;\" : \"=r\"(a) : \"r\"(b));";
  EXPECT_EQ(calls_for_ptx(two), two) << "several instructions are left unchanged and do not compile";
  EXPECT_NE(run("extern \"C\" __global__ void k(int* x) { asm(\"no.such %0;\" : \"=r\"(x[0])); }", Language::cuda, {})
                .find("ptx_no_such"),
            std::string::npos);
}

std::string reversal(bool with_barrier) {
  return std::string(
             "extern \"C\" __global__ void k(const int* x, int* y) {\n  __shared__ int s[24];\n"
             "  const int i = blockIdx.x * blockDim.x + threadIdx.x;\n  s[threadIdx.x] = x[i];\n") +
         (with_barrier ? "  __syncthreads();\n" : "") + "  y[i] = s[23 - threadIdx.x];\n}\n";
}
TEST(TextOnHost, DetectsMissingBarriers) {
  std::vector<int> x(240), y(240, -1), right(240);
  for (int i = 0; i < 240; ++i) x[static_cast<std::size_t>(i)] = 3 * i;
  for (std::size_t i = 0; i < 240; ++i) right[i] = x[i / 24 * 24 + 23 - i % 24];
  for (const Language language : {Language::cuda, Language::hip}) {
    EXPECT_EQ(run(reversal(true), language, {{10, 1, 1}, {24, 1, 1}}, x.data(), y.data()), "");
    EXPECT_EQ(y, right);
    std::fill(y.begin(), y.end(), -1);
    EXPECT_EQ(run(reversal(false), language, {{10, 1, 1}, {24, 1, 1}}, x.data(), y.data()), "");
    EXPECT_NE(y, right) << "without its barrier";
  }
}

TEST(TextOnHost, DetectsDeadlockedThreads) {
  const auto said = [](const char* body, unsigned width = 8) {
    return run(std::string("extern \"C\" __global__ void k() {\n") + body + "\n}\n", Language::hip,
               {{2, 1, 1}, {16, 1, 1}, width});
  };
  EXPECT_NE(said("if (threadIdx.x < 4) __syncthreads();").find("barrier"), std::string::npos);
  EXPECT_NE(said("if (threadIdx.x % 8 < 4) __shfl(1, 0);").find("wait at a barrier and 8 at a subgroup operation"),
            std::string::npos);
  EXPECT_NE(said("if (threadIdx.x % 2) __shfl(1, 0); else __shfl_up(1, 1);").find("different operations"),
            std::string::npos);
  EXPECT_EQ(said("if (threadIdx.x / 8) __shfl(1, 0);"), "") << "a whole subgroup may diverge from the block";
  EXPECT_EQ(said("__syncthreads(); __syncthreads();"), "") << "no state is left from stopped runs";
}

TEST(TextOnHost, ChecksMetalAddressSpaces) {
  if (metal_checker().find("clang") == std::string::npos) GTEST_SKIP() << "passed by: clang++-16 is not installed";
  const auto kernel = [](const char* body) {
    return std::string(
               "#include <metal_stdlib>\nusing namespace metal;\nkernel void k(device float* x [[buffer(0)]], "
               "threadgroup uchar* s [[threadgroup(0)]]) {\n") +
           body + "\n}\n";
  };
  EXPECT_TRUE(check_metal(kernel("threadgroup float* const y = (threadgroup float*)(s + 16); y[0] = x[0];")).made);
  EXPECT_FALSE(check_metal(kernel("float* const y = x; y[0] = 1.0f;")).made);
  EXPECT_FALSE(check_metal(kernel("double y = 1.0; int64 z = 0; x[0] = y;")).made);
}

}  // namespace
}  // namespace tessera::text
