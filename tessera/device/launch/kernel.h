// SPDX-License-Identifier: Apache-2.0
// A traced kernel that can be launched on any device, compiled there on first need, and families of kernels that are
// looked up by a small specification. kernel/ gives users typed handles for these.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "tessera/base/os/fork.h"
#include "tessera/device/launch/launch_arguments.h"
#include "tessera/ir/fwd.h"

namespace tessera {

/// A traced kernel. Cheap to copy: copies share what has been compiled. Thread-safe.
class Kernel {
 public:
  Kernel() = default;
  explicit Kernel(ir::Function function);  ///< A kernel of a verified function of the IR.

  /// False for a default-constructed kernel.
  bool valid() const { return state_ != nullptr; }
  const ir::Function& function() const;  ///< The kernel's IR.
  ir::Hash hash() const;                 ///< The hash of the kernel's IR; equal kernels have equal hashes.

  /// Enqueues the kernel where its buffers live. `shape`: map kernels: threads of each dimension; block kernels: blocks
  /// of each. Arguments are checked against the parameters (KernelError lists them); buffers on different devices are a
  /// DeviceError; partial overlap of a written buffer with another is a KernelError; the very same view twice runs the
  /// variant that allows it. A shape with a 0 then does nothing; else pending readers of written buffers are flushed
  /// before. `queue`: null for the device's current one. A kernel without buffers runs on `queue`, else on
  /// current_device().
  void launch(const std::array<std::uint64_t, 3>& shape, std::span<const LaunchArgument> arguments,
              Queue* queue = nullptr) const;
  void launch(const std::array<std::uint64_t, 3>& shape, std::initializer_list<LaunchArgument> arguments) const {
    launch(shape, std::span(arguments.begin(), arguments.size()));
  }

  /// Compiles now, so that a later launch does not wait.
  void prepare(Device device, Variant variant = {}) const;
  /// The text given to the device's compiler.
  std::string source(Device device, Variant variant = {}) const;

 private:
  friend struct KernelAccess;
  struct State;
  std::shared_ptr<State> state_;
};

/// Compiles many kernels for a device, or loads them from disk, in one call (OpenCL's drivers are much quicker so).
void prepare(Device device, std::span<const Kernel> kernels);

/// Kernels that depend on shapes, tiles or dtypes: a function from a small specification to a trace. Looked up before
/// anything is traced or hashed. `Spec` is an aggregate with == and std::hash or a `hash()` member.
template <class Spec>
class KernelFamily {
 public:
  /// Makes the kernel of a specification.
  using Trace = std::function<ir::Function(const Spec&)>;
  /// An empty family.
  explicit KernelFamily(Trace trace) : trace_(std::move(trace)) {}
  ~KernelFamily() { made_.drop(); }

  /// The kernel if there has been one for this specification, which need not outlive the call; else null.
  const Kernel* find(const Spec& spec) const {
    Made& made = made_.get();
    std::shared_lock read(made.lock);
    const auto it = made.kernels.find(spec);
    return it != made.kernels.end() ? &it->second : nullptr;
  }
  /// The kernel of `spec`, made on the first call.
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
