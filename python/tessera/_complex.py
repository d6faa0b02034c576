# SPDX-License-Identifier: Apache-2.0
"""Arrays of complex numbers, and operations on them by name.

The parts are two arrays, as in C++ (docs/decisions.md), so every device and gradient works on them.
"""

from __future__ import annotations

import math
import operator
from typing import Any, Callable, Iterator

from . import _core
from ._core import Array, DType, DtypeError, ShapeError

DTYPES = (_core.complex64, _core.complex128)
_PARTS = {_core.complex64: _core.float32, _core.complex128: _core.float64}


def part_dtype(dtype: DType) -> DType:
    """Returns the dtype of the real and imaginary parts: float32 or float64."""
    return _PARTS[dtype]


def _operand(x: Any) -> tuple | None:
    """Returns the parts of an operand of an operator; None for an imaginary part of 0, or for other objects."""
    if isinstance(x, ComplexArray):
        return x._real, x._imag
    if isinstance(x, (Array, int, float)):
        return x, None
    if isinstance(x, complex):
        return x.real, x.imag
    return None


def _operators(operation: str) -> tuple[Callable, Callable, Callable]:
    """Returns the methods of an operator: with the array on the left, on the right, and in place."""

    def compute(self: Any, other: Any) -> Any:
        parts = _operand(other)
        return NotImplemented if parts is None else make(*_core.complex_binary(operation, self._real, self._imag, *parts))

    def compute_reversed(self: Any, other: Any) -> Any:
        parts = _operand(other)
        return NotImplemented if parts is None else make(*_core.complex_binary(operation, *parts, self._real, self._imag))

    def compute_in_place(self: Any, other: Any) -> Any:
        result = compute(self, other)
        if result is NotImplemented:
            return result
        self[...] = result
        return self

    return compute, compute_reversed, compute_in_place


class ComplexArray:
    """An n-dimensional array of complex numbers: two arrays, `real` and `imag`, of the same shape, dtype and device.

    Operators with arrays and Python numbers, indexing and methods follow NumPy; elementwise operations are lazy and fused.
    Indexing with slices returns views. `real` and `imag` share the memory of the array. Operations that complex numbers do
    not have, such as `<`, `//` and `maximum`, raise TypeError or DtypeError.

    ComplexArray(real, imag) uses the memory of two arrays of float32 or float64. Raises ShapeError, DtypeError or DeviceError
    if they do not match. `real + 1j * imag` and `asarray` create arrays with their own memory.
    """

    __slots__ = ("_real", "_imag", "__weakref__")
    __array_ufunc__ = None  # operators of NumPy arrays with a ComplexArray raise TypeError
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, real: Array, imag: Array):
        for part in (real, imag):
            if not isinstance(part, Array):
                raise TypeError(f"the parts of a ComplexArray must be tessera.Array, not {type(part).__name__}")
            if part.dtype not in _PARTS.values():
                raise DtypeError(f"[ComplexArray] a part is {part.dtype.name}, but must be float32 or float64. Use astype")
        self._real, self._imag = _core.complex_unary("check", real, imag)

    # Properties.

    @property
    def real(self) -> Array:
        """The real parts: an array that shares the memory."""
        return self._real

    @real.setter
    def real(self, value: Any) -> None:
        if value is not self._real:  # `z.real += 1` has changed it already
            self._real[...] = value

    @property
    def imag(self) -> Array:
        """The imaginary parts: an array that shares the memory."""
        return self._imag

    @imag.setter
    def imag(self, value: Any) -> None:
        if value is not self._imag:
            self._imag[...] = value

    @property
    def dtype(self) -> DType:
        """complex64 or complex128."""
        return _core.complex64 if self._real.dtype == _core.float32 else _core.complex128

    @property
    def device(self) -> Any:
        """The device that has the memory."""
        return self._real.device

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents as a tuple."""
        return self._real.shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self._real.ndim

    @property
    def size(self) -> int:
        """The number of elements."""
        return self._real.size

    @property
    def nbytes(self) -> int:
        """The size of the elements in bytes."""
        return 2 * self._real.nbytes

    @property
    def pending(self) -> bool:
        """True if elements have not been computed yet."""
        return self._real.pending or self._imag.pending

    @property
    def T(self) -> ComplexArray:
        """The transpose of a matrix: a view. The elements are not conjugated."""
        return make(self._real.T, self._imag.T)

    @property
    def mT(self) -> ComplexArray:
        """A view with the last two axes exchanged. The elements are not conjugated."""
        return make(self._real.mT, self._imag.mT)

    # Conversions.

    def item(self) -> complex:
        """Returns the only element as a Python number. Waits for the device."""
        return complex(self._real.item(), self._imag.item())

    def tolist(self) -> Any:
        """Returns the elements as nested lists of Python numbers. Waits for the device."""

        def merged(real: Any, imag: Any) -> Any:
            return [merged(r, i) for r, i in zip(real, imag)] if isinstance(real, list) else complex(real, imag)

        return merged(self.eval()._real.tolist(), self._imag.tolist())

    def numpy(self) -> Any:
        """Returns a copy as a NumPy array. Waits for the device."""
        import numpy as np

        self.eval()
        out = np.empty(self.shape, self.dtype.name)
        out.real, out.imag = self._real.numpy(), self._imag.numpy()
        return out

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        """Returns a copy as a NumPy array, for numpy.asarray."""
        out = self.numpy()
        return out if dtype is None else out.astype(dtype)

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """Returns the module with the functions of the array API standard."""
        import tessera

        return tessera

    def astype(self, dtype: DType | str, /) -> ComplexArray:
        """Converts to complex64 or complex128. Returns the array itself if it has that dtype.

        Raises DtypeError for other dtypes, because the imaginary parts would be lost.
        """
        to = _core.promote(dtype, dtype)
        if to not in _PARTS:
            raise DtypeError(f"[astype] complex numbers cannot be converted to {to.name}. Use x.real or abs(x)")
        return self if to == self.dtype else make(self._real.astype(_PARTS[to]), self._imag.astype(_PARTS[to]))

    def to_device(self, device: Any, /, *, stream: Any = None) -> ComplexArray:
        """Returns a copy on another device, or the array itself if it is already there."""
        if _core.Device(str(device)) == self.device:
            return self
        return make(_core.to(self._real, device), _core.to(self._imag, device))

    def copy(self) -> ComplexArray:
        """Returns a copy with its own memory."""
        return make(self._real.copy(), self._imag.copy())

    def eval(self) -> ComplexArray:
        """Computes the elements now if they are pending, and returns the array."""
        _core.eval(self._real, self._imag)
        return self

    def reshape(self, *shape: Any) -> ComplexArray:
        """Returns the elements with another shape: a view if the strides allow it. One extent can be -1."""
        return make(self._real.reshape(*shape), self._imag.reshape(*shape))

    def conj(self) -> ComplexArray:
        """Returns the complex conjugates."""
        return make(self._real.copy(), -self._imag)

    def __repr__(self) -> str:
        return _core.complex_text(self._real, self._imag)

    def __reduce__(self) -> tuple:
        return make, (self._real, self._imag)

    def __complex__(self) -> complex:
        return self.item()

    def __bool__(self) -> bool:
        return bool(self != 0)

    def __len__(self) -> int:
        return len(self._real)

    def __iter__(self) -> Iterator[ComplexArray]:
        if self.ndim == 0:
            raise TypeError("iteration over an array without axes")
        return (self[i] for i in range(self.shape[0]))

    # Indexing.

    def __getitem__(self, key: Any) -> ComplexArray:
        return make(self._real[key], self._imag[key])

    def __setitem__(self, key: Any, value: Any) -> None:
        parts = _operand(value)
        if parts is None:
            raise TypeError(f"the value must be an array or a number, not {type(value).__name__}")
        real, imag = parts
        if isinstance(imag, Array):  # it may refer to the part that is written first
            imag = imag.eval() if imag.pending else imag.copy()
        self._real[key] = real
        self._imag[key] = 0.0 if imag is None else imag

    # Operators.

    __add__, __radd__, __iadd__ = _operators("add")
    __sub__, __rsub__, __isub__ = _operators("subtract")
    __mul__, __rmul__, __imul__ = _operators("multiply")
    __truediv__, __rtruediv__, __itruediv__ = _operators("divide")
    __pow__, __rpow__, __ipow__ = _operators("pow")

    def __neg__(self) -> ComplexArray:
        return make(-self._real, -self._imag)

    def __pos__(self) -> ComplexArray:
        return self.copy()

    def __abs__(self) -> Array:
        return _core.complex_unary("abs", self._real, self._imag)

    def __eq__(self, other: Any) -> Any:
        parts = _operand(other)
        if parts is not None:
            return _core.complex_binary("equal", self._real, self._imag, *parts)
        if isinstance(other, (list, tuple)) or hasattr(other, "__array_interface__") or hasattr(other, "__dlpack__"):
            raise TypeError(f"a ComplexArray cannot be compared with a {type(other).__name__}. Convert it with asarray(), "
                            "or a number with item()")  # fmt: skip
        return NotImplemented

    def __ne__(self, other: Any) -> Any:
        equal = self.__eq__(other)
        return equal if equal is NotImplemented else ~equal

    def __matmul__(self, other: Any) -> Any:
        return apply("matmul", (self, other), {}) if isinstance(other, (Array, ComplexArray)) else NotImplemented

    def __rmatmul__(self, other: Any) -> Any:
        return apply("matmul", (other, self), {}) if isinstance(other, Array) else NotImplemented

    @classmethod
    def _from_real(cls, x: Array) -> ComplexArray:
        """Returns an operand of an operator with a Python number. It shares the memory of float32 and float64."""
        if x.dtype not in _PARTS.values():
            x = x.astype(_core.float32)
        return make(x, _zeros_like(x))


def make(real: Any, imag: Any) -> ComplexArray:
    """Returns the ComplexArray with these parts, which are not checked."""
    out = ComplexArray.__new__(ComplexArray)
    out._real, out._imag = real, imag
    return out


def from_real(x: Array, dtype: DType) -> ComplexArray:
    """Returns a copy of an array of real numbers as complex numbers."""
    part = _PARTS[dtype]
    real = x.copy() if x.dtype == part else x.astype(part)
    return make(real, _core.apply("full", shape=x.shape, value=0.0, dtype=part, device=x.device))


def is_complex(x: Any) -> bool:
    """Returns whether a value is a ComplexArray or a complex number of Python."""
    return isinstance(x, (ComplexArray, complex))


def _zeros_like(x: Array) -> Array:
    zero = _core.apply("full", shape=(), value=0.0, dtype=x.dtype, device=x.device)
    return _core.apply("broadcast_to", zero, shape=x.shape)


_core.set_complex_type(ComplexArray)

# Operations by name.

# Operations that are applied to both parts, with the positions of the operands that are complex. None: all.
_PARTWISE: dict[str, tuple[int, ...] | None] = {
    **dict.fromkeys("broadcast_to concatenate contiguous copy cumsum diag diagonal diff fftshift flip ifftshift matrix_transpose "
                    "mean meshgrid moveaxis negative pad permute repeat reshape rint roll split squeeze stack sum swapaxes tile "
                    "trace transpose tril triu unsqueeze".split()),
    "masked_select": (0,), "scatter": (0, 2), "scatter_add": (0, 2), "take": (0,), "take_along_axis": (0,),
    "update_slice": (0, 1), "where": (1, 2),
}  # fmt: skip
_BILINEAR = {"convolve", "cross", "einsum", "kron", "matmul", "outer", "tensordot"}
_OPERATORS: dict[str, Callable] = {
    "abs": abs, "add": operator.add, "divide": operator.truediv, "equal": operator.eq, "multiply": operator.mul,
    "not_equal": operator.ne, "pow": operator.pow, "subtract": operator.sub,
}  # fmt: skip


def _parts(x: Any) -> tuple:
    """Returns both parts of an array or a number."""
    real, imag = _operand(x) or (x, None)
    if imag is not None:
        return real, imag
    if not isinstance(real, Array):
        return real, 0.0
    if real.dtype in (_core.float16, _core.bfloat16):
        real = real.astype(_core.float32)
    return real, _zeros_like(real)


def _joined(real: Any, imag: Any) -> Any:
    return tuple(make(r, i) for r, i in zip(real, imag)) if isinstance(real, tuple) else make(real, imag)


def _bilinear(name: str, a: Any, b: Any, attributes: dict) -> ComplexArray:
    def product(x: Array, y: Array) -> Array:
        dtype = _core.promote(x.dtype, y.dtype)
        return _core.apply(name, x.astype(dtype), y.astype(dtype), **attributes)

    if not isinstance(a, ComplexArray):
        return make(product(a, b._real), product(a, b._imag))
    if not isinstance(b, ComplexArray):
        return make(product(a._real, b), product(a._imag, b))
    return make(product(a._real, b._real) - product(a._imag, b._imag), product(a._real, b._imag) + product(a._imag, b._real))


def _prod(z: ComplexArray, axes: Any = None, keep: Any = False) -> ComplexArray:
    """Multiplies pairs of elements, and then pairs of products."""
    axes = range(z.ndim) if axes is None else [a % z.ndim if -z.ndim <= a < z.ndim else a for a in axes]
    if len(set(axes)) != len(axes) or any(not 0 <= a < z.ndim for a in axes):
        raise ShapeError(f"[prod] the axes {tuple(axes)} are repeated or out of range for the shape {z.shape}")
    for axis in sorted(axes, reverse=True):
        before = (slice(None),) * axis
        n = z.shape[axis]
        if n == 0:
            shape = (*z.shape[:axis], 1, *z.shape[axis + 1 :])
            part = {"shape": shape, "dtype": z._real.dtype, "device": z.device}
            z, n = make(_core.apply("full", value=1.0, **part), _core.apply("full", value=0.0, **part)), 1
        while n > 1:
            half = n // 2
            product = z[(*before, slice(0, half))] * z[(*before, slice(half, 2 * half))]
            if n % 2:
                last = z[(*before, slice(n - 1, n))]
                product = apply("concatenate", (product, last), {"axis": axis})
            z, n = product, half + n % 2
        if not keep:
            z = apply("squeeze", (z,), {"axis": axis})
    return z


def _isnan(z: ComplexArray) -> Array:
    return _core.isnan(z._real) | _core.isnan(z._imag)


def _times_i(z: ComplexArray) -> ComplexArray:
    return make(-z._imag, z._real)


def _over_i(z: ComplexArray) -> ComplexArray:
    return make(z._imag, -z._real)


def _sqrt(z: ComplexArray) -> ComplexArray:
    return make(*_core.complex_unary("sqrt", z._real, z._imag))


# The inverse functions follow W. Kahan, "Branch cuts for complex elementary functions" (1987). No square of z is computed,
# which could overflow.


def _acos(z: ComplexArray) -> ComplexArray:
    from ._functions import asinh, atan2

    minus, plus = _sqrt(1 - z), _sqrt(1 + z)
    return make(2 * atan2(minus._real, plus._real), asinh(plus._real * minus._imag - plus._imag * minus._real))


def _acosh(z: ComplexArray) -> ComplexArray:
    from ._functions import asinh, atan2

    minus, plus = _sqrt(-1 + z), _sqrt(1 + z)
    return make(asinh(minus._real * plus._real + minus._imag * plus._imag), 2 * atan2(minus._imag, plus._real))


def _asin(z: ComplexArray) -> ComplexArray:
    from ._functions import asinh, atan2

    minus, plus = _sqrt(1 - z), _sqrt(1 + z)
    return make(atan2(z._real, minus._real * plus._real - minus._imag * plus._imag),
                asinh(minus._real * plus._imag - minus._imag * plus._real))  # fmt: skip


def _atanh(z: ComplexArray) -> ComplexArray:
    from ._functions import atan2, copysign, finfo, hypot, log1p, maximum

    x, y = _core.abs(z._real), z._imag  # the real part is odd in x, and the imaginary part is even
    distance = maximum(hypot(1 - x, y), finfo(z.dtype).smallest_normal)
    return make(copysign(log1p(4 * (x / distance / distance)) / 4, z._real),
                atan2(2 * y / distance, (1 - x) / distance * (1 + x) - y / distance * y) / 2)  # fmt: skip


def _expm1(z: ComplexArray) -> ComplexArray:
    half = _core.sin(z._imag / 2)
    return make(0.0 + _core.expm1(z._real) * _core.cos(z._imag) - 2 * half * half, _core.exp(z._real) * _core.sin(z._imag))


def _log1p(z: ComplexArray) -> ComplexArray:
    from ._functions import atan2, hypot, where

    x, y = z._real, z._imag
    near = _core.log1p(x * (2 + x) + y * y) / 2
    return make(where(abs(z) < 0.5, near, _core.log(hypot(1 + x, y))), atan2(y, 1 + x))


def _tanh(z: ComplexArray) -> ComplexArray:
    from ._functions import clip, where

    x, y = z._real, z._imag
    limited = clip(x, -20, 20)  # beyond, the real part rounds to 1, and squares could overflow
    slope, s = 1 + _core.tan(y) * _core.tan(y), _core.sinh(limited)
    divisor = 1 + slope * s * s
    far = 4 * _core.sin(y) * _core.cos(y) * _core.exp(-2 * _core.abs(x))
    return make(slope * _core.sqrt(1 + s * s) * s / divisor, where(x == limited, _core.tan(y) / divisor, far))


def _embedded(z: Any) -> Array:
    """Returns real matrices of twice the size, whose sums and products are those of the complex matrices."""
    real, imag = _parts(z)
    rows = (_core.apply("concatenate", *parts, axis=-1) for parts in ((real, -imag), (imag, real)))
    return _core.apply("concatenate", *rows, axis=-2)


def _extracted(m: Array) -> ComplexArray:
    """Returns the complex matrices of _embedded()."""
    rows, left = m.shape[-2] // 2, m[..., : m.shape[-1] // 2]
    return make(left[..., :rows, :], left[..., rows:, :])


def _of_embedded(name: str) -> Callable:
    return lambda z, **attributes: _extracted(_core.apply(name, _embedded(z), **attributes))


def _eigvalsh(z: ComplexArray) -> Array:
    from ._functions import matrix_transpose, tril

    lower = tril(z._imag, k=-1)  # as for real matrices, only the lower triangle is read
    return _core.apply("eigvalsh", _embedded(make(z._real, lower - matrix_transpose(lower))))[..., ::2]  # each occurs twice


def _rtol(z: ComplexArray, rtol: float | None = None) -> float:
    """The default is that of the complex matrices, not of matrices of twice the size."""
    from ._functions import finfo

    return max(z.shape[-2:]) * finfo(z.dtype).eps if rtol is None else rtol


def _solve(a: Any, b: Any) -> ComplexArray:
    axis = -1 if b.ndim == 1 else -2
    right = _core.apply("concatenate", *_parts(b), axis=axis)
    left = _embedded(a)
    dtype = _core.promote(left.dtype, right.dtype)
    x = _core.apply("solve", left.astype(dtype), right.astype(dtype))
    return make(*_core.apply("split", x, sections=2, axis=axis))


def _matrix_norm(z: ComplexArray, norm: str = "fro", keep: bool = False) -> Array:
    if norm not in ("2", "-2", "nuc"):  # depends on absolute values only
        return _core.apply("matrix_norm", abs(z), norm=norm, keep=keep)
    values = apply("svdvals", (z,), {})
    out = _core.apply({"2": "max", "-2": "min", "nuc": "sum"}[norm], values, axes=(-1,), keep=keep)
    return out[..., None] if keep else out


_FUNCTIONS: dict[str, Callable] = {
    "cos": lambda z: make(_core.cos(z._real) * _core.cosh(z._imag), -(_core.sin(z._real) * _core.sinh(z._imag))),
    "acos": _acos,
    "acosh": _acosh,
    "asin": _asin,
    "asinh": lambda z: _over_i(_asin(_times_i(z))),
    "atan": lambda z: _over_i(_atanh(_times_i(z))),
    "atanh": _atanh,
    "expm1": _expm1,
    "log1p": _log1p,
    "tan": lambda z: _over_i(_tanh(_times_i(z))),
    "tanh": _tanh,
    "eigvalsh": _eigvalsh,
    "inv": _of_embedded("inv"),
    "matrix_norm": _matrix_norm,
    "matrix_power": _of_embedded("matrix_power"),
    "matrix_rank": lambda z, **attributes: _core.apply("matrix_rank", _embedded(z), rtol=_rtol(z, **attributes)) // 2,
    "pinv": lambda z, **attributes: _extracted(_core.apply("pinv", _embedded(z), rtol=_rtol(z, **attributes))),
    "solve": _solve,
    "svdvals": lambda z: _core.apply("svdvals", _embedded(z))[..., ::2],
    "cosh": lambda z: make(_core.cosh(z._real) * _core.cos(z._imag), _core.sinh(z._real) * _core.sin(z._imag)),
    "isfinite": lambda z: _core.isfinite(z._real) & _core.isfinite(z._imag),
    "isinf": lambda z: _core.isinf(z._real) | _core.isinf(z._imag),
    "isnan": _isnan,
    "log10": lambda z: apply("log", (z,), {}) * (1 / math.log(10)),
    "log2": lambda z: apply("log", (z,), {}) * (1 / math.log(2)),
    "nonzero": lambda z: _core.apply("nonzero", z != 0),
    "prod": _prod,
    "sign": lambda z: apply("where", (z == 0, 0.0, z / abs(z)), {}),
    "sin": lambda z: make(_core.sin(z._real) * _core.cosh(z._imag), _core.cos(z._real) * _core.sinh(z._imag)),
    "sinh": lambda z: make(_core.sinh(z._real) * _core.cos(z._imag), _core.cosh(z._real) * _core.sin(z._imag)),
    "vector_norm": lambda z, **attributes: _core.apply("vector_norm", abs(z), **attributes),
}


def apply(name: str, operands: tuple, attributes: dict) -> Any:
    """Calls an operation by name, of which at least one operand is complex.

    Raises DtypeError if the operation does not support complex numbers.
    """
    # A Python number takes the dtype of an array beside it; elsewhere it becomes an array.
    keeps_numbers = name in _OPERATORS or name in _PARTWISE
    if not keeps_numbers or not any(isinstance(x, (Array, ComplexArray)) for x in operands):
        from ._functions import asarray

        operands = tuple(asarray(x) if isinstance(x, complex) else x for x in operands)
    if name in _PARTWISE:
        complex_operands = _PARTWISE[name]
        both = [_parts(x) if complex_operands is None or i in complex_operands else (x, x) for i, x in enumerate(operands)]
        if not any(is_complex(x) for i, x in enumerate(operands) if complex_operands is not None and i not in complex_operands):
            real = _core.apply(name, *(pair[0] for pair in both), **attributes)
            if name == "pad":
                attributes = {**attributes, "value": 0.0}
            return _joined(real, _core.apply(name, *(pair[1] for pair in both), **attributes))
    elif name in _BILINEAR and len(operands) == 2:
        return _bilinear(name, *operands, attributes)
    elif name == "einsum" and len(operands) == 1:
        return make(*(_core.apply(name, part, **attributes) for part in _parts(operands[0])))
    elif name in _OPERATORS:
        return _OPERATORS[name](*operands)
    elif name in ("angle", "exp", "log", "sqrt"):
        out = _core.complex_unary(name, *_parts(operands[0]))
        return out if isinstance(out, Array) else make(*out)
    elif name in _FUNCTIONS:
        return _FUNCTIONS[name](*operands, **attributes)
    raise DtypeError(f"[{name}] complex numbers are not supported. Apply it to x.real and x.imag, or to abs(x)")
