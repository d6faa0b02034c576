// SPDX-License-Identifier: Apache-2.0
// What the environment asks of the device layer, read once. Internal to device/.
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
  bool trace = false;                         ///< TESSERA_TRACE: a line for each
  bool trace_fusion = false;                  ///< TESSERA_TRACE_FUSION: a line for each deferred expression computed
  std::optional<std::string> probe;           ///< TESSERA_PROBE: a program, "list" or "off"
  int probe_timeout = 20;                     ///< TESSERA_PROBE_TIMEOUT: seconds
  std::optional<std::string> cache_dir;       ///< TESSERA_CACHE_DIR: a folder
  bool kernel_cache = true;                   ///< TESSERA_KERNEL_CACHE: compiled kernels are kept there
  std::uint64_t kernel_cache_bytes = std::uint64_t{256} << 20;  ///< TESSERA_KERNEL_CACHE_SIZE: at most so much of them
  bool stats = false;  ///< TESSERA_STATS: the placement log, when the process ends
  enum class Blas : std::uint8_t { automatic, off, vendor };
  Blas blas = Blas::automatic;  ///< TESSERA_BLAS: whose kernels multiply matrices (device/launch/vendor_product.h)
  bool tf32 = false;            ///< TESSERA_TF32: vendors' libraries may round f32 factors to 10 bits of fraction
  bool peer_copies = true;      ///< TESSERA_PEER_COPIES: devices may read each other's memory
  bool check = false;           ///< TESSERA_CHECK: interp checks kernels, no other device does
};

/// ArgumentError, every time, if a variable cannot be read. The reference stays valid for good.
const Settings& settings();
/// Is a line for each launch and copy wanted (TESSERA_TRACE=1, or TESSERA_LOG=debug)?
inline bool traced() { return settings().trace || logging::enabled(logging::Level::debug); }
/// Writes it.
void trace(const std::string& line);
/// TESSERA_WATCHDOG, read at each call: seconds without an answer or an end after which a warning is printed.
/// ArgumentError if it cannot be read.
std::optional<double> watchdog_seconds();
/// The next call reads the environment again.
void forget_settings();

}  // namespace tessera
