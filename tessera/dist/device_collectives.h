// SPDX-License-Identifier: Apache-2.0
// Collectives on arrays in the memory of GPUs, by NCCL or RCCL. Messages are sent by the library, and elements are
// combined by kernels in the same fixed tree as on the host, so that results do not depend on the library. Internal.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "tessera/array/array.h"
#include "tessera/dist/nccl.h"
#include "tessera/dist/tree_reduce.h"

namespace tessera::dist {

/// The versions of the libraries that a rank can use; 0: none.
using NcclVersions = std::array<std::int32_t, NcclLibrary::number>;
NcclVersions nccl_versions();

/// The groups of GPUs that the ranks of a World have used so far, and queues of this rank's GPUs for messages.
class DeviceGroups {
 public:
  /// `versions` has an element for each rank. `machine` distinguishes the machines of the ranks.
  DeviceGroups(std::span<const NcclVersions> versions, std::string machine);

  /// Returns the group with which to exchange arrays on `device`, or null if they go through host memory. Part of each
  /// collective on arrays: all ranks must call it, and all get a group or none. std::nullopt: this rank has arrays on
  /// several devices.
  NcclGroup* agree(Round& round, std::optional<Device> device);
  /// Name of the library, if arrays were exchanged by it: "NCCL 2.21.5". May be called by any thread.
  std::string library() const;
  /// A queue that has only work of collectives, so that they wait only for the arrays that they use. Used within
  /// collectives.
  Queue& queue(Device device);

 private:
  void warn(const Round& round, int library, const std::string& why);

  /// Why the ranks cannot use a library; empty: all have the same version.
  std::array<std::string, NcclLibrary::number> reasons_;
  std::string machine_;
  std::atomic<const NcclLibrary*> used_ = nullptr;
  std::map<Device, std::unique_ptr<Queue>> queues_;
  std::map<std::vector<std::uint64_t>, std::unique_ptr<NcclGroup>> groups_;  ///< by the cards of the ranks
  std::set<std::string> warnings_;                                           ///< those that were logged
};

/// These functions are like those for host memory (collectives.h). `x` need not be contiguous; `result` must be.
void all_reduce(Round& round, NcclGroup& group, Reduce how, const Array& x);
void reduce(Round& round, NcclGroup& group, Reduce how, const Array& x, const Array& result, int root);
void reduce_scatter(Round& round, NcclGroup& group, Reduce how, const Array& x, const Array& result);
void all_gather(Round& round, NcclGroup& group, const Array& x, const Array& result);

}  // namespace tessera::dist
