// SPDX-License-Identifier: Apache-2.0
// Diagnoses why no device of a vendor was found. Detects missing cards, missing kernel drivers, missing or inaccessible
// device files, containers without the device, and mismatched versions. Only inspects the system
// (tessera/base/os/hardware.h) and never calls a driver.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "tessera/base/os/hardware.h"

namespace tessera::backend {

/// Returns the causes found on this system and their remedies, as sentences, or an empty string if no cause was found.
/// `library` is the file of the user-space driver. For NVIDIA, its version is compared with the version of the kernel
/// driver if both are known.
std::string diagnose_missing_device(os::Vendor vendor, const std::string& library = {});

/// Like diagnose_missing_device(), but also checks the environment variables that hide devices. A variable that
/// certainly hides all devices is reported first. A variable that may hide some devices is reported last.
std::string explain_missing_device(os::Vendor vendor, std::initializer_list<const char*> variables,
                                   const std::string& library = {});

/// Returns "cuBLASLt (libcublasLt.so.13)" for the first candidate that the dynamic loader would find. Does not open the
/// library. Returns "no cuBLASLt: large products run on Tessera's own kernels" if no candidate is installed.
std::string first_installed(const std::string& name, const std::vector<std::string>& candidates);

}  // namespace tessera::backend
