// SPDX-License-Identifier: Apache-2.0
// Layers, optimisers and trainers. A model is a Python object whose layers are the C++ layers (nn/__init__.py collects
// them), so that initial values, gradients and recorded steps are those of C++ models.
#include <pybind11/stl.h>

#include "core.h"
#include "tessera/base/error.h"
#include "tessera/nn/attention.h"
#include "tessera/nn/fit_loop.h"
#include "tessera/nn/images.h"
#include "tessera/nn/layers.h"
#include "tessera/nn/norms.h"
#include "tessera/nn/trainer_base.h"

namespace tessera::python {

namespace {

/// A layer of any type.
class AnyLayer {
 public:
  virtual ~AnyLayer() = default;
  virtual Array call(const Array& x) const = 0;
  virtual detail::Parts parts() = 0;
  virtual void set_up(const Path& at, const SetupOptions& options) = 0;
  virtual Shape output_shape(const Shape& input) const = 0;  ///< empty: unknown
};
template <class L>
class LayerOf : public AnyLayer {
 public:
  explicit LayerOf(L layer) : layer_(std::move(layer)) {}
  Array call(const Array& x) const override { return layer_(x); }
  detail::Parts parts() override { return detail::parts_of(layer_); }
  void set_up(const Path& at, const SetupOptions& options) override {
    detail::set_up_part(layer_, at, options.input);
    detail::FillVisitor fill{options};
    detail::Traversal("setup").visit(layer_, fill, at);
  }
  Shape output_shape(const Shape& input) const override {
    if constexpr (detail::HasOutputShape<L>) return input.empty() ? Shape{} : layer_.output_shape(input);
    return {};
  }

 private:
  L layer_;
};

/// An array of a model that is not part of a layer.
struct FreeParameter {
  Parameter value;
  Array operator()(const Array& x) const { return x; }
};
struct FreeState {
  StateArray value;
  Array operator()(const Array& x) const { return x; }
};

using LayerPointer = std::shared_ptr<AnyLayer>;
template <class L>
LayerPointer make_layer(L layer) {
  return std::make_shared<LayerOf<L>>(std::move(layer));
}

/// Calls `f` with the path that has these components.
template <class F>
void with_path(const Path& outer, const py::tuple& names, std::size_t i, F&& f) {
  if (i == names.size()) return f(outer);
  const py::handle name = names[i];
  if (PyLong_Check(name.ptr())) return with_path(Path(outer, name.cast<std::size_t>()), names, i + 1, f);
  const auto text = name.cast<std::string>();
  with_path(Path(outer, text), names, i + 1, f);
}

Extents2d extents_of(const py::object& object) {
  if (PyIndex_Check(object.ptr())) return object.cast<std::int64_t>();
  const auto pair = object.cast<std::pair<std::int64_t, std::int64_t>>();
  return {pair.first, pair.second};
}
std::optional<Extents2d> optional_extents(const py::object& object) {
  return object.is_none() ? std::nullopt : std::optional(extents_of(object));
}

/// The arrays of several layers. The layers are kept alive.
struct Parts {
  std::vector<LayerPointer> layers;
  detail::Parts parts;

  explicit Parts(const std::vector<std::pair<std::string, LayerPointer>>& named) {
    for (const auto& [path, layer] : named) {
      layers.push_back(layer);
      for (auto& [name, part] : layer->parts()) parts.emplace_back(path.empty() ? name : path + "." + name, part);
    }
  }
  detail::ConstParts readable() const { return {parts.begin(), parts.end()}; }
};

/// Trains the layers of a Python model in place.
class PythonTrainer : public TrainerBase {
 public:
  PythonTrainer(Parts parts, AnyOptimiser optimiser, std::shared_ptr<const py::object> loss,
                const TrainerOptions& options)
      : TrainerBase(std::move(optimiser), options), all_(std::move(parts)), loss_(std::move(loss)), held_(shapes()) {
    begin(all_.parts);
  }
  ~PythonTrainer() override { forget(); }
  Array step(const std::vector<Array>& batch) { return step_arrays(batch); }

 private:
  void hold(std::size_t slot, std::span<const Array> arrays) override {
    held_[slot].assign(arrays.begin(), arrays.end());
  }
  void release(std::size_t slot) noexcept override { held_[slot].clear(); }
  Array call_loss(std::size_t slot) {
    const py::gil_scoped_acquire held;
    py::tuple batch(held_[slot].size());
    for (std::size_t i = 0; i < held_[slot].size(); ++i) batch[i] = wrap(held_[slot][i]);
    const py::object loss = (*loss_)(*batch);
    return array_of(loss, "the result of the loss function");
  }
  Array loss_of(std::size_t slot) override { return call_loss(slot); }
  void gradient_of(std::size_t slot, const UseGradient& use) override {
    // During the call of the loss, the model has leaves in place of its parameters.
    struct Restore {
      std::vector<std::pair<Array*, Array>> values;
      ~Restore() {
        for (auto& [to, value] : values) *to = std::move(value);
      }
    };
    detail::Leaves leaves;
    Array loss;
    {
      Restore before;
      for (const auto& [path, part] : all_.parts) {
        if (!differentiable(*part)) continue;
        Array& array = *part;
        before.values.emplace_back(&array, array);
        array = leaves.add(array, gradient_dtype(*part));
      }
      loss = call_loss(slot);
    }
    std::vector<Array> adjoints =
        leaves.adjoints(scaled(loss), detail::unit_adjoint("Trainer", loss), true, adjoint_ready());
    std::vector<Parameter> gradients;
    gradients.reserve(all_.parts.size());
    detail::Parts named;
    std::size_t next = 0;
    for (const auto& [path, part] : all_.parts) {
      Array gradient =
          differentiable(*part) ? std::move(adjoints[next++]) : Array::empty({0}, part->dtype(), part->device());
      named.emplace_back(path, &gradients.emplace_back(std::move(gradient)));
    }
    use(leaves.detach(loss), named);
  }

  Parts all_;
  std::shared_ptr<const py::object> loss_;
  std::vector<std::vector<Array>> held_;
};

Rate rate_of(const py::object& object) {
  if (!PyCallable_Check(object.ptr())) return object.cast<double>();
  return Rate([f = share(object)](std::uint64_t step) {
    const py::gil_scoped_acquire held;
    return (*f)(step).cast<double>();
  });
}

AnyOptimiser optimiser_of(const Parts& parts, const std::string& kind, const py::dict& o) {
  const auto number = [&](const char* name, double otherwise) {
    return o.contains(name) ? o[name].cast<double>() : otherwise;
  };
  const Rate lr = o.contains("lr") ? rate_of(o["lr"]) : Rate(1e-3);
  if (kind == "sgd")
    return Sgd(parts.readable(), SgdOptions{.lr = lr,
                                            .momentum = number("momentum", 0),
                                            .dampening = number("dampening", 0),
                                            .weight_decay = number("weight_decay", 0),
                                            .nesterov = o.contains("nesterov") && o["nesterov"].cast<bool>()});
  const bool decoupled = kind == "adamw";
  return Adam(parts.readable(),
              {.lr = lr,
               .beta1 = number("beta1", 0.9),
               .beta2 = number("beta2", 0.999),
               .epsilon = number("epsilon", 1e-8),
               .weight_decay = number("weight_decay", decoupled ? 1e-2 : 0)},
              decoupled);
}

TrainerOptions trainer_options(const py::dict& o) {
  TrainerOptions out;
  for (const auto& [key, value] : o) {
    const std::string name = py::str(key);
    if (value.is_none()) continue;
    if (name == "seed")
      out.seed = value.cast<std::uint64_t>();
    else if (name == "clip_norm")
      out.clip_norm = value.cast<double>();
    else if (name == "clip_value")
      out.clip_value = value.cast<double>();
    else if (name == "accumulate")
      out.accumulate = value.cast<std::int64_t>();
    else if (name == "recorded")
      out.recorded = value.cast<bool>();
    else if (name == "check_finite")
      out.check_finite = value.cast<bool>();
    else
      throw py::type_error("unknown option '" + name + "' of Trainer");
  }
  return out;
}

py::dict progress_of(const FitProgress& p) {
  py::dict out;
  out["step"] = p.step, out["last_step"] = p.last_step, out["epoch"] = p.epoch, out["last_epoch"] = p.last_epoch;
  out["loss"] = p.loss, out["rate"] = p.rate, out["seconds"] = p.seconds, out["over"] = p.over;
  out["figures"] = std::map<std::string, double>(p.figures.begin(), p.figures.end());
  return out;
}

/// The loop of fit(), which calls Python functions.
std::unique_ptr<detail::FitLoop> fit_loop(PythonTrainer& trainer, std::uint64_t epochs, std::uint64_t steps,
                                          const py::object& validation, std::uint64_t validate_every,
                                          const py::dict& early, const py::object& progress, const py::object& on_step,
                                          const std::string& csv, const std::string& checkpoint, bool resume) {
  detail::FitSettings s;
  s.epochs = epochs, s.steps = steps, s.validate_every = validate_every;
  s.csv = csv, s.checkpoint = checkpoint, s.resume = resume;
  if (!validation.is_none())
    s.validate = [f = share(validation)]() -> Figures {
      const Inference mode;
      const py::gil_scoped_acquire held;
      Figures out;
      for (const auto& [name, value] : (*f)().cast<py::dict>())
        out.emplace_back(py::str(name), value.attr("__float__")().cast<double>());
      return out;
    };
  if (early.size() > 0)
    s.early_stopping = EarlyStopping{.figure = early["figure"].cast<std::string>(),
                                     .patience = early["patience"].cast<std::uint64_t>(),
                                     .min_delta = early["min_delta"].cast<double>(),
                                     .greatest = early["greatest"].cast<bool>()};
  if (!progress.is_none())
    s.callbacks.progress = [f = share(progress)](const FitProgress& p) {
      const py::gil_scoped_acquire held;
      (*f)(progress_of(p));
    };
  if (!on_step.is_none())
    s.callbacks.step = [f = share(on_step)](std::uint64_t step) {
      const py::gil_scoped_acquire held;
      return (*f)(step).ptr() != Py_False;
    };
  return without_gil([&] { return std::make_unique<detail::FitLoop>(trainer, std::move(s)); });
}

py::dict result_of(const FitResult& r) {
  py::dict out;
  out["end"] = r.end == FitResult::End::done ? "done" : r.end == FitResult::End::early ? "early" : "stopped";
  out["steps"] = r.steps, out["epochs"] = r.epochs, out["loss"] = r.loss, out["seconds"] = r.seconds;
  out["figures"] = std::map<std::string, double>(r.figures.begin(), r.figures.end());
  return out;
}

}  // namespace

void define_training(py::module_& m) {
  py::class_<AnyLayer, LayerPointer>(m, "Layer")
      .def("call", [](const AnyLayer& l, const Array& x) { return may_wait([&] { return l.call(x); }); })
      .def("set_up",
           [](AnyLayer& l, const py::tuple& names, const py::object& input, std::uint64_t seed,
              const py::object& dtype) {
             const SetupOptions options{
                 .seed = seed, .input = input.is_none() ? Shape{} : shape_of(input), .dtype = dtype_of(dtype)};
             with_path(Path(), names, 0, [&](const Path& at) { l.set_up(at, options); });
           })
      .def("output_shape",
           [](const AnyLayer& l, const py::object& input) -> py::object {
             const Shape shape = input.is_none() ? Shape{} : l.output_shape(shape_of(input));
             return shape.empty() ? py::object(py::none()) : py::object(shape_object(shape));
           })
      .def("parts",
           [](AnyLayer& l) {
             py::list out;
             for (const auto& [name, part] : l.parts())
               if (!part->empty()) out.append(py::make_tuple(name, wrap(Array(*part)), part->state(), part->frozen()));
             return out;
           })
      .def("set",
           [](AnyLayer& l, const std::string& name, const Array& value) {
             for (const auto& [known, part] : l.parts())
               if (known == name) {
                 static_cast<Array&>(*part) = value;
                 return;
               }
             fail<ArgumentError>(
                 {.operation = "set", .with = {{"name", name}}, .wrong = "the layer has no array of this name"});
           })
      .def("set_frozen", [](AnyLayer& l, bool frozen) {
        for (const auto& [name, part] : l.parts())
          if (!part->state()) part->set_frozen(frozen);
      });

  m.def("dense", [](std::int64_t inputs, std::int64_t outputs, bool bias) {
    return make_layer(Dense{.inputs = inputs, .outputs = outputs, .with_bias = bias});
  });
  m.def("embedding",
        [](std::int64_t count, std::int64_t size) { return make_layer(Embedding{.count = count, .size = size}); });
  m.def("dropout", [](double p) { return make_layer(Dropout{.p = p}); });
  m.def("flatten", [] { return make_layer(Flatten{}); });
  m.def("conv2d", [](std::int64_t in, std::int64_t out, const py::object& kernel, const py::object& stride,
                     const py::object& padding, const py::object& dilation, std::int64_t groups, bool bias) {
    return make_layer(Conv2d{.in = in,
                             .out = out,
                             .kernel = extents_of(kernel),
                             .stride = extents_of(stride),
                             .padding = extents_of(padding),
                             .dilation = extents_of(dilation),
                             .groups = groups,
                             .with_bias = bias});
  });
  m.def("max_pool2d", [](const py::object& kernel, const py::object& stride, const py::object& padding) {
    return make_layer(
        MaxPool2d{.kernel = extents_of(kernel), .stride = optional_extents(stride), .padding = extents_of(padding)});
  });
  m.def("average_pool2d", [](const py::object& kernel, const py::object& stride, const py::object& padding) {
    return make_layer(AveragePool2d{
        .kernel = extents_of(kernel), .stride = optional_extents(stride), .padding = extents_of(padding)});
  });
  m.def("batch_norm", [](std::int64_t channels, double epsilon, double momentum, bool affine) {
    return make_layer(BatchNorm{.channels = channels, .epsilon = epsilon, .momentum = momentum, .affine = affine});
  });
  m.def("layer_norm", [](const py::object& shape, double epsilon, bool affine, bool bias) {
    return make_layer(LayerNorm{
        .shape = shape.is_none() ? Shape{} : shape_of(shape), .epsilon = epsilon, .affine = affine, .with_bias = bias});
  });
  m.def("rms_norm",
        [](std::int64_t size, double epsilon) { return make_layer(RmsNorm{.size = size, .epsilon = epsilon}); });
  m.def("multi_head_attention", [](std::int64_t size, std::int64_t heads, bool causal, bool bias) {
    return make_layer(MultiHeadAttention{.size = size, .heads = heads, .causal = causal, .with_bias = bias});
  });
  m.def("parameter", [](const Array& value) { return make_layer(FreeParameter{Parameter(value)}); });
  m.def("state", [](const Array& value) { return make_layer(FreeState{StateArray(value)}); });

  py::class_<PythonTrainer>(m, "Trainer")
      .def(py::init([](const std::vector<std::pair<std::string, LayerPointer>>& layers, const std::string& kind,
                       const py::dict& optimiser, const py::function& loss, const py::dict& options) {
        Parts parts(layers);
        AnyOptimiser with = optimiser_of(parts, kind, optimiser);
        const TrainerOptions how = trainer_options(options);
        auto shared = share(loss);
        return without_gil(
            [&] { return std::make_unique<PythonTrainer>(std::move(parts), std::move(with), std::move(shared), how); });
      }))
      .def("step",
           [](PythonTrainer& t, const std::vector<Array>& batch) { return without_gil([&] { return t.step(batch); }); })
      .def("check", [](PythonTrainer& t) { without_gil([&] { t.check(); }); })
      .def("mean_loss", [](PythonTrainer& t) { return without_gil([&] { return t.mean_loss(); }); })
      .def("save", [](PythonTrainer& t, const std::string& path) { without_gil([&] { t.save(path); }); })
      .def("load", [](PythonTrainer& t, const std::string& path) { without_gil([&] { t.load(path); }); })
      .def("set_position",
           [](PythonTrainer& t, std::uint64_t epoch, std::uint64_t batch) {
             t.set_position({epoch, batch});
           })
      .def("position", [](const PythonTrainer& t) { return std::pair(t.position().epoch, t.position().batch); })
      .def_property_readonly("steps", [](const PythonTrainer& t) { return t.steps(); })
      .def_property_readonly("replays", [](const PythonTrainer& t) { return t.replays(); })
      .def_property_readonly("rate", [](const PythonTrainer& t) { return t.rate(); })
      .def_property_readonly("device", [](const PythonTrainer& t) { return t.device(); })
      .def_property_readonly("not_recorded", [](const PythonTrainer& t) { return t.not_recorded(); });
  py::class_<detail::FitLoop>(m, "FitLoop")
      .def(py::init(&fit_loop), py::keep_alive<1, 2>())
      .def("more", [](detail::FitLoop& l) { return without_gil([&] { return l.more(); }); })
      .def("after_step", [](detail::FitLoop& l) { return without_gil([&] { return l.after_step(); }); })
      .def("end_epoch", [](detail::FitLoop& l) { return without_gil([&] { return l.end_epoch(); }); })
      .def("finish", [](detail::FitLoop& l) { return result_of(without_gil([&] { return l.finish(); })); });
  m.def("schedule", [](const std::string& kind, double rate, std::uint64_t steps, std::uint64_t warmup, double final) {
    const ScheduleOptions o{.steps = steps, .warmup = warmup, .final = final};
    const Rate made = kind == "cosine"   ? cosine_rate(rate, o)
                      : kind == "linear" ? linear_rate(rate, o)
                                         : constant_rate(rate, o);
    return py::cpp_function([made](std::uint64_t step) { return made.at(step); });
  });
}

}  // namespace tessera::python
