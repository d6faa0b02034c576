// SPDX-License-Identifier: Apache-2.0
// Arrays to and from other libraries without copies, by DLPack (https://dmlc.github.io/dlpack/latest/): NumPy, PyTorch,
// JAX, CuPy and others hand each other tensors so. The structures are declared here as its C header has them, for
// versions 1.x and the unversioned form of before.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "tessera/array/array.h"

namespace tessera::dlpack {

enum DeviceType : std::int32_t {
  cpu = 1,
  cuda = 2,
  cuda_host = 3,
  opencl = 4,
  metal = 8,
  rocm = 10,
  rocm_host = 11,
  oneapi = 14
};
enum TypeCode : std::uint8_t { integer = 0, unsigned_integer = 1, floating = 2, bfloat = 4, boolean = 6 };
inline constexpr std::uint64_t flag_read_only = 1, flag_copied = 2;

struct Device {
  std::int32_t type;  ///< DeviceType, or one that Tessera does not know
  std::int32_t id;    ///< the vendor's own number (DeviceInfo::native_index)
};
struct DataType {
  std::uint8_t code, bits;
  std::uint16_t lanes;
};
struct Tensor {
  void* data;
  Device device;
  std::int32_t ndim;
  DataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  ///< in elements; null: row-major without gaps
  std::uint64_t byte_offset;
};
struct Version {
  std::uint32_t major, minor;
};
/// DLManagedTensor.
struct Managed {
  Tensor tensor;
  void* manager_context;
  void (*deleter)(Managed* self);
};
/// DLManagedTensorVersioned.
struct ManagedVersioned {
  Version version;
  void* manager_context;
  void (*deleter)(ManagedVersioned* self);
  std::uint64_t flags;
  Tensor tensor;
};

/// Gives a managed tensor back to who made it.
struct Release {
  void operator()(ManagedVersioned* tensor) const {
    if (tensor != nullptr && tensor->deleter != nullptr) tensor->deleter(tensor);
  }
  void operator()(Managed* tensor) const {
    if (tensor != nullptr && tensor->deleter != nullptr) tensor->deleter(tensor);
  }
};
template <class M>
using Owned = std::unique_ptr<M, Release>;

/// The array's own memory, computed if it was pending, and never deferred on again. The consumer takes it over with
/// `release()` and calls its deleter when it puts no more work on it anywhere; the memory lives until then. `stream`:
/// the consumer's stream or queue of the vendor's API, which is made to wait for what is under way, and whose work up
/// to the deleter's call is waited for before the memory is used again (on the device: the deleter does not wait). It
/// must exist until then. Without it the host waits here, and the consumer's work has to be done when it calls the
/// deleter, which must not run while that stream is being captured into a graph. An array that begins within its memory
/// has its first element at `data`, on OpenCL at `byte_offset` behind it. Metal is not supported: DeviceError.
Owned<ManagedVersioned> to_dlpack(const Array& array, std::optional<void*> stream = {});
/// The same in the unversioned form.
Owned<Managed> to_dlpack_unversioned(const Array& array, std::optional<void*> stream = {});

struct Import {
  /// The producer's stream, for whose work so far our queue waits. Without it what fills the tensor must be done.
  std::optional<void*> stream = {};
  bool copy = false;  ///< into memory of ours; the tensor is given back at once
};
/// An array over the tensor's memory; the tensor is given back with the last array on it. ArgumentError, with the
/// tensor left to the caller: null pointers, an unknown version, a read-only tensor without `copy`, a shape, strides or
/// offset that no array has; DtypeError: a type that Tessera has not (named); DeviceError: a device that does not exist
/// here.
Array from_dlpack(Owned<ManagedVersioned>&& tensor, const Import& how = {});
Array from_dlpack(Owned<Managed>&& tensor, const Import& how = {});

}  // namespace tessera::dlpack
