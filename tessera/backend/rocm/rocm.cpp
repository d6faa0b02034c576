// SPDX-License-Identifier: Apache-2.0
// AMD-specific code: loads the library, queries device properties, and diagnoses why no device was found.
#include "tessera/backend/rocm/rocm.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include <fmt/format.h>

#include "tessera/backend/common/matrix_units.h"
#include "tessera/backend/common/missing_device.h"
#include "tessera/backend/common/pack_choice.h"
#include "tessera/backend/rocm/hip_api.h"
#include "tessera/backend/rocm/hipblas.h"
#include "tessera/backend/rocm/hiprtc.h"
#include "tessera/backend/stream/library.h"
#include "tessera/base/os/hardware.h"
#include "tessera/base/os/system.h"

namespace tessera {

namespace rocm {

namespace {

constexpr const char* install_runtime =
    "Install the HIP runtime (Debian: libamdhip64-5, with libhiprtc-builtins5 for the compiler; Ubuntu: libamdhip64-5; "
    "from AMD's own archive: hip-runtime-amd)";
constexpr std::initializer_list<const char*> visibility = {"HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
                                                           "CUDA_VISIBLE_DEVICES"};  // HIP also reads this variable

std::string without_library() { return stream::remedy_without_library(os::amd, install_runtime); }

std::string remedy_without_device(Code code) {
  if (std::string why = backend::explain_missing_device(os::amd, visibility); !why.empty()) return why;
  if (code == 35) return "Install a newer kernel driver (amdgpu-dkms), or an older ROCm";
  return "Check whether rocminfo lists the card; ROCm supports only some of AMD's cards, and newer cards need a newer "
         "ROCm";
}

class RocmVendor final : public stream::Vendor {
 public:
  Backend backend() const override { return Backend::rocm; }
  const stream::Api& api() const override { return *api_; }

  VendorDriver loads() const override {
    VendorDriver part{"", runtime_candidates(), hiprtc_candidates()};
    for (const char* file : {"libamd_comgr.so.3", "libamd_comgr.so.2"})
      part.dependencies.emplace_back(file);  // used by hiprtc
    for (const auto& candidates : {hipblaslt_candidates(), rocblas_candidates()})
      part.dependencies.insert(part.dependencies.end(), candidates.begin(), candidates.end());
    return part;
  }

  int start(BackendReport& report) override {
    if (!library_.usable()) library_ = open_runtime();
    if (!stream::check_library(report, "TESSERA_ROCM_LIBRARY", library_.file, library_.missing,
                               "older than ROCm 5, or not AMD's HIP runtime", without_library, install_runtime))
      return 0;
    if (!library_.layout.symbol) {
      report.reason =
          fmt::format("the library has HIP version {}.{} ({}), but this version of Tessera supports 5, 6 and 7",
                      library_.major(), library_.minor(), library_.version);
      report.remedy = "Install one of these as well, and set TESSERA_ROCM_LIBRARY to its file";
      return 0;
    }
    if (!api_) api_ = std::make_unique<HipApi>(library_.call);
    int count = 0;
    Code code = call().init(0);
    if (code == 0) code = call().device_count(&count);
    if (code != 0 || count <= 0) {
      // If there is no device, hipInit returns "invalid device". hipGetDeviceCount returns a better error.
      const char* asked = "hipInit";
      if (int again = 0; code != 0)
        if (const Code other = call().device_count(&again); other != 0) asked = "hipGetDeviceCount", code = other;
      report.reason = code != 0 ? std::string(asked) + " returned " + api_->code_text(code)
                                : "the runtime works but lists no device";
      report.remedy = remedy_without_device(code);
      return 0;
    }
    if (!hiprtc_.usable()) hiprtc_ = Hiprtc::open(library_.file, library_.major());
    report.state = DeviceState::enumerated;
    return count;
  }

  bool has_user_order() const override {
    return std::ranges::any_of(visibility, [](const char* name) { return os::environment(name).has_value(); });
  }

  std::string uuid(int ordinal) const override {
    Uuid uuid{};
    if (!call().device_uuid || call().device_uuid(&uuid, ordinal) != 0) return "";
    return stream::uuid_identity(uuid.bytes);
  }

  stream::DeviceFacts describe(int ordinal) override;
  std::unique_ptr<DriverBlas> open_blas(const stream::DeviceFacts&, std::string& why) override {
    return rocm::open_blas(library_.major(), why);
  }

  stream::Image compile(const stream::DeviceFacts& facts, const backend::Program& program) override {
    return hiprtc_.compile(program.text(), facts.architecture);
  }

 private:
  const RuntimeFunctions& call() const { return library_.call; }
  void check_support(DeviceInfo& info, const stream::DeviceFacts& facts, int mode) const;

  RuntimeLibrary library_;
  std::unique_ptr<HipApi> api_;
  Hiprtc hiprtc_;
};

stream::DeviceFacts RocmVendor::describe(int ordinal) {
  stream::DeviceFacts facts;
  facts.ordinal = ordinal;
  DeviceInfo& info = facts.info;
  auto ask = [&](int attribute, int otherwise = 0) {
    int value = 0;
    return call().device_attribute(&value, attribute, ordinal) == 0 ? value : otherwise;
  };
  auto number = [&](int attribute, int otherwise = 0) {
    const int value = ask(attribute, otherwise);
    return static_cast<std::uint32_t>(value > 0 ? value : otherwise);
  };
  char text[256] = {};
  if (call().device_name(text, sizeof text - 1, ordinal) == 0) info.name = text;
  info.vendor = "AMD";
  info.driver_version = fmt::format("HIP {}.{}.{}", library_.major(), library_.minor(), library_.version % 100000);
  char pci[64] = {};
  if (call().device_pci(pci, sizeof pci - 1, ordinal) == 0) info.identity = stream::pci_identity(pci);
  std::size_t bytes = 0;
  if (call().device_total_memory(&bytes, ordinal) == 0) info.total_memory = bytes;
  info.unified_memory = ask(integrated) != 0;
  info.kind = info.unified_memory ? DeviceKind::integrated_gpu : DeviceKind::discrete_gpu;
  info.compute_units = number(multiprocessor_count);
  info.blas = library_.major() >= 6 ? backend::first_installed("hipBLASLt", hipblaslt_candidates()) : "no hipBLASLt";
  if (info.blas.starts_with("no ")) info.blas = backend::first_installed("rocBLAS", rocblas_candidates());

  // Allocates twice the size, in case a library writes a larger structure than expected for its major version.
  std::vector<char> properties(2 * library_.layout.bytes, '\0');
  if (call().properties(properties.data(), ordinal) == 0) {
    const char* name = properties.data() + library_.layout.architecture;
    facts.architecture.assign(name, strnlen(name, 256));
  }
  const auto is = [&](std::string_view family) { return facts.architecture.starts_with(family); };
  facts.dialect = emit::hip_c_for(facts.architecture);
  Capabilities& can = info.can;
  can.f16 = can.f64 = can.atomic_i64 = can.atomic_f32 = true;
  can.bf16 = is("gfx90a") || is("gfx94") || is("gfx95") || is("gfx11") || is("gfx12");
  can.int8_dot = facts.dialect.dot4;
  can.subgroup_widths = {number(warp_size, 64)};
  if (can.subgroup_widths[0] != emit::matrix_width(facts.dialect.matrix))
    facts.dialect.matrix = emit::MatrixUnits::none;
  backend::describe_matrix_units(can, facts.dialect);
  can.max_block_threads = number(max_threads_per_block, 1024);
  can.max_block = {number(max_block_dim_x, 1024), number(max_block_dim_y, 1024), number(max_block_dim_z, 1024)};
  can.shared_bytes = number(max_shared_memory_per_block, 65536);
  can.max_parameter_bytes = 4096;
  can.max_blocks = {number(max_grid_dim_x, 2147483647), number(max_grid_dim_y, 65535), number(max_grid_dim_z, 65535)};
  can.max_grid_threads = {0xffffffff, 0xffffffff, 0xffffffff};  // HIP counts threads in 32 bits
  if (!hiprtc_.usable()) facts.no_compiler = "hiprtc, which compiles its kernels, was not found: " + hiprtc_.reason();
  // "gfx90a:sramecc+:xnack-" runs code for "gfx90a".
  const PackTarget* const target = backend::best_pack_target(Backend::rocm, info, [&](const PackTarget& t) {
    return t.traits == facts.architecture.substr(0, facts.architecture.find(':')) ? 1 : 0;
  });
  if (target != nullptr) facts.pack_target = target->name, backend::use_pack_target(info, *target);
  check_support(info, facts, ask(compute_mode));
  return facts;
}

void RocmVendor::check_support(DeviceInfo& info, const stream::DeviceFacts& facts, int mode) const {
  info.state = DeviceState::loaded;
  if (mode == compute_mode_prohibited) {
    info.reason = "the device's compute mode is \"prohibited\"";
    info.remedy = "Ask the administrator of this machine to change it";
  } else if (!facts.architecture.starts_with("gfx")) {
    info.reason =
        fmt::format("the runtime does not report the device's architecture (it returned \"{}\")", facts.architecture);
    info.remedy = "Check what rocminfo reports for the card, and whether all ROCm libraries have the same version";
  } else if (!facts.pack_target.empty()) {
    info.state = DeviceState::enumerated;
  } else if (!hiprtc_.usable()) {
    info.reason = "the device was found, but hiprtc, which compiles its kernels, was not: " + hiprtc_.reason();
    if (const std::string others = backend::other_targets(facts.architecture); !others.empty())
      info.reason += "; " + others;
    info.remedy = !stream::library_from_variable("TESSERA_HIPRTC_LIBRARY").empty()
                      ? stream::remedy_where_named("TESSERA_HIPRTC_LIBRARY")
                      : fmt::format(
                            "Install hiprtc of ROCm {} (Debian: libhiprtc-builtins5 with libamdhip64-5; from AMD's own "
                            "archive: hip-runtime-amd), or set TESSERA_HIPRTC_LIBRARY to the file",
                            library_.major());
  } else if (library_.version < 50500000 && facts.architecture >= "gfx11" && facts.architecture < "gfx2") {
    info.reason = fmt::format("ROCm {}.{} does not support {}: its compiler crashes", library_.major(),
                              library_.minor(), facts.architecture);
    info.remedy = "Install ROCm 5.5 or later";
  } else {
    info.state = DeviceState::enumerated;
  }
}

}  // namespace

}  // namespace rocm

std::unique_ptr<Driver> make_rocm_driver() { return stream::make_driver(std::make_unique<rocm::RocmVendor>()); }

}  // namespace tessera
