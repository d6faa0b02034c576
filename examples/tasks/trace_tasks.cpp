// SPDX-License-Identifier: Apache-2.0
// How do I see what my tasks do?
// trace("FILE.json") records a timeline for ui.perfetto.dev, dot() draws the graph, and summary() returns times per
// task.
#include <tessera/array/array.h>
#include <tessera/task/region.h>
#include <tessera/task/trace.h>

#include <cstdio>

using namespace tessera;

int main() {
  Trace recording;  // does not write a file; `auto recording = trace("run.json")` does
  Array grid = Array::zeros({1000}), norm = Array::zeros({1});
  Region region;
  for (int i = 0; i < 3; ++i) {
    region.spawn(
        {.name = "step"}, [](Array& g) { g += 1; }, inout(grid));
    region.spawn(
        {.name = "norm"}, [](const Array& g, Array& n) { n += sum(g); }, in(grid), inout(norm));
  }
  region.wait();

  // The names with the largest total time are listed first.
  for (const TaskTimes& t : summary().times)
    std::printf("%s: %llu tasks, mean %.1f us\n", t.name.c_str(), static_cast<unsigned long long>(t.count),
                t.mean * 1e6);
  const std::string graph = dot(region);  // for Graphviz: dot -Tsvg
  std::printf("%s\n", graph.substr(0, graph.find('\n')).c_str());
  return norm.item<float>() == 6000 && graph.starts_with("digraph") ? 0 : 1;
}

// Output:
// ...: 3 tasks, mean ... us
// ...: 3 tasks, mean ... us
// digraph region {
