// SPDX-License-Identifier: Apache-2.0
// Task graphs for Tessera and the runtimes that it is compared with: graphs of empty tasks, which measure the cost of a
// task, and tiled linear algebra, which uses our kernels in every runtime.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace tessera::bench {

/// A task reads some numbered data and writes one datum; tasks are submitted in this order.
struct Access {
  int reads[2] = {-1, -1};
  int writes = -1;          ///< -1: the task is independent
  bool overwrites = false;  ///< else it also reads the datum that it writes
};
struct Graph {
  std::string name;
  int data = 0;
  std::vector<Access> tasks;
  void (*work)(const Graph& graph, int task);  ///< defined in another file, so that it is not optimised away
  int tile = 0;                                ///< the data are square matrices with this many rows; 0: single elements
  double flops = 0;
};
Graph independent(int tasks);
Graph chain(int tasks);
/// Tasks that overwrite `data` data in turn.
Graph cycle(int tasks, int data);
/// Tasks with three accesses. The first finishes only after all are submitted, and the others depend on it. At most as
/// many as our task windows allow.
Graph held(int tasks);
/// Right-looking Cholesky factorisation of `tiles` x `tiles` tiles with empty tasks: one per tile and step.
Graph cholesky(int tiles);
/// The same factorisation of a `rows` x `rows` matrix in f32.
Graph cholesky_of(int rows, int tile);

/// Each runtime calls this after it has submitted the last task.
void all_submitted();

/// Runs a graph once; returns the seconds from the first submission to the end of the last task.
struct Runtime {
  const char* name;
  double (*run)(const Graph&, int threads);
};
/// The runtimes that were found at build time.
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
  double submitting = 0;  ///< part of these until the last task was submitted
  double working = 0;     ///< seconds that all threads spent in task functions, if the graph has any
  double right = 1;       ///< 1 if the result is bit-identical to running the tasks sequentially
};
Round run_round(const Runtime& runtime, const Graph& graph, int threads);

/// Runs the rows of pairs (tasks_pairs.cpp) whose names contain `only`. Returns their number; negative if a result is
/// wrong.
int rows_of_pairs(const std::string& only, int rounds);

}  // namespace tessera::bench
