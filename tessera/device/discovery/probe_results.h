// SPDX-License-Identifier: Apache-2.0
// What probes found, kept on disk for the next process: a driver is not started again by every program, and one that
// hangs costs its seconds once. An answer holds as long as nothing has changed that it may depend on. Internal to
// device/.
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

/// All that the answer of a part may depend on: files, variables, device files, the machine's start, our version. Empty
/// if the part does not say what it loads: its answers are not kept. It holds values of variables, which may be
/// secrets: what goes to disk is its hash.
std::string probe_cache_key(Backend backend, const VendorDriver& part, const std::filesystem::path& program);

/// The files that the loader would open for a part, and those beside it, as path, size, time and inode: a line each.
std::string stamps_of(const VendorDriver& part);

/// A driver's words for the disk: it may have printed its environment. Values of the key's variables are their names in
/// them, "$NVIDIA_API_KEY"; those of less than 6 characters stay.
std::string redact_values(std::string text);

/// The answer for this key, marked as remembered; nothing if there is none. A damaged file is as good as none.
/// What holds for a while only is nothing after it.
std::optional<BackendReport> load_probe_result(Backend backend, const std::string& key);
/// Where the store (store.h) cannot be written nothing is kept: the log says so once.
void store_probe_result(const BackendReport& report, const std::string& key, Validity holds);
/// Processes that start together ask once: of them one has this, and the others wait for it, and then look again. Who
/// waited and still finds nothing asks without it, or all would ask one after the other what is not kept. Nothing if
/// that takes too long or the folder cannot be written.
std::optional<os::PrivateStore::Lock> lock_probe_result(Backend backend, const std::string& key);
/// Of all backends, or of one. Leaves what opening devices gave (trials.h).
void clear_probe_results(std::optional<Backend> backend = {});

/// Seconds since 1970 at which `Validity::temporary` ends, and whether it has (or lies further ahead than it can).
std::int64_t temporary_expiry();
bool has_expired(std::int64_t until);

}  // namespace tessera
