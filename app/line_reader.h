// SPDX-License-Identifier: Apache-2.0
// Reads lines from standard input. On a terminal, lines can be edited and have a history, if libedit was found at build
// time.
#pragma once

#include <memory>
#include <string>

namespace tessera::app {

class LineReader {
 public:
  LineReader();
  ~LineReader();
  LineReader(const LineReader&) = delete;

  enum class Result { line, end, interrupted };
  /// Reads the next line, without the line end. `prompt` is shown only on a terminal. Ctrl-C (interrupts.h) discards
  /// the line that was typed so far. With an editor, pasted text is one line, which contains its line breaks.
  Result read(const std::string& prompt, std::string& line);
  /// Adds a line to the history of this session, which is never written to disk.
  void remember(const std::string& line);
  bool interactive() const { return interactive_; }

 private:
  struct Editor;
  Result read_plain(std::string& line);
  bool interactive_;
  std::string buffer_;  // input that was read but not yet returned
  bool ended_ = false;
  std::unique_ptr<Editor> editor_;
};

}  // namespace tessera::app
