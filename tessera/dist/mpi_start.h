// SPDX-License-Identifier: Apache-2.0
// Reports if MPI_Init_thread or MPI_Finalize exits the process or does not return. Internal.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace tessera::dist {

/// Returns TESSERA_RANKS_TIMEOUT (60 s): how long a rank may take to answer.
std::chrono::seconds ranks_timeout();

/// While an object exists, a line on standard error reports if the process exits, and if the object still exists after
/// 4 s. After TESSERA_RANKS_TIMEOUT seconds (default 60) the process is ended with exit code 1: a wrong pairing of
/// launcher and library can block MPI_Init_thread forever, as can the loss of a rank in MPI_Finalize, and a thread
/// cannot be interrupted.
class MpiStartGuard {
 public:
  /// `what` is the beginning of the messages: "MPI_Init_thread of libmpi.so.40, which srun started,". `remedy` is their
  /// end: "Set TESSERA_MPI_LIBRARY to another library".
  MpiStartGuard(std::string what, std::string remedy);
  ~MpiStartGuard();
  MpiStartGuard(const MpiStartGuard&) = delete;
  MpiStartGuard& operator=(const MpiStartGuard&) = delete;

 private:
  void watch();

  const std::chrono::seconds limit_;
  const std::string what_, remedy_, at_exit_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool has_ended_ = false;
  std::thread watcher_;
};

}  // namespace tessera::dist
