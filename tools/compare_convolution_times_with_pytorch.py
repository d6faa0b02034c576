#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times convolutions and their gradients in Tessera and PyTorch alternately, with the same number of threads.

usage: tools/compare_convolution_times_with_pytorch.py [--threads N] [--only TEXT] [--what TEXT] [--rounds N]
           [--seconds S] [--memory] CONVOLUTION_TIMES

CONVOLUTION_TIMES is the program built from tools/convolution_times.cpp. Prints the milliseconds of PyTorch and Tessera
(minimum over the rounds; processor time with one thread, otherwise wall time). Also prints the median and quartiles of the
ratios of all rounds: below 1, Tessera is faster.

With --memory, prints the peak memory of a call in MiB instead. It includes the result but not the operands. Tessera's value
is the counter of its memory pool, PyTorch's value is the resident memory of the process.

For development; requires torch (tools/requirements.txt).
"""
import argparse
import os
import statistics
import sys
import time

import pytorch_server
from pytorch_server import Server, seconds_of_others

# n, input channels, output channels, rows (and columns), kernel, stride, padding, groups
CASES = {
    "32 to 32, 3 x 3, 32 x 32, batch 32": (32, 32, 32, 32, 3, 1, 1, 1),
    "64 to 64, 3 x 3, 32 x 32, batch 32": (32, 64, 64, 32, 3, 1, 1, 1),
    "512 to 64, 3 x 3, 32 x 32, batch 2": (2, 512, 64, 32, 3, 1, 1, 1),
    "256 to 256, 3 x 3, 14 x 14, batch 8": (8, 256, 256, 14, 3, 1, 1, 1),
    "512 to 512, 3 x 3, 7 x 7, batch 16": (16, 512, 512, 7, 3, 1, 1, 1),
    "3 to 16, 3 x 3, 32 x 32, batch 64": (64, 3, 16, 32, 3, 1, 1, 1),
    "3 to 64, 7 x 7, stride 2, 112 x 112, batch 8": (8, 3, 64, 112, 7, 2, 3, 1),
    "64 in 64 groups, 3 x 3, 56 x 56, batch 16": (16, 64, 64, 56, 3, 1, 1, 64),
    "64 to 128, 3 x 3, stride 2, 28 x 28, batch 32": (32, 64, 128, 28, 3, 2, 1, 1),
    "mean of 2 x 2, 64 channels, 32 x 32, batch 32": (32, 64, 64, 32, 2, 2, 0, 1),
    "mean of 16 x 16, 64 channels, 16 x 16, batch 32": (32, 64, 64, 16, 16, 16, 0, 1),
}
WHAT = ("forward", "dx", "dw", "pool")


def parsed():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--only", default="")
    parser.add_argument("--what", default="", help="forward, dx, dw or pool (default: all)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.25, help="duration of each measurement in seconds (default: 0.25)")
    parser.add_argument("--memory", action="store_true", help="print memory instead of times")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def serve(options):
    import torch
    import torch.nn.functional as F
    torch.set_num_threads(options.threads)
    calls = {}

    def made(what, n, inputs, outputs, rows, kernel, stride, padding, groups):
        x = torch.rand(n, inputs, rows, rows)
        if what == "pool":
            x.requires_grad_()
            y = F.avg_pool2d(x, kernel, stride, padding)
            g = torch.rand_like(y)
            return lambda: torch.autograd.grad(y, x, g, retain_graph=True)
        w = torch.rand(outputs, inputs // groups, kernel, kernel)
        if what == "forward":
            return lambda: F.conv2d(x, w, None, stride, padding, 1, groups)
        g = torch.rand_like(F.conv2d(x, w, None, stride, padding, 1, groups))
        wanted = [what == "dx", what == "dw", False]
        return lambda: torch.ops.aten.convolution_backward(g, x, w, None, [stride] * 2, [padding] * 2, [1, 1], False,
                                                           [0, 0], groups, wanted)

    def call_of(what, *numbers):
        if (what, numbers) not in calls:
            calls[what, numbers] = made(what, *map(int, numbers))
        return calls[what, numbers]
    with torch.inference_mode(False), torch.set_grad_enabled(True):
        pytorch_server.answer(torch.__version__, call_of)


def main(options):
    ours = Server([options.program], options.threads)
    theirs = Server([sys.executable, __file__, "--serve", "--threads", str(options.threads), options.program],
                    options.threads, options.memory)
    print(f"PyTorch {theirs.first}, {options.threads} thread(s), {options.rounds} rounds of {options.seconds} s")
    print(f"{'convolution':48} {'':8} {'PyTorch':>8} {'ours':>8} {'ratio':>6} quartiles")
    for name, numbers in CASES.items():
        for what in WHAT:
            if options.only not in name or options.what not in what or (what == "pool") != name.startswith("mean"):
                continue
            began, before, rounds = 0, 0, []
            for turn in range(1 if options.memory else options.rounds + 1):  # the first round compiles
                if turn == 1:
                    began, before = time.monotonic(), seconds_of_others(ours, theirs)
                rounds.append([server.ask(what, *numbers, options.seconds if turn else 0.01) for server in (theirs, ours)])
            if options.memory:
                pytorch, mine = (answer[-1] / 2**20 for answer in rounds[0])
                print(f"{name:48} {what:8} {pytorch:8.1f} {mine:8.1f} {mine / pytorch:6.2f} (MiB)", flush=True)
                continue
            taken = max(0.0, seconds_of_others(ours, theirs) - before) / (time.monotonic() - began)
            time_of = 1 if options.threads == 1 else 0
            ratios = sorted(mine[time_of] / pytorch[time_of] for pytorch, mine in rounds[1:])
            low, high = (ratios[int(q * (len(ratios) - 1))] for q in (0.25, 0.75))
            pytorch, mine = (min(r[i][time_of] for r in rounds[1:]) / 1000 for i in (0, 1))
            print(f"{name:48} {what:8} {pytorch:8.3f} {mine:8.3f} {statistics.median(ratios):6.2f} {low:.2f}..{high:.2f}"
                  f"{f'  (other programs used {100 * taken:.0f} % of a core)' if taken > 0.05 else ''}", flush=True)
    ours.end()
    theirs.end()
    return 0


if __name__ == "__main__":
    options = parsed()
    sys.exit(serve(options) if options.serve else main(options))
