#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/pytorch_*.safetensors: two small PyTorch networks and their outputs for one batch.

usage: tools/make_pytorch_models.py

The arrays of a network have the same names as in its state_dict. The batch is `test.x` and its result is `test.y`.
tests/nn/saved_model_test.cpp reads the files. The files were made with torch 2.15 and a fixed seed. For development; requires
torch (tools/requirements.txt). This script writes the safetensors format itself.
"""
import json
import pathlib
import struct

import torch
from torch import nn


def save(path, tensors):
    header, data = {}, b""
    for name, tensor in tensors.items():
        values = tensor.detach().contiguous()
        raw = values.numpy().tobytes()
        kind = {torch.float32: "F32", torch.int64: "I64"}[values.dtype]
        header[name] = {"dtype": kind, "shape": list(values.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


class Named(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.norm, self.fc2 = nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x):
        return self.fc2(torch.relu(self.norm(self.fc1(x))))


def main():
    folder = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data"
    folder.mkdir(exist_ok=True)
    torch.manual_seed(7)
    images = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                           nn.Linear(4 * 3 * 3, 5))
    for _ in range(20):  # updates the running statistics
        images(torch.randn(16, 2, 6, 6) * 2 + 1)
    for name, model, x in [("images", images, torch.randn(3, 2, 6, 6)), ("named", Named(), torch.randn(4, 6))]:
        model.eval()
        with torch.no_grad():
            y = model(x)
        save(folder / f"pytorch_{name}.safetensors", {**model.state_dict(), "test.x": x, "test.y": y})


if __name__ == "__main__":
    main()
