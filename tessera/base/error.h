// SPDX-License-Identifier: Apache-2.0
// The family of errors that Tessera throws, and the one function that builds their text.
// Every message has up to four parts: what was asked, with what, what is wrong, what to do.
#pragma once

#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace tessera {

/// Base of everything Tessera throws. `what()` holds the whole text.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A device is missing, refused, lost or unusable.
class DeviceError : public Error {
  using Error::Error;
};
/// A device reported an error from which it does not recover: it answers nothing any more, and what was on it is gone.
class DeviceLost : public DeviceError {
  using DeviceError::DeviceError;
};
/// Shapes that do not fit an operation.
class ShapeError : public Error {
  using Error::Error;
};
/// A dtype that an operation, a file or a device cannot take.
class DtypeError : public Error {
  using Error::Error;
};
/// Memory or a budget is exhausted. The process can go on.
class OutOfMemory : public Error {
  using Error::Error;
};
/// A kernel that is wrong, cannot be compiled, or failed while running.
class KernelError : public Error {
  using Error::Error;
};
/// A file whose content is not what its format says; the text names offset and field.
class FormatError : public Error {
  using Error::Error;
};
/// An argument out of its range that none of the above describes.
class ArgumentError : public Error {
  using Error::Error;
};

/// What an error says. Empty parts are left out.
struct ErrorText {
  std::string_view operation;                                                 ///< the operation, e.g. "matmul"
  std::initializer_list<std::pair<std::string_view, std::string>> with = {};  ///< names and values
  std::string wrong;                                                          ///< what is wrong, one sentence
  std::string remedy = {};                                                    ///< what the reader can do
};

/// "[operation] wrong (name = value, ...). remedy.", made printable.
[[gnu::cold]] std::string error_text(const ErrorText& text);

/// Throws `E` with the text built from `text`: the only way in which Tessera makes an error.
// Cold: what makes an error's words lies apart from the code that finds nothing wrong.
template <class E>
[[noreturn, gnu::cold, gnu::noinline]] void fail(const ErrorText& text) {
  throw E(error_text(text));
}

}  // namespace tessera
