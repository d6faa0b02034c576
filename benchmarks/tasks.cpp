// SPDX-License-Identifier: Apache-2.0
// What a task costs that does nothing: independent ones, a chain, the graph of Cholesky's factorisation; by nodes of
// the executor, by tasks, and by the runtimes that were found when this was built: oneTBB (whose graphs are counters by
// hand), OpenMP's tasks with `depend`, StarPU with data handles. All in one process, round after round in turn, so that
// what else the machine does falls on all of them; the figure is the median round, and the ratio the median of the
// rounds' ratios to the executor's. Each has TESSERA_THREADS threads (by default 2), the one that submits included
// where the runtime lets it work. Usage: tasks [PART OF A GRAPH'S NAME] [ROUNDS] [RUNTIME...]; the first of them is
// what others are compared with
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "benchmarks/tasks.h"
#include "tessera/executor/executor.h"
#include "tessera/task/task.h"

namespace tessera::bench {

void nothing() {}

Graph independent(int tasks) { return {"independent", 0, std::vector<Access>(static_cast<std::size_t>(tasks))}; }

Graph chain(int tasks) {
  return {"chain", 1, std::vector<Access>(static_cast<std::size_t>(tasks), Access{.writes = 0})};
}

Graph cholesky(int tiles) {
  Graph g{"cholesky " + std::to_string(tiles) + " x " + std::to_string(tiles), tiles * tiles, {}};
  const auto at = [&](int i, int j) { return i * tiles + j; };
  for (int k = 0; k < tiles; ++k) {
    g.tasks.push_back({.writes = at(k, k)});
    for (int i = k + 1; i < tiles; ++i) g.tasks.push_back({{at(k, k), -1}, at(i, k)});
    for (int i = k + 1; i < tiles; ++i) {
      g.tasks.push_back({{at(i, k), -1}, at(i, i)});
      for (int j = k + 1; j < i; ++j) g.tasks.push_back({{at(i, k), at(j, k)}, at(i, j)});
    }
  }
  return g;
}

namespace {

// The last task that wrote each number; what reads a number in these graphs is done before that is written again.
double run_executor(const Graph& graph, int) {
  using namespace executor;
  return seconds_of([&] {
    Group group(Executor::instance(), nullptr, 4096);
    std::vector<NodeRef> writers(static_cast<std::size_t>(graph.data));
    for (const Access& a : graph.tasks) {
      Submission node(make_node(group, nothing));
      for (const int r : a.reads)
        if (r >= 0) node->after(*writers[static_cast<std::size_t>(r)]);
      if (a.writes >= 0) {
        NodeRef& last = writers[static_cast<std::size_t>(a.writes)];
        if (last) node->after(*last);
        last = node.submit();
      } else {
        node.submit();
      }
      group.admit();
    }
    group.wait();
  });
}

double run_tasks(const Graph& graph, int) {
  return seconds_of([&] {
    std::vector<Task<void>> writers(static_cast<std::size_t>(graph.data));
    const auto writer = [&](int i) -> Task<void>& { return writers[static_cast<std::size_t>(i)]; };
    for (const Access& a : graph.tasks) {
      if (a.writes < 0) {
        spawn(nothing);
        continue;
      }
      Task<void>& last = writer(a.writes);
      const bool first = !last.valid();
      if (a.reads[1] >= 0)
        last = first ? spawn(nothing, writer(a.reads[0]), writer(a.reads[1]))
                     : spawn(nothing, writer(a.reads[0]), writer(a.reads[1]), last);
      else if (a.reads[0] >= 0)
        last = first ? spawn(nothing, writer(a.reads[0])) : spawn(nothing, writer(a.reads[0]), last);
      else
        last = first ? spawn(nothing) : spawn(nothing, last);
    }
    detail::DeviceTasks::of({}).wait();
  });
}

}  // namespace

std::vector<Runtime> runtimes() {
  return {
      {"executor", run_executor}, {"spawn", run_tasks},
#ifdef TESSERA_BENCH_TBB
      {"oneTBB", run_tbb},
#endif
#ifdef TESSERA_BENCH_OPENMP
      {"OpenMP", run_openmp},
#endif
#ifdef TESSERA_BENCH_STARPU
      {"StarPU", run_starpu},
#endif
  };
}

}  // namespace tessera::bench

int main(int argc, char** argv) {
  using namespace tessera::bench;
  ::setenv("TESSERA_THREADS", "2", 0);
  ::setenv("OMP_WAIT_POLICY", "passive", 0);  // threads of a runtime whose turn is over leave the cores
  const int threads = std::atoi(std::getenv("TESSERA_THREADS"));
  const std::string only = argc > 1 ? argv[1] : "";
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 15;
  if (threads < 1 || rounds < 1) {
    std::fprintf(stderr, "tasks: TESSERA_THREADS and the number of rounds are whole numbers from 1\n");
    return 2;
  }
  std::printf("%-18s %-10s %12s %12s %10s   %s\n", "graph", "runtime", "M tasks/s", "ns a task", "best ns",
              "time over the first's (quartiles)");
  bool any = false;
  for (const Graph& graph : {independent(200'000), chain(200'000), cholesky(80)}) {
    if (graph.name.find(only) == std::string::npos) continue;
    any = true;
    std::vector<Runtime> all;
    for (const Runtime& r : runtimes())
      if (argc <= 3 || std::find(argv + 3, argv + argc, std::string(r.name)) != argv + argc) all.push_back(r);
    if (all.empty()) {
      std::fprintf(stderr, "tasks: none of these runtimes is here\n");
      return 2;
    }
    std::vector<std::vector<double>> times(all.size());
    for (int round = -1; round < rounds; ++round)  // one to warm up
      for (std::size_t r = 0; r < all.size(); ++r) {
        const double seconds = all[r].run(graph, threads);
        if (round >= 0) times[r].push_back(seconds);
      }
    const double count = static_cast<double>(graph.tasks.size());
    for (std::size_t r = 0; r < all.size(); ++r) {
      std::vector<double> ratios, sorted = times[r];
      for (std::size_t i = 0; i < times[r].size(); ++i) ratios.push_back(times[r][i] / times[0][i]);
      std::ranges::sort(ratios);
      std::ranges::sort(sorted);
      const auto at = [](const std::vector<double>& v, double q) {
        return v[static_cast<std::size_t>(q * static_cast<double>(v.size() - 1))];
      };
      std::printf("%-18s %-10s %12.2f %12.0f %10.0f   %.2f (%.2f to %.2f)\n", graph.name.c_str(), all[r].name,
                  count / at(sorted, 0.5) * 1e-6, at(sorted, 0.5) / count * 1e9, sorted.front() / count * 1e9,
                  at(ratios, 0.5), at(ratios, 0.25), at(ratios, 0.75));
      std::fflush(stdout);
    }
  }
  if (!any) std::fprintf(stderr, "tasks: no graph has \"%s\" in its name\n", only.c_str());
  return any ? 0 : 2;
}
