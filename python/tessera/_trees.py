# SPDX-License-Identifier: Apache-2.0
"""Nested structures of arrays: lists, tuples, dictionaries, dataclasses, models, and complex arrays."""

from __future__ import annotations

import copy
from typing import Any, Callable

from ._complex import ComplexArray, make
from ._core import Array


def _is_dataclass(tree: Any) -> bool:
    """Returns whether an object is an instance of a dataclass."""
    return hasattr(type(tree), "__dataclass_fields__")


def map_values(f: Callable[[Any], Any], tree: Any) -> Any:
    """Returns a structure with `f(value)` in place of each array and each other value."""
    if isinstance(tree, ComplexArray):
        return make(map_values(f, tree.real), map_values(f, tree.imag))
    if isinstance(tree, dict):
        mapped = copy.copy(tree)  # keeps what subclasses have besides the items
        for key, value in tree.items():
            mapped[key] = map_values(f, value)
        return mapped
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):  # a NamedTuple
        return type(tree)(*(map_values(f, v) for v in tree))
    if isinstance(tree, (list, tuple)):
        return type(tree)(map_values(f, v) for v in tree)
    if _is_dataclass(tree):
        import dataclasses  # slow to import

        return dataclasses.replace(
            tree, **{m.name: map_values(f, getattr(tree, m.name)) for m in dataclasses.fields(tree) if m.init}
        )
    return f(tree)


def map_arrays(f: Callable[[Array], Any], tree: Any) -> Any:
    """Returns a structure with `f(array)` in place of each array. Other values are kept."""
    return map_values(lambda v: f(v) if isinstance(v, Array) else v, tree)


def arrays_of(tree: Any) -> list[Array]:
    """Returns the arrays of a structure in order."""
    out: list[Array] = []
    path: set[int] = set()  # the structures that contain the current one, because a structure can contain itself

    def visit(part: Any) -> None:
        if isinstance(part, Array):
            out.append(part)
            return
        if isinstance(part, ComplexArray):
            parts = [part.real, part.imag]
        elif isinstance(part, dict):
            parts = list(part.values())
        elif isinstance(part, (list, tuple)):
            parts = list(part)
        elif _is_dataclass(part):
            import dataclasses

            parts = [getattr(part, m.name) for m in dataclasses.fields(part) if m.init]
        else:
            return
        if id(part) in path:
            return
        path.add(id(part))
        for inner in parts:
            visit(inner)
        path.discard(id(part))

    visit(tree)
    return out
