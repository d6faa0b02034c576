// SPDX-License-Identifier: Apache-2.0
// The processor of this machine: its name and the number of cores that the process may use. Operating system layer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace tessera::os {

/// Returns the name, such as "AMD EPYC 9B45", or "unknown processor". `proc` is for tests.
std::string processor_name(const std::filesystem::path& proc = "/proc");
/// Returns "AMD", "Intel", or the vendor id that the processor reports.
std::string processor_vendor(const std::filesystem::path& proc = "/proc");

/// Returns lines that describe the model and the instructions of the processor: of x86-64, results of CPUID; of
/// aarch64, lines of /proc/cpuinfo. They are equal on the cores of a machine, and change if instructions are added,
/// hidden or disabled.
std::string processor_features();

/// Returns whether this processor and the system support all instructions of a level: "x86-64", "x86-64-v2" to
/// "x86-64-v4", or "aarch64". Returns false for other names. Source: System V ABI for x86-64, "Micro-Architecture
/// Levels".
bool supports_processor_level(std::string_view level);

/// Returns the number of cores that this process can use at the same time, at least 1. This is the number of cores in
/// its affinity mask, limited by the control group's quota (rounded up), divided by the processes that share them. The
/// paths are for tests.
unsigned usable_cores(const std::filesystem::path& proc = "/proc",
                      const std::filesystem::path& groups = "/sys/fs/cgroup");

/// The processes of one job on this machine, which divide its processors among each other.
struct MachineShare {
  unsigned rank = 0;   ///< number of this process on this machine
  unsigned cores = 1;  ///< number of processes that share this process's cores
};
/// Sets the share of this process. usable_cores() then returns this process's part. Call it before other threads run.
void set_machine_share(MachineShare share);
MachineShare machine_share() noexcept;
/// Returns the affinity mask of this process as text, to find processes that use the same cores. Empty if unknown.
std::string affinity_text();

/// Returns the core on which the calling thread is running; -1 if unknown.
int current_core() noexcept;

/// Prevents the calling thread from running on `core` during the object's lifetime, if another core is allowed. If the
/// affinity mask is changed during that time, the change is kept. Has no effect if the system rejects the change or has
/// more than 1,024 cores.
class AvoidCore {
 public:
  explicit AvoidCore(int core) noexcept;
  ~AvoidCore();
  AvoidCore(const AvoidCore&) = delete;
  AvoidCore& operator=(const AvoidCore&) = delete;

 private:
  struct Mask {
    std::uint64_t words[16];
    bool operator==(const Mask&) const = default;
  };
  Mask before_, without_;
  bool on_ = false;
};

/// Requests 2 MiB pages for [data, data + bytes). This is only a hint, which has no effect if the system does not
/// support it.
void prefer_large_pages(void* data, std::size_t bytes) noexcept;

}  // namespace tessera::os
