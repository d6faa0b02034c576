// SPDX-License-Identifier: Apache-2.0
// The extension module tessera._core. The package's Python files document and wrap what it contains.
#include "core.h"

PYBIND11_MODULE(_core, m) {
  using namespace tessera::python;
  m.doc() = "The part of the package that is written in C++.";
  m.attr("version") = TESSERA_VERSION;
  define_errors(m);
  define_devices(m);
  define_arrays(m);
  define_complex(m);
  define_exchange(m);
  define_kernels(m);
  define_gradients(m);
  define_training(m);
  define_models(m);
  define_tasks(m);
}
