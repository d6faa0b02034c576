# SPDX-License-Identifier: Apache-2.0
"""Tests devices, arrays, operators, indexing and functions, mostly against NumPy."""

import operator
import pickle
import random
import unittest

import numpy as np

import tessera as ts

SEED = random.SystemRandom().randrange(2**32)
FLOATS = ["float32", "float64"]
INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


def close(test, got, wanted, tolerance=1e-5):
    got = got.numpy() if isinstance(got, ts.Array) else np.asarray(got)
    test.assertEqual(got.shape, np.asarray(wanted).shape)
    np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance, equal_nan=True)


class Devices(unittest.TestCase):
    def test_lists_devices_and_reasons(self):
        self.assertIn("cpu:0", [str(d) for d in ts.devices()])
        for report in ts.discover():
            self.assertTrue(report.devices or report.reason, report)
        self.assertIn("cpu", ts.doctor())
        info = ts.device_info("cpu")
        self.assertGreater(info.total_memory, 0)
        self.assertGreater(ts.free_memory("cpu"), 0)
        self.assertIn("cpu:0", repr(info))
        self.assertTrue(ts.why_current_device())

    def test_missing_devices_raise_with_the_reason(self):
        with self.assertRaisesRegex(ts.DeviceError, "metal"):
            ts.zeros(3, device="metal:0")
        with self.assertRaisesRegex(ts.DeviceError, "nonsense"):
            ts.Device("nonsense")
        with self.assertRaisesRegex(TypeError, "a device must be"):
            ts.zeros(3, device=7)

    def test_use_device_ends_with_the_block(self):
        before = ts.current_device()
        with ts.use_device("interp") as device:
            self.assertEqual(str(device), "interp:0")
            self.assertEqual(ts.zeros(2).device, "interp:0")
        self.assertEqual(ts.current_device(), before)
        self.assertEqual(pickle.loads(pickle.dumps(device)), device)
        self.assertEqual({ts.Device("cpu"): 1}[ts.Device("cpu:0")], 1)

    def test_arrays_of_two_devices_raise(self):
        with self.assertRaisesRegex(ts.DeviceError, "interp:0"):
            ts.zeros(2) + ts.zeros(2, device="interp")
        moved = ts.ones(2, device="interp").to_device("cpu")
        close(self, moved + ts.ones(2, device="cpu"), [2, 2])


class Creation(unittest.TestCase):
    def test_converts_numbers_and_sequences(self):
        self.assertEqual(ts.asarray(3).dtype, ts.int64)
        self.assertEqual(ts.asarray(3.0).dtype, ts.float32)
        self.assertEqual(ts.asarray([True, False]).dtype, ts.bool)
        self.assertEqual(ts.asarray([[1, 2.5], [3, 4]]).tolist(), [[1.0, 2.5], [3.0, 4.0]])
        self.assertEqual(ts.asarray([], dtype=ts.int32).shape, (0,))
        self.assertEqual(ts.asarray([2**63 + 5], dtype="uint64").tolist(), [2**63 + 5])
        self.assertEqual(ts.full((2,), 2**60 + 1).tolist(), [2**60 + 1] * 2)
        self.assertEqual(ts.asarray([1.5], dtype="f16").dtype, ts.float16)
        with self.assertRaisesRegex(ts.ShapeError, "different shapes"):
            ts.asarray([[1], [1, 2]])
        self.assertEqual(ts.asarray([range(3), range(1, 6, 2)]).tolist(), [[0, 1, 2], [1, 3, 5]])
        self.assertEqual((ts.asarray(range(0)).shape, ts.asarray(range(2, 4), dtype="f32").dtype), ((0,), ts.float32))
        with self.assertRaisesRegex(TypeError, "str is not a number"):
            ts.asarray("abc")
        for value in (b"ab", bytearray(2), memoryview(b"ab")):
            with self.assertRaisesRegex(TypeError, r"list\(x\) for the bytes, or numpy.frombuffer"):
                ts.asarray(value)
        for value in ({1, 2}, (n for n in range(3))):
            with self.assertRaisesRegex(TypeError, r"Pass list\(x\)"):
                ts.asarray(value)
        with self.assertRaisesRegex(ts.DtypeError, "no such dtype"):
            ts.zeros(1, dtype="float31")
        with self.assertRaisesRegex(TypeError, "no constructor"):
            ts.Array()

    def test_numbers_that_do_not_fit_raise(self):
        def set_item(name, value):
            ts.zeros(2, dtype=name)[0] = value

        for name, value in [("int8", 300), ("int8", -129), ("uint8", -1), ("i32", 2**40), ("u64", -1), ("i64", 2.0**63),
                            ("int16", float("nan")), ("u32", float("inf"))]:  # fmt: skip
            for call in [
                lambda: ts.asarray([value], dtype=name),
                lambda: ts.full((2,), value, dtype=name),
                lambda: set_item(name, value),
            ]:
                with self.assertRaisesRegex(ts.DtypeError, "does not fit in", msg=(name, value)):
                    call()
        with self.assertRaisesRegex(ts.DtypeError, "299 does not fit in int8"):
            ts.arange(300, dtype="int8")
        self.assertEqual(ts.arange(-128, 128, dtype="int8").shape, (256,))
        self.assertEqual(ts.asarray([-128.9, 127.9], dtype="int8").tolist(), [-128, 127])
        x = ts.zeros(2, dtype="uint8")
        x[0], x[1] = 255, 3.7
        self.assertEqual(x.tolist(), [255, 3])

    def test_copies_have_their_own_memory(self):
        x = ts.arange(3, dtype="float32")
        for y in [
            ts.asarray(x, copy=True),
            ts.asarray(x, dtype="float32", copy=True),
            ts.asarray(x, dtype=np.float32, copy=True),
            ts.asarray(x, device=x.device, copy=True),
            ts.astype(x, "f32"),
            +x,
            ts.positive(x),
        ]:
            y[0] = 9
            self.assertEqual((x.tolist(), y.tolist()), ([0, 1, 2], [9, 1, 2]))
        i = ts.arange(3)
        ts.floor(i)[0] = 9
        self.assertEqual(i.tolist(), [0, 1, 2])
        self.assertIs(ts.asarray(x, dtype="f32", device=str(x.device)), x)
        self.assertIs(ts.astype(x, "float32", copy=False), x)
        for arguments in [{"dtype": "f64"}, {"device": "interp"}]:
            with self.assertRaisesRegex(ts.ArgumentError, "needs a copy"):
                ts.asarray(x, copy=False, **arguments)

    def test_ranges_match_numpy(self):
        big = 2**53 + 1
        for arguments in [(big, big + 3), (big + 9, big, -4), (-(2**62), 2**62 + 1, 2**61 + 1), (0, 2 * big, big)]:
            self.assertEqual(ts.arange(*arguments).tolist(), list(range(*arguments)))
        unsigned = range(2**63 + 5, 2**63, -2)
        self.assertEqual(ts.arange(unsigned.start, unsigned.stop, -2, dtype="u64").tolist(), list(unsigned))
        for arguments in [(5,), (2, 9, 3), (9, 2, -2), (0, 1, 0.25), (3, 3)]:
            close(self, ts.arange(*arguments), np.arange(*arguments))
        close(self, ts.linspace(0, 1, 7), np.linspace(0, 1, 7))
        close(self, ts.linspace(0, 1, 4, endpoint=False), np.linspace(0, 1, 4, endpoint=False))
        close(self, ts.eye(3, 4, k=1), np.eye(3, 4, 1))
        x, y = ts.meshgrid(ts.arange(3), ts.arange(2), indexing="ij")
        self.assertEqual((x.shape, y.shape), ((3, 2), (3, 2)))

    def test_every_dtype_survives_a_round_trip(self):
        rng = np.random.default_rng(SEED)
        for name in ["bool", "float16", *FLOATS, *INTEGERS]:
            a = rng.integers(0, 2 if name == "bool" else 100, (3, 4)).astype(name)
            x = ts.asarray(a)
            self.assertEqual(x.dtype.name, name)
            self.assertEqual(x.dtype, getattr(ts, name))
            np.testing.assert_array_equal(x.numpy(), a)
            self.assertEqual(x.tolist(), a.tolist())
            self.assertEqual(pickle.loads(pickle.dumps(x)).tolist(), a.tolist())
        with self.assertRaisesRegex(ts.DtypeError, "bfloat16"):
            ts.zeros(1, dtype=ts.bfloat16).numpy()
        self.assertEqual(ts.asarray([1.5], dtype=ts.bfloat16).tolist(), [1.5])


class Operators(unittest.TestCase):
    def test_match_numpy(self):
        rng = np.random.default_rng(SEED)
        names = ["add", "sub", "mul", "truediv", "floordiv", "mod", "lt", "le", "gt", "ge", "eq", "ne"]
        for name in names:
            op = getattr(operator, name)
            for dtype in ["float64", "int32", "int64"]:
                a = (rng.integers(-20, 20, (4, 5)) if dtype != "float64" else rng.normal(size=(4, 5))).astype(dtype)
                b = (rng.integers(1, 9, 5) * rng.choice([-1, 1], 5)).astype(dtype)
                close(self, op(ts.asarray(a), ts.asarray(b)), op(a, b), 1e-6)
                close(self, op(ts.asarray(a), 3), op(a, 3), 1e-6)
                close(self, op(7, ts.asarray(b)), op(7, b), 1e-6)
        a = rng.integers(-9, 9, 6).astype("int32")
        for op in [operator.and_, operator.or_, operator.xor]:
            close(self, op(ts.asarray(a), 5), op(a, 5))
        for op in [operator.neg, operator.pos, operator.invert, abs]:
            close(self, op(ts.asarray(a)), op(a))
        close(self, ~ts.asarray(a.astype("uint32")), ~a.astype("uint32"))
        close(self, ts.asarray(a) ** 3, a**3)
        close(self, ts.asarray(a) ** ts.asarray([[0], [7]], dtype="uint8"), a ** np.array([[0], [7]], "uint8"))
        close(self, (-3) ** ts.asarray([0, 1, 5]), [1, -3, -243])
        with self.assertRaisesRegex(ts.ArgumentError, "negative"):
            ts.asarray(a) ** ts.asarray([-1])
        for dtype in INTEGERS:
            wide, counts = rng.integers(0, 127, 6).astype(dtype), np.array([0, 1, 5, 7, 8, 64], dtype)
            for op in [operator.lshift, operator.rshift]:
                close(self, op(ts.asarray(wide), ts.asarray(counts)), op(wide, counts))
                close(self, op(ts.asarray(wide), 3), op(wide, 3))
        close(self, ts.asarray(a) >> 40, np.where(a < 0, -1, 0))
        close(self, ts.asarray(a) << ts.asarray(40), a.astype("int64") << 40)
        for x, y in [(-0.0, 3.0), (0.0, -3.0), (6.0, -3.0), (-6.0, 3.0)]:
            self.assertEqual(str((ts.asarray(x) % y).item()), str(x % y))
        close(self, ts.asarray([2.0, 3.0]) ** 0.5, np.array([2.0, 3.0]) ** 0.5)
        close(self, 2 ** ts.asarray([2.0, 3.0]), [4, 8])
        m = rng.normal(size=(3, 4)).astype("float32")
        close(self, ts.asarray(m) @ ts.asarray(m).T, m @ m.T)

    def test_python_numbers_take_the_dtype_of_the_array(self):
        for name in ["float16", "float32", "float64"]:
            self.assertEqual((ts.zeros(2, dtype=name) + 1.5).dtype.name, name)
            self.assertEqual((2 * ts.zeros(2, dtype=name)).dtype.name, name)
        self.assertEqual((ts.zeros(2, dtype=ts.int8) + 3).dtype, ts.int8)
        self.assertEqual((ts.zeros(2, dtype=ts.int8) + 3.5).dtype, ts.float32)
        self.assertEqual((ts.zeros(2, dtype=ts.bool) + 3).dtype, ts.int32)
        with self.assertRaises(ts.DtypeError):
            ts.zeros(2, dtype=ts.uint8) + 300
        with self.assertRaises(ts.DtypeError):
            ts.zeros(2, dtype=ts.int64) + 2**70

    def test_in_place_operators_write_through_views(self):
        x = ts.arange(6, dtype="float32").reshape(2, 3)
        row = x[1]
        row += 10
        row[0] = -1
        self.assertEqual(x.tolist(), [[0, 1, 2], [-1, 14, 15]])
        row *= ts.asarray([1.0, 2.0, 3.0])
        row -= 1
        row /= 2
        self.assertEqual(row.tolist(), [-1, 13.5, 22])
        with self.assertRaises(ts.DtypeError):
            i = ts.zeros(2, dtype=ts.int32)
            i += 0.5

    def test_in_place_operators_do_not_truncate(self):
        for f in (operator.itruediv, operator.ifloordiv, operator.imod, operator.ipow):
            for other in (2.5, ts.asarray(2.5)):
                for dtype in ("int32", "int64", "uint8"):
                    x = ts.asarray([1, 2, 3], dtype=dtype)
                    with self.assertRaisesRegex(ts.DtypeError, "updated in place"):
                        f(x, other)
                    self.assertEqual(x.tolist(), [1, 2, 3])
                close(self, f(ts.asarray([1.0, 2.0, 3.0]), other), f(np.asarray([1.0, 2.0, 3.0]), 2.5))
        with self.assertRaises(ts.DtypeError):
            x /= 2
        for f in (operator.ifloordiv, operator.imod, operator.ipow):
            close(self, f(ts.asarray([1, 2, 3]), 2), f(np.asarray([1, 2, 3]), 2))

    def test_comparisons_with_sequences_raise(self):
        x = ts.arange(3)
        for other in ([0, 1, 2], (0, 1, 2), np.arange(3), np.int64(1)):
            for f in (operator.eq, operator.ne):
                with self.assertRaisesRegex(TypeError, "cannot be compared"):
                    f(x, other)
        self.assertEqual((x == 1).tolist(), [False, True, False])
        self.assertEqual((x != x).tolist(), [False] * 3)
        self.assertIs(x == None, False)  # noqa: E711
        self.assertIs(x != "x", True)

    def test_other_objects_raise_type_error(self):
        for other in ["1", None, [1], np.zeros(2)]:
            for f in [lambda x, o: x + o, lambda x, o: o * x]:
                with self.assertRaises(TypeError):
                    f(ts.zeros(2), other)
        with self.assertRaisesRegex(TypeError, "unhashable"):
            hash(ts.zeros(2))

    def test_shapes_that_do_not_broadcast_raise(self):
        with self.assertRaisesRegex(ts.ShapeError, r"\(2\)|\(2,\)"):
            ts.zeros(2) + ts.zeros(3)
        self.assertTrue(issubclass(ts.ShapeError, ValueError) and issubclass(ts.ShapeError, IndexError))

    def test_conversions_to_numbers(self):
        self.assertEqual(int(ts.asarray(7)), 7)
        self.assertEqual(float(ts.asarray(2.5)), 2.5)
        self.assertEqual(complex(ts.asarray(2.5)), 2.5 + 0j)
        self.assertTrue(ts.asarray([1]) == 1)
        self.assertEqual([10, 20, 30][ts.asarray(1)], 20)
        self.assertEqual(ts.asarray(2**63 + 1, dtype="uint64").item(), 2**63 + 1)
        with self.assertRaises(TypeError):
            [1][ts.asarray(0.0)]
        with self.assertRaisesRegex(ts.ShapeError, "exactly one element. Use tessera.any"):
            bool(ts.zeros(2))
        with self.assertRaises(TypeError):
            len(ts.asarray(1))
        self.assertEqual(len(ts.zeros((4, 2))), 4)
        self.assertEqual([r.tolist() for r in ts.eye(2)], [[1, 0], [0, 1]])


class Indexing(unittest.TestCase):
    def test_random_indices_match_numpy(self):
        rng = random.Random(SEED)
        a = np.arange(4 * 5 * 6, dtype="int32").reshape(4, 5, 6)
        x = ts.asarray(a)

        def piece(n):
            kind = rng.randrange(3)
            if kind == 0:
                return rng.randrange(-n, n)
            bound = lambda: rng.choice([None, rng.randrange(-n - 2, n + 3)])
            return slice(bound(), bound(), rng.choice([None, 1, 2, 3, -1, -2]))

        for _ in range(300):
            key = [piece(n) for n in a.shape[: rng.randrange(1, 4)]]
            if rng.random() < 0.3:
                key.insert(rng.randrange(len(key) + 1), None)
            if rng.random() < 0.3:
                key.append(...)
            key = tuple(key)
            np.testing.assert_array_equal(x[key].numpy(), a[key], err_msg=f"{key}, seed {SEED}")

    def test_assignment_through_random_slices_matches_numpy(self):
        rng = random.Random(SEED)
        bound = lambda n: rng.choice([None, rng.randrange(-n - 2, n + 3)])
        for _ in range(100):
            a = np.arange(4 * 5 * 6, dtype="int32").reshape(4, 5, 6)
            x = ts.asarray(a)
            key = [slice(bound(n), bound(n), rng.choice([None, 2, -1, -2, -3])) for n in a.shape[: rng.randrange(1, 4)]]
            if rng.random() < 0.3:
                key[rng.randrange(len(key))] = rng.randrange(4)
            if rng.random() < 0.3:
                key.insert(rng.randrange(len(key) + 1), rng.choice([None, ...]))
            key = tuple(key)
            values = np.asarray(rng.choices(range(1000), k=a[key].size), dtype="int32").reshape(a[key].shape)
            a[key] = values
            x[key] = ts.asarray(values)
            np.testing.assert_array_equal(x.numpy(), a, err_msg=f"{key}, seed {SEED}")
            a[key] += 1
            x[key] += 1
            np.testing.assert_array_equal(x.numpy(), a, err_msg=f"+= {key}, seed {SEED}")
        x = ts.arange(4)
        x[::-1] = x
        self.assertEqual(x.tolist(), [3, 2, 1, 0])
        for key in [(slice(None, None, -1),) * 2, (..., ..., slice(None, None, -1)), slice(None, None, 0)]:
            with self.assertRaises(ts.Error):
                x[key] = 1
        with self.assertRaises(ts.ShapeError):
            x[::-1] = ts.zeros(3)

    def test_random_indices_with_arrays_match_numpy(self):
        rng, numbers = random.Random(SEED), np.random.default_rng(SEED)
        bound = lambda n: rng.choice([None, rng.randrange(-n - 2, n + 3)])
        for _ in range(150):
            shape = tuple(rng.randrange(1, 5) for _ in range(rng.randrange(1, 5)))
            common = rng.choice([(), (3,), (2, 3), (2, 1)])  # of the arrays of positions; masks select 3 elements
            a = numbers.integers(0, 100, size=shape).astype("int32")
            key, axis = [], 0
            while axis < len(shape) and rng.random() < 0.9:
                n, kind = shape[axis], rng.randrange(6)
                if kind == 0:
                    key.append(rng.randrange(-n, n))
                elif kind == 1:
                    key.append(slice(bound(n), bound(n), rng.choice([None, 2, -1, -2])))
                elif kind == 2 and axis + 1 < len(shape) and n * shape[axis + 1] >= 3 and common in ((3,), (2, 3)):
                    mask = np.zeros(n * shape[axis + 1], dtype=bool)
                    mask[numbers.permutation(mask.size)[:3]] = True
                    key.append(mask.reshape(n, shape[axis + 1]))
                    axis += 1
                else:
                    kept = tuple(1 if rng.random() < 0.2 else n for n in common[rng.randrange(len(common) + 1) :])
                    key.append(numbers.integers(-n, n, size=kept).astype(rng.choice(["int64", "int32", "int8"])))
                axis += 1
            if rng.random() < 0.3:
                key.insert(rng.randrange(len(key) + 1), None)
            if rng.random() < 0.3:  # anywhere if it covers no axis
                key.insert(rng.randrange(len(key) + 1) if axis == len(shape) else len(key), ...)
            key = tuple(key)
            ours = tuple(ts.asarray(k) if isinstance(k, np.ndarray) else k for k in key)
            x, text = ts.asarray(a), f"{key}, shape {shape}, seed {SEED}"
            wanted = a[key]
            np.testing.assert_array_equal(x[ours].numpy(), wanted, err_msg=text)
            value = numbers.integers(0, 100, size=wanted.shape[rng.randrange(wanted.ndim + 1) :]).astype("int32")
            a[key] = value
            x[ours] = ts.asarray(value)
            np.testing.assert_array_equal(x.numpy(), a, err_msg=f"assign {text}")
        x = ts.arange(12).reshape(3, 4)
        for key in ((ts.asarray([0, 1]), ts.asarray([0, 1, 2])), (0, ts.asarray([True])), (0, 0, ts.asarray([0]))):
            with self.assertRaises(ts.Error):
                x[key]
            with self.assertRaises(ts.Error):
                x[key] = 0
        self.assertEqual(x[ts.asarray([0, 5]), ts.asarray([-5, 0])].tolist(), [0, 0])  # out of range

    def test_arrays_as_indices(self):
        long, last = ts.arange(300), ts.asarray([-1], dtype="int8")
        long[last] = ts.asarray([7])
        self.assertEqual(long[299].item(), 7)
        self.assertEqual(long[last].tolist(), [7])
        for name in INTEGERS:
            at = [0, 5, 100] if name.startswith("u") else [-1, -100, 5]
            self.assertEqual(long[ts.asarray(at, dtype=name)].tolist(), [long[i].item() for i in at])
        for mask in [ts.asarray([True, False]), ts.asarray([[True]]), ts.zeros((1, 300), dtype="bool")]:
            with self.assertRaisesRegex(ts.ShapeError, "axes that it covers"):
                long[mask] = 1
        a = np.arange(12, dtype="float32").reshape(3, 4)
        x = ts.asarray(a)
        close(self, x[ts.asarray([2, 0, -1])], a[[2, 0, -1]])
        close(self, x[x > 5], a[a > 5])
        close(self, x[ts.asarray([True, False, True])], a[[True, False, True]])
        x[x > 9] = 0
        a[a > 9] = 0
        close(self, x, a)
        x[ts.asarray([0, 2])] = ts.asarray([[1.0], [2.0]])
        a[[0, 2]] = [[1], [2]]
        close(self, x, a)
        for mask in (a > 1.5, np.asarray([True, False, True]), a < -1):
            x[ts.asarray(mask)] += 5
            a[mask] += 5
            close(self, x, a)
            values = np.random.default_rng(SEED).normal(size=a[mask].shape).astype("float32")
            x[ts.asarray(mask)] = ts.asarray(values)
            a[mask] = values
            close(self, x, a)
        x[ts.asarray([False, True, True])] = ts.asarray(a[0])
        a[[False, True, True]] = a[0]
        close(self, x, a)
        for mask, value in (([True, False, True], ts.zeros(3)), ([True, False], ts.zeros((1, 4)))):
            with self.assertRaises(ts.ShapeError):
                x[ts.asarray(mask)] = value
        x[1:, ::2] = 7
        a[1:, ::2] = 7
        close(self, x, a)
        rows = np.array([[0], [-1]])
        close(self, ts.take(x, ts.asarray([-1, 0]), axis=1), a[:, [-1, 0]])
        close(self, ts.take_along_axis(x, ts.asarray(rows - 1), axis=0), np.take_along_axis(a, rows - 1, 0))
        for key in [4, (0, 0, 0), (..., ...), "a", [0], 1.5, (slice(None), ts.asarray([0.5])), (ts.asarray([0]), 4)]:
            with self.assertRaises((ts.Error, TypeError), msg=key):
                x[key]
        with self.assertRaises(IndexError):
            x[3]
        with self.assertRaises(TypeError):
            x[0] = "a"
        with self.assertRaises(TypeError):
            del x[0]


class Functions(unittest.TestCase):
    def test_elementwise_functions_match_numpy(self):
        rng = np.random.default_rng(SEED)
        a = rng.uniform(0.05, 0.95, (5, 7))
        names = {"acos": "arccos", "asin": "arcsin", "atan": "arctan", "asinh": "arcsinh", "atanh": "arctanh",
                 "pow": "power"}  # fmt: skip
        for name in ["abs", "acos", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "exp", "expm1", "floor",
                     "isfinite", "isinf", "isnan", "log", "log10", "log1p", "log2", "negative", "positive", "reciprocal",
                     "sign", "signbit", "sin", "sinh", "sqrt", "square", "tan", "tanh", "trunc"]:  # fmt: skip
            wanted = getattr(np, names.get(name, name))(a)
            close(self, getattr(ts, name)(ts.asarray(a)), wanted, 1e-10)
        close(self, ts.acosh(ts.asarray(a + 1)), np.arccosh(a + 1), 1e-10)
        close(self, ts.round(ts.asarray([0.5, 1.5, -2.5])), [0, 2, -2])
        b = rng.uniform(-1, 1, 7)
        for name in ["add", "atan2", "copysign", "divide", "equal", "floor_divide", "greater", "hypot", "less",
                     "logaddexp", "maximum", "minimum", "multiply", "not_equal", "pow", "remainder", "subtract"]:  # fmt: skip
            wanted = getattr(np, {"atan2": "arctan2", **names}.get(name, name))(a, b)
            close(self, getattr(ts, name)(ts.asarray(a), ts.asarray(b)), wanted, 1e-10)
        close(self, ts.clip(ts.asarray(b), -0.5, 0.5), b.clip(-0.5, 0.5))
        close(self, ts.nextafter(ts.asarray(b), 0.5), np.nextafter(b, 0.5), 0)
        close(self, ts.where(ts.asarray(b) > 0, ts.asarray(b), 0.0), np.where(b > 0, b, 0))

    def test_gradient_of_remainders_at_multiples(self):
        slopes = ts.grad(lambda x: ts.sum(x % 1.0))(ts.asarray([0.0, 0.5, 1.0]))
        self.assertEqual(slopes.tolist(), [1, 1, 1])

    def test_inverse_hyperbolic_functions_of_extreme_numbers(self):
        for name, tolerance in [("float16", 2e-3), ("float32", 1e-6), ("float64", 1e-14)]:
            largest = ts.finfo(getattr(ts, name)).max
            x = ts.asarray([0, 1e-4, 1, 90, 300, 4e4, largest, float("inf")], dtype=name)
            wanted = np.arcsinh(x.numpy().astype("float64"))
            np.testing.assert_allclose(ts.asinh(x).numpy(), wanted, rtol=tolerance)
            np.testing.assert_allclose(ts.asinh(-x).numpy(), -wanted, rtol=tolerance)
        near = np.array([1 - 1e-6, 0.5, 1e-30], "float32")
        for t in [near, -near]:
            np.testing.assert_allclose(ts.atanh(ts.asarray(t)).numpy(), np.arctanh(t.astype("float64")), rtol=1e-6)
        self.assertEqual(ts.asinh(ts.asarray([0])).tolist(), [0])
        slope = ts.grad(lambda x: ts.sum(ts.asinh(x)))(ts.asarray([0.5, 3e38]))
        np.testing.assert_allclose(slope.numpy(), [1 / np.sqrt(1.25), 1 / 3e38], rtol=1e-5, atol=1e-38)

    def test_reductions_match_numpy(self):
        rng = np.random.default_rng(SEED)
        a = rng.normal(size=(3, 4, 5))
        x = ts.asarray(a)
        for name in ["sum", "prod", "mean", "max", "min", "var", "std"]:
            for axis in [None, 0, -1, (0, 2), ()]:
                for keep in [False, True]:
                    close(self, getattr(ts, name)(x, axis=axis, keepdims=keep), getattr(np, name)(a, axis=axis, keepdims=keep), 1e-10)  # fmt: skip
        for axis in [None, 1]:
            close(self, ts.argmax(x, axis=axis), np.argmax(a, axis=axis))
            close(self, ts.argmin(x, axis=axis, keepdims=True), np.argmin(a, axis=axis, keepdims=True))
            close(self, ts.any(x > 1, axis=axis), np.any(a > 1, axis=axis))
            close(self, ts.all(x > -9, axis=axis), np.all(a > -9, axis=axis))
            close(self, ts.count_nonzero(x > 0, axis=axis), np.count_nonzero(a > 0, axis=axis))
        close(self, ts.cumulative_sum(x, axis=1), np.cumsum(a, axis=1), 1e-10)
        close(self, ts.cumulative_sum(ts.asarray([1, 2]), include_initial=True), [0, 1, 3])
        self.assertEqual(ts.sum(ts.ones(3, dtype=ts.int8)).dtype, ts.int64)
        self.assertEqual(ts.prod(ts.asarray([3, 5, 7, 2, 2])).item(), 420)
        for name in ("sum", "prod"):
            for dtype in ("uint8", "int32", "bool", "float16"):
                few = ts.asarray([1, 1, 1]).astype(dtype)
                wide = {"uint8": ts.uint64, "float16": ts.float16}.get(dtype, ts.int64)
                self.assertEqual((getattr(ts, name)(few).dtype, getattr(ts, name)(few, dtype="int16").dtype), (wide, ts.int16))
        a[0, 1, 2] = a[2, 3, 1] = np.nan
        x = ts.asarray(a)
        for name in ["nansum", "nanprod", "nanmean", "nanmax", "nanmin"]:
            for axis in [None, 1]:
                close(self, getattr(ts, name)(x, axis=axis), getattr(np, name)(a, axis=axis), 1e-10)
        close(self, ts.median(ts.asarray(a[1])), np.median(a[1]), 1e-10)
        close(self, ts.quantile(ts.asarray(a[1]), 0.3, axis=0), np.quantile(a[1], 0.3, axis=0), 1e-10)

    def test_running_reductions_and_counts_match_numpy(self):
        rng = np.random.default_rng(SEED)
        a = rng.normal(size=(3, 7))
        x = ts.asarray(a)
        close(self, ts.cumulative_prod(x, axis=1), np.cumprod(a, axis=1), 1e-10)
        close(self, ts.cumulative_prod(ts.asarray([2, 3]), include_initial=True), [1, 2, 6])
        close(self, ts.cumsum(x, axis=1), np.cumsum(a, axis=1), 1e-10)
        close(self, ts.cumprod(x, 0), np.cumprod(a, 0), 1e-10)
        close(self, ts.cumsum(x), np.cumsum(a), 1e-10)
        close(self, ts.cumprod(x.T), np.cumprod(a.T), 1e-10)
        self.assertEqual(ts.cumsum(ts.ones(2), dtype="int32").dtype, ts.int32)
        close(self, ts.cummax(x, axis=1), np.maximum.accumulate(a, axis=1))
        close(self, ts.cummin(x, axis=0), np.minimum.accumulate(a, axis=0))
        with self.assertRaisesRegex(ts.ShapeError, "cummax.*needs an axis"):
            ts.cummax(x)
        for mode in ("full", "same", "valid"):
            close(self, ts.convolve(x[0], x[1, :3], mode=mode), np.convolve(a[0], a[1, :3], mode), 1e-10)
        with self.assertRaisesRegex(ts.ArgumentError, "full, same, valid"):
            ts.convolve(x[0], x[1], mode="wrap")
        close(self, ts.bincount(ts.asarray([1, 1, 3]), minlength=6), [0, 2, 0, 1, 0, 0])
        counts, edges = ts.histogram(x, 4, (-2, 2))
        wanted = np.histogram(a, 4, (-2, 2))
        close(self, counts, wanted[0])
        close(self, edges, wanted[1])
        at, heights = np.asarray([0.0, 1.0, 3.0]), np.asarray([5.0, 7.0, -1.0])
        close(self, ts.interp(x, ts.asarray(at), ts.asarray(heights)), np.interp(a, at, heights), 1e-10)
        close(self, ts.kron(x, ts.asarray(a[:2, :2])), np.kron(a, a[:2, :2]), 1e-10)
        close(self, ts.update_slice(ts.zeros((2, 3)), ts.ones((1, 2)), (1, 1)), [[0, 0, 0], [0, 1, 1]])
        self.assertEqual(ts.max_pool2d(ts.arange(16, dtype="f32").reshape(1, 1, 4, 4), 2).tolist(), [[[[5, 7], [13, 15]]]])
        self.assertEqual(ts.average_pool2d(ts.ones((1, 1, 4, 4)), (2, 4), stride=2).shape, (1, 1, 2, 1))
        close(self, ts.rms_norm(ts.asarray([3.0, 4.0]), ts.ones(2), epsilon=0), np.asarray([3, 4]) / np.sqrt(12.5))

    def test_distributions(self):
        n = 20000
        for got, mean, deviation in [
            (ts.random_integers(n, seed=SEED, low=-3, high=7), 1.5, 33**0.5 / 2),
            (ts.random_exponential(n, seed=SEED, scale=2), 2, 2),
            (ts.random_gamma(n, seed=SEED, alpha=3, scale=2), 6, 12**0.5),
            (ts.random_beta(n, seed=SEED, a=2, b=3), 0.4, 0.2),
            (ts.random_poisson(n, seed=SEED, mean=4), 4, 2),
            (ts.random_binomial(n, seed=SEED, trials=10, probability=0.3), 3, 2.1**0.5),
            (ts.random_choice(3, n, seed=SEED, weights=[1, 0, 3]), 1.5, 0.75**0.5),
            (ts.random_multivariate_normal(ts.asarray([1.0]), ts.asarray([[4.0]]), n, seed=SEED), 1, 2),
        ]:
            values = got.numpy().astype("float64")
            self.assertLess(abs(values.mean() - mean), 6 * deviation / n**0.5, SEED)
            self.assertLess(abs(values.std() / deviation - 1), 0.1, SEED)
        self.assertEqual(sorted(ts.random_permutation(9, seed=SEED).tolist()), list(range(9)))
        self.assertEqual(len(set(ts.random_choice(9, 9, seed=SEED, replace=False).tolist())), 9)
        self.assertEqual(ts.random_integers((2, 3), seed=1, low=0, high=9, dtype="uint8").dtype, ts.uint8)
        self.assertEqual(ts.random_beta(2, seed=1, a=1, b=1, device="interp").device, "interp:0")
        for call in (lambda: ts.random_gamma(1, seed=1, alpha=-1), lambda: ts.random_poisson(1, seed=-1, mean=1),
                     lambda: ts.random_integers(1, seed=1, low=3, high=3)):  # fmt: skip
            with self.assertRaises(ts.ArgumentError):
                call()

    def test_shapes_match_numpy(self):
        a = np.arange(24).reshape(2, 3, 4)
        x = ts.asarray(a)
        close(self, ts.permute_dims(x, (2, 0, 1)), a.transpose(2, 0, 1))
        close(self, ts.moveaxis(x, (0, 1), (-1, 0)), np.moveaxis(a, (0, 1), (-1, 0)))
        close(self, ts.matrix_transpose(x), a.swapaxes(1, 2))
        close(self, x.mT, a.swapaxes(1, 2))
        close(self, ts.squeeze(ts.expand_dims(x, axis=1), 1), a)
        close(self, ts.concat([x, x], axis=None), np.concatenate([a, a], axis=None))
        close(self, ts.stack([x, x], axis=1), np.stack([a, a], axis=1))
        close(self, ts.unstack(x, axis=1)[2], a[:, 2])
        close(self, ts.flip(x, axis=1), np.flip(a, 1))
        close(self, ts.roll(x, (1, 2), axis=(0, 2)), np.roll(a, (1, 2), (0, 2)))
        close(self, ts.repeat(x, 2, axis=1), np.repeat(a, 2, 1))
        close(self, ts.repeat(x, ts.asarray([2, 0, 1]), axis=1), np.repeat(a, [2, 0, 1], 1))
        with self.assertRaisesRegex(ts.ShapeError, "repeat"):
            ts.repeat(x, ts.asarray([1, 2]), axis=1)
        close(self, ts.tile(x, (1, 2, 1)), np.tile(a, (1, 2, 1)))
        close(self, ts.pad(ts.asarray([1.0]), [(1, 2)], value=9), [9, 1, 9, 9])
        close(self, ts.broadcast_to(ts.asarray([1, 2]), (3, 2)), np.broadcast_to([1, 2], (3, 2)))
        self.assertEqual(ts.broadcast_shapes((3, 1), (2,), ()), (3, 2))
        self.assertEqual([p.shape for p in ts.split(x, [1, 2], axis=1)], [(2, 1, 4), (2, 2, 4)])
        close(self, ts.tril(x, k=1), np.tril(a, 1))
        for k in (-(2**70), -2, 0, 1, 2**70):
            close(self, ts.tril(x, k=k), np.tril(a, max(-9, min(k, 9))))
            close(self, ts.triu(x, k=k), np.triu(a, max(-9, min(k, 9))))
            close(self, ts.eye(2, 3, k=k), np.eye(2, 3, max(-9, min(k, 9))))
        close(self, ts.diff(x, axis=-1, n=2), np.diff(a, 2))
        close(self, ts.diff(x, axis=0, prepend=x[:1], append=x * 2), np.diff(a, axis=0, prepend=a[:1], append=a * 2))

    def test_sorting_and_linear_algebra_match_numpy(self):
        rng = np.random.default_rng(SEED)
        a = rng.integers(0, 9, (4, 6)).astype("int32")
        x = ts.asarray(a)
        close(self, ts.sort(x, axis=0), np.sort(a, 0))
        close(self, ts.sort(x, descending=True), -np.sort(-a))
        close(self, ts.argsort(x), np.argsort(a, kind="stable"))
        close(self, ts.argsort(x, descending=True), np.argsort(-a, kind="stable"))
        for axis in (0, -1):
            for kth in (1, (0, -1)):
                got = ts.partition(x, kth, axis=axis).numpy()
                close(self, ts.take(ts.asarray(got), ts.asarray(kth) % a.shape[axis], axis=axis), np.take(np.sort(a, axis), kth, axis))
                self.assertTrue((np.sort(got, axis) == np.sort(a, axis)).all())
                close(self, ts.take_along_axis(x, ts.argpartition(x, kth, axis=axis), axis=axis), got)
        self.assertEqual(ts.partition(ts.asarray([3, 1, 2]), 1)[1].item(), 2)
        for kth, axis in ((6, -1), (-7, -1), ((0, 4), 0), (0, 2)):
            with self.assertRaisesRegex(ts.ShapeError, "partition.*out of range"):
                ts.partition(x, kth, axis=axis)
        values, counts = ts.unique_counts(x)
        wanted = np.unique(a, return_counts=True)
        close(self, values, wanted[0])
        close(self, counts, wanted[1])
        close(self, ts.take(ts.unique_inverse(x).values, ts.unique_inverse(x).inverse_indices), a)
        every = ts.unique_all(x)
        for got, w in zip(every, np.unique(a, return_index=True, return_inverse=True, return_counts=True)):
            close(self, ts.reshape(got, (-1,)), np.ravel(w))
        with self.assertRaisesRegex(ts.ShapeError, "extents of axis"):
            ts.vecdot(ts.ones(3), ts.ones(1))
        close(self, ts.searchsorted(ts.asarray([1, 3, 5]), x), np.searchsorted([1, 3, 5], a))
        for got, w in zip(ts.nonzero(x > 4), np.nonzero(a > 4)):
            close(self, got, w)
        close(self, ts.isin(x, ts.asarray([1, 2]), invert=True), ~np.isin(a, [1, 2]))
        f = rng.normal(size=(2, 3, 4))
        g = rng.normal(size=(4, 3))
        close(self, ts.tensordot(ts.asarray(f), ts.asarray(g), axes=1), np.tensordot(f, g, 1), 1e-10)
        close(self, ts.tensordot(ts.asarray(f), ts.asarray(g), axes=((1, 2), (1, 0))), np.tensordot(f, g, ((1, 2), (1, 0))), 1e-10)  # fmt: skip
        close(self, ts.vecdot(ts.asarray(g), ts.asarray(g)), (g * g).sum(-1), 1e-10)
        close(self, ts.einsum("ijk,kl->il", ts.asarray(f), ts.asarray(g)), np.einsum("ijk,kl->il", f, g), 1e-10)
        s = g @ g.T + 4 * np.eye(4)
        close(self, ts.cholesky(ts.asarray(s)), np.linalg.cholesky(s), 1e-10)
        close(self, ts.outer(ts.asarray(g[0]), ts.asarray(g[1])), np.outer(g[0], g[1]), 1e-10)

    def test_products_of_integers_keep_their_dtype(self):
        for dtype in ("uint8", "int16", "int32", "int64"):  # sums wrap around
            small = np.arange(1, 7).reshape(2, 3).astype(dtype) * 50
            product = ts.asarray(small) @ ts.asarray(small.T.copy())
            self.assertEqual(str(product.dtype).split(".")[-1], dtype)
            self.assertTrue(np.array_equal(np.asarray(product), small @ small.T))

    def test_linear_algebra_matches_numpy(self):
        rng = np.random.default_rng(SEED)
        la, inf = ts.linalg, float("inf")
        for dtype, tolerance in (("float64", 1e-9), ("float32", 1e-3)):
            a = (rng.normal(size=(2, 4, 4)) + 3 * np.eye(4)).astype(dtype)
            b, tall, v = (rng.normal(size=s).astype(dtype) for s in ((2, 4, 3), (2, 5, 3), (4,)))
            s = a @ a.swapaxes(1, 2)
            A, B, T, S, V = (ts.asarray(z) for z in (a, b, tall, s, v))
            for got, wanted in [
                (la.solve(A, B), np.linalg.solve(a, b)), (la.solve(A[0], V), np.linalg.solve(a[0], v)),
                (la.inv(A), np.linalg.inv(a)), (la.det(A), np.linalg.det(a)), (la.svdvals(T), np.linalg.svd(tall, compute_uv=False)),
                (la.eigvalsh(S), np.linalg.eigvalsh(s)), (la.cholesky(S), np.linalg.cholesky(s)),
                (la.cholesky(S, upper=True), np.linalg.cholesky(s).swapaxes(1, 2)), (la.pinv(T), np.linalg.pinv(tall)),
                (la.matrix_rank(T), [3, 3]), (la.matrix_rank(S, rtol=2.0), [0, 0]),
                (la.matrix_rank(S, rtol=ts.asarray([2.0, 1e-6])), [0, 4]), (la.pinv(T, rtol=ts.asarray([1e-6, 1e-6])), np.linalg.pinv(tall)),
                (la.solve(A, B.astype("float64")), np.linalg.solve(a, b)), (la.matrix_power(A, 3), np.linalg.matrix_power(a, 3)),
                (la.matrix_power(A, -2), np.linalg.matrix_power(a, -2)), (la.cond(A), np.linalg.cond(a)),
                (la.cond(A, 1), np.linalg.cond(a, 1)), (la.vector_norm(A), np.linalg.norm(a.ravel())),
                (la.vector_norm(A, axis=(0, 2), ord=1, keepdims=True), abs(a).sum((0, 2), keepdims=True)),
                (la.vector_norm(A, axis=1, ord=-inf), abs(a).min(1)), (la.cross(T, T + 1), np.cross(tall, tall + 1)),
                (la.vecdot(A, A), (a * a).sum(-1)), (la.trace(A), np.trace(a, axis1=1, axis2=2)), (la.outer(V, V), np.outer(v, v)),
                (la.matmul(A, B), a @ b), (la.matrix_transpose(T), tall.swapaxes(1, 2)), (la.tensordot(A[0], B[0], axes=1), np.tensordot(a[0], b[0], 1)),
                (la.diagonal(A, offset=1), np.diagonal(a, 1, 1, 2)), (la.kron(V, V), np.kron(v, v)),
                (la.solve_triangular(la.cholesky(S)[0], V), np.linalg.solve(np.linalg.cholesky(s)[0], v)),
            ]:  # fmt: skip
                close(self, got, wanted, tolerance)
            for ord in ("fro", "nuc", 1, -1, 2, -2, inf, -inf):
                close(self, la.matrix_norm(T, ord=ord), [np.linalg.norm(m, ord) for m in tall], tolerance)
            self.assertEqual(la.matrix_norm(T, keepdims=True).shape, (2, 1, 1))
            q, r = la.qr(T)
            close(self, q @ r, tall, tolerance)
            self.assertEqual(la.qr(T, mode="complete").Q.shape, (2, 5, 5))
            w, vectors = la.eigh(S)
            close(self, vectors @ (w[..., None] * vectors.mT), s, 10 * tolerance)
            full, thin = la.svd(T), la.svd(T, full_matrices=False)
            self.assertEqual((full.U.shape, thin.U.shape, full.Vh.shape), ((2, 5, 5), (2, 5, 3), (2, 3, 3)))
            close(self, thin.U @ (thin.S[..., None] * thin.Vh), tall, tolerance)
            sign, logarithm = la.slogdet(A)
            close(self, sign * ts.exp(logarithm), np.linalg.det(a), tolerance)
            best = la.lstsq(T[0], B[0, :, :1].reshape(4)[ts.asarray([0, 1, 2, 3, 0])])
            close(self, best.x, np.linalg.lstsq(tall[0], b[0, [0, 1, 2, 3, 0], 0], rcond=None)[0], tolerance)
            self.assertEqual((best.rank.item(), best.singular_values.shape), (3, (3,)))
            rows, lower, upper = la.lu(A[0])
            close(self, lower @ upper, a[0][rows.numpy()], tolerance)
        gradient = ts.grad(lambda x: ts.sum(la.inv(x)))(ts.asarray(np.eye(2)))
        close(self, gradient, -np.ones((2, 2)))
        for call, kind in ((lambda: la.inv(ts.zeros((2, 2))), ts.ArgumentError), (lambda: la.svd(ts.zeros(3)), ts.ShapeError),
                           (lambda: la.det(ts.zeros((2, 2), dtype="int32")), ts.DtypeError), (lambda: la.cross(V, V), ts.ShapeError),
                           (lambda: la.matrix_norm(A, ord="max"), ts.ArgumentError), (lambda: la.matrix_norm(A, ord=3), ts.ArgumentError),
                           (lambda: la.qr(A, mode="r"), ts.ArgumentError), (lambda: la.solve([1], V), TypeError)):  # fmt: skip
            with self.assertRaises(kind):
                call()

    def test_dtype_information(self):
        for name in FLOATS:
            self.assertEqual(ts.finfo(getattr(ts, name)).eps, np.finfo(name).eps)
            self.assertEqual(ts.finfo(getattr(ts, name)).max, float(np.finfo(name).max))
        for name in INTEGERS:
            self.assertEqual(ts.iinfo(getattr(ts, name)).min, np.iinfo(name).min)
        self.assertTrue(ts.isdtype(ts.int8, "signed integer"))
        self.assertTrue(ts.can_cast(ts.int8, ts.int16))
        self.assertFalse(ts.can_cast(ts.int32, ts.int16))
        self.assertEqual(ts.result_type(ts.int8, ts.uint8), ts.int16)
        self.assertEqual(ts.result_type(ts.asarray([1]), 2.5), ts.float32)
        self.assertIn("float32", ts.__array_namespace_info__().dtypes(kind="real floating"))
        with self.assertRaises(ts.DtypeError):
            ts.finfo(ts.int32)

    def test_invalid_arguments_raise(self):
        for call in [
            lambda: ts.sum(ts.zeros(2), axis=5),
            lambda: ts.prod(ts.zeros(2), axis=5),
            lambda: ts.prod(ts.ones((2, 3)), axis=(0, -2)),
            lambda: ts.moveaxis(ts.zeros((2, 3)), 2, 0),
            lambda: ts.moveaxis(ts.zeros((2, 3)), 0, -3),
            lambda: ts.moveaxis(ts.zeros((2, 3)), (0, 1), 0),
            lambda: ts.squeeze(ts.zeros((1, 3)), 2),
            lambda: ts.unstack(ts.zeros(2), axis=1),
            lambda: ts.vecdot(ts.zeros(2), ts.zeros(2), axis=4),
            lambda: ts.tensordot(ts.ones((2, 3)), ts.ones((3, 2)), axes=3),
            lambda: ts.tensordot(ts.ones((2, 3)), ts.ones((3, 2)), axes=((5,), (0,))),
            lambda: ts.tensordot(ts.ones((2, 3)), ts.ones((3, 2)), axes=((1,), (0, 1))),
            lambda: ts.repeat(ts.zeros(2), -1),
            lambda: ts.repeat(ts.zeros(2), ts.asarray([1, -1])),
            lambda: ts.repeat(ts.zeros(2), ts.asarray([1, 1]), axis=3),
            lambda: ts.reshape(ts.zeros(6), (4, 2)),
            lambda: ts.matmul(ts.zeros((2, 3)), ts.zeros((2, 3))),
            lambda: ts.concat([]),
            lambda: ts.logical_and(ts.zeros(2), ts.zeros(2)),
            lambda: ts._core.apply("no such operation"),
            lambda: ts._core.apply("sum", ts.zeros(2), axis=1),
        ]:
            with self.assertRaises(ts.Error):
                call()
        with self.assertRaisesRegex(TypeError, "sum takes arrays"):
            ts.sum([1, 2])

    def test_messages_advise_python(self):
        with self.assertRaisesRegex(ts.DeviceError, r"Move one with \.?to_device\("):
            ts.zeros(2) + ts.zeros(2, device="interp")
        with self.assertRaisesRegex(ts.DeviceError, r"to_device\(\.\.\.\)"):
            ts.zeros((2, 2)) @ ts.zeros((2, 2), device="interp")
        with self.assertRaisesRegex(ts.ArgumentError, "replace=True"):
            ts.random_choice(2, 3, seed=1, replace=False)

    def test_files(self):
        import os
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x.npy")
            ts.save(ts.arange(4), path)
            self.assertEqual(np.load(path).tolist(), [0, 1, 2, 3])
            self.assertEqual(ts.load(path).tolist(), [0, 1, 2, 3])
            with self.assertRaisesRegex(ts.MissingFile, "does not exist|No such file"):
                ts.load(path + "x")
            self.assertTrue(issubclass(ts.MissingFile, FileNotFoundError) and issubclass(ts.MissingFile, ts.ArgumentError))
            missing = os.path.join(folder, "a", "b", "x.npy")
            with self.assertRaisesRegex(FileNotFoundError, f"the folder {os.path.dirname(missing)} does not exist"):
                ts.save(ts.arange(4), missing)
            self.assertEqual(os.listdir(folder), ["x.npy"])
            with self.assertRaisesRegex(TypeError, r"save\(array, path\)"):
                ts.save(path, ts.arange(4))
            mapped = ts.load(path, mmap=True)
            mapped += 1
            self.assertEqual((mapped.tolist(), ts.load(path).tolist()), ([1, 2, 3, 4], [0, 1, 2, 3]))
            with self.assertRaisesRegex(TypeError, "omit device"):
                ts.load(path, mmap=True, device="cpu")
            archive, theirs = os.path.join(folder, "x.npz"), os.path.join(folder, "y.npz")
            for save, numpy_save in ((ts.savez, np.savez), (ts.savez_compressed, np.savez_compressed)):
                save(archive, ts.arange(4), weight=ts.ones((2, 3), dtype=ts.float64))
                with np.load(archive) as read:
                    self.assertEqual(sorted(read.files), ["arr_0", "weight"])
                    self.assertEqual(read["arr_0"].tolist(), [0, 1, 2, 3])
                    self.assertEqual((read["weight"].dtype, read["weight"].shape), (np.float64, (2, 3)))
                numpy_save(theirs, np.arange(4), weight=np.asfortranarray(np.arange(6.0).reshape(2, 3)))
                read = ts.load(theirs)
                self.assertEqual(read["weight"].tolist(), [[0, 1, 2], [3, 4, 5]])
                self.assertEqual(read["arr_0"].tolist(), [0, 1, 2, 3])
            with self.assertRaisesRegex(TypeError, "'a' must be an Array, not list"):
                ts.savez(archive, a=[1])
            with open(path, "w") as file:
                file.write("no array")
            with self.assertRaises(ts.FormatError):
                ts.load(path)


if __name__ == "__main__":
    unittest.main()
