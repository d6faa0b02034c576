// SPDX-License-Identifier: Apache-2.0
// Terminal output: coloured text, wrapped paragraphs, and progress lines on standard error. Output to files and pipes
// has no colours and no progress lines.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "tessera/base/os/terminal.h"

namespace tessera::app {

/// Returns the stream for the program's own output. The first call redirects standard output to standard error, because
/// some drivers print to it, and their output would corrupt results and JSON. main calls this before it loads a driver.
std::FILE* output();
template <class... T>
void print(fmt::format_string<T...> format, T&&... values) {
  fmt::print(output(), format, std::forward<T>(values)...);
}

/// For one of several processes that share a terminal. Errors start with `prefix`, and unless `prints` is true, the
/// program's own output is dropped.
void mark_rank(std::string prefix, bool prints);
/// The prefix of errors; empty by default.
const std::string& error_prefix();

/// Writes to standard error. Write errors are ignored, because results are only on standard output.
template <class... T>
void eprint(fmt::format_string<T...> format, T&&... values) {
  const std::string text = fmt::format(format, std::forward<T>(values)...);
  std::fwrite(text.data(), 1, text.size(), stderr);
}

/// If `terminal` is true, removes control characters, because a model's output must not move the cursor or change the
/// settings of the terminal.
std::string escape_control_chars(std::string_view text, bool terminal);

/// Returns the number of columns of the terminal, or 0 if the stream is not a terminal or its width is unknown.
std::size_t terminal_width(std::FILE* stream);
/// Returns the width for wrapping text: the width of the terminal, but at most 120, or 110 if the stream is not a
/// terminal.
std::size_t columns(std::FILE* stream);

/// Colours text for a stream. Text is not coloured if the stream is not a terminal, NO_COLOR is set
/// (https://no-color.org), or TERM is "dumb".
class Style {
 public:
  explicit Style(std::FILE* stream);
  std::string good(std::string_view text) const { return coloured("32", text); }
  std::string bad(std::string_view text) const { return coloured("31", text); }
  std::string strong(std::string_view text) const { return coloured("1", text); }
  std::string faint(std::string_view text) const { return coloured("2", text); }
  /// Returns a coloured tick or cross. Uses "+" and "-" if the locale is not UTF-8.
  std::string mark(bool ok) const;

 private:
  std::string coloured(std::string_view code, std::string_view text) const;
  bool colour_;
};

/// Wraps `text` at spaces to lines of at most `width` columns. The first line starts at `column`, and all other lines
/// are indented by `indent`. Line breaks in the text are kept, and words are not split.
std::string wrapped(std::string_view text, std::size_t indent, std::size_t width, std::size_t column);

/// Prints a label and a wrapped text to standard error.
void print_labelled(std::string_view label, std::string_view text);

/// Returns the number of characters of a UTF-8 text, without colour codes. Wide characters count as one.
std::size_t text_width(std::string_view text);
/// Returns `text`, padded with spaces to `width` characters.
std::string padded(std::string_view text, std::size_t width);

/// A progress line on standard error. On a terminal, the line is overwritten and disappears at the end. Otherwise, only
/// `step` prints, and each call prints a separate line.
class Progress {
 public:
  explicit Progress(bool quiet);
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void step(std::string_view text);    ///< Shows an important step.
  void update(std::string_view text);  ///< Shows a detail on a terminal, at most ten times a second.
  void clear();
  bool overwrites() const { return terminal_ && !quiet_; }  ///< True if progress is shown on a terminal.

 private:
  bool quiet_, terminal_, shown_ = false;
  double last_ = 0;
};

}  // namespace tessera::app
