// SPDX-License-Identifier: Apache-2.0
#include "line_reader.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <clocale>
#include <cstdlib>
#include <cstring>
#include <cwchar>
#include <string>
#include <string_view>

#ifdef TESSERA_LIBEDIT
#include <histedit.h>
#endif

#include "interrupts.h"
#include "terminal.h"

namespace tessera::app {

#ifdef TESSERA_LIBEDIT
struct LineReader::Editor {
  EditLine* line = nullptr;
  History* history = nullptr;
  std::string prompt;

  ~Editor() {
    if (line) ::el_end(line);
    if (history) ::history_end(history);
  }
};

namespace {

/// Reads one character from the terminal. Replaces libedit's own function, which does not return on Ctrl-C.
int read_character(EditLine*, wchar_t* to) {
  std::mbstate_t state{};
  for (int bytes = 0; bytes < 8; ++bytes) {
    char c = 0;
    ssize_t n = -1;
    while (wait_for_input(STDIN_FILENO) && (n = ::read(STDIN_FILENO, &c, 1)) < 0 && errno == EINTR) {}
    if (n <= 0) return static_cast<int>(n);
    const std::size_t made = std::mbrtowc(to, &c, 1, &state);
    if (made == static_cast<std::size_t>(-2)) continue;
    if (made != static_cast<std::size_t>(-1)) return 1;
    break;
  }
  *to = L'?';  // not valid in the locale's encoding
  return 1;
}

constexpr std::wstring_view paste_end = L"\x1b[201~";

/// Inserts pasted text, which can have several lines. Bound to the sequence that begins it.
unsigned char insert_paste(EditLine* line, wint_t) {
  const auto is_break = [](wchar_t c) { return c == L'\r' || c == L'\n'; };
  std::wstring text;
  wchar_t c = 0, before = 0;
  while (!text.ends_with(paste_end)) {
    if (::el_wgetc(line, &c) != 1) return CC_EOF;
    // The terminal may swap CR and LF. Both together are one line break.
    const bool is_second = is_break(before) && is_break(c) && before != c;
    before = is_second ? 0 : c;
    if (!is_second) text += c;
  }
  text.resize(text.size() - paste_end.size());
  std::ranges::replace(text, L'\r', L'\n');
  std::erase_if(text, [](wchar_t each) { return (each < L' ' && each != L'\n' && each != L'\t') || each == 0x7f; });
  text.erase(text.find_last_not_of(L'\n') + 1);
  if (!text.empty()) ::el_winsertstr(line, text.c_str());
  return CC_REFRESH;
}

}  // namespace

LineReader::LineReader() : interactive_(os::is_terminal(stdin)) {
  const char* term = std::getenv("TERM");
  if (!interactive_ || !os::is_terminal(stderr) || term == nullptr || std::string_view(term) == "dumb") return;
  // The editor needs a multi-byte locale to count columns.
  if (!std::setlocale(LC_CTYPE, "") || MB_CUR_MAX < 4) std::setlocale(LC_CTYPE, "C.UTF-8");
  auto editor = std::make_unique<Editor>();
  editor->line = ::el_init("tessera", stdin, stderr, stderr);
  editor->history = ::history_init();
  if (!editor->line || !editor->history) return;
  HistEvent event{};
  ::history(editor->history, &event, H_SETSIZE, 1000);
  ::history(editor->history, &event, H_SETUNIQUE, 1);
  ::el_set(editor->line, EL_CLIENTDATA, editor.get());
  ::el_set(
      editor->line, EL_PROMPT, +[](EditLine* line) {
        Editor* self = nullptr;
        ::el_get(line, EL_CLIENTDATA, &self);
        return self->prompt.data();
      });
  ::el_set(editor->line, EL_EDITOR, "emacs");
  ::el_set(editor->line, EL_HIST, ::history, editor->history);
  ::el_set(editor->line, EL_GETCFN, read_character);
  ::el_set(editor->line, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  ::el_set(editor->line, EL_ADDFN, "insert-paste", "Insert pasted text", insert_paste);
  ::el_set(editor->line, EL_BIND, "\\e[200~", "insert-paste", nullptr);
  ::el_source(editor->line, nullptr);  // ~/.editrc
  editor_ = std::move(editor);
}

void LineReader::remember(const std::string& line) {
  HistEvent event{};
  if (editor_ && !line.empty()) ::history(editor_->history, &event, H_ENTER, line.c_str());
}

LineReader::Result LineReader::read(const std::string& prompt, std::string& line) {
  if (!editor_) {
    if (interactive_) eprint("{}", prompt);
    return read_plain(line);
  }
  editor_->prompt = prompt;
  int count = 0;
  const BracketedPaste paste;
  const char* const text = ::el_gets(editor_->line, &count);
  if (take_interrupt()) {
    ::el_reset(editor_->line);
    eprint("\n");
    return Result::interrupted;
  }
  if (!text || count <= 0) return Result::end;
  line.assign(text, static_cast<std::size_t>(count));
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
  return Result::line;
}
#else
struct LineReader::Editor {};

LineReader::LineReader() : interactive_(os::is_terminal(stdin)) {}
void LineReader::remember(const std::string&) {}
LineReader::Result LineReader::read(const std::string& prompt, std::string& line) {
  if (interactive_) eprint("{}", prompt);
  return read_plain(line);
}
#endif

LineReader::~LineReader() = default;

LineReader::Result LineReader::read_plain(std::string& line) {
  while (true) {
    const std::size_t end = buffer_.find('\n');
    if (end != std::string::npos || (ended_ && !buffer_.empty())) {
      line = buffer_.substr(0, end);
      buffer_.erase(0, end == std::string::npos ? end : end + 1);
      if (!line.empty() && line.back() == '\r') line.pop_back();
      return Result::line;
    }
    if (ended_) return Result::end;
    if (!wait_for_input(STDIN_FILENO)) {
      take_interrupt();
      if (interactive_) eprint("\n");
      return Result::interrupted;
    }
    char some[4096];
    const ssize_t n = ::read(STDIN_FILENO, some, sizeof some);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      ended_ = true;
    else
      buffer_.append(some, static_cast<std::size_t>(n));
  }
}

}  // namespace tessera::app
