// SPDX-License-Identifier: Apache-2.0
// Training and inference modes of the thread. The default is inference.
#pragma once

#include "tessera/array/generator.h"
#include "tessera/nn/parameter.h"

namespace tessera {

/// Options of Training.
struct TrainingOptions {
  std::uint64_t seed = 0;  ///< Seed of the layers' random numbers.
  /// Step number: each step draws other numbers. With a counter in device memory (Counter(array)), each replay of a
  /// recorded step draws other numbers, too.
  Counter counter = Counter(0);
};

namespace detail {
struct TrainingState;
}

/// While it exists, this thread (and tasks created on it) is in training mode: Dropout draws by (seed, its path,
/// counter); BatchNorm uses the statistics of the batch and registers new running statistics here, which apply()
/// writes. Scopes nest; the innermost is used. Not movable; must be destroyed on the thread that created it.
class Training {
 public:
  /// Puts this thread into training mode until the object is destroyed.
  explicit Training(TrainingOptions options = {});
  ~Training();
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  /// Writes the pending state updates of this model in place; those of other models stay pending. Updates that are
  /// never applied are dropped.
  template <class Model>
  void apply(Model& model) const {
    apply_to(detail::parts_of(model));
  }
  /// `stopped`: a one-element u64 array, read when the state is written; unless it is 0 nothing is changed.
  void apply_to(const detail::Parts& model, const std::optional<Array>& stopped = {}) const;

 private:
  const std::shared_ptr<detail::TrainingState> state_;
};

/// Inference mode within a Training scope: for a teacher model, or for validation between two steps.
class Inference {
 public:
  Inference();  ///< Puts this thread into inference mode until the object is destroyed.
  ~Inference();
  Inference(const Inference&) = delete;
  Inference& operator=(const Inference&) = delete;

 private:
  const std::shared_ptr<detail::TrainingState> before_;
};

/// Options of the innermost Training scope; null in inference mode. Called by layers.
const TrainingOptions* training();
/// The step number as an f32 scalar, without gradient: the counter of the innermost Training scope, which a trainer
/// counts from 1. Replays of a recorded step compute with the new number: `minimum(step_number() / 1000.0, 1.0)` is a
/// weight that rises over 1,000 steps. Throws ArgumentError in inference.
Array step_number();
/// In training: `values` become those of `state` when Training::apply is called. Gradients do not flow through them.
void set_pending_state(const StateArray& state, Array values);
/// The pending value of `state` in this scope, or the state itself: the value that the next update starts from.
Array pending_state(const StateArray& state);

}  // namespace tessera
