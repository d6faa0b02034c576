// SPDX-License-Identifier: Apache-2.0
// Ends a text at the first occurrence of one of several strings, without emitting any part of it, however the text is
// split into pieces.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

class StopFilter {
 public:
  /// Throws ArgumentError for an empty string.
  explicit StopFilter(std::vector<std::string> stops = {});

  /// Appends `piece` and returns the text that can be emitted now; a suffix that may become a stop string is held back.
  /// Returns nothing after the first complete stop string; if several end at the same place, the longest counts.
  std::string push(std::string_view piece);
  /// Returns the text that was held back, at the end.
  std::string flush();
  /// The string that ended the text.
  const std::optional<std::string>& stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::optional<std::string> stopped_;
  std::string held_;
};

}  // namespace tessera
