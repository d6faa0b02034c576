// SPDX-License-Identifier: Apache-2.0
// Packs of kernels: the file, and processes without compilers that load kernels from it on cpu and on fake GPUs.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "tessera/array/array.h"
#include "tessera/array/functions.h"
#include "tessera/base/error.h"
#include "tessera/base/os/object_code.h"
#include "tessera/base/os/processor.h"
#include "tessera/base/sha256.h"
#include "tessera/device/launch/kernel_pack.h"
#include "tessera/device/placement/placement_scope.h"
#include "tessera/kernel/kernel.h"
#include "tessera/llm/llama.h"
#include "tessera/pack/exercise.h"
#include "tessera/pack/pack.h"
#include "tests/llm/reference_llama.h"
#include "tests/support/docs_page.h"
#include "tests/support/errors.h"
#include "tests/support/fake_backends.h"
#include "tests/support/folder.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using test::Folder;
using test::run_in_child;
using test::Variables;

void put(const fs::path& file, const std::string& bytes) { std::ofstream(file, std::ios::binary) << bytes; }

/// Returns "C compiled, P packed, A absent" for the current device.
std::string made_here() {
  for (const auto& made : placement_log().made)
    if (made.device == current_device())
      return std::to_string(made.compiled) + " compiled, " + std::to_string(made.packed) + " packed, " +
             std::to_string(made.unpacked) + " absent";
  return "nothing";
}

/// Computes with functions of the math library and shared memory, and with kernels that depend on the backend. Returns
/// a hash of the results.
std::string compute() {
  const Array x = Array::arange(1000, -2, 0.01, DType::f32);
  const Array y = exp(x * 0.5f) + pow(abs(x), Array::full({1000}, 1.5f)) + x;
  const Array total = sum(y), sorted = sort(y), seen = cumsum(y, 0);
  const Array rows = mean(y.reshape({10, 100}), {1}) + max(y.reshape({10, 100}), {0}).slice(0, 0, 10);
  const auto tail = kernel("tail", block(64), [](Buffer<const float> in, Buffer<float> out) {
    auto shared = Shared<float>(64);
    shared[thread_id()] = in[global_id()];
    barrier();
    out[global_id()] = shared[63 - thread_id()] * 3.0f;
  });
  Array z = Array::empty({960}, DType::f32);
  tail.launch(blocks(15), y, z);
  std::string bytes;
  for (const Array& a : {y, total, sorted, seen, rows, z})
    for (const float v : a.to_vector<float>()) bytes.append(reinterpret_cast<const char*>(&v), sizeof v);
  return sha256(bytes);
}
std::string compute_and_count() {
  const std::string result = compute();
  return result + " " + made_here();
}
std::string results(const std::string& answer) { return answer.substr(0, 64); }
std::string counts(const std::string& answer) { return answer.size() > 65 ? answer.substr(65) : answer; }

std::string best_level() {
  for (const char* level : {"x86-64-v3", "x86-64", "aarch64"})
    if (os::supports_processor_level(level)) return level;
  return "";
}

/// Makes a pack of the kernels of compute() in a child.
void make_pack(const std::vector<std::string>& targets, const fs::path& file, const Variables& variables = {}) {
  const std::string answer = run_in_child(variables, [&] {
    const auto packed = pack_launches(targets, file.string(), [&](Device device) {
      const DeviceScope scope(device);
      compute();
    });
    for (const PackedTarget& target : packed)
      if (target.kernels < 4 || target.bytes == 0 || target.compiler.empty()) return "too little for " + target.name;
    return std::string();
  });
  ASSERT_EQ(answer, "");
}

Variables with(const fs::path& pack, Variables more) {
  more.emplace_back("TESSERA_PACK", pack.string());
  return more;
}

std::string message_of(const std::string& file) {
  return test::message([&] { KernelPack pack(file); });
}

TEST(PackFile, IsReadBack) {
  const Folder folder;
  const std::string file = (folder / "a.pack").string();
  const std::vector<PackTarget> targets = {{.name = "sm_90", .backend = Backend::cuda, .compiler = "c"},
                                           {.name = "cpu:x86-64", .compute_units = 3}};
  put(file, KernelPack::to_bytes(targets, {{0, "one", "image 1"}, {1, "one", ""}, {1, "two", "image 2"}}));
  const KernelPack pack(file);
  ASSERT_EQ(pack.targets().size(), 2u);
  EXPECT_EQ(pack.target("cpu:x86-64")->compute_units, 3u);
  EXPECT_EQ(pack.kernels("cpu:x86-64"), 2u);
  EXPECT_EQ(pack.find("sm_90", "one"), "image 1");
  EXPECT_EQ(pack.find("cpu:x86-64", "one"), "");
  EXPECT_EQ(pack.find("cpu:x86-64", "two"), "image 2");
  EXPECT_EQ(pack.find("sm_90", "two"), std::nullopt);
  EXPECT_EQ(pack.find("sm_80", "one"), std::nullopt);
}

TEST(PackFile, RejectsOtherAndDamagedFiles) {
  const Folder folder;
  const std::string file = (folder / "a.pack").string();
  const std::string whole = KernelPack::to_bytes({{.name = "sm_90", .backend = Backend::cuda}}, {{0, "key", "image"}});
  put(file, "not a pack at all");
  EXPECT_NE(message_of(file).find("the file is not a pack"), std::string::npos) << message_of(file);
  for (std::size_t bytes = 16; bytes < whole.size(); bytes += 5) {
    put(file, whole.substr(0, bytes));
    EXPECT_NE(message_of(file).find("the pack is truncated"), std::string::npos) << bytes << message_of(file);
  }
  std::string other = whole;
  other[13] = '7';  // the format
  put(file, other);
  EXPECT_NE(message_of(file).find("another format"), std::string::npos) << message_of(file);
  other = whole;
  other[other.size() - 20] ^= 1;  // in the index
  put(file, other);
  EXPECT_NE(message_of(file).find("damaged"), std::string::npos) << message_of(file);
  other = whole;
  other.back() ^= 1;  // in the image
  put(file, other);
  EXPECT_NE(test::message([&] { KernelPack(file).find("sm_90", "key"); }).find("damaged"), std::string::npos);
  EXPECT_NE(test::message([&] { KernelPack(file).check_images(); }).find("damaged"), std::string::npos);
  EXPECT_NE(message_of((folder / "absent").string()).find("absent"), std::string::npos);
}

TEST(ObjectCode, RejectsMalformedObjects) {
  const auto load = [](const std::string& bytes) {
    return test::message([&] { os::ObjectCode(bytes, [](std::string_view) -> const void* { return nullptr; }); });
  };
  EXPECT_NE(load("").find("truncated"), std::string::npos) << load("");
  EXPECT_NE(load(std::string(64, 'x')).find("not a relocatable"), std::string::npos);
}

TEST(Pack, RejectsUnknownTargets) {
  const Folder folder;
  const std::string file = (folder / "a.pack").string();
  const auto said = [&](const std::string& target) {
    return test::message([&] { pack({}, std::vector<std::string>{target}, file); });
  };
  EXPECT_NE(said("gpu").find("the target is not known"), std::string::npos) << said("gpu");
  EXPECT_NE(said("sm_1").find("Known architectures of NVIDIA"), std::string::npos) << said("sm_1");
  EXPECT_NE(said("cpu:z80").find("Known levels are"), std::string::npos) << said("cpu:z80");
  EXPECT_NE(said("sm_90:x").find("number of compute units"), std::string::npos) << said("sm_90:x");
  EXPECT_FALSE(fs::exists(file));
}

// The same code as in docs/packs.md.
void make_pack_of_exp(const std::string& file, const std::vector<std::string>& targets) {
  pack_launches(targets, file, [](Device device) {  // the device simulates a target and computes nothing
    const DeviceScope scope(device);
    const Array x = Array::zeros({1000}, DType::f32);
    const Array y = (exp(x) * 2.0f).eval();
  });
}

std::vector<float> run_packed(const std::string& file) {
  use_pack(file);  // before the first use of a device
  const Array x = Array::zeros({1000}, DType::f32);
  return (exp(x) * 2.0f).to_vector<float>();
}

#ifdef TESSERA_HAS_MODULE

const Variables no_module = {{"TESSERA_CODEGEN_LIBRARY", "none"}, {"TESSERA_DEVICE", "cpu"}};

TEST(PackOnCpu, RunsWithoutTheModule) {
  const Folder folder;
  const fs::path file = folder / "cpu.pack";
  make_pack({"cpu:" + best_level()}, file);
  const std::string compiled =
      run_in_child({{"TESSERA_DEVICE", "cpu"}, {"TESSERA_CPU_TARGET", best_level()}}, compute_and_count);
  const std::string packed = run_in_child(with(file, no_module), compute_and_count);
  EXPECT_EQ(results(packed), results(compiled)) << packed << compiled;
  EXPECT_TRUE(counts(packed).starts_with("0 compiled, ") && counts(packed).ends_with(" packed, 0 absent")) << packed;
  const std::string used = run_in_child(no_module, [&] {
    use_pack(file.string());
    return compute_and_count();
  });
  EXPECT_EQ(used, packed) << "use_pack is like TESSERA_PACK";
}

TEST(PackOnCpu, MissingKernelIsNamedAndCompiledIfAllowed) {
  const Folder folder;
  const fs::path file = folder / "cpu.pack";
  make_pack({"cpu:" + best_level()}, file);
  const auto other = [] {
    Array x = Array::arange(10, 0, 1, DType::f32);
    kernel("triple", [](Buffer<float> out) { out[global_id()] = out[global_id()] * 3.0f; }).launch({10}, x);
    return std::to_string(x.to_vector<float>()[3]) + " " + made_here();
  };
  const std::string allowed = run_in_child(with(file, {{"TESSERA_DEVICE", "cpu"}}), other);
  EXPECT_TRUE(allowed.starts_with("9.0") && allowed.find(" 0 compiled") == std::string::npos &&
              !allowed.ends_with(" 0 absent"))
      << allowed;
  const std::string forbidden = run_in_child(with(file, {{"TESSERA_DEVICE", "cpu"}, {"TESSERA_COMPILE", "0"}}), other);
  EXPECT_NE(forbidden.find("kernel triple"), std::string::npos) << forbidden;
  EXPECT_NE(forbidden.find("does not contain it (target cpu:" + best_level()), std::string::npos) << forbidden;
  EXPECT_NE(forbidden.find("TESSERA_COMPILE=0 forbids"), std::string::npos) << forbidden;
  const std::string impossible = run_in_child(with(file, no_module), other);
  EXPECT_NE(impossible.find("kernel triple"), std::string::npos) << impossible;
  EXPECT_NE(impossible.find("TESSERA_CODEGEN_LIBRARY is 'none'"), std::string::npos) << impossible;
  const std::string without = run_in_child({{"TESSERA_DEVICE", "cpu"}, {"TESSERA_COMPILE", "0"}}, other);
  EXPECT_NE(without.find("no pack is in use"), std::string::npos) << without;
}

TEST(PackOnCpu, PackOfKernelsHasTheirVariants) {
  const Folder folder;
  const std::string file = (folder / "kernels.pack").string();
  const auto add = [] {
    return kernel("add_to",
                  [](Buffer<const float> x, Buffer<float> y) { y[global_id()] = x[global_id()] + y[global_id()]; });
  };
  ASSERT_EQ(run_in_child({},
                         [&] {
                           const Kernel kernels[] = {add().untyped()};
                           const std::string targets[] = {"cpu:" + best_level()};
                           return std::to_string(pack(kernels, targets, file).at(0).kernels);
                         }),
            "6");
  Variables variables = no_module;
  variables.emplace_back("TESSERA_COMPILE", "0");
  const std::string answer = run_in_child(with(file, variables), [&] {
    const std::vector<float> values = {1, 2, 3};
    Array x = Array::from(values), y = Array::from(values);
    add().launch({3}, x, y);
    add().launch({3}, y, y);
    return std::to_string(y.to_vector<float>()[2]);
  });
  EXPECT_TRUE(answer.starts_with("12.0")) << answer;
}

/// The file of a tiny model with experts.
std::vector<std::byte> bytes_of_experts() {
  test::TinyModel tiny{.type = GgmlType::q8_0, .tied = false};
  tiny.experts = 6, tiny.used_experts = 2, tiny.width = 64, tiny.head = 32, tiny.hidden = 64;
  tiny.types = {{"gate_inp.weight", GgmlType::f32}};
  return tiny.writer().bytes();
}

/// Reads texts of random tokens, which use different experts. Returns a hash of the logits, and made_here().
std::string read_with_experts() {
  const std::vector<std::byte> bytes = bytes_of_experts();
  const Llama model = Llama::load(GgufFile::parse(bytes, "tiny"), current_device());
  KeyValueCache cache = model.make_cache(100);
  std::mt19937 random(7);
  std::string logits;
  for (const std::size_t count : {1, 2, 5, 9, 16, 31, 47, 48}) {
    std::vector<std::int32_t> tokens(count);
    for (std::int32_t& t : tokens) t = static_cast<std::int32_t>(random() % 203);
    cache.truncate(0);
    for (const float v : model.forward(tokens, cache).to_vector<float>())
      logits.append(reinterpret_cast<const char*>(&v), sizeof v);
  }
  return sha256(logits) + " " + made_here();
}

TEST(PackOnCpu, ExpertsWithAnyNumberOfTokensRunWithoutTheModule) {
  const Folder folder;
  const fs::path file = folder / "experts.pack";
  const std::string made = run_in_child({}, [&] {
    const std::vector<std::byte> bytes = bytes_of_experts();
    const GgufFile model = GgufFile::parse(bytes, "tiny");
    const std::string targets[] = {"cpu:" + best_level()};
    pack_launches(targets, file.string(),
                  [&](Device device) { exercise(model, device, {.batch = 48, .parallel = 2}); });
    return std::string("made");
  });
  ASSERT_EQ(made, "made");
  const std::string compiled =
      run_in_child({{"TESSERA_DEVICE", "cpu"}, {"TESSERA_CPU_TARGET", best_level()}}, read_with_experts);
  const std::string packed = run_in_child(with(file, no_module), read_with_experts);
  EXPECT_EQ(results(packed), results(compiled)) << packed << compiled;
  EXPECT_TRUE(counts(packed).starts_with("0 compiled, ") && counts(packed).ends_with(" packed, 0 absent")) << packed;
}

TEST(PackOnCpu, ExampleOfTheDocumentation) {
  test::DocsPage("docs/packs.md").expect_blocks_in("tests/cache/pack_test.cpp", 1);
  const Folder folder;
  const std::string file = (folder / "sum.pack").string();
  EXPECT_EQ(run_in_child({}, [&] { return make_pack_of_exp(file, {"cpu:" + best_level()}), std::string("made"); }),
            "made");
  EXPECT_EQ(run_in_child(no_module, [&] { return std::to_string(run_packed(file).at(7)); }), "2.000000");
}

TEST(PackOnCpu, PackMustBeSetBeforeTheDeviceIsOpen) {
  const Folder folder;
  const fs::path file = folder / "cpu.pack";
  make_pack({"cpu:" + best_level()}, file);
  const std::string answer = run_in_child({{"TESSERA_DEVICE", "cpu"}}, [&] {
    Array::zeros({1}, DType::f32).to_vector<float>();
    use_pack(file.string());
    return std::string("accepted");
  });
  EXPECT_NE(answer.find("the device is already open"), std::string::npos) << answer;
}

TEST(PackOnCpu, BrokenPackIsAnErrorOfTheProgram) {
  const Folder folder;
  put(folder / "a.pack", "nothing");
  const std::string answer = run_in_child(with(folder / "a.pack", {{"TESSERA_DEVICE", "cpu"}}), compute_and_count);
  EXPECT_NE(answer.find("the file is not a pack"), std::string::npos) << answer;
}

#endif

/// A fake GPU whose compilers are absent, and a target that it does not run.
struct FakeGpu {
  const char *backend, *target, *other;
};
constexpr FakeGpu fake_gpus[] = {{"cuda", "sm_90", "sm_80"}, {"rocm", "gfx90a", "gfx1030"}};

Variables without_compilers(const FakeGpu& gpu) {
  return test::with_fakes({{"TESSERA_NVRTC_LIBRARY", "none"},
                           {"TESSERA_HIPRTC_LIBRARY", "/nonexistent/libhiprtc.so"},
                           {"TESSERA_CODEGEN_LIBRARY", "none"},
                           {"TESSERA_DEVICE", gpu.backend}});
}

TEST(PackOnFakeGpus, RunsWithoutCompilers) {
  for (const FakeGpu& gpu : fake_gpus) {
    const Folder folder;
    const fs::path file = folder / "gpu.pack";
    make_pack({gpu.target, gpu.other}, file, test::with_fakes());
    const std::string compiled = run_in_child(test::with_fakes({{"TESSERA_DEVICE", gpu.backend}}), compute_and_count);
    const std::string packed = run_in_child(with(file, without_compilers(gpu)), compute_and_count);
    EXPECT_EQ(results(packed), results(compiled)) << gpu.backend << packed;
    EXPECT_TRUE(counts(packed).starts_with("0 compiled, ") && counts(packed).ends_with(" packed, 0 absent"))
        << gpu.backend << packed;
    // The compiler is present but not used.
    const std::string both =
        run_in_child(with(file, test::with_fakes({{"TESSERA_DEVICE", gpu.backend}})), compute_and_count);
    EXPECT_EQ(both, packed) << gpu.backend;
  }
}

TEST(PackOnFakeGpus, OtherArchitectureIsNamed) {
  for (const FakeGpu& gpu : fake_gpus) {
    const Folder folder;
    const fs::path file = folder / "gpu.pack";
    make_pack({gpu.other}, file, test::with_fakes());
    const std::string answer = run_in_child(with(file, without_compilers(gpu)), compute_and_count);
    EXPECT_NE(answer.find(std::string("has kernels for ") + gpu.other + ", but this device has " + gpu.target),
              std::string::npos)
        << answer;
    const std::string forbidden = run_in_child(
        with(file, test::with_fakes({{"TESSERA_DEVICE", gpu.backend}, {"TESSERA_COMPILE", "0"}})), compute_and_count);
    EXPECT_NE(forbidden.find(std::string("its targets are ") + gpu.other), std::string::npos) << forbidden;
  }
}

#ifdef TESSERA_HAS_MODULE
TEST(PackOnFakeGpus, PtxRunsOnLaterGpus) {
  const Folder folder;
  const fs::path file = folder / "gpu.pack";
  make_pack({"compute_80"}, file);
  const std::string packed = run_in_child(with(file, without_compilers(fake_gpus[0])), compute_and_count);
  EXPECT_TRUE(counts(packed).starts_with("0 compiled, ") && counts(packed).ends_with(" packed, 0 absent")) << packed;
}
#endif

}  // namespace
}  // namespace tessera
