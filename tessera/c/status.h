// SPDX-License-Identifier: Apache-2.0
// Internal to tessera/c/. Converts exceptions to statuses, and reads and writes structures that begin with their size.
#pragma once

#include <cstring>
#include <string>
#include <type_traits>

#include "tessera/array/array.h"
#include "tessera/base/error.h"
#include "tessera/c/operations.h"
#include "tessera/c/tessera.h"

/// A handle of an array, or a number.
struct tessera_array {
  tessera::named::Operand operand;
};

namespace tessera::c {

/// Called in a handler: stores the message of the current exception for this thread, and returns its status.
tessera_status status_of_exception() noexcept;

/// Calls `f` and returns TESSERA_OK, or the status of its exception.
template <class F>
tessera_status guard(F&& f) noexcept {
  try {
    f();
    return TESSERA_OK;
  } catch (...) {
    return status_of_exception();
  }
}
/// Like guard(), for functions that return something through `out`. Sets it to null first.
template <class T, class F>
tessera_status guard_result(const char* function, T** out, F&& f) noexcept {
  if (out != nullptr) *out = nullptr;
  return guard([&] {
    if (out == nullptr) fail<ArgumentError>({.operation = function, .wrong = "the pointer to the result is NULL"});
    *out = f();
  });
}

/// Throws ArgumentError if the pointer is null.
template <class T>
T& required(const char* function, const char* name, T* pointer) {
  if (pointer == nullptr) fail<ArgumentError>({.operation = function, .wrong = "'" + std::string(name) + "' is NULL"});
  return *pointer;
}
template <class T>
std::span<const T> required_span(const char* function, const char* name, const T* pointer, std::size_t count) {
  if (count > 0) required(function, name, pointer);
  return {pointer, count};
}

/// Copies a text to memory that tessera_string_free() frees.
char* text_copy(const std::string& text);

/// Copies as many fields of `value` as the caller's structure has. Its first member is its size.
template <class T>
void write_sized(const char* function, const char* name, T* out, T value) {
  static_assert(std::is_trivially_copyable_v<T>);
  const std::size_t size = required(function, name, out).size;
  if (size < sizeof(std::size_t))
    fail<ArgumentError>({.operation = function,
                         .with = {{"size", std::to_string(size)}},
                         .wrong = "'size' is not set",
                         .remedy = "Set it to the size of the structure before the call"});
  value.size = size;
  std::memcpy(out, &value, std::min(size, sizeof(T)));
}
/// Returns the options with defaults in place of fields that the caller's structure does not have.
template <class T>
T read_sized(const char* function, const T* given, T defaults) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (given == nullptr) return defaults;
  if (given->size < sizeof(std::size_t))
    fail<ArgumentError>({.operation = function,
                         .with = {{"size", std::to_string(given->size)}},
                         .wrong = "'size' of the options is not set",
                         .remedy = "Call the function that sets the defaults first"});
  std::memcpy(&defaults, given, std::min(given->size, sizeof(T)));
  return defaults;
}

/// Converts the device. Throws DeviceError if the backend does not exist.
Device device_of(tessera_device device);
std::optional<Device> device_of(const tessera_device* device);
tessera_device c_device(Device device);

/// The array of a handle. Throws ArgumentError if the handle is a number.
const Array& array_of(const char* function, const char* name, const tessera_array* handle);

}  // namespace tessera::c
