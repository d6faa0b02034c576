// SPDX-License-Identifier: Apache-2.0
// Optimisers, with PyTorch's names, arguments, defaults and formulas.
#pragma once

#include <map>
#include <optional>

#include "tessera/nn/parameter.h"
#include "tessera/nn/schedule.h"

namespace tessera {

/// Settings for the parameters whose path matches a pattern. Settings that are left out are the optimiser's.
struct ParameterGroup {
  std::string pattern;                      ///< Matched against paths; `*` matches any text.
  std::optional<Rate> lr = {};              ///< The group's learning rate.
  std::optional<double> weight_decay = {};  ///< The group's weight decay.
};

/// Options of Optimiser::apply.
struct ApplyOptions {
  /// one-element u64 array, read by the kernels: unless it is 0 they change nothing.
  std::optional<Array> stopped = {};
  std::optional<Array> scale = {};  ///< one element that gradients are multiplied by
  /// One array for each of the model's, which also receives the new values, rounded to its own dtype; empty entries and
  /// an empty span are skipped. Copies of packed parameters must be contiguous, too.
  std::span<const Array> copies = {};
  /// one-element u64 array: number of counted steps that changed nothing because `stopped` was not 0. Step-dependent
  /// factors (bias correction of Adam) exclude them; the learning rate includes them.
  std::optional<Array> skipped = {};
};

/// Base class of optimisers. `step` writes the parameters in place; arrays that share their memory see the update.
/// State is kept in f32 (f64 for f64). A parameter belongs to the first group whose pattern matches its path. Frozen
/// parameters, and those whose gradient is empty, are skipped. As in PyTorch, step-dependent factors count a
/// parameter's own steps, so that one that is unfrozen late starts like a new one. Packed parameters (pack) are updated
/// by one kernel, others by one each. for_each_array visits `step` first, then the state by parameter path,
/// `m["layers.1.weight"]`, and `idle`, which files of earlier versions lack.
class Optimiser {
 public:
  virtual ~Optimiser();

  /// Makes one step. `gradient` is a model whose arrays are gradients. Throws ArgumentError, with the path, if a
  /// gradient's shape differs from its parameter's.
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
  /// The two halves of a step, for recorded steps: advance() counts, and writes rates and other scalars to memory that
  /// the kernels of apply() read. A replay of apply() uses the new scalars.
  void advance();
  /// Updates the parameters of `model` by their gradients.
  template <class Model>
  void apply(Model& model, const Model& gradient, const ApplyOptions& options = {}) {
    apply_to(detail::parts_of(model), detail::parts_of(gradient), options);
  }
  /// The same for lists of parameters.
  void apply_to(const detail::Parts& model, const detail::ConstParts& gradient, const ApplyOptions& options = {});
  std::uint64_t steps() const;       ///< steps made so far
  void rewind(std::uint64_t steps);  ///< sets the number of steps; parameters and state are unchanged
  double rate() const;               ///< of the next step, for parameters in no group
  /// Allocates the state for the model's parameters; otherwise the first step does.
  void prepare(const detail::Parts& model);
  void unshare();                             ///< copies state that is shared with copies of this optimiser
  std::vector<std::string> patterns() const;  ///< of the groups, for pack
  static bool optional_array(std::string_view name) { return name == "idle"; }  ///< files may lack it (load_arrays)

 protected:
  /// Settings of one group for parameters with the same number of steps, `step`, which counts from 1.
  struct Settings {
    std::uint64_t step = 1;
    double lr = 0, weight_decay = 0;
  };
  /// Step-dependent numbers, as a kernel reads them: arrays of one element.
  using Scalars = std::vector<Array>;
  /// New values, to be written at once.
  struct Updated {
    Array weight, first = {}, second = {};
  };
  Optimiser(const detail::ConstParts& parts, Rate lr, double weight_decay, std::vector<ParameterGroup> groups,
            int slots);
  Optimiser(const Optimiser&);
  Optimiser(Optimiser&&) noexcept;
  Optimiser& operator=(const Optimiser&);
  Optimiser& operator=(Optimiser&&) noexcept;

  virtual std::vector<double> scalars(const Settings& settings) const = 0;
  /// The scalars for `skipped` fewer steps; `skipped` has their dtype.
  virtual Scalars without(const Scalars& scalars, const Array& skipped) const = 0;
  virtual Updated update(const Array& weight, const Array& gradient, const Array& first, const Array& second,
                         const Scalars& scalars) const = 0;

  Array step_;                                   ///< i64 of one element, on the host
  std::map<std::string, Array> first_, second_;  ///< state of each parameter, by path
  /// i64 (parameters, 3), on the host, ordered by path: Idle of each parameter that has state.
  Array idle_;

 private:
  struct Item;
  /// Steps of the optimiser that skipped a parameter because it had no gradient.
  struct Idle {
    std::int64_t steps = 0;  ///< idle steps before the last gradient
    std::int64_t since = 0;  ///< first step of the current idle period; 0: it had a gradient in the last step
    /// skipped steps (ApplyOptions) among them; during an idle period, minus those before it
    std::int64_t skipped = 0;
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

  std::vector<ParameterGroup> groups_;  ///< the last one contains all other parameters
  int slots_;
  std::map<std::string, Idle> idle_of_;   ///< idle_, by path
  std::vector<std::int64_t> idle_steps_;  ///< begins with 0; distinct Idle::steps of parameters that had a gradient
  std::uint64_t now_ = 0;                 ///< steps(), without reading device memory
  std::map<Place, Array> numbers_;        ///< scalars of the current step: for each of idle_steps_ and each group
};

/// Options of Sgd.
struct SgdOptions {
  Rate lr = 1e-3;                           ///< The learning rate.
  double momentum = 0;                      ///< Factor of earlier gradients.
  double dampening = 0;                     ///< Fraction by which the new gradient is reduced.
  double weight_decay = 0;                  ///< Multiplied by the parameter and added to the gradient.
  bool nesterov = false;                    ///< needs momentum, and no dampening
  std::vector<ParameterGroup> groups = {};  ///< Settings for groups of parameters.
};
/// Stochastic gradient descent with momentum (Polyak 1964; Sutskever et al., "On the importance of initialization and
/// momentum in deep learning", 2013): b = momentum b + (1 - dampening) g, in the first step b = g; w = w - lr b, or
/// with nesterov w - lr (g + momentum b). Weight decay adds weight_decay w to g.
class Sgd : public Optimiser {
 public:
  /// Creates an optimiser for the model's parameters.
  template <class Model>
  explicit Sgd(const Model& model, SgdOptions options = {}) : Sgd(detail::parts_of(model), std::move(options)) {}
  /// The state that checkpoints contain.
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
  double beta1 = 0.9, beta2 = 0.999;        ///< Decay of the running mean of gradients, and of their squares.
  double epsilon = 1e-8;                    ///< Added to the root of the second moment.
  double weight_decay = 0;                  ///< Multiplied by the parameter and added to the gradient.
  std::vector<ParameterGroup> groups = {};  ///< Settings for groups of parameters.
};
/// Kingma and Ba, "Adam: a method for stochastic optimization" (2015). m = beta1 m + (1 - beta1) g, v = beta2 v +
/// (1 - beta2) g^2, w = w - lr / (1 - beta1^t) m / (sqrt(v / (1 - beta2^t)) + epsilon). Weight decay adds weight_decay
/// w to g.
class Adam : public Optimiser {
 public:
  /// Creates an optimiser for the model's parameters.
  template <class Model>
  explicit Adam(const Model& model, AdamOptions options = {})
      : Adam(detail::parts_of(model), std::move(options), false) {}
  /// The state that checkpoints contain.
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
  Rate lr = 1e-3;                     ///< The learning rate.
  double beta1 = 0.9, beta2 = 0.999;  ///< Decay of the running mean of gradients, and of their squares.
  double epsilon = 1e-8;              ///< Added to the root of the second moment.
  /// Multiplied by the learning rate and the parameter, and subtracted from the parameter.
  double weight_decay = 1e-2;
  std::vector<ParameterGroup> groups = {};  ///< Settings for groups of parameters.
};
/// Loshchilov and Hutter, "Decoupled weight decay regularization" (2019): Adam, but first w = w - lr weight_decay w.
class AdamW : public Adam {
 public:
  /// Creates an optimiser for the model's parameters.
  template <class Model>
  explicit AdamW(const Model& model, AdamWOptions o = {})
      : Adam(detail::parts_of(model),
             {std::move(o.lr), o.beta1, o.beta2, o.epsilon, o.weight_decay, std::move(o.groups)}, true) {}
};

}  // namespace tessera
