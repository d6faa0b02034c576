// SPDX-License-Identifier: Apache-2.0
// Reads lines from standard input: with editing and history on a terminal (libedit, if found at build time), plainly
// from files and pipes.
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
  /// Reads the next line, without its end. `prompt` is shown on terminals only. After Ctrl-C (interrupts.h) the typed
  /// part of the line is dropped.
  Result read(const std::string& prompt, std::string& line);
  /// Adds a line to the history of this session, which is never written to disk.
  void remember(const std::string& line);
  bool interactive() const { return interactive_; }

 private:
  struct Editor;
  Result read_plain(std::string& line);
  bool interactive_;
  std::string buffer_;  // read but not yet returned
  bool ended_ = false;
  std::unique_ptr<Editor> editor_;
};

}  // namespace tessera::app
