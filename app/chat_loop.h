// SPDX-License-Identifier: Apache-2.0
// The loop of `tessera chat`: reads messages and commands, prints answers.
#pragma once

#include <string>

#include "tessera/llm/chat_session.h"

namespace tessera::app {

struct ConverseOptions {
  std::string prompt;  ///< the message to answer with `once`
  bool json = false, quiet = false, once = false;
};

/// Reads messages from standard input until it ends, or answers the one message. Returns the exit code.
int converse(ChatSession& session, const ConverseOptions& options);

/// Reads a conversation saved by /save. Throws FormatError for other contents, ArgumentError if the file cannot be
/// read.
Conversation read_conversation(const std::string& path);
/// Sets the system prompt; removes it if `text` is empty.
void set_system(Conversation& conversation, const std::string& text);

}  // namespace tessera::app
