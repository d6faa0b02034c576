// SPDX-License-Identifier: Apache-2.0
// Exchange with other libraries: DLPack, host memory, and operations by name.
#include <mutex>

#include "core.h"
#include "tessera/array/dlpack.h"
#include "tessera/array/npy.h"
#include "tessera/base/error.h"

namespace tessera::python {

namespace {

// Python objects, and tensors of other libraries whose deleters need the GIL. A thread of the library may drop them
// while another thread holds the GIL and waits for it, so such a thread does not wait for the GIL: the interpreter
// calls `release_waiting`.
struct Waiting {
  std::mutex lock;
  std::vector<std::pair<void*, void (*)(void*)>> all;
};
Waiting& waiting() {
  static auto* const made = new Waiting;  // used until the process ends
  return *made;
}
int release_waiting(void*) {
  std::vector<std::pair<void*, void (*)(void*)>> all;
  {
    const std::lock_guard hold(waiting().lock);
    all.swap(waiting().all);
  }
  for (const auto& [what, release] : all) release(what);
  return 0;
}

template <class M>
constexpr bool is_versioned = std::is_same_v<M, dlpack::ManagedVersioned>;
template <class M>
constexpr const char* capsule_name = is_versioned<M> ? "dltensor_versioned" : "dltensor";
template <class M>
constexpr const char* used_name = is_versioned<M> ? "used_dltensor_versioned" : "used_dltensor";

template <class M>
void release_tensor(void* tensor) {
  auto* const m = static_cast<M*>(tensor);
  if (m->deleter != nullptr) m->deleter(m);
}
/// Imports a tensor of a capsule. The tensor that Tessera gets has a deleter that does not wait for the GIL.
template <class M>
Array import_capsule(PyObject* capsule, const dlpack::Import& how) {
  auto* const original = static_cast<M*>(PyCapsule_GetPointer(capsule, capsule_name<M>));
  if (original == nullptr) throw py::error_already_set();
  auto ours = std::make_unique<M>(*original);
  if constexpr (is_versioned<M>)
    if (!how.copy) ours->flags &= ~dlpack::flag_read_only;  // the caller accepts that the memory must not be written
  ours->manager_context = original;
  ours->deleter = [](M* self) {
    void* const producer = self->manager_context;
    delete self;
    release_with_gil(producer, release_tensor<M>);
  };
  dlpack::Owned<M> owned(ours.release());
  try {
    Array made = without_gil([&] { return dlpack::from_dlpack(std::move(owned), how); });
    PyCapsule_SetName(capsule, used_name<M>);  // the capsule no longer owns the tensor
    return made;
  } catch (...) {
    delete owned.release();  // the capsule still owns the original
    throw;
  }
}

template <class M>
void destroy_capsule(PyObject* capsule) {
  if (!PyCapsule_IsValid(capsule, capsule_name<M>)) return;  // a consumer has taken the tensor
  release_tensor<M>(PyCapsule_GetPointer(capsule, capsule_name<M>));
}
template <class M>
py::object capsule_of(dlpack::Owned<M> tensor) {
  PyObject* const capsule = PyCapsule_New(tensor.get(), capsule_name<M>, destroy_capsule<M>);
  if (capsule == nullptr) throw py::error_already_set();
  tensor.release();
  return py::reinterpret_steal<py::object>(capsule);
}

std::optional<void*> stream_of(py::handle stream) {
  if (stream.is_none()) return std::nullopt;
  const auto number = stream.cast<std::int64_t>();
  return number == -1 ? std::nullopt : std::optional(reinterpret_cast<void*>(number));
}

py::object to_dlpack(const Array& array, const py::object& stream, bool versioned) {
  const std::optional<void*> to = stream_of(stream);
  if (versioned) return capsule_of(without_gil([&] { return dlpack::to_dlpack(array, to); }));
  return capsule_of(without_gil([&] { return dlpack::to_dlpack_unversioned(array, to); }));
}
Array from_capsule(const py::object& capsule, const py::object& stream, bool copy) {
  release_waiting(nullptr);
  const dlpack::Import how{.stream = stream_of(stream), .copy = copy};
  if (PyCapsule_IsValid(capsule.ptr(), capsule_name<dlpack::ManagedVersioned>))
    return import_capsule<dlpack::ManagedVersioned>(capsule.ptr(), how);
  return import_capsule<dlpack::Managed>(capsule.ptr(), how);
}
/// True if the tensor in a capsule must not be written.
bool is_read_only(const py::object& capsule) {
  if (!PyCapsule_IsValid(capsule.ptr(), capsule_name<dlpack::ManagedVersioned>)) return false;
  const auto* tensor = static_cast<const dlpack::ManagedVersioned*>(
      PyCapsule_GetPointer(capsule.ptr(), capsule_name<dlpack::ManagedVersioned>));
  return (tensor->flags & dlpack::flag_read_only) != 0;
}
py::tuple dlpack_device(const Array& array) {
  const Device device = array.device();
  switch (device.backend) {
    case Backend::cuda: return py::make_tuple(int{dlpack::cuda}, device_info(device).native_index);
    case Backend::rocm: return py::make_tuple(int{dlpack::rocm}, device_info(device).native_index);
    case Backend::opencl: return py::make_tuple(int{dlpack::opencl}, device_info(device).native_index);
    case Backend::oneapi: return py::make_tuple(int{dlpack::oneapi}, device_info(device).native_index);
    case Backend::metal: return py::make_tuple(int{dlpack::metal}, device_info(device).native_index);
    default: return py::make_tuple(int{dlpack::cpu}, 0);
  }
}

/// Requests the memory of an object. Throws ArgumentError unless it is in row-major order without gaps.
py::buffer_info contiguous_buffer(const char* operation, const py::buffer& buffer, bool writable) {
  py::buffer_info info = buffer.request(writable);
  if (PyBuffer_IsContiguous(info.view(), 'C') == 0)
    fail<ArgumentError>({.operation = operation,
                         .wrong = "the elements of the buffer are not in row-major order without gaps",
                         .remedy = "Pass a contiguous copy, such as numpy.ascontiguousarray(x)"});
  return info;
}
/// Copies a contiguous buffer to a new array.
Array from_buffer(const py::buffer& buffer, const py::object& dtype, const py::object& shape,
                  const py::object& device) {
  const py::buffer_info info = contiguous_buffer("from_buffer", buffer, false);
  const DType type = dtype_of(dtype);
  const Shape to = shape_of(shape);
  const auto bytes = static_cast<std::uint64_t>(info.size * info.itemsize);
  if (bytes != static_cast<std::uint64_t>(element_count(to)) * dtype_size(type))
    fail<ArgumentError>({.operation = "from_buffer",
                         .with = {{"bytes", std::to_string(bytes)}, {"shape", to_string(to)}},
                         .wrong = "the buffer does not have the size of the shape"});
  const auto where_to = optional_device(device);
  return without_gil([&] { return named::from_host(info.ptr, type, to, where_to); });
}
/// Copies the elements in row-major order to a writable, contiguous buffer.
void read_into(const Array& array, const py::buffer& buffer) {
  const py::buffer_info info = contiguous_buffer("read_into", buffer, true);
  if (static_cast<std::uint64_t>(info.size * info.itemsize) != array.bytes())
    fail<ArgumentError>({.operation = "read_into",
                         .with = {{"bytes", std::to_string(info.size * info.itemsize)}},
                         .wrong = "the buffer does not have the size of the array"});
  without_gil([&] { array.download(info.ptr); });
}

std::string text_of(const py::handle& value) { return py::str(value); }

/// Calls an operation by name. None stands for an attribute that is not given.
py::object apply(const py::str& name, const py::args& operands, const py::kwargs& attributes) {
  std::vector<named::Operand> given;
  given.reserve(operands.size());
  for (const py::handle o : operands) {
    auto operand = operand_or_null(o);
    if (!operand)
      throw py::type_error(name.cast<std::string>() + " takes arrays and numbers, not " +
                           std::string(Py_TYPE(o.ptr())->tp_name));
    given.push_back(std::move(*operand));
  }
  std::vector<named::Attribute> with;
  std::vector<std::string> names;
  names.reserve(attributes.size());
  for (const auto& [key, value] : attributes) {
    if (value.is_none()) continue;
    named::Attribute a{names.emplace_back(text_of(key)), {}};
    if (a.name == "device")
      a.value = to_string(device_of(value));
    else if (a.name == "dtype")
      a.value = std::string(dtype_name(dtype_of(value)));
    else if (PyBool_Check(value.ptr()))
      a.value = std::int64_t{value.ptr() == Py_True};
    else if (PyFloat_Check(value.ptr()))
      a.value = PyFloat_AS_DOUBLE(value.ptr());
    else if (PyIndex_Check(value.ptr())) {
      const py::object number = py::handle(value).attr("__index__")();
      int overflow = 0;
      a.value = std::int64_t{PyLong_AsLongLongAndOverflow(number.ptr(), &overflow)};
      if (overflow != 0)
        throw py::value_error("[" + name.cast<std::string>() + "] " + a.name.data() + " is " + text_of(number) +
                              ", but must be an integer of 64 bits");
    } else if (PyTuple_Check(value.ptr()) || PyList_Check(value.ptr())) {
      const Shape list = shape_of(value);
      a.value = std::vector<std::int64_t>(list.begin(), list.end());
    } else if (PyUnicode_Check(value.ptr()))
      a.value = text_of(value);
    else
      throw py::type_error("the attribute '" + std::string(a.name) + "' of " + name.cast<std::string>() +
                           " cannot be a " + Py_TYPE(value.ptr())->tp_name);
    with.push_back(std::move(a));
  }
  const auto operation = name.cast<std::string>();
  return wrap(without_gil([&] { return named::apply(operation, given, with); }));
}

}  // namespace

void release_with_gil(void* what, void (*release)(void*)) noexcept {
  if (Py_IsInitialized() != 0 && PyGILState_Check() != 0) return release(what);
  {
    const std::lock_guard hold(waiting().lock);
    waiting().all.emplace_back(what, release);
  }
  // After the end of the interpreter, objects are not released. If the queue is full, the next import releases them.
  if (Py_IsInitialized() != 0) Py_AddPendingCall(release_waiting, nullptr);
}

void release_waiting_objects() noexcept { release_waiting(nullptr); }

void define_exchange(py::module_& m) {
  m.def("apply", apply);
  m.def("operations", [] {
    py::list out;
    for (const char* const text : named::operations()) out.append(text);
    return out;
  });
  m.def("to_dlpack", to_dlpack);
  m.def("from_capsule", from_capsule);
  m.def("is_read_only", is_read_only);
  m.def("dlpack_device", dlpack_device);
  m.def("from_buffer", from_buffer);
  m.def("read_into", read_into);
  m.def("to", [](const Array& array, const py::object& device) {
    const Device to = device_of(device);
    return without_gil([&] {
      device_info(to);
      return array.to(to);
    });
  });
  m.def("eval", [](const py::args& arrays) {
    std::vector<Array> all;
    for (const py::handle a : arrays) all.push_back(array_of(a));
    without_gil([&] { eval(all); });
  });
  m.def("promote", [](const py::object& a, const py::object& b) { return promoted_dtype(a, b); });
  m.def("shares_history", [](const Array& a) { return a.has_history(); });
  m.def("save_npy", [](const Array& a, const std::string& path) { without_gil([&] { save_npy(a, path); }); });
  m.def("load_npy", [](const std::string& path, const py::object& device) {
    const auto to = optional_device(device);
    return without_gil([&] { return load_npy(path, to); });
  });
  m.def("map_npy", [](const std::string& path) { return without_gil([&] { return NpyFile::open(path).map(); }); });
  m.def("save_npz", [](const std::string& path, const std::vector<std::pair<std::string, Array>>& arrays,
                       bool compress) { without_gil([&] { save_npz(path, arrays, compress); }); });
  m.def("load_npz", [](const std::string& path, const py::object& device) {
    const auto to = optional_device(device);
    return without_gil([&] { return load_npz(path, to); });
  });
}

}  // namespace tessera::python
