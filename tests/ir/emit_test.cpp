// SPDX-License-Identifier: Apache-2.0
// Tests the emitted source code: the order of loads, wrapping arithmetic, identifiers and arguments.
#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tests/compilers/emit_zoo.h"

namespace tessera {
namespace {

namespace zoo = test::zoo;
using namespace ir;
using zoo::in;
using zoo::out;
using Kind = emit::KernelArgument::Kind;

std::string text_of(const Function& fn, const emit::Dialect& d = emit::opencl_c(), bool noalias = true) {
  return zoo::emitted({fn}, d, false, noalias).kernels[0].text;
}
bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }
std::size_t count(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++n;
  return n;
}
#define EXPECT_HAS(text, part) EXPECT_TRUE(has(text, part)) << "no " << part << " in\n" << (text)
#define EXPECT_HAS_NOT(text, part) EXPECT_FALSE(has(text, part)) << part << " in\n" << (text)

/// Removes the hash from the name, because it changes with every change of lowering.
std::string without_hash(std::string text, const std::string& name) {
  const std::size_t at = text.find(name + "_") + name.size();
  return text.erase(at, 9);
}

TEST(emit, SaxpyMatchesHandWrittenSource) {
  EXPECT_EQ(without_hash(text_of(zoo::saxpy()), "saxpy"),
            "__kernel void saxpy(\n"
            "    __global const float* restrict x,\n"
            "    const ulong x_offset,\n"
            "    __global float* restrict y,\n"
            "    const ulong y_offset,\n"
            "    const float a,\n"
            "    const int extent_x) {\n"
            "  x += x_offset;\n"
            "  y += y_offset;\n"
            "  const int gid_x = get_global_id(0);\n"
            "  if (gid_x < extent_x) {\n"
            "    y[gid_x] = a * x[gid_x] + y[gid_x];\n"
            "  }\n"
            "}\n");
  EXPECT_EQ(without_hash(text_of(zoo::saxpy(), emit::cuda_c(), false), "saxpy"),
            "extern \"C\" __global__ void saxpy_alias(\n"
            "    const float* x,\n"
            "    float* y,\n"
            "    const float a,\n"
            "    const int extent_x) {\n"
            "  const int gid_x = blockIdx.x * blockDim.x + threadIdx.x;\n"
            "  if (gid_x < extent_x) {\n"
            "    y[gid_x] = a * x[gid_x] + y[gid_x];\n"
            "  }\n"
            "}\n");
}

TEST(emit, ArgumentsFollowParameterOrder) {
  const Function fn = zoo::map_kernel("f", [] {
    const BufferRef x = in("x"), y = out("y");
    const Value n = scalar_param("n", DType::index), flag = scalar_param("flag", DType::boolean);
    y.store(global_id(1) * n + global_id(0), select(flag, x.load(y.size()), 0.0));
  });
  const auto arguments = zoo::emitted({fn}, emit::opencl_c()).kernels[0].arguments;
  const std::vector<std::pair<Kind, std::uint32_t>> right = {{Kind::pointer, 0}, {Kind::offset, 0}, {Kind::pointer, 1},
                                                             {Kind::offset, 1},  {Kind::length, 1}, {Kind::scalar, 2},
                                                             {Kind::scalar, 3},  {Kind::extent, 0}, {Kind::extent, 1}};
  ASSERT_EQ(arguments.size(), right.size());
  for (std::size_t i = 0; i < right.size(); ++i) {
    EXPECT_EQ(arguments[i].kind, right[i].first) << i;
    EXPECT_EQ(arguments[i].number, right[i].second) << i;
  }
  EXPECT_EQ(arguments[5].dtype, DType::i32);
  EXPECT_EQ(zoo::emitted({fn}, emit::opencl_c(), true).kernels[0].arguments[5].dtype, DType::i64);
  EXPECT_EQ(zoo::emitted({fn}, emit::opencl_c()).kernels[0].dimensions, (std::array<bool, 3>{true, true, false}));
  EXPECT_EQ(zoo::emitted({fn}, emit::cuda_c()).kernels[0].arguments.size(), right.size() - 2);
}

TEST(emit, LoadsDoNotMovePastWrites) {
  const std::string text = text_of(zoo::map_kernel("f", [] {
    const BufferRef x = out("x"), y = out("y");
    const Value i = global_id(), old = x.load(i);
    x.store(i, 1.0);
    y.store(i, old);
  }));
  EXPECT_LT(text.find("= x[gid_x]"), text.find("x[gid_x] = 1.0f")) << text;
  const std::string variable = text_of(zoo::map_kernel("f", [] {
    const BufferRef y = out("y");
    const Variable v(DType::f32, y.load(global_id()));
    const Value before = v.get();
    v.set(before + 1);
    y.store(global_id(), before * v.get());
  }));
  EXPECT_HAS(variable, "const float v1 = var1;");
  EXPECT_HAS(variable, "= v1 * var1;");
  const std::string barriers = text_of(zoo::block_kernel("f", {8, 1, 1}, [] {
    const BufferRef y = out("y"), s = shared(DType::f32, 8);
    s.store(thread_id(), y.load(thread_id()));
    barrier();
    const Value other = s.load(7 - thread_id());
    barrier();
    s.store(thread_id(), 0.0);
    y.store(thread_id(), other);
  }));
  EXPECT_LT(barriers.find("= shared1[7 - tid_x]"), barriers.rfind("barrier(")) << barriers;
}

TEST(emit, WrapsUserIntegersButNotIndices) {
  const std::string text = text_of(zoo::map_kernel("f", [] {
    const BufferRef x = in("x", DType::i32), y = out("y", DType::i32);
    const Value i = global_id();
    y.store(i * 4 + 1, x.load(i) * 4 + 1);
  }));
  EXPECT_HAS(text, "y[gid_x * 4 + 1] = (int)((uint)x[gid_x] * 4u + 1u);");
  const std::string loops = text_of(zoo::map_kernel("f", [] {
    const BufferRef y = out("y", DType::i32);
    for_(0, y.size(), 2, [&](Value k) { y.store(k, 1); });
    for_(literal(DType::i32, 0), y.load(0), literal(DType::i32, 1),
         [&](Value k) { y.store(cast(DType::index, k), k); });
  }));
  EXPECT_HAS(loops, "for (int i1 = 0; i1 < y_size; i1 += 2) {");
  EXPECT_HAS(loops, "; ++i2) {");
}

TEST(emit, UnrollIsAPragmaBeforeTheLoop) {
  const auto loop = [](std::optional<Unroll> unroll) {
    return zoo::map_kernel("f", [&] {
      const BufferRef y = out("y");
      for_(
          0, y.size(), [&](Value k) { y.store(k, 1); }, unroll);
    });
  };
  for (const emit::Dialect& d : {emit::opencl_c(), emit::cuda_c(), emit::hip_c()}) {
    EXPECT_HAS(text_of(loop(Unroll{8}), d), "#pragma unroll 8\n    for (");
    EXPECT_HAS_NOT(text_of(loop({}), d), "#pragma");
  }
  EXPECT_HAS(text_of(loop(Unroll{8}), emit::metal_c()), "#pragma clang loop unroll_count(8)\n    for (");
}

TEST(emit, EmitsOnlyNecessaryParentheses) {
  auto of = [](auto body) {
    const std::string text = text_of(zoo::map_kernel("f", [&] {
      const BufferRef x = in("x"), y = out("y");
      const Value i = global_id();
      y.store(i, body(x.load(0), x.load(1), x.load(2)));
    }));
    const std::size_t at = text.find("y[gid_x] = ") + 11;
    return text.substr(at, text.find(';', at) - at);
  };
  EXPECT_EQ(of([](Value a, Value b, Value c) { return a + b * c; }), "x[0] + x[1] * x[2]");
  EXPECT_EQ(of([](Value a, Value b, Value c) { return (a + b) * c; }), "(x[0] + x[1]) * x[2]");
  EXPECT_EQ(of([](Value a, Value b, Value c) { return a - (b - c); }), "x[0] - (x[1] - x[2])");
  EXPECT_EQ(of([](Value a, Value b, Value c) { return (a - b) - c; }), "x[0] - x[1] - x[2]");
  EXPECT_EQ(of([](Value a, Value b, Value c) { return a / (b * c); }), "x[0] / (x[1] * x[2])");
  EXPECT_EQ(of([](Value a, Value b, Value) { return -(a + b); }), "-(x[0] + x[1])");
  EXPECT_EQ(of([](Value a, Value, Value) { return -(-a); }), "-(-x[0])");
  EXPECT_EQ(of([](Value a, Value b, Value c) { return select(a < b && b < c, a, b + c); }).find("(("),
            std::string::npos);
  EXPECT_EQ(of([](Value a, Value, Value) { return a - -1.5f; }), "x[0] - -1.5f");
}

TEST(emit, RenamesConflictingIdentifiers) {
  const std::string text = text_of(zoo::map_kernel("my kernel: 2 x", [] {
    const BufferRef a = in("float"), b = in("exp"), c = out("gid_x"), d = out("gid_x"), e = out("extent_x");
    const Value two = scalar_param("2 lines", DType::f32);
    const Value i = global_id();
    c.store(i, a.load(i) * two), d.store(i, b.load(i) + cast(DType::f32, c.size())), e.store(i, 0.0);
  }));
  EXPECT_HAS(text, "void my_kernel__2_x_");
  EXPECT_HAS(text, "float* restrict float_,");
  EXPECT_HAS(text, "float* restrict exp_,");
  EXPECT_HAS(text, "float* restrict gid_x,");
  EXPECT_HAS(text, "float* restrict gid_x_,");
  EXPECT_HAS(text, "float* restrict extent_x_,");
  EXPECT_HAS(text, "const float k2_lines,");
  EXPECT_HAS(text, "const int gid_x__ = get_global_id(0);");
}

TEST(emit, ConstantsKeepTheirBits) {
  using emit::constant_text;
  const emit::Dialect cl = emit::opencl_c(), cuda = emit::cuda_c();
  EXPECT_EQ(constant_text(cl, DType::f32, to_bits(DType::f32, 1.0f)), "1.0f");
  EXPECT_EQ(constant_text(cl, DType::f32, to_bits(DType::f32, 0.1f)), "0.1f");
  EXPECT_EQ(constant_text(cl, DType::f32, to_bits(DType::f32, 1e-45f)), "1e-45f");
  EXPECT_EQ(constant_text(cl, DType::f32, to_bits(DType::f32, -0.0f)), "-0.0f");
  EXPECT_EQ(constant_text(cl, DType::f32, 0x7f800000), "as_float(0x7f800000u)");
  EXPECT_EQ(constant_text(cuda, DType::f32, 0x7fc00000), "__uint_as_float(0x7fc00000u)");
  EXPECT_EQ(constant_text(cl, DType::f64, to_bits(DType::f64, 0.1)), "0.1");
  EXPECT_EQ(constant_text(cl, DType::f64, to_bits(DType::f64, 1e300)), "1e+300");
  EXPECT_EQ(constant_text(cl, DType::i32, static_cast<std::uint64_t>(std::int64_t{-2147483648})), "(-2147483647 - 1)");
  EXPECT_EQ(constant_text(cl, DType::u32, 0xffffffff), "4294967295u");
  EXPECT_EQ(constant_text(cl, DType::i64, ~std::uint64_t{0}), "-1L");
  EXPECT_EQ(constant_text(cuda, DType::u64, ~std::uint64_t{0}), "18446744073709551615uLL");
  EXPECT_EQ(constant_text(cl, DType::i8, static_cast<std::uint64_t>(std::int64_t{-5})), "(char)-5");
  EXPECT_EQ(constant_text(cl, DType::f16, 0x3c00), "(ushort)0x3c00");
}

TEST(emit, ProgramContainsEachKernelAndHelperOnce) {
  const auto source =
      zoo::emitted({zoo::arithmetic(DType::i32), zoo::arithmetic(DType::i32), zoo::saxpy(), zoo::together(DType::i32)},
                   emit::opencl_c());
  ASSERT_EQ(source.kernels.size(), 4u);
  EXPECT_EQ(source.kernels[0].entry, source.kernels[1].entry);
  EXPECT_NE(source.kernels[0].entry, source.kernels[2].entry);
  EXPECT_EQ(count(source.text, "__kernel"), 3u);
  EXPECT_EQ(count(source.text, "inline int tessera_div_i32("), 1u);
  EXPECT_HAS_NOT(zoo::emitted({zoo::saxpy()}, emit::opencl_c()).text, "tessera_");
}

TEST(emit, CudaUsesDynamicSharedMemoryAbove48KiB) {
  const auto cuda = zoo::emitted({zoo::much_shared_memory()}, emit::cuda_c()),
             cl = zoo::emitted({zoo::much_shared_memory()}, emit::opencl_c());
  EXPECT_EQ(cuda.kernels[0].dynamic_shared_bytes, 40000u + 16 + 24000);
  EXPECT_EQ(count(cuda.text, "extern __shared__"), 1u);
  EXPECT_EQ(cl.kernels[0].dynamic_shared_bytes, 0u);
  EXPECT_EQ(count(cl.text, "__local"), 3u);
  EXPECT_EQ(zoo::emitted({zoo::tiled_product()}, emit::cuda_c()).kernels[0].dynamic_shared_bytes, 0u);
}

TEST(emit, CudaBoundsRegistersByTheNumberOfBlocks) {
  ir::Function product = zoo::tiled_product();
  const std::uint32_t threads = product.threads_per_block();
  const auto bounds = [&](std::uint32_t blocks) {
    return "__launch_bounds__(" + std::to_string(threads) + ", " + std::to_string(blocks) + ")";
  };
  EXPECT_HAS(zoo::emitted({product}, emit::cuda_c()).text, bounds(std::min(1024 / threads, 16u)));
  product.min_blocks = 3;
  EXPECT_HAS(zoo::emitted({product}, emit::cuda_c()).text, bounds(3));
  EXPECT_HAS(zoo::emitted({product}, emit::hip_c()).text, "__launch_bounds__(" + std::to_string(threads) + ")");
}

TEST(emit, AlignedVectorsAreOneAccess) {
  const auto text = [](DType t, const emit::Dialect& d, bool aligned) {
    return zoo::emitted({zoo::doubled_vectors(t)}, d, false, true, aligned).text;
  };
  for (const emit::Dialect& d : {emit::cuda_c(), emit::hip_c(), emit::metal_c()}) {
    const std::string space = d.language == emit::Language::metal ? "device " : "";
    const std::string wide = text(DType::f32, d, true);
    EXPECT_HAS(wide, "struct alignas(16) tessera_f32x4 {\n  float s0, s1, s2, s3;\n};");
    EXPECT_HAS(wide, "const tessera_f32x4 v2 = *(" + space + "const tessera_f32x4*)(x + v1);");
    EXPECT_HAS(wide, "*(" + space + "tessera_f32x4*)(y + v1) = tessera_f32x4_of(v3 + v3, ");
    EXPECT_HAS(text(DType::f16, d, true), "struct alignas(8) tessera_f16x4 {");
    EXPECT_HAS(text(DType::u8, d, true), "struct alignas(4) tessera_u8x4 {");
    const std::string plain = text(DType::f32, d, false);
    EXPECT_HAS_NOT(plain, "tessera_f32x4");
    EXPECT_EQ(count(plain, "= x["), 4u) << plain;
    if (d.language == emit::Language::metal) continue;  // it has no f64
    EXPECT_HAS(text(DType::f64, d, true), "*(tessera_f64x2*)(y + v3) = ");
  }
  EXPECT_HAS(text(DType::f32, emit::opencl_c(), true), "*(__global const float4*)(x + v1);");
  EXPECT_HAS(text(DType::f32, emit::opencl_c(), true), "*(__global float4*)(y + v1) = (float4)(");
  EXPECT_HAS(text(DType::f32, emit::opencl_c(), false), "vload4(0, x + v1);");
  EXPECT_HAS(text(DType::f64, emit::opencl_c(), true), "vload4(0, x + v1);");  // more than 16 bytes
}

TEST(emit, MetalPassesScalarsInAStruct) {
  const std::string text = zoo::emitted({zoo::saxpy()}, emit::metal_c()).text;
  EXPECT_HAS(text, "#include <metal_stdlib>\nusing namespace metal;\n");
  EXPECT_HAS(text, "kernel void saxpy_");
  EXPECT_HAS(text, "device const float* x [[buffer(0)]]");
  EXPECT_HAS(text, "device float* y [[buffer(1)]]");
  EXPECT_HAS(text, "_arguments& arguments [[buffer(2)]]");
  EXPECT_HAS(text, "uint3 thread_position_in_threadgroup [[thread_position_in_threadgroup]]");
  const emit::EmittedSource shared = zoo::emitted({zoo::tiled_product()}, emit::metal_c());
  EXPECT_HAS(shared.text, "[[max_total_threads_per_threadgroup(");
  EXPECT_HAS(shared.text, "threadgroup uchar* shared_memory [[threadgroup(0)]]");
  EXPECT_HAS(shared.text, "threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);");
  EXPECT_GT(shared.kernels[0].dynamic_shared_bytes, 0u);
  EXPECT_EQ(shared.kernels[0].dynamic_shared_bytes % 16, 0u);
  for (const char* foreign : {"__global", "threadIdx", "__restrict", "double", "long long"})
    EXPECT_HAS_NOT(text + shared.text, foreign);
}

TEST(emit, ExactKernelsDisableContraction) {
  ir::Function exact = zoo::saxpy();
  exact.exact = true;
  const std::pair<emit::Dialect, const char*> pragmas[] = {{emit::opencl_c(), "#pragma OPENCL FP_CONTRACT OFF\n"},
                                                           {emit::opencl_c_intel(), "#pragma OPENCL FP_CONTRACT OFF\n"},
                                                           {emit::hip_c(), "#pragma clang fp contract(off)\n"},
                                                           {emit::metal_c(), "#pragma METAL fp contract(off)\n"}};
  for (const auto& [dialect, pragma] : pragmas) {
    EXPECT_HAS(zoo::emitted({exact}, dialect).text, std::string(") {\n") + pragma);
    EXPECT_HAS_NOT(zoo::emitted({zoo::saxpy()}, dialect).text, pragma);
  }
  EXPECT_HAS_NOT(zoo::emitted({exact}, emit::cuda_c()).text, "#pragma");  // CUDA uses a compiler option
  EXPECT_NE(zoo::emitted({exact}, emit::cuda_c()).kernels[0].entry,
            zoo::emitted({zoo::saxpy()}, emit::cuda_c()).kernels[0].entry);
}

TEST(emit, EmitsAStandaloneProgramForEachKernel) {
  emit::Dialect plain = emit::opencl_c();
  plain.atomic_i64 = true;
  for (const emit::Dialect& d : {plain, emit::opencl_c_intel(), emit::cuda_c_for(90), emit::hip_c_for("gfx90a")}) {
    std::vector<Function> fns = zoo::all();
    fns.push_back(zoo::full_fragment_product(DType::f16, false));
    const auto together = zoo::emitted(fns, d);
    for (std::size_t i = 0; i < fns.size(); ++i)
      EXPECT_EQ(together.kernels[i].program(), zoo::emitted({fns[i]}, d).text) << fns[i].name << ", " << d.name;
  }
}

TEST(emit, DetectsFeaturesFromDeviceExtensions) {
  const emit::Dialect none = emit::opencl_c_with(" cl_khr_fp64_of_another_name "),
                      all = emit::opencl_c_with(
                          " cl_khr_fp64 cl_khr_subgroups cl_khr_subgroup_shuffle cl_khr_int64_base_atomics "
                          "cl_khr_int64_extended_atomics cl_khr_integer_dot_product ");
  EXPECT_FALSE(none.fp64 || none.subgroups || none.atomic_i64 || none.dot4);
  EXPECT_TRUE(all.fp64 && all.subgroups && all.atomic_i64 && all.dot4);
  EXPECT_FALSE(emit::opencl_c_with(" cl_khr_subgroups ").subgroups);
  EXPECT_FALSE(emit::opencl_c_with(" cl_khr_int64_base_atomics ").atomic_i64);
}

TEST(emit, DetectsSubgroupsFromExtensionsOrFeatures) {
  const std::string pragma = "#pragma OPENCL EXTENSION cl_khr_subgroups : enable\n";
  const auto text = [](const emit::Dialect& d) { return zoo::emitted({zoo::together(DType::f32)}, d).text; };
  const emit::Dialect extension = emit::opencl_c_with(" cl_khr_fp64 cl_khr_subgroups cl_khr_subgroup_shuffle "),
                      feature =
                          emit::opencl_c_with(" cl_khr_subgroup_shuffle ", " __opencl_c_fp64 __opencl_c_subgroups "),
                      intel =
                          emit::opencl_c_with(" cl_intel_subgroups cl_khr_subgroup_shuffle ", " __opencl_c_images ");
  for (const emit::Dialect& d : {extension, feature, intel}) {
    EXPECT_TRUE(d.subgroups);
    EXPECT_HAS(text(d), "sub_group_reduce_add");
  }
  EXPECT_HAS(text(extension), pragma);
  EXPECT_HAS_NOT(text(feature), "cl_khr_subgroups");
  EXPECT_HAS_NOT(text(intel), "cl_khr_subgroups");
  EXPECT_FALSE(emit::opencl_c_with(" ", " __opencl_c_subgroups ").subgroups) << "the device has no shuffles";
  EXPECT_FALSE(emit::opencl_c_with(" cl_khr_subgroup_shuffle ", " __opencl_c_subgroups_of_another_name ").subgroups);
}

TEST(emit, OpenClUsesOneDimensionalBlocksForSubgroups) {
  const Function fn = test::block_kernel("cut", {20, 3, 2}, [] {
    const BufferRef x = in("x"), y = out("y");
    y.store(global_id(0) + global_id(1) * 7 + thread_id(2) * 1000, subgroup_sum(x.load(thread_id(1))));
  });
  const auto with = zoo::emitted({fn}, emit::opencl_c_intel()), without = zoo::emitted({fn}, emit::opencl_c());
  EXPECT_TRUE(with.kernels[0].flat);
  EXPECT_HAS(with.text, "reqd_work_group_size(120, 1, 1)");
  EXPECT_HAS(with.text, "get_group_id(0) * 20 + get_local_id(0) % 20");
  EXPECT_HAS(with.text, "get_group_id(1) * 3 + get_local_id(0) / 20 % 3");
  EXPECT_HAS(with.text, "get_local_id(0) / 60");
  EXPECT_HAS_NOT(with.text, "get_local_id(1)");
  EXPECT_FALSE(without.kernels[0].flat);
  EXPECT_HAS(without.text, "reqd_work_group_size(20, 3, 2)");
  EXPECT_FALSE(zoo::emitted({zoo::tiled_product()}, emit::opencl_c_intel()).kernels[0].flat)
      << "the kernel uses no subgroups";
}

TEST(emit, OpenClWidensSignedIntegersWithAFunction) {
  const Function fn = test::map_kernel("widen", [] {
    const BufferRef y = out("y", DType::i64), z = out("z", DType::u64);
    const Value i = global_id(), wrapped = cast(DType::i32, i) + 2147483640;
    y.store(i, cast(DType::i64, wrapped));
    z.store(i, cast(DType::u64, wrapped));
  });
  const std::string cl = zoo::emitted({fn}, emit::opencl_c()).text;
  EXPECT_HAS(cl, "convert_long(");
  EXPECT_HAS(cl, "convert_ulong(");
  EXPECT_HAS_NOT(cl, "(long)");
  EXPECT_HAS(zoo::emitted({fn}, emit::cuda_c()).text, "(long long)");
}

TEST(emit, UnsupportedOperationThrowsWithKernelName) {
  auto refusal = [](const Function& fn) -> std::string {
    const emit::EmitRequest request{&fn, true};
    try {
      emit::emit_c({&request, 1}, emit::opencl_c());
    } catch (const KernelError& e) {
      return e.what();
    }
    return "";
  };
  const std::string raw = refusal(zoo::block_sum_kernel());
  EXPECT_HAS(raw, "kernel block_sum");
  EXPECT_HAS(raw, "index");
  const std::string reduce = refusal(emit::lower(zoo::block_sum_kernel(), {.block_operations = true}));
  EXPECT_HAS(reduce, "kernel block_sum, emit_zoo.h:");
  EXPECT_HAS(reduce, "block_reduce cannot be written in OpenCL C 1.2");
}

std::vector<std::pair<std::string, std::string>> watched;  // pairs of entry point and function name
TEST(emit, CallsTheObserverForEachKernel) {
  emit::observe_emission(
      [](const emit::EmittedKernel& k, const Function& fn) { watched.emplace_back(k.entry, fn.name); });
  const emit::EmittedSource s = zoo::emitted({zoo::saxpy(), zoo::tiled_product()}, emit::cuda_c());
  emit::observe_emission(nullptr);
  zoo::emitted({zoo::saxpy()}, emit::cuda_c());
  ASSERT_EQ(watched.size(), 2u);
  EXPECT_EQ(watched[0], std::pair(s.kernels[0].entry, std::string("saxpy")));
  EXPECT_EQ(watched[1], std::pair(s.kernels[1].entry, std::string("tiled_product")));
}

}  // namespace
}  // namespace tessera
