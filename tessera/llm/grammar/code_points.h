// SPDX-License-Identifier: Apache-2.0
// Sets of Unicode characters, as in the character classes of grammars and regular expressions.
#pragma once

#include <vector>

namespace tessera::grammar {

inline constexpr char32_t last_code_point = 0x10FFFF;

/// A range of code points. Both ends belong to it.
struct CodePointRange {
  char32_t first, last;
  friend bool operator==(const CodePointRange&, const CodePointRange&) = default;
};

/// A set of Unicode scalar values: code points without surrogates, which UTF-8 cannot encode.
class CodePointSet {
 public:
  CodePointSet() = default;
  /// The union of the ranges, which may overlap and be in any order. Surrogates are removed.
  explicit CodePointSet(std::vector<CodePointRange> ranges);

  /// All characters.
  static CodePointSet all() { return CodePointSet({{0, last_code_point}}); }
  /// All characters that are not in the set.
  CodePointSet complement() const;
  /// The characters of this set that are also in `other`.
  CodePointSet intersection(const CodePointSet& other) const;
  /// The characters of this set that are not in `other`.
  CodePointSet without(const CodePointSet& other) const { return intersection(other.complement()); }
  bool contains(char32_t code) const;
  bool empty() const { return ranges_.empty(); }
  /// Disjoint ranges in ascending order. Adjacent ranges are merged, except across the surrogates.
  const std::vector<CodePointRange>& ranges() const { return ranges_; }

 private:
  std::vector<CodePointRange> ranges_;
};

}  // namespace tessera::grammar
