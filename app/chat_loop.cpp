// SPDX-License-Identifier: Apache-2.0
#include "chat_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "answer_printer.h"
#include "chat_settings.h"
#include "command.h"
#include "interrupts.h"
#include "message_reader.h"
#include "model_options.h"
#include "read_text.h"
#include "terminal.h"
#include "tessera/base/error.h"
#include "tessera/base/os/atomic_file.h"
#include "tessera/base/printable.h"

namespace tessera::app {
namespace {

constexpr const char* commands_text = R"(/help          this text
/system TEXT   set the system prompt; without TEXT: remove it
/set           list the options of sampling
/set NAME X    change an option: /set temperature 0.2
/show          show the model, the device, the context and the options
/tool TEXT     return the result of a function that the model called
/retry         answer the last message again
/reset         start over, with the same system prompt
/save FILE     save the conversation as JSON
/load FILE     continue a saved conversation
/quit          end the conversation, like Ctrl-D
Start a message with two slashes to send one that begins with a slash. A line that ends in a backslash continues on the
next one; lines between """ and """, and pasted lines, are one message. Ctrl-C stops an answer.
)";

/// Replaces a leading "~/" by the user's home folder, as shells do.
std::string expand_home(const std::string& path) {
  const char* const home = std::getenv("HOME");
  return home != nullptr && (path == "~" || path.starts_with("~/")) ? home + path.substr(1) : path;
}

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
      const MessageReader::Result result = reader_.read(message);
      if (result == MessageReader::Result::end) {
        if (reader_.interactive()) eprint("\n");
        break;
      }
      if (result == MessageReader::Result::interrupted) {
        if (!reader_.interactive()) return interrupted;
        eprint("(Ctrl-D or /quit ends)\n");
        continue;
      }
      // In interactive use, an error is printed and the conversation continues. In a script, it ends the program.
      try {
        if (reader_.is_literal())
          say_message(message);
        else if (!act(message))
          break;
      } catch (const Error& e) {
        if (!reader_.interactive()) throw;
        eprint("{} {}\n", Style(stderr).bad("tessera: error:"), e.what());
      }
      if (cut_ && !reader_.interactive()) return interrupted;
    }
    return success;
  }

 private:
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
    else if (command == "/set")
      set(rest);
    else if (command == "/show")
      show();
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

  /// True if a person reads the answers between messages.
  bool at_terminal() const { return reader_.interactive() && !options_.once && !options_.json; }

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
    warn_unless_utf8(message.text, "the message");
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
    AnswerPrinter printer(options_.json, options_.quiet);
    session_.options().generate.on_read = [&](auto done, auto total) { printer.show_progress(done, total); };
    ChatAnswer a;
    try {
      a = session_.answer([&](const ThinkingSplitter::Parts& parts) { return printer.show(parts); });
    } catch (...) {
      printer.abandon();
      throw;
    }
    ++answers_;
    used_ = session_.text().tokens().size();
    cut_ = a.result.reason == StopReason::cancelled;
    take_interrupt();
    printer.finish(a.message.calls);
    if (options_.json) print_answer_json(a, session_.options().generate.sampling.seed);
    const bool kept = session_.conversation.size() > before;
    if (cut_) note(kept ? "stopped" : "interrupted before any output: the message is dropped");
    if (a.result.reason == StopReason::max_tokens)
      note(fmt::format("the answer was cut off at {}; --tokens or /set tokens raises the limit",
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
    if (at_terminal() && os::is_terminal(stderr) && a.result.tokens_per_second() > 0)
      note(
          fmt::format("{}, {}", count_noun(a.result.tokens.size(), "token"), per_second(a.result.tokens_per_second())));
    if (at_terminal()) app::print("\n"), std::fflush(output());
    return kept;
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

  /// Lists or changes options.
  void set(const std::string& text) {
    GenerateOptions& options = session_.options().generate;
    options.sampling.seed = seed_ + answers_;  // of the next answer
    if (text.empty()) {
      eprint("{}", settings_text(options));
      return;
    }
    const std::string changed = change_setting(options, text);
    if (options.sampling.seed != seed_ + answers_) seed_ = options.sampling.seed, answers_ = 0;
    note(changed);
  }

  void show() {
    for (const auto& [label, text] : options_.about) print_labelled(label, text);
    print_labelled("context", fmt::format("{} of {} tokens used, {}", used_, session_.context(),
                                          count_noun(session_.conversation.size(), "message")));
    set("");
  }

  void reset() {
    Conversation kept;
    for (const ChatMessage& m : session_.conversation)
      if (m.role == "system") kept.push_back(m);
    session_.conversation = std::move(kept);
    used_ = 0;
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

  static bool is_conversation(const std::string& path) {
    try {
      read_conversation(path);
      return true;
    } catch (const Error&) {
      return false;
    }
  }

  /// Writes the conversation. Replaces only a file with a conversation.
  void save(const std::string& name) {
    require_file("/save", name);
    const std::string path = expand_home(name);
    if (std::error_code ignored; std::filesystem::is_regular_file(path, ignored) && !is_conversation(path))
      fail<ArgumentError>({.operation = "chat",
                           .with = {{"file", path}},
                           .wrong = "the file exists and is not a conversation, so it is not replaced",
                           .remedy = "Choose another name"});
    os::write_text(path, to_json(session_.conversation), {.makes_folders = false});
    note(fmt::format("{} written to {}", count_noun(session_.conversation.size(), "message"), path));
  }

  void load(const std::string& name) {
    require_file("/load", name);
    const std::string path = expand_home(name);
    session_.conversation = read_conversation(path);
    used_ = 0;
    note(fmt::format("{} read from {}", count_noun(session_.conversation.size(), "message"), path));
  }

  const Tokenizer& tokenizer() const { return session_.model().tokenizer(); }

  ChatSession& session_;
  const ConverseOptions& options_;
  MessageReader reader_;
  std::uint64_t seed_, answers_ = 0;  // each answer uses a different seed, so that /retry produces a new answer
  std::int64_t left_out_ = 0;
  std::size_t used_ = 0;  // tokens in the context after the last answer
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
