// SPDX-License-Identifier: Apache-2.0
#include "serve/metrics.h"

#include <fmt/format.h>

#include <algorithm>

namespace tessera::app {
namespace {

std::string header(const std::string& name, const char* type, const char* help) {
  return fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

std::string metric(const std::string& name, const char* type, const char* help, std::int64_t value) {
  return header(name, type, help) + fmt::format("{} {}\n", name, value);
}

}  // namespace

const char* outcome_name(RequestOutcome outcome) {
  switch (outcome) {
    case RequestOutcome::completed: return "completed";
    case RequestOutcome::rejected: return "rejected";
    case RequestOutcome::cancelled: return "cancelled";
    default: return "failed";
  }
}

void Histogram::add(double seconds) {
  const auto at = std::ranges::lower_bound(bounds_, seconds);
  ++counts_[static_cast<std::size_t>(at - bounds_.begin())];
  sum_ += seconds;
}

std::string Histogram::text(const std::string& name) const {
  std::string out;
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    total += counts_[i];
    const std::string bound = i < bounds_.size() ? fmt::format("{}", bounds_[i]) : "+Inf";
    out += fmt::format("{}_bucket{{le=\"{}\"}} {}\n", name, bound, total);
  }
  return out + fmt::format("{}_sum {}\n{}_count {}\n", name, sum_, name, total);
}

std::string Metrics::text(const SchedulerStatistics& s, std::size_t connections) const {
  const std::string requests = "tessera_requests_total", first = "tessera_time_to_first_token_seconds",
                    each = "tessera_time_per_token_seconds";
  std::string out = header(requests, "counter", "Requests for text, by how they ended.");
  for (std::size_t i = 0; i < request_outcomes; ++i)
    out +=
        fmt::format("{}{{outcome=\"{}\"}} {}\n", requests, outcome_name(static_cast<RequestOutcome>(i)), requests_[i]);
  out += metric("tessera_connections", "gauge", "Open connections.", static_cast<std::int64_t>(connections));
  out += metric("tessera_queued_requests", "gauge", "Requests that wait.", s.queued);
  out += metric("tessera_running_sequences", "gauge", "Sequences in progress.", s.running);
  out += metric("tessera_prompt_tokens_total", "counter", "Prompt tokens that were read.", s.read_tokens);
  out += metric("tessera_cached_tokens_total", "counter", "Prompt tokens that were in the cache.", s.cached_tokens);
  out += metric("tessera_generated_tokens_total", "counter", "Generated tokens.", s.generated_tokens);
  out += metric("tessera_preempted_total", "counter", "Sequences that gave their memory to others.", s.preempted);
  out += metric("tessera_cache_pages", "gauge", "Pages of the KV cache.", s.pages);
  out += metric("tessera_used_cache_pages", "gauge", "Pages of the KV cache that sequences use.", s.used_pages);
  out += metric("tessera_shared_cache_pages", "gauge", "Pages that several sequences use.", s.shared_pages);
  out += header(first, "histogram", "Time from the request to its first text.") + first_token_.text(first);
  out += header(each, "histogram", "Mean time per generated token of a sequence.") + per_token_.text(each);
  return out;
}

}  // namespace tessera::app
