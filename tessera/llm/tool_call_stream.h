// SPDX-License-Identifier: Apache-2.0
// Parses tool calls while they are generated, so that their arguments can be sent in pieces.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/llm/tool_calls.h"

namespace tessera {

/// A part of a tool call, as it is generated.
struct ToolCallDelta {
  std::size_t index = 0;  ///< number of the call in the answer
  std::string id = {};    ///< in the first part of a call: the id that the model wrote before the arguments, or empty
  std::string name = {};  ///< in the first part of a call: the name of the function
  std::string arguments;  ///< the characters of the arguments that follow those of the last part
};

/// Writes one JSON object without white space while its characters arrive. The result is the same as that of parsing
/// and serialising the object, except that repeated keys are kept.
class JsonCompactor {
 public:
  /// `depth` is the number of objects that are already open. If it is not 0, a value of the last one precedes the text.
  explicit JsonCompactor(std::size_t depth = 0)
      : open_(depth, '{'), expected_(depth > 0 ? Expected::separator : Expected::value) {}
  /// Appends to `out` the numbers, literals and characters that `text` completes. Returns the number of characters that
  /// belong to the value.
  std::size_t push(std::string_view text, std::string& out);
  /// True after the bracket that ends the value.
  bool done() const { return done_; }
  /// True if the text is not JSON, or has too many levels of nesting. push() then does nothing.
  bool failed() const { return failed_; }

 private:
  enum class Expected { value, value_or_end, key, key_or_end, colon, separator };
  /// Updates `expected_` for a character between strings, numbers and literals. Returns false if it is not valid here.
  bool push_structure(char c);
  void push_quoted(char c, std::string& out);
  void push_unquoted(char c, std::string& out);
  void end_scalar(std::string& out);
  void end_escape(std::string& out);

  std::string open_;  ///< the brackets that are open
  Expected expected_;
  bool quoted_ = false, done_ = false, failed_ = false;
  std::string scalar_, escape_, character_;  ///< incomplete: a number or literal; an escape sequence; a character
};

/// Reads the calls in text that grows. It is optimistic: the text that follows can still show that it is not a call.
class ToolCallStream {
 public:
  /// Returns the parts of calls that `held` completes. `held` is ToolCallSplitter::held(), in the format `form`, so it
  /// begins with the text of the previous call of this function.
  std::vector<ToolCallDelta> read(std::string_view held, const ToolCallForm& form);
  /// Returns the parts of the calls in `end` that read() has not returned. If a call is malformed, but read() has
  /// returned a part of it, changes `end` to the calls that read() has returned, and the text after them if calls need
  /// no marks.
  std::vector<ToolCallDelta> finish(ToolCallSplitter::End& end);
  /// True if the arguments of the last call are incomplete.
  bool is_cut() const { return in_call_; }

 private:
  enum class State { between, arguments, rest, elements, stopped };
  bool begin_call(std::string_view& text, const ToolCallForm& form);
  void read_arguments(std::string_view& text);
  void read_elements(std::string_view& text);
  void add(std::string arguments);

  State state_ = State::between;
  std::size_t at_ = 0;        ///< the text before has been read
  bool bare_ = false;         ///< calls need no marks
  int lists_ = 0;             ///< open lists of calls
  int braces_ = 0;            ///< open braces around the arguments
  JsonCompactor json_;        ///< of the arguments, then of the rest of the call
  std::size_t searched_ = 0;  ///< the text after `at_` in which no end of an element is
  bool in_call_ = false;
  std::vector<ToolCall> calls_;
  std::vector<ToolCallDelta> deltas_;
};

}  // namespace tessera
