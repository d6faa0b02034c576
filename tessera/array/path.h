// SPDX-License-Identifier: Apache-2.0
// The path of a part in a nested structure, as text: "layers.0.weight".
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>

namespace tessera {

/// The path of a part: members by name (or by number if the name is unknown), elements of containers and tuples by
/// index, and map elements by key: "layers.0.weight", "named.embedding". A key that is not a plain word is put in
/// brackets, `named["a.b"]`, so that paths are unambiguous. A Path refers to objects on the stack of the traversal; to
/// keep it, store text().
class Path {
 public:
  Path() = default;
  /// The root of a structure, named `root`.
  explicit Path(std::string_view root) : name_(root) {}
  /// The part of `above` with this name.
  Path(const Path& above, std::string_view name) : above_(&above), name_(name) {}
  /// Element `index` of `above`.
  Path(const Path& above, std::size_t index) : above_(&above), index_(index) {}
  /// Element `index` of the part `name` of `above`.
  Path(const Path& above, std::string_view name, std::size_t index) : above_(&above), name_(name), index_(index) {}
  /// A map element. A key that is not a number, enumerator or string is shown by its position: "#2".
  template <class K>
  static Path of_key(const Path& above, const K& key, std::size_t place) {
    return Path(above, place, &key, append_key<K>);
  }
  Path(const Path&) = delete;
  Path& operator=(const Path&) = delete;

  std::string text() const;  ///< The full path, with dots: "layers.0.weight".

 private:
  using AppendKey = void(std::string& text, const void* key, std::size_t place);
  Path(const Path& above, std::size_t place, const void* key, AppendKey* append_text)
      : above_(&above), index_(place), key_(key), append_key_(append_text) {}
  template <class K>
  static void append_key(std::string& text, const void* key, std::size_t place) {
    const K& k = *static_cast<const K*>(key);
    if constexpr (std::is_same_v<K, bool>)
      append_word(text, k ? "true" : "false");
    else if constexpr (std::is_same_v<K, char>)
      append_word(text, {&k, 1});
    else if constexpr (std::is_enum_v<K>)
      append_number(text, static_cast<std::underlying_type_t<K>>(k));
    else if constexpr (std::is_arithmetic_v<K>)
      append_number(text, k);
    else if constexpr (std::is_convertible_v<const K&, std::string_view>)
      append_word(text, k);
    else
      append_word(text, "#" + std::to_string(place));
  }
  template <class N>
  static void append_number(std::string& text, N n) {
    if constexpr (std::is_floating_point_v<N>)
      append_float(text, static_cast<double>(n));
    else
      append_word(text, std::to_string(n));
  }
  static void append_float(std::string& text, double n);
  static void append_word(std::string& text, std::string_view word);
  void append(std::string& text) const;

  const Path* above_ = nullptr;
  std::string_view name_;
  std::size_t index_ = 0;
  const void* key_ = nullptr;
  AppendKey* append_key_ = nullptr;
};

}  // namespace tessera
