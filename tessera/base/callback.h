// SPDX-License-Identifier: Apache-2.0
// A copyable function object of any type, like std::function: public headers do not include <functional>, which is as
// long as the headers of vectors and strings together.
#pragma once

#include <cstddef>
#include <new>
#include <tuple>
#include <type_traits>
#include <utility>

namespace tessera {

namespace detail {
/// Throws std::bad_function_call.
[[noreturn, gnu::cold]] void call_empty_callback();

/// As std::invoke.
template <class F, class... A>
decltype(auto) invoke(F&& f, A&&... arguments) {
  if constexpr (std::is_member_pointer_v<std::remove_cvref_t<F>>)
    return std::apply(std::forward<F>(f), std::forward_as_tuple(std::forward<A>(arguments)...));
  else
    return std::forward<F>(f)(std::forward<A>(arguments)...);
}
}  // namespace detail

template <class Signature>
class Callback;

/// Holds a copy of a function object, or nothing. The interface and costs are those of std::function: trivially
/// copyable objects of up to two pointers are stored inside, others are allocated. A null pointer or an empty
/// std::function gives an empty Callback; calling it throws std::bad_function_call.
template <class R, class... A>
class Callback<R(A...)> {
 public:
  using result_type = R;  ///< The type that the function returns.

  Callback() noexcept = default;
  Callback(std::nullptr_t) noexcept {}
  /// Stores a copy of `f`, or `f` itself if it is an rvalue.
  template <class F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, Callback>) && (std::is_invocable_r_v<R, std::decay_t<F>&, A...>)
  Callback(F&& f) {
    using Stored = std::decay_t<F>;
    static_assert(std::is_copy_constructible_v<Stored>, "the function object must be copyable");
    if constexpr (!std::is_function_v<std::remove_reference_t<F>> && std::is_constructible_v<Stored, std::nullptr_t> &&
                  requires(const Stored& s) { s == nullptr; }) {
      if (f == nullptr) return;
    }
    if constexpr (fits<Stored>) {
      ::new (static_cast<void*>(&room_)) Stored(std::forward<F>(f));
    } else {
      room_.object = new Stored(std::forward<F>(f));
      manage_ = [](Room& to, const Room* from) {
        if (from == nullptr)
          delete static_cast<Stored*>(to.object);
        else
          to.object = new Stored(*static_cast<const Stored*>(from->object));
      };
    }
    call_ = [](Room& room, A&&... arguments) -> R {
      Stored* stored;
      if constexpr (fits<Stored>)
        stored = reinterpret_cast<Stored*>(&room);
      else
        stored = static_cast<Stored*>(room.object);
      if constexpr (std::is_void_v<R>)
        static_cast<void>(detail::invoke(*stored, std::forward<A>(arguments)...));
      else
        return detail::invoke(*stored, std::forward<A>(arguments)...);
    };
  }
  Callback(const Callback& other) {
    if (other.manage_ != nullptr)
      other.manage_(room_, &other.room_);
    else
      room_ = other.room_;
    manage_ = other.manage_, call_ = other.call_;
  }
  Callback(Callback&& other) noexcept
      : room_(other.room_),
        manage_(std::exchange(other.manage_, nullptr)),
        call_(std::exchange(other.call_, nullptr)) {}
  Callback& operator=(Callback other) noexcept {
    swap(other);
    return *this;
  }
  ~Callback() {
    if (manage_ != nullptr) manage_(room_, nullptr);
  }

  /// Exchanges the function objects.
  void swap(Callback& other) noexcept {
    std::swap(room_, other.room_), std::swap(manage_, other.manage_), std::swap(call_, other.call_);
  }

  /// Calls the function.
  R operator()(A... arguments) const {
    if (call_ == nullptr) [[unlikely]]
      detail::call_empty_callback();
    return call_(room_, std::forward<A>(arguments)...);
  }
  /// False if it is empty.
  explicit operator bool() const noexcept { return call_ != nullptr; }
  /// True if it is empty.
  friend bool operator==(const Callback& f, std::nullptr_t) noexcept { return f.call_ == nullptr; }

 private:
  union Room {
    void* object;
    std::byte bytes[2 * sizeof(void*)];
  };
  template <class F>
  static constexpr bool fits =
      sizeof(F) <= sizeof(Room) && alignof(F) <= alignof(Room) && std::is_trivially_copyable_v<F>;

  mutable Room room_{};
  void (*manage_)(Room& to,
                  const Room* from) = nullptr;         // copies, or destroys if `from` is null; null for inner objects
  R (*call_)(Room& room, A&&... arguments) = nullptr;  // null: empty
};

}  // namespace tessera
