// SPDX-License-Identifier: Apache-2.0
// Tasks that run Python functions, and regions of them (tasks.py). The interpreter runs one function at a time, but
// array operations release the GIL while there are unfinished tasks.
#include <pybind11/stl.h>

#include "core.h"
#include "tessera/base/error.h"
#include "tessera/c/tasks.h"

namespace tessera::python {

std::atomic<int> unfinished_tasks = 0;

namespace {

using named::Object;
using ObjectTask = Task<Object>;

/// An exception of a Python function. It can be copied, printed and destroyed without the GIL.
class PythonError : public std::exception {
 public:
  explicit PythonError(const py::error_already_set& error)
      : exception_(share(error.value())), text_(py::str(error.type().attr("__name__"))) {
    if (error.trace()) PyException_SetTraceback(exception_->ptr(), error.trace().ptr());
    try {
      if (const std::string said = py::str(error.value()); !said.empty()) text_ += ": " + said;
    } catch (const py::error_already_set&) {  // its __str__ raises, or the text is not valid Unicode
    }
  }
  const char* what() const noexcept override { return text_.c_str(); }
  /// Raises a copy if there can be one: the frames that it passes are added to its traceback, and they may refer to the
  /// task, which refers to the exception.
  [[noreturn]] void raise() const {
    py::object raised = *exception_;
    try {
      const py::object copy = py::module_::import("copy").attr("copy")(raised);
      if (Py_TYPE(copy.ptr()) == Py_TYPE(raised.ptr())) {
        for (const char* const name : {"__cause__", "__context__", "__suppress_context__", "__traceback__"})
          copy.attr(name) = raised.attr(name);
        raised = copy;
      }
    } catch (const py::error_already_set&) {}
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(raised.ptr())), raised.ptr());
    throw py::error_already_set();
  }

 private:
  std::shared_ptr<const py::object> exception_;
  std::string text_;
};

/// Calls `f`, which waits for tasks, without the GIL. Throws the exception of the task instead of TaskError.
template <class F>
void wait_for(F&& f) {
  try {
    without_gil(f);
  } catch (const TaskError& failed) {
    if (!failed.cause()) throw;
    try {
      failed.rethrow_cause();
    } catch (const PythonError& error) {
      error.raise();
    }
  }
}

/// Returns the result of a task. Needs the GIL.
const py::object& object_of(const Object& result) { return *static_cast<const py::object*>(result.get()); }

/// The function of a task.
struct Body {
  explicit Body(py::object to_call) : call(share(std::move(to_call))) { ++unfinished_tasks; }
  Object operator()(const std::vector<Array>& arrays, const std::vector<Object>& results) const {
    const py::gil_scoped_acquire held;
    release_waiting_objects();
    try {
      py::list array_objects, result_objects;
      for (const Array& a : arrays) array_objects.append(wrap(a));
      for (const Object& r : results) result_objects.append(object_of(r));
      return share((*call)(array_objects, result_objects));
    } catch (const py::error_already_set& error) {
      throw PythonError(error);
    }
  }

  std::shared_ptr<void> count{nullptr, [](void*) { --unfinished_tasks; }};  ///< destroyed when the task has ended
  std::shared_ptr<const py::object> call;
};

/// A region. Its destructor waits for the tasks.
struct PythonRegion {
  Region* const region = new Region;
  PythonRegion() = default;
  PythonRegion(const PythonRegion&) = delete;
  ~PythonRegion() {
    const py::gil_scoped_release released;
    try {
      region->wait();
    } catch (const TaskError&) {  // thrown by wait() before, which tasks.py calls
    } catch (...) {
      return;  // the tasks of the parent of a forked process never end in this one
    }
    try {
      delete region;
    } catch (...) {}
  }
};

Access mode_of(const std::string& name) {
  for (const Access mode : {Access::in, Access::out, Access::inout, Access::commute})
    if (name == to_string(mode)) return mode;
  throw py::value_error("unknown access mode " + name);
}

ObjectTask spawn_object(PythonRegion* region, const py::object& call,
                        const std::vector<std::pair<Array, std::string>>& arrays, std::vector<ObjectTask> tasks,
                        const std::string& name, const py::object& device) {
  release_waiting_objects();
  std::vector<Accessed> accessed;
  for (const auto& [array, mode] : arrays) accessed.push_back({array, mode_of(mode)});
  TaskOptions options{.name = name};
  if (!device.is_none()) options.scope = Scope(device_of(device));
  return without_gil([&, body = Body(call)]() mutable {
    return named::spawn_object(region != nullptr ? region->region : nullptr, options, std::move(body),
                               std::move(accessed), std::move(tasks));
  });
}

}  // namespace

void define_tasks(py::module_& m) {
  py::class_<ObjectTask>(m, "Task")
      .def("wait", [](const ObjectTask& t) { wait_for([&] { t.wait(); }); })
      .def("result",
           [](const ObjectTask& t) {
             wait_for([&] { t.wait(); });
             return py::object(object_of(*t.node().value));
           })
      .def("ended", &ObjectTask::ended)
      .def("cancel", [](const ObjectTask& t) { return without_gil([&] { return t.cancel(); }); })
      .def_property_readonly("name", &ObjectTask::name)
      .def_property_readonly("device", &ObjectTask::device);
  py::class_<PythonRegion>(m, "Region")
      .def(py::init<>())
      .def("wait", [](PythonRegion& r) { wait_for([&] { r.region->wait(); }); })
      .def("cancel", [](PythonRegion& r) { without_gil([&] { r.region->cancel(); }); });
  m.def("spawn", spawn_object, py::arg("region").none(true), py::arg("call"), py::arg("arrays"), py::arg("tasks"),
        py::arg("name"), py::arg("device"));
}

}  // namespace tessera::python
