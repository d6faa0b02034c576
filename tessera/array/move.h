// SPDX-License-Identifier: Apache-2.0
// Moving whole structures between devices, `to(anything, device)` and `anything | device`, and asking where one is.
// Arrays move, everything else comes along unchanged; what shares memory before shares it afterwards.
#pragma once

#include <array>
#include <chrono>
#include <complex>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <ranges>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <typeindex>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "tessera/array/aggregate.h"
#include "tessera/array/array.h"

namespace tessera {

/// Say `true` for a type of yours that holds no arrays and is to be copied as it is.
template <class T>
inline constexpr bool moves_unchanged =
    std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_null_pointer_v<T> || std::is_member_pointer_v<T> ||
    (std::is_pointer_v<T> && std::is_function_v<std::remove_pointer_t<T>>) || std::is_same_v<T, const char*> ||
    (std::is_class_v<T> && std::is_empty_v<T>) || std::is_same_v<T, std::string> ||
    std::is_same_v<T, std::string_view> || std::is_same_v<T, Device>;
template <class R, class P>
inline constexpr bool moves_unchanged<std::chrono::duration<R, P>> = true;
template <class C, class D>
inline constexpr bool moves_unchanged<std::chrono::time_point<C, D>> = true;
template <class T>
inline constexpr bool moves_unchanged<std::complex<T>> = true;
template <class T, class U>
inline constexpr bool moves_unchanged<std::ranges::iota_view<T, U>> = true;

/// A class that is no plain aggregate says what moves by listing it: a member `auto fields()` or a function found by
/// argument-dependent look-up, `auto tessera_fields(Layer& l) { return std::tie(l.weight, l.bias); }`. With `field`, a
/// part of the list has the name by which errors call it: `return std::tuple(field("weight", l.weight));`. What is not
/// listed is copied. (A const object is listed too; the function only makes references.)
template <class T>
struct Field {
  const char* name;
  T& value;
};
template <class T>
Field<T> field(const char* name, T& value) {
  return {name, value};
}

class Mover;

namespace detail {

template <class T>
concept HasMove = requires(const T& x, Mover& move) {
  { tessera_move(x, move) } -> std::same_as<T>;
};
template <class T>
concept HasFieldsFunction = requires(T& x) { tessera_fields(x); };
template <class T>
concept HasFieldsMember = requires(T& x) { x.fields(); };

template <class T, template <class...> class Template>
inline constexpr bool is_a = false;
template <class... A, template <class...> class Template>
inline constexpr bool is_a<Template<A...>, Template> = true;
template <class T, template <class...> class... Templates>
inline constexpr bool is_one_of = (is_a<T, Templates> || ...);

template <class T>
inline constexpr bool is_std_array = false;
template <class T, std::size_t N>
inline constexpr bool is_std_array<std::array<T, N>> = true;
template <class T>
inline constexpr bool is_std_span = false;
template <class T, std::size_t N>
inline constexpr bool is_std_span<std::span<T, N>> = true;
template <class T>
inline constexpr bool is_plain_unique = false;
template <class T>
inline constexpr bool is_plain_unique<std::unique_ptr<T>> = !std::is_array_v<T>;

enum class Walk : std::uint8_t {
  none,  ///< cannot be walked
  unchanged,
  array,
  custom,
  optional,
  variant,
  unique,
  shared,
  tuple,
  sequence,
  map,
  fields,
  aggregate
};

template <class T>
constexpr Walk walk_of();

/// Containers of what does not move do not move either.
template <class T>
constexpr bool holds_nothing() {
  if constexpr (moves_unchanged<T>) {
    return true;
  } else if constexpr (is_std_array<T> || is_one_of<T, std::vector, std::deque, std::list>) {
    return holds_nothing<typename T::value_type>();
  } else if constexpr (is_std_span<T>) {
    return holds_nothing<typename T::value_type>();
  } else if constexpr (is_one_of<T, std::set, std::multiset, std::unordered_set, std::unordered_multiset>) {
    return holds_nothing<typename T::key_type>();
  } else {
    return false;
  }
}

template <class T>
constexpr Walk walk_of() {
  if constexpr (std::is_same_v<T, Array>)
    return Walk::array;
  else if constexpr (HasMove<T>)
    return Walk::custom;
  else if constexpr (holds_nothing<T>())
    return Walk::unchanged;
  else if constexpr (is_one_of<T, std::optional>)
    return Walk::optional;
  else if constexpr (is_one_of<T, std::variant>)
    return Walk::variant;
  else if constexpr (is_plain_unique<T>)
    return std::is_polymorphic_v<typename T::element_type> ? Walk::none : Walk::unique;
  else if constexpr (is_one_of<T, std::shared_ptr>)
    return std::is_polymorphic_v<typename T::element_type> || std::is_array_v<typename T::element_type> ? Walk::none
                                                                                                        : Walk::shared;
  else if constexpr (is_std_array<T> || is_one_of<T, std::tuple, std::pair>)
    return Walk::tuple;
  else if constexpr (is_one_of<T, std::vector, std::deque, std::list>)
    return Walk::sequence;
  else if constexpr (is_one_of<T, std::map, std::multimap, std::unordered_map, std::unordered_multimap>)
    return holds_nothing<typename T::key_type>() ? Walk::map : Walk::none;
  else if constexpr (HasFieldsFunction<T> || HasFieldsMember<T>)
    return Walk::fields;
  else if constexpr (member_count<T>() > 0)
    return Walk::aggregate;
  else
    return Walk::none;
}

template <class T>
auto fields_of(T& x) {
  if constexpr (HasFieldsFunction<T>)
    return tessera_fields(x);
  else
    return x.fields();
}

struct MoveState;

}  // namespace detail

/// What walks a structure. Only a type's own `T tessera_move(const T&, Mover&)`, found by argument-dependent look-up,
/// meets one: it gives the moved value, made from `move(part)` of each part. It is called more than once for one move
/// (to see what there is, then to move it) and must do the same each time.
class Mover {
 public:
  Mover(const Mover&) = delete;
  Mover& operator=(const Mover&) = delete;
  ~Mover();

  /// The part, moved; `name` is for errors.
  template <class T>
  T operator()(const T& part, std::string_view name = {}) {
    if (moving_) return rebuild(part);
    const Step step(*this, name.empty() ? std::string("part") : std::string(name));
    look(part);
    return part;
  }
  /// Where to; none while device_of looks.
  std::optional<Device> device() const;

 private:
  template <class T>
  friend std::remove_cvref_t<T> move_by(T&& value, Device device, Queue* queue);
  template <class T>
  friend std::optional<Device> device_by(const T& value, std::string_view name);

  Mover(Device target, Queue* queue);  ///< DeviceError if there is no such device
  explicit Mover(std::string_view root);

  /// A part of the path that errors show.
  struct Step {
    Step(Mover& m, std::string_view text) : mover(m), before(m.path_.size()) {
      if (!m.names_) return;
      if (!text.empty() && text.front() != '[' && !m.path_.empty()) m.path_ += '.';
      m.path_ += text;
    }
    ~Step() { mover.path_.resize(before); }
    Mover& mover;
    std::size_t before;
  };
  template <class K>
  static std::string key_text(const K& key) {
    if constexpr (std::is_integral_v<K>)
      return "[" + std::to_string(key) + "]";
    else if constexpr (std::is_convertible_v<const K&, std::string_view>)
      return "[\"" + std::string(std::string_view(key)) + "\"]";
    else
      return "[...]";
  }

  // Without templates: move.cpp.
  void look_at(const Array& a);
  Array moved(const Array& a);
  bool seen(const void* object, std::type_index type);                    ///< and remembers it
  std::shared_ptr<void> begin(const void* object, std::type_index type);  ///< what it became; null: not moved yet
  void end(const void* object, std::type_index type, std::shared_ptr<void> became);
  bool moves_anything() const;
  std::uint64_t changes() const;  ///< grows whenever an array became another
  std::optional<Device> common() const;

  template <class T>
  void look(const T& x);
  template <class T>
  T rebuild(const T& x);
  template <class T>
  void look_field(const T& x, std::size_t i) {
    const Step step(*this, std::to_string(i));
    look(x);
  }
  template <class T>
  void look_field(const Field<T>& x, std::size_t) {
    const Step step(*this, x.name);
    look(std::as_const(x.value));
  }
  template <class T>
  void rebuild_field(T& x) {
    if constexpr (
        requires { x.name, x.value; } && requires { Field<std::remove_reference_t<decltype(x.value)>>(x); })
      x.value = rebuild(std::as_const(x.value));
    else
      x = rebuild(std::as_const(x));
  }

  std::unique_ptr<detail::MoveState> state_;
  bool moving_ = false;  ///< else it looks
  bool names_ = false;   ///< paths are wanted
  std::string path_;
};

#define TESSERA_CANNOT_MOVE(T)                                                                                       \
  static_assert(detail::walk_of<T>() != detail::Walk::none,                                                          \
                "this type cannot be moved to a device: list what moves with fields() or tessera_fields(T&), write " \
                "tessera_move(const T&, Mover&) for it, or say that it holds no arrays with moves_unchanged<T>")

template <class T>
void Mover::look(const T& x) {
  using namespace detail;
  TESSERA_CANNOT_MOVE(T);
  constexpr Walk how = walk_of<T>();
  if constexpr (how == Walk::array) {
    look_at(x);
  } else if constexpr (how == Walk::custom) {
    static_cast<void>(tessera_move(x, *this));
  } else if constexpr (how == Walk::optional || how == Walk::unique) {
    if (x) look(std::as_const(*x));
  } else if constexpr (how == Walk::shared) {
    if (x && !seen(x.get(), typeid(typename T::element_type))) look(std::as_const(*x));
  } else if constexpr (how == Walk::variant) {
    if (!x.valueless_by_exception()) std::visit([&](const auto& v) { look(v); }, x);
  } else if constexpr (how == Walk::tuple) {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (look_field(std::get<I>(x), I), ...);
    }(std::make_index_sequence<std::tuple_size_v<T>>());
  } else if constexpr (how == Walk::sequence) {
    std::size_t i = 0;
    for (const auto& v : x) {
      const Step step(*this, names_ ? "[" + std::to_string(i++) + "]" : std::string());
      look(v);
    }
  } else if constexpr (how == Walk::map) {
    for (const auto& [key, v] : x) {
      const Step step(*this, names_ ? key_text(key) : std::string());
      look(v);
    }
  } else if constexpr (how == Walk::fields) {
    auto fields = fields_of(const_cast<T&>(x));  // it makes references and changes nothing
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (look_field(std::get<I>(fields), I), ...);
    }(std::make_index_sequence<std::tuple_size_v<decltype(fields)>>());
  } else if constexpr (how == Walk::aggregate) {
    with_members(x, [&](const auto&... member) {
      std::size_t i = 0;
      (look_field(member, i++), ...);
    });
  }
}

template <class T>
T Mover::rebuild(const T& x) {
  using namespace detail;
  TESSERA_CANNOT_MOVE(T);
  constexpr Walk how = walk_of<T>();
  if constexpr (how == Walk::array) {
    return moved(x);
  } else if constexpr (how == Walk::custom) {
    return tessera_move(x, *this);
  } else if constexpr (how == Walk::optional) {
    return x ? T(rebuild(std::as_const(*x))) : T();
  } else if constexpr (how == Walk::unique) {
    using E = typename T::element_type;
    return x ? T(new E(rebuild<std::remove_const_t<E>>(*x))) : T();
  } else if constexpr (how == Walk::shared) {
    using E = std::remove_const_t<typename T::element_type>;
    if (!x) return x;
    if (const auto known = begin(x.get(), typeid(E))) return std::static_pointer_cast<E>(known);
    const std::uint64_t before = changes();
    auto other = std::make_shared<E>(rebuild<E>(*x));
    // What did not move stays the very object.
    auto became = changes() == before ? std::const_pointer_cast<E>(x) : std::move(other);
    end(x.get(), typeid(E), became);
    return became;
  } else if constexpr (how == Walk::variant) {
    if (x.valueless_by_exception()) return x;
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      std::optional<T> out;
      static_cast<void>(
          ((x.index() == I && (out.emplace(std::in_place_index<I>, rebuild(std::get<I>(x))), true)) || ...));
      return std::move(*out);
    }(std::make_index_sequence<std::variant_size_v<T>>());
  } else if constexpr (how == Walk::tuple) {
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      if constexpr (is_std_array<T>)
        return T{{rebuild(std::get<I>(x))...}};
      else
        return T{rebuild<std::tuple_element_t<I, T>>(std::get<I>(x))...};
    }(std::make_index_sequence<std::tuple_size_v<T>>());
  } else if constexpr (how == Walk::sequence) {
    T out(x.get_allocator());
    for (const auto& v : x) out.push_back(rebuild(v));
    return out;
  } else if constexpr (how == Walk::map) {
    T out = [&] {
      if constexpr (is_one_of<T, std::map, std::multimap>)
        return T(x.key_comp(), x.get_allocator());
      else
        return T(x.bucket_count(), x.hash_function(), x.key_eq(), x.get_allocator());
    }();
    for (const auto& [key, v] : x) out.emplace(key, rebuild(v));
    return out;
  } else if constexpr (how == Walk::fields) {
    T out = x;
    auto fields = fields_of(out);
    std::apply([&](auto&... f) { (rebuild_field(f), ...); }, fields);
    return out;
  } else if constexpr (how == Walk::aggregate) {
    return with_members(x, [&](const auto&... member) { return T{rebuild(member)...}; });
  } else {
    return x;
  }
}

template <class T>
std::remove_cvref_t<T> move_by(T&& value, Device device, Queue* queue) {
  Mover move(device, queue);
  move.look(std::as_const(value));
  if constexpr (!std::is_lvalue_reference_v<T> && !std::is_const_v<T>) {
    if (!move.moves_anything()) return std::move(value);
  }
  move.moving_ = true;
  return move.rebuild(std::as_const(value));
}

template <class T>
std::optional<Device> device_by(const T& value, std::string_view name) {
  Mover look(name);
  look.look(value);
  return look.common();
}

/// A copy of `value` whose arrays are on `device`; those that are there already are the same arrays, and nothing is
/// copied. Any nesting of tuples, pairs, std::array, vectors, deques, lists, maps, optionals, variants, unique and
/// shared pointers (an object that two of them share is shared afterwards too), plain aggregates (at most 16 members),
/// and classes that list their fields; numbers, texts, enumerations and containers of such come along unchanged. Any
/// other type does not compile. dtypes are kept. Arrays that share memory share it afterwards, and views stay views:
/// the part of the memory that they cover is copied once. Copies are queued, not waited for, where drivers can.
/// DeviceError if there is no such device. After an error, as on any other way, nothing of the copy is left behind.
template <class T>
std::remove_cvref_t<T> to(T&& value, Device device) {
  return move_by(std::forward<T>(value), device, nullptr);
}
/// The same, as `model | device`.
template <class T>
std::remove_cvref_t<T> operator|(T&& value, Device device) {
  return move_by(std::forward<T>(value), device, nullptr);
}

/// The device that all arrays of a structure (as above) are on; nothing if it holds none. Arrays without elements count
/// only where no others are. DeviceError, with paths that begin with `name`, if they are on several:
/// "params.layers[1].weight: cpu:0". (Members of plain aggregates have numbers there: C++20 does not tell their names.)
template <class T>
std::optional<Device> device_of(const T& value, std::string_view name = "value") {
  return device_by(value, name);
}

}  // namespace tessera
