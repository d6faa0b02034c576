// SPDX-License-Identifier: Apache-2.0
// Options and reports of compile() (nn/compile.h), and its transformations of a model.
#pragma once

#include <map>
#include <optional>
#include <typeinfo>

#include "tessera/array/move.h"
#include "tessera/base/callback.h"
#include "tessera/base/enum_name.h"
#include "tessera/nn/images.h"
#include "tessera/nn/norms.h"
#include "tessera/nn/sequential.h"

namespace tessera {

/// Which transformations compile() may apply.
enum class CompileLevel : std::uint8_t {
  none,  ///< no recording and no fusion: each call runs the layers
  /// The pass is recorded, and relu is fused into the previous Dense. On the CPU, a Dense after relu skips the zeros of
  /// a single sample. Results are bit-identical to those of the model on that device.
  standard,
  aggressive,  ///< also fuses silu, gelu, and BatchNorm after Dense or Conv2d; results differ by rounding
};
/// The number format that a compiled model computes with.
enum class CompilePrecision : std::uint8_t {
  f32,    ///< parameters are not converted
  bf16,   ///< bf16 parameters, inputs and activations; products are accumulated, and norms computed, in f32
  f16,    ///< like bf16, but in f16
  mixed,  ///< like mixed-precision training with bf16: 16-bit copies of the parameters, f32 norms and inputs
  q8_0,   ///< Dense weights in blocks of 32 8-bit numbers with a common scale; f32 if the number of inputs is not a
          ///< multiple of 32
};
std::string_view compile_level_name(CompileLevel level);              ///< The level as one word, such as "standard".
std::string_view compile_precision_name(CompilePrecision precision);  ///< The precision as one word, such as "f16".

/// Options of compile().
struct CompileOptions {
  std::optional<Device> device = {};                   ///< default: the model's device
  CompileLevel level = CompileLevel::standard;         ///< Which transformations are applied.
  CompilePrecision precision = CompilePrecision::f32;  ///< The number format to compute with.
  /// Runs each layer on the device and on a reference device with the same random inputs, and compares the results.
  /// Also compares the whole pass with the original model. The reference is the interpreter, or the CPU for a model on
  /// the interpreter. Throws LayerFault with the layer if the results differ by more than rounding. The interpreter
  /// needs about a second for ten million multiplications.
  bool verify = false;
  /// Shape of one sample, as for setup(). By default, it is inferred from the first layer if that is a Dense. If the
  /// shape is known, compile() runs and records a pass of one sample, and the report is available immediately.
  Shape input = {};
  std::optional<Array> sample = {};  ///< a batch to use instead of random inputs, for example of token ids
  std::uint64_t seed = 1;            ///< seed of the random inputs
};

/// Describes how compile() changed a model.
struct CompileReport {
  /// Describes one layer.
  struct Layer {
    std::string path;           ///< path of the layer, such as "0"
    std::string kind;           ///< type of the layer, such as "Dense"
    std::uint64_t kernels = 0;  ///< number of kernel launches
    std::string computed_in;    ///< if there are no launches: the layer whose kernels also compute this layer
    std::uint64_t bytes = 0;    ///< size of parameters and state
    Device device;              ///< The device on which the layer runs.
    std::string note;           ///< changes, such as "includes BatchNorm 1" or "q8_0"
  };
  Device device;                                       ///< The device on which the model runs.
  CompileLevel level = CompileLevel::standard;         ///< The level of the compilation.
  CompilePrecision precision = CompilePrecision::f32;  ///< The precision of the compilation.
  Shape input;  ///< input shape of the profiled pass, including the batch; `kernels` refers to it. Empty before the
                ///< first pass
  std::vector<Layer> layers;  ///< The layers, in the order in which they run.
  std::uint64_t pieces = 0;   ///< operations in the recorded pass: launches, copies, fills
  bool recorded = false;      ///< True if the pass is recorded and replayed.
  bool one_call = false;      ///< the pass is submitted with one driver call
  std::string not_recorded;   ///< why the pass is not recorded; empty if it is
  /// With `verify`: largest difference in the result, relative to the largest element of the result.
  std::optional<double> worst;
};
std::string to_string(const CompileReport& report);  ///< Formats the report as a table.

/// Thrown if a layer's result on the device differs from the reference.
class LayerFault : public Error {
 public:
  /// Called by compile() with `verify`.
  LayerFault(const std::string& text, std::string layer, std::int64_t element)
      : Error(text), layer_(std::move(layer)), element_(element) {}
  const std::string& layer() const { return layer_; }  ///< path of the layer; "(whole)" for the recorded pass
  /// Index of the largest difference in the layer's result, in C order.
  std::int64_t element() const { return element_; }

 private:
  std::string layer_;
  std::int64_t element_;
};

class Compiled;

namespace detail {

using Pass = Callback<Array(const Array& x)>;
struct CompiledState;

/// Visits a model and records the input shape of its first layer if that layer is a Dense.
struct FirstLayer {
  struct leaves : ModelLeaves {
    template <class T>
    static constexpr bool is_leaf = std::same_as<T, Dense> || std::same_as<T, Conv2d> || std::same_as<T, Embedding>;
  };
  bool seen = false;
  Shape input = {};
  void operator()(const ModelArray&, const Path&) { seen = true; }
  void operator()(const Conv2d&, const Path&) { seen = true; }
  void operator()(const Embedding&, const Path&) { seen = true; }
  void operator()(const Dense& layer, const Path&) {
    if (!std::exchange(seen, true) && !layer.weight.empty()) input = {layer.weight.shape(1)};
  }
};

/// A layer of a Sequential that may be folded. The variant is empty for layers that cannot be folded.
struct FoldableLayer {
  explicit FoldableLayer(std::string_view kind_of_it) : kind(kind_of_it) {}
  std::string_view kind;
  template <class L>
  void set(L* found) {
    static_cast<void>((set_as<Dense>(found) || set_as<Conv2d>(found) || set_as<BatchNorm>(found) ||
                       set_as<Relu>(found) || set_as<Silu>(found) || set_as<Gelu>(found) ||
                       set_as<Elementwise>(found) || set_as<Dropout>(found)));
  }
  template <class T>
  T* as() const {
    return type != nullptr && *type == typeid(T) ? static_cast<T*>(layer) : nullptr;
  }

 private:
  template <class T, class L>
  bool set_as(L* found) {
    if constexpr (std::is_convertible_v<L*, T*>) {
      layer = static_cast<T*>(found), type = &typeid(T);
      return true;
    } else {
      return false;
    }
  }
  void* layer = nullptr;
  const std::type_info* type = nullptr;
};

/// The part of compile that does not depend on the model's type.
class ModelCompiler {
 public:
  ModelCompiler(const CompileOptions& options, const ConstParts& model);
  /// Folds norms and activations of a Sequential into the layers before them. Also enables skipping of zeros in a Dense
  /// after relu for single samples, if that is faster. `at` is the path of the Sequential.
  void fold_neighbours(const std::vector<FoldableLayer>& layers, const Path& at);
  void pack(Dense& layer, const std::string& path, Device device);
  void convert(const Parts& parts);
  void note(const std::string& layer, const std::string& text);
  /// `make(device, plain)` returns the model on a device. If `plain` is true, the model is not transformed.
  Compiled finish(const Callback<Pass(Device device, bool plain)>& make, const FirstLayer& first);

 private:
  bool fold(const FoldableLayer& layer, const FoldableLayer& next);
  bool fold(Dense& layer, Activation kind);
  bool skip_zeros(Dense& layer, const std::string& path);
  bool fold(tessera::Parameter& weight, tessera::Parameter& bias, BatchNorm& norm, int rank);
  void verify(const CompiledState& state, const Callback<Pass(Device, bool)>& make, const Array& x);
  const CompileOptions options_;
  Device device_;
  DType input_dtype_ = DType::f32;
  std::map<std::string, std::string> notes_;  ///< changes of each layer, by path
};

template <class T>
concept HasLayers = requires(T& model) { model.layers(); };

struct FoldVisitor {
  struct leaves : ModelLeaves {
    template <class T>
    static constexpr bool is_leaf = HasLayers<T>;
  };
  ModelCompiler& compiling;
  void operator()(ModelArray&, const Path&) const {}
  template <HasLayers S>
  void operator()(S& sequential, const Path& at) {
    std::vector<FoldableLayer> layers;
    for_each_layer(sequential.layers(), [&](auto& layer, std::size_t i) {
      Traversal("compile").visit(layer, *this, Path(at, i));
      layers.emplace_back(kind_of_layer(layer)).set(&layer);
    });
    compiling.fold_neighbours(layers, at);
  }
};

struct PackVisitor {
  struct leaves : ModelLeaves {
    template <class T>
    static constexpr bool is_leaf = std::same_as<T, Dense>;
  };
  ModelCompiler& compiling;
  Device device;
  void operator()(ModelArray&, const Path&) const {}
  void operator()(Dense& layer, const Path& at) const { compiling.pack(layer, at.text(), device); }
};

}  // namespace detail

}  // namespace tessera
