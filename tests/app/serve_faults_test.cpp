// SPDX-License-Identifier: Apache-2.0
// Errors of sockets while `tessera serve` answers. This file replaces the calls of the C library that the server uses.
// Each error ends only its own connection: other answers are unchanged, and no page or descriptor stays in use.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <mutex>

#include "tests/app/serve_server.h"

namespace {

/// The fault of one connection: the call that would pass byte `left` fails with `error`.
struct SocketFault {
  bool writes = false;
  std::size_t left = 0;
  int error = 0;
  bool happened = false;
};
std::mutex fault_mutex;
SocketFault fault;
std::atomic<std::uint16_t> faulty_peer = 0;  ///< the client's port; 0: no fault
std::atomic<int> failing_accepts = 0;

bool is_faulty(int socket) {
  if (faulty_peer == 0) return false;
  sockaddr_in peer{};
  socklen_t size = sizeof peer;
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &size) != 0) return false;
  return peer.sin_family == AF_INET && ntohs(peer.sin_port) == faulty_peer;
}

/// Transfers at most `size` bytes with `call`, or fails.
template <class Call>
ssize_t transfer(int socket, bool writes, std::size_t size, const Call& call) {
  if (!is_faulty(socket)) return call(size);
  const std::lock_guard lock(fault_mutex);
  if (fault.writes != writes) return call(size);
  if (fault.left == 0) return fault.happened = true, errno = fault.error, -1;
  const ssize_t n = call(std::min(size, fault.left));
  if (n > 0) fault.left -= static_cast<std::size_t>(n);
  return n;
}

/// Calls `system_call` with the first buffer of a message that is not empty, limited to `size` bytes.
ssize_t transfer_message(int socket, bool writes, const msghdr* message, int flags, long system_call) {
  std::size_t total = 0;
  iovec first{};
  for (std::size_t i = 0; i < message->msg_iovlen; ++i) {
    if (total == 0) first = message->msg_iov[i];
    total += message->msg_iov[i].iov_len;
  }
  return transfer(socket, writes, total, [&](std::size_t size) {
    if (size == total) return static_cast<ssize_t>(::syscall(system_call, socket, message, flags));
    msghdr part = *message;
    first.iov_len = std::min(first.iov_len, size);
    part.msg_iov = &first, part.msg_iovlen = 1;
    return static_cast<ssize_t>(::syscall(system_call, socket, &part, flags));
  });
}

bool accept_fails() {
  int left = failing_accepts;
  while (left > 0 && !failing_accepts.compare_exchange_weak(left, left - 1)) {}
  if (left > 0) errno = EMFILE;
  return left > 0;
}

}  // namespace

extern "C" {

ssize_t recv(int socket, void* data, size_t size, int flags) {
  return transfer(socket, false, size, [&](std::size_t n) {
    return static_cast<ssize_t>(::syscall(SYS_recvfrom, socket, data, n, flags, nullptr, nullptr));
  });
}
ssize_t send(int socket, const void* data, size_t size, int flags) {
  return transfer(socket, true, size, [&](std::size_t n) {
    return static_cast<ssize_t>(::syscall(SYS_sendto, socket, data, n, flags, nullptr, 0));
  });
}
ssize_t recvmsg(int socket, msghdr* message, int flags) {
  return transfer_message(socket, false, message, flags, SYS_recvmsg);
}
ssize_t sendmsg(int socket, const msghdr* message, int flags) {
  return transfer_message(socket, true, message, flags, SYS_sendmsg);
}
int accept(int socket, sockaddr* address, socklen_t* size) {
  return accept_fails() ? -1 : static_cast<int>(::syscall(SYS_accept4, socket, address, size, 0));
}
int accept4(int socket, sockaddr* address, socklen_t* size, int flags) {
  return accept_fails() ? -1 : static_cast<int>(::syscall(SYS_accept4, socket, address, size, flags));
}
}

namespace tessera::app {
namespace {

using nlohmann::json;
using test::HttpClient;

std::ptrdiff_t descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

std::string content_of(const std::string& body) {
  std::string out;
  for (const json& chunk : parse_stream(body).chunks)
    for (const json& choice : chunk["choices"])
      if (choice["delta"].contains("content")) out += choice["delta"]["content"].get<std::string>();
  return out;
}

TEST(ServeFaults, SocketErrorsEndOnlyTheirConnection) {
  TestServer server(shipped_engine({.context = 1024, .parallel = 4}));
  json chat = {{"messages", {{{"role", "user"}, {"content", "What is an index?"}}}},
               {"temperature", 0},
               {"max_tokens", 16},
               {"stream", true}};
  const std::string other = HttpClient::text("POST", "/v1/chat/completions", chat.dump());
  const std::string expected =
      content_of(HttpClient(server.port()).request("POST", "/v1/chat/completions", chat.dump()).body);
  ASSERT_FALSE(expected.empty());
  chat["messages"][0]["content"] = "What is a table?";
  const std::vector<std::string> requests = {
      HttpClient::text("POST", "/v1/chat/completions", chat.dump()),
      HttpClient::text("POST", "/v1/completions", R"({"prompt": "The index", "max_tokens": 12, "n": 2})"),
      HttpClient::text("POST", "/v1/embeddings", R"({"input": ["The index", "A table"]})"),
      HttpClient::text("POST", "/v1/completions", R"({"prompt": "The index", "n": 99})"),
      HttpClient::text("GET", "/metrics")};
  const auto settle = [&] {
    server.wait_until_idle();
    for (int i = 0; i < 1000 && server.metric("tessera_connections") > 1; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(server.metric("tessera_connections"), 1);
    EXPECT_EQ(server.metric("tessera_used_cache_pages"), 0);
  };
  settle();
  const std::ptrdiff_t before = descriptors();
  for (const std::string& request : requests)
    for (const bool writes : {false, true}) {
      std::size_t length = request.size();
      if (writes) {
        HttpClient client(server.port());
        client.send(request);
        length = client.read_answer().body.size() + 100;  // the head has more than 100 bytes
      }
      for (const double part : {0.0, 0.01, 0.2, 0.5, 0.8, 1.0}) {
        if (writes && part > 0.9) continue;  // answers have different lengths
        const auto at = static_cast<std::size_t>(part * static_cast<double>(length));
        SCOPED_TRACE((writes ? "write " : "read ") + std::to_string(at) + " of " + request);
        HttpClient undisturbed(server.port()), faulty(server.port());
        {
          const std::lock_guard lock(fault_mutex);
          fault = {.writes = writes, .left = at, .error = at % 2 == 0 ? ECONNRESET : ETIMEDOUT};
        }
        faulty_peer = faulty.port();
        undisturbed.send(other);
        faulty.send(request);
        EXPECT_TRUE(faulty.closes());
        EXPECT_TRUE(fault.happened);
        faulty_peer = 0;
        EXPECT_EQ(content_of(undisturbed.read_answer().body), expected);
      }
    }
  settle();
  for (int i = 0; i < 1000 && descriptors() > before; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_LE(descriptors(), before);
}

TEST(ServeFaults, ContinuesAfterFailedAccepts) {
  TestServer server(nullptr);
  failing_accepts = 3;
  HttpClient waiting(server.port());
  EXPECT_EQ(waiting.request("GET", "/health").status, 503);
  EXPECT_EQ(failing_accepts, 0);
}

}  // namespace
}  // namespace tessera::app
