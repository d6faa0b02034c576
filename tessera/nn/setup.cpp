// SPDX-License-Identifier: Apache-2.0
#include "tessera/nn/setup.h"

namespace tessera {

void LayerPath::set(std::string text) { text_ = std::make_shared<const std::string>(std::move(text)); }

const std::string& LayerPath::text() const {
  static const std::string& none = *new std::string();
  return text_ ? *text_ : none;
}

std::int64_t LayerSetup::inputs(const char* layer, std::int64_t given, int axis) const {
  const std::string path = this->path();
  if (input_.empty() && given == 0)
    fail<ShapeError>({.operation = "setup",
                      .with = {{"path", path.empty() ? "the model" : path}, {"layer", layer}},
                      .wrong = "the shape of the layer's input is unknown",
                      .remedy = "Set the layer's input size when you create it, put the layer into a Sequential, or "
                                "pass the shape of one sample to setup as .input"});
  if (input_.empty()) return given;
  const auto d = static_cast<std::size_t>(normalise_axis("setup", axis, input_.size()));
  if (given != 0 && input_[d] != given)
    fail<ShapeError>({.operation = "setup",
                      .with = {{"path", path.empty() ? "the model" : path},
                               {"layer", layer},
                               {"takes", std::to_string(given)},
                               {"input of one sample", to_string(input_)}},
                      .wrong = "the layer's number of inputs differs from what the previous layer produces",
                      .remedy = "Change one of the two, or omit the layer's number of inputs so that it is inferred"});
  return input_[d];
}

namespace detail {

namespace {
/// Removes the last part of a path: "layers.1.weight" belongs to the layer "layers.1".
std::string above(const std::string& path) {
  const std::size_t dot = path.rfind('.');
  return dot == path.npos ? std::string() : path.substr(0, dot);
}
}  // namespace

void FillVisitor::operator()(LayerPath& path, const Path& at) const { path.set(above(at.text())); }

std::string layer_name(const char* kind, const std::string& array_path) {
  const std::string path = above(array_path);
  return path.empty() ? kind : std::string(kind) + " " + path;
}

void check_initialized(const char* kind, const ModelArray& array) {
  if (array.empty())
    fail<ArgumentError>({.operation = layer_name(kind, array.path()),
                         .wrong = "the layer has no parameters yet",
                         .remedy = "Call setup(model, {.seed, .input}) first"});
}

}  // namespace detail

}  // namespace tessera
