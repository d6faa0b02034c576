#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the network of `tessera train lm` in PyTorch with the same weights and data, and compares loss and speed.

usage: tools/compare_lm_with_pytorch.py [--steps N] [--seed N] [--threads N] TESSERA LM_ARRAYS TEXT

TESSERA is the program `tessera`, and LM_ARRAYS is built from tools/lm_arrays.cpp. Initial weights, windows and their order,
AdamW, clipping and learning rates are the same. Both train in f32 without dropout. Prints the loss on all held-out tokens
and the speed that each program reports. The exit status is 1 if the losses differ by more than 0.02 nats. For development;
requires torch.
"""
import argparse
import json
import math
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
    os.environ.pop(name, None)

import numpy as np
import torch
import torch.nn.functional as F

import pytorch_llama

BATCH, RATE, FINAL, CONTEXT, BAR = 16, 3e-3, 0.02, 256, 0.02


def arrays(path):
    data = np.memmap(path, np.uint8, "r")
    length = struct.unpack("<Q", data[:8])[0]
    kinds = {"F32": np.float32, "I32": np.int32}
    out = {}
    for name, a in json.loads(bytes(data[8:8 + length])).items():
        if name != "__metadata__":
            begin, end = a["data_offsets"]
            values = data[8 + length + begin:8 + length + end].view(kinds[a["dtype"]]).reshape(a["shape"])
            out[name] = torch.from_numpy(values.copy())
    return out


def rate(step, steps):
    """Returns the learning rate of nn/schedule.cpp: linear warm-up over 1/20 of the steps, then cosine decay to FINAL."""
    warmup = steps // 20
    if step < warmup:
        return RATE * (step + 1) / warmup
    gone = (step - warmup) / (steps - warmup)
    return RATE * (FINAL + (1 - FINAL) * (1 + math.cos(math.pi * gone)) / 2)


def theirs(data, steps):
    shape = pytorch_llama.Shape(layers=4, vocabulary=data["embedding.weight"].shape[0], context=CONTEXT)
    windows, inputs, targets = (data.pop(name) for name in ("windows", "inputs", "targets"))
    model = pytorch_llama.Model(shape)
    model.load_state_dict(data)
    optimizer = torch.optim.AdamW(pytorch_llama.groups(model), betas=(0.9, 0.95), fused=True)
    seconds = []
    for step in range(steps):
        start = time.monotonic()
        for group in optimizer.param_groups:
            group["lr"] = rate(step, steps)
        loss = model.loss(windows[step].long())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds.append(time.monotonic() - start)
        if step % 20 == 19:
            print(f"PyTorch: step {step + 1} of {steps}, loss {loss.item():.4f}", file=sys.stderr, flush=True)
    nats = 0.0
    with torch.no_grad():
        for x, y in zip(inputs.long().split(BATCH), targets.long().split(BATCH)):
            nats += F.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="sum").item()
    return nats / int((targets != -100).sum()), BATCH * CONTEXT / statistics.median(seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tessera")
    parser.add_argument("lm_arrays")
    parser.add_argument("text")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "arrays.safetensors"
        subprocess.run([options.lm_arrays, options.text, str(options.seed), str(options.steps), str(BATCH), str(file)],
                       check=True)
        ran = subprocess.run([options.tessera, "train", "lm", "--text", options.text, "--device", "cpu", "--seed",
                              str(options.seed), "--steps", str(options.steps), "--json", "--out",
                              str(Path(folder) / "model.gguf")], check=True, stdout=subprocess.PIPE, text=True,
                             env={**os.environ, "TESSERA_THREADS": str(options.threads)})
        ours = json.loads(ran.stdout)
        data = arrays(file)
    loss, speed = theirs(data, options.steps)
    mine, mine_speed = ours["held_out"]["loss"], ours["tokens_per_second"]
    print(f"{options.steps} steps of {BATCH * CONTEXT} tokens, f32, seed {options.seed}, {options.threads} thread(s), "
          f"PyTorch {torch.__version__}")
    print(f"nats per held-out token: {mine:.4f} Tessera, {loss:.4f} PyTorch, difference {mine - loss:+.4f}; bigram model "
          f"{ours['held_out']['bigram_loss']:.4f}, 3-gram model {ours['held_out']['trigram_loss']:.4f}")
    print(f"tokens per second: {mine_speed:.0f} Tessera (mean), {speed:.0f} PyTorch (of the median step)")
    return 1 if abs(mine - loss) > BAR else 0


if __name__ == "__main__":
    sys.exit(main())
