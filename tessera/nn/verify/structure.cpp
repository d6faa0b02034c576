// SPDX-License-Identifier: Apache-2.0
#include "tessera/nn/verify/structure.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <variant>

#include "tessera/array/host_bytes.h"
#include "tessera/base/sha256.h"
#include "tessera/nn/saved_model.h"
#include "tessera/nn/trainer_file.h"

namespace tessera::verification {

namespace {

using Json = nlohmann::ordered_json;

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

Json json_of(Extents2d e) { return Json::array({e.rows, e.columns}); }
Extents2d extents_of(const Json& j) { return {j.at(0).get<std::int64_t>(), j.at(1).get<std::int64_t>()}; }

UnsupportedLayer unsupported_layer(std::string type) {
  const bool compiled = type.ends_with("Compiled");
  return {std::move(type), compiled ? "it is a compiled model. Prove the original model instead"
                                    : "bounds of such layers are not supported"};
}

Json json_of(const Layers& layers);
Json json_of(const Layer& layer) {
  Json out = {{"kind", kind_of(layer)}, {"path", layer.path}};
  std::visit(Overloaded{[&](const Dense& l) {
    if (l.folded != Activation::none) out["folded"] = static_cast<int>(l.folded);
    if (!l.packed.empty()) out["packed"] = true;
                        },
                        [&](const Conv2d& l) {
    out["stride"] = json_of(l.stride), out["padding"] = json_of(l.padding);
    out["dilation"] = json_of(l.dilation), out["groups"] = l.groups;
                        },
                        [&](const BatchNorm& l) {
    out["epsilon"] = l.epsilon, out["folded"] = l.folded; },
                        [&](const LayerNorm& l) {
    out["shape"] = l.shape, out["epsilon"] = l.epsilon; },
                        [&](const RmsNorm& l) {
    out["epsilon"] = l.epsilon; },
                        [&]<class P>(const P& l)
                          requires(std::same_as<P, MaxPool2d> || std::same_as<P, AveragePool2d>)
                        {
                          out["kernel"] = json_of(l.kernel), out["stride"] = json_of(l.stride.value_or(l.kernel));
                          out["padding"] = json_of(l.padding);
}
, [&](const Softmax& l) { out["axis"] = l.axis; }, [&](const LeakyRelu& l) { out["slope"] = l.slope; },
    [&](const ResidualLayer& l) { out["layers"] = json_of(*l.inside); },
    [&](const UnsupportedLayer& l) { out["type"] = l.kind; }, [&]<class A>(const A& l) {
      if constexpr (requires { l.folded; })
        if (l.folded) out["folded"] = true;
    }
}  // namespace
   // sanitizer runtimes define these operators themselves
,
             layer.what);
return out;
}  // namespace tessera::verification
Json json_of(const Layers& layers) {
  Json out = Json::array();
  for (const Layer& layer : layers) out.push_back(json_of(layer));
  return out;
}

Layers layers_of_json(const Json& json);
Layer layer_of_json(const Json& j) {
  const std::string kind = j.at("kind").get<std::string>();
  Layer out{j.at("path").get<std::string>(), Flatten{}};
  const auto made = [&](auto layer) { out.what = std::move(layer); };
  const auto with_folded = [&](auto layer) {
    layer.folded = j.value("folded", false);
    out.what = layer;
  };
  const auto pool = [&](auto layer) {
    layer.kernel = extents_of(j.at("kernel")), layer.stride = extents_of(j.at("stride"));
    layer.padding = extents_of(j.at("padding"));
    out.what = layer;
  };
  if (kind == "Dense") {
    Dense d{};
    d.folded = static_cast<Activation>(std::clamp(j.value("folded", 0), 0, 3));
    if (j.value("packed", false)) return {out.path, UnsupportedLayer{kind, "its weight has 8-bit blocks"}};
    made(d);
  } else if (kind == "Conv2d") {
    made(Conv2d{.stride = extents_of(j.at("stride")),
                .padding = extents_of(j.at("padding")),
                .dilation = extents_of(j.at("dilation")),
                .groups = j.at("groups").get<std::int64_t>()});
  } else if (kind == "BatchNorm") {
    BatchNorm b{.epsilon = j.value("epsilon", 1e-5)};
    b.folded = j.value("folded", 0);
    made(b);
  } else if (kind == "LayerNorm") {
    made(LayerNorm{.shape = j.at("shape").get<Shape>(), .epsilon = j.at("epsilon").get<double>()});
  } else if (kind == "RmsNorm") {
    made(RmsNorm{.epsilon = j.value("epsilon", 1e-6)});
  } else if (kind == "MaxPool2d") {
    pool(MaxPool2d{});
  } else if (kind == "AveragePool2d") {
    pool(AveragePool2d{});
  } else if (kind == "Softmax") {
    made(Softmax{.axis = j.value("axis", -1)});
  } else if (kind == "Dropout") {
    made(Dropout{});
  } else if (kind == "Flatten") {
    made(Flatten{});
  } else if (kind == "Relu") {
    with_folded(Relu{});
  } else if (kind == "Gelu") {
    with_folded(Gelu{});
  } else if (kind == "Silu") {
    with_folded(Silu{});
  } else if (kind == "Tanh") {
    with_folded(Tanh{});
  } else if (kind == "Sigmoid") {
    with_folded(Sigmoid{});
  } else if (kind == "LeakyRelu") {
    made(LeakyRelu{.slope = j.value("slope", 0.01)});
  } else if (kind == "Residual") {
    made(ResidualLayer{std::make_shared<Layers>(layers_of_json(j.at("layers")))});
  } else {
    made(unsupported_layer(j.value("type", kind)));
  }
  return out;
}
Layers layers_of_json(const Json& json) {
  Layers out;
  for (const Json& j : json) out.push_back(layer_of_json(j));
  return out;
}

/// Converts a list of kinds such as "dense,relu,softmax" to JSON.
Json json_of_words(const std::string& text, const SafetensorsFile& file) {
  static const std::map<std::string, const char*> kinds = {
      {"dense", "Dense"},     {"relu", "Relu"},          {"gelu", "Gelu"},       {"silu", "Silu"},
      {"tanh", "Tanh"},       {"sigmoid", "Sigmoid"},    {"softmax", "Softmax"}, {"flatten", "Flatten"},
      {"dropout", "Dropout"}, {"batchnorm", "BatchNorm"}};
  Json out = Json::array();
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string word = text.substr(at, end - at);
    const auto found = kinds.find(word);
    if (found == kinds.end())
      fail<FormatError>({.operation = "read a model's layers",
                         .with = {{"file", file.name()}, {"layer", word}},
                         .wrong = "unknown layer",
                         .remedy = "Write kinds separated by commas (dense, relu, gelu, silu, tanh, sigmoid, softmax, "
                                   "flatten, dropout, batchnorm), or save the model with its description: "
                                   "save_model(model, file, {{\"tessera.layers\", describe(model)}})"});
    out.push_back({{"kind", found->second}, {"path", std::to_string(out.size())}});
    at = end + 1;
  }
  return out;
}

/// Visits the arrays that a layer may have, by name. Optional arrays are visited last.
template <class Use>
void for_each_layer_array(Layer& layer, const Use& use) {
  std::visit(Overloaded{[&](Dense& l) { use("weight", l.weight, 2, true), use("bias", l.bias, 1, false); },
                        [&](Conv2d& l) { use("weight", l.weight, 4, true), use("bias", l.bias, 1, false); },
                        [&](BatchNorm& l) {
                          use("weight", l.weight, 1, false), use("bias", l.bias, 1, false);
                          use("running_mean", l.running_mean, 1, true);
                          use("running_variance", l.running_variance, 1, true);
                        },
                        [&](LayerNorm& l) {
                          use("weight", l.weight, static_cast<int>(l.shape.size()), false);
                          use("bias", l.bias, static_cast<int>(l.shape.size()), false);
                        },
                        [&](RmsNorm& l) { use("weight", l.weight, 1, true); }, [&](auto&) {}},
             layer.what);
}

/// Loads the arrays of the layers from the file. Names in the file start with `prefix`.
void load(Layers& layers, const SafetensorsFile& file, const std::string& prefix, Device device) {
  for (Layer& layer : layers) {
    if (auto* around = std::get_if<ResidualLayer>(&layer.what)) load(*around->inside, file, prefix, device);
    for_each_layer_array(layer, [&](const char* name, auto& part, int rank, bool needed) {
      const std::string path = under(layer.path, name);
      const SafetensorsTensor* found = file.find(prefix + path);
      if (found == nullptr && !needed) return;
      if (found == nullptr || static_cast<int>(found->shape.size()) != rank)
        fail<FormatError>({.operation = "read a model's layers",
                           .with = {{"file", file.name()}, {"array", path}, {"layer", kind_of(layer)}},
                           .wrong = found == nullptr ? "the file does not contain this array"
                                                     : "the array has " + std::to_string(found->shape.size()) +
                                                           " dimensions, not " + std::to_string(rank)});
      part = file.load(prefix + path, device);
    });
    if (auto* norm = std::get_if<LayerNorm>(&layer.what)) norm->affine = !norm->weight.empty();
  }
}

}  // namespace
   // sanitizer runtimes define these operators themselves

std::string under(const std::string& path, const std::string& name) { return path.empty() ? name : path + "." + name; }

LayerList::LayerList() : layers_(std::make_shared<Layers>()) {}
LayerList::LayerList(Layers layers) : layers_(std::make_shared<Layers>(std::move(layers))) {}

void LayerList::add(const std::string& path, const Dense& layer) { layers_->push_back({path, layer}); }
void LayerList::add(const std::string& path, const Conv2d& layer) { layers_->push_back({path, layer}); }
void LayerList::add(const std::string& path, const BatchNorm& layer) { layers_->push_back({path, layer}); }
void LayerList::add(const std::string& path, const LayerNorm& layer) { layers_->push_back({path, layer}); }
void LayerList::add(const std::string& path, const RmsNorm& layer) { layers_->push_back({path, layer}); }
void LayerList::add(const std::string& path, const MaxPool2d& layer) { layers_->push_back({path, layer}); }
void LayerList::add(const std::string& path, const AveragePool2d& layer) { layers_->push_back({path, layer}); }
void LayerList::add(const std::string& path, const Softmax& layer) { layers_->push_back({path, layer}); }
void LayerList::add(const std::string& path, const Dropout& layer) { layers_->push_back({path, layer}); }
void LayerList::add(const std::string& path, const Flatten& layer) { layers_->push_back({path, layer}); }
void LayerList::add(const std::string& path, const Relu& layer) { layers_->push_back({path, layer}); }
void LayerList::add(const std::string& path, const Gelu& layer) { layers_->push_back({path, layer}); }
void LayerList::add(const std::string& path, const Silu& layer) { layers_->push_back({path, layer}); }
void LayerList::add(const std::string& path, const Tanh& layer) { layers_->push_back({path, layer}); }
void LayerList::add(const std::string& path, const Sigmoid& layer) { layers_->push_back({path, layer}); }
void LayerList::add(const std::string& path, const LeakyRelu& layer) { layers_->push_back({path, layer}); }

void LayerList::add_function(const std::string& path, const Elementwise& layer) {
  using Function = Array (*)(Array);
  const Function given = layer.function;
  Layer out{path, UnsupportedLayer{"Elementwise", "its function is not relu, silu, gelu, tanh or sigmoid"}};
  if (given == static_cast<Function>(relu)) out.what = Relu{};
  if (given == static_cast<Function>(silu)) out.what = Silu{};
  if (given == static_cast<Function>(gelu)) out.what = Gelu{};
  if (given == static_cast<Function>(tanh)) out.what = Tanh{};
  if (given == static_cast<Function>(sigmoid)) out.what = Sigmoid{};
  layers_->push_back(std::move(out));
}

void LayerList::add_residual(const std::string& path, const LayerList& inside) {
  layers_->push_back({path, ResidualLayer{inside.layers_}});
}

void LayerList::add_unsupported(const std::string& path, std::string_view type) {
  layers_->push_back({path, unsupported_layer(std::string(type))});
}

std::string kind_of(const Layer& layer) {
  static constexpr const char* names[] = {"Dense",         "Conv2d",  "BatchNorm", "LayerNorm", "RmsNorm",  "MaxPool2d",
                                          "AveragePool2d", "Softmax", "Dropout",   "Flatten",   "Relu",     "Gelu",
                                          "Silu",          "Tanh",    "Sigmoid",   "LeakyRelu", "Residual", "other"};
  static_assert(std::size(names) == std::variant_size_v<decltype(Layer::what)>);
  return names[layer.what.index()];
}

void for_each_array_of(Layers& layers, const Callback<void(const std::string&, ModelArray&)>& use) {
  for (Layer& layer : layers) {
    if (auto* around = std::get_if<ResidualLayer>(&layer.what)) for_each_array_of(*around->inside, use);
    for_each_layer_array(layer, [&](const char* name, ModelArray& part, int, bool) {
      if (!part.empty()) use(under(layer.path, name), part);
    });
  }
}

std::map<std::string, ArrayDigest> digests_of(const Layers& layers) {
  std::map<std::string, ArrayDigest> out;
  Layers shared = layers;
  for_each_array_of(shared, [&](const std::string& path, const ModelArray& part) {
    std::string bytes;
    detail::append_bytes(bytes, part);
    out[path] = {std::string(dtype_name(part.dtype())), part.shape(), sha256(bytes)};
  });
  return out;
}

std::string text_of(const Layers& layers) { return json_of(layers).dump(); }

Layers load_layers(const std::string& path, std::string text, Device device) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  if (text.empty()) {
    const auto found = file.metadata().find("tessera.layers");
    if (found == file.metadata().end())
      fail<FormatError>({.operation = "read a model's layers",
                         .with = {{"file", path}},
                         .wrong = "the file does not describe its layers",
                         .remedy = "List them in order, as dense,relu,dense; or save the model with save_model(model, "
                                   "file, {{\"tessera.layers\", describe(model)}})"});
    text = found->second;
  }
  Layers out;
  try {
    out = layers_of_json(text.starts_with('[') ? Json::parse(text) : json_of_words(text, file));
  } catch (const nlohmann::json::exception& e) {
    fail<FormatError>(
        {.operation = "read a model's layers",
         .with = {{"file", path}},
         .wrong = std::string("the description of the layers is not one that describe(model) returns: ") + e.what()});
  }
  load(out, file, detail::is_trainer_file(file) ? std::string(detail::trainer_model_prefix) : "", device);
  detail::Parts parts;
  for_each_array_of(out, [&](const std::string& name, ModelArray& part) { parts.emplace_back(name, &part); });
  detail::load_parts(parts, path, {});
  return out;
}

Array run_layers(const Layers& layers, const Array& x) {
  Array y = x;
  for (const Layer& layer : layers)
    y = std::visit(Overloaded{[&](const ResidualLayer& l) -> Array { return y + run_layers(*l.inside, y); },
                              [&](const UnsupportedLayer& l) -> Array {
                                fail<ArgumentError>({.operation = "run a described model",
                                                     .with = {{"layer", layer.path}, {"kind", l.kind}},
                                                     .wrong = l.why});
                              },
                              [&](const auto& l) -> Array { return l(y); }},
                   layer.what);
  return y;
}

}  // namespace tessera::verification
