// SPDX-License-Identifier: Apache-2.0
// Environment variables of the device layer. They are read once. Internal to device/.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tessera/base/log.h"

namespace tessera {

struct Settings {
  std::optional<std::string> device;          ///< TESSERA_DEVICE
  std::optional<std::uint64_t> memory_limit;  ///< TESSERA_MEMORY_LIMIT
  std::optional<std::string> dump;            ///< TESSERA_DUMP: a folder
  bool sync = false;                          ///< TESSERA_SYNC: wait after each launch and copy
  bool trace = false;                         ///< TESSERA_TRACE: print a line for each launch and copy
  bool trace_fusion = false;                  ///< TESSERA_TRACE_FUSION: print a line for each computed expression
  std::optional<std::string> probe;           ///< TESSERA_PROBE: a program, "list" or "off"
  int probe_timeout = 20;                     ///< TESSERA_PROBE_TIMEOUT: seconds
  std::optional<std::string> cache_dir;       ///< TESSERA_CACHE_DIR: a folder
  bool kernel_cache = true;                   ///< TESSERA_KERNEL_CACHE: cache compiled kernels in cache_dir
  std::uint64_t kernel_cache_bytes = std::uint64_t{256} << 20;  ///< TESSERA_KERNEL_CACHE_SIZE: size limit in bytes
  bool stats = false;                                           ///< TESSERA_STATS: print the placement log at exit
  enum class Blas : std::uint8_t { automatic, off, vendor };
  Blas blas = Blas::automatic;  ///< TESSERA_BLAS: library for matrix products (device/launch/vendor_product.h)
  enum class Wait : std::uint8_t { automatic, spin, block };
  Wait wait = Wait::automatic;      ///< TESSERA_WAIT: how threads wait for GPUs (backend/stream/device.cpp)
  bool tf32 = false;                ///< TESSERA_TF32: products may round f32 operands to 10 mantissa bits
  bool peer_copies = true;          ///< TESSERA_PEER_COPIES: allow direct copies between devices
  std::optional<std::string> pack;  ///< TESSERA_PACK: a file with kernels (kernel_pack.h)
  bool compile = true;              ///< TESSERA_COMPILE: compile kernels that are neither in a pack nor in the cache
  bool check = false;               ///< TESSERA_CHECK: interp checks kernels; other devices ignore it
};

/// Returns the settings. Throws ArgumentError on every call if a variable is invalid. The reference stays valid for the
/// process's lifetime.
const Settings& settings();
/// True if each launch and copy is printed (TESSERA_TRACE=1 or TESSERA_LOG=debug).
inline bool traced() { return settings().trace || logging::enabled(logging::Level::debug); }
/// Prints or logs a line about a launch or copy.
void trace_line(const std::string& line);
/// Returns TESSERA_WATCHDOG, the number of seconds without progress before a warning is printed. Reads the variable at
/// each call. Throws ArgumentError if it is invalid.
std::optional<double> watchdog_seconds();
/// Makes the next call of settings() read the environment again.
void forget_settings();

}  // namespace tessera
