// SPDX-License-Identifier: Apache-2.0
// Loads two shared libraries that use Tessera, calls both at the same time, unloads them, and repeats this.
//
// Usage: plugins LIBRARY LIBRARY
#include <dlfcn.h>

#include <cstdio>
#include <thread>

int main(int count, char** arguments) {
  if (count != 3) return 2;
  for (int round = 0; round < 3; ++round) {
    void* libraries[2];
    float results[2] = {};
    std::thread threads[2];
    for (int i = 0; i < 2; ++i) {
      libraries[i] = dlopen(arguments[i + 1], RTLD_NOW | RTLD_LOCAL);
      if (libraries[i] == nullptr) return std::fprintf(stderr, "%s\n", dlerror()), 1;
      auto* const run = reinterpret_cast<float (*)(float)>(dlsym(libraries[i], "tessera_plugin_run"));
      if (run == nullptr) return std::fprintf(stderr, "%s\n", dlerror()), 1;
      threads[i] = std::thread([run, i, &results] { results[i] = run(static_cast<float>(i + 1)); });
    }
    for (std::thread& t : threads) t.join();
    for (void* library : libraries) dlclose(library);
    if (results[0] != 2 * (1 + 1) || results[1] != 2 * (2 + 2))
      return std::fprintf(stderr, "round %d: %g and %g instead of 4 and 8\n", round, static_cast<double>(results[0]),
                          static_cast<double>(results[1])),
             1;
  }
  std::puts("both plugins are right");
}
