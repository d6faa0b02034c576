// SPDX-License-Identifier: Apache-2.0
// Tests that node_table_test does not contain: conversions of all 16-bit floats, and the text that kernels print.
#include "tests/opencl/opencl_fixture.h"

#include <bit>
#include <cstring>
#include <limits>
#include <random>

#include "tessera/ir/interpreter.h"
#include "tessera/ir/semantics.h"

namespace tessera::test {
namespace {

using namespace ir;

template <class T>
bool same(T x, T y) {
  if constexpr (std::is_floating_point_v<T>) {
    if (x != x || y != y) return x != x && y != y;
    return std::memcmp(&x, &y, sizeof x) == 0 || (x == y && x == 0);  // min and max may return 0 or -0
  } else {
    return x == y;
  }
}

class Semantics : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!device()) GTEST_SKIP() << "this machine has no OpenCL device (Debian: pocl-opencl-icd)";
  }
};

TEST_F(Semantics, ConvertsAll16BitFloats) {
  for (const DType type : {DType::f16, DType::bf16}) {
    const Function fn = map_kernel("halves", [&] {
      const BufferRef h = buffer_param("h", type, Access::read), f = buffer_param("f", DType::f32, Access::read_write);
      const BufferRef g = buffer_param("g", DType::f32, Access::read),
                      back = buffer_param("back", type, Access::read_write);
      f.store(global_id(), cast(DType::f32, h.load(global_id())));
      back.store(global_id(), g.load(global_id()));
    });
    std::mt19937_64 random(test_seed());
    std::vector<std::uint16_t> h(65536);
    std::vector<float> g(65536);
    for (std::size_t i = 0; i < h.size(); ++i) {
      h[i] = static_cast<std::uint16_t>(i);
      g[i] = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
      if (i % 2)
        g[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(half_value(static_cast<std::uint16_t>(random()))) +
                                    0x1000u + static_cast<std::uint32_t>(random() % 3) - 1u);
    }
    const Memory<std::uint16_t> dh(h), back(h.size());
    const Memory<float> dg(g), f(h.size());
    run(fn, {h.size(), 1, 1}, {dh.argument(), f.argument(), dg.argument(), back.argument()});
    const auto got = f.read();
    const auto bits = back.read();
    for (std::size_t i = 0; i < h.size(); ++i) {
      ASSERT_TRUE(same(got[i], type == DType::f16 ? half_value(h[i]) : bfloat16_value(h[i])))
          << dtype_name(type) << " " << h[i];
      const std::uint16_t right = type == DType::f16 ? half_bits(g[i]) : bfloat16_bits(g[i]);
      const float x = type == DType::f16 ? half_value(bits[i]) : bfloat16_value(bits[i]),
                  y = type == DType::f16 ? half_value(right) : bfloat16_value(right);
      ASSERT_TRUE(same(x, y)) << dtype_name(type) << " of " << g[i];
    }
  }
}

// Covers NaN with both signs, and floats with all digits and with few digits.
TEST_F(Semantics, PrintsTheSameTextAsTheInterpreter) {
  const Function fn = map_kernel("say", [] {
    const BufferRef x = buffer_param("x", DType::f32, Access::read_write);
    const Value v = x.load(global_id());
    print("value {} of 100% at \"{}\" {{{}}} {:.3}", {v, global_id(), v > 1.0f, v});
    x.store(global_id(), 1.0);
  });
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {0.5f, 0.1f, -1234567.0f, 1e-30f, nan, -nan, inf, -inf, -0.0f, 3.0f};
  for (float v : values) {
    std::vector<float> one = {v};
    InterpreterOptions options;
    std::string expected;
    options.print = [&](std::string_view line) { expected.append(line) += '\n'; };
    interpret(fn, {1, 1, 1}, std::vector<InterpreterArgument>{{reinterpret_cast<std::byte*>(one.data()), 1, 0}},
              options);
    const Memory<float> x(std::vector<float>{v});
    ::testing::internal::CaptureStdout();
    run(fn, {1, 1, 1}, {x.argument()});
    EXPECT_EQ(::testing::internal::GetCapturedStdout(), expected) << v;
  }
}

}  // namespace
}  // namespace tessera::test
