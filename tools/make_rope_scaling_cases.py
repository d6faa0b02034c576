#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the logits of a small Llama whose rotary embeddings are scaled for texts longer than those of its training, computed by
transformers in float64, for tests/llm/rope_scaling_test.cpp.

  tools/make_rope_scaling_cases.py tests/data/rope_scaling.json

The weights are those of the case "Llama 2" of tools/make_architecture_cases.py. Requires what that program requires.
"""
from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path

import make_architecture_cases as cases

TRAINED, TOKENS = 64, 150
SCALINGS = [("linear", 2.5, 64), ("yarn", 4.0, 64), ("yarn", 8.0, 32)]


def main() -> None:
    tokens = [int(n) % cases.VOCABULARY for n in cases.numbers("tokens", TOKENS)]
    at = [TRAINED - 1, TOKENS - 1]
    out = []
    for kind, factor, original in SCALINGS:
        rope = dict(rope_type=kind, rope_theta=10000.0, factor=factor)
        if kind == "yarn":
            rope["original_max_position_embeddings"] = original
        model = cases.make_model("Llama", dict(head_dim=8, rope_parameters=rope))
        logits = cases.logits("Llama 2", model, tokens)
        out.append({"type": kind, "factor": factor, "original context": original, "trained": TRAINED, "tokens": TOKENS,
                    "at": at, "transformers": logits[at].tolist()})
    Path(sys.argv[1]).write_text(json.dumps({"made with": f"transformers {version('transformers')}", "cases": out}) + "\n")


if __name__ == "__main__":
    main()
