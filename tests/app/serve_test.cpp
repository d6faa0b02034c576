// SPDX-License-Identifier: Apache-2.0
// The endpoints of `tessera serve`, through sockets, with the shipped model and with a scripted model that calls tools.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <regex>
#include <thread>

#include "tessera/base/unicode.h"
#include "tests/app/serve_server.h"
#include "tests/embedding/embedding_values.h"
#include "tests/support/folder.h"
#include "tests/support/scripted_model.h"

using namespace std::chrono_literals;

namespace tessera::app {
namespace {

using nlohmann::json;
using test::HttpAnswer;
using test::HttpClient;

TestServer& shipped() {
  static TestServer server(shipped_engine(), {}, {.comment_time = 20ms});
  return server;
}

json chat(const json& members = json::object()) {
  json body = {{"messages", {{{"role", "user"}, {"content", "What is an index?"}}}}, {"max_tokens", 12}, {"seed", 5}};
  body.update(members);
  return body;
}
/// A request that takes long enough to be interrupted: 900 tokens without an end.
json endless() { return chat({{"max_tokens", 900}, {"logit_bias", {{"2047", -100}}}, {"n", 8}}); }

Stream stream_of(TestServer& server, const std::string& path, json body) {
  body["stream"] = true;
  const HttpAnswer a = server.post(path, body);
  EXPECT_EQ(a.status, 200) << a.body;
  EXPECT_TRUE(a.headers.at("content-type").starts_with("text/event-stream"));
  return parse_stream(a.body);
}
/// Joins a member of the deltas of a choice.
std::string joined(const Stream& stream, const std::string& member, int index = 0) {
  std::string out;
  for (const json& chunk : stream.chunks)
    for (const json& choice : chunk["choices"])
      if (choice["index"] == index && choice["delta"].contains(member) && choice["delta"][member].is_string())
        out += choice["delta"][member].get<std::string>();
  return out;
}

TEST(Serve, AnswersChats) {
  const HttpAnswer a = shipped().post("/v1/chat/completions", chat({{"model", "pgdocs"}}));
  ASSERT_EQ(a.status, 200) << a.body;
  const json j = a.json();
  EXPECT_EQ(j["object"], "chat.completion");
  EXPECT_TRUE(j["id"].get<std::string>().starts_with("chatcmpl-"));
  EXPECT_EQ(j["model"], "pgdocs");
  const json& choice = j["choices"][0];
  EXPECT_EQ(choice["message"]["role"], "assistant");
  EXPECT_FALSE(choice["message"]["content"].get<std::string>().empty());
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_EQ(j["usage"]["completion_tokens"], 12);
  const int prompt = j["usage"]["prompt_tokens"];
  EXPECT_EQ(j["usage"]["total_tokens"], prompt + 12);
  // The second time, the full pages of a prompt are not read.
  std::string text;
  for (int i = 0; i < 60; ++i) text += " index";
  const json longer = {{"messages", {{{"role", "user"}, {"content", text}}}}};
  shipped().post("/v1/chat/completions", chat(longer));
  const json again = shipped().post("/v1/chat/completions", chat(longer)).json();
  const int length = again["usage"]["prompt_tokens"], cached = (length - 1) / 64 * 64;
  EXPECT_GT(cached, 0);
  EXPECT_EQ(again["usage"]["prompt_tokens_details"]["cached_tokens"], cached);
  EXPECT_EQ(again["timings"]["prompt_n"], length - cached);
  for (const json& members : {json{{"cache_salt", "one"}}, json{{"cache_salt", "other"}}}) {
    json salted = chat(longer);
    salted.update(members);
    const json answer = shipped().post("/v1/chat/completions", salted).json();
    EXPECT_EQ(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
  }
}

TEST(Serve, StreamsTheSameTextAsItReturns) {
  shipped().post("/v1/chat/completions", chat());  // both answers below find the prompt in the cache
  for (const json& members : {json{{"temperature", 1.5}}, json{{"n", 3}, {"logprobs", true}, {"top_logprobs", 2}}}) {
    json body = chat(members);
    body["max_tokens"] = 60;
    const json whole = shipped().post("/v1/chat/completions", body).json();
    body["stream_options"] = {{"include_usage", true}};
    const Stream s = stream_of(shipped(), "/v1/chat/completions", body);
    EXPECT_TRUE(s.done);
    EXPECT_FALSE(s.error);
    for (const json& choice : whole["choices"]) {
      const int index = choice["index"];
      EXPECT_EQ(choice["message"]["content"], joined(s, "content", index));
      json likely = json::array();
      std::string reason;
      bool first = true;
      for (const json& chunk : s.chunks)
        for (const json& c : chunk["choices"]) {
          if (c["index"] != index) continue;
          EXPECT_EQ(c["delta"].contains("role"), first);
          first = false;
          EXPECT_TRUE(reason.empty()) << "a chunk after the end";
          if (c["finish_reason"].is_string()) reason = c["finish_reason"];
          if (c["logprobs"].is_object())
            for (const json& t : c["logprobs"]["content"]) likely.push_back(t);
        }
      EXPECT_EQ(choice["finish_reason"], reason);
      if (members.contains("logprobs")) {
        EXPECT_EQ(likely, choice["logprobs"]["content"]);
        EXPECT_EQ(likely.size(), 60u);
        EXPECT_EQ(likely[0]["top_logprobs"].size(), 2u);
      }
    }
    EXPECT_EQ(s.chunks.back()["choices"].size(), 0u);
    EXPECT_EQ(s.chunks.back()["usage"], whole["usage"]);
    EXPECT_TRUE(s.chunks[0]["usage"].is_null());
    EXPECT_TRUE(s.chunks[s.chunks.size() - 2].contains("timings"));
  }
}

TEST(Serve, ChunksContainWholeCharacters) {
  // Tokens of single bytes are forced, so that characters are split across tokens.
  const json tokens = shipped().post("/tokenize", {{"content", "é😀"}}).json()["tokens"];
  json bias = json::object();
  for (const json& t : tokens) bias[std::to_string(t.get<int>())] = 100;
  const Stream s = stream_of(shipped(), "/v1/chat/completions",
                             chat({{"logit_bias", bias}, {"temperature", 2}, {"max_tokens", 200}}));
  EXPECT_TRUE(s.done);
  std::string text = joined(s, "content");
  EXPECT_NE(text.find("\xef\xbf\xbd"), std::string::npos) << "invalid sequences are replaced";
  for (std::string_view rest = text; !rest.empty();) {
    const Utf8Unit unit = utf8_unit(rest);
    EXPECT_EQ(unit.kind, Utf8Unit::Kind::character);
    rest.remove_prefix(unit.size);
  }
}

TEST(Serve, StopsAtStopStrings) {
  const std::string text =
      shipped().post("/v1/chat/completions", chat({{"temperature", 0}})).json()["choices"][0]["message"]["content"];
  const std::string stop = text.substr(text.size() / 2, 4);
  const json j = shipped().post("/v1/chat/completions", chat({{"temperature", 0}, {"stop", stop}})).json();
  EXPECT_EQ(j["choices"][0]["message"]["content"], text.substr(0, text.find(stop)));
  EXPECT_EQ(j["choices"][0]["finish_reason"], "stop");
}

TEST(Serve, AnswersMatchTheResponseFormat) {
  const json schema = {
      {"type", "object"},
      {"properties", {{"name", {{"type", "string"}, {"maxLength", 12}}}, {"count", {{"type", "integer"}}}}},
      {"required", {"name", "count"}},
      {"additionalProperties", false}};
  int complete = 0;
  for (int seed = 0; seed < 6; ++seed) {
    const json format = {{"type", "json_schema"},
                         {"json_schema", {{"name", "item"}, {"schema", schema}, {"strict", true}}}};
    const json body = chat({{"temperature", 1.5}, {"seed", seed}, {"max_tokens", 150}, {"response_format", format}});
    const json choice = shipped().post("/v1/chat/completions", body).json()["choices"][0];
    if (choice["finish_reason"] != "stop") continue;
    const json answer = json::parse(choice["message"]["content"].get<std::string>());
    EXPECT_EQ(answer.size(), 2u) << answer;
    EXPECT_TRUE(answer["name"].is_string() && answer["count"].is_number_integer()) << answer;
    ++complete;
  }
  EXPECT_GT(complete, 2);
  const json word = {{"prompt", "The"}, {"max_tokens", 20}, {"grammar", R"(root ::= " index" | " table")"}};
  const std::string text = shipped().post("/v1/completions", word).json()["choices"][0]["text"];
  EXPECT_TRUE(text == " index" || text == " table") << text;
}

TEST(Serve, AnswersCompletions) {
  const json body = {{"prompt", "The index"}, {"max_tokens", 8}, {"temperature", 0}, {"logprobs", 2}};
  const json one = shipped().post("/v1/completions", body).json();
  EXPECT_EQ(one["object"], "text_completion");
  const std::string text = one["choices"][0]["text"];
  const json& likely = one["choices"][0]["logprobs"];
  ASSERT_EQ(likely["tokens"].size(), 8u);
  std::string from_tokens;
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(likely["text_offset"][i], from_tokens.size());
    from_tokens += likely["tokens"][i].get<std::string>();
  }
  EXPECT_EQ(from_tokens, text);
  EXPECT_EQ(likely["top_logprobs"][0].size(), 2u);

  // Prompts as token ids, several prompts, several sequences, and echo.
  const json tokens = shipped().post("/tokenize", {{"content", "The index"}, {"add_special", true}}).json()["tokens"];
  const json several =
      shipped()
          .post("/v1/completions",
                {{"prompt", {tokens, tokens}}, {"n", 2}, {"max_tokens", 8}, {"temperature", 0}, {"echo", true}})
          .json();
  ASSERT_EQ(several["choices"].size(), 4u);
  for (const json& choice : several["choices"])
    EXPECT_TRUE(choice["text"].get<std::string>().ends_with("The index" + text)) << choice;
  EXPECT_EQ(several["usage"]["completion_tokens"], 32);
  EXPECT_EQ(several["usage"]["prompt_tokens"], 2 * tokens.size());

  const Stream s = stream_of(shipped(), "/v1/completions",
                             {{"prompt", "The index"}, {"max_tokens", 8}, {"temperature", 0}, {"echo", true}});
  std::string streamed;
  for (const json& chunk : s.chunks) streamed += chunk["choices"][0]["text"].get<std::string>();
  EXPECT_EQ(streamed, "The index" + text);
  EXPECT_EQ(shipped()
                .post("/v1/completions", {{"prompt", "The index"}, {"max_tokens", 0}, {"echo", true}})
                .json()["choices"][0]["text"],
            "The index");
}

TEST(Serve, SpecialTokensAreParsedInPromptsButNotInMessages) {
  const auto tokens = [](const json& j) { return j["usage"]["prompt_tokens"].get<int>(); };
  const int plain =
      tokens(shipped().post("/v1/completions", {{"prompt", "a<|endoftext|>b"}, {"max_tokens", 1}}).json());
  EXPECT_LE(plain, 4);
  const json applied =
      shipped().post("/apply-template", {{"messages", {{{"role", "user"}, {"content", "<|endoftext|>"}}}}}).json();
  int ends = 0;
  for (const json& t : applied["tokens"]) ends += t == 2047;
  EXPECT_EQ(ends, 1) << "only the begin token";
  EXPECT_NE(applied["prompt"].get<std::string>().find("<|endoftext|>"), std::string::npos);
}

TEST(Serve, TokenizesAndDetokenizes) {
  const json j = shipped().post("/tokenize", {{"content", "The index"}, {"with_pieces", true}}).json();
  EXPECT_EQ(j["count"], 2);
  EXPECT_EQ(j["tokens"][1]["piece"], " index");
  EXPECT_EQ(shipped().post("/detokenize", {{"tokens", {384, 538}}}).json()["content"], "The index");
  EXPECT_EQ(shipped().post("/detokenize", {{"tokens", {-1}}}).status, 400);
  EXPECT_EQ(shipped().request("GET", "/v1/models").json()["data"][0]["id"], "pgdocs");
}

TEST(Serve, ErrorsHaveOpenAisShape) {
  struct Case {
    std::string method, path, body;
    int status;
    std::string param, part;
  };
  std::string words;
  for (int i = 0; i < 2000; ++i) words += " index";
  const std::string long_chat = chat({{"messages", {{{"role", "user"}, {"content", words}}}}}).dump();
  const std::vector<Case> cases = {
      {"GET", "/nothing", "", 404, "", "nothing at this path"},
      {"POST", "/v1/embeddings", "{}", 400, "input", "required"},
      {"POST", "/v1/embeddings", json{{"input", words}}.dump(), 400, "input", "the prompt has 2001"},
      {"GET", "/v1/models/other", "", 404, "model", "pgdocs"},
      {"GET", "/v1/models/", "", 404, "model", "pgdocs"},
      {"POST", "/v1/models/pgdocs", "{}", 405, "", "GET"},
      {"GET", "/v1/chat/completions", "", 405, "", "POST"},
      {"POST", "/health", "{}", 405, "", "GET"},
      {"HEAD", "/v1/completions", "", 405, "", ""},
      {"POST", "/v1/chat/completions", "{", 400, "", "not valid JSON"},
      {"POST", "/v1/chat/completions", "", 400, "", "not valid JSON"},
      {"POST", "/v1/chat/completions", "{}", 400, "messages", "at least one"},
      {"POST", "/v1/chat/completions", R"({"model": "other"})", 404, "model", "pgdocs"},
      {"POST", "/v1/chat/completions",
       chat({{"tools", {{{"type", "function"}, {"function", {{"name", "f"}}}}}}}).dump(), 400, "tools",
       "does not support tools"},
      {"POST", "/v1/chat/completions", long_chat, 400, "messages", "1024"},
      {"POST", "/v1/completions", json{{"prompt", words}}.dump(), 400, "prompt", "the prompt has 2001"},
      {"POST", "/v1/completions", json{{"prompt", std::string(1 << 20, 'a')}}.dump(), 400, "prompt", "at least"},
      {"POST", "/v1/chat/completions",
       chat({{"messages", {{{"role", "user"}, {"content", std::string(1 << 20, 'a')}}}}}).dump(), 400, "messages",
       "at least"},
      {"POST", "/v1/completions", R"({"prompt": []})", 400, "prompt", "no tokens"},
      {"POST", "/v1/completions", R"({"prompt": "a", "n": 99})", 400, "n", "from 1 to 8"},
  };
  for (const Case& c : cases) {
    HttpClient client(shipped().port());
    client.send(HttpClient::text(c.method, c.path, c.body));
    if (c.method == "HEAD") {
      while (client.received().find("\r\n\r\n") == std::string::npos) client.read_some();
      EXPECT_TRUE(client.received().starts_with("HTTP/1.1 405")) << client.received();
      EXPECT_TRUE(client.received().ends_with("\r\n\r\n")) << "a body after the head";
      continue;
    }
    const HttpAnswer a = client.read_answer();
    EXPECT_EQ(a.status, c.status) << c.path << " " << a.body;
    const json error = a.json()["error"];
    EXPECT_NE(error["message"].get<std::string>().find(c.part), std::string::npos) << error;
    EXPECT_EQ(error["param"], c.param.empty() ? json(nullptr) : json(c.param)) << error;
    EXPECT_TRUE(error["type"].is_string());
    EXPECT_TRUE(error.contains("code"));
    // The connection can be used for another request.
    EXPECT_EQ(client.request("GET", "/health").status, 200);
  }
  EXPECT_EQ(shipped().request("PUT", "/v1/models").headers.at("allow"), "GET, HEAD");
  EXPECT_EQ(shipped().request("PUT", "/v1/completions").headers.at("allow"), "POST");
}

TEST(Serve, DescribesItsModelAndAnswersHead) {
  const json list = shipped().request("GET", "/v1/models").json();
  const json one = shipped().request("GET", "/v1/models/pg%64ocs").json();
  EXPECT_EQ(one, list["data"][0]);
  EXPECT_EQ(one["id"], "pgdocs");
  for (const std::string path : {"/health", "/v1/models"}) {
    HttpClient client(shipped().port());
    const std::size_t length = client.request("GET", path).body.size();
    client.send(HttpClient::text("HEAD", path));
    while (client.received().find("\r\n\r\n") == std::string::npos) client.read_some();
    EXPECT_TRUE(client.received().starts_with("HTTP/1.1 200")) << client.received();
    EXPECT_NE(client.received().find("Content-Length: " + std::to_string(length)), std::string::npos);
    EXPECT_TRUE(client.received().ends_with("\r\n\r\n")) << "a body after the head";
  }
}

TEST(Serve, AnswersFillTheContextButNotMore) {
  const json tokens = shipped().post("/tokenize", {{"content", std::string(800, '7')}}).json()["tokens"];
  for (const std::size_t given : {1020u, 1023u, 1024u}) {
    json prompt = tokens;
    while (prompt.size() < given) prompt.insert(prompt.end(), tokens.begin(), tokens.end());
    prompt.erase(prompt.begin() + static_cast<std::ptrdiff_t>(given), prompt.end());
    const json j =
        shipped()
            .post("/v1/completions", {{"prompt", prompt}, {"logit_bias", {{"2047", -100}}}, {"max_tokens", 50}})
            .json();
    EXPECT_EQ(j["usage"]["prompt_tokens"], given);
    EXPECT_EQ(j["usage"]["total_tokens"], 1024);
    EXPECT_EQ(j["choices"][0]["finish_reason"], "length");
  }
}

TEST(Serve, EmbedsTexts) {
  const json j = shipped().post("/v1/embeddings", {{"model", "pgdocs"}, {"input", "The index"}}).json();
  EXPECT_EQ(j["object"], "list");
  EXPECT_EQ(j["model"], "pgdocs");
  EXPECT_EQ(j["usage"], (json{{"prompt_tokens", 3}, {"total_tokens", 3}}));
  ASSERT_EQ(j["data"].size(), 1u);
  EXPECT_EQ(j["data"][0]["object"], "embedding");
  const auto values = j["data"][0]["embedding"].get<std::vector<double>>();
  double squares = 0;
  for (const double v : values) squares += v * v;
  EXPECT_NEAR(squares, 1, 1e-5);
  // Several inputs, also as tokens, in order; and numbers as base64.
  const json tokens = shipped().post("/tokenize", {{"content", "The index"}, {"add_special", true}}).json()["tokens"];
  const json both = shipped().post("/v1/embeddings", {{"input", {json::array({384}), tokens}}}).json();
  ASSERT_EQ(both["data"].size(), 2u);
  EXPECT_EQ(both["data"][1]["index"], 1);
  EXPECT_EQ(both["data"][1]["embedding"], j["data"][0]["embedding"]);
  EXPECT_NE(both["data"][0]["embedding"], j["data"][0]["embedding"]);
  EXPECT_EQ(both["usage"]["prompt_tokens"], 4);
  const json packed =
      shipped().post("/v1/embeddings", {{"input", "The index"}, {"encoding_format", "base64"}}).json()["data"][0];
  EXPECT_EQ(packed["embedding"].get<std::string>().size(), (values.size() * 4 + 2) / 3 * 4);
  // Text that looks like a special token is text.
  const json plain = shipped().post("/v1/embeddings", {{"input", "<|endoftext|>"}}).json();
  EXPECT_GT(plain["usage"]["prompt_tokens"], 2);
  EXPECT_NE(shipped().log().find(" embedding 200 completed "), std::string::npos);
}

TEST(Serve, LogHasOneLinePerRequestWithoutItsText) {
  const std::string before = shipped().log();
  shipped().post("/v1/chat/completions", chat({{"messages", {{{"role", "user"}, {"content", "secretword"}}}}}));
  shipped().request("GET", "/secretword");
  const std::string added = shipped().log().substr(before.size());
  EXPECT_EQ(std::count(added.begin(), added.end(), '\n'), 2) << added;
  EXPECT_EQ(added.find("secretword"), std::string::npos);
  for (const char* part : {" chat 200 completed ", "generated=12", "cached=", "finish=length"})
    EXPECT_NE(added.find(part), std::string::npos) << added;
}

TEST(Serve, WaitingStreamsReceiveComments) {
  TestServer server(shipped_engine({.context = 1024, .parallel = 1}), {}, {.comment_time = 20ms});
  HttpClient first(server.port());
  json body = endless();
  body["n"] = 1;
  first.send(HttpClient::text("POST", "/v1/chat/completions", body.dump()));
  while (server.metric("tessera_running_sequences") < 1) std::this_thread::sleep_for(1ms);
  const Stream s = stream_of(server, "/v1/chat/completions", chat());
  EXPECT_TRUE(s.done);
  EXPECT_GE(s.comments, 1);
}

TEST(Serve, HangUpCancelsTheRequest) {
  TestServer server(shipped_engine({.context = 1024, .parallel = 1}));
  for (const bool stream : {true, false})
    for (const bool waits : {false, true}) {
      json body = endless();
      body["stream"] = stream;
      std::optional<HttpClient> running(std::in_place, server.port()), waiting;
      running->send(HttpClient::text("POST", "/v1/chat/completions", body.dump()));
      while (server.metric("tessera_running_sequences") < 1) std::this_thread::sleep_for(1ms);
      if (waits) {
        waiting.emplace(server.port());
        waiting->send(HttpClient::text("POST", "/v1/chat/completions", body.dump()));
        while (server.metric("tessera_queued_requests") < 1) std::this_thread::sleep_for(1ms);
        waiting.reset();
        while (server.metric("tessera_queued_requests") > 0) std::this_thread::sleep_for(1ms);
        EXPECT_EQ(server.metric("tessera_running_sequences"), 1) << "the other request continues";
      }
      const double tokens = server.metric("tessera_generated_tokens_total");
      running.reset();
      EXPECT_LT(server.wait_until_idle(), 5);
      EXPECT_LT(server.metric("tessera_generated_tokens_total") - tokens, 7000);
    }
  EXPECT_NE(server.log().find("chat 499 cancelled"), std::string::npos);
}

TEST(Serve, ManyClientsWithHangUps) {
  shipped().wait_until_idle();
  std::atomic<int> good = 0, hung_up = 0;
  std::vector<std::thread> clients;
  for (unsigned i = 0; i < 64; ++i)
    clients.emplace_back([&, i] {
      std::mt19937 random(i);
      const int tokens = 1 + static_cast<int>(random() % 40);
      json body = {{"prompt", "Table " + std::to_string(random() % 9)},
                   {"max_tokens", tokens},
                   {"logit_bias", {{"2047", -100}}}};
      body["stream"] = i % 2 == 0;
      body["stream_options"] = {{"include_usage", true}};
      const std::string text = HttpClient::text("POST", "/v1/completions", body.dump());
      HttpClient client(shipped().port());
      if (i % 3 == 0) {  // hang up after a random number of bytes of the request or of the answer
        const std::size_t bytes = random() % (2 * text.size());
        client.send(text.substr(0, bytes));
        while (bytes > text.size() && client.received().size() < bytes - text.size() && client.read_some()) {}
        ++hung_up;
        return;
      }
      client.send(text);
      HttpAnswer a;
      ASSERT_NO_THROW(a = client.read_answer());
      ASSERT_EQ(a.status, 200) << a.body;
      const json last = i % 2 == 0 ? parse_stream(a.body).chunks.back() : a.json();
      EXPECT_EQ(last["usage"]["completion_tokens"], tokens);
      ++good;
    });
  for (std::thread& c : clients) c.join();
  EXPECT_EQ(good, 42);
  EXPECT_EQ(hung_up, 22);
  shipped().wait_until_idle();
  // Closed connections are noticed without a request. The one that remains requests the metrics.
  for (int i = 0; i < 500 && shipped().metric("tessera_connections") > 1; ++i) std::this_thread::sleep_for(10ms);
  EXPECT_EQ(shipped().metric("tessera_connections"), 1);
}

TEST(Serve, FullQueueIsRejected) {
  TestServer server(shipped_engine({.context = 1024, .parallel = 1, .queue = 1}));
  HttpClient running(server.port()), waiting(server.port());
  running.send(HttpClient::text("POST", "/v1/chat/completions", endless().dump()));
  while (server.metric("tessera_running_sequences") < 1) std::this_thread::sleep_for(1ms);
  waiting.send(HttpClient::text("POST", "/v1/chat/completions", endless().dump()));
  while (server.metric("tessera_queued_requests") < 1) std::this_thread::sleep_for(1ms);
  const HttpAnswer a = server.post("/v1/chat/completions", chat());
  EXPECT_EQ(a.status, 429);
  EXPECT_EQ(a.json()["error"]["code"], "queue_full");
  EXPECT_TRUE(a.headers.count("retry-after"));
}

std::unique_ptr<EmbeddingEngine> embedding_engine(std::int64_t context, std::int64_t batch, std::uint32_t limit) {
  const auto bytes =
      test::embedding_writer(test::embedding_figures()["cases"][0]).set("tessera.embedding.max_tokens", limit).bytes();
  const Device cpu{Backend::cpu, 0};
  return std::make_unique<EmbeddingEngine>(EmbeddingModel::load(GgufFile::parse(bytes, "bert"), {&cpu, 1}),
                                           RequestDefaults{.model = "bert", .context = context}, batch);
}

TEST(Serve, QueueOfEmbeddingsIsLimited) {
  TestServer server(embedding_engine(0, 1 << 20, 128), 2);  // all texts of a request are one step
  const std::string running = "tessera_running_sequences", queued = "tessera_queued_requests";
  const std::string path = "/v1/embeddings", body = json{{"input", std::vector(1024, std::vector(128, 7))}}.dump();
  const auto wait_for_queue = [&](double value) {
    for (int i = 0; i < 5000 && server.metric(queued) != value; ++i) std::this_thread::sleep_for(1ms);
    EXPECT_EQ(server.metric(queued), value);
  };
  const auto send = [&](std::optional<HttpClient>& client, const std::string& to, const std::string& text) {
    client.emplace(server.port());
    client->send(HttpClient::text("POST", to, text));
  };
  std::optional<HttpClient> first, second, third;
  send(first, path, body);
  while (server.metric(running) < 1) std::this_thread::sleep_for(1ms);
  send(second, path, R"({"input": "a cat"})");
  wait_for_queue(1);
  for (int i = 0; i < 3; ++i) {  // requests of lost clients leave the queue
    send(third, "/tokenize", R"({"content": "a cat"})");
    wait_for_queue(2);
    for (const HttpAnswer& a : {server.post(path, {{"input", "b"}}), server.post("/detokenize", {{"tokens", {7}}})}) {
      EXPECT_EQ(a.status, 429);
      EXPECT_EQ(a.json()["error"]["code"], "queue_full");
      EXPECT_TRUE(a.headers.count("retry-after"));
    }
    third.reset();
    wait_for_queue(1);
  }
  EXPECT_GE(server.metric(running), 1) << "the first request is still computed";
  send(third, "/tokenize", R"({"content": "a cat"})");
  first.reset();
  EXPECT_EQ(second->read_answer().json()["usage"]["prompt_tokens"], 6);
  EXPECT_EQ(third->read_answer().json()["count"], 4);
  for (const char* part : {"embedding 429 rejected", "embedding 499 cancelled", "embedding 200 completed"}) {
    // A client may have an answer before it is logged.
    for (int i = 0; i < 5000 && server.log().find(part) == std::string::npos; ++i) std::this_thread::sleep_for(1ms);
    EXPECT_NE(server.log().find(part), std::string::npos) << server.log();
  }

  // The request of a lost client is computed until its step has ended.
  send(first, path, body);
  while (server.metric(running) < 1) std::this_thread::sleep_for(1ms);
  first.reset();
  double least = 0;
  while (server.metric(running) > 0) least = std::min(least, server.metric(queued));
  EXPECT_EQ(least, 0);
}

TEST(Serve, TextsMayBeAsLongAsTheEmbeddingModelAccepts) {
  for (const auto& [context, limit, most] : {std::tuple(0, 20u, 20), {128, 20u, 20}, {12, 20u, 12}, {0, 500u, 128}}) {
    TestServer server(embedding_engine(context, 512, limit), 4);
    const auto length = static_cast<std::size_t>(most);
    EXPECT_EQ(server.request("GET", "/v1/models").json()["data"][0]["max_model_len"], most);
    EXPECT_EQ(server.post("/v1/embeddings", {{"input", std::vector(length, 7)}}).status, 200);
    const HttpAnswer a = server.post("/v1/embeddings", {{"input", std::vector(length + 1, 7)}});
    EXPECT_EQ(a.status, 400) << a.body;
    EXPECT_EQ(a.json()["error"]["code"], "context_length_exceeded");
    for (const int number : {most, most + 1})
      EXPECT_NE(a.body.find(std::to_string(number) + (number == most ? " tokens" : "")), std::string::npos) << a.body;
  }
}

TEST(Serve, ShutDownFinishesThenCancels) {
  TestServer server(shipped_engine({.context = 1024, .parallel = 1}), {}, {}, 100ms);
  HttpClient waits(server.port()), streams(server.port()), idle(server.port());
  EXPECT_EQ(idle.request("GET", "/health").status, 200);
  json body = endless();
  body["stream"] = true;
  streams.send(HttpClient::text("POST", "/v1/chat/completions", body.dump()));
  while (server.metric("tessera_running_sequences") < 1) std::this_thread::sleep_for(1ms);
  waits.send(HttpClient::text("POST", "/v1/chat/completions", endless().dump()));
  while (server.metric("tessera_queued_requests") < 1) std::this_thread::sleep_for(1ms);
  server.shut_down();
  EXPECT_TRUE(idle.closes());
  const Stream s = parse_stream(streams.read_answer().body);
  EXPECT_TRUE(s.done);
  ASSERT_TRUE(s.error);
  EXPECT_EQ((*s.error)["error"]["code"], "server_stopping");
  const HttpAnswer a = waits.read_answer();
  EXPECT_EQ(a.status, 503);
  EXPECT_EQ(a.headers.at("connection"), "close");
  // The answer ends with the first sequence that is cancelled, which may be one that waits. On a fast machine, others
  // have filled the context before.
  EXPECT_TRUE(std::regex_search(server.log(), std::regex("finish=((none|length),)*cancelled"))) << server.log();
  EXPECT_EQ(server.log().find("finish=stop"), std::string::npos) << server.log();
  EXPECT_THROW(HttpClient{server.port()}, std::runtime_error) << "accepts no more connections";
}

TEST(Serve, ModelThatIsNotLoadedIs503) {
  TestServer server(nullptr);
  EXPECT_EQ(server.request("GET", "/health").status, 503);
  const HttpAnswer a = server.post("/v1/chat/completions", chat());
  EXPECT_EQ(a.status, 503);
  EXPECT_EQ(a.json()["error"]["code"], "model_loading");
  EXPECT_EQ(server.request("GET", "/metrics").status, 200);
}

TEST(Serve, ChecksKeysHostsAndOrigins) {
  TestServer keyed(nullptr, {.keys = {"k1"}, .origins = {"https://a.example"}});
  EXPECT_EQ(keyed.request("GET", "/v1/models").status, 401);
  EXPECT_EQ(keyed.request("GET", "/metrics").status, 401);
  EXPECT_EQ(keyed.request("GET", "/v1/models", "", {"Authorization: Bearer k2"}).status, 401);
  EXPECT_EQ(keyed.request("GET", "/metrics", "", {"Authorization: Bearer k1"}).status, 200);
  EXPECT_EQ(keyed.request("GET", "/health").status, 503) << "needs no key";
  const HttpAnswer preflight = keyed.request("OPTIONS", "/v1/chat/completions", "",
                                             {"Origin: https://a.example", "Access-Control-Request-Method: POST"});
  EXPECT_EQ(preflight.status, 204);
  EXPECT_EQ(preflight.headers.at("access-control-allow-origin"), "https://a.example");
  EXPECT_EQ(keyed
                .request("OPTIONS", "/v1/chat/completions", "",
                         {"Origin: https://b.example", "Access-Control-Request-Method: POST"})
                .status,
            403);

  TestServer open(nullptr);
  EXPECT_EQ(open.request("GET", "/health", "", {"Host: evil.example"}).status, 403);
  EXPECT_EQ(open.request("GET", "/health", "", {"Origin: https://evil.example"}).status, 403);
  EXPECT_EQ(open.request("GET", "/health", "", {"Host: localhost:1"}).status, 503);
}

TEST(Serve, RejectsInvalidHttp) {
  TestServer server(nullptr, {}, {.body = 1000});
  const auto status = [&](const std::string& bytes) {
    HttpClient client(server.port());
    client.send(bytes);
    const HttpAnswer a = client.read_answer();
    if (a.status >= 400) {
      const json body = json::parse(a.body);
      EXPECT_TRUE(body.contains("status") || body["error"]["message"].is_string()) << body;
    }
    return a.status;
  };
  const std::string start = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n";
  EXPECT_EQ(status("GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + std::string(20'000, 'a') + "\r\n\r\n"), 431);
  EXPECT_EQ(status(start + "Content-Length: 1001\r\n\r\n" + std::string(1001, 'a')), 413);
  EXPECT_EQ(status(start + "Transfer-Encoding: chunked\r\n\r\n7d0\r\n" + std::string(2000, 'a') + "\r\n0\r\n\r\n"),
            413);
  EXPECT_EQ(status(start + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400);
  EXPECT_EQ(status(start + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"), 400);
  EXPECT_EQ(status(start + "Transfer-Encoding: gzip\r\n\r\n"), 400);
  EXPECT_EQ(status(start + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcde"), 400);
  EXPECT_EQ(status(start + "Content-Length: -5\r\n\r\n"), 400);
  EXPECT_EQ(status(start + "Transfer-Encoding: chunked\r\n\r\nzz\r\n"), 400);
  EXPECT_EQ(status(start + "X: a\x01z\r\n\r\n"), 400);
  EXPECT_EQ(status("GET /health HTTP/1.1\r\n\r\n"), 400) << "no Host";
  EXPECT_EQ(status("GET /health HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n\r\n"), 400);
  EXPECT_EQ(status("nonsense\r\n\r\n"), 400);
  EXPECT_EQ(status(start + "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n{}"), 503);
  EXPECT_EQ(status("GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n"), 503);
}

TEST(Serve, SlowAndIdleClientsDoNotBlockOthers) {
  TestServer server(nullptr, {}, {.connections = 8, .header_time = 300ms, .body_time = 300ms});
  std::vector<std::unique_ptr<HttpClient>> slow;
  for (int i = 0; i < 20; ++i) {
    slow.push_back(std::make_unique<HttpClient>(server.port()));
    if (i % 3 == 1) slow.back()->send("GET /hea");
    if (i % 3 == 2)
      slow.back()->send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{");
    EXPECT_EQ(server.request("GET", "/health").status, 503);
  }
  // A client that has just connected is not closed for the next one, but the slowest is.
  HttpClient first(server.port()), second(server.port());
  for (HttpClient* const client : {&first, &second}) {
    client->send(HttpClient::text("GET", "/health"));
    EXPECT_EQ(client->read_answer().status, 503);
  }
  for (const auto& client : slow) EXPECT_TRUE(client->closes()) << "limits of time";
}

TEST(Serve, KeepsConnectionsAndPipelinesRequests) {
  HttpClient client(shipped().port());
  client.send(HttpClient::text("GET", "/health") + HttpClient::text("GET", "/v1/models") +
              HttpClient::text("GET", "/health"));
  EXPECT_EQ(client.read_answer().body, R"({"status":"ok"})");
  EXPECT_EQ(client.read_answer().json()["object"], "list");
  EXPECT_EQ(client.read_answer().status, 200);
}

TEST(Serve, PartsOfARequestMayArriveDuringAnAnswer) {
  const auto completion = [](int tokens) {
    return HttpClient::text("POST", "/v1/completions",
                            json{{"prompt", "Types:"}, {"max_tokens", tokens}, {"temperature", 0}}.dump());
  };
  const std::string next = completion(3);
  for (const std::size_t begun : {std::size_t{1}, std::size_t{20}, next.size() - 9}) {  // of the header and of the body
    HttpClient client(shipped().port());
    client.send(completion(60) + next.substr(0, begun));
    EXPECT_EQ(client.read_answer().json()["usage"]["completion_tokens"], 60);
    std::this_thread::sleep_for(20ms);
    client.send(next.substr(begun, 5));
    std::this_thread::sleep_for(20ms);
    client.send(next.substr(begun + 5) + HttpClient::text("GET", "/health"));
    EXPECT_EQ(client.read_answer().json()["usage"]["completion_tokens"], 3) << begun;
    EXPECT_EQ(client.read_answer().status, 200);
  }
}

std::unique_ptr<Engine> scripted_engine(const GgufWriter& writer) {
  const test::Folder folder;
  const std::string path = std::string(folder.path()) + "/model.gguf";
  writer.write(path);
  const auto file = GgufFile::open(path);
  auto model = load_on_cpu(file);
  return std::make_unique<Engine>(file, std::move(model), "",
                                  RequestDefaults{.model = "weather", .sampling = {.temperature = 0}},
                                  SchedulerOptions{});
}
json weather_chat() {
  return {{"messages", {{{"role", "user"}, {"content", "How is the weather?"}}}},
          {"tools", json::array({{{"type", "function"}, {"function", json::parse(test::weather_tools)[0]}}})}};
}

TEST(Serve, CallsTools) {
  TestServer server(scripted_engine(test::weather_model()));
  json body = weather_chat();
  const json j = server.post("/v1/chat/completions", body).json();
  const json message = j["choices"][0]["message"];
  EXPECT_EQ(j["choices"][0]["finish_reason"], "tool_calls");
  EXPECT_EQ(message["content"], "Let me see.");
  const json call = message["tool_calls"][0];
  EXPECT_EQ(call["type"], "function");
  EXPECT_EQ(call["function"]["name"], "get_weather");
  EXPECT_EQ(json::parse(call["function"]["arguments"].get<std::string>()), (json{{"town", "Zürich"}}));

  const Stream s = stream_of(server, "/v1/chat/completions", body);
  const auto calls_of = [](const Stream& stream) {
    std::vector<json> out;
    for (const json& chunk : stream.chunks)
      if (const json& delta = chunk["choices"][0]["delta"]; delta.contains("tool_calls"))
        out.insert(out.end(), delta["tool_calls"].begin(), delta["tool_calls"].end());
    return out;
  };
  std::vector<json> streamed = calls_of(s);
  ASSERT_EQ(streamed.size(), 3u) << "a delta for each token of the arguments";
  for (std::size_t i = 0; i < streamed.size(); ++i) {
    EXPECT_EQ(streamed[i]["index"], 0);
    streamed[i].erase("index");
    if (i == 0) continue;
    EXPECT_EQ(streamed[i].size(), 1u) << "only the first delta has the id and the name";
    streamed[0]["function"]["arguments"] = streamed[0]["function"]["arguments"].get<std::string>() +
                                           streamed[i]["function"]["arguments"].get<std::string>();
  }
  EXPECT_EQ(streamed[0], call);
  EXPECT_EQ(s.chunks.back()["choices"][0]["finish_reason"], "tool_calls");

  // An answer that is cut off within the arguments: the tokens of the text and of the call so far.
  json cut = body;
  cut["max_tokens"] = 6;
  const Stream part = stream_of(server, "/v1/chat/completions", cut);
  ASSERT_EQ(calls_of(part).size(), 2u);
  EXPECT_EQ(calls_of(part)[1]["function"]["arguments"], "\"Zü");
  EXPECT_EQ(part.chunks.back()["choices"][0]["finish_reason"], "length");
  const json text = server.post("/v1/chat/completions", cut).json()["choices"][0];
  EXPECT_EQ(text["finish_reason"], "length");
  EXPECT_TRUE(text["message"]["content"].get<std::string>().ends_with("\"Zü")) << text;

  // The result of the call
  body["messages"].push_back(message);
  body["messages"].push_back({{"role", "tool"}, {"tool_call_id", call["id"]}, {"content", "21.5 degrees"}});
  const json last = server.post("/v1/chat/completions", body).json();
  EXPECT_EQ(last["choices"][0]["message"]["content"], "It is warm.");
  EXPECT_EQ(last["choices"][0]["finish_reason"], "stop");
}

TEST(Serve, FillsGaps) {
  TestServer server(
      scripted_engine(test::scripted_model({"<|im_end|>", "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},
                                           {{"<|fim_middle|>", "the ", "gap", "<|im_end|>"}}, "{{ messages }}")));
  const json j = server.post("/v1/completions", {{"prompt", "a"}, {"suffix", "<|im_end|>"}, {"echo", true}}).json();
  EXPECT_EQ(j["choices"][0]["text"], "athe gap") << j;
  EXPECT_EQ(j["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(j["usage"]["prompt_tokens"], 3 + 1 + 10) << "special tokens in the texts are plain text";
  EXPECT_EQ(server.post("/v1/completions", {{"prompt", {97}}, {"suffix", "b"}}).json()["error"]["param"], "suffix");
  EXPECT_EQ(
      server.post("/v1/completions", {{"prompt", "a"}, {"suffix", std::string(5000, 'b')}}).json()["error"]["code"],
      "context_length_exceeded");
  const HttpAnswer none = shipped().post("/v1/completions", {{"prompt", "a"}, {"suffix", "b"}});
  EXPECT_EQ(none.status, 400);
  EXPECT_NE(none.json()["error"]["message"].get<std::string>().find("no tokens for filling in the middle"),
            std::string::npos);
  EXPECT_EQ(none.json()["error"]["param"], "suffix");
}

TEST(Serve, RequiredToolsAreCalledWithValidArguments) {
  // By itself, the model calls get_weather after some text. Its tokens in other places are nearly random, so the mark
  // of a call is made likely.
  TestServer server(scripted_engine(test::weather_model()));
  json body = weather_chat();
  body["tool_choice"] = "required";
  body["logit_bias"] = {{"4", 50}};
  const json j = server.post("/v1/chat/completions", body).json();
  const json choice = j["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls") << j;
  EXPECT_TRUE(choice["message"]["content"].is_null()) << "no text before the call";
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["name"], "get_weather");

  // A tool that the model does not call by itself, with a schema that restricts the arguments.
  body["tools"].push_back({{"type", "function"},
                           {"function",
                            {{"name", "book"},
                             {"parameters",
                              {{"type", "object"},
                               {"properties",
                                {{"town", {{"enum", {"Bern", "Basel"}}}},
                                 {"nights", {{"type", "integer"}, {"minimum", 1}, {"maximum", 14}}}}},
                               {"required", {"town", "nights"}}}}}}});
  body["tool_choice"] = {{"type", "function"}, {"function", {{"name", "book"}}}};
  body["temperature"] = 1.5;
  for (int seed = 0; seed < 4; ++seed) {
    body["seed"] = seed;
    const json message = server.post("/v1/chat/completions", body).json()["choices"][0]["message"];
    ASSERT_EQ(message["tool_calls"].size(), 1u) << message;
    EXPECT_EQ(message["tool_calls"][0]["function"]["name"], "book");
    const json arguments = json::parse(message["tool_calls"][0]["function"]["arguments"].get<std::string>());
    EXPECT_TRUE(arguments["town"] == "Bern" || arguments["town"] == "Basel") << arguments;
    EXPECT_TRUE(arguments["nights"] >= 1 && arguments["nights"] <= 14) << arguments;
  }
  const Stream s = stream_of(server, "/v1/chat/completions", body);
  EXPECT_EQ(s.chunks.back()["choices"][0]["finish_reason"], "tool_calls");
  EXPECT_EQ(joined(s, "content"), "");

  const auto rejected = [&](const json& members) {
    json changed = body;
    changed.update(members);
    const HttpAnswer a = server.post("/v1/chat/completions", changed);
    EXPECT_EQ(a.status, 400) << a.body;
    return a.json()["error"];
  };
  json unsupported = body["tools"];
  unsupported[1]["function"]["parameters"]["properties"]["town"] = {{"contentEncoding", "base64"}};
  const json error = rejected({{"tools", unsupported}});
  EXPECT_EQ(error["param"], "tools[1].function.parameters");
  EXPECT_NE(error["message"].get<std::string>().find("contentEncoding"), std::string::npos) << error;
  EXPECT_EQ(rejected({{"response_format", {{"type", "json_object"}}}})["param"], "response_format");

  // A template whose notation is unknown.
  TestServer other(scripted_engine(test::scripted_model(
      {"<|im_end|>"}, {},
      "{{ tools }}{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.name }} with "
      "{{ c.function.arguments | tojson }}{% endfor %}<|im_end|>{% endfor %}")));
  const HttpAnswer a = other.post("/v1/chat/completions", body);
  EXPECT_EQ(a.status, 400);
  EXPECT_EQ(a.json()["error"]["param"], "tool_choice") << a.body;
}

TEST(Serve, RequiredCallsCanFollowReasoning) {
  // The prompt ends with the mark that opens the reasoning.
  TestServer server(
      scripted_engine(test::weather_model({"<think>", "Hm, ", "weather.\n", "</think>", "\n\n"}, "<think>")));
  json body = weather_chat();
  body["tool_choice"] = "required";
  const json message = server.post("/v1/chat/completions", body).json()["choices"][0]["message"];
  ASSERT_EQ(message["tool_calls"].size(), 1u) << message;
  EXPECT_EQ(message["reasoning_content"], "Hm, weather.");
  EXPECT_EQ(message["tool_calls"][0]["function"]["name"], "get_weather");
}

TEST(Serve, SeparatesReasoning) {
  TestServer server(
      scripted_engine(test::weather_model({"<think>", "Hm, ", "weather.\n", "</think>", "\n\n", "Let me ", "see."})));
  const json message = server.post("/v1/chat/completions", weather_chat()).json()["choices"][0]["message"];
  EXPECT_EQ(message["reasoning_content"], "Hm, weather.");
  EXPECT_EQ(message["content"], "Let me see.");
  const Stream s = stream_of(server, "/v1/chat/completions", weather_chat());
  EXPECT_EQ(joined(s, "reasoning_content"), "Hm, weather.");
  EXPECT_EQ(joined(s, "content"), "Let me see.");
}

TEST(Serve, RejectionByTheTemplateIs422) {
  TestServer server(
      scripted_engine(test::scripted_model({"<|im_end|>"}, {}, "{{ raise_exception('Roles must alternate!') }}")));
  const HttpAnswer a = server.post("/v1/chat/completions", weather_chat());
  EXPECT_EQ(a.status, 400) << "no tools: " << a.body;
  json body = weather_chat();
  body.erase("tools");
  const HttpAnswer b = server.post("/v1/chat/completions", body);
  EXPECT_EQ(b.status, 422);
  EXPECT_NE(b.json()["error"]["message"].get<std::string>().find("Roles must alternate!"), std::string::npos);
}

}  // namespace
}  // namespace tessera::app
