// SPDX-License-Identifier: Apache-2.0
// Chat templates, thinking, tool calls and stop strings. The built-in templates are compared with llama.cpp's
// (tests/data/chat_cases.json). User text that looks like a special token must remain text.
#include "tessera/llm/chat.h"
#include "tessera/llm/gguf_writer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "tessera/base/test_seed.h"
#include "tessera/llm/grammar/grammar.h"
#include "tessera/llm/grammar/matcher.h"
#include "tessera/llm/stop_filter.h"
#include "tessera/llm/tool_call_stream.h"
#include "tessera/llm/tool_grammar.h"
#include "tests/grammar/schema_validator.h"
#include "tests/llm/chat_vocabulary.h"
#include "tests/support/errors.h"

namespace tessera {
namespace {

using test::expect_throw;
using test::ParsedFile;
using test::set_byte_vocabulary;

const std::vector<std::string> special = {"<s>",        "</s>",     "<|im_start|>", "<|im_end|>",
                                          "<|eot_id|>", "<|user|>", "<think>",      "</think>"};

GgufWriter writer(const std::vector<std::string>& tokens = special, std::optional<bool> adds_bos = {},
                  const std::string& chat_template = {}) {
  GgufWriter w;
  set_byte_vocabulary(w, tokens);
  if (adds_bos) {
    w.set("tokenizer.ggml.bos_token_id", std::uint32_t{0});
    w.set("tokenizer.ggml.add_bos_token", *adds_bos);
  }
  w.set("tokenizer.ggml.eos_token_id", std::uint32_t{1});
  if (!chat_template.empty()) w.set("tokenizer.chat_template", chat_template);
  return w;
}

Tokenizer tokenizer(const GgufWriter& w) { return Tokenizer(ParsedFile(w).file); }

TEST(ChatTemplate, BuiltInTemplatesMatchLlamaCpp) {
  std::ifstream in(TESSERA_CHAT_CASES);
  const auto cases = nlohmann::json::parse(in);
  const Tokenizer without_bos = tokenizer(writer());
  std::map<std::string, int> seen;
  for (const auto& c : cases) {
    const Conversation conversation = conversation_of_json(c["messages"].dump(), "case");
    const ChatTemplate t = ChatTemplate::built_in(c["family"].get<std::string>());
    EXPECT_EQ(t.prompt(conversation, without_bos).text, c["text"].get<std::string>()) << c["family"];
    ++seen[c["family"]];
  }
  EXPECT_EQ(cases.size(), 60u);
  // The excluded families have spaces or end tokens in llama.cpp that differ from the model cards.
  std::vector<std::string> rest;
  for (const std::string& family : ChatTemplate::families())
    if (!seen.count(family)) rest.push_back(family);
  EXPECT_EQ(rest, (std::vector<std::string>{"llama2", "zephyr"}));
}

TEST(ChatTemplate, Llama2AndZephyrFollowTheirModelCards) {
  const Tokenizer t = tokenizer(writer(special, true));
  const Conversation c = {{"system", " Be brief. "}, {"user", "Hi "}, {"assistant", " Hello "}, {"user", "Bye"}};
  EXPECT_EQ(ChatTemplate::built_in("llama2").prompt(c, t).text,
            "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHi [/INST] Hello </s><s>[INST] Bye [/INST]");
  EXPECT_EQ(ChatTemplate::built_in("zephyr").prompt(c, t).text,
            "<|system|>\n Be brief. </s>\n<|user|>\nHi </s>\n<|assistant|>\n Hello </s>\n<|user|>\nBye</s>\n"
            "<|assistant|>\n");
}

std::string with_bos(const std::string& body) { return "{{ bos_token }}" + body; }
const std::string echo =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

TEST(ChatTemplate, PromptHasExactlyOneBeginToken) {
  const Conversation c = {{"user", "Hi"}};
  const auto begins = [&](const std::string& source, std::optional<bool> adds) {
    const auto tokens = ChatTemplate(source, "t").prompt(c, tokenizer(writer(special, adds))).tokens;
    return std::find_if(tokens.begin(), tokens.end(), [](TokenId t) { return t != 0; }) - tokens.begin();
  };
  EXPECT_EQ(begins(with_bos(echo), true), 1);
  EXPECT_EQ(begins(with_bos(with_bos(echo)), true), 1);
  EXPECT_EQ(begins(with_bos(echo), false), 1);
  EXPECT_EQ(begins(echo, true), 1);
  EXPECT_EQ(begins(echo, false), 0);
  EXPECT_EQ(begins(with_bos(echo), std::nullopt), 0);
}

TEST(ChatTemplate, SpecialTokensComeOnlyFromTheTemplate) {
  const Tokenizer t = tokenizer(writer(special, true));
  const ChatTemplate chat(echo, "t");
  const auto count = [&](const std::vector<TokenId>& tokens) {
    return std::count_if(tokens.begin(), tokens.end(),
                         [&](TokenId id) { return static_cast<std::size_t>(id) < special.size(); });
  };
  const auto honest = chat.prompt({{"user", "Hi"}}, t);
  EXPECT_EQ(count(honest.tokens), 4);
  // User text does not change the special tokens, and decoding restores the text.
  std::mt19937_64 rng(test_seed());
  for (int i = 0; i < 200; ++i) {
    std::string words;
    for (int n = 0; n < 6; ++n) words += special[rng() % special.size()].substr(rng() % 3) + (rng() % 2 ? " x" : "");
    const auto p = chat.prompt({{"user", words}}, t);
    EXPECT_EQ(count(p.tokens), 4) << words;
    EXPECT_EQ(t.decode(p.tokens, true), "<s><|im_start|>user\n" + words + "<|im_end|><|im_start|>assistant\n");
  }
  for (const char* role : {"system", "assistant", "tool", "<|im_end|>", "owner"})
    EXPECT_EQ(count(chat.prompt({{role, "<|im_end|><s>"}}, t).tokens), 4) << role;
  // The origin of text is tracked even if the template modifies it.
  for (const char* change : {"m.content | trim", "m.content.strip()", "(' ' + m.content)[1:]", "m.content | upper"}) {
    const ChatTemplate changed("<|im_start|>{% for m in messages %}{{ " + std::string(change) + " }}{% endfor %}", "t");
    EXPECT_EQ(count(changed.prompt({{"user", " <|im_end|></s> "}}, t).tokens), 2) << change;
  }
}

TEST(ChatTemplate, SelectsFileVariantOrBuiltInTemplate) {
  GgufWriter w = writer(special, true, "file {{ messages[0].content }}");
  w.set("tokenizer.chat_template.tool_use", std::string("tools {{ messages[0].content }}"));
  const ParsedFile file(w), bare(writer(special, true));
  const Tokenizer t(file.file);
  const auto text = [&](const ChatTemplate& chat) { return chat.prompt({{"user", "X"}}, t).text; };
  EXPECT_EQ(text(ChatTemplate::of(file.file)), "file X");
  EXPECT_EQ(text(ChatTemplate::of(file.file, "tool_use")), "tools X");
  EXPECT_EQ(text(ChatTemplate::of(file.file, "chatml")), "<|im_start|>user\nX<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_TRUE(ChatTemplate::of(file.file, "chatml").is_built_in());
  EXPECT_FALSE(ChatTemplate::of(file.file).is_built_in());
  expect_throw<FormatError>([&] { ChatTemplate::of(bare.file); },
                            {"test.gguf", "tokenizer.chat_template", "has no chat template", "--template NAME",
                             "zephyr", "contains the special tokens of chatml"});
  expect_throw<ArgumentError>([&] { ChatTemplate::of(file.file, "alpaca"); },
                              {"alpaca", "The file has tool_use", "mistral-tekken"});
  expect_throw<ArgumentError>([&] { ChatTemplate::built_in("alpaca"); }, {"alpaca", "chatml"});
}

TEST(ChatTemplate, RenderingErrorsNameTheCause) {
  const Tokenizer t = tokenizer(writer());
  const Conversation c = {{"user", "X"}};
  expect_throw<FormatError>([] { ChatTemplate("{% include 'x' %}", "the chat template of f"); },
                            {"the chat template of f", "include", "--template"});
  expect_throw<FormatError>([&] { ChatTemplate("{{ messages[0].nothing.more }}", "t").prompt(c, t); }, {"t fails"});
  expect_throw<FormatError>(
      [&] {
        ChatTemplate("{% for i in range(100000) %}{% for j in range(100000) %}x{% endfor %}{% endfor %}", "t")
            .prompt(c, t);
      },
      {"t fails", "steps"});
  expect_throw<ArgumentError>(
      [&] { ChatTemplate("{{ raise_exception('System role not supported') }}", "t").prompt(c, t); },
      {"rejects this conversation", "System role not supported"});
  for (const char* arguments : {"x", "[]", "1", "{"})
    expect_throw<ArgumentError>([&] { ChatTemplate(echo, "t").prompt(c, t, {.arguments = arguments}); },
                                {"not a JSON object", "enable_thinking"});
}

TEST(ChatTemplate, SupportsArgumentsContentPartsAndEndText) {
  const Tokenizer t = tokenizer(writer());
  const Conversation c = {{"user", "X"}};
  const ChatTemplate asks("{{ messages[0].content }}{{ ' thinks' if enable_thinking else ' answers' }}", "t");
  EXPECT_EQ(asks.prompt(c, t).text, "X answers");
  EXPECT_EQ(asks.prompt(c, t, {.arguments = R"({"enable_thinking": true})"}).text, "X thinks");
  EXPECT_EQ(ChatTemplate(echo, "t").prompt(c, t, {.add_generation_prompt = false}).text,
            "<|im_start|>user\nX<|im_end|>");
  // Some templates accept content only as a list of parts.
  const ChatTemplate parts(
      "{% for m in messages %}{% for p in m.content %}{% if p.type == 'text' %}[{{ p.text }}]"
      "{% endif %}{% endfor %}{% endfor %}",
      "t");
  EXPECT_EQ(parts.prompt(c, t).text, "[X]");

  EXPECT_EQ(ChatTemplate::built_in("chatml").end_text(t), "");
  EXPECT_TRUE(ChatTemplate::built_in("chatml").missing_tokens(t).empty());
  EXPECT_EQ(ChatTemplate::built_in("gemma").end_text(t), "<end_of_turn>");
  EXPECT_EQ(ChatTemplate::built_in("gemma").missing_tokens(t),
            (std::vector<std::string>{"<end_of_turn>", "<start_of_turn>"}));
}

TEST(ChatTemplate, PassesThinkingAsTheTemplateExpects) {
  const Tokenizer t = tokenizer(writer());
  const Conversation c = {{"user", "X"}, {"assistant", "Y", "hm"}, {"user", "Z"}};
  const auto text = [&](const std::string& source) { return ChatTemplate(source, "t").prompt(c, t).text; };
  EXPECT_EQ(text("{% for m in messages %}({{ m.content }}){% endfor %}"), "(X)(Y)(Z)");
  EXPECT_EQ(text("{% for m in messages %}({{ m.content.split('</think>')[-1] }}|{{ m.content }}){% endfor %}"),
            "(X|X)(\n\nY|<think>\nhm\n</think>\n\nY)(Z|Z)");
  EXPECT_EQ(text("{% for m in messages %}({{ m.reasoning_content or '-' }}|{{ m.content }}){% endfor %}"),
            "(-|X)(hm|Y)(-|Z)");
  // The prompt contains the opening mark of the thinking.
  EXPECT_EQ(ChatTemplate(echo + "<think>\n", "t").prompt(c, t).thinking, std::optional<std::size_t>(0));
  EXPECT_EQ(ChatTemplate(echo + "<think>\n\n</think>\n\n", "t").prompt(c, t).thinking, std::nullopt);
  EXPECT_EQ(ChatTemplate("{{ messages[0].content }}", "t").prompt({{"user", "<think>"}}, t).thinking, std::nullopt);
}

TEST(ThinkingSplitter, SplitsThinkingFromAnswerForPiecesOfAnySize) {
  struct Case {
    std::string written, thinking, text;
    std::optional<std::size_t> inside = {};
  };
  const std::vector<Case> cases = {
      {"Hello <think>", "", "Hello <think>"},
      {" \n Hello\n", "", " \n Hello\n"},
      {"<think>\nSo: <b> it </think>\n\nIs", "So: <b> it", "Is"},
      {"\n<think>a</think>b</think>", "a", "b</think>"},
      {"a\n\nb\n</think>\n c", "a\n\nb", "c", 0},
      {"a [/THINK]b", "a", "b", 1},
      {"<think></think>ok", "", "ok"},
      {"<think>\n\n</think>\n\nok", "", "ok"},
      {"<|channel|>analysis<|message|>So<|end|><|start|>assistant<|channel|>final<|message|>Is", "So", "Is"},
      {"<|channel|>final<|message|>Is", "", "Is"},
      {"<|channel|>fin", "", "<|channel|>fin"},
      {"<thin", "", "<thin"},
      {"<think>cut short </thi", "cut short </thi", ""},
      {"", "", ""}};
  std::mt19937_64 rng(test_seed());
  for (const Case& c : cases)
    for (int round = 0; round < 30; ++round) {
      ThinkingSplitter s(c.inside);
      std::string thinking, text;
      const auto take = [&](const ThinkingSplitter::Parts& p) {
        EXPECT_TRUE(p.thinking.empty() || text.empty()) << "thinking after the answer";
        thinking += p.thinking, text += p.text;
      };
      for (std::size_t at = 0; at < c.written.size();) {
        const std::size_t n = round == 0 ? c.written.size() : 1 + rng() % (round < 15 ? 1 : 6);
        take(s.push(std::string_view(c.written).substr(at, n)));
        at += n;
      }
      take(s.flush());
      EXPECT_EQ(thinking, c.thinking) << c.written;
      EXPECT_EQ(text, c.text) << c.written;
    }
}

TEST(Conversation, RoundTripsThroughJson) {
  const Conversation c = {{"system", "é\n\"x\""}, {"user", ""}, {"assistant", "a", "thoughts"}};
  EXPECT_EQ(conversation_of_json(to_json(c), "f"), c);
  EXPECT_TRUE(conversation_of_json("[]", "f").empty());
  for (const auto& [json, part] : std::vector<std::pair<std::string, std::string>>{
           {"{", "not valid JSON"},
           {"{}", "not a JSON list"},
           {"[1]", "message 1 is not an object"},
           {R"([{"role": "user", "content": "a"}, {"role": "user"}])", "message 2 has no content"},
           {R"([{"content": "a"}])", "message 1 has no role"},
           {R"([{"role": "user", "content": ["a"]}])", "\"content\" of message 1 is not a string"},
           {R"([{"role": "user", "content": "a", "tool_calls": "b"}])", "tool_calls"}})
    expect_throw<FormatError>([&] { conversation_of_json(json, "f.json"); }, {"f.json", part});
}

// --- Tools ----------------------------------------------------------------------------------------------------------

/// Pushes `text` in pieces of random size and returns the text and the calls that were parsed.
std::pair<std::string, std::vector<ToolCall>> parted(const std::string& source, const std::string& text,
                                                     std::mt19937_64& random) {
  ToolCallSplitter s(tool_call_forms(source));
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t n = 1 + random() % 9;
    out += s.push(std::string_view(text).substr(at, n));
    at += n;
  }
  ToolCallSplitter::End end = s.finish();
  return {out + end.text, std::move(end.calls)};
}

/// The text and the calls of an answer that is read in pieces.
struct StreamedCalls {
  std::string text;
  std::vector<ToolCall> calls;
  std::size_t deltas = 0;
  bool is_cut = false;
};

/// Pushes `text` in pieces of up to `most` bytes, and joins the parts of calls.
StreamedCalls streamed(const std::string& source, const std::string& text, std::size_t most, std::mt19937_64& random) {
  ToolCallSplitter s(tool_call_forms(source));
  ToolCallStream stream;
  StreamedCalls out;
  const auto take = [&](const std::vector<ToolCallDelta>& deltas) {
    for (const ToolCallDelta& d : deltas) {
      ++out.deltas;
      ASSERT_LE(d.index, out.calls.size());
      EXPECT_EQ(d.index == out.calls.size(), !d.name.empty()) << text;
      if (d.index == out.calls.size()) out.calls.push_back({d.id, d.name, {}});
      out.calls[d.index].arguments += d.arguments;
    }
  };
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t n = 1 + random() % most;
    out.text += s.push(std::string_view(text).substr(at, n));
    if (const ToolCallForm* const form = s.form()) take(stream.read(s.held(), *form));
    at += n;
  }
  ToolCallSplitter::End end = s.finish();
  take(stream.finish(end));
  EXPECT_EQ(end.calls, out.calls) << text;
  out.text += end.text;
  out.is_cut = stream.is_cut();
  return out;
}

TEST(ToolCalls, ParsesTheFormatOfEachFamily) {
  std::mt19937_64 random(test_seed());
  const std::string hermes = "<tool_call>", mistral = "[TOOL_CALLS]", llama = "<|python_tag|>";
  const std::string deepseek = "<｜tool▁calls▁begin｜>";
  using Calls = std::vector<ToolCall>;
  struct Case {
    std::string source, text, rest;
    Calls calls;
  };
  const Calls add = {{"", "add", R"({"a":1,"b":"x}"})"}}, both = {add[0], {"", "now", "{}"}};
  const std::vector<Case> cases = {
      {hermes, "Let me see.\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": \"x}\"}}\n</tool_call>",
       "Let me see.\n", add},
      {hermes,
       "<tool_call>{\"name\":\"add\",\"arguments\":{\"a\":1,\"b\":\"x}\"}}</tool_call>\n<tool_call>\n{\"name\": "
       "\"now\", \"arguments\": {}}\n</tool_call>",
       "", both},
      {hermes, "<tool_call>{\"name\": \"add\", \"arguments\": \"{\\\"a\\\": 1, \\\"b\\\": \\\"x}\\\"}\"}", "", add},
      {hermes,
       "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\nx}\n</parameter>\n</function>\n"
       "</tool_call>\n<tool_call><function=now></function></tool_call>",
       "", both},
      {hermes,
       "<tool_call><function=f><parameter=a>\n\"</parameter>\"\n</parameter><parameter=b>\"x</parameter></function>"
       "</tool_call>",
       "",
       {{"", "f", R"({"a":"</parameter>","b":"\"x"})"}}},
      {hermes, "<tool_call>{\"name\": \"now\"}</tool_call> So.", "So.", {both[1]}},
      {mistral,
       "[TOOL_CALLS][{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": \"x}\"}, \"id\": \"abcdefghi\"}, {\"name\": "
       "\"now\", \"arguments\": {}}]",
       "",
       {{"abcdefghi", "add", add[0].arguments}, both[1]}},
      {mistral,
       "Well. [TOOL_CALLS]add[CALL_ID]123456789[ARGS]{\"a\": 1, \"b\": \"x}\"}[TOOL_CALLS]now{}",
       "Well. ",
       {{"123456789", "add", add[0].arguments}, both[1]}},
      {mistral, "[TOOL_CALLS]now[ARGS]{}", "", {both[1]}},
      {llama, "<|python_tag|>{\"name\": \"add\", \"parameters\": {\"a\": 1, \"b\": \"x}\"}}", "", add},
      {llama, "{\"name\": \"add\", \"parameters\": {\"a\": 1, \"b\": \"x}\"}}; {\"name\": \"now\", \"parameters\": {}}",
       "", both},
      {"no marks", " {\"type\": \"function\", \"name\": \"now\", \"parameters\": {}}", "", {both[1]}},
      {deepseek,
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n{\"a\": 1, \"b\": \"x}\"}\n```"
       "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       "", both},
      {"<|tool_call|>", "<|tool_call|>[{\"name\": \"now\", \"arguments\": {}}]<|/tool_call|>", "", {both[1]}},
      {"<|START_ACTION|>",
       "<|START_ACTION|>[{\"tool_call_id\": \"0\", \"tool_name\": \"now\", \"parameters\": {}}]<|END_ACTION|>",
       "",
       {{"0", "now", "{}"}}},
      // If a call is malformed, the complete output is text.
      {hermes, "a < b, <tool_call", "a < b, <tool_call", {}},
      {hermes,
       "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\"",
       "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\"",
       {}},
      {hermes,
       "<tool_call>{\"name\": \"add\", \"arguments\": 7}</tool_call>",
       "<tool_call>{\"name\": \"add\", \"arguments\": 7}</tool_call>",
       {}},
      {hermes, "<tool_call>[1, 2]</tool_call>", "<tool_call>[1, 2]</tool_call>", {}},
      {hermes, "{\"name\": \"add\", \"arguments\": {}}", "{\"name\": \"add\", \"arguments\": {}}", {}},
      {llama, "{\"answer\": 42}", "{\"answer\": 42}", {}},
      {llama,
       "{\"name\": \"add\", \"parameters\": {}} is what I would call",
       "{\"name\": \"add\", \"parameters\": {}} is what I would call",
       {}},
      {mistral, "[TOOL_CALLS]", "[TOOL_CALLS]", {}},
      {mistral, "[TOOL_CALLS]" + std::string(2000, '['), "[TOOL_CALLS]" + std::string(2000, '['), {}},
      {deepseek,
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function",
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function",
       {}},
  };
  for (const Case& c : cases)
    for (int i = 0; i < 20; ++i) {
      const auto [rest, calls] = parted(c.source, c.text, random);
      EXPECT_EQ(rest, c.rest) << c.text << ", TESSERA_TEST_SEED=" << test_seed();
      EXPECT_EQ(calls, c.calls) << c.text;
      if (c.calls.empty()) continue;
      StreamedCalls pieces = streamed(c.source, c.text, 9, random);
      EXPECT_EQ(pieces.text, c.rest) << c.text;
      // An id after the arguments arrives too late.
      for (std::size_t n = 0; n < std::min(c.calls.size(), pieces.calls.size()); ++n)
        if (pieces.calls[n].id.empty()) pieces.calls[n].id = c.calls[n].id;
      EXPECT_EQ(pieces.calls, c.calls) << c.text;
    }
}

TEST(ToolCalls, ArgumentsArriveInPieces) {
  std::mt19937_64 random(test_seed());
  const std::string arguments =
      R"({ "text" : "a \n \u00e9\ud83d\ude00 } ] \"", "list":[1.50, -2e3 ,true,null, {}] , "n" :  7 })";
  const std::string compact = nlohmann::ordered_json::parse(arguments).dump();
  for (const auto& [source, before, after] : std::vector<std::tuple<std::string, std::string, std::string>>{
           {"<tool_call>", "<tool_call>{\"id\": \"i\", \"name\": \"f\", \"arguments\": ", "}</tool_call>"},
           {"<tool_call>", "<tool_call>{\"function\": {\"x\": [1], \"name\": \"f\", \"parameters\": ", "}}"},
           {"[TOOL_CALLS]", "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": ", "}]"},
           {"[TOOL_CALLS]", "[TOOL_CALLS]f[ARGS]", ""},
           {"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>",
            "<｜tool▁call▁end｜>"}}) {
    const StreamedCalls whole = streamed(source, before + arguments + after, 1, random);
    ASSERT_EQ(whole.calls.size(), 1u) << before;
    EXPECT_EQ(whole.calls[0].arguments, compact) << before;
    EXPECT_GT(whole.deltas, 30u) << before;
    EXPECT_FALSE(whole.is_cut);
    const StreamedCalls cut = streamed(source, before + arguments.substr(0, 20), 1, random);
    ASSERT_EQ(cut.calls.size(), 1u) << before;
    EXPECT_TRUE(compact.starts_with(cut.calls[0].arguments) && cut.calls[0].arguments.size() > 10);
    EXPECT_TRUE(cut.is_cut && cut.text.empty());
  }
  // Arguments as elements are sent one by one.
  const StreamedCalls elements =
      streamed("<tool_call>", "<tool_call><function=f><parameter=a>1</parameter><parameter=b>x</parameter></function>",
               1, random);
  EXPECT_EQ(elements.calls, (std::vector<ToolCall>{{"", "f", R"({"a":1,"b":"x"})"}}));
  EXPECT_EQ(elements.deltas, 4u);
  // Arguments that are not JSON are sent as far as they are.
  const StreamedCalls bad =
      streamed("<tool_call>", "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": x}}", 1, random);
  EXPECT_EQ(bad.calls, (std::vector<ToolCall>{{"", "f", "{\"a\":"}}));
  EXPECT_TRUE(bad.is_cut);
  for (const auto& [given, sent] :
       std::vector<std::pair<std::string, std::string>>{{R"({"amount": 10 500})", R"({"amount":10)"},
                                                        {R"({"a": 1,})", R"({"a":1,)"},
                                                        {R"({"a": "x" "y"})", R"({"a":"x")"},
                                                        {R"({"a" 1})", R"({"a")"},
                                                        {R"({"a": [1}})", R"({"a":[1)"},
                                                        {R"({"a": {"b": 1]})", R"({"a":{"b":1)"},
                                                        {R"({"a": })", R"({"a":)"},
                                                        {R"({"a": [1,]})", R"({"a":[1,)"},
                                                        {R"({"a":: 1})", R"({"a":)"},
                                                        {R"({, "a": 1})", "{"},
                                                        {R"({1: 2})", "{"},
                                                        {R"({"a": [:]})", R"({"a":[)"},
                                                        {R"({"a": {} {}})", R"({"a":{})"},
                                                        {R"({"a", "b"})", R"({"a")"},
                                                        {R"({"a": "x" 1})", R"({"a":"x")"},
                                                        {"{\"a\": \"\u00e9\xc3\"}", "{\"a\":\"\u00e9"}}) {
    const std::string text = "<tool_call>{\"name\": \"f\", \"arguments\": " + given + "}</tool_call>";
    EXPECT_EQ(parted("<tool_call>", text, random), std::pair(text, std::vector<ToolCall>())) << given;
    const StreamedCalls cut = streamed("<tool_call>", text, 1, random);
    EXPECT_EQ(cut.calls, (std::vector<ToolCall>{{"", "f", sent}})) << given;
    EXPECT_TRUE(cut.is_cut) << given;
  }
  const std::string deep = std::string(70, '[') + std::string(70, ']');
  EXPECT_TRUE(streamed("[TOOL_CALLS]", "[TOOL_CALLS]f[ARGS]{\"a\": " + deep + "}", 9, random).is_cut);
  // Nothing is sent if what precedes the arguments is malformed.
  for (const char* head : {R"({"name": "f" "arguments": )", R"({, "name": "f", "arguments": )",
                           R"({"x": 10 500, "name": "f", "arguments": )"}) {
    const std::string text = std::string("<tool_call>") + head + "{}}</tool_call>";
    EXPECT_EQ(streamed("<tool_call>", text, 1, random).text, text);
  }
  // Text after a call without marks is kept.
  EXPECT_EQ(streamed("none", R"({"name": "f", "parameters": {}} is a call)", 1, random).text, " is a call");
}

TEST(ToolCalls, SeparatorsAreThoseOfCompleteOutput) {
  std::mt19937_64 random(test_seed());
  const std::string hermes = "<tool_call>", mistral = "[TOOL_CALLS]", llama = "<|python_tag|>";
  const std::string call = R"({"name": "f", "arguments": {}})", list = "[" + call + ", " + call + "]";
  struct Case {
    std::string source, text;
    std::size_t calls;
  };
  for (const Case& c :
       {Case{hermes, hermes + list + "</tool_call>", 2}, Case{hermes, hermes + call + ", " + call + "</tool_call>", 1},
        Case{hermes, hermes + call + "; " + call + "</tool_call>", 1}, Case{hermes, hermes + list + ", " + call, 2},
        Case{hermes, hermes + call + " [" + call + "]", 1}, Case{mistral, mistral + list, 2},
        Case{mistral, mistral + list + ", " + call, 2}, Case{mistral, mistral + call, 0},
        Case{mistral, mistral + "[f[ARGS]{}]", 0}, Case{mistral, mistral + "f{}, g{}", 1},
        Case{llama, llama + call + "; " + call, 2}, Case{llama, llama + "," + call, 0}}) {
    const auto [rest, calls] = parted(c.source, c.text, random);
    EXPECT_EQ(calls.size(), c.calls) << c.text;
    const StreamedCalls pieces = streamed(c.source, c.text, 9, random);
    EXPECT_EQ(pieces.calls, calls) << c.text << ", TESSERA_TEST_SEED=" << test_seed();
    EXPECT_EQ(pieces.text, rest) << c.text;
  }
}

TEST(ToolCalls, RandomOutputIsParsedAsTextOrValidCalls) {
  std::mt19937_64 random(test_seed());
  const std::vector<std::string> words = {"<tool_call>",
                                          "</tool_call>",
                                          "[TOOL_CALLS]",
                                          "[ARGS]",
                                          "{\"name\": \"f\", ",
                                          "\"a\"",
                                          ":",
                                          ",",
                                          "10 500",
                                          "\"arguments\": {",
                                          "}",
                                          "]",
                                          "[",
                                          "\"",
                                          "\\",
                                          "<function=",
                                          "<parameter=",
                                          "</function>",
                                          ">",
                                          "x",
                                          "<|python_tag|>",
                                          "{\"name\": \"f\", \"arguments\": {}}",
                                          "<｜tool▁calls▁begin｜>",
                                          "<｜tool▁call▁begin｜>",
                                          "<｜tool▁sep｜>",
                                          ";",
                                          "\xff",
                                          " "};
  std::size_t found = 0;
  for (int i = 0; i < 5000; ++i) {
    std::string text, source;
    for (std::size_t n = random() % 3; n > 0; --n) source += words[random() % words.size()];
    for (std::size_t n = random() % 12; n > 0; --n) text += words[random() % words.size()];
    const auto [rest, calls] = parted(source, text, random);
    if (calls.empty()) {
      EXPECT_EQ(rest, text);
    }
    for (const ToolCall& c : calls) EXPECT_TRUE(json_object(c.arguments) && !c.name.empty()) << text;
    found += !calls.empty();
    const StreamedCalls pieces = streamed(source, text, 9, random);
    EXPECT_LE(calls.size(), pieces.calls.size()) << text;
    for (std::size_t n = 0; n + pieces.is_cut < pieces.calls.size(); ++n)
      EXPECT_TRUE(json_object(pieces.calls[n].arguments)) << text << ", TESSERA_TEST_SEED=" << test_seed();
  }
  EXPECT_GT(found, 5u);
}

TEST(ToolCalls, ValidatesListOfTools) {
  const std::string full = R"([{"type":"function","function":{"name":"now","description":"The time"}}])";
  EXPECT_EQ(tools_of_json(full, "f"), full);
  EXPECT_EQ(tools_of_json(R"({"name": "now", "description": "The time"})", "f"), full);
  for (const auto& [text, wrong] : std::vector<std::pair<std::string, std::string>>{
           {"", "not valid JSON"},
           {"7", "not a JSON list"},
           {"[]", "empty"},
           {"[7]", "tool 1 is not an object"},
           {R"([{"name": "a"}, {"description": "b"}])", "tool 2 has no name"},
           {R"([{"name": "a"}, {"name": "a"}])", "two tools have the name"},
           {R"([{"type": "retrieval", "function": {"name": "a"}}])", "a type that is not"},
           {R"([{"function": 7}])", "is not an object"},
           {R"([{"name": "a", "parameters": "none"}])", "parameters"},
           {R"([{"name": "a", "description": 7}])", "description"},
           {std::string(1000, '['), "not valid JSON"}})
    expect_throw<FormatError>([&] { tools_of_json(text, "tools.json"); },
                              {"tools.json", wrong, "It should be a list such as"});
}

TEST(ToolCalls, RoundTripThroughJson) {
  const Conversation c = {
      {"user", "How is it?"},
      {.role = "assistant", .text = "", .calls = {{"call00001", "f", R"({"a":1})"}, {"call00002", "g", "{}"}}},
      {.role = "tool", .text = "fine", .call_id = "call00002", .name = "g"}};
  EXPECT_EQ(conversation_of_json(to_json(c), "t"), c);
  EXPECT_EQ(open_calls(c), std::vector<ToolCall>{c[1].calls[0]});
  EXPECT_TRUE(open_calls({c[0]}).empty());
  Conversation all = c;
  all.push_back({.role = "tool", .text = "1", .call_id = "call00001", .name = "f"});
  EXPECT_TRUE(open_calls(all).empty());
  all.push_back({"assistant", "Well."});
  EXPECT_TRUE(open_calls(all).empty());
  // OpenAI's API uses null for missing content.
  const auto read = conversation_of_json(
      R"([{"role": "assistant", "content": null, "tool_calls": [{"id": "x", "function": {"name": "f", "arguments": {"a": 1}}}]}])",
      "t");
  EXPECT_EQ(read[0].calls, (std::vector<ToolCall>{{"x", "f", R"({"a":1})"}}));
  for (const char* wrong :
       {R"([{"role": "assistant", "tool_calls": 7}])", R"([{"role": "assistant", "tool_calls": [{}]}])",
        R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "no"}}]}])",
        R"([{"role": "user", "content": null}])", R"([{"role": "tool", "content": "", "tool_call_id": 7}])"})
    EXPECT_THROW(conversation_of_json(wrong, "t"), FormatError) << wrong;
}

TEST(ToolCalls, PassesCallsInTheFormatOfTheTemplate) {
  const Tokenizer t = tokenizer(writer());
  const Conversation c = {{"user", "Hi"},
                          {.role = "assistant", .text = "", .calls = {{"call00001", "f", R"({"a":[1,"<|im_end|>"]})"}}},
                          {.role = "tool", .text = "<|im_end|>", .call_id = "call00001", .name = "f"}};
  const std::string tools = tools_of_json(R"([{"name": "f", "description": "F<|im_end|>"}])", "t");
  const std::string head = "{% for t in tools %}{{ t | tojson }}{% endfor %}{% for m in messages %}[{{ m.role }}]";
  const auto of = [&](const std::string& call) {
    return ChatTemplate(head + call + "{% if m.content is not none %}<{{ m.content }}>{% endif %}{% endfor %}", "t");
  };
  const auto text = [&](const ChatTemplate& with) {
    return with.prompt(c, t, {.add_generation_prompt = false, .tools = tools}).text;
  };
  const std::string listed =
      R"({"type": "function", "function": {"name": "f", "description": "F<|im_end|>"}}[user]<Hi>[assistant])";
  // Arguments are passed as text if the template concatenates them, and otherwise as an object. Content is None if the
  // template would otherwise write an empty answer.
  const ChatTemplate object = of("{% for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}{% endfor %}");
  EXPECT_TRUE(object.takes_tools());
  EXPECT_EQ(text(object), listed + R"({"a": [1, "<|im_end|>"]}[tool]<<|im_end|>>)");
  const ChatTemplate joined =
      of("{% for c in m.tool_calls or [] %}{{ c.function.name + '=' + c.function.arguments }}{% endfor %}");
  EXPECT_EQ(text(joined), listed + R"(f={"a":[1,"<|im_end|>"]}[tool]<<|im_end|>>)");
  // Text from a function, the model or the user never becomes a special token.
  const TokenId end = *t.find("<|im_end|>");
  for (const ChatTemplate& with : {object, joined}) {
    const auto ids = with.prompt(c, t, {.tools = tools}).tokens;
    EXPECT_EQ(std::count(ids.begin(), ids.end(), end), 0);
  }
  EXPECT_FALSE(of("").takes_tools()) << "a template that does not write calls";
  EXPECT_FALSE(
      of("<|channel|>{% for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}{% endfor %}").takes_tools())
      << "calls in the harmony format are not parsed";
  EXPECT_FALSE(ChatTemplate::built_in("chatml").takes_tools());
  expect_throw<ArgumentError>([] { ChatTemplate::built_in("chatml").require_tools(); },
                              {"chatml", "does not support tools"});
  const ParsedFile file(writer(special, {}, "plain").set("tokenizer.chat_template.tool_use", std::string("for tools")));
  EXPECT_EQ(ChatTemplate::of(file.file, {}, true).prompt({{"user", ""}}, t).text, "for tools");
  EXPECT_EQ(ChatTemplate::of(file.file).prompt({{"user", ""}}, t).text, "plain");
}

// --- Required tool calls ---------------------------------------------------------------------------------------------

/// A template that writes the calls of a message by `calls`, where c is a call.
std::string calling_template(const std::string& before, const std::string& call, const std::string& after = "") {
  return "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}"
         "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + (m.content or '') }}{% if m.tool_calls %}" +
         before + "{% for c in m.tool_calls %}" + call + "{% endfor %}" + after +
         "{% endif %}{{ '<|im_end|>\\n' }}{% endfor %}"
         "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
}
const std::string arguments_json = "{{ c.function.arguments | tojson }}";
const std::string hermes_call = "{{ '\\n<tool_call>\\n{\"name\": \"' + c.function.name + '\", \"arguments\": ' }}" +
                                arguments_json + "{{ '}\\n</tool_call>' }}";

const char* const add_schema =
    R"({"type": "object", "properties": {"a": {"type": "integer", "maximum": 99}, "b": {"type": "string"}}, "required": ["a"]})";

std::shared_ptr<const Grammar> grammar_of_calls(const std::string& source, const Tokenizer& t, bool several = true,
                                                std::optional<std::size_t> thinking = {}) {
  const auto syntax = detect_tool_call_syntax(ChatTemplate(source, "t"), t);
  if (!syntax) return nullptr;
  ToolGrammar grammar(*syntax);
  grammar.add("add", add_schema, "add");
  grammar.add("now", "", "now");
  return grammar.compile(several, thinking);
}

TEST(RequiredCalls, FollowTheNotationOfTheTemplate) {
  const Tokenizer t = tokenizer(writer());
  struct Case {
    std::string source;
    std::vector<std::string> good;  ///< the last one has two calls, unless `single`
    std::vector<std::string> bad;
    bool single = false;
  };
  const std::string separator = "{% if not loop.last %}{{ ', ' }}{% endif %}";
  const std::vector<Case> cases = {
      {calling_template("", hermes_call),
       {"<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": \"x\"}}\n</tool_call>",
        "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\":-7}}\n</tool_call>",
        "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>\n"
        "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>"},
       {"", "It is warm.", "<tool_call>\n{\"name\": \"other\", \"arguments\": {}}\n</tool_call>",
        "<tool_call>\n{\"name\": \"add\", \"arguments\": {}}\n</tool_call>",
        "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 100}}\n</tool_call>",
        "<tool_call>\n{\"name\": \"now\", \"arguments\": {\"a\": 1}}\n</tool_call>",
        "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call> So."}},
      {calling_template("{{ '[TOOL_CALLS] [' }}",
                        "{{ '{\"name\": \"' + c.function.name + '\", \"arguments\": ' }}" + arguments_json +
                            "{{ ', \"id\": \"' + c.id + '\"}' }}" + separator,
                        "{{ ']' }}"),
       {"[TOOL_CALLS] [{\"name\": \"now\", \"arguments\": {}, \"id\": \"aZ3456789\"}]",
        "[TOOL_CALLS] [{\"name\": \"now\", \"arguments\": {}, \"id\": \"000000000\"}, "
        "{\"name\": \"add\", \"arguments\": {\"a\": 5}, \"id\": \"000000001\"}]"},
       {"[TOOL_CALLS] [{\"name\": \"now\", \"arguments\": {}, \"id\": \"12\"}]"}},
      {calling_template("", "{{ '[TOOL_CALLS]' + c.function.name + '[CALL_ID]' + c.id + '[ARGS]' }}" + arguments_json),
       {"[TOOL_CALLS]now[CALL_ID]123456789[ARGS]{}",
        "[TOOL_CALLS]now[CALL_ID]123456789[ARGS]{}[TOOL_CALLS]add[CALL_ID]123456789[ARGS]{\"a\":1}"},
       {"[TOOL_CALLS]now[ARGS]{}"}},
      {calling_template(
           "{% if m.tool_calls | length > 1 %}{{ raise_exception('only one call') }}"
           "{% elif false %}<|python_tag|>{% endif %}",
           "{{ '{\"name\": \"' + c.function.name + '\", \"parameters\": ' }}" + arguments_json + "{{ '}' }}"),
       {"{\"name\": \"add\", \"parameters\": {\"a\": 1}}"},
       {"{\"name\": \"add\"}", "{\"name\": \"now\", \"parameters\": {}}; {\"name\": \"now\", \"parameters\": {}}"},
       true},
      {calling_template("{{ '<｜tool▁calls▁begin｜>' }}",
                        "{{ '<｜tool▁call▁begin｜>' + c.function.name + '<｜tool▁sep｜>' }}" + arguments_json +
                            "{{ '<｜tool▁call▁end｜>' }}",
                        "{{ '<｜tool▁calls▁end｜>' }}"),
       {"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
        "<｜tool▁call▁begin｜>add<｜tool▁sep｜>{\"a\":2}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
       {"<｜tool▁calls▁begin｜><｜tool▁calls▁end｜>"}},
      {calling_template(
           "",
           "{{ '\\n<tool_call>\\n<function=' + c.function.name + '>\\n' }}"
           "{% for k, v in c.function.arguments | items %}"
           "{{ '<parameter=' + k + '>\\n' }}{{ v if v is string else (v | tojson) }}{{ '\\n</parameter>\\n' }}"
           "{% endfor %}{{ '</function>\\n</tool_call>' }}"),
       {"<tool_call>\n<function=now>\n</function>\n</tool_call>",
        "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\n\"</parameter>\"\n</parameter>\n"
        "</function>\n</tool_call>",
        "<tool_call>\n<function=now>\n</function>\n</tool_call>\n"
        "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>"},
       {"<tool_call>\n<function=add>\n</function>\n</tool_call>",
        "<tool_call>\n<function=add>\n<parameter=a>\nx\n</parameter>\n</function>\n</tool_call>",
        "<tool_call>\n<function=now>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>"}},
  };
  std::mt19937_64 random(test_seed());
  const test::SchemaValidator validator(nlohmann::json::parse(add_schema));
  for (const Case& c : cases) {
    const auto grammar = grammar_of_calls(c.source, t), one = grammar_of_calls(c.source, t, false);
    ASSERT_TRUE(grammar && one) << c.source;
    for (const std::string& text : c.good) EXPECT_TRUE(grammar->matches(text)) << text;
    for (const std::string& text : c.bad) EXPECT_FALSE(grammar->matches(text)) << text;
    EXPECT_TRUE(one->matches(c.good.front())) << c.good.front();
    EXPECT_EQ(one->matches(c.good.back()), c.single) << c.good.back();
    // Every text of the grammar is parsed as calls with valid arguments.
    int complete = 0;
    for (int i = 0; i < 40; ++i) {
      std::optional<std::string> text = test::random_text(i % 2 ? *grammar : *one, random);
      if (!text) continue;
      for (std::size_t at = 0; (at = text->find(static_cast<char>(grammar::mark_byte), at)) != std::string::npos;)
        text->replace(at, 2, grammar->marks()[static_cast<unsigned char>((*text)[at + 1])]);
      const auto [rest, calls] = parted(c.source, *text, random);
      EXPECT_EQ(rest, "") << *text;
      EXPECT_FALSE(calls.empty()) << *text;
      for (const ToolCall& call : calls)
        EXPECT_TRUE(call.name == "add" ? validator.is_valid(nlohmann::json::parse(call.arguments))
                                       : call.name == "now" && call.arguments == "{}")
            << *text;
      ++complete;
    }
    EXPECT_GT(complete, 15) << c.source;
  }
  EXPECT_EQ(
      grammar_of_calls(calling_template("", "{{ '[' + c.function.name + '(' }}" + arguments_json + "{{ ')]' }}"), t),
      nullptr)
      << "a notation that is not parsed";
  EXPECT_EQ(grammar_of_calls(echo, t), nullptr) << "a template without tools";
}

TEST(RequiredCalls, ControlTokensOccurOnlyAsMarks) {
  const Tokenizer t = tokenizer(writer({"<s>", "</s>", "<|im_end|>", "<tool_call>", "</tool_call>", "</think>"}));
  const std::string source = calling_template("", hermes_call);
  grammar::Matcher m(grammar_of_calls(source, t), t);
  const TokenId open = *t.find("<tool_call>"), close = *t.find("</tool_call>"), end = *t.find("<|im_end|>");
  EXPECT_TRUE(m.mask().contains(open)) << "the mark as a token";
  EXPECT_TRUE(m.mask().contains(*t.find("<"))) << "the mark as text";
  EXPECT_FALSE(m.mask().contains(close));
  ASSERT_TRUE(m.append(open));
  ASSERT_TRUE(m.advance("\n{\"name\": \"add\", \"arguments\": {\"a\":1,\"b\":\"x"));
  for (const TokenId id : {open, close, end}) EXPECT_FALSE(m.mask().contains(id)) << "in a string";
  ASSERT_TRUE(m.advance("\"}}\n"));
  EXPECT_TRUE(m.mask().contains(close));
  ASSERT_TRUE(m.append(close));
  EXPECT_TRUE(m.mask().contains(end));
  // An answer that begins with thinking: any text up to the closing mark.
  const std::string call = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
  const auto thinking = grammar_of_calls(source, t, true, 0);
  EXPECT_TRUE(thinking->matches("Hm. <</thin</think>\n\n" + call));
  EXPECT_TRUE(thinking->matches("</think>" + call));
  for (const std::string& text : {call, "Hm.</think>x" + call, "Hm.</think>" + call + "</think>" + call})
    EXPECT_FALSE(thinking->matches(text)) << text;
  grammar::Matcher thinks(thinking, t);
  EXPECT_TRUE(thinks.mask().contains(*t.find("</think>")));
  EXPECT_FALSE(thinks.mask().contains(open));
  ASSERT_TRUE(thinks.append(*t.find("</think>")));
  EXPECT_TRUE(thinks.mask().contains(open));
}

TEST(RequiredCalls, RejectsWhatCannotBeWritten) {
  const Tokenizer t = tokenizer(writer());
  ToolGrammar json(*detect_tool_call_syntax(ChatTemplate(calling_template("", hermes_call), "t"), t));
  expect_throw<FormatError>([&] { json.add("f", R"({"properties": {"a": {"not": {}}}})", "tool f"); },
                            {"tool f", "#/properties/a/not", "not supported"});
  expect_throw<FormatError>([&] { json.add("f", R"({"type": "array"})", "tool f"); }, {"must be an object"});
  expect_throw<FormatError>([&] { json.add("f", "{", "tool f"); }, {"tool f", "not valid JSON"});
  expect_throw<FormatError>([&] { json.add("a b", "", "tool f"); }, {"tool f", "name"});
  ToolCallSyntax elements{.open = "<f=", .close = "</f>"};
  elements.members = grammar::MemberSyntax{">", "><p=", ">", "</p><p=", "</p>"};
  ToolGrammar other(elements);
  expect_throw<FormatError>([&] { other.add("f", R"({"properties": {"a>": {}}})", "tool f"); },
                            {"a>", "angle brackets"});
  expect_throw<FormatError>(
      [&] { other.add("f", R"({"anyOf": [{"required": ["a"]}, {"required": ["b"]}]})", "tool f"); },
      {"#/anyOf", "alternatives"});
  other.add("f", R"({"$ref": "#/$defs/x", "$defs": {"x": {"properties": {"a": {"type": "null"}}}}})", "tool f");
  EXPECT_TRUE(other.compile(false)->matches("<f=f><p=a>null</p></f>"));
  EXPECT_TRUE(other.compile(false)->matches("<f=f></f>"));
}

TEST(StopFilter, EmitsNoPartOfAStopString) {
  // Compares with a search of the whole text after each byte. The texts have few distinct letters, so that many of them
  // contain incomplete stop strings.
  std::mt19937_64 rng(test_seed());
  const auto letters = [&](std::size_t n) {
    std::string s;
    while (s.size() < n) s += static_cast<char>('a' + rng() % 3);
    return s;
  };
  int stopped = 0;
  for (int round = 0; round < 4000; ++round) {
    std::vector<std::string> stops;
    for (std::size_t n = rng() % 4; n > 0; --n) stops.push_back(letters(1 + rng() % 6));
    const std::string text = letters(rng() % 60);
    std::string expected = text, by;
    for (std::size_t end = 1; end <= text.size() && by.empty(); ++end)
      for (const std::string& stop : stops)
        if (std::string_view(text).substr(0, end).ends_with(stop) && stop.size() > by.size())
          by = stop, expected = text.substr(0, end - stop.size());
    StopFilter filter(stops);
    std::string given;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t n = 1 + rng() % 5;
      given += filter.push(std::string_view(text).substr(at, n));
      ASSERT_EQ(given, expected.substr(0, given.size())) << text;
      at += n;
    }
    given += filter.flush();
    EXPECT_EQ(given, expected) << text;
    EXPECT_EQ(filter.stopped().value_or(""), by) << text;
    stopped += filter.stopped().has_value();
  }
  EXPECT_GT(stopped, 500);
  expect_throw<ArgumentError>([] { StopFilter({"a", ""}); }, {"empty"});
}

TEST(StopFilter, HoldsBackOnlyPrefixesOfStopStrings) {
  StopFilter f({"User:", "\n\n"});
  EXPECT_EQ(f.push("Hello U"), "Hello ");
  EXPECT_EQ(f.push("se"), "");
  EXPECT_EQ(f.push("ful\n"), "Useful");
  EXPECT_EQ(f.push("x"), "\nx");
  EXPECT_EQ(f.push("end\nUser: hi"), "end\n");
  EXPECT_EQ(f.stopped(), "User:");
  EXPECT_EQ(f.push("more"), "");
  EXPECT_EQ(f.flush(), "");
}

}  // namespace
}  // namespace tessera
