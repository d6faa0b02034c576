// SPDX-License-Identifier: Apache-2.0
// Trainer runs training steps. It runs the first steps directly, then records and replays them. It also checks for
// non-finite numbers, and saves and resumes training.
#pragma once

#include <string>

#include "tessera/array/move.h"
#include "tessera/base/callback.h"
#include "tessera/grad/grad.h"
#include "tessera/nn/data_parallel.h"
#include "tessera/nn/pack.h"
#include "tessera/nn/trainer_base.h"

namespace tessera {

namespace detail {

struct BatchLeaves {
  template <class T>
  static constexpr bool is_leaf = false;
  template <class T>
  static constexpr bool is_refused = !std::is_empty_v<T> && holds_nothing<T, ArraysOnly>();
};
template <Text type, Text path>
struct NoArrayInBatch {
  static_assert(sizeof(path.letters) == 0,
                "a batch must consist of arrays: a replayed step would see a number as it was when the step was "
                "recorded. Make it an Array. Its path in the batch is the second argument of NoArrayInBatch");
};

}  // namespace detail

/// Trains a clone of a model. The given model and its copies are not changed.
///
///   Trainer trainer(model, Adam(model, {.lr = 1e-3}), [](const Net& m, const auto& batch) {
///     const auto& [x, y] = batch;
///     return cross_entropy(m(x), y);
///   });
///   for (const auto& batch : batches(images, labels, {.size = 128, .shuffle = true})) trainer.step(batch);
///   trainer.check();
///   model = trainer.model();
///
/// The loss must be a single number, and may depend only on the model, the batch, and arrays on the device, because
/// replayed steps do not call the function. The loss may draw random numbers from a Generator and read
/// training()->counter and step_number(). If it uses other host values that change, the trainer detects this and stops
/// recording (TrainerOptions::recorded). Values that change in each step are detected before the first replay, others
/// within 64 steps. A batch is any structure that consists only of arrays (array/traversal.h). Not movable; not
/// thread-safe.
template <class Model, class Batch_ = std::tuple<Array, Array>>
class Trainer : public TrainerBase {
 public:
  /// The input of one training step.
  using Batch = Batch_;
  /// Computes the loss of a batch as a single number.
  using Loss = Callback<Array(const Model& model, const Batch& batch)>;

  /// Throws ArgumentError if the model has no trained parameters, if trained parameters are different views of the same
  /// memory, or if an option is out of range.
  Trainer(const Model& model, AnyOptimiser optimiser, std::type_identity_t<Loss> loss, TrainerOptions options = {})
      : TrainerBase(std::move(optimiser), options),
        model_((detail::check_same_views("Trainer", detail::parts_of(model)),
                clone(options.devices.empty() ? model : to(model, options.devices[0])))),
        loss_(std::move(loss)),
        held_(shapes()) {
    if constexpr (!detail::traversable<Batch, detail::BatchLeaves>)
      detail::refuse<Batch, detail::BatchLeaves, detail::NoArrayInBatch>();
    begin(detail::parts_of(model_));
    if (narrows()) {
      narrow_model_ = model_;
      narrow(detail::parts_of(*narrow_model_));
    }
    for (std::size_t k = 1; k < devices().size(); ++k) {
      Replica& replica = replicas_.emplace_back(Replica{to(computing(), devices()[k]), {}});
      detail::pack_model(detail::parts_of(replica.model), patterns());
    }
  }
  ~Trainer() override { forget(); }

  /// Runs one training step: computes the loss and its gradient in a Training scope, clips the gradient, calls the
  /// optimiser, and updates the model's state. With `accumulate` = n, the optimiser is called in every n-th step.
  /// Returns the loss of this batch, on the device. Arrays of the batch that are on other devices are copied to the
  /// model's device. If step throws, the trainer is unchanged. (With several ranks, if a part of the gradient has been
  /// sent before, later steps throw, because the other ranks cannot repeat theirs: see TrainerOptions::bucket_bytes.)
  ///
  /// With several ranks, all of them pass the same batch, and each processes its part. `share` is for callers that read
  /// only this rank's samples: the fraction of the whole batch that `batch` contains.
  Array step(const Batch& batch, std::optional<double> share = {}) {
    std::vector<Array> arrays;
    for_each_array(batch, [&](const Array& a) { arrays.push_back(a); });
    next_ = &batch;
    return step_arrays(arrays, share);
  }

  /// Returns the trained model. May be called at any time. The result shares memory with the trainer, and later steps
  /// change it.
  const Model& model() const { return model_; }
  /// Calls check(), then returns a deep copy of the model.
  Model trained() {
    check();
    return clone(model_);
  }

 private:
  void hold(std::size_t slot, std::span<const Array> arrays) override {
    std::size_t next = 0;
    held_[slot].emplace(map_arrays(*next_, [&](const Array&) { return arrays[next++]; }));
  }
  void release(std::size_t slot) noexcept override { held_[slot].reset(); }
  const Model& computing() const { return narrow_model_ ? *narrow_model_ : model_; }
  Array loss_of(std::size_t slot) override { return loss_(computing(), *held_[slot]); }
  void gradient_of(std::size_t slot, const UseGradient& use) override {
    const double weight = weight_of(slot);
    if (splits() && weight > 0) return gradient_of_parts(slot, use);
    const auto weighted_loss = [&](const Model& m) {
      Array loss = weight > 0 ? loss_(m, *held_[slot]) : detail::zero_loss(detail::parts_of(m));
      if (weight > 0 && weight < 1) loss = loss * weight;
      return std::tuple(scaled(loss), loss);
    };
    auto [losses, gradient] = detail::value_and_gradient(weighted_loss, wrt<0>, adjoint_ready(), computing());
    use(std::get<1>(std::move(losses)), detail::parts_of(gradient));
  }
  /// Computes gradients on each device for its part of the batch, then adds them up.
  void gradient_of_parts(std::size_t slot, const UseGradient& use) {
    std::vector<Array> arrays;
    for_each_array(*held_[slot], [&](const Array& a) { arrays.push_back(a); });
    const std::vector<detail::BatchPart> parts = detail::split_batch(arrays, devices());
    std::vector<Model> gradients;
    std::vector<std::vector<Array>> rows, losses;
    for (std::size_t k = 0; k < parts.size(); ++k) {
      const DeviceScope scope(devices()[k]);
      std::optional<Training> mode;  // set for replicas; the first device uses the mode of the step
      if (k > 0) {
        mode.emplace(mode_of(k));
        replicas_[k - 1].copies.copy(detail::parts_of(computing()), detail::parts_of(replicas_[k - 1].model));
      }
      std::size_t next = 0;
      const Batch batch = map_arrays(*held_[slot], [&](const Array&) { return parts[k].arrays[next++]; });
      auto [both, gradient] = value_and_grad([&](const Model& m) {
        const Array loss = loss_(m, batch).reshape({}).to(devices()[0]) * (parts[k].weight * weight_of(slot));
        return std::tuple(scaled(loss), loss);
      })(k == 0 ? computing() : replicas_[k - 1].model);
      losses.push_back({std::get<1>(std::move(both)).eval()});
      rows.push_back(detail::pack_parts(detail::parts_of(gradient), patterns()));
      gradients.push_back(std::move(gradient));
    }
    detail::tree_reduce(rows);
    detail::tree_reduce(losses);
    use(losses[0][0], detail::parts_of(gradients[0]));
  }

  struct Replica {
    Model model;
    detail::ReplicaCopies copies;
  };
  Model model_;
  std::vector<Replica> replicas_;      ///< one for each device except the first
  std::optional<Model> narrow_model_;  ///< shares the model's memory, except for the 16-bit copies
  Loss loss_;
  const Batch* next_ = nullptr;             ///< set only during step()
  std::vector<std::optional<Batch>> held_;  ///< the batch of each slot
};

}  // namespace tessera
