# SPDX-License-Identifier: Apache-2.0
"""Tests arrays of complex numbers and Fourier transforms against NumPy, on every device."""

import operator
import pickle
import random
import unittest

import numpy as np

import tessera as ts
from tessera import tasks

SEED = random.SystemRandom().randrange(2**32)
DTYPES = ["complex64", "complex128"]


def close(test, got, wanted, tolerance=1e-5, hint=""):
    wanted = np.asarray(wanted)
    test.assertEqual((got.shape, got.dtype.name.startswith("complex")), (wanted.shape, wanted.dtype.kind == "c"), hint)
    np.testing.assert_allclose(got.numpy(), wanted, rtol=tolerance, atol=tolerance, err_msg=f"{hint}, seed {SEED}")


def every_device():
    """Makes each device that works the current device."""
    for device in ts.devices():
        if ts.device_info(device).state == "verified":
            with ts.use_device(device):
                yield device


def numbers(rng, shape, dtype="complex128"):
    return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)


class Creation(unittest.TestCase):
    def test_numpy_arrays_survive_a_round_trip(self):
        rng = np.random.default_rng(SEED)
        for _ in every_device():
            for dtype in DTYPES:
                a = numbers(rng, (2, 3, 4), dtype)
                for b in (a, a[:, ::-1, 1:], a.T, a[0, 0, :1].reshape(()), a[:0], a.astype(a.dtype.newbyteorder())):
                    x = ts.asarray(b)
                    self.assertEqual((x.shape, x.dtype.name, x.size, x.ndim), (b.shape, dtype, b.size, b.ndim))
                    np.testing.assert_array_equal(x.numpy(), b)
                    self.assertEqual(np.asarray(x).dtype.name, dtype)
                x = ts.asarray(a)
                self.assertEqual((x.tolist(), x.nbytes, len(x)), (a.tolist(), a.nbytes, 2))
                self.assertEqual(pickle.loads(pickle.dumps(x)).tolist(), a.tolist())
        with self.assertRaisesRegex(TypeError, "complex256|no such dtype|longdouble"):
            ts.asarray(np.ones(2, "clongdouble"))

    def test_converts_numbers_and_sequences(self):
        self.assertEqual(ts.asarray(1j).item(), 1j)
        self.assertEqual(ts.asarray([[1, 2j], [0.5, True]]).tolist(), [[1, 2j], [0.5, 1]])
        self.assertEqual(ts.asarray([1j]).dtype, ts.complex64)
        self.assertEqual(ts.asarray([1, 2], dtype="complex128").dtype, ts.complex128)
        self.assertEqual(ts.asarray([1.5], dtype=complex).dtype, ts.complex64)
        self.assertEqual(ts.asarray([ts.asarray(1j), np.complex64(2)]).tolist(), [1j, 2])
        self.assertEqual(ts.zeros((2, 1), dtype="complex64").tolist(), [[0], [0]])
        self.assertEqual(ts.ones(2, dtype=np.complex128).dtype, ts.complex128)
        self.assertEqual(ts.full(2, 1 - 2j).tolist(), [1 - 2j] * 2)
        self.assertEqual(ts.eye(2, dtype="complex64").tolist(), [[1, 0], [0, 1]])
        x = ts.asarray([1j, 2])
        self.assertEqual((ts.zeros_like(x).dtype, ts.full_like(x, 3j).tolist()), (ts.complex64, [3j, 3j]))
        self.assertEqual(ts.ones(2, dtype="complex64", device="interp").device, "interp:0")
        self.assertEqual(ts.asarray([1j], device="interp").to_device("cpu").device, "cpu:0")
        for call in (lambda: ts.asarray([1j], dtype="float32"), lambda: ts.full(2, 1j, dtype="int32"), lambda: x.astype("float32"),
                     lambda: ts.asarray(np.ones(2, "complex64"), dtype="f64"), lambda: ts.arange(3, dtype="complex64")):  # fmt: skip
            with self.assertRaisesRegex(ts.DtypeError, "complex"):
                call()
        with self.assertRaisesRegex(ts.ArgumentError, "needs a copy"):
            ts.asarray(x, dtype="complex128", copy=False)
        with self.assertRaises(ts.DtypeError):  # DLPack exchanges one array
            ts.from_dlpack(np.ones(2, "complex64"))

    def test_parts_and_conversions(self):
        a = np.asarray([1 + 2j, -3j])
        x = ts.asarray(a)
        x.real[0] = 5
        x.imag[1] += 1
        self.assertEqual(x.tolist(), [5 + 2j, -2j])
        y = ts.ComplexArray(ts.ones(2), ts.zeros(2))
        self.assertEqual((y.tolist(), y.dtype), ([1, 1], ts.complex64))
        self.assertEqual(ts.asarray([1, 2]).astype("complex64").tolist(), [1, 2])
        r = ts.ones(2)
        c = r.astype("complex64")
        c[0] = 4j
        self.assertEqual(r.tolist(), [1, 1])
        for copied in (+x, x.copy(), x.conj(), ts.asarray(x, copy=True), x.astype("complex64")):
            copied[0] = 9
            self.assertEqual(x.tolist(), [5 + 2j, -2j])
        self.assertEqual((ts.real(r).tolist(), ts.imag(r).tolist(), ts.conj(r).tolist(), r.imag.tolist()), ([1, 1], [0, 0], [1, 1], [0, 0]))
        self.assertEqual(repr(ts.asarray([1j, 10 - 0.5j])), "array([   0+1j, 10-0.5j], complex64, cpu:0)")
        self.assertEqual((complex(x[0]), bool(x[0]), bool(ts.zeros((), dtype="complex64"))), (5 + 2j, True, False))
        for real, imag, error in ((ts.ones(2), ts.ones(3), ts.ShapeError), (ts.ones(2), ts.ones(2, dtype="f64"), ts.DtypeError),
                                  (ts.ones(2, dtype="f16"), ts.ones(2, dtype="f16"), ts.DtypeError), (ts.ones(2), 1.0, TypeError),
                                  (ts.ones(2), ts.ones(2, device="interp"), ts.DeviceError)):  # fmt: skip
            with self.assertRaises(error):
                ts.ComplexArray(real, imag)

    def test_dtypes(self):
        self.assertEqual((ts.complex64.name, ts.complex64.itemsize, ts.complex128.itemsize), ("complex64", 8, 16))
        self.assertEqual(pickle.loads(pickle.dumps(ts.complex128)), ts.complex128)
        self.assertEqual(len({ts.complex64, ts.complex128, ts.float32, ts.float64}), 4)
        for a, b, wanted in [(ts.complex64, ts.float64, ts.complex128), (ts.int64, ts.complex64, ts.complex64),
                             (ts.complex64, 1.5, ts.complex64), (ts.float32, 1j, ts.complex64), (ts.float64, 1j, ts.complex128)]:  # fmt: skip
            self.assertEqual(ts.result_type(a, b), wanted)
        self.assertTrue(ts.isdtype(ts.complex64, "complex floating") and ts.isdtype(ts.complex128, "numeric"))
        self.assertFalse(ts.isdtype(ts.complex64, "real floating") or ts.can_cast(ts.complex64, ts.float64))
        self.assertEqual((ts.finfo(ts.complex64).eps, ts.finfo(ts.complex128).dtype), (np.finfo("float32").eps, ts.float64))
        info = ts.__array_namespace_info__()
        self.assertEqual(list(info.dtypes(kind="complex floating")), DTYPES)
        self.assertEqual(info.default_dtypes()["complex floating"], ts.complex64)


class Operators(unittest.TestCase):
    def test_match_numpy(self):
        rng = np.random.default_rng(SEED)
        a, b, r = numbers(rng, (3, 4)), numbers(rng, 4), rng.normal(size=4)
        for _ in every_device():
            x, y, z = ts.asarray(a), ts.asarray(b), ts.asarray(r)
            for op in (operator.add, operator.sub, operator.mul, operator.truediv):
                for got, wanted in ((op(x, y), op(a, b)), (op(x, z), op(a, r)), (op(z, x), op(r, a)), (op(x, 2), op(a, 2)),
                                    (op(1 - 2j, x), op(1 - 2j, a)), (op(z, 3j), op(r, 3j)), (op(3j, z), op(3j, r))):  # fmt: skip
                    close(self, got, wanted, 1e-12, op)
            close(self, -x, -a)
            close(self, abs(x), abs(a), 1e-12)
            close(self, x.conj() * x, a.conj() * a, 1e-12)

    def test_powers_match_numpy(self):
        rng = np.random.default_rng(SEED)
        a, b, r = numbers(rng, 5), numbers(rng, 5), rng.uniform(0.5, 2, 5)
        x, y, z = ts.asarray(a), ts.asarray(b), ts.asarray(r)
        for got, wanted in ((x**2, a**2), (x**-3, a**-3.0), (x**0, a**0), (x**0.5, a**0.5), (x**y, a**b), (x**z, a**r), (z**y, r**b),
                            (2**x, 2**a), (1j**z, 1j**r), (z**1j, r**1j), (ts.pow(x, 2), a**2)):  # fmt: skip
            close(self, got, wanted, 1e-10)
        self.assertEqual((ts.asarray([complex(-4, -0.0)]) ** 0.5).imag.tolist(), [-2])
        close(self, ts.asarray([3.7], dtype="float16") ** ts.asarray([2 + 3j], dtype="complex64"), np.asarray([np.float16(3.7)], "complex64") ** (2 + 3j), 1e-5)
        self.assertEqual((ts.zeros(1, dtype="complex64") ** 2.5).tolist(), [0])
        self.assertEqual((ts.zeros(1, dtype="complex64") ** 0j).tolist(), [1])

    def test_comparisons(self):
        x = ts.asarray([1 + 1j, 1, 2j])
        self.assertEqual((x == 1 + 1j).tolist(), [True, False, False])
        self.assertEqual((x != ts.asarray([1.0, 1.0, 0.0])).tolist(), [True, False, True])
        self.assertEqual((ts.asarray([1, 0, 2]) == x).tolist(), [False, False, False])
        self.assertEqual((ts.ones(2) == 1 + 0j).tolist(), [True, True])
        self.assertIs(x == None, False)  # noqa: E711
        for other in ([1], np.ones(3), (1,)):
            with self.assertRaisesRegex(TypeError, "cannot be compared"):
                x == other
        with self.assertRaisesRegex(ts.ShapeError, "tessera.any"):
            bool(x)

    def test_dtypes_of_results(self):
        c64, c128 = ts.ones(2, dtype="complex64"), ts.ones(2, dtype="complex128")
        for got, wanted in ((c64 + 1j, ts.complex64), (c64 * 2, ts.complex64), (c64 + c128, ts.complex128), (c64 / ts.ones(2, dtype="f64"), ts.complex128),
                            (c128 - ts.ones(2), ts.complex128), (ts.ones(2, dtype="f16") + 1j, ts.complex64), (ts.arange(2) * 1j, ts.complex64),
                            (ts.ones(2, dtype="bool") * c64, ts.complex64), (ts.ones(2, dtype="f64") * 1j, ts.complex128),
                            (c128**2, ts.complex128), (ts.arange(2) ** c128, ts.complex128)):  # fmt: skip
            self.assertEqual(got.dtype, wanted)

    def test_in_place_operators_write_through_views(self):
        a = np.arange(6).reshape(2, 3) * (1 - 1j)
        x = ts.asarray(a)
        row, b = x[1], a[1]
        for op in (operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ipow):
            op(row, 2 + 1j), op(b, 2 + 1j)
            op(row, ts.asarray([1.0, 2.0, 3.0])), op(b, np.asarray([1.0, 2.0, 3.0]))
        close(self, x, a, 1e-10)
        x *= x
        close(self, x, a * a, 1e-10)
        # A sum has its own memory, also if only one operand has imaginary parts.
        line, column = np.asarray([[1 + 2j, 3, 4j]]), np.asarray([[10.0], [20.0]])
        for op in (operator.add, operator.sub):
            for left, right in ((line, column), (column, line)):
                z, b = op(ts.asarray(left), ts.asarray(right)), op(left, right)
                z[0, 0], b[0, 0] = 99 + 77j, 99 + 77j
                z *= 2j
                b *= 2j
                close(self, z, b)
        z.real += 1
        z.imag = 5
        close(self, z, b.real + 1 + 5j)
        r = ts.ones(2)
        for op in (operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ipow):
            for other in (1j, ts.asarray([1j, 2])):
                with self.assertRaisesRegex(ts.DtypeError, "complex"):
                    op(r, other)
        with self.assertRaises(ts.ShapeError):
            row += ts.ones((2, 3), dtype="complex64")
        self.assertEqual(r.tolist(), [1, 1])

    def test_operations_without_complex_numbers_raise(self):
        x = ts.asarray([1j, 2])
        for f in (lambda: x < 1, lambda: ts.ones(2) < 1j, lambda: x // 2, lambda: x % 2, lambda: ts.ones(2) // 1j, lambda: x & x, lambda: ~x,
                  lambda: x + "1", lambda: x + [1], lambda: x + np.ones(2), lambda: np.ones(2) * x, lambda: float(x[0]), lambda: hash(x)):  # fmt: skip
            with self.assertRaises(TypeError):
                f()
        for f in (lambda: ts.maximum(x, x), lambda: ts.floor(x), lambda: ts.sort(x), lambda: ts.linalg.det(x), lambda: ts.erf(x), lambda: ts.clip(x, 0),
                  lambda: ts.save(x, "x.npy"), lambda: ts.take(ts.ones(2), x)):  # fmt: skip
            with self.assertRaisesRegex(ts.DtypeError, "complex numbers are not supported"):
                f()


class Indexing(unittest.TestCase):
    def test_random_slices_match_numpy(self):
        rng = random.Random(SEED)
        a = numbers(np.random.default_rng(SEED), (4, 5, 6))
        x = ts.asarray(a)
        bound = lambda n: rng.choice([None, rng.randrange(-n - 2, n + 3)])
        for _ in range(60):
            key = [rng.randrange(-n, n) if rng.random() < 0.3 else slice(bound(n), bound(n), rng.choice([None, 2, -1, -3]))
                   for n in a.shape[: rng.randrange(1, 4)]]  # fmt: skip
            if rng.random() < 0.4:
                key.insert(rng.randrange(len(key) + 1), rng.choice([None, ...]))
            key = tuple(key)
            close(self, x[key], a[key], 0, key)
            values = numbers(np.random.default_rng(rng.randrange(1000)), a[key].shape)
            for value in (values, rng.choice([1j, 2.5, 3])):
                a[key] = value
                x[key] = ts.asarray(value) if isinstance(value, np.ndarray) else value
                close(self, x, a, 0, key)

    def test_arrays_as_indices(self):
        a = numbers(np.random.default_rng(SEED), (3, 4))
        x = ts.asarray(a)
        mask = abs(a) > 1
        close(self, x[ts.asarray(mask)], a[mask], 0)
        close(self, x[ts.asarray([2, 0, -1])], a[[2, 0, -1]], 0)
        x[ts.asarray(mask)] = 1j
        a[mask] = 1j
        x[ts.asarray([0, 1])] = ts.asarray(a[1:3])
        a[[0, 1]] = a[1:3].copy()
        x[ts.asarray([True, False, True])] += 2
        a[[True, False, True]] += 2
        close(self, x, a, 0)
        x[0] = ts.asarray([1, 2, 3, 4])  # real numbers
        self.assertEqual(x[0].tolist(), [1, 2, 3, 4])
        x[...] = ts.ComplexArray(x.imag, x.real)  # shares the memory that is written
        a[0] = [1, 2, 3, 4]
        close(self, x, a.imag + 1j * a.real, 0)
        x[::-1] = x
        close(self, x, (a.imag + 1j * a.real)[::-1], 0)
        self.assertEqual([row.shape for row in x], [(4,)] * 3)
        for f in (lambda: x[3], lambda: x[0, 0, 0], lambda: x["a"], lambda: operator.setitem(x, 0, "a"), lambda: operator.setitem(x, 0, ts.zeros(3))):
            with self.assertRaises((ts.Error, TypeError)):
                f()
        with self.assertRaisesRegex(ts.DtypeError, "complex numbers cannot be written"):
            ts.zeros(2)[0] = 1j
        with self.assertRaisesRegex(TypeError, "without axes"):
            iter(x[0, 0])


class Functions(unittest.TestCase):
    def test_elementwise_functions_match_numpy(self):
        rng = np.random.default_rng(SEED)
        a, b = numbers(rng, (2, 5)), numbers(rng, 5)
        for _ in every_device():
            x, y = ts.asarray(a), ts.asarray(b)
            for name in ("abs", "angle", "conj", "exp", "imag", "log", "real", "sqrt"):
                close(self, getattr(ts, name)(x), getattr(np, name)(a), 1e-12, name)
        for name in ("cos", "cosh", "log10", "log2", "negative", "positive", "reciprocal", "sin", "sinh", "square", "isnan", "isinf", "isfinite"):
            close(self, getattr(ts, name)(ts.asarray(a)), getattr(np, name)(a), 1e-12, name)
        for name in ("add", "divide", "equal", "multiply", "not_equal", "pow", "subtract"):
            close(self, getattr(ts, name)(ts.asarray(a), ts.asarray(b)), getattr(np, "power" if name == "pow" else name)(a, b), 1e-10, name)
        names = {n: n for n in ("expm1", "log1p", "tan", "tanh")} | {f"a{n}": f"arc{n}" for n in ("cos", "cosh", "sin", "sinh", "tan", "tanh")}
        sizes = 10.0 ** rng.uniform(-9, 9, 200)
        for dtype, tolerance in (("complex64", 1e-5), ("complex128", 1e-13)):
            values = (sizes * np.exp(2j * np.pi * rng.uniform(size=200))).astype(dtype)
            values = np.concatenate([values, np.array([0, 1j, 2, -2, complex(-2, -0.0), complex(2, -0.0), 0.5, -1j], dtype)])
            for name, other in names.items():
                v = values if name.startswith("a") or name == "log1p" else (numbers(rng, 50) * 9).astype(dtype)
                wanted = getattr(np, other)(v.astype("complex128")).astype(dtype)
                finite = np.isfinite(wanted)
                got = getattr(ts, name)(ts.asarray(v)).numpy()
                np.testing.assert_allclose(got[finite], wanted[finite], rtol=tolerance, atol=1e-15, err_msg=f"{name}, seed {SEED}")
        close(self, ts.sign(ts.asarray([0j, 3 + 4j])), np.asarray([0, 0.6 + 0.8j]))
        close(self, ts.round(ts.asarray([1.5 - 0.5j])), [2 - 0j])
        close(self, ts.add(ts.ones(2), 1j), [1 + 1j] * 2)
        for name in ("exp", "log", "sqrt", "sin", "angle", "abs"):
            close(self, getattr(ts, name)(0.5 + 1j), np.asarray(getattr(np, name)(0.5 + 1j)), 1e-6, name)
        close(self, ts.exp(ts.asarray([710 + 0j, float("inf")])), np.asarray([complex("inf"), complex("inf")]))
        with self.assertRaises(ts.ShapeError):
            ts.matmul(ts.asarray([1j]), 2j)
        close(self, ts.angle(ts.asarray([1.0, -1.0, float("inf")])), np.asarray([0, np.pi, 0]))
        strange = np.asarray([complex("nan"), complex("inf"), complex("nanj"), 1j])
        for name in ("isnan", "isinf", "isfinite"):
            close(self, getattr(ts, name)(ts.asarray(strange)), getattr(np, name)(strange))

    def test_shapes_and_sums_match_numpy(self):
        rng = np.random.default_rng(SEED)
        a, r = numbers(rng, (2, 3, 4)), rng.normal(size=(2, 3, 4))
        x, q = ts.asarray(a), ts.asarray(r)
        for got, wanted in [
            (x.reshape(6, -1), a.reshape(6, -1)), (ts.permute_dims(x, (2, 0, 1)), a.transpose(2, 0, 1)), (x.mT, a.swapaxes(1, 2)),
            (x[0].T, a[0].T), (ts.concat([x, q], axis=1), np.concatenate([a, r], 1)), (ts.stack([q, x]), np.stack([r, a])),
            (ts.unstack(x)[1], a[1]), (ts.split(x, 2, axis=2)[1], a[:, :, 2:]), (ts.flip(x, axis=0), np.flip(a, 0)),
            (ts.roll(x, 1, axis=2), np.roll(a, 1, 2)), (ts.repeat(x, 2, axis=1), np.repeat(a, 2, 1)), (ts.tile(x, (1, 2, 1)), np.tile(a, (1, 2, 1))),
            (ts.pad(x[0], [(1, 0), (0, 2)], value=9), np.pad(a[0], [(1, 0), (0, 2)], constant_values=9)), (ts.tril(x), np.tril(a)),
            (ts.expand_dims(x, axis=1), a[:, None]), (ts.squeeze(x[:1], 0), a[0]), (ts.broadcast_to(x[0, 0], (2, 4)), np.broadcast_to(a[0, 0], (2, 4))),
            (ts.sum(x), a.sum()), (ts.sum(x, axis=(0, 2), keepdims=True), a.sum((0, 2), keepdims=True)), (ts.mean(x, axis=1), a.mean(1)),
            (ts.prod(x), a.prod()), (ts.prod(x, axis=(1, 2)), a.prod((1, 2))), (ts.prod(x, axis=1, keepdims=True), a.prod(1, keepdims=True)),
            (ts.prod(x[:0], axis=0), a[:0].prod(0)), (ts.cumulative_sum(x, axis=2, include_initial=True)[:, :, 1:], a.cumsum(2)),
            (ts.diff(x), np.diff(a)), (ts.take(x, ts.asarray([1, 0]), axis=2), a[:, :, [1, 0]]), (ts.where(q > 0, x, 1j), np.where(r > 0, a, 1j)),
            (ts.where(q > 0, q, x), np.where(r > 0, r, a)), (ts.any(x, axis=0), a.any(0)), (ts.all(x), np.asarray(a.all())),
            (ts.count_nonzero(x * (q > 0)), np.asarray((r > 0).sum())), (ts.nonzero(x[0] * (q[0] > 0))[1], np.nonzero(r[0] > 0)[1]),
            (ts.broadcast_arrays(x, q[0])[0], a), (ts.meshgrid(x[0, 0], q[0, 0])[0], np.meshgrid(a[0, 0], r[0, 0])[0]),
            (ts.update_slice(x[0], x[1, :1], (1, 0)), np.concatenate([a[0, :1], a[1, :1], a[0, 2:]])),
        ]:  # fmt: skip
            close(self, got, wanted, 1e-12)
        self.assertTrue(x.pending or (ts.eval(x, x * 2) is None))
        with self.assertRaises(ts.ShapeError):
            ts.prod(x, axis=5)

    def test_products_match_numpy(self):
        rng = np.random.default_rng(SEED)
        a, b, r = numbers(rng, (3, 4)), numbers(rng, (4, 2)), rng.normal(size=(4, 2))
        x, y, q = ts.asarray(a), ts.asarray(b), ts.asarray(r)
        for got, wanted in [
            (x @ y, a @ b), (x @ q, a @ r), (q.T @ x.T, r.T @ a.T), (ts.matmul(x, y), a @ b), (ts.outer(x[0], y[0]), np.outer(a[0], b[0])),
            (ts.tensordot(x, y, axes=1), np.tensordot(a, b, 1)), (ts.kron(x, q), np.kron(a, r)), (ts.einsum("ij,jk->k", x, y), np.einsum("ij,jk->k", a, b)),
            (ts.einsum("ij->j", x), a.sum(0)), (ts.vecdot(x, x), (a.conj() * a).sum(-1)), (ts.convolve(x[0], y[:, 0]), np.convolve(a[0], b[:, 0])),
            (ts.linalg.trace(x[:, :3]), np.trace(a[:, :3])), (ts.linalg.diagonal(x), np.diagonal(a)), (ts.linalg.vector_norm(x, axis=1), np.linalg.norm(a, axis=1)),
            (ts.asarray(a.astype("complex64")) @ ts.asarray(b), a @ b),
        ]:  # fmt: skip
            close(self, got, wanted, 1e-6)

    def test_linear_algebra_matches_numpy(self):
        rng, la = np.random.default_rng(SEED), ts.linalg
        a, tall, b = numbers(rng, (2, 4, 4)) + 3 * np.eye(4), numbers(rng, (2, 5, 3)), numbers(rng, (2, 4, 3))
        s = a @ a.conj().swapaxes(1, 2)
        nearly = np.diag([1, 1, 1.5 * 3 * np.finfo("float64").eps]).astype("complex128")  # above the default of rtol
        x, t, y = ts.asarray(a), ts.asarray(tall), ts.asarray(b)
        for got, wanted in [
            (la.inv(x), np.linalg.inv(a)), (la.solve(x, y), np.linalg.solve(a, b)), (la.solve(x[0], ts.ones(4)), np.linalg.solve(a[0], np.ones(4))),
            (la.solve(x.real, y), np.linalg.solve(a.real, b)), (la.pinv(t), np.linalg.pinv(tall)), (la.matrix_power(x, -2), np.linalg.matrix_power(a, -2)),
            (la.svdvals(t), np.linalg.svd(tall, compute_uv=False)), (la.eigvalsh(ts.asarray(s)), np.linalg.eigvalsh(s)),
            (la.eigvalsh(ts.asarray(np.tril(s) + np.triu(b @ b.swapaxes(1, 2), 1))), np.linalg.eigvalsh(s)),  # the lower triangle
            (la.matrix_rank(t), np.asarray([3, 3])), (la.matrix_rank(ts.asarray(nearly)), np.asarray(3)), (la.matrix_norm(t, keepdims=True), np.linalg.norm(tall, axis=(1, 2), keepdims=True)),
            *((la.matrix_norm(t, ord=o), np.linalg.norm(tall, o, (1, 2))) for o in ("nuc", 1, -1, 2, -2, float("inf"))),
        ]:  # fmt: skip
            close(self, got, wanted, 1e-9)

    def test_gradients_and_tasks(self):
        a = numbers(np.random.default_rng(SEED), 4)
        x = ts.asarray(a)
        # The gradient contains the derivatives by both parts.
        gradient = ts.grad(lambda z: ts.sum(abs(z) ** 2))(x)
        close(self, gradient, 2 * a, 1e-12)
        r = ts.asarray(np.arange(8.0))
        energy = lambda t: ts.sum(abs(ts.fft.fft(t)) ** 2)
        close(self, ts.grad(energy)(r), 16 * np.arange(8.0), 1e-9)
        value, both = ts.value_and_grad(lambda tree: ts.sum((tree["z"] * tree["w"]).real))({"z": x, "w": ts.ones(4, dtype="f64")})
        close(self, both["w"], a.real)
        close(self, both["z"], np.ones(4) + 0j)

        def double(z):
            z *= 2

        with tasks.Region() as region:
            region.spawn(double, tasks.inout(x))
            total = region.spawn(lambda z: ts.sum(z), x)
        close(self, x, 2 * a, 1e-12)
        close(self, total.result(), 2 * a.sum(), 1e-12)


class Fft(unittest.TestCase):
    def test_transforms_match_numpy(self):
        rng = np.random.default_rng(SEED)
        a, r = numbers(rng, (3, 6)), rng.normal(size=(3, 6))
        for device in every_device():
            for dtype, tolerance in (("complex128", 1e-12), ("complex64", 1e-5)):
                x, q = ts.asarray(a).astype(dtype), ts.asarray(r, dtype=ts.finfo(getattr(ts, dtype)).dtype)
                for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"):
                    z, c = (q, r) if name in ("rfft", "ihfft") else (x, a)
                    for arguments in ({}, {"n": 4}, {"n": 9, "norm": "ortho"}, {"axis": 0, "norm": "forward"}):
                        got = getattr(ts.fft, name)(z, **arguments)
                        close(self, got, getattr(np.fft, name)(c, **arguments), 10 * tolerance, (name, arguments, device))
                        self.assertEqual(got.dtype, z.dtype if name in ("fft", "ifft") else got.dtype)
        self.assertEqual((ts.fft.rfft(ts.ones(4)).dtype, ts.fft.irfft(ts.ones(4, dtype="complex64")).dtype), (ts.complex64, ts.float32))

    def test_several_axes_match_numpy(self):
        rng = np.random.default_rng(SEED)
        a, r = numbers(rng, (3, 4, 6)), rng.normal(size=(3, 4, 6))
        for name in ("fftn", "ifftn", "rfftn", "irfftn", "fft2", "ifft2", "rfft2", "irfft2"):
            c = r if name.startswith("rfft") else a
            for arguments in ({}, {"s": (5, 2), "axes": (1, 2)}, {"axes": (2, 0), "norm": "ortho"}, {"s": [2, 4], "axes": [-1, 0], "norm": "forward"}):
                close(self, getattr(ts.fft, name)(ts.asarray(c), **arguments), getattr(np.fft, name)(c, **arguments), 1e-11, (name, arguments))
        close(self, ts.fft.fftn(ts.asarray(a), s=(2, 3)), np.fft.fftn(a, s=(2, 3), axes=(1, 2)), 1e-11)
        close(self, ts.fft.irfftn(ts.asarray(r)), np.fft.irfftn(r), 1e-11)  # real numbers are complex numbers, too

    def test_order_and_frequencies_match_numpy(self):
        a = numbers(np.random.default_rng(SEED), (3, 5))
        for name in ("fftshift", "ifftshift"):
            for axes in (None, 1, (0,), (-1, 0)):
                close(self, getattr(ts.fft, name)(ts.asarray(a), axes=axes), getattr(np.fft, name)(a, axes), 0)
        self.assertEqual(ts.fft.fftshift(ts.arange(5)).tolist(), [3, 4, 0, 1, 2])
        for name in ("fftfreq", "rfftfreq"):
            for n in (1, 6, 7):
                close(self, getattr(ts.fft, name)(n, d=0.5), getattr(np.fft, name)(n, 0.5), 1e-7)
        x = ts.fft.fftfreq(4, dtype="float64", device="interp")
        self.assertEqual((x.dtype, x.device), (ts.float64, "interp:0"))

    def test_positional_arguments_and_views(self):
        a = numbers(np.random.default_rng(SEED), (4, 6))
        x = ts.asarray(a)
        close(self, ts.fft.fft(x, 3, 0, "ortho"), np.fft.fft(a, 3, 0, "ortho"), 1e-12)
        close(self, ts.fft.fft(x.T[::2]), np.fft.fft(a.T[::2]), 1e-12)
        close(self, ts.fft.ifft(ts.fft.fft(x) * 2), 2 * a, 1e-12)
        close(self, ts.fft.fft(x.real), np.fft.fft(a.real), 1e-12)

    def test_invalid_arguments_raise(self):
        x, r = ts.ones((2, 4), dtype="complex64"), ts.ones((2, 4))
        f = ts.fft
        for call, error, text in [
            (lambda: f.fft(x, n=0), ts.ArgumentError, "less than 1"), (lambda: f.fft(x, axis=2), ts.ShapeError, "axis"),
            (lambda: f.fft(x, norm="max"), ts.ArgumentError, "backward, ortho, forward"), (lambda: f.rfft(x), ts.DtypeError, "Use fft"),
            (lambda: f.ihfft(x), ts.DtypeError, "Use ifft"), (lambda: f.rfftn(x), ts.DtypeError, "Use fftn"),
            (lambda: f.fft(ts.arange(4)), ts.DtypeError, "int64.*astype"), (lambda: f.fft(ts.ones(4, dtype="f16")), ts.DtypeError, "float16"),
            (lambda: f.fft([1.0, 2.0]), TypeError, "Use asarray"), (lambda: f.fft(np.ones(2)), TypeError, "ndarray"),
            (lambda: f.fftn(x, s=(2,), axes=(0, 1)), ts.ShapeError, "size"), (lambda: f.fftn(x, axes=(0, 0)), ts.ArgumentError, "repeated"),
            (lambda: f.fftn(x, axes=()), ts.ShapeError, "empty"), (lambda: f.fft(r[0, 0]), ts.ShapeError, "axis"),
            (lambda: f.fftfreq(0), ts.ArgumentError, "less than 1"), (lambda: f.fftfreq(4, d=0), ts.ArgumentError, "spacing|distance"),
            (lambda: f.fftfreq(4, dtype="int32"), ts.DtypeError, "f32 or f64"), (lambda: f.fft(x, n=1.5), ts.ArgumentError, "'n' must be an integer"),
        ]:  # fmt: skip
            with self.assertRaisesRegex(error, text):
                call()


if __name__ == "__main__":
    print(f"seed {SEED}")
    unittest.main()
