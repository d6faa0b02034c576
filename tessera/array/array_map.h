// SPDX-License-Identifier: Apache-2.0
// A map keyed by arrays. Internal.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "tessera/array/array.h"

namespace tessera::detail {

/// Two arrays are the same key if they have the same memory (or pending value), the same view and the same history.
/// Different views of the same memory are different keys.
template <class Value>
class ArrayMap {
 public:
  Value* find(const Array& a) {
    const auto found = known_.find(key(a));
    if (found == known_.end()) return nullptr;
    for (auto& [array, value] : found->second)
      if (array.shape() == a.shape() && array.strides() == a.strides() && array.dtype() == a.dtype() &&
          array.step() == a.step())
        return &value;
    return nullptr;
  }
  Value& add(const Array& a, Value value) { return known_[key(a)].emplace_back(a, std::move(value)).second; }

 private:
  using Key = std::pair<const void*, std::int64_t>;
  static Key key(const Array& a) { return {a.source().get(), a.offset()}; }
  std::map<Key, std::vector<std::pair<Array, Value>>> known_;
};

}  // namespace tessera::detail
