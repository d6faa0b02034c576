// SPDX-License-Identifier: Apache-2.0
// Messages by MPI. Internal.
//
// A message must not be longer than the memory for it. Open MPI 4 and 5 write past the end of the memory if the message
// is long or comes from the same rank; other messages of this kind throw ConnectionError.
#pragma once

#include <cstdint>
#include <memory>

#include "tessera/dist/launcher.h"
#include "tessera/dist/transport.h"

namespace tessera::dist {

/// Opens the launcher's MPI library, initialises MPI on the calling thread and duplicates MPI_COMM_WORLD. All
/// functions of the transport must be called by this thread, unless the library provides MPI_THREAD_SERIALIZED. MPI can
/// be initialised only once in a process. Throws ConnectionError if the library does not start, if MPI is already
/// initialised, or if rank and size of MPI_COMM_WORLD are not those that the launcher announced. All transfers must
/// have ended before `close(true)`, which calls MPI_Finalize and waits until all ranks do so. After an error, use
/// `close(false)`: other ranks may be waiting for messages of this rank, and would never finalise. The launcher ends
/// the job when this process exits. The destructor alone does not finalise MPI either.
std::unique_ptr<Transport> open_mpi(const Launch& launch);

/// Uses a communicator of a program that has initialised MPI. `communicator` is the MPI_Comm, converted to an integer.
/// It is duplicated, so that all its ranks must call this function. `close(true)` frees the duplicate, if MPI is not
/// finalised, and does not finalise MPI. Throws ConnectionError if MPI is not initialised, or with a thread level below
/// MPI_THREAD_SERIALIZED.
std::unique_ptr<Transport> adopt_mpi(std::uintptr_t communicator);

/// Tells the launcher that this process ends regularly. For programs that end without exit handlers, in which
/// MPICH 4.2.1 does it. Does nothing if a World has not finalised MPI, or MPI_Finalize has told it.
void leave_launcher();

}  // namespace tessera::dist
