#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the functions of arrays with NumPy and SciPy on random cases.

usage: PYTHONPATH=build/release/python tools/check_functions_with_scipy.py [--cases N] [--seed N] [--device NAME] [--only TEXT]

Every function gets N cases of a random dtype and shape (extents 0, 1, primes and powers of two, batches) and operands that are
contiguous, transposed, reversed or every second element of a larger array. Rearrangements, orders and counts must be equal to
NumPy's. Numbers are compared with NumPy's or SciPy's in double precision, and factorisations by their backward error, also for
graded, rank-deficient and nearly singular matrices. Errors are in units of the dtype's epsilon times the size of the exact
result, and for factorisations also times the larger extent, as in LAPACK's tests, which accept 30. Prints a Markdown table. For
development; requires numpy and scipy (tools/requirements.txt).

exit status: 1 if a case failed
"""
import argparse
import collections
import random
import sys
import warnings

import numpy as np
import scipy
import scipy.fft
import scipy.special
import tessera as ts

INTS = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
WIDE = ["float32", "float64"]
EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
EXTENTS = [0, 1, 2, 3, 5, 7, 8, 13, 16, 31, 37, 64, 101]


class Operand:
    """An array of Tessera, `ours`, and the same numbers in NumPy, `theirs`; bfloat16 is float32 there."""

    def __init__(self, case, base):
        view = case.random.choice(["contiguous", "second", "reversed", "transposed"])
        axis = base.ndim - 1
        if base.ndim == 0 or (view == "transposed" and base.ndim < 2):
            view = "contiguous"
        if view == "second":
            base = np.repeat(base, 2, axis)
        if view == "reversed":
            base = np.flip(base, axis)
        if view == "transposed":
            base = np.swapaxes(base, -1, -2)
        wide = base.astype(np.float64) if case.dtype == "bfloat16" else base
        array = ts.asarray(np.ascontiguousarray(wide), device=case.device).astype(getattr(ts, "bool" if case.dtype == "bool" else case.dtype))
        same = array.astype(ts.float32).numpy() if case.dtype == "bfloat16" else np.asarray(array.numpy())
        view_of = {"contiguous": lambda x: x, "second": lambda x: x[..., ::2], "reversed": lambda x: x[..., ::-1],
                   "transposed": lambda x: x.mT}[view]  # fmt: skip
        self.ours, self.theirs = view_of(array), view_of(same)


class Case:
    def __init__(self, seed, device, dtypes):
        self.random, self.numbers = random.Random(seed), np.random.default_rng(seed)
        self.device, self.dtype = device, self.random.choice(dtypes)

    @property
    def floating(self):
        return self.dtype in EPSILON

    def shape(self, low=0, high=3, least=0):
        rank = self.random.randint(low, high)
        shape, size = [], 1
        for _ in range(rank):
            extent = self.random.choice([e for e in EXTENTS if e >= least and size * e <= 20000] or [least])
            shape.append(extent)
            size *= max(extent, 1)
        return tuple(shape)

    def values(self, shape, nan=False, few=False, positive=False):
        if self.dtype == "bool":
            return self.numbers.random(shape) < 0.5
        if not self.floating:
            info = np.iinfo(self.dtype)
            low, high = (0, 9) if few else (max(info.min, -100), min(info.max, 100))
            return self.numbers.integers(max(low, 1) if positive else low, high, shape).astype(self.dtype)
        numbers = self.numbers.integers(0, 9, shape).astype(np.float64) if few else self.numbers.standard_normal(shape)
        if positive:
            numbers = np.abs(numbers) + 0.5
        if nan and self.random.random() < 0.5:
            numbers = np.where(self.numbers.random(shape) < 0.15, np.nan, numbers)
        return np.asarray(numbers, np.float64 if self.dtype == "bfloat16" else self.dtype)

    def array(self, *shape_arguments, shape=None, **how):
        return Operand(self, self.values(self.shape(*shape_arguments) if shape is None else shape, **how))

    def integers(self, low, high, shape):
        return self.numbers.integers(low, high, shape) if high > low else np.zeros(shape, np.int64)

    def indices(self, low, high, shape):
        numbers = self.integers(low, high, shape)
        return ts.asarray(numbers, device=self.device), numbers

    def axis(self, x):
        return self.random.randrange(-x.theirs.ndim, x.theirs.ndim)


def to_numpy(x):
    if isinstance(x, ts.ComplexArray):
        return np.asarray(x.numpy())
    if isinstance(x, ts.Array):
        return x.astype(ts.float32).numpy() if x.dtype == ts.bfloat16 else np.asarray(x.numpy())
    return np.asarray(x)


def exact(got, want):
    """0, or infinity unless both have the same shapes and numbers."""
    got, want = (v if isinstance(v, (tuple, list)) else [v] for v in (got, want))
    equal = len(got) == len(want) and all(to_numpy(g).shape == np.shape(w) and np.array_equal(to_numpy(g), w, equal_nan=np.asarray(w).dtype.kind in "fc")
                                          for g, w in zip(got, want))
    return 0.0 if equal else np.inf


def close(case, got, want, scale=None):
    """The largest error in units of epsilon times `scale`, by default the result."""
    got = to_numpy(got).astype(np.complex128 if np.iscomplexobj(to_numpy(got)) else np.float64)
    want = np.asarray(want)
    if got.shape != want.shape:
        return np.inf
    if want.size == 0:
        return 0.0
    scale = np.maximum(np.abs(want) if scale is None else scale, np.finfo(np.float16).tiny if case.dtype == "float16" else 1e-30)
    with np.errstate(invalid="ignore"):
        same = (got == want) | (np.isnan(got) & np.isnan(want))
        error = np.where(same, 0, np.abs(got - want) / (EPSILON[case.dtype] * scale))
    return float(np.max(np.where(np.isnan(error), np.inf, error)))


ROWS = {}  # name -> (dtypes, largest error, function from a case to its error)


def row(dtypes, bound, *names):
    def add(function):
        for name in names or [function.__name__]:
            ROWS[name] = (dtypes, bound, (lambda c, n=name: function(c, n)) if names else function)
        return function
    return add


ANY = ["bool", *INTS, *FLOATS]
NUMBERS = [*INTS, *FLOATS]


# --- Rearrangements

@row(ANY, 0)
def roll(c):
    x = c.array(1, 3)
    axis, shift = c.axis(x), c.random.randint(-9, 9)
    return exact(ts.roll(x.ours, shift, axis=axis), np.roll(x.theirs, shift, axis))


@row(ANY, 0)
def repeat(c):
    x = c.array(1, 3)
    axis = c.axis(x)
    if c.random.random() < 0.5:
        counts = c.indices(0, 4, (x.theirs.shape[axis],))
        return exact(ts.repeat(x.ours, counts[0], axis=axis), np.repeat(x.theirs, counts[1], axis))
    count = c.random.randint(0, 4)
    return exact(ts.repeat(x.ours, count, axis=axis), np.repeat(x.theirs, count, axis))


@row(ANY, 0)
def tile(c):
    x = c.array(1, 3)
    counts = tuple(c.random.randint(1, 3) for _ in range(c.random.randint(1, 3)))
    return exact(ts.tile(x.ours, counts), np.tile(x.theirs, counts))


@row(ANY, 0)
def flip(c):
    x = c.array(1, 3)
    axis = c.axis(x)
    return exact(ts.flip(x.ours, axis=axis), np.flip(x.theirs, axis))


@row(ANY, 0)
def moveaxis(c):
    x = c.array(2, 4)
    a, b = c.axis(x), c.axis(x)
    return exact(ts.moveaxis(x.ours, a, b), np.moveaxis(x.theirs, a, b))


@row(ANY, 0)
def pad(c):
    x = c.array(1, 3)
    widths = [(c.random.randint(0, 3), c.random.randint(0, 3)) for _ in range(x.theirs.ndim)]
    return exact(ts.pad(x.ours, widths), np.pad(x.theirs, widths))


@row(ANY, 0, "concat", "stack")
def join(c, name):
    shape = c.shape(1, 3)
    arrays = [c.array(shape=shape) for _ in range(c.random.randint(1, 4))]
    axis = c.random.randrange(len(shape))
    of_numpy = np.concatenate if name == "concat" else np.stack
    return exact(getattr(ts, name)([a.ours for a in arrays], axis=axis), of_numpy([a.theirs for a in arrays], axis))


@row(ANY, 0)
def unstack(c):
    x = c.array(1, 2, 1)
    axis = c.axis(x)
    return exact(ts.unstack(x.ours, axis=axis), [np.take(x.theirs, i, axis) for i in range(x.theirs.shape[axis])])


@row(ANY, 0)
def meshgrid(c):
    arrays, indexing = [c.array(1, 1) for _ in range(c.random.randint(1, 3))], c.random.choice(["xy", "ij"])
    return exact(ts.meshgrid(*[a.ours for a in arrays], indexing=indexing), np.meshgrid(*[a.theirs for a in arrays], indexing=indexing))


@row(ANY, 0, "tril", "triu")
def triangle(c, name):
    x, k = c.array(2, 3), c.random.randint(-3, 3)
    return exact(getattr(ts, name)(x.ours, k=k), getattr(np, name)(x.theirs, k))


@row(ANY, 0)
def diagonal(c):
    x = c.array(2, 2)
    return exact(ts.diagonal(x.ours), np.diagonal(x.theirs))


@row(ANY, 0)
def take(c):
    x = c.array(1, 3, 1)
    axis = c.axis(x)
    ours, theirs = c.indices(0, x.theirs.shape[axis], (c.random.choice(EXTENTS),))
    return exact(ts.take(x.ours, ours, axis=axis), np.take(x.theirs, theirs, axis))


@row(ANY, 0)
def take_along_axis(c):
    x = c.array(1, 3, 1)
    axis = c.axis(x)
    shape = list(x.theirs.shape)
    shape[axis] = c.random.choice(EXTENTS)
    ours, theirs = c.indices(0, x.theirs.shape[axis], shape)
    return exact(ts.take_along_axis(x.ours, ours, axis=axis), np.take_along_axis(x.theirs, theirs, axis))


@row(ANY, 0)
def where(c):
    shape = c.shape(0, 3)
    a, b, condition = c.array(shape=shape), c.array(shape=shape), c.numbers.random(shape) < 0.5
    return exact(ts.where(ts.asarray(condition, device=c.device), a.ours, b.ours), np.where(condition, a.theirs, b.theirs))


@row(NUMBERS, 1)
def diff(c):
    x = c.array(1, 3, 1)
    axis = c.axis(x)
    if not c.floating:
        return exact(ts.diff(x.ours, axis=axis), np.diff(x.theirs, axis=axis))
    return close(c, ts.diff(x.ours, axis=axis), np.diff(x.theirs.astype(np.float64), axis=axis))


# --- Order and counts

@row(NUMBERS, 0)
def sort(c):
    x = c.array(1, 3, nan=True)
    axis = c.axis(x)
    return exact(ts.sort(x.ours, axis=axis), np.sort(x.theirs, axis))


@row(NUMBERS, 0)
def argsort(c):
    x = c.array(1, 3, nan=True, few=c.random.random() < 0.5)
    axis = c.axis(x)
    return exact(ts.argsort(x.ours, axis=axis), np.argsort(x.theirs, axis, kind="stable"))


@row(NUMBERS, 0, "partition", "argpartition")
def partition(c, name):
    x = c.array(1, 3, 1, few=c.random.random() < 0.3)
    axis = c.axis(x)
    k = c.random.randrange(x.theirs.shape[axis])
    got = to_numpy(getattr(ts, name)(x.ours, k, axis=axis))
    if name == "argpartition":
        got = np.take_along_axis(x.theirs, got, axis)
    order, got = np.moveaxis(np.sort(x.theirs, axis), axis, -1), np.moveaxis(got, axis, -1)
    return exact([got[..., k], np.sort(got[..., :k], -1), np.sort(got, -1)], [order[..., k], order[..., :k], order])


@row(NUMBERS, 0)
def topk(c):
    x = c.array(1, 3, 1)
    k = c.random.randint(1, x.theirs.shape[-1])
    values, places = ts.topk(x.ours, k)
    want = np.sort(x.theirs, -1)[..., ::-1][..., :k]
    return exact([values, np.take_along_axis(x.theirs, to_numpy(places), -1)], [want, want])


@row(NUMBERS, 0)
def searchsorted(c):
    order, x, side = c.array(1, 1, few=True), c.array(0, 2, few=True), c.random.choice(["left", "right"])
    order.ours, order.theirs = ts.sort(order.ours), np.sort(order.theirs)
    return exact(ts.searchsorted(order.ours, x.ours, side=side), np.searchsorted(order.theirs, x.theirs, side))


@row(NUMBERS, 0)
def unique_all(c):
    x = c.array(1, 2, few=c.random.random() < 0.7)
    got = ts.unique_all(x.ours)
    values, first, inverse, counts = np.unique(x.theirs, return_index=True, return_inverse=True, return_counts=True)
    return exact([got.values, got.indices, got.inverse_indices, got.counts], [values, first, inverse.reshape(x.theirs.shape), counts])


@row(INTS, 0)
def bincount(c):
    x = c.array(1, 1, few=True)
    return exact(ts.bincount(x.ours), np.bincount(x.theirs.astype(np.int64)))


@row(FLOATS, 0)
def histogram(c):
    x, bins = c.array(1, 2, few=True), c.random.choice([1, 2, 4, 8, 16])
    return exact(ts.histogram(x.ours, bins, (0, 8))[0], np.histogram(x.theirs, bins, (0, 8))[0])


@row(NUMBERS, 0)
def isin(c):
    x, among = c.array(0, 3, few=True), c.array(1, 1, few=True)
    among = Operand(c, among.theirs[:4])
    return exact(ts.isin(x.ours, among.ours), np.isin(x.theirs, among.theirs))


@row(NUMBERS, 0, "cummax", "cummin")
def running(c, name):
    x = c.array(1, 3)
    axis = c.axis(x)
    return exact(getattr(ts, name)(x.ours, axis=axis), (np.maximum if name == "cummax" else np.minimum).accumulate(x.theirs, axis))


@row(ANY, 0)
def nonzero(c):
    x = c.array(1, 3, few=True)
    return exact(list(ts.nonzero(x.ours)), list(np.nonzero(x.theirs)))


@row(NUMBERS, 0, "argmax", "argmin", "max", "min")
def extreme(c, name):
    x = c.array(1, 3, 1)
    axis = c.axis(x)
    return exact(getattr(ts, name)(x.ours, axis=axis), getattr(np, name)(x.theirs, axis))


@row(NUMBERS, 0)
def scatter(c):
    x = c.array(1, 3, 1)
    axis = c.axis(x)
    extent = x.theirs.shape[axis]
    count = c.random.randint(0, extent)
    places = c.numbers.permutation(extent)[:count]
    shape = list(x.theirs.shape)
    shape[axis] = count
    updates = c.array(shape=tuple(shape))
    want = x.theirs.copy()
    np.moveaxis(want, axis, 0)[places] = np.moveaxis(updates.theirs, axis, 0)
    return exact(ts.scatter(x.ours, ts.asarray(places, device=c.device), updates.ours, axis=axis), want)


# --- Sums and statistics

def sum_scale(x, axis):
    return np.sum(np.abs(np.nan_to_num(x.astype(np.float64))), axis)


@row(FLOATS, 4, "sum", "mean", "nansum", "nanmean")
def sums(c, name):
    x = c.array(1, 3, 1, nan=name.startswith("nan"))
    axis = c.axis(x)
    wide = x.theirs.astype(np.float64)
    scale = sum_scale(x.theirs, axis)
    if name.endswith("mean"):
        scale = scale / np.maximum(1, np.sum(~np.isnan(wide), axis))
    with warnings.catch_warnings():  # NumPy warns of means without numbers
        warnings.simplefilter("ignore")
        want = getattr(np, name)(wide, axis)
    return close(c, getattr(ts, name)(x.ours, axis=axis), want, scale)


@row(FLOATS, 8, "std", "var")
def spread(c, name):
    x = c.array(1, 3, 2)
    axis = c.axis(x)
    wide = x.theirs.astype(np.float64)
    power = 2 if name == "var" else 1
    return close(c, getattr(ts, name)(x.ours, axis=axis), getattr(np, name)(wide, axis), np.mean(np.abs(wide) ** 2, axis) ** (power / 2))


@row(FLOATS, 4, "median", "quantile")
def middle(c, name):
    x = c.array(1, 3, 1)
    axis = c.axis(x)
    q = 0.5 if name == "median" else c.random.choice([0, 0.1, 0.25, 0.9, 1])
    wide = x.theirs.astype(np.float64)
    got = ts.median(x.ours, axis=axis) if name == "median" else ts.quantile(x.ours, q, axis=axis)
    return close(c, got, np.quantile(wide, q, axis), np.max(np.abs(wide), axis))


@row(WIDE, 4, "cumsum", "cumprod")
def accumulated(c, name):
    x = c.array(1, 3, positive=name == "cumprod")
    axis = c.axis(x)
    wide = x.theirs.astype(np.float64)
    want = getattr(np, name)(wide, axis)
    steps = np.moveaxis(np.broadcast_to(np.arange(1, wide.shape[axis] + 1), np.moveaxis(wide, axis, -1).shape), -1, axis)
    return close(c, getattr(ts, name)(x.ours, axis=axis), want, np.cumsum(np.abs(wide), axis) if name == "cumsum" else np.abs(want) * steps)


@row(FLOATS, 8)
def logsumexp(c):
    x = c.array(1, 3, 1)
    axis = c.axis(x)
    want = scipy.special.logsumexp(x.theirs.astype(np.float64), axis)
    return close(c, ts.logsumexp(x.ours, axis=axis), want, np.maximum(1, np.abs(want)))


@row(WIDE, 8)
def interp(c):
    x, count = c.array(1, 2), c.random.choice([2, 3, 7, 31])
    places = np.sort(c.numbers.choice(1000, count, replace=False)).astype(c.dtype) / c.numbers.integers(50, 300)
    places = places.astype(c.dtype)
    heights = c.values((count,))
    got = ts.interp(x.ours, ts.asarray(places, device=c.device), ts.asarray(heights, device=c.device))
    largest = np.max(np.abs(heights.astype(np.float64)))
    slope = np.max(np.abs(np.diff(heights.astype(np.float64)) / np.diff(places.astype(np.float64))))
    want = np.interp(x.theirs.astype(np.float64), places.astype(np.float64), heights.astype(np.float64))
    return close(c, got, want, np.full(want.shape, largest) + slope * EPSILON["float64"])


# --- Products

@row(FLOATS, 4, "matmul", "vecdot", "tensordot", "einsum", "outer", "kron", "convolve")
def product(c, name):
    m, k, n = (c.random.choice(EXTENTS[: 9 if name == "kron" else 12]) for _ in range(3))
    batch = c.shape(0, 1)[:1] if name in ("matmul", "einsum") else ()
    batch = tuple(min(b, 5) for b in batch)
    if name in ("matmul", "kron", "tensordot"):
        a, b = c.array(shape=(*batch, m, k)), c.array(shape=(*batch, *((k, n) if name != "kron" else (n, m % 5))))
    elif name == "einsum":
        a, b = c.array(shape=(*batch, m, k)), c.array(shape=(*batch, n, k))
    elif name == "vecdot":
        a, b = c.array(shape=(m, k)), c.array(shape=(m, k))
    else:
        a, b = c.array(shape=(max(m, 1),)), c.array(shape=(max(k, 1),))
    function = {"matmul": np.matmul, "vecdot": np.vecdot, "tensordot": lambda x, y: np.tensordot(x, y, 1), "outer": np.outer, "kron": np.kron,
                "convolve": np.convolve, "einsum": lambda x, y: np.einsum("...ik,...jk->...ij", x, y)}[name]  # fmt: skip
    subscripts = "bik,bjk->bij" if batch else "ik,jk->ij"
    got = (ts.einsum(subscripts, a.ours, b.ours) if name == "einsum" else
           ts.tensordot(a.ours, b.ours, axes=1) if name == "tensordot" else getattr(ts, name)(a.ours, b.ours))  # fmt: skip
    x, y = a.theirs.astype(np.float64), b.theirs.astype(np.float64)
    return close(c, got, function(x, y), function(np.abs(x), np.abs(y)))


@row(INTS, 0, "matmul of integers", "sum of integers")
def integer_product(c, name):
    if name.startswith("sum"):
        x = c.array(1, 3)
        axis = c.axis(x)
        return exact(ts.sum(x.ours, axis=axis), np.sum(x.theirs, axis))
    m, k, n = (c.random.choice(EXTENTS) for _ in range(3))
    a, b = c.array(shape=(m, k)), c.array(shape=(k, n))
    return exact(ts.matmul(a.ours, b.ours), np.matmul(a.theirs, b.theirs))


# --- Factorisations

def matrix(c, m, n, kinds=("random", "graded", "deficient", "nearly singular")):
    """A random matrix of one of these kinds, or a batch of them."""
    batch = tuple(c.random.choice([0, 1, 3]) for _ in range(c.random.choice([0, 0, 1])))
    kind = c.random.choice(kinds)
    a = c.numbers.standard_normal((*batch, m, n))
    if kind == "graded" and min(m, n) > 0:
        a = a * 10.0 ** np.linspace(0, -6, m)[:, None] * 10.0 ** np.linspace(0, -6, n)
    if kind in ("deficient", "nearly singular") and min(m, n) > 1:
        a[..., :, -1] = a[..., :, 0] * 2 + (0 if kind == "deficient" else 1000 * EPSILON[c.dtype] * a[..., :, -1])
    return Operand(c, a.astype(c.dtype))


def extents(c):
    return (c.random.choice(EXTENTS) for _ in range(2))


def norm(a):
    return np.linalg.norm(a, axis=(-2, -1)) if a.ndim > 1 else np.linalg.norm(a)


def backward(c, error, size, extent):
    """error is a matrix, or a batch of them, that is zero in exact arithmetic; size is the norm of what it is compared with."""
    if error.size == 0:
        return 0.0
    return float(np.max(norm(error) / (EPSILON[c.dtype] * max(extent, 1) * np.maximum(size, 1e-300))))


def orthonormal(c, q):
    """The error of q^T q."""
    return backward(c, np.swapaxes(q, -1, -2) @ q - np.eye(q.shape[-1]), np.sqrt(max(q.shape[-1], 1)), max(q.shape[-2:]))


def factors(result):
    return [to_numpy(x).astype(np.float64) for x in result]


@row(WIDE, 30)
def lu(c):
    m, n = extents(c)
    x = matrix(c, m, n)
    a = x.theirs.astype(np.float64)
    result = ts.linalg.lu(x.ours)
    rows, low, up = to_numpy(result[0]), *factors(result[1:])
    if np.max(np.abs(low), initial=0) > 1:
        return np.inf
    return backward(c, np.take_along_axis(a, rows[..., None].astype(np.int64), -2) - low @ up, norm(a), max(m, n))


@row(WIDE, 30)
def qr(c):
    m, n = extents(c)
    x = matrix(c, m, n)
    a = x.theirs.astype(np.float64)
    q, r = factors(ts.linalg.qr(x.ours))
    return max(backward(c, a - q @ r, norm(a), max(m, n)), orthonormal(c, q))


@row(WIDE, 30)
def svd(c):
    m, n = extents(c)
    x = matrix(c, m, n)
    a = x.theirs.astype(np.float64)
    u, s, v = factors(ts.linalg.svd(x.ours, full_matrices=c.random.random() < 0.5))
    k = min(m, n)
    error = backward(c, a - (u[..., :k] * s[..., None, :]) @ v[..., :k, :], norm(a), max(m, n))
    return max(error, orthonormal(c, u), orthonormal(c, np.swapaxes(v, -1, -2)), np.inf if np.any(np.diff(s) > 0) else 0)


@row(WIDE, 30)
def eigh(c):
    n, _ = extents(c)
    x = matrix(c, n, n)
    a = x.theirs.astype(np.float64)
    a = np.tril(a) + np.swapaxes(np.tril(a, -1), -1, -2)  # the lower triangle is read
    values, vectors = factors(ts.linalg.eigh(x.ours))
    return max(backward(c, a @ vectors - vectors * values[..., None, :], norm(a), n), orthonormal(c, vectors))


@row(WIDE, 30)
def cholesky(c):
    n, _ = extents(c)
    a = c.numbers.standard_normal((n, n + 3))
    x = Operand(c, (a @ a.T + 1e-3 * np.eye(n)).astype(c.dtype))
    factor = to_numpy(ts.linalg.cholesky(x.ours)).astype(np.float64)
    a = np.tril(x.theirs.astype(np.float64))
    a = a + np.swapaxes(np.tril(a, -1), -1, -2)
    return backward(c, a - factor @ factor.T, norm(a), n)


@row(WIDE, 30, "solve", "inv")
def solved(c, name):
    n, k = extents(c)
    x = matrix(c, n, n, ("random", "graded", "nearly singular"))
    a = x.theirs.astype(np.float64)
    if name == "inv":
        got = to_numpy(ts.linalg.inv(x.ours)).astype(np.float64)
        return backward(c, a @ got - np.eye(n), norm(a) * norm(got), n) if got.size else 0.0
    b = c.array(shape=(*a.shape[:-2], n, k))
    got = to_numpy(ts.linalg.solve(x.ours, b.ours)).astype(np.float64)
    return backward(c, a @ got - b.theirs, norm(a) * norm(got), n)


@row(WIDE, 30)
def lstsq(c):
    m, n = extents(c)
    x = Operand(c, c.values((max(m, 1), max(n, 1))))
    a, k = x.theirs.astype(np.float64), c.random.choice([1, 3])
    b = c.array(shape=(a.shape[0], k))
    got = to_numpy(ts.linalg.lstsq(x.ours, b.ours)[0]).astype(np.float64)
    residual = b.theirs - a @ got
    return backward(c, a.T @ residual, norm(a) * (norm(a) * norm(got) + norm(b.theirs)), max(a.shape))


@row(WIDE, 30)
def singular(c):
    """A singular matrix is an error that names the column."""
    n = c.random.choice([e for e in EXTENTS if e > 0])
    a, column = np.eye(n, dtype=c.dtype), c.random.randrange(n)
    a[:, column] = 0
    try:
        ts.linalg.solve(ts.asarray(a, device=c.device), ts.asarray(np.ones((n, 1), c.dtype), device=c.device))
    except ts.ArgumentError as error:
        return 0.0 if str(column) in str(error) else np.inf
    return np.inf


@row(WIDE, 30, "det", "slogdet", "matrix_norm", "pinv", "matrix_rank", "svdvals", "eigvalsh", "cond", "matrix_power")
def of_matrix(c, name):
    n = c.random.choice([e for e in EXTENTS if 0 < e < 40])
    m = n if name not in ("pinv", "svdvals", "matrix_norm", "matrix_rank") else c.random.choice([1, 2, 7, 31])
    x = Operand(c, c.values((m, n)))
    a = x.theirs.astype(np.float64)
    if name == "matrix_rank":
        return exact(ts.linalg.matrix_rank(x.ours), np.linalg.matrix_rank(a))
    if name == "matrix_norm":
        order = c.random.choice(["fro", "nuc", 1, -1, 2, np.inf])
        return close(c, ts.linalg.matrix_norm(x.ours, ord=order), np.linalg.norm(a, order), np.linalg.norm(a) * max(m, n))
    if name in ("svdvals", "eigvalsh"):
        sym = np.tril(a) + np.tril(a, -1).T if name == "eigvalsh" else a
        return close(c, getattr(ts.linalg, name)(x.ours), np.linalg.svd(a)[1] if name == "svdvals" else np.linalg.eigvalsh(sym), norm(sym) * max(m, n))
    condition = np.linalg.cond(a)
    if name == "matrix_power":
        return close(c, ts.linalg.matrix_power(x.ours, 3), np.linalg.matrix_power(a, 3), np.linalg.matrix_power(np.abs(a), 3))
    if name == "pinv":
        want = np.linalg.pinv(a, rcond=max(m, n) * EPSILON[c.dtype])
        return close(c, ts.linalg.pinv(x.ours), want, norm(want) * condition * max(m, n))
    if name == "cond":
        return close(c, ts.linalg.cond(x.ours), condition, condition**2 * n)
    want = np.linalg.slogdet(a)
    got = ts.linalg.slogdet(x.ours)
    if name == "slogdet":
        return max(exact(got[0], want[0].astype(c.dtype)), close(c, got[1], want[1], np.maximum(1, np.abs(want[1])) * condition * n))
    return close(c, ts.linalg.det(x.ours), np.linalg.det(a), np.abs(np.linalg.det(a)) * condition * n)


# --- Fourier transforms

@row(WIDE, 4, "fft", "ifft", "rfft", "irfft", "hfft", "ihfft", "fft2", "ifft2", "fftn", "ifftn", "rfftn", "irfftn")
def transform(c, name):
    several = name.endswith(("2", "n"))
    length = c.random.choice([1, 2, 3, 4, 5, 7, 8, 12, 16, 31, 64, 101, 128, 243, 1000, 1024, 4096, 5003])
    shape = tuple(c.random.choice([1, 2, 3, 8, 13, 31]) for _ in range(c.random.choice([2, 3]))) if several else (*c.shape(0, 1, 1)[:1], length)
    if np.prod(shape) > 40000:
        shape = shape[-1:]
    x = c.array(shape=shape)
    real = name in ("rfft", "ihfft", "rfftn")
    ours, theirs = x.ours, x.theirs.astype(np.float64)
    if not real:
        y = c.array(shape=shape)
        ours, theirs = ts.ComplexArray(x.ours, y.ours), theirs + 1j * y.theirs.astype(np.float64)
    options = {} if several else {"axis": c.random.randrange(-len(shape), len(shape)), "norm": c.random.choice(["backward", "ortho", "forward"])}
    if name in ("irfft", "hfft") and theirs.shape[options["axis"]] == 1:
        options["n"] = 2
    if name == "irfftn" and shape[-1] == 1:
        options["s"] = (*shape[:-1], 2)
        options["axes"] = tuple(range(len(shape)))
    want = getattr(scipy.fft, name)(theirs, **options)
    size = np.sqrt(np.mean(np.abs(want) ** 2)) * np.log2(max(2, np.prod(shape)))
    return close(c, getattr(ts.fft, name)(ours, **options), want, np.full(want.shape, size))


@row(WIDE, 0, "fftshift", "ifftshift")
def shift(c, name):
    x = c.array(1, 3)
    return exact(getattr(ts.fft, name)(x.ours), getattr(np.fft, name)(x.theirs))


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--cases", type=int, default=100, help="cases of each function (default: 100)")
    options.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(31))
    options.add_argument("--device", default="cpu:0")
    options.add_argument("--only", default="", help="only functions whose names contain this")
    asked = options.parse_args()
    print(f"seed {asked.seed}, {asked.cases} cases, {asked.device}, NumPy {np.__version__}, SciPy {scipy.__version__}\n")
    print("| function | cases | dtypes | largest error | bound |\n|---|---|---|---|---|")
    failed = 0
    for name, (dtypes, bound, function) in ROWS.items():
        if asked.only not in name:
            continue
        largest, seen = 0.0, collections.Counter()
        for i in range(asked.cases):
            seed = f"{asked.seed} {name} {i}"
            case = Case(random.Random(seed).getrandbits(31), asked.device, dtypes)
            try:
                error = function(case)
            except Exception as problem:  # reported as a failed case
                error = np.inf
                print(f"{name}, case {i}, {case.dtype}: {type(problem).__name__}: {problem}", file=sys.stderr)
            if not error <= bound:
                failed += 1
                print(f"{name}, case {i}, {case.dtype}: error {error}, bound {bound}", file=sys.stderr)
            largest = max(largest, error)
            seen[case.dtype] += 1
        print(f"| {name} | {asked.cases} | {len(seen)} | {'equal' if largest == 0 else f'{largest:.2g}'} | {bound or 'equal'} |", flush=True)
    print(f"\n{failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
