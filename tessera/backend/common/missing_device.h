// SPDX-License-Identifier: Apache-2.0
// Diagnoses why a vendor's card is not visible: no card, no kernel driver, no device files, no access to them, a
// container, or mismatched versions. Inspects the system only (tessera/base/os/hardware.h) and never calls a driver.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "tessera/base/os/hardware.h"

namespace tessera::backend {

/// Returns the causes that can be seen on this system and their remedies, as sentences; empty if there are none.
/// `library`: the file of the user-space driver, whose version is compared with the kernel driver's where both are
/// known (NVIDIA).
std::string diagnose_missing_device(os::Vendor vendor, const std::string& library = {});

/// Same, with the environment variables that hide devices: one that certainly hides all devices is reported first, one
/// that may hide some is reported last.
std::string explain_missing_device(os::Vendor vendor, std::initializer_list<const char*> variables,
                                   const std::string& library = {});

/// Returns "cuBLASLt (libcublasLt.so.13)" for the first candidate that the loader would find (it is not opened), or "no
/// cuBLASLt: large products run on Tessera's own kernels".
std::string first_installed(const std::string& name, const std::vector<std::string>& candidates);

}  // namespace tessera::backend
