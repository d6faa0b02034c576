# SPDX-License-Identifier: Apache-2.0
"""Tasks: Python functions and kernels that run when their inputs are ready, on the device that has their data.

    from tessera import tasks

    with tasks.Region() as region:
        for part in parts:
            region.spawn(double, tasks.inout(part))       # these may run at the same time
            region.spawn(add, part, tasks.inout(total))   # these run one after another

The tasks of a region behave as if they ran in the order in which they were created: a task waits for earlier tasks that
write arrays that it uses, or use arrays that it writes. docs/tasks.md explains tasks and the rules for arrays.
"""

from __future__ import annotations

import atexit
import os
import weakref
from typing import Any, Callable

from . import _core
from ._complex import ComplexArray, make
from ._core import Array
from ._functions import _array_of
from ._trees import arrays_of, map_values
from .kernels import Kernel

__all__ = ["Region", "Task", "commute", "in_", "inout", "out", "spawn"]


class _Access:
    """An array as an argument of a task, and how the task uses it."""

    def __init__(self, array: Any, mode: str):
        self.array, self.mode = _array_of(array), mode
        if not isinstance(self.array, Array):
            raise TypeError(f"[{mode}] the argument must be an Array, not {type(array).__name__}")


def _access(x: Any, mode: str) -> Any:
    return make(_Access(x.real, mode), _Access(x.imag, mode)) if isinstance(x, ComplexArray) else _Access(x, mode)


def in_(x: Array | ComplexArray, /) -> Any:
    """The task reads the array, as if it were passed without in_()."""
    return _access(x, "in")


def out(x: Array | ComplexArray, /) -> Any:
    """The task overwrites the array. The old contents are not copied to the task's device."""
    return _access(x, "out")


def inout(x: Array | ComplexArray, /) -> Any:
    """The task reads and writes the array."""
    return _access(x, "inout")


def commute(x: Array | ComplexArray, /) -> Any:
    """The task reads and writes the array. Commuting tasks run in any order, one at a time."""
    return _access(x, "commute")


class Task:
    """A function that runs asynchronously, and its result. spawn() returns it.

    If a task is an argument of another task, the function gets its result. If a function raises an exception, tasks that
    depend on it are skipped, and waiting for any of these raises that exception.
    """

    def __init__(self, task: Any):
        self._task = task

    def result(self) -> Any:
        """Waits and returns the result. Raises the exception of the task, and TaskError if it was cancelled."""
        return self._task.result()

    def wait(self) -> None:
        """Waits until the task has ended. The exceptions are those of result()."""
        self._task.wait()

    def ended(self) -> bool:
        """Returns whether the task has ended."""
        return self._task.ended()

    def cancel(self) -> bool:
        """Cancels the task. Returns False if it has begun."""
        return self._task.cancel()

    @property
    def name(self) -> str:
        """The name for messages."""
        return self._task.name

    @property
    def device(self) -> _core.Device:
        """The device for which the task runs. New arrays are created on it."""
        return self._task.device

    def __repr__(self) -> str:
        return f"<Task {self.name}>"


class _Slot:
    """The place of an array (kind 0) or a result (kind 1) in the arguments."""

    def __init__(self, kind: int, at: int):
        self.kind, self.at = kind, at


def _spawn(region: Any, f: Callable, args: tuple, kwargs: dict, name: str | None, device: Any) -> Task:
    if not callable(f):
        raise TypeError(f"[spawn] the first argument must be a function or a kernel, not {type(f).__name__}")
    if isinstance(f, Kernel):
        args = tuple(inout(a) if i - 1 in f._written and isinstance(_array_of(a), Array) else a for i, a in enumerate(args))
    arrays: list = []
    tasks: list = []

    def stored(value: Any) -> Any:
        value = _array_of(value)
        if isinstance(value, Array):
            value = in_(value)
        if isinstance(value, _Access):
            arrays.append((value.array, value.mode))
            return _Slot(0, len(arrays) - 1)
        if isinstance(value, Task):
            tasks.append(value._task)
            return _Slot(1, len(tasks) - 1)
        return value

    kept = [map_values(stored, list(args)), map_values(stored, kwargs)]

    def call(*given: list) -> Any:
        positional, named = map_values(lambda v: given[v.kind][v.at] if isinstance(v, _Slot) else v, kept)
        result = f(*positional, **named)
        _core.eval(*arrays_of(result))  # later tasks may write what a pending result reads
        return result

    return Task(_core.spawn(region, call, arrays, tasks, name or getattr(f, "__name__", "task"), device))


def spawn(f: Callable, /, *args: Any, name: str | None = None, device: Any = None, **kwargs: Any) -> Task:
    """Returns a task that calls f(*args, **kwargs) on another thread, or on one that waits for it.

    Arrays and tasks in the arguments, also in lists, dictionaries and dataclasses, are passed as arrays and as results.
    The task runs for `device`, by default that with most of its data. A function must not write arrays that are not
    arguments with out(), inout() or commute(). Kernels are launched; their InOut parameters are inout().
    """
    return _spawn(None, f, args, kwargs, name, device)


_regions: weakref.WeakSet = weakref.WeakSet()


class Region:
    """A set of tasks that behave as if they ran in the order of their creation. Use it in a `with` statement.

    The end of the block waits for the tasks, and raises the exception of the first one that failed. If the block raises,
    tasks that have not begun are cancelled. A region is used by one thread.
    """

    def __init__(self) -> None:
        self._region = _core.Region()
        _regions.add(self)

    def __enter__(self) -> Region:
        return self

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        if kind is None:
            return self.wait()
        self.cancel()
        try:
            self.wait()
        except BaseException:  # the exception of the block is raised
            pass

    def spawn(self, f: Callable, /, *args: Any, name: str | None = None, device: Any = None, **kwargs: Any) -> Task:
        """Creates a task, as spawn() does. It waits for earlier tasks whose use of arrays conflicts with its own."""
        return _spawn(self._region, f, args, kwargs, name, device)

    def wait(self) -> None:
        """Waits until all tasks have ended. Raises the exception of the first task that failed, once."""
        self._region.wait()

    def cancel(self) -> None:
        """Cancels the tasks that have not begun."""
        self._region.cancel()


os.register_at_fork(after_in_child=_regions.clear)  # their tasks run in the parent


@atexit.register
def _wait_at_exit() -> None:
    # A task cannot run Python after the interpreter has ended.
    for wait in [*(r.wait for r in list(_regions)), _core.synchronize]:
        try:
            wait()
        except BaseException as error:
            import sys

            print(f"tessera: a task failed: {type(error).__name__}: {error}", file=sys.stderr)
