# SPDX-License-Identifier: Apache-2.0
"""Gradients of functions of arrays, computed in reverse mode."""

from __future__ import annotations

import functools
from typing import Any, Callable, Sequence

from . import _core
from ._core import Array
from ._functions import asarray
from ._trees import map_arrays, map_values


def _as_array(value: Any) -> Any:
    """Converts Python floats and arrays of other libraries, so that they have gradients, too."""
    return asarray(value) if isinstance(value, float) or hasattr(value, "__array_interface__") else value


def _differentiated(f: Callable, argnums: int | Sequence[int], args: tuple, kwargs: dict):
    """Calls `f` with leaves in place of the arrays of the chosen arguments."""
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    for n in numbers:
        if not 0 <= n < len(args):
            raise _core.ArgumentError(f"[value_and_grad] argument {n} does not exist: there are {len(args)} arguments")
    args = tuple(map_values(_as_array, a) if i in numbers else a for i, a in enumerate(args))
    leaves = _core.Leaves()
    order: list[bool] = []

    def leaf(a: Array) -> Array:
        order.append(_core.is_differentiable(a))
        return leaves.add(a) if order[-1] else a

    changed = []
    for i, a in enumerate(args):
        before = sum(order)
        changed.append(map_arrays(leaf, a) if i in numbers else a)
        if i in numbers and sum(order) == before:
            what = f"an Array of {a.dtype.name}" if isinstance(a, Array) else f"of type {type(a).__name__}"
            raise TypeError(f"[value_and_grad] argument {i} is {what} and contains no floats, so it has no gradient. "
                            "Pass an Array of floats, a Python float, or a structure of them")  # fmt: skip
    value = f(*changed, **kwargs)
    first = value[0] if isinstance(value, tuple) else value
    if not isinstance(first, Array):
        raise TypeError(f"the function must return an Array or a tuple that begins with one, not {type(first).__name__}")
    return args, numbers, leaves, order, value, first


def _gradient(argnums: Any, numbers: tuple, order: list, adjoints: list, args: tuple) -> Any:
    """Puts adjoints in place of the arrays of the arguments. Numbers that are not floats get None."""
    found, kinds = iter(adjoints), iter(order)

    def adjoint(value: Any) -> Any:
        if isinstance(value, Array):
            return next(found) if next(kinds) else None
        return None if isinstance(value, (int, float)) else value

    parts = {n: map_values(adjoint, args[n]) for n in sorted(numbers)}
    return parts[numbers[0]] if isinstance(argnums, int) else tuple(parts[n] for n in numbers)


def value_and_grad(f: Callable, argnums: int | Sequence[int] = 0) -> Callable:
    """Returns a function that computes the value of `f` and its gradient.

    `f` returns an array of one float, or a tuple that begins with one; only that array is differentiated. The gradient
    has the structure of the argument: an array, or nested lists, tuples, dictionaries and dataclasses of arrays.
    Python floats and arrays of NumPy are converted to arrays. In a structure, integers and bools have the gradient
    None. With several `argnums`, the gradient is a tuple. Gradients can be nested.

    Raises TypeError if an argument contains no floats, ShapeError or DtypeError if the value is not a single float, and
    ArgumentError if an operation of `f` has no gradient, or if an array that the gradient needs has been written in
    place.
    """

    @functools.wraps(f)
    def both(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        args, numbers, leaves, order, value, first = _differentiated(f, argnums, args, kwargs)
        gradient = _gradient(argnums, numbers, order, leaves.gradients(first), args)
        return map_arrays(leaves.detach, value), gradient

    return both


def grad(f: Callable, argnums: int | Sequence[int] = 0) -> Callable:
    """Like value_and_grad, but returns only the gradient."""
    both = value_and_grad(f, argnums)

    @functools.wraps(f)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        return both(*args, **kwargs)[1]

    return gradient


def pullback(f: Callable, *args: Any) -> tuple[Any, Callable[[Array], Any]]:
    """Returns f(*args), and a function that maps an adjoint of the value to an adjoint of the first argument.

    Arguments and errors are those of value_and_grad.
    """
    args, numbers, leaves, order, value, first = _differentiated(f, 0, args, {})

    def back(adjoint: Array) -> Any:
        return _gradient(0, numbers, order, leaves.pull_back(first, adjoint), args)

    return map_arrays(leaves.detach, value), back


def stop_gradient(tree: Any) -> Any:
    """Returns a copy of an array or a structure of arrays through which no gradient flows."""
    return map_arrays(_core.stop_gradient, tree)
