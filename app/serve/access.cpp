// SPDX-License-Identifier: Apache-2.0
#include "serve/access.h"

#include <algorithm>

#include "serve/api_error.h"
#include "tessera/base/error.h"
#include "tessera/base/sha256.h"

namespace tessera::app {
namespace {

/// Removes the port of "name:port" or "[address]:port".
std::string_view without_port(std::string_view host) {
  const std::size_t colon = host.rfind(':');
  if (colon == std::string_view::npos || host.find(']', colon) != std::string_view::npos) return host;
  return host.substr(0, colon);
}

bool is_local_name(std::string_view host) {
  std::string name(without_port(host));
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return c < 128 ? std::tolower(c) : c; });
  // "127.example.com" is not an address.
  const bool digits = name.find_first_not_of("0123456789.") == std::string::npos;
  return name == "localhost" || name == "[::1]" || (digits && name.starts_with("127."));
}

/// True if the page at `origin` comes from this server.
bool is_same_origin(std::string_view origin, std::string_view host) {
  const std::size_t scheme = origin.find("://");
  return scheme != std::string_view::npos && !host.empty() && origin.substr(scheme + 3) == host;
}

bool is_allowed(const AccessRules& rules, const std::string& origin) {
  return std::ranges::any_of(rules.origins, [&](const std::string& o) { return o == "*" || o == origin; });
}

}  // namespace

std::vector<std::string> parse_keys(std::string_view text) {
  std::vector<std::string> keys;
  for (std::size_t number = 1; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.starts_with('#')) continue;
    if (!std::ranges::all_of(line, [](char c) { return c > ' ' && c < 127; }))
      fail<ArgumentError>({.operation = "serve",
                           .with = {{"line", std::to_string(number)}},
                           .wrong = "a key contains a space or a character that is not printable ASCII",
                           .remedy = "Write one key on each line"});
    keys.emplace_back(line);
  }
  if (keys.empty())
    fail<ArgumentError>({.operation = "serve", .wrong = "there is no API key", .remedy = "Write one key on each line"});
  return keys;
}

void check_browser(const AccessRules& rules, const HttpRequest& request) {
  if (rules.loopback && rules.keys.empty() && !is_local_name(request.host))
    throw ApiError(403,
                   "The header Host names another machine. Use localhost or 127.0.0.1, or start the server with "
                   "--api-key-file.",
                   {}, "host_not_allowed");
  if (!request.origin || is_allowed(rules, *request.origin)) return;
  if (is_same_origin(*request.origin, request.host)) return;
  throw ApiError(403, "Web pages of this origin may not use the server. Start it with --cors ORIGIN to allow them.", {},
                 "origin_not_allowed");
}

void check_key(const AccessRules& rules, const HttpRequest& request) {
  if (rules.keys.empty()) return;
  std::string_view given = request.authorization;
  const std::string_view scheme = given.substr(0, given.find(' '));
  const bool is_bearer = std::ranges::equal(scheme, std::string_view("bearer"), [](unsigned char a, unsigned char b) {
    return (a >= 'A' && a <= 'Z' ? a - 'A' + 'a' : a) == b;
  });
  given.remove_prefix(is_bearer ? scheme.size() : given.size());
  given.remove_prefix(std::min(given.size(), given.find_first_not_of(' ')));
  // Hashes have the same length, and all characters of all hashes are compared.
  const std::string hash = sha256(given);
  bool found = false;
  for (const std::string& key : rules.keys) {
    const std::string expected = sha256(key);
    unsigned differences = 0;
    for (std::size_t i = 0; i < hash.size(); ++i)
      differences |= static_cast<unsigned char>(hash[i]) ^ static_cast<unsigned char>(expected[i]);
    found = found || differences == 0;
  }
  if (!found)
    throw ApiError(401, "The API key is missing or wrong. Send it in the header \"Authorization: Bearer KEY\".", {},
                   "invalid_api_key");
}

std::vector<std::pair<std::string, std::string>> cors_headers(const AccessRules& rules, const HttpRequest& request) {
  if (rules.origins.empty()) return {};
  std::vector<std::pair<std::string, std::string>> out{{"Vary", "Origin"}};
  if (!request.origin || !is_allowed(rules, *request.origin)) return out;
  out.emplace_back("Access-Control-Allow-Origin", *request.origin);
  if (request.request_method) {
    out.emplace_back("Access-Control-Allow-Methods", "GET, POST, OPTIONS");
    out.emplace_back("Access-Control-Allow-Headers", "Authorization, Content-Type, *");
    out.emplace_back("Access-Control-Max-Age", "600");
  }
  return out;
}

}  // namespace tessera::app
