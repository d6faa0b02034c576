// SPDX-License-Identifier: Apache-2.0
// The command `tessera serve`: options, signals, and the commands of docs/serve.md.
#include <gtest/gtest.h>

#include <memory>
#include <regex>
#include <sstream>

#include "tests/app/app_program.h"
#include "tests/app/http_client.h"

using namespace tessera::test;
using nlohmann::json;

namespace {

const std::string model = "models/pgdocs-2m-q8_0.gguf";

/// Runs the server. When the model is loaded, calls `use` and then sends a signal.
Outcome serve(std::vector<std::string> arguments, const std::function<void(std::uint16_t port)>& use,
              RunOptions o = {}) {
  static const TemporaryFolder cache;
  o.environment.insert(
      {{"TESSERA_KERNEL_CACHE", "1"}, {"TESSERA_CACHE_DIR", cache / "kernels"}, {"TESSERA_DEVICE", "cpu"}});
  std::filesystem::create_directory(cache / "kernels");
  o.signal = SIGTERM;
  o.interrupt = [&](const std::string& out, const std::string&) {
    const std::uint16_t port = port_in(out);
    if (port == 0 || HttpClient(port).request("GET", "/health").status != 200) return false;
    use(port);
    return true;
  };
  arguments.insert(arguments.begin(), {"serve", model, "--port", "0"});
  return run(arguments, o);
}

TEST(ServeProgram, SigtermLetsRequestsFinish) {
  std::unique_ptr<HttpClient> client;
  const Outcome o = serve({"--alias", "small"}, [&](std::uint16_t port) {
    client = std::make_unique<HttpClient>(port);
    client->send(
        HttpClient::text("POST", "/v1/completions", R"({"model": "small", "prompt": "The index", "max_tokens": 300})"));
    while (HttpClient(port).request("GET", "/metrics").body.find("tessera_running_sequences 1") == std::string::npos) {}
  });
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(holds(o.err, {"small: ready, with a context of 1024 tokens", "stopping", "completion 200 completed"}));
  EXPECT_EQ(client->read_answer().status, 200);
}

TEST(ServeProgram, ListensWhileTheModelIsLoadedAndCanBeInterrupted) {
  RunOptions o;
  o.signal = SIGTERM;
  int status = 0;
  o.interrupt = [&](const std::string& out, const std::string&) {
    if (port_in(out) == 0) return false;
    status = HttpClient(port_in(out)).request("GET", "/health").status;
    return true;
  };
  const Outcome outcome = run({"serve", model, "--port", "0"}, o);
  EXPECT_TRUE(status == 503 || status == 200);
  EXPECT_TRUE(outcome.code == 128 + SIGTERM || outcome.code == 0) << outcome.code << outcome.err;
}

TEST(ServeProgram, KeysComeFromTheEnvironmentOrAFile) {
  const TemporaryFolder folder;
  write_file(folder / "keys", "# ours\nfrom-file\n");
  RunOptions o;
  o.environment = {{"TESSERA_API_KEY", "from-environment"}};
  const auto accepts = [](std::uint16_t port, const std::string& key) {
    return HttpClient(port).request("GET", "/v1/models", "", {"Authorization: Bearer " + key}).status;
  };
  Outcome outcome = serve(
      {"--quiet"},
      [&](std::uint16_t port) {
        EXPECT_EQ(accepts(port, "from-environment"), 200);
        EXPECT_EQ(accepts(port, "from-file"), 401);
      },
      o);
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out.find("from-"), std::string::npos);
  outcome = serve(
      {"--api-key-file", folder / "keys", "--host", "0.0.0.0"},
      [&](std::uint16_t port) {
        EXPECT_EQ(accepts(port, "from-file"), 200);
        EXPECT_EQ(accepts(port, "from-environment"), 401);
      },
      o);
  EXPECT_EQ((outcome.out + outcome.err).find("from-"), std::string::npos);
}

TEST(ServeProgram, RejectsUnsafeOrInvalidOptions) {
  const TemporaryFolder folder;
  write_file(folder / "keys", "key\n");
  write_file(folder / "empty", "\n");
  write_file(folder / "bad", "key\nother key\n");
  const auto with = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"serve", model, "--port", "0"});
    return run(arguments);
  };
  EXPECT_TRUE(fails(with({"--host", "0.0.0.0"}), 2, {"without a key", "--api-key-file", "--no-key"}));
  EXPECT_TRUE(fails(with({"--host", "no.such.host.invalid"}), 1, {"the host is unknown"}));
  EXPECT_TRUE(fails(with({"--api-key-file", folder / "keys", "--cors", "*"}), 2, {"--cors", "keys"}));
  EXPECT_TRUE(fails(with({"--cors", "http://localhost:3000/"}), 2, {"--cors", "no origin"}));
  EXPECT_TRUE(fails(with({"--api-key-file", folder / "empty"}), 1, {"no API key"}));
  EXPECT_TRUE(fails(with({"--api-key-file", folder / "missing"}), 1, {"missing"}));
  EXPECT_TRUE(fails(with({"--api-key-file", folder / "bad"}), 1, {"line = 2"}));
  EXPECT_TRUE(fails(with({"--api-key-file", folder / "keys", "--no-key"}), 2, {"--no-key"}));
  EXPECT_TRUE(fails(run({"serve", model, "--port", "65536"}), 2, {"--port"}));
  EXPECT_TRUE(fails(with({"--parallel", "0"}), 2, {"--parallel"}));
  // What does not match the model or the machine is reported before the server listens, too.
  const auto fails_early = [](const Outcome& outcome, const std::vector<std::string>& parts) {
    EXPECT_EQ(outcome.out, "") << "the server listens";
    return fails(outcome, 1, parts);
  };
  EXPECT_TRUE(fails_early(run({"serve", "missing.gguf", "--port", "0"}), {"missing.gguf"}));
  EXPECT_TRUE(fails_early(with({"--template", "none"}), {"has a chat template with this name", "none"}));
  EXPECT_TRUE(fails_early(with({"--device", "cpu:9"}), {"cpu:9"}));
  EXPECT_TRUE(fails_early(with({"--ctx", "1000000000"}), {"context", "1000000000", "1024"}));
  EXPECT_TRUE(fails_early(with({"--logit-bias", "2048=1"}), {"--logit-bias", "2048 tokens"}));
}

/// A curl command of the page: curl -s[N] URL [-d 'BODY'] [| jq -r PATH].
std::string run_curl(const std::string& command, std::uint16_t port) {
  std::smatch part;
  const std::regex form(R"(curl -sN? http://127\.0\.0\.1:8080(\S+)( -d '([^']*)')?( \| jq -r (\S+))?)");
  if (!std::regex_match(command, part, form)) return "the test does not understand: " + command;
  const std::string path = part[1], body = part[3], filter = part[5];
  const std::string out = HttpClient(port).request(body.empty() ? "GET" : "POST", path, body).body;
  if (filter.empty()) return out;
  // .choices[0].text becomes /choices/0/text
  std::string pointer = std::regex_replace(filter, std::regex(R"(\[(\d+)\])"), ".$1");
  std::replace(pointer.begin(), pointer.end(), '.', '/');
  return json::parse(out).at(json::json_pointer(pointer)).get<std::string>() + "\n";
}

/// Checks that `text` consists of the parts of `shown` between "...", in order.
::testing::AssertionResult matches(const std::string& text, std::string shown) {
  std::size_t at = 0;
  for (bool first = true; !shown.empty(); first = false) {
    const std::size_t dots = shown.find("...");
    const std::string part = shown.substr(0, dots);
    const std::size_t found = text.find(part, at);
    if (found == std::string::npos || (first && found != 0))
      return ::testing::AssertionFailure() << "\"" << part << "\" is not in the rest of: " << text;
    at = found + part.size();
    shown.erase(0, dots == std::string::npos ? dots : dots + 3);
  }
  return ::testing::AssertionSuccess();
}

TEST(Documents, CommandsOfServeMdPrintTheDocumentedOutput) {
  const std::string page = text_of("docs/serve.md");
  std::vector<std::pair<std::string, std::string>> commands;
  std::istringstream lines(page);
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("```"))
      inside = line == "```console";
    else if (inside && line.starts_with("$ "))
      commands.emplace_back(line.substr(2), "");
    else if (inside)
      commands.back().second += line + "\n";
  }
  ASSERT_EQ(commands.size(), 8u);
  ASSERT_EQ(commands[0].first, "tessera serve " + model + " --template chatml");
  EXPECT_EQ(commands[0].second, "listening on http://127.0.0.1:8080\n");
  const Outcome o = serve({"--template", "chatml"}, [&](std::uint16_t port) {
    for (std::size_t i = 1; i < commands.size(); ++i) {
      std::string out = run_curl(commands[i].first, port);
      if (!out.ends_with('\n')) out += "\n";
      EXPECT_TRUE(matches(out, commands[i].second)) << commands[i].first;
    }
  });
  EXPECT_EQ(o.code, 0) << o.err;
}

}  // namespace
