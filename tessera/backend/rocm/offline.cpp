// SPDX-License-Identifier: Apache-2.0
#include "tessera/backend/rocm/offline.h"

#include <charconv>
#include <fstream>

#include <fmt/format.h>

#include "tessera/backend/common/image.h"
#include "tessera/backend/common/offline_gpu.h"
#include "tessera/backend/common/pack_names.h"
#include "tessera/backend/common/program.h"
#include "tessera/backend/rocm/hiprtc.h"
#include "tessera/base/error.h"
#include "tessera/base/os/command.h"
#include "tessera/base/os/library_search.h"
#include "tessera/emit/hip_for_clang.h"
#include "tessera/ir/node.h"

namespace tessera::rocm {

namespace {

/// A common GPU for each architecture. Sources: AMD's data sheets, and the tables of "AMD Instinct MI200 Instruction
/// Set Architecture" and "RDNA 3 Instruction Set Architecture" (registers, waves).
struct Architecture {
  const char* name;
  const char* gpu;
  std::uint32_t compute_units;
  double bandwidth, clock;  ///< bytes per second; hertz
  std::uint32_t subgroup, max_threads, register_files, registers, register_unit, memory_gib;
  double matrix;  ///< dense multiply-adds per second of f16 with f32 sums
  std::string architecture() const { return name; }
};
constexpr Architecture architectures[] = {
    {"gfx90a", "AMD Instinct MI250X (one die)", 110, 1.638e12, 1.70e9, 64, 2048, 4, 512, 8, 64, 95.7e12},
    {"gfx942", "AMD Instinct MI300X", 304, 5.3e12, 2.10e9, 64, 2048, 4, 512, 8, 192, 653e12},
    {"gfx1030", "AMD Radeon RX 6900 XT", 80, 0.512e12, 2.25e9, 32, 1024, 2, 1024, 8, 16, 0},
    {"gfx1100", "AMD Radeon RX 7900 XTX", 96, 0.960e12, 2.50e9, 32, 1024, 2, 1536, 24, 24, 61.4e12},
};

constexpr const char* install_clang = "Install clang 16 or later (Debian: clang-16), or ROCm";

class RocmTarget final : public backend::OfflineGpu {
 public:
  /// clang generates assembly for reports, and hiprtc code objects for packs.
  enum class Compiler : std::uint8_t { clang, hiprtc };
  RocmTarget(const Architecture& architecture, Compiler compiler);
  OfflineKernel compile(const CompileRequest& request) override;
  backend::KernelImage image(const CompileRequest& request);
  const std::string& compiler() const { return compiler_; }

 private:
  void find_clang();
  void find_hiprtc();
  stream::Image assemble(const std::string& text) const;

  const Architecture architecture_;
  std::string clang_, compiler_;
  Hiprtc hiprtc_;
};

void RocmTarget::find_hiprtc() {
  for (const int major : {7, 6, 5})
    if (!hiprtc_.usable()) hiprtc_ = Hiprtc::open({}, major);
  if (!hiprtc_.usable())
    fail<DeviceError>({.operation = fmt::format("compile for {}", architecture_.name),
                       .wrong = "hiprtc is not installed: " + hiprtc_.reason(),
                       .remedy = "Install it (Debian: libhiprtc-builtins5 with libamdhip64-5; from AMD's own archive: "
                                 "hip-runtime-amd), or set TESSERA_HIPRTC_LIBRARY to its file"});
  compiler_ = "hiprtc, " + hiprtc_.file();
}

void RocmTarget::find_clang() {
  const Architecture& a = architecture_;
  std::vector<std::filesystem::path> folders;
  for (const auto& root : os::folders_named("/opt", "rocm", "llvm")) folders.push_back(root / "bin");
  for (const char* name : {"amdclang++", "clang-19", "clang-18", "clang-17", "clang-16", "clang"})
    if (clang_.empty()) clang_ = os::find_program(name, folders);
  if (clang_.empty())
    fail<DeviceError>({.operation = fmt::format("compile for {}", a.name),
                       .wrong = "clang is not installed",
                       .remedy = install_clang});
  const std::string version[] = {clang_, "-dumpversion"};
  compiler_ = "clang " + os::run_command(version, 30).output;
  while (compiler_.ends_with('\n')) compiler_.pop_back();
  if (const stream::Image image = assemble(""); !image.made)
    fail<DeviceError>(
        {.operation = fmt::format("compile for {}", a.name),
         .wrong = fmt::format("{} does not support it: {}", clang_, image.log.substr(0, image.log.find('\n'))),
         .remedy = "Install a newer clang, or ROCm"});
}

RocmTarget::RocmTarget(const Architecture& a, Compiler compiler) : architecture_(a) {
  compiler == Compiler::clang ? find_clang() : find_hiprtc();
  dialect_ = emit::hip_c_for(a.name);
  // The device libraries of ROCm, which clang is called without, contain the functions. Their arithmetic is similar to
  // the expansions.
  dialect_.expand_math = dialect_.expand_math64 = compiler == Compiler::clang;
  if (a.subgroup != emit::matrix_width(dialect_.matrix)) dialect_.matrix = emit::MatrixUnits::none;
  model_ = {.name = a.gpu,
            .multiprocessors = a.compute_units,
            .bandwidth = a.bandwidth,
            .operations = a.compute_units * 64 * a.clock,
            .matrix_operations = a.matrix,
            .f32_matrix_cost = dialect_.matrix == emit::MatrixUnits::mfma_k32 ? 8.0 : 4.0,
            .clock = a.clock,
            .issue_cycles = a.subgroup == 64 ? 4.0 : 1.0,  // 16 lanes of CDNA at a time
            .subgroup = a.subgroup,
            .max_threads = a.max_threads,
            .register_files = a.register_files,
            .registers = a.registers,
            .register_unit = a.register_unit};
  set_info(Backend::rocm, "AMD", a.memory_gib);
  Capabilities& can = info_.can;
  can.bf16 = std::string_view(a.name) != "gfx1030";
  can.max_block = {1024, 1024, 1024};
  can.shared_bytes = 65536;
  can.max_grid_threads = {0xffffffff, 0xffffffff, 0xffffffff};
}

stream::Image RocmTarget::assemble(const std::string& text) const {
  const os::TemporaryFolder folder;
  const std::string from = (folder.path() / "kernel.hip").string(), to = (folder.path() / "kernel.s").string();
  std::ofstream(from) << emit::hip_for_clang << text;
  const std::string command[] = {clang_,
                                 "-x",
                                 "hip",
                                 "--cuda-device-only",
                                 "-nogpulib",
                                 "-nogpuinc",
                                 "-ffp-contract=fast",
                                 "-O3",
                                 "-S",
                                 "-w",
                                 fmt::format("--offload-arch={}", architecture_.name),
                                 from,
                                 "-o",
                                 to};
  const os::CommandResult result = os::run_command(command, 300);
  stream::Image image;
  image.made = result.status == 0;
  image.log = result.output;
  std::ifstream in(to);
  image.bytes.assign(std::istreambuf_iterator<char>(in), {});
  return image;
}

/// Returns the number after `key` in the notes of the assembly, or 0.
std::uint32_t number_after(const std::string& assembly, std::string_view key) {
  const std::size_t at = assembly.rfind(key);
  if (at == assembly.npos) return 0;
  const std::size_t begin = assembly.find_first_not_of(' ', at + key.size());
  std::uint32_t value = 0;
  if (begin != assembly.npos) std::from_chars(assembly.data() + begin, assembly.data() + assembly.size(), value);
  return value;
}

OfflineKernel RocmTarget::compile(const CompileRequest& request) {
  OfflineKernel kernel;
  kernel.compiler = compiler_;
  const auto built = backend::build_kernels(std::span(&request, 1), dialect_, info_,
                                            [&](const backend::Program& program, std::string& log) {
                                              stream::Image image = assemble(program.text());
                                              log = image.log;
                                              kernel.assembly = std::move(image.bytes);
                                              return image.made ? std::make_shared<int>() : nullptr;
                                            });
  kernel.syntax = OfflineKernel::Syntax::amdgcn;
  kernel.registers = number_after(kernel.assembly, ".vgpr_count:");
  kernel.spilled_bytes = 4 * number_after(kernel.assembly, ".vgpr_spill_count:");
  kernel.shared_bytes =
      number_after(kernel.assembly, ".group_segment_fixed_size:") + built[0].emitted.dynamic_shared_bytes;
  return kernel;
}

backend::KernelImage RocmTarget::image(const CompileRequest& request) {
  backend::KernelImage out;
  auto built = backend::build_kernels(std::span(&request, 1), dialect_, info_,
                                      [&](const backend::Program& program, std::string& log) {
                                        stream::Image made = hiprtc_.compile(program.text(), architecture_.name);
                                        log = std::move(made.log), out.program = std::move(made.bytes);
                                        return made.made ? std::make_shared<int>() : nullptr;
                                      });
  out.form = std::move(built[0].emitted);
  return out;
}

class RocmPackCompiler final : public PackCompiler {
 public:
  RocmPackCompiler(const std::string& name, const Architecture& architecture, std::uint32_t units)
      : gpu_(architecture, RocmTarget::Compiler::hiprtc), info_(gpu_.info()) {
    if (units != 0) info_.compute_units = units;
    target_ = {.name = name,
               .backend = Backend::rocm,
               .compiler = gpu_.compiler(),
               .compute_units = info_.compute_units,
               .shared_bytes = info_.can.shared_bytes,
               .traits = architecture.name};
  }
  const PackTarget& target() const override { return target_; }
  const DeviceInfo& info() const override { return info_; }
  std::string build(const CompileRequest& request) override { return backend::pack(gpu_.image(request)); }

 private:
  RocmTarget gpu_;
  DeviceInfo info_;
  PackTarget target_;
};

}  // namespace

std::unique_ptr<PackCompiler> pack_compiler(const std::string& target) {
  if (!target.starts_with("gfx")) return nullptr;
  const auto [name, units] = backend::split_units(target, 0);
  return std::make_unique<RocmPackCompiler>(target, backend::find_architecture(architectures, name, "AMD"), units);
}

std::unique_ptr<OfflineTarget> offline_target(const std::string& architecture, TargetCompiler compiler) {
  if (!architecture.starts_with("gfx")) return nullptr;
  const Architecture& known = backend::find_architecture(architectures, architecture, "AMD");
  if (compiler == TargetCompiler::ptx)
    fail<DeviceError>({.operation = "compile for " + architecture, .wrong = "PTX is only for NVIDIA GPUs"});
  return std::make_unique<RocmTarget>(known, RocmTarget::Compiler::clang);
}

}  // namespace tessera::rocm
