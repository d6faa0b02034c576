// SPDX-License-Identifier: Apache-2.0
#include "tessera/backend/cuda/offline.h"

#include <charconv>
#include <fstream>
#include <optional>

#include <fmt/format.h>

#include "tessera/backend/common/codegen_module.h"
#include "tessera/backend/common/image.h"
#include "tessera/backend/common/offline_gpu.h"
#include "tessera/backend/common/pack_names.h"
#include "tessera/backend/common/program.h"
#include "tessera/backend/cuda/nvrtc.h"
#include "tessera/backend/cuda/toolkit.h"
#include "tessera/base/error.h"
#include "tessera/base/os/command.h"
#include "tessera/base/packed.h"
#include "tessera/ir/node.h"

namespace tessera::cuda {

namespace {

/// A common GPU for each architecture. Sources: NVIDIA's data sheets for the number of multiprocessors, bandwidth and
/// boost clock; "CUDA C++ Programming Guide", table "Technical Specifications per Compute Capability", for the rest.
struct Architecture {
  int capability;
  const char* name;
  std::uint32_t multiprocessors;
  double bandwidth;  ///< bytes per second
  double clock;      ///< hertz
  std::uint32_t lanes, max_threads, max_blocks, shared_kib, block_shared_kib, memory_gib;
  double matrix;  ///< dense multiply-adds per second of f16 with f32 sums
  std::string architecture() const { return fmt::format("sm_{}", capability); }
};
constexpr Architecture architectures[] = {
    {75, "NVIDIA T4", 40, 0.320e12, 1.59e9, 64, 1024, 16, 64, 64, 16, 32.5e12},
    {80, "NVIDIA A100 80GB", 108, 2.039e12, 1.41e9, 64, 2048, 32, 164, 163, 80, 156e12},
    {86, "NVIDIA GeForce RTX 3090", 82, 0.936e12, 1.70e9, 128, 1536, 16, 100, 99, 24, 35.5e12},
    {89, "NVIDIA GeForce RTX 4090", 128, 1.008e12, 2.52e9, 128, 1536, 24, 100, 99, 24, 82.6e12},
    {90, "NVIDIA H200", 132, 4.8e12, 1.98e9, 128, 2048, 32, 228, 227, 141, 494.7e12},
    {100, "NVIDIA B200", 148, 8.0e12, 1.97e9, 128, 2048, 32, 228, 227, 180, 1125e12},
    {120, "NVIDIA GeForce RTX 5090", 170, 1.792e12, 2.41e9, 128, 1536, 24, 100, 99, 32, 104.8e12},
};

constexpr const char* install_tools =
    "Install the CUDA toolkit, or with pip into the active environment: nvidia-cuda-nvrtc, nvidia-cuda-nvcc (ptxas) "
    "and "
    "nvidia-cuda-nvdisasm";

/// Returns the version in the output of a program: "13.5" from "Cuda compilation tools, release 13.5, V13.5.37".
std::string release_of(const std::string& program) {
  const std::string command[] = {program, "--version"};
  const os::CommandResult result = os::run_command(command, 30);
  const std::size_t at = result.output.find("release ");
  return at == result.output.npos ? "" : result.output.substr(at + 8, result.output.find(',', at) - at - 8);
}

/// Returns the version of ptxas. Throws DeviceError if it cannot be run.
std::string ptxas_release(const std::string& file) {
  std::string release = release_of(file);
  if (release.empty())
    fail<DeviceError>({.operation = "run ptxas",
                       .with = {{"file", file}},
                       .wrong = "the program cannot be run, or is not ptxas",
                       .remedy = "Set TESSERA_PTXAS to the file of ptxas, or unset it"});
  return release;
}

/// Returns the number before `text` in the log, or 0.
std::uint64_t number_before(const std::string& log, std::string_view text) {
  const std::size_t end = log.find(text);
  if (end == log.npos) return 0;
  std::size_t begin = end;
  while (begin > 0 && log[begin - 1] >= '0' && log[begin - 1] <= '9') --begin;
  std::uint64_t value = 0;
  std::from_chars(log.data() + begin, log.data() + end, value);
  return value;
}

class CudaTarget final : public backend::OfflineGpu {
 public:
  enum class Output : std::uint8_t { machine_code, ptx };
  CudaTarget(const Architecture& architecture, TargetCompiler compiler, Output output = Output::machine_code)
      : architecture_(architecture), output_(output) {
    choose_compiler(compiler);
    describe();
  }
  OfflineKernel compile(const CompileRequest& request) override;
  backend::KernelImage image(const CompileRequest& request);
  const std::string& compiler() const { return compiler_; }
  bool expands_math() const { return dialect_.expand_math; }  ///< true for kernels from the code-generation module
  /// The capability whose features the kernels use. It is lower than that of the architecture if LLVM does not know it.
  int capability() const { return nvrtc_ ? architecture_.capability : ptx_target_.capability; }

 private:
  std::string name() const { return architecture_.architecture(); }
  void choose_compiler(TargetCompiler compiler);
  void describe();
  stream::Image cubin(const backend::Program& program, std::string& log);

  const Architecture architecture_;
  const Output output_;
  std::optional<Nvrtc> nvrtc_;  ///< set if NVRTC compiles; otherwise module_ and ptxas_ do
  cpu::PtxModule module_;
  cpu::PtxTarget ptx_target_;
  std::string ptxas_, nvdisasm_, compiler_;
};

void CudaTarget::choose_compiler(TargetCompiler compiler) {
  nvdisasm_ = toolkit_program("nvdisasm");
  std::string why;
  if (compiler != TargetCompiler::ptx) {
    constexpr int any_driver = 1000000;
    nvrtc_ = Nvrtc::open(any_driver);
    if (nvrtc_->usable() && nvrtc_->architecture_for(architecture_.capability) == name()) {
      compiler_ = "NVRTC " + nvrtc_->version();
      dialect_ = emit::cuda_c_for(architecture_.capability);
      return;
    }
    why = !nvrtc_->usable() ? "NVRTC is not installed (" + nvrtc_->reason() + ")"
                            : fmt::format("NVRTC {} does not support it", nvrtc_->version());
    nvrtc_.reset();
  }
  if (compiler != TargetCompiler::vendor) {
    module_ = cpu::open_ptx_module();
    const bool machine_code = output_ == Output::machine_code;
    if (machine_code) ptxas_ = ptxas_file();
    if (module_.generator) {
      // PTX for drivers since CUDA 11.8, unless the architecture is newer. ptxas gets the newest version.
      constexpr int of_cuda_11_8 = 78, any = 100;
      const cpu::PtxTarget newest = module_.generator->target_for(architecture_.capability, any);
      ptx_target_ = module_.generator->target_for(architecture_.capability, of_cuda_11_8);
      if (machine_code || ptx_target_.capability < newest.capability) ptx_target_ = newest;
    }
    if (ptx_target_.capability != 0 && (!machine_code || !ptxas_.empty())) {
      compiler_ = module_.generator->version();
      if (machine_code) compiler_ += ", ptxas " + ptxas_release(ptxas_);
      dialect_ = emit::ptx_for(ptx_target_.capability);
      return;
    }
    why += (why.empty() ? "" : "; ") + (!module_.generator ? module_.reason
                                        : ptx_target_.capability == 0
                                            ? module_.generator->version() + " does not support it"
                                            : "ptxas is not installed");
  }
  fail<DeviceError>({.operation = "compile for " + name(), .wrong = why, .remedy = install_tools});
}

void CudaTarget::describe() {
  const Architecture& a = architecture_;
  model_.name = a.name;
  model_.multiprocessors = a.multiprocessors;
  model_.bandwidth = a.bandwidth;
  model_.operations = a.multiprocessors * a.lanes * a.clock;
  model_.matrix_operations = a.matrix;
  model_.clock = a.clock;
  model_.max_threads = a.max_threads;
  model_.max_blocks = a.max_blocks;
  model_.shared_bytes = std::uint64_t{a.shared_kib} << 10;
  model_.shared_reserved = a.capability >= 80 ? 1024 : 0;
  set_info(Backend::cuda, "NVIDIA", a.memory_gib);
  info_.can.bf16 = a.capability >= 80;
  info_.can.shared_bytes = std::uint64_t{a.block_shared_kib} << 10;
}

stream::Image CudaTarget::cubin(const backend::Program& program, std::string& log) {
  if (nvrtc_) {
    stream::Image image = nvrtc_->compile(program.text(), name(), program.exact, true);
    log = image.log;
    return image;
  }
  const cpu::PtxKernel kernel{program.requests[0].function, &program.source.kernels[0], program.requests[0].noalias};
  stream::Image image;
  std::string ptx = module_.generator->compile(std::span(&kernel, 1), ptx_target_, log);
  if (ptx.empty()) return image;
  if (output_ == Output::ptx) {
    image.made = image.is_text = true, image.bytes = std::move(ptx);
    return image;
  }
  const os::TemporaryFolder folder;
  const std::string from = (folder.path() / "kernel.ptx").string(), to = (folder.path() / "kernel.cubin").string();
  std::ofstream(from, std::ios::binary) << ptx;
  const std::string command[] = {ptxas_, "--verbose", "--gpu-name=" + name(), from, "--output-file", to};
  const os::CommandResult result = os::run_command(command, 300);
  log = result.output;
  image.made = result.status == 0;
  if (!image.made) return image;
  std::ifstream in(to, std::ios::binary);
  image.bytes.assign(std::istreambuf_iterator<char>(in), {});
  return image;
}

backend::KernelImage CudaTarget::image(const CompileRequest& request) {
  backend::KernelImage out;
  auto built = backend::build_kernels(std::span(&request, 1), dialect_, info_,
                                      [&](const backend::Program& program, std::string& log) {
                                        stream::Image made = cubin(program, log);
                                        out.program = std::move(made.bytes), out.is_text = made.is_text;
                                        return made.made ? std::make_shared<int>() : nullptr;
                                      });
  out.form = std::move(built[0].emitted);
  return out;
}

OfflineKernel CudaTarget::compile(const CompileRequest& request) {
  OfflineKernel kernel;
  kernel.compiler = compiler_;
  stream::Image image;
  const auto built = backend::build_kernels(
      std::span(&request, 1), dialect_, info_, [&](const backend::Program& program, std::string& log) {
        image = cubin(program, log);
        kernel.registers = static_cast<std::uint32_t>(number_before(log, " registers"));
        kernel.spilled_bytes = static_cast<std::uint32_t>(number_before(log, " bytes spill loads"));
        kernel.shared_bytes = number_before(log, " bytes smem");
        return image.made ? std::make_shared<int>() : nullptr;
      });
  kernel.shared_bytes += built[0].emitted.dynamic_shared_bytes;
  if (nvdisasm_.empty()) {
    kernel.missing = fmt::format("nvdisasm is not installed. {}", install_tools);
    return kernel;
  }
  const os::TemporaryFolder folder;
  const std::string file = (folder.path() / "kernel.cubin").string();
  std::ofstream(file, std::ios::binary) << image.bytes;
  const std::string command[] = {nvdisasm_, "-c", "-hex", file};
  os::CommandResult result = os::run_command(command, 120);
  if (result.status == 0) {
    kernel.syntax = OfflineKernel::Syntax::sass;
    kernel.assembly = std::move(result.output);
  } else {
    kernel.missing = nvdisasm_ + " failed: " + result.output.substr(0, 400);
  }
  return kernel;
}

class CudaPackCompiler final : public PackCompiler {
 public:
  CudaPackCompiler(const std::string& name, const Architecture& architecture, CudaTarget::Output output,
                   std::uint32_t units)
      : gpu_(architecture, output == CudaTarget::Output::ptx ? TargetCompiler::ptx : TargetCompiler::automatic, output),
        info_(gpu_.info()) {
    if (units != 0) info_.compute_units = units;
    target_ = {.name = name,
               .backend = Backend::cuda,
               .compiler = gpu_.compiler(),
               .compute_units = info_.compute_units,
               .shared_bytes = info_.can.shared_bytes,
               .traits = (Packer() << output_name(output) << architecture.capability << gpu_.capability()
                                   << gpu_.expands_math())
                             .take()};
  }
  const PackTarget& target() const override { return target_; }
  const DeviceInfo& info() const override { return info_; }
  std::string build(const CompileRequest& request) override { return backend::pack(gpu_.image(request)); }

 private:
  static std::string_view output_name(CudaTarget::Output output) {
    return output == CudaTarget::Output::ptx ? "compute" : "sm";
  }
  CudaTarget gpu_;
  DeviceInfo info_;
  PackTarget target_;
};

}  // namespace

std::unique_ptr<PackCompiler> pack_compiler(const std::string& target) {
  const bool ptx = target.starts_with("compute_");
  if (!ptx && !target.starts_with("sm_")) return nullptr;
  const auto [name, units] = backend::split_units(target, 0);
  const Architecture& known =
      backend::find_architecture(architectures, "sm_" + name.substr(name.find('_') + 1), "NVIDIA");
  return std::make_unique<CudaPackCompiler>(target, known,
                                            ptx ? CudaTarget::Output::ptx : CudaTarget::Output::machine_code, units);
}

std::unique_ptr<OfflineTarget> offline_target(const std::string& architecture, TargetCompiler compiler) {
  if (!architecture.starts_with("sm_")) return nullptr;
  return std::make_unique<CudaTarget>(backend::find_architecture(architectures, architecture, "NVIDIA"), compiler);
}

}  // namespace tessera::cuda
