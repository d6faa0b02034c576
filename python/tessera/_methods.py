# SPDX-License-Identifier: Apache-2.0
"""The methods of Array that are written in Python."""

from __future__ import annotations

from . import _complex, _core, _functions
from ._core import Array


def _method(function):
    setattr(Array, function.__name__, function)
    return function


def _property(function):
    setattr(Array, function.__name__, property(function, doc=function.__doc__))
    return function


@_property
def T(self):
    """The transpose of a matrix: a view."""
    if self.ndim != 2:
        raise _core.ShapeError(f"[T] the array has {self.ndim} axes, but must have 2. Use permute_dims or mT")
    return _core.apply("transpose", self)


@_property
def mT(self):
    """A view with the last two axes exchanged."""
    return _functions.matrix_transpose(self)


@_method
def astype(self, dtype, /):
    """Converts to another dtype. Returns the array itself if it has that dtype, and a ComplexArray if `dtype` is complex."""
    if dtype == self.dtype:
        return self
    try:
        return _core.apply("astype", self, dtype=dtype)
    except _core.DtypeError:
        to = _functions._dtype_of(dtype)
        if to not in _complex.DTYPES:
            raise
    return _complex.from_real(self, to)


@_property
def real(self):
    """The array itself, as for a ComplexArray."""
    return self


@_property
def imag(self):
    """An array of zeros of the same shape and dtype."""
    return _functions.zeros_like(self)


@_method
def conj(self):
    """Returns a copy, as for a ComplexArray."""
    return self.copy()


@_method
def to_device(self, device, /, *, stream=None):
    """Returns a copy on another device, or the array itself if it is already there."""
    return _core.to(self, device)


@_method
def copy(self):
    """Returns a copy with its own memory."""
    return _core.apply("copy", self)


@_method
def __pos__(self):
    """Returns a copy with its own memory."""
    return self.copy()


@_method
def tolist(self):
    """Returns the elements as nested lists of Python numbers. Waits for the device."""
    if self.ndim == 0:
        return self.item()
    source = self.astype(_core.float32) if self.dtype in (_core.bfloat16, _core.float16) else self
    room = bytearray(source.nbytes)
    if room:
        _core.read_into(source, room)
    values = memoryview(room).cast(_functions._formats[source.dtype.name]).tolist() if room else []

    def nested(begin, shape):
        if len(shape) == 1:
            return values[begin : begin + shape[0]]
        inner = 1
        for n in shape[1:]:
            inner *= n
        return [nested(begin + i * inner, shape[1:]) for i in range(shape[0])]

    return nested(0, self.shape)


@_method
def numpy(self):
    """Returns a copy as a NumPy array. Waits for the device."""
    import numpy as np

    if self.dtype == _core.bfloat16:
        raise _core.DtypeError("[numpy] NumPy has no bfloat16. Convert the array with astype('float32')")
    out = np.empty(self.shape, self.dtype.name)
    if out.size:
        _core.read_into(self, out)
    return out


@_method
def __array__(self, dtype=None, copy=None):
    """Returns a copy as a NumPy array, for numpy.asarray."""
    out = self.numpy()
    return out if dtype is None else out.astype(dtype)


@_method
def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
    """Exports the memory through DLPack, without a copy unless `copy` is True."""
    if dl_device is not None and tuple(dl_device) != _core.dlpack_device(self):
        raise BufferError(f"the array is on {self.device}, not on the requested device {tuple(dl_device)}")
    x = _core.apply("copy", self) if copy else self
    return _core.to_dlpack(x, stream, max_version is not None and max_version[0] >= 1)


@_method
def __dlpack_device__(self):
    """Returns DLPack's numbers of the device's type and index."""
    return _core.dlpack_device(self)


@_method
def __array_namespace__(self, *, api_version=None):
    """Returns the module with the functions of the array API standard."""
    import tessera

    return tessera


@_method
def __matmul__(self, other):
    """Returns the matrix product."""
    from ._functions import matmul

    return matmul(self, other) if isinstance(other, Array) else NotImplemented


_assign = Array.__setitem__


@_method
def __setitem__(self, key, value):
    """Assigns a number or an array to elements; an array is broadcast to the shape of the selected elements.

    Raises ShapeError for other shapes, and DtypeError if a number does not fit in the dtype.
    """
    if isinstance(value, (int, float)):
        _functions._check_fits("index", [value], self.dtype)
    _assign(self, key, value)


@_method
def __iter__(self):
    """Iterates over the first axis."""
    if self.ndim == 0:
        raise TypeError("iteration over an array without axes")
    return (self[i] for i in range(self.shape[0]))


@_method
def __complex__(self):
    """Returns the only element as a complex number."""
    return complex(self.item())


@_method
def __reduce__(self):
    """Pickles the elements; the copy is on the current device."""
    room = bytearray(self.nbytes)
    if room:
        _core.read_into(self, room)
    return _from_bytes, (bytes(room), self.dtype, self.shape)


@_method
def __bool__(self):
    """Returns whether the only element is not zero."""
    if self.size != 1:
        raise _core.ShapeError(f"[bool] an array of shape {self.shape} is neither true nor false, because it does not "
                               "have exactly one element. Use tessera.any() or tessera.all()")  # fmt: skip
    return bool(self.item())


def _refuse_truncation(name, text):
    compute = getattr(Array, name)

    def in_place(self, other):
        """Computes the result in the memory of the array. Raises DtypeError if it is a float and the array is not."""
        is_float = text == "/" or isinstance(other, float) or (isinstance(other, Array) and other.dtype in _functions._floats)
        if is_float and self.dtype not in _functions._floats:
            raise _core.DtypeError(f"[{text}=] the result is a float, but the left side is an array of {self.dtype.name} "
                                   f"that is updated in place. Convert it with astype, or write a = a {text} b")  # fmt: skip
        return compute(self, other)

    in_place.__name__ = in_place.__qualname__ = name
    setattr(Array, name, in_place)


for _name, _text in (("__itruediv__", "/"), ("__ifloordiv__", "//"), ("__imod__", "%"), ("__ipow__", "**")):
    _refuse_truncation(_name, _text)


def _refuse_other_arrays(name):
    compare = getattr(Array, name)

    def equal(self, other):
        """Compares elementwise. Raises TypeError for sequences, which would be compared by identity."""
        out = compare(self, other)
        if out is NotImplemented and (isinstance(other, (list, tuple)) or hasattr(other, "__array_interface__")
                                      or hasattr(other, "__dlpack__")):  # fmt: skip
            raise TypeError(f"an Array cannot be compared with a {type(other).__name__}. Convert it with asarray(), "
                            "or a number with item()")  # fmt: skip
        return out

    equal.__name__ = equal.__qualname__ = name
    setattr(Array, name, equal)


for _name in ("__eq__", "__ne__"):
    _refuse_other_arrays(_name)


def _from_bytes(data, dtype, shape):
    return _core.from_buffer(data, dtype, shape, None)


# NumPy returns NotImplemented for operators with an Array instead of converting it, so that arrays are never mixed
# silently.
Array.__array_ufunc__ = None
