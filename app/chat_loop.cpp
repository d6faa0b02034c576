// SPDX-License-Identifier: Apache-2.0
#include "chat_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "command.h"
#include "interrupts.h"
#include "line_reader.h"
#include "read_text.h"
#include "terminal.h"
#include "tessera/base/error.h"
#include "tessera/base/os/atomic_file.h"
#include "tessera/base/printable.h"

namespace tessera::app {
namespace {

using nlohmann::ordered_json;

constexpr const char* commands_text = R"(/help          this text
/system TEXT   set the system prompt; without TEXT: remove it
/tool TEXT     return the result of a function that the model called
/retry         answer the last message again
/reset         start over, with the same system prompt
/save FILE     save the conversation as JSON
/load FILE     continue a saved conversation
/quit          end the conversation, like Ctrl-D
Start a message with two slashes to send one that begins with a slash. A line that ends in a backslash continues on the
next one; lines between """ and """ are one message. Ctrl-C stops an answer.
)";

class Talk {
 public:
  Talk(ChatSession& session, const ConverseOptions& options)
      : session_(session), options_(options), seed_(session.options().generate.sampling.seed) {}

  int run() {
    if (options_.once) {
      say_message(options_.prompt);
      return cut_ ? interrupted : success;
    }
    if (reader_.interactive() && !options_.quiet) eprint("/help lists the commands\n\n");
    std::string message;
    while (true) {
      const LineReader::Result result = read_message(message);
      if (result == LineReader::Result::end) {
        if (reader_.interactive()) eprint("\n");
        break;
      }
      if (result == LineReader::Result::interrupted) {
        if (!reader_.interactive()) return interrupted;
        eprint("(Ctrl-D or /quit ends)\n");
        continue;
      }
      // In interactive use, an error is printed and the conversation continues. In a script, it ends the program.
      try {
        if (!act(message)) break;
      } catch (const Error& e) {
        if (!reader_.interactive()) throw;
        eprint("{} {}\n", Style(stderr).bad("tessera: error:"), e.what());
      }
      if (cut_ && !reader_.interactive()) return interrupted;
    }
    return success;
  }

 private:
  /// Reads a message of one or several lines.
  LineReader::Result read_message(std::string& message) {
    constexpr std::string_view quotes = R"(""")";
    std::string line;
    LineReader::Result result = reader_.read("> ", line);
    if (result != LineReader::Result::line) return result;
    message.clear();
    if (line.starts_with(quotes)) {
      std::string rest = line.substr(quotes.size());
      while (!rest.ends_with(quotes)) {
        message += rest + "\n";
        result = reader_.read(". ", rest);
        if (result == LineReader::Result::interrupted) return result;
        if (result == LineReader::Result::end)
          fail<ArgumentError>({.operation = "chat", .wrong = R"(the message that begins with """ has no closing """)"});
      }
      message += rest.substr(0, rest.size() - quotes.size());
      if (message.ends_with('\n')) message.pop_back();
      if (message.starts_with('\n')) message.erase(0, 1);
    } else {
      while (line.ends_with('\\')) {
        line.pop_back();
        message += line + "\n";
        result = reader_.read(". ", line);
        if (result == LineReader::Result::interrupted) return result;
        if (result == LineReader::Result::end) line.clear();
      }
      message += line;
    }
    reader_.remember(message);
    return LineReader::Result::line;
  }

  /// Runs a command or answers a message. Returns false if the command is /quit.
  bool act(const std::string& message) {
    if (message.find_first_not_of(" \t\n") == std::string::npos) return true;
    if (message.starts_with("//")) {
      say_message(message.substr(1));
      return true;
    }
    if (!message.starts_with('/')) {
      say_message(message);
      return true;
    }
    const std::size_t space = message.find_first_of(" \t\n");
    const std::string command = message.substr(0, space);
    std::string rest = space == std::string::npos ? "" : message.substr(message.find_first_not_of(" \t\n", space));
    rest.erase(rest.find_last_not_of(" \t\n") + 1);
    if (command == "/quit" || command == "/exit") return false;
    if (command == "/help")
      eprint("{}", commands_text);
    else if (command == "/system")
      change_system(rest);
    else if (command == "/reset")
      reset();
    else if (command == "/retry")
      retry();
    else if (command == "/tool")
      give_result(rest);
    else if (command == "/save")
      save(rest);
    else if (command == "/load")
      load(rest);
    else
      fail<ArgumentError>(
          {.operation = "chat",
           .with = {{"command", command}},
           .wrong = "unknown command",
           .remedy =
               "/help lists the commands; start a message with two slashes to send one that begins with a slash"});
    return true;
  }

  void note(const std::string& text) {
    if (!options_.quiet) eprint("{}\n", Style(stderr).faint("(" + printable_text(text) + ")"));
  }

  void say_message(const std::string& text) {
    if (const auto open = open_calls(session_.conversation); !open.empty())
      fail<ArgumentError>({.operation = "chat",
                           .with = {{"function", open.front().name}},
                           .wrong = "the model is waiting for the result of a function",
                           .remedy = "/tool TEXT returns it; /retry requests another answer, /reset starts over"});
    add_and_answer({"user", text});
  }

  /// Adds the result of the first pending function call. If no other call is pending, the model continues.
  void give_result(const std::string& text) {
    const std::vector<ToolCall> open = open_calls(session_.conversation);
    if (open.empty()) fail<ArgumentError>({.operation = "chat", .wrong = "the model has no pending function call"});
    ChatMessage result = {.role = "tool", .text = text, .call_id = open.front().id, .name = open.front().name};
    if (open.size() > 1)
      session_.conversation.push_back(std::move(result));
    else
      add_and_answer(std::move(result));
  }

  void add_and_answer(ChatMessage message) {
    session_.conversation.push_back(std::move(message));
    bool kept = false;
    try {
      kept = answer();
    } catch (...) {
      session_.conversation.pop_back();
      throw;
    }
    if (!kept) session_.conversation.pop_back();
  }

  /// Generates and prints an answer. Returns false if it was interrupted before any output.
  bool answer() {
    cut_ = false;
    const std::size_t before = session_.conversation.size();
    session_.options().generate.sampling.seed = seed_ + answers_;
    const bool terminal = os::is_terminal(output());
    const Style style(output());
    bool thinking = false, begun = false, line_ended = false;
    const auto show = [&](const ThinkingSplitter::Parts& parts) {
      if (options_.json) return true;
      if (!parts.thinking.empty() && terminal) {
        app::print("{}", style.faint(escape_control_chars(parts.thinking, terminal)));
        thinking = true, line_ended = parts.thinking.ends_with('\n');
      }
      if (!parts.text.empty()) {
        if (std::exchange(thinking, false)) app::print("\n\n");
        app::print("{}", escape_control_chars(parts.text, terminal));
        begun = true, line_ended = parts.text.ends_with('\n');
      }
      return std::fflush(output()) == 0;  // main reports the error
    };
    ChatAnswer a;
    try {
      a = session_.answer(show);
    } catch (...) {
      if (begun || thinking) app::print("\n");
      throw;
    }
    ++answers_;
    cut_ = a.result.reason == StopReason::cancelled;
    take_interrupt();
    if (options_.json)
      print_json(a);
    else if (a.message.calls.empty() || ((begun || thinking) && !line_ended))
      app::print("\n");
    if (!options_.json)
      for (const ToolCall& c : a.message.calls)
        app::print("{} {}\n", style.strong(escape_control_chars(c.name, terminal)),
                   escape_control_chars(c.arguments, terminal));
    std::fflush(output());
    const bool kept = session_.conversation.size() > before;
    if (cut_) note(kept ? "stopped" : "interrupted before any output: the message is dropped");
    if (a.result.reason == StopReason::max_tokens)
      note(fmt::format("the answer was cut off at {}; --tokens raises the limit",
                       count_noun(a.result.tokens.size(), "token")));
    if (a.result.reason == StopReason::context_full)
      note(
          fmt::format("the context of {} is full and the answer was cut off; /reset starts over, --ctx sets its "
                      "length, --when-full shift drops the oldest turns",
                      count_noun(session_.context(), "token")));
    if (const auto open = open_calls(session_.conversation); !open.empty() && reader_.interactive() && !options_.once)
      note("/tool TEXT returns the result of " + open.front().name);
    if (a.left_out != left_out_)
      note(fmt::format("the oldest {} are no longer in the context", count_noun(a.left_out, "message")));
    left_out_ = a.left_out;
    if (reader_.interactive() && !options_.once && !options_.json) app::print("\n"), std::fflush(output());
    return kept;
  }

  void print_json(const ChatAnswer& a) {
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
    out["seed"] = session_.options().generate.sampling.seed;
    out["prompt_tokens_per_second"] = a.result.prompt_tokens_per_second();
    out["tokens_per_second"] = a.result.tokens_per_second();
    app::print("{}\n", out.dump(-1, ' ', false, ordered_json::error_handler_t::replace));
  }

  void change_system(const std::string& text) {
    Conversation before = session_.conversation;
    set_system(session_.conversation, text);
    try {
      // Some templates reject system prompts. Render the conversation now, so that the error is reported immediately.
      if (session_.conversation.size() > 1 || !text.empty()) {
        Conversation asked = session_.conversation;
        if (asked.back().role == "system") asked.push_back({"user", "?"});
        session_.chat_template().prompt(asked, tokenizer(), session_.options().prompt);
      }
    } catch (...) {
      session_.conversation = std::move(before);
      throw;
    }
    note(text.empty() ? "no system prompt" : "the system prompt is set");
  }

  void reset() {
    Conversation kept;
    for (const ChatMessage& m : session_.conversation)
      if (m.role == "system") kept.push_back(m);
    session_.conversation = std::move(kept);
    note("a new conversation");
  }

  void retry() {
    Conversation& all = session_.conversation;
    const auto answerable = [&](std::size_t size) {
      const Conversation first(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(size));
      return first.back().role == "user" || (first.back().role == "tool" && open_calls(first).empty());
    };
    std::size_t last = all.size();
    while (last > 0 && !answerable(last)) --last;
    if (last == 0) fail<ArgumentError>({.operation = "chat", .wrong = "there is no message to answer again"});
    const Conversation before = all;
    all.resize(last);
    try {
      if (!answer()) all = before;
    } catch (...) {
      all = before;
      throw;
    }
  }

  static void require_file(const std::string& command, const std::string& path) {
    if (path.empty())
      fail<ArgumentError>({.operation = "chat",
                           .wrong = command + " needs a file name",
                           .remedy = "Example: " + command + " chat.json"});
  }

  void save(const std::string& path) {
    require_file("/save", path);
    os::write_text(path, to_json(session_.conversation), {.makes_folders = false});
    note(fmt::format("{} written to {}", count_noun(session_.conversation.size(), "message"), path));
  }

  void load(const std::string& path) {
    require_file("/load", path);
    session_.conversation = read_conversation(path);
    note(fmt::format("{} read from {}", count_noun(session_.conversation.size(), "message"), path));
  }

  const Tokenizer& tokenizer() const { return session_.model().tokenizer(); }

  ChatSession& session_;
  const ConverseOptions& options_;
  LineReader reader_;
  std::uint64_t seed_, answers_ = 0;  // each answer uses a different seed, so that /retry produces a new answer
  std::int64_t left_out_ = 0;
  bool cut_ = false;
};

}  // namespace

Conversation read_conversation(const std::string& path) {
  return conversation_of_json(read_text(path, "the conversation"), path);
}

void set_system(Conversation& conversation, const std::string& text) {
  std::erase_if(conversation, [](const ChatMessage& m) { return m.role == "system"; });
  if (!text.empty()) conversation.insert(conversation.begin(), {"system", text});
}

int converse(ChatSession& session, const ConverseOptions& options) { return Talk(session, options).run(); }

}  // namespace tessera::app
