# SPDX-License-Identifier: Apache-2.0
"""Linear algebra, with the names and arguments of the array API standard's extension `linalg`.

Matrices are the last two axes, and each function applies to every matrix of the batch. Factorisations take float32 or
float64 and run on the host: by LAPACK, if it is installed, otherwise by Tessera's own algorithms. docs/arrays.md
explains them and their gradients. Functions raise ShapeError or DtypeError if arguments do not match, and ArgumentError
if a matrix is singular where it must not be, contains NaN or infinity, or if an iteration does not converge.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Sequence

from ._complex import DTYPES
from ._core import Array
from ._functions import (
    _apply,
    _axes,
    cholesky,
    diagonal,
    expand_dims,
    kron,
    matmul,
    matrix_transpose,
    max,
    outer,
    result_type,
    solve_triangular,
    sum,
    tensordot,
    trace,
    vecdot,
    where,
)

__all__ = [
    "EighResult", "LstsqResult", "LUResult", "QRResult", "SVDResult", "SlogdetResult", "cholesky", "cond", "cross", "det",
    "diagonal", "eigh", "eigvalsh", "inv", "kron", "lstsq", "lu", "matmul", "matrix_norm", "matrix_power", "matrix_rank",
    "matrix_transpose", "outer", "pinv", "qr", "slogdet", "solve", "solve_triangular", "svd", "svdvals", "tensordot", "trace",
    "vecdot", "vector_norm",
]  # fmt: skip


class EighResult(NamedTuple):
    """The result of eigh()."""

    eigenvalues: Array  #: (..., n), ascending
    eigenvectors: Array  #: (..., n, n): column i belongs to eigenvalue i


class LstsqResult(NamedTuple):
    """The result of lstsq()."""

    x: Array  #: the solution (..., n) or (..., n, k)
    rank: Array  #: the rank of the matrix, int64 (...)
    singular_values: Array  #: (..., min(m, n)), descending


class LUResult(NamedTuple):
    """The result of lu()."""

    rows: Array  #: int64 (..., m): row i of L @ U is row rows[i] of the matrix
    L: Array  #: (..., m, k), lower triangular with ones on the diagonal
    U: Array  #: (..., k, n), upper triangular


class QRResult(NamedTuple):
    """The result of qr()."""

    Q: Array  #: orthonormal columns
    R: Array  #: upper triangular


class SlogdetResult(NamedTuple):
    """The result of slogdet()."""

    sign: Array  #: -1, 0 or 1
    logabsdet: Array  #: the logarithm of the absolute value


class SVDResult(NamedTuple):
    """The result of svd()."""

    U: Array  #: orthonormal columns
    S: Array  #: singular values, descending
    Vh: Array  #: orthonormal rows


# Systems of equations and inverses.


def solve(x1: Array, x2: Array, /) -> Array:
    """Solves x1 x = x2 for (..., n, n) and (n,) or (..., n, k). Raises ArgumentError if a matrix is singular."""
    dtype = result_type(x1, x2)
    if dtype not in DTYPES:  # those are converted when the parts are joined
        x1, x2 = x1.astype(dtype), x2.astype(dtype)
    return _apply("solve", x1, x2)


def inv(x: Array, /) -> Array:
    """Returns the inverse of each matrix. Raises ArgumentError if one is singular."""
    return _apply("inv", x)


def det(x: Array, /) -> Array:
    """Returns the determinant of each matrix."""
    return _apply("det", x)


def slogdet(x: Array, /) -> SlogdetResult:
    """Returns the sign and the logarithm of each determinant, which do not overflow."""
    return SlogdetResult(*_apply("slogdet", x))


def lu(x: Array, /) -> LUResult:
    """Returns the LU factorisation with partial pivoting: take(x, rows, axis=0) = L @ U."""
    return LUResult(*_apply("lu", x))


def matrix_power(x: Array, n: int, /) -> Array:
    """Returns the n-th power of each matrix. A negative power is that of the inverse."""
    return _apply("matrix_power", x, n=n)


# Factorisations.


def qr(x: Array, /, *, mode: str = "reduced") -> QRResult:
    """Returns x = Q R. Q is (..., m, min(m, n)), or (..., m, m) if `mode` is "complete"."""
    return QRResult(*_apply("qr", x, mode=mode))


def eigh(x: Array, /) -> EighResult:
    """Returns the eigenvalues and eigenvectors of symmetric matrices. Only the lower triangle is read."""
    return EighResult(*_apply("eigh", x))


def eigvalsh(x: Array, /) -> Array:
    """Returns the eigenvalues of symmetric matrices, ascending. Only the lower triangle is read."""
    return _apply("eigvalsh", x)


def svd(x: Array, /, *, full_matrices: bool = True) -> SVDResult:
    """Returns the singular value decomposition x = U diag(S) Vh. `full_matrices=False` returns only min(m, n) vectors."""
    return SVDResult(*_apply("svd", x, full_matrices=full_matrices))


def svdvals(x: Array, /) -> Array:
    """Returns the singular values, descending."""
    return _apply("svdvals", x)


# Least squares, rank and norms.


def lstsq(a: Array, b: Array, /, *, rtol: float | None = None) -> LstsqResult:
    """Minimises the 2-norm of a x - b; of several solutions, returns the one with the smallest norm.

    Singular values up to `rtol` (default: max(m, n) times the epsilon of the dtype) times the largest one count as 0.
    """
    return LstsqResult(*_apply("lstsq", a, b, rtol=_rtol(rtol)))


def pinv(x: Array, /, *, rtol: float | Array | None = None) -> Array:
    """Returns the Moore-Penrose pseudo-inverse. `rtol` is that of lstsq(), or an array with one number for each matrix."""
    if not isinstance(rtol, Array) or rtol.ndim == 0:
        return _apply("pinv", x, rtol=_rtol(rtol))
    u, s, vh = svd(x, full_matrices=False)
    inverses = where(_counts(s, rtol), 1 / s, 0.0)
    return matmul(matrix_transpose(vh) * expand_dims(inverses, -2), matrix_transpose(u))


def matrix_rank(x: Array, /, *, rtol: float | Array | None = None) -> Array:
    """Returns the number of singular values that do not count as 0. `rtol` is that of pinv()."""
    if not isinstance(rtol, Array) or rtol.ndim == 0:
        return _apply("matrix_rank", x, rtol=_rtol(rtol))
    return sum(_counts(svdvals(x), rtol), axis=-1)


def _counts(s: Array, rtol: Array) -> Array:
    """Returns which singular values do not count as 0."""
    return s > max(s, axis=-1, keepdims=True) * expand_dims(rtol, -1)


def _rtol(rtol: Any) -> float | None:
    return None if rtol is None else float(rtol)


def _norm(ord: Any) -> str:  # noqa: A002
    """Returns the name of a norm of matrices."""
    if isinstance(ord, str):
        return ord
    return ("inf" if ord > 0 else "-inf") if math.isinf(ord) else f"{ord:g}"


def matrix_norm(x: Array, /, *, keepdims: bool = False, ord: float | str = "fro") -> Array:  # noqa: A002
    """Returns a norm of each matrix: "fro", "nuc", 1, -1, 2, -2, inf or -inf, as in NumPy."""
    return _apply("matrix_norm", x, norm=_norm(ord), keep=keepdims)


def vector_norm(x: Array, /, *, axis: int | Sequence[int] | None = None, keepdims: bool = False, ord: float = 2) -> Array:  # noqa: A002
    """Returns (sum of |x|**ord) ** (1 / ord) along axes. inf and -inf return the largest and smallest absolute value."""
    return _apply("vector_norm", x, order=float(ord), axes=_axes(x, axis), keep=keepdims)


def cond(x: Array, /, ord: float | str = 2) -> Array:  # noqa: A002
    """Returns the condition number of each matrix in a norm of matrix_norm()."""
    return _apply("cond", x, norm=_norm(ord))


# Products.


def cross(x1: Array, x2: Array, /, *, axis: int = -1) -> Array:
    """Returns the cross product of vectors of three elements along an axis."""
    return _apply("cross", x1, x2, axis=axis)
