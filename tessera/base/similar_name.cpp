// SPDX-License-Identifier: Apache-2.0
#include "tessera/base/similar_name.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace tessera {

namespace {

/// Returns two edit distances with transpositions: from `wanted` to the closest prefix of `name`, and to all of `name`.
std::pair<std::size_t, std::size_t> prefix_and_whole_distance(std::string_view wanted, std::string_view name) {
  std::vector<std::size_t> before, last, now(name.size() + 1);
  for (std::size_t j = 0; j <= name.size(); ++j) now[j] = j;
  for (std::size_t i = 1; i <= wanted.size(); ++i) {
    before = std::exchange(last, now);
    now[0] = i;
    for (std::size_t j = 1; j <= name.size(); ++j) {
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (wanted[i - 1] != name[j - 1])});
      if (i > 1 && j > 1 && wanted[i - 1] == name[j - 2] && wanted[i - 2] == name[j - 1])
        now[j] = std::min(now[j], before[j - 2] + 1);
    }
  }
  return {*std::min_element(now.begin(), now.end()), now.back()};
}

}  // namespace

std::size_t edit_distance(std::string_view wanted, std::string_view name) {
  return prefix_and_whole_distance(wanted, name).second;
}

std::vector<std::string> closest_matches(std::string_view wanted, const std::vector<std::string>& names,
                                         std::size_t most) {
  if (wanted.empty()) return {};
  // distance to a prefix, distance to the name, name
  std::vector<std::tuple<std::size_t, std::size_t, std::string>> found;
  for (const std::string& name : names) {
    const auto [beginning, all] = prefix_and_whole_distance(wanted, name);
    const auto alike = std::mismatch(wanted.begin(), wanted.end(), name.begin(), name.end()).first - wanted.begin();
    const std::size_t bound = (wanted.size() + 2) / 4;
    if (beginning <= bound)
      found.emplace_back(beginning, all, name);
    else if (name.find(wanted) != std::string::npos || 3 * static_cast<std::size_t>(alike) >= 2 * wanted.size())
      found.emplace_back(bound + 1, all, name);
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> near;
  for (std::size_t i = 0; i < std::min(most, found.size()); ++i) near.push_back(std::get<2>(found[i]));
  return near;
}

}  // namespace tessera
