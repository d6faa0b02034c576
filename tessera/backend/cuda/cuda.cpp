// SPDX-License-Identifier: Apache-2.0
// CUDA-specific code: loads the library, queries device properties, and diagnoses why no device was found.
#include "tessera/backend/cuda/cuda.h"

#include <algorithm>
#include <cstdlib>
#include <map>

#include <fmt/format.h>

#include "tessera/backend/common/codegen_module.h"
#include "tessera/backend/common/matrix_units.h"
#include "tessera/backend/common/missing_device.h"
#include "tessera/backend/common/pack_choice.h"
#include "tessera/backend/cuda/cublas.h"
#include "tessera/backend/cuda/cuda_api.h"
#include "tessera/backend/cuda/nvrtc.h"
#include "tessera/backend/stream/library.h"
#include "tessera/base/error.h"
#include "tessera/base/os/fork.h"
#include "tessera/base/os/hardware.h"
#include "tessera/base/os/library_search.h"
#include "tessera/base/os/system.h"
#include "tessera/base/packed.h"

namespace tessera {

namespace cuda {

namespace {

constexpr const char* install_driver =
    "Install NVIDIA's driver (Debian: nvidia-driver and libcuda1, in section non-free; Ubuntu: nvidia-driver-NNN, or "
    "libnvidia-compute-NNN on headless machines); in a container, start it with --gpus all";
constexpr const char* install_nvrtc =
    "Install the code-generation module next to the library (libtessera-codegen.so), or NVRTC of CUDA {} or older "
    "(Debian: nvidia-cuda-toolkit, or libnvrtc11.2; Ubuntu: libnvrtc12; from NVIDIA's own archive: cuda-nvrtc-{}-{}; "
    "with pip into the active environment: nvidia-cuda-nvrtc-cu{}), or set TESSERA_NVRTC_LIBRARY to the file";

using os::nvidia_kernel_driver;

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

std::string without_library() {
  if (const std::string kernel = nvidia_kernel_driver(); !kernel.empty())
    return fmt::format(
        "The kernel driver {} is loaded, so only its library is missing (Debian: libcuda1; Ubuntu: "
        "libnvidia-compute of the same version); in a container, start it with --gpus all",
        kernel);
  const auto toolkits = os::folders_named("/usr/local", "cuda", "lib64");
  const std::string note = toolkits.empty() ? ""
                                            : fmt::format("The CUDA toolkit in {} does not include the driver. ",
                                                          toolkits[0].parent_path().string());
  return note + stream::remedy_without_library(os::nvidia, install_driver);
}

/// Returns the remedy for an error of cuInit or cuDeviceGetCount.
std::string remedy_for(Code code, const std::string& library) {
  switch (code) {
    case 0:
    case 100:  // no device
    case 101:
      if (std::string why = backend::explain_missing_device(os::nvidia, {"CUDA_VISIBLE_DEVICES"}, library);
          !why.empty())
        return why;
      return "Check whether nvidia-smi lists the card; without a card, use opencl or cpu";
    case 34:  // stub library
      return "This is the toolkit's stub, for linking only: remove its folder (lib64/stubs) from LD_LIBRARY_PATH";
    case 35:
    case 36: return "Install a newer NVIDIA driver";
    case 46: return "Another program has exclusive use of the device: see nvidia-smi";
    case 304:
      return "The system denied access: check whether this user can read and write /dev/nvidia*, and check dmesg";
    case 802:
      return "The machine's NVSwitch fabric is not ready: start the nvidia-fabricmanager of the driver's version";
    case 803:
      return fmt::format(
          "The library and the kernel driver ({}) have different versions: restart after a driver update, or install "
          "the library of the same version",
          nvidia_kernel_driver().empty() ? "not loaded" : nvidia_kernel_driver());
    case 804:
      return "This is a library for forward compatibility (package cuda-compat), which this card does not support: "
             "remove its folder from LD_LIBRARY_PATH, or install a newer driver";
    case 999: return "Check dmesg; after a suspend, reloading the module nvidia_uvm helps (rmmod, modprobe)";
    default: return "Check whether nvidia-smi works, and check dmesg";
  }
}

class CudaVendor final : public stream::Vendor {
 public:
  Backend backend() const override { return Backend::cuda; }
  const stream::Api& api() const override { return *api_; }

  VendorDriver loads() const override {
    VendorDriver part{"", driver_candidates(), nvrtc_candidates()};
    for (std::string& file : cublas_candidates()) part.dependencies.push_back(std::move(file));
    for (std::string& file : cpu::module_candidates()) part.dependencies.push_back(std::move(file));
    return part;
  }

  int start(BackendReport& report) override {
    if (!library_.usable()) library_ = open_driver();
    if (!stream::check_library(report, "TESSERA_CUDA_LIBRARY", library_.file, library_.missing,
                               "older than CUDA 11, or not NVIDIA's driver", without_library, install_driver))
      return 0;
    if (!api_) api_ = std::make_unique<CudaApi>(library_.call);
    int count = 0;
    const char* asked = "cuInit";
    Code code = call().init(0);
    if (code == 0) asked = "cuDeviceGetCount", code = call().device_count(&count);
    if (code == 0) call().driver_version(&driver_version_);
    if (code != 0 || count <= 0) {
      report.reason = code != 0 ? std::string(asked) + " returned " + api_->code_text(code)
                                : "the driver works but lists no device";
      report.remedy = remedy_for(code, os::loader_file(library_.file.file()));
      return 0;
    }
    if (!nvrtc_.usable()) nvrtc_ = Nvrtc::open(driver_version_);
    report.state = DeviceState::enumerated;
    return count;
  }

  bool has_user_order() const override { return os::environment("CUDA_VISIBLE_DEVICES").has_value(); }

  std::string uuid(int ordinal) const override {
    Ordinal device = 0;
    Uuid uuid{};
    const auto get = call().device_uuid ? call().device_uuid : call().device_uuid_old;
    if (!get || call().device_get(&device, ordinal) != 0 || get(&uuid, device) != 0) return "";
    return stream::uuid_identity(uuid.bytes);
  }

  stream::DeviceFacts describe(int ordinal) override;

  stream::Image compile(const stream::DeviceFacts& facts, const backend::Program& program) override;
  bool switch_compiler(stream::DeviceFacts& facts) override;
  std::string compiler(const stream::DeviceFacts& facts) const override {
    if (!facts.architecture.starts_with("PTX ")) return facts.info.driver_version;
    // The driver compiles PTX for the exact device.
    return fmt::format("{}, build {}, then the driver for sm_{}", facts.info.driver_version, module_.build,
                       capabilities_.at(facts.ordinal));
  }
  std::unique_ptr<DriverBlas> open_blas(const stream::DeviceFacts&, std::string& why) override {
    return open_cublas(driver_version_, why);
  }

 private:
  const DriverFunctions& call() const { return library_.call; }
  void check_support(DeviceInfo& info, const stream::DeviceFacts& facts, int capability, int mode) const;
  std::string why_no_compiler(const stream::DeviceFacts& facts, int capability) const;
  static int choose_pack(stream::DeviceFacts& facts, int capability);
  bool choose_nvrtc(stream::DeviceFacts& facts, bool fitting) const;
  bool choose_ptx(stream::DeviceFacts& facts);
  /// Sets the features that kernels compiled for this capability may use.
  static void set_capability(stream::DeviceFacts& facts, int capability);

  DriverLibrary library_;
  std::unique_ptr<CudaApi> api_;
  Nvrtc nvrtc_;
  cpu::PtxModule module_;  ///< opened only if NVRTC is unusable
  int driver_version_ = 0;
  std::map<int, int> capabilities_;         ///< by ordinal; 90 means 9.0
  std::map<int, cpu::PtxTarget> made_for_;  ///< by ordinal; only devices that use the module
};

// Choice of the compiler for a device. NVRTC is preferred because it supports the newest devices and its input is
// readable. If NVRTC is from a later CUDA major version than the driver, the driver cannot load its code.

void CudaVendor::set_capability(stream::DeviceFacts& facts, int capability) {
  emit::set_capability(facts.dialect, capability);
  if (facts.info.can.subgroup_widths.at(0) != emit::matrix_width(facts.dialect.matrix))
    facts.dialect.matrix = emit::MatrixUnits::none;
}

bool CudaVendor::choose_nvrtc(stream::DeviceFacts& facts, bool fitting) const {
  if (!nvrtc_.usable() || (fitting && nvrtc_.major() * 1000 > driver_version_)) return false;
  facts.architecture = nvrtc_.architecture_for(capabilities_.at(facts.ordinal));
  // If the device is newer than NVRTC, NVRTC compiles for the newest capability that it supports, which may have fewer
  // features.
  if (const auto number = facts.architecture.find('_'); number != facts.architecture.npos)
    set_capability(facts,
                   std::min(capabilities_.at(facts.ordinal), std::atoi(facts.architecture.c_str() + number + 1)));
  return !facts.architecture.empty();
}

/// Machine code runs on devices with the same major and at least the same minor capability, PTX on all later ones.
/// Machine code is preferred, because the driver need not compile it. Returns the capability that kernels were traced
/// for.
int CudaVendor::choose_pack(stream::DeviceFacts& facts, int capability) {
  const PackTarget* const target = backend::best_pack_target(Backend::cuda, facts.info, [&](const PackTarget& t) {
    Unpacker in(t.traits);
    const bool machine_code = in.text() == "sm";
    const int made_for = in.take<int>();
    if (made_for > capability || (machine_code && made_for / 10 != capability / 10)) return 0;
    return made_for + (machine_code ? 1000 : 0);
  });
  if (target == nullptr) return capability;
  Unpacker in(target->traits);
  in.text();
  const int made_for = in.take<int>(), features = in.take<int>();
  if (in.take<bool>()) facts.dialect.expand_math = facts.dialect.expand_math64 = facts.dialect.native_exp = true;
  facts.pack_target = target->name;
  set_capability(facts, features);
  backend::use_pack_target(facts.info, *target);
  return made_for;
}

/// Returns the newest PTX version that a driver of this version accepts: 7.x for CUDA 11.x, 8.x for 12.x (PTX ISA,
/// "Release Notes").
constexpr int ptx_version_of(int driver_version) {
  return (driver_version / 1000 - 4) * 10 + driver_version % 1000 / 10;
}

bool CudaVendor::choose_ptx(stream::DeviceFacts& facts) {
  if (!module_.generator) {
    try {
      module_ = cpu::open_ptx_module();
    } catch (const Error& e) {
      module_.reason = e.what();
    }
  }
  if (!module_.generator) return false;
  const cpu::PtxTarget target =
      module_.generator->target_for(capabilities_.at(facts.ordinal), ptx_version_of(driver_version_));
  if (target.capability == 0) {
    module_.reason = fmt::format("{}: {} cannot generate PTX for this device and CUDA {}", module_.file,
                                 module_.generator->version(), version_text(driver_version_));
    return false;
  }
  made_for_[facts.ordinal] = target;
  facts.architecture = fmt::format("PTX {}.{} for sm_{}", target.version / 10, target.version % 10, target.capability);
  facts.dialect.expand_math = facts.dialect.expand_math64 = facts.dialect.native_exp = true;
  set_capability(facts, target.capability);
  return true;
}

stream::Image CudaVendor::compile(const stream::DeviceFacts& facts, const backend::Program& program) {
  // `facts` determines the compiler, because a rescan may have chosen a different one for devices that are opened
  // later.
  const auto target = made_for_.find(facts.ordinal);
  if (!facts.architecture.starts_with("PTX ") || target == made_for_.end())
    return nvrtc_.compile(program.text(), facts.architecture, program.exact);
  std::vector<cpu::PtxKernel> kernels;
  for (std::size_t i = 0; i < program.requests.size(); ++i)
    kernels.push_back({program.requests[i].function, &program.source.kernels[i], program.requests[i].noalias});
  std::size_t nodes = 0;
  for (const cpu::PtxKernel& kernel : kernels) nodes += kernel.function->nodes.size();
  cpu::check_llvm_after_fork("generate PTX");
  cpu::check_memory_to_compile(
      kernels.size() == 1 ? kernels[0].function->name : fmt::format("{} kernels", kernels.size()), nodes);
  stream::Image image;
  const os::ForkGuard whole;  // LLVM is not fork-safe
  image.bytes = module_.generator->compile(kernels, target->second, image.log);
  image.made = image.is_text = !image.bytes.empty();
  if (!image.made && image.log.empty()) cpu::throw_out_of_memory("generate PTX", 0);
  return image;
}

bool CudaVendor::switch_compiler(stream::DeviceFacts& facts) {
  return !facts.architecture.starts_with("PTX ") && choose_ptx(facts);
}

stream::DeviceFacts CudaVendor::describe(int ordinal) {
  stream::DeviceFacts facts;
  facts.ordinal = ordinal;
  DeviceInfo& info = facts.info;
  Ordinal device = ordinal;
  call().device_get(&device, ordinal);
  auto ask = [&](int attribute, int otherwise = 0) {
    int value = 0;
    return call().device_attribute(&value, attribute, device) == 0 ? value : otherwise;
  };
  auto number = [&](int attribute, int otherwise = 0) {
    return static_cast<std::uint32_t>(std::max(0, ask(attribute, otherwise)));
  };
  char text[256] = {};
  if (call().device_name(text, sizeof text - 1, device) == 0) info.name = text;
  info.vendor = "NVIDIA";
  info.driver_version = "CUDA " + version_text(driver_version_);
  if (const std::string kernel = nvidia_kernel_driver(); !kernel.empty()) info.driver_version += ", driver " + kernel;
  char pci[64] = {};
  if (call().device_pci(pci, sizeof pci - 1, device) == 0) info.identity = stream::pci_identity(pci);
  std::size_t bytes = 0;
  if (call().device_total_memory(&bytes, device) == 0) info.total_memory = bytes;
  info.unified_memory = ask(integrated) != 0;
  info.kind = info.unified_memory ? DeviceKind::integrated_gpu : DeviceKind::discrete_gpu;
  info.compute_units = number(multiprocessor_count);
  info.blas = backend::first_installed("cuBLASLt", cublas_candidates());

  const int capability = 10 * ask(compute_capability_major) + ask(compute_capability_minor);
  facts.dialect = emit::cuda_c();
  facts.dialect.cuda_width = number(warp_size, 32);
  info.can.subgroup_widths = {facts.dialect.cuda_width};
  set_capability(facts, capability);
  capabilities_[ordinal] = capability;
  const std::string named = stream::library_from_variable("TESSERA_NVRTC_LIBRARY");
  // If the user named a library, there is no fallback here. If the driver rejects the code of this library,
  // switch_compiler() still changes to PTX.
  const bool binding = !named.empty() && named != "none";
  if (choose_nvrtc(facts, !binding) || (!binding && !choose_ptx(facts) && choose_nvrtc(facts, false)))
    info.driver_version += ", NVRTC " + nvrtc_.version();
  else if (facts.architecture.starts_with("PTX "))
    info.driver_version += fmt::format(", {} ({})", module_.generator->version(), facts.architecture);
  Capabilities& can = info.can;
  can.shared_bytes = std::max(number(max_shared_memory_per_block, 49152), number(max_shared_memory_per_block_optin));
  const int traced_for = choose_pack(facts, capability);
  can.f16 = true;
  can.bf16 = traced_for >= 80;
  can.f64 = true;
  can.atomic_i64 = can.atomic_f32 = true;
  can.int8_dot = facts.dialect.dot4;
  backend::describe_matrix_units(can, facts.dialect);
  can.max_block_threads = number(max_threads_per_block, 1024);
  can.max_block = {number(max_block_dim_x, 1024), number(max_block_dim_y, 1024), number(max_block_dim_z, 64)};
  can.max_parameter_bytes = 4096;  // the limit of all devices; newer ones accept more with CUDA 12.1
  can.max_blocks = {number(max_grid_dim_x, 2147483647), number(max_grid_dim_y, 65535), number(max_grid_dim_z, 65535)};
  facts.no_compiler = why_no_compiler(facts, capability);
  check_support(info, facts, capability, ask(compute_mode));
  return facts;
}

std::string CudaVendor::why_no_compiler(const stream::DeviceFacts& facts, int capability) const {
  if (!facts.architecture.empty()) return {};
  if (!nvrtc_.usable())
    return "no compiler for its kernels: no NVRTC (" + nvrtc_.reason() + ")" +
           (module_.reason.empty() ? "" : ", and " + module_.reason);
  const auto& list = nvrtc_.supported();
  return fmt::format("NVRTC {} compiles for compute capability {}.{} and later, but this device has {}.{}",
                     nvrtc_.version(), list.empty() ? 0 : list[0] / 10, list.empty() ? 0 : list[0] % 10,
                     capability / 10, capability % 10);
}

void CudaVendor::check_support(DeviceInfo& info, const stream::DeviceFacts& facts, int capability, int mode) const {
  info.state = DeviceState::loaded;
  if (mode == compute_mode_prohibited) {
    info.reason = "the device's compute mode is \"prohibited\"";
    info.remedy = "Run nvidia-smi --compute-mode=DEFAULT as root";
  } else if (facts.no_compiler.empty() || !facts.pack_target.empty()) {
    info.state = DeviceState::enumerated;
  } else if (!nvrtc_.usable()) {
    const int major = driver_version_ / 1000, minor = driver_version_ % 1000 / 10;
    const std::string named = stream::library_from_variable("TESSERA_NVRTC_LIBRARY");
    info.reason = "the device was found, but " + facts.no_compiler;
    info.remedy = !named.empty() && named != "none"
                      ? stream::remedy_where_named("TESSERA_NVRTC_LIBRARY")
                      : fmt::format(fmt::runtime(install_nvrtc), version_text(driver_version_), major, minor, major);
  } else {
    info.reason = facts.no_compiler;
    info.remedy =
        "Install an older NVRTC (CUDA 12 supports 5.0 and later, CUDA 11 supports 3.5 and later); if both are "
        "installed, set TESSERA_NVRTC_LIBRARY to the older one";
  }
  if (info.state == DeviceState::loaded && mode != compute_mode_prohibited)
    if (const std::string others = backend::other_targets(fmt::format("sm_{}", capability)); !others.empty())
      info.reason += "; " + others;
}

}  // namespace

}  // namespace cuda

std::unique_ptr<Driver> make_cuda_driver() { return stream::make_driver(std::make_unique<cuda::CudaVendor>()); }

}  // namespace tessera
