// SPDX-License-Identifier: Apache-2.0
// Marks a thread as being in a vendor's driver. A call that does not return within some seconds is reported, and a
// driver that ends the process with `exit` has it end with an error. Internal to device/.
#pragma once

#include <string>

namespace tessera {

struct OpenDevice;

/// One on the stack around each call that may take long. They may be nested: the outermost counts. Devices of the
/// library itself are not marked.
class DriverCall {
 public:
  enum class Kind : unsigned char {
    call,   ///< should return at once
    wait,   ///< returns when queued work has ended
    build,  ///< compiles, and may take six times as long before it is reported
  };
  /// `name`: the newest work, or what is called; it must stay valid for good.
  DriverCall(const OpenDevice& device, Kind kind, const std::string& name) noexcept;
  ~DriverCall();
  DriverCall(const DriverCall&) = delete;
  DriverCall& operator=(const DriverCall&) = delete;

 private:
  const bool marked_;
};

/// While one lives, the thread runs the program's own code, though a driver's call is below it on the stack.
class UserCodeScope {
 public:
  UserCodeScope() noexcept;
  ~UserCodeScope();
  UserCodeScope(const UserCodeScope&) = delete;
  UserCodeScope& operator=(const UserCodeScope&) = delete;

 private:
  const unsigned depth_;
  void* slot_ = nullptr;  ///< what is marked, and with what
  const OpenDevice* device_ = nullptr;
  const std::string* name_ = nullptr;
  DriverCall::Kind kind_ = DriverCall::Kind::call;
};

/// For handlers at exit: if this thread is in a driver, the driver called `exit`. Then this prints an error and ends
/// the process with code 1.
void refuse_exit_of_drivers() noexcept;

}  // namespace tessera
