// SPDX-License-Identifier: Apache-2.0
// Traced kernels, which are compiled on first use on each device, and families of kernels that are looked up by a small
// specification. The typed handles in kernel/ use them.
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

/// A traced kernel. Copies are cheap and share the compiled code. Thread-safe.
class Kernel {
 public:
  Kernel() = default;
  explicit Kernel(ir::Function function);  ///< Creates a kernel from a verified IR function.

  /// False for a default-constructed kernel.
  bool valid() const { return state_ != nullptr; }
  const ir::Function& function() const;  ///< The kernel's IR.
  ir::Hash hash() const;                 ///< Hash of the kernel's IR; equal kernels have equal hashes.

  /// Enqueues the kernel on the device of its buffers. `shape` is the number of threads along each dimension for map
  /// kernels and the number of blocks for block kernels. If an extent is 0, the arguments are checked but nothing runs.
  /// If `queue` is null, the device's current queue is used. A kernel without buffers runs on the device of `queue`,
  /// else on current_device(). Pending expressions that read a written buffer are computed first.
  /// Throws KernelError if the arguments do not match the parameters, or if a written buffer partially overlaps another
  /// one. Passing the same view twice is allowed and selects another variant of the kernel. Throws DeviceError if the
  /// buffers are on different devices.
  void launch(const std::array<std::uint64_t, 3>& shape, std::span<const LaunchArgument> arguments,
              Queue* queue = nullptr) const;
  void launch(const std::array<std::uint64_t, 3>& shape, std::initializer_list<LaunchArgument> arguments) const {
    launch(shape, std::span(arguments.begin(), arguments.size()));
  }

  /// Compiles the kernel now, so that a later launch does not have to wait for the compiler.
  void prepare(Device device, Variant variant = {}) const;
  /// Returns the source that the device's compiler reads.
  std::string source(Device device, Variant variant = {}) const;

 private:
  friend struct KernelAccess;
  struct State;
  std::shared_ptr<State> state_;
};

/// Compiles or loads many kernels for a device in one call. With OpenCL drivers this is much faster than one call per
/// kernel.
void prepare(Device device, std::span<const Kernel> kernels);

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
