// SPDX-License-Identifier: Apache-2.0
// The data of a graph as Tessera arrays.
#pragma once

#include <vector>

#include "benchmarks/tasks.h"
#include "tessera/array/array.h"

namespace tessera::bench {

/// One array per datum, created at the graph's first round.
std::vector<Array>& data_of(const Graph& graph);

}  // namespace tessera::bench
