// SPDX-License-Identifier: Apache-2.0
// Cuts off a generated text at the first stop string. The text arrives in pieces, and a stop string may be split across
// them; no part of it is emitted.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

class StopFilter {
 public:
  /// Throws ArgumentError if a stop string is empty.
  explicit StopFilter(std::vector<std::string> stops = {});

  /// Appends `piece` and returns the text that can be emitted now. A suffix that may become a stop string is held back.
  /// Returns an empty string after the first complete stop string. If several stop strings end at the same place, the
  /// longest one is used.
  std::string push(std::string_view piece);
  /// Returns the text that was held back. Call this once, after the last piece.
  std::string flush();
  /// The stop string that ended the text, if any.
  const std::optional<std::string>& stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::optional<std::string> stopped_;
  std::string held_;
};

}  // namespace tessera
