// SPDX-License-Identifier: Apache-2.0
#include "tessera/task/compile_in_background.h"

#include <exception>
#include <mutex>
#include <set>
#include <tuple>

#include "tessera/base/os/fork.h"
#include "tessera/device/launch/kernel.h"
#include "tessera/ir/node.h"
#include "tessera/task/task_node.h"

namespace tessera::detail {

namespace {
struct Begun {
  std::mutex lock;
  std::set<std::tuple<std::uint64_t, std::uint64_t, Device>> all;
};
constinit os::PerProcess<Begun> begun;
}  // namespace

void compile_in_background(const Kernel& kernel, Device device) {
  if (is_built_in(device.backend) || tasks_are_serial()) return;
  {
    Begun& b = *begun;
    const std::lock_guard hold(b.lock);
    const ir::Hash hash = kernel.hash();
    if (!b.all.emplace(hash.high, hash.low, device).second) return;
  }
  executor::Submission compiles(executor::make_node(
      DeviceTasks::of(Device{}),
      [kernel, device] {
        try {
          kernel.prepare(device);
        } catch (const std::exception&) {  // reported by the task that launches the kernel
        }
      },
      "compile"));
  compiles->set_priority(executor::Node::most_priority);
  compiles.submit();
}

}  // namespace tessera::detail
