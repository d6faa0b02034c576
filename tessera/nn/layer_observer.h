// SPDX-License-Identifier: Apache-2.0
// Who looks at a model layer by layer while it is called (nn/compile.h), and where layers are. Internal.
#pragma once

#include <functional>
#include <optional>

#include "tessera/nn/layers.h"

namespace tessera::detail {

/// A layer as a Sequential calls it.
struct ObservedLayer {
  std::string path;          ///< "0", or behind the path of its Sequential: "layers.0"
  std::string_view kind;     ///< its type's name
  std::uint64_t bytes = 0;   ///< of its parameters and state
  DType dtype = DType::f32;  ///< of the largest of them
  bool packed = false;
  bool is_sequential = false;  ///< it is a Sequential, whose own layers are told of
};

/// Is told of the layers that Sequentials call on its thread.
class LayerObserver {
 public:
  virtual ~LayerObserver() = default;
  /// Gives what the layer is to be given in place of x.
  virtual Array before(const ObservedLayer& layer, const Array& x) = 0;
  virtual void after(const ObservedLayer& layer, const Array& y) = 0;
};
extern constinit thread_local LayerObserver* layer_observer;

class LayerObserverScope {
 public:
  explicit LayerObserverScope(LayerObserver* watch) : before_(std::exchange(layer_observer, watch)) {}
  ~LayerObserverScope() { layer_observer = before_; }
  LayerObserverScope(const LayerObserverScope&) = delete;
  LayerObserverScope& operator=(const LayerObserverScope&) = delete;

 private:
  LayerObserver* const before_;
};

using PartFunction = std::function<void(ModelArray&, const Path&)>;
/// Moves the arrays of each layer to its device; what stands in several places stays one. ArgumentError, and nothing is
/// moved, if there are not as many devices as layers, or an array stands in layers of different ones. `parts(layer,
/// use)` goes over the arrays of one.
void place_layers(const std::vector<Device>& devices, std::size_t layers,
                  const std::function<void(std::size_t layer, const PartFunction& use)>& parts);

/// Where the layer's first array is; nothing of one without arrays.
template <class Layer>
std::optional<Device> device_of_layer(const Layer& layer) {
  std::optional<Device> found;
  for_each_part(layer, [&](const ModelArray& part, const Path&) {
    if (!found && !part.empty()) found = part.device();
  });
  if constexpr (std::same_as<Layer, Dense>)
    if (!layer.packed.empty()) found = layer.packed->device();
  return found;
}

/// "Dense".
template <class Layer>
constexpr std::string_view kind_of_layer(const Layer&) {
  std::string_view name = type_name<Layer>();
  name.remove_prefix(name.starts_with("tessera::") ? 9 : 0);
  return name;
}

template <class Layer>
Array call_observed(const Layer& layer, std::size_t place, const std::string& above, const Array& x) {
  ObservedLayer w{.path = above.empty() ? std::to_string(place) : above + "." + std::to_string(place),
                  .kind = kind_of_layer(layer)};
  std::uint64_t largest = 0;
  for_each_part(layer, [&](const ModelArray& part, const Path&) {
    if (part.empty()) return;
    w.bytes += part.bytes();
    if (part.bytes() > largest) largest = part.bytes(), w.dtype = part.dtype();
  });
  if constexpr (std::same_as<Layer, Dense>)
    if (!layer.packed.empty()) w.bytes += layer.packed->bytes(), w.packed = true;
  w.is_sequential = requires { layer.layers(); };
  LayerObserver* const watch = layer_observer;
  if (w.is_sequential) return layer(x);
  Array y = layer(watch->before(w, x));
  watch->after(w, y);
  return y;
}

}  // namespace tessera::detail
