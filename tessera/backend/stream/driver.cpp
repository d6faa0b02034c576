// SPDX-License-Identifier: Apache-2.0
// The driver object. It sorts the devices and creates a context for each of them.
#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <tuple>

#include <fmt/format.h>

#include "tessera/backend/stream/device.h"
#include "tessera/base/error.h"
#include "tessera/base/printable.h"
#include "tessera/device/driver.h"

namespace tessera::stream {

namespace {

class StreamDriver final : public Driver {
 public:
  explicit StreamDriver(std::unique_ptr<Vendor> vendor) : vendor_(std::move(vendor)) {}
  Backend backend() const override { return vendor_->backend(); }

  BackendReport enumerate() override {
    std::lock_guard guard(vendor_->lock);
    return last_ = enumerate_devices();
  }

  std::optional<std::vector<VendorDriver>> vendor_drivers() override {
    return std::vector<VendorDriver>{vendor_->loads()};
  }
  void allow(std::vector<std::string> parts) override { allowed_ = !parts.empty(); }

  std::unique_ptr<DriverDevice> open(int index) override {
    std::lock_guard guard(vendor_->lock);
    const std::string asked = to_string(Device{backend(), index});
    if (!allowed_)
      fail<DeviceError>({.operation = asked,
                         .wrong = "the driver listed no device in the probe process, so it is not loaded",
                         .remedy = "See discover() for the reason"});
    if (devices_.empty()) last_ = enumerate_devices();
    if (index < 0 || static_cast<std::size_t>(index) >= devices_.size())
      fail<DeviceError>(
          {.operation = asked,
           .wrong = devices_.empty() ? last_.reason
                                     : fmt::format("there are {} {} devices", devices_.size(), backend_name(backend())),
           .remedy = devices_.empty() ? last_.remedy : fmt::format("The first is {}:0", backend_name(backend()))});
    DeviceContext& device = *devices_[static_cast<std::size_t>(index)];
    const DeviceInfo& info = device.facts.info;
    if (info.state == DeviceState::loaded)
      fail<DeviceError>(
          {.operation = asked, .with = {{"name", info.name}}, .wrong = info.reason, .remedy = info.remedy});
    if (!device.open) {
      const Relaxed relaxed(device.api());
      const Code code = device.api().context_of(device.facts.ordinal, &device.context);
      if (code != success)
        fail<DeviceError>(
            {.operation = asked,
             .with = {{"name", info.name}},
             .wrong = "the driver could not create a context: " + device.api().code_text(code),
             .remedy = "Check whether other programs use all of the device's memory, or use the device exclusively"});
      device.open = true;
    }
    return std::make_unique<StreamDevice>(device);
  }

 private:
  BackendReport enumerate_devices() {
    BackendReport report;
    report.backend = backend();
    report.state = DeviceState::supported;
    const int count = vendor_->start(report);
    std::vector<DeviceFacts> found;
    for (int ordinal = 0; ordinal < count; ++ordinal) {
      found.push_back(vendor_->describe(ordinal));
      DeviceInfo& info = found.back().info;
      info.native_index = ordinal;
      for (std::string* text : {&info.name, &info.vendor, &info.driver_version, &info.identity})
        *text = printable_name(*text);
    }
    // The order in which drivers list devices depends on their speed, and changes when a card is added.
    if (!vendor_->has_user_order())
      std::ranges::stable_sort(found, {}, [](const DeviceFacts& f) { return std::tie(f.info.identity, f.order); });
    name_apart(found);
    for (std::size_t i = 0; i < found.size(); ++i) {
      found[i].info.device = {backend(), static_cast<int>(i)};
      report.devices.push_back(found[i].info);
      remember(i, std::move(found[i]));
    }
    if (report.devices.empty()) return report;
    report.state = DeviceState::loaded;
    for (const DeviceInfo& info : report.devices)
      if (info.state == DeviceState::enumerated) report.state = DeviceState::enumerated;
    report.reason = report.devices[0].reason;
    report.remedy = report.devices[0].remedy;
    return report;
  }
  // The partitions of a card report the same PCI address, so they are identified by UUID.
  void name_apart(std::vector<DeviceFacts>& found) {
    std::map<std::string, int> seen;
    for (const DeviceFacts& f : found) ++seen[f.info.identity];
    for (DeviceFacts& f : found) {
      if (seen[f.info.identity] < 2 && !f.info.identity.empty()) continue;
      if (std::string uuid = vendor_->uuid(f.ordinal); !uuid.empty()) f.info.identity = std::move(uuid);
    }
  }
  // A device keeps its index when devices are enumerated again, because open devices refer to it.
  void remember(std::size_t at, DeviceFacts facts) {
    if (at < devices_.size()) {
      DeviceContext& known = *devices_[at];
      if (!known.open) {
        known.facts = std::move(facts);
        return;
      }
      if (known.facts.ordinal == facts.ordinal && known.facts.info.identity == facts.info.identity) return;
      replaced_.push_back(std::move(devices_[at]));
      devices_[at] = std::make_unique<DeviceContext>(*vendor_, std::move(facts));
    } else {
      devices_.push_back(std::make_unique<DeviceContext>(*vendor_, std::move(facts)));
    }
  }

  std::unique_ptr<Vendor> vendor_;
  std::atomic<bool> allowed_ = true;
  BackendReport last_;
  std::vector<std::unique_ptr<DeviceContext>> devices_, replaced_;
};

}  // namespace

std::unique_ptr<Driver> make_driver(std::unique_ptr<Vendor> vendor) {
  return std::make_unique<StreamDriver>(std::move(vendor));
}

}  // namespace tessera::stream
