// SPDX-License-Identifier: Apache-2.0
// `tessera embed`, and `tessera serve` and other commands with an embedding model.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <optional>
#include <regex>
#include <thread>

#include "tessera/array/array.h"
#include "tessera/llm/embedding_model.h"
#include "tests/app/app_program.h"
#include "tests/app/http_client.h"
#include "tests/embedding/embedding_values.h"
#include "tests/support/fake_backends.h"

using namespace tessera::test;
using nlohmann::json;

namespace {

/// A small BERT model in a file, and a cache of kernels that all tests share.
struct Files {
  TemporaryFolder folder;
  std::string model = folder / "bert.gguf", limited = folder / "limited.gguf";  ///< `limited`: texts of 20 tokens
  Files() {
    const json& bert = embedding_figures()["cases"][0];
    embedding_writer(bert).write(model);
    embedding_writer(bert).set("tessera.embedding.max_tokens", 20u).write(limited);
    std::filesystem::create_directory(folder / "kernels");
  }
};
const Files& files() {
  static const Files all;
  return all;
}
RunOptions options(std::string in = {}) {
  RunOptions o;
  o.environment = {{"TESSERA_KERNEL_CACHE", "1"},
                   {"TESSERA_CACHE_DIR", files().folder.path() / "kernels"},
                   {"TESSERA_DEVICE", "cpu"}};
  o.in = std::move(in);
  return o;
}
Outcome embed(std::vector<std::string> arguments, std::string in = {}) {
  arguments.insert(arguments.begin(), {"embed", files().model});
  return run(arguments, options(std::move(in)));
}
std::vector<json> lines_of(const Outcome& o) {
  EXPECT_EQ(o.code, 0) << o.err;
  std::vector<json> out;
  std::istringstream lines(o.out);
  for (std::string line; std::getline(lines, line);) out.push_back(json::parse(line));
  return out;
}

TEST(Embed, PrintsWhatTheLibraryComputes) {
  const auto model =
      tessera::EmbeddingModel::load(files().model, std::vector{tessera::Device{tessera::Backend::cpu, 0}});
  const std::vector<std::string> texts = {"a cat", "b c", ""};
  const auto want = model.embed(texts);
  for (const Outcome& o : {embed({"--json", "-f", "-"}, "a cat\r\nb c\n\n"), embed({"--json"}, "a cat\nb c\n\n")}) {
    const auto got = lines_of(o);
    ASSERT_EQ(got.size(), 3u);
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i]["index"], i);
      EXPECT_EQ(got[i]["tokens"], want[i].tokens);
      EXPECT_EQ(got[i]["truncated"], false);
      EXPECT_EQ(got[i]["embedding"].get<std::vector<float>>(), want[i].values);
    }
  }
  const auto prefixed = lines_of(embed({"cat", "--prefix", "a ", "--pooling", "last", "--no-normalize", "--json"}));
  EXPECT_EQ(prefixed[0]["embedding"].get<std::vector<float>>(),
            model.embed("a cat", {.pooling = tessera::Pooling::last, .normalize = false}).values);
  const auto tokens = lines_of(embed({"a cat", "--pooling", "none", "--json"}));
  EXPECT_EQ(tokens[0]["embedding"].size(), 6u);
  const Outcome table = embed({"a cat", "b"});
  EXPECT_TRUE(holds(table.out, {"   1      6 tokens  [", "32 numbers]  a cat\n", "   2      3 tokens"}));
}

TEST(Embed, WritesArraysAndSimilarities) {
  const std::string path = files().folder.path() / "out.npy";
  const Outcome o = embed({"a cat", "b", "--out", path});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(holds(o.out, {"wrote 2 embeddings of 32 numbers with cls pooling"}));
  const tessera::Array all = tessera::load_npy(path);
  EXPECT_EQ(all.shape(), (tessera::Shape{2, 32}));
  const auto first = all.slice(0, 0, 1).to_vector<float>();
  EXPECT_EQ(first, lines_of(embed({"a cat", "--json"}))[0]["embedding"].get<std::vector<float>>());

  const json cosines = lines_of(embed({"a cat", "b", "a  CAT", "--similarity", "--json"}))[0]["similarity"];
  EXPECT_NEAR(cosines[0][0].get<double>(), 1, 1e-6);
  EXPECT_NEAR(cosines[0][2].get<double>(), 1, 1e-6);
  EXPECT_EQ(cosines[0][1], cosines[1][0]);
  EXPECT_LT(cosines[0][1].get<double>(), 0.99);
  EXPECT_TRUE(holds(embed({"a cat", "b", "--similarity"}).out, {"       1       2\n", "   1  1.0000", "  a cat\n"}));
}

TEST(Embed, ErrorsNameTheCause) {
  std::string longest;
  for (int i = 0; i < 127; ++i) longest += "a ";
  EXPECT_TRUE(fails(embed({longest}), 1, {"tokens = 129", "128", "--truncate"}));
  EXPECT_EQ(lines_of(embed({longest, "--truncate", "--json"}))[0]["truncated"], true);
  EXPECT_TRUE(fails(embed({}), 1, {"there is no text"}));
  EXPECT_TRUE(fails(embed({"a", "--pooling", "rank"}), 2, {"--pooling", "rank"}));
  EXPECT_TRUE(fails(embed({"a", "--out", "x.txt"}), 2, {"--out", ".npy"}));
  const std::string missing = files().folder.path() / "missing";
  EXPECT_TRUE(fails(embed({"a", "--out", missing + "/x.npy"}), 1, {"the folder " + missing + " does not exist"}));
  EXPECT_FALSE(std::filesystem::exists(missing));
  EXPECT_TRUE(fails(embed({"a", "--file", "x.txt"}), 2, {"--file"}));
  EXPECT_TRUE(fails(embed({"a", "--pooling", "none", "--similarity"}), 1, {"--pooling mean"}));
  EXPECT_TRUE(fails(embed({"a", "--device", "cpu,interp"}), 1, {"one device"}));
  for (const std::string command : {"generate", "chat", "perplexity"}) {
    std::vector<std::string> arguments = {command, files().model};
    if (command == "generate") arguments.insert(arguments.end(), {"-p", "a"});
    if (command == "perplexity") arguments.insert(arguments.end(), {"-f", files().model});
    EXPECT_TRUE(fails(run(arguments, options()), 1, {"bert", "tessera embed"})) << command;
  }
}

TEST(Embed, InspectAndEstimateDescribeTheModel) {
  const json report = lines_of({.code = 0, .out = [] {
                                  std::string text = run({"inspect", files().model, "--json"}, options()).out;
                                  std::erase(text, '\n');
                                  return text;
                                }()})[0];
  EXPECT_EQ(report["architecture"], "bert");
  EXPECT_EQ(report["pooling"], "cls");
  EXPECT_EQ(report["runs"], true);
  EXPECT_EQ(report["context"], 128);
  EXPECT_TRUE(report["memory"]["fits"].get<bool>());
  EXPECT_TRUE(
      holds(run({"inspect", files().model}, options()).out,
            {"BGE", "3 layers, width 32, hidden 64, 4 heads of 8", "cls pooling", "128 tokens", "bert: 64 tokens"}));
  const Outcome estimate = run({"estimate", files().model}, options());
  EXPECT_EQ(estimate.code, 0) << estimate.err;
  EXPECT_TRUE(holds(estimate.out, {"context 128", "fits"}));
  EXPECT_TRUE(holds(run({"estimate", files().limited}, options()).out, {"context 20", "fits", "that fits: 20"}));
  EXPECT_TRUE(holds(run({"inspect", files().limited}, options()).out, {"for 20 tokens"}));
}

/// Returns the port after "listening on", or 0.
std::uint16_t port_in(const std::string& out) {
  std::smatch found;
  if (!std::regex_search(out, found, std::regex("listening on http://[^\n]*:([0-9]+)\n"))) return 0;
  return static_cast<std::uint16_t>(std::stoi(found[1]));
}

/// Closes the connection of a request that waits, and that of one whose texts are read.
void expect_hang_up_cancels(std::uint16_t port) {
  const auto metric = [&](const std::string& name) {
    const std::string text = HttpClient(port).request("GET", "/metrics").body;
    return std::stol(text.substr(text.find("\n" + name + " ") + name.size() + 2));
  };
  const auto wait_for = [&](const std::string& name, long value) {
    for (int i = 0; i < 20'000 && metric(name) != value; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(metric(name), value) << name;
  };
  const std::string running = "tessera_running_sequences", queued = "tessera_queued_requests",
                    read = "tessera_prompt_tokens_total";
  const long before = metric(read), total = 2048 * 128;
  const std::string body = json{{"input", std::vector(2048, std::vector(128, 7))}}.dump();
  std::optional<HttpClient> first(std::in_place, port), second(std::in_place, port);
  first->send(HttpClient::text("POST", "/v1/embeddings", body));
  for (int i = 0; i < 20'000 && metric(running) == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  second->send(HttpClient::text("POST", "/v1/embeddings", body));
  wait_for(queued, 1);
  second.reset();
  wait_for(queued, 0);
  EXPECT_GT(metric(running), 0) << "the other request continues";
  for (int i = 0; i < 20'000 && metric(read) == before; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_GT(metric(read), before) << "texts are read in parts";
  first.reset();
  wait_for(running, 0);
  EXPECT_LT(metric(read), before + total);
}

TEST(Embed, ServerRejectsOptionsBeforeItListens) {
  const auto expect_rejected = [](const std::string& model, std::vector<std::string> arguments,
                                  const std::vector<std::string>& parts) {
    arguments.insert(arguments.begin(), {"serve", model, "--port", "0"});
    const Outcome outcome = run(arguments, options());
    EXPECT_TRUE(fails(outcome, 1, parts));
    EXPECT_EQ(outcome.out, "");
  };
  expect_rejected(files().model, {"--ctx", "129"}, {"context", "129", "128"});
  expect_rejected(files().limited, {"--ctx", "21"}, {"context", "21", "20"});
  for (const auto& [name, value] : std::vector<std::pair<std::string, std::string>>{{"--parallel", "2"},
                                                                                    {"--no-prefix-sharing", ""},
                                                                                    {"--template", "chatml"},
                                                                                    {"--cache", "q8_0"},
                                                                                    {"--seed", "1"},
                                                                                    {"--stop", "a"},
                                                                                    {"--logit-bias", "7=1"},
                                                                                    {"--temperature", "0"},
                                                                                    {"--top-k", "1"},
                                                                                    {"--top-p", "1"},
                                                                                    {"--min-p", "0"},
                                                                                    {"--repeat-penalty", "1"},
                                                                                    {"--frequency-penalty", "0"},
                                                                                    {"--presence-penalty", "0"},
                                                                                    {"--penalty-last", "1"}})
    expect_rejected(files().model, value.empty() ? std::vector{name} : std::vector{name, value},
                    {name, "embeddings only", "Omit"});
}

TEST(Embed, ServerEndsIfTheDeviceIsLost) {
  RunOptions o = options();
  for (const auto& [name, value] : with_fakes({{"TESSERA_FAKE_FAULT", "lost=1500"}})) o.environment[name] = value;
  o.environment["TESSERA_DEVICE"] = "cuda:0";
  o.program = TESSERA_SHOWN_PROGRAM;
  o.signal = SIGTERM;
  int good = 0;
  std::vector<int> bad;
  o.interrupt = [&](const std::string& out, const std::string&) {
    const std::uint16_t port = port_in(out);
    if (port == 0 || HttpClient(port).request("GET", "/health").status != 200) return false;
    while (bad.size() < 3 && good < 1000) try {
        const int status = HttpClient(port).request("POST", "/v1/embeddings", R"({"input": "a cat"})").status;
        status == 200 ? void(++good) : bad.push_back(status);
      } catch (const std::exception&) {
        bad.push_back(0);  // the server has ended
      }
    return true;
  };
  const Outcome outcome = run({"serve", files().model, "--port", "0"}, o);
  EXPECT_GT(good, 0);
  ASSERT_EQ(bad.size(), 3u) << outcome.err;
  EXPECT_EQ(bad[0], 500);
  EXPECT_EQ(bad[1], 500);
  EXPECT_NE(bad[2], 500) << "it stops after the second error";
  EXPECT_TRUE(fails(outcome, 1, {"the device failed twice", "tessera doctor"}));
}

TEST(Embed, ServerAnswersRequestsForEmbeddingsOnly) {
  RunOptions o = options();
  o.signal = SIGTERM;
  o.interrupt = [&](const std::string& out, const std::string&) {
    const std::uint16_t port = port_in(out);
    if (port == 0 || HttpClient(port).request("GET", "/health").status != 200) return false;
    const auto post = [&](const std::string& path, const json& body) {
      return HttpClient(port).request("POST", path, body.dump());
    };
    const auto answer = post("/v1/embeddings", {{"input", {"a cat", "b"}}});
    EXPECT_EQ(answer.status, 200) << answer.body;
    const json j = answer.json();
    EXPECT_EQ(j["data"][1]["index"], 1);
    EXPECT_EQ(j["usage"]["prompt_tokens"], 9);
    EXPECT_EQ(j["data"][0]["embedding"].get<std::vector<float>>(),
              lines_of(embed({"a cat", "--json"}))[0]["embedding"].get<std::vector<float>>());
    const json packed =
        post("/v1/embeddings", {{"input", "b"}, {"encoding_format", "base64"}, {"dimensions", 32}}).json();
    EXPECT_EQ(packed["data"][0]["embedding"].get<std::string>().size(), (32u * 4 + 2) / 3 * 4);
    EXPECT_EQ(post("/v1/embeddings", {{"input", "b"}, {"dimensions", 16}}).status, 400);
    const json tokens = post("/tokenize", {{"content", "a cat"}, {"add_special", true}}).json();
    EXPECT_EQ(tokens["count"], 6);
    EXPECT_EQ(post("/v1/embeddings", {{"input", json::array({tokens["tokens"]})}}).json()["data"],
              json::array({j["data"][0]}));
    EXPECT_EQ(post("/detokenize", {{"tokens", tokens["tokens"]}}).json()["content"], "[CLS]a cat[SEP]");
    std::string longest;
    for (int i = 0; i < 127; ++i) longest += "a ";
    const auto refused = post("/v1/embeddings", {{"input", longest}});
    EXPECT_EQ(refused.status, 400);
    EXPECT_TRUE(holds(refused.body, {"128", "129", "context_length_exceeded"}));
    for (const char* path : {"/v1/chat/completions", "/v1/completions", "/apply-template"}) {
      const auto text = post(path, {{"messages", {{{"role", "user"}, {"content", "a"}}}}, {"prompt", "a"}});
      EXPECT_EQ(text.status, 400) << path;
      EXPECT_TRUE(holds(text.body, {"/v1/embeddings", "unsupported_model"}));
    }
    EXPECT_EQ(HttpClient(port).request("GET", "/v1/models").json()["data"][0]["max_model_len"], 128);
    EXPECT_EQ(HttpClient(port).request("GET", "/v1/models/other").status, 404);
    EXPECT_TRUE(
        holds(HttpClient(port).request("GET", "/metrics").body, {"completed", "\ntessera_prompt_tokens_total 18\n"}));
    expect_hang_up_cancels(port);
    return true;
  };
  const Outcome outcome = run({"serve", files().model, "--port", "0"}, o);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(holds(outcome.err, {"embeddings of up to 128 tokens", "embedding 200 completed", " prompt=9 ",
                                  "finish=stop\n", "embedding 400 rejected", "embedding 499 cancelled"}));
}

}  // namespace
