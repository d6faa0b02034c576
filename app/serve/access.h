// SPDX-License-Identifier: Apache-2.0
// Decides who may use the server: API keys, and the headers Host and Origin of browsers.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "serve/http.h"

namespace tessera::app {

/// Who may use the server.
struct AccessRules {
  std::vector<std::string> keys;     ///< accepted API keys; empty: no key is required
  std::vector<std::string> origins;  ///< origins of web pages that may use the server; "*": all
  bool loopback = true;              ///< the server listens on a loopback address
};

/// Reads keys, one per line. Empty lines and lines that begin with # are ignored. Throws ArgumentError if there is no
/// key, or if a key contains a space or a character that is not printable ASCII. Errors contain the number of the line,
/// but not the keys.
std::vector<std::string> parse_keys(std::string_view text);

/// Throws ApiError 403 if a web page that is not permitted may have caused the request. A browser sends the page's
/// origin with the request. Without keys, the server on a loopback address also rejects host names of other machines,
/// because a web page can make its own name refer to this machine (DNS rebinding).
void check_browser(const AccessRules& rules, const HttpRequest& request);

/// Throws ApiError 401 if a key is required and the request does not have one. The time does not depend on the keys.
void check_key(const AccessRules& rules, const HttpRequest& request);

/// The CORS headers of the response to a request that check_browser() accepts.
std::vector<std::pair<std::string, std::string>> cors_headers(const AccessRules& rules, const HttpRequest& request);

}  // namespace tessera::app
