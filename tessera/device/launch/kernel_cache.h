// SPDX-License-Identifier: Apache-2.0
// Compiled kernels cached on disk for later processes. All backends share this implementation. Because entries contain
// executable code, an entry is used only if it is intact, owned by this user, and built for exactly this kernel,
// device, compiler and driver. Internal to device/ and the program.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/device/driver.h"

namespace tessera {

/// Statistics of the kernels compiled or loaded on one device. Callers of `load_or_compile` lock the device's
/// compile_lock.
struct KernelCounters {
  std::atomic<std::uint64_t> compiled = 0, loaded = 0;  ///< `loaded`: from the cache
  /// Number of kernels compiled because their entries were damaged, and because they were rejected.
  std::atomic<std::uint64_t> damaged = 0, refused = 0;
  /// Number of kernels loaded from the pack in use, and of those that were not in it.
  std::atomic<std::uint64_t> packed = 0, unpacked = 0;
  std::atomic<bool> kept = false;  ///< true if kernels of this device are cached
  std::string files;               ///< hash of the driver's files; empty until it is computed
};

struct MadeKernel {
  std::unique_ptr<LoadedKernel> kernel;
  bool kept = false;  ///< loaded from the cache or a pack
};
/// Loads those kernels that are in the pack in use; the others are null. Throws FormatError if the pack is damaged.
std::vector<std::unique_ptr<LoadedKernel>> load_from_pack(DriverDevice& device,
                                                          std::span<const CompileRequest> requests,
                                                          KernelCounters& counters);
/// Loads each kernel from the pack in use or from the cache, or compiles it and caches it if possible. Throws
/// compilation errors. Throws KernelError if a kernel is missing and TESSERA_COMPILE forbids compiling, or the device
/// has a pack but no compiler. Errors while the cache is read or written are only logged.
std::vector<MadeKernel> load_or_compile(DriverDevice& device, std::span<const CompileRequest> requests,
                                        KernelCounters& counters);

/// A cache entry that was read from its file.
struct CachedKernel {
  std::string file, kernel, device, variant;  ///< `device`: backend and architecture
  std::string key;                            ///< everything that the entry depends on, as lines "name: value"
  std::uint64_t bytes = 0;
  std::int64_t used = 0;  ///< time of its creation or last use (accurate to a day), in nanoseconds since 1970
};
struct KernelCache {
  std::filesystem::path folder;  ///< empty: no folder is set
  std::string off;  ///< why the cache is disabled, such as "disabled by TESSERA_KERNEL_CACHE"; empty: it is enabled
  std::string unwritable;  ///< why the folder is not writable; empty: it is writable
  std::uint64_t limit = 0, bytes = 0;
  std::vector<CachedKernel> kernels;  ///< most recently used first
  std::vector<std::string> damaged;   ///< files that are named like entries but have invalid contents
};
/// Reads all entries. Creates the folder if it does not exist.
KernelCache kernel_cache();
/// Deletes all entries and returns their number. Other files are not deleted.
std::size_t clear_kernel_cache();
/// Returns the differences between the entry's key and the device's current state that prevent loading the entry:
/// "compiler was LLVM 16.0.6, and is LLVM 17.0.1". Returns an empty list if it can be loaded. Opens the device.
std::vector<std::string> differences(const CachedKernel& kept, Device device);

}  // namespace tessera
