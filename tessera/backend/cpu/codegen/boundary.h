// SPDX-License-Identifier: Apache-2.0
// The module's boundary: every call from outside comes in here, and no exception leaves.
#pragma once

#include <exception>
#include <new>
#include <string>
#include <system_error>
#include <utility>

#include "tessera/backend/cpu/codegen/values.h"

namespace tessera::cpu {

/// While one lives, LLVM's static objects do. Refusal once the program is ending and they go.
class UsingLlvm {
 public:
  UsingLlvm();
  ~UsingLlvm();
  UsingLlvm(const UsingLlvm&) = delete;
  UsingLlvm& operator=(const UsingLlvm&) = delete;
};

/// What went wrong, as the interface tells it: no text where there was no memory, also not for a text.
inline void set_error(std::string& wrong, const char* text) noexcept {
  wrong.clear();
  try {
    wrong = text;
  } catch (const std::bad_alloc&) {}
}

/// What `make` gives; an empty one, and what was wrong, if it throws.
template <class F>
auto guarded(std::string& wrong, F&& make) noexcept -> decltype(make()) {
  try {
    const UsingLlvm use;
    return make();
  } catch (UnsupportedKernel& r) {
    wrong = std::move(r.wrong);
  } catch (const std::bad_alloc&) {
    wrong.clear();
  } catch (const std::system_error& e) {  // of locks and threads
    e.code() == std::errc::not_enough_memory || e.code() == std::errc::resource_unavailable_try_again
        ? wrong.clear()
        : set_error(wrong, e.what());
  } catch (const std::exception& e) {
    set_error(wrong, e.what());
  }
  return {};
}

}  // namespace tessera::cpu
