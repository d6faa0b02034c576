// SPDX-License-Identifier: Apache-2.0
// Ends a text where one of some strings comes up, of which nothing is given out, in whatever pieces it comes.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

class StopFilter {
 public:
  /// ArgumentError: an empty string, which every text has.
  explicit StopFilter(std::vector<std::string> stops = {});

  /// The text that can be given out now: what may still become a stop string is held back. Nothing once one was whole:
  /// the first to be whole ends the text, of several at one place the longest.
  std::string push(std::string_view piece);
  /// The end: what was held back.
  std::string flush();
  /// The string that ended the text.
  const std::optional<std::string>& stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::optional<std::string> stopped_;
  std::string held_;
};

}  // namespace tessera
