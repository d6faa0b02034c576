#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times array operations in Tessera and NumPy alternately: slices, reductions, linear algebra and more. Fourier transforms and
sparse matrices are compared with SciPy.

usage: tools/compare_array_times_with_numpy.py [--only TEXT] [--rounds N] [--threads N] [--limit RATIO] ARRAY_TIMES

ARRAY_TIMES is the program built from tools/array_times.cpp. Prints the medians of both times and of their ratio. Below 1,
Tessera is faster. Times are the processor time of one thread, or with --threads the elapsed time. The exit status is 1 if a ratio is above the limit. For
development; requires numpy and scipy (tools/requirements.txt).
"""
import argparse
import os
import statistics
import subprocess
import sys
import time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("program")
parser.add_argument("--only", default="")
parser.add_argument("--rounds", type=int, default=15)
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--limit", type=float, default=1.1)
options = parser.parse_args()
# Idle threads of OpenBLAS must not occupy the processor while the other program runs.
os.environ.update(OMP_NUM_THREADS=str(options.threads), OPENBLAS_THREAD_TIMEOUT="16", TESSERA_THREADS=str(options.threads))
now = time.thread_time if options.threads == 1 else time.perf_counter
import numpy as np
import scipy.fft
import scipy.sparse


def numbers(*shape):
    return np.random.default_rng(1).uniform(-1, 1, shape).astype(np.float32)


def laplacian(dtype, n=1000):
    side = [np.ones(n * n, dtype) for _ in range(5)]
    side[1][n - 1::n] = side[3][::n] = 0  # no neighbours beyond the ends of a row
    matrix = scipy.sparse.diags_array(side, offsets=[-n, -1, 0, 1, n], shape=(n * n, n * n)).tocsr()
    matrix.eliminate_zeros()
    return matrix.astype(dtype)


def random_matrix(n, each, dtype):
    columns = np.sort(np.random.default_rng(1).integers(0, n, (n, each), np.int32), 1).ravel()
    return scipy.sparse.csr_array((numbers(n * each).astype(dtype), columns, np.arange(n + 1, dtype=np.int32) * each), (n, n))


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
    m, row, column, wide = numbers(1000, 1000), numbers(1000), numbers(1000, 1), numbers(1000, 1200)
    narrow, ten, deep, side = numbers(100000, 10), numbers(10), numbers(50, 100, 200), numbers(100, 1)
    out["sum_of_product_with_row"] = lambda: (m * row).sum()
    out["sum_of_product_with_column"] = lambda: (m * column).sum()
    out["sum_of_outer_product"] = lambda: (row * column).sum()
    out["sum_of_outer_comparison"] = lambda: (row == column).sum()
    out["max_of_difference_from_row"] = lambda: np.abs(m - row).max()
    out["sum_of_doubled_columns"] = lambda: (wide[:, :1000] * np.float32(2)).sum()
    out["sum_of_doubled_every_second_row"] = lambda: (m[::2] * np.float32(2)).sum()
    out["sum_of_product_with_row_of_10"] = lambda: (narrow * ten).sum()
    out["sum_of_product_in_three_dimensions"] = lambda: (deep * side).sum()
    for count, bins, width in ((1000, 16, 1), (100000, 16, 1), (1000000, 16, 1), (1000000, 1000000, 1),
                               (1000, 1000, 1000), (10000, 1000, 64)):
        at = np.random.default_rng(2).integers(0, bins, count)
        table, values = (numbers(n, *([width] if width > 1 else [])) for n in (bins, count))

        def scatter_add(table=table, at=at, values=values):
            into = table.copy()
            np.add.at(into, at, values)
            return into
        out[f"scatter_add_{count}_into_{bins}_by_{width}"] = scatter_add
    for size, n in (("4Ki", 1 << 12), ("256Ki", 1 << 18), ("1Mi", 1 << 20)):
        whole = np.random.default_rng(3).integers(-2**31, 2**31, n, np.int32)
        out[f"divide_i32_by_7_{size}"] = lambda whole=whole: whole // 7
    for n in (33, 65, 100, 128, 129, 200, 500, 1000):
        rows = numbers(200000 // n, n)
        doubles = rows.astype(np.float64)
        out[f"sort_rows_of_{n}"] = lambda rows=rows: np.sort(rows)
        out[f"sort_f64_rows_of_{n}"] = lambda doubles=doubles: np.sort(doubles)
        out[f"argsort_rows_of_{n}"] = lambda rows=rows: np.argsort(rows, kind="stable")
    for n in (10, 1000, 1000000):
        x, y = numbers(n), numbers(n) * np.float32(1e-6)
        positive, mask = np.abs(x) + np.float32(0.5), x > 0
        out[f"add_of_{n}"] = lambda x=x, y=y: x + y
        out[f"add_scalar_of_{n}"] = lambda x=x: x + np.float32(2)

        def add_in_place(x=x.copy(), y=y):
            x += y
        out[f"add_in_place_of_{n}"] = add_in_place
        out[f"astype_of_{n}"] = lambda x=x: x.astype(np.float64)
        out[f"flip_of_{n}"] = lambda x=x: np.flip(x).copy()
        out[f"masked_select_of_{n}"] = lambda x=x, mask=mask: x[mask]
        out[f"nonzero_of_{n}"] = lambda mask=mask: np.nonzero(mask)
        out[f"pow_of_{n}"] = lambda positive=positive: np.power(positive, np.float32(1.5))
    for dtype, name in ((np.float32, "f32"), (np.float64, "f64")):
        for n in (64, 128, 256, 512, 1024, 2048):
            a, b = numbers(n, n).astype(dtype), numbers(n).astype(dtype)
            s = a + a.T
            out[f"linalg_solve_{n}_{name}"] = lambda a=a, b=b: np.linalg.solve(a, b)
            out[f"linalg_inv_{n}_{name}"] = lambda a=a: np.linalg.inv(a)
            out[f"linalg_qr_{n}_{name}"] = lambda a=a: np.linalg.qr(a)
            out[f"linalg_eigh_{n}_{name}"] = lambda s=s: np.linalg.eigh(s)
            out[f"linalg_svd_{n}_{name}"] = lambda a=a: np.linalg.svd(a)
    for n in (1000, 1000000):
        x, rows, kernel = numbers(n), numbers(n // 100, 100), numbers(31)
        near_one = x * np.float32(1e-7) + np.float32(1)
        out[f"roll_of_{n}"] = lambda x=x: np.roll(x, 7)
        out[f"roll_rows_of_{n}"] = lambda rows=rows: np.roll(rows, 7, 1)
        out[f"repeat_of_{n}"] = lambda x=x: np.repeat(x, 3)
        out[f"tile_of_{n}"] = lambda x=x: np.tile(x, 3)
        out[f"diff_of_{n}"] = lambda x=x: np.diff(x)
        out[f"cumsum_of_{n}"] = lambda x=x: np.cumsum(x)
        out[f"cumprod_of_{n}"] = lambda near_one=near_one: np.cumprod(near_one)
        out[f"cummax_of_{n}"] = lambda x=x: np.maximum.accumulate(x)
        out[f"cummax_columns_of_{n}"] = lambda rows=rows: np.maximum.accumulate(rows, 0)
        out[f"prod_of_{n}"] = lambda near_one=near_one: np.prod(near_one)
        out[f"convolve_of_{n}"] = lambda x=x, kernel=kernel: np.convolve(x, kernel)
    for dtype, name in ((np.float32, "f32"), (np.float64, "f64")):
        def add(of, shape, axis=-1):
            re, im = numbers(*shape).astype(dtype), numbers(*shape).astype(dtype)
            z = re + 1j * im
            out[f"fft_{of}_{name}"] = lambda: scipy.fft.fft(z, axis=axis)
            out[f"rfft_{of}_{name}"] = lambda: scipy.fft.rfft(re, axis=axis)
            half = np.ascontiguousarray(np.take(z, range(shape[axis] // 2 + 1), axis))
            out[f"irfft_{of}_{name}"] = lambda: scipy.fft.irfft(half, shape[axis], axis)
        for bits in range(4, 23):
            add(f"2^{bits}", (1 << bits,))
        for bits in range(4, 17, 2):
            add(f"rows_of_2^{bits}", (1 << (18 - bits), 1 << bits))
        for n in (60, 1000, 1009, 19683, 100000):
            add(str(n), (n,))
        add("columns_of_256", (256, 1024), 0)
        square = (numbers(512, 512) + 1j * numbers(512, 512)).astype(np.complex64 if name == "f32" else np.complex128)
        out[f"fft2_512x512_{name}"] = lambda square=square: scipy.fft.fft2(square)
    for dtype, name in ((np.float32, "f32"), (np.float64, "f64")):
        for of, a in (("laplacian", laplacian(dtype)), ("random", random_matrix(100000, 20, dtype)),
                      ("long_rows", random_matrix(10000, 300, dtype))):
            for width in (1, 16):
                x = numbers(a.shape[1], width).astype(dtype)
                x = x[:, 0].copy() if width == 1 else x
                out[f"sparse_product_{width}_{of}_{name}"] = lambda a=a, x=x: a @ x
            out[f"sparse_transpose_{of}_{name}"] = lambda a=a: a.T.tocsr()
            out[f"sparse_to_csr_{of}_{name}"] = lambda a=a: a.tocoo().T.tocsr()
    mask2 = m > 0
    out["nonzero_of_1000x1000"] = lambda: np.nonzero(mask2)
    out["flip_of_1000x1000"] = lambda: np.flip(m).copy()
    out["flip_rows_of_1000x1000"] = lambda: np.flip(m, 0).copy()
    return out


def timed(operation, milliseconds, together):
    start, times = now(), 0
    while True:
        for _ in range(together):
            operation()
        times += together
        spent = now() - start
        if spent >= milliseconds / 1000:
            return spent * 1e6 / times


def main():
    ours = subprocess.Popen([options.program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    known, slow = ours.stdout.readline().split(), []
    print(f"{'operation':46} {'NumPy us':>10} {'ours us':>10} {'ratio':>7}")
    for name, operation in operations().items():
        if options.only not in name or name not in known:
            continue
        pairs = []
        for turn in range(options.rounds + 1):
            theirs = timed(operation, 8, 1 if name.startswith(("linalg", "sparse")) else 4)
            ours.stdin.write(f"{name} 8\n")
            ours.stdin.flush()
            pairs.append((theirs, float(ours.stdout.readline())))
        pairs = pairs[1:]  # the first round compiles
        ratio = statistics.median(b / a for a, b in pairs)
        theirs, mine = (statistics.median(p[i] for p in pairs) for i in (0, 1))
        mark = "  slow" if ratio > options.limit else ""
        print(f"{name:46} {theirs:10.1f} {mine:10.1f} {ratio:7.2f}{mark}", flush=True)
        if mark:
            slow.append(name)
    ours.stdin.close()
    return 1 if slow else 0


if __name__ == "__main__":
    with scipy.fft.set_workers(options.threads):
        sys.exit(main())
