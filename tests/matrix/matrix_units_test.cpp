// SPDX-License-Identifier: Apache-2.0
// Products of fragments by matrix units, tested without hardware. The emitted text runs lane by lane on this machine,
// and each instruction has its documented effect on the registers of the lanes. This tests which lane loads, multiplies
// and stores each element. It tests neither the documents themselves nor the accuracy of the sums in hardware.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <random>

#include "tessera/emit/c_emitter.h"
#include "tests/matrix/lanes.h"
#include "tests/matrix/matrix_products.h"

namespace tessera {
namespace {

using namespace ir;
using emit::MatrixUnits;

struct Unit {
  const char* name;
  emit::Dialect dialect;
  unsigned width;
  bool bf16, f32;
};
std::vector<Unit> units() {
  return {{"sm_75", emit::cuda_c_for(75), 32, false, false},
          {"sm_80", emit::cuda_c_for(80), 32, true, true},
          {"gfx908", emit::hip_c_for("gfx908"), 64, true, true},
          {"gfx90a", emit::hip_c_for("gfx90a:sramecc+:xnack-"), 64, true, true},
          {"gfx942", emit::hip_c_for("gfx942:sramecc+:xnack-"), 64, true, true},
          {"gfx1100", emit::hip_c_for("gfx1100"), 32, true, false}};
}

class MatrixUnitsRun : public ::testing::TestWithParam<std::size_t> {};

TEST_P(MatrixUnitsRun, LanesFollowInstructionLayout) {
  if (std::system("clang++-16 --version > /dev/null 2>&1") != 0)
    GTEST_SKIP() << "passed by: clang-16 is not installed (script/bootstrap)";
  const Unit unit = units()[GetParam()];
  std::mt19937 random(test::matrix_seed());
  test::executed = {};
  const std::vector<test::MatrixCase> cases = test::matrix_cases(unit.bf16, unit.f32);
  std::vector<Function> lowered;
  lowered.reserve(cases.size());
  std::vector<emit::EmitRequest> requests;
  for (const test::MatrixCase& c : cases) {
    const Function fn = test::matrix_case_kernel(c, 2 * unit.width);
    emit::Target target = emit::target_of(unit.dialect, c.index64);
    target.max_shared_bytes = 64 << 10;
    ASSERT_TRUE(emit::keeps_fragments(fn, target));
    lowered.push_back(emit::lower(fn, target));
    requests.push_back({&lowered.back(), true});
  }
  const emit::EmittedSource source = emit::emit_c(requests, unit.dialect);
  std::vector<std::string> entries;
  for (const emit::EmittedKernel& kernel : source.kernels) {
    ASSERT_EQ(kernel.arguments.size(), 4u) << kernel.text;
    entries.push_back(kernel.entry);
  }
  const test::CompiledText text(source.text, unit.width, entries, 4);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    test::MatrixRun run(cases[i], emit::rounds_factors_to_tf32(unit.dialect.matrix), random);
    test::Lanes lanes(2 * unit.width, unit.width, test::execute);
    lanes.run([&] { text.run(entries[i], {run.a.data(), run.b.data(), run.start.data(), run.out.data()}); });
    run.check();
    if (HasFatalFailure()) return;
  }
  const auto ran = [&](int i) { return test::executed[static_cast<std::size_t>(i)] > 0; };
  const bool nvidia = unit.dialect.language == emit::Language::cuda;
  EXPECT_EQ(ran(test::ldmatrix), nvidia);
  EXPECT_EQ(ran(test::ldmatrix_trans), nvidia);
  const MatrixUnits m = unit.dialect.matrix;
  EXPECT_EQ(ran(test::m16n8k8_f16), m == MatrixUnits::mma_k8);
  EXPECT_EQ(ran(test::m16n8k16_f16) && ran(test::m16n8k16_bf16), m == MatrixUnits::mma_k16);
  EXPECT_EQ(ran(test::m16n8k8_tf32), m == MatrixUnits::mma_k16);
  EXPECT_EQ(ran(test::mfma_16x16x4_f32), unit.width == 64);
  EXPECT_EQ(ran(test::mfma_16x16x16_f16), m != MatrixUnits::wmma && !nvidia);
  EXPECT_EQ(ran(test::mfma_16x16x8_bf16), m == MatrixUnits::mfma);
  EXPECT_EQ(ran(test::mfma_16x16x16_bf16), m == MatrixUnits::mfma_1k || m == MatrixUnits::mfma_k32);
  EXPECT_EQ(ran(test::wmma_f16) && ran(test::wmma_bf16), m == MatrixUnits::wmma);
}
TEST_P(MatrixUnitsRun, ProductsOfBytesAreExact) {
  if (std::system("clang++-16 --version > /dev/null 2>&1") != 0)
    GTEST_SKIP() << "passed by: clang-16 is not installed (script/bootstrap)";
  const Unit unit = units()[GetParam()];
  const MatrixUnits m = unit.dialect.matrix;
  std::mt19937 random(test::matrix_seed());
  test::executed = {};
  for (const test::MatrixWordsCase& c : test::matrix_words_cases()) {
    const Function fn = test::matrix_words_kernel(c, 2 * unit.width);
    emit::Target target = emit::target_of(unit.dialect, c.index64);
    target.max_shared_bytes = 64 << 10;
    ASSERT_EQ(emit::keeps_fragments(fn, target), m != MatrixUnits::mma_k8);
    if (m == MatrixUnits::mma_k8) return;  // products become loops
    const Function lowered = emit::lower(fn, target);
    const emit::EmittedSource source = emit::emit_c(std::array{emit::EmitRequest{&lowered, true}}, unit.dialect);
    const test::CompiledText text(source.text, unit.width, {source.kernels[0].entry}, 3);
    test::MatrixWordsRun run(c, random);
    test::Lanes lanes(2 * unit.width, unit.width, test::execute);
    lanes.run([&] { text.run(source.kernels[0].entry, {run.a.data(), run.b.data(), run.out.data()}); });
    run.check();
    if (HasFatalFailure()) return;
  }
  const auto ran = [&](int i) { return test::executed[static_cast<std::size_t>(i)] > 0; };
  EXPECT_EQ(ran(test::m16n8k32_i8), m == MatrixUnits::mma_k16);
  EXPECT_EQ(ran(test::mfma_16x16x16_i8), m == MatrixUnits::mfma || m == MatrixUnits::mfma_1k);
  EXPECT_EQ(ran(test::mfma_16x16x32_i8), m == MatrixUnits::mfma_k32);
  EXPECT_EQ(ran(test::wmma_i8), m == MatrixUnits::wmma);
}
TEST_P(MatrixUnitsRun, LanesAccessTheirElementsAndRows) {
  if (std::system("clang++-16 --version > /dev/null 2>&1") != 0)
    GTEST_SKIP() << "passed by: clang-16 is not installed (script/bootstrap)";
  const Unit unit = units()[GetParam()];
  std::mt19937 random(test::matrix_seed());
  for (const DType t : {DType::f16, DType::bf16}) {
    if (t == DType::bf16 && !unit.bf16) continue;
    const Function fn = test::matrix_elements_kernel(t, 2 * unit.width);
    const emit::Target target = emit::target_of(unit.dialect, false);
    ASSERT_TRUE(emit::keeps_fragments(fn, target));
    const Function lowered = emit::lower(fn, target);
    const emit::EmittedSource source = emit::emit_c(std::array{emit::EmitRequest{&lowered, true}}, unit.dialect);
    const test::CompiledText text(source.text, unit.width, {source.kernels[0].entry}, 3);
    test::MatrixElementsRun run(t, random);
    test::Lanes lanes(2 * unit.width, unit.width, test::execute);
    lanes.run([&] { text.run(source.kernels[0].entry, {run.b.data(), run.start.data(), run.out.data()}); });
    run.check();
    if (HasFatalFailure()) return;
  }
}
INSTANTIATE_TEST_SUITE_P(All, MatrixUnitsRun, ::testing::Range(std::size_t{0}, units().size()),
                         [](const auto& info) { return std::string(units()[info.param].name); });

TEST(MatrixUnits, AreUsedIfPresentAndBlocksConsistOfWholeSubgroups) {
  const auto keeps = [](const emit::Dialect& d, DType t, std::uint32_t threads) {
    return emit::keeps_fragments(test::matrix_case_kernel({t, false, false, false, false, false, 0, 40}, threads),
                                 emit::target_of(d, false));
  };
  EXPECT_FALSE(keeps(emit::cuda_c_for(70), DType::f16, 64));
  EXPECT_TRUE(keeps(emit::cuda_c_for(75), DType::f16, 64));
  EXPECT_FALSE(keeps(emit::cuda_c_for(75), DType::bf16, 64));
  EXPECT_TRUE(keeps(emit::cuda_c_for(86), DType::bf16, 96));
  EXPECT_FALSE(keeps(emit::cuda_c_for(90), DType::f16, 80)) << "its last subgroup is incomplete";
  EXPECT_FALSE(keeps(emit::cuda_c_for(75), DType::f32, 64));
  EXPECT_TRUE(keeps(emit::cuda_c_for(80), DType::f32, 64));
  EXPECT_TRUE(keeps(emit::hip_c_for("gfx908"), DType::bf16, 64));
  EXPECT_TRUE(keeps(emit::hip_c_for("gfx942"), DType::f32, 64));
  EXPECT_FALSE(keeps(emit::hip_c_for("gfx90a"), DType::f16, 96)) << "wavefronts of 64";
  EXPECT_TRUE(keeps(emit::hip_c_for("gfx1101"), DType::f16, 96));
  EXPECT_FALSE(keeps(emit::hip_c_for("gfx1101"), DType::f32, 96));
  for (const char* none : {"gfx906", "gfx1030", "gfx1200", ""})
    EXPECT_FALSE(keeps(emit::hip_c_for(none), DType::f16, 64)) << none;
  for (const emit::Dialect& d : {emit::opencl_c(), emit::opencl_c_intel(), emit::cuda_c(), emit::hip_c()})
    EXPECT_FALSE(keeps(d, DType::f16, 64)) << d.name;
}

}  // namespace
}  // namespace tessera
