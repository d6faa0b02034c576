// SPDX-License-Identifier: Apache-2.0
// Arithmetic of complex numbers, which Python has as two arrays (_complex.py).
#include <algorithm>

#include "core.h"
#include "tessera/base/error.h"
#include "tessera/fft/complex.h"

namespace tessera::python {

PyObject* complex_type = nullptr;

namespace {

ArrayOperand operand_of(const named::Operand& given) {
  return std::visit([](const auto& v) -> ArrayOperand { return v; }, given);
}

/// The parts of an operand as arrays or numbers.
struct ComplexParts {
  named::Operand real;
  std::optional<named::Operand> imag;

  ComplexParts(py::handle real_part, py::handle imag_part) : real(converted(real_part)) {
    if (!imag_part.is_none()) imag = converted(imag_part);
  }
  /// References the parts.
  ComplexOperand operand() const { return {operand_of(real), imag ? std::optional(operand_of(*imag)) : std::nullopt}; }
  Complex array() const {
    const auto part = [](const named::Operand& o) { return std::get<Array>(o); };
    return imag ? Complex(part(real), part(*imag)) : Complex(part(real));
  }

 private:
  static named::Operand converted(py::handle part) {
    auto operand = operand_or_null(part);
    if (!operand) throw py::type_error("the parts of a complex number must be arrays or numbers");
    return std::move(*operand);
  }
};

using Results = std::vector<Array>;
Results parts_of(Complex z) { return {std::move(z.real), std::move(z.imag)}; }

struct UnaryOperation {
  const char* name;
  Results (*run)(const Complex&);
};
constexpr UnaryOperation unary_operations[] = {
    {"abs", [](const Complex& z) -> Results { return {abs(z)}; }},
    {"angle", [](const Complex& z) -> Results { return {angle(z)}; }},
    {"check", [](const Complex& z) { return parts_of(z); }},
    {"exp", [](const Complex& z) { return parts_of(exp(z)); }},
    {"log", [](const Complex& z) { return parts_of(log(z)); }},
    {"sqrt", [](const Complex& z) { return parts_of(sqrt(z)); }},
};
struct BinaryOperation {
  const char* name;
  Results (*run)(const ComplexOperand&, const ComplexOperand&);
};
constexpr BinaryOperation binary_operations[] = {
    {"add", [](const ComplexOperand& a, const ComplexOperand& b) { return parts_of(detail::complex_sum(a, b)); }},
    {"divide",
     [](const ComplexOperand& a, const ComplexOperand& b) { return parts_of(detail::complex_quotient(a, b)); }},
    {"equal",
     [](const ComplexOperand& a, const ComplexOperand& b) -> Results { return {detail::complex_equal(a, b)}; }},
    {"multiply",
     [](const ComplexOperand& a, const ComplexOperand& b) { return parts_of(detail::complex_product(a, b)); }},
    {"pow", [](const ComplexOperand& a, const ComplexOperand& b) { return parts_of(detail::complex_power(a, b)); }},
    {"subtract",
     [](const ComplexOperand& a, const ComplexOperand& b) { return parts_of(detail::complex_difference(a, b)); }},
};

template <class Table>
auto find_operation(const Table& table, const std::string& name) {
  const auto found = std::ranges::find_if(table, [&](const auto& o) { return name == o.name; });
  if (found == std::end(table)) throw py::value_error("there is no complex operation " + name);
  return found->run;
}

}  // namespace

void define_complex(py::module_& m) {
  // The imaginary part can be None, which is zero.
  m.def("complex_unary", [](const std::string& name, const py::object& real, const py::object& imag) {
    const ComplexParts z(real, imag);
    const auto run = find_operation(unary_operations, name);
    return wrap(may_wait([&] { return run(z.array()); }));
  });
  m.def("complex_binary", [](const std::string& name, const py::object& a_real, const py::object& a_imag,
                             const py::object& b_real, const py::object& b_imag) {
    const ComplexParts a(a_real, a_imag), b(b_real, b_imag);
    const auto run = find_operation(binary_operations, name);
    return wrap(may_wait([&] { return run(a.operand(), b.operand()); }));
  });
  m.def("complex_text", [](const Array& real, const Array& imag) {
    return without_gil([&] { return to_string(Complex(real, imag)); });
  });
  m.def("set_complex_type", [](const py::object& type) { complex_type = type.inc_ref().ptr(); });
}

}  // namespace tessera::python
