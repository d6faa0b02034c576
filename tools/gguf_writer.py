# SPDX-License-Identifier: Apache-2.0
"""A small writer of GGUF version 3 files: typed key-value pairs and F32, F16 and Q8_0 tensors."""
from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import numpy as np

ALIGNMENT = 32
Q8_0_BLOCK = 32

_VALUE_TYPES = {"u32": (4, "<I"), "i32": (5, "<i"), "f32": (6, "<f"), "bool": (7, "<?"), "str": (8, "")}
_TENSOR_TYPES = {"f32": 0, "f16": 1, "q8_0": 8}


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _value(kind: str, value: Any) -> bytes:
    return _string(value) if kind == "str" else struct.pack(_VALUE_TYPES[kind][1], value)


def quantize_q8_0(matrix: np.ndarray) -> bytes:
    """Q8_0: each 32 values of a row become an f16 scale (max|x| / 127) and 32 signed bytes (x / scale, rounded)."""
    if matrix.shape[-1] % Q8_0_BLOCK:
        raise ValueError(f"a row of {matrix.shape[-1]} values is not a multiple of {Q8_0_BLOCK}")
    blocks = np.ascontiguousarray(matrix, dtype=np.float32).reshape(-1, Q8_0_BLOCK)
    scale = np.abs(blocks).max(axis=1, keepdims=True) / np.float32(127)
    inverse = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale > 0)
    scaled = blocks * inverse
    rounded = np.trunc(scaled + np.copysign(np.float32(0.5), scaled))  # halves away from zero, as C's roundf
    out = np.empty(len(blocks), dtype=[("scale", "<f2"), ("values", "i1", Q8_0_BLOCK)])
    out["scale"] = scale[:, 0]
    out["values"] = rounded
    return out.tobytes()


class GgufWriter:
    """Collects key-value pairs and tensors, then writes the file in one go."""

    def __init__(self) -> None:
        self._pairs: list[tuple[str, bytes]] = []
        self._tensors: list[tuple[str, tuple[int, ...], int, bytes]] = []
        self.add("general.alignment", "u32", ALIGNMENT)

    def add(self, key: str, kind: str, value: Any) -> None:
        """Adds one value; `kind` is one of u32, i32, f32, bool, str."""
        self._pairs.append((key, struct.pack("<I", _VALUE_TYPES[kind][0]) + _value(kind, value)))

    def add_array(self, key: str, kind: str, values: list) -> None:
        """Adds an array of values of one kind."""
        head = struct.pack("<IIQ", 9, _VALUE_TYPES[kind][0], len(values))
        self._pairs.append((key, head + b"".join(_value(kind, v) for v in values)))

    def add_tensor(self, name: str, array: np.ndarray, kind: str) -> None:
        """Adds a tensor, converted to `kind`. GGUF lists the dimensions innermost first."""
        if kind == "q8_0":
            data = quantize_q8_0(array)
        else:
            data = np.ascontiguousarray(array, dtype={"f32": "<f4", "f16": "<f2"}[kind]).tobytes()
        self._tensors.append((name, tuple(reversed(array.shape)), _TENSOR_TYPES[kind], data))

    def write(self, path: Path) -> int:
        """Writes the file under a temporary name, renames it into place, returns its size in bytes."""
        out = bytearray(b"GGUF" + struct.pack("<IQQ", 3, len(self._tensors), len(self._pairs)))
        for key, value in self._pairs:
            out += _string(key) + value
        offset = 0
        for name, dims, kind, data in self._tensors:
            out += _string(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
            out += struct.pack("<IQ", kind, offset)
            offset += len(data) + -len(data) % ALIGNMENT
        out += bytes(-len(out) % ALIGNMENT)
        for _, _, _, data in self._tensors:
            out += data + bytes(-len(data) % ALIGNMENT)
        temporary = path.with_name(path.name + ".part")
        temporary.write_bytes(out)
        os.replace(temporary, path)
        return len(out)
