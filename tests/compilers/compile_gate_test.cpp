// SPDX-License-Identifier: Apache-2.0
// Checks that the vendors' compilers accept all kernels of ops/, and a set of kernels that uses every feature of
// emitted text. No compiler needs a GPU. The test uses the same code as the backends. Each compiler and architecture
// runs in a child process, because some compilers crash on some architectures. If a compiler is not installed, its
// ctest entry is skipped.
#include <gtest/gtest.h>

#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <regex>
#include <set>
#include <sstream>

#include "tessera/backend/common/codegen_module.h"
#include "tessera/backend/common/program.h"
#include "tessera/backend/cuda/cuda.h"
#include "tessera/backend/cuda/nvrtc.h"
#include "tessera/backend/cuda/toolkit.h"
#include "tessera/backend/metal/metal.h"
#include "tessera/backend/oneapi/compiler.h"
#include "tessera/backend/oneapi/oneapi.h"
#include "tessera/backend/opencl/opencl.h"
#include "tessera/backend/rocm/hiprtc.h"
#include "tessera/backend/rocm/rocm.h"
#include "tessera/base/error.h"
#include "tessera/base/os/library.h"
#include "tessera/device/driver.h"
#include "tessera/emit/hip_for_clang.h"
#include "tessera/ops/catalogue.h"
#include "tessera/ops/kernels.h"
#include "tests/compilers/emit_zoo.h"
#include "tests/compilers/gate_table.h"
#include "tests/drivers/text/compile.h"
#include "tests/opencl/fresh_pocl_cache.h"
#include "tests/support/fake_backends.h"
#include "tests/support/folder.h"
#include "tests/support/sanitized.h"

namespace tessera {
namespace {

using test::GateTable;
using test::Made;
using test::run_in_child;
using test::text_of;
using test::Variables;
namespace fs = std::filesystem;

struct Candidate {
  std::string name;
  ir::Function function;
  Variant variant;
};

/// Returns all kernels of ops/ for the device, and all kernels of emit_zoo.h. The latter are included a second time
/// with 64-bit indices and buffers that may overlap. Skips kernels with features that the device lacks: f64, and for
/// Metal also print and 64-bit atomics. If `matrices` is true, includes fragment products even if the fake device has
/// no matrix units.
std::vector<Candidate> candidates(Device device, bool matrices = false) {
  const Capabilities& can = device_info(device).can;
  std::vector<Candidate> all;
  ops::Tiles tiles = ops::tiles_of(device);
  tiles.matrix_f16 = tiles.matrix_bf16 = true;
  for (const DType t : {DType::f16, DType::bf16})
    for (int both = 0; matrices && both < 4; ++both) {
      ops::ProductSpec s{t, t, DType::f32, t};
      s.a_unit_k = !(both & 1), s.a_unit_m = both & 1, s.b_unit_n = !(both & 2), s.b_unit_k = both & 2;
      ir::Function fn = ops::trace_product(ops::choose_product(tiles, s, 4096, 4096, 512));
      const std::string name =
          fn.name + (both & 1 ? "_ta" : "") + (both & 2 ? "_tb" : "");  // same names as in the catalogue
      all.push_back({name, std::move(fn), {}});
    }
  for (const CatalogueKernel& k : kernel_catalogue(device)) all.push_back({k.name, k.function, {}});
  std::vector<ir::Function> zoo = test::zoo::all();
  zoo.push_back(test::zoo::fragment_product(DType::f16, false));
  for (const DType t : {DType::f16, DType::bf16, DType::f32})
    for (const bool transposed : {false, true}) zoo.push_back(test::zoo::full_fragment_product(t, transposed));
  if (can.shared_bytes >= (96 << 10)) zoo.push_back(test::zoo::much_shared_memory());
  for (const bool wide : {false, true})
    for (const ir::Function& fn : zoo) {
      const bool doubles = std::ranges::any_of(fn.nodes, [](const ir::Node& n) { return n.type.dtype == DType::f64; });
      const bool unknown_to_metal = std::ranges::any_of(fn.nodes, [](const ir::Node& n) {
        return n.op == ir::Op::print || (n.op == ir::Op::atomic && dtype_size(n.type.dtype) == 8);
      });
      if ((doubles && !can.f64) || (unknown_to_metal && device.backend == Backend::metal)) continue;
      Variant variant;
      variant.index64 = wide, variant.noalias = !wide;
      all.push_back({"zoo: " + fn.name + (wide ? ", wide" : ""), fn, variant});
    }
  return all;
}

/// The register counts that a compiler reports for the kernels of a program. The keys are the entries.
using Answers = std::map<std::string, Made>;
/// Compiles a program. On failure, returns an image that contains only the log.
using Compile = std::function<stream::Image(const backend::Program&, Answers&)>;

/// Compiles all kernels for a device, in batches of the same size as in the backend. Returns lines for the table. If
/// kernels fail to compile, throws an exception with their names.
std::string compile_all(Device device, const emit::Dialect& dialect, const Compile& compile,
                        const std::string& left_out = "", bool matrices = false) {
  constexpr std::size_t batch = 32;
  std::vector<Candidate> all = candidates(device, matrices);
  std::erase_if(all, [&](const Candidate& c) { return !left_out.empty() && c.name.starts_with(left_out); });
  std::string lines;
  for (std::size_t at = 0; at < all.size(); at += batch) {
    std::vector<CompileRequest> requests;
    for (std::size_t i = at; i < std::min(at + batch, all.size()); ++i)
      requests.push_back({&all[i].function, all[i].variant});
    Answers answers;
    const auto built =
        backend::build_kernels(requests, dialect, device_info(device),
                               [&](const backend::Program& program, std::string& log) -> std::shared_ptr<void> {
                                 stream::Image image = compile(program, answers);
                                 if (!image.made || image.bytes.empty()) return log = image.log, nullptr;
                                 return std::make_shared<int>();
                               });
    for (std::size_t i = 0; i < built.size(); ++i)
      lines += GateTable::line_of(all[at + i].name, answers[built[i].emitted.entry]);
  }
  return lines;
}

double cpu_seconds() {
  rusage children{};
  getrusage(RUSAGE_CHILDREN, &children);
  return static_cast<double>(children.ru_utime.tv_sec) + 1e-6 * static_cast<double>(children.ru_utime.tv_usec);
}

constexpr const char* absent = "missing: ";

/// The folder in which script/bootstrap --compilers installs NVIDIA's compilers on machines without a CUDA toolkit.
/// Only this test searches this folder.
constexpr const char* nvidia_folder = "build/nvidia-compilers";
const bool nvidia_folder_known = [] {
  std::error_code none;
  if (!std::getenv("VIRTUAL_ENV") && fs::is_directory(nvidia_folder, none))
    ::setenv("VIRTUAL_ENV", fs::absolute(nvidia_folder, none).c_str(), 1);
  return true;
}();

/// Computes a column of the table. Returns false if the compiler is not installed.
bool column(const std::string& name, const Variables& variables, const std::function<std::string()>& work) {
  const double before = cpu_seconds();
  const std::string answer = run_in_child(test::with_fakes(variables), work, 560);
  if (answer.starts_with(absent)) {
    GateTable::get().missing(answer.substr(std::strlen(absent)));
    return false;
  }
  const bool lines =
      answer.find('\t') != answer.npos && answer.find("exception: ") != 0 && !answer.starts_with("the child");
  EXPECT_TRUE(lines) << name << ": " << answer;
  if (!lines) return true;
  GateTable::get().add(name, answer);
  std::printf("%s: %ld kernels, %.1f s of processor time\n", name.c_str(),
              std::count(answer.begin(), answer.end(), '\n'), cpu_seconds() - before);
  std::fflush(stdout);
  return true;
}

/// Parses the output of ptxas, which NVRTC includes in its log: "Compiling entry function 'k' for", "8 bytes spill
/// stores", "Used 12 registers".
void read_ptxas(const std::string& log, Answers& answers) {
  static const std::regex entry("(?:entry function '|Function properties for )([A-Za-z0-9_$]+)"),
      spills("([0-9]+) bytes spill stores"), registers("Used ([0-9]+) registers");
  std::istringstream in(log);
  std::string line, current;
  std::smatch match;
  while (std::getline(in, line)) {
    if (std::regex_search(line, match, entry)) current = match[1];
    if (std::regex_search(line, match, spills)) answers[current].spilled = std::stoi(match[1]);
    if (std::regex_search(line, match, registers)) answers[current].registers = std::stoi(match[1]);
  }
}

/// Returns the fake device for this capability. The first device of the fake driver has capability 9.0, the second one
/// 7.5.
Device cuda_device(int capability) {
  register_driver(make_cuda_driver());
  return {Backend::cuda, capability < 80 ? 1 : 0};
}

/// The capabilities to compile for. The emitted text depends on whether a capability is below 8.0.
std::vector<int> capabilities() {
  if (std::getenv("TESSERA_TEST_LONG") != nullptr) return {75, 80, 90, 120};
  return {75, 90};
}

TEST(Gate, nvrtcAcceptsAllKernels) {
  for (const int capability : capabilities()) {
    const bool there =
        column("nvrtc sm_" + std::to_string(capability), {{"TESSERA_FAKE_DEVICES", "2"}}, [&]() -> std::string {
          const Device device = cuda_device(capability);
          device_info(device);
          ::unsetenv("TESSERA_NVRTC_LIBRARY");
          const auto nvrtc = cuda::Nvrtc::open(1000000);
          if (!nvrtc.usable())
            return std::string(absent) + "nvrtc (libnvrtc.so of the CUDA toolkit, or script/bootstrap --compilers)";
          return compile_all(device, emit::cuda_c_for(capability), [&](const auto& program, Answers& answers) {
            auto image = nvrtc.compile(program.text(), nvrtc.architecture_for(capability), program.exact, true);
            read_ptxas(image.log, answers);
            return image;
          });
        });
    if (!there) break;
  }
}

TEST(Gate, ptxAcceptsAllKernels) {
  const std::string ptxas = cuda::ptxas_file();
  const fs::path folder = fs::temp_directory_path() / ("tessera-gate-" + std::to_string(::getpid()));
  fs::create_directories(folder);
  for (const int capability : capabilities()) {
    const bool there =
        column("ptx sm_" + std::to_string(capability), {{"TESSERA_FAKE_DEVICES", "2"}}, [&]() -> std::string {
          const Device device = cuda_device(capability);
          const auto module = cpu::open_ptx_module();
          if (!module.generator) return std::string(absent) + "the code-generation module (" + module.reason + ")";
          if (ptxas.empty())
            return std::string(absent) +
                   "ptxas (of the CUDA toolkit, or script/bootstrap --compilers; TESSERA_PTXAS names it)";
          const cpu::PtxTarget target = module.generator->target_for(capability, 100);
          return compile_all(
              device, emit::ptx_for(target.capability), [&](const backend::Program& program, Answers& answers) {
                std::vector<cpu::PtxKernel> kernels;
                for (std::size_t i = 0; i < program.requests.size(); ++i)
                  kernels.push_back(
                      {program.requests[i].function, &program.source.kernels[i], program.requests[i].noalias});
                stream::Image image;
                image.bytes = module.generator->compile(kernels, target, image.log);
                if (image.bytes.empty()) return image;
                const fs::path text = folder / "kernels.ptx", log = folder / "log";
                std::ofstream(text) << image.bytes;
                const std::string command = "'" + ptxas + "' -v -arch=sm_" + std::to_string(capability) + " '" +
                                            text.string() + "' -o /dev/null > '" + log.string() + "' 2>&1";
                image.made = std::system(command.c_str()) == 0;
                image.log = text_of(log);
                read_ptxas(image.log, answers);
                if (!image.made && program.requests.size() == 1) image.log += image.bytes;
                return image;
              });
        });
    if (!there) break;
  }
  fs::remove_all(folder);
}

/// Reads register counts from the notes of a code object. They are in MessagePack with sorted keys, so .symbol comes
/// before .vgpr_count.
void read_code_object(const std::string& bytes, Answers& answers) {
  auto number = [&](const std::string& key, std::size_t from) {
    const std::size_t at = bytes.find(key, from);
    if (at == bytes.npos || at + key.size() + 3 > bytes.size()) return -1;
    const auto* p = reinterpret_cast<const unsigned char*>(bytes.data() + at + key.size());
    return p[0] < 0x80 ? p[0] : p[0] == 0xcc ? p[1] : p[0] == 0xcd ? p[1] << 8 | p[2] : -1;
  };
  for (std::size_t at = bytes.find(".symbol"); at != bytes.npos; at = bytes.find(".symbol", at + 1)) {
    const std::size_t end = bytes.find(".kd", at);
    std::size_t begin = end;
    while (begin > at + 7 && (std::isalnum(static_cast<unsigned char>(bytes[begin - 1])) || bytes[begin - 1] == '_'))
      --begin;
    if (end == bytes.npos || end - at > 300) continue;
    // The length byte of the string may be a valid character of the name.
    for (std::size_t first = begin; first < std::min(begin + 2, end); ++first)
      if (auto& made = answers[bytes.substr(first, end - first)]; made.registers < 0)
        made = {number(".vgpr_count", at), 4 * std::max(0, number(".vgpr_spill_count", at))};
  }
}

TEST(Gate, hiprtcAcceptsAllKernels) {
  for (const std::string architecture : {"gfx908", "gfx90a", "gfx1030"}) {
    const bool there = column("hip " + architecture, {{"TESSERA_FAKE_DEVICES", "2"}}, [&]() -> std::string {
      register_driver(make_rocm_driver());
      device_info({Backend::rocm, 0});  // the first fake device has waves of 64, the second one waves of 32
      ::unsetenv("TESSERA_HIPRTC_LIBRARY");
      const std::string names[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"};
      const auto runtime = os::Library::open(names);
      const auto hiprtc = rocm::Hiprtc::open(runtime, runtime.file().empty() ? 0 : runtime.file().back() - '0');
      if (!hiprtc.usable()) return std::string(absent) + "hiprtc (script/bootstrap --compilers: libamdhip64-dev)";
      return compile_all({Backend::rocm, architecture.starts_with("gfx9") ? 0 : 1}, emit::hip_c_for(architecture),
                         [&](const auto& program, Answers& answers) {
                           auto image = hiprtc.compile(program.text(), architecture);
                           if (image.made) read_code_object(image.bytes, answers);
                           return image;
                         });
    });
    if (!there) break;
  }
}

/// Reads register counts from clang's assembly. Its notes have sorted keys, like the notes of a code object.
void read_assembly(const std::string& text, Answers& answers) {
  static const std::regex line("\\.(symbol|vgpr_count|vgpr_spill_count): +([A-Za-z0-9_]+)");
  std::string current;
  for (std::sregex_iterator at(text.begin(), text.end(), line), end; at != end; ++at) {
    const std::string key = (*at)[1], value = (*at)[2];
    if (key == "symbol")
      current = value;
    else
      (key == "vgpr_count" ? answers[current].registers : answers[current].spilled) =
          std::stoi(value) * (key == "vgpr_count" ? 1 : 4);
  }
}

// hiprtc 5.2 ends the process on gfx11, so this architecture is compiled with clang, on which hiprtc is based.
TEST(Gate, clangAcceptsAllKernels) {
  const fs::path folder = fs::temp_directory_path() / ("tessera-gate-clang-" + std::to_string(::getpid()));
  fs::create_directories(folder);
  const std::string architecture = "gfx1100";
  // Uses the properties of the fake device with waves of 32.
  column("clang " + architecture, {{"TESSERA_FAKE_DEVICES", "2"}}, [&]() -> std::string {
    if (std::system("clang-16 --version > /dev/null 2>&1") != 0)
      return std::string(absent) + "clang-16 (script/bootstrap)";
    register_driver(make_rocm_driver());
    return compile_all(
        {Backend::rocm, 1}, emit::hip_c_for(architecture),
        [&](const auto& program, Answers& answers) {
          const fs::path text = folder / "kernels.hip", out = folder / "kernels.s", log = folder / "log";
          std::ofstream(text) << emit::hip_for_clang << program.text();
          const std::string command =
              "clang-16 -x hip --cuda-device-only -nogpulib -nogpuinc -ffp-contract=fast -O3 -S --offload-arch=" +
              architecture + " '" + text.string() + "' -o '" + out.string() + "' > '" + log.string() + "' 2>&1";
          stream::Image image;
          image.made = std::system(command.c_str()) == 0;
          image.bytes = text_of(out), image.log = text_of(log);
          read_assembly(image.bytes, answers);
          return image;
        },
        "", true);
  });
  fs::remove_all(folder);
}

TEST(Gate, oclocAcceptsAllKernels) {
  struct Target {
    const char *device, *name;
    int index;
    bool fp64;
  };
  // Debian 12's compiler (22.43) ends the process on kernels that combine byte products with bfloat16 and vector loads.
  const std::string aborts = "zoo: odds and-ends";
  // The targets are PCI ids, as in the backend: an Iris Xe, an Arc A770 and a Max 1550.
  for (const Target& target :
       {Target{"0x9a49", "tgllp", 0, false}, {"0x56a0", "dg2", 0, false}, {"0x0bd5", "pvc", 1, true}}) {
    const bool there =
        column(std::string("ocloc ") + target.name, {{"TESSERA_FAKE_DEVICES", "2"}, {"TESSERA_OCLOC_LIBRARY", ""}},
               [&]() -> std::string {
                 if (test::sanitized) return std::string(absent) + test::no_deepbind;
                 const auto ocloc = oneapi::Ocloc::open();
                 if (!ocloc.usable())
                   return std::string(absent) + "libocloc (script/bootstrap --compilers: intel-opencl-icd)";
                 register_driver(make_oneapi_driver());
                 const Device device{Backend::oneapi, target.index};
                 emit::Dialect dialect = emit::opencl_c_intel();
                 dialect.fp64 = target.fp64;
                 dialect.dot4 = true;
                 return compile_all(
                     device, dialect,
                     [&](const auto& program, Answers&) {
                       return ocloc.compile(program.text(), target.device, oneapi::compile_options(true, true)).image;
                     },
                     target.fp64 ? "" : aborts);
               });
    if (!there) break;
    if (!target.fp64) std::printf("left out of ocloc %s: %s\n", target.name, aborts.c_str());
  }
}

TEST(Gate, poclAcceptsAllKernels) {
  column("pocl", {}, []() -> std::string {
    ::unsetenv("TESSERA_OPENCL_LIBRARY");
    auto made = make_opencl_driver();
    Driver& driver = *made;
    register_driver(std::move(made));
    const BackendReport report = driver.enumerate();
    for (const DeviceInfo& info : report.devices) {
      if (info.name.find("pthread") == std::string::npos && info.driver_version.find("PoCL") == std::string::npos &&
          info.name.find("pocl") == std::string::npos && info.name.find("cpu-") == std::string::npos)
        continue;
      const auto device = driver.open(info.device.index);
      std::string lines;
      std::vector<Candidate> all = candidates(info.device);
      for (std::size_t at = 0; at < all.size(); at += 32) {
        std::vector<CompileRequest> requests;
        for (std::size_t i = at; i < std::min(at + 32, all.size()); ++i)
          requests.push_back({&all[i].function, all[i].variant});
        device->compile(requests);
        for (std::size_t i = 0; i < requests.size(); ++i) lines += GateTable::line_of(all[at + i].name, {});
      }
      return lines;
    }
    return std::string(absent) + "pocl (script/bootstrap: pocl-opencl-icd): " + report.reason;
  });
}

// Apple's compiler is only available on Apple's systems. Metal text is C++, so this test compiles it with a host
// compiler and a header that defines Metal's types and functions. This does not check rules that only Metal has, such
// as attributes and limits on arguments.
TEST(Gate, metalAcceptsAllKernels) {
  column("metal as C++", {{"TESSERA_METAL_LIBRARY", test::fake_library("metal")}}, []() -> std::string {
    register_driver(make_metal_driver());
    return compile_all({Backend::metal, 0}, emit::metal_c(), [](const backend::Program& program, Answers&) {
      const text::CompiledText checked = text::check_metal(program.text());
      return stream::Image{checked.made, checked.object, checked.log};
    });
  });
  std::printf("metal as C++: compiled by %s\n", text::metal_checker().c_str());
}

class PrintTable : public ::testing::Environment {
  void TearDown() override { GateTable::get().print(); }
};
const auto* const printed = ::testing::AddGlobalTestEnvironment(new PrintTable);

}  // namespace
}  // namespace tessera
