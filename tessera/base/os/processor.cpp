// SPDX-License-Identifier: Apache-2.0
#include "tessera/base/os/processor.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <sched.h>
#include <sys/mman.h>

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

namespace tessera::os {
namespace {

namespace fs = std::filesystem;

constinit MachineShare share;

// Returns the value of "key :" in /proc/cpuinfo; empty if it is missing.
std::string cpuinfo(const fs::path& proc, const std::string& key) {
  std::ifstream in(proc / "cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(key)) continue;
    const auto colon = line.find(':');
    if (colon == line.npos || line.find_first_not_of(" \t", key.size()) != colon) continue;
    const auto begin = line.find_first_not_of(" \t", colon + 1);
    return begin == line.npos ? "" : line.substr(begin);
  }
  return "";
}

unsigned affinity_cores() {
  // A machine may have more processors than cpu_set_t has bits. Grow the mask until it is large enough for the kernel.
  for (int bits = 1024; bits <= 1 << 20; bits *= 2) {
    cpu_set_t* set = CPU_ALLOC(static_cast<std::size_t>(bits));
    if (!set) break;
    const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(bits));
    const bool ok = sched_getaffinity(0, bytes, set) == 0;
    const int count = ok ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (ok && count > 0) return static_cast<unsigned>(count);
  }
  return std::max(1u, std::thread::hardware_concurrency());
}

// Returns the number of cores that a control group allows; infinity if unlimited. In version 2, cpu.max contains "quota
// period" or "max period". In version 1, each number is in a separate file.
double group_cores(const fs::path& folder) {
  std::ifstream both(folder / "cpu.max");
  std::string quota;
  double period = 0;
  if (both >> quota >> period) {
    double q = 0;
    return quota != "max" && std::istringstream(quota) >> q && q > 0 && period > 0 ? q / period : INFINITY;
  }
  std::ifstream q1(folder / "cpu.cfs_quota_us"), p1(folder / "cpu.cfs_period_us");
  double q = 0;
  return q1 >> q && p1 >> period && q > 0 && period > 0 ? q / period : INFINITY;
}

double quota_cores(const fs::path& proc, const fs::path& groups) {
  double cores = INFINITY;
  std::ifstream in(proc / "self" / "cgroup");
  for (std::string line; std::getline(in, line);) {  // format: "number:controllers:path"
    const auto first = line.find(':'), second = line.find(':', first == line.npos ? first : first + 1);
    if (second == line.npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool version2 = controllers.empty();
    if (!version2 && controllers.find("cpu") == controllers.npos) continue;
    const fs::path root = version2 ? groups : groups / controllers;
    fs::path relative = fs::path(line.substr(second + 1)).relative_path();
    for (;;) {  // limits of parent groups also apply
      cores = std::min(cores, group_cores(root / relative));
      if (relative.empty() || relative == relative.parent_path()) break;
      relative = relative.parent_path();
    }
  }
  return cores;
}

}  // namespace

std::string processor_name(const fs::path& proc) {
  const std::string name = cpuinfo(proc, "model name");
  return name.empty() ? "unknown processor" : name;
}
std::string processor_vendor(const fs::path& proc) {
  const std::string id = cpuinfo(proc, "vendor_id");
  return id == "AuthenticAMD" ? "AMD" : id == "GenuineIntel" ? "Intel" : id.empty() ? "unknown" : id;
}

unsigned usable_cores(const fs::path& proc, const fs::path& groups) {
  const double quota = quota_cores(proc, groups);
  const unsigned cores = affinity_cores();
  const unsigned limited =
      std::isfinite(quota) ? std::clamp(static_cast<unsigned>(std::ceil(quota)), 1u, cores) : cores;
  return std::max(1u, limited / share.cores);
}

void set_machine_share(MachineShare now) { share = {now.rank, std::max(1u, now.cores)}; }
MachineShare machine_share() noexcept { return share; }

std::string affinity_text() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return {};
  std::string text;
  for (int i = 0; i < CPU_SETSIZE; ++i)
    if (CPU_ISSET(i, &set)) text += (text.empty() ? "" : ",") + std::to_string(i);
  return text;
}

int current_core() noexcept { return sched_getcpu(); }

AvoidCore::AvoidCore(int core) noexcept {
  static_assert(sizeof(cpu_set_t) == sizeof(Mask));
  cpu_set_t set;
  if (core < 0 || core >= CPU_SETSIZE || sched_getaffinity(0, sizeof set, &set) != 0) return;
  if (!CPU_ISSET(core, &set) || CPU_COUNT(&set) == 1) return;
  before_ = std::bit_cast<Mask>(set);
  CPU_CLR(core, &set);
  without_ = std::bit_cast<Mask>(set);
  on_ = sched_setaffinity(0, sizeof set, &set) == 0;
}

AvoidCore::~AvoidCore() {
  cpu_set_t now;
  if (!on_ || sched_getaffinity(0, sizeof now, &now) != 0 || std::bit_cast<Mask>(now) != without_) return;
  now = std::bit_cast<cpu_set_t>(before_);
  (void)sched_setaffinity(0, sizeof now, &now);
}

void prefer_large_pages(void* data, std::size_t bytes) noexcept { (void)::madvise(data, bytes, MADV_HUGEPAGE); }

std::string processor_features() {
#if defined(__x86_64__)
  // An emulator or a debugger may hide instructions that /proc/cpuinfo lists. Other leaves of CPUID describe caches,
  // clocks, and the core that the thread runs on.
  constexpr unsigned leaves[][2] = {{0, 0},    {1, 0},    {7, 0},    {7, 1},           {0xd, 1},
                                    {0x14, 0}, {0x19, 0}, {0x24, 0}, {0x80000001u, 0}, {0x80000008u, 0}};
  std::string all;
  for (const auto& [leaf, part] : leaves) {
    unsigned a = 0, b = 0, c = 0, d = 0;
    __get_cpuid_count(leaf, part, &a, &b, &c, &d);
    if (leaf == 1) b = 0;                    // the number of the core
    if (leaf == 0xd) b = 0;                  // the size of the state that is in use
    if (leaf == 0x80000008u) a = c = d = 0;  // sizes of addresses, numbers of cores
    all += fmt::format("cpuid {:x} {}: {:x} {:x} {:x} {:x}\n", leaf, part, a, b, c, d);
  }
  // These also depend on whether the system saves the registers of threads.
  return all +
         fmt::format("vectors: {} {}\n", __builtin_cpu_supports("avx2") != 0, __builtin_cpu_supports("avx512f") != 0);
#else
  std::string all;
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line) && !line.empty();)
    if (line.starts_with("CPU ") || line.starts_with("Features")) all += line + "\n";
  return all;
#endif
}

bool supports_processor_level(std::string_view level) {
#if defined(__x86_64__)
  // A hypervisor can hide features, and compilers differ in the names that __builtin_cpu_supports knows.
  unsigned a = 0, b = 0, basic = 0, extended = 0, d = 0;
  __get_cpuid(1, &a, &b, &basic, &d);
  __get_cpuid(0x80000001u, &a, &b, &extended, &d);
  const bool others = (basic & bit_MOVBE) != 0 && (basic & bit_F16C) != 0 && (extended & bit_LZCNT) != 0;
  const bool v2 =
      __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("ssse3") && __builtin_cpu_supports("popcnt");
  const bool v3 = v2 && others && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
                  __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("fma");
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
  return level == "x86-64" || (level == "x86-64-v2" && v2) || (level == "x86-64-v3" && v3) ||
         (level == "x86-64-v4" && v4);
#else
  return level == "aarch64";
#endif
}

}  // namespace tessera::os
