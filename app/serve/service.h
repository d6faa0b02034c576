// SPDX-License-Identifier: Apache-2.0
// The endpoints of the server.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "serve/access.h"
#include "serve/api_error.h"
#include "serve/embedding_engine.h"
#include "serve/engine.h"
#include "serve/http_server.h"
#include "serve/metrics.h"
#include "serve/worker.h"

namespace tessera::app {

/// Options of Service.
struct ServiceOptions {
  AccessRules access;
  std::size_t queue = 256;                                ///< maximum number of requests that wait for the worker
  std::chrono::milliseconds stop_time{10'000};            ///< how long shut_down() waits for running requests
  std::function<void(const std::string& line)> log = {};  ///< receives one line for each request that is logged
};

/// Answers requests. All functions are called on the server's thread, and the server must outlive the service.
class Service {
 public:
  Service(HttpServer& server, ServiceOptions options);

  /// Sets the model. Before, requests are answered with the status 503.
  void set_engine(std::unique_ptr<Engine> engine) { engine_ = std::move(engine); }
  /// Sets a model that computes embeddings only. Other requests are then answered with the status 400.
  void set_engine(std::unique_ptr<EmbeddingEngine> engine) { embedder_ = std::move(engine); }
  void handle(const HttpRequest& request, std::unique_ptr<Reply> reply);
  /// Rejects new requests, waits for those in progress, cancels them after `stop_time`, and stops the server.
  void shut_down();
  /// Why the service has shut down by itself: an error of the device that a second step repeated. Empty if it has not.
  const std::string& failure() const { return failure_; }

 private:
  using Clock = std::chrono::steady_clock;
  using Number = std::uint64_t;
  /// A request for text or embeddings that has not been answered yet.
  struct Pending {
    std::unique_ptr<Reply> reply;
    std::vector<std::pair<std::string, std::string>> headers;
    std::string kind;
    Clock::time_point start = Clock::now();
    std::shared_ptr<Answer> answer;                      ///< set when the request is prepared
    std::optional<Scheduler::RequestId> scheduled = {};  ///< set when the request is submitted to the scheduler
    Worker::Number work = 0;                             ///< the last function of the worker for this request
    /// The client is lost, or the server stops. Read by the worker.
    std::shared_ptr<std::atomic<bool>> cancelled = std::make_shared<std::atomic<bool>>(false);
    bool first_token = false;  ///< the first text has arrived
  };
  struct Route;
  static const std::map<std::string, Route>& routes();

  HttpResponse answer(const HttpRequest& request, std::unique_ptr<Reply>& reply);
  HttpResponse health() const;
  SchedulerStatistics statistics() const;
  HttpResponse metrics() const;
  HttpResponse answer_embedder(const HttpRequest& request, std::unique_ptr<Reply>& reply);
  /// Calls `function` with the body on the worker's thread, and sends the result. Throws ApiError 429 if too many
  /// requests wait for the worker.
  void compute(const HttpRequest& request, std::unique_ptr<Reply>& reply, std::function<Json(const Json&)> function);
  /// Calls `prepare` with the body on the worker's thread, and submits the result. `kind` is logged.
  void start(const HttpRequest& request, std::unique_ptr<Reply> reply, std::string kind,
             std::function<PreparedRequest(const Json&)> prepare);
  void submit(Number number, PreparedRequest& request);
  void schedule(Number number, TextRequest request);
  void embed(Number number, std::vector<std::vector<TokenId>> texts);
  void take(Number number, std::int64_t sequence, const TextEvent& event);
  void measure(Pending& pending, const TextEvent& event);
  void send_chunks(Pending& pending, const std::vector<Json>& chunks);
  void finish(Number number);
  void send_result(Number number, std::string body);
  void fail_request(Number number, const ApiError& error, RequestOutcome outcome);
  void check_device(const std::string& error);
  void lose(Number number);
  void end(Number number, int status, RequestOutcome outcome);
  void wait_for_requests();
  void require_engine() const;
  void log(const std::string& line) const;

  HttpServer& server_;
  ServiceOptions options_;
  std::map<Number, Pending> pending_;
  Number next_number_ = 1;
  bool stopping_ = false;
  Clock::time_point stop_at_;
  bool cancelled_all_ = false;
  std::string failure_;
  Metrics metrics_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<EmbeddingEngine> embedder_;  ///< instead of engine_
  Worker worker_;                              ///< destroyed first, because it uses the engine
};

}  // namespace tessera::app
