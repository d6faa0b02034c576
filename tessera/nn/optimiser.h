// SPDX-License-Identifier: Apache-2.0
// Optimisers, with PyTorch's names, arguments, defaults and formulae.
#pragma once

#include <map>
#include <optional>

#include "tessera/nn/parameter.h"
#include "tessera/nn/schedule.h"

namespace tessera {

/// Parameters whose path matches the pattern, with settings of their own; what is left out is the optimiser's.
struct ParameterGroup {
  std::string pattern;                      ///< Matched against paths; `*` stands for any text.
  std::optional<Rate> lr = {};              ///< The group's learning rate.
  std::optional<double> weight_decay = {};  ///< The group's weight decay.
};

/// Options of Optimiser::apply.
struct ApplyOptions {
  /// u64 of one element, read by the kernels: unless it is 0 they leave everything as it was.
  std::optional<Array> stopped = {};
  std::optional<Array> scale = {};  ///< one element, that gradients are multiplied by
  /// For each array of the model one that gets its new values, too, rounded to a dtype of its own, or an empty one;
  /// nothing: for none. Those of parameters that lie together lie together.
  std::span<const Array> copies = {};
  /// u64 of one element: how many of the steps that were counted changed nothing, because `stopped` was not 0. What
  /// depends on how many steps were made (Adam's m and v) goes by the others; the rate goes by all.
  std::optional<Array> skipped = {};
};

/// What optimisers have in common. `step` writes the parameters in place: whatever shares their memory sees it. Sums
/// are kept as f32 (f64 for f64). A parameter is of the first group whose pattern matches its path; frozen ones, and
/// those whose gradient is empty, are passed by: what depends on how many steps were made counts those of the parameter
/// itself, as PyTorch does, so one that is unfrozen late begins as if it were new. Parameters that lie together (pack)
/// are written by one kernel, others by one each. What an optimiser keeps is walked by for_each_array: `step` first,
/// then what is kept by the parameters' paths, `m["layers.1.weight"]`, and `idle`, of which files of earlier versions
/// have none.
class Optimiser {
 public:
  virtual ~Optimiser() = default;

  /// One step. `gradient` is a model whose arrays are gradients. ArgumentError, with the path, if a gradient has
  /// another shape than its parameter.
  template <class Model>
  void step(Model& model, const Model& gradient) {
    advance();
    try {
      apply(model, gradient);
    } catch (...) {
      rewind(steps() - 1);
      throw;
    }
  }
  /// The two halves of a step, for one that is recorded: the first counts, and puts rates and the like where the
  /// kernels of the second read them; a replay of the second repeats it with these.
  void advance();
  /// Makes one step: updates the parameters of `model` by their gradients.
  template <class Model>
  void apply(Model& model, const Model& gradient, const ApplyOptions& options = {}) {
    apply_to(detail::parts_of(model), detail::parts_of(gradient), options);
  }
  /// The same for lists of parameters.
  void apply_to(const detail::Parts& model, const detail::ConstParts& gradient, const ApplyOptions& options = {});
  std::uint64_t steps() const;       ///< made so far
  void rewind(std::uint64_t steps);  ///< counts as if so many had been made; parameters and sums stay
  double rate() const;               ///< of the next step, of the parameters that are in no group
  /// Makes what is kept for the model's parameters, which the first step does otherwise.
  void prepare(const detail::Parts& model);
  void unshare();                             ///< gives this one memory of its own, where copies share it
  std::vector<std::string> patterns() const;  ///< of the groups, for pack
  static bool optional_array(std::string_view name) { return name == "idle"; }  ///< files may lack it (load_arrays)

 protected:
  /// Of the parameters of one group that made as many steps; `step` counts theirs from 1.
  struct Settings {
    std::uint64_t step = 1;
    double lr = 0, weight_decay = 0;
  };
  /// Numbers that depend on the step, as a kernel reads them: arrays of one element.
  using Scalars = std::vector<Array>;
  /// New values, all to be written at once.
  struct Updated {
    Array weight, first = {}, second = {};
  };
  Optimiser(const detail::ConstParts& parts, Rate lr, double weight_decay, std::vector<ParameterGroup> groups,
            int slots);
  Optimiser(const Optimiser&) = default;
  Optimiser(Optimiser&&) = default;
  Optimiser& operator=(const Optimiser&) = default;
  Optimiser& operator=(Optimiser&&) = default;

  virtual std::vector<double> scalars(const Settings& settings) const = 0;
  /// Those for so many steps less: `skipped` is of their dtype.
  virtual Scalars without(const Scalars& scalars, const Array& skipped) const = 0;
  virtual Updated update(const Array& weight, const Array& gradient, const Array& first, const Array& second,
                         const Scalars& scalars) const = 0;

  Array step_;                                   ///< i64 of one element, on the host
  std::map<std::string, Array> first_, second_;  ///< what is kept for each parameter, by its path
  /// i64 (parameters, 3), on the host, in the order of their paths: what Idle has of each for which something is kept.
  Array idle_;

 private:
  struct Item;
  /// Steps of the optimiser that were none of a parameter, because it had no gradient.
  struct Idle {
    std::int64_t steps = 0;    ///< up to the last time that it got a gradient
    std::int64_t since = 0;    ///< the first of those that go on; 0: it had a gradient in the last step
    std::int64_t skipped = 0;  ///< how many of them were skipped (ApplyOptions); while they go on, minus those before
    auto operator<=>(const Idle&) const = default;
  };
  using Place = std::pair<Device, DType>;
  std::size_t group_of(const std::string& path) const;
  using Groups = std::map<std::tuple<std::size_t, Idle, DType, Device>, std::vector<Item>>;
  void read_idle();
  void write_idle();
  void find_idle_steps();
  bool note_gradient(const std::string& path, bool has_gradient, const ApplyOptions& options);
  std::vector<double> numbers() const;
  const Array& numbers_on(const Place& place);
  void update_packed(std::vector<Item>& items, const Scalars& scalars, const ApplyOptions& options);
  void update_one(Array weight, Array gradient, Array* first, Array* second, const Array* copy, const Scalars& scalars,
                  const ApplyOptions& options);
  Array& slot(std::map<std::string, Array>& slots, const Item& item);
  Array packed_slots(std::map<std::string, Array>& slots, const std::vector<Item>& items);

  std::vector<ParameterGroup> groups_;  ///< the last: all others
  int slots_;
  std::map<std::string, Idle> idle_of_;      ///< idle_, by path
  std::vector<std::int64_t> idle_steps_{0};  ///< all different Idle::steps of parameters that had a gradient
  std::uint64_t now_ = 0;                    ///< steps(), without reading memory
  std::map<Place, Array> numbers_;  ///< scalars of the step that is being made: for each of idle_steps_, of all groups
};

/// Options of Sgd.
struct SgdOptions {
  Rate lr = 1e-3;                           ///< The learning rate.
  double momentum = 0;                      ///< The weight of earlier gradients.
  double dampening = 0;                     ///< Reduces the weight of the new gradient.
  double weight_decay = 0;                  ///< Times the parameter, added to the gradient.
  bool nesterov = false;                    ///< needs momentum, and no dampening
  std::vector<ParameterGroup> groups = {};  ///< Parameters with settings of their own.
};
/// Stochastic gradient descent with momentum (Polyak 1964; Sutskever et al., "On the importance of initialization and
/// momentum in deep learning", 2013): b = momentum b + (1 - dampening) g, the first time b = g; w = w - lr b, or with
/// nesterov w - lr (g + momentum b). Weight decay adds weight_decay w to g.
class Sgd : public Optimiser {
 public:
  /// An optimiser of the model's parameters.
  template <class Model>
  explicit Sgd(const Model& model, SgdOptions options = {}) : Sgd(detail::parts_of(model), std::move(options)) {}
  /// What is saved in checkpoints.
  auto fields() { return std::tuple(field("step", step_), field("momentum", first_), field("idle", idle_)); }

 private:
  Sgd(const detail::ConstParts& parts, SgdOptions options);
  std::vector<double> scalars(const Settings& settings) const override;
  Scalars without(const Scalars& scalars, const Array& skipped) const override;
  Updated update(const Array& weight, const Array& gradient, const Array& first, const Array& second,
                 const Scalars& scalars) const override;
  double momentum_, dampening_;
  bool decays_, nesterov_;
};

/// Options of Adam.
struct AdamOptions {
  Rate lr = 1e-3;                           ///< The learning rate.
  double beta1 = 0.9, beta2 = 0.999;        ///< Decay of the mean of gradients, and of their squares.
  double epsilon = 1e-8;                    ///< Added to the root of the second moment.
  double weight_decay = 0;                  ///< Times the parameter, added to the gradient.
  std::vector<ParameterGroup> groups = {};  ///< Parameters with settings of their own.
};
/// Kingma and Ba, "Adam: a method for stochastic optimization" (2015). m = beta1 m + (1 - beta1) g, v = beta2 v +
/// (1 - beta2) g^2, w = w - lr / (1 - beta1^t) m / (sqrt(v / (1 - beta2^t)) + epsilon). Weight decay adds weight_decay
/// w to g.
class Adam : public Optimiser {
 public:
  /// An optimiser of the model's parameters.
  template <class Model>
  explicit Adam(const Model& model, AdamOptions options = {})
      : Adam(detail::parts_of(model), std::move(options), false) {}
  /// What is saved in checkpoints.
  auto fields() {
    return std::tuple(field("step", step_), field("m", first_), field("v", second_), field("idle", idle_));
  }

 protected:
  Adam(const detail::ConstParts& parts, AdamOptions options, bool decoupled);

 private:
  std::vector<double> scalars(const Settings& settings) const override;
  Scalars without(const Scalars& scalars, const Array& skipped) const override;
  Updated update(const Array& weight, const Array& gradient, const Array& first, const Array& second,
                 const Scalars& scalars) const override;
  double beta1_, beta2_, epsilon_;
  bool decays_, decoupled_;
};

/// Options of AdamW.
struct AdamWOptions {
  Rate lr = 1e-3;                           ///< The learning rate.
  double beta1 = 0.9, beta2 = 0.999;        ///< Decay of the mean of gradients, and of their squares.
  double epsilon = 1e-8;                    ///< Added to the root of the second moment.
  double weight_decay = 1e-2;               ///< Times the learning rate and the parameter, subtracted from it.
  std::vector<ParameterGroup> groups = {};  ///< Parameters with settings of their own.
};
/// Loshchilov and Hutter, "Decoupled weight decay regularization" (2019): Adam, but first w = w - lr weight_decay w.
class AdamW : public Adam {
 public:
  /// An optimiser of the model's parameters.
  template <class Model>
  explicit AdamW(const Model& model, AdamWOptions o = {})
      : Adam(detail::parts_of(model),
             {std::move(o.lr), o.beta1, o.beta2, o.epsilon, o.weight_decay, std::move(o.groups)}, true) {}
};

}  // namespace tessera
