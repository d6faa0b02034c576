// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/stop_filter.h"

#include <algorithm>
#include <utility>

#include "tessera/base/error.h"

namespace tessera {

StopFilter::StopFilter(std::vector<std::string> stops) : stops_(std::move(stops)) {
  for (const std::string& stop : stops_)
    if (stop.empty())
      fail<ArgumentError>({.operation = "generate", .with = {{"stop", "\"\""}}, .wrong = "a stop string is empty"});
  std::sort(stops_.begin(), stops_.end(), [](const auto& a, const auto& b) { return a.size() > b.size(); });
}

std::string StopFilter::push(std::string_view piece) {
  if (stopped_) return {};
  if (stops_.empty()) return std::string(piece);
  const std::size_t old = held_.size();
  held_ += piece;
  const std::string_view text = held_;
  for (std::size_t end = old + 1; end <= text.size(); ++end)
    for (const std::string& stop : stops_)
      if (text.substr(0, end).ends_with(stop)) {
        stopped_ = stop;
        held_.resize(end - stop.size());
        return std::exchange(held_, {});
      }
  std::size_t keep = 0;
  for (const std::string& stop : stops_)
    for (std::size_t n = std::min(stop.size() - 1, text.size()); n > keep; --n)
      if (text.ends_with(std::string_view(stop).substr(0, n))) keep = n;
  std::string out = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return out;
}

std::string StopFilter::flush() { return std::exchange(held_, {}); }

}  // namespace tessera
