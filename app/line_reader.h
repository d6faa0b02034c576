// SPDX-License-Identifier: Apache-2.0
// Lines of standard input: edited, with a history, where somebody types them (libedit, if it was there when this was
// built); as they are where they come from a file or a pipe.
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
  /// The next line, without its end. `prompt` is shown on terminals only. After Ctrl-C (interrupts.h) what was typed of
  /// the line is dropped.
  Result read(const std::string& prompt, std::string& line);
  /// Makes a line come up again with the arrow keys. The history is of this session only, and never on disk.
  void remember(const std::string& line);
  bool interactive() const { return interactive_; }

 private:
  struct Editor;
  Result read_plain(std::string& line);
  bool interactive_;
  std::string buffer_;  // read, and not given out
  bool ended_ = false;
  std::unique_ptr<Editor> editor_;
};

}  // namespace tessera::app
