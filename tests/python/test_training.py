# SPDX-License-Identifier: Apache-2.0
"""Tests gradients, kernels, layers and training."""

import gc
import os
import random
import tempfile
import unittest
import weakref
from dataclasses import dataclass

import numpy as np

import tessera as ts
from tessera import kernels as tk
from tessera import nn

SEED = random.SystemRandom().randrange(2**32)


class Gradients(unittest.TestCase):
    def test_match_central_differences(self):
        rng = np.random.default_rng(SEED)
        x, w = rng.normal(size=(3, 4)), rng.normal(size=(4, 2))

        def loss(x, w):
            return ts.mean(ts.tanh(x @ w) ** 2 + ts.softmax(x @ w))

        value, (dx, dw) = ts.value_and_grad(loss, (0, 1))(ts.asarray(x), ts.asarray(w))
        self.assertAlmostEqual(value.item(), loss(ts.asarray(x), ts.asarray(w)).item())
        for which, gradient in ((0, dx), (1, dw)):
            for at in np.ndindex(gradient.shape):
                values = []
                for step in (1e-5, -1e-5):
                    moved = [x.copy(), w.copy()]
                    moved[which][at] += step
                    values.append(loss(*map(ts.asarray, moved)).item())
                self.assertAlmostEqual(gradient[at].item(), (values[0] - values[1]) / 2e-5, places=7, msg=SEED)

    def test_structures_and_several_results(self):
        @dataclass
        class Weights:
            a: ts.Array
            more: dict

        weights = Weights(ts.asarray([1.0, 2.0]), {"b": [ts.asarray(3.0)], "n": ts.asarray([1, 2])})

        def f(w, x, scale=1.0):
            y = ts.sum(w.a * x) * w.more["b"][0] * scale
            return y, {"twice": 2 * y}

        (value, more), gradient = ts.value_and_grad(f)(weights, ts.asarray([10.0, 20.0]), scale=2.0)
        self.assertEqual((value.item(), more["twice"].item()), (300, 600))
        self.assertEqual(gradient.a.tolist(), [60, 120])
        self.assertEqual(gradient.more["b"][0].item(), 100)
        self.assertIsNone(gradient.more["n"])

    def test_nested_gradients_pullbacks_and_stops(self):
        second = ts.grad(lambda x: ts.sum(ts.grad(lambda y: ts.sum(y**3))(x)))
        self.assertEqual(second(ts.asarray([1.0, 2.0])).tolist(), [6, 12])
        value, back = ts.pullback(lambda x: x * x, ts.asarray([1.0, 2.0]))
        self.assertEqual(value.tolist(), [1, 4])
        self.assertEqual(back(ts.asarray([1.0, 10.0])).tolist(), [2, 40])
        self.assertEqual(back(ts.asarray([0.0, 1.0])).tolist(), [0, 4])
        self.assertEqual(ts.grad(lambda x: ts.sum(x * ts.stop_gradient(x)))(ts.asarray([3.0])).tolist(), [3])

    def test_floats_and_arrays_of_numpy_are_converted(self):
        def square(x):
            return ts.sum(x * x)

        self.assertEqual(ts.grad(square)(3.0).item(), 6)
        self.assertEqual(ts.grad(square)(np.asarray([1.0, 2.0])).tolist(), [2, 4])
        gradient = ts.grad(lambda w: ts.sum(w["a"] * w["s"]))({"a": ts.ones(3), "s": 2.0, "n": 3, "name": "x"})
        self.assertEqual((gradient["a"].tolist(), gradient["s"].item()), ([2, 2, 2], 3))
        self.assertEqual((gradient["n"], gradient["name"]), (None, "x"))
        value, back = ts.pullback(square, 3.0)
        self.assertEqual((value.item(), back(ts.asarray(10.0)).item()), (9, 60))
        for x in (3, True, None, ts.arange(3), np.arange(3), {"n": ts.arange(3)}, nn.Linear(2, 3)):
            with self.assertRaisesRegex(TypeError, "argument 0 is .* contains no floats"):
                ts.grad(square)(x)

    def test_errors(self):
        with self.assertRaises(ts.ShapeError):
            ts.grad(lambda x: x * 2)(ts.ones(3))
        with self.assertRaises(TypeError):
            ts.grad(lambda x: 3)(ts.ones(3))
        with self.assertRaises(ts.ArgumentError):
            ts.grad(lambda x: ts.sum(x), 2)(ts.ones(3))
        with self.assertRaisesRegex(ZeroDivisionError, "mine"):
            def f(x):
                raise ZeroDivisionError("mine")
            ts.grad(f)(ts.ones(3))


@tk.kernel
def saxpy(x: tk.In("f32"), y: tk.InOut("f32"), a: tk.Scalar("f32")):
    """y = a x + y"""
    i = tk.global_id()
    y[i] = a * x[i] + y[i]


@tk.kernel(block=64)
def sums(x: tk.In(ts.float32), out: tk.InOut(ts.float32)):
    total = tk.Variable("f32")

    @tk.for_(tk.global_id(), x.size, tk.block_size() * tk.block_count())
    def _(i):
        total.value = total.value + x[i]

    whole = tk.block_sum(total.value)

    @tk.if_(tk.thread_id() == 0)
    def _():
        out[tk.block_id()] = whole


class Kernels(unittest.TestCase):
    def test_run_on_every_kind_of_launch(self):
        x, y = ts.arange(5, dtype="float32"), ts.ones(5)
        saxpy(5, x, y, 2.0)
        self.assertEqual(y.tolist(), [1, 3, 5, 7, 9])
        saxpy((5,), x, y, 1)
        self.assertEqual(y.tolist(), [1, 4, 7, 10, 13])
        data = ts.random_uniform(1000, seed=SEED)
        out = ts.zeros(3)
        sums(3, data, out)
        self.assertAlmostEqual(float(ts.sum(out)), float(ts.sum(data)), places=2)
        self.assertEqual(saxpy.__doc__, "y = a x + y")

    def test_control_flow_and_functions(self):
        @tk.kernel
        def collatz(x: tk.In("i32"), out: tk.InOut("i32"), most: int):
            i = tk.global_id()
            n, steps = tk.Variable("i32", x[i]), tk.Variable("i32")

            @tk.while_(lambda: (n.value != 1) & (steps.value < tk.cast("i32", most)))
            def _():
                odd = n.value % 2 == 1
                n.value = tk.select(odd, 3 * n.value + 1, n.value // 2)
                steps.value = steps.value + 1

            out[i] = steps.value

        x = ts.asarray([1, 2, 3, 7, 27], dtype="int32")
        out = ts.zeros(5, dtype="int32")
        collatz(5, x, out, 1000)
        self.assertEqual(out.tolist(), [0, 1, 7, 16, 111])

        @tk.kernel
        def functions(x: tk.In("f32"), out: tk.InOut("f32")):
            i = tk.global_id()
            v = x[i]
            out[i] = tk.min(tk.sqrt(v), 3.0) + tk.exp(-v) * tk.max(v, 1) + abs(-v) + tk.fma(v, 2.0, 1.0) + v**2
        v = np.linspace(0.5, 20, 9).astype("float32")
        out = ts.zeros(9)
        functions(9, ts.asarray(v), out)
        wanted = np.minimum(np.sqrt(v), 3) + np.exp(-v) * np.maximum(v, 1) + v + v * 2 + 1 + v**2
        np.testing.assert_allclose(out.numpy(), wanted, rtol=1e-5)

    def test_launches_with_too_many_threads_raise(self):
        @tk.kernel(block=4)
        def clipped(x: tk.In("f32"), a: tk.Scalar("f32"), y: tk.InOut("f32")):
            i = tk.global_id()
            y[i] = a

            @tk.if_(i < x.size)
            def _():
                y[i] = x[i]

        y = ts.zeros(8)
        clipped(2, ts.ones(1), 2.0, y)
        self.assertEqual(y.tolist(), [1] + [2] * 7)
        with self.assertRaisesRegex(ts.KernelError, "8 threads access the elements of 'y', which has 7"):
            clipped(2, ts.ones(1), 2.0, ts.zeros(7))
        for shape in (-1, [2, -1], ts.ones(2), "2", None):
            with self.assertRaisesRegex(TypeError, "clipped.*number of threads") as caught:
                clipped(shape, ts.ones(1), 2.0, y)
            self.assertLess(len(str(caught.exception)), 200)

    def test_the_text_form_is_read_again(self):
        again = tk.parse(saxpy.text)
        self.assertEqual(again.text, saxpy.text)
        y = ts.ones(2)
        again(2, ts.ones(2), y, 4)
        self.assertEqual(y.tolist(), [5, 5])
        self.assertTrue(saxpy.source("cpu"))

    def test_numbers_that_do_not_fit_raise(self):
        def traced(body):
            def f(x: tk.In("i32"), y: tk.InOut("u8")):
                body(x, y)

            return tk.kernel(f)

        for body in [
            lambda x, y: x[0] + (2**40 + 5),
            lambda x, y: (2**40 + 5) - x[0],
            lambda x, y: y[0] + (-1),
            lambda x, y: y[0] == 256,
            lambda x, y: tk.min(x[0], np.int64(2**40)),
            lambda x, y: x[0] * 1e10,
            lambda x, y: tk.min(y[0], 300),
            lambda x, y: tk.select(x[0] > 0, 256, y[0]),
            lambda x, y: tk.fma(x[0], 2**31, 1),
            lambda x, y: tk.for_(x[0], 2**31)(lambda i: None),
            lambda x, y: tk.Variable("u8", -1),
            lambda x, y: setattr(tk.Variable("u8"), "value", 256),
            lambda x, y: y.__setitem__(0, 256),
            lambda x, y: y.__setitem__(0, -1),
            lambda x, y: tk.local("i32", 4).__setitem__(0, 2**31),
            lambda x, y: tk.atomic_add(y, 0, -1),
            lambda x, y: tk.atomic_max(y, 0, 1e10),
            lambda x, y: tk.load_if(x[0] > 0, y, 0, 256),
        ]:
            with self.assertRaisesRegex(ts.DtypeError, "does not fit in (int32|uint8)"):
                traced(body)

        @tk.kernel
        def limits(y: tk.InOut("i32")):
            y[0] = tk.max(y[0], 2**31 - 1) + (-(2**31))
            y[1] = -(2**31)

        y = ts.zeros(2, dtype="i32")
        limits(1, y)
        self.assertEqual(y.tolist(), [-1, -(2**31)])
        for body in (lambda x, y: x[-1], lambda x, y: y.__setitem__(-1, 0), lambda x, y: tk.atomic_add(y, -1, 0)):
            with self.assertRaisesRegex(ts.KernelError, "test_training.py:[0-9]+.*must not be negative .index = -1"):
                traced(body)

    def test_invalid_blocks_and_iteration_raise(self):
        def f(x: tk.In("f32"), y: tk.InOut("f32")):
            y[0] = x[0]

        for block in [2**32 + 64, -1, 0, (16, -1)]:
            with self.assertRaisesRegex(ts.KernelError, "block .*out of range"):
                tk.kernel(f, block=block)

        def iterates(x: tk.In("f32"), y: tk.InOut("f32")):
            for v in x:
                y[0] = v

        def contains(x: tk.In("f32"), y: tk.InOut("f32")):
            y[0] = 1.0 if 3.0 in x else 0.0

        for function in [iterates, contains]:
            with self.assertRaisesRegex(TypeError, "Buffer"):
                tk.kernel(function)

    def test_errors_name_the_line(self):
        def traced(body):
            def f(x: tk.In("f32"), y: tk.InOut("f32")):
                return body(x, y)

            return tk.kernel(f)

        with self.assertRaisesRegex(ts.KernelError, "test_training.py:[0-9]+.*different types"):
            traced(lambda x, y: x[0] + tk.global_id() and None)
        with self.assertRaisesRegex(ts.KernelError, "Use if_"):
            traced(lambda x, y: 1 if x[0] > 0 else None)
        with self.assertRaisesRegex(ts.KernelError, "test_training.py:"):
            traced(lambda x, y: x.__setitem__(0, 1.0))
        with self.assertRaisesRegex(ts.KernelError, "returned a value"):
            traced(lambda x, y: 3)
        with self.assertRaises(TypeError):
            traced(lambda x, y: x[0] + ts.ones(1))
        with self.assertRaisesRegex(TypeError, "traced value or a number"):
            traced(lambda x, y: tk.max(x[0], ts.ones(1)))
        with self.assertRaisesRegex(ts.KernelError, "has no type"):
            tk.kernel(lambda x: None)
        with self.assertRaisesRegex(ts.KernelError, "outside of a kernel"):
            tk.global_id()
        with self.assertRaisesRegex(ValueError, "mine"):
            def fails(x, y):
                raise ValueError("mine")
            traced(fails)
        with self.assertRaisesRegex(TypeError, "takes 3 arguments, not 2"):
            saxpy(1, ts.ones(1), ts.ones(1))
        with self.assertRaisesRegex(ts.KernelError, "must be a number"):
            saxpy(1, ts.ones(1), ts.ones(1), ts.ones(1))
        with self.assertRaisesRegex(ts.KernelError, "must be a tessera.Array"):
            saxpy(1, np.ones(1), ts.ones(1), 1.0)
        with self.assertRaises(ts.KernelError):
            saxpy(1, ts.ones(1, dtype="i32"), ts.ones(1), 1.0)
        with self.assertRaises(ts.ShapeError):
            saxpy(2, ts.ones((4, 4)).T[0], ts.ones(4), 1.0)


def spirals(seed):
    """Two classes of points."""
    rng = np.random.default_rng(seed)
    t, label = rng.uniform(0.3, 2, 400), rng.integers(0, 2, 400)
    angle = 2.5 * t + np.pi * label
    points = np.stack([t * np.cos(angle), t * np.sin(angle)], 1) + rng.normal(scale=0.03, size=(400, 2))
    return ts.asarray(points.astype("float32")), ts.asarray(label.astype("int32"))


def loss_of(model, x, y):
    return ts.cross_entropy(model(x), y)


class Net(nn.Module):
    def __init__(self):
        self.body = nn.Sequential(nn.Linear(0, 32), ts.tanh, nn.Linear(0, 32), nn.BatchNorm(), ts.relu)
        self.head = nn.Linear(32, 2)
        self.scale = nn.Parameter(ts.ones(2))

    def forward(self, x):
        return self.head(self.body(x)) * self.scale.value


class Training(unittest.TestCase):
    def test_layers_match_numpy(self):
        rng = np.random.default_rng(SEED)
        x = rng.normal(size=(5, 3)).astype("float32")
        layer = nn.setup(nn.Linear(3, 2), seed=1)
        np.testing.assert_allclose(layer(ts.asarray(x)).numpy(), x @ layer.weight.numpy().T + layer.bias.numpy(), rtol=1e-5, atol=1e-6)  # fmt: skip
        norm = nn.setup(nn.LayerNorm(), input=3)
        wanted = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
        np.testing.assert_allclose(norm(ts.asarray(x)).numpy(), wanted, rtol=1e-4, atol=1e-5)
        table = nn.setup(nn.Embedding(4, 3))
        np.testing.assert_array_equal(table(ts.asarray([2, 0])).numpy(), table.weight.numpy()[[2, 0]])
        images = nn.setup(nn.Sequential(nn.Conv2d(0, 4, 3, padding=1), ts.relu, nn.MaxPool2d(2), nn.AveragePool2d(2),
                                        nn.Flatten(), nn.Linear(0, 5)), input=(1, 8, 8))  # fmt: skip
        self.assertEqual(images(ts.zeros((2, 1, 8, 8))).shape, (2, 5))
        self.assertEqual(list(nn.parameters(images)), ["0.weight", "0.bias", "5.weight", "5.bias"])
        attention = nn.setup(nn.MultiHeadAttention(8, 2, causal=True))
        self.assertEqual(attention(ts.zeros((1, 3, 8))).shape, (1, 3, 8))
        rms = nn.setup(nn.RmsNorm(), input=3)
        self.assertEqual(rms(ts.asarray(x)).shape, (5, 3))
        self.assertEqual(nn.Dropout(0.5)(ts.ones(3)).tolist(), [1, 1, 1])

    def test_parameters_behave_like_arrays(self):
        a, b = ts.asarray([[1.0, 2.0], [3.0, 4.0]]), ts.asarray([[5.0, -6.0], [7.0, 8.0]])
        p, q = nn.Parameter(a), nn.State(b)
        for f in (lambda p, q: p + 1, lambda p, q: 1 - p, lambda p, q: p * q, lambda p, q: q / p, lambda p, q: 2**p,
                  lambda p, q: p @ q, lambda p, q: a @ p, lambda p, q: -p, lambda p, q: abs(q), lambda p, q: p < q,
                  lambda p, q: ts.exp(p), lambda p, q: ts.add(a, p), lambda p, q: ts.sum(p, axis=0), lambda p, q: ts.floor(p),
                  lambda p, q: ts.softmax(p), lambda p, q: ts.where(p > 2, p, q), lambda p, q: ts.concat([p, q]),
                  lambda p, q: ts.matmul(p, q), lambda p, q: p[0], lambda p, q: p.T, lambda p, q: p.reshape(4)):  # fmt: skip
            self.assertEqual(f(p, q).tolist(), f(a, b).tolist())
        self.assertEqual((p.shape, p.dtype), ((2, 2), ts.float32))
        with self.assertRaises(AttributeError):
            p.no_such_name

        class Scaled(nn.Module):
            def __init__(self):
                self.w = nn.Parameter(ts.ones((2, 1)))

            def forward(self, x):
                return x @ self.w

        model = Scaled()
        nn.Trainer(model, lambda m, x: ts.sum(m(x)), nn.SGD(lr=1)).step(a)
        self.assertEqual(model.w.tolist(), [[-3], [-5]])

    def test_arrays_of_numpy_are_converted(self):
        layer = nn.setup(nn.Linear(2, 3))
        x = np.asarray([[1, 2]], "float32")
        self.assertEqual(layer(x).tolist(), layer(ts.asarray(x)).tolist())
        nn.Trainer(layer, lambda m, x: ts.sum(m(x))).step(x)

    def test_wrong_arguments_are_named(self):
        for make, text in ((lambda: nn.Linear("a", 3), "Linear.*inputs must be int, got str"),
                           (lambda: nn.Conv2d(1, 2, "x"), r"Conv2d.*kernel must be int \| Sequence\[int\], got str"),
                           (lambda: nn.Parameter([1.0]), "Parameter.*value must be Array, got list")):  # fmt: skip
            with self.assertRaisesRegex(TypeError, text) as caught:
                make()
            self.assertNotIn("Invoked with", str(caught.exception))
        for make in (lambda: nn.Adam(lr=-1), lambda: nn.setup(nn.Linear(2, 3), seed=-1), lambda: nn.SGD(momentum=float("nan")),
                     lambda: nn.cosine_rate(-1, steps=2), lambda: nn.fit(None, [], loss=None, steps=-1),
                     lambda: ts.random_normal(3, seed=-1), lambda: ts.random_uniform(3, seed=-1)):  # fmt: skip
            with self.assertRaisesRegex(ValueError, "must not be negative"):
                make()

    def test_mistakes_of_newcomers_are_explained(self):
        x, y = ts.ones((4, 2)), ts.zeros(4, dtype="int32")
        model = nn.setup(nn.Linear(2, 2))
        for call, kind, text in (
            (lambda: nn.fit(model, (x, y), loss=loss_of, epochs=1), TypeError, r"array of shape \(4, 2\).*nn.batches\(x, y"),
            (lambda: nn.fit(model, x, loss=loss_of, epochs=1), TypeError, r"array of shape \(2,\).*nn.batches\(x, y"),
            (lambda: nn.fit(model, [x.numpy()], loss=loss_of, epochs=1), TypeError, "nn.batches"),
            (lambda: nn.fit(model, x, y, loss=loss_of, epochs=1), TypeError, "nn.batches"),
            (lambda: nn.fit(model, [3], loss=loss_of, epochs=1), TypeError, "yielded a value of type int"),
            (lambda: nn.fit(model, [(x, y)], loss=loss_of), ts.ArgumentError, "Set epochs or steps"),
            (lambda: nn.fit(model, [], loss=loss_of, optimizer=nn.Adam()), TypeError, "'optimizer'. Did you mean optimiser"),
            (lambda: nn.fit(model, [], loss=loss_of, optimiser="adam"), TypeError, r"nn.Adam\(...\).*not 'adam'"),
            (lambda: nn.Trainer(model, loss_of, nn.Adam), TypeError, r"must be nn.SGD\(...\)"),
            (lambda: nn.Optimiser("rmsprop", {}), ts.ArgumentError, "no optimiser 'rmsprop'. Use nn.SGD"),
            (lambda: nn.Optimiser("adam", {"betal": 0.9}), ts.ArgumentError, "'betal'.*Did you mean beta"),
            (lambda: nn.adam, AttributeError, "Did you mean Adam"),
            (lambda: nn.RMSprop, AttributeError, "SGD, Adam and AdamW"),
            (lambda: nn.Dense, AttributeError, "Did you mean Linear"),
            (lambda: nn.Linear(2, 3)(x), ts.ArgumentError, r"nn.setup\(model, input=SHAPE\)"),
        ):
            with self.assertRaisesRegex(kind, text):
                call()

    def test_setup_errors_and_repeatable_values(self):
        with self.assertRaisesRegex(ts.ShapeError, "head"):
            class Unknown(nn.Module):
                def __init__(self):
                    self.head = nn.Linear(0, 2)
            nn.setup(Unknown())
        one, two = (nn.parameters(nn.setup(nn.Sequential(nn.Linear(3, 4)), seed=7)) for _ in range(2))
        self.assertEqual(one["0.weight"].tolist(), two["0.weight"].tolist())
        with self.assertRaises(ts.ArgumentError):
            nn.Linear(3, 4)(ts.zeros((1, 3)))
        with self.assertRaises(ts.ArgumentError):
            nn.Trainer(nn.Linear(3, 4), loss_of)

    def test_fit_learns_and_replays(self):
        print("seed", SEED)
        x, y = spirals(3)
        model = Net()
        nn.setup(model.body, input=2, seed=1)
        nn.setup(model.head, seed=2)
        calls = []

        def loss(model, x, y):
            calls.append(1)
            return loss_of(model, x, y)

        def validation():
            return {"accuracy": ts.mean((ts.argmax(model(x), axis=-1) == y).astype("float32"))}

        reports = []
        result = nn.fit(model, nn.batches(x, y, size=50, shuffle=True), loss=loss, optimiser=nn.Adam(lr=1e-2), epochs=30,
                        validation=validation, progress=reports.append)  # fmt: skip
        self.assertEqual((result.end, result.steps, result.epochs), ("done", 240, 30))
        self.assertGreater(result.figures["accuracy"], 0.97)
        self.assertLess(result.loss, 0.2)
        self.assertTrue(reports[-1]["over"])
        self.assertLess(len(calls), 40)  # most steps are replayed
        self.assertNotEqual(model.scale.value.tolist(), [1, 1])
        self.assertIn("body.3.running_mean", nn.states(model))

    def test_trainers_resume_bit_identically(self):
        x, y = spirals(5)

        def fresh():
            model = nn.Sequential(nn.Linear(2, 16), ts.relu, nn.Dropout(0.1), nn.Linear(16, 2))
            return nn.setup(model, seed=3)

        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "checkpoint.safetensors")
            whole, half = fresh(), fresh()
            nn.fit(whole, nn.batches(x, y, size=80, shuffle=True), loss=loss_of, optimiser=nn.AdamW(), epochs=6)
            nn.fit(half, nn.batches(x, y, size=80, shuffle=True), loss=loss_of, optimiser=nn.AdamW(), epochs=3, checkpoint=path)
            again = fresh()
            nn.fit(again, nn.batches(x, y, size=80, shuffle=True), loss=loss_of, optimiser=nn.AdamW(), epochs=6,
                   checkpoint=path, resume=True)  # fmt: skip
        for path, array in nn.parameters(whole).items():
            self.assertEqual(array.tolist(), nn.parameters(again)[path].tolist(), path)

    def test_trainer_details(self):
        x, y = spirals(6)
        model = nn.setup(nn.Sequential(nn.Linear(2, 8), ts.relu, nn.Linear(8, 2)), seed=3)
        frozen = model[0].weight.copy()
        nn.freeze(model[0])
        trainer = nn.Trainer(model, loss_of, nn.SGD(lr=nn.cosine_rate(0.1, steps=10), momentum=0.9), clip_norm=1.0)
        first = trainer.step(x, y).item()
        for _ in range(9):
            trainer.step(x, y)
        self.assertEqual(trainer.steps, 10)
        self.assertLess(trainer.step(x, y).item(), first)
        self.assertEqual(model[0].weight.tolist(), frozen.tolist())
        self.assertEqual(trainer.rate, 0)
        self.assertGreater(trainer.mean_loss(), 0)
        saved = {path: array.copy() for path, array in nn.parameters(model).items()}
        other = nn.setup(nn.Sequential(nn.Linear(2, 8), ts.relu, nn.Linear(8, 2)), seed=4)
        nn.load_parameters(other, saved)
        self.assertEqual(other(x).tolist(), model(x).tolist())
        with self.assertRaisesRegex(ts.ArgumentError, "missing"):
            nn.load_parameters(other, {})

    def test_a_loss_without_parameters_raises(self):
        x = ts.ones((4, 2))
        for recorded in (True, False):
            for loss in (lambda m, x: ts.mean(x), lambda m, x: ts.asarray(3.0), lambda m, x: ts.stop_gradient(ts.sum(m(x)))):
                model = nn.setup(nn.Linear(2, 1))
                with self.assertRaisesRegex(ts.ArgumentError, "does not depend on a trained parameter"):
                    nn.fit(model, [(x,)], loss=loss, steps=2, recorded=recorded)

    def test_the_loss_is_released_with_the_trainer(self):
        class Loss:
            def __call__(self, model, x):
                return ts.sum(model(x))

        for model in (nn.setup(nn.Linear(2, 1)), nn.Sequential(ts.relu)):  # the second one has nothing to train
            loss = Loss()
            reference = weakref.ref(loss)
            try:
                trainer = nn.Trainer(model, loss)
                trainer.step(ts.ones((1, 2)))
                del trainer
            except ts.ArgumentError:
                self.assertIsInstance(model, nn.Sequential)
            del loss
            gc.collect()
            self.assertIsNone(reference())

    def test_errors_in_the_loss_leave_the_model_unchanged(self):
        x, y = spirals(7)
        model = nn.setup(nn.Linear(2, 2), seed=3)
        before = model.weight.tolist()

        def fails(model, x, y):
            loss_of(model, x, y)
            raise ValueError("mine")

        with self.assertRaisesRegex(ValueError, "mine"):
            nn.Trainer(model, fails).step(x, y)
        self.assertEqual(model.weight.tolist(), before)
        self.assertEqual(model(x).shape, (400, 2))
        with self.assertRaisesRegex(TypeError, "must be a tessera.Array"):
            nn.Trainer(model, lambda m, x, y: 3.0).step(x, y)
        with self.assertRaises(ts.NotFinite):
            trainer = nn.Trainer(model, lambda m, x, y: ts.mean(ts.log(m(x) * 0 - 1)))
            trainer.step(x, y)
            trainer.check()
        with self.assertRaises(ts.ArgumentError):
            nn.fit(model, nn.batches(x, y, size=50), loss=loss_of)


if __name__ == "__main__":
    unittest.main()
