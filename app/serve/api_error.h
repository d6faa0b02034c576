// SPDX-License-Identifier: Apache-2.0
// Errors in the format of OpenAI's API.
#pragma once

#include <exception>
#include <string>

#include "serve/http.h"

namespace tessera::app {

/// An error that is sent to the client.
class ApiError : public std::exception {
 public:
  ApiError(int status, std::string message, std::string param = {}, std::string code = {});
  const char* what() const noexcept override { return message_.c_str(); }
  int status() const { return status_; }               ///< the HTTP status
  const std::string& param() const { return param_; }  ///< the field that causes the error, or empty

  /// The body: {"error": {"message", "type", "param", "code"}}.
  std::string body() const;
  /// The complete response, with Retry-After for the status 429 and 503.
  HttpResponse response() const;

 private:
  int status_;
  std::string message_, param_, code_;
};

}  // namespace tessera::app
