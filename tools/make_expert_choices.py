#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the experts that transformers chooses for 10,000 tokens, for tests/llm/expert_choices_test.cpp.

  tools/make_expert_choices.py tests/data/expert_choices.json

The model is the case "Qwen 3 MoE" of make_architecture_cases.py, in float64. It reads 20 texts of 500 tokens. For each layer,
the file has one character per token: 48 plus the index of the set of its experts in itertools.combinations. Requires
transformers, torch and numpy.
"""
from __future__ import annotations

import itertools
import json
import sys
import types
from importlib.metadata import version
from pathlib import Path

sys.modules.setdefault("llama_cpp", types.ModuleType("llama_cpp"))  # not needed here
import torch
import transformers
from make_architecture_cases import CASES, EXPERTS, LAYERS, VOCABULARY, make_model, numbers

NAME, TEXTS, LENGTH = "Qwen 3 MoE", 20, 500


def main() -> None:
    _, kind, further, *_ = next(case for case in CASES if case[0] == NAME)
    model = make_model(kind, further).double()
    chosen: list[list[torch.Tensor]] = [[] for _ in range(LAYERS)]
    for layer, block in enumerate(model.model.layers):
        block.mlp.gate.register_forward_hook(lambda _, __, out, to=chosen[layer]: to.append(out[-1].reshape(-1, out[-1].shape[-1])))
    tokens = torch.tensor([int(v) % VOCABULARY for v in numbers("tokens", TEXTS * LENGTH)]).reshape(TEXTS, LENGTH)
    with torch.no_grad():
        for text in tokens:
            model(text[None])
    sets = {s: i for i, s in enumerate(itertools.combinations(range(EXPERTS["num_experts"]), EXPERTS["num_experts_per_tok"]))}
    layers = ["".join(chr(48 + sets[tuple(sorted(ids))]) for ids in torch.cat(each).tolist()) for each in chosen]
    assert all(len(each) == TEXTS * LENGTH for each in layers)
    made = {"transformers": transformers.__version__, "torch": version("torch")}
    Path(sys.argv[1]).write_text(json.dumps({"made with": made, "name": NAME, "length": LENGTH, "layers": layers}, indent=0) + "\n")


if __name__ == "__main__":
    main()
