// SPDX-License-Identifier: Apache-2.0
// Devices as plain values, what is known of each, and which one is chosen.
// Nothing here opens a device; `discover()` asks the drivers and says for each backend what was found or why not.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// The ways to reach processors.
enum class Backend : std::uint8_t {
  cpu,     ///< the CPU: vector code by LLVM, all cores
  cuda,    ///< NVIDIA's GPUs
  rocm,    ///< AMD's GPUs
  oneapi,  ///< Intel's GPUs, by Level Zero
  metal,   ///< Apple's GPUs
  opencl,  ///< every device of an OpenCL driver
  interp,  ///< the reference interpreter, used only when named
  dry_run  ///< stands for another device in a DryRun (device/placement/dry_run.h); not listed, and no name is parsed as
           ///< it
};
/// All backends, in the order in which the enumeration names them.
inline constexpr std::array all_backends = {Backend::cpu,   Backend::cuda,   Backend::rocm,  Backend::oneapi,
                                            Backend::metal, Backend::opencl, Backend::interp};
std::string_view backend_name(Backend backend);  ///< "cuda"
/// Tessera itself computes, in the host's memory: no vendor's library is asked, and grids have no limits.
constexpr bool is_built_in(Backend backend) { return backend == Backend::cpu || backend == Backend::interp; }
/// Kernels are run as they are recorded, operation by operation: what others are compared with. Nothing is compiled.
constexpr bool is_reference(Backend backend) { return backend == Backend::interp; }
/// A thread of the host's computes a whole block, whose threads are lanes of its vectors: few long blocks are quick.
constexpr bool blocks_are_vectors(Backend backend) { return backend == Backend::cpu; }

/// One device: a backend and a number from 0. A value: comparable, hashable, printed and parsed as "cuda:0".
struct Device {
  Backend backend = Backend::cpu;  ///< By which the device is reached.
  int index = 0;                   ///< Its number among the backend's devices, from 0.
  friend constexpr auto operator<=>(const Device&, const Device&) = default;
};
/// The device as text: "cuda:0".
std::string to_string(Device device);
/// "cuda:1", or "cuda" for "cuda:0". DeviceError names the backends that exist if `text` is neither.
Device parse_device(std::string_view text);
/// "cuda:0,opencl:1": one or more, in this order. DeviceError as above, or if one is named twice.
std::vector<Device> parse_devices(std::string_view text);

/// How far a backend or a device got. Every state below `verified` comes with a reason and a remedy.
enum class DeviceState : std::uint8_t {
  unsupported,  ///< Tessera has no code for it on this system
  supported,    ///< not loaded: the library was not found or refused
  loaded,       ///< the library answers, but there is no usable device
  enumerated,   ///< a device answered
  verified,     ///< a first small kernel gave the right result
  quarantined,  ///< it computed wrongly
  crashed,      ///< the driver ended the probe that asked it, or that opened the device
  hung,         ///< it did not answer that probe in time
  lost          ///< it reported an error from which it does not recover
};
std::string_view state_name(DeviceState state);  ///< The state as one word: "verified".

/// Kinds of processors.
enum class DeviceKind : std::uint8_t { discrete_gpu, integrated_gpu, cpu, other };
std::string_view kind_name(DeviceKind kind);  ///< The kind as text.

/// What kernels may use on a device. Lowering reads these; a kernel that needs more is refused with its name and line.
struct Capabilities {
  bool f16 = false;          ///< 16-bit floats are converted by the device (else by integer code)
  bool bf16 = false;         ///< 16-bit brain floats are converted by the device (else by integer code).
  bool f64 = false;          ///< The device computes 64-bit floats.
  bool int64 = true;         ///< The device computes 64-bit integers.
  bool atomic_i64 = false;   ///< 64-bit integer atomics (32-bit ones always work)
  bool atomic_f32 = false;   ///< native float add (else by compare-and-swap)
  bool int8_dot = false;     ///< dot4 in one instruction
  bool matrix_f16 = false;   ///< products of 16 x 16 x 16 fragments in instructions
  bool matrix_bf16 = false;  ///< As matrix_f16, for bf16.
  std::vector<std::uint32_t> subgroup_widths = {1};  ///< 1: no subgroups
  std::uint32_t max_block_threads = 1024;            ///< Threads in a block, at most.
  /// Threads in a block along each dimension, at most.
  std::array<std::uint32_t, 3> max_block = {1024, 1024, 64};
  std::array<std::uint64_t, 3> max_blocks = {~0ull, ~0ull, ~0ull};        ///< of a grid, per dimension
  std::array<std::uint64_t, 3> max_grid_threads = {~0ull, ~0ull, ~0ull};  ///< likewise: blocks x threads of one
  std::uint64_t shared_bytes = 32768;                                     ///< shared memory a block may use
  std::uint64_t local_bytes = 0;  ///< memory of their own that a block's threads may have together; 0: no limit
  std::uint64_t max_parameter_bytes = 1024;  ///< Size of a kernel's parameters, at most.
  std::uint32_t vector_bytes = 16;           ///< of one load that the device does well
};

/// What is known about a device.
struct DeviceInfo {
  Device device;                             ///< The device.
  std::string name, vendor, driver_version;  ///< Names as the driver reports them.
  std::string identity;  ///< stable across APIs and boots: PCI address or UUID; empty if the driver tells none
  int native_index = 0;  ///< the vendor's own number for it: what its API and DLPack call it
  DeviceKind kind = DeviceKind::other;          ///< Kind of processor.
  DeviceState state = DeviceState::enumerated;  ///< How far it is known to work.
  std::string reason, remedy;                   ///< below `verified`: why, and what to do
  std::uint64_t total_memory = 0;               ///< bytes
  bool unified_memory = false;                  ///< shares its memory with the host
  std::uint32_t compute_units = 0;              ///< Cores or compute units; 0 if the driver does not report them.
  std::string blas;  ///< one clause: which library of the vendor's large products would use, or that there is none
  Capabilities can;  ///< What it can do.
};

/// One of several drivers behind a backend: an OpenCL platform's, by the file that names it.
struct DriverPart {
  std::string name, file;                        ///< what names it; the library
  DeviceState state = DeviceState::unsupported;  ///< as the backend's
  std::string reason, remedy;                    ///< Below `verified`: why, and what to do.
};

/// What a backend's driver answered. Drivers that load a vendor's code answer in a process of their own, whose crash or
/// hang costs this row alone: such a driver is then never loaded into the program. Before this program first opens one
/// of their devices, another such process does, and runs a first kernel on it.
struct BackendReport {
  Backend backend = Backend::cpu;                ///< The backend.
  DeviceState state = DeviceState::unsupported;  ///< of its best device, or how far loading got
  std::string file;                              ///< the library that was tried last
  std::string reason, remedy;                    ///< the loader's or driver's text; what to do
  std::vector<DeviceInfo> devices;               ///< Its devices, in the order of their numbers.
  std::vector<DriverPart> parts;  ///< where the backend has several drivers, each of which may fail on its own
  bool remembered = false;        ///< the answer is one from an earlier process, kept on disk; `rescan` asks again
};

/// A row for every backend, in the order of `all_backends`. Asked once per process, then remembered; states that change
/// (a device is verified, quarantined, lost) show in the next call. What was returned stays valid and unchanged.
const std::vector<BackendReport>& discover();
/// Forgets what `discover` found, here and on disk, and what the environment said; the next call asks again. Open
/// devices stay open, and a lost device stays lost.
void rescan();
/// What one backend answers; asks no other.
const BackendReport& discover(Backend backend);
/// DeviceError if the device does not exist: the text lists those that do, or why the backend has none.
const DeviceInfo& device_info(Device device);
/// The same card as a backend earlier in the order of `all_backends` shows it, by PCI address or UUID; nothing if there
/// is none among the backends that have been asked. In automatic choice such a device counts once.
std::optional<Device> same_card(Device device);
/// Bytes free now; for cpu what the budget leaves (limit, control group, available memory).
std::uint64_t free_memory(Device device);

/// Every device that exists, in the order of `all_backends`, also those that automatic choice passes by. Opens none.
std::vector<Device> devices();
/// The GPUs that can be used, the one that automatic choice takes first; a card that several drivers show counts once.
/// Opens none.
std::vector<Device> gpus();
bool has_gpu();  ///< True if gpus() is not empty.

/// Where new arrays go: the innermost DeviceScope of this thread, else TESSERA_DEVICE, else the project's preference,
/// else the user's (device/selection/preferences.h), else automatic (discrete GPUs, then integrated ones, then the CPU;
/// an OpenCL device that is a CPU, and `interp`, only by name). DeviceError if the named one does not exist;
/// FormatError for a file of preferences that cannot be read. The first automatic choice of a process opens GPUs in
/// order until one works; the log warns of those that it passes by.
Device current_device();
/// What `current_device` would be if the first GPU in its order works, and by which rule. Opens nothing.
struct Selection {
  Device device;    ///< The device.
  std::string why;  ///< Why it was selected, for people.
};
Selection expected_device();  ///< See Selection.

/// Options of gpu().
struct GpuRequest {
  std::optional<int> index;  ///< of `gpus()`, from 0; else the device that is named for this thread, else the first
  bool require = false;      ///< an error where there is none
  std::uint64_t free_memory = 0;  ///< bytes: devices with less free do not count. Asking opens them, one by one
};
/// A GPU. Without one the CPU, with a warning (once a process) that says why; with `require` a DeviceError that says
/// why, for each backend. An index of no GPU is a DeviceError in any case. What is named for this thread (DeviceScope,
/// TESSERA_DEVICE, a preference) binds: if that is a CPU, this is it. Has no effect on later choices.
Device gpu_device(GpuRequest request = {});
/// One sentence: which device `current_device()` is and by which rule ("cpu:0 (AMD EPYC): chosen automatically, because
/// no GPU was found: cuda: libcuda.so.1: cannot open ...; rocm: ..."). The short form fits a line: why there is no GPU
/// is a word or two for each backend, with the command that has the rest.
enum class Detail : std::uint8_t { full, brief };
/// Why current_device() is what it is, for people.
std::string why_current_device(Detail detail = Detail::full);

/// Makes a device current on this thread for as long as it lives. Selecting has no side effects on the device.
class DeviceScope {
 public:
  explicit DeviceScope(Device device);  ///< DeviceError if it does not exist
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  std::optional<Device> before_;
};

}  // namespace tessera

template <>
struct std::hash<tessera::Device> {
  std::size_t operator()(tessera::Device d) const noexcept {
    return static_cast<std::size_t>(d.backend) << 24 | static_cast<std::size_t>(d.index);
  }
};
