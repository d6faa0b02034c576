#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads a text from standard input and prints the share of its words that occur in the training text.

A word is a sequence of ASCII letters, which may contain an apostrophe as in "doesn't". Words are compared in lower case. The
training text is either the text itself or a list of its words (models/words.txt). The exit code is 1 if the share is below
--least.

Example:
  build/tessera generate models/pgdocs-2m-q8_0.gguf -p "A transaction" -n 500 --temperature 0.8 \\
      | tools/check_words.py models/words.txt
"""
from __future__ import annotations

import argparse
import sys
from pathlib import Path

from corpus import words_of


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("training", type=Path, help="the training text or its list of words")
    parser.add_argument("--least", type=float, default=95.0, help="minimum percentage (default: 95)")
    options = parser.parse_args()
    known = set(words_of(options.training.read_text(encoding="utf-8")))
    words = words_of(sys.stdin.read())
    if not words:
        print("no words on standard input", file=sys.stderr)
        return 1
    unknown = [w for w in words if w not in known]
    share = 100 * (len(words) - len(unknown)) / len(words)
    print(f"{share:.2f} % of {len(words)} words occur in the training text"
          + (f"; not: {' '.join(sorted(set(unknown)))}" if unknown else ""))
    return 0 if share >= options.least else 1


if __name__ == "__main__":
    sys.exit(main())
