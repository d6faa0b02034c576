// SPDX-License-Identifier: Apache-2.0
// Tests that kernels read from text equal the kernels that were printed, and the messages for invalid text.
#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/ir/parse.h"
#include "tessera/ops/catalogue.h"
#include "tests/compilers/emit_zoo.h"

namespace tessera::ir {
namespace {

TEST(Parse, PrintedKernelsHaveTheSameHash) {
  std::size_t read = 0;
  const auto check = [&](const Function& fn) {
    const std::string text = to_text(fn);
    if (text.find("nan:") != text.npos) return;  // the payload of a NaN is not printed
    try {
      const Function again = parse(text);
      EXPECT_EQ(hash_of(again), hash_of(fn)) << text << "\n" << to_text(again);
      ++read;
    } catch (const Error& error) {
      ADD_FAILURE() << error.what() << "\n" << text;
    }
  };
  for (const CatalogueKernel& k : kernel_catalogue({Backend::cpu, 0})) check(k.function);
  for (const Function& fn : test::zoo::all()) check(fn);
  EXPECT_GT(read, 300u);
}

TEST(Parse, TakesNamesCommentsAndWindowsLines) {
  const Function fn = parse(
      "# y = a x + y\r\n"
      "kernel saxpy map\r\n"
      "  buffer x: f32 read\n"
      "  buffer y: f32 read_write\n"
      "  scalar a: f32\n"
      "\n"
      "  %x_i: f32 = load x[global_id(0)]\n"
      "  %y_i: f32 = load y[global_id(0)]\n"
      "  %product: f32 = mul a, %x_i\n"
      "  %sum: f32 = add %product, %y_i\n"
      "  store y[global_id(0)], %sum");
  EXPECT_EQ(hash_of(fn), hash_of(test::zoo::saxpy())) << to_text(fn);
  EXPECT_EQ(fn.name, "saxpy");
}

TEST(Parse, ReadsNestedControlFlow) {
  const char* const text =
      "kernel control block(8, 1, 1)\n"
      "  buffer out: i32 read_write\n"
      "  local1: i32[1]\n"
      "  for i from 0:index to 4:index step 1:index unroll 2\n"
      "    %1: i32 = cast i\n"
      "    %2: bool = lt %1, 2:i32\n"
      "    if %2\n"
      "      store local1[0:index], %1\n"
      "    else\n"
      "      while\n"
      "          %3: i32 = load local1[0:index]\n"
      "          %4: bool = gt %3, 0:i32\n"
      "        holds %4\n"
      "        %5: i32 = load local1[0:index]\n"
      "        %6: i32 = sub %5, 1:i32\n"
      "        store local1[0:index], %6\n"
      "  %7: i32 = load local1[0:index]\n"
      "  store out[global_id(0)], %7\n";
  const Function fn = parse(text);
  EXPECT_EQ(hash_of(parse(to_text(fn))), hash_of(fn));
  EXPECT_NE(to_text(fn).find("unroll 2"), std::string::npos);
}

TEST(Parse, BytesOfSharedMemorySaturate) {
  const auto bytes_of = [](std::initializer_list<std::pair<DType, std::uint64_t>> arrays) {
    Function fn;
    for (const auto& [dtype, count] : arrays) fn.nodes.push_back({.op = Op::shared, .type = {dtype}, .imm = count});
    return shared_bytes(fn);
  };
  const std::uint64_t large = std::uint64_t{1} << 62;
  EXPECT_EQ(bytes_of({{DType::f32, 3}, {DType::f64, 2}}), 32u);
  EXPECT_EQ(bytes_of({{DType::f32, 3}, {DType::f32, large}}), ~std::size_t{0}) << "the product overflows";
  EXPECT_EQ(bytes_of({{DType::f32, large - 4}, {DType::u8, large}}), ~std::size_t{0}) << "the sum overflows";
}

TEST(Parse, NumbersThatAreTooSmallBecomeZero) {
  const auto constant = [](const std::string& number) {
    const Function fn =
        parse("kernel k map\n  buffer y: f64 read_write\n  buffer x: f32 read_write\n  store " + number);
    for (const Node& n : fn.nodes)
      if (n.op == Op::constant && is_float(n.type.dtype)) return n.imm;
    return ~std::uint64_t{0};
  };
  EXPECT_EQ(constant("x[0:index], 1e-60:f32"), 0u);
  EXPECT_EQ(constant("x[0:index], -1e-60:f32"), 0x80000000u);
  EXPECT_EQ(constant("x[0:index], 0." + std::string(60, '0') + "123:f32"), 0u);
  EXPECT_EQ(constant("x[0:index], 1e-45:f32"), 1u) << "the smallest denormal number";
  EXPECT_EQ(constant("y[0:index], 12.5E-400:f64"), 0u);
  EXPECT_EQ(constant("y[0:index], 1e-99999999999999999999:f64"), 0u);
  for (const std::string& large :
       std::initializer_list<std::string>{"1e60:f32", "-1e60:f32", "1" + std::string(60, '0') + ".5e-1:f32",
                                          "1e+60:f32", "1e99999999999999999999:f32"})
    EXPECT_THROW(constant("x[0:index], " + large), KernelError) << large;
}

TEST(Parse, ErrorsNameTheLineAndTheCause) {
  const std::string start = "kernel k map\n  buffer x: f32 read\n  buffer y: f32 read_write\n";
  const std::pair<std::string, const char*> cases[] = {
      {"", "the text is empty"},
      {"kern k map", "expected 'kernel' before 'kern k map'"},
      {"kernel k warp", "expected a name, and 'map' or 'block(X, Y, Z)' before 'k warp'"},
      {"kernel k block(0, 1, 1)", "a block must have 1 to 1024 threads"},
      {"kernel k map fast", "'fast' is not expected here"},
      {"kernel k map\n  buffer x: f31 read", "'f31' is not a type"},
      {"kernel k map\n  buffer x: f32 write", "expected 'read' before 'write'"},
      {"kernel k map\n  scalar z: f32x4", "f32x4 is a vector, but a single element is required"},
      {"kernel k map\n  buffer x: f32x4 read", "f32x4 is a vector"},
      {"kernel k block(32, 1, 1)\n  shared1: f32x4[8]", "f32x4 is a vector"},
      {"kernel k block(32, 1, 1)\n  shared1: f32[4611686018427387904]", "must have 1 to 2^31 elements"},
      {"kernel k block(32, 1, 1)\n  shared1: f32[8] left", "'left' is not expected here"},
      {"kernel k block(32, 1, 1)\n  local1: f32[7] accumulator", "is declared as f32[256], not f32[7]"},
      {"kernel k block(32, 1, 1)\n  local1: f32x4[256] accumulator", "not f32x4[256]"},
      {"kernel k block(32, 1, 1)\n  local1: f32[256] middle", "'middle' is not a role of a matrix"},
      {start + "  store y[0:index], 1:f32x4", "f32x4 is a vector"},
      {start + "  buffer x: f32 read", "'x' is defined twice"},
      {start + "  %1: f32 = load z[0:index]", "[kernel text, line 4] 'z' is not defined"},
      {start + "  %1: f32 = load x[0]", "'0' is not defined"},
      {start + "  %1: f32 = lode x[0:index]", "there is no operation 'lode'"},
      {start + "  %1: i32 = load x[0:index]", "the result is f32, not i32"},
      {start + "  %1: f32 = add 1:f32", "the operation takes 2 operands, not 1"},
      {start + "  %1: f32 = add 1:f32, 2:i32", "operands of add have different types"},
      {start + "  %1: f32 = add 1:f32, 1e:f32", "'1e' is not a number of f32"},
      {start + "  store x[0:index], 1:f32", "text:4"},
      {start + "  store y[0:index], 1:f32 2", "'2' is not expected here"},
      {start + "  move y, x", "there is no statement 'move'"},
      {start + "  barrier\n", "barrier"},
      {start + "  if true\n    return\n   return", "the indentation differs"},
      {start + "  while\n      %1: bool = lt 1:i32, 2:i32\n", "no line 'holds CONDITION'"},
      {start + "  for i from 0:index to 4:index step 1:index\n    return\n  store y[i], 1:f32", "'i' is not defined"},
  };
  for (const auto& [text, message] : cases) {
    try {
      parse(text);
      ADD_FAILURE() << "no error for\n" << text;
    } catch (const KernelError& error) {
      EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what() << "\n" << text;
    }
  }
}

}  // namespace
}  // namespace tessera::ir
