// SPDX-License-Identifier: Apache-2.0
// The only file that includes Boost, because its headers take long to compile.
#include "serve/http_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>

#include "serve/http_connection.h"
#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/base/os/time_slice.h"

namespace tessera::app {
namespace {

constexpr std::string_view continue_line = "HTTP/1.1 100 Continue\r\n\r\n";
constexpr std::string_view comment = ": waiting\n\n";
constexpr Milliseconds linger_time{2'000};
constexpr std::size_t long_body = std::size_t{64} << 10;  // is not copied

std::string head_text(const HttpResponse& response, bool keep_alive) {
  std::string out =
      fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\nConnection: {}\r\n", response.status,
                  std::string(http::obsolete_reason(http::int_to_status(static_cast<unsigned>(response.status)))),
                  response.content_type, keep_alive ? "keep-alive" : "close");
  for (const auto& [name, value] : response.headers) out += fmt::format("{}: {}\r\n", name, value);
  return out;
}

HttpResponse error_response(int status, std::string_view message) {
  return {.status = status,
          .body = fmt::format(
              R"({{"error":{{"message":"{}","type":"invalid_request_error","param":null,"code":null}}}})", message)};
}

}  // namespace

void Connection::close() {
  if (state_ == State::closed) return;
  const auto self = shared_from_this();
  state_ = State::closed;
  read_deadline_.cancel(), write_deadline_.cancel(), comment_deadline_.cancel();
  error_code ignored;
  socket_.close(ignored);
  pool_.connections.remove(self);
  // Not called here, because the caller may be the function that is writing the answer.
  if (auto lost = std::exchange(lost_, nullptr)) asio::post(pool_.io, std::move(lost));
}

bool Connection::is_slow() const {
  constexpr double bytes_per_second = 64, grace = 0.5;
  // The header has been removed from the buffer when the body is received. No header is shorter than this.
  constexpr std::size_t least_header = 64;
  const std::size_t body = state_ == State::body && parser_ ? least_header + parser_->get().body().size() : 0;
  const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - waits_since_;
  return static_cast<double>(buffer_.size() + body) < bytes_per_second * (waited.count() - grace);
}

void Connection::wait_for_request(Milliseconds time) {
  state_ = State::idle;
  waits_since_ = std::chrono::steady_clock::now();
  pool_.connections.splice(pool_.connections.end(), pool_.connections,
                           std::ranges::find(pool_.connections, shared_from_this()));
  if (pool_.draining) return close();
  limit_read(time);
  if (buffer_.size() == 0) return watch();
  if (!watching_) return read_header();
  error_code ignored;
  socket_.cancel(ignored);  // there must be only one read; its handler reads the header
}

void Connection::watch() {
  if (watching_) return;
  watching_ = true;
  socket_.async_read_some(buffer_.prepare(4096), handler([](Connection& self, error_code error, std::size_t bytes) {
                            self.watching_ = false;
                            self.buffer_.commit(bytes);
                            const bool has_begun = self.state_ == State::idle && self.buffer_.size() > 0;
                            if (error && !(error == asio::error::operation_aborted && has_begun)) return self.close();
                            if (has_begun) return self.read_header();
                            // A client may send its next request before it has the answer, but only the head of a
                            // request.
                            if (self.buffer_.size() > self.pool_.limits.header) return self.close();
                            self.watch();
                          }));
}

void Connection::read_header() {
  state_ = State::header;
  parser_.emplace();
  parser_->header_limit(static_cast<std::uint32_t>(pool_.limits.header));
  parser_->body_limit(pool_.limits.body);
  limit_read(pool_.limits.header_time);
  http::async_read_header(socket_, buffer_, *parser_,
                          handler([](Connection& self, error_code error, std::size_t) { self.check_header(error); }));
}

void Connection::check_header(error_code error) {
  if (error) return reject(error);
  const auto& head = parser_->get();
  if (head.count(http::field::content_length) && head.count(http::field::transfer_encoding))
    return reject(400, "the request has both Content-Length and Transfer-Encoding");
  if (head.count(http::field::transfer_encoding) && !parser_->chunked())
    return reject(400, "the only supported transfer encoding is chunked");
  if (head.count(http::field::host) > 1 || (head.version() == 11 && head.count(http::field::host) == 0))
    return reject(400, "the request must have one header Host");
  if (head.count(http::field::authorization) > 1 || head.count(http::field::origin) > 1)
    return reject(400, "a header occurs twice");
  if (boost::beast::iequals(head[http::field::expect], "100-continue")) write(std::string(continue_line));
  read_body();
}

void Connection::read_body() {
  state_ = State::body;
  limit_read(pool_.limits.body_time);
  http::async_read(socket_, buffer_, *parser_, handler([](Connection& self, error_code error, std::size_t) {
                     if (error) return self.reject(error);
                     self.dispatch();
                   }));
}

void Connection::dispatch() {
  read_deadline_.cancel();
  auto message = parser_->release();
  const auto text = [&](http::field name) { return std::string(message[name]); };
  const auto optional = [&](http::field name) {
    return message.count(name) ? std::optional(text(name)) : std::nullopt;
  };
  HttpRequest request{.method = std::string(message.method_string()),
                      .path = std::string(message.target()),
                      .body = std::move(message.body()),
                      .host = text(http::field::host),
                      .authorization = text(http::field::authorization),
                      .origin = optional(http::field::origin),
                      .request_method = optional(http::field::access_control_request_method)};
  request.path = request.path.substr(0, request.path.find('?'));
  keep_alive_ = message.keep_alive();
  chunked_ = message.version() == 11;
  answered_ = streaming_ = false;
  head_only_ = message.method() == http::verb::head;
  state_ = State::processing;
  watch();
  try {
    pool_.handler(std::move(request), std::make_unique<ConnectionReply>(shared_from_this()));
  } catch (const std::exception& e) {  // the reply was destroyed, which closed the connection
    logging::warn(fmt::format("serve: a request failed: {}", e.what()));
  }
}

void Connection::reject(error_code error) {
  if (error == http::error::header_limit) return reject(431, "the header is too long");
  if (error == http::error::body_limit) return reject(413, "the body is too long");
  if (error.category() == make_error_code(http::error::bad_method).category() && error != http::error::end_of_stream &&
      error != http::error::partial_message)
    return reject(400, "the request is not valid HTTP");
  close();  // the client has closed the connection
}

void Connection::reject(int status, std::string_view message) {
  state_ = State::processing;
  keep_alive_ = head_only_ = false;
  send(error_response(status, message));
}

void Connection::send(HttpResponse response) {
  if (state_ != State::processing) return;
  if (pool_.draining) keep_alive_ = false;
  std::string head = head_text(response, keep_alive_);
  if (response.status != 204) head += fmt::format("Content-Length: {}\r\n", response.body.size());
  head += "\r\n";
  if (head_only_) response.body.clear();
  if (head.size() + response.body.size() > pool_.limits.unsent)
    return send(error_response(500, "The answer is too long."));
  if (response.body.size() < long_body) head += std::exchange(response.body, {});  // one packet
  answered_ = response.body.empty();
  lost_ = nullptr;
  write(std::move(head));
  if (answered_ || state_ != State::processing) return;
  answered_ = true;
  write(std::move(response.body));
}

void Connection::begin_stream(const HttpResponse& head) {
  if (state_ != State::processing) return;
  if (pool_.draining || !chunked_) keep_alive_ = false;
  streaming_ = true;
  write(head_text(head, keep_alive_) + (chunked_ ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n"));
  start_comments();
}

void Connection::start_comments() {
  comment_deadline_.start(pool_.limits.comment_time, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->write_part(comment);
  });
}

void Connection::write_part(std::string_view part) {
  if (state_ != State::processing || !streaming_ || part.empty()) return;
  start_comments();
  write(chunked_ ? fmt::format("{:x}\r\n{}\r\n", part.size(), part) : std::string(part));
}

void Connection::end_stream() {
  if (state_ != State::processing) return;
  comment_deadline_.cancel();
  answered_ = true;
  lost_ = nullptr;
  write(chunked_ ? "0\r\n\r\n" : "");
}

void Connection::write(std::string bytes) {
  if (out_.empty())
    out_ = std::move(bytes);
  else
    out_ += bytes;
  if (out_.size() > pool_.limits.unsent) return close();
  if (writing_.empty()) write_next();
}

void Connection::write_next() {
  if (out_.empty()) {
    if (answered_) finish();
    return;
  }
  writing_ = std::exchange(out_, {});
  write_deadline_.start(pool_.limits.write_time, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->close();
  });
  asio::async_write(socket_, asio::buffer(writing_), handler([](Connection& self, error_code error, std::size_t) {
                      self.write_deadline_.cancel();
                      self.writing_.clear();
                      if (error) return self.close();
                      self.write_next();
                    }));
}

void Connection::finish() {
  if (!keep_alive_ || pool_.draining) return linger();
  answered_ = false;
  wait_for_request(pool_.limits.idle_time);
}

// If a socket is closed with unread input, the client may lose the response. Input is therefore read and dropped until
// the client has closed its side.
void Connection::linger() {
  state_ = State::lingering;
  error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_send, ignored);
  limit_read(linger_time);
  if (!watching_) drop_input();
}

void Connection::drop_input() {
  buffer_.clear();
  socket_.async_read_some(buffer_.prepare(4096), handler([](Connection& self, error_code error, std::size_t) {
                            if (error) return self.close();
                            self.drop_input();
                          }));
}

struct HttpServer::State {
  State(HttpLimits limits, HttpHandler handler) : shared(limits, std::move(handler)) {}

  void listen(const std::string& host, std::uint16_t port);
  void accept();
  void admit(tcp::socket socket, int attempt);
  void after(Milliseconds time, std::function<void()> work);

  ConnectionPool shared;
  tcp::acceptor acceptor{shared.io};
  asio::signal_set signals{shared.io};
  asio::executor_work_guard<asio::io_context::executor_type> work{shared.io.get_executor()};
  std::function<void(int)> on_signal;

  void wait_for_signal() {
    signals.async_wait([this](error_code error, int signal) {
      if (error) return;
      on_signal(signal);
      wait_for_signal();
    });
  }
};

void HttpServer::State::listen(const std::string& host, std::uint16_t port) {
  const auto check = [&](error_code error, const char* wrong) {
    if (error)
      fail<ArgumentError>({.operation = "serve",
                           .with = {{"host", host}, {"port", std::to_string(port)}},
                           .wrong = fmt::format("{}: {}", wrong, error.message()),
                           .remedy = "Choose another --host or --port"});
  };
  error_code error;
  tcp::resolver resolver(shared.io);
  const auto found = resolver.resolve(host, std::to_string(port), tcp::resolver::passive, error);
  check(error, "the host is unknown");
  const tcp::endpoint endpoint = found.begin()->endpoint();
  if (!acceptor.open(endpoint.protocol(), error)) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  check(error, "the address cannot be used");
  accept();
}

void HttpServer::State::accept() {
  acceptor.async_accept([this](error_code error, tcp::socket socket) {
    if (!acceptor.is_open()) return;
    if (!error) return admit(std::move(socket), 0);
    after(Milliseconds(100), [this] {  // such as too many open files: wait until some are closed
      if (acceptor.is_open()) accept();
    });
  });
}

void HttpServer::State::after(Milliseconds time, std::function<void()> work) {
  auto timer = std::make_shared<asio::steady_timer>(shared.io, time);
  timer->async_wait([timer, work = std::move(work)](error_code error) {
    if (!error) work();
  });
}

// If there are too many connections, one that has been answered is closed, or the slow one that has waited longest for
// its request, so that idle and slow clients do not keep others out. If there is none, a client that has just connected
// gets time to send its request, while the next ones wait to be accepted. Then the one that has waited longest is
// closed.
void HttpServer::State::admit(tcp::socket socket, int attempt) {
  constexpr Milliseconds pause{10};
  constexpr int most_attempts = 50;
  const auto is_full = [&] { return shared.connections.size() >= shared.limits.connections; };
  const auto evict = [&](const auto& may_be_closed) {
    if (!is_full()) return;
    const auto victim = std::ranges::find_if(shared.connections, may_be_closed);
    if (victim != shared.connections.end()) std::shared_ptr(*victim)->close();
  };
  const auto is_waiting = [](const auto& c) { return c->is_waiting(); };
  evict([](const auto& c) { return c->state() == Connection::State::lingering; });
  evict([](const auto& c) { return c->is_waiting() && c->is_slow(); });
  if (is_full() && attempt < most_attempts && std::ranges::any_of(shared.connections, is_waiting)) {
    const auto held = std::make_shared<tcp::socket>(std::move(socket));
    return after(pause, [this, held, attempt] {
      if (acceptor.is_open()) admit(std::move(*held), attempt + 1);
    });
  }
  evict([](const auto& c) { return c->state() == Connection::State::idle; });
  evict(is_waiting);
  if (!is_full()) {
    shared.connections.push_back(std::make_shared<Connection>(std::move(socket), shared));
    const auto connection = shared.connections.back();
    connection->start();
  }  // else the socket is closed
  accept();
}

HttpServer::HttpServer(const std::string& host, std::uint16_t port, HttpLimits limits, HttpHandler handler)
    : state_(std::make_unique<State>(limits, std::move(handler))) {
  state_->listen(host, port);
}

HttpServer::~HttpServer() {
  state_->shared.handler = nullptr;
  while (!state_->shared.connections.empty()) std::shared_ptr(state_->shared.connections.front())->close();
}

std::uint16_t HttpServer::port() const { return state_->acceptor.local_endpoint().port(); }
std::string HttpServer::url() const {
  const tcp::endpoint e = state_->acceptor.local_endpoint();
  const std::string address = e.address().to_string();
  return fmt::format("http://{}:{}", e.address().is_v6() ? "[" + address + "]" : address, e.port());
}
bool HttpServer::is_loopback() const { return state_->acceptor.local_endpoint().address().is_loopback(); }

void HttpServer::run() {
  os::request_short_slices();  // requests such as /health are answered while the model occupies all cores
  while (true) {
    try {
      state_->shared.io.run();
      return;
    } catch (const std::exception& e) {  // such as bad_alloc; other connections continue
      logging::warn(fmt::format("serve: {}", e.what()));
    }
  }
}
void HttpServer::stop() { state_->shared.io.stop(); }
void HttpServer::post(std::function<void()> work) { asio::post(state_->shared.io, std::move(work)); }

void HttpServer::after(Milliseconds delay, std::function<void()> work) { state_->after(delay, std::move(work)); }

void HttpServer::on_signal(std::function<void(int)> work) {
  state_->on_signal = std::move(work);
  for (const int signal : {SIGINT, SIGTERM}) state_->signals.add(signal);
  state_->wait_for_signal();
}

void HttpServer::drain() {
  state_->shared.draining = true;
  error_code ignored;
  state_->acceptor.close(ignored);
  const auto all = state_->shared.connections;
  for (const auto& connection : all)
    if (connection->state() == Connection::State::idle) connection->close();
}

std::size_t HttpServer::active() const {
  return static_cast<std::size_t>(std::ranges::count_if(
      state_->shared.connections, [](const auto& c) { return c->state() == Connection::State::processing; }));
}
std::size_t HttpServer::connections() const { return state_->shared.connections.size(); }

}  // namespace tessera::app
