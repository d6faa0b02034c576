// SPDX-License-Identifier: Apache-2.0
// Platforms and devices, memory, and the driver object.
#include "tessera/device/driver.h"
#include "tessera/backend/opencl/opencl.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <optional>

#include "tessera/backend/common/icd_files.h"
#include "tessera/backend/common/missing_device.h"
#include "tessera/backend/opencl/clblast.h"
#include "tessera/backend/opencl/device.h"
#include "tessera/backend/opencl/icd.h"
#include "tessera/base/config.h"
#include "tessera/base/error.h"
#include "tessera/base/os/process_lock.h"
#include "tessera/base/os/system.h"
#include "tessera/base/printable.h"

namespace tessera {

namespace cl {

namespace {
// For device memory, Allocation::handle is the cl_mem. For pinned memory, it is null and `host` is set.
void context_message(const char*, const void*, std::size_t, void*) {}  // errors are returned as codes
}  // namespace

std::uint64_t ClDevice::free_memory() const {
  const DeviceInfo& info = device_.facts.info;
  if (info.kind == DeviceKind::cpu) {
    const os::Memory memory = os::memory();
    std::uint64_t free = memory.available ? memory.available : info.total_memory;
    if (const auto group = os::group_memory()) free = std::min(free, group->free);
    return std::min(free, info.total_memory);  // PoCL offers a part of the memory
  }
  if (device_.facts.reports_free_memory) {
    std::size_t kilobytes[2] = {};
    if (api().get_device_info(device_.facts.id, global_free_memory_amd, sizeof kilobytes, kilobytes, nullptr) ==
            success &&
        kilobytes[0])
      return std::uint64_t{kilobytes[0]} * 1024;
  }
  const std::uint64_t used = device_.allocated;  // OpenCL does not report the memory of other processes
  return used < info.total_memory ? info.total_memory - used : 0;
}

Allocation ClDevice::allocate(std::size_t bytes, MemoryKind kind) {
  const std::size_t size = std::max<std::size_t>(bytes, 1);
  if (kind == MemoryKind::pinned) {
    std::byte* const host = device_.pinned.allocate(device_.context, device_.facts, size);
    if (!host)
      fail<OutOfMemory>({.operation = to_string(device_.facts.info.device),
                         .with = {{"bytes", std::to_string(bytes)}},
                         .wrong = "the driver cannot allocate pinned host memory of this size"});
    return {nullptr, host, bytes};
  }
  const std::uint64_t largest = device_.facts.largest_allocation;
  if (largest != 0 && size > largest) {
    const DeviceInfo& info = device_.facts.info;
    const bool intel_gpu = info.kind != DeviceKind::cpu && info.vendor.find("Intel") != std::string::npos;
    fail<OutOfMemory>({.operation = to_string(info.device),
                       .with = {{"bytes", std::to_string(bytes)}, {"largest", std::to_string(largest)}},
                       .wrong = "the driver cannot allocate this much memory in one piece",
                       .remedy = intel_gpu
                                     ? "Use the oneapi device of this GPU (tessera devices lists it), which has no "
                                       "such limit, or work on smaller pieces"
                                     : "Work on smaller pieces"});
  }
  Code code = success;
  const Memory memory = api().create_buffer(device_.context, mem_read_write, size, nullptr, &code);
  check(code, "clCreateBuffer", to_string(device_.facts.info.device));
  device_.allocated += size;
  return {memory, nullptr, bytes};
}

DriverBlas* ClDevice::blas(std::string& why) {
  if (blas_) return blas_.get();
  Code code = success;
  const Queue queue = api().create_queue(device_.context, device_.facts.id, 0, &code);  // never released
  check(code, "clCreateCommandQueue", to_string(device_.facts.info.device));
  blas_ = open_clblast(queue, why);
  if (!blas_) api().release_queue(queue);
  return blas_.get();
}

void ClDevice::release(const Allocation& allocation) noexcept {
  if (!allocation.handle) {
    if (allocation.host) device_.pinned.release(allocation.host);
    return;
  }
  device_.allocated -= std::max<std::size_t>(allocation.bytes, 1);
  api().release_memory(static_cast<Memory>(allocation.handle));  // enqueued commands hold references
}

}  // namespace cl

namespace {

using namespace cl;

/// If PoCL's cache folder is not usable, PoCL lists its platform without devices. Returns that folder in this case (see
/// PoCL's documentation of POCL_CACHE_DIR).
std::optional<std::string> pocl_without_cache(const std::string& platform) {
  if (platform.find("Portable Computing Language") == platform.npos) return {};
  std::string folder;
  if (const auto named = config::text("POCL_CACHE_DIR"))
    folder = *named;
  else if (const auto cache = config::text("XDG_CACHE_HOME"))
    folder = *cache + "/pocl/kcache";
  else if (const auto home = config::text("HOME"))
    folder = *home + "/.cache/pocl/kcache";
  if (folder.empty() || os::is_writable_folder(folder)) return {};
  return folder;
}

/// Returns why the driver in this library may list no devices. Returns an empty string if no cause was found on the
/// system.
std::string cause(const std::string& library) {
  const auto is = [&](const char* part) { return library.find(part) != library.npos; };
  if (is("igdrcl")) return backend::explain_missing_device(os::intel, {"ZE_AFFINITY_MASK"});
  if (is("nvidia")) return backend::explain_missing_device(os::nvidia, {"CUDA_VISIBLE_DEVICES"});
  if (is("amdocl")) return backend::explain_missing_device(os::amd, {"GPU_DEVICE_ORDINAL", "ROCR_VISIBLE_DEVICES"});
  return "";
}

class ClDriver final : public Driver {
 public:
  Backend backend() const override { return Backend::opencl; }

  BackendReport enumerate() override {
    std::lock_guard guard(lock_);
    const os::ProcessLock process;  // PoCL must not be initialised by two copies of this library at the same time
    use_allowed();
    return last_ = enumerate_devices();
  }

  std::optional<std::vector<VendorDriver>> vendor_drivers() override {
    std::vector<VendorDriver> parts;
    if (os::environment("TESSERA_OPENCL_LIBRARY").value_or("").empty())
      for (const backend::Icd& icd : backend::installed_icds()) parts.push_back({icd.file, {icd.library}, {}});
    if (parts.empty())
      parts.push_back({"", loader_candidates(), {}});  // no driver is registered, or the user named a driver as the
                                                       // library
    return parts;
  }
  void allow(std::vector<std::string> parts) override {
    auto* const now = new Allowed{std::move(parts), allowed_};  // other threads may still read the old list
    while (!allowed_.compare_exchange_weak(now->before, now)) {}
  }

  std::unique_ptr<DriverDevice> open(int index) override {
    std::lock_guard guard(lock_);
    const os::ProcessLock process;
    if (!use_allowed())
      fail<DeviceError>({.operation = "opencl:" + std::to_string(index),
                         .wrong = "no driver listed a device in the probe process, so no driver is loaded",
                         .remedy = "See discover() for the reasons"});
    if (devices_.empty()) last_ = enumerate_devices();
    if (index < 0 || static_cast<std::size_t>(index) >= devices_.size())
      fail<DeviceError>({.operation = "opencl:" + std::to_string(index),
                         .wrong = devices_.empty() ? last_.reason
                                                   : "there are " + std::to_string(devices_.size()) + " OpenCL devices",
                         .remedy = devices_.empty() ? last_.remedy : "The first is opencl:0"});
    DeviceContext& device = *devices_[static_cast<std::size_t>(index)];
    const DeviceInfo& info = device.facts.info;
    if (info.state == DeviceState::loaded)
      fail<DeviceError>({.operation = to_string(info.device),
                         .with = {{"name", info.name}},
                         .wrong = info.reason,
                         .remedy = info.remedy});
    if (!device.context) {
      Code code = success;
      device.context = api().create_context(nullptr, 1, &device.facts.id, context_message, nullptr, &code);
      check(code, "clCreateContext", to_string(info.device));
    }
    return std::make_unique<ClDevice>(device);
  }

 private:
  struct Allowed {
    std::vector<std::string> parts;
    Allowed* before;
  };
  /// Returns false if all drivers are excluded.
  bool use_allowed() {
    const Allowed* allowed = allowed_;
    if (allowed == nullptr) return true;
    if (!allowed->parts.empty()) set_drivers(allowed->parts);
    return !allowed->parts.empty();
  }
  // A device keeps its index when devices are enumerated again, because contexts and open devices refer to it.
  BackendReport enumerate_devices() {
    BackendReport report;
    report.backend = Backend::opencl;
    report.state = DeviceState::supported;
    const Api& cl = api();
    report.file = cl.library.file();
    if (!cl.library.loaded()) {
      report.reason = cl.library.reason();
      report.remedy =
          !cl.library.missing().empty()
              ? "Install the package that contains " + cl.library.missing() + ", or add its folder to LD_LIBRARY_PATH"
          : cl.direct
              ? "Reinstall the package of the library, or remove the file that registers it"
              : "Install an OpenCL loader and a driver (Debian: ocl-icd-libopencl1, and pocl-opencl-icd for the CPU, "
                "intel-opencl-icd for Intel, nvidia-opencl-icd for NVIDIA)";
      return report;
    }
    if (!cl.missing.empty()) {
      report.reason = "the library has no " + cl.missing + ": it is older than OpenCL 1.2, or not an OpenCL library";
      report.remedy = "Install a newer loader (Debian: ocl-icd-libopencl1)";
      return report;
    }
    report.state = DeviceState::loaded;
    report.remedy =
        "Install an OpenCL driver that registers itself in /etc/OpenCL/vendors (Debian: pocl-opencl-icd "
        "for the CPU, intel-opencl-icd for Intel, nvidia-opencl-icd for NVIDIA, mesa-opencl-icd for others)";
    std::uint32_t count = 0;
    const Code code = cl.get_platforms(0, nullptr, &count);
    if (!cl.refused.empty() && code != success) {
      // Intel's driver returns this code if it finds no GPU. The common loader hides such a driver.
      const bool no_gpu = cl.refused.find(code_text(out_of_host_memory)) != cl.refused.npos;
      report.reason = cl.refused + (no_gpu ? ", which the driver returns if it finds no GPU" : "");
      report.remedy = cause(cl.library.file());
      if (report.remedy.empty())
        report.remedy = "Check whether clinfo lists the platform; if not, reinstall the package of the library";
      return report;
    }
    if (code == platform_not_found || (code == success && count == 0)) {
      report.reason = "the OpenCL loader works but lists no platform: no driver in /etc/OpenCL/vendors can be loaded";
      return report;
    }
    std::vector<PlatformId> platforms(count);
    if (code != success || cl.get_platforms(count, platforms.data(), nullptr) != success) {
      report.reason = "clGetPlatformIDs returned " + code_text(code);
      return report;
    }
    std::string empty;
    int index = 0;
    for (PlatformId platform : platforms) {
      std::uint32_t found = 0;
      const Code answer = cl.get_devices(platform, type_all, 0, nullptr, &found);
      std::vector<DeviceId> ids(answer == success ? found : 0);
      if (!ids.empty() && cl.get_devices(platform, type_all, found, ids.data(), nullptr) != success) ids.clear();
      if (ids.empty()) {
        const std::string name = name_of(platform);
        empty += (empty.empty() ? "" : "; ") + name + ": " + (answer == success ? "no device" : code_text(answer));
        if (name == "rusticl" && os::environment("RUSTICL_ENABLE").value_or("").empty())
          report.remedy =
              "rusticl only lists the devices of the drivers in RUSTICL_ENABLE: set it, for example "
              "RUSTICL_ENABLE=radeonsi (AMD), iris (Intel), nouveau (NVIDIA) or llvmpipe (the CPU)";
        if (const auto folder = pocl_without_cache(name)) {
          empty += ", because PoCL's cache folder " + *folder + " is not writable";
          report.remedy = "Set POCL_CACHE_DIR to a writable folder, or correct HOME or XDG_CACHE_HOME";
        }
      }
      for (DeviceId id : ids) {
        DeviceFacts facts = device_facts(platform, id, index++);
        report.devices.push_back(facts.info);
        remember(std::move(facts));
      }
    }
    if (report.devices.empty()) {
      report.reason = "OpenCL platforms without devices: " + empty;
      if (std::string why = cause(cl.library.file()); cl.direct && !why.empty()) report.remedy = std::move(why);
      return report;
    }
    for (const DeviceInfo& info : report.devices)
      if (info.state == DeviceState::enumerated) report.state = DeviceState::enumerated;
    report.reason = report.devices[0].reason;
    report.remedy = report.devices[0].remedy;
    return report;
  }
  void remember(DeviceFacts facts) {
    const auto at = static_cast<std::size_t>(facts.info.device.index);
    if (at < devices_.size() && devices_[at]->facts.id == facts.id) return;
    auto fresh = std::make_unique<DeviceContext>();
    fresh->facts = std::move(facts);
    if (at < devices_.size()) {
      replaced_.push_back(std::move(devices_[at]));
      devices_[at] = std::move(fresh);
    } else {
      devices_.push_back(std::move(fresh));
    }
  }
  static std::string name_of(PlatformId platform) {
    char name[256] = {};
    api().get_platform_info(platform, platform_name, sizeof name - 1, name, nullptr);
    return printable_name(name);
  }

  std::mutex lock_;
  std::atomic<Allowed*> allowed_ = nullptr;  ///< the newest list; null: all drivers are allowed
  BackendReport last_;
  std::vector<std::unique_ptr<DeviceContext>> devices_, replaced_;
};

}  // namespace

std::unique_ptr<Driver> make_opencl_driver() { return std::make_unique<ClDriver>(); }

}  // namespace tessera
