// SPDX-License-Identifier: Apache-2.0
#include "tessera/backend/cuda/toolkit.h"

#include <filesystem>
#include <vector>

#include "tessera/base/config.h"
#include "tessera/base/os/command.h"
#include "tessera/base/os/library_search.h"

namespace tessera::cuda {

namespace fs = std::filesystem;

std::string toolkit_program(const std::string& name) {
  std::vector<fs::path> folders;
  for (const fs::path& root : os::folders_named("/usr/local", "cuda")) folders.push_back(root / "bin");
  for (const fs::path& packages : os::python_packages())
    for (const fs::path& package : os::folders_named(packages / "nvidia", "cu")) folders.push_back(package / "bin");
  return os::find_program(name, folders);
}

std::string ptxas_file() {
  const auto named = config::text("TESSERA_PTXAS");
  return named ? *named : toolkit_program("ptxas");
}

}  // namespace tessera::cuda
