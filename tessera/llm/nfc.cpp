// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/nfc.h"

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "tessera/base/unicode.h"
#include "tessera/llm/nfc_tables.h"

namespace tessera {
namespace {

// Hangul syllables consist of a leading consonant, a vowel and optionally a trailing consonant (Unicode, section 3.12).
constexpr char32_t syllables = 0xac00, leads = 0x1100, vowels = 0x1161, trails = 0x11a7;
constexpr char32_t vowel_count = 21, trail_count = 28, syllable_count = 19 * vowel_count * trail_count;

/// A character and its combining class.
struct Mark {
  char32_t code;
  std::uint8_t combining;
};

std::uint8_t combining_class(char32_t code) {
  const auto range = std::ranges::lower_bound(nfc_classes, code, {}, &NfcClass::last);
  return range != nfc_classes.end() && range->first <= code ? range->combining : std::uint8_t{0};
}

void decompose(char32_t code, std::vector<Mark>& out) {
  if (code >= syllables && code < syllables + syllable_count) {
    const char32_t index = code - syllables;
    out.push_back({leads + index / (vowel_count * trail_count), 0});
    out.push_back({vowels + index / trail_count % vowel_count, 0});
    if (index % trail_count != 0) out.push_back({trails + index % trail_count, 0});
    return;
  }
  const auto found = std::ranges::lower_bound(nfc_decompositions, code, {}, &NfcDecomposition::code);
  if (found == nfc_decompositions.end() || found->code != code) {
    out.push_back({code, combining_class(code)});
    return;
  }
  decompose(found->first, out);
  if (found->second != 0) decompose(found->second, out);
}

std::uint64_t pair_of(char32_t first, char32_t second) { return std::uint64_t{first} << 32 | second; }

/// Returns the character that the two combine to, or 0.
char32_t compose(char32_t first, char32_t second) {
  if (first >= leads && first < leads + 19 && second >= vowels && second < vowels + vowel_count)
    return syllables + ((first - leads) * vowel_count + second - vowels) * trail_count;
  if (first >= syllables && first < syllables + syllable_count && (first - syllables) % trail_count == 0 &&
      second > trails && second < trails + trail_count)
    return first + second - trails;
  static const auto& composed = *[] {
    auto* const map = new std::unordered_map<std::uint64_t, char32_t>;
    for (const NfcDecomposition& d : nfc_decompositions)
      if (d.composes) map->emplace(pair_of(d.first, d.second), d.code);
    return map;
  }();
  const auto found = composed.find(pair_of(first, second));
  return found == composed.end() ? 0 : found->second;
}

/// Combines each mark with the last starter (a character of class 0), unless a mark between them prevents it.
void compose_all(std::vector<Mark>& marks) {
  std::size_t starter = marks.size(), kept = 0;
  std::uint8_t last = 0;  // the class of the last mark that was kept after the starter
  for (const Mark& m : std::vector(marks)) {
    const bool adjacent = starter + 1 == kept;
    if (starter < kept && (adjacent || (last != 0 && last < m.combining)))
      if (const char32_t both = compose(marks[starter].code, m.code)) {
        marks[starter].code = both;
        continue;
      }
    if (m.combining == 0) starter = kept;
    last = m.combining;
    marks[kept++] = m;
  }
  marks.resize(kept);
}

void append_nfc(std::vector<Mark>& marks, std::string& out) {
  for (auto begin = marks.begin(); begin != marks.end();) {
    begin = std::find_if(begin, marks.end(), [](const Mark& m) { return m.combining != 0; });
    const auto end = std::find_if(begin, marks.end(), [](const Mark& m) { return m.combining == 0; });
    std::stable_sort(begin, end, [](const Mark& a, const Mark& b) { return a.combining < b.combining; });
    begin = end;
  }
  compose_all(marks);
  for (const Mark& m : marks) append_utf8(out, m.code);
  marks.clear();
}

}  // namespace

std::string to_nfc(std::string_view text) {
  // All characters below U+0300 are in this form.
  if (std::ranges::none_of(text, [](char c) { return static_cast<unsigned char>(c) >= 0xcc; }))
    return std::string(text);
  std::string out;
  std::vector<Mark> marks;
  while (!text.empty()) {
    const Utf8Unit unit = utf8_unit(text);
    if (unit.kind == Utf8Unit::Kind::character) {
      decompose(unit.code, marks);
    } else {
      append_nfc(marks, out);
      out += text.substr(0, unit.size);
    }
    text.remove_prefix(unit.size);
  }
  append_nfc(marks, out);
  return out;
}

}  // namespace tessera
