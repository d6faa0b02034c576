// SPDX-License-Identifier: Apache-2.0
// Finds out from the environment whether a launcher started this process as one rank of a job. Internal.
#pragma once

#include <optional>
#include <string>

namespace tessera::dist {

enum class LauncherKind : unsigned char {
  open_mpi,  ///< mpirun of Open MPI
  hydra,     ///< mpiexec of MPICH, Intel MPI and MVAPICH
  slurm,     ///< srun
  flux,      ///< flux run
  pals,      ///< mpiexec of HPE PALS
  alps,      ///< aprun of Cray ALPS
  pmi,       ///< another launcher that sets PMI_RANK and PMI_SIZE
  pmix       ///< another launcher that sets PMIX_RANK
};

/// What a launcher has announced to this process.
struct Launch {
  LauncherKind kind;
  std::string name;     ///< for messages: "srun"
  int rank = 0;         ///< of this process
  int size = 0;         ///< number of processes; 0: not announced
  int local_rank = -1;  ///< among the processes on this host; -1: not announced
  int local_size = 0;   ///< number of processes on this host; 0: not announced
};

/// Returns how this process was started; std::nullopt if it is not a rank of a job. A resource manager's step of one
/// process (srun, flux run) is not a job. Throws ArgumentError if a variable is malformed, and ConnectionError if
/// variables are missing, or if a launcher started this process but the environment contains none of its variables.
std::optional<Launch> find_launch();

}  // namespace tessera::dist
