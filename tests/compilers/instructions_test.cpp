// SPDX-License-Identifier: Apache-2.0
// Checks that operations become hardware instructions if these exist. Searches clang's assembly for AMD GPUs and the
// PTX of the code-generation module. For other compilers, searches the emitted text.
#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tessera/backend/common/codegen_module.h"
#include "tessera/emit/hip_for_clang.h"
#include "tests/compilers/emit_zoo.h"
#include "tests/matrix/matrix_products.h"
#include "tests/support/errors.h"

namespace tessera {
namespace {

using namespace ir;
using test::expect_contains;
namespace zoo = test::zoo;
namespace fs = std::filesystem;

Function dots() {
  return zoo::map_kernel("dots", [] {
    const BufferRef x = zoo::in("x", DType::u32), y = zoo::out("y", DType::i32);
    const Value i = global_id();
    for (int k = 0; k < 3; ++k)
      y.store(i * 3 + k, dot4(static_cast<Dot4Signs>(k), x.load(i), x.load(i + 1), y.load(i)));
  });
}
Function conversions(DType t) {
  return zoo::map_kernel("conversions", [&] {
    const BufferRef x = zoo::out("x", t), y = zoo::out("y");
    const Value i = global_id(), v = y.load(i);
    y.store(i, cast(DType::f32, x.load(i)));
    x.store(i, cast(t, v));
  });
}
/// Copies of the sign bit in the low `bits` bits.
Function sign_masks(int bits) {
  return zoo::map_kernel("sign_masks", [&] {
    const BufferRef x = zoo::out("x", DType::i64);
    const Value i = global_id(), v = x.load(i);
    x.store(i, (v >> 63) & ((std::int64_t{1} << (bits - 1)) - 1 + (std::int64_t{1} << (bits - 1))));
  });
}
Function sums() {
  return zoo::block_kernel("sums", {256, 1, 1}, [] {
    const BufferRef x = zoo::in("x"), y = zoo::out("y"), n = zoo::out("n", DType::i32);
    y.store(thread_id(), subgroup_sum(x.load(thread_id())));
    y.atomic(AtomicOp::add, 0, x.load(1));
    n.atomic(AtomicOp::max, 0, cast(DType::i32, x.load(2)));
  });
}
/// A product of fragments that are loaded from shared memory. Rows are aligned to 16 bytes, and no factor is
/// transposed.
Function aligned_product(DType t) { return test::matrix_case_kernel({t, false, false, false, true, false, 0, 40}, 64); }
std::string text_of(const std::vector<Function>& fns, const emit::Dialect& dialect) {
  return zoo::emitted(fns, dialect).text;
}
std::vector<Function> everything() {
  return {dots(),
          conversions(DType::f16),
          conversions(DType::bf16),
          sums(),
          test::matrix_words_kernel({true, false, 0, 20}, 64),
          zoo::full_fragment_product(DType::f16, false),
          zoo::full_fragment_product(DType::bf16, true),
          zoo::full_fragment_product(DType::f32, true)};
}
void expect_lacks(const std::string& text, std::initializer_list<const char*> words) {
  for (const char* word : words) EXPECT_EQ(text.find(word), text.npos) << word;
}

std::string amd_assembly(const std::string& architecture) {
  const fs::path stem = fs::temp_directory_path() / ("tessera-amd-" + std::to_string(::getpid()) + "-" + architecture);
  std::ofstream(stem.string() + ".hip") << emit::hip_for_clang << text_of(everything(), emit::hip_c_for(architecture));
  const std::string command =
      "clang-16 -x hip --cuda-device-only -nogpulib -nogpuinc -O3 -S --offload-arch=" + architecture + " '" +
      stem.string() + ".hip' -o '" + stem.string() + ".s' 2>&1";
  EXPECT_EQ(std::system(command.c_str()), 0) << architecture;
  std::ifstream in(stem.string() + ".s");
  std::string out{std::istreambuf_iterator<char>(in), {}};
  for (const char* end : {".hip", ".s"}) fs::remove(stem.string() + end);
  return out;
}

TEST(Instructions, AmdAssemblyUsesHardwareInstructions) {
  if (std::system("clang-16 --version > /dev/null 2>&1") != 0)
    GTEST_SKIP() << "passed by: clang-16 is not installed (script/bootstrap)";
  // "_i32_i8" matches v_dot4_i32_i8 and v_dot4c_i32_i8, which accumulates in place.
  const std::string mi100 = amd_assembly("gfx908");
  expect_contains(
      mi100, {"v_mfma_f32_16x16x16f16", "v_mfma_f32_16x16x8bf16", "v_mfma_f32_16x16x4f32", "v_mfma_i32_16x16x16i8",
              "_i32_i8", "v_dot4_u32_u8", "v_cvt_f32_f16", "v_cvt_f16_f32", "ds_bpermute_b32", "global_atomic_smax"});
  expect_lacks(mi100, {"scratch_store"});
  const std::string mi200 = amd_assembly("gfx90a");
  expect_contains(mi200, {"v_mfma_f32_16x16x16f16", "v_mfma_f32_16x16x16bf16_1k", "v_mfma_f32_16x16x4f32",
                          "v_mfma_i32_16x16x16i8", "_i32_i8", "v_dot4_u32_u8"});
  expect_contains(amd_assembly("gfx940"),
                  {"v_mfma_f32_16x16x16_f16", "v_mfma_f32_16x16x4_f32", "v_mfma_i32_16x16x32_i8"});
  const std::string rdna2 = amd_assembly("gfx1030");
  expect_contains(rdna2, {"_i32_i8", "v_dot4_u32_u8", "v_cvt_f32_f16", "v_cvt_f16_f32"});
  expect_lacks(rdna2, {"mfma", "wmma"});
  const std::string rdna3 = amd_assembly("gfx1100");
  expect_contains(rdna3, {"v_wmma_f32_16x16x16_f16", "v_wmma_f32_16x16x16_bf16", "v_wmma_i32_16x16x16_iu8",
                          "v_dot4_i32_iu8", "v_dot4_u32_u8"});
  const std::string vega = amd_assembly("gfx900");
  expect_lacks(vega, {"v_dot4", "mfma"});
}

TEST(Instructions, ModulePtxUsesHardwareInstructions) {
  static const cpu::PtxModule module = cpu::open_ptx_module();
  if (!module.generator) GTEST_SKIP() << "passed by: " << module.reason;
  const auto ptx = [&](const Function& fn, int capability) {
    const emit::Dialect dialect = emit::ptx_for(capability);
    const Function lowered = emit::lower(fn, emit::target_of(dialect, false));
    const emit::EmitRequest request{&lowered, true};
    const auto form = emit::emit_c(std::span(&request, 1), dialect).kernels[0];
    const cpu::PtxKernel kernel{&lowered, &form, true};
    std::string wrong;
    const std::string text = module.generator->compile(std::span(&kernel, 1), {capability, 78}, wrong);
    EXPECT_EQ(wrong, "");
    return text;
  };
  // Without a correction, LLVM 16 extracts a field that ends beyond the sign bit, and the result is zero.
  for (const int bits : {63, 40, 2}) {
    expect_contains(ptx(sign_masks(bits), 90), {"shr.s64", "and.b64"});
    expect_lacks(ptx(sign_masks(bits), 90), {"bfe.u64"});
  }
  const std::string half = ptx(aligned_product(DType::f16), 90);
  expect_contains(half, {"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
                         "ldmatrix.sync.aligned.m8n8.x4.shared.b16", "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16"});
  expect_lacks(half, {".local"});  // fragments must be in registers
  const std::string tf32 = ptx(aligned_product(DType::f32), 90);
  expect_contains(tf32, {"mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "cvt.rna.tf32.f32",
                         "ldmatrix.sync.aligned.m8n8.x4.shared.b16"});
  expect_lacks(tf32, {".local"});
  expect_lacks(ptx(zoo::full_fragment_product(DType::f32, false), 75), {"mma.sync"});
  expect_contains(ptx(zoo::full_fragment_product(DType::bf16, true), 80),
                  {"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"});
  expect_contains(ptx(zoo::full_fragment_product(DType::f16, false), 75),
                  {"mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"});
  expect_lacks(ptx(zoo::full_fragment_product(DType::bf16, false), 75), {"mma.sync"});
  expect_lacks(ptx(zoo::full_fragment_product(DType::f16, false), 70), {"mma.sync"});
  expect_contains(ptx(conversions(DType::bf16), 80), {"cvt.rn.bf16.f32"});
  expect_lacks(ptx(conversions(DType::bf16), 75), {"cvt.rn.bf16"});
  expect_contains(ptx(conversions(DType::f16), 75), {"cvt.f32.f16", "cvt.rn.f16.f32"});
  expect_contains(ptx(dots(), 75), {"dp4a.s32.s32", "dp4a.u32.s32", "dp4a.u32.u32"});
  expect_lacks(ptx(dots(), 60), {"dp4a"});
  expect_contains(ptx(sums(), 75), {"shfl.sync", "atom.global.add.f32", "atom.global.max.s32"});
}

TEST(Instructions, EmittedTextUsesHardwareInstructions) {
  const std::string ampere = text_of(everything(), emit::cuda_c_for(80));
  expect_contains(ampere,
                  {"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "mma.sync.aligned.m16n8k16.row.col.f32.bf16",
                   "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "cvt.rna.tf32.f32",
                   "ldmatrix.sync.aligned.m8n8.x4.shared.b16", "cvt.rn.f16.f32", "cvt.f32.f16", "cvt.rn.bf16.f32",
                   "dp4a.s32.s32", "__shfl_down_sync", "atomicAdd"});
  const std::string turing = text_of(everything(), emit::cuda_c_for(75));
  expect_contains(turing, {"mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", "dp4a.u32.u32"});
  expect_lacks(turing, {"m16n8k16", "bf16.f32", "tf32"});
  expect_lacks(text_of(everything(), emit::cuda_c_for(60)), {"mma.sync", "dp4a"});
  emit::Dialect intel = emit::opencl_c_intel();
  intel.dot4 = true;
  expect_contains(text_of(everything(), intel),
                  {"dot_4x8packed_ss_int", "dot_4x8packed_us_int", "dot_4x8packed_uu_uint", "vload_half",
                   "vstore_half_rte", "sub_group_reduce_add", "atomic_max"});
  const std::string plain = text_of(everything(), emit::opencl_c());
  expect_contains(plain, {"vload_half", "vstore_half_rte"});
  expect_lacks(plain, {"dot_4x8packed", "sub_group_"});
}

}  // namespace
}  // namespace tessera
