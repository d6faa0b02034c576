// SPDX-License-Identifier: Apache-2.0
#include "tessera/nn/mode.h"

#include <mutex>

#include "tessera/device/context.h"
#include "tessera/grad/grad.h"
#include "tessera/grad/recomputing.h"

namespace tessera {

namespace detail {

struct TrainingState : ModeState {
  explicit TrainingState(TrainingOptions o) : options(std::move(o)) {}
  const TrainingOptions options;
  std::shared_ptr<TrainingState> outer;

  struct Note {
    Array target, values;
  };
  std::mutex lock;
  std::vector<Note> notes;
  /// Identifies arrays by their memory, so that an update applies to every copy of the model that shares the memory.
  Note* find(const Array& target) {
    for (Note& n : notes)
      if (n.target.source() == target.source() && n.target.offset() == target.offset()) return &n;
    return nullptr;
  }
};

namespace {
std::shared_ptr<TrainingState> innermost() {
  if (thread_context.mode == nullptr) return nullptr;
  return std::static_pointer_cast<TrainingState>(thread_context.mode->shared_from_this());
}
}  // namespace

}  // namespace detail

using detail::innermost;

Training::Training(TrainingOptions options) : state_(std::make_shared<detail::TrainingState>(std::move(options))) {
  state_->outer = innermost();
  thread_context.mode = state_.get();
}
Training::~Training() { thread_context.mode = state_->outer.get(); }

void Training::apply_to(const detail::Parts& model, const std::optional<Array>& stopped) const {
  std::vector<std::pair<ModelArray*, Array>> values;
  {
    const std::lock_guard hold(state_->lock);
    for (const auto& [path, s] : model)
      if (s->state())
        if (const auto* note = state_->find(*s)) values.emplace_back(s, note->values);
  }
  for (auto& [target, value] : values)
    target->assign(stopped ? where(stopped->to(target->device()) == 0, value, *target) : value);
  const std::lock_guard hold(state_->lock);
  for (const auto& [target, value] : values)
    std::erase_if(state_->notes, [&, t = target](const auto& n) {
      return n.target.source() == t->source() && n.target.offset() == t->offset();
    });
}

Inference::Inference() : before_(innermost()) { thread_context.mode = nullptr; }
Inference::~Inference() { thread_context.mode = before_.get(); }

const TrainingOptions* training() {
  const auto* state = static_cast<detail::TrainingState*>(thread_context.mode);
  return state == nullptr ? nullptr : &state->options;
}

Array step_number() {
  const TrainingOptions* const options = training();
  if (options == nullptr)
    fail<ArgumentError>({.operation = "step_number",
                         .wrong = "inference has no steps",
                         .remedy = "Call it within a Training scope, such as in the loss of a Trainer"});
  if (!options->counter.in_memory()) return Array::full({}, static_cast<double>(options->counter.number()));
  return stop_gradient(options->counter.memory()).reshape({}).astype(DType::f32);
}

void set_pending_state(const StateArray& state, Array values) {
  const auto here = innermost();
  if (here == nullptr)
    fail<ArgumentError>({.operation = "set_pending_state",
                         .with = {{"path", state.path()}},
                         .wrong = "state is only updated during training",
                         .remedy = "Check training() first"});
  if (detail::is_recomputing()) return;  // it was registered in the first run of the function
  values = stop_gradient(values);
  const std::lock_guard hold(here->lock);
  if (auto* note = here->find(state))
    note->values = std::move(values);
  else
    here->notes.push_back({state, std::move(values)});
}

Array pending_state(const StateArray& state) {
  if (const auto here = innermost()) {
    const std::lock_guard hold(here->lock);
    if (const auto* note = here->find(state)) return note->values;
  }
  return state;
}

}  // namespace tessera
