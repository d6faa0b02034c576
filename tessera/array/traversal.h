// SPDX-License-Identifier: Apache-2.0
// Traverses the arrays of a nested structure. It visits each array with its path, or copies the structure with all
// arrays replaced. Used, for example, by array/move.h.
#pragma once

#include <memory>
#include <typeinfo>

#include "tessera/array/path.h"
#include "tessera/array/traversable.h"

namespace tessera {

/// A return type for functions that are passed to map_arrays: the new part, and whether it changed.
template <class T>
struct Mapped {
  T part;               ///< The part or its replacement.
  bool changed = true;  ///< False if it equals the original part.
};

namespace detail {

/// A traversal, with the shared objects that it has visited so far.
class Traversal {
 public:
  /// `operation` and `for_cycles` are used in errors: the name of the operation, and a remedy for an object that
  /// contains itself.
  explicit Traversal(const char* operation, const char* for_cycles = "Break the cycle, and set the pointer in the copy")
      : operation_(operation), for_cycles_(for_cycles) {}
  ~Traversal() {
    if (shared_ != nullptr) drop_shared();
  }
  Traversal(const Traversal&) = delete;
  Traversal& operator=(const Traversal&) = delete;

  /// Calls `visit(part)` or `visit(part, path)` for each leaf.
  template <class T, class F>
  void visit(T& x, F& f, const Path& at);
  /// Returns a copy of x in which each leaf is replaced by `f(leaf)` or `f(leaf, path)`.
  template <class T, class F>
  T map(const T& x, F& f, const Path& at);
  std::uint64_t changes() const { return changes_; }  ///< The number of leaves that map has replaced so far.

 private:
  // Functions that need no template, in traversal.cpp.
  struct SharedObjects;
  SharedObjects& shared();
  void drop_shared() noexcept;
  bool first_visit(const void* object, const std::type_info& type);
  /// Returns the mapped object, or null if it has not been mapped yet.
  std::shared_ptr<void> begin(const void* object, const std::type_info& type, const Path& at);
  void end(const void* object, const std::type_info& type, std::shared_ptr<void> became);

  template <class T, class F>
  T map_leaf(const T& x, F& f, const Path& at);

  const char *operation_, *for_cycles_;
  SharedObjects* shared_ = nullptr;
  std::uint64_t changes_ = 0;
};

template <class T, class F>
inline constexpr PartKind kind_for = kind_of<std::remove_const_t<T>, typename LeavesOf<F>::type>();

/// Calls `f(x, at)` or `f(x)`.
template <class T, class F>
decltype(auto) call(F& f, T& x, const Path& at) {
  if constexpr (std::is_invocable_v<F&, T&, const Path&>) {
    return f(x, at);
  } else {
    static_assert(
        std::is_invocable_v<F&, T&> || !std::is_const_v<T>,
        "an array of this structure is const here (the structure itself, a member, or what a pointer to const "
        "points to): make the function take a const Array&");
    static_assert(std::is_invocable_v<F&, T&> || std::is_const_v<T>,
                  "the function must take an array of this structure, and optionally its path: (Array&, const Path&)");
    return f(x);
  }
}

/// Calls `use(element, path)` for each element of a map. Unordered maps are traversed in the order of their keys if
/// keys can be compared, so that equal maps are traversed in the same order. If several elements have the same key, a
/// number is appended to the key.
template <class M, class Use>
void for_each_map_element(M& map, const Path& at, Use&& use) {
  using T = std::remove_const_t<M>;
  using K = typename T::key_type;
  constexpr bool several = is_a<T, std::multimap> || is_std<T>("unordered_multimap");
  std::size_t place = 0, among_equal = 0;
  const K* before = nullptr;
  const auto element = [&](auto& e) {
    const Path key = Path::of_key(at, e.first, place++);
    if constexpr (several) {
      const bool equal = before != nullptr && [&] {
        if constexpr (requires { map.key_eq(); })
          return map.key_eq()(*before, e.first);
        else
          return !map.key_comp()(*before, e.first);
      }();
      among_equal = equal ? among_equal + 1 : 0;
      before = &e.first;
      use(e, Path(key, among_equal));
    } else {
      use(e, key);
    }
  };
  if constexpr (is_unordered_map<T> && std::totally_ordered<K>) {
    constexpr auto by_key = [](const K* a, const K* b) { return *a < *b; };
    std::multimap<const K*, decltype(&*map.begin()), decltype(by_key)> elements;
    for (auto& e : map) elements.emplace(&e.first, &e);
    for (const auto& e : elements) element(*e.second);
  } else {
    for (auto& e : map) element(e);
  }
}

/// Calls `use(part, path)` for each field in a list.
template <class List, class Use>
void for_each_field(List& list, const Path& at, Use&& use) {
  const auto one = [&]<class P>(P& part, std::size_t i) {
    if constexpr (is_field<std::remove_const_t<P>>)
      use(part.value, Path(at, part.name, i));
    else
      use(part, Path(at, i));
  };
  std::apply(
      [&](auto&... part) {
        std::size_t i = 0;
        (one(part, i++), ...);
      },
      list);
}

template <class T>
Path member_path(const Path& at, std::size_t i) {
  return Path(at, member_names<T>[i], i);
}

template <class T, class F>
void Traversal::visit(T& x, F& f, const Path& at) {
  constexpr PartKind kind = kind_for<T, F>;
  using Plain = std::remove_const_t<T>;
  if constexpr (kind == PartKind::array || kind == PartKind::leaf) {
    static_cast<void>(call(f, x, at));
  } else if constexpr (kind == PartKind::optional || kind == PartKind::unique) {
    if (x) visit(*x, f, at);
  } else if constexpr (kind == PartKind::shared) {
    if (x && first_visit(x.get(), typeid(typename T::element_type))) visit(*x, f, at);
  } else if constexpr (kind == PartKind::variant) {
    if (!x.valueless_by_exception()) std::visit([&](auto& v) { visit(v, f, at); }, x);
  } else if constexpr (kind == PartKind::sequence || is_std_array<Plain>) {
    std::size_t i = 0;
    for (auto& v : x) visit(v, f, Path(at, i++));
  } else if constexpr (kind == PartKind::tuple) {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (visit(std::get<I>(x), f, Path(at, I)), ...);
    }(std::make_index_sequence<std::tuple_size_v<Plain>>());
  } else if constexpr (kind == PartKind::map) {
    for_each_map_element(x, at, [&](auto& element, const Path& place) { visit(element.second, f, place); });
  } else if constexpr (kind == PartKind::fields) {
    auto list = fields_of(const_cast<Plain&>(x));  // The function only creates references and changes nothing.
    for_each_field(list, at, [&]<class P>(P& part, const Path& place) {
      if constexpr (std::is_const_v<T>)
        visit(std::as_const(part), f, place);
      else
        visit(part, f, place);
    });
  } else if constexpr (kind == PartKind::aggregate) {
    std::size_t i = 0;
    const auto next = [&] { return member_path<Plain>(at, i++); };
    with_members(x, [&](auto&... member) { (visit(member, f, next()), ...); });
  }
}

/// Converts the function's result for a leaf to the leaf's type.
template <class T, PartKind kind, class R>
T leaf_of(const T& before, R&& part) {
  if constexpr (std::is_same_v<R, T>) {
    return std::move(part);
  } else {
    static_assert(kind == PartKind::array && std::is_convertible_v<R, Array>,
                  "the function must return an Array, the type of its argument, or Mapped of one of these");
    static_assert(std::is_copy_constructible_v<T>,
                  "types derived from Array must be copyable so that their array can be replaced");
    T out = before;
    static_cast<Array&>(out) = std::move(part);
    return out;
  }
}

template <class T, class F>
T Traversal::map_leaf(const T& x, F& f, const Path& at) {
  auto result = call(f, x, at);
  if constexpr (is_a<decltype(result), Mapped>) {
    if (result.changed) ++changes_;
    return leaf_of<T, kind_for<T, F>>(x, std::move(result.part));
  } else {
    ++changes_;
    return leaf_of<T, kind_for<T, F>>(x, std::move(result));
  }
}

template <class T, class F>
T Traversal::map(const T& x, F& f, const Path& at) {
  constexpr PartKind kind = kind_for<T, F>;
  if constexpr (kind == PartKind::array || kind == PartKind::leaf) {
    return map_leaf(x, f, at);
  } else if constexpr (kind == PartKind::optional) {
    return x ? T(map(std::as_const(*x), f, at)) : T();
  } else if constexpr (kind == PartKind::unique) {
    using E = typename T::element_type;
    return x ? T(new E(map<std::remove_const_t<E>>(*x, f, at))) : T();
  } else if constexpr (kind == PartKind::shared) {
    using E = std::remove_const_t<typename T::element_type>;
    if (!x) return x;
    if (const auto known = begin(x.get(), typeid(E), at)) return std::static_pointer_cast<E>(known);
    const std::uint64_t before = changes_;
    auto other = std::make_shared<E>(map<E>(*x, f, at));
    // Unchanged objects are shared, not copied.
    auto became = changes_ == before ? std::const_pointer_cast<E>(x) : std::move(other);
    end(x.get(), typeid(E), became);
    return became;
  } else if constexpr (kind == PartKind::variant) {
    if (x.valueless_by_exception()) return x;
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      std::optional<T> out;
      static_cast<void>(
          ((x.index() == I && (out.emplace(std::in_place_index<I>, map(std::get<I>(x), f, at)), true)) || ...));
      return std::move(*out);
    }(std::make_index_sequence<std::variant_size_v<T>>());
  } else if constexpr (kind == PartKind::tuple) {
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      if constexpr (is_std_array<T>)
        return T{{map(std::get<I>(x), f, Path(at, I))...}};
      else
        return T{map<std::remove_const_t<std::tuple_element_t<I, T>>>(std::get<I>(x), f, Path(at, I))...};
    }(std::make_index_sequence<std::tuple_size_v<T>>());
  } else if constexpr (kind == PartKind::sequence) {
    T out(x.get_allocator());
    std::size_t i = 0;
    for (const auto& v : x) out.push_back(map(v, f, Path(at, i++)));
    return out;
  } else if constexpr (kind == PartKind::map) {
    T out = [&] {
      if constexpr (is_one_of<T, std::map, std::multimap>)
        return T(x.key_comp(), x.get_allocator());
      else
        return T(x.bucket_count(), x.hash_function(), x.key_eq(), x.get_allocator());
    }();
    for_each_map_element(x, at, [&](const auto& element, const Path& place) {
      out.emplace(element.first, map(element.second, f, place));
    });
    return out;
  } else if constexpr (kind == PartKind::fields) {
    static_assert(std::is_copy_constructible_v<T>, "a class that lists its fields must be copyable to be copied");
    T out = x;
    auto list = fields_of(out);
    for_each_field(list, at, [&](auto& part, const Path& place) { part = map(std::as_const(part), f, place); });
    return out;
  } else if constexpr (kind == PartKind::aggregate) {
    std::size_t i = 0;
    const auto next = [&] { return member_path<T>(at, i++); };
    // Braced initialisers are evaluated from left to right.
    return with_members(x, [&](const auto&... member) { return T{map(member, f, next())...}; });
  } else {
    return x;
  }
}

template <Text type, Text path>
struct CannotTraverse {
  static_assert(
      sizeof(path.letters) == 0,
      "this type cannot be traversed: list its parts with fields() or tessera_fields(T&), or "
      "specialise holds_no_arrays<T> if it holds none; a plain aggregate has at most 32 members, no base class and "
      "no C array. The template arguments of CannotTraverse are the name of the type and its path "
      "in the value");
};

}  // namespace detail

/// Calls `visit(array)` or `visit(array, path)` for every array of a structure. The visitor may change arrays that are
/// not const. A structure is any nesting of tuples, pairs, std::array, vectors, deques, lists, maps, optionals,
/// variants, unique and shared pointers, plain aggregates (at most 32 members), and classes that list their fields. An
/// object that several pointers share is visited once.
///
/// Objects of types derived from Array are visited as that type; their other members are not traversed. Numbers,
/// strings, enumerations, containers of these, and types with `holds_no_arrays` are skipped. Any other type does not
/// compile. Members and elements are visited in order, unordered maps in key order.
///
/// `path` begins with `root` if `root` is not empty. It is valid only during the call. A visitor can also receive other
/// parts as a whole: `struct V { struct leaves { template <class T> static constexpr bool is_leaf = ...; }; ... };`.
template <class T, class F>
void for_each_array(T&& value, F&& visit, std::string_view root = {}) {
  using Leaves = typename detail::LeavesOf<std::remove_cvref_t<F>>::type;
  if constexpr (detail::traversable<std::remove_cvref_t<T>, Leaves>)
    detail::Traversal("for_each_array").visit(value, visit, Path(root));
  else
    detail::refuse<std::remove_cvref_t<T>, Leaves, detail::CannotTraverse>();
}

/// Returns a copy of a structure in which each array is replaced by `f(array)` or `f(array, path)`. Everything else is
/// copied. `f` returns an Array, the type of its argument, or `Mapped` of one of these, which also says whether the
/// array changed. If the argument's type is derived from Array and `f` returns an Array, only its array is replaced.
///
/// An object that several pointers share is mapped once and is shared in the copy too. If nothing in the object
/// changed, the copy points to the original object. Throws ArgumentError if such an object contains itself.
template <class T, class F>
T map_arrays(const T& value, F&& f, std::string_view root = {}) {
  using Leaves = typename detail::LeavesOf<std::remove_cvref_t<F>>::type;
  if constexpr (!detail::traversable<T, Leaves>)
    detail::refuse<T, Leaves, detail::CannotTraverse>();
  else
    return detail::Traversal("map_arrays").map(value, f, Path(root));
}

}  // namespace tessera
