// SPDX-License-Identifier: Apache-2.0
// Reads messages of `tessera chat`, which can have several lines.
#pragma once

#include "line_reader.h"

namespace tessera::app {

class MessageReader {
 public:
  using Result = LineReader::Result;
  /// Reads a message. A line that ends in a backslash continues on the next one, and lines between """ and """ are one
  /// message. Throws ArgumentError if the closing """ is missing.
  Result read(std::string& message);
  /// True if the message was quoted or pasted in several lines, so that it is no command.
  bool is_literal() const { return is_literal_; }
  bool interactive() const { return reader_.interactive(); }

 private:
  Result read_quoted(std::string first, std::string& message);
  LineReader reader_;
  bool is_literal_ = false;
};

}  // namespace tessera::app
