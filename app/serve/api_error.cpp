// SPDX-License-Identifier: Apache-2.0
#include "serve/api_error.h"

#include "serve/json.h"

namespace tessera::app {
namespace {

constexpr const char* retry_seconds = "2";

const char* type_of(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 429: return "rate_limit_error";
    case 503: return "unavailable_error";
    default: return status < 500 ? "invalid_request_error" : "server_error";
  }
}

}  // namespace

ApiError::ApiError(int status, std::string message, std::string param, std::string code)
    : status_(status), message_(std::move(message)), param_(std::move(param)), code_(std::move(code)) {}

std::string ApiError::body() const {
  const auto text_or_null = [](const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); };
  return json_text({{"error",
                     {{"message", message_},
                      {"type", type_of(status_)},
                      {"param", text_or_null(param_)},
                      {"code", text_or_null(code_)}}}});
}

HttpResponse ApiError::response() const {
  HttpResponse out{.status = status_, .body = body()};
  if (status_ == 429 || status_ == 503) out.headers.emplace_back("Retry-After", retry_seconds);
  if (status_ == 401) out.headers.emplace_back("WWW-Authenticate", "Bearer");
  return out;
}

}  // namespace tessera::app
