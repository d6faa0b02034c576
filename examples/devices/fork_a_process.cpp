// SPDX-License-Identifier: Apache-2.0
// How do I use Tessera in a process that forks?
// A child cannot use devices that its parent has opened. Fork before the first use, or use another device in the child.
#include <sys/wait.h>
#include <tessera/array/array.h>
#include <unistd.h>

#include <cstdio>
#include <functional>

using namespace tessera;

/// Runs a function in a child process and returns the exit status of the child.
int in_child(const std::function<bool()>& work) {
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child == 0) {
    const bool good = work();
    std::fflush(stdout);
    ::_exit(good ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

bool computes() {
  try {
    const Device cpu{Backend::cpu, 0};
    std::printf("sum %.0f\n", static_cast<double>(sum(Array::arange(100, 0, 1, DType::f32, cpu)).item<float>()));
    return true;
  } catch (const DeviceError& e) {
    std::printf("%s\n", e.what());
    return false;
  }
}

int main() {
  const int before = in_child(computes);  // the parent has not opened the device yet
  const bool parent = computes();
  const int after = in_child(computes);  // throws DeviceError in the child; the parent is not affected
  return before == 0 && parent && after == 1 && computes() ? 0 : 1;
}

// Output:
// sum 4950
// sum 4950
// ...
// sum 4950
