# SPDX-License-Identifier: Apache-2.0
"""Kernels that are written in Python.

A kernel is a Python function that is called once, with traced values; the operations are recorded and compiled for each
device. docs/python.md explains how to write kernels, and docs/kernels.md what the operations do.

    from tessera import kernels as tk

    @tk.kernel
    def saxpy(x: tk.In("f32"), y: tk.InOut("f32"), a: tk.Scalar("f32")):
        i = tk.global_id()
        y[i] = a * x[i] + y[i]

    saxpy(1000, x, y, 2.0)
"""

from __future__ import annotations

import inspect
import numbers
import re
from typing import Any, Callable, Sequence

from . import _core, _functions
from ._core import Array, Buffer, KernelError, Value


# Python would iterate by calling __getitem__ until it raises IndexError, which it never does.
Buffer.__iter__ = Buffer.__contains__ = None


def _check_numbers(*operands: Any, dtype: Any = None) -> None:
    """Raises DtypeError if a number does not fit in the dtype, by default that of the first traced value."""
    if dtype is None:
        dtype = next((o.dtype for o in operands if isinstance(o, Value)), None)
    _functions._check_fits("kernel", [o for o in operands if isinstance(o, numbers.Real)], dtype)


def _check_operator(name: str) -> None:
    compute = getattr(Value, name)

    def operator(self: Value, other: Any) -> Value:
        _check_numbers(self, other)
        return compute(self, other)

    operator.__name__ = operator.__qualname__ = name
    setattr(Value, name, operator)


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "and", "or", "xor", "lshift", "rshift"):
    _check_operator(f"__{_name}__")
    _check_operator(f"__r{_name}__")
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    _check_operator(f"__{_name}__")


def _check_memory(name: str) -> None:
    access = getattr(Buffer, name)

    def method(self: Buffer, *operands: Any) -> Any:
        _check_numbers(operands[-1], dtype=self.dtype)
        return access(self, *operands)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = access.__doc__
    setattr(Buffer, name, method)


for _name in ("__setitem__", "load_if", "atomic"):
    _check_memory(_name)  # the last operand has the dtype of the memory


class _Parameter:
    """The type of a parameter."""

    def __init__(self, role: str, dtype: Any):
        self.role, self.dtype = role, dtype


def In(dtype: Any) -> _Parameter:
    """A buffer that the kernel reads."""
    return _Parameter("in", dtype)


def InOut(dtype: Any) -> _Parameter:
    """A buffer that the kernel reads and writes."""
    return _Parameter("out", dtype)


def Scalar(dtype: Any) -> _Parameter:
    """A number. The dtype "index" is an integer of 32 or 64 bits, which the launch chooses."""
    return _Parameter("scalar", None if dtype == "index" else dtype)


_plain = {int: Scalar("index"), float: Scalar("f32"), "int": Scalar("index"), "float": Scalar("f32")}


class Kernel:
    """A traced kernel. Calling it launches it."""

    def __init__(self, traced: Any, function: Callable | None = None):
        self._traced = traced
        self.__doc__ = getattr(function, "__doc__", None)
        self.__name__ = traced.name
        self.__wrapped__ = function
        names = re.findall(r"^  (buffer|scalar) (\w+):", traced.text, re.M)
        written = set(re.findall(r"^  buffer (\w+): \w+ read_write", traced.text, re.M))
        self._written = {i for i, (_, n) in enumerate(names) if n in written}
        # Elements at global_id(0) outside of conditions: accessed by every thread, so that the array needs one for each.
        used = set(re.findall(r"^  (?:%\d+: \w+ = load|store) (\w+)\[global_id\(0\)\]", traced.text, re.M))
        returns = re.search(r"^ +return\b", traced.text, re.M) is not None
        self._elementwise = () if returns else tuple((i, n) for i, (_, n) in enumerate(names) if n in used)

    def __call__(self, shape: int | Sequence[int], *arguments: Any) -> None:
        """Launches the kernel on the device of its arrays and returns immediately.

        `shape` is the number of threads in each dimension, or the number of blocks for a kernel with blocks. Pass
        arrays for buffers, which must be contiguous, and numbers for scalars. Raises KernelError if the arguments do
        not match the parameters, or if an array that each thread accesses at global_id() has fewer elements than there
        are threads, and DeviceError if the arrays are on different devices. Other indices are not checked.
        """
        if isinstance(shape, int):
            extents = [shape]
        elif isinstance(shape, (list, tuple)):
            extents = list(shape)
        else:
            extents = [shape.__index__()] if hasattr(shape, "__index__") and not isinstance(shape, Array) else [None]
        if any(not hasattr(n, "__index__") or n < 0 for n in extents):
            raise TypeError(
                f"[{self.__name__}] the first argument must be the number of threads (or blocks), an int that is not "
                f"negative or a sequence of them, not {shape if isinstance(shape, (int, list, tuple)) else type(shape).__name__}"
            )
        if self._elementwise and extents:
            threads = extents[0] * (self._traced.block_size[0] if self._traced.block_size else 1)
            for i, name in self._elementwise:
                if i < len(arguments) and isinstance(arguments[i], Array) and arguments[i].size < threads:
                    raise KernelError(f"[{self.__name__}] {threads} threads access the elements of '{name}', which has "
                                      f"{arguments[i].size}. Launch fewer threads or pass a larger array")  # fmt: skip
        self._traced.launch(extents, *arguments)

    @property
    def text(self) -> str:
        """The kernel as text, which parse() reads."""
        return self._traced.text

    def source(self, device: Any) -> str:
        """Returns the source code that the device's compiler reads."""
        return self._traced.source(device)

    def prepare(self, device: Any) -> None:
        """Compiles the kernel now, so that a later launch does not wait for the compiler."""
        self._traced.prepare(device)

    def __repr__(self) -> str:
        return f"<Kernel {self.__name__}>"


def kernel(function: Callable | None = None, *, block: int | Sequence[int] | None = None, exact: bool = False) -> Any:
    """Traces a function once and returns a Kernel. Use it as a decorator.

    The parameters are annotated with In, InOut and Scalar (or int and float). `block` is the number of threads of a
    block in each dimension; without it, there is one thread per element. With `exact`, products and sums are rounded
    separately. Raises KernelError with the line if the function violates a rule of the language.
    """
    if function is None:
        return lambda f: kernel(f, block=block, exact=exact)
    if block is not None:
        block = (block,) if hasattr(block, "__index__") else tuple(block)
        if any(not 1 <= n < 2**32 for n in block):
            raise KernelError(f"[kernel {function.__name__}] an extent of the block {block} is out of range. "
                              "Use extents of at least 1; devices limit their product, usually to 1024")  # fmt: skip
    parameters = []
    scope = {**function.__globals__, **inspect.getclosurevars(function).nonlocals}
    for name, p in inspect.signature(function).parameters.items():
        kind = p.annotation
        if isinstance(kind, str) and kind not in _plain:  # from __future__ import annotations
            kind = eval(kind, scope)  # noqa: S307 (the annotation is code of the user)
        kind = _plain.get(kind, kind) if isinstance(kind, (str, type)) else kind
        if not isinstance(kind, _Parameter):
            raise KernelError(f"[kernel {function.__name__}] the parameter '{name}' has no type. "
                              "Annotate it with In, InOut or Scalar")  # fmt: skip
        parameters.append((name, kind.role, kind.dtype))
    code = function.__code__
    traced = _core.trace_kernel(function.__name__, block, parameters, function, code.co_filename, code.co_firstlineno,
                                exact)  # fmt: skip
    return Kernel(traced, function)


def parse(text: str) -> Kernel:
    """Reads a kernel from its text form."""
    return Kernel(_core.parse_kernel(text))


# Position of the thread. The functions after block_id() exist only in kernels with blocks.


def global_id(dimension: int = 0) -> Value:
    """The number of this thread among all threads."""
    return _core.kernel_index("global_id", dimension)


def extent(dimension: int = 0) -> Value:
    """The number of threads of the launch."""
    return _core.kernel_index("extent", dimension)


def thread_id(dimension: int = 0) -> Value:
    """The number of this thread in its block."""
    return _core.kernel_index("thread_id", dimension)


def block_id(dimension: int = 0) -> Value:
    """The number of the block."""
    return _core.kernel_index("block_id", dimension)


def block_size(dimension: int = 0) -> Value:
    """The number of threads of a block."""
    return _core.kernel_index("block_size", dimension)


def block_count(dimension: int = 0) -> Value:
    """The number of blocks."""
    return _core.kernel_index("block_count", dimension)


def lane_id() -> Value:
    """The number of this thread in its subgroup."""
    return _core.kernel_index("lane_id", 0)


def subgroup_size() -> Value:
    """The number of threads of a subgroup."""
    return _core.kernel_index("subgroup_size", 0)


# Memory and variables.


class Variable:
    """A mutable variable of one thread, for values that change inside if_, for_ and while_."""

    def __init__(self, dtype: Any, initial: Any = 0):
        self._dtype = None if dtype == "index" else _functions._dtype_of(dtype)
        _check_numbers(initial, dtype=self._dtype)
        self._variable = _core.Variable(self._dtype, initial)

    @property
    def value(self) -> Value:
        """The current value. Assign to change it."""
        return self._variable.get()

    @value.setter
    def value(self, to: Any) -> None:
        _check_numbers(to, dtype=self._dtype)
        self._variable.set(to)


def shared(dtype: Any, count: int) -> Buffer:
    """Memory that the threads of a block share, without defined contents."""
    return _core.kernel_shared(dtype, count)


def local(dtype: Any, count: int) -> Buffer:
    """Memory of one thread, filled with zeros."""
    return _core.kernel_local(dtype, count)


def load_if(mask: Any, buffer: Buffer, index: Any, otherwise: Any) -> Value:
    """Loads an element if the mask is true; the index may be out of range if it is not."""
    return buffer.load_if(mask, index, otherwise)


def atomic_add(buffer: Buffer, index: Any, value: Any) -> Value:
    """Adds to an element atomically, and returns its old value."""
    return buffer.atomic("add", index, value)


def atomic_max(buffer: Buffer, index: Any, value: Any) -> Value:
    """Replaces an element by the larger value atomically, and returns its old value."""
    return buffer.atomic("max", index, value)


def atomic_min(buffer: Buffer, index: Any, value: Any) -> Value:
    """Replaces an element by the smaller value atomically, and returns its old value."""
    return buffer.atomic("min", index, value)


# Control flow. The bodies are functions that are called once while the kernel is traced.


def if_(condition: Any, otherwise: Callable[[], Any] | None = None) -> Callable:
    """Runs the decorated function if the condition holds, and `otherwise` if it does not."""

    def trace(then: Callable[[], Any]) -> None:
        _core.kernel_if(condition, then, otherwise)

    return trace


def for_(begin: Any, end: Any, step: Any = 1, *, unroll: int | None = None) -> Callable:
    """Runs the decorated function with begin, begin + step, ... while the counter is less than end."""

    def trace(body: Callable[[Value], Any]) -> None:
        _check_numbers(begin, end, step)
        _core.kernel_for(begin, end, step, body, unroll)

    return trace


def while_(condition: Callable[[], Any]) -> Callable:
    """Runs the decorated function while the condition, a function, holds."""

    def trace(body: Callable[[], Any]) -> None:
        _core.kernel_while(condition, body)

    return trace


def return_() -> None:
    """Ends the thread."""
    _core.kernel_return()


def barrier() -> None:
    """Waits for all threads of the block, and orders their accesses to memory."""
    _core.kernel_barrier()


def print_(text: str, *values: Value) -> None:
    """Prints a text; {} stands for a value."""
    _core.kernel_print(text, list(values))


# Functions of values.


def select(condition: Any, if_true: Any, if_false: Any) -> Value:
    """Returns one of two values; both are evaluated."""
    _check_numbers(if_true, if_false)
    return _core.kernel_select(condition, if_true, if_false)


def cast(dtype: Any, value: Any) -> Value:
    """Converts to a dtype or "index". Conversions from floats to integers round towards zero and saturate."""
    return _core.kernel_cast(None if dtype == "index" else dtype, value)


def bitcast(dtype: Any, value: Value) -> Value:
    """Reinterprets the bits as a dtype of the same size."""
    return _core.kernel_bitcast(dtype, value)


def fma(a: Any, b: Any, c: Any) -> Value:
    """Returns a * b + c, rounded once."""
    _check_numbers(a, b, c)
    return _core.kernel_fma(a, b, c)


def min(a: Any, b: Any) -> Value:  # noqa: A001
    """Returns the smaller value. If one of two floats is NaN, returns the other one."""
    _check_numbers(a, b)
    return _core.kernel_binary("min", a, b)


def max(a: Any, b: Any) -> Value:  # noqa: A001
    """Returns the larger value. If one of two floats is NaN, returns the other one."""
    _check_numbers(a, b)
    return _core.kernel_binary("max", a, b)


def popcount(a: Any) -> Value:
    """Returns the number of bits that are set."""
    return _core.kernel_unary("popcount", a)


def clz(a: Any) -> Value:
    """Returns the number of leading zero bits."""
    return _core.kernel_unary("clz", a)


def block_sum(a: Any) -> Value:
    """Returns the sum over all threads of the block."""
    return _core.kernel_block_reduce("sum", a)


def block_max(a: Any) -> Value:
    """Returns the largest value of all threads of the block."""
    return _core.kernel_block_reduce("max", a)


def block_min(a: Any) -> Value:
    """Returns the smallest value of all threads of the block."""
    return _core.kernel_block_reduce("min", a)


def block_scan(a: Any, *, exclusive: bool = False) -> Value:
    """Returns the running sum in the order of the threads."""
    return _core.kernel_block_sum_scan(a, exclusive)


def subgroup_sum(a: Any) -> Value:
    """Returns the sum over the subgroup."""
    return _core.kernel_subgroup("sum", a, None)


def subgroup_shuffle(a: Any, lane: Any) -> Value:
    """Returns the value of another lane."""
    return _core.kernel_subgroup("shuffle", a, lane)


def _math(name: str, doc: str) -> Callable[[Any], Value]:
    def function(a: Any) -> Value:
        return _core.kernel_math(name, a, None)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


sqrt = _math("sqrt", "Returns the square root.")
rsqrt = _math("rsqrt", "Returns 1 / sqrt(a).")
floor = _math("floor", "Returns the largest integer that is at most a.")
ceil = _math("ceil", "Returns the smallest integer that is at least a.")
trunc = _math("trunc", "Returns a rounded towards zero.")
rint = _math("rint", "Returns the nearest integer, ties to even.")
exp = _math("exp", "Returns e to the power of a.")
exp2 = _math("exp2", "Returns 2 to the power of a.")
log = _math("log", "Returns the natural logarithm.")
log2 = _math("log2", "Returns the logarithm to base 2.")
log10 = _math("log10", "Returns the logarithm to base 10.")
sin = _math("sin", "Returns the sine of an angle in radians.")
cos = _math("cos", "Returns the cosine of an angle in radians.")
tan = _math("tan", "Returns the tangent of an angle in radians.")
asin = _math("asin", "Returns the inverse sine.")
acos = _math("acos", "Returns the inverse cosine.")
atan = _math("atan", "Returns the inverse tangent.")
sinh = _math("sinh", "Returns the hyperbolic sine.")
cosh = _math("cosh", "Returns the hyperbolic cosine.")
tanh = _math("tanh", "Returns the hyperbolic tangent.")
erf = _math("erf", "Returns the error function.")


def pow(a: Any, b: Any) -> Value:  # noqa: A001
    """Returns a to the power of b."""
    return _core.kernel_math("pow", a, b)


def atan2(y: Any, x: Any) -> Value:
    """Returns the angle of the point (x, y), between -pi and pi."""
    return _core.kernel_math("atan2", y, x)


def hypot(a: Any, b: Any) -> Value:
    """Returns sqrt(a * a + b * b) without overflow of the squares."""
    return _core.kernel_math("hypot", a, b)
