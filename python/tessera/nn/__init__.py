# SPDX-License-Identifier: Apache-2.0
"""Layers, optimisers and training.

Layers are those of C++, with the names, arguments and defaults of PyTorch. A model is a Module with layers as
attributes, or a Sequential. setup() creates the parameters, fit() trains in place.
"""

from __future__ import annotations

import inspect
import operator
from typing import Any, Callable, Iterable, Iterator, Sequence

from .. import _core, _functions
from .._core import Array
from .._errors import check_not_negative, explains_types, similar


class Module:
    """Base class of models. Layers, modules, and lists and dictionaries of these are found in its attributes.

    A plain Array in an attribute is neither trained nor saved. Wrap it in Parameter or State.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls forward()."""
        return self.forward(*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Computes the result. Subclasses define it."""
        raise NotImplementedError(f"{type(self).__name__} does not define forward()")

    def output_shape(self, shape: tuple | None) -> tuple | None:
        """Returns the shape of one sample's result, or None if it is unknown."""
        return None


class Layer(Module):
    """A layer that is implemented in C++."""

    def __init__(self, layer: Any):
        self._layer = layer

    def __init_subclass__(cls, **arguments: Any):
        super().__init_subclass__(**arguments)
        if "__init__" in vars(cls):
            cls.__init__ = explains_types(cls.__name__)(cls.__init__)  # type: ignore[method-assign]

    def forward(self, x: Array) -> Array:
        """Computes the result. Arrays of other libraries are converted by asarray()."""
        return self._layer.call(x if isinstance(x, Array) else _functions.asarray(x))

    def output_shape(self, shape: tuple | None) -> tuple | None:
        """Returns the shape of one sample's result, or None if it is unknown."""
        return self._layer.output_shape(shape)

    @property
    def weight(self) -> Array:
        """The weight."""
        return self._array("weight")

    @weight.setter
    def weight(self, value: Array) -> None:
        self._layer.set("weight", value)

    @property
    def bias(self) -> Array:
        """The bias."""
        return self._array("bias")

    @bias.setter
    def bias(self, value: Array) -> None:
        self._layer.set("bias", value)

    def _array(self, name: str) -> Array:
        for known, array, _, _ in self._layer.parts():
            if known == name:
                return array
        raise AttributeError(f"the {type(self).__name__} has no {name}. Call setup() first, or load one")

    def __repr__(self) -> str:
        return type(self).__name__


class Linear(Layer):
    """A fully connected layer: x weight^T + bias. `inputs` of 0 is inferred by setup()."""

    def __init__(self, inputs: int, outputs: int, *, bias: bool = True):
        super().__init__(_core.dense(inputs, outputs, bias))


class Embedding(Layer):
    """Looks up rows of a table (count, size)."""

    def __init__(self, count: int, size: int):
        super().__init__(_core.embedding(count, size))


class Dropout(Layer):
    """In training, sets each element to 0 with probability p."""

    def __init__(self, p: float = 0.5):
        super().__init__(_core.dropout(p))


class Flatten(Layer):
    """Flattens all axes except the batch."""

    def __init__(self) -> None:
        super().__init__(_core.flatten())


class Conv2d(Layer):
    """A convolution of images (batch, channels, rows, columns)."""

    def __init__(self, inputs: int, outputs: int, kernel: int | Sequence[int], *, stride: int | Sequence[int] = 1,
                 padding: int | Sequence[int] = 0, dilation: int | Sequence[int] = 1, groups: int = 1, bias: bool = True):  # fmt: skip
        super().__init__(_core.conv2d(inputs, outputs, kernel, stride, padding, dilation, groups, bias))


class MaxPool2d(Layer):
    """Returns the largest element of each window."""

    def __init__(self, kernel: int | Sequence[int], *, stride: int | Sequence[int] | None = None, padding: int | Sequence[int] = 0):
        super().__init__(_core.max_pool2d(kernel, stride, padding))


class AveragePool2d(Layer):
    """Returns the mean of each window."""

    def __init__(self, kernel: int | Sequence[int], *, stride: int | Sequence[int] | None = None, padding: int | Sequence[int] = 0):
        super().__init__(_core.average_pool2d(kernel, stride, padding))


class BatchNorm(Layer):
    """Normalises each channel over the batch; in inference, by running statistics."""

    def __init__(self, channels: int = 0, *, epsilon: float = 1e-5, momentum: float = 0.1, affine: bool = True):
        super().__init__(_core.batch_norm(channels, epsilon, momentum, affine))


class LayerNorm(Layer):
    """Normalises over the last axes."""

    def __init__(self, shape: Any = None, *, epsilon: float = 1e-5, affine: bool = True, bias: bool = True):
        super().__init__(_core.layer_norm(shape, epsilon, affine, bias))


class RmsNorm(Layer):
    """Divides by the root of the mean square over the last axis."""

    def __init__(self, size: int = 0, *, epsilon: float = 1e-6):
        super().__init__(_core.rms_norm(size, epsilon))


class MultiHeadAttention(Layer):
    """Self-attention of (batch, positions, size)."""

    def __init__(self, size: int = 0, heads: int = 1, *, causal: bool = False, bias: bool = True):
        super().__init__(_core.multi_head_attention(size, heads, causal, bias))


class Parameter(Layer):
    """A trained array of a model. Operators, functions, indexing and attributes such as `shape` apply to its `value`."""

    def __init__(self, value: Array):
        super().__init__(_core.parameter(value))

    @property
    def value(self) -> Array:
        """The array. Assign to replace it."""
        return self._array("value")

    @value.setter
    def value(self, to: Array) -> None:
        self._layer.set("value", to)

    def __tessera_array__(self) -> Array:
        return self.value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__} has no attribute '{name}'")
        return getattr(self.value, name)

    def __getitem__(self, key: Any) -> Array:
        return self.value[key]


def _forward_operator(name: str) -> None:
    operate = getattr(operator, f"__{name}__")
    if name in ("neg", "pos", "abs", "invert"):
        setattr(Parameter, f"__{name}__", lambda self: operate(self.value))
        return

    def value_of(other: Any) -> Any:
        return other.value if isinstance(other, Parameter) else other

    setattr(Parameter, f"__{name}__", lambda self, other: operate(self.value, value_of(other)))
    if name not in ("lt", "le", "gt", "ge"):
        setattr(Parameter, f"__r{name}__", lambda self, other: operate(other, self.value))


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "neg", "pos", "abs", "lt", "le", "gt", "ge"):
    _forward_operator(_name)
del _name


class State(Parameter):
    """An array of a model that is saved but not trained. Use it like a Parameter."""

    def __init__(self, value: Array):
        Layer.__init__(self, _core.state(value))


class Sequential(Module):
    """Calls layers and functions of arrays one after another."""

    def __init__(self, *layers: Any):
        self.layers = list(layers)

    def forward(self, x: Array) -> Array:
        """Computes the result."""
        for layer in self.layers:
            x = layer(x)
        return x

    def output_shape(self, shape: tuple | None) -> tuple | None:
        """Returns the shape of one sample's result, or None if it is unknown."""
        for layer in self.layers:
            shape = layer.output_shape(shape) if isinstance(layer, Module) else shape  # functions are elementwise
        return shape

    def __getitem__(self, i: int) -> Any:
        return self.layers[i]

    def __len__(self) -> int:
        return len(self.layers)


def _layers(model: Any, path: tuple = (), seen: set | None = None) -> Iterator[tuple[tuple, Layer]]:
    """Yields the layers of a model with their paths. A layer that occurs several times is yielded once."""
    seen = set() if seen is None else seen
    if isinstance(model, Layer):
        if id(model) not in seen:
            seen.add(id(model))
            yield path, model
    elif isinstance(model, Sequential):
        for i, part in enumerate(model.layers):
            yield from _layers(part, (*path, i), seen)
    elif isinstance(model, Module):
        if id(model) not in seen:
            seen.add(id(model))
            for name, part in vars(model).items():
                yield from _layers(part, (*path, name), seen)
    elif isinstance(model, (list, tuple)):
        for i, part in enumerate(model):
            yield from _layers(part, (*path, i), seen)
    elif isinstance(model, dict):
        for name, part in model.items():
            yield from _layers(part, (*path, name), seen)


def _text(path: tuple) -> str:
    return ".".join(str(name) for name in path)


def _set_up(model: Any, path: tuple, shape: tuple | None, seed: int, dtype: Any, seen: set) -> None:
    if isinstance(model, Sequential):
        for i, part in enumerate(model.layers):
            _set_up(part, (*path, i), shape, seed, dtype, seen)
            shape = part.output_shape(shape) if isinstance(part, Module) else shape
    elif isinstance(model, Layer):
        if id(model) not in seen:
            seen.add(id(model))
            model._layer.set_up(path, shape, seed, dtype)
    elif isinstance(model, Module):
        for name, part in vars(model).items():
            _set_up(part, (*path, name), None, seed, dtype, seen)
    elif isinstance(model, (list, tuple)):
        for i, part in enumerate(model):
            _set_up(part, (*path, i), None, seed, dtype, seen)
    elif isinstance(model, dict):
        for name, part in model.items():
            _set_up(part, (*path, name), None, seed, dtype, seen)


def setup(model: Any, *, input: Any = None, seed: int = 0, dtype: Any = "float32") -> Any:  # noqa: A002
    """Creates the parameters of a model on the current device, and returns the model.

    `input` is the shape of one sample, without the batch; a Sequential infers the shapes between its layers. The values
    depend only on the seed and the path of each array, and are those of a C++ model with the same paths. Raises
    ShapeError with the path if the size of a layer is unknown, and ArgumentError if the seed is negative.
    """
    check_not_negative("setup", seed=seed)
    _set_up(model, (), _functions._shape(input) if input is not None else None, seed, dtype, set())
    return model


def parameters(model: Any) -> dict[str, Array]:
    """Returns the trained arrays of a model by path. They share memory with the model."""
    return {_text((*path, name)): array for path, layer in _layers(model) for name, array, state, _ in
            layer._layer.parts() if not state}  # fmt: skip


def states(model: Any) -> dict[str, Array]:
    """Returns the arrays of a model that are not trained, such as running statistics, by path."""
    return {_text((*path, name)): array for path, layer in _layers(model) for name, array, state, _ in
            layer._layer.parts() if state}  # fmt: skip


def load_parameters(model: Any, values: dict[str, Array]) -> None:
    """Copies values into the arrays of a model. Raises ArgumentError if the paths differ, and changes nothing then."""
    arrays = {**parameters(model), **states(model)}
    missing, unexpected = arrays.keys() - values.keys(), values.keys() - arrays.keys()
    if missing or unexpected:
        raise _core.ArgumentError(f"[load_parameters] missing: {sorted(missing)}, unexpected: {sorted(unexpected)}")
    for path, array in arrays.items():
        if array.shape != values[path].shape:
            raise _core.ShapeError(f"[load_parameters] '{path}' has shape {array.shape}, the value {values[path].shape}")
    for path, array in arrays.items():
        array[...] = values[path]


def freeze(model: Any, frozen: bool = True) -> None:
    """Excludes the parameters of a model or layer from training, or includes them again."""
    for _, layer in _layers(model):
        layer._layer.set_frozen(frozen)


# Optimisers and learning rates.


class Optimiser:
    """An optimiser and its options, which SGD(), Adam() and AdamW() return. fit() and Trainer create its state.

    Raises ArgumentError if there is no such optimiser or option, or if an option is negative.
    """

    def __init__(self, kind: str, options: dict[str, Any]):
        kinds = {"sgd": SGD, "adam": Adam, "adamw": AdamW}
        if kind not in kinds:
            raise _core.ArgumentError(f"[Optimiser] there is no optimiser '{kind}'. Use nn.SGD, nn.Adam or nn.AdamW")
        known = inspect.signature(kinds[kind]).parameters
        for name in options:
            if name not in known:
                raise _core.ArgumentError(f"[{kind}] there is no option '{name}'. Options are {', '.join(known)}{similar(name, known)}")
        check_not_negative(kind, **options)
        self.kind, self.options = kind, options


def SGD(*, lr: float | Callable[[int], float] = 1e-3, momentum: float = 0, dampening: float = 0,
        weight_decay: float = 0, nesterov: bool = False) -> Optimiser:  # fmt: skip
    """Stochastic gradient descent with momentum, as in PyTorch. `lr` may be a function of the step."""
    return Optimiser("sgd", {"lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay,
                             "nesterov": nesterov})  # fmt: skip


def Adam(*, lr: float | Callable[[int], float] = 1e-3, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8,
         weight_decay: float = 0) -> Optimiser:  # fmt: skip
    """Adam (Kingma and Ba 2015), as in PyTorch. `lr` may be a function of the step."""
    return Optimiser("adam", {"lr": lr, "beta1": beta1, "beta2": beta2, "epsilon": epsilon,
                              "weight_decay": weight_decay})  # fmt: skip


def AdamW(*, lr: float | Callable[[int], float] = 1e-3, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8,
          weight_decay: float = 1e-2) -> Optimiser:  # fmt: skip
    """AdamW (Loshchilov and Hutter 2019), as in PyTorch. `lr` may be a function of the step."""
    return Optimiser("adamw", {"lr": lr, "beta1": beta1, "beta2": beta2, "epsilon": epsilon,
                               "weight_decay": weight_decay})  # fmt: skip


def cosine_rate(rate: float, *, steps: int, warmup: int = 0, final: float = 0) -> Callable[[int], float]:
    """A learning rate that decays along half a cosine."""
    check_not_negative("cosine_rate", rate=rate, steps=steps, warmup=warmup, final=final)
    return _core.schedule("cosine", rate, steps, warmup, final)


def linear_rate(rate: float, *, steps: int, warmup: int = 0, final: float = 0) -> Callable[[int], float]:
    """A learning rate that decays linearly."""
    check_not_negative("linear_rate", rate=rate, steps=steps, warmup=warmup, final=final)
    return _core.schedule("linear", rate, steps, warmup, final)


# Training.


class Trainer:
    """Trains a model in place.

    `loss(model, *batch)` returns a single number. It may depend only on the model, the batch and arrays: steps are
    recorded and replayed, so Python code runs in the first steps only (`recorded=False` prevents this). A step that
    raises leaves the model unchanged. step() raises ArgumentError if the loss depends on no trained parameter.
    """

    @explains_types("Trainer")
    def __init__(
        self,
        model: Any,
        loss: Callable[..., Array],
        optimiser: Optimiser | None = None,
        *,
        seed: int = 0,
        clip_norm: float | None = None,
        clip_value: float | None = None,
        accumulate: int = 1,
        recorded: bool = True,
        check_finite: bool = True,
    ):
        optimiser = Adam() if optimiser is None else optimiser
        if not isinstance(optimiser, Optimiser):
            raise TypeError(f"[Trainer] the optimiser must be nn.SGD(...), nn.Adam(...) or nn.AdamW(...), not {optimiser!r}")
        check_not_negative("Trainer", seed=seed)
        self.model = model
        options = {"seed": seed, "clip_norm": clip_norm, "clip_value": clip_value, "accumulate": accumulate,
                   "recorded": recorded, "check_finite": check_finite}  # fmt: skip
        layers = [(_text(path), layer._layer) for path, layer in _layers(model)]
        checked = False

        def checked_loss(*batch: Array) -> Array:
            nonlocal checked
            value = loss(model, *batch)
            if not checked and isinstance(value, Array) and any(map(_core.shares_history, parameters(model).values())):
                if not _core.shares_history(value):
                    raise _core.ArgumentError(
                        "[Trainer] the loss does not depend on a trained parameter. Compute it from model(x) by array "
                        "operations: item(), numpy() and stop_gradient() end the gradient"
                    )
                checked = True
            return value

        self._trainer = _core.Trainer(layers, optimiser.kind, optimiser.options, checked_loss, options)

    def step(self, *batch: Array) -> Array:
        """Runs one step, and returns the loss of the batch, on the device. Converts other arrays by asarray()."""
        return self._trainer.step([a if isinstance(a, Array) else _functions.asarray(a) for a in batch])

    def check(self) -> None:
        """Raises NotFinite if a step had a loss or gradient that is not finite. Waits for the device."""
        self._trainer.check()

    def mean_loss(self) -> float:
        """Returns the mean loss of the steps since the last call. Waits for the device."""
        return self._trainer.mean_loss()

    def save(self, path: str) -> None:
        """Saves parameters, states, optimiser and counters; a trainer that loads the file continues bit-identically."""
        self._trainer.save(str(path))

    def load(self, path: str) -> None:
        """Loads a file that save() wrote."""
        self._trainer.load(str(path))

    @property
    def steps(self) -> int:
        """The number of batches processed."""
        return self._trainer.steps

    @property
    def rate(self) -> float:
        """The learning rate of the next step."""
        return self._trainer.rate

    @property
    def not_recorded(self) -> str:
        """Why steps are not recorded, or ""."""
        return self._trainer.not_recorded

    @property
    def replays(self) -> int:
        """The number of steps that were replayed."""
        return self._trainer.replays


class batches:
    """The batches of a data set. Iterating yields tuples of arrays; the last batch may be smaller."""

    def __init__(self, *arrays: Array, size: int, shuffle: bool = False, seed: int = 0):
        if not arrays or any(a.shape[0] != arrays[0].shape[0] for a in arrays):
            raise _core.ShapeError(f"[batches] arrays with the same first extent are required: {[a.shape for a in arrays]}")
        if size < 1:
            raise _core.ArgumentError(f"[batches] the size is {size}, but must be at least 1")
        self.arrays, self.size, self.shuffle, self.seed, self.epoch = arrays, size, shuffle, seed, 0

    def __len__(self) -> int:
        return -(-self.arrays[0].shape[0] // self.size)

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch, on which the order of the samples depends."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[tuple[Array, ...]]:
        count = self.arrays[0].shape[0]
        order = None
        if self.shuffle:
            order = _functions.argsort(_functions.random_uniform(count, seed=self.seed + self.epoch, device=self.arrays[0].device))
        self.epoch += 1
        for begin in range(0, count, self.size):
            if order is None:
                yield tuple(a[begin : begin + self.size] for a in self.arrays)
            else:
                rows = order[begin : begin + self.size]
                yield tuple(_functions.take(a, rows, axis=0) for a in self.arrays)


def _kind(value: Any) -> str:
    """Describes a value in a message."""
    return f"an array of shape {tuple(value.shape)}" if hasattr(value, "shape") else f"a value of type {type(value).__name__}"


class FitResult:
    """The result of fit()."""

    def __init__(self, values: dict[str, Any]):
        self.end: str = values["end"]  #: "done", "stopped" by a callback, or "early" by early stopping
        self.steps: int = values["steps"]  #: number of steps
        self.epochs: int = values["epochs"]  #: number of epochs
        self.loss: float = values["loss"]  #: mean loss in the last report
        self.figures: dict[str, float] = values["figures"]  #: figures of the last validation
        self.seconds: float = values["seconds"]  #: duration

    def __repr__(self) -> str:
        return f"FitResult(end={self.end!r}, steps={self.steps}, loss={self.loss:.4g}, figures={self.figures})"


def fit(
    model: Any,
    data: Iterable[Sequence[Array]],
    *more: Any,
    loss: Callable[..., Array],
    optimiser: Optimiser | None = None,
    epochs: int = 0,
    steps: int = 0,
    validation: Callable[[], dict[str, Any]] | None = None,
    validate_every: int = 0,
    early_stopping: str | None = None,
    patience: int = 5,
    min_delta: float = 0,
    greatest: bool = False,
    progress: Callable[[dict[str, Any]], Any] | None = None,
    on_step: Callable[[int], Any] | None = None,
    csv: str = "",
    checkpoint: str = "",
    resume: bool = False,
    **trainer: Any,
) -> FitResult:
    """Trains a model in place for a number of epochs or steps.

    `data` yields batches, tuples of arrays, such as `batches(x, y, size=32)`. `loss(model, *batch)` returns a single number. `validation` returns named
    numbers after each epoch, in inference mode; with `early_stopping`, training stops when the number of this name has
    not improved for `patience` validations, and the best model is kept. `on_step` returns False to stop. `checkpoint`
    is written after each epoch and read if `resume` is True. Other arguments are those of Trainer.

    Raises NotFinite if a loss or gradient is not finite, ArgumentError if arguments contradict each other or the
    loss depends on no trained parameter, and TypeError if `data` does not yield batches.
    """
    if more:
        raise TypeError("[fit] only the model and the data have no names. For arrays, pass nn.batches(x, y, size=32) as the data")
    unknown = trainer.keys() - inspect.signature(Trainer.__init__).parameters.keys()
    for name in unknown:
        raise TypeError(f"[fit] there is no argument '{name}'{similar(name, inspect.signature(fit).parameters)}")
    check_not_negative("fit", epochs=epochs, steps=steps, validate_every=validate_every, patience=patience)
    run = Trainer(model, loss, optimiser, **trainer)
    early = {} if early_stopping is None else {"figure": early_stopping, "patience": patience, "min_delta": min_delta,
                                               "greatest": greatest}  # fmt: skip
    loop = _core.FitLoop(run._trainer, epochs, steps, validation, validate_every, early, progress, on_step, str(csv),
                         str(checkpoint), resume)  # fmt: skip
    while loop.more():
        epoch, seen = run._trainer.position()
        if hasattr(data, "set_epoch"):
            data.set_epoch(epoch)
        some, more = seen > 0, True
        for batch in data:
            some = True
            if not isinstance(batch, (tuple, list)):
                raise TypeError(f"[fit] the data must yield batches, which are tuples of arrays, but yielded {_kind(batch)}. "
                                "For arrays, pass nn.batches(x, y, size=32)")  # fmt: skip
            if seen > 0:  # a checkpoint was written within the epoch
                seen -= 1
                continue
            run.step(*batch)
            more = loop.after_step()
            if not more:
                break
        if not some:
            raise _core.ArgumentError("[fit] the data have no batches")
        if not more or not loop.end_epoch():
            break
    return FitResult(loop.finish())


def __getattr__(name: str) -> Any:
    renamed = {"Dense": "Linear", "Conv2D": "Conv2d", "RMSNorm": "RmsNorm"}
    public = [n for n, value in globals().items() if not n.startswith("_") and getattr(value, "__module__", "") == __name__]
    hint = f". Did you mean {renamed[name]}?" if name in renamed else similar(name, public)
    raise AttributeError(f"module 'tessera.nn' has no attribute '{name}'{hint or '. Optimisers are SGD, Adam and AdamW'}")
