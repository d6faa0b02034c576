// SPDX-License-Identifier: Apache-2.0
// Zero-copy exchange of arrays with other libraries (NumPy, PyTorch, JAX, CuPy and others) through DLPack
// (https://dmlc.github.io/dlpack/latest/). The structures match DLPack's C header, both for versions 1.x and for the
// older unversioned form.
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

/// The device of a tensor (DLDevice).
struct Device {
  std::int32_t type;  ///< a DeviceType, or another value that Tessera does not support
  std::int32_t id;    ///< the driver's device index (DeviceInfo::native_index)
};
/// The type of a tensor's elements (DLDataType).
struct DataType {
  std::uint8_t code, bits;  ///< The kind of element (TypeCode) and its size in bits.
  std::uint16_t lanes;      ///< Elements of a vector type; 1 for scalars.
};
/// A tensor in memory owned by the producer (DLTensor).
struct Tensor {
  void* data;                 ///< The start of the memory.
  Device device;              ///< The device that has the memory.
  std::int32_t ndim;          ///< The number of dimensions.
  DataType dtype;             ///< The type of the elements.
  std::int64_t* shape;        ///< The extents, `ndim` of them.
  std::int64_t* strides;      ///< In elements. Null means row-major without gaps.
  std::uint64_t byte_offset;  ///< The distance of the first element from `data`, in bytes.
};
/// The version of DLPack that the producer uses (DLPackVersion).
struct Version {
  std::uint32_t major, minor;  ///< The version's two numbers.
};
/// DLManagedTensor.
struct Managed {
  Tensor tensor;          ///< The tensor.
  void* manager_context;  ///< The producer's own data.
  /// The consumer calls it once to release the tensor.
  void (*deleter)(Managed* self);
};
/// DLManagedTensorVersioned.
struct ManagedVersioned {
  Version version;        ///< The producer's version of DLPack.
  void* manager_context;  ///< The producer's own data.
  /// The consumer calls it once to release the tensor.
  void (*deleter)(ManagedVersioned* self);
  std::uint64_t flags;  ///< A combination of flag_read_only and flag_copied.
  Tensor tensor;        ///< The tensor.
};

/// The deleter of Owned: returns a managed tensor to its producer.
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

/// Exports the memory of an array without copying it. A pending array is computed first. From then on, operations that
/// read the memory are never deferred.
///
/// The consumer takes ownership with `release()` and calls the deleter once it has submitted all work that uses the
/// memory. The memory is valid until that call.
///
/// `stream` is the consumer's stream or queue in the vendor's API. The stream waits for pending work on the memory.
/// After the deleter has been called, later uses of the memory wait on the device for the work that was in the stream
/// at that time. The stream must exist until the deleter is called, and must not be capturing a graph. Without
/// `stream`, this call blocks until the array is ready, and the consumer must complete its work before it calls the
/// deleter.
///
/// `data` points to the first element of the array. On OpenCL, `data` is the start of the memory, and `byte_offset` is
/// set. Throws DeviceError for Metal, which is not supported.
Owned<ManagedVersioned> to_dlpack(const Array& array, std::optional<void*> stream = {});
/// Like to_dlpack, but in the unversioned form.
Owned<Managed> to_dlpack_unversioned(const Array& array, std::optional<void*> stream = {});

/// Options of from_dlpack.
struct Import {
  /// The producer's stream. Tessera's queue waits for all work that has been submitted to this stream. Without a
  /// stream, the contents of the tensor must be complete.
  std::optional<void*> stream = {};
  bool copy = false;  ///< Copies the elements into new memory and returns the tensor to its producer immediately.
};
/// Imports a tensor as an array over the tensor's memory. The tensor is returned to its producer when the last array
/// that uses it is destroyed. If the import fails, the caller keeps the tensor.
///
/// Throws ArgumentError for null pointers, an unknown version, a read-only tensor without `copy`, or an invalid shape,
/// stride or offset. Throws DtypeError for an unsupported element type, and DeviceError if Tessera has no such device.
Array from_dlpack(Owned<ManagedVersioned>&& tensor, const Import& how = {});
Array from_dlpack(Owned<Managed>&& tensor, const Import& how = {});

}  // namespace tessera::dlpack
