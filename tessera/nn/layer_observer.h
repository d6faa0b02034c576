// SPDX-License-Identifier: Apache-2.0
// Observes the layers of a model while it runs (nn/compile.h), and places layers on devices. Internal.
#pragma once

#include <optional>

#include "tessera/base/callback.h"
#include "tessera/nn/layers.h"

namespace tessera::detail {

/// Describes a layer that a Sequential calls.
struct ObservedLayer {
  /// The index in the Sequential, "0". It is prefixed with the path of the Sequential if that is known: "layers.0".
  std::string path;
  std::string_view kind;     ///< name of the layer's type
  std::uint64_t bytes = 0;   ///< size of its parameters and state
  DType dtype = DType::f32;  ///< dtype of its largest array
  bool packed = false;
  bool is_sequential = false;  ///< the layer is a Sequential; its own layers are reported as well
};

/// Callbacks for layers that a Sequential calls on this thread.
class LayerObserver {
 public:
  virtual ~LayerObserver() = default;
  /// Called before the layer runs. Returns the array that replaces x as the layer's input.
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

using PartFunction = Callback<void(ModelArray&, const Path&)>;
/// Moves the arrays of each layer to the layer's device. Shared arrays remain shared. `parts(layer, use)` visits the
/// arrays of a layer. Throws ArgumentError if the number of devices differs from the number of layers, or if layers on
/// different devices share an array. In that case no array is moved.
void place_layers(const std::vector<Device>& devices, std::size_t layers,
                  const Callback<void(std::size_t layer, const PartFunction& use)>& parts);

/// Returns the device of the layer's first array, or std::nullopt if the layer has no arrays.
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

/// Returns the type name of a layer without the namespace: "Dense".
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
