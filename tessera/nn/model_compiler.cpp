// SPDX-License-Identifier: Apache-2.0
// Transformations that compile() applies to a model: folding, precision conversion, and verification.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <random>

#include "tessera/array/history.h"
#include "tessera/nn/compile.h"
#include "tessera/nn/compiled_state.h"
#include "tessera/nn/mode.h"
#include "tessera/ops/sparse_row.h"

namespace tessera::detail {

namespace {

[[noreturn]] void refuse(const std::string& wrong, const std::string& remedy) {
  fail<ArgumentError>({.operation = "compile", .wrong = wrong, .remedy = remedy});
}

bool narrows(CompilePrecision p) {
  return p == CompilePrecision::bf16 || p == CompilePrecision::f16 || p == CompilePrecision::mixed;
}
DType narrow_dtype(CompilePrecision p) { return p == CompilePrecision::f16 ? DType::f16 : DType::bf16; }

Device reference_for(Device device) {
  return is_reference(device.backend) ? Device{Backend::cpu, 0} : Device{Backend::interp, 0};
}

/// Largest accepted difference between two devices, relative to the largest element of the result. Devices sum in
/// different orders, so rounding differs.
double layer_tolerance(const Array& layer_output, bool packed) {
  // Inputs are rounded to 8 bits, and values halfway between two numbers may be rounded up or down.
  if (packed) return 0.02;
  switch (layer_output.dtype()) {
    case DType::f16: return 0x1p-8;
    case DType::bf16: return 0x1p-5;
    case DType::f64: return 1e-10;
    default: return is_float(layer_output.dtype()) ? 1e-4 : 0;
  }
}
/// Largest accepted difference between a pass in this precision and the original model.
double pass_tolerance(CompilePrecision p) {
  switch (p) {
    case CompilePrecision::f16: return 0.02;
    case CompilePrecision::bf16:
    case CompilePrecision::mixed: return 0.1;
    case CompilePrecision::q8_0: return 0.1;
    default: return 5e-4;
  }
}

struct Difference {
  double relative = 0;
  std::int64_t element = -1;  ///< index of the largest difference
  double got = 0, wanted = 0;
};
Difference difference(const Array& got, const Array& wanted) {
  const std::vector<double> a = got.to(wanted.device()).astype(DType::f64).to_vector<double>();
  const std::vector<double> b = wanted.astype(DType::f64).to_vector<double>();
  Difference worst;
  double largest = 1e-30;
  for (const double v : b)
    if (std::isfinite(v)) largest = std::max(largest, std::abs(v));
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const bool same = a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]));
    double d = same ? 0 : std::abs(a[i] - b[i]) / largest;
    if (std::isnan(d)) d = std::numeric_limits<double>::infinity();
    if (worst.element < 0 || d > worst.relative) worst = {d, static_cast<std::int64_t>(i), a[i], b[i]};
  }
  return worst;
}

/// Runs the model on the reference device. Each layer receives the input that it received on the compiled device.
class Comparing : public LayerObserver {
 public:
  Comparing(const std::vector<LayerTrace>& seen, Device device, Device reference)
      : seen_(seen), device_(device), reference_(reference) {}
  Array before(const ObservedLayer& layer, const Array&) override {
    if (next_ >= seen_.size() || seen_[next_].layer.path != layer.path)
      refuse("the second pass of the model calls different layers, starting at " + layer.path, "Set verify to false");
    open_.push_back(next_);
    return seen_[next_++].layer_input.to(reference_);
  }
  void after(const ObservedLayer& layer, const Array& y) override {
    const LayerTrace& there = seen_[open_.back()];
    open_.pop_back();
    const auto report_mismatch = [&](const std::string& what, std::int64_t element) {
      throw LayerFault(error_text({.operation = "compile with verify",
                                   .with = {{"layer", layer.path + " (" + std::string(layer.kind) + ")"},
                                            {"device", to_string(device_)},
                                            {"reference", to_string(reference_)}},
                                   .wrong = what,
                                   .remedy = "Do not trust this device's results: run `tessera verify --device " +
                                             to_string(device_) + "` to find the wrong kernel"}),
                       layer.path, element);
    };
    if (there.layer_output.shape() != y.shape() || there.layer_output.dtype() != y.dtype())
      report_mismatch(fmt::format("the layer's result is {} {} on the device and {} {} on the reference",
                                  to_string(there.layer_output.shape()), dtype_name(there.layer_output.dtype()),
                                  to_string(y.shape()), dtype_name(y.dtype())),
                      0);
    const Difference d = difference(there.layer_output, y);
    if (d.relative > layer_tolerance(y, layer.packed))
      report_mismatch(
          fmt::format("element {} of the layer's result {} is {:.6g} on the device and {:.6g} on the reference",
                      d.element, to_string(y.shape()), d.got, d.wanted),
          d.element);
  }
  bool all() const { return next_ == seen_.size(); }

 private:
  const std::vector<LayerTrace>& seen_;
  const Device device_, reference_;
  std::size_t next_ = 0;
  std::vector<std::size_t> open_;
};

}  // namespace

ModelCompiler::ModelCompiler(const CompileOptions& options, const ConstParts& model) : options_(options) {
  std::optional<Device> where;
  bool several = false;
  for (const auto& [path, part] : model) {
    if (part->empty()) continue;
    several = several || (where && *where != part->device());
    if (!where) where = part->device();
    const bool other = options_.precision != CompilePrecision::f32;
    if (!part->state() && is_float(part->dtype()) && (other ? part->dtype() != DType::f32 : false))
      fail<DtypeError>({.operation = "compile",
                        .with = {{"path", path},
                                 {"dtype", std::string(dtype_name(part->dtype()))},
                                 {"precision", std::string(compile_precision_name(options_.precision))}},
                        .wrong = "this precision needs f32 parameters",
                        .remedy = "Remove .precision to compute in the dtype of the parameters"});
    if (!part->state() && is_float(part->dtype())) input_dtype_ = part->dtype();
  }
  if (several && !options_.device) refuse("the model is on several devices", "Choose one: {.device = ...}");
  device_ = options_.device ? *options_.device : where ? *where : current_device();
  static_cast<void>(device_info(device_));  // throws DeviceError if the device does not exist
}

void ModelCompiler::note(const std::string& layer, const std::string& text) {
  std::string& n = notes_[layer];
  if (n.find(text) == n.npos) n += (n.empty() ? "" : "; ") + text;
}

bool ModelCompiler::fold(tessera::Parameter& weight, tessera::Parameter& bias, BatchNorm& norm, int rank) {
  if (options_.level != CompileLevel::aggressive || weight.empty() || norm.running_mean.empty() || norm.folded != 0 ||
      weight.shape(0) != norm.running_mean.shape(0))
    return false;
  const DType wide = weight.dtype() == DType::f64 ? DType::f64 : DType::f32;
  Array scale = rsqrt(norm.running_variance.astype(wide) + norm.epsilon);
  if (!norm.weight.empty()) scale = scale * norm.weight.astype(wide);
  Shape column(weight.shape().size(), 1);
  column[0] = weight.shape(0);
  const Array mean = norm.running_mean.astype(wide);
  Array shift = (bias.empty() ? -mean : bias.astype(wide) - mean) * scale;
  if (!norm.bias.empty()) shift = shift + norm.bias.astype(wide);
  weight = (weight.astype(wide) * scale.reshape(column)).astype(weight.dtype()).eval();
  bias = shift.astype(weight.dtype()).eval();
  norm.folded = rank;
  return true;
}

bool ModelCompiler::fold(Dense& layer, Activation kind) {
  if (layer.folded != Activation::none || layer.weight.empty()) return false;
  // When fused into a product, silu and gelu read sums that are not yet rounded to 16 bits, so results may differ.
  if (kind != Activation::relu && options_.level != CompileLevel::aggressive) return false;
  layer.folded = kind;
  return true;
}
bool ModelCompiler::fold(const FoldableLayer& layer, const FoldableLayer& next) {
  Dense* dense = layer.as<Dense>();
  if (BatchNorm* norm = next.as<BatchNorm>()) {
    if (dense != nullptr) return fold(dense->weight, dense->bias, *norm, 2);
    Conv2d* conv = layer.as<Conv2d>();
    return conv != nullptr && fold(conv->weight, conv->bias, *norm, 4);
  }
  if (dense == nullptr) return false;
  if (Relu* relu = next.as<Relu>()) return relu->folded = fold(*dense, Activation::relu);
  if (Silu* silu = next.as<Silu>()) return silu->folded = fold(*dense, Activation::silu);
  if (Gelu* gelu = next.as<Gelu>()) return gelu->folded = fold(*dense, Activation::gelu);
  Elementwise* function = next.as<Elementwise>();
  if (function == nullptr) return false;
  using Function = Array (*)(Array);
  const Function target = function->function;
  const Activation kind = target == static_cast<Function>(relu)   ? Activation::relu
                          : target == static_cast<Function>(silu) ? Activation::silu
                          : target == static_cast<Function>(gelu) ? Activation::gelu
                                                                  : Activation::none;
  if (kind == Activation::none || !fold(*dense, kind)) return false;
  function->function = pass_on;
  return true;
}

/// Returns true if the layer returns its input, because it was folded or has no effect in inference.
static bool passes_on(const FoldableLayer& layer) {
  if (const Relu* relu = layer.as<Relu>()) return relu->folded;
  if (const BatchNorm* norm = layer.as<BatchNorm>()) return norm->folded != 0;
  if (const Elementwise* function = layer.as<Elementwise>()) return function->function == pass_on;
  return layer.as<Dropout>() != nullptr;
}

void ModelCompiler::fold_neighbours(const std::vector<FoldableLayer>& layers, const Path& at) {
  const auto pair = [&](std::size_t i, std::size_t j) {
    if (j >= layers.size() || !fold(layers[i], layers[j])) return;
    const std::string here = Path(at, i).text(), there = Path(at, j).text();
    note(here, fmt::format("includes {} {}", layers[j].kind, there));
    note(there, "part of " + here);
  };
  for (std::size_t i = 0; i < layers.size(); ++i) pair(i, i + 1);
  for (std::size_t i = 0; i + 1 < layers.size(); ++i)  // an activation that follows a folded norm
    if (const BatchNorm* norm = layers[i + 1].as<BatchNorm>(); norm != nullptr && norm->folded != 0) pair(i, i + 2);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const Dense* dense = layers[i].as<Dense>();
    if (dense == nullptr || dense->folded != Activation::relu) continue;
    std::size_t next = i + 1;
    while (next < layers.size() && passes_on(layers[next])) ++next;
    if (next == layers.size()) continue;
    if (Dense* behind = layers[next].as<Dense>()) skip_zeros(*behind, Path(at, next).text());
  }
}

bool ModelCompiler::skip_zeros(Dense& layer, const std::string& path) {
  // Smaller matrices fit into the L1 cache, and reading them costs less than searching for zeros.
  constexpr std::int64_t least = 1 << 15, most_inputs = 1 << 16;
  if (layer.weight.dtype() != DType::f32 || (!layer.bias.empty() && layer.bias.dtype() != DType::f32) ||
      options_.precision != CompilePrecision::f32 || layer.weight.size() < least ||
      layer.weight.shape(1) > most_inputs ||
      !ops::is_sparse_row_bit_exact(layer.weight.device(), layer.weight.shape(0), layer.weight.shape(1)))
    return false;
  // The product of 0 and a non-finite number is not 0, so zeros cannot be skipped.
  if (!all(isfinite(layer.weight)).item<bool>()) return false;
  layer.sparse = SparseRow(std::make_shared<const ops::SparseRowWeight>(layer.weight));
  note(path, "single samples skip zeros after relu");
  return true;
}

void ModelCompiler::pack(Dense& layer, const std::string& path, Device device) {
  if (layer.weight.empty()) return;
  const std::string place = path.empty() ? "the model" : path;
  if (layer.weight.shape(1) % 32 != 0)
    return note(place, fmt::format("f32: the number of inputs, {}, is not a multiple of 32", layer.weight.shape(1)));
  layer.packed = PackedWeight(Weight::of(layer.weight, WeightFormat::q8_0, device, path));
  layer.weight = Array::empty({0}, DType::f32, device);
  note(place, "q8_0");
}

void ModelCompiler::convert(const Parts& parts) {
  if (!narrows(options_.precision)) return;
  const DType to = narrow_dtype(options_.precision);
  ArrayMap<Array> known;
  for (const auto& [path, part] : parts) {
    if (part->empty() || part->state() || part->dtype() != DType::f32) continue;
    const bool mixed = options_.precision == CompilePrecision::mixed;
    if (mixed && part->keeps_precision()) continue;
    const Array before = *part;
    Array* narrow = known.find(before);
    if (narrow == nullptr) narrow = &known.add(before, before.astype(to).eval());
    if (mixed)
      part->narrow(*narrow);
    else
      static_cast<Array&>(*part) = *narrow;
  }
}

Compiled ModelCompiler::finish(const Callback<Pass(Device device, bool plain)>& make, const FirstLayer& first) {
  const auto in_precision = [&](Pass pass) -> Pass {
    if (!narrows(options_.precision)) return pass;
    // Converts results back to f32 for f32 input.
    const bool mixed = options_.precision == CompilePrecision::mixed;
    return [pass = std::move(pass), to = narrow_dtype(options_.precision), mixed](const Array& x) {
      const Array y = pass(!mixed && x.dtype() == DType::f32 ? x.astype(to) : x);
      return y.dtype() == to ? y.astype(DType::f32) : y;
    };
  };
  const auto made = [&](Device device, bool plain) {
    const DeviceScope scope(device);
    Pass pass = make(device, plain);
    return plain ? pass : in_precision(std::move(pass));
  };
  auto state = std::make_shared<CompiledState>();
  state->device = device_, state->level = options_.level;
  state->report.device = device_, state->report.level = options_.level, state->report.precision = options_.precision;
  state->pass = made(device_, false);
  state->notes = notes_;

  std::optional<Array> x = options_.sample;
  const Shape shape = options_.input.empty() ? first.input : options_.input;
  if (!x && !shape.empty()) {
    Shape batch = {options_.verify ? 4 : 1};
    batch.insert(batch.end(), shape.begin(), shape.end());
    std::mt19937_64 random(options_.seed);
    std::normal_distribution<float> numbers;
    std::vector<float> values(static_cast<std::size_t>(element_count(batch)));
    for (float& v : values) v = numbers(random);
    x = Array::from(values, batch, device_);
    if (input_dtype_ == DType::f64) x = x->astype(DType::f64).eval();
  }
  if (options_.verify && !x)
    refuse("verify needs the model's input shape", "Set {.input = shape of one sample} or {.sample = a batch}");
  if (!x) return Compiled(state);
  const Array sample = without_history(*x).to(device_).eval();
  if (options_.verify) verify(*state, made, sample);
  Compiled compiled(state);
  compiled(options_.sample ? sample : sample.slice(0, 0, 1));
  if (options_.verify) {
    // Compares the compiled pass, after it was recorded, with the original model.
    const Inference mode;
    const Array whole = (compiled(sample), compiled(sample));
    std::optional<Array> one;  // single samples may use a different code path
    if (sample.rank() > 1 && whole.rank() > 0 && whole.shape(0) == sample.shape(0)) try {
        one = compiled(sample.slice(0, 0, 1));
      } catch (const ShapeError&) {  // the number of samples is fixed, or axis 0 is not samples
      }
    const Device reference = reference_for(device_);
    const DeviceScope scope(reference);
    const Array wanted = made(reference, true)(sample.to(reference)).as_contiguous().eval();
    Difference d = difference(whole, wanted);
    if (one && one->rank() == wanted.rank() && one->shape(0) == 1)
      if (const Difference alone = difference(*one, wanted.slice(0, 0, 1).as_contiguous().eval());
          alone.relative > d.relative)
        d = alone;
    if (d.relative > pass_tolerance(options_.precision))
      throw LayerFault(
          error_text(
              {.operation = "compile with verify",
               .with = {{"layer", "(whole)"},
                        {"device", to_string(device_)},
                        {"precision", std::string(compile_precision_name(options_.precision))}},
               .wrong = fmt::format("each layer is correct, but element {} of the result is {:.6g} in the compiled "
                                    "model and {:.6g} in the original model",
                                    d.element, d.got, d.wanted),
               .remedy = "If the device is correct, this precision is not accurate enough for the model"}),
          "(whole)", d.element);
    const std::lock_guard turn(state->lock);
    state->report.worst = d.relative;
  }
  return compiled;
}

void ModelCompiler::verify(const CompiledState& state, const Callback<Pass(Device, bool)>& make, const Array& x) {
  const Inference mode;
  const Device reference = reference_for(device_);
  std::vector<LayerTrace> seen;
  Array whole = x;
  {
    const DeviceScope scope(device_);
    seen = trace_layers(state.pass, x, &whole);
  }
  const DeviceScope scope(reference);
  const Pass there = make(reference, false);
  Comparing compare(seen, device_, reference);
  const LayerObserverScope look(&compare);
  const Array y = there(x.to(reference)).as_contiguous().eval();
  if (!compare.all()) refuse("the second pass of the model calls fewer layers", "Set verify to false");
  const Difference d = difference(whole, y);
  if (!seen.empty() || d.relative <= pass_tolerance(options_.precision)) return;
  throw LayerFault(error_text({.operation = "compile with verify",
                               .with = {{"layer", "(whole)"}, {"device", to_string(device_)}},
                               .wrong = fmt::format("element {} of the result is {:.6g} on the device and {:.6g} on {}",
                                                    d.element, d.got, d.wanted, to_string(reference))}),
                   "(whole)", d.element);
}

}  // namespace tessera::detail
