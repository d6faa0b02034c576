// SPDX-License-Identifier: Apache-2.0
// Formats the tasks of a region as a Graphviz graph.
#include <fmt/format.h>

#include <algorithm>

#include "tessera/task/timeline.h"
#include "tessera/task/trace.h"
#include "tessera/task/trace_hooks.h"

namespace tessera {

namespace {

using detail::tracing::State;
using detail::tracing::TracedTask;

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return out;
}

const char* colour_of(State state) {
  switch (state) {
    case State::not_begun: return "white";
    case State::running: return "lightblue";
    case State::ended: return "palegreen";
    case State::failed: return "tomato";
    case State::skipped: return "lightsalmon";
    case State::cancelled: break;
  }
  return "lightgrey";
}

std::string label_of(const TracedTask& t) {
  const std::string what = t.message ? fmt::format("{} bytes", t.message->bytes) : to_string(t.device);
  std::string label = fmt::format("{}\\n{}, {}", escaped(t.name), what, to_string(t.state));
  if (t.begun != 0 && t.ended != 0) label += fmt::format(", {:.3f} ms", double(t.worked) * 1e-6);
  return label;
}

}  // namespace

std::string dot(const Region& region) {
  const detail::tracing::Timeline all = detail::tracing::timeline_of(detail::tracing::recorded_events("dot"));
  // An earlier region may have had the same address. Its tasks are excluded by their creation time, if tracing was
  // active when this region was created.
  const auto group =
      reinterpret_cast<std::uintptr_t>(static_cast<const executor::Group*>(&const_cast<Region&>(region).group()));
  const auto inside = [&](const TracedTask& t) { return t.group == group && t.made >= region.trace_begin_; };
  std::string nodes, edges;
  std::vector<std::uint64_t> outside;
  for (const std::uint64_t number : all.order) {
    const TracedTask& t = all.tasks.at(number);
    if (!inside(t)) continue;
    nodes += fmt::format("  t{} [label=\"{}\", fillcolor={}];\n", number, label_of(t), colour_of(t.state));
    std::vector<std::uint64_t> told;
    for (const TracedTask::Before& b : t.after) {
      const auto before = all.tasks.find(b.task);
      if (before == all.tasks.end() || std::ranges::find(told, b.task) != told.end()) continue;
      told.push_back(b.task);
      // If there are both a data dependency and an ordering-only dependency, the data dependency is drawn.
      const bool order_only = std::ranges::none_of(
          t.after, [&](const TracedTask::Before& other) { return other.task == b.task && !other.order_only; });
      edges += fmt::format("  t{} -> t{}{};\n", b.task, number, order_only ? " [style=dotted]" : "");
      if (!inside(before->second) && std::ranges::find(outside, b.task) == outside.end()) outside.push_back(b.task);
    }
  }
  for (const std::uint64_t number : outside) {
    const TracedTask& t = all.tasks.at(number);
    nodes += fmt::format("  t{} [label=\"{}\", style=\"rounded,dashed\"];\n", number, label_of(t));
  }
  return "digraph region {\n  node [shape=box, style=\"rounded,filled\", fontname=\"sans-serif\"];\n" + nodes + edges +
         "}\n";
}

}  // namespace tessera
