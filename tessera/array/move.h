// SPDX-License-Identifier: Apache-2.0
// Moving whole structures between devices, `to(anything, device)` and `anything | device`, and asking where one is.
// Arrays move, everything else comes along unchanged; what shares memory before shares it afterwards.
#pragma once

#include "tessera/array/traversal.h"

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
      "this type cannot be moved to a device: list what moves with fields() or tessera_fields(T&), write "
      "tessera_move(const T&, Mover&) for it, or say that it holds no arrays with holds_no_arrays<T>; a plain "
      "aggregate has at most 32 members, no base class and no array of C. Its name and its path in the value "
      "are the arguments of CannotMove");
};
template <class T>
inline constexpr bool can_move = traversable<T, MoveLeaves>;
template <class T>
constexpr void refuse_to_move() {
  refuse<T, MoveLeaves, CannotMove>();
}

}  // namespace detail

/// What moves a structure. Only a type's own `T tessera_move(const T&, Mover&)`, found by argument-dependent look-up,
/// meets one: it gives the moved value, made from `move(part)` of each part. It is called more than once for one move
/// (to see what there is, then to move it) and must do the same each time.
class Mover {
 public:
  Mover(const Mover&) = delete;
  Mover& operator=(const Mover&) = delete;
  ~Mover();

  /// The part, moved; `name` is for errors.
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
  /// Where to; none while device_of looks.
  std::optional<Device> device() const;

 private:
  template <class T>
  friend std::remove_cvref_t<T> move_on_queue(T&& value, Device device, Queue* queue);
  template <class T>
  friend std::optional<Device> common_device_of(const T& value, std::string_view name);

  Mover(Device target, Queue* queue);  ///< DeviceError if there is no such device
  Mover();

  /// Where a type's own function stands while it is called.
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
      return {tessera_move(x, mover), false};  // its arrays have been counted
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

  // Without templates: move.cpp.
  void look_at(const Array& a, const Path& at);
  Mapped<Array> moved(const Array& a, const Path& at);
  Array copied(const Array& a, const Path& at);
  bool moves_anything() const;
  std::optional<Device> common() const;

  std::unique_ptr<detail::MoveState> state_;
  detail::Traversal walk_{"to", "Write tessera_move for that type, and set the pointer there"};
  bool moving_ = false;  ///< else it looks
  const Path* at_ = nullptr;
};

/// Moves a value as `value | device` does; by `queue` if it is not null.
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

/// The device of the arrays in `value`; none if it has no arrays. `name` is for messages.
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

/// A copy of `value` whose arrays are on `device`; those that are there already are the same arrays, and nothing is
/// copied. `value` is whatever for_each_array (array/traversal.h) walks, or holds types with a `tessera_move` of their own;
/// any other type does not compile. dtypes are kept, and so are types derived from Array. Arrays that share memory
/// share it afterwards, and views stay views: the part of the memory that they cover is copied once. Copies are queued,
/// not waited for, where drivers can. DeviceError if there is no such device; errors name what was being moved by its
/// path, "layers.0.weight". After an error, as on any other way, nothing of the copy is left behind.
template <class T>
std::remove_cvref_t<T> to(T&& value, Device device) {
  return move_on_queue(std::forward<T>(value), device, nullptr);
}
/// The same, as `model | device`.
template <class T>
std::remove_cvref_t<T> operator|(T&& value, Device device) {
  return move_on_queue(std::forward<T>(value), device, nullptr);
}

/// The device that all arrays of a structure (as above) are on; nothing if it holds none. Arrays without elements count
/// only where no others are. DeviceError, with paths that begin with `name`, if they are on several:
/// "params.layers.1.weight: cpu:0".
template <class T>
std::optional<Device> device_of(const T& value, std::string_view name = "value") {
  return common_device_of(value, name);
}

}  // namespace tessera
