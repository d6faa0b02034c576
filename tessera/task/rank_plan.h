// SPDX-License-Identifier: Apache-2.0
// Plans the tasks of a region over ranks: on which rank a task runs, and which tiles are sent for it. Internal.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "tessera/base/inline_vector.h"
#include "tessera/executor/group.h"
#include "tessera/task/options.h"
#include "tessera/task/ranks.h"

namespace tessera {
struct Accessed;
}

namespace tessera::detail {

/// The submissions of a region over ranks, since its last wait.
class RankRegion {
 public:
  explicit RankRegion(std::shared_ptr<RankMessages> messages);
  RankMessages& messages() const { return *messages_; }
  const std::shared_ptr<RankMessages>& shared_messages() const { return messages_; }
  const Submission& last() const { return last_; }
  /// Counts a submission. `what` identifies its accesses.
  void count(const std::source_location& where, std::uint64_t what);
  /// Waits for the other ranks' ends of the region. Throws the first error of all ranks. `failures` are this rank's.
  void end(std::span<const executor::FailureRef> failures, bool cancelled);
  /// Called when the tasks of this rank differ from those of other ranks because of an exception. The region ends on
  /// all ranks.
  void leave() noexcept;
  /// Called instead of end() while an exception leaves the region, when the tasks have ended.
  void end_after_leave() noexcept;

 private:
  const std::shared_ptr<RankMessages> messages_;
  Submission last_;
  bool left_ = false;
};

/// One submission.
class RankPlan {
 public:
  RankPlan(RankRegion& region, executor::Group& group, const TaskOptions& options);

  // Called for each argument, on all ranks:
  /// The task uses a tile. `array` is the tile's array if it belongs to this rank.
  void use(const RankTile& tile, Access mode, bool whole, const Array& array);
  /// The task uses an array that exists on all ranks.
  void use_plain(Access mode) { writes_plain_ = writes_plain_ || writes(mode); }
  /// The task uses a result of a task that ran on this rank; -1: on each rank.
  void use_result(int rank);
  const std::shared_ptr<RankMessages>& shared_messages() const { return region_.shared_messages(); }

  /// Chooses the rank. Submits the messages that the task needs.
  void prepare();
  /// True if the task runs on this rank.
  bool runs_here() const { return rank_ == everywhere || rank_ == me_; }
  /// The rank on which the task runs, or `everywhere`.
  int rank() const { return rank_; }
  static constexpr int everywhere = -1;
  /// Returns what a task on this rank uses for an argument.
  Array array(const RankTile& tile, Access mode, const Array& array);
  /// Returns the options of a task on this rank.
  TaskOptions local_options() const;
  /// Counts the writes, and submits the messages that follow the task. Called after the task was submitted.
  void finish();

 private:
  struct Use {
    RankTiles* tiles;
    std::uint32_t number;
    Access mode;
    bool whole;          ///< the task overwrites or reads all elements of the tile
    const Array* array;  ///< if it belongs to this rank
  };
  void choose();
  void bring(const Use& use, int to);
  void submit_message(bool sends, int peer, const TileKey& key, const Array& array, Access mode);

  RankRegion& region_;
  executor::Group& group_;
  const Scope* const scope_;  ///< the task's scope if it has ranks, or null
  const TaskOptions& options_;
  const int me_;
  int rank_ = 0;
  bool writes_plain_ = false, uses_result_ = false;
  int result_rank_ = everywhere;
  std::uint64_t what_ = 0;
  std::optional<Device> device_;  ///< of the tile that determines the rank
  InlineVector<Use, 4> uses_;
};

/// Leaves the region if an exception destroys this object.
struct LeaveOnException {
  explicit LeaveOnException(RankRegion& of) : region(&of) {}
  ~LeaveOnException() {
    if (region != nullptr) region->leave();
  }
  LeaveOnException(const LeaveOnException&) = delete;
  LeaveOnException& operator=(const LeaveOnException&) = delete;
  RankRegion* region;
};

/// The scope of a task if it spans several ranks, or null. `inherited` may be null.
inline const Scope* rank_scope(const TaskOptions& options, const InheritedOptions* inherited) {
  const Scope* const scope = options.scope                              ? &*options.scope
                             : inherited != nullptr && inherited->scope ? &*inherited->scope
                                                                        : nullptr;
  return scope != nullptr && scope->ranks() ? scope : nullptr;
}

/// How an argument of type T takes part in the plan. The default is for values, which exist on all ranks. `mode` is the
/// access that follows from the type of the function.
template <class T>
struct RankArgument {
  /// Returns the messages if the argument contains tiles of an array over ranks, or null.
  template <class U>
  static const std::shared_ptr<RankMessages>* messages(const U&) {
    return nullptr;
  }
  template <class U>
  static void plan(RankPlan&, const U&, Access) {}
  /// Returns the argument of a task that runs on this rank.
  template <class U>
  static U&& local(RankPlan&, U&& argument, Access) {
    return std::forward<U>(argument);
  }
};

}  // namespace tessera::detail
