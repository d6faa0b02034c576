#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs GGUF files in llama.cpp (through the PyPI package llama-cpp-python), as the reference for `tessera generate`.

Generates greedily and prints the gap between the two best logits at each step. A small gap explains a difference:
  tools/check_with_llama_cpp.py models/pgdocs-2m-q8_0.gguf models/pgdocs-2m-f16.gguf --json models/reference-greedy.json

Writes the token ids of about seventy strings that are difficult to tokenize:
  tools/check_with_llama_cpp.py models/pgdocs-2m-f16.gguf --tokens models/reference-tokens.json

Compares with `tessera generate` (keys and values are f32 in both) and prints the gap at the first different token:
  tools/check_with_llama_cpp.py model.gguf -n 64 --beside build/release/bin/tessera

Samples a text for check_words.py:
  tools/check_with_llama_cpp.py models/pgdocs-2m-q8_0.gguf --sample 500 --seed 3 --prompt "A transaction" \\
      | tools/check_words.py models/words.txt
"""
from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import llama_cpp
import numpy as np

PROMPTS = ["The query planner", "A transaction is", "If the server is not running,", "Automatically drop objects"]

NEAR_TIE = 2e-3  # a fraction of the range of the logits; llama.cpp rounds activations to 16 or 8 bits

STRINGS = [
    "", " ", "  ", "   ", "\n", "\n\n", "\n\n\n", " \n", "\n ", "\t", "\t\tx", "a", " a", "  a", "a ", "a  ", "a  b", "a\nb",
    "a \n b", "a\r\nb", "Hello world", "Hello, world!", "hello   world  ", " The query planner", "the table's owner",
    "don't can't we'll they've I'm he'd you're", "DON'T CAN'T", "it's 'quoted' text", "'s't're", "'", "''", "0", "7", "42", "2024",
    "1234567890", "3.14159", "1,000,000", "a1b2c3", "x = y + 1;", "SELECT * FROM t WHERE a <> b;", "max_connections",
    "pg_stat_activity", "(see below)", "e.g. this", "\"double\"", "a/b\\c", "!!??..", "...", "-- comment", "C++ and C#",
    "caf\u00e9 na\u00efve \u00fcber", "\u00c5ngstr\u00f6m", "\u4f60\u597d\u4e16\u754c", "\u041f\u0440\u0438\u0432\u0435\u0442",
    "\u0645\u0631\u062d\u0628\u0627", "\U0001f600 smile", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "e\u0301 combining",
    "\u00a0nbsp", "\u2003em space", "\u00bd \u2167 \u0663", "\u201ccurly\u201d \u2014 dash", "a\x00b", "\x7f", "zzzzzzzzzzzzzzzzzzzz",
    "<|endoftext|>", "a<|endoftext|>b", "<|endoftext", "The   quick\t\tbrown\n\n\nfox  \n",
]


def parameters_without_repacking() -> llama_cpp.llama_cpp.llama_model_params:
    """Keeps weights in the format of the file. Repacked q8_0 products execute an illegal instruction on some processors."""
    parameters = usual_parameters()
    parameters.use_extra_bufts = False
    return parameters


usual_parameters = llama_cpp.llama_cpp.llama_model_default_params
llama_cpp.llama_cpp.llama_model_default_params = parameters_without_repacking


def load(path: Path, context: int) -> llama_cpp.Llama:
    """Loads the model on the CPU, with a key-value cache in f32."""
    return llama_cpp.Llama(str(path), n_ctx=context, n_batch=64, n_threads=1, n_gpu_layers=0, logits_all=True, verbose=False,
                           type_k=llama_cpp.GGML_TYPE_F32, type_v=llama_cpp.GGML_TYPE_F32)


def greedy(model: llama_cpp.Llama, prompt: str, count: int) -> dict:
    """Generates greedily until an end token, which is included in the result."""
    start = model.tokenize(prompt.encode(), add_bos=True, special=False)
    model.reset()
    model.eval(start)
    ids: list[int] = []
    runners_up: list[int] = []
    gaps: list[float] = []
    ranges: list[float] = []
    for _ in range(count):
        logits = np.array(model.scores[model.n_tokens - 1], dtype=np.float64)
        second, best = (int(i) for i in np.argsort(logits, kind="stable")[-2:])
        ids.append(best)
        runners_up.append(second)
        gaps.append(round(float(logits[best] - logits[second]), 5))
        ranges.append(round(float(logits.max() - logits.min()), 4))
        if best == model.token_eos():
            break
        model.eval([best])
    return {"prompt": prompt, "prompt_tokens": start, "tokens": ids,
            "text": model.detokenize(ids, prev_tokens=start).decode("utf-8", errors="replace"),
            "runner_up": runners_up, "gap": gaps, "logit_range": ranges}


def beside(program: str, path: Path, result: dict) -> bool:
    """Prints whether `tessera generate` generates the same tokens. Returns False if they differ without a near-tie."""
    ran = subprocess.run([program, "generate", str(path), "-p", result["prompt"], "-n", str(len(result["tokens"])),
                          "--temperature", "0", "--cache", "f32", "--print-tokens", "--quiet", "--device", "cpu"],
                         check=True, stdout=subprocess.PIPE, text=True)
    ours = [int(t) for t in ran.stdout.split()]
    theirs = result["tokens"][:len(ours)] if len(ours) < len(result["tokens"]) else result["tokens"]
    for i, (a, b) in enumerate(zip(ours, theirs)):
        if a != b:
            share = result["gap"][i] / result["logit_range"][i]
            print(f"  tessera: differs at token {i}: {a} instead of {b}, gap {result['gap'][i]:.5f} "
                  f"({100 * share:.3f} % of the logits' range){'' if share < NEAR_TIE else ': NO NEAR-TIE'}")
            return share < NEAR_TIE
    print(f"  tessera: the same {len(ours)} tokens")
    return len(ours) >= len(result["tokens"]) - 1  # end tokens are not printed


def sampled(model: llama_cpp.Llama, prompt: str, count: int, temperature: float, seed: int) -> str:
    """Returns the prompt and `count` tokens, sampled from the full distribution without end tokens."""
    chance = np.random.default_rng(seed)
    model.reset()
    start = model.tokenize(prompt.encode(), add_bos=True, special=False)
    model.eval(start)
    ids: list[int] = []
    for _ in range(count):
        logits = np.array(model.scores[model.n_tokens - 1], dtype=np.float64) / temperature
        logits[model.token_eos()] = -np.inf
        p = np.exp(logits - logits.max())
        ids.append(int(chance.choice(len(p), p=p / p.sum())))
        model.eval(ids[-1:])
    return prompt + model.detokenize(ids, prev_tokens=start).decode("utf-8", errors="replace")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="+", help="GGUF files")
    parser.add_argument("--prompt", action="append", help=f"may be repeated (default: {PROMPTS})")
    parser.add_argument("-n", type=int, default=32, help="number of greedy tokens (default: 32)")
    parser.add_argument("--json", type=Path, help="also write the greedy results to this file")
    parser.add_argument("--tokens", type=Path, help="only write the token ids of the test strings to this file")
    parser.add_argument("--beside", metavar="TESSERA", help="compare with the output of this program")
    parser.add_argument("--sample", type=int, metavar="N", help="only print N sampled tokens of the first prompt")
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    prompts = options.prompt or PROMPTS
    program = f"llama-cpp-python {llama_cpp.__version__}"

    if options.tokens:
        model = load(options.models[0], 64)
        cases = []
        for text in STRINGS:
            case = {"text": text, "tokens": model.tokenize(text.encode(), add_bos=False, special=False)}
            if "<|" in text:
                case["tokens_with_special"] = model.tokenize(text.encode(), add_bos=False, special=True)
            cases.append(case)
        lines = ",\n".join("  " + json.dumps(c) for c in cases)
        options.tokens.write_text(f'{{"program": {json.dumps(program)}, "strings": [\n{lines}\n]}}\n')
        print(f"{program}: {len(cases)} strings written to {options.tokens}")
        return 0
    if options.sample:
        model = load(options.models[0], options.sample + 128)
        print(sampled(model, prompts[0], options.sample, options.temperature, options.seed))
        return 0

    results = {}
    right = True
    for path in options.models:
        model = load(path, 512)
        results[path.name] = [greedy(model, prompt, options.n) for prompt in prompts]
        for r in results[path.name]:
            print(f"{program}, {path.name}\n  prompt {r['prompt']!r} {r['prompt_tokens']}\n  tokens {r['tokens']}\n"
                  f"  text   {r['text']!r}\n  gap    {r['gap']}\n  least gap {min(r['gap']):.5f} at step {int(np.argmin(r['gap']))}")
            if options.beside:
                right &= beside(options.beside, path, r)
    if options.json:
        body = ",\n".join(f" {json.dumps(name)}: [\n" + ",\n".join("  " + json.dumps(r) for r in rs) + "\n ]"
                          for name, rs in results.items())
        options.json.write_text(f'{{"program": {json.dumps(program)}, "models": {{\n{body}\n}}}}\n')
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
