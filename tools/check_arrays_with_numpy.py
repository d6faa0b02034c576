#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares each step of random array programs with NumPy.

usage: tools/check_arrays_with_numpy.py [--programs N] [--seed N] [--device NAME] ARRAY_PROGRAMS

ARRAY_PROGRAMS is the program built from tools/array_programs.cpp. NumPy repeats each step with the operands that Tessera
used and with the dtypes of docs/arrays.md. Integers, bools, views and arithmetic must be equal. Functions and sums must be
within bounds in units in the last place. For development; requires numpy (tools/requirements.txt).
"""
import argparse
import json
import random
import subprocess
import sys

import numpy as np

INTS = {"u8": np.uint8, "i8": np.int8, "u16": np.uint16, "i16": np.int16, "u32": np.uint32, "i32": np.int32,
        "u64": np.uint64, "i64": np.int64}
KINDS = {"bool": np.bool_, **INTS, "f16": np.float16, "bf16": np.float32, "f32": np.float32, "f64": np.float64}
EPSILON = {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 2.0**-23, "f64": 2.0**-52}
TINY = {"f16": 2.0**-24, "bf16": 2.0**-133, "f32": 2.0**-149, "f64": 2.0**-1074}


def kind(t):
    return 0 if t == "bool" else 2 if t in EPSILON else 1


def promote(a, b):
    if a == b:
        return a
    if kind(a) != kind(b):
        return a if kind(a) > kind(b) else b
    if kind(a) == 2:
        return "f64" if "f64" in (a, b) else "f32"
    size = {t: np.dtype(INTS[t]).itemsize for t in (a, b)}
    if a[0] == b[0]:
        return a if size[a] > size[b] else b
    u, s = (a, b) if a[0] == "u" else (b, a)
    if size[s] > size[u]:
        return s
    return {1: "i16", 2: "i32"}.get(size[u], "i64")


def to_bf16(x):
    x = np.array(x, np.float32, order="C")
    bits = x.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(x), x, rounded.view(np.float32))


def cast(x, t_from, t_to):
    """Converts as docs/kernels.md specifies."""
    if t_from == t_to:
        return x
    if t_to == "bool":
        return x != 0
    if kind(t_from) == 2 and kind(t_to) == 1:
        limits = np.iinfo(INTS[t_to])
        wide = np.trunc(np.nan_to_num(x.astype(np.float64), nan=0.0))
        low, high = wide <= limits.min, wide >= float(limits.max)
        safe = np.where(low | high, 0, wide).astype(INTS[t_to])
        return np.where(low, INTS[t_to](limits.min), np.where(high, INTS[t_to](limits.max), safe)).astype(INTS[t_to])
    if t_to in ("f16", "bf16"):
        x = x.astype(np.float32)
        return x.astype(np.float16) if t_to == "f16" else to_bf16(x)
    return x.astype(KINDS[t_to])


def integers(op, a, b):
    t = a.dtype.type
    if op == "div" or op == "rem":
        zero, minus = b == 0, (b == -1) if np.issubdtype(t, np.signedinteger) else np.zeros(b.shape, bool)
        safe = np.where(zero | minus, t(1), b)
        q = np.abs(a.astype(object)) // np.abs(safe.astype(object)) if a.size else a
        q = np.asarray(q, object)  # NumPy returns zero-dimensional results as scalars
        q = np.where((a < 0) != (safe < 0), -q, q)
        q = wrap(q, t)
        if op == "rem":
            return np.where(zero | minus, t(0), wrap(a.astype(object) - q.astype(object) * safe.astype(object), t))
        return np.where(zero, t(0), np.where(minus, wrap(-a.astype(object), t), q)).astype(t)
    f = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "minimum": np.minimum, "maximum": np.maximum,
         "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[op]
    return f(a, b)


def wrap(x, t):
    bits = np.dtype(t).itemsize * 8
    flat = [int(v) & ((1 << bits) - 1) for v in np.asarray(x, object).ravel()]
    if np.issubdtype(t, np.signedinteger):
        flat = [v - (1 << bits) if v >> (bits - 1) else v for v in flat]
    return np.array(flat, dtype=t).reshape(np.shape(x))


COMPARE = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
           "ge": np.greater_equal}
FLOAT = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "rem": np.fmod,
         "minimum": np.minimum, "maximum": np.maximum, "pow": np.power}


def erf(x):
    from math import erf as one
    return np.vectorize(lambda v: v if np.isnan(v) else one(v), otypes=[np.float64])(x) if x.size else x


UNARY = {"sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "exp": np.exp, "exp2": np.exp2, "log": np.log,
         "log2": np.log2, "sin": np.sin, "cos": np.cos, "tanh": np.tanh, "erf": erf, "floor": np.floor, "ceil": np.ceil,
         "trunc": np.trunc, "rint": np.rint, "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
         "silu": lambda x: x / (1 + np.exp(-x)), "gelu": lambda x: 0.5 * x * (1 + erf(x * 0.7071067811865476))}
# Allowed error in addition to the rounding of the result, in units in the last place.
LOOSE = {"exp": 2, "exp2": 2, "log": 2, "log2": 2, "sin": 3, "cos": 3, "tanh": 3, "erf": 3, "rsqrt": 2, "sigmoid": 6,
         "silu": 8, "gelu": 60, "pow": 4, "sqrt": 1}


class Mismatch(Exception):
    pass


class Program:
    def __init__(self):
        self.arrays = {}

    def step(self, line):
        op, t = line["op"], line["dtype"]
        shape = tuple(line["shape"])
        raw = np.frombuffer(bytes.fromhex(line["data"]), np.uint16 if t == "bf16" else KINDS[t])
        if t == "bf16":
            raw = (raw.astype(np.uint32) << 16).view(np.float32)
        got = raw.reshape(shape)
        if op == "data":
            self.arrays[line["to"]] = (got.copy(), t)
            return
        want, bound = self.reference(op, line, t)
        if want.shape != shape:
            raise Mismatch(f"shape {shape}, NumPy's {want.shape}")
        self.compare(got, want, bound, t)
        in_place = op in ("fill", "assign") or op.endswith("_in_place")
        if in_place:
            np.copyto(self.arrays[line["to"]][0], got)
        else:
            same = op == "astype" and self.arrays[line["from"][0]][1] == t  # astype to the same dtype returns the array itself
            is_view = same or op in ("transpose", "reshape", "slice", "select", "unsqueeze", "permute", "broadcast_to")
            self.arrays[line["to"]] = (want if is_view else got.copy(), t)

    def reference(self, op, line, t):
        n = line["numbers"]
        sources = [self.arrays[i] for i in line["from"]]
        scalar = line["scalar"]
        if op == "fill":
            value = float(scalar)
            target = self.arrays[line["to"]]
            return cast(np.full(target[0].shape, value, np.float64), "f64", t), 0
        if op == "assign":
            target = self.arrays[line["to"]]
            return np.broadcast_to(cast(sources[0][0], sources[0][1], t), target[0].shape), 0
        if op.endswith("_in_place"):
            target = self.arrays[line["to"]]
            b = cast(sources[0][0], sources[0][1], t)
            return self.binary(op[:-9], target[0], b, t)
        a, ta = sources[0]
        views = {"transpose": lambda: a.transpose(), "reshape": lambda: a.reshape(n), "copy": lambda: a.copy(),
                 "unsqueeze": lambda: np.expand_dims(a, n[0]), "permute": lambda: a.transpose(n),
                 "broadcast_to": lambda: np.lib.stride_tricks.as_strided(a, n, np.broadcast_to(a, n).strides)}
        if op in views:
            return views[op](), 0
        if op == "slice":
            at = [slice(None)] * a.ndim
            at[n[0]] = slice(n[1], n[2], n[3])
            return a[tuple(at)], 0
        if op == "select":
            return a[(slice(None),) * n[0] + (n[1], Ellipsis)], 0
        if op == "astype":
            return cast(a, ta, t), 0
        if op in ("sum", "mean", "max", "min", "any", "all", "argmax"):
            return self.reduction(op, a, ta, n, t)
        if op in ("neg", "abs", "not", "relu") or op in UNARY:
            return self.unary(op, a, ta, t)
        if op == "concatenate":
            return np.concatenate([cast(x, tx, t) for x, tx in sources], n[0]), 0
        if op == "take":
            index = sources[1][0]
            inside = (index >= 0) & (index < a.shape[0])
            rows = a[np.where(inside, index, 0).astype(np.int64)]
            return np.where(inside.reshape(inside.shape + (1,) * (a.ndim - 1)), rows, rows.dtype.type(0)), 0
        if op == "matmul":
            b, tb = sources[1]
            meet = promote(ta, tb)
            if kind(meet) == 2:
                # Integers combined with a 16-bit float are converted to f32 (ops/product.h).
                wide = [cast(z, tz, "f64" if meet == "f64" else "f32") if kind(tz) != 2 else z for z, tz in ((a, ta), (b, tb))]
                x, y = wide[0].astype(np.float64), wide[1].astype(np.float64)
                inner = EPSILON["f64" if meet == "f64" else "f32"]
                most = np.matmul(np.abs(x), np.abs(y))
                bound = 2 * x.shape[-1] * inner * most + EPSILON[t] * most + TINY[t]
                return np.matmul(x, y), np.where(most > (1e308 if meet == "f64" else 3.3e38), np.inf, bound)
            return np.matmul(cast(a, ta, t), cast(b, tb, t)), 0
        if op == "where":
            condition = a if ta == "bool" else a != 0
            (x, tx), (y, ty) = sources[1:]
            return np.where(condition, cast(x, tx, t), cast(y, ty, t)), 0
        # Two operands.
        if len(sources) == 2:
            b, tb = sources[1]
        else:
            tb = "f32" if scalar.endswith("f") else "i32"
            b = np.array(float(scalar.rstrip("f")) if tb == "f32" else int(scalar), np.float64 if tb == "f32" else np.int64)
            meet = ta if kind(tb) <= kind(ta) else tb
            b = cast(b, "f64", meet) if kind(tb) == 2 else b.astype(KINDS[meet])
            if meet == "bf16":
                b = to_bf16(b)
            tb = meet
        meet = promote(ta, tb) if len(sources) == 2 else tb
        a, b = cast(a, ta, meet), cast(b, tb, meet)
        if len(sources) == 1 and n and n[0]:
            a, b = b, a
        if op in COMPARE:
            return COMPARE[op](a, b), 0
        return self.binary(op, a, b, meet)

    def binary(self, op, a, b, t):
        if kind(t) != 2:
            return np.asarray(integers(op, np.asarray(a), np.asarray(b))), 0
        wide = np.float64 if t == "f64" else np.float32
        if op == "pow":
            # C's pow, used by NumPy on some processors, returns NaN for 1 and a signalling NaN; multiplying by 1 quiets it.
            exact = np.power(np.asarray(a, np.float64) * 1.0, np.asarray(b, np.float64) * 1.0)
            return exact, (LOOSE["pow"] + 1) * EPSILON[t] * np.abs(exact) + TINY[t]
        result = np.asarray(FLOAT[op](np.asarray(a, wide), np.asarray(b, wide)))
        return (result.astype(np.float16) if t == "f16" else to_bf16(result) if t == "bf16" else result), 0

    def unary(self, op, a, ta, t):
        if op == "not":
            return ~a, 0
        if op in ("neg", "abs", "relu"):
            if kind(ta) == 1 and op == "neg":
                return np.zeros_like(a) - a, 0
            if kind(ta) == 1 and op == "abs":
                return np.where(a < 0, np.zeros_like(a) - a, a), 0
            return {"neg": np.negative, "abs": np.abs, "relu": lambda x: np.maximum(x, x.dtype.type(0))}[op](a), 0
        x = cast(a, ta, t).astype(np.float64)
        want = np.asarray(UNARY[op](x))
        bound = (LOOSE.get(op, 0) * EPSILON["f64" if t == "f64" else "f32"] + EPSILON[t]) * np.abs(want) + TINY[t]
        if op in ("sin", "cos"):  # the range reduction uses three parts of pi / 2
            bound = np.where(np.abs(x) > 1e5, 3, bound + 1e-7)
        if op in ("sigmoid", "silu"):  # exp(-x) overflows before the result rounds to 0
            bound = bound + 2.0**-126 * (1 + np.abs(x)) if t != "f64" else bound
        if op in ("silu", "gelu"):
            bound = bound + 4 * EPSILON["f32"] * np.abs(x)
        return want, bound

    def reduction(self, op, a, ta, n, t):
        keeps, axes = bool(n[0]), tuple(n[1:]) or None
        if op == "argmax":
            return np.asarray(np.argmax(a, axis=n[1], keepdims=keeps)), 0
        if op in ("any", "all"):
            return np.asarray(getattr(np, op)(a != 0, axis=axes, keepdims=keeps)), 0
        if op in ("max", "min"):
            return np.asarray(getattr(np, op)(a, axis=axes, keepdims=keeps)), 0
        if op == "sum" and kind(ta) != 2:
            return np.asarray(np.sum(a, axis=axes, keepdims=keeps, dtype=KINDS[t])), 0
        x = a.astype(np.float64)
        want = np.asarray(np.sum(x, axis=axes, keepdims=keeps))
        most = np.asarray(np.sum(np.abs(x), axis=axes, keepdims=keeps))
        count = x.size // max(want.size, 1)
        bound = count * EPSILON["f64" if t == "f64" else "f32"] * most + EPSILON[t] * np.abs(want) + TINY[t]
        bound = np.where(most > (1e308 if t == "f64" else 3.3e38), np.inf, bound)  # the sum overflows
        if op == "mean" and count:
            want, bound = want / count, bound / count + EPSILON[t] * np.abs(want / count) + TINY[t]
        elif op == "mean":
            want = want * np.nan
        return want, bound

    @staticmethod
    def compare(got, want, bound, t):
        if kind(t) != 2:
            if not np.array_equal(got, want):
                raise Mismatch("")
            return
        g, w = got.astype(np.float64), np.asarray(want).astype(np.float64)
        limit = {"f16": 65504.0, "bf16": 3.3895313892515355e38, "f32": 3.4028234663852886e38, "f64": 1.7976931348623157e308}[t]
        with np.errstate(all="ignore"):
            near = (np.abs(g - w) <= bound) | np.isinf(bound)
            same = (g == w) | (np.isnan(g) & np.isnan(w)) | near
            # Values that are at least the largest number of the dtype.
            same |= np.isinf(g) & (np.abs(w) > limit * (1 - 1e-2)) & (np.sign(g) == np.sign(w))
            same |= np.isinf(g) & (np.sign(g) * w + bound > limit * (1 - 1e-2))
            if not np.isscalar(bound):
                same |= ~np.isfinite(w) & ~np.isfinite(bound) & ~np.isfinite(g)
        if not same.all():
            at = np.argwhere(~same)[0]
            raise Mismatch(f"at {tuple(at)}: {g[tuple(at)]!r}, NumPy's {w[tuple(at)]!r}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--programs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--device", default="cpu:0")
    options = parser.parse_args()
    command = [options.program, str(options.seed), str(options.programs), options.device]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    programs = steps = failures = 0
    program = seed = None
    np.seterr(all="ignore")
    for text in child.stdout:
        line = json.loads(text)
        if "program" in line:
            programs, seed, program = programs + 1, line["program"], Program()
            continue
        if program is None:
            continue
        steps += 1
        try:
            program.step(line)
        except Mismatch as wrong:
            failures += 1
            shown = {k: v for k, v in line.items() if k != "data"}
            print(f"program {seed}: {shown}: {wrong}")
            dtypes = [(self_t, x.shape) for x, self_t in (program.arrays[i] for i in line["from"])]
            print(f"  operands {dtypes}")
            program = None
    if child.wait() != 0:
        print(f"{command[0]} ended with status {child.returncode}")
        return 1
    print(f"{programs} programs of seed {options.seed} on, {steps} steps, {failures} differ from NumPy {np.__version__}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
