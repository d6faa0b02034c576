// SPDX-License-Identifier: Apache-2.0
// Metal-specific code: finds devices and queries their properties.
#include "tessera/backend/metal/metal.h"

#include <algorithm>

#include <fmt/format.h>

#include "tessera/backend/metal/metal_api.h"
#include "tessera/backend/stream/library.h"

namespace tessera {

namespace metal {

namespace {

#ifdef __APPLE__
constexpr bool apple = true;
#else
constexpr bool apple = false;
#endif
constexpr const char* unverified = "Metal, unverified: this backend has never run on Apple's hardware";

class MetalVendor final : public stream::Vendor {
 public:
  Backend backend() const override { return Backend::metal; }
  const stream::Api& api() const override { return *api_; }
  VendorDriver loads() const override { return {"", metal_files(), {}}; }
  int start(BackendReport& report) override;
  stream::DeviceFacts describe(int ordinal) override;
  bool has_user_order() const override { return false; }
  std::string uuid(int) const override { return {}; }
  stream::Image compile(const stream::DeviceFacts& facts, const backend::Program& program) override;
  std::string compiler(const stream::DeviceFacts&) const override { return {}; }  // Metal caches compiled code itself

 private:
  Runtime runtime_;
  std::unique_ptr<MetalApi> api_;
};

int MetalVendor::start(BackendReport& report) {
  const bool named = !stream::library_from_variable("TESSERA_METAL_LIBRARY").empty();
  if (!apple && !named) {
    report.state = DeviceState::unsupported;
    report.reason = "Metal exists on Apple systems only";
    report.remedy = "Nothing to do here";
    return 0;
  }
  if (!runtime_.usable()) runtime_ = open_runtime();
  const os::Library& last = runtime_.metal.loaded() ? runtime_.objc : runtime_.metal;
  const std::string update = "Metal requires macOS 10.11 or later: update the system";
  if (!stream::check_library(
          report, "TESSERA_METAL_LIBRARY", last, runtime_.missing, "", [&] { return update; }, update))
    return 0;
  if (!api_) api_ = std::make_unique<MetalApi>(runtime_);
  if (api_->count() == 0) {
    const Pool pool(runtime_);
    const Owned all(runtime_, runtime_.copy_all_devices());
    const UInt count = runtime_.send<UInt>(all.get(), runtime_.selectors.count);
    for (UInt i = 0; i < count; ++i)  // never released
      api_->add(
          runtime_.send<Id>(runtime_.send<Id>(all.get(), runtime_.selectors.object_at, i), runtime_.selectors.retain));
  }
  if (api_->count() == 0) {
    report.reason = "MTLCopyAllDevices lists no device";
    report.remedy =
        "Metal needs a GPU from 2012 or later; a virtual machine has one only if it is configured to provide it";
    return 0;
  }
  report.state = DeviceState::enumerated;
  return static_cast<int>(api_->count());
}

stream::DeviceFacts MetalVendor::describe(int ordinal) {
  const Pool pool(runtime_);
  MetalDevice& device = api_->device(ordinal);
  const Selectors& selectors = runtime_.selectors;
  stream::DeviceFacts facts;
  facts.ordinal = ordinal;
  DeviceInfo& info = facts.info;
  info.name = runtime_.text(runtime_.send<Id>(device.device, selectors.name));
  info.vendor = info.name.starts_with("AMD") ? "AMD" : info.name.starts_with("Intel") ? "Intel" : "Apple";
  info.driver_version = unverified;
  // A registryID changes when the machine restarts (IORegistryEntryGetRegistryEntryID), so it is not used as the
  // identity. It is the same in all processes, so it is used to sort GPUs of the same model.
  facts.order = runtime_.send<UInt>(device.device, selectors.registry_id);
  info.total_memory = runtime_.send<UInt>(device.device, selectors.working_set);
  info.unified_memory = device.unified;
  info.kind = device.unified ? DeviceKind::integrated_gpu : DeviceKind::discrete_gpu;
  facts.architecture = info.name;
  facts.dialect = emit::metal_c();
  Capabilities& can = info.can;
  can.f16 = true;
  can.f64 = can.bf16 = can.atomic_i64 = can.atomic_f32 = can.int8_dot = false;
  can.max_block_threads = 1024;
  can.max_block = {1024, 1024, 1024};
  can.shared_bytes = runtime_.send<UInt>(device.device, selectors.max_threadgroup_memory);
  can.max_parameter_bytes = 16 * 30;                      // at most 31 buffers; each input counts as 16 bytes
  can.max_blocks = {0xffffffff, 0xffffffff, 0xffffffff};  // thread positions are 32-bit numbers
  // The subgroup width is known only for compiled kernels. Compiling the internal kernels also checks that the compiler
  // works.
  if (const Code code = api_->prepare(device); code != 0) {
    info.state = DeviceState::loaded;
    info.reason = "the device was found, but Metal could not compile a first kernel: " + api_->code_text(code);
    info.remedy = "Update the system, and please report this message";
    return facts;
  }
  can.subgroup_widths = {static_cast<std::uint32_t>(
      std::clamp<UInt>(runtime_.send<UInt>(device.copy, selectors.execution_width), 1, 128))};
  info.state = DeviceState::enumerated;
  return facts;
}

// The image is the source text. Metal caches compiled code for each text, so loading the image does not compile it
// again.
stream::Image MetalVendor::compile(const stream::DeviceFacts& facts, const backend::Program& program) {
  const Pool pool(runtime_);
  stream::Image image;
  image.made = static_cast<bool>(api_->compile(api_->device(facts.ordinal), program.text(), &image.log));
  if (image.made) image.bytes = program.text();
  return image;
}

}  // namespace

}  // namespace metal

std::unique_ptr<Driver> make_metal_driver() { return stream::make_driver(std::make_unique<metal::MetalVendor>()); }

}  // namespace tessera
