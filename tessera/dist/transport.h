// SPDX-License-Identifier: Apache-2.0
// Messages between ranks: what collectives need from MPI, or from threads of one process. Internal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace tessera::dist {

/// A message that is being sent or received. The caller keeps it and the memory of the message in place until test()
/// returns true or cancel() returns.
struct Transfer {
  std::uintptr_t handle = 0;  ///< For the transport.
  bool active = false;        ///< Started and not yet completed.
  int peer = -1;              ///< Rank of the other side; of the sender after a receive from any rank.
  std::size_t bytes = 0;      ///< Size of the message; of a received message once it has arrived.
};

/// Sends and receives messages between the ranks of a job. Functions are called by the thread that opened the
/// transport, or, if any_thread() is true, by one thread at a time. None of them blocks. Messages from one rank to
/// another with the same tag arrive in the order in which they were sent. All functions throw ConnectionError if the
/// library reports an error.
class Transport {
 public:
  static constexpr int any_rank = -1;
  static constexpr std::size_t max_bytes = std::size_t{1} << 30;  ///< size of the largest message

  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Describes the implementation: "Open MPI 4.1.4 (libmpi.so.40)".
  virtual std::string name() const = 0;

  /// Whether other threads than the one that opened the transport may call its functions, one at a time.
  virtual bool any_thread() const = 0;

  /// Starts to send a message with `tag` (0 to 16,383).
  virtual void send(Transfer& transfer, int to, int tag, std::span<const std::byte> message) = 0;
  /// Starts to receive a message of at most `room.size()` bytes. `from` may be any_rank.
  virtual void receive(Transfer& transfer, int from, int tag, std::span<std::byte> room) = 0;
  /// Makes progress. Returns whether the transfer has completed; sets `peer` and `bytes` of a receive.
  virtual bool test(Transfer& transfer) = 0;
  /// Cancels a receive that has not completed.
  virtual void cancel(Transfer& transfer) = 0;

  /// Ends all ranks of the job as soon as possible. `why` was already written to standard error. With MPI, this does
  /// not return.
  virtual void abort(int code) = 0;
  /// Called once, before the destructor, by the thread that opened the transport. With `regular`, all ranks end here,
  /// and MPI is finalised, which may wait for the others. Otherwise this rank leaves after an error: MPI is not
  /// finalised, so that the launcher ends the job.
  virtual void close(bool regular) = 0;
};

}  // namespace tessera::dist
