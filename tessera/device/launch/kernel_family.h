// SPDX-License-Identifier: Apache-2.0
// Families of kernels that are looked up by a small specification.
#pragma once

#include <functional>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <utility>

#include "tessera/base/os/fork.h"
#include "tessera/device/launch/kernel.h"
#include "tessera/ir/node.h"

namespace tessera {

/// Kernels that depend on shapes, tiles or dtypes. A function traces the kernel for a small specification. Kernels are
/// looked up by specification, which is faster than tracing and hashing. `Spec` is an aggregate with == and std::hash
/// or a `hash()` member.
template <class Spec>
class KernelFamily {
 public:
  /// Function that traces the kernel for a specification.
  using Trace = std::function<ir::Function(const Spec&)>;
  /// Creates an empty family.
  explicit KernelFamily(Trace trace) : trace_(std::move(trace)) {}
  ~KernelFamily() { made_.drop(); }

  /// Returns the kernel if one was created for this specification, else null. Does not keep a reference to `spec`.
  const Kernel* find(const Spec& spec) const {
    Made& made = made_.get();
    std::shared_lock read(made.lock);
    const auto it = made.kernels.find(spec);
    return it != made.kernels.end() ? &it->second : nullptr;
  }
  /// Returns the kernel for `spec`. The first call for a specification traces it.
  const Kernel& operator()(const Spec& spec) {
    if (const Kernel* known = find(spec)) return *known;
    Kernel fresh(trace_(spec));
    Made& made = made_.get();
    std::unique_lock write(made.lock);
    return made.kernels.try_emplace(spec, std::move(fresh)).first->second;
  }

 private:
  struct Hash {
    std::size_t operator()(const Spec& s) const {
      if constexpr (requires { s.hash(); })
        return s.hash();
      else
        return std::hash<Spec>{}(s);
    }
  };
  struct Made {
    std::shared_mutex lock;
    std::unordered_map<Spec, Kernel, Hash> kernels;
  };
  Trace trace_;
  mutable os::PerProcess<Made> made_;
};

}  // namespace tessera
