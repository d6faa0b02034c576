// SPDX-License-Identifier: Apache-2.0
// oneTBB does not support dependencies between tasks that are submitted one after another. Here each task has a counter
// of its predecessors. The thread that decrements the counter to zero runs the task in the group.
#include <tbb/global_control.h>
#include <tbb/task_arena.h>
#include <tbb/task_group.h>

#include <atomic>
#include <memory>

#include "benchmarks/tasks.h"

namespace tessera::bench {

double run_tbb(const Graph& graph, int threads) {
  static tbb::task_arena arena(threads);
  struct Task {
    std::atomic<int> missing = 0;
    std::vector<int> next;
  };
  return seconds_of([&] {
    arena.execute([&] {
      tbb::task_group group;
      if (graph.data == 0) {
        for (int i = 0; i < static_cast<int>(graph.tasks.size()); ++i) group.run([&graph, i] { graph.work(graph, i); });
        all_submitted();
        group.wait();
        return;
      }
      const auto tasks = std::make_unique<Task[]>(graph.tasks.size());
      std::vector<int> writers(static_cast<std::size_t>(graph.data), -1);
      for (std::size_t i = 0; i < graph.tasks.size(); ++i) {
        const Access& a = graph.tasks[i];
        for (const int d : {a.reads[0], a.reads[1], a.writes}) {
          if (d < 0 || writers[static_cast<std::size_t>(d)] < 0) continue;
          tasks[static_cast<std::size_t>(writers[static_cast<std::size_t>(d)])].next.push_back(static_cast<int>(i));
          tasks[i].missing.fetch_add(1, std::memory_order_relaxed);
        }
        writers[static_cast<std::size_t>(a.writes)] = static_cast<int>(i);
      }
      struct Run {
        const Graph& graph;
        tbb::task_group& group;
        Task* tasks;
        std::size_t i;
        void operator()() const {
          graph.work(graph, static_cast<int>(i));
          for (const int n : tasks[i].next) {
            const auto next = static_cast<std::size_t>(n);
            if (tasks[next].missing.fetch_sub(1, std::memory_order_acq_rel) == 1)
              group.run(Run{graph, group, tasks, next});
          }
        }
      };
      std::vector<std::size_t> ready;
      for (std::size_t i = 0; i < graph.tasks.size(); ++i)
        if (tasks[i].missing.load(std::memory_order_relaxed) == 0) ready.push_back(i);
      for (const std::size_t i : ready) group.run(Run{graph, group, tasks.get(), i});
      all_submitted();
      group.wait();
    });
  });
}

}  // namespace tessera::bench
