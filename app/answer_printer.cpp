// SPDX-License-Identifier: Apache-2.0
#include "answer_printer.h"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

namespace tessera::app {

AnswerPrinter::AnswerPrinter(bool silent, bool quiet)
    : silent_(silent), terminal_(os::is_terminal(output())), style_(output()), progress_(quiet) {}

void AnswerPrinter::show_progress(std::int64_t done, std::int64_t total) {
  progress_.update(fmt::format("reading {} of {} tokens", done, total));
}

std::size_t AnswerPrinter::width() const {
  const std::size_t columns = terminal_width(output());
  return columns > 0 ? columns : std::string::npos;
}

std::string AnswerPrinter::wrap(std::string_view text) {
  const std::string safe = escape_control_chars(text, terminal_);
  return terminal_ ? wrap_.push(safe, width()) : safe;
}

void AnswerPrinter::print_faint(const std::string& text) {
  if (!text.empty()) app::print("{}", style_.faint(text));
}

void AnswerPrinter::flush_thought() {
  if (std::exchange(thinking_, false)) print_faint(wrap_.flush(width()));
}

bool AnswerPrinter::show(const ThinkingSplitter::Parts& parts) {
  progress_.clear();
  if (silent_) return true;
  if (!parts.thinking.empty() && terminal_) {
    print_faint(wrap(parts.thinking));
    thinking_ = true, line_ended_ = parts.thinking.ends_with('\n');
  }
  if (!parts.text.empty()) {
    if (thinking_) flush_thought(), app::print("{}", wrap("\n\n"));
    app::print("{}", wrap(parts.text));
    begun_ = true, line_ended_ = parts.text.ends_with('\n');
  }
  return std::fflush(output()) == 0;
}

void AnswerPrinter::finish(const std::vector<ToolCall>& calls) {
  progress_.clear();
  if (silent_) return;
  const bool printed = begun_ || thinking_;
  flush_thought();
  app::print("{}", wrap_.flush(width()));
  if (calls.empty() || (printed && !line_ended_)) app::print("\n");
  for (const ToolCall& c : calls)
    app::print("{} {}\n", style_.strong(escape_control_chars(c.name, terminal_)),
               escape_control_chars(c.arguments, terminal_));
  std::fflush(output());
}

void AnswerPrinter::abandon() {
  progress_.clear();
  if (!begun_ && !thinking_) return;
  flush_thought();
  app::print("{}\n", wrap_.flush(width()));
}

void print_answer_json(const ChatAnswer& a, std::uint64_t seed) {
  using nlohmann::ordered_json;
  ordered_json out = {{"role", a.message.role}, {"content", a.message.text}};
  if (!a.message.thinking.empty()) out["reasoning_content"] = a.message.thinking;
  for (const ToolCall& c : a.message.calls)
    out["tool_calls"].push_back(
        {{"id", c.id}, {"type", "function"}, {"function", {{"name", c.name}, {"arguments", c.arguments}}}});
  out["stopped"] = stop_reason_name(a.result.reason);
  out["prompt_tokens"] = a.result.prompt_tokens.size();
  out["read_tokens"] = a.result.read;
  out["tokens"] = a.result.tokens.size();
  out["left_out"] = a.left_out;
  out["seed"] = seed;
  out["prompt_tokens_per_second"] = a.result.prompt_tokens_per_second();
  out["tokens_per_second"] = a.result.tokens_per_second();
  app::print("{}\n", out.dump(-1, ' ', false, ordered_json::error_handler_t::replace));
  std::fflush(output());
}

}  // namespace tessera::app
