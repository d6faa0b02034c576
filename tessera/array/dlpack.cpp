// SPDX-License-Identifier: Apache-2.0
#include "tessera/array/dlpack.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "tessera/array/elementwise.h"
#include "tessera/array/operation.h"
#include "tessera/array/source.h"
#include "tessera/base/error.h"

namespace tessera::dlpack {
namespace {

constexpr std::uint32_t major_version = 1, minor_version = 0;

std::optional<DeviceType> type_of(Backend backend) {
  switch (backend) {
    case Backend::cpu:
    case Backend::interp: return DeviceType::cpu;
    case Backend::cuda: return DeviceType::cuda;
    case Backend::rocm: return DeviceType::rocm;
    case Backend::oneapi: return DeviceType::oneapi;
    case Backend::opencl: return DeviceType::opencl;
    default: return std::nullopt;
  }
}

DataType type_of(DType dtype) {
  const auto bits = static_cast<std::uint8_t>(dtype_size(dtype) * 8);
  if (dtype == DType::boolean) return {TypeCode::boolean, 8, 1};
  if (dtype == DType::bf16) return {TypeCode::bfloat, 16, 1};
  if (is_float(dtype)) return {TypeCode::floating, bits, 1};
  return {is_signed_int(dtype) ? TypeCode::integer : TypeCode::unsigned_integer, bits, 1};
}

DType dtype_of(const DataType& type) {
  for (const DType dtype : storable_dtypes) {
    const DataType ours = type_of(dtype);
    if (ours.code == type.code && ours.bits == type.bits && type.lanes == 1) return dtype;
  }
  constexpr const char* names[] = {"int", "uint", "float", "opaque handle", "bfloat", "complex", "bool"};
  fail<DtypeError>({.operation = "from_dlpack",
                    .with = {{"code", std::to_string(type.code)},
                             {"bits", std::to_string(type.bits)},
                             {"lanes", std::to_string(type.lanes)}},
                    .wrong = fmt::format("the tensor's elements are {}{} x {}, which Tessera does not support",
                                         type.code < std::size(names) ? names[type.code] : "of an unknown kind ",
                                         type.bits, type.lanes),
                    .remedy = "Convert them in the library that created the tensor"});
}

/// Returns the Tessera device of the tensor.
tessera::Device device_of(const Device& device) {
  if (device.type == DeviceType::cpu || device.type == DeviceType::cuda_host || device.type == DeviceType::rocm_host)
    return {Backend::cpu, 0};
  for (const Backend backend : {Backend::cuda, Backend::rocm, Backend::oneapi, Backend::opencl}) {
    if (type_of(backend) != static_cast<DeviceType>(device.type)) continue;
    for (const DeviceInfo& info : discover(backend).devices)
      if (info.native_index == device.id) return info.device;
    fail<DeviceError>(
        {.operation = "from_dlpack",
         .with = {{"device type", std::to_string(device.type)}, {"id", std::to_string(device.id)}},
         .wrong = fmt::format("there is no {} device with driver index {}", backend_name(backend), device.id)});
  }
  fail<DeviceError>({.operation = "from_dlpack",
                     .with = {{"device type", std::to_string(device.type)}, {"id", std::to_string(device.id)}},
                     .wrong = "this device type is not supported",
                     .remedy = "Supported device types are CPU (1), CUDA (2), OpenCL (4), ROCm (10), oneAPI (14), and "
                               "pinned host memory (3, 11). Move the tensor to one of these first"});
}

/// The data that an exported tensor owns: the array, and the arrays of numbers that the tensor points to.
struct Export {
  Array array;
  Shape shape;
  Strides strides;
  std::shared_ptr<Storage> storage;
  std::optional<void*> stream;  ///< The consumer's stream.
};

/// The consumer may return the tensor while its stream still uses the memory, as PyTorch does. Orders later uses of the
/// memory after the work that is now in the stream, without blocking the host. Returns false if the driver does not
/// support this; the memory must then never be reused.
bool keep_for_the_stream(const Export& kept) noexcept {
  if (!kept.stream) return true;
  std::unique_ptr<Queue> queue;
  try {
    queue = Queue::wrap(kept.storage->device(), *kept.stream);
  } catch (...) {  // The device is lost, or this is a forked child process. The memory will not be used again.
    return true;
  }
  try {
    // The stream may have written the memory, so it must also be ordered after all previous uses.
    if (!kept.storage->try_before_write(*queue)) return false;
    kept.storage->after_write(queue->mark());
    return true;
  } catch (...) {
    return false;
  }
}

template <class M>
M* exported(const Array& array, std::optional<void*> stream) {
  const tessera::Device device = array.device();
  const std::optional<DeviceType> type = type_of(device.backend);
  if (!type)
    fail<DeviceError>({.operation = "to_dlpack",
                       .with = {{"device", to_string(device)}},
                       .wrong = "arrays of this backend cannot be exported"});
  detail::check_write_target("to_dlpack", array);
  const BufferView view = array.view_for_writing();  // The consumer may write to the memory.
  Storage& storage = *view.storage;
  void* const data = storage.native_handle();
  storage.flush_readers();  // Evaluates expressions that an observer of this operation has deferred.
  if (stream) {
    const std::unique_ptr<Queue> queue = Queue::wrap(device, *stream);
    storage.before_write(*queue);
  } else {
    storage.wait_writable();
  }
  auto kept = std::make_unique<Export>(Export{array, array.shape(), array.strides(), view.storage, stream});
  auto made = std::make_unique<M>();
  Tensor& t = made->tensor;
  // Many consumers, including PyTorch, ignore byte_offset. It is therefore 0 if `data` is an address.
  const bool address = *type != DeviceType::opencl;
  t.data = array.size() == 0 ? nullptr : address ? static_cast<std::byte*>(data) + view.byte_offset : data;
  t.device = {*type, type == DeviceType::cpu ? 0 : device_info(device).native_index};
  t.ndim = static_cast<std::int32_t>(kept->shape.size());
  t.dtype = type_of(array.dtype());
  t.shape = kept->shape.data();
  t.strides = kept->strides.data();
  t.byte_offset = address ? 0 : view.byte_offset;
  made->deleter = [](M* self) {
    std::unique_ptr<Export> given_back(static_cast<Export*>(self->manager_context));
    // Leaked if the consumer's stream may still write to the memory.
    if (!keep_for_the_stream(*given_back)) static_cast<void>(given_back.release());
    delete self;
  };
  made->manager_context = kept.release();
  return made.release();
}

/// The layout of a tensor after its checks.
struct Layout {
  Shape shape;
  Strides strides;
  std::uint64_t bytes = 0;  ///< The distance from `data` to the end of the last element.
};

Layout layout_of(const Tensor& t, DType dtype) {
  const auto wrong = [&](const std::string& what) {
    fail<ArgumentError>(
        {.operation = "from_dlpack",
         .with = {{"dimensions", std::to_string(t.ndim)}, {"byte offset", std::to_string(t.byte_offset)}},
         .wrong = what});
  };
  constexpr std::int32_t max_dimensions = 64;
  if (t.ndim < 0 || t.ndim > max_dimensions) wrong("the number of dimensions is out of range");
  if (t.ndim > 0 && t.shape == nullptr) wrong("the tensor's shape is null");
  Layout out;
  out.shape.assign(t.shape, t.shape + t.ndim);
  const std::uint64_t size = dtype_size(dtype);
  constexpr std::int64_t most = std::int64_t{1} << 48;  // The limit for every array.
  std::int64_t count = 1;
  for (const std::int64_t extent : out.shape) {
    if (extent < 0) wrong("the tensor has a negative extent");
    if (extent != 0 && count > most / extent) wrong("the tensor has more than 2^48 elements");
    count *= extent;
  }
  out.strides = t.strides != nullptr ? Strides(t.strides, t.strides + t.ndim) : contiguous_strides(out.shape);
  std::int64_t last = 0;
  for (std::size_t d = 0; d < out.shape.size(); ++d) {
    if (out.shape[d] <= 1) {
      // The stride of an axis with fewer than two elements is never used, so it may have any value.
      out.strides[d] = std::max<std::int64_t>(out.strides[d], 0);
      continue;
    }
    if (out.strides[d] < 0) wrong("the tensor has a negative stride: make a contiguous copy first");
    if (out.strides[d] > (most - last) / (out.shape[d] - 1)) wrong("the tensor's strides span more than 2^48 elements");
    last += out.strides[d] * (out.shape[d] - 1);
  }
  if (t.byte_offset % size != 0) wrong("the offset is not a multiple of the element size");
  if (t.byte_offset > std::uint64_t{1} << 56) wrong("the offset is larger than any memory");
  if (count == 0) return out;
  if (t.data == nullptr) wrong("the tensor has elements, but its data is null");
  out.bytes = t.byte_offset + (static_cast<std::uint64_t>(last) + 1) * size;
  return out;
}

template <class M>
Array imported(Owned<M>&& tensor, const Import& how) {
  const Tensor& t = tensor->tensor;
  const DType dtype = dtype_of(t.dtype);
  const Layout layout = layout_of(t, dtype);
  const tessera::Device device = device_of(t.device);
  if (layout.bytes == 0) {
    Array nothing = Array::empty(layout.shape, dtype, device);
    tensor.reset();
    return nothing;
  }
  // Allocated before the tensor is owned. If the allocation throws, the caller keeps the tensor.
  const auto owner = std::make_shared<Owned<M>>();
  const std::shared_ptr<Storage> storage = Storage::wrap_device(device, t.data, layout.bytes, owner);
  if (how.stream) {
    const std::unique_ptr<Queue> producer = Queue::wrap(device, *how.stream);
    storage->after_write(producer->mark());
  }
  Array array = ArrayAccess::make(detail::Source::of(storage, dtype), dtype, layout.shape, layout.strides,
                                  static_cast<std::int64_t>(t.byte_offset / dtype_size(dtype)));
  if (how.copy) {
    array = array.copy().eval();
    storage->wait_writable();
    tensor.reset();
    return array;
  }
  *owner = std::move(tensor);
  return array;
}

void check_pointer(const void* tensor) {
  if (tensor == nullptr) fail<ArgumentError>({.operation = "from_dlpack", .wrong = "the tensor is null"});
}

}  // namespace

Owned<ManagedVersioned> to_dlpack(const Array& array, std::optional<void*> stream) {
  Owned<ManagedVersioned> made(exported<ManagedVersioned>(array, stream));
  made->version = {major_version, minor_version};
  made->flags = 0;
  return made;
}

Owned<Managed> to_dlpack_unversioned(const Array& array, std::optional<void*> stream) {
  return Owned<Managed>(exported<Managed>(array, stream));
}

Array from_dlpack(Owned<ManagedVersioned>&& tensor, const Import& how) {
  const detail::Operation operation("from_dlpack");
  check_pointer(tensor.get());
  if (tensor->version.major != major_version)
    fail<ArgumentError>({.operation = "from_dlpack",
                         .with = {{"version", fmt::format("{}.{}", tensor->version.major, tensor->version.minor)}},
                         .wrong = "this version of DLPack is not supported; 1.x is"});
  if ((tensor->flags & flag_read_only) != 0 && !how.copy)
    fail<ArgumentError>({.operation = "from_dlpack",
                         .wrong = "the tensor is read-only, but arrays are writable",
                         .remedy = "Request a copy: from_dlpack(tensor, {.copy = true})"});
  return operation.finish(imported(std::move(tensor), how));
}

Array from_dlpack(Owned<Managed>&& tensor, const Import& how) {
  const detail::Operation operation("from_dlpack");
  check_pointer(tensor.get());
  return operation.finish(imported(std::move(tensor), how));
}

}  // namespace tessera::dlpack
