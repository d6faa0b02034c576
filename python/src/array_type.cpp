// SPDX-License-Identifier: Apache-2.0
// The type tessera.Array: operators, indexing and properties. The other methods are written in Python (_methods.py).
#include "core.h"

#include <structmember.h>

#include <algorithm>
#include <new>

#include "tessera/array/functions.h"
#include "tessera/array/index.h"
#include "tessera/base/error.h"

namespace tessera::python {

PyTypeObject* array_type = nullptr;

namespace {

Array& self_of(PyObject* self) { return reinterpret_cast<ArrayObject*>(self)->array; }

/// Converts a Python number to an operand. Returns false if it is not a number.
bool number_operand(PyObject* object, named::Operand& out) {
  if (PyBool_Check(object)) {
    out = object == Py_True;
  } else if (PyFloat_Check(object)) {
    out = PyFloat_AS_DOUBLE(object);
  } else if (PyLong_Check(object)) {
    int overflow = 0;
    const std::int64_t value = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (overflow != 0)
      fail<DtypeError>({.operation = "operand",
                        .with = {{"value", py::str(py::handle(object)).cast<std::string>()}},
                        .wrong = "the integer does not fit in 64 bits"});
    out = value;
  } else {
    return false;
  }
  return true;
}

/// Calls `f` with the object as an operand of array operations. Returns NotImplemented for other objects.
template <class F>
PyObject* with_operand(PyObject* object, F&& f) {
  if (const Array* a = array_or_null(object)) return f(ArrayOperand(*a));
  if (PyFloat_Check(object)) return f(ArrayOperand(PyFloat_AS_DOUBLE(object)));
  named::Operand number;
  if (!number_operand(object, number)) Py_RETURN_NOTIMPLEMENTED;
  if (const bool* b = std::get_if<bool>(&number)) return f(ArrayOperand(*b));
  const std::int64_t v = std::get<std::int64_t>(number);
  // A 32-bit number, if it fits, so that it does not widen bools to 64 bits.
  return v == static_cast<std::int32_t>(v) ? f(ArrayOperand(static_cast<std::int32_t>(v))) : f(ArrayOperand(v));
}

/// Computes an operator with a Python complex number by ComplexArray, to which the array is converted. Returns
/// NotImplemented for other objects.
template <class F>
PyObject* with_complex(PyObject* a, PyObject* b, F&& call) {
  const bool is_first = array_or_null(a) != nullptr;
  if (complex_type == nullptr || !PyComplex_Check(is_first ? b : a)) Py_RETURN_NOTIMPLEMENTED;
  const py::object converted = py::handle(complex_type).attr("_from_real")(py::handle(is_first ? a : b));
  return is_first ? call(converted.ptr(), b) : call(a, converted.ptr());
}
/// `call` is the function of Python for the operator.
template <class Call, class Op>
PyObject* binary(PyObject* a, PyObject* b, Call call, Op op) noexcept {
  return guarded([&]() -> PyObject* {
    PyObject* const result = with_operand(a, [&](const ArrayOperand& x) {
      return with_operand(b, [&](const ArrayOperand& y) { return new_array(may_wait([&] { return op(x, y); })); });
    });
    if (result != Py_NotImplemented) return result;
    Py_DECREF(result);
    return with_complex(a, b, call);
  });
}
bool is_complex(PyObject* object) {
  return PyComplex_Check(object) || (complex_type != nullptr && PyObject_IsInstance(object, complex_type) == 1);
}
[[noreturn]] void fail_complex_target(const char* operation, const Array& target) {
  fail<DtypeError>({.operation = operation,
                    .with = {{"dtype", std::string(dtype_name(target.dtype()))}},
                    .wrong = "complex numbers cannot be written to an array of real numbers",
                    .remedy = "Convert the array with astype('complex64')"});
}
/// Writes the result of an operation into the memory of `self`.
template <class Op>
PyObject* in_place(PyObject* self, PyObject* b, Op op) noexcept {
  return guarded([&] {
    PyObject* const result = with_operand(b, [&](const ArrayOperand& y) {
      may_wait([&] { op(self_of(self), y); });
      Py_INCREF(self);
      return self;
    });
    if (result == Py_NotImplemented && is_complex(b)) {
      Py_DECREF(result);
      fail_complex_target("in place", self_of(self));
    }
    return result;
  });
}
template <class Op>
PyObject* unary(PyObject* self, Op op) noexcept {
  return guarded([&] {
    const Array a = self_of(self);  // other threads may assign to the object while this one waits
    return new_array(may_wait([&] { return op(a); }));
  });
}

bool is_float_operand(const ArrayOperand& a) { return is_float(a.dtype()); }

/// Python's division: the quotient of integers is f32.
Array true_divide(const ArrayOperand& a, const ArrayOperand& b) {
  if (is_float_operand(a) || is_float_operand(b)) return a / b;
  const auto real = [](const ArrayOperand& x) -> ArrayOperand {
    if (x.is_array()) return x.array().astype(DType::f32);
    return x.value();
  };
  return real(a) / real(b);
}
/// True where the remainder is not 0 and has another sign than the divisor.
Array differs_in_sign(const Array& remainder, const ArrayOperand& divisor) {
  return (remainder != 0) & ((remainder < 0) != (ArrayOperand(remainder * 0 + divisor) < 0));
}
/// Python's remainder, which has the sign of the divisor.
Array floor_remainder(const ArrayOperand& a, const ArrayOperand& b) {
  const Array r = a % b, result = where(differs_in_sign(r, b), r + b, r);
  // A zero gets the sign of the divisor, except in gradients: copysign has other derivatives.
  if (!is_float(r.dtype()) || r.has_history()) return result;
  return where(r == 0, copysign(r, b), result);
}
/// Python's floor division.
Array floor_divide(const ArrayOperand& a, const ArrayOperand& b) {
  const Array r = a % b;
  if (is_float(r.dtype())) return floor(a / b);
  return a / b - differs_in_sign(r, b).astype(r.dtype());
}
/// Python's power. Powers of integers are computed by multiplication. Waits for exponents in an integer array.
Array power(const ArrayOperand& a, const ArrayOperand& b) {
  if (is_float_operand(a) || is_float_operand(b)) return pow(a, b);
  const auto check = [](std::int64_t least) {
    if (least < 0)
      fail<ArgumentError>({.operation = "**",
                           .with = {{"exponent", std::to_string(least)}},
                           .wrong = "an integer has no negative powers",
                           .remedy = "Convert the array to a float dtype"});
  };
  if (!b.is_array()) {
    check(static_cast<std::int64_t>(b.value()));
    Array result = Array::full(a.array().shape(), 1, a.array().dtype(), a.array().device()), square = a.array();
    for (auto n = static_cast<std::uint64_t>(b.value()); n > 0; n >>= 1) {
      if (n & 1) result = result * square;
      if (n > 1) square = square * square;
    }
    return result;
  }
  Array square = b.array() * 0 + a, exponent = b.array().astype(square.dtype());
  if (is_signed_int(exponent.dtype()) && exponent.size() > 0)
    check(min(exponent).astype(DType::i64).item<std::int64_t>());
  auto most = exponent.size() > 0 ? max(exponent).astype(DType::u64).item<std::uint64_t>() : 0;
  Array result = Array::full(square.shape(), 1, square.dtype(), square.device());
  for (; most > 0; most >>= 1) {
    result = where((exponent & 1) == 1, result * square, result);
    exponent = exponent >> 1;
    square = square * square;
  }
  return result;
}
PyObject* compare(PyObject* a, PyObject* b, int how) noexcept {
  const auto call = [how](PyObject* x, PyObject* y) { return PyObject_RichCompare(x, y, how); };
  switch (how) {
    case Py_EQ: return binary(a, b, call, [](const auto& x, const auto& y) { return x == y; });
    case Py_NE: return binary(a, b, call, [](const auto& x, const auto& y) { return x != y; });
    case Py_LT: return binary(a, b, call, [](const auto& x, const auto& y) { return x < y; });
    case Py_LE: return binary(a, b, call, [](const auto& x, const auto& y) { return x <= y; });
    case Py_GT: return binary(a, b, call, [](const auto& x, const auto& y) { return x > y; });
    default: return binary(a, b, call, [](const auto& x, const auto& y) { return x >= y; });
  }
}

/// The only element as a Python number.
py::object item(const Array& a) {
  if (a.size() != 1)
    fail<ShapeError>({.operation = "item",
                      .with = {{"shape", to_string(a.shape())}},
                      .wrong = "the array does not have exactly one element"});
  if (is_float(a.dtype())) {
    const double value = without_gil([&] { return a.astype(DType::f64).item<double>(); });
    return py::float_(value);
  }
  if (a.dtype() == DType::boolean) {
    const bool value = without_gil([&] { return a.item<bool>(); });
    return py::bool_(value);
  }
  if (a.dtype() == DType::u64) return py::int_(without_gil([&] { return a.item<std::uint64_t>(); }));
  return py::int_(without_gil([&] { return a.astype(DType::i64).item<std::int64_t>(); }));
}

// Indexing.

/// Converts one element of an index.
AxisIndex index_of(PyObject* object) {
  if (object == Py_Ellipsis) return Ellipsis{};
  if (object == Py_None) return NewAxis{};
  if (PySlice_Check(object)) {
    const auto* s = reinterpret_cast<PySliceObject*>(object);
    const auto bound = [](PyObject* o) -> std::optional<std::int64_t> {
      if (o == Py_None) return std::nullopt;
      return py::handle(o).attr("__index__")().cast<std::int64_t>();
    };
    return Slice{bound(s->start), bound(s->stop), bound(s->step).value_or(1)};
  }
  if (const Array* array = array_or_null(object)) return *array;
  if (!PyIndex_Check(object) || PyBool_Check(object))
    throw py::type_error("an index must be integers, slices, None, '...' and arrays of integers or bools, not " +
                         std::string(Py_TYPE(object)->tp_name));
  const Py_ssize_t at = PyNumber_AsSsize_t(object, PyExc_IndexError);
  if (at == -1 && PyErr_Occurred()) throw py::error_already_set();
  return at;
}
std::vector<AxisIndex> indices_of(PyObject* key) {
  std::vector<AxisIndex> out;
  if (!PyTuple_Check(key)) {
    out.push_back(index_of(key));
  } else {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); ++i) out.push_back(index_of(PyTuple_GET_ITEM(key, i)));
  }
  return out;
}

PyObject* get_item(PyObject* self, PyObject* key) noexcept {
  return guarded([&] {
    const Array a = self_of(self);
    const std::vector<AxisIndex> indices = indices_of(key);
    const auto is_mask = [](const AxisIndex& i) {
      const auto* array = std::get_if<Array>(&i);
      return array != nullptr && array->dtype() == DType::boolean;
    };
    // A mask waits for the device.
    if (std::ranges::any_of(indices, is_mask)) return new_array(without_gil([&] { return index(a, indices); }));
    return new_array(may_wait([&] { return index(a, indices); }));
  });
}
int set_item(PyObject* self, PyObject* key, PyObject* value) noexcept {
  const auto set = [&]() -> PyObject* {
    if (value == nullptr) throw py::type_error("elements of an array cannot be deleted");
    Array& a = self_of(self);
    const auto operand = operand_or_null(value);
    if (!operand) {
      if (is_complex(value)) fail_complex_target("index", a);
      throw py::type_error("the value must be an array or a number, not " + std::string(Py_TYPE(value)->tp_name));
    }
    const Array values = named::array_of(*operand, a.dtype(), a.device());
    const std::vector<AxisIndex> indices = indices_of(key);
    may_wait([&] { index_assign(a, indices, values); });
    return Py_None;
  };
  return guarded(set) == nullptr ? -1 : 0;
}

Py_ssize_t length(PyObject* self) noexcept {
  const Array& a = self_of(self);
  if (a.rank() > 0) return a.shape(0);
  PyErr_SetString(PyExc_TypeError, "len() of an array without axes");
  return -1;
}
int truth(PyObject* self) noexcept {
  PyObject* const value = guarded([&] { return item(self_of(self)).release().ptr(); });
  if (value == nullptr) return -1;
  const int result = PyObject_IsTrue(value);
  Py_DECREF(value);
  return result;
}
template <PyObject* (*convert)(PyObject*)>
PyObject* converted(PyObject* self) noexcept {
  PyObject* const value = guarded([&] { return item(self_of(self)).release().ptr(); });
  if (value == nullptr) return nullptr;
  PyObject* const result = convert(value);
  Py_DECREF(value);
  return result;
}
PyObject* as_index(PyObject* self) noexcept {
  return guarded([&] {
    if (!is_int(self_of(self).dtype())) throw py::type_error("only an array of integers can be an index");
    return item(self_of(self)).release().ptr();
  });
}

PyObject* repr(PyObject* self) noexcept {
  return guarded([&] { return py::str(without_gil([&] { return to_string(self_of(self)); })).release().ptr(); });
}
void deallocate(PyObject* self) noexcept {
  auto* const object = reinterpret_cast<ArrayObject*>(self);
  if (object->weak_references != nullptr) PyObject_ClearWeakRefs(self);
  std::destroy_at(&object->array);
  PyTypeObject* const type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);  // objects of a heap type own a reference to it
}
PyObject* no_new(PyTypeObject*, PyObject*, PyObject*) noexcept {
  PyErr_SetString(PyExc_TypeError,
                  "tessera.Array has no constructor: use tessera.asarray, zeros, arange or from_dlpack");
  return nullptr;
}

template <auto get>
PyObject* property(PyObject* self, void*) noexcept {
  return guarded([&] { return get(self_of(self)).release().ptr(); });
}
constexpr auto get_dtype = [](const Array& a) { return dtype_object(a.dtype()); };
constexpr auto get_device = [](const Array& a) { return device_object(a.device()); };
constexpr auto get_shape = [](const Array& a) { return shape_object(a.shape()); };
constexpr auto get_strides = [](const Array& a) { return shape_object(a.strides()); };
constexpr auto get_rank = [](const Array& a) -> py::object { return py::int_(a.rank()); };
constexpr auto get_size = [](const Array& a) -> py::object { return py::int_(a.size()); };
constexpr auto get_bytes = [](const Array& a) -> py::object { return py::int_(a.bytes()); };
constexpr auto get_pending = [](const Array& a) -> py::object { return py::bool_(a.pending()); };

PyGetSetDef properties[] = {
    {"dtype", property<get_dtype>, nullptr, "The element type.", nullptr},
    {"device", property<get_device>, nullptr, "The device that has the memory.", nullptr},
    {"shape", property<get_shape>, nullptr, "The extents as a tuple.", nullptr},
    {"strides", property<get_strides>, nullptr, "The distance between neighbours along each axis, in elements.",
     nullptr},
    {"ndim", property<get_rank>, nullptr, "The number of axes.", nullptr},
    {"size", property<get_size>, nullptr, "The number of elements.", nullptr},
    {"nbytes", property<get_bytes>, nullptr, "The size of the elements in bytes.", nullptr},
    {"pending", property<get_pending>, nullptr, "True if the elements have not been computed yet.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyObject* method_item(PyObject* self, PyObject*) noexcept {
  return guarded([&] { return item(self_of(self)).release().ptr(); });
}
PyObject* method_eval(PyObject* self, PyObject*) noexcept {
  return guarded([&] {
    without_gil([&] { self_of(self).eval(); });
    Py_INCREF(self);
    return self;
  });
}
/// reshape(2, 3) and reshape((2, 3))
PyObject* method_reshape(PyObject* self, PyObject* arguments) noexcept {
  return guarded([&] {
    const bool is_one = PyTuple_GET_SIZE(arguments) == 1;
    const Shape to = shape_of(is_one ? PyTuple_GET_ITEM(arguments, 0) : arguments);
    const Array a = self_of(self);
    return new_array(may_wait([&] { return a.reshape(to); }));
  });
}

// Elementwise functions of one array, which would take a third of a microsecond longer by name.
template <Array (*f)(Array)>
PyObject* elementwise(PyObject*, PyObject* argument) noexcept {
  return guarded([&] {
    const Array a = array_of(argument, "the operand");
    return new_array(may_wait([&] { return f(a); }));
  });
}
#define TESSERA_FUNCTION(name) \
  { #name, elementwise<name>, METH_O, nullptr }
PyMethodDef functions[] = {TESSERA_FUNCTION(abs),
                           TESSERA_FUNCTION(acos),
                           TESSERA_FUNCTION(asin),
                           TESSERA_FUNCTION(atan),
                           TESSERA_FUNCTION(ceil),
                           TESSERA_FUNCTION(cos),
                           TESSERA_FUNCTION(cosh),
                           TESSERA_FUNCTION(erf),
                           TESSERA_FUNCTION(exp),
                           TESSERA_FUNCTION(exp2),
                           TESSERA_FUNCTION(expm1),
                           TESSERA_FUNCTION(floor),
                           TESSERA_FUNCTION(gelu),
                           TESSERA_FUNCTION(isfinite),
                           TESSERA_FUNCTION(isinf),
                           TESSERA_FUNCTION(isnan),
                           TESSERA_FUNCTION(log),
                           TESSERA_FUNCTION(log10),
                           TESSERA_FUNCTION(log1p),
                           TESSERA_FUNCTION(log2),
                           TESSERA_FUNCTION(relu),
                           TESSERA_FUNCTION(rint),
                           TESSERA_FUNCTION(rsqrt),
                           TESSERA_FUNCTION(sigmoid),
                           TESSERA_FUNCTION(sign),
                           TESSERA_FUNCTION(silu),
                           TESSERA_FUNCTION(sin),
                           TESSERA_FUNCTION(sinh),
                           TESSERA_FUNCTION(sqrt),
                           TESSERA_FUNCTION(tan),
                           TESSERA_FUNCTION(tanh),
                           TESSERA_FUNCTION(trunc),
                           {"logical_not", elementwise<(operator!)>, METH_O, nullptr},
                           {"negative", elementwise<(operator-)>, METH_O, nullptr},
                           {nullptr, nullptr, 0, nullptr}};

PyMethodDef methods[] = {
    {"reshape", method_reshape, METH_VARARGS,
     "Returns the elements with another shape: a view if the strides allow it. One extent can be -1."},
    {"item", method_item, METH_NOARGS, "Returns the only element as a Python number. Waits for the device."},
    {"eval", method_eval, METH_NOARGS, "Computes the elements now if they are pending, and returns the array."},
    {nullptr, nullptr, 0, nullptr}};
PyMemberDef members[] = {{"__weaklistoffset__", T_PYSSIZET, offsetof(ArrayObject, weak_references), READONLY, nullptr},
                         {nullptr, 0, 0, 0, nullptr}};

// Slots without captures, so that they convert to function pointers.
#define TESSERA_BINARY(function, expression)                                                \
  [](PyObject* a, PyObject* b) {                                                            \
    return binary(a, b, function, [](const auto& x, const auto& y) { return expression; }); \
  }
#define TESSERA_IN_PLACE(statement) \
  [](PyObject* a, PyObject* b) { return in_place(a, b, [](Array& x, const ArrayOperand& y) { statement; }); }
#define TESSERA_SLOT(number, Type, ...) \
  { number, reinterpret_cast<void*>(static_cast<Type>(__VA_ARGS__)) }

PyType_Slot slots[] = {
    TESSERA_SLOT(Py_nb_add, binaryfunc, TESSERA_BINARY(PyNumber_Add, x + y)),
    TESSERA_SLOT(Py_nb_subtract, binaryfunc, TESSERA_BINARY(PyNumber_Subtract, x - y)),
    TESSERA_SLOT(Py_nb_multiply, binaryfunc, TESSERA_BINARY(PyNumber_Multiply, x* y)),
    TESSERA_SLOT(Py_nb_true_divide, binaryfunc, TESSERA_BINARY(PyNumber_TrueDivide, true_divide(x, y))),
    TESSERA_SLOT(Py_nb_floor_divide, binaryfunc, TESSERA_BINARY(PyNumber_FloorDivide, floor_divide(x, y))),
    TESSERA_SLOT(Py_nb_remainder, binaryfunc, TESSERA_BINARY(PyNumber_Remainder, floor_remainder(x, y))),
    TESSERA_SLOT(Py_nb_and, binaryfunc, TESSERA_BINARY(PyNumber_And, x& y)),
    TESSERA_SLOT(Py_nb_or, binaryfunc, TESSERA_BINARY(PyNumber_Or, x | y)),
    TESSERA_SLOT(Py_nb_xor, binaryfunc, TESSERA_BINARY(PyNumber_Xor, x ^ y)),
    TESSERA_SLOT(Py_nb_lshift, binaryfunc, TESSERA_BINARY(PyNumber_Lshift, x << y)),
    TESSERA_SLOT(Py_nb_rshift, binaryfunc, TESSERA_BINARY(PyNumber_Rshift, x >> y)),
    TESSERA_SLOT(Py_nb_power, ternaryfunc,
                 [](PyObject* a, PyObject* b, PyObject*) {
                   const auto call = [](PyObject* x, PyObject* y) { return PyNumber_Power(x, y, Py_None); };
                   return binary(a, b, call, [](const auto& x, const auto& y) { return power(x, y); });
                 }),
    TESSERA_SLOT(Py_nb_inplace_add, binaryfunc, TESSERA_IN_PLACE(x += y)),
    TESSERA_SLOT(Py_nb_inplace_subtract, binaryfunc, TESSERA_IN_PLACE(x -= y)),
    TESSERA_SLOT(Py_nb_inplace_multiply, binaryfunc, TESSERA_IN_PLACE(x *= y)),
    TESSERA_SLOT(Py_nb_inplace_true_divide, binaryfunc, TESSERA_IN_PLACE(x.assign(true_divide(x, y)))),
    TESSERA_SLOT(Py_nb_inplace_floor_divide, binaryfunc, TESSERA_IN_PLACE(x.assign(floor_divide(x, y)))),
    TESSERA_SLOT(Py_nb_inplace_remainder, binaryfunc, TESSERA_IN_PLACE(x.assign(floor_remainder(x, y)))),
    TESSERA_SLOT(Py_nb_inplace_and, binaryfunc, TESSERA_IN_PLACE(x.assign(x& y))),
    TESSERA_SLOT(Py_nb_inplace_or, binaryfunc, TESSERA_IN_PLACE(x.assign(x | y))),
    TESSERA_SLOT(Py_nb_inplace_xor, binaryfunc, TESSERA_IN_PLACE(x.assign(x ^ y))),
    TESSERA_SLOT(Py_nb_inplace_lshift, binaryfunc, TESSERA_IN_PLACE(x.assign(x << y))),
    TESSERA_SLOT(Py_nb_inplace_rshift, binaryfunc, TESSERA_IN_PLACE(x.assign(x >> y))),
    TESSERA_SLOT(Py_nb_inplace_power, ternaryfunc,
                 [](PyObject* a, PyObject* b, PyObject*) {
                   return in_place(a, b, [](Array& x, const ArrayOperand& y) { x.assign(power(x, y)); });
                 }),
    TESSERA_SLOT(Py_nb_negative, unaryfunc, [](PyObject* a) { return unary(a, [](const Array& x) { return -x; }); }),
    TESSERA_SLOT(Py_nb_positive, unaryfunc, [](PyObject* a) { return unary(a, [](const Array& x) { return x; }); }),
    TESSERA_SLOT(Py_nb_absolute, unaryfunc,
                 [](PyObject* a) { return unary(a, [](const Array& x) { return abs(x); }); }),
    TESSERA_SLOT(Py_nb_invert, unaryfunc,
                 [](PyObject* a) {
                   return unary(a, [](const Array& x) {
                     if (x.dtype() == DType::boolean) return !x;
                     return is_unsigned_int(x.dtype()) ? x ^ Array::full({}, 1.9e19, x.dtype(), x.device()) : -x - 1;
                   });
                 }),
    TESSERA_SLOT(Py_nb_bool, inquiry, truth),
    TESSERA_SLOT(Py_nb_int, unaryfunc, converted<PyNumber_Long>),
    TESSERA_SLOT(Py_nb_float, unaryfunc, converted<PyNumber_Float>),
    TESSERA_SLOT(Py_nb_index, unaryfunc, as_index),
    TESSERA_SLOT(Py_tp_richcompare, richcmpfunc, compare),
    TESSERA_SLOT(Py_tp_hash, hashfunc, PyObject_HashNotImplemented),
    TESSERA_SLOT(Py_tp_repr, reprfunc, repr),
    TESSERA_SLOT(Py_tp_dealloc, destructor, deallocate),
    TESSERA_SLOT(Py_tp_new, newfunc, no_new),
    TESSERA_SLOT(Py_mp_length, lenfunc, length),
    TESSERA_SLOT(Py_mp_subscript, binaryfunc, get_item),
    TESSERA_SLOT(Py_mp_ass_subscript, objobjargproc, set_item),
    {Py_tp_getset, properties},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {Py_tp_doc, const_cast<char*>("An n-dimensional array on one device. Elementwise operations are lazy and fused.")},
    {0, nullptr}};
PyType_Spec spec = {"tessera.Array", sizeof(ArrayObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};

}  // namespace

PyObject* new_array(Array array) noexcept {
  PyObject* const object = array_type->tp_alloc(array_type, 0);
  if (object == nullptr) return nullptr;
  auto* const made = reinterpret_cast<ArrayObject*>(object);
  std::construct_at(&made->array, std::move(array));
  made->weak_references = nullptr;
  return object;
}
py::object wrap(Array array) {
  PyObject* const object = new_array(std::move(array));
  if (object == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(object);
}
py::object wrap(std::vector<Array> arrays) {
  if (arrays.size() == 1) return wrap(std::move(arrays[0]));
  py::tuple out(arrays.size());
  for (std::size_t i = 0; i < arrays.size(); ++i) out[i] = wrap(std::move(arrays[i]));
  return out;
}
const Array& array_of(py::handle object, const char* what) {
  if (const Array* a = array_or_null(object.ptr())) return *a;
  throw py::type_error(std::string(what) + " must be a tessera.Array, not " + Py_TYPE(object.ptr())->tp_name);
}
std::optional<named::Operand> operand_or_null(py::handle object) {
  if (const Array* a = array_or_null(object.ptr())) return *a;
  named::Operand out;
  return number_operand(object.ptr(), out) ? std::optional(std::move(out)) : std::nullopt;
}

void define_arrays(py::module_& m) {
  array_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  if (array_type == nullptr) throw py::error_already_set();
  m.add_object("Array", reinterpret_cast<PyObject*>(array_type));
  Py_INCREF(array_type);
  if (PyModule_AddFunctions(m.ptr(), functions) != 0) throw py::error_already_set();
}

}  // namespace tessera::python
