// SPDX-License-Identifier: Apache-2.0
// Device names, device properties and device selection. Nothing here opens a device. `discover()` loads the drivers and
// reports for each backend which devices it found, or why it found none.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// The API through which a device is used.
enum class Backend : std::uint8_t {
  cpu,     ///< the CPU; uses all cores and vector instructions
  cuda,    ///< NVIDIA GPUs
  rocm,    ///< AMD GPUs
  oneapi,  ///< Intel GPUs, through Level Zero
  metal,   ///< Apple GPUs
  opencl,  ///< all devices of the installed OpenCL drivers
  interp,  ///< the reference interpreter, used only when selected by name
  /// Simulates another device in a DryRun (device/placement/dry_run.h); neither listed nor accepted by parse_device.
  dry_run
};
/// All backends except dry_run, in the order of the enumeration.
inline constexpr std::array all_backends = {Backend::cpu,   Backend::cuda,   Backend::rocm,  Backend::oneapi,
                                            Backend::metal, Backend::opencl, Backend::interp};
std::string_view backend_name(Backend backend);  ///< Name of the backend: "cuda".
/// True for backends that compute in host memory without a vendor's driver. They do not limit the grid size.
constexpr bool is_built_in(Backend backend) { return backend == Backend::cpu || backend == Backend::interp; }
/// True for the reference interpreter, which executes the recorded IR operation by operation without compiling it.
constexpr bool is_reference(Backend backend) { return backend == Backend::interp; }
/// True if one host thread computes a whole thread block and maps the block's threads to vector lanes. On such a
/// backend, few large blocks are fastest.
constexpr bool blocks_are_vectors(Backend backend) { return backend == Backend::cpu; }

/// A device: a backend and an index from 0. Comparable and hashable; printed and parsed as "cuda:0".
struct Device {
  Backend backend = Backend::cpu;  ///< API through which the device is reached.
  int index = 0;                   ///< Index among the backend's devices, from 0.
  friend constexpr auto operator<=>(const Device&, const Device&) = default;
};
/// The device as text: "cuda:0".
std::string to_string(Device device);
/// Parses "cuda:1", or "cuda" as "cuda:0". Throws DeviceError, which lists the backends, for any other text.
Device parse_device(std::string_view text);
/// Parses a comma-separated list such as "cuda:0,opencl:1". Throws DeviceError if an entry is invalid or occurs twice.
std::vector<Device> parse_devices(std::string_view text);

/// State of a backend or device. For every state except `verified`, a reason and a remedy are reported.
enum class DeviceState : std::uint8_t {
  unsupported,  ///< Tessera has no code for it on this system
  supported,    ///< not loaded: the library was not found or could not be loaded
  loaded,       ///< the library was loaded, but there is no usable device
  enumerated,   ///< the driver listed the device
  verified,     ///< a small test kernel gave the correct result
  quarantined,  ///< a small test kernel gave a wrong result
  crashed,      ///< the driver crashed the helper process that probed it or opened the device
  hung,         ///< the helper process did not answer in time
  lost          ///< the device reported an unrecoverable error
};
std::string_view state_name(DeviceState state);  ///< Name of the state: "verified".

/// Kinds of processors.
enum class DeviceKind : std::uint8_t { discrete_gpu, integrated_gpu, cpu, other };
std::string_view kind_name(DeviceKind kind);  ///< Name of the kind: "discrete GPU".

/// Features and limits of a device. A kernel that exceeds them is rejected with an error that names the kernel and the
/// line.
struct Capabilities {
  bool f16 = false;           ///< Supports conversions to and from f16; otherwise they are emulated with integers.
  bool bf16 = false;          ///< Supports conversions to and from bf16; otherwise they are emulated with integers.
  bool f64 = false;           ///< The device supports 64-bit floats.
  bool int64 = true;          ///< The device supports 64-bit integers.
  bool atomic_i64 = false;    ///< supports 64-bit integer atomics (32-bit ones always work)
  bool atomic_f32 = false;    ///< supports atomic addition of floats; otherwise compare-and-swap is used
  bool int8_dot = false;      ///< computes dot4 with one instruction
  bool matrix_f16 = false;    ///< has matrix instructions for f16 with the shape 16 x 16 x 16 (m x n x k)
  bool matrix_bf16 = false;   ///< Like matrix_f16, for bf16.
  bool matrix_tf32 = false;   ///< Like matrix_f16, for f32, but factors may be rounded to 10 bits of mantissa (tf32).
  bool matrix_f32 = false;    ///< Like matrix_tf32, but factors are not rounded.
  bool matrix_i8 = false;     ///< has matrix instructions for i8 with the shape 16 x 16 x 32 and exact sums
  bool async_copies = false;  ///< copies from memory to shared memory asynchronously, 16 bytes at a time
  std::vector<std::uint32_t> subgroup_widths = {1};  ///< Supported subgroup sizes; {1}: no subgroups.
  std::uint32_t max_block_threads = 1024;            ///< Maximum number of threads in a block.
  /// Maximum number of threads in a block along each dimension.
  std::array<std::uint32_t, 3> max_block = {1024, 1024, 64};
  /// Maximum number of blocks in a grid along each dimension.
  std::array<std::uint64_t, 3> max_blocks = {~0ull, ~0ull, ~0ull};
  /// Maximum number of threads in a grid along each dimension.
  std::array<std::uint64_t, 3> max_grid_threads = {~0ull, ~0ull, ~0ull};
  std::uint64_t shared_bytes = 32768;  ///< maximum shared memory of a block in bytes
  std::uint64_t local_bytes = 0;  ///< maximum local memory of all threads of a block together, in bytes; 0: no limit
  std::uint64_t max_parameter_bytes = 1024;  ///< Maximum size of a kernel's parameters in bytes.
  std::uint32_t vector_bytes = 16;           ///< number of bytes that one vector load should read
};

/// Properties of a device.
struct DeviceInfo {
  Device device;                             ///< The device.
  std::string name, vendor, driver_version;  ///< Names as reported by the driver.
  /// PCI address or UUID: the same in every API and after a reboot. Empty if the driver does not report one.
  std::string identity;
  int native_index = 0;                         ///< index that the vendor's API and DLPack use for the device
  DeviceKind kind = DeviceKind::other;          ///< Kind of processor.
  DeviceState state = DeviceState::enumerated;  ///< State of the device.
  std::string reason, remedy;                   ///< For every state except `verified`: why, and what to do.
  std::uint64_t total_memory = 0;               ///< Size of the device's memory in bytes.
  bool unified_memory = false;                  ///< true if the device shares its memory with the host
  std::uint32_t compute_units = 0;  ///< Number of cores or compute units; 0 if the driver does not report it.
  std::string blas;                 ///< the vendor library used for large matrix products, or why none is used
  Capabilities can;                 ///< Its features and limits.
};

/// One of several drivers of a backend, for example of one OpenCL platform.
struct DriverPart {
  std::string name, file;                        ///< the file that registers the driver, and the driver's library
  DeviceState state = DeviceState::unsupported;  ///< State of this driver.
  std::string reason, remedy;                    ///< For every state except `verified`: why, and what to do.
};

/// Result of probing a backend. A vendor's driver is first loaded in a helper process. If it crashes or hangs there,
/// this is reported, and the driver is never loaded into the program. Before the program first opens a device of such a
/// driver, another helper process opens the device and runs a test kernel.
struct BackendReport {
  Backend backend = Backend::cpu;                ///< The backend.
  DeviceState state = DeviceState::unsupported;  ///< state of its best device, or how far loading the driver got
  std::string file;                              ///< the library that was tried last
  std::string reason, remedy;                    ///< the error message of the loader or driver, and what to do
  std::vector<DeviceInfo> devices;               ///< Its devices, in the order of their indices.
  std::vector<DriverPart> parts;                 ///< one entry per driver, if the backend has several
  bool remembered = false;                       ///< true if read from the cache on disk; call `rescan` to probe again
};

/// Returns a report for each backend, in the order of `all_backends`. Backends are probed once per process. If a
/// device's state changes later (verified, quarantined, lost), the next call returns new reports. References returned
/// earlier stay valid and are not changed.
const std::vector<BackendReport>& discover();
/// Discards the cached results of `discover` in memory and on disk, and the cached environment settings. The next call
/// of `discover` probes again. Open devices stay open, and lost devices stay lost.
void rescan();
/// Returns one backend's report without probing the other backends.
const BackendReport& discover(Backend backend);
/// Returns the properties of a device. Throws DeviceError if it does not exist; the message lists the existing devices,
/// or the reason why the backend has none.
const DeviceInfo& device_info(Device device);
/// Returns the device of an earlier backend in `all_backends` that is the same physical device, identified by its PCI
/// address or UUID. Returns std::nullopt if no backend that was probed so far lists it. Automatic selection uses a
/// physical device only once.
std::optional<Device> same_card(Device device);
/// Returns the free memory of the device in bytes. For cpu, this is the smallest of three values: the unused part of
/// the memory limit, the unused part of the control group's limit, and the available host memory. On a GPU, `reserve`
/// bytes are left for other programs. They are subtracted from the GPU's free memory, but not from a limit that was set
/// for this program.
std::uint64_t free_memory(Device device, std::uint64_t reserve = 0);

/// Returns all existing devices in the order of `all_backends`, including those that automatic selection skips. Does
/// not open them.
std::vector<Device> devices();
/// Returns the usable GPUs in the order of automatic selection. A GPU that several drivers list appears once. Does not
/// open them.
std::vector<Device> gpus();
bool has_gpu();  ///< True if gpus() is not empty.

/// Returns the device for new arrays on this thread: the device of the innermost DeviceScope, else TESSERA_DEVICE, else
/// the project's preference, else the user's preference (device/selection/preferences.h), else an automatically
/// selected device.
/// Automatic selection prefers discrete GPUs, then integrated GPUs, then the CPU. It never selects `interp` or CPUs
/// listed by OpenCL. The first automatic selection of a process opens GPUs in order until one works, and logs a warning
/// for each GPU that fails.
/// Throws DeviceError if the device that was set does not exist, and FormatError if a preferences file cannot be read.
Device current_device();
/// The device that `current_device` would select if the first GPU in its order works, and why.
struct Selection {
  Device device;    ///< The selected device.
  std::string why;  ///< The rule that selected it, as text.
};
Selection expected_device();  ///< Returns the selection that `current_device` would make. Does not open a device.

/// Options of gpu_device().
struct GpuRequest {
  std::optional<int> index;  ///< Index in `gpus()`. Default: the device set for this thread, else the first GPU.
  bool require = false;      ///< Throw if there is no GPU.
  /// Skip devices with less free memory than this, in bytes. Opens one device after another to check.
  std::uint64_t free_memory = 0;
};
/// Returns a GPU. If there is none, returns the CPU and warns once per process with the reasons. A device that was set
/// for this thread (by DeviceScope, TESSERA_DEVICE or a preference) is always used, even if it is a CPU. Does not
/// change later selections.
/// Throws DeviceError if `require` is set and there is no GPU (the message has the reason for each backend), or if
/// `index` is out of range.
Device gpu_device(GpuRequest request = {});
/// Level of detail of `why_current_device`. `full`: one sentence with the device, the rule that selected it, and all
/// reasons ("cpu:0 (AMD EPYC): chosen automatically, because no GPU was found: cuda: libcuda.so.1: cannot open ...;
/// rocm: ..."). `brief`: one line with a word or two per backend and the command that prints the details.
enum class Detail : std::uint8_t { full, brief };
/// Explains why current_device() was selected.
std::string why_current_device(Detail detail = Detail::full);

/// Sets the current device of this thread for the scope's lifetime. Does not open the device.
class DeviceScope {
 public:
  explicit DeviceScope(Device device);  ///< Throws DeviceError if the device does not exist.
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
