// SPDX-License-Identifier: Apache-2.0
// Shared by the sources of the extension module: the Python type of arrays, conversions of arguments, and the GIL.
#pragma once

#include <pybind11/pybind11.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/array/array.h"
#include "tessera/c/operations.h"
#include "tessera/device/device.h"

namespace tessera::python {

namespace py = pybind11;

/// The object of a Python array. The type is written by hand rather than with py::class_, because creating and reading
/// objects is then several times faster, which matters for operations on small arrays.
struct ArrayObject {
  PyObject_HEAD;
  Array array;
  PyObject* weak_references;
};
extern PyTypeObject* array_type;  ///< tessera.Array

extern PyObject* complex_type;  ///< tessera.ComplexArray (_complex.py), or null while the package is imported

/// Returns the array of an object, or null if the object is not an array.
inline const Array* array_or_null(PyObject* object) {
  return Py_TYPE(object) == array_type || PyType_IsSubtype(Py_TYPE(object), array_type)
             ? &reinterpret_cast<ArrayObject*>(object)->array
             : nullptr;
}
/// Returns the array of an object. Throws TypeError with `what` if it is not an array.
const Array& array_of(py::handle object, const char* what = "array");
/// Returns a new object, or null with a Python error.
PyObject* new_array(Array array) noexcept;
/// Returns a new object.
py::object wrap(Array array);
py::object wrap(std::vector<Array> arrays);  ///< the only array, or a tuple

/// Returns an operand of an operation, or nullopt if the object is neither an array nor a Python number.
std::optional<named::Operand> operand_or_null(py::handle object);

/// Converts a device, or a text such as "cuda:0".
Device device_of(py::handle object);
std::optional<Device> optional_device(py::handle object);  ///< nullopt for None
py::object device_object(Device device);
/// Converts a dtype of Tessera or NumPy, or a name such as "float32" or "f32".
/// Throws DtypeError if there is no such dtype, or if it is complex.
DType dtype_of(py::handle object);
py::object dtype_object(DType dtype);
/// Returns the dtype of a result of operands with these dtypes, which can be complex.
py::object promoted_dtype(py::handle a, py::handle b);
Shape shape_of(py::handle object);
py::tuple shape_object(const Shape& shape);

/// Calls `release(what)` with the GIL: now if the thread holds it, otherwise later, so that a thread that others wait
/// for does not wait for the GIL.
void release_with_gil(void* what, void (*release)(void*)) noexcept;
/// Releases what release_with_gil() has kept for later. The interpreter does so on its main thread only. Needs the GIL.
void release_waiting_objects() noexcept;
/// Returns a reference to an object that C++ code may copy and destroy without the GIL. Using the object needs the GIL.
inline std::shared_ptr<const py::object> share(py::object object) {
  return {new py::object(std::move(object)),
          [](py::object* held) { release_with_gil(held, [](void* o) { delete static_cast<py::object*>(o); }); }};
}

/// Sets the Python error of the current C++ exception.
void set_error() noexcept;
/// Calls `f`, and returns its result, or null with a Python error.
template <class F>
PyObject* guarded(F&& f) noexcept {
  try {
    return f();
  } catch (...) {
    set_error();
    return nullptr;
  }
}
/// Calls `f` without the GIL. Use it for everything that can wait for a device or another thread.
template <class F>
decltype(auto) without_gil(F&& f) {
  const py::gil_scoped_release released;
  return f();
}

extern std::atomic<int> unfinished_tasks;  ///< tasks of Python functions that have not ended
/// Calls `f` without the GIL if there are unfinished tasks, for which it could wait. Releasing the GIL takes a tenth of
/// a microsecond.
template <class F>
decltype(auto) may_wait(F&& f) {
  if (unfinished_tasks.load(std::memory_order_relaxed) == 0) return f();
  return without_gil(f);
}

void define_errors(py::module_& m);
void define_devices(py::module_& m);
void define_arrays(py::module_& m);
void define_complex(py::module_& m);
void define_exchange(py::module_& m);
void define_kernels(py::module_& m);
void define_gradients(py::module_& m);
void define_training(py::module_& m);
void define_models(py::module_& m);
void define_tasks(py::module_& m);

}  // namespace tessera::python

namespace pybind11::detail {
/// Passes arrays to and from functions of pybind11.
template <>
struct type_caster<tessera::Array> {
  PYBIND11_TYPE_CASTER(tessera::Array, const_name("tessera.Array"));
  bool load(handle source, bool) {
    const tessera::Array* array = tessera::python::array_or_null(source.ptr());
    if (array != nullptr) value = *array;
    return array != nullptr;
  }
  static handle cast(tessera::Array array, return_value_policy, handle) {
    return tessera::python::new_array(std::move(array));
  }
};
}  // namespace pybind11::detail
