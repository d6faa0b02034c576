// SPDX-License-Identifier: Apache-2.0
#include "tessera/backend/interp/interp.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <new>
#include <utility>

#include "tessera/backend/interp/written_bytes.h"
#include "tessera/base/config.h"
#include "tessera/base/error.h"
#include "tessera/base/os/system.h"
#include "tessera/ir/interpreter.h"

namespace tessera {

namespace {

constexpr std::align_val_t alignment{64};

/// Returns the options of each device. There is one device for each subgroup width in TESSERA_SUBGROUP.
std::vector<ir::InterpreterOptions> options_from_environment() {
  ir::InterpreterOptions options;
  options.checks = config::flag("TESSERA_CHECK", false);
  const std::string widths = os::environment("TESSERA_SUBGROUP").value_or("");
  if (widths.empty()) return {options};
  std::vector<ir::InterpreterOptions> devices;
  for (const char *at = widths.data(), *const last = at + widths.size();; ++at) {
    const auto [end, error] = std::from_chars(at, last, options.subgroup_width);
    if (error != std::errc{} || (end != last && *end != ',') || options.subgroup_width < 1 ||
        options.subgroup_width > 128)
      fail<ArgumentError>(
          {.operation = "environment",
           .wrong = "TESSERA_SUBGROUP=" + widths + ": expected numbers of threads from 1 to 128, separated by commas",
           .remedy = "Set it to 1, 8, 32 or 64, the widths of real devices, or unset it"});
    devices.push_back(options);
    at = end;
    if (at == last) return devices;
  }
}

DeviceInfo info_for(const ir::InterpreterOptions& options, int index) {
  DeviceInfo info;
  info.device = {Backend::interp, index};
  info.name = options.checks ? "reference interpreter, checking" : "reference interpreter";
  info.vendor = "Tessera";
  info.kind = DeviceKind::other;
  info.total_memory = os::memory().total;
  if (const auto group = os::group_memory()) info.total_memory = std::min(info.total_memory, group->limit);
  info.unified_memory = true;
  info.compute_units = 1;
  info.can.f16 = info.can.bf16 = info.can.f64 = info.can.int64 = true;
  info.can.atomic_i64 = info.can.atomic_f32 = true;
  info.can.subgroup_widths = {options.subgroup_width};
  info.can.max_block = {1024, 1024, 1024};
  info.can.shared_bytes = 1 << 20;
  info.can.max_parameter_bytes = 1 << 16;
  return info;
}

class InterpKernel : public LoadedKernel {
 public:
  InterpKernel(ir::Function fn, const ir::InterpreterOptions& options) : interpreter_(std::move(fn), options) {}
  std::string source() const override { return ir::to_text(interpreter_.function()); }
  const ir::Interpreter& interpreter() const { return interpreter_; }

 private:
  ir::Interpreter interpreter_;
};

/// All operations complete before the call returns.
class InterpQueue : public DriverQueue {
 public:
  explicit InterpQueue(std::shared_ptr<WrittenBytes> written) : written_(std::move(written)) {}

  bool immediate() const override { return true; }
  void upload(const Allocation& to, std::size_t offset, const void* from, std::size_t bytes) override {
    if (bytes == 0) return;
    std::memcpy(to.host + offset, from, bytes);
    if (written_) written_->set(to.host + offset, bytes, true);
  }
  void download(void* to, const Allocation& from, std::size_t offset, std::size_t bytes) override {
    if (bytes != 0) std::memcpy(to, from.host + offset, bytes);
  }
  void copy(const Allocation& to, std::size_t to_offset, const Allocation& from, std::size_t from_offset,
            std::size_t bytes) override {
    if (bytes == 0) return;
    std::memmove(to.host + to_offset, from.host + from_offset, bytes);
    if (written_) written_->copy(to.host + to_offset, from.host + from_offset, bytes);
  }
  void fill(const Allocation& to, std::size_t offset, std::size_t bytes, std::span<const std::byte> pattern) override {
    std::byte* data = to.host + offset;
    for (std::size_t done = 0; done < bytes; done += pattern.size())
      std::memcpy(data + done, pattern.data(), pattern.size());
    if (written_) written_->set(data, bytes, true);
  }
  void launch(LoadedKernel& kernel, std::array<std::uint64_t, 3> shape, std::span<const Argument> arguments) override {
    std::vector<ir::InterpreterArgument> given;
    given.reserve(arguments.size());
    for (const Argument& a : arguments) {
      std::byte* const data = a.allocation && a.allocation->host ? a.allocation->host + a.byte_offset : nullptr;
      given.push_back({data, a.elements, a.bits, written_ && data ? written_->find(data) : nullptr});
    }
    static_cast<InterpKernel&>(kernel).interpreter().run(shape, given);
  }
  std::shared_ptr<DriverEvent> record() override { return nullptr; }
  void wait(DriverEvent& event) override { event.wait(); }
  void finish() override {}

 private:
  std::shared_ptr<WrittenBytes> written_;  ///< shared with the device; null without checks
};

class InterpDevice : public DriverDevice {
 public:
  InterpDevice(const ir::InterpreterOptions& options, int index)
      : options_(options),
        info_(info_for(options, index)),
        written_(options.checks ? std::make_shared<WrittenBytes>() : nullptr) {}

  const DeviceInfo& info() const override { return info_; }
  std::uint64_t free_memory() const override {
    const std::uint64_t available = os::memory().available;
    const auto group = os::group_memory();
    return group ? std::min(available, group->free) : available;
  }
  Allocation allocate(std::size_t bytes, MemoryKind) override {
    void* memory = ::operator new(bytes, alignment, std::nothrow);
    if (memory && written_) try {
        written_->add(static_cast<std::byte*>(memory), bytes);
      } catch (const std::bad_alloc&) {
        ::operator delete(std::exchange(memory, nullptr), alignment);
      }
    if (!memory)
      fail<OutOfMemory>({.operation = to_string(info_.device),
                         .with = {{"bytes", std::to_string(bytes)}},
                         .wrong = "the system cannot allocate this much memory",
                         .remedy = "Use smaller arrays, or free other ones"});
    return {memory, static_cast<std::byte*>(memory), bytes};
  }
  void release(const Allocation& allocation) noexcept override {
    if (written_) written_->remove(allocation.host);
    ::operator delete(allocation.handle, alignment);
  }
  void reused(const Allocation& allocation) noexcept override {
    if (written_) written_->set(allocation.host, allocation.bytes, false);
  }
  void host_writes(const Allocation& to, std::size_t offset, std::size_t bytes) override {
    if (written_) written_->set(to.host + offset, bytes, true);
  }
  void host_reads(const Allocation& from, std::size_t offset, std::size_t bytes) override {
    const std::uint8_t* const flags = written_ ? written_->find(from.host + offset) : nullptr;
    if (!flags) return;
    const auto unwritten = std::count(flags, flags + bytes, 0);
    if (unwritten == 0) return;
    fail<ArgumentError>({.operation = "download",
                         .with = {{"device", to_string(info_.device)},
                                  {"bytes", std::to_string(bytes)},
                                  {"never written", std::to_string(unwritten)},
                                  {"first at byte", std::to_string(std::find(flags, flags + bytes, 0) - flags)}},
                         .wrong = "the host reads memory that was never written",
                         .remedy = "New arrays and buffers are not zero: check that the kernel writes every element"});
  }
  std::unique_ptr<DriverQueue> make_queue() override { return std::make_unique<InterpQueue>(written_); }
  Allocation wrap(void* native, std::size_t bytes) override { return {native, static_cast<std::byte*>(native), bytes}; }
  std::vector<std::unique_ptr<LoadedKernel>> compile(std::span<const CompileRequest> requests) override {
    std::vector<std::unique_ptr<LoadedKernel>> out;
    for (const CompileRequest& r : requests) {
      ir::Function fn = *r.function;
      fn.index64 = fn.index64 || r.variant.index64;
      out.push_back(std::make_unique<InterpKernel>(std::move(fn), options_));
    }
    return out;
  }

 private:
  ir::InterpreterOptions options_;
  DeviceInfo info_;
  std::shared_ptr<WrittenBytes> written_;  ///< null without checks
};

class InterpDriver : public Driver {
 public:
  Backend backend() const override { return Backend::interp; }
  BackendReport enumerate() override {
    BackendReport report;
    report.backend = Backend::interp;
    try {
      for (const ir::InterpreterOptions& options : options_from_environment())
        report.devices.push_back(info_for(options, static_cast<int>(report.devices.size())));
      report.state = DeviceState::enumerated;
    } catch (const Error& e) {
      report.state = DeviceState::loaded;
      report.reason = e.what();
      report.remedy = "Correct or unset the variable";
    }
    return report;
  }
  std::unique_ptr<DriverDevice> open(int index) override {
    const std::vector<ir::InterpreterOptions> devices = options_from_environment();
    if (index < 0 || static_cast<std::size_t>(index) >= devices.size())
      fail<DeviceError>({.operation = "interp:" + std::to_string(index),
                         .wrong = devices.size() == 1 ? "there is only one interpreter, interp:0"
                                                      : "there are " + std::to_string(devices.size()) +
                                                            " interpreters, starting with interp:0"});
    return std::make_unique<InterpDevice>(devices[static_cast<std::size_t>(index)], index);
  }
};

}  // namespace

std::unique_ptr<Driver> make_interp_driver() { return std::make_unique<InterpDriver>(); }

}  // namespace tessera
