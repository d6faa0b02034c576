// SPDX-License-Identifier: Apache-2.0
// Reports about kernels for GPUs that are not in this machine: the parsers of assembly, the model, and reports by
// compilers that are installed.
#include <gtest/gtest.h>

#include <string>

#include "tessera/array/functions.h"
#include "tessera/base/error.h"
#include "tessera/kernel/buffer.h"
#include "tessera/kernel/kernel.h"
#include "tessera/report/assembly.h"
#include "tessera/report/model.h"
#include "tessera/report/report.h"

namespace tessera {
namespace {

using namespace reporting;

/// One SASS instruction as `nvdisasm -hex` prints it. `writes` is the barrier that a load releases (7: none), and
/// `waits` is the mask of barriers that it waits for.
std::string sass(const std::string& text, unsigned writes = 7, unsigned waits = 0) {
  const std::uint64_t control = std::uint64_t{writes} << 46 | std::uint64_t{7} << 49 | std::uint64_t{waits} << 52;
  char high[32];
  std::snprintf(high, sizeof high, "0x%016llx", static_cast<unsigned long long>(control));
  return "        /*0000*/                   " + text + " ;         /* 0x0000000000007918 */\n" +
         "                                                        /* " + high + " */\n";
}

TEST(Sass, GroupsOfLoadsAreSeparatedByWaits) {
  const std::string text = sass("LDC R1, c[0x0][0x28]") + ".L_x_0:\n" +
                           sass("LDG.E.64.CONSTANT R2, desc[UR6][R4.64]", 0) +
                           sass("LDG.E.U16 R6, desc[UR6][R8.64]", 1) + sass("IMAD R2, R2, R2, RZ", 7, 1) +
                           sass("LDG.E R7, desc[UR6][R8.64+0x4]", 2) + sass("FADD R7, R7, R6", 7, 6) +
                           sass("@P0 BRA `(.L_x_0)") + sass("STG.E.128 desc[UR6][R4.64], R8") + sass("EXIT");
  const LoadPattern p = load_pattern(parse_sass(text));
  EXPECT_TRUE(p.loop);
  EXPECT_EQ(p.instructions, 6u);
  EXPECT_EQ(p.groups, 2u);
  EXPECT_EQ(p.widest, 8u);
  EXPECT_EQ(p.narrowest, 2u);
  EXPECT_EQ(p.widest_store, 16u);
  EXPECT_EQ(p.bytes_in_flight, 10u);  // the first group; later 2 + 4
}

TEST(Sass, LoadsOfTheNextIterationAreInFlight) {
  // The load for the next iteration is issued before the wait for the one of this iteration.
  const std::string text = sass("LDG.E.128 R4, desc[UR6][R2.64]", 0) + ".L_x_1:\n" +
                           sass("LDG.E.128 R8, desc[UR6][R2.64]", 1) + sass("FADD R0, R0, R4", 7, 1) +
                           sass("LDG.E.128 R4, desc[UR6][R2.64]", 0) + sass("FADD R0, R0, R8", 7, 2) +
                           sass("@P1 BRA `(.L_x_1)") + sass("EXIT");
  const LoadPattern p = load_pattern(parse_sass(text));
  EXPECT_EQ(p.groups, 2u);
  EXPECT_EQ(p.bytes_in_flight, 32u);
}

TEST(Sass, WithoutLoopsTheWholeKernelIsExamined) {
  const LoadPattern p =
      load_pattern(parse_sass(sass("LDG.E R0, desc[UR4][R2.64]", 0) + sass("LDG.E R1, desc[UR4][R4.64]", 0) +
                              sass("HMMA.16816.F32 R4, R8, R6, R4", 7, 1) + sass("STG.E desc[UR4][R2.64], R0")));
  EXPECT_FALSE(p.loop);
  EXPECT_EQ(p.groups, 1u);
  EXPECT_EQ(p.bytes_in_flight, 8u);
  EXPECT_EQ(p.matrix_instructions, 1u);
  EXPECT_EQ(load_pattern({}).widest, 0u);
}

TEST(Amdgcn, WaitcntSeparatesGroups) {
  const LoadPattern p =
      load_pattern(parse_amdgcn("kernel:                                 ; @kernel\n"
                                "\ts_load_dwordx4 s[0:3], s[4:5], 0x0\n"
                                ".LBB0_1:                                ; %loop\n"
                                "\tglobal_load_dwordx4 v[0:3], v[8:9], off\n"
                                "\tglobal_load_ushort v4, v[8:9], off offset:16\n"
                                "\ts_waitcnt vmcnt(1)\n"
                                "\tv_add_f32_e32 v5, v0, v5\n"
                                "\tglobal_load_dword v6, v[8:9], off\n"
                                "\ts_waitcnt vmcnt(0)\n"
                                "\ts_cbranch_scc1 .LBB0_1\n"
                                "\tglobal_store_dwordx2 v[8:9], v[0:1], off\n"
                                "\ts_endpgm\n"));
  EXPECT_TRUE(p.loop);
  EXPECT_EQ(p.groups, 2u);
  EXPECT_EQ(p.widest, 16u);
  EXPECT_EQ(p.narrowest, 2u);
  EXPECT_EQ(p.widest_store, 8u);
  EXPECT_EQ(p.bytes_in_flight, 18u);
}

GpuModel h200() {
  return {.name = "NVIDIA H200",
          .multiprocessors = 132,
          .bandwidth = 4.8e12,
          .operations = 132 * 128 * 1.98e9,
          .matrix_operations = 494.7e12,
          .clock = 1.98e9,
          .shared_bytes = 228 << 10,
          .shared_reserved = 1024};
}

TEST(LaunchModel, PredictsTheExamplesOfItsDescription) {
  // A product of one row and 4096 x 4096 weights in Q8_0: 17.8 MB, 128 blocks of 128 threads, 22 bytes in flight.
  LaunchReport l;
  l.blocks = {128, 1, 1}, l.threads = 128, l.bytes = 17.8e6;
  predict(l, h200(), 16, 22, {});
  EXPECT_NEAR(l.latency_factor, 0.14, 0.005);
  EXPECT_NEAR(l.seconds * 1e6, 31, 1);
  EXPECT_EQ(l.bound, Bound::latency);
  l.threads = 512;
  predict(l, h200(), 4, 34, {});
  EXPECT_NEAR(l.latency_factor, 0.86, 0.01);  // 128 blocks on 132 multiprocessors
  EXPECT_NEAR(l.seconds * 1e6, 6.8, 0.1);
  // A large copy is bound by the bandwidth, and an empty launch by the launch.
  l.blocks = {1 << 20, 1, 1}, l.threads = 256, l.bytes = 2e9;
  predict(l, h200(), 8, 16, {});
  EXPECT_EQ(l.bound, Bound::bandwidth);
  EXPECT_NEAR(l.share, 1, 0.01);
  l.bytes = 4;
  predict(l, h200(), 8, 16, {});
  EXPECT_EQ(l.bound, Bound::launch);
  l.operations = 1e12;
  predict(l, h200(), 8, 16, {});
  EXPECT_EQ(l.bound, Bound::arithmetic);
}

TEST(Sass, AsynchronousCopiesAreInFlightUntilTheirGroupIsWaitedFor) {
  // Two groups are in flight when a third starts, and one when the wait ends.
  const LoadPattern p = load_pattern(
      parse_sass(".L_x_1:\n" + sass("DEPBAR.LE SB0, 0x2", 7) + sass("LDGSTS.E.BYPASS.128 [R5], desc[UR4][R2.64]", 0) +
                 sass("LDGSTS.E.64 [R6], desc[UR4][R4.64]", 0) + sass("LDGDEPBAR", 7) +
                 sass("LDSM.16.M88.4 R8, [R20]", 1) + sass("LDS.64 R12, [R21]", 1) +
                 sass("HMMA.16816.F32 R4, R8, R6, R4", 7, 2) + sass("@P0 BRA `(.L_x_1)", 7) + sass("EXIT", 7)));
  EXPECT_TRUE(p.loop);
  EXPECT_EQ(p.bytes, 24u);
  EXPECT_EQ(p.groups, 1u);
  EXPECT_EQ(p.bytes_in_flight, 72u);
  EXPECT_EQ(p.matrix.instructions, 8u);
  EXPECT_EQ(p.matrix.matrix, 1u);
  EXPECT_EQ(p.matrix.multiply_adds, 2048u);
  EXPECT_EQ(p.matrix.shared_bytes, 48u);
}

TEST(Sass, MatrixInstructionsOfF32CountAsF16OfTheSameTime) {
  const auto multiply_adds = [](const auto& code) { return code.at(0).multiply_adds; };
  EXPECT_EQ(multiply_adds(parse_sass(sass("HMMA.1688.F32 R4, R8, R6, R4", 7))), 1024u);
  EXPECT_EQ(multiply_adds(parse_sass(sass("HMMA.1688.F32.TF32 R4, R8, R6, R4", 7))), 2048u);
  const auto amd = [&](const char* name) {
    return multiply_adds(parse_amdgcn("kernel:                                 ; @kernel\n\t" + std::string(name) +
                                      " a[0:3], v0, v1, a[0:3]\n"));
  };
  EXPECT_EQ(amd("v_mfma_f32_16x16x4f32"), 4096u);
  EXPECT_EQ(amd("v_mfma_f32_16x16x4_f32"), 8192u) << "on gfx94x, f16 is twice as fast";
}

TEST(LaunchModel, MatrixInstructionsAreLimitedByIssueAndSharedMemory) {
  LaunchReport l;
  l.blocks = {1024, 1, 1}, l.threads = 256, l.bytes = 1e8, l.matrix_operations = 4096.0 * 4096 * 4096;
  LoopReport loop;
  loop.matrix_multiply_adds = 32 * 2048;  // 138.5 cycles at the full rate
  const auto share = [&](std::uint32_t instructions, std::uint32_t shared_bytes) {
    loop.matrix_loop_instructions = instructions, loop.matrix_shared_bytes = shared_bytes;
    predict(l, h200(), 2, 128, loop);
    return l.matrix_share;
  };
  EXPECT_NEAR(share(100, 100), 0.62, 0.01);   // mma.sync
  EXPECT_NEAR(share(554, 100), 0.25, 0.005);  // four instructions for each cycle of the products
  EXPECT_NEAR(share(100, 554), 0.25, 0.005);  // a subgroup loads 32 bytes for each
}

TEST(LaunchModel, RegistersAndSharedMemoryLimitBlocks) {
  EXPECT_EQ(blocks_that_fit(h200(), 256, 32, 0), 8u);
  EXPECT_EQ(blocks_that_fit(h200(), 256, 33, 0), 6u);  // 40 registers: 12 warps for each of four register files
  EXPECT_EQ(blocks_that_fit(h200(), 256, 255, 0), 1u);
  EXPECT_EQ(blocks_that_fit(h200(), 16, 32, 0), 32u);  // at most 32 blocks
  EXPECT_EQ(blocks_that_fit(h200(), 128, 32, 100 << 10), 2u);
}

TEST(Report, RejectsUnknownArchitectures) {
  for (const char* name : {"sm_1", "gfx000", "riscv", ""}) {
    try {
      report_launches({name}, [](Device) { FAIL() << "must not run"; });
      FAIL() << name;
    } catch (const DeviceError& e) {
      EXPECT_NE(std::string(e.what()).find("not known"), std::string::npos) << e.what();
    }
  }
}

/// The targets whose compilers are installed.
std::vector<ReportTarget> targets() {
  std::vector<ReportTarget> all;
  for (const ReportTarget& t :
       {ReportTarget{"gfx90a"}, ReportTarget{"gfx1100"}, ReportTarget{"sm_90", TargetCompiler::vendor},
        ReportTarget{"sm_90", TargetCompiler::ptx}}) {
    try {
      report_launches(t, [](Device) {});
      all.push_back(t);
    } catch (const DeviceError& e) {
      std::printf("not installed: %s\n", e.what());
    }
  }
  return all;
}

TEST(Report, ReadsLoadsOfAKernel) {
  auto wide = kernel("wide_sum", block(64), [](Buffer<const float> x, Buffer<float> y) {
    Var<float> sum = 0.0f;
    for_(thread_id(), x.size(), 64, [&](auto i) { sum = sum + x[i]; });
    y[block_id() * 64 + thread_id()] = sum;
  });
  for (const ReportTarget& target : targets()) {
    const KernelReport r = report(wide.untyped(), target);
    SCOPED_TRACE(to_string(r));
    EXPECT_EQ(r.kernel, "wide_sum");
    EXPECT_EQ(r.threads, 64u);
    EXPECT_GT(r.registers, 4u);
    EXPECT_EQ(r.spilled_bytes, 0u);
    EXPECT_GT(r.occupancy, 0.4);
    if (!r.loops) continue;
    EXPECT_TRUE(r.loops->loop);
    EXPECT_EQ(r.loops->narrowest, 4u);
    EXPECT_GE(r.loops->bytes_in_flight, 4u);
    EXPECT_FALSE(r.launch);
  }
}

TEST(Report, UnrolledLoopsHaveMoreLoadsInFlight) {
  const auto dot = [](std::optional<std::uint32_t> rounds) {
    return kernel("dot_" + std::to_string(rounds.value_or(0)), block(64),
                  [rounds](Buffer<const float> x, Buffer<const float> w, Buffer<float> y, Val<Index> width) {
                    Var<float> sum = 0.0f;
                    const auto add = [&](Val<Index> i) { sum = sum + x[i] * w[i]; };
                    rounds ? for_(thread_id(), width, 64, unroll(*rounds), add) : for_(thread_id(), width, 64, add);
                    y[block_id() * 64 + thread_id()] = sum;
                  });
  };
  for (const ReportTarget& target : targets()) {
    const KernelReport one = report(dot(1).untyped(), target), eight = report(dot(8).untyped(), target);
    SCOPED_TRACE(to_string(one) + to_string(report(dot({}).untyped(), target)) + to_string(eight));
    if (!one.loops) continue;
    EXPECT_EQ(one.loops->bytes_in_flight, 8u);
    EXPECT_EQ(eight.loops->bytes_in_flight, 64u);
    EXPECT_EQ(eight.loops->groups, 1u);
  }
}

TEST(Report, AlignedVectorsAreOneAccess) {
  auto copy = kernel("copy_groups", [](Buffer<const float> x, Buffer<float> y) {
    aligned_vectors();
    auto i = global_id() * 4;
    auto v = x.load<4>(i);
    y.store(i, Vec<float, 4>(v[3], v[2], v[1], v[0]));
  });
  for (const ReportTarget& target : targets()) {
    const KernelReport r = report(copy.untyped(), target);
    SCOPED_TRACE(to_string(r));
    if (!r.loops) continue;
    EXPECT_EQ(r.loops->widest, 16u);
    EXPECT_EQ(r.loops->narrowest, 16u);
    EXPECT_EQ(r.loops->widest_store, 16u);
    const auto launches = report_launches(target, [&](Device gpu) {
      DeviceBuffer<float> x(1025, gpu), y(1024, gpu);
      BufferView shifted = kernel_argument(x, ir::Access::read);
      shifted.byte_offset += 4, shifted.elements = 1024;
      copy.launch({256}, x, y);
      copy.launch({256}, shifted, y);
    });
    ASSERT_EQ(launches.size(), 2u);
    EXPECT_EQ(launches[0].loops->widest, 16u);
    // AMD GPUs need no alignment, and the compiler combines the loads.
    if (target.architecture.starts_with("sm_")) {
      EXPECT_EQ(launches[1].loops->widest, 4u);
    }
  }
}

TEST(Report, RecordsLaunches) {
  for (const ReportTarget& target : targets()) {
    const std::vector<KernelReport> reports = report_launches(target, [](Device device) {
      const Array x = Array::empty({1 << 20}, DType::f32, device);
      for (int i = 0; i < 3; ++i) (x * 2.0f + 1.0f).eval();
      EXPECT_EQ(sum(x).item<float>(), 0.0f);
    });
    ASSERT_GE(reports.size(), 2u);
    SCOPED_TRACE(to_string(reports[0]) + to_string(reports[1]));
    EXPECT_EQ(reports[0].launches, 3u);
    ASSERT_TRUE(reports[0].launch);
    EXPECT_EQ(reports[0].launch->bytes, 8.0 * (1 << 20));
    EXPECT_EQ(reports[0].launch->blocks[0] * reports[0].launch->threads, 1u << 18);  // four elements per thread
    EXPECT_GE(reports[1].launch->bytes, 4.0 * (1 << 20));
  }
}

}  // namespace
}  // namespace tessera
