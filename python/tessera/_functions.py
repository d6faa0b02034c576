# SPDX-License-Identifier: Apache-2.0
"""Functions of arrays, with the names and arguments of the array API standard (https://data-apis.org/array-api).

Functions whose names are not in the standard have the names of NumPy or PyTorch. Operations are lazy where they are in
C++: elementwise functions form expressions, which are computed by one kernel when their values are needed.
"""

from __future__ import annotations

import builtins
import contextlib
import math
from typing import Any, NamedTuple, Sequence

from . import _complex, _core
from ._complex import ComplexArray
from ._core import Array, DType, DtypeError, ShapeError
from ._errors import check_folder, check_not_negative, reading



def _apply(name: str, *operands: Any, **attributes: Any) -> Any:
    """Calls an operation by name."""
    try:
        return _core.apply(name, *operands, **attributes)
    except TypeError:
        arrays = [_array_of(o) for o in operands]
        if builtins.any(_complex.is_complex(a) for a in arrays):
            return _complex.apply(name, tuple(arrays), attributes)
        if builtins.all(a is o for a, o in zip(arrays, operands)):
            raise
    return _core.apply(name, *arrays, **attributes)


def _array_of(x: Any) -> Any:
    """Returns the array of an nn.Parameter or nn.State, and other objects unchanged."""
    return x.__tessera_array__() if hasattr(x, "__tessera_array__") else x


_Axis = "int | Sequence[int] | None"

# Dtypes.

_signed = (_core.int8, _core.int16, _core.int32, _core.int64)
_unsigned = (_core.uint8, _core.uint16, _core.uint32, _core.uint64)
_floats = (_core.float16, _core.bfloat16, _core.float32, _core.float64)
_kinds = {
    "bool": (_core.bool,),
    "signed integer": _signed,
    "unsigned integer": _unsigned,
    "integral": _signed + _unsigned,
    "real floating": _floats,
    "complex floating": _complex.DTYPES,
    "numeric": _signed + _unsigned + _floats + _complex.DTYPES,
}

e, pi, inf, nan = math.e, math.pi, math.inf, math.nan
newaxis = None


def isdtype(dtype: DType, kind: DType | str | tuple) -> builtins.bool:
    """Returns whether a dtype is of a kind: a dtype, a name such as "real floating", or a tuple of these."""
    if isinstance(kind, tuple):
        return builtins.any(isdtype(dtype, k) for k in kind)
    if isinstance(kind, str):
        if kind not in _kinds:
            raise _core.ArgumentError(f"[isdtype] '{kind}' is not a kind of dtypes. Use one of {', '.join(_kinds)}")
        return dtype in _kinds[kind]
    return dtype == kind


def result_type(*arrays_and_dtypes: Any) -> DType:
    """Returns the dtype of a result of operands with these dtypes. Python numbers take the dtype of the others."""
    dtypes = [_array_dtype(x) for x in arrays_and_dtypes if not isinstance(x, (int, float, complex))]
    if not dtypes:
        raise _core.ArgumentError("[result_type] at least one array or dtype is required")
    out = dtypes[0]
    for d in dtypes[1:]:
        out = _core.promote(out, d)
    for x in arrays_and_dtypes:
        if isinstance(x, complex):
            out = _core.promote(out, _core.complex64)
        elif isinstance(x, float) and out not in _floats + _complex.DTYPES:
            out = _core.float32
        elif isinstance(x, int) and not isinstance(x, builtins.bool) and out == _core.bool:
            out = _core.int32
    return out


def _array_dtype(x: Any) -> DType:
    """Returns the dtype of an array, and a dtype unchanged."""
    return x.dtype if isinstance(x, (Array, ComplexArray)) else x


def can_cast(from_: DType | Array, to: DType) -> builtins.bool:
    """Returns whether promotion of the two dtypes gives the second one. Integers of 64 bits can be rounded to f32."""
    dtype = _array_dtype(from_)
    return _core.promote(dtype, to) == to


class finfo_object(NamedTuple):
    """Limits of a float dtype."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


class iinfo_object(NamedTuple):
    """Limits of an integer dtype."""

    bits: int
    max: int
    min: int
    dtype: DType


def finfo(type: DType | Array) -> finfo_object:
    """Returns the limits of a float dtype, or of the parts of a complex dtype."""
    dtype = _array_dtype(type)
    if dtype in _complex.DTYPES:
        dtype = _complex.part_dtype(dtype)
    # bits, bits of the mantissa, largest exponent
    limits = {_core.float16: (16, 10, 15), _core.bfloat16: (16, 7, 127), _core.float32: (32, 23, 127),
              _core.float64: (64, 52, 1023)}  # fmt: skip
    if dtype not in limits:
        raise DtypeError(f"[finfo] {dtype} is not a float dtype")
    bits, mantissa, exponent = limits[dtype]
    largest = (2.0 - 2.0**-mantissa) * 2.0**exponent
    return finfo_object(bits, 2.0**-mantissa, largest, -largest, 2.0 ** (1 - exponent), dtype)


def iinfo(type: DType | Array) -> iinfo_object:
    """Returns the limits of an integer dtype."""
    dtype = _array_dtype(type)
    if dtype not in _signed + _unsigned:
        raise DtypeError(f"[iinfo] {dtype} is not an integer dtype")
    bits = 8 * dtype.itemsize
    if dtype in _unsigned:
        return iinfo_object(bits, 2**bits - 1, 0, dtype)
    return iinfo_object(bits, 2 ** (bits - 1) - 1, -(2 ** (bits - 1)), dtype)


class _Info:
    """The result of __array_namespace_info__()."""

    def capabilities(self) -> dict:
        """Returns what depends on data, and the largest number of axes."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": None}

    def default_device(self) -> _core.Device:
        """Returns the current device."""
        return _core.current_device()

    def default_dtypes(self, *, device: Any = None) -> dict:
        """Returns the dtypes of new arrays."""
        return {"real floating": _core.float32, "complex floating": _core.complex64, "integral": _core.int64,
                "indexing": _core.int64}  # fmt: skip

    def devices(self) -> list[_core.Device]:
        """Returns all devices."""
        return _core.devices()

    def dtypes(self, *, device: Any = None, kind: str | tuple | None = None) -> dict:
        """Returns the dtypes of the standard of a kind by name. float16 and bfloat16 are not in the standard."""
        every = _kinds["bool"] + _signed + _unsigned + (_core.float32, _core.float64) + _complex.DTYPES
        return {d.name: d for d in every if kind is None or isdtype(d, kind)}


def __array_namespace_info__() -> _Info:
    """Returns information about dtypes and devices, as the array API standard defines."""
    return _Info()


# Creation.


def _shape(shape: Any) -> tuple:
    return (int(shape),) if hasattr(shape, "__index__") else tuple(int(n) for n in shape)


def _flatten(obj: Any, out: list) -> tuple:
    """Appends the numbers of nested sequences to `out`, and returns the shape."""
    if isinstance(obj, (list, tuple, range)):
        inner: tuple | None = None
        for x in obj:
            shape = _flatten(x, out)
            if inner is not None and shape != inner:
                raise ShapeError(f"[asarray] nested sequences have different shapes: {inner} and {shape}")
            inner = shape
        return (len(obj), *(inner or ()))
    if isinstance(obj, (Array, ComplexArray)):
        if obj.ndim == 0:
            obj = obj.item()
        else:
            return _flatten(obj.tolist(), out)
    if hasattr(obj, "item") and not isinstance(obj, (int, float, complex)):  # a number of NumPy
        obj = obj.item()
    if not isinstance(obj, (int, float, complex)):
        advice = (". Pass list(x) for the bytes, or numpy.frombuffer(x, dtype) for numbers that they contain"
                  if isinstance(obj, (bytes, bytearray, memoryview)) else
                  ". Pass list(x)" if hasattr(obj, "__iter__") and not isinstance(obj, (str, dict)) else "")  # fmt: skip
        raise TypeError(f"[asarray] {type(obj).__name__} is not a number, a sequence of numbers, or an array{advice}")
    out.append(obj)
    return ()


_formats = {"bool": "?", "int8": "b", "uint8": "B", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I",
            "int64": "q", "uint64": "Q", "float16": "e", "float32": "f", "float64": "d"}  # fmt: skip


def asarray(obj: Any, /, *, dtype: DType | str | None = None, device: Any = None, copy: builtins.bool | None = None) -> Any:
    """Converts numbers, nested sequences and arrays of other libraries to an array.

    Arrays of other libraries are copied; from_dlpack() shares their memory. Python floats become float32, ints int64,
    complex numbers complex64. The result is a ComplexArray if the dtype is complex. With `copy=False`, raises
    ArgumentError if a copy would be needed. Raises DtypeError if a number does not fit in the dtype, or if complex
    numbers are converted to a real dtype, and TypeError for masked arrays of NumPy.
    """
    if isinstance(obj, (Array, ComplexArray)):
        to = obj.dtype if dtype is None else _dtype_of(dtype)
        moves = device is not None and _core.Device(str(device)) != obj.device
        if to == obj.dtype and not moves:
            return obj.copy() if copy else obj
        if copy is False:
            raise _core.ArgumentError("[asarray] another dtype or device needs a copy, but copy is False")
        out = obj.astype(to)
        return out.to_device(device) if moves else out
    if copy is False:
        raise _core.ArgumentError("[asarray] the object can only be copied. Use from_dlpack to share memory")
    if hasattr(obj, "__array_interface__") and not isinstance(obj, (int, float, complex)):  # NumPy
        import numpy

        if isinstance(obj, numpy.ma.MaskedArray):
            raise TypeError("[asarray] a masked array cannot be converted, because an Array has no mask. "
                            "Pass x.filled(value), or x.data and x.mask")  # fmt: skip
        host = numpy.asarray(obj)
        host = host.astype(host.dtype.newbyteorder("="), copy=False)

        def copied(part: Any) -> Array:
            part = numpy.ascontiguousarray(part).reshape(part.shape)
            return _core.from_buffer(part.reshape(-1).view(numpy.uint8), part.dtype, part.shape, device)

        if host.dtype in (numpy.complex64, numpy.complex128):
            given: Any = _complex.make(copied(host.real), copied(host.imag))
        else:
            given = copied(host)
        return given if dtype is None else given.astype(dtype)
    if hasattr(obj, "__dlpack__"):
        out = from_dlpack(obj, copy=True)
        out = out if device is None else _core.to(out, device)
        return out if dtype is None else out.astype(dtype)
    import struct

    values: list = []
    shape = _flatten(obj, values)
    if dtype is not None:
        dtype = _dtype_of(dtype)
        _check_fits("asarray", values, dtype)
    if dtype in _complex.DTYPES or builtins.any(isinstance(v, complex) for v in values):
        part = _complex.part_dtype(dtype or _core.complex64)
        packed = f"{len(values)}{_formats[part.name]}"
        data = [struct.pack(packed, *numbers) for numbers in ([complex(v).real for v in values], [complex(v).imag for v in values])]
        return _complex.make(*(_core.from_buffer(d, part, shape, device) for d in data))
    if builtins.all(isinstance(v, builtins.bool) for v in values) and values:
        kind = _core.bool
    elif builtins.all(isinstance(v, int) for v in values) and values:
        kind = _core.int64 if dtype not in _unsigned else _core.uint64
        if kind == _core.int64 and builtins.max(values) > 2**63 - 1:
            kind = _core.uint64
    else:
        kind = _core.float32 if dtype is None else _core.float64
        values = [float(v) for v in values]
    try:
        data = struct.pack(f"{len(values)}{_formats[kind.name]}", *values)
    except struct.error as error:
        raise DtypeError(f"[asarray] a number does not fit in {kind.name}: {error}") from None
    out = _core.from_buffer(data, kind, shape, device)
    return out if dtype is None else out.astype(dtype)


def _dtype_of(dtype: DType | str) -> DType:
    """Returns the dtype with a name."""
    return dtype if isinstance(dtype, DType) else _core.promote(dtype, dtype)


def _check_fits(name: str, values: Sequence[Any], dtype: DType) -> None:
    """Raises DtypeError if a number is outside of the range of an integer dtype, or complex and the dtype is not.

    Fractions are truncated for an integer dtype.
    """
    if dtype not in _complex.DTYPES:
        for v in values:
            if isinstance(v, complex):
                raise DtypeError(f"[{name}] the number {v} is complex, but the dtype is {dtype.name}. Use complex64 or complex128")
    if dtype not in _signed + _unsigned:
        return
    limits = iinfo(dtype)
    for v in values:
        if not limits.min - 1 < v < limits.max + 1:
            raise DtypeError(f"[{name}] the number {v} does not fit in {dtype.name} ({limits.min} to {limits.max}). "
                             "Use a dtype with a larger range")  # fmt: skip


def from_dlpack(x: Any, /, *, device: Any = None, copy: builtins.bool | None = None) -> Array:
    """Imports an array of another library through DLPack, without a copy if possible.

    Memory that must not be written, such as that of JAX, is copied unless `copy` is False. With `copy=False`, do not
    write to the result, or to the original while work is pending. Raises DeviceError if the memory is on a device that
    Tessera does not have.
    """
    stream = None
    kind = x.__dlpack_device__()[0]
    arguments: dict = {}
    if int(kind) in (2, 10):  # CUDA and ROCm: order the producer's work before the default stream, and ours after it
        stream = 1 if int(kind) == 2 else 0
        arguments["stream"] = stream
    try:
        capsule = x.__dlpack__(max_version=(1, 0), **arguments)
    except TypeError:  # a producer that implements an older version of the protocol
        capsule = x.__dlpack__(**arguments)
    if copy is None:
        copy = _core.is_read_only(capsule)
    out = _core.from_capsule(capsule, stream, copy)
    return out if device is None else _core.to(out, device)


def empty(shape: int | Sequence[int], *, dtype: DType | str | None = None, device: Any = None) -> Array:
    """Returns an array of zeros. (Uninitialised memory is of no use in Python.)"""
    return zeros(shape, dtype=dtype, device=device)


def full(shape: int | Sequence[int], fill_value: Any, *, dtype: DType | str | None = None, device: Any = None) -> Array:
    """Returns an array filled with a number. The default dtype is that of asarray(fill_value)."""
    if hasattr(fill_value, "item"):  # an array without axes, or a number of NumPy
        fill_value = fill_value.item()
    if dtype is None:
        dtype = (_core.bool if isinstance(fill_value, builtins.bool) else _core.int64 if isinstance(fill_value, int) else
                 _core.complex64 if isinstance(fill_value, complex) else _core.float32)  # fmt: skip
    dtype = _dtype_of(dtype)
    _check_fits("full", [fill_value], dtype)
    if dtype in _complex.DTYPES:
        part, number = _complex.part_dtype(dtype), complex(fill_value)
        return _complex.make(full(shape, number.real, dtype=part, device=device), full(shape, number.imag, dtype=part, device=device))
    if isinstance(fill_value, int) and not -(2**53) <= fill_value <= 2**53:  # the value of "full" is a float
        return _apply("copy", broadcast_to(asarray(fill_value, dtype=dtype, device=device), _shape(shape)))
    return _apply("full", shape=_shape(shape), value=fill_value, dtype=dtype, device=device)


def zeros(shape: int | Sequence[int], *, dtype: DType | str | None = None, device: Any = None) -> Array:
    """Returns an array of zeros, float32 by default."""
    return full(shape, 0.0, dtype=dtype or _core.float32, device=device)


def ones(shape: int | Sequence[int], *, dtype: DType | str | None = None, device: Any = None) -> Array:
    """Returns an array of ones, float32 by default."""
    return full(shape, 1.0, dtype=dtype or _core.float32, device=device)


def empty_like(x: Array, /, *, dtype: DType | str | None = None, device: Any = None) -> Array:
    """Returns an array of zeros with the shape of another array."""
    return zeros(x.shape, dtype=dtype or x.dtype, device=device or x.device)


def full_like(x: Array, /, fill_value: Any, *, dtype: DType | str | None = None, device: Any = None) -> Array:
    """Returns an array filled with a number, with the shape of another array."""
    return full(x.shape, fill_value, dtype=dtype or x.dtype, device=device or x.device)


def zeros_like(x: Array, /, *, dtype: DType | str | None = None, device: Any = None) -> Array:
    """Returns an array of zeros with the shape of another array."""
    return zeros(x.shape, dtype=dtype or x.dtype, device=device or x.device)


def ones_like(x: Array, /, *, dtype: DType | str | None = None, device: Any = None) -> Array:
    """Returns an array of ones with the shape of another array."""
    return ones(x.shape, dtype=dtype or x.dtype, device=device or x.device)


def arange(start: float, /, stop: float | None = None, step: float = 1, *, dtype: DType | str | None = None,
           device: Any = None) -> Array:  # fmt: skip
    """Returns start, start + step, ... up to but excluding stop. arange(n) counts from 0 to n - 1."""
    if stop is None:
        start, stop = 0, start
    if step == 0:
        raise _core.ArgumentError("[arange] the step is 0")
    integers = builtins.all(isinstance(v, int) for v in (start, stop, step))
    dtype = _dtype_of(dtype) if dtype is not None else _core.int64 if integers else _core.float32
    # The quotient of integers is exact.
    count = builtins.max(0, -((start - stop) // step) if integers else math.ceil((stop - start) / step))
    if count:
        _check_fits("arange", [start, start + (count - 1) * step], dtype)
    if integers and dtype in _signed + _unsigned and builtins.max(builtins.abs(start), builtins.abs(step)) > 2**53:
        # The operation takes floats, which would round these integers.
        steps = _apply("arange", count=count, start=0, step=1, dtype=dtype, device=device)
        steps = steps * asarray(builtins.abs(step) if count > 1 else 0, dtype=dtype, device=device)
        begin = asarray(start, dtype=dtype, device=device)
        return begin + steps if step > 0 else begin - steps
    return _apply("arange", count=count, start=start, step=step, dtype=dtype, device=device)


def linspace(start: float, stop: float, /, num: int, *, dtype: DType | str | None = None, device: Any = None,
             endpoint: builtins.bool = True) -> Array:  # fmt: skip
    """Returns `num` evenly spaced numbers from start to stop, including stop if `endpoint` is True."""
    if not endpoint:
        return linspace(start, stop, num + 1, dtype=dtype, device=device)[:num]
    return _apply("linspace", start=start, stop=stop, count=num, dtype=dtype or _core.float32, device=device)


def eye(n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: DType | str | None = None,
        device: Any = None) -> Array:  # fmt: skip
    """Returns a matrix with ones on the k-th diagonal and zeros elsewhere."""
    dtype = _core.float32 if dtype is None else _dtype_of(dtype)
    if dtype in _complex.DTYPES:
        return _complex.from_real(eye(n_rows, n_cols, k=k, dtype=_complex.part_dtype(dtype), device=device), dtype)
    k = _offset(k, n_rows, n_rows if n_cols is None else n_cols)
    return _apply("eye", rows=n_rows, columns=n_cols, offset=k, dtype=dtype, device=device)


def _offset(k: int, rows: int, columns: int) -> int:
    """Returns the number of a diagonal, which can be larger than 64 bits, or the nearest one outside of the matrix."""
    return builtins.max(-rows, builtins.min(k, columns))


def tril(x: Array, /, *, k: int = 0) -> Array:
    """Sets the elements above the k-th diagonal of the last two axes to zero."""
    return _apply("tril", x, offset=_offset(k, *x.shape[-2:]) if x.ndim > 1 else k)


def triu(x: Array, /, *, k: int = 0) -> Array:
    """Sets the elements below the k-th diagonal of the last two axes to zero."""
    return _apply("triu", x, offset=_offset(k, *x.shape[-2:]) if x.ndim > 1 else k)


def meshgrid(*arrays: Array, indexing: str = "xy") -> list[Array]:
    """Returns the coordinates of a grid, one array per axis."""
    return _several(_apply("meshgrid", *arrays, indexing=indexing))


def random_uniform(shape: int | Sequence[int], *, seed: int, low: float = 0, high: float = 1, device: Any = None) -> Array:
    """Returns uniform random numbers in [low, high), the same on every device. Raises ArgumentError for a negative seed."""
    check_not_negative("random_uniform", seed=seed)
    return _apply("random_uniform", shape=_shape(shape), seed=seed, low=low, high=high, device=device)


def random_normal(shape: int | Sequence[int], *, seed: int, mean: float = 0, deviation: float = 1,
                  device: Any = None) -> Array:  # fmt: skip
    """Returns normally distributed random numbers, the same on every device. Raises ArgumentError for a negative seed."""
    check_not_negative("random_normal", seed=seed)
    return _apply("random_normal", shape=_shape(shape), seed=seed, mean=mean, deviation=deviation, device=device)


def random_integers(shape: int | Sequence[int], *, seed: int, low: int, high: int, dtype: DType | str | None = None,
                    device: Any = None) -> Array:  # fmt: skip
    """Returns random integers from low to high - 1, int64 by default, the same on every device."""
    return _random("random_integers", shape, seed, low=low, high=high, dtype=dtype, device=device)


def random_permutation(count: int, *, seed: int, device: Any = None) -> Array:
    """Returns the numbers from 0 to count - 1 in random order. take(x, random_permutation(n), axis=0) shuffles rows."""
    check_not_negative("random_permutation", seed=seed)
    return _apply("random_permutation", count=count, seed=seed, device=device)


def random_choice(count: int, shape: int | Sequence[int], *, seed: int, replace: builtins.bool = True,
                  weights: Any = None, device: Any = None) -> Array:  # fmt: skip
    """Returns positions from 0 to count - 1, drawn with these weights, or equal ones; each at most once if not `replace`."""
    operands = () if weights is None else (asarray(weights),)
    return _random("random_choice", shape, seed, *operands, count=count, replace=replace, device=device)


def random_exponential(shape: int | Sequence[int], *, seed: int, scale: float = 1, device: Any = None) -> Array:
    """Returns exponentially distributed numbers with the mean `scale`."""
    return _random("random_exponential", shape, seed, scale=scale, device=device)


def random_gamma(shape: int | Sequence[int], *, seed: int, alpha: float, scale: float = 1, device: Any = None) -> Array:
    """Returns gamma distributed numbers, with a density proportional to x**(alpha - 1) exp(-x / scale)."""
    return _random("random_gamma", shape, seed, alpha=alpha, scale=scale, device=device)


def random_beta(shape: int | Sequence[int], *, seed: int, a: float, b: float, device: Any = None) -> Array:
    """Returns beta distributed numbers, with a density proportional to x**(a - 1) (1 - x)**(b - 1)."""
    return _random("random_beta", shape, seed, a=a, b=b, device=device)


def random_poisson(shape: int | Sequence[int], *, seed: int, mean: float, device: Any = None) -> Array:
    """Returns Poisson distributed numbers of events, int64."""
    return _random("random_poisson", shape, seed, mean=mean, device=device)


def random_binomial(shape: int | Sequence[int], *, seed: int, trials: int, probability: float, device: Any = None) -> Array:
    """Returns the numbers of successes in `trials` independent trials, int64."""
    return _random("random_binomial", shape, seed, trials=trials, probability=probability, device=device)


def random_multivariate_normal(mean: Array, covariance: Array, shape: int | Sequence[int] = (), /, *, seed: int) -> Array:
    """Returns normally distributed vectors (*shape, d) with a mean (d,) and a covariance matrix (d, d), float32."""
    return _random("random_multivariate_normal", shape, seed, mean, covariance)


def _random(name: str, shape: int | Sequence[int], seed: int, *operands: Any, **parameters: Any) -> Array:
    check_not_negative(name, seed=seed)
    return _apply(name, *operands, shape=_shape(shape), seed=seed, **parameters)


def _several(result: Any) -> list[Array]:
    return [result] if isinstance(result, (Array, ComplexArray)) else list(result)


# Elementwise functions. They take arrays and Python numbers.


def _one(name: str, doc: str):
    compute = getattr(_core, name)

    def function(x: Array, /) -> Array:
        try:
            return compute(x)
        except TypeError:
            array = _array_of(x)
            if _complex.is_complex(array):
                return _complex.apply(name, (array,), {})
            if array is x:
                raise
        return compute(array)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


def _two(public: str, name: str, doc: str):
    def function(x1: Array | float, x2: Array | float, /) -> Array:
        return _apply(name, x1, x2)

    function.__name__ = function.__qualname__ = public
    function.__doc__ = doc
    return function


def _keeps_integers(name: str, doc: str):
    """A function that returns integers unchanged, while the C++ function returns f32."""
    compute = getattr(_core, name)

    def function(x: Array, /) -> Array:
        array = _array_of(x)
        if isinstance(array, ComplexArray):
            return _complex.apply(name, (array,), {})
        return compute(array) if array.dtype in _floats else +array

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


acos = _one("acos", "Returns the inverse cosine, in radians.")
asin = _one("asin", "Returns the inverse sine, in radians.")
atan = _one("atan", "Returns the inverse tangent, in radians.")
cos = _one("cos", "Returns the cosine of an angle in radians.")
cosh = _one("cosh", "Returns the hyperbolic cosine.")
erf = _one("erf", "Returns the error function.")
exp = _one("exp", "Returns e to the power of x.")
exp2 = _one("exp2", "Returns 2 to the power of x.")
expm1 = _one("expm1", "Returns exp(x) - 1, accurate near 0.")
gelu = _one("gelu", "Returns the exact GELU.")
isfinite = _one("isfinite", "Returns True where x is finite.")
isinf = _one("isinf", "Returns True where x is infinite.")
isnan = _one("isnan", "Returns True where x is NaN.")
log = _one("log", "Returns the natural logarithm.")
log10 = _one("log10", "Returns the logarithm to base 10.")
log1p = _one("log1p", "Returns log(1 + x), accurate near 0.")
log2 = _one("log2", "Returns the logarithm to base 2.")
logical_not = _one("logical_not", "Returns the logical not of bools.")
relu = _one("relu", "Returns max(x, 0).")
rsqrt = _one("rsqrt", "Returns 1 / sqrt(x).")
sigmoid = _one("sigmoid", "Returns 1 / (1 + exp(-x)).")
_sign = _one("sign", "Returns -1, 0 or 1, with the sign of zero.")
silu = _one("silu", "Returns x * sigmoid(x).")
sin = _one("sin", "Returns the sine of an angle in radians.")
sinh = _one("sinh", "Returns the hyperbolic sine.")
sqrt = _one("sqrt", "Returns the square root.")
tan = _one("tan", "Returns the tangent of an angle in radians.")
tanh = _one("tanh", "Returns the hyperbolic tangent.")
abs = _one("abs", "Returns the absolute value.")
negative = _one("negative", "Returns -x.")
ceil = _keeps_integers("ceil", "Returns the smallest integer that is at least x.")
floor = _keeps_integers("floor", "Returns the largest integer that is at most x.")
trunc = _keeps_integers("trunc", "Returns x rounded towards zero.")
round = _keeps_integers("rint", "Returns the nearest integer, ties to even.")
round.__name__ = round.__qualname__ = "round"

add = _two("add", "add", "Returns x1 + x2.")
atan2 = _two("atan2", "atan2", "Returns the angle of the point (x2, x1), between -pi and pi.")
copysign = _two("copysign", "copysign", "Returns the magnitude of x1 with the sign of x2.")
equal = _two("equal", "equal", "Returns x1 == x2.")
greater = _two("greater", "greater", "Returns x1 > x2.")
greater_equal = _two("greater_equal", "greater_equal", "Returns x1 >= x2.")
hypot = _two("hypot", "hypot", "Returns sqrt(x1 * x1 + x2 * x2) without overflow of the squares.")
less = _two("less", "less", "Returns x1 < x2.")
less_equal = _two("less_equal", "less_equal", "Returns x1 <= x2.")
maximum = _two("maximum", "maximum", "Returns the larger of each pair; NaN if one is NaN.")
minimum = _two("minimum", "minimum", "Returns the smaller of each pair; NaN if one is NaN.")
multiply = _two("multiply", "multiply", "Returns x1 * x2.")
nextafter = _two("nextafter", "nextafter", "Returns the next float after x1 in the direction of x2.")
not_equal = _two("not_equal", "not_equal", "Returns x1 != x2.")
subtract = _two("subtract", "subtract", "Returns x1 - x2.")
bitwise_and = _two("bitwise_and", "bitwise_and", "Returns x1 & x2.")
bitwise_left_shift = _two("bitwise_left_shift", "bitwise_left_shift", "Returns x1 << x2, which is 0 if x2 is at least the number of bits.")
bitwise_or = _two("bitwise_or", "bitwise_or", "Returns x1 | x2.")
bitwise_right_shift = _two("bitwise_right_shift", "bitwise_right_shift", "Returns x1 >> x2. Signed integers replicate the sign bit.")
bitwise_xor = _two("bitwise_xor", "bitwise_xor", "Returns x1 ^ x2.")


def _bools(name: str, *arrays: Array) -> None:
    for a in arrays:
        if isinstance(a, Array) and a.dtype != _core.bool:
            raise DtypeError(f"[{name}] the operands must be bools, not {a.dtype.name}")


def logical_and(x1: Array, x2: Array, /) -> Array:
    """Returns x1 and x2, for bools."""
    _bools("logical_and", x1, x2)
    return x1 & x2


def logical_or(x1: Array, x2: Array, /) -> Array:
    """Returns x1 or x2, for bools."""
    _bools("logical_or", x1, x2)
    return x1 | x2


def logical_xor(x1: Array, x2: Array, /) -> Array:
    """Returns whether exactly one is True, for bools."""
    _bools("logical_xor", x1, x2)
    return x1 ^ x2


def sign(x: Array, /) -> Array:
    """Returns -1, 0 or 1, which is +0 for -0."""
    return _sign(x) + 0


def positive(x: Array, /) -> Array:
    """Returns a copy of x."""
    return +x


def bitwise_invert(x: Array, /) -> Array:
    """Returns the bits of integers inverted, and the logical not of bools."""
    return ~x


def divide(x1: Array | float, x2: Array | float, /) -> Array:
    """Returns x1 / x2. The quotient of integers is float32."""
    return x1 / x2


def floor_divide(x1: Array | float, x2: Array | float, /) -> Array:
    """Returns the largest integer that is at most the rounded quotient x1 / x2."""
    return x1 // x2


def remainder(x1: Array | float, x2: Array | float, /) -> Array:
    """Returns the remainder of the floor division, with the sign of x2."""
    return x1 % x2


def pow(x1: Array | float, x2: Array | float, /) -> Array:
    """Returns x1 to the power of x2. Waits for exponents in an array of integers."""
    return x1**x2


def square(x: Array, /) -> Array:
    """Returns x * x."""
    return x * x


def reciprocal(x: Array, /) -> Array:
    """Returns 1 / x."""
    return 1 / x


def signbit(x: Array, /) -> Array:
    """Returns True where the sign of x is negative, including -0."""
    return copysign(ones_like(x), x) < 0


def _real(x: Array) -> Array:
    """Converts integers to float32."""
    return x if x.dtype in _floats else x.astype(_core.float32)


def acosh(x: Array, /) -> Array:
    """Returns the inverse hyperbolic cosine."""
    if isinstance(x, ComplexArray):
        return _complex.apply("acosh", (x,), {})
    return log(x + sqrt(x - 1) * sqrt(x + 1))


def asinh(x: Array, /) -> Array:
    """Returns the inverse hyperbolic sine."""
    if isinstance(x, ComplexArray):
        return _complex.apply("asinh", (x,), {})
    x = _real(x)
    a = abs(x)
    limit = 2 / math.sqrt(finfo(x.dtype).eps)  # beyond it, asinh(a) rounds to log(2 a); a * a may overflow
    small, large = minimum(a, limit), maximum(a, limit)
    near = log1p(small + small * small / (1 + sqrt(small * small + 1)))
    return copysign(where(a > limit, log(large) + math.log(2), near), x)


def atanh(x: Array, /) -> Array:
    """Returns the inverse hyperbolic tangent."""
    if isinstance(x, ComplexArray):
        return _complex.apply("atanh", (x,), {})
    x = _real(x)
    a = abs(x)  # near -1, 1 - x would lose the digits of x
    return copysign(0.5 * log1p(2 * a / (1 - a)), x)


def logaddexp(x1: Array, x2: Array, /) -> Array:
    """Returns log(exp(x1) + exp(x2)) without overflow."""
    largest = maximum(x1, x2)
    distance = where(x1 == x2, 0.0, -abs(x1 - x2))
    return largest + log1p(exp(distance))


def clip(x: Array, /, min: Array | float | None = None, max: Array | float | None = None) -> Array:  # noqa: A002
    """Limits x to [min, max]. None stands for no limit."""
    if min is not None:
        x = maximum(x, min)
    return x if max is None else minimum(x, max)


def where(condition: Array, x1: Array | float, x2: Array | float, /) -> Array:
    """Returns x1 where the condition is True, and x2 elsewhere."""
    return _apply("where", condition, x1, x2)


def astype(x: Array, dtype: DType | str, /, *, copy: builtins.bool = True, device: Any = None) -> Array:
    """Converts to another dtype. Without `copy`, returns x if it has that dtype."""
    return asarray(x, dtype=dtype, device=device, copy=copy or None)


# Complex numbers. An array of real numbers has imaginary parts of 0.


def real(x: Any, /) -> Array:
    """Returns the real parts, which share the memory of the array."""
    return x.real


def imag(x: Any, /) -> Array:
    """Returns the imaginary parts, which share the memory of a ComplexArray."""
    return x.imag


def conj(x: Any, /) -> Any:
    """Returns the complex conjugates."""
    return x.conj()


def angle(x: Any, /) -> Array:
    """Returns the angle of complex numbers in radians, between -pi and pi."""
    return _complex.apply("angle", (x,), {}) if isinstance(x, (ComplexArray, complex)) else atan2(0.0, x)


# Reductions.


def _axes(x: Array, axis: Any) -> tuple | None:
    """The axes of an operation. None: all."""
    if axis is None:
        return None
    if isinstance(axis, int):
        return (axis,)
    if len(axis) == 0:
        raise ShapeError("[axis] an empty tuple of axes is not supported")
    return tuple(axis)


def _reduced(name: str, x: Array, axis: Any, keepdims: builtins.bool, dtype: DType | str | None = None, **attributes: Any) -> Array:
    """Computes a reduction in a dtype. None: in 64 bits for integers, otherwise in the dtype of the array."""
    if dtype is not None:
        return _reduced(name, x.astype(dtype), axis, keepdims, **attributes).astype(dtype)
    if isinstance(axis, (tuple, list)) and len(axis) == 0:  # each element is reduced by itself
        x, axis, keepdims = expand_dims(x, -1), -1, False
    return _apply(name, x, axes=_axes(x, axis), keep=keepdims, **attributes)


def _axis(name: str, x: Array, axis: int) -> int:
    """Returns the axis, counted from the begin."""
    if not -x.ndim <= axis < x.ndim:
        raise ShapeError(f"[{name}] the axis {axis} is out of range for the shape {x.shape}")
    return axis % x.ndim


def _distinct_axes(name: str, x: Array, axes: int | Sequence[int]) -> list[int]:
    """Returns the axes, counted from the begin."""
    out = [_axis(name, x, a) for a in ([axes] if isinstance(axes, int) else axes)]
    if len(set(out)) != len(out):
        raise ShapeError(f"[{name}] an axis is given twice: {axes}")
    return out


def _in_dtype(name: str, x: Array, dtype: DType | str | None, **attributes: Any) -> Array:
    """Computes an operation in a dtype. None: in 64 bits for integers, otherwise in the dtype of the array."""
    return _apply(name, x, **attributes) if dtype is None else _apply(name, x.astype(dtype), **attributes).astype(dtype)


def sum(x: Array, /, *, axis: _Axis = None, dtype: DType | str | None = None, keepdims: builtins.bool = False) -> Array:
    """Returns the sum. Integers are summed in 64 bits, 16-bit floats in float32."""
    return _reduced("sum", x, axis, keepdims, dtype)


def prod(x: Array, /, *, axis: _Axis = None, dtype: DType | str | None = None, keepdims: builtins.bool = False) -> Array:
    """Returns the product, of pairs of pairs of elements. Integers are multiplied in 64 bits, 16-bit floats in float32."""
    return _reduced("prod", x, axis, keepdims, dtype)


def nansum(x: Array, /, *, axis: _Axis = None, keepdims: builtins.bool = False) -> Array:
    """Returns the sum of the elements that are not NaN."""
    return _reduced("nansum", x, axis, keepdims)


def nanprod(x: Array, /, *, axis: _Axis = None, keepdims: builtins.bool = False) -> Array:
    """Returns the product of the elements that are not NaN."""
    return _reduced("nanprod", x, axis, keepdims)


def nanmean(x: Array, /, *, axis: _Axis = None, keepdims: builtins.bool = False) -> Array:
    """Returns the mean of the elements that are not NaN; NaN if there are none."""
    return _reduced("nanmean", x, axis, keepdims)


def nanmax(x: Array, /, *, axis: _Axis = None, keepdims: builtins.bool = False) -> Array:
    """Returns the largest element that is not NaN; NaN if there is none."""
    return _reduced("nanmax", x, axis, keepdims)


def nanmin(x: Array, /, *, axis: _Axis = None, keepdims: builtins.bool = False) -> Array:
    """Returns the smallest element that is not NaN; NaN if there is none."""
    return _reduced("nanmin", x, axis, keepdims)


def mean(x: Array, /, *, axis: _Axis = None, keepdims: builtins.bool = False) -> Array:
    """Returns the mean. The mean of integers is float64 (float32 on a device without float64)."""
    return _reduced("mean", x, axis, keepdims)


def max(x: Array, /, *, axis: _Axis = None, keepdims: builtins.bool = False) -> Array:
    """Returns the largest element. NaN propagates."""
    return _reduced("max", x, axis, keepdims)


def min(x: Array, /, *, axis: _Axis = None, keepdims: builtins.bool = False) -> Array:
    """Returns the smallest element. NaN propagates."""
    return _reduced("min", x, axis, keepdims)


def any(x: Array, /, *, axis: _Axis = None, keepdims: builtins.bool = False) -> Array:
    """Returns whether any element is True or not 0."""
    return _reduced("any", x if x.dtype == _core.bool else x != 0, axis, keepdims)


def all(x: Any, /, *, axis: _Axis = None, keepdims: builtins.bool = False) -> Any:
    """Returns whether all elements are True or not 0."""
    if not isinstance(x, (Array, ComplexArray)):
        return builtins.all(x)
    return _reduced("all", x if x.dtype == _core.bool else x != 0, axis, keepdims)


def var(x: Array, /, *, axis: _Axis = None, correction: float = 0.0, keepdims: builtins.bool = False) -> Array:
    """Returns the variance, divided by n - correction."""
    return _reduced("var", x, axis, keepdims, correction=correction)


def std(x: Array, /, *, axis: _Axis = None, correction: float = 0.0, keepdims: builtins.bool = False) -> Array:
    """Returns the standard deviation, the root of var()."""
    return _reduced("std", x, axis, keepdims, correction=correction)


def median(x: Array, /, *, axis: _Axis = None, keepdims: builtins.bool = False) -> Array:
    """Returns the median."""
    return _reduced("median", x, axis, keepdims)


def logsumexp(x: Array, /, *, axis: _Axis = None, keepdims: builtins.bool = False) -> Array:
    """Returns log(sum(exp(x))) without overflow."""
    return _reduced("logsumexp", x, axis, keepdims)


def count_nonzero(x: Array, /, *, axis: _Axis = None, keepdims: builtins.bool = False) -> Array:
    """Returns the number of elements that are not 0."""
    return sum(x if x.dtype == _core.bool else x != 0, axis=axis, keepdims=keepdims)


def _position(name: str, x: Array, axis: int | None, keepdims: builtins.bool) -> Array:
    if axis is not None:
        return _apply(name, x, axis=axis, keep=keepdims)
    out = _apply(name, _apply("reshape", x, shape=(-1,)) if x.size else x, axis=0)
    return _apply("reshape", out, shape=(1,) * x.ndim) if keepdims else out


def argmax(x: Array, /, *, axis: int | None = None, keepdims: builtins.bool = False) -> Array:
    """Returns the position of the first largest element, in the flattened array if `axis` is None."""
    return _position("argmax", x, axis, keepdims)


def argmin(x: Array, /, *, axis: int | None = None, keepdims: builtins.bool = False) -> Array:
    """Returns the position of the first smallest element, in the flattened array if `axis` is None."""
    return _position("argmin", x, axis, keepdims)


def cumulative_sum(x: Array, /, *, axis: int | None = None, dtype: DType | str | None = None,
                   include_initial: builtins.bool = False) -> Array:  # fmt: skip
    """Returns running sums along an axis. With `include_initial`, they begin with 0."""
    return _running("cumulative_sum", "cumsum", x, axis, dtype, 0 if include_initial else None)


def cumulative_prod(x: Array, /, *, axis: int | None = None, dtype: DType | str | None = None,
                    include_initial: builtins.bool = False) -> Array:  # fmt: skip
    """Returns running products along an axis. With `include_initial`, they begin with 1."""
    return _running("cumulative_prod", "cumprod", x, axis, dtype, 1 if include_initial else None)


def cumsum(x: Array, /, axis: int | None = None, *, dtype: DType | str | None = None) -> Array:
    """Returns running sums along an axis, or of the elements in row-major order if `axis` is None, as in NumPy."""
    return cumulative_sum(x.reshape(x.size) if axis is None else x, axis=axis, dtype=dtype)


def cumprod(x: Array, /, axis: int | None = None, *, dtype: DType | str | None = None) -> Array:
    """Returns running products along an axis, or of the elements in row-major order if `axis` is None, as in NumPy."""
    return cumulative_prod(x.reshape(x.size) if axis is None else x, axis=axis, dtype=dtype)


def cummax(x: Array, /, *, axis: int | None = None) -> Array:
    """Returns the largest element so far along an axis. NaN propagates."""
    return _running("cummax", "cummax", x, axis, None, None)


def cummin(x: Array, /, *, axis: int | None = None) -> Array:
    """Returns the smallest element so far along an axis. NaN propagates."""
    return _running("cummin", "cummin", x, axis, None, None)


def _running(public: str, name: str, x: Array, axis: int | None, dtype: Any, initial: int | None) -> Array:
    if axis is None:
        if x.ndim > 1:
            raise ShapeError(f"[{public}] an array of several axes needs an axis")
        axis = 0
    out = _in_dtype(name, x, dtype, axis=axis)
    if initial is not None:
        shape = list(out.shape)
        shape[axis] = 1
        out = concat([full(tuple(shape), initial, dtype=out.dtype, device=out.device), out], axis=axis)
    return out


def diff(x: Array, /, *, axis: int = -1, n: int = 1, prepend: Array | None = None, append: Array | None = None) -> Array:
    """Returns the differences of neighbours along an axis, n times. `prepend` and `append` are joined to the array first."""
    if prepend is not None or append is not None:
        x = concat([part for part in (prepend, x, append) if part is not None], axis=axis)
    return _apply("diff", x, order=n, axis=axis)


# Shapes.


def reshape(x: Array, /, shape: Sequence[int], *, copy: builtins.bool | None = None) -> Array:
    """Returns the elements with another shape: a view if the strides allow it. One extent can be -1."""
    out = x.reshape(shape)
    return _apply("copy", out) if copy else out


def permute_dims(x: Array, /, axes: Sequence[int]) -> Array:
    """Returns a view with the axes in another order."""
    return _apply("permute", x, axes=tuple(axes))


def matrix_transpose(x: Array, /) -> Array:
    """Returns a view with the last two axes exchanged."""
    return _apply("swapaxes", x, first=-1, second=-2)


def moveaxis(x: Array, source: int | Sequence[int], destination: int | Sequence[int], /) -> Array:
    """Returns a view with axes moved to other positions."""
    sources, destinations = _distinct_axes("moveaxis", x, source), _distinct_axes("moveaxis", x, destination)
    if len(sources) != len(destinations):
        raise ShapeError(f"[moveaxis] {source} and {destination} have different numbers of axes")
    order = [a for a in range(x.ndim) if a not in sources]
    for d, s in sorted(zip(destinations, sources)):
        order.insert(d, s)
    return permute_dims(x, order)


def expand_dims(x: Array, /, axis: int) -> Array:
    """Returns a view with a new axis of extent 1."""
    return _apply("unsqueeze", x, axis=axis)


def squeeze(x: Array, /, axis: int | Sequence[int]) -> Array:
    """Returns a view without axes of extent 1."""
    for a in sorted(_distinct_axes("squeeze", x, axis), reverse=True):
        x = _apply("squeeze", x, axis=a)
    return x


def broadcast_to(x: Array, /, shape: Sequence[int]) -> Array:
    """Returns a view with repeated elements."""
    return _apply("broadcast_to", x, shape=_shape(shape))


def broadcast_shapes(*shapes: Sequence[int]) -> tuple:
    """Returns the shape to which all shapes broadcast."""
    out: list = []
    for shape in shapes:
        a, b = list(out), list(shape)
        a, b = [1] * (len(b) - len(a)) + a, [1] * (len(a) - len(b)) + b
        for i, (m, n) in enumerate(zip(a, b)):
            if m != n and m != 1 and n != 1:
                raise ShapeError(f"[broadcast_shapes] {tuple(out)} and {tuple(shape)} do not broadcast")
            a[i] = n if m == 1 else m
        out = a
    return tuple(out)


def broadcast_arrays(*arrays: Array) -> list[Array]:
    """Broadcasts arrays to one shape."""
    shape = broadcast_shapes(*(a.shape for a in arrays))
    return [broadcast_to(a, shape) for a in arrays]


def concat(arrays: Sequence[Array], /, *, axis: int | None = 0) -> Array:
    """Joins arrays along an axis, or their elements if `axis` is None."""
    if axis is None:
        arrays, axis = [_apply("reshape", a, shape=(-1,)) if a.size else zeros(0, dtype=a.dtype, device=a.device)
                        for a in arrays], 0  # fmt: skip
    return _apply("concatenate", *arrays, axis=axis)


def stack(arrays: Sequence[Array], /, *, axis: int = 0) -> Array:
    """Joins arrays of the same shape along a new axis."""
    return _apply("stack", *arrays, axis=axis)


def unstack(x: Array, /, *, axis: int = 0) -> tuple[Array, ...]:
    """Returns the views along an axis."""
    axis = _axis("unstack", x, axis)
    return tuple(_apply("squeeze", part, axis=axis) for part in _several(_apply("split", x, sections=x.shape[axis],
                 axis=axis))) if x.shape[axis] else ()  # fmt: skip


def split(x: Array, sections: int | Sequence[int], /, *, axis: int = 0) -> list[Array]:
    """Splits an axis into equal views, or views of these extents."""
    if isinstance(sections, int):
        return _several(_apply("split", x, sections=sections, axis=axis))
    return _several(_apply("split", x, sizes=tuple(sections), axis=axis))


def flip(x: Array, /, *, axis: _Axis = None) -> Array:
    """Returns a copy with the order of the elements reversed along axes."""
    return _apply("flip", x, axes=_axes(x, axis))


def roll(x: Array, /, shift: int | Sequence[int], *, axis: int | Sequence[int] | None = None) -> Array:
    """Returns a copy with elements moved along axes; those that leave at the end return at the begin."""
    if isinstance(shift, int) and (axis is None or isinstance(axis, int)):
        return _apply("roll", x, shift=shift, axis=axis)
    axes = [axis] if isinstance(axis, int) else list(axis or [])
    shifts = [shift] * len(axes) if isinstance(shift, int) else list(shift)
    for s, a in zip(shifts, axes):
        x = _apply("roll", x, shift=s, axis=a)
    return x


def repeat(x: Array, repeats: int | Array, /, *, axis: int | None = None) -> Array:
    """Returns each element several times. `repeats` may have a number for each element of the axis."""
    if isinstance(repeats, Array):
        if repeats.size == 1:
            repeats = repeats.item()
        else:
            if axis is None:
                x, axis = x.reshape(-1), 0
            if repeats.shape != (x.shape[_axis("repeat", x, axis)],):
                raise ShapeError(f"[repeat] repeats has shape {repeats.shape}, the axis extent {x.shape[axis]}")
            if repeats.size and min(repeats).item() < 0:
                raise _core.ArgumentError(f"[repeat] a count is negative: {min(repeats).item()}")
            ends = cumulative_sum(repeats.astype(_core.int64))
            count = ends[-1].item() if repeats.size else 0
            return _apply("take", x, searchsorted(ends, arange(count, device=x.device), side="right"), axis=axis)
    if repeats < 0:
        raise _core.ArgumentError(f"[repeat] the count is negative: {repeats}")
    return _apply("repeat", x, count=repeats, axis=axis)


def tile(x: Array, repetitions: Sequence[int], /) -> Array:
    """Returns copies of the array next to each other."""
    return _apply("tile", x, counts=tuple(repetitions))


def pad(x: Array, widths: Sequence[tuple[int, int]], /, *, value: float = 0) -> Array:
    """Surrounds the array with elements of `value`; `widths` has a pair (before, after) for each axis."""
    return _apply("pad", x, widths=tuple(n for pair in widths for n in pair), value=value)


# Sorting, searching and sets.


def argsort(x: Array, /, *, axis: int = -1, descending: builtins.bool = False, stable: builtins.bool = True) -> Array:
    """Returns the positions that sort an axis. Always stable."""
    if not descending:
        return _apply("argsort", x, axis=axis)
    # Equal elements keep their order: sort the reversed axis, and count the positions from its end.
    if x.ndim == 0:
        return _apply("argsort", x, axis=axis)
    order = _apply("argsort", _apply("flip", x, axes=(axis,)), axis=axis)
    return x.shape[axis] - 1 - _apply("flip", order, axes=(axis,))


def sort(x: Array, /, *, axis: int = -1, descending: builtins.bool = False, stable: builtins.bool = True) -> Array:
    """Returns the elements of an axis in order. NaN is last, or first if descending."""
    out = _apply("sort", x, axis=axis)
    return _apply("flip", out, axes=(axis,)) if descending and x.ndim else out


def partition(x: Array, kth: int | Sequence[int], /, axis: int = -1) -> Array:
    """Returns the elements of an axis in an order in which those at the positions `kth` are as in a sorted axis.

    The whole axis is sorted, which satisfies NumPy's definition. Raises ShapeError if the axis does not exist or has no
    position `kth`.
    """
    _check_positions("partition", x, kth, axis)
    return sort(x, axis=axis)


def argpartition(x: Array, kth: int | Sequence[int], /, axis: int = -1) -> Array:
    """Returns the positions of the elements of partition(), int64."""
    _check_positions("argpartition", x, kth, axis)
    return argsort(x, axis=axis)


def _check_positions(name: str, x: Array, kth: int | Sequence[int], axis: int) -> None:
    n = x.shape[_axis(name, x, axis)]
    for k in [kth] if hasattr(kth, "__index__") else kth:
        if not -n <= k < n:
            raise ShapeError(f"[{name}] the position {k} is out of range for an axis of {n} elements")


def searchsorted(x1: Array, x2: Array, /, *, side: str = "left", sorter: Array | None = None) -> Array:
    """Returns the positions at which elements of x2 would be inserted in x1."""
    return _apply("searchsorted", x1 if sorter is None else take(x1, sorter), x2, side=side)


def interp(x: Array, xp: Array, fp: Array, /) -> Array:
    """Returns the linear interpolation at `x` of a function with the values `fp` at the ascending positions `xp`."""
    return _apply("interpolate", x, xp, fp)


def bincount(x: Array, /, *, minlength: int = 0) -> Array:
    """Returns how often each of the integers 0, 1, 2 and so on occurs."""
    return _apply("bincount", x, least=minlength)


def histogram(x: Array, /, bins: int, range: tuple[float, float]) -> tuple[Array, Array]:  # noqa: A002
    """Returns the numbers of elements in intervals of equal width, and the edges of the intervals."""
    return _apply("histogram", x, bins=bins, low=float(range[0]), high=float(range[1]))


def nonzero(x: Array, /) -> tuple[Array, ...]:
    """Returns the positions of the elements that are not 0, one array per axis."""
    if x.ndim == 0:
        raise ShapeError("[nonzero] an array without axes has no positions")
    return tuple(_several(_apply("nonzero", x)))


def isin(x1: Array, x2: Array, /, *, invert: builtins.bool = False) -> Array:
    """Returns whether each element of x1 is in x2."""
    found = _apply("isin", x1, x2)
    return ~found if invert else found


class UniqueCounts(NamedTuple):
    """The result of unique_counts()."""

    values: Array
    counts: Array


class UniqueInverse(NamedTuple):
    """The result of unique_inverse()."""

    values: Array
    inverse_indices: Array


class UniqueAll(NamedTuple):
    """The result of unique_all()."""

    values: Array
    indices: Array
    inverse_indices: Array
    counts: Array


def unique_all(x: Array, /) -> UniqueAll:
    """Returns the distinct elements, the first position of each, the position of each element among them, and counts."""
    values, inverse = unique_inverse(x)
    counts = unique_counts(x).counts
    # A stable sort of the inverse puts the positions of equal elements next to each other, the first one first.
    order = argsort(inverse.reshape(-1) if x.size else zeros(0, dtype=_core.int64, device=x.device))
    starts = cumulative_sum(counts) - counts if x.size else counts
    return UniqueAll(values, take(order, starts), inverse, counts)


def unique_values(x: Array, /) -> Array:
    """Returns the distinct elements in ascending order. All NaN are equal."""
    return _apply("unique", x)


def unique_counts(x: Array, /) -> UniqueCounts:
    """Returns the distinct elements and how often each occurs."""
    return UniqueCounts(*_apply("unique_counts", x))


def unique_inverse(x: Array, /) -> UniqueInverse:
    """Returns the distinct elements and, for each element, its position among them."""
    return UniqueInverse(*_apply("unique_inverse", x))


def topk(x: Array, k: int, /, *, axis: int = -1, largest: builtins.bool = True) -> tuple[Array, Array]:
    """Returns the k largest (or smallest) elements along an axis, and their positions."""
    return _apply("topk", x, k=k, axis=axis, largest=largest)


def quantile(x: Array, q: float, /, *, axis: _Axis = None, keepdims: builtins.bool = False) -> Array:
    """Returns a quantile with linear interpolation."""
    return _reduced("quantile", x, axis, keepdims, q=float(q))


# Indexing.


def _from_begin(indices: Array, extent: int) -> Array:
    """Returns positions counted from the begin. Negative ones count from the end."""
    if indices.dtype not in _signed:
        return indices
    wide = indices.astype(_core.int64)  # a small dtype may not hold the extent
    return where(wide < 0, wide + extent, wide)


def take(x: Array, indices: Array, /, *, axis: int | None = None) -> Array:
    """Selects elements along an axis. Negative indices count from the end; those out of range select zeros."""
    if axis is None:
        if x.ndim != 1:
            raise ShapeError("[take] an array of several axes needs an axis")
        axis = 0
    return _apply("take", x, _from_begin(indices, x.shape[_axis("take", x, axis)]), axis=axis)


def take_along_axis(x: Array, indices: Array, /, *, axis: int = -1) -> Array:
    """Selects one element for each index along an axis. Indices are those of take()."""
    return _apply("take_along_axis", x, _from_begin(indices, x.shape[_axis("take_along_axis", x, axis)]), axis=axis)


def update_slice(x: Array, updates: Array, starts: Sequence[int], /) -> Array:
    """Returns a copy with `updates` written at the position `starts`, one number per axis."""
    return _apply("update_slice", x, updates, starts=tuple(starts))


def scatter(x: Array, indices: Array, updates: Array, /, *, axis: int = 0) -> Array:
    """Returns a copy with out[indices[i]] = updates[i] along an axis."""
    return _apply("scatter", x, indices, updates, axis=axis)


def scatter_add(x: Array, indices: Array, updates: Array, /, *, axis: int = 0) -> Array:
    """Returns a copy with out[indices[i]] += updates[i] along an axis."""
    return _apply("scatter_add", x, indices, updates, axis=axis)


def one_hot(indices: Array, classes: int, /, *, dtype: DType | str | None = None) -> Array:
    """Appends an axis that is 1 at the index and 0 elsewhere."""
    return _apply("one_hot", indices, classes=classes, dtype=dtype)


# Linear algebra.


def matmul(x1: Array, x2: Array, /) -> Array:
    """Returns the matrix product, `x1 @ x2`, in the promoted dtype. Sums of integers wrap around."""
    out = _apply("matmul", x1, x2)  # of integers of 8 and 16 bits: int32
    return out if out.dtype not in (_core.int32, _core.int64) else out.astype(result_type(x1, x2))


def tensordot(x1: Array, x2: Array, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Array:
    """Returns the sum of products over axes."""
    if isinstance(axes, int):
        if not 0 <= axes <= builtins.min(x1.ndim, x2.ndim):
            raise ShapeError(f"[tensordot] {axes} axes are out of range for the shapes {x1.shape} and {x2.shape}")
        axes = tuple(range(x1.ndim - axes, x1.ndim)), tuple(range(axes))
    a, b = (tuple(_distinct_axes("tensordot", x, part)) for part, x in zip(axes, (x1, x2)))
    if len(a) != len(b):
        raise ShapeError(f"[tensordot] the operands have different numbers of axes to sum over: {axes}")
    if not a:  # the outer product
        return (_apply("reshape", x1, shape=x1.shape + (1,) * x2.ndim) * x2)
    return _apply("tensordot", x1, x2, a_axes=a, b_axes=b)


def vecdot(x1: Array, x2: Array, /, *, axis: int = -1) -> Array:
    """Returns the sum of products along an axis, which has the same extent in both arrays. `x1` is conjugated."""
    if x1.ndim == 0 or x2.ndim == 0 or x1.shape[_axis("vecdot", x1, axis)] != x2.shape[_axis("vecdot", x2, axis)]:
        raise ShapeError(f"[vecdot] the extents of axis {axis} differ: {x1.shape} and {x2.shape}")
    out = sum((x1.conj() if isinstance(x1, ComplexArray) else x1) * x2, axis=axis)
    return out.astype(result_type(x1, x2))


def outer(x1: Array, x2: Array, /) -> Array:
    """Returns the products of all pairs of elements of two vectors."""
    return _apply("outer", x1, x2)


def einsum(subscripts: str, /, *operands: Array) -> Array:
    """Returns the sum of products over named axes, as in NumPy."""
    return _apply("einsum", *operands, subscripts=subscripts)


def kron(x1: Array, x2: Array, /) -> Array:
    """Returns the Kronecker product."""
    return _apply("kron", x1, x2)


def convolve(x1: Array, x2: Array, /, *, mode: str = "full") -> Array:
    """Returns the convolution of two vectors; `mode` is "full", "same" or "valid", as in NumPy."""
    return _apply("convolve", x1, x2, part=mode)


def diagonal(x: Array, /, *, offset: int = 0) -> Array:
    """Returns the diagonal of the last two axes."""
    return _apply("diag", x, offset=offset)


def trace(x: Array, /, *, offset: int = 0, dtype: DType | str | None = None) -> Array:
    """Returns the sum of the diagonal of the last two axes."""
    return _in_dtype("trace", x, dtype, offset=offset)


def cholesky(x: Array, /, *, upper: builtins.bool = False) -> Array:
    """Returns the lower Cholesky factor of each matrix, or its transpose. Only the lower triangle is read."""
    return _apply("cholesky", x, upper=upper)


def solve_triangular(t: Array, b: Array, /, *, side: str = "left", upper: builtins.bool = False,
                     transposed: builtins.bool = False, unit_diagonal: builtins.bool = False) -> Array:  # fmt: skip
    """Solves t x = b, or x t = b if `side` is "right", for a lower or upper triangular matrix, or its transpose."""
    return _apply("solve_triangular", t, b, side=side, triangle="upper" if upper else "lower", transposed=transposed,
                  unit_diagonal=unit_diagonal)  # fmt: skip


# Neural networks.


def softmax(x: Array, /, *, axis: int = -1) -> Array:
    """Returns exp(x - max) / sum along an axis."""
    return _apply("softmax", x, axis=axis)


def cross_entropy(logits: Array, targets: Array, /, *, weight: Array | None = None, ignore_index: int = -100,
                  label_smoothing: float = 0.0, reduction: str = "mean") -> Array:  # fmt: skip
    """Returns the cross-entropy of logits (batch, classes, ...) and integer targets (batch, ...)."""
    operands = (logits, targets) if weight is None else (logits, targets, weight)
    return _apply("cross_entropy", *operands, ignore_index=ignore_index, label_smoothing=float(label_smoothing),
                  reduction=reduction)  # fmt: skip


def mse_loss(prediction: Array, target: Array, /, *, reduction: str = "mean") -> Array:
    """Returns the squared error."""
    return _apply("mse_loss", prediction, target, reduction=reduction)


def binary_cross_entropy(logits: Array, targets: Array, /, *, reduction: str = "mean") -> Array:
    """Returns the binary cross-entropy of logits."""
    return _apply("binary_cross_entropy", logits, targets, reduction=reduction)


def conv2d(x: Array, weight: Array, bias: Array | None = None, /, *, stride: Any = 1, padding: Any = 0,
           dilation: Any = 1, groups: int = 1) -> Array:  # fmt: skip
    """Returns the convolution of images (batch, channels, rows, columns)."""
    operands = (x, weight) if bias is None else (x, weight, bias)
    return _apply("conv2d", *operands, stride=stride, padding=padding, dilation=dilation, groups=groups)


def max_pool2d(x: Array, kernel: Any, /, *, stride: Any = None, padding: Any = 0) -> Array:
    """Returns the largest element of each window of images (batch, channels, rows, columns)."""
    return _apply("max_pool2d", x, kernel=kernel, stride=stride, padding=padding)


def average_pool2d(x: Array, kernel: Any, /, *, stride: Any = None, padding: Any = 0) -> Array:
    """Returns the mean of each window of images (batch, channels, rows, columns)."""
    return _apply("average_pool2d", x, kernel=kernel, stride=stride, padding=padding)


def rms_norm(x: Array, weight: Array, /, *, epsilon: float = 1e-5) -> Array:
    """Returns x / sqrt(mean of x * x + epsilon) * weight, with the mean over the last axis."""
    return _apply("rms_norm", x, weight, epsilon=epsilon)


def scaled_dot_product_attention(q: Array, k: Array, v: Array, mask: Array | None = None, /, *,
                                 causal: builtins.bool = False, scale: float | None = None) -> Array:  # fmt: skip
    """Returns softmax(scale q k^T) v of (batch, heads, positions, size)."""
    operands = (q, k, v) if mask is None else (q, k, v, mask)
    return _apply("attention", *operands, causal=causal, scale=scale)


# Evaluation and files.


def eval(*arrays: Any) -> None:  # noqa: A001
    """Computes pending arrays. Arrays of the same shape share a kernel."""
    if builtins.any(isinstance(a, ComplexArray) for a in arrays):
        arrays = tuple(part for a in arrays for part in ((a.real, a.imag) if isinstance(a, ComplexArray) else (a,)))
    _core.eval(*arrays)


def save(x: Array, path: str, /) -> None:
    """Writes a NumPy .npy file. Raises TypeError if `x` is not an Array, and MissingFile if the folder does not exist."""
    if isinstance(x, ComplexArray):
        raise DtypeError("[save] complex numbers are not supported. Save x.real and x.imag, or numpy.asarray(x)")
    if not isinstance(x, Array):
        raise TypeError(f"[save] the first argument must be an Array, not {type(x).__name__}. Call save(array, path)")
    check_folder("save", path)
    _core.save_npy(x, str(path))


def load(path: str, /, *, device: Any = None, mmap: bool = False) -> Array | dict[str, Array]:
    """Reads a NumPy file: an array from .npy, or a dict of arrays from .npz. With `mmap`, a .npy file becomes an array of
    the CPU whose elements are read when they are first used; writes change the array, and not the file. Raises MissingFile
    if the file does not exist, and FormatError if it is invalid."""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        if file.read(2) == b"PK":  # a zip archive
            if mmap:
                raise TypeError("[load] arrays of an archive cannot be mapped: omit mmap")
            return _core.load_npz(str(path), device)
    if mmap and device is not None:
        raise TypeError("[load] mapped arrays are on the CPU: omit device, and call .to(device)")
    return reading(path, lambda: _core.map_npy(str(path)) if mmap else _core.load_npy(str(path), device))


def savez(path: str, /, *arrays: Array, **named: Array) -> None:
    """Writes a NumPy .npz file with several arrays. Arrays without a name are called arr_0, arr_1, and so on."""
    _save_npz("savez", path, arrays, named, False)


def savez_compressed(path: str, /, *arrays: Array, **named: Array) -> None:
    """Like savez, but compresses each array (needs zlib)."""
    _save_npz("savez_compressed", path, arrays, named, True)


def _save_npz(name: str, path: str, arrays: tuple[Array, ...], named: dict[str, Array], compress: bool) -> None:
    pairs = [(f"arr_{i}", x) for i, x in enumerate(arrays)] + list(named.items())
    for key, x in pairs:
        if not isinstance(x, Array):
            raise TypeError(f"[{name}] '{key}' must be an Array, not {type(x).__name__}")
    check_folder(name, path)
    _core.save_npz(str(path), pairs, compress)


def to_device(x: Array, device: Any, /) -> Array:
    """Returns a copy on another device, or the array itself if it is already there."""
    return x.to_device(device)


__all__ = [name for name, value in list(globals().items())
           if (not name.startswith("_") and (callable(value) or name in ("e", "pi", "inf", "nan", "newaxis"))
               and name not in ("Any", "NamedTuple", "Sequence", "Array", "ComplexArray", "DType", "DtypeError", "ShapeError",
                                "reading", "check_folder", "check_not_negative"))]  # fmt: skip
__all__.append("__array_namespace_info__")
