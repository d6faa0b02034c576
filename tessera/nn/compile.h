// SPDX-License-Identifier: Apache-2.0
// Compiles models for inference on one device: fuses layers, converts to another precision, and records the pass so
// that later calls replay it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/nn/model_compiler.h"

namespace tessera {

/// A compiled model. Copies share the compiled state. Concurrent calls run one after another.
class Compiled {
 public:
  /// Runs the model on x in inference mode. Returns the result in newly allocated memory on the model's device.
  ///
  /// The first call with a shape and dtype records the pass twice. If both recordings are equal, later calls replay it.
  /// Recordings are cached for the four most recently used shapes. At least every 64 calls, the pass is recorded again
  /// instead of replayed. If the new recording differs, the model is no longer recorded, and report().not_recorded
  /// gives the reason. While another recording is active on this thread, the model runs directly.
  ///
  /// Throws DeviceError if x is on another device, ArgumentError if a gradient with respect to x is computed, and any
  /// error that the model throws.
  Array operator()(const Array& x) const;
  Device device() const;  ///< The device on which the model runs.
  /// Returns a report on each layer, as of the first pass.
  CompileReport report() const;
  std::uint64_t replays() const;  ///< number of calls that were replayed

 private:
  friend class detail::ModelCompiler;
  explicit Compiled(std::shared_ptr<detail::CompiledState> state) : state_(std::move(state)) {}
  std::shared_ptr<detail::CompiledState> state_;
};

/// Compiles a model for inference. The given model, and models that share its arrays, are not changed.
///
///   const auto fast = compile(model, {.device = gpu, .level = CompileLevel::aggressive});
///   Array y = fast(x.to(gpu));
///   std::puts(to_string(fast.report()).c_str());
///
/// Only layers of a Sequential are fused, because only a Sequential defines the order of its layers. Throws
/// ArgumentError if the model is on several devices and `device` is not set, if the model was not set up, or if
/// `verify` or `input` cannot be applied to it. Throws DtypeError for a precision other than f32 if the parameters are
/// not f32. Throws LayerFault if `verify` finds a wrong result.
template <class Model>
Compiled compile(const Model& model, const CompileOptions& options = {}) {
  detail::ModelCompiler c(options, detail::parts_of(model));
  const auto make = [&](Device device, bool plain) {
    Model own = clone(to(model, device));
    if (!plain) {
      if (options.level != CompileLevel::none) {
        detail::FoldVisitor fold{c};
        detail::Traversal("compile").visit(own, fold, Path());
      }
      if (options.precision == CompilePrecision::q8_0) {
        detail::PackVisitor pack{c, device};
        detail::Traversal("compile").visit(own, pack, Path());
      }
      c.convert(detail::parts_of(own));
    }
    return detail::Pass([own = std::move(own)](const Array& x) { return own(x); });
  };
  detail::FirstLayer first;
  detail::Traversal("compile").visit(model, first, Path());
  return c.finish(make, first);
}

}  // namespace tessera
