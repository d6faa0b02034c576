// SPDX-License-Identifier: Apache-2.0
// Devices, dtypes, and the conversion of arguments to them.
#include <pybind11/stl.h>

#include "core.h"
#include "tessera/base/error.h"
#include "tessera/device/context.h"
#include "tessera/task/synchronize.h"

namespace tessera::python {

namespace {

/// A dtype as an object: one object per dtype, with the name in the array API standard. A complex dtype has the dtype
/// of its parts.
struct DtypeObject {
  DType dtype;
  bool is_complex = false;
  friend bool operator==(const DtypeObject&, const DtypeObject&) = default;
};

constexpr const char* standard_names[] = {"bool",  "int8",   "uint8",   "int16",    "uint16",  "int32",  "uint32",
                                          "int64", "uint64", "float16", "bfloat16", "float32", "float64"};
const char* standard_name(DType dtype) { return standard_names[static_cast<std::size_t>(dtype)]; }
const char* name_of(const DtypeObject& d) {
  if (d.is_complex) return d.dtype == DType::f64 ? "complex128" : "complex64";
  return standard_name(d.dtype);
}
constexpr DtypeObject complex_dtypes[] = {{DType::f32, true}, {DType::f64, true}};

PyObject* dtypes[std::size(standard_names)];  // owned references that are never released
PyObject* complex_objects[std::size(complex_dtypes)];

/// Converts a dtype of Tessera or NumPy, a type of Python, or a name.
DtypeObject parse_dtype(py::handle object) {
  if (py::isinstance<DtypeObject>(object)) return object.cast<const DtypeObject&>();
  if (object.ptr() == reinterpret_cast<PyObject*>(&PyFloat_Type)) return {DType::f32};
  if (object.ptr() == reinterpret_cast<PyObject*>(&PyLong_Type)) return {DType::i64};
  if (object.ptr() == reinterpret_cast<PyObject*>(&PyBool_Type)) return {DType::boolean};
  if (object.ptr() == reinterpret_cast<PyObject*>(&PyComplex_Type)) return complex_dtypes[0];
  std::string name;
  if (PyUnicode_Check(object.ptr()))
    name = object.cast<std::string>();
  else if (py::hasattr(object, "name"))  // an instance of numpy.dtype
    name = py::str(object.attr("name"));
  else if (py::hasattr(object, "__name__"))  // a type such as numpy.float32
    name = py::str(object.attr("__name__"));
  else
    name = py::str(object);
  for (const DType dtype : storable_dtypes)
    if (name == standard_name(dtype) || name == dtype_name(dtype)) return {dtype};
  for (const DtypeObject& dtype : complex_dtypes)
    if (name == name_of(dtype)) return dtype;
  fail<DtypeError>({.operation = "dtype",
                    .with = {{"dtype", name}},
                    .wrong = "there is no such dtype",
                    .remedy = "Use a dtype such as tessera.float32, or its name"});
}

/// A device that is set while a `with` block runs.
class UseDevice {
 public:
  explicit UseDevice(Device device) : device_(device) { device_info(device); }
  Device enter() {
    before_ = thread_context.device;
    thread_context.device = device_;
    return device_;
  }
  void exit(const py::args&) { thread_context.device = before_; }

 private:
  Device device_;
  std::optional<Device> before_;
};

py::object none_or(const std::string& text) { return text.empty() ? py::object(py::none()) : py::str(text); }

std::string doctor_text() {
  std::string out;
  for (const BackendReport& r : discover()) {
    out += std::string(backend_name(r.backend)) + ": " + std::string(state_name(r.state)) + "\n";
    if (!r.reason.empty()) out += "  " + r.reason + "\n";
    if (!r.remedy.empty()) out += "  " + r.remedy + "\n";
    for (const DeviceInfo& d : r.devices) {
      out += "  " + to_string(d.device) + ": " + d.name + ", " + std::string(state_name(d.state)) + "\n";
      if (!d.reason.empty()) out += "    " + d.reason + "\n";
      if (!d.remedy.empty()) out += "    " + d.remedy + "\n";
    }
  }
  return out;
}

}  // namespace

Device device_of(py::handle object) {
  if (py::isinstance<Device>(object)) return object.cast<Device>();
  if (PyUnicode_Check(object.ptr())) return parse_device(object.cast<std::string>());
  throw py::type_error("a device must be a tessera.Device or a text such as 'cpu' or 'cuda:1', not " +
                       std::string(Py_TYPE(object.ptr())->tp_name));
}
std::optional<Device> optional_device(py::handle object) {
  return object.is_none() ? std::nullopt : std::optional(device_of(object));
}
py::object device_object(Device device) { return py::cast(device); }

DType dtype_of(py::handle object) {
  const DtypeObject found = parse_dtype(object);
  if (found.is_complex)
    fail<DtypeError>({.operation = "dtype",
                      .with = {{"dtype", name_of(found)}},
                      .wrong = "complex dtypes are not supported here",
                      .remedy = "Use asarray(x, dtype) to convert an array to complex numbers"});
  return found.dtype;
}
py::object promoted_dtype(py::handle a, py::handle b) {
  const DtypeObject x = parse_dtype(a), y = parse_dtype(b);
  const DType both = promote(x.dtype, y.dtype);
  if (!x.is_complex && !y.is_complex) return dtype_object(both);
  return py::reinterpret_borrow<py::object>(complex_objects[both == DType::f64]);
}
py::object dtype_object(DType dtype) {
  return py::reinterpret_borrow<py::object>(dtypes[static_cast<std::size_t>(dtype)]);
}

Shape shape_of(py::handle object) {
  if (PyIndex_Check(object.ptr())) return {object.cast<std::int64_t>()};
  Shape out;
  for (const py::handle extent : py::iter(object)) out.push_back(extent.cast<std::int64_t>());
  return out;
}
py::tuple shape_object(const Shape& shape) {
  py::tuple out(shape.size());
  for (std::size_t i = 0; i < shape.size(); ++i) out[i] = shape[i];
  return out;
}

void define_devices(py::module_& m) {
  py::class_<DtypeObject>(m, "DType", "An element type, such as tessera.float32.")
      .def_property_readonly(
          "name", [](const DtypeObject& d) { return name_of(d); }, "Its name in the array API standard.")
      .def_property_readonly(
          "itemsize", [](const DtypeObject& d) { return dtype_size(d.dtype) * (d.is_complex ? 2 : 1); },
          "Bytes per element.")
      .def("__repr__", [](const DtypeObject& d) { return std::string("tessera.") + name_of(d); })
      .def("__eq__",
           [](const DtypeObject& a, const py::object& b) {
             return py::isinstance<DtypeObject>(b) && b.cast<const DtypeObject&>() == a;
           })
      .def("__hash__",
           [](const DtypeObject& d) { return static_cast<std::size_t>(d.dtype) + (d.is_complex ? 101 : 1); })
      .def("__reduce__", [](const DtypeObject& d) { return std::string(name_of(d)); });
  for (const DType dtype : storable_dtypes) {
    py::object made = py::cast(DtypeObject{dtype});
    m.attr(standard_name(dtype)) = made;
    dtypes[static_cast<std::size_t>(dtype)] = made.release().ptr();
  }
  for (std::size_t i = 0; i < std::size(complex_dtypes); ++i) {
    py::object made = py::cast(complex_dtypes[i]);
    m.attr(name_of(complex_dtypes[i])) = made;
    complex_objects[i] = made.release().ptr();
  }

  py::class_<Device>(m, "Device", "A device: a backend and an index, such as Device('cuda:1').")
      .def(py::init([](const std::string& text) { return parse_device(text); }), py::arg("text"))
      .def_property_readonly(
          "backend", [](Device d) { return std::string(backend_name(d.backend)); }, "The backend's name.")
      .def_readonly("index", &Device::index, "The index among the devices of the backend.")
      .def("__str__", [](Device d) { return to_string(d); })
      .def("__repr__", [](Device d) { return "Device('" + to_string(d) + "')"; })
      .def("__eq__",
           [](Device a, const py::object& b) {
             if (PyUnicode_Check(b.ptr())) return to_string(a) == b.cast<std::string>();
             return py::isinstance<Device>(b) && b.cast<Device>() == a;
           })
      .def("__hash__", [](Device d) { return std::hash<Device>()(d); })
      .def("__reduce__", [](const py::object& d) {
        return py::make_tuple(py::type::of(d), py::make_tuple(to_string(d.cast<Device>())));
      });

  py::class_<DeviceInfo>(m, "DeviceInfo", "Properties of a device.")
      .def_readonly("device", &DeviceInfo::device, "The device.")
      .def_readonly("name", &DeviceInfo::name, "The name that the driver reports.")
      .def_readonly("vendor", &DeviceInfo::vendor, "The vendor.")
      .def_readonly("driver_version", &DeviceInfo::driver_version, "The version of the driver.")
      .def_property_readonly(
          "kind", [](const DeviceInfo& i) { return std::string(kind_name(i.kind)); },
          "The kind of processor, such as 'discrete GPU'.")
      .def_property_readonly(
          "state", [](const DeviceInfo& i) { return std::string(state_name(i.state)); },
          "The state, such as 'verified'.")
      .def_property_readonly(
          "reason", [](const DeviceInfo& i) { return none_or(i.reason); }, "Why the device is not verified, or None.")
      .def_property_readonly(
          "remedy", [](const DeviceInfo& i) { return none_or(i.remedy); }, "What to do, or None.")
      .def_readonly("total_memory", &DeviceInfo::total_memory, "Memory in bytes.")
      .def_readonly("compute_units", &DeviceInfo::compute_units, "Cores or compute units; 0 if unknown.")
      .def_readonly("unified_memory", &DeviceInfo::unified_memory, "True if it shares the host's memory.")
      .def("__repr__", [](const DeviceInfo& i) {
        return "<DeviceInfo " + to_string(i.device) + ": " + i.name + ", " + std::string(state_name(i.state)) + ">";
      });
  py::class_<BackendReport>(m, "BackendReport", "Why a backend can or cannot be used.")
      .def_property_readonly(
          "backend", [](const BackendReport& r) { return std::string(backend_name(r.backend)); }, "The backend's name.")
      .def_property_readonly(
          "state", [](const BackendReport& r) { return std::string(state_name(r.state)); },
          "The state of its best device, or how far loading the driver got.")
      .def_readonly("file", &BackendReport::file, "The library that was tried last.")
      .def_property_readonly(
          "reason", [](const BackendReport& r) { return none_or(r.reason); },
          "The error message of the loader or driver, or None.")
      .def_property_readonly(
          "remedy", [](const BackendReport& r) { return none_or(r.remedy); }, "What to do, or None.")
      .def_readonly("devices", &BackendReport::devices, "Its devices.")
      .def("__repr__", [](const BackendReport& r) {
        return "<BackendReport " + std::string(backend_name(r.backend)) + ": " + std::string(state_name(r.state)) + ">";
      });
  py::class_<UseDevice>(m, "_UseDevice")
      .def(py::init([](const py::object& device) { return UseDevice(device_of(device)); }))
      .def("__enter__", &UseDevice::enter)
      .def("__exit__", &UseDevice::exit);

  m.def("devices", [] { return without_gil([] { return devices(); }); });
  m.def("gpus", [] { return without_gil([] { return gpus(); }); });
  m.def("discover", [] { return without_gil([] { return discover(); }); });
  m.def("rescan", [] { without_gil([] { rescan(); }); });
  m.def("doctor", [] { return without_gil(doctor_text); });
  m.def("device_info", [](const py::object& device) {
    const Device d = device_of(device);
    return without_gil([&] { return device_info(d); });
  });
  m.def("current_device", [] { return without_gil([] { return current_device(); }); });
  m.def("why_current_device", [] { return without_gil([] { return why_current_device(); }); });
  m.def("set_current_device", [](const py::object& device) {
    const auto to = optional_device(device);
    if (to) without_gil([&] { device_info(*to); });
    thread_context.device = to;
  });
  m.def("free_memory", [](const py::object& device) {
    const Device d = device.is_none() ? current_device() : device_of(device);
    return without_gil([&] { return free_memory(d); });
  });
  m.def("synchronize", [] { without_gil([] { synchronize(); }); });
}

}  // namespace tessera::python
