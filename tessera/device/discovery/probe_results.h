// SPDX-License-Identifier: Apache-2.0
// Probe results cached on disk. They save each program from starting every driver again, and from waiting again for a
// driver that hangs. A result is valid until something that it may depend on changes. Internal to device/.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "tessera/base/os/private_store.h"
#include "tessera/device/discovery/probe.h"
#include "tessera/device/driver.h"

namespace tessera {

/// Returns everything that a part's probe result may depend on: files, environment variables, device files, the boot id
/// and Tessera's version. Returns an empty string if the part's libraries are unknown; its results are then not cached.
/// The key contains values of variables, which may be secret, so only its hash is written to disk.
std::string probe_cache_key(Backend backend, const VendorDriver& part, const std::filesystem::path& program);

/// Returns a line with path, size, time and inode for each file that the loader would open for a part, and for the
/// part's other files.
std::string stamps_of(const VendorDriver& part);

/// Redacts a driver's message before it is written to disk, because it may contain environment variables. Replaces
/// values of the key's variables by their names, such as "$NVIDIA_API_KEY". Values with fewer than 6 characters are not
/// replaced.
std::string redact_values(std::string text);

/// Returns the cached result for this key, with `remembered` set. Returns std::nullopt if it is missing, damaged or
/// expired.
std::optional<BackendReport> load_probe_result(Backend backend, const std::string& key);
/// Caches a result. If the store (store.h) is not writable, this is logged once.
void store_probe_result(const BackendReport& report, const std::string& key, Validity holds);
/// Lets processes that start at the same time probe only once. The first one gets the lock and probes. The others wait
/// for the lock and then load the result. If a waiting process still finds no result, it probes without the lock, so
/// that uncacheable results do not make all processes probe one after another. Returns std::nullopt on timeout or if
/// the folder is not writable.
std::optional<os::PrivateStore::Lock> lock_probe_result(Backend backend, const std::string& key);
/// Removes the probe results of one or all backends, but not the trial results (trials.h).
void clear_probe_results(std::optional<Backend> backend = {});

/// temporary_expiry() returns when a `Validity::temporary` result stored now expires, in seconds since 1970.
/// has_expired() also returns true for times that are later than any valid expiry.
std::int64_t temporary_expiry();
bool has_expired(std::int64_t until);

}  // namespace tessera
