// SPDX-License-Identifier: Apache-2.0
// Graphs of tasks that do nothing, for Tessera and the runtimes beside which it is measured: what a task costs, its
// submission included.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace tessera::bench {

/// A task reads some numbered data and writes one, in the order in which tasks stand here.
struct Access {
  int reads[2] = {-1, -1};
  int writes = -1;  ///< and reads; -1: the task has nothing to do with others
};
struct Graph {
  std::string name;
  int data = 0;
  std::vector<Access> tasks;
};
/// What every task calls: in another file, so that no compiler leaves it out.
void nothing();
Graph independent(int tasks);
Graph chain(int tasks);
/// Cholesky's factorisation of `tiles` x `tiles` tiles, right-looking: one task a tile and step.
Graph cholesky(int tiles);

/// Runs a graph once and gives the seconds from the first submission to the end of the last task.
struct Runtime {
  const char* name;
  double (*run)(const Graph&, int threads);
};
/// Those that were found when this was built.
std::vector<Runtime> runtimes();

inline double seconds_of(auto&& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double run_tbb(const Graph&, int threads);
double run_openmp(const Graph&, int threads);
double run_starpu(const Graph&, int threads);

}  // namespace tessera::bench
