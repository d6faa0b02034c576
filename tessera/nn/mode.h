// SPDX-License-Identifier: Apache-2.0
// Training as a mode of the thread. Without it everything is inference.
#pragma once

#include "tessera/array/generator.h"
#include "tessera/nn/parameter.h"

namespace tessera {

/// Options of Training.
struct TrainingOptions {
  std::uint64_t seed = 0;  ///< Seed of all that layers draw.
  /// Number of the step: each draws again. In device memory (Counter(array)), a recorded step draws again at each
  /// replay.
  Counter counter = Counter(0);
};

namespace detail {
struct TrainingState;
}

/// While it lives, this thread (and tasks made on it) trains: Dropout draws by (seed, its path, counter), BatchNorm
/// uses the figures of the batch and notes its new running ones here, where they wait for apply. Scopes nest: the
/// innermost counts. Not movable, and ends on the thread that made it.
class Training {
 public:
  /// Puts this thread into training mode until the object is destroyed.
  explicit Training(TrainingOptions options = {});
  ~Training();
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  /// Writes what was noted for the state of this model, in place; what is noted for other models waits on. What is
  /// never applied is dropped.
  template <class Model>
  void apply(Model& model) const {
    apply_to(detail::parts_of(model));
  }
  /// `stopped`: u64 of one element, read when it is written: unless it is 0 everything stays as it was.
  void apply_to(const detail::Parts& model, const std::optional<Array>& stopped = {}) const;

 private:
  const std::shared_ptr<detail::TrainingState> state_;
};

/// Inference within a Training scope: of a model that only teaches, or of validation between two steps.
class Inference {
 public:
  Inference();  ///< Puts this thread into inference mode until the object is destroyed.
  ~Inference();
  Inference(const Inference&) = delete;
  Inference& operator=(const Inference&) = delete;

 private:
  const std::shared_ptr<detail::TrainingState> before_;
};

/// What layers ask of the mode.
/// The options of the innermost scope; null: inference.
const TrainingOptions* training();
/// The number of the step as f32 of one element, without history: the counter of the innermost Training scope, which a
/// trainer counts from 1. A recorded step computes with it again: `minimum(step_number() / 1000.0, 1.0)` is a weight
/// that rises over 1,000 steps. ArgumentError in inference.
Array step_number();
/// In training: `values` are to become those of `state`, at apply. Notes without history.
void set_pending_state(const StateArray& state, Array values);
/// What was noted for `state` in this scope, else the state itself: where the next note goes on from.
Array pending_state(const StateArray& state);

}  // namespace tessera
