// SPDX-License-Identifier: Apache-2.0
// An HTTP/1.1 server with one thread for all connections. It enforces limits of size, number and time, and notices lost
// clients while a request is processed.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "serve/http.h"

namespace tessera::app {

/// Limits of HttpServer.
struct HttpLimits {
  std::size_t header = std::size_t{16} << 10;  ///< bytes of a request's head
  std::size_t body = std::size_t{16} << 20;    ///< bytes of a request's body
  std::size_t connections = 256;
  std::size_t unsent = std::size_t{64} << 20;  ///< bytes of a response that the client has not received
  std::chrono::milliseconds header_time{10'000};
  std::chrono::milliseconds body_time{60'000};
  std::chrono::milliseconds write_time{60'000};
  std::chrono::milliseconds idle_time{60'000};     ///< between two requests of a connection
  std::chrono::milliseconds comment_time{10'000};  ///< between comments in a stream
};

/// The server. All functions except post() are used on the thread that calls run().
class HttpServer {
 public:
  /// Listens on an address. Port 0 selects a free port. Throws ArgumentError if the address is unknown or in use.
  HttpServer(const std::string& host, std::uint16_t port, HttpLimits limits, HttpHandler handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;

  std::uint16_t port() const;  ///< the port on which it listens
  std::string url() const;     ///< such as "http://127.0.0.1:8080"
  bool is_loopback() const;    ///< true if only programs on this machine can connect

  void run();                             ///< Serves requests until stop() is called.
  void stop();                            ///< Makes run() return.
  void post(std::function<void()> work);  ///< Calls `work` on the server's thread. Thread-safe.
  /// Calls `work` on the server's thread after a delay, unless run() has returned before.
  void after(std::chrono::milliseconds delay, std::function<void()> work);
  void on_signal(std::function<void(int signal)> work);  ///< Calls `work` for SIGINT and SIGTERM.
  /// Accepts no more connections, closes idle ones, and closes the others after their answers.
  void drain();
  std::size_t active() const;  ///< number of requests that are not answered yet
  std::size_t connections() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::app
