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

/// Kinds of devices, with DLPack's numbers (DLDeviceType).
enum DeviceType : std::int32_t {
  cpu = 1,         ///< host memory
  cuda = 2,        ///< memory of a CUDA GPU
  cuda_host = 3,   ///< host memory pinned by CUDA
  opencl = 4,      ///< memory of an OpenCL device
  metal = 8,       ///< memory of a Metal GPU
  rocm = 10,       ///< memory of a ROCm GPU
  rocm_host = 11,  ///< host memory pinned by ROCm
  /// memory of a oneAPI device
  oneapi = 14
};
/// Kinds of elements, with DLPack's numbers (DLDataTypeCode).
enum TypeCode : std::uint8_t { integer = 0, unsigned_integer = 1, floating = 2, bfloat = 4, boolean = 6 };
inline constexpr std::uint64_t flag_read_only = 1, flag_copied = 2;  ///< Bits of ManagedVersioned::flags.

/// Where a tensor is (DLDevice).
struct Device {
  std::int32_t type;  ///< DeviceType, or one that Tessera does not know
  std::int32_t id;    ///< the vendor's own number (DeviceInfo::native_index)
};
/// The type of a tensor's elements (DLDataType).
struct DataType {
  std::uint8_t code, bits;  ///< The kind of element (TypeCode) and its size in bits.
  std::uint16_t lanes;      ///< Elements of a vector type; 1 for scalars.
};
/// A tensor that someone else owns (DLTensor).
struct Tensor {
  void* data;                 ///< The start of the memory.
  Device device;              ///< Where the memory is.
  std::int32_t ndim;          ///< The number of dimensions.
  DataType dtype;             ///< The type of the elements.
  std::int64_t* shape;        ///< The extents, `ndim` of them.
  std::int64_t* strides;      ///< in elements; null: row-major without gaps
  std::uint64_t byte_offset;  ///< The first element, in bytes from `data`.
};
/// The version of DLPack that the producer uses (DLPackVersion).
struct Version {
  std::uint32_t major, minor;  ///< The version's two numbers.
};
/// DLManagedTensor.
struct Managed {
  Tensor tensor;          ///< The tensor.
  void* manager_context;  ///< The producer's own data.
  /// Called once by the consumer, to release the tensor.
  void (*deleter)(Managed* self);
};
/// DLManagedTensorVersioned.
struct ManagedVersioned {
  Version version;        ///< The producer's version of DLPack.
  void* manager_context;  ///< The producer's own data.
  /// Called once by the consumer, to release the tensor.
  void (*deleter)(ManagedVersioned* self);
  std::uint64_t flags;  ///< A combination of flag_read_only and flag_copied.
  Tensor tensor;        ///< The tensor.
};

/// Gives a managed tensor back to who made it.
struct Release {
  /// Calls the tensor's deleter, if it has one.
  void operator()(ManagedVersioned* tensor) const {
    if (tensor != nullptr && tensor->deleter != nullptr) tensor->deleter(tensor);
  }
  void operator()(Managed* tensor) const {
    if (tensor != nullptr && tensor->deleter != nullptr) tensor->deleter(tensor);
  }
};
/// A managed tensor that is released when its owner is destroyed.
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

/// Options of from_dlpack.
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
