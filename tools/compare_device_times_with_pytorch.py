#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares operations on a GPU with PyTorch's: runs `benchmarks/device` (script/bench device, or the one in script/gpu's
archive) and the same operations in PyTorch alternately, and prints a table in Markdown: our microseconds, PyTorch's,
our time divided by theirs, and our rate in GB/s or TFLOP/s. Each figure is the median of the rounds.

usage: compare_device_times_with_pytorch.py DEVICE_BENCHMARK [--rounds N] [--part NAME] [--library-path FOLDER]
"""

import argparse
import os
import statistics
import subprocess
import time

import torch
import torch.nn.functional as F


def time_of(operation):
    """Seconds per call: the fastest of five batches of about 20 ms, each ended by one wait."""
    for _ in range(3):
        operation()
    torch.cuda.synchronize()
    start = time.perf_counter()
    operation()
    torch.cuda.synchronize()
    count = max(1, min(2000, int(0.02 / (time.perf_counter() - start))))
    best = 1e9
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(count):
            operation()
        torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - start) / count)
    return best


def operations():
    """Yields the name and a function for each row of benchmarks/device.cpp that PyTorch has."""
    n = 8192
    x, y, row = torch.randn(n, n, device="cuda"), torch.randn(n, n, device="cuda"), torch.randn(n, device="cuda")
    yield "copy", x.clone
    yield "fill", lambda: torch.full((n, n), 3.0, device="cuda")
    yield "x + y", lambda: x + y
    yield "x * 2 + y * x - 1", lambda: x * 2 + y * x - 1
    yield "x + row", lambda: x + row
    yield "x + y transposed", lambda: y + x.T
    yield "gelu", lambda: F.gelu(x)
    yield "transposed copy", lambda: x.T.contiguous()
    yield "astype bf16", lambda: x.to(torch.bfloat16)
    yield "random_normal", lambda: torch.randn(n, n, device="cuda")
    yield "softmax of rows", lambda: torch.softmax(x, -1)
    yield "rms_norm", lambda: F.rms_norm(x, (n,), row, 1e-5)
    yield "sum", lambda: x.sum()
    yield "sum of columns", lambda: x.sum(0)
    yield "sum of rows", lambda: x.sum(1)
    yield "argmax of rows", lambda: x.argmax(1)
    yield "cumsum of rows", lambda: x.cumsum(1)
    keys = torch.randn(1 << 24, device="cuda")
    yield "sort of 16 Mi", lambda: keys.sort()
    types = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
    sizes = [(t, s, s, s) for s in (1024, 4096, 8192) for t in types]
    sizes += [("f32", 1, 4096, 4096)] + [("bf16", m, 4096, 4096) for m in (1, 16, 128)]
    for name, m, columns, k in sizes:
        a = torch.randn(m, k, device="cuda").to(types[name])
        b = torch.randn(k, columns, device="cuda").to(types[name])
        yield f"matmul {name} {m} x {columns} x {k}", lambda a=a, b=b: a @ b
    for name in ("f16", "bf16"):
        weight = torch.randn(14336, 4096, device="cuda").to(types[name])
        for tokens in (1, 8, 512):
            v = torch.randn(tokens, 4096, device="cuda").to(types[name])
            yield f"linear {name} 14336 x 4096, {tokens} tokens", lambda v=v, weight=weight: F.linear(v, weight)
    for past in (128, 1024, 8192):
        q = torch.randn(1, 32, 1, 128, device="cuda").to(torch.float16)
        k = torch.randn(1, 8, past, 128, device="cuda").to(torch.float16)
        yield (f"attention of 1 token to {past}",
               lambda q=q, k=k: F.scaled_dot_product_attention(q, k, k, enable_gqa=True))
    for tokens in (512, 4096):
        q = torch.randn(1, 32, tokens, 128, device="cuda").to(torch.bfloat16)
        yield (f"causal attention of {tokens} tokens, bf16",
               lambda q=q: F.scaled_dot_product_attention(q, q, q, is_causal=True))
    small = torch.ones(1024, device="cuda")
    yield "x + 1 of 1,024, not waited for", lambda: small + 1
    yield "x + 1 of 1,024, waited for", lambda: (small + 1, torch.cuda.synchronize())
    host = torch.ones(1 << 26)
    yield "copy of 256 MiB to the device", lambda: host.to("cuda")
    yield "copy of 256 MiB to the host", lambda: x.cpu()


def ours(options):
    environment = dict(os.environ, LD_LIBRARY_PATH=options.library_path)
    command = [options.program, options.part]
    rows = {}
    for line in subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment).stdout.splitlines():
        fields = line.split("\t")
        rows[fields[0]] = fields[1:]
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--part", default="", help="only operations whose names contain this")
    parser.add_argument("--library-path", default=os.environ.get("LD_LIBRARY_PATH", ""),
                        help="LD_LIBRARY_PATH for the benchmark; does not affect PyTorch")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    times, theirs, work = {}, {}, {}
    for _ in range(options.rounds):
        for name, fields in ours(options).items():
            if len(fields) == 3:
                times.setdefault(name, []).append(float(fields[0]))
                work[name] = (float(fields[1]), fields[2])
            else:
                print(f"{name}: {fields[0]}")
        with torch.inference_mode():
            for name, operation in operations():
                if options.part in name:
                    theirs.setdefault(name, []).append(1e6 * time_of(operation))
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, medians of {options.rounds} rounds\n")
    print("| operation | Tessera, µs | PyTorch, µs | ratio | Tessera's rate |\n|---|---|---|---|---|")
    for name, values in times.items():
        mine = statistics.median(values)
        amount, unit = work[name]
        rate = {"B": f"{amount / mine / 1e3:.0f} GB/s", "FLOP": f"{amount / mine / 1e6:.1f} TFLOP/s"}.get(unit, "")
        other = statistics.median(theirs[name]) if name in theirs else None
        print(f"| {name} | {mine:.1f} | {f'{other:.1f}' if other else ''} | {f'{mine / other:.2f}' if other else ''} | {rate} |")


if __name__ == "__main__":
    main()
