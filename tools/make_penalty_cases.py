#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/penalty_cases.json: logits after llama.cpp's biases and penalties, for tests/llm/sampler_test.cpp.

usage: make_penalty_cases.py > tests/data/penalty_cases.json

Each case contains random logits, histories and options, and the logits after llama.cpp's samplers have changed them. Requires
llama-cpp-python (tools/requirements.txt). LLAMA_CPP_LIB_PATH selects a folder with another libllama.so.
"""
from __future__ import annotations

import ctypes
import json
import random

import llama_cpp

TOKENS = 48


def logits_of(values: list[float], before: list[int], o: dict) -> list[float]:
    """Returns the logits after llama.cpp's samplers."""
    steps = []
    if o["logit_bias"]:
        biases = (llama_cpp.llama_logit_bias * len(o["logit_bias"]))(*[(t, b) for t, b in o["logit_bias"]])
        steps.append(llama_cpp.llama_sampler_init_logit_bias(TOKENS, len(biases), biases))
    last = len(before) if o["penalty_last"] == -1 else o["penalty_last"]  # llama.cpp has no "all" for this option
    steps.append(llama_cpp.llama_sampler_init_penalties(TOKENS, last, o["repeat_penalty"], o["frequency_penalty"],
                                                        o["presence_penalty"]))
    data = (llama_cpp.llama_token_data * TOKENS)(*[(i, v, 0.0) for i, v in enumerate(values)])
    array = llama_cpp.llama_token_data_array(data, TOKENS, -1, False)
    for step in steps:
        for token in before:
            llama_cpp.llama_sampler_accept(step, token)
        llama_cpp.llama_sampler_apply(step, ctypes.byref(array))
        llama_cpp.llama_sampler_free(step)
    out = [0.0] * TOKENS
    for i in range(array.size):
        out[array.data[i].id] = array.data[i].logit
    return out


def main() -> None:
    draw = random.Random(22)
    cases = []
    for number in range(40):
        values = [draw.randrange(-1280, 1281) / 64 for _ in range(TOKENS)]  # values that are exact as floats, with few digits
        values[draw.randrange(TOKENS)] = 0.0
        before = [draw.randrange(TOKENS) if draw.random() < 0.5 else draw.randrange(6)
                  for _ in range(draw.choice([1, 5, 30, 120]))]
        # Each option is used by itself, in pairs, and with all others.
        of = lambda bit, choices, none: draw.choice(choices) if (number % 7 + 1) & bit else none
        o = {"repeat_penalty": of(1, [1.1, 1.3, 2.0, 0.8], 1.0),
             "frequency_penalty": of(2, [0.1, 0.37, 1.5, -0.4], 0.0),
             "presence_penalty": of(4, [0.2, 0.61, 2.0, -1.1], 0.0),
             "penalty_last": draw.choice([-1, 3, 16, 64]),
             "logit_bias": [[draw.randrange(TOKENS), draw.randrange(-64, 65) / 16]] if number % 5 == 0 else []}
        after = logits_of(values, before, o)
        changed = [[i, float(f"{b:.9g}")] for i, (a, b) in enumerate(zip(values, after)) if a != b]
        cases.append({"options": o, "logits": values, "before": before, "changed": changed})
    head = json.dumps({"from": f"llama.cpp as llama-cpp-python {llama_cpp.__version__} has it"})
    print(head[:-1] + ', "cases": [\n' + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n]}")


if __name__ == "__main__":
    main()
