// SPDX-License-Identifier: Apache-2.0
// What runs emitted text on the host (tests/drivers/text/): texts written by hand give right results on subgroups of
// any width, and what is wrong in a text shows: a barrier left out, threads that wait for ever, lanes that part.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "tessera/base/half.h"
#include "tests/drivers/text/compile.h"

namespace tessera::text {
namespace {

/// Compiles the text and runs its kernel `k` with these pointers. Empty, or what went wrong.
template <class... T>
std::string run(const std::string& source, Language language, KernelLaunch launch, T*... pointers) {
  const CompiledText made = compile(source, language, {"k"});
  if (!made.made) return made.log;
  void* values[] = {const_cast<std::remove_const_t<T>*>(pointers)...};
  std::vector<void*> arguments;
  for (void*& v : values) arguments.push_back(&v);
  return object_of(made.object).run("k", launch, arguments);
}

TEST(TextOnHost, InlinePtxBecomesCalls) {
  EXPECT_EQ(calls_for_ptx("asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(bits) : \"f\"(x[f(1)]));"),
            "ptx_cvt_rn_f16_f32(bits, x[f(1)]);");
  EXPECT_EQ(
      calls_for_ptx(
          "a; asm volatile(\"mma.sync.x {%0, %1}, \" \"{%2}, {%0, %1};\"\n : \"+f\"(c), \"+f\"(d) : \"r\"(e)); b;"),
      "a; ptx_mma_sync_x(c, d, e, c, d); b;");
  const std::string two = "asm(\"add.s32 %0, %1, 1; sub.s32 %0, %0, 2;\" : \"=r\"(a) : \"r\"(b));";
  EXPECT_EQ(calls_for_ptx(two), two) << "several instructions stay, and do not compile";
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
TEST(TextOnHost, BarriersAndTheirAbsence) {
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

TEST(TextOnHost, ThreadsThatCannotGoOn) {
  const auto said = [](const char* body, unsigned width = 8) {
    return run(std::string("extern \"C\" __global__ void k() {\n") + body + "\n}\n", Language::hip,
               {{2, 1, 1}, {16, 1, 1}, width});
  };
  EXPECT_NE(said("if (threadIdx.x < 4) __syncthreads();").find("barrier"), std::string::npos);
  EXPECT_NE(said("if (threadIdx.x % 8 < 4) __shfl(1, 0);").find("wait at a barrier and 8 at a subgroup operation"),
            std::string::npos);
  EXPECT_NE(said("if (threadIdx.x % 2) __shfl(1, 0); else __shfl_up(1, 1);").find("different operations"),
            std::string::npos);
  EXPECT_EQ(said("if (threadIdx.x / 8) __shfl(1, 0);"), "") << "a whole subgroup may go its own way";
  EXPECT_EQ(said("__syncthreads(); __syncthreads();"), "") << "and what was stopped leaves nothing behind";
}

TEST(TextOnHost, ShufflesOfEveryWidth) {
  const char* const text =
      "extern \"C\" __global__ void k(float* y, long long* z) {\n  const int i = threadIdx.x;\n"
      "  y[i] = __shfl_down((float)i, 1u);\n  z[i] = __shfl_xor((long long)i << 40, 1);\n}\n";
  for (const unsigned width : {1u, 8u, 32u, 64u}) {
    std::vector<float> y(64, -1);
    std::vector<long long> z(64, -1);
    EXPECT_EQ(run(text, Language::hip, {{1, 1, 1}, {64, 1, 1}, width}, y.data(), z.data()), "");
    for (unsigned i = 0; i < 64; ++i) {
      EXPECT_EQ(y[i], static_cast<float>(i % width + 1 < width ? i + 1 : i)) << width;
      EXPECT_EQ(z[i] >> 40, width > 1 ? i ^ 1 : i) << width;
    }
  }
}

TEST(TextOnHost, HalvesAreThoseOfTheLibrary) {
  const std::string cuda =
      "extern \"C\" __global__ void k(const unsigned short* h, float* f, const float* x, unsigned short* to) {\n"
      "  const int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
      "  asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(f[i]) : \"h\"(h[i]));\n"
      "  asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(to[i]) : \"f\"(x[i]));\n}\n";
  const std::string hip =
      "extern \"C\" __global__ void k(const unsigned short* h, float* f, const float* x, unsigned short* to) {\n"
      "  const int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
      "  f[i] = (float)__builtin_bit_cast(_Float16, h[i]);\n"
      "  to[i] = __builtin_bit_cast(unsigned short, (_Float16)x[i]);\n}\n";
  std::mt19937 random(7);
  std::vector<std::uint16_t> h(65536), to(65536);
  std::vector<float> f(65536), x(65536);
  for (std::size_t i = 0; i < h.size(); ++i) {
    h[i] = static_cast<std::uint16_t>(i);
    const std::uint32_t bits = random();  // half of them in and around the range of f16
    std::memcpy(&x[i], &bits, 4);
    if (i % 2)
      x[i] = std::ldexp(x[i] == x[i] && std::isfinite(x[i]) ? std::fmod(x[i], 1.0f) : 0.3f,
                        static_cast<int>(i / 2 % 45) - 27);
  }
  for (const auto& [text, language] : {std::pair{cuda, Language::cuda}, {hip, Language::hip}}) {
    EXPECT_EQ(run(text, language, {{256, 1, 1}, {256, 1, 1}}, h.data(), f.data(), x.data(), to.data()), "");
    for (std::size_t i = 0; i < h.size(); ++i) {
      const float wanted = half_value(h[i]);
      ASSERT_TRUE(f[i] == wanted ? std::signbit(f[i]) == std::signbit(wanted) : f[i] != f[i] && wanted != wanted) << i;
      ASSERT_TRUE(to[i] == half_bits(x[i]) || x[i] != x[i]) << x[i];
    }
  }
}

// Fragments are laid out as the PTX ISA says of mma.m16n8k16.
TEST(TextOnHost, MatrixProductsOfPtx) {
  const std::string text = R"(
extern "C" __global__ void k(const unsigned* a, const unsigned* b, float* c) {
  const int lane = threadIdx.x, row = lane / 4, pair = lane % 4;
  const unsigned a0 = a[row * 8 + pair], a1 = a[(row + 8) * 8 + pair], a2 = a[row * 8 + pair + 4],
                 a3 = a[(row + 8) * 8 + pair + 4];
  const unsigned b0 = b[row * 8 + pair], b1 = b[row * 8 + pair + 4];  // b transposed: a row of it is a column
  float d0 = 1.0f, d1 = 1.0f, d2 = 1.0f, d3 = 1.0f;
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  c[row * 8 + 2 * pair] = d0, c[row * 8 + 2 * pair + 1] = d1;
  c[(row + 8) * 8 + 2 * pair] = d2, c[(row + 8) * 8 + 2 * pair + 1] = d3;
}
)";
  std::vector<std::uint16_t> a(256), b(128);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = half_bits(static_cast<float>(i * 7 % 13) - 6);
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = half_bits(static_cast<float>(i * 5 % 11) - 5);
  std::vector<float> c(128, -99);
  ASSERT_EQ(run(text, Language::cuda, {{1, 1, 1}, {32, 1, 1}, 32}, reinterpret_cast<unsigned*>(a.data()),
                reinterpret_cast<unsigned*>(b.data()), c.data()),
            "");
  for (std::size_t i = 0; i < 16; ++i)
    for (std::size_t j = 0; j < 8; ++j) {
      float sum = 1;
      for (std::size_t k = 0; k < 16; ++k) sum += half_value(a[i * 16 + k]) * half_value(b[j * 16 + k]);
      EXPECT_EQ(c[i * 8 + j], sum) << i << ", " << j;
    }
  EXPECT_NE(run(text, Language::cuda, {{1, 1, 1}, {32, 1, 1}, 8}, reinterpret_cast<unsigned*>(a.data()),
                reinterpret_cast<unsigned*>(b.data()), c.data())
                .find("subgroups of 32"),
            std::string::npos);
}

TEST(TextOnHost, MetalsAddressSpacesAreChecked) {
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
