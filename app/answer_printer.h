// SPDX-License-Identifier: Apache-2.0
// Prints an answer of `tessera chat` while it is generated. On a terminal, lines are wrapped between words, and
// thoughts are dimmed; elsewhere, thoughts are omitted.
#pragma once

#include "delayed_progress.h"
#include "terminal.h"
#include "tessera/llm/chat_session.h"
#include "word_wrap.h"

namespace tessera::app {

class AnswerPrinter {
 public:
  /// If `silent` is true, nothing is printed. If `quiet` is true, no progress is printed.
  AnswerPrinter(bool silent, bool quiet);
  /// Shows how much of the prompt was read: only on a terminal, and only after a second.
  void show_progress(std::int64_t done, std::int64_t total);
  /// Prints a piece. Returns false if standard output cannot be written; main reports the error.
  bool show(const ThinkingSplitter::Parts& parts);
  /// Prints the end of the answer, and the calls of functions.
  void finish(const std::vector<ToolCall>& calls);
  /// Ends the line after an error.
  void abandon();

 private:
  std::size_t width() const;
  std::string wrap(std::string_view text);
  void print_faint(const std::string& text);
  void flush_thought();

  const bool silent_, terminal_;
  const Style style_;
  DelayedProgress progress_;
  WordWrap wrap_;
  bool thinking_ = false, begun_ = false, line_ended_ = false;
};

/// Prints an answer as one line of JSON.
void print_answer_json(const ChatAnswer& answer, std::uint64_t seed);

}  // namespace tessera::app
