// SPDX-License-Identifier: Apache-2.0
// Graphs of tasks for Tessera and the runtimes beside which it is measured: of tasks that do nothing, so that what is
// left is what a task costs, and of tiles of linear algebra, whose kernels are ours whoever runs them.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace tessera::bench {

/// A task reads some numbered data and writes one, in the order in which tasks stand here.
struct Access {
  int reads[2] = {-1, -1};
  int writes = -1;          ///< -1: the task has nothing to do with others
  bool overwrites = false;  ///< else it reads what it writes, too
};
struct Graph {
  std::string name;
  int data = 0;
  std::vector<Access> tasks;
  void (*work)(const Graph& graph, int task);  ///< of another file, so that no compiler leaves it out
  int tile = 0;                                ///< the data are matrices of so many rows; 0: of one element
  double flops = 0;
};
Graph independent(int tasks);
Graph chain(int tasks);
/// Tasks that overwrite `data` data in turn.
Graph cycle(int tasks, int data);
/// Tasks with three accesses; the first ends when all are submitted, and the others come after it. At most as many as
/// our windows hold.
Graph held(int tasks);
/// Cholesky's factorisation of `tiles` x `tiles` tiles, right-looking: one task a tile and step, which do nothing.
Graph cholesky(int tiles);
/// The same of a matrix of `rows` in f32.
Graph cholesky_of(int rows, int tile);

/// To be called by who runs a graph when the last task is submitted.
void all_submitted();

/// Runs a graph once: seconds from the first submission to the end of the last task.
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

double run_executor(const Graph&, int threads);
double run_spawn(const Graph&, int threads);
double run_region(const Graph&, int threads);
double run_taskflow(const Graph&, int threads);
double run_tbb(const Graph&, int threads);
double run_openmp(const Graph&, int threads);
double run_starpu(const Graph&, int threads);

/// What a round of a graph came to.
struct Round {
  double seconds = 0;
  double submitting = 0;  ///< of them, until the last task was submitted
  double working = 0;     ///< seconds of all threads in tasks' functions, of graphs that have such
  double right = 1;       ///< the result is, bit for bit, that of the tasks run one after the other
};
Round run_round(const Runtime& runtime, const Graph& graph, int threads);

/// Rows of pairs (tasks_pairs.cpp): those with `only` in their names. How many they were; negative if a result is
/// wrong.
int rows_of_pairs(const std::string& only, int rounds);

}  // namespace tessera::bench
