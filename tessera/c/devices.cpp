// SPDX-License-Identifier: Apache-2.0
// Devices in the C interface.
#include <algorithm>
#include <mutex>
#include <set>

#include "tessera/c/status.h"
#include "tessera/device/context.h"
#include "tessera/device/device.h"
#include "tessera/task/synchronize.h"

namespace tessera::c {

static_assert(static_cast<int>(Backend::cpu) == TESSERA_CPU && static_cast<int>(Backend::cuda) == TESSERA_CUDA &&
              static_cast<int>(Backend::rocm) == TESSERA_ROCM && static_cast<int>(Backend::oneapi) == TESSERA_ONEAPI &&
              static_cast<int>(Backend::metal) == TESSERA_METAL &&
              static_cast<int>(Backend::opencl) == TESSERA_OPENCL &&
              static_cast<int>(Backend::interp) == TESSERA_INTERP);
static_assert(static_cast<int>(DeviceState::unsupported) == TESSERA_UNSUPPORTED &&
              static_cast<int>(DeviceState::verified) == TESSERA_VERIFIED &&
              static_cast<int>(DeviceState::lost) == TESSERA_LOST);

namespace {
Backend backend_of(std::int32_t backend) {
  if (backend < 0 || backend >= static_cast<int>(all_backends.size()))
    fail<DeviceError>({.operation = "backend",
                       .with = {{"backend", std::to_string(backend)}},
                       .wrong = "there is no such backend",
                       .remedy = "Use a value of tessera_backend"});
  return static_cast<Backend>(backend);
}

/// Returns the text of the device. The pointer stays valid.
const char* permanent_text(Device device) {
  static std::mutex lock;
  static std::set<std::string> texts;
  const std::lock_guard hold(lock);
  return texts.insert(to_string(device)).first->c_str();
}
}  // namespace

Device device_of(tessera_device device) { return {backend_of(device.backend), device.index}; }
std::optional<Device> device_of(const tessera_device* device) {
  return device == nullptr ? std::nullopt : std::optional(device_of(*device));
}
tessera_device c_device(Device device) { return {static_cast<std::int32_t>(device.backend), device.index}; }

}  // namespace tessera::c

using namespace tessera;
using namespace tessera::c;

extern "C" {

tessera_status tessera_parse_device(const char* text, tessera_device* device) {
  return guard([&] {
    required("tessera_parse_device", "device", device) =
        c_device(parse_device(&required("tessera_parse_device", "text", text)));
  });
}
tessera_status tessera_get_devices(tessera_device* list, size_t capacity, size_t* count) {
  return guard([&] {
    if (capacity > 0) required("tessera_get_devices", "devices", list);
    required("tessera_get_devices", "count", count);
    const std::vector<Device> all = devices();
    for (std::size_t i = 0; i < std::min(capacity, all.size()); ++i) list[i] = c_device(all[i]);
    *count = all.size();
  });
}
tessera_status tessera_get_device_info(tessera_device device, tessera_device_info* info) {
  return guard([&] {
    const Device d = device_of(device);
    const DeviceInfo& i = device_info(d);
    write_sized("tessera_get_device_info", "info", info,
                {.size = 0,
                 .text = permanent_text(d),
                 .name = i.name.c_str(),
                 .vendor = i.vendor.c_str(),
                 .driver_version = i.driver_version.c_str(),
                 .state = static_cast<std::int32_t>(i.state),
                 .native_index = i.native_index,
                 .reason = i.reason.c_str(),
                 .remedy = i.remedy.c_str(),
                 .total_memory = i.total_memory,
                 .compute_units = i.compute_units,
                 .unified_memory = i.unified_memory});
  });
}
tessera_status tessera_get_backend_report(tessera_backend backend, tessera_backend_report* report) {
  return guard([&] {
    const BackendReport& r = discover(backend_of(backend));
    write_sized("tessera_get_backend_report", "report", report,
                {.size = 0,
                 .name = backend_name(r.backend).data(),
                 .state = static_cast<std::int32_t>(r.state),
                 .file = r.file.c_str(),
                 .reason = r.reason.c_str(),
                 .remedy = r.remedy.c_str(),
                 .device_count = r.devices.size()});
  });
}
tessera_status tessera_get_current_device(tessera_device* device) {
  return guard([&] { required("tessera_get_current_device", "device", device) = c_device(current_device()); });
}
tessera_status tessera_set_current_device(const tessera_device* device) {
  return guard([&] {
    const std::optional<Device> to = device_of(device);
    if (to) device_info(*to);
    thread_context.device = to;
  });
}
tessera_status tessera_why_current_device(char** text) {
  return guard_result(__func__, text, [] { return text_copy(why_current_device()); });
}
tessera_status tessera_free_memory(tessera_device device, uint64_t* bytes) {
  return guard([&] { required("tessera_free_memory", "bytes", bytes) = free_memory(device_of(device)); });
}
tessera_status tessera_rescan(void) { return guard(rescan); }
tessera_status tessera_synchronize(void) {
  return guard([] { synchronize(); });
}

}  // extern "C"
