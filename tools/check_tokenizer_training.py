#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the merges that train_tokenizer learns with those of Hugging Face's tokenizers, and times both.

usage: tools/check_tokenizer_training.py [--vocabulary N] [--pre gpt-2|llama-bpe] TRAIN_TOKENIZER FILE...

TRAIN_TOKENIZER is the program built from tools/train_tokenizer.cpp. Each FILE is one text in UTF-8. If two pairs are equally
frequent, both programs merge the pair with the lower token ids. The exit status is 1 if a merge differs. For development
(tools/requirements.txt).
"""
import argparse
import json
import subprocess
import sys
import time

from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

PATTERNS = {
    "gpt-2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "llama-bpe": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
                 r"\s*[\r\n]+|\s+(?!\S)|\s+",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocabulary", type=int, default=4096)
    parser.add_argument("--pre", choices=sorted(PATTERNS), default="gpt-2")
    parser.add_argument("program")
    parser.add_argument("files", nargs="+")
    options = parser.parse_args()

    ran = subprocess.run([options.program, str(options.vocabulary), options.pre, *options.files], check=True,
                         capture_output=True, text=True)
    ours = ran.stdout.splitlines()
    texts = [open(name, encoding="utf-8", newline="").read() for name in options.files]

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERNS[options.pre]), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    trainer = trainers.BpeTrainer(vocab_size=options.vocabulary - 1, min_frequency=2, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    start = time.monotonic()
    tokenizer.train_from_iterator(texts, trainer)
    seconds = time.monotonic() - start
    theirs = [" ".join(m) if isinstance(m, list) else m for m in json.loads(tokenizer.to_str())["model"]["merges"]]

    same = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
    size = sum(len(t.encode()) for t in texts)
    print(f"{size} bytes in {len(texts)} texts, {options.pre}, vocabulary {options.vocabulary}: {len(ours)} merges, "
          f"tokenizers {len(theirs)}; the first {same} are equal; {float(ran.stderr.split()[-1]):.2f} s, tokenizers "
          f"{seconds:.2f} s")
    if same < max(len(ours), len(theirs)):
        print(f"merge {same}: {ours[same:same + 1]} here, {theirs[same:same + 1]} there")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
