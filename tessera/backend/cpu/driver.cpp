// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include <fmt/format.h>

#include "tessera/backend/common/codegen_module.h"
#include "tessera/backend/common/image.h"
#include "tessera/backend/cpu/code_target.h"
#include "tessera/backend/cpu/cpu.h"
#include "tessera/backend/cpu/kernel.h"
#include "tessera/backend/cpu/pack_target.h"
#include "tessera/base/config.h"
#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/base/os/fork.h"
#include "tessera/base/os/pages.h"
#include "tessera/base/os/processor.h"
#include "tessera/base/os/system.h"
#include "tessera/device/driver.h"
#include "tessera/executor/executor.h"

namespace tessera::cpu {

namespace {

constexpr std::size_t line = 64, large_page = std::size_t{2} << 20;
// Blocks of this size are mapped, so that released ones return to the system instead of leaving gaps in the heap.
#if defined(__SANITIZE_ADDRESS__)
constexpr std::size_t mapped = SIZE_MAX;  // the sanitizer guards memory of the heap only
#else
constexpr std::size_t mapped = std::size_t{128} << 10;
#endif

std::uint64_t total_memory() {
  const std::uint64_t machine = os::memory().total;
  const auto group = os::group_memory();
  return group ? std::min(machine, group->limit) : machine;
}

/// All operations complete before the call returns. The calling thread takes part in the work.
class CpuQueue : public DriverQueue {
 public:
  bool immediate() const override { return true; }
  void upload(const Allocation& to, std::size_t offset, const void* from, std::size_t bytes) override {
    if (bytes) std::memcpy(to.host + offset, from, bytes);
  }
  void download(void* to, const Allocation& from, std::size_t offset, std::size_t bytes) override {
    if (bytes) std::memcpy(to, from.host + offset, bytes);
  }
  void copy(const Allocation& to, std::size_t to_offset, const Allocation& from, std::size_t from_offset,
            std::size_t bytes) override {
    if (bytes) std::memmove(to.host + to_offset, from.host + from_offset, bytes);
  }
  void fill(const Allocation& to, std::size_t offset, std::size_t bytes, std::span<const std::byte> pattern) override {
    std::byte* out = to.host + offset;
    if (std::ranges::all_of(pattern, [&](std::byte b) { return b == pattern[0]; })) {
      if (bytes) std::memset(out, std::to_integer<int>(pattern[0]), bytes);
      return;
    }
    // Copies the part that is already filled to the memory behind it. The filled part doubles with each copy, so there
    // are few large copies.
    std::size_t done = std::min(pattern.size(), bytes);
    std::memcpy(out, pattern.data(), done);
    while (done < bytes) {
      const std::size_t more = std::min({done, bytes - done, std::size_t{1} << 16});
      std::memcpy(out + done, out, more);
      done += more;
    }
  }
  void launch(LoadedKernel& kernel, std::array<std::uint64_t, 3> shape, std::span<const Argument> arguments) override {
    static_cast<CpuKernel&>(kernel).launch(shape, arguments);
  }
  std::shared_ptr<DriverEvent> record() override { return nullptr; }
  void wait(DriverEvent& event) override { event.wait(); }
  void finish() override {}
};

DeviceInfo describe(const CodeTarget& target) {
  if (target.traits) {
    DeviceInfo info = describe_cpu(&*target.traits);
    info.driver_version = target.version + " for " + target.traits->cpu;
    return info;
  }
  DeviceInfo info = describe_cpu(nullptr);
  info.reason = target.reason + "; cpu runs on the reference interpreter, which is slow";
  info.remedy = "install the module next to the library, or set TESSERA_CODEGEN_LIBRARY to its file";
  return info;
}

DeviceInfo describe(const CpuPackTarget& packed) {
  DeviceInfo info = describe_cpu(&packed.traits);
  info.driver_version = "target " + packed.target->name + " of the pack";
  info.compute_units = packed.target->compute_units;
  return info;
}

// Returns the target in TESSERA_CPU_TARGET.
std::string asked_target() { return config::text("TESSERA_CPU_TARGET").value_or("native"); }

/// Returns the target in TESSERA_CPU_TARGET. If the user set one, there is no fallback.
std::shared_ptr<const CodeTarget> usable_target() {
  auto target = find_code_target(asked_target());
  if (!target->traits && target->opened && asked_target() != "native")
    fail<DeviceError>({.operation = "open",
                       .with = {{"device", "cpu:0"}, {"TESSERA_CPU_TARGET", asked_target()}},
                       .wrong = target->reason,
                       .remedy = "Set another target, or unset the variable"});
  return target;
}

/// Warns once that the interpreter is used, because it is many times slower than compiled code. Does not warn if the
/// user requested the interpreter.
void warn_of_interpreter(const CodeTarget& target, const DeviceInfo& info) {
#ifndef TESSERA_WITHOUT_CODEGEN
  static std::atomic<bool> said = false;
  if (target.traits || config::text("TESSERA_CODEGEN_LIBRARY") == "none" || said.exchange(true)) return;
  logging::warn("cpu:0: " + info.reason + ". To fix this, " + info.remedy +
                "; to silence this warning, set TESSERA_CODEGEN_LIBRARY=none");
#else
  static_cast<void>(target), static_cast<void>(info);
#endif
}

constexpr const char* architecture =
#if defined(__x86_64__)
    "x86-64";
#elif defined(__aarch64__)
    "aarch64";
#else
#error "Add the name of this architecture, which is part of the names of cached kernels"
#endif

/// Warns once if the pack in use has no target for this processor.
void warn_of_other_levels(const CpuPackTarget& packed) {
  const KernelPack* const pack = usable_pack();
  static std::atomic<bool> said = false;
  if (packed.target != nullptr || pack == nullptr || said.exchange(true)) return;
  std::string names;
  for (const PackTarget& t : pack->targets())
    if (t.backend == Backend::cpu) names += (names.empty() ? "" : ", ") + t.name;
  if (!names.empty())
    logging::warn(fmt::format("cpu:0: the pack {} has kernels for {}, but not for this processor, {}{}", pack->file(),
                              names, os::processor_name(),
                              asked_target() == "native" ? "" : " with TESSERA_CPU_TARGET=" + asked_target()));
}

class CpuDevice : public DriverDevice, public LoadsPacks {
 public:
  CpuDevice() : packed_(choose_pack_target(asked_target())) {
    if (packed_.target != nullptr) {
      info_ = describe(packed_);
      return;
    }
    warn_of_other_levels(packed_);
    target_ = usable_target();
    info_ = describe(*target_);
    warn_of_interpreter(*target_, info_);
  }

  const DeviceInfo& info() const override { return info_; }
  std::uint64_t free_memory() const override {
    const std::uint64_t machine = os::memory().available;
    const auto group = os::group_memory();
    return group ? std::min(machine, group->free) : machine;
  }
  Allocation allocate(std::size_t bytes, MemoryKind) override {
    const std::size_t alignment = bytes >= 2 * large_page ? large_page : line;
    const std::size_t rounded = std::max(line, bytes + (alignment - bytes % alignment) % alignment);
    auto* data = static_cast<std::byte*>(bytes >= mapped   ? os::map_pages(bytes, alignment)
                                         : rounded < bytes ? nullptr
                                                           : std::aligned_alloc(alignment, rounded));
    if (!data)
      fail<OutOfMemory>({.operation = "allocate",
                         .with = {{"device", "cpu:0"}, {"bytes", config::format_bytes(bytes)}},
                         .wrong = "the system has no memory left",
                         .remedy = "Free arrays, or use smaller ones"});
    // Uses large pages only for full pages, because a partly used large page would occupy memory in full.
    if (alignment == large_page) os::prefer_large_pages(data, bytes / large_page * large_page);
    return {data, data, bytes};
  }
  void release(const Allocation& allocation) noexcept override {
    allocation.bytes >= mapped ? os::unmap_pages(allocation.handle, allocation.bytes) : std::free(allocation.handle);
  }
  void trim() noexcept override { trim_module(); }
  std::unique_ptr<DriverQueue> make_queue() override { return std::make_unique<CpuQueue>(); }
  Allocation wrap(void* native, std::size_t bytes) override { return {native, static_cast<std::byte*>(native), bytes}; }
  std::vector<std::unique_ptr<LoadedKernel>> compile(std::span<const CompileRequest> requests) override {
    if (target()->traits) return DriverDevice::compile(requests);
    if (packed_.target != nullptr)
      fail<KernelError>({.operation = "compile " + requests.front().function->name,
                         .with = {{"device", "cpu:0"}},
                         .wrong = target()->reason});
    std::vector<std::unique_ptr<LoadedKernel>> out;
    for (const CompileRequest& r : requests) out.push_back(interpreted_kernel(r));
    return out;
  }
  std::string image_key() override {
    const std::shared_ptr<const CodeTarget> here = target();
    if (!here->traits) return {};
    return backend::lowering_key() + "architecture: " + architecture + ", vectors of " +
           std::to_string(here->traits->width) + "\ncompiler: " + here->version + ", build " + here->build +
           "\nprocessor's features: " + here->traits->feature_bits + "\n";
  }
  std::string build(const CompileRequest& request) override {
    check_llvm_after_fork("compile");
    Generator& generator = generator_of(*target(), request.function->name);
    const std::lock_guard hold(compiling_);
    const os::ForkGuard whole;  // LLVM is not fork-safe
    return build_kernel(generator, request);
  }
  std::unique_ptr<LoadedKernel> load(const CompileRequest& request, const std::string& image) override {
    return load_kernel(target(), request, image);
  }
  std::string pack_target() const override { return packed_.target == nullptr ? "" : packed_.target->name; }
  std::unique_ptr<LoadedKernel> load_packed(const CompileRequest& request, const std::string& image) override {
    return load_kernel(nullptr, request, image);
  }
  std::string why_not_compiled() override { return target()->reason; }

 private:
  /// A device that uses a pack finds its target at the first call, because only kernels that are not in the pack need
  /// it.
  std::shared_ptr<const CodeTarget> target() {
    if (packed_.target == nullptr) return target_;
    const std::lock_guard hold(finding_);
    if (!target_) target_ = find_code_target(packed_.traits.cpu);
    return target_;
  }

  const CpuPackTarget packed_;
  std::shared_ptr<const CodeTarget> target_;  ///< guarded by finding_ if the device uses a pack
  DeviceInfo info_;
  std::mutex finding_, compiling_;
};

class CpuDriver : public Driver {
 public:
  Backend backend() const override { return Backend::cpu; }
  BackendReport enumerate() override {
    BackendReport report;
    report.backend = Backend::cpu;
    try {
      if (const CpuPackTarget packed = choose_pack_target(asked_target()); packed.target != nullptr) {
        report.devices.push_back(describe(packed));
        report.file = usable_pack()->file();
      } else {
        const auto target = usable_target();
        report.devices.push_back(describe(*target));
        if (target->traits) report.file = target->file;
      }
      report.state = report.devices[0].state;
      report.reason = report.devices[0].reason, report.remedy = report.devices[0].remedy;
    } catch (const OutOfMemory&) {
      throw;  // not an error of the device
    } catch (const Error& e) {
      report.state = DeviceState::loaded;
      report.reason = e.what();
      report.remedy = "correct the environment variable";
    }
    return report;
  }
  std::unique_ptr<DriverDevice> open(int index) override {
    if (index != 0)
      fail<DeviceError>({.operation = "open",
                         .with = {{"device", "cpu:" + std::to_string(index)}},
                         .wrong = "there is only one cpu device, which uses all processors",
                         .remedy = "Use cpu:0"});
    return std::make_unique<CpuDevice>();
  }
};

}  // namespace

DeviceInfo describe_cpu(const TargetTraits* traits) {
  DeviceInfo info;
  info.device = {Backend::cpu, 0};
  info.name = os::processor_name();
  info.vendor = os::processor_vendor();
  info.identity = "cpu";
  info.kind = DeviceKind::cpu;
  info.state = DeviceState::enumerated;
  info.total_memory = total_memory();
  info.unified_memory = true;
  info.compute_units = executor::Executor::instance().threads();
  info.can.f64 = info.can.int64 = info.can.atomic_i64 = info.can.atomic_f32 = true;
  info.can.max_block = {1024, 1024, 1024};
  info.can.shared_bytes = max_shared_bytes;
  info.can.max_parameter_bytes = 1 << 16;
  info.can.vector_bytes = 64;
  if (traits != nullptr) {
    info.can.f16 = traits->f16c;
    info.can.int8_dot = traits->vnni || traits->avx_vnni;
    info.can.subgroup_widths = {traits->width};
  } else {
    info.driver_version = "reference interpreter";
    info.can.subgroup_widths = {ir::InterpreterOptions{}.subgroup_width};
  }
  return info;
}

}  // namespace tessera::cpu

namespace tessera {
std::unique_ptr<Driver> make_cpu_driver() { return std::make_unique<cpu::CpuDriver>(); }
}  // namespace tessera
