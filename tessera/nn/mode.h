// SPDX-License-Identifier: Apache-2.0
// Training and inference modes of a thread. Threads are in inference mode by default.
#pragma once

#include "tessera/array/generator.h"
#include "tessera/nn/parameter.h"

namespace tessera {

/// Options of Training.
struct TrainingOptions {
  std::uint64_t seed = 0;  ///< Seed of random numbers that layers draw.
  /// Step number. Layers draw different random numbers in each step. If the counter is in device memory
  /// (Counter(array)), this also applies to each replay of a recorded step.
  Counter counter = Counter(0);
};

namespace detail {
struct TrainingState;
}

/// Puts this thread, and tasks created on it, into training mode until the object is destroyed. Dropout draws random
/// numbers from the seed, its path and the counter. BatchNorm normalises with the statistics of the batch and registers
/// new running statistics, which apply() writes. Scopes can be nested, and the innermost one is used. Not movable. Must
/// be destroyed on the thread that created it.
class Training {
 public:
  /// Puts this thread into training mode until the object is destroyed.
  explicit Training(TrainingOptions options = {});
  ~Training();
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  /// Writes the pending state updates of this model in place. Updates of other models remain pending. Updates that are
  /// never applied are dropped.
  template <class Model>
  void apply(Model& model) const {
    apply_to(detail::parts_of(model));
  }
  /// `stopped` is a u64 array with one element. It is read when the state is written; if it is not 0, the state is
  /// unchanged.
  void apply_to(const detail::Parts& model, const std::optional<Array>& stopped = {}) const;

 private:
  const std::shared_ptr<detail::TrainingState> state_;
};

/// Switches to inference mode inside a Training scope, for example to run a teacher model, or for validation between
/// two steps.
class Inference {
 public:
  Inference();  ///< Puts this thread into inference mode until the object is destroyed.
  ~Inference();
  Inference(const Inference&) = delete;
  Inference& operator=(const Inference&) = delete;

 private:
  const std::shared_ptr<detail::TrainingState> before_;
};

/// Returns the options of the innermost Training scope, or nullptr in inference mode. Called by layers.
const TrainingOptions* training();
/// Returns the step number as an f32 scalar without gradient: the counter of the innermost Training scope. Trainers
/// count steps from 1. A replay of a recorded step uses the new step number: `minimum(step_number() / 1000.0, 1.0)` is
/// a weight that grows over 1,000 steps. Throws ArgumentError in inference mode.
Array step_number();
/// Registers `values` as the new values of `state`. Training::apply writes the new values. Gradients do not flow
/// through `values`. Throws ArgumentError in inference mode.
void set_pending_state(const StateArray& state, Array values);
/// Returns the pending value of `state` in this scope, or `state` if there is none. The next update starts from this
/// value.
Array pending_state(const StateArray& state);

}  // namespace tessera
