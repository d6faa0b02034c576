// SPDX-License-Identifier: Apache-2.0
// The conversation of `tessera chat`: messages and commands in, answers out.
#pragma once

#include <string>

#include "tessera/llm/chat_session.h"

namespace tessera::app {

struct ConverseOptions {
  std::string prompt;  ///< the one message, with `once`
  bool json = false, quiet = false, once = false;
};

/// Reads messages from standard input, or answers the one message, until there are no more. Gives the exit code.
int converse(ChatSession& session, const ConverseOptions& options);

/// A conversation of /save. FormatError for what is none, ArgumentError for a file that cannot be read.
Conversation read_conversation(const std::string& path);
/// Makes `text` the system prompt; empty: there is none.
void set_system(Conversation& conversation, const std::string& text);

}  // namespace tessera::app
