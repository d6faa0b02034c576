// SPDX-License-Identifier: Apache-2.0
// The data of a graph as Tessera arrays.
#pragma once

#include <vector>

#include "benchmarks/tasks.h"
#include "tessera/array/array.h"

namespace tessera::bench {

/// Returns one array per datum. The arrays are created in the first round of the graph.
std::vector<Array>& data_of(const Graph& graph);

}  // namespace tessera::bench
