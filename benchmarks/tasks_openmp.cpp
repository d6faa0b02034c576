// SPDX-License-Identifier: Apache-2.0
// OpenMP tasks with `depend`, in the runtime of the compiler. The submitting thread also runs tasks.
#include <omp.h>

#include "benchmarks/tasks.h"

namespace tessera::bench {

double run_openmp(const Graph& graph, int threads) {
  std::vector<char> data(static_cast<std::size_t>(graph.data) + 1);
  char* const d = data.data();
  return seconds_of([&] {
#pragma omp parallel num_threads(threads)
#pragma omp single
    {
      for (int i = 0; i < static_cast<int>(graph.tasks.size()); ++i) {
        const Access& a = graph.tasks[static_cast<std::size_t>(i)];
        [[maybe_unused]] const int w = a.writes, r = a.reads[0], s = a.reads[1];
        if (w < 0) {
#pragma omp task
          graph.work(graph, i);
        } else if (r < 0) {
#pragma omp task depend(inout : d[w])
          graph.work(graph, i);
        } else if (s < 0) {
#pragma omp task depend(in : d[r]) depend(inout : d[w])
          graph.work(graph, i);
        } else {
#pragma omp task depend(in : d[r], d[s]) depend(inout : d[w])
          graph.work(graph, i);
        }
      }
      all_submitted();
    }
  });
}

}  // namespace tessera::bench
