// SPDX-License-Identifier: Apache-2.0
// Reads and checks numbers in the metadata of a model. Internal.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <variant>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/llm/gguf_values.h"

namespace tessera {

class ModelKeys {
 protected:
  explicit ModelKeys(const GgufFile& file) : file_(file) {}

  bool is_array(const std::string& key) const {
    const GgufValue* v = file_.find(key);
    return v && std::holds_alternative<GgufArray>(*v);
  }
  [[noreturn]] void bad(const std::string& key, const std::string& what, const std::string& remedy) const {
    fail<FormatError>(
        {.operation = "load model", .with = {{"file", file_.name()}, {"key", key}}, .wrong = what, .remedy = remedy});
  }
  std::int64_t count(const std::string& key, std::int64_t most) const {
    std::int64_t v = 0;
    // Some files contain an array with one number per layer.
    if (is_array(prefix_ + key)) {
      const auto each = file_.get_array<std::int64_t>(prefix_ + key);
      if (each.empty() || std::ranges::any_of(each, [&](std::int64_t n) { return n != each[0]; }))
        bad(prefix_ + key, "different values for different layers are not supported", "");
      v = each[0];
    } else {
      v = file_.get<std::int64_t>(prefix_ + key);
    }
    if (v < 1 || v > most) bad(prefix_ + key, std::to_string(v) + " is not between 1 and " + std::to_string(most), "");
    return v;
  }
  /// A number for each layer: an array, or one number for all.
  std::vector<std::int64_t> counts(const std::string& key, std::int64_t layers, std::int64_t most) const {
    if (!is_array(prefix_ + key)) return std::vector(static_cast<std::size_t>(layers), count(key, most));
    auto each = file_.get_array<std::int64_t>(prefix_ + key);
    if (static_cast<std::int64_t>(each.size()) != layers)
      bad(prefix_ + key, fmt::format("expected one entry per layer, got {} for {} layers", each.size(), layers), "");
    for (const std::int64_t v : each)
      if (v < 1 || v > most)
        bad(prefix_ + key, std::to_string(v) + " is not between 1 and " + std::to_string(most), "");
    return each;
  }
  float number(const std::string& key, float otherwise, float least, float most) const {
    const float v = file_.get_or<float>(prefix_ + key, otherwise);
    if (!(v >= least && v <= most)) bad(prefix_ + key, fmt::format("{} is not between {} and {}", v, least, most), "");
    return v;
  }

  const GgufFile& file_;
  std::string prefix_;  ///< the architecture and a dot
};

}  // namespace tessera
