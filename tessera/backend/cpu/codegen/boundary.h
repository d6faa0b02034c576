// SPDX-License-Identifier: Apache-2.0
// Helpers for the functions that the backends call in the module. No exception may leave these functions.
#pragma once

#include <exception>
#include <new>
#include <string>
#include <system_error>
#include <utility>

#include "tessera/backend/cpu/codegen/values.h"

namespace tessera::cpu {

/// Prevents the destruction of LLVM's static objects while it exists. The constructor throws if the program is already
/// exiting.
class UsingLlvm {
 public:
  UsingLlvm();
  ~UsingLlvm();
  UsingLlvm(const UsingLlvm&) = delete;
  UsingLlvm& operator=(const UsingLlvm&) = delete;
};

/// Sets `wrong` to an error message. If there is not enough memory for the message, `wrong` is empty.
inline void set_error(std::string& wrong, const char* text) noexcept {
  wrong.clear();
  try {
    wrong = text;
  } catch (const std::bad_alloc&) {}
}

/// Returns the result of `make`. If `make` throws, sets `wrong` and returns a default-constructed value.
template <class F>
auto guarded(std::string& wrong, F&& make) noexcept -> decltype(make()) {
  try {
    const UsingLlvm use;
    return make();
  } catch (UnsupportedKernel& r) {
    wrong = std::move(r.wrong);
  } catch (const std::bad_alloc&) {
    wrong.clear();
  } catch (const std::system_error& e) {  // thrown by locks and threads
    e.code() == std::errc::not_enough_memory || e.code() == std::errc::resource_unavailable_try_again
        ? wrong.clear()
        : set_error(wrong, e.what());
  } catch (const std::exception& e) {
    set_error(wrong, e.what());
  }
  return {};
}

}  // namespace tessera::cpu
