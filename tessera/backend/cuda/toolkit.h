// SPDX-License-Identifier: Apache-2.0
// Finds programs of the CUDA toolkit. Used only in this folder and its tests.
#pragma once

#include <string>

namespace tessera::cuda {

/// Returns the path of a program of the CUDA toolkit, or an empty string if it is not installed. Searches PATH, the
/// toolkit's folders and Python packages.
std::string toolkit_program(const std::string& name);
/// Returns the path of ptxas: the file in TESSERA_PTXAS if it is set, otherwise that of toolkit_program().
std::string ptxas_file();

}  // namespace tessera::cuda
