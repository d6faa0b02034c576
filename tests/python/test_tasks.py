# SPDX-License-Identifier: Apache-2.0
"""Tests tasks and regions: order by accesses, results, errors, cancellation, the GIL, and the end of the interpreter."""

import random
import subprocess
import sys
import threading
import time
import traceback
import unittest

import numpy as np

import tessera as ts
from tessera import kernels as tk
from tessera import tasks

SEED = random.SystemRandom().randrange(2**32)


def add_to(y, x):
    y += x


class Tasks(unittest.TestCase):
    def test_results_are_passed_to_tasks(self):
        a = tasks.spawn(lambda: ts.arange(10) * ts.arange(10))
        b = tasks.spawn(lambda x, more, *, scale: int(ts.sum(x)) * scale + more["one"], a, {"one": tasks.spawn(lambda: 1)}, scale=2)
        self.assertEqual(b.result(), 571)
        self.assertTrue(a.ended() and b.ended())
        self.assertEqual(a.result().tolist(), [n * n for n in range(10)])
        self.assertEqual(tasks.spawn(lambda: None, name="nothing").name, "nothing")
        device = tasks.spawn(lambda: ts.current_device(), device="interp")
        self.assertEqual((device.result(), device.device), ("interp:0", "interp:0"))

    def test_regions_keep_the_order_of_conflicting_tasks(self):
        rng = random.Random(SEED)
        for _ in range(5):
            arrays = [ts.asarray([float(n)]) for n in range(4)]
            wanted = [float(n) for n in range(4)]
            with tasks.Region() as region:
                for _ in range(40):
                    i, j, k = rng.sample(range(4), 3)
                    if rng.random() < 0.5:
                        region.spawn(add_to, tasks.inout(arrays[i]), arrays[j])
                        wanted[i] += wanted[j]
                    else:
                        def write(z, x, y):
                            z[...] = x * 0.5 - y

                        region.spawn(write, tasks.out(arrays[k]), arrays[i], tasks.in_(arrays[j]))
                        wanted[k] = wanted[i] * 0.5 - wanted[j]
            np.testing.assert_allclose([a.item() for a in arrays], wanted, rtol=1e-4, err_msg=str(SEED))
        total = ts.zeros(3)
        with tasks.Region() as region:
            for part in ts.ones((20, 3)):
                region.spawn(add_to, tasks.commute(total), part)
        self.assertEqual(total.tolist(), [20, 20, 20])

    def test_kernels_write_their_parameters(self):
        @tk.kernel
        def saxpy(x: tk.In("f32"), y: tk.InOut("f32"), a: tk.Scalar("f32")):
            i = tk.global_id()
            y[i] = a * x[i] + y[i]

        x, y = ts.ones(5), ts.ones(5)
        with tasks.Region() as region:
            for _ in range(3):
                region.spawn(saxpy, 5, x, y, 2.0)
            region.spawn(saxpy, 5, y, x, 1.0)
        self.assertEqual((y.tolist(), x.tolist()), ([7] * 5, [8] * 5))

    def test_exceptions_pass_through(self):
        def fails(x):
            raise KeyError("mine")

        x = ts.zeros(2)
        broken = tasks.spawn(fails, x)
        try:
            broken.result()
            self.fail("no exception")
        except KeyError as error:
            self.assertIn("mine", str(error))
            self.assertIn("fails", [frame.name for frame in traceback.extract_tb(error.__traceback__)])
        ran = []
        with self.assertRaisesRegex(KeyError, "mine"):
            tasks.spawn(ran.append, tasks.spawn(fails, x)).wait()
        with self.assertRaisesRegex(KeyError, "mine"):
            with tasks.Region() as region:
                region.spawn(fails, tasks.inout(x))
                region.spawn(lambda x: ran.append(1), x)
        self.assertEqual(ran, [])
        with self.assertRaises(ts.ShapeError):
            tasks.spawn(lambda x: x + ts.zeros(3), x).result()
        with self.assertRaisesRegex(ts.ArgumentError, r"passed as in_\(x\)"):
            with tasks.Region() as region:
                region.spawn(add_to, x, ts.ones(2))
        with self.assertRaisesRegex(ZeroDivisionError, "block"):
            with tasks.Region() as region:
                region.spawn(fails, x)
                raise ZeroDivisionError("block")
        for call in (lambda: tasks.spawn(3), lambda: tasks.inout(3), lambda: tasks.out([1.0])):
            with self.assertRaises(TypeError):
                call()
        with self.assertRaises(ts.DeviceError):
            tasks.spawn(lambda: 1, device="metal")

    def test_cancelled_tasks_do_not_run(self):
        begun, go, ran = threading.Event(), threading.Event(), []

        def first():
            begun.set()
            go.wait()

        one = tasks.spawn(first)
        two = tasks.spawn(lambda _: ran.append(1), one)
        begun.wait()
        self.assertTrue(two.cancel())
        self.assertFalse(one.cancel())
        go.set()
        with self.assertRaises(ts.TaskError):
            two.result()
        self.assertEqual(ran, [])

    def test_the_gil_is_released_while_threads_wait(self):
        @tk.kernel
        def copy(x: tk.In("f32"), y: tk.InOut("f32")):
            y[tk.global_id()] = x[tk.global_id()]

        x = ts.zeros(1000)
        for operation in (lambda: x.tolist(), lambda: (x + 1).tolist(), lambda: x.__iadd__(1), lambda: x.__setitem__(0, 1.0), lambda: x[x > 9],
                          lambda: ts.sum(x).item(), lambda: x.reshape(10, 100).T.reshape(1000), lambda: np.from_dlpack(x), lambda: repr(x),
                          lambda: ts.exp(x).eval(), lambda: x.copy(), lambda: -x, lambda: x == 1,
                          lambda: copy(1000, x + 1, ts.zeros(1000))):  # fmt: skip
            with tasks.Region() as region:

                def slow(y):
                    for _ in range(3):
                        y += 1
                        time.sleep(0.005)

                region.spawn(slow, tasks.inout(x))
                operation()  # waits for the task, which needs the GIL
        begin = time.perf_counter()
        for t in [tasks.spawn(time.sleep, 0.1) for _ in range(2)]:
            t.wait()
        self.assertLess(time.perf_counter() - begin, 5)

    def test_programs_end_with_unfinished_tasks(self):
        code = ("import tessera as ts, time\nfrom tessera import tasks\n"
                "def slow(x):\n    time.sleep(0.1)\n    print('ran\\n', end='', flush=True)\n    raise ValueError('mine')\n"
                "region = tasks.Region()\nregion.spawn(slow, ts.ones(3))\ntasks.spawn(slow, ts.ones(3))\n")  # fmt: skip
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        self.assertEqual((result.returncode, result.stdout), (0, "ran\nran\n"), result.stderr)
        self.assertIn("mine", result.stderr)


if __name__ == "__main__":
    unittest.main()
