// SPDX-License-Identifier: Apache-2.0
// Kernels as compilers made them, kept on disk for later processes: once here, above all backends. What an entry holds
// is executed, so it is believed only if it is whole, this user's own, and made for just this kernel, device, compiler
// and driver. Internal to device/ and the program.
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

/// What became of the kernels that one device was asked for. Who calls `load_or_compile` has the device's compile_lock.
struct KernelCounters {
  std::atomic<std::uint64_t> compiled = 0, loaded = 0;  ///< `loaded` from disk
  std::atomic<std::uint64_t> damaged = 0, refused = 0;  ///< of `compiled`: an entry was not whole, or did not load
  std::atomic<bool> kept = false;                       ///< kernels of this device are kept
  std::string files;                                    ///< what stands for the driver's files, once it was asked for
};

struct MadeKernel {
  std::unique_ptr<LoadedKernel> kernel;
  bool kept = false;  ///< it was on disk
};
/// The kernels, each from disk if it is there, else compiled and, where that can be, kept. Throws what compiling does;
/// that an entry cannot be read or written is told in the log, at most.
std::vector<MadeKernel> load_or_compile(DriverDevice& device, std::span<const CompileRequest> requests,
                                        KernelCounters& counters);

/// An entry, as its file says.
struct CachedKernel {
  std::string file, kernel, device, variant;  ///< `device`: backend and architecture
  std::string key;                            ///< all that it depends on, a line "what: which" each
  std::uint64_t bytes = 0;
  std::int64_t used = 0;  ///< nanoseconds since 1970 at which it was made or, within a day, last loaded
};
struct KernelCache {
  std::filesystem::path folder;  ///< empty: there is no place
  std::string off;               ///< why nothing is kept, such as "TESSERA_KERNEL_CACHE=0"; empty: it is
  std::string unwritable;        ///< why nothing can be kept in the folder; empty: it can
  std::uint64_t limit = 0, bytes = 0;
  std::vector<CachedKernel> kernels;  ///< used last first
  std::vector<std::string> damaged;   ///< files with an entry's name that hold none
};
/// Reads all entries, and makes their folder if there is none.
KernelCache kernel_cache();
/// Deletes all entries, and nothing else; gives their number.
std::size_t clear_kernel_cache();
/// What of the entry's key is another on this device now, so that it would not be loaded, as "compiler was LLVM
/// 16.0.6, and is LLVM 17.0.1" each. Opens the device. Empty: it would be.
std::vector<std::string> differences(const CachedKernel& kept, Device device);

}  // namespace tessera
