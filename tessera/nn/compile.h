// SPDX-License-Identifier: Apache-2.0
// Models made ready for inference: on one device, folded, in another precision, and recorded, so that a call is one
// replay.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tessera/nn/model_compiler.h"

namespace tessera {

/// A compiled model. Copies are the same one. Calls from several threads take turns.
class Compiled {
 public:
  /// What the model gives for x in inference, in memory of its own, on the model's device. The pass is recorded twice
  /// at the first call with arrays of this shape and dtype, and replayed from then on if both were the same; of the
  /// last four such. Now and then, each 64 calls at the latest, a pass is recorded again in place of a replay; where it
  /// differs, passes are not recorded from then on, and report().not_recorded says why. Within a
  /// recording of somebody else it runs as it is. DeviceError if x is on another device; ArgumentError if a gradient is
  /// taken through x; what the model throws.
  Array operator()(const Array& x) const;
  Device device() const;  ///< The device it computes on.
  /// By layer, as the first pass was.
  CompileReport report() const;
  std::uint64_t replays() const;  ///< calls that were replays

 private:
  friend class detail::ModelCompiler;
  explicit Compiled(std::shared_ptr<detail::CompiledState> state) : state_(std::move(state)) {}
  std::shared_ptr<detail::CompiledState> state_;
};

/// Makes a model ready for inference. The model that is given, and all that shares its arrays, stays as it is.
///
///   const auto fast = compile(model, {.device = gpu, .level = CompileLevel::aggressive});
///   Array y = fast(x.to(gpu));
///   std::puts(to_string(fast.report()).c_str());
///
/// Folding needs the order of calls, which only a Sequential knows: elsewhere nothing is folded. ArgumentError: the
/// model is on several devices and none is named, or was not set up; `verify` or `input` cannot be had. DtypeError: a
/// precision other than f32 of parameters that are not f32. LayerFault: `verify` found one.
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
