#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the network of `tessera train digits` in PyTorch with the same data, and compares the accuracy.

usage: tools/compare_digits_with_pytorch.py [--seeds N] [--steps N] TESSERA DIGIT_ARRAYS

TESSERA is the program `tessera`, and DIGIT_ARRAYS is built from tools/digit_arrays.cpp. Network, AdamW, learning rates and
batches are the same. Each library initialises the parameters itself from the seed. Prints the accuracy on the 10,000
held-out samples for each seed. The exit status is 1 if Tessera's mean accuracy is more than 0.5 points lower. For
development; requires torch.
"""
import argparse
import json
import math
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

BATCH, RATE = 128, 3e-3


def arrays(path):
    data = np.memmap(path, np.uint8, "r")
    length = struct.unpack("<Q", data[:8])[0]
    kinds = {"F32": np.float32, "I32": np.int32}
    out = {}
    for name, a in json.loads(bytes(data[8:8 + length])).items():
        if name != "__metadata__":
            begin, end = a["data_offsets"]
            out[name] = data[8 + length + begin:8 + length + end].view(kinds[a["dtype"]]).reshape(a["shape"])
    return out


def rate(step, steps):
    """Returns the learning rate of nn/schedule.cpp: linear warm-up over 1/20 of the steps, then cosine decay."""
    warmup = steps // 20
    if step < warmup:
        return RATE * (step + 1) / warmup
    return RATE * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup))) / 2


def theirs(data, seed, steps):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Conv2d(1, 8, 5, 2, 2), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU(), nn.Flatten(),
                          nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=1e-2)
    for step in range(steps):
        part = slice(step * BATCH, (step + 1) * BATCH)
        x, y = torch.from_numpy(data["x"][part].copy()), torch.from_numpy(data["y"][part].astype(np.int64))
        optimizer.param_groups[0]["lr"] = rate(step, steps)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    with torch.no_grad():
        read = model(torch.from_numpy(data["held_out_x"].copy())).argmax(1).numpy()
    return 100 * float((read == data["held_out_y"]).mean())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tessera")
    parser.add_argument("digit_arrays")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=1500)
    options = parser.parse_args()
    pairs = []
    for seed in range(1, options.seeds + 1):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "digits.safetensors"
            subprocess.run([options.digit_arrays, str(seed), str(options.steps), str(BATCH), str(file)], check=True)
            out = subprocess.run([options.tessera, "train", "digits", "--device", "cpu", "--seed", str(seed), "--steps",
                                  str(options.steps), "--json"], check=True, stdout=subprocess.PIPE, text=True).stdout
            ours = 100 * json.loads(out)["held_out"]["accuracy"]
            pairs.append((ours, theirs(arrays(file), seed, options.steps)))
        print(f"seed {seed}: {pairs[-1][0]:.2f} % here, {pairs[-1][1]:.2f} % PyTorch", flush=True)
    below = float(np.mean([b - a for a, b in pairs]))
    print(f"mean: {below:+.2f} points lower" if below > 0 else f"mean: {-below:.2f} points higher")
    return 1 if below > 0.5 else 0


if __name__ == "__main__":
    sys.exit(main())
