#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints reference values of ggml's tensor types for tests/ops/weight_formats_test.cpp, computed by the PyPI package gguf: for
each type the SHA-256 of 65536 decoded elements, and the first four of them.

The blocks contain random bits from splitmix64. In each f16 the highest exponent bit is cleared, so that all numbers are finite.
The exponents of MXFP4 are 2 to 127.

  tools/make_weight_cases.py
"""
from __future__ import annotations

import hashlib
import importlib.metadata

import gguf
import numpy as np

# The offsets of the f16 numbers in a block.
HALVES = {"Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "IQ4_NL": [0], "Q4_K": [0, 2], "Q5_K": [0, 2],
          "Q6_K": [208], "Q2_K": [80, 82], "Q3_K": [108], "IQ4_XS": [0], "MXFP4": [], "IQ3_XXS": [0],
          "IQ3_S": [0], "IQ2_XXS": [0], "IQ2_XS": [0], "IQ2_S": [0], "IQ1_S": [0], "IQ1_M": [54], "TQ2_0": [64], "BF16": [0], "F16": [0]}
COUNT = 65536


def splitmix64(count: int, seed: int) -> np.ndarray:
    """Returns `count` 64-bit numbers (Steele, Lea and Flood 2014)."""
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + np.uint64(0x9E3779B97F4A7C15) * np.arange(1, count + 1, dtype=np.uint64)
        z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
        return z ^ z >> np.uint64(31)


def main() -> None:
    print(f"// By gguf {importlib.metadata.version('gguf')}.")
    for name, halves in HALVES.items():
        kind = gguf.GGMLQuantizationType[name]
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        data = splitmix64((COUNT // elements * size + 7) // 8, 22).view(np.uint8)[: COUNT // elements * size].copy()
        blocks = data.reshape(-1, size)
        for at in halves:
            blocks[:, at + 1] &= 0xBF
        if name == "MXFP4":
            blocks[:, 0] = blocks[:, 0] & 0x7F | 2
        values = gguf.quants.dequantize(blocks, kind).astype(np.float32).reshape(-1)
        assert values.size == COUNT and np.isfinite(values).all()
        first = ", ".join(f"{v.view(np.uint32):#010x}" for v in values[:4])
        print(f'{{GgmlType::{name.lower().replace("_k", "_K")}, '
              f'"{hashlib.sha256(values.tobytes()).hexdigest()}", {{{first}}}}},')


if __name__ == "__main__":
    main()
