// SPDX-License-Identifier: Apache-2.0
// The main loop of `tessera chat`: reads messages and commands, and prints answers.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tessera/llm/chat_session.h"

namespace tessera::app {

struct ConverseOptions {
  std::string prompt;  ///< the message to answer if `once` is true
  bool json = false, quiet = false, once = false;
  std::vector<std::pair<std::string, std::string>> about = {};  ///< labels and texts that /show prints
};

/// Answers messages from standard input until it ends, or only `options.prompt` if `once` is true. Returns the exit
/// code.
int converse(ChatSession& session, const ConverseOptions& options);

/// Reads a conversation that /save has written. Throws FormatError if the contents are invalid, and ArgumentError if
/// the file cannot be read.
Conversation read_conversation(const std::string& path);
/// Sets the system prompt, or removes it if `text` is empty.
void set_system(Conversation& conversation, const std::string& text);

}  // namespace tessera::app
