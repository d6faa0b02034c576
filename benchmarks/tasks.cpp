// SPDX-License-Identifier: Apache-2.0
// Measures the overhead of a task for nodes of the executor, tasks, regions, and the runtimes that were found at build
// time: Taskflow, oneTBB (with hand-written dependency counters), OpenMP tasks with `depend`, and StarPU with data
// handles. Runs graphs of empty tasks, then a tiled Cholesky factorisation with Tessera's kernels in every runtime, and
// then pairs (tasks_pairs.cpp).
//
// Each runtime has its own process, which sleeps while others run. Runtimes therefore do not disturb each other, and
// other load affects all of them. The time is the median over the rounds. The ratio is the median of the ratios to the
// first runtime in the same round. Each runtime has TESSERA_THREADS threads (default 2), including the submitting
// thread if it also runs tasks.
//
// Usage: tasks [PART OF A ROW'S NAME] [ROUNDS] [RUNTIME...]. The first runtime is the baseline. The exit status is 1
// for a wrong result.
#include "benchmarks/tasks.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

namespace tessera::bench {

std::vector<Runtime> runtimes() {
  return {
      {"region", run_region},     {"executor", run_executor}, {"spawn", run_spawn},
#ifdef TESSERA_BENCH_TASKFLOW
      {"Taskflow", run_taskflow},
#endif
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

namespace {

std::vector<Graph> graphs() {
  return {independent(200'000), chain(200'000),        cycle(200'000, 4096),   cholesky(80),
          held(4'000),          cholesky_of(4096, 64), cholesky_of(4096, 128), cholesky_of(4096, 256)};
}

// A process that runs a round on request.
class Served {
 public:
  Served(const Runtime& runtime, const Graph& graph, int threads) {
    int orders[2], answers[2];
    std::fflush(stdout);  // otherwise the child would also write the buffered text
    if (::pipe(orders) != 0 || ::pipe(answers) != 0) std::abort();
    process_ = ::fork();
    if (process_ == 0) {
      ::close(orders[1]), ::close(answers[0]);
      serve(runtime, graph, threads, orders[0], answers[1]);
    }
    ::close(orders[0]), ::close(answers[1]);
    to_ = orders[1], from_ = answers[0];
  }
  Served(Served&& other) noexcept : process_(std::exchange(other.process_, -1)), to_(other.to_), from_(other.from_) {}
  ~Served() {
    if (process_ <= 0) return;
    const char stop = 0;  // other children also have the other end of the pipe, so closing it is not enough
    if (::write(to_, &stop, 1) != 1) ::kill(process_, SIGKILL);
    ::close(to_), ::close(from_);
    ::waitpid(process_, nullptr, 0);
  }
  Round round() {
    char go = 1;
    Round answer;
    if (::write(to_, &go, 1) != 1 || ::read(from_, &answer, sizeof answer) != sizeof answer) {
      std::fprintf(stderr, "tasks: a runtime's process has ended\n");
      std::exit(1);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // waits until its threads sleep
    return answer;
  }

 private:
  // No runtime may be used before the fork.
  [[noreturn]] static void serve(const Runtime& runtime, const Graph& graph, int threads, int from, int to) {
    // In the threads of other runtimes, a kernel runs only on the calling thread.
    if (std::strncmp(runtime.name, "region", 6) != 0 && graph.tile != 0 && runtime.run != run_executor &&
        runtime.run != run_spawn)
      ::setenv("TESSERA_THREADS", "1", 1);
    char go;
    while (::read(from, &go, 1) == 1 && go != 0) {
      const Round round = run_round(runtime, graph, threads);
      if (::write(to, &round, sizeof round) != sizeof round) break;
    }
    std::exit(0);
  }
  pid_t process_;
  int to_ = -1, from_ = -1;
};

double at(const std::vector<double>& sorted, double q) {
  return sorted[static_cast<std::size_t>(q * static_cast<double>(sorted.size() - 1))];
}
std::vector<double> sorted(std::vector<double> v) {
  std::ranges::sort(v);
  return v;
}

bool rows_of(const Graph& graph, const std::vector<Runtime>& all, int threads, int rounds) {
  std::vector<Served> served;
  for (const Runtime& r : all) served.emplace_back(r, graph, threads);
  std::vector<std::vector<Round>> times(all.size());
  bool right = true;
  for (int round = -1; round < rounds; ++round)  // the first round is the warm-up
    for (std::size_t r = 0; r < all.size(); ++r) {
      const Round took = served[r].round();
      right = right && took.right == 1;
      if (round >= 0) times[r].push_back(took);
    }
  const double count = static_cast<double>(graph.tasks.size());
  const bool held = graph.name == "submission";
  for (std::size_t r = 0; r < all.size(); ++r) {
    std::vector<double> seconds, ratios, efficiency, submitting;
    for (std::size_t i = 0; i < times[r].size(); ++i) {
      const auto of = [&](const Round& x) { return held ? x.submitting : x.seconds; };
      seconds.push_back(of(times[r][i]));
      ratios.push_back(of(times[r][i]) / of(times[0][i]));
      efficiency.push_back(times[r][i].working / threads / times[r][i].seconds);
      submitting.push_back(times[r][i].submitting);
    }
    seconds = sorted(seconds), ratios = sorted(ratios), efficiency = sorted(efficiency);
    std::printf("%-30s %-9s %9.2f %9.0f %9.0f %7.3f (%.3f to %.3f)", graph.name.c_str(), all[r].name,
                count / at(seconds, 0.5) * 1e-6, at(seconds, 0.5) / count * 1e9, seconds.front() / count * 1e9,
                at(ratios, 0.5), at(ratios, 0.25), at(ratios, 0.75));
    if (graph.tile != 0)
      std::printf("  %6.1f GFLOP/s, at work %.3f (%.3f to %.3f)", graph.flops / at(seconds, 0.5) * 1e-9,
                  at(efficiency, 0.5), at(efficiency, 0.25), at(efficiency, 0.75));
    std::printf("%s\n", right ? "" : "  WRONG RESULT");
    std::fflush(stdout);
  }
  return right;
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) {
  using namespace tessera::bench;
  ::setenv("TESSERA_THREADS", "2", 0);
  const int threads = std::atoi(std::getenv("TESSERA_THREADS"));
  const std::string only = argc > 1 ? argv[1] : "";
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 15;
  if (threads < 1 || rounds < 1) {
    std::fprintf(stderr, "tasks: TESSERA_THREADS and the number of rounds must be positive integers\n");
    return 2;
  }
  std::vector<Runtime> chosen;
  for (int i = 3; i < argc; ++i)
    for (const Runtime& r : runtimes())
      if (std::string(argv[i]) == r.name) chosen.push_back(r);
  if (argc <= 3) chosen = runtimes();
  if (chosen.empty()) {
    std::fprintf(stderr, "tasks: none of these runtimes is available\n");
    return 2;
  }
  bool any = false, right = true;
  for (const Graph& graph : graphs()) {
    if (graph.name.find(only) == std::string::npos) continue;
    if (!any)
      std::printf("%-30s %-9s %9s %9s %9s   %s\n", "graph", "runtime", "M tasks/s", "ns a task", "best ns",
                  "time over the first's (quartiles)");
    any = true;
    right = rows_of(graph, chosen, threads, rounds) && right;
  }
  const int pairs = rows_of_pairs(only, rounds);
  if (!any && pairs == 0) std::fprintf(stderr, "tasks: no row's name contains \"%s\"\n", only.c_str());
  return !any && pairs == 0 ? 2 : right && pairs >= 0 ? 0 : 1;
}
