// SPDX-License-Identifier: Apache-2.0
// A pack: kernels that were compiled ahead of time for several targets, in one file. pack/pack.h writes packs. A device
// loads kernels from the pack in use before it looks in the kernel cache or compiles. Internal to device/, backend/ and
// pack/.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/os/input_file.h"
#include "tessera/device/driver.h"

namespace tessera {

/// What a pack contains kernels for.
struct PackTarget {
  std::string name;  ///< "cpu:x86-64-v3", "sm_90", "compute_80", "gfx90a"
  Backend backend = Backend::cpu;
  std::string compiler;  ///< "NVRTC 13.0"
  /// Properties of the device that kernels were traced for. Tessera chooses kernels by them, so a device that uses this
  /// target reports the same values.
  std::uint32_t compute_units = 0;
  std::uint64_t shared_bytes = 0;
  std::string traits;  ///< other properties, which only the backend reads
};

/// Compiles kernels for a target on a machine that need not have such a device. Backends implement it.
class PackCompiler {
 public:
  virtual ~PackCompiler() = default;
  virtual const PackTarget& target() const = 0;
  /// Properties that a device has while it uses the target.
  virtual const DeviceInfo& info() const = 0;
  /// Compiles a kernel to an image for DriverDevice::load. Throws KernelError.
  virtual std::string build(const CompileRequest& request) = 0;
};

/// Returns a compiler for a target: "cpu:x86-64-v3", "sm_90", "compute_80" or "gfx90a". After a colon, the number of
/// compute units can follow. Throws DeviceError if the target is unknown, or if its compiler is not installed. Defined
/// in backend/all.cpp.
std::unique_ptr<PackCompiler> make_pack_compiler(const std::string& target);

/// Implemented by devices that can load kernels from a pack.
class LoadsPacks {
 public:
  virtual ~LoadsPacks() = default;
  /// Returns the name of the target that this device uses; empty if the pack in use has none for it.
  virtual std::string pack_target() const = 0;
  /// Loads an image of the pack. Throws like DriverDevice::load.
  virtual std::unique_ptr<LoadedKernel> load_packed(const CompileRequest& request, const std::string& image) = 0;
  /// Returns why this device cannot compile; empty if it can.
  virtual std::string why_not_compiled() = 0;
};

/// Returns the lines "name: value" that identify a kernel, without the device.
std::string kernel_lines(Backend backend, const CompileRequest& request);

/// An open pack. Thread-safe.
class KernelPack {
 public:
  struct Entry {
    std::uint32_t target = 0;  ///< index in the list of targets
    std::string key;           ///< kernel_lines()
    std::string image;
  };

  /// Opens a file and reads its index. Throws ArgumentError if it cannot be read, and FormatError if it is no pack, is
  /// truncated or damaged, or was made by another version of Tessera.
  explicit KernelPack(const std::string& file);
  /// Returns the content of a file with these kernels.
  static std::string to_bytes(const std::vector<PackTarget>& targets, const std::vector<Entry>& entries);

  const std::string& file() const { return file_; }
  const std::vector<PackTarget>& targets() const { return targets_; }
  const PackTarget* target(std::string_view name) const;     ///< null if there is none
  std::size_t kernels(std::string_view target) const;        ///< number of kernels for a target
  std::string target_names(std::string_view between) const;  ///< the names of all targets
  /// Reads the image of a kernel. Returns std::nullopt if the pack does not contain it. Throws FormatError if the file
  /// is damaged.
  std::optional<std::string> find(std::string_view target, std::string_view key) const;
  /// Reads all images. Throws FormatError if one is damaged.
  void check_images() const;

 private:
  struct Place {
    std::uint64_t offset = 0, bytes = 0;
    std::string hash;
  };
  std::string read(const Place& place) const;
  std::string file_;
  InputFile input_;
  std::uint64_t images_at_ = 0;  ///< where the images begin in the file
  std::vector<PackTarget> targets_;
  std::vector<std::map<std::string, Place, std::less<>>> places_;  ///< per target, by key
};

/// Returns the pack that use_pack() or TESSERA_PACK named, or null. Opens it at the first call. Throws the errors of
/// KernelPack at every call.
const KernelPack* pack_in_use();
/// Returns the pack like pack_in_use(), but null instead of throwing.
const KernelPack* usable_pack() noexcept;
/// Makes processes use this pack instead of TESSERA_PACK. Throws the errors of KernelPack. Throws ArgumentError if a
/// device of a backend that the pack has kernels for is already open.
void set_pack(const std::string& file);
/// Returns a text that changes if another pack is used; empty if none is.
std::string pack_stamp();
/// Returns the file that set_pack() named; empty if it was not called.
std::string pack_file_set();

}  // namespace tessera
