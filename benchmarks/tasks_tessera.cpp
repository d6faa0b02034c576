// SPDX-License-Identifier: Apache-2.0
// Nodes of the executor, tasks with explicit dependencies, and tasks of a region, which are ordered by their arrays.
#include "benchmarks/tasks_data.h"
#include "tessera/executor/executor.h"
#include "tessera/task/region.h"

namespace tessera::bench {

// Stores the last task that wrote each datum. In these graphs, all readers of a datum finish before it is written
// again.
double run_executor(const Graph& graph, int) {
  using namespace executor;
  return seconds_of([&] {
    Group group(Executor::instance(), nullptr, 4096);
    std::vector<NodeRef> writers(static_cast<std::size_t>(graph.data));
    for (std::size_t i = 0; i < graph.tasks.size(); ++i) {
      const Access& a = graph.tasks[i];
      Submission node(make_node(group, [&graph, i] { graph.work(graph, static_cast<int>(i)); }));
      for (const int r : a.reads)
        if (r >= 0 && writers[static_cast<std::size_t>(r)]) node->after(*writers[static_cast<std::size_t>(r)]);
      if (a.writes >= 0) {
        NodeRef& last = writers[static_cast<std::size_t>(a.writes)];
        if (last) node->after(*last);
        last = node.submit();
      } else {
        node.submit();
      }
      group.throttle();
    }
    all_submitted();
    group.wait();
  });
}

double run_spawn(const Graph& graph, int) {
  return seconds_of([&] {
    std::vector<Task<void>> writers(static_cast<std::size_t>(graph.data));
    for (std::size_t i = 0; i < graph.tasks.size(); ++i) {
      const Access& a = graph.tasks[i];
      const auto work = [&graph, i] { graph.work(graph, static_cast<int>(i)); };
      Task<void>* before[3];
      int count = 0;
      for (const int d : {a.reads[0], a.reads[1], a.writes})
        if (d >= 0 && writers[static_cast<std::size_t>(d)].valid())
          before[count++] = &writers[static_cast<std::size_t>(d)];
      Task<void> made = count == 0   ? spawn(work)
                        : count == 1 ? spawn(work, *before[0])
                        : count == 2 ? spawn(work, *before[0], *before[1])
                                     : spawn(work, *before[0], *before[1], *before[2]);
      if (a.writes >= 0) writers[static_cast<std::size_t>(a.writes)] = std::move(made);
    }
    all_submitted();
    detail::DeviceTasks::of({}).wait();
  });
}

double run_region(const Graph& graph, int) {
  std::vector<Array>& data = data_of(graph);
  const auto datum = [&](int i) -> Array& { return data[static_cast<std::size_t>(i)]; };
  return seconds_of([&] {
    Region r;
    for (std::size_t i = 0; i < graph.tasks.size(); ++i) {
      const Access& a = graph.tasks[i];
      const auto work = [&graph, i](const auto&...) { graph.work(graph, static_cast<int>(i)); };
      if (a.writes < 0) {
        r.spawn(work);
        continue;
      }
      Array& to = datum(a.writes);
      if (a.reads[1] >= 0)
        r.spawn(work, in(datum(a.reads[0])), in(datum(a.reads[1])), inout(to));
      else if (a.reads[0] >= 0)
        r.spawn(work, in(datum(a.reads[0])), inout(to));
      else if (a.overwrites)
        r.spawn(work, out(to));
      else
        r.spawn(work, inout(to));
    }
    all_submitted();
    r.wait();
  });
}

}  // namespace tessera::bench
