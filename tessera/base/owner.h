// SPDX-License-Identifier: Apache-2.0
// A pointer that owns its object. Internal.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

namespace tessera::detail {

/// As std::unique_ptr, which takes several times as long to compile for each type. The type may be incomplete where
/// nothing is destroyed.
template <class T>
class Owner {
 public:
  Owner() noexcept = default;
  explicit Owner(T* object) noexcept : object_(object) {}
  /// Takes the object of a std::unique_ptr.
  template <class U>
    requires requires(U& pointer) { static_cast<T*>(pointer.release()); }
  Owner(U&& pointer) noexcept : object_(pointer.release()) {
    static_assert(!std::is_lvalue_reference_v<U>, "use std::move");
  }
  Owner(Owner&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Owner& operator=(Owner&& other) noexcept {
    T* const taken = std::exchange(other.object_, nullptr);
    reset();
    object_ = taken;
    return *this;
  }
  ~Owner() { reset(); }

  void reset() noexcept {
    static_assert(sizeof(T) > 0, "the type is incomplete");
    delete std::exchange(object_, nullptr);
  }
  T* release() noexcept { return std::exchange(object_, nullptr); }
  T* get() const noexcept { return object_; }
  T& operator*() const noexcept { return *object_; }
  T* operator->() const noexcept { return object_; }
  explicit operator bool() const noexcept { return object_ != nullptr; }
  friend bool operator==(const Owner& a, std::nullptr_t) noexcept { return a.object_ == nullptr; }

 private:
  T* object_ = nullptr;
};

}  // namespace tessera::detail
