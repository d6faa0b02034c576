// SPDX-License-Identifier: Apache-2.0
#include "message_reader.h"

#include <string_view>

#include "tessera/base/error.h"

namespace tessera::app {
namespace {

constexpr std::string_view quotes = R"(""")";

}  // namespace

MessageReader::Result MessageReader::read_quoted(std::string rest, std::string& message) {
  while (!rest.ends_with(quotes)) {
    message += rest + "\n";
    const Result result = reader_.read(". ", rest);
    if (result == Result::interrupted) return result;
    if (result == Result::end)
      fail<ArgumentError>({.operation = "chat", .wrong = R"(the message that begins with """ has no closing """)"});
  }
  message += rest.substr(0, rest.size() - quotes.size());
  if (message.ends_with('\n')) message.pop_back();
  if (message.starts_with('\n')) message.erase(0, 1);
  return Result::line;
}

MessageReader::Result MessageReader::read(std::string& message) {
  std::string line;
  Result result = reader_.read("> ", line);
  if (result != Result::line) return result;
  message.clear();
  const bool is_pasted = line.find('\n') != std::string::npos;
  is_literal_ = is_pasted || line.starts_with(quotes);
  if (is_pasted) {
    message = line;
  } else if (is_literal_) {
    result = read_quoted(line.substr(quotes.size()), message);
    if (result != Result::line) return result;
  } else {
    while (line.ends_with('\\')) {
      line.pop_back();
      message += line + "\n";
      result = reader_.read(". ", line);
      if (result == Result::interrupted) return result;
      if (result == Result::end) line.clear();
    }
    message += line;
  }
  reader_.remember(message);
  return Result::line;
}

}  // namespace tessera::app
