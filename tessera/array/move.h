// SPDX-License-Identifier: Apache-2.0
// Moves structures between devices with `to(anything, device)` and `anything | device`, and determines their device.
// Arrays are moved; everything else is copied unchanged. Arrays that share memory still share it afterwards.
#pragma once

#include "tessera/array/traversal.h"
#include "tessera/base/owner.h"

namespace tessera {

class Mover;

namespace detail {

template <class T>
concept HasMove = requires(const T& x, Mover& move) {
  { tessera_move(x, move) } -> std::same_as<T>;
};
struct MoveLeaves {
  template <class T>
  static constexpr bool is_leaf = HasMove<T>;
};

struct MoveState;

template <Text type, Text path>
struct CannotMove {
  static_assert(
      sizeof(path.letters) == 0,
      "this type cannot be moved to a device: list its parts with fields() or tessera_fields(T&), write "
      "tessera_move(const T&, Mover&) for it, or specialise holds_no_arrays<T> if it holds no arrays; a plain "
      "aggregate has at most 32 members, no base class and no C array. The template arguments of CannotMove "
      "are the name of the type and its path in the value");
};
template <class T>
inline constexpr bool can_move = traversable<T, MoveLeaves>;
template <class T>
constexpr void refuse_to_move() {
  refuse<T, MoveLeaves, CannotMove>();
}

}  // namespace detail

/// Moves the parts of a structure. A type can define its own `T tessera_move(const T&, Mover&)`, found by
/// argument-dependent lookup. The function returns a new value, constructed from `move(part)` for each part. It is
/// called more than once per move (first to collect the arrays, then to move them) and must behave the same each time.
class Mover {
 public:
  Mover(const Mover&) = delete;
  Mover& operator=(const Mover&) = delete;
  ~Mover();

  /// Returns the moved part. `name` is used in error messages.
  template <class T>
  T operator()(const T& part, std::string_view name = "part") {
    if constexpr (detail::can_move<T>) {
      const Path here(*at_, name);
      if (moving_) return move(part, here);
      look(part, here);
      return part;
    } else {
      detail::refuse_to_move<T>();
    }
  }
  /// The target device. nullopt if device_of is collecting devices.
  std::optional<Device> device() const;

 private:
  template <class T>
  friend std::remove_cvref_t<T> move_on_queue(T&& value, Device device, Queue* queue);
  template <class T>
  friend std::optional<Device> common_device_of(const T& value, std::string_view name);

  Mover(Device target, Queue* queue);  ///< Throws DeviceError if the device does not exist.
  Mover();

  /// Sets the current path while the `tessera_move` of a type is called.
  struct At {
    At(Mover& m, const Path& at) : mover(m), before(std::exchange(m.at_, &at)) {}
    ~At() { mover.at_ = before; }
    Mover& mover;
    const Path* before;
  };
  struct Look {
    using leaves = detail::MoveLeaves;
    Mover& mover;
    void operator()(const Array& a, const Path& at) { mover.look_at(a, at); }
    template <class T>
      requires detail::HasMove<T>
    void operator()(const T& x, const Path& at) {
      const At here(mover, at);
      static_cast<void>(tessera_move(x, mover));
    }
  };
  struct Move {
    using leaves = detail::MoveLeaves;
    Mover& mover;
    Mapped<Array> operator()(const Array& a, const Path& at) { return mover.moved(a, at); }
    template <class T>
      requires detail::HasMove<T>
    Mapped<T> operator()(const T& x, const Path& at) {
      const At here(mover, at);
      return {tessera_move(x, mover), false};  // Its arrays have been counted already.
    }
  };
  template <class T>
  void look(const T& x, const Path& at) {
    Look visit{*this};
    walk_.visit(x, visit, at);
  }
  template <class T>
  T move(const T& x, const Path& at) {
    Move map{*this};
    return walk_.map(x, map, at);
  }

  // Functions that need no template, in move.cpp.
  void look_at(const Array& a, const Path& at);
  Mapped<Array> moved(const Array& a, const Path& at);
  Array copied(const Array& a, const Path& at);
  bool moves_anything() const;
  std::optional<Device> common() const;

  detail::Owner<detail::MoveState> state_;
  detail::Traversal walk_{"to", "Write tessera_move for that type, and set the pointer there"};
  bool moving_ = false;  ///< false while arrays are collected
  const Path* at_ = nullptr;
};

/// Moves a value like `value | device`, on `queue` if it is not null.
template <class T>
std::remove_cvref_t<T> move_on_queue(T&& value, Device device, Queue* queue) {
  if constexpr (detail::can_move<std::remove_cvref_t<T>>) {
    Mover mover(device, queue);
    mover.look(std::as_const(value), Path());
    if constexpr (!std::is_lvalue_reference_v<T> && !std::is_const_v<T>) {
      if (!mover.moves_anything()) return std::move(value);
    }
    mover.moving_ = true;
    return mover.move(std::as_const(value), Path());
  } else {
    detail::refuse_to_move<std::remove_cvref_t<T>>();
  }
}

/// The device of the arrays in `value`; nullopt if it has no arrays. `name` is used in messages.
template <class T>
std::optional<Device> common_device_of(const T& value, std::string_view name) {
  if constexpr (detail::can_move<T>) {
    Mover mover;
    mover.look(value, Path(name));
    return mover.common();
  } else {
    detail::refuse_to_move<T>();
  }
}

/// Returns a copy of `value` whose arrays are on `device`. Arrays that are already there are shared, not copied.
/// `value` can be any structure that for_each_array accepts (array/traversal.h), and it can contain types with their
/// own `tessera_move`. Other types do not compile. dtypes and types derived from Array are kept.
///
/// Arrays that share memory still share it, and views remain views: the memory range that they cover is copied once.
/// Copies are asynchronous if the driver supports it.
///
/// Throws DeviceError if the device does not exist. Errors include the path of the part, such as "layers.0.weight". If
/// a move fails, all partial copies are destroyed.
template <class T>
std::remove_cvref_t<T> to(T&& value, Device device) {
  return move_on_queue(std::forward<T>(value), device, nullptr);
}
/// Like to(), but written as `model | device`.
template <class T>
std::remove_cvref_t<T> operator|(T&& value, Device device) {
  return move_on_queue(std::forward<T>(value), device, nullptr);
}

/// The device of all arrays in a structure; nullopt if it contains no arrays. Arrays without elements are considered
/// only if there are no other arrays. Throws DeviceError if the arrays are on several devices. The message lists paths
/// that begin with `name`: "params.layers.1.weight: cpu:0".
template <class T>
std::optional<Device> device_of(const T& value, std::string_view name = "value") {
  return common_device_of(value, name);
}

}  // namespace tessera
