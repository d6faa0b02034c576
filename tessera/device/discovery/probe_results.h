// SPDX-License-Identifier: Apache-2.0
// Probe results cached on disk, so that not every program starts every driver again and a hang costs its timeout only
// once. A result is valid until something that it may depend on changes. Internal to device/.
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

/// Everything that a part's probe result may depend on: files, variables, device files, boot id, our version. Empty if
/// the part's libraries are unknown: its results are not cached. The key contains values of variables, which may be
/// secrets: only its hash is written to disk.
std::string probe_cache_key(Backend backend, const VendorDriver& part, const std::filesystem::path& program);

/// One line with path, size, time and inode for each file that the loader would open for a part, and its other files.
std::string stamps_of(const VendorDriver& part);

/// Redacts a driver's message before it is written to disk, since it may contain the environment: replaces values of
/// the key's variables by their names, "$NVIDIA_API_KEY". Values of less than 6 characters stay.
std::string redact_values(std::string text);

/// Returns the cached result for this key, marked `remembered`; nothing if it is missing, damaged or expired.
std::optional<BackendReport> load_probe_result(Backend backend, const std::string& key);
/// Caches a result. If the store (store.h) cannot be written, this is logged once.
void store_probe_result(const BackendReport& report, const std::string& key, Validity holds);
/// Makes processes that start together probe only once: one of them gets the lock, the others wait for it and then load
/// the result. A process that waited and still finds no result probes without the lock; otherwise all of them would
/// probe one after the other if the result cannot be cached. Nothing on timeout or if the folder cannot be written.
std::optional<os::PrivateStore::Lock> lock_probe_result(Backend backend, const std::string& key);
/// Removes the results of one or all backends, but not those of trials (trials.h).
void clear_probe_results(std::optional<Backend> backend = {});

/// Expiry of a `Validity::temporary` result that is stored now, in seconds since 1970; and whether one has expired, or
/// is later than any valid one.
std::int64_t temporary_expiry();
bool has_expired(std::int64_t until);

}  // namespace tessera
