// SPDX-License-Identifier: Apache-2.0
#include "serve/service.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <charconv>
#include <random>

#include "serve/api_error.h"

namespace tessera::app {
namespace {

double seconds_since(std::chrono::steady_clock::time_point time) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - time).count();
}

std::string random_id(const char* prefix) {
  static std::mt19937_64 random(std::random_device{}());
  return fmt::format("{}-{:016x}{:08x}", prefix, random(), static_cast<std::uint32_t>(random()));
}

std::string event_text(const Json& chunk) { return fmt::format("data: {}\n\n", json_text(chunk)); }

/// Decodes a part of a path. Invalid sequences are kept.
std::string percent_decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned code = 0;
    const char* const digits = text.data() + i + 1;
    const bool is_code =
        text[i] == '%' && i + 2 < text.size() && std::from_chars(digits, digits + 2, code, 16).ptr == digits + 2;
    out += is_code ? static_cast<char>(code) : text[i];
    if (is_code) i += 2;
  }
  return out;
}

constexpr std::string_view model_prefix = "/v1/models/";

ApiError queue_error() {
  return ApiError(429, "The server has too many waiting requests. Try again later.", {}, "queue_full");
}
ApiError stopping_error() { return ApiError(503, "The server is stopping.", {}, "server_stopping"); }

}  // namespace

struct Service::Route {
  const char* method = "POST";
  const char* kind = "";  ///< in the log
  Json (Engine::*compute)(const Json&) const = nullptr;
  PreparedRequest (Engine::*prepare)(const Json&) const = nullptr;
};

const std::map<std::string, Service::Route>& Service::routes() {
  static const std::map<std::string, Route> all = {
      {"/health", {.method = "GET"}},
      {"/metrics", {.method = "GET"}},
      {"/v1/models", {.method = "GET"}},
      {"/tokenize", {.compute = &Engine::tokenize}},
      {"/detokenize", {.compute = &Engine::detokenize}},
      {"/apply-template", {.compute = &Engine::apply_template}},
      {"/v1/chat/completions", {.kind = "chat", .prepare = &Engine::prepare_chat}},
      {"/v1/completions", {.kind = "completion", .prepare = &Engine::prepare_completion}},
      {"/v1/embeddings", {.kind = "embedding", .prepare = &Engine::prepare_embeddings}},
  };
  return all;
}

Service::Service(HttpServer& server, ServiceOptions options) : server_(server), options_(std::move(options)) {}

void Service::handle(const HttpRequest& request, std::unique_ptr<Reply> reply) {
  HttpResponse response;
  try {
    response = answer(request, reply);
    if (!reply) return;  // the answer will be sent later
  } catch (const ApiError& e) {
    response = e.response();
    log(fmt::format("request {} rejected", e.status()));
  } catch (const std::exception& e) {
    response = ApiError(500, e.what()).response();
    log("request 500 failed");
  }
  for (auto& header : cors_headers(options_.access, request)) response.headers.push_back(std::move(header));
  reply->send(std::move(response));
}

/// Returns the response, or moves from `reply` if the response will be sent later.
HttpResponse Service::answer(const HttpRequest& request, std::unique_ptr<Reply>& reply) {
  check_browser(options_.access, request);
  if (request.method == "OPTIONS" && request.origin) return {.status = 204};
  const bool is_one_model = request.path.starts_with(model_prefix);
  const auto route = routes().find(is_one_model ? "/v1/models" : request.path);
  if (route == routes().end()) throw ApiError(404, "There is nothing at this path.", {}, "unknown_path");
  const bool is_get = std::string_view(route->second.method) == "GET";
  if (request.method != route->second.method && !(is_get && request.method == "HEAD")) {
    HttpResponse out = ApiError(405, fmt::format("Use {} for this path.", route->second.method)).response();
    out.headers.emplace_back("Allow", is_get ? "GET, HEAD" : "POST");
    log("request 405 rejected");
    return out;
  }
  if (request.path == "/health") return health();
  check_key(options_.access, request);
  if (request.path == "/metrics") return metrics();
  require_engine();
  if (embedder_) return answer_embedder(request, reply);
  if (is_one_model)
    return {.body = json_text(engine_->model(percent_decoded(request.path.substr(model_prefix.size()))))};
  if (request.path == "/v1/models") return {.body = json_text(engine_->models())};
  if (route->second.compute)
    compute(request, reply, [engine = engine_.get(), function = route->second.compute](const Json& body) {
      return (engine->*function)(body);
    });
  else
    start(request, std::move(reply), route->second.kind,
          [engine = engine_.get(), prepare = route->second.prepare](const Json& body) {
            return (engine->*prepare)(body);
          });
  return {};
}

HttpResponse Service::health() const {
  if ((!engine_ && !embedder_) || stopping_)
    return {.status = 503,
            .body = fmt::format(R"({{"status":"{}"}})", stopping_ ? "stopping" : "loading"),
            .headers = {{"Retry-After", "2"}}};
  return {.body = R"({"status":"ok"})"};
}

SchedulerStatistics Service::statistics() const {
  SchedulerStatistics out;
  if (engine_) out = engine_->scheduler().statistics();
  if (embedder_) out = embedder_->statistics();
  out.queued += static_cast<std::int64_t>(worker_.waiting());
  return out;
}

HttpResponse Service::metrics() const {
  return {.body = metrics_.text(statistics(), server_.connections()),
          .content_type = "text/plain; version=0.0.4; charset=utf-8"};
}

void Service::require_engine() const {
  if (stopping_) throw stopping_error();
  if (!engine_ && !embedder_) throw ApiError(503, "The model is being loaded.", {}, "model_loading");
}

/// Answers requests to a model that computes embeddings only.
HttpResponse Service::answer_embedder(const HttpRequest& request, std::unique_ptr<Reply>& reply) {
  EmbeddingEngine* const engine = embedder_.get();
  if (request.path.starts_with("/v1/models")) {
    const Json model = model_json(engine->defaults(), engine->created());
    if (!request.path.starts_with(model_prefix))
      return {.body = json_text({{"object", "list"}, {"data", Json::array({model})}})};
    require_model(percent_decoded(request.path.substr(model_prefix.size())), engine->defaults());
    return {.body = json_text(model)};
  }
  if (request.path == "/tokenize") {
    compute(request, reply, [engine](const Json& body) { return engine->tokenize(body); });
  } else if (request.path == "/detokenize") {
    compute(request, reply, [engine](const Json& body) { return engine->detokenize(body); });
  } else if (request.path == "/v1/embeddings") {
    start(request, std::move(reply), "embedding",
          [engine](const Json& body) { return engine->prepare_embeddings(body); });
  } else {
    throw ApiError(400, "This model computes embeddings and does not generate text. Use /v1/embeddings.", {},
                   "unsupported_model");
  }
  return {};
}

void Service::compute(const HttpRequest& request, std::unique_ptr<Reply>& reply,
                      std::function<Json(const Json&)> function) {
  if (worker_.waiting() >= options_.queue) throw queue_error();
  // Functions that are posted must be copyable.
  const auto shared = std::make_shared<std::unique_ptr<Reply>>(std::move(reply));
  const Worker::Number work = worker_.add([this, body = request.body, headers = cors_headers(options_.access, request),
                                           shared, function = std::move(function)]() mutable {
    HttpResponse response;
    try {
      response.body = json_text(function(parse_body(body)));
    } catch (const ApiError& e) {
      response = e.response();
    } catch (const std::exception& e) {
      response = ApiError(500, e.what()).response();
    }
    for (auto& header : headers) response.headers.push_back(header);
    server_.post(
        [response = std::move(response), reply = std::move(shared)]() mutable { (*reply)->send(std::move(response)); });
  });
  (*shared)->on_lost([this, work] { worker_.remove(work); });
}

void Service::start(const HttpRequest& request, std::unique_ptr<Reply> reply, std::string kind,
                    std::function<PreparedRequest(const Json&)> prepare) {
  const Number number = next_number_++;
  Pending& pending = pending_[number];
  pending.reply = std::move(reply);
  pending.headers = cors_headers(options_.access, request);
  pending.kind = std::move(kind);
  pending.reply->on_lost([this, number] { lose(number); });
  if (worker_.waiting() >= options_.queue) return fail_request(number, queue_error(), RequestOutcome::rejected);
  pending.work =
      worker_.add([this, number, body = request.body, prepare = std::move(prepare), cancelled = pending.cancelled] {
        if (*cancelled)
          return server_.post([this, number] { fail_request(number, stopping_error(), RequestOutcome::cancelled); });
        try {
          const auto prepared = std::make_shared<PreparedRequest>(prepare(parse_body(body)));
          server_.post([this, number, prepared] { submit(number, *prepared); });
        } catch (const ApiError& e) {
          server_.post([this, number, e] { fail_request(number, e, RequestOutcome::rejected); });
        } catch (const std::exception& e) {
          const ApiError error(500, e.what());
          server_.post([this, number, error] { fail_request(number, error, RequestOutcome::failed); });
        }
      });
}

void Service::submit(Number number, PreparedRequest& request) {
  const auto at = pending_.find(number);
  if (at == pending_.end()) return;  // the client is lost
  if (stopping_) return fail_request(number, stopping_error(), RequestOutcome::rejected);
  Pending& pending = at->second;
  request.answer.id = random_id(request.answer.kind == AnswerKind::chat         ? "chatcmpl"
                                : request.answer.kind == AnswerKind::completion ? "cmpl"
                                                                                : "embd");
  pending.answer = std::make_shared<Answer>(std::move(request.answer));
  embedder_ ? embed(number, std::move(request.text.prompts)) : schedule(number, std::move(request.text));
}

void Service::schedule(Number number, TextRequest request) {
  Pending& pending = pending_.at(number);
  request.on_event = [this, number](std::int64_t sequence, const TextEvent& event) {
    server_.post([this, number, sequence, event] { take(number, sequence, event); });
  };
  try {
    pending.scheduled = engine_->scheduler().submit(std::move(request));
  } catch (const QueueFull&) {
    return fail_request(number, queue_error(), RequestOutcome::rejected);
  } catch (const ArgumentError& e) {
    return fail_request(number, ApiError(400, e.what()), RequestOutcome::rejected);
  } catch (const std::exception& e) {
    return fail_request(number, ApiError(500, e.what()), RequestOutcome::failed);
  }
  if (!pending.answer->settings().stream) return;
  HttpResponse head{.content_type = "text/event-stream; charset=utf-8", .headers = pending.headers};
  head.headers.emplace_back("Cache-Control", "no-cache");
  head.headers.emplace_back("X-Accel-Buffering", "no");  // nginx must not collect the events
  pending.reply->begin_stream(head);
}

void Service::embed(Number number, std::vector<std::vector<TokenId>> texts) {
  Pending& pending = pending_.at(number);
  pending.work = worker_.add([this, number, texts = std::move(texts), cancelled = pending.cancelled] {
    try {
      const auto results = std::make_shared<std::vector<EmbeddingResult>>(embedder_->embed(texts, *cancelled));
      const bool is_complete = results->size() == texts.size();
      server_.post([this, number, results, is_complete] {
        if (!is_complete) return fail_request(number, stopping_error(), RequestOutcome::cancelled);
        std::int64_t sequence = 0;
        for (EmbeddingResult& e : *results) {
          take(number, sequence, TextStarted{e.tokens, 0});
          take(number, sequence, TextEmbedding{std::move(e.values)});
          take(number, sequence++, TextEnded{.reason = StopReason::max_tokens});
        }
      });
    } catch (const std::exception& e) {
      const ApiError error(500, e.what(), {}, "generation_failed");
      server_.post([this, number, error] {
        fail_request(number, error, RequestOutcome::failed);
        check_device(error.what());
      });
    }
  });
}

void Service::take(Number number, std::int64_t sequence, const TextEvent& event) {
  const auto at = pending_.find(number);
  if (at == pending_.end()) return;
  Pending& pending = at->second;
  measure(pending, event);
  const std::vector<Json> chunks = pending.answer->take(sequence, event);
  if (pending.answer->error()) {
    const std::string error = *pending.answer->error();
    fail_request(number, ApiError(500, error, {}, "generation_failed"), RequestOutcome::failed);
    return check_device(error);
  }
  if (pending.answer->cancelled()) return fail_request(number, stopping_error(), RequestOutcome::cancelled);
  send_chunks(pending, chunks);
  if (pending.answer->done()) finish(number);
}

void Service::measure(Pending& pending, const TextEvent& event) {
  if (std::holds_alternative<TextPiece>(event) && !std::exchange(pending.first_token, true))
    metrics_.add_time_to_first_token(seconds_since(pending.start));
  if (const auto* ended = std::get_if<TextEnded>(&event); ended && ended->tokens > 1)
    metrics_.add_time_per_token(ended->generate_seconds / static_cast<double>(ended->tokens));
}

void Service::send_chunks(Pending& pending, const std::vector<Json>& chunks) {
  std::string text;
  for (const Json& chunk : chunks) text += event_text(chunk);
  if (!text.empty()) pending.reply->write(text);
}

void Service::finish(Number number) {
  Pending& pending = pending_.at(number);
  const Answer& answer = *pending.answer;
  if (answer.settings().stream) {
    std::string last = answer.settings().include_usage ? event_text(answer.usage_chunk()) : "";
    pending.reply->write(last + "data: [DONE]\n\n");
    pending.reply->end();
    return end(number, 200, RequestOutcome::completed);
  }
  if (answer.settings().kind != AnswerKind::embeddings && !answer.settings().log_probabilities)
    return send_result(number, json_text(answer.result()));
  // The text can have many megabytes, and other connections must not wait for it.
  pending.work = worker_.add([this, number, finished = std::shared_ptr<const Answer>(pending.answer)] {
    try {
      const auto body = std::make_shared<std::string>(json_text(finished->result()));
      server_.post([this, number, body] { send_result(number, std::move(*body)); });
    } catch (const std::exception& e) {
      const ApiError error(500, e.what());
      server_.post([this, number, error] { fail_request(number, error, RequestOutcome::failed); });
    }
  });
}

void Service::send_result(Number number, std::string body) {
  const auto at = pending_.find(number);
  if (at == pending_.end()) return;  // the client is lost
  at->second.reply->send({.body = std::move(body), .headers = at->second.headers});
  end(number, 200, RequestOutcome::completed);
}

void Service::fail_request(Number number, const ApiError& error, RequestOutcome outcome) {
  const auto at = pending_.find(number);
  if (at == pending_.end()) return;
  Pending& pending = at->second;
  if (pending.scheduled && pending.answer->settings().stream) {
    pending.reply->write(fmt::format("event: error\ndata: {}\n\ndata: [DONE]\n\n", error.body()));
    pending.reply->end();
  } else {
    HttpResponse response = error.response();
    response.headers.insert(response.headers.end(), pending.headers.begin(), pending.headers.end());
    pending.reply->send(std::move(response));
  }
  if (pending.scheduled) engine_->scheduler().cancel(*pending.scheduled);
  end(number, error.status(), outcome);
}

/// A device that fails again with other sequences is lost, and a process cannot use it again. The program that has
/// started this one can start it again.
void Service::check_device(const std::string& error) {
  if (stopping_ || statistics().failed_steps < 2) return;
  failure_ = error;
  shut_down();
}

void Service::lose(Number number) {
  const auto at = pending_.find(number);
  if (at == pending_.end()) return;
  *at->second.cancelled = true;
  worker_.remove(at->second.work);
  if (at->second.scheduled) engine_->scheduler().cancel(*at->second.scheduled);
  end(number, 499, RequestOutcome::cancelled);
}

void Service::log(const std::string& line) const {
  if (options_.log) options_.log(fmt::format("{:%F %T} {}", fmt::localtime(std::time(nullptr)), line));
}

/// Logs and forgets a request. Its remaining events are ignored. The log contains no text from the client.
void Service::end(Number number, int status, RequestOutcome outcome) {
  const Pending& pending = pending_.at(number);
  metrics_.count(outcome);
  std::string line =
      fmt::format("{} {} {} seconds={:.3f}", pending.kind, status, outcome_name(outcome), seconds_since(pending.start));
  if (pending.answer)
    line += fmt::format(" id={} prompt={} cached={} generated={} finish={}", pending.answer->settings().id,
                        pending.answer->prompt_tokens(), pending.answer->cached_tokens(),
                        pending.answer->generated_tokens(), pending.answer->finish_reasons());
  log(line);
  pending_.erase(number);
}

void Service::shut_down() {
  if (stopping_) return;
  stopping_ = true;
  stop_at_ = Clock::now() + options_.stop_time;
  server_.drain();
  wait_for_requests();
}

void Service::wait_for_requests() {
  const auto now = Clock::now();
  // After the requests are cancelled, their last events and the responses take a moment.
  const bool is_idle = server_.active() == 0 || now > stop_at_ + std::chrono::seconds(2);
  // Also if no client waits: the worker may compute for one that was lost just now.
  if ((is_idle || now > stop_at_) && !std::exchange(cancelled_all_, true)) {
    if (engine_) engine_->scheduler().cancel_all();
    for (auto& [number, pending] : pending_) *pending.cancelled = true;
  }
  if (is_idle) return server_.stop();
  server_.after(std::chrono::milliseconds(20), [this] { wait_for_requests(); });
}

}  // namespace tessera::app
