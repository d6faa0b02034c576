// SPDX-License-Identifier: Apache-2.0
// StarPU as packaged by Debian, with its default scheduler. Data handles determine the order. The submitting thread is
// not one of the workers and sleeps while it waits. Workers are paused between rounds, because they would poll for
// work.
#include <starpu.h>

#include <cstdlib>
#include <cstring>

#include "benchmarks/tasks.h"

namespace tessera::bench {

namespace {
const Graph* running;
void call(void**, void* task) { running->work(*running, static_cast<int>(reinterpret_cast<std::intptr_t>(task))); }
starpu_codelet codelet(int buffers, starpu_data_access_mode written) {
  starpu_codelet c;
  std::memset(&c, 0, sizeof c);
  c.cpu_funcs[0] = call;
  c.nbuffers = buffers;
  for (int i = 0; i < buffers; ++i) c.modes[i] = i + 1 == buffers ? written : STARPU_R;
  return c;
}
bool start(int threads) {
  ::setenv("STARPU_SILENT", "1", 0);
  starpu_conf conf;
  starpu_conf_init(&conf);
  conf.ncpus = threads;
  conf.ncuda = conf.nopencl = 0;
  if (starpu_init(&conf) != 0) return false;
  starpu_pause();
  std::atexit([] { starpu_resume(), starpu_shutdown(); });
  return true;
}
}  // namespace

double run_starpu(const Graph& graph, int threads) {
  static const bool there = start(threads);
  if (!there) return 0;
  static starpu_codelet codelets[] = {codelet(0, STARPU_RW), codelet(1, STARPU_RW), codelet(2, STARPU_RW),
                                      codelet(3, STARPU_RW)};
  static starpu_codelet overwriting = codelet(1, STARPU_W);
  running = &graph;
  std::vector<char> data(static_cast<std::size_t>(graph.data));
  std::vector<starpu_data_handle_t> handles(data.size());
  for (std::size_t i = 0; i < data.size(); ++i)
    starpu_variable_data_register(&handles[i], STARPU_MAIN_RAM, reinterpret_cast<uintptr_t>(&data[i]), 1);
  starpu_resume();
  const double seconds = seconds_of([&] {
    for (std::size_t i = 0; i < graph.tasks.size(); ++i) {
      const Access& a = graph.tasks[i];
      starpu_task* const task = starpu_task_create();
      int used = 0;
      for (const int d : {a.reads[0], a.reads[1], a.writes})
        if (d >= 0) task->handles[used++] = handles[static_cast<std::size_t>(d)];
      task->cl = used == 1 && a.overwrites ? &overwriting : &codelets[used];
      task->cl_arg = reinterpret_cast<void*>(i);
      if (starpu_task_submit(task) != 0) std::abort();
    }
    all_submitted();
    starpu_task_wait_for_all();
  });
  starpu_pause();
  for (const starpu_data_handle_t h : handles) starpu_data_unregister_no_coherency(h);
  return seconds;
}

}  // namespace tessera::bench
