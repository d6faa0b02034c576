# SPDX-License-Identifier: Apache-2.0
"""Exceptions and messages that exist only in Python."""

from __future__ import annotations

import functools
import os
import re
from typing import Any, Callable, Iterable

from ._core import ArgumentError


class MissingFile(ArgumentError, FileNotFoundError):
    """A file to read, or the folder of a file to write, does not exist."""


def reading(path: Any, read: Callable[[], Any]) -> Any:
    """Returns read(). Raises MissingFile instead of ArgumentError if `path` does not exist."""
    try:
        return read()
    except ArgumentError as error:
        if os.path.exists(path):
            raise
        raise MissingFile(str(error)) from None


def check_folder(function: str, path: Any) -> None:
    """Raises MissingFile if the folder of a file to write does not exist."""
    folder = os.path.dirname(path)
    if folder and not os.path.isdir(folder):
        raise MissingFile(f"[{function}] the folder {folder} does not exist. Create it with os.makedirs(), or correct the path "
                          f"{path}")  # fmt: skip


def similar(name: str, names: Iterable[str]) -> str:
    """Returns a sentence with the most similar one of the names, or an empty text."""
    import difflib

    by_lower = {n.lower(): n for n in names}
    found = difflib.get_close_matches(name.lower(), by_lower, 1)
    return f". Did you mean {by_lower[found[0]]}?" if found else ""


def check_not_negative(function: str, **numbers: float | None) -> None:
    """Raises ArgumentError, which is a ValueError, if a number is negative or NaN."""
    for name, value in numbers.items():
        if isinstance(value, (int, float)) and not value >= 0:
            raise ArgumentError(f"[{function}] {name} is {value}, but must not be negative")


def explains_types(name: str) -> Callable[[Callable], Callable]:
    """Decorates a function so that the binding's errors, which print all values, name the arguments instead."""

    def decorate(function: Callable) -> Callable:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except (TypeError, RuntimeError) as error:
                if not re.search(r"incompatible \w+ arguments|^Unable to cast Python instance", str(error)):
                    raise
            import inspect  # slow to import

            signature = inspect.signature(function)
            given = signature.bind(*args, **kwargs).arguments
            text = ", ".join(f"{n} must be {p.annotation}, got {type(given[n]).__name__}"
                             for n, p in signature.parameters.items() if n in given and n != "self")  # fmt: skip
            raise TypeError(f"[{name}] an argument has a wrong type: {text}")

        return call

    return decorate
