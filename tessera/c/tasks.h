// SPDX-License-Identifier: Apache-2.0
// Tasks whose functions and results have no C++ types, for the Python module. The nodes of tasks are created here,
// because a module that is compiled with hidden symbols has its own copy of what identifies them.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "tessera/task/region.h"

namespace tessera::named {

/// A result of a task, whose type only the creator knows.
using Object = std::shared_ptr<const void>;
/// Called with the arrays, and with the results of the tasks, that were passed to spawn_object().
using TaskBody = std::function<Object(const std::vector<Array>&, const std::vector<Object>&)>;

/// Creates a task of a region, or outside of regions if `region` is null, as Region::spawn and spawn do.
Task<Object> spawn_object(Region* region, const TaskOptions& options, TaskBody body, std::vector<Accessed> arrays,
                          std::vector<Task<Object>> tasks);

}  // namespace tessera::named
