// SPDX-License-Identifier: Apache-2.0
// The server of `tessera serve` on a thread of the test, and its streams.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "serve/service.h"
#include "tests/app/http_client.h"

namespace tessera::app {

inline LanguageModel load_on_cpu(const GgufFile& file) {
  LoadOptions options;
  options.devices = {Device{Backend::cpu, 0}};
  return LanguageModel::load(file, options);
}

inline std::unique_ptr<Engine> shipped_engine(SchedulerOptions options = {.context = 1024}) {
  const auto file = GgufFile::open("models/pgdocs-2m-q8_0.gguf");
  auto model = load_on_cpu(file);
  RequestDefaults defaults{.model = "pgdocs"};
  return std::make_unique<Engine>(file, std::move(model), "chatml", defaults, options);
}

/// A server on a thread.
class TestServer {
 public:
  explicit TestServer(std::unique_ptr<Engine> engine, AccessRules access = {}, HttpLimits limits = {},
                      std::chrono::milliseconds stop_time = std::chrono::seconds(10), std::size_t queue = 256)
      : server_("127.0.0.1", 0, limits,
                [this](const HttpRequest& r, std::unique_ptr<Reply> reply) { service_->handle(r, std::move(reply)); }),
        service_(std::make_unique<Service>(
            server_,
            ServiceOptions{
                .access = access, .queue = queue, .stop_time = stop_time, .log = [this](const std::string& line) {
                  const std::lock_guard lock(mutex_);
                  log_ += line + "\n";
                }})) {
    if (engine) service_->set_engine(std::move(engine));
    port_ = server_.port();
    thread_ = std::thread([this] { server_.run(); });
  }
  /// A server with an embedding model.
  TestServer(std::unique_ptr<EmbeddingEngine> engine, std::size_t queue)
      : TestServer(nullptr, {}, {}, std::chrono::seconds(10), queue) {
    const auto shared = std::make_shared<std::unique_ptr<EmbeddingEngine>>(std::move(engine));
    server_.post([this, shared] { service_->set_engine(std::move(*shared)); });
  }
  ~TestServer() {
    server_.post([this] { server_.stop(); });
    thread_.join();
    service_.reset();
  }
  std::uint16_t port() const { return port_; }
  void shut_down() {
    server_.post([this] { service_->shut_down(); });
  }
  test::HttpAnswer request(const std::string& method, const std::string& path, const std::string& body = {},
                           const std::vector<std::string>& headers = {}) {
    return test::HttpClient(port_).request(method, path, body, headers);
  }
  test::HttpAnswer post(const std::string& path, const nlohmann::json& body) {
    return request("POST", path, body.dump());
  }
  /// Returns the lines so far, those of all received answers included: the server writes a line after it has sent the
  /// answer, so this waits until the server's thread has done what it was doing.
  std::string log() {
    const auto passed = std::make_shared<std::promise<void>>();
    server_.post([passed] { passed->set_value(); });
    passed->get_future().wait_for(std::chrono::seconds(5));
    const std::lock_guard lock(mutex_);
    return log_;
  }
  double metric(const std::string& name) {
    const std::string text = "\n" + request("GET", "/metrics").body;
    const std::size_t at = text.find("\n" + name + " ");
    return at == std::string::npos ? -1 : std::stod(text.substr(at + name.size() + 2));
  }
  /// Waits until no request is waiting or running. Returns the seconds that this took.
  double wait_until_idle() {
    const auto start = std::chrono::steady_clock::now();
    const auto passed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
    while (metric("tessera_queued_requests") + metric("tessera_running_sequences") > 0) {
      if (passed() > 30) {
        ADD_FAILURE() << "not idle";
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return passed();
  }

 private:
  std::mutex mutex_;
  std::string log_;
  HttpServer server_;
  std::unique_ptr<Service> service_;
  std::uint16_t port_;
  std::thread thread_;
};

/// The events of a stream.
struct Stream {
  std::vector<nlohmann::json> chunks;
  int comments = 0;
  bool done = false;
  std::optional<nlohmann::json> error;
};
inline Stream parse_stream(const std::string& body) {
  Stream out;
  for (std::size_t at = 0; at < body.size();) {
    const std::size_t end = body.find("\n\n", at);
    EXPECT_NE(end, std::string::npos) << "an incomplete event: " << body.substr(at);
    if (end == std::string::npos) break;
    const std::string event = body.substr(at, end - at);
    at = end + 2;
    EXPECT_FALSE(out.done) << "an event after the end";
    if (event.starts_with(":")) {
      ++out.comments;
    } else if (event == "data: [DONE]") {
      out.done = true;
    } else if (event.starts_with("event: error\ndata: ")) {
      out.error = nlohmann::json::parse(event.substr(19));
    } else {
      EXPECT_TRUE(event.starts_with("data: ")) << event;
      out.chunks.push_back(nlohmann::json::parse(event.substr(6)));
    }
  }
  return out;
}
}  // namespace tessera::app
