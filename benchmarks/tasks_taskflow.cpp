// SPDX-License-Identifier: Apache-2.0
// Taskflow: a graph with explicit edges, which starts when it is complete. Taskflow has its own worker threads. The
// thread that built the graph sleeps.
#include <taskflow/taskflow.hpp>

#include "benchmarks/tasks.h"

namespace tessera::bench {

double run_taskflow(const Graph& graph, int threads) {
  static tf::Executor executor(static_cast<std::size_t>(threads));
  return seconds_of([&] {
    tf::Taskflow flow;
    std::vector<tf::Task> writers(static_cast<std::size_t>(graph.data));
    for (int i = 0; i < static_cast<int>(graph.tasks.size()); ++i) {
      const Access& a = graph.tasks[static_cast<std::size_t>(i)];
      tf::Task task = flow.emplace([&graph, i] { graph.work(graph, i); });
      for (const int d : {a.reads[0], a.reads[1], a.writes})
        if (d >= 0 && !writers[static_cast<std::size_t>(d)].empty()) writers[static_cast<std::size_t>(d)].precede(task);
      if (a.writes >= 0) writers[static_cast<std::size_t>(a.writes)] = task;
    }
    auto done = executor.run(flow);
    all_submitted();
    done.wait();
  });
}

}  // namespace tessera::bench
