// SPDX-License-Identifier: Apache-2.0
// A model that is being trained, whatever its type: the one place of the program that knows how a step is made.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "tessera/array/saved_arrays.h"
#include "tessera/grad/grad.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/mode.h"
#include "tessera/nn/optimiser.h"
#include "tessera/nn/pack.h"

namespace tessera::app {

/// Samples and their classes (i32).
struct Batch {
  Array x, y;
};

class Learner {
 public:
  virtual ~Learner() = default;
  virtual void step(const Batch& batch) = 0;
  virtual std::uint64_t steps() const = 0;          ///< made so far
  virtual Array predict(const Array& x) const = 0;  ///< logits, as in inference
  virtual Array& losses() = 0;                      ///< the sum of each step's loss, f32 of one element
  virtual std::int64_t parameter_count() const = 0;
  virtual void save(const std::string& path, const std::map<std::string, std::string>& metadata) const = 0;
  /// What save wrote, all or nothing; then steps go on to the same bits. Errors of load_arrays.
  virtual void load(const SafetensorsFile& file, const Batch& some) = 0;
};

struct LearnerOptions {
  double lr = 0;
  std::uint64_t steps = 0, seed = 0;
};

/// Learns classes by cross entropy with AdamW, the rate going up over the first twentieth of the steps and then down
/// half a cosine.
template <class Model>
class ModelLearner final : public Learner {
 public:
  ModelLearner(Model model, const LearnerOptions& o)
      : seed_(o.seed), model_(std::move(model)), optimiser_(model_, {.lr = rate(o)}), losses_(Array::zeros({1})) {
    pack(model_);
  }
  auto fields() { return std::tuple(field("model", model_), field("optimiser", optimiser_), field("losses", losses_)); }

  void step(const Batch& b) override {
    const Training mode({.seed = seed_, .counter = Counter(steps())});
    auto [loss, gradient] = value_and_grad([&](const Model& m) { return cross_entropy(m(b.x), b.y); })(model_);
    optimiser_.step(model_, gradient);
    mode.apply(model_);
    losses_ += loss;
  }
  std::uint64_t steps() const override { return optimiser_.steps(); }
  Array predict(const Array& x) const override { return model_(x); }
  Array& losses() override { return losses_; }
  std::int64_t parameter_count() const override {
    std::int64_t n = 0;
    for (const NamedArray& p : parameters(model_)) n += p.array.size();
    return n;
  }
  void save(const std::string& path, const std::map<std::string, std::string>& metadata) const override {
    save_arrays(*this, path, metadata);
  }
  void load(const SafetensorsFile& file, const Batch& some) override {
    if (steps() == 0) step(some);  // makes the optimiser's arrays; what it wrote is written over
    load_arrays(*this, file);
  }

  static Rate rate(const LearnerOptions& o) { return cosine_rate(o.lr, {.steps = o.steps, .warmup = o.steps / 20}); }

 private:
  std::uint64_t seed_;
  Model model_;
  AdamW optimiser_;
  Array losses_;
};

}  // namespace tessera::app
