// SPDX-License-Identifier: Apache-2.0
#include "tessera/device/placement/dry_run.h"

#include <fmt/format.h>

#include <cstring>
#include <map>
#include <mutex>

#include "tessera/base/error.h"
#include "tessera/base/os/fork.h"
#include "tessera/device/discovery/discovery.h"
#include "tessera/device/driver.h"
#include "tessera/device/placement/dry_launch.h"
#include "tessera/device/placement/kernel_backend.h"
#include "tessera/device/selection/open_device.h"
#include "tessera/ir/node.h"

namespace tessera {
namespace {

/// The dry-run devices created so far. An index simulates the same real device for the process's lifetime.
struct Stands {
  std::mutex lock;
  std::vector<DeviceInfo> infos;
  std::vector<Backend> simulated;                  // by index
  std::map<int, std::vector<DryLaunch>> launches;  // by index, of the devices that record them
  std::multimap<Device, int> idle;                 // idle indices, by the real device
  /// A forked child keeps its parent's indices but cannot reuse the idle ones, because the parent has opened them. A
  /// ForkGuard prevents forks during changes.
  explicit Stands(const Stands* parents) {
    if (parents != nullptr) infos = parents->infos, simulated = parents->simulated;
  }
};
constinit os::PerProcess<Stands> the_stands;

/// Access to the_stands while holding its lock.
class HeldStands {
 public:
  HeldStands() : stands_(the_stands.get()), hold_(stands_.lock) {}
  Stands* operator->() { return &stands_; }

 private:
  const os::ForkGuard whole_;
  Stands& stands_;
  const std::lock_guard<std::mutex> hold_;
};

class DryKernel : public LoadedKernel {
 public:
  DryKernel(const ir::Function& fn, Variant v) : function(std::make_shared<ir::Function>(fn)), variant(v) {}
  const std::shared_ptr<const ir::Function> function;
  const Variant variant;
  std::string source() const override { return "(a dry run compiles nothing)"; }
};

class DryQueue : public DriverQueue {
 public:
  explicit DryQueue(std::vector<DryLaunch>* launches) : launches_(launches) {}
  bool immediate() const override { return true; }
  void upload(const Allocation&, std::size_t, const void*, std::size_t) override {}
  void download(void* to, const Allocation&, std::size_t, std::size_t bytes) override { std::memset(to, 0, bytes); }
  void copy(const Allocation&, std::size_t, const Allocation&, std::size_t, std::size_t) override {}
  void fill(const Allocation&, std::size_t, std::size_t, std::span<const std::byte>) override {}
  void launch(LoadedKernel& kernel, std::array<std::uint64_t, 3> shape, std::span<const Argument> arguments) override {
    if (launches_ == nullptr) return;
    const auto& dry = static_cast<DryKernel&>(kernel);
    DryLaunch& launch = launches_->emplace_back(dry.function, dry.variant, shape);
    for (std::size_t i = 0; i < arguments.size(); ++i)
      launch.values.push_back(dry.function->params[i].is_buffer ? arguments[i].elements : arguments[i].bits);
  }
  std::shared_ptr<DriverEvent> record() override { return nullptr; }
  void wait(DriverEvent& event) override { event.wait(); }
  void finish() override {}

 private:
  std::vector<DryLaunch>* const launches_;  // null: they are not recorded
};

class DryDevice : public DriverDevice {
 public:
  DryDevice(DeviceInfo info, std::vector<DryLaunch>* launches) : info_(std::move(info)), launches_(launches) {}
  const DeviceInfo& info() const override { return info_; }
  std::uint64_t free_memory() const override { return info_.total_memory; }
  Allocation allocate(std::size_t bytes, MemoryKind) override { return {this, nullptr, bytes}; }
  void release(const Allocation&) noexcept override {}
  std::unique_ptr<DriverQueue> make_queue() override { return std::make_unique<DryQueue>(launches_); }
  std::vector<std::unique_ptr<LoadedKernel>> compile(std::span<const CompileRequest> requests) override {
    std::vector<std::unique_ptr<LoadedKernel>> kernels;
    for (const CompileRequest& r : requests) kernels.push_back(std::make_unique<DryKernel>(*r.function, r.variant));
    return kernels;
  }

 private:
  DeviceInfo info_;
  std::vector<DryLaunch>* const launches_;
};

class DryDriver : public Driver {
 public:
  Backend backend() const override { return Backend::dry_run; }
  BackendReport enumerate() override {
    BackendReport report{.backend = Backend::dry_run, .state = DeviceState::enumerated};
    report.devices = HeldStands()->infos;
    return report;
  }
  std::unique_ptr<DriverDevice> open(int index) override {
    HeldStands s;
    const auto log = s->launches.find(index);
    return std::make_unique<DryDevice>(s->infos.at(static_cast<std::size_t>(index)),
                                       log == s->launches.end() ? nullptr : &log->second);
  }
};

Device stand_for(const DeviceInfo& info, bool records) {
  const Device like = info.device;
  Device device{Backend::dry_run, 0};
  {
    HeldStands s;
    if (const auto it = s->idle.find(like); !records && it != s->idle.end()) {
      device.index = it->second;
      s->idle.erase(it);
      return device;
    }
    device.index = static_cast<int>(s->infos.size());
    if (records) s->launches[device.index];
    s->infos.push_back(info);
    s->simulated.push_back(like.backend);
    DeviceInfo& stand = s->infos.back();
    stand.device = device;
    stand.name = fmt::format("dry run of {} ({})", to_string(like), info.name);
    stand.state = DeviceState::verified;
  }
  static std::once_flag registered;
  std::call_once(registered, [] { register_driver(std::make_unique<DryDriver>()); });
  forget_report(Backend::dry_run);
  return device;
}

}  // namespace

DryRun::DryRun(const DeviceInfo& like) : like_(like.device), device_(stand_for(like, true)), reusable_(false) {
  open_device(device_);
}

DryRun::DryRun(Device like) : like_(like), device_(stand_for(device_info(like), false)) {
  OpenDevice& open = open_device(device_);
  open.pool.trim();
  open.pool.reset_peak();
}

DryRun::~DryRun() {
  try {
    // If some arrays still exist, don't reuse the device, because the next dry run would count them.
    if (!reusable_) HeldStands()->launches[device_.index] = {};
    if (!reusable_ || open_device(device_).pool.stats().live_bytes != 0) return;
    HeldStands()->idle.emplace(like_, device_.index);
  } catch (...) {  // out of memory or in a forked child: the index is not reused
  }
}

Backend detail::simulated_backend(Device device) {
  HeldStands s;
  return s->simulated.at(static_cast<std::size_t>(device.index));
}

MemoryStats DryRun::stats() const { return memory_stats(device_); }

const std::vector<DryLaunch>& launches_of(const DryRun& run) {
  static const std::vector<DryLaunch> none;
  HeldStands s;
  const auto log = s->launches.find(run.device().index);
  return log == s->launches.end() ? none : log->second;
}

}  // namespace tessera
