#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times operations on arrays beside NumPy's, in turn, with one thread: strided slices, sums, the largest element.

usage: tools/compare_array_times_with_numpy.py [--only TEXT] [--rounds N] [--limit RATIO] ARRAY_TIMES

ARRAY_TIMES is the program built from tools/array_times.cpp. Prints the medians of both and of the ratio, which below 1
says that ours is faster (processor time of one thread); exit status 1 if one is above the limit. Development only: needs numpy (tools/requirements.txt).
"""
import argparse
import os
import statistics
import subprocess
import sys
import time

os.environ["OMP_NUM_THREADS"] = "1"
import numpy as np


def numbers(*shape):
    return np.random.default_rng(1).uniform(-1, 1, shape).astype(np.float32)


def operations():
    out = {}
    for size, n in (("small", 8192), ("large", 1 << 20)):
        x, y = numbers(2 * n), numbers(2 * n)
        ints = x.astype(np.int32) + 1
        out[f"add_every_second_{size}"] = lambda x=x, y=y: x[::2] + y[::2]
        out[f"copy_every_second_{size}"] = lambda x=x: x[::2].copy()
        out[f"copy_every_third_{size}"] = lambda x=x: x[::3].copy()
        out[f"scale_every_fifth_{size}"] = lambda x=x: x[::5] * np.float32(2)
        out[f"sum_{size}"] = lambda x=x: x.sum()
        out[f"argmax_{size}"] = lambda x=x: x.argmax()
        out[f"argmax_i32_{size}"] = lambda ints=ints: ints.argmax()
    for shape in ((64, 128), (1000, 1000), (100, 10000), (10000, 100), (100000, 10)):
        x, name = numbers(*shape), "x".join(map(str, shape))
        for axis in (0, 1):
            out[f"sum_{name}_axis{axis}"] = lambda x=x, axis=axis: x.sum(axis)
            out[f"max_{name}_axis{axis}"] = lambda x=x, axis=axis: x.max(axis)
            out[f"argmax_{name}_axis{axis}"] = lambda x=x, axis=axis: x.argmax(axis)
        out[f"transposed_{name}"] = lambda x=x: x.T.copy()
        out[f"columns_{name}"] = lambda x=x: x[:, 1:-1].copy()
        out[f"every_second_row_and_column_{name}"] = lambda x=x: x[::2, ::2].copy()
        out[f"add_transposed_{name}"] = lambda x=x: np.add(x.T, np.float32(1), order="C")
    cube = numbers(100, 100, 100)
    for axis in (0, 1, 2):
        out[f"sum_100x100x100_axis{axis}"] = lambda axis=axis: cube.sum(axis)
    return out


def timed(operation, milliseconds):
    start, times = time.thread_time(), 0
    while True:
        for _ in range(4):
            operation()
        times += 4
        spent = time.thread_time() - start
        if spent >= milliseconds / 1000:
            return spent * 1e6 / times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--limit", type=float, default=1.1)
    options = parser.parse_args()
    ours = subprocess.Popen([options.program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                            env={**os.environ, "TESSERA_THREADS": "1"})
    known, slow = ours.stdout.readline().split(), []
    print(f"{'operation':46} {'NumPy us':>10} {'ours us':>10} {'ratio':>7}")
    for name, operation in operations().items():
        if options.only not in name or name not in known:
            continue
        pairs = []
        for turn in range(options.rounds + 1):
            theirs = timed(operation, 8)
            ours.stdin.write(f"{name} 8\n")
            ours.stdin.flush()
            pairs.append((theirs, float(ours.stdout.readline())))
        pairs = pairs[1:]  # the first compiles
        ratio = statistics.median(b / a for a, b in pairs)
        theirs, mine = (statistics.median(p[i] for p in pairs) for i in (0, 1))
        mark = "  slow" if ratio > options.limit else ""
        print(f"{name:46} {theirs:10.1f} {mine:10.1f} {ratio:7.2f}{mark}", flush=True)
        if mark:
            slow.append(name)
    ours.stdin.close()
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
