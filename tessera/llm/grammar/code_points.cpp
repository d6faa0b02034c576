// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/grammar/code_points.h"

#include <algorithm>

namespace tessera::grammar {
namespace {

constexpr char32_t before_surrogates = 0xD7FF, after_surrogates = 0xE000;

}  // namespace

CodePointSet::CodePointSet(std::vector<CodePointRange> ranges) {
  std::vector<CodePointRange> parts;
  for (const CodePointRange& r : ranges) {
    if (r.first <= before_surrogates) parts.push_back({r.first, std::min(r.last, before_surrogates)});
    if (r.last >= after_surrogates)
      parts.push_back({std::max(r.first, after_surrogates), std::min(r.last, last_code_point)});
  }
  std::erase_if(parts, [](const CodePointRange& r) { return r.first > r.last; });
  std::ranges::sort(parts, {}, &CodePointRange::first);
  for (const CodePointRange& r : parts) {
    if (!ranges_.empty() && r.first <= ranges_.back().last + 1)
      ranges_.back().last = std::max(ranges_.back().last, r.last);
    else
      ranges_.push_back(r);
  }
}

CodePointSet CodePointSet::complement() const {
  std::vector<CodePointRange> out;
  char32_t next = 0;
  for (const CodePointRange& r : ranges_) {
    if (r.first > next) out.push_back({next, r.first - 1});
    next = r.last + 1;
  }
  if (next <= last_code_point) out.push_back({next, last_code_point});
  return CodePointSet(std::move(out));
}

CodePointSet CodePointSet::intersection(const CodePointSet& other) const {
  std::vector<CodePointRange> out;
  for (std::size_t i = 0, j = 0; i < ranges_.size() && j < other.ranges_.size();) {
    const CodePointRange a = ranges_[i], b = other.ranges_[j];
    const CodePointRange both{std::max(a.first, b.first), std::min(a.last, b.last)};
    if (both.first <= both.last) out.push_back(both);
    a.last < b.last ? ++i : ++j;
  }
  return CodePointSet(std::move(out));
}

bool CodePointSet::contains(char32_t code) const {
  const auto at = std::ranges::lower_bound(ranges_, code, {}, &CodePointRange::last);
  return at != ranges_.end() && at->first <= code;
}

}  // namespace tessera::grammar
