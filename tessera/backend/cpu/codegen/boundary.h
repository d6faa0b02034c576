// SPDX-License-Identifier: Apache-2.0
// The module's boundary: all calls from outside enter here, and no exception leaves.
#pragma once

#include <exception>
#include <new>
#include <string>
#include <system_error>
#include <utility>

#include "tessera/backend/cpu/codegen/values.h"

namespace tessera::cpu {

/// Keeps LLVM's static objects alive while it exists. The constructor throws once the program is exiting and they are
/// being destroyed.
class UsingLlvm {
 public:
  UsingLlvm();
  ~UsingLlvm();
  UsingLlvm(const UsingLlvm&) = delete;
  UsingLlvm& operator=(const UsingLlvm&) = delete;
};

/// Reports an error through the interface. The text stays empty if memory ran out, even for the text itself.
inline void set_error(std::string& wrong, const char* text) noexcept {
  wrong.clear();
  try {
    wrong = text;
  } catch (const std::bad_alloc&) {}
}

/// Returns the result of `make`; if it throws, returns an empty value and sets `wrong`.
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
