// SPDX-License-Identifier: Apache-2.0
// What compile (nn/compile.h) is told and tells, and what it does to a model.
#pragma once

#include <map>
#include <optional>

#include "tessera/array/move.h"
#include "tessera/base/enum_name.h"
#include "tessera/nn/images.h"
#include "tessera/nn/norms.h"
#include "tessera/nn/sequential.h"

namespace tessera {

/// How much compile() may change.
enum class CompileLevel : std::uint8_t {
  none,      ///< each call runs the layers
  standard,  ///< the pass is recorded, relu part of the Dense before, and on the CPU a Dense behind relu skips what is
             ///< 0 of a single sample: the same bits as the model gives on that device
  aggressive,  ///< and so become silu, gelu, and BatchNorm behind Dense or Conv2d: the same but for rounding
};
/// The numbers that a compiled model computes with.
enum class CompilePrecision : std::uint8_t {
  f32,    ///< parameters as they are
  bf16,   ///< all parameters, what comes in and what layers pass on; products sum in f32, and norms compute in it
  f16,    ///< likewise
  mixed,  ///< as in mixed-precision training with bf16: copies of 16 bits, norms and what comes in f32
  q8_0,   ///< weights of Dense in blocks of 32 numbers of 8 bits with a scale; where inputs are no multiple of 32, f32
};
std::string_view compile_level_name(CompileLevel level);              ///< The level as one word: "standard".
std::string_view compile_precision_name(CompilePrecision precision);  ///< The precision as one word: "f16".

/// Options of compile().
struct CompileOptions {
  std::optional<Device> device = {};                   ///< else where the model is
  CompileLevel level = CompileLevel::standard;         ///< How much may be changed.
  CompilePrecision precision = CompilePrecision::f32;  ///< The numbers to compute with.
  /// Runs each layer on the device and on a reference (the interpreter; for a model on that, the CPU), each given the
  /// same, of random inputs, and the whole pass beside the model that was given. LayerFault names what differs by more
  /// than rounding. The interpreter is slow: about a second for ten million multiplications.
  bool verify = false;
  /// The shape of one sample, as setup takes it; else the first layer's, if that is a Dense. If it is known a pass of
  /// one sample is run and recorded here, and the report is there at once.
  Shape input = {};
  std::optional<Array> sample = {};  ///< or a batch to do it with: of ids, say
  std::uint64_t seed = 1;            ///< of random inputs
};

/// What became of a model.
struct CompileReport {
  /// What became of one layer.
  struct Layer {
    std::string path;           ///< "0"
    std::string kind;           ///< "Dense"
    std::uint64_t kernels = 0;  ///< launches
    std::string computed_in;    ///< 0 of its own: they are those of this layer
    std::uint64_t bytes = 0;    ///< of parameters and state
    Device device;              ///< Where it computes.
    std::string note;           ///< what was done to it: "BatchNorm 1 is in it", "q8_0"
  };
  Device device;                                       ///< Where the model computes.
  CompileLevel level = CompileLevel::standard;         ///< The level it was compiled with.
  CompilePrecision precision = CompilePrecision::f32;  ///< The precision it was compiled with.
  Shape input;  ///< of the pass that was looked at, with the batch; kernels are those for it. Empty: none yet
  std::vector<Layer> layers;    ///< The layers in the order of the pass.
  std::uint64_t pieces = 0;     ///< of work in the recorded pass: launches, copies, fills
  bool recorded = false;        ///< A pass is recorded and replayed.
  bool one_call = false;        ///< the driver gets the pass with one call
  std::string not_recorded;     ///< why, or empty
  std::optional<double> worst;  ///< with verify: of the whole pass, relative to its largest number
};
std::string to_string(const CompileReport& report);  ///< a table for people

/// A layer computes something else on the device than on the reference.
class LayerFault : public Error {
 public:
  /// Made by compile() with `verify`.
  LayerFault(const std::string& text, std::string layer, std::int64_t element)
      : Error(text), layer_(std::move(layer)), element_(element) {}
  const std::string& layer() const { return layer_; }  ///< its path; "(whole)": the recorded pass
  std::int64_t element() const { return element_; }    ///< of its result, in C order: the worst

 private:
  std::string layer_;
  std::int64_t element_;
};

class Compiled;

namespace detail {

using Pass = std::function<Array(const Array& x)>;
struct CompiledState;

/// Sizes that the first layer knows.
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

/// A layer of a Sequential as folding sees it; one that takes no part in it is none of these.
struct FoldableLayer {
  explicit FoldableLayer(std::string_view kind_of_it) : kind(kind_of_it) {}
  std::string_view kind;
  std::variant<std::monostate, Dense*, Conv2d*, BatchNorm*, Relu*, Silu*, Gelu*, Elementwise*, Dropout*> layer;
  template <class T>
  T* as() const {
    T* const* found = std::get_if<T*>(&layer);
    return found == nullptr ? nullptr : *found;
  }
};

/// One call of compile: what is not of the model's type.
class ModelCompiler {
 public:
  ModelCompiler(const CompileOptions& options, const ConstParts& model);
  /// Puts norms and activations into the layers before them, and lets a Dense behind relu skip what is 0 of a single
  /// sample, where that is worth while. `at`: the path of their Sequential.
  void fold_neighbours(const std::vector<FoldableLayer>& layers, const Path& at);
  void pack(Dense& layer, const std::string& path, Device device);
  void convert(const Parts& parts);
  void note(const std::string& layer, const std::string& text);
  /// `make(device, plain)` gives the model there; plain: as it was given.
  Compiled finish(const std::function<Pass(Device device, bool plain)>& make, const FirstLayer& first);

 private:
  bool fold(const FoldableLayer& layer, const FoldableLayer& next);
  bool fold(Dense& layer, Activation kind);
  bool skip_zeros(Dense& layer, const std::string& path);
  bool fold(tessera::Parameter& weight, tessera::Parameter& bias, BatchNorm& norm, int rank);
  void verify(const CompiledState& state, const std::function<Pass(Device, bool)>& make, const Array& x);
  const CompileOptions options_;
  Device device_;
  DType input_dtype_ = DType::f32;
  std::map<std::string, std::string> notes_;  ///< by layer
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
      FoldableLayer& added = layers.emplace_back(kind_of_layer(layer));
      if constexpr (requires { added.layer = &layer; }) added.layer = &layer;
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
