# SPDX-License-Identifier: Apache-2.0
"""Discrete Fourier transforms, with the names of the array API standard's extension `fft` and of numpy.fft.

A transform is computed along one or several axes, for all indices of the others, on the device of the array. Spectra are
ComplexArrays. Arrays are float32, float64, complex64 or complex128; results have the same precision. All functions are
differentiable.

`n` is the length of a transform, and `s` the lengths along several axes: axes are cut, or padded with zeros at their ends.
`norm` selects what is divided by the length n (or the product of the lengths): inverse transforms by n ("backward"), both by
sqrt(n) ("ortho"), or forward transforms by n ("forward").

Functions raise ShapeError if an axis does not exist, DtypeError for other dtypes, ArgumentError if a length is less than 1,
if an axis is repeated or if `norm` has another value, and TypeError for other objects.
"""

from __future__ import annotations

from typing import Any, Sequence

from . import _complex, _core
from ._complex import ComplexArray
from ._core import Array, DType, DtypeError
from ._functions import _array_of, _axes, _dtype_of

__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifft2", "ifftn", "ifftshift", "ihfft", "irfft", "irfft2",
    "irfftn", "rfft", "rfft2", "rfftfreq", "rfftn",
]  # fmt: skip


def _complex_operands(name: str, x: Any) -> tuple:
    """Returns the parts of an array. An array of real numbers has one."""
    x = _array_of(x)
    if isinstance(x, ComplexArray):
        return x.real, x.imag
    if not isinstance(x, Array):
        raise TypeError(f"[{name}] the operand must be a tessera.Array or ComplexArray, not {type(x).__name__}. Use asarray")
    if x.dtype not in (_core.float32, _core.float64):
        raise DtypeError(f"[{name}] the operand is {x.dtype.name}, but must be float32, float64 or complex. Use astype")
    return (x,)


def _real_operand(name: str, x: Any) -> Array:
    operands = _complex_operands(name, x)
    if len(operands) == 2:
        other = {"rfft": "fft", "rfftn": "fftn", "ihfft": "ifft"}[name]
        raise DtypeError(f"[{name}] the operand is {x.dtype.name}, but {name} transforms real numbers. Use {other}, or x.real")
    return operands[0]


# One axis.


def fft(x: Array | ComplexArray, /, n: int | None = None, axis: int = -1, norm: str = "backward") -> ComplexArray:
    """Returns the sums of x[j] exp(-2 pi i j k / n) along an axis."""
    return _complex.make(*_core.apply("fft", *_complex_operands("fft", x), n=n, axis=axis, norm=norm))


def ifft(x: Array | ComplexArray, /, n: int | None = None, axis: int = -1, norm: str = "backward") -> ComplexArray:
    """Returns the inverse of fft(): the sums of x[j] exp(2 pi i j k / n), divided by n."""
    return _complex.make(*_core.apply("ifft", *_complex_operands("ifft", x), n=n, axis=axis, norm=norm))


def rfft(x: Array, /, n: int | None = None, axis: int = -1, norm: str = "backward") -> ComplexArray:
    """Returns the first n // 2 + 1 elements of fft() of real numbers. The other elements are their conjugates."""
    return _complex.make(*_core.apply("rfft", _real_operand("rfft", x), n=n, axis=axis, norm=norm))


def irfft(x: Array | ComplexArray, /, n: int | None = None, axis: int = -1, norm: str = "backward") -> Array:
    """Returns the inverse of rfft(): n real numbers, by default 2 (m - 1) for an axis of m elements."""
    return _core.apply("irfft", *_complex_operands("irfft", x), n=n, axis=axis, norm=norm)


def hfft(x: Array | ComplexArray, /, n: int | None = None, axis: int = -1, norm: str = "backward") -> Array:
    """Returns fft() of a signal that is the conjugate of its mirror image, from its first half.

    The result has n real numbers, by default 2 (m - 1) for an axis of m elements.
    """
    return _core.apply("hfft", *_complex_operands("hfft", x), n=n, axis=axis, norm=norm)


def ihfft(x: Array, /, n: int | None = None, axis: int = -1, norm: str = "backward") -> ComplexArray:
    """Returns the inverse of hfft(): the first n // 2 + 1 elements of ifft() of real numbers."""
    return _complex.make(*_core.apply("ihfft", _real_operand("ihfft", x), n=n, axis=axis, norm=norm))


# Several axes.


def fftn(x: Array | ComplexArray, /, s: Sequence[int] | None = None, axes: Sequence[int] | None = None,
         norm: str = "backward") -> ComplexArray:  # fmt: skip
    """Returns fft() along several axes: those in `axes`, or the last len(s) axes, or all axes."""
    return _complex.make(*_several_axes("fftn", x, s, axes, norm))


def ifftn(x: Array | ComplexArray, /, s: Sequence[int] | None = None, axes: Sequence[int] | None = None,
          norm: str = "backward") -> ComplexArray:  # fmt: skip
    """Returns the inverse of fftn()."""
    return _complex.make(*_several_axes("ifftn", x, s, axes, norm))


def rfftn(x: Array, /, s: Sequence[int] | None = None, axes: Sequence[int] | None = None,
          norm: str = "backward") -> ComplexArray:  # fmt: skip
    """Returns rfft() along the last of the axes, and then fft() along the others."""
    return _complex.make(*_several_axes("rfftn", _real_operand("rfftn", x), s, axes, norm))


def irfftn(x: Array | ComplexArray, /, s: Sequence[int] | None = None, axes: Sequence[int] | None = None,
           norm: str = "backward") -> Array:  # fmt: skip
    """Returns the inverse of rfftn(). `s` are the lengths of the result."""
    return _several_axes("irfftn", x, s, axes, norm)


def fft2(x: Array | ComplexArray, /, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1),
         norm: str = "backward") -> ComplexArray:  # fmt: skip
    """Returns fftn() along the last two axes."""
    return fftn(x, s, axes, norm)


def ifft2(x: Array | ComplexArray, /, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1),
          norm: str = "backward") -> ComplexArray:  # fmt: skip
    """Returns the inverse of fft2()."""
    return ifftn(x, s, axes, norm)


def rfft2(x: Array, /, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1),
          norm: str = "backward") -> ComplexArray:  # fmt: skip
    """Returns rfftn() along the last two axes."""
    return rfftn(x, s, axes, norm)


def irfft2(x: Array | ComplexArray, /, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1),
           norm: str = "backward") -> Array:  # fmt: skip
    """Returns the inverse of rfft2()."""
    return irfftn(x, s, axes, norm)


def _several_axes(name: str, x: Any, s: Sequence[int] | None, axes: Sequence[int] | None, norm: str) -> Any:
    operands = _complex_operands(name, x)
    return _core.apply(name, *operands, sizes=None if s is None else tuple(s), axes=_axes(operands[0], axes), norm=norm)


# Order and frequencies.


def fftshift(x: Any, /, axes: int | Sequence[int] | None = None) -> Any:
    """Moves the frequency 0 of a spectrum to the middle of axes, by default all."""
    return _shifted("fftshift", x, axes)


def ifftshift(x: Any, /, axes: int | Sequence[int] | None = None) -> Any:
    """Returns the inverse of fftshift()."""
    return _shifted("ifftshift", x, axes)


def _shifted(name: str, x: Any, axes: int | Sequence[int] | None) -> Any:
    x = _array_of(x)
    parts = (x.real, x.imag) if isinstance(x, ComplexArray) else (x,)
    shifted = [_core.apply(name, part, axes=_axes(part, axes)) for part in parts]
    return shifted[0] if len(shifted) == 1 else _complex.make(*shifted)


def fftfreq(n: int, /, *, d: float = 1.0, dtype: DType | str | None = None, device: Any = None) -> Array:
    """Returns the frequencies of the elements of fft(), in cycles per unit of `d`, the distance of two samples.

    They are 0, 1, ..., -2, -1, divided by n * d: float32 unless `dtype` is float64. Raises ArgumentError if n is less than 1
    or d is 0.
    """
    return _frequencies("fftfreq", n, d, dtype, device)


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: DType | str | None = None, device: Any = None) -> Array:
    """Returns the frequencies of the elements of rfft(): 0, 1, ..., n // 2, divided by n * d. Otherwise like fftfreq()."""
    return _frequencies("rfftfreq", n, d, dtype, device)


def _frequencies(name: str, n: int, d: float, dtype: DType | str | None, device: Any) -> Array:
    return _core.apply(name, n=n, spacing=float(d), dtype=None if dtype is None else _dtype_of(dtype), device=device)
