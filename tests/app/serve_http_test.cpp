// SPDX-License-Identifier: Apache-2.0
// Fuzz test of the HTTP server: mutated requests are answered with a status, or their connection is closed.
#include <gtest/gtest.h>

#include <future>
#include <set>
#include <thread>

#include "serve/http_server.h"
#include "tests/app/http_client.h"
#include "tests/grammar/grammar_text.h"
#include "tests/support/fuzz_cases.h"

namespace tessera::app {
namespace {

using test::HttpClient;

/// A server that answers each request with the size of its body, or with a stream for /stream.
class SizeServer {
 public:
  explicit SizeServer(HttpLimits limits = {.header = 1024, .body = 4096})
      : server_("127.0.0.1", 0, limits,
                [](const HttpRequest& request, std::unique_ptr<Reply> reply) {
                  const std::string size = std::to_string(request.body.size());
                  if (request.path != "/stream") return reply->send({.body = size});
                  reply->begin_stream({});
                  reply->write(size);
                  reply->end();
                }),
        port_(server_.port()),
        thread_([this] { server_.run(); }) {}
  ~SizeServer() {
    server_.post([this] { server_.stop(); });
    thread_.join();
  }
  std::uint16_t port() const { return port_; }
  std::size_t connections() {
    std::promise<std::size_t> number;
    server_.post([&] { number.set_value(server_.connections()); });
    return number.get_future().get();
  }

 private:
  HttpServer server_;
  std::uint16_t port_;
  std::thread thread_;
};

/// Appends a valid request. Returns the body of the answer.
std::string add_request(std::string& to, std::mt19937_64& random) {
  const std::string body(random() % 200, 'b'), size = std::to_string(body.size());
  const std::string path = random() % 3 == 0 ? "/stream" : "/v1/completions";
  const std::string head = " " + path + " HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n";
  switch (random() % 4) {
    case 0: to += "GET" + head + "\r\n"; return "0";
    case 1: to += "POST" + head + "Content-Length: " + size + "\r\n\r\n" + body; return size;
    case 2: to += "POST" + head + "Expect: 100-continue\r\nContent-Length: " + size + "\r\n\r\n" + body; return size;
    default: break;
  }
  to += "POST" + head + "Transfer-Encoding: chunked\r\n\r\n";
  std::size_t left = body.size(), total = 0;
  while (left > 0) {
    const std::size_t part = 1 + random() % left;
    char line[16];
    std::snprintf(line, sizeof line, "%zx\r\n", part);
    to += line + body.substr(0, part) + "\r\n";
    left -= part, total += part;
  }
  to += "0\r\n\r\n";
  return std::to_string(total);
}

TEST(ServeHttp, SlowClientsAreClosedBeforeThoseThatPause) {
  SizeServer server({.header = 1024, .body = 4096, .connections = 8});
  const std::string request = HttpClient::text("POST", "/", std::string(400, 'b'));
  HttpClient in_header(server.port()), in_body(server.port());
  in_header.send("POST / HTTP/1.1\r\nHost: localhost\r\nAccept: " + std::string(200, 'a'));
  in_body.send(request.substr(0, request.size() - 200));
  std::vector<std::unique_ptr<HttpClient>> idle;
  for (int i = 0; i < 6; ++i) idle.push_back(std::make_unique<HttpClient>(server.port()));
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  std::vector<std::unique_ptr<HttpClient>> others;
  for (const auto& client : idle) {
    others.push_back(std::make_unique<HttpClient>(server.port()));
    others.back()->send(HttpClient::text("GET", "/"));
    EXPECT_EQ(others.back()->read_answer().body, "0");
    EXPECT_TRUE(client->closes());
  }
  in_header.send("\r\n\r\n");
  EXPECT_EQ(in_header.read_answer().body, "0");
  in_body.send(request.substr(request.size() - 200));
  EXPECT_EQ(in_body.read_answer().body, "400");
}

TEST(ServeHttp, ClientsThatHaveJustConnectedAreNotClosed) {
  SizeServer server({.header = 1024, .body = 4096, .connections = 8});
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 24; ++i) clients.push_back(std::make_unique<HttpClient>(server.port()));
  for (const auto& client : clients) client->send(HttpClient::text("POST", "/", "1234"));
  for (const auto& client : clients) EXPECT_EQ(client->read_answer().body, "4");
}

TEST(ServeHttp, MutatedRequestsAreAnsweredOrClosed) {
  const std::set<int> statuses = {200, 400, 413, 431};
  SizeServer server;
  std::uint64_t answered = 0, rejected = 0;
  test::run_fuzz_cases([&](std::mt19937_64& random) {
    std::string bytes;
    std::vector<std::string> expected;
    for (std::uint64_t n = 1 + random() % 3; n > 0; --n) expected.push_back(add_request(bytes, random));
    const bool is_valid = random() % 8 == 0;
    if (!is_valid) bytes = test::mutated(bytes, random, "\r\n: \t/;,0123456789abcfxGETPOSH\x7f\xff");
    if (!is_valid && random() % 16 == 0) bytes.insert(random() % bytes.size(), random() % 6000, 'x');
    HttpClient client(server.port(), 10);
    const std::size_t cut = random() % 4 == 0 ? random() % (bytes.size() + 1) : bytes.size();
    client.send(bytes.substr(0, cut));
    client.send(bytes.substr(cut));
    if (is_valid) {
      for (const std::string& size : expected) {
        const test::HttpAnswer a = client.read_answer();
        ASSERT_TRUE(a.status == 200 && a.body == size) << a.status << " " << a.body << " instead of " << size;
      }
      answered += expected.size();
      return;
    }
    client.finish_sending();
    ASSERT_TRUE(client.closes()) << "neither answered nor closed: " << bytes;
    for (std::string_view rest = client.received(); !rest.empty();) {  // bodies contain no status line
      const std::size_t at = rest.find("HTTP/1.1 ");
      if (at == std::string_view::npos) break;
      const int status = std::atoi(rest.data() + at + 9);
      ASSERT_TRUE(status == 100 || statuses.contains(status)) << status << ": " << bytes;
      rejected += status >= 400;
      rest.remove_prefix(at + 9);
    }
  });
  EXPECT_GE(answered, test::fuzz_cases() / 8);
  EXPECT_GE(rejected, test::fuzz_cases() / 8);
  EXPECT_EQ(HttpClient(server.port()).request("GET", "/").body, "0");
  for (int i = 0; i < 500 && server.connections() > 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(server.connections(), 0u);
}

}  // namespace
}  // namespace tessera::app
