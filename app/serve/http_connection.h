// SPDX-License-Identifier: Apache-2.0
// A connection of HttpServer. Only http_server.cpp includes this header, because Boost's headers take long to compile.
#pragma once

#include <boost/asio.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <list>

#include "serve/http_server.h"

namespace tessera::app {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;
using Milliseconds = std::chrono::milliseconds;

class Connection;

/// What the connections share.
struct ConnectionPool {
  explicit ConnectionPool(HttpLimits l, HttpHandler h) : limits(l), handler(std::move(h)) {}
  asio::io_context io{1};
  HttpLimits limits;
  HttpHandler handler;
  std::list<std::shared_ptr<Connection>> connections;  ///< those that have been idle for longest come first
  bool draining = false;
};

/// A timer whose callback is not called after cancel() or start().
class Deadline {
 public:
  explicit Deadline(asio::io_context& io) : timer_(io) {}
  template <class F>
  void start(Milliseconds time, F work) {
    // An expired timer cannot be cancelled: its handler is already queued. The number detects this.
    timer_.expires_after(time);
    timer_.async_wait([current = number_, number = ++*number_, work = std::move(work)](error_code error) {
      if (!error && number == *current) work();
    });
  }
  void cancel() {
    ++*number_;
    timer_.cancel();
  }

 private:
  asio::steady_timer timer_;
  std::shared_ptr<std::uint64_t> number_ = std::make_shared<std::uint64_t>(0);
};

/// A connection. Its operations hold a reference to it, so it is destroyed when the last of them has ended.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  enum class State { idle, header, body, processing, lingering, closed };

  Connection(tcp::socket socket, ConnectionPool& shared)
      : socket_(std::move(socket)),
        pool_(shared),
        read_deadline_(shared.io),
        write_deadline_(shared.io),
        comment_deadline_(shared.io) {}

  State state() const { return state_; }
  /// True while the connection waits for a request.
  bool is_waiting() const { return state_ == State::idle || state_ == State::header || state_ == State::body; }
  /// True if a request is being received with less than 64 bytes a second, not counting the first half second.
  bool is_slow() const;
  void start() {
    error_code ignored;
    socket_.set_option(tcp::no_delay(true), ignored);
    wait_for_request(pool_.limits.header_time);
  }
  void close();

  // For the reply of the request in progress.
  void send(HttpResponse response);
  void begin_stream(const HttpResponse& head);
  void write_part(std::string_view part);
  void end_stream();
  void on_lost(std::function<void()> lost) { lost_ = std::move(lost); }

 private:
  using Parser = http::request_parser<http::string_body>;
  template <class F>
  auto handler(F f) {
    return [self = shared_from_this(), f](error_code error, std::size_t bytes) {
      if (self->state_ != State::closed) f(*self, error, bytes);
    };
  }
  void limit_read(Milliseconds time) {
    read_deadline_.start(time, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->close();
    });
  }
  void wait_for_request(Milliseconds time);
  void watch();
  void read_header();
  void check_header(error_code error);
  void read_body();
  void dispatch();
  void reject(int status, std::string_view message);
  void reject(error_code error);
  void write(std::string bytes);
  void write_next();
  void finish();
  void linger();
  void drop_input();
  void start_comments();

  tcp::socket socket_;
  ConnectionPool& pool_;
  Deadline read_deadline_, write_deadline_, comment_deadline_;
  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  std::chrono::steady_clock::time_point waits_since_ = std::chrono::steady_clock::now();
  State state_ = State::idle;
  bool watching_ = false;  ///< a read is pending that notices the end of the connection or the next request
  std::string out_, writing_;
  bool answered_ = false;  ///< the answer is complete, but not all of it is sent
  bool keep_alive_ = true, chunked_ = true, streaming_ = false, head_only_ = false;
  std::function<void()> lost_;
};

/// The reply of one request.
class ConnectionReply : public Reply {
 public:
  explicit ConnectionReply(std::shared_ptr<Connection> connection) : connection_(std::move(connection)) {}
  ~ConnectionReply() override {
    if (connection_) connection_->close();
  }
  void send(HttpResponse response) override {
    if (const auto connection = std::exchange(connection_, nullptr)) connection->send(std::move(response));
  }
  void begin_stream(const HttpResponse& head) override {
    if (connection_) connection_->begin_stream(head);
  }
  void write(std::string_view part) override {
    if (connection_) connection_->write_part(part);
  }
  void end() override {
    if (const auto connection = std::exchange(connection_, nullptr)) connection->end_stream();
  }
  void on_lost(std::function<void()> lost) override {
    if (connection_) connection_->on_lost(std::move(lost));
  }

 private:
  std::shared_ptr<Connection> connection_;
};

}  // namespace tessera::app
