// SPDX-License-Identifier: Apache-2.0
// PTX from the code-generation module: its text, the version for a driver and device, and when the cuda backend uses
// it. compile_gate_test checks that ptxas accepts the text.
#include <gmock/gmock.h>

#include "tessera/backend/common/codegen_module.h"
#include "tessera/backend/cuda/cuda.h"
#include "tessera/base/error.h"
#include "tessera/device/driver.h"
#include "tests/compilers/emit_zoo.h"
#include "tests/device/limit_memory.h"
#include "tests/support/errors.h"
#include "tests/support/fake_backends.h"

namespace tessera {
namespace {

using namespace ir;
using test::expect_contains;
using test::run_in_child;
using test::Variables;
namespace zoo = test::zoo;

cpu::PtxGenerator* generator() {
  static const cpu::PtxModule module = cpu::open_ptx_module();
  return module.generator;
}

/// The major version of LLVM in the module.
int llvm_version() { return std::stoi(generator()->version().substr(std::string_view("LLVM ").size())); }

class Ptx : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!generator()) GTEST_SKIP() << "passed by: " << cpu::open_ptx_module().reason;
  }
};

struct Made {
  emit::EmittedKernel form;
  std::string text, wrong;
};
Made make(const Function& fn, cpu::PtxTarget target = {90, 78}, bool noalias = true, bool index64 = false,
          bool aligned = false) {
  emit::Target features = emit::target_of(emit::ptx(), index64);
  features.aligned_vectors = aligned;
  const Function lowered = emit::lower(fn, features);
  const emit::EmitRequest request{&lowered, noalias};
  Made out;
  out.form = emit::emit_c(std::span(&request, 1), emit::ptx()).kernels[0];
  const cpu::PtxKernel kernel{&lowered, &out.form, noalias};
  out.text = generator()->compile(std::span(&kernel, 1), target, out.wrong);
  return out;
}
std::size_t count(const std::string& text, const std::string& what) {
  std::size_t n = 0;
  for (std::size_t at = text.find(what); at != text.npos; at = text.find(what, at + 1)) ++n;
  return n;
}

TEST_F(Ptx, EntryAndArgumentsMatchCudaC) {
  for (const bool wide : {false, true})
    for (const Function& fn : zoo::all()) {
      if (fn.name == "arithmetic_f64" && wide) continue;  // this is the longest kernel, so test it only once
      const Made made = make(fn, {80, 70}, !wide, wide);
      ASSERT_EQ(made.wrong, "") << fn.name;
      const std::size_t at = made.text.find(".entry " + made.form.entry + "(");
      ASSERT_NE(at, made.text.npos) << made.text;
      const std::string signature = made.text.substr(at, made.text.find('{', at) - at);
      EXPECT_EQ(count(signature, ".param"), made.form.arguments.size()) << signature;
      std::size_t from = 0;
      for (const emit::KernelArgument& a : made.form.arguments) {
        from = signature.find(".param", from) + 1;
        const std::string line = signature.substr(from, signature.find('\n', from) - from);
        const std::size_t bits = a.kind == emit::KernelArgument::Kind::pointer ? 64 : 8 * dtype_size(a.dtype);
        const bool sized = line.find("u" + std::to_string(bits)) != line.npos ||
                           line.find("f" + std::to_string(bits)) != line.npos ||
                           line.find("b" + std::to_string(bits)) != line.npos;
        EXPECT_TRUE(sized) << line << " for " << bits << " bits";
      }
    }
}

TEST_F(Ptx, UsesHardwareInstructions) {
  const std::string sum = make(zoo::block_sum_kernel()).text;
  expect_contains(sum, {".version 7.8", ".target sm_90", "shfl.sync.", "bar.sync", ".shared", ".maxntid"});
  const std::string product = make(zoo::tiled_product()).text;
  expect_contains(product, {"fma.rn.f32", "ld.shared.", "ld.global.nc."});
  EXPECT_EQ(product.find(".local"), product.npos) << "sums must be in registers";
  EXPECT_EQ(make(zoo::saxpy(), {90, 78}, false).text.find("ld.global.nc"), std::string::npos)
      << "writable buffers must not use the read-only cache";
  expect_contains(make(zoo::odds_and_ends()).text,
                  {"dp4a.s32.s32", "dp4a.u32.s32", "dp4a.u32.u32", "cvt.f32.f16", "vprintf"});
  expect_contains(make(zoo::together(DType::u32)).text,
                  {"atom.global.add.u32", "atom.shared.max.u32", ".global.cas.b32", "atom.global.exch.b32"});
  expect_contains(make(zoo::together(DType::f32)).text, {"atom.global.add.f32", ".shared.cas.b32"});
  const Function much = zoo::much_shared_memory();
  emit::Target target = emit::target_of(emit::ptx(), false);
  target.max_shared_bytes = 96 << 10;
  const Function lowered = emit::lower(much, target);
  const emit::EmitRequest request{&lowered, true};
  const auto form = emit::emit_c(std::span(&request, 1), emit::ptx()).kernels[0];
  const cpu::PtxKernel kernel{&lowered, &form, true};
  std::string wrong;
  expect_contains(generator()->compile(std::span(&kernel, 1), {90, 78}, wrong), {".extern .shared .align 16"});
  EXPECT_GT(form.dynamic_shared_bytes, std::size_t{48} << 10);
}

TEST_F(Ptx, UnrollsLoopsOnlyOnRequest) {
  const auto loads = [](std::optional<Unroll> unroll) {
    const Made made = make(zoo::map_kernel("sum", [&] {
      const BufferRef x = zoo::in("x"), y = zoo::out("y");
      const Variable sum(DType::f32, 0.0f);
      for_(
          0, x.size(), [&](Value k) { sum.set(sum.get() + x.load(k)); }, unroll);
      y.store(global_id(), sum.get());
    }));
    EXPECT_EQ(made.wrong, "");
    return count(made.text, "ld.global");
  };
  EXPECT_EQ(loads({}), 1u);
  EXPECT_EQ(loads(Unroll{1}), 1u);
  EXPECT_EQ(loads(Unroll{8}), 9u);  // eight rounds, and a loop for the remaining ones
}

TEST_F(Ptx, AlignedVectorsAreOneAccess) {
  const auto text = [](DType t, bool aligned) {
    return make(zoo::doubled_vectors(t), {90, 78}, true, false, aligned).text;
  };
  expect_contains(text(DType::f32, true), {"ld.global.nc.v4.", "st.global.v4."});
  expect_contains(text(DType::f64, true), {"ld.global.nc.v2.", "st.global.v2."});
  // Smaller vectors are packed in one integer, whose type is u or b depending on the version of LLVM.
  for (const auto& [type, bits] : {std::pair{DType::f16, "64"}, {DType::u8, "32"}})
    for (const char* access : {"ld.global.nc.[ub]", "st.global.[ub]"})
      EXPECT_THAT(text(type, true), testing::ContainsRegex(access + std::string(bits)));
  EXPECT_EQ(count(text(DType::f32, false), "ld.global.nc."), 4u);
}

TEST_F(Ptx, ExactKernelsAreNotContracted) {
  Function fn = zoo::saxpy();
  expect_contains(make(fn).text, {"fma.rn.f32"});
  fn.exact = true;
  const std::string text = make(fn).text;
  expect_contains(text, {"mul.rn.f32", "add.rn.f32"});  // without .rn, ptxas may contract them
  EXPECT_EQ(text.find("fma"), text.npos) << text;
}

TEST_F(Ptx, TargetMatchesDriverAndDevice) {
  const auto target = [](int capability, int version) {
    const cpu::PtxTarget t = generator()->target_for(capability, version);
    return std::to_string(t.capability) + "/" + std::to_string(t.version);
  };
  EXPECT_EQ(target(75, 72), "75/72");
  const int llvm = llvm_version();
  EXPECT_EQ(target(90, 78), "90/78");
  EXPECT_EQ(target(90, 84), llvm >= 19   ? "90/84"
                            : llvm == 18 ? "90/83"
                            : llvm == 17 ? "90/81"
                                         : "90/78")
      << "newer drivers accept older PTX";
  EXPECT_EQ(target(120, 90).substr(0, target(120, 90).find('/')), llvm >= 20 ? "120" : "90")
      << "newer devices accept code for older ones";
  EXPECT_EQ(target(90, 72), "86/72") << "a driver that does not know the device yet";
  EXPECT_EQ(target(86, 70), "80/70");
  EXPECT_EQ(target(52, 75), "52/75");
  EXPECT_EQ(target(35, 75), "0/75") << "too old";
  EXPECT_EQ(target(90, 50), "0/0");
}

TEST_F(Ptx, RejectsOperationsThatWereNotLowered) {
  Builder b("exponential", KernelKind::map);
  {
    Builder::Scope scope(b);
    const BufferRef x = buffer_param("x", DType::f64, Access::read_write);
    x.store(global_id(), exp(x.load(global_id())));
  }
  const Function lowered = emit::lower(b.finish(), emit::target_of(emit::cuda_c(), false));
  const emit::EmitRequest request{&lowered, true};
  const auto form = emit::emit_c(std::span(&request, 1), emit::cuda_c()).kernels[0];
  const cpu::PtxKernel kernel{&lowered, &form, true};
  std::string wrong;
  EXPECT_EQ(generator()->compile(std::span(&kernel, 1), {90, 78}, wrong), "");
  expect_contains(wrong, {"'exp'", "f64", "not expanded"});
}

// With the fake driver:

/// Returns the report of the device and the result of a kernel on it.
std::string over_fakes(const Variables& variables) {
  return run_in_child(test::with_fakes(variables), [] {
    const auto driver = make_cuda_driver();
    const BackendReport report = driver->enumerate();
    if (report.devices.empty()) return "no device: " + report.reason;
    const DeviceInfo& info = report.devices[0];
    std::string out = std::string(state_name(info.state)) + " | " + info.driver_version + " | " + info.reason + " | " +
                      info.remedy + "\n";
    if (info.state != DeviceState::enumerated) return out;
    const auto device = driver->open(0);
    Builder b("add_one", KernelKind::map);
    {
      Builder::Scope scope(b);
      const BufferRef x = buffer_param("x", DType::f32, Access::read_write);
      x.store(global_id(), x.load(global_id()) + 1.0f);
    }
    const Function fn = b.finish();
    const CompileRequest request{&fn, {}};
    const auto kernels = device->compile(std::span(&request, 1));
    const auto again = device->compile(std::span(&request, 1));
    const Allocation a = device->allocate(400, MemoryKind::device);
    const auto queue = device->make_queue();
    const float one = 1;
    queue->fill(a, 0, 400, std::as_bytes(std::span(&one, 1)));
    const Argument argument{.allocation = &a, .elements = 100};
    queue->launch(*again[0], {100, 1, 1}, std::span(&argument, 1));
    std::vector<float> got(100);
    queue->download(got.data(), a, 0, 400);
    device->release(a);
    const std::string source = kernels[0]->source();
    const bool ptx = source.find(".entry add_one_") != source.npos, c = source.find("__global__") != source.npos;
    return out + std::to_string(got[99]) + (ptx ? ", source in PTX" : "") + (c ? ", source in CUDA C" : "");
  });
}

TEST_F(Ptx, IsUsedWithoutNvrtc) {
  const std::string version = std::to_string(generator()->target_for(90, 84).version);  // of the driver for CUDA 12.4
  const std::string newest = version.substr(0, 1) + "." + version.substr(1);
  expect_contains(over_fakes({{"TESSERA_NVRTC_LIBRARY", "none"}}),
                  {"enumerated", "CUDA 12.4", ", " + generator()->version(), "(PTX " + newest + " for sm_90)",
                   "2.000000, source in PTX"});
  expect_contains(over_fakes({{"TESSERA_NVRTC_LIBRARY", "none"}, {"TESSERA_FAKE_FAULT", "driver=11020"}}),
                  {"enumerated", "(PTX 7.2 for sm_86)", "2.000000"});
  expect_contains(over_fakes({}), {"enumerated", ", NVRTC 12.4", "2.000000, source in CUDA C"});
}

TEST_F(Ptx, IsNotUsedIfNvrtcIsNamedOrTheModuleIsMissing) {
  expect_contains(over_fakes({{"TESSERA_NVRTC_LIBRARY", "/no/such/nvrtc.so"}}),
                  {"loaded", "/no/such/nvrtc.so", "no other is tried"});
  expect_contains(over_fakes({{"TESSERA_NVRTC_LIBRARY", "none"}, {"TESSERA_CODEGEN_LIBRARY", "none"}}),
                  {"loaded", "no compiler for its kernels", "TESSERA_NVRTC_LIBRARY is 'none'",
                   "TESSERA_CODEGEN_LIBRARY is 'none'", "Install the code-generation module"});
}

TEST_F(Ptx, ReportsMatrixUnitsWithEitherCompiler) {
  const auto asked = [](const Variables& variables) {
    return run_in_child(test::with_fakes(variables), [] {
      std::string out;
      for (const DeviceInfo& info : make_cuda_driver()->enumerate().devices)
        out += std::string(info.can.matrix_f16 ? "f16" : "") + (info.can.matrix_bf16 ? " bf16" : "") +
               (info.can.matrix_tf32 ? " tf32" : "") + (info.can.matrix_f32 ? " f32" : "") +
               (info.can.matrix_i8 ? " i8" : "") + (info.can.async_copies ? " async" : "") + ";";
      return out;
    });
  };
  // Compute capabilities 9.0 and 7.5. A driver for CUDA 11.2 accepts PTX only for capabilities up to 8.6, which also
  // supports all of them.
  EXPECT_EQ(asked({{"TESSERA_FAKE_DEVICES", "2"}}), "f16 bf16 tf32 i8 async;f16;");
  EXPECT_EQ(asked({{"TESSERA_FAKE_DEVICES", "2"}, {"TESSERA_NVRTC_LIBRARY", "none"}}), "f16 bf16 tf32 i8 async;f16;");
  EXPECT_EQ(asked({{"TESSERA_NVRTC_LIBRARY", "none"}, {"TESSERA_FAKE_FAULT", "driver=11020"}}),
            "f16 bf16 tf32 i8 async;");
}

TEST_F(Ptx, ThrowsOutOfMemoryIfCompilationNeedsTooMuchMemory) {
  const std::string said = run_in_child(test::with_fakes({{"TESSERA_NVRTC_LIBRARY", "none"}}), [] {
    const auto driver = make_cuda_driver();
    driver->enumerate();
    const auto device = driver->open(0);
    const auto squares = [](int number) {
      Builder b("many_nodes", KernelKind::map);
      {
        Builder::Scope scope(b);
        const BufferRef x = buffer_param("x", DType::f32, Access::read_write);
        Value v = x.load(global_id());
        for (int i = 0; i < number; ++i) v = v * v + static_cast<float>(i);
        x.store(global_id(), v);
      }
      return b.finish();
    };
    const Function small = squares(200), large = squares(8000);
    const std::vector<CompileRequest> batch(40, {&small, {}}), one(1, {&large, {}});
    test::leave_memory(std::uint64_t{64} << 20);
    const std::size_t made = device->compile(batch).size();
    try {
      device->compile(one);
    } catch (const OutOfMemory& e) {
      return std::to_string(made) + " made, then " + e.what();
    }
    return std::string("all were made");
  });
  expect_contains(said, {"40 made, then [compile many_nodes]", "no memory left for LLVM"});
}

TEST_F(Ptx, IsUsedAfterTheDriverRejectsABinary) {
  for (const char* fault : {"cubin:209", "cubin:222"}) {
    expect_contains(over_fakes({{"TESSERA_FAKE_FAULT", fault}}), {"enumerated", ", NVRTC", "2.000000"});
    expect_contains(over_fakes({{"TESSERA_FAKE_FAULT", fault}, {"TESSERA_CODEGEN_LIBRARY", "none"}}),
                    {"exception", "refused to load the compiled code"});
  }
}

}  // namespace
}  // namespace tessera
