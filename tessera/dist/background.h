// SPDX-License-Identifier: Apache-2.0
// Messages that are sent and received while collectives run, and between them. Internal.
#pragma once

#include <string>
#include <vector>

namespace tessera::dist {

class Transport;

/// Called by the communicator, by one thread at a time.
class Background {
 public:
  virtual ~Background() = default;
  /// Starts, continues and ends messages. Returns whether messages are under way. May throw ConnectionError.
  virtual bool progress(Transport& transport) = 0;
  /// The ranks for whose messages this rank waits.
  virtual std::vector<int> missing() const = 0;
  /// Called when the ranks cannot communicate any longer: all messages end with this error.
  virtual void fail(const std::string& why) = 0;
  /// Notifies those that wait for messages that have ended. Called without the transport's lock.
  virtual void deliver() = 0;
  /// Called at the end, with the transport's lock held. Cancels receives.
  virtual void close(Transport& transport) = 0;
};

}  // namespace tessera::dist
