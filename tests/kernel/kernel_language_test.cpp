// SPDX-License-Identifier: Apache-2.0
// Tests the kernel language by comparing the traced IR: types, literals, lines, memory, control flow, and kernels
// created before main.
#include <gtest/gtest.h>

#include <optional>

#include "tessera/base/error.h"
#include "tessera/ir/digest.h"
#include "tessera/kernel/buffer.h"
#include "tessera/kernel/kernel.h"
#include "tests/support/errors.h"

using namespace tessera;
using test::holds;
using test::message;

// Runs before all dynamic initialisers of other files, so the tracer must not depend on any of them.
__attribute__((init_priority(101))) MapKernel<Buffer<const float>, Buffer<float>, Val<float>> early =
    kernel("early", [](Buffer<const float> x, Buffer<float> y, Val<float> a) {
      auto i = global_id();
      y[i] = a * x[i] + y[i];
    });

namespace {

// Returns the traced text without the lines that declare the kernel, its parameters and its memory.
template <class K>
std::string body(const K& k) {
  std::string out;
  const std::string text = k.text();
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    const bool declares = line.starts_with("kernel ") || line.starts_with("  buffer ") ||
                          line.starts_with("  scalar ") ||
                          (line.find('[') != line.npos && line.find('=') == line.npos && line.find(", ") == line.npos);
    if (!declares) out += line.substr(2) + "\n";
  }
  return out;
}
template <class F>
std::string map_text(F f) {
  return body(kernel("k", f));
}
template <class F>
std::string block_text(F f) {
  return body(kernel("k", block(64), f));
}

template <class F>
std::string map_error(F f) {
  return message([&] { kernel("wrong", f); });
}
template <class F>
std::string block_error(F f) {
  return message([&] { kernel("wrong", block(64), f); });
}
std::string here(int line) { return "kernel_language_test.cpp:" + std::to_string(line); }

TEST(KernelLanguage, TracesKernelsBeforeMain) {
  EXPECT_EQ(early.text(),
            "kernel early map\n"
            "  buffer arg0: f32 read\n"
            "  buffer arg1: f32 read_write\n"
            "  scalar arg2: f32\n"
            "  %1: f32 = load arg0[global_id(0)]\n"
            "  %2: f32 = load arg1[global_id(0)]\n"
            "  %3: f32 = mul arg2, %1\n"
            "  %4: f32 = add %3, %2\n"
            "  store arg1[global_id(0)], %4\n");
}

TEST(KernelLanguage, AcceptsParametersOfAllElementTypes) {
  auto k = kernel("all", [](Buffer<bool>, Buffer<const std::int8_t>, Buffer<std::uint8_t>, Buffer<std::int16_t>,
                            Buffer<std::uint16_t>, Buffer<const half>, Buffer<bfloat16>, Buffer<double>,
                            Val<std::int64_t>, Val<std::uint64_t>, Val<bool>, Val<Index>) {});
  EXPECT_EQ(k.text(),
            "kernel all map\n"
            "  buffer arg0: bool read_write\n  buffer arg1: i8 read\n  buffer arg2: u8 read_write\n"
            "  buffer arg3: i16 read_write\n  buffer arg4: u16 read_write\n  buffer arg5: f16 read\n"
            "  buffer arg6: bf16 read_write\n  buffer arg7: f64 read_write\n  scalar arg8: i64\n  scalar arg9: u64\n"
            "  scalar arg10: bool\n  scalar arg11: index\n");
  void (*plain)(Buffer<float>) = [](Buffer<float> x) { x[0] = 1; };
  EXPECT_EQ(body(kernel("plain", plain)), "store arg0[0:index], 1:f32\n");
  auto mutable_lambda = [n = 3](Buffer<float> x) mutable { x[n] = ++n; };
  EXPECT_TRUE(holds(body(kernel("mutable", mutable_lambda)), "store arg0["));
}

TEST(KernelLanguage, LiteralsTakeTheTypeOfTheOtherOperand) {
  EXPECT_EQ(
      map_text([](Buffer<float> x, Buffer<double> d, Buffer<std::uint8_t> b, Val<Index> n) {
        x[n + 1] = 2 * x[0] + 0.5;
        d[2 * n - 3u] = d[0] / 3;
        b[n % 4] = b[0] & 15;
      }),
      "%1: f32 = load arg0[0:index]\n%2: index = add arg3, 1:index\n%3: f32 = mul 2:f32, %1\n%4: f32 = add %3, "
      "0.5:f32\n"
      "store arg0[%2], %4\n"
      "%5: f64 = load arg1[0:index]\n%6: index = mul 2:index, arg3\n%7: index = sub %6, 3:index\n%8: f64 = div %5, "
      "3:f64\n"
      "store arg1[%7], %8\n"
      "%9: u8 = load arg2[0:index]\n%10: index = rem arg3, 4:index\n%11: u8 = and %9, 15:u8\nstore arg2[%10], %11\n");
  // If a type cannot represent a literal, the error names the line.
  const int line = __LINE__ + 1;
  const std::string error = map_error([](Buffer<std::uint8_t> b) { b[0] = b[1] + 256; });
  EXPECT_TRUE(holds(error, "kernel wrong, " + here(line))) << error;
  EXPECT_TRUE(holds(error, "the number 256 is combined with a value of u8, which cannot represent it"));
  EXPECT_TRUE(holds(map_error([](Buffer<std::uint32_t> b) { b[0] = b[1] + -1; }),
                    "the number -1 is combined with a value of u32"));
  EXPECT_TRUE(holds(map_error([](Buffer<std::int32_t> b) { b[0] = 0x80000000u; }),
                    "the number 2147483648 is combined with a value of i32"));
  EXPECT_EQ(map_text([](Buffer<std::int32_t> b) { b[0] = -2147483647 - 1; }), "store arg0[0:index], -2147483648:i32\n");
  EXPECT_EQ(map_text([](Buffer<std::uint64_t> b) { b[0] = ~0ull; }), "store arg0[0:index], 18446744073709551615:u64\n");
  EXPECT_EQ(map_text([](Buffer<half> h) { h[0] = 0.1, h[1] = half(2.0f); }),
            "store arg0[0:index], 0.099975586:f16\nstore arg0[1:index], 2:f16\n");
}

TEST(KernelLanguage, CapturedHostNumbersBecomeConstants) {
  float scale = 3;
  auto k = kernel("k", [&](Buffer<float> x) { x[0] = scale * x[0]; });
  scale = 7;
  EXPECT_TRUE(holds(k.text(), "mul 3:f32, %1"));
}

TEST(KernelLanguage, ComputesWith16BitFloatsInFloat) {
  EXPECT_EQ(map_text([](Buffer<const half> h, Buffer<bfloat16> b, Val<float> f) {
              auto product = h[0] * b[0];
              static_assert(std::same_as<decltype(product), Val<float>>);
              b[1] = product + f;
              b[2] = h[3];  // converted through float
              b[4] += 1;
            }),
            "%1: f16 = load arg0[0:index]\n%2: bf16 = load arg1[0:index]\n%3: f32 = cast %1\n%4: f32 = cast %2\n"
            "%5: f32 = mul %3, %4\n%6: f32 = add %5, arg2\n%7: bf16 = cast %6\nstore arg1[1:index], %7\n"
            "%8: f16 = load arg0[3:index]\n%9: f32 = cast %8\n%10: bf16 = cast %9\nstore arg1[2:index], %10\n"
            "%11: bf16 = load arg1[4:index]\n%12: f32 = cast %11\n%13: f32 = add %12, 1:f32\n%14: bf16 = cast %13\n"
            "store arg1[4:index], %14\n");
}

TEST(KernelLanguage, LoadsElementsWhenTheyAreEvaluated) {
  EXPECT_EQ(map_text([](Buffer<float> x) {
              auto before = x[0];
              x[0] = 2;
              x[1] = before;
            }),
            "%1: f32 = load arg0[0:index]\nstore arg0[0:index], 2:f32\nstore arg0[1:index], %1\n");
  // An element that is only assigned is not loaded.
  EXPECT_EQ(map_text([](Buffer<float> x, Buffer<int> n) {
              x[n[0]] = 1;
              auto unused = x[3];
              (void)unused;
            }),
            "%1: i32 = load arg1[0:index]\n%2: index = cast %1\nstore arg0[%2], 1:f32\n");
  EXPECT_EQ(
      map_text([](Buffer<float> x, Buffer<int> n) {
        x[0] -= x[1];
        n[0] <<= 2;
        x[2] = x[3];
      }),
      "%1: f32 = load arg0[0:index]\n%2: f32 = load arg0[1:index]\n%3: f32 = sub %1, %2\nstore arg0[0:index], %3\n"
      "%4: i32 = load arg1[0:index]\n%5: i32 = shl %4, 2:i32\nstore arg1[0:index], %5\n"
      "%6: f32 = load arg0[3:index]\nstore arg0[2:index], %6\n");
}

TEST(KernelLanguage, CopiesVariablesByValue) {
  EXPECT_EQ(map_text([](Buffer<float> x) {
              Var<float> a = x[0];
              Var<float> b = a;
              Var<float>& c = a;
              c += 1;
              b = a;
              x[1] = a * b;
            }),
            "%1: f32 = load arg0[0:index]\nstore local1[0:index], %1\n%2: f32 = load local1[0:index]\nstore "
            "local2[0:index], %2\n"
            "%3: f32 = load local1[0:index]\n%4: f32 = add %3, 1:f32\nstore local1[0:index], %4\n"
            "%5: f32 = load local1[0:index]\nstore local2[0:index], %5\n"
            "%6: f32 = load local1[0:index]\n%7: f32 = load local2[0:index]\n%8: f32 = mul %6, %7\nstore "
            "arg0[1:index], %8\n");
  // A variable in the body of a loop is initialised in each iteration. An array of variables works too.
  EXPECT_EQ(map_text([](Buffer<float> x) {
              for_(0, 3, [&](Val<Index> i) {
                Var<float> tile[2];
                for (auto& t : tile) t += x[i];
                ++tile[0];
                x[i] = max(tile[0], tile[1]);
              });
            }),
            "for i1 from 0:index to 3:index step 1:index\n"
            "  store local1[0:index], 0:f32\n  store local2[0:index], 0:f32\n"
            "  %1: f32 = load local1[0:index]\n  %2: f32 = load arg0[i1]\n  %3: f32 = add %1, %2\n  store "
            "local1[0:index], %3\n"
            "  %4: f32 = load local2[0:index]\n  %5: f32 = load arg0[i1]\n  %6: f32 = add %4, %5\n  store "
            "local2[0:index], %6\n"
            "  %7: f32 = load local1[0:index]\n  %8: f32 = add %7, 1:f32\n  store local1[0:index], %8\n"
            "  %9: f32 = load local1[0:index]\n  %10: f32 = load local2[0:index]\n  %11: f32 = max %9, %10\n"
            "  store arg0[i1], %11\n");
}

TEST(KernelLanguage, TracesControlFlow) {
  EXPECT_EQ(
      map_text([](Buffer<int> x, Val<int> n) {
        if_(
            n > 0 && x[0] != 2, [&] { x[1] = 1; }, [&] { x[2] = 2; });
        for_(n, n + 8, 2, [&](Val<int> i) { x[i] = i; });
        Var<int> left = n;
        while_([&] { return left > 0; }, [&] { left -= x[left]; });
        return_();
        x[0] = 9;  // removed, because it follows a return_
      }),
      "%1: i32 = load arg0[0:index]\n%2: bool = gt arg1, 0:i32\n%3: bool = ne %1, 2:i32\n%4: bool = and %2, %3\n"
      "if %4\n  store arg0[1:index], 1:i32\nelse\n  store arg0[2:index], 2:i32\n"
      "%5: i32 = add arg1, 8:i32\nfor i1 from arg1 to %5 step 2:i32\n  %6: index = cast i1\n  store arg0[%6], i1\n"
      "store local1[0:index], arg1\n"
      "while\n    %7: i32 = load local1[0:index]\n    %8: bool = gt %7, 0:i32\n  holds %8\n"
      "  %9: i32 = load local1[0:index]\n  %10: i32 = load local1[0:index]\n  %11: index = cast %10\n"
      "  %12: i32 = load arg0[%11]\n  %13: i32 = sub %9, %12\n  store local1[0:index], %13\n");
  // A C++ loop unrolls, a traced loop does not.
  auto unrolled = map_text([](Buffer<float> x) {
    for (int j = 0; j < 3; ++j) x[j] = 1;
  });
  EXPECT_EQ(unrolled, "store arg0[0:index], 1:f32\nstore arg0[1:index], 1:f32\nstore arg0[2:index], 1:f32\n");
  auto traced = map_text([](Buffer<float> x) { for_(0, 3, [&](auto j) { x[j] = 1; }); });
  EXPECT_EQ(traced, "for i1 from 0:index to 3:index step 1:index\n  store arg0[i1], 1:f32\n");
}

TEST(KernelLanguage, TracesFunctionsAndConversions) {
  EXPECT_EQ(
      map_text([](Buffer<float> x, Buffer<std::int32_t> n, Buffer<std::uint32_t> u, Val<Index> k) {
        x[0] = exp(x[1]) + pow(x[1], 2) + fma(x[1], 2, x[2]);
        x[3] = select(x[1] < 0, 0, x[1]);
        n[0] = select(k == 3, 1, 0);
        n[1] = cast<int>(k) + bitcast<int>(x[4]) + cast<std::int32_t>(abs(x[5]));
        n[2] = dot4(u[0], u[1], -5) + dot4_uu(u[0], 0x01010101u, n[2]);
        u[2] = popcount(u[3]) + clz(u[3]) + mul_hi(u[3], 3) + ~u[3];
        n[3] = -n[3];
      }),
      "%1: f32 = load arg0[1:index]\n%2: f32 = load arg0[1:index]\n%3: f32 = load arg0[1:index]\n%4: f32 = load "
      "arg0[2:index]\n"
      "%5: f32 = exp %1\n%6: f32 = pow %2, 2:f32\n%7: f32 = add %5, %6\n%8: f32 = fma %3, 2:f32, %4\n%9: f32 = add %7, "
      "%8\n"
      "store arg0[0:index], %9\n"
      "%10: f32 = load arg0[1:index]\n%11: f32 = load arg0[1:index]\n%12: bool = lt %10, 0:f32\n%13: f32 = select %12, "
      "0:f32, %11\n"
      "store arg0[3:index], %13\n"
      "%14: bool = eq arg3, 3:index\n%15: i32 = select %14, 1:i32, 0:i32\nstore arg1[0:index], %15\n"
      "%16: f32 = load arg0[4:index]\n%17: f32 = load arg0[5:index]\n%18: i32 = cast arg3\n%19: i32 = bitcast %16\n"
      "%20: i32 = add %18, %19\n%21: f32 = abs %17\n%22: i32 = cast %21\n%23: i32 = add %20, %22\nstore arg1[1:index], "
      "%23\n"
      "%24: u32 = load arg2[0:index]\n%25: u32 = load arg2[1:index]\n%26: u32 = load arg2[0:index]\n%27: i32 = load "
      "arg1[2:index]\n"
      "%28: i32 = dot4_ss %24, %25, -5:i32\n%29: i32 = dot4_uu %26, 16843009:u32, %27\n%30: i32 = add %28, %29\n"
      "store arg1[2:index], %30\n"
      "%31: u32 = load arg2[3:index]\n%32: u32 = load arg2[3:index]\n%33: u32 = load arg2[3:index]\n%34: u32 = load "
      "arg2[3:index]\n"
      "%35: u32 = popcount %31\n%36: u32 = clz %32\n%37: u32 = add %35, %36\n%38: u32 = mul_hi %33, 3:u32\n%39: u32 = "
      "add %37, %38\n"
      "%40: u32 = not %34\n%41: u32 = add %39, %40\nstore arg2[2:index], %41\n"
      "%42: i32 = load arg1[3:index]\n%43: i32 = neg %42\nstore arg1[3:index], %43\n");
}

TEST(KernelLanguage, TracesBlockOperationsSharedMemoryAndAtomics) {
  EXPECT_EQ(block_text([](Buffer<const float> x, Buffer<float> y, Buffer<int> count) {
              Shared<float> tile(64);
              auto t = thread_id();
              tile[t] = x.load_if(global_id() < x.size(), global_id(), 0);
              barrier();
              auto total = block_sum(tile[63 - t]);
              auto widest = subgroup_max(total);
              auto next = subgroup_shuffle_down(total, 1);
              auto before = block_scan_exclusive(t);
              auto some = block_any(total > 1);
              if_(some, [&] { y[before] = widest + next; });
              auto old = atomic_add(count, 0, 1);
              count[1] = old + old;
              atomic_max(count, 2, old);
              print("thread {} has {}", t, total);
            }),
            "%1: bool = lt global_id(0), arg0.size\n%2: f32 = load arg0[global_id(0)] if %1 else 0:f32\nstore "
            "shared1[thread_id(0)], %2\n"
            "barrier\n"
            "%3: index = sub 63:index, thread_id(0)\n%4: f32 = load shared1[%3]\n%5: f32 = block_sum %4\n%6: bool = gt "
            "%5, 1:f32\n"
            "%7: bool = block_or %6\n%8: index = block_scan_sum_exclusive thread_id(0)\n%9: f32 = subgroup_max %5\n"
            "%10: f32 = subgroup_shuffle_down %5, 1:index\n"
            "if %7\n  %11: f32 = add %9, %10\n  store arg1[%8], %11\n"
            "%12: i32 = atomic_add arg2[0:index], 1:i32\n%13: i32 = add %12, %12\nstore arg2[1:index], %13\n"
            "%14: i32 = atomic_max arg2[2:index], %12\nprint \"thread {} has {}\" thread_id(0), %5\n");
}

TEST(KernelLanguage, UnrollIsAPropertyOfTheLoop) {
  const auto loop = [](std::uint32_t rounds) {
    return kernel("loop",
                  [rounds](Buffer<float> x, Val<int> n) { for_(0, n, unroll(rounds), [&](Val<int> i) { x[i] = 1; }); });
  };
  const auto plain = kernel("loop", [](Buffer<float> x, Val<int> n) { for_(0, n, [&](Val<int> i) { x[i] = 1; }); });
  EXPECT_TRUE(holds(loop(4).text(), "for i1 from 0:i32 to arg1 step 1:i32 unroll 4\n")) << loop(4).text();
  EXPECT_FALSE(holds(plain.text(), "unroll"));
  EXPECT_EQ(loop(4).untyped().hash(), loop(4).untyped().hash());
  EXPECT_NE(loop(4).untyped().hash(), loop(5).untyped().hash());
  EXPECT_NE(loop(1).untyped().hash(), plain.untyped().hash());
  EXPECT_NE(ir::digest_of(loop(4).untyped().function()), ir::digest_of(plain.untyped().function()));
  EXPECT_TRUE(holds(map_text([](Buffer<float> x) { for_(1, 9, 2, unroll(64), [&](auto i) { x[i] = 1; }); }),
                    "step 2:index unroll 64\n"));
  for (const std::uint32_t rounds : {0u, 65u, ~0u}) {
    const int line = __LINE__ + 2;
    const std::string error =
        map_error([rounds](Buffer<float> x) { for_(0, 9, unroll(rounds), [&](auto i) { x[i] = 1; }); });
    EXPECT_TRUE(holds(error, "unroll(" + std::to_string(rounds) + ") of for_ is out of range")) << error;
    EXPECT_TRUE(holds(error, "Use 1 to 64") && holds(error, here(line))) << error;
  }
}

TEST(KernelLanguage, BlocksAtLeastIsALaunchBound) {
  const auto body = [](Buffer<float> x) {
    blocks_at_least(3);
    x[thread_id()] = 1.0f;
  };
  auto bounded = kernel("bounded", block(128), body);
  EXPECT_EQ(bounded.untyped().function().min_blocks, 3u);
  EXPECT_NE(bounded.text().find("blocks_at_least 3"), std::string::npos) << bounded.text();
  auto unbounded = kernel("bounded", block(128), [](Buffer<float> x) { x[thread_id()] = 1.0f; });
  EXPECT_NE(bounded.untyped().hash(), unbounded.untyped().hash());
  EXPECT_THROW(kernel("map", body), KernelError);
  EXPECT_THROW(kernel("zero", block(128), [](Buffer<float>) { blocks_at_least(0); }), KernelError);
}

TEST(KernelLanguage, TracesFunctionsOfFloatsAndBits) {
  EXPECT_EQ(map_text([](Buffer<float> x, Buffer<half> h, Buffer<bool> b) {
              x[0] = atan2(1, tan(x[0]));
              x[1] = hypot(round(x[1]), 2.5);
              x[2] = log10(sinh(asin(h[0])));
              b[0] = isnan(x[3]);
            }),
            "%1: f32 = load arg0[0:index]\n%2: f32 = tan %1\n%3: f32 = atan2 1:f32, %2\nstore arg0[0:index], %3\n"
            "%4: f32 = load arg0[1:index]\n%5: f32 = rint %4\n%6: f32 = hypot %5, 2.5:f32\nstore arg0[1:index], %6\n"
            "%7: f16 = load arg1[0:index]\n%8: f32 = cast %7\n%9: f32 = asin %8\n%10: f32 = sinh %9\n"
            "%11: f32 = log10 %10\nstore arg0[2:index], %11\n"
            "%12: f32 = load arg0[3:index]\n%13: bool = ne %12, %12\nstore arg2[0:index], %13\n");
  EXPECT_EQ(map_text([](Buffer<std::uint32_t> x) {
              x[0] = ctz(x[1]);
              atomic_xor(x, 2, 7);
              auto now = atomic_load(x, 3);
              x[4] = now;
            }),
            "%1: u32 = load arg0[1:index]\n%2: u32 = not %1\n%3: u32 = sub %1, 1:u32\n%4: u32 = and %2, %3\n"
            "%5: u32 = popcount %4\nstore arg0[0:index], %5\n%6: u32 = atomic_xor arg0[2:index], 7:u32\n"
            "%7: u32 = atomic_or arg0[3:index], 0:u32\nstore arg0[4:index], %7\n");
  EXPECT_EQ(map_text([](Buffer<double> x) {
              auto now = atomic_load(x, 0);
              x[1] = now;
            }),
            "%1: f64 = atomic_cas arg0[0:index], 0:f64, 0:f64\nstore arg0[1:index], %1\n");
}

TEST(KernelLanguage, TracesVectorsAndLocalArrays) {
  EXPECT_EQ(
      map_text([](Buffer<const float> x, Buffer<float> y) {
        auto v = x.load<4>(4 * global_id());
        y.store(0, Vec<float, 2>(v[3], 1));
        LocalArray<int> seen(8);
        seen[3] += 1;
        y[cast<Index>(seen[3])] = v[0];
      }),
      "%1: index = mul 4:index, global_id(0)\n%2: f32x4 = load arg0[%1]\n%3: f32 = extract %2, 3\n%4: f32x2 = vector "
      "%3, 1:f32\n"
      "store arg1[0:index], %4\n%5: i32 = load local1[3:index]\n%6: i32 = add %5, 1:i32\nstore local1[3:index], %6\n"
      "%7: i32 = load local1[3:index]\n%8: index = cast %7\n%9: f32 = extract %2, 0\nstore arg1[%8], %9\n");
}

// Returns the line of the first node with this operation.
int line_of(const ir::Function& fn, ir::Op op) {
  for (std::size_t i = 1; i < fn.nodes.size(); ++i)
    if (fn.nodes[i].op == op) return fn.sources[i].line;
  return -1;
}

// The tests below depend on line numbers.
// clang-format off
TEST(KernelLanguage, RecordsTheLineOfEachNode) {
  const int line = __LINE__;
  auto k = kernel("k", block(64), [](Buffer<float> x, Buffer<int> n, Val<float> f) {
    auto v = f * f;
    auto w =
        exp(v);

    x[0] =
        w;
    if_(n[0] > 1,
        [&] { n[1] = 5; });
    barrier();
    auto total = block_sum(f);
    x[1] = total;
    auto old = atomic_add(n, 2, 1);
    for_(0, old, [&](Val<int> i) {
      x[i] = 1;
    });
  });
  const ir::Function& fn = k.untyped().function();
  EXPECT_EQ(line_of(fn, ir::Op::binary), line + 2);
  EXPECT_EQ(line_of(fn, ir::Op::math), line + 4);
  EXPECT_EQ(line_of(fn, ir::Op::store), line + 6);
  EXPECT_EQ(line_of(fn, ir::Op::load), line + 8);
  EXPECT_EQ(line_of(fn, ir::Op::if_), line + 8);
  EXPECT_EQ(line_of(fn, ir::Op::barrier), line + 10);
  EXPECT_EQ(line_of(fn, ir::Op::block_reduce), line + 11);
  EXPECT_EQ(line_of(fn, ir::Op::atomic), line + 13);
  EXPECT_EQ(line_of(fn, ir::Op::for_), line + 14);
}

TEST(KernelLanguage, TracingErrorsContainKernelAndLine) {
  auto barrier_error = block_error([](Buffer<const float> x, Buffer<float> y) {
    if_(x[thread_id()] > 0, [&] {
      barrier();
    });
    y[0] = 1;
  });
  EXPECT_TRUE(holds(barrier_error, "[kernel wrong, " + here(__LINE__ - 4) + "] a barrier is inside if_ (" + here(__LINE__ - 5) + ")"));
  const std::string shared = map_error([](Buffer<float>) { Shared<float> tile(64); });
  EXPECT_TRUE(holds(shared, "[kernel wrong, " + here(__LINE__ - 1) + "] shared memory requires blocks"));
  EXPECT_TRUE(holds(map_error([](Buffer<float>) { barrier(); }), "a barrier requires blocks"));
  EXPECT_TRUE(holds(map_error([](Buffer<float> x) { x[thread_id()] = 1; }), "thread_id is not available in a map kernel"));
  EXPECT_TRUE(holds(map_error([](Buffer<float> x) { x[global_id(3)] = 1; }), "dimensions 0, 1 and 2"));
  const std::string large = message([] { kernel("large", block(64, 32), [](Buffer<float>) {}); });
  EXPECT_TRUE(holds(large, "[kernel large, " + here(__LINE__ - 1) + "] a block must have 1 to 1024 threads"));
  EXPECT_TRUE(holds(large, "64 x 32 x 1"));
  EXPECT_TRUE(holds(map_error([](Buffer<float>) { kernel("inner", [](Buffer<float>) {}); }), "kernel wrong is being traced"));
  EXPECT_TRUE(holds(message([] { barrier(); }), "used outside of a kernel"));
  auto escaped = map_error([](Buffer<float> x) {
    std::vector<Val<float>> kept;
    if_(x[0] > 0, [&] { kept.push_back(x[1]); });
    x[2] = kept[0];
  });
  EXPECT_TRUE(holds(escaped, "a value read inside an if_, for_ or while_ is used outside of it"));
  EXPECT_EQ(message([] { kernel("right", [](Buffer<float> x) { x[0] = 1; }); }), "no error");  // tracing still works after the errors
}
// clang-format on

// If a value is kept in a static variable or a capture, its id refers to a different node in the next trace.
template <class T, class F>
void expect_refused_elsewhere(const char* what, F&& use) {
  std::optional<T> kept;
  kernel("keeps", [&](Buffer<float> y) { use(kept, y); });  // allowed in the trace that created it
  ASSERT_TRUE(kept.has_value()) << what;
  const std::string text = test::text_of<KernelError>([&] { kernel("uses", [&](Buffer<float> y) { use(kept, y); }); });
  EXPECT_NE(text.find("uses"), std::string::npos) << what << ": " << text;
  EXPECT_NE(text.find("another kernel"), std::string::npos) << what << ": " << text;
}
Val<float> area(Val<float> r) {
  static const Val<float> pi = 3.14159274f;
  return pi * r * r;
}
TEST(KernelLanguage, RejectsValuesOfAnotherTrace) {
  kernel("first", [](Buffer<float> y) { y[global_id()] = area(y[global_id()]); });
  EXPECT_THROW(kernel("second", [](Buffer<float> y) { y[global_id()] = area(y[global_id()]); }), KernelError);
  expect_refused_elsewhere<Val<float>>("Val", [](auto& kept, Buffer<float>& y) {
    if (!kept) kept.emplace(y[0] + 1.f);
    y[1] = *kept;
  });
  expect_refused_elsewhere<Var<float>>("Var, read", [](auto& kept, Buffer<float>& y) {
    if (!kept) kept.emplace(1.f);
    y[1] = *kept;
  });
  expect_refused_elsewhere<Var<float>>("Var, written", [](auto& kept, Buffer<float>&) {
    if (!kept) kept.emplace(1.f);
    *kept = 2.f;
  });
  expect_refused_elsewhere<Buffer<float>>("Buffer, read", [](auto& kept, Buffer<float>& y) {
    if (!kept) kept.emplace(y);
    y[1] = (*kept)[0];
  });
  expect_refused_elsewhere<Buffer<float>>("Buffer, written", [](auto& kept, Buffer<float>& y) {
    if (!kept) kept.emplace(y);
    (*kept)[0] = 1.f;
  });
  expect_refused_elsewhere<Vec<float, 2>>("Vec", [](auto& kept, Buffer<float>& y) {
    if (!kept) kept.emplace(y.template load<2>(0));
    y.store(2, *kept);
  });
  expect_refused_elsewhere<Val<bool>>("condition", [](auto& kept, Buffer<float>& y) {
    if (!kept) kept.emplace(y[0] > 0.f);
    if_(*kept, [&] { y[0] = 1.f; });
  });
  expect_refused_elsewhere<Val<Index>>("index", [](auto& kept, Buffer<float>& y) {
    if (!kept) kept.emplace(global_id());
    y[*kept] = 1.f;
  });
  // The id may also exceed the number of nodes of the other trace.
  std::optional<Val<float>> last;
  kernel("long", [&](Buffer<float> y) {
    Var<float> sum = y[0];
    for (int i = 0; i < 1000; ++i) sum += y[i];
    last.emplace(sum + 1.f);
    y[0] = *last;
  });
  EXPECT_THROW(kernel("short", [&](Buffer<float> y) { y[0] = *last + 1.f; }), KernelError);
}

TEST(KernelLanguage, CallsHelperFunctions) {
  auto silu = [](auto x) { return x / (1 + exp(-x)); };
  struct Rows {
    Buffer<const float> data;
    Val<Index> width;
    Val<float> at(Val<Index> row, Val<Index> column) const { return data[row * width + column]; }
  };
  EXPECT_EQ(
      map_text([&](Buffer<const float> x, Buffer<float> y, Val<Index> n) {
        Rows rows{x, n};
        y[0] = silu(rows.at(2, global_id()));
      }),
      "%1: index = mul 2:index, arg2\n%2: index = add %1, global_id(0)\n%3: f32 = load arg0[%2]\n%4: f32 = neg %3\n"
      "%5: f32 = exp %4\n%6: f32 = add 1:f32, %5\n%7: f32 = div %3, %6\nstore arg1[0:index], %7\n");
}

TEST(KernelLanguage, RejectsLaunchArgumentsOutOfRange) {
  auto k = kernel("k", [](Val<std::int8_t> n, Val<std::uint32_t> u) { (void)n, (void)u; });
  EXPECT_TRUE(holds(message([&] { k.launch({1}, 200, 1); }),
                    "out of the range of its parameter (argument = 200, parameter = i8)"));
  EXPECT_TRUE(holds(message([&] { k.launch({1}, 1, -1); }), "(argument = -1, parameter = u32)"));
  EXPECT_TRUE(holds(message([&] { k.launch({1}, 1, 1ull << 63); }), "argument = 9223372036854775808"));
  EXPECT_TRUE(holds(message([&] { k.launch({-1}, 1, 1); }), "[launch k] an extent is negative (extent = -1)"));
  EXPECT_TRUE(holds(message([&] { k.launch(-2, 1, 1); }), "[launch k] an extent is negative (extent = -2)"));
  auto b = kernel("b", block(64), [](Val<std::int8_t> n) { (void)n; });
  EXPECT_TRUE(holds(message([&] { b.launch(blocks(3, -4), 1); }), "[launch b] an extent is negative (extent = -4)"));
  EXPECT_TRUE(holds(message([&] { b.launch(1, -200); }), "[launch b] a scalar argument is out of the range"));
}

}  // namespace

// User functions that have the names of rejected std functions.
namespace mine {
Val<float> fabs(Val<float> v) { return select(v < 0.0f, -v, v); }
Val<float> fmin(Val<float> a, Val<float> b) { return select(a < b, a, b); }
void print(Val<float>) {}
float block_sum(const std::vector<float>& all) {
  float sum = 0;
  for (const float x : all) sum += x;
  return sum;
}
TEST(KernelLanguage, PrefersUserFunctionsToRejectedStdFunctions) {
  const auto k = kernel("own", [](Buffer<float> x) {
    const auto i = global_id();
    Var<float> v = x[i];
    print(x[i]);
    x[i] = fabs(x[i]) + fabs(v) + fmin(x[i], x[i + 1]) + fmin(v, x[i]);
    const auto put = [&](Val<Index> j, Val<float> w) { return x[j] = w; };
    if_(x[i] > 0, [&] { return put(i, 1.0f); });
    if_(x[i] > 0, [&] { return v += 1.0f; });
  });
  EXPECT_NE(k.text().find("select"), std::string::npos) << k.text();
  std::vector<float> all = {1, 2};
  EXPECT_EQ(block_sum(all), 3);
}
}  // namespace mine

namespace {

TEST(KernelLanguage, IncrementsAndAssignmentsReturnValues) {
  EXPECT_EQ(map_text([](Buffer<int> n) {
              Var count = n[0];  // Var<int>
              auto before = count++;
              --count;
              n[1] = before;
              n[2]++;
              n[3] = --n[4];
              n[5] = n[6] = count;
            }),
            map_text([](Buffer<int> n) {
              Var<int> count = n[0];
              Val<int> before = count;
              count += 1;
              count -= 1;
              n[1] = before;
              n[2] += 1;
              auto less = n[4] - 1;
              n[4] = less;
              n[3] = less;
              auto last = count.get();
              n[6] = last;
              n[5] = last;
            }));
  EXPECT_TRUE(
      (std::is_same_v<decltype(Var(0.0)), Var<float>> && std::is_same_v<decltype(Var(1u)), Var<std::uint32_t>>));
}

TEST(KernelLanguage, IndexesTwoDimensionalMemory) {
  const auto text = [](auto f) { return kernel("k", block(64), f).text(); };
  EXPECT_EQ(text([](Buffer<float> x, Buffer<const int> row) {
              Shared<float> t(32, 33);
              LocalArray<int> l(2, 3);
              t(thread_id(), 1) = x[0];
              l(1, row[0]) = 2;
              x[1] = t(row[0], thread_id());
            }),
            text([](Buffer<float> x, Buffer<const int> row) {
              Shared<float> t(32 * 33);
              LocalArray<int> l(6);
              t[thread_id() * 33 + 1] = x[0];
              l[3 + cast<Index>(row[0])] = 2;
              x[1] = t[cast<Index>(row[0]) * 33 + thread_id()];
            }));
  EXPECT_TRUE(holds(message([&] {
                      text([](Buffer<float> x) {
                        Shared<float> t(64);
                        x[0] = t(1, 2);
                      });
                    }),
                    "this memory has one dimension, but is indexed by row and column. Declare it with two"));
  EXPECT_TRUE(holds(message([&] { text([](Buffer<float>) { Shared<float> t(0, 32); }); }),
                    "declared with 0 rows of 32 elements"));
}

TEST(KernelLanguage, RejectsIfWithEmptyBody) {
  const auto guard = [](auto then) {
    return message([&] {
      kernel("guards", [&](Buffer<float> x) {
        if_(global_id() >= x.size(), then);
        x[global_id()] = 1;
      });
    });
  };
  EXPECT_TRUE(holds(guard([] { return; }), "[kernel guards, "));
  EXPECT_TRUE(holds(guard([] { return; }), "the body of this if_ does nothing. `return` leaves only the body"));
  EXPECT_EQ(guard([] { return_(); }), "no error");
  EXPECT_TRUE(map_text([](Buffer<float> x) {
                if_(
                    x[0] > 0, [] {}, [&] { x[0] = 1; });
              }).size() > 0);
}

TEST(KernelLanguage, RejectsPrintFormatsThatDoNotMatchTheValues) {
  const auto refused = [](const char* format, auto... host) {
    return message([&] { kernel("says", [&](Buffer<float> x) { print(format, x[0], host...); }); });
  };
  EXPECT_EQ(refused("{}"), "no error");
  EXPECT_TRUE(holds(refused("{} {}"), "print's \"{} {}\" has 2 {} and 1 value. Write one {} or {:.n} per value"));
  EXPECT_TRUE(holds(refused("none"), "[kernel says, "));
  EXPECT_TRUE(holds(refused("{}", 3), "has 1 {} and 2 values"));
  EXPECT_TRUE(holds(refused("{:d}"), "has an unmatched brace"));
  EXPECT_TRUE(holds(refused("{:.18}"), "has an unmatched brace"));
  EXPECT_TRUE(holds(map_text([](Buffer<float> x) { print("{} {{}} {:.3} {} {} {}", 3, x[0], true, "a{b}", 0.1f); }),
                    "print \"3 {{}} {:.3} 1 a{{b}} 0.100000001\" %"));
}

}  // namespace
