#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times training steps of Tessera and PyTorch alternately, with the same networks and the same number of threads.

usage: tools/compare_training_with_pytorch.py [--threads N] [--only TEXT] [--rounds N] [--seconds S] [--beside]
           [--memory] TRAINING

TRAINING is the program built from benchmarks/training.cpp. Prints the median steps per second of PyTorch (eager, f32, fused
Adam) and of Tessera, with a Trainer and with a hand-written loop. Also prints the median and quartiles of their ratios: above
1, Tessera is faster. The exit status is 1 if a Trainer is below its limit.

With --beside, also times PyTorch's compiled step, and eager and compiled steps in bf16 autocast, relative to eager f32. With
--memory, prints the peak memory of a step in MiB instead, excluding the memory that stays allocated between steps. Tessera's
value is the counter of its memory pool in the hand-written loop, PyTorch's value is the resident memory of the process.

Each library runs in its own process, which is stopped (SIGSTOP) while the other is timed. The threads of both libraries spin
while they wait, which would mainly slow down PyTorch. Other programs also slow down PyTorch, so the processor time that they
use is printed.

For development; requires torch (tools/requirements.txt).
"""
import argparse
import os
import statistics
import sys
import time

options = None


def parsed():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.5, help="duration of each measurement in seconds (default: 0.5)")
    parser.add_argument("--beside", action="store_true", help="also time PyTorch compiled and in bf16")
    parser.add_argument("--memory", action="store_true", help="print memory instead of times")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    options = parsed()

import torch
import torch.nn.functional as F
from torch import nn

import pytorch_llama
import pytorch_server
from pytorch_server import Server, seconds_of_others

BARS = {"dense": 1.0, "convolution": 0.7, "convolutions-32": 1.0, "residual": 1.0, "language": 0.9}


def step_of(model, optimizer, loss_of, clip=None, bf16=False):
    def step():
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            loss = loss_of()
        loss.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def classifier(model, x, compiled, bf16):
    y = torch.randint(0, 10, (len(x),))
    call = torch.compile(model, dynamic=False) if compiled else model
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    return step_of(model, optimizer, lambda: F.cross_entropy(call(x), y), bf16=bf16)


def dense(compiled=False, bf16=False):
    model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    return classifier(model, torch.rand(128, 784), compiled, bf16)


def convolution(compiled=False, bf16=False):
    model = nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3), nn.ReLU(),
                          nn.MaxPool2d(2), nn.Flatten(), nn.Linear(800, 10))
    return classifier(model, torch.rand(128, 1, 28, 28), compiled, bf16)


def convolutions_32(compiled=False, bf16=False):
    layers = [layer for _ in range(5) for layer in (nn.Conv2d(32, 32, 3, padding=1), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(32 * 32 * 32, 10))
    return classifier(model, torch.rand(32, 32, 32, 32), compiled, bf16)


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.layer = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels),
                                   nn.ReLU(), nn.Conv2d(channels, channels, 3, padding=1, bias=False),
                                   nn.BatchNorm2d(channels))

    def forward(self, x):
        return x + self.layer(x)


def residual(compiled=False, bf16=False):
    def first(inputs, outputs, stride):
        return nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()

    model = nn.Sequential(*first(3, 32, 1), Residual(32), nn.ReLU(), Residual(32), nn.ReLU(), *first(32, 64, 2),
                          Residual(64), nn.ReLU(), nn.AvgPool2d(16), nn.Flatten(), nn.Linear(64, 10))
    return classifier(model, torch.rand(32, 3, 32, 32), compiled, bf16)


def language(compiled=False, bf16=False):
    """Returns the model in models/. A step has 4,096 tokens in windows of 256."""
    model = pytorch_llama.Model(pytorch_llama.Shape(dropout=0.05))
    optimizer = torch.optim.AdamW(pytorch_llama.groups(model), lr=3e-3, betas=(0.9, 0.95), fused=True)
    ids = torch.randint(0, 2048, (16, 257))
    loss_of = torch.compile(model.loss, dynamic=False) if compiled else model.loss
    return step_of(model, optimizer, lambda: loss_of(ids), clip=1.0, bf16=bf16)


NETWORKS = {"dense": dense, "convolution": convolution, "convolutions-32": convolutions_32, "residual": residual,
            "language": language}
HOW = {"eager": (False, False), "PyTorch-compiled": (True, False), "PyTorch-bf16": (False, True),
       "PyTorch-comp.bf16": (True, True)}


def serve():
    """Reads lines "NAME HOW SECONDS" like benchmarks/training.cpp and runs PyTorch's variants."""
    torch.manual_seed(1)
    torch.set_num_threads(options.threads)
    steps = {}

    def step(name, how):
        if (name, how) not in steps:
            steps[name, how] = NETWORKS[name](*HOW[how])
        return steps[name, how]
    pytorch_server.answer(torch.__version__, step)


def main():
    ours = Server([options.program, "--serve"], options.threads)
    theirs = Server([sys.executable, __file__, "--serve", "--threads", str(options.threads), options.program],
                    options.threads, options.memory)
    if options.memory:
        for name in NETWORKS:
            if options.only in name:
                eager, mine = (of.ask(name, how, 0.1)[-1] / 2**20 for of, how in ((theirs, "eager"), (ours, "loop")))
                print(f"{name:16} PyTorch {eager:7.1f} MiB, ours {mine:7.1f} MiB, ratio {mine / eager:.2f}", flush=True)
        return 0
    slow = False
    print(f"PyTorch {theirs.first}, {options.threads} thread(s), {options.rounds} rounds of {options.seconds} s")
    print(f"{'network':12} {'what':18} {'PyTorch/s':>10} {'this/s':>10} {'ratio':>6} quartiles")
    for name in NETWORKS:
        if options.only not in name:
            continue
        others = {how: ours for how in ("trainer", "loop")}
        if options.beside:
            others |= {how: theirs for how in HOW if how != "eager"}
        rounds, began, before = [], 0, 0
        for turn in range(options.rounds + 1):  # the first round compiles
            if turn == 1:
                began, before = time.monotonic(), seconds_of_others(ours, theirs)
            rounds.append((theirs.ask(name, "eager", options.seconds)[0],
                           {how: of.ask(name, how, options.seconds)[0] for how, of in others.items()}))
        rounds = rounds[1:]
        taken = max(0.0, seconds_of_others(ours, theirs) - before) / (time.monotonic() - began)
        for how in others:
            ratios = sorted(eager / all[how] for eager, all in rounds)
            low, ratio, high = (ratios[int(q * (len(ratios) - 1))] for q in (0.25, 0.5, 0.75))
            eager, mine = (1e6 / statistics.median(v) for v in ([r[0] for r in rounds], [r[1][how] for r in rounds]))
            below = how == "trainer" and ratio < BARS[name]
            slow = slow or below
            print(f"{name:12} {how:18} {eager:10.1f} {mine:10.1f} {ratio:6.2f} {low:.2f}..{high:.2f}"
                  f"{f'  below {BARS[name]}' if below else ''}", flush=True)
        print(f"{'':12} other programs used {100 * taken:.0f} % of a core", flush=True)
    ours.end()
    theirs.end()
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(serve() if options.serve else main())
