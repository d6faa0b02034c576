// SPDX-License-Identifier: Apache-2.0
#include "tessera/c/tasks.h"

namespace tessera::named {

Task<Object> spawn_object(Region* region, const TaskOptions& options, TaskBody body, std::vector<Accessed> arrays,
                          std::vector<Task<Object>> tasks) {
  if (region != nullptr) return region->spawn(options, std::move(body), std::move(arrays), std::move(tasks));
  return spawn(options, std::move(body), std::move(arrays), std::move(tasks));
}

}  // namespace tessera::named
