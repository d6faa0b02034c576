// SPDX-License-Identifier: Apache-2.0
// Compiled kernels cached on disk for later processes, one implementation for all backends. Entries are executed, so
// one is used only if it is intact, owned by this user, and built for exactly this kernel, device, compiler and driver.
// Internal to device/ and the program.
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

/// Statistics of the kernels requested on one device. Callers of `load_or_compile` lock the device's compile_lock.
struct KernelCounters {
  std::atomic<std::uint64_t> compiled = 0, loaded = 0;  ///< `loaded`: from the cache
  std::atomic<std::uint64_t> damaged = 0, refused = 0;  ///< of `compiled`: entry damaged, or rejected
  std::atomic<bool> kept = false;                       ///< kernels of this device are cached
  std::string files;                                    ///< hash of the driver's files, once computed
};

struct MadeKernel {
  std::unique_ptr<LoadedKernel> kernel;
  bool kept = false;  ///< loaded from the cache
};
/// Loads each kernel from the cache, or compiles it and, if possible, caches it. Throws compilation errors. Errors
/// while reading or writing the cache are only logged.
std::vector<MadeKernel> load_or_compile(DriverDevice& device, std::span<const CompileRequest> requests,
                                        KernelCounters& counters);

/// A cache entry, read from its file.
struct CachedKernel {
  std::string file, kernel, device, variant;  ///< `device`: backend and architecture
  std::string key;                            ///< everything it depends on, one line "name: value" each
  std::uint64_t bytes = 0;
  std::int64_t used = 0;  ///< nanoseconds since 1970 of its creation or (within a day) its last use
};
struct KernelCache {
  std::filesystem::path folder;  ///< empty: no folder is set
  std::string off;               ///< why the cache is off, such as "disabled by TESSERA_KERNEL_CACHE"; empty: it is on
  std::string unwritable;        ///< why the folder cannot be written; empty: it can
  std::uint64_t limit = 0, bytes = 0;
  std::vector<CachedKernel> kernels;  ///< most recently used first
  std::vector<std::string> damaged;   ///< files with an entry's name but invalid contents
};
/// Reads all entries. Creates the folder if it does not exist.
KernelCache kernel_cache();
/// Deletes all entries and nothing else; returns their number.
std::size_t clear_kernel_cache();
/// Lists the parts of the entry's key that differ on this device now, so that it would not be loaded: "compiler was
/// LLVM 16.0.6, and is LLVM 17.0.1". Empty if it would be loaded. Opens the device.
std::vector<std::string> differences(const CachedKernel& kept, Device device);

}  // namespace tessera
