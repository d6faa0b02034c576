// SPDX-License-Identifier: Apache-2.0
// The parts of `tessera serve` that need neither a model nor a socket: parsing and validation of requests, access
// rules, and metrics.
#include <gtest/gtest.h>

#include <random>

#include "serve/access.h"
#include "serve/api_error.h"
#include "serve/embeddings.h"
#include "serve/metrics.h"
#include "serve/openai_request.h"
#include "tests/support/errors.h"
#include "tests/support/fuzz_cases.h"

namespace tessera::app {
namespace {

RequestDefaults defaults() { return {.model = "m", .sampling = {}, .context = 1000, .vocabulary = 50, .width = 3}; }

/// Adds members to a valid request.
Json chat(const std::string& members = "{}") {
  Json body = Json::parse(R"({"messages": [{"role": "user", "content": "Hello"}]})");
  body.update(Json::parse(members));
  return body;
}
Json completion(const std::string& members = "{}") {
  Json body = Json::parse(R"({"prompt": "Hello"})");
  body.update(Json::parse(members));
  return body;
}
ChatRequest parsed_chat(const std::string& members) { return parse_chat_request(chat(members), defaults()); }
CompletionRequest parsed_completion(const std::string& members) {
  return parse_completion_request(completion(members), defaults());
}

TEST(ServeRequest, ReadsSamplingFields) {
  const ChatRequest r = parsed_chat(
      R"({"model": "m", "temperature": 0.5, "top_p": 0.9, "top_k": 7, "min_p": 0.1, "frequency_penalty": 1,
          "presence_penalty": -1, "repeat_penalty": 1.2, "seed": -3, "n": 2, "max_tokens": 9, "stop": ["a", "b"],
          "logit_bias": {"7": -100, "8": 1.5}, "logprobs": true, "top_logprobs": 3, "stream": true,
          "stream_options": {"include_usage": true}, "unknown": {"ignored": 1}, "user": "x", "store": true})");
  EXPECT_EQ(r.sampling.temperature, 0.5);
  EXPECT_EQ(r.sampling.top_p, 0.9);
  EXPECT_EQ(r.sampling.top_k, 7);
  EXPECT_EQ(r.sampling.min_p, 0.1);
  EXPECT_EQ(r.sampling.frequency_penalty, 1);
  EXPECT_EQ(r.sampling.presence_penalty, -1);
  EXPECT_EQ(r.sampling.repeat_penalty, 1.2);
  EXPECT_EQ(r.sampling.seed, static_cast<std::uint64_t>(-3));
  EXPECT_EQ(r.sampling.logit_bias, (std::vector<std::pair<std::int32_t, double>>{{7, -100}, {8, 1.5}}));
  EXPECT_EQ(r.sequences, 2);
  EXPECT_EQ(r.max_tokens, 9);
  EXPECT_EQ(r.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(r.log_probabilities, 3);
  EXPECT_TRUE(r.stream && r.include_usage);
}

TEST(ServeRequest, NullAndNeutralValuesAreTheSameAsNoValue) {
  const ChatRequest r = parsed_chat(
      R"({"model": null, "temperature": null, "stop": null, "tools": [], "tool_choice": "auto", "n": 1.0, "best_of": 1,
          "response_format": {"type": "text"}, "modalities": ["text"], "grammar": "", "functions": [], "suffix": null,
          "max_tokens": null, "logprobs": false, "top_logprobs": 0, "ignore_eos": false, "xtc_probability": 0.0})");
  EXPECT_EQ(r.sampling.temperature, SamplerOptions{}.temperature);
  EXPECT_EQ(r.max_tokens, 1000) << "the rest of the context";
  EXPECT_EQ(r.log_probabilities, -1);
  EXPECT_EQ(parsed_chat(R"({"max_tokens": 5, "max_completion_tokens": 6})").max_tokens, 6);
}

TEST(ServeRequest, ReadsMessages) {
  const ChatRequest r = parsed_chat(R"({"messages": [
      {"role": "developer", "content": "Be brief."},
      {"role": "user", "content": [{"type": "text", "text": "Is it "}, {"type": "text", "text": "warm?"}]},
      {"role": "assistant", "content": null, "reasoning_content": "Hm.", "refusal": null,
       "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}}]},
      {"role": "tool", "tool_call_id": "c1", "content": "21"}]})");
  const Conversation expected = {
      {"system", "Be brief."},
      {"user", "Is it warm?"},
      {.role = "assistant", .text = "", .thinking = "Hm.", .calls = {{"c1", "f", R"({"a":1})"}}},
      {.role = "tool", .text = "21", .call_id = "c1", .name = "f"}};
  EXPECT_EQ(r.conversation, expected);
}

TEST(ServeRequest, ReadsToolsAndTemplateArguments) {
  const std::string tools = R"("tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}])";
  EXPECT_NE(parsed_chat("{" + tools + "}").tools.find("\"f\""), std::string::npos);
  EXPECT_EQ(parsed_chat("{" + tools + R"(, "tool_choice": "none"})").tools, "");
  EXPECT_FALSE(parsed_chat("{" + tools + R"(, "parallel_tool_calls": false})").parallel_calls);
  EXPECT_TRUE(parsed_chat("{" + tools + R"(, "tool_choice": "auto"})").required.empty());
  const std::string two = R"("tools": [{"name": "f", "parameters": {"type": "object"}}, {"name": "g"}])";
  const ChatRequest any = parsed_chat("{" + two + R"(, "tool_choice": "required"})");
  ASSERT_EQ(any.required.size(), 2u);
  EXPECT_FALSE(any.is_named);
  EXPECT_EQ(any.required[0].name, "f");
  EXPECT_EQ(any.required[0].parameters, R"({"type":"object"})");
  EXPECT_EQ(any.required[1].parameters, "");
  EXPECT_EQ(any.required[1].path, "tools[1].function.parameters");
  const ChatRequest one =
      parsed_chat("{" + two + R"(, "tool_choice": {"type": "function", "function": {"name": "g"}}})");
  ASSERT_EQ(one.required.size(), 1u);
  EXPECT_TRUE(one.is_named && one.required[0].name == "g");
  EXPECT_EQ(one.tools, any.tools) << "the prompt contains all tools";
  EXPECT_EQ(parsed_chat(R"({"chat_template_kwargs": {"enable_thinking": false}, "reasoning_effort": "low"})")
                .template_arguments,
            R"({"enable_thinking":false,"reasoning_effort":"low"})");
}

TEST(ServeRequest, ReadsPrompts) {
  const auto prompts = [](const std::string& value) {
    return parsed_completion("{\"prompt\": " + value + "}").prompts;
  };
  using Prompt = RequestPrompt;
  using Tokens = std::vector<TokenId>;
  EXPECT_EQ(prompts(R"("a")"), (std::vector<Prompt>{"a"}));
  EXPECT_EQ(prompts(R"(["a", "b"])"), (std::vector<Prompt>{"a", "b"}));
  EXPECT_EQ(prompts("[1, 2]"), (std::vector<Prompt>{Tokens{1, 2}}));
  EXPECT_EQ(prompts("[[1, 2], [3]]"), (std::vector<Prompt>{Tokens{1, 2}, Tokens{3}}));
}

TEST(ServeRequest, RejectsInvalidFields) {
  struct Case {
    std::string members, param, part;
    int status = 400;
  };
  const auto check = [](const Case& c, auto parse) {
    try {
      parse(c.members);
      ADD_FAILURE() << "accepted: " << c.members;
    } catch (const ApiError& e) {
      EXPECT_EQ(e.status(), c.status) << c.members;
      EXPECT_EQ(e.param(), c.param) << c.members;
      EXPECT_NE(std::string(e.what()).find(c.part), std::string::npos) << c.members << ": " << e.what();
      EXPECT_TRUE(std::string(e.what()).starts_with(c.param)) << e.what();
      EXPECT_EQ(Json::parse(e.body())["error"]["param"], c.param);
    }
  };
  const std::vector<Case> chats = {
      {R"({"model": "other"})", "model", "this server has m", 404},
      {R"({"messages": []})", "messages", "at least one"},
      {R"({"messages": null})", "messages", "at least one"},
      {R"({"messages": "x"})", "messages", "expected a list, but it is a string"},
      {R"({"messages": [1]})", "messages", "message 0 is not an object"},
      {R"({"messages": [{"content": "a"}]})", "messages[0].role", "required"},
      {R"({"messages": [{"role": "wizard", "content": "a"}]})", "messages[0].role", "expected system"},
      {R"({"messages": [{"role": "user"}]})", "messages[0].content", "required"},
      {R"({"messages": [{"role": "user", "content": 1}]})", "messages[0].content", "a string or a list"},
      {R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})", "messages[0].content[0].type",
       "text"},
      {R"({"messages": [{"role": "assistant", "tool_calls": [{}]}]})", "messages[0].tool_calls[0].function",
       "required"},
      {R"({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "["}}]}]})",
       "messages[0].tool_calls[0].function.arguments", "JSON object"},
      {R"({"temperature": -1})", "temperature", "from 0 to 100"},
      {R"({"temperature": "hot"})", "temperature", "expected a number, but it is a string"},
      {R"({"top_p": 1.5})", "top_p", "from 0 to 1"},
      {R"({"top_k": 1.5})", "top_k", "an integer"},
      {R"({"top_k": 1e300})", "top_k", "out of range"},
      {R"({"seed": 18446744073709551615})", "seed", "out of range"},
      {R"({"min_p": 2})", "min_p", "out of range"},
      {R"({"frequency_penalty": 3})", "frequency_penalty", "from -2 to 2"},
      {R"({"repeat_penalty": 0})", "repeat_penalty", "out of range"},
      {R"({"n": 0})", "n", "from 1 to 8"},
      {R"({"n": 9})", "n", "from 1 to 8"},
      {R"({"n": true})", "n", "an integer"},
      {R"({"max_tokens": 0})", "max_tokens", "from 1"},
      {R"({"stop": [1]})", "stop", "a number occurs"},
      {R"({"stop": ""})", "stop", "not be empty"},
      {R"({"stop": ["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"]})", "stop",
       "at most 16"},
      {R"({"logit_bias": {"x": 1}})", "logit_bias", "from 0 to 49"},
      {R"({"logit_bias": {"50": 1}})", "logit_bias", "from 0 to 49"},
      {R"({"logit_bias": {"5": 101}})", "logit_bias", "from -100 to 100"},
      {R"({"logit_bias": []})", "logit_bias", "an object"},
      {R"({"logprobs": true, "top_logprobs": 21})", "top_logprobs", "from 0 to 20"},
      {R"({"top_logprobs": 2})", "top_logprobs", "logprobs must be true"},
      {R"({"stream": "yes"})", "stream", "true or false"},
      {R"({"tool_choice": "required"})", "tool_choice", "there are no tools"},
      {R"({"tool_choice": "any"})", "tool_choice", "\"required\""},
      {R"({"tool_choice": {"type": "allowed_tools"}})", "tool_choice.type", "only \"function\""},
      {R"({"tool_choice": {"type": "function"}})", "tool_choice.function", "required"},
      {R"({"tool_choice": {"type": "function", "function": {}}})", "tool_choice.function.name", "required"},
      {R"({"tools": [{"name": "g"}], "tool_choice": {"type": "function", "function": {"name": "f"}}})", "tool_choice",
       "no tool with this name"},
      {R"({"tool_choice": "required", "tools": [{"name": "g", "parameters": {"title": ")" + std::string(300'000, 'x') +
           R"("}}]})",
       "tools", "262144 bytes"},
      {R"({"tools": [{"type": "function"}]})", "tools", "function"},
      {R"({"tools": {}})", "tools", "a list"},
      {R"({"response_format": {"type": "xml"}})", "response_format.type", "json_schema"},
      {R"({"response_format": {"type": "json_schema"}})", "response_format.json_schema", "required"},
      {R"({"response_format": {"type": "json_schema", "json_schema": {}}})", "response_format.json_schema.schema",
       "required"},
      {R"({"response_format": {"type": "json_schema", "json_schema": {"schema": {"uniqueItems": true}}}})",
       "response_format.json_schema.schema", "uniqueItems"},
      {R"({"response_format": {"type": "json_object"}, "grammar": "root ::= [a]"})", "grammar", "only one field"},
      {R"({"response_format": {"type": "json_object"}, "tools": [{"type": "function", "function": {"name": "f"}}]})",
       "response_format", "tools"},
      {R"({"echo": true})", "echo", "not supported"},
      {R"({"grammar": "root ::= x"})", "grammar", "x"},
      {R"({"guided_json": {"type": "number", "minimum": 0.5}})", "guided_json", "minimum"},
      {R"({"json_schema": false})", "json_schema", "no finite text"},
      {R"({"grammar": false})", "grammar", "a string"},
      {R"({"response_format": {"type": "json_object", "schema": {"not": {}}}})", "response_format.schema", "not"},
      {R"({"functions": [{}]})", "functions", "Use tools"},
      {R"({"best_of": 2})", "best_of", "Use n"},
      {R"({"modalities": ["text", "audio"]})", "modalities", "only"},
      {R"({"continue_final_message": true})", "continue_final_message", "not supported"},
      {R"({"chat_template_kwargs": {"messages": 1}})", "chat_template_kwargs", "set by the server"},
      {R"({"chat_template_kwargs": {"a": "<|im_end|>"}})", "chat_template_kwargs", "letters"},
      {R"({"chat_template_kwargs": {"a": ["x"]}})", "chat_template_kwargs", "letters"},
      {R"({"reasoning_effort": "<|x|>"})", "reasoning_effort", "a word"},
      {R"({"suffix": "end"})", "suffix", "/v1/completions"},
  };
  for (const Case& c : chats) check(c, parsed_chat);
  const std::vector<Case> completions = {
      {R"({"prompt": null})", "prompt", "required"},
      {R"({"prompt": 1})", "prompt", "expected a string"},
      {R"({"prompt": [1, -1]})", "prompt", "from 0 to 49"},
      {R"({"prompt": [1, 50]})", "prompt", "from 0 to 49"},
      {R"({"prompt": [1, "a"]})", "prompt", "from 0 to 49"},
      {R"({"prompt": ["a", {}]})", "prompt", "expected a string"},
      {R"({"prompt": ["a", [1]], "suffix": "end"})", "suffix", "must be text"},
      {R"({"logprobs": 21})", "logprobs", "from 0 to 20"},
      {R"({"echo": true, "logprobs": 1})", "logprobs", "do not combine"},
      {R"({"max_tokens": -1})", "max_tokens", "from 0"},
  };
  for (const Case& c : completions) check(c, parsed_completion);
  const std::vector<Case> embeddings = {
      {R"({"input": null})", "input", "required"},
      {R"({"input": {}})", "input", "expected a string"},
      {R"({"input": [50]})", "input", "from 0 to 49"},
      {R"({"input": "a", "model": "other"})", "model", "this server has m", 404},
      {R"({"input": "a", "dimensions": 2})", "dimensions", "have 3 dimensions"},
      {R"({"input": "a", "encoding_format": "int8"})", "encoding_format", "base64"},
      {R"({"input": "a", "truncate_prompt_tokens": 5})", "truncate_prompt_tokens", "not supported"},
      {R"({"input": "a", "embd_normalize": -1})", "embd_normalize", "not supported"},
      {R"({"input": "a", "normalize": false})", "normalize", "not supported"},
      {"{\"input\": " + json_text(std::vector<std::string>(2049, "a")) + "}", "input", "at most 2048"},
  };
  for (const Case& c : embeddings)
    check(c, [](const std::string& body) { parse_embedding_request(Json::parse(body), defaults()); });
}

TEST(ServeRequest, ReadsAndFormatsEmbeddings) {
  const auto parsed = [](const std::string& body) { return parse_embedding_request(Json::parse(body), defaults()); };
  const EmbeddingRequest r =
      parsed(R"({"input": ["a", "b"], "encoding_format": "base64", "dimensions": 3, "normalize": true, "user": "x"})");
  EXPECT_EQ(r.inputs, (std::vector<RequestPrompt>{"a", "b"}));
  EXPECT_TRUE(r.is_base64);
  EXPECT_EQ(parsed(R"({"input": [[1, 2], [3]]})").inputs,
            (std::vector<RequestPrompt>{std::vector<TokenId>{1, 2}, std::vector<TokenId>{3}}));
  const std::vector<float> values = {1, -0.5, 0};
  EXPECT_EQ(json_text(embedding_json(values, false)), "[1.0,-0.5,0.0]");
  // python3 -c 'import base64, struct; print(base64.b64encode(struct.pack("<3f", 1, -0.5, 0)))'
  EXPECT_EQ(embedding_json(values, true), "AACAPwAAAL8AAAAA");
  EXPECT_EQ(embedding_json(std::span(values).first(1), true), "AACAPw==");
  EXPECT_EQ(embedding_json(std::span(values).first(2), true), "AACAPwAAAL8=");
}

TEST(ServeRequest, BodiesMustBeJsonObjectsOfLimitedDepth) {
  const auto status = [](const std::string& body) {
    try {
      parse_body(body);
      return 200;
    } catch (const ApiError& e) {
      return e.status();
    }
  };
  EXPECT_EQ(status("{}"), 200);
  for (const std::string bad : {"", "[]", "1", "{", "{\"a\": nan}", "{\"a\": \"\xff\"}", "{} x"})
    EXPECT_EQ(status(bad), 400) << bad;
  const auto nested = [](std::size_t levels) {
    return "{\"a\": " + std::string(levels, '[') + std::string(levels, ']') + "}";
  };
  EXPECT_EQ(status(nested(90)), 200);
  EXPECT_EQ(status(nested(101)), 400);
  EXPECT_EQ(status("{\"a\": " + std::string(1'000'000, '[')), 400);
}

TEST(ServeRequest, MutatedRequestsAreParsedOrRejected) {
  const std::vector<std::string> bodies = {
      json_text(chat(R"({"temperature": 0.5, "stop": ["a"], "logit_bias": {"5": 1}, "tools": [{"type": "function",
                "function": {"name": "f", "parameters": {"type": "object"}}}], "stream_options": {"include_usage": true},
                "tool_choice": "required", "chat_template_kwargs": {"x": 1}, "response_format": {"type": "text"},
                "n": 3})")),
      json_text(
          completion(R"({"prompt": [[1, 2], "text", [3]], "seed": 12345678901, "logprobs": 2, "max_tokens": 5})")),
      R"({"input": ["a", [1, 2], "b"], "encoding_format": "base64", "dimensions": 3, "cache_salt": "x"})"};
  const std::vector<std::string> pieces = {"null", "{}",   "[]",       "-1",      "1e999",
                                           "\"\"", "true", "\xf0\x9f", "\\u0000", "9999999999999999999999"};
  test::run_fuzz_cases([&](std::mt19937_64& random) {
    std::string body = bodies[random() % bodies.size()];
    for (std::uint64_t changes = 1 + random() % 4; changes > 0; --changes) {
      const std::size_t at = random() % (body.size() + 1);
      switch (random() % 4) {
        case 0: body.insert(at, pieces[random() % pieces.size()]); break;
        case 1: body.erase(at, random() % 8); break;
        case 2:
          if (at < body.size()) body[at] = static_cast<char>(random());
          break;
        default: {  // replace a value
          const std::size_t colon = body.find(':', at);
          const std::size_t end = body.find_first_of(",}", colon);
          if (end != std::string::npos) body.replace(colon + 1, end - colon - 1, pieces[random() % pieces.size()]);
        }
      }
    }
    for (const int kind : {0, 1, 2}) try {
        const Json parsed = parse_body(body);
        if (kind == 0)
          parse_chat_request(parsed, defaults());
        else if (kind == 1)
          parse_completion_request(parsed, defaults());
        else
          parse_embedding_request(parsed, defaults());
      } catch (const ApiError& e) {
        EXPECT_TRUE(e.status() == 400 || e.status() == 404);
        EXPECT_TRUE(Json::accept(e.body()));
      }
  });
}

TEST(ServeAccess, ChecksKeys) {
  const AccessRules rules{.keys = parse_keys("# comment\nfirst\n\nsecond\r\n"), .loopback = false};
  EXPECT_EQ(rules.keys, (std::vector<std::string>{"first", "second"}));
  const auto accepts = [&](const std::string& authorization) {
    try {
      check_key(rules, {.authorization = authorization});
      return true;
    } catch (const ApiError& e) {
      EXPECT_EQ(e.status(), 401);
      return false;
    }
  };
  EXPECT_TRUE(accepts("Bearer first"));
  EXPECT_TRUE(accepts("bearer  second"));
  for (const char* bad : {"", "first", "Bearer", "Bearer ", "Bearer firs", "Bearer first ", "Basic first"})
    EXPECT_FALSE(accepts(bad)) << bad;
  EXPECT_NO_THROW(check_key({}, {}));
  test::expect_throw<ArgumentError>([] { parse_keys("# none\n"); }, {"no API key"});
  test::expect_throw<ArgumentError>([] { parse_keys("# c\nk\n\na b\n"); }, {"line = 4", "space"});
}

TEST(ServeAccess, ChecksHostAndOrigin) {
  const auto accepts = [&](const AccessRules& rules, const std::string& host, std::optional<std::string> origin) {
    try {
      check_browser(rules, {.host = host, .origin = origin});
      return true;
    } catch (const ApiError& e) {
      EXPECT_EQ(e.status(), 403);
      return false;
    }
  };
  const AccessRules local, named{.origins = {"https://a.example"}}, remote{.loopback = false}, key{.keys = {"k"}};
  for (const char* good : {"localhost", "LOCALHOST:8080", "127.0.0.1:8080", "127.1.2.3", "[::1]:8080", "[::1]"})
    EXPECT_TRUE(accepts(local, good, {})) << good;
  for (const char* bad : {"", "evil.example", "127.evil.example", "localhost.evil.example:8080", "10.0.0.1", "[::2]"})
    EXPECT_FALSE(accepts(local, bad, {})) << bad;
  EXPECT_TRUE(accepts(remote, "evil.example", {}));
  EXPECT_TRUE(accepts(key, "proxy.example", {}));
  EXPECT_FALSE(accepts(local, "localhost", "https://evil.example"));
  EXPECT_FALSE(accepts(local, "localhost", "null"));
  EXPECT_FALSE(accepts(key, "localhost", "https://evil.example"));
  EXPECT_TRUE(accepts(local, "localhost:8080", "http://localhost:8080")) << "the same origin";
  EXPECT_TRUE(accepts(named, "localhost", "https://a.example"));
  EXPECT_FALSE(accepts(named, "localhost", "https://a.example.evil"));
}

TEST(ServeMetrics, WritesHistograms) {
  Metrics metrics;
  metrics.count(RequestOutcome::completed);
  metrics.add_time_to_first_token(0.3);
  metrics.add_time_to_first_token(100);
  const std::string text = metrics.text({.queued = 2, .generated_tokens = 7}, 3);
  for (const char* line :
       {"tessera_requests_total{outcome=\"completed\"} 1\n", "tessera_queued_requests 2\n", "tessera_connections 3\n",
        "tessera_generated_tokens_total 7\n", "tessera_time_to_first_token_seconds_bucket{le=\"0.25\"} 0\n",
        "tessera_time_to_first_token_seconds_bucket{le=\"0.5\"} 1\n",
        "tessera_time_to_first_token_seconds_bucket{le=\"+Inf\"} 2\n", "tessera_time_to_first_token_seconds_count 2\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
}

}  // namespace
}  // namespace tessera::app
