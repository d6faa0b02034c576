# SPDX-License-Identifier: Apache-2.0
"""Tests DLPack and host memory with NumPy, lifetimes, threads, and the C interface through ctypes."""

import ctypes
import gc
import importlib.util
import os
import random
import subprocess
import sys
import threading
import unittest
import weakref

import numpy as np

import tessera as ts

SEED = random.SystemRandom().randrange(2**32)


class Dlpack(unittest.TestCase):
    def test_numpy_memory_is_shared_in_both_directions(self):
        a = np.arange(6, dtype="float32").reshape(2, 3)
        x = ts.from_dlpack(a)
        a[0, 0] = 50
        self.assertEqual(x[0, 0].item(), 50)
        x[1, 2] = 60
        self.assertEqual(a[1, 2], 60)
        b = np.from_dlpack(x)
        self.assertEqual(b.__array_interface__["data"][0], a.__array_interface__["data"][0])
        y = ts.zeros(4)
        c = np.from_dlpack(y)  # read-only in NumPy 1
        y[1] = 5
        self.assertEqual(c.tolist(), [0, 5, 0, 0])

    def test_views_and_dtypes(self):
        a = np.arange(24, dtype="int16").reshape(4, 6)
        np.testing.assert_array_equal(ts.from_dlpack(a.T).numpy(), a.T)
        np.testing.assert_array_equal(ts.from_dlpack(a[1::2, ::3]).numpy(), a[1::2, ::3])
        for name in ["int8", "uint8", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"]:
            self.assertEqual(ts.from_dlpack(np.ones(3, name)).dtype.name, name)
            self.assertEqual(np.from_dlpack(ts.ones(3, dtype=name)).dtype.name, name)
        with self.assertRaises(ts.DtypeError):
            ts.from_dlpack(np.ones(3, "complex64"))

    def test_the_versioned_form_and_its_arguments(self):
        x = ts.arange(3)
        self.assertIn("dltensor_versioned", repr(x.__dlpack__(max_version=(1, 0))))
        self.assertIn('"dltensor"', repr(x.__dlpack__()))
        self.assertEqual(x.__dlpack_device__(), (1, 0))

        class Versioned:
            def __dlpack__(self, *, max_version=None, stream=None):
                return x.__dlpack__(max_version=max_version)

            def __dlpack_device__(self):
                return x.__dlpack_device__()

        y = ts.from_dlpack(Versioned())
        y[0] = 9
        self.assertEqual(x.tolist(), [9, 1, 2])
        z = ts.from_dlpack(Versioned(), copy=True)
        z[0] = 1
        self.assertEqual(x.tolist(), [9, 1, 2])
        with self.assertRaises(BufferError):
            x.__dlpack__(dl_device=(2, 0))
        capsule = x.__dlpack__()
        ts._core.from_capsule(capsule, None, False)
        with self.assertRaises(ValueError):  # a capsule can be used once
            ts._core.from_capsule(capsule, None, False)

    def test_owners_live_as_long_as_they_are_needed(self):
        rng = random.Random(SEED)
        counts = {"made": 0, "freed": 0}
        held = []

        def freed(_):
            counts["freed"] += 1

        references = []
        for _ in range(2000):
            kind = rng.randrange(3)
            if kind == 0:
                a = np.full(rng.randrange(1, 50), rng.randrange(100), "int32")
                x = ts.from_dlpack(a)
                references.append(weakref.ref(a, freed))
                counts["made"] += 1
                held.append((x, int(a[0])))
                del a
            elif kind == 1 and held:
                x, value = held.pop(rng.randrange(len(held)))
                self.assertEqual(x[0].item(), value)
                if rng.random() < 0.5:
                    held.append((ts.from_dlpack(x), value))
            elif held:
                x, value = rng.choice(held)
                y = x + 1
                self.assertEqual(y[0].item(), value + 1)
        for x, value in held:
            self.assertEqual(x[0].item(), value, SEED)
        del x, y
        held.clear()
        ts.synchronize()
        gc.collect()
        ts.from_dlpack(np.zeros(1))  # returns tensors that were freed without the GIL
        self.assertEqual(counts["freed"], counts["made"], SEED)

    def test_arrays_of_numpy_are_copied_by_asarray(self):
        a = np.arange(3.0)
        x = ts.asarray(a)
        a[0] = 9
        self.assertEqual(x.tolist(), [0, 1, 2])
        self.assertEqual(ts.asarray(a[::-1]).tolist(), [2, 1, 9])
        self.assertEqual(np.asarray(x).tolist(), [0, 1, 2])
        self.assertEqual(np.asarray(x, dtype="int8").dtype, np.int8)
        read_only = np.arange(3)
        read_only.flags.writeable = False
        self.assertEqual(ts.asarray(read_only).tolist(), [0, 1, 2])
        if int(np.__version__.split(".")[0]) >= 2:  # NumPy 1 does not export such arrays
            self.assertEqual([np.shares_memory(np.from_dlpack(ts.from_dlpack(read_only, copy=c)), read_only) for c in (None, False)],
                             [False, True])  # fmt: skip
        with self.assertRaises(ts.ArgumentError):
            ts.asarray(a, copy=False)
        for dtype in (">f4", ">f8", ">i2", ">i8", ">u4", "<f4", "<i4"):
            b = np.asarray([[1, 2], [3, 250]], dtype)[:, ::-1]
            x = ts.asarray(b)
            self.assertEqual((x.dtype.name, x.tolist()), (b.dtype.name, b.tolist()), dtype)
        with self.assertRaisesRegex(TypeError, "no mask"):
            ts.asarray(np.ma.masked_array([1, 2], [True, False]))


    @unittest.skipUnless(importlib.util.find_spec("torch"), "torch is not installed")
    def test_pytorch_shares_memory_in_both_directions(self):
        import torch

        for name in ["bool", "int8", "uint8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]:
            tensor = torch.arange(12).reshape(3, 4).to(getattr(torch, name))
            for view in (tensor, tensor.T, tensor[1:, ::2], tensor[1, 2], tensor[:0]):
                x = ts.from_dlpack(view)
                back = torch.from_dlpack(x)
                self.assertEqual((x.dtype.name, x.shape, x.tolist()), (name, tuple(view.shape), view.tolist()))
                self.assertEqual((back.tolist(), back.data_ptr()), (view.tolist(), view.data_ptr()))
        tensor = torch.zeros(4)
        x = ts.from_dlpack(tensor)
        tensor[1] = 5
        x[2] = 6
        self.assertEqual((x.tolist(), tensor.tolist()), ([0, 5, 6, 0], [0, 5, 6, 0]))
        del tensor
        self.assertEqual((x + 1).tolist(), [1, 6, 7, 1])
        tensor = torch.utils.dlpack.from_dlpack((x * 2).__dlpack__())  # the memory of a temporary array
        self.assertEqual((tensor.tolist(), ts.asarray(tensor).tolist()), ([0, 10, 12, 0], [0, 10, 12, 0]))
        with self.assertRaisesRegex(BufferError, "require"):
            ts.from_dlpack(torch.zeros(1, requires_grad=True))
        with self.assertRaises(ts.DtypeError):
            ts.from_dlpack(torch.zeros(1, dtype=torch.complex64))

    def test_buffers_with_gaps_are_rejected(self):
        a = np.arange(12, dtype="float32").reshape(3, 4)
        x = ts._core.from_buffer(a, "f32", (12,), None)
        self.assertEqual(x.tolist(), a.ravel().tolist())
        for view in (a[:, ::2], a.T, a[::-1]):
            with self.assertRaisesRegex(ts.ArgumentError, "from_buffer.*row-major"):
                ts._core.from_buffer(view, "f32", view.shape, None)
            before = a.copy()
            with self.assertRaisesRegex(ts.ArgumentError, "read_into.*row-major"):
                ts._core.read_into(ts.zeros(view.shape), view)
            np.testing.assert_array_equal(a, before)
        ts._core.read_into(ts.zeros(12), a)
        self.assertEqual(a.tolist(), np.zeros((3, 4)).tolist())


class Threads(unittest.TestCase):
    def test_many_threads_compute_at_once(self):
        wrong = []

        def work(number):
            x = ts.full((50,), float(number))
            for i in range(100):
                y = ts.sum((x + i) * 2)
                if y.item() != 100 * (number + i):
                    wrong.append((number, i))

        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(wrong, [])

    def test_other_threads_run_while_a_thread_waits(self):
        n = 700
        a = ts.random_normal((n, n), seed=1)
        counted = 0
        done = threading.Event()

        def multiply():
            x = a
            for _ in range(8):
                x = (x @ a) * (1 / n)
            x.eval()
            ts.synchronize()
            done.set()

        thread = threading.Thread(target=multiply)
        thread.start()
        while not done.is_set():
            counted += 1
        thread.join()
        self.assertGreater(counted, 100)


class Processes(unittest.TestCase):
    def run_python(self, code):
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)

    def test_a_fork_is_refused_with_a_sentence(self):
        result = self.run_python(
            "import os, tessera as ts\n"
            "(ts.ones(3) + 1).eval()\n"
            "pid = os.fork()\n"
            "if pid == 0:\n"
            "    try:\n"
            "        (ts.ones(3) + 1).eval()\n"
            "        print('computed', flush=True)\n"
            "    except ts.Error as error:\n"
            "        print('refused:', error, flush=True)\n"
            "    os._exit(0)\n"
            "os.waitpid(pid, 0)\n"
        )
        self.assertIn("fork", result.stdout + result.stderr)

    def test_programs_end_cleanly_with_live_arrays(self):
        result = self.run_python("import tessera as ts\nx = ts.ones(1000) + 1\ny = (x * 2).eval()\nprint(y[0].item())\n")
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "4.0\n", ""))


class InterfaceForC(unittest.TestCase):
    def test_computes_what_python_computes(self):
        path = os.environ.get("TESSERA_LIBRARY")
        if path is None:
            self.skipTest("TESSERA_LIBRARY is not set")
        c = ctypes.CDLL(path)
        c.tessera_last_error.restype = ctypes.c_char_p
        values = np.array([1, 2, 3], "float32")
        array, result, count = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t(1)
        shape = (ctypes.c_int64 * 1)(3)
        data = values.ctypes.data_as(ctypes.c_void_p)
        self.assertEqual(c.tessera_array_create(data, 11, shape, ctypes.c_size_t(1), None, ctypes.byref(array)), 0)
        operands = (ctypes.c_void_p * 1)(array)
        self.assertEqual(c.tessera_apply(b"exp", operands, ctypes.c_size_t(1), None, ctypes.c_size_t(0),
                                         ctypes.byref(result), ctypes.byref(count)), 0)  # fmt: skip
        out = np.empty(3, "float32")
        self.assertEqual(c.tessera_array_read(result, out.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(12)), 0)
        self.assertEqual(out.tolist(), ts.exp(ts.asarray(values)).tolist())
        self.assertEqual(c.tessera_array_read(result, None, ctypes.c_size_t(12)), 9)
        self.assertIn(b"NULL", c.tessera_last_error())
        c.tessera_array_free(result)
        c.tessera_array_free(array)


if __name__ == "__main__":
    unittest.main()
