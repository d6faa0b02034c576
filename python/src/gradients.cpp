// SPDX-License-Identifier: Apache-2.0
// The backward pass. Nested structures of arrays are flattened in Python (_gradients.py).
#include <pybind11/stl.h>

#include "core.h"
#include "tessera/grad/grad.h"

namespace tessera::python {

void define_gradients(py::module_& m) {
  py::class_<detail::Leaves>(m, "Leaves")
      .def(py::init<>())
      .def("add", [](detail::Leaves& l, const Array& a) { return may_wait([&] { return l.add(a, a.dtype()); }); })
      .def("gradients",
           [](const detail::Leaves& l, const Array& value) {
             return without_gil([&] { return l.adjoints(value, detail::unit_adjoint("value_and_grad", value), true); });
           })
      .def("pull_back",
           [](const detail::Leaves& l, const Array& value, const Array& adjoint) {
             return without_gil([&] {
               detail::check_adjoint(value, adjoint);
               return l.adjoints(value, adjoint, false);
             });
           })
      .def("detach", [](const detail::Leaves& l, const Array& a) { return may_wait([&] { return l.detach(a); }); });
  m.def("stop_gradient", [](const Array& a) { return may_wait([&] { return stop_gradient(a); }); });
  m.def("is_differentiable", [](const Array& a) { return differentiable(a); });
}

}  // namespace tessera::python
