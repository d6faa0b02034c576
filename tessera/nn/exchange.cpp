// SPDX-License-Identifier: Apache-2.0
#include "tessera/nn/exchange.h"

#include <algorithm>
#include <exception>

namespace tessera::detail {

void run_on_all(Exchange* ranks, const Callback<void()>& f) {
  if (ranks == nullptr) return f();
  std::string error;
  std::exception_ptr exception;
  try {
    f();
  } catch (const std::exception& e) {
    error = e.what(), exception = std::current_exception();
  }
  const std::vector<std::uint64_t> failed = ranks->gather(exception ? 1 : 0);
  const auto first = std::ranges::find(failed, 1u);
  if (first == failed.end()) return;
  const auto root = static_cast<int>(first - failed.begin());
  error = ranks->broadcast(error, root);
  if (exception) std::rethrow_exception(exception);
  throw Error("rank " + std::to_string(root) + ": " + error);
}

}  // namespace tessera::detail
