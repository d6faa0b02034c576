// SPDX-License-Identifier: Apache-2.0
// Terminal output: marks, colours on terminals only, wrapped paragraphs, progress on standard error. Output to files
// and pipes is the same text without colours and progress lines.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "tessera/base/os/terminal.h"

namespace tessera::app {

/// The program's own standard output. The first call, which main makes before any driver is loaded, redirects what
/// others print (drivers do, in C and in C++) to standard error, so that results and JSON stay clean.
std::FILE* output();
template <class... T>
void print(fmt::format_string<T...> format, T&&... values) {
  fmt::print(output(), format, std::forward<T>(values)...);
}

/// Writes to standard error. Errors are ignored: the result is on standard output and in the exit code.
template <class... T>
void eprint(fmt::format_string<T...> format, T&&... values) {
  const std::string text = fmt::format(format, std::forward<T>(values)...);
  std::fwrite(text.data(), 1, text.size(), stderr);
}

/// Removes characters from a model's output that move a terminal's cursor or change its settings. Unchanged for other
/// streams.
std::string escape_control_chars(std::string_view text, bool terminal);

/// Width for wrapping: the terminal's, at most 120; 110 if it is not a terminal.
std::size_t columns(std::FILE* stream);

/// Colours for a stream; none unless it is a terminal, NO_COLOR is not set (https://no-color.org) and TERM is not
/// "dumb".
class Style {
 public:
  explicit Style(std::FILE* stream);
  std::string good(std::string_view text) const { return coloured("32", text); }
  std::string bad(std::string_view text) const { return coloured("31", text); }
  std::string strong(std::string_view text) const { return coloured("1", text); }
  std::string faint(std::string_view text) const { return coloured("2", text); }
  /// A coloured tick or cross; "+" and "-" if the locale is not UTF-8.
  std::string mark(bool ok) const;

 private:
  std::string coloured(std::string_view code, std::string_view text) const;
  bool colour_;
};

/// Wraps `text` at spaces to lines of at most `width` columns, and at its own line breaks; further lines are indented
/// by `indent`. The first line starts at `column`. Longer words are not broken.
std::string wrapped(std::string_view text, std::size_t indent, std::size_t width, std::size_t column);

/// Number of characters of a UTF-8 text, wide ones counted once; for padding tables.
std::size_t text_width(std::string_view text);
/// `text` padded with spaces to `width` characters.
std::string padded(std::string_view text, std::size_t width);

/// A progress line on standard error. On a terminal it is overwritten and disappears at the end; otherwise only `step`
/// prints, one line each.
class Progress {
 public:
  explicit Progress(bool quiet);
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void step(std::string_view text);    ///< a step that deserves its own line
  void update(std::string_view text);  ///< a detail: on terminals only, at most ten times a second
  void clear();
  bool overwrites() const { return terminal_ && !quiet_; }  ///< the line shares the terminal with the output

 private:
  bool quiet_, terminal_, shown_ = false;
  double last_ = 0;
};

}  // namespace tessera::app
