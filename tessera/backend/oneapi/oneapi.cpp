// SPDX-License-Identifier: Apache-2.0
// Intel-specific code: loads Level Zero, queries device properties, and diagnoses why no device was found.
#include "tessera/backend/oneapi/oneapi.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "tessera/backend/common/missing_device.h"
#include "tessera/backend/oneapi/compiler.h"
#include "tessera/backend/oneapi/ze_api.h"
#include "tessera/backend/stream/library.h"
#include "tessera/base/error.h"
#include "tessera/base/os/hardware.h"
#include "tessera/base/os/library_search.h"
#include "tessera/base/os/system.h"

namespace tessera {

namespace oneapi {

namespace {

constexpr const char* install_loader =
    "Install the Level Zero loader and Intel's driver (Debian 12: libze1 and intel-opencl-icd; later Debian and "
    "Ubuntu: libze1 and libze-intel-gpu1; from Intel's archive: level-zero and intel-level-zero-gpu)";
constexpr const char* install_driver =
    "Install Intel's driver (Debian 12: intel-opencl-icd; later Debian and Ubuntu: libze-intel-gpu1; from Intel's "
    "archive: intel-level-zero-gpu)";
constexpr const char* install_compiler =
    "Install Intel's compiler (Debian 12: intel-opencl-icd, which has libocloc and the OpenCL driver; later Debian and "
    "Ubuntu: intel-ocloc), or set TESSERA_OCLOC_LIBRARY to the file";
constexpr std::initializer_list<const char*> visibility = {"ZE_AFFINITY_MASK", "ZE_FLAT_DEVICE_HIERARCHY"};

std::string without_library() { return stream::remedy_without_library(os::intel, install_loader); }

std::vector<std::string> driver_files() {
  const std::filesystem::path folders[] = {"/usr/lib/x86_64-linux-gnu", "/usr/local/lib", "/usr/lib64", "/usr/lib",
                                           "/usr/lib/wsl/lib"};
  return os::library_files(folders, "libze_intel_gpu.so");
}
bool driver_installed() { return !driver_files().empty(); }

std::string remedy_without_device() {
  if (std::string why = backend::explain_missing_device(os::intel, visibility); !why.empty()) return why;
  if (!driver_installed()) return install_driver;
  return "Check dmesg for messages of i915 or xe; a card newer than the driver needs a newer driver "
         "(libze-intel-gpu1, or intel-level-zero-gpu from Intel's archive)";
}

std::string version_text(std::uint32_t version) { return fmt::format("{}.{}", version >> 16, version & 0xffff); }

/// The data of a device that the compilers need.
struct Card {
  std::string pci, uuid, options;
};

class OneapiVendor final : public stream::Vendor {
 public:
  Backend backend() const override { return Backend::oneapi; }
  const stream::Api& api() const override { return *api_; }
  VendorDriver loads() const override {
    std::vector<std::string> dependencies = ocloc_candidates();
    for (std::string& name : OpenclCompiler::candidates()) dependencies.push_back(std::move(name));
    for (std::string& file : driver_files()) dependencies.push_back(std::move(file));
    for (const char* file : {"libigc.so.2", "libigc.so.1"}) dependencies.emplace_back(file);  // used by both compilers
    return {"", loader_candidates(), std::move(dependencies)};
  }
  int start(BackendReport& report) override;
  stream::DeviceFacts describe(int ordinal) override;
  bool has_user_order() const override { return false; }  // Level Zero's variables only hide devices
  std::string uuid(int ordinal) const override { return cards_[static_cast<std::size_t>(ordinal)].uuid; }
  stream::Image compile(const stream::DeviceFacts& facts, const backend::Program& program) override;
  std::string compiler(const stream::DeviceFacts& facts) const override {
    const Card& card = cards_[static_cast<std::size_t>(facts.ordinal)];
    // Without libocloc, the OpenCL driver of the card compiles, and its code runs only on this card.
    return facts.info.driver_version + ", " + card.options +
           (ocloc_.usable() ? "" : ", for " + facts.info.name + " " + facts.info.identity);
  }

 private:
  const LoaderFunctions& call() const { return library_.call; }
  std::string find_devices();  ///< returns an error, or an empty string
  Code add_devices(ZeDriver& driver);
  void check_support(DeviceInfo& info, const Card& card);

  LoaderLibrary library_;
  std::unique_ptr<ZeApi> api_;
  std::vector<std::unique_ptr<ZeDriver>> drivers_;
  std::vector<std::unique_ptr<ZeDevice>> devices_;
  std::vector<Card> cards_;  ///< parallel to the devices
  Ocloc ocloc_;
  OpenclCompiler opencl_;  ///< opened only if libocloc is unusable
  bool asked_opencl_ = false;
};

int OneapiVendor::start(BackendReport& report) {
  if (!library_.usable()) library_ = open_loader();
  if (!stream::check_library(report, "TESSERA_ONEAPI_LIBRARY", library_.file, library_.missing,
                             "older than Level Zero 1.0, or not its loader", without_library, install_loader))
    return 0;
  if (!api_) api_ = std::make_unique<ZeApi>(library_.call);
  if (devices_.empty()) {
    // If zeInit fails, the loader (1.8) has no function table, and any other call would crash.
    if (const Code code = call().init(gpus_only)) {
      report.reason = "zeInit returned " + text_of(code);
      if (code == uninitialized)
        report.reason += driver_installed() ? " (Intel's driver is installed but found no GPU)"
                                            : " (the loader found no driver for Intel GPUs)";
      report.remedy = remedy_without_device();
      return 0;
    }
    report.reason = find_devices();
    if (devices_.empty()) {
      const bool version = report.reason.starts_with("the driver implements");
      if (report.reason.empty()) report.reason = "the loader works but lists no GPU";
      report.remedy = version ? "Install a driver of version 1 as well, or a newer Tessera" : remedy_without_device();
      return 0;
    }
    report.reason.clear();
  }
  if (!ocloc_.usable()) ocloc_ = Ocloc::open();
  if (!ocloc_.usable()) asked_opencl_ = true, opencl_ = OpenclCompiler::open();
  report.state = DeviceState::enumerated;
  return static_cast<int>(devices_.size());
}

std::string OneapiVendor::find_devices() {
  std::uint32_t count = 0;
  if (const Code code = call().drivers(&count, nullptr)) return "zeDriverGet returned " + text_of(code);
  std::vector<DriverHandle> handles(count);
  if (count == 0) return "";
  if (const Code code = call().drivers(&count, handles.data())) return "zeDriverGet returned " + text_of(code);
  std::string wrong;
  for (std::uint32_t i = 0; i < count && i < handles.size(); ++i) {
    std::uint32_t version = 1 << 16;
    call().api_version(handles[i], &version);
    if (version >> 16 != 1) {
      wrong = fmt::format("the driver implements Level Zero {}, but this version of Tessera supports only Level Zero 1",
                          version_text(version));
      continue;
    }
    drivers_.push_back(std::make_unique<ZeDriver>(library_.call, handles[i], version));
    if (const Code code = add_devices(*drivers_.back()))
      wrong = "listing devices: the driver returned " + text_of(code);
  }
  return wrong;
}

Code OneapiVendor::add_devices(ZeDriver& driver) {
  std::uint32_t count = 0;
  if (const Code code = call().devices(driver.handle, &count, nullptr)) return code;
  std::vector<DeviceHandle> handles(count);
  if (count == 0) return 0;
  if (const Code code = call().devices(driver.handle, &count, handles.data())) return code;
  Code wrong = 0;
  for (std::uint32_t i = 0; i < count && i < handles.size(); ++i) {
    DeviceProperties properties;
    if (const Code code = call().device_properties(handles[i], &properties)) {
      wrong = code;
      continue;
    }
    if (properties.kind != type_gpu) continue;
    auto device = std::make_unique<ZeDevice>();
    device->driver = &driver;
    device->handle = handles[i];
    device->largest_allocation = properties.largest_allocation;
    std::uint32_t groups = 0;
    if (call().queue_groups(handles[i], &groups, nullptr) == 0 && groups > 0) {
      std::vector<QueueGroupProperties> all(groups);
      if (call().queue_groups(handles[i], &groups, all.data()) == 0) {
        const auto computes = std::ranges::find_if(all, [](const auto& g) { return (g.flags & group_computes) != 0; });
        if (computes != all.end()) device->compute_group = static_cast<std::uint32_t>(computes - all.begin());
      }
    }
    std::uint32_t memories = 0;
    if (call().memory_properties(handles[i], &memories, nullptr) == 0 && memories > 0) {
      std::vector<MemoryProperties> all(memories);
      if (call().memory_properties(handles[i], &memories, all.data()) == 0)
        for (const MemoryProperties& memory : all) device->total_memory += memory.bytes;
    }
    if (device->total_memory == 0) device->total_memory = properties.largest_allocation;
    api_->add(*device);
    devices_.push_back(std::move(device));
    cards_.emplace_back();
  }
  return wrong;
}

stream::DeviceFacts OneapiVendor::describe(int ordinal) {
  const ZeDevice& device = api_->device(ordinal);
  Card& card = cards_[static_cast<std::size_t>(ordinal)];
  stream::DeviceFacts facts;
  facts.ordinal = ordinal;
  DeviceInfo& info = facts.info;
  DeviceProperties properties;
  ComputeProperties compute;
  ModuleProperties module;
  call().device_properties(device.handle, &properties);
  call().compute_properties(device.handle, &compute);
  call().module_properties(device.handle, &module);
  properties.name[sizeof properties.name - 1] = '\0';
  info.name = properties.name;
  info.vendor = properties.vendor == os::intel ? "Intel" : fmt::format("PCI vendor {:#x}", properties.vendor);
  info.driver_version = "Level Zero " + version_text(device.driver->version);
  if (DriverProperties driver; call().driver_properties(device.driver->handle, &driver) == 0)
    info.driver_version +=
        fmt::format(", driver {}.{}.{}", driver.version >> 24, driver.version >> 16 & 0xff, driver.version & 0xffff);
  if (PciProperties pci; call().pci && call().pci(device.handle, &pci) == 0)
    card.pci = fmt::format("pci:{:04x}:{:02x}:{:02x}.{:x}", pci.domain, pci.bus, pci.device, pci.function);
  card.uuid = stream::uuid_identity(properties.uuid);
  info.identity = card.pci.empty() ? card.uuid : card.pci;
  info.total_memory = device.total_memory;
  info.unified_memory = (properties.flags & device_integrated) != 0;
  info.kind = info.unified_memory ? DeviceKind::integrated_gpu : DeviceKind::discrete_gpu;
  info.compute_units = properties.slices * properties.subslices_per_slice * properties.units_per_subslice;

  facts.architecture = fmt::format("{:#06x}", properties.device);
  card.options =
      compile_options(device.total_memory > std::uint64_t{4} << 30, (module.fp32 & fp_rounded_divide_sqrt) != 0);
  facts.dialect = emit::opencl_c_intel();
  facts.dialect.fp64 = (module.flags & module_fp64) != 0;
  facts.dialect.atomic_i64 = (module.flags & module_int64_atomics) != 0;
  facts.dialect.dot4 = (module.flags & module_dp4a) != 0;
  Capabilities& can = info.can;
  can.f16 = true;  // vload_half and vstore_half exist in every version of OpenCL C
  can.f64 = facts.dialect.fp64;
  can.atomic_i64 = facts.dialect.atomic_i64;
  can.int8_dot = facts.dialect.dot4;
  can.subgroup_widths.clear();
  for (std::uint32_t i = 0; i < std::min(compute.subgroup_sizes, 8u); ++i)
    can.subgroup_widths.push_back(compute.subgroup_size[i]);
  facts.dialect.subgroups = !can.subgroup_widths.empty();
  if (can.subgroup_widths.empty()) can.subgroup_widths = {1};
  can.max_block_threads = std::min(compute.group_threads, 1024u);
  can.shared_bytes = compute.shared_bytes;
  can.max_parameter_bytes = module.argument_bytes != 0 ? module.argument_bytes : 1024;
  for (std::size_t d = 0; d < 3; ++d) {
    can.max_block[d] = std::min(compute.group_size[d], 1024u);
    can.max_blocks[d] = compute.group_count[d];
  }
  check_support(info, card);
  return facts;
}

void OneapiVendor::check_support(DeviceInfo& info, const Card& card) {
  info.state = DeviceState::loaded;
  if (info.can.max_block_threads == 0) {
    info.reason = "the driver does not report the device's limits (zeDeviceGetComputeProperties)";
    info.remedy = "Install a newer driver; check dmesg for messages of i915 or xe";
  } else if (!ocloc_.usable() && !opencl_.knows(card.pci, card.uuid)) {
    info.reason = fmt::format(
        "the device was found, but no compiler for its kernels: neither libocloc ({}) nor Intel's OpenCL driver ({})",
        ocloc_.reason(), opencl_.reason().empty() ? "it does not list this card" : opencl_.reason());
    info.remedy = !stream::library_from_variable("TESSERA_OCLOC_LIBRARY").empty()
                      ? stream::remedy_where_named("TESSERA_OCLOC_LIBRARY")
                      : install_compiler;
  } else {
    info.state = DeviceState::enumerated;
    info.driver_version += ocloc_.usable() ? ", libocloc" : ", kernels compiled by its OpenCL driver";
  }
}

stream::Image OneapiVendor::compile(const stream::DeviceFacts& facts, const backend::Program& program) {
  const std::string& text = program.text();
  const Card& card = cards_[static_cast<std::size_t>(facts.ordinal)];
  std::string said;
  if (ocloc_.usable()) {
    Ocloc::Result result = ocloc_.compile(text, facts.architecture, card.options);
    if (result.knows_device) return std::move(result.image);
    said = std::move(result.image.log);
    if (!asked_opencl_) asked_opencl_ = true, opencl_ = OpenclCompiler::open();
  }
  if (opencl_.knows(card.pci, card.uuid)) return opencl_.compile(text, card.pci, card.uuid, card.options);
  fail<KernelError>(
      {.operation = to_string(facts.info.device) + " " + facts.info.name,
       .with = {{"device id", facts.architecture}, {"libocloc", ocloc_.file()}},
       .wrong = "libocloc does not support this card, and Intel's OpenCL driver does not list it: " + said,
       .remedy = "Install a newer libocloc (intel-ocloc from Intel's archive), or Intel's OpenCL driver "
                 "(intel-opencl-icd)"});
}

}  // namespace

}  // namespace oneapi

std::unique_ptr<Driver> make_oneapi_driver() { return stream::make_driver(std::make_unique<oneapi::OneapiVendor>()); }

}  // namespace tessera
