// SPDX-License-Identifier: Apache-2.0
// How the program writes for people: marks, colours on terminals only, wrapped paragraphs, progress on standard error.
// Output that goes to a file or a pipe is the same text without colours and without lines that are overwritten.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "tessera/base/os/terminal.h"

namespace tessera::app {

/// Standard output, for this program alone: from the first call on, which main makes before any driver is loaded, what
/// others print there (drivers do, in C as in C++) goes to standard error, so that a result is a result and JSON is
/// JSON.
std::FILE* output();
template <class... T>
void print(fmt::format_string<T...> format, T&&... values) {
  fmt::print(output(), format, std::forward<T>(values)...);
}

/// Writes to standard error. That it may be closed or full is no reason to end: what matters is on standard output and
/// in the exit code.
template <class... T>
void eprint(fmt::format_string<T...> format, T&&... values) {
  const std::string text = fmt::format(format, std::forward<T>(values)...);
  std::fwrite(text.data(), 1, text.size(), stderr);
}

/// What a model writes, for a terminal: without characters that move the cursor or change its settings. Unchanged for
/// other streams.
std::string escape_control_chars(std::string_view text, bool terminal);

/// Columns to wrap paragraphs at: the terminal's, 120 at most; 110 where there is none.
std::size_t columns(std::FILE* stream);

/// Colours for a stream: none unless it is a terminal, NO_COLOR is not set (https://no-color.org) and TERM is not
/// "dumb".
class Style {
 public:
  explicit Style(std::FILE* stream);
  std::string good(std::string_view text) const { return coloured("32", text); }
  std::string bad(std::string_view text) const { return coloured("31", text); }
  std::string strong(std::string_view text) const { return coloured("1", text); }
  std::string faint(std::string_view text) const { return coloured("2", text); }
  /// A tick or a cross, coloured; "+" and "-" where the locale is not UTF-8.
  std::string mark(bool ok) const;

 private:
  std::string coloured(std::string_view code, std::string_view text) const;
  bool colour_;
};

/// `text` broken at spaces so that no line passes `width`, and where it has line breaks of its own; each further line
/// behind `indent` spaces. The first line is taken to start at `column`. Words longer than a line stay whole.
std::string wrapped(std::string_view text, std::size_t indent, std::size_t width, std::size_t column);

/// Characters that a UTF-8 text takes on a terminal, wide ones counted once; for padding tables.
std::size_t text_width(std::string_view text);
/// `text` and spaces up to `width` characters.
std::string padded(std::string_view text, std::size_t width);

/// A line on standard error that says how far something got. On a terminal it overwrites itself and disappears at the
/// end; elsewhere only `step` writes, a line each.
class Progress {
 public:
  explicit Progress(bool quiet);
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void step(std::string_view text);    ///< something worth a line of its own
  void update(std::string_view text);  ///< a detail: terminals only, ten times a second at most
  void clear();
  bool overwrites() const { return terminal_ && !quiet_; }  ///< the line shares the terminal with what is printed

 private:
  bool quiet_, terminal_, shown_ = false;
  double last_ = 0;
};

}  // namespace tessera::app
