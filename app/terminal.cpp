// SPDX-License-Identifier: Apache-2.0
#include "terminal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "clock.h"

namespace tessera::app {
namespace {

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

bool utf8_locale() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    std::string value(environment(name));
    if (value.empty()) continue;
    std::transform(value.begin(), value.end(), value.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
    return value.find("utf-8") != std::string::npos || value.find("utf8") != std::string::npos;
  }
  return false;
}

/// Duplicates the descriptor of standard output, redirects standard output to standard error, and returns a stream for
/// the duplicate.
std::FILE* set_output_apart() {
  std::fflush(stdout);
  const int kept = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  std::FILE* const stream = kept < 0 ? nullptr : ::fdopen(kept, "w");
  if (stream == nullptr) return stdout;  // standard output is closed; main reports the write error
  if (::dup2(STDERR_FILENO, STDOUT_FILENO) >= 0) return stream;
  const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);  // standard error is closed
  ::dup2(nowhere, STDOUT_FILENO);
  ::close(nowhere);
  return stream;
}

std::FILE* dropped = nullptr;  ///< the stream of a rank that does not print
std::string rank_prefix;

}  // namespace

std::FILE* output() {
  static std::FILE* const stream = set_output_apart();
  return dropped != nullptr ? dropped : stream;
}

void mark_rank(std::string prefix, bool prints) {
  rank_prefix = std::move(prefix);
  if (!prints) dropped = std::fopen("/dev/null", "w");
}
const std::string& error_prefix() { return rank_prefix; }

std::size_t terminal_width(std::FILE* stream) {
  winsize size{};
  return os::is_terminal(stream) && ::ioctl(::fileno(stream), TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

std::size_t columns(std::FILE* stream) {
  const std::size_t width = terminal_width(stream);
  return width < 40 ? 110 : std::min<std::size_t>(width, 120);
}

std::string escape_control_chars(std::string_view text, bool terminal) {
  if (!terminal) return std::string(text);
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    if (c == 0xc2 && next >= 0x80 && next < 0xa0)
      ++i;  // U+0080 to U+009F
    else if ((c >= 0x20 && c != 0x7f) || c == '\n' || c == '\t')
      out += text[i];
  }
  return out;
}

Style::Style(std::FILE* stream)
    : colour_(os::is_terminal(stream) && environment("NO_COLOR").empty() && environment("TERM") != "dumb") {}

std::string Style::coloured(std::string_view code, std::string_view text) const {
  return colour_ ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : std::string(text);
}

std::string Style::mark(bool ok) const {
  static const bool utf8 = utf8_locale();
  if (ok) return good(utf8 ? "✓" : "+");
  return bad(utf8 ? "✗" : "-");
}

std::size_t text_width(std::string_view text) {
  std::size_t n = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b') {  // colour codes have no width
      while (i < text.size() && text[i] != 'm') ++i;
      continue;
    }
    n += (static_cast<unsigned char>(text[i]) & 0xc0) != 0x80;
  }
  return n;
}

std::string padded(std::string_view text, std::size_t width) {
  std::string out(text);
  const std::size_t has = text_width(text);
  if (has < width) out.append(width - has, ' ');
  return out;
}

std::string wrapped(std::string_view text, std::size_t indent, std::size_t width, std::size_t column) {
  std::string out;
  bool fresh = true;  // the line is still empty
  const auto new_line = [&] {
    out += '\n';
    out.append(indent, ' ');
    column = indent;
    fresh = true;
  };
  while (!text.empty()) {
    const std::size_t end = std::min(text.find_first_of(" \n"), text.size());
    const std::string_view word = text.substr(0, end);
    const bool breaks = end < text.size() && text[end] == '\n' && end + 1 < text.size();
    text.remove_prefix(std::min(end + 1, text.size()));
    if (word.empty()) {
      if (breaks && !fresh) new_line();
      continue;
    }
    if (!fresh && column + 1 + text_width(word) > width) new_line();
    if (!fresh) out += ' ', ++column;
    out += word;
    column += text_width(word);
    fresh = false;
    if (breaks) new_line();
  }
  return out;
}

void print_labelled(std::string_view label, std::string_view text) {
  constexpr std::size_t indent = 10;
  eprint("{:<{}} {}\n", label, indent - 1, wrapped(text, indent, columns(stderr), indent));
}

Progress::Progress(bool quiet) : quiet_(quiet), terminal_(os::is_terminal(stderr) && environment("TERM") != "dumb") {}

void Progress::step(std::string_view text) {
  if (quiet_) return;
  if (!terminal_) {
    eprint("{}\n", text);
    return;
  }
  last_ = 0;
  update(text);
}

void Progress::update(std::string_view text) {
  if (quiet_ || !terminal_) return;
  const double time = now();
  if (time - last_ < 0.1) return;
  last_ = time;
  // Truncate the line to the width of the terminal. In a wrapped line, a carriage return would not go to the start.
  std::string line(text);
  const std::size_t room = columns(stderr) - 1;
  if (line.size() > room) line.resize(room);
  eprint("\r{}\x1b[K", line);
  std::fflush(stderr);
  shown_ = true;
}

void Progress::clear() {
  if (!shown_) return;
  eprint("\r\x1b[K");
  std::fflush(stderr);
  shown_ = false;
}

}  // namespace tessera::app
