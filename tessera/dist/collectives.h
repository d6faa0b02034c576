// SPDX-License-Identifier: Apache-2.0
// Collectives on host memory. All are called by the communicator's thread, and all ranks must pass equal sizes.
// Internal.
//
// Sums are computed in a fixed tree (tree_reduce.h): each rank receives its slice of the elements from all others,
// combines it, and sends it to all. This moves 2 (n - 1) / n of the bytes, like a ring, and the result does not depend
// on MPI, the hosts, or how data are split into messages.
#pragma once

#include "tessera/dist/communicator.h"

namespace tessera::dist {

/// Reduces `count` elements in place.
void all_reduce(Round& round, Reduce how, DType dtype, std::span<std::byte> data);
/// Reduces to `result` on the root. `data` is not changed.
void reduce(Round& round, Reduce how, DType dtype, std::span<const std::byte> data, std::span<std::byte> result,
            int root);
/// Reduces, and stores slice `rank` of `size` equal slices in `result`.
void reduce_scatter(Round& round, Reduce how, DType dtype, std::span<const std::byte> data,
                    std::span<std::byte> result);
/// Copies the root's data to all ranks.
void broadcast(Round& round, std::span<std::byte> data, int root);
/// Concatenates the data of all ranks, which have equal sizes, in `result`.
void all_gather(Round& round, std::span<const std::byte> data, std::span<std::byte> result);
/// Waits until all ranks have called it.
void barrier(Round& round);

}  // namespace tessera::dist
