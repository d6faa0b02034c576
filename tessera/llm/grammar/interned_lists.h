// SPDX-License-Identifier: Apache-2.0
// Stores each list of numbers once and numbers the lists, so that equal lists have equal ids.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_set>
#include <vector>

namespace tessera::grammar {

class InternedLists {
 public:
  InternedLists() : ids_(16, Hash{this}, Equal{this}) {}
  InternedLists(const InternedLists&) = delete;
  InternedLists& operator=(const InternedLists&) = delete;

  /// Returns the id of a list, which is added if it is new. Ids are consecutive.
  std::uint32_t intern(std::span<const std::uint64_t> list) {
    const auto id = static_cast<std::uint32_t>(size());
    values_.insert(values_.end(), list.begin(), list.end());
    ends_.push_back(values_.size());
    const auto [at, added] = ids_.insert(id);
    if (!added) {
      ends_.pop_back();
      values_.resize(ends_.back());
    }
    return *at;
  }
  /// The list with this id. Valid until the next call of intern().
  std::span<const std::uint64_t> operator[](std::uint32_t id) const {
    return {values_.data() + ends_[id], values_.data() + ends_[id + 1]};
  }
  std::size_t size() const { return ends_.size() - 1; }
  std::size_t values() const { return values_.size(); }  ///< total length of the lists
  void clear() {
    ids_.clear();
    values_.clear();
    ends_.assign(1, 0);
  }

 private:
  struct Hash {
    const InternedLists* lists;
    std::size_t operator()(std::uint32_t id) const {
      std::uint64_t h = 0x9E3779B97F4A7C15u;
      for (std::uint64_t v : (*lists)[id]) {
        h = (h ^ v) * 0xFF51AFD7ED558CCDu;
        h ^= h >> 32;
      }
      return h;
    }
  };
  struct Equal {
    const InternedLists* lists;
    bool operator()(std::uint32_t a, std::uint32_t b) const {
      const auto x = (*lists)[a], y = (*lists)[b];
      return x.size() == y.size() && std::equal(x.begin(), x.end(), y.begin());
    }
  };

  std::vector<std::uint64_t> values_;
  std::vector<std::size_t> ends_{0};  ///< in `values_`; the first list begins at 0
  std::unordered_set<std::uint32_t, Hash, Equal> ids_;
};

}  // namespace tessera::grammar
