// SPDX-License-Identifier: Apache-2.0
// Task graphs for Tessera and for the task runtimes that it is compared with. Graphs of empty tasks measure the
// overhead of a task. Tiled linear algebra uses Tessera's kernels in every runtime.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace tessera::bench {

/// The data that a task accesses. A task reads up to two data and writes one. Data are identified by number. Tasks are
/// submitted in order.
struct Access {
  int reads[2] = {-1, -1};
  int writes = -1;          ///< -1 means that the task is independent
  bool overwrites = false;  ///< if false, the task also reads the datum that it writes
};
struct Graph {
  std::string name;
  int data = 0;
  std::vector<Access> tasks;
  void (*work)(const Graph& graph, int task);  ///< defined in another file, so that it is not optimised away
  int tile = 0;  ///< the number of rows of the square matrices that are the data; 0 for single elements
  double flops = 0;
};
Graph independent(int tasks);
Graph chain(int tasks);
/// Each task overwrites one of `data` data. The data are used in round-robin order.
Graph cycle(int tasks, int data);
/// Tasks with three accesses. The first task finishes only after all have been submitted, and the others depend on it.
/// The number of tasks is limited by Tessera's task window.
Graph held(int tasks);
/// Right-looking Cholesky factorisation of `tiles` x `tiles` tiles, with one empty task per tile and step.
Graph cholesky(int tiles);
/// The same factorisation of a `rows` x `rows` matrix in f32.
Graph cholesky_of(int rows, int tile);

/// Each runtime calls this after it has submitted the last task.
void all_submitted();

/// Runs a graph once and returns the seconds from the first submission to the end of the last task.
struct Runtime {
  const char* name;
  double (*run)(const Graph&, int threads);
};
/// Returns the runtimes that were found at build time.
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

/// The result of one round of a graph.
struct Round {
  double seconds = 0;
  double submitting = 0;  ///< the seconds until the last task was submitted
  double working = 0;     ///< the seconds that all threads spent in task functions, if the graph has any
  double right = 1;       ///< 1 if the result is bit-identical to running the tasks sequentially
};
Round run_round(const Runtime& runtime, const Graph& graph, int threads);

/// Runs the pairs in tasks_pairs.cpp with `only` in their names. Returns their number, or a negative number if a result
/// is wrong.
int rows_of_pairs(const std::string& only, int rounds);

}  // namespace tessera::bench
