// SPDX-License-Identifier: Apache-2.0
// A small HTTP client with time limits, for tests of servers on 127.0.0.1.
#pragma once

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <stdexcept>
#include <string>
#include <vector>

namespace tessera::test {

struct HttpAnswer {
  int status = 0;                              ///< 0: the connection was closed without an answer
  std::map<std::string, std::string> headers;  ///< names in lower case
  std::string body;
  nlohmann::json json() const { return nlohmann::json::parse(body); }
};

/// Returns the port after "listening on" in the output of `tessera serve`, or 0.
inline std::uint16_t port_in(const std::string& out) {
  std::smatch found;
  if (!std::regex_search(out, found, std::regex("listening on http://[^\n]*:([0-9]+)\n"))) return 0;
  return static_cast<std::uint16_t>(std::stoi(found[1]));
}

/// A connection to the server.
class HttpClient {
 public:
  explicit HttpClient(std::uint16_t port, double seconds = 60) : seconds_(seconds) {
    socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
      throw std::runtime_error("cannot connect");
  }
  HttpClient(const HttpClient&) = delete;
  ~HttpClient() { ::close(socket_); }

  /// Sends bytes. Returns false if the server has closed the connection.
  bool send(const std::string& bytes) {
    for (std::size_t at = 0; at < bytes.size();) {
      const ssize_t n = ::send(socket_, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
      if (n <= 0) return false;
      at += static_cast<std::size_t>(n);
    }
    return true;
  }
  /// Reads some bytes. Returns false at the end of the connection. Throws if there are none within the time limit.
  bool read_some() {
    pollfd wait{socket_, POLLIN, 0};
    if (::poll(&wait, 1, static_cast<int>(seconds_ * 1000)) <= 0) throw std::runtime_error("no answer: " + received_);
    char some[4096];
    const ssize_t n = ::recv(socket_, some, sizeof some, 0);
    if (n <= 0) return false;
    received_.append(some, static_cast<std::size_t>(n));
    return true;
  }
  /// True if the server closes the connection within the time limit.
  bool closes() {
    try {
      while (read_some()) {}
      return true;
    } catch (const std::exception&) {
      return false;
    }
  }
  HttpAnswer read_answer() {
    HttpAnswer out;
    std::size_t end = 0;
    while ((end = received_.find("\r\n\r\n")) == std::string::npos)
      if (!read_some()) return out;
    const std::string head = take(end + 4);
    out.status = std::atoi(head.c_str() + 9);
    if (out.status == 100) return read_answer();
    for (std::size_t at = head.find("\r\n") + 2; at + 2 < head.size();) {
      const std::size_t line_end = head.find("\r\n", at), colon = head.find(": ", at);
      std::string name = head.substr(at, colon - at);
      for (char& c : name) c = static_cast<char>(std::tolower(c));
      out.headers[name] = head.substr(colon + 2, line_end - colon - 2);
      at = line_end + 2;
    }
    if (out.headers.count("transfer-encoding")) {
      while (true) {
        const std::size_t size = std::stoul(take(find("\r\n") + 2), nullptr, 16);
        wait_for(size + 2);
        out.body += take(size + 2).substr(0, size);
        if (size == 0) return out;
      }
    }
    if (out.headers.count("content-length")) {
      const std::size_t size = std::stoul(out.headers["content-length"]);
      wait_for(size);
      out.body = take(size);
    } else if (out.status != 204) {
      while (read_some()) {}
      out.body = take(received_.size());
    }
    return out;
  }
  HttpAnswer request(const std::string& method, const std::string& path, const std::string& body = {},
                     const std::vector<std::string>& headers = {}) {
    send(text(method, path, body, headers));
    return read_answer();
  }
  static std::string text(const std::string& method, const std::string& path, const std::string& body = {},
                          const std::vector<std::string>& headers = {}) {
    std::string out = method + " " + path + " HTTP/1.1\r\n";
    bool host = false;
    for (const std::string& h : headers) out += h + "\r\n", host = host || h.starts_with("Host:");
    if (!host) out += "Host: 127.0.0.1\r\n";
    if (!body.empty()) out += "Content-Length: " + std::to_string(body.size()) + "\r\n";
    return out + "\r\n" + body;
  }
  /// Closes the sending side. The server can still answer.
  void finish_sending() { ::shutdown(socket_, SHUT_WR); }
  /// The port of this side of the connection.
  std::uint16_t port() const {
    sockaddr_in address{};
    socklen_t size = sizeof address;
    ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size);
    return ntohs(address.sin_port);
  }
  const std::string& received() const { return received_; }

 private:
  std::size_t find(const char* text) {
    std::size_t at = 0;
    while ((at = received_.find(text)) == std::string::npos)
      if (!read_some()) throw std::runtime_error("incomplete answer: " + received_);
    return at;
  }
  void wait_for(std::size_t bytes) {
    while (received_.size() < bytes)
      if (!read_some()) throw std::runtime_error("incomplete answer: " + received_);
  }
  std::string take(std::size_t bytes) {
    std::string out = received_.substr(0, bytes);
    received_.erase(0, bytes);
    return out;
  }
  int socket_;
  double seconds_;
  std::string received_;
};

}  // namespace tessera::test
