// SPDX-License-Identifier: Apache-2.0
// Chooses, opens and identifies the MPI library that belongs to a launcher. Internal.
#pragma once

#include <string>

#include "tessera/base/os/library.h"
#include "tessera/dist/launcher.h"
#include "tessera/dist/mpi_api.h"

namespace tessera::dist {

/// An MPI library in this process.
struct MpiLibrary {
  os::Library library;
  std::string file;  ///< name or path, for messages: "libmpi.so.40"
  MpiAbi abi{};
  bool is_open_mpi = false;  ///< Open MPI or a derivative, with either ABI
  /// MPI_Finalize can hang over TCP: a rank that has closed its connections blocks, while others wait for its answers.
  /// (MPICH's ch4:ucx before 4.2; https://github.com/pmodels/mpich/pull/6596)
  bool can_hang_in_finalize = false;
  std::string implementation = {};  ///< "Open MPI 4.1.4"

  /// Returns "libmpi.so.40 (Open MPI 4.1.4)".
  std::string name() const { return file + " (" + implementation + ")"; }
  const MpiConstants& constants() const;
  MpiHandles handles() const;
};

/// Opens the library that belongs to the launcher: the one that TESSERA_MPI_LIBRARY names, else one that this process
/// has already loaded, else one next to the launcher's program, else one that the dynamic loader finds. Does not
/// initialise it. Throws ConnectionError if there is none, if it is no MPI library, or if it cannot belong to the
/// launcher: Open MPI's library under MPICH's launcher, or the reverse.
MpiLibrary open_mpi_library(const Launch& launch);

/// Returns the library that this process has initialised. Throws ConnectionError if there is none.
MpiLibrary initialised_mpi_library();

}  // namespace tessera::dist
