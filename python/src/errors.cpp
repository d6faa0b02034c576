// SPDX-License-Identifier: Apache-2.0
// Exceptions: each C++ type has a Python type with the same text.
#include "core.h"
#include "tessera/base/error.h"
#include "tessera/nn/trainer_base.h"
#include "tessera/task/error.h"

namespace tessera::python {

namespace {

PyObject *error, *device_error, *device_lost, *shape_error, *dtype_error, *out_of_memory, *kernel_error, *format_error,
    *argument_error, *task_error, *not_finite;

PyObject* define(py::module_& m, const char* name, const char* doc, std::initializer_list<PyObject*> bases) {
  py::tuple all(bases.size());
  std::size_t i = 0;
  for (PyObject* base : bases) all[i++] = py::reinterpret_borrow<py::object>(base);
  PyObject* made = PyErr_NewExceptionWithDoc((std::string("tessera.") + name).c_str(), doc, all.ptr(), nullptr);
  if (made == nullptr) throw py::error_already_set();
  m.add_object(name, made);
  return made;
}

/// What messages of C++ advise, and the same in Python.
constexpr std::pair<std::string_view, std::string_view> advice[] = {
    {" to({Backend::cpu}) first", " to_device('cpu') first"},
    {"Use to_vector(), or", "Use tolist(), or"},
    {" to(value, device)", " to_device(...)"},
    {" to(...)", " to_device(...)"},
    {".to(device)", ".to_device(device)"},
    {"from_dlpack(tensor, {.copy = true})", "from_dlpack(x, copy=True)"},
    {"with concatenate", "with concat"},
    {" in(x)", " in_(x)"},
    {"replace = true", "replace=True"},
    {"x.astype(DType::f32), and 1.f instead of 1", "x.astype('float32'), and 1.0 instead of 1"},
    {"setup(model, {.dtype = DType::f32})", "nn.setup(model, dtype='float32')"},
    {"setup(model, {.seed, .input})", "nn.setup(model, input=SHAPE)"},
    {"summary(model) lists the paths", "nn.parameters(model) returns the arrays by path"},
    {"Dense{.outputs = ...}", "nn.Linear(inputs, outputs)"},
    {"Embedding{.count = ..., .size = ...}", "nn.Embedding(count, size)"},
    {"Set .epochs or .steps", "Set epochs or steps"},
    {"Set .steps", "Set steps"},
    {"Set .validation", "Set validation"},
    {"Set .checkpoint", "Set checkpoint"},
    {"cast<T>(...)", "kernels.cast(dtype, ...)"},
    {"Use slice() to remove elements", "Use x[begin:end] to remove elements"},
    {"split(a, {3, 3, 2})", "split(x, (3, 3, 2))"},
    {"DeviceScope", "use_device"},
    {"Use to(device)", "Use to_device(device)"},
    {"`n` or in `sizes`", "`n` or in `s`"},
    {"with --template NAME: ", "with template=NAME: "},
    {"with --template: ", "with template=NAME: "},
    {"Shorten it (/system TEXT), or increase the context (--ctx)", "Shorten it, or increase context"},
    {"tessera_operation() lists all of them", "tessera._core.operations() lists all of them"},
};
/// Returns the message with the advice of Python.
std::string python_text(std::string text) {
  for (const auto& [from, to] : advice)
    for (std::size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size())
      text.replace(at, from.size(), to);
  return text;
}

/// Calls `set_type` with the Python type and the text of the exception. Returns false for exceptions of other
/// libraries.
template <class Set>
bool translate(std::exception_ptr thrown, Set&& set_type) {
  const auto set = [&](PyObject* type, const char* text) { set_type(type, python_text(text).c_str()); };
  try {
    std::rethrow_exception(thrown);
  } catch (const DeviceLost& e) {
    set(device_lost, e.what());
  } catch (const DeviceError& e) {
    set(device_error, e.what());
  } catch (const ShapeError& e) {
    set(shape_error, e.what());
  } catch (const DtypeError& e) {
    set(dtype_error, e.what());
  } catch (const OutOfMemory& e) {
    set(out_of_memory, e.what());
  } catch (const KernelError& e) {
    set(kernel_error, e.what());
  } catch (const FormatError& e) {
    set(format_error, e.what());
  } catch (const ArgumentError& e) {
    set(argument_error, e.what());
  } catch (const TaskError& e) {
    set(task_error, e.what());
  } catch (const NotFinite& e) {
    set(not_finite, e.what());
  } catch (const Error& e) {
    set(error, e.what());
  } catch (...) {
    return false;
  }
  return true;
}

}  // namespace

void set_error() noexcept {
  const std::exception_ptr thrown = std::current_exception();
  if (translate(thrown, [](PyObject* type, const char* text) { PyErr_SetString(type, text); })) return;
  try {
    std::rethrow_exception(thrown);
  } catch (py::error_already_set& e) {
    e.restore();
  } catch (const py::builtin_exception& e) {
    e.set_error();
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& e) {
    PyErr_SetString(PyExc_RuntimeError, e.what());
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "an exception of unknown type was thrown");
  }
}

void define_errors(py::module_& m) {
  error = define(m, "Error", "Base class of Tessera's exceptions.", {PyExc_RuntimeError});
  device_error = define(m, "DeviceError", "A device is missing or unusable, or access to it was denied.", {error});
  device_lost =
      define(m, "DeviceLost", "A device failed and cannot recover. Its memory contents are lost.", {device_error});
  shape_error = define(m, "ShapeError", "The shapes do not match the operation, or an index is out of range.",
                       {error, PyExc_IndexError, PyExc_ValueError});
  dtype_error =
      define(m, "DtypeError", "An operation, file or device does not support the dtype.", {error, PyExc_TypeError});
  out_of_memory = define(m, "OutOfMemory", "Memory or a memory budget is exhausted. The process can continue to run.",
                         {error, PyExc_MemoryError});
  kernel_error = define(m, "KernelError", "A kernel is invalid, failed to compile, or failed while running.", {error});
  format_error = define(m, "FormatError", "The content of a file violates its format.", {error, PyExc_ValueError});
  argument_error = define(m, "ArgumentError", "An argument is invalid, and no other exception type applies.",
                          {error, PyExc_ValueError});
  task_error = define(m, "TaskError", "A task failed, or a task that it depends on.", {error});
  not_finite = define(m, "NotFinite", "The loss or gradient of a training step is not finite.", {error});
  py::register_exception_translator([](std::exception_ptr thrown) {
    if (thrown && !translate(thrown, [](PyObject* type, const char* text) { PyErr_SetString(type, text); }))
      std::rethrow_exception(thrown);
  });
}

}  // namespace tessera::python
