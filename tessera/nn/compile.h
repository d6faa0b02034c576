// SPDX-License-Identifier: Apache-2.0
// Compiles models for inference: on one device, with layers fused, in another precision, and recorded, so that a call
// is one replay.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/nn/model_compiler.h"

namespace tessera {

/// A compiled model. Copies share one model. Concurrent calls are serialised.
class Compiled {
 public:
  /// Runs the model on x in inference mode. Returns the result in its own memory, on the model's device. The first call
  /// with arrays of a shape and dtype records the pass twice; if both recordings are equal, later calls replay it.
  /// Recordings of the last four shapes are cached. At the latest every 64 calls, a pass is recorded again instead of
  /// replayed; if it differs, recording stops and report().not_recorded says why. Within another recording, the model
  /// runs directly. Throws DeviceError if x is on another device, ArgumentError if a gradient is taken through x, and
  /// the model's own errors.
  Array operator()(const Array& x) const;
  Device device() const;  ///< The device it computes on.
  /// Per layer, as of the first pass.
  CompileReport report() const;
  std::uint64_t replays() const;  ///< calls that were replayed

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
/// Only the layers of a Sequential are folded, because only its order of calls is known. Throws ArgumentError if the
/// model is on several devices and none is named, if it was not set up, or if `verify` or `input` cannot be satisfied;
/// DtypeError for a precision other than f32 if parameters are not f32; LayerFault if `verify` finds a wrong result.
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
