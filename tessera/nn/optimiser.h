// SPDX-License-Identifier: Apache-2.0
// Optimisers, with the names, arguments, defaults and formulas of PyTorch.
#pragma once

#include <map>
#include <optional>

#include "tessera/nn/parameter.h"
#include "tessera/nn/schedule.h"

namespace tessera {

/// Settings for the parameters whose path matches a pattern. Settings that are not given default to those of the
/// optimiser.
struct ParameterGroup {
  std::string pattern;                      ///< Matched against parameter paths; `*` matches any text.
  std::optional<Rate> lr = {};              ///< The group's learning rate.
  std::optional<double> weight_decay = {};  ///< The group's weight decay.
};

/// Options of Optimiser::apply.
struct ApplyOptions {
  /// u64 array with one element, which the kernels read. If it is not 0, they change nothing.
  std::optional<Array> stopped = {};
  std::optional<Array> scale = {};  ///< array with one element; gradients are multiplied by it
  /// One array for each array of the model, or an empty span. The new values are also written to it, rounded to its
  /// dtype. Empty arrays are skipped. Copies of packed parameters must be contiguous as well.
  std::span<const Array> copies = {};
  /// u64 array with one element: the number of counted steps that changed nothing because `stopped` was not 0.
  /// Step-dependent factors, such as Adam's bias correction, are computed without these steps. The learning-rate
  /// schedule includes them.
  std::optional<Array> skipped = {};
};

/// Base class of optimisers. `step` writes the parameters in place, so arrays that share their memory also change.
/// State is stored in f32, or in f64 for f64 parameters.
///
/// A parameter belongs to the first group whose pattern matches its path. Frozen parameters and parameters with an
/// empty gradient are skipped. As in PyTorch, step-dependent factors use each parameter's own number of steps. A
/// parameter that is unfrozen later therefore starts like a new one. One kernel updates all packed parameters (see
/// pack); each other parameter has its own kernel.
///
/// load_arrays loads a saved optimiser, also into a new one. for_each_array visits `step` first, then the state by
/// parameter path, `m["layers.1.weight"]`, and then `idle`. Files of earlier versions do not contain `idle`.
class Optimiser {
 public:
  virtual ~Optimiser();

  /// Updates the parameters once. `gradient` is a model whose arrays are gradients. Throws ArgumentError with the path
  /// if the shapes of a gradient and its parameter differ.
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
  /// First half of a step, for steps that are recorded. Increments the step number, and writes learning rates and other
  /// scalars to memory that the kernels of apply() read. A replay of apply() therefore uses the new scalars.
  void advance();
  /// Second half of a step: updates the parameters of `model` with their gradients.
  template <class Model>
  void apply(Model& model, const Model& gradient, const ApplyOptions& options = {}) {
    apply_to(detail::parts_of(model), detail::parts_of(gradient), options);
  }
  /// Like apply, for lists of parameters.
  void apply_to(const detail::Parts& model, const detail::ConstParts& gradient, const ApplyOptions& options = {});
  std::uint64_t steps() const;       ///< number of steps so far
  void rewind(std::uint64_t steps);  ///< sets the number of steps; does not change parameters or state
  double rate() const;               ///< learning rate of the next step, for parameters that belong to no group
  /// Allocates the state for the model's parameters. Without this call, the first step allocates it.
  void prepare(const detail::Parts& model);
  /// Allocates the state of the parameters for which a file with these array names has state, so that load_arrays can
  /// load a file into a new optimiser.
  void prepare_to_load(const std::vector<std::string>& names);
  void unshare();                             ///< copies the state if copies of this optimiser share it
  std::vector<std::string> patterns() const;  ///< patterns of the groups, for pack
  /// Returns true if files may lack this array; see load_arrays.
  static bool optional_array(std::string_view name) { return name == "idle"; }

 protected:
  /// Settings of one group for parameters with the same number of steps. `step` counts from 1.
  struct Settings {
    std::uint64_t step = 1;
    double lr = 0, weight_decay = 0;
  };
  /// Step-dependent numbers in the form in which kernels read them: arrays with one element.
  using Scalars = std::vector<Array>;
  /// New values of a parameter and its state. They are written together, in one launch.
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
  /// Returns the scalars for a step number that is smaller by `skipped`. `skipped` has the dtype of the scalars.
  virtual Scalars without(const Scalars& scalars, const Array& skipped) const = 0;
  virtual Updated update(const Array& weight, const Array& gradient, const Array& first, const Array& second,
                         const Scalars& scalars) const = 0;

  Array step_;                                   ///< i64 array with one element, on the host
  std::map<std::string, Array> first_, second_;  ///< state of each parameter, by path
  /// i64 (parameters, 3), on the host: the Idle of each parameter that has state, ordered by path.
  Array idle_;

 private:
  struct Item;
  /// Counts the steps in which the optimiser skipped a parameter because it had no gradient.
  struct Idle {
    std::int64_t steps = 0;  ///< idle steps before the last gradient
    std::int64_t since = 0;  ///< first step of the current idle period; 0 if it had a gradient in the last step
    /// Skipped steps (ApplyOptions) that were also idle. During an idle period, the number of skipped steps before the
    /// period is already subtracted.
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

  struct Declared {
    std::string path;
    Shape shape;
    DType dtype;
    Device device;
  };

  std::vector<Declared> declared_;      ///< the trained parameters of the constructor's model
  std::vector<ParameterGroup> groups_;  ///< the last one contains all other parameters
  int slots_;
  std::map<std::string, Idle> idle_of_;   ///< contents of idle_, by path
  std::vector<std::int64_t> idle_steps_;  ///< begins with 0; distinct Idle::steps of parameters that had a gradient
  std::uint64_t now_ = 0;                 ///< value of steps(), cached so that device memory need not be read
  std::map<Place, Array> numbers_;  ///< scalars of the current step, for each element of idle_steps_ and each group
};

/// Options of Sgd.
struct SgdOptions {
  Rate lr = 1e-3;                           ///< The learning rate.
  double momentum = 0;                      ///< Factor of earlier gradients.
  double dampening = 0;                     ///< Fraction by which new gradients are reduced.
  double weight_decay = 0;                  ///< Multiplied by the parameter and added to the gradient.
  bool nesterov = false;                    ///< Nesterov momentum; requires momentum and no dampening
  std::vector<ParameterGroup> groups = {};  ///< Settings for groups of parameters.
};
/// Stochastic gradient descent with momentum (Polyak 1964; Sutskever et al., "On the importance of initialization and
/// momentum in deep learning", 2013). The momentum is b = g in the first step, and b = momentum b + (1 - dampening) g
/// afterwards. The update is w = w - lr b, or w = w - lr (g + momentum b) with `nesterov`. Weight decay adds
/// weight_decay w to g.
class Sgd : public Optimiser {
 public:
  /// Creates an optimiser for the model's parameters.
  template <class Model>
  explicit Sgd(const Model& model, SgdOptions options = {}) : Sgd(detail::parts_of(model), std::move(options)) {}
  /// Creates an optimiser for these arrays.
  Sgd(const detail::ConstParts& parts, SgdOptions options);
  /// The state that is saved in checkpoints.
  auto fields() { return std::tuple(field("step", step_), field("momentum", first_), field("idle", idle_)); }

 private:
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
  double beta1 = 0.9, beta2 = 0.999;        ///< Decay rates of the running means of gradients and squared gradients.
  double epsilon = 1e-8;                    ///< Added to the root of the second moment.
  double weight_decay = 0;                  ///< Multiplied by the parameter and added to the gradient.
  std::vector<ParameterGroup> groups = {};  ///< Settings for groups of parameters.
};
/// Adam (Kingma and Ba, "Adam: a method for stochastic optimization", 2015). The moments are m = beta1 m + (1 - beta1)
/// g and v = beta2 v + (1 - beta2) g^2. The update is w = w - lr / (1 - beta1^t) m / (sqrt(v / (1 - beta2^t)) +
/// epsilon). Weight decay adds weight_decay w to g.
class Adam : public Optimiser {
 public:
  /// Creates an optimiser for the model's parameters.
  template <class Model>
  explicit Adam(const Model& model, AdamOptions options = {})
      : Adam(detail::parts_of(model), std::move(options), false) {}
  /// Creates an optimiser for these arrays. With `decoupled`, weight decay is that of AdamW.
  Adam(const detail::ConstParts& parts, AdamOptions options, bool decoupled);
  /// The state that is saved in checkpoints.
  auto fields() {
    return std::tuple(field("step", step_), field("m", first_), field("v", second_), field("idle", idle_));
  }

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
  double beta1 = 0.9, beta2 = 0.999;  ///< Decay rates of the running means of gradients and squared gradients.
  double epsilon = 1e-8;              ///< Added to the root of the second moment.
  /// Multiplied by the learning rate and the parameter, then subtracted from the parameter.
  double weight_decay = 1e-2;
  std::vector<ParameterGroup> groups = {};  ///< Settings for groups of parameters.
};
/// AdamW (Loshchilov and Hutter, "Decoupled weight decay regularization", 2019). Like Adam, but weight decay is applied
/// directly to the parameter before the update: w = w - lr weight_decay w.
class AdamW : public Adam {
 public:
  /// Creates an optimiser for the model's parameters.
  template <class Model>
  explicit AdamW(const Model& model, AdamWOptions o = {})
      : Adam(detail::parts_of(model),
             {std::move(o.lr), o.beta1, o.beta2, o.epsilon, o.weight_decay, std::move(o.groups)}, true) {}
};

}  // namespace tessera
