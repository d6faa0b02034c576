// SPDX-License-Identifier: Apache-2.0
// A type-erased wrapper of Trainer for the commands of `tessera train`.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "ranks.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/trainer.h"
#include "tessera/nn/verify/layer_list.h"

namespace tessera::app {

/// Samples and their labels (i32).
struct Batch {
  Array x, y;
};

class Learner {
 public:
  virtual ~Learner() = default;
  virtual TrainerBase& trainer() = 0;
  /// Runs a step. `share` is the fraction of the whole batch if `batch` contains only this rank's samples.
  virtual void step(const Batch& batch, std::optional<double> share = {}) = 0;
  virtual Array predict(const Array& x) const = 0;  ///< Returns logits, computed in inference mode.
  virtual std::int64_t parameter_count() const = 0;
  /// Returns the description of the layers that `tessera verify-model` needs, or an empty string if the model is not a
  /// Sequential.
  virtual std::string layers() const = 0;

  /// The sum of the losses since the caller last set it to 0: f32 with one element.
  Array& losses() { return losses_; }
  std::uint64_t steps() { return trainer().steps(); }  ///< The number of steps so far.
  /// Additional contents of a checkpoint.
  struct ExtraState {
    std::map<std::string, std::string> texts = {};
    std::vector<std::pair<std::string, Array>> arrays = {};  ///< stored as "beside.NAME"
  };
  void save(const std::string& path, ExtraState more);
  /// Loads a file that `save` has written. Training continues with bit-identical results. If an error is thrown, the
  /// state is not changed. Throws the errors of Trainer::load.
  void load(const std::string& path);

 protected:
  Array losses_ = Array::zeros({1});
};

struct LearnerOptions {
  double lr = 0;
  std::uint64_t steps = 0, seed = 0;
  DType precision = DType::f32;
  double final_rate = 0;  ///< final learning rate as a fraction of lr
  double beta2 = 0.999, weight_decay = 1e-2;
  std::vector<ParameterGroup> groups = {};
  std::optional<double> clip_norm = {};
};

/// Trains a classifier with cross entropy and AdamW. The classes are the last axis of the logits. The learning rate has
/// a warm-up in the first twentieth of the steps, followed by cosine decay.
template <class Model>
class ModelLearner final : public Learner {
 public:
  ModelLearner(const Model& model, const LearnerOptions& o)
      : trainer_(model,
                 AdamW(model, {.lr = rate(o), .beta2 = o.beta2, .weight_decay = o.weight_decay, .groups = o.groups}),
                 [](const Model& m, const Batch& b) {
                   const Array logits = m(b.x);
                   return cross_entropy(logits.rank() > 2 ? logits.reshape({-1, logits.shape(-1)}) : logits,
                                        b.y.reshape({-1}));
                 },
                 {.seed = o.seed, .clip_norm = o.clip_norm, .precision = {.dtype = o.precision}, .ranks = ranks()}) {}

  TrainerBase& trainer() override { return trainer_; }
  void step(const Batch& batch, std::optional<double> share) override {
    const Array loss = trainer_.step(batch, share);
    losses_ += where(isfinite(loss), loss, 0);  // a step with a non-finite loss is skipped or ends the training
  }
  Array predict(const Array& x) const override { return trainer_.model()(x); }
  std::int64_t parameter_count() const override {
    std::int64_t n = 0;
    for (const NamedArray& p : parameters(trainer_.model())) n += p.array.size();
    return n;
  }

  std::string layers() const override {
    if constexpr (verification::is_sequential<Model>)
      return describe(trainer_.model());
    else
      return "";
  }

  const Model& model() const { return trainer_.model(); }

  static Rate rate(const LearnerOptions& o) {
    return cosine_rate(o.lr, {.steps = o.steps, .warmup = o.steps / 20, .final = o.final_rate * o.lr});
  }

 private:
  Trainer<Model, Batch> trainer_;
};

}  // namespace tessera::app
