// SPDX-License-Identifier: Apache-2.0
// Defines the graphs and their tasks.
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <random>
#include <thread>

#include "benchmarks/tasks.h"
#include "benchmarks/tasks_data.h"
#include "tessera/device/context.h"
#include "tessera/ops/linear_algebra.h"

namespace tessera::bench {

namespace {

using Clock = std::chrono::steady_clock;
Clock::time_point submitted_at;
std::atomic<bool> gate_open;

struct alignas(64) Spent {
  double seconds = 0;
};
Spent spent[64];
std::atomic<unsigned> spenders = 0;

void nothing(const Graph&, int) {}

void first_waits(const Graph&, int task) {
  while (task == 0 && !gate_open.load(std::memory_order_acquire)) std::this_thread::yield();
}

std::vector<Array> arrays;

void work_on_tiles(const Graph& graph, int task) {
  static thread_local double& mine = spent[spenders.fetch_add(1)].seconds;
  const auto start = Clock::now();
  const Access& a = graph.tasks[static_cast<std::size_t>(task)];
  const auto tile = [](int i) -> Array& { return arrays[static_cast<std::size_t>(i)]; };
  Array& to = tile(a.writes);
  static Array failure = Array::zeros({1}, DType::i32, Device{});
  const auto compute = [&] {
    if (a.reads[0] < 0)
      cholesky_into(to, failure);
    else if (a.reads[1] < 0 && a.overwrites)
      multiply_into(to, tile(a.reads[0]), tile(a.reads[0]).transpose(), {.alpha = -1, .lower = true});
    else if (a.reads[1] < 0)
      solve_triangular_into(tile(a.reads[0]), to, {.side = Side::right, .transposed = true});
    else
      multiply_into(to, tile(a.reads[0]), tile(a.reads[1]).transpose(), {.alpha = -1});
  };
  if (thread_context.queues_of_thread) {
    compute();
  } else {  // uses one queue per thread, like tasks
    static thread_local Queue& queue = *new Queue(Device{});
    const QueueScope scope(queue);
    compute();
  }
  mine += std::chrono::duration<double>(Clock::now() - start).count();
}

double worked() {
  double all = 0;
  for (const Spent& s : spent) all += s.seconds;
  return all;
}

Graph factorisation(int tiles, bool marked) {
  Graph g{"cholesky " + std::to_string(tiles) + " x " + std::to_string(tiles), tiles * tiles, {}, nothing};
  const auto at = [&](int i, int j) { return i * tiles + j; };
  for (int k = 0; k < tiles; ++k) {
    g.tasks.push_back({.writes = at(k, k)});
    for (int i = k + 1; i < tiles; ++i) g.tasks.push_back({{at(k, k), -1}, at(i, k)});
    for (int i = k + 1; i < tiles; ++i) {
      g.tasks.push_back({{at(i, k), -1}, at(i, i), marked});
      for (int j = k + 1; j < i; ++j) g.tasks.push_back({{at(i, k), at(j, k)}, at(i, j)});
    }
  }
  return g;
}

// The tiles before a round, and the result of running all tasks sequentially.
struct Expected {
  const Graph* graph = nullptr;
  std::vector<std::vector<float>> before, after;
};

void fill(const std::vector<std::vector<float>>& from) {
  for (std::size_t i = 0; i < arrays.size(); ++i)
    std::memcpy(arrays[i].host_access().data(), from[i].data(), from[i].size() * sizeof(float));
}

Expected expected_of(const Graph& graph) {
  Expected e{&graph, {}, {}};
  std::mt19937 engine(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  const auto n = static_cast<std::size_t>(graph.tile);
  const float large = static_cast<float>(graph.data);  // tiles x tiles, which is larger than the sum of a row
  for (int i = 0; i < graph.data; ++i) {
    std::vector<float>& tile = e.before.emplace_back(n * n);
    for (float& x : tile) x = uniform(engine);
  }
  const int tiles = static_cast<int>(std::lround(std::sqrt(graph.data)));
  for (int k = 0; k < tiles; ++k)
    for (std::size_t i = 0; i < n; ++i)
      e.before[static_cast<std::size_t>(k * tiles + k)][i * n + i] =
          static_cast<float>(tiles) * static_cast<float>(graph.tile) + large;
  fill(e.before);
  for (int t = 0; t < static_cast<int>(graph.tasks.size()); ++t) graph.work(graph, t);
  for (Array& a : arrays) e.after.push_back(a.to_vector<float>());
  return e;
}

}  // namespace

std::vector<Array>& data_of(const Graph& graph) {
  static const Graph* of = nullptr;
  if (of != &graph) {
    of = &graph;
    arrays.clear();
    const std::int64_t n = graph.tile == 0 ? 1 : graph.tile;
    for (int i = 0; i < graph.data; ++i)
      arrays.push_back(Array::wrap(
          Storage::allocate(Device{}, static_cast<std::size_t>(n * n) * sizeof(float), "datum " + std::to_string(i)),
          DType::f32, graph.tile == 0 ? Shape{1} : Shape{n, n}));
    for (Array& a : arrays) a.fill(0);
  }
  return arrays;
}

Graph independent(int tasks) {
  return {"independent", 0, std::vector<Access>(static_cast<std::size_t>(tasks)), nothing};
}

Graph chain(int tasks) {
  return {"inout of one", 1, std::vector<Access>(static_cast<std::size_t>(tasks), Access{.writes = 0}), nothing};
}

Graph cycle(int tasks, int data) {
  Graph g{"out of " + std::to_string(data), data, {}, nothing};
  for (int i = 0; i < tasks; ++i) g.tasks.push_back({.writes = i % data, .overwrites = true});
  return g;
}

Graph held(int tasks) {
  constexpr int others = 1024;
  Graph g{"submission", others + 1, {}, first_waits};
  g.tasks.push_back({.writes = 0});
  for (int i = 1; i < tasks; ++i) g.tasks.push_back({{0, 1 + i * 7 % others}, 1 + i % others});
  for (Access& a : g.tasks)
    if (a.reads[1] == a.writes) a.reads[1] = 1 + a.writes % others;
  return g;
}

Graph cholesky(int tiles) { return factorisation(tiles, false); }

Graph cholesky_of(int rows, int tile) {
  Graph g = factorisation(rows / tile, true);
  g.name = "cholesky of " + std::to_string(rows) + ", tile " + std::to_string(tile);
  g.work = work_on_tiles, g.tile = tile;
  g.flops = 1.0 * rows * rows * rows / 3;
  return g;
}

void all_submitted() {
  submitted_at = Clock::now();
  gate_open.store(true, std::memory_order_release);
}

Round run_round(const Runtime& runtime, const Graph& graph, int threads) {
  static Expected expected;
  data_of(graph);
  if (graph.tile != 0) {
    if (expected.graph != &graph) expected = expected_of(graph);
    fill(expected.before);
  }
  gate_open = false;
  const double before = worked();
  const auto start = Clock::now();
  Round round;
  round.seconds = runtime.run(graph, threads);
  round.submitting = std::chrono::duration<double>(submitted_at - start).count();
  round.working = worked() - before;
  for (std::size_t i = 0; graph.tile != 0 && i < arrays.size(); ++i)
    if (std::memcmp(arrays[i].host_access().data(), expected.after[i].data(),
                    expected.after[i].size() * sizeof(float)) != 0)
      round.right = 0;
  return round;
}

}  // namespace tessera::bench
