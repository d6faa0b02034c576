// SPDX-License-Identifier: Apache-2.0
// Why a vendor's card that may be in the machine does not show: no card, no kernel driver, no device files, no access
// to them, a container, versions that disagree. Looks at the system only (tessera/base/os/hardware.h), never at a
// driver.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "tessera/base/os/hardware.h"

namespace tessera::backend {

/// What the system shows to be wrong, with what to do about it, as sentences; empty if nothing is. `library` is the
/// file of the user's part of the driver, whose version is compared with the kernel's part where both tell theirs
/// (NVIDIA).
std::string diagnose_missing_device(os::Vendor vendor, const std::string& library = {});

/// The same, and what the variables have to do with it that hide devices: one that certainly hides all comes first, one
/// that may do so last.
std::string explain_missing_device(os::Vendor vendor, std::initializer_list<const char*> variables,
                                   const std::string& library = {});

/// "cuBLASLt (libcublasLt.so.13)" for the first of these that the loader would find, which is not opened; else "no
/// cuBLASLt: large products run on Tessera's own kernels".
std::string first_installed(const std::string& name, const std::vector<std::string>& candidates);

}  // namespace tessera::backend
