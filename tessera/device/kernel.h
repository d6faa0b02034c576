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
#include "tessera/device/storage.h"
#include "tessera/ir/builder.h"

namespace tessera {

/// An argument of a launch: a buffer or a scalar's bits (as ir constants hold them).
struct LaunchArgument {
  BufferView view;  ///< empty storage: a scalar
  std::uint64_t bits = 0;
  DType dtype = DType::f32;  ///< of the scalar
  std::int32_t slot = -1;    ///< in a recording (sequence.h): the scalar's number, by which a replay changes it
  LaunchArgument(const BufferView& v) : view(v) {}
  LaunchArgument(BufferView&& v) : view(std::move(v)) {}
  LaunchArgument(DType type, std::uint64_t scalar_bits) : bits(scalar_bits), dtype(type) {}
  static LaunchArgument scalar(DType dtype, std::uint64_t bits) { return {dtype, bits}; }
  static LaunchArgument scalar(float v);
  static LaunchArgument index(std::int64_t v) { return scalar(DType::index, static_cast<std::uint64_t>(v)); }
  /// This scalar, as number `n` of a sequence that is being recorded; several scalars may have one number.
  LaunchArgument in_slot(std::uint32_t n) const {
    LaunchArgument a = *this;
    a.slot = static_cast<std::int32_t>(n);
    return a;
  }
};

/// A traced kernel. Cheap to copy: copies share what has been compiled. Thread-safe.
class Kernel {
 public:
  Kernel() = default;
  explicit Kernel(ir::Function function);

  bool valid() const { return state_ != nullptr; }
  const ir::Function& function() const;
  ir::Hash hash() const;

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
  using Trace = std::function<ir::Function(const Spec&)>;
  explicit KernelFamily(Trace trace) : trace_(std::move(trace)) {}
  ~KernelFamily() { made_.drop(); }

  /// The kernel if there has been one for this specification, which need not outlive the call; else null.
  const Kernel* find(const Spec& spec) const {
    Made& made = made_.get();
    std::shared_lock read(made.lock);
    const auto it = made.kernels.find(spec);
    return it != made.kernels.end() ? &it->second : nullptr;
  }
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

/// What ran where, what was copied, and what had to be compiled, since the start of the process or the last reset.
struct PlacementLog {
  struct KernelCount {
    std::string kernel;
    Device device;
    std::uint64_t launches = 0;
  };
  struct Copies {
    Device device;
    std::uint64_t to_device_bytes = 0, to_host_bytes = 0, within_bytes = 0;
    std::uint64_t to_device_count = 0, to_host_count = 0, within_count = 0;
    /// Directly from other devices, which is not counted there and not as copies through the host.
    std::uint64_t from_peers_bytes = 0, from_peers_count = 0;
  };
  /// Where a device's kernels came from, that by which it is tried when it is opened included.
  struct Made {
    Device device;
    std::uint64_t compiled = 0;
    std::uint64_t loaded = 0;                ///< from disk: compiled by an earlier process
    std::uint64_t damaged = 0, refused = 0;  ///< of `compiled`: what was on disk was not whole, or did not load
    bool kept = false;                       ///< they are kept on disk for later processes
  };
  std::vector<KernelCount> kernels;  ///< by device, then most launches first
  std::vector<Copies> copies;
  std::vector<Made> made;  ///< by device
};
PlacementLog placement_log();
void reset_placement_log();
std::string to_string(const PlacementLog& log);  ///< a table for people

}  // namespace tessera
