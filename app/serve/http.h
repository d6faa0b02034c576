// SPDX-License-Identifier: Apache-2.0
// Requests and responses, as the HTTP server passes them to its handler.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::app {

/// A complete request.
struct HttpRequest {
  std::string method;  ///< such as "GET"
  std::string path;    ///< the target without the query
  std::string body;
  std::string host;                           ///< the header Host
  std::string authorization;                  ///< the header Authorization
  std::optional<std::string> origin;          ///< the header Origin
  std::optional<std::string> request_method;  ///< the header Access-Control-Request-Method, of a CORS preflight
};

/// A complete response, or the head of a stream.
struct HttpResponse {
  int status = 200;
  std::string body = {};
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers = {};  ///< additional headers; values are not checked
};

/// Answers one request. Used only on the server's thread. If it is destroyed before the answer is complete, the
/// connection is closed. After the client is lost, all calls have no effect.
class Reply {
 public:
  virtual ~Reply() = default;
  /// Sends a complete response.
  virtual void send(HttpResponse response) = 0;
  /// Starts a stream of server-sent events. While nothing is written, the server sends comments at intervals.
  virtual void begin_stream(const HttpResponse& head) = 0;
  virtual void write(std::string_view part) = 0;  ///< Writes a part of the stream.
  virtual void end() = 0;                         ///< Ends the stream.
  /// `lost` is called once if the client closes the connection before the answer is complete.
  virtual void on_lost(std::function<void()> lost) = 0;
};

/// Handles a request. Called on the server's thread.
using HttpHandler = std::function<void(HttpRequest request, std::unique_ptr<Reply> reply)>;

}  // namespace tessera::app
