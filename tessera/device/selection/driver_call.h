// SPDX-License-Identifier: Apache-2.0
// Marks that a thread is calling a vendor's driver. This is used to report calls that do not return in time, and to
// report an error if a driver calls `exit`. Internal to device/.
#pragma once

#include <string>

namespace tessera {

struct OpenDevice;

/// Placed on the stack around each driver call that may take long. Only the outermost of nested calls is marked. Calls
/// to built-in devices are not marked.
class DriverCall {
 public:
  enum class Kind : unsigned char {
    call,   ///< returns immediately
    wait,   ///< blocks until queued work has ended
    build,  ///< compiles; reported only after six times the limit
  };
  /// `name` is the newest work or the called operation. It must stay valid for the process's lifetime.
  DriverCall(const OpenDevice& device, Kind kind, const std::string& name) noexcept;
  ~DriverCall();
  DriverCall(const DriverCall&) = delete;
  DriverCall& operator=(const DriverCall&) = delete;

 private:
  const bool marked_;
};

/// Marks that the thread is running user code although a driver call is further up its stack.
class UserCodeScope {
 public:
  UserCodeScope() noexcept;
  ~UserCodeScope();
  UserCodeScope(const UserCodeScope&) = delete;
  UserCodeScope& operator=(const UserCodeScope&) = delete;

 private:
  const unsigned depth_;
  void* slot_ = nullptr;  ///< the suspended call
  const OpenDevice* device_ = nullptr;
  const std::string* name_ = nullptr;
  DriverCall::Kind kind_ = DriverCall::Kind::call;
};

/// Called by exit handlers. If this thread is in a driver call, the driver called `exit`. Prints an error and ends the
/// process with exit code 1.
void refuse_exit_of_drivers() noexcept;

}  // namespace tessera
