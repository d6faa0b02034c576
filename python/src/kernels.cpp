// SPDX-License-Identifier: Apache-2.0
// Kernels that are traced from Python functions (kernels.py).
#include "core.h"

#include <frameobject.h>
#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include <mutex>
#include <set>

#include "tessera/base/error.h"
#include "tessera/device/launch/kernel.h"
#include "tessera/ir/parse.h"
#include "tessera/ir/value.h"

namespace tessera::python {

namespace {

/// A line of the user's Python code.
struct Line {
  const char* file = nullptr;
  int number = 0;
};
/// Returns the line that called into the package: the first frame outside of kernels.py.
Line current_line() {
  static std::mutex lock;
  static auto* const names = new std::set<std::string>;  // kernels keep pointers to the names
  py::object frame = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(PyEval_GetFrame()));
  while (frame && !frame.is_none()) {
    const auto file = frame.attr("f_code").attr("co_filename").cast<std::string>();
    if (!file.ends_with("tessera/kernels.py")) {
      const std::lock_guard hold(lock);
      return {names->insert(file).first->c_str(), frame.attr("f_lineno").cast<int>()};
    }
    frame = frame.attr("f_back");
  }
  return {};
}

/// Converts a traced value or a number to an operand, and records the line.
ir::Operand operand_of(py::handle object, const Line& line) {
  if (py::isinstance<ir::Value>(object)) return {object.cast<ir::Value>(), line.file, line.number};
  if (PyBool_Check(object.ptr())) return {object.ptr() == Py_True, line.file, line.number};
  if (PyFloat_Check(object.ptr())) return {PyFloat_AS_DOUBLE(object.ptr()), line.file, line.number};
  if (PyIndex_Check(object.ptr()) && array_or_null(object.ptr()) == nullptr)
    return {object.cast<std::int64_t>(), line.file, line.number};
  throw py::type_error("an operand in a kernel must be a traced value or a number, not " +
                       std::string(Py_TYPE(object.ptr())->tp_name) + ". Pass arrays to the kernel as parameters");
}
ir::Operand operand_of(py::handle object) { return operand_of(object, current_line()); }
/// Converts the position of an element.
ir::Operand position_of(py::handle object, const Line& line) {
  ir::Operand at = operand_of(object, line);
  if (PyIndex_Check(object.ptr()) && object.cast<std::int64_t>() < 0)
    fail<KernelError>({.operation = "kernel, " + to_string(ir::SourceLine{line.file, line.number}),
                       .with = {{"index", py::str(object).cast<std::string>()}},
                       .wrong = "an index in a kernel must not be negative",
                       .remedy = "To count from the end, subtract from the buffer's size"});
  return at;
}
/// Converts to a value; a number has its own type (f32, index or bool).
ir::Value value_of(py::handle object) { return operand_of(object).own(); }
bool is_operand(py::handle o) {
  return py::isinstance<ir::Value>(o) || PyFloat_Check(o.ptr()) || PyLong_Check(o.ptr());
}

template <class K>
K kind_of(const std::string& name) {
  for (int k = 0; k < static_cast<int>(K::count_); ++k)
    if (name_of(static_cast<K>(k)) == name) return static_cast<K>(k);
  fail<KernelError>({.operation = "kernel language", .with = {{"name", name}}, .wrong = "there is no such operation"});
}

/// A kernel and the names of its parameters.
struct PythonKernel {
  Kernel kernel;
};

LaunchArgument argument_of(const ir::Function& fn, const ir::Param& p, py::handle object) {
  const auto wrong = [&](const std::string& what) {
    fail<KernelError>({.operation = "kernel " + fn.name,
                       .with = {{"parameter", p.name}},
                       .wrong = what + ", not " + Py_TYPE(object.ptr())->tp_name});
  };
  if (p.is_buffer) {
    const Array* array = array_or_null(object.ptr());
    if (array == nullptr) wrong("the parameter is a buffer, so the argument must be a tessera.Array");
    return may_wait([&] { return kernel_argument(*array, p.access); });
  }
  const auto number = operand_or_null(object);
  if (!number || std::holds_alternative<Array>(*number))
    wrong("the parameter is a scalar, so the argument must be a number");
  return LaunchArgument::scalar(p.dtype, named::scalar_bits(fn.name, p.name, p.dtype, *number));
}

void launch(const PythonKernel& k, const std::vector<std::uint64_t>& shape, const py::args& arguments) {
  const ir::Function& fn = k.kernel.function();
  if (arguments.size() != fn.params.size())
    throw py::type_error("kernel " + fn.name + " takes " + std::to_string(fn.params.size()) + " arguments, not " +
                         std::to_string(arguments.size()));
  if (shape.empty() || shape.size() > 3) throw py::type_error("a kernel is launched with one to three extents");
  std::array<std::uint64_t, 3> extents = {1, 1, 1};
  std::copy(shape.begin(), shape.end(), extents.begin());
  std::vector<LaunchArgument> all;
  for (std::size_t i = 0; i < arguments.size(); ++i) all.push_back(argument_of(fn, fn.params[i], arguments[i]));
  without_gil([&] { k.kernel.launch(extents, all); });
}

/// Traces a Python function that gets handles of the parameters.
PythonKernel trace(const std::string& name, const py::object& block, const std::vector<py::tuple>& parameters,
                   const py::function& body, const std::string& file, int line, bool exact) {
  std::array<std::uint32_t, 3> size = {1, 1, 1};
  if (!block.is_none()) {
    const Shape extents = shape_of(block);
    if (extents.empty() || extents.size() > 3) throw py::type_error("a block has one to three extents");
    for (std::size_t i = 0; i < extents.size(); ++i) size[i] = static_cast<std::uint32_t>(extents[i]);
  }
  const ir::KernelKind kind = block.is_none() ? ir::KernelKind::map : ir::KernelKind::block;
  static auto* const files = new std::set<std::string>;
  ir::Builder builder(name, kind, size, DType::index, {files->insert(file).first->c_str(), line});
  builder.set_exact(exact);
  {
    const ir::Builder::Scope scope(builder);
    py::list handles;
    for (const py::tuple& p : parameters) {
      const auto parameter_name = p[0].cast<std::string>();
      const auto role = p[1].cast<std::string>();
      const DType dtype = p[2].is_none() ? DType::index : dtype_of(p[2]);
      if (role == "scalar")
        handles.append(ir::scalar_param(parameter_name, dtype));
      else
        handles.append(
            ir::buffer_param(parameter_name, dtype, role == "in" ? ir::Access::read : ir::Access::read_write));
    }
    const py::object result = body(*py::tuple(handles));
    if (!result.is_none())
      fail<KernelError>({.operation = "kernel " + name,
                         .wrong = "the function returned a value",
                         .remedy = "A kernel writes its results to buffers"});
  }
  return {Kernel(builder.finish())};
}

template <class Op>
void define_binary(py::class_<ir::Value>& c, const char* name, const char* reflected, Op op) {
  c.def(
      name,
      [op](const ir::Value& a, const py::object& b) -> py::object {
        if (!is_operand(b)) return py::reinterpret_borrow<py::object>(Py_NotImplemented);
        const Line line = current_line();
        return py::cast(op(ir::Operand(a, line.file, line.number), operand_of(b, line)));
      },
      py::is_operator());
  if (reflected != nullptr)
    c.def(
        reflected,
        [op](const ir::Value& a, const py::object& b) -> py::object {
          if (!is_operand(b)) return py::reinterpret_borrow<py::object>(Py_NotImplemented);
          const Line line = current_line();
          return py::cast(op(operand_of(b, line), ir::Operand(a, line.file, line.number)));
        },
        py::is_operator());
}

/// A mutable variable of one thread.
struct PythonVariable {
  ir::Variable variable;
};

}  // namespace

void define_kernels(py::module_& m) {
  using ir::BinaryOp;
  using ir::CompareOp;
  using ir::Operand;
  py::class_<ir::Value> value(m, "Value", "A traced value of a kernel. It is immutable.");
  value.def_property_readonly("dtype", [](const ir::Value& v) -> py::object {
    return v.dtype() == DType::index ? py::object(py::str("index")) : dtype_object(v.dtype());
  });
  const auto two = [&](const char* name, const char* reflected, BinaryOp op) {
    define_binary(value, name, reflected, [op](const Operand& a, const Operand& b) { return ir::binary(op, a, b); });
  };
  two("__add__", "__radd__", BinaryOp::add);
  two("__sub__", "__rsub__", BinaryOp::sub);
  two("__mul__", "__rmul__", BinaryOp::mul);
  two("__truediv__", "__rtruediv__", BinaryOp::div);
  two("__floordiv__", "__rfloordiv__", BinaryOp::div);
  two("__mod__", "__rmod__", BinaryOp::rem);
  two("__and__", "__rand__", BinaryOp::and_);
  two("__or__", "__ror__", BinaryOp::or_);
  two("__xor__", "__rxor__", BinaryOp::xor_);
  two("__lshift__", "__rlshift__", BinaryOp::shl);
  two("__rshift__", "__rrshift__", BinaryOp::shr);
  const auto compare = [&](const char* name, CompareOp op) {
    define_binary(value, name, nullptr, [op](const Operand& a, const Operand& b) { return ir::compare(op, a, b); });
  };
  compare("__eq__", CompareOp::eq);
  compare("__ne__", CompareOp::ne);
  compare("__lt__", CompareOp::lt);
  compare("__le__", CompareOp::le);
  compare("__gt__", CompareOp::gt);
  compare("__ge__", CompareOp::ge);
  value.attr("__hash__") = py::none();
  value.def("__neg__", [](const ir::Value& v) { return ir::unary(ir::UnaryOp::neg, operand_of(py::cast(v))); });
  value.def("__invert__", [](const ir::Value& v) { return ir::unary(ir::UnaryOp::not_, operand_of(py::cast(v))); });
  value.def("__abs__", [](const ir::Value& v) { return ir::unary(ir::UnaryOp::abs, operand_of(py::cast(v))); });
  value.def("__pow__", [](const ir::Value& v, const py::object& b) {
    const Line line = current_line();
    return ir::math(ir::MathOp::pow, Operand(v, line.file, line.number), operand_of(b, line));
  });
  value.def("__bool__", [](const ir::Value&) -> bool {
    const Line line = current_line();
    fail<KernelError>({.operation = "kernel, " + to_string(ir::SourceLine{line.file, line.number}),
                       .wrong = "the value is known only when the kernel runs, so Python cannot use it as a condition",
                       .remedy = "Use if_, for_, while_ or select; write a & b instead of `a and b`"});
  });

  py::class_<ir::BufferRef>(m, "Buffer", "Memory in a kernel: a parameter, shared memory, or an array of a thread.")
      .def("__getitem__",
           [](const ir::BufferRef& b, const py::object& i) { return b.load(position_of(i, current_line())); })
      .def("__setitem__",
           [](const ir::BufferRef& b, const py::object& i, const py::object& v) {
             const Line line = current_line();
             b.store(position_of(i, line), operand_of(v, line));
           })
      .def_property_readonly(
          "dtype", [](const ir::BufferRef& b) { return dtype_object(b.dtype()); }, "The dtype of the elements.")
      .def_property_readonly("size", &ir::BufferRef::size, "The number of elements.")
      .def("load_if",
           [](const ir::BufferRef& b, const py::object& mask, const py::object& i, const py::object& other) {
             return b.load_if(value_of(mask), operand_of(i), operand_of(other));
           })
      .def("atomic", [](const ir::BufferRef& b, const std::string& op, const py::object& i, const py::object& v) {
        const Line line = current_line();
        return b.atomic(kind_of<ir::AtomicOp>(op), position_of(i, line), operand_of(v, line));
      });
  py::class_<PythonVariable>(m, "Variable", "A mutable variable of one thread.")
      .def(py::init([](const py::object& dtype, const py::object& initial) {
        return PythonVariable{ir::Variable(dtype.is_none() ? DType::index : dtype_of(dtype), operand_of(initial))};
      }))
      .def("get", [](const PythonVariable& v) { return v.variable.get(); })
      .def("set", [](const PythonVariable& v, const py::object& to) { v.variable.set(operand_of(to)); });

  m.def("kernel_math", [](const std::string& name, const py::object& a, const py::object& b) {
    const auto op = kind_of<ir::MathOp>(name);
    return b.is_none() ? ir::math(op, operand_of(a)) : ir::math(op, operand_of(a), operand_of(b));
  });
  m.def("kernel_binary", [](const std::string& name, const py::object& a, const py::object& b) {
    const Line line = current_line();
    return ir::binary(kind_of<BinaryOp>(name), operand_of(a, line), operand_of(b, line));
  });
  m.def("kernel_unary", [](const std::string& name, const py::object& a) {
    return ir::unary(kind_of<ir::UnaryOp>(name), operand_of(a));
  });
  m.def("kernel_fma", [](const py::object& a, const py::object& b, const py::object& c) {
    return ir::fma(operand_of(a), operand_of(b), operand_of(c));
  });
  m.def("kernel_select", [](const py::object& c, const py::object& a, const py::object& b) {
    return ir::select(operand_of(c), operand_of(a), operand_of(b));
  });
  m.def("kernel_cast", [](const py::object& dtype, const py::object& a) {
    return ir::cast(dtype.is_none() ? DType::index : dtype_of(dtype), operand_of(a));
  });
  m.def("kernel_bitcast", [](const py::object& dtype, const ir::Value& a) { return ir::bitcast(dtype_of(dtype), a); });
  m.def("kernel_index", [](const std::string& name, std::uint64_t dimension) {
    return ir::Value(ir::Builder::current().index(kind_of<ir::IndexKind>(name), dimension));
  });
  m.def("kernel_shared",
        [](const py::object& dtype, std::uint64_t count) { return ir::shared(dtype_of(dtype), count); });
  m.def("kernel_local",
        [](const py::object& dtype, std::uint64_t count) { return ir::local_array(dtype_of(dtype), count); });
  m.def("kernel_barrier", [] {
    const Line line = current_line();
    ir::barrier(line.file, line.number);
  });
  m.def("kernel_return", [] { ir::return_(); });
  m.def("kernel_block_reduce", [](const std::string& op, const py::object& a) {
    return ir::block_reduce(kind_of<ir::ReduceOp>(op), operand_of(a));
  });
  m.def("kernel_block_sum_scan",
        [](const py::object& a, bool exclusive) { return ir::block_scan(operand_of(a), exclusive); });
  m.def("kernel_subgroup", [](const std::string& op, const py::object& a, const py::object& lane) {
    const auto kind = kind_of<ir::SubgroupOp>(op);
    return lane.is_none() ? ir::subgroup(kind, operand_of(a)) : ir::subgroup(kind, operand_of(a), operand_of(lane));
  });
  m.def("kernel_print", [](const std::string& format, const std::vector<ir::Value>& values) {
    std::vector<ir::NodeId> ids;
    for (const ir::Value& v : values) ids.push_back(v.id());
    ir::Builder::current().print(format, ids);
  });
  m.def("kernel_if", [](const py::object& condition, const py::function& then, const py::object& otherwise) {
    const std::function<void()> other = otherwise.is_none() ? std::function<void()>() : [&] { otherwise(); };
    ir::if_(
        value_of(condition), [&] { then(); }, other);
  });
  m.def("kernel_for", [](const py::object& begin, const py::object& end, const py::object& step,
                         const py::function& body, const py::object& unroll) {
    std::optional<ir::Unroll> rounds;
    if (!unroll.is_none()) rounds = ir::Unroll{unroll.cast<std::uint32_t>()};
    ir::for_(
        operand_of(begin), operand_of(end), operand_of(step), [&](ir::Value i) { body(i); }, rounds);
  });
  m.def("kernel_while", [](const py::function& condition, const py::function& body) {
    ir::while_([&] { return value_of(condition()); }, [&] { body(); });
  });

  py::class_<PythonKernel>(m, "TracedKernel")
      .def("launch", launch)
      .def_property_readonly("name", [](const PythonKernel& k) { return k.kernel.function().name; })
      .def_property_readonly("block_size", [](const PythonKernel& k) { return k.kernel.function().block_size; })
      .def_property_readonly("text", [](const PythonKernel& k) { return ir::to_text(k.kernel.function()); })
      .def("source",
           [](const PythonKernel& k, const py::object& device) {
             const Device d = device_of(device);
             return without_gil([&] { return k.kernel.source(d); });
           })
      .def("prepare", [](const PythonKernel& k, const py::object& device) {
        const Device d = device_of(device);
        without_gil([&] { k.kernel.prepare(d); });
      });
  m.def("trace_kernel", trace);
  m.def("parse_kernel", [](const std::string& text) { return PythonKernel{Kernel(ir::parse(text))}; });
}

}  // namespace tessera::python
