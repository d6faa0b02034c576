// SPDX-License-Identifier: Apache-2.0
// Suggestions for misspelt names in error messages.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// The number of letters to insert, remove, replace or exchange with the next one (Damerau 1964; each letter is changed
/// once).
std::size_t edit_distance(std::string_view wanted, std::string_view name);

/// Returns up to `most` of the `names` that are similar to `wanted`, the most similar ones first. Names are sorted by
/// the edit distance between `wanted` and their most similar prefix. They are followed by names that only contain
/// `wanted` or share its first characters.
std::vector<std::string> closest_matches(std::string_view wanted, const std::vector<std::string>& names,
                                         std::size_t most);

}  // namespace tessera
