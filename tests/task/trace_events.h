// SPDX-License-Identifier: Apache-2.0
// Parses traces for tests, and checks the rules that every trace must obey.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

namespace tessera::test {

using nlohmann::json;

/// Returns a path in the folder for temporary files. The name is unique to this process.
inline std::filesystem::path file_of(const std::string& name) {
  return std::filesystem::temp_directory_path() / ("trace_test_" + std::to_string(::getpid()) + "_" + name);
}
inline std::string content_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Returns the trace's events after checking the rules of viewers: complete events of a row must be nested, and each
/// arrow must have two ends, each inside an event of its row.
inline std::vector<json> checked(const std::string& text) {
  const json all = json::parse(text);
  std::vector<json> events = all.at("traceEvents");
  struct Row {
    std::vector<std::pair<std::int64_t, std::int64_t>> spans;  // nanoseconds
    bool named = false;
  };
  const auto ns = [](const json& e, const char* field) {
    return static_cast<std::int64_t>(std::llround(e.at(field).get<double>() * 1000));
  };
  std::map<std::pair<int, int>, Row> rows;
  std::map<std::int64_t, std::pair<std::vector<json>, std::vector<json>>> arrows;
  for (const json& e : events) {
    const std::string kind = e.at("ph");
    if (kind == "M" && e.at("name") == "thread_name") rows[{e.at("pid"), e.at("tid")}].named = true;
    if (kind == "X") {
      EXPECT_GE(ns(e, "ts"), 0) << e;
      EXPECT_GE(ns(e, "dur"), 0) << e;
      rows[{e.at("pid"), e.at("tid")}].spans.emplace_back(ns(e, "ts"), ns(e, "ts") + ns(e, "dur"));
    }
    if (kind == "s") arrows[e.at("id")].first.push_back(e);
    if (kind == "f") arrows[e.at("id")].second.push_back(e);
  }
  for (auto& [where, row] : rows) {
    EXPECT_TRUE(row.named) << where.first << " " << where.second;
    std::ranges::sort(row.spans, [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first < b.first : a.second > b.second;
    });
    std::vector<std::int64_t> open;
    for (const auto& [begin, end] : row.spans) {
      while (!open.empty() && open.back() <= begin) open.pop_back();
      if (!open.empty()) {
        EXPECT_LE(end, open.back()) << "events must nest";
      }
      open.push_back(end);
    }
  }
  for (const auto& [id, ends] : arrows) {
    EXPECT_EQ(ends.first.size(), 1u);
    EXPECT_EQ(ends.second.size(), 1u);
    for (const auto* end : {&ends.first.at(0), &ends.second.at(0)}) {
      const Row& row = rows[{end->at("pid"), end->at("tid")}];
      const std::int64_t at = ns(*end, "ts");
      EXPECT_TRUE(std::ranges::any_of(row.spans, [&](const auto& s) { return s.first <= at && at <= s.second; }))
          << *end;
    }
  }
  return events;
}

inline std::vector<json> of_kind(const std::vector<json>& events, const char* category) {
  std::vector<json> some;
  for (const json& e : events)
    if (e.at("ph") == "X" && e.at("cat") == category) some.push_back(e);
  return some;
}
/// Returns the only task with this name.
inline json named(const std::vector<json>& events, const std::string& name) {
  json found;
  int count = 0;
  for (const json& e : of_kind(events, "task"))
    if (e.at("name") == name) found = e, ++count;
  EXPECT_EQ(count, 1) << name;
  return found;
}
/// Returns true if an arrow goes from the end of `from` to the beginning of `to`.
inline bool arrow(const std::vector<json>& events, const json& from, const json& to, const char* name = nullptr) {
  std::set<std::int64_t> begun;
  for (const json& e : events)
    if (e.at("ph") == "s" && e.at("pid") == from.at("pid") && e.at("tid") == from.at("tid") &&
        std::abs(e.at("ts").get<double>() - from.at("ts").get<double>() - from.at("dur").get<double>()) < 0.0025)
      begun.insert(e.at("id").get<std::int64_t>());
  return std::ranges::any_of(events, [&](const json& e) {
    return e.at("ph") == "f" && e.at("bp") == "e" && begun.contains(e.at("id").get<std::int64_t>()) &&
           e.at("pid") == to.at("pid") && e.at("tid") == to.at("tid") && e.at("ts") == to.at("ts") &&
           (name == nullptr || e.at("name") == name);
  });
}

}  // namespace tessera::test
