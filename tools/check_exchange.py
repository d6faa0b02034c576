#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exchanges random arrays between Tessera, NumPy, PyTorch and JAX through DLPack, and checks contents, addresses and lifetimes.

usage: PYTHONPATH=build/release/python tools/check_exchange.py [--exchanges N] [--seed N] [--without torch,jax]

Memory is created by one of the libraries, passed to others with __dlpack__, viewed, written through any of its arrays, and
released in random order, partly on another thread. Each exchange must keep the address, each array must have the contents
of a copy that NumPy maintains, and memory must be freed exactly when its last array is gone. JAX gets only arrays that it does
not copy: without gaps, at an address that is a multiple of 64. Prints the seed, and exits with status 1 at the first difference.

For development; requires numpy, and torch and jax unless they are left out (tools/requirements.txt), and a package that is
built for the same Python. docs/python.md shows how to run it with the address sanitizer.
"""
import argparse
import collections
import gc
import os
import random
import sys
import threading
import time
import weakref

import numpy as np
import tessera as ts

LIBRARIES = ["numpy", "torch", "jax", "tessera"]
DTYPES = ["bool", "int8", "uint8", "int16", "int32", "int64", "float16", "float32", "float64"]


class Capsule:
    """An exporter of the unversioned form, without the arguments of newer versions."""

    def __init__(self, x):
        self.x = x

    def __dlpack__(self, stream=None):
        return self.x.__dlpack__()

    def __dlpack_device__(self):
        return self.x.__dlpack_device__()


def library(x):
    module = type(x).__module__.split(".")[0]
    return "jax" if module == "jaxlib" else module


def address(x):
    if library(x) == "torch":
        return x.data_ptr()
    if library(x) == "jax":
        return x.unsafe_buffer_pointer()
    return (x if library(x) == "numpy" else np.from_dlpack(x)).__array_interface__["data"][0]


def contents(x):
    if library(x) == "jax":
        return np.from_dlpack(x)  # numpy.asarray caches a copy of transposed arrays
    return x if library(x) == "numpy" else x.numpy()


def is_writable(x):
    return library(x) in ("torch", "tessera") or (library(x) == "numpy" and x.flags.writeable)


def can_share_with_jax(x, truth):
    if truth.size == 0 or address(x) % 64 != 0 or not is_writable(x):
        return False
    expected = truth.itemsize
    for stride, n in sorted((s, n) for s, n in zip(truth.strides, truth.shape) if n > 1):
        if stride != expected:
            return False
        expected *= n
    return True


def converted(x, to, rng):
    source = Capsule(x) if is_writable(x) and rng.random() < 0.3 else x  # the older form has no flag for read-only memory
    if to == "tessera":
        return ts.from_dlpack(source, copy=None if is_writable(x) and rng.random() < 0.5 else False)
    if to == "torch":
        return torch.utils.dlpack.from_dlpack(x.__dlpack__()) if is_writable(x) and rng.random() < 0.3 else torch.from_dlpack(x)
    if to == "jax":
        return jax.dlpack.from_dlpack(x)
    return np.from_dlpack(x)


class Memory:
    """Memory that several arrays share, and a copy of its contents."""

    def __init__(self, rng):
        dtype = rng.choice(DTYPES)
        shape = tuple(rng.randrange(1, 6) for _ in range(rng.randrange(0, 4)))
        values = np.asarray(np.random.default_rng(rng.randrange(2**32)).integers(0, 2 if dtype == "bool" else 100, shape))
        self.truth = values.astype(dtype)
        self.maker = rng.choice(LIBRARIES)
        self.freed = False
        self.is_observed = self.maker in ("numpy", "torch")
        if self.maker == "tessera":
            x = ts.asarray(self.truth)
        elif self.maker == "jax":
            x = jax.numpy.array(self.truth)
        else:
            x = np.array(self.truth)
            weakref.finalize(x, lambda: setattr(self, "freed", True))
            x = torch.from_numpy(x) if self.maker == "torch" else x
        self.arrays = [(x, self.truth)]


def view(x, truth, rng):
    """Returns the same random view of both."""
    if truth.ndim >= 2 and rng.random() < 0.3:
        order = list(range(truth.ndim))
        rng.shuffle(order)
        permute = {"numpy": lambda: x.transpose(order), "torch": lambda: x.permute(order),
                   "tessera": lambda: ts.permute_dims(x, order)}  # fmt: skip
        return permute[library(x)](), truth.transpose(order)
    key = []
    for n in truth.shape:
        begin = rng.randrange(n)
        key.append(begin if rng.random() < 0.2 else slice(begin, rng.randrange(begin, n) + 1, rng.choice([1, 1, 2])))
    key = (*key, ...)
    return x[key], truth[key]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--exchanges", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--without", default="", help="libraries to leave out, separated by commas")
    options = parser.parse_args()
    for name in options.without.split(","):
        LIBRARIES[:] = [n for n in LIBRARIES if n != name]
    global jax, torch
    if "torch" in LIBRARIES:
        import torch
    if "jax" in LIBRARIES:
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
        import jax
        import jax.numpy

        jax.config.update("jax_enable_x64", True)
    print("seed", options.seed, flush=True)
    rng = random.Random(options.seed)
    alive, counts, pending, memories = [], collections.Counter(), [], []

    def require(ok, what):
        if not ok:
            sys.exit(f"FAILED after {sum(counts.values())} exchanges, seed {options.seed}: {what}")

    def same(x, truth):
        got = np.asarray(contents(x))
        return got.shape == truth.shape and got.dtype == truth.dtype and np.array_equal(got, truth)

    def drop(arrays):
        """Releases arrays, sometimes on another thread."""
        if rng.random() < 0.3:
            thread = threading.Thread(target=arrays.clear)
            thread.start()
            thread.join()
        else:
            arrays.clear()

    while sum(counts.values()) < options.exchanges:
        if len(alive) < 20:
            alive.append(Memory(rng))
            memories.append(alive[-1])
        memory = rng.choice(alive)
        x, truth = rng.choice(memory.arrays)
        what = rng.random()
        if what < 0.55:
            to = rng.choice([name for name in LIBRARIES if name != library(x)])
            if to == "jax" and not can_share_with_jax(x, truth):
                continue
            made = converted(x, to, rng)
            counts[f"{library(x)} to {to}"] += 1
            require(truth.size == 0 or address(made) == address(x), f"{library(x)} to {to} copied {truth.shape} {truth.dtype}")
            require(same(made, truth), f"{library(x)} to {to} changed {truth}")
            memory.arrays.append((made, truth))
        elif what < 0.7 and library(x) != "jax":
            memory.arrays.append(view(x, truth, rng))
        elif what < 0.8 and truth.size and is_writable(x):
            part, part_truth = view(x, truth, rng)
            value = rng.randrange(2) if truth.dtype == bool else rng.randrange(100)
            part[...] = bool(value) if truth.dtype == bool else value
            part_truth[...] = value
            ts.synchronize()
            for other, other_truth in memory.arrays:
                require(same(other, other_truth), f"a write through {library(x)} is not seen by {library(other)}")
        elif what < 0.85 and library(x) == "tessera" and truth.dtype != bool:
            # An expression that is computed after its operand's other arrays are gone. Writes would change its value.
            pending.append((x + 1, truth + truth.dtype.type(1)))
            memory.arrays[:] = [(x, truth)]
            del x, truth
            held = alive.pop(alive.index(memory)).arrays
            drop(held)
        else:
            if len(memory.arrays) > 1 and rng.random() < 0.8:
                gone = [memory.arrays.pop(rng.randrange(len(memory.arrays)))]
                drop(gone)
                require(not memory.freed, "memory was freed before its last array")
            else:
                alive.remove(memory)
                drop(memory.arrays)
        x = truth = made = part = part_truth = other = other_truth = held = gone = memory = None
        if len(pending) > 10:
            for y, wanted in pending:
                require(same(y, wanted), f"x + 1 is {y}, not {wanted}")
            pending.clear()
            y = None
    for memory in alive:
        require(not memory.freed, "memory was freed before its last array")
        for x, truth in memory.arrays:
            require(same(x, truth), f"{library(x)} has {x}, not {truth}")
        memory.arrays.clear()
    for y, wanted in pending:
        require(same(y, wanted), f"x + 1 is {y}, not {wanted}")
    pending.clear()
    x = truth = y = memory = None
    alive.clear()
    ts.synchronize()
    ts.from_dlpack(np.zeros(1))  # returns tensors that were released without the GIL
    gc.collect()
    observed = [memory for memory in memories if memory.is_observed]
    deadline = time.monotonic() + 5  # JAX may release memory later
    while time.monotonic() < deadline and not all(memory.freed for memory in observed):
        time.sleep(0.01)
    for memory in observed:
        require(memory.freed, f"memory of {memory.maker} was not freed")
    for name, count in sorted(counts.items()):
        print(f"{name}: {count}")
    print(f"{sum(counts.values())} exchanges without copies, {len(memories)} memories, {len(observed)} of them observed to be freed")


if __name__ == "__main__":
    main()
