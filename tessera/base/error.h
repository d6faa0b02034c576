// SPDX-License-Identifier: Apache-2.0
// The exception types that Tessera throws, and the function that formats their messages. A message has up to four
// parts: the operation, its values, the cause and the remedy.
#pragma once

#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace tessera {

/// Base class of all exceptions that Tessera throws. `what()` returns the full message.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A device is missing or unusable, or access to it was denied.
class DeviceError : public Error {
  using Error::Error;
};
/// A device failed and cannot recover. It accepts no more work, and its memory contents are lost.
class DeviceLost : public DeviceError {
  using DeviceError::DeviceError;
};
/// The shapes do not match the operation.
class ShapeError : public Error {
  using Error::Error;
};
/// An operation, file or device does not support the dtype.
class DtypeError : public Error {
  using Error::Error;
};
/// Memory or a memory budget is exhausted. The process can continue to run.
class OutOfMemory : public Error {
  using Error::Error;
};
/// A kernel is invalid, failed to compile, or failed while running.
class KernelError : public Error {
  using Error::Error;
};
/// The content of a file violates its format. The message contains the offset and the field.
class FormatError : public Error {
  using Error::Error;
};
/// An argument is invalid and none of the other exception types applies.
class ArgumentError : public Error {
  using Error::Error;
};

/// The parts of an error message. Empty parts are omitted.
struct ErrorText {
  std::string_view operation;                                                 ///< the operation, such as "matmul"
  std::initializer_list<std::pair<std::string_view, std::string>> with = {};  ///< names and values of the arguments
  std::string wrong;                                                          ///< the cause, as one sentence
  std::string remedy = {};                                                    ///< how to fix it
};

/// Formats the parts as "[operation] wrong (name = value, ...). remedy." and removes non-printable characters.
[[gnu::cold]] std::string error_text(const ErrorText& text);

/// Throws `E` with a message built from `text`. All exceptions of Tessera are thrown through this function.
// Cold and not inlined, so that message formatting does not slow down the hot path.
template <class E>
[[noreturn, gnu::cold, gnu::noinline]] void fail(const ErrorText& text) {
  throw E(error_text(text));
}

}  // namespace tessera
